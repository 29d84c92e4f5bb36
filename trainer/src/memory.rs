//! Memory of the machine: whether a run fits into it, so that one that does not is told so at once instead of being killed, and how
//! the allocator treats what is freed.

use crate::error::TrainerError;
use crate::parameters::Layout;
use crate::run_file::RunFile;

/// Bytes a run needs at least: parameters, gradients, two moments and every activation that is kept, all F32.
pub fn needed_bytes(run: &RunFile) -> u128 {
    let model = &run.model;
    let [qkv, output, gate_up, down] = model.linears();
    let (d, tokens) = (model.hidden_size as u128, run.tokens_per_step() as u128);
    // The columns of one block's buffers in `model`, and of the gradients that blocks share.
    let block = 4 * d + (qkv.1 + output.2 + gate_up.1 + down.2 + model.num_attention_heads + 2) as u128;
    let shared = 4 * d + (qkv.1 + output.2 + gate_up.1 + down.2 + model.vocab_size + 2) as u128;
    4 * (4 * Layout::new(model).total as u128 + tokens * (block * model.num_hidden_layers as u128 + shared))
}

/// Refuses a run that needs more than all the memory of the machine. Where the system does not tell how much that is, any run passes.
///
/// # Errors
/// [`TrainerError::Machine`].
pub fn check(run: &RunFile) -> Result<(), TrainerError> {
    let (needed, Some(there)) = (needed_bytes(run), total_bytes()) else { return Ok(()) };
    if needed <= there {
        return Ok(());
    }
    let gib = |bytes: u128| bytes as f64 / f64::from(1 << 30);
    Err(TrainerError::Machine(format!(
        "this run needs {:.1} GiB of memory, this machine has {:.1}; use a smaller model or batch, or another machine",
        gib(needed),
        gib(there)
    )))
}

/// Linux tells in /proc/meminfo, in KiB.
fn total_bytes() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u128 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Lets the allocator keep what a step frees for the next step.
///
/// glibc hands every freed block of megabytes back to the system and fetches it again, page by page, at the next step: an eighth
/// of a step's time in F32. Once a block as large as its limit (32 MiB) has been freed, it keeps smaller ones. Nothing is touched
/// here, so no memory is used; other allocators do not mind.
pub fn keep_freed_blocks() {
    const JUST_BELOW_THE_LIMIT: usize = (32 << 20) - (64 << 10);
    drop(std::hint::black_box(Vec::<u8>::with_capacity(JUST_BELOW_THE_LIMIT)));
}
