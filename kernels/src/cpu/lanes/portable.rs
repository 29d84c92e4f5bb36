//! The lanes as plain arrays: no intrinsics, any processor.
//!
//! On x86-64 that is any processor with SSE2, and a fused multiply-add is a call: to an instruction where there is one, otherwise to a
//! routine (correct, and about a hundred times slower). To compile these kernels a second time, with the instruction inlined, would make
//! them three times as fast for whoever asks for `scalar`; processors with FMA and without AVX2 are hardly left.

use super::{Lanes, WIDTH};
use crate::hadamard::butterflies;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable {
    /// The processor has the instruction.
    #[cfg(target_arch = "x86_64")]
    fused: bool,
}

impl Portable {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            fused: std::arch::is_x86_feature_detected!("fma"),
        }
    }
}

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
        add_bytes(a, b): u32 = bytes(a, b, u8::saturating_add);
        sub_bytes(a, b): u32 = bytes(a, b, u8::saturating_sub);
        sub_halves(a, b): u32 = ((a >> 16).saturating_sub(b >> 16) << 16) | (a & 0xFFFF).saturating_sub(b & 0xFFFF);
        wrapping_sub_bytes(a, b): u32 = bytes(a, b, u8::wrapping_sub);
        select_less_u(a, b, yes, no): u32 = if a < b { yes } else { no };
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        #[cfg(target_arch = "x86_64")]
        if self.fused {
            // SAFETY: the processor has FMA.
            return unsafe { fused(a, b, c) };
        }
        routine(a, b, c)
    }

    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
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
    // A call: in place it is 2,000 operations, as often as tiles are read somewhere, and a seventh of this crate's compile time.
    #[inline(never)]
    fn hadamard(self, x: &mut [Self::F; WIDTH]) {
        butterflies(x, |a, b| (self.add(a, b), self.sub(a, b)));
    }
    #[inline(never)]
    fn transpose(self, rows: &mut [Self::F; WIDTH]) {
        let old = *rows;
        for (j, row) in rows.iter_mut().enumerate() {
            for (i, lane) in row.iter_mut().enumerate() {
                *lane = old[i][j];
            }
        }
    }
}

/// Byte by byte.
#[inline(always)]
fn bytes(a: u32, b: u32, of: impl Fn(u8, u8) -> u8) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes([of(a[0], b[0]), of(a[1], b[1]), of(a[2], b[2]), of(a[3], b[3])])
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
fn fused(a: [f32; WIDTH], b: [f32; WIDTH], c: [f32; WIDTH]) -> [f32; WIDTH] {
    std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
}

/// Inlined where multiply-adds are instructions.
#[cfg_attr(target_arch = "x86_64", cold, inline(never))]
#[cfg_attr(not(target_arch = "x86_64"), inline(always))]
fn routine(a: [f32; WIDTH], b: [f32; WIDTH], c: [f32; WIDTH]) -> [f32; WIDTH] {
    std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
}
