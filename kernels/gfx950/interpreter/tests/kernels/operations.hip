// Many small expressions, so that many operations of the interpreter run: tests/operations.rs has the same list in Rust, in the same order.
// Test code: not one of the project's kernels.
#include "prelude.h"

typedef int i32;
typedef long i64;
typedef float f32x2 __attribute__((ext_vector_type(2)));

DEVICE float f(u32 bits) { return from_bits(bits); }
DEVICE u64 wide(u32 high, u32 low) { return (u64)high << 32 | low; }
DEVICE u32 fold(u64 value) { return (u32)(value ^ value >> 32); }
DEVICE u32 low24(u32 x) { return x & 0xFFFFFF; }
DEVICE i32 signed24(u32 x) { return (i32)(x << 8) >> 8; }
DEVICE u32 minimum(u32 x, u32 y) { return x < y ? x : y; }
DEVICE u32 maximum(u32 x, u32 y) { return x > y ? x : y; }
DEVICE i32 iminimum(i32 x, i32 y) { return x < y ? x : y; }
DEVICE i32 imaximum(i32 x, i32 y) { return x > y ? x : y; }

#define INTEGERS(X)                                                                                                          \
    X(a + b) X(a - b) X(a * b) X(__builtin_amdgcn_ubfe(a, b & 31, c & 31)) X(__builtin_amdgcn_sbfe(a, b & 31, c & 31))       \
    X(a << (b & 31)) X(a >> (b & 31)) X((i32)a >> (b & 31)) X(a & b) X(a | b) X(a ^ b) X(~(a ^ b)) X(~a) X(a & ~b) X(a | ~b) \
    X(minimum(a, b)) X(maximum(a, b)) X(iminimum(a, b)) X(imaximum(a, b)) X(a + b + c) X((a << (b & 31)) + c)                \
    X((a + b) << (c & 31)) X((a << (b & 31)) | c) X((a & b) | c) X(a | b | c) X((a ^ b) + c) X((a & b) | (~a & c))           \
    X(minimum(minimum(a, b), c)) X(maximum(maximum(a, b), c)) X(iminimum(iminimum(a, b), c)) X(imaximum(imaximum(a, b), c))  \
    X(maximum(minimum(a, b), minimum(maximum(a, b), c))) X(imaximum(iminimum(a, b), iminimum(imaximum(a, b), c)))            \
    X(__builtin_amdgcn_alignbit(a, b, c)) X(__builtin_amdgcn_alignbyte(a, b, c)) X(__builtin_amdgcn_perm(a, b, c & 0x0F0F0F0F)) \
    X(low24(a) * low24(b)) X(low24(a) * low24(b) + c) X(signed24(a) * signed24(b)) X(signed24(a) * signed24(b) + (i32)c)     \
    X((u32)((u64)a * b >> 32)) X((u32)((i64)(i32)a * (i32)b >> 32)) X(__builtin_bitreverse32(a)) X(__builtin_popcount(a) + b) \
    X(a ? __builtin_clz(a) : 99) X(a ? __builtin_ctz(a) : 99) X((u32)(i32)(signed char)a) X((u32)(i32)(short)a)              \
    X((a << 16) | (b & 0xFFFF)) X((a & 0xFFFF0000) | (b >> 16)) X(((i32)a < 0 ? -a : a)) X(b ? a / b : 7) X(b ? a % b : 7)   \
    X(b ? (u32)((i64)(i32)a / (i32)(b | 1)) : 7) X((a * 2) + b) X((a * 4) + b) X((a * 8) + b) X((a * 16) + b)                \
    X(((1u << (a & 31)) - 1) << (b & 31)) X(a & ~(1u << (b & 31))) X(a | 1u << (b & 31)) X((u32)(unsigned char)(a >> 8) + b) \
    X((a >> 16) + (b & 0xFFFF)) X(((a & 0xFF) << 8) | (b >> 24)) X(__builtin_elementwise_add_sat(a, b)) X(__builtin_elementwise_sub_sat(a, b)) \
    X(fold(wide(a, b) + wide(c, a))) X(fold(wide(a, b) - wide(c, a))) X(fold(wide(a, b) * wide(c, a))) X(fold(wide(a, b) << (c & 63))) \
    X(fold(wide(a, b) >> (c & 63))) X(fold((i64)wide(a, b) >> (c & 63))) X(fold((wide(a, b) << 3) + wide(b, c)))             \
    X(fold((u64)a * b + wide(c, a))) X(fold((i64)(i32)a * (i32)b + (i64)wide(c, a))) X(fold(wide(a, b) / (wide(c, a) >> 20 | 1))) \
    X(fold(wide(a, b) & wide(c, a))) X(fold(wide(a, b) | wide(c, a))) X(fold(wide(a, b) ^ wide(c, a))) X(fold(~wide(a, b)))   \
    X(a < b) X(a <= b) X(a == b) X(a != b) X(a > b ? a : c) X(a >= b ? b : c) X((i32)a < (i32)b) X((i32)a <= (i32)b)         \
    X((i32)a > (i32)b ? a : c) X((i32)a >= (i32)b ? b : c) X(wide(a, b) < wide(c, a)) X(wide(a, b) == wide(c, b))            \
    X(wide(a, b) > wide(b, c) ? a : b) X((i64)wide(a, b) < (i64)wide(c, a)) X((i64)wide(a, b) > (i64)wide(b, c) ? 3 : 5)     \
    X((u16)a < (u16)b) X((u16)a == (u16)b) X((short)a > (short)b) X(__builtin_popcountl(wide(a, b))) X(a ? __builtin_clzl(wide(a, b)) : 9)

#define FLOATS(X)                                                                                                            \
    X(to_bits(f(a) + f(b))) X(to_bits(f(a) - f(b))) X(to_bits(f(a) * f(b))) X(to_bits(__builtin_fmaf(f(a), f(b), f(c))))     \
    X(to_bits(-f(a) * __builtin_fabsf(f(b)))) X(to_bits(__builtin_fmaf(f(a), -f(b), f(c)))) X(to_bits(f(a) * 3.25f + 1.0f))  \
    X(to_bits(__builtin_fmaf(f(a), f(b), 3.25f))) X(to_bits(__builtin_fmaf(f(a), 3.25f, f(c))))                              \
    X(to_bits(__builtin_fmaxf(f(a), f(b)))) X(to_bits(__builtin_fminf(f(a), f(b))))                                          \
    X(to_bits(__builtin_fmaxf(__builtin_fmaxf(f(a), f(b)), f(c)))) X(to_bits(__builtin_fminf(__builtin_fminf(f(a), f(b)), f(c)))) \
    X(to_bits(__builtin_amdgcn_fmed3f(f(a), f(b), f(c)))) X(to_bits(__builtin_floorf(f(a)))) X(to_bits(__builtin_ceilf(f(a)))) \
    X(to_bits(__builtin_truncf(f(a)))) X(to_bits(__builtin_rintf(f(a)))) X(to_bits(__builtin_amdgcn_fractf(f(a))))           \
    X(to_bits(__builtin_ldexpf(f(a), (i32)(b & 127) - 64))) X(__builtin_amdgcn_frexp_expf(f(a))) X(to_bits(__builtin_amdgcn_frexp_mantf(f(a)))) \
    X(to_bits((float)a)) X(to_bits((float)(i32)a)) X(to_bits((float)(a & 0xFF))) X(to_bits((float)(a >> 8 & 0xFF)))          \
    X(to_bits((float)(a >> 16 & 0xFF))) X(to_bits((float)(a >> 24))) X((u32)(__builtin_fabsf(f(a)) < 4e9f ? f(a & 0x7FFFFFFF) : 1.5f)) \
    X((u32)(i32)(__builtin_fabsf(f(a)) < 2e9f ? f(a) : -1.5f)) X(f(a) < f(b)) X(f(a) <= f(b)) X(f(a) == f(b)) X(f(a) != f(b)) \
    X(f(a) > f(b)) X(f(a) >= f(b)) X(!(f(a) < f(b)) ? b : c) X(!(f(a) <= f(b)) ? b : c) X(!(f(a) > f(b)) ? b : c)             \
    X(!(f(a) >= f(b)) ? b : c) X(__builtin_isunordered(f(a), f(b))) X(!__builtin_isunordered(f(a), f(b)))                     \
    X(f(a) < f(b) || f(a) > f(b)) X(__builtin_amdgcn_classf(f(a), 0x207)) X(__builtin_amdgcn_classf(f(a), 0x0F8))             \
    X(to_bits(__builtin_amdgcn_rcpf(f(a)))) X(to_bits(__builtin_amdgcn_rsqf(f(a & 0x7FFFFFFF)))) X(to_bits(__builtin_amdgcn_sqrtf(f(a & 0x7FFFFFFF)))) \
    X(to_bits(f(a) / f(b))) X(to_bits(1.0f / f(c))) X(to_bits(__builtin_sqrtf(f(a & 0x7FFFFFFF))))                            \
    X(to_bits(__builtin_amdgcn_exp2f(f((a & 0x80FFFFFF) | 0x40000000)))) X(to_bits(__builtin_amdgcn_logf(f(a & 0x7FFFFFFF))))

// One thread an element: vector operations.
KERNEL_OF(64, 4) vector_operations(const u32 *in, u32 *out) {
    u32 lane = threadIdx.x, n = 0;
    u32 a = in[lane], b = in[64 + lane], c = in[128 + lane];
#define X(e) out[64 * n++ + lane] = (u32)(e);
    INTEGERS(X) FLOATS(X)
#undef X
}

// Arguments in scalar registers: scalar operations. Every thread computes the same, the first one writes.
KERNEL_OF(64, 4) scalar_operations(u32 a, u32 b, u32 c, u32 *out) {
    u32 n = 0;
#define X(e) out[n++] = (u32)(e);
    if (threadIdx.x == 0) { INTEGERS(X) FLOATS(X) }
#undef X
}

// Pairs of F32, lanes of other threads, and the builtins that have no expression.
KERNEL_OF(64, 4) lane_operations(const u32 *in, u32 *out) {
    u32 lane = threadIdx.x, n = 0;
    u32 a = in[lane], b = in[64 + lane], c = in[128 + lane];
    f32x2 x = {f(a), f(b)}, y = {f(b), f(c)}, z = {f(c), f(a)};
#define X(e) out[64 * n++ + lane] = (u32)(e);
    f32x2 sum = x + y, difference = x - y, product = x * y, fused = __builtin_elementwise_fma(x, y, z), negated = __builtin_elementwise_fma(-x, y.yx, z);
    X(to_bits(sum.x)) X(to_bits(sum.y)) X(to_bits(difference.x)) X(to_bits(difference.y)) X(to_bits(product.x)) X(to_bits(product.y))
    X(to_bits(fused.x)) X(to_bits(fused.y)) X(to_bits(negated.x)) X(to_bits(negated.y))
    X(__builtin_amdgcn_ds_bpermute((i32)(4 * ((lane * 7 + 3) & 63)), (i32)a))
    X(__builtin_amdgcn_readlane((i32)a, 17)) X(__builtin_amdgcn_readfirstlane((i32)b))
    X(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0))) X(__builtin_amdgcn_mbcnt_hi(0x0F0F1234u, __builtin_amdgcn_mbcnt_lo(0x12345678u, 3)))
    X(fold(__builtin_amdgcn_ballot_w64(a > b)))
    X(__builtin_amdgcn_update_dpp((i32)b, (i32)a, 0x1B, 0xF, 0xF, false)) X(__builtin_amdgcn_update_dpp((i32)b, (i32)a, 0x101, 0xF, 0xF, false))
    X(__builtin_amdgcn_update_dpp((i32)b, (i32)a, 0x113, 0xF, 0xF, true)) X(__builtin_amdgcn_update_dpp((i32)b, (i32)a, 0x124, 0xA, 0x5, false))
    X(__builtin_amdgcn_update_dpp((i32)b, (i32)a, 0x140, 0xF, 0xF, false)) X(__builtin_amdgcn_update_dpp((i32)b, (i32)a, 0x141, 0xF, 0xF, false))
    X(__builtin_amdgcn_update_dpp((i32)b, (i32)a, 0x142, 0xA, 0xF, false)) X(__builtin_amdgcn_update_dpp((i32)b, (i32)a, 0x143, 0xC, 0xF, false))
    X(__builtin_amdgcn_bitop3_b32(a, b, c, 0x1E)) X(__builtin_amdgcn_bitop3_b32(a, b, c, 0xE8))
    u32 pairs = __builtin_bit_cast(u32, __builtin_convertvector(x, __bf16 __attribute__((ext_vector_type(2)))));
    X(pairs)
    SHARED u32 swapped[128];
    swapped[lane] = a;
    swapped[64 + lane] = b;
    wait_and_meet();
    u32 other = (5 * lane + 1) & 63;
    X(swapped[other]) X(swapped[64 + other])
    // Each lane reads 8 bytes, and gets its share of what 16 lanes read.
    typedef short Quad __attribute__((ext_vector_type(4)));
    u32x2 turned = __builtin_bit_cast(u32x2, __builtin_amdgcn_ds_read_tr16_b64_v4i16((__attribute__((address_space(3))) Quad *)(swapped + 2 * other)));
    X(turned[0]) X(turned[1])
    auto halves = __builtin_amdgcn_permlane32_swap(a, b, false, false);
    X(halves[0]) X(halves[1])
#undef X
}

// Memory elements of every width, through LDS and back.
KERNEL_OF(64, 4) memory_operations(const u8 *in, u8 *out) {
    SHARED u8 lds[64 * 48] __attribute__((aligned(16)));
    u32 lane = threadIdx.x;
    *(u8 *)(lds + lane) = in[lane];
    *(u16 *)(lds + 64 + 2 * lane) = *(const u16 *)(in + 64 + 2 * lane);
    *(u32 *)(lds + 192 + 4 * lane) = *(const u32 *)(in + 192 + 4 * lane);
    *(u32x2 *)(lds + 448 + 8 * lane) = *(const u32x2 *)(in + 448 + 8 * lane);
    *(u32x4 *)(lds + 1024 + 16 * lane) = *(const u32x4 *)(in + 1024 + 16 * lane);
    *(u32 *)(lds + 2048 + 8 * lane) = *(const u32 *)(in + 2048 + 8 * lane);
    *(u32 *)(lds + 2052 + 8 * lane) = *(const u32 *)(in + 2052 + 8 * lane);
    wait_and_meet();
    u32 other = 63 - lane;
    u32 sum = (u32)(i32)(signed char)lds[other] + lds[(other + 1) & 63] + (u32)(i32) * (const short *)(lds + 64 + 2 * other) + *(const u16 *)(lds + 64 + 2 * lane);
    sum += *(const u32 *)(lds + 192 + 4 * other) + (u32)(i32) * (const signed char *)(in + lane) + (u32)(i32) * (const short *)(in + 64 + 2 * lane);
    u32x2 two = *(const u32x2 *)(lds + 448 + 8 * other);
    u32x4 four = *(const u32x4 *)(lds + 1024 + 16 * other);
    u32 pair = *(const u32 *)(lds + 2048 + 8 * other) ^ *(const u32 *)(lds + 2052 + 8 * other);
    *(u32x4 *)(out + 16 * lane) = u32x4{sum + two.x, two.y ^ pair, four.x + four.y, four.z ^ four.w};
    *(u16 *)(out + 1024 + 2 * lane) = lane < 32 ? (u16)(sum >> 16) : (u16)sum;
    *(u16 *)(out + 1728 + 2 * lane) = (u16)(sum >> 16);
    out[1152 + lane] = (u8)(sum >> 8);
    *(u32x2 *)(out + 1216 + 8 * lane) = two;
}

// Operations that the compiler does not choose for the expressions above, written as they are.
#define V1(name) { u32 r; asm volatile(#name " %0, %1" : "=v"(r) : "v"(a)); X(r) }
#define V2(name) { u32 r; asm volatile(#name " %0, %1, %2" : "=v"(r) : "v"(a), "v"(b)); X(r) }
#define V3(name) { u32 r; asm volatile(#name " %0, %1, %2, %3" : "=v"(r) : "v"(a), "v"(b), "v"(c)); X(r) }
#define COMPARE(name) { u32 r; asm volatile(#name " vcc, %1, %2\n v_cndmask_b32 %0, 0, 1, vcc" : "=v"(r) : "v"(a), "v"(b) : "vcc"); X(r) }
#define COMPARE64(name) { u32 r; asm volatile(#name " vcc, %1, %2\n v_cndmask_b32 %0, 0, 1, vcc" : "=v"(r) : "v"(wide(a, b)), "v"(wide(a, c)) : "vcc"); X(r) }
#define S2(name) { u32 r; asm volatile(#name " %0, %1, %2" : "=s"(r) : "s"(p), "s"(q) : "scc"); X(r) }
#define SC(name) { u32 r; asm volatile(#name " %1, %2\n s_cselect_b32 %0, 1, 0" : "=s"(r) : "s"(p), "s"(q) : "scc"); X(r) }
#define SK(name) { u32 r; asm volatile(#name " %1, 0x9234\n s_cselect_b32 %0, 1, 0" : "=s"(r) : "s"(p) : "scc"); X(r) }

KERNEL_OF(64, 4) assembled_operations(const u32 *in, u32 p, u32 q, u32 *out) {
    u32 lane = threadIdx.x, n = 0;
    u32 a = in[lane], b = in[64 + lane], c = in[128 + lane];
#define X(e) out[64 * n++ + lane] = (u32)(e);
    V1(v_cvt_f32_ubyte1) V1(v_cvt_f32_bf16)
    { u32 r; asm volatile("v_fmaak_f32 %0, %1, %2, 0x40500000" : "=v"(r) : "v"(a), "v"(b)); X(r) }
    V2(v_lshlrev_b16)
    { u32 r; asm volatile("v_subrev_co_u32 %0, vcc, %1, %2\n v_addc_co_u32 %0, vcc, 0, %0, vcc" : "=&v"(r) : "v"(a), "v"(b) : "vcc"); X(r) }
    { u64 saved; u32 r; asm volatile("s_mov_b64 s[40:41], exec\n s_mov_b64 exec, 5\n s_or_saveexec_b64 %0, 10\n s_mov_b32 %1, exec_lo\n s_mov_b64 exec, s[40:41]"
                                     : "=&s"(saved), "=&s"(r) : : "s40", "s41", "scc"); X(r | (u32)saved << 8) }
    V2(v_xnor_b32) V2(v_bfm_b32) V2(v_add_i32) V2(v_sub_i32) V2(v_subrev_f32) V2(v_mul_hi_i32)
    V3(v_or3_b32) V3(v_min3_u32) V3(v_min3_i32) V3(v_min3_f32) V3(v_max3_i32) V3(v_max3_f32) V3(v_maximum3_f32) V3(v_add_lshl_u32)
    COMPARE(v_cmp_eq_i32) COMPARE(v_cmp_ne_i32) COMPARE(v_cmp_ge_i32)
    COMPARE(v_cmp_lt_u16) COMPARE(v_cmp_le_u16) COMPARE(v_cmp_eq_u16) COMPARE(v_cmp_ne_u16) COMPARE(v_cmp_gt_u16) COMPARE(v_cmp_ge_u16)
    COMPARE(v_cmp_lt_i16) COMPARE(v_cmp_le_i16) COMPARE(v_cmp_eq_i16) COMPARE(v_cmp_ne_i16) COMPARE(v_cmp_gt_i16) COMPARE(v_cmp_ge_i16)
    COMPARE64(v_cmp_eq_i64) COMPARE64(v_cmp_ne_i64) COMPARE64(v_cmp_le_i64) COMPARE64(v_cmp_ge_i64) COMPARE64(v_cmp_le_u64) COMPARE64(v_cmp_ge_u64)
    COMPARE(v_cmp_lg_f32) COMPARE(v_cmp_nge_f32) COMPARE(v_cmp_ngt_f32) COMPARE(v_cmp_nle_f32) COMPARE(v_cmp_nlt_f32)
    SHARED u64 lds[128];
    u32 at = (u32)(u64)(__attribute__((address_space(3))) u64 *)(lds + 2 * lane);
    u64 read;
    asm volatile("ds_write2_b32 %1, %2, %3 offset1:1\n ds_write_b64 %1, %4 offset:8\n s_nop 0\n s_waitcnt lgkmcnt(0)\n ds_read_b64 %0, %1 offset:4\n s_waitcnt lgkmcnt(0)"
                 : "=&v"(read) : "v"(at), "v"(a), "v"(b), "v"(wide(a, c)) : "memory");
    X((u32)read) X((u32)(read >> 32))
    { u32 r; asm volatile("s_load_dword %0, %1, 0x4\n s_waitcnt lgkmcnt(0)" : "=s"(r) : "s"(in)); X(r) }
    S2(s_nand_b32) S2(s_bfe_u32) S2(s_nor_b32) S2(s_xnor_b32) S2(s_bfm_b32) S2(s_pack_ll_b32_b16) S2(s_pack_lh_b32_b16) S2(s_pack_hh_b32_b16)
    { u32 r = q; asm volatile("s_bitset1_b32 %0, %1" : "+s"(r) : "s"(p)); X(r) }
    SC(s_cmp_eq_i32) SC(s_cmp_lg_i32) SC(s_cmp_ge_i32) SC(s_bitcmp0_b32) SC(s_bitcmp1_b32)
    SK(s_cmpk_eq_i32) SK(s_cmpk_lg_i32) SK(s_cmpk_gt_i32) SK(s_cmpk_ge_i32) SK(s_cmpk_lt_i32) SK(s_cmpk_le_i32)
    SK(s_cmpk_eq_u32) SK(s_cmpk_lg_u32) SK(s_cmpk_gt_u32) SK(s_cmpk_ge_u32) SK(s_cmpk_lt_u32) SK(s_cmpk_le_u32)
#undef X
}

// What the runtime, not the caller, puts among the arguments; and LDS whose size the launch decides.
KERNEL_OF(64, 4) hidden_arguments(u32 first, u32 *out) {
    extern __attribute__((shared)) u32 dynamic[];
    u32 lane = threadIdx.x, blocks = __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
    dynamic[lane] = first + __builtin_amdgcn_workgroup_size_x() * blockIdx.x + lane;
    wait_and_meet();
    out[(blockIdx.y * blocks + blockIdx.x) * 64 + lane] = dynamic[63 - lane] + 1000 * blockIdx.y;
}
