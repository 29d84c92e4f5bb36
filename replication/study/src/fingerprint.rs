//! What the trainer is built from, as a hash: whether a run may be reused, and whether results are of the sources at hand.
//!
//! A fingerprint has two parts, `CPU+GPU`: everything but what only GPUs use, and that. Runs on a CPU are identified by the first part
//! alone, so that work on a GPU kernel leaves them as they are; runs on a GPU by both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::files::{self, FileError, sha256};
use contract::device::DeviceKind;

/// Variables with which cargo and rustc build something else from the same files.
const BUILD_VARIABLES: [&str; 3] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"];

/// Sources that no run on a CPU executes.
const GPU_ONLY: [&str; 6] = [
    "kernels/device/",
    "kernels/gfx950/",
    "kernels/src/gpu/",
    "trainer/src/device/gpu/",
    "trainer/src/device_test/",
    "trainer/src/measure/gpu/",
];

/// Fingerprint of the trainer's and the kernels' sources at `root`: of every file, of their manifests, the workspace's manifest (features,
/// profiles), what Cargo.lock says of the crates that the trainer needs, cargo's configuration, and the environment variables that
/// change a build.
pub fn of_sources(root: &Path) -> Result<String, FileError> {
    let (mut cpu, mut gpu) = (String::new(), String::new());
    for folder in ["kernels", "trainer"] {
        let mut names = vec![format!("{folder}/Cargo.toml")];
        names.extend(Some(format!("{folder}/build.rs")).filter(|name| root.join(name).is_file()));
        for inside in ["src", "device"].into_iter().filter(|inside| root.join(folder).join(inside).is_dir()) {
            names.extend(files::list(&root.join(folder).join(inside))?.into_iter().map(|name| format!("{folder}/{inside}/{name}")));
        }
        let gfx950 = root.join(folder).join("gfx950");
        if gfx950.is_dir() {
            // The device's text alone: the interpreter and the stand-in below it are no part of a trainer.
            let inside = files::list(&gfx950)?.into_iter().filter(|name| !name.contains('/'));
            names.extend(inside.map(|name| format!("{folder}/gfx950/{name}")));
        }
        for name in names.iter().filter(|name| !name.starts_with("kernels/device/tests/") && !name.ends_with(".md")) {
            let listing = if GPU_ONLY.iter().any(|start| name.starts_with(start)) { &mut gpu } else { &mut cpu };
            listing.push_str(&format!("{}  {name}\n", files::sha256_file(&root.join(name))?));
        }
    }
    for name in ["Cargo.toml", ".cargo/config.toml"] {
        cpu.push_str(&format!("{}  {name}\n", files::sha256_file(&root.join(name))?));
    }
    let locked = needed(&files::read_text(&root.join("Cargo.lock"))?, "trainer");
    cpu.push_str(&format!("{}  Cargo.lock: trainer\n", sha256(locked.as_bytes())));
    for name in BUILD_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            cpu.push_str(&format!("{}={name}\n", value.to_string_lossy()));
        }
    }
    Ok(format!("{}+{}", sha256(cpu.as_bytes()), sha256(gpu.as_bytes())))
}

/// What of a fingerprint identifies runs on a device.
pub fn on(device: DeviceKind, fingerprint: &str) -> &str {
    match (device, fingerprint.split_once('+')) {
        (DeviceKind::Cpu, Some((cpu, _))) => cpu,
        _ => fingerprint,
    }
}

/// Whether results that recorded a fingerprint are of the sources `now`; a record without a GPU's part needs the CPU's to be the same.
pub fn is_current(recorded: &str, now: &str) -> bool {
    recorded == now || now.split_once('+').is_some_and(|(cpu, _)| cpu == recorded)
}

/// The entries of a Cargo.lock that `package` needs, directly or not, in the lock's order; development dependencies are among them.
fn needed(lock: &str, package: &str) -> String {
    let entries: Vec<&str> = lock.split("[[package]]").skip(1).collect();
    let field = |entry: &str, key: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='));
        line.unwrap_or_default().trim().trim_matches('"').to_owned()
    };
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        by_name.entry(field(entry, "name")).or_default().push(index);
    }
    let mut wanted = vec![package.to_owned()];
    let mut found = BTreeSet::new();
    while let Some(dependency) = wanted.pop() {
        // `name`, or `name version` where several versions are locked.
        let mut words = dependency.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next());
        for &index in by_name.get(name).into_iter().flatten() {
            if version.is_some_and(|version| field(entries[index], "version") != version) || !found.insert(index) {
                continue;
            }
            let lines = entries[index].lines().skip_while(|line| !line.starts_with("dependencies")).skip(1);
            wanted.extend(lines.take_while(|line| line.starts_with(' ')).map(|line| line.trim().trim_matches([',', '"']).to_owned()));
        }
    }
    found.into_iter().map(|index| entries[index]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"a1\"\ndependencies = [\n \"b 2.0.0\",\n]\n\n\
        [[package]]\nname = \"b\"\nversion = \"1.0.0\"\nchecksum = \"b1\"\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\nchecksum = \"b2\"\n\n\
        [[package]]\nname = \"c\"\nversion = \"1.0.0\"\nchecksum = \"c1\"\ndependencies = [\n \"a\",\n]\n";

    #[test]
    fn only_what_a_package_needs_is_in_its_part_of_the_lock() {
        let all = |package| ["a1", "b1", "b2", "c1"].map(|sum| needed(LOCK, package).contains(&format!("checksum = \"{sum}\"")));
        assert_eq!(all("a"), [true, false, true, false]);
        assert_eq!(all("c"), [true, false, true, true]);
        assert_eq!(all("b"), [false, true, true, false]);
        // A newer version of what is needed changes it, of what is not needed does not.
        assert_ne!(needed(LOCK, "a"), needed(&LOCK.replace("b2", "b3"), "a"));
        assert_eq!(needed(LOCK, "a"), needed(&LOCK.replace("b1", "b3"), "a"));
    }

    #[test]
    fn runs_on_a_cpu_do_not_depend_on_sources_for_gpus() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for name in ["kernels/Cargo.toml", "trainer/Cargo.toml", "Cargo.toml", ".cargo/config.toml", "trainer/src/main.rs"] {
            put(name, name);
        }
        let of_gpus = [
            "kernels/src/gpu/mod.rs",
            "kernels/device/norm.cu",
            "kernels/gfx950/gemm.hip",
            "trainer/src/device/gpu/mod.rs",
            "trainer/src/measure/gpu/mod.rs",
        ];
        for name in of_gpus.into_iter().chain(["kernels/src/lib.rs", "trainer/src/measure/kernel_time.rs"]) {
            put(name, name);
        }
        put("Cargo.lock", "[[package]]\nname = \"trainer\"\n");
        let before = of_sources(folder.path()).unwrap();
        for name in of_gpus {
            put(name, "changed");
            let now = of_sources(folder.path()).unwrap();
            assert!(is_current(on(DeviceKind::Cpu, &before), &now) && !is_current(on(DeviceKind::Cuda, &before), &now), "{name}");
            put(name, name);
        }
        for name in ["kernels/src/lib.rs", "trainer/src/measure/kernel_time.rs"] {
            put(name, "changed");
            assert!(!is_current(on(DeviceKind::Cpu, &before), &of_sources(folder.path()).unwrap()), "{name}");
            put(name, name);
        }
    }
}
