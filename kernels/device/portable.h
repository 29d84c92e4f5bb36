// What the kernels of this folder share and what differs between CUDA and HIP: names, wave width, shuffles, BF16, wide loads.
//
// No vendor header is included, so that NVRTC and a bare clang compile the same text. Multiplications and additions are never
// contracted (-fmad=false, -ffp-contract=off): where a fused multiply-add is meant, it is written. What CUDA's compiler knows by
// itself (threadIdx, fmaf, atomicMax, ...) has the same name here for HIP.
#pragma once

#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
#define ON_AMD 1
#define DEVICE [[maybe_unused]] static __attribute__((device)) inline __attribute__((always_inline))
#define KERNEL(threads) extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void
#define SHARED static __attribute__((shared))
#define WAVE 64
#else
#define ON_AMD 0
#define DEVICE static __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define SHARED __shared__
#define BARRIER() __syncthreads()
#define WAVE 32
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if ON_AMD
// ---- CUDA's names for AMD ----
struct Place { u32 x, y, z; };
// The launch geometry of the code object's hidden arguments, which whoever launches fills in: workgroups along x, y, z.
DEVICE Place grid_size() {
    auto hidden = (const __attribute__((address_space(4))) u32*)__builtin_amdgcn_implicitarg_ptr();
    return {hidden[0], hidden[1], hidden[2]};
}
DEVICE Place block_place() { return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()}; }
DEVICE Place thread_place() { return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()}; }
#define gridDim grid_size()
#define blockIdx block_place()
#define threadIdx thread_place()

// The barrier alone orders nothing in memory: the fences make the compiler wait for this wave's accesses before it, and keep later ones
// behind it. BREAK_* are defined by tests alone, each to see a defect caught.
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
#if !defined(BREAK_NO_BARRIER)
    __builtin_amdgcn_s_barrier();
#endif
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define BARRIER() barrier()

DEVICE float __uint_as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
DEVICE u32 __float_as_uint(float value) { return __builtin_bit_cast(u32, value); }

DEVICE u32 max(u32 a, u32 b) { return a > b ? a : b; }
DEVICE int min(int a, int b) { return a < b ? a : b; }
DEVICE float fminf(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float fabsf(float x) { return __builtin_fabsf(x); }
DEVICE float copysignf(float magnitude, float sign) { return __builtin_copysignf(magnitude, sign); }
// Correctly rounded, as their F64 namesakes and every division (clang's default for HIP).
DEVICE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float sqrtf(float x) { return __builtin_sqrtf(x); }
DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE double sqrt(double x) { return __builtin_sqrt(x); }
// Expanded by the compiler around v_exp_f32 and v_log_f32 with a product by log2(e) or ln(2) in two parts: about 1 ulp.
DEVICE float logf(float x) { return __builtin_logf(x); }
DEVICE float __expf(float x) { return __builtin_expf(x); }

DEVICE u32 atomicMax(u32* at, u32 value) { return __hip_atomic_fetch_max(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }

// What other workgroups may be changing: read from memory each time.
DEVICE u32 fresh(const u32* at) { return __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }

DEVICE u32 lane_number() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
// The value of another lane of the wave, which must be executing too.
DEVICE u32 lane_value(u32 value, u32 lane) { return (u32)__builtin_amdgcn_ds_bpermute((int)(4 * lane), (int)value); }
#else
DEVICE u32 fresh(const u32* at) { return *(const volatile u32*)at; }
#endif

// Sixteen bytes, the widest load: eight BF16 or four F32.
struct alignas(16) Vector16 { u32 word[4]; };
struct alignas(8) Vector8 { u32 word[2]; };

#define INFINITY_ __uint_as_float(0x7F800000u)
#define NAN_ __uint_as_float(0x7FC00000u)

DEVICE float from_bits(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 to_bits(float value) { return __float_as_uint(value); }

// BF16 is the upper half of an F32.
DEVICE float bf16_low(u32 pair) { return from_bits(pair << 16); }
DEVICE float bf16_high(u32 pair) { return from_bits(pair & 0xFFFF0000u); }
DEVICE float bf16_decode(u16 code) { return from_bits((u32)code << 16); }

// To nearest, ties to even; a NaN stays a quiet NaN (kernels/src/format/bf16.rs).
DEVICE u32 bf16_encode(float value) {
    u32 bits = to_bits(value);
#if defined(BREAK_ROUNDING)
    return bits >> 16;
#endif
    return value != value ? (bits >> 16) | 0x40u : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
}
DEVICE u32 bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#elif defined(__gfx950__) && !defined(BREAK_ROUNDING)
    typedef __bf16 Pair __attribute__((ext_vector_type(2)));
    Pair pair = {(__bf16)low, (__bf16)high}; // v_cvt_pk_bf16_f32
    return __builtin_bit_cast(u32, pair);
#else
    return bf16_encode(low) | bf16_encode(high) << 16;
#endif
}
// The pair of values that are BF16 already.
#if ON_AMD
DEVICE u32 bf16_pair_exact(float low, float high) { return to_bits(low) >> 16 | (to_bits(high) & 0xFFFF0000u); }
#else
DEVICE u32 bf16_pair_exact(float low, float high) { return __byte_perm(to_bits(low), to_bits(high), 0x7632); }
#endif

// Arithmetic on both halves of a word at once, as unsigned numbers (max) or BF16 values (add, subtract, min: rounded once, subnormals
// kept, no NaN). -DPAIRS=1 takes the paths that are built on them where the machine lacks them: that is for tests.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define PAIRS 1
#define ON_HALVES(name, instruction)                                             \
    DEVICE u32 name(u32 a, u32 b) {                                              \
        u32 result;                                                              \
        asm(instruction " %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));         \
        return result;                                                           \
    }
ON_HALVES(max_halves, "max.u16x2")
ON_HALVES(add_bf16_pairs, "add.rn.bf16x2")
ON_HALVES(subtract_bf16_pairs, "sub.rn.bf16x2")
ON_HALVES(min_bf16_pairs, "min.bf16x2")
#else
#ifndef PAIRS
#define PAIRS 0
#endif
DEVICE u32 max_halves(u32 a, u32 b) { return max(a & 0xFFFFu, b & 0xFFFFu) | max(a & 0xFFFF0000u, b & 0xFFFF0000u); }
DEVICE u32 add_bf16_pairs(u32 a, u32 b) { return bf16_pair(bf16_low(a) + bf16_low(b), bf16_high(a) + bf16_high(b)); }
DEVICE u32 subtract_bf16_pairs(u32 a, u32 b) { return bf16_pair(bf16_low(a) - bf16_low(b), bf16_high(a) - bf16_high(b)); }
DEVICE u32 min_bf16_pairs(u32 a, u32 b) { return bf16_pair_exact(fminf(bf16_low(a), bf16_low(b)), fminf(bf16_high(a), bf16_high(b))); }
#endif

DEVICE void unpack8(const Vector16& packed, float (&values)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        values[2 * i] = bf16_low(packed.word[i]);
        values[2 * i + 1] = bf16_high(packed.word[i]);
    }
}
DEVICE Vector16 pack8(const float (&values)[8]) {
    Vector16 packed;
#pragma unroll
    for (int i = 0; i < 4; ++i) packed.word[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
    return packed;
}

// The value of the lane whose number differs in the bits of `mask`; every lane of the wave takes part.
#if ON_AMD
DEVICE u32 shuffle_xor(u32 value, int mask) { return lane_value(value, lane_number() ^ (u32)mask); }
DEVICE float shuffle_xor(float value, int mask) { return from_bits(shuffle_xor(to_bits(value), mask)); }
DEVICE double shuffle_xor(double value, int mask) {
    u64 bits = __builtin_bit_cast(u64, value);
    u32 low = shuffle_xor((u32)bits, mask), high = shuffle_xor((u32)(bits >> 32), mask);
    return __builtin_bit_cast(double, (u64)high << 32 | low);
}
#else
DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask); }
DEVICE u32 shuffle_xor(u32 value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask); }
DEVICE double shuffle_xor(double value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask); }
#endif

// Held between 0 and 1.
#if ON_AMD
DEVICE float saturate(float x) { return __builtin_amdgcn_fmed3f(x, 0.0f, 1.0f); }
#else
DEVICE float saturate(float x) { return __saturatef(x); }
#endif

// The larger magnitude; NaN if either is.
DEVICE float larger_magnitude(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
    return larger;
#else
    return from_bits(max(to_bits(a) & 0x7FFFFFFFu, to_bits(b) & 0x7FFFFFFFu));
#endif
}

// The largest over a wave; every lane gets it.
DEVICE u32 wave_max(u32 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xFFFFFFFFu, value);
#else
    for (int mask = 1; mask < WAVE; mask *= 2) value = max(value, shuffle_xor(value, mask));
    return value;
#endif
}

// Sum over `lanes` neighbouring lanes (a power of two), the same tree in each of them.
template <typename T> DEVICE T lane_sum(T value, int lanes) {
    for (int mask = 1; mask < lanes; mask *= 2) value += shuffle_xor(value, mask);
    return value;
}

// Sum over a workgroup of THREADS threads, in a fixed order; every thread gets it. `room` holds one entry a wave.
template <int THREADS, typename T> DEVICE T group_sum(T value, T* room) {
    value = lane_sum(value, WAVE);
    if (THREADS == WAVE) return value;
    if (threadIdx.x % WAVE == 0) room[threadIdx.x / WAVE] = value;
    BARRIER();
    T sum = room[0];
#pragma unroll
    for (int wave = 1; wave < THREADS / WAVE; ++wave) sum += room[wave];
    BARRIER();
    return sum;
}
