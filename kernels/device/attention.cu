// Causal attention with grouped key and value heads, forward and backward, in BF16 with F32 accumulation.
//
// What this is: three kernels that never write scores or probabilities to memory. The forward pass keeps one logarithm a row
// (arXiv 2205.14135); the backward pass recomputes the probabilities from it (arXiv 2307.08691), once for the gradient of the
// queries and once for those of keys and values. That costs two products more than summing dQ across blocks with atomics, and
// buys results that are the same bits from run to run: every sum has one order, fixed by the shape alone. For D = 128 on sm_90a
// attention_fused.cu has a backward pass that makes no product twice, and keeps that promise.
// What this is not: rotary embedding (the queries and keys come in rotated), dropout, or any mask but the causal one.
//
// Compile with -DHEAD_DIM=D, D a multiple of 16, 16 <= D <= 128. Built for sm_90a with D = 64 or 128 the products are wgmma, else
// mma.sync (sm_80 and later).
//
// Layouts (row-major; token t of batch entry b is row b * sequence + t):
//   qkv, d_qkv          BF16 [batch * sequence, (heads + 2 * kv_heads) * D]: query heads | key heads | value heads
//   out, d_out          BF16 [batch * sequence, heads * D]
//   logsumexp, delta    F32 [batch, heads, sequence]; logsumexp is a natural logarithm, delta = rowsum(d_out * out)
// Query head h reads key and value head h / (heads / kv_heads); heads must be a multiple of kv_heads. Softmax scale: 1 / sqrt(D).
// qkv, out, d_out and d_qkv must be 16-byte aligned. sequence >= 1; batch, heads and kv_heads at most 65535;
// (heads + 2 * kv_heads) * D < 2^24; sequence < 2^31 - 256.
//
// Launch. T = 8192 * ceil(D / 64) bytes is a tile of 64 rows; W warpgroups a block and S stages are in the table below.
//   kernel                  grid (x, y, z)                                     block      dynamic shared bytes
//   attention_forward       (ceil(sequence / (64 * WF)), heads, batch)         128 * WF   1024 + T * (WF + 2 * S)
//   attention_backward_q    (ceil(sequence / (64 * WQ)), heads, batch)         128 * WQ   1024 + T * (2 * WQ + 2 * S)
//   attention_backward_kv   (ceil(sequence / (64 * WK)), kv_heads, batch)      128 * WK   1024 + T * (2 * WK + 2 * S) + 640 * S
//
//   built for                     WF  WQ  WK  S    shared bytes of forward, backward_q, backward_kv
//   D <= 64, any                   1   1   1  2    41984, 50176, 51456
//   D = 128, sm_90a (wgmma)        3   3   2  4    181248, 230400, 200192 (SPLIT)
//   other D > 64, or not sm_90a    3   2   2  2    115712, 132096, 133376
// Run backward_q before backward_kv: it also writes delta, which backward_kv reads. Together they write every element of d_qkv. Neither
// is there for D = 128 on sm_90a, unless SPLIT is defined.
// The same numbers stand in the constant array `attention_launch` (see there), which a launcher may read instead.
//
// Rounding: probabilities P and their gradients dS are rounded to BF16 for the products that they enter; outputs are rounded to
// BF16; everything else is F32. NaN in an input reaches every output that depends on it (and, inside one 64 x 64 tile on the
// diagonal, rows that the mask hides, because 0 * NaN is NaN).
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: attention_forward 168
// registers: attention_backward_q 168
// registers: attention_backward_kv 255

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif

#include "attention.h"

// Whether attention_fused.cu has the backward pass.
#if WGMMA && HEAD_DIM == 128 && !defined(SPLIT)
#define FUSED 1
#else
#define FUSED 0
#endif

// ---- Shapes of the blocks ----
// A warpgroup (128 threads) owns 64 rows: queries in the forward pass and in backward_q, keys in backward_kv. It walks over the
// other side in tiles of 64. *_BLOCKS is how many blocks a multiprocessor should hold; it bounds registers a thread.
// *_STAGES is the depth of the ring of tiles (see Ring).
#if WGMMA && HEAD_DIM > 64
#define LONG_STAGES 4
#else
#define LONG_STAGES 2
#endif
#ifndef FORWARD_STAGES
#define FORWARD_STAGES LONG_STAGES
#endif
#ifndef FORWARD_WARPGROUPS
#define FORWARD_WARPGROUPS (HEAD_DIM <= 64 ? 1 : 3)
#endif
#ifndef FORWARD_BLOCKS
#define FORWARD_BLOCKS (HEAD_DIM <= 64 ? 4 : 1)
#endif
#ifndef FORWARD_QUERY_REGISTERS
#define FORWARD_QUERY_REGISTERS (HEAD_DIM <= 64)
#endif
#ifndef Q_WARPGROUPS
#define Q_WARPGROUPS (HEAD_DIM <= 64 ? 1 : WGMMA ? 3 : 2)
#endif
#ifndef Q_BLOCKS
#define Q_BLOCKS (HEAD_DIM > 64 ? 1 : WGMMA ? 4 : 3)
#endif
#ifndef Q_STAGES
#define Q_STAGES LONG_STAGES
#endif
#ifndef KV_WARPGROUPS
#define KV_WARPGROUPS (HEAD_DIM <= 64 ? 1 : 2)
#endif
#ifndef KV_BLOCKS
#define KV_BLOCKS (HEAD_DIM > 64 ? 1 : WGMMA ? 3 : 2)
#endif

#ifndef KV_STAGES
#define KV_STAGES LONG_STAGES
#endif

#define FORWARD_SHARED (1024 + TILE_BYTES * (FORWARD_WARPGROUPS + 2 * FORWARD_STAGES))
#define Q_SHARED (1024 + TILE_BYTES * (2 * Q_WARPGROUPS + 2 * Q_STAGES))
#define KV_SHARED (1024 + TILE_BYTES * (2 * KV_WARPGROUPS + 2 * KV_STAGES) + 640 * KV_STAGES)

// Rows of a block, threads of a block, dynamic shared bytes: of attention_forward, attention_backward_q, attention_backward_kv.
extern "C" __constant__ int attention_launch[9] = {
    ROWS * FORWARD_WARPGROUPS, 128 * FORWARD_WARPGROUPS, FORWARD_SHARED,
    ROWS * Q_WARPGROUPS, 128 * Q_WARPGROUPS, Q_SHARED,
    ROWS * KV_WARPGROUPS, 128 * KV_WARPGROUPS, KV_SHARED,
};

// ---- Forward ----

// Hides the keys after each query of a tile on the diagonal.
DEVICE void mask_scores(float (&s)[32]) {
    int lane = threadIdx.x & 31, row = ((threadIdx.x >> 5) & 3) * 16 + (lane >> 2), column = 2 * (lane & 3);
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (column + 8 * (i / 4) + i % 2 > row + 8 * (i / 2 % 2)) s[i] = MINUS_INFINITY;
}

// How far scores, in powers of two, may rise above a row's reference before the sums are scaled down to a new one. Any reference
// gives the same quotient; 2^8 keeps every sum far from overflow and spares most tiles the multiplication.
__device__ constexpr float SLACK = 8.0f / SCALE_LOG2;

// Online softmax of one tile for the thread's two rows: s becomes exp(s - reference). Returns whether a reference of the warp's rows
// moved; `alpha` is what the earlier sums of a row are to be multiplied by.
DEVICE bool softmax_tile(float (&s)[32], float (&reference)[2], float (&sum)[2], float (&alpha)[2]) {
    float m[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        m[half] = fmaxf(s[2 * half], s[2 * half + 1]);
#pragma unroll
        for (int n = 1; n < 8; n++) m[half] = fmaxf(m[half], fmaxf(s[4 * n + 2 * half], s[4 * n + 2 * half + 1]));
        m[half] = fmaxf(m[half], __shfl_xor_sync(0xffffffffu, m[half], 1));
        m[half] = fmaxf(m[half], __shfl_xor_sync(0xffffffffu, m[half], 2));
    }
    const bool moved = __any_sync(0xffffffffu, m[0] > reference[0] + SLACK || m[1] > reference[1] + SLACK);
    if (moved) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float to = fmaxf(m[half], reference[half]);
            // A row of nothing but -inf: -inf - -inf would be NaN.
            alpha[half] = exp2_approx((reference[half] - (to == MINUS_INFINITY ? 0.0f : to)) * SCALE_LOG2);
            reference[half] = to;
            sum[half] *= alpha[half];
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float offset = reference[half] == MINUS_INFINITY ? 0.0f : -reference[half] * SCALE_LOG2;
        float total[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float& x = s[4 * n + 2 * half + i];
                x = exp2_approx(fmaf(x, SCALE_LOG2, offset));
                total[i] += x;
            }
        sum[half] += total[0] + total[1];
    }
    return moved;
}

DEVICE void scale_rows(float (&d)[HEAD_DIM / 2], const float (&alpha)[2]) {
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) d[i] *= alpha[i / 2 % 2];
}

extern "C" __global__ void __launch_bounds__(128 * FORWARD_WARPGROUPS, FORWARD_BLOCKS)
attention_forward(const bf16* __restrict__ qkv, bf16* __restrict__ out, float* __restrict__ logsumexp, int sequence, int heads,
                  int kv_heads) {
    constexpr int W = FORWARD_WARPGROUPS, THREADS = 128 * W, STAGES = FORWARD_STAGES;
    extern __shared__ unsigned char memory[];
    unsigned char* tiles = aligned_shared(memory);
    __shared__ u64 ring_barriers[2];
    const Ring<STAGES, THREADS> ring(ring_barriers);
    const u32 queries = shared_address(tiles), ring_tiles = queries + W * TILE_BYTES;
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

    // The longest blocks start first.
    const int block = gridDim.x - 1 - blockIdx.x, head = blockIdx.y;
    const Place p = place(head, kv_head_of(head, heads, kv_heads), blockIdx.z, sequence, heads, kv_heads);
    const Copies<THREADS> copies(p.qkv_stride);
    const bf16* rows = qkv + p.qkv_row;
    const int tiles_all = (sequence + ROWS - 1) / ROWS;
    const int own = block * W + warpgroup;  // the warpgroup's queries, and the last tile of keys that they see
    const int mine = own < tiles_all ? own : -1, last = min(block * W + W - 1, tiles_all - 1);

    // Step t multiplies tile t's keys and tile t - 1's values, which share a stage; the last step has values only.
    auto load_step = [&](int t) {
        const u32 to = ring_tiles + t % STAGES * 2 * TILE_BYTES;
        if (t <= last) copies.load(to, rows + p.key_column, t * ROWS, sequence);
        if (t > 0 && t <= last + 1) copies.load(to + TILE_BYTES, rows + p.value_column, (t - 1) * ROWS, sequence);
        copies_commit();
    };
#pragma unroll
    for (int w = 0; w < W; w++)
        copies.load(queries + w * TILE_BYTES, rows + p.query_column, (block * W + w) * ROWS, sequence);
#pragma unroll
    for (int t = 0; t < ring.AHEAD; t++) load_step(t);
    ring.start();

    float o[HEAD_DIM / 2], s[32], reference[2] = {MINUS_INFINITY, MINUS_INFINITY}, sum[2] = {0, 0}, alpha[2] = {1, 1};
    u32 probabilities[4][4];
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) o[i] = 0;

    ring.enter(0);
    load_step(ring.AHEAD);
#if FORWARD_QUERY_REGISTERS
    u32 query[HEAD_DIM / 16][4];
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) load_a(query[k], queries + warpgroup * TILE_BYTES, k);
#else
    const u32 query = queries + warpgroup * TILE_BYTES;
#endif
    if (mine >= 0) {
        scores_product(s, query, ring_tiles);
        product_wait<0>();
        pin(s);
        if (mine == 0) mask_scores(s);
        softmax_tile(s, reference, sum, alpha);
        pack_operand(probabilities, s);
    }
    for (int t = 1; t <= last; t++) {
        ring.enter(t);
        load_step(t + ring.AHEAD);
        const u32 key = ring_tiles + t % STAGES * 2 * TILE_BYTES, value = key + TILE_BYTES;
        if (t <= mine) {
            // The softmax of this tile runs while the tensor cores still multiply the previous tile's probabilities.
            scores_product(s, query, key);
            rows_product(o, probabilities, value);
            product_wait<1>();
            pin(s);
            if (t == mine) mask_scores(s);
            const bool moved = softmax_tile(s, reference, sum, alpha);
            hold(sum[0] + sum[1]);
            product_wait<0>();
            pin(o);
            pack_operand(probabilities, s);
            if (moved) scale_rows(o, alpha);
        } else if (t == mine + 1 && mine >= 0) {
            rows_product(o, probabilities, value);
            product_wait<0>();
            pin(o);
        }
    }
    ring.enter(last + 1);
    if (mine < 0) return;
    if (mine == last) {
        rows_product(o, probabilities, ring_tiles + (last + 1) % STAGES * 2 * TILE_BYTES + TILE_BYTES);
        product_wait<0>();
        pin(o);
    }

    float inverse[2];
    const int lane = threadIdx.x & 31, first = mine * ROWS, row = first + ((threadIdx.x >> 5) & 3) * 16 + (lane >> 2);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = sum[half];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        inverse[half] = 1.0f / total;
        if ((lane & 3) == 0 && row + 8 * half < sequence)
            logsumexp[p.statistics + row + 8 * half] = fmaf(reference[half], SCALE_LOG2, log2_approx(total)) * LN_2;
    }
    store_tile(o, inverse[0], inverse[1], tiles + warpgroup * TILE_BYTES, out + p.out_row + head * HEAD_DIM, p.out_stride, first,
               sequence);
}

#if !FUSED

// ---- Backward, queries ----

// Half of a row of out and of d_out, which two neighbouring threads share.
struct RowHalves {
    uint4 out[HEAD_DIM / 16], d_out[HEAD_DIM / 16];

    __device__ __forceinline__ RowHalves(const bf16* out_row, const bf16* d_out_row, int part) {
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 16; i++) {
            out[i] = *(const uint4*)(out_row + (2 * i + part) * 8);
            d_out[i] = *(const uint4*)(d_out_row + (2 * i + part) * 8);
        }
    }
    // Their product summed over the row, in both threads.
    __device__ __forceinline__ float delta() const {
        float total = 0;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 16; i++) {
            const u32 a[4] = {out[i].x, out[i].y, out[i].z, out[i].w}, b[4] = {d_out[i].x, d_out[i].y, d_out[i].z, d_out[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++) total = fmaf(high_half(a[j]), high_half(b[j]), fmaf(low_half(a[j]), low_half(b[j]), total));
        }
        return total + __shfl_xor_sync(0xffffffffu, total, 1);
    }
};

extern "C" __global__ void __launch_bounds__(128 * Q_WARPGROUPS, Q_BLOCKS)
attention_backward_q(const bf16* __restrict__ qkv, const bf16* __restrict__ out, const bf16* __restrict__ d_out,
                     const float* __restrict__ logsumexp, float* __restrict__ delta, bf16* __restrict__ d_qkv, int sequence, int heads,
                     int kv_heads) {
    constexpr int W = Q_WARPGROUPS, THREADS = 128 * W, STAGES = Q_STAGES;
    extern __shared__ unsigned char memory[];
    unsigned char* tiles = aligned_shared(memory);
    __shared__ u64 ring_barriers[2];
    const Ring<STAGES, THREADS> ring(ring_barriers);
    const u32 queries = shared_address(tiles), gradients = queries + W * TILE_BYTES, ring_tiles = gradients + W * TILE_BYTES;
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

    const int block = gridDim.x - 1 - blockIdx.x, head = blockIdx.y;
    const Place p = place(head, kv_head_of(head, heads, kv_heads), blockIdx.z, sequence, heads, kv_heads);
    const Copies<THREADS> copies(p.qkv_stride), d_copies(p.out_stride);
    const bf16 *rows = qkv + p.qkv_row, *d_rows = d_out + p.out_row + p.query_column;
    const int tiles_all = (sequence + ROWS - 1) / ROWS;
    const int own = block * W + warpgroup;
    const int mine = own < tiles_all ? own : -1, last = min(block * W + W - 1, tiles_all - 1);

    // Rows past the end repeat the last row's delta and logarithm; what they give is not stored.
    const int lane = threadIdx.x & 31, thread = threadIdx.x & 127, first = own * ROWS;
    float row_d[2], row_log[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = min(first + ((threadIdx.x >> 5) & 3) * 16 + (lane >> 2) + 8 * half, sequence - 1);
        row_log[half] = logsumexp[p.statistics + row];
    }
    const int delta_row = min(first + thread / 2, sequence - 1);
    const long long delta_offset = delta_row * p.out_stride;
    const RowHalves halves(out + p.out_row + p.query_column + delta_offset, d_rows + delta_offset, thread & 1);

#pragma unroll
    for (int w = 0; w < W; w++) {
        copies.load(queries + w * TILE_BYTES, rows + p.query_column, (block * W + w) * ROWS, sequence);
        d_copies.load(gradients + w * TILE_BYTES, d_rows, (block * W + w) * ROWS, sequence);
    }
    auto load_step = [&](int t) {
        const u32 to = ring_tiles + t % STAGES * 2 * TILE_BYTES;
        if (t <= last) {
            copies.load(to, rows + p.key_column, t * ROWS, sequence);
            copies.load(to + TILE_BYTES, rows + p.value_column, t * ROWS, sequence);
        }
        copies_commit();
    };
#pragma unroll
    for (int t = 0; t < ring.AHEAD; t++) load_step(t);

    const float shared_delta = halves.delta();
    if (first + thread / 2 < sequence && (thread & 1) == 0) delta[p.statistics + first + thread / 2] = shared_delta;
    // The warp's rows are its own threads' rows: lane 2 r holds row r of 16.
#pragma unroll
    for (int half = 0; half < 2; half++) {
        row_d[half] = __shfl_sync(0xffffffffu, shared_delta, 2 * ((lane >> 2) + 8 * half));
        row_log[half] *= LOG2_E;
    }

    float dq[HEAD_DIM / 2];
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) dq[i] = 0;
    const u32 query = queries + warpgroup * TILE_BYTES, gradient = gradients + warpgroup * TILE_BYTES;
    ring.start();
    for (int t = 0; t <= last; t++) {
        ring.enter(t);
        load_step(t + ring.AHEAD);
        const u32 key = ring_tiles + t % STAGES * 2 * TILE_BYTES, value = key + TILE_BYTES;
        if (t <= mine) {
            float s[32], dp[32];
            scores_product(s, query, key);
            scores_product(dp, gradient, value);
            product_wait<1>();
            pin(s);
            if (t == mine) mask_scores(s);
#pragma unroll
            for (int i = 0; i < 32; i++) s[i] = exp2_approx(fmaf(s[i], SCALE_LOG2, -row_log[i / 2 % 2]));
            product_wait<0>();
            pin(dp);
#pragma unroll
            for (int i = 0; i < 32; i++) s[i] *= dp[i] - row_d[i / 2 % 2];
            u32 ds[4][4];
            pack_operand(ds, s);
            rows_product(dq, ds, key);
            product_wait<0>();
            pin(dq);
        }
    }
    __syncthreads();
    if (mine >= 0)
        store_tile(dq, SCALE, SCALE, tiles + warpgroup * TILE_BYTES, d_qkv + p.qkv_row + p.query_column, p.qkv_stride, first, sequence);
}

// ---- Backward, keys and values ----
// Everything is transposed: rows are keys, columns are queries, so that P^T and dS^T come out of one product in the registers
// that the next one takes them from.

extern "C" __global__ void __launch_bounds__(128 * KV_WARPGROUPS, KV_BLOCKS)
attention_backward_kv(const bf16* __restrict__ qkv, const bf16* __restrict__ d_out, const float* __restrict__ logsumexp,
                      const float* __restrict__ delta, bf16* __restrict__ d_qkv, int sequence, int heads, int kv_heads) {
    constexpr int W = KV_WARPGROUPS, THREADS = 128 * W, STAGES = KV_STAGES;
    extern __shared__ unsigned char memory[];
    unsigned char* tiles = aligned_shared(memory);
    __shared__ u64 ring_barriers[2];
    const Ring<STAGES, THREADS> ring(ring_barriers);
    const u32 keys = shared_address(tiles), values = keys + W * TILE_BYTES, ring_tiles = values + W * TILE_BYTES;
    // [stage][logsumexp, delta][lane % 4][16 of its columns, 4 unused]
    unsigned char* statistics = tiles + (2 * W + 2 * STAGES) * TILE_BYTES;
    const u32 statistics_address = shared_address(statistics);
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

    const int block = blockIdx.x, kv_head = blockIdx.y, group = heads == kv_heads ? 1 : heads / kv_heads, head_first = kv_head * group;
    const Place p = place(head_first, kv_head, blockIdx.z, sequence, heads, kv_heads);
    const Copies<THREADS> copies(p.qkv_stride), d_copies(p.out_stride);
    const bf16 *rows = qkv + p.qkv_row, *d_rows = d_out + p.out_row;
    const int tiles_all = (sequence + ROWS - 1) / ROWS, tile_first = block * W;
    const int mine = tile_first + warpgroup;  // at or past tiles_all: this warpgroup has no keys

    // One step is one tile of queries of one head: head after head, each from the diagonal to the end.
    const int steps_head = tiles_all - tile_first, steps = steps_head * group;
    const u32 statistics_to = statistics_address + (threadIdx.x / 2 % 4 * 20 + threadIdx.x / 8 * 2 + threadIdx.x % 2) * 4;
    int ahead_head = 0, ahead_t = tile_first;  // the next step to load
    auto load_step = [&](int step) {
        if (step < steps) {
            const int stage = step % STAGES, first = ahead_t * ROWS;
            const u32 to = ring_tiles + stage * 2 * TILE_BYTES;
            copies.load(to, rows + p.query_column + ahead_head * HEAD_DIM, first, sequence);
            d_copies.load(to + TILE_BYTES, d_rows + p.query_column + ahead_head * HEAD_DIM, first, sequence);
            if (threadIdx.x < 64) {
                const long long from = p.statistics + (long long)ahead_head * sequence + first;
                const bool valid = threadIdx.x < sequence - first;
                copy_4(statistics_to + stage * 640, logsumexp + from + threadIdx.x, valid);
                copy_4(statistics_to + stage * 640 + 320, delta + from + threadIdx.x, valid);
            }
        }
        copies_commit();
        if (++ahead_t == tiles_all) {
            ahead_t = tile_first;
            ahead_head++;
        }
    };

#pragma unroll
    for (int w = 0; w < W; w++) {
        copies.load(keys + w * TILE_BYTES, rows + p.key_column, (tile_first + w) * ROWS, sequence);
        copies.load(values + w * TILE_BYTES, rows + p.value_column, (tile_first + w) * ROWS, sequence);
    }
#pragma unroll
    for (int step = 0; step < ring.AHEAD; step++) load_step(step);
    ring.start();

    float dk[HEAD_DIM / 2], dv[HEAD_DIM / 2];
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) dk[i] = dv[i] = 0;
    const u32 key = keys + warpgroup * TILE_BYTES, value = values + warpgroup * TILE_BYTES;
    const int lane = threadIdx.x & 31, row = ((threadIdx.x >> 5) & 3) * 16 + (lane >> 2), column = 2 * (lane & 3);

    int t = tile_first;
    for (int step = 0; step < steps; step++) {
        ring.enter(step);
        load_step(step + ring.AHEAD);
        const int stage = step % STAGES, now = t;
        if (++t == tiles_all) t = tile_first;
        if (now < mine || mine >= tiles_all) continue;
        const u32 query = ring_tiles + stage * 2 * TILE_BYTES, gradient = query + TILE_BYTES;
        const float4* of_columns = (const float4*)(statistics + stage * 640 + (lane & 3) * 80);

        float s[32], dp[32], of[16];
        load_statistics(of, of_columns);
        scores_product(s, key, query);
        scores_product(dp, value, gradient);
        product_wait<1>();
        pin(s);
#pragma unroll
        for (int i = 0; i < 32; i++) s[i] = exp2_approx(fmaf(s[i], SCALE_LOG2, of[i / 4 * 2 + i % 2] * -LOG2_E));
        load_statistics(of, of_columns + 20);
        if (now == mine) {
#pragma unroll
            for (int i = 0; i < 32; i++)
                if (column + 8 * (i / 4) + i % 2 < row + 8 * (i / 2 % 2)) s[i] = 0;
        }
        u32 a[4][4], b[4][4];
        pack_operand(a, s);
        rows_product(dv, a, gradient);
        product_wait<1>();
        pin(dp);
#pragma unroll
        for (int i = 0; i < 32; i++) s[i] *= dp[i] - of[i / 4 * 2 + i % 2];
        pack_operand(b, s);
        rows_product(dk, b, query);
        product_wait<0>();
        pin(dv);
        pin(dk);
    }
    __syncthreads();
    if (mine < tiles_all) {
        bf16* target = d_qkv + p.qkv_row;
        store_tile(dk, SCALE, SCALE, tiles + warpgroup * TILE_BYTES, target + p.key_column, p.qkv_stride, mine * ROWS, sequence);
        store_tile(dv, 1.0f, 1.0f, tiles + (W + warpgroup) * TILE_BYTES, target + p.value_column, p.qkv_stride, mine * ROWS, sequence);
    }
}

#endif
