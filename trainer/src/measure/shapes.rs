//! What kernels are timed on, on every device: the products of a model's linears, and the ways in which their operands are prepared.
//!
//! Shapes follow from the model and the tokens of a step; none is typed in.

use contract::measurements::KernelTime;
use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use contract::run_file::{ModelSection, RunFile};

use crate::streams::Pass;

/// One GEMM pass of one linear: `[m, k] [n, k]ᵀ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Product {
    pub(super) linear: &'static str,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) pass: Pass,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
}

/// The twelve products of a block: four linears, three passes each, in the order of a step's forward and backward.
pub(super) fn products(model: &ModelSection, tokens: usize) -> Vec<Product> {
    let mut all = Vec::with_capacity(12);
    for (linear, outputs, inputs) in model.linears() {
        for pass in [Pass::Fprop, Pass::Dgrad, Pass::Wgrad] {
            let (m, n, k) = match pass {
                Pass::Fprop => (tokens, outputs, inputs),
                Pass::Dgrad => (tokens, inputs, outputs),
                Pass::Wgrad => (outputs, inputs, tokens),
            };
            all.push(Product { linear, outputs, inputs, pass, m, n, k });
        }
    }
    all
}

impl Product {
    /// A line of this product's time; none of an interpreter.
    pub(super) fn line(&self, variant: &'static str, repeat: u64, seconds: Option<f64>) -> KernelTime {
        let Self { linear, pass, m, n, k, .. } = *self;
        let (m, n, k) = (m as u64, n as u64, k as u64);
        let (variant, linear, pass) = (variant.into(), linear.into(), pass.name().into());
        KernelTime { variant, linear, pass, m, n, k, repeat, seconds, interpreted: seconds.is_none() }
    }
}

/// Specs of the two operands of a GEMM; the gradient is the first one of dgrad and wgrad.
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) forward: OperandSpec,
    pub(super) gradient: OperandSpec,
}

impl Variant {
    /// The specification of a pass's first operand.
    pub(super) fn first(&self, pass: Pass) -> &OperandSpec {
        if pass == Pass::Fprop { &self.forward } else { &self.gradient }
    }
}

/// MXFP4 in blocks of 32 to nearest, rotated by a deterministic Hadamard matrix of this size.
pub(super) fn mxfp4(size: Option<usize>, rounding: Rounding) -> OperandSpec {
    OperandSpec {
        format: Format::E2m1,
        block: Block::Row32,
        scale: ScaleRule::Floor,
        rounding,
        rotation: size.map(|size| Rotation { size, signs: Signs::None }),
    }
}

/// One scale for the whole operand, or none.
pub(super) const fn plain(format: Format, scale: ScaleRule) -> OperandSpec {
    OperandSpec { format, block: Block::Tensor, scale, rounding: Rounding::NearestEven, rotation: None }
}

/// What takes turns in a round.
pub(super) fn variants() -> [Variant; 5] {
    let both = |name, spec| Variant { name, forward: spec, gradient: spec };
    let nearest = |size| mxfp4(size, Rounding::NearestEven);
    [
        both("mxfp4-h0", nearest(None)),
        both("mxfp4-h16", nearest(Some(16))),
        both("mxfp4-h32", nearest(Some(32))),
        Variant { name: "fp8", forward: plain(Format::E4m3, ScaleRule::Delayed), gradient: plain(Format::E5m2, ScaleRule::Delayed) },
        both("bf16", plain(Format::Bf16, ScaleRule::None)),
    ]
}

/// Largest operands of a run: elements of X, W, ∇Y and of any result.
pub(super) struct Largest {
    pub(super) x: usize,
    pub(super) w: usize,
    pub(super) dy: usize,
    pub(super) result: usize,
}

impl Largest {
    pub(super) fn of(run: &RunFile) -> Self {
        let tokens = run.tokens_per_step();
        let linears = run.model.linears();
        let largest = |size: fn(&(&str, usize, usize)) -> usize| linears.iter().map(size).max().unwrap_or_default();
        let (x, dy, w) = (tokens * largest(|l| l.2), tokens * largest(|l| l.1), largest(|l| l.1 * l.2));
        Self { x, w, dy, result: x.max(dy).max(w) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The paper's model at its micro-batch of two sequences: the public tuning table for it lists 16,384 tokens and these weights.
    #[test]
    fn the_twelve_products_of_llama_3_1_8b_follow_from_its_shape() {
        let model: ModelSection = serde_yaml::from_str(
            "{vocab_size: 128256, hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, \
             intermediate_size: 14336, sequence_length: 8192, rope_theta: 500000.0, rms_norm_eps: 1.0e-5, initializer_range: 0.02, \
             scale_residual_init: true}",
        )
        .unwrap();
        let all = products(&model, 2 * model.sequence_length);
        let sizes: Vec<[usize; 3]> = all.iter().map(|product| [product.m, product.n, product.k]).collect();
        let t = 16_384;
        let expected = [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336)]
            .into_iter()
            .flat_map(|(out, input)| [[t, out, input], [t, input, out], [out, input, t]]);
        assert_eq!(sizes, expected.collect::<Vec<_>>());
        assert_eq!(all[11].linear, "down");
        assert_eq!(all[11].pass, Pass::Wgrad);
    }
}
