//! What each fuzz target does with its bytes, and what must hold of the answer. Shared with trainer/tests/fuzz_corpus.rs.
//!
//! A target may answer with any error; it must not panic, run away with memory, or accept what contradicts itself.

use std::path::Path;

/// A `.idx`, after eight bytes that give the length of the `.bin` (little-endian).
pub(crate) fn index(data: &[u8]) -> Result<(), String> {
    let (bin_bytes, idx) = data.split_first_chunk::<8>().ok_or("shorter than the length of a .bin")?;
    let bin_bytes = u64::from_le_bytes(*bin_bytes);
    let read = |offset: u64, out: &mut [u8]| -> Result<(), String> {
        let start = usize::try_from(offset).map_err(|error| error.to_string())?;
        let from = start.checked_add(out.len()).and_then(|end| idx.get(start..end)).ok_or("read beyond the file")?;
        out.copy_from_slice(from);
        Ok(())
    };
    let answer = trainer::data::index::check(idx.len() as u64, bin_bytes, read);
    assert!(answer.as_ref() != Err(&"read beyond the file".to_owned()), "the reader went beyond the length it was told");
    let index = answer??;
    assert_eq!(index.tokens.checked_mul(index.token_type.bytes() as u64), Some(bin_bytes));
    assert!(index.sequences <= idx.len() as u64 && index.documents <= idx.len() as u64);
    Ok(())
}

/// A whole safetensors file.
pub(crate) fn safetensors(data: &[u8]) -> Result<(), String> {
    let tensors = trainer::tensors::Tensors::parse(Path::new("fuzz.safetensors"), data.to_vec()).map_err(|error| error.to_string())?;
    for name in tensors.names() {
        let shape = tensors.shape(&name).expect("a name that the file lists has a shape").to_vec();
        if let Ok(elements) = tensors.f32(&name, &shape) {
            assert_eq!(elements.len(), shape.iter().product::<usize>());
        }
    }
    Ok(())
}

/// The text of a `run.yaml`.
pub(crate) fn run_file(data: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(data).map_err(|error| error.to_string())?;
    contract::run_file::RunFile::parse("fuzz.yaml", text).map(|_| ()).map_err(|error| error.to_string())
}

/// A line or a document of the harness and the trainer, given to every reader of one.
pub(crate) fn lines(data: &[u8]) -> Result<(), String> {
    use contract::json::{Document, Line};
    let text = std::str::from_utf8(data).map_err(|error| error.to_string())?;
    fn line<T: Line>(text: &str) -> bool {
        T::from_line(text).is_ok()
    }
    fn document<T: Document>(text: &str) -> bool {
        // What is read can be written.
        T::from_json("fuzz.json", text).is_ok_and(|read| read.to_json().is_ok())
    }
    let accepted = [
        line::<contract::metrics::MetricsLine>(text),
        line::<contract::timing::TimingLine>(text),
        line::<contract::measurements::KernelTimeLine>(text),
        line::<contract::measurements::StepTimeLine>(text),
        line::<contract::measurements::RotationIdentityLine>(text),
        line::<contract::measurements::DeviceTestLine>(text),
        document::<contract::outcome::Done>(text),
        document::<contract::outcome::Failed>(text),
        document::<contract::device::Devices>(text),
        document::<contract::identity::Identity>(text),
        document::<contract::memory::MemoryReport>(text),
    ];
    if accepted.contains(&true) { Ok(()) } else { Err("no reader takes it".to_owned()) }
}
