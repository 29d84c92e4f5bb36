//! Every code of every format, and encoding against a search that shares no arithmetic with it.
//!
//! The search works in F64 on a list of all finite values: it knows nothing of F32 bit patterns, which the codecs are made of.

use contract::recipe::ScaleRule;

use super::e2m1::{DOUBLED, E2M1};
use super::e4m3::E4M3;
use super::e5m2::E5M2;
use super::{MiniFloat, bf16, e8m0};

const FORMATS: [MiniFloat; 3] = [E2M1, E4M3, E5M2];

/// The value of a code as the specifications write it: (-1)^s 2^(E - bias) (1 + M / 2^m), or 2^(1 - bias) (M / 2^m) when E is 0.
fn by_the_book(code: u8, exponent_bits: i32, mantissa_bits: i32, bias: i32) -> f64 {
    let fields = i32::from(code);
    let mantissa = f64::from(fields & ((1 << mantissa_bits) - 1)) / 2f64.powi(mantissa_bits);
    let exponent = (fields >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let magnitude = if exponent == 0 { 2f64.powi(1 - bias) * mantissa } else { 2f64.powi(exponent - bias) * (1.0 + mantissa) };
    if fields >> (exponent_bits + mantissa_bits) & 1 == 1 { -magnitude } else { magnitude }
}

/// Same value, and the same sign of zero.
fn same(a: f32, b: f64) -> bool {
    f64::from(a) == b && a.is_sign_negative() == b.is_sign_negative()
}

/// All finite magnitudes in order; the position is the code.
fn magnitudes(format: &MiniFloat) -> Vec<f64> {
    (0..=format.largest_code).map(|code| f64::from(format.decode(code))).collect()
}

/// The code of the nearest magnitude (the even code on a tie, the largest beyond the range), by looking at all of them.
fn nearest(list: &[f64], value: f32) -> u8 {
    // Clamped, because F64 distances to a huge value are all the same.
    let magnitude = f64::from(value).abs().min(list[list.len() - 1]);
    let distance = |code: usize| (list[code] - magnitude).abs();
    let mut best = 0;
    for code in 1..list.len() {
        if distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0) {
            best = code;
        }
    }
    best as u8
}

/// Every value, every midpoint and the largest, each with its neighbours in F32; both signs.
fn edges(list: &[f64]) -> Vec<f32> {
    let mut values = vec![0.0f32, f32::from_bits(1), f32::MIN_POSITIVE, f32::MAX, 2.0 * list[list.len() - 1] as f32];
    values.extend(list.iter().map(|&value| value as f32));
    values.extend(list.windows(2).map(|pair| (0.5 * (pair[0] + pair[1])) as f32));
    // Where one more step of the grid would lie, and half of it: the limit of saturation.
    let last = list.len() - 1;
    let step = list[last] - list[last - 1];
    values.extend([(list[last] + 0.5 * step) as f32, (list[last] + step) as f32]);
    let near = values.iter().flat_map(|&value| [value.next_down(), value, value.next_up()]);
    near.filter(|value| value.is_finite()).flat_map(|value| [value, -value]).collect()
}

#[test]
fn e2m1_codes_are_the_sixteen_of_the_specification() {
    let expected = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    for (code, value) in expected.into_iter().enumerate() {
        assert!(same(E2M1.decode(code as u8), value) && same(E2M1.decode(code as u8 | 8), -value), "code {code}");
        assert_eq!((f64::from(DOUBLED[code]), f64::from(DOUBLED[code | 8])), (2.0 * value, -2.0 * value));
        assert_eq!(by_the_book(code as u8, 2, 1, 1), value);
    }
}

#[test]
fn e4m3_and_e5m2_codes_follow_the_field_formula() {
    for code in 0..=255u8 {
        let special = code & 0x7F == 0x7F;
        assert_eq!(E4M3.decode(code).is_nan(), special, "E4M3 {code:#04x}");
        assert!(special || same(E4M3.decode(code), by_the_book(code, 4, 3, 7)), "E4M3 {code:#04x}");

        let value = E5M2.decode(code);
        match code & 0x7F {
            0x7C => assert!(value.is_infinite() && value.is_sign_negative() == (code >> 7 == 1)),
            0x7D.. => assert!(value.is_nan(), "E5M2 {code:#04x}"),
            _ => assert!(same(value, by_the_book(code, 5, 2, 15)), "E5M2 {code:#04x}"),
        }
    }
    assert_eq!((E4M3.decode(0x7E), E4M3.decode(0x01)), (448.0, 2f32.powi(-9)));
    assert_eq!((E5M2.decode(0x7B), E5M2.decode(0x01)), (57344.0, 2f32.powi(-16)));
}

#[test]
fn every_finite_code_survives_decoding_and_encoding() {
    for format in FORMATS {
        for code in (0..=format.largest_code).flat_map(|code| [code, code | 1 << format.sign_bit]) {
            assert_eq!(format.encode(format.decode(code)), code);
            // A value on the grid is never moved by stochastic rounding, whatever the word.
            for word in [0, 1, 0x0012_3456, 0x7FFF_FFFF, u32::MAX] {
                assert_eq!(format.encode_stochastic(format.decode(code), word), code, "{format:?} {code:#x} {word:#x}");
            }
        }
    }
}

#[test]
fn nearest_even_agrees_with_a_search_over_all_codes() {
    for format in FORMATS {
        let list = magnitudes(&format);
        // 64 values an octave over the format's range and beyond, besides the edges.
        let sweep = (-24..18).flat_map(|e| (0..64).map(move |m| 2f32.powi(e) * (1.0 + m as f32 / 64.0 + 0.003)));
        for value in edges(&list).into_iter().chain(sweep) {
            let expected = nearest(&list, value) | u8::from(value.is_sign_negative()) << format.sign_bit;
            assert_eq!(format.encode(value), expected, "{value:e} in {format:?}");
        }
    }
}

#[test]
fn ties_of_e2m1_go_to_even_codes() {
    let ties = [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0), (6.5, 6.0), (1e30, 6.0)];
    for (value, expected) in ties {
        assert_eq!(E2M1.decode(E2M1.encode(value)), expected, "{value}");
        assert_eq!(E2M1.decode(E2M1.encode(-value)), -expected, "-{value}");
    }
}

#[test]
fn special_values_have_one_answer_each() {
    for round in [MiniFloat::encode, |format: &MiniFloat, value| format.encode_stochastic(value, 0x3F_FFFF)] {
        assert_eq!([round(&E2M1, f32::INFINITY), round(&E2M1, f32::NEG_INFINITY), round(&E2M1, f32::NAN) & 7], [7, 15, 0]);
        assert_eq!([round(&E4M3, f32::INFINITY), round(&E4M3, f32::NEG_INFINITY), round(&E4M3, f32::NAN) & 0x7F], [0x7F, 0xFF, 0x7F]);
        assert_eq!([round(&E5M2, f32::INFINITY), round(&E5M2, f32::NEG_INFINITY), round(&E5M2, f32::NAN) & 0x7F], [0x7C, 0xFC, 0x7E]);
        for format in FORMATS {
            assert_eq!(round(&format, f32::MAX), format.largest_code);
            assert_eq!(round(&format, -0.0), 1 << format.sign_bit);
        }
    }
}

/// Over all possible random words the fraction rounded up is exactly the distance travelled: no bias, not even a small one.
#[test]
fn stochastic_rounding_is_exactly_proportional_over_all_words() {
    for format in FORMATS {
        let words = 1u32 << format.dropped_bits();
        let list = magnitudes(&format);
        for (lower, eighths) in [(0, 1), (0, 5), (1, 3), (2, 7), (4, 4), (list.len() as u8 - 2, 6)] {
            let (from, to) = (list[usize::from(lower)], list[usize::from(lower) + 1]);
            let value = (from + (to - from) * f64::from(eighths) / 8.0) as f32; // exact: three bits more than the grid
            let ups = (0..words).filter(|&word| format.encode_stochastic(value, word) == lower + 1).count();
            let downs = (0..words).filter(|&word| format.encode_stochastic(value, word) == lower).count();
            assert_eq!((ups, downs), ((words / 8 * eighths) as usize, (words / 8 * (8 - eighths)) as usize), "{value} {format:?}");
        }
    }
}

#[test]
fn stochastic_rounding_never_leaves_the_two_neighbours_or_the_range() {
    for format in FORMATS {
        let list = magnitudes(&format);
        let words =
            [0, 1, (1 << (format.dropped_bits() - 1)) - 1, 1 << (format.dropped_bits() - 1), (1 << format.dropped_bits()) - 1, u32::MAX];
        for value in edges(&list) {
            let magnitude = f64::from(value).abs();
            let below = list.iter().rposition(|&v| v <= magnitude).unwrap();
            // Below the smallest normal the sum with it rounds to F32 first: a value within 2^-24 of a grid point may count as that point.
            let above = if list[below] == magnitude { below } else { (below + 1).min(list.len() - 1) };
            for word in words {
                let code = format.encode_stochastic(value, word);
                let position = usize::from(code & ((1 << format.sign_bit) - 1));
                assert!(position == below || position == above, "{value:e} {word:#x}: {position} is neither {below} nor {above}");
                assert_eq!(code >> format.sign_bit == 1, value.is_sign_negative());
            }
        }
    }
}

#[test]
fn e8m0_bytes_are_powers_of_two_with_exact_reciprocals() {
    for byte in 0..=254u8 {
        let expected = 2f64.powi(i32::from(byte) - 127);
        assert_eq!(f64::from(e8m0::decode(byte)), expected, "byte {byte}");
        assert_eq!(f64::from(e8m0::reciprocal(byte)), 1.0 / expected, "byte {byte}");
    }
    assert!(e8m0::decode(255).is_nan() && e8m0::reciprocal(255).is_nan());
}

/// The three rules from their definitions, in F64 and by search over all bytes, for every exponent of F32 and the mantissas where a
/// rule changes its mind.
#[test]
fn scale_bytes_follow_their_definitions_at_every_exponent() {
    let mantissas =
        [0u32, 1, 0x1F_FFFF, 0x20_0000, 0x3F_FFFF, 0x40_0000, 0x40_0001, 0x5F_FFFF, 0x60_0000, 0x60_0001, 0x6F_FFFF, 0x70_0000, 0x77_FFFF];
    for format in FORMATS {
        let emax = format.largest_exponent as i32;
        let bits = (0..=254u32).flat_map(|e| mantissas.into_iter().chain([0x78_0000, 0x7F_FFFE, 0x7F_FFFF]).map(move |m| e << 23 | m));
        for bits in bits {
            let amax = f64::from(f32::from_bits(bits));
            let power = |exponent: i32| 2f64.powi(exponent);
            // Largest p with 2^p <= x, by search; subnormals and zero fall below every byte.
            let floor_log2 = |x: f64| (-200..=200).rev().find(|&p| power(p) <= x).unwrap_or(-200);
            let clamp = |exponent: i32| (exponent + 127).clamp(0, 254) as u8;
            assert_eq!(e8m0::scale_byte(bits, ScaleRule::Floor, &format), clamp(floor_log2(amax) - emax), "floor {bits:#x}");

            let ceil = (0..=254u8).find(|&byte| amax / power(i32::from(byte) - 127) <= f64::from(format.largest)).unwrap();
            assert_eq!(e8m0::scale_byte(bits, ScaleRule::Ceil, &format), ceil, "ceil {bits:#x} {format:?}");

            if bits >> 23 > 0 {
                // Half of the last kept mantissa bit of amax's own octave, carried into the next octave when it overflows.
                let up = amax + power(floor_log2(amax)) * power(-(format.mantissa_bits as i32) - 1);
                assert_eq!(e8m0::scale_byte(bits, ScaleRule::Even, &format), clamp(floor_log2(up) - emax), "even {bits:#x}");
            }
        }
        for rule in [ScaleRule::Floor, ScaleRule::Even, ScaleRule::Ceil] {
            assert_eq!(e8m0::scale_byte(0, rule, &format), 0);
            assert_eq!(e8m0::scale_byte(f32::INFINITY.to_bits(), rule, &format), 255);
            assert_eq!(e8m0::scale_byte(f32::NAN.to_bits(), rule, &format), 255);
        }
    }
}

#[test]
fn bf16_round_trips_all_codes_and_rounds_every_midpoint_to_even() {
    for code in 0..=u16::MAX {
        let value = bf16::decode(code);
        assert_eq!(value.to_bits(), u32::from(code) << 16);
        if value.is_nan() {
            assert!(bf16::decode(bf16::encode(value)).is_nan() && bf16::decode(bf16::encode_stochastic(value, u32::MAX)).is_nan());
            continue;
        }
        assert_eq!((bf16::encode(value), bf16::encode_stochastic(value, u32::MAX)), (code, code));
        if value.is_infinite() {
            continue;
        }
        let middle = f32::from_bits(u32::from(code) << 16 | 0x8000);
        let even = if code % 2 == 0 { code } else { code + 1 };
        assert_eq!(bf16::encode(middle), even, "{middle:e}");
        // One F32 ulp towards zero, and away from it.
        assert_eq!(bf16::encode(f32::from_bits(middle.to_bits() - 1)), code);
        assert_eq!(bf16::encode(f32::from_bits(middle.to_bits() + 1)), code + 1);
    }
    // A NaN whose payload lies in the dropped bits only must not become infinity.
    assert!(bf16::round(f32::from_bits(0x7F80_0001)).is_nan());
}

#[test]
fn bf16_stochastic_rounds_up_as_often_as_the_dropped_bits_say() {
    for (code, dropped) in [(0x3F80u32, 0x1234u32), (0xC07F, 0x8000), (0x0000, 0xFFFF), (0x7F7E, 1)] {
        let value = f32::from_bits(code << 16 | dropped);
        let ups = (0..=0xFFFFu32).filter(|&word| u32::from(bf16::encode_stochastic(value, word)) == code + 1).count();
        assert_eq!(ups, dropped as usize, "{value:e}");
    }
}
