//! The MI355X kernels in a campaign's report: built with what, hashes, registers, and what executing them on a model of the ISA gave.

use std::collections::BTreeMap;

use serde::Serialize;

use super::grid::{Cell, Grid, numbers, words};
use crate::code_objects::{Build, Built, CodeObjects, Execution, Object, WORDING};
use crate::number;

/// Digits of a SHA-256 that tell code objects apart.
const DIGITS: usize = 16;

#[derive(Debug, Clone, Serialize)]
pub(super) struct Section {
    /// What holds, one sentence each.
    pub lines: Vec<String>,
    pub objects: Option<Grid>,
    pub checks: Option<Grid>,
}

impl Section {
    pub(super) fn grids(&self) -> impl Iterator<Item = &Grid> {
        [&self.objects, &self.checks].into_iter().flatten()
    }
}

pub(super) fn section(document: &CodeObjects) -> Section {
    let CodeObjects { build, not_built, execution, not_executed } = document;
    let mut lines = Vec::new();
    lines.extend(build.iter().flat_map(built));
    lines.extend(not_built.iter().map(|why| format!("Not built here: {why}.")));
    lines.extend(execution.iter().map(executed));
    lines.extend(not_executed.iter().map(|why| format!("Not executed here: {why}.")));
    lines.push(format!("What is here {WORDING}."));
    Section {
        lines,
        objects: build.as_ref().map(|build| objects(build, execution.as_ref())),
        checks: execution.as_ref().filter(|execution| !execution.checks.is_empty()).map(checks),
    }
}

fn built(build: &Build) -> Vec<String> {
    let Build { arch, compiler, objects, problems, .. } = build;
    let equal = objects.iter().filter(|object| object.is_as_pinned() == Some(true)).count();
    let pinned = objects.iter().filter(|object| object.pinned_sha256.is_some()).count();
    let hashes = match pinned {
        0 => format!("no hashes are pinned for this compiler (kernels/{arch}/pinned.yaml)"),
        _ => format!("{equal} of {} have the hash that kernels/{arch}/pinned.yaml pins for it", objects.len()),
    };
    let first = format!(
        "Built by {compiler} as {} code object{}, each twice in two folders; {hashes}.",
        objects.len(),
        number::plural(objects.len())
    );
    let broken = problems.iter().map(|problem| format!("A rule is broken: {problem}."));
    [first].into_iter().chain(broken).collect()
}

fn executed(execution: &Execution) -> String {
    let Execution { device, checks, cut_short, .. } = execution;
    let passed = checks.iter().filter(|check| check.passed).count();
    let ended = cut_short.as_ref().map(|why| format!("; the trainer ended before its last check: {why}")).unwrap_or_default();
    format!("Executed by the {} and compared with the CPU’s numbers: {passed} of {} checks pass{ended}.", device.name, checks.len())
}

fn objects(build: &Build, execution: Option<&Execution>) -> Grid {
    let columns = vec![
        words("Code object", 0.25),
        numbers("Kernels", 0.07),
        numbers("VGPRs", 0.07),
        numbers("LDS", 0.08),
        numbers("Spills", 0.07),
        numbers("Instructions", 0.11),
        words("SHA-256", 0.17),
        words("As pinned", 0.09),
        words("Executed", 0.09),
    ];
    let caption = format!(
        "The code objects for {}: the most vector registers and bytes of LDS that a kernel of each takes, instructions of all. Executed: the trainer compiled and loaded the same bytes; it compiles other variants of the rest for itself",
        build.arch
    );
    let mut grid = Grid::new("code-objects", &caption, columns);
    for object in &build.objects {
        let Object { object: name, object_sha256, kernels, .. } = object;
        let most = |of: fn(&Built) -> u64| kernels.values().map(of).max().unwrap_or(0).to_string();
        let all = |of: fn(&Built) -> u64| kernels.values().map(of).sum::<u64>().to_string();
        let pinned = object.is_as_pinned().map_or("–", |equal| if equal { "yes" } else { "no" });
        let loaded = execution.is_some_and(|execution| execution.loaded_sha256.contains(object_sha256));
        grid.row(
            name,
            vec![
                Cell::from(name.as_str()),
                Cell::new(kernels.len().to_string()),
                Cell::new(most(|built| built.vgprs)),
                Cell::new(most(|built| built.lds)),
                Cell::new(all(|built| built.spills)),
                Cell::new(all(|built| built.instructions)),
                Cell::new(object_sha256.chars().take(DIGITS).collect::<String>()),
                Cell::from(pinned),
                Cell::from(if loaded { "yes" } else { "–" }),
            ],
        );
    }
    grid.stacking()
}

/// Checks by what they compare: how many, and how near the worst came to its bound.
fn checks(execution: &Execution) -> Grid {
    let mut groups: BTreeMap<(&str, &str), (usize, usize, u64, bool)> = BTreeMap::new();
    for check in &execution.checks {
        let kernel = check.name.split([' ', ',']).next().unwrap_or_default();
        let entry = groups.entry((&check.group, kernel)).or_insert((0, 0, 0, true));
        entry.0 += 1;
        entry.1 += usize::from(check.passed);
        entry.2 += check.elements;
        entry.3 &= check.bound == 0.0;
    }
    let columns =
        vec![words("What", 0.3), numbers("Checks", 0.12), numbers("Passed", 0.12), numbers("Elements", 0.16), words("Held to", 0.3)];
    let caption = "Kernels executed on a model of the ISA against the CPU";
    let mut grid = Grid::new("code-object-checks", caption, columns);
    for ((group, kernel), (count, passed, elements, exact)) in groups {
        let bound = if exact { "the same bits" } else { "a derived bound" };
        grid.row(
            &format!("{group}-{kernel}"),
            vec![
                Cell::new(format!("{group}: {kernel}")),
                Cell::new(count.to_string()),
                Cell::new(passed.to_string()),
                Cell::new(elements.to_string()),
                Cell::from(bound),
            ],
        );
    }
    grid.stacking()
}
