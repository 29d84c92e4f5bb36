//! From steps whose times are made up to rows, bars and a directory; and the way there with a trainer and a peer that answer from a script.

use std::cell::Cell;
use std::collections::BTreeMap;

use campaign::error::CampaignError;
use campaign::toolchain::Trainer;
use contract::memory;
use study::kernels::{self, Compared, Document, Exchange, Peer, newest};
use study::manifest::Manifests;
use study::verify::verify;

#[cfg(unix)]
use super::super::tests::{SHELL, executable};
use super::super::tests::{environment, repository, synthetic};
use super::super::{Wanted, gpu_slug, table, write};
use super::*;

const GIB: u64 = 1 << 30;

fn step(size: &str, arm: &str, ranks: usize) -> RankStep {
    RankStep { size: size.to_owned(), arm: arm.to_owned(), ranks, tokens: 8192, ..RankStep::default() }
}

/// Eight steps of so many seconds. Of several ranks a share of each goes to gradients, a third of it to the norm, as much to parameters; rank 0
/// waits twice as long as that for the others.
fn timed(step: RankStep, seconds: f64, gradients: f64) -> RankStep {
    let of_rank = |rank: usize| {
        let gradients = if rank == 0 { 2.0 * gradients * seconds } else { gradients * seconds };
        Exchange { rank, gradients, norm: gradients / 3.0, parameters: gradients / 3.0 }
    };
    let exchange = if step.ranks > 1 { (0..8).flat_map(|_| (0..step.ranks).map(of_rank)).collect() } else { Vec::new() };
    RankStep { samples: vec![seconds; 8], exchange, peak_bytes: Some(100 * GIB), ..step }
}

fn beside(step: RankStep, seconds: f64) -> RankStep {
    let peer = Peer {
        peer: "pytorch 9.9 FSDP2".to_owned(),
        name: step.peer_name().unwrap(),
        threads: 1,
        operations: step.tokens,
        unit: "tokens".to_owned(),
        samples: vec![seconds; 8],
        note: "compiled".to_owned(),
        in_turns: true,
        peak_bytes: Some(80 * GIB),
    };
    RankStep { peer: Some(peer), ..step }
}

fn lacking(mut step: RankStep, missing: Missing) -> RankStep {
    let name = if missing.peer == "ours" { Some(step.name()) } else { step.peer_name() };
    step.missing.push(Missing { name: name.unwrap(), ..missing });
    step
}

fn bench() -> RanksBench {
    let no_room = Missing { peer: "pytorch 9.9 FSDP2".to_owned(), ..absent("", "OutOfMemoryError: no room") };
    let four = || absent("", "needs 4 GPUs of one machine; here: 2");
    let steps = vec![
        beside(timed(step(CUT, "fp8", 1), 0.2, 0.0), 0.22),
        beside(timed(step(CUT, "fp8", 2), 0.21, 0.03), 0.25),
        lacking(step(CUT, "fp8", 4), four()),
        lacking(beside(step(WHOLE, "bf16", 1), 3.0), absent("", "not enough memory")),
        beside(timed(step(WHOLE, "bf16", 2), 0.9, 0.06), 0.9),
        beside(timed(step(WHOLE, "fp8", 2), 0.7, 0.03), 0.98),
        lacking(timed(step(WHOLE, "mxfp4-fdw-h16", 2), 1.0, 0.01), no_room),
        timed(step(WHOLE_BATCH, "fp8", 2), 10.0, 0.012),
    ];
    let mut bench = RanksBench {
        device: "cuda".to_owned(),
        name: "NVIDIA H200".to_owned(),
        libraries: vec!["CUDA driver 13.0".to_owned()],
        mxfp4: "emulated".to_owned(),
        steps,
        comparisons: Vec::new(),
    };
    bench.comparisons = bench.compare(true);
    bench
}

fn document() -> Document {
    let of_cpu = synthetic();
    Document {
        benchmarks: Vec::new(),
        samples: Vec::new(),
        peers: Vec::new(),
        missing: Vec::new(),
        profile: Vec::new(),
        memory: Vec::new(),
        comparisons: Vec::new(),
        ranks: vec![bench()],
        ..of_cpu
    }
}

fn found<'a>(bench: &'a RanksBench, what: &str) -> &'a Compared {
    bench.comparisons.iter().find(|compared| compared.what == what).unwrap_or_else(|| panic!("{what}"))
}

#[test]
fn ratios_and_bars_are_those_the_times_were_made_with() {
    let bench = bench();
    for (what, ratio, verdict) in [
        ("of ideal scaling from 1, fp8, 2 ranks, llama31-8b-8-layers", 0.2 / 0.21, "missed"),
        ("not spent waiting for the exchange, fp8, 2 ranks, llama31-8b-8-layers", 0.95, ""),
        ("over PyTorch's, fp8, 1 rank, llama31-8b-8-layers", 1.1, "missed"),
        ("over PyTorch's, fp8, 2 ranks, llama31-8b-8-layers", 0.25 / 0.21, ""),
        ("over PyTorch's, bf16, 2 ranks, llama31-8b", 1.0, "missed"),
        ("not spent waiting for the exchange, bf16, 2 ranks, llama31-8b", 0.9, "missed"),
        ("over PyTorch's, fp8, 2 ranks, llama31-8b", 1.4, "met"),
        ("not spent waiting for the exchange, fp8, 2 ranks, llama31-8b", 0.95, "met"),
        ("over our BF16, mxfp4-fdw-h16, 2 ranks, llama31-8b", 0.9, "met"),
        ("not spent waiting for the exchange, fp8, 2 ranks, llama31-8b-32-sequences", 0.98, "met"),
        ("PyTorch's memory over ours, llama31-8b/fp8/2", 0.8, "missed"),
    ] {
        let compared = found(&bench, what);
        assert!((compared.ratio.unwrap() / ratio - 1.0).abs() < 1e-9, "{what}: {compared:?}");
        assert_eq!(compared.verdict, verdict, "{what}");
    }
    assert!(found(&bench, "over PyTorch's, fp8, 2 ranks, llama31-8b").in_turns);
    let open = found(&bench, "over PyTorch's, mxfp4-fdw-h16, 2 ranks, llama31-8b");
    assert_eq!((open.verdict.as_str(), open.note.as_str()), ("open", "pytorch 9.9 FSDP2 did not run: OutOfMemoryError: no room"));
    // What was not measured has no ratio, and one GPU nothing to scale from or to exchange.
    assert!(!bench.comparisons.iter().any(|compared| compared.what.contains("4 ranks") || compared.what.contains("bf16, 1 rank")));
    assert_eq!(bench.comparisons.len(), 17);
    // Without --peers a bar over the peer is open.
    let alone: Vec<Compared> = RanksBench { steps: vec![timed(step(WHOLE, "fp8", 2), 0.7, 0.03)], ..bench }.compare(false);
    assert_eq!(alone.iter().map(|one| one.verdict.as_str()).collect::<Vec<_>>(), ["open", "met", "open"]);
}

#[test]
fn the_table_of_steps() {
    insta::assert_snapshot!(table(&document()));
}

#[test]
fn a_directory_of_steps_shows_them_everywhere_and_verifies() {
    let (out, document) = (tempfile::tempdir().unwrap(), document());
    let directory = write(&repository(), out.path(), &document, &environment()).unwrap();
    assert_eq!(Document::read(&directory.join("kernels.json")).unwrap(), document);
    let rows: Vec<BTreeMap<String, String>> =
        csv::Reader::from_path(directory.join("ranks.csv")).unwrap().into_deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), document.ranks[0].steps.len());
    assert!(rows.iter().all(|row| row["device"] == "cuda") && rows[2]["needs"] == "ours: needs 4 GPUs of one machine; here: 2", "{rows:?}");
    assert!(std::fs::read_to_string(directory.join("comparisons.csv")).unwrap().contains("cuda Steps of several ranks,"));
    let page = std::fs::read_to_string(directory.join("kernels.html")).unwrap();
    for present in ["Steps of several GPUs: NVIDIA H200", "11,703", "3.0 + 1.0 + 1.0", "needs 4 GPUs", "verdict differs", "from 1"] {
        assert!(page.contains(present), "{present}");
    }
    assert!(!page.contains("Single kernels"));
    assert!(verify(&directory, None, Some(&repository().join("paper"))).unwrap().holds());
    // A campaign shows kernels, and here are none.
    assert_eq!(newest(out.path(), &document.machine), None);
    let mut wrong = document;
    wrong.ranks[0].comparisons[0].ratio = Some(9.0);
    assert_eq!(kernels::check(&write(&repository(), out.path(), &wrong, &environment()).unwrap()).len(), 1);
    let again = super::super::report(&repository(), &directory).unwrap().document;
    assert_eq!(again.ranks, [bench()]);
}

#[test]
fn the_directory_says_how_many_gpus_worked_together() {
    let gpu: GpuFacts = serde_json::from_str(r#"{"device":"cuda:0","name":"NVIDIA H200","libraries":[]}"#).unwrap();
    let (wanted, here) = (Wanted::parse("cuda").unwrap(), [gpu.clone(), gpu]);
    let slug = |counts: &[usize]| gpu_slug(&wanted, &here, Some(&Together::Gpus(counts.to_vec())));
    assert_eq!([slug(&[1, 2, 4]), slug(&[1])].map(Option::unwrap), ["nvidia-h200-x2", "nvidia-h200"]);
    assert_eq!(gpu_slug(&wanted, &here, None).unwrap(), "nvidia-h200");
}

/// Which of our recipes the peer has, and every name that it is asked by.
#[test]
fn the_peer_script_has_every_recipe() {
    let script = std::fs::read_to_string(repository().join("kernels/peers/gpu_peers.py")).unwrap();
    for arm in ARMS {
        let name = step(WHOLE, arm, 2).peer_name().unwrap();
        let recipe = name.rsplit('/').nth(1).unwrap();
        assert!(script.contains(&format!("\"{recipe}\"")), "{recipe}");
    }
    assert_eq!(step(WHOLE_BATCH, "fp8", 2).peer_name(), None);
}

#[test]
fn run_files_give_every_rank_the_same_work() {
    let (manifests, folder) = (Manifests::load(&repository()).unwrap(), tempfile::tempdir().unwrap());
    let trainer = Trainer { program: PathBuf::new() };
    let request = asking(&trainer, &manifests, folder.path(), Depth::Deep, "", None);
    for (size, ranks, sequences, parts, layers) in [
        (&ON_GPUS[0], 1, 1, 1, 8),
        (&ON_GPUS[0], 4, 4, 4, 8),
        (&ON_GPUS[1], 2, 2, 2, 32),
        (&ON_GPUS[2], 2, 32, 32, 32),
        (&ON_CPU[0], 2, 8, 2, 4),
    ] {
        let profile = manifests.profile(size.profile).unwrap();
        let path = request.run_file(size, profile, &step(size.name, "fp8", ranks)).unwrap();
        let run = contract::run_file::RunFile::load(&path).unwrap().run;
        let found = (run.batch.sequences, run.batch.accumulation, run.model.num_hidden_layers);
        assert_eq!(found, (sequences, parts, layers), "{} of {ranks}", size.name);
    }
}

/// Scaling is told from one GPU on: the eight layers are counted to fit an H100's 78 GiB, whatever the number of GPUs and the recipe. The whole
/// model is not, on one.
#[test]
fn the_cut_fits_one_gpu() {
    let (manifests, folder) = (Manifests::load(&repository()).unwrap(), tempfile::tempdir().unwrap());
    let trainer = Trainer { program: PathBuf::new() };
    let request = asking(&trainer, &manifests, folder.path(), Depth::Deep, "", None);
    let least = |size: &Size, arm: &str, ranks| {
        let path = request.run_file(size, manifests.profile(size.profile).unwrap(), &step(size.name, arm, ranks)).unwrap();
        let run = contract::run_file::RunFile::load(&path).unwrap().run.micro_batch();
        let ways = memory::ways(&run, memory::Place::Gpu { mxfp4: false }).into_iter();
        ways.map(|way| memory::of_rank(way, &run, ranks).bytes).min().unwrap()
    };
    for arm in ON_GPUS[0].arms {
        for ranks in [1, 2, 4] {
            let bytes = least(&ON_GPUS[0], arm, ranks);
            assert!(bytes < 78 * GIB, "{arm} of {ranks}: {bytes}");
        }
    }
    assert!(least(&ON_GPUS[1], "fp8", 1) > 78 * GIB);
}

fn asking<'a>(
    trainer: &'a Trainer,
    manifests: &'a Manifests,
    folder: &'a Path,
    depth: Depth,
    only: &'a str,
    peers: Option<&'a Path>,
) -> Request<'a> {
    Request { means: Means { root: folder, trainer, manifests, folder, depth, only, peers, peers_eager: true }, threads: 1 }
}

/// Answers `step-time` with as many steps as it is asked for. The whole model finds no memory on one GPU.
const TRAINER: &str = r#"#!/bin/sh
echo "$@" >> FOLDER/calls
shift; file=$1; ranks=1; profile=
while [ $# -gt 0 ]; do case $1 in --profile-step) profile=yes;; --repeats) repeats=$2;; --gpus|--ranks) ranks=$2;; esac; shift; done
case $file in *llama31-8b-bf16-1.yaml) printf 'rank 0 of 1\nerror: not enough memory on cuda:0\nerror: rank 0 ended first\n' >&2; exit 4;; esac
line() { echo "{\"schema\":\"mxfp4-step-time/1\",\"kind\":$1}"; }
for repeat in $(seq $repeats); do
    line "\"step_time\",\"arm\":\"a\",\"repeat\":$repeat,\"tokens\":100,\"ranks\":$ranks,\"seconds\":0.1,\"forward_backward_seconds\":0.05"
    for kernel in attention head optimizer gemm; do
        [ -z "$profile" ] || line "\"step_kernel\",\"arm\":\"a\",\"repeat\":$repeat,\"kernel\":\"$kernel\",\"calls\":1,\"work\":0,\"seconds\":0.04"
    done
    [ $ranks = 1 ] || for rank in $(seq 0 $((ranks - 1))); do
        line "\"step_exchange\",\"arm\":\"a\",\"repeat\":$repeat,\"rank\":$rank,\"gradients\":0.001,\"norm\":0.002,\"parameters\":0.003"
    done
done
line '"step_memory","bytes":5368709120'
"#;

/// Times what it is asked for, but for one recipe.
const PEER: &str = r#"
echo "$@" >> FOLDER/peers
ranks=$2
line() { echo "{\"schema\":\"mxfp4-peer/1\",\"kind\":$1}"; }
line '"mark","mark":"ready"'
while read round size recipe; do
    name="step/$size/$recipe/$ranks"
    if [ $recipe = mxfp4-h16 ]; then
        line "\"missing\",\"peer\":\"p\",\"name\":\"$name\",\"reason\":\"no room\",\"install\":\"\""
    else
        line "\"timing\",\"peer\":\"p\",\"name\":\"$name\",\"threads\":1,\"operations\":8192,\"unit\":\"tokens\",\"samples\":[0.2,0.2,0.2,0.2,0.2]"
    fi
    line '"mark","mark":"round"'
done
"#;

#[cfg(unix)]
#[test]
fn steps_are_measured_by_calls_of_the_trainer_in_turns_with_the_peer() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let here = |text: &str| text.replace("FOLDER", &folder.path().to_string_lossy());
    let trainer = Trainer { program: executable(at("trainer"), &here(TRAINER)) };
    let python = executable(at("python"), SHELL);
    std::fs::create_dir_all(at("kernels/peers")).unwrap();
    std::fs::write(at("kernels/peers/fsdp_peers.py"), here(PEER)).unwrap();
    let manifests = Manifests::load(&repository()).unwrap();
    let two = || Place { kind: DeviceKind::Cuda, here: Some(2), ..Place::cpu("NVIDIA H200".to_owned()) };
    let request = asking(&trainer, &manifests, folder.path(), Depth::Default, "", Some(&python));
    let bench = request.measure(&two(), &[1, 2, 4], &|| Ok(()), &|_| {}).unwrap();
    let said: Vec<String> = bench.missing().iter().map(|missing| format!("{}: {}", missing.name, missing.reason)).collect();
    assert_eq!(said.iter().filter(|said| said.ends_with("needs 4 GPUs of one machine; here: 2")).count(), 14, "{said:#?}");
    assert_eq!(said.iter().filter(|said| said.ends_with("no room")).count(), 4, "{said:#?}");
    assert!(said.contains(&"step/llama31-8b/bf16/1: not enough memory on cuda:0".to_owned()), "{said:#?}");
    assert_eq!(said.len(), 19);
    let of = |name: &str| bench.steps.iter().find(|step| step.name() == name).unwrap();
    let both = of("step/llama31-8b/fp8/2");
    let peer = both.peer.as_ref().unwrap();
    assert_eq!((both.samples.len(), both.exchange.len(), both.peak_bytes, peer.samples.len()), (6, 12, Some(5 * GIB), 5));
    assert_eq!(found(&bench, "over PyTorch's, fp8, 2 ranks, llama31-8b").ratio, Some(2.0));
    // The peer finds room where we find none, and is asked on.
    assert_eq!(of("step/llama31-8b/bf16/1").peer.as_ref().unwrap().samples.len(), 5);
    let calls = std::fs::read_to_string(at("calls")).unwrap();
    // Six steps of one GPU and of two; the kernels of three; and the paper's batch for each of eight arms.
    assert_eq!(calls.lines().count(), 12 + 3 + 16, "{calls}");
    assert_eq!(
        calls.lines().filter(|call| call.contains("-32-sequences-") && call.contains("--warmup 1 --repeats 2")).count(),
        16,
        "{calls}"
    );
    assert_eq!(of("step/llama31-8b-32-sequences/mxfp4-fdw-sr/2").samples.len(), 2);
    assert_eq!(calls.lines().filter(|call| call.contains("-8-layers-") && call.contains("--profile-step")).count(), 3, "{calls}");
    // Eight layers of 7 x 8192^2 x 4096 operations, three products of 8192 x 4096 x 128256, and 34 bytes for each of 2.8 billion parameters,
    // each in 40 ms, of 989.5 TFLOP/s and 4.8 TB/s.
    for (kernel, rate, verdict) in [
        ("attention", 8.0 * 7.0 * 8192.0 * 8192.0 * 4096.0 / 9.895e14, "missed"),
        ("head", 6.0 * 8192.0 * 4096.0 * 128_256.0 / 9.895e14, "met"),
        ("optimizer", 34.0 * 2_795_573_248.0 / 4.8e12, "missed"),
    ] {
        let compared = found(&bench, &format!("{kernel} of the maker's peak, fp8, 1 rank, llama31-8b-8-layers"));
        assert!((compared.ratio.unwrap() / (rate / 0.04) - 1.0).abs() < 1e-9, "{compared:?}");
        assert_eq!((compared.verdict.as_str(), compared.n), (verdict, 6), "{compared:?}");
    }
    assert!(calls.lines().all(|call| call.contains("--device cuda") && call.contains("-2.yaml") == call.contains("--gpus 2")), "{calls}");
    let started = std::fs::read_to_string(at("peers")).unwrap();
    assert_eq!(started.lines().map(|line| &line[..9]).collect::<Vec<_>>(), ["--ranks 2", "--ranks 1"]);

    // A filter leaves the rest out, and so does less depth.
    let one =
        asking(&trainer, &manifests, folder.path(), Depth::Default, "llama31-8b/fp8/2", None).measure(&two(), &[1, 2], &|| Ok(()), &|_| {});
    assert_eq!(one.unwrap().steps.iter().map(RankStep::name).collect::<Vec<_>>(), ["step/llama31-8b/fp8/2"]);
    let several = "fp8/2,8-layers/bf16/1";
    let some = asking(&trainer, &manifests, folder.path(), Depth::Default, several, None).measure(&two(), &[1, 2], &|| Ok(()), &|_| {});
    assert_eq!(
        some.unwrap().steps.iter().map(RankStep::name).collect::<Vec<_>>(),
        [
            "step/llama31-8b-8-layers/bf16/1",
            "step/llama31-8b-8-layers/fp8/2",
            "step/llama31-8b/fp8/2",
            "step/llama31-8b-32-sequences/fp8/2"
        ]
    );
    let quick = asking(&trainer, &manifests, folder.path(), Depth::Quick, "", None).measure(&two(), &[2], &|| Ok(()), &|_| {}).unwrap();
    assert!(quick.steps.iter().all(|step| step.size == CUT && step.samples.len() == 6), "{quick:?}");

    // What is interrupted keeps what it has.
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        if asked.get() < 3 { Ok(()) } else { Err(BenchError::Campaign(CampaignError::Interrupted)) }
    };
    let cut = request.measure(&two(), &[2], &stop, &|_| {}).unwrap();
    assert!(cut.steps[0].samples.len() == 6 && cut.steps[1].missing[0].reason == "interrupted", "{cut:?}");

    // A peer that cannot begin, or ends, says why at every step that it has.
    fn with_peers(bench: &RanksBench) -> impl Iterator<Item = &RankStep> {
        bench.steps.iter().filter(|step| step.peer_name().is_some())
    }
    for (script, said) in [
        (
            "echo '{\"schema\":\"mxfp4-peer/1\",\"kind\":\"missing\",\"peer\":\"p\",\"name\":\"n\",\"reason\":\"no torch\",\"install\":\"\"}'",
            "no torch",
        ),
        (
            "echo '[rank0]: RuntimeError: NCCL failed' >&2; echo 'ChildFailedError:' >&2; exit 1",
            "it ended with exit status: 1 ([rank0]: RuntimeError: NCCL failed)",
        ),
    ] {
        std::fs::write(at("kernels/peers/fsdp_peers.py"), script).unwrap();
        let alone = request.measure(&two(), &[2], &|| Ok(()), &|_| {}).unwrap();
        assert!(with_peers(&alone).all(|step| !step.samples.is_empty() && step.missing[0].reason == said), "{said}: {alone:?}");
    }

    // Without the script the peer is missing, and ours is measured.
    std::fs::remove_file(at("kernels/peers/fsdp_peers.py")).unwrap();
    let alone = request.measure(&two(), &[2], &|| Ok(()), &|_| {}).unwrap();
    assert!(with_peers(&alone).all(|step| !step.samples.is_empty() && step.missing[0].reason.contains("not in this tree")), "{alone:?}");
}

#[test]
fn where_there_is_no_gpu_every_row_says_what_it_needs() {
    let not_run = [super::super::gpu::not_run("hip", None)];
    let places = Place::of_gpus(&[], &not_run);
    let missing = places[0].lacks(1).unwrap();
    assert!(places.len() == 1 && places[0].kind == DeviceKind::Hip && missing.reason == "needs a GPU; here: 0", "{missing:?}");
    assert!(missing.install.contains("ROCm"));
    assert!(Place::cpu(String::new()).lacks(64).is_none());
}
