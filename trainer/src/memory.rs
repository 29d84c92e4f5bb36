//! Memory of the machine: whether a run fits into it, so that one that does not is told so at once instead of being killed, and how
//! the allocator treats what is freed.

use std::alloc::{GlobalAlloc, Layout, System};

use contract::device::DeviceId;
use contract::memory::host::HostMemory;
use contract::memory::{self, Keep, MemoryReport};
use contract::run_file::RunFile;
use contract::text::GIB;

use crate::error::TrainerError;

/// What `trainer memory` says of a micro-batch on the CPU, for one of so many ranks.
pub fn report(run: &RunFile, ranks: usize) -> MemoryReport {
    let usable = HostMemory::new(|path| std::fs::read_to_string(path).ok()).usable();
    MemoryReport::new(run, (DeviceId::Cpu, false), ranks, usable, usable)
}

/// Refuses a run that needs more than all the memory that may be used here. Where the system does not tell how much that is, any run passes.
pub fn check(run: &RunFile) -> Result<(), TrainerError> {
    // How many ranks this machine has is not known here.
    let report = report(run, 1);
    let (None, Some(there), Some(least)) = (report.keeps, report.total_bytes, report.ways.last()) else { return Ok(()) };
    let gib = |bytes: u64| bytes as f64 / GIB;
    Err(TrainerError::Machine(format!(
        "this run needs {:.1} GiB of memory, this machine has {:.1} that may be used; use a smaller model, a smaller batch or more micro-batches (batch.accumulation), or another machine",
        gib(least.bytes),
        gib(there)
    )))
}

/// Whether each of so many ranks may keep a copy of its part of a checkpoint while it is written: as if all were on this machine.
pub fn has_room_for_copies(run: &RunFile, ranks: usize) -> bool {
    let report = report(run, ranks);
    let each = report.free_bytes.map(|free| free / ranks.max(1) as u64);
    each.is_some_and(|free| memory::choose(&report.ways, free) == Some(Keep::Everything))
}

/// The system's allocator, which asks for huge pages where a block is large enough to fill some.
///
/// A step reads and writes its activations from end to end. In pages of 4 KiB a good part of that time goes into finding the pages: with
/// huge ones, strided reads beyond the caches are about 1.5 times as fast. Linux gives them to those who ask (`madvise`, the usual
/// setting); elsewhere nothing changes. No result depends on it.
#[derive(Debug)]
pub struct HugePages;

/// Size of a huge page on x86-64 and on most others.
const HUGE_PAGE: usize = 2 << 20;

// SAFETY: everything is the system allocator's doing, with a layout that is at least as strict and the same at every call.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        let block = unsafe { System.alloc(aligned(layout)) };
        advise(block, layout);
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() < HUGE_PAGE {
            // SAFETY: as above.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // The system would write the zeros of so strictly aligned a block before it returned, and pages that were written stay small:
        // the advice has to come first.
        // SAFETY: as above; the block, if there is one, holds `layout.size()` bytes.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `alloc` above with this layout, and so from the system with the aligned one.
        unsafe { System.dealloc(block, aligned(layout)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.size().max(new_size) < HUGE_PAGE {
            // SAFETY: the caller keeps the contract of `realloc`; both layouts are what the system knows.
            return unsafe { System.realloc(block, layout, new_size) };
        }
        // SAFETY: the caller promises that `new_size`, rounded up to the alignment, does not overflow.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: `new_size` is not zero; both blocks hold the bytes that are copied, and do not overlap; `block` is not used again.
        unsafe {
            let new_block = self.alloc(new_layout);
            if !new_block.is_null() {
                std::ptr::copy_nonoverlapping(block, new_block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            new_block
        }
    }
}

/// The layout with which the system is asked.
fn aligned(layout: Layout) -> Layout {
    if layout.size() < HUGE_PAGE { layout } else { layout.align_to(HUGE_PAGE).unwrap_or(layout) }
}

/// Asks for huge pages; a refusal is none of our business.
fn advise(block: *mut u8, layout: Layout) {
    #[cfg(target_os = "linux")]
    if layout.size() >= HUGE_PAGE && !block.is_null() {
        // SAFETY: the range was just allocated; this advice changes no contents.
        unsafe { libc::madvise(block.cast(), layout.size(), libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (block, layout);
}
