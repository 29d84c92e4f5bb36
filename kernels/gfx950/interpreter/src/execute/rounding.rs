//! Sums that are rounded once where the hardware's would be, whatever lies between their terms.

/// a + b in F64, made odd where it is inexact: rounding it to F32 then gives what rounding the exact sum would.
pub(super) fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let (above, below) = (sum - a, sum - (sum - a));
    let error = (a - below) + (b - above);
    let inexact = error != 0.0 && sum.is_finite();
    if !inexact || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// a + b to F32 with one rounding.
pub(super) fn add_once(a: f64, b: f64) -> f32 {
    odd_sum(a, b) as f32
}

/// acc + dot * 2^exponent to F32 with one rounding, for any dot below 2^75 in magnitude and a finite acc.
pub(super) fn add_wide(acc: f32, dot: i128, exponent: i64) -> f32 {
    if dot == 0 {
        return acc + 0.0;
    }
    let bits = acc.to_bits();
    let (biased, fraction) = (i64::from(bits >> 23 & 0xFF), i128::from(bits & 0x7F_FFFF));
    let magnitude = if biased == 0 { fraction } else { fraction | 1 << 23 };
    let (mantissa, own) = (if acc.is_sign_negative() { -magnitude } else { magnitude }, biased.max(1) - 150);
    // Aligned as far as 127 bits allow; what is beyond is too small to do more than break a tie, for which its lowest bit stands.
    const ROOM: (i64, i64) = (100, 50);
    let gap = own - exponent;
    let (sum, unit) = match gap {
        _ if gap > ROOM.0 => ((mantissa << ROOM.0) + shifted(dot, gap - ROOM.0), own - ROOM.0),
        0.. => ((mantissa << gap) + dot, exponent),
        _ if gap >= -ROOM.1 => (mantissa + (dot << -gap), own),
        _ => (shifted(mantissa, -gap - ROOM.1) + (dot << ROOM.1), exponent - ROOM.1),
    };
    let width = i64::from(128 - sum.unsigned_abs().leading_zeros());
    let spare = (width - 53).max(0);
    // 53 bits made odd where some were dropped: rounding them to F32 gives what rounding all would.
    (shifted(sum, spare) as f64 * f64::from_bits(((1023 + unit + spare) as u64) << 52)) as f32
}

/// value / 2^by, made odd where it is inexact.
fn shifted(value: i128, by: i64) -> i128 {
    if by >= 127 {
        return value.signum();
    }
    let kept = value.unsigned_abs() >> by;
    let lost = value.unsigned_abs() & ((1 << by) - 1) != 0;
    value.signum() * (kept as i128 | i128::from(lost))
}

#[cfg(test)]
mod tests {
    use super::{add_once, add_wide};

    /// Against F64 sums that are exact, and against ties that only the last bit of a long sum decides.
    #[test]
    fn wide_sums_are_rounded_once() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for _ in 0..20_000 {
            let dot = i128::from(next()) - (1 << 30);
            let (acc, exponent) = (next() as f32 - (1 << 30) as f32, next() as i64 % 16 - 8);
            let expected = (f64::from(acc) + dot as f64 * 2f64.powi(exponent as i32)) as f32;
            assert_eq!(add_wide(acc, dot, exponent), expected, "{acc} {dot} {exponent}");
            let once = add_once(f64::from(acc), dot as f64 * 2f64.powi(8 * exponent as i32));
            assert_eq!(add_wide(acc, dot, 8 * exponent), once, "{acc} {dot} {exponent}");
        }
        // 2^70 + 2^46 is half way between two F32 values (2^70 has an ulp of 2^47) and goes to the even one; one unit more goes up.
        let tie = (1i128 << 70) + (1 << 46);
        assert_eq!(add_wide(0.0, tie, 0), 2f32.powi(70));
        assert_eq!(add_wide(0.0, tie + 1, 0), 2f32.powi(70).next_up());
        assert_eq!(add_wide(1.0, tie, 0), 2f32.powi(70).next_up());
        assert_eq!(add_wide(-1.0, tie, 0), 2f32.powi(70));
        // Cancellation leaves what was far below.
        assert_eq!(add_wide(-2f32.powi(70), (1 << 70) + 3, 0), 3.0);
        assert_eq!(add_wide(1.0, 1, -200), 1.0);
        assert_eq!(add_wide(1.0 + f32::EPSILON, -1, -24), 1.0 + f32::EPSILON - 2f32.powi(-24));
        assert_eq!(add_wide(f32::MIN_POSITIVE, 5, 100), 5.0 * 2f32.powi(100));
        assert_eq!(add_wide(f32::MAX, 1 << 60, 100), f32::INFINITY);
        assert_eq!(add_wide(0.0, 3, -150), f32::from_bits(2));
        assert_eq!(add_wide(-0.0, 0, 0).to_bits(), 0);
    }

    #[test]
    fn one_rounding_where_two_would_differ() {
        // 1 + 2^-24 + 2^-60: F64 drops the last term, and the tie that is left would go down.
        let (a, b) = (1.0f64, 2f64.powi(-24) * (1.0 + 2f64.powi(-36)));
        assert_eq!((a + b) as f32, 1.0);
        assert_eq!(add_once(a, b), 1.0f32.next_up());
        assert_eq!(add_once(-a, -b), -(1.0f32.next_up()));
        assert_eq!(add_once(1.0, 2f64.powi(-24)), 1.0);
        assert!(add_once(1.0, f64::NAN).is_nan());
        assert_eq!(add_once(f64::from(f32::MAX), f64::from(f32::MAX)), f32::INFINITY);
        // Against a fused multiply-add, which rounds once by definition.
        for (n, exponent) in (-4608..4608).step_by(13).zip((-60i32..60).cycle()) {
            let c = f32::from_bits(0x3F80_0000 + (n as u32).wrapping_mul(1_234_567) % 0x0080_0000);
            let expected = (n as f32).mul_add(2f32.powi(exponent), c);
            assert_eq!(add_once(f64::from(c), f64::from(n) * 2f64.powi(exponent)), expected, "{n} {exponent} {c}");
        }
    }
}
