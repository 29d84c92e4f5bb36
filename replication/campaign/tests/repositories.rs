//! `data fetch` from repositories: the whole way, what is lost, what stays, and manifests that say something else. The rule itself has its tests
//! in `documents`.

use std::cell::RefCell;
use std::path::PathBuf;

use campaign::data::{self, DataError, Origin};
use study::exit::ExitCode as _;
use study::files::sha256;
use study::manifest::dataset::{DocumentFiles, Part, Source};
use study::manifest::{Dataset, Manifests};

use super::made::{World as Mirror, prose};

/// A dataset of four documents from two repositories. By their names' hashes doc71.md is held out, and the others' order is a.xml (1f7a), 2 (50b2),
/// 1 (c1e9).
struct World {
    mirror: Mirror,
    manifests: Manifests,
    said: RefCell<Vec<String>>,
}

impl World {
    fn new() -> Self {
        let mirror = Mirror::new();
        let [one, two, held_out, law] = ["one", "two", "held out", "law"].map(|what| prose(what, 600));
        for (path, text) in [("doc1.md", &one), ("doc2.md", &two), ("doc71.md", &held_out)] {
            mirror.put("made/words", path, text.as_bytes());
        }
        mirror.put("made/words", "not.txt", b"not a document");
        mirror.put("made/other", "a.xml", format!("<section><text>{law}</text></section>").as_bytes());
        let commits = ["made/words", "made/other"].map(|repo| mirror.commit(repo));
        let mut manifests = Manifests::load(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        manifests.root = mirror.path("root");
        let mut world = Self { mirror, manifests, said: RefCell::default() };
        let webdocs = world.webdocs();
        let train = format!("{law}\0{two}\0{one}\0");
        let mut files = vec![webdocs.files[0].clone(), webdocs.files.last().unwrap().clone()];
        for (file, (text, documents)) in files.iter_mut().zip([(&train, 3), (&format!("{held_out}\0"), 1)]) {
            (file.text_bytes, file.text_sha256, file.documents) = (text.len() as u64, sha256(text.as_bytes()), documents);
        }
        assert_eq!((files[0].part, files[1].part), (Part::Train, Part::Validation));
        webdocs.corpus.train_sha256 = Some(files[0].text_sha256.clone());
        webdocs.corpus.validation_sha256 = Some(files[1].text_sha256.clone());
        webdocs.files = files;
        let model = webdocs.sources[0].clone();
        let source = |index: usize, repo: &str, mode: &str, suffix: &str, documents: u64, file_bytes: u64| Source {
            repo: repo.to_owned(),
            commit: commits[index].clone(),
            mode: mode.to_owned(),
            prefixes: vec![String::new()],
            suffixes: vec![suffix.to_owned()],
            exclude: vec![],
            files_selected: documents,
            file_bytes_selected: file_bytes,
            dropped: std::collections::BTreeMap::new(),
            documents,
            parts: documents,
            text_bytes: 600 * documents,
            ..model.clone()
        };
        webdocs.sources = vec![source(0, "made/words", "md", ".md", 3, 1800), source(1, "made/other", "law", ".xml", 1, 632)];
        world
    }

    fn webdocs(&mut self) -> &mut DocumentFiles {
        match self.manifests.datasets.get_mut("webdocs") {
            Some(Dataset::DocumentFiles(webdocs)) => webdocs,
            _ => panic!("not document files"),
        }
    }

    fn fetch(&self) -> Result<(), DataError> {
        let say = |line: &str| self.said.borrow_mut().push(line.to_owned());
        data::fetch(&self.manifests, "webdocs", Origin::Mirror(&self.mirror.base()), &say)
    }

    /// Code and message of a fetch that fails, and leaves no texts.
    fn refusal(&self) -> (u8, String) {
        let error = self.fetch().unwrap_err();
        assert!(!error.to_string().contains('\n'), "{error}");
        let left: Vec<String> = self.names(&self.cache()).into_iter().filter(|name| name != "repositories").collect();
        assert!(left.is_empty(), "{left:?}: {error}");
        (error.exit_code(), error.to_string())
    }

    fn cache(&self) -> PathBuf {
        self.manifests.root.join("cache/datasets/webdocs")
    }

    fn names(&self, folder: &std::path::Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Folders of repositories, whole or not.
    fn repositories(&self) -> Vec<PathBuf> {
        let folder = self.cache().join("repositories");
        self.names(&folder).into_iter().filter(|name| name != "lock").map(|name| folder.join(name)).collect()
    }

    fn move_repository(&self, from: &str, to: &str) {
        std::fs::rename(self.mirror.path("mirror").join(from), self.mirror.path("mirror").join(to)).unwrap();
    }

    fn said(&self, line: &str) -> bool {
        self.said.borrow().iter().any(|said| said.contains(line))
    }
}

#[test]
fn repositories_become_the_pinned_texts() {
    let world = World::new();
    world.fetch().unwrap();
    let read = |name: &str| std::fs::read_to_string(world.cache().join("corpus").join(name)).unwrap();
    let [one, two, held_out, law] = ["one", "two", "held out", "law"].map(|what| prose(what, 600));
    assert_eq!((read("train.txt"), read("validation.txt")), (format!("{law}\0{two}\0{one}\0"), format!("{held_out}\0")));
    assert_eq!(world.names(&world.cache().join("corpus")), ["train.txt", "validation.txt"], "nothing that was spilled is left");
    let what_is_to_come = "0 of 2 repositories are here; 4 files of 2432 bytes are to be fetched";
    for line in [what_is_to_come, "this takes up to 7240 bytes of disk", "fetched made/words (", "made/other: 1 documents (2 of 2)"] {
        assert!(world.said(line), "{line}: {:?}", world.said);
    }
    let states = data::status(&world.manifests, true).unwrap();
    let state = states.iter().find(|state| state.id == "webdocs").unwrap();
    assert_eq!((state.here.len(), state.missing.len(), state.wrong.len()), (2, 0, 0), "{state}");
    // Texts that are here need no mirror, and are checked; repositories that are here need none either.
    std::fs::remove_dir_all(world.mirror.path("mirror")).unwrap();
    world.fetch().unwrap();
    std::fs::write(world.cache().join("corpus/train.txt"), "other").unwrap();
    let error = world.fetch().unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("train.txt: its SHA-256 is "), "{error}");
    std::fs::remove_dir_all(world.cache().join("corpus")).unwrap();
    world.fetch().unwrap();
    assert!(world.said("2 of 2 repositories are here; 0 files") && read("train.txt").starts_with(&law));
}

#[test]
fn what_is_lost_is_named_with_its_cost_and_the_rest_stays() {
    let world = World::new();
    world.move_repository("made/words", "made/moved");
    let (code, said) = world.refusal();
    assert!(code == 3 && said.starts_with("1 of 2 repositories cannot be had from file://") && said.contains("made/words at "), "{said}");
    assert!(said.contains(", which costs 3 documents, 1800 bytes. ") && !said.contains("made/other at"), "{said}");
    assert_eq!(world.repositories().len(), 1);
    // Back again: the other one is not asked for.
    world.move_repository("made/moved", "made/words");
    world.move_repository("made/other", "made/gone");
    world.fetch().unwrap();
    assert!(world.said("1 of 2 repositories are here; 3 files of 1800 bytes"), "{:?}", world.said);
}

#[test]
fn a_rewritten_history_is_a_lost_commit_and_a_copy_that_has_it_is_as_good() {
    let mut world = World::new();
    world.move_repository("made/words", "made/copy");
    world.mirror.put("made/words", "doc1.md", b"another history");
    world.mirror.commit("made/words");
    let (code, said) = world.refusal();
    assert!(code == 3 && said.contains("fetching the commit: ") && said.contains("which costs 3 documents"), "{said}");
    world.webdocs().sources[0].fetched_from = Some("made/copy".to_owned());
    world.fetch().unwrap();
}

#[test]
fn where_neither_a_repository_nor_its_copy_is_there_both_are_named() {
    let mut world = World::new();
    world.webdocs().sources[0].fetched_from = Some("made/copy".to_owned());
    world.move_repository("made/words", "made/elsewhere");
    let (code, said) = world.refusal();
    assert!(code == 3 && said.contains("made/words' does not") && said.contains("; its copy made/copy: "), "{said}");
}

#[test]
fn what_an_interrupted_call_left_is_made_again() {
    let world = World::new();
    world.fetch().unwrap();
    std::fs::remove_dir_all(world.cache().join("corpus")).unwrap();
    // As a kill leaves them: halves aside, and one repository whose objects are gone.
    let repository = world.repositories().remove(0);
    let aside = |path: &PathBuf| path.with_file_name(format!(".{}.partial", path.file_name().unwrap().to_str().unwrap()));
    for half in [aside(&repository), aside(&world.cache().join("corpus"))] {
        std::fs::create_dir_all(&half).unwrap();
        std::fs::write(half.join("texts"), "half").unwrap();
    }
    std::fs::remove_dir_all(repository.join("objects")).unwrap();
    world.fetch().unwrap();
    assert!(world.said("1 of 2 repositories are here"), "{:?}", world.said);
    assert_eq!(world.names(&world.cache()), ["corpus", "repositories"]);
    assert_eq!(world.repositories().len(), 2);
}

#[test]
fn two_calls_at_once_do_not_meet() {
    let world = World::new();
    let repositories = world.cache().join("repositories");
    std::fs::create_dir_all(&repositories).unwrap();
    let held = study::folder::lock(&repositories.join("lock")).unwrap();
    let (code, said) = world.refusal();
    assert!(code == 1 && said.contains("repositories/lock"), "{said}");
    drop(held);
    world.fetch().unwrap();
}

#[test]
fn what_is_not_as_pinned_is_named_and_nothing_is_kept() {
    let mut world = World::new();
    world.webdocs().sources[1].text_bytes += 1;
    let (code, said) = world.refusal();
    assert!(
        code == 3 && said.starts_with("made/other: 1 files of 632 bytes (dropped: none) give 1 documents in 1 parts, 600 bytes, but "),
        "{said}"
    );
    assert!(said.contains("manifests/datasets/webdocs.yaml says 1 files") && said.contains("601 bytes; nothing was kept"), "{said}");
    world.webdocs().sources[1].text_bytes -= 1;
    world.webdocs().files[0].text_sha256 = "0".repeat(64);
    let (code, said) = world.refusal();
    assert!(code == 3 && said.starts_with("train.000: 3 parts, 1803 bytes, SHA-256 "), "{said}");
    let more = world.webdocs().files[0].clone();
    world.webdocs().files[0].text_sha256 = world.webdocs().corpus.train_sha256.clone().unwrap();
    world.webdocs().files.insert(1, more);
    assert!(world.refusal().1.starts_with("train.000: no such file, but "));
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_fetched() {
    let mut world = World::new();
    let error = data::fetch(&world.manifests, "webdocs", Origin::Mirror("ssh://localhost"), &|_| ()).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("https:// or file://"), "{error}");
    world.webdocs().sources[0].file_bytes_selected = 1 << 60;
    let (code, said) = world.refusal();
    assert!(code == 4 && said.contains(" GB are needed and ") && said.contains("free some space"), "{said}");
    world.webdocs().extraction.rule.push_str("11 AND MORE.\n");
    let (code, said) = world.refusal();
    assert!(code == 2 && said.starts_with("manifests/datasets/webdocs.yaml: extraction: rule: "), "{said}");
    assert!(world.repositories().is_empty());
}
