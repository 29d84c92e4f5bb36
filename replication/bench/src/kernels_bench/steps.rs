//! Training steps of two fixed sizes, FP8 and full MXFP4 in turns, on random tokens; with the time of each kind of kernel, and in turns with
//! peers' steps.
//!
//! Not a campaign's step times: those are of the campaign's own model and data. Sizes A and B are what the project's bars and the
//! peer script speak of; their models are in manifests/models.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use campaign::error::interrupted;
use campaign::machine;
use contract::json;
use contract::measurements::{StepTime, StepTimeLine};
use study::files;
use study::kernels::{Depth, Memory, ProfileRow, Samples, profile_rows};
use study::plan;

use super::beside::Beside;
use super::samples::Peers;
use super::{BenchError, Means};

/// A model and how many sequences make a step of it.
struct Size {
    name: &'static str,
    model: &'static str,
    sequences: usize,
}

const SIZES: [Size; 2] = [Size { name: "A", model: "size-a", sequences: 32 }, Size { name: "B", model: "size-b", sequences: 16 }];

/// The recipes that take turns.
const ARMS: [&str; 2] = ["fp8", "mxfp4-fdw-h16"];

/// Rounds done in one process: what it takes to start is then a small part.
const ROUNDS_IN_A_PROCESS: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) samples: Vec<Samples>,
    pub(super) profile: Vec<ProfileRow>,
    pub(super) memory: Vec<Memory>,
    /// Sample i of a peer belongs to our round i.
    pub(super) peers: Peers,
    pub(super) spent_on_peers: Duration,
}

/// Steps are taken with one thread and with two wherever there are two, for the ratio of both; the first asked for leads.
pub(super) fn threads(asked: &[usize]) -> Vec<usize> {
    let mut threads = asked.to_vec();
    for extra in [1, 2] {
        if !threads.contains(&extra) && extra <= machine::cores() {
            threads.push(extra);
        }
    }
    threads
}

/// How steps are measured.
pub(super) struct Request<'a> {
    pub(super) means: Means<'a>,
    /// The first is that of the profile and of the peers; at size A they take turns.
    pub(super) threads: Vec<usize>,
    pub(super) rounds: usize,
    pub(super) stop: &'a AtomicBool,
}

impl Request<'_> {
    /// Both sizes, those that `only` asks for.
    pub(super) fn measure(&self, say: &dyn Fn(&str)) -> Result<Steps, BenchError> {
        let sizes: Vec<&Size> = SIZES.iter().filter(|size| self.asks_for(size)).collect();
        let (mut all, mut beside) = (Steps::default(), Beside::default());
        if let (Some(python), Some(threads), false) = (self.means.peers, self.threads.first(), sizes.is_empty()) {
            beside.start(self.means.root, python, *threads);
        }
        for size in sizes {
            let others = if beside.is_there() { ", and beside peers" } else { "" };
            say(&format!("steps of size {}, FP8 and MXFP4 in turns{others}", size.name));
            let steps = self.size(size, &mut beside)?;
            all.samples.extend(steps.samples);
            all.profile.extend(steps.profile);
            all.memory.extend(steps.memory);
        }
        (all.peers, all.spent_on_peers) = beside.end();
        Ok(all)
    }

    fn asks_for(&self, size: &Size) -> bool {
        // Quick leaves the large one out, where a round takes seconds.
        let is_left_out = self.means.depth == Depth::Quick && size.name == "B";
        !is_left_out && ARMS.iter().any(|arm| name(size, arm).contains(self.means.only))
    }

    fn size(&self, size: &Size, beside: &mut Beside) -> Result<Steps, BenchError> {
        let files = self.run_files(size)?;
        // Two threads are compared with one only where a round is short.
        let threads = if size.name == "A" { &self.threads[..] } else { &self.threads[..1] };
        let lines = self.rounds(size, &files, threads, beside)?;
        let memory = ARMS.iter().zip(&files).filter_map(|(arm, file)| Some(Memory { name: name(size, arm), peak_bytes: self.peak(file)? }));
        let mut steps = Steps { profile: profile_rows(size.name, &lines[0]), memory: memory.collect(), ..Steps::default() };
        for (lines, threads) in lines.iter().zip(threads) {
            steps.samples.extend(ARMS.iter().filter_map(|arm| samples(size, arm, *threads, lines)));
        }
        Ok(steps)
    }

    /// One for each arm.
    fn run_files(&self, size: &Size) -> Result<Vec<PathBuf>, BenchError> {
        let Means { manifests, folder, .. } = self.means;
        let profile = manifests.profile("cpu")?;
        let model = manifests
            .models
            .get(size.model)
            .ok_or_else(|| BenchError::Lacks(format!("manifests/models/{}.yaml is missing", size.model)))?;
        let mut files = Vec::new();
        for arm in ARMS {
            let path = folder.join(format!("{}-{arm}.yaml", size.name));
            files::write(&path, plan::step_run_file(manifests, profile, model, size.sequences, arm)?.as_bytes())?;
            files.push(path);
        }
        Ok(files)
    }

    /// What was said with each number of threads. Peers take as many rounds as the first of them, each after a process of it.
    fn rounds(&self, size: &Size, files: &[PathBuf], threads: &[usize], beside: &mut Beside) -> Result<Vec<Vec<StepTimeLine>>, BenchError> {
        let (started, spent_before) = (Instant::now(), beside.spent());
        let most = Duration::from_secs(if self.means.depth == Depth::Deep { 600 } else { 45 });
        let mut lines: Vec<Vec<StepTimeLine>> = vec![Vec::new(); threads.len()];
        let mut done = 0;
        let late = |beside: &Beside| started.elapsed() >= most + (beside.spent() - spent_before);
        // The sign test needs six rounds for an interval: the deadline ends nothing before two processes of each kind.
        while done < self.rounds && (done < 2 * ROUNDS_IN_A_PROCESS || !late(beside)) {
            let rounds = ROUNDS_IN_A_PROCESS.min(self.rounds - done);
            for (index, (lines, threads)) in lines.iter_mut().zip(threads).enumerate() {
                lines.extend(self.call(files, *threads, rounds)?);
                if index == 0 {
                    (0..rounds).for_each(|_| beside.take(&group(size)));
                }
                // Between our processes Ctrl-C reaches the peers alone.
                interrupted(self.stop)?;
            }
            done += rounds;
        }
        Ok(lines)
    }

    /// Peak resident memory of a process that does two steps of one arm. None where the system does not tell.
    fn peak(&self, file: &Path) -> Option<u64> {
        let arguments = ["step-time".into(), file.as_os_str().to_owned(), "--warmup".into(), "1".into(), "--repeats".into(), "1".into()];
        let process = self.means.trainer.command(arguments).stdout_null().stderr_null().start().ok()?;
        let mut peak = None;
        while process.try_wait().ok()?.is_none() {
            peak = process.pids().into_iter().filter_map(peak_resident).max().max(peak);
            std::thread::sleep(Duration::from_millis(2));
        }
        peak
    }

    fn call(&self, files: &[PathBuf], threads: usize, rounds: usize) -> Result<Vec<StepTimeLine>, BenchError> {
        let mut arguments: Vec<std::ffi::OsString> = vec!["step-time".into()];
        arguments.extend(files.iter().map(Into::into));
        let options =
            ["--profile-step", "--warmup", "1", "--repeats", &rounds.to_string(), "--threads", &threads.to_string()].map(Into::into);
        arguments.extend(options);
        let text = self.means.trainer.output("timing steps", arguments)?;
        parse(&text)
    }
}

/// Linux keeps the most that a process has had resident.
fn peak_resident(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// The lines of `trainer step-time`.
pub(super) fn parse(text: &str) -> Result<Vec<StepTimeLine>, BenchError> {
    let alien = |json::LineError { line, what, .. }| BenchError::Lines {
        program: "trainer step-time".to_owned(),
        what: format!("line {line}: {what}"),
    };
    json::read("step-time", text).map(|read| read.map(|(_, line)| line).map_err(alien)).collect()
}

fn group(size: &Size) -> String {
    format!("step/{}", size.name)
}

/// What a filter of ours asks of the peers' steps: those of one size, where it names one. Their names end otherwise.
pub(super) fn of_peers(only: &str) -> String {
    SIZES.iter().map(group).find(|group| only.starts_with(group)).unwrap_or_else(|| "step/".to_owned())
}

fn name(size: &Size, arm: &str) -> String {
    format!("step/{}/{arm}", size.name)
}

fn samples(size: &Size, wanted: &str, threads: usize, lines: &[StepTimeLine]) -> Option<Samples> {
    let (mut seconds_of_each, mut operations) = (Vec::new(), 0);
    for line in lines {
        if let StepTimeLine::Step(StepTime { arm, tokens, seconds, .. }) = line
            && arm == wanted
        {
            seconds_of_each.push(*seconds);
            operations = tokens.unwrap_or_default();
        }
    }
    let samples =
        Samples { group: group(size), name: name(size, wanted), threads, operations, unit: "tokens".to_owned(), samples: seconds_of_each };
    (!samples.samples.is_empty()).then_some(samples)
}
