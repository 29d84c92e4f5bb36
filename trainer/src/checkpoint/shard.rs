//! One shard of a checkpoint: a safetensors file of what lies in some ranges of the flat array, of parameters and both moments.
//!
//! A tensor that lies in it whole has its own name and shape. Of one that is cut it holds a part, as a vector under `NAME[FIRST..END]`: those
//! elements of the tensor, row by row. The shard of one rank is the whole.

use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data::{Access, Bytes};
use crate::error::TrainerError;
use crate::parameters::{Layout, Tensor};
use crate::shards::ShardRanges;
use crate::tensors::{NamedTensor, Tensors, write_tensors};

/// Parameters, first and second moments, by the prefix of their tensors' names.
const ARRAYS: [&str; 3] = ["parameters", "adam_first", "adam_second"];

/// A file of a checkpoint, as its index names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    pub file: String,
    /// Of the flat array, in its order: first element and end of each.
    pub ranges: Vec<(usize, usize)>,
    /// Length of the file; an index of one rank does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    pub sha256: String,
}

/// What of a tensor lies in one range of a shard.
struct Piece {
    name: String,
    shape: Vec<usize>,
    /// Of the flat array.
    range: Range<usize>,
}

fn pieces<'a>(layout: &'a Layout, shard: &'a ShardRanges) -> impl Iterator<Item = Piece> + 'a {
    let piece = |tensor: &Tensor, inside: Range<usize>| {
        let whole = &tensor.range;
        let (name, shape) = if inside == *whole {
            (tensor.name.clone(), vec![tensor.rows, tensor.columns])
        } else {
            (format!("{}[{}..{}]", tensor.name, inside.start - whole.start, inside.end - whole.start), vec![inside.len()])
        };
        Piece { name, shape, range: inside }
    };
    layout.tensors.iter().flat_map(move |tensor| shard.within(&tensor.range).map(move |inside| piece(tensor, inside)))
}

/// Writes and syncs a shard, which `arrays` are of.
pub(super) fn write(folder: &Path, file: String, layout: &Layout, shard: &ShardRanges, arrays: [&[f32]; 3]) -> Result<Shard, TrainerError> {
    let path = folder.join(&file);
    let named = |(prefix, array)| {
        let tensor = move |piece: Piece| -> NamedTensor<'_> {
            let elements: &[f32] = array;
            (format!("{prefix}.{}", piece.name), piece.shape, &elements[shard.local(&piece.range)])
        };
        pieces(layout, shard).map(tensor)
    };
    let tensors: Vec<NamedTensor<'_>> = ARRAYS.into_iter().zip(arrays).flat_map(named).collect();
    let sha256 = write_tensors(&path, &tensors).map_err(|error| TrainerError::Machine(error.to_string()))?;
    let bytes = fs::metadata(&path).map_err(|source| TrainerError::write(&path, source))?.len();
    Ok(Shard { file, ranges: shard.iter().map(|range| (range.start, range.end)).collect(), bytes: Some(bytes), sha256 })
}

impl Shard {
    /// Takes what of `wanted` lies here to its place in parameters, first and second moments of it; `verify`: after the file's hash was compared
    /// with the index's.
    ///
    /// # Errors
    /// What is wrong with the file, which it names.
    pub(super) fn read(
        &self,
        folder: &Path,
        layout: &Layout,
        (wanted, verify): (&ShardRanges, bool),
        arrays: &mut [Vec<f32>; 3],
    ) -> Result<(), String> {
        let (file, shard) = (&self.file, ShardRanges::new(self.ranges.iter().map(|&(first, end)| first..end)));
        if !verify && shard.iter().all(|range| wanted.within(range).next().is_none()) {
            return Ok(());
        }
        let path = folder.join(file);
        let failed = |source: &dyn std::fmt::Display| format!("{file}: {source}");
        let length = fs::metadata(&path).map_err(|source| failed(&source))?.len();
        if let Some(bytes) = self.bytes.filter(|bytes| *bytes != length) {
            return Err(format!("{file}: it has {length} bytes and had {bytes} when it was written"));
        }
        let bytes = Bytes::open(&path, Access::Map).map_err(|source| failed(&source))?;
        if verify && bytes.sha256().map_err(|source| failed(&source))? != self.sha256 {
            return Err(format!("{file}: its SHA-256 is not the one in {}", super::INDEX));
        }
        let read;
        let content = match bytes.mapped() {
            Some(content) => content,
            None => {
                read = fs::read(&path).map_err(|source| failed(&source))?;
                &read
            }
        };
        let tensors = Tensors::parse(&path, content).map_err(|source| source.to_string())?;
        for (prefix, array) in ARRAYS.iter().zip(arrays) {
            for Piece { name, shape, range: piece } in pieces(layout, &shard) {
                for common in wanted.within(&piece) {
                    let part = common.start - piece.start..common.end - piece.start;
                    let goal = &mut array[wanted.local(&common)];
                    tensors.copy_f32(&format!("{prefix}.{name}"), &shape, part, goal).map_err(|source| source.to_string())?;
                }
            }
        }
        Ok(())
    }
}
