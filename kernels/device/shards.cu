// What only several ranks run.
//
// The gradient's norm where each has a shard of it: the sums of square_sums and norm_of (optimizer.cu), bit for bit. There every
// thread adds the squares of elements that lie a whole grid apart. Here a rank adds those of its shard to the sums that the rank before left.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: add_squares 64
// registers: group_sums 32
// registers: embedding_rows 32
#include "activations.h"

constexpr int THREADS = 256;
// Loads of a thread that wait together: its sum goes on in order.
constexpr int AT_ONCE = 16;

// Some threads of that grid, which has `step` of them: this one is number `before` + its number here. Its sum goes on over gradient[0..count],
// which is elements first..first + count of the whole.
KERNEL(256) add_squares(const float* gradient, u64 first, u64 count, double* sums, u64 before, u64 step) {
    u64 own = (u64)blockIdx.x * THREADS + threadIdx.x, i = (before + own + step - first % step) % step;
    double sum = sums[own];
    for (; i + (AT_ONCE - 1) * step < count; i += AT_ONCE * step) {
        float x[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) x[j] = gradient[i + j * step];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) sum = fma((double)x[j], (double)x[j], sum);
    }
    for (; i < count; i += step) sum = fma((double)gradient[i], (double)gradient[i], sum);
    sums[own] = sum;
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
