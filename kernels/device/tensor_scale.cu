// F32 scales of tensor-scaled FP8 operands, and the histories of delayed scaling. As kernels/src/quantise::tensor_scale.
//
// Inverse scales go to the matrix library, which wants each at a multiple of 16 bytes: four F32 apart.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: scale_now 32
// registers: remember 40
#include "portable.h"

// largest / amax and 1 / that; 1 and 1 for zero, NaN where amax is not finite.
DEVICE void scale_for(float amax, float largest, float* scale, float* inverse) {
    float s = amax == 0.0f ? 1.0f : fminf(largest / amax, from_bits(253u << 23));
    if ((to_bits(amax) & 0x7F800000u) == 0x7F800000u) s = from_bits(0x7FC00000u);
    *scale = s;
    *inverse = 1.0f / s;
}

// From the largest magnitude of the operand itself, for one slot.
KERNEL(32) scale_now(const u32* amax, float largest, float* scale, float* inverse) {
    if (threadIdx.x == 0) scale_for(from_bits(*amax), largest, scale, inverse);
}

// After a step: every slot's largest magnitude joins its history (`filled` of `length` entries are there, oldest first), the scale of
// the next step is chosen, and the collection starts again. history: [slots, length]; largest: [slots], 0 where a slot is not delayed.
KERNEL(128) remember(u32* amax, float* history, int filled, int length, int choose_largest, const float* largest, float* scale, float* inverse, int slots) {
    int slot = blockIdx.x * 128 + threadIdx.x;
    if (slot >= slots || largest[slot] == 0.0f) return;
    float* mine = history + (u64)slot * length;
    float newest = from_bits(amax[slot]);
    amax[slot] = 0;
    if (filled == length) {
        for (int i = 1; i < length; ++i) mine[i - 1] = mine[i];
        mine[length - 1] = newest;
    } else {
        mine[filled] = newest;
    }
    int count = filled == length ? length : filled + 1;
    float chosen = newest;
    if (choose_largest) {
        chosen = mine[0];
        // As f32::max: a NaN gives way.
        for (int i = 1; i < count; ++i) chosen = fmaxf(chosen, mine[i]);
    }
    scale_for(chosen, largest[slot], scale + slot, inverse + 4 * slot);
}
