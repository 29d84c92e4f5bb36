//! One shard of a checkpoint: a safetensors file of what lies in a range of the flat array, of parameters and both moments.
//!
//! A tensor that lies in it whole has its own name and shape. Of one that is cut it holds a part, as a vector under `NAME[FIRST..END]`: those
//! elements of the tensor, row by row. The shard of one rank is the whole.

use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data::{Access, Bytes};
use crate::error::TrainerError;
use crate::parameters::Layout;
use crate::ranks::overlap;
use crate::tensors::{NamedTensor, Tensors, write_tensors};

/// Parameters, first and second moments, by the prefix of their tensors' names.
const ARRAYS: [&str; 3] = ["parameters", "adam_first", "adam_second"];

/// A file of a checkpoint, as its index names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    pub file: String,
    /// The range of the flat array, in elements.
    pub first: usize,
    pub end: usize,
    /// Length of the file; an index of one rank does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    pub sha256: String,
}

/// What of a tensor lies in a range of the flat array.
struct Piece {
    name: String,
    shape: Vec<usize>,
    /// Of the flat array.
    range: Range<usize>,
}

fn pieces<'a>(layout: &'a Layout, range: &'a Range<usize>) -> impl Iterator<Item = Piece> + 'a {
    layout.tensors.iter().filter_map(move |tensor| {
        let whole = &tensor.range;
        let inside = overlap(whole, range);
        let (name, shape) = if inside == *whole {
            (tensor.name.clone(), vec![tensor.rows, tensor.columns])
        } else {
            (format!("{}[{}..{}]", tensor.name, inside.start - whole.start, inside.end - whole.start), vec![inside.len()])
        };
        (!inside.is_empty()).then_some(Piece { name, shape, range: inside })
    })
}

/// `range` with its start as zero.
fn within(range: &Range<usize>, start: usize) -> Range<usize> {
    range.start - start..range.end - start
}

/// Writes and syncs the shard `range`, which `arrays` are of.
pub(super) fn write(
    folder: &Path,
    file: String,
    layout: &Layout,
    range: &Range<usize>,
    arrays: [&[f32]; 3],
) -> Result<Shard, TrainerError> {
    let path = folder.join(&file);
    let named = |(prefix, array)| {
        let tensor = move |piece: Piece| -> NamedTensor<'_> {
            let elements: &[f32] = array;
            (format!("{prefix}.{}", piece.name), piece.shape, &elements[within(&piece.range, range.start)])
        };
        pieces(layout, range).map(tensor)
    };
    let tensors: Vec<NamedTensor<'_>> = ARRAYS.into_iter().zip(arrays).flat_map(named).collect();
    let sha256 = write_tensors(&path, &tensors).map_err(|error| TrainerError::Machine(error.to_string()))?;
    let bytes = fs::metadata(&path).map_err(|source| TrainerError::write(&path, source))?.len();
    Ok(Shard { file, first: range.start, end: range.end, bytes: Some(bytes), sha256 })
}

impl Shard {
    pub(super) fn range(&self) -> Range<usize> {
        self.first..self.end
    }

    /// Appends what of `wanted` lies here to parameters, first and second moments; `verify`: after its hash was compared with the index's.
    ///
    /// # Errors
    /// What is wrong with the file, which it names.
    pub(super) fn read(
        &self,
        folder: &Path,
        layout: &Layout,
        (wanted, verify): (&Range<usize>, bool),
        arrays: &mut [Vec<f32>; 3],
    ) -> Result<(), String> {
        let (file, range) = (&self.file, self.range());
        let wanted = overlap(wanted, &range);
        if wanted.is_empty() && !verify {
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
            for Piece { name, shape, range: piece } in pieces(layout, &range) {
                let common = overlap(&piece, &wanted);
                if !common.is_empty() {
                    let part = within(&common, piece.start);
                    tensors.append_f32(&format!("{prefix}.{name}"), &shape, part, array).map_err(|source| source.to_string())?;
                }
            }
        }
        Ok(())
    }
}
