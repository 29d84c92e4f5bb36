//! The keys that MLCommons' published rules name for Llama 3.1-8B and for LoRA of Llama 2 70B, and those of its logging package that other
//! benchmarks share.
//!
//! Source: mlcommons/logging 4.1.68, `compliance_checker/training_6.0.0/{common,closed_common,closed_llama31_8b}.yaml`,
//! `training_4.0.0/closed_llama2_70b_lora.yaml` and `mllog/constants.py`. The official checker lets a key that it does not know pass in silence; here it is named.

use crate::suggest::closest;

/// Marks of the course of a run.
const COURSE: &[&str] = &[
    "cache_clear",
    "init_start",
    "init_stop",
    "run_start",
    "run_stop",
    "epoch_start",
    "epoch_stop",
    "block_start",
    "block_stop",
    "eval_start",
    "eval_stop",
    "eval_accuracy",
    "staging_start",
    "staging_stop",
    "tracked_stats",
    "train_samples",
    "trained_samples",
    "weights_initialization",
];

const SUBMISSION: &[&str] = &[
    "submission_benchmark",
    "submission_division",
    "submission_entry",
    "submission_org",
    "submission_platform",
    "submission_poc_email",
    "submission_poc_name",
    "submission_status",
];

/// Settings of a run that are compared, kept and written to `runs.csv`, in that order.
pub(crate) const SETTINGS: &[&str] = &[
    "global_batch_size",
    "gradient_accumulation_steps",
    "max_sequence_length",
    "eval_samples",
    "max_steps",
    "opt_name",
    "opt_base_learning_rate",
    "opt_end_learning_rate",
    "opt_learning_rate_warmup_steps",
    "opt_learning_rate_decay_steps",
    "opt_learning_rate_decay_schedule",
    "opt_adamw_beta_1",
    "opt_adamw_beta_2",
    "opt_adamw_epsilon",
    "opt_adamw_weight_decay",
    "opt_gradient_clip_norm",
];

/// Known, and not kept.
const OTHERS: &[&str] = &[
    "seed",
    "init_checkpoint_step",
    "lowest_numerical_precision_in_linear",
    "lowest_numerical_precision_in_attn",
    "lowest_numerical_precision_in_comm",
    "tensor_parallelism",
    "pipeline_parallelism",
    "context_parallelism",
    "expert_parallelism",
    "micro_batch_size",
    "config_filename",
    "opt_weight_decay",
    "num_warmup_steps",
    "start_warmup_step",
    "opt_learning_rate_training_steps",
    "opt_learning_rate_warmup_factor",
    "lora_alpha",
    "lora_rank",
    TARGET,
    "max_samples",
    "power_measurement_start",
    "power_measurement_stop",
    "power_reading",
];

/// The rules do not name it. NVIDIA's code logs it, and what it means is plain: it is held against the target that was asked for.
pub(crate) const TARGET: &str = "target_accuracy";

/// The key under which the rules want the precision of the linear layers.
pub(crate) const PRECISION: &str = "lowest_numerical_precision_in_linear";

/// The words that the rules take for a precision.
pub(crate) const PRECISIONS: &[&str] =
    &["fp64", "fp32", "tf32", "fp16", "fp8", "nvfp4", "mxfp4", "bfloat16", "Graphcore FLOAT 16.16", "int8", "uint8", "int4", "uint4"];

fn known() -> impl Iterator<Item = &'static str> {
    [COURSE, SUBMISSION, SETTINGS, OTHERS].into_iter().flatten().copied()
}

/// What a key means to the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// One of theirs.
    Yes,
    /// Not theirs, but so near to this one that it was meant.
    Near(&'static str),
    /// Not theirs.
    No,
}

/// With `slips`, also which one was probably meant.
pub(crate) fn look_up(key: &str, slips: bool) -> Known {
    if known().any(|known| known == key) {
        return Known::Yes;
    }
    if !slips {
        return Known::No;
    }
    closest(key, known()).map_or(Known::No, |near| {
        // `closest` is made for slips in short words; among keys of thirty letters it would call unlike ones near.
        if strsim::damerau_levenshtein(key, near) <= 3 { Known::Near(near) } else { Known::No }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_named_and_a_stranger_is_not() {
        assert_eq!(look_up("opt_adamw_beta_1", true), Known::Yes);
        assert_eq!(look_up("opt_adam_beta_1", true), Known::Near("opt_adamw_beta_1"));
        assert_eq!(look_up("lowest_numerical_precision_linear", true), Known::Near(PRECISION));
        assert_eq!(look_up("overall_throughput", true), Known::No);
        assert_eq!(look_up("run_duration", true), Known::No);
    }
}
