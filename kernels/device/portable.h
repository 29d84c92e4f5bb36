// What the kernels of this folder share and what differs between CUDA and HIP: names, wave width, shuffles, BF16, wide loads.
//
// No vendor header is included, so that NVRTC and a bare clang compile the same text. Multiplications and additions are never
// contracted (-fmad=false, -ffp-contract=off): where a fused multiply-add is meant, it is written.
#pragma once

#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
#define DEVICE static __attribute__((device)) inline __attribute__((always_inline))
#define KERNEL(threads) extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void
#define SHARED static __attribute__((shared))
#define BARRIER() __builtin_amdgcn_s_barrier()
#define WAVE 64
#else
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
    return value != value ? (bits >> 16) | 0x40u : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
}
DEVICE u32 bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return bf16_encode(low) | bf16_encode(high) << 16;
#endif
}
// The pair of values that are BF16 already.
DEVICE u32 bf16_pair_exact(float low, float high) { return to_bits(low) >> 16 | (to_bits(high) & 0xFFFF0000u); }

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

DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask); }
DEVICE u32 shuffle_xor(u32 value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask); }
DEVICE double shuffle_xor(double value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask); }

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
