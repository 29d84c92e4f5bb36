// Sums of squares of a gradient, for its norm.
#pragma once
#include "portable.h"

// Loads of a thread that wait together: its sum goes on in order.
constexpr int SQUARES_AT_ONCE = 16;

// `sum` and the squares of gradient[i], gradient[i + step], ... before `count`, in this order.
DEVICE double add_squares_of(double sum, const float* gradient, u64 i, u64 count, u64 step) {
    for (; i + (SQUARES_AT_ONCE - 1) * step < count; i += SQUARES_AT_ONCE * step) {
        float x[SQUARES_AT_ONCE];
#pragma unroll
        for (int j = 0; j < SQUARES_AT_ONCE; ++j) x[j] = gradient[i + j * step];
#pragma unroll
        for (int j = 0; j < SQUARES_AT_ONCE; ++j) sum = fma((double)x[j], (double)x[j], sum);
    }
    for (; i < count; i += step) sum = fma((double)gradient[i], (double)gradient[i], sum);
    return sum;
}
