//! One GPU's measurements, each beside its peaks; and a kind of device that is not here.

use serde::{Deserialize, Serialize};

use super::comparisons::Compared;
use super::samples::{Memory, Missing, Peer, Samples};
use crate::manifest::profile::Peaks;
use crate::statistics::median_ratio;

/// The trainer's option to keep nothing that backward can make again, as it follows an arm's name.
pub const LEAST: &str = " --least-memory";

/// What one GPU did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuBench {
    /// As the trainer's `--device` takes it: `cuda:0`.
    pub device: String,
    /// Its maker's name for it.
    pub name: String,
    /// As the compiler calls it.
    pub architecture: String,
    /// Driver and libraries with versions.
    pub libraries: Vec<String>,
    /// `native`: an FP4 unit multiplied; `emulated`: another unit carried the exact values.
    pub mxfp4: String,
    /// Whether FP8 ran natively; where it does not, there are no FP8 rows.
    pub fp8: bool,
    /// What its maker states, where manifests/hardware knows it.
    pub stated: Option<Peaks>,
    /// Kernels and steps, all in turns within their group.
    pub samples: Vec<Samples>,
    /// The peer script's measurements, in turns with ours.
    pub peers: Vec<Peer>,
    /// What could not be measured.
    pub missing: Vec<Missing>,
    /// Device memory of one training step of each arm that a peer has, too.
    pub memory: Vec<Memory>,
    /// Every ratio, computed from the above.
    pub comparisons: Vec<Compared>,
}

/// A kind of device that was looked for and not found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotRun {
    /// `cpu`, `cuda` or `hip`.
    pub device: String,
    /// What it would have measured.
    pub rows: String,
    /// What is missing, and where it comes from.
    pub needs: String,
}

/// One measurement against the peaks.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuRow<'a> {
    pub samples: &'a Samples,
    /// Median seconds.
    pub seconds: f64,
    /// The sign test's interval of the median; none below six samples.
    pub interval: Option<[f64; 2]>,
    /// Operations or bytes a second.
    pub per_second: f64,
    /// Its share of what the maker states.
    pub of_stated: Option<f64>,
    /// Its share of the peak that was measured in the same call.
    pub of_measured: Option<f64>,
}

impl GpuBench {
    /// Every measurement with its shares.
    pub fn rows(&self) -> Vec<GpuRow<'_>> {
        self.samples.iter().filter_map(|samples| self.row(samples)).collect()
    }

    fn row<'a>(&'a self, samples: &'a Samples) -> Option<GpuRow<'a>> {
        let taken = median_ratio(&samples.samples)?;
        let per_second = samples.operations as f64 / taken.ratio;
        let measured = self.measured_peak(samples).filter(|peak| peak.name != samples.name);
        let measured = measured.and_then(|peak| Some(peak.operations as f64 / median_ratio(&peak.samples)?.ratio));
        Some(GpuRow {
            samples,
            seconds: taken.ratio,
            interval: taken.interval.map(|interval| [interval.low, interval.high]),
            per_second,
            of_stated: self.stated_peak(samples).map(|peak| per_second / peak),
            of_measured: measured.map(|peak| per_second / peak),
        })
    }

    /// Which arithmetic unit ran, for products; none for what moves bytes.
    fn unit(&self, name: &str) -> Option<&'static str> {
        let (kind, rest) = name.split_once('/')?;
        if !["gemm", "gemm+prepare", "block", "block+prepare", "peak"].contains(&kind) {
            return None;
        }
        let variant = rest.split('/').next().unwrap_or_default();
        match variant {
            "fp8" => Some("fp8"),
            _ if variant.starts_with("mxfp4") && self.mxfp4 == "native" => Some("mxfp4"),
            _ => Some("bf16"),
        }
    }

    fn stated_peak(&self, samples: &Samples) -> Option<f64> {
        let stated = self.stated.as_ref()?;
        match self.unit(&samples.name) {
            Some("fp8") => stated.fp8,
            Some("mxfp4") => stated.mxfp4,
            Some(_) => Some(stated.bf16),
            None => (samples.unit == "bytes").then_some(stated.bytes_per_second),
        }
    }

    /// The peak of the same group.
    fn measured_peak(&self, samples: &Samples) -> Option<&Samples> {
        let shapes = samples.group.strip_prefix("kernels ")?;
        let name = match self.unit(&samples.name) {
            Some(unit) => format!("peak/{unit}/{shapes}"),
            None => format!("copy/{shapes}"),
        };
        self.samples.iter().find(|other| other.name == name)
    }
}

/// Sums over a block's kernels, peaks and steps: what stands for many measurements.
pub fn is_summary(name: &str) -> bool {
    ["block", "peak/", "copy/", "step/"].iter().any(|start| name.starts_with(start)) || name.ends_with("/all")
}

/// In the unit of its kind.
pub fn rate(row: &GpuRow<'_>) -> String {
    in_unit(row.per_second, &row.samples.unit)
}

/// A rate of `operations`, `bytes` or `tokens`.
pub fn in_unit(per_second: f64, unit: &str) -> String {
    match unit {
        "bytes" => format!("{:.2} TB/s", per_second / 1e12),
        "tokens" => format!("{per_second:.0} tokens/s"),
        _ => format!("{:.1} TFLOP/s", per_second / 1e12),
    }
}
