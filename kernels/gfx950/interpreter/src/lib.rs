//! Decodes and executes gfx950 code objects on a CPU: a test tool, not a device.
//!
//! The project's MI355X kernels are compiled by clang for gfx950 and run here, instruction by instruction, so that their real machine
//! code can be compared with the CPU reference where no such card is. What passes here compiles for gfx950 and is functionally verified on
//! a CPU model of the ISA; it was not run on an MI355X, and nothing is said of its speed.
//!
//! [`object`] reads a code object, [`decode`] its instructions, [`memory`] holds what a kernel is given, [`launch`] runs it. Only what
//! our kernels use is known: an unknown instruction, or a known one in an unknown form, is an error that names its bits.
//!
//! # What it checks besides results
//!
//! - A register that a load has not filled yet may be neither read nor written before the `s_waitcnt` that guards it. Vector memory
//!   operations finish in order, so do LDS operations; scalar loads in any.
//! - LDS keeps its old bytes until a load that goes straight to it is waited for. Two waves that touch a byte between two barriers, one
//!   of them writing, race, in whatever order they happen to run here; so does who touches a byte that is still being written.
//! - Registers, LDS and outputs begin undefined. Undefined values may be moved and computed with, but decide no branch, no address, no
//!   EXEC and nothing that is stored to memory.
//! - Every global access lies inside one allocation; inputs are read-only; no workgroup touches what another one of its launch wrote,
//!   unless both do it atomically (a load counts as that where its scope is the device's: sc1). Atomic operations in LDS do not race with
//!   one another, only with reads and writes.
//! - Waves run one after another, in reverse, or an instruction each in turn ([`Order`]).
//!
//! # What was decided where the documentation is silent
//!
//! Sources are AMD's public CDNA instruction set documents, LLVM's target descriptions and AMD's matrix core articles.
//!
//! - **Matrix operations:** products of 32 elements are summed exactly; that sum, times both scales, is added to the accumulator with one
//!   rounding; blocks in order of k; denormals kept; a scale byte of 255 gives NaN; EXEC is ignored.
//! - **Conversion to FP4:** the scale is the exponent field of its F32 alone, 0 standing for 2^-127; x / scale is not rounded before it is
//!   converted; NaN gives the largest magnitude (our kernels store no such code).
//! - **BF16 matrix operations** (16x16x32): products are exact, the 32 of an element are summed in F64 in the order of k, and the sum is added to
//!   the accumulator with one rounding.
//! - **Approximate operations of F32** (reciprocal, square roots, 2^x, log2), documented to 1 ulp: the correctly rounded value (2^x and log2 from
//!   libm's F64), denormal inputs and results flushed. **Of F64** (reciprocal, inverse square root): 26 bits.
//! - **`v_div_fmas_f32`** undoes the scaling of `v_div_scale_f32` by 2^64 or 2^-64 (the documents' 2^32 cannot give the quotient); F64 the same by
//!   2^128 or 2^-128, and a subnormal F64 quotient is refused.
//! - **`v_bitop3_b16`** leaves a pattern in the upper half of its destination, on which nothing can rest.
//! - **Buffers:** a lane outside the resource loads zero, also into LDS, and stores nothing. An access that straddles the end is a fault.
//! - **Loads to LDS:** lane l writes at M0 + offset + l times the bytes of one lane.
//! - **`v_lshl_add_u64`** shifts by the low three bits; **`ds_bpermute_b32`** gives zero from an inactive lane.
//!
//! # What it does not model
//!
//! Wait states between dependent instructions (the compiler inserts them), timing (bank conflicts are counted, under two
//! assumptions on which lanes are served together; a clock model that takes a [`trace`](traced) is the crate gfx950-clock), cache policy bits, scratch memory, flat addresses, traps, other float modes than nearest-even with denormals.

pub mod banks;
pub mod decode;
mod execute;
pub mod fault;
mod launch;
mod lds;
pub mod memory;
pub mod object;
pub mod trace;

pub use launch::{Launch, Order, Statistics, launch, traced};
