// Causal attention with grouped key and value heads of 128 elements: attention.cu's kernels, names, arguments and layouts (said there), on gfx950's
// v_mfma_f32_32x32x16_bf16, with loads that go straight to LDS and transposed reads from there. Other head sizes are attention.hip's.
#include "prelude.h"

namespace {

constexpr int D = 128;               // elements of a head
constexpr u32 ROW_BYTES = 2 * D;     // of a row of a tile in LDS
constexpr u32 WAVES = 8;
constexpr u32 OWN = 32;              // rows of a wave
constexpr u32 ROWS = OWN * WAVES;    // and of a block
constexpr u32 TURN = WAVES / 2;      // waves that are in one phase
constexpr u32 RING = 4;              // tiles of each kind in LDS
constexpr int STEPS = D / 16;        // matrix operations along a head
constexpr int SLICES = D / 32;       // results of 32 elements of a head
constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float HEADROOM = 8.0f;
constexpr float SCALE = 0.08838834764831845f;  // 1 / sqrt(128)
constexpr float SCALE_LOG2 = (float)(1.44269504088896340736 * 0.08838834764831844055);

typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef short i16x4 __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(3))) void *LdsPointer;

DEVICE float exp2_approx(float x) { return __builtin_amdgcn_exp2f(x); }
DEVICE f32x16 multiply_add(bf16x8 a, bf16x8 b, f32x16 c) {
    f32x16 sum = __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, 0, 0, 0);
    asm volatile("" : "+v"(sum));
    return sum;
}

#define INLINE __attribute__((always_inline))
DEVICE u32 min(u32 a, u32 b) { return a < b ? a : b; }
template <typename T> DEVICE T read_lds(u32 at) { return *(const __attribute__((address_space(3))) T *)at; }

// A value that is computed here and not where the compiler would have it, which would keep it in a register all the way.
DEVICE u32 taken(u32 value) {
    asm volatile("" : "+v"(value));
    return value;
}

DEVICE u32 taken_by_wave(u32 value) {
    asm volatile("" : "+s"(value));
    return value;
}

template <int I> struct Number {
    static constexpr int value = I;
};
template <typename T, T... I> struct Numbers {
    template <typename F> static METHOD void each(F f) { (f(Number<I>{}), ...); }
};
template <int N, typename F> DEVICE void repeat(F f) { __make_integer_seq<Numbers, int, N>::each(f); }

// COUNT matrix operations, each behind the reads of a later one's operands.
template <int COUNT, int AHEAD, typename READ, typename USE> DEVICE void pipelined(READ read, USE use) {
    bf16x8 held[AHEAD];
    repeat<AHEAD>([&](auto i) INLINE {
        held[decltype(i)::value] = read(i);
        __builtin_amdgcn_sched_barrier(0);
    });
    repeat<COUNT>([&](auto i) INLINE {
        constexpr int I = decltype(i)::value;
        use(i, held[I % AHEAD]);
        if constexpr (I + AHEAD < COUNT) held[I % AHEAD] = read(Number<I + AHEAD>{});
        __builtin_amdgcn_sched_barrier(0);
    });
}

// ---- Tiles in LDS ----
// Row r of a tile is 16 chunks of 16 bytes; chunk c lies in slot c ^ turn(r).
DEVICE u32 turn(u32 row) { return row % 4 * 4 + row / 4 % 4; }

// Where a thread is, and where it reads and writes in LDS.
struct Seat {
    u32 wave, lane;
    u32 block;   // the block's LDS
    u32 lds;     // where the wave's first load of a tile goes
    u32 rows;    // where the lane reads row_fragment 0, 0
    u32 turned;  // and turned_fragment 0, 0, 0

    static METHOD Seat of(u8 *memory) {
        u32 lane = threadIdx.x % 64, wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64), block = (u32)(LdsPointer)memory;
        u32 row = lane / 32 * 4 + lane % 16 / 4, chunk = lane / 16 % 2 * 2 + lane % 4 / 2;
        return {wave, lane, block, block + wave * 1024, block + lane % 32 * ROW_BYTES + ((lane / 32) ^ turn(lane % 32)) * 16,
                block + row * ROW_BYTES + (chunk ^ turn(row)) * 16 + lane % 2 * 8};
    }
    // The row of a tile that register i of a result stands for.
    METHOD u32 row(int part, int i) const { return 32 * part + i / 4 * 8 + lane / 32 * 4 + i % 4; }
};

// One operand's rows, and this lane's part in loading them.
struct Rows {
    const u8 *base;
    u32 pitch, lane_offset;

    static METHOD Rows of(const u16 *from, u64 width, const Seat &seat) {
        u32 pitch = 2 * (u32)width, row = 4 * seat.wave + seat.lane / 16;
        return {(const u8 *)from, pitch, row * pitch + ((seat.lane % 16) ^ turn(row)) * 16};
    }
    template <u32 TILE> METHOD void load(u32 first, u32 sequence, u32 at, u32 further = 0) const {
        Buffer buffer = buffer_of(base + (u64)first * pitch + further, (min(TILE, sequence - first) - 1) * pitch + ROW_BYTES);
#pragma unroll
        for (u32 i = 0; i < TILE / (4 * WAVES); i++)
            __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, (LdsPointer)(at + i * WAVES * 1024), 16, lane_offset, i * 4 * WAVES * pitch, 0, 0);
    }
};

// Rows 32 part + 0..31, elements 16 step + 0..15, as a first operand.
DEVICE bf16x8 row_fragment(u32 at, int part, int step) { return read_lds<bf16x8>((at ^ (u32)(32 * step)) + part * 32 * ROW_BYTES); }

typedef __attribute__((address_space(3))) i16x4 LdsQuad;
// Through a restricted pointer: to the compiler any other transposed read may read what is being loaded to LDS, and it waits for that.
DEVICE i16x4 read_turned(LdsQuad *__restrict__ from) { return __builtin_amdgcn_ds_read_tr16_b64_v4i16(from); }

// Elements 32 slice + 0..31 of rows 32 part + 16 half + 0..15, as a first operand.
DEVICE bf16x8 turned_fragment(u32 at, int slice, int part, int half) {
    struct { i16x4 low, high; } both;
#pragma unroll
    for (u32 e = 0; e < 2; e++) (e ? both.high : both.low) = read_turned((LdsQuad *)((at ^ (64 * slice + 32 * e)) + (32 * part + 16 * half + 8 * e) * ROW_BYTES));
    return __builtin_bit_cast(bf16x8, both);
}

// result += rows of the tile times own rows.
DEVICE void multiply_rows(u32 at, int part, const bf16x8 (&own)[STEPS], f32x16 &result) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) result = multiply_add(row_fragment(at, part, step), own[step], result);
}

// A result of 32 rows, rounded to BF16: second operands for rows 0..15 and 16..31.
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
DEVICE void multiply_turned(u32 at, int part, const Packed &factors, f32x16 (&sums)[SLICES]) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) sums[slice] = multiply_add(turned_fragment(at, slice, part, half), factors.half[half], sums[slice]);
}

// exp2(scores i and i + 1, scaled, less a shift), and left in their seat.
DEVICE f32x2 probabilities(f32x16 &s, int i, f32x2 shift) {
    f32x2 x = __builtin_elementwise_fma(f32x2{s[i], s[i + 1]}, f32x2{SCALE_LOG2, SCALE_LOG2}, -shift);
    s[i] = exp2_approx(x[0]), s[i + 1] = exp2_approx(x[1]);
    return f32x2{s[i], s[i + 1]};
}

// Ends a phase and begins another one. Nothing moves from one to the other. Whoever multiplies issues first: it needs one slot in eight.
DEVICE void begin_products() {
    __builtin_amdgcn_sched_barrier(0);
    meet();
    __builtin_amdgcn_s_setprio(1);
    __builtin_amdgcn_sched_barrier(0);
}
DEVICE void end_products() {
    __builtin_amdgcn_sched_barrier(0);
    __builtin_amdgcn_s_setprio(0);
    wait_and_meet();
    __builtin_amdgcn_sched_barrier(0);
}

// The larger, and the sum, of the two lanes that share a row.
struct Pair { float low, high; };
DEVICE Pair halves(float x) {
    u32x2 both = __builtin_bit_cast(u32x2, __builtin_amdgcn_permlane32_swap(to_bits(x), to_bits(x), false, false));
    return {from_bits(both[0]), from_bits(both[1])};
}
DEVICE float row_maximum(float x) { Pair both = halves(x); return fmaxf(both.low, both.high); }
DEVICE float row_total(float x) { Pair both = halves(x); return both.low + both.high; }

struct Shape {
    u32 sequence, heads, kv_heads;
    METHOD u64 width() const { return (u64)(heads + 2 * kv_heads) * D; }
    METHOD u64 out_width() const { return (u64)heads * D; }
    METHOD u64 head(u32 number) const { return (u64)blockIdx.z * sequence * width() + (u64)number * D; }
    METHOD u64 out_head(u32 number) const { return (u64)blockIdx.z * sequence * out_width() + (u64)number * D; }
    METHOD u64 statistics(u32 number) const { return ((u64)blockIdx.z * heads + number) * sequence; }
    METHOD u32 kv_of(u32 number) const { return number / (heads / kv_heads); }
};

// Which rows a block has, and whose. The blocks with most to do come first, those of all heads; and blocks of the same die, which are
// eight apart, share keys and values where there are eight heads of these.
struct Turn {
    u32 first, head;
    // Of blocks of queries, the last of which sees most keys.
    static METHOD Turn of_queries(const Shape &shape) {
        u32 blocks = (shape.sequence + ROWS - 1) / ROWS, number = blockIdx.y * blocks + blockIdx.x, of_all = number % shape.heads;
        return {(blocks - 1 - number / shape.heads) * ROWS, of_all % shape.kv_heads * (shape.heads / shape.kv_heads) + of_all / shape.kv_heads};
    }
    static METHOD Turn of_keys(const Shape &shape) {
        u32 blocks = (shape.sequence + ROWS - 1) / ROWS, number = blockIdx.y * blocks + blockIdx.x;
        return {number / shape.kv_heads * ROWS, number % shape.kv_heads};
    }
};

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

extern "C" __attribute__((constant, used)) const int attention_launch[9] = {ROWS, 64 * WAVES, 0, ROWS, 64 * WAVES, 0, ROWS, 64 * WAVES, 0};

KERNEL_OF(512, 2) attention_forward(const u16 *qkv, u16 *out, float *logsumexp, u32 sequence, u32 heads, u32 kv_heads) {
    constexpr u32 TILE = 64, PARTS = TILE / 32, BYTES = TILE * ROW_BYTES, STAGE = 2 * BYTES;
    SHARED u8 lds[RING * STAGE] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_queries(shape);
    const u32 head = turn.head, first = turn.first, own = first + OWN * seat.wave, query = own + seat.lane % 32;
    const Rows keys = Rows::of(qkv + shape.head(heads + shape.kv_of(head)), shape.width(), seat);
    const Rows values = Rows::of(qkv + shape.head(heads + kv_heads + shape.kv_of(head)), shape.width(), seat);
    // Keys that some query of the block, and of the wave, sees.
    const u32 end = min(first + ROWS, sequence), seen = own < sequence ? min(own + OWN, sequence) : 0;
    const auto load = [&](u32 tile) INLINE {
        if (tile >= end) return;
        const u32 at = seat.lds + tile / TILE % RING * STAGE;
        keys.load<TILE>(tile, sequence, at);
        values.load<TILE>(tile, sequence, at + BYTES);
    };
    load(0);
    load(TILE);
    bf16x8 queries[STEPS];
    load_own(qkv + shape.head(head) + (u64)min(query, sequence - 1) * shape.width(), query < sequence, seat.lane, queries);
    f32x16 sums[SLICES] = {}, s[PARTS] = {};
    float reference = -INFINITY_, total = 0.0f;
    wait_and_meet();
#pragma unroll
    for (u32 part = 0; part < PARTS; part++) multiply_rows(seat.rows, part, queries, s[part]);
    if (seat.wave >= TURN) meet();
    u32 tile = 0;
    Packed p[PARTS];
    const auto probabilities_of = [&]() INLINE {
        float largest = s[0][0];
#pragma unroll
        for (u32 part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < 16; i++) largest = fmaxf(largest, s[part][i]);
        largest = row_maximum(largest);
        if (__builtin_amdgcn_ballot_w64(largest * SCALE_LOG2 > reference * SCALE_LOG2 + HEADROOM)) {
            largest = fmaxf(reference, largest);
            const float kept = exp2_approx((reference - largest) * SCALE_LOG2);
            reference = largest;
            total *= kept;
#pragma unroll
            for (int slice = 0; slice < SLICES; slice++) sums[slice] *= kept;
        }
        f32x2 added = {0.0f, 0.0f};
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
#pragma unroll
            for (int i = 0; i < 16; i += 2) added += probabilities(s[part], i, reference * SCALE_LOG2);
            p[part] = Packed::of(s[part]);
        }
        total += added[0] + added[1];
    };
#pragma unroll 1
    for (; tile + TILE < seen; tile += TILE) {
        load(tile + 2 * TILE);
        probabilities_of();
        begin_products();
        const u32 now = tile / TILE % RING * STAGE, next = (tile / TILE + 1) % RING * STAGE;
        s[0] = f32x16{}, s[1] = f32x16{};
        pipelined<32, 6>(
            [&](auto i) INLINE {
                constexpr int I = decltype(i)::value, J = I - 16;
                if constexpr (I < 16) return row_fragment(seat.rows + next, I % 2, I / 2);
                else return turned_fragment(seat.turned + now + BYTES, J % 4, J / 8, J / 4 % 2);
            },
            [&](auto i, bf16x8 of) INLINE {
                constexpr int I = decltype(i)::value, J = I - 16;
                if constexpr (I < 16) s[I % 2] = multiply_add(of, queries[I / 2], s[I % 2]);
                else sums[J % 4] = multiply_add(of, p[J / 8].half[J / 4 % 2], sums[J % 4]);
            });
        end_products();
    }
    if (tile < seen) {
        load(tile + 2 * TILE);
#pragma unroll
        for (u32 part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < 16; i++) s[part][i] = tile + seat.row(part, i) <= query ? s[part][i] : -INFINITY_;
        probabilities_of();
        begin_products();
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) multiply_turned(seat.turned + tile / TILE % RING * STAGE + BYTES, part, p[part], sums);
        end_products();
        tile += TILE;
    }
#pragma unroll 1
    for (; tile < end; tile += TILE) {
        load(tile + 2 * TILE);
        begin_products();
        end_products();
    }
    if (seat.wave < TURN) meet();
    total = row_total(total);
    const bool exists = query < sequence;
    store_own(out + shape.out_head(head) + (u64)query * shape.out_width(), exists, sums, seat.lane, 1.0f / total);
    if (exists && seat.lane < 32) logsumexp[shape.statistics(head) + query] = fmaf(reference, SCALE, logf(total));
}

KERNEL_OF(512, 2) attention_backward_q(const u16 *qkv, const u16 *out, const u16 *d_out, const float *logsumexp, float *delta, u16 *d_qkv, u32 sequence, u32 heads, u32 kv_heads) {
    constexpr u32 TILE = 32, BYTES = TILE * ROW_BYTES, STAGE = 2 * BYTES;
    SHARED u8 lds[RING * STAGE] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_queries(shape);
    const u32 head = turn.head, first = turn.first, own = first + OWN * seat.wave, query = own + seat.lane % 32;
    const bool exists = query < sequence;
    const u64 row = exists ? query : 0, out_at = shape.out_head(head) + row * shape.out_width(), statistic = shape.statistics(head) + row;
    const Rows keys = Rows::of(qkv + shape.head(heads + shape.kv_of(head)), shape.width(), seat);
    const Rows values = Rows::of(qkv + shape.head(heads + kv_heads + shape.kv_of(head)), shape.width(), seat);
    const u32 end = min(first + ROWS, sequence), seen = own < sequence ? min(own + OWN, sequence) : 0;
    const auto load = [&](u32 tile) INLINE {
        if (tile >= end) return;
        const u32 at = seat.lds + tile / TILE % RING * STAGE;
        keys.load<TILE>(tile, sequence, at);
        values.load<TILE>(tile, sequence, at + BYTES);
    };
    load(0);
    load(TILE);
    bf16x8 queries[STEPS], d_outs[STEPS];
    load_own(qkv + shape.head(head) + row * shape.width(), exists, seat.lane, queries);
    load_own(d_out + out_at, exists, seat.lane, d_outs);
    float own_delta = 0.0f;
    {
        bf16x8 outs[STEPS];
        load_own(out + out_at, exists, seat.lane, outs);
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            float x[8], y[8];
            unpack8(__builtin_bit_cast(Vector16, outs[s]), x);
            unpack8(__builtin_bit_cast(Vector16, d_outs[s]), y);
#pragma unroll
            for (int j = 0; j < 8; j++) own_delta = fmaf(x[j], y[j], own_delta);
        }
        own_delta = row_total(own_delta);
    }
    if (exists && seat.lane < 32) delta[statistic] = own_delta;
    const float logarithm = exists ? logsumexp[statistic] * LOG2_E : 0.0f;
    f32x16 sums[SLICES] = {}, p = {}, d = {};
    wait_and_meet();
    multiply_rows(seat.rows, 0, queries, p);
    multiply_rows(seat.rows + BYTES, 0, d_outs, d);
    if (seat.wave >= TURN) meet();
    Packed of_scores;
    const auto gradients_of = [&]() INLINE {
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            f32x2 x = probabilities(p, i, logarithm) * (f32x2{d[i], d[i + 1]} - own_delta);
            d[i] = x[0], d[i + 1] = x[1];
        }
        of_scores = Packed::of(d);
    };
    u32 tile = 0;
#pragma unroll 1
    for (; tile + TILE < seen; tile += TILE) {
        load(tile + 2 * TILE);
        gradients_of();
        begin_products();
        const u32 now = tile / TILE % RING * STAGE, next = (tile / TILE + 1) % RING * STAGE;
        p = f32x16{}, d = f32x16{};
        pipelined<24, 6>(
            [&](auto i) INLINE {
                constexpr int I = decltype(i)::value, J = I - 16;
                if constexpr (I < 16) return row_fragment(seat.rows + next + I % 2 * BYTES, 0, I / 2);
                else return turned_fragment(seat.turned + now, J % 4, 0, J / 4);
            },
            [&](auto i, bf16x8 of) INLINE {
                constexpr int I = decltype(i)::value, J = I - 16;
                if constexpr (I >= 16) sums[J % 4] = multiply_add(of, of_scores.half[J / 4], sums[J % 4]);
                else if constexpr (I % 2) d = multiply_add(of, d_outs[I / 2], d);
                else p = multiply_add(of, queries[I / 2], p);
            });
        end_products();
    }
    if (tile < seen) {
        load(tile + 2 * TILE);
#pragma unroll
        for (int i = 0; i < 16; i++) p[i] = tile + seat.row(0, i) <= query ? p[i] : -INFINITY_;
        gradients_of();
        begin_products();
        multiply_turned(seat.turned + tile / TILE % RING * STAGE, 0, of_scores, sums);
        end_products();
        tile += TILE;
    }
#pragma unroll 1
    for (; tile < end; tile += TILE) {
        load(tile + 2 * TILE);
        begin_products();
        end_products();
    }
    if (seat.wave < TURN) meet();
    store_own(d_qkv + shape.head(head) + row * shape.width(), exists, sums, seat.lane, SCALE);
}

KERNEL_OF(512, 2) attention_backward_kv(const u16 *qkv, const u16 *d_out, const float *logsumexp, const float *delta, u16 *d_qkv, u32 sequence, u32 heads, u32 kv_heads) {
    // Behind the ring: logarithms and deltas of its tiles, 64 of each.
    constexpr u32 TILE = 32, BYTES = TILE * ROW_BYTES, STAGE = 2 * BYTES, STATISTICS = RING * STAGE;
    SHARED u8 lds[STATISTICS + RING * 512] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_keys(shape);
    const u32 kv_head = turn.head, first = turn.first, own = first + OWN * seat.wave, key = own + seat.lane % 32, group = heads / kv_heads;
    const Rows queries = Rows::of(qkv + shape.head(kv_head * group), shape.width(), seat);
    const Rows d_outs = Rows::of(d_out + shape.out_head(kv_head * group), shape.out_width(), seat);
    // Tiles of one head after the other's; which one is loaded next, and of which head.
    const u32 tiles_of_a_head = (sequence - first + TILE - 1) / TILE, tiles = tiles_of_a_head * group;
    u32 loaded = 0, loaded_head = 0, loaded_tile = first;
    const auto load = [&]() INLINE {
        if (loaded == tiles) return;
        const u32 stage = loaded % RING;
        const u64 statistics = shape.statistics(kv_head * group + loaded_head) + loaded_tile;
        queries.load<TILE>(loaded_tile, sequence, seat.lds + stage * STAGE, loaded_head * ROW_BYTES);
        d_outs.load<TILE>(loaded_tile, sequence, seat.lds + stage * STAGE + BYTES, loaded_head * ROW_BYTES);
        if (seat.wave < 2) {
            Buffer buffer = buffer_of((seat.wave ? delta : logsumexp) + statistics, 4 * min(64u, sequence - loaded_tile));
            __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, (LdsPointer)(seat.block + STATISTICS + stage * 512 + seat.wave * 256), 4, 4 * seat.lane, 0, 0, 0);
        }
        loaded++, loaded_tile += TILE;
        if (loaded_tile >= sequence) loaded_tile = first, loaded_head++;
    };
    load();
    load();
    bf16x8 keys[STEPS], values[STEPS];
    const u16 *const own_row = qkv + shape.head(heads + kv_head) + (u64)min(key, sequence - 1) * shape.width();
    load_own(own_row, key < sequence, seat.lane, keys);
    load_own(own_row + (u64)kv_heads * D, key < sequence, seat.lane, values);
    f32x16 d_keys[SLICES] = {}, d_values[SLICES] = {}, p = {}, d = {};
    wait_and_meet();
    multiply_rows(seat.rows, 0, keys, p);
    multiply_rows(seat.rows + BYTES, 0, values, d);
    if (seat.wave >= TURN) meet();
    u32 number = 0, tile = first;
    Packed of_p, of_d;
    const auto gradients_of = [&]() INLINE {
        if (tile < own + OWN - 1) {
#pragma unroll
            for (int i = 0; i < 16; i++) p[i] = key <= tile + seat.row(0, i) ? p[i] : -INFINITY_;
        }
        const u32 statistics = seat.block + STATISTICS + number % RING * 512 + seat.lane / 32 * 16;
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            const f32x4 logarithms = read_lds<f32x4>(statistics + 8 * i) * LOG2_E, deltas = read_lds<f32x4>(statistics + 256 + 8 * i);
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                f32x2 x = probabilities(p, i + j, f32x2{logarithms[j], logarithms[j + 1]}) * (f32x2{d[i + j], d[i + j + 1]} - f32x2{deltas[j], deltas[j + 1]});
                d[i + j] = x[0], d[i + j + 1] = x[1];
            }
        }
        of_p = Packed::of(p), of_d = Packed::of(d);
    };
    const auto accumulate = [&]() INLINE {
        const u32 turned = taken(seat.turned) + number % RING * STAGE;
        multiply_turned(turned + BYTES, 0, of_p, d_values);
        multiply_turned(turned, 0, of_d, d_keys);
    };
#pragma unroll 1
    for (; number + 1 < tiles; number++) {
        load();
        gradients_of();
        begin_products();
        const u32 turned = taken(seat.turned) + number % RING * STAGE, rows = taken(seat.rows) + (number + 1) % RING * STAGE;
        p = f32x16{}, d = f32x16{};
        pipelined<32, 4>(
            [&](auto i) INLINE {
                constexpr int I = decltype(i)::value, J = I - 16;
                if constexpr (I < 16) return turned_fragment(turned + (1 - I / 8) * BYTES, I % 4, 0, I / 4 % 2);
                else return row_fragment(rows + J % 2 * BYTES, 0, J / 2);
            },
            [&](auto i, bf16x8 of) INLINE {
                constexpr int I = decltype(i)::value, J = I - 16;
                if constexpr (I < 8) d_values[I % 4] = multiply_add(of, of_p.half[I / 4 % 2], d_values[I % 4]);
                else if constexpr (I < 16) d_keys[I % 4] = multiply_add(of, of_d.half[I / 4 % 2], d_keys[I % 4]);
                else if constexpr (J % 2) d = multiply_add(of, values[J / 2], d);
                else p = multiply_add(of, keys[J / 2], p);
            });
        end_products();
        tile += TILE;
        if (tile >= sequence) tile = first;
    }
    gradients_of();
    begin_products();
    accumulate();
    end_products();
    if (seat.wave < TURN) meet();
    const u32 late = taken(seat.lane), stored = own + late % 32;
    u16 *to = d_qkv + shape.head(heads + kv_head) + (u64)stored * shape.width();
    store_own(to, stored < sequence, d_keys, late, SCALE);
    store_own(to + (u64)kv_heads * D, stored < sequence, d_values, late, 1.0f);
}
