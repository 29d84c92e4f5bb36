//! Memory that a run needs, as terms that add up. The trainer decides by them how a GPU keeps things and refuses what does not fit; the
//! harness forecasts with the same ones. All of it follows from the run file; nothing is measured.
//!
//! `run` is a micro-batch everywhere ([`RunFile::micro_batch`]), because buffers are made for one.

pub mod host;
mod operands;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::device::DeviceId;
use crate::json::Document;
use crate::native::Native;
use crate::run_file::{ModelSection, RunFile};
use crate::schema;
use crate::text::GIB;

pub use operands::{
    GRADIENT, GRADIENT_TURNED, INPUT, INPUT_TURNED, PART, Role, Rooms, WEIGHT, WEIGHT_TURNED, Ways, bytes_of_turn, element_bytes,
};

/// Workspace and code of the matrix library and of the kernels, about.
const LIBRARIES: u128 = 128 << 20;

/// Logits in a GPU's memory at once: 128 MiB of BF16.
const LOGITS: usize = 1 << 26;
/// Of vocabularies above [`LARGE`]: 2 GiB. Each part of the logits adds to the head's gradient in F32, which is as large as a GiB or more there:
/// with 128 MiB, 16 of them for 8,192 tokens of Llama 3.1-8B.
const LOGITS_OF_LARGE: usize = 1 << 30;
const LARGE: usize = 1 << 16;
/// Rows of the largest tile that multiplies them: parts are multiples of it.
const TILE: usize = 256;

/// Names of the terms that several ranks share out among them.
const MASTERS: &str = "masters, F32";
const MOMENTS: &str = "moments, F32";
const GRADIENTS: &str = "gradients, F32";
const COPY: &str = "copy for a checkpoint";

/// What of that which could be made again, or done without, is kept. Results are the same bits either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    Everything,
    /// On a GPU X is prepared again in backward instead of waiting for it. On a CPU steps wait until a checkpoint is written, instead of a
    /// copy being made of it.
    Least,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Everything { "everything kept" } else { "least memory" })
    }
}

/// What a run's memory is counted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Cpu,
    Gpu {
        /// Whether it multiplies packed MXFP4 with kernels of this project.
        mxfp4: bool,
    },
}

/// One part of the memory of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    pub name: String,
    /// How it is counted, with the letters of [`LETTERS`].
    pub formula: String,
    pub bytes: u64,
}

/// What the letters in formulas mean.
pub const LETTERS: &str = "P parameters, T tokens, L blocks, d width; inputs and weights are summed over a block's four linears";

/// Memory of a run under one way of keeping things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub keep: Keep,
    /// The sum of the terms.
    pub bytes: u64,
    pub terms: Vec<Term>,
}

impl Memory {
    pub fn new(keep: Keep, terms: Vec<Term>) -> Self {
        Self { keep, bytes: terms.iter().fold(0, |sum, term| sum.saturating_add(term.bytes)), terms }
    }
}

/// What `trainer memory` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryReport {
    pub device: DeviceId,
    /// Tokens that are computed at once.
    pub tokens: usize,
    /// As [`ways`] lists them.
    pub ways: Vec<Memory>,
    /// All memory of the GPU; on a CPU the smaller of the machine's and the control group's. Null where the system does not tell.
    pub total_bytes: Option<u64>,
    /// What of it a run may take: what is free on a GPU, all of it on a CPU.
    pub free_bytes: Option<u64>,
    /// How a run would keep things; null where it does not fit or nobody knows.
    pub keeps: Option<Keep>,
}

impl MemoryReport {
    /// `mxfp4`: whether the device is a GPU that multiplies packed MXFP4. `ranks`: that train together, each on a device.
    pub fn new(run: &RunFile, (device, mxfp4): (DeviceId, bool), ranks: usize, total_bytes: Option<u64>, free_bytes: Option<u64>) -> Self {
        let place = if device == DeviceId::Cpu { Place::Cpu } else { Place::Gpu { mxfp4 } };
        let ways: Vec<Memory> = ways(run, place).into_iter().map(|way| of_rank(way, run, ranks)).collect();
        let keeps = free_bytes.and_then(|free| choose(&ways, free));
        Self { device, tokens: run.tokens_per_step(), ways, total_bytes, free_bytes, keeps }
    }
}

impl Document for MemoryReport {
    const SCHEMA: &'static str = schema::MEMORY;
}

/// Parameters of the largest part of a model that ranks exchange at once: embedding, head with the final norm, or a block.
fn largest_bucket(model: &ModelSection) -> u128 {
    let weights: usize = model.linears().iter().map(|(_, out, inputs)| out * inputs).sum();
    ((model.vocab_size + 1) * model.hidden_size).max(weights + 2 * model.hidden_size) as u128
}

/// Every way of keeping things, the one that takes most first; where nothing can be made again on a GPU there is only one.
pub fn ways(run: &RunFile, place: Place) -> Vec<Memory> {
    match place {
        Place::Cpu => {
            let (least, copy) = (on_cpu(run), term(COPY, "12P: steps go on while it is written", 12 * run.model.parameters()));
            let everything = least.iter().cloned().chain([copy]).collect();
            vec![Memory::new(Keep::Everything, everything), Memory::new(Keep::Least, least)]
        }
        Place::Gpu { mxfp4 } => {
            let of = |keep| (keep, Ways::new(run, Native::new(run, mxfp4), keep));
            let [everything, least] = [Keep::Everything, Keep::Least].map(of);
            let all = if everything.1 == least.1 { vec![everything] } else { vec![everything, least] };
            all.into_iter().map(|(keep, ways)| Memory::new(keep, on_gpu(run, ways))).collect()
        }
    }
}

/// What one of several ranks keeps: masters, moments and the sum of gradients are in shards, gains, which kernels read in F32, are whole, and
/// a micro-batch's gradients are there bucket by bucket.
pub fn of_rank(way: Memory, run: &RunFile, ranks: usize) -> Memory {
    if ranks < 2 {
        return way;
    }
    let (p, of, model) = (run.model.parameters(), ranks as u128, &run.model);
    let gains = (model.hidden_size * (2 * model.num_hidden_layers + 1)) as u128;
    let terms = way.terms.into_iter().map(|part| match part.name.as_str() {
        MASTERS => term(MASTERS, format!("4P / {ranks} ranks + 4 (gains)"), 4 * p / of + 4 * gains),
        MOMENTS => term(MOMENTS, format!("8P / {ranks} ranks"), 8 * p / of),
        COPY => term(COPY, format!("12P / {ranks} ranks: steps go on while it is written"), 12 * p / of),
        GRADIENTS => {
            let mut formula =
                format!("4P / {ranks} ranks + 8B + 4B ({} / {ranks}): a shard of their sum, two buckets (B the largest), and what others send of one", ranks - 1);
            let (bucket, tokens) = (largest_bucket(model), run.tokens_per_step());
            let mut bytes = 4 * p / of + 8 * bucket + 4 * (of - 1) * bucket.div_ceil(of);
            // About where the trainer packs them: it looks at shards.
            if 2 * tokens < model.vocab_size {
                formula.push_str(" + 4 T (d + 1): rows of the embedding");
                bytes += 4 * (tokens * (model.hidden_size + 1)) as u128;
            }
            term(GRADIENTS, formula, bytes)
        }
        _ => part,
    });
    Memory::new(way.keep, terms.collect())
}

/// Which of all [`ways`] is taken where so many bytes are free. A sum says what is needed at least: a way that is only faster than the last
/// one leaves a twentieth of room.
pub fn choose(ways: &[Memory], free: u64) -> Option<Keep> {
    let (last, faster) = ways.split_last()?;
    let with_room = faster.iter().find(|way| way.bytes.saturating_add(way.bytes / 20) <= free);
    with_room.or_else(|| Some(last).filter(|last| last.bytes <= free)).map(|way| way.keep)
}

/// Tokens whose logits are in a GPU's memory at once. Sums over tokens are cut where parts of the logits are, so this decides bits.
pub fn logits_together(tokens: usize, vocabulary: usize) -> usize {
    let together = if vocabulary > LARGE {
        let together = LOGITS_OF_LARGE / vocabulary;
        if together > TILE { together / TILE * TILE } else { together }
    } else {
        LOGITS / vocabulary.max(1)
    };
    together.clamp(1, tokens.max(1))
}

/// Bytes of a GPU's memory that linears, head and attention take in turns.
pub fn scratch_bytes(run: &RunFile, ways: Ways) -> usize {
    let (tokens, vocabulary) = (run.tokens_per_step(), run.model.vocab_size);
    let logits = 2 * logits_together(tokens, vocabulary) * vocabulary;
    let model = &run.model;
    let batch = tokens / model.sequence_length.max(1);
    let of_attention = if model.head_dim == 128 { 4 * attention_sums(batch, model.sequence_length, model.num_attention_heads) } else { 0 };
    Rooms::new(run).largest_turn(ways, tokens).max(logits).max(of_attention)
}

/// Elements, in F32, of the sums of the queries' gradients that attention's backward pass for heads of 128 makes on Hopper: tiles of 64 rows
/// (kernels/device/attention_fused.cu).
pub fn attention_sums(batch: usize, sequence: usize, heads: usize) -> usize {
    batch * sequence.next_multiple_of(64) * heads * 128
}

fn term(name: &str, formula: impl Into<String>, bytes: u128) -> Term {
    Term { name: name.to_owned(), formula: formula.into(), bytes: u64::try_from(bytes).unwrap_or(u64::MAX) }
}

/// Of gradients, with the sum over micro-batches where there are several.
fn gradients(run: &RunFile) -> Term {
    let (formula, of_one) = if run.batch.accumulation > 1 { ("4P + 4P: of a micro-batch, and their sum", 8) } else { ("4P", 4) };
    term(GRADIENTS, formula, of_one * run.model.parameters())
}

/// Everything in F32, all of it kept, but for a checkpoint's copy.
fn on_cpu(run: &RunFile) -> Vec<Term> {
    let model = &run.model;
    let [qkv, output, gate_up, down] = model.linears();
    let (p, d, tokens) = (model.parameters(), model.hidden_size as u128, run.tokens_per_step() as u128);
    // The columns of one block's buffers in the trainer's `model`, and of the gradients that blocks share.
    let block = 4 * d + (qkv.1 + output.2 + gate_up.1 + down.2 + model.num_attention_heads + 2) as u128;
    let shared = 4 * d + (qkv.1 + output.2 + gate_up.1 + 2) as u128;
    vec![
        term("parameters, F32", "4P", 4 * p),
        term(MOMENTS, "8P", 8 * p),
        gradients(run),
        term(
            "activations, F32",
            "4 T L (4d + qkv + attended + gate and up + SwiGLU + heads + 2)",
            4 * tokens * block * model.num_hidden_layers as u128,
        ),
        term("gradients of activations", "4 T (4d + qkv + attended + gate and up + 2): one block's", 4 * tokens * shared),
    ]
}

/// Parameters in F32 and BF16, gradients, two moments, activations that are kept in BF16, operands that wait for backward, and what is taken
/// in turns.
fn on_gpu(run: &RunFile, ways: Ways) -> Vec<Term> {
    let model = &run.model;
    let [qkv, output, gate_up, down] = model.linears();
    let (p, d, tokens) = (model.parameters(), model.hidden_size as u128, run.tokens_per_step());
    let (remade, kept) = if ways.makes_inputs {
        (0, "2d + qkv + attended + gate and up")
    } else {
        (2 * d + down.2 as u128, "4d + qkv + attended + gate and up + SwiGLU")
    };
    let block = 2 * (2 * d + remade + (qkv.1 + output.2 + gate_up.1) as u128) + 4 * (model.num_attention_heads as u128 + 2);
    let shared = 2 * (4 * d + (qkv.1 + output.2) as u128) + 4 * 2;
    let (operands, waiting) = Rooms::new(run).waiting(ways, tokens);
    let between = run.recipe.defect.filter(|defect| defect.is_twice()).map(|_| Rooms::new(run).largest_source(tokens) as u128);
    let tokens = tokens as u128;
    let mut terms = vec![
        term(MASTERS, "4P", 4 * p),
        term(MOMENTS, "8P", 8 * p),
        term("weights, BF16", "2P", 2 * p),
        gradients(run),
        term(
            "activations",
            format!("T L (2 ({kept}) + 4 (heads + 2)): BF16, statistics F32"),
            tokens * block * model.num_hidden_layers as u128,
        ),
        term("operands", operands, waiting),
        term(
            "gradients of activations",
            "T (2 (4d + qkv + attended) + 8): one block's; that of gate and up takes their place",
            tokens * shared,
        ),
        term("in turns", "the most operands of one linear, a part of the logits, or attention's sums", scratch_bytes(run, ways) as u128),
        term("libraries", "workspace and code, about", LIBRARIES),
    ];
    terms.extend(between.map(|bytes| term("quantised once", "2 of the largest source: what is quantised a second time", bytes)));
    terms
}

impl Memory {
    /// A line for each term, and one for the sum, which ends with `verdict`.
    pub fn write(&self, f: &mut impl fmt::Write, verdict: &str) -> fmt::Result {
        for Term { name, formula, bytes } in &self.terms {
            writeln!(f, "    {name:<24} {:>11}  {formula}", size(*bytes))?;
        }
        writeln!(f, "    {:<24} {:>11}{verdict}", "in all", size(self.bytes))
    }
}

/// In GiB; in MiB what would be less than a tenth of one.
fn size(bytes: u64) -> String {
    let gib = bytes as f64 / GIB;
    if gib < 0.1 { format!("{:.1} MiB", gib * 1024.0) } else { format!("{gib:.1} GiB") }
}

/// For people: each way with its terms, then what is there.
impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory of a run on {}, T = {} tokens at once", self.device, self.tokens)?;
        for way in &self.ways {
            writeln!(f, "  {}", way.keep)?;
            way.write(f, "")?;
        }
        writeln!(f, "    {LETTERS}")?;
        match (self.free_bytes, self.total_bytes) {
            (Some(free), Some(total)) => write!(f, "  {} may be used of {}: ", size(free), size(total))?,
            _ => return writeln!(f, "  the system does not tell how much is there"),
        }
        match self.keeps {
            Some(keep) => writeln!(f, "it fits, {keep}"),
            None => writeln!(f, "it does not fit"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A small model's terms were all shown as `0.0 GiB`.
    #[test]
    fn what_is_less_than_a_tenth_of_a_gib_is_told_in_mib() {
        let term = |name: &str, bytes| Term { name: name.to_owned(), formula: "4P".to_owned(), bytes };
        // A tenth of 2^30 bytes is 102.4 MiB, between the last two.
        for (bytes, expected) in
            [(0, "0.0 MiB"), (1_572_864, "1.5 MiB"), (107_374_182, "102.4 MiB"), (107_374_183, "0.1 GiB"), (3 << 29, "1.5 GiB")]
        {
            assert_eq!(size(bytes), expected);
        }
        let memory = Memory::new(Keep::Least, vec![term("masters", 1 << 20), term("moments", 2 << 20)]);
        let mut text = String::new();
        memory.write(&mut text, ", fits").unwrap();
        let expected = [
            "masters                      1.0 MiB  4P",
            "moments                      2.0 MiB  4P",
            "in all                       3.0 MiB, fits",
        ];
        assert_eq!(text.lines().map(str::trim_start).collect::<Vec<_>>(), expected);
    }
}
