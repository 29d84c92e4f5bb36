//! The functions of libhipblaslt that the HIP driver looks up: matrices of BF16, FP8 and F32, products summed in F32, in order of k; and
//! packed MXFP4 with scales of blocks, by rows or swizzled, each block exactly and the blocks in F64.

// C functions: their names and their contracts are AMD's.
#![allow(non_snake_case, unreachable_pub, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_int, c_void};

use crate::state::{Failure, INVALID_VALUE, State, setting, trace, with};

/// Statuses (`hipblasStatus_t`).
const SUCCESS: c_int = 0;
const WRONG_ARGUMENT: c_int = 3;
const FAILED: c_int = 5;
const UNSUPPORTED: c_int = 7;

const COMPUTE_F32: c_int = 2;
const AS_IT_LIES: c_int = 111;
const TRANSPOSED: c_int = 112;

/// Of `hipblasLtMatmulMatrixScale_t`: one scale a matrix, one E8M0 scale for 32 elements by rows, the same swizzled.
const SCALAR: c_int = 0;
const BLOCKS_BY_ROWS: c_int = 2;
const BLOCKS_SWIZZLED: c_int = 1001;
/// Elements that share a scale.
const BLOCK: usize = 32;

/// What the heuristic writes as an algorithm, and a product wants to see again.
const ALGORITHM: [u8; 24] = *b"gfx950 interpreter, F32\0";

/// Element types (`hipDataType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    F32,
    Bf16,
    E4m3,
    E5m2,
    /// Two codes a byte.
    E2m1,
}

impl Element {
    fn of(number: c_int) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            14 => Self::Bf16,
            28 => Self::E4m3,
            29 => Self::E5m2,
            33 => Self::E2m1,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 | Self::E2m1 => 1,
        }
    }

    fn is_fp8(self) -> bool {
        matches!(self, Self::E4m3 | Self::E5m2)
    }

    fn decode(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Self::Bf16 => f32::from_bits(u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 24),
            Self::E4m3 => fp8(bytes[0], 3, 7),
            Self::E5m2 => fp8(bytes[0], 2, 15),
            // A whole byte is no element: `packed` reads these.
            Self::E2m1 => f32::NAN,
        }
    }

    fn encode(self, value: f32, into: &mut Vec<u8>) {
        match self {
            Self::F32 => into.extend(value.to_le_bytes()),
            _ => {
                let bits = value.to_bits();
                let rounded = (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16;
                into.extend(if value.is_nan() { 0x7FC0u16 } else { rounded }.to_le_bytes());
            }
        }
    }
}

/// OCP's 8-bit floats, by their definition. E4M3 has one NaN a sign and no infinity; E5M2 has both as usual.
fn fp8(code: u8, mantissa_bits: i32, bias: i32) -> f32 {
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(code & 0x7F) >> mantissa_bits, i32::from(code) & ((1 << mantissa_bits) - 1));
    match (mantissa_bits, exponent, mantissa) {
        (3, 15, 7) => f32::NAN,
        (2, 31, 0) => sign * f32::INFINITY,
        (2, 31, _) => f32::NAN,
        (_, 0, _) => sign * mantissa as f32 * 2f32.powi(1 - bias - mantissa_bits),
        _ => sign * (mantissa + (1 << mantissa_bits)) as f32 * 2f32.powi(exponent - bias - mantissa_bits),
    }
}

/// What a product is told besides its matrices.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    transposed: [bool; 2],
    scales: [u64; 2],
    modes: [c_int; 2],
}

/// A matrix, column-major.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    element: Option<Element>,
    rows: usize,
    columns: usize,
    stride: usize,
}

fn create<T>(to: *mut *mut T, value: T) -> c_int {
    if to.is_null() {
        return WRONG_ARGUMENT;
    }
    // SAFETY: the caller's pointer, which is not null.
    unsafe { to.write(Box::into_raw(Box::new(value))) };
    SUCCESS
}

/// # Safety
/// `value` came from `create`, and is not used again.
unsafe fn destroy<T>(value: *mut T) -> c_int {
    if !value.is_null() {
        // SAFETY: as the caller vouches.
        drop(unsafe { Box::from_raw(value) });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtCreate(handle: *mut *mut u64) -> c_int {
    create(handle, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtDestroy(handle: *mut u64) -> c_int {
    // SAFETY: the caller's handle.
    unsafe { destroy(handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtGetVersion(_handle: *mut u64, version: *mut c_int) -> c_int {
    // 0.1.0, as the runtime's.
    // SAFETY: the caller's pointer.
    unsafe { version.write(100) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtMatmulDescCreate(description: *mut *mut Description, compute: c_int, scale: c_int) -> c_int {
    if compute != COMPUTE_F32 || Element::of(scale) != Some(Element::F32) {
        return UNSUPPORTED;
    }
    create(description, Description { transposed: [false; 2], scales: [0; 2], modes: [SCALAR; 2] })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmulDescDestroy(description: *mut Description) -> c_int {
    // SAFETY: the caller's handle.
    unsafe { destroy(description) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmulDescSetAttribute(
    description: *mut Description,
    attribute: c_int,
    value: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: the caller's handle, and a value of the size that is checked before it is read.
    unsafe {
        match (attribute, size) {
            (0 | 1, 4) => match value.cast::<c_int>().read_unaligned() {
                operation @ (AS_IT_LIES | TRANSPOSED) => (*description).transposed[attribute as usize] = operation == TRANSPOSED,
                _ => return WRONG_ARGUMENT,
            },
            // A library from before ROCm 7 does not know of scales of blocks.
            (31 | 32, 4) if setting("GFX950_STAND_IN_MXFP4").as_deref() != Some("none") => match value.cast::<c_int>().read_unaligned() {
                mode @ (SCALAR | BLOCKS_BY_ROWS | BLOCKS_SWIZZLED) => (*description).modes[attribute as usize - 31] = mode,
                _ => return WRONG_ARGUMENT,
            },
            (5 | 6, 8) => (*description).scales[attribute as usize - 5] = value.cast::<u64>().read_unaligned(),
            _ => return WRONG_ARGUMENT,
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtMatrixLayoutCreate(layout: *mut *mut Layout, kind: c_int, rows: u64, columns: u64, stride: i64) -> c_int {
    if stride < rows as i64 {
        return WRONG_ARGUMENT;
    }
    create(layout, Layout { element: Element::of(kind), rows: rows as usize, columns: columns as usize, stride: stride as usize })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatrixLayoutDestroy(layout: *mut Layout) -> c_int {
    // SAFETY: the caller's handle.
    unsafe { destroy(layout) }
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtMatmulPreferenceCreate(preference: *mut *mut u64) -> c_int {
    create(preference, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmulPreferenceDestroy(preference: *mut u64) -> c_int {
    // SAFETY: the caller's handle.
    unsafe { destroy(preference) }
}

#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtMatmulPreferenceSetAttribute(_: *mut u64, attribute: c_int, _value: *const c_void, size: usize) -> c_int {
    if attribute == 1 && size == 8 { SUCCESS } else { WRONG_ARGUMENT }
}

/// Whether there is such a product: sides that fit, FP8 with FP8 in multiples of 16, packed MXFP4 as the reference of hipBLASLt has it (k
/// contiguous on both sides, which are multiples of 16, k of 128; scales of blocks on both), F32 or BF16 out.
fn is_supported(description: &Description, a: &Layout, b: &Layout, d: &Layout) -> bool {
    let (Some(left), Some(right), Some(out)) = (a.element, b.element, d.element) else { return false };
    let ([m, k], [also_k, n]) = (sides(a, description.transposed[0]), sides(b, description.transposed[1]));
    let fits = k == also_k && [d.rows, d.columns] == [m, n];
    let types = left.is_fp8() == right.is_fp8() && (left.is_fp8() || left == right) && matches!(out, Element::F32 | Element::Bf16);
    if left != Element::E2m1 {
        let shape = !left.is_fp8() || [m, n, k].iter().all(|size| size.is_multiple_of(16));
        return fits && types && shape && description.modes == [SCALAR; 2];
    }
    // Swizzled scales came with ROCm 7.2.
    let has_swizzled = setting("GFX950_STAND_IN_MXFP4").as_deref() != Some("rows");
    let modes = description.modes == [BLOCKS_BY_ROWS; 2] || (has_swizzled && description.modes == [BLOCKS_SWIZZLED; 2]);
    let shape = [m, n].iter().all(|size| size.is_multiple_of(16)) && k.is_multiple_of(128);
    fits && types && modes && shape && description.transposed == [true, false]
}

/// Rows and columns as the product sees them.
fn sides(layout: &Layout, transposed: bool) -> [usize; 2] {
    if transposed { [layout.columns, layout.rows] } else { [layout.rows, layout.columns] }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmulAlgoGetHeuristic(
    _handle: *mut u64,
    description: *const Description,
    a: *const Layout,
    b: *const Layout,
    _c: *const Layout,
    d: *const Layout,
    _preference: *mut u64,
    wanted: c_int,
    results: *mut u8,
    count: *mut c_int,
) -> c_int {
    if wanted < 1 {
        return WRONG_ARGUMENT;
    }
    // SAFETY: the caller's handles, and room for one result, which begins with the algorithm.
    unsafe {
        let supported = is_supported(&*description, &*a, &*b, &*d);
        count.write(c_int::from(supported));
        if supported {
            std::ptr::copy_nonoverlapping(ALGORITHM.as_ptr(), results, ALGORITHM.len());
        }
    }
    SUCCESS
}

/// Elements of a matrix as its product sees them, row by row.
fn matrix(state: &State, what: &str, address: u64, layout: &Layout, transposed: bool) -> Result<Vec<f32>, Failure> {
    let element = layout.element.ok_or_else(|| Failure(INVALID_VALUE, format!("{what}: unknown element type")))?;
    let size = element.bytes();
    let count = layout.stride * layout.columns.saturating_sub(1) + layout.rows;
    let bytes = state.operand(what, address, count * size)?;
    let [rows, columns] = sides(layout, transposed);
    let (row_step, column_step) = if transposed { (layout.stride, 1) } else { (1, layout.stride) };
    let at = |row: usize, column: usize| element.decode(&bytes[(row * row_step + column * column_step) * size..]);
    Ok((0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))).map(|(row, column)| at(row, column)).collect())
}

/// Codes of packed MXFP4, whose columns lie one after the other, doubled (so that they are whole numbers), with the scale of each block.
struct Packed {
    doubled: Vec<i32>,
    scales: Vec<f64>,
    k: usize,
}

impl Packed {
    fn read(state: &State, what: &str, address: u64, layout: &Layout, scales: (u64, c_int)) -> Result<Self, Failure> {
        /// Twice the magnitudes of E2M1.
        const DOUBLED: [i32; 8] = [0, 1, 2, 3, 4, 6, 8, 12];
        let (k, rows, blocks) = (layout.rows, layout.columns, layout.rows / BLOCK);
        if layout.stride != k {
            return Err(Failure(INVALID_VALUE, format!("{what}: packed columns of {k} elements lie {} apart", layout.stride)));
        }
        let value = |code: u8| if code & 8 == 0 { DOUBLED[usize::from(code & 7)] } else { -DOUBLED[usize::from(code & 7)] };
        let codes = state.operand(what, address, rows * k / 2)?;
        let doubled = codes.iter().flat_map(|byte| [value(byte & 15), value(byte >> 4)]).collect();
        let (address, mode) = scales;
        let mode = if setting("GFX950_STAND_IN_MXFP4").as_deref() == Some("mistaken") { BLOCKS_BY_ROWS } else { mode };
        let count = if mode == BLOCKS_BY_ROWS { rows * blocks } else { rows.next_multiple_of(32) * blocks.next_multiple_of(8) };
        let bytes = state.operand(&format!("{what}'s scales"), address, count)?;
        let scale = |byte: u8| if byte == 255 { f64::NAN } else { 2f64.powi(i32::from(byte) - 127) };
        let places = (0..rows).flat_map(|row| (0..blocks).map(move |block| (row, block)));
        let scales = places.map(|(row, block)| scale(bytes[scale_place(mode, row, block, blocks)])).collect();
        Ok(Self { doubled, scales, k })
    }

    fn dot(&self, row: usize, other: &Self, column: usize) -> f64 {
        let blocks = self.k / BLOCK;
        let of = |block: usize| {
            let (left, right) =
                (&self.doubled[row * self.k + block * BLOCK..][..BLOCK], &other.doubled[column * self.k + block * BLOCK..][..BLOCK]);
            let sum: i32 = left.iter().zip(right).map(|(x, y)| x * y).sum();
            f64::from(sum) / 4.0 * self.scales[row * blocks + block] * other.scales[column * blocks + block]
        };
        (0..blocks).map(of).sum()
    }
}

/// Where the scale of a block is. Swizzled, from the outside in: tiles of 32 rows by 8 blocks; in a tile a block's number mod 4, a row's mod 16, the
/// half of the blocks, the half of the rows.
fn scale_place(mode: c_int, row: usize, block: usize, blocks: usize) -> usize {
    if mode == BLOCKS_BY_ROWS {
        return row * blocks + block;
    }
    let tile = row / 32 * blocks.div_ceil(8) + block / 8;
    let [outer, middle, half, innermost] = [block % 4, row % 16, block / 4 % 2, row / 16 % 2];
    ((tile * 4 + outer) * 16 + middle) * 4 + half * 2 + innermost
}

fn scale(state: &State, address: u64) -> Result<f32, Failure> {
    if address == 0 {
        return Ok(1.0);
    }
    state.operand("a scale", address, 4).map(|bytes| Element::F32.decode(&bytes))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtMatmul(
    _handle: *mut u64,
    description: *const Description,
    alpha: *const f32,
    a: u64,
    a_layout: *const Layout,
    b: u64,
    b_layout: *const Layout,
    beta: *const f32,
    c: u64,
    c_layout: *const Layout,
    d: u64,
    d_layout: *const Layout,
    algorithm: *const [u8; 24],
    _workspace: u64,
    _workspace_bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's handles and numbers.
    let (description, a_layout, b_layout, c_layout, d_layout, alpha, beta, algorithm) =
        unsafe { (*description, *a_layout, *b_layout, *c_layout, *d_layout, *alpha, *beta, *algorithm) };
    if algorithm != ALGORITHM || !is_supported(&description, &a_layout, &b_layout, &d_layout) {
        return WRONG_ARGUMENT;
    }
    if a_layout.element == Some(Element::E2m1) {
        return multiply_packed(&description, (a, &a_layout), (b, &b_layout), (c, &c_layout), (d, &d_layout), (alpha, beta));
    }
    let status = with(|state| {
        let left = matrix(state, "the first factor", a, &a_layout, description.transposed[0])?;
        // As [n, k], so that both are read along k.
        let right = matrix(state, "the second factor", b, &b_layout, !description.transposed[1])?;
        let added = if beta == 0.0 { Vec::new() } else { matrix(state, "what is added", c, &c_layout, false)? };
        let factor = alpha * scale(state, description.scales[0])? * scale(state, description.scales[1])?;
        let ([m, k], n) = (sides(&a_layout, description.transposed[0]), d_layout.columns);
        let element = d_layout.element.ok_or_else(|| Failure(INVALID_VALUE, "unknown element type of the result".to_owned()))?;
        for column in 0..n {
            let mut bytes = Vec::with_capacity(m * element.bytes());
            for row in 0..m {
                let (left, right) = (&left[row * k..(row + 1) * k], &right[column * k..(column + 1) * k]);
                let sum = left.iter().zip(right).fold(0.0f32, |sum, (x, y)| sum + x * y);
                let extra = added.get(row * n + column).map_or(0.0, |added| beta * added);
                element.encode(factor * sum + extra, &mut bytes);
            }
            state.write(d + (column * d_layout.stride * element.bytes()) as u64, &bytes)?;
        }
        trace(&format!("product [{n}, {k}] x [{m}, {k}] of {:?} and {:?}", b_layout.element, a_layout.element));
        Ok(())
    });
    if status == SUCCESS { SUCCESS } else { FAILED }
}

/// The product of two packed factors.
fn multiply_packed(
    description: &Description,
    (a, a_layout): (u64, &Layout),
    (b, b_layout): (u64, &Layout),
    (c, c_layout): (u64, &Layout),
    (d, d_layout): (u64, &Layout),
    (alpha, beta): (f32, f32),
) -> c_int {
    let status = with(|state| {
        let [a_scales, b_scales] = [0, 1].map(|index| (description.scales[index], description.modes[index]));
        let left = Packed::read(state, "the first factor", a, a_layout, a_scales)?;
        let right = Packed::read(state, "the second factor", b, b_layout, b_scales)?;
        let element = d_layout.element.ok_or_else(|| Failure(INVALID_VALUE, "unknown element type of the result".to_owned()))?;
        let (m, n, k) = (d_layout.rows, d_layout.columns, left.k);
        // Row by row of [m, n].
        let added = if beta == 0.0 { Vec::new() } else { matrix(state, "what is added", c, c_layout, false)? };
        for column in 0..n {
            let mut bytes = Vec::with_capacity(m * element.bytes());
            for row in 0..m {
                let extra = added.get(row * n + column).map_or(0.0, |added| beta * added);
                element.encode(alpha * left.dot(row, &right, column) as f32 + extra, &mut bytes);
            }
            state.write(d + (column * d_layout.stride * element.bytes()) as u64, &bytes)?;
        }
        trace(&format!("product [{n}, {k}] x [{m}, {k}] of packed MXFP4, scales in mode {}", description.modes[0]));
        Ok(())
    });
    if status == SUCCESS { SUCCESS } else { FAILED }
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS_BY_ROWS, BLOCKS_SWIZZLED, Element, fp8, scale_place};

    /// The worked example of the layout in kernels/gfx950/README.md, and that every place is used once.
    #[test]
    fn scales_lie_where_the_layout_says() {
        assert_eq!(scale_place(BLOCKS_BY_ROWS, 3, 5, 16), 53);
        assert_eq!(
            [(0, 0), (1, 0), (16, 0), (0, 1), (0, 4), (0, 8), (32, 0)].map(|(row, block)| scale_place(BLOCKS_SWIZZLED, row, block, 16)),
            [0, 4, 1, 64, 2, 256, 512]
        );
        let mut places: Vec<usize> =
            (0..64).flat_map(|row| (0..16).map(move |block| scale_place(BLOCKS_SWIZZLED, row, block, 16))).collect();
        places.sort_unstable();
        assert_eq!(places, (0..1024).collect::<Vec<_>>());
    }

    #[test]
    fn small_floats_are_those_of_their_definition() {
        assert_eq!([0x00, 0x01, 0x08, 0x38, 0x7E, 0xB8].map(|code| fp8(code, 3, 7)), [0.0, 2f32.powi(-9), 2f32.powi(-6), 1.0, 448.0, -1.0]);
        assert_eq!([0x01, 0x3C, 0x7B, 0x7C].map(|code| fp8(code, 2, 15)), [2f32.powi(-16), 1.0, 57344.0, f32::INFINITY]);
        assert!(fp8(0x7F, 3, 7).is_nan() && fp8(0x7D, 2, 15).is_nan());
    }

    #[test]
    fn bf16_is_rounded_to_even() {
        let mut bytes = Vec::new();
        for value in [1.0 + 2f32.powi(-8), 1.0 + 3.0 * 2f32.powi(-8), f32::NAN] {
            Element::Bf16.encode(value, &mut bytes);
        }
        assert_eq!(bytes, [0x80, 0x3F, 0x82, 0x3F, 0xC0, 0x7F]);
        assert_eq!(Element::Bf16.decode(&bytes[2..]), 1.0 + 2f32.powi(-6));
    }
}
