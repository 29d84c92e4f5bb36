//! What only several ranks run on a GPU: the gradient's norm over shards, rows of an embedding that is there in BF16, and of its gradient those
//! that a batch has: kernels/device/shards.cu.

use super::driver::Grid;
use super::elementwise::{Occurrences, multiple_of_eight};
use super::optimizer::PARTIALS;
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, Plain, expect};
use crate::packed_rows::PackedRows;

/// Threads of a workgroup.
const THREADS: usize = 256;

/// The kernels and the sums that go from rank to rank.
#[derive(Debug)]
pub struct ShardNorm {
    add_squares: Kernel,
    group_sums: Kernel,
    norm_of: Kernel,
    sums: Buffer<f64>,
    partial: Buffer<f64>,
}

impl ShardNorm {
    /// Sums are handed from rank to rank in so many groups: the next rank goes on with one while this one is at the next.
    pub const GROUPS: usize = 4;
    /// Sums of all groups.
    pub const ALL: usize = PARTIALS * THREADS;
    /// Sums of a group.
    pub const SUMS: usize = Self::ALL / Self::GROUPS;

    /// Compiles or finds the kernels.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self {
            add_squares: gpu.kernel("shards.cu", &[], "add_squares")?,
            group_sums: gpu.kernel("shards.cu", &[], "group_sums")?,
            norm_of: gpu.kernel("optimizer.cu", &[], "norm_of")?,
            sums: gpu.buffer(Self::ALL)?,
            partial: gpu.buffer(PARTIALS)?,
        })
    }

    /// Goes on from a group's sums of all elements before number `first` with a shard that begins there. `sums`: [`Self::SUMS`] of them.
    pub fn go_on(&mut self, shard: &Buffer<f32>, first: usize, group: usize, sums: &mut [f64]) -> Result<(), GpuError> {
        expect("norm of shards", "a group's sums", Self::SUMS, sums.len())?;
        let own = Self::SUMS * group;
        self.sums.write(own, sums)?;
        self.add(shard, first, group, &self.sums)?;
        self.sums.read(own, sums)
    }

    /// The same where the sums of all groups are in the GPU's memory, one group after the other.
    pub fn add(&self, shard: &Buffer<f32>, first: usize, group: usize, sums: &Buffer<f64>) -> Result<(), GpuError> {
        let own = Self::SUMS * group;
        expect("norm of shards", "the sums", own + Self::SUMS, sums.length())?;
        let arguments = [
            Argument::new(shard.address(0)),
            Argument::new(first as u64),
            Argument::new(shard.length() as u64),
            Argument::new(sums.address(own)),
            Argument::new(own as u64),
            Argument::new(Self::ALL as u64),
        ];
        // SAFETY: add_squares(gradient, first, count, sums, before, step): a sum for each thread; the group's are there.
        unsafe { self.add_squares.launch(Grid::row(PARTIALS / Self::GROUPS, THREADS as u32), arguments) }
    }

    /// The norm of everything that went into the sums of all groups, into element `slot` of `out`.
    pub fn norm(&mut self, sums: &[f64], out: &Buffer<f64>, slot: usize) -> Result<(), GpuError> {
        self.sums.write(0, sums)?;
        self.norm_of_sums(&self.sums, out, slot)
    }

    /// The same where the sums are in the GPU's memory.
    pub fn norm_of_sums(&self, sums: &Buffer<f64>, out: &Buffer<f64>, slot: usize) -> Result<(), GpuError> {
        expect("norm of shards", "the sums", Self::ALL, sums.length())?;
        expect("norm of shards", "the results", slot + 1, out.length())?;
        let arguments = [Argument::new(sums.address(0)), Argument::new(self.partial.address(0))];
        // SAFETY: group_sums(sums, partial): a sum for each thread, a partial sum for each workgroup.
        unsafe { self.group_sums.launch(Grid::row(PARTIALS, THREADS as u32), arguments)? };
        let arguments = [Argument::new(self.partial.address(0)), Argument::new(PARTIALS as i32), Argument::new(out.address(slot))];
        // SAFETY: norm_of(partial, count, out).
        unsafe { self.norm_of.launch(Grid::row(1, THREADS as u32), arguments) }
    }
}

/// Adds what several ranks computed of a shard: each number is read and written once, whatever the number of ranks.
#[derive(Debug)]
pub struct PieceAdder(Kernel);

/// Pieces that the kernel adds at once, by their addresses.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Pieces([u64; PieceAdder::MOST]);

// SAFETY: eight u64.
unsafe impl Plain for Pieces {}

impl PieceAdder {
    /// How many it adds at once.
    const MOST: usize = 8;

    /// Compiles or finds the kernel.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        gpu.kernel("shards.cu", &[], "add_pieces").map(Self)
    }

    /// `sum` += each of the pieces in their order, element by element in F32; `sum` = the first and the others added, where it `begins`. Each
    /// piece has as many elements from its place on.
    pub fn add(&self, sum: &mut Buffer<f32>, pieces: &[(&Buffer<f32>, usize)], begins: bool) -> Result<(), GpuError> {
        let count = sum.length();
        for (number, some) in pieces.chunks(Self::MOST).enumerate() {
            let mut addresses = Pieces([0; Self::MOST]);
            for (address, (piece, place)) in addresses.0.iter_mut().zip(some) {
                expect("add_pieces", "a piece", place + count, piece.length())?;
                *address = piece.address(*place);
            }
            let arguments = [
                Argument::new(sum.address(0)),
                Argument::new(addresses),
                Argument::new(some.len() as i32),
                Argument::new(i32::from(begins && number == 0)),
                Argument::new(count as u64),
            ];
            // SAFETY: add_pieces(sum, pieces, count_of_pieces, begins, count): lengths were checked, and at least one piece is there.
            unsafe { self.0.launch(Grid::row(count.div_ceil(THREADS), THREADS as u32), arguments)? };
        }
        Ok(())
    }
}

/// [`PackedRows`] on the device.
#[derive(Debug)]
pub struct RowPacker {
    pack: Kernel,
    add: Kernel,
}

impl RowPacker {
    /// Compiles or finds the kernels.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let kernel = |name| gpu.kernel("shards.cu", &[], name);
        Ok(Self { pack: kernel("pack_rows")?, add: kernel("add_rows")? })
    }

    /// Packs the rows of the gradient at `d_table.1` that `tokens` have: [`PackedRows::pack`], whose slots are in another order.
    pub fn pack(
        &self,
        d_table: (&Buffer<f32>, usize),
        tokens: (&Buffer<u32>, &Occurrences),
        packed: PackedRows,
        out: &mut Buffer<f32>,
    ) -> Result<(), GpuError> {
        let (tokens, occurrences) = tokens;
        let PackedRows { slots, width } = packed;
        let vocabulary = occurrences.starts.length() - 1;
        expect("pack_rows", "the gradient", d_table.1 + vocabulary * width, d_table.0.length())?;
        expect("pack_rows", "the tokens", slots, tokens.length().min(occurrences.order.length()))?;
        expect("pack_rows", "the packed rows", packed.length(), out.length())?;
        let arguments = [
            Argument::new(d_table.0.address(d_table.1)),
            Argument::new(tokens.address(0)),
            Argument::new(occurrences.order.address(0)),
            Argument::new(occurrences.starts.address(0)),
            Argument::new(out.address(0)),
            Argument::new(out.address(packed.rows())),
            Argument::new(width as i32),
        ];
        // SAFETY: pack_rows(d_table, tokens, order, starts, entries, rows, width): a workgroup a slot; lengths were checked, positions and tokens
        // are those of `Occurrences::fill`.
        unsafe { self.pack.launch(Grid::row(slots, THREADS as u32), arguments) }
    }

    /// Adds packed rows, which begin at `from.1`, to `sum`: `count` elements from number `first` of the gradient on.
    pub fn add(
        &self,
        sum: (&mut Buffer<f32>, usize),
        (first, count): (usize, usize),
        from: (&Buffer<f32>, usize),
        packed: PackedRows,
    ) -> Result<(), GpuError> {
        let PackedRows { slots, width } = packed;
        expect("add_rows", "the sum", sum.1 + count, sum.0.length())?;
        expect("add_rows", "the packed rows", from.1 + packed.length(), from.0.length())?;
        let arguments = [
            Argument::new(sum.0.address(sum.1)),
            Argument::new(first as u64),
            Argument::new(count as u64),
            Argument::new(from.0.address(from.1)),
            Argument::new(from.0.address(from.1 + packed.rows())),
            Argument::new(width as i32),
        ];
        // SAFETY: add_rows(sum, first, count, entries, rows, width): a workgroup a slot; an entry has one slot, what lies outside the sum is left
        // out, and lengths were checked.
        unsafe { self.add.launch(Grid::row(slots, THREADS as u32), arguments) }
    }
}

/// Rows of an embedding's copy in BF16: what [`super::Elementwise::embedding`] makes of the values in F32, bit for bit, since both round alike.
#[derive(Debug)]
pub struct EmbeddingRows {
    rows: Kernel,
}

impl EmbeddingRows {
    /// Compiles or finds the kernel.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self { rows: gpu.kernel("shards.cu", &[], "embedding_rows")? })
    }

    /// `out: [count, width]` = rows of `table`, which begins with the embedding `[vocabulary, width]`.
    pub fn copy(
        &self,
        table: &Buffer<Bf16>,
        tokens: &Buffer<u32>,
        out: &mut Buffer<Bf16>,
        (count, width): (usize, usize),
    ) -> Result<(), GpuError> {
        multiple_of_eight("embedding rows", "the width", width)?;
        expect("embedding rows", "out", count * width, out.length())?;
        expect("embedding rows", "the tokens", count, tokens.length())?;
        let arguments = [
            Argument::new(table.address(0)),
            Argument::new(tokens.address(0)),
            Argument::new(out.address(0)),
            Argument::new(count as i32),
            Argument::new(width as i32),
        ];
        // SAFETY: embedding_rows(table, tokens, out, count, width); lengths were checked, and tokens are below the vocabulary.
        unsafe { self.rows.launch(Grid::row((count * width / 8).div_ceil(THREADS), THREADS as u32), arguments) }
    }
}
