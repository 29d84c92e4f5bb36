// Causal attention with grouped key and value heads of 128 elements: attention.cu's kernels, names, arguments and layouts (said there), on gfx950's
// v_mfma_f32_32x32x16_bf16, with loads that go straight to LDS and transposed reads from there. Other head sizes are attention.hip's.
#include "prelude.h"

namespace {

constexpr int D = 128;               // elements of a head
constexpr u32 ROW_BYTES = 2 * D;     // of a row of a tile in LDS
constexpr u32 WAVES = 8;
constexpr u32 OWN = 32;              // rows of a wave
constexpr u32 ROWS = OWN * WAVES;    // and of a block
constexpr u32 TILE = 64;             // rows of the other side that are in LDS together
constexpr u32 TILE_BYTES = TILE * ROW_BYTES;
constexpr u32 STAGE = 2 * TILE_BYTES;  // of LDS: two tiles
constexpr int STEPS = D / 16;        // matrix operations along a head
constexpr int SLICES = D / 32;       // results of 32 elements of a head
constexpr int PARTS = TILE / 32;     // results of 32 rows of a tile
constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float HEADROOM = 8.0f;
constexpr float SCALE = 0.08838834764831845f;  // 1 / sqrt(128)
constexpr float SCALE_LOG2 = (float)(1.44269504088896340736 * 0.08838834764831844055);

typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef short i16x4 __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(3))) void *LdsPointer;

DEVICE float exp2_approx(float x) { return __builtin_amdgcn_exp2f(x); }
DEVICE f32x16 multiply_add(bf16x8 a, bf16x8 b, f32x16 c) { return __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, 0, 0, 0); }

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
    METHOD void load(u32 first, u32 sequence, u32 at) const {
        Buffer buffer = buffer_of(base + (u64)first * pitch, (min(TILE, sequence - first) - 1) * pitch + ROW_BYTES);
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

DEVICE bf16x8 packed(const f32x16 &x, int half) {
    Vector16 words;
#pragma unroll
    for (int i = 0; i < 4; i++) words.word[i] = bf16_pair(x[8 * half + 2 * i], x[8 * half + 2 * i + 1]);
    return __builtin_bit_cast(bf16x8, words);
}

// sums += the turned tile times factors, rounded to BF16.
DEVICE void multiply_turned(u32 at, int part, const f32x16 &factors, f32x16 (&sums)[SLICES]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        bf16x8 operand = packed(factors, half);
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) sums[slice] = multiply_add(turned_fragment(at, slice, part, half), operand, sums[slice]);
    }
}

// exp2(scores i and i + 1, scaled, less a shift), and left in their seat.
DEVICE f32x2 probabilities(f32x16 &s, int i, f32x2 shift) {
    f32x2 x = __builtin_elementwise_fma(f32x2{s[i], s[i + 1]}, f32x2{SCALE_LOG2, SCALE_LOG2}, -shift);
    s[i] = exp2_approx(x[0]), s[i + 1] = exp2_approx(x[1]);
    return f32x2{s[i], s[i + 1]};
}

DEVICE u32 longest_first(u32 sequence) { return ((sequence + ROWS - 1) / ROWS - 1 - blockIdx.x) * ROWS; }

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

DEVICE void load_own(const u16 *row, bool exists, u32 lane, bf16x8 (&own)[STEPS]) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        Vector16 loaded = {{0, 0, 0, 0}};
        if (exists) loaded = *(const Vector16 *)(row + 16 * s + 8 * (lane / 32));
        own[s] = __builtin_bit_cast(bf16x8, loaded);
    }
}

DEVICE void store_own(u16 *row, const f32x16 (&sums)[SLICES], u32 lane, float factor) {
#pragma unroll
    for (int slice = 0; slice < SLICES; slice++) {
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            const f32x16 &x = sums[slice];
            Vector8 packed = {{bf16_pair(x[i] * factor, x[i + 1] * factor), bf16_pair(x[i + 2] * factor, x[i + 3] * factor)}};
            *(Vector8 *)(row + 32 * slice + 2 * i + 4 * (lane / 32)) = packed;
        }
    }
}

}  // namespace

extern "C" __attribute__((constant, used)) const int attention_launch[9] = {ROWS, 64 * WAVES, 0, ROWS, 64 * WAVES, 0, ROWS, 64 * WAVES, 0};

KERNEL_OF(512, 2) attention_forward(const u16 *qkv, u16 *out, float *logsumexp, u32 sequence, u32 heads, u32 kv_heads) {
    SHARED u8 lds[2 * STAGE] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const u32 head = blockIdx.y, first = longest_first(sequence), own = first + OWN * seat.wave, query = own + seat.lane % 32;
    const bool exists = query < sequence;
    const u64 row = exists ? query : 0;
    const Rows keys = Rows::of(qkv + shape.head(heads + shape.kv_of(head)), shape.width(), seat);
    const Rows values = Rows::of(qkv + shape.head(heads + kv_heads + shape.kv_of(head)), shape.width(), seat);
    const u32 end = min(first + ROWS, sequence);
    keys.load(0, sequence, seat.lds);
    values.load(0, sequence, seat.lds + TILE_BYTES);
    bf16x8 queries[STEPS];
    load_own(qkv + shape.head(head) + row * shape.width(), exists, seat.lane, queries);
    f32x16 sums[SLICES] = {};
    float reference = -INFINITY_, total = 0.0f;
    u32 stage = 0;
#pragma unroll 1
    for (u32 tile = 0; tile < end; tile += TILE, stage = STAGE - stage) {
        wait_and_meet();
        if (tile + TILE < end) {
            keys.load(tile + TILE, sequence, seat.lds + STAGE - stage);
            values.load(tile + TILE, sequence, seat.lds + STAGE - stage + TILE_BYTES);
        }
        if (tile >= own + OWN) continue;
        f32x16 s[PARTS] = {};
#pragma unroll
        for (int part = 0; part < PARTS; part++) multiply_rows(seat.rows + stage, part, queries, s[part]);
        if (tile + TILE > own + 1) {
#pragma unroll
            for (int part = 0; part < PARTS; part++)
#pragma unroll
                for (int i = 0; i < 16; i++) s[part][i] = tile + seat.row(part, i) <= query ? s[part][i] : -INFINITY_;
        }
        float largest = s[0][0];
#pragma unroll
        for (int part = 0; part < PARTS; part++)
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
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < 16; i += 2) added += probabilities(s[part], i, reference * SCALE_LOG2);
        total += added[0] + added[1];
#pragma unroll
        for (int part = 0; part < PARTS; part++) multiply_turned(seat.turned + stage + TILE_BYTES, part, s[part], sums);
    }
    total = row_total(total);
    if (!exists) return;
    store_own(out + shape.out_head(head) + row * shape.out_width(), sums, seat.lane, 1.0f / total);
    if (seat.lane < 32) logsumexp[shape.statistics(head) + row] = fmaf(reference, SCALE, logf(total));
}

KERNEL_OF(512, 2) attention_backward_q(const u16 *qkv, const u16 *out, const u16 *d_out, const float *logsumexp, float *delta, u16 *d_qkv, u32 sequence, u32 heads, u32 kv_heads) {
    SHARED u8 lds[2 * STAGE] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const u32 head = blockIdx.y, first = longest_first(sequence), own = first + OWN * seat.wave, query = own + seat.lane % 32;
    const bool exists = query < sequence;
    const u64 row = exists ? query : 0, out_at = shape.out_head(head) + row * shape.out_width(), statistic = shape.statistics(head) + row;
    const Rows keys = Rows::of(qkv + shape.head(heads + shape.kv_of(head)), shape.width(), seat);
    const Rows values = Rows::of(qkv + shape.head(heads + kv_heads + shape.kv_of(head)), shape.width(), seat);
    const u32 end = min(first + ROWS, sequence);
    keys.load(0, sequence, seat.lds);
    values.load(0, sequence, seat.lds + TILE_BYTES);
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
    f32x16 sums[SLICES] = {};
    u32 stage = 0;
#pragma unroll 1
    for (u32 tile = 0; tile < end; tile += TILE, stage = STAGE - stage) {
        wait_and_meet();
        if (tile + TILE < end) {
            keys.load(tile + TILE, sequence, seat.lds + STAGE - stage);
            values.load(tile + TILE, sequence, seat.lds + STAGE - stage + TILE_BYTES);
        }
        if (tile >= own + OWN) continue;
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            f32x16 p = {}, d = {};
            multiply_rows(seat.rows + stage, part, queries, p);
            multiply_rows(seat.rows + stage + TILE_BYTES, part, d_outs, d);
            if (tile + TILE > own + 1) {
#pragma unroll
                for (int i = 0; i < 16; i++) p[i] = tile + seat.row(part, i) <= query ? p[i] : -INFINITY_;
            }
#pragma unroll
            for (int i = 0; i < 16; i += 2) {
                f32x2 of_scores = probabilities(p, i, logarithm) * (f32x2{d[i], d[i + 1]} - own_delta);
                d[i] = of_scores[0], d[i + 1] = of_scores[1];
            }
            multiply_turned(seat.turned + stage, part, d, sums);
        }
    }
    if (exists) store_own(d_qkv + shape.head(head) + row * shape.width(), sums, seat.lane, SCALE);
}

KERNEL_OF(512, 2) attention_backward_kv(const u16 *qkv, const u16 *d_out, const float *logsumexp, const float *delta, u16 *d_qkv, u32 sequence, u32 heads, u32 kv_heads) {
    constexpr u32 STATISTICS = 2 * STAGE, STATISTIC_BYTES = 4 * TILE, VALUES = STATISTICS + 4 * STATISTIC_BYTES;
    SHARED u8 lds[VALUES + ROWS * ROW_BYTES] __attribute__((aligned(1024)));
    const Shape shape = {sequence, heads, kv_heads};
    const Seat seat = Seat::of(lds);
    const u32 kv_head = blockIdx.y, first = blockIdx.x * ROWS, own = first + OWN * seat.wave, key = own + seat.lane % 32, group = heads / kv_heads;
    const auto load = [&](u32 head, u32 tile, u32 stage) INLINE {
        Rows::of(qkv + shape.head(head), shape.width(), seat).load(tile, sequence, seat.lds + stage);
        Rows::of(d_out + shape.out_head(head), shape.out_width(), seat).load(tile, sequence, seat.lds + stage + TILE_BYTES);
        if (seat.wave < 2) {
            const float *from = (seat.wave ? delta : logsumexp) + shape.statistics(head) + tile;
            const u32 at = seat.block + STATISTICS + stage / STAGE * 2 * STATISTIC_BYTES + seat.wave * STATISTIC_BYTES;
            __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer_of(from, 4 * min(TILE, sequence - tile)), (LdsPointer)at, 4, 4 * seat.lane, 0, 0, 0);
        }
    };
    u32 head = kv_head * group, tile = first, stage = 0;
    load(head, tile, stage);
    const Rows values = Rows::of(qkv + shape.head(heads + kv_heads + kv_head), shape.width(), seat);
    for (u32 i = 0; i < ROWS; i += TILE)
        if (first + i < sequence) values.load(first + i, sequence, seat.lds + VALUES + i * ROW_BYTES);
    bf16x8 keys[STEPS];
    load_own(qkv + shape.head(heads + kv_head) + (u64)min(key, sequence - 1) * shape.width(), key < sequence, seat.lane, keys);
    f32x16 d_keys[SLICES] = {}, d_values[SLICES] = {};
#pragma unroll 1
    for (;; stage = STAGE - stage) {
        wait_and_meet();
        const u32 now = tile;
        tile += TILE;
        if (tile >= sequence) tile = first, head++;
        const bool last = head == (kv_head + 1) * group;
        if (!last) load(head, tile, STAGE - stage);
        if (now + TILE > own) {
            const u32 rows = taken(seat.rows), turned = taken(seat.turned) + stage, own_values = rows + taken_by_wave(seat.wave * OWN * ROW_BYTES) + VALUES;
#pragma unroll 1
            for (int part = 0; part < PARTS; part++) {
                const u32 statistics = seat.block + STATISTICS + stage / STAGE * 2 * STATISTIC_BYTES + 128 * part + seat.lane / 32 * 16;
                f32x16 p = {}, d = {};
                multiply_rows(rows + stage, part, keys, p);
#pragma unroll
                for (int step = 0; step < STEPS; step++)
                    d = multiply_add(row_fragment(rows + stage + TILE_BYTES, part, step), row_fragment(own_values, 0, step), d);
                if (now < own + OWN - 1) {
#pragma unroll
                    for (int i = 0; i < 16; i++) p[i] = key <= now + seat.row(part, i) ? p[i] : -INFINITY_;
                }
                __builtin_amdgcn_sched_barrier(0);
#pragma unroll
                for (int i = 0; i < 16; i += 4) {
                    const f32x4 logarithms = read_lds<f32x4>(statistics + 8 * i) * LOG2_E, deltas = read_lds<f32x4>(statistics + STATISTIC_BYTES + 8 * i);
#pragma unroll
                    for (int j = 0; j < 4; j += 2) {
                        f32x2 of_scores = probabilities(p, i + j, f32x2{logarithms[j], logarithms[j + 1]}) * (f32x2{d[i + j], d[i + j + 1]} - f32x2{deltas[j], deltas[j + 1]});
                        d[i + j] = of_scores[0], d[i + j + 1] = of_scores[1];
                    }
                }
                __builtin_amdgcn_sched_barrier(0);
                multiply_turned(turned + TILE_BYTES, part, p, d_values);
                __builtin_amdgcn_sched_barrier(0);
                multiply_turned(turned, part, d, d_keys);
                __builtin_amdgcn_sched_barrier(0);
            }
        }
        if (last) break;
    }
    const u32 late = taken(seat.lane), stored = own + late % 32;
    if (stored >= sequence) return;
    u16 *to = d_qkv + shape.head(heads + kv_head) + (u64)stored * shape.width();
    store_own(to, d_keys, late, SCALE);
    store_own(to + (u64)kv_heads * D, d_values, late, 1.0f);
}
