//! What a profile would take before anything runs: its setting in words, memory on each GPU as a sum of terms, and hours for each arm.
//!
//! Everything here is `modelled`: formulas over manifests. Hours come from the public logs' step times, from the paper's own step ratio, and from
//! a roofline over the peaks that the maker states, none of which is a claim about this code; and from steps and finished runs that were measured on
//! such GPUs.

mod finished;
mod hours;
mod known;
mod measured;

use std::fmt;

use contract::device::DeviceKind;
use contract::memory::{self, Keep, Memory, Place};
use contract::recipe::Format;
use contract::run_file::RunFile;
use contract::text::GIB;
use study::manifest::{ManifestError, Manifests, Model, Profile};
use study::plan;

pub use hours::Hours;
pub use known::Known;
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

#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Lines about model, optimizer, schedule, data, batch, evaluation, budget.
    pub setting: Vec<String>,
    /// On the GPUs that were asked for or that the profile names, and on one device alone.
    pub memory: Vec<Spread>,
    /// By arm, in the profile's order; empty for a CPU.
    pub hours: Vec<Hours>,
    /// Of a run.
    pub gpus: u64,
    /// `AMD Instinct MI355X`.
    pub gpu: String,
    pub seeds: usize,
    /// What the hours were computed from.
    pub notes: Vec<String>,
}

/// Looks at manifests only, and at what it is given. `ranks`: GPUs of a run, else as many as the profile names.
///
/// # Errors
/// As of [`alone`].
pub fn forecast(manifests: &Manifests, profile: &Profile, ranks: Option<usize>, known: &Known) -> Result<Forecast, ManifestError> {
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
        gpus,
        gpu: hardware.title.clone(),
        seeds: profile.seeds.len(),
        notes: Vec::new(),
    };
    if hardware.device == DeviceKind::Cpu {
        return Ok(forecast);
    }
    (forecast.hours, forecast.notes) = hours::of_arms(manifests, profile, gpus, known);
    let budget = format!("of the whole budget of {} steps; only runs have evaluations in them", thousands(profile.budget.steps));
    forecast.notes.push(budget);
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

impl Forecast {
    /// Minutes of all GPUs of a run of an arm, as finished runs or steps say.
    pub fn gpu_minutes(&self, arm: &str) -> Option<f64> {
        let hours = self.hours.iter().find(|hours| hours.arm == arm)?;
        Some(60.0 * self.gpus as f64 * hours.runs.or(hours.steps)?)
    }
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
        let longest =
            self.hours.iter().flat_map(|hours| [hours.logs, hours.steps, hours.runs, hours.roofline]).flatten().fold(0.0, f64::max);
        let (unit, factor) = if longest < 1.0 { ("minutes", 60.0) } else { ("hours", 1.0) };
        let measured = if self.hours.iter().any(|hours| hours.runs.is_some()) { "; runs were measured" } else { "" };
        writeln!(f, "  {unit} of a run on {} x {} (modelled{measured})", self.gpus, self.gpu)?;
        let width = self.hours.iter().map(|hours| hours.arm.len()).max().unwrap_or(0).max(3);
        let mut row = |arm: &str, cells: [&str; 5]| {
            let cells: String = cells.iter().map(|cell| format!("  {cell:>8}")).collect();
            writeln!(f, "    {arm:<width$}{cells}")
        };
        row("arm", ["logs", "paper", "steps", "runs", "roofline"])?;
        let text = |hours: Option<f64>| hours.map_or("-".to_owned(), |hours| format!("{:.2}", factor * hours));
        for Hours { arm, logs, paper, steps, runs, roofline } in &self.hours {
            row(arm, [logs, paper, steps, runs, roofline].map(|hours| text(*hours)).each_ref().map(String::as_str))?;
        }
        let all = |pick: fn(&Hours) -> Option<f64>| self.hours.iter().map(pick).sum::<Option<f64>>().map(|sum| sum * self.seeds as f64);
        let picks: [fn(&Hours) -> Option<f64>; 4] = [|hours| hours.logs, |hours| hours.steps, |hours| hours.runs, |hours| hours.roofline];
        let [logs, steps, runs, roofline] = &picks.map(all).map(text);
        row(&format!("all x {} seeds", self.seeds), [logs, "", steps, runs, roofline])?;
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
        insta::assert_snapshot!(
            forecast(&manifests, manifests.profile("llama31-8b").unwrap(), None, &Known::default()).unwrap().to_string()
        );
    }

    #[test]
    fn a_profile_of_one_gpu() {
        let manifests = manifests();
        insta::assert_snapshot!(forecast(&manifests, manifests.profile("h200-s").unwrap(), None, &Known::default()).unwrap().to_string());
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
        let forecast = forecast(&manifests, &profile, None, &Known::default()).unwrap();
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
        let forecast = forecast(&manifests, manifests.profile("llama31-8b").unwrap(), None, &Known::default()).unwrap();
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
        let forecast = forecast(&manifests, manifests.profile("cpu").unwrap(), None, &Known::default()).unwrap();
        assert!(forecast.hours.is_empty() && forecast.setting.len() == 7);
        let [alone] = &forecast.memory[..] else { unreachable!("one device") };
        assert!(alone.ways.len() == 2 && alone.least == alone.ways[1].bytes && alone.there.is_none());
        assert!(forecast.to_string().contains("  memory of a run (modelled): T = "));
        assert_eq!((thousands(7_u64), thousands(1000_u64), thousands(1_234_567_u64)), ("7".into(), "1,000".into(), "1,234,567".into()));
    }
}
