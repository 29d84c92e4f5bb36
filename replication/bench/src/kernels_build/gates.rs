//! What a kernel must not exceed. Each broken rule is a sentence that names kernel, number and limit.

use std::collections::BTreeMap;

use study::code_objects::Built;

use super::manifest::{Budget, Source};

/// LDS of a compute unit of gfx950, in bytes.
const LARGEST_LDS: u64 = 163_840;

/// Every rule that the kernels of one source break.
pub fn check(source: &Source, built: &BTreeMap<String, Built>) -> Vec<String> {
    let mut problems = Vec::new();
    for name in source.kernels.keys().filter(|name| !built.contains_key(*name)) {
        problems.push(format!("{}: kernel {name} is in kernels.yaml but not in the code object", source.label()));
    }
    for (name, kernel) in built {
        match source.kernels.get(name) {
            Some(budget) => problems.extend(against(name, kernel, budget)),
            None => problems.push(format!("{}: kernel {name} has no budget: add it to kernels.yaml", source.label())),
        }
    }
    problems
}

fn against(name: &str, kernel: &Built, budget: &Budget) -> Vec<String> {
    let mut problems = Vec::new();
    let mut limit = |what: &str, found: u64, allowed: u64| {
        if found > allowed {
            problems.push(format!("{name}: {found} {what}, at most {allowed} are allowed"));
        }
    };
    limit("vector registers", kernel.vgprs, budget.vgprs);
    limit("scalar registers", kernel.sgprs, budget.sgprs);
    limit("bytes of LDS", kernel.lds, budget.lds.min(LARGEST_LDS));
    limit("spilled registers", kernel.spills, 0);
    limit("bytes of scratch", kernel.scratch, 0);
    for (instruction, &expected) in &budget.instructions {
        let found = kernel.counted.get(instruction).copied().unwrap_or(0);
        if found != expected {
            problems.push(format!("{name}: {found} times {instruction}, {expected} expected"));
        }
    }
    problems
}
