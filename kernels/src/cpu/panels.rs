//! Panels: one side of a GEMM in the order in which the inner loops read it, so that a product packs nothing.
//!
//! An operand of `rows` rows is cut into groups, of 48 rows on the left and 32 on the right: whole tiles of every instruction set.
//! Within a group everything is contraction-axis first, sixteen rows to a [`Line`]:
//!
//! - F32: for each k, one lane a row;
//! - pairs of BF16, which is exact for what is in them: for each two k one word a row, the first k in its upper half;
//! - MXFP4: for each block of 32, eight steps of one word a row (four elements, a byte each), then, on the left, the number that an integer sum
//!   starts from and the block's anchor, on the right the scale as an F32. A byte is twice the E2M1 value, plus 12 on the right
//!   (`gemm::mxfp4`);
//! - tiles of MXFP4: for each block of 32 sixteen lines of BF16, elements times their scale, then one of scale bytes. On the left a line is a
//!   row, on the right two k (`gemm::tiles`).
//!
//! The zero's sign is not kept (it cannot show in a product). The layout is the same for every instruction set; what goes into
//! it is `prepare`'s affair, except for [`Panels::pack`], the plain code that lays out an operand prepared elsewhere.

use super::lanes::{UPPER_HALF, WIDTH};
use super::room;
use crate::format::e2m1::DOUBLED;
use crate::format::e8m0;
use crate::quantise::{BLOCK, Float, Mxfp4, Prepared, decode_mxfp4};

/// Lines of a tile and its scales.
pub(super) const TILE_LINES: usize = WIDTH + 1;

/// Words of four elements in a block.
pub(super) const STEPS: usize = BLOCK / 4;

/// The anchor of a left block with scale byte 0, 1.5 * 2^23 * 2^-127 / 4: integers added to its bit pattern are added to its value, in units of
/// 2^-127 / 4. Bit 23 counts the scale byte. From byte 234 on the pattern is no finite number, and no fast kernel reads it.
pub(super) const ANCHOR: u32 = (21 << 23) | (1 << 22);

/// The anchor where the scale byte is none: a NaN that no byte has.
pub(super) const NAN_ANCHOR: u32 = 0xFFC0_0000;

/// What is added to the doubled elements of the right side.
pub(super) const OFFSET: i8 = 12;

/// Which side of C = A Bᵀ an operand is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// A: its rows are rows of C.
    #[default]
    Left,
    /// B: its rows are columns of C.
    Right,
}

impl Side {
    /// Lines that lie together: rows of a group by sixteen.
    pub(super) const fn lines(self) -> usize {
        match self {
            Self::Left => 3,
            Self::Right => 2,
        }
    }

    /// Rows of a group.
    pub(super) const fn group(self) -> usize {
        self.lines() * WIDTH
    }

    /// Lines of one block of 32 of a group: steps, start (left only), scale.
    pub(super) const fn block_lines(self) -> usize {
        match self {
            Self::Left => (STEPS + 2) * self.lines(),
            Self::Right => (STEPS + 1) * self.lines(),
        }
    }
}

/// What panels are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Layout {
    /// F32 values.
    #[default]
    Floats,
    /// Pairs of BF16.
    Pairs,
    /// Words and scales of MXFP4 blocks.
    Blocks,
    /// MXFP4 blocks as BF16.
    Tiles,
}

impl Layout {
    /// How many k lie together, and the lines of a group that they take.
    pub(super) const fn unit(self, side: Side) -> (usize, usize) {
        match self {
            Self::Floats => (1, side.lines()),
            Self::Pairs => (2, side.lines()),
            Self::Blocks => (BLOCK, side.block_lines()),
            Self::Tiles => (BLOCK, TILE_LINES * side.lines()),
        }
    }
}

/// Sixteen lanes in memory, on the border that vector loads like.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Line<T>(pub(super) [T; WIDTH]);

/// The elements of lines, one after the other.
pub(super) fn elements<T>(lines: &[Line<T>]) -> &[T] {
    // SAFETY: a Line is sixteen elements of 4 bytes and nothing else (checked below), so `lines` is that many elements in a row.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * WIDTH) }
}

/// [`elements`], to be written.
pub(super) fn elements_mut<T>(lines: &mut [Line<T>]) -> &mut [T] {
    // SAFETY: as there, and the lines are borrowed for as long.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * WIDTH) }
}

const _: () = assert!(size_of::<Line<f32>>() == WIDTH * 4 && size_of::<Line<u32>>() == WIDTH * 4);

/// One side of a GEMM. Empty when made; filled by `Cpu::prepare_into`, and reused without allocating.
#[derive(Debug, Default)]
pub struct Panels {
    pub(super) side: Side,
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) layout: Layout,
    /// What the product is multiplied by.
    pub(super) factor: f32,
    /// Largest scale byte; NaN's is left out, but among tiles it counts.
    pub(super) largest_scale: u8,
    /// Of pairs and tiles, bits of a magnitude that is above 0 and above none of theirs but 0; 0 where all are.
    pub(super) smallest: u32,
    pub(super) words: Vec<Line<u32>>,
    pub(super) floats: Vec<Line<f32>>,
}

impl Panels {
    /// Rows of the operand.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Length of its contraction axis.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes that a product reads.
    pub fn bytes(&self) -> usize {
        self.lines() * size_of::<Line<u32>>()
    }

    pub(super) fn is_mxfp4(&self) -> bool {
        matches!(self.layout, Layout::Blocks | Layout::Tiles)
    }

    /// The exponent bits of `smallest`; the largest that a number has where all elements are 0.
    pub(super) fn smallest_exponent(&self) -> u32 {
        if self.smallest == 0 { 254 } else { self.smallest >> 23 }
    }

    pub(super) fn blocks(&self) -> usize {
        self.k.div_ceil(BLOCK)
    }

    fn lines(&self) -> usize {
        let (unit, lines) = self.layout.unit(self.side);
        self.rows.div_ceil(self.side.group()) * self.k.div_ceil(unit) * lines
    }

    /// Takes a shape; what the buffers hold afterwards means nothing. Grows them if they are too small.
    pub(super) fn reshape(&mut self, side: Side, rows: usize, k: usize, layout: Layout) {
        (self.side, self.rows, self.k, self.layout) = (side, rows, k, layout);
        (self.factor, self.largest_scale, self.smallest) = (1.0, 0, 0);
        let lines = self.lines();
        match layout {
            Layout::Floats => _ = room(&mut self.floats, lines),
            Layout::Pairs | Layout::Blocks | Layout::Tiles => _ = room(&mut self.words, lines),
        }
    }

    /// The same operand as every instruction set multiplies it: itself, or pairs and tiles laid out as F32 and as bytes in `memory`.
    pub(super) fn apart<'a>(&'a self, memory: &'a mut Self) -> &'a Self {
        match self.layout {
            Layout::Floats | Layout::Blocks => return self,
            Layout::Tiles => {
                memory.pack_blocks(self.side, (self.rows, self.k), self.factor, |row, block| {
                    (self.doubled(row, block), self.scale_byte(row, block))
                });
                return memory;
            }
            Layout::Pairs => {}
        }
        memory.reshape(self.side, self.rows, self.k, Layout::Floats);
        memory.factor = self.factor;
        let (lines, k) = (self.side.lines(), self.k.max(1));
        let groups = self.words().chunks(k.div_ceil(2) * lines).zip(memory.floats_mut().chunks_mut(k * lines));
        for (pairs, floats) in groups {
            for (pairs, floats) in pairs.chunks(lines).zip(floats.chunks_mut(2 * lines)) {
                for (i, float) in floats.iter_mut().enumerate() {
                    float.0 = pairs[i % lines].0.map(|pair| halves(pair)[i / lines]);
                }
            }
        }
        memory
    }

    pub(super) fn words(&self) -> &[Line<u32>] {
        &self.words[..self.lines()]
    }

    pub(super) fn words_mut(&mut self) -> &mut [Line<u32>] {
        let lines = self.lines();
        &mut self.words[..lines]
    }

    pub(super) fn floats(&self) -> &[Line<f32>] {
        &self.floats[..self.lines()]
    }

    pub(super) fn floats_mut(&mut self) -> &mut [Line<f32>] {
        let lines = self.lines();
        &mut self.floats[..lines]
    }

    /// Line and lane of a row's word, start or scale: `item` counts steps, then start, then scale. In a tile of the right side pairs of k, then
    /// the scale.
    fn place(&self, row: usize, block: usize, item: usize) -> (usize, usize) {
        let (group, within) = (row / self.side.group(), row % self.side.group());
        let first = (group * self.blocks() + block) * self.layout.unit(self.side).1;
        let line =
            if self.layout == Layout::Tiles { within / WIDTH * TILE_LINES + item } else { item * self.side.lines() + within / WIDTH };
        (first + line, within % WIDTH)
    }

    /// Lays out an operand that was prepared elsewhere, in plain code. `as_floats` for a product with a side that is not MXFP4.
    pub fn pack(prepared: &Prepared, side: Side, as_floats: bool) -> Self {
        let mut panels = Self::default();
        match prepared {
            Prepared::Mxfp4(operand) if !as_floats => panels.pack_mxfp4(operand, side),
            Prepared::Mxfp4(operand) => panels.pack_floats(&decode_mxfp4(operand), side, operand.rows, operand.k, operand.multiplier),
            Prepared::Float(operand) => panels.pack_floats(&operand.values, side, operand.rows, operand.k, operand.scale),
        }
        panels
    }

    fn pack_floats(&mut self, values: &[f32], side: Side, rows: usize, k: usize, factor: f32) {
        self.reshape(side, rows, k, Layout::Floats);
        self.factor = factor;
        for row in 0..rows {
            for column in 0..k {
                let (line, lane) = self.unit_place(row, column);
                self.floats[line].0[lane] = values[row * k + column];
            }
        }
    }

    /// Line and lane of a row's F32 value or pair.
    fn unit_place(&self, row: usize, unit: usize) -> (usize, usize) {
        let (group, within) = (row / self.side.group(), row % self.side.group());
        let units = self.k.div_ceil(self.layout.unit(self.side).0);
        ((group * units + unit) * self.side.lines() + within / WIDTH, within % WIDTH)
    }

    /// What a row of F32 values or pairs holds.
    fn row_into(&self, row: usize, values: &mut [f32]) {
        let (line, lane) = self.unit_place(row, 0);
        if self.layout == Layout::Floats {
            let lines = self.floats[line..].iter().step_by(self.side.lines());
            values.iter_mut().zip(lines).for_each(|(value, line)| *value = line.0[lane]);
            return;
        }
        let lines = self.words[line..].iter().step_by(self.side.lines());
        for (values, line) in values.chunks_mut(2).zip(lines) {
            values.iter_mut().zip(halves(line.0[lane])).for_each(|(value, half)| *value = half);
        }
    }

    fn pack_mxfp4(&mut self, operand: &Mxfp4, side: Side) {
        self.pack_blocks(side, (operand.rows, operand.k), operand.multiplier, |row, block| {
            let block = row * operand.blocks + block;
            let codes = &operand.codes[block * BLOCK / 2..];
            let code = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
            (std::array::from_fn(|i| DOUBLED[usize::from(code(i))]), operand.scales[block])
        });
    }

    /// Lays out blocks as bytes: `block(row, number)` gives twice the elements and the scale byte.
    fn pack_blocks(&mut self, side: Side, (rows, k): (usize, usize), factor: f32, block: impl Fn(usize, usize) -> ([i8; BLOCK], u8)) {
        self.reshape(side, rows, k, Layout::Blocks);
        self.factor = factor;
        let offset = if side == Side::Right { OFFSET } else { 0 };
        for row in 0..rows {
            for number in 0..self.blocks() {
                let (doubled, byte) = block(row, number);
                for (step, doubled) in doubled.as_chunks::<4>().0.iter().enumerate() {
                    let (line, lane) = self.place(row, number, step);
                    self.words[line].0[lane] = u32::from_le_bytes(doubled.map(|x| (x + offset).cast_unsigned()));
                }
                let (line, lane) = self.place(row, number, STEPS);
                if side == Side::Right {
                    self.words[line].0[lane] = e8m0::decode(byte).to_bits();
                } else {
                    let sum: i32 = doubled.iter().map(|&x| i32::from(x)).sum();
                    let anchor = if byte == e8m0::NAN { NAN_ANCHOR } else { ANCHOR + (u32::from(byte) << 23) };
                    self.words[line].0[lane] = anchor.wrapping_add_signed(-i32::from(OFFSET) * sum);
                    self.words[line + side.lines()].0[lane] = anchor;
                }
                self.largest_scale = self.largest_scale.max(if byte == e8m0::NAN { 0 } else { byte });
            }
        }
    }

    /// The operand as it would have been prepared, zeros without sign: for measurements and tests, in plain code.
    pub fn unpack(&self) -> Prepared {
        if !self.is_mxfp4() {
            let mut values = vec![0.0; self.rows * self.k];
            for (row, values) in values.chunks_exact_mut(self.k.max(1)).enumerate() {
                self.row_into(row, values);
            }
            return Prepared::Float(Float { rows: self.rows, k: self.k, values, scale: self.factor });
        }
        let (rows, blocks) = (self.rows, self.blocks());
        let (mut codes, mut scales) = (Vec::with_capacity(rows * blocks * BLOCK / 2), Vec::with_capacity(rows * blocks));
        for row in 0..rows {
            for block in 0..blocks {
                let scale = self.scale_byte(row, block);
                scales.push(scale);
                // A block that is no number has no elements either.
                let code = |doubled: i8| if scale == e8m0::NAN { 0 } else { code_of(doubled) };
                for pair in self.doubled(row, block).chunks_exact(2) {
                    codes.push(code(pair[0]) | (code(pair[1]) << 4));
                }
            }
        }
        Prepared::Mxfp4(Mxfp4 { rows, k: self.k, blocks, codes, scales, multiplier: self.factor })
    }

    /// What [`dequantise`](crate::quantise::dequantise) makes of [`Panels::unpack`], without the codes between: `[rows, k]`.
    pub fn dequantise(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.k];
        for (row, values) in values.chunks_exact_mut(self.k.max(1)).enumerate() {
            if !self.is_mxfp4() {
                self.row_into(row, values);
                values.iter_mut().for_each(|value| *value *= self.factor);
                continue;
            }
            for (block, values) in values.chunks_mut(BLOCK).enumerate() {
                let scale = e8m0::decode(self.scale_byte(row, block));
                for (value, doubled) in values.iter_mut().zip(self.doubled(row, block)) {
                    *value = f32::from(doubled) * 0.5 * scale * self.factor;
                }
            }
        }
        values
    }

    /// Twice the elements of a block.
    pub(super) fn doubled(&self, row: usize, block: usize) -> [i8; BLOCK] {
        if self.layout == Layout::Tiles {
            let scale = e8m0::decode(self.scale_byte(row, block));
            return std::array::from_fn(|i| {
                // On the left a row is a line of its tile: the same square, transposed.
                let (row, pair) = (row - row % WIDTH, [row % WIDTH, i / 2]);
                let [lane, item] = if self.side == Side::Right { pair } else { [pair[1], pair[0]] };
                let (line, lane) = self.place(row + lane, block, item);
                let twice = halves(self.words[line].0[lane])[i % 2] / scale * 2.0;
                // Only 4 times the largest scale that there is goes beyond BF16.
                if twice.is_infinite() { 8.0f32.copysign(twice) as i8 } else { twice as i8 }
            });
        }
        let offset = if self.side == Side::Right { OFFSET } else { 0 };
        std::array::from_fn(|i| {
            let (line, lane) = self.place(row, block, i / 4);
            self.words[line].0[lane].to_le_bytes()[i % 4].cast_signed().wrapping_sub(offset)
        })
    }

    /// The E8M0 byte of a block.
    pub(super) fn scale_byte(&self, row: usize, block: usize) -> u8 {
        if self.layout == Layout::Tiles {
            let (line, lane) = self.place(row, block, WIDTH);
            return self.words[line].0[lane] as u8;
        }
        let is_left = self.side == Side::Left;
        let (line, lane) = self.place(row, block, if is_left { STEPS + 1 } else { STEPS });
        let bits = self.words[line].0[lane];
        match is_left {
            true if bits == NAN_ANCHOR => e8m0::NAN,
            true => ((bits - ANCHOR) >> 23) as u8,
            // 2^-127 is subnormal, and its exponent bits are 0 as its byte is; those of a NaN are 255.
            false => (bits >> 23) as u8,
        }
    }
}

/// The two values of a pair.
fn halves(pair: u32) -> [f32; 2] {
    [pair & UPPER_HALF, pair << 16].map(f32::from_bits)
}

/// The code of a doubled element; 0 for what is none.
fn code_of(doubled: i8) -> u8 {
    DOUBLED.iter().position(|&x| x == doubled).unwrap_or(0) as u8
}
