//! Transcendental functions on lanes: fixed polynomials, the same bits on every instruction set.
//!
//! Not here: functions needed once per token (natural logarithm) or once per run (cosines): those use `libm` in F64.

use super::lanes::{Lanes, ROUND};

/// e^x. Relative error below 2 ulp for x in [-87.33, 88.72]; 0 below (no subnormal results); +infinity never: the argument is
/// capped at 88.72 (result 3.4e38). NaN gives NaN.
///
/// x = n ln2 + r with |r| <= ln2/2; e^r by the Taylor polynomial of degree 7 (remainder below 2^-27 relative), 2^n by exponent bits.
#[inline(always)]
pub(super) fn exp<L: Lanes>(l: L, x: L::F) -> L::F {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 = HIGH + LOW, HIGH with 15 trailing zero bits so that n * HIGH is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const SMALLEST: f32 = -87.33;
    // The constant comes first: with a NaN in x, min and max give x back.
    let capped = l.min(l.splat(88.72), x);
    let capped = l.max(l.splat(SMALLEST), capped);
    let shifted = l.fma(capped, l.splat(LOG2_E), l.splat(ROUND));
    let n = l.sub(shifted, l.splat(ROUND));
    let r = l.fma(n, l.splat(-LN2_HIGH), capped);
    let r = l.fma(n, l.splat(-LN2_LOW), r);
    let mut p = l.splat(1.0 / 5040.0);
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = l.fma(p, r, l.splat(coefficient));
    }
    // Below the range: zero.
    l.zero_below(x, SMALLEST, l.times_power(p, shifted, n))
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(super) fn sigmoid<L: Lanes>(l: L, x: L::F) -> L::F {
    let one = l.splat(1.0);
    l.div(one, l.add(one, exp(l, l.sub(l.splat(0.0), x))))
}
