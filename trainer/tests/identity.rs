//! What this tree computes is what manifests/identity.yaml says, on every instruction set and number of threads, and the program that the
//! hashes are of has lost no part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use contract::device::DeviceKind;
use contract::identity::Identity;
use kernels::cpu::{Cpu, InstructionSet};
use trainer::identity;

/// Of this tree: on the CPU with its best instructions and one thread, and for each kind of GPU. Both tests start from it.
static COMPUTED: LazyLock<Identity> = LazyLock::new(|| identity::compute().unwrap());

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_manifest_says_what_this_tree_computes() {
    let computed = &*COMPUTED;
    let manifest: serde_yaml::Value = serde_yaml::from_str(&read("../manifests/identity.yaml")).unwrap();
    for kind in DeviceKind::ALL {
        assert_eq!(
            manifest["current"][kind.word()].as_str().unwrap(),
            computed.on(kind).identity,
            "{}: the trainer computes something else than before. If results were meant to change, run `cargo xtask identity --write`; \
             if not, `cargo xtask identity` names the parts that changed.",
            kind.word()
        );
    }

    // A class of shapes or a family of kernels that vanished would change nothing that it was to show.
    let name = |kind: DeviceKind, part: &String| format!("{}: {part}\n", kind.word());
    let names: String =
        DeviceKind::ALL.into_iter().flat_map(|kind| computed.on(kind).parts.keys().map(move |part| name(kind, part))).collect();
    let expected = read("tests/identity_parts.txt");
    let [found, listed] = [&names, &expected].map(|text| text.lines().collect::<BTreeSet<_>>());
    let (new, gone): (Vec<_>, Vec<_>) = (found.difference(&listed).collect(), listed.difference(&found).collect());
    assert!(names == expected, "parts of an identity: trainer/tests/identity_parts.txt lacks {new:?}, has {gone:?} or another order");
}

#[test]
fn threads_instructions_and_another_time_change_no_hash() {
    let on = |set, threads| identity::on_cpu(&Cpu::new(set, threads).unwrap()).unwrap();
    let best = COMPUTED.on(DeviceKind::Cpu);
    for set in InstructionSet::ALL.into_iter().filter(|set| set.is_supported()) {
        // The best set a second time, with two threads.
        let again = on(set, if set == InstructionSet::detect() { 2 } else { 1 });
        for (part, hash) in &best.parts {
            assert_eq!(again.parts.get(part), Some(hash), "{set}: {part}");
        }
        assert_eq!(&again, best, "{set}");
    }
}
