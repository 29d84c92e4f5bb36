//! Signatures of result directories: SSH's, of SHA256SUMS, made and checked by `ssh-keygen`. Statements of `audit` beside them are signed alike.
//!
//! SHA256SUMS has the hash of every file, provenance.json among them, so a signature of it is one of them all. It says who vouches for these
//! bytes, and nothing of whether the numbers are true.

use std::path::{Path, PathBuf};

use contract::text::one_line;
use study::audit;
use study::exit::{self, ExitCode};
use study::files::{self, Context as _, FileError};
use study::provenance::{self, SIGNATURE, SUMS};
use study::verify::{Signature, Verification};

use crate::toolchain::captured;

/// What is signed is of this project: a signature made for something else is none here.
const NAMESPACE: &str = "mxfp4-replication";
/// Under which the key that was asked for stands in the list that ssh-keygen is given.
const SIGNER: &str = "signer";
const PROGRAM: &str = "ssh-keygen";

/// Why a directory was not signed, or its signature not looked at.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot start {PROGRAM}: {0}; it comes with OpenSSH (Debian's openssh-client)")]
    Program(std::io::Error),
    #[error("{PROGRAM} did not sign: {0}")]
    Refused(String),
    #[error("{}: {what}; put right what `cargo xtask verify` finds before you vouch for it", .directory.display())]
    NotWhole { directory: PathBuf, what: String },
    #[error("{}: {what}; name a result directory or a statement of `cargo xtask audit`", .path.display())]
    NotAudit { path: PathBuf, what: String },
    #[error("--signer {0}: is neither a file of public keys nor such a key (`ssh-ed25519 AAAA...`)")]
    Key(String),
}

impl ExitCode for SignatureError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::File(error) => error.exit_code(),
            Self::Program(_) => exit::MACHINE,
            Self::Refused(_) | Self::NotWhole { .. } => exit::FAILED,
            Self::Key(_) | Self::NotAudit { .. } => exit::USAGE,
        }
    }
}

/// Signs a directory, or an audit's statement beside one, with a private key, or with a public one whose private half an SSH agent holds; who it
/// is now signed by.
pub fn sign(path: &Path, key: &Path) -> Result<Signature, SignatureError> {
    if path.is_file() {
        audit::check(path).map_err(|what| SignatureError::NotAudit { path: path.to_owned(), what })?;
        return make(path, &audit::signature(path), key);
    }
    if let Some(what) = provenance::changed(path) {
        return Err(SignatureError::NotWhole { directory: path.to_owned(), what });
    }
    make(&path.join(SUMS), &path.join(SIGNATURE), key)
}

/// Writes the signature of a file.
fn make(signed: &Path, signature: &Path, key: &Path) -> Result<Signature, SignatureError> {
    // It would say so in words of its own.
    std::fs::metadata(key).at(key, "read the key")?;
    let arguments = ["-q".into(), "-Y".into(), "sign".into(), "-n".into(), NAMESPACE.into(), "-f".into(), key.as_os_str().to_owned()];
    // Standard error stays the user's: there ssh-keygen asks for a passphrase.
    let output = captured(&duct::cmd(PROGRAM, arguments).stdin_path(signed).stdout_capture().unchecked());
    let output = output.map_err(SignatureError::Program)?;
    if !output.status.success() || output.stdout.is_empty() {
        return Err(SignatureError::Refused(format!("it ended with {}", output.status)));
    }
    files::write(signature, &output.stdout)?;
    Ok(match look(signed, signature, None)? {
        Signature::Stranger(key) => Signature::Signer(key),
        other => other,
    })
}

/// Adds to what `verify` found who signed the directory, and the statements beside it. `signer` is a file of public keys, or one.
pub fn check(directory: &Path, signer: Option<&str>, verification: &mut Verification) -> Result<(), SignatureError> {
    let keys = signer.map(keys).transpose()?;
    let looked = |signed: &Path, signature: &Path| match look(signed, signature, keys.as_deref()) {
        Err(error @ SignatureError::Program(_)) if signer.is_none() => Ok(Signature::NotChecked(error.to_string())),
        looked => looked,
    };
    verification.signature = looked(&directory.join(SUMS), &directory.join(SIGNATURE))?;
    match (&verification.signature, signer) {
        (Signature::Wrong, Some(signer)) => {
            verification.find(SIGNATURE, format!("is no signature of {SUMS} by {signer}"));
        }
        (Signature::Wrong, None) => verification.find(SIGNATURE, format!("is no signature of {SUMS}")),
        (Signature::None, Some(signer)) => verification.find(SIGNATURE, format!("is missing; {signer} should have signed")),
        _ => {}
    }
    for statement in audit::statements(directory) {
        let signature = looked(&statement, &audit::signature(&statement))?;
        let name = statement.file_name().unwrap_or_default().to_string_lossy();
        let name = one_line(&name);
        match (signature, signer) {
            (Signature::None, None) => {}
            (Signature::None, Some(signer)) => verification.notes.push(format!("{name}: {signer} has not signed it")),
            (Signature::Wrong, signer) => {
                let by = signer.map_or(String::new(), |signer| format!(" by {signer}"));
                verification.notes.push(format!("{name}: its signature is none of it{by}; it does not count"));
            }
            (signature, _) => verification.notes.push(format!("{name}: {signature}")),
        }
    }
    Ok(())
}

/// Lines for ssh-keygen's list of allowed signers, from a file of public keys or from one key.
fn keys(signer: &str) -> Result<String, SignatureError> {
    let text = if Path::new(signer).is_file() { files::read_text(Path::new(signer))? } else { signer.to_owned() };
    let is_kind = |word: &str| ["ssh-", "ecdsa-", "sk-"].iter().any(|start| word.starts_with(start));
    let line = |line: &str| {
        let (kind, key) = line.split_once(' ').filter(|(kind, _)| is_kind(kind))?;
        Some(format!("{SIGNER} namespaces=\"{NAMESPACE}\" {kind} {}\n", key.split(' ').next()?))
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(line).collect::<Option<String>>().filter(|lines| !lines.is_empty()).ok_or_else(|| SignatureError::Key(signer.to_owned()))
}

/// Whose `signature` of the file `signed` is.
fn look(signed: &Path, signature: &Path, keys: Option<&str>) -> Result<Signature, SignatureError> {
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    if !signature.exists() && signature.symlink_metadata().is_err() {
        return Ok(Signature::None);
    }
    if !is_file(signature) || !is_file(signed) {
        return Ok(Signature::Wrong);
    }
    let scratch = tempfile::tempdir().map_err(|source| FileError { path: std::env::temp_dir(), action: "make a folder in", source })?;
    let mut arguments: Vec<std::ffi::OsString> = vec!["-Y".into()];
    match keys {
        Some(keys) => {
            let allowed = scratch.path().join("allowed_signers");
            files::write(&allowed, keys.as_bytes())?;
            arguments.extend(["verify".into(), "-f".into(), allowed.into(), "-I".into(), SIGNER.into()]);
        }
        None => arguments.push("check-novalidate".into()),
    }
    arguments.extend(["-n".into(), NAMESPACE.into(), "-s".into(), signature.into()]);
    let output = captured(&duct::cmd(PROGRAM, arguments).stdin_path(signed).stderr_to_stdout().stdout_capture().unchecked());
    let output = output.map_err(SignatureError::Program)?;
    // Good "mxfp4-replication" signature ... with ED25519 key SHA256:...
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let key = said.lines().find_map(|line| line.strip_prefix("Good ")?.rsplit_once(" with ")).map(|(_, key)| key.to_owned());
    Ok(match (output.status.success(), key, keys) {
        (true, Some(key), Some(_)) => Signature::Signer(key),
        (true, Some(key), None) => Signature::Stranger(key),
        _ => Signature::Wrong,
    })
}
