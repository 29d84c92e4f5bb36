// RMSNorm forward and backward. -DWIDTH: elements a row.
//
// y = x r gain with r = 1 / sqrt(mean(x^2) + epsilon); without y only r is wanted. x, y, d_y, d_x: [rows, WIDTH] BF16; gain and its gradient F32; r: [rows] F32.
//
// Budgets that CI holds them to (.ci/check-cuda), on sm_90a:
// registers: rms_norm 64
// registers: rms_norm_backward 128
// registers: sum_partial 32
#include "activations.h"

constexpr int LANES = WIDTH <= 1024 ? WAVE : 256;       // threads that share a row
constexpr int THREADS = 256;
constexpr int ROWS_AT_ONCE = THREADS / LANES;
constexpr int PIECES = (WIDTH + 8 * LANES - 1) / (8 * LANES); // fragments of eight a thread

DEVICE float row_sum(float value, float* room) { return LANES == WAVE ? lane_sum(value, WAVE) : group_sum<THREADS>(value, room); }

DEVICE void load_row(const u16* row, int thread, float (&x)[PIECES][8]) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        int column = 8 * (i * LANES + thread);
        if (WIDTH % 8 == 0 && column < WIDTH) {
            unpack8(*(const Vector16*)(row + column), x[i]);
        } else {
#pragma unroll
            for (int j = 0; j < 8; ++j) x[i][j] = column + j < WIDTH ? bf16_decode(row[column + j]) : 0.0f;
        }
    }
}

DEVICE void store_row(u16* row, int thread, const float (&y)[PIECES][8]) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        int column = 8 * (i * LANES + thread);
        if (WIDTH % 8 == 0 && column < WIDTH) {
            *(Vector16*)(row + column) = pack8(y[i]);
        } else {
            for (int j = 0; j < 8; ++j)
                if (column + j < WIDTH) row[column + j] = (u16)bf16_encode(y[i][j]);
        }
    }
}

DEVICE void load_gain(const float* gain, int thread, float (&g)[PIECES][8]) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            int column = 8 * (i * LANES + thread) + j;
            g[i][j] = column < WIDTH ? gain[column] : 0.0f;
        }
}

KERNEL(256) rms_norm(const u16* x, const float* gain, float epsilon, u16* y, float* inverse_rms, int rows) {
    SHARED float room[THREADS / WAVE];
    int thread = threadIdx.x % LANES;
    float g[PIECES][8];
    load_gain(gain, thread, g);
    for (int row = blockIdx.x * ROWS_AT_ONCE + threadIdx.x / LANES; row < rows; row += gridDim.x * ROWS_AT_ONCE) {
        float v[PIECES][8], squares = 0.0f;
        load_row(x + (u64)row * WIDTH, thread, v);
#pragma unroll
        for (int i = 0; i < PIECES; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) squares = fmaf(v[i][j], v[i][j], squares);
        float r = 1.0f / sqrtf(row_sum(squares, room) / (float)WIDTH + epsilon);
        if (thread == 0) inverse_rms[row] = r;
        if (y == nullptr) continue;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) normalise8(v[i], r, g[i]);
        store_row(y + (u64)row * WIDTH, thread, v);
    }
}

// d_x = r (d_y gain) - x r^3 / WIDTH sum(d_y gain x), added to `stream` when that is given (both may be the same array); partial:
// [gridDim.x, WIDTH], this workgroup's sums of d_y x r for the gain's gradient.
KERNEL(256) rms_norm_backward(const u16* x, const float* gain, const float* inverse_rms, const u16* d_y, const u16* stream, u16* d_x, float* partial, int rows) {
    SHARED float room[THREADS / WAVE];
    SHARED float sums[ROWS_AT_ONCE > 1 ? ROWS_AT_ONCE * WIDTH : 1];
    int thread = threadIdx.x % LANES, group = threadIdx.x / LANES;
    float g[PIECES][8], d_gain[PIECES][8];
    load_gain(gain, thread, g);
#pragma unroll
    for (int i = 0; i < PIECES; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) d_gain[i][j] = 0.0f;
    for (int row = blockIdx.x * ROWS_AT_ONCE + group; row < rows; row += gridDim.x * ROWS_AT_ONCE) {
        float v[PIECES][8], d[PIECES][8], product = 0.0f, r = inverse_rms[row];
        load_row(x + (u64)row * WIDTH, thread, v);
        load_row(d_y + (u64)row * WIDTH, thread, d);
#pragma unroll
        for (int i = 0; i < PIECES; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                product = fmaf(d[i][j] * g[i][j], v[i][j], product);
                d_gain[i][j] = fmaf(d[i][j], v[i][j] * r, d_gain[i][j]);
            }
        float along = -(r * r * r * row_sum(product, room) / (float)WIDTH);
#pragma unroll
        for (int i = 0; i < PIECES; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) d[i][j] = fmaf(v[i][j], along, r * (d[i][j] * g[i][j]));
        if (stream != nullptr) {
            load_row(stream + (u64)row * WIDTH, thread, v);
#pragma unroll
            for (int i = 0; i < PIECES; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) d[i][j] = v[i][j] + d[i][j];
        }
        store_row(d_x + (u64)row * WIDTH, thread, d);
    }
    float* mine = partial + (u64)blockIdx.x * WIDTH;
#pragma unroll
    for (int i = 0; i < PIECES; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            int column = 8 * (i * LANES + thread) + j;
            if (column >= WIDTH) continue;
            if (ROWS_AT_ONCE > 1) {
                sums[group * WIDTH + column] = d_gain[i][j];
            } else {
                mine[column] = d_gain[i][j];
            }
        }
    if (ROWS_AT_ONCE > 1) {
        BARRIER();
        for (int column = threadIdx.x; column < WIDTH; column += THREADS) {
            float sum = 0.0f;
            for (int i = 0; i < ROWS_AT_ONCE; ++i) sum += sums[i * WIDTH + column];
            mine[column] = sum;
        }
    }
}

// out[column] = sum of partial[0..count][column], in order.
KERNEL(256) sum_partial(const float* partial, int count, float* out) {
    SHARED float sums[8][32];
    int column = blockIdx.x * 32 + threadIdx.x % 32, slice = threadIdx.x / 32;
    float sum = 0.0f;
    if (column < WIDTH)
        for (int i = slice; i < count; i += 8) sum += partial[(u64)i * WIDTH + column];
    sums[slice][threadIdx.x % 32] = sum;
    BARRIER();
    if (slice == 0 && column < WIDTH) {
        for (int i = 1; i < 8; ++i) sum += sums[i][threadIdx.x % 32];
        out[column] = sum;
    }
}
