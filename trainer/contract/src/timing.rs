//! `timing.jsonl`: seconds, and the machine they were taken on. Different at every run, and therefore kept apart from the metrics.

use serde::{Deserialize, Serialize};

use crate::device::DeviceKind;
use crate::schema;

crate::lines! {
    TimingLine of schema::TIMING; {
        /// A trainer process begins, or goes on from a checkpoint.
        Session(Session) = "session" with schema,
        Step(Seconds) = "step",
        Evaluation(Seconds) = "eval",
    }
}

/// The machine as one trainer process saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Before there were GPUs, trainers did not say.
    #[serde(default)]
    pub device: DeviceKind,
    /// Processes that trained together, each with so many threads.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub ranks: u64,
    pub threads: u64,
    /// Of the CPU's kernels, or a GPU's architecture.
    pub instruction_set: String,
    pub cpu: String,
    /// Its maker's name; none on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Driver, compiler and library of matrix products, with versions; none on a CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// How MXFP4 products are executed (`native`, `emulated`, or by pass), where the device could do either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mxfp4: Option<String>,
    /// Nothing is kept that backward can make again, which takes less memory and more time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub least_memory: bool,
    /// No device: a program executes its instructions, so times say nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interpreted: bool,
    pub resumed_from_step: u64,
}

fn one() -> u64 {
    1
}

fn is_one(ranks: &u64) -> bool {
    *ranks == 1
}

/// Of a training step, or of the evaluation after so many steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seconds {
    pub step: u64,
    pub seconds: f64,
}
