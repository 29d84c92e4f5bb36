//! `trainer launch`: ranks of this machine, one process each, started with the variables that torchrun would set. Where a scheduler starts it on
//! several machines, their ranks train together.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use super::machines::Machines;
use super::place::{JOB, Place};
use crate::error::TrainerError;
use crate::interrupt::Interrupt;

/// How long ranks have to end by themselves after one has failed: they notice within that, unless they hang.
const GRACE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// This machine alone, and a job of its own.
fn alone() -> Result<Machines, TrainerError> {
    let Place { address, port, job, .. } = Place::alone()?;
    Ok(Machines { number: 0, count: 1, address, port, job, source: String::new() })
}

/// Starts `here` ranks of `program` and waits until all have ended. The first that fails decides how this ends.
pub fn run(
    program: &Path,
    here: usize,
    machines: Option<Machines>,
    arguments: &[OsString],
    interrupt: &Interrupt,
) -> Result<(), TrainerError> {
    let Machines { number, count, address, port, job, .. } = machines.map_or_else(alone, Ok)?;
    let mut ranks = Vec::new();
    for local in 0..here {
        let rank = number * here + local;
        let numbers =
            [("RANK", rank), ("LOCAL_RANK", local), ("WORLD_SIZE", count * here), ("LOCAL_WORLD_SIZE", here), ("MASTER_PORT", port.into())];
        let mut command = Command::new(program);
        command.args(arguments).envs(numbers.map(|(name, number)| (name, number.to_string())));
        command.env("MASTER_ADDR", &address).env(JOB, &job);
        #[cfg(target_os = "linux")]
        end_with_the_launcher(&mut command);
        match command.spawn() {
            Ok(child) => ranks.push(Rank { number: rank, child, ended: None }),
            Err(error) => {
                ranks.iter_mut().for_each(Rank::kill);
                return Err(TrainerError::Machine(format!("rank {rank} cannot be started: {error}")));
            }
        }
    }
    wait(ranks, interrupt)
}

/// A rank whose launcher is gone, even by force, is interrupted: it writes a checkpoint and frees its run, so that the same command goes on.
#[cfg(target_os = "linux")]
fn end_with_the_launcher(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    let launcher = std::process::id();
    let ask = move || {
        // SAFETY: prctl with PR_SET_PDEATHSIG takes a number and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        match std::os::unix::process::parent_id() == launcher {
            true => Ok(()),
            false => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: between fork and exec it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(ask) };
}

struct Rank {
    /// Among all ranks.
    number: usize,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Rank {
    fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            // A process that cannot be asked has no better answer later.
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }

    fn kill(&mut self) {
        // It may have ended in this moment.
        let _ = self.child.kill();
        self.ended = self.child.wait().ok();
    }

    /// Asks it to stop after its current step.
    fn interrupt(&self) {
        #[cfg(unix)]
        if self.ended.is_none() {
            // SAFETY: kill takes two numbers; the child has not been waited for, so its number is still its own.
            unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
        }
    }
}

fn wait(mut ranks: Vec<Rank>, interrupt: &Interrupt) -> Result<(), TrainerError> {
    let (mut first, mut is_told) = (None::<(usize, ExitStatus, Instant)>, false);
    loop {
        let mut running = Vec::new();
        for rank in &mut ranks {
            if !rank.has_ended() {
                running.push(rank.number);
            } else if let Some(status) = rank.ended.filter(|status| !status.success()) {
                first.get_or_insert((rank.number, status, Instant::now()));
            }
        }
        if running.is_empty() {
            break;
        }
        if interrupt.is_raised() && !is_told {
            is_told = true;
            ranks.iter().for_each(Rank::interrupt);
        }
        if first.as_ref().is_some_and(|(_, _, since)| since.elapsed() > GRACE) {
            eprintln!("ended by force, {} s after the first rank: {running:?}", GRACE.as_secs());
            ranks.iter_mut().filter(|rank| rank.ended.is_none()).for_each(Rank::kill);
        }
        std::thread::sleep(LOOK);
    }
    first.map_or(Ok(()), |(rank, status, _)| Err(failed(rank, status, is_told)))
}

/// `is_told`: by an interrupt, which ends a rank at once that has not begun.
fn failed(rank: usize, status: ExitStatus, is_told: bool) -> TrainerError {
    match status.code().or(is_told.then_some(130)) {
        Some(130) => TrainerError::Elsewhere { code: 130, what: "interrupted; the same command goes on from the checkpoint".into() },
        Some(code) => {
            let what = format!("rank {rank} ended first, with exit code {code}; the same command goes on from the last checkpoint");
            TrainerError::Elsewhere { code: u8::try_from(code).unwrap_or(4), what }
        }
        None => TrainerError::Machine(format!("rank {rank} was ended first ({status}); the same command goes on from the last checkpoint")),
    }
}
