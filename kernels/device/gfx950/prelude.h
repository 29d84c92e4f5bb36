// Words that the gfx950 kernels share: attributes, vector types, the layout of one thread block, random words.
//
// No ROCm header is needed: everything is a clang builtin. Not for CUDA, and not for other AMD targets: the kernels that include
// this use instructions that only gfx950 has. Compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an
// MI355X; no performance claim.
//
// BREAK_* macros are defined by tests alone, each to put one defect into a kernel and see it caught.
#pragma once

#ifndef __gfx950__
#ifdef __HIP_DEVICE_COMPILE__
#error "these kernels use instructions that only gfx950 has: compile with --offload-arch=gfx950"
#endif
#endif

#define KERNEL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device, always_inline))
#define SHARED __attribute__((shared))
// Threads of a block, and waves that must fit on a SIMD at once: the compiler's register budget follows from both.
#define BLOCK_OF(threads, waves) __attribute__((amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(waves, waves)))

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x4 __attribute__((ext_vector_type(4)));

DEVICE u32 thread_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 block_z() { return __builtin_amdgcn_workgroup_id_z(); }

DEVICE u32 bits_of(float value) { return __builtin_bit_cast(u32, value); }
DEVICE float float_of(u32 bits) { return __builtin_bit_cast(float, bits); }

// Waits for this wave's outstanding loads, those that go straight to LDS included, and for its LDS accesses; then for the other
// waves of the block. The asm is volatile and clobbers memory, so that no access moves across it.
DEVICE void wait_and_meet() {
#if !defined(BREAK_NO_WAIT)
    asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)" ::: "memory");
#endif
#if !defined(BREAK_NO_BARRIER)
    asm volatile("s_barrier" ::: "memory");
#endif
}

// A stream of random words, as kernels/src/random.rs: a word is a function of the two key words and a 64-bit index.
struct Stream {
    u32 k0, k1;
};

// What the upper half of the index adds to the counter: the same for all elements of a block of 32.
DEVICE u32 stream_base(Stream stream, u64 index) { return (u32)(index >> 32) * 0x85EBCA6Bu + stream.k0; }

DEVICE u32 random_word(Stream stream, u32 base, u32 low) {
    u32 x = low * 0x9E3779B1u + base;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = ((x ^ (x >> 15)) + stream.k1) * 0x846CA68Bu;
    return x ^ (x >> 16);
}
