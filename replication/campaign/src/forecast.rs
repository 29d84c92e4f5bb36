//! What a profile would take before anything runs: its setting in words, memory on each GPU as a sum of terms, and hours for each arm.
//!
//! Everything here is `modelled`: formulas over manifests. Hours come from the public logs' step times, from the paper's own step ratio, and from
//! a roofline over the peaks that the maker states, none of which is a claim about this code; and from steps that were measured on such GPUs.

mod measured;

use std::fmt;

use contract::device::DeviceKind;
use contract::memory::{self, Keep, Memory, Place};
use contract::recipe::{Format, OperandSpec, Passes};
use contract::run_file::RunFile;
use contract::text::GIB;
use study::manifest::PublicLogs;
use study::manifest::profile::Peaks;
use study::manifest::{Hardware, ManifestError, Manifests, Metric, Model, Profile};
use study::plan;

pub use measured::{MeasuredStep, measured_steps};

/// Memory of a run on one device under one assumption of what is spread over several: the terms of `trainer memory`.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    pub device: DeviceKind,
    /// Devices that one run is spread over.
    pub gpus: u64,
    /// What is spread, in words.
    pub sharding: String,
    /// The arm that needs most; [`Spread::ways`] are its.
    pub arm: String,
    pub ways: Vec<Memory>,
    /// What no arm can do without, bytes.
    pub least: u64,
    /// Memory of one GPU, where manifests/hardware states it.
    pub there: Option<u64>,
}

impl Spread {
    /// How a run of any arm is kept in so many bytes; none if one does not start.
    pub fn fits(&self, bytes: u64) -> Option<Keep> {
        let everything = memory::choose(&self.ways, bytes).filter(|keep| *keep == Keep::Everything);
        everything.or_else(|| (self.least <= bytes).then_some(Keep::Least))
    }
}

/// Hours of one run of an arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Hours {
    pub arm: String,
    /// From public logs of FP8 and of MXFP4: a pass in MXFP4 saves a third of their difference. None for passes in neither.
    pub logs: Option<f64>,
    /// From the logs' FP8 step and the paper's ratio for the full pipeline; none for other arms.
    pub paper: Option<f64>,
    /// From a step of this model and arm that was measured with one micro-batch a GPU.
    pub steps: Option<f64>,
    /// Products and attention at the stated peaks of their formats, the optimizer's bytes at the memory's rate: no run can be faster.
    pub roofline: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Lines about model, optimizer, schedule, data, batch, evaluation, budget.
    pub setting: Vec<String>,
    /// On the GPUs that were asked for or that the profile names, and on one device alone.
    pub memory: Vec<Spread>,
    /// By arm, in the profile's order; empty for a CPU.
    pub hours: Vec<Hours>,
    /// `8 x AMD Instinct MI355X`.
    pub machine: String,
    pub seeds: usize,
    /// What the hours were computed from.
    pub notes: Vec<String>,
}

/// Looks at manifests only, and at what it is given. `ranks`: GPUs of a run, else as many as the profile names.
///
/// # Errors
/// As of [`alone`].
pub fn forecast(manifests: &Manifests, profile: &Profile, ranks: Option<usize>, steps: &[MeasuredStep]) -> Result<Forecast, ManifestError> {
    let (model, hardware) = (&manifests.models[&profile.model], &manifests.hardware[&profile.hardware]);
    let ranks = ranks.filter(|_| hardware.device != DeviceKind::Cpu);
    let gpus = ranks.map_or(gpus(profile), |ranks| ranks.max(1) as u64);
    let all = if gpus > 1 { vec![gpus, 1] } else { vec![1] };
    // First of all: it refuses numbers whose products nothing holds.
    let memory = all.into_iter().map(|gpus| spread(manifests, profile, gpus, None)).collect::<Result<_, _>>()?;
    let mut forecast = Forecast {
        setting: setting(manifests, profile, model),
        memory,
        hours: Vec::new(),
        machine: format!("{gpus} x {}", hardware.title),
        seeds: profile.seeds.len(),
        notes: Vec::new(),
    };
    if hardware.device == DeviceKind::Cpu {
        return Ok(forecast);
    }
    let logs = log_steps(manifests, hardware);
    let ratio = paper_ratio(manifests, profile);
    let place = (model, hardware, gpus);
    let mut from = None;
    for arm in profile.arms.iter().flat_map(|group| &group.recipes) {
        let predicted = measured::predicted(steps, profile, place, arm);
        let seconds = predicted.map(|(seconds, _)| seconds);
        forecast.hours.push(hours(manifests, profile, place, arm, logs.as_ref().map(|logs| logs.1), ratio, seconds));
        from = from.or(predicted.map(|(_, step)| step));
    }
    forecast.notes = notes(profile, logs, ratio, hardware);
    forecast.notes.extend(from.map(|step| {
        format!(
            "steps: one micro-batch a GPU on {} of them took what {} says, update, norm and parameters once a step (the update at the roofline's rate)",
            step.ranks, step.directory
        )
    }));
    Ok(forecast)
}

/// GPUs that a run of the profile is spread over, where they are to be had.
pub fn gpus(profile: &Profile) -> u64 {
    profile.requires.get("gpus").map_or(1, |count| (*count as u64).max(1))
}

/// `128256` as `128,256`.
fn thousands(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn setting(manifests: &Manifests, profile: &Profile, model: &Model) -> Vec<String> {
    let (optimizer, schedule, batch) = (&profile.optimizer, &profile.schedule, &profile.batch);
    let (sequences, evaluated) = (batch.sequences as u128, profile.evaluation.sequences as u128);
    let (length, steps) = (u128::from(model.sequence_length), u128::from(profile.budget.steps));
    let tokens = sequences * length;
    let runs = profile.arms.iter().map(|group| group.recipes.len()).sum::<usize>() * profile.seeds.len();
    let dataset = &manifests.datasets[&profile.dataset];
    let micro = if batch.accumulation > 1 {
        format!(", in {} micro-batches of {}", batch.accumulation, batch.sequences / batch.accumulation)
    } else {
        String::new()
    };
    vec![
        format!(
            "model: {}: {} blocks of width {}, {} heads of {} ({} for keys and values), SwiGLU {}, vocabulary {}, sequences of {} tokens; {} parameters",
            model.title,
            model.num_hidden_layers,
            thousands(model.hidden_size),
            model.num_attention_heads,
            model.head_dim,
            model.num_key_value_heads,
            thousands(model.intermediate_size),
            thousands(model.vocab_size),
            thousands(model.sequence_length),
            thousands(model.section().parameters())
        ),
        format!(
            "optimizer: AdamW, beta {} and {}, epsilon {:e}, weight decay {}, gradients clipped at norm {}",
            optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay, optimizer.clip_norm
        ),
        format!(
            "schedule: to {:e} in {} steps, then a cosine to {:e} over {} steps",
            optimizer.learning_rate,
            thousands(schedule.warmup_steps),
            schedule.end_learning_rate,
            thousands(schedule.decay_steps)
        ),
        format!("data: {}, tokenizer {} ({} entries)", dataset.id(), profile.tokenizer, thousands(model.vocab_size)),
        format!("batch: {} sequences a step ({} tokens){micro}", thousands(sequences), thousands(tokens)),
        format!(
            "evaluation: every {} steps ({} sequences) on {} sequences ({} tokens); target {}",
            thousands(profile.evaluation.every_steps),
            thousands(u128::from(profile.evaluation.every_steps) * sequences),
            thousands(evaluated),
            thousands(evaluated * length),
            profile.target_loss.map_or("none".to_owned(), |loss| format!("{loss} nats a token"))
        ),
        format!(
            "budget: {} steps, {} tokens a run; {runs} runs are {} tokens",
            thousands(profile.budget.steps),
            thousands(steps.saturating_mul(tokens)),
            thousands((runs as u128).saturating_mul(steps).saturating_mul(tokens))
        ),
    ]
}

/// Memory of one run on one device alone, as the trainer has it. `mxfp4`: what a GPU that is there says of itself, else what manifests say.
///
/// # Errors
/// An arm whose run file would be refused.
pub fn alone(manifests: &Manifests, profile: &Profile, mxfp4: Option<bool>) -> Result<Spread, ManifestError> {
    spread(manifests, profile, 1, mxfp4)
}

/// On several GPUs the F32 masters and moments are spread, and everything else is whole on each.
///
/// # Errors
/// As of [`alone`].
pub fn spread(manifests: &Manifests, profile: &Profile, gpus: u64, mxfp4: Option<bool>) -> Result<Spread, ManifestError> {
    let hardware = &manifests.hardware[&profile.hardware];
    let mxfp4 = mxfp4.unwrap_or_else(|| hardware.native_formats.contains(&Format::E2m1));
    let place = if hardware.device == DeviceKind::Cpu { Place::Cpu } else { Place::Gpu { mxfp4 } };
    let (mut most, mut least, mut tokens) = (None::<(String, Vec<Memory>)>, 0, 0);
    for arm in plan::all_arms(profile) {
        let run = part(plan::any_run(manifests, profile, &arm)?, gpus as usize);
        let ways: Vec<Memory> = memory::ways(&run, place).into_iter().map(|way| memory::of_rank(way, &run, gpus as usize)).collect();
        (least, tokens) = (least.max(ways.last().map_or(0, |way| way.bytes)), run.tokens_per_step());
        if most.as_ref().is_none_or(|(_, most)| ways[0].bytes > most[0].bytes) {
            most = Some((arm, ways));
        }
    }
    let (arm, ways) = most.unwrap_or_default();
    let micro = format!("T = {} tokens at once; {arm}, which needs most", thousands(tokens as u64));
    let sharding = match (hardware.device, gpus) {
        (DeviceKind::Cpu, _) => micro,
        (_, 1) => format!("one GPU alone, nothing spread; {micro}"),
        _ => format!("a rank on each, as trainer launch --gpus {gpus} starts them; {micro}"),
    };
    let there = hardware.peaks.as_ref().map(|peaks| peaks.memory_bytes);
    Ok(Spread { device: hardware.device, gpus, sharding, arm, ways, least, there })
}

/// A micro-batch of what one of several GPUs computes.
fn part(mut run: RunFile, gpus: usize) -> RunFile {
    run.batch.accumulation = (run.batch.accumulation / gpus).max(1);
    run.batch.sequences = (run.batch.sequences / gpus).max(run.batch.accumulation);
    run.micro_batch()
}

/// Mean step seconds of FP8 and of MXFP4 in public logs of this hardware, and which logs.
fn log_steps(manifests: &Manifests, hardware: &Hardware) -> Option<(String, [f64; 2])> {
    let chip = hardware.title.rsplit(' ').next()?;
    manifests.public_logs.iter().find_map(|logs: &PublicLogs| {
        logs.manifest.comparisons.iter().find_map(|comparison| {
            let is_of = |id: &str| logs.group(id).is_some_and(|group| group.accelerator.ends_with(chip));
            if !is_of(&comparison.arm) || !is_of(&comparison.baseline) {
                return None;
            }
            let mean = |id: &str| {
                let steps = logs.numbers(id)?.steps();
                (!steps.is_empty()).then(|| steps.iter().sum::<f64>() / steps.len() as f64)
            };
            Some((format!("{} and {}", comparison.baseline, comparison.arm), [mean(&comparison.baseline)?, mean(&comparison.arm)?]))
        })
    })
}

/// What the profile's first paper reports as FP8's step over that of an arm: (arm, ratio).
fn paper_ratio<'a>(manifests: &'a Manifests, profile: &Profile) -> Option<(&'a str, f64)> {
    let paper = &manifests.papers[profile.papers.first()?];
    let (denominator, [low, high]) = paper.claims.iter().find_map(|claim| match &claim.metric {
        Metric::StepTimeRatio { denominator, .. } => Some((denominator, claim.reported?)),
        _ => None,
    })?;
    Some((denominator, f64::midpoint(low, high)))
}

/// The unit that multiplies a pass: that of its wider operand.
fn unit(operands: [&OperandSpec; 2]) -> Format {
    let is = |wanted: &[Format]| operands.iter().any(|operand| wanted.contains(&operand.format));
    if is(&[Format::F32]) {
        Format::F32
    } else if is(&[Format::Bf16]) {
        Format::Bf16
    } else if is(&[Format::E4m3, Format::E5m2]) {
        Format::E4m3
    } else {
        Format::E2m1
    }
}

fn units(passes: &Passes) -> [Format; 3] {
    [
        unit([&passes.fprop.input, &passes.fprop.weight]),
        unit([&passes.dgrad.output_gradient, &passes.dgrad.weight]),
        unit([&passes.wgrad.output_gradient, &passes.wgrad.input]),
    ]
}

/// Operations a second where a format's product runs on this hardware: in BF16 where it has no unit of its own.
fn peak(format: Format, peaks: &Peaks) -> Option<f64> {
    match format {
        Format::F32 => None,
        Format::Bf16 => Some(peaks.bf16),
        Format::E4m3 | Format::E5m2 => peaks.fp8.or(Some(peaks.bf16)),
        Format::E2m1 => peaks.mxfp4.or(Some(peaks.bf16)),
    }
}

fn hours(
    manifests: &Manifests,
    profile: &Profile,
    (model, hardware, gpus): (&Model, &Hardware, u64),
    arm: &str,
    logs: Option<[f64; 2]>,
    ratio: Option<(&str, f64)>,
    predicted: Option<f64>,
) -> Hours {
    let units = manifests.recipes[arm].resolved().ok().map(|passes| units(&passes));
    let of_steps = |seconds: f64| seconds * profile.budget.steps as f64 / 3600.0;
    let is_known = |units: &[Format; 3]| units.iter().all(|unit| matches!(unit, Format::E2m1 | Format::E4m3));
    let quantised = |units: [Format; 3]| units.iter().filter(|unit| **unit == Format::E2m1).count() as f64 / 3.0;
    let from_logs = logs.zip(units.filter(is_known)).map(|([fp8, mxfp4], units)| of_steps(fp8 - quantised(units) * (fp8 - mxfp4)));
    let from_paper = logs.zip(ratio).filter(|(_, (of, _))| *of == arm).map(|([fp8, _], (_, ratio))| of_steps(fp8 / ratio));
    let roofline = units.zip(hardware.peaks.as_ref()).and_then(|(units, peaks)| roofline(profile, model, units, peaks));
    Hours {
        arm: arm.to_owned(),
        logs: from_logs,
        paper: from_paper,
        steps: predicted.map(of_steps),
        roofline: roofline.map(|seconds| of_steps(seconds / gpus as f64)),
    }
}

/// Seconds of a step on one GPU that is always at its peak.
fn roofline(profile: &Profile, model: &Model, units: [Format; 3], peaks: &Peaks) -> Option<f64> {
    let tokens = profile.batch.sequences as f64 * model.sequence_length as f64;
    let layers = model.num_hidden_layers as f64;
    let of_pass = 2.0 * tokens * layers * model.section().linears().iter().map(|(_, out, input)| (out * input) as f64).sum::<f64>();
    let products = units.iter().map(|unit| Some(of_pass / peak(*unit, peaks)?)).sum::<Option<f64>>()?;
    // Causal: half of all pairs. Forward two products, backward five, one of them again.
    let pairs = model.sequence_length as f64 / 2.0 * (model.num_attention_heads * model.head_dim) as f64;
    let attention = tokens * layers * 2.0 * pairs * 7.0;
    let head = 3.0 * 2.0 * tokens * (model.vocab_size * model.hidden_size) as f64;
    Some(products + (attention + head) / peaks.bf16 + update(model, peaks))
}

/// Seconds of the update on one GPU: AdamW reads gradient, master and moments and writes master, moments and the BF16 copy.
fn update(model: &Model, peaks: &Peaks) -> f64 {
    30.0 * model.section().parameters() as f64 / peaks.bytes_per_second
}

fn notes(profile: &Profile, logs: Option<(String, [f64; 2])>, ratio: Option<(&str, f64)>, hardware: &Hardware) -> Vec<String> {
    let (mut all, has_logs) = (Vec::new(), logs.is_some());
    match logs {
        Some((groups, [fp8, mxfp4])) => all.push(format!(
            "logs: {fp8:.4} s a step in FP8 and {mxfp4:.4} s in full MXFP4 with H16, means of the public logs {groups}; a pass in MXFP4 is taken to save a third of the difference, whatever its rotation or rounding"
        )),
        None => all.push(format!("logs: no public logs of {} are in manifests/evidence", hardware.title)),
    }
    if let Some((arm, ratio)) = ratio.filter(|_| has_logs) {
        all.push(format!("paper: the logs' FP8 step divided by the paper's {ratio:.2} for {arm}; it reports no step time of other arms"));
    }
    if let Some(Peaks { bf16, fp8, mxfp4, bytes_per_second, .. }) = &hardware.peaks {
        let peta = |rate: f64| format!("{:.2} PFLOP/s", rate / 1e15);
        let other = |name: &str, rate: Option<f64>| rate.map_or(format!("{name} in BF16"), |rate| format!("{name} {}", peta(rate)));
        all.push(format!(
            "roofline: every product and attention at the stated peak of its format (BF16 {}, {}, {}) and the optimizer's bytes at {:.1} TB/s, nothing else and no communication; the best public kernels reach about half of the peaks, so twice this is the more likely bound",
            peta(*bf16),
            other("FP8", *fp8),
            other("MXFP4", *mxfp4),
            bytes_per_second / 1e12
        ));
    }
    all.push(format!("of the whole budget of {} steps, evaluations left out", thousands(profile.budget.steps)));
    all
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.setting {
            writeln!(f, "  {line}")?;
        }
        for memory in &self.memory {
            write_memory(memory, f)?;
        }
        writeln!(f, "    {}", memory::LETTERS)?;
        if self.hours.is_empty() {
            return Ok(());
        }
        let longest = self.hours.iter().flat_map(|hours| [hours.logs, hours.steps, hours.roofline]).flatten().fold(0.0, f64::max);
        let (unit, factor) = if longest < 1.0 { ("minutes", 60.0) } else { ("hours", 1.0) };
        writeln!(f, "  {unit} of a run on {} (modelled)", self.machine)?;
        let width = self.hours.iter().map(|hours| hours.arm.len()).max().unwrap_or(0).max(3);
        writeln!(f, "    {:<width$}  {:>8}  {:>8}  {:>8}  {:>8}", "arm", "logs", "paper", "steps", "roofline")?;
        let text = |hours: Option<f64>| hours.map_or("-".to_owned(), |hours| format!("{:.2}", factor * hours));
        for Hours { arm, logs, paper, steps, roofline } in &self.hours {
            let [logs, paper, steps, roofline] = [logs, paper, steps, roofline].map(|hours| text(*hours));
            writeln!(f, "    {arm:<width$}  {logs:>8}  {paper:>8}  {steps:>8}  {roofline:>8}")?;
        }
        let all = |pick: fn(&Hours) -> Option<f64>| self.hours.iter().map(pick).sum::<Option<f64>>().map(|sum| sum * self.seeds as f64);
        let [logs, steps, roofline] = [all(|hours| hours.logs), all(|hours| hours.steps), all(|hours| hours.roofline)].map(text);
        writeln!(f, "    {:<width$}  {logs:>8}  {:>8}  {steps:>8}  {roofline:>8}", format!("all x {} seeds", self.seeds), "")?;
        for note in &self.notes {
            writeln!(f, "    {note}")?;
        }
        Ok(())
    }
}

fn write_memory(spread: &Spread, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match (spread.device, spread.gpus) {
        (DeviceKind::Cpu, _) => write!(f, "  memory of a run")?,
        (_, gpus) => write!(f, "  memory on each of {gpus} GPU{}", if gpus == 1 { "" } else { "s" })?,
    }
    writeln!(f, " (modelled): {}", spread.sharding)?;
    let there = spread.there.map_or(String::new(), |there| {
        let verdict = match spread.fits(there) {
            Some(Keep::Everything) => "fits",
            Some(Keep::Least) => "fits with least memory",
            None => "does not fit",
        };
        format!("  of {:.1} that are there: {verdict}", there as f64 / GIB)
    });
    spread.ways.first().map_or(Ok(()), |way| way.write(f, &there))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::path::Path;

    use contract::device::DeviceId;
    use contract::memory::MemoryReport;

    use super::*;

    fn manifests() -> Manifests {
        Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
    }

    #[test]
    fn the_papers_setting() {
        let manifests = manifests();
        insta::assert_snapshot!(forecast(&manifests, manifests.profile("llama31-8b").unwrap(), None, &[]).unwrap().to_string());
    }

    #[test]
    fn a_profile_of_one_gpu() {
        let manifests = manifests();
        insta::assert_snapshot!(forecast(&manifests, manifests.profile("h200-s").unwrap(), None, &[]).unwrap().to_string());
    }

    /// By hand, of an arm whose passes are all native: P = 8,030,261,248; 2 sequences of 8,192 tokens at once; a token of a block keeps
    /// 2 (16,384 + 53,248) + 4 x 34 = 139,400 bytes, and 26,624 inputs of 17/32 bytes, as the block's 218,103,808 weights are. The logits of
    /// 8,192 tokens take most at once; the rows of the embedding are those of a micro-batch, with their numbers.
    #[test]
    fn memory_is_the_sum_that_its_terms_say() {
        let manifests = manifests();
        let mut profile = manifests.profile("llama31-8b").unwrap().clone();
        profile.arms[0].recipes = vec!["mxfp4-fdw".to_owned()];
        profile.arms.truncate(1);
        let forecast = forecast(&manifests, &profile, None, &[]).unwrap();
        let (p, tokens) = (8_030_261_248, 16_384);
        let bytes = |spread: &Spread, name: &str| spread.ways[0].terms.iter().find(|term| term.name == name).unwrap().bytes;
        let [spread, alone] = &forecast.memory[..] else { unreachable!("two assumptions") };
        assert_eq!((spread.gpus, alone.gpus), (8, 1));
        assert_eq!(bytes(spread, "moments, F32"), p);
        assert_eq!(bytes(alone, "moments, F32"), 8 * p);
        // An eighth of the sum, two buckets and what seven others send of an eighth of one: the head with the final norm is the largest.
        let bucket: u64 = 128_257 * 4_096;
        let rows = 4 * tokens * 4_097;
        assert_eq!(
            (bytes(spread, "gradients, F32"), bytes(alone, "gradients, F32")),
            (p / 2 + 8 * bucket + 4 * 7 * bucket / 8 + rows, 8 * p)
        );
        for memory in [spread, alone] {
            assert_eq!(bytes(memory, "activations"), tokens * 32 * 139_400);
            assert_eq!(bytes(memory, "operands"), (tokens * 26_624 + 218_103_808) * 17);
            assert_eq!(bytes(memory, "in turns"), 2 * 8_192 * 128_256);
            assert_eq!(memory.fits(80_000_000_000), None);
            assert!(memory.fits(288_000_000_000).is_some());
        }
        let sum = alone.ways[0].terms.iter().map(|term| term.bytes).sum::<u64>();
        assert_eq!((sum, alone.ways.len(), alone.least), (alone.ways[0].bytes, 1, sum));
        assert_eq!(alone.ways, super::alone(&manifests, &profile, None).unwrap().ways);
    }

    /// What the trainer prints of an arm on a GPU with room for one of the two ways, and what the forecast counts, are one thing.
    #[test]
    fn the_trainers_text() {
        let manifests = manifests();
        let profile = manifests.profile("h200-s").unwrap();
        let needed = super::alone(&manifests, profile, None).unwrap();
        let run = plan::any_run(&manifests, profile, &needed.arm).unwrap().micro_batch();
        let report = MemoryReport::new(&run, (DeviceId::Cuda(0), false), 1, Some(8 << 30), Some(11 << 29));
        assert_eq!(report.ways, needed.ways);
        insta::assert_snapshot!(report.to_string());
    }

    /// By hand: 32 x 8,192 tokens, 32 blocks of 218,103,808 weights: 3.66 EFLOP a pass.
    #[test]
    fn hours_follow_from_logs_and_peaks() {
        let manifests = manifests();
        let forecast = forecast(&manifests, manifests.profile("llama31-8b").unwrap(), None, &[]).unwrap();
        let of = |arm: &str| forecast.hours.iter().find(|hours| hours.arm == arm).unwrap();
        let hours = |seconds: f64| seconds * 9600.0 / 3600.0;
        let near = |found: Option<f64>, expected: f64, within: f64| {
            assert!((found.unwrap() / expected - 1.0).abs() < within, "{found:?} {expected}")
        };
        near(of("fp8").logs, hours(1.043), 2e-3);
        near(of("mxfp4-fdw-h16").logs, hours(0.872), 2e-3);
        near(of("mxfp4-f").logs, hours(1.043 - (1.043 - 0.872) / 3.0), 2e-3);
        near(of("mxfp4-fdw-h16").paper, hours(1.043 / 1.2), 2e-3);
        assert_eq!((of("bf16").logs, of("fp8").paper), (None, None));
        let pass = 2.0 * 262_144.0 * 32.0 * 218_103_808.0;
        let difference = 3.0 * pass * (1.0 / 5.03e15 - 1.0 / 1.007e16) / 8.0;
        near(Some(of("fp8").roofline.unwrap() - of("mxfp4-fdw").roofline.unwrap()), hours(difference), 1e-9);
        // No arm is predicted to be faster than the peaks allow.
        assert!(forecast.hours.iter().all(|hours| hours.logs.is_none_or(|logs| logs > hours.roofline.unwrap())));
    }

    #[test]
    fn a_cpu_has_a_setting_and_memory_and_no_hours() {
        let manifests = manifests();
        let forecast = forecast(&manifests, manifests.profile("cpu").unwrap(), None, &[]).unwrap();
        assert!(forecast.hours.is_empty() && forecast.setting.len() == 7);
        let [alone] = &forecast.memory[..] else { unreachable!("one device") };
        assert!(alone.ways.len() == 2 && alone.least == alone.ways[1].bytes && alone.there.is_none());
        assert!(forecast.to_string().contains("  memory of a run (modelled): T = "));
        assert_eq!((thousands(7_u64), thousands(1000_u64), thousands(1_234_567_u64)), ("7".into(), "1,000".into(), "1,234,567".into()));
    }
}
