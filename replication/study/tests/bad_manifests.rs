//! Every bad manifest gives one message: which file, which line, what is wrong, what to do. The messages are the snapshots.
//!
//! Each case copies the repository's manifests, spoils one of them by one replacement and loads. A replacement that no longer
//! finds its text fails the test, so a case cannot silently become a test of good manifests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::Path;

use study::manifest::Manifests;
use tempfile::TempDir;

fn repository() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A copy of the repository's manifests; what is not YAML stays behind, loading does not need it.
fn copy() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for kind in ["papers", "profiles", "recipes", "models", "datasets", "tokenizers", "hardware"] {
        let (from, to) = (repository().join("manifests").join(kind), root.path().join("manifests").join(kind));
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    root
}

/// What loading says after the first `old` in `file` became `new`.
fn spoiled(file: &str, old: &str, new: &str) -> String {
    let root = copy();
    let path = root.path().join("manifests").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{file} no longer contains `{old}`: the case tests nothing");
    std::fs::write(&path, text.replacen(old, new, 1)).unwrap();
    message(root.path())
}

fn message(root: &Path) -> String {
    match Manifests::load(root) {
        Ok(_) => "(loads)".to_owned(),
        Err(error) => error.to_string(),
    }
}

macro_rules! cases {
    ($($name:ident: $file:literal, $old:literal => $new:literal, @$expected:literal;)+) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(spoiled($file, $old, $new), @$expected);
            }
        )+
    };
}

#[test]
fn a_good_copy_loads() {
    assert_eq!(message(copy().path()), "(loads)");
}

cases! {
    like_nothing: "profiles/dnc-32m.yaml", "like: ladder-32m" => "like: ladder-23m", @"manifests/profiles/dnc-32m.yaml:9: like: unknown profile `ladder-23m` (did you mean `ladder-32m`?)";
    like_itself_like_another: "profiles/dnc-32m.yaml", "like: ladder-32m" => "like: ladder-32m-even", @"manifests/profiles/dnc-32m.yaml:9: like: ladder-32m-even is itself like another profile; name that one";
    like_with_a_key_of_its_own: "profiles/dnc-32m.yaml", "budget: {steps: 4220}" => "budgets: {steps: 4220}", @"manifests/profiles/dnc-32m.yaml:12: budgets: ladder-32m has no such key: unknown key `budgets` (did you mean `budget`?)";
    like_with_a_wrong_word: "profiles/dnc-32m.yaml", "train_every_steps: 30" => "train_every: 30", @"manifests/profiles/dnc-32m.yaml:13: logging: unknown field `train_every`, expected `train_every_steps` or `quantisation_steps`";
    like_what_is_wrong: "profiles/ladder-32m.yaml", "estimator: interpolated" => "estimator: drawn", @"manifests/profiles/ladder-32m.yaml:43: estimator: unknown variant `drawn`, expected `grid` or `interpolated`";
    like_with_times_of_another_arm: "profiles/ladder-32m-even.yaml", "step_time: {recipes: [], repeats: 15, warmup: 3}" => "", @"manifests/profiles/ladder-32m-even.yaml:4: step_time.recipes: unknown arm `bf16`; there are: fp8, mxfp4-f-even, mxfp4-fd-even, mxfp4-fdw-even, mxfp4-fdw-even-h16 (by `like: ladder-32m`; write the key in this file)";
    like_with_an_unknown_arm: "profiles/dnc-32m.yaml", "mxfp4-fdw-srx" => "mxfp4-fdw-sry", @"manifests/profiles/dnc-32m.yaml:16: arms: unknown recipe `mxfp4-fdw-sry` (did you mean `mxfp4-fdw-sr`?)";
    unknown_key: "profiles/smoke.yaml", "budget: {steps: 24}" => "budget: {stepz: 24}", @"manifests/profiles/smoke.yaml:13: budget: unknown field `stepz`, expected `steps` (did you mean `steps`?)";
    unknown_top_level_key: "profiles/smoke.yaml", "seeds: [1, 2]" => "seads: [1, 2]", @"manifests/profiles/smoke.yaml:19: unknown field `seads`, expected one of `id`, `title`, `purpose`, `hidden`, `demonstration`, `papers`, `hardware`, `model`, `dataset`, `tokenizer`, `optimizer`, `schedule`, `batch`, `budget`, `evaluation`, `target_loss`, `estimator`, `logging`, `checkpoint`, `seeds`, `arms`, `step_time`, `kernel_time`, `requires`, `mllog` (did you mean `seeds`?)";
    missing_key: "profiles/smoke.yaml", "target_loss: 6.0\n" => "", @"manifests/profiles/smoke.yaml:2: missing field `target_loss`";
    infinite_weight_decay: "profiles/smoke.yaml", "weight_decay: 0.1" => "weight_decay: .inf", @"manifests/profiles/smoke.yaml:10: optimizer.weight_decay: must be zero or a positive number, is inf";
    infinite_end_rate: "profiles/smoke.yaml", "end_learning_rate: 2.0e-4" => "end_learning_rate: .inf", @"manifests/profiles/smoke.yaml:11: schedule.end_learning_rate: must be zero or a positive number, is inf";
    zero_rope: "models/smoke.yaml", "rope_theta: 500000.0" => "rope_theta: 0.0", @"manifests/models/smoke.yaml:12: rope_theta: must be a positive number, is 0";
    quantisation_step_after_the_end: "profiles/smoke.yaml", "quantisation_steps: [1, 24]" => "quantisation_steps: [1, 25]", @"manifests/profiles/smoke.yaml:17: logging.quantisation_steps: step 25 is outside 1..=24 (budget.steps)";
    wrong_type: "models/smoke.yaml", "hidden_size: 64" => "hidden_size: wide", @r#"manifests/models/smoke.yaml:5: hidden_size: invalid type: string "wide", expected u64"#;
    negative_number: "models/smoke.yaml", "hidden_size: 64" => "hidden_size: -64", @"manifests/models/smoke.yaml:5: hidden_size: invalid type: integer `-64`, expected u64";
    duplicate_key: "models/smoke.yaml", "hidden_size: 64" => "hidden_size: 64\nhidden_size: 32", @"manifests/models/smoke.yaml:2: duplicate field `hidden_size`";
    not_yaml: "models/smoke.yaml", "hidden_size: 64" => "hidden_size: ]64", @"manifests/models/smoke.yaml:5: did not find expected node content";
    not_finite: "profiles/smoke.yaml", "clip_norm: 1.0" => "clip_norm: .nan", @"manifests/profiles/smoke.yaml:10: optimizer.clip_norm: must be a positive number, is NaN";
    file_name_is_not_the_id: "models/smoke.yaml", "id: smoke" => "id: smoke2", @"manifests/models/smoke.yaml:1: id `smoke2` must be the file's name, `smoke`";
    duplicate_claim_in_one_paper: "papers/2605.09825.yaml", "id: T1-FD," => "id: T1-F,", @"manifests/papers/2605.09825.yaml:21: claim T1-F: duplicate id, twice in this paper";
    duplicate_claim_in_two_papers: "papers/2502.20586.yaml", "id: MX-BARE" => "id: T1-F", @"manifests/papers/2605.09825.yaml:21: claim T1-F: duplicate id, also in paper 2502.20586";
    duplicate_check: "papers/2605.09825.yaml", "{id: K2," => "{id: K1,", @"manifests/papers/2605.09825.yaml:43: check K1: duplicate id";
    duplicate_seed: "profiles/smoke.yaml", "seeds: [1, 2]" => "seeds: [1, 1]", @"manifests/profiles/smoke.yaml:19: seeds: at least one, none twice";
    no_seed: "profiles/smoke.yaml", "seeds: [1, 2]" => "seeds: []", @"manifests/profiles/smoke.yaml:19: seeds: at least one, none twice";
    duplicate_arm: "profiles/smoke.yaml", "recipes: [fp8, bf16]" => "recipes: [fp8, fp8]", @"manifests/profiles/smoke.yaml:20: arms: recipe fp8 stands there twice";
    claim_names_unknown_arm: "papers/2605.09825.yaml", "arm: mxfp4-fd," => "arm: mxfp4-df,", @"manifests/papers/2605.09825.yaml:22: claim T1-FD: unknown recipe `mxfp4-df` (did you mean `mxfp4-f`?)";
    claim_names_unknown_claim: "papers/2605.09825.yaml", "claims: [T1-SR-FDW," => "claims: [T1-SR-FWD,", @"manifests/papers/2605.09825.yaml:37: claim H2: unknown claim `T1-SR-FWD` (did you mean `T1-SR-FD`?)";
    claim_lacks_what_its_metric_needs: "papers/2605.09825.yaml", "arm: mxfp4-f, baseline: fp8, reported: [0.08, 0.09]" => "arm: mxfp4-f, reported: [0.08, 0.09]", @"manifests/papers/2605.09825.yaml:21: claim T1-F: metric needs the key `baseline`";
    unknown_metric: "papers/2605.09825.yaml", "metric: token-overhead" => "metric: tokens-overhead", @"manifests/papers/2605.09825.yaml:21: claims[0].metric: unknown variant `tokens-overhead`, expected one of `token-overhead`, `token-ratio`, `does-not-converge`, `kernel-throughput-ratio`, `step-time-ratio`, `time-saved`, `pass-dominates`, `all-of`, `outlier-reduction`, `throughput-becomes-gain`, `rotation-identity`, `loss-gap`, `gap-closed`, `same-as` (did you mean `token-overhead`?)";
    a_later_claim_lacks_what_its_metric_needs: "papers/2605.09825.yaml", "arm: mxfp4-fdw-h16, baseline: fp8, " => "arm: mxfp4-fdw-h16, ", @"manifests/papers/2605.09825.yaml:31: claim T1-H16: metric needs the key `baseline`";
    version_of_the_rules: "papers/2605.09825.yaml", "judging: 2" => "judging: 3", @"manifests/papers/2605.09825.yaml:14: judging: there is no version 3; write 1 or 2";
    than_without_a_direction: "papers/2605.09825.yaml", "tolerance: 0.02, direction: no-fewer, than: mxfp4-f}" => "tolerance: 0.02, than: mxfp4-f}", @"manifests/papers/2605.09825.yaml:24: claim T1-SR-F: `than` needs a `direction`";
    no_fewer_without_a_margin: "papers/2605.09825.yaml", "arm: mxfp4-fdw-sr, tolerance: 0.02," => "arm: mxfp4-fdw-sr,", @"manifests/papers/2605.09825.yaml:26: claim T1-SR-FDW: `no-fewer` needs a `tolerance`";
    direction_names_unknown_arm: "papers/2605.09825.yaml", "direction: no-fewer, than: mxfp4-f}" => "direction: no-fewer, than: mxfp4-ff}", @"manifests/papers/2605.09825.yaml:24: claim T1-SR-F: unknown recipe `mxfp4-ff` (did you mean `mxfp4-f`?)";
    reported_range_reversed: "papers/2605.09825.yaml", "reported: [0.08, 0.09]" => "reported: [0.09, 0.08]", @"manifests/papers/2605.09825.yaml:21: claim T1-F: reported: the first number must not exceed the second";
    a_claim_on_itself: "papers/2605.09825.yaml", "metric: same-as, claims: [T1-H16]" => "metric: same-as, claims: [T2-TOK]", @"manifests/papers/2605.09825.yaml:34: claim T2-TOK: it rests on itself; name other claims";
    an_arm_beside_itself: "papers/2605.09825.yaml", "arm: mxfp4-f, baseline: fp8" => "arm: mxfp4-f, baseline: mxfp4-f", @"manifests/papers/2605.09825.yaml:21: claim T1-F: mxfp4-f is compared with itself; name two arms";
    fewer_than_itself: "papers/2605.09825.yaml", "direction: no-fewer, than: mxfp4-f}" => "direction: no-fewer, than: mxfp4-f-sr}", @"manifests/papers/2605.09825.yaml:24: claim T1-SR-F: mxfp4-f-sr is compared with itself; name two arms";
    unknown_paper: "profiles/smoke.yaml", "papers: [\"2605.09825\"" => "papers: [\"2605.09852\"", @"manifests/profiles/smoke.yaml:5: papers: unknown paper `2605.09852` (did you mean `2605.09825`?)";
    unknown_recipe: "profiles/smoke.yaml", "recipes: [fp8, bf16]" => "recipes: [fp8, bf61]", @"manifests/profiles/smoke.yaml:20: arms: unknown recipe `bf61` (did you mean `bf16`?)";
    unknown_model: "profiles/smoke.yaml", "model: smoke" => "model: smok", @"manifests/profiles/smoke.yaml:7: model: unknown model `smok` (did you mean `smoke`?)";
    unknown_hardware: "profiles/smoke.yaml", "hardware: cpu" => "hardware: abacus", @"manifests/profiles/smoke.yaml:6: hardware: unknown hardware `abacus`; there are: amd-mi355x, cpu, nvidia-h200";
    step_time_of_an_arm_that_does_not_run: "profiles/smoke.yaml", "step_time: {recipes: [fp8," => "step_time: {recipes: [f32,", @"manifests/profiles/smoke.yaml:24: step_time.recipes: unknown arm `f32`; there are: bf16, bf16-mxfp4-dw, bf16-mxfp4-dw-rh64-sr, fp8, mxfp4-f, mxfp4-fd, mxfp4-fdw, mxfp4-fdw-h16, mxfp4-fdw-h32, mxfp4-fdw-rh16, mxfp4-fdw-sr";
    vocabularies_differ: "profiles/smoke.yaml", "tokenizer: rust-crates-512" => "tokenizer: rust-crates-1024", @"manifests/profiles/smoke.yaml:9: tokenizer: rust-crates-1024 has 1024 entries but model smoke has vocab_size 512, which is less";
    unknown_format: "recipes/mxfp4-fdw.yaml", "format: e2m1" => "format: e2m3", @"manifests/recipes/mxfp4-fdw.yaml:6: operands.fp4.format: unknown variant `e2m3`, expected one of `e2m1`, `e4m3`, `e5m2`, `bf16`, `f32` (did you mean `e2m1`?)";
    unknown_operand: "recipes/mxfp4-fdw.yaml", "fprop: {input: fp4," => "fprop: {input: fp5,", @"manifests/recipes/mxfp4-fdw.yaml:8: passes.fprop.input: unknown operand `fp5` (did you mean `fp4`?)";
    unused_operand: "recipes/mxfp4-fdw.yaml", "operands:\n" => "operands:\n  bf16: {format: bf16, block: tensor, scale: none, rounding: nearest-even}\n", @"manifests/recipes/mxfp4-fdw.yaml:6: operands.bf16: no pass uses it; remove it";
    check_that_nobody_computes: "papers/2605.09825.yaml", "1-1.08/1.20" => "1-1.08/1.21", @"manifests/papers/2605.09825.yaml:43: check K1: `1-1.08/1.21` is not computed; add it to replication/study/src/manifest/checks.rs";
    hadamard_of_no_size: "recipes/mxfp4-fdw-h16.yaml", "size: 16" => "size: 24", @"manifests/recipes/mxfp4-fdw-h16.yaml:6: operands.fp4.rotation.size: 24 is not supported; use 16, 32, 64 or 128";
    hadamard_does_not_divide_the_axis: "recipes/mxfp4-fdw-h16.yaml", "size: 16" => "size: 128", @"manifests/profiles/ladder-8m.yaml:33: recipe mxfp4-fdw-h16 on model llama-8m: passes.fprop.input.rotation.size: a Hadamard rotation of size 128 does not divide the contraction axis of 704 elements; use a smaller size or another model (linear down)";
    block_longer_than_the_axis: "models/smoke.yaml", "hidden_size: 64" => "hidden_size: 16", @"manifests/profiles/smoke.yaml:22: recipe mxfp4-f on model smoke: passes.fprop.input.block: a block of 32 is longer than the contraction axis of 16 elements (linear qkv)";
    rotation_on_one_side_only: "recipes/mxfp4-fdw-h16w.yaml", "output_gradient: fp4-rotated, input: fp4-rotated" => "output_gradient: fp4-rotated, input: fp4", @"manifests/recipes/mxfp4-fdw-h16w.yaml:11: passes.wgrad: both operands need the same rotation, or the product is no longer the linear layer's";
    e2m1_without_blocks: "recipes/mxfp4-fdw.yaml", "block: 1x32" => "block: tensor", @"manifests/recipes/mxfp4-fdw.yaml:6: operands.fp4.block: format e2m1 with block tensor, scale floor and rounding nearest-even is not defined: e2m1 takes block 1x32 or 32x32";
    blocks_with_a_tensor_scale: "recipes/mxfp4-fdw.yaml", "scale: floor" => "scale: current", @"manifests/recipes/mxfp4-fdw.yaml:6: operands.fp4.scale: format e2m1 with block 1x32, scale current and rounding nearest-even is not defined: blocks of 32 take scale floor, even or ceil";
    bf16_with_a_scale: "recipes/bf16.yaml", "scale: none" => "scale: current", @"manifests/recipes/bf16.yaml:6: operands.bf16.scale: format bf16 with block tensor, scale current and rounding nearest-even is not defined: bf16 and f32 take block tensor and scale none";
    delayed_without_history: "recipes/fp8.yaml", "delayed_scaling: {history: 4, choose: most-recent}" => "", @"manifests/recipes/fp8.yaml: delayed_scaling: missing, although an operand has `scale: delayed`; for example {history: 4, choose: most-recent}";
    path_leaves_the_repository: "tokenizers/rust-crates-512.yaml", "file: manifests/tokenizers/rust-crates-512/tokenizer.json" => "file: ../../secret.json", @"manifests/tokenizers/rust-crates-512.yaml:4: file: `../../secret.json` leaves the repository; write a path relative to its root";
    absolute_path: "datasets/rust-crates.yaml", "package: manifests/datasets/rust-crates " => "package: /etc ", @"manifests/datasets/rust-crates.yaml:7: package: `/etc` leaves the repository; write a path relative to its root";
    data_file_in_another_folder: "datasets/webdocs.yaml", "{name: validation.xz" => "{name: ../validation.xz", @"manifests/datasets/webdocs.yaml:12: files: `../validation.xz` must be a plain file name";
    half_a_hash: "datasets/webdocs.yaml", "sha256: f151" => "sha256: f15", @"manifests/datasets/webdocs.yaml:12: files: train.000.xz: sha256: `f15e8f5b047f01320122f1c0fb46b0523a341b4c6a5db69086e747a9b2c458d` must be 64 hexadecimal digits in lower case";
    documents_that_do_not_sum: "datasets/webdocs.yaml", "documents: 23590" => "documents: 23591", @"manifests/datasets/webdocs.yaml:150: sources: their parts sum to 115406, but the files have 115407 documents";
    archive_without_held_out_part: "datasets/webdocs.yaml", "part: validation" => "part: train", @"manifests/datasets/webdocs.yaml:12: files: none with part validation";
    short_commit: "datasets/webdocs.yaml", "commit: 5c90" => "commit: 5c9", @"manifests/datasets/webdocs.yaml:150: sources: openstax/osbooks-american-government: commit: `5c9dd7907dbf25f42266417e63ca3bb0012f031` must be 40 hexadecimal digits in lower case";
    tokens_of_another_dataset: "profiles/smoke.yaml", "dataset: rust-crates" => "dataset: webdocs", @"manifests/profiles/smoke.yaml:9: tokenizer: rust-crates-512 pins the tokens of another dataset than webdocs";
    more_evaluation_than_held_out_text: "profiles/h200-s.yaml", "sequences: 256," => "sequences: 3949,", @"manifests/profiles/h200-s.yaml:22: evaluation.sequences: 3949 of 512 tokens need 2021889 held-out tokens, but webdocs-8192 makes 2021682";
    described_is_not_trained_on: "profiles/smoke.yaml", "dataset: rust-crates" => "dataset: enwik8", @"manifests/profiles/smoke.yaml:8: dataset: enwik8 is only described; a profile needs documents or tokens";
    requires_no_number: "profiles/smoke.yaml", "requires: {" => "requires: {patience: .nan, ", @"manifests/profiles/smoke.yaml:26: requires.patience: NaN is no amount; write zero or a positive number";
    requires_less_than_nothing: "profiles/smoke.yaml", "requires: {" => "requires: {patience: -1, ", @"manifests/profiles/smoke.yaml:26: requires.patience: -1 is no amount; write zero or a positive number";
    history_too_long: "recipes/fp8.yaml", "history: 4" => "history: 65537", @"manifests/recipes/fp8.yaml:14: delayed_scaling.history: must be 1 to 65536 steps, is 65537";
    history_without_delayed_scales: "recipes/mxfp4-fdw.yaml", "stochastic_seed: per-step" => "stochastic_seed: per-step\ndelayed_scaling: {history: 4, choose: max}", @"manifests/recipes/mxfp4-fdw.yaml:12: delayed_scaling: no operand has `scale: delayed`; remove it";
    unknown_defect: "recipes/mxfp4-fdw-sr-pairs.yaml", "defect: word-for-a-pair" => "defect: word-for-pairs", @"manifests/recipes/mxfp4-fdw-sr-pairs.yaml:12: defect: unknown variant `word-for-pairs`, expected one of `signs-of-each-operand`, `signs-of-left-alone`, `signs-again-in-backward`, `left-alone-rotated`, `rotated-after-quantisation`, `quantised-twice`, `word-for-a-pair`, `noise-of-16-bits`, `sums-in-bf16` (did you mean `word-for-a-pair`?)";
    signs_that_are_not_there: "recipes/mxfp4-fdw-rh16-own-signs.yaml", "signs: per-step" => "signs: none", @"manifests/recipes/mxfp4-fdw-rh16-own-signs.yaml:13: defect: signs-of-each-operand needs a rotation with signs fixed or per-step in all six operands; change them, or remove it";
    words_that_are_not_drawn: "recipes/mxfp4-fdw-sr-pairs.yaml", "rounding: stochastic" => "rounding: nearest-even", @"manifests/recipes/mxfp4-fdw-sr-pairs.yaml:12: defect: word-for-a-pair needs stochastic rounding in all six operands; change them, or remove it";
    sums_of_one_micro_batch: "profiles/dnc-32m-sums.yaml", "accumulation: 16" => "accumulation: 1", @"manifests/profiles/dnc-32m-sums.yaml:20: recipe fp8-bf16-sums on model llama-32m: defect: sums-in-bf16 needs several micro-batches a step; raise batch.accumulation, or remove it";
    defect_of_a_baseline: "recipes/fp8.yaml", "stochastic_seed: per-step" => "stochastic_seed: per-step\ndefect: quantised-twice", @"manifests/recipes/fp8.yaml:14: defect: quantised-twice needs format e2m1 and block 1x32 in all six operands; change them, or remove it";
    batch_beyond_memory: "profiles/smoke.yaml", "batch: {sequences: 4}" => "batch: {sequences: 2147483648}", @"manifests/profiles/smoke.yaml:12: batch.sequences: sequences * model.sequence_length * model.vocab_size is beyond 2^40; use a smaller batch";
    size_beyond_reason: "models/smoke.yaml", "num_hidden_layers: 2" => "num_hidden_layers: 16777217", @"manifests/models/smoke.yaml: model: a size beyond 2^24 is surely a mistake; check vocab_size, hidden_size, intermediate_size, sequence_length, num_hidden_layers, num_attention_heads and head_dim";
    zero_steps: "profiles/smoke.yaml", "budget: {steps: 24}" => "budget: {steps: 0}", @"manifests/profiles/smoke.yaml:13: budget.steps: must be at least 1, is 0";
    odd_heads: "models/smoke.yaml", "num_attention_heads: 2\nnum_key_value_heads: 1" => "num_attention_heads: 3\nnum_key_value_heads: 2", @"manifests/models/smoke.yaml:8: num_key_value_heads: 2 does not divide model.num_attention_heads (3)";
}

#[test]
fn missing_folder() {
    let root = copy();
    std::fs::remove_dir_all(root.path().join("manifests/recipes")).unwrap();
    insta::assert_snapshot!(message(root.path()), @"manifests/recipes: cannot be read: No such file or directory (os error 2)");
}

#[test]
fn not_utf8() {
    let root = copy();
    std::fs::write(root.path().join("manifests/models/smoke.yaml"), [0x69, 0x64, 0x3a, 0x20, 0xff, 0xfe]).unwrap();
    insta::assert_snapshot!(message(root.path()), @"manifests/models/smoke.yaml: cannot be read: it is not UTF-8 text");
}

#[test]
fn yaml_that_swells_is_refused() {
    let root = copy();
    // Nine levels of ten aliases: a thousand million nodes if they were expanded.
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let below = level - 1;
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{below}"); 10].join(", ")));
    }
    std::fs::write(root.path().join("manifests/models/smoke.yaml"), text).unwrap();
    assert_ne!(message(root.path()), "(loads)");
}
