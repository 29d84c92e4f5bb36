//! Which machine of a job this is, where a scheduler starts `trainer launch` once on each: Kubeflow's PyTorch jobs (the variables of torchrun's
//! own options) and SkyPilot.

use contract::digest;

use super::place::{DEFAULT_PORT, number, port, usage};
use crate::error::TrainerError;

/// One machine among others, each with as many ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machines {
    /// This one's number, from 0.
    pub number: usize,
    pub count: usize,
    /// Of machine 0, where rank 0 is.
    pub address: String,
    pub port: u16,
    /// Tells this job from others that meet at the same place.
    pub job: String,
    /// The variables that said so, and whose they are.
    pub source: String,
}

struct Scheduler {
    name: &'static str,
    number: &'static str,
    count: &'static str,
    /// Machine 0's address is its first line.
    address: &'static str,
    port: &'static str,
    job: &'static str,
}

const SCHEDULERS: [Scheduler; 2] = [
    Scheduler {
        name: "Kubeflow",
        number: "PET_NODE_RANK",
        count: "PET_NNODES",
        address: "PET_MASTER_ADDR",
        port: "PET_MASTER_PORT",
        job: "PET_RDZV_ID",
    },
    Scheduler {
        name: "SkyPilot",
        number: "SKYPILOT_NODE_RANK",
        count: "SKYPILOT_NUM_NODES",
        address: "SKYPILOT_NODE_IPS",
        port: "MASTER_PORT",
        job: "SKYPILOT_TASK_ID",
    },
];

/// The machines of this process' job; none if no scheduler says that there are others.
pub fn of_process() -> Result<Option<Machines>, TrainerError> {
    read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// As [`of_process`], from any table of variables.
pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Machines>, TrainerError> {
    for scheduler in &SCHEDULERS {
        let Scheduler { number: of_number, count: of_count, address: of_address, .. } = scheduler;
        let Some(count) = variable(of_count) else { continue };
        let count = number(of_count, &count)?;
        if count == 1 {
            return Ok(None);
        }
        let own = variable(of_number).ok_or_else(|| usage(format!("{of_count} is {count} and {of_number} is not set")))?;
        let own = number(of_number, &own)?;
        if own >= count {
            return Err(usage(format!(
                "{of_number} is {own} and {of_count} is {count}: machines are counted from 0 and are fewer than that"
            )));
        }
        let address = variable(of_address).and_then(|list| list.split_whitespace().next().map(str::to_owned));
        let address =
            address.ok_or_else(|| usage(format!("{of_count} is {count}, and {of_address}, which names machine 0, is not set")))?;
        return Ok(Some(Machines {
            number: own,
            count,
            address,
            port: variable(scheduler.port).map_or(Ok(DEFAULT_PORT), |value| port(scheduler.port, &value))?,
            job: digest::sha256(variable(scheduler.job).unwrap_or_default().as_bytes()),
            source: format!("{of_number} and {of_count} of {}", scheduler.name),
        }));
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn machines(words: &str) -> Result<Option<Machines>, String> {
        let find = |name: &str| words.split(';').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
        read(&find).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn both_schedulers_are_understood() {
        let kubeflow = "PET_NNODES=2;PET_NODE_RANK=1;PET_MASTER_ADDR=job-node-0-0.job;PET_MASTER_PORT=29400;PET_NPROC_PER_NODE=8";
        let skypilot = "SKYPILOT_NUM_NODES=3;SKYPILOT_NODE_RANK=0;SKYPILOT_NODE_IPS=10.0.0.4\n10.0.0.7\n10.0.0.9;SKYPILOT_TASK_ID=sky-1";
        for (words, number, count, address, port, source) in [
            (kubeflow, 1, 2, "job-node-0-0.job", 29400, "PET_NODE_RANK and PET_NNODES of Kubeflow"),
            (skypilot, 0, 3, "10.0.0.4", 29500, "SKYPILOT_NODE_RANK and SKYPILOT_NUM_NODES of SkyPilot"),
        ] {
            let found = machines(words).unwrap().unwrap();
            assert_eq!((found.number, found.count, &*found.address, found.port, &*found.source), (number, count, address, port, source));
        }
        for words in ["", "PET_NNODES=1;PET_NODE_RANK=0", "SKYPILOT_NUM_NODES=1", "PET_NODE_RANK=1"] {
            assert_eq!(machines(words), Ok(None), "{words}");
        }
    }

    #[test]
    fn contradictions_are_wrong_usage() {
        for (words, expected) in [
            ("PET_NNODES=2;PET_NODE_RANK=2;PET_MASTER_ADDR=a", "PET_NODE_RANK is 2 and PET_NNODES is 2"),
            ("PET_NNODES=2;PET_MASTER_ADDR=a", "PET_NODE_RANK is not set"),
            ("PET_NNODES=1:4;PET_NODE_RANK=0;PET_MASTER_ADDR=a", "PET_NNODES is '1:4'"),
            ("PET_NNODES=2;PET_NODE_RANK=0", "PET_MASTER_ADDR"),
            ("PET_NNODES=2;PET_NODE_RANK=0;PET_MASTER_ADDR=a;PET_MASTER_PORT=x", "PET_MASTER_PORT is 'x'"),
            ("SKYPILOT_NUM_NODES=2;SKYPILOT_NODE_RANK=1", "SKYPILOT_NODE_IPS"),
        ] {
            let error = machines(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
