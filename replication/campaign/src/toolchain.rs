//! The trainer as a program: building it, knowing what it was built from, calling it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use duct::Expression;
use serde::Deserialize;
use study::files::{self, FileError};
use study::fingerprint;
use study::plan::Build;

/// Why the trainer could not be built or called.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    File(#[from] FileError),
    /// A program could not be started.
    #[error("cannot start {program}: {source}; is it installed and on PATH?")]
    Start {
        program: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A program ended with an error.
    #[error("{what}{}", ending(.status, .output))]
    Failed {
        what: String,
        /// Exit code or signal.
        status: String,
        /// Exit code, where it has one.
        code: Option<i32>,
        /// The last lines it printed.
        output: String,
    },
    /// A prebuilt trainer that does not say what it was built from.
    #[error(
        "{}: {what}; build it with `cargo xtask pack`, or with `cargo xtask replicate` (target/replicate/release/trainer), which write the hash of its sources into it",
        .program.display()
    )]
    Unidentified { program: PathBuf, what: String },
    /// Nothing to build from, and nothing prebuilt.
    #[error("{} holds no sources of the trainer; name a prebuilt one with --trainer PATH", .root.display())]
    NoSources {
        /// Where they were looked for.
        root: PathBuf,
    },
}

/// A program that said what is wrong in one line is quoted in one line.
fn ending(status: &str, output: &str) -> String {
    match output.trim().strip_prefix("error: ") {
        Some(line) if !line.contains('\n') => format!(": {line}"),
        _ => format!(" ended with {status}:\n{output}"),
    }
}

#[derive(Debug, Clone)]
pub struct Trainer {
    pub program: PathBuf,
}

impl Trainer {
    /// A call of the trainer with `arguments`; nothing is started yet.
    pub fn command<S: Into<OsString>>(&self, arguments: impl IntoIterator<Item = S>) -> Expression {
        duct::cmd(&self.program, arguments.into_iter().map(Into::into)).unchecked()
    }

    /// Runs the trainer to its end and returns its standard output.
    ///
    /// # Errors
    /// When it cannot be started or ends with an error; its last 40 lines are in the message.
    pub fn output<S: Into<OsString>>(&self, what: &str, arguments: impl IntoIterator<Item = S>) -> Result<String, ToolError> {
        finish(what, "the trainer", self.command(arguments))
    }
}

/// Runs an (unchecked) expression to its end; standard output on success.
fn finish(what: &str, program: &str, expression: Expression) -> Result<String, ToolError> {
    let output = expression.stdout_capture().stderr_capture().unchecked().run();
    let output = output.map_err(|source| ToolError::Start { program: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(ToolError::Failed {
        what: what.to_owned(),
        status: output.status.to_string(),
        code: output.status.code(),
        output: last_lines(&String::from_utf8_lossy(&output.stderr), 40),
    })
}

/// The last `count` lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The cargo that started us, or the one on PATH.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Calls cargo with `arguments` in `root`.
pub fn run_cargo(root: &Path, what: &str, arguments: &[OsString]) -> Result<String, ToolError> {
    finish(what, "cargo", duct::cmd(cargo(), arguments).dir(root))
}

/// A trainer that is here already, if one was named or lies beside the manifests as `cargo xtask pack` puts it.
pub fn prebuilt(root: &Path, named: Option<&Path>) -> Option<PathBuf> {
    let packed = root.join(TRAINER);
    named.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned())).or_else(|| packed.is_file().then_some(packed))
}

/// A trainer that may be asked what it finds, without building one: prebuilt, or from the last campaign.
pub fn at_hand(root: &Path, named: Option<&Path>) -> Option<Trainer> {
    let built = root.join("target").join("replicate").join("release").join(TRAINER);
    prebuilt(root, named).or_else(|| built.is_file().then_some(built)).map(|program| Trainer { program })
}

/// File name of the trainer.
pub const TRAINER: &str = if cfg!(windows) { "trainer.exe" } else { "trainer" };

/// Fingerprints of what the trainer would be built from now.
pub fn build_identity(root: &Path) -> Result<Build, ToolError> {
    if !root.join("trainer").join("Cargo.toml").is_file() {
        return Err(ToolError::NoSources { root: root.to_owned() });
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = finish("rustc -vV", "rustc", duct::cmd(rustc, ["-vV"]).dir(root))?;
    let kept = ["rustc ", "host:", "LLVM version:"];
    let lines: Vec<&str> = version.lines().filter(|line| kept.iter().any(|start| line.starts_with(start))).collect();
    Ok(Build { trainer_code: fingerprint::of_sources(root)?, toolchain: lines.join("; ") })
}

/// What a prebuilt trainer says that it was built from.
pub fn prebuilt_identity(trainer: &Trainer) -> Result<Build, ToolError> {
    #[derive(Deserialize)]
    struct Version {
        build: Option<Build>,
    }
    let unidentified = |what: String| ToolError::Unidentified { program: trainer.program.clone(), what };
    let text = trainer.output("asking the trainer for its version", ["version", "--json"])?;
    let version: Version =
        serde_json::from_str(text.trim()).map_err(|error| unidentified(format!("is no trainer of this project ({error})")))?;
    version.build.ok_or_else(|| unidentified("does not say what it was built from".to_owned()))
}

/// Builds the trainer in a target folder of its own, so that the cargo that started us never holds its lock; skipped when the
/// last build was made from the same sources by the same compiler.
pub fn build_trainer(root: &Path, build: &Build) -> Result<Trainer, ToolError> {
    let target = root.join("target").join("replicate");
    let program = target.join("release").join(TRAINER);
    let stamp_path = target.join("trainer.stamp");
    let stamp = |program: &Path| -> Result<String, FileError> {
        Ok(format!("sources {}\ncompiler {}\nprogram {}\n", build.trainer_code, build.toolchain, files::sha256_file(program)?))
    };
    if program.exists() && std::fs::read_to_string(&stamp_path).ok().as_deref() == stamp(&program).ok().as_deref() {
        return Ok(Trainer { program });
    }
    let arguments: Vec<OsString> = ["build", "--release", "--locked", "--package", "trainer", "--target-dir"]
        .iter()
        .map(Into::into)
        .chain([target.into_os_string()])
        .collect();
    let cargo = duct::cmd(cargo(), arguments).dir(root);
    // What it is built from goes into the program, so that it can be carried to a machine without the sources.
    let cargo = cargo.env("MXFP4_TRAINER_CODE", &build.trainer_code).env("MXFP4_TOOLCHAIN", &build.toolchain);
    finish("building the trainer", "cargo", cargo)?;
    files::write(&stamp_path, stamp(&program)?.as_bytes())?;
    Ok(Trainer { program })
}
