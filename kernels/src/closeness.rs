//! How far results of a device in BF16 may lie from the CPU's in F32.
//!
//! BF16 has eight significant bits. Rounding to nearest moves a number by at most half a unit in its last place, which is at most
//! [`UNIT`] = 2^-8 of the number. Three measures, because each is blind to something: [`relative`] for results of several roundings,
//! [`of_one_rounding`] where each element was rounded once, [`shift`] for roundings that all go one way, which lengths do not show.

/// Unit roundoff of BF16.
pub const UNIT: f64 = 1.0 / 256.0;

/// Root mean square of a rounding's relative error, over numbers whose significands m are spread over an octave: an error that is uniform
/// within half a unit in the last place, so UNIT / (m sqrt 3), and 1 / m^2 is 0.541 in the mean. For tensors whose norm is not carried by
/// a few elements, and for sums of several independent roundings; a single rounding has [`of_one_rounding`].
pub const ROUNDING_RMS: f64 = 0.425 * UNIT;

/// What F32 adds, relative to the result: covers sums of a few thousand terms in another order.
pub const F32_SLACK: f64 = 1e-5;

/// ||found - wanted|| / ||wanted||; where all that is wanted is zero, ||found||.
pub fn relative(found: &[f32], wanted: &[f32]) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (&found, &wanted) in found.iter().zip(wanted) {
        difference += (f64::from(found) - f64::from(wanted)).powi(2);
        norm += f64::from(wanted).powi(2);
    }
    if norm == 0.0 { libm::sqrt(difference) } else { libm::sqrt(difference / norm) }
}

/// The largest error of an element, in units of what one rounding of `wanted` to BF16 may do; at most 1 where nothing else was done.
///
/// Allowed are F32's errors s, [`F32_SLACK`] of the element or of the root mean square of all (terms may cancel), and half a unit in the
/// last place of what may then be rounded, |wanted| + s. Truncation goes up to twice as far. A NaN on one side alone gives NaN.
pub fn of_one_rounding(found: &[f32], wanted: &[f32]) -> f64 {
    let finite = wanted.iter().filter(|value| value.is_finite()).map(|&value| f64::from(value).powi(2));
    let mean_square = libm::sqrt(finite.sum::<f64>() / wanted.len().max(1) as f64);
    let mut largest = 0.0f64;
    for (&found, &wanted) in found.iter().zip(wanted) {
        if found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()) {
            continue;
        }
        let size = f64::from(wanted).abs();
        let slack = F32_SLACK * size.max(mean_square);
        let error = (f64::from(found) - f64::from(wanted)).abs() / (slack + half_unit(size + slack));
        if error.is_nan() {
            return f64::NAN;
        }
        largest = largest.max(error);
    }
    largest
}

/// Half a unit in the last place of BF16 at `size`.
fn half_unit(size: f64) -> f64 {
    let (_, exponent) = libm::frexp(size);
    // size = m 2^exponent with m in [1/2, 1); the smallest normal number is 2^-126.
    libm::ldexp(1.0, (exponent - 1).max(-126) - 8)
}

/// How far `found` is stretched or shrunk along `wanted`, |<found - wanted, wanted>| / <wanted, wanted>, in units of what as many
/// `roundings` to nearest do together by chance; at most 1 but once in 10^9 cases.
///
/// A rounding to nearest moves the part of a row along `wanted` by e times its square, |e| <= [`UNIT`], of mean zero, and independently of
/// other rows (`x: [rows, row]`). So Hoeffding's inequality bounds the sum by UNIT sqrt(2 ln(2 10^9)) times the root of the sum of the
/// rows' squares, squared; independent roundings add in the mean square. Truncation shrinks each row by 0.72 UNIT in the mean (half a unit
/// in the last place, averaged over a binade): 50 rows of one size show it.
pub fn shift(found: &[f32], wanted: &[f32], row: usize, roundings: u32) -> f64 {
    let (mut along, mut square, mut fourth) = (0.0, 0.0, 0.0);
    for (found, wanted) in found.chunks(row.max(1)).zip(wanted.chunks(row.max(1))) {
        let mut squares = 0.0;
        for (&found, &wanted) in found.iter().zip(wanted) {
            along += (f64::from(found) - f64::from(wanted)) * f64::from(wanted);
            squares += f64::from(wanted).powi(2);
        }
        square += squares;
        fourth += squares * squares;
    }
    if square == 0.0 {
        return if along.is_nan() { f64::NAN } else { 0.0 };
    }
    let chance = UNIT * libm::sqrt(2.0 * libm::log(2e9) * f64::from(roundings) * fourth);
    along.abs() / (chance + F32_SLACK * square)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::bf16;
    use crate::random::Stream;

    fn normals(seed: u32, count: usize) -> Vec<f32> {
        let stream = Stream::new(seed, 0xC105E);
        (0..count as u64).map(|index| stream.normal(index)).collect()
    }

    fn truncated(values: &[f32]) -> Vec<f32> {
        values.iter().map(|value| f32::from_bits(value.to_bits() & 0xFFFF_0000)).collect()
    }

    fn rounded(values: &[f32]) -> Vec<f32> {
        values.iter().map(|&value| bf16::round(value)).collect()
    }

    #[test]
    fn a_unit_is_the_largest_relative_error_of_a_rounding() {
        let every = (0x3F80_0000..0x4000_0000u32).map(f32::from_bits);
        let largest = every.map(|value| (f64::from(bf16::round(value) - value) / f64::from(value)).abs()).fold(0.0, f64::max);
        // The tie between 1 and the next number.
        assert_eq!(largest, UNIT / (1.0 + UNIT));
        assert_eq!([1.0, 1.5, 2.0, 0.75, 1e-45].map(half_unit), [-8, -8, -7, -9, -134].map(|power| 2f64.powi(power)));
    }

    #[test]
    fn the_root_mean_square_of_roundings_is_as_derived() {
        let wanted = normals(11, 1 << 16);
        let errors =
            rounded(&wanted).iter().zip(&wanted).map(|(&found, &wanted)| (f64::from(found) / f64::from(wanted) - 1.0).powi(2)).sum::<f64>();
        // 65,536 squares scatter by 0.4 % of their mean.
        assert!((libm::sqrt(errors / wanted.len() as f64) / ROUNDING_RMS - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_thousand_seeds_of_rounding_pass_and_none_of_truncation() {
        for seed in 0..1000 {
            // Products of three normals: a few elements carry the norm, as in the gradients of SwiGLU.
            let [a, b, c] = [0, 1, 2].map(|part| normals(3 * seed + part, 1024));
            let wanted: Vec<f32> = a.iter().zip(&b).zip(&c).map(|((a, b), c)| 27.0 * a * b * c).collect();
            let (right, wrong) = (rounded(&wanted), truncated(&wanted));
            assert!(of_one_rounding(&right, &wanted) <= 1.0 && relative(&right, &wanted) <= UNIT);
            assert!(of_one_rounding(&wrong, &wanted) > 1.5);
            let (right, wrong) = (rounded(&a), truncated(&a));
            assert!(shift(&right, &a, 4, 1) <= 1.0 && shift(&wrong, &a, 4, 1) > 1.0, "seed {seed}");
        }
    }

    #[test]
    fn a_swapped_pair_and_a_dropped_term_are_seen_by_each_measure_that_could() {
        let wanted = normals(7, 512);
        let mut swapped = rounded(&wanted);
        swapped.swap(3, 4);
        let mut dropped = rounded(&wanted);
        dropped[9] = 0.0;
        for wrong in [&swapped, &dropped] {
            assert!(of_one_rounding(wrong, &wanted) > 10.0 && relative(wrong, &wanted) > UNIT);
        }
    }

    #[test]
    fn what_is_no_number_does_not_pass() {
        let wanted = [1.0, 2.0, f32::INFINITY, f32::NAN];
        assert_eq!(of_one_rounding(&wanted, &wanted), 0.0);
        for (at, value) in [(0, f32::NAN), (2, f32::NAN), (3, 1.0), (0, f32::INFINITY), (2, 3.0e38)] {
            let mut found = wanted;
            found[at] = value;
            let error = of_one_rounding(&found, &wanted);
            assert!(error.is_nan() || error > 1.0, "{at} {value}: {error}");
        }
        assert!(shift(&[f32::NAN], &[1.0], 1, 1).is_nan() && relative(&[f32::NAN], &[1.0]).is_nan());
        assert_eq!((relative(&[0.0], &[0.0]), shift(&[0.0], &[0.0], 1, 1), of_one_rounding(&[0.0], &[0.0])), (0.0, 0.0, 0.0));
    }
}
