//! How an operand survived its preparation: the numbers of a `quantisation` line.

use contract::metrics::Quantisation;
use contract::recipe::{Format, OperandSpec};
use kernels::quantise::{self, Source};

use crate::streams::{Operand, Pass};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Survival {
    error: quantise::ErrorMetrics,
    blocks: quantise::BlockRatios,
}

/// Compares the values that an operand was prepared to with what was quantised: the source after the BF16 rounding and the rotation.
pub(crate) fn measure(source: &Source<'_>, spec: &OperandSpec, signs: Option<&[f32]>, prepared: &[f32]) -> Survival {
    let unrotated = quantise::rotated(source, &OperandSpec { rotation: None, ..*spec }, None);
    let rotated = spec.rotation.map(|_| quantise::rotated(source, spec, signs));
    Survival {
        error: quantise::error_metrics(rotated.as_ref().unwrap_or(&unrotated), prepared),
        blocks: quantise::block_ratios(&unrotated, rotated.as_deref(), source.k),
    }
}

impl Survival {
    /// With where and when.
    pub(crate) fn record(
        self,
        step: u64,
        layer: usize,
        linear: &'static str,
        pass: Pass,
        operand: Operand,
        format: Format,
    ) -> Quantisation {
        Quantisation {
            step,
            layer: layer as u64,
            linear: linear.into(),
            pass: pass.name().into(),
            operand: operand.name().into(),
            format,
            relative_error: Some(self.error.relative_error),
            bias: Some(self.error.bias),
            magnitude_bias: Some(self.error.magnitude_bias),
            cosine: Some(self.error.cosine),
            amax_over_rms_before: Some(self.blocks.before),
            amax_over_rms_after: Some(self.blocks.after),
            outlier_amax_over_rms_before: Some(self.blocks.outliers_before),
            outlier_amax_over_rms_after: Some(self.blocks.outliers_after),
        }
    }
}
