//! The repository's own manifests load, and every bad manifest says what is wrong, where, and what to do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::Path;

use study::manifest::Manifests;

#[test]
fn the_repository_loads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifests = Manifests::load(&root).unwrap_or_else(|error| panic!("{error}"));
    assert!(manifests.profiles.contains_key("cpu"));
    for tokenizer in ["webdocs-8192", "webdocs-32768"] {
        // Room for 1,024 sequences of 1,024 tokens.
        assert!(manifests.tokenizers[tokenizer].shards.as_ref().unwrap().validation.tokens > 1024 * 1024);
    }
    assert_eq!(manifests.claims().filter(|(paper, _)| paper.id == "2605.09825").count(), 20);
}
