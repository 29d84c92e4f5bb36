//! How one GEMM operand is prepared: format, block, scale rule, rounding, rotation.
//!
//! These are the words of a recipe file, typed. Nothing is computed here.

use serde::{Deserialize, Serialize};

/// Element format of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// 4-bit float, 2 exponent bits and 1 mantissa bit (OCP MX v1.0 section 5.3.3): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
    E2m1,
    /// 8-bit float, OCP FP8 E4M3 (no infinity, largest 448).
    E4m3,
    /// 8-bit float, OCP FP8 E5M2 (largest finite 57344).
    E5m2,
    /// The upper 16 bits of an IEEE binary32.
    Bf16,
    /// IEEE binary32, left as it is.
    F32,
}

/// Which elements share one scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Block {
    /// 32 consecutive elements along the contraction axis.
    #[serde(rename = "1x32")]
    Row32,
    /// A square of 32 rows by 32 elements of the contraction axis: the same codes serve both orientations of a weight.
    #[serde(rename = "32x32")]
    Tile32,
    /// The whole operand (FP8), or no scale at all (BF16, F32).
    #[serde(rename = "tensor")]
    Tensor,
}

/// How the shared scale follows from the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleRule {
    /// E8M0, exponent of the largest magnitude minus the format's largest exponent (OCP MX v1.0 section 6.3); values above the largest saturate.
    Floor,
    /// E8M0, as `Floor` after rounding the largest magnitude to one mantissa bit; goes up from mantissa 1.75 (the public ROCm kernel's rule).
    Even,
    /// E8M0, the smallest power of two at which nothing saturates.
    Ceil,
    /// F32 per tensor: largest finite value of the format over this operand's own largest magnitude.
    Current,
    /// F32 per tensor: as `Current`, with the largest magnitude of the previous step (history kept by the trainer).
    Delayed,
    /// No scale (BF16, F32).
    None,
}

/// How a scaled value becomes a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// To nearest, ties to even.
    NearestEven,
    /// Up or down with probability proportional to the distance; unbiased inside the range.
    Stochastic,
    /// As `Stochastic` after a factor 3/4 that keeps every element inside the range; the product is corrected by 4/3
    /// for each such operand, 16/9 for two (arXiv 2502.20586, algorithm 1).
    StochasticPrescaled,
}

/// Sign flips before the Hadamard transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signs {
    /// No flips: the deterministic transform.
    None,
    /// Drawn once for each layer, linear and pass of a run.
    Fixed,
    /// Drawn again at every step.
    PerStep,
}

/// Blockwise Hadamard rotation along the contraction axis, before the block maximum is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Size of the transform: 16, 32, 64 or 128.
    pub size: usize,
    /// Sign flips; both operands of a GEMM see the same ones, so that the product is unchanged.
    pub signs: Signs,
}

/// Everything that happens to one operand of one GEMM pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperandSpec {
    pub format: Format,
    /// Which elements share a scale.
    pub block: Block,
    /// How the scale is chosen.
    pub scale: ScaleRule,
    pub rounding: Rounding,
    /// Rotation before quantisation, if any.
    #[serde(default)]
    pub rotation: Option<Rotation>,
}

/// Why an operand's specification is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Size is none of 16, 32, 64, 128.
    #[error("a Hadamard rotation of size {size} is not supported: use 16, 32, 64 or 128")]
    RotationSize { size: usize },
    /// The rotation does not divide the contraction axis.
    #[error("a Hadamard rotation of size {size} does not divide the contraction axis of {k} elements: use a smaller size or another model")]
    RotationAxis { size: usize, k: usize },
    /// The block is longer than the axis.
    #[error("a block of 32 is longer than the contraction axis of {k} elements")]
    BlockAxis { k: usize },
    /// Format, block and scale do not go together.
    #[error("format {format:?} with block {block:?} and scale {scale:?} is not defined: {why}")]
    Combination { format: Format, block: Block, scale: ScaleRule, why: &'static str },
}

impl OperandSpec {
    /// Whether the specification is defined for a contraction axis of `k` elements (0: any).
    pub fn validate(&self, k: usize) -> Result<(), SpecError> {
        let Self { format, block, scale, .. } = *self;
        let refuse = |why| Err(SpecError::Combination { format, block, scale, why });
        let shared = matches!(scale, ScaleRule::Floor | ScaleRule::Even | ScaleRule::Ceil);
        let tensor = matches!(scale, ScaleRule::Current | ScaleRule::Delayed);
        match (format, block) {
            (Format::Bf16 | Format::F32, Block::Tensor) if scale == ScaleRule::None => {}
            (Format::Bf16 | Format::F32, _) => return refuse("bf16 and f32 take block tensor and scale none"),
            (Format::E2m1, Block::Tensor) => return refuse("e2m1 takes block 1x32 or 32x32"),
            (_, Block::Tensor) if !tensor => return refuse("block tensor takes scale current or delayed"),
            (_, Block::Row32 | Block::Tile32) if !shared => return refuse("blocks of 32 take scale floor, even or ceil"),
            _ => {}
        }
        if format == Format::F32 && self.rounding != Rounding::NearestEven {
            return refuse("f32 is not rounded");
        }
        if self.rounding == Rounding::StochasticPrescaled && !shared {
            return refuse("stochastic-prescaled needs a shared exponent (blocks of 32)");
        }
        if k > 0 && block != Block::Tensor && k < 32 {
            return Err(SpecError::BlockAxis { k });
        }
        if let Some(Rotation { size, .. }) = self.rotation {
            if !crate::hadamard::SIZES.contains(&size) {
                return Err(SpecError::RotationSize { size });
            }
            if !k.is_multiple_of(size) {
                return Err(SpecError::RotationAxis { size, k });
            }
        }
        Ok(())
    }
}
