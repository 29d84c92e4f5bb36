//! Runs between caches: what is finished arrives whole, what is spoilt or contradicts is refused, checkpoints come when asked for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::{Path, PathBuf};

use campaign::carry::{Carried, export, import, pack_texts};
use study::files::{self, sha256};
use study::plan::{Ingredients, run_cache};
use tempfile::TempDir;

/// A repository with a cache of one finished run and one that stands at a checkpoint.
struct World(TempDir);

impl World {
    fn new() -> Self {
        let world = Self::empty();
        let finished = world.run("a", "cuda");
        let metrics = b"{\"loss\":1}\n";
        files::write(&finished.join("metrics.jsonl"), metrics).unwrap();
        files::write(&finished.join("timing.jsonl"), b"{\"kind\":\"session\",\"device\":\"cuda\"}\n").unwrap();
        files::write(&finished.join("model/model.safetensors"), b"weights").unwrap();
        let run = files::sha256_file(&finished.join("run.yaml")).unwrap();
        let done = format!(
            "{{\"schema\":\"mxfp4-done/1\",\"status\":\"completed\",\"steps\":1,\"tokens\":1,\"final_train_loss\":null,\"final_validation_loss\":null,\"metrics_sha256\":\"{}\",\"model_sha256\":null,\"run_sha256\":\"{run}\"}}",
            sha256(metrics)
        );
        files::write(&finished.join("done.json"), done.as_bytes()).unwrap();
        let half = world.run("b", "cuda");
        files::write(&half.join("checkpoint/state.json"), b"{}").unwrap();
        world
    }

    fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn folder(&self, arm: &str, device: &str) -> (PathBuf, String, Ingredients) {
        let text = format!("run: {{arm: {arm}}}\n");
        let ingredients =
            Ingredients { run: sha256(text.as_bytes()), trainer_code: "x".into(), toolchain: "t".into(), device: device.into() };
        (run_cache(self.root()).join(ingredients.key()), text, ingredients)
    }

    fn run(&self, arm: &str, device: &str) -> PathBuf {
        let (folder, text, ingredients) = self.folder(arm, device);
        files::write(&folder.join("run.yaml"), text.as_bytes()).unwrap();
        files::write(&folder.join("ingredients.json"), ingredients.json().as_bytes()).unwrap();
        folder
    }
}

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
    let (folder, ..) = to.folder("a", "cuda");
    for name in ["run.yaml", "ingredients.json", "metrics.jsonl", "timing.jsonl", "done.json"] {
        assert_eq!(std::fs::read(folder.join(name)).unwrap(), std::fs::read(from.folder("a", "cuda").0.join(name)).unwrap(), "{name}");
    }
    assert!(to.folder("b", "cuda").0.join("checkpoint/state.json").is_file());
}

#[test]
fn what_is_not_what_its_key_says_is_refused() {
    let refused = |spoil: &dyn Fn(&Path)| {
        let (from, to) = (World::new(), World::empty());
        spoil(&from.folder("a", "cuda").0);
        let carried = import(to.root(), &run_cache(from.root())).unwrap();
        assert_eq!(carried.runs, 0, "{carried}");
        carried.refused.join("\n")
    };
    assert!(refused(&|run| files::write(&run.join("run.yaml"), b"run: {arm: z}\n").unwrap()).contains("is not about this run.yaml"));
    let lie = "{\"kind\":\"session\",\"device\":\"cpu\"}\n";
    assert!(refused(&|run| files::write(&run.join("timing.jsonl"), lie.as_bytes()).unwrap()).contains("ran on cpu"));
    // Metrics that done.json does not vouch for: no finished run, and no checkpoint either.
    assert_eq!(refused(&|run| files::write(&run.join("metrics.jsonl"), b"{\"loss\":2}\n").unwrap()), "");
}

#[test]
fn equal_ingredients_with_other_numbers_are_named() {
    let (ours, theirs) = (World::new(), World::new());
    let folder = theirs.folder("a", "cuda").0;
    let metrics = b"{\"loss\":3}\n";
    files::write(&folder.join("metrics.jsonl"), metrics).unwrap();
    let run = files::sha256_file(&folder.join("run.yaml")).unwrap();
    let done = format!(
        "{{\"schema\":\"mxfp4-done/1\",\"status\":\"completed\",\"steps\":1,\"tokens\":1,\"final_train_loss\":null,\"final_validation_loss\":null,\"metrics_sha256\":\"{}\",\"model_sha256\":null,\"run_sha256\":\"{run}\"}}",
        sha256(metrics)
    );
    files::write(&folder.join("done.json"), done.as_bytes()).unwrap();
    let carried = import(ours.root(), &run_cache(theirs.root())).unwrap();
    assert!(carried.refused[0].contains("the same ingredients gave other numbers"), "{carried}");
    assert_eq!(std::fs::read(ours.folder("a", "cuda").0.join("metrics.jsonl")).unwrap(), b"{\"loss\":1}\n", "ours stays");
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
    for script in ["cpu_peers.py", "gpu_peers.py", "peer_llama.py", "peer_mxfp4.py", "requirements.txt"] {
        assert!(peers.iter().any(|name| name == script), "{script}: {peers:?}");
        let read = |root: &Path| std::fs::read(root.join("kernels/peers").join(script)).unwrap();
        assert!(read(&root) == read(to.path()), "{script}");
    }
    assert!(peers.iter().all(|name| !name.contains("__pycache__") && name != "gone.py"), "{peers:?}");
    // It is no source tree: benchmarks that need cargo are not looked for there.
    assert!(!to.path().join("kernels/Cargo.toml").exists() && to.path().join("paper/kernels.html.j2").is_file());
}
