//! What a moment of a campaign looks like to a program: one JSON object a line.

use serde::Serialize;
use time::OffsetDateTime;

use super::{Run, Watched};

const SCHEMA: &str = "mxfp4-watch/1";

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    /// Seconds since 1970.
    at: i64,
    profile: &'a str,
    steps_done: u64,
    steps: u64,
    seconds_left: Option<f64>,
    runs: Vec<OneRun<'a>>,
    gpus: &'a [String],
}

#[derive(Serialize)]
struct OneRun<'a> {
    arm: &'a str,
    seed: u64,
    state: &'static str,
    step: u64,
    steps: u64,
    /// The last validation loss and its step.
    loss: Option<f64>,
    loss_at_step: Option<u64>,
    seconds_a_step: Option<f64>,
    seconds_left: Option<f64>,
    device: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl Watched {
    /// One line for a program, without the line's end.
    pub fn json(&self, now: OffsetDateTime) -> String {
        let (steps_done, steps) = self.steps();
        let line = Line {
            schema: SCHEMA,
            at: now.unix_timestamp(),
            profile: self.profile.as_str(),
            steps_done,
            steps,
            seconds_left: self.seconds_left(),
            runs: self.runs.iter().map(of_run).collect(),
            gpus: &self.gpus,
        };
        // Strings and finite numbers: cannot fail.
        serde_json::to_string(&line).unwrap_or_default()
    }
}

fn of_run(run: &Run) -> OneRun<'_> {
    OneRun {
        arm: &run.arm,
        seed: run.seed,
        state: run.doing.word(),
        step: run.step,
        steps: run.steps,
        loss: run.evaluations.last().map(|(_, loss)| *loss),
        loss_at_step: run.evaluations.last().map(|(step, _)| *step),
        seconds_a_step: run.seconds_a_step,
        seconds_left: run.seconds_left(),
        device: &run.device,
        error: run.doing.error(),
    }
}
