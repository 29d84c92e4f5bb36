//! A result directory made of analytic curves, whose every number is known: the oracle for measuring, judging and rendering.
//!
//! Validation loss is a straight line in tokens, `START - SLOPE * tokens / ratio`, so linear interpolation is exact: an arm of ratio r
//! needs r times the baseline's tokens. One arm stops falling at `FLOOR`, above the target: the one that does not converge.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where the repository's manifests are.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|path| path.join("Cargo.lock").is_file()).unwrap().to_owned()
}

/// Tokens in one step of profile `cpu`: 8 sequences of 128.
pub const TOKENS_PER_STEP: u64 = 1024;
/// Steps of profile `cpu`.
pub const STEPS: u64 = 320;
const EVERY: u64 = 8;
const START: f64 = 7.0;
/// Where `mxfp4-fdw-sr` stays, from before three quarters of the budget on.
const FLOOR: f64 = 5.1;
/// FP8 falls from 7.0 to the target, 4.0, in 224 steps: 70 % of the budget.
const SLOPE: f64 = 3.0 / (224.0 * 1024.0);

/// An arm's ratio of tokens to the baseline's, and how much it varies with the seed.
#[derive(Clone, Copy)]
pub struct Arm {
    pub id: &'static str,
    pub ratio: f64,
    pub spread: f64,
}

/// Every arm of profile `cpu`; a ratio above 320/224 = 1.43 does not reach the target.
pub const ARMS: &[Arm] = &[
    Arm { id: "fp8", ratio: 1.0, spread: 0.0 },
    Arm { id: "bf16", ratio: 0.99, spread: 0.002 },
    Arm { id: "mxfp4-f", ratio: 1.085, spread: 0.003 },
    Arm { id: "mxfp4-fd", ratio: 1.105, spread: 0.004 },
    Arm { id: "mxfp4-fdw", ratio: 1.265, spread: 0.005 },
    Arm { id: "mxfp4-f-sr", ratio: 1.20, spread: 0.004 },
    Arm { id: "mxfp4-fd-sr", ratio: 1.11, spread: 0.02 },
    Arm { id: "mxfp4-fdw-sr", ratio: 1.60, spread: 0.01 },
    Arm { id: "mxfp4-f-rh16", ratio: 1.088, spread: 0.003 },
    Arm { id: "mxfp4-fd-rh16", ratio: 1.02, spread: 0.003 },
    Arm { id: "mxfp4-fdw-rh16", ratio: 1.43, spread: 0.02 },
    Arm { id: "mxfp4-fdw-h32", ratio: 1.09, spread: 0.003 },
    Arm { id: "mxfp4-fdw-h16", ratio: 1.084, spread: 0.003 },
    Arm { id: "mxfp4-w", ratio: 1.12, spread: 0.004 },
    Arm { id: "mxfp4-fdw-h16w", ratio: 1.10, spread: 0.004 },
    Arm { id: "mxfp4-f-h16", ratio: 1.05, spread: 0.004 },
    Arm { id: "mxfp4-fd-h16", ratio: 1.06, spread: 0.004 },
    Arm { id: "mxfp4-fdw-srg", ratio: 1.22, spread: 0.01 },
    Arm { id: "mxfp4-fdw-rh16-fixed", ratio: 1.10, spread: 0.006 },
    Arm { id: "mxfp4-fdw-even", ratio: 1.23, spread: 0.004 },
    Arm { id: "mxfp4-fdw-even-h16", ratio: 1.07, spread: 0.004 },
    Arm { id: "mxfp4-fdw-sr-constant", ratio: 1.70, spread: 0.01 },
    Arm { id: "fp8-current", ratio: 1.001, spread: 0.002 },
    Arm { id: "bf16-mxfp4-dw", ratio: 1.015, spread: 0.001 },
    Arm { id: "bf16-mxfp4-dw-rh64", ratio: 0.995, spread: 0.001 },
    Arm { id: "bf16-mxfp4-dw-rh64-sr", ratio: 0.996, spread: 0.001 },
];

/// Validation loss of `arm` with `seed` after `tokens`.
pub fn loss(arm: &Arm, seed: u64, tokens: f64) -> f64 {
    // -1, 0, +1 for seeds 1, 2, 3: the mean over seeds is the arm's own ratio. The baseline varies too, in common.
    let turn = seed as f64 - 2.0;
    let line = START - SLOPE * tokens / ((arm.ratio + arm.spread * turn) * (1.0 + 0.01 * turn));
    if arm.id == "mxfp4-fdw-sr" { line.max(FLOOR) } else { line }
}

/// The whole directory with every arm and seeds 1 to 3.
pub fn write(directory: &Path) {
    write_arms(directory, ARMS, &[1, 2, 3]);
}

/// A directory with some arms and seeds.
pub fn write_arms(directory: &Path, arms: &[Arm], seeds: &[u64]) {
    copy_manifests(directory);
    for arm in arms {
        for seed in seeds {
            write_run(directory, arm, *seed);
        }
    }
    write_measurements(&directory.join("measurements"));
    let campaign = r#"{"schema":"mxfp4-campaign/1","profile":"cpu","papers":["2605.09825","2502.20586"],"device":"cpu","machine":"synthetic",
        "commit":"0123456789abcdef0123456789abcdef01234567","dirty":false,"runs":[{"arm":"fp8","seed":1}]}"#;
    save(&directory.join("campaign.json"), campaign);
    let environment = r#"{"schema":"mxfp4-environment/1","cpu":{"name":"Synthetic processor 100% & more","cores":2,"flags":["avx2","avx512_vnni"]},
        "rust":"rustc 1.95.0\nbinary: rustc","lock_sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}"#;
    save(&directory.join("env.json"), environment);
}

fn copy_manifests(directory: &Path) {
    let (from, to) = (repository().join("manifests"), directory.join("manifests"));
    let copy = |source: &str, target: &str| save(&to.join(target), &std::fs::read_to_string(from.join(source)).unwrap());
    // The curves are made for one budget and one target; the repository's profile may choose others.
    let profile = std::fs::read_to_string(from.join("profiles/cpu.yaml")).unwrap();
    let pin = |line: &str| match line.split(':').next() {
        Some("budget") => format!("budget: {{steps: {STEPS}}}\n"),
        Some("target_loss") => "target_loss: 4.00\n".to_owned(),
        Some("logging") => "logging: {train_every_steps: 8, quantisation_steps: [1, 160, 320]}\n".to_owned(),
        _ => format!("{line}\n"),
    };
    save(&to.join("profile.yaml"), &profile.lines().map(pin).collect::<String>());
    copy("models/cpu-1m.yaml", "model.yaml");
    copy("datasets/rust-crates.yaml", "dataset.yaml");
    copy("tokenizers/rust-crates-1024.yaml", "tokenizer.yaml");
    copy("hardware/cpu.yaml", "hardware.yaml");
    for entry in std::fs::read_dir(from.join("recipes")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        copy(&format!("recipes/{name}"), &format!("recipes/{name}"));
    }
    // As a campaign of the first version of the rules has them.
    let first = "../results/2026-11-22-xeon-2c-cpu-694f997d/manifests/papers";
    for name in ["2502.20586.yaml", "2605.09825.yaml"] {
        copy(&format!("{first}/{name}"), &format!("papers/{name}"));
    }
}

/// Where a run's files are.
pub fn run_directory(directory: &Path, arm: &str, seed: u64) -> PathBuf {
    directory.join("runs").join(arm).join(seed.to_string())
}

fn write_run(directory: &Path, arm: &Arm, seed: u64) {
    let run = run_directory(directory, arm.id, seed);
    let mut metrics = format!(
        "{{\"schema\":\"mxfp4-metrics/1\",\"kind\":\"header\",\"profile\":\"cpu\",\"arm\":\"{}\",\"seed\":{seed},\"parameters\":852096,\"tokens_per_step\":{TOKENS_PER_STEP}}}\n",
        arm.id
    );
    for step in 0..=STEPS {
        let tokens = step * TOKENS_PER_STEP;
        if step % EVERY == 0 {
            let _ =
                writeln!(metrics, "{{\"kind\":\"eval\",\"step\":{step},\"tokens\":{tokens},\"loss\":{}}}", loss(arm, seed, tokens as f64));
        }
        if step > 0 && step % 8 == 0 {
            let loss = loss(arm, seed, tokens as f64);
            let _ = writeln!(
                metrics,
                "{{\"kind\":\"train\",\"step\":{step},\"tokens\":{tokens},\"loss\":{loss},\"grad_norm\":1.5,\"learning_rate\":0.002}}"
            );
        }
        if [1, 160, 320].contains(&step) {
            write_quantisation(&mut metrics, arm.id, seed, step);
        }
    }
    save(&run.join("metrics.jsonl"), &metrics);
    let mut timing = String::from(
        "{\"schema\":\"mxfp4-timing/1\",\"kind\":\"session\",\"threads\":1,\"instruction_set\":\"avx512\",\"cpu\":\"Synthetic processor\",\"resumed_from_step\":0}\n",
    );
    for step in 1..=STEPS {
        let _ = writeln!(timing, "{{\"kind\":\"step\",\"step\":{step},\"seconds\":{}}}", step_seconds(arm.id));
    }
    save(&run.join("timing.jsonl"), &timing);
    let hash = format!("{:064x}", (arm.id.len() as u64) * 1_000_003 + seed);
    save(
        &run.join("done.json"),
        &format!(
            "{{\"schema\":\"mxfp4-done/1\",\"status\":\"completed\",\"steps\":{STEPS},\"tokens\":{},\"final_train_loss\":3.1,\"final_validation_loss\":3.2,\"metrics_sha256\":\"{hash}\",\"model_sha256\":\"{hash}\",\"run_sha256\":\"{hash}\"}}\n",
            STEPS * TOKENS_PER_STEP
        ),
    );
    save(
        &run.join("run.yaml"),
        &format!(
            "schema: mxfp4-run/1\nrun: {{profile: cpu, arm: {}, seed: {seed}}}\ndata:\n  train: {{prefix: train, tokens: 3000000, sha256_bin: \"{hash}\", sha256_idx: \"{hash}\"}}\ntokenizer: {{id: rust-crates-1024, sha256: \"{hash}\"}}\n",
            arm.id
        ),
    );
}

/// Seconds of one step: MXFP4 with H16 is 1.2 times as fast as FP8.
pub fn step_seconds(arm: &str) -> f64 {
    match arm {
        "mxfp4-f" => 0.056,
        "mxfp4-fd" => 0.053,
        "mxfp4-fdw" => 0.048,
        "mxfp4-fdw-h16" | "mxfp4-fdw-h32" => 0.050,
        _ => 0.060,
    }
}

fn write_quantisation(metrics: &mut String, arm: &str, seed: u64, step: u64) {
    if !arm.contains("mxfp4") {
        return;
    }
    let rotated = arm.contains("h16") || arm.contains("h32") || arm.contains("h64");
    for (pass, operands, error) in [
        ("fprop", ["input", "weight"], 0.10),
        ("dgrad", ["output_gradient", "weight"], 0.115),
        ("wgrad", ["output_gradient", "input"], 0.13),
    ] {
        for (index, operand) in operands.iter().enumerate() {
            let error = (error + 0.004 * index as f64) * if rotated { 0.92 } else { 1.0 };
            let before = 4.6 + 0.3 * index as f64 + 0.01 * seed as f64;
            let after = if rotated { 3.3 + 0.02 * seed as f64 } else { before };
            let _ = writeln!(
                metrics,
                "{{\"kind\":\"quantisation\",\"step\":{step},\"layer\":0,\"linear\":\"qkv\",\"pass\":\"{pass}\",\"operand\":\"{operand}\",\"format\":\"e2m1\",\"relative_error\":{error},\"bias\":-0.0003,\"magnitude_bias\":-0.004,\"cosine\":0.994,\"amax_over_rms_before\":3.1,\"amax_over_rms_after\":2.9,\"outlier_amax_over_rms_before\":{before},\"outlier_amax_over_rms_after\":{after}}}"
            );
        }
    }
}

fn write_measurements(directory: &Path) {
    let mut steps = String::new();
    let mut kernels = String::new();
    for repeat in 1..=15u64 {
        let noise = 1.0 + 0.002 * ((repeat * 7) % 5) as f64;
        for arm in ["fp8", "bf16", "mxfp4-f", "mxfp4-fd", "mxfp4-fdw", "mxfp4-fdw-h32", "mxfp4-fdw-h16"] {
            let seconds = step_seconds(arm) * noise;
            let _ = writeln!(
                steps,
                "{{\"schema\":\"mxfp4-step-time/1\",\"kind\":\"step_time\",\"arm\":\"{arm}\",\"repeat\":{repeat},\"seconds\":{seconds},\"forward_backward_seconds\":{}}}",
                seconds * 0.9
            );
        }
        for (variant, factor) in [("mxfp4-h0", 0.9), ("mxfp4-h16", 1.0), ("mxfp4-h32", 1.08), ("fp8", 2.4), ("bf16", 2.3)] {
            for (linear, n, k) in [("qkv", 256, 128), ("gate_up", 768, 128), ("down", 128, 384)] {
                for pass in ["fprop", "dgrad", "wgrad"] {
                    let seconds = 1.0e-9 * (n * k) as f64 * factor * noise;
                    let _ = writeln!(
                        kernels,
                        "{{\"schema\":\"mxfp4-kernel-time/1\",\"kind\":\"kernel_time\",\"variant\":\"{variant}\",\"linear\":\"{linear}\",\"pass\":\"{pass}\",\"m\":1024,\"n\":{n},\"k\":{k},\"repeat\":{repeat},\"seconds\":{seconds}}}"
                    );
                }
            }
        }
    }
    save(&directory.join("step_time.jsonl"), &steps);
    save(&directory.join("kernel_time.jsonl"), &kernels);
    let mut rotations = String::new();
    for rotation in ["h16", "h32", "rh16"] {
        let _ = writeln!(
            rotations,
            "{{\"schema\":\"mxfp4-rotation-identity/1\",\"kind\":\"rotation_identity\",\"linear\":\"qkv\",\"pass\":\"fprop\",\"rotation\":\"{rotation}\",\"max_relative_error\":1.2e-15,\"bound\":4e-14}}"
        );
    }
    save(&directory.join("rotation_identity.jsonl"), &rotations);
}

/// Writes a file and its directories.
/// The MI355X kernels as `replicate` writes them down: one code object, two checks.
pub const CODE_OBJECTS: &str = r#"{"schema":"mxfp4-code-objects/1","not_built":null,"not_executed":null,
"build":{"arch":"gfx950","compiler":"clang <22> & co","compiler_path":"/usr/bin/clang++-22","flags":["-O3"],"problems":[],"objects":[
{"source":"quantise.hip","defines":[],"source_sha256":"00","object":"quantise.co","object_sha256":"6c721d89e5625e27066f","pinned_sha256":"6c721d89e5625e27066f",
"kernels":{"mxfp4_quantise":{"vgprs":114,"agprs":0,"sgprs":40,"lds":35008,"spills":0,"scratch":0,"instructions":3000,"counted":{}},
"mxfp4_quantise_square":{"vgprs":90,"agprs":0,"sgprs":41,"lds":36032,"spills":0,"scratch":0,"instructions":3912,"counted":{}}}}]},
"execution":{"device":{"device":"hip","name":"gfx950 interpreter","architecture":"gfx950","interpreted":true,"libraries":[],"seed":1},
"loaded_sha256":["6c721d89e5625e27066f"],"cut_short":null,"checks":[
{"group":"operand","name":"E2m1 Row32","detail":"[32, 32]","elements":1024,"difference":0.0,"bound":0.0,"passed":true},
{"group":"kernel","name":"attention, forward","detail":"2 heads","elements":4096,"difference":0.002,"bound":0.01,"passed":true}]}}"#;

pub fn save(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
