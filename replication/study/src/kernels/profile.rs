//! Where a training step's time goes: the trainer's `step_kernel` lines as medians and shares.

use contract::measurements::{StepKernel, StepTimeLine};
use serde::{Deserialize, Serialize};

use crate::statistics::median;

/// One kind of kernel in one arm's step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileRow {
    /// `A` or `B`; empty in a campaign, whose model is the profile's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    pub arm: String,
    /// Kind of kernel; `everything else` is what no kernel accounts for.
    pub kernel: String,
    /// Calls in a step.
    pub calls: u64,
    /// Operations or elements in a step; 0 where they are not counted.
    pub work: u64,
    /// Median seconds of a step.
    pub seconds: f64,
    /// Of the median step.
    pub share: f64,
}

impl ProfileRow {
    /// Thousand million operations or elements a second; none where they are not counted.
    pub fn giga_per_second(&self) -> Option<f64> {
        (self.work > 0).then(|| self.work as f64 / self.seconds / 1e9)
    }
}

/// The name of what no kernel accounts for.
const REST: &str = "everything else";

/// Rows by arm, in the order of the lines, each arm's kernels by time.
pub fn rows(size: &str, lines: &[StepTimeLine]) -> Vec<ProfileRow> {
    let mut arms: Vec<&String> = Vec::new();
    for line in lines {
        if let StepTimeLine::Kernel(StepKernel { arm, .. }) = line
            && !arms.contains(&arm)
        {
            arms.push(arm);
        }
    }
    arms.into_iter().filter_map(|arm| of_arm(size, arm, lines)).flatten().collect()
}

fn of_arm(size: &str, wanted: &str, lines: &[StepTimeLine]) -> Option<Vec<ProfileRow>> {
    let steps: Vec<f64> = lines
        .iter()
        .filter_map(|line| match line {
            StepTimeLine::Step(step) if step.arm == wanted => Some(step.seconds),
            _ => None,
        })
        .collect();
    let step = median(&steps)?;
    let mut kernels: Vec<(&str, u64, u64, Vec<f64>)> = Vec::new();
    for line in lines {
        let StepTimeLine::Kernel(StepKernel { arm, kernel, calls, work, seconds, .. }) = line else { continue };
        if arm != wanted {
            continue;
        }
        match kernels.iter_mut().find(|(name, ..)| *name == kernel) {
            Some((.., times)) => times.push(*seconds),
            None => kernels.push((kernel, *calls, *work, vec![*seconds])),
        }
    }
    let row = |kernel: &str, calls, work, seconds: f64| {
        let (size, arm, kernel) = (size.to_owned(), wanted.to_owned(), kernel.to_owned());
        ProfileRow { size, arm, kernel, calls, work, seconds, share: seconds / step }
    };
    let mut rows: Vec<ProfileRow> =
        kernels.iter().filter_map(|(kernel, calls, work, times)| Some(row(kernel, *calls, *work, median(times)?))).collect();
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    // Medians of parts need not add up to the median of the whole.
    let rest = (step - rows.iter().map(|row| row.seconds).sum::<f64>()).max(0.0);
    rows.push(row(REST, 0, 0, rest));
    Some(rows)
}
