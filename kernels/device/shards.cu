// What only several ranks run.
//
// The gradient's norm where each has a shard of it: the sums of square_sums and norm_of (optimizer.cu), bit for bit. There every
// thread adds the squares of elements that lie a whole grid apart. Here a rank adds those of its shard to the sums that the rank before left.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: add_squares 64
// registers: group_sums 32
// registers: embedding_rows 32
// registers: pack_rows 32
// registers: add_rows 32
// registers: add_pieces 40
#include "squares.h"

constexpr int THREADS = 256;
// Some threads of that grid, which has `step` of them: this one is number `before` + its number here. Its sum goes on over gradient[0..count],
// which is elements first..first + count of the whole.
KERNEL(256) add_squares(const float* gradient, u64 first, u64 count, double* sums, u64 before, u64 step) {
    u64 own = (u64)blockIdx.x * THREADS + threadIdx.x, i = (before + own + step - first % step) % step;
    sums[own] = add_squares_of(sums[own], gradient, i, count, step);
}

// partial[workgroup] = sum of its threads' sums.
KERNEL(256) group_sums(const double* sums, double* partial) {
    SHARED double room[THREADS / WAVE];
    double sum = group_sum<THREADS>(sums[(u64)blockIdx.x * THREADS + threadIdx.x], room);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// out[t] = table[token t], both BF16. width is a multiple of 8.
KERNEL(256) embedding_rows(const u16* table, const u32* tokens, u16* out, int count, int width) {
    u64 number = (u64)blockIdx.x * THREADS + threadIdx.x, fragments = width / 8;
    if (number >= count * fragments) return;
    u64 token = number / fragments, at = 8 * (number % fragments);
    *(Vector16*)(out + token * width + at) = *(const Vector16*)(table + (u64)tokens[token] * width + at);
}

// The rows of an embedding's gradient that a batch has, packed: slot k has the row of the entry whose first token is number k in `order` (as
// embedding_backward has it), and that entry's number; -1 where number k is not the first of its entry. A workgroup takes one slot.
KERNEL(256) pack_rows(const float* d_table, const u32* tokens, const u32* order, const u32* starts, float* entries, float* rows, int width) {
    u32 slot = blockIdx.x, entry = tokens[order[slot]];
    int is_first = starts[entry] == slot;
    if (threadIdx.x == 0) entries[slot] = is_first ? (float)entry : -1.0f;
    if (!is_first) return;
    for (int i = threadIdx.x; i < width; i += THREADS) rows[(u64)slot * width + i] = d_table[(u64)entry * width + i];
}

// sum[0..count] is elements first..first + count of an embedding's gradient: each that is in a packed row gets it added.
KERNEL(256) add_rows(float* sum, u64 first, u64 count, const float* entries, const float* rows, int width) {
    float entry = entries[blockIdx.x];
    if (entry < 0.0f) return;
    u64 begin = (u64)entry * width;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        u64 at = begin + i;
        if (at >= first && at - first < count) sum[at - first] += rows[(u64)blockIdx.x * width + i];
    }
}

constexpr int PIECES = 8;
struct Pieces {
    const float* at[PIECES];
};

// sum[i] is sum[i] + at[0][i] + at[1][i] + ..., so many pieces, from left to right and each sum rounded; at[0][i] + at[1][i] + ... where it begins.
KERNEL(256) add_pieces(float* sum, Pieces pieces, int count_of_pieces, int begins, u64 count) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    float total = pieces.at[0][i];
    if (!begins) total = sum[i] + total;
#pragma unroll
    for (int piece = 1; piece < PIECES; piece++)
        if (piece < count_of_pieces) total = total + pieces.at[piece][i];
    sum[i] = total;
}
