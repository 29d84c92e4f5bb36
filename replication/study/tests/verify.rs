//! `verify` on sound and damaged result directories: whatever is wrong is named, and nothing makes it panic or look elsewhere.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

use std::fs;
use std::path::Path;

use crate::sealed;
use study::files;
use study::packed;
use study::provenance::{self, DETERMINISTIC, STATEMENT, SUMS};
use study::verify::{Verification, VerifyError, verify};

fn sound() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    sealed::write(directory.path());
    directory
}

fn named(verification: &Verification, path: &str) -> bool {
    verification.findings.iter().any(|finding| finding.path == path)
}

/// Changes a file for the duration of one check.
fn with_change(directory: &Path, file: &str, change: impl FnOnce(&Path), check: impl FnOnce(Verification)) {
    let path = directory.join(file);
    let before = fs::read(&path).ok();
    change(&path);
    check(verify(directory, None, None).unwrap());
    match before {
        Some(bytes) => fs::write(&path, bytes).unwrap(),
        None => fs::remove_file(&path).unwrap(),
    }
}

/// A file of every kind: each is found below when it is damaged.
const KINDS: [&str; 22] = [
    "campaign.json",
    "env.json",
    STATEMENT,
    "verdicts.json",
    DETERMINISTIC,
    "report.html",
    "report.tex",
    "macros.tex",
    "manifests/profile.yaml",
    "manifests/papers/2605.09825.yaml",
    "manifests/recipes/fp8.yaml",
    "manifests/hardware.yaml",
    "runs/fp8/1/run.yaml",
    "runs/fp8/1/metrics.jsonl",
    "runs/fp8/2/timing.jsonl",
    "runs/bf16/1/run.mllog",
    "runs/bf16/2/done.json",
    "runs/mxfp4-fdw/1/ingredients.json",
    "measurements/step_time.jsonl",
    "measurements/kernel_time.jsonl",
    "data/validation.csv",
    "data/claims.csv",
];

#[test]
fn a_sound_directory_verifies_wherever_it_is() {
    let directory = sound();
    let verification = verify(directory.path(), Some(&study::identity::Known::only(sealed::CODE)), None).unwrap();
    assert!(verification.holds(), "{verification}");
    let [partial, unrendered] = verification.notes.as_slice() else { panic!("{verification}") };
    assert!(partial.starts_with("partial: 40 of 48 runs of the profile are not in it: bf16/3, "), "{partial}");
    assert!(unrendered.contains("were not rendered again: there are no templates here"), "{unrendered}");
    let files = files::list(directory.path()).unwrap().len();
    assert_eq!((verification.counts.files, verification.counts.runs, verification.recomputed.len()), (files - 1, 8, 10));

    let elsewhere = tempfile::tempdir().unwrap();
    for name in files::list(directory.path()).unwrap() {
        files::copy(&directory.path().join(&name), &elsewhere.path().join("moved").join(&name)).unwrap();
    }
    assert!(verify(&elsewhere.path().join("moved"), None, None).unwrap().holds());
}

#[test]
fn sha256sum_reads_both_lists() {
    let directory = sound();
    for list in [SUMS, DETERMINISTIC] {
        let Ok(output) = duct::cmd!("sha256sum", "--strict", "--quiet", "-c", list)
            .dir(directory.path())
            .stdout_capture()
            .stderr_capture()
            .unchecked()
            .run()
        else {
            eprintln!("sha256sum is not installed: skipped");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let lines: Vec<String> =
        fs::read_to_string(directory.path().join(DETERMINISTIC)).unwrap().lines().map(|line| line[66..].to_owned()).collect();
    assert_eq!(lines.len(), 8 * 3 + 4);
    assert!(
        lines.is_sorted() && lines.contains(&"runs/fp8/1/metrics.jsonl".to_owned()) && !lines.iter().any(|line| line.contains("timing"))
    );
}

/// Logs that are packed change nothing that is computed from them: hashes of deterministic files, tables and verdicts are the same, and what
/// is wrong with a packed log is found.
#[test]
fn packed_logs_verify_compare_and_export_as_they_did() {
    let (plain, large) = (sound(), sound());
    let list = |directory: &tempfile::TempDir| fs::read_to_string(directory.path().join(DETERMINISTIC)).unwrap();
    let before = list(&large);
    assert!(packed::pack(large.path(), 0).unwrap());
    provenance::write_sums(large.path()).unwrap();
    assert_eq!(list(&large), before, "hashes are of the unpacked bytes");
    let path = |file: &str| large.path().join(file);
    for file in ["runs/fp8/1/metrics.jsonl", "measurements/step_time.jsonl", "measurements/kernels.json"] {
        assert!(!path(file).exists() && path(&format!("{file}.xz")).is_file());
    }
    let verification = verify(large.path(), None, None).unwrap();
    assert!(verification.holds() && verification.recomputed.len() == 10 && verification.counts.runs == 8, "{verification}");
    assert!(study::compare::compare(plain.path(), large.path()).unwrap().equal());
    let out = tempfile::tempdir().unwrap();
    let exported = [&plain, &large].map(|directory| {
        let to = out.path().join(directory.path().file_name().unwrap());
        study::mllog::export(directory.path(), &to)
            .map(|export| export.logs.iter().map(|log| fs::read_to_string(to.join(log)).unwrap()).collect::<Vec<_>>())
    });
    match exported {
        [Ok(one), Ok(other)] => assert!(!one.is_empty() && one == other),
        // The synthetic logs may lack what a scored run has: then both are refused for the same reason.
        [one, other] => assert_eq!(
            one.unwrap_err().to_string().split(':').next_back().map(str::to_owned),
            other.unwrap_err().to_string().split(':').next_back().map(str::to_owned)
        ),
    }
    for file in ["runs/fp8/1/metrics.jsonl", "measurements/step_time.jsonl"] {
        with_change(
            large.path(),
            file,
            |path| fs::write(path, "{}").unwrap(),
            |verification| {
                assert!(verification.to_string().contains(&format!("{file}: is there packed, too")), "{verification}");
            },
        );
    }
    with_change(
        large.path(),
        "runs/fp8/1/metrics.jsonl.xz",
        |path| fs::write(path, "no archive").unwrap(),
        |verification| {
            assert!(
                named(&verification, "runs/fp8/1/metrics.jsonl.xz") && verification.to_string().contains("cannot unpack"),
                "{verification}"
            );
        },
    );
}

#[test]
fn other_sources_make_results_stale_but_not_wrong() {
    let directory = sound();
    let verification = verify(directory.path(), Some(&study::identity::Known::only("other")), None).unwrap();
    assert!(verification.holds() && verification.notes.iter().any(|note| note.starts_with("stale: ")), "{verification}");
}

#[test]
fn a_flipped_byte_is_named_in_every_kind_of_file() {
    let directory = sound();
    for file in KINDS {
        let flip = |path: &Path| {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
        };
        with_change(directory.path(), file, flip, |verification| assert!(named(&verification, file), "{file}: {verification}"));
    }
    assert!(verify(directory.path(), None, None).unwrap().holds());
}

#[test]
fn truncated_emptied_and_removed_files_are_named() {
    let directory = sound();
    for file in KINDS {
        let cut = |path: &Path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() - 1 - bytes.len() / 3]).unwrap();
        };
        with_change(directory.path(), file, cut, |verification| assert!(named(&verification, file), "{file}: {verification}"));
        with_change(
            directory.path(),
            file,
            |path| fs::write(path, "").unwrap(),
            |verification| assert!(named(&verification, file), "{file}: {verification}"),
        );
        with_change(
            directory.path(),
            file,
            |path| fs::remove_file(path).unwrap(),
            |verification| assert!(named(&verification, file), "{file}: {verification}"),
        );
    }
    for cut in [0, 10, 100] {
        let change = |path: &Path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() - cut.max(1)]).unwrap();
        };
        with_change(directory.path(), SUMS, change, |verification| assert!(named(&verification, SUMS), "{verification}"));
    }
    with_change(directory.path(), SUMS, |path| fs::remove_file(path).unwrap(), |verification| assert!(named(&verification, SUMS)));
}

#[test]
fn added_files_and_strange_entries_are_named() {
    let directory = sound();
    for file in ["extra.txt", "data/extra.csv", ".hidden"] {
        with_change(
            directory.path(),
            file,
            |path| fs::write(path, "x").unwrap(),
            |verification| assert!(named(&verification, file), "{verification}"),
        );
    }
    #[cfg(unix)]
    {
        let file = "runs/fp8/1/link";
        with_change(
            directory.path(),
            file,
            |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
            |verification| assert!(named(&verification, file)),
        );
    }
}

/// Someone who hashes everything again after a change is still found out, by what is computed from runs.
#[test]
fn changes_that_were_hashed_again_are_found_by_computing() {
    let directory = sound();
    let cases = [
        ("verdicts.json", "\"reproduced\"", "\"differs\"", "verdicts.json"),
        ("data/claims.csv", "reproduced", "differs", "data/claims.csv"),
        ("data/validation.csv", "7", "8", "data/validation.csv"),
        ("runs/fp8/1/metrics.jsonl", "\"loss\":7", "\"loss\":6", "runs/fp8/1/metrics.jsonl"),
        ("runs/fp8/1/run.yaml", "beta1: 0.9", "beta1: 0.8", "runs/fp8/1/ingredients.json"),
        ("runs/fp8/1/run.yaml", "seed: 1", "seed: 2", "runs/fp8/1/run.yaml"),
        ("runs/fp8/1/ingredients.json", "rustc 1.95.0", "rustc 1.94.0", "runs/fp8/1/ingredients.json"),
        ("runs/fp8/1/ingredients.json", "{\"run\":", "{ \"run\":", "runs/fp8/1/ingredients.json"),
        ("campaign.json", "\"finished\"", "\"failed\"", "runs/fp8/1/failed.json"),
        ("campaign.json", "\"partial\": true", "\"partial\": true, \"more\": 1", "campaign.json"),
        ("campaign.json", "mxfp4-campaign/1", "mxfp4-campaign/2", "campaign.json"),
        ("env.json", "mxfp4-env/1", "mxfp4-env/9", "env.json"),
        ("env.json", "0123456789abcdef", "1123456789abcdef", "env.json"),
        ("manifests/profile.yaml", "id: cpu", "id: gpu", "manifests/profile.yaml"),
        ("measurements/step_time.jsonl", "\"repeat\":1,", "\"repeat\":1,\"more\":1,", "measurements/step_time.jsonl"),
        (STATEMENT, "in-toto.io/Statement/v1", "in-toto.io/Statement/v2", STATEMENT),
        (DETERMINISTIC, "  runs/fp8/1/run.yaml", "  runs/fp8/9/run.yaml", DETERMINISTIC),
    ];
    for (file, old, new, expected) in cases {
        let change = |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.contains(old), "{file} has no {old}");
            fs::write(path, text.replacen(old, new, 1)).unwrap();
            rehash(directory.path());
        };
        with_change(directory.path(), file, change, |verification| assert!(named(&verification, expected), "{file} {old}: {verification}"));
        rehash(directory.path());
    }
    assert!(verify(directory.path(), None, None).unwrap().holds());
}

/// Writes SHA256SUMS anew and nothing else.
fn rehash(directory: &Path) {
    let names = files::list(directory).unwrap().into_iter().filter(|name| name != SUMS);
    let text: String = names.map(|name| format!("{}  {name}\n", files::sha256_file(&directory.join(&name)).unwrap())).collect();
    fs::write(directory.join(SUMS), text).unwrap();
}

#[test]
fn names_that_lead_out_of_the_directory_are_never_opened() {
    let directory = sound();
    let line = format!("{}  ../../outside\n", "0".repeat(64));
    let change = |path: &Path| fs::write(path, line + &fs::read_to_string(path).unwrap()).unwrap();
    with_change(directory.path(), SUMS, change, |verification| {
        let finding = verification.findings.iter().find(|finding| finding.path == "../../outside").unwrap();
        assert!(finding.what.starts_with("is missing"), "{verification}");
    });
    let change = |path: &Path| fs::write(path, "not a list\n".to_owned() + &fs::read_to_string(path).unwrap()).unwrap();
    with_change(directory.path(), SUMS, change, |verification| assert!(named(&verification, SUMS)));
}

#[test]
fn another_directory_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(verify(empty.path(), None, None), Err(VerifyError::NotResults { .. })));
    assert!(matches!(verify(&empty.path().join("nowhere"), None, None), Err(VerifyError::NotResults { .. })));
}

/// A report rendered again keeps verifying: its statement follows it.
#[test]
fn sealing_again_keeps_the_origin_of_the_runs() {
    let directory = sound();
    let read = || serde_json::from_str::<serde_json::Value>(&fs::read_to_string(directory.path().join(STATEMENT)).unwrap()).unwrap();
    let before = read();
    assert_eq!(before["_type"], "https://in-toto.io/Statement/v1");
    let dependencies = before["predicate"]["buildDefinition"]["resolvedDependencies"].as_array().unwrap();
    let names: Vec<&str> = dependencies.iter().map(|item| item["name"].as_str().unwrap()).collect();
    for name in
        ["source", "Cargo.lock", "tokenizer rust-crates-1024", "tokens rust-crates-1024: train.bin", "manifests/papers/2605.09825.yaml"]
    {
        assert!(names.contains(&name), "{name} not in {names:?}");
    }
    assert_eq!(dependencies[0]["digest"]["gitCommit"], "0123456789abcdef0123456789abcdef01234567");
    fs::write(directory.path().join("report.html"), "rendered again").unwrap();
    provenance::write_statement(&sealed::renderer(), directory.path()).unwrap();
    provenance::write_sums(directory.path()).unwrap();
    assert!(verify(directory.path(), None, None).unwrap().holds());
    let after = read();
    assert_ne!(before["subject"], after["subject"]);
    assert_eq!(
        before["predicate"]["buildDefinition"]["resolvedDependencies"],
        after["predicate"]["buildDefinition"]["resolvedDependencies"]
    );
}

/// Random damage of what is parsed, hashed again so that parsers and judges see it: nothing panics and nothing is left behind.
#[test]
fn alien_content_never_panics() {
    let directory = sound();
    let files = [
        "campaign.json",
        "env.json",
        STATEMENT,
        "manifests/profile.yaml",
        "manifests/papers/2605.09825.yaml",
        "manifests/dataset.yaml",
        "runs/fp8/1/run.yaml",
        "runs/fp8/1/metrics.jsonl",
        "runs/fp8/1/done.json",
        "measurements/step_time.jsonl",
        "measurements/rotation_identity.jsonl",
    ];
    let words: [&[u8]; 10] = [b"", b"0", b"-1", b"1e999", b"null", b"[]", b"\xff\xfe", b"\"", b"99999999999999999999", b"&a [*a]"];
    // Numerical Recipes' generator: the same damage on every machine.
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..66 {
        let file = files[round % files.len()];
        let (word, share, length) = (words[draw(words.len())], draw(1000), draw(12));
        let change = |path: &Path| {
            let mut bytes = fs::read(path).unwrap();
            let start = bytes.len() * share / 1000;
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, word.iter().copied());
            fs::write(path, bytes).unwrap();
            rehash(directory.path());
        };
        with_change(directory.path(), file, change, |verification| assert!(verification.counts.files > 0));
        rehash(directory.path());
    }
    assert!(verify(directory.path(), None, None).unwrap().holds());
}
