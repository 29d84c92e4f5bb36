//! A comparison as lines of text.

use std::fmt;

use super::{Comparison, MetricDifference, RunDifference};
use crate::number;

/// Differences of settings printed for each run; the rest is counted.
const SETTINGS: usize = 6;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "first:  {}\nsecond: {}", self.titles[0], self.titles[1])?;
        for line in &self.made_differently {
            writeln!(f, "made differently, {line}")?;
        }
        self.deterministic(f)?;
        self.times(f)?;
        self.verdicts(f)
    }
}

impl Comparison {
    fn deterministic(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.equal() {
            return writeln!(f, "\ndeterministic files: EQUAL, all {} of them byte for byte", self.equal_files);
        }
        writeln!(
            f,
            "\ndeterministic files: NOT equal; {} are equal, {} runs and {} tables differ",
            self.equal_files,
            self.runs.len(),
            self.tables.len()
        )?;
        for (side, runs) in ["first", "second"].iter().zip(&self.only) {
            if !runs.is_empty() {
                writeln!(f, "  runs only in the {side}: {}", runs.join(", "))?;
            }
        }
        for run in &self.runs {
            write!(f, "{run}")?;
        }
        for table in &self.tables {
            writeln!(f, "  {table} differs")?;
        }
        Ok(())
    }

    fn times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.times.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:<30} {:>12} {:>12} {:>14}", "measured, medians", "first", "second", "second/first")?;
        for pair in &self.times {
            let [first, second] = pair.seconds.map(|seconds| seconds.map_or("-".to_owned(), number::seconds));
            let ratio = pair.ratio().map_or("-".to_owned(), |ratio| number::fixed(ratio, 3));
            writeln!(f, "{:<30} {first:>12} {second:>12} {ratio:>14}", pair.what)?;
        }
        Ok(())
    }

    fn verdicts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.verdicts.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:<16} {:<46} second", "verdicts", "first")?;
        for pair in &self.verdicts {
            let [first, second] = [0, 1]
                .map(|side: usize| format!("{} {}", pair.words[side].as_deref().unwrap_or("-"), pair.numbers[side]).trim().to_owned());
            let mark = if pair.words[0] == pair.words[1] { "" } else { "   <- another verdict" };
            writeln!(f, "{:<16} {first:<46} {second}{mark}", pair.claim)?;
        }
        Ok(())
    }
}

impl fmt::Display for RunDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.run)?;
        for line in self.settings.iter().take(SETTINGS) {
            writeln!(f, "    run.yaml, {line}")?;
        }
        if self.settings.len() > SETTINGS {
            writeln!(f, "    run.yaml, {} more", self.settings.len() - SETTINGS)?;
        }
        for metric in &self.metrics {
            writeln!(f, "    {metric}")?;
        }
        for line in &self.files {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for MetricDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {} values differ", self.what, self.differing, self.compared)?;
        if let Some((amount, step)) = self.largest {
            write!(f, ", most by {} at step {step}", number::scientific(amount))?;
        }
        if let Some(step) = self.first_step {
            write!(f, ", first at step {step}")?;
        }
        if self.unmatched > 0 {
            write!(f, "; {} values are in one only or no number in one", self.unmatched)?;
        }
        Ok(())
    }
}
