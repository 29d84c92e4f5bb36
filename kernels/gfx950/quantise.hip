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
// One block of 256 threads takes a tile of 128 by 128 through LDS; each thread makes two blocks of 32 in each direction, of rows before the waves
// meet and of columns after. Of a matrix with few tiles it takes 64 rows: a unit has twice as many workgroups, so that one loads while another
// computes. The four blocks of a row (or column) of the tile are those of four neighbouring lanes, which speak to each other only
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
constexpr u32 lds_bytes(u32 height) { return height * PITCH + (height / BLOCK - 1) * GROUP_SHIFT; }

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

// A block of 32 in 16 pairs of registers: element i beside element i + 16. Butterflies of distance 1 to 8 are then the same in both halves, two
// in one instruction (v_pk_add_f32), and no element has to move.
struct Block {
    f32x2 pair[BLOCK / 2];

    METHOD float element(u32 i) const { return i < BLOCK / 2 ? pair[i].x : pair[i - BLOCK / 2].y; }
};

template <int DISTANCE> DEVICE void butterflies(Block &x) {
#pragma unroll
    for (int n = 0; n < (int)BLOCK / 4; n++) {
        int low = (n / DISTANCE) * 2 * DISTANCE + n % DISTANCE;
        f32x2 a = x.pair[low], b = x.pair[low + DISTANCE];
        x.pair[low] = a + b;
        x.pair[low + DISTANCE] = a - b;
    }
}

// Those of distance 16, between the halves of each pair.
DEVICE void butterflies_of_16(Block &x) {
#pragma unroll
    for (u32 i = 0; i < BLOCK / 2; i++) {
        float a = x.pair[i].x, b = x.pair[i].y;
        x.pair[i] = f32x2{a + b, a - b};
    }
}

// Butterflies between lanes whose blocks are 32 (lanes 1 apart) or 64 elements (2 apart) away. The upper lane takes other - x: the product
// with -1 is exact, so that the sum is rounded once.
template <int LANES> DEVICE void butterflies_across(Block &x, u32 lane) {
#if defined(BREAK_NO_EXCHANGE)
    constexpr int EXCHANGED = 0xE4;
#else
    constexpr int EXCHANGED = LANES == 1 ? 0xB1 : 0x4E;  // quad_perm [1, 0, 3, 2] and [2, 3, 0, 1]
#endif
    float sign = (lane & LANES) ? -1.0f : 1.0f;
    auto exchanged = [=](float mine) { return from_bits((u32)__builtin_amdgcn_mov_dpp((int)to_bits(mine), EXCHANGED, 0xF, 0xF, true)); };
#pragma unroll
    for (u32 i = 0; i < BLOCK / 2; i++) {
        f32x2 mine = x.pair[i], other = {exchanged(mine.x), exchanged(mine.y)};
        x.pair[i] = __builtin_elementwise_fma(mine, f32x2{sign, sign}, other);
        asm volatile("" : "+v"(x.pair[i]));  // one after the other: all at once they would not fit in the registers
    }
}

// H (signs * x) on each `size` elements, in the reference's order of additions, and its factor of 1 / sqrt(size) where that is no power of
// two. Where it is one, 2^-n, n is returned: dividing is exact even among denormals, because BF16 and so every sum is a multiple of 2^-133, and
// `scale_byte` and the rounding take n into the block's exponent. `lane` is the block's number among the four that neighbouring lanes
// hold: all lanes of a rotation are here, because it divides the contraction axis.
DEVICE u32 rotate(Block &x, const Side &side, u32 lane) {
    u32 size = side.rotation;
    if (size == 0) return 0;
    if (side.signs[0] | side.signs[1] | side.signs[2] | side.signs[3]) {
        u32 low = lane & 1 ? side.signs[1] : side.signs[0], high = lane & 1 ? side.signs[3] : side.signs[2];
        u32 signs = lane & 2 ? high : low;
        asm volatile("" : "+v"(signs));  // or the 32 masks below are made once, before the loop, and held in as many registers
        auto flipped = [&](float value, u32 i) { return from_bits(to_bits(value) ^ ((signs << (31 - i)) & 0x80000000u)); };
#pragma unroll
        for (u32 i = 0; i < BLOCK / 2; i++) x.pair[i] = f32x2{flipped(x.pair[i].x, i), flipped(x.pair[i].y, i + BLOCK / 2)};
    }
    butterflies<1>(x);
    butterflies<2>(x);
    butterflies<4>(x);
    butterflies<8>(x);
    if (size == 16) return 2;
    butterflies_of_16(x);
    if (size >= 64) butterflies_across<1>(x, lane);
    if (size == 64) return 3;
    float factor = 0.17677669f;  // 1 / sqrt(32) rounded to F32
    if (size == 128) {
        butterflies_across<2>(x, lane);
        factor = 0.088388346f;  // 1 / sqrt(128) rounded to F32
    }
#pragma unroll
    for (u32 i = 0; i < BLOCK / 2; i++) x.pair[i] *= factor;
    return 0;
}

// The E8M0 byte of a block whose largest magnitude, times 2^halvings, has these bits (kernels/src/format/e8m0.rs). A quotient that would be a
// denormal has byte 0 either way.
DEVICE u32 scale_byte(u32 amax, u32 rule, u32 halvings) {
    u32 exponent = (amax + (rule == EVEN ? 0x200000u : 0u)) >> 23;
    if (rule == CEIL) exponent += (amax & 0x7FFFFFu) > 0x400000u ? 1 : 0;
    u32 byte = __builtin_elementwise_sub_sat(exponent, 2 + halvings);
    return amax >= 0x7F800000u ? 255 : byte;
}

// 2^(exponent - 127); 2^-127 is a subnormal.
DEVICE float scale_of(u32 exponent) { return from_bits(exponent == 0 ? 0x00400000u : exponent << 23); }

// 2^(127 - exponent), for exponents up to 254 (which BF16 cannot reach, but the definition does).
DEVICE float reciprocal_of(u32 exponent) { return from_bits(exponent == 254 ? 0x00400000u : (254 - exponent) << 23); }

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

DEVICE void round_stochastic(const Block &x, u32 exponent, const Side &side, u64 index, u32 (&words)[4]) {
    float scale = reciprocal_of(exponent);
    float prescale = side.rounding == STOCHASTIC_PRESCALED ? 0.75f : 1.0f;
    // What the upper half of the index adds is the same for all elements of a block.
    u32 base = (u32)(index >> 32) * SPREAD_HIGH + side.k0;
#pragma unroll
    for (u32 w = 0; w < 4; w++) {
        u32 word = 0;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 code = encode_stochastic(x.element(8 * w + i) * scale * prescale, random_word(((u32)index + 8 * w + i) * SPREAD_LOW + base, side.k1));
            word |= code << (4 * i);
            if (i % 4 == 3) __builtin_amdgcn_sched_barrier(0);  // more random words at once would not fit in the registers
        }
        words[w] = word;
    }
}

DEVICE void round_nearest(const Block &x, u32 exponent, u32 (&words)[4]) {
    float scale = scale_of(exponent);
#pragma unroll
    for (u32 w = 0; w < 4; w++) {
        auto v = [&](u32 i) { return x.element(8 * w + i); };
        u32 word = 0;
#if defined(BREAK_SWAPPED_NIBBLE)
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v(1), v(0), scale, 0);
#else
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v(0), v(1), scale, 0);
#endif
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v(2), v(3), scale, 1);
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v(4), v(5), scale, 2);
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, v(6), v(7), scale, 3);
        words[w] = word;
    }
}

// Pattern of a block's largest magnitude, two elements an instruction (v_maximum3_f32, which keeps a NaN); NaNs are larger than infinity.
DEVICE u32 largest_of(const Block &x) {
    float amax = 0.0f;
#pragma unroll
    for (u32 i = 0; i < BLOCK / 2; i++) {
        f32x2 magnitude = __builtin_elementwise_abs(x.pair[i]);
        amax = __builtin_elementwise_maximum(__builtin_elementwise_maximum(magnitude.x, magnitude.y), amax);
    }
    return to_bits(amax) & 0x7FFFFFFFu;
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

// Rounds a rotated block of 32, over 2^halvings, and stores it. `row` and `block`: its place in an operand with `blocks` of them a row; its first element has
// index 32 * (row * blocks + block), because the contraction axis is a multiple of 32.
DEVICE void round_block(const Block &x, u32 amax, u32 halvings, const Side &side, u64 row, u32 block, u32 blocks) {
    u64 number = row * blocks + block;
    u32 byte = scale_byte(amax, side.rule, halvings);
    u32 words[4];
    if (side.rounding == NEAREST_EVEN) {
        round_nearest(x, byte + halvings, words);
    } else {
        round_stochastic(x, byte + halvings, side, number * BLOCK, words);
    }
    u32 keep = byte == 255 ? 0 : ~0u;  // a block that holds a NaN or an infinity has zero codes
    u32x4 codes = {words[0] & keep, words[1] & keep, words[2] & keep, words[3] & keep};
    *(u32x4 *)(side.codes + number * (BLOCK / 2)) = codes;
    side.scales[scale_place(side.layout, row, block, blocks)] = (u8)byte;
}

// The tile's elements go to LDS, 16 bytes a thread and turn; what lies outside the matrix is zero. All loads are under way before the first is
// waited for. A wave loads the rows that it makes blocks of in `along_rows`. 2^23 columns at most: offsets in a tile take 31 bits, and what has
// one more is outside every buffer.
template <u32 HEIGHT> DEVICE void load_tile(const u16 *source, u32 rows, u32 k, u32 top, u32 left, u8 *lds) {
    constexpr u32 TURNS = HEIGHT * TILE / 8 / THREADS, STEP = WAVE / (TILE / 8);
    u32 row = threadIdx.x / WAVE * (HEIGHT / 4) + threadIdx.x % WAVE / (TILE / 8), column = threadIdx.x % (TILE / 8) * 8;
    u32 there = rows - top < HEIGHT ? rows - top : HEIGHT;
    Buffer buffer = buffer_of(source + ((u64)top * k + left), (there * k - left) * 2);
    u32 offset = (row * k + column) * 2 | (left + column < k ? 0 : 0x80000000u);
    u32x4 values[TURNS];
#pragma unroll
    for (u32 turn = 0; turn < TURNS; turn++) values[turn] = __builtin_amdgcn_raw_buffer_load_b128(buffer, offset + turn * STEP * 2 * k, 0, 0);
    u8 *to = lds + lds_offset(row, column);
#pragma unroll
    for (u32 turn = 0; turn < TURNS; turn++) *(u32x4 *)(to + turn * STEP * PITCH) = values[turn];
}

// 32 neighbouring elements of a row of the tile.
DEVICE Block read_row(const u8 *line) {
    Block x;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32x4 low = *(const u32x4 *)(line + 16 * i), high = *(const u32x4 *)(line + 16 * i + BLOCK);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            x.pair[8 * i + 2 * j] = f32x2{from_bits(low[j] << 16), from_bits(high[j] << 16)};
            x.pair[8 * i + 2 * j + 1] = f32x2{from_bits(low[j] & 0xFFFF0000u), from_bits(high[j] & 0xFFFF0000u)};
        }
    }
    return x;
}

// 32 neighbouring elements of a column of the tile. A 32-bit read brings two columns, of which one is taken: `half` is what `half_of` said.
DEVICE Block read_column(const u8 *line, u32 half) {
    Block x;
#pragma unroll
    for (u32 i = 0; i < BLOCK / 2; i++) {
        u32 low = *(const u32 *)(line + i * PITCH), high = *(const u32 *)(line + (i + BLOCK / 2) * PITCH);
        x.pair[i] = f32x2{from_bits(__builtin_amdgcn_perm(low, low, half)), from_bits(__builtin_amdgcn_perm(high, high, half))};
    }
    return x;
}

// Which bytes v_perm_b32 makes an F32 of (12: zero), for the second or the first of two columns.
DEVICE u32 half_of(bool odd) { return odd ? 0x03020C0Cu : 0x01000C0Cu; }

// Rows: four threads share a row's four blocks, so that a row's codes are 64 bytes in a piece. A wave reads what it wrote itself, and need not
// meet the others before.
template <u32 HEIGHT> DEVICE void along_rows(const u8 *lds, u32 rows, u32 k, u32 top, u32 left, const Side &side) {
#pragma unroll 1
    for (u32 turn = 0; turn < HEIGHT / 64; turn++) {
        u32 first = threadIdx.x / WAVE * (HEIGHT / 4) + threadIdx.x % WAVE / 4, column = threadIdx.x % 4 * BLOCK;
        u32 row = first + turn * (BLOCK / 2);
        if (top + row >= rows || left + column >= k) continue;
        Block x = read_row(lds + lds_offset(first, column) + turn * (BLOCK / 2) * PITCH);
        u32 halvings = rotate(x, side, threadIdx.x % 4);
        round_block(x, largest_of(x), halvings, side, top + row, (left + column) / BLOCK, k / BLOCK);
    }
}

// Columns: four threads share a column's four blocks, and take two neighbouring columns, which one 32-bit read brings. In the lower tile two threads
// share a column's two blocks, and take one. A rotation of 128 does not fit into that.
template <u32 HEIGHT> DEVICE void along_columns(const u8 *lds, u32 rows, u32 k, u32 top, u32 left, const Side &side) {
    constexpr u32 BLOCKS = HEIGHT / BLOCK, EACH = BLOCKS / 2;
    u32 column = threadIdx.x / BLOCKS * EACH, row = threadIdx.x % BLOCKS * BLOCK;
    if (top + row >= rows || left + column >= k) return;
#pragma unroll 1
    for (u32 odd = 0; odd < EACH; odd++) {
        Block x = read_column(lds + lds_offset(row, column & ~1u), half_of((column + odd) & 1));
        u32 halvings = rotate(x, side, threadIdx.x % BLOCKS);
        round_block(x, largest_of(x), halvings, side, left + column + odd, (top + row) / BLOCK, rows / BLOCK);
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
        Block x = COLUMNS ? read_column(lds + lds_offset(at, line & ~1u), half_of(line & 1)) : read_row(lds + lds_offset(line, at));
        u32 halvings = rotate(x, side, threadIdx.x % 4);
        u32 amax = largest_of(x);
        if (side.square) amax = largest_of_square(amax, room + 64 * turn);
        if (first + line < lines && start + at < length) round_block(x, amax, halvings, side, first + line, (start + at) / BLOCK, length / BLOCK);
    }
}

template <u32 HEIGHT> DEVICE void quantise(const u16 *source, u32 rows, u32 k, const Side &row_side, const Side &column_side, u8 *lds) {
    u32 top = blockIdx.y * HEIGHT, left = blockIdx.x * TILE;
    load_tile<HEIGHT>(source, rows, k, top, left, lds);
    wait_for_loads();
    if (row_side.codes) along_rows<HEIGHT>(lds, rows, k, top, left, row_side);
    meet();
    if (column_side.codes) along_columns<HEIGHT>(lds, rows, k, top, left, column_side);
}

}  // namespace

// Grid: x over tiles of columns, y over tiles of rows; 256 threads.
KERNEL_OF(256, 4) mxfp4_quantise(const u16 *source, u32 rows, u32 k, Side row_side, Side column_side) {
    SHARED u8 lds[lds_bytes(TILE)] __attribute__((aligned(16)));
    quantise<TILE>(source, rows, k, row_side, column_side, lds);
}

// The lower tile, for few tiles: five blocks fit on a unit. Rotations along columns have at most 64 elements.
KERNEL_OF(256, 5) mxfp4_quantise_64x128(const u16 *source, u32 rows, u32 k, Side row_side, Side column_side) {
    SHARED u8 lds[lds_bytes(TILE / 2)] __attribute__((aligned(16)));
    quantise<TILE / 2>(source, rows, k, row_side, column_side, lds);
}

// As mxfp4_quantise, where a side (or both) has squares of 32 by 32: the same codes then serve both orientations, if neither is rotated.
KERNEL_OF(256, 4) mxfp4_quantise_square(const u16 *source, u32 rows, u32 k, Side row_side, Side column_side) {
    SHARED u8 lds[lds_bytes(TILE)] __attribute__((aligned(16)));
    SHARED u32 room[4 * 64] __attribute__((aligned(16)));
    u32 top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    load_tile<TILE>(source, rows, k, top, left, lds);
    wait_and_meet();
    if (row_side.codes) squares<false>(lds, room, rows, k, top, left, row_side);
    if (column_side.codes) squares<true>(lds, room + 128, rows, k, top, left, column_side);
}
