//! The lanes as plain arrays: no intrinsics, any processor.
//!
//! On x86-64 [`Portable`] is compiled with the `fma` feature, because `f32::mul_add` is otherwise a call into a software routine (correct,
//! and about a hundred times slower). For the few processors without it there is [`Called`].

use super::{Lanes, WIDTH};

/// Proof that an x86-64 processor has FMA; others need nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable(());

/// Lanes for every processor.
#[cfg(target_arch = "x86_64")]
pub(crate) const ANYWHERE: Called = Called;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const ANYWHERE: Portable = Portable(());

#[cfg(target_arch = "x86_64")]
impl Portable {
    /// # Safety
    /// The processor must have FMA.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
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
        add_bytes(a, b): u32 = bytes(a, b, u8::saturating_add);
        sub_bytes(a, b): u32 = bytes(a, b, u8::saturating_sub);
        sub_halves(a, b): u32 = ((a >> 16).saturating_sub(b >> 16) << 16) | (a & 0xFFFF).saturating_sub(b & 0xFFFF);
        wrapping_sub_bytes(a, b): u32 = bytes(a, b, u8::wrapping_sub);
        select_less_u(a, b, yes, no): u32 = if a < b { yes } else { no };
    }

    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "fma"))]
        fn inside<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[cfg(not(target_arch = "x86_64"))]
        return inside(work);
        // SAFETY: `self` exists only where the processor has it.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            inside(work)
        }
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

/// Byte by byte.
#[inline(always)]
fn bytes(a: u32, b: u32, of: impl Fn(u8, u8) -> u8) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes([of(a[0], b[0]), of(a[1], b[1]), of(a[2], b[2]), of(a[3], b[3])])
}

/// Needs nothing of the processor. The operations are [`Portable`]'s, each of them a call: where every multiply-add is a routine anyway, that
/// costs little, and a kernel in which nothing is inlined costs its users no time to compile.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called;

#[cfg(target_arch = "x86_64")]
macro_rules! calls {
    ($($name:ident $(<const $n:ident>)? ($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            #[inline(never)]
            fn $name $(<const $n: u32>)? (self, $($argument: $kind),*) -> $result {
                Portable(()).$name $(::<$n>)? ($($argument),*)
            }
        )*
    };
}

#[cfg(target_arch = "x86_64")]
impl Lanes for Called {
    type F = [f32; WIDTH];
    type U = [u32; WIDTH];
    type Dot = [u32; WIDTH];

    const REGISTERS: usize = 0;

    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        work()
    }

    calls! {
        splat(value: f32) -> Self::F;
        load(from: &[f32; WIDTH]) -> Self::F;
        store(value: Self::F, to: &mut [f32; WIDTH]) -> ();
        add(a: Self::F, b: Self::F) -> Self::F;
        sub(a: Self::F, b: Self::F) -> Self::F;
        mul(a: Self::F, b: Self::F) -> Self::F;
        div(a: Self::F, b: Self::F) -> Self::F;
        sqrt(a: Self::F) -> Self::F;
        fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
        max(a: Self::F, b: Self::F) -> Self::F;
        min(a: Self::F, b: Self::F) -> Self::F;
        clamp(a: Self::F, limit: f32) -> Self::F;
        times_power(p: Self::F, shifted: Self::F, n: Self::F) -> Self::F;
        zero_below(x: Self::F, limit: f32, value: Self::F) -> Self::F;
        keep_nan(x: Self::F, value: Self::F) -> Self::F;
        to_bf16(bits: Self::U) -> Self::U;
        canonical(a: Self::F) -> Self::F;
        bits(a: Self::F) -> Self::U;
        floats(a: Self::U) -> Self::F;
        splat_u(value: u32) -> Self::U;
        load_u(from: &[u32; WIDTH]) -> Self::U;
        store_u(value: Self::U, to: &mut [u32; WIDTH]) -> ();
        add_u(a: Self::U, b: Self::U) -> Self::U;
        sub_u(a: Self::U, b: Self::U) -> Self::U;
        mul_u(a: Self::U, b: Self::U) -> Self::U;
        and(a: Self::U, b: Self::U) -> Self::U;
        or(a: Self::U, b: Self::U) -> Self::U;
        xor(a: Self::U, b: Self::U) -> Self::U;
        shl<const N>(a: Self::U) -> Self::U;
        shr<const N>(a: Self::U) -> Self::U;
        max_u(a: Self::U, b: Self::U) -> Self::U;
        min_u(a: Self::U, b: Self::U) -> Self::U;
        add_bytes(a: Self::U, b: Self::U) -> Self::U;
        sub_bytes(a: Self::U, b: Self::U) -> Self::U;
        sub_halves(a: Self::U, b: Self::U) -> Self::U;
        wrapping_sub_bytes(a: Self::U, b: Self::U) -> Self::U;
        lower_halves(a: Self::U, b: Self::U) -> Self::U;
        select_less_u(a: Self::U, b: Self::U, yes: Self::U, no: Self::U) -> Self::U;
        largest_magnitude(x: &[Self::F]) -> Self::U;
        transpose(rows: &mut [Self::F; WIDTH]) -> ();
        dot_start(offset: Self::U) -> Self::Dot;
        dot_add(sum: Self::Dot, unsigned: Self::U, signed: Self::U) -> Self::Dot;
        dot_finish(sum: Self::Dot, offset: Self::U) -> Self::U;
        lookup(table: &[u8; 16], index: Self::U) -> Self::U;
        load_partial(from: &[f32]) -> Self::F;
        store_partial(value: Self::F, to: &mut [f32]) -> ();
        sum(value: Self::F) -> f32;
        tree(values: [Self::F; WIDTH]) -> Self::F;
        largest(value: Self::F) -> f32;
        largest_u(value: Self::U) -> u32;
    }
}
