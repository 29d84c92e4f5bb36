// Gradients of micro-batches: their sum and their mean, element by element in F32, each rounded once.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: add 24
// registers: divide 24
#include "portable.h"

// sum[i] += more[i].
KERNEL(256) add(float* sum, const float* more, u64 count) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i < count) sum[i] = sum[i] + more[i];
}

// numbers[i] /= by, correctly rounded: the compiler's division in F32 is, unless it is told to be fast.
KERNEL(256) divide(float* numbers, float by, u64 count) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i < count) numbers[i] = numbers[i] / by;
}
