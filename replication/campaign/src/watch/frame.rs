//! What a moment of a campaign looks like on a terminal, in text alone.

use std::collections::BTreeMap;
use std::fmt;

use super::{Doing, Run, Watched};

/// Runs that are named one by one.
const MOST: usize = 24;
/// Cells of a plot of losses.
const CELLS: usize = 24;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Watched {
    fn count(&self, is: impl Fn(&Doing) -> bool) -> usize {
        self.runs.iter().filter(|run| is(&run.doing)).count()
    }

    /// Seconds until the last run ends, if as many as now stay at work and those that wait take as long as others did. None while no run
    /// has told its pace, or nobody is at work.
    pub fn seconds_left(&self) -> Option<f64> {
        let at_work: Vec<&Run> = self.runs.iter().filter(|run| run.doing == Doing::AtWork).collect();
        let paces: Vec<f64> = self.runs.iter().filter_map(|run| run.seconds_a_step).collect();
        if at_work.is_empty() || paces.is_empty() {
            return None;
        }
        let mean = paces.iter().sum::<f64>() / paces.len() as f64;
        let left = |run: &Run| (run.steps - run.step.min(run.steps)) as f64 * run.seconds_a_step.unwrap_or(mean);
        let open = |run: &&Run| matches!(run.doing, Doing::AtWork | Doing::Waiting | Doing::Stopped);
        let all: f64 = self.runs.iter().filter(open).map(left).sum();
        let longest = at_work.iter().map(|run| left(run)).fold(0.0, f64::max);
        Some((all / at_work.len() as f64).max(longest))
    }

    /// Steps that need not be made any more, and all.
    pub(super) fn steps(&self) -> (u64, u64) {
        let ended = |run: &Run| matches!(run.doing, Doing::Finished | Doing::Diverged);
        let done = self.runs.iter().map(|run| if ended(run) { run.steps } else { run.step.min(run.steps) }).sum();
        (done, self.runs.iter().map(|run| run.steps).sum())
    }

    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.count(|doing| *doing == Doing::Finished), "finished"),
            (self.count(|doing| *doing == Doing::Diverged), "diverged"),
            (self.count(|doing| *doing == Doing::AtWork), "at work"),
            (self.count(|doing| *doing == Doing::Waiting), "waiting"),
            (self.count(|doing| *doing == Doing::Stopped), "stopped"),
            (self.count(|doing| matches!(doing, Doing::Failed(_))), "failed"),
        ];
        let counts: Vec<String> = counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
        let left = self.seconds_left().map_or(String::new(), |seconds| format!("; about {} left", duration(seconds)));
        writeln!(f, "{}: {} runs, {}{left}", self.profile, self.runs.len(), counts.join(", "))?;
        let (done, all) = self.steps();
        let filled = (32 * done / all.max(1)) as usize;
        writeln!(f, "{}{} {}% of steps", "█".repeat(filled), "░".repeat(32 - filled), 100 * done / all.max(1))
    }

    /// Runs one by one.
    fn list(&self, f: &mut fmt::Formatter<'_>, title: &str, is: impl Fn(&Doing) -> bool) -> fmt::Result {
        let runs: Vec<&Run> = self.runs.iter().filter(|run| is(&run.doing)).collect();
        if runs.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{title}")?;
        let width = runs.iter().map(|run| run.arm.chars().count() + digits(run.seed) + 1).max().unwrap_or(0);
        for run in runs.iter().take(MOST) {
            let name = format!("{}/{}", run.arm, run.seed);
            let plot = plot(&run.losses());
            let loss = run.evaluations.last().map_or(String::new(), |(_, loss)| format!("{loss:.3}"));
            writeln!(f, "  {name:width$}  {:>13}  {plot:CELLS$}  {loss:>6}  {}", format!("{}/{}", run.step, run.steps), run.device)?;
            if let Doing::Failed(said) = &run.doing {
                writeln!(f, "    {said}")?;
            }
        }
        if runs.len() > MOST { writeln!(f, "  and {} more", runs.len() - MOST) } else { Ok(()) }
    }

    /// By arm: how many seeds, and their mean loss over training and at its end.
    fn finished(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut arms: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.doing == Doing::Finished) {
            arms.entry(&run.arm).or_default().push(run);
        }
        if arms.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nfinished: seeds, mean validation loss")?;
        let width = arms.keys().map(|arm| arm.chars().count()).max().unwrap_or(0);
        for (arm, runs) in arms {
            let length = runs.iter().map(|run| run.evaluations.len()).min().unwrap_or(0);
            let mean = |index: usize| runs.iter().map(|run| run.evaluations[index].1).sum::<f64>() / runs.len() as f64;
            let means: Vec<f64> = (0..length).map(mean).collect();
            let loss = means.last().map_or(String::new(), |loss| format!("{loss:.4}"));
            writeln!(f, "  {arm:width$}  {:>3}  {:CELLS$}  {loss}", runs.len(), plot(&means))?;
        }
        Ok(())
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.list(f, "at work: steps, validation loss, device", |doing| *doing == Doing::AtWork)?;
        self.list(f, "stopped; the same command goes on", |doing| *doing == Doing::Stopped)?;
        self.list(f, "failed", |doing| matches!(doing, Doing::Failed(_)))?;
        self.list(f, "diverged", |doing| *doing == Doing::Diverged)?;
        self.finished(f)?;
        if !self.gpus.is_empty() {
            writeln!(f, "\nGPUs")?;
        }
        self.gpus.iter().try_for_each(|gpu| writeln!(f, "  {gpu}"))
    }
}

fn digits(number: u64) -> usize {
    number.to_string().len()
}

/// Losses between their own smallest and largest, at most [`CELLS`] of them at equal distances, the last one always.
fn plot(losses: &[f64]) -> String {
    let (low, high) = losses.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &loss| (low.min(loss), high.max(loss)));
    let cells = losses.len().min(CELLS);
    let at = |cell: usize| losses[(cell + 1) * losses.len() / cells - 1];
    let block = |loss: f64| {
        let share = if high > low { (loss - low) / (high - low) } else { 0.0 };
        BLOCKS[((share * BLOCKS.len() as f64) as usize).min(BLOCKS.len() - 1)]
    };
    (0..cells).map(|cell| block(at(cell))).collect()
}

/// `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`.
pub(super) fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0 | 1 => format!("{seconds:.0} s"),
        2..=119 => format!("{minutes} min"),
        120..=2879 => format!("{} h {} min", minutes / 60, minutes % 60),
        _ => format!("{} d {} h", minutes / 1440, minutes % 1440 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_go_from_the_largest_to_the_smallest() {
        assert_eq!(plot(&[8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), "█▇▆▅▄▃▂▁");
        assert_eq!((plot(&[]), plot(&[3.0]), plot(&[2.0, 2.0])), (String::new(), "▁".to_owned(), "▁▁".to_owned()));
        let long: Vec<f64> = (0..1000).map(|step| -f64::from(step)).collect();
        let shown = plot(&long);
        assert!(shown.chars().count() == CELLS && shown.starts_with('█') && shown.ends_with('▁'), "{shown}");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let shown = [4.4, 89.0, 91.0, 7140.0, 7200.0, 200_000.0].map(duration);
        assert_eq!(shown, ["4 s", "89 s", "2 min", "119 min", "2 h 0 min", "2 d 7 h"]);
    }
}
