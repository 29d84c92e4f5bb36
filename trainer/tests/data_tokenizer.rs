//! The committed tokenizers against Python's, texts there and back, and training that comes out the same every time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use trainer::data::TokenStream;
use trainer::tokenizer::{self, END_OF_DOCUMENT, TextTokenizer, TokenizerError};

fn committed(id: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/tokenizers").join(id).join("tokenizer.json")
}

/// Ids from Python's tokenizers, whose regular expressions another engine matches (conformance/tokenizer_vectors.py).
#[test]
fn ids_are_pythons() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/tokenizer_vectors.json")).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let texts: Vec<&str> = vectors["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert!(texts.len() > 100, "only {} texts", texts.len());
    for (id, expected) in vectors["ids"].as_object().unwrap() {
        let tokenizer = TextTokenizer::open(&committed(id)).unwrap();
        for (text, expected) in texts.iter().zip(expected.as_array().unwrap()) {
            let expected: Vec<u32> = expected.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            assert_eq!(tokenizer.encode(text).unwrap(), expected, "{id}: {text:?}");
            assert_eq!(&tokenizer.decode(&expected).unwrap(), text, "{id}");
        }
    }
}

#[test]
fn committed_tokenizers_have_their_size_and_separator() {
    for (id, size) in [("rust-crates-512", 512), ("rust-crates-1024", 1024), ("webdocs-8192", 8192), ("webdocs-32768", 32768)] {
        let tokenizer = TextTokenizer::open(&committed(id)).unwrap();
        assert_eq!((tokenizer.vocabulary(), tokenizer.end_of_document()), (size, 0), "{id}");
        assert_eq!(tokenizer.decode(&[0]).unwrap(), END_OF_DOCUMENT);
        assert!(!tokenizer.encode("a<|endoftext|>b").unwrap().contains(&0), "text that spells the separator must not end a document");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_comes_back(text in prop::collection::vec(any::<char>(), 0..200), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let tokenizer = TextTokenizer::open(&committed("rust-crates-1024")).unwrap();
        for text in [text.into_iter().collect::<String>(), String::from_utf8_lossy(&bytes).into_owned()] {
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert!(ids.iter().all(|&id| id > 0 && id < 1024));
            prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }
}

/// Words with many equally frequent pairs, so that the order of ties would show.
fn tied_text() -> String {
    (0..4000u32)
        .map(|number| {
            format!(
                "{}{} ",
                ["ab", "cd", "ef", "abcd", "cdab", "xyx"][number as usize % 6],
                ["", "ef", "zz", "ab"][(number / 6) as usize % 4]
            )
        })
        .collect()
}

#[test]
fn training_is_the_same_at_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text.txt");
    fs::write(&input, format!("{}\0{}", tied_text(), include_str!("data_tokenizer.rs"))).unwrap();
    let mut hashes = Vec::new();
    for (round, threads) in [1, 2, 7, 1, 2, 7].into_iter().enumerate() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let output = folder.path().join(format!("{round}.json"));
        hashes.push(pool.install(|| tokenizer::train(&input, 400, &output)).unwrap());
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    let trained = TextTokenizer::open(&folder.path().join("0.json")).unwrap();
    assert_eq!((trained.vocabulary(), trained.end_of_document()), (400, 0));
}

#[test]
fn tokens_are_the_documents_in_order_each_with_its_separator() {
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..2500).map(|number| format!("let x{number} = {number};").repeat(number % 5)).collect();
    let lines: String = texts.iter().map(|text| format!("{}\n", serde_json::json!({"path": "p", "text": text}))).collect();
    let input = folder.path().join("text.jsonl");
    fs::write(&input, lines).unwrap();
    let path = committed("rust-crates-512");
    let summary = tokenizer::tokenize(&path, &input, &folder.path().join("out")).unwrap();
    assert_eq!(summary, tokenizer::inspect(&folder.path().join("out")).unwrap());
    let stream = TokenStream::open(&folder.path().join("out")).unwrap();
    let mut tokens = vec![0; stream.len()];
    stream.read(0, &mut tokens).unwrap();
    let tokenizer = TextTokenizer::open(&path).unwrap();
    let decoded: Vec<String> = tokens.split(|&token| token == 0).map(|ids| tokenizer.decode(ids).unwrap()).collect();
    assert_eq!(decoded[..texts.len()], texts[..]);
    assert_eq!((decoded.len(), tokens.last()), (texts.len() + 1, Some(&0)));
}

#[test]
fn what_cannot_work_is_said_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text.txt");
    fs::write(&input, "aa aa aa").unwrap();
    let output = folder.path().join("out.json");
    assert!(matches!(tokenizer::train(&input, 256, &output), Err(TokenizerError::VocabularyTooSmall(256))));
    // "aa", " aa" and "Ġa" cannot be three merges: at most two pairs occur twice.
    assert!(matches!(tokenizer::train(&input, 300, &output), Err(TokenizerError::TextTooSmall { asked: 300, possible: 257..=260, .. })));
    fs::write(folder.path().join("bad.jsonl"), "{\"text\":\"a\"}\n{").unwrap();
    assert!(matches!(tokenizer::train(&folder.path().join("bad.jsonl"), 300, &output), Err(TokenizerError::Data(_))));
    let tokenizer = committed("rust-crates-512");
    assert!(matches!(
        tokenizer::tokenize(&tokenizer, &folder.path().join("bad.jsonl"), &folder.path().join("out")),
        Err(TokenizerError::Data(_))
    ));
    for (name, content) in [
        ("alien.json", "[1]"),
        ("empty.json", ""),
        ("no-separator.json", r#"{"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":[]}}"#),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let error = tokenizer::tokenize(&path, &input, &folder.path().join("out")).unwrap_err();
        assert!(matches!(error, TokenizerError::Unusable { .. }) && error.to_string().contains(name), "{error}");
    }
    let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["alien.json", "bad.jsonl", "empty.json", "no-separator.json", "text.txt"]);
}

/// The disk fills up while tokens are written: the temporary file is a door to a full device, because the shell that makes the link becomes the trainer.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    // More than the writer holds back before it writes.
    fs::write(folder.path().join("text.txt"), "word ".repeat(100_000)).unwrap();
    for (part, place) in [("bin", "while the tokens are written"), ("idx", "while the index is written")] {
        let script = format!("ln -s /dev/full out.{part}.$$.tmp; exec \"$0\" tokenize --tokenizer \"$1\" --input text.txt --output out");
        let output = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_trainer")])
            .arg(fs::canonicalize(committed("rust-crates-512")).unwrap())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(4) && said.contains("No space left"), "{place}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{place}: {said}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{place}: only the text stays");
    }
}
