//! Which rank this process is, as its launcher says it in the environment.
//!
//! The first launcher of the table whose variables are there is believed. A value that is missing beside another, is no number or
//! contradicts another is an error: a process that takes itself for the only one would train the same run a second time. None of this
//! changes a number of the run.

use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};

use contract::digest;

use crate::error::TrainerError;

/// Ports that rank 0 tries, from MASTER_PORT + 1: under torchrun MASTER_PORT itself is the agent's.
pub const PORTS: u16 = 16;

/// Where ranks meet when the launcher says no port.
pub(super) const DEFAULT_PORT: u16 = 29500;

/// The launcher's word for a job, from `trainer launch`.
pub const JOB: &str = "TRAINER_JOB";

/// One rank among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub rank: usize,
    pub size: usize,
    /// Among the ranks of this machine: the GPU that it would take.
    pub local_rank: usize,
    /// Rank 0's host.
    pub address: String,
    /// Rank 0 listens on one of the [`PORTS`] ports after it.
    pub port: u16,
    /// Tells this job from others that meet at the same place.
    pub job: String,
    /// The variables that said so, and whose they are.
    pub source: String,
}

impl Place {
    /// The only rank of a job of this process's own, on this machine.
    pub fn alone() -> Result<Self, TrainerError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        Ok(Self {
            rank: 0,
            size: 1,
            local_rank: 0,
            address: "127.0.0.1".into(),
            port: free_port()?,
            job: format!("{}-{now}", std::process::id()),
            source: "--exchange".into(),
        })
    }
}

/// A port after which the next ones are likely to be free, too. Rank 0 takes the first that is.
fn free_port() -> Result<u16, TrainerError> {
    let failed = |error: std::io::Error| TrainerError::Machine(format!("this machine has no free port for ranks to meet: {error}"));
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).map_err(failed)?.port();
    Ok(port.min(u16::MAX - PORTS - 1))
}

/// The variables of one launcher.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    /// Both `rank` and `size` are there or none; else `rank` alone decides.
    is_pair: bool,
    /// Must be there, too.
    needs: Option<&'static str>,
    /// Number of ranks on this machine: all of them, if it is `size`.
    local_size: &'static str,
    /// What tells one start of one job from another.
    job: &'static [&'static str],
}

const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        is_pair: true,
        needs: None,
        local_size: "LOCAL_WORLD_SIZE",
        job: &[JOB, "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
    },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        // A job's own shell has SLURM_NTASKS, and in a batch script SLURM_PROCID as well: only what srun started is a rank.
        is_pair: false,
        needs: Some("SLURM_STEP_ID"),
        local_size: "SLURM_STEP_TASKS_PER_NODE",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        is_pair: true,
        needs: None,
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        job: &["PMIX_NAMESPACE"],
    },
    Launcher {
        name: "MPI",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        is_pair: true,
        needs: None,
        local_size: "MPI_LOCALNRANKS",
        job: &["PMI_JOBID"],
    },
];

/// The place of this process; none if no launcher says that there are others.
pub fn of_process() -> Result<Option<Place>, TrainerError> {
    read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// As [`of_process`], from any table of variables.
pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Place>, TrainerError> {
    for launcher in &LAUNCHERS {
        let (rank, size) = (variable(launcher.rank), variable(launcher.size));
        if launcher.needs.is_some_and(|needed| variable(needed).is_none()) || (!launcher.is_pair && rank.is_none()) {
            continue;
        }
        let (rank, size) = match (rank, size) {
            (None, None) => continue,
            (Some(rank), Some(size)) => (number(launcher.rank, &rank)?, number(launcher.size, &size)?),
            (Some(_), None) => return Err(half(launcher.rank, launcher.size)),
            (None, Some(_)) => return Err(half(launcher.size, launcher.rank)),
        };
        if rank >= size {
            let (of_rank, of_size) = (launcher.rank, launcher.size);
            return Err(usage(format!("{of_rank} is {rank} and {of_size} is {size}: ranks are counted from 0 and are fewer than that")));
        }
        return if size == 1 { Ok(None) } else { launcher.place(rank, size, variable).map(Some) };
    }
    Ok(None)
}

impl Launcher {
    fn place(&self, rank: usize, size: usize, variable: &dyn Fn(&str) -> Option<String>) -> Result<Place, TrainerError> {
        let local_rank = match variable(self.local_rank) {
            Some(value) => number(self.local_rank, &value)?,
            None => rank,
        };
        if local_rank > rank {
            return Err(usage(format!(
                "{} is {local_rank} and {} is {rank}: a machine has no more ranks than all have",
                self.local_rank, self.rank
            )));
        }
        let all_here = variable(self.local_size).is_some_and(|here| here == size.to_string());
        let address = match variable("MASTER_ADDR") {
            Some(address) => address,
            None if self.name == "Slurm" => first_host(variable)?,
            None if all_here => "127.0.0.1".to_owned(),
            None => return Err(usage(format!("{} is {rank} of {size}, and MASTER_ADDR, the host of rank 0, is not set", self.rank))),
        };
        let port = match variable("MASTER_PORT") {
            Some(value) => port("MASTER_PORT", &value)?,
            None => DEFAULT_PORT,
        };
        let job: Vec<String> = self.job.iter().map(|name| format!("{name}={}", variable(name).unwrap_or_default())).collect();
        let source = format!("{} and {} of {}", self.rank, self.size, if variable(JOB).is_some() { "trainer launch" } else { self.name });
        Ok(Place { rank, size, local_rank, address, port, job: digest::sha256(job.join("\n").as_bytes()), source })
    }
}

/// The first host of Slurm's list, such as `node[03-05,09],other`.
fn first_host(variable: &dyn Fn(&str) -> Option<String>) -> Result<String, TrainerError> {
    let list = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST")).unwrap_or_default();
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let host = match rest.strip_prefix('[') {
        Some(numbers) => format!("{name}{}", &numbers[..numbers.find([',', '-', ']']).unwrap_or(numbers.len())]),
        None => name.to_owned(),
    };
    if host.is_empty() {
        return Err(usage("SLURM_STEP_NODELIST names no host; set MASTER_ADDR to the host of rank 0".to_owned()));
    }
    Ok(host)
}

pub(super) fn number(name: &str, value: &str) -> Result<usize, TrainerError> {
    value.parse().map_err(|_| usage(format!("{name} is '{value}', which is no number from 0 on")))
}

/// A port after which there are [`PORTS`] others.
pub(super) fn port(name: &str, value: &str) -> Result<u16, TrainerError> {
    let last = u16::MAX - PORTS - 1;
    value.parse().ok().filter(|port| *port <= last).ok_or_else(|| usage(format!("{name} is '{value}', which is no port from 0 to {last}")))
}

fn half(there: &str, missing: &str) -> TrainerError {
    usage(format!("{there} is set and {missing} is not"))
}

pub(super) fn usage(what: String) -> TrainerError {
    TrainerError::BadInput(format!("{what}; let one launcher set all of them, or none (docs/ranks.md)"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    /// Place that `NAME=value` words give.
    fn place(words: &str) -> Result<Option<Place>, String> {
        let find = |name: &str| words.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
        read(&find).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn each_launcher_is_understood_and_the_first_is_believed() {
        let torchrun = "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=host0 MASTER_PORT=1234";
        let slurm =
            "SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=77 SLURM_STEP_NODELIST=node[03-05,09],other";
        let mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2";
        let pmi = "PMI_RANK=1 PMI_SIZE=4 MASTER_ADDR=host1";
        for (words, rank, size, local, address, port, source) in [
            (torchrun.to_owned(), 3, 8, 1, "host0", 1234, "RANK and WORLD_SIZE of torchrun"),
            (slurm.to_owned(), 5, 6, 1, "node03", 29500, "SLURM_PROCID and SLURM_NTASKS of Slurm"),
            (mpi.to_owned(), 1, 2, 1, "127.0.0.1", 29500, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE of Open MPI"),
            (pmi.to_owned(), 1, 4, 1, "host1", 29500, "PMI_RANK and PMI_SIZE of MPI"),
            (format!("{torchrun} {slurm} {mpi} {pmi}"), 3, 8, 1, "host0", 1234, "RANK and WORLD_SIZE of torchrun"),
            (format!("{mpi} {slurm}"), 5, 6, 1, "node03", 29500, "SLURM_PROCID and SLURM_NTASKS of Slurm"),
            (format!("{torchrun} TRAINER_JOB=x"), 3, 8, 1, "host0", 1234, "RANK and WORLD_SIZE of trainer launch"),
        ] {
            let found = place(&words).unwrap().unwrap();
            let wanted = (rank, size, local, address, port, source);
            assert_eq!((found.rank, found.size, found.local_rank, &*found.address, found.port, &*found.source), wanted, "{words}");
        }
        let job = |words: &str| place(words).unwrap().unwrap().job;
        assert_eq!(job(torchrun), job(&torchrun.replace("RANK=3", "RANK=4")));
        assert_ne!(job(torchrun), job(&format!("{torchrun} TORCHELASTIC_RESTART_COUNT=1")));
        assert_ne!(job(slurm), job(&slurm.replace("JOB_ID=77", "JOB_ID=78")));
    }

    #[test]
    fn nobody_is_a_rank_by_accident() {
        for words in [
            "",
            "MASTER_ADDR=x MASTER_PORT=no",
            "LOCAL_RANK=0",
            "RANK=0 WORLD_SIZE=1",
            // The shell of a job, and its batch script.
            "SLURM_JOB_ID=1 SLURM_NTASKS=8",
            "SLURM_JOB_ID=1 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_LOCALID=0",
            "SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_PROCID=0",
        ] {
            assert_eq!(place(words), Ok(None), "{words}");
        }
    }

    #[test]
    fn hosts_of_a_list() {
        for (list, host) in [("a", "a"), ("a,b", "a"), ("gpu[7]", "gpu7"), ("gpu[007-012]", "gpu007"), ("gpu[1,3],cpu[2-4]", "gpu1")] {
            let words = format!("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_JOB_NODELIST={list}");
            assert_eq!(place(&words).unwrap().unwrap().address, host);
        }
    }

    #[test]
    fn contradictions_are_wrong_usage() {
        for (words, expected) in [
            ("RANK=2 WORLD_SIZE=2 MASTER_ADDR=x", "RANK is 2 and WORLD_SIZE is 2"),
            ("RANK=0 WORLD_SIZE=0", "WORLD_SIZE is 0"),
            ("RANK=1", "RANK is set and WORLD_SIZE is not"),
            ("WORLD_SIZE=2", "WORLD_SIZE is set and RANK is not"),
            ("RANK=-1 WORLD_SIZE=2", "RANK is '-1'"),
            ("RANK=one WORLD_SIZE=2", "RANK is 'one'"),
            ("RANK=0 WORLD_SIZE=2", "MASTER_ADDR"),
            ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=x", "LOCAL_RANK is 1 and RANK is 0"),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=70000", "MASTER_PORT is '70000'"),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=65530", "MASTER_PORT is '65530'"),
            ("SLURM_PROCID=0 SLURM_STEP_ID=0", "SLURM_PROCID is set and SLURM_NTASKS is not"),
            ("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0", "names no host"),
            ("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not"),
            ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1", "MASTER_ADDR"),
            ("PMI_SIZE=3", "PMI_SIZE is set and PMI_RANK is not"),
        ] {
            let error = place(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
