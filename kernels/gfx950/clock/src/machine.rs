//! What is known or assumed of an MI355X, each number once. Where no public source was found it says "assumed".

/// Compute units, and the dies that they lie on. AMD, "CDNA 4 Architecture" (white paper): 8 dies with 32 units each.
pub const UNITS: u64 = 256;
pub const DIES: u64 = 8;
/// SIMDs of a compute unit. The same.
pub const SIMDS: usize = 4;
/// Registers of a lane on a SIMD, accumulation registers included, and what they are given out in. LLVM, "User Guide for AMDGPU Backend".
pub const REGISTERS: u64 = 512;
pub const REGISTER_GRANULE: u64 = 8;
/// Waves of a SIMD at most. The same.
pub const WAVES: u64 = 8;
/// LDS of a compute unit in bytes. AMD, "CDNA 4 Architecture".
pub const LDS: u64 = 163_840;
/// Clocks in a second. AMD's data sheet of the MI355X.
pub const HERTZ: f64 = 2.4e9;

/// A wave issues one instruction in so many clocks at most: 64 lanes on 16 units. AMD, "Graphics Cores Next" (white paper, 2012);
/// LLVM's SISchedule.td counts in these, so that its cycle is four clocks here.
pub const CADENCE: u64 = 4;
/// Clocks of a vector operation on its SIMD. The same.
pub const VECTOR: u64 = CADENCE;
/// The same of the transcendental ones, a quarter of the rate. AMD, "CDNA 3 ISA".
pub const TRANSCENDENTAL: u64 = 4 * CADENCE;
/// Clocks from a matrix operation's last pass to its result. LLVM, SISchedule.td: latency is passes + 4.
pub const MATRIX_TAIL: u64 = 4 * CADENCE;
/// F32 operations that a SIMD's matrix pipe does in a clock, by the width of its operands. AMD's data sheet: 2.52, 5.03 and 10.07 PFLOP/s.
pub const MATRIX_BF16: u64 = 1024;
pub const MATRIX_FP8: u64 = 2048;
pub const MATRIX_FP4: u64 = 4096;
/// Clocks of a wave after a branch that is taken. LLVM, SISchedule.td: WriteBranch, 8.
pub const BRANCH: u64 = 8 * CADENCE;
/// Clocks from the last wave's arrival at a barrier to the next instruction (assumed).
pub const BARRIER: u64 = 2 * CADENCE;

/// Bytes that LDS moves in a clock. AMD, ROCm Compute Profiler, "Local data share"; "CDNA 4 Architecture".
pub const LDS_BYTES: u64 = 128;
/// Clocks from an LDS operation's turn to its data, without conflicts: 64 on GCN and CDNA (AMD, "Graphics Cores Next"), twice that assumed,
/// because a load of 16 bytes a lane returns through the same bus.
pub const LDS_LATENCY: u64 = 128;
/// Clocks of work that may wait before LDS until no more is issued (assumed).
pub const LDS_QUEUE: u64 = 64;

/// Lanes whose addresses the address unit takes in a clock, and bytes that the vector cache moves in one. AMD, "Graphics Cores Next"; "CDNA 3
/// Architecture": 64 bytes a clock and unit, as the L2 cache gives to all units at once (2048 a clock to the 32 of a die).
pub const ADDRESSES: u64 = 16;
pub const CACHE_BYTES: u64 = 64;
/// A line of the vector cache, one of which is looked up in a clock. AMD, "CDNA 3 Architecture".
pub const LINE: u64 = 128;
/// Clocks of work that may wait before the address unit until no more is issued (assumed).
pub const ADDRESS_QUEUE: u64 = 128;
/// Clocks from the address unit to the data: between the L2 cache and memory (assumed; `kernels::gpu::Plan` assumes the same).
pub const MEMORY_LATENCY: u64 = 1000;
/// Clocks from a workgroup's end to the first instruction of the one that takes its place (assumed).
pub const LAUNCH: u64 = 500;
/// Clocks of a scalar load (assumed).
pub const SCALAR_LATENCY: u64 = 200;
/// Operations of a wave that its counters tell apart: vector memory, and LDS with scalar memory. AMD, "CDNA 3 ISA".
pub const VECTOR_COUNT: usize = 63;
pub const LOCAL_COUNT: usize = 15;

/// Bytes that the Infinity Cache gives in a clock, to all dies: 17.2 TB/s at 2.1 GHz. AMD, "CDNA 3 Architecture".
pub const FABRIC_BYTES: u64 = 8192;
/// Bytes that a die and the Infinity Cache exchange at once. AMD, "CDNA 3 Architecture": 64 bytes a clock and channel.
pub const SECTOR: u64 = 64;
/// Bytes that memory gives or takes in a clock: 8 TB/s at 2.4 GHz. AMD's data sheet.
pub const MEMORY_BYTES: u64 = 3333;
