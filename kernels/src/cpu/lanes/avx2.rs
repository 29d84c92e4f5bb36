//! The lanes as two AVX2 registers, with or without AVX-VNNI's dot product.

#![cfg(target_arch = "x86_64")]

use std::arch::asm;
use std::arch::x86_64::*;

use super::{Lanes, WIDTH};

/// Proof that the processor has the features in `InstructionSet::Avx2`, or with VNNI those in `InstructionSet::AvxVnni`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// # Safety
    /// The processor must have AVX2 and FMA, and AVX-VNNI with VNNI.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(crate) struct Floats(pub(crate) __m256, pub(crate) __m256);

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(crate) struct Words(pub(crate) __m256i, pub(crate) __m256i);

macro_rules! halves {
    ($wrap:ident: $($name:ident($($argument:ident),*) = $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: $wrap),*) -> $wrap {
                $wrap(
                    {
                        $(let $argument = $argument.0;)*
                        // SAFETY: `self` exists only where the processor has the features.
                        unsafe { $body }
                    },
                    {
                        $(let $argument = $argument.1;)*
                        // SAFETY: as above.
                        unsafe { $body }
                    },
                )
            }
        )*
    };
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

impl<const VNNI: bool> Lanes for Avx2<VNNI> {
    type F = Floats;
    type U = Words;

    /// 32-bit sums with VNNI; otherwise of 16-bit pairs: eight additions of at most 2 * 24 * 12 stay below 2^15.
    type Dot = Words;

    const REGISTERS: usize = 8;
    const COPIES: bool = !VNNI;

    halves! { Floats:
        add(a, b) = _mm256_add_ps(a, b);
        sub(a, b) = _mm256_sub_ps(a, b);
        mul(a, b) = _mm256_mul_ps(a, b);
        div(a, b) = _mm256_div_ps(a, b);
        sqrt(a) = _mm256_sqrt_ps(a);
        fma(a, b, c) = _mm256_fmadd_ps(a, b, c);
        max(a, b) = _mm256_max_ps(a, b);
        min(a, b) = _mm256_min_ps(a, b);
        // All bits set are a quiet NaN.
        keep_nan(x, value) = _mm256_or_ps(value, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        canonical(a) = _mm256_blendv_ps(a, _mm256_set1_ps(f32::from_bits(0x7FC0_0000)), _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
    }

    halves! { Words:
        add_u(a, b) = _mm256_add_epi32(a, b);
        sub_u(a, b) = _mm256_sub_epi32(a, b);
        mul_u(a, b) = _mm256_mullo_epi32(a, b);
        and(a, b) = _mm256_and_si256(a, b);
        or(a, b) = _mm256_or_si256(a, b);
        xor(a, b) = _mm256_xor_si256(a, b);
        max_u(a, b) = _mm256_max_epu32(a, b);
        min_u(a, b) = _mm256_min_epu32(a, b);
        add_bytes(a, b) = _mm256_adds_epu8(a, b);
        sub_bytes(a, b) = _mm256_subs_epu8(a, b);
        sub_halves(a, b) = _mm256_subs_epu16(a, b);
        wrapping_sub_bytes(a, b) = _mm256_sub_epi8(a, b);
        lower_halves(a, b) = _mm256_blend_epi16::<0b1010_1010>(a, _mm256_slli_epi32::<16>(b));
        select_less_u(a, b, yes, no) = {
            // a >= b exactly where max(a, b) == a.
            let not_less = _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a);
            _mm256_blendv_epi8(yes, no, not_less)
        };
    }

    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2,fma")]
        fn inside<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "avx2,fma,avxvnni")]
        fn inside_vnni<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: `self` exists only where the processor has the features.
        unsafe { if VNNI { inside_vnni(work) } else { inside(work) } }
    }

    intrinsics! {
        splat(value: f32) -> Floats = Floats(_mm256_set1_ps(value), _mm256_set1_ps(value));
        load(from: &[f32; WIDTH]) -> Floats =
            Floats(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8)));
        store(value: Floats, to: &mut [f32; WIDTH]) -> () = {
            _mm256_storeu_ps(to.as_mut_ptr(), value.0);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), value.1);
        };
        bits(a: Floats) -> Words = Words(_mm256_castps_si256(a.0), _mm256_castps_si256(a.1));
        floats(a: Words) -> Floats = Floats(_mm256_castsi256_ps(a.0), _mm256_castsi256_ps(a.1));
        splat_u(value: u32) -> Words =
            Words(_mm256_set1_epi32(value.cast_signed()), _mm256_set1_epi32(value.cast_signed()));
        load_u(from: &[u32; WIDTH]) -> Words =
            Words(_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(8).cast()));
        store_u(value: Words, to: &mut [u32; WIDTH]) -> () = {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), value.0);
            _mm256_storeu_si256(to.as_mut_ptr().add(8).cast(), value.1);
        };
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
    fn shl<const N: u32>(self, a: Words) -> Words {
        // SAFETY: as above. A variable shift by a constant vector compiles to the immediate form.
        unsafe {
            let count = _mm256_set1_epi32(N.cast_signed());
            Words(_mm256_sllv_epi32(a.0, count), _mm256_sllv_epi32(a.1, count))
        }
    }

    #[inline(always)]
    fn shr<const N: u32>(self, a: Words) -> Words {
        // SAFETY: as above.
        unsafe {
            let count = _mm256_set1_epi32(N.cast_signed());
            Words(_mm256_srlv_epi32(a.0, count), _mm256_srlv_epi32(a.1, count))
        }
    }

    #[inline(always)]
    fn dot_start(self, offset: Words) -> Words {
        if VNNI { offset } else { self.splat_u(0) }
    }

    #[inline(always)]
    fn dot_add(self, sum: Words, unsigned: Words, signed: Words) -> Words {
        if VNNI {
            // SAFETY: as above.
            return unsafe {
                Words(_mm256_dpbusd_avx_epi32(sum.0, unsigned.0, signed.0), _mm256_dpbusd_avx_epi32(sum.1, unsigned.1, signed.1))
            };
        }
        // SAFETY: as above.
        unsafe {
            joined(Words(
                _mm256_add_epi16(sum.0, _mm256_maddubs_epi16(unsigned.0, signed.0)),
                _mm256_add_epi16(sum.1, _mm256_maddubs_epi16(unsigned.1, signed.1)),
            ))
        }
    }

    #[inline(always)]
    fn dot_finish(self, sum: Words, offset: Words) -> Words {
        if VNNI {
            return sum;
        }
        // SAFETY: as above.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            Words(_mm256_add_epi32(offset.0, _mm256_madd_epi16(sum.0, ones)), _mm256_add_epi32(offset.1, _mm256_madd_epi16(sum.1, ones)))
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: Words) -> Words {
        // SAFETY: as above; the table is sixteen bytes.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            Words(_mm256_shuffle_epi8(table, index.0), _mm256_shuffle_epi8(table, index.1))
        }
    }

    /// One half after the other: sixteen registers are all there are.
    #[inline(always)]
    fn hadamard(self, x: &mut [Floats; WIDTH]) {
        // SAFETY: as above.
        unsafe {
            hadamard_half(x, |x| &mut x.0);
            hadamard_half(x, |x| &mut x.1);
        }
    }

    /// In place, a quarter at a time: a copy of all rows would be a call.
    #[inline(always)]
    fn transpose(self, rows: &mut [Floats; WIDTH]) {
        let (top, bottom) = rows.split_at_mut(8);
        // SAFETY: as above.
        unsafe {
            transpose_quarter(top, |row| &mut row.0);
            transpose_quarter(top, |row| &mut row.1);
            transpose_quarter(bottom, |row| &mut row.0);
            transpose_quarter(bottom, |row| &mut row.1);
        }
        for (top, bottom) in top.iter_mut().zip(bottom) {
            std::mem::swap(&mut top.1, &mut bottom.0);
        }
    }
}

/// The Sylvester transform of eight lanes.
///
/// # Safety
/// AVX must be there.
#[inline(always)]
unsafe fn hadamard_half(x: &mut [Floats; WIDTH], half: impl Fn(&mut Floats) -> &mut __m256) {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let mut lanes = [_mm256_setzero_ps(); WIDTH];
        for (to, x) in lanes.iter_mut().zip(x.iter_mut()) {
            *to = *half(x);
        }
        butterflies!(lanes, |a, b| _mm256_add_ps(a, b), |a, b| _mm256_sub_ps(a, b));
        for (from, x) in lanes.iter().zip(x) {
            *half(x) = *from;
        }
    }
}

/// Transposes half of eight rows in place.
///
/// # Safety
/// AVX must be there.
#[inline(always)]
unsafe fn transpose_quarter(rows: &mut [Floats], half: impl Fn(&mut Floats) -> &mut __m256) {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let mut quarter = [_mm256_setzero_ps(); 8];
        for (to, row) in quarter.iter_mut().zip(rows.iter_mut()) {
            *to = *half(row);
        }
        transpose8(&mut quarter);
        for (from, row) in quarter.iter().zip(rows) {
            *half(row) = *from;
        }
    }
}

/// Transposes 8 x 8 in place.
///
/// # Safety
/// AVX must be there.
#[inline(always)]
unsafe fn transpose8(r: &mut [__m256; 8]) {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let mut t = [_mm256_setzero_ps(); 8];
        for g in 0..2 {
            let i = 4 * g;
            let low01 = _mm256_castps_pd(_mm256_unpacklo_ps(r[i], r[i + 1]));
            let high01 = _mm256_castps_pd(_mm256_unpackhi_ps(r[i], r[i + 1]));
            let low23 = _mm256_castps_pd(_mm256_unpacklo_ps(r[i + 2], r[i + 3]));
            let high23 = _mm256_castps_pd(_mm256_unpackhi_ps(r[i + 2], r[i + 3]));
            t[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
            t[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
            t[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
            t[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
        }
        for c in 0..4 {
            r[c] = _mm256_permute2f128_ps::<0x20>(t[c], t[4 + c]);
            r[4 + c] = _mm256_permute2f128_ps::<0x31>(t[c], t[4 + c]);
        }
    }
}

/// Returns `sum` unchanged, and keeps the compiler from using either half before both are computed. Without it eight steps of one half come
/// before those of the other, with what was broadcast on the stack meanwhile.
#[target_feature(enable = "avx2")]
#[inline]
fn joined(mut sum: Words) -> Words {
    // SAFETY: no instruction, and no register but these.
    unsafe {
        asm!("/* {0} {1} */", inout(ymm_reg) sum.0, inout(ymm_reg) sum.1, options(pure, nomem, nostack, preserves_flags));
    }
    sum
}
