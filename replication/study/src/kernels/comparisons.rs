//! What is set beside what on a CPU: every ratio, the bars among them, and which of our kernels meets which peer; and how a ratio is taken.
//!
//! A ratio is speed over speed. Members of one group took turns, so their ratio is taken within each round and has the sign test's
//! interval; two measurements of different programs have the ratio of their medians, with a bootstrap interval.

use serde::{Deserialize, Serialize};

use super::profile::ProfileRow;
use super::samples::{Benchmark, Memory, Missing, Peer, Samples};
use crate::number;
use crate::statistics::median_ratio;
use crate::statistics::{bootstrap_ratio_of_medians, median};

/// A measurement that something is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Other {
    /// Ours, with as many threads.
    Ours(String),
    OursAt(String, usize),
    Peer(String),
}

/// What a note says when a bar is missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    Text(&'static str),
    /// What share of its peak criterion found, then this.
    Peak(&'static str),
    /// The rest of a step, from the profile of this size.
    Step(&'static str),
}

/// One ratio to take: our speed over that of the fastest of `over`.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub section: &'static str,
    pub what: String,
    pub ours: Other,
    pub over: Vec<Other>,
    /// At least this much is asked.
    pub bar: Option<f64>,
    /// What the paper reports for its own device.
    pub paper: Option<f64>,
    /// Shown in percent.
    pub is_share: bool,
    pub bound: Bound,
}

/// One ratio taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    pub section: String,
    pub what: String,
    pub ours: String,
    /// What it was compared with: the fastest of those named, where several are.
    pub over: String,
    pub threads: usize,
    /// Our speed over the other's; null when one was not measured.
    pub ratio: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// Rounds, or samples of the side that has fewer.
    pub n: usize,
    /// Whether both took turns, so that sample i of both is of round i.
    pub in_turns: bool,
    /// A ratio to a peak, shown in percent.
    pub is_share: bool,
    pub bar: Option<f64>,
    pub paper: Option<f64>,
    /// `met`, `missed` or `open`, for a bar; empty otherwise.
    pub verdict: String,
    /// Why a bar is open, or what bounds it when it is missed.
    pub note: String,
}

/// Everything that ratios are taken of.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    pub ours: &'a [Samples],
    pub peers: &'a [Peer],
    pub missing: &'a [Missing],
    pub peers_asked: bool,
    pub profile: &'a [ProfileRow],
    pub benchmarks: &'a [Benchmark],
    pub memory: &'a [Memory],
}

const REFERENCE: &str = "2048x1024x1024";
const PRODUCTS: &str = "Products";
const QUANTISING: &str = "Quantisation";
const LINEARS: &str = "Linears of a block, forward and backward, 4096 tokens";
const STEPS: &str = "Training steps";

pub fn ours(name: impl Into<String>) -> Other {
    Other::Ours(name.into())
}

pub fn peer(name: impl Into<String>) -> Other {
    Other::Peer(name.into())
}

/// A comparison without a bar.
pub fn plain(section: &'static str, what: impl Into<String>, left: Other, over: Vec<Other>) -> Comparison {
    Comparison { section, what: what.into(), ours: left, over, bar: None, paper: None, is_share: false, bound: Bound::Text("") }
}

pub fn bar(mut comparison: Comparison, bar: f64, bound: Bound) -> Comparison {
    comparison.bar = Some(bar);
    comparison.bound = bound;
    comparison
}

/// Every comparison, in the order of the table. The bars are those of the project's CPU targets.
pub fn all() -> Vec<Comparison> {
    let mut all = products();
    all.extend(quantisation());
    all.extend(linears());
    all.extend(steps());
    all
}

fn products() -> Vec<Comparison> {
    let gemm = |format: &str| ours(format!("gemm/{format}/{REFERENCE}"));
    let theirs = |format: &str| peer(format!("gemm/{format}/{REFERENCE}"));
    let share =
        |what: &str, format: &str, peak: &str| Comparison { is_share: true, ..plain(PRODUCTS, what, gemm(format), vec![ours(peak)]) };
    let ceiling = Bound::Text(
        "a block of 32 takes two F32 instructions beside its 8 integer steps, so 80 % is the most where all of them share the same ports",
    );
    let mut all = vec![
        bar(
            share("MXFP4 product of prepared operands, of the integer dot-product peak", "mxfp4", "peak/integer-dot"),
            0.72,
            ceiling.clone(),
        ),
        bar(
            plain(
                PRODUCTS,
                "MXFP4 with preparing both operands, over the best F32",
                gemm("mxfp4+prepare"),
                vec![gemm("f32"), theirs("f32")],
            ),
            3.2,
            ceiling.clone(),
        ),
        bar(
            plain(PRODUCTS, "MXFP4 with preparing both operands, over ggml's MXFP4 x Q8_0", gemm("mxfp4+prepare"), vec![theirs("mxfp4")]),
            4.8,
            ceiling,
        ),
        bar(
            plain(PRODUCTS, "F32 multiply-adds of prepared operands (FP8, BF16 arms), over MKL's F32", gemm("fp8"), vec![theirs("f32")]),
            1.0,
            Bound::Peak("operands are prepared beforehand, so what is left is the inner loop and its loads"),
        ),
        bar(
            share("F32 multiply-adds of prepared operands, of their peak", "fp8", "peak/f32-fma"),
            0.85,
            Bound::Text("operands are prepared beforehand, so what is left is the inner loop and its loads"),
        ),
        plain(PRODUCTS, "MXFP4 over our FP8, preparing included", gemm("mxfp4+prepare"), vec![gemm("fp8+prepare")]),
        plain(PRODUCTS, "MXFP4 over our F32, preparing and packing included", gemm("mxfp4+prepare"), vec![gemm("f32")]),
        Comparison {
            paper: Some(1.08),
            ..plain(PRODUCTS, "H16 over H32, preparing included", gemm("mxfp4-h16+prepare"), vec![gemm("mxfp4-h32+prepare")])
        },
        plain(PRODUCTS, "no rotation over H16", gemm("mxfp4+prepare"), vec![gemm("mxfp4-h16+prepare")]),
        plain(PRODUCTS, "nearest-even over stochastic, H16", gemm("mxfp4-h16+prepare"), vec![gemm("mxfp4-h16-stochastic+prepare")]),
    ];
    for (what, format, other) in [
        ("F32 with packing, over PyTorch's F32", "f32", "f32"),
        ("BF16 with preparing, over PyTorch's BF16", "bf16+prepare", "bf16"),
        ("FP8 with preparing, over torch._scaled_mm", "fp8+prepare", "fp8"),
        ("FP8 with preparing, over PyTorch's dequantise and F32", "fp8+prepare", "fp8-dequantise"),
        ("MXFP4 product of prepared operands, over PyTorch's INT8 (no scales)", "mxfp4", "int8"),
        ("MXFP4 with preparing, over ggml's plain MXFP4 x Q8_0", "mxfp4+prepare", "mxfp4-plain"),
    ] {
        all.push(plain(PRODUCTS, what, gemm(format), vec![theirs(other)]));
    }
    all
}

fn quantisation() -> Vec<Comparison> {
    let quantise = |kind: &str| ours(format!("quantise/{kind}/4096x1024"));
    let theirs = |kind: &str| peer(format!("quantise/mxfp4-nearest-even/{kind}/4096x1024"));
    let nearest = || quantise("mxfp4-nearest-even-none");
    let memory = Bound::Peak("source and panels together do not fit the second-level cache");
    vec![
        bar(plain(QUANTISING, "MXFP4 nearest-even over torchao, eager", nearest(), vec![theirs("torchao-eager")]), 80.0, memory.clone()),
        bar(
            plain(QUANTISING, "MXFP4 nearest-even over torchao, compiled", nearest(), vec![theirs("torchao-compiled")]),
            40.0,
            memory.clone(),
        ),
        bar(
            plain(
                QUANTISING,
                "H16 and stochastic, over torchao's plain nearest-even, eager",
                quantise("mxfp4-stochastic-h16"),
                vec![theirs("torchao-eager")],
            ),
            40.0,
            memory,
        ),
        plain(QUANTISING, "stochastic over nearest-even", quantise("mxfp4-stochastic-none"), vec![nearest()]),
        plain(QUANTISING, "H16 over no rotation", quantise("mxfp4-nearest-even-h16"), vec![nearest()]),
        Comparison {
            paper: Some(1.08),
            ..plain(QUANTISING, "H16 over H32", quantise("mxfp4-nearest-even-h16"), vec![quantise("mxfp4-nearest-even-h32")])
        },
        plain(QUANTISING, "MXFP4 nearest-even over microxcaling", nearest(), vec![theirs("microxcaling")]),
        plain(QUANTISING, "MXFP4 nearest-even over a compiled PyTorch emulation", nearest(), vec![theirs("emulated-compiled")]),
        plain(QUANTISING, "MXFP4 nearest-even over the element cast of ml_dtypes", nearest(), vec![theirs("ml_dtypes-cast")]),
    ]
}

fn linears() -> Vec<Comparison> {
    let mut all = Vec::new();
    for (width, asked) in [(128, 2.2), (256, 2.5)] {
        let linear = |kind: &str| ours(format!("linear/{kind}/4096x{width}"));
        let over =
            |what: &str, left: &str, right: &str| plain(LINEARS, format!("{what}, width {width}"), linear(left), vec![linear(right)]);
        all.push(bar(
            over("MXFP4 over our FP8", "mxfp4", "fp8"),
            asked,
            Bound::Text("at this width preparing operands takes as long as their products"),
        ));
        all.push(over("MXFP4 over our F32", "mxfp4", "f32"));
        all.push(over("MXFP4 with H16 over our FP8", "mxfp4-h16", "fp8"));
        all.push(Comparison { paper: Some(1.08), ..over("H16 over H32", "mxfp4-h16", "mxfp4-h32") });
        all.push(over("stochastic over nearest-even", "mxfp4-stochastic", "mxfp4"));
    }
    all
}

fn steps() -> Vec<Comparison> {
    let mut all = Vec::new();
    for (size, over_fp8) in [("A", 1.45), ("B", 1.5)] {
        let (mx, fp8) = (|| ours(format!("step/{size}/mxfp4-fdw-h16")), || ours(format!("step/{size}/fp8")));
        let theirs = |precision: &str| peer(format!("step/{size}/{precision}"));
        let mut step = |what: &str, left: Other, over: Vec<Other>, asked: f64| {
            let comparison = plain(STEPS, format!("{what}, size {size}"), left, over);
            all.push(bar(comparison, asked, Bound::Step(size)));
        };
        step("full MXFP4 with H16 over our FP8", mx(), vec![fp8()], over_fp8);
        step("full MXFP4 with H16 over PyTorch F32, eager", mx(), vec![theirs("f32-eager")], 2.3);
        step("full MXFP4 with H16 over PyTorch F32, compiled", mx(), vec![theirs("f32-compiled")], 1.9);
        step("our FP8 over PyTorch F32, eager", fp8(), vec![theirs("f32-eager")], 1.5);
        step("our FP8 over PyTorch's emulated FP8, compiled", fp8(), vec![theirs("fp8-emulated-compiled")], 1.5);
        let emulated = vec![theirs("mxfp4-emulated-eager"), theirs("mxfp4-emulated-compiled")];
        step("full MXFP4 with H16 over the best PyTorch emulation", mx(), emulated, 6.0);
        step("full MXFP4 with H16 over microxcaling", mx(), vec![theirs("microxcaling-mxfp4")], 15.0);
        step("full MXFP4 with H16 over torchao", mx(), vec![theirs("torchao-mxfp4")], 20.0);
    }
    let one = Other::OursAt("step/A/mxfp4-fdw-h16".to_owned(), 1);
    let two = Other::OursAt("step/A/mxfp4-fdw-h16".to_owned(), 2);
    let threads = plain(STEPS, "two threads over one, full MXFP4 with H16, size A", two, vec![one]);
    all.push(bar(threads, 1.8, Bound::Text("parts of a step that one thread does, and what both share: memory, and the processor's power; a busy neighbour shows here first")));
    all
}

/// What a step needs in memory, over what PyTorch's F32 step does: its whole process less what was resident before its model was
/// made, against our whole process.
fn memory(evidence: &Measured<'_>, threads: usize) -> Vec<Compared> {
    let of = |size: &str| {
        let (name, over) = (format!("step/{size}/mxfp4-fdw-h16"), peer(format!("step/{size}/f32-eager")));
        let ours = evidence.memory.iter().find(|memory| memory.name == name)?;
        let what = format!("PyTorch F32 eager's memory, libraries left out, over our whole process, size {size}");
        let theirs = over.peer(evidence).and_then(|peer| memory_of_note(&peer.note));
        let absent = why_absent(&over, evidence);
        let over = label(&over, evidence);
        Some(
            MemoryRow { section: "Memory", what, ours, over, theirs, absent, threads, unit: |bytes| format!("{} MiB", bytes >> 20) }
                .compared(),
        )
    };
    ["A", "B"].into_iter().filter_map(of).collect()
}

/// A peer's memory over ours, which must be at least 1.
pub(super) struct MemoryRow<'a> {
    pub(super) section: &'static str,
    pub(super) what: String,
    pub(super) ours: &'a Memory,
    /// What the peer's is called.
    pub(super) over: String,
    /// Its bytes, where it was measured.
    pub(super) theirs: Option<u64>,
    /// Why it was not.
    pub(super) absent: String,
    pub(super) threads: usize,
    pub(super) unit: fn(u64) -> String,
}

impl MemoryRow<'_> {
    pub(super) fn compared(self) -> Compared {
        let Self { section, what, ours: Memory { name, peak_bytes }, over, theirs, absent, threads, unit } = self;
        let ratio = theirs.map(|theirs| theirs as f64 / *peak_bytes as f64);
        let (verdict, note) = match (ratio, theirs) {
            (Some(ratio), Some(theirs)) => {
                (if ratio < 1.0 { "missed" } else { "met" }, format!("{} against {}", unit(*peak_bytes), unit(theirs)))
            }
            _ => ("open", format!("{absent}; ours is {}", unit(*peak_bytes))),
        };
        Compared {
            section: section.to_owned(),
            what,
            ours: name.clone(),
            over,
            threads,
            ratio,
            interval: None,
            n: usize::from(ratio.is_some()),
            in_turns: false,
            is_share: false,
            bar: Some(1.0),
            paper: None,
            verdict: verdict.to_owned(),
            note,
        }
    }
}

impl Other {
    /// The peer's measurement, whatever its threads.
    pub(super) fn peer<'a>(&self, evidence: &Measured<'a>) -> Option<&'a Peer> {
        let Self::Peer(name) = self else { return None };
        evidence.peers.iter().find(|peer| peer.name == *name)
    }
}

/// `peak resident memory of the process 812 MiB, 400 MiB before the model was made`: the difference, in bytes.
pub fn memory_of_note(note: &str) -> Option<u64> {
    let (_, rest) = note.split_once("peak resident memory of the process ")?;
    let (peak, rest) = rest.split_once(" MiB, ")?;
    let (before, _) = rest.split_once(" MiB before the model was made")?;
    peak.parse::<u64>().ok()?.checked_sub(before.parse().ok()?).map(|mebibytes| mebibytes << 20)
}

/// Takes every comparison whose own side was measured, at `threads`.
pub fn compare(evidence: &Measured<'_>, threads: usize, bars: bool) -> Vec<Compared> {
    let wanted = all().into_iter().filter(|comparison| bars || !matches!(comparison.ours, Other::OursAt(..)));
    let mut compared: Vec<Compared> = wanted.filter_map(|comparison| one(&comparison, evidence, threads, bars)).collect();
    if bars {
        compared.extend(memory(evidence, threads));
    }
    compared
}

pub fn one(comparison: &Comparison, evidence: &Measured<'_>, threads: usize, bars: bool) -> Option<Compared> {
    let left = find(&comparison.ours, evidence, threads, "")?;
    let found = |other: &Other| find(other, evidence, threads, &left.group);
    let taken: Vec<(String, Taken)> =
        comparison.over.iter().filter_map(|other| Some((label(other, evidence), ratio(&left, &found(other)?)?))).collect();
    let absent: Vec<&Other> = comparison.over.iter().filter(|other| found(other).is_none()).collect();
    let worst = taken.iter().min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    // A ratio that has no bar and nothing to stand beside is no row.
    if worst.is_none() && (comparison.bar.is_none() || !bars) {
        return None;
    }
    let asked = comparison.bar.filter(|_| bars);
    let verdict = match (asked, worst) {
        (None, _) => "",
        (Some(bar), Some((_, taken))) if taken.ratio < bar => "missed",
        (Some(_), Some(_)) if absent.is_empty() => "met",
        _ => "open",
    };
    let note = match verdict {
        "missed" => bound(&comparison.bound, &left, evidence),
        "open" => absent.iter().map(|other| why_absent(other, evidence)).collect::<Vec<_>>().join("; "),
        _ => String::new(),
    };
    let names = comparison.over.iter().map(|other| label(other, evidence)).collect::<Vec<_>>().join(" and ");
    Some(Compared {
        section: comparison.section.to_owned(),
        what: comparison.what.clone(),
        ours: left.name.clone(),
        over: worst.map_or(names, |(label, _)| label.clone()),
        threads: left.threads,
        ratio: worst.map(|(_, taken)| taken.ratio),
        interval: worst.and_then(|(_, taken)| taken.interval),
        n: worst.map_or(0, |(_, taken)| taken.n),
        in_turns: worst.is_some_and(|(_, taken)| taken.in_turns),
        is_share: comparison.is_share,
        bar: asked,
        paper: comparison.paper,
        verdict: verdict.to_owned(),
        note,
    })
}

/// The measurement, of `group` where there are several of one name, as of peaks.
fn find(other: &Other, evidence: &Measured<'_>, threads: usize, group: &str) -> Option<Samples> {
    let (name, threads) = match other {
        Other::Ours(name) => (name, threads),
        Other::OursAt(name, threads) => (name, *threads),
        Other::Peer(name) => {
            let peer = evidence.peers.iter().find(|peer| peer.name == *name && peer.threads == threads)?;
            let group = if peer.in_turns { group.to_owned() } else { String::new() };
            return Some(Samples { group, ..peer.as_samples() });
        }
    };
    let mut named = evidence.ours.iter().filter(|samples| samples.name == *name && samples.threads == threads);
    named.clone().find(|samples| samples.group == group).or_else(|| named.next()).cloned()
}

pub(super) fn label(other: &Other, evidence: &Measured<'_>) -> String {
    match other {
        Other::Ours(name) => name.clone(),
        Other::OursAt(name, threads) => format!("{name} with {threads} thread{}", number::plural(*threads)),
        Other::Peer(name) => other.peer(evidence).map_or_else(|| name.clone(), |peer| format!("{name} of {}", peer.peer)),
    }
}

fn why_absent(other: &Other, evidence: &Measured<'_>) -> String {
    match other {
        Other::Peer(name) => match evidence.missing.iter().find(|missing| missing.name == *name) {
            Some(missing) if missing.install.is_empty() => format!("{} did not run: {}", missing.peer, missing.reason),
            Some(missing) => format!("{} did not run: {}; {}", missing.peer, missing.reason, missing.install),
            None if evidence.peers_asked => format!("the peer script gave no {name}"),
            None => format!("needs --peers, for {name}"),
        },
        other => format!("{} was not measured", label(other, evidence)),
    }
}

/// A ratio of speeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Taken {
    pub ratio: f64,
    /// Its 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// Rounds, or samples of the side that has fewer.
    pub n: usize,
    pub in_turns: bool,
}

/// Speed of `left` over speed of `right`.
pub(super) fn ratio(left: &Samples, right: &Samples) -> Option<Taken> {
    let work = left.operations as f64 / right.operations as f64;
    let in_turns = !left.group.is_empty() && left.group == right.group && left.samples.len() == right.samples.len();
    if in_turns {
        let rounds: Vec<f64> = left.samples.iter().zip(&right.samples).map(|(left, right)| work * right / left).collect();
        let taken = median_ratio(&rounds)?;
        let interval = taken.interval.map(|interval| [interval.low, interval.high]);
        return Some(Taken { ratio: taken.ratio, interval, n: taken.n, in_turns });
    }
    let ratio = work * median(&right.samples)? / median(&left.samples)?;
    let interval = bootstrap_ratio_of_medians(&right.samples, &left.samples).map(|i| [work * i.low, work * i.high]);
    Some(Taken { ratio, interval, n: left.samples.len().min(right.samples.len()), in_turns })
}

/// What bounds a missed bar.
fn bound(bound: &Bound, ours: &Samples, evidence: &Measured<'_>) -> String {
    let size = match bound {
        Bound::Text(text) => return (*text).to_owned(),
        Bound::Peak(text) => {
            let found = evidence.benchmarks.iter().find(|found| found.name == ours.name && found.threads == ours.threads);
            let of = found.and_then(|found| Some((found.peak_share?, found.peak.as_deref()?)));
            return of.map_or_else(|| (*text).to_owned(), |(share, peak)| format!("it reaches {:.0} % of {peak}; {text}", 100.0 * share));
        }
        Bound::Step(size) => size,
    };
    let arm = ours.name.rsplit('/').next().unwrap_or_default();
    let mut rows: Vec<&ProfileRow> = evidence.profile.iter().filter(|row| row.size == *size && row.arm == arm).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    if rows.is_empty() {
        return "no profile of this step was taken".to_owned();
    }
    let largest: Vec<String> = rows.iter().take(4).map(|row| format!("{} {:.0} %", row.kernel, 100.0 * row.share)).collect();
    let quantised: f64 = rows.iter().filter(|row| is_of_the_recipe(&row.kernel)).map(|row| row.share).sum();
    format!(
        "most of the step: {}; what the recipe changes is {:.0} % of it, and the rest bounds any gain",
        largest.join(", "),
        100.0 * quantised
    )
}

/// Kernels whose time depends on the recipe.
fn is_of_the_recipe(kernel: &str) -> bool {
    ["quantise-mxfp4", "prepare-float", "gemm-mxfp4", "gemm-float"].contains(&kernel)
}
