//! `trainer identity`: what this trainer computes, as hashes. Two trainers with one identity give the same bits; their sources may differ.
//!
//! A run's key holds the identity, so that a comment or a move makes no finished run stale and a changed bit makes every one.
//! - On a CPU results are the same for every instruction set and thread count, so the identity is the outcome of a fixed program: every
//!   defined operand specification trained through, every family of kernels on its own with values from all over the range, and whole
//!   runs with their files.
//! - A GPU is not needed to know what it is told. The same program runs against a driver that writes down each launch with its arguments
//!   (`kernels::gpu::record`); with it go the kernels' text as their compiler sees it, and the text of what calls compilers and libraries.
//!
//! What it cannot see: a change that shows only at values or shapes that the program does not have. Therefore the program goes through every
//! specification and class of shapes, a test holds the list, and .ci/seeded-changes makes changes that it must notice.

mod families;
mod runs;

use std::collections::BTreeMap;
use std::thread::{Builder, ScopedJoinHandle};

use contract::digest::hexadecimal;
use contract::identity::{Identity, OnDevice};
use kernels::cpu::{Cpu, InstructionSet};
use sha2::{Digest, Sha256};

use crate::error::TrainerError;

/// Hashes by the name of what they are of.
pub type Parts = BTreeMap<String, String>;

/// Computes it; takes some seconds. The three kinds of device share nothing, so each has a thread.
pub fn compute() -> Result<Identity, TrainerError> {
    let cpu = Cpu::new(InstructionSet::detect(), 1).map_err(|error| TrainerError::Machine(error.to_string()))?;
    std::thread::scope(|scope| {
        let no_thread =
            |error| TrainerError::Machine(format!("the system gives no thread ({error}); raise the limit on memory or processes"));
        let on_cpu = Builder::new().spawn_scoped(scope, || on_cpu(&cpu)).map_err(no_thread)?;
        let on_cuda = Builder::new().spawn_scoped(scope, || runs::on_gpu("cuda", "sm_90a", false).map(whole)).map_err(no_thread)?;
        let on_hip = runs::on_gpu("hip", "gfx950", true).map(whole);
        Ok(Identity { cpu: joined(on_cpu)?, cuda: joined(on_cuda)?, hip: on_hip? })
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, TrainerError>>) -> Result<T, TrainerError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What it computes on a CPU, with these instructions and threads: neither changes a hash.
pub fn on_cpu(cpu: &Cpu) -> Result<OnDevice, TrainerError> {
    let mut parts = families::all(cpu)?;
    parts.extend(runs::on_cpu(cpu)?);
    Ok(whole(parts))
}

fn whole(parts: Parts) -> OnDevice {
    let mut digest = Fingerprint::default();
    for (name, hash) in &parts {
        digest.text(name).text(hash);
    }
    OnDevice { identity: digest.finish(), parts }
}

/// A hash that values are added to by their bits.
#[derive(Debug, Clone, Default)]
struct Fingerprint(Sha256);

impl Fingerprint {
    fn text(&mut self, text: &str) -> &mut Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    fn floats(&mut self, values: &[f32]) -> &mut Self {
        let mut bytes = [0; 4096];
        for values in values.chunks(bytes.len() / 4) {
            kernels::bytes::write_f32(values, &mut bytes);
            self.0.update(&bytes[..4 * values.len()]);
        }
        self
    }

    fn words(&mut self, words: impl IntoIterator<Item = u64>) -> &mut Self {
        self.0.update(words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
        self
    }

    fn finish(&self) -> String {
        hexadecimal(&self.0.clone().finalize())
    }
}
