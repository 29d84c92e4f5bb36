//! Of an embedding's gradient the rows that a batch has, packed: most entries of a large vocabulary are in no batch, and what is zero need not go
//! from rank to rank.

/// Where devices let memory begin, in elements.
pub const ALIGNED: usize = 64;

/// A slot for each token of a batch; an entry has one of them, the others are empty. First come the entries' numbers, -1 for none, then the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedRows {
    pub slots: usize,
    pub width: usize,
}

impl PackedRows {
    /// Entries above this one have no number in F32.
    pub const MOST_ENTRIES: usize = 1 << 24;

    /// Where rows begin.
    pub fn rows(self) -> usize {
        self.slots.next_multiple_of(ALIGNED)
    }

    /// Elements of all.
    pub fn length(self) -> usize {
        self.rows() + self.slots * self.width
    }

    /// Packs the rows of `d_table: [vocabulary, width]` that `tokens` have, into the slots of their first occurrences.
    pub fn pack(self, d_table: &[f32], tokens: &[u32], out: &mut [f32]) {
        let (entries, rows) = out.split_at_mut(self.rows());
        let mut seen = vec![false; d_table.len() / self.width];
        entries.fill(-1.0);
        for ((&token, entry), row) in tokens.iter().zip(entries).zip(rows.chunks_exact_mut(self.width)) {
            let token = token as usize;
            if !std::mem::replace(&mut seen[token], true) {
                *entry = token as f32;
                row.copy_from_slice(&d_table[token * self.width..][..self.width]);
            }
        }
    }

    /// Adds packed rows to `sum`, which is the gradient's elements from number `first` on. What no row has stays as it is: a gradient's zero is
    /// never negative, so that adding it would change no bit.
    pub fn add(self, sum: &mut [f32], first: usize, packed: &[f32]) {
        let (entries, rows) = packed.split_at(self.rows());
        for (&entry, row) in entries.iter().zip(rows.chunks_exact(self.width)).filter(|(entry, _)| **entry >= 0.0) {
            let begin = entry as usize * self.width;
            for (at, value) in (begin..).zip(row) {
                if let Some(sum) = at.checked_sub(first).and_then(|at| sum.get_mut(at)) {
                    *sum += value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adding packed rows, part by part, is adding the whole gradient.
    #[test]
    fn packed_rows_add_what_the_whole_gradient_adds() {
        let (vocabulary, width, tokens) = (11, 6, [3, 9, 3, 0, 10, 9]);
        let packed = PackedRows { slots: tokens.len(), width };
        let mut table = vec![0.0; vocabulary * width];
        for (number, token) in tokens.into_iter().enumerate() {
            for column in 0..width {
                table[token as usize * width + column] += 1.0 + (number * width + column) as f32 / 7.0;
            }
        }
        let mut out = vec![f32::NAN; packed.length()];
        packed.pack(&table, &tokens, &mut out);
        let before: Vec<f32> = (0..table.len()).map(|at| at as f32 / 3.0 - 5.0).collect();
        let whole: Vec<u32> = before.iter().zip(&table).map(|(sum, more)| (sum + more).to_bits()).collect();
        for cut in [0, 1, width, 4 * width + 1, table.len()] {
            let mut sum = before.clone();
            let (left, right) = sum.split_at_mut(cut);
            packed.add(left, 0, &out);
            packed.add(right, cut, &out);
            assert_eq!(sum.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), whole, "{cut}");
        }
    }
}
