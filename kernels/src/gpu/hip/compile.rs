//! Compiling kernels at first use with a clang that knows AMD GPUs, started as a program; `cache` keeps them.
//!
//! hiprtc is not used: it comes with ROCm only, and its clang cannot be named by version. The compilers that are tried, in order:
//! `$ROCM_PATH/llvm/bin/clang++`, `/opt/rocm/llvm/bin/clang++`, `amdclang++` and `clang++-22` on PATH. The flags are those of
//! kernels/gfx950/kernels.yaml, with which CI builds and checks the same kernels; only warnings are no errors here, because other
//! versions of clang have others.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::gpu::GpuError;
use crate::gpu::cache::{self, Cache};
use crate::gpu::library;
use crate::gpu::sources;

/// What `kernels-build` reads, too.
const MANIFEST: &str = include_str!("../../../gfx950/kernels.yaml");

/// The one architecture for which there are kernels.
pub(super) const ARCHITECTURE: &str = "gfx950";

const PACKAGE: &str = "ROCm 7, or Debian's clang: apt-get install --no-install-recommends clang-22 lld-22";

#[derive(Debug)]
pub(super) struct Compiler {
    program: PathBuf,
    /// First line of what it says of itself.
    pub(super) version: String,
    cache: Cache,
}

impl Compiler {
    /// The first one that runs.
    pub(super) fn find() -> Result<Self, GpuError> {
        let tried = candidates();
        let found = tried.iter().find_map(|program| Some((program.clone(), version_of(program)?)));
        let Some((program, version)) = found else {
            let tried: Vec<String> = tried.iter().map(|program| program.display().to_string()).collect();
            return Err(GpuError::MissingCompiler { tried: tried.join(", "), package: PACKAGE });
        };
        Ok(Self { program, version, cache: Cache::new() })
    }

    /// For provenance: version and path.
    pub(super) fn describe(&self) -> (String, String) {
        ("clang".to_owned(), format!("{} ({})", self.version, self.program.display()))
    }

    /// Code object of a file of kernels/device with these definitions.
    pub(super) fn code_object(&self, file: &'static str, defines: &[String]) -> Result<Vec<u8>, GpuError> {
        let file = source_of(file, defines);
        let flags = flags();
        let options: Vec<&str> = flags.iter().map(String::as_str).chain(defines.iter().map(String::as_str)).collect();
        let texts = sources::gfx950_headers().map(|(_, text)| text).chain(std::iter::once(sources::text(file)));
        let key = cache::key([self.version.as_str(), file].into_iter().chain(options.iter().copied()).chain(texts));
        self.cache.find_or(&format!("{key}.co"), || {
            let folder = std::env::temp_dir().join(format!("mxfp4-kernels-{key}-{}", std::process::id()));
            let result = self.compile(&folder, file, &options);
            let _ = std::fs::remove_dir_all(&folder);
            result
        })
    }

    fn compile(&self, folder: &Path, file: &'static str, options: &[&str]) -> Result<Vec<u8>, GpuError> {
        let failed = |call: String, reason: String| GpuError::Call { call, reason };
        let io = |error: std::io::Error| failed(format!("writing {file} to {} for the compiler", folder.display()), error.to_string());
        for (name, text) in sources::gfx950_headers().chain(std::iter::once((file, sources::text(file)))) {
            let path = placed(folder, name);
            std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(io)?;
            std::fs::write(path, text).map_err(io)?;
        }
        let out = folder.join("kernel.co");
        let output = Command::new(&self.program)
            .args(options)
            .arg(placed(folder, file))
            .arg("-o")
            .arg(&out)
            .output()
            .map_err(|error| failed(format!("starting {}", self.program.display()), error.to_string()))?;
        if !output.status.success() {
            let log = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let log = format!("{} ({}) says:\n{log}", self.program.display(), self.version);
            return Err(GpuError::Compile { file: file.to_owned(), architecture: ARCHITECTURE.to_owned(), log });
        }
        std::fs::read(&out).map_err(|error| failed(format!("reading what {} made of {file}", self.program.display()), error.to_string()))
    }
}

/// CUDA's attention is written for tensor cores; the matrix cores of gfx950 have two texts of their own, with the same kernels: one for heads of 128
/// elements, whose halves fill matrix operations of 32 by 32, and one for all others.
fn source_of(file: &'static str, defines: &[String]) -> &'static str {
    match file {
        "attention.cu" if defines.iter().any(|define| define == "-DHEAD_DIM=128") => "gfx950/attention_32x32.hip",
        "attention.cu" => "gfx950/attention.hip",
        _ => file,
    }
}

/// Where a text lies for the compiler: as in kernels/, because texts include each other by relative paths.
fn placed(folder: &Path, name: &str) -> PathBuf {
    if name.starts_with("gfx950/") { folder.join(name) } else { folder.join("device").join(name) }
}

fn candidates() -> Vec<PathBuf> {
    let rocm = library::rocm_path().into_iter().chain([PathBuf::from("/opt/rocm")]);
    rocm.map(|folder| folder.join("llvm/bin/clang++")).chain(["amdclang++", "clang++-22"].map(PathBuf::from)).collect()
}

fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The manifest's flags, without the one that makes warnings errors.
fn flags() -> Vec<String> {
    let list = MANIFEST.split_once("\nflags: [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    let flags = list.split(',').map(str::trim).filter(|flag| !flag.is_empty() && *flag != "-Werror");
    flags.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn heads_of_128_have_a_text_of_their_own() {
        let source = |head_dim: usize| super::source_of("attention.cu", &[format!("-DHEAD_DIM={head_dim}")]);
        assert_eq!(source(128), "gfx950/attention_32x32.hip");
        assert!((16..128).step_by(16).all(|head_dim| source(head_dim) == "gfx950/attention.hip"));
        assert_eq!(super::source_of("norm.cu", &["-DWIDTH=128".to_owned()]), "norm.cu");
    }

    #[test]
    fn flags_are_the_manifests() {
        let flags = super::flags();
        assert_eq!(flags[..3], ["-x", "hip", &format!("--offload-arch={}", super::ARCHITECTURE)]);
        for needed in ["--offload-device-only", "-nogpulib", "-fuse-cuid=none", "-ffp-contract=off", "-O3"] {
            assert!(flags.iter().any(|flag| flag == needed), "{needed} in {flags:?}");
        }
        assert!(!flags.iter().any(|flag| flag == "-Werror" || flag.contains(char::is_whitespace)), "{flags:?}");
    }
}
