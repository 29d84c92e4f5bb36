//! Whether measurements are as many as the profile asks for: a repeat that was left out would change a median, and nobody would see it.

use std::collections::{BTreeMap, BTreeSet};

use contract::measurements::StepTimeLine;

use contract::text::one_line;

use super::Verification;
use crate::code_objects::{self, CodeObjects};
use crate::measure::Measurements;

pub(super) fn check(measurements: &Measurements, verification: &mut Verification) {
    let profile = &measurements.study.profile;
    // An arm whose first seed failed is not timed.
    let of = |arm: &str, finished: bool| measurements.runs.iter().any(|run| run.arm == arm && run.finished() == finished);
    let timed = |arm: &&str| profile.step_time.recipes.iter().any(|wanted| wanted == arm) && of(arm, true);
    let missing = |arms: &BTreeSet<&str>| {
        let wanted = profile.step_time.recipes.iter().filter(|arm| of(arm, true) && !of(arm, false));
        wanted.into_iter().any(|arm| !arms.contains(arm.as_str()))
    };
    let tokens = measurements.runs.iter().map(|run| run.tokens_per_step).find(|tokens| *tokens > 0);
    let steps = measurements.step_times.iter();
    check_repeats("step_time", steps.clone().map(|step| (step.arm.clone(), step.repeat)), Some(profile.step_time.repeats), verification);
    let profiled = measurements.step_profile.iter().filter_map(|line| match line {
        StepTimeLine::Step(step) => Some(step),
        StepTimeLine::Kernel(_) | StepTimeLine::Exchange(_) | StepTimeLine::Memory(_) => None,
    });
    check_repeats("step_profile", profiled.clone().map(|step| (step.arm.clone(), step.repeat)), None, verification);
    for (file, arms, wrong) in [
        (
            "step_time",
            steps.clone().map(|step| step.arm.as_str()).collect(),
            steps.clone().any(|step| step.tokens.is_some() && step.tokens != tokens),
        ),
        (
            "step_profile",
            profiled.clone().map(|step| step.arm.as_str()).collect(),
            profiled.clone().any(|step| step.tokens.is_some() && step.tokens != tokens),
        ),
    ] {
        let arms: BTreeSet<&str> = arms;
        if !arms.is_empty() && (missing(&arms) || !arms.iter().all(timed)) {
            verification.find(path(file), "times other arms than the profile's step_time.recipes that ran");
        }
        if wrong {
            verification.find(path(file), "a step has another number of tokens than a step of the runs");
        }
    }
    let kernels = measurements.kernel_times.iter();
    let kernels = kernels.map(|time| (format!("{} {} {}", time.variant, time.linear, time.pass), time.repeat));
    check_repeats("kernel_time", kernels, Some(profile.kernel_time.repeats), verification);
    if let Some(document) = &measurements.code_objects {
        check_code_objects(document, verification);
    }
}

/// A check passes when its difference keeps its bound; and what was not built or executed has a reason instead.
fn check_code_objects(document: &CodeObjects, verification: &mut Verification) {
    let CodeObjects { build, not_built, execution, not_executed } = document;
    let path = || format!("measurements/{}", code_objects::FILE);
    let checks = execution.iter().flat_map(|execution| &execution.checks);
    for check in checks.filter(|check| check.passed != check.difference.is_some_and(|difference| difference <= check.bound)) {
        verification.find(path(), format!("{}: whether it passed is not what its difference and bound say", one_line(&check.name)));
    }
    if execution.as_ref().is_some_and(|execution| !execution.device.interpreted) {
        verification.find(path(), "was not executed by an interpreter");
    }
    if build.is_some() == not_built.is_some() || (build.is_some() && execution.is_some() == not_executed.is_some()) {
        verification.find(path(), "says both, or neither, of what was done and why it was not");
    }
}

fn path(file: &str) -> String {
    format!("measurements/{file}.jsonl")
}

/// Each series has the repeats 1 to `wanted`, each once; where the profile does not say how many, all have as many as the first.
fn check_repeats(file: &str, repeats: impl Iterator<Item = (String, u64)>, wanted: Option<u64>, verification: &mut Verification) {
    let mut series: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (name, repeat) in repeats {
        series.entry(name).or_default().push(repeat);
    }
    let wanted = wanted.or_else(|| series.values().map(|repeats| repeats.len() as u64).max()).unwrap_or_default();
    let whole = |repeats: &[u64]| repeats.iter().copied().eq(1..=wanted);
    if let Some((name, repeats)) = series.iter().find(|(_, repeats)| !whole(repeats)) {
        verification.find(path(file), format!("{name}: {} repeats, which are not 1 to {wanted} in order, each once", repeats.len()));
    }
}
