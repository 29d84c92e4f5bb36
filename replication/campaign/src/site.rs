//! The machine that a campaign is carried out on: its processor, or the GPUs that were chosen.

use std::path::PathBuf;

use contract::device::{DeviceKind, GpuFacts};
use contract::memory::Keep;
use study::files::{self, FileError};
use study::kernels;
use study::machine::of_gpus;
use study::record;

use crate::devices::{self, Answers};
use crate::environment;
use crate::error::CampaignError;
use crate::forecast;
use crate::prepared::Prepared;
use crate::ranks;
use crate::request::Request;
use crate::run::Pool;
use crate::toolchain::Trainer;

/// With what a campaign is carried out, and on what.
pub(crate) struct Site {
    /// None on a CPU.
    pub(crate) gpus: Vec<GpuFacts>,
    /// Name of the machine in directories' names.
    pub(crate) machine: String,
    /// What timings depend on besides the runs.
    pub(crate) line: String,
    /// Of each run.
    pub(crate) ranks: usize,
}

impl Site {
    /// The processor, or the GPUs that the trainer finds and `request` allows.
    pub(crate) fn new(
        prepared: &Prepared,
        trainer: &Trainer,
        request: &Request,
        answers: &Answers,
        say: &dyn Fn(&str),
    ) -> Result<Self, CampaignError> {
        let device = prepared.plan.device;
        let lacks = |line| CampaignError::Lacks { profile: request.profile.clone(), lacks: vec![line] };
        let ranks = |usable: usize| ranks::of_run(prepared.profile(), device, usable, request.ranks).map_err(lacks);
        let machine = |name: Option<String>| request.machine.clone().or(name).unwrap_or_else(environment::machine_name);
        if device == DeviceKind::Cpu {
            return Ok(Self {
                gpus: vec![],
                machine: machine(None),
                line: record::on_cpu(&environment::flags(&request.run), &environment::cpu()),
                ranks: ranks(0)?,
            });
        }
        let chosen = devices::choose(&answers.of(trainer)?, device.word(), request.gpus.as_deref());
        let gpus = chosen.map_err(lacks)?;
        let ranks = ranks(gpus.len())?;
        gpus.iter().for_each(|gpu| say(&gpu.line()));
        let line = record::on_gpus(device.word(), &gpus);
        Ok(Self { machine: machine(of_gpus(&gpus)), gpus, line, ranks })
    }

    /// Nodes of a cluster, of which nobody knows yet which they are: their GPUs are those that finished runs name.
    pub(crate) fn of_cluster(prepared: &Prepared, request: &Request) -> Result<Self, CampaignError> {
        let ranks = ranks::of_run(prepared.profile(), prepared.plan.device, usize::MAX, request.ranks);
        let ranks = ranks.map_err(|line| CampaignError::Lacks { profile: request.profile.clone(), lacks: vec![line] })?;
        let line = record::on_cpu(&environment::flags(&request.run), &environment::cpu());
        let machine = request.machine.clone().unwrap_or_else(environment::machine_name);
        Ok(Self { gpus: Vec::new(), machine, line, ranks })
    }

    /// One place for each GPU, for each group of them that a run is spread over, or for each trainer at once.
    pub(crate) fn pool(&self, prepared: &Prepared, request: &Request) -> Pool {
        let places = match self.gpus.is_empty() {
            true => Pool::cpu(&request.run).places,
            false => ranks::places(&self.gpus, self.ranks),
        };
        let ahead = self.ranks == 1 && !self.gpus.is_empty() && self.gpus.iter().all(|gpu| holds_two(prepared, gpu));
        Pool {
            places,
            ranks: self.ranks,
            minutes: request.minutes,
            stop_after: request.stop_after,
            ahead,
            keep_weights: request.keep_weights,
            tensorboard: request.tensorboard.clone(),
            quiet: request.quiet,
        }
    }
}

/// Whether two of the profile's runs fit at once, each keeping everything: the second would take other ways where memory is short.
fn holds_two(prepared: &Prepared, gpu: &GpuFacts) -> bool {
    let (Some(bytes), Ok(memory)) = (gpu.memory_bytes, forecast::alone(prepared.manifests, prepared.profile(), gpu.mxfp4)) else {
        return false;
    };
    memory.fits(bytes / 2) == Some(Keep::Everything)
}

/// What a report shows beside the campaign's own measurements.
#[derive(Debug, Default, Clone)]
pub(crate) struct Shown {
    /// What `kernels-bench` measured on this machine.
    pub(crate) bench: Option<PathBuf>,
    /// The MI355X kernels, built and executed on a model of the ISA.
    pub(crate) code_objects: Option<PathBuf>,
}

/// The campaign's key with what is shown beside it: other documents, another report.
pub(crate) fn keyed(
    prepared: &Prepared,
    site: &Site,
    request: &Request,
    code_objects: Option<PathBuf>,
) -> Result<(String, Shown), FileError> {
    let mut key = prepared.campaign_key(&site.line)?;
    if let Some(document) = &code_objects {
        key = record::key_with_code_objects(&key, &files::sha256_file(document)?);
    }
    let bench = kernels::newest(&request.out, &site.machine).map(|directory| directory.join(kernels::DOCUMENT));
    if let Some(bench) = &bench {
        key = record::key_with_kernels(&key, &files::sha256_file(bench)?);
    }
    Ok((key, Shown { bench, code_objects }))
}
