//! Signing a directory and asking who signed it, with keys made here and no network.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::{Path, PathBuf};

use campaign::environment;
use campaign::run::RunOptions;
use campaign::signature::{SignatureError, check, sign};
use study::audit::{self, Audit};
use study::files;
use study::provenance::{self, SIGNATURE};
use study::verify::{Signature, Verification};
use tempfile::TempDir;

/// A directory of results, two keys, and nobody's agent.
struct World(TempDir);

impl World {
    /// None where there is no ssh-keygen, which is said: CI installs it.
    fn new() -> Option<Self> {
        let world = Self(tempfile::tempdir().unwrap());
        for key in ["ours", "theirs"] {
            let made = duct::cmd!("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", world.key(key)).run();
            if let Err(error) = made {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                eprintln!("skipped: ssh-keygen is not here ({error})");
                return None;
            }
        }
        files::write(&world.results().join("checks.csv"), b"a,b\n").unwrap();
        provenance::write_list(&world.results()).unwrap();
        Some(world)
    }

    fn key(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn results(&self) -> PathBuf {
        self.0.path().join("results")
    }

    fn public(&self, name: &str) -> String {
        self.key(&format!("{name}.pub")).to_str().unwrap().to_owned()
    }

    /// Who signed, and what was found.
    fn look(&self, signer: Option<&str>) -> (Signature, usize) {
        let mut verification = Verification::default();
        check(&self.results(), signer, &mut verification).unwrap();
        (verification.signature.clone(), verification.findings.len())
    }
}

fn fingerprint(signature: &Signature) -> &str {
    match signature {
        Signature::Signer(key) | Signature::Stranger(key) => key,
        other => panic!("{other}"),
    }
}

#[test]
fn a_signature_says_whose_it_is_and_of_what() {
    let Some(world) = World::new() else { return };
    let (ours, theirs) = (world.public("ours"), world.public("theirs"));
    assert_eq!(world.look(None), (Signature::None, 0));
    assert_eq!(world.look(Some(&ours)), (Signature::None, 1), "an unsigned directory is not what was asked for");

    let signed = sign(&world.results(), &world.key("ours")).unwrap();
    assert!(fingerprint(&signed).starts_with("ED25519 key SHA256:"), "{signed}");
    let (signature, findings) = world.look(None);
    assert_eq!((matches!(signature, Signature::Stranger(_)), findings), (true, 0));
    let (signature, findings) = world.look(Some(&ours));
    assert_eq!((matches!(signature, Signature::Signer(_)), findings), (true, 0));
    assert_eq!(fingerprint(&signature), fingerprint(&signed));
    // The key itself, and a file with several keys, as forges publish them.
    let key = files::read_text(Path::new(&ours)).unwrap();
    assert_eq!(world.look(Some(key.trim())), (signature.clone(), 0));
    let both = world.key("both");
    files::write(&both, (files::read_text(Path::new(&theirs)).unwrap() + "\n# ours\n" + &key).as_bytes()).unwrap();
    assert_eq!(world.look(both.to_str()), (signature, 0));

    assert_eq!(world.look(Some(&theirs)), (Signature::Wrong, 1), "somebody else's");
}

#[test]
fn what_changed_after_it_was_signed_is_not_signed() {
    let Some(world) = World::new() else { return };
    let (results, ours) = (world.results(), world.public("ours"));
    sign(&results, &world.key("ours")).unwrap();
    let signature = std::fs::read(results.join(SIGNATURE)).unwrap();
    // Hashes made again, the signature kept.
    files::write(&results.join("checks.csv"), b"a,c\n").unwrap();
    assert!(matches!(sign(&results, &world.key("ours")), Err(SignatureError::NotWhole { .. })), "hashes that do not hold are not signed");
    provenance::write_list(&results).unwrap();
    assert!(!results.join(SIGNATURE).exists(), "writing hashes again removes a signature of what they were");
    files::write(&results.join(SIGNATURE), &signature).unwrap();
    for signer in [None, Some(ours.as_str())] {
        assert_eq!(world.look(signer), (Signature::Wrong, 1));
    }
    for broken in [&b""[..], b"no signature", &signature[..signature.len() / 2]] {
        files::write(&results.join(SIGNATURE), broken).unwrap();
        assert_eq!(world.look(None), (Signature::Wrong, 1));
    }
    // A signature for another purpose is none.
    let other = duct::cmd!("ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", world.key("ours"))
        .stdin_path(results.join("SHA256SUMS"))
        .stdout_capture()
        .stderr_null()
        .run()
        .unwrap();
    files::write(&results.join(SIGNATURE), &other.stdout).unwrap();
    assert_eq!((world.look(None), world.look(Some(&ours))), ((Signature::Wrong, 1), (Signature::Wrong, 1)));
}

/// An audit's statement beside the directory.
#[test]
fn a_statement_of_an_audit_is_signed_beside_it() {
    let Some(world) = World::new() else { return };
    let (results, ours, theirs) = (world.results(), world.public("ours"), world.public("theirs"));
    files::write(&results.join(provenance::DETERMINISTIC), b"").unwrap();
    provenance::write_list(&results).unwrap();
    let options = RunOptions { parallel: 1, threads: 1, instruction_set: "auto".to_owned(), fresh: false };
    let environment = environment::capture(world.0.path(), &options);
    let (directory, machine, trainer_code) = ("results".to_owned(), "somewhere".to_owned(), "c0de".to_owned());
    let statement = Audit { directory, draw_seed: 1, of: 0, runs: vec![], machine, trainer_code, environment }.statement(&results).unwrap();
    let path = statement.path(&results);
    files::write(&path, statement.json().as_bytes()).unwrap();
    let notes = |signer: Option<&str>| {
        let mut verification = Verification::default();
        check(&results, signer, &mut verification).unwrap();
        (audit::beside(&results).join("; "), verification.notes.join("; "))
    };
    assert!(notes(None).0.ends_with("not signed)") && notes(None).1.is_empty() && notes(Some(&ours)).1.contains("has not signed it"));

    let signed = sign(&path, &world.key("ours")).unwrap();
    let (line, note) = notes(None);
    assert!(line.starts_with("audited: 0 of 0") && !line.contains("not signed"), "{line}");
    assert!(note.contains(fingerprint(&signed)) && note.contains("a key that --signer did not name"), "{note}");
    assert!(notes(Some(&ours)).1.ends_with(&format!("signed by {}", fingerprint(&signed))), "{:?}", notes(Some(&ours)));
    assert!(notes(Some(&theirs)).1.contains("its signature is none of it by"), "{:?}", notes(Some(&theirs)));
    // Not of the directory, and not of another text.
    assert_eq!(world.look(None).0, Signature::None);
    files::write(&path, statement.json().replace("somewhere", "elsewhere").as_bytes()).unwrap();
    for signer in [None, Some(ours.as_str())] {
        assert!(notes(signer).1.contains("its signature is none of it"), "{:?}", notes(signer));
    }
    // What is no statement is not signed, wherever it lies.
    for other in ["{}", "no statement"] {
        files::write(&path, other.as_bytes()).unwrap();
        assert!(matches!(sign(&path, &world.key("ours")), Err(SignatureError::NotAudit { .. })), "{other}");
    }
}

#[test]
fn words_that_are_no_key_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for words in ["nobody", "", "cert-authority ssh-ed25519 AAAA", "* namespaces=\"x\" ssh-ed25519 AAAA"] {
        let checked = check(folder.path(), Some(words), &mut Verification::default());
        assert!(matches!(checked, Err(SignatureError::Key(_))), "{words}");
    }
    assert!(matches!(sign(folder.path(), Path::new("key")), Err(SignatureError::NotWhole { .. })));
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_a_signature_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.path().join(SIGNATURE)).unwrap();
    let mut verification = Verification::default();
    check(folder.path(), None, &mut verification).unwrap();
    assert_eq!((verification.signature, verification.findings.len()), (Signature::Wrong, 1));
}
