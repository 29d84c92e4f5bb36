//! What the bench asks of a trainer on a GPU.

use super::*;

/// The paper's profile gives its twelve products at 16,384 tokens, and every set of shapes a run file.
#[test]
fn run_files_of_all_shapes_are_whole() {
    let manifests = Manifests::load(&repository()).unwrap();
    for (shapes, sequences) in SHAPES {
        let profile = manifests.profile(shapes).unwrap();
        let model = &manifests.models[&profile.model];
        let sequences = sequences.unwrap_or(profile.batch.sequences);
        let text = study::plan::step_run_file(&manifests, profile, model, sequences, "fp8").unwrap();
        assert!(text.contains(&format!("profile: {shapes}")));
        if shapes == "llama31-8b" {
            assert_eq!(sequences as u64 * model.sequence_length, 16_384);
        }
    }
    let arms = step_arms(manifests.profile("h200-s").unwrap());
    assert_eq!((arms.len(), arms[0].as_str(), arms[1].as_str()), (13, "bf16", "fp8"));
}

/// The whole way with a trainer that answers from a file and a peer that takes turns: which calls are made, and that they end in rows and bars.
#[cfg(unix)]
#[test]
fn a_gpu_is_measured_by_calls_of_the_trainer() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("lines"), lines()).unwrap();
    // Refuses one set of shapes, as a GPU with too little memory does.
    let trainer = r#"#!/bin/sh
echo "$@" >> FOLDER/calls
command=$1; shift
if [ $command = kernel-time ]; then
    case $1 in *llama31-8b*) echo "error: not enough memory" >&2; exit 4;; esac
    cat FOLDER/lines; exit
fi
for repeat in 1 2 3 4 5; do for file; do case $file in *.yaml)
    arm=$(basename $file .yaml | sed 's/^h200-[sm]-//')
    echo "{\"schema\":\"mxfp4-step-time/1\",\"kind\":\"step_time\",\"arm\":\"$arm\",\"repeat\":$repeat,\"tokens\":100,\"seconds\":0.0$repeat,\"forward_backward_seconds\":0.001}"
esac; done; done
case "$*" in *--memory*) echo '{"schema":"mxfp4-step-time/1","kind":"step_memory","bytes":5368709120}';; esac
"#;
    let trainer = Trainer { program: executable(at("trainer"), &trainer.replace("FOLDER", &folder.path().to_string_lossy())) };
    let python = executable(at("python"), SHELL);
    std::fs::create_dir_all(at("kernels/peers")).unwrap();
    // Times every recipe that it was asked for, at twice our seconds.
    let script = r#"
size=$2
name=$(echo "$size" | sed 's/.*"name":"\([^"]*\)".*/\1/')
recipes=$(echo "$size" | sed 's/.*"recipes":\[\([^]]*\)\].*/\1/' | tr -d '"' | tr ',' ' ')
echo '{"schema":"mxfp4-peer/1","kind":"mark","mark":"ready"}'
while read line; do
    for recipe in $recipes; do
        echo "{\"schema\":\"mxfp4-peer/1\",\"kind\":\"timing\",\"peer\":\"p\",\"name\":\"step/$name/$recipe\",\"threads\":1,\"operations\":100,\"unit\":\"tokens\",\"samples\":[0.02,0.04,0.06,0.08,0.10],\"peak_bytes\":6442450944}"
    done
    echo '{"schema":"mxfp4-peer/1","kind":"mark","mark":"round"}'
done
"#;
    std::fs::write(at("kernels/peers/gpu_peers.py"), script).unwrap();
    let manifests = Manifests::load(&repository()).unwrap();
    let means = Means {
        root: folder.path(),
        trainer: &trainer,
        manifests: &manifests,
        folder: &at("cache"),
        depth: Depth::Quick,
        only: "",
        peers: Some(&python),
        peers_eager: false,
    };
    let gpu = GpuFacts {
        device: "cuda:0".to_owned(),
        name: Some("NVIDIA H200".to_owned()),
        architecture: Some("sm_90a".to_owned()),
        memory_bytes: None,
        fp8: Some(true),
        mxfp4: None,
        interpreted: false,
        libraries: Vec::new(),
        problem: None,
    };
    let bench = means.measure_gpu(&gpu, &|| Ok(()), &|_| {}).unwrap();
    let missing: Vec<String> = bench.missing.iter().map(|missing| format!("{}: {}", missing.name, missing.reason)).collect();
    assert_eq!(missing, ["kernels at the shapes of llama31-8b: timing kernels: not enough memory"]);
    assert!(bench.samples.iter().any(|samples| samples.name == "block/bf16/h200-m"));
    let found = |what: &str| bench.comparisons.iter().find(|compared| compared.what.starts_with(what)).unwrap_or_else(|| panic!("{what}"));
    for what in
        ["BF16 over PyTorch's BF16, h200-s", "FP8 over PyTorch's FP8", "mxfp4-fdw-sr over PyTorch's", "mxfp4-fdw-h16 over PyTorch's"]
    {
        let compared = found(what);
        assert!((compared.ratio.unwrap() - 2.0).abs() < 1e-9 && compared.in_turns && compared.n == 10, "{compared:?}");
        assert_eq!(compared.verdict, "met");
    }
    assert_eq!(found("PyTorch's memory over ours, h200-s/fp8").ratio, Some(1.2));
    // All arms of Table 1 stand beside BF16 in their own process.
    assert_eq!(bench.comparisons.iter().filter(|compared| compared.what.contains("over our BF16, h200-s")).count(), 15);
    assert!(found("mxfp4-fdw-sr --least-memory over our BF16, h200-s").in_turns);
    assert_eq!(found("PyTorch's memory over ours, h200-s/mxfp4-fdw --least-memory").ratio, Some(1.2));
    let calls = std::fs::read_to_string(at("calls")).unwrap();
    assert!(calls.lines().all(|call| call.contains("--device cuda:0")));
    assert!(calls.lines().filter(|call| call.starts_with("kernel-time")).count() == 4 && !calls.contains("h200-m-bf16"), "{calls}");

    // What is interrupted keeps what it has, and says that more was to come.
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        if asked.get() < 3 { Ok(()) } else { Err(BenchError::Campaign(campaign::error::CampaignError::Interrupted)) }
    };
    let bench = means.measure_gpu(&gpu, &stop, &|_| {}).unwrap();
    assert!(bench.samples.iter().any(|samples| samples.name == "block/bf16/h200-s"));
    assert_eq!(bench.missing.last().unwrap().reason, "interrupted");
    assert!(!bench.samples.iter().any(|samples| samples.name.starts_with("step/")));

    // A filter leaves out what it cannot match.
    let kernel_calls = |only: &str| {
        std::fs::write(at("calls"), "").unwrap();
        Means { only, ..means }.measure_gpu(&gpu, &|| Ok(()), &|_| {}).unwrap();
        let calls = std::fs::read_to_string(at("calls")).unwrap();
        let count = |command: &str| calls.lines().filter(|call| call.starts_with(command)).count();
        (count("kernel-time"), count("step-time") > 0)
    };
    assert_eq!(kernel_calls("step/h200-s"), (0, true));
    assert_eq!(kernel_calls("h200-s"), (1, true));
    assert_eq!(kernel_calls("quantise/"), (4, false));
}
