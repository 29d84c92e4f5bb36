//! Inputs made from a corpus by changes that look random and are the same each time, given to a reader; for machines without a nightly compiler,
//! and for readers that a fuzzer of libFuzzer's kind would not get to by itself. Shared by the tests `fuzz_corpus` of `trainer` and `fuzz` of
//! `study`; `.ci/fuzz-readers` says how many inputs, and prints the numbers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// What stands in many texts, or breaks them.
const WORDS: [&[u8]; 24] = [
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"[[[[",
    b"{\"a\":",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"\n",
    b": ",
    b"- ",
    b"&a ",
    b"*a",
    b"!!binary ",
    b"|\n",
    b"NaN",
    b".inf",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"9007199254740993",
    b"\xff\xfe",
    b"schema",
];
const BYTES: [u8; 12] = [0, 1, 9, 10, 0x1b, b'"', b'{', b']', 0x7f, 0x80, 0xc0, 0xff];
const NUMBERS: [u64; 10] = [0, 1, 7, 1 << 24, (1 << 31) - 1, 1 << 31, u32::MAX as u64, 1 << 53, i64::MAX as u64, u64::MAX];
/// Bytes of the longest input.
const LONGEST: usize = 32 << 10;

struct Dice(u64);

impl Dice {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn range(&mut self, length: usize, longest: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..(start + self.below(longest + 1)).min(length)
    }
}

/// One change.
fn change(input: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let length = input.len();
    let at = dice.below(length.max(1));
    match dice.below(10) {
        0 if length > 0 => input[at] ^= 1 << dice.below(8),
        1 if length > 0 => input[at] = BYTES[dice.below(BYTES.len())],
        2 => drop(input.drain(dice.range(length, 16))),
        3 => {
            let copy = input[dice.range(length, 64)].to_vec();
            input.splice(at.min(length)..at.min(length), copy);
        }
        4 | 5 => {
            let word = WORDS[dice.below(WORDS.len())];
            input.splice(dice.range(length, 8), word.iter().copied());
        }
        6 => {
            let piece = &other[dice.range(other.len(), 256)];
            input.splice(dice.range(length, 64), piece.iter().copied());
        }
        7 => {
            let number = NUMBERS[dice.below(NUMBERS.len())].to_le_bytes();
            let width = [1, 2, 4, 8][dice.below(4)].min(length - at.min(length));
            input[at..at + width].copy_from_slice(&number[..width]);
        }
        8 => {
            let digits = input.iter().enumerate().filter(|(_, byte)| byte.is_ascii_digit()).map(|(index, _)| index).collect::<Vec<_>>();
            if let Some(&start) = digits.get(dice.below(digits.len().max(1))) {
                let end = (start..length).find(|&index| !input[index].is_ascii_digit()).unwrap_or(length);
                input.splice(start..end, NUMBERS[dice.below(NUMBERS.len())].to_string().into_bytes());
            }
        }
        _ => input.truncate(length - dice.below(length.min(64) + 1)),
    }
    input.truncate(LONGEST);
}

/// As many inputs as `FUZZ_INPUTS` says (or seconds, `FUZZ_SECONDS`); a few without. Prints how many were made, taken and refused, and the
/// slowest.
///
/// # Panics
/// When the reader did, with the inputs.
pub(crate) fn inputs(name: &str, corpus: &[Vec<u8>], mut target: impl FnMut(&[u8]) -> Result<(), String>) {
    let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("FUZZ_SECONDS").map(Duration::from_secs);
    let most = number("FUZZ_INPUTS").unwrap_or(if seconds.is_some() { u64::MAX } else { 2_000 });
    let mut dice = Dice(number("FUZZ_FIRST").unwrap_or(1));
    let (started, mut made, mut taken, mut slowest, mut panics) = (Instant::now(), 0_u64, 0_u64, Duration::ZERO, Vec::new());
    let mut before = started;
    while made < most && (!made.is_multiple_of(64) || seconds.is_none_or(|seconds| before - started < seconds)) {
        let mut input = corpus[dice.below(corpus.len())].clone();
        for _ in 0..=dice.below(4) {
            change(&mut input, &corpus[dice.below(corpus.len())], &mut dice);
        }
        match catch_unwind(AssertUnwindSafe(|| target(&input))) {
            Ok(answer) => taken += u64::from(answer.is_ok()),
            Err(_) => panics.push(input.escape_ascii().to_string()),
        }
        made += 1;
        let now = Instant::now();
        (slowest, before) = (slowest.max(now - before), now);
    }
    println!(
        "fuzz {name}: {made} inputs, {taken} taken, {} refused, {} panicked, the slowest after {} ms, in {} s",
        made - taken - panics.len() as u64,
        panics.len(),
        slowest.as_millis(),
        started.elapsed().as_secs()
    );
    assert!(panics.is_empty(), "{name} panicked on:\n{}", panics.join("\n"));
}
