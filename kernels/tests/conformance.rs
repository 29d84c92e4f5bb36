//! Formats, shared scales and block quantisation against vectors from independent implementations, bit for bit.
//!
//! conformance/README.md says where the vectors come from. Nothing here is a tolerance: a single differing bit fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::Path;

use contract::recipe::{Block, Format, OperandSpec, Rounding, ScaleRule};
use kernels::format::e2m1::E2M1;
use kernels::format::{MiniFloat, bf16, e8m0};
use kernels::quantise::{Float, Mxfp4, Prepared, Randomness, Source, mini_float, prepare_reference};
use kernels::random::StreamKey;
use serde_json::Value;

const RULES: [(&str, ScaleRule); 3] = [("floor", ScaleRule::Floor), ("even", ScaleRule::Even), ("ceil", ScaleRule::Ceil)];
const FORMATS: [(&str, Format); 3] = [("e2m1", Format::E2m1), ("e4m3", Format::E4m3), ("e5m2", Format::E5m2)];

fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn vectors(name: &str) -> Value {
    read(&format!("vectors/{name}.json"))["data"].take()
}

/// Numbers of `digits` hexadecimal digits each.
fn hex(value: &Value, digits: usize) -> Vec<u32> {
    let text = value.as_str().expect("a hexadecimal string");
    assert!(!text.is_empty() && text.len().is_multiple_of(digits));
    text.as_bytes().chunks(digits).map(|d| u32::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

fn mini(format: Format) -> MiniFloat {
    mini_float(format).expect("at most 8 bits")
}

fn named<T: Copy>(list: &[(&str, T)], name: &Value) -> T {
    list.iter().find(|(n, _)| name == n).unwrap_or_else(|| panic!("{name} is unknown")).1
}

/// The pattern of a value, with one pattern for all NaNs.
fn pattern(value: f32) -> u32 {
    if value.is_nan() { 0x7FC0_0000 } else { value.to_bits() }
}

fn spec(format: Format, block: Block, scale: ScaleRule) -> OperandSpec {
    OperandSpec { format, block, scale, rounding: Rounding::NearestEven, rotation: None }
}

fn prepare(values: &[f32], k: usize, spec: &OperandSpec) -> Prepared {
    let source = Source { values, rows: values.len() / k, k, transposed: false };
    prepare_reference(source, spec, Randomness::default(), None).expect("a valid operand").0
}

fn unpacked(operand: &Mxfp4) -> Vec<u32> {
    operand.codes.iter().flat_map(|&byte| [u32::from(byte & 15), u32::from(byte >> 4)]).collect()
}

#[test]
fn every_code_decodes_as_three_implementations_say() {
    let expected = vectors("decode");
    for (name, format) in FORMATS {
        let expected = hex(&expected[name], 8);
        assert_eq!(expected.len(), 1 << (mini(format).sign_bit + 1));
        for (code, expected) in expected.into_iter().enumerate() {
            assert_eq!(pattern(mini(format).decode(code as u8)), expected, "{name} {code:#04x}");
        }
    }
    let expected = hex(&expected["e8m0"], 8);
    assert_eq!(expected.len(), 256);
    for (byte, expected) in expected.into_iter().enumerate() {
        assert_eq!(pattern(e8m0::decode(byte as u8)), expected, "e8m0 {byte}");
    }
}

#[test]
fn values_encode_as_three_implementations_say() {
    let all = vectors("encode");
    for (name, digits) in [("e2m1", 2), ("e4m3", 2), ("e5m2", 2), ("bf16", 4)] {
        let cases = &all[name];
        let (values, words) = (hex(&cases["values"], 8), hex(&cases["words"], 8));
        let (nearest, stochastic) = (hex(&cases["nearest"], digits), hex(&cases["stochastic"], digits));
        assert!(values.len() >= 900 && [words.len(), nearest.len(), stochastic.len()] == [values.len(); 3], "{name}");
        for (i, &bits) in values.iter().enumerate() {
            let (value, word) = (f32::from_bits(bits), words[i]);
            let found = match FORMATS.iter().find(|(n, _)| *n == name) {
                Some(&(_, format)) => (mini(format).encode(value).into(), mini(format).encode_stochastic(value, word).into()),
                None => (u32::from(bf16::encode(value)), u32::from(bf16::encode_stochastic(value, word))),
            };
            assert_eq!(found.0, nearest[i], "{name} of {value:e} ({bits:08x}), nearest-even");
            assert_eq!(found.1, stochastic[i], "{name} of {value:e} ({bits:08x}) with word {word:08x}");
        }
    }
}

#[test]
fn scale_bytes_follow_from_every_exponent_as_defined() {
    let all = vectors("scale");
    let amax = hex(&all["amax"], 8);
    for (rule_name, rule) in RULES {
        for (name, format) in FORMATS {
            let expected = hex(&all[format!("{rule_name} {name}")], 2);
            assert_eq!(expected.len(), amax.len());
            for (&bits, expected) in amax.iter().zip(expected) {
                let found = e8m0::scale_byte(bits, rule, &mini(format));
                assert_eq!(u32::from(found), expected, "{rule_name} {name} of {bits:08x}");
            }
        }
    }
}

#[test]
fn blocks_quantise_as_three_implementations_say() {
    let all = vectors("blocks");
    let source: Vec<f32> = hex(&all["source"], 4).into_iter().map(|b| f32::from_bits(b << 16)).collect();
    let blocks = source.len() / 32;
    assert_eq!(all["blocks"], blocks);
    for (rule_name, rule) in RULES {
        for (name, format) in FORMATS {
            let expected = &all[format!("{rule_name} {name}")];
            let scales = hex(&expected["scales"], 2);
            let codes = hex(&expected["codes"], if format == Format::E2m1 { 1 } else { 2 });
            assert_eq!((scales.len(), codes.len()), (blocks, blocks * 32));
            match prepare(&source, 32, &spec(format, Block::Row32, rule)) {
                Prepared::Mxfp4(operand) => {
                    let found: Vec<u32> = operand.scales.iter().map(|&b| b.into()).collect();
                    assert_eq!(found, scales, "{rule_name} {name}");
                    for (i, (found, expected)) in unpacked(&operand).into_iter().zip(codes).enumerate() {
                        assert_eq!(found, expected, "{rule_name} {name}, block {}, element {}: {:e}", i / 32, i % 32, source[i]);
                    }
                }
                Prepared::Float(operand) => {
                    for (i, (found, code)) in operand.values.iter().zip(codes).enumerate() {
                        // Exact in F64; one rounding where the product is an F32 subnormal.
                        let scale = 2f64.powi(scales[i / 32] as i32 - 127);
                        let expected = (f64::from(mini(format).decode(code as u8)) * scale) as f32;
                        assert_eq!(found.to_bits(), expected.to_bits(), "{rule_name} {name}, block {}: {:e}", i / 32, source[i]);
                    }
                }
            }
        }
    }
}

#[test]
fn tensors_scale_as_torch_and_numpy_say() {
    let all = vectors("tensor");
    for case in all.as_array().expect("a list") {
        let format = named(&FORMATS, &case["format"]);
        let source: Vec<f32> = hex(&case["source"], 4).into_iter().map(|b| f32::from_bits(b << 16)).collect();
        let Prepared::Float(Float { values, scale, .. }) = prepare(&source, 16, &spec(format, Block::Tensor, ScaleRule::Current)) else {
            panic!("FP8 operands hold floats");
        };
        assert_eq!(scale.to_bits(), hex(&case["inverse"], 8)[0]);
        let expected: Vec<u32> = hex(&case["codes"], 2).into_iter().map(|c| mini(format).decode(c as u8).to_bits()).collect();
        assert_eq!(values.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn random_words_are_those_of_the_definition() {
    let all = vectors("random");
    let number = |v: &Value| v.as_str().expect("a decimal string").parse::<u64>().expect("64 bits");
    let indices: Vec<u64> = all["indices"].as_array().expect("a list").iter().map(number).collect();
    for case in all["cases"].as_array().expect("a list") {
        let key: Vec<u64> = case["key"].as_array().expect("a list").iter().map(number).collect();
        let part = |i: usize| u32::try_from(key[i]).expect("32 bits");
        let key = StreamKey { seed: key[0], step: key[1], layer: part(2), linear: part(3), pass: part(4), operand: part(5) };
        let stream = key.stream();
        assert_eq!(vec![stream.k0, stream.k1], hex(&case["stream"], 8), "{key:?}");
        let words: Vec<u32> = indices.iter().map(|&i| stream.word(i)).collect();
        assert_eq!(words, hex(&case["words"], 8), "{key:?}");
    }
}

/// Where implementations differ, ours gives the answer that was worked out by hand.
#[test]
fn contested_blocks_have_the_answers_worked_out_by_hand() {
    let file = read("hand_checked.json");
    let cases = file["cases"].as_array().expect("a list");
    let observed = vectors("observed");
    let seen: Vec<&Value> = observed.as_array().expect("a list").iter().map(|o| &o["case"]).collect();
    assert_eq!(seen, cases.iter().map(|c| &c["case"]).collect::<Vec<_>>(), "run generate.py again");
    for case in cases {
        let (format, rule) = (named(&FORMATS, &case["format"]), named(&RULES, &case["rule"]));
        let numbers =
            |v: &Value| -> Vec<u32> { v.as_array().expect("a list").iter().map(|n| n.as_u64().expect("a number") as u32).collect() };
        let elements: Vec<f32> = case["elements"].as_array().expect("a list").iter().map(|e| f32::from_bits(hex(e, 8)[0])).collect();
        let codes = numbers(&case["codes"]);
        let scale = case["scale"].as_u64().expect("a number") as u8;
        let name = &case["case"];
        assert_eq!(elements.len(), codes.len(), "{name}");

        // From F32, without the rounding of the source to BF16.
        let amax = elements.iter().map(|v| v.abs().to_bits()).max().expect("an element");
        assert_eq!(e8m0::scale_byte(amax, rule, &mini(format)), scale, "{name}");
        if scale != e8m0::NAN {
            let found: Vec<u32> = elements.iter().map(|v| mini(format).encode(v * e8m0::reciprocal(scale)).into()).collect();
            assert_eq!(found, codes, "{name}");
        }
        // As an operand, where the source is a BF16 already.
        if elements.iter().all(|v| v.to_bits() & 0xFFFF == 0) {
            let mut block = [0.0; 32];
            block[..elements.len()].copy_from_slice(&elements);
            match prepare(&block, 32, &spec(format, Block::Row32, rule)) {
                Prepared::Mxfp4(operand) => {
                    assert_eq!(operand.scales, [scale], "{name}");
                    assert_eq!(unpacked(&operand)[..codes.len()], codes, "{name}");
                }
                Prepared::Float(operand) => {
                    let expected: Vec<f32> = codes.iter().map(|&c| mini(format).decode(c as u8) * e8m0::decode(scale)).collect();
                    assert_eq!(operand.values[..codes.len()], expected, "{name}");
                }
            }
        }
    }
}

/// A NaN block poisons the values it stands for, in every block format, and nothing outside it.
#[test]
fn a_block_with_a_nan_or_an_infinity_decodes_to_nan() {
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut source = [1.0f32; 64];
        source[3] = poison;
        for (_, format) in FORMATS {
            for (_, rule) in RULES {
                let values = kernels::quantise::dequantise(&prepare(&source, 64, &spec(format, Block::Row32, rule)));
                assert!(values[..32].iter().all(|v| v.is_nan()), "{format:?} {rule:?}");
                assert!(values[32..].iter().all(|&v| v == 1.0), "{format:?} {rule:?}");
            }
        }
    }
    assert_eq!(E2M1.encode(f32::NAN), 0);
}
