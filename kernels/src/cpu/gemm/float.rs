//! F32 products: acc = fma(a, b, acc) for each k in order, from 0.
//!
//! Panels of B (two or one register wide) and of A (as many rows as registers allow) are packed k-major; a tile of C stays
//! in registers for the whole of k, so the order of arithmetic does not depend on the tile.

use super::super::lanes::{Lanes, WIDTH, get, put};
use super::{Matrix, Scratch, room};

/// Bytes of packed B that are worked on together: half of a common second-level cache.
const B_BYTES: usize = 1 << 20;

/// Where a product goes.
pub(in super::super) struct Output<'a> {
    pub(in super::super) c: &'a mut [f32],
    pub(in super::super) stride: usize,
    pub(in super::super) accumulate: bool,
    pub(in super::super) factor: f32,
}

impl Output<'_> {
    /// Finishes sixteen (or fewer, at the right edge) elements of row `row` from column `column`.
    #[inline(always)]
    pub(super) fn finish<L: Lanes>(&mut self, l: L, row: usize, column: usize, columns: usize, value: L::F) {
        let count = (columns - column).min(WIDTH);
        let start = row * self.stride + column;
        let c = &mut self.c[start..start + count];
        let mut value = value;
        if self.factor != 1.0 {
            value = l.mul(value, l.splat(self.factor));
        }
        if self.accumulate {
            value = l.add(get(l, c, 0), value);
        }
        put(l, canonical_nan(l, value), c, 0);
    }
}

/// Every NaN becomes 0x7FC00000: hardware and software differ in the sign and payload they give.
#[inline(always)]
fn canonical_nan<L: Lanes>(l: L, value: L::F) -> L::F {
    let bits = l.bits(value);
    let magnitude = l.and(bits, l.splat_u(0x7FFF_FFFF));
    l.floats(l.select_less_u(l.splat_u(0x7F80_0000), magnitude, l.splat_u(0x7FC0_0000), bits))
}

/// C = A B^T (shapes already checked). Compiled once for each instruction set, however many callers it has.
#[inline(never)]
pub(in super::super) fn multiply<L: Lanes>(l: L, a: Matrix<'_>, b: Matrix<'_>, mut output: Output<'_>, scratch: &mut Scratch) {
    l.run(
        #[inline(always)]
        || match L::REGISTERS {
            32 => blocked::<L, 12, 2>(l, a, b, &mut output, scratch),
            _ => blocked::<L, 6, 1>(l, a, b, &mut output, scratch),
        },
    );
}

#[inline(always)]
fn blocked<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    a: Matrix<'_>,
    b: Matrix<'_>,
    output: &mut Output<'_>,
    scratch: &mut Scratch,
) {
    let (k, panel) = (a.k, VECTORS * WIDTH);
    let columns_together = (B_BYTES / (4 * k.max(1)) / panel).max(1) * panel;
    for first in (0..b.rows).step_by(columns_together) {
        let columns = columns_together.min(b.rows - first);
        let packed_b = room(&mut scratch.b, columns.next_multiple_of(panel) * k + WIDTH);
        for column in (0..columns).step_by(panel) {
            pack(l, b, first + column, panel, &mut packed_b[column * k..]);
        }
        let packed_b = &*packed_b;
        let packed_a = room(&mut scratch.a, ROWS * k + WIDTH);
        let mut row = 0;
        while row < a.rows {
            // The last rows take smaller tiles rather than computing on zeros.
            let left = a.rows - row;
            let tile = (row, first, columns, b.rows);
            row += if left >= ROWS {
                strip::<L, ROWS, VECTORS>(l, a, tile, packed_a, packed_b, output)
            } else if left > ROWS / 2 && ROWS == 12 {
                strip::<L, 8, VECTORS>(l, a, tile, packed_a, packed_b, output)
            } else if left >= 2 {
                strip::<L, 4, VECTORS>(l, a, tile, packed_a, packed_b, output)
            } else {
                strip::<L, 1, VECTORS>(l, a, tile, packed_a, packed_b, output)
            };
        }
    }
}

/// ROWS rows of C (fewer at the lower edge) against all packed panels. Returns ROWS.
#[inline(always)]
fn strip<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    a: Matrix<'_>,
    (row, first, columns, all_columns): (usize, usize, usize, usize),
    packed_a: &mut [f32],
    packed_b: &[f32],
    output: &mut Output<'_>,
) -> usize {
    let (k, panel) = (a.k, VECTORS * WIDTH);
    pack(l, a, row, ROWS, packed_a);
    for column in (0..columns).step_by(panel) {
        let acc = tile::<L, ROWS, VECTORS>(l, &packed_a[..ROWS * k], &packed_b[column * k..(column + panel) * k]);
        for (i, acc) in acc.iter().enumerate() {
            if row + i >= a.rows {
                break;
            }
            for (j, &value) in acc.iter().enumerate() {
                let column = first + column + j * WIDTH;
                if column < all_columns {
                    output.finish(l, row + i, column, all_columns, value);
                }
            }
        }
    }
    ROWS
}

/// The inner loop.
#[inline(always)]
fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(l: L, a: &[f32], b: &[f32]) -> [[L::F; VECTORS]; ROWS] {
    let mut acc = [[l.splat(0.0); VECTORS]; ROWS];
    let (a, _) = a.as_chunks::<ROWS>();
    let (b, _) = b.as_chunks::<WIDTH>();
    for (a, b) in a.iter().zip(b.chunks_exact(VECTORS)) {
        let mut right = [l.splat(0.0); VECTORS];
        for j in 0..VECTORS {
            right[j] = l.load(&b[j]);
        }
        for i in 0..ROWS {
            let left = l.splat(a[i]);
            for j in 0..VECTORS {
                acc[i][j] = l.fma(left, right[j], acc[i][j]);
            }
        }
    }
    acc
}

/// Rows `start..start + width` of `m`, zeros past its end, k-major: `to[k * width + row]`.
///
/// Sixteen lanes are stored even where `width` is smaller: the surplus is overwritten by the next k, and `to` has sixteen
/// elements to spare at its end.
#[inline(always)]
fn pack<L: Lanes>(l: L, m: Matrix<'_>, start: usize, width: usize, to: &mut [f32]) {
    let zero = l.splat(0.0);
    for group in (0..width).step_by(WIDTH) {
        let row = start + group;
        let rows = m.rows.saturating_sub(row).min(WIDTH).min(width - group);
        if m.row_stride == 1 {
            for k in 0..m.k {
                let from = m.values.get(k * m.k_stride + row..).unwrap_or(&[]);
                put(l, get(l, &from[..rows.min(from.len())], 0), &mut to[k * width + group..k * width + group + WIDTH], 0);
            }
        } else if m.k_stride == 1 {
            for k in (0..m.k).step_by(WIDTH) {
                let count = (m.k - k).min(WIDTH);
                let mut square = [zero; WIDTH];
                for (i, lanes) in square.iter_mut().enumerate().take(rows) {
                    let from = (row + i) * m.row_stride + k;
                    *lanes = get(l, &m.values[from..from + count], 0);
                }
                l.transpose(&mut square);
                for (j, &lanes) in square.iter().enumerate().take(count) {
                    let at = (k + j) * width + group;
                    put(l, lanes, &mut to[at..at + WIDTH], 0);
                }
            }
        } else {
            for k in 0..m.k {
                for i in 0..(width - group).min(WIDTH) {
                    to[k * width + group + i] = if i < rows { m.values[(row + i) * m.row_stride + k * m.k_stride] } else { 0.0 };
                }
            }
        }
    }
}
