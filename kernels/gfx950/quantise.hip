// Rotate and quantise: a BF16 matrix [rows, k] is read once and written as MXFP4 along its rows, along its columns, or both.
//
// The arithmetic is that of kernels/src/quantise (the scalar reference), bit for bit: sign flips, Hadamard butterflies of distance
// 1, 2, 4, ... in F32 and one multiplication, one E8M0 byte per block of 32 (or per square of 32 by 32: mxfp4_quantise_square), then
// nearest-even or stochastic rounding. Nearest-even is
// v_cvt_scalef32_pk_fp4_f32. Stochastic rounding is integer arithmetic on our own random words: the hardware's
// v_cvt_scalef32_sr_pk_fp4_f32 defines neither the same threshold nor one word per element, and its results could not equal the CPU's.
//
// Along rows the operand is [rows, k], its codes [rows, k / 2] and scales [rows, k / 32]. Along columns it is the transposed operand
// [k, rows]: codes [k, rows / 2], scales [k, rows / 32]. A code's random word has the index of its element in that operand.
// k must be a multiple of 32 for the first, rows of 32 for the second (of the rotation, if that is longer), and k of 8 always (16-byte
// loads); the host checks it.
//
// Scales lie row by row, or as hipBLASLt's mode 1001 wants them (tiles of 32 rows by 8 blocks, `scale_place` below).
//
// One block of 256 threads takes a tile of 128 by 128: loads it into LDS, meets, and each thread then makes two blocks of 32 in
// each direction. The four blocks of a row (or column) of the tile are those of four neighbouring lanes, which speak to each other only
// for rotations of 64 and 128, by DPP; the lanes of a square meet in LDS once more. Compiles for gfx950; functionally verified on a CPU model of the ISA; not run
// on an MI355X; no performance claim.
#include "../device/formats.h"
#include "prelude.h"

namespace {

constexpr u32 TILE = 128;
constexpr u32 BLOCK = 32;
constexpr u32 THREADS = 256;
// 16 bytes more than a row, so that a column's elements lie in different banks; each group of 32 rows is moved by another 64, so
// that the four groups which a wave reads at once do too.
constexpr u32 PITCH = TILE * 2 + 16;
constexpr u32 GROUP_SHIFT = 64;
constexpr u32 LDS_BYTES = TILE * PITCH + 3 * GROUP_SHIFT;

enum Layout : u32 { BY_ROWS = 0, SWIZZLED = 1 };

// How one orientation is prepared, and where it goes. The host's struct of the same layout is packed into the kernel's arguments.
struct Side {
    u8 *codes;     // null: this orientation is not wanted
    u8 *scales;    // E8M0
    u32 rotation;  // 0, 16, 32, 64 or 128
    u32 signs[4];  // bit i set: element i of each 128 along the contraction axis is negated first (a shorter rotation repeats its bits)
    u32 rule;      // FLOOR, EVEN, CEIL
    u32 rounding;  // NEAREST_EVEN, STOCHASTIC, STOCHASTIC_PRESCALED
    u32 k0, k1;    // the stream of random words
    u32 layout;    // Layout of the scales
    u32 square;    // not 0: 32 rows of the operand share a scale; for mxfp4_quantise_square alone
    u32 unused;
};

DEVICE u32 lds_offset(u32 row, u32 column) { return row * PITCH + (row / BLOCK) * GROUP_SHIFT + column * 2; }

template <int DISTANCE> DEVICE void butterflies(float (&x)[BLOCK]) {
#pragma unroll
    for (int pair = 0; pair < (int)BLOCK / 2; pair++) {
        int low = (pair / DISTANCE) * 2 * DISTANCE + pair % DISTANCE;
        float a = x[low], b = x[low + DISTANCE];
        x[low] = a + b;
        x[low + DISTANCE] = a - b;
    }
}

// Butterflies between lanes whose blocks are 32 (lanes 1 apart) or 64 elements (2 apart) away. The upper lane takes other - x: the product
// with -1 is exact, so that the sum is rounded once.
template <int LANES> DEVICE void butterflies_across(float (&x)[BLOCK], u32 lane) {
    constexpr int EXCHANGED = LANES == 1 ? 0xB1 : 0x4E;  // quad_perm [1, 0, 3, 2] and [2, 3, 0, 1]
    float sign = (lane & LANES) ? -1.0f : 1.0f;
#pragma unroll
    for (u32 i = 0; i < BLOCK; i++) {
        float other = from_bits((u32)__builtin_amdgcn_mov_dpp((int)to_bits(x[i]), EXCHANGED, 0xF, 0xF, true));
        x[i] = __builtin_fmaf(x[i], sign, other);
        asm volatile("" : "+v"(x[i]));  // one after the other: packed in pairs, they would not fit in the registers
    }
}

// y = H (signs * x) / sqrt(size) on each `size` elements, in the reference's order of additions. `lane` is the block's number among the
// four that neighbouring lanes hold: all lanes of a rotation are here, because it divides the contraction axis.
DEVICE void rotate(float (&x)[BLOCK], const Side &side, u32 lane) {
    u32 size = side.rotation;
    if (size == 0) return;
    if (side.signs[0] | side.signs[1] | side.signs[2] | side.signs[3]) {
        u32 low = lane & 1 ? side.signs[1] : side.signs[0], high = lane & 1 ? side.signs[3] : side.signs[2];
        u32 signs = lane & 2 ? high : low;
        asm volatile("" : "+v"(signs));  // or the 32 masks below are made once, before the loop, and held in as many registers
#pragma unroll
        for (u32 i = 0; i < BLOCK; i++) x[i] = from_bits(to_bits(x[i]) ^ ((signs << (31 - i)) & 0x80000000u));
    }
    butterflies<1>(x);
    butterflies<2>(x);
    butterflies<4>(x);
    butterflies<8>(x);
    float factor = 0.25f;
    if (size >= 32) {
        butterflies<16>(x);
        factor = 0.17677669f;  // 1 / sqrt(32) rounded to F32
    }
    if (size >= 64) {
#if !defined(BREAK_NO_EXCHANGE)
        butterflies_across<1>(x, lane);
#endif
        factor = 0.125f;
    }
    if (size == 128) {
        butterflies_across<2>(x, lane);
        factor = 0.088388346f;  // 1 / sqrt(128) rounded to F32
    }
#pragma unroll
    for (u32 i = 0; i < BLOCK; i++) x[i] *= factor;
}

// The block's E8M0 byte, from the bits of its largest magnitude (kernels/src/format/e8m0.rs).
DEVICE u32 scale_byte(u32 amax, u32 rule) {
    u32 exponent = (amax + (rule == EVEN ? 0x200000u : 0u)) >> 23;
    if (rule == CEIL) exponent += (amax & 0x7FFFFFu) > 0x400000u ? 1 : 0;
    u32 byte = exponent > 2 ? exponent - 2 : 0;
    return amax >= 0x7F800000u ? 255 : byte;
}

// 2^(byte - 127); 2^-127 is a subnormal.
DEVICE float scale_of(u32 byte) { return from_bits(byte == 0 ? 0x00400000u : byte << 23); }

// 2^(127 - byte), for bytes up to 254 (which rotated BF16 cannot reach, but the definition does).
DEVICE float reciprocal_of(u32 byte) { return from_bits(byte == 254 ? 0x00400000u : (254 - byte) << 23); }

// Stochastic rounding of a scaled value: up when the word's low 22 bits added to the dropped bits carry; below 1 the same after adding
// 1, where the grid is uniform (kernels/src/format/minifloat.rs).
DEVICE u32 encode_stochastic(float value, u32 word) {
    u32 bits = to_bits(value);
    u32 magnitude = bits & 0x7FFFFFFFu;
    u32 random = word & 0x3FFFFFu;
    bool small = magnitude < 0x3F800000u;
    u32 grid = small ? to_bits(from_bits(magnitude) + 1.0f) : magnitude;
    u32 code = ((grid + random) >> 22) - (small ? 0x3F800000u >> 22 : 126u << 1);
    code = magnitude >= 0x41400000u || code > 7 ? 7 : code;  // 12 and above, and what rounded past 6
    return code | (bits >> 31) << 3;
}

DEVICE void round_stochastic(const float (&x)[BLOCK], u32 byte, const Side &side, u64 index, u32 (&words)[4]) {
    float scale = reciprocal_of(byte);
    float prescale = side.rounding == STOCHASTIC_PRESCALED ? 0.75f : 1.0f;
    // What the upper half of the index adds is the same for all elements of a block.
    u32 base = (u32)(index >> 32) * SPREAD_HIGH + side.k0;
#pragma unroll
    for (u32 w = 0; w < 4; w++) {
        u32 word = 0;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 code = encode_stochastic(x[8 * w + i] * scale * prescale, random_word(((u32)index + 8 * w + i) * SPREAD_LOW + base, side.k1));
            word |= code << (4 * i);
            if (i % 4 == 3) __builtin_amdgcn_sched_barrier(0);  // more random words at once would not fit in the registers
        }
        words[w] = word;
    }
}

DEVICE void round_nearest(const float (&x)[BLOCK], u32 byte, u32 (&words)[4]) {
    float scale = scale_of(byte);
#pragma unroll
    for (u32 w = 0; w < 4; w++) {
        const float *v = &x[8 * w];
        u32 word = 0;
#if defined(BREAK_SWAPPED_NIBBLE)
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[1], v[0], scale, 0);
#else
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[0], v[1], scale, 0);
#endif
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[2], v[3], scale, 1);
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[4], v[5], scale, 2);
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v[6], v[7], scale, 3);
        words[w] = word;
    }
}

// Pattern of a block's largest magnitude; NaNs are larger than infinity.
DEVICE u32 largest_of(const float (&x)[BLOCK]) {
    u32 amax = 0;
#pragma unroll
    for (u32 i = 0; i < BLOCK; i++) {
        u32 magnitude = to_bits(x[i]) & 0x7FFFFFFFu;
        amax = magnitude > amax ? magnitude : amax;
    }
    return amax;
}

// Where the scale of `row` and `block` lies, in an operand with `blocks` of them a row. Swizzled: tiles of 32 rows by 8 blocks, a row of
// tiles after the other (the last tile of either is padded); in a tile, outermost first: block mod 4, row mod 16, the half of the
// eight blocks, the half of the 32 rows.
DEVICE u64 scale_place(u32 layout, u64 row, u32 block, u32 blocks) {
    if (layout == BY_ROWS) return row * blocks + block;
    u64 tile = row / 32 * ((blocks + 7) / 8) + block / 8;
    u32 inside = block % 4 * 64 + (u32)(row % 16) * 4 + block / 4 % 2 * 2 + (u32)(row / 16 % 2);
    return tile * 256 + inside;
}

// Rounds a rotated block of 32 and stores it. `row` and `block`: its place in an operand with `blocks` of them a row; its first element has
// index 32 * (row * blocks + block), because the contraction axis is a multiple of 32.
DEVICE void round_block(const float (&x)[BLOCK], u32 amax, const Side &side, u64 row, u32 block, u32 blocks) {
    u64 number = row * blocks + block;
    u32 byte = scale_byte(amax, side.rule);
    u32 words[4];
    if (side.rounding == NEAREST_EVEN) {
        round_nearest(x, byte, words);
    } else {
        round_stochastic(x, byte, side, number * BLOCK, words);
    }
    u32 keep = byte == 255 ? 0 : ~0u;  // a block that holds a NaN or an infinity has zero codes
    u32x4 codes = {words[0] & keep, words[1] & keep, words[2] & keep, words[3] & keep};
    *(u32x4 *)(side.codes + number * (BLOCK / 2)) = codes;
    side.scales[scale_place(side.layout, row, block, blocks)] = (u8)byte;
}

// The tile's elements go to LDS, 16 bytes a thread and turn; what lies outside the matrix is zero.
DEVICE void load_tile(const u16 *source, u32 rows, u32 k, u32 top, u32 left, u8 *lds) {
#pragma unroll
    for (u32 turn = 0; turn < TILE * TILE / 8 / THREADS; turn++) {
        u32 chunk = turn * THREADS + threadIdx.x;
        u32 row = chunk / (TILE / 8), column = chunk % (TILE / 8) * 8;
        u32x4 values = {0, 0, 0, 0};
        if (top + row < rows && left + column < k) values = *(const u32x4 *)(source + (u64)(top + row) * k + left + column);
        *(u32x4 *)(lds + lds_offset(row, column)) = values;
    }
}

// 32 neighbouring elements of a row of the tile.
DEVICE void read_row(const u8 *lds, u32 row, u32 column, float (&x)[BLOCK]) {
#pragma unroll
    for (u32 i = 0; i < BLOCK / 8; i++) {
        u32x4 packed = *(const u32x4 *)(lds + lds_offset(row, column + 8 * i));
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            x[8 * i + 2 * j] = from_bits(packed[j] << 16);
            x[8 * i + 2 * j + 1] = from_bits(packed[j] & 0xFFFF0000u);
        }
    }
}

// 32 neighbouring elements of a column of the tile. A 32-bit read brings two columns, of which one is taken.
DEVICE void read_column(const u8 *lds, u32 row, u32 column, float (&x)[BLOCK]) {
#pragma unroll
    for (u32 i = 0; i < BLOCK; i++) {
        u32 packed = *(const u32 *)(lds + lds_offset(row + i, column & ~1u));
        x[i] = from_bits(column & 1 ? packed & 0xFFFF0000u : packed << 16);
    }
}

// Rows: four threads share a row's four blocks, so that a row's codes are 64 bytes in a piece.
DEVICE void along_rows(const u8 *lds, u32 rows, u32 k, u32 top, u32 left, const Side &side) {
#pragma unroll 1
    for (u32 turn = 0; turn < 2; turn++) {
        u32 row = turn * (TILE / 2) + threadIdx.x / 4, column = threadIdx.x % 4 * BLOCK;
        if (top + row >= rows || left + column >= k) continue;
        float x[BLOCK];
        read_row(lds, row, column, x);
        rotate(x, side, threadIdx.x % 4);
        round_block(x, largest_of(x), side, top + row, (left + column) / BLOCK, k / BLOCK);
    }
}

// Columns: a thread takes two neighbouring columns, which one 32-bit read brings; four threads share a column's four blocks.
DEVICE void along_columns(const u8 *lds, u32 rows, u32 k, u32 top, u32 left, const Side &side) {
    u32 column = threadIdx.x / 4 * 2, row = threadIdx.x % 4 * BLOCK;
    if (top + row >= rows || left + column >= k) return;
#pragma unroll 1
    for (u32 odd = 0; odd < 2; odd++) {
        float x[BLOCK];
        read_column(lds, row, column + odd, x);
        rotate(x, side, threadIdx.x % 4);
        round_block(x, largest_of(x), side, left + column + odd, (top + row) / BLOCK, rows / BLOCK);
    }
}

// The largest magnitude of the square that this thread's block belongs to. `line` 0..63 is the thread's row of the operand among those of
// this turn, so that a square is 32 lines and one of four blocks: the lanes of 16 with the same block meet by DPP, the eight such
// groups in `room` (64 words that nothing else of this launch uses). Every thread of the workgroup comes here.
DEVICE u32 largest_of_square(u32 amax, u32 *room) {
    u32 other = (u32)__builtin_amdgcn_mov_dpp((int)amax, 0x124, 0xF, 0xF, true);  // row_ror:4
    amax = other > amax ? other : amax;
    other = (u32)__builtin_amdgcn_mov_dpp((int)amax, 0x128, 0xF, 0xF, true);  // row_ror:8
    amax = other > amax ? other : amax;
    u32 block = threadIdx.x % 4, group = threadIdx.x / 16;
    if (threadIdx.x % 16 < 4) room[block * 16 + group] = amax;
    wait_and_meet();
    u32 half = group & 8;
#if defined(BREAK_WRONG_SQUARE)
    half ^= 8;
#endif
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 one = room[block * 16 + half + i];
        amax = one > amax ? one : amax;
    }
    return amax;
}

// As along_rows and along_columns for either kind of block, all threads together.
template <bool COLUMNS> DEVICE void squares(const u8 *lds, u32 *room, u32 rows, u32 k, u32 top, u32 left, const Side &side) {
    u32 lines = COLUMNS ? k : rows, length = COLUMNS ? rows : k, first = COLUMNS ? left : top, start = COLUMNS ? top : left;
#pragma unroll 1
    for (u32 turn = 0; turn < 2; turn++) {
        u32 line = turn * (TILE / 2) + threadIdx.x / 4, at = threadIdx.x % 4 * BLOCK;
        float x[BLOCK];
        if (COLUMNS) {
            read_column(lds, at, line, x);
        } else {
            read_row(lds, line, at, x);
        }
        rotate(x, side, threadIdx.x % 4);
        u32 amax = largest_of(x);
        if (side.square) amax = largest_of_square(amax, room + 64 * turn);
        if (first + line < lines && start + at < length) round_block(x, amax, side, first + line, (start + at) / BLOCK, length / BLOCK);
    }
}

}  // namespace

// Grid: x over tiles of columns, y over tiles of rows; 256 threads.
KERNEL_OF(256, 4) mxfp4_quantise(const u16 *source, u32 rows, u32 k, Side row_side, Side column_side) {
    SHARED u8 lds[LDS_BYTES] __attribute__((aligned(16)));
    u32 top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    load_tile(source, rows, k, top, left, lds);
    wait_and_meet();
    if (row_side.codes) along_rows(lds, rows, k, top, left, row_side);
    if (column_side.codes) along_columns(lds, rows, k, top, left, column_side);
}

// As mxfp4_quantise, where a side (or both) has squares of 32 by 32: the same codes then serve both orientations, if neither is rotated.
KERNEL_OF(256, 4) mxfp4_quantise_square(const u16 *source, u32 rows, u32 k, Side row_side, Side column_side) {
    SHARED u8 lds[LDS_BYTES] __attribute__((aligned(16)));
    SHARED u32 room[4 * 64] __attribute__((aligned(16)));
    u32 top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    load_tile(source, rows, k, top, left, lds);
    wait_and_meet();
    if (row_side.codes) squares<false>(lds, room, rows, k, top, left, row_side);
    if (column_side.codes) squares<true>(lds, room + 128, rows, k, top, left, column_side);
}
