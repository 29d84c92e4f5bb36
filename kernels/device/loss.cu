// Softmax cross-entropy over the vocabulary, and the sums that a step reports.
//
// logits: [tokens, vocabulary] BF16, overwritten by their gradient times `scale` when `gradient` is not 0; loss: [tokens] F32, nats.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: cross_entropy 40
// registers: sum_losses 40
#include "portable.h"

constexpr int THREADS = 512;

KERNEL(512) cross_entropy(u16* logits, const u32* targets, float* loss, int vocabulary, float scale, int gradient) {
    SHARED float maxima[THREADS / WAVE], room[THREADS / WAVE];
    u16* row = logits + (u64)blockIdx.x * vocabulary;
    u32 target = targets[blockIdx.x];
    float target_logit = bf16_decode(row[target]);
    float largest = -INFINITY_, sum = 0.0f;
    // Maximum and sum in one pass: a thread's sum is rescaled when its maximum grows.
    for (int at = 8 * threadIdx.x; at < vocabulary; at += 8 * THREADS) {
        float x[8];
        if (vocabulary % 8 == 0) {
            unpack8(*(const Vector16*)(row + at), x);
        } else {
            for (int j = 0; j < 8; ++j) x[j] = at + j < vocabulary ? bf16_decode(row[at + j]) : -INFINITY_;
        }
        float here = x[0];
        bool bad = x[0] != x[0];
        for (int j = 1; j < 8; ++j) { here = fmaxf(here, x[j]); bad |= x[j] != x[j]; }
        float grown = bad ? NAN_ : fmaxf(largest, here);
        float added = 0.0f;
        for (int j = 0; j < 8; ++j) added += __expf(x[j] - grown);
        sum = (largest == grown ? sum : sum * __expf(largest - grown)) + added;
        largest = grown;
    }
    // NaN wins over any maximum, so that a diverged run shows.
    float top = largest;
    bool broken = largest != largest;
    for (int mask = 1; mask < WAVE; mask *= 2) { top = fmaxf(top, shuffle_xor(top, mask)); broken |= shuffle_xor(broken ? 1u : 0u, mask) != 0; }
    if (threadIdx.x % WAVE == 0) maxima[threadIdx.x / WAVE] = broken ? NAN_ : top;
    BARRIER();
    top = maxima[0];
    broken = top != top;
    for (int wave = 1; wave < THREADS / WAVE; ++wave) { broken |= maxima[wave] != maxima[wave]; top = fmaxf(top, maxima[wave]); }
    if (broken) top = NAN_;
    float total = group_sum<THREADS>(largest == -INFINITY_ ? 0.0f : sum * __expf(largest - top), room);
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(total) + top - target_logit;
    if (!gradient) return;
    float inverse = 1.0f / total;
    for (int at = 8 * threadIdx.x; at < vocabulary; at += 8 * THREADS) {
        float x[8];
        if (vocabulary % 8 == 0) {
            unpack8(*(const Vector16*)(row + at), x);
        } else {
            for (int j = 0; j < 8; ++j) x[j] = at + j < vocabulary ? bf16_decode(row[at + j]) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) x[j] = (__expf(x[j] - top) * inverse - ((u32)(at + j) == target ? 1.0f : 0.0f)) * scale;
        if (vocabulary % 8 == 0) {
            *(Vector16*)(row + at) = pack8(x);
        } else {
            for (int j = 0; j < 8; ++j)
                if (at + j < vocabulary) row[at + j] = (u16)bf16_encode(x[j]);
        }
    }
}

// *out = sum of values[0..count], in F64 and a fixed order; one workgroup.
KERNEL(512) sum_losses(const float* values, int count, double* out) {
    SHARED double room[THREADS / WAVE];
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += (double)values[i];
    sum = group_sum<THREADS>(sum, room);
    if (threadIdx.x == 0) *out = sum;
}
