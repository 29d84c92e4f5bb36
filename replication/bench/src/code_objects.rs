//! The MI355X kernels as a part of `replicate`: builds the code objects, compares their hashes with the pinned ones, and has the trainer
//! execute a short list of them on the interpreter of gfx950 code, against the CPU.
//!
//! Nothing here can end a campaign: what is missing or goes wrong is written down, and the report says it. The outcome is kept in the cache
//! under what it depends on, so a campaign that is repeated pays nothing.

use std::path::{Path, PathBuf};

use campaign::error::CampaignError;
use campaign::sources::listing;
use campaign::timings::believed;
use campaign::toolchain::{self, Trainer};
use contract::json::Document as _;
use study::code_objects::{CodeObjects, Execution};
use study::files::{self, Context as _, FileError, sha256};
use study::manifest::Manifests;
use study::seal::Seal;

use crate::device_test;
use crate::kernels_build::{self, Compiler, Request};

const ARCHITECTURE: &str = "gfx950";
/// Decides the inputs of the checks.
const SEED: u64 = 1;
/// Two steps of these, besides every kernel by itself: all three passes in MXFP4 with a rotation, and its stochastic rounding.
const RECIPES: [&str; 2] = ["mxfp4-fdw-h16", "mxfp4-fdw-sr"];
/// The names under which the trainer looks for ROCm's libraries.
const LIBRARIES: [&str; 2] = ["libamdhip64.so.7", "libhipblaslt.so.1"];
const STAND_IN: &str = "libgfx950_stand_in.so";

/// The document of this tree and this machine's compiler, if the cache has it or there is nothing to build. `sources`: hash of what the trainer
/// was built from.
///
/// # Errors
/// Only files that cannot be read or written.
pub fn known(manifests: &Manifests, sources: &str, say: &dyn Fn(&str)) -> Result<Option<PathBuf>, CampaignError> {
    Place::of(manifests, sources)?.known(say)
}

/// The same, made if it is not known.
///
/// # Errors
/// Only files that cannot be read or written.
pub fn document(manifests: &Manifests, trainer: &Trainer, sources: &str, say: &dyn Fn(&str)) -> Result<PathBuf, CampaignError> {
    let place = Place::of(manifests, sources)?;
    match place.known(say)? {
        Some(path) => Ok(path),
        None => keep(&place.folder, &made(manifests, trainer, &place.folder, say)),
    }
}

fn keep(folder: &Path, document: &CodeObjects) -> Result<PathBuf, CampaignError> {
    let path = folder.join(study::code_objects::FILE);
    files::write(&path, (document.to_json_pretty().unwrap_or_default() + "\n").as_bytes())?;
    Seal::write(folder, [study::code_objects::FILE])?;
    Ok(path)
}

/// Where the document lies.
struct Place {
    folder: PathBuf,
    /// The compiler's version, or why nothing can be built.
    compiler: Result<String, String>,
}

impl Place {
    fn of(manifests: &Manifests, sources: &str) -> Result<Self, FileError> {
        let root = manifests.root.as_path();
        let compiler = if root.join("kernels").join(ARCHITECTURE).join("kernels.yaml").is_file() {
            Compiler::find().map(|compiler| compiler.version).map_err(|error| error.to_string())
        } else {
            Err("a packed folder has no sources of the kernels; run replicate from the repository".to_owned())
        };
        let name = sha256(key(root, &compiler, sources)?.as_bytes());
        Ok(Self { folder: root.join("cache").join("code-objects").join(&name[..16]), compiler })
    }

    /// See [`known`].
    fn known(&self, say: &dyn Fn(&str)) -> Result<Option<PathBuf>, CampaignError> {
        if believed(&self.folder, study::code_objects::FILE, say)? {
            return Ok(Some(self.folder.join(study::code_objects::FILE)));
        }
        let Err(why) = &self.compiler else { return Ok(None) };
        keep(&self.folder, &CodeObjects { build: None, not_built: Some(why.clone()), execution: None, not_executed: None }).map(Some)
    }
}

/// What the document depends on: the compiler, the trainer, and every file below kernels/gfx950 (the interpreter and the stand-in, too).
fn key(root: &Path, compiler: &Result<String, String>, sources: &str) -> Result<String, FileError> {
    let kernels = root.join("kernels").join(ARCHITECTURE);
    let names = if kernels.is_dir() { files::list(&kernels)? } else { Vec::new() };
    Ok(format!("{compiler:?}\n{sources}\n{}", listing(&kernels, names)?))
}

fn made(manifests: &Manifests, trainer: &Trainer, folder: &Path, say: &dyn Fn(&str)) -> CodeObjects {
    say("the MI355X kernels: compiling them, then executing some on a model of the ISA (under a minute, once)");
    let request = Request { arch: ARCHITECTURE.to_owned(), out: folder.join("built"), pin: false };
    let (build, not_built) = apart(kernels_build::run(&manifests.root, &request, &|_| {}));
    let (execution, not_executed) = apart(execution(manifests, trainer, folder));
    CodeObjects { build, not_built, execution, not_executed }
}

fn apart<T, E: std::fmt::Display>(outcome: Result<T, E>) -> (Option<T>, Option<String>) {
    match outcome {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

/// The trainer's `device-test` with the stand-in in place of ROCm's libraries.
fn execution(manifests: &Manifests, trainer: &Trainer, folder: &Path) -> Result<Execution, CampaignError> {
    let libraries = folder.join("libraries");
    install(&stand_in(&manifests.root)?, &libraries)?;
    // A cache of its own: what lies in it afterwards is what was loaded.
    let cache = folder.join("loaded");
    files::remove_folder(&cache)?;
    let run_files = device_test::run_files(manifests, &folder.join("runs"), RECIPES.into_iter())?;
    let mut arguments = device_test::arguments("hip", SEED, run_files);
    arguments.push("--quick".into());
    let command = trainer.command(arguments).env("LD_LIBRARY_PATH", &libraries).env("XDG_CACHE_HOME", &cache).env_remove("ROCM_PATH");
    let refuse = |what: String| {
        CampaignError::from(toolchain::ToolError::Failed {
            what: "executing the MI355X kernels on the interpreter".to_owned(),
            status: "an error".to_owned(),
            code: None,
            output: what,
        })
    };
    let tested = device_test::call(command)?.map_err(refuse)?;
    if !tested.header.interpreted {
        return Err(refuse(format!("{} answered, and is no interpreter", tested.header.name)));
    }
    let mut loaded_sha256 = Vec::new();
    for name in files::list(&cache)?.iter().filter(|name| name.ends_with(".co")) {
        loaded_sha256.push(files::sha256_file(&cache.join(name))?);
    }
    loaded_sha256.sort();
    Ok(Execution { device: tested.header, checks: tested.checks, loaded_sha256, cut_short: tested.cut_short })
}

/// Builds the stand-in. The harness is named, too, because its crates are then built with the features that it has them with already.
fn stand_in(root: &Path) -> Result<PathBuf, CampaignError> {
    Ok(toolchain::build(root, "building the interpreter of gfx950 code", &["xtask", "gfx950-stand-in"], STAND_IN, &[])?)
}

fn install(library: &Path, folder: &Path) -> Result<(), FileError> {
    files::remove_folder(folder)?;
    files::make_folder(folder)?;
    let library = library.canonicalize().at(library, "find")?;
    for name in LIBRARIES {
        let link = folder.join(name);
        std::os::unix::fs::symlink(&library, &link).at(&link, "link")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Without the kernels' sources, as in a packed folder, the reason is written down at once and nothing is started.
    #[test]
    fn a_packed_folder_says_why_it_has_no_kernels() {
        let manifests = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let packed = tempfile::tempdir().unwrap();
        let manifests = Manifests { root: packed.path().to_owned(), ..manifests };
        let trainer = Trainer { program: "/nowhere/trainer".into() };
        let path = document(&manifests, &trainer, "sources", &|line| panic!("{line}")).unwrap();
        let document = CodeObjects::from_json("it", &files::read_text(&path).unwrap()).unwrap();
        assert!(document.build.is_none() && document.execution.is_none());
        assert!(document.not_built.unwrap().contains("run replicate from the repository"));
        assert_eq!(path, super::document(&manifests, &trainer, "sources", &|_| {}).unwrap());
        // What changed in the cache since is moved aside and made again.
        let whole = files::read_text(&path).unwrap();
        std::fs::write(&path, whole.replace("packed", "broken")).unwrap();
        let said = std::cell::RefCell::new(String::new());
        super::document(&manifests, &trainer, "sources", &|line| said.borrow_mut().push_str(line)).unwrap();
        assert!(said.borrow().contains("cannot be believed") && files::read_text(&path).unwrap() == whole, "{}", said.borrow());
        assert_ne!(path, super::document(&manifests, &trainer, "other sources", &|_| {}).unwrap());
    }
}
