//! The lanes as plain arrays: no intrinsics, any processor.
//!
//! On x86-64 with FMA the dispatch compiles these with the `fma` feature, because `f32::mul_add` is otherwise a call
//! into a software routine (correct, and about a hundred times slower).

use super::{Lanes, WIDTH};

/// Needs nothing of the processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

macro_rules! lane_wise {
    ($($name:ident($($argument:ident),*): $kind:ty = $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: [$kind; WIDTH]),*) -> [$kind; WIDTH] {
                std::array::from_fn(#[inline(always)] |i| {
                    $(let $argument = $argument[i];)*
                    $body
                })
            }
        )*
    };
}

impl Lanes for Portable {
    type F = [f32; WIDTH];
    type U = [u32; WIDTH];

    type Dot = [u32; WIDTH];

    const REGISTERS: usize = 0;

    lane_wise! {
        add(a, b): f32 = a + b;
        sub(a, b): f32 = a - b;
        mul(a, b): f32 = a * b;
        div(a, b): f32 = a / b;
        sqrt(a): f32 = a.sqrt();
        fma(a, b, c): f32 = a.mul_add(b, c);
        max(a, b): f32 = if a > b { a } else { b };
        min(a, b): f32 = if a < b { a } else { b };
        add_u(a, b): u32 = a.wrapping_add(b);
        sub_u(a, b): u32 = a.wrapping_sub(b);
        mul_u(a, b): u32 = a.wrapping_mul(b);
        and(a, b): u32 = a & b;
        or(a, b): u32 = a | b;
        xor(a, b): u32 = a ^ b;
        max_u(a, b): u32 = a.max(b);
        min_u(a, b): u32 = a.min(b);
        select_less_u(a, b, yes, no): u32 = if a < b { yes } else { no };
    }

    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "fma")]
            fn with_fma<R>(work: impl FnOnce() -> R) -> R {
                work()
            }
            if std::arch::is_x86_feature_detected!("fma") {
                // SAFETY: just detected.
                return unsafe { with_fma(work) };
            }
        }
        work()
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        [value; WIDTH]
    }
    #[inline(always)]
    fn load(self, from: &[f32; WIDTH]) -> Self::F {
        *from
    }
    #[inline(always)]
    fn store(self, value: Self::F, to: &mut [f32; WIDTH]) {
        *to = value;
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::U {
        a.map(f32::to_bits)
    }
    #[inline(always)]
    fn floats(self, a: Self::U) -> Self::F {
        a.map(f32::from_bits)
    }
    #[inline(always)]
    fn splat_u(self, value: u32) -> Self::U {
        [value; WIDTH]
    }
    #[inline(always)]
    fn load_u(self, from: &[u32; WIDTH]) -> Self::U {
        *from
    }
    #[inline(always)]
    fn store_u(self, value: Self::U, to: &mut [u32; WIDTH]) {
        *to = value;
    }
    #[inline(always)]
    fn shl<const N: u32>(self, a: Self::U) -> Self::U {
        a.map(|x| x << N)
    }
    #[inline(always)]
    fn shr<const N: u32>(self, a: Self::U) -> Self::U {
        a.map(|x| x >> N)
    }
    #[inline(always)]
    fn dot_start(self, offset: Self::U) -> Self::Dot {
        offset
    }
    #[inline(always)]
    fn dot_add(self, sum: Self::Dot, unsigned: Self::U, signed: Self::U) -> Self::Dot {
        let mut sum = sum;
        // Byte by byte over all lanes, in a form that compilers turn into vector instructions.
        for shift in [0, 8, 16, 24] {
            for i in 0..WIDTH {
                let u = ((unsigned[i] >> shift) & 0xFF) as i16;
                let s = (signed[i] << (24 - shift)).cast_signed() >> 24;
                sum[i] = sum[i].wrapping_add_signed(i32::from(u) * i32::from(s as i16));
            }
        }
        sum
    }
    #[inline(always)]
    fn dot_finish(self, sum: Self::Dot, _offset: Self::U) -> Self::U {
        sum
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: Self::U) -> Self::U {
        index.map(|word| u32::from_le_bytes(word.to_le_bytes().map(|byte| table[usize::from(byte & 15)])))
    }
    #[inline(always)]
    fn transpose(self, rows: &mut [Self::F; WIDTH]) {
        let old = *rows;
        for (j, row) in rows.iter_mut().enumerate() {
            for (i, lane) in row.iter_mut().enumerate() {
                *lane = old[i][j];
            }
        }
    }
}
