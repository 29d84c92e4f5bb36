//! The page of all evidence as files: written, held against what the directories give, and told from one that is not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use campaign::synthesis::{Outcome, Request, synthesis};
use study::exit::ExitCode as _;
use study::files;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|path| path.join("Cargo.lock").is_file()).unwrap().to_owned()
}

fn make(out: &Path, check: bool) -> Outcome {
    synthesis(&repository(), &Request { directories: Vec::new(), out: out.to_owned(), check }).unwrap()
}

#[test]
fn what_was_written_holds_and_what_was_changed_is_named() {
    let out = tempfile::tempdir().unwrap();
    let name = "2026-11-22-xeon-2c-cpu-694f997d";
    let from = repository().join("results").join(name);
    for file in files::list(&from).unwrap() {
        files::copy(&from.join(&file), &out.path().join(name).join(&file)).unwrap();
    }
    // Nothing is there yet.
    let missing = make(out.path(), true);
    assert_eq!(missing.differing, ["index.html", "index.csv", "index.svg", "index.pdf"]);
    assert!(!out.path().join("index.html").exists(), "a check writes nothing");

    let written = make(out.path(), false);
    assert!(written.holds() && written.to_string().contains("written: "));
    let checked = make(out.path(), true);
    let with_latex = out.path().join("index.pdf").exists();
    assert_eq!(checked.differing, if with_latex { vec![] } else { vec!["index.pdf".to_owned()] }, "{checked}");
    let page = std::fs::read_to_string(out.path().join("index.html")).unwrap();
    assert!(page.contains(&format!("href=\"{name}/report.html\"")) && !page.contains(out.path().to_str().unwrap()));
    if with_latex {
        assert!(checked.to_string().contains("are what the directories give"), "{checked}");
        // A PDF of other inputs.
        files::write(&out.path().join("index.pdf"), b"%PDF-1.5").unwrap();
    }
    files::write(&out.path().join("index.html"), page.replace("MXFP4", "FP4").as_bytes()).unwrap();
    let differing = make(out.path(), true);
    assert_eq!(differing.differing, ["index.html", "index.pdf"]);
    assert!(!differing.holds() && differing.to_string().contains("not what the directories give: index.html, index.pdf;"));
}

#[test]
fn a_directory_that_is_not_there_and_none_that_is_a_campaign_are_errors() {
    let out = tempfile::tempdir().unwrap();
    let request = |directories: Vec<PathBuf>| Request { directories, out: out.path().to_owned(), check: false };
    let error = synthesis(&repository(), &request(vec![out.path().join("none")])).unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("none: cannot read"), "{error}");
    let error = synthesis(&repository(), &request(Vec::new())).unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("no campaign could be read"), "{error}");
    assert!(!out.path().join("index.html").exists());
}
