//! What docs/slices.md says of runs of several profiles in one pool, from what the command said and the timings of its runs.

use std::collections::{BTreeMap, BTreeSet};

use contract::json;
use contract::timing::TimingLine;

/// Folders of logs, GPUs, and the last second that is read: what was at work later ended with the machine, and was made again elsewhere.
const MEASURED: [(&str, usize, f64); 4] = [
    ("docs/measured/slices-2026-11-26", 4, 810.0),
    ("docs/measured/slices-2026-11-26-two-h200s", 2, 1052.0),
    ("docs/measured/slices-2026-11-26-four-h200s", 4, 1591.0),
    ("docs/measured/slices-2026-11-27-four-h200s", 4, 1560.0),
];

/// What was said once: seconds since the start, and the step of every run at work.
struct Said {
    seconds: f64,
    at: BTreeMap<Run, u64>,
}

/// Profile, and arm with seed.
type Run = (String, String);

impl Said {
    /// `1% of steps, run 0/34; cuda:0 PROFILE ARM/SEED step 550/4220; cuda:1 PROFILE ARM/SEED begins, 30 s gone, about 2322 s left`.
    fn of(line: &str) -> Option<Self> {
        let (runs, seconds) = line.split_once(" s gone")?.0.rsplit_once(", ")?;
        let at = runs.split("; ").skip(1).map(|run| {
            let words: Vec<&str> = run.split(' ').collect();
            ((words[1].to_owned(), words[2].to_owned()), words.get(4).map_or(0, |at| at.split('/').next().unwrap().parse().unwrap()))
        });
        Some(Self { seconds: seconds.parse().ok()?, at: at.collect() })
    }
}

/// Seconds of steps and of evaluations of a run up to a step.
fn spent((profile, run): &Run, until: u64) -> [f64; 2] {
    let of_profile = |name: &str| name.rsplit_once('-').is_some_and(|(name, _)| name.ends_with(&format!("-{profile}")));
    let names = std::fs::read_dir(super::root().join("results")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let directory = names.filter(|name| of_profile(name)).max().unwrap();
    let text = study::packed::text(&super::root().join("results").join(directory).join("runs").join(run).join("timing.jsonl")).unwrap();
    let (mut steps, mut evaluations) = (0.0, 0.0);
    for line in json::read(run, &text) {
        match line.unwrap().1 {
            TimingLine::Step(step) if step.step <= until => steps += step.seconds,
            TimingLine::Evaluation(evaluation) if evaluation.step <= until => evaluations += evaluation.seconds,
            _ => {}
        }
    }
    [steps, evaluations]
}

#[test]
fn what_is_said_of_slices_was_measured() {
    let page = super::read("docs/slices.md").replace('\n', " ");
    for (folder, gpus, end) in MEASURED {
        let log = super::read(&format!("{folder}/progress.log"));
        let lines: Vec<Said> = log.lines().filter_map(Said::of).take_while(|said| said.seconds <= end).collect();
        let begun: BTreeSet<&Run> = lines.iter().flat_map(|said| said.at.keys()).collect();
        let last = lines.last().unwrap();
        let runs: Vec<[f64; 2]> = begun.iter().map(|run| spent(run, last.at.get(run).copied().unwrap_or(u64::MAX))).collect();
        let [steps, evaluations] = [0, 1].map(|kind| 100.0 * runs.iter().map(|run| run[kind]).sum::<f64>() / (gpus as f64 * last.seconds));
        let wanted = format!(
            "first {:.0} s {steps:.1} % of the GPUs' time went to steps, {evaluations:.1} % to evaluations and {:.1} % to everything else",
            last.seconds,
            100.0 - steps - evaluations
        );
        assert!(page.contains(&wanted), "{wanted}");
        let with = format!("H200s with {} runs", begun.len());
        assert!(page.contains(&with), "{folder}: {with}");
    }
}
