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
// Two phases follow one another: one makes probabilities of scores; the other one has matrix operations alone, and ends with the next tile's scores.
// Waves 4 to 7 are one phase behind waves 0 to 3, so that of two waves on a SIMD one multiplies and the other one computes.
//
// Waits. A tile is loaded at the beginning of the tile two before it, and each wave waits for its own loads where the products of that one end: when
// the first wave multiplies the tile's rows, at the end of the tile before, all have met since. Its place in the ring was last read by a wave that is late,
// two tiles before the load, and they have met since then, too.
//
// Launch: grid (ceil(sequence / 256), heads or kv_heads, batch), 512 threads, no dynamic LDS: `attention_launch` says so to the host. backward_q before
// backward_kv: it writes delta, too.
//
// Compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim.
#include "attention_32x32.h"

// Rows of a block, threads of a block, dynamic LDS: of attention_forward, attention_backward_q, attention_backward_kv.
extern "C" __attribute__((constant, used)) const int attention_launch[9] = {ROWS, 64 * WAVES, 0, ROWS, 64 * WAVES, 0, ROWS, 64 * WAVES, 0};

KERNEL_OF(512, 2) attention_forward(const u16 *qkv, u16 *out, float *logsumexp, u32 sequence, u32 heads, u32 kv_heads) {
    using Other = Seen<64>;
    constexpr u32 TILE = Other::TILE;
    SHARED u8 lds[RING * Other::STAGE] __attribute__((aligned(1024)));
    Shape shape = {sequence, heads, kv_heads, 0};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_queries(shape);
    shape.entry = turn.entry;
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
    Shape shape = {sequence, heads, kv_heads, 0};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_queries(shape);
    shape.entry = turn.entry;
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
    Shape shape = {sequence, heads, kv_heads, 0};
    const Seat seat = Seat::of(lds);
    const Turn turn = Turn::of_keys(shape);
    shape.entry = turn.entry;
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
