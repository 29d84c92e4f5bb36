// From BF16 to GEMM operands: rotation, shared scale, rounding, in one read. Bit for bit kernels/src/quantise.
//
// source: [rows, columns] BF16, row-major. The row operand contracts along the columns and is written [rows, columns]; the column
// operand contracts along the rows and is written transposed, [columns, rows]. Either or both, each with its own specification:
// -DROWS=Spec<...> or -DROWS=None, -DCOLUMNS likewise. Blocks of 32 are written as BF16 values, which hold a decoded MX value exactly
// (few significant bits, a power of two); tensor-scaled FP8 is written as codes. Nothing here multiplies matrices.
//
// One workgroup takes a square tile. A fragment is eight consecutive elements along the contraction axis in one thread; the fragments
// of a block or of a rotation lie in neighbouring lanes, so butterflies and maxima beyond eight elements are shuffles. The column
// operand reads the tile from shared memory, two columns a thread, with a pitch that meets every bank once.
//
// -DSOURCE=STORED, NORMED or GATED: the source itself, or what it is made from, in registers and to the bits that norm.cu and
// elementwise.cu store. NORMED: `source` is RMSNorm's input, with `inverse_rms` [rows] and `gain` [columns]. GATED: gate and up, [rows, 2
// columns]. Columns are multiples of 8 there.
//
// -DDRAW=PAIR or LOW16: defects of a stream of random words, made on purpose (kernels/src/random.rs); absent: each element has its own word.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: quantise 80
// registers: quantise_square 48
#include "activations.h"
#include "formats.h"

#define STORED 0
#define NORMED 1
#define GATED 2
#ifndef SOURCE
#define SOURCE STORED
#endif

#define OWN 0
#define PAIR 1
#define LOW16 2
#ifndef DRAW
#define DRAW OWN
#endif

template <int FORMAT_, int ROUNDING_, int RULE_, int ROTATION_, bool TENSOR_> struct Spec {
    static constexpr int format = FORMAT_, rounding = ROUNDING_, rule = RULE_, rotation = ROTATION_;
    static constexpr bool tensor = TENSOR_, present = true;
};
struct None {
    static constexpr int format = BF16, rounding = 0, rule = 0, rotation = 0;
    static constexpr bool tensor = false, present = false;
};

// What the host says of one operand.
struct Side {
    void* out;          // BF16 or FP8; null: only the largest magnitude is wanted
    u32* amax;          // where the largest magnitude's pattern is collected, or null
    const float* scale; // F32 scale of a tensor-scaled format
    u32 k0, k1;         // stream of random words
    u32 signs[4];       // bit i set: element i of a rotation is negated
};

constexpr int LARGEST = ROWS::rotation > COLUMNS::rotation ? ROWS::rotation : COLUMNS::rotation;
constexpr int TILE = LARGEST > 64 ? 128 : 64;
constexpr int PITCH = TILE / 2 + 1;
constexpr int THREADS = 256;
constexpr int FRAGMENTS = TILE * TILE / 8 / THREADS;

// Lanes that hold one block and one rotation together.
template <typename S> struct Span {
    static constexpr int lanes = (S::rotation > 32 ? S::rotation : 32) / 8;
};

template <int size> struct Root {
    static constexpr float inverse = size == 16 ? 0.25f : size == 32 ? 0.17677669529663687f : size == 64 ? 0.125f : 0.08838834764831843f;
};

// Signs, butterflies of distance 1, 2, 4, ..., then the factor. `place`: number of the fragment in its span.
template <typename S> DEVICE void rotate(float (&x)[8], int place, const Side& side) {
    if (S::rotation == 0) return;
    constexpr int lanes = S::rotation == 0 ? 1 : S::rotation / 8;
    int within = place % lanes;
    // Values are selected: an indexed parameter would be copied to local memory, and one of four addresses would be read.
    u32 first = side.signs[0], second = side.signs[1], third = side.signs[2], fourth = side.signs[3];
    u32 word = within < 4 ? first : within < 8 ? second : within < 12 ? third : fourth;
    if (word != 0) {
        u32 flips = word >> (8 * (within % 4));
#pragma unroll
        for (int j = 0; j < 8; ++j) x[j] = from_bits(to_bits(x[j]) ^ ((flips >> j) << 31));
    }
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            if (j & distance) continue;
            float a = x[j], b = x[j + distance];
            x[j] = a + b;
            x[j + distance] = a - b;
        }
    }
#pragma unroll
    for (int mask = 1; mask < lanes; mask *= 2) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            float other = shuffle_xor(x[j], mask);
            // other - x or other + x, rounded once.
            x[j] = fmaf(x[j], (within & mask) ? -1.0f : 1.0f, other);
        }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] *= Root<S::rotation>::inverse;
}

DEVICE u32 largest_pattern(const float (&x)[8]) {
    float largest = x[0];
#pragma unroll
    for (int j = 1; j < 8; ++j) largest = larger_magnitude(largest, x[j]);
    return to_bits(largest);
}

// The largest pattern of the four lanes that hold a block.
DEVICE u32 block_largest(u32 largest) {
    largest = max(largest, shuffle_xor(largest, 1));
    return max(largest, shuffle_xor(largest, 2));
}

// Eight random words from number `index` on. Eight neighbours share the upper half of the index, unless the lower half runs over.
DEVICE void random8(u32 (&words)[8], const Side& side, u64 index) {
#if DRAW == PAIR
    for (int j = 0; j < 8; ++j) {
        u64 even = (index + j) & ~1ull;
        words[j] = random_word((u32)even * SPREAD_LOW + (u32)(even >> 32) * SPREAD_HIGH + side.k0, side.k1);
    }
    return;
#endif
    u32 low = (u32)index, high = (u32)(index >> 32);
    u32 first = low * SPREAD_LOW + high * SPREAD_HIGH + side.k0;
    if (low <= 0xFFFFFFF8u) {
#pragma unroll
        for (int j = 0; j < 8; ++j) words[j] = random_word(first + j * SPREAD_LOW, side.k1);
    } else {
        for (int j = 0; j < 8; ++j) words[j] = random_word(first + j * SPREAD_LOW + (low + j < low ? SPREAD_HIGH : 0u), side.k1);
    }
#if DRAW == LOW16
#pragma unroll
    for (int j = 0; j < 8; ++j) words[j] &= 0xFFFFu;
#endif
}

// Rounds eight values on the grid of their block's format; `block`: the pattern of the block's largest magnitude. For any scale.
template <typename S> DEVICE void round_block_of_any_scale(float (&x)[8], u32 block, const u32 (&words)[8]) {
    constexpr int format = S::format == BF16 ? E2M1 : S::format;
    u32 byte = scale_byte<format, S::rule>(block);
    float reciprocal = e8m0_reciprocal(byte), scale = e8m0_decode(byte);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        float y = x[j] * reciprocal;
        if (S::rounding == STOCHASTIC_PRESCALED) y *= 0.75f;
        if (format == E2M1) {
            float magnitude = fabsf(y);
            float rounded = S::rounding == NEAREST_EVEN ? round_e2m1_nearest(magnitude) : round_e2m1_stochastic(magnitude, words[j]);
            x[j] = copysignf(rounded, y) * scale;
        } else {
            x[j] = round_to_format<format, S::rounding>(y, words[j]) * scale;
        }
    }
}

// The same in fewer instructions for the scales that tensors have.
template <typename S> DEVICE void round_block(float (&x)[8], u32 block, const u32 (&words)[8]) {
    u32 exponent = scale_exponent<S::rule>(block);
    if (S::format != E2M1 || !MOVABLE(exponent)) {
        round_block_of_any_scale<S>(x, block, words);
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        float y = S::rounding == STOCHASTIC_PRESCALED ? x[j] * 0.75f : x[j];
        x[j] = S::rounding == NEAREST_EVEN ? round_e2m1_nearest_on<S::rule>(y, exponent) : round_e2m1_stochastic_on(y, exponent, words[j]);
    }
}

// Eight values that are BF16 already.
DEVICE Vector16 packed_exactly(const float (&x)[8]) {
    Vector16 values;
#pragma unroll
    for (int i = 0; i < 4; ++i) values.word[i] = bf16_pair_exact(x[2 * i], x[2 * i + 1]);
    return values;
}

// Stores the first `count` of eight BF16 values.
DEVICE void write_values(const Vector16& values, void* out, u64 at, int count, bool aligned) {
    u16* to = (u16*)out + at;
    if (count == 8 && aligned) {
        *(Vector16*)to = values;
    } else {
        for (int j = 0; j < 8; ++j)
            if (j < count) to[j] = (u16)(values.word[j / 2] >> (16 * (j % 2)));
    }
}

// Rounds eight values to tensor-scaled FP8 and stores the first `count` codes. `largest`: the largest magnitude's pattern.
template <typename S> DEVICE void write_fp8(const float (&x)[8], u32 largest, float scale, const u32 (&words)[8], void* out, u64 at, int count, bool aligned) {
    constexpr int format = S::format == E5M2 ? E5M2 : E4M3;
    u32 pairs[4];
    bool finite = from_bits(largest) * scale < from_bits(0x7F800000u);
    if (HAS_FP8_CONVERSION && S::rounding == NEAREST_EVEN && finite) {
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[i] = fp8_pair<format>(x[2 * i] * scale, x[2 * i + 1] * scale);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 low = code_of<format>(round_to_format<format, S::rounding>(x[2 * i] * scale, words[2 * i]));
            u32 high = code_of<format>(round_to_format<format, S::rounding>(x[2 * i + 1] * scale, words[2 * i + 1]));
            pairs[i] = low | high << 8;
        }
    }
    u8* to = (u8*)out + at;
    if (count == 8 && aligned) {
        Vector8 packed = {{pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16}};
        *(Vector8*)to = packed;
    } else {
        for (int j = 0; j < 8; ++j)
            if (j < count) to[j] = (u8)(pairs[j / 2] >> (8 * (j % 2)));
    }
}

// Rounds a fragment and stores it at element `at`, of which `count` elements exist. `largest`: pattern of its largest magnitude, `block`:
// of its block's.
template <typename S>
DEVICE void finish(float (&x)[8], u32 largest, u32 block, float tensor_scale, const Side& side, u64 at, int count, bool aligned) {
    u32 words[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (S::rounding != NEAREST_EVEN) random8(words, side, at);
    if (S::tensor) {
        write_fp8<S>(x, largest, tensor_scale, words, side.out, at, count, aligned);
        return;
    }
    if (S::format == BF16) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            bool finite = (to_bits(x[j]) & 0x7F800000u) != 0x7F800000u;
            u32 bits = S::rounding == NEAREST_EVEN || !finite ? bf16_encode(x[j]) << 16 : (to_bits(x[j]) + (words[j] & 0xFFFFu)) & 0xFFFF0000u;
            x[j] = from_bits(bits);
        }
    } else {
        round_block<S>(x, block, words);
    }
    write_values(packed_exactly(x), side.out, at, count, aligned);
}

// Whether fragments stay BF16 from end to end, two values a word: blocks of E2M1 to nearest, not rotated.
template <typename S> struct Paired {
    static constexpr bool yes = PAIRS && S::present && !S::tensor && S::format == E2M1 && S::rounding == NEAREST_EVEN && S::rotation == 0;
};

// The patterns of the largest magnitudes in the lower and the upper halves of some words, as halves of a word.
template <int count> DEVICE u32 largest_halves(const u32 (&words)[count]) {
    u32 largest = 0;
#pragma unroll
    for (int i = 0; i < count; ++i) largest = max_halves(largest, words[i] & 0x7FFF7FFFu);
    return largest;
}

// Eight BF16 values of one block, in order, rounded one at a time: the few blocks that pairs cannot take.
template <typename S> DEVICE void round_singly(Vector16& values, u32 block) {
    float x[8];
    u32 words[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    unpack8(values, x);
    round_block_of_any_scale<S>(x, block, words);
    values = packed_exactly(x);
}

// Where a BF16 has the exponent fields of the scales of two blocks, from the halves with their largest magnitudes; both are movable.
template <int RULE> DEVICE u32 scale_exponents(u32 halves) {
    constexpr u32 carry = RULE == EVEN ? 0x00200020u : RULE == CEIL ? 0x003F003Fu : 0u;
    return ((halves + carry) & 0x7F807F80u) - 0x01000100u;
}

// A fragment along the source's columns, paired: `values` in order. Its place, and what is returned, as in `fragment`.
template <typename S> DEVICE u32 row_pairs(Vector16 values, const Side& side, u64 row, int k, int length, bool exists) {
    u32 halves = largest_halves(values.word);
    u32 block = block_largest(max(halves << 16, halves & 0xFFFF0000u));
    if (!exists || side.out == nullptr) return exists ? block : 0u;
    u32 exponent = scale_exponent<S::rule>(block);
    if (MOVABLE(exponent)) {
        u32 exponents = exponent | exponent >> 16, sixes = exponents + 0x01400140u;
#pragma unroll
        for (int i = 0; i < 4; ++i) values.word[i] = round_e2m1_pair(values.word[i], exponents, sixes);
    } else {
        round_singly<S>(values, block);
    }
    write_values(values, side.out, row * (u64)length + (u64)k, min(8, length - k), length % 8 == 0);
    return block;
}

// Two fragments along the source's rows, paired: each of eight words holds one row of two neighbouring columns, the operand's rows `row`
// and, if `second`, `row` + 1.
template <typename S> DEVICE u32 column_pairs(u32 (&words)[8], const Side& side, u64 row, int k, int length, bool exists, bool second) {
    u32 halves = largest_halves(words);
    halves = max_halves(halves, shuffle_xor(halves, 1));
    halves = max_halves(halves, shuffle_xor(halves, 2));
    u32 blocks[2] = {halves << 16, halves & 0xFFFF0000u};
    if (!exists || side.out == nullptr) return exists ? max(blocks[0], blocks[1]) : 0u;
    bool movable = MOVABLE(scale_exponent<S::rule>(blocks[0])) && MOVABLE(scale_exponent<S::rule>(blocks[1]));
    if (movable) {
        u32 exponents = scale_exponents<S::rule>(halves), sixes = exponents + 0x01400140u;
#pragma unroll
        for (int j = 0; j < 8; ++j) words[j] = round_e2m1_pair(words[j], exponents, sixes);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
        if (c == 1 && !second) break;
        Vector16 values;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 one = words[2 * i], next = words[2 * i + 1];
            values.word[i] = c == 0 ? bf16_pair_exact(from_bits(one << 16), from_bits(next << 16)) : bf16_pair_exact(from_bits(one), from_bits(next));
        }
        if (!movable) round_singly<S>(values, blocks[c]);
        write_values(values, side.out, (row + c) * (u64)length + (u64)k, min(8, length - k), length % 8 == 0);
    }
    return max(blocks[0], blocks[1]);
}

// One fragment from BF16 values to its place. `row` and `k`: its logical place in an operand of `length` elements a row. `halves`: the
// largest magnitude of the values where pairs give it, in the upper half.
template <typename S>
DEVICE u32 fragment(float (&x)[8], u32 halves, int place, const Side& side, float tensor_scale, u64 row, int k, int length, bool exists) {
    rotate<S>(x, place, side);
    u32 largest = PAIRS && S::rotation == 0 ? halves & 0xFFFF0000u : largest_pattern(x);
    u32 block = S::tensor || S::format == BF16 ? 0u : block_largest(largest);
    if (exists && side.out != nullptr) {
        u64 at = row * (u64)length + (u64)k;
        finish<S>(x, largest, block, tensor_scale, side, at, min(8, length - k), length % 8 == 0);
    }
    return exists ? largest : 0u;
}

// The workgroup's largest magnitudes join the tensors'. `room` is shared by the workgroup: an entry a wave for either operand. A maximum
// does not depend on the order in which it is taken; looking first keeps thousands of workgroups from queueing at one address.
DEVICE void collect(const u32 (&largest)[2], u32* const (&amax)[2], u32 (&room)[2][THREADS / WAVE]) {
    if (amax[0] == nullptr && amax[1] == nullptr) return;
    int wave = threadIdx.x / WAVE, lane = threadIdx.x % WAVE;
#pragma unroll
    for (int which = 0; which < 2; ++which) {
        u32 of_wave = wave_max(largest[which]);
        if (lane == 0) room[which][wave] = of_wave;
    }
    BARRIER();
    // Either operand has a wave of its own.
    if (wave > 1) return;
    u32 all = wave_max(lane < THREADS / WAVE ? room[wave][lane] : 0u);
    u32* to = wave == 0 ? amax[0] : amax[1];
    if (lane == 0 && to != nullptr && all > fresh(to)) atomicMax(to, all);
}

// Eight neighbours of a row of the source, with zeros where it ends.
DEVICE Vector16 load8(const u16* source, const float* inverse_rms, const float* gain, int rows, int columns, int row, int column) {
    Vector16 loaded = {{0, 0, 0, 0}};
    if (row >= rows || column >= columns) return loaded;
    if (SOURCE == NORMED) {
        float x[8], g[8], r = inverse_rms[row];
        unpack8(*(const Vector16*)(source + (u64)row * columns + column), x);
#pragma unroll
        for (int j = 0; j < 8; ++j) g[j] = gain[column + j];
        normalise8(x, r, g);
        return pack8(x);
    }
    if (SOURCE == GATED) {
        const u16* at = source + (u64)row * 2 * columns + column;
        float gate[8], up[8];
        unpack8(*(const Vector16*)at, gate);
        unpack8(*(const Vector16*)(at + columns), up);
        swiglu8(gate, up);
        return pack8(up);
    }
    const u16* at = source + (u64)row * columns + column;
    if (columns % 8 == 0) {
        loaded = *(const Vector16*)at;
        return loaded;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j)
        if (column + j < columns) loaded.word[j / 2] |= (u32)at[j] << (16 * (j % 2));
    return loaded;
}

KERNEL(256) quantise(const u16* source, int rows, int columns, Side row_side, Side column_side, const float* inverse_rms, const float* gain) {
    SHARED u32 tile[COLUMNS::present ? TILE * PITCH : 1];
    SHARED u32 room[2][THREADS / WAVE];
    int top = blockIdx.y * TILE, left = blockIdx.x * TILE, thread = threadIdx.x;
    float row_scale = ROWS::tensor && row_side.scale ? *row_side.scale : 1.0f;
    float column_scale = COLUMNS::tensor && column_side.scale ? *column_side.scale : 1.0f;
    u32 largest[2] = {0, 0};
    Vector16 loaded[FRAGMENTS];
#pragma unroll
    for (int i = 0; i < FRAGMENTS; ++i) {
        int number = i * THREADS + thread, row = number / (TILE / 8), place = number % (TILE / 8);
        loaded[i] = load8(source, inverse_rms, gain, rows, columns, top + row, left + 8 * place);
    }
#pragma unroll
    for (int i = 0; i < FRAGMENTS; ++i) {
        int number = i * THREADS + thread, row = number / (TILE / 8), place = number % (TILE / 8);
        if (COLUMNS::present) {
#pragma unroll
            for (int w = 0; w < 4; ++w) tile[row * PITCH + 4 * place + w] = loaded[i].word[w];
        }
        bool exists = top + row < rows && left + 8 * place < columns;
        if (Paired<ROWS>::yes) {
            largest[0] = max(largest[0], row_pairs<ROWS>(loaded[i], row_side, top + row, left + 8 * place, columns, exists));
        } else if (ROWS::present) {
            float x[8];
            unpack8(loaded[i], x);
            u32 halves = largest_halves(loaded[i].word);
            u32 own = fragment<ROWS>(x, max(halves, halves << 16), place, row_side, row_scale, top + row, left + 8 * place, columns, exists);
            largest[0] = max(largest[0], own);
        }
    }
    if (COLUMNS::present) {
        BARRIER();
        constexpr int lanes = Span<COLUMNS>::lanes, pairs = WAVE / lanes;
        int lane = thread % WAVE, place = lane % lanes;
        // A wave takes one span of rows and `pairs` pairs of columns at a time.
#pragma unroll
        for (int i = 0; i < FRAGMENTS / 2; ++i) {
            int number = (i * THREADS + thread) / WAVE;
            int span = number % (TILE / (8 * lanes)), pair = number / (TILE / (8 * lanes)) * pairs + lane / lanes;
            int row = 8 * (span * lanes + place);
            u32 both[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) both[j] = tile[(row + j) * PITCH + pair];
            int column = left + 2 * pair;
            bool inside = top + row < rows;
            if (Paired<COLUMNS>::yes) {
                u32 own = column_pairs<COLUMNS>(both, column_side, column, top + row, rows, inside && column < columns, column + 1 < columns);
                largest[1] = max(largest[1], own);
                continue;
            }
            float x[8], y[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                x[j] = bf16_low(both[j]);
                y[j] = bf16_high(both[j]);
            }
            u32 halves = largest_halves(both);
            u32 own = fragment<COLUMNS>(x, halves << 16, place, column_side, column_scale, column, top + row, rows, inside && column < columns);
            largest[1] = max(largest[1], own);
            own = fragment<COLUMNS>(y, halves, place, column_side, column_scale, column + 1, top + row, rows, inside && column + 1 < columns);
            largest[1] = max(largest[1], own);
        }
    }
    collect(largest, {ROWS::present ? row_side.amax : nullptr, COLUMNS::present ? column_side.amax : nullptr}, room);
}

// Squares of 32 rows by 32 elements share a scale. One workgroup takes 32 rows of one span; `transposed`: the operand's rows are the
// source's columns. Weights only: small, so element-wise reads will do.
constexpr int SQUARE_LANES = Span<ROWS>::lanes;
KERNEL(32 * SQUARE_LANES) quantise_square(const u16* source, int rows, int length, int transposed, Side side) {
    SHARED u32 square[SQUARE_LANES / 4];
    int thread = threadIdx.x, place = thread % SQUARE_LANES;
    int row = blockIdx.y * 32 + thread / SQUARE_LANES, k = blockIdx.x * 8 * SQUARE_LANES + 8 * place;
    float x[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        bool inside = row < rows && k + j < length;
        u64 at = transposed ? (u64)(k + j) * rows + row : (u64)row * length + k + j;
        x[j] = inside ? bf16_decode(source[at]) : 0.0f;
    }
    if (thread < SQUARE_LANES / 4) square[thread] = 0;
    BARRIER();
    rotate<ROWS>(x, place, side);
    u32 largest = largest_pattern(x);
    atomicMax(&square[place / 4], largest);
    BARRIER();
    if (row < rows && k < length) {
        u64 at = (u64)row * length + k;
        finish<ROWS>(x, largest, square[place / 4], 1.0f, side, at, min(8, length - k), length % 8 == 0);
    }
}
