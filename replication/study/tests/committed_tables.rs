//! The CSV files of the committed result directories are, byte for byte, what this tree writes from their measurements.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use study::kernels::{self, DOCUMENT, Document};
use study::measure::tables;
use study::mllog::table as logged;
use study::{files, public_logs};

use crate::committed;
use crate::synthetic::repository;

/// Directories below `folder` that hold `file`.
fn holding(folder: &Path, file: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let holding: Vec<PathBuf> = all.filter(|path| path.join(file).is_file()).collect();
    assert!(!holding.is_empty(), "no {file} below {}", folder.display());
    holding
}

#[test]
fn of_a_campaign() {
    for directory in committed::campaigns() {
        let measurements = committed::measured(&directory);
        for table in tables::all(measurements).into_iter().chain(public_logs::tables(measurements)) {
            let written = files::read_text(&directory.join("data").join(table.name)).unwrap();
            assert!(table.csv().unwrap() == written, "{}/data/{}", directory.display(), table.name);
        }
    }
}

#[test]
fn of_kernels_bench() {
    for directory in holding(&repository().join("results"), DOCUMENT).into_iter().filter(|directory| kernels::is_result(directory)) {
        let folder = tempfile::tempdir().unwrap();
        let document = Document::read(&directory.join(DOCUMENT)).unwrap();
        assert!(document.comparisons == document.compare(), "{}", directory.display());
        assert!(document.of_devices().map(|(_, comparisons)| comparisons).eq(document.compare_devices()), "{}", directory.display());
        document.write(folder.path()).unwrap();
        for name in files::list(folder.path()).unwrap() {
            let [again, written] = [folder.path(), &directory].map(|folder| std::fs::read(folder.join(&name)).unwrap());
            assert!(again == written, "{}/{name}", directory.display());
        }
    }
}

/// Losses there were taken over from another program, which writes some with another last digit: the same numbers, not the same bytes.
#[test]
fn of_public_logs() {
    for group in holding(&repository().join("manifests/evidence/mlperf-llama31-8b"), logged::RUNS) {
        let (records, folder) = (logged::read(&group).unwrap(), tempfile::tempdir().unwrap());
        logged::write(folder.path(), &records).unwrap();
        assert!(logged::read(folder.path()).unwrap() == records, "{}", group.display());
        let [again, written] = [folder.path(), &group].map(|folder| files::read_text(&folder.join(logged::RUNS)).unwrap());
        assert!(again == written, "{}", group.display());
    }
}
