// Causal attention's backward pass for heads of 128 on sm_90a, in one kernel that makes each of its five products once.
//
// A block takes 128 keys and walks over the queries that see them, 64 at a time, for each query head of its group. dK and dV stay
// in registers. What it adds to dQ goes to an F32 sum in global memory, by the bulk copy engine. Each tile of queries has its
// blocks add in one order, which the shape alone fixes, so results are the same bits from run to run: a count for each tile says
// whose turn it is. The order is such that no block waits long: see Item.
//
// What attention.cu says of layouts, sizes, rounding and NaN holds here, with one difference: a NaN on the diagonal reaches hidden
// rows inside a block of 128 keys and 128 queries.
//
// Launch, in this order:
//   kernel                     grid                                                  block   dynamic shared bytes
//   attention_delta            ceil(batch * sequence * heads / 16)                   256     0
//   attention_backward         ceil(sequence / 128) * kv_heads * batch               384     FUSED_SHARED
//   attention_backward_store   (2 * ceil(sequence / 64), heads, batch)               128     0
//   d_queries   F32 [batch, heads, ceil(sequence / 64), 64 * 128], the sums of dQ in the order of a product's accumulators
//   turns       u32 [1 + batch * heads * ceil(sequence / 64)]: the next ticket, and how often each tile has been added to
// Dynamic shared bytes stand in the constant `attention_fused_shared`.
//
// registers: attention_delta 64
// registers: attention_backward 168
// registers: attention_backward_store 80

#define HEAD_DIM 128

#include "attention.h"

#if !WGMMA
#error "attention_fused.cu is for sm_90a"
#endif

// Stages of the ring of tiles: one is multiplied while the next comes in.
#define DEPTH 2
// Registers of a thread, from 168 each at the start.
#define CONSUMER_REGISTERS 232
#define PRODUCER_REGISTERS 40

// Warpgroups that multiply: each has 64 of the block's keys. One more brings tiles in and sums of dQ out.
#define CONSUMERS 2
#define THREADS (128 * (CONSUMERS + 1))
#define SIGNAL_BYTES (ROWS * 128)        // dS of one warpgroup: 64 keys, 64 queries
#define SUM_BYTES (ROWS * HEAD_DIM * 4)  // what a block adds to dQ of one tile
#define STATISTICS_BYTES 640             // logarithms and deltas of one tile

#define VALUES_AT (CONSUMERS * TILE_BYTES)
#define RING_AT (2 * CONSUMERS * TILE_BYTES)
#define SIGNALS_AT (RING_AT + 2 * DEPTH * TILE_BYTES)
#define SUMS_AT (SIGNALS_AT + 2 * CONSUMERS * SIGNAL_BYTES)
#define STATISTICS_AT (SUMS_AT + 2 * SUM_BYTES)
#define FUSED_SHARED (1024 + STATISTICS_AT + DEPTH * STATISTICS_BYTES)

extern "C" __constant__ int attention_fused_shared = FUSED_SHARED;

// ---- Barriers ----

DEVICE void barrier_set(u32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void barrier_arrive(u32 barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
// One arrival for the warp, after what all its threads did before.
DEVICE void warp_arrive(u32 barrier) {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) barrier_arrive(barrier);
}
// Until the phase of this parity is over; the phase before the first counts as one of parity 1.
DEVICE void barrier_wait(u32 barrier, int parity) {
    u32 done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    } while (!done);
}
// What this thread wrote to shared memory is there for wgmma and the bulk copy engine once the arrival that follows is seen.
DEVICE void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

struct Barriers {
    u64 full[DEPTH], empty[DEPTH];  // tiles of a stage have come; all warps have done with them
    u64 signals[2];                   // dS of both warpgroups is in shared memory
    u64 sum_full[2], sum_empty[2];    // a tile's part of dQ is in shared memory; it has left
};

// ---- Which block works on what ----

// A block's keys and head. Blocks take tickets, so that what a block waits for has an earlier ticket and is at work or done.
//
// Of a head's key blocks the upper half comes first, the last block first of all: those are short, and each is ahead of the next
// where both add to one tile. The lower half follows from block 0 on, which is the longest: where block 0 goes to a multiprocessor
// that has done the shortest, block 1 to that of the next and so on, all end together and each starts after the one before it. So a
// tile is added to by the upper blocks in falling order, then by the lower ones in rising order.
struct Item {
    int block, kv_head, batch, lower;

    DEVICE_MEMBER Item(int ticket, int tiles, int kv_heads, int batches) {
        const int blocks = (tiles + 1) / 2, pairs = kv_heads * batches;
        lower = blocks / 2;
        // As many heads side by side as fill the multiprocessors of an H100 or H200.
        const int together = min(pairs, max(1, 132 / max(1, blocks - lower)));
        const int chunk = ticket / (together * blocks), rest = ticket - chunk * together * blocks;
        const int members = min(together, pairs - chunk * together);
        const int phase = rest / members, pair = chunk * together + rest % members;
        block = phase < blocks - lower ? blocks - 1 - phase : phase - (blocks - lower);
        kv_head = pair % kv_heads;
        batch = pair / kv_heads;
    }
    // How many blocks add to a tile of queries before this one.
    DEVICE_MEMBER int position(int tile) const {
        const int last = tile / 2;
        return block >= lower ? last - block : max(0, last - lower + 1) + block;
    }
};

// ---- Products ----

// The first step of a product overwrites its accumulators. It is written so that the assembler knows: were they an input, what last
// wrote them would have to wait for the products at work.
#define FRESH(d) \
    "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), "=f"(d[8]), "=f"(d[9]), \
    "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), \
    "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), \
    "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31])

// d = A B^T over HEAD_DIM, tiles A and B.
DEVICE void fresh_scores(float (&d)[32], u32 a, u32 b) {
    product_fence();
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n" WGMMA_64 "%32, %33, p, 1, 1, 0, 0;\n}"
                 : FRESH(d) : "l"(descriptor(a, 0)), "l"(descriptor(b, 0)));
#pragma unroll
    for (int k = 1; k < HEAD_DIM / 16; k++) {
        const u32 offset = (k >> 2) * PANEL_BYTES + (k & 3) * 32;
        wgmma_shared(d, descriptor(a, offset), descriptor(b, offset), 1);
    }
    product_commit();
}

// d = dS K over the block's keys: `signals` dS as [keys, queries], `keys` the panel of the warpgroup's 64 columns of K.
DEVICE void queries_product(float (&d)[32], u32 signals, u32 keys) {
    product_fence();
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n" WGMMA_64 "%32, %33, p, 1, 1, 1, 1;\n}"
                 : FRESH(d) : "l"(descriptor(signals, 0)), "l"(descriptor(keys, 0)));
#pragma unroll
    for (int k = 1; k < 4 * CONSUMERS; k++)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" WGMMA_64 "%32, %33, p, 1, 1, 1, 1;\n}"
                     : ACCUMULATORS(d)
                     : "l"(descriptor(signals, (k >> 2) * SIGNAL_BYTES + (k & 3) * 2048)),
                       "l"(descriptor(keys, (k >> 2) * TILE_BYTES + (k & 3) * 2048)));
    product_commit();
}

// The warp's 16 rows of a 64 x 64 operand, as one panel of 64 columns.
DEVICE void store_operand(u32 panel, const u32 (&a)[4][4]) {
    const int lane = threadIdx.x & 31, row = ((threadIdx.x >> 5) & 3) * 16 + (lane & 15);
#pragma unroll
    for (int k = 0; k < 4; k++)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(panel + tile_offset(row, 2 * k + (lane >> 4))),
                     "r"(a[k][0]), "r"(a[k][1]), "r"(a[k][2]), "r"(a[k][3]) : "memory");
}

// ---- The warps that bring tiles in and sums out ----

// A block's steps: tile after tile from its own diagonal to the end, head after head.
struct Walk {
    int head, tile, first, tiles;

    DEVICE_MEMBER Walk(int first_tile, int tiles_all) : head(0), tile(first_tile), first(first_tile), tiles(tiles_all) {}
    DEVICE_MEMBER void next() {
        if (++tile == tiles) {
            tile = first;
            head++;
        }
    }
};

// Two warps: the tiles of queries and of d_out, and their logarithms and deltas as [stage][logsumexp, delta][lane % 4][16 of its
// columns, 4 unused].
DEVICE void bring_tiles(const bf16* queries, const bf16* gradients, long long query_stride, long long gradient_stride,
                        const float* logsumexp, const float* delta, u32 ring, u32 statistics, u32 full, u32 empty, Walk walk, int steps,
                        int sequence) {
    const int thread = threadIdx.x & 63, chunk = thread & 15, row = thread >> 4;
    const u32 even = tile_offset(row, chunk), odd = tile_offset(row + 4, chunk) - 512;
    const u32 column = (thread / 2 % 4 * 20 + thread / 8 * 2 + thread % 2) * 4;
    for (int step = 0; step < steps; step++) {
        const int stage = step % DEPTH;
        barrier_wait(empty + 8 * stage, (step / DEPTH & 1) ^ 1);
        const u32 to = ring + stage * 2 * TILE_BYTES, to_statistics = statistics + stage * STATISTICS_BYTES + column;
        const long long of_head = (long long)walk.head * sequence + walk.tile * ROWS + thread;
        copy_4(to_statistics, logsumexp + of_head, walk.tile * ROWS + thread < sequence);
        copy_4(to_statistics + STATISTICS_BYTES / 2, delta + of_head, walk.tile * ROWS + thread < sequence);
        const int first = walk.tile * ROWS + row;
        const bf16* from = queries + first * query_stride + walk.head * HEAD_DIM + chunk * 8;
        const bf16* from_gradients = gradients + first * gradient_stride + walk.head * HEAD_DIM + chunk * 8;
#pragma unroll 4
        for (int i = 0; i < ROWS / 4; i++) {
            const u32 at = to + i * 512 + (i & 1 ? odd : even);
            const bool valid = first + 4 * i < sequence;
            copy_16(at, from, valid);
            copy_16(at + TILE_BYTES, from_gradients, valid);
            from += 4 * query_stride;
            from_gradients += 4 * gradient_stride;
        }
        copies_commit();
        copies_landed<0>();
        warp_arrive(full + 8 * stage);
        walk.next();
    }
}

// Two threads in turns, step by step: each tile's part of dQ goes to its sum when it is this block's turn.
DEVICE void bring_sums_out(float* d_queries, u32* turns, u32 sums, u32 sum_full, u32 sum_empty, const Item& item, Walk walk, int steps,
                           int first) {
    if (first) walk.next();
    for (int step = first; step < steps; step += 2) {
        const int tile = walk.head * walk.tiles + walk.tile;
        float* const to = d_queries + (long long)tile * (ROWS * HEAD_DIM);
        const u32 position = item.position(walk.tile);
        u32 turn = 0;
        while (position != 0) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(turn) : "l"(turns + tile) : "memory");
            if (turn == position) break;
            __nanosleep(20);
        }
        barrier_wait(sum_full, step >> 1 & 1);
        asm volatile("fence.proxy.async;" ::: "memory");
        if (position == 0)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(sums), "r"(SUM_BYTES) : "memory");
        else
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(sums), "r"(SUM_BYTES)
                         : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
        barrier_arrive(sum_empty);
        asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async;" ::: "memory");
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(turns + tile), "r"(position + 1) : "memory");
        walk.next();
        walk.next();
    }
}

// ---- Kernels ----

extern "C" __global__ void __launch_bounds__(256)
attention_delta(const bf16* __restrict__ out, const bf16* __restrict__ d_out, float* __restrict__ delta, u32* __restrict__ turns,
                int batch, int sequence, int heads) {
    const long long thread = (long long)blockIdx.x * 256 + threadIdx.x, row = thread / 16, rows = (long long)batch * sequence * heads;
    const int tiles = (sequence + ROWS - 1) / ROWS;
    if (thread <= (long long)batch * heads * tiles) turns[thread] = 0;
    if (row >= rows) return;
    const uint4 x = *(const uint4*)(out + thread * 8), y = *(const uint4*)(d_out + thread * 8);
    const u32 a[4] = {x.x, x.y, x.z, x.w}, b[4] = {y.x, y.y, y.z, y.w};
    float total = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) total = fmaf(high_half(a[i]), high_half(b[i]), fmaf(low_half(a[i]), low_half(b[i]), total));
#pragma unroll
    for (int distance = 8; distance; distance /= 2) total += __shfl_xor_sync(0xffffffffu, total, distance, 16);
    if ((threadIdx.x & 15) == 0) {
        const long long token = row / heads;
        delta[(token / sequence * heads + row % heads) * sequence + token % sequence] = total;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention_backward(const bf16* __restrict__ qkv, const bf16* __restrict__ d_out, const float* __restrict__ logsumexp,
                   const float* __restrict__ delta, float* __restrict__ d_queries, u32* __restrict__ turns, bf16* __restrict__ d_qkv,
                   int batch, int sequence, int heads, int kv_heads) {
    extern __shared__ unsigned char memory[];
    __shared__ Barriers barriers;
    __shared__ int shared_ticket;
    unsigned char* const tiles = aligned_shared(memory);
    const u32 keys = shared_address(tiles), values = keys + VALUES_AT, ring = keys + RING_AT, signals = keys + SIGNALS_AT;
    const u32 sums = keys + SUMS_AT, statistics = keys + STATISTICS_AT;
    const u32 full = shared_address(barriers.full), empty = shared_address(barriers.empty), signals_full = shared_address(barriers.signals);
    const u32 sum_full = shared_address(barriers.sum_full), sum_empty = shared_address(barriers.sum_empty);
    if (threadIdx.x == 0) {
        shared_ticket = atomicAdd(turns, 1u);
        for (int stage = 0; stage < DEPTH; stage++) {
            barrier_set(full + 8 * stage, 2);
            barrier_set(empty + 8 * stage, 4 * CONSUMERS);
        }
        for (int i = 0; i < 2; i++) {
            barrier_set(signals_full + 8 * i, 4 * CONSUMERS);
            barrier_set(sum_full + 8 * i, 4 * CONSUMERS);
            barrier_set(sum_empty + 8 * i, 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    const int tiles_all = (sequence + ROWS - 1) / ROWS;
    const Item item(shared_ticket, tiles_all, kv_heads, batch);
    const int group = heads / kv_heads, first_tile = CONSUMERS * item.block, steps = (tiles_all - first_tile) * group;
    const Place p = place(item.kv_head * group, item.kv_head, item.batch, sequence, heads, kv_heads);
    const bf16 *rows = qkv + p.qkv_row, *d_rows = d_out + p.out_row;
    {
        const Copies<THREADS> copies(p.qkv_stride);
#pragma unroll
        for (int w = 0; w < CONSUMERS; w++) {
            copies.load(keys + w * TILE_BYTES, rows + p.key_column, (first_tile + w) * ROWS, sequence);
            copies.load(values + w * TILE_BYTES, rows + p.value_column, (first_tile + w) * ROWS, sequence);
        }
        copies_commit();
        copies_landed<0>();
    }
    __syncthreads();

    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const Walk walk(first_tile, tiles_all);
    if (warpgroup == CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0);
        if (warp < 2) {
            bring_tiles(rows + p.query_column, d_rows + p.query_column, p.qkv_stride, p.out_stride, logsumexp + p.statistics,
                        delta + p.statistics, ring, statistics, full, empty, walk, steps, sequence);
        } else if ((threadIdx.x & 31) == 0) {
            const int which = warp - 2;
            const long long tile = ((long long)item.batch * heads + item.kv_head * group) * tiles_all;
            bring_sums_out(d_queries + tile * (ROWS * HEAD_DIM), turns + 1 + tile, sums + which * SUM_BYTES, sum_full + 8 * which,
                           sum_empty + 8 * which, item, walk, steps, which);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
        const int lane = threadIdx.x & 31, row = ((threadIdx.x >> 5) & 3) * 16 + (lane >> 2), column = 2 * (lane & 3);
        const int mine = first_tile + warpgroup;
        const u32 key = keys + warpgroup * TILE_BYTES, value = values + warpgroup * TILE_BYTES;
        const u32 key_panel = keys + warpgroup * PANEL_BYTES, signal = signals + warpgroup * SIGNAL_BYTES;
        const float4* const of_columns = (const float4*)(tiles + STATISTICS_AT + (lane & 3) * 80);

        // Products run beside what is computed from the ones before: S of the next step is on its way while this step's part of dQ is
        // stored, dP beside the exponentials, dV beside dS.
        float dk[HEAD_DIM / 2], dv[HEAD_DIM / 2], s[32];
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; i++) dk[i] = dv[i] = 0;
        int now = first_tile;
        barrier_wait(full, 0);
        fresh_scores(s, key, ring);
        for (int step = 0; step < steps; step++) {
            const int stage = step % DEPTH;
            const u32 query = ring + stage * 2 * TILE_BYTES, gradient = query + TILE_BYTES;
            float dp[32], dq[32], of[16], p[32];
            fresh_scores(dp, value, gradient);
            load_statistics(of, (const float4*)((const unsigned char*)of_columns + stage * STATISTICS_BYTES));
            product_wait<1>();
            pin(s);
#pragma unroll
            for (int i = 0; i < 32; i++) p[i] = exp2_approx(fmaf(s[i], SCALE_LOG2, of[i / 4 * 2 + i % 2] * -LOG2_E));
            if (now <= mine) {
                const int hidden = (mine - now) * ROWS + row - column;
#pragma unroll
                for (int i = 0; i < 32; i++)
                    if (8 * (i / 4) + i % 2 < hidden + 8 * (i / 2 % 2)) p[i] = 0;
            }
            u32 a[4][4], b[4][4];
            pack_operand(a, p);
            rows_product(dv, a, gradient);
            load_statistics(of, (const float4*)((const unsigned char*)of_columns + stage * STATISTICS_BYTES + 320));
            product_wait<1>();
            pin(dp);
#pragma unroll
            for (int i = 0; i < 32; i++) p[i] *= dp[i] - of[i / 4 * 2 + i % 2];
            pack_operand(b, p);
            store_operand(signal + (step & 1) * CONSUMERS * SIGNAL_BYTES, b);
            publish();
            warp_arrive(signals_full + 8 * (step & 1));
            rows_product(dk, b, query);
            product_wait<1>();
            pin(dv);
            // After the last step once more the same tile, for nobody.
            const int next = step + 1 < steps ? (step + 1) % DEPTH : stage;
            if (step + 1 < steps) barrier_wait(full + 8 * next, (step + 1) / DEPTH & 1);
            fresh_scores(s, key, ring + next * 2 * TILE_BYTES);
            product_wait<1>();
            pin(dk);
            barrier_wait(signals_full + 8 * (step & 1), step >> 1 & 1);
            queries_product(dq, signals + (step & 1) * CONSUMERS * SIGNAL_BYTES, key_panel);
            product_wait<0>();
            pin(dq);
            pin(s);
            warp_arrive(empty + 8 * stage);
            barrier_wait(sum_empty + 8 * (step & 1), (step >> 1 & 1) ^ 1);
            const u32 to = sums + (step & 1) * SUM_BYTES + warpgroup * (SUM_BYTES / CONSUMERS) + (threadIdx.x & 127) * 16;
#pragma unroll
            for (int i = 0; i < 8; i++)
                asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 2048), "f"(dq[4 * i]), "f"(dq[4 * i + 1]),
                             "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3]) : "memory");
            publish();
            warp_arrive(sum_full + 8 * (step & 1));
            if (++now == tiles_all) now = first_tile;
        }
        // The other warpgroup's last product reads these keys.
        asm volatile("bar.sync 1, %0;" ::"n"(128 * CONSUMERS) : "memory");
        if (mine < tiles_all) {
            bf16* target = d_qkv + p.qkv_row;
            store_tile(dk, SCALE, SCALE, tiles + warpgroup * TILE_BYTES, target + p.key_column, p.qkv_stride, mine * ROWS, sequence);
            store_tile(dv, 1.0f, 1.0f, tiles + VALUES_AT + warpgroup * TILE_BYTES, target + p.value_column, p.qkv_stride, mine * ROWS, sequence);
        }
    }
}

// The sums of dQ, times the scale, as BF16 where d_qkv has them. A block takes 64 queries and 64 of a head's columns.
extern "C" __global__ void __launch_bounds__(128)
attention_backward_store(const float* __restrict__ d_queries, bf16* __restrict__ d_qkv, int sequence, int heads, int kv_heads) {
    __shared__ __align__(16) unsigned char panel[PANEL_BYTES];
    const int tile = blockIdx.x / 2, half = blockIdx.x % 2, thread = threadIdx.x, lane = thread & 31;
    const int row = thread / 32 * 16 + (lane >> 2), tiles = gridDim.x / 2;
    const float4* from = (const float4*)(d_queries + (((long long)blockIdx.z * heads + blockIdx.y) * tiles + tile) * (ROWS * HEAD_DIM))
        + half * 1024 + thread;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 x = from[i * 128];
        *(u32*)(panel + tile_offset(row, i) + 4 * (lane & 3)) = pack(x.x * SCALE, x.y * SCALE);
        *(u32*)(panel + tile_offset(row + 8, i) + 4 * (lane & 3)) = pack(x.z * SCALE, x.w * SCALE);
    }
    __syncthreads();
    const long long stride = (long long)(heads + 2 * kv_heads) * HEAD_DIM;
    bf16* to = d_qkv + ((long long)blockIdx.z * sequence + tile * ROWS) * stride + blockIdx.y * HEAD_DIM + half * 64;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = (thread + i * 128) / 8, chunk = thread % 8;
        if (tile * ROWS + r < sequence) *(uint4*)(to + r * stride + chunk * 8) = *(const uint4*)(panel + tile_offset(r, chunk));
    }
}
