//! Recipes: for each GEMM pass and each of its operands, format, block, scale rule, rounding and rotation; and which of them are defined.
//!
//! The planner, the trainer and the kernels all ask [`OperandSpec::validate`], so what one of them takes no other refuses.

use serde::{Deserialize, Serialize};

/// Sizes of Hadamard transform that there are kernels for.
pub const ROTATION_SIZES: [usize; 4] = [16, 32, 64, 128];

/// Elements in a block that shares a scale, along the contraction axis (OCP MX v1.0 section 5.2).
pub const BLOCK: usize = 32;

/// Steps that delayed scaling may remember: one largest magnitude each, for every operand of every linear.
pub const LONGEST_HISTORY: usize = 65_536;

/// An enumeration whose variants are words of a file: serde and [`word`](Format::word) agree, because each word is typed once.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As files write it.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

pub(crate) use words;

words! {
    /// Element format of an operand.
    Format {
        /// 4-bit float, 2 exponent bits and 1 mantissa bit (OCP MX v1.0 section 5.3.3): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
        E2m1 = "e2m1",
        /// 8-bit float, OCP FP8 E4M3 (no infinity, largest 448).
        E4m3 = "e4m3",
        /// 8-bit float, OCP FP8 E5M2 (largest finite 57344).
        E5m2 = "e5m2",
        /// The upper 16 bits of an IEEE binary32.
        Bf16 = "bf16",
        /// IEEE binary32, left as it is.
        F32 = "f32",
    }
}
words! {
    /// Which elements share one scale.
    Block {
        /// 32 consecutive elements along the contraction axis.
        Row32 = "1x32",
        /// A square of 32 rows by 32 elements of the contraction axis: the same codes serve both orientations of a weight.
        Tile32 = "32x32",
        /// The whole operand (FP8), or no scale at all (BF16, F32).
        Tensor = "tensor",
    }
}
words! {
    /// How the shared scale follows from the elements.
    ScaleRule {
        /// E8M0, exponent of the largest magnitude minus the format's largest exponent (OCP MX v1.0 section 6.3); values above the largest saturate.
        Floor = "floor",
        /// E8M0, as `Floor` after rounding the largest magnitude to one mantissa bit; goes up from mantissa 1.75 (the public ROCm kernel's rule).
        Even = "even",
        /// E8M0, the smallest power of two at which nothing saturates.
        Ceil = "ceil",
        /// F32 per tensor: largest finite value of the format over this operand's own largest magnitude.
        Current = "current",
        /// F32 per tensor: as `Current`, with the largest magnitude of earlier steps ([`DelayedScaling`]).
        Delayed = "delayed",
        /// No scale (BF16, F32).
        None = "none",
    }
}
words! {
    /// How a scaled value becomes a code.
    Rounding {
        /// To nearest, ties to even.
        NearestEven = "nearest-even",
        /// Up or down with probability proportional to the distance; unbiased inside the range.
        Stochastic = "stochastic",
        /// As `Stochastic` after a factor 3/4 that keeps every element inside the range; the product is corrected by 4/3
        /// for each such operand, 16/9 for two (arXiv 2502.20586, algorithm 1).
        StochasticPrescaled = "stochastic-prescaled",
    }
}
words! {
    /// Sign flips before the Hadamard transform.
    Signs {
        /// No flips: the deterministic transform.
        None = "none",
        /// Drawn once for each layer, linear and pass of a run.
        Fixed = "fixed",
        /// Drawn again at every step.
        PerStep = "per-step",
    }
}
words! {
    /// Whether random words differ from step to step.
    StochasticSeed {
        PerStep = "per-step",
        /// The same words for every operand of every linear at every step: a control for a seeding bug.
        Constant = "constant",
    }
}
words! {
    /// Which remembered magnitude sets a delayed scale.
    DelayedChoice {
        /// That of the previous step.
        MostRecent = "most-recent",
        /// The largest of the history.
        Max = "max",
    }
}

/// Blockwise Hadamard rotation along the contraction axis, before the block maximum is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// One of [`ROTATION_SIZES`].
    pub size: usize,
    /// Both operands of a GEMM see the same ones, so that the product is unchanged.
    pub signs: Signs,
}

/// Everything that happens to one operand of one GEMM pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperandSpec {
    pub format: Format,
    pub block: Block,
    pub scale: ScaleRule,
    pub rounding: Rounding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
}

/// How a delayed scale follows from earlier steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayedScaling {
    /// Largest magnitudes kept, one a step.
    pub history: usize,
    pub choose: DelayedChoice,
}

/// The three GEMM passes of a linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Y = X Wᵀ.
    Fprop,
    /// ∇X = ∇Y W.
    Dgrad,
    /// ∇W = ∇Yᵀ X.
    Wgrad,
}

/// The tensors of a linear layer that are operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// X: `[tokens, in]`.
    Input,
    /// W: `[out, in]`.
    Weight,
    /// ∇Y: `[tokens, out]`.
    OutputGradient,
}

impl Pass {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fprop => "fprop",
            Self::Dgrad => "dgrad",
            Self::Wgrad => "wgrad",
        }
    }

    /// (m, n, k) of the product `[m, k]` by `[n, k]` in a linear.
    pub fn shape(self, tokens: usize, out: usize, inputs: usize) -> (usize, usize, usize) {
        match self {
            Self::Fprop => (tokens, out, inputs),
            Self::Dgrad => (tokens, inputs, out),
            Self::Wgrad => (out, inputs, tokens),
        }
    }
}

impl Operand {
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Weight => "weight",
            Self::OutputGradient => "output_gradient",
        }
    }
}

/// The three GEMM passes of a linear layer, with what each says of its operands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passes<T = OperandSpec> {
    /// Y = X Wᵀ.
    pub fprop: Fprop<T>,
    /// ∇X = ∇Y W.
    pub dgrad: Dgrad<T>,
    /// ∇W = ∇Yᵀ X.
    pub wgrad: Wgrad<T>,
}

/// Operands of Y = X Wᵀ, contracted over the input features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fprop<T> {
    pub input: T,
    pub weight: T,
}

/// Operands of ∇X = ∇Y W, contracted over the output features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dgrad<T> {
    /// ∇Y.
    pub output_gradient: T,
    pub weight: T,
}

/// Operands of ∇W = ∇Yᵀ X, contracted over the tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wgrad<T> {
    /// ∇Y.
    pub output_gradient: T,
    pub input: T,
}

/// Why an operand's specification is refused. Messages begin with the key below the operand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("rotation.size: {size} is not supported; use 16, 32, 64 or 128")]
    RotationSize { size: usize },
    #[error(
        "rotation.size: a Hadamard rotation of size {size} does not divide the contraction axis of {k} elements; use a smaller size or another model"
    )]
    RotationAxis { size: usize, k: usize },
    #[error("block: a block of 32 is longer than the contraction axis of {k} elements")]
    BlockAxis { k: usize },
    /// Words that do not go together; `key` is the one to change.
    #[error("{key}: format {} with block {}, scale {} and rounding {} is not defined: {why}", .spec.format.word(), .spec.block.word(), .spec.scale.word(), .spec.rounding.word())]
    Combination { key: &'static str, spec: OperandSpec, why: &'static str },
}

impl OperandSpec {
    /// Whether the specification is defined for a contraction axis of `k` elements (0: any).
    pub fn validate(&self, k: usize) -> Result<(), SpecError> {
        let Self { format, block, scale, .. } = *self;
        let refuse = |key, why| Err(SpecError::Combination { key, spec: *self, why });
        let shared = matches!(scale, ScaleRule::Floor | ScaleRule::Even | ScaleRule::Ceil);
        let tensor = matches!(scale, ScaleRule::Current | ScaleRule::Delayed);
        match (format, block) {
            (Format::Bf16 | Format::F32, Block::Tensor) if scale == ScaleRule::None => {}
            (Format::Bf16 | Format::F32, Block::Tensor) => return refuse("scale", "bf16 and f32 take block tensor and scale none"),
            (Format::Bf16 | Format::F32, _) => return refuse("block", "bf16 and f32 take block tensor and scale none"),
            (Format::E2m1, Block::Tensor) => return refuse("block", "e2m1 takes block 1x32 or 32x32"),
            (_, Block::Tensor) if !tensor => return refuse("scale", "block tensor takes scale current or delayed"),
            (_, Block::Row32 | Block::Tile32) if !shared => return refuse("scale", "blocks of 32 take scale floor, even or ceil"),
            _ => {}
        }
        if format == Format::F32 && self.rounding != Rounding::NearestEven {
            return refuse("rounding", "f32 is not rounded");
        }
        if self.rounding == Rounding::StochasticPrescaled && !shared {
            return refuse("rounding", "stochastic-prescaled needs a shared exponent (blocks of 32)");
        }
        if k > 0 && block != Block::Tensor && k < BLOCK {
            return Err(SpecError::BlockAxis { k });
        }
        if let Some(Rotation { size, .. }) = self.rotation {
            if !ROTATION_SIZES.contains(&size) {
                return Err(SpecError::RotationSize { size });
            }
            if !k.is_multiple_of(size) {
                return Err(SpecError::RotationAxis { size, k });
            }
        }
        Ok(())
    }
}

/// Whether an operand is its BF16 source itself, with nothing to prepare.
pub fn is_source(spec: &OperandSpec) -> bool {
    spec.format == Format::Bf16 && spec.rounding == Rounding::NearestEven && spec.rotation.is_none()
}

/// Whether an operand has a packed form: E2M1 in blocks.
pub fn is_packed(spec: &OperandSpec) -> bool {
    spec.format == Format::E2m1 && spec.block != Block::Tensor
}

/// What two operands of one product must have in common.
pub fn same_rotation(a: &OperandSpec, b: &OperandSpec) -> Result<(), &'static str> {
    if a.rotation == b.rotation {
        return Ok(());
    }
    Err("both operands need the same rotation, or the product is no longer the linear layer's")
}

/// Whether an exclusive-or with a weight's last bits stays within the last two.
pub fn check_perturbation(perturbation: u32) -> Result<(), String> {
    if perturbation <= 3 { Ok(()) } else { Err(format!("perturbation: {perturbation} is above 3, the last two bits of a weight")) }
}

impl<T> Passes<T> {
    /// (pass, operand, value) of all six operands, in a fixed order.
    pub fn all(&self) -> [(&'static str, &'static str, &T); 6] {
        [
            ("fprop", "input", &self.fprop.input),
            ("fprop", "weight", &self.fprop.weight),
            ("dgrad", "output_gradient", &self.dgrad.output_gradient),
            ("dgrad", "weight", &self.dgrad.weight),
            ("wgrad", "output_gradient", &self.wgrad.output_gradient),
            ("wgrad", "input", &self.wgrad.input),
        ]
    }

    /// Every operand replaced by what `f` makes of (pass, operand, value).
    pub fn try_map<U, E>(&self, mut f: impl FnMut(&'static str, &'static str, &T) -> Result<U, E>) -> Result<Passes<U>, E> {
        Ok(Passes {
            fprop: Fprop { input: f("fprop", "input", &self.fprop.input)?, weight: f("fprop", "weight", &self.fprop.weight)? },
            dgrad: Dgrad {
                output_gradient: f("dgrad", "output_gradient", &self.dgrad.output_gradient)?,
                weight: f("dgrad", "weight", &self.dgrad.weight)?,
            },
            wgrad: Wgrad {
                output_gradient: f("wgrad", "output_gradient", &self.wgrad.output_gradient)?,
                input: f("wgrad", "input", &self.wgrad.input)?,
            },
        })
    }
}

impl Passes {
    /// How an operand is prepared. A pass that lacks `operand` answers for its other one.
    pub fn spec(&self, pass: Pass, operand: Operand) -> OperandSpec {
        match (pass, operand) {
            (Pass::Fprop, Operand::Weight) => self.fprop.weight,
            (Pass::Fprop, _) => self.fprop.input,
            (Pass::Dgrad, Operand::Weight) => self.dgrad.weight,
            (Pass::Dgrad, _) => self.dgrad.output_gradient,
            (Pass::Wgrad, Operand::OutputGradient) => self.wgrad.output_gradient,
            (Pass::Wgrad, _) => self.wgrad.input,
        }
    }

    /// What is wrong with the passes of a recipe, whatever the model. Messages begin with `passes` or `delayed_scaling`.
    pub fn check(&self, delayed_scaling: Option<DelayedScaling>) -> Result<(), String> {
        for (pass, operand, spec) in self.all() {
            spec.validate(0).map_err(|problem| format!("passes.{pass}.{operand}.{problem}"))?;
        }
        let Self { fprop, dgrad, wgrad } = self;
        let pairs = [
            ("fprop", &fprop.input, &fprop.weight),
            ("dgrad", &dgrad.output_gradient, &dgrad.weight),
            ("wgrad", &wgrad.output_gradient, &wgrad.input),
        ];
        for (pass, a, b) in pairs {
            same_rotation(a, b).map_err(|problem| format!("passes.{pass}: {problem}"))?;
        }
        match (delayed_scaling, self.all().iter().any(|(_, _, spec)| spec.scale == ScaleRule::Delayed)) {
            (None, true) => Err("delayed_scaling: missing, although an operand has `scale: delayed`; \
                                 for example {history: 4, choose: most-recent}"
                .into()),
            (Some(_), false) => Err("delayed_scaling: no operand has `scale: delayed`; remove it".into()),
            (Some(scaling), true) if !(1..=LONGEST_HISTORY).contains(&scaling.history) => {
                Err(format!("delayed_scaling.history: must be 1 to {LONGEST_HISTORY} steps, is {}", scaling.history))
            }
            _ => Ok(()),
        }
    }

    /// Whether every operand fits the axis that a linear contracts it over: `tokens` are those of a micro-batch.
    pub fn check_axes(&self, (linear, outputs, inputs): (&str, usize, usize), tokens: usize) -> Result<(), String> {
        for (pass, operand, spec) in self.all() {
            let axis = match pass {
                "fprop" => inputs,
                "dgrad" => outputs,
                _ => tokens,
            };
            spec.validate(axis).map_err(|problem| format!("passes.{pass}.{operand}.{problem} (linear {linear})"))?;
        }
        Ok(())
    }
}
