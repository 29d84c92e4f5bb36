//! What is printed about a GPU: JSON lines, told apart by `kind`.

use kernels::gpu::Gpu;
use serde::Serialize;

use super::super::shapes::SCHEMA;

#[derive(Serialize)]
pub(super) struct DeviceLine<'a> {
    pub(super) schema: &'static str,
    pub(super) kind: &'static str,
    pub(super) device: String,
    pub(super) name: &'a str,
    pub(super) architecture: &'a str,
    pub(super) libraries: Vec<String>,
    /// `native` where an FP4 unit multiplies, `emulated` where another unit carries the exact values.
    pub(super) mxfp4: &'static str,
    pub(super) fp8: bool,
    /// No device: the processor interprets the machine code.
    pub(super) interpreted: bool,
}

#[derive(Serialize)]
pub(super) struct NotRunLine<'a> {
    pub(super) schema: &'static str,
    pub(super) kind: &'static str,
    pub(super) variant: &'a str,
    pub(super) linear: &'a str,
    pub(super) pass: &'a str,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) reason: &'a str,
}

#[derive(Serialize)]
pub(super) struct PrepareLine<'a> {
    pub(super) schema: &'static str,
    pub(super) kind: &'static str,
    pub(super) variant: &'a str,
    pub(super) linear: &'a str,
    /// `row`, `column` or `both`.
    pub(super) orientation: &'a str,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Each input byte once and each output byte once.
    pub(super) bytes: usize,
    pub(super) repeat: u64,
    pub(super) seconds: f64,
}

#[derive(Serialize)]
pub(super) struct PeakLine {
    pub(super) schema: &'static str,
    pub(super) kind: &'static str,
    pub(super) variant: &'static str,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) repeat: u64,
    pub(super) seconds: f64,
}

pub(super) fn device_line(gpu: &Gpu) -> DeviceLine<'_> {
    let description = gpu.description();
    DeviceLine {
        schema: SCHEMA,
        kind: "device",
        device: format!("{}:{}", description.kind, description.ordinal),
        name: &description.name,
        architecture: &description.architecture,
        libraries: description.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect(),
        mxfp4: if description.has_mxfp4 { "native" } else { "emulated" },
        fp8: description.has_fp8,
        interpreted: description.interpreted,
    }
}
