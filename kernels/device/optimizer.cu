// AdamW over the flat arrays of a model, with the global gradient norm clipped on the device. As kernels/src/cpu/optimizer.rs.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: square_sums 32
// registers: norm_of 40
// registers: adamw 40
// registers: copy_bf16 32
#include "portable.h"

constexpr int THREADS = 256;

// partial[workgroup] = sum of squares of its share of gradient[0..count], in F64.
KERNEL(256) square_sums(const float* gradient, u64 count, double* partial) {
    SHARED double room[THREADS / WAVE];
    double sum = 0.0;
    u64 step = (u64)gridDim.x * THREADS;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        double x = gradient[i];
        sum = fma(x, x, sum);
    }
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

// One update; `copies` are the parameters in BF16. Nothing changes when the loss or the norm is not finite: the run has diverged and
// its last state stays.
KERNEL(256) adamw(float* parameter, const float* gradient, float* first, float* second, u16* copies, const Stretch* stretches, Numbers n, double clip_norm, const double* norm, const double* loss) {
    if (!(*norm < (double)from_bits(0x7F7FFFFFu) * 1e10) || !(*loss - *loss == 0.0)) return;
    double factor = clip_norm / (*norm + 1e-6);
    float scale = (float)(factor < 1.0 ? factor : 1.0);
    Stretch mine = stretches[blockIdx.x];
    float decay = mine.decays ? n.weight_decay : 0.0f;
    float root2 = sqrtf(n.bias_correction2), rate = -(n.learning_rate / n.bias_correction1), keep = 1.0f - n.learning_rate * decay;
    float rest1 = 1.0f - n.beta1, rest2 = 1.0f - n.beta2;
    for (u32 i = threadIdx.x; i < mine.count; i += THREADS) {
        u64 at = mine.start + i;
        float g = gradient[at] * scale;
        float m = fmaf(n.beta1, first[at], rest1 * g);
        float v = fmaf(n.beta2, second[at], rest2 * g * g);
        float p = fmaf(rate, m / (sqrtf(v) / root2 + n.epsilon), parameter[at] * keep);
        first[at] = m;
        second[at] = v;
        parameter[at] = p;
        copies[at] = (u16)bf16_encode(p);
    }
}

// BF16 copies of F32 values.
KERNEL(256) copy_bf16(const float* from, u16* to, u64 count) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS) to[i] = (u16)bf16_encode(from[i]);
}
