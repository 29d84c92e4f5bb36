//! A release: one tar file with the programs, what they need, their documents and completions, every dependency's licence and every file's
//! hash. Equal sources and compilers give equal bytes.

mod licences;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use lzma_rust2::{XzOptions, XzWriter};
use study::files::{self, Context as _, FileError};
use study::folder;
use study::seal::Seal;

use crate::carry;
use crate::environment::Version;
use crate::toolchain::{self, ToolError};

/// Files of the repository that go along.
const DOCUMENTS: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CITATION.cff", "LICENSE-APACHE", "LICENSE-MIT"];
/// Cargo's profile of the harness.
const PROFILE: &str = "harness";
/// Licences of all dependencies in one file.
const LICENCES: &str = "THIRD-PARTY-LICENCES.txt";

/// What was made.
#[derive(Debug, Clone)]
pub struct Release {
    pub archive: PathBuf,
    pub sha256: String,
    pub bytes: u64,
    pub files: usize,
    /// Crates whose licences are in it.
    pub crates: usize,
    /// Of the harness's program. The trainer opens the libraries of GPUs at run time, which a static program cannot.
    pub is_static: bool,
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { archive, sha256, bytes, files, crates, is_static } = self;
        let linked = if *is_static { "xtask is static, " } else { "" };
        writeln!(f, "{}: {files} files, licences of {crates} crates, {linked}{:.1} MB", archive.display(), *bytes as f64 / 1e6)?;
        writeln!(f, "xtask is of cargo's profile {PROFILE}, the trainer of {}", toolchain::PROFILE)?;
        writeln!(f, "SHA-256 {sha256}, also in {}.sha256", archive.display())
    }
}

/// Builds both programs and writes `out/NAME.tar.xz`. `more` are further files by their names in it.
///
/// # Errors
/// When cargo fails, or a file cannot be read or written.
pub fn dist(root: &Path, out: &Path, more: &[(String, Vec<u8>)], say: &dyn Fn(&str)) -> Result<Release, ToolError> {
    files::make_folder(out)?;
    let host = toolchain::host(root)?;
    let name = name(&Version::of(root), &host);
    let (xtask, is_static) = build_harness(root, &host, say)?;
    let contents = out.join(&name);
    let crates = folder::make(&contents, |folder| {
        carry::pack_program(root, folder, &xtask, say)?;
        say("collecting licences");
        let licences = licences::collect(root, &host)?;
        files::write(&folder.join(LICENCES), licences.text.as_bytes())?;
        for document in DOCUMENTS {
            files::copy(&root.join(document), &folder.join(document))?;
        }
        for document in files::list(&root.join("docs"))? {
            files::copy(&root.join("docs").join(&document), &folder.join("docs").join(&document))?;
        }
        for (name, bytes) in more {
            files::write(&folder.join(name), bytes)?;
        }
        seal(folder)?;
        Ok::<_, ToolError>(licences.crates)
    })?;
    say("packing");
    let archive = out.join(format!("{name}.tar.xz"));
    let (bytes, count) = archived(&contents, &name)?;
    files::write(&archive, &bytes)?;
    let sha256 = files::sha256(&bytes);
    files::write(&out.join(format!("{name}.tar.xz.sha256")), format!("{sha256}  {name}.tar.xz\n").as_bytes())?;
    Ok(Release { archive, sha256, bytes: bytes.len() as u64, files: count, crates, is_static })
}

/// `mxfp4-replication-0.1.0-0123abcd-x86_64-unknown-linux-gnu`.
fn name(version: &Version, host: &str) -> String {
    let commit: String = version.commit.chars().take(8).collect();
    let dirty = if version.dirty { "-dirty" } else { "" };
    format!("mxfp4-replication-{}-{commit}{dirty}-{host}", env!("CARGO_PKG_VERSION"))
}

/// The harness, and static where the C library of the host allows it.
fn build_harness(root: &Path, host: &str, say: &dyn Fn(&str)) -> Result<(PathBuf, bool), ToolError> {
    say("building xtask");
    let is_static = host.ends_with("-linux-gnu") || host.ends_with("-linux-musl");
    let folder = toolchain::kept_folder(root);
    let mut arguments: Vec<OsString> =
        ["build", "--profile", PROFILE, "--locked", "--package", "xtask", "--target-dir"].map(OsString::from).to_vec();
    // With a target named, its flags are not those of build scripts and macros, which have to be dynamic.
    arguments.extend([folder.clone().into_os_string(), "--target".into(), host.into()]);
    if is_static {
        arguments.extend([OsString::from("--config"), format!("target.{host}.rustflags=['-C','target-feature=+crt-static']").into()]);
    }
    toolchain::run_cargo(root, "building xtask", &arguments)?;
    Ok((folder.join(host).join(PROFILE).join(format!("xtask{}", std::env::consts::EXE_SUFFIX)), is_static))
}

/// Every file's hash, as `sha256sum -c` reads them.
fn seal(folder: &Path) -> Result<(), FileError> {
    Seal::write(folder, files::list(folder)?.iter().map(String::as_str))
}

/// The folder as a tar file, packed with xz, and how many files it has. Files are sorted, without dates, owners or anything of this machine but
/// whether they may be executed.
fn archived(folder: &Path, name: &str) -> Result<(Vec<u8>, usize), FileError> {
    let writer = XzWriter::new(Vec::new(), XzOptions::with_preset(6)).at(folder, "pack")?;
    let mut archive = tar::Builder::new(writer);
    archive.mode(tar::HeaderMode::Deterministic);
    let names = files::list(folder)?;
    for file in &names {
        let path = folder.join(file);
        archive.append_path_with_name(&path, format!("{name}/{file}")).at(&path, "pack")?;
    }
    let mut writer = archive.into_inner().at(folder, "pack")?;
    writer.flush().at(folder, "pack")?;
    Ok((writer.finish().at(folder, "pack")?, names.len()))
}

#[cfg(test)]
mod tests;
