//! Operand preparation with the bits of `quantise::prepare_reference`, faster.
//!
//! `columns` reads and rotates, `blocks` and `tensor` scale and round, `element` rounds, `random` draws. What the result must
//! be is defined in `crate::quantise`, not here.

mod blocks;
mod columns;
mod element;
mod random;
mod tensor;

use std::sync::atomic::{AtomicU32, Ordering};

use super::lanes::WIDTH;
use super::{Cpu, dispatch};
use crate::format::MiniFloat;
use crate::operand::{Block, Format, OperandSpec, Rounding, ScaleRule, Signs};
use crate::quantise::{
    BLOCK, Float, Mxfp4, PRESCALE_CORRECTION, PrepareError, Prepared, PreparedStats, Randomness, Source, check, mini_float, tensor_scale,
};
use blocks::{Blocks, Rounds, ScaleBits};
use columns::Reading;

/// Rows a task: whole 32x32 tiles.
const TASK_ROWS: usize = 64;

impl Cpu {
    /// Prepares one operand of a GEMM: the same bits as [`crate::quantise::prepare_reference`], on every instruction set and number of
    /// threads (a NaN's sign and payload excepted).
    ///
    /// # Errors
    /// As there.
    pub fn prepare(
        &self,
        source: Source<'_>,
        spec: &OperandSpec,
        randomness: Randomness<'_>,
        delayed_amax: Option<f32>,
    ) -> Result<(Prepared, PreparedStats), PrepareError> {
        check(&source, spec, &randomness)?;
        let rotation = spec.rotation.filter(|_| source.k > 0);
        let reading = Reading {
            source,
            as_bf16: spec.format != Format::F32,
            rotation: rotation.map_or(0, |r| r.size),
            signs: rotation.filter(|r| r.signs != Signs::None).and(randomness.signs),
        };
        let rounds = match (spec.rounding, randomness.rounding) {
            (Rounding::Stochastic, Some(stream)) => Rounds::Stochastic(stream),
            (Rounding::StochasticPrescaled, Some(stream)) => Rounds::Prescaled(stream),
            _ => Rounds::Nearest,
        };
        let largest = AtomicU32::new(0);
        let prepared = match (mini_float(spec.format), spec.block) {
            (Some(format), Block::Row32 | Block::Tile32) => {
                let tiles = spec.block == Block::Tile32;
                let b = Blocks { reading, scale: scale_bits(spec.scale, &format), rounds, tiles };
                if spec.format == Format::E2m1 { self.mxfp4(&b, &largest) } else { self.block_float(&b, spec.format, &largest) }
            }
            (format, _) => {
                let mut values = self.gathered(&reading, &largest);
                let amax = f32::from_bits(largest.load(Ordering::Relaxed));
                let mut inverse = 1.0;
                if let Some(format) = format {
                    let amax = if spec.scale == ScaleRule::Delayed { delayed_amax.unwrap_or(amax) } else { amax };
                    let (scale, reciprocal) = tensor_scale(amax, &format);
                    inverse = reciprocal;
                    self.round_tensor(&mut values, source.k, scale, spec.format, rounds);
                } else if spec.format == Format::Bf16 && (reading.rotation > 0 || rounds.stream().is_some()) {
                    self.round_tensor(&mut values, source.k, 1.0, spec.format, rounds);
                }
                Prepared::Float(Float { rows: source.rows, k: source.k, values, scale: inverse * correction(rounds) })
            }
        };
        Ok((prepared, PreparedStats { amax: f32::from_bits(largest.into_inner()) }))
    }

    fn mxfp4(&self, b: &Blocks<'_>, largest: &AtomicU32) -> Prepared {
        let Source { rows, k, .. } = b.reading.source;
        let blocks = k.div_ceil(BLOCK);
        let (mut codes, mut scales) = (vec![0; rows * blocks * 16], vec![0; rows * blocks]);
        if blocks > 0 {
            let tasks = codes.chunks_mut(TASK_ROWS * blocks * 16).zip(scales.chunks_mut(TASK_ROWS * blocks)).enumerate();
            self.each(tasks, |(task, (codes, scales))| {
                let found = dispatch!(self, |l| {
                    let (step, mut found) = (if b.tiles { blocks::TILE_GROUPS * WIDTH } else { WIDTH }, 0);
                    let groups = codes.chunks_mut(step * blocks * 16).zip(scales.chunks_mut(step * blocks));
                    for (group, (codes, scales)) in groups.enumerate() {
                        found = found.max(blocks::e2m1(l, b, task * TASK_ROWS + group * step, codes, scales));
                    }
                    found
                });
                largest.fetch_max(found, Ordering::Relaxed);
            });
        }
        Prepared::Mxfp4(Mxfp4 { rows, k, blocks, codes, scales, multiplier: correction(b.rounds) })
    }

    fn block_float(&self, b: &Blocks<'_>, format: Format, largest: &AtomicU32) -> Prepared {
        let Source { rows, k, .. } = b.reading.source;
        let mut values = vec![0.0; rows * k];
        let step = if b.tiles { blocks::TILE_GROUPS * WIDTH } else { WIDTH };
        self.each(values.chunks_mut((step * k).max(1)).enumerate(), |(task, values)| {
            let found = dispatch!(self, |l| if format == Format::E4m3 {
                blocks::float::<_, 20>(l, b, element::E4M3, task * step, values)
            } else {
                blocks::float::<_, 21>(l, b, element::E5M2, task * step, values)
            });
            largest.fetch_max(found, Ordering::Relaxed);
        });
        Prepared::Float(Float { rows, k, values, scale: correction(b.rounds) })
    }

    /// The source, BF16 and rotated, as `[rows, k]`.
    fn gathered(&self, reading: &Reading<'_>, largest: &AtomicU32) -> Vec<f32> {
        let Source { rows, k, .. } = reading.source;
        let mut values = vec![0.0; rows * k];
        self.each(values.chunks_mut((TASK_ROWS * k).max(1)).enumerate(), |(task, values)| {
            let found = dispatch!(self, |l| tensor::gather(l, reading, task * TASK_ROWS, values));
            largest.fetch_max(found, Ordering::Relaxed);
        });
        values
    }

    fn round_tensor(&self, values: &mut [f32], k: usize, scale: f32, format: Format, rounds: Rounds) {
        let size = (TASK_ROWS * k).max(1);
        self.each(values.chunks_mut(size).enumerate(), |(task, values)| {
            let first = (task * size) as u64;
            dispatch!(self, |l| match format {
                Format::E4m3 => tensor::round_all::<_, 20>(l, values, first, scale, element::E4M3, rounds),
                Format::E5m2 => tensor::round_all::<_, 21>(l, values, first, scale, element::E5M2, rounds),
                _ => tensor::round_all::<_, 16>(l, values, first, scale, element::BF16, rounds),
            });
        });
    }
}

/// What the product of a prescaled operand is multiplied by.
fn correction(rounds: Rounds) -> f32 {
    if let Rounds::Prescaled(_) = rounds { PRESCALE_CORRECTION } else { 1.0 }
}

/// `format::e8m0::scale_byte` as one addition and one shift: see [`ScaleBits`].
fn scale_bits(rule: ScaleRule, format: &MiniFloat) -> ScaleBits {
    const MANTISSA: u32 = 0x007F_FFFF;
    let bump = match rule {
        ScaleRule::Even => 1 << (format.dropped_bits() - 1),
        ScaleRule::Ceil => MANTISSA - (format.largest.to_bits() & MANTISSA),
        _ => 0,
    };
    ScaleBits { bump, largest_exponent: format.largest_exponent }
}
