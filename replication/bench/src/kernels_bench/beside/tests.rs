//! Peers between our own rounds: a shell stands in for Python, and scripts of it for the programs.

use std::path::{Path, PathBuf};

use super::super::tests::{SHELL, executable, repository, synthetic};
use super::super::*;

/// Peers take their turn after each round of ours, so that their ratio is one of rounds; a script that ends early costs what it lacks alone.
#[test]
fn peers_take_turns_with_our_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let program = |name: &str, body: &str| executable(path(name), body);
    let line = |schema: &str, rest: &str| format!(r#"{{"schema":"{schema}",{rest}}}"#);
    let ours = |rest: &str| line("mxfp4-kernels-samples/1", rest);
    let peer = |rest: &str| line("mxfp4-peer/1", rest);
    let turn = format!("echo '{}'; read x\n", ours(r#""kind":"turn","group":"gemm/8""#));
    let samples = r#""kind":"samples","group":"gemm/8","name":"gemm/f32/8","threads":2,"operations":16,"unit":"operations","bytes":1,"samples":[0.5,0.25]"#;
    let machine = r#""kind":"machine","instruction_set":"avx9","threads":2"#;
    program("ratios", &format!("#!/bin/sh\necho '{}'\n{turn}{turn}echo '{}'\n", ours(machine), ours(samples)));
    program("python", SHELL);
    let timing = r#""kind":"timing","peer":"p","name":"gemm/f32/8","threads":2,"operations":16,"unit":"operations","samples":[1.0]"#;
    let mark = |mark: &str| peer(&format!(r#""kind":"mark","mark":"{mark}""#));
    let round = format!("echo '{}'; echo '{}'", peer(timing), mark("round"));
    let script = |rounds: &str| program("kernels/peers/cpu_peers.py", &format!("echo '{}'\n{rounds}", mark("ready")));
    let benchmarks = Benchmarks { cpu: path("cpu"), ratios: path("ratios") };
    let (root, threads) = (folder.path(), [2]);
    let programs = programs::Programs { root, benchmarks: &benchmarks, depth: Depth::Quick, only: "", threads: &threads };
    let alone = programs.ratios(2, 2, None).unwrap();
    assert_eq!((alone.samples.len(), alone.instruction_set.as_str(), alone.peers), (1, "avx9", Peers::default()));
    // It times what it was asked for, and nothing else.
    script(&format!("while read group; do test $group = gemm/8 || exit 5; {round}; done\n"));
    let found = programs.ratios(2, 2, Some(&path("python"))).unwrap();
    assert_eq!(found.peers.missing, []);
    let [theirs] = found.peers.timings.as_slice() else { panic!("{:?}", found.peers) };
    assert_eq!((theirs.samples.as_slice(), theirs.in_turns, theirs.threads), ([1.0, 1.0].as_slice(), true, 2));
    assert_eq!(found.samples[0].samples, [0.5, 0.25]);
    script(&format!("read group; {round}; read group; exit 3\n"));
    let found = programs.ratios(2, 2, Some(&path("python"))).unwrap();
    assert_eq!((found.samples.len(), found.peers.timings[0].samples.len(), found.peers.missing.len()), (1, 1, 1));
    assert!(found.peers.missing[0].reason.contains("ended with"), "{:?}", found.peers.missing);
    // Our own program fails in its second group: what it and the peer did before is kept, and half a line is not read.
    let first = format!("#!/bin/sh\necho '{}'\n{turn}{turn}echo '{}'\n", ours(machine), ours(samples));
    program("ratios", &format!("{first}printf half\nexit 3\n"));
    script(&format!("while read group; do {round}; done\n"));
    let found = programs.ratios(2, 2, Some(&path("python"))).unwrap();
    assert_eq!((found.samples.len(), found.peers.timings[0].samples.len()), (1, 2));
    assert!(found.ended.unwrap_err().to_string().contains("kernels in turns"));
    program("ratios", &first);
    // Without PyTorch every peer is a row of its own.
    let absent = peer(r#""kind":"missing","peer":"p","name":"n","reason":"r","install":"""#);
    program("kernels/peers/cpu_peers.py", &format!("echo '{absent}'\necho '{absent}'\n"));
    let found = programs.ratios(2, 2, Some(&path("python"))).unwrap();
    assert_eq!((found.samples.len(), found.peers.missing.len()), (1, 2));
    let found = programs.ratios(2, 2, Some(Path::new("/nowhere/python3"))).unwrap();
    assert!(found.samples.len() == 1 && found.peers.missing[0].reason.contains("cannot start"), "{:?}", found.peers.missing);
}

/// Answers `step-time` with as many steps of both arms as it is asked for; FP8 takes twice as long.
const TRAINER: &str = r#"#!/bin/sh
threads=
while [ $# -gt 0 ]; do case $1 in --repeats) repeats=$2;; --threads) threads=$2;; esac; shift; done
[ -z "$threads" ] || echo "ours with $threads: $repeats" >> FOLDER/order
step() { echo "{\"schema\":\"mxfp4-step-time/1\",\"kind\":\"step_time\",\"arm\":\"$1\",\"repeat\":$repeat,\"tokens\":4096,\"seconds\":$2,\"forward_backward_seconds\":0.05}"; }
for repeat in $(seq $repeats); do step fp8 0.2; step mxfp4-fdw-h16 0.1; done
"#;

/// Both times of a round are those of the steps that the bars are about; one says what memory it took.
const PEER: &str = r#"
echo "$@" >> FOLDER/arguments
line() { echo "{\"schema\":\"mxfp4-peer/1\",\"kind\":$1}"; }
step() { line "\"timing\",\"peer\":\"p\",\"name\":\"$group/$1\",\"threads\":1,\"operations\":4096,\"unit\":\"tokens\",\"samples\":[$2],\"note\":\"$3\""; }
line '"mark","mark":"ready"'
while read group; do
    echo "theirs $group" >> FOLDER/order
    FAIL
    step f32-eager 0.4 'peak resident memory of the process 812 MiB, 312 MiB before the model was made'
    step f32-compiled 0.3
    line '"mark","mark":"round"'
done
"#;

/// A folder with the stand-ins.
struct StandIns {
    folder: tempfile::TempDir,
    trainer: Trainer,
    manifests: Manifests,
}

impl StandIns {
    /// `fail` is done before each round of the peers.
    fn new(fail: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = |text: &str| text.replace("FAIL", fail).replace("FOLDER", &folder.path().to_string_lossy());
        executable(folder.path().join("kernels/peers/cpu_peers.py"), &here(PEER));
        executable(folder.path().join("python"), SHELL);
        let trainer = Trainer { program: executable(folder.path().join("trainer"), &here(TRAINER)) };
        Self { folder, trainer, manifests: Manifests::load(&repository()).unwrap() }
    }

    fn steps(&self, python: &Path, depth: Depth, only: &str) -> steps::Steps {
        let (root, trainer, manifests) = (self.folder.path(), &self.trainer, &self.manifests);
        let means = Means { root, trainer, manifests, folder: root, depth, only, peers: Some(python), peers_eager: false };
        steps::Request { means, threads: vec![1, 2], rounds: 15, stop: &AtomicBool::new(false) }.measure(&|_| {}).unwrap()
    }

    fn python(&self) -> PathBuf {
        self.folder.path().join("python")
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

/// A document of these steps, and of nothing else that is measured.
fn document_of(steps: &steps::Steps) -> Document {
    let mut document = Document { samples: steps.samples.clone(), peers: Vec::new(), missing: Vec::new(), ..synthetic() };
    add(steps.peers.clone(), &mut document);
    document.comparisons = document.compare();
    document
}

/// Round i of a peer stands beside round i of ours; only where there are as many of both is their ratio one of rounds.
#[test]
fn peers_take_turns_with_our_steps() {
    let stand_ins = StandIns::new("");
    let steps = stand_ins.steps(&stand_ins.python(), Depth::Default, "");
    let turn = |size: &str| format!("ours with 1: 5\n{}", format!("theirs step/{size}\n").repeat(5));
    let of_a = format!("{}ours with 2: 5\n", turn("A"));
    assert_eq!(stand_ins.said("order"), of_a.repeat(3) + &turn("B").repeat(3));
    assert_eq!(stand_ins.said("arguments"), "--threads 1 --turns\n");
    assert!(steps.spent_on_peers > Duration::ZERO);
    let document = document_of(&steps);
    for size in ["A", "B"] {
        for (peer, bar, ratio) in
            [("eager", "full MXFP4 with H16", 4.0), ("compiled", "full MXFP4 with H16", 3.0), ("eager", "our FP8", 2.0)]
        {
            let what = format!("{bar} over PyTorch F32, {peer}, size {size}");
            let found = document.comparisons.iter().find(|compared| compared.what == what).unwrap();
            assert!(found.in_turns && found.n == 15 && (found.ratio.unwrap() - ratio).abs() < 1e-9, "{found:?}");
        }
    }
    let memory = document.comparisons.iter().find(|compared| compared.section == "Memory").unwrap();
    assert_eq!((memory.ratio, memory.note.as_str()), (Some(2.5), "200 MiB against 500 MiB"));
}

/// What took turns is not measured again, but the rest is; without turns all of it is.
#[test]
fn peers_alone_are_those_that_took_no_turns() {
    let stand_ins = StandIns::new("");
    let steps = stand_ins.steps(&stand_ins.python(), Depth::Quick, "step/A/fp8");
    let document = document_of(&steps);
    let skip = in_turns(&document, 1);
    assert_eq!(skip, ["step/A/f32-compiled", "step/A/f32-eager"]);
    assert!(in_turns(&document, 2).is_empty() && in_turns(&synthetic(), 1).is_empty());
    programs::peers(stand_ins.folder.path(), &stand_ins.python(), (1, Depth::Quick), ("step/A/fp8", &skip), &|_| {});
    let alone = "--threads 1 --only step/A --skip step/A/f32-compiled,step/A/f32-eager";
    assert_eq!(stand_ins.said("arguments"), format!("--threads 1 --turns\n{alone}\n"));
}

/// Our own steps go on without a script that fails, and a row says that it did.
#[test]
fn a_peer_script_that_fails_beside_steps_is_a_row() {
    let stand_ins = StandIns::new("[ $(grep -c theirs FOLDER/order) -lt 7 ] || { echo 'ValueError: seven' >&2; exit 3; }");
    let steps = stand_ins.steps(&stand_ins.python(), Depth::Quick, "");
    let [missing] = steps.peers.missing.as_slice() else { panic!("{:?}", steps.peers) };
    assert!(missing.reason.contains("ended with") && missing.reason.contains("ValueError: seven"), "{missing:?}");
    assert!(steps.samples.len() == 4 && steps.samples.iter().all(|ours| ours.samples.len() == 15), "{:?}", steps.samples);
    assert!(steps.peers.timings.iter().all(|theirs| theirs.samples.len() == 6), "{:?}", steps.peers);
    let document = document_of(&steps);
    let what = "full MXFP4 with H16 over PyTorch F32, eager, size A";
    let found = document.comparisons.iter().find(|compared| compared.what == what).unwrap();
    assert!(!found.in_turns && found.n == 6, "{found:?}");
    let steps = stand_ins.steps(Path::new("/nowhere/python3"), Depth::Quick, "step/A");
    assert!(steps.samples.len() == 4 && steps.peers.timings.is_empty());
    assert!(steps.peers.missing[0].reason.contains("cannot start"), "{:?}", steps.peers.missing);
    // Where no step is asked for, no script is started.
    assert!(stand_ins.steps(Path::new("/nowhere/python3"), Depth::Quick, "gemm/").peers.missing.is_empty());
}

#[test]
fn a_filter_of_one_size_asks_for_peers_of_that_size() {
    assert_eq!(
        ["step/A/fp8", "step/B", "step/", "step", "fp8", ""].map(steps::of_peers),
        ["step/A", "step/B", "step/", "step/", "step/", "step/"]
    );
}
