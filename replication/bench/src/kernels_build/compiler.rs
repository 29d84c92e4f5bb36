//! clang 22: finding it, and compiling one source to one code object.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use campaign::toolchain::{captured, last_lines};
use study::files::Context as _;

use super::BuildError;

/// The variable that names the compiler where it is not `clang++-22` on PATH.
const VARIABLE: &str = "CLANG_22";
const NAME: &str = "clang++-22";
const MAJOR: &str = "22";
const ADVICE: &str = "install it (Debian: apt-get install --no-install-recommends clang-22 lld-22 llvm-22) or name it in CLANG_22; \
no ROCm is needed";

/// A compiler that was asked for its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// Where it is.
    pub path: PathBuf,
    /// The first line of `--version`.
    pub version: String,
}

impl Compiler {
    /// The compiler that the environment names, or the one on PATH.
    ///
    /// # Errors
    /// When there is none, or it is not clang 22 (the kernels' budgets and a known miscompilation are of that version).
    pub fn find() -> Result<Self, BuildError> {
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = named.unwrap_or_else(|| on_path(NAME));
        let output = captured(&duct::cmd!(&path, "--version").stdout_capture().stderr_null().unchecked());
        let output = output.map_err(|error| BuildError::Compiler(format!("{} does not run ({error}): {ADVICE}", path.display())))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.lines().next().unwrap_or_default().trim().to_owned();
        if !is_supported(&version) {
            return Err(BuildError::Compiler(format!("{} says it is `{version}`, not clang {MAJOR}: {ADVICE}", path.display())));
        }
        Ok(Self { path, version })
    }

    /// Compiles `file`, a path relative to `folder`, with `flags`.
    ///
    /// # Errors
    /// What the compiler printed, or a file that cannot be made or read.
    pub fn compile(&self, folder: &Path, file: &str, flags: &[String]) -> Result<Vec<u8>, BuildError> {
        let object = temporary("object.co");
        let mut arguments: Vec<std::ffi::OsString> = flags.iter().map(Into::into).collect();
        // Relative: the folder's own path would be written into the code object.
        arguments.extend([file.into(), "-o".into(), object.clone().into()]);
        let command = duct::cmd(&self.path, arguments).dir(folder).stderr_to_stdout().stdout_capture().unchecked();
        let output = captured(&command).map_err(|error| BuildError::Compiler(format!("{}: {error}", self.path.display())))?;
        let bytes = std::fs::read(&object);
        let _ = std::fs::remove_file(&object);
        if !output.status.success() {
            return Err(BuildError::Source { file: file.to_owned(), output: last_lines(&String::from_utf8_lossy(&output.stdout), 40) });
        }
        Ok(bytes.at(&object, "read")?)
    }
}

/// Whether a `--version` line is clang 22's, whoever packaged it.
pub(super) fn is_supported(version: &str) -> bool {
    version.split_once("clang version ").is_some_and(|(_, rest)| rest.split('.').next() == Some(MAJOR))
}

/// The first file of that name on PATH; the bare name where there is none, so that the message can say it.
fn on_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

/// A path in the system's folder for temporary files that nothing else in this or another process has.
pub(super) fn temporary(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("kernels-build-{}-{number}-{name}", std::process::id()))
}
