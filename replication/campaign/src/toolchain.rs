//! The trainer as a program: building it, knowing what it was built from, calling it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;

use contract::identity::Identity;
use contract::json::Document as _;
use duct::Expression;
use serde::{Deserialize, Serialize};
use study::environment::compiler;
use study::files::{self, FileError};
use study::identity::{Identities, Known};
use study::manifest::ManifestError;
use study::plan::Build;

use crate::sources;
use crate::system;

/// Why the trainer could not be built or called.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A program could not be started.
    #[error("cannot start {program}: {source}{}", if .source.kind() == io::ErrorKind::NotFound { "; is it there, or installed and on PATH?" } else { "" })]
    Start {
        program: String,
        /// What the operating system said.
        source: io::Error,
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
    /// What `--trainer` names cannot be started.
    #[error(
        "--trainer {}: {what}; name a trainer that `cargo xtask pack` or `cargo xtask dist` made, or none: it is then built",
        .program.display()
    )]
    NoTrainer { program: PathBuf, what: &'static str },
    /// A prebuilt trainer that does not say what it was built from.
    #[error(
        "{}: {what}; build it with `cargo xtask pack`, or with `cargo xtask replicate` (target/replicate/trainer), which write the hash of its sources into it",
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
    /// A call of the trainer with `arguments`; nothing is started yet. It is one process a run: under srun or mpirun, whose variables go on to
    /// it, it would take itself for a rank of several.
    pub fn command<S: Into<OsString>>(&self, arguments: impl IntoIterator<Item = S>) -> Expression {
        duct::cmd(&self.program, arguments.into_iter().map(Into::into)).env("RANK", "0").env("WORLD_SIZE", "1").unchecked()
    }

    /// Runs the trainer to its end and returns its standard output.
    ///
    /// # Errors
    /// When it cannot be started or ends with an error; its last 40 lines are in the message.
    pub fn output<S: Into<OsString>>(&self, what: &str, arguments: impl IntoIterator<Item = S>) -> Result<String, ToolError> {
        finish(what, &format!("the trainer {}", self.program.display()), self.command(arguments))
    }
}

/// Runs an (unchecked) expression to its end; standard output on success.
fn finish(what: &str, program: &str, expression: Expression) -> Result<String, ToolError> {
    let output = captured(&expression.stdout_capture().stderr_capture().unchecked());
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

/// Runs a program whose output is captured to its end.
///
/// # Errors
/// When it cannot be started. `duct` reads standard output and errors in a thread each, and panics where the system gives none.
pub fn captured(expression: &Expression) -> io::Result<Output> {
    system::threads_to_be_had(2)?;
    expression.run()
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

/// Whether what was named as a trainer is a program, before anything else is looked at.
///
/// # Errors
/// Nothing is there, or no program.
pub fn check_named(named: Option<&Path>) -> Result<(), ToolError> {
    let Some(program) = named else { return Ok(()) };
    let wrong = |what| Err(ToolError::NoTrainer { program: program.to_owned(), what });
    match std::fs::metadata(program) {
        Err(_) => wrong("there is no such file"),
        Ok(metadata) if metadata.is_dir() => wrong("it is a folder"),
        Ok(metadata) if !executable(&metadata) => wrong("it is a file that may not be executed"),
        Ok(_) => Ok(()),
    }
}

#[cfg(unix)]
fn executable(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn executable(_: &std::fs::Metadata) -> bool {
    true
}

/// A trainer that is here already, if one was named or lies beside the manifests as `cargo xtask pack` puts it.
pub fn prebuilt(root: &Path, named: Option<&Path>) -> Option<PathBuf> {
    let packed = root.join(TRAINER);
    named.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned())).or_else(|| packed.is_file().then_some(packed))
}

/// A trainer that may be asked what it finds, without building one: prebuilt, or from the last campaign.
pub fn at_hand(root: &Path, named: Option<&Path>) -> Option<Trainer> {
    let built = built_program(root);
    prebuilt(root, named).or_else(|| built.is_file().then_some(built)).map(|program| Trainer { program })
}

/// File name of the trainer.
pub const TRAINER: &str = if cfg!(windows) { "trainer.exe" } else { "trainer" };

/// What the trainer of this tree would be, without building it: what the last one computes if it was built from the same sources, else what
/// manifests/identity.yaml says of the tree. [`build_trainer`] asks the real one.
pub fn expected(root: &Path) -> Result<Build, ToolError> {
    let Stamp { sources, toolchain } = Stamp::of(root)?;
    let built = built_program(root);
    let remembered = fresh(root, &built, &sources, &toolchain).then(|| remembered(&built)).flatten();
    let identities = match remembered {
        Some(identity) => Identities::from(&identity),
        None => Known::load(root)?.current,
    };
    Ok(Build { sources, identities, toolchain })
}

/// What a trainer that was built elsewhere says that it was built from, and what it computes.
pub fn prebuilt_identity(trainer: &Trainer) -> Result<Build, ToolError> {
    #[derive(Deserialize)]
    struct Version {
        build: Option<Stamp>,
    }
    let unidentified = |what: String| ToolError::Unidentified { program: trainer.program.clone(), what };
    let text = trainer.output("asking the trainer for its version", ["version", "--json"])?;
    let version: Version =
        serde_json::from_str(text.trim()).map_err(|error| unidentified(format!("is no trainer of this project ({error})")))?;
    let Stamp { sources, toolchain } = version.build.ok_or_else(|| unidentified("does not say what it was built from".to_owned()))?;
    Ok(Build { sources, identities: Identities::from(&identity(trainer)?), toolchain })
}

/// The machine that programs are built on and for, as rustc calls it.
pub(crate) fn host(root: &Path) -> Result<String, ToolError> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = finish("rustc -vV", "rustc", duct::cmd(rustc, ["-vV"]).dir(root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| ToolError::Failed {
        what: "rustc -vV".to_owned(),
        status: "no line `host:`".to_owned(),
        code: None,
        output: version.clone(),
    })
}

/// What a trainer is built from.
#[derive(Debug, Clone, Deserialize)]
struct Stamp {
    #[serde(rename = "trainer_code")]
    sources: String,
    /// `rustc -vV`, first line, host and LLVM version.
    toolchain: String,
}

impl Stamp {
    fn of(root: &Path) -> Result<Self, ToolError> {
        if !root.join("trainer").join("Cargo.toml").is_file() {
            return Err(ToolError::NoSources { root: root.to_owned() });
        }
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = finish("rustc -vV", "rustc", duct::cmd(rustc, ["-vV"]).dir(root))?;
        Ok(Self { sources: sources::hash(root)?, toolchain: compiler(&version) })
    }
}

/// A program's identity, kept beside it because computing it takes some seconds.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    program_sha256: String,
    identity: Identity,
}

fn memory_of(program: &Path) -> PathBuf {
    program.with_extension("identity.json")
}

fn remembered(program: &Path) -> Option<Identity> {
    let remembered: Remembered = serde_json::from_str(&std::fs::read_to_string(memory_of(program)).ok()?).ok()?;
    (remembered.program_sha256 == files::sha256_file(program).ok()?).then_some(remembered.identity)
}

/// What a trainer computes, asked once for each program.
pub fn identity(trainer: &Trainer) -> Result<Identity, ToolError> {
    if let Some(identity) = remembered(&trainer.program) {
        return Ok(identity);
    }
    let text = trainer.output("asking the trainer what it computes", ["identity"])?;
    let identity = Identity::from_json("trainer identity", &text).map_err(|error| ToolError::Unidentified {
        program: trainer.program.clone(),
        what: format!("does not say what it computes ({error})"),
    })?;
    let remembered = Remembered { program_sha256: files::sha256_file(&trainer.program)?, identity };
    // Where it cannot be kept it is asked again.
    if let Ok(text) = serde_json::to_string_pretty(&remembered) {
        let _ = files::write(&memory_of(&trainer.program), text.as_bytes());
    }
    Ok(remembered.identity)
}

/// Cargo's profile of the trainer and of the harness that `cargo xtask` is.
pub const PROFILE: &str = "dev";

/// Where programs are kept that outlive what cargo builds next.
pub(crate) fn kept_folder(root: &Path) -> PathBuf {
    root.join("target").join("replicate")
}

fn built_program(root: &Path) -> PathBuf {
    kept_folder(root).join(TRAINER)
}

/// Builds packages and returns where cargo put `file`. What the harness was built from is there already and is not compiled again: profile and
/// target folder are the same, and so are the features (xtask/tests/one_build.rs).
pub fn build(root: &Path, what: &str, packages: &[&str], file: &str, environment: &[(&str, &str)]) -> Result<PathBuf, ToolError> {
    let arguments = ["build", "--profile", PROFILE, "--locked", "--message-format", "json-render-diagnostics"];
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let mut cargo = duct::cmd(cargo(), arguments.into_iter().chain(packages)).dir(root);
    for (name, value) in environment {
        cargo = cargo.env(name, value);
    }
    let messages = finish(what, "cargo", cargo)?;
    found(
        made(&messages, |message| message.filenames.iter().find(|path| path.file_name().is_some_and(|name| name == file))),
        what,
        &messages,
        file,
    )
}

/// The program of a target of that name, whatever its file is called.
pub(crate) fn made_program(messages: &str, what: &str, target: &str) -> Result<PathBuf, ToolError> {
    found(made(messages, |message| message.executable.as_ref().filter(|_| message.target.name == target)), what, messages, target)
}

fn found(path: Option<PathBuf>, what: &str, messages: &str, name: &str) -> Result<PathBuf, ToolError> {
    path.ok_or_else(|| ToolError::Failed {
        what: what.to_owned(),
        status: format!("no file {name}"),
        code: None,
        output: last_lines(messages, 1),
    })
}

/// What is needed of a line that cargo prints with `--message-format json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    target: Target,
    filenames: Vec<PathBuf>,
    executable: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Target {
    name: String,
}

/// The first file that `pick` finds among those that cargo's messages say it made.
fn made(messages: &str, pick: impl Fn(&Message) -> Option<&PathBuf>) -> Option<PathBuf> {
    messages.lines().find_map(|line| pick(&serde_json::from_str(line).ok()?).cloned())
}

/// A copy of a program without its symbols, where there is `strip`.
pub(crate) fn copy_program(from: &Path, to: &Path) -> Result<(), ToolError> {
    let aside = to.with_extension("partial");
    files::copy(from, &aside)?;
    let _ = duct::cmd!("strip", &aside).stdout_null().stderr_null().unchecked().run();
    let moved = std::fs::metadata(from).and_then(|metadata| std::fs::set_permissions(&aside, metadata.permissions()));
    let moved = moved.and_then(|()| std::fs::rename(&aside, to));
    moved.map_err(|source| FileError { path: to.to_owned(), action: "move into place", source }.into())
}

fn stamp_path(root: &Path) -> PathBuf {
    kept_folder(root).join("trainer.stamp")
}

fn stamp_text(program: &Path, sources: &str, toolchain: &str) -> Result<String, FileError> {
    Ok(format!("sources {sources}\ncompiler {toolchain}\nprogram {}\n", files::sha256_file(program)?))
}

/// Whether the last build was made from these sources by this compiler, and is still there.
fn fresh(root: &Path, program: &Path, sources: &str, toolchain: &str) -> bool {
    program.exists() && std::fs::read_to_string(stamp_path(root)).ok() == stamp_text(program, sources, toolchain).ok()
}

/// Builds the trainer and asks it what it computes; both are skipped where nothing has changed. `say` is told what takes long.
pub fn build_trainer(root: &Path, say: &dyn Fn(&str)) -> Result<(Trainer, Build), ToolError> {
    let Stamp { sources, toolchain } = Stamp::of(root)?;
    let trainer = Trainer { program: built_program(root) };
    if !fresh(root, &trainer.program, &sources, &toolchain) {
        say("building the trainer");
        // What it is built from goes into the program, so that it can be carried to a machine without the sources.
        let environment = [("MXFP4_TRAINER_CODE", sources.as_str()), ("MXFP4_TOOLCHAIN", toolchain.as_str())];
        let built = build(root, "building the trainer", &["trainer"], TRAINER, &environment)?;
        // A campaign that runs goes on with the program that it started with, whatever is built meanwhile.
        let aside = trainer.program.with_extension("partial");
        files::copy(&built, &aside)?;
        files::rename(&aside, &trainer.program, "put the trainer")?;
        files::write(&stamp_path(root), stamp_text(&trainer.program, &sources, &toolchain)?.as_bytes())?;
    }
    let identities = Identities::from(&identity(&trainer)?);
    Ok((trainer, Build { sources, identities, toolchain }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_among_what_cargo_says_it_made() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"trainer"},"filenames":["/t/debug/libtrainer.rlib"],"executable":null}
{"reason":"build-script-executed","linked_libs":[]}
{"reason":"compiler-artifact","target":{"name":"trainer"},"filenames":["/t/debug/trainer"],"executable":"/t/debug/trainer"}
{"reason":"build-finished","success":true}"#;
        let named = |file| made(messages, |message| message.filenames.iter().find(|path| path.ends_with(file)));
        assert_eq!((named("trainer"), named("xtask")), (Some(PathBuf::from("/t/debug/trainer")), None));
        let program = |target| made_program(messages, "building", target);
        assert_eq!(program("trainer").unwrap(), PathBuf::from("/t/debug/trainer"));
        assert!(program("ratios").unwrap_err().to_string().contains("no file ratios"));
    }
}
