// What the kernels of attention share: tiles of 64 rows in shared memory, the ring that brings them in, and products of them.
// HEAD_DIM is defined by who includes this.

#pragma once

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 128, "HEAD_DIM must be a multiple of 16 up to 128");

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && (HEAD_DIM == 64 || HEAD_DIM == 128) && !defined(ATTENTION_NO_WGMMA)
#define WGMMA 1
#else
#define WGMMA 0
#endif

#define ROWS 64
#define PANELS ((HEAD_DIM + 63) / 64)
#define PANEL_BYTES (ROWS * 128)
#define TILE_BYTES (PANELS * PANEL_BYTES)

#define DEVICE [[maybe_unused]] static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__

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

// What the thread's 16 columns of a score tile need.
DEVICE void load_statistics(float (&to)[16], const float4* from) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 x = from[i];
        to[4 * i] = x.x, to[4 * i + 1] = x.y, to[4 * i + 2] = x.z, to[4 * i + 3] = x.w;
    }
}
