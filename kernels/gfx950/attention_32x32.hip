// Causal attention with grouped key and value heads of 128 elements: attention.cu's kernels, names, arguments and layouts (said there), on gfx950's
// v_mfma_f32_32x32x16_bf16, with loads that go straight to LDS and transposed reads from there. Other head sizes are attention.hip's.
//
// Scores and probabilities live in registers alone; the forward pass keeps one logarithm a row (arXiv 2205.14135), the backward pass recomputes the
// probabilities from it, once for the queries' gradient and once for those of keys and values. Every sum has one order, fixed by the shape alone.
//
// Who does what. A wave has 32 rows of its own (queries, or keys in backward_kv), a block of eight waves 256; the other side comes in tiles. A tile's
// rows are first operands, so that lane l of a result has own row l mod 32 and of each 32 rows of the tile those of `Seat::row`: a softmax needs one
// exchange between two lanes and rescaling none. Eight registers of such a result are, rounded to BF16, a second operand of the next product as they
// lie: its k runs through the tile as the lanes happen to hold it, and the transposed reads follow (`turned_fragment`). Which element of k a
// register stands for is the same in both operands, so that nothing rests on how the hardware numbers k.
//
// Two phases follow one another: one makes probabilities of scores, the other has matrix operations alone: it ends with the next tile's scores. Waves 4
// to 7 are one phase behind waves 0 to 3, so that of two waves on a SIMD one multiplies and the other one computes.
//
// Waits. A tile is loaded two tiles ahead and has arrived, for all waves, when the phase of products before its own begins: each wave waits for its
// loads before the barrier that ends the phase after them. Its place in the ring was last read a tile and a half before the load.
//
// Launch: grid (ceil(sequence / 256), heads or kv_heads, batch), 512 threads, no dynamic LDS: `attention_launch` says so to the host. backward_q before
// backward_kv: it writes delta, too.
//
// Compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim.
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
    METHOD u32 group() const { return heads / kv_heads; }
    METHOD u64 width() const { return (u64)(heads + 2 * kv_heads) * D; }
    METHOD u64 out_width() const { return (u64)heads * D; }
    // Element 0 of a head in row 0 of this block's batch entry; key heads follow query heads, value heads key heads.
    METHOD u64 head(u32 number) const { return (u64)blockIdx.z * sequence * width() + (u64)number * D; }
    METHOD u64 out_head(u32 number) const { return (u64)blockIdx.z * sequence * out_width() + (u64)number * D; }
    METHOD u64 statistics(u32 number) const { return ((u64)blockIdx.z * heads + number) * sequence; }
};

// A block's first row, and its head. Of all heads the blocks with most to do come first; and blocks of one die, which are eight apart (AMD, "CDNA 3
// Architecture": round-robin), share keys and values where eight is a multiple of these heads.
struct Turn {
    u32 first, head;
    static METHOD u32 blocks(const Shape &shape) { return (shape.sequence + ROWS - 1) / ROWS; }
    static METHOD u32 number(const Shape &shape) { return blockIdx.y * blocks(shape) + blockIdx.x; }
    // Of queries, the last of which see most keys.
    static METHOD Turn of_queries(const Shape &shape) {
        u32 at = number(shape) % shape.heads;
        return {(blocks(shape) - 1 - number(shape) / shape.heads) * ROWS, at % shape.kv_heads * shape.group() + at / shape.kv_heads};
    }
    static METHOD Turn of_keys(const Shape &shape) { return {number(shape) / shape.kv_heads * ROWS, number(shape) % shape.kv_heads}; }
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

// Rows of a block, threads of a block, dynamic LDS: of attention_forward, attention_backward_q, attention_backward_kv.
extern "C" __attribute__((constant, used)) const int attention_launch[9] = {ROWS, 64 * WAVES, 0, ROWS, 64 * WAVES, 0, ROWS, 64 * WAVES, 0};

KERNEL_OF(512, 2) attention_forward(const u16 *qkv, u16 *out, float *logsumexp, u32 sequence, u32 heads, u32 kv_heads) {
    using Other = Seen<64>;
    constexpr u32 TILE = Other::TILE;
    SHARED u8 lds[RING * Other::STAGE] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_queries(shape);
    const Other seen = Other::of(qkv, shape, turn, seat);
    const u32 query = turn.first + OWN * seat.wave + seat.lane % 32;
    const bool exists = query < sequence;
    seen.load(0, seat);
    seen.load(TILE, seat);
    bf16x8 queries[STEPS];
    load_own(qkv + shape.head(turn.head) + (u64)(exists ? query : 0) * shape.width(), exists, seat.lane, queries);
    f32x16 sums[SLICES] = {}, s[2] = {};
    Packed p[2];
    float reference = -INFINITY_, total = 0.0f;
    wait_and_meet();
    multiply_rows(seat.rows(), 0, queries, s[0]);
    multiply_rows(seat.rows(), 1, queries, s[1]);
    if (seat.is_late()) meet();

    // Scores of a tile become probabilities, in relation to the reference. A query sees its own key, so that the first tile always has a score.
    const auto softmax = [&]() INLINE {
        float largest = s[0][0];
#pragma unroll
        for (int i = 1; i < 32; i++) largest = fmaxf(largest, s[i / 16][i % 16]);
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
        for (int part = 0; part < 2; part++) {
#pragma unroll
            for (int i = 0; i < 16; i += 2) added += exponentials(s[part], i, reference * SCALE_LOG2);
            p[part] = Packed::of(s[part]);
        }
        total += added[0] + added[1];
    };

    u32 tile = 0;
#pragma unroll 1
    for (; tile + TILE < seen.own; tile += TILE) {
        seen.load(tile + 2 * TILE, seat);
        softmax();
        const u32 turned = seat.turned() + seen.stage(tile) + seen.BYTES, rows = seat.rows() + seen.stage(tile + TILE);
        auto of_values = fragments<16, 6>([&](auto i) INLINE { return turned_fragment(turned, i.value % 4, i.value / 8, i.value / 4 % 2); });
        auto of_keys = fragments<16, 6>([&](auto i) INLINE { return row_fragment(rows, i.value % 2, i.value / 2); });
        of_values.read_first();
        begin_products();
        of_values.multiply([&](auto i, bf16x8 a) INLINE { sums[i.value % 4] = multiply_add(a, p[i.value / 8].half[i.value / 4 % 2], sums[i.value % 4]); },
                           [&](auto left) INLINE { of_keys.read_behind(left); });
        s[0] = f32x16{}, s[1] = f32x16{};
        of_keys.multiply([&](auto i, bf16x8 a) INLINE { s[i.value % 2] = multiply_add(a, queries[i.value / 2], s[i.value % 2]); });
        end_products();
    }
    if (tile < seen.own) {
        seen.load(tile + 2 * TILE, seat);
#pragma unroll
        for (u32 part = 0; part < 2; part++) mask(s[part], seat, [&](u32 row) INLINE { return tile + 32 * part + row <= query; });
        softmax();
        begin_products();
        multiply_turned(seat.turned() + seen.stage(tile) + seen.BYTES, 0, p[0], sums);
        multiply_turned(seat.turned() + seen.stage(tile) + seen.BYTES, 1, p[1], sums);
        end_products();
        tile += TILE;
    }
    seen.finish(tile, seat);
    total = row_total(total);
    store_own(out + shape.out_head(turn.head) + (u64)query * shape.out_width(), exists, sums, seat.lane, 1.0f / total);
    if (exists && seat.lane < 32) logsumexp[shape.statistics(turn.head) + query] = fmaf(reference, SCALE, logf(total));
}

KERNEL_OF(512, 2) attention_backward_q(const u16 *qkv, const u16 *out, const u16 *d_out, const float *logsumexp, float *delta, u16 *d_qkv, u32 sequence, u32 heads, u32 kv_heads) {
    using Other = Seen<32>;
    constexpr u32 TILE = Other::TILE;
    SHARED u8 lds[RING * Other::STAGE] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_queries(shape);
    const Other seen = Other::of(qkv, shape, turn, seat);
    const u32 query = turn.first + OWN * seat.wave + seat.lane % 32;
    const bool exists = query < sequence;
    const u64 row = exists ? query : 0, out_at = shape.out_head(turn.head) + row * shape.out_width();
    seen.load(0, seat);
    seen.load(TILE, seat);
    bf16x8 queries[STEPS], d_outs[STEPS];
    load_own(qkv + shape.head(turn.head) + row * shape.width(), exists, seat.lane, queries);
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
    const u64 statistic = shape.statistics(turn.head) + row;
    if (exists && seat.lane < 32) delta[statistic] = own_delta;
    const float logarithm = exists ? logsumexp[statistic] * (float)LOG2_E : 0.0f;
    f32x16 sums[SLICES] = {}, s = {}, d = {};
    Packed of_scores;
    wait_and_meet();
    multiply_rows(seat.rows(), 0, queries, s);
    multiply_rows(seat.rows() + seen.BYTES, 0, d_outs, d);
    if (seat.is_late()) meet();

    // P (dP - delta) of scores and of the probabilities' gradients.
    const auto gradients = [&]() INLINE {
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            const f32x2 x = exponentials(s, i, logarithm) * (f32x2{d[i], d[i + 1]} - own_delta);
            d[i] = x[0], d[i + 1] = x[1];
        }
        of_scores = Packed::of(d);
    };

    u32 tile = 0;
#pragma unroll 1
    for (; tile + TILE < seen.own; tile += TILE) {
        seen.load(tile + 2 * TILE, seat);
        gradients();
        const u32 turned = seat.turned() + seen.stage(tile), rows = seat.rows() + seen.stage(tile + TILE);
        auto of_keys = fragments<8, 6>([&](auto i) INLINE { return turned_fragment(turned, i.value % 4, 0, i.value / 4); });
        auto of_both = fragments<16, 6>([&](auto i) INLINE { return row_fragment(rows, i.value % 2, i.value / 2); });
        of_keys.read_first();
        begin_products();
        of_keys.multiply([&](auto i, bf16x8 a) INLINE { sums[i.value % 4] = multiply_add(a, of_scores.half[i.value / 4], sums[i.value % 4]); },
                         [&](auto left) INLINE { of_both.read_behind(left); });
        s = f32x16{}, d = f32x16{};
        of_both.multiply([&](auto i, bf16x8 a) INLINE {
            if constexpr (i.value % 2) d = multiply_add(a, d_outs[i.value / 2], d);
            else s = multiply_add(a, queries[i.value / 2], s);
        });
        end_products();
    }
    if (tile < seen.own) {
        seen.load(tile + 2 * TILE, seat);
        mask(s, seat, [&](u32 row) INLINE { return tile + row <= query; });
        gradients();
        begin_products();
        multiply_turned(seat.turned() + seen.stage(tile), 0, of_scores, sums);
        end_products();
        tile += TILE;
    }
    seen.finish(tile, seat);
    store_own(d_qkv + shape.head(turn.head) + row * shape.width(), exists, sums, seat.lane, SCALE);
}

namespace {

// What is added to a row of scores, as a first operand whose sum along k it is: three BF16 values that together are the F32 one, the rest zeros.
DEVICE bf16x8 as_operand(float x, u32 lane) {
    x = lane < 32 ? x : 0.0f;
    u32 high = to_bits(x) & 0xFFFF0000u;
    float left = x - from_bits(high);
    u32 middle = to_bits(left) & 0xFFFF0000u;
    Vector16 words = {{high >> 16 | middle, to_bits(left - from_bits(middle)) >> 16, 0, 0}};
    return __builtin_bit_cast(bf16x8, words);
}
DEVICE bf16x8 ones() {
    u32 one = taken(0x3F803F80u);
    return __builtin_bit_cast(bf16x8, Vector16{{one, one, one, one}});
}

// The queries that see a block of keys, and their outputs' gradients: one query head of the group after the other, in tiles of a ring. Behind the
// ring the logarithms and deltas of its tiles, 64 of each, of which 32 are used.
struct Seeing {
    static constexpr u32 TILE = 32, BYTES = TILE * ROW_BYTES, STAGE = 2 * BYTES, STATISTICS = RING * STAGE, KIND = 256, PLACE = 2 * KIND;
    static constexpr u32 LDS = STATISTICS + RING * PLACE;
    Rows queries, d_outs;
    const float *statistic;  // logsumexp or delta, whichever this wave loads
    u32 sequence, first, tiles;
    u32 next, next_head, next_row;  // the tile that is loaded next, its head and its first row

    static METHOD u32 stage(u32 tile) { return tile % RING * STAGE; }
    static METHOD u32 statistics(u32 tile) { return STATISTICS + tile % RING * PLACE; }
    // Of the row that the lane has in a first operand.
    METHOD float logarithm(u32 tile, const Seat &seat) const { return read_lds<float>(seat.block + statistics(tile) + seat.lane % 32 * 4); }
    METHOD float delta(u32 tile, const Seat &seat) const { return read_lds<float>(seat.block + statistics(tile) + KIND + seat.lane % 32 * 4); }
    METHOD void load(const Seat &seat) {
        if (next == tiles) return;
        queries.load<TILE>(next_row, sequence, seat, stage(next), next_head * ROW_BYTES);
        d_outs.load<TILE>(next_row, sequence, seat, stage(next) + BYTES, next_head * ROW_BYTES);
        if (seat.wave < 2) {
            Buffer buffer = buffer_of(statistic + (u64)next_head * sequence + next_row, 4 * min(KIND / 4, sequence - next_row));
            u32 at = seat.block + statistics(next) + seat.wave * KIND;
            __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, (LdsPointer)at, 4, 4 * seat.lane, 0, 0, 0);
        }
        next++, next_row += TILE;
        if (next_row >= sequence) next_row = first, next_head++;
    }
};

}  // namespace

KERNEL_OF(512, 2) attention_backward_kv(const u16 *qkv, const u16 *d_out, const float *logsumexp, const float *delta, u16 *d_qkv, u32 sequence, u32 heads, u32 kv_heads) {
    SHARED u8 lds[Seeing::LDS] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_keys(shape);
    const u32 head = turn.head * shape.group(), own = turn.first + OWN * seat.wave, key = own + seat.lane % 32;
    const u64 own_head = shape.head(heads + turn.head), values_further = (u64)kv_heads * D;
    Seeing seeing = {Rows::of(qkv + shape.head(head), shape.width()), Rows::of(d_out + shape.out_head(head), shape.out_width()),
                     (seat.wave ? delta : logsumexp) + shape.statistics(head), sequence, turn.first,
                     (sequence - turn.first + Seeing::TILE - 1) / Seeing::TILE * shape.group(), 0, 0, turn.first};
    seeing.load(seat);
    seeing.load(seat);
    bf16x8 keys[STEPS], values[STEPS];
    const u16 *const own_row = qkv + own_head + (u64)min(key, sequence - 1) * shape.width();
    load_own(own_row, key < sequence, seat.lane, keys);
    load_own(own_row + values_further, key < sequence, seat.lane, values);
    f32x16 d_keys[SLICES] = {}, d_values[SLICES] = {}, s, d;
    Packed of_p, of_scores;

    // Scores begin as what is taken from them, scaled as they are, and the probabilities' gradients as less their row's delta.
    const auto begin_scores = [&](float logarithm, float delta) INLINE {
        s = multiply_add(as_operand(logarithm * (float)-ROOT, seat.again().lane), ones(), f32x16{});
        d = multiply_add(as_operand(-delta, seat.again().lane), ones(), f32x16{});
    };
    wait_and_meet();
    begin_scores(seeing.logarithm(0, seat), seeing.delta(0, seat));
    multiply_rows(seat.rows(), 0, keys, s);
    multiply_rows(seat.rows() + seeing.BYTES, 0, values, d);
    if (seat.is_late()) meet();

    u32 tile = 0, first_row = turn.first;
    // P of scores, and P (dP - delta). Queries beyond the sequence have zeros for d_out, delta and logarithm, and add nothing.
    const auto gradients = [&]() INLINE {
        if (first_row < own + OWN - 1) {
            const Seat again = seat.again();
            const u32 key = own + again.lane % 32;
            mask(s, again, [&](u32 row) INLINE { return key <= first_row + row; });
        }
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            const f32x2 x = exponentials(s, i, 0.0f) * f32x2{d[i], d[i + 1]};
            d[i] = x[0], d[i + 1] = x[1];
        }
        of_p = Packed::of(s), of_scores = Packed::of(d);
    };
#pragma unroll 1
    for (; tile + 1 < seeing.tiles; tile++) {
        seeing.load(seat.again());
        gradients();
        const u32 turned = seat.again().turned() + seeing.stage(tile), rows = seat.again().rows() + seeing.stage(tile + 1);
        auto of_both = fragments<16, 6>([&](auto i) INLINE { return turned_fragment(turned, i.value % 4, 1 - i.value / 8, i.value / 4 % 2); });
        auto of_next = fragments<16, 5>([&](auto i) INLINE { return row_fragment(rows, i.value % 2, i.value / 2); });
        of_both.read_first();
        begin_products();
        const float logarithm = seeing.logarithm(tile + 1, seat.again()), next_delta = seeing.delta(tile + 1, seat.again());
        of_both.multiply([&](auto i, bf16x8 a) INLINE {
            if constexpr (i.value < 8) d_values[i.value % 4] = multiply_add(a, of_p.half[i.value / 4], d_values[i.value % 4]);
            else d_keys[i.value % 4] = multiply_add(a, of_scores.half[i.value / 4 - 2], d_keys[i.value % 4]);
        }, [&](auto left) INLINE { of_next.read_behind(left); });
        begin_scores(logarithm, next_delta);
        of_next.multiply([&](auto i, bf16x8 a) INLINE {
            if constexpr (i.value % 2) d = multiply_add(a, values[i.value / 2], d);
            else s = multiply_add(a, keys[i.value / 2], s);
        });
        end_products();
        first_row += seeing.TILE;
        if (first_row >= sequence) first_row = turn.first;
    }
    gradients();
    begin_products();
    const u32 last = seat.again().turned() + seeing.stage(tile);
    multiply_turned(last, 1, of_p, d_values);
    multiply_turned(last, 0, of_scores, d_keys);
    end_products();
    if (!seat.is_late()) meet();
    const u32 late = seat.again().lane, stored = own + late % 32;
    u16 *const to = d_qkv + own_head + (u64)stored * shape.width();
    store_own(to, stored < sequence, d_keys, late, SCALE);
    store_own(to + values_further, stored < sequence, d_values, late, 1.0f);
}
