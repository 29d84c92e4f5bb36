// What the kernels for gfx950 alone share beyond ../device/portable.h: an exact register budget, vector types, a barrier that waits for loads to LDS,
// offsets of LDS, and what keeps the compiler from moving things.
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

#include "../device/portable.h"

// A kernel whose blocks have exactly so many threads, so many waves fitting on a SIMD at once: the compiler's register budget follows from
// both. `KERNEL` of portable.h only says how many threads there are at most.
#define KERNEL_OF(threads, waves)                                                                                                          \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(waves, waves))) void

// A function of a struct, which lives in registers only if its functions do.
#define METHOD __attribute__((device, always_inline))

typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef __bf16 bf16x4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));

// So many bytes from `base` on, which is the same in all lanes: what lies behind them is read as zero.
typedef __amdgpu_buffer_rsrc_t Buffer;
DEVICE Buffer buffer_of(const void *base, u32 bytes) { return __builtin_amdgcn_make_buffer_rsrc((void *)base, 0, (int)bytes, 0x00027000); }

// Waits for this wave's outstanding loads but the VECTOR youngest, those that go straight to LDS included, and for its LDS accesses. The asm is
// volatile and clobbers memory, so that no access moves across it.
template <int VECTOR = 0> DEVICE void wait_for_loads() {
#if !defined(BREAK_NO_WAIT)
    asm volatile("s_waitcnt vmcnt(%0) lgkmcnt(0)" ::"n"(VECTOR) : "memory");
#else
    asm volatile("" ::: "memory");
#endif
}
// Waits for the other waves of the block, whose accesses may be under way.
DEVICE void meet() {
#if !defined(BREAK_NO_BARRIER)
    asm volatile("s_barrier" ::: "memory");
#else
    asm volatile("" ::: "memory");
#endif
}
// Both.
template <int VECTOR = 0> DEVICE void wait_and_meet() {
    wait_for_loads<VECTOR>();
    meet();
}

typedef __attribute__((address_space(3))) void *LdsPointer;

// Where what lies at this offset of LDS is read. Offsets are numbers, so that the compiler folds their constant part into the instruction.
template <typename T> DEVICE T read_lds(u32 at) { return *(const __attribute__((address_space(3))) T *)at; }

// A value that is computed, or has arrived, here and not where the compiler would have it: of a lane, and of the wave.
DEVICE u32 taken(u32 value) {
    asm volatile("" : "+v"(value));
    return value;
}
DEVICE u32 taken_by_wave(u32 value) {
    asm volatile("" : "+s"(value));
    return value;
}

// f(0), f(1), ... f(N - 1), each number known to the compiler.
template <int I> struct Number {
    static constexpr int value = I;
};
template <typename T, T... I> struct Numbers {
    template <typename F> static METHOD void each(F f) { (f(Number<I>{}), ...); }
};
template <int N, typename F> DEVICE void repeat(F f) { __make_integer_seq<Numbers, int, N>::each(f); }
#define INLINE __attribute__((always_inline))
