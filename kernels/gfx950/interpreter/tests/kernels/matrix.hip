// One matrix operation of one wave, in each shape and pairing of formats that the interpreter executes. Not a kernel of ours: tests/matrix.rs
// executes it. Compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim.
#include "prelude.h"

namespace {


#if defined(BREAK_LAYOUT)
constexpr bool CONTIGUOUS = true;
#else
constexpr bool CONTIGUOUS = false;
#endif

// The lane's 32 elements of `row`: formats of 4 bits as they follow one another, bytes in two pieces of 16.
template <int M, int FORMAT> DEVICE i32x8 fragment(const u8 *matrix, u32 lane) {
    constexpr u32 K = 2048 / M;
    u32 row = lane % M, group = lane / M;
    if (FORMAT == 4) {
        i32x4 codes = *(const i32x4 *)(matrix + row * (K / 2) + 16 * group);
        return i32x8{codes[0], codes[1], codes[2], codes[3], 0, 0, 0, 0};
    }
    const u8 *first = matrix + row * K + (CONTIGUOUS ? 32 : 16) * group;
    i32x4 low = *(const i32x4 *)first, high = *(const i32x4 *)(first + (CONTIGUOUS ? 16 : K / 2));
    return i32x8{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
}

// a: [M, K], b: [M, K], scales [M, K / 32], c and d: [M, M].
struct Operation {
    const u8 *a, *b, *scales_a, *scales_b;
    const float *c;
    float *d;
};

template <int M> DEVICE u32 place(u32 lane, u32 i) {
#if defined(BREAK_ROWS)
    u32 row = M == 16 ? 4 * (lane / 16) + i : 4 * (i / 4) + 16 * (lane / 32) + i % 4;
#else
    u32 row = M == 16 ? 4 * (lane / 16) + i : 8 * (i / 4) + 4 * (lane / 32) + i % 4;
#endif
    return row * M + lane % M;
}

// The scales of A are in byte 1 of their register and those of B in byte 2; the other bytes hold something else.
template <int FORMAT_A, int FORMAT_B> DEVICE void small(const Operation &o) {
    u32 lane = threadIdx.x, at = lane % 16 * 4 + lane / 16;
    u32 scale_a = 0x03000005u | (u32)o.scales_a[at] << 8, scale_b = 0x05000307u | (u32)o.scales_b[at] << 16;
    f32x4 sum;
    for (u32 i = 0; i < 4; i++) sum[i] = o.c[place<16>(lane, i)];
#if defined(BREAK_SCALE_BYTE)
    sum = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(fragment<16, FORMAT_A>(o.a, lane), fragment<16, FORMAT_B>(o.b, lane), sum, FORMAT_A, FORMAT_B, 1, scale_a, 1, scale_b);
#else
    sum = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(fragment<16, FORMAT_A>(o.a, lane), fragment<16, FORMAT_B>(o.b, lane), sum, FORMAT_A, FORMAT_B, 1, scale_a, 2, scale_b);
#endif
    for (u32 i = 0; i < 4; i++) o.d[place<16>(lane, i)] = sum[i];
}

template <int FORMAT_A, int FORMAT_B> DEVICE void large(const Operation &o) {
    u32 lane = threadIdx.x, at = lane % 32 * 2 + lane / 32;
    u32 scale_a = 0x03000005u | (u32)o.scales_a[at] << 8, scale_b = 0x05000307u | (u32)o.scales_b[at] << 16;
    f32x16 sum;
    for (u32 i = 0; i < 16; i++) sum[i] = o.c[place<32>(lane, i)];
    sum = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(fragment<32, FORMAT_A>(o.a, lane), fragment<32, FORMAT_B>(o.b, lane), sum, FORMAT_A, FORMAT_B, 1, scale_a, 2, scale_b);
    for (u32 i = 0; i < 16; i++) o.d[place<32>(lane, i)] = sum[i];
}

// BF16, a: [M, K], b: [M, K]: lane l holds 8 elements from k = 8 (l / M) on.
template <int M> DEVICE bf16x8 bf16_fragment(const u8 *matrix, u32 lane) { return *(const bf16x8 *)(matrix + lane % M * (1024 / M) + lane / M * 16); }

}  // namespace

#if defined(BREAK_FORMAT)
#define E5M2 0
#else
#define E5M2 1
#endif
#define E4M3 0
#define E2M1 4
#define SMALL(name, a, b) KERNEL_OF(64, 1) name(Operation o) { small<a, b>(o); }
#define LARGE(name, a, b) KERNEL_OF(64, 1) name(Operation o) { large<a, b>(o); }
SMALL(small_e2m1_e2m1, E2M1, E2M1)
SMALL(small_e4m3_e4m3, E4M3, E4M3)
SMALL(small_e5m2_e4m3, E5M2, E4M3)
SMALL(small_e4m3_e2m1, E4M3, E2M1)
SMALL(small_e2m1_e5m2, E2M1, E5M2)
LARGE(large_e2m1_e2m1, E2M1, E2M1)
LARGE(large_e4m3_e4m3, E4M3, E4M3)
LARGE(large_e4m3_e5m2, E4M3, E5M2)

// Without scales the compiler takes the operation that has none.
KERNEL_OF(64, 1) unscaled_e4m3_e4m3(Operation o) {
    u32 lane = threadIdx.x;
    f32x4 sum;
    for (u32 i = 0; i < 4; i++) sum[i] = o.c[place<16>(lane, i)];
    sum = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(fragment<16, E4M3>(o.a, lane), fragment<16, E4M3>(o.b, lane), sum, E4M3, E4M3, 0, 0, 0, 0);
    for (u32 i = 0; i < 4; i++) o.d[place<16>(lane, i)] = sum[i];
}

KERNEL_OF(64, 1) bf16_small(Operation o) {
    f32x4 sum;
    for (u32 i = 0; i < 4; i++) sum[i] = o.c[place<16>(threadIdx.x, i)];
    sum = __builtin_amdgcn_mfma_f32_16x16x32_bf16(bf16_fragment<16>(o.a, threadIdx.x), bf16_fragment<16>(o.b, threadIdx.x), sum, 0, 0, 0);
    for (u32 i = 0; i < 4; i++) o.d[place<16>(threadIdx.x, i)] = sum[i];
}
KERNEL_OF(64, 1) bf16_large(Operation o) {
    f32x16 sum;
    for (u32 i = 0; i < 16; i++) sum[i] = o.c[place<32>(threadIdx.x, i)];
    sum = __builtin_amdgcn_mfma_f32_32x32x16_bf16(bf16_fragment<32>(o.a, threadIdx.x), bf16_fragment<32>(o.b, threadIdx.x), sum, 0, 0, 0);
    for (u32 i = 0; i < 16; i++) o.d[place<32>(threadIdx.x, i)] = sum[i];
}
