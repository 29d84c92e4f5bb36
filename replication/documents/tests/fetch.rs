//! Step 1, and addresses that are not what they should be.

use documents::git::{self, Cause, Repository};
use documents::rule::{Rule, RuleError};
use documents::source::{Named, Source};

use super::made::{World, extraction, prose, source};

const EVERYTHING: [&[&str]; 3] = [&[""], &[""], &[]];

#[test]
fn plain_files_that_the_filters_take_sorted_by_path() {
    let world = World::new();
    for path in
        ["a.md", "a-b.md", "a/b.md", "a/b.MD", "b.md", "a/LICENSE.md", "LICENSE.md", "a/xLICENSE.md", "a/\u{f6} z.md", "c/c.txt", "c/c.md"]
    {
        world.put("made/words", path, path.as_bytes());
    }
    // Git hands out the stored bytes whatever attributes say.
    world.put("made/words", ".gitattributes", b"*.md eol=crlf export-subst\n");
    world.put("made/words", "a/eol.md", b"one\ntwo\n$Format:%H$\n");
    let first = world.commit("made/words");
    let submodule = format!("160000,{first},a/submodule.md");
    world.git("made/words", &["update-index", "--add", "--cacheinfo", &submodule]);
    let target = world.git("made/words", &["hash-object", "a.md"]);
    world.git("made/words", &["update-index", "--add", "--cacheinfo", &format!("120000,{target},a/link.md")]);
    world.git("made/words", &["update-index", "--chmod=+x", "a.md"]);
    world.git("made/words", &["commit", "--quiet", "--message=links"]);
    let commit = world.git("made/words", &["rev-parse", "HEAD"]);
    let source = source("md", &commit, [&["a", "c/", "LIC"], &[".md", ".txt"], &["/LICENSE"]]);
    let repository = world.fetch("fetched", &source).unwrap();
    let files = repository.files(&source).unwrap();
    let paths: Vec<&str> = files.iter().map(|file| std::str::from_utf8(&file.path).unwrap()).collect();
    assert_eq!(paths, ["a-b.md", "a.md", "a/b.md", "a/eol.md", "a/xLICENSE.md", "a/\u{f6} z.md", "c/c.md", "c/c.txt"]);
    // Neither history nor files that are not taken came with them: a commit, its trees (/, a/, c/) and the eight files.
    let objects = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"])
        .env("GIT_DIR", world.path("fetched"))
        .output()
        .unwrap();
    let types = String::from_utf8(objects.stdout).unwrap();
    let count = |kind: &str| types.lines().filter(|line| *line == kind).count();
    assert_eq!((count("commit"), count("tree"), count("blob")), (1, 3, 8));
}

/// A server without partial fetches sends the whole commit, which is as good.
#[test]
fn a_server_without_filters_is_as_good() {
    let world = World::new();
    world.put("made/words", "a.md", b"a");
    world.put("made/words", "b.png", b"b");
    let commit = world.commit("made/words");
    world.git("made/words", &["config", "uploadpack.allowFilter", "false"]);
    let source = source("md", &commit, [&[""], &[".md"], &[]]);
    let repository = world.fetch("fetched", &source).unwrap();
    assert_eq!(repository.files(&source).unwrap().len(), 1);
    repository.is_whole(&source).unwrap();
}

#[test]
fn what_is_gone_is_said_to_be_gone() {
    let world = World::new();
    world.put("made/words", "a.md", prose("a", 500).as_bytes());
    let commit = world.commit("made/words");
    let error = world.fetch("no commit", &source("md", &"0".repeat(40), EVERYTHING)).unwrap_err();
    assert!(error.cause == Cause::Gone && error.to_string().starts_with("fetching the commit: "), "{error:?}");
    std::fs::rename(world.path("mirror/made/words"), world.path("mirror/made/moved")).unwrap();
    let error = world.fetch("no repository", &source("md", &commit, EVERYTHING)).unwrap_err();
    assert!(error.cause == Cause::Gone && !error.to_string().contains('\n'), "{error:?}");
}

/// A loose object whose bytes are another's, and one that is missing: neither comes here under its name.
#[test]
fn an_address_that_lies_gives_nothing() {
    for lie in [true, false] {
        let world = World::new();
        world.put("made/words", "a.md", b"what is true");
        let commit = world.commit("made/words");
        let object = |id: &str| world.path("mirror/made/words/.git/objects").join(&id[..2]).join(&id[2..]);
        let told = object(&world.git("made/words", &["rev-parse", "HEAD:a.md"]));
        world.put("made/words", "lie.md", b"what is told");
        let other = world.git("made/words", &["hash-object", "-w", "lie.md"]);
        std::fs::remove_file(&told).unwrap();
        if lie {
            std::fs::copy(object(&other), &told).unwrap();
        }
        let source = source("md", &commit, EVERYTHING);
        world.fetch("fetched", &source).unwrap_err();
        assert!(Repository::at(&world.path("fetched")).is_whole(&source).is_err());
    }
}

#[test]
fn a_repository_that_was_damaged_is_not_whole() {
    let world = World::new();
    world.put("made/words", "a.md", prose("a", 500).as_bytes());
    let commit = world.commit("made/words");
    let source = source("md", &commit, EVERYTHING);
    world.fetch("fetched", &source).unwrap().is_whole(&source).unwrap();
    std::fs::remove_dir_all(world.path("fetched/objects")).unwrap();
    std::fs::create_dir(world.path("fetched/objects")).unwrap();
    assert!(Repository::at(&world.path("fetched")).is_whole(&source).is_err());
    assert!(Repository::at(&world.path("nowhere")).is_whole(&source).is_err());
}

#[test]
fn only_plain_addresses_names_and_commits() {
    assert_eq!(git::address("https://example.org/git/", "a/b").unwrap(), "https://example.org/git/a/b");
    for base in [
        "http://example.org",
        "ssh://example.org",
        "ext::sh -c id",
        "git@example.org:",
        "--upload-pack=id",
        "",
        "file:///a b",
        "https://a\nb",
    ] {
        let error = git::address(base, "a/b").unwrap_err();
        assert!(error.to_string().starts_with("--mirror: ") && !error.to_string().contains('\n'), "{error}");
    }
    let make = |repo: &str, copy: Option<&str>, commit: &str, mode: &str| {
        Source::new(Named { repo, commit, copy, mode, prefixes: &[], suffixes: &[], exclude: &[] }).map(drop)
    };
    let commit = "0123456789abcdef0123456789abcdef01234567";
    make("18F/18f.gsa.gov", Some("a_b/c-d"), commit, "md").unwrap();
    for repo in ["a", "a/", "/b", "a/../b", "../b", "a/..", "-a/b", "a/b/c", "a/b c", "a/b?c", "a/b%2e", "a/\u{e9}"] {
        assert!(make(repo, None, commit, "md").unwrap_err().to_string().contains("is no OWNER/NAME"), "{repo}");
        assert!(make("a/b", Some(repo), commit, "md").is_err(), "{repo}");
    }
    for commit in ["", "HEAD", "--all", &commit[1..], &commit.to_uppercase()] {
        assert!(make("a/b", None, commit, "md").unwrap_err().to_string().contains("40 hexadecimal digits"), "{commit}");
    }
    assert!(make("a/b", None, commit, "html").unwrap_err().to_string().contains("`html` is none of md, rst, pg, cnxml, medquad, law, tei"));
}

#[test]
fn a_rule_that_is_not_this_one_is_refused() {
    let good = extraction();
    let other = Rule::new(&good.rule.replace("4,000,000", "5,000,000"), &good.patterns, &good.entities).unwrap_err();
    assert!(matches!(other, RuleError::OtherSteps { .. }) && other.to_string().contains("--from DIR"), "{other}");
    let with = |change: &dyn Fn(&mut std::collections::BTreeMap<String, String>)| {
        let mut patterns = good.patterns.clone();
        change(&mut patterns);
        Rule::new(&good.rule, &patterns, &good.entities).unwrap_err().to_string()
    };
    assert!(with(&|patterns| drop(patterns.remove("FENCE"))).contains("patterns: FENCE: is missing"));
    assert!(with(&|patterns| drop(patterns.insert("FENSE".into(), "x".into()))).contains("patterns: FENSE: no step uses it"));
    let broken = with(&|patterns| drop(patterns.insert("TAG".into(), "<(".into())));
    assert!(broken.contains("patterns: TAG: ") && !broken.contains('\n'), "{broken}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_with_its_file() {
    let world = World::new();
    world.put("made/words", "a.md", prose("a", 500).as_bytes());
    let source = source("md", &world.commit("made/words"), EVERYTHING);
    let repository = world.fetch("fetched", &source).unwrap();
    let rule = super::made::rule();
    let mut corpus = documents::corpus::Corpus::new(&rule, world.folder.path()).unwrap();
    corpus.add(&source, &repository).unwrap();
    let full = std::path::Path::new("/dev/full");
    let error = corpus.write(full, full, u64::MAX).unwrap_err();
    assert_eq!(error.source.kind(), std::io::ErrorKind::StorageFull, "{error}");
    assert!(error.to_string().starts_with("/dev/full: cannot write: "), "{error}");
}
