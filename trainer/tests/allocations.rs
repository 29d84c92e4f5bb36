//! Once two steps have been done, a step allocates nothing: every buffer is made once and reused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::run_file::RunFile;
use kernels::cpu::{Cpu, InstructionSet};
use trainer::batches::Batch;
use trainer::trainer_state::Training;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is the system allocator's doing; only a number is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_step_in_the_steady_state_allocates_nothing() {
    // The last two are made of two micro-batches.
    let accumulated = [("fp8", 2), ("mxfp4-fdw-sr", 2)];
    let plain = ["f32", "bf16", "fp8", "fp8-current", "mxfp4-fdw", "mxfp4-fdw-rh16", "mxfp4-fdw-sr", "bf16-mxfp4-dw-rh64-sr"];
    for (id, parts) in plain.into_iter().map(|id| (id, 1)).chain(accumulated) {
        let folder = tempfile::tempdir().unwrap();
        common::write_data(&folder.path().join("data"));
        let path = common::write_run(
            &folder.path().join("run"),
            &common::tiny_yaml(common::recipe(id), |run| run["batch"]["accumulation"] = parts.into()),
        );
        let run: RunFile = RunFile::load(&path).unwrap().run;
        let tokens = run.tokens_per_step();
        let history = run.recipe.delayed_scaling.map_or(0, |delayed| delayed.history as u64);
        // Two threads draw tasks from one another; none of them may need memory for it.
        for threads in [1, 2] {
            let mut training = Training::new(Cpu::new(InstructionSet::detect(), threads).unwrap(), run.clone(), 0).unwrap();
            let token = |i: usize| (i * 7 % run.model.vocab_size) as u32;
            training.set_batch(Batch::new((0..tokens).map(token).collect(), (1..=tokens).map(token).collect()));
            // Delayed scales remember their first steps; a second thread makes its own buffers when it first takes part in a kind of
            // task, however late the machine lets it. So: after the warm-up with one thread none at all, with two none for ten
            // steps on end before long. Memory that is taken every few steps fails both.
            let (warm, quiet, limit) = (3 + history, if threads == 1 { 5 } else { 10 }, if threads == 1 { 8 + history } else { 400 });
            let mut since = 0;
            for step in 1..=limit {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                let result = training.forward_backward(step).unwrap();
                training.update(step, result.gradient_norm).unwrap();
                let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
                since = if step <= warm || made > 0 { 0 } else { since + 1 };
                if since == quiet {
                    break;
                }
            }
            assert!(since == quiet, "{id}, {threads} threads: after {limit} steps only {since} on end took no memory, {quiet} are wanted");
        }
    }
}
