//! Which passes multiply packed MXFP4, and how a run says so. Decided once for a run, from its recipe, its shapes and what the device has.

use std::fmt;

use contract::run_file::RunFile;
use kernels::gpu::{Description, Gpu, GpuError, Multiplier, fits, is_packed};

use crate::choices::Choices;
use crate::streams::{Operand, Pass};

/// The passes with their two operands.
pub(super) const PASSES: [(Pass, Operand, Operand); 3] = [
    (Pass::Fprop, Operand::Input, Operand::Weight),
    (Pass::Dgrad, Operand::OutputGradient, Operand::Weight),
    (Pass::Wgrad, Operand::OutputGradient, Operand::Input),
];

/// How a pass is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Packed codes and scales, multiplied by units that take them.
    Native,
    /// MXFP4 values held in BF16.
    Emulated,
    /// The pass has an operand that is not MXFP4.
    Other,
}

/// How each pass is executed, in the order of [`PASSES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Native([Way; 3]);

impl Native {
    /// A pass is native if the device has the units, both its operands are MXFP4, and every linear's shape fits. Otherwise it is emulated where an
    /// operand is MXFP4: with the same operands, bit for bit.
    pub(super) fn new(description: &Description, run: &RunFile, choices: &Choices) -> Self {
        Self(PASSES.map(|(pass, first, second)| {
            let specs = [choices.spec(pass, first), choices.spec(pass, second)];
            if !specs.iter().any(is_packed) {
                return Way::Other;
            }
            // The last batch of an evaluation may be any number of whole sequences.
            let tokens = [run.tokens_per_step(), run.model.sequence_length];
            let fit = tokens.into_iter().take(if pass == Pass::Wgrad { 1 } else { 2 });
            let mut shapes = fit.flat_map(|tokens| shapes(choices, pass, tokens));
            let is_native = description.has_mxfp4 && specs.iter().all(is_packed) && shapes.all(|(m, n, k)| fits(m, n, k).is_ok());
            if is_native { Way::Native } else { Way::Emulated }
        }))
    }

    /// Whether a pass is native.
    pub(super) fn has(self, pass: Pass) -> bool {
        PASSES.iter().zip(self.0).any(|(&(of, ..), way)| of == pass && way == Way::Native)
    }

    /// The products of all passes.
    pub(super) fn products(self, gpu: &Gpu, choices: &Choices, tokens: usize) -> Result<Multiplier, GpuError> {
        let native = PASSES.iter().filter(|(pass, ..)| self.has(*pass));
        let shapes: Vec<_> = native.flat_map(|&(pass, ..)| shapes(choices, pass, tokens)).collect();
        Multiplier::new(gpu, &shapes)
    }
}

/// (m, n, k) of a pass in every linear.
fn shapes(choices: &Choices, pass: Pass, tokens: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    choices.shapes.iter().map(move |&(_, out, inputs)| match pass {
        Pass::Fprop => (tokens, out, inputs),
        Pass::Dgrad => (tokens, inputs, out),
        Pass::Wgrad => (out, inputs, tokens),
    })
}

/// `native`, `emulated`, `fprop native, wgrad emulated`; nothing without MXFP4.
impl fmt::Display for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |way: Way| if way == Way::Native { "native" } else { "emulated" };
        let ways = || PASSES.iter().zip(self.0).filter(|(_, way)| *way != Way::Other);
        let mut different = ways().map(|(_, way)| way);
        match different.next() {
            None => Ok(()),
            Some(first) if different.all(|way| way == first) => f.write_str(words(first)),
            Some(_) => {
                f.write_str(&ways().map(|((pass, ..), way)| format!("{} {}", pass.name(), words(way))).collect::<Vec<_>>().join(", "))
            }
        }
    }
}
