//! What goes into a release, without building one: `.ci/check-release` does that.

use std::fs;

use study::seal::SUMS;

use super::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Read back by another program: tar and xz of the system.
#[test]
fn an_archive_is_the_same_bytes_wherever_and_whenever_it_is_made() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&first, &second] {
        fs::create_dir(folder.path().join("below")).unwrap();
        fs::write(folder.path().join("below/file"), "text\n").unwrap();
        fs::write(folder.path().join("program"), "#!/bin/sh\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(folder.path().join("program"), fs::Permissions::from_mode(0o755)).unwrap();
        }
        seal(folder.path()).unwrap();
    }
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    fs::File::options().append(true).open(second.path().join("below/file")).unwrap().set_modified(later).unwrap();
    let (bytes, files) = archived(first.path(), "release").unwrap();
    assert_eq!(files, 3);
    assert!(bytes == archived(second.path(), "release").unwrap().0);

    let out = tempfile::tempdir().unwrap();
    let output = duct::cmd!("tar", "-xJf", "-").stdin_bytes(bytes).dir(out.path()).run();
    assert!(output.unwrap().status.success());
    let checked = duct::cmd!("sha256sum", "--quiet", "-c", SUMS).dir(out.path().join("release")).run();
    assert!(checked.unwrap().status.success());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(out.path().join("release/program")).unwrap().permissions().mode() & 0o777, 0o755);
    }
}

/// What is linked, and not what only tests or build scripts use; each with a text.
#[test]
fn licences_of_what_is_linked_are_there() {
    let root = repository();
    let licences = licences::collect(&root, &toolchain::host(&root).unwrap()).unwrap();
    let (list, texts) = licences.text.split_once("\n====").unwrap();
    let named = |name: &str| list.lines().any(|line| line.starts_with(&format!("{name} ")));
    for name in ["clap", "serde", "tokenizers", "rayon", "sha2", "criterion"] {
        assert!(named(name) && texts.contains(&format!("{name} ")), "{name}");
    }
    for name in ["insta", "proptest", "xtask", "kernels"] {
        assert!(!named(name), "{name}");
    }
    assert!(texts.contains("Permission is hereby granted, free of charge") && texts.contains("Apache License"));
    assert_eq!(list.lines().filter(|line| line.contains(": ")).count(), licences.crates);
}
