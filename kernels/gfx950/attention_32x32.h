// What the three kernels of attention_32x32.hip, which says how they work, are made of: products of fragments, tiles in LDS, rows in memory. Compiles
// for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim.
#pragma once

#include "prelude.h"

namespace {

constexpr u32 D = 128;             // elements of a head
constexpr u32 ROW_BYTES = 2 * D;   // of a row of a tile in LDS
constexpr u32 WAVES = 8;
constexpr u32 OWN = 32;            // rows of a wave
constexpr u32 ROWS = OWN * WAVES;  // and of a block
constexpr u32 LOAD_ROWS = 4;       // that a wave's load brings to LDS
constexpr u32 RING = 4;            // tiles that are in LDS
constexpr int STEPS = D / 16;      // matrix operations along a head
constexpr int SLICES = D / 32;     // results of 32 elements of a head

constexpr double ROOT = 11.3137084989847603904;  // of D
constexpr double LOG2_E = 1.44269504088896340736;
constexpr float SCALE = (float)(1.0 / ROOT);
constexpr float SCALE_LOG2 = (float)(LOG2_E / ROOT);
// How far, as a power of two, a score may lie above the one that the row's probabilities are taken in relation to: it moves when this is
// exceeded, which is seldom. Their sums stay far below F32's largest.
constexpr float HEADROOM = 8.0f;

typedef short i16x4 __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(3))) i16x4 LdsQuad;

DEVICE u32 min(u32 a, u32 b) { return a < b ? a : b; }
// v_exp_f32: results below the normal range are zero.
DEVICE float exp2_approx(float x) { return __builtin_amdgcn_exp2f(x); }

// In the order in which they are written: the compiler moves matrix operations freely otherwise.
DEVICE f32x16 multiply_add(bf16x8 a, bf16x8 b, f32x16 c) {
    f32x16 sum = __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, 0, 0, 0);
    asm volatile("" : "+v"(sum));
    return sum;
}
DEVICE void stay() { __builtin_amdgcn_sched_barrier(0); }

// Matrix operations on first operands that `read` brings from LDS: COUNT of them, each read AHEAD operations before its own, into the registers
// that an earlier one has left; the first AHEAD before all.
template <int COUNT, int AHEAD, typename READ> struct Fragments {
    READ read;
    bf16x8 held[AHEAD];

    METHOD explicit Fragments(READ how) : read(how) {}
    METHOD void read_first() {
        repeat<AHEAD>([&](auto i) INLINE {
            held[i.value] = read(i);
            stay();
        });
    }
    // The same, one behind each of the last operations on others, of which so many are left.
    template <int LEFT> METHOD void read_behind(Number<LEFT>) {
        if constexpr (LEFT < AHEAD) held[AHEAD - 1 - LEFT] = read(Number<AHEAD - 1 - LEFT>{});
    }
    // `next` is told how many are left.
    template <typename USE, typename NEXT> METHOD void multiply(USE use, NEXT next) {
        repeat<COUNT>([&](auto i) INLINE {
            constexpr int I = i.value;
            use(i, held[I % AHEAD]);
            if constexpr (I + AHEAD < COUNT) held[I % AHEAD] = read(Number<I + AHEAD>{});
            next(Number<COUNT - 1 - I>{});
            stay();
        });
    }
    template <typename USE> METHOD void multiply(USE use) {
        multiply(use, [](auto) INLINE {});
    }
};
template <int COUNT, int AHEAD, typename READ> DEVICE Fragments<COUNT, AHEAD, READ> fragments(READ read) { return Fragments<COUNT, AHEAD, READ>(read); }

// The phase of products begins and ends. Nothing moves into or out of it. Who multiplies issues first: it needs one slot in eight.
DEVICE void begin_products() {
    stay();
    meet();
    __builtin_amdgcn_s_setprio(1);
    stay();
}
DEVICE void end_products() {
    stay();
    __builtin_amdgcn_s_setprio(0);
    wait_and_meet();
    stay();
}

// ---- Tiles in LDS ----
// A row is 16 chunks of 16 bytes; chunk c of row r lies in slot c ^ turn(r). Lanes that are served together touch 64 different banks, along rows
// (16 rows at one chunk, whether these are consecutive lanes or those that were measured on gfx950) and transposed (4 chunks of 4 rows).
#if defined(BREAK_NO_SWIZZLE)
DEVICE u32 turn(u32) { return 0; }
#else
DEVICE u32 turn(u32 row) { return row % 4 * 4 + row / 4 % 4; }
#endif

// Where a thread is, and where it reads and writes in LDS.
struct Seat {
    u32 wave, lane;
    u32 block;  // the block's LDS

    static METHOD Seat of(u8 *memory) { return {(u32)__builtin_amdgcn_readfirstlane(threadIdx.x / 64), threadIdx.x % 64, (u32)(LdsPointer)memory}; }
    // The same, computed again: neither the lane nor what follows from it takes a register meanwhile.
    METHOD Seat again() const {
        u32 all = taken_by_wave(~0u);
        return {wave, __builtin_amdgcn_mbcnt_hi(all, __builtin_amdgcn_mbcnt_lo(all, 0)), block};
    }
    METHOD bool is_late() const { return wave >= WAVES / 2; }
    // The row of 32 that register i of a result stands for.
    METHOD u32 row(int i) const { return i / 4 * 8 + lane / 32 * 4 + i % 4; }
    // Where the wave's first load of a tile goes, and where the lane reads the first row_fragment and the first turned_fragment of all.
    METHOD u32 loads() const { return block + wave * LOAD_ROWS * ROW_BYTES; }
    METHOD u32 rows() const { return block + lane % 32 * ROW_BYTES + ((lane / 32) ^ turn(lane % 32)) * 16; }
    METHOD u32 turned() const {
        u32 row = lane / 32 * 4 + lane % 16 / 4, chunk = lane / 16 % 2 * 2 + lane % 4 / 2;
        return block + row * ROW_BYTES + (chunk ^ turn(row)) * 16 + lane % 2 * 8;
    }
};

// Rows of one head. Those beyond the sequence are loaded as zeros.
struct Rows {
    const u8 *base;
    u32 pitch;

    static METHOD Rows of(const u16 *from, u64 width) { return {(const u8 *)from, 2 * (u32)width}; }
    // Of the head that is so many bytes further.
    template <u32 TILE> METHOD void load(u32 first, u32 sequence, const Seat &seat, u32 stage, u32 further = 0) const {
        Buffer buffer = buffer_of(base + (u64)first * pitch + further, (min(TILE, sequence - first) - 1) * pitch + ROW_BYTES);
        const u32 row = LOAD_ROWS * seat.wave + seat.lane / 16, offset = row * pitch + ((seat.lane % 16) ^ turn(row)) * 16;
#pragma unroll
        for (u32 i = 0; i < TILE; i += LOAD_ROWS * WAVES)
            __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, (LdsPointer)(seat.loads() + stage + i * ROW_BYTES), 16, offset, i * pitch, 0, 0);
    }
};

// Rows 32 part + 0..31, elements 16 step + 0..15, as a first operand.
DEVICE bf16x8 row_fragment(u32 at, u32 part, u32 step) { return read_lds<bf16x8>((at ^ (32 * step)) + part * 32 * ROW_BYTES); }

// Through a restricted pointer: to the compiler any other transposed read may read what is being loaded to LDS, and it waits for that.
DEVICE i16x4 read_turned(LdsQuad *__restrict__ from) { return __builtin_amdgcn_ds_read_tr16_b64_v4i16(from); }

// Elements 32 slice + 0..31 of rows 32 part + 16 half + 0..15, as a first operand: in a lane 4 (l / 32) + 0..3 of these rows, then 8 + 4 (l / 32) + 0..3.
DEVICE bf16x8 turned_fragment(u32 at, u32 slice, u32 part, u32 half) {
    const auto read = [&](u32 eight) INLINE {
        return read_turned((LdsQuad *)((at ^ (64 * slice + 32 * eight)) + (32 * part + 16 * half + 8 * eight) * ROW_BYTES));
    };
    struct { i16x4 first, second; } both = {read(0), read(1)};
    return __builtin_bit_cast(bf16x8, both);
}

// result += rows of the tile times own rows.
DEVICE void multiply_rows(u32 at, u32 part, const bf16x8 (&own)[STEPS], f32x16 &result) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) result = multiply_add(row_fragment(at, part, step), own[step], result);
}

// A result of 32 rows, rounded to BF16 here and not later: second operands for rows 0..15 and 16..31.
struct Packed {
    bf16x8 half[2];
    static METHOD Packed of(const f32x16 &x) {
        Vector16 words[2];
#pragma unroll
        for (int i = 0; i < 16; i += 2) words[i / 8].word[i % 8 / 2] = bf16_pair(x[i], x[i + 1]);
        Packed packed = {{__builtin_bit_cast(bf16x8, words[0]), __builtin_bit_cast(bf16x8, words[1])}};
        asm volatile("" : "+v"(packed.half[0]), "+v"(packed.half[1]));
        return packed;
    }
};

// sums += the turned tile times factors.
DEVICE void multiply_turned(u32 at, u32 part, const Packed &factors, f32x16 (&sums)[SLICES]) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) sums[slice] = multiply_add(turned_fragment(at, slice, part, half), factors.half[half], sums[slice]);
}

// Elements i and i + 1 of scores become exp2(scaled, less a shift).
DEVICE f32x2 exponentials(f32x16 &s, int i, f32x2 shift) {
    f32x2 x = __builtin_elementwise_fma(f32x2{s[i], s[i + 1]}, f32x2{SCALE_LOG2, SCALE_LOG2}, -shift);
    x = f32x2{exp2_approx(x[0]), exp2_approx(x[1])};
    s[i] = x[0], s[i + 1] = x[1];
    return x;
}
// What the mask hides of 32 rows: those that a query does not see.
template <typename SEES> DEVICE void mask(f32x16 &s, const Seat &seat, SEES sees) {
#pragma unroll
    for (int i = 0; i < 16; i++) s[i] = sees(seat.row(i)) ? s[i] : -INFINITY_;
}

// The larger, and the sum, of the two lanes that share a row.
struct Pair { float low, high; };
DEVICE Pair halves(float x) {
    u32x2 both = __builtin_bit_cast(u32x2, __builtin_amdgcn_permlane32_swap(to_bits(x), to_bits(x), false, false));
    return {from_bits(both[0]), from_bits(both[1])};
}
DEVICE float row_maximum(float x) {
    Pair both = halves(x);
    return fmaxf(both.low, both.high);
}
DEVICE float row_total(float x) {
    Pair both = halves(x);
    return both.low + both.high;
}

// ---- In memory ----

struct Shape {
    u32 sequence, heads, kv_heads;
    u32 entry;  // of the batch, this block's
    METHOD u32 group() const { return heads / kv_heads; }
    METHOD u64 width() const { return (u64)(heads + 2 * kv_heads) * D; }
    METHOD u64 out_width() const { return (u64)heads * D; }
    // Element 0 of a head in row 0 of the batch entry; key heads follow query heads, value heads key heads.
    METHOD u64 head(u32 number) const { return (u64)entry * sequence * width() + (u64)number * D; }
    METHOD u64 out_head(u32 number) const { return (u64)entry * sequence * out_width() + (u64)number * D; }
    METHOD u64 statistics(u32 number) const { return ((u64)entry * heads + number) * sequence; }
};

// A block's first row, its head, and its batch entry. Of all heads of all entries the blocks with most to do come first; and blocks of one die, which are
// eight apart (AMD, "CDNA 3 Architecture": round-robin), share keys and values where eight is a multiple of these heads.
struct Turn {
    u32 first, head, entry;
    static METHOD u32 blocks(const Shape &shape) { return (shape.sequence + ROWS - 1) / ROWS; }
    // The block's number from the one with most to do on, and its head among those of the grid.
    static METHOD Turn of(const Shape &shape, u32 heads) {
        u32 at = (blockIdx.z * heads + blockIdx.y) * blocks(shape) + blockIdx.x, of_a_block = heads * gridDim.z, rest = at % of_a_block;
        return {at / of_a_block, rest % heads, rest / heads};
    }
    // Of queries, the last of which see most keys.
    static METHOD Turn of_queries(const Shape &shape) {
        Turn at = of(shape, shape.heads);
        return {(blocks(shape) - 1 - at.first) * ROWS, at.head % shape.kv_heads * shape.group() + at.head / shape.kv_heads, at.entry};
    }
    static METHOD Turn of_keys(const Shape &shape) {
        Turn at = of(shape, shape.kv_heads);
        return {at.first * ROWS, at.head, at.entry};
    }
};

// The keys and values that a block of queries sees, in tiles of a ring.
template <u32 ROWS_OF_A_TILE> struct Seen {
    static constexpr u32 TILE = ROWS_OF_A_TILE, BYTES = TILE * ROW_BYTES, STAGE = 2 * BYTES;
    Rows keys, values;
    u32 sequence;
    u32 end;  // of what some query of the block sees
    u32 own;  // end of what some query of the wave sees

    static METHOD Seen of(const u16 *qkv, const Shape &shape, const Turn &turn, const Seat &seat) {
        u32 kv_head = turn.head / shape.group(), first = turn.first + OWN * seat.wave;
        return {Rows::of(qkv + shape.head(shape.heads + kv_head), shape.width()),
                Rows::of(qkv + shape.head(shape.heads + shape.kv_heads + kv_head), shape.width()), shape.sequence,
                min(turn.first + ROWS, shape.sequence), first < shape.sequence ? min(first + OWN, shape.sequence) : 0};
    }
    static METHOD u32 stage(u32 tile) { return tile / TILE % RING * STAGE; }
    METHOD void load(u32 tile, const Seat &seat) const {
        if (tile >= end) return;
        keys.load<TILE>(tile, sequence, seat, stage(tile));
        values.load<TILE>(tile, sequence, seat, stage(tile) + BYTES);
    }
    // What is left for waves whose queries see no more: to load and to meet.
    METHOD void finish(u32 tile, const Seat &seat) const {
#pragma unroll 1
        for (; tile < end; tile += TILE) {
            load(tile + 2 * TILE, seat);
            begin_products();
            end_products();
        }
        if (!seat.is_late()) meet();
    }
};

// The wave's own rows, the lane's being `row`: second operands of the products along a row.
DEVICE void load_own(const u16 *row, bool exists, u32 lane, bf16x8 (&own)[STEPS]) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        Vector16 loaded = {{0, 0, 0, 0}};
        if (exists) loaded = *(const Vector16 *)(row + 16 * s + 8 * (lane / 32));
        own[s] = __builtin_bit_cast(bf16x8, loaded);
    }
}

// The lane's row of a result, times a factor, as BF16, if it exists. Of 16 elements a lane has two times four, its neighbour 32 lanes away the
// others: after an exchange, for which both must be there, the first one stores the first eight, the other one the rest.
DEVICE void store_own(u16 *row, bool exists, const f32x16 (&sums)[SLICES], u32 lane, float factor) {
    Vector16 whole[2 * SLICES];
#pragma unroll
    for (int i = 0; i < 2 * SLICES; i++) {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const auto pair = [&](int at) INLINE { return bf16_pair(sums[i / 2][at] * factor, sums[i / 2][at + 1] * factor); };
            auto both = __builtin_amdgcn_permlane32_swap(pair(i % 2 * 8 + j), pair(i % 2 * 8 + j + 4), false, false);
            whole[i].word[j / 2] = both[0], whole[i].word[2 + j / 2] = both[1];
        }
    }
    if (!exists) return;
#pragma unroll
    for (int i = 0; i < 2 * SLICES; i++) *(Vector16 *)(row + 16 * i + lane / 32 * 8) = whole[i];
}

}  // namespace
