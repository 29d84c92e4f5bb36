//! What renders reports, as a number: a hash of this crate's sources and of the versions that it is built with. Two programs with the same one
//! and the same templates write the same report; `verify` asks it before it holds a report's bytes against what it would write.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let mut hasher = DefaultHasher::new();
    for place in ["src", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={place}");
        add(Path::new(place), &mut hasher)?;
    }
    println!("cargo::rustc-env=STUDY_SOURCES={:016x}", hasher.finish());
    Ok(())
}

fn add(path: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    if !path.is_dir() {
        fs::read(path)?.hash(hasher);
        return Ok(());
    }
    let mut entries: Vec<_> = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    entries.sort();
    entries.iter().try_for_each(|entry| {
        entry.file_name().hash(hasher);
        add(entry, hasher)
    })
}
