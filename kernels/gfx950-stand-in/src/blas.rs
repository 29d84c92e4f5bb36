//! The functions of libhipblaslt that the HIP driver looks up: matrices of BF16, FP8 and F32, products summed in F32, in order of k.

// C functions: their names and their contracts are AMD's.
#![allow(non_snake_case, missing_docs, unreachable_pub, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_int, c_void};

use crate::state::{Failure, INVALID_VALUE, State, trace, with};

/// Statuses (`hipblasStatus_t`).
const SUCCESS: c_int = 0;
const WRONG_ARGUMENT: c_int = 3;
const FAILED: c_int = 5;
const UNSUPPORTED: c_int = 7;

const COMPUTE_F32: c_int = 2;
const AS_IT_LIES: c_int = 111;
const TRANSPOSED: c_int = 112;

/// What the heuristic writes as an algorithm, and a product wants to see again.
const ALGORITHM: [u8; 24] = *b"gfx950 interpreter, F32\0";

/// Element types (`hipDataType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    F32,
    Bf16,
    E4m3,
    E5m2,
}

impl Element {
    fn of(number: c_int) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            14 => Self::Bf16,
            28 => Self::E4m3,
            29 => Self::E5m2,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    fn is_fp8(self) -> bool {
        self.bytes() == 1
    }

    fn decode(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Self::Bf16 => f32::from_bits(u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 24),
            Self::E4m3 => fp8(bytes[0], 3, 7),
            Self::E5m2 => fp8(bytes[0], 2, 15),
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
    create(description, Description { transposed: [false; 2], scales: [0; 2] })
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

/// Whether there is such a product: sides that fit, FP8 with FP8 in multiples of 16, F32 or BF16 out.
fn is_supported(description: &Description, a: &Layout, b: &Layout, d: &Layout) -> bool {
    let (Some(left), Some(right), Some(out)) = (a.element, b.element, d.element) else { return false };
    let ([m, k], [also_k, n]) = (sides(a, description.transposed[0]), sides(b, description.transposed[1]));
    let fits = k == also_k && [d.rows, d.columns] == [m, n];
    let types = left.is_fp8() == right.is_fp8() && (left.is_fp8() || left == right) && !out.is_fp8();
    fits && types && (!left.is_fp8() || [m, n, k].iter().all(|size| size.is_multiple_of(16)))
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

#[cfg(test)]
mod tests {
    use super::{Element, fp8};

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
