// MXFP4 GEMM: D[m, n] = factor * sum over k of A[m, k] B[n, k], both operands E2M1 codes with one E8M0 byte per 32 along k.
//
// Operands are as kernels/gfx950/quantise.hip writes them: codes [rows, k / 2], low nibble first, scales [rows, k / 32]. M and N
// are multiples of 16, k of 32. The arithmetic unit is v_mfma_scale_f32_16x16x128_f8f6f4 with both formats FP4.
//
// A block of 256 threads (2 by 2 waves) makes a tile of D; k advances by 256. Codes go from memory to LDS without passing registers
// (16 bytes a lane), into the buffer that the previous step has finished with; one barrier a step. A row of a step is 128 bytes, 8 chunks
// of 16; chunk c of row r lies in slot c ^ (r / 2 mod 8), so that the 16 lanes that read one chunk of 16 rows touch 64 different banks.
//
// Which 32-block of the 256 a lane group takes is free, as long as A, B and their scales agree: instruction j of a step takes block
// 2 g + j for lane group g (lane / 16), so that a lane's two scale bytes are neighbours in memory and one load brings both. The sum
// over k is therefore taken in the order 0 2 4 6, 1 3 5 7 inside each 8 blocks.
//
// The roles of A and B are exchanged in the instruction (D transposed), because then a lane holds four neighbouring columns of D.
// Chunks beyond k and rows beyond M or N are loaded from beyond the buffer, which gives zeros.
//
// Split-K: with output PARTIAL each block of grid z writes its sum to a workspace [z, M, N]; mxfp4_gemm_sum adds them in order, so that results do not depend on
// timing. Compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim.
#include "prelude.h"

namespace {

constexpr u32 STEP_BYTES = 128;     // of codes in a row: 256 elements
constexpr u32 STEP_BLOCKS = 8;      // scale bytes in a row
constexpr u32 WAVES = 4;
constexpr u32 OUTSIDE = 0x80000000u;  // an offset beyond every buffer: loads give zero
constexpr int FP4 = 4;              // the instruction's code for E2M1

// PARTIAL: unscaled F32 into share z of a workspace [shares, m, n].
enum Output : u32 { OUT_BF16 = 0, OUT_F32 = 1, PARTIAL = 2 };

struct Operand {
    const u8 *codes;
    const u8 *scales;
};

// The host's struct of the same layout is packed into the kernel's arguments.
struct Product {
    Operand a, b;
    void *d;            // BF16 or F32 [m, n], or the workspace
    const void *added;  // what is added to the product in F32, of the type and shape of d (it may be d); null: nothing
    u32 m, n, k;
    u32 output;    // Output
    u32 share;     // steps of 256 along k that one block takes: ceil(k / 256) where grid z is 1
    float factor;  // what the product is multiplied by, once, after the sum
};

typedef __amdgpu_buffer_rsrc_t Buffer;

DEVICE Buffer buffer_of(const u8 *base, u32 bytes) { return __builtin_amdgcn_make_buffer_rsrc((void *)base, 0, (int)bytes, 0x00027000); }

#if defined(BREAK_NO_SWIZZLE)
DEVICE u32 slot_of(u32, u32 chunk) { return chunk; }
#else
DEVICE u32 slot_of(u32 row, u32 chunk) { return chunk ^ ((row >> 1) & 7); }
#endif

// Loads ROWS rows of step `step` to LDS. Each instruction of a wave brings 8 rows; lane l writes the l-th 16 bytes of them.
template <int ROWS> DEVICE void load_codes(Buffer buffer, u32 first_row, u32 k, u32 step, u8 *lds, u32 wave, u32 lane) {
    u32 pitch = k / 2;
#pragma unroll
    for (u32 i = 0; i < ROWS / (8 * WAVES); i++) {
        u32 row = (i * WAVES + wave) * 8 + lane / 8;
        u32 column = step * STEP_BYTES + slot_of(row, lane % 8) * 16;
        u32 offset = column < pitch ? (first_row + row) * pitch + column : OUTSIDE;
        auto to = (__attribute__((address_space(3))) void *)(lds + (i * WAVES + wave) * 8 * STEP_BYTES);
        __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, to, 16, offset, 0, 0, 0);
    }
}

// The two scale bytes of a lane's rows (16 apart) for step `step`: blocks 2 g and 2 g + 1. Where a row is an odd number of blocks the
// pair may straddle its end, so the bytes are loaded one by one.
template <int FRAGMENTS> DEVICE void load_scales(Buffer buffer, u32 row, u32 blocks, u32 step, u32 group, u32 (&scales)[FRAGMENTS]) {
    u32 block = step * STEP_BLOCKS + 2 * group;
    bool first = block < blocks, second = block + 1 < blocks;
    u32 offset = row * blocks + block;
    if (blocks % 2 == 0) {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++, offset += 16 * blocks) {
            scales[f] = __builtin_amdgcn_raw_buffer_load_b16(buffer, first ? offset : OUTSIDE, 0, 0);
        }
    } else {
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++, offset += 16 * blocks) {
            u32 low = __builtin_amdgcn_raw_buffer_load_b8(buffer, first ? offset : OUTSIDE, 0, 0);
            u32 high = __builtin_amdgcn_raw_buffer_load_b8(buffer, second ? offset + 1 : OUTSIDE, 0, 0);
            scales[f] = low | high << 8;
        }
    }
}

// Moves the scales that have arrived out of the way of the next loads. The empty asm keeps the moves here, after the wait: at the end of
// the loop, where the compiler would put them, they would wait for loads that should still be under way.
template <int FRAGMENTS> DEVICE void take(u32 (&scales)[FRAGMENTS], const u32 (&next)[FRAGMENTS]) {
#pragma unroll
    for (int f = 0; f < FRAGMENTS; f++) {
        scales[f] = next[f];
        asm volatile("" : "+v"(scales[f]));
    }
}

// The 32 codes of row `row` and chunk `chunk`, in the low half of what the builtin takes (it drops the upper half for FP4).
DEVICE i32x8 read_codes(const u8 *lds, u32 row, u32 chunk) {
    i32x4 codes = *(const i32x4 *)(lds + row * STEP_BYTES + slot_of(row, chunk) * 16);
    return i32x8{codes[0], codes[1], codes[2], codes[3], 0, 0, 0, 0};
}

// Four neighbouring elements of D: rounded once after the factor, after what is added, and to BF16.
template <Output OUTPUT, bool ADDED> DEVICE void store(void *d, const void *added, u64 index, f32x4 sum, float factor) {
    sum *= factor;
    if (OUTPUT == OUT_BF16) {
        if (ADDED) sum += __builtin_convertvector(*(const bf16x4 *)((const u16 *)added + index), f32x4);
        *(bf16x4 *)((u16 *)d + index) = __builtin_convertvector(sum, bf16x4);
    } else {
        if (ADDED) sum += *(const f32x4 *)((const float *)added + index);
        *(f32x4 *)((float *)d + index) = sum;
    }
}

// A wave's fragments, its first row and column of D being (i, j) for this lane. M and N are multiples of 16 and 4, so that a lane's four
// elements are inside together.
template <Output OUTPUT, bool ADDED, int FM, int FN>
DEVICE void store_all(void *d, const void *added, u32 i, u32 j, u32 m, u32 n, const f32x4 (&sum)[FM][FN], float factor) {
#if defined(BREAK_EDGE)
    m += 1;
#endif
#pragma unroll
    for (int fm = 0; fm < FM; fm++) {
        u64 start = (u64)(i + fm * 16) * n + j;
#pragma unroll
        for (int fn = 0; fn < FN; fn++) {
            if (i + fm * 16 < m && j + fn * 16 < n) store<OUTPUT, ADDED>(d, added, start + fn * 16, sum[fm][fn], factor);
        }
    }
}

// One tile of D. A wave holds FM by FN fragments of 16 by 16; the block is 2 by 2 waves.
template <int FM, int FN> DEVICE void multiply(const Product &p, u8 *lds) {
    constexpr u32 TILE_M = 2 * FM * 16, TILE_N = 2 * FN * 16, STAGE = (TILE_M + TILE_N) * STEP_BYTES;
    u32 lane = threadIdx.x % 64, wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64);
    u32 top = blockIdx.y * TILE_M, left = blockIdx.x * TILE_N;
    u32 wave_m = wave / 2 * FM * 16, wave_n = wave % 2 * FN * 16;
    u32 row = lane % 16, group = lane / 16, blocks = p.k / 32;
    Buffer codes_a = buffer_of(p.a.codes, p.m * (p.k / 2)), codes_b = buffer_of(p.b.codes, p.n * (p.k / 2));
    Buffer scales_a = buffer_of(p.a.scales, p.m * blocks), scales_b = buffer_of(p.b.scales, p.n * blocks);

    // This block's share of k, in steps.
    u32 steps = (p.k / 2 + STEP_BYTES - 1) / STEP_BYTES;
    u32 first = blockIdx.z * p.share, last = first + p.share < steps ? first + p.share : steps;

    f32x4 sum[FM][FN] = {};
    u32 next_a[FM], next_b[FN];
    auto load = [&](u32 step, u8 *stage) __attribute__((always_inline)) {
        load_codes<TILE_M>(codes_a, top, p.k, step, stage, wave, lane);
        load_codes<TILE_N>(codes_b, left, p.k, step, stage + TILE_M * STEP_BYTES, wave, lane);
        load_scales<FM>(scales_a, top + wave_m + row, blocks, step, group, next_a);
        load_scales<FN>(scales_b, left + wave_n + row, blocks, step, group, next_b);
    };
    if (first < last) load(first, lds);
#pragma unroll 1
    for (u32 step = first; step < last; step++) {
        u8 *stage = lds + ((step - first) & 1) * STAGE;
        wait_and_meet();
        u32 scale_a[FM], scale_b[FN];
        take<FM>(scale_a, next_a);
        take<FN>(scale_b, next_b);
        if (step + 1 < last) load(step + 1, lds + ((step + 1 - first) & 1) * STAGE);
        const u8 *stage_a = stage, *stage_b = stage + TILE_M * STEP_BYTES;
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            i32x8 a[FM], b[FN];
#pragma unroll
            for (int f = 0; f < FM; f++) a[f] = read_codes(stage_a, wave_m + f * 16 + row, 2 * group + j);
#pragma unroll
            for (int f = 0; f < FN; f++) b[f] = read_codes(stage_b, wave_n + f * 16 + row, 2 * group + j);
#pragma unroll
            for (int m = 0; m < FM; m++) {
#pragma unroll
                for (int n = 0; n < FN; n++) {
#if defined(BREAK_WRONG_SCALE_BLOCK)
#define SCALE_BYTE 0
#else
#define SCALE_BYTE 1
#endif
                    // The byte of the scale register is part of the instruction, so the two cases are written out.
                    if (j == 0) {
                        sum[m][n] = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(b[n], a[m], sum[m][n], FP4, FP4, 0, scale_b[n], 0, scale_a[m]);
                    } else {
                        sum[m][n] = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(b[n], a[m], sum[m][n], FP4, FP4, 1, scale_b[n], SCALE_BYTE, scale_a[m]);
                    }
                }
            }
        }
    }

    u32 i = top + wave_m + row, j = left + wave_n + 4 * group;
    if (p.output == PARTIAL) {
        store_all<OUT_F32, false>((float *)p.d + (u64)blockIdx.z * p.m * p.n, nullptr, i, j, p.m, p.n, sum, 1.0f);
    } else if (p.output == OUT_BF16) {
        if (p.added) {
            store_all<OUT_BF16, true>(p.d, p.added, i, j, p.m, p.n, sum, p.factor);
        } else {
            store_all<OUT_BF16, false>(p.d, nullptr, i, j, p.m, p.n, sum, p.factor);
        }
    } else if (p.added) {
        store_all<OUT_F32, true>(p.d, p.added, i, j, p.m, p.n, sum, p.factor);
    } else {
        store_all<OUT_F32, false>(p.d, nullptr, i, j, p.m, p.n, sum, p.factor);
    }
}

}  // namespace

// Grid: x over tiles of N, y over tiles of M, z shares of k.
#define GEMM(TILE, FRAGMENTS, WAVES_PER_SIMD)                                                         \
    KERNEL_OF(256, WAVES_PER_SIMD) mxfp4_gemm_##TILE##x##TILE(Product product) {           \
        SHARED u8 lds[2 * (2 * TILE) * STEP_BYTES] __attribute__((aligned(1024)));             \
        multiply<FRAGMENTS, FRAGMENTS>(product, lds);                                                 \
    }
GEMM(64, 2, 4)
GEMM(128, 4, 2)
GEMM(256, 8, 1)

// The second half of split-K: partial sums added in the order of their shares. `count` is m * n, a multiple of 4; 256 threads, 4
// elements each.
KERNEL_OF(256, 4) mxfp4_gemm_sum(const float *partial, void *d, const void *added, u64 count, u32 shares, u32 output, float factor) {
    u64 index = ((u64)blockIdx.x * 256 + threadIdx.x) * 4;
    if (index >= count) return;
    f32x4 sum = *(const f32x4 *)(partial + index);
    for (u32 z = 1; z < shares; z++) sum += *(const f32x4 *)(partial + z * count + index);
    if (output == OUT_BF16) {
        if (added) {
            store<OUT_BF16, true>(d, added, index, sum, factor);
        } else {
            store<OUT_BF16, false>(d, nullptr, index, sum, factor);
        }
    } else if (added) {
        store<OUT_F32, true>(d, added, index, sum, factor);
    } else {
        store<OUT_F32, false>(d, nullptr, index, sum, factor);
    }
}
