// AdamW over the flat arrays of a model, with the global gradient norm clipped on the device. As kernels/src/cpu/optimizer.rs.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: square_sums 32
// registers: norm_of 40
// registers: adamw 48
// registers: copy_bf16 32
#include "squares.h"

constexpr int THREADS = 256;

// partial[workgroup] = sum of squares of its share of gradient[0..count], in F64.
KERNEL(256) square_sums(const float* gradient, u64 count, double* partial) {
    SHARED double room[THREADS / WAVE];
    double sum = add_squares_of(0.0, gradient, (u64)blockIdx.x * THREADS + threadIdx.x, count, (u64)gridDim.x * THREADS);
    sum = group_sum<THREADS>(sum, room);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// *out = sqrt(sum of partial), one workgroup.
KERNEL(256) norm_of(const double* partial, int count, double* out) {
    SHARED double room[THREADS / WAVE];
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += partial[i];
    sum = group_sum<THREADS>(sum, room);
    if (threadIdx.x == 0) *out = sqrt(sum);
}

// A stretch of the flat arrays that belongs to one tensor.
struct Stretch { u64 start; u32 count; u32 decays; };

struct Numbers { float learning_rate, beta1, beta2, epsilon, weight_decay, bias_correction1, bias_correction2; };

// What an update has in common for all elements of a tensor.
struct Factors { float scale, root2, rate, keep, rest1, rest2; };

// AdamW of one element; first and second moment become the new ones.
DEVICE float updated(const Numbers& n, const Factors& f, float gradient, float parameter, float& first, float& second) {
    float g = gradient * f.scale;
    first = fmaf(n.beta1, first, f.rest1 * g);
    second = fmaf(n.beta2, second, f.rest2 * g * g);
    return fmaf(f.rate, first / (sqrtf(second) / f.root2 + n.epsilon), parameter * f.keep);
}

struct alignas(16) Four { float x[4]; };

// One update; `copies` are the parameters in BF16. Nothing changes when the loss or the norm is not finite: the run has diverged and
// its last state stays. Memory is what it waits for: four elements at a time, where a stretch begins and ends at multiples of four.
KERNEL(256) adamw(float* parameter, const float* gradient, float* first, float* second, u16* copies, const Stretch* stretches, Numbers n, double clip_norm, const double* norm, const double* loss) {
    if (!(*norm < (double)from_bits(0x7F7FFFFFu) * 1e10) || !(*loss - *loss == 0.0)) return;
    double factor = clip_norm / (*norm + 1e-6);
    Stretch mine = stretches[blockIdx.x];
    float decay = mine.decays ? n.weight_decay : 0.0f;
    Factors f = {(float)(factor < 1.0 ? factor : 1.0), sqrtf(n.bias_correction2), -(n.learning_rate / n.bias_correction1), 1.0f - n.learning_rate * decay, 1.0f - n.beta1, 1.0f - n.beta2};
    u32 fours = mine.start % 4 == 0 ? mine.count / 4 : 0;
    for (u32 i = threadIdx.x; i < fours; i += THREADS) {
        u64 at = mine.start + 4 * i;
        Four g = *(const Four*)(gradient + at), p = *(const Four*)(parameter + at), m = *(const Four*)(first + at), v = *(const Four*)(second + at);
#pragma unroll
        for (int j = 0; j < 4; ++j) p.x[j] = updated(n, f, g.x[j], p.x[j], m.x[j], v.x[j]);
        *(Four*)(first + at) = m;
        *(Four*)(second + at) = v;
        *(Four*)(parameter + at) = p;
        *(Vector8*)(copies + at) = {{bf16_encode(p.x[0]) | bf16_encode(p.x[1]) << 16, bf16_encode(p.x[2]) | bf16_encode(p.x[3]) << 16}};
    }
    for (u32 i = 4 * fours + threadIdx.x; i < mine.count; i += THREADS) {
        u64 at = mine.start + i;
        float p = updated(n, f, gradient[at], parameter[at], first[at], second[at]);
        parameter[at] = p;
        copies[at] = (u16)bf16_encode(p);
    }
}

// BF16 copies of F32 values.
KERNEL(256) copy_bf16(const float* from, u16* to, u64 count) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS) to[i] = (u16)bf16_encode(from[i]);
}
