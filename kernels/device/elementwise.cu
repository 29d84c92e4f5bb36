// What a block does between its products: rotary positions, SwiGLU, embedding rows. BF16 activations, F32 arithmetic.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: rope 40
// registers: swiglu 40
// registers: swiglu_backward 48
// registers: embedding 32
// registers: embedding_backward 40
#include "activations.h"

// In place on the first `heads` heads of each row of x: [tokens, width]; token t has position t mod sequence; cosine, sine:
// [positions, half] F32; sign 1 forward, -1 backward. a' = fma(a, cos, -(b sin)), b' = fma(b, cos, a sin). half is a multiple of 8.
KERNEL(256) rope(u16* x, int tokens, int width, int heads, int half, int sequence, const float* cosine, const float* sine, float sign) {
    int fragments = half / 8;
    u64 number = (u64)blockIdx.x * 256 + threadIdx.x;
    if (number >= (u64)tokens * heads * fragments) return;
    int at = 8 * (int)(number % fragments), head = (int)(number / fragments % heads);
    u64 token = number / fragments / heads;
    u16* first = x + token * width + head * 2 * half + at;
    u16* second = first + half;
    const float* c = cosine + (token % sequence) * half + at;
    const float* s = sine + (token % sequence) * half + at;
    float a[8], b[8];
    unpack8(*(Vector16*)first, a);
    unpack8(*(Vector16*)second, b);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        float cos_j = c[j], sin_j = s[j] * sign, old = a[j];
        a[j] = fmaf(old, cos_j, -(b[j] * sin_j));
        b[j] = fmaf(b[j], cos_j, old * sin_j);
    }
    *(Vector16*)first = pack8(a);
    *(Vector16*)second = pack8(b);
}

// gate_up: [tokens, 2 width], gate first; hidden: [tokens, width] = gate logistic(gate) up. width is a multiple of 8.
KERNEL(256) swiglu(const u16* gate_up, u16* hidden, int tokens, int width) {
    u64 number = (u64)blockIdx.x * 256 + threadIdx.x, fragments = width / 8;
    if (number >= tokens * fragments) return;
    u64 token = number / fragments, at = 8 * (number % fragments);
    float gate[8], up[8];
    unpack8(*(const Vector16*)(gate_up + token * 2 * width + at), gate);
    unpack8(*(const Vector16*)(gate_up + token * 2 * width + width + at), up);
    swiglu8(gate, up);
    *(Vector16*)(hidden + token * width + at) = pack8(up);
}

// d_gate_up from d_hidden: [tokens, width]; with `hidden`, what swiglu made, too. A thread reads its elements before it writes them: d_gate_up
// may be gate_up, and hidden d_hidden.
KERNEL(256) swiglu_backward(const u16* gate_up, const u16* d_hidden, u16* d_gate_up, u16* hidden, int tokens, int width) {
    u64 number = (u64)blockIdx.x * 256 + threadIdx.x, fragments = width / 8;
    if (number >= tokens * fragments) return;
    u64 token = number / fragments, at = 8 * (number % fragments);
    float gate[8], up[8], d[8];
    unpack8(*(const Vector16*)(gate_up + token * 2 * width + at), gate);
    unpack8(*(const Vector16*)(gate_up + token * 2 * width + width + at), up);
    unpack8(*(const Vector16*)(d_hidden + token * width + at), d);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        float s = logistic(gate[j]), silu = gate[j] * s, d_j = d[j];
        float d_gate = d_j * up[j] * (s * (1.0f + gate[j] * (1.0f - s)));
        d[j] = silu * up[j];
        up[j] = d_j * silu;
        gate[j] = d_gate;
    }
    if (hidden != nullptr) *(Vector16*)(hidden + token * width + at) = pack8(d);
    *(Vector16*)(d_gate_up + token * 2 * width + at) = pack8(gate);
    *(Vector16*)(d_gate_up + token * 2 * width + width + at) = pack8(up);
}

// out[t] = table[token t], F32 to BF16. width is a multiple of 8.
KERNEL(256) embedding(const float* table, const u32* tokens, u16* out, int count, int width) {
    u64 number = (u64)blockIdx.x * 256 + threadIdx.x, fragments = width / 8;
    if (number >= count * fragments) return;
    u64 token = number / fragments, at = 8 * (number % fragments);
    const float* row = table + (u64)tokens[token] * width + at;
    float x[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = row[j];
    *(Vector16*)(out + token * width + at) = pack8(x);
}

// d_table[v] = sum of the gradients of the tokens that are v, in a fixed order: `order` lists token positions by vocabulary entry,
// those of v from starts[v] to starts[v + 1]. A workgroup takes EMBEDDING_COLUMNS columns of one entry, 128 at a time: sixteen rows at a time,
// then their sums. Most entries of a large vocabulary are in no batch.
constexpr int EMBEDDING_COLUMNS = 512;
KERNEL(256) embedding_backward(const u16* gradient, const u32* order, const u32* starts, float* d_table, int width) {
    SHARED float sums[16][128];
    u32 first = starts[blockIdx.x], last = starts[blockIdx.x + 1];
    float* row = d_table + (u64)blockIdx.x * width;
    int begin = blockIdx.y * EMBEDDING_COLUMNS, end = min(begin + EMBEDDING_COLUMNS, width), own = threadIdx.x;
    if (first == last) {
        for (int column = begin + 4 * own; column < end; column += 4 * 256) *(Vector16*)(row + column) = {{0, 0, 0, 0}};
        return;
    }
    int lane = own % 16, slice = own / 16;
    for (int from = begin; from < end; from += 128) {
        int column = from + 8 * lane;
        float sum[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (column < width) {
            for (u32 i = first + slice; i < last; i += 16) {
                float x[8];
                unpack8(*(const Vector16*)(gradient + (u64)order[i] * width + column), x);
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[j] += x[j];
            }
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[slice][8 * lane + j] = sum[j];
        BARRIER();
        if (own < 128 && from + own < width) {
            float total = sums[0][own];
            for (int i = 1; i < 16; ++i) total += sums[i][own];
            row[from + own] = total;
        }
        // The next columns take the sums' place.
        BARRIER();
    }
}
