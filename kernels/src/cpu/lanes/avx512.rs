//! The lanes as one AVX-512 register.

#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::*;

use super::{Lanes, WIDTH, two_products};

/// Proof that the processor has the features in `InstructionSet::Avx512`, with PAIRS those in `InstructionSet::Avx512Bf16`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512<const PAIRS: bool>(());

impl<const PAIRS: bool> Avx512<PAIRS> {
    /// # Safety
    /// The processor must have AVX-512 F, BW, DQ, VL and VNNI, with PAIRS also AVX512_BF16.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

macro_rules! intrinsics {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: $kind),*) -> $result {
                // SAFETY: `self` exists only where the processor has the features; pointers come from references to
                // sixteen elements, and the unaligned forms are used.
                unsafe { $body }
            }
        )*
    };
}

impl<const PAIRS: bool> Lanes for Avx512<PAIRS> {
    type F = __m512;
    type U = __m512i;

    type Dot = __m512i;

    const REGISTERS: usize = 32;

    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
        fn inside<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma")]
        fn inside_with_pairs<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: `self` exists only where the processor has the features.
        unsafe { if PAIRS { inside_with_pairs(work) } else { inside(work) } }
    }

    #[inline(always)]
    fn add_pairs(self, sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        if !PAIRS {
            return two_products(self, sum, a, b);
        }
        // SAFETY: `self` exists only where the processor has the feature; the types hold the same 64 bytes.
        unsafe { _mm512_dpbf16_ps(sum, std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b)) }
    }

    intrinsics! {
        splat(value: f32) -> __m512 = _mm512_set1_ps(value);
        load(from: &[f32; WIDTH]) -> __m512 = _mm512_loadu_ps(from.as_ptr());
        store(value: __m512, to: &mut [f32; WIDTH]) -> () = _mm512_storeu_ps(to.as_mut_ptr(), value);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps(a);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        // The smaller magnitude of the two, with the sign of the first.
        clamp(a: __m512, limit: f32) -> __m512 = _mm512_range_ps::<0b0010>(a, _mm512_set1_ps(limit));
        // One rounding, of a result that is exact.
        times_power(p: __m512, _shifted: __m512, n: __m512) -> __m512 = _mm512_scalef_ps(p, n);
        // "Not less than" holds for a NaN.
        zero_below(x: __m512, limit: f32, value: __m512) -> __m512 =
            _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(limit)), value);
        // Response 2 (the quiet NaN) for the two classes of NaN, none for the other six.
        keep_nan(x: __m512, value: __m512) -> __m512 = _mm512_fixupimm_ps::<0>(value, x, _mm512_set1_epi32(0x22));
        // One is added, by a mask, where the last bit that stays is set.
        to_bf16(bits: __m512i) -> __m512i = {
            let below = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
            let is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x1_0000));
            let rounded = _mm512_mask_sub_epi32(below, is_odd, below, _mm512_set1_epi32(-1));
            _mm512_and_si512(rounded, _mm512_set1_epi32(0xFFFF_0000u32.cast_signed()))
        };
        canonical(a: __m512) -> __m512 =
            _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), _mm512_set1_ps(f32::from_bits(0x7FC0_0000)));
        bits(a: __m512) -> __m512i = _mm512_castps_si512(a);
        floats(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);
        splat_u(value: u32) -> __m512i = _mm512_set1_epi32(value.cast_signed());
        load_u(from: &[u32; WIDTH]) -> __m512i = _mm512_loadu_si512(from.as_ptr().cast());
        store_u(value: __m512i, to: &mut [u32; WIDTH]) -> () = _mm512_storeu_si512(to.as_mut_ptr().cast(), value);
        add_u(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        sub_u(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        mul_u(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        xor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        max_u(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epu32(a, b);
        min_u(a: __m512i, b: __m512i) -> __m512i = _mm512_min_epu32(a, b);
        add_bytes(a: __m512i, b: __m512i) -> __m512i = _mm512_adds_epu8(a, b);
        sub_bytes(a: __m512i, b: __m512i) -> __m512i = _mm512_subs_epu8(a, b);
        sub_halves(a: __m512i, b: __m512i) -> __m512i = _mm512_subs_epu16(a, b);
        // As and, shift and or it would become a shuffle of words, which takes three instructions' time on Intel.
        lower_halves(a: __m512i, b: __m512i) -> __m512i =
            _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi32(0xFFFF), a, _mm512_slli_epi32::<16>(b));
        upper_halves(a: __m512i, b: __m512i) -> __m512i =
            _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi32(0xFFFF_0000u32.cast_signed()), a, _mm512_srli_epi32::<16>(b));
        wrapping_sub_bytes(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi8(a, b);
        select_less_u(a: __m512i, b: __m512i, yes: __m512i, no: __m512i) -> __m512i =
            _mm512_mask_blend_epi32(_mm512_cmplt_epu32_mask(a, b), no, yes);
        load_partial(from: &[f32]) -> __m512 = _mm512_maskz_loadu_ps(mask(from.len()), from.as_ptr());
        store_partial(value: __m512, to: &mut [f32]) -> () =
            _mm512_mask_storeu_ps(to.as_mut_ptr(), mask(to.len()), value);
        dot_add(sum: __m512i, unsigned: __m512i, signed: __m512i) -> __m512i = _mm512_dpbusd_epi32(sum, unsigned, signed);
        lookup(table: &[u8; 16], index: __m512i) -> __m512i =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), index);
        largest_u(value: __m512i) -> u32 = _mm512_reduce_max_epu32(value);
    }

    #[inline(always)]
    fn prefetch<T>(self, x: &[T], at: usize) {
        // SAFETY: a prefetch of any address is allowed; it reads nothing that the program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(x.as_ptr().wrapping_add(at).cast()) }
    }

    #[inline(always)]
    fn prefetch_far(self, x: &[f32], at: usize) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(x.as_ptr().wrapping_add(at).cast()) }
    }

    #[inline(always)]
    fn canonical_all<const COLUMNS: usize, const ROWS: usize>(self, mut values: [[__m512; COLUMNS]; ROWS]) -> [[__m512; COLUMNS]; ROWS] {
        // One comparison for two values: a NaN is rare.
        let mut unordered = 0;
        for row in &values {
            for j in (0..COLUMNS).step_by(2) {
                // SAFETY: as above.
                unordered |= unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(row[j], row[(j + 1).min(COLUMNS - 1)]) };
            }
        }
        if unordered != 0 {
            for row in &mut values {
                for value in row {
                    *value = self.canonical(*value);
                }
            }
        }
        values
    }

    #[inline(always)]
    fn shl<const N: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_slli_epi32::<N>(a) }
    }

    #[inline(always)]
    fn shr<const N: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_srli_epi32::<N>(a) }
    }

    #[inline(always)]
    fn dot_start(self, offset: __m512i) -> __m512i {
        offset
    }

    #[inline(always)]
    fn dot_finish(self, sum: __m512i, _offset: __m512i) -> __m512i {
        sum
    }

    /// Half of the instructions: of a number and a NaN the comparison of magnitudes gives the number, but whatever shares its last sum and
    /// difference with a NaN is no finite number, so that a NaN is looked for only where there is an infinity.
    #[inline(always)]
    fn largest_after_hadamard(self, x: &[__m512; WIDTH]) -> __m512i {
        let mut largest = self.splat_u(0);
        for i in 0..WIDTH / 2 {
            // SAFETY: as above. The larger magnitude without a sign.
            let larger = unsafe { _mm512_castps_si512(_mm512_range_ps::<0b1011>(x[i], x[i + WIDTH / 2])) };
            largest = self.max_u(largest, larger);
        }
        // SAFETY: as above.
        if unsafe { _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(0x7F80_0000)) } != 0 {
            return self.largest_magnitude(x);
        }
        largest
    }

    #[inline(always)]
    fn transpose(self, rows: &mut [__m512; WIDTH]) {
        // SAFETY: as above.
        unsafe { transpose(rows) }
    }
}

/// The first `count` lanes.
#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    if count >= WIDTH { 0xFFFF } else { (1u16 << count) - 1 }
}

/// 4 x 4 transposes inside each 128-bit quarter, then the quarters are transposed.
///
/// # Safety
/// AVX-512 F must be there.
#[inline(always)]
unsafe fn transpose(r: &mut [__m512; WIDTH]) {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let mut t = [_mm512_setzero_ps(); WIDTH];
        for g in 0..4 {
            let i = 4 * g;
            let low01 = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1]));
            let high01 = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1]));
            let low23 = _mm512_castps_pd(_mm512_unpacklo_ps(r[i + 2], r[i + 3]));
            let high23 = _mm512_castps_pd(_mm512_unpackhi_ps(r[i + 2], r[i + 3]));
            // Quarter q of t[i + c] holds column 4q + c of rows i..i+4.
            t[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
            t[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
            t[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
            t[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
        }
        for c in 0..4 {
            let even01 = _mm512_shuffle_f32x4::<0x88>(t[c], t[4 + c]); // quarters 0, 2 of both
            let odd01 = _mm512_shuffle_f32x4::<0xDD>(t[c], t[4 + c]); // quarters 1, 3 of both
            let even23 = _mm512_shuffle_f32x4::<0x88>(t[8 + c], t[12 + c]);
            let odd23 = _mm512_shuffle_f32x4::<0xDD>(t[8 + c], t[12 + c]);
            r[c] = _mm512_shuffle_f32x4::<0x88>(even01, even23);
            r[8 + c] = _mm512_shuffle_f32x4::<0xDD>(even01, even23);
            r[4 + c] = _mm512_shuffle_f32x4::<0x88>(odd01, odd23);
            r[12 + c] = _mm512_shuffle_f32x4::<0xDD>(odd01, odd23);
        }
    }
}
