//! Token files: what is written reads back, the layout is Megatron's byte for byte, and whatever is wrong is said clearly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use trainer::data::{Access, DataError, TokenStream, TokenWriter, documents, pair, sha256_of};

/// A `.idx` put together field by field, apart from the code under test.
fn idx(code: u8, width: usize, lengths: &[i32], bounds: &[i64]) -> Vec<u8> {
    let mut bytes = vec![b'M', b'M', b'I', b'D', b'I', b'D', b'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, code];
    bytes.extend((lengths.len() as u64).to_le_bytes());
    bytes.extend((bounds.len() as u64).to_le_bytes());
    bytes.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
    let mut offset = 0i64;
    for &length in lengths {
        bytes.extend(offset.to_le_bytes());
        offset += i64::from(length) * width as i64;
    }
    bytes.extend(bounds.iter().flat_map(|bound| bound.to_le_bytes()));
    bytes
}

fn open(folder: &Path, bin: &[u8], idx: &[u8]) -> Result<TokenStream, DataError> {
    fs::write(folder.join("x.bin"), bin).unwrap();
    fs::write(folder.join("x.idx"), idx).unwrap();
    TokenStream::open(&folder.join("x"))
}

fn read_all(stream: &TokenStream) -> Result<Vec<u32>, DataError> {
    let mut tokens = vec![0; stream.len()];
    stream.read(0, &mut tokens).map(|()| tokens)
}

#[test]
fn the_layout_is_megatrons() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("dotted.name");
    let mut writer = TokenWriter::create(&prefix, 65_499).unwrap();
    writer.push(&[1, 65_535, 3]).unwrap();
    writer.push(&[]).unwrap();
    writer.push(&[4]).unwrap();
    let summary = writer.finish().unwrap();
    let (bin, index) = pair(&prefix);
    assert_eq!(fs::read(&bin).unwrap(), [1, 0, 255, 255, 3, 0, 4, 0]);
    assert_eq!(fs::read(&index).unwrap(), idx(8, 2, &[3, 0, 1], &[0, 1, 2, 3]));
    assert_eq!((summary.documents, summary.tokens), (3, 4));
    assert_eq!((summary.sha256_bin.clone(), summary.sha256_idx.clone()), (sha256_of(&bin).unwrap(), sha256_of(&index).unwrap()));
    assert_eq!(TokenStream::open(&prefix).unwrap().summary().unwrap(), summary);
    // Nothing is left of the temporary files.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);

    let mut writer = TokenWriter::create(&prefix, 65_500).unwrap();
    writer.push(&[0x0001_0002, 7]).unwrap();
    writer.finish().unwrap();
    assert_eq!(fs::read(&bin).unwrap(), [2, 0, 1, 0, 7, 0, 0, 0]);
    assert_eq!(fs::read(&index).unwrap(), idx(4, 4, &[2], &[0, 1]));
}

#[test]
fn every_integer_type_is_read_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let value = |code: u8, bin: &[u8], width: usize| {
        open(folder.path(), bin, &idx(code, width, &[(bin.len() / width) as i32], &[0, 1])).and_then(|stream| read_all(&stream))
    };
    assert_eq!(value(1, &[5, 255], 1).unwrap(), [5, 255]);
    assert_eq!(value(2, &[5, 127], 1).unwrap(), [5, 127]);
    assert_eq!(value(3, &[5, 0, 255, 127], 2).unwrap(), [5, 32_767]);
    assert_eq!(value(4, &[5, 0, 0, 0, 255, 255, 255, 127], 4).unwrap(), [5, 2_147_483_647]);
    assert_eq!(value(5, &[255, 255, 255, 255, 0, 0, 0, 0], 8).unwrap(), [u32::MAX]);
    assert_eq!(value(8, &[5, 0, 255, 255], 2).unwrap(), [5, 65_535]);
    for (code, bin, width, found) in [
        (2, &[255u8][..], 1, -1),
        (3, &[0, 128], 2, -32_768),
        (4, &[254, 255, 255, 255], 4, -2),
        (5, &[0, 0, 0, 0, 1, 0, 0, 0], 8, 1 << 32),
    ] {
        assert!(matches!(value(code, bin, width), Err(DataError::BadToken { position: 0, value, .. }) if value == found), "code {code}");
    }
    for code in (0..=255).filter(|code| ![1, 2, 3, 4, 5, 8].contains(code)) {
        assert!(matches!(value(code, &[0; 8], 8), Err(DataError::Malformed { .. })), "code {code}");
    }
    let floats = value(6, &[0; 8], 8).unwrap_err().to_string();
    assert!(floats.contains("x.idx") && floats.contains("code 6 means floating-point"), "{floats}");
}

#[test]
fn every_truncation_of_either_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (bin, index) = (vec![1u8; 16], idx(8, 2, &[3, 5], &[0, 1, 2]));
    assert!(open(folder.path(), &bin, &index).is_ok());
    for length in 0..index.len() {
        let message = open(folder.path(), &bin, &index[..length]).unwrap_err().to_string();
        assert!(message.contains("x.idx") && message.contains("trainer tokenize"), "{length}: {message}");
    }
    for length in 0..bin.len() {
        let message = open(folder.path(), &bin[..length], &index).unwrap_err().to_string();
        assert!(message.contains(&format!(".bin that has {length}")), "{length}: {message}");
    }
    assert!(open(folder.path(), &[bin, vec![0, 0]].concat(), &index).unwrap_err().to_string().contains("not a pair"));
}

#[test]
fn missing_alien_and_wrong_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(TokenStream::open(&folder.path().join("none")), Err(DataError::Missing(path)) if path.ends_with("none.bin")));
    fs::write(folder.path().join("half.bin"), [0, 0]).unwrap();
    assert!(matches!(TokenStream::open(&folder.path().join("half")), Err(DataError::Missing(path)) if path.ends_with("half.idx")));
    let alien = open(folder.path(), &[0; 4], b"PK\x03\x04 this is another kind of file altogether").unwrap_err().to_string();
    assert!(alien.contains("no Megatron index"), "{alien}");
    fs::create_dir(folder.path().join("folder.bin")).unwrap();
    fs::write(folder.path().join("folder.idx"), idx(8, 2, &[], &[0])).unwrap();
    assert!(TokenStream::open(&folder.path().join("folder")).is_err());

    let stream = open(folder.path(), &[1, 0], &idx(8, 2, &[1], &[0, 1])).unwrap();
    let (bin, index) = (stream.sha256_bin().unwrap(), stream.sha256_idx().unwrap());
    stream.verify(&bin, &index).unwrap();
    stream.verify(&bin.to_uppercase(), &index).unwrap();
    let wrong = "0".repeat(64);
    assert!(matches!(stream.verify(&wrong, &index), Err(DataError::Hash { path, found, .. }) if path.ends_with("x.bin") && found == bin));
    assert!(matches!(stream.verify(&bin, &wrong), Err(DataError::Hash { path, found, .. }) if path.ends_with("x.idx") && found == index));
    assert!(matches!(stream.read(1, &mut [0]), Err(DataError::OutOfRange { start: 1, end: 2, tokens: 1, .. })));
    assert!(matches!(stream.read(usize::MAX, &mut [0, 0]), Err(DataError::OutOfRange { .. })));
    stream.read(1, &mut []).unwrap();
}

#[test]
fn an_unfinished_writer_leaves_the_old_pair_alone() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("x");
    let mut writer = TokenWriter::create(&prefix, 100).unwrap();
    writer.push(&[9]).unwrap();
    writer.finish().unwrap();
    let mut writer = TokenWriter::create(&prefix, 100).unwrap();
    writer.push(&[1, 2, 3]).unwrap();
    assert!(matches!(writer.push(&[65_536]), Err(DataError::Malformed { .. })));
    drop(writer);
    assert_eq!(read_all(&TokenStream::open(&prefix).unwrap()).unwrap(), [9]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(matches!(TokenWriter::create(&folder.path().join("no/such/folder"), 100), Err(DataError::Write { .. })));
}

#[test]
fn documents_of_both_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let texts = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        documents(&path).and_then(|documents| documents.collect::<Result<Vec<_>, _>>())
    };
    assert_eq!(texts("a.jsonl", b"{\"text\":\"one\\n\\u00e9\",\"n\":[1]}\n\n{\"path\":\"p\",\"text\":\"\"}").unwrap(), ["one\n\u{e9}", ""]);
    assert_eq!(texts("a.txt", b"one\ntwo\0three\0\0").unwrap(), ["one\ntwo", "three"]);
    assert_eq!(texts("empty.txt", b"").unwrap(), [""; 0]);
    for (content, said) in [
        (&b"{\"text\":\"a\"}\n{\"text\":1}"[..], "line 2"),
        (b"{\"text\":\"a\"", "line 1"),
        (b"{}", "missing field `text`"),
        (b"\xff", "line 1 is not UTF-8"),
    ] {
        let message = texts("bad.jsonl", content).unwrap_err().to_string();
        assert!(message.contains("bad.jsonl") && message.contains(said), "{message}");
    }
    assert!(texts("bad.txt", b"a\0b\xff").unwrap_err().to_string().contains("document 2 is not UTF-8 at its byte 1"));
    assert!(matches!(documents(&folder.path().join("none.txt")), Err(DataError::Missing(_))));
    assert!(matches!(texts("a.parquet", b""), Err(DataError::Malformed { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any documents, mapped or read by position, from any place on.
    #[test]
    fn what_is_written_reads_back(documents in prop::collection::vec(prop::collection::vec(0u32..70_000, 0..3000), 0..6), wide: bool, cut in 0.0..1.0f64) {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("x");
        let limit = if wide { 70_000 } else { 65_400 };
        let documents: Vec<Vec<u32>> = documents.into_iter().map(|document| document.into_iter().map(|token| token % limit).collect()).collect();
        let mut writer = TokenWriter::create(&prefix, limit as usize).unwrap();
        for document in &documents {
            writer.push(document).unwrap();
        }
        let summary = writer.finish().unwrap();
        let all = documents.concat();
        for access in [Access::Map, Access::Read] {
            let stream = TokenStream::open_with(&prefix, access).unwrap();
            prop_assert_eq!(stream.documents(), documents.len() as u64);
            prop_assert_eq!(&read_all(&stream).unwrap(), &all);
            let start = (all.len() as f64 * cut) as usize;
            let mut rest = vec![0; all.len() - start];
            stream.read(start, &mut rest).unwrap();
            prop_assert_eq!(&rest, &all[start..]);
            prop_assert_eq!(stream.summary().unwrap(), summary.clone());
        }
    }
}
