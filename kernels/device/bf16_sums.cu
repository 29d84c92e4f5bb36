// Sums of gradients that a defect keeps in BF16, which accumulate.cu keeps in F32.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: round_sums 24
#include "portable.h"

// numbers[i] = the nearest BF16, as an F32.
KERNEL(256) round_sums(float* numbers, u64 count) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i < count) numbers[i] = bf16_decode((u16)bf16_encode(numbers[i]));
}
