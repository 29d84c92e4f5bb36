//! What the clock model says of gfx950 kernels, beside what was measured of them. All of it is `modelled`: none of it is a measurement.

use contract::native::packed_bytes;
use serde::{Deserialize, Serialize};

use super::gpu::{GpuBench, GpuRow};
use super::samples::Samples;
use crate::code_objects::Modelled;
use crate::manifest::profile::Peaks;

/// What the names of the quantisers that the model plays begin with, and the operand that it plays them for: rows and columns with H16.
const QUANTISER: (&str, &str) = ("mxfp4_quantise", "quantise/mxfp4-h16/both/");

/// Products of queries and keys that a kernel of attention makes, and elements of a head.
const ATTENTION: [(&str, u64); 3] = [("attention_forward", 2), ("attention_backward_q", 3), ("attention_backward_kv", 4)];
const HEAD_DIM: u64 = 128;

/// What a rate is a share of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Mxfp4,
    Bf16,
    Bytes,
}

/// What `kernels-build` models, and what makes seconds and shares of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockModel {
    /// What compiled the machine code that was played.
    pub compiler: String,
    /// Clocks in a second.
    pub hertz: f64,
    /// What the device's maker states.
    pub peaks: Peaks,
    /// Clocks of each product, matrix and shape of attention that kernels/gfx950/kernels.yaml lists.
    pub modelled: Vec<Modelled>,
}

/// What the model says of one measurement, or of one kernel that was not measured.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelledRate {
    pub seconds: f64,
    /// Operations or bytes a second.
    pub per_second: f64,
    /// Its share of what the maker states.
    pub of_stated: f64,
    /// `operations` or `bytes`.
    pub unit: &'static str,
}

impl ModelledRate {
    /// The measured rate over the modelled one: 1 where the card does what the model says, less where it is slower.
    pub fn measured(&self, row: &GpuRow<'_>) -> f64 {
        self.seconds / row.seconds
    }
}

impl ClockModel {
    /// What the model is of.
    pub const ARCHITECTURE: &str = "gfx950";

    /// Whether that is this GPU's, or the one that an interpreter executes.
    pub fn is_of(architecture: &str) -> bool {
        architecture.starts_with(Self::ARCHITECTURE)
    }

    /// What the model says beside a measurement of [`ClockModel::is_of`]; a sum only where the model knows all of its parts.
    pub fn beside(&self, gpu: &GpuBench, samples: &Samples) -> Option<ModelledRate> {
        if !Self::is_of(&gpu.architecture) {
            return None;
        }
        let seconds = match parts_of(&samples.name) {
            None => self.seconds(&samples.name)?,
            Some(prefix) => {
                let parts: Vec<_> = gpu.samples.iter().filter(|part| part.name != samples.name && part.name.starts_with(&prefix)).collect();
                let work: u64 = parts.iter().map(|part| part.operations).sum();
                if work != samples.operations {
                    return None;
                }
                parts.iter().map(|part| self.seconds(&part.name)).sum::<Option<f64>>()?
            }
        };
        let kind = if samples.unit == "operations" { Work::Mxfp4 } else { Work::Bytes };
        Some(self.rate(samples.operations, kind, seconds))
    }

    /// Every kernel of the model, for a device that is not here: its name and shape, and what it would reach.
    pub fn alone(&self) -> impl Iterator<Item = (String, u64, ModelledRate)> {
        self.modelled.iter().filter_map(|one| {
            let sides: Vec<u64> = one.shape.split('x').map(|side| side.parse().ok()).collect::<Option<_>>()?;
            let (work, kind) = match *sides.as_slice() {
                [m, n, k] => (2 * m * n * k, Work::Mxfp4),
                // Read in BF16, written in both directions.
                [rows, k] => (2 * rows * k + 2 * packed_bytes(usize::try_from(rows * k).ok()?) as u64, Work::Bytes),
                // What the mask leaves of all pairs, in each of the kernel's products.
                [sequence, heads, _, batch] => {
                    let (_, products) = ATTENTION.into_iter().find(|(name, _)| *name == one.kernel)?;
                    (products * sequence * (sequence + 1) * heads * batch * HEAD_DIM, Work::Bf16)
                }
                _ => return None,
            };
            Some((format!("{} {}", one.kernel, one.shape), work, self.rate(work, kind, one.modelled_clocks as f64 / self.hertz)))
        })
    }

    fn rate(&self, work: u64, kind: Work, seconds: f64) -> ModelledRate {
        let per_second = work as f64 / seconds;
        let Peaks { bf16, mxfp4, bytes_per_second, .. } = self.peaks;
        let (peak, unit) = match kind {
            Work::Mxfp4 => (mxfp4.unwrap_or(bf16), "operations"),
            Work::Bf16 => (bf16, "operations"),
            Work::Bytes => (bytes_per_second, "bytes"),
        };
        ModelledRate { seconds, per_second, of_stated: per_second / peak, unit }
    }

    /// Of one kernel by a measurement's name (`lines` in `bench` makes them): our product of prepared operands, whatever their rotation, or
    /// a quantiser that is modelled.
    fn seconds(&self, name: &str) -> Option<f64> {
        let shape = name.rsplit('/').next()?;
        let is_product = name.starts_with("gemm/mxfp4") && !name.contains("hipblaslt");
        let (quantiser, quantised) = QUANTISER;
        let is_its = |kernel: &str| {
            if is_product { kernel.starts_with("mxfp4_gemm") } else { name.starts_with(quantised) && kernel.starts_with(quantiser) }
        };
        let one = self.modelled.iter().find(|one| one.shape == shape && is_its(&one.kernel))?;
        Some(one.modelled_clocks as f64 / self.hertz)
    }
}

/// What the names of a sum's parts begin with: those of a block's products, and of its gradients.
fn parts_of(name: &str) -> Option<String> {
    if let Some(rest) = name.strip_prefix("block/") {
        return Some(format!("gemm/{rest}/"));
    }
    name.strip_suffix("all").filter(|rest| rest.starts_with("quantise/") && rest.ends_with('/')).map(str::to_owned)
}
