//! Safetensors files: F32 tensors written whole or not at all, and read with errors that say what is wrong.
//!
//! Exactly one metadata key is written, `{"format":"pt"}`: Hugging Face transformers asks for it, and the order of several
//! keys would differ between processes, so that equal tensors would not have equal hashes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use contract::digest::hexadecimal;
use kernels::bytes::{read_f32, write_f32};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, View};
use sha2::{Digest, Sha256};

use crate::data::sha256_of;
use crate::whole_files::{aside, sync_directory};

/// Name, shape and row-major elements of a tensor to write.
pub type NamedTensor<'a> = (String, Vec<usize>, &'a [f32]);

/// Why tensors could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TensorError {
    /// The file is not there.
    #[error("{}: no such file", .0.display())]
    Missing(PathBuf),
    /// The operating system refused to read.
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error("{}: cannot write: {problem}; check free space and permissions, then run the same command again", path.display())]
    Write { path: PathBuf, problem: String },
    /// The file is there but is no whole safetensors file.
    #[error("{}: {problem}; the file is truncated or was not written by this program: delete it and run the same command again", path.display())]
    Malformed {
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The file is whole but does not hold the tensor that was asked for.
    #[error("{}: tensor {name}: {problem}; the file belongs to another model", path.display())]
    Tensor {
        path: PathBuf,
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl TensorError {
    pub(crate) fn write(path: &Path, problem: impl ToString) -> Self {
        Self::Write { path: path.to_owned(), problem: problem.to_string() }
    }
}

/// Writes `tensors` to `path` aside, syncs, renames; returns the SHA-256 of the file in hexadecimal digits.
/// The order in the file is by name, whatever the order here, so that equal tensors give equal files.
///
/// # Errors
/// [`TensorError::Tensor`] for a shape that does not fit its elements or a name given twice; [`TensorError::Write`],
/// [`TensorError::Read`].
pub fn write_tensors(path: &Path, tensors: &[NamedTensor<'_>]) -> Result<String, TensorError> {
    check(path, tensors)?;
    let aside = aside(path);
    let views = tensors.iter().map(|(name, shape, elements)| (name.as_str(), F32View { shape, elements }));
    let written = safetensors::serialize_to_file(views, Some(metadata()), &aside)
        .map_err(|error| TensorError::write(&aside, error))
        .and_then(|()| File::open(&aside).and_then(|file| file.sync_all()).map_err(|error| TensorError::write(&aside, error)))
        .and_then(|()| sha256_of(&aside).map_err(|error| TensorError::write(&aside, error)))
        .and_then(|hash| std::fs::rename(&aside, path).map(|()| hash).map_err(|error| TensorError::write(path, error)));
    if written.is_err() {
        // Nothing can be done about a failure here, and a leftover harms nobody.
        let _ = std::fs::remove_file(&aside);
    } else {
        sync_directory(path);
    }
    written
}

/// The SHA-256 that [`write_tensors`] returns, of a file that is not written.
///
/// # Errors
/// [`TensorError::Tensor`], as there.
pub fn hash_tensors(path: &Path, tensors: &[NamedTensor<'_>]) -> Result<String, TensorError> {
    check(path, tensors)?;
    // Views that say how long they are and give nothing leave the header alone.
    let headers = tensors.iter().map(|(name, shape, elements)| (name.as_str(), Header(F32View { shape, elements })));
    let header = safetensors::serialize(headers, Some(metadata())).map_err(|error| TensorError::write(path, error))?;
    let mut hash = Sha256::new();
    hash.update(header);
    let mut sorted: Vec<_> = tensors.iter().collect();
    sorted.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut bytes = vec![0; 4 << 16];
    for elements in sorted.iter().flat_map(|(_, _, elements)| elements.chunks(1 << 16)) {
        let bytes = &mut bytes[..size_of_val(elements)];
        write_f32(elements, bytes);
        hash.update(bytes);
    }
    Ok(hexadecimal(&hash.finalize()))
}

fn metadata() -> HashMap<String, String> {
    HashMap::from([("format".to_owned(), "pt".to_owned())])
}

fn check(path: &Path, tensors: &[NamedTensor<'_>]) -> Result<(), TensorError> {
    let mut names: Vec<&str> = tensors.iter().map(|(name, ..)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(TensorError::Tensor { path: path.to_owned(), name: twice[0].to_owned(), problem: "given twice".into() });
    }
    for (name, shape, elements) in tensors {
        if shape.iter().product::<usize>() != elements.len() {
            return Err(TensorError::Tensor {
                path: path.to_owned(),
                name: name.clone(),
                problem: format!("has {} elements, its shape {shape:?} asks for another number", elements.len()),
            });
        }
    }
    Ok(())
}

struct F32View<'a> {
    shape: &'a [usize],
    elements: &'a [f32],
}

impl View for F32View<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; self.data_len()];
        write_f32(self.elements, &mut bytes);
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        size_of_val(self.elements)
    }
}

/// What a header says of a tensor, without its elements.
struct Header<'a>(F32View<'a>);

impl View for Header<'_> {
    fn dtype(&self) -> Dtype {
        self.0.dtype()
    }

    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&[])
    }

    fn data_len(&self) -> usize {
        self.0.data_len()
    }
}

/// The tensors of a safetensors file, whose bytes are held or mapped.
#[derive(Debug)]
pub struct Tensors<B = Vec<u8>> {
    path: PathBuf,
    bytes: B,
    data_start: usize,
    metadata: Metadata,
}

/// Reads and checks `path`.
pub fn read_tensors(path: &Path) -> Result<Tensors, TensorError> {
    let bytes = std::fs::read(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => TensorError::Missing(path.to_owned()),
        _ => TensorError::Read { path: path.to_owned(), source },
    })?;
    Tensors::parse(path, bytes)
}

impl<B: AsRef<[u8]>> Tensors<B> {
    /// Checks `bytes`, the whole content of `path` (which is only named in errors).
    pub fn parse(path: &Path, bytes: B) -> Result<Self, TensorError> {
        let (header, metadata) = SafeTensors::read_metadata(bytes.as_ref())
            .map_err(|error| TensorError::Malformed { path: path.to_owned(), problem: describe(&error, bytes.as_ref()) })?;
        Ok(Self { path: path.to_owned(), data_start: size_of::<u64>() + header, bytes, metadata })
    }

    /// Names in the file, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.metadata.tensors().into_keys().collect();
        names.sort_unstable();
        names
    }

    /// Shape of a tensor, if the file holds it.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.metadata.info(name).map(|info| info.shape.as_slice())
    }

    /// The elements of the F32 tensor `name`, which must have this shape.
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, TensorError> {
        let mut all = vec![0.0; shape.iter().product()];
        self.copy_f32(name, shape, 0..all.len(), &mut all)?;
        Ok(all)
    }

    /// Copies the elements `part` of the F32 tensor `name`, which must have this shape, to `out`, which has room for so many.
    pub fn copy_f32(&self, name: &str, shape: &[usize], part: Range<usize>, out: &mut [f32]) -> Result<(), TensorError> {
        let refuse = |problem: String| TensorError::Tensor { path: self.path.clone(), name: name.to_owned(), problem };
        let info = self.metadata.info(name).ok_or_else(|| refuse("is missing".into()))?;
        if info.dtype != Dtype::F32 {
            return Err(refuse(format!("has type {:?}, expected F32", info.dtype)));
        }
        if info.shape != shape {
            return Err(refuse(format!("has shape {:?}, expected {shape:?}", info.shape)));
        }
        let (start, end) = info.data_offsets;
        let place = self.data_start.checked_add(start).zip(self.data_start.checked_add(end));
        let bytes = place.and_then(|(start, end)| self.bytes.as_ref().get(start..end));
        let elements = bytes.and_then(|bytes| bytes.as_chunks::<4>().0.get(part)).ok_or_else(|| refuse("lies outside the file".into()))?;
        read_f32(elements.as_flattened(), out);
        Ok(())
    }
}

fn describe(error: &SafeTensorError, bytes: &[u8]) -> String {
    match error {
        SafeTensorError::HeaderTooSmall => format!("{} bytes are too few for a safetensors header", bytes.len()),
        SafeTensorError::InvalidHeaderLength => format!("the header is said to go on beyond the end of the file ({} bytes)", bytes.len()),
        SafeTensorError::HeaderTooLarge => "the header is said to be over 100 MB, so this is no safetensors file".into(),
        SafeTensorError::MetadataIncompleteBuffer => {
            format!("the tensors named in the header do not fill the file ({} bytes) exactly", bytes.len())
        }
        SafeTensorError::InvalidHeader(_) | SafeTensorError::InvalidHeaderDeserialization(_) => {
            "the header is not the JSON of a safetensors file".into()
        }
        other => format!("the header makes no sense ({other})"),
    }
}
