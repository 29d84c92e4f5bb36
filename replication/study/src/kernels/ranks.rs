//! Training steps that several ranks compute together, each rank with as many sequences: how fast they are, how far from ideal scaling, what
//! of the exchange computing does not hide, and PyTorch's sharded step beside them.

use std::collections::BTreeSet;

use contract::measurements::StepExchange;
use contract::text::GIB;
use serde::{Deserialize, Serialize};

use super::comparisons::{Bound, Compared, Comparison, Measured, Taken, bar, one, ours, peer, plain, ratio};
use super::gpu_ratios::{memory_over, over_compiled, peer_recipe};
use super::samples::{Memory, Missing, Peer, Samples};
use crate::number::thousands;
use crate::statistics::{Interval, median, median_ratio};

/// The paper's model with one sequence a rank, the same with the paper's batch dealt out, and as many of its layers as fit into one GPU.
pub const WHOLE: &str = "llama31-8b";
pub const WHOLE_BATCH: &str = "llama31-8b-32-sequences";
pub const CUT: &str = "llama31-8b-8-layers";

const STEPS: &str = "Steps of several ranks";
const PARTS: &str = "Kernels of a step";
/// What a ratio to PyTorch begins with.
const OVER_PEER: &str = "over PyTorch's";
/// What scaling begins with.
const OF_IDEAL: &str = "of ideal scaling";

/// What tells more of a step that misses its bar.
const PROFILE: &str = "trainer step-time --profile-step --gpus N says where the step's time goes";

/// What is asked of each kind of kernel, as a share of its peak. On an H200 it is 450 TFLOP/s of attention, which cuDNN exceeds without an order
/// of its sums; 42 ms of head and loss, whose three products take 37; and 85 % of what a copy reaches.
const PART_BARS: [(&str, f64); 3] = [("attention", 0.455), ("head", 0.62), ("optimizer", 0.75)];

/// The steps of one kind of device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RanksBench {
    /// `cuda`, `hip` or `cpu`, where ranks are processes.
    pub device: String,
    /// Its maker's name for the first GPU, or for the processor; empty where there is none.
    pub name: String,
    /// Driver and libraries with versions.
    pub libraries: Vec<String>,
    /// `native` where an FP4 unit multiplies, else `emulated`.
    pub mxfp4: String,
    /// Every step that was asked for, measured or not.
    pub steps: Vec<RankStep>,
    /// Every ratio, computed from the above.
    pub comparisons: Vec<Compared>,
}

/// One recipe's step of one model by one number of ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankStep {
    /// Model and batch.
    pub size: String,
    pub arm: String,
    pub ranks: usize,
    /// That one rank computes in a step.
    pub tokens: u64,
    /// Seconds of each step; empty where it was not measured.
    pub samples: Vec<f64>,
    /// What of each of these steps went to exchanges, of each rank; empty of one rank, which has none.
    pub exchange: Vec<Exchange>,
    /// Most device memory of a rank.
    pub peak_bytes: Option<u64>,
    /// PyTorch's, in turns with ours.
    pub peer: Option<Peer>,
    /// What is not there, ours or the peer's.
    pub missing: Vec<Missing>,
    /// Kinds of kernels of this step, of one GPU alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// What one kind of kernel does in a step, and how long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// `attention`, `head` or `optimizer`, as `trainer step-time --profile-step` calls it.
    pub kernel: String,
    /// Operations, or bytes to and from memory.
    pub work: u64,
    /// `FLOP` or `bytes`.
    pub unit: String,
    /// Its maker's peak for one second.
    pub peak: f64,
    /// Seconds in each step.
    pub samples: Vec<f64>,
}

/// Seconds of one step that computing of one rank did not hide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Benches of earlier trainers have rank 0 alone.
    #[serde(default)]
    pub rank: usize,
    pub gradients: f64,
    pub norm: f64,
    pub parameters: f64,
}

impl From<&StepExchange> for Exchange {
    fn from(&StepExchange { rank, gradients, norm, parameters, .. }: &StepExchange) -> Self {
        Self { rank: rank as usize, gradients, norm, parameters }
    }
}

impl Exchange {
    pub fn sum(&self) -> f64 {
        self.gradients + self.norm + self.parameters
    }
}

/// A step as a row: medians, and what they are compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct RankRow<'a> {
    pub step: &'a RankStep,
    /// None where it was not measured.
    pub timed: Option<Timed>,
    pub peer: Option<Beside>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    pub seconds: f64,
    /// The sign test's; none below six samples.
    pub interval: Option<[f64; 2]>,
    /// Of one rank.
    pub tokens_per_second: f64,
    /// Speed of a rank over that with the fewest ranks measured, and how many those were; none of these themselves.
    pub of_ideal: Option<(Taken, usize)>,
    pub waits: Option<Waits>,
}

/// How ranks wait for each other, as shares of the median step. They end every exchange together, so a rank that is faster than another waits for
/// it however fast the exchange is. The least wait of any rank is the most that the exchange itself can cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waits {
    /// Medians of the parts, of the rank that waits least.
    pub least: Exchange,
    /// Of the rank that waits most; none where one rank's waiting was recorded alone.
    pub most: Option<Exchange>,
}

/// The peer's median, and our speed over its.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    pub seconds: f64,
    pub tokens_per_second: f64,
    pub ours: Option<Taken>,
}

/// Columns of a table of steps, after the recipe and the number of ranks.
pub const COLUMNS: [&str; 7] =
    ["Step", "Tokens/s each", "Of ideal", "Exchange not hidden", "Memory each", "PyTorch, tokens/s", "Ours : PyTorch"];

impl RankRow<'_> {
    /// Texts of [`COLUMNS`]: a number, and what a reader may want beside it.
    pub fn cells(&self) -> [(String, String); 7] {
        const NONE: &str = "–";
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let beside = |[low, high]: [f64; 2]| format!("[{low:.2}, {high:.2}]");
        let time = |seconds: f64| if seconds < 1.0 { format!("{:.1} ms", 1e3 * seconds) } else { format!("{seconds:.2} s") };
        let memory = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB);
        let none = || (NONE.to_owned(), String::new());
        let of = |timed: fn(&Timed) -> Option<(String, String)>| self.timed.as_ref().and_then(timed).unwrap_or_else(none);
        let step = self.timed.as_ref().map_or_else(none, |timed| {
            let interval = timed.interval.map(|[low, high]| format!("[{}, {}]", time(low), time(high)));
            (time(timed.seconds), interval.unwrap_or_default())
        });
        let exposed = self.timed.as_ref().and_then(|timed| timed.waits).map_or_else(none, |Waits { least, most }| {
            let [gradients, norm, parameters] = [least.gradients, least.norm, least.parameters].map(|part| format!("{:.1}", 100.0 * part));
            let most = most.map(|most| format!(" (to {})", percent(most.sum()))).unwrap_or_default();
            (percent(least.sum()) + &most, format!("{gradients} + {norm} + {parameters}"))
        });
        let peer = self.peer.as_ref();
        [
            step,
            of(|timed| Some((thousands(timed.tokens_per_second), String::new()))),
            of(|timed| timed.of_ideal.map(|(taken, fewest)| (format!("{:.2}", taken.ratio), format!("from {fewest}")))),
            exposed,
            self.step.peak_bytes.map_or_else(none, |bytes| (memory(bytes), String::new())),
            peer.map_or_else(none, |peer| {
                let theirs = self.step.peer.as_ref().and_then(|peer| peer.peak_bytes).map(memory);
                (thousands(peer.tokens_per_second), theirs.unwrap_or_default())
            }),
            peer.and_then(|peer| peer.ours)
                .map_or_else(none, |ours| (format!("{:.2}", ours.ratio), ours.interval.map(beside).unwrap_or_default())),
        ]
    }
}

impl RankStep {
    /// What a filter looks at: `step/llama31-8b/fp8/4`.
    pub fn name(&self) -> String {
        format!("step/{}/{}/{}", self.size, self.arm, self.ranks)
    }

    /// The peer's name for it, where it has such a recipe; the peer has no micro-batches.
    pub fn peer_name(&self) -> Option<String> {
        let recipe = peer_recipe(&self.arm).filter(|_| self.size != WHOLE_BATCH)?;
        Some(format!("step/{}/{recipe}/{}", self.size, self.ranks))
    }

    /// What one rank computes; in a group of its own, which it shares with the peer that took turns.
    fn samples(&self) -> Option<Samples> {
        let Self { tokens: operations, samples, .. } = self;
        let (group, name) = (self.name(), self.name());
        (!samples.is_empty()).then(|| Samples {
            group,
            name,
            threads: 1,
            operations: *operations,
            unit: "tokens".to_owned(),
            samples: samples.clone(),
        })
    }

    fn waits(&self) -> Option<Waits> {
        let seconds = median(&self.samples)?;
        let ranks: BTreeSet<usize> = self.exchange.iter().map(|exchange| exchange.rank).collect();
        let of_rank = |rank: usize| {
            let own = || self.exchange.iter().filter(|exchange| exchange.rank == rank);
            let of = |part: fn(&Exchange) -> f64| Some(median(&own().map(part).collect::<Vec<_>>())? / seconds);
            Some(Exchange { rank, gradients: of(|e| e.gradients)?, norm: of(|e| e.norm)?, parameters: of(|e| e.parameters)? })
        };
        let mut all = ranks.into_iter().map(of_rank).collect::<Option<Vec<_>>>()?;
        all.sort_by(|one, other| one.sum().total_cmp(&other.sum()));
        Some(Waits { least: *all.first()?, most: all.last().copied().filter(|_| all.len() > 1) })
    }

    fn beside(&self) -> Option<Beside> {
        let theirs = self.peer.as_ref()?;
        let seconds = median(&theirs.samples)?;
        let ours = self.samples().and_then(|ours| ratio(&ours, &Samples { group: ours.group.clone(), ..theirs.as_samples() }));
        Some(Beside { seconds, tokens_per_second: theirs.operations as f64 / seconds, ours })
    }

    /// What is missing, in one line.
    pub fn needs(&self) -> String {
        let one = |missing: &Missing| format!("{}: {} {}", missing.peer, missing.reason, missing.install).trim().to_owned();
        self.missing.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// `fp8, 4 ranks, llama31-8b`.
    fn named(&self) -> String {
        let Self { size, arm, ranks, .. } = self;
        format!("{arm}, {ranks} rank{}, {size}", crate::number::plural(*ranks))
    }
}

impl RanksBench {
    /// `NVIDIA H200 (cuda; MXFP4 emulated; CUDA driver 13.0)`; what is known of a device that is not here is its kind.
    pub fn title(&self) -> String {
        let Self { device, name, libraries, mxfp4, .. } = self;
        let name = if name.is_empty() { "no GPU" } else { name };
        let libraries = libraries.iter().map(|library| format!("; {library}")).collect::<String>();
        format!("{name} ({device}; MXFP4 {mxfp4}{libraries})")
    }

    /// What a rank computes on.
    pub fn each(&self) -> &'static str {
        if self.device == "cpu" { "processes" } else { "GPUs" }
    }

    /// Everything that is missing, of all steps.
    pub fn missing(&self) -> Vec<Missing> {
        self.steps.iter().flat_map(|step| step.missing.clone()).collect()
    }

    /// A row for every step that was asked for.
    pub fn rows(&self) -> Vec<RankRow<'_>> {
        self.steps.iter().map(|step| RankRow { step, timed: self.timed(step), peer: step.beside() }).collect()
    }

    fn timed(&self, step: &RankStep) -> Option<Timed> {
        let taken = median_ratio(&step.samples)?;
        let of_ideal = self.fewest(step).and_then(|fewest| Some((ratio(&step.samples()?, &fewest.samples()?)?, fewest.ranks)));
        Some(Timed {
            seconds: taken.ratio,
            interval: taken.interval.map(|Interval { low, high }| [low, high]),
            tokens_per_second: step.tokens as f64 / taken.ratio,
            of_ideal,
            waits: step.waits(),
        })
    }

    /// The same step by the fewest ranks that it was measured with, if those are fewer.
    fn fewest(&self, step: &RankStep) -> Option<&RankStep> {
        let same = self.steps.iter().filter(|other| (&other.size, &other.arm) == (&step.size, &step.arm) && !other.samples.is_empty());
        same.min_by_key(|other| other.ranks).filter(|other| other.ranks < step.ranks)
    }

    /// Every ratio: of kernels, of steps, of memory, each in the order of the steps.
    pub fn compare(&self, peers_asked: bool) -> Vec<Compared> {
        let all: Vec<Samples> = self.steps.iter().filter_map(RankStep::samples).collect();
        let peers: Vec<Peer> = self.steps.iter().filter_map(|step| step.peer.clone()).collect();
        let missing = self.missing();
        let evidence = Measured { ours: &all, peers: &peers, missing: &missing, peers_asked, profile: &[], benchmarks: &[], memory: &[] };
        let measured = || self.steps.iter().filter(|step| !step.samples.is_empty());
        let mut compared: Vec<Compared> = measured().flat_map(|step| step.parts.iter().filter_map(|part| of_peak(step, part))).collect();
        for step in measured() {
            let ratios = self.comparisons(step).into_iter().filter_map(|comparison| one(&comparison, &evidence, 1, true));
            compared.extend(ratios.map(|ratio| without_waiting(step, ratio)));
            compared.extend(hidden(step));
        }
        for step in measured() {
            let took = step.peak_bytes.map(|peak_bytes| Memory { name: step.name(), peak_bytes });
            compared.extend(took.zip(step.peer_name()).map(|(took, theirs)| what_is_kept(step, memory_over(&took, theirs, &evidence))));
        }
        compared.into_iter().map(|compared| over_compiled(compared, &peers)).collect()
    }

    /// The bars are those of the paper's model on several GPUs, and of some of its layers on one; other steps have ratios alone.
    fn comparisons(&self, step: &RankStep) -> Vec<Comparison> {
        let (left, is_whole) = (|| ours(step.name()), step.size == WHOLE && step.ranks > 1);
        let is_alone = step.size == CUT && step.ranks == 1;
        let profile = || Bound::Text(PROFILE);
        let with_bar = |comparison, asked, bound, is_asked| if is_asked { bar(comparison, asked, bound) } else { comparison };
        let mut all = Vec::new();
        if let Some(fewest) = self.fewest(step) {
            let what = format!("{OF_IDEAL} from {}, {}", fewest.ranks, step.named());
            let scaling = Comparison { is_share: true, ..plain(STEPS, what, left(), vec![ours(fewest.name())]) };
            all.push(with_bar(scaling, 0.97, profile(), step.size == CUT));
        }
        let [several, alone] = match step.arm.as_str() {
            "bf16" => [1.2, 1.15],
            "fp8" => [1.3, 1.2],
            _ => [1.4, 1.3],
        };
        if let Some(theirs) = step.peer_name() {
            let over = plain(STEPS, format!("{OVER_PEER}, {}", step.named()), left(), vec![peer(theirs)]);
            all.push(with_bar(over, if is_alone { alone } else { several }, profile(), is_whole || is_alone));
        }
        if step.arm.starts_with("mxfp4") {
            let bf16 = RankStep { arm: "bf16".to_owned(), ..step.clone() };
            // No slower than 1.2 times the BF16 step.
            let over = plain(STEPS, format!("over our BF16, {}", step.named()), left(), vec![ours(bf16.name())]);
            all.push(with_bar(over, 1.0 / 1.2, profile(), is_whole));
        }
        all
    }
}

/// Of scaling and of a ratio to the peer that miss their bars: what they would be if nothing of the exchange were waited for. Scaling may then
/// be more than ideal, since several ranks share out the update.
fn without_waiting(step: &RankStep, compared: Compared) -> Compared {
    let is_missed = compared.verdict == "missed" && [OVER_PEER, OF_IDEAL].iter().any(|what| compared.what.starts_with(what));
    let Some((waits, ratio)) = step.waits().map(|waits| waits.least.sum()).zip(compared.ratio).filter(|_| is_missed) else {
        return compared;
    };
    let without = ratio / (1.0 - waits);
    let without = if compared.is_share { format!("{:.1} %", 100.0 * without) } else { format!("{without:.2}x") };
    let note = format!("{:.1} % of the step waits for the exchange: without that {without}; {PROFILE}", 100.0 * waits);
    Compared { note, ..compared }
}

/// Of memory that is more than the peer's: what the trainer keeps and FSDP2 does not.
fn what_is_kept(step: &RankStep, compared: Compared) -> Compared {
    if compared.verdict != "missed" {
        return compared;
    }
    let weights = if step.ranks > 1 { "all weights in BF16 and two buckets of gradients on each GPU, and " } else { "" };
    Compared { note: format!("{}: {weights}no product of a block is computed again", compared.note), ..compared }
}

/// How near a kind of kernel is to its peak.
fn of_peak(step: &RankStep, part: &Part) -> Option<Compared> {
    let rates: Vec<f64> = part.samples.iter().map(|seconds| part.work as f64 / seconds / part.peak).collect();
    let taken = median_ratio(&rates)?;
    let (seconds, rate) = (part.work as f64 / taken.ratio / part.peak, taken.ratio * part.peak / 1e12);
    let unit = if part.unit == "bytes" { "TB/s" } else { "TFLOP/s" };
    let bar = PART_BARS.iter().find(|(kernel, _)| *kernel == part.kernel).map(|(_, bar)| *bar);
    Some(Compared {
        section: PARTS.to_owned(),
        interval: taken.interval.map(|Interval { low, high }| [low, high]),
        n: part.samples.len(),
        note: format!("{:.1} ms, {} {unit}", 1e3 * seconds, crate::number::fixed(rate, if rate < 10.0 { 2 } else { 0 })),
        ..share(step, &format!("{} of the maker's peak", part.kernel), taken.ratio, bar)
    })
}

/// The share of a step in which the rank that waits least does not wait for the exchange.
fn hidden(step: &RankStep) -> Option<Compared> {
    let Waits { least, most } = step.waits()?;
    let bar = match step.size.as_str() {
        WHOLE => Some(0.94),
        WHOLE_BATCH => Some(0.97),
        _ => None,
    };
    let Exchange { rank, gradients, norm, parameters } = least;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let of = |most: Exchange| {
        let least = format!(" of rank {rank}, which waits least");
        (least, format!("; most waits rank {}: {}", most.rank, percent(most.sum())))
    };
    let (of_least, of_most) = most.map(of).unwrap_or_default();
    let parts = format!("gradients {}, norm {}, parameters {}", percent(gradients), percent(norm), percent(parameters));
    Some(Compared {
        n: step.samples.len(),
        note: format!("waits{of_least}: {parts}{of_most}"),
        ..share(step, "not spent waiting for the exchange", 1.0 - least.sum(), bar)
    })
}

/// A share that a step has by itself, beside nothing else that was measured.
fn share(step: &RankStep, what: &str, share: f64, bar: Option<f64>) -> Compared {
    let verdict = bar.map_or("", |bar| if share < bar { "missed" } else { "met" });
    Compared {
        section: STEPS.to_owned(),
        what: format!("{what}, {}", step.named()),
        ours: step.name(),
        over: String::new(),
        threads: 1,
        ratio: Some(share),
        interval: None,
        n: 0,
        in_turns: false,
        is_share: true,
        bar,
        paper: None,
        verdict: verdict.to_owned(),
        note: String::new(),
    }
}
