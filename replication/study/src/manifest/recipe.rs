//! Recipes: for each GEMM pass and each of its operands, format, block, scale rule, rounding and rotation.
//!
//! The words are kernels/src/operand.rs's; this crate does not link it, so they are checked here again, by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One file of manifests/recipes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// File name without `.yaml`; also the arm's name.
    pub id: String,
    pub title: String,
    /// A few characters for tables and figures.
    pub label: String,
    /// Operands by a name of the file's own.
    pub operands: BTreeMap<String, Operand>,
    /// Which operand each pass uses where.
    pub passes: Passes<String>,
    /// Whether stochastic rounding gets new random words at every step.
    pub stochastic_seed: StochasticSeed,
    /// How operands with scale `delayed` remember.
    #[serde(default)]
    pub delayed_scaling: Option<DelayedScaling>,
    /// Exclusive-or with the last bits of every initial weight (0 to 3): another run of the same arm and seed.
    #[serde(default)]
    pub perturbation: u32,
}

/// The three GEMM passes and their operands.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passes<T> {
    /// Y = X Wᵀ.
    pub fprop: Fprop<T>,
    /// ∇X = ∇Y W.
    pub dgrad: Dgrad<T>,
    /// ∇W = ∇Yᵀ X.
    pub wgrad: Wgrad<T>,
}

/// Operands of the forward pass.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fprop<T> {
    /// X, blocked along its features.
    pub input: T,
    /// W, blocked along its input features.
    pub weight: T,
}

/// Operands of the input-gradient pass.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dgrad<T> {
    /// ∇Y, blocked along its features.
    pub output_gradient: T,
    /// Wᵀ, blocked along W's output features.
    pub weight: T,
}

/// Operands of the weight-gradient pass.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wgrad<T> {
    /// ∇Yᵀ, blocked along tokens.
    pub output_gradient: T,
    /// Xᵀ, blocked along tokens.
    pub input: T,
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

/// Everything that happens to one operand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operand {
    pub format: Format,
    /// Which elements share a scale.
    pub block: Block,
    /// How the scale is chosen.
    pub scale: Scale,
    pub rounding: Rounding,
    /// Rotation along the contraction axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// The word as manifests write it.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

words! {
    Format {
        /// 4-bit element of MXFP4.
        E2m1 = "e2m1",
        /// 8-bit, forward.
        E4m3 = "e4m3",
        /// 8-bit, gradients.
        E5m2 = "e5m2",
        /// Upper half of an F32.
        Bf16 = "bf16",
        /// Not quantised.
        F32 = "f32",
    }
}
words! {
    /// Which elements share a scale.
    Block {
        /// 32 along the contraction axis.
        Row32 = "1x32",
        /// A square of 32.
        Tile32 = "32x32",
        Tensor = "tensor",
    }
}
words! {
    /// How a scale follows from its elements.
    Scale {
        Floor = "floor",
        /// Shared exponent, rounded to nearest at one mantissa bit.
        Even = "even",
        /// Shared exponent, rounded up so that nothing saturates.
        Ceil = "ceil",
        /// Per tensor, from its own largest magnitude.
        Current = "current",
        /// Per tensor, from earlier steps' largest magnitude.
        Delayed = "delayed",
        /// None.
        None = "none",
    }
}
words! {
    /// How a scaled value becomes a code.
    Rounding {
        /// To nearest, ties to even.
        NearestEven = "nearest-even",
        /// Up or down at random, unbiased.
        Stochastic = "stochastic",
        /// Stochastic after 3/4, corrected by 4/3 an operand.
        StochasticPrescaled = "stochastic-prescaled",
    }
}
words! {
    /// Sign flips before the Hadamard transform.
    Signs {
        None = "none",
        Fixed = "fixed",
        /// Drawn at every step.
        PerStep = "per-step",
    }
}
words! {
    /// Whether random words change with the step.
    StochasticSeed {
        /// New words at every step.
        PerStep = "per-step",
        /// The same words for every operand of every linear at every step, from the start.
        Constant = "constant",
    }
}
words! {
    /// Which entry of the history delayed scaling takes.
    Choose {
        /// The previous step's.
        MostRecent = "most-recent",
        Max = "max",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// 16, 32, 64 or 128.
    pub size: u64,
    pub signs: Signs,
}

/// The memory of delayed scaling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayedScaling {
    /// Steps remembered.
    pub history: u64,
    pub choose: Choose,
}

impl Recipe {
    /// Passes with every operand spelled out.
    pub fn resolved(&self) -> Result<Passes<Operand>, String> {
        self.passes.try_map(|pass, operand, name| {
            let known: Vec<&str> = self.operands.keys().map(String::as_str).collect();
            self.operands
                .get(name)
                .cloned()
                .ok_or_else(|| format!("passes.{pass}.{operand}: {}", super::error::unknown("operand", name, &known)))
        })
    }

    /// What is wrong with the recipe by itself, whatever the model.
    pub fn check(&self) -> Result<(), String> {
        let passes = self.resolved()?;
        for (name, operand) in &self.operands {
            operand.check().map_err(|why| format!("operands.{name}: {why}"))?;
            if !self.passes.all().iter().any(|(_, _, used)| *used == name) {
                return Err(format!("operands.{name}: no pass uses it; remove it"));
            }
        }
        for (pass, left, right) in [
            ("fprop", &passes.fprop.input, &passes.fprop.weight),
            ("dgrad", &passes.dgrad.output_gradient, &passes.dgrad.weight),
            ("wgrad", &passes.wgrad.output_gradient, &passes.wgrad.input),
        ] {
            if left.rotation != right.rotation {
                return Err(format!("passes.{pass}: both operands need the same rotation, or the product changes"));
            }
        }
        let delayed = self.operands.values().any(|operand| operand.scale == Scale::Delayed);
        match &self.delayed_scaling {
            None if delayed => {
                Err("delayed_scaling: missing, although an operand has `scale: delayed`; for example {history: 4, choose: most-recent}"
                    .into())
            }
            Some(_) if !delayed => Err("delayed_scaling: no operand has `scale: delayed`; remove it".into()),
            Some(scaling) if scaling.history == 0 => Err("delayed_scaling.history: must be at least 1".into()),
            _ => Ok(()),
        }
    }
}

impl Operand {
    /// What is wrong with the operand by itself.
    pub fn check(&self) -> Result<(), String> {
        let shared = matches!(self.scale, Scale::Floor | Scale::Even | Scale::Ceil);
        let (format, block, scale) = (self.format.word(), self.block.word(), self.scale.word());
        let refuse = |why: &str| Err(format!("format {format} with block {block} and scale {scale} is not defined: {why}"));
        match (self.format, self.block) {
            (Format::Bf16 | Format::F32, Block::Tensor) if self.scale == Scale::None => {}
            (Format::Bf16 | Format::F32, _) => return refuse("bf16 and f32 take block tensor and scale none"),
            (Format::E2m1, Block::Tensor) => return refuse("e2m1 takes block 1x32 or 32x32"),
            (_, Block::Tensor) if !matches!(self.scale, Scale::Current | Scale::Delayed) => {
                return refuse("block tensor takes scale current or delayed");
            }
            (_, Block::Row32 | Block::Tile32) if !shared => return refuse("blocks of 32 take scale floor, even or ceil"),
            _ => {}
        }
        if self.format == Format::F32 && self.rounding != Rounding::NearestEven {
            return refuse("f32 is not rounded");
        }
        if self.rounding == Rounding::StochasticPrescaled && !shared {
            return refuse("stochastic-prescaled needs a shared exponent (blocks of 32)");
        }
        match &self.rotation {
            Some(rotation) if ![16, 32, 64, 128].contains(&rotation.size) => {
                Err(format!("rotation.size: {} is not supported; use 16, 32, 64 or 128", rotation.size))
            }
            _ => Ok(()),
        }
    }

    /// Whether it fits a contraction axis of `k` elements.
    pub fn check_axis(&self, k: u64) -> Result<(), String> {
        if self.block != Block::Tensor && k < 32 {
            return Err(format!("a block of 32 is longer than the contraction axis of {k}"));
        }
        match &self.rotation {
            Some(rotation) if !k.is_multiple_of(rotation.size) => {
                Err(format!("a Hadamard rotation of size {} does not divide the contraction axis of {k}", rotation.size))
            }
            _ => Ok(()),
        }
    }
}
