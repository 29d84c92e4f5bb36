// Causal attention with grouped key and value heads, forward and backward, in BF16 with F32 accumulation.
//
// What this is: three kernels that never write scores or probabilities to memory. The forward pass keeps one logarithm a row
// (arXiv 2205.14135); the backward pass recomputes the probabilities from it (arXiv 2307.08691), once for the gradient of the
// queries and once for those of keys and values. That costs two products more than summing dQ across blocks with atomics, and
// buys results that are the same bits from run to run: every sum has one order, fixed by the shape alone.
// What this is not: rotary embedding (the queries and keys come in rotated), dropout, or any mask but the causal one.
//
// Compile with -DHEAD_DIM=D, D a multiple of 16, 16 <= D <= 128. Built for sm_90a with D = 64 or 128 the products are wgmma, else
// mma.sync (sm_80 and later). No headers are used.
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
//   D = 128, sm_90a (wgmma)        3   3   2  4    181248, 230400, 200192
//   other D > 64, or not sm_90a    3   2   2  2    115712, 132096, 133376
// Run backward_q before backward_kv: it also writes delta, which backward_kv reads. Together they write every element of d_qkv.
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

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 128, "HEAD_DIM must be a multiple of 16 up to 128");

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && (HEAD_DIM == 64 || HEAD_DIM == 128) && !defined(ATTENTION_NO_WGMMA)
#define WGMMA 1
#else
#define WGMMA 0
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

#define ROWS 64
#define PANELS ((HEAD_DIM + 63) / 64)
#define PANEL_BYTES (ROWS * 128)
#define TILE_BYTES (PANELS * PANEL_BYTES)

#define FORWARD_SHARED (1024 + TILE_BYTES * (FORWARD_WARPGROUPS + 2 * FORWARD_STAGES))
#define Q_SHARED (1024 + TILE_BYTES * (2 * Q_WARPGROUPS + 2 * Q_STAGES))
#define KV_SHARED (1024 + TILE_BYTES * (2 * KV_WARPGROUPS + 2 * KV_STAGES) + 640 * KV_STAGES)

// Rows of a block, threads of a block, dynamic shared bytes: of attention_forward, attention_backward_q, attention_backward_kv.
extern "C" __constant__ int attention_launch[9] = {
    ROWS * FORWARD_WARPGROUPS, 128 * FORWARD_WARPGROUPS, FORWARD_SHARED,
    ROWS * Q_WARPGROUPS, 128 * Q_WARPGROUPS, Q_SHARED,
    ROWS * KV_WARPGROUPS, 128 * KV_WARPGROUPS, KV_SHARED,
};

#define DEVICE [[maybe_unused]] static __device__ __forceinline__

__device__ constexpr float LOG2_E = 1.44269504088896340736f;
__device__ constexpr float LN_2 = 0.69314718055994530942f;
#define MINUS_INFINITY __uint_as_float(0xff800000u)

// 1 / sqrt(HEAD_DIM), by Newton's iteration at compile time.
__device__ constexpr double square_root(double x) {
    double r = x;
    for (int i = 0; i < 64; i++) r = 0.5 * (r + x / r);
    return r;
}
__device__ constexpr float SCALE = (float)(1.0 / square_root((double)HEAD_DIM));
__device__ constexpr float SCALE_LOG2 = (float)(1.44269504088896340736 / square_root((double)HEAD_DIM));

// ---- Small instructions ----

DEVICE float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float log2_approx(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two floats as BF16, the first in the low half.
DEVICE u32 pack(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

DEVICE float low_half(u32 x) { return __uint_as_float(x << 16); }
DEVICE float high_half(u32 x) { return __uint_as_float(x & 0xffff0000u); }

DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// 16 bytes from global to shared memory, or 16 zero bytes, and then nothing is read.
DEVICE void copy_16(u32 to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
DEVICE void copy_4(u32 to, const void* from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// The thread's own copies have landed, but for the last PENDING groups, and wgmma may read them.
template <int PENDING>
DEVICE void copies_landed() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#if WGMMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// The stages through which a block's threads bring in tiles together, step after step. Everyone copies a part of every step's tiles
// and uses all of them.
//   2 stages: each step starts with a barrier, after which the next step's copies begin.
//   4 stages: copies run two steps ahead. On entering step t a thread says that its part of step t + 1 has landed, and waits only
//   for what the others said on entering t - 1, so warpgroups may drift one step apart and share the tensor cores better. That
//   word also means that they are done with step t - 2, whose stage step t + 2 takes. (sm_90)
template <int STAGES, int THREADS>
struct Ring {
    static_assert(STAGES == 2 || (STAGES == 4 && WGMMA), "a ring has two stages, or four on sm_90a");
    static constexpr int AHEAD = STAGES / 2;
    u32 barriers;  // two, for even and odd steps

    // Before the first copies.
    __device__ __forceinline__ explicit Ring(u64* shared) {
        barriers = shared_address(shared);
        if (STAGES == 2) return;
        if (threadIdx.x < 2)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barriers + 8 * threadIdx.x), "r"(THREADS / 32) : "memory");
        __syncthreads();
    }
    __device__ __forceinline__ void arrive(int step) const {
        __syncwarp();
        if ((threadIdx.x & 31) == 0)
            asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(barriers + 8 * (step & 1))
                         : "memory");
    }
    // After AHEAD steps' copies, each committed as a group.
    __device__ __forceinline__ void start() const {
        if (STAGES == 2) return;
        copies_landed<1>();
        arrive(0);
    }
    // Before a step's work; then the copies of step + AHEAD may begin.
    __device__ __forceinline__ void enter(int step) const {
        copies_landed<0>();
        if (STAGES == 2) {
            __syncthreads();
            return;
        }
#if WGMMA
        arrive(step + 1);
        u32 done;
        do {
            asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                         : "=r"(done) : "r"(barriers + 8 * (step & 1)), "r"(step >> 1 & 1) : "memory");
        } while (!done);
#endif
    }
};

// ---- Tiles in shared memory ----
// A tile is 64 rows of HEAD_DIM, in panels of 64 columns: 128 bytes a row, whose 16-byte chunks are permuted by the row's low three
// bits (the 128-byte swizzle of wgmma). Eight rows at one chunk then touch all banks once, read along rows or transposed.

DEVICE u32 tile_offset(int row, int chunk) { return (chunk >> 3) * PANEL_BYTES + row * 128 + (((chunk ^ row) & 7) << 4); }

// How the block's threads share out a tile: each copies one 16-byte chunk of every PASS-th row. Made once for each row stride.
template <int THREADS>
struct Copies {
    static constexpr int CHUNKS = HEAD_DIM / 8;
    static constexpr int COPIERS = THREADS % 128 == 0 && THREADS / 128 == 3 ? 256 : THREADS;
    static constexpr int PASS = COPIERS / CHUNKS;
    // Whether every thread copies equally many chunks, all at one place of the swizzle's period of eight rows.
    static constexpr bool EVEN = COPIERS % CHUNKS == 0 && PASS % 8 == 0 && ROWS % PASS == 0;

    long long stride;
    u32 from, to;  // the thread's first chunk: bytes from the source's first row, and from the tile's start
    int row;

    __device__ __forceinline__ explicit Copies(long long row_stride) {
        row = threadIdx.x / CHUNKS;
        stride = row_stride;
        from = 2 * (row * (u32)row_stride + threadIdx.x % CHUNKS * 8);
        to = tile_offset(row, threadIdx.x % CHUNKS);
    }

    // Rows first .. first + 63 of a matrix into a tile; rows from `sequence` on become zero.
    __device__ __forceinline__ void load(u32 tile, const bf16* source, int first, int sequence) const {
        source += first * stride;
        if (EVEN) {
            if (COPIERS < THREADS && threadIdx.x >= COPIERS) return;
            const char* bytes = (const char*)source + from;
#pragma unroll
            for (int i = 0; i < ROWS / PASS; i++)
                copy_16(tile + to + i * PASS * 128, bytes + 2 * i * PASS * stride, row + i * PASS < sequence - first);
        } else {
            for (int index = threadIdx.x; index < ROWS * CHUNKS; index += THREADS) {
                int r = index / CHUNKS, chunk = index % CHUNKS;
                copy_16(tile + tile_offset(r, chunk), source + r * stride + chunk * 8, r < sequence - first);
            }
        }
    }
};

// ---- Products ----
// Accumulators of a warpgroup's 64 x N result: thread holds N / 2 floats. Element i of them is row
// 16 * warp + lane / 4 + 8 * (i / 2 % 2), column 8 * (i / 4) + 2 * (lane % 4) + i % 2. Operands A in registers use the layout of
// mma.m16n8k16, which is what two neighbouring column groups of an accumulator give after packing.

DEVICE void load_matrices(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// The warp's 16 rows of a tile at columns 16 * k .. 16 * k + 15, as operand A.
DEVICE void load_a(u32 (&a)[4], u32 tile, int k) {
    int lane = threadIdx.x & 31, row = ((threadIdx.x >> 5) & 3) * 16 + (lane & 15);
    load_matrices(a, tile + tile_offset(row, 2 * k + (lane >> 4)));
}

#if WGMMA

DEVICE void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
DEVICE void product_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// Keeps reads and writes of an accumulator on their side of the fence or wait.
template <int N>
DEVICE void pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// The wait that follows stays behind the work that gave x. Without this the assembler moves waits up and loses the overlap: to it
// pin() is nothing, but a branch is. x is never this NaN: arithmetic gives other payloads.
DEVICE void hold(float x) {
    asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, %0, 0x7fa0dead;\n@p trap;\n}" ::"r"(__float_as_uint(x)) : "memory");
}

// Descriptor of an operand in shared memory: 128-byte swizzle, 1024 bytes from one group of eight rows to the next. The same
// words serve K along the row and, transposed, K across the rows. A byte offset adds its sixteenth to the low word, which holds
// the address over 16 (shared addresses stay under 2^18).
DEVICE u64 descriptor(u32 tile, u32 offset) {
    u64 d;
    asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"((tile >> 4) + (offset >> 4)), "r"(0x40000040u));
    return d;
}

#define ACCUMULATORS(d) \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), \
    "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), \
    "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
    "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define WGMMA_64 \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18," \
    "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "

// d = (accumulate ? d : 0) + A B^T, 64 x 16 by 64 x 16.
DEVICE void wgmma_shared(float* d, u64 a, u64 b, int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" WGMMA_64 "%32, %33, p, 1, 1, 0, 0;\n}"
                 : ACCUMULATORS(d) : "l"(a), "l"(b), "r"(accumulate));
}
DEVICE void wgmma_registers(float* d, const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" WGMMA_64 "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
                 : ACCUMULATORS(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
// d += A B, 64 x 16 by 16 x 64.
DEVICE void wgmma_registers_transposed(float* d, const u32 (&a)[4], u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" WGMMA_64 "{%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}"
                 : ACCUMULATORS(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// scores = A B^T over HEAD_DIM, tiles A and B in shared memory. Starts the product; product_wait ends it.
DEVICE void scores_product(float (&d)[32], u32 a, u32 b) {
    pin(d);
    product_fence();
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
        u32 offset = (k >> 2) * PANEL_BYTES + (k & 3) * 32;
        wgmma_shared(d, descriptor(a, offset), descriptor(b, offset), k != 0);
    }
    product_commit();
}
// The same with A in registers.
DEVICE void scores_product(float (&d)[32], const u32 (&a)[HEAD_DIM / 16][4], u32 b) {
    pin(d);
    product_fence();
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++)
        wgmma_registers(d, a[k], descriptor(b, (k >> 2) * PANEL_BYTES + (k & 3) * 32), k != 0);
    product_commit();
}
// d += A B, A: 64 x 64 in registers, B: a tile.
DEVICE void rows_product(float (&d)[HEAD_DIM / 2], const u32 (&a)[4][4], u32 b) {
    pin(d);
    product_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int p = 0; p < PANELS; p++) wgmma_registers_transposed(d + 32 * p, a[k], descriptor(b, p * PANEL_BYTES + k * 2048));
    product_commit();
}

#else

DEVICE void load_matrices_transposed(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

template <int PENDING>
DEVICE void product_wait() {}
template <int N>
DEVICE void pin(float (&)[N]) {}
DEVICE void hold(float) {}

DEVICE void mma(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d += A B^T, 16 columns of a tile B.
DEVICE void scores_step(float (&d)[32], const u32 (&a)[4], u32 b, int k) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 r[4];
        load_matrices(r, b + tile_offset(n * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * k + ((lane >> 3) & 1)));
        mma(d + 8 * n, a, r[0], r[1]);
        mma(d + 8 * n + 4, a, r[2], r[3]);
    }
}
DEVICE void scores_product(float (&d)[32], u32 a, u32 b) {
#pragma unroll
    for (int i = 0; i < 32; i++) d[i] = 0;
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
        u32 r[4];
        load_a(r, a, k);
        scores_step(d, r, b, k);
    }
}
DEVICE void scores_product(float (&d)[32], const u32 (&a)[HEAD_DIM / 16][4], u32 b) {
#pragma unroll
    for (int i = 0; i < 32; i++) d[i] = 0;
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) scores_step(d, a[k], b, k);
}
DEVICE void rows_product(float (&d)[HEAD_DIM / 2], const u32 (&a)[4][4], u32 b) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 16; n++) {
            u32 r[4];
            load_matrices_transposed(r, b + tile_offset(k * 16 + (lane & 15), 2 * n + (lane >> 4)));
            mma(d + 8 * n, a[k], r[0], r[1]);
            mma(d + 8 * n + 4, a[k], r[2], r[3]);
        }
}

#endif

// A 64 x 64 result rounded to BF16, as operand A of the next product.
DEVICE void pack_operand(u32 (&a)[4][4], const float (&d)[32]) {
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) a[k][i] = pack(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
}

// Writes the warpgroup's 64 x HEAD_DIM result, row r times factor[r's half], to rows first .. of a matrix, through a tile that no
// one reads any more. Each warp writes and reads its own 16 rows only.
DEVICE void store_tile(const float (&d)[HEAD_DIM / 2], float factor_low, float factor_high, unsigned char* tile, bf16* target,
                       long long stride, int first, int sequence) {
    int lane = threadIdx.x & 31, warp_row = ((threadIdx.x >> 5) & 3) * 16;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++) {
        int row = warp_row + (lane >> 2);
        *(u32*)(tile + tile_offset(row, n) + 4 * (lane & 3)) = pack(d[4 * n] * factor_low, d[4 * n + 1] * factor_low);
        *(u32*)(tile + tile_offset(row + 8, n) + 4 * (lane & 3)) = pack(d[4 * n + 2] * factor_high, d[4 * n + 3] * factor_high);
    }
    __syncwarp();
    constexpr int CHUNKS = HEAD_DIM / 8;
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; i++) {
        int index = lane + 32 * i, row = warp_row + index / CHUNKS, chunk = index % CHUNKS;
        if (first + row < sequence)
            *(uint4*)(target + (first + row) * stride + chunk * 8) = *(const uint4*)(tile + tile_offset(row, chunk));
    }
}

// What a block works on: its batch entry's rows, and where its head's columns begin.
struct Place {
    long long qkv_stride, out_stride, qkv_row, out_row, statistics;
    int query_column, key_column, value_column;
};

DEVICE Place place(int head, int kv_head, int batch, int sequence, int heads, int kv_heads) {
    Place p;
    p.qkv_stride = (long long)(heads + 2 * kv_heads) * HEAD_DIM;
    p.out_stride = (long long)heads * HEAD_DIM;
    p.qkv_row = (long long)batch * sequence * p.qkv_stride;
    p.out_row = (long long)batch * sequence * p.out_stride;
    p.statistics = ((long long)batch * heads + head) * sequence;
    p.query_column = head * HEAD_DIM;
    p.key_column = (heads + kv_head) * HEAD_DIM;
    p.value_column = (heads + kv_heads + kv_head) * HEAD_DIM;
    return p;
}

// Without a division, which is slow, where every query head has its own keys.
DEVICE int kv_head_of(int head, int heads, int kv_heads) { return heads == kv_heads ? head : head / (heads / kv_heads); }

DEVICE unsigned char* aligned_shared(unsigned char* memory) {
    u32 address = shared_address(memory);
    return memory + (((address + 1023) & ~1023u) - address);
}

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

// What the thread's 16 columns of a score tile need.
DEVICE void load_statistics(float (&to)[16], const float4* from) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 x = from[i];
        to[4 * i] = x.x, to[4 * i + 1] = x.y, to[4 * i + 2] = x.z, to[4 * i + 3] = x.w;
    }
}

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
