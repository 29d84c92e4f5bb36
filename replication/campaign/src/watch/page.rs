//! What a moment of a campaign looks like in a browser.

use std::path::Path;

use study::render::{self, Live, LiveRun, RenderError};
use time::OffsetDateTime;

use super::frame::duration;
use super::{Run, Watched};

impl Watched {
    /// A page from the templates in `paper`. Arms are compared with `baseline`; with `every` it asks a browser to load it again after so many
    /// seconds.
    ///
    /// # Errors
    /// A template that is missing or wrong.
    pub fn page(&self, baseline: Option<&str>, every: Option<u64>, now: OffsetDateTime, paper: &Path) -> Result<String, RenderError> {
        let live = Live {
            profile: self.profile.to_string(),
            at: format!("{} {:02}:{:02}:{:02} UTC", now.date(), now.hour(), now.minute(), now.second()),
            every,
            left: self.seconds_left().map(duration),
            baseline: baseline.map(str::to_owned),
            runs: self.runs.iter().map(of_run).collect(),
            gpus: self.gpus.clone(),
        };
        render::live(&live, paper)
    }
}

fn of_run(run: &Run) -> LiveRun {
    LiveRun {
        arm: run.arm.clone(),
        seed: run.seed,
        state: run.doing.word(),
        step: run.step,
        steps: run.steps,
        evaluations: run.evaluations.clone(),
        left: run.seconds_left().map(duration),
        device: run.device.clone(),
        error: run.doing.error().map(str::to_owned),
    }
}
