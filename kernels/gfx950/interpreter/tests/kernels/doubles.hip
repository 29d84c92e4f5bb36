// Expressions of F64 and a few operations that the expressions of operations.hip do not reach: tests/doubles.rs has the same list in Rust.
// Test code: not one of the project's kernels.
#include "prelude.h"

DEVICE u64 bits(double x) { return __builtin_bit_cast(u64, x); }

// in: a[0..64], b[64..128], c[128..192].
KERNEL_OF(64, 4) doubles(const double *in, u64 *out) {
    u32 lane = threadIdx.x, n = 0;
    double a = in[lane], b = in[64 + lane], c = in[128 + lane];
#define X(e) out[64 * n++ + lane] = (e);
    X(bits(a + b)) X(bits(a * b)) X(bits(a - b)) X(bits(__builtin_fma(a, b, c))) X(bits(__builtin_fma(-a, b, __builtin_fabs(c))))
    X(bits(a / b)) X(bits(1.0 / c)) X(bits(__builtin_sqrt(__builtin_fabs(a)))) X(bits(__builtin_fmin(a, b)))
    X(bits((double)(float)a)) X(bits(__builtin_ldexp(a, (int)lane - 32))) X(a > b) X(!(a < b)) X(a != b) X(bits(a * 0.5 - 2.0))
    X(bits(__builtin_amdgcn_rcp(a))) X(bits(__builtin_amdgcn_rsq(__builtin_fabs(b))))
    X(__builtin_amdgcn_class(a, 0x207)) X(__builtin_amdgcn_class(a, 0x0F8))
#undef X
}

// What each lane gives to a common maximum in LDS and in memory, and products and first bits that the compiler would not choose here.
KERNEL_OF(128, 4) maxima(const u32 *in, u32 *common, u32 *out) {
    SHARED u32 largest[2];
    u32 thread = threadIdx.x, a = in[thread], n = 0;
    if (thread < 2) largest[thread] = 0;
    wait_and_meet();
    u32 at = (u32)(u64)(__attribute__((address_space(3))) u32 *)(largest + (thread & 1));
    asm volatile("ds_max_u32 %0, %1\n s_waitcnt lgkmcnt(0)" : : "v"(at), "v"(a) : "memory");
    asm volatile("global_atomic_umax %0, %1, off\n s_waitcnt vmcnt(0)" : : "v"(common + (thread & 3)), "v"(a) : "memory");
    wait_and_meet();
    u32 r, s;
#define X(e) out[(blockIdx.x * 5 + n++) * 128 + thread] = (e);
    X(largest[0]) X(largest[1])
    asm volatile("v_mul_hi_u32_u24 %0, %1, %1" : "=v"(r) : "v"(a));
    X(r)
    asm volatile("s_ff1_i32_b64 %0, %2\n s_mulk_i32 %0, 0x9234\n s_nor_b64 s[40:41], %2, 5\n s_xor_b32 %1, s40, s41"
                 : "=&s"(r), "=&s"(s) : "s"(0x0008000000000000ull << (blockIdx.x & 3)) : "s40", "s41", "scc");
    X(r) X(s)
#undef X
}
