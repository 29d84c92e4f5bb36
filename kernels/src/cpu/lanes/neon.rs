//! The lanes as four NEON registers, with or without the dot-product extension (`SDOT`, Armv8.2 DotProd).
//!
//! Intrinsics for `SDOT` are not in the stable language yet: that one instruction is written as assembly.

#![cfg(target_arch = "aarch64")]

use std::arch::aarch64::*;
use std::arch::asm;

use super::{Lanes, WIDTH};

/// Proof that the processor has the features in `InstructionSet::Neon`, or with DOT those in `InstructionSet::NeonDot`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon<const DOT: bool>(());

impl<const DOT: bool> Neon<DOT> {
    /// # Safety
    /// The processor must have NEON, and the dot-product extension with DOT.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Lanes 0..4, 4..8, 8..12, 12..16.
#[derive(Clone, Copy)]
pub(crate) struct Floats([float32x4_t; 4]);

/// Lanes 0..4, 4..8, 8..12, 12..16.
#[derive(Clone, Copy)]
pub(crate) struct Words([uint32x4_t; 4]);

/// Sums of one block: 32-bit ones, used with `SDOT`, and 16-bit ones of pairs, used without: eight additions of at most 2 * 24 * 12
/// stay below 2^15.
#[derive(Clone, Copy)]
pub(crate) struct Sums([int32x4_t; 4], [int16x8_t; 4]);

/// Each quarter by one expression.
macro_rules! quarters {
    ($wrap:ident: $($name:ident($($argument:ident),*) = $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: $wrap),*) -> $wrap {
                $wrap(std::array::from_fn(#[inline(always)] |i| {
                    $(let $argument = $argument.0[i];)*
                    // SAFETY: `self` exists only where the processor has the features.
                    unsafe { $body }
                }))
            }
        )*
    };
}

impl<const DOT: bool> Lanes for Neon<DOT> {
    type F = Floats;
    type U = Words;
    type Dot = Sums;

    const REGISTERS: usize = 8;

    quarters! { Floats:
        add(a, b) = vaddq_f32(a, b);
        sub(a, b) = vsubq_f32(a, b);
        mul(a, b) = vmulq_f32(a, b);
        div(a, b) = vdivq_f32(a, b);
        sqrt(a) = vsqrtq_f32(a);
        fma(a, b, c) = vfmaq_f32(c, a, b);
        // FMAX and FMIN would give a NaN for a NaN on either side.
        max(a, b) = vbslq_f32(vcgtq_f32(a, b), a, b);
        min(a, b) = vbslq_f32(vcltq_f32(a, b), a, b);
    }

    quarters! { Words:
        add_u(a, b) = vaddq_u32(a, b);
        sub_u(a, b) = vsubq_u32(a, b);
        mul_u(a, b) = vmulq_u32(a, b);
        and(a, b) = vandq_u32(a, b);
        or(a, b) = vorrq_u32(a, b);
        xor(a, b) = veorq_u32(a, b);
        max_u(a, b) = vmaxq_u32(a, b);
        min_u(a, b) = vminq_u32(a, b);
        add_bytes(a, b) = vreinterpretq_u32_u8(vqaddq_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b)));
        sub_bytes(a, b) = vreinterpretq_u32_u8(vqsubq_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b)));
        sub_halves(a, b) = vreinterpretq_u32_u16(vqsubq_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
        wrapping_sub_bytes(a, b) = vreinterpretq_u32_u8(vsubq_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b)));
        select_less_u(a, b, yes, no) = vbslq_u32(vcltq_u32(a, b), yes, no);
    }

    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "neon")]
        fn inside<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "neon,dotprod")]
        fn inside_dot<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: `self` exists only where the processor has the features.
        unsafe { if DOT { inside_dot(work) } else { inside(work) } }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Floats {
        // SAFETY: as above.
        Floats([unsafe { vdupq_n_f32(value) }; 4])
    }

    #[inline(always)]
    fn load(self, from: &[f32; WIDTH]) -> Floats {
        // SAFETY: as above; four elements from each of 0, 4, 8, 12 are inside sixteen.
        Floats(std::array::from_fn(
            #[inline(always)]
            |i| unsafe { vld1q_f32(from.as_ptr().add(4 * i)) },
        ))
    }

    #[inline(always)]
    fn store(self, value: Floats, to: &mut [f32; WIDTH]) {
        for (i, quarter) in value.0.into_iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe { vst1q_f32(to.as_mut_ptr().add(4 * i), quarter) };
        }
    }

    #[inline(always)]
    fn bits(self, a: Floats) -> Words {
        // SAFETY: as above.
        Words(a.0.map(
            #[inline(always)]
            |a| unsafe { vreinterpretq_u32_f32(a) },
        ))
    }

    #[inline(always)]
    fn floats(self, a: Words) -> Floats {
        // SAFETY: as above.
        Floats(a.0.map(
            #[inline(always)]
            |a| unsafe { vreinterpretq_f32_u32(a) },
        ))
    }

    #[inline(always)]
    fn splat_u(self, value: u32) -> Words {
        // SAFETY: as above.
        Words([unsafe { vdupq_n_u32(value) }; 4])
    }

    #[inline(always)]
    fn load_u(self, from: &[u32; WIDTH]) -> Words {
        // SAFETY: as in `load`.
        Words(std::array::from_fn(
            #[inline(always)]
            |i| unsafe { vld1q_u32(from.as_ptr().add(4 * i)) },
        ))
    }

    #[inline(always)]
    fn store_u(self, value: Words, to: &mut [u32; WIDTH]) {
        for (i, quarter) in value.0.into_iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe { vst1q_u32(to.as_mut_ptr().add(4 * i), quarter) };
        }
    }

    #[inline(always)]
    fn shl<const N: u32>(self, a: Words) -> Words {
        // SAFETY: as above. A variable shift by a constant vector compiles to the immediate form.
        Words(a.0.map(
            #[inline(always)]
            |a| unsafe { vshlq_u32(a, vdupq_n_s32(N.cast_signed())) },
        ))
    }

    #[inline(always)]
    fn shr<const N: u32>(self, a: Words) -> Words {
        // SAFETY: as above. To the left by a negative count is to the right.
        Words(a.0.map(
            #[inline(always)]
            |a| unsafe { vshlq_u32(a, vdupq_n_s32(-N.cast_signed())) },
        ))
    }

    #[inline(always)]
    fn dot_start(self, offset: Words) -> Sums {
        // SAFETY: as above.
        unsafe {
            let sums = offset.0.map(
                #[inline(always)]
                |offset| vreinterpretq_s32_u32(offset),
            );
            Sums(if DOT { sums } else { [vdupq_n_s32(0); 4] }, [vdupq_n_s16(0); 4])
        }
    }

    /// Both factors fit signed bytes: the unsigned one is at most 24.
    #[inline(always)]
    fn dot_add(self, mut sum: Sums, unsigned: Words, signed: Words) -> Sums {
        for i in 0..4 {
            // SAFETY: as above.
            unsafe {
                let (a, b) = (vreinterpretq_s8_u32(unsigned.0[i]), vreinterpretq_s8_u32(signed.0[i]));
                if DOT {
                    asm!(
                        ".arch_extension dotprod",
                        "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
                        sum = inout(vreg) sum.0[i], a = in(vreg) a, b = in(vreg) b,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                } else {
                    // Each lane's four products as two sums of two.
                    let products = vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b));
                    sum.1[i] = vaddq_s16(sum.1[i], products);
                }
            }
        }
        sum
    }

    #[inline(always)]
    fn dot_finish(self, sum: Sums, offset: Words) -> Words {
        // SAFETY: as above.
        Words(std::array::from_fn(
            #[inline(always)]
            |i| unsafe {
                if DOT {
                    vreinterpretq_u32_s32(sum.0[i])
                } else {
                    vreinterpretq_u32_s32(vpadalq_s16(vreinterpretq_s32_u32(offset.0[i]), sum.1[i]))
                }
            },
        ))
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: Words) -> Words {
        // SAFETY: as above; the table is sixteen bytes.
        unsafe {
            let table = vld1q_u8(table.as_ptr());
            Words(index.0.map(
                #[inline(always)]
                |index| vreinterpretq_u32_u8(vqtbl1q_u8(table, vreinterpretq_u8_u32(index))),
            ))
        }
    }

    #[inline(always)]
    fn transpose(self, rows: &mut [Floats; WIDTH]) {
        let mut result = *rows;
        for (down, across) in (0..4).flat_map(|down| (0..4).map(move |across| (down, across))) {
            let corner = std::array::from_fn(
                #[inline(always)]
                |i| rows[4 * down + i].0[across],
            );
            // SAFETY: as above.
            let turned = unsafe { transpose4(corner) };
            for (j, turned) in turned.into_iter().enumerate() {
                result[4 * across + j].0[down] = turned;
            }
        }
        *rows = result;
    }
}

/// Transposes 4 x 4.
///
/// # Safety
/// NEON must be there.
#[inline(always)]
unsafe fn transpose4([a, b, c, d]: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let (wide, narrow) = (|x| vreinterpretq_f64_f32(x), |x| vreinterpretq_f32_f64(x));
        // a0 b0 a2 b2, a1 b1 a3 b3, and so on.
        let (even_ab, odd_ab) = (wide(vtrn1q_f32(a, b)), wide(vtrn2q_f32(a, b)));
        let (even_cd, odd_cd) = (wide(vtrn1q_f32(c, d)), wide(vtrn2q_f32(c, d)));
        [
            narrow(vtrn1q_f64(even_ab, even_cd)),
            narrow(vtrn1q_f64(odd_ab, odd_cd)),
            narrow(vtrn2q_f64(even_ab, even_cd)),
            narrow(vtrn2q_f64(odd_ab, odd_cd)),
        ]
    }
}
