//! The machine that a campaign is carried out on: its processor, or the GPUs that were chosen.

use std::path::PathBuf;

use contract::device::DeviceKind;
use study::device::Gpu;
use study::files::{self, FileError, sha256};
use study::kernels;

use crate::devices::{self, Devices};
use crate::environment;
use crate::error::CampaignError;
use crate::machine;
use crate::prepared::Prepared;
use crate::request::Request;
use crate::run::{Pool, RunOptions};
use crate::toolchain::Trainer;

/// With what a campaign is carried out, and on what.
pub(crate) struct Site {
    /// None on a CPU.
    pub(crate) gpus: Vec<Gpu>,
    /// Name of the machine in directories' names.
    pub(crate) machine: String,
    /// What timings depend on besides the runs.
    pub(crate) line: String,
}

impl Site {
    /// The processor, or the GPUs that the trainer finds and `request` allows.
    pub(crate) fn new(prepared: &Prepared, trainer: &Trainer, request: &Request, say: &dyn Fn(&str)) -> Result<Self, CampaignError> {
        let device = prepared.plan.device;
        let machine = |name: Option<String>| request.machine.clone().or(name).unwrap_or_else(environment::machine_slug);
        if device == DeviceKind::Cpu {
            return Ok(Self { gpus: vec![], machine: machine(None), line: machine_line(&request.run) });
        }
        let chosen = Devices::ask(trainer)?.choose(device.word(), request.gpus.as_deref());
        let gpus = chosen.map_err(|line| CampaignError::Lacks { profile: request.profile.clone(), lacks: vec![line] })?;
        gpus.iter().for_each(|gpu| say(&gpu.line()));
        let line = format!("device {} {}\n", device.word(), devices::identity(&gpus));
        Ok(Self { machine: machine(devices::slug(&gpus)), gpus, line })
    }

    /// One place for each GPU, or for each trainer at once.
    pub(crate) fn pool(&self, request: &Request) -> Pool {
        let places = match self.gpus.is_empty() {
            true => Pool::cpu(&request.run).places,
            false => self.gpus.iter().map(|gpu| gpu.device.clone()).collect(),
        };
        Pool { places, minutes: request.minutes, stop_after: request.stop_after, keep_weights: request.keep_weights }
    }
}

/// The campaign's key, and what `kernels-bench` measured on this machine, which its report shows too: newer measurements, another report.
pub(crate) fn keyed(prepared: &Prepared, site: &Site, request: &Request) -> Result<(String, Option<PathBuf>), FileError> {
    let key = prepared.campaign_key(&site.line)?;
    let Some(directory) = kernels::newest(&request.out, &site.machine) else { return Ok((key, None)) };
    let bench = directory.join(kernels::DOCUMENT);
    Ok((sha256(format!("{key} kernels {}\n", files::sha256_file(&bench)?).as_bytes()), Some(bench)))
}

/// What timings depend on besides the runs.
fn machine_line(options: &RunOptions) -> String {
    format!("threads {} instruction set {} on {} x {}\n", options.threads, options.instruction_set, machine::cores(), machine::cpu_model())
}
