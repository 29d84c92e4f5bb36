//! Datasets that a user brings: a good copy is taken whole, a bad one leaves nothing, and each message says what to do.
//!
//! The archives were made by the `xz` program; the trainer is a short shell script, so what tokens come out is not tested here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::{Path, PathBuf};

use campaign::data::{self, DataError, Origin};
use campaign::toolchain::Trainer;
use study::exit::ExitCode;
use study::files::sha256;
use study::manifest::profile::{Shard, Shards};
use study::manifest::{Dataset, Manifests};
use tempfile::TempDir;

/// `xz --check=crc64` of [`TEXTS`].
const ARCHIVES: [(&str, &str); 3] = [
    (
        "train.000.xz",
        "fd377a585a000004e6d6b4460200210116000000742fe5a3e0002600255d00331a4aac0c72bf6e3c8af82654d2fb51d1889a16dc830db82bc589244ce90dad3ce890000000000000dd8c07f26534da6200014127047eee6c1fb6f37d010000000004595a",
    ),
    (
        "train.001.xz",
        "fd377a585a000004e6d6b4460200210116000000742fe5a301000e746869726420646f63756d656e74000000394f5fc020b0823a0001270fdf1afc6a1fb6f37d010000000004595a",
    ),
    (
        "validation.xz",
        "fd377a585a000004e6d6b4460200210116000000742fe5a301000868656c64206f75740000000000c2e15a55a1330eea000121096c18c5d51fb6f37d010000000004595a",
    ),
];
const TEXTS: [&str; 3] = ["first document\0second\n\ndocument, caf\u{e9}\0", "third document\0", "held out\0"];

/// No repository is there, and no network is asked.
const NOWHERE: Origin<'static> = Origin::Mirror("file:///nowhere");

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// The repository's manifests in a folder of their own, in which webdocs is the three small archives, and a good copy of those.
struct World {
    folder: TempDir,
    manifests: Manifests,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut manifests = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        manifests.root = folder.path().join("root");
        let world = Self { folder, manifests };
        for (name, archive) in ARCHIVES {
            world.put(name, &bytes(archive));
        }
        let mut world = world;
        world.describe(|_| ());
        world
    }

    /// Describes the small archives; `change` may spoil the manifest.
    fn describe(&mut self, change: impl FnOnce(&mut study::manifest::dataset::DocumentFiles)) {
        let Some(Dataset::DocumentFiles(webdocs)) = self.manifests.datasets.get_mut("webdocs") else { panic!("not document files") };
        let mut files = vec![];
        for (index, ((name, archive), text)) in ARCHIVES.iter().zip(TEXTS).enumerate() {
            // The first five files of the manifest are of the training part, the sixth is held out.
            let mut file = webdocs.files[if index < 2 { 0 } else { webdocs.files.len() - 1 }].clone();
            (file.name, file.bytes, file.sha256) = ((*name).to_owned(), archive.len() as u64 / 2, sha256(&bytes(archive)));
            (file.text_bytes, file.text_sha256) = (text.len() as u64, sha256(text.as_bytes()));
            files.push(file);
        }
        webdocs.files = files;
        webdocs.corpus.train_sha256 = Some(sha256(format!("{}{}", TEXTS[0], TEXTS[1]).as_bytes()));
        webdocs.corpus.validation_sha256 = Some(sha256(TEXTS[2].as_bytes()));
        change(webdocs);
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    fn put(&self, name: &str, content: &[u8]) {
        std::fs::create_dir_all(self.copy()).unwrap();
        std::fs::write(self.copy().join(name), content).unwrap();
    }

    /// From a copy, or from repositories that are nowhere.
    fn fetch(&self, from: Option<&Path>) -> Result<(), DataError> {
        data::fetch(&self.manifests, "webdocs", from.map_or(NOWHERE, Origin::Folder), &|_| ())
    }

    fn cache(&self) -> PathBuf {
        self.manifests.root.join("cache/datasets/webdocs")
    }

    /// What fetching from the copy says; nothing may be left of it.
    fn refusal(&self) -> (u8, String) {
        let error = self.fetch(Some(&self.copy())).unwrap_err();
        let left = std::fs::read_dir(self.cache()).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
        (error.exit_code(), error.to_string())
    }
}

#[test]
fn a_good_copy_becomes_the_documents() {
    let world = World::new();
    world.fetch(Some(&world.copy())).unwrap();
    let read = |name: &str| std::fs::read_to_string(world.cache().join("corpus").join(name)).unwrap();
    assert_eq!((read("train.txt"), read("validation.txt")), (format!("{}{}", TEXTS[0], TEXTS[1]), TEXTS[2].to_owned()));
    assert_eq!(std::fs::read_dir(world.cache()).unwrap().count(), 1, "nothing but the documents is kept");
    // Now that they are here, no copy is needed; and a status that reads everything agrees.
    world.fetch(None).unwrap();
    let states = data::status(&world.manifests, true).unwrap();
    let state = states.iter().find(|state| state.id == "webdocs").unwrap();
    assert_eq!((state.here.len(), state.missing.len(), state.wrong.len()), (2, 0, 0), "{state}");
    std::fs::write(world.cache().join("corpus/validation.txt"), "held in\0").unwrap();
    let error = world.fetch(None).unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("validation.txt: its SHA-256 is "), "{error}");
    // A good copy heals it.
    world.fetch(Some(&world.copy())).unwrap();
    assert_eq!(read("validation.txt"), TEXTS[2]);
}

#[test]
fn texts_that_were_made_again_are_as_good_as_archives() {
    let world = World::new();
    for (name, text) in ["train.000", "validation"].iter().zip([TEXTS[0], TEXTS[2]]) {
        std::fs::remove_file(world.copy().join(format!("{name}.xz"))).unwrap();
        world.put(name, text.as_bytes());
    }
    world.fetch(Some(&world.copy())).unwrap();
    assert_eq!(std::fs::read_to_string(world.cache().join("corpus/train.txt")).unwrap(), format!("{}{}", TEXTS[0], TEXTS[1]));
    world.put("validation", b"held in\0");
    let error = world.fetch(Some(&world.copy())).unwrap_err();
    assert!(error.to_string().contains("validation: truncated: 8 bytes, the manifest says 9"), "{error}");
    assert_eq!(std::fs::read_to_string(world.cache().join("corpus/validation.txt")).unwrap(), TEXTS[2], "the old documents stay");
}

#[test]
fn every_flipped_byte_and_every_truncation_is_refused() {
    let world = World::new();
    let (name, archive) = (ARCHIVES[1].0, bytes(ARCHIVES[1].1));
    for at in 0..archive.len() {
        let mut bad = archive.clone();
        bad[at] ^= 1;
        world.put(name, &bad);
        let (code, said) = world.refusal();
        assert!(code == 3 && said.contains("train.001.xz: its SHA-256 is ") && said.contains("get the file again"), "{said}");
        world.put(name, &archive[..at]);
        let (code, said) = world.refusal();
        assert!(code == 3 && said.contains(&format!("train.001.xz: truncated: {at} bytes, the manifest says {}", archive.len())), "{said}");
    }
}

/// A manifest that pins a damaged archive must not let it through: the archive's own checks and the text's hash stand behind it.
#[test]
fn a_pinned_archive_that_cannot_be_unpacked_is_refused() {
    let archive = bytes(ARCHIVES[1].1);
    let mut refused = 0;
    for at in 0..archive.len() {
        for cut in [false, true] {
            let mut bad = archive.clone();
            bad[at] ^= 0x10;
            if cut {
                bad.truncate(at);
            }
            let mut world = World::new();
            world.put(ARCHIVES[1].0, &bad);
            world.describe(|webdocs| (webdocs.files[1].bytes, webdocs.files[1].sha256) = (bad.len() as u64, sha256(&bad)));
            let (code, said) = world.refusal();
            assert!(code == 3 && said.contains("train.001.xz: "), "{said}");
            refused += usize::from(said.contains("cannot be unpacked") || said.contains("bytes of text with SHA-256"));
        }
    }
    assert_eq!(refused, 2 * archive.len());
}

#[test]
fn an_archive_that_swells_is_stopped() {
    let mut world = World::new();
    world.describe(|webdocs| webdocs.files[0].text_bytes = 5);
    let (code, said) = world.refusal();
    assert!(code == 3 && said.contains("train.000.xz: gives ") && said.contains("the manifest says 5 with "), "{said}");
}

#[test]
fn what_is_missing_is_named() {
    let world = World::new();
    std::fs::remove_file(world.copy().join("train.001.xz")).unwrap();
    let (code, said) = world.refusal();
    assert!(
        code == 3 && said.contains("copy: 1 of 3 files are not there: train.001.xz; manifests/datasets/webdocs.yaml has the size"),
        "{said}"
    );
    let error = world.fetch(Some(&world.folder.path().join("nowhere"))).unwrap_err();
    assert!(
        error.exit_code() == 3 && error.to_string().contains("nowhere: no such folder; name the one that holds train.000.xz"),
        "{error}"
    );
}

#[test]
fn without_a_copy_every_file_and_source_is_named_and_every_lost_repository_with_what_it_costs() {
    let mut world = World::new();
    world.manifests = Manifests { root: world.manifests.root.clone(), ..Manifests::load(&repository()).unwrap() };
    let said = std::cell::RefCell::new(String::new());
    let say = |line: &str| {
        said.borrow_mut().push_str(line);
        said.borrow_mut().push('\n');
    };
    let error = data::fetch(&world.manifests, "webdocs", NOWHERE, &say).unwrap_err();
    assert!(error.exit_code() == 3 && !error.to_string().contains('\n'), "{error}");
    assert!(error.to_string().starts_with("76 of 76 repositories cannot be had from file:///nowhere: "), "{error}");
    let Dataset::DocumentFiles(webdocs) = &world.manifests.datasets["webdocs"] else { panic!("not document files") };
    for file in &webdocs.files {
        let archive = format!("  {} ({} bytes, SHA-256 {})", file.name, file.bytes, file.sha256);
        let text = format!(", or its text {} ({} bytes, SHA-256 {})", file.text_name(), file.text_bytes, file.text_sha256);
        assert!(said.borrow().contains(&(archive + &text)), "{}", file.name);
    }
    assert_eq!(webdocs.sources.len(), 76);
    for source in &webdocs.sources {
        assert!(said.borrow().contains(&format!("  {} at {}", source.repo, source.commit)), "{}", source.repo);
        assert!(error.to_string().contains(&format!("{} at {} (", source.repo, source.commit)), "{}: {error}", source.repo);
        assert!(error.to_string().contains(&format!("which costs {} documents", source.documents)), "{}: {error}", source.repo);
    }
    said.borrow_mut().clear();
    data::fetch(&world.manifests, "enwik8", Origin::Public, &say).unwrap_err();
    assert!(said.borrow().contains("  enwik8 (SHA-256 2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8)"), "{said:?}");
    assert!(said.borrow().contains("http://mattmahoney.net/dc/enwik8.zip"), "{said:?}");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_the_machines_fault() {
    let world = World::new();
    let Dataset::DocumentFiles(webdocs) = &world.manifests.datasets["webdocs"] else { panic!("not document files") };
    let out = world.folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::os::unix::fs::symlink("/dev/full", out.join("train.txt")).unwrap();
    let error = DataError::from(campaign::archives::unpack(webdocs, &world.copy(), &out, &|_| ()).unwrap_err());
    assert!(error.exit_code() == 4 && error.to_string().contains("train.txt: cannot write: No space left"), "{error}");
}

/// Shards of a tokenizer that pins them, as files in `folder`.
fn shards(folder: &Path) -> Shards {
    std::fs::create_dir_all(folder).unwrap();
    let shard = |part: &str| {
        let hash = |extension: &str| {
            let content = format!("{part} {extension}");
            std::fs::write(folder.join(format!("{part}.{extension}")), &content).unwrap();
            sha256(content.as_bytes())
        };
        Shard { tokens: 100, sha256_bin: hash("bin"), sha256_idx: hash("idx") }
    };
    Shards { train: shard("train"), validation: shard("validation"), end_of_document: 0 }
}

/// A machine that is given pinned shards needs neither documents nor sources nor a trainer.
#[test]
fn pinned_shards_are_taken_by_hash_and_are_enough() {
    let mut world = World::new();
    let from = world.folder.path().join("shards");
    let pinned = shards(&from);
    let tokenizer = world.manifests.tokenizers.get_mut("webdocs-8192").unwrap();
    tokenizer.shards = Some(pinned.clone());
    let file = world.manifests.root.join(tokenizer.file.as_ref().unwrap());
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::copy(repository().join(tokenizer.file.as_ref().unwrap()), file).unwrap();
    let profile = world.manifests.profiles["h200-s"].clone();
    assert!(data::lacks(&world.manifests, &profile, &world.manifests.root).is_some());

    let take = |world: &World, tokenizer: &str| data::fetch_tokens(&world.manifests, "webdocs", tokenizer, &from, &|_| ());
    take(&world, "webdocs-8192").unwrap();
    assert_eq!(data::lacks(&world.manifests, &profile, &world.manifests.root), None);
    let none = Trainer { program: "no-such-trainer".into() };
    let prepared = data::prepare(&world.manifests, &profile, &none, &|_| ()).unwrap();
    assert_eq!(prepared.shards, pinned);
    assert_eq!(std::fs::read_dir(&prepared.folder).unwrap().count(), 5);

    // Damaged in the cache: said before a run starts. Damaged where they come from: the good ones in the cache stay.
    std::fs::write(prepared.folder.join("train.bin"), "train bim").unwrap();
    let error = data::prepare(&world.manifests, &profile, &none, &|_| ()).unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("train.bin: its SHA-256 is "), "{error}");
    take(&world, "webdocs-8192").unwrap();
    std::fs::write(from.join("validation.idx"), "").unwrap();
    let error = take(&world, "webdocs-8192").unwrap_err();
    assert!(error.to_string().contains("validation.idx: its SHA-256 is ") && error.to_string().contains("nothing was taken"), "{error}");
    std::fs::remove_file(from.join("train.idx")).unwrap();
    let error = take(&world, "webdocs-8192").unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("train.idx is not here"), "{error}");
    assert!(data::prepare(&world.manifests, &profile, &none, &|_| ()).is_ok());
    assert!(take(&world, "webdocs-819").unwrap_err().to_string().contains("did you mean `webdocs-8192`?"));
    assert!(take(&world, "rust-crates-512").unwrap_err().to_string().contains("only shards that the tokenizer's manifest pins"));
}

#[test]
fn another_tokenizer_or_text_never_meets_old_shards() {
    let mut world = World::new();
    let folder = |world: &World| {
        data::token_folder(&world.manifests.root, &world.manifests.datasets["webdocs"], &world.manifests.tokenizers["webdocs-8192"])
    };
    let first = folder(&world);
    world.describe(|webdocs| webdocs.corpus.train_sha256 = Some("0".repeat(64)));
    let second = folder(&world);
    world.manifests.tokenizers.get_mut("webdocs-8192").unwrap().sha256 = Some("0".repeat(64));
    let third = folder(&world);
    assert!(first != second && second != third && first != third);
    world.describe(|_| ());
    assert_ne!(folder(&world), first);
}

/// The trainer's refusal reaches the user as one line with the trainer's exit code, and leaves nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_trainer_that_refuses_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut world = World::new();
    world.fetch(Some(&world.copy())).unwrap();
    let tokenizer = world.manifests.tokenizers.get_mut("webdocs-8192").unwrap();
    tokenizer.shards = None;
    let content = b"{}";
    tokenizer.sha256 = Some(sha256(content));
    let file = world.manifests.root.join(tokenizer.file.as_ref().unwrap());
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, content).unwrap();
    let profile = world.manifests.profiles["h200-s"].clone();
    for (number, code) in [("4", 4), ("3", 3)] {
        let script = world.folder.path().join(format!("trainer-{number}"));
        let text = format!("#!/bin/sh\necho half > \"$7\".bin\necho 'error: x.bin: cannot write: no space' >&2\nexit {number}\n");
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = data::prepare(&world.manifests, &profile, &Trainer { program: script }, &|_| ()).unwrap_err();
        assert_eq!(error.exit_code(), code);
        let said = error.to_string();
        assert!(said.ends_with("train.txt: x.bin: cannot write: no space") && !said.contains('\n'), "{said}");
        assert_eq!(std::fs::read_dir(world.cache().join("tokens")).unwrap().count(), 0, "{said}");
    }
}
