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

/// As [`MEASURED`], but each moment of a GPU counts once, although a run begins there before another ends.
const BY_CLOCK: [(&str, usize, f64); 2] = [MEASURED[0], ("docs/measured/slices-2026-11-27-depth", 4, 1410.0)];

/// What was said once: seconds since the start, and the step of every run at work.
struct Said {
    seconds: f64,
    at: BTreeMap<Run, u64>,
    /// Where each of these runs is.
    places: BTreeMap<Run, String>,
}

/// Profile, and arm with seed.
type Run = (String, String);

impl Said {
    /// `1% of steps, run 0/34; cuda:0 PROFILE ARM/SEED step 550/4220; cuda:1 PROFILE ARM/SEED begins, 30 s gone, about 2322 s left`.
    fn of(line: &str) -> Option<Self> {
        let (runs, seconds) = line.split_once(" s gone")?.0.rsplit_once(", ")?;
        let (mut at, mut places) = (BTreeMap::new(), BTreeMap::new());
        for words in runs.split("; ").skip(1).map(|run| run.split(' ').collect::<Vec<_>>()) {
            let run = (words[1].to_owned(), words[2].to_owned());
            at.insert(run.clone(), words.get(4).map_or(0, |at| at.split('/').next().unwrap().parse().unwrap()));
            places.insert(run, words[0].to_owned());
        }
        Some(Self { seconds: seconds.parse().ok()?, at, places })
    }

    /// All that a log says until a second.
    fn until(folder: &str, end: f64) -> Vec<Self> {
        let log = super::read(&format!("{folder}/progress.log"));
        log.lines().filter_map(Self::of).take_while(|said| said.seconds <= end).collect()
    }
}

/// A file of a run in the newest directory of its profile.
fn file((profile, run): &Run, name: &str) -> String {
    let of_profile = |name: &str| name.rsplit_once('-').is_some_and(|(name, _)| name.ends_with(&format!("-{profile}")));
    let names = std::fs::read_dir(super::root().join("results")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let directory = names.filter(|name| of_profile(name)).max().unwrap();
    study::packed::text(&super::root().join("results").join(directory).join("runs").join(run).join(name)).unwrap()
}

fn timing(run: &Run) -> Vec<TimingLine> {
    json::read(&run.1, &file(run, "timing.jsonl")).map(|line| line.unwrap().1).collect()
}

/// Seconds of steps and of evaluations of a run up to a step.
fn spent(run: &Run, until: u64) -> [f64; 2] {
    let (mut steps, mut evaluations) = (0.0, 0.0);
    for line in timing(run) {
        match line {
            TimingLine::Step(step) if step.step <= until => steps += step.seconds,
            TimingLine::Evaluation(evaluation) if evaluation.step <= until => evaluations += evaluation.seconds,
            _ => {}
        }
    }
    [steps, evaluations]
}

/// Stretches of the clock, seconds: begin and end.
type Stretches = Vec<(f64, f64)>;

/// When a run was in its steps and in its evaluations, and when each step ended. `run.mllog` says when each evaluation ended, and steps follow it
/// one after another.
fn clock(run: &Run) -> (Stretches, Stretches, BTreeMap<u64, f64>) {
    let ended = file(run, "run.mllog");
    let mut ended = ended.lines().filter(|line| line.contains("\"eval_accuracy\"")).map(|line| {
        let line: serde_json::Value = serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
        line["time_ms"].as_f64().unwrap() / 1e3
    });
    let (mut steps, mut evaluations, mut ends, mut now) = (Vec::new(), Vec::new(), BTreeMap::new(), 0.0);
    for line in timing(run) {
        match line {
            TimingLine::Step(step) => {
                steps.push((now, now + step.seconds));
                now += step.seconds;
                ends.insert(step.step, now);
            }
            TimingLine::Evaluation(evaluation) => {
                now = ended.next().unwrap();
                evaluations.push((now - evaluation.seconds, now));
            }
            _ => {}
        }
    }
    (steps, evaluations, ends)
}

/// How long at least one of some stretches lasts between two moments.
fn union(mut stretches: Stretches, from: f64, to: f64) -> f64 {
    stretches.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut seconds, mut until) = (0.0, from);
    for (begin, end) in stretches {
        let (begin, end) = (begin.max(until), end.min(to));
        seconds += (end - begin).max(0.0);
        until = until.max(end);
    }
    seconds
}

#[test]
fn what_is_said_of_slices_was_measured() {
    let page = super::read("docs/slices.md").replace('\n', " ");
    for (folder, gpus, end) in MEASURED {
        let lines = Said::until(folder, end);
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

#[test]
fn what_is_said_of_slices_by_the_clock_was_measured() {
    let page = super::read("docs/slices.md").replace('\n', " ");
    let [first, last] = BY_CLOCK.map(|(folder, gpus, end)| {
        let lines = Said::until(folder, f64::MAX);
        let places: BTreeMap<&Run, &String> = lines.iter().flat_map(|said| &said.places).collect();
        let (mut by_place, mut starts) = (BTreeMap::<&String, [Stretches; 2]>::new(), Vec::new());
        for (run, place) in &places {
            let (steps, evaluations, ends) = clock(run);
            starts.extend(lines.iter().filter_map(|said| Some(ends.get(said.at.get(*run)?)? - said.seconds)));
            let [in_steps, in_either] = by_place.entry(place).or_default();
            in_either.extend(steps.iter().chain(&evaluations));
            in_steps.extend(steps);
        }
        assert_eq!(by_place.len(), gpus);
        // What is said is at most a second old.
        starts.sort_by(f64::total_cmp);
        assert!(starts[starts.len() - 1] - starts[0] < 1.0, "{folder}: {starts:?}");
        let start = starts[starts.len() / 2];
        let share = |kind: usize| {
            let seconds: f64 = by_place.values().map(|stretches| union(stretches[kind].clone(), start, start + end)).sum();
            100.0 * seconds / (gpus as f64 * end)
        };
        (share(0), share(1), places.len(), end)
    });
    let evaluation = |seed: u64| {
        let of = timing(&("dnc-32m".to_owned(), format!("fp8/{seed}"))).into_iter().filter_map(|line| match line {
            TimingLine::Evaluation(evaluation) => Some(1e3 * evaluation.seconds),
            _ => None,
        });
        super::numbers::median(&of.collect::<Vec<_>>())
    };
    let (steps, either, runs, end) = last;
    assert!(steps >= 95.0, "{steps}");
    for wanted in [
        format!("Four H200s with {runs} runs of 32M"),
        format!(
            "first {end:.0} s {steps:.1} % of the GPUs' time went to steps, {:.1} % to evaluations and {:.1} % to everything else",
            either - steps,
            100.0 - either
        ),
        format!("in `dnc-32m` took {:.1} ms with seed 12 and takes {:.1} ms with seed 13", evaluation(12), evaluation(13)),
        format!("the {} runs of the first of these had {:.1} % of steps", first.2, first.0),
    ] {
        assert!(page.contains(&wanted), "{wanted}");
    }
}
