//! How far a campaign's runs are: a bar on a terminal, now and then a plain line elsewhere, each with an estimate of what is left.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on a terminal; one plain line every half minute elsewhere; nothing where that is asked for.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    started: Instant,
    total: u64,
    done: AtomicU64,
    runs: usize,
    runs_done: AtomicU64,
    last_line: Mutex<Instant>,
    /// What each run at work does, by place and name.
    at_work: Mutex<BTreeMap<(String, String), String>>,
}

impl Progress {
    pub(crate) fn new(total: u64, runs: usize, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:32} {percent}% of steps, {msg}, {elapsed} gone, about {eta} left") {
                bar.set_style(style);
            }
            bar.set_message(format!("run 0/{runs}"));
            bar
        });
        let now = Instant::now();
        Self {
            bar,
            quiet,
            started: now,
            total,
            done: AtomicU64::new(0),
            runs,
            runs_done: AtomicU64::new(0),
            last_line: Mutex::new(now),
            at_work: Mutex::default(),
        }
    }

    pub(crate) fn advance(&self, steps: u64) {
        let done = self.done.fetch_add(steps, Ordering::Relaxed) + steps;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            return;
        }
        if self.quiet {
            return;
        }
        let mut last = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= Duration::from_secs(30) && done > 0 {
            *last = Instant::now();
            let elapsed = self.started.elapsed().as_secs_f64();
            let left = elapsed / done as f64 * self.total.saturating_sub(done) as f64;
            let percent = 100 * done / self.total.max(1);
            eprintln!("{percent}% of steps, {}, {elapsed:.0} s gone, about {left:.0} s left", self.message());
        }
    }

    /// `run 3/22; cuda:0 fp8/1 step 120/360; cuda:1 ...`: places that are not the processor are named.
    fn message(&self) -> String {
        let mut text = format!("run {}/{}", self.runs_done.load(Ordering::Relaxed), self.runs);
        let at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        for ((place, run), doing) in at_work.iter().filter(|((place, _), _)| place != "cpu") {
            text.push_str(&format!("; {place} {run} {doing}"));
        }
        text
    }

    /// What a run does now in its place; None: it has ended.
    pub(crate) fn at_work(&self, place: &str, run: &str, doing: Option<String>) {
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (place.to_owned(), run.to_owned());
        match doing {
            Some(doing) => at_work.insert(key, doing),
            None => at_work.remove(&key),
        };
        drop(at_work);
        self.show();
    }

    pub(crate) fn run_done(&self) {
        self.runs_done.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    fn show(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message(self.message());
        }
    }

    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None if self.quiet => (),
            None => eprintln!("{line}"),
        }
    }

    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
