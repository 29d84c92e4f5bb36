//! Matrix tiles (AMX-BF16): registers of sixteen rows of 64 bytes, and the instruction that multiplies them.

use std::marker::PhantomData;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use super::super::lanes::WIDTH;
use super::super::panels::{Layout, Line, Side, TILE_LINES};

const LINE: usize = size_of::<Line<u32>>();
/// Bytes from a block to the next.
const LEFT_BLOCK: usize = LINE * Layout::Tiles.unit(Side::Left).1;
const RIGHT_BLOCK: usize = LINE * Layout::Tiles.unit(Side::Right).1;
/// Bytes from a tile to the next of a group.
#[cfg(target_arch = "x86_64")]
const TILE: usize = LINE * TILE_LINES;

/// Proof that the processor has AMX-TILE and AMX-BF16, and that this process may use them.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Tiles(());

impl Tiles {
    /// If they are there; asks the kernel for them once.
    pub(in super::super) fn detect() -> Option<Self> {
        static ARE_USABLE: OnceLock<bool> = OnceLock::new();
        ARE_USABLE.get_or_init(|| are_there() && are_granted()).then_some(Self(()))
    }

    /// Runs `work` while this thread's tiles have their shape. Afterwards the thread's state is small again.
    #[inline(always)]
    pub(in super::super) fn run<R>(self, work: impl FnOnce(&Shaped) -> R) -> R {
        let _release = Release(self);
        #[cfg(target_arch = "x86_64")]
        {
            /// What LDTILECFG reads: palette 1, bytes of a row and rows of eight tiles.
            static SHAPES: Line<u32> = {
                let mut words = [0; WIDTH];
                words[0] = 1;
                let (mut tile, full) = (0, 64 << 16 | 64);
                while tile < 4 {
                    (words[4 + tile], tile) = (full, tile + 1);
                }
                (words[12], words[13]) = (0x1010_1010, 0x1010_1010);
                Line(words)
            };
            // SAFETY: the processor has the instruction and the kernel allows it, which `self` proves; it reads 64 bytes.
            unsafe { std::arch::asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack, readonly, preserves_flags)) };
        }
        work(&Shaped(PhantomData))
    }
}

/// Gives the tiles back, also when a panic passes.
struct Release(Tiles);

impl Drop for Release {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `run`; no tile holds anything that is still needed.
        unsafe {
            std::arch::asm!("tilerelease", options(nomem, nostack, preserves_flags));
        }
    }
}

/// Proof that this thread's tiles have their shape. It stays inside [`Tiles::run`] and on its thread.
#[derive(Debug)]
pub(in super::super) struct Shaped(PhantomData<*const ()>);

impl Shaped {
    /// To `sums`, 48 rows of 32 that are `stride` elements apart, or to 0 unless `goes_on`, adds the products of `blocks` blocks, at least one,
    /// of a group of either side. The slices begin with the first block. See `gemm::tiles` for the arithmetic. Meanwhile as many rows of two
    /// lines from `next.0` on, `next.1` elements apart, are fetched to be written.
    #[inline(always)]
    pub(super) fn multiply(
        &self,
        left: &[Line<u32>],
        right: &[Line<u32>],
        blocks: usize,
        (sums, stride, goes_on): (&mut [f32], usize, bool),
        next: (*const f32, usize),
    ) {
        let (rows, columns) = (Side::Left.group(), Side::Right.group());
        let lines = |block: usize, tiles: usize| (blocks - 1) * block / LINE + tiles * TILE_LINES;
        let left = left[..lines(LEFT_BLOCK, Side::Left.lines())].as_ptr();
        let right = right[..lines(RIGHT_BLOCK, Side::Right.lines())].as_ptr();
        let sums = &mut sums[..(rows - 1) * stride + columns];
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (left, right, sums, goes_on, next);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the instructions, the kernel allows them and the tiles have their shape, which `self` proves. Every block's
        // lines and all sums lie inside the slices, which was just checked; the latter are borrowed to be written. A prefetch may have any
        // address. The compiler uses tiles for nothing else.
        unsafe {
            std::arch::asm!(
                "test {goes_on:e}, {goes_on:e}",
                "jnz 2f",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "tilezero tmm4",
                "tilezero tmm5",
                "jmp 3f",
                "2:",
                "mov {at}, {sums}",
                "tileloadd tmm0, [{at} + {stride}]",
                "tileloadd tmm1, [{at} + {stride} + 64]",
                "add {at}, {sixteen}",
                "tileloadd tmm2, [{at} + {stride}]",
                "tileloadd tmm3, [{at} + {stride} + 64]",
                "add {at}, {sixteen}",
                "tileloadd tmm4, [{at} + {stride}]",
                "tileloadd tmm5, [{at} + {stride} + 64]",
                "3:",
                "mov {at}, {fetched}",
                "4:",
                "prefetchw [{next}]",
                "prefetchw [{next} + 64]",
                "add {next}, {next_stride}",
                "dec {at}",
                "jnz 4b",
                "tileloadd tmm6, [{left} + {line}]",
                "tileloadd tmm7, [{right} + {line}]",
                "tdpbf16ps tmm0, tmm6, tmm7",
                "tileloadd tmm6, [{left} + {line} + {tile}]",
                "tdpbf16ps tmm2, tmm6, tmm7",
                "tileloadd tmm6, [{left} + {line} + 2 * {tile}]",
                "tdpbf16ps tmm4, tmm6, tmm7",
                "tileloadd tmm7, [{right} + {line} + {tile}]",
                "tdpbf16ps tmm5, tmm6, tmm7",
                "tileloadd tmm6, [{left} + {line} + {tile}]",
                "tdpbf16ps tmm3, tmm6, tmm7",
                "tileloadd tmm6, [{left} + {line}]",
                "tdpbf16ps tmm1, tmm6, tmm7",
                "add {left}, {left_block}",
                "add {right}, {right_block}",
                "dec {blocks}",
                "jnz 3b",
                "tilestored [{sums} + {stride}], tmm0",
                "tilestored [{sums} + {stride} + 64], tmm1",
                "add {sums}, {sixteen}",
                "tilestored [{sums} + {stride}], tmm2",
                "tilestored [{sums} + {stride} + 64], tmm3",
                "add {sums}, {sixteen}",
                "tilestored [{sums} + {stride}], tmm4",
                "tilestored [{sums} + {stride} + 64], tmm5",
                goes_on = in(reg) u32::from(goes_on),
                sums = inout(reg) sums.as_mut_ptr() => _,
                stride = in(reg) stride * size_of::<f32>(),
                sixteen = in(reg) WIDTH * stride * size_of::<f32>(),
                left = inout(reg) left => _,
                right = inout(reg) right => _,
                line = in(reg) LINE,
                tile = const TILE,
                left_block = const LEFT_BLOCK,
                right_block = const RIGHT_BLOCK,
                blocks = inout(reg) blocks => _,
                fetched = in(reg) rows.div_ceil(blocks),
                next = inout(reg) next.0 => _,
                next_stride = in(reg) next.1 * size_of::<f32>(),
                at = out(reg) _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

/// AMX-TILE and AMX-BF16 beside AVX-512, with which everything else is done.
fn are_there() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        const BITS: u32 = (1 << 22) | (1 << 24);
        crate::cpu::InstructionSet::Avx512.is_supported() && __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BITS == BITS
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// Asks the kernel for the tiles' registers, 8 KB of each thread's state, which a process has on demand only.
fn are_granted() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        const ARCH_PRCTL: usize = 158;
        const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
        const XFEATURE_XTILEDATA: usize = 18;
        let result: usize;
        // SAFETY: the call takes two numbers and no memory; the kernel keeps all registers but the result's, rcx and r11.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        result == 0
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}
