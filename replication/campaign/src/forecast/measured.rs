//! Steps of several GPUs that were measured here and committed, as a prediction of a campaign's.

use std::path::Path;

use study::kernels::{DOCUMENT, Document};
use study::manifest::profile::Peaks;
use study::manifest::{Hardware, Model, Profile};
use study::statistics::median;

/// A step of a model that `kernels-bench --gpus N` measured, with one micro-batch a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredStep {
    /// The GPU's own name.
    pub gpu: String,
    pub model: String,
    pub arm: String,
    pub ranks: u64,
    /// Of one rank.
    pub tokens: u64,
    pub seconds: f64,
    /// What of it the norm and parameters took: once a step, however many micro-batches it has.
    pub once: f64,
    /// Name of the directory.
    pub directory: String,
}

/// All of them in a folder of results. What cannot be read there `verify` says; a forecast goes without it.
pub fn measured_steps(results: &Path) -> Vec<MeasuredStep> {
    let names = std::fs::read_dir(results).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("kernels-")).collect();
    // The newest of equals counts.
    names.sort_unstable_by(|one, other| other.cmp(one));
    let mut all = Vec::new();
    for directory in names {
        let Ok(document) = Document::read(&results.join(&directory).join(DOCUMENT)) else { continue };
        for (bench, step) in document.ranks.iter().flat_map(|bench| bench.steps.iter().map(move |step| (bench, step))) {
            let once: Vec<f64> = step.exchange.iter().map(|spent| spent.norm + spent.parameters).collect();
            let Some(seconds) = median(&step.samples) else { continue };
            all.push(MeasuredStep {
                gpu: bench.name.clone(),
                model: step.size.clone(),
                arm: step.arm.clone(),
                ranks: step.ranks as u64,
                tokens: step.tokens,
                seconds,
                once: median(&once).unwrap_or(0.0),
                directory: directory.clone(),
            });
        }
    }
    all
}

/// Seconds of a step of the profile on so many GPUs, and what that rests on: a measured step less what is done once, for each micro-batch of a
/// rank, and what is done once. The update of a shard takes its part of the roofline's.
pub(super) fn predicted<'a>(
    steps: &'a [MeasuredStep],
    profile: &Profile,
    (model, hardware, gpus): (&Model, &Hardware, u64),
    arm: &str,
) -> Option<(f64, &'a MeasuredStep)> {
    let micro_batches = profile.batch.accumulation as u64;
    if !micro_batches.is_multiple_of(gpus) {
        return None;
    }
    let tokens = profile.batch.sequences as u64 / micro_batches * model.sequence_length;
    let of = |step: &&MeasuredStep| step.gpu == hardware.title && step.model == profile.model && step.arm == arm && step.tokens == tokens;
    let step = steps.iter().filter(of).min_by_key(|step| step.ranks.abs_diff(gpus))?;
    let whole = update(model, hardware.peaks.as_ref()?);
    let update = |ranks: u64| whole / ranks as f64;
    let micro_batch = step.seconds - step.once - update(step.ranks);
    Some((micro_batch * (micro_batches / gpus) as f64 + step.once + update(gpus), step))
}

/// Seconds of the update on one GPU: AdamW reads gradient, master and moments and writes master, moments and the BF16 copy.
pub(super) fn update(model: &Model, peaks: &Peaks) -> f64 {
    30.0 * model.section().parameters() as f64 / peaks.bytes_per_second
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use study::files;
    use study::manifest::Manifests;

    use super::super::{Known, forecast};
    use super::*;

    /// Steps of one micro-batch a GPU predict those of the committed runs, which have several, within 10 %, on as many GPUs and from the steps of two; and
    /// the dry run shows it.
    #[test]
    fn the_committed_runs_take_as_long_as_predicted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifests = Manifests::load(&root).unwrap();
        let profile = manifests.profile("h200-8b").unwrap();
        let steps = measured_steps(&root.join("results"));
        let (model, hardware) = (&manifests.models[&profile.model], &manifests.hardware[&profile.hardware]);
        let names = std::fs::read_dir(root.join("results")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let runs = root.join("results").join(names.filter(|name| name.contains("-h200-8b-")).max().unwrap()).join("runs");
        let seconds = |line: &serde_json::Value| line["seconds"].as_f64().filter(|_| line["kind"] == "step");
        let of_two: Vec<MeasuredStep> = steps.iter().filter(|step| step.ranks == 2).cloned().collect();
        for arm in ["fp8", "mxfp4-fdw-h16"] {
            let timing = files::read_text(&runs.join(arm).join("1/timing.jsonl")).unwrap();
            let lines: Vec<serde_json::Value> = timing.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let (gpus, taken) = (lines[0]["ranks"].as_u64().unwrap(), lines.iter().filter_map(seconds).collect::<Vec<f64>>());
            let measured = median(&taken).unwrap();
            assert_eq!(taken.len(), 60);
            for (from, ranks) in [(&steps, gpus), (&of_two, 2)] {
                let (predicted, step) = predicted(from, profile, (model, hardware, gpus), arm).unwrap();
                assert_eq!(step.ranks, ranks);
                assert!((predicted / measured - 1.0).abs() < 0.1, "{arm}: {predicted} predicted, {measured} measured");
                // Sixty steps of so many seconds are as many minutes.
                let known = Known { steps: from.clone(), ..Known::default() };
                let text = forecast(&manifests, profile, Some(gpus as usize), &known).unwrap().to_string();
                assert!(text.contains(&format!("{predicted:.2}")), "{text}");
                assert!(
                    text.contains(&format!("memory on each of {gpus} GPUs")) && text.contains(&format!("{gpus} x NVIDIA H200")),
                    "{text}"
                );
            }
        }
    }

    /// Nothing is said of an arm that nobody measured, or of GPUs among which micro-batches cannot be dealt out.
    #[test]
    fn what_was_not_measured_is_not_predicted() {
        let manifests = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let profile = manifests.profile("h200-8b").unwrap();
        let (model, hardware) = (&manifests.models[&profile.model], &manifests.hardware[&profile.hardware]);
        let step = MeasuredStep {
            gpu: hardware.title.clone(),
            model: profile.model.clone(),
            arm: "fp8".into(),
            ranks: 2,
            tokens: 8192,
            seconds: 0.5,
            once: 0.01,
            directory: "kernels-x".into(),
        };
        let of = |step: &MeasuredStep, gpus, arm| {
            predicted(std::slice::from_ref(step), profile, (model, hardware, gpus), arm).map(|(seconds, _)| seconds)
        };
        let update = 30.0 * model.section().parameters() as f64 / hardware.peaks.as_ref().unwrap().bytes_per_second;
        let wanted = (0.5 - 0.01 - update / 2.0) * 8.0 + 0.01 + update / 4.0;
        assert!((of(&step, 4, "fp8").unwrap() - wanted).abs() < 1e-12);
        assert_eq!((of(&step, 3, "fp8"), of(&step, 4, "bf16")), (None, None));
        assert_eq!(of(&MeasuredStep { tokens: 4096, ..step.clone() }, 4, "fp8"), None);
        assert_eq!(of(&MeasuredStep { gpu: "another".into(), ..step }, 4, "fp8"), None);
    }
}
