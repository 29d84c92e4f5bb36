//! Which passes multiply packed MXFP4, and how a run says so. Decided once for a run, from its recipe, its shapes and what the device has.

use std::fmt;

use crate::defect::Defect;
use crate::recipe::{BLOCK, Operand, Pass, Passes, is_packed};
use crate::run_file::{Gemm, RunFile};

/// The passes with their two operands.
pub const PASSES: [(Pass, Operand, Operand); 3] = [
    (Pass::Fprop, Operand::Input, Operand::Weight),
    (Pass::Dgrad, Operand::OutputGradient, Operand::Weight),
    (Pass::Wgrad, Operand::OutputGradient, Operand::Input),
];

/// Rows of both operands come in these.
const ROWS: usize = 16;

/// Bytes of a packed operand of so many elements: half a byte of code, and a scale for each block.
pub fn packed_bytes(elements: usize) -> usize {
    elements / 2 + elements.div_ceil(BLOCK)
}

/// Why `[m, k]` by `[n, k]` is not multiplied natively, if it is not.
pub fn fits(m: usize, n: usize, k: usize) -> Result<(), String> {
    let shape = format!("{m} x {n} over {k}");
    if m == 0 || n == 0 || k == 0 || !m.is_multiple_of(ROWS) || !n.is_multiple_of(ROWS) || !k.is_multiple_of(BLOCK) {
        return Err(format!(
            "a product of {shape} is not multiplied natively: sides must be multiples of {ROWS}, the contraction axis of {BLOCK}"
        ));
    }
    // Buffer offsets have 31 bits here: those of an operand, and those of 256 rows of an F32 result.
    if m.max(n) * k / 2 >= 1 << 31 || m.max(n) >= 1 << 21 {
        return Err(format!(
            "a product of {shape} is not multiplied natively: an operand's codes must take less than 2 GiB, and it has fewer than 2^21 rows"
        ));
    }
    Ok(())
}

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
pub struct Native([Way; 3]);

impl Native {
    /// A pass is native if the device has the units, both its operands are MXFP4, every linear's shape fits, and no defect is beyond its
    /// kernels. Otherwise it is emulated where an operand is MXFP4: with the same operands, bit for bit.
    pub fn new(run: &RunFile, has_mxfp4: bool) -> Self {
        let passes: &Passes = &run.recipe.passes;
        let has_kernels = has_mxfp4 && run.recipe.defect.is_none_or(Defect::is_packed);
        Self(PASSES.map(|(pass, first, second)| {
            let specs = [passes.spec(pass, first), passes.spec(pass, second)];
            if !specs.iter().any(is_packed) {
                return Way::Other;
            }
            // The last batch of an evaluation may be any number of whole sequences.
            let tokens = [run.tokens_per_step(), run.model.sequence_length];
            let fit = tokens.into_iter().take(if pass == Pass::Wgrad { 1 } else { 2 });
            let mut shapes = fit.flat_map(|tokens| run.model.linears().map(|(_, out, inputs)| pass.shape(tokens, out, inputs)));
            let is_native = has_kernels && specs.iter().all(is_packed) && shapes.all(|(m, n, k)| fits(m, n, k).is_ok());
            if is_native { Way::Native } else { Way::Emulated }
        }))
    }

    /// Whether a pass is native.
    pub fn has(self, pass: Pass) -> bool {
        PASSES.iter().zip(self.0).any(|(&(of, ..), way)| of == pass && way == Way::Native)
    }
}

impl RunFile {
    /// The same with its packed products multiplied by those kernels; one without such products stays what it is, and keeps its key.
    pub fn multiplied_by(self, gemm: Gemm) -> Self {
        let native = Native::new(&self.micro_batch(), true);
        let has_packed = PASSES.iter().any(|&(pass, ..)| native.has(pass));
        if has_packed { Self { gemm, ..self } } else { self }
    }
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

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn what_is_refused_is_said() {
        assert_eq!(fits(16, 32, 64), Ok(()));
        let said = fits(24, 32, 64).unwrap_err();
        assert_eq!(
            said,
            "a product of 24 x 32 over 64 is not multiplied natively: sides must be multiples of 16, the contraction axis of 32"
        );
        assert!(fits(16, 16, 48).is_err() && fits(16, 8, 32).is_err() && fits(0, 16, 32).is_err());
        assert!(fits(1 << 20, 16, 1 << 12).unwrap_err().contains("less than 2 GiB"));
        assert!(fits((1 << 21) - 16, 16, 32).is_ok() && fits(16, 1 << 21, 32).is_err());
    }
}
