//! Names of the schemas, and the one sentence for a file that has another.

use crate::text::one_line;

/// `run.yaml`.
pub const RUN: &str = "mxfp4-run/1";
/// `metrics.jsonl`.
pub const METRICS: &str = "mxfp4-metrics/1";
/// `timing.jsonl`.
pub const TIMING: &str = "mxfp4-timing/1";
/// `exchange.jsonl`.
pub const EXCHANGE: &str = "mxfp4-exchange/1";
/// `done.json`.
pub const DONE: &str = "mxfp4-done/1";
/// `failed.json`.
pub const FAILED: &str = "mxfp4-failed/1";
/// `checkpoint/state.json` of one rank's checkpoint, which only the trainer reads.
pub const CHECKPOINT: &str = "mxfp4-checkpoint/1";
/// And of one that several ranks wrote, each its shard.
pub const SHARDED_CHECKPOINT: &str = "mxfp4-checkpoint/3";
/// What `trainer devices` prints.
pub const DEVICES: &str = "mxfp4-devices/1";
/// What `trainer memory` prints.
pub const MEMORY: &str = "mxfp4-memory/1";
/// What `trainer identity` prints.
pub const IDENTITY: &str = "mxfp4-identity/1";
/// Lines of `trainer kernel-time`.
pub const KERNEL_TIME: &str = "mxfp4-kernel-time/1";
/// Lines of `trainer step-time`.
pub const STEP_TIME: &str = "mxfp4-step-time/1";
/// Lines of `trainer rotation-identity`.
pub const ROTATION_IDENTITY: &str = "mxfp4-rotation-identity/1";
/// Lines of `trainer device-test`.
pub const DEVICE_TEST: &str = "mxfp4-device-test/1";

/// A file or a line of another schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schema `{}` is not `{expected}`", one_line(.found))]
pub struct OtherSchema {
    pub found: String,
    pub expected: &'static str,
}

/// Whether what was found is what the reader knows.
pub fn require(found: &str, expected: &'static str) -> Result<(), OtherSchema> {
    if found == expected { Ok(()) } else { Err(OtherSchema { found: found.to_owned(), expected }) }
}
