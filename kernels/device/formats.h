// Number formats and random words, bit for bit those of kernels/src/format and kernels/src/random.rs.
#pragma once
#include "portable.h"

// Formats as the host passes them (-DFORMAT=...).
#define E2M1 0
#define E4M3 1
#define E5M2 2
#define BF16 3

// Roundings (-DROUNDING=...).
#define NEAREST_EVEN 0
#define STOCHASTIC 1
#define STOCHASTIC_PRESCALED 2

// Scale rules of a block's shared exponent (-DSCALE_RULE=...).
#define FLOOR 0
#define EVEN 1
#define CEIL 2

template <int FORMAT_> struct MiniFloat;
template <> struct MiniFloat<E2M1> {
    static constexpr u32 mantissa_bits = 1, bias = 1, largest_exponent = 2, largest_bits = 0x40C00000u; // 6
};
template <> struct MiniFloat<E4M3> {
    static constexpr u32 mantissa_bits = 3, bias = 7, largest_exponent = 8, largest_bits = 0x43E00000u; // 448
};
template <> struct MiniFloat<E5M2> {
    static constexpr u32 mantissa_bits = 2, bias = 15, largest_exponent = 15, largest_bits = 0x47600000u; // 57344
};

// The word at an index of a stream whose two halves were mixed with the first key word: low * 0x9E3779B1 + high * 0x85EBCA6B + k0.
constexpr u32 SPREAD_LOW = 0x9E3779B1u, SPREAD_HIGH = 0x85EBCA6Bu;
DEVICE u32 random_word(u32 mixed, u32 k1) {
    u32 x = mixed ^ (mixed >> 16);
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    // (x + k1) * 0x846CA68B, as one product and sum beside a product that all words share.
    u32 shared = k1 * 0x846CA68Bu;
#if !ON_AMD
    asm("" : "+r"(shared)); // or the compiler takes the factor out again
#endif
    x = x * 0x846CA68Bu + shared;
    return x ^ (x >> 16);
}

// |value| on the grid of a format, saturated; finite magnitudes only. As MiniFloat::encode, but the value instead of the code.
template <int F> DEVICE float round_magnitude_nearest(float magnitude) {
    typedef MiniFloat<F> M;
    constexpr u32 dropped = 23 - M::mantissa_bits;
    const float smallest = from_bits((128 - M::bias) << 23);
    const float magic = from_bits((128 - M::bias + dropped) << 23);
    u32 bits = to_bits(magnitude);
    float normal = from_bits((bits + ((1u << (dropped - 1)) - 1) + ((bits >> dropped) & 1u)) & ~((1u << dropped) - 1));
    float value = magnitude < smallest ? (magnitude + magic) - magic : normal;
    const float largest = from_bits(M::largest_bits);
    return magnitude >= 2.0f * largest ? largest : fminf(value, largest);
}

template <int F> DEVICE float round_magnitude_stochastic(float magnitude, u32 word) {
    typedef MiniFloat<F> M;
    constexpr u32 dropped = 23 - M::mantissa_bits, mask = (1u << dropped) - 1;
    const float smallest = from_bits((128 - M::bias) << 23);
    u32 random = word & mask;
    float subnormal = from_bits((to_bits(magnitude + smallest) + random) & ~mask) - smallest;
    float normal = from_bits((to_bits(magnitude) + random) & ~mask);
    float value = magnitude < smallest ? subnormal : normal;
    const float largest = from_bits(M::largest_bits);
    return magnitude >= 2.0f * largest ? largest : fminf(value, largest);
}

// A scaled magnitude on the grid of E2M1. The shared scale keeps magnitudes below 8 (a largest magnitude's exponent minus 2), so the
// grid's step follows from the exponent, held between those of 1 and 4, and adding 2^22 of that power of two leaves exactly that step.
DEVICE float round_e2m1_nearest(float magnitude) {
    float power = fminf(fmaxf(from_bits(to_bits(magnitude) & 0x7F800000u), 1.0f), 4.0f);
    float magic = power * 4194304.0f;
    return fminf((magnitude + magic) - magic, 6.0f);
}
// As round_magnitude_stochastic: below 1, where the grid is uniform, 1 is added first and taken away last.
DEVICE float round_e2m1_stochastic(float magnitude, u32 word) {
    float one = magnitude < 1.0f ? 1.0f : 0.0f;
    u32 bits = to_bits(magnitude + one) + (word & 0x3FFFFFu);
    return fminf(from_bits(bits & 0xFFC00000u) - one, 6.0f);
}

// The same on values that were not divided by their block's scale: a power of two moves the grid, and rounding with it. `exponent`: the
// scale's exponent field, where an F32 has it. Adding 2^22 of the larger power of two must not overflow, and what lies far below the
// scale must not meet the subnormals, where sums are exact: MOVABLE says for which scales that holds.
#define MOVABLE(exponent) ((exponent) - (32u << 23) <= (198u << 23))
// The exponent field that scale_byte chooses for E2M1, of a block whose scale is movable; not movable where the block's is not.
template <int RULE> DEVICE u32 scale_exponent(u32 amax) {
    constexpr u32 carry = RULE == EVEN ? 0x200000u : RULE == CEIL ? 0x3FFFFFu : 0u;
    return ((amax + carry) & 0x7F800000u) - (2u << 23);
}
// What the floor rule alone can round to 8 is held at 6: the others keep magnitudes below 7.
template <int RULE> DEVICE float round_e2m1_nearest_on(float x, u32 exponent) {
    float scale = from_bits(exponent), magnitude = fabsf(x);
    float magic = from_bits(to_bits(fmaxf(magnitude, scale)) & 0x7F800000u) * 4194304.0f;
    float rounded = (magnitude + magic) - magic;
    if (RULE == FLOOR) rounded = fminf(rounded, 6.0f * scale);
    return from_bits(to_bits(rounded) | (to_bits(x) & 0x80000000u));
}
// `one`: 1 below the scale, else 0, without a comparison: 2^25 (1 - magnitude / scale) is at least 2, or not above 0.
DEVICE float round_e2m1_stochastic_on(float x, u32 exponent, u32 word) {
    float scale = from_bits(exponent), magnitude = fabsf(x);
    float one = saturate(fmaf(magnitude, -from_bits((279u << 23) - exponent), 33554432.0f));
    u32 bits = to_bits(fmaf(one, scale, magnitude)) + (word & 0x3FFFFFu);
    float rounded = fminf(fmaf(-one, scale, from_bits(bits & 0xFFC00000u)), 6.0f * scale);
    return from_bits(to_bits(rounded) | (to_bits(x) & 0x80000000u));
}

// Two BF16 values on the grids of their blocks' scales, in BF16 arithmetic: 2^6 of the larger power of two leaves the grid's step in the
// last of eight bits. `exponents`: the scales' exponent fields where a BF16 has them, both movable; `sixes`: 6 of each scale.
DEVICE u32 round_e2m1_pair(u32 pair, u32 exponents, u32 sixes) {
    u32 magnitudes = pair & 0x7FFF7FFFu;
    u32 magic = (max_halves(magnitudes, exponents) & 0x7F807F80u) + 0x03000300u;
    u32 rounded = min_bf16_pairs(subtract_bf16_pairs(add_bf16_pairs(magnitudes, magic), magic), sixes);
    return rounded | (pair & 0x80008000u);
}

// Two finite F32 as FP8 codes, to nearest, saturated, the first in the low byte: one instruction from sm_89 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
template <int F> DEVICE u32 fp8_pair(float low, float high) {
    u16 pair;
    if (F == E4M3) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    }
    return pair;
}
#define HAS_FP8_CONVERSION 1
#else
#define HAS_FP8_CONVERSION 0
template <int F> DEVICE u32 fp8_pair(float, float) { return 0; }
#endif

// `value` on the grid of format F, with its sign. NaN stays NaN; an infinity stays one (its block's scale is NaN anyway).
template <int F, int ROUNDING_> DEVICE float round_to_format(float value, u32 word) {
    u32 sign = to_bits(value) & 0x80000000u;
    float magnitude = from_bits(to_bits(value) & 0x7FFFFFFFu);
    if (!(magnitude < from_bits(0x7F800000u))) return value;
    float rounded = ROUNDING_ == NEAREST_EVEN ? round_magnitude_nearest<F>(magnitude) : round_magnitude_stochastic<F>(magnitude, word);
    return from_bits(to_bits(rounded) | sign);
}

// The 8-bit code of a value on the grid of E4M3 or E5M2; NaN and, for E4M3, infinity give the format's NaN.
template <int F> DEVICE u32 code_of(float value) {
    typedef MiniFloat<F> M;
    u32 bits = to_bits(value), sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= 0x7F800000u) return sign | (F == E4M3 ? 0x7Fu : magnitude > 0x7F800000u ? 0x7Eu : 0x7Cu);
    if (magnitude < (128 - M::bias) << 23) {
        // Subnormals are multiples of 2^(1 - bias - mantissa_bits).
        return sign | (u32)(from_bits(magnitude) * from_bits((127 + M::bias - 1 + M::mantissa_bits) << 23));
    }
    return sign | ((magnitude >> (23 - M::mantissa_bits)) - ((127 - M::bias) << M::mantissa_bits));
}

// E8M0: 2^(byte - 127), NaN for 255, and the reciprocal by which elements are multiplied.
DEVICE float e8m0_decode(u32 byte) { return byte == 0 ? from_bits(1u << 22) : byte == 255 ? from_bits(0x7FC00000u) : from_bits(byte << 23); }
DEVICE float e8m0_reciprocal(u32 byte) {
    return byte == 255 ? from_bits(0x7FC00000u) : byte == 254 ? from_bits(1u << 22) : from_bits((254 - byte) << 23);
}

// The scale byte of a block whose largest magnitude has the F32 pattern `amax` (format::e8m0::scale_byte).
template <int F, int RULE> DEVICE u32 scale_byte(u32 amax) {
    typedef MiniFloat<F> M;
    if (amax >= 0x7F800000u) return 255;
    u32 exponent = RULE == EVEN ? (amax + (1u << (22 - M::mantissa_bits))) >> 23
        : RULE == CEIL          ? (amax >> 23) + ((amax & 0x7FFFFFu) > (M::largest_bits & 0x7FFFFFu) ? 1u : 0u)
                                : amax >> 23;
    u32 byte = exponent > M::largest_exponent ? exponent - M::largest_exponent : 0u;
    return byte < 254 ? byte : 254;
}
