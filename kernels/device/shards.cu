// The gradient's norm where each of several ranks has a shard of it: the sums of square_sums and norm_of (optimizer.cu), bit for bit. There every
// thread adds the squares of elements that lie a whole grid apart. Here a rank adds those of its shard to the sums that the rank before left.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: add_squares 32
// registers: group_sums 32
#include "portable.h"

constexpr int THREADS = 256;

// sums[thread of the grid] goes on over gradient[0..count], which is elements first..first + count of the whole.
KERNEL(256) add_squares(const float* gradient, u64 first, u64 count, double* sums) {
    u64 step = (u64)gridDim.x * THREADS, thread = (u64)blockIdx.x * THREADS + threadIdx.x;
    double sum = sums[thread];
    for (u64 i = (thread + step - first % step) % step; i < count; i += step) {
        double x = gradient[i];
        sum = fma(x, x, sum);
    }
    sums[thread] = sum;
}

// partial[workgroup] = sum of its threads' sums.
KERNEL(256) group_sums(const double* sums, double* partial) {
    SHARED double room[THREADS / WAVE];
    double sum = group_sum<THREADS>(sums[(u64)blockIdx.x * THREADS + threadIdx.x], room);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
