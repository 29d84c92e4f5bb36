//! What the trainer's measuring commands print: `kernel-time`, `step-time`, `rotation-identity` and `device-test`.
//!
//! Times are of single repeats; whoever reads them decides what to make of them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::device::{DeviceId, DeviceKind};
use crate::json::nullable;
use crate::schema;

/// Names that a trainer has typed in, and a reader takes from a file.
type Word = Cow<'static, str>;

crate::lines! {
    KernelTimeLine of schema::KERNEL_TIME; {
        /// Which GPU; a CPU has no such line.
        Device(TimedDevice) = "device" with schema,
        /// One GEMM pass of one linear, with preparing both operands.
        Kernel(KernelTime) = "kernel_time" with schema,
        /// The same, operands prepared beforehand.
        Product(KernelTime) = "product_time" with schema,
        /// One read of a gradient that writes its row operand, its column operand, or both.
        Prepare(PrepareTime) = "prepare_time" with schema,
        /// The device's own copy.
        Copy(PrepareTime) = "copy_time" with schema,
        /// A large square product.
        Peak(PeakTime) = "peak_time" with schema,
        /// A product that the vendor's library does not have.
        NotRun(NotRun) = "not_run" with schema,
    }
}

crate::lines! {
    StepTimeLine of schema::STEP_TIME; {
        Step(StepTime) = "step_time" with schema,
        Kernel(StepKernel) = "step_kernel" with schema,
        Exchange(StepExchange) = "step_exchange" with schema,
        Memory(StepMemory) = "step_memory" with schema,
    }
}

crate::lines! {
    RotationIdentityLine of schema::ROTATION_IDENTITY; {
        Identity(RotationIdentity) = "rotation_identity" with schema,
    }
}

crate::lines! {
    DeviceTestLine of schema::DEVICE_TEST; {
        /// First.
        Device(TestedDevice) = "device" with schema,
        Check(Check) = "check" with schema,
        /// Last: without it the test was cut short.
        Summary(Summary) = "summary" with schema,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedDevice {
    pub device: DeviceId,
    pub name: String,
    /// As the compiler calls it.
    pub architecture: String,
    pub libraries: Vec<String>,
    /// `native` where an FP4 unit multiplies, `emulated` where another unit carries the exact values.
    pub mxfp4: Word,
    /// Whether FP8 is native.
    pub fp8: bool,
    /// No device: the processor interprets the machine code.
    #[serde(default)]
    pub interpreted: bool,
}

/// `[m, k] [n, k]ᵀ`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelTime {
    pub variant: Word,
    pub linear: Word,
    pub pass: Word,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub repeat: u64,
    /// None of an interpreter, whose time says nothing.
    #[serde(deserialize_with = "nullable")]
    pub seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interpreted: bool,
}

/// Of reading and writing `bytes`: each input byte once and each output byte once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareTime {
    pub variant: Word,
    pub linear: Word,
    /// `row`, `column` or `both`.
    pub orientation: Word,
    pub rows: u64,
    pub columns: u64,
    pub bytes: u64,
    pub repeat: u64,
    /// None of an interpreter.
    #[serde(deserialize_with = "nullable")]
    pub seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interpreted: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakTime {
    pub variant: Word,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub repeat: u64,
    /// None of an interpreter.
    #[serde(deserialize_with = "nullable")]
    pub seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interpreted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotRun {
    pub variant: Word,
    pub linear: Word,
    pub pass: Word,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub reason: String,
}

/// One training step of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTime {
    pub arm: String,
    pub repeat: u64,
    /// Of a step; earlier trainers did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Where there are several, that compute it together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u64>,
    pub seconds: f64,
    pub forward_backward_seconds: f64,
}

/// Seconds of a rank in the step before that went to exchanges with other ranks, its waiting for them among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepExchange {
    pub arm: String,
    pub repeat: u64,
    /// Earlier trainers wrote rank 0 alone, without its number.
    #[serde(default)]
    pub rank: u64,
    /// What computing did not hide.
    pub gradients: f64,
    pub norm: f64,
    pub parameters: f64,
}

/// What one kind of kernel took of the step before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepKernel {
    pub arm: String,
    pub repeat: u64,
    pub kernel: Word,
    pub calls: u64,
    /// Operations of a GEMM or elements of a preparation; 0 where the kind does not count them.
    pub work: u64,
    pub seconds: f64,
}

/// What the process took on the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepMemory {
    pub bytes: u64,
}

/// How far a rotation of both operands is from cancelling in their product, in F64, relative to the largest result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotationIdentity {
    pub linear: Word,
    pub pass: Word,
    /// `h16`, `h32`, `rh16`.
    pub rotation: Word,
    pub max_relative_error: f64,
    pub bound: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestedDevice {
    pub device: DeviceKind,
    pub name: String,
    pub architecture: String,
    /// No device: its kernels are executed by an interpreter on the processor.
    #[serde(default)]
    pub interpreted: bool,
    pub libraries: Vec<String>,
    /// Decided the random inputs.
    pub seed: u64,
}

/// One comparison of a GPU with the CPU, or of several ranks with one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// `operand`, `kernel`, `step` or `determinism`; `ranks`.
    pub group: Word,
    pub name: String,
    /// Shapes or recipe.
    pub detail: String,
    pub elements: u64,
    /// Relative difference of the whole, ||gpu - cpu|| / ||cpu||; for checks bit for bit the number of elements that differ. Null: not a number.
    #[serde(deserialize_with = "nullable")]
    pub difference: Option<f64>,
    pub bound: f64,
    pub passed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub checks: u64,
    pub failed: u64,
}
