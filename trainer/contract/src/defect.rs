//! Defects: mistakes that an implementation of a recipe may make, made on purpose. A recipe with one differs from the same recipe without it in
//! that alone, so its run says what the mistake does to training. Of a product A Bᵀ, A is the left operand: X in Fprop, ∇Y in both others.

use serde::{Deserialize, Serialize};

use crate::recipe::{Block, Format, Operand, OperandSpec, Pass, Passes, Rounding, Signs, words};

words! {
    /// A mistake. H is the Hadamard transform, D the signs, so that a rotated operand is A D H; H and D are their own inverses.
    Defect {
        /// Either operand draws signs of its own: A D D' Bᵀ, whose mean over the signs is 0.
        SignsOfEachOperand = "signs-of-each-operand",
        /// The left operand alone gets signs: A D Bᵀ, whose mean over the signs is 0.
        SignsOfLeftAlone = "signs-of-left-alone",
        /// What forward prepares for backward (W of Dgrad, X of Wgrad) keeps the signs of forward, ∇Y meets those drawn in backward. Fprop is
        /// right; gradients have mean 0 over the signs.
        SignsAgainInBackward = "signs-again-in-backward",
        /// The left operand alone is rotated: A D H Bᵀ.
        LeftAloneRotated = "left-alone-rotated",
        /// Operands are quantised, their values rotated, and what comes out quantised again for the product: outliers meet their block's scale
        /// before they are spread.
        RotatedAfterQuantisation = "rotated-after-quantisation",
        /// Operands along the other axis of a tensor (W of Dgrad, ∇Y and X of Wgrad) are quantised from the values of its codes, not from itself.
        QuantisedTwice = "quantised-twice",
        /// Elements 2i and 2i + 1 of an operand are rounded by one random word: each is unbiased, but their errors go together.
        WordForAPair = "word-for-a-pair",
        /// The noise before truncation has the 16 bits that BF16 drops of an F32, where E2M1 drops 22: nearly all is truncated towards 0.
        NoiseOf16Bits = "noise-of-16-bits",
        /// The sum of the micro-batches' gradients is kept in BF16: it is rounded, to nearest, after each of them.
        SumsInBf16 = "sums-in-bf16",
    }
}

/// What an operand is quantised as before it is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct First {
    pub spec: OperandSpec,
    /// Whether along the axis that the operand is not contracted over.
    pub is_turned: bool,
}

impl Defect {
    /// What is wrong with the defect in a recipe with these passes. The message begins with `defect`.
    pub fn check(self, passes: &Passes) -> Result<(), String> {
        if self == Self::SumsInBf16 {
            return Ok(());
        }
        let all = |holds: fn(&OperandSpec) -> bool| passes.all().into_iter().all(|(_, _, spec)| holds(spec));
        let refuse = |what: &str| Err(format!("defect: {} needs {what} in all six operands; change them, or remove it", self.word()));
        if !all(|spec| spec.format == Format::E2m1 && spec.block == Block::Row32) {
            return refuse("format e2m1 and block 1x32");
        }
        match self {
            Self::SignsOfEachOperand | Self::SignsOfLeftAlone | Self::SignsAgainInBackward => {
                let has_signs = |spec: &OperandSpec| spec.rotation.is_some_and(|rotation| rotation.signs != Signs::None);
                if all(has_signs) { Ok(()) } else { refuse("a rotation with signs fixed or per-step") }
            }
            Self::LeftAloneRotated if !all(|spec| spec.rotation.is_some()) => refuse("a rotation"),
            Self::RotatedAfterQuantisation if !all(|spec| spec.rotation.is_some() && spec.rounding == Rounding::NearestEven) => {
                refuse("a rotation and rounding nearest-even")
            }
            Self::QuantisedTwice if !all(|spec| spec.rotation.is_none() && spec.rounding == Rounding::NearestEven) => {
                refuse("no rotation and rounding nearest-even")
            }
            Self::WordForAPair | Self::NoiseOf16Bits if !all(|spec| spec.rounding != Rounding::NearestEven) => {
                refuse("stochastic rounding")
            }
            _ => Ok(()),
        }
    }

    /// The fewest micro-batches of a step in which it is one.
    pub fn fewest_micro_batches(self) -> usize {
        if self == Self::SumsInBf16 { 2 } else { 1 }
    }

    /// What is wrong with the defect in a run with so many micro-batches a step. The message begins with `defect`.
    pub fn check_micro_batches(self, accumulation: usize) -> Result<(), String> {
        if accumulation < self.fewest_micro_batches() {
            return Err(format!("defect: {} needs several micro-batches a step; raise batch.accumulation, or remove it", self.word()));
        }
        Ok(())
    }

    /// The passes as the mistaken implementation does them.
    #[must_use]
    pub fn passes(self, passes: &Passes) -> Passes {
        let mut done = passes.clone();
        if self == Self::LeftAloneRotated {
            for right in [&mut done.fprop.weight, &mut done.dgrad.weight, &mut done.wgrad.input] {
                right.rotation = None;
            }
        }
        done
    }

    /// What an operand of `passes` is quantised as before it is prepared, if it is quantised twice.
    pub fn first(self, passes: &Passes, pass: Pass, operand: Operand) -> Option<First> {
        match (self, pass, operand) {
            (Self::RotatedAfterQuantisation, ..) => {
                Some(First { spec: OperandSpec { rotation: None, ..passes.spec(pass, operand) }, is_turned: false })
            }
            (Self::QuantisedTwice, Pass::Wgrad, Operand::OutputGradient) => {
                Some(First { spec: passes.dgrad.output_gradient, is_turned: true })
            }
            (Self::QuantisedTwice, Pass::Wgrad, Operand::Input) => Some(First { spec: passes.fprop.input, is_turned: true }),
            (Self::QuantisedTwice, Pass::Dgrad, Operand::Weight) => Some(First { spec: passes.fprop.weight, is_turned: true }),
            _ => None,
        }
    }

    /// Whether any operand is quantised twice.
    pub fn is_twice(self) -> bool {
        matches!(self, Self::RotatedAfterQuantisation | Self::QuantisedTwice)
    }

    /// Whether products of packed operands go with it: their kernels are told signs and rotations, and nothing else.
    pub fn is_packed(self) -> bool {
        matches!(
            self,
            Self::SignsOfEachOperand | Self::SignsOfLeftAlone | Self::SignsAgainInBackward | Self::LeftAloneRotated | Self::SumsInBf16
        )
    }
}

/// Whether a defect, if there is one, is defined for these passes.
pub fn check(defect: Option<Defect>, passes: &Passes) -> Result<(), String> {
    defect.map_or(Ok(()), |defect| defect.check(passes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::recipe::{Dgrad, Fprop, Rotation, ScaleRule, Wgrad};

    fn passes(spec: OperandSpec) -> Passes {
        Passes {
            fprop: Fprop { input: spec, weight: spec },
            dgrad: Dgrad { output_gradient: spec, weight: spec },
            wgrad: Wgrad { output_gradient: spec, input: spec },
        }
    }

    /// Every defect in four recipes: plain, deterministic rotation, signs, stochastic; and none of operands with one that is not MXFP4.
    #[test]
    fn a_defect_needs_what_it_is_a_defect_of() {
        let plain = OperandSpec {
            format: Format::E2m1,
            block: Block::Row32,
            scale: ScaleRule::Floor,
            rounding: Rounding::NearestEven,
            rotation: None,
        };
        let rotated = |signs| OperandSpec { rotation: Some(Rotation { size: 16, signs }), ..plain };
        let stochastic = OperandSpec { rounding: Rounding::Stochastic, ..plain };
        let recipes = [plain, rotated(Signs::None), rotated(Signs::PerStep), stochastic];
        let accepted = |defect: Defect| recipes.map(|spec| u8::from(defect.check(&passes(spec)).is_ok()));
        let found: Vec<_> = Defect::ALL.iter().map(|&defect| (defect.word(), accepted(defect))).collect();
        let expected = [
            ("signs-of-each-operand", [0, 0, 1, 0]),
            ("signs-of-left-alone", [0, 0, 1, 0]),
            ("signs-again-in-backward", [0, 0, 1, 0]),
            ("left-alone-rotated", [0, 1, 1, 0]),
            ("rotated-after-quantisation", [0, 1, 1, 0]),
            ("quantised-twice", [1, 0, 0, 0]),
            ("word-for-a-pair", [0, 0, 0, 1]),
            ("noise-of-16-bits", [0, 0, 0, 1]),
            ("sums-in-bf16", [1, 1, 1, 1]),
        ];
        assert_eq!(found, expected);
        for (defect, spec) in Defect::ALL.iter().flat_map(|&defect| recipes.map(|spec| (defect, spec))) {
            let mut mixed = passes(spec);
            mixed.wgrad.input.format = Format::E4m3;
            assert_eq!(defect.check_micro_batches(1).is_err(), defect == Defect::SumsInBf16);
            assert!(defect.check_micro_batches(2).is_ok());
            if defect == Defect::SumsInBf16 {
                assert!(defect.check(&mixed).is_ok(), "a sum is of whatever products");
                continue;
            }
            assert!(defect.check(&mixed).unwrap_err().contains("needs format e2m1 and block 1x32 in all six operands"));
        }
    }
}
