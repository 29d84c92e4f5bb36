// What activations are made from: the arithmetic of RMSNorm and SwiGLU on eight neighbours, in one place, because what is not kept is made
// again to the same bits wherever it is read (quantise.cu, from the norm's input or from gate and up).
#pragma once
#include "portable.h"

// RMSNorm once its row's factor r is known, before it is rounded to BF16.
DEVICE void normalise8(float (&x)[8], float r, const float (&gain)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = x[j] * r * gain[j];
}

DEVICE float logistic(float x) { return 1.0f / (1.0f + __expf(-x)); }

// up = gate logistic(gate) up.
DEVICE void swiglu8(const float (&gate)[8], float (&up)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) up[j] = gate[j] * logistic(gate[j]) * up[j];
}
