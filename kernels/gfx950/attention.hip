// Causal attention with grouped key and value heads, forward and backward, in BF16 with F32 accumulation: attention.cu's kernels, names,
// arguments and layouts (said there), on gfx950's matrix operations.
//
// What this is: scores and probabilities live in registers alone, a tile of 64 keys (or queries) at a time; the forward pass keeps one
// logarithm a row (arXiv 2205.14135), the backward pass recomputes the probabilities from it, once for the queries' gradient and once for
// those of keys and values. Every sum has one order, fixed by the shape alone.
// What this is not: fast on purpose. One buffer, two barriers a tile, no loads straight to LDS.
//
// How the products fit together. v_mfma_f32_16x16x32_bf16 gives lane l column l mod 16 of the result, rows 4 (l / 16) + 0..3. The tile's
// side is laid along the rows, the wave's own 16 rows along the columns: a lane has one query (or key), so that a softmax needs two
// exchanges between lanes and rescaling none. Two results on top of each other are, rounded to BF16, the second operand of the next
// product as they lie: its k runs through the tile as the lanes happen to hold it, and the first operand, read from a turned copy of the
// tile, follows (`turned_fragment`). Which element of k a register stands for is the same in both operands, so nothing rests on how the
// hardware numbers k.
//
// Compile with -DHEAD_DIM=D, D a multiple of 16, 16 <= D <= 112; heads of 128 are attention_32x32.hip's. Launch: grid (ceil(sequence / 64), heads or kv_heads, batch), 256
// threads, no dynamic LDS: `attention_launch` says so to the host. backward_q before backward_kv: it writes delta, too.
//
// Compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim.
#include "../device/portable.h"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 112, "HEAD_DIM must be a multiple of 16 up to 112");

typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef float f32x4 __attribute__((ext_vector_type(4)));

namespace {

constexpr int TILE = 64;                          // rows of a workgroup, and of a tile of the other side
constexpr int THREADS = 256;
constexpr int PARTS = TILE / 16;                  // results of 16 rows in a tile
constexpr int DEPTH = (HEAD_DIM + 31) / 32 * 32;  // elements of a row as the products see it, zeros beyond HEAD_DIM
constexpr int STEPS = DEPTH / 32;
constexpr int SLICES = HEAD_DIM / 16;             // results of 16 elements of a row
constexpr int PITCH = DEPTH + 8;                  // elements between rows in LDS
constexpr int TURNED = TILE + 8;                  // elements between the rows of a turned tile

constexpr double square_root(double x) {
    double r = x;
    for (int i = 0; i < 64; i++) r = 0.5 * (r + x / r);
    return r;
}
constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float SCALE = (float)(1.0 / square_root((double)HEAD_DIM));
constexpr float SCALE_LOG2 = (float)(1.44269504088896340736 / square_root((double)HEAD_DIM));

// A tile as its rows lie in memory, and turned: element d of each row side by side.
struct alignas(16) Rows { u16 at[TILE * PITCH]; };
struct alignas(16) Turned { u16 at[HEAD_DIM * TURNED]; };

// v_exp_f32: results below the normal range are zero.
DEVICE float exp2_approx(float x) { return __builtin_amdgcn_exp2f(x); }

DEVICE f32x4 multiply_add(bf16x8 a, bf16x8 b, f32x4 c) { return __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, c, 0, 0, 0); }

DEVICE int lane() { return (int)(threadIdx.x % WAVE); }
DEVICE int lane_row() { return lane() % 16; }
DEVICE int lane_group() { return lane() / 16; }

// ---- From memory ----

// Sixteen bytes of a row of HEAD_DIM elements, or zeros.
DEVICE Vector16 load8(const u16* row, int element, bool exists) {
    Vector16 loaded = {{0, 0, 0, 0}};
    if (exists && element < HEAD_DIM) loaded = *(const Vector16*)(row + element);
    return loaded;
}

DEVICE void put(Rows& rows, int row, int element, const Vector16& values) { *(Vector16*)(rows.at + row * PITCH + element) = values; }

DEVICE void put(Turned& turned, int row, int element, const Vector16& values) {
    if (element >= HEAD_DIM) return;
#pragma unroll
    for (int j = 0; j < 8; ++j) turned.at[(element + j) * TURNED + row] = (u16)(values.word[j / 2] >> (16 * (j % 2)));
}

// A tile of rows from `first` on, `stride` elements apart, into each of `places`; zeros beyond the sequence.
template <typename... Places> DEVICE void stage(const u16* from, u64 stride, int first, int sequence, Places&... places) {
#pragma unroll
    for (int i = 0; i < TILE * DEPTH / 8 / THREADS; ++i) {
        int number = i * THREADS + (int)threadIdx.x, row = number / (DEPTH / 8), element = number % (DEPTH / 8) * 8;
        bool exists = first + row < sequence;
        Vector16 values = load8(from + (u64)(exists ? first + row : 0) * stride, element, exists);
        (put(places, row, element, values), ...);
    }
}

// The wave's own rows, the lane's being `row`: second operands of the products along a row.
DEVICE void load_own(const u16* row, bool exists, bf16x8 (&own)[STEPS]) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) own[s] = __builtin_bit_cast(bf16x8, load8(row, 32 * s + 8 * lane_group(), exists));
}

// ---- From LDS ----

// Rows 16 part + 0..15, elements 32 step + 0..31, as a first operand.
DEVICE bf16x8 row_fragment(const Rows& rows, int part, int step) {
    return __builtin_bit_cast(bf16x8, *(const Vector16*)(rows.at + (16 * part + lane_row()) * PITCH + 32 * step + 8 * lane_group()));
}

// Elements 16 slice + 0..15 of the rows 32 half + 0..31, as a first operand: register pairs of rows in the order in which two results of
// 16 rows leave a lane: 4 group + 0..3 of the first, then of the second.
DEVICE bf16x8 turned_fragment(const Turned& turned, int slice, int half) {
    const u16* at = turned.at + (16 * slice + lane_row()) * TURNED + 32 * half + 4 * lane_group();
    struct { Vector8 first, second; } both = {*(const Vector8*)at, *(const Vector8*)(at + 16)};
    return __builtin_bit_cast(bf16x8, both);
}

// ---- Products ----

// result[part] = rows (16 part + 0..15) times own rows.
DEVICE void scores(const Rows& rows, const bf16x8 (&own)[STEPS], f32x4 (&result)[PARTS]) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        f32x4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int s = 0; s < STEPS; ++s) sum = multiply_add(row_fragment(rows, part, s), own[s], sum);
        result[part] = sum;
    }
}

// sums[slice] += turned tile (elements 16 slice + 0..15) times the factors, rounded to BF16.
DEVICE void accumulate(const Turned& turned, const f32x4 (&factors)[PARTS], f32x4 (&sums)[SLICES]) {
#pragma unroll
    for (int half = 0; half < PARTS / 2; ++half) {
        Vector16 packed;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const f32x4& from = factors[2 * half + i / 2];
            packed.word[i] = bf16_pair(from[2 * (i % 2)], from[2 * (i % 2) + 1]);
        }
        bf16x8 operand = __builtin_bit_cast(bf16x8, packed);
#pragma unroll
        for (int slice = 0; slice < SLICES; ++slice) sums[slice] = multiply_add(turned_fragment(turned, slice, half), operand, sums[slice]);
    }
}

template <int COUNT> DEVICE void clear(f32x4 (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sums[i] = f32x4{0.0f, 0.0f, 0.0f, 0.0f};
}

// The lane's row of a result, times a factor, as BF16.
DEVICE void store_own(u16* row, const f32x4 (&sums)[SLICES], float factor) {
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
        f32x4 x = sums[slice];
        Vector8 packed = {{bf16_pair(x[0] * factor, x[1] * factor), bf16_pair(x[2] * factor, x[3] * factor)}};
        *(Vector8*)(row + 16 * slice + 4 * lane_group()) = packed;
    }
}

// Over the four lanes that share a row.
DEVICE float row_maximum(float value) {
    value = fmaxf(value, shuffle_xor(value, 16));
    return fmaxf(value, shuffle_xor(value, 32));
}
DEVICE float row_total(float value) {
    value += shuffle_xor(value, 16);
    return value + shuffle_xor(value, 32);
}

// Which rows and columns a workgroup works on.
struct Shape {
    int sequence, heads, kv_heads;
    __attribute__((device, always_inline)) inline u64 width() const { return (u64)(heads + 2 * kv_heads) * HEAD_DIM; }
    __attribute__((device, always_inline)) inline u64 out_width() const { return (u64)heads * HEAD_DIM; }
    // Element 0 of a head in row 0 of this workgroup's batch entry; key heads follow query heads, value heads key heads.
    __attribute__((device, always_inline)) inline u64 head(int number) const { return (u64)blockIdx.z * sequence * width() + (u64)number * HEAD_DIM; }
    __attribute__((device, always_inline)) inline u64 out_head(int number) const { return (u64)blockIdx.z * sequence * out_width() + (u64)number * HEAD_DIM; }
    __attribute__((device, always_inline)) inline u64 statistics(int number) const { return ((u64)blockIdx.z * heads + number) * sequence; }
    __attribute__((device, always_inline)) inline int kv_of(int number) const { return number / (heads / kv_heads); }
};

}  // namespace

// Rows of a block, threads of a block, dynamic LDS: of attention_forward, attention_backward_q, attention_backward_kv.
extern "C" __attribute__((constant, used)) const int attention_launch[9] = {TILE, THREADS, 0, TILE, THREADS, 0, TILE, THREADS, 0};

KERNEL(256) attention_forward(const u16* qkv, u16* out, float* logsumexp, int sequence, int heads, int kv_heads) {
    SHARED Rows keys;
    SHARED Turned values;
    const Shape shape = {sequence, heads, kv_heads};
    const int head = (int)blockIdx.y, first = (int)blockIdx.x * TILE, query = first + 16 * (int)(threadIdx.x / WAVE) + lane_row();
    const bool exists = query < sequence;
    const u64 row = exists ? (u64)query : 0;
    const u16* key_rows = qkv + shape.head(heads + shape.kv_of(head));
    const u16* value_rows = qkv + shape.head(heads + kv_heads + shape.kv_of(head));
    bf16x8 queries[STEPS];
    load_own(qkv + shape.head(head) + row * shape.width(), exists, queries);
    f32x4 sums[SLICES];
    clear(sums);
    float largest = -INFINITY_, total = 0.0f;
    const int last = min(first + TILE, sequence);
    for (int tile = 0; tile < last; tile += TILE) {
        BARRIER();
        stage(key_rows, shape.width(), tile, sequence, keys);
        stage(value_rows, shape.width(), tile, sequence, values);
        BARRIER();
        f32x4 s[PARTS];
        scores(keys, queries, s);
        float grown = largest;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                // A query sees its own key, so the first tile always has one that is not masked.
                int key = tile + 16 * part + 4 * lane_group() + i;
                s[part][i] = key <= query && key < sequence ? s[part][i] : -INFINITY_;
                grown = fmaxf(grown, s[part][i]);
            }
        }
        grown = row_maximum(grown);
        const float kept = exp2_approx((largest - grown) * SCALE_LOG2);
        float added = 0.0f;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                s[part][i] = exp2_approx((s[part][i] - grown) * SCALE_LOG2);
                added += s[part][i];
            }
        }
        total = fmaf(total, kept, added);
        largest = grown;
#pragma unroll
        for (int slice = 0; slice < SLICES; ++slice) sums[slice] *= kept;
        accumulate(values, s, sums);
    }
    total = row_total(total);
    if (!exists) return;
    store_own(out + shape.out_head(head) + row * shape.out_width(), sums, 1.0f / total);
    if (lane_group() == 0) logsumexp[shape.statistics(head) + row] = fmaf(largest, SCALE, logf(total));
}

// P (dP - delta) of a lane's row against a tile, and P: `logarithm` in units of log2.
DEVICE float probability(float score, float logarithm, bool visible) { return visible ? exp2_approx(fmaf(score, SCALE_LOG2, -logarithm)) : 0.0f; }

KERNEL(256) attention_backward_q(const u16* qkv, const u16* out, const u16* d_out, const float* logsumexp, float* delta, u16* d_qkv, int sequence, int heads, int kv_heads) {
    SHARED Rows keys, values;
    SHARED Turned turned_keys;
    const Shape shape = {sequence, heads, kv_heads};
    const int head = (int)blockIdx.y, first = (int)blockIdx.x * TILE, query = first + 16 * (int)(threadIdx.x / WAVE) + lane_row();
    const bool exists = query < sequence;
    const u64 row = exists ? (u64)query : 0, out_at = shape.out_head(head) + row * shape.out_width();
    const u16* key_rows = qkv + shape.head(heads + shape.kv_of(head));
    const u16* value_rows = qkv + shape.head(heads + kv_heads + shape.kv_of(head));
    bf16x8 queries[STEPS], d_outs[STEPS];
    load_own(qkv + shape.head(head) + row * shape.width(), exists, queries);
    load_own(d_out + out_at, exists, d_outs);
    float own_delta = 0.0f;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        float x[8], y[8];
        unpack8(load8(out + out_at, 32 * s + 8 * lane_group(), exists), x);
        unpack8(__builtin_bit_cast(Vector16, d_outs[s]), y);
#pragma unroll
        for (int j = 0; j < 8; ++j) own_delta = fmaf(x[j], y[j], own_delta);
    }
    own_delta = row_total(own_delta);
    const u64 statistic = shape.statistics(head) + row;
    if (exists && lane_group() == 0) delta[statistic] = own_delta;
    const float logarithm = exists ? logsumexp[statistic] * LOG2_E : 0.0f;
    f32x4 sums[SLICES];
    clear(sums);
    const int last = min(first + TILE, sequence);
    for (int tile = 0; tile < last; tile += TILE) {
        BARRIER();
        stage(key_rows, shape.width(), tile, sequence, keys, turned_keys);
        stage(value_rows, shape.width(), tile, sequence, values);
        BARRIER();
        f32x4 s[PARTS], d[PARTS];
        scores(keys, queries, s);
        scores(values, d_outs, d);
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int key = tile + 16 * part + 4 * lane_group() + i;
                d[part][i] = probability(s[part][i], logarithm, key <= query && key < sequence) * (d[part][i] - own_delta);
            }
        }
        accumulate(turned_keys, d, sums);
    }
    if (exists) store_own(d_qkv + shape.head(head) + row * shape.width(), sums, SCALE);
}

KERNEL(256) attention_backward_kv(const u16* qkv, const u16* d_out, const float* logsumexp, const float* delta, u16* d_qkv, int sequence, int heads, int kv_heads) {
    SHARED Rows queries, d_outs;
    SHARED Turned turned_queries, turned_d_outs;
    SHARED float logarithms[TILE], deltas[TILE];
    const Shape shape = {sequence, heads, kv_heads};
    const int kv_head = (int)blockIdx.y, first = (int)blockIdx.x * TILE, key = first + 16 * (int)(threadIdx.x / WAVE) + lane_row();
    const bool exists = key < sequence;
    const u64 row = exists ? (u64)key : 0, key_at = shape.head(heads + kv_head) + row * shape.width();
    const u64 value_at = shape.head(heads + kv_heads + kv_head) + row * shape.width();
    bf16x8 keys[STEPS], values[STEPS];
    load_own(qkv + key_at, exists, keys);
    load_own(qkv + value_at, exists, values);
    f32x4 d_keys[SLICES], d_values[SLICES];
    clear(d_keys);
    clear(d_values);
    const int group = heads / kv_heads;
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int tile = first; tile < sequence; tile += TILE) {
            BARRIER();
            stage(qkv + shape.head(head), shape.width(), tile, sequence, queries, turned_queries);
            stage(d_out + shape.out_head(head), shape.out_width(), tile, sequence, d_outs, turned_d_outs);
            if (threadIdx.x < TILE) {
                int query = tile + (int)threadIdx.x;
                u64 at = shape.statistics(head) + (u64)(query < sequence ? query : 0);
                logarithms[threadIdx.x] = query < sequence ? logsumexp[at] * LOG2_E : 0.0f;
                deltas[threadIdx.x] = query < sequence ? delta[at] : 0.0f;
            }
            BARRIER();
            f32x4 p[PARTS], d[PARTS];
            scores(queries, keys, p);
            scores(d_outs, values, d);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    int place = 16 * part + 4 * lane_group() + i, query = tile + place;
                    p[part][i] = probability(p[part][i], logarithms[place], key <= query && query < sequence);
                    d[part][i] = p[part][i] * (d[part][i] - deltas[place]);
                }
            }
            accumulate(turned_d_outs, p, d_values);
            accumulate(turned_queries, d, d_keys);
        }
    }
    if (!exists) return;
    store_own(d_qkv + key_at, d_keys, SCALE);
    store_own(d_qkv + value_at, d_values, 1.0f);
}
