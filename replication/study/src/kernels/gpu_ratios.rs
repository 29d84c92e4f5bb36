//! What is set beside what on a GPU: ratios of kernels, and the bars that training steps, one kernel and memory are held to.
//!
//! `comparisons` has the CPU's, and how a ratio is taken. A bar is a ratio taken in one run on one GPU.

use contract::text::GIB;

use super::comparisons::{Bound, Compared, Comparison, Measured, MemoryRow, Other, bar, label, one, ours, peer, plain};
use super::gpu::{GpuBench, LEAST};
use super::samples::{Memory, Peer, Samples};

const PRODUCTS: &str = "A block's twelve products";
const QUANTISING: &str = "Preparing a block's gradients, both orientations in one read";
const STEPS: &str = "Training steps";
const MEMORY: &str = "Memory";
const LIBRARY: &str = "MXFP4 products, ours over hipBLASLt's";

/// A share of a peak, in percent.
fn share(comparison: Comparison) -> Comparison {
    Comparison { is_share: true, ..comparison }
}

/// Kernels at one set of shapes.
fn kernels(shapes: &str) -> Vec<Comparison> {
    let block = |variant: &str| ours(format!("block/{variant}/{shapes}"));
    let whole = |variant: &str| ours(format!("block+prepare/{variant}/{shapes}"));
    let quantise = |variant: &str| ours(format!("quantise/{variant}/both/{shapes}/all"));
    let peak = |variant: &str| vec![ours(format!("peak/{variant}/{shapes}"))];
    let named = |what: &str| format!("{what}, {shapes}");
    let mut all = vec![
        Comparison {
            paper: Some(1.08),
            ..plain(PRODUCTS, named("MXFP4 H16 over H32, preparing included"), whole("mxfp4-h16"), vec![whole("mxfp4-h32")])
        },
        plain(PRODUCTS, named("MXFP4 without rotation over H16, preparing included"), whole("mxfp4-h0"), vec![whole("mxfp4-h16")]),
        plain(PRODUCTS, named("MXFP4 H16 over BF16, preparing included"), whole("mxfp4-h16"), vec![whole("bf16")]),
        plain(PRODUCTS, named("MXFP4 H16 over FP8, preparing included"), whole("mxfp4-h16"), vec![whole("fp8")]),
        plain(PRODUCTS, named("FP8 over BF16, preparing included"), whole("fp8"), vec![whole("bf16")]),
        plain(PRODUCTS, named("MXFP4 over BF16, products alone"), block("mxfp4-h16"), vec![block("bf16")]),
        plain(PRODUCTS, named("MXFP4 over FP8, products alone"), block("mxfp4-h16"), vec![block("fp8")]),
        plain(PRODUCTS, named("FP8 over BF16, products alone"), block("fp8"), vec![block("bf16")]),
        share(plain(PRODUCTS, named("BF16 products, of the large square product"), block("bf16"), peak("bf16"))),
        share(plain(PRODUCTS, named("FP8 products, of the large square product"), block("fp8"), peak("fp8"))),
        Comparison { paper: Some(1.08), ..plain(QUANTISING, named("H16 over H32"), quantise("mxfp4-h16"), vec![quantise("mxfp4-h32")]) },
        plain(QUANTISING, named("stochastic over nearest-even, H16"), quantise("mxfp4-h16-sr"), vec![quantise("mxfp4-h16")]),
    ];
    // The bar is about the sizes that are trained here.
    let is_trained = shapes.starts_with("h200");
    for (what, variant) in [("H16", "mxfp4-h16"), ("H16 and stochastic", "mxfp4-h16-sr")] {
        let of = format!("{what}, of the device's copy, each byte once, {shapes}");
        let of = share(plain(QUANTISING, of, quantise(variant), vec![ours(format!("copy/{shapes}"))]));
        let bound =
            Bound::Text("rotation, block maximum, rounding and both layouts happen behind one read; what is left is their arithmetic");
        all.push(if is_trained { bar(of, 0.70, bound) } else { of });
    }
    all
}

/// Our product of packed operands over the library's, whichever layout of scales is faster there: of each shape, and of a block's twelve where
/// the library has them all.
fn library(samples: &[Samples]) -> Vec<Comparison> {
    let of = |samples_of: &Samples| {
        let (kind, rest) = samples_of.name.split_once("/mxfp4-h0/").filter(|(kind, _)| ["gemm", "block"].contains(kind))?;
        let theirs = ["mxfp4-hipblaslt", "mxfp4-hipblaslt-swizzled"].map(|variant| format!("{kind}/{variant}/{rest}"));
        let has = |name: &String| samples.iter().any(|other| other.name == *name && other.operations == samples_of.operations);
        let theirs: Vec<Other> = theirs.into_iter().filter(has).map(ours).collect();
        (!theirs.is_empty()).then(|| plain(LIBRARY, rest.to_owned(), ours(samples_of.name.clone()), theirs))
    };
    samples.iter().filter_map(of).collect()
}

/// The peer's recipe that does what one of ours does.
pub fn peer_recipe(arm: &str) -> Option<&'static str> {
    Some(match arm {
        "bf16" => "bf16",
        "fp8" | "fp8-current" => "fp8",
        "mxfp4-fdw" => "mxfp4",
        "mxfp4-fdw-h16" => "mxfp4-h16",
        "mxfp4-fdw-sr" => "mxfp4-sr",
        _ => return None,
    })
}

/// Steps of one size; `arms` are those that were timed.
fn steps(size: &str, arms: &[&str]) -> Vec<Comparison> {
    let step = |arm: &str| ours(format!("step/{size}/{arm}"));
    let theirs = |arm: &str| peer_recipe(arm).map(|recipe| peer(format!("step/{size}/{recipe}")));
    let profile = || Bound::Text("`trainer step-time --profile-step --device cuda` says where the step's time goes");
    let with_bar = |what: String, left: Other, over: Vec<Other>, asked: f64| bar(plain(STEPS, what, left, over), asked, profile());
    let mut all = vec![
        with_bar(format!("BF16 over PyTorch's BF16, {size}"), step("bf16"), theirs("bf16").into_iter().collect(), 1.15),
        with_bar(format!("FP8 over PyTorch's FP8, {size}"), step("fp8"), theirs("fp8").into_iter().collect(), 1.3),
    ];
    let fp8 = plain(STEPS, format!("FP8 over our BF16, {size}"), step("fp8"), vec![step("bf16")]);
    all.push(if size == "h200-m" { bar(fp8, 1.0, profile()) } else { fp8 });
    for arm in arms.iter().filter(|arm| arm.starts_with("mxfp4")) {
        // No slower than 1.25 times the BF16 step is a speed of at least 0.8.
        all.push(with_bar(format!("{arm} over our BF16, {size}"), step(arm), vec![step("bf16")], 0.8));
        if let Some(theirs) = theirs(arm) {
            all.push(with_bar(format!("{arm} over PyTorch's emulation, {size}"), step(arm), vec![theirs], 1.6));
        }
    }
    all
}

/// Every ratio of one GPU, in the order of its table.
pub fn compare(gpu: &GpuBench, peers_asked: bool) -> Vec<Compared> {
    let evidence = Measured {
        ours: &gpu.samples,
        peers: &gpu.peers,
        missing: &gpu.missing,
        peers_asked,
        profile: &[],
        benchmarks: &[],
        memory: &gpu.memory,
    };
    let mut all: Vec<Comparison> = third_parts(&gpu.samples, "copy/").into_iter().flat_map(kernels).collect();
    all.extend(library(&gpu.samples));
    for size in sizes(&gpu.samples) {
        all.extend(steps(size, &arms(&gpu.samples, size)));
    }
    let mut compared: Vec<Compared> = all.iter().filter_map(|comparison| one(comparison, &evidence, 1, true)).collect();
    compared.extend(gpu.memory.iter().filter_map(|ours| memory(ours, &evidence)));
    compared.into_iter().map(|compared| over_compiled(compared, &gpu.peers)).collect()
}

/// A bar over PyTorch is a bar over its compiled step: what is over its eager one does not meet it, but leaves it open.
pub(super) fn over_compiled(compared: Compared, peers: &[Peer]) -> Compared {
    let of = |peer: &&Peer| compared.over == format!("{} of {}", peer.name, peer.peer);
    let Some(peer) = peers.iter().find(of).filter(|peer| compared.verdict == "met" && peer.note.starts_with("eager")) else {
        return compared;
    };
    let note = format!("the bar is over the compiled step, and PyTorch ran it uncompiled ({})", peer.note);
    Compared { verdict: "open".to_owned(), note, ..compared }
}

/// What follows `start` in names, each once.
fn third_parts<'a>(samples: &'a [Samples], start: &str) -> Vec<&'a str> {
    samples.iter().filter_map(|samples| samples.name.strip_prefix(start)).collect()
}

fn sizes(samples: &[Samples]) -> Vec<&str> {
    let mut all: Vec<&str> = third_parts(samples, "step/").into_iter().filter_map(|rest| Some(rest.split_once('/')?.0)).collect();
    all.dedup();
    all
}

fn arms<'a>(samples: &'a [Samples], size: &str) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for arm in third_parts(samples, &format!("step/{size}/")) {
        if !all.contains(&arm) {
            all.push(arm);
        }
    }
    all
}

/// The peer's memory at the same batch over ours; none for an arm that no peer has.
fn memory(ours: &Memory, evidence: &Measured<'_>) -> Option<Compared> {
    let (start, arm) = ours.name.trim_end_matches(LEAST).rsplit_once('/')?;
    Some(memory_over(ours, format!("{start}/{}", peer_recipe(arm)?), evidence))
}

/// The memory of the peer of this name over ours.
pub(super) fn memory_over(ours: &Memory, name: String, evidence: &Measured<'_>) -> Compared {
    let (absent, over) = (format!("{name} was not measured"), peer(name));
    let theirs = over.peer(evidence).and_then(|peer| peer.peak_bytes);
    let what = format!("PyTorch's memory over ours, {}", ours.name.trim_start_matches("step/"));
    let unit = |bytes| format!("{:.2} GiB", bytes as f64 / GIB);
    MemoryRow { section: MEMORY, what, ours, over: label(&over, evidence), theirs, absent, threads: 1, unit }.compared()
}
