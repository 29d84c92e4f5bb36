// MXFP4 GEMM: D[m, n] = factor * sum over k of A[m, k] B[n, k], both operands E2M1 codes with one E8M0 byte per 32 along k.
//
// Operands are as kernels/gfx950/quantise.hip writes them: codes [rows, k / 2], low nibble first, scales [rows, k / 32]. M and N
// are multiples of 16, k of 32. The arithmetic unit is v_mfma_scale_f32_16x16x128_f8f6f4 with both formats FP4.
//
// A block of 256 threads (2 by 2 waves) makes a tile of D; k advances by 256, a step of two halves, each one instruction deep. Codes go from
// memory to LDS without passing registers (16 bytes a lane). A row of a step is 128 bytes, 8 chunks of 16. Instruction j of a step takes
// chunk 2 g + j for lane group g (lane / 16); which one it takes is free, as long as A, B and their scales agree. The sum over k is therefore
// taken in the order 0 2 4 6, 1 3 5 7 inside each 8 blocks. Chunk 2 g + j of row r lies in slot (4 j + g) ^ (r / 2 mod 8): the lanes that are
// served together touch 64 different banks, whether these are consecutive ones or those that were measured on gfx950.
//
// While the matrix operations of one half run, the other half's codes come from LDS, and what is two steps ahead from memory: in the order
// in which it is written below, an access or two behind each matrix operation. In the middle of a step the waves meet: each has what it needs of
// this step in registers, and its own loads of the next one are there; behind that point the step's buffer is loaded again.
//
// Scales come 16 bytes of a row at a time, four steps of all rows of the tile in a chunk, a quarter of a chunk in each step. Where rows are no
// multiple of 16 blocks they come byte by byte. Row r of a chunk is 32 bytes; its halves are exchanged where r / 8 is odd, for the banks. A lane
// reads the four bytes that hold its two of a step, and shifts them once.
//
// As many workgroups as fit on the device make one tile after the other. What is two steps ahead may be the next tile's: only storing a tile keeps
// the matrix pipes from work. Where the steps of a tile are no multiple of 8, the next tile begins anew.
//
// The roles of A and B are exchanged in the instruction (D transposed), because then a lane holds four neighbouring columns of D;
// rows lie in LDS in an order in which two fragments give it eight.
// Chunks beyond k and rows beyond M or N are loaded from beyond the buffer, which gives zeros.
//
// Split-K: with output PARTIAL each block of grid z writes its sum to a workspace [z, M, N]; mxfp4_gemm_sum adds them in order, so that results do not depend on
// timing. Compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim.
#include "gemm_operands.h"

namespace {

// Eight neighbouring elements of D: rounded once after the factor, after what is added, and to BF16.
template <Output OUTPUT, bool ADDED> DEVICE void store(Buffer to, Buffer from, u32 at, const f32x4 (&sum)[2], float factor) {
    f32x4 low = sum[0] * factor, high = sum[1] * factor;
    if (OUTPUT == OUT_BF16) {
        f32x8 both = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
        if (ADDED) both += __builtin_convertvector(__builtin_bit_cast(bf16x8, __builtin_amdgcn_raw_buffer_load_b128(from, at, 0, 0)), f32x8);
        __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(u32x4, __builtin_convertvector(both, bf16x8)), to, at, 0, 0);
    } else {
        if (ADDED) {
            low += __builtin_bit_cast(f32x4, __builtin_amdgcn_raw_buffer_load_b128(from, at, 0, 0));
            high += __builtin_bit_cast(f32x4, __builtin_amdgcn_raw_buffer_load_b128(from, at + 16, 0, 0));
        }
        __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(u32x4, low), to, at, 0, 0);
        __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(u32x4, high), to, at + 16, 0, 0);
    }
}

// A sum that is in accumulation registers here, if the tile is the largest one, whose sums take all of them. Left to itself the compiler moves some
// of them to and fro in each step, and multiplies all by the factor before it looks for where they go.
template <int FM> DEVICE void in_place(f32x4 &sum) {
    if constexpr (FM > 4) asm volatile("" : "+a"(sum));
}

// A wave's part of a tile. Rows beyond M lie beyond the buffer; lanes beyond N are sent there. N is a multiple of 16, so that a lane's eight elements
// are inside together.
template <Output OUTPUT, bool ADDED, int FM, int FN>
DEVICE void store_all(void *d, const Product &p, Corner tile, u32 wave, u32 lane, const f32x4 (&sum)[FM][FN], float factor) {
    u32 m = p.m, n = p.n;
#if defined(BREAK_EDGE)
    m += 1;
#endif
    constexpr u32 SIZE = OUTPUT == OUT_BF16 ? 2 : 4, TILE_M = 2 * FM * 16;
    u64 start = ((u64)tile.top * n + tile.left) * SIZE;
    u32 rows = m - tile.top < TILE_M ? m - tile.top : TILE_M, bytes = (rows * n - tile.left) * SIZE;
    Buffer to = buffer_of((u8 *)d + start, bytes), from = buffer_of((const u8 *)p.added + start, bytes);
    u32 row = wave / 2 * FM * 16 + row_at(lane % 16), column = wave % 2 * FN * 16 + lane / 16 * 8;
#pragma unroll
    for (int fm = 0; fm < FM; fm++) {
#pragma unroll
        for (int fn = 0; fn < FN; fn += 2) {
            bool inside = tile.left + column + fn * 16 < n;
            u32 at = (inside ? (row * n + column + fn * 16) * SIZE : OUTSIDE) + (fm / 2 * 32 + row_at(fm % 2 * 16)) * n * SIZE;
            f32x4 low = sum[fm][fn], high = sum[fm][fn + 1];
            in_place<FM>(low), in_place<FM>(high);
            store<OUTPUT, ADDED>(to, from, at, {low, high}, factor);
        }
    }
}

// The codes and scales of a wave's fragments. Of B there are the codes of two halves and the scales of two steps, because each row of D needs
// all of them; of A one, which is read again as soon as it has been multiplied, except for the codes of the last rows.
template <int FM, int FN> struct Fragments {
    static constexpr int LATE = FM > 2 ? 2 : 1;
    i32x4 early[FM - LATE], late[2][LATE], b[2][FN];
    u32 scale_a[FM], scale_b[FN], next_b[FN];

    METHOD i32x4 &a(int half, int m) { return m < FM - LATE ? early[m] : late[half][m - (FM - LATE)]; }
};

DEVICE i32x8 widened(i32x4 codes) { return i32x8{codes[0], codes[1], codes[2], codes[3], 0, 0, 0, 0}; }

// Instruction HALF of a step for one fragment of D.
template <int HALF> DEVICE f32x4 multiply_add(i32x4 a, i32x4 b, u32 scale_a, u32 scale_b, f32x4 sum) {
#if defined(BREAK_WRONG_SCALE_BLOCK)
    constexpr int BYTE_A = 0;
#else
    constexpr int BYTE_A = HALF;
#endif
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(widened(b), widened(a), sum, FP4, FP4, HALF, scale_b, BYTE_A, scale_a);
}

#if defined(BREAK_SEAM)
#define AFTER here
#else
#define AFTER next
#endif

// One tile of D. A wave holds FM by FN fragments of 16 by 16; the block is 2 by 2 waves.
template <int FM, int FN> struct Tile {
    static constexpr u32 TILE_M = 2 * FM * 16, TILE_N = 2 * FN * 16, STAGE = (TILE_M + TILE_N) * STEP_BYTES;
    static constexpr u32 LDS = 2 * STAGE + 2 * Scales<TILE_M, TILE_N>::BYTES;
    // Matrix operations of a half, loads of a step, and the operations behind which they are issued.
    static constexpr int OPERATIONS = FM * FN, LOADS = Codes<TILE_M>::LOADS + Codes<TILE_N>::LOADS, LOAD_SLOTS = FM > 6 ? OPERATIONS * 7 / 8 : OPERATIONS;
    // Operations between two pieces of other work.
    static constexpr int WORK = FM > 4 ? OPERATIONS / 16 : FM > 2 ? 1 : 0;

    Codes<TILE_M> codes_a;
    Codes<TILE_N> codes_b;
    Scales<TILE_M, TILE_N> scales;
    Fragments<FM, FN> held;
    f32x4 sum[FM][FN];
    u32 first, last;          // steps of this block's share
    Corner here, next;        // this tile, and the one behind it
    bool goes_on;             // the next one's first steps are loaded during the last steps of this one
    u32 next_from;            // the chunk of scales from which on they are the next tile's
    u32 load, load_end;       // the step that is loaded next, and where there is nothing to load any more
    u32 scales_a, scales_b, scale_shift;  // offsets of the lane's scales among all; where its two lie in four
    u32 read_from_a[2], read_from_b[2];   // LDS offsets of the lane's codes in stage 0, by half

    // Bytes of a row of codes from the next step on, none behind the last one.
    METHOD u32 there() const { return load < load_end ? codes_a.pitch - load * STEP_BYTES : 0; }
    METHOD void go_to(const Product &p, Corner tile) {
        codes_a.go_to(p.a.codes, p.m, tile.top);
        codes_b.go_to(p.b.codes, p.n, tile.left);
    }
    // Once a step has been loaded.
    METHOD void move_on() {
        load++;
        if (load != last) return;
        load_end = 0;
        if (!goes_on) return;
        go_to(again(), AFTER);
        load = first, load_end = last;
    }
    METHOD void load_codes(u32 i, u32 step, u32 &in_a, u32 &in_b, u32 stage) const {
        if (i < codes_a.LOADS) {
            codes_a.load(i, step, in_a, stage);
        } else {
            codes_b.load(i - codes_a.LOADS, step, in_b, stage);
        }
    }
    METHOD void load_step(u32 stage) {
        u32 in_a = taken(codes_a.in_step(there())), in_b = taken(codes_b.in_step(there()));
#pragma unroll
        for (u32 i = 0; i < u32(LOADS); i++) load_codes(i, load, in_a, in_b, stage);
        move_on();
    }
    METHOD void read_a(int m, int half, u32 from) { held.a(half, m) = read_lds<i32x4>(from + m * 16 * STEP_BYTES); }
    METHOD void read_b(int n, int half, u32 from) { held.b[half][n] = read_lds<i32x4>(from + n * 16 * STEP_BYTES); }
    // Behind operation AT of a half: what the next half needs of the other codes. All of B and the late rows of A during the first rows, the
    // early ones of A behind the operations that need their old ones.
    template <int AT> METHOD void read_ahead(int half, u32 from_a, u32 from_b) {
        constexpr int LATE = Fragments<FM, FN>::LATE, SPREAD = FM > 4 ? OPERATIONS * 7 / 8 : OPERATIONS;
        repeat<FN + LATE>([&](auto i) INLINE {
            constexpr int I = decltype(i)::value;
            if constexpr (AT == I * SPREAD / (FN + LATE)) {
                if constexpr (I < FN) {
                    read_b(I, half, from_b);
                } else {
                    read_a(FM - LATE + I - FN, half, from_a);
                }
            }
        });
        if constexpr (AT % FN == FN - 1 && AT / FN < FM - LATE) read_a(AT / FN, half, from_a);
    }
    METHOD void read_scale_a(int m, u32 at) { held.scale_a[m] = read_lds<u32>(at + m * 16 * CHUNK_BYTES); }
    METHOD void read_scale_b(int n, u32 at) { held.next_b[n] = read_lds<u32>(at + n * 16 * CHUNK_BYTES); }

    // Before the first step: its codes and scales, the codes of the second, the first half's fragments.
    METHOD void begin() {
        u32 chunk = first / CHUNK_STEPS;
#pragma unroll 1
        for (u32 quarter = 0; quarter < scales.QUARTERS; quarter++) {
            scales.load(here, chunk, quarter);
            if (quarter <= first % CHUNK_STEPS) scales.load(here, chunk + 1, quarter);
        }
        go_to(again(), here);
        load = first, load_end = last;
        // What follows from this number is computed here, for each tile anew, so that it takes no registers meanwhile.
        u32 stage = taken_by_wave(0);
        load_step(stage);
        load_step(stage + STAGE);
        wait_and_meet<LOADS>();
        u32 at_a = scales.lds + (scales_a ^ scales.exchanged(first)), at_b = scales.lds + (scales_b ^ scales.exchanged(first));
#pragma unroll
        for (int i = 0; i < FN; i++) read_b(i, 0, read_from_b[0]);
#pragma unroll
        for (int i = 0; i < FM; i++) read_a(i, 0, read_from_a[0]);
#pragma unroll
        for (int i = 0; i < FN; i++) read_scale_b(i, at_b);
#pragma unroll
        for (int i = 0; i < FM; i++) read_scale_a(i, at_a);
    }

    // A step, its first half's fragments and its scales having been read. What is two steps ahead is loaded, be it of the next tile, and zeros
    // behind the last step: a second version of this function without loads takes registers that are not there.
    METHOD void step(u32 now, u32 stage) {
        u32 from_a = taken(read_from_a[1] + stage), from_b = taken(read_from_b[1] + stage), next_a, next_b;
        u32 at_a, at_b, in_a, in_b, next_scales, from, first_row, offset, to;
        u32 chunk = (now + 1) / CHUNK_STEPS + 1, quarter = (now + 1) % CHUNK_STEPS, from_chunk, corner;
        repeat<OPERATIONS>([&](auto at) INLINE {
            constexpr int AT = decltype(at)::value, m = AT / FN, n = AT % FN;
            if constexpr (m == 0) held.scale_b[n] = taken(held.next_b[n] >> scale_shift);
            if constexpr (AT == 0) held.scale_a[0] = taken(held.scale_a[0] >> scale_shift);
            if constexpr (n == FN - 2 && m + 1 < FM) held.scale_a[m + 1] = taken(held.scale_a[m + 1] >> scale_shift);
            sum[m][n] = multiply_add<0>(held.a(0, m), held.b[0][n], held.scale_a[m], held.scale_b[n], sum[m][n]);
            read_ahead<AT>(1, from_a, from_b);
            // What the second half needs, while there is time.
            constexpr int LEFT = OPERATIONS - 1 - AT;
            if constexpr (LEFT == WORK * 13) next_scales = taken_by_wave(scales.exchanged(now + 1));
            if constexpr (LEFT == WORK * 12) at_a = taken(scales.lds + (scales_a ^ next_scales));
            if constexpr (LEFT == WORK * 11) at_b = taken(scales.lds + (scales_b ^ next_scales));
            if constexpr (LEFT == WORK * 10) in_a = taken(codes_a.in_step(there()));
            if constexpr (LEFT == WORK * 9) in_b = taken(codes_b.in_step(there()));
            if constexpr (LEFT == WORK * 8) from_chunk = taken_by_wave(chunk < next_from ? chunk : chunk - (last - first) / CHUNK_STEPS);
            if constexpr (LEFT == WORK * 7) first_row = taken_by_wave(scales.first_row(quarter));
            if constexpr (LEFT == WORK * 6) corner = taken_by_wave(scales.corner(chunk < next_from ? here : AFTER, first_row));
            if constexpr (LEFT == WORK * 5) from = taken_by_wave(scales.start(corner, from_chunk, first_row));
            if constexpr (LEFT == WORK * 4) offset = taken(scales.offset(from_chunk, from));
            if constexpr (LEFT == WORK * 3) to = taken_by_wave(scales.to(chunk, first_row));
            if constexpr (LEFT == WORK * 2) next_a = taken(read_from_a[0] + (STAGE - stage));
            if constexpr (LEFT == WORK * 1) next_b = taken(read_from_b[0] + (STAGE - stage));
            NEXT_BLOCK();
        });
        wait_and_meet();
        if constexpr (FM == 4) __builtin_amdgcn_s_setprio(0);
        NEXT_BLOCK();
        repeat<OPERATIONS>([&](auto at) INLINE {
            constexpr int AT = decltype(at)::value, m = AT / FN, n = AT % FN;
            sum[m][n] = multiply_add<1>(held.a(1, m), held.b[1][n], held.scale_a[m], held.scale_b[n], sum[m][n]);
            repeat<LOADS>([&](auto i) INLINE {
                if constexpr (AT == decltype(i)::value * LOAD_SLOTS / LOADS) load_codes(decltype(i)::value, load, in_a, in_b, stage);
            });
            repeat<FN>([&](auto i) INLINE {
                if constexpr (AT == decltype(i)::value * OPERATIONS / FN + 1) read_scale_b(decltype(i)::value, at_b);
            });
            if constexpr (n == FN - 1) read_scale_a(m, at_a);
            read_ahead<AT>(0, next_a, next_b);
            NEXT_BLOCK();
            if constexpr (AT == OPERATIONS - 2) {
                if (scales.has(quarter, first_row)) scales.load(from_chunk, first_row, from, offset, to);
                NEXT_BLOCK();
            }
        });
        move_on();
        // Two workgroups of a unit in the same half would want the LDS port at once: the one that is ahead stays ahead.
        if constexpr (FM == 4) __builtin_amdgcn_s_setprio(1);
    }
};

template <int FM, int FN> DEVICE void store_tile(const Tile<FM, FN> &tile, u32 wave, u32 lane) {
    const Product p = again();
    // Places in D are computed here, so that they take no registers before.
    lane = taken(lane);
    if (p.output == PARTIAL) {
        store_all<OUT_F32, false>((float *)p.d + (u64)blockIdx.z * p.m * p.n, p, tile.here, wave, lane, tile.sum, 1.0f);
    } else if (p.output == OUT_BF16) {
        if (p.added) {
            store_all<OUT_BF16, true>(p.d, p, tile.here, wave, lane, tile.sum, p.factor);
        } else {
            store_all<OUT_BF16, false>(p.d, p, tile.here, wave, lane, tile.sum, p.factor);
        }
    } else if (p.added) {
        store_all<OUT_F32, true>(p.d, p, tile.here, wave, lane, tile.sum, p.factor);
    } else {
        store_all<OUT_F32, false>(p.d, p, tile.here, wave, lane, tile.sum, p.factor);
    }
}

template <int FM, int FN> DEVICE void multiply(const Product &p, u8 *memory) {
    using Of = Tile<FM, FN>;
    Of tile = {};
    u32 lane = threadIdx.x % 64, wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64), blocks = p.k / 32;
    u32 wave_m = wave / 2 * FM * 16, wave_n = wave % 2 * FN * 16, row = lane % 16, group = lane / 16;
    u32 lds = (u32)(LdsPointer)memory;
    tile.codes_a.begin(p.k, lds, wave, lane);
    tile.codes_b.begin(p.k, lds + Of::TILE_M * STEP_BYTES, wave, lane);
    tile.scales = {p.a.scales, p.b.scales, p.m * blocks, p.n * blocks, blocks, lds + 2 * Of::STAGE, wave, lane, 0, 0};
    tile.scales.begin();
    tile.scales_a = tile.scales.at(wave_m + row, group), tile.scales_b = tile.scales.at(Of::TILE_M + wave_n + row, group), tile.scale_shift = group % 2 * 16;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 at = lds + row * STEP_BYTES + slot_of(row, 2 * group + half) * 16;
        tile.read_from_a[half] = at + wave_m * STEP_BYTES;
        tile.read_from_b[half] = at + (Of::TILE_M + wave_n) * STEP_BYTES;
    }

    // This block's share of k, in steps.
    u32 steps = (p.k / 2 + STEP_BYTES - 1) / STEP_BYTES, first = blockIdx.z * p.share;
    u32 last = first + p.share < steps ? first + p.share : steps;
    tile.first = first, tile.last = last;
    // A tile goes on into the next one where neither stages nor chunks of scales change places.
    bool whole = first < last && first % CHUNK_STEPS == 0 && (last - first) % (2 * CHUNK_STEPS) == 0;

    tile.here = Order::of<Of>(again()).template corner<Of>(0, blockIdx.x);
    bool begun = false;
#pragma unroll 1
    for (u32 turn = 1;; turn++) {
        Order order = Order::of<Of>(again());
        bool more = turn * order.at_once + blockIdx.x < order.tiles();
        if (more) tile.next = order.corner<Of>(turn, blockIdx.x);
        tile.goes_on = whole && more, tile.next_from = tile.goes_on ? last / CHUNK_STEPS : ~0u;
        if (!begun) tile.begin();
        repeat<FM * FN>([&](auto at) INLINE {
            auto &sum = tile.sum[decltype(at)::value / FN][decltype(at)::value % FN];
            sum = f32x4{};
            in_place<FM>(sum);
        });
        // An empty share takes a step of zeros.
        u32 now = first, stage = 0;
#pragma unroll 1
        do {
            tile.step(now, stage);
            stage = Of::STAGE - stage;
        } while (++now < last);
        // No load to LDS may outlive the block, or what the next tile begins with.
        if (!tile.goes_on) wait_and_meet();
        store_tile(tile, wave, lane);
        if (!more) break;
        begun = tile.goes_on, tile.here = tile.next;
    }
}

}  // namespace

// Grid: x as many workgroups as make tiles at once, one tile each at least; z shares of k.
#define GEMM(TILE, FM, FN, WAVES_PER_SIMD)                                \
    KERNEL_OF(256, WAVES_PER_SIMD) mxfp4_gemm_##TILE(Product product) {   \
        SHARED u8 lds[Tile<FM, FN>::LDS] __attribute__((aligned(1024)));  \
        multiply<FM, FN>(product, lds);                                   \
    }
GEMM(64x64, 2, 2, 4)
GEMM(128x128, 4, 4, 2)
GEMM(192x256, 6, 8, 1)
GEMM(256x256, 8, 8, 1)

// The second half of split-K: partial sums added in the order of their shares. `count` is m * n, a multiple of 4; 256 threads, 4
// elements each.
KERNEL_OF(256, 4) mxfp4_gemm_sum(const float *partial, void *d, const void *added, u64 count, u32 shares, u32 output, float factor) {
    u64 index = ((u64)blockIdx.x * 256 + threadIdx.x) * 4;
    if (index >= count) return;
    f32x4 sum = *(const f32x4 *)(partial + index);
    for (u32 z = 1; z < shares; z++) sum += *(const f32x4 *)(partial + z * count + index);
    sum *= factor;
    if (output == OUT_BF16) {
        if (added) sum += __builtin_convertvector(*(const bf16x4 *)((const u16 *)added + index), f32x4);
        *(bf16x4 *)((u16 *)d + index) = __builtin_convertvector(sum, bf16x4);
    } else {
        if (added) sum += *(const f32x4 *)((const float *)added + index);
        *(f32x4 *)((float *)d + index) = sum;
    }
}
