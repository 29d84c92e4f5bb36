//! Raw files in, measurements out: tokens to target, loss gaps, step and kernel times, quantisation errors, with intervals.
//!
//! Nothing here knows what a paper claims. `load` reads runs, `study` the archived manifests, `target` pairs arms by seed, `noise`
//! tells how far single runs scatter, `readings` where a gap sits, `times` handles interleaved repeats, `tables` writes the CSV files.

pub mod curves;
pub mod load;
pub mod noise;
pub mod quantisation;
pub mod readings;
pub mod study;
pub mod tables;
pub mod target;
pub mod times;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use study::Study;

use contract::measurements::{RotationIdentity, StepTime, StepTimeLine};

use crate::code_objects::CodeObjects;
use crate::kernels::Document;
use crate::manifest::public_logs::{self, PublicLogs};
use crate::others::Other;

use curves::Cost;
pub use load::MeasureError;
use load::{KernelTimeRecord, Run};
use noise::Noise;
use quantisation::QuantisationSummary;
use readings::Parts;
use target::{LossGap, TokensToTarget};

/// Everything measured in one result directory.
#[derive(Debug, Clone)]
pub struct Measurements {
    pub study: Study,
    /// All runs, by arm and seed, whatever their status.
    pub runs: Vec<Run>,
    /// Tokens to target of finished runs; empty when the profile has no target.
    pub tokens: Vec<TokensToTarget>,
    /// Loss gaps to every baseline that a paper or a claim names.
    pub loss_gaps: Vec<LossGap>,
    /// The baseline of the first paper: the one in `tokens_to_target.csv`.
    pub baseline: String,
    pub quantisation: Vec<QuantisationSummary>,
    /// Interleaved step times.
    pub step_times: Vec<StepTime>,
    pub kernel_times: Vec<KernelTimeRecord>,
    pub rotations: Vec<RotationIdentity>,
    /// Steps with the time of each kind of kernel.
    pub step_profile: Vec<StepTimeLine>,
    /// What `kernels-bench` measured on this machine, if it had when the campaign was put together.
    pub kernels_bench: Option<Document>,
    /// The MI355X kernels: built, and executed on a model of the ISA; none where a campaign was put together without.
    pub code_objects: Option<CodeObjects>,
    /// What other committed campaigns found, as the directory has it.
    pub others: Vec<Other>,
    /// Runs of others, from public logs; never mixed with `runs`.
    pub public_logs: Vec<PublicLogs>,
    /// A table and figures show them; a layout at each evaluation is worth fitting once.
    costs: OnceLock<Vec<Cost>>,
    /// As costs.
    readings: OnceLock<Vec<Parts>>,
}

impl Measurements {
    /// Runs of `arm` that used their budget or diverged, by seed.
    pub fn outcomes(&self, arm: &str) -> Vec<&TokensToTarget> {
        self.tokens.iter().filter(|run| run.arm == arm).collect()
    }

    /// The cost of every arm against the baseline, along its whole curve.
    pub fn costs(&self) -> &[Cost] {
        self.costs.get_or_init(|| curves::costs(self, &self.baseline))
    }

    /// The gap of every arm to the baseline, taken apart into training and reading; empty without readings.
    pub fn readings(&self) -> &[Parts] {
        self.readings.get_or_init(|| readings::parts(self, &self.baseline))
    }

    /// How far single runs scatter; none with too few runs.
    pub fn noise(&self) -> Option<Noise> {
        Noise::of(&self.tokens, &self.baseline, self.study.estimator)
    }

    /// Loss gaps at the last evaluation of `arm` to `baseline`, by seed; none where a run diverged.
    pub fn gaps(&self, arm: &str, baseline: &str) -> Vec<&LossGap> {
        self.loss_gaps.iter().filter(|gap| gap.arm == arm && gap.baseline == baseline).collect()
    }
}

/// Measures the result directory at `directory`. Reads only.
///
/// # Errors
/// When a manifest or raw file is missing or does not follow its schema.
pub fn measure(directory: &Path) -> Result<Measurements, MeasureError> {
    let mut study = Study::load(directory)?;
    let runs = load::runs(directory)?;
    study.executed(&runs);
    let steps = study.profile.budget.steps;
    let tokens =
        study.profile.target_loss.map(|target| target::tokens_to_target(&runs, target, steps, study.estimator)).unwrap_or_default();
    // In order of name, each once: two papers may share a baseline, and a claim may name one that is no paper's.
    let claimed = study.papers.iter().flat_map(|paper| &paper.claims).filter_map(|claim| claim.metric.baseline());
    let baselines: BTreeSet<&str> = study.papers.iter().map(|paper| paper.baseline.as_str()).chain(claimed).collect();
    let loss_gaps = baselines.iter().flat_map(|baseline| target::loss_gaps(&runs, baseline, steps)).collect();
    let baseline = study.papers.first().map(|paper| paper.baseline.clone()).unwrap_or_default();
    Ok(Measurements {
        tokens,
        loss_gaps,
        baseline,
        quantisation: quantisation::quantisation(&runs),
        step_times: load::step_times(directory)?,
        kernel_times: load::kernel_times(directory)?,
        rotations: load::rotations(directory)?,
        step_profile: load::step_profile(directory)?,
        kernels_bench: load::kernels_bench(directory)?,
        code_objects: load::code_objects(directory)?,
        others: load::others(directory)?,
        public_logs: public_logs::load(directory)?,
        runs,
        study,
        costs: OnceLock::new(),
        readings: OnceLock::new(),
    })
}
