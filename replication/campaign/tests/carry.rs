//! Runs between caches: what is finished arrives whole, what is spoilt or contradicts is refused, checkpoints come when asked for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, dead_code)] // a test's way to fail

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::{sealed, synthetic};
use campaign::carry::{Carried, export, import, pack_texts};
use study::files::{self, sha256};
use study::ingredients::Ingredients;
use study::plan::run_cache;
use tempfile::TempDir;

/// A repository with a cache of one finished run and one that stands at a checkpoint.
struct World(TempDir);

impl World {
    fn new() -> Self {
        let world = Self::empty();
        let (run, ingredients) = &*RUN;
        for name in files::list(run.path()).unwrap() {
            files::copy(&run.path().join(&name), &world.folder().join(&name)).unwrap();
        }
        files::write(&world.folder().join("model/model.safetensors"), b"weights").unwrap();
        let half = Ingredients { run: sha256(b"run: {arm: b}\n"), ..ingredients.clone() };
        let folder = run_cache(world.root()).join(half.key());
        files::write(&folder.join("run.yaml"), b"run: {arm: b}\n").unwrap();
        files::write(&folder.join("ingredients.json"), half.json().as_bytes()).unwrap();
        files::write(&folder.join("checkpoint/state.json"), b"{}").unwrap();
        world
    }

    /// Of the finished run.
    fn folder(&self) -> PathBuf {
        run_cache(self.root()).join(RUN.1.key())
    }

    fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }
}

/// One run as a trainer leaves it, and its ingredients.
static RUN: LazyLock<(TempDir, Ingredients)> = LazyLock::new(|| {
    let (directory, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sealed::write_arms(directory.path(), &synthetic::ARMS[..1], &[1]);
    let folder = synthetic::run_directory(directory.path(), "fp8", 1);
    for name in files::list(&folder).unwrap() {
        files::copy(&folder.join(&name), &run.path().join(&name)).unwrap();
    }
    let ingredients = files::read_text(&run.path().join("ingredients.json")).unwrap();
    (run, serde_json::from_str(&ingredients).unwrap())
});

fn counts(carried: &Carried) -> (usize, usize, usize, usize) {
    (carried.runs, carried.checkpoints, carried.there, carried.refused.len())
}

#[test]
fn finished_runs_travel_without_weights_and_checkpoints_on_request() {
    let (from, to, out) = (World::new(), World::empty(), tempfile::tempdir().unwrap());
    let (plain, whole) = (out.path().join("plain"), out.path().join("whole"));
    assert_eq!(counts(&export(from.root(), &plain, false).unwrap()), (1, 0, 0, 0));
    assert_eq!(counts(&export(from.root(), &plain, false).unwrap()), (0, 0, 1, 0));
    assert_eq!(counts(&export(from.root(), &whole, true).unwrap()), (1, 1, 0, 0));
    assert!(files::list(&plain).unwrap().iter().all(|name| !name.contains("model") && !name.contains("checkpoint")));
    assert_eq!(counts(&import(to.root(), &plain).unwrap()), (1, 0, 0, 0));
    assert_eq!(counts(&import(to.root(), &whole).unwrap()), (0, 1, 1, 0));
    for name in ["run.yaml", "ingredients.json", "metrics.jsonl", "timing.jsonl", "run.mllog", "done.json"] {
        assert_eq!(std::fs::read(to.folder().join(name)).unwrap(), std::fs::read(from.folder().join(name)).unwrap(), "{name}");
    }
    assert!(to.folder().join("SHA256SUMS").is_file(), "what arrived is sealed");
    assert!(files::list(&run_cache(to.root())).unwrap().iter().any(|name| name.ends_with("checkpoint/state.json")));
}

#[test]
fn what_is_not_what_its_key_says_is_refused() {
    let refused = |spoil: &dyn Fn(&Path)| {
        let (from, to) = (World::new(), World::empty());
        spoil(&from.folder());
        let carried = import(to.root(), &run_cache(from.root())).unwrap();
        assert_eq!(carried.runs, 0, "{carried}");
        carried.refused.join("\n")
    };
    let replace = |run: &Path, file: &str, old: &str, new: &str| {
        let text = files::read_text(&run.join(file)).unwrap();
        assert!(text.contains(old), "{file}");
        files::write(&run.join(file), text.replacen(old, new, 1).as_bytes()).unwrap();
    };
    assert!(refused(&|run| files::write(&run.join("run.yaml"), b"run: {arm: z}\n").unwrap()).contains("is not about this run.yaml"));
    let on = |device: &str| format!("\"kind\":\"session\",\"device\":\"{device}\",");
    assert!(refused(&|run| replace(run, "timing.jsonl", "\"kind\":\"session\",", &on("cuda"))).contains("ran on cuda"));
    // Metrics that done.json does not vouch for, and a done.json that says nothing: not left out without a word.
    let no_end = "done.json is not that of a finished run";
    assert!(refused(&|run| replace(run, "metrics.jsonl", "\"step\":8", "\"step\":9")).contains(no_end));
    assert!(refused(&|run| files::write(&run.join("done.json"), b"").unwrap()).contains(no_end));
    // Files that say different things of one run.
    assert!(
        refused(&|run| replace(run, "done.json", "\"final_validation_loss\":", "\"final_validation_loss\":1"))
            .contains("final validation loss")
    );
    assert!(
        refused(&|run| replace(run, "run.mllog", "\"eval_accuracy\",\"value\":7", "\"eval_accuracy\",\"value\":6")).contains("run.mllog")
    );
    // A sealed one that changed since.
    let sealed = |run: &Path| {
        study::run_folder::seal(run).unwrap();
        replace(run, "timing.jsonl", "\"seconds\":0.06", "\"seconds\":0.05");
    };
    assert!(refused(&sealed).contains("timing.jsonl is not what was written there"));
}

#[test]
fn equal_ingredients_with_other_numbers_are_named() {
    let (ours, theirs) = (World::new(), World::new());
    let before = std::fs::read(ours.folder().join("metrics.jsonl")).unwrap();
    let metrics = theirs.folder().join("metrics.jsonl");
    let text = files::read_text(&metrics).unwrap();
    files::write(&metrics, text.replace("\"grad_norm\":1.5", "\"grad_norm\":1.25").as_bytes()).unwrap();
    sealed::record(&theirs.folder());
    let carried = import(ours.root(), &run_cache(theirs.root())).unwrap();
    assert!(carried.refused[0].contains("the same ingredients gave other numbers"), "{carried}");
    assert_eq!(std::fs::read(ours.folder().join("metrics.jsonl")).unwrap(), before, "ours stays");
}

/// What ranks spent on each other goes with a run; earlier versions sealed runs without it.
#[test]
fn exchanges_go_with_a_run() {
    let (ours, theirs) = (World::new(), World::new());
    let folder = theirs.folder();
    study::run_folder::seal(&folder).unwrap();
    files::write(&folder.join("exchange.jsonl"), b"{}\n").unwrap();
    assert_eq!(study::run_folder::state(&folder, &RUN.1), study::run_folder::State::Finished);
    std::fs::remove_dir_all(ours.folder()).unwrap();
    import(ours.root(), &run_cache(theirs.root())).unwrap();
    assert_eq!(std::fs::read(ours.folder().join("exchange.jsonl")).unwrap(), b"{}\n");
    study::run_folder::seal(&folder).unwrap();
    files::write(&folder.join("exchange.jsonl"), b"{\"changed\":1}\n").unwrap();
    assert!(matches!(study::run_folder::state(&folder, &RUN.1), study::run_folder::State::Corrupt(_)));
}

/// What is here already and cannot be believed is moved aside for what arrives.
#[test]
fn a_run_that_is_broken_here_is_replaced() {
    let (ours, theirs) = (World::new(), World::new());
    study::run_folder::seal(&ours.folder()).unwrap();
    files::write(&ours.folder().join("run.mllog"), b"cut").unwrap();
    assert_eq!(counts(&import(ours.root(), &run_cache(theirs.root())).unwrap()), (1, 0, 0, 0));
    let state = study::run_folder::state(&ours.folder(), &RUN.1);
    assert_eq!(state, study::run_folder::State::Finished);
    let aside = ours.folder().with_file_name(format!("{}.unusable-1", RUN.1.key()));
    assert_eq!(std::fs::read(aside.join("run.mllog")).unwrap(), b"cut");
}

/// The repository's own texts: a packed folder has every peer script, byte for byte, and nothing that was removed since, or that Python made.
#[test]
fn a_packed_folder_has_the_peer_scripts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (source, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in ["manifests", "paper", "kernels/peers"] {
        for name in files::list(&root.join(folder)).unwrap() {
            files::copy(&root.join(folder).join(&name), &source.path().join(folder).join(&name)).unwrap();
        }
    }
    files::copy(&root.join("Cargo.lock"), &source.path().join("Cargo.lock")).unwrap();
    files::write(&source.path().join("kernels/peers/__pycache__/peer_llama.cpython-311.pyc"), b"bytes").unwrap();
    files::write(&to.path().join("kernels/peers/gone.py"), b"old").unwrap();
    pack_texts(source.path(), to.path()).unwrap();
    let peers = files::list(&to.path().join("kernels/peers")).unwrap();
    for script in ["cpu_peers.py", "fsdp_peers.py", "gpu_peers.py", "peer_llama.py", "peer_machine.py", "peer_mxfp4.py", "requirements.txt"]
    {
        assert!(peers.iter().any(|name| name == script), "{script}: {peers:?}");
        let read = |root: &Path| std::fs::read(root.join("kernels/peers").join(script)).unwrap();
        assert!(read(&root) == read(to.path()), "{script}");
    }
    assert!(peers.iter().all(|name| !name.contains("__pycache__") && name != "gone.py"), "{peers:?}");
    // It is no source tree: benchmarks that need cargo are not looked for there.
    assert!(!to.path().join("kernels/Cargo.toml").exists() && to.path().join("paper/kernels.html.j2").is_file());
}
