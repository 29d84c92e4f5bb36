// What gemm.hip multiplies, and how it comes to LDS: the order of tiles, codes, scales. gemm.hip says what for.
//
// Compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim.
#pragma once

#include "prelude.h"

namespace {

constexpr u32 STEP_BYTES = 128;     // of codes in a row: 256 elements
constexpr u32 STEP_BLOCKS = 8;      // scale bytes in a row
constexpr u32 CHUNK_STEPS = 4;      // steps whose scales are loaded together
constexpr u32 CHUNK_BYTES = CHUNK_STEPS * STEP_BLOCKS;  // of scales in a row
constexpr u32 LOAD_BYTES = 1024;    // that an instruction of a wave brings to LDS
constexpr u32 WAVES = 4;
constexpr u32 OUTSIDE = 0x80000000u;  // an offset beyond every buffer: loads give zero
constexpr int FP4 = 4;              // the instruction's code for E2M1

// PARTIAL: unscaled F32 into share z of a workspace [shares, m, n].
enum Output : u32 { OUT_BF16 = 0, OUT_F32 = 1, PARTIAL = 2 };

struct Operand {
    const u8 *codes;
    const u8 *scales;
};

// The host's struct of the same layout is packed into the kernel's arguments.
struct Product {
    Operand a, b;
    void *d;            // BF16 or F32 [m, n], or the workspace
    const void *added;  // what is added to the product in F32, of the type and shape of d (it may be d); null: nothing
    u32 m, n, k;
    u32 output;    // Output
    u32 share;     // steps of 256 along k that one block takes: ceil(k / 256) where grid z is 1
    float factor;  // what the product is multiplied by, once, after the sum
};

// The kernel's arguments, read once more where they are needed, so that they keep no registers until then.
DEVICE Product again() {
    auto at = (const __attribute__((address_space(4))) Product *)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(at));
    return *at;
}

DEVICE void load_to_lds(Buffer buffer, u32 lane_offset, u32 offset, u32 at) {
    __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, (LdsPointer)at, 16, lane_offset, offset, 0, 0);
}

// Ends a basic block without an instruction, because the compiler moves matrix operations freely inside of one, and nothing else keeps an
// access between two of them.
#define NEXT_BLOCK()                    \
    do {                                \
        __label__ next;                 \
        asm goto("" ::::next);          \
    next:;                              \
    } while (0)

// The slot of chunk 2 g + j is 4 j + g, and the way back; both exchanged with the row's number, which is its own way back.
#if defined(BREAK_NO_SWIZZLE)
DEVICE u32 slot_of(u32, u32 chunk) { return chunk; }
DEVICE u32 chunk_in(u32, u32 slot) { return slot; }
#else
DEVICE u32 slot_of(u32 row, u32 chunk) { return (chunk / 2 + 4 * (chunk % 2)) ^ ((row / 2) % 8); }
DEVICE u32 chunk_in(u32 row, u32 slot) {
    slot ^= (row / 2) % 8;
    return 2 * (slot % 4) + slot / 4;
}
#endif

// Where a tile begins in D.
struct Corner {
    u32 top, left;
};

// The tile that a workgroup makes in its turn. Workgroups go to the dies one after the other, so that a die's are so many apart: of what all make
// at once, each die gets tiles that follow one another. Eight rows of tiles are gone through column by column, so that such tiles lie close together:
// a die's cache then holds few rows and columns of the operands. Every tile belongs to one workgroup in one turn, whatever the sizes.
struct Order {
    static constexpr u32 DIES = 8, ROWS = 8;
    u32 across, down, at_once;

    template <typename Tile> static METHOD Order of(const Product &p) {
        return {(p.n + Tile::TILE_N - 1) / Tile::TILE_N, (p.m + Tile::TILE_M - 1) / Tile::TILE_M, gridDim.x};
    }
    METHOD u32 tiles() const { return across * down; }
    METHOD Corner tile(u32 turn, u32 workgroup) const {
        u32 first = turn * at_once, left = tiles() - first, count = left < at_once ? left : at_once;
        u32 die = workgroup % DIES, more = count % DIES;
        u32 at = first + die * (count / DIES) + (die < more ? die : more) + workgroup / DIES;
        u32 band = at / (ROWS * across), in_band = at % (ROWS * across), rows = down - band * ROWS;
#if !defined(BREAK_ORDER)
        if (rows > ROWS)
#endif
            rows = ROWS;
        return {band * ROWS + in_band % rows, in_band / rows};
    }
    template <typename Tile> METHOD Corner corner(u32 turn, u32 workgroup) const {
        Corner at = tile(turn, workgroup);
        return {at.top * Tile::TILE_M, at.left * Tile::TILE_N};
    }
};

// Which of 32 rows lies at a place in LDS. Fragments are 16 places; of two neighbouring ones a lane gets four columns of D each, and eight that
// follow one another because of this order.
DEVICE u32 row_at(u32 place) { return place % 16 / 4 * 8 + place / 16 * 4 + place % 4; }

// Codes of one operand's rows of the tile, ROWS of them. Instruction i of a wave brings rows (4 i + wave) 8 and the next seven; lane l the l-th
// 16 bytes of them.
template <u32 ROWS> struct Codes {
    static constexpr u32 LOADS = ROWS / (8 * WAVES);
    const u8 *rows;    // from the tile's first one on, and their bytes
    u32 bytes;
    u32 pitch;         // bytes of a row
    u32 lane_offset;   // of instruction 0 in step 0
    u32 chunk;         // this lane's: the same in every instruction
    u32 at;            // LDS offset of instruction 0 in stage 0

    METHOD void begin(u32 k, u32 lds, u32 wave, u32 lane) {
        pitch = k / 2;
        u32 row = wave * 8 + lane / 8;
        chunk = chunk_in(row, lane % 8);
        lane_offset = row_at(row) * pitch + chunk * 16;
        at = lds + wave * LOAD_BYTES;
    }
    METHOD void go_to(const u8 *codes, u32 rows, u32 first_row) {
        this->rows = codes + (u64)first_row * pitch, bytes = (rows - first_row) * pitch;
    }
    // The lane's offset in a step of which so many bytes of a row are there: beyond the buffer where its chunk is not.
    METHOD u32 in_step(u32 there) const { return chunk * 16 < there ? lane_offset : OUTSIDE; }
    // Instruction i of a step; moves the lane's offset on to the next one's.
    METHOD void load(u32 i, u32 step, u32 &in_step, u32 stage) const {
        load_to_lds(buffer_of(rows, bytes), in_step, step * STEP_BYTES, at + stage + i * WAVES * LOAD_BYTES);
        in_step += 8 * WAVES * pitch;
    }
};

// Scales of all rows of the tile, those of A first. A quarter of a chunk is 4 instructions of 32 rows, one of each wave; a tile has up to four
// quarters, the last of which may be for some waves alone.
template <u32 TILE_M, u32 TILE_N> struct Scales {
    static constexpr u32 ROWS_AT_ONCE = LOAD_BYTES / CHUNK_BYTES;
    static constexpr u32 ROWS = TILE_M + TILE_N;
    static constexpr u32 QUARTERS = (ROWS + ROWS_AT_ONCE * WAVES - 1) / (ROWS_AT_ONCE * WAVES);
    // Of a chunk's buffer: a power of two, so that one bit says which buffer it is.
    static constexpr u32 BYTES = 1u << (32 - __builtin_clz(ROWS * CHUNK_BYTES - 1));
    const u8 *a, *b;
    u32 bytes_a, bytes_b, blocks, lds, wave, lane;
    u32 lane_block, lane_offset;  // of this lane in every instruction, rows being multiples of 16 blocks

    // The rows and blocks of an instruction's bytes: row `at` / 32, and its halves exchanged where the row's number says so.
    METHOD u32 block_at(u32 at) const { return (at / 16 % 2 ^ at / (8 * CHUNK_BYTES) % 2) * 16 + at % 16; }
    METHOD void begin() { lane_block = block_at(lane * 16), lane_offset = row_at(lane * 16 / CHUNK_BYTES) * blocks + lane_block; }

    // Reads `quarter` of a chunk into the chunk's buffer: where from, where to, and the load.
    METHOD u32 first_row(u32 quarter) const { return (quarter * WAVES + wave) * ROWS_AT_ONCE; }
    METHOD u32 corner(Corner tile, u32 first) const { return first < TILE_M ? tile.top : tile.left - TILE_M; }
    METHOD u32 start(u32 corner, u32 chunk, u32 first) const { return (corner + first) * blocks + chunk * CHUNK_BYTES; }
    METHOD u32 offset(u32 chunk, u32 start) const { return lane_block + chunk * CHUNK_BYTES < blocks ? start + lane_offset : OUTSIDE; }
    METHOD u32 to(u32 chunk, u32 first) const { return lds + chunk % 2 * BYTES + first * CHUNK_BYTES; }
    METHOD void load(u32 chunk, u32 first, u32 start, u32 offset, u32 to) const {
        bool is_a = first < TILE_M;
        Buffer buffer = buffer_of(is_a ? a : b, is_a ? bytes_a : bytes_b);
        if (blocks % 16 == 0) {
            load_to_lds(buffer, offset, 0, to);
        } else {
            load_bytes(buffer, start, chunk * CHUNK_BYTES, to);
        }
    }
    // Whether a wave has rows in a quarter, from `first` on.
#if defined(BREAK_QUARTER)
    METHOD bool has(u32 quarter, u32) const { return quarter < ROWS / (ROWS_AT_ONCE * WAVES); }
#else
    METHOD bool has(u32 quarter, u32 first) const { return ROWS % (ROWS_AT_ONCE * WAVES) ? first < ROWS : quarter < QUARTERS; }
#endif
    METHOD void load(Corner tile, u32 chunk, u32 quarter) const {
        u32 first = first_row(quarter);
        if (!has(quarter, first)) return;
        u32 from = start(corner(tile, first), chunk, first);
        load(chunk, first, from, offset(chunk, from), to(chunk, first));
    }
    // The same where rows begin anywhere.
    METHOD void load_bytes(Buffer buffer, u32 start, u32 first_block, u32 to) const {
#pragma unroll 1
        for (u32 at = lane * 4; at < LOAD_BYTES; at += 256) {
            u32 block = block_at(at), offset = start + row_at(at / CHUNK_BYTES) * blocks + block, word = 0;
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 byte = __builtin_amdgcn_raw_buffer_load_b8(buffer, first_block + block + i < blocks ? offset + i : OUTSIDE, 0, 0);
                word |= byte << (8 * i);
            }
            *(__attribute__((address_space(3))) u32 *)(to + at) = word;
        }
    }
    // Where the four bytes lie that hold this lane's two of a step, blocks 2 g and 2 g + 1: those of step 0 of the row, and what other steps exchange.
    METHOD u32 at(u32 row, u32 group) const { return row * CHUNK_BYTES + row / 8 % 2 * 16 + group / 2 * 4; }
    static METHOD u32 exchanged(u32 step) { return step % CHUNK_STEPS * STEP_BLOCKS | step / CHUNK_STEPS % 2 * BYTES; }
};

}  // namespace
