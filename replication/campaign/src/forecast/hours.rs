//! Hours of a run of each arm: from public logs, the paper's own ratio, and a roofline.

use contract::recipe::{Format, OperandSpec, Passes};
use study::manifest::profile::Peaks;
use study::manifest::{Hardware, Manifests, Metric, Model, Profile, PublicLogs};

use super::finished::taken;
use super::known::Known;
use super::measured::{predicted, update};

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
    /// What finished runs of the arm took, with evaluations.
    pub runs: Option<f64>,
    /// Products and attention at the stated peaks of their formats, the optimizer's bytes at the memory's rate: no run can be faster.
    pub roofline: Option<f64>,
}

/// Of each arm on so many GPUs, and what the hours were computed from.
pub(super) fn of_arms(manifests: &Manifests, profile: &Profile, gpus: u64, known: &Known) -> (Vec<Hours>, Vec<String>) {
    let (model, hardware) = (&manifests.models[&profile.model], &manifests.hardware[&profile.hardware]);
    let (logs, ratio) = (log_steps(manifests, hardware), paper_ratio(manifests, profile));
    let (place, taken) = ((model, hardware, gpus), taken(&known.runs, profile, hardware, gpus));
    let (mut all, mut from) = (Vec::new(), None);
    for arm in profile.arms.iter().flat_map(|group| &group.recipes) {
        let predicted = predicted(&known.steps, profile, place, arm);
        let seconds = [predicted.map(|(seconds, _)| seconds), taken.get(arm).copied()];
        all.push(hours(manifests, profile, place, arm, logs.as_ref().map(|logs| logs.1), ratio, seconds));
        from = from.or(predicted.map(|(_, step)| step));
    }
    let mut notes = notes(logs, ratio, hardware);
    notes.extend(from.map(|step| {
        format!(
            "steps: one micro-batch a GPU on {} of them took what {} says, update, norm and parameters once a step (the update at the roofline's rate)",
            step.ranks, step.directory
        )
    }));
    if !taken.is_empty() {
        notes.push("runs: medians of the finished runs of this profile, with evaluations and without starting".to_owned());
    }
    (all, notes)
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
    [step, run]: [Option<f64>; 2],
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
        steps: step.map(of_steps),
        runs: run.map(|seconds| seconds / 3600.0),
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

fn notes(logs: Option<(String, [f64; 2])>, ratio: Option<(&str, f64)>, hardware: &Hardware) -> Vec<String> {
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
    all
}
