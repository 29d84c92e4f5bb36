//! Renders figures, tables and report again and compares. A report of another version may differ, which is said and not held against it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::recompute::{self, Computed};
use super::{Verification, records};
use crate::provenance::{self, PROJECT, RENDERER, Renderer, STATEMENT};
use crate::render::{self, FOLDERS, RenderOptions};

/// What rendered the report, as provenance.json says; nothing else of the file is believed, all of it is made again.
pub(super) fn check_statement(directory: &Path, verification: &mut Verification) -> Option<Renderer> {
    let text = records::text(directory, STATEMENT, verification)?;
    let written: Value = serde_json::from_str(&text).map_err(|error| verification.find(STATEMENT, format!("is not JSON: {error}"))).ok()?;
    let renderer = written.pointer(RENDERER).cloned().and_then(|renderer| serde_json::from_value::<Renderer>(renderer).ok());
    let (Some(renderer), Some(project)) = (renderer, written.pointer(PROJECT).and_then(Value::as_str)) else {
        verification.find(STATEMENT, format!("does not say what rendered the report ({RENDERER}, {PROJECT})"));
        return None;
    };
    let computed = match provenance::statement(directory, &renderer, project) {
        Ok(computed) => computed,
        Err(error) => {
            verification.find(STATEMENT, format!("cannot be made again: {error}"));
            return None;
        }
    };
    verification.recomputed(STATEMENT);
    if let Some((pointer, said, found)) = difference("", &written, &computed) {
        verification.find(STATEMENT, format!("`{pointer}` is {said}, but the directory gives {found}"));
    }
    Some(renderer)
}

/// The first place where two values differ, and what each has there.
fn difference(pointer: &str, left: &Value, right: &Value) -> Option<(String, String, String)> {
    let name = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
    match (left, right) {
        _ if left == right => None,
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().zip(b.values()).find_map(|((key, a), b)| difference(&format!("{pointer}/{key}"), a, b))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a.iter().zip(b).enumerate().find_map(|(index, (a, b))| {
            let place = name(a).filter(|_| name(a) == name(b)).unwrap_or_else(|| index.to_string());
            difference(&format!("{pointer}/{place}"), a, b)
        }),
        _ => Some((pointer.to_owned(), short(left), short(right))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(100).collect()
}

pub(super) fn check(
    directory: &Path,
    computed: &Computed,
    renderer: &Renderer,
    templates: Option<&Path>,
    present: &BTreeSet<String>,
    verification: &mut Verification,
) {
    let Some(templates) = templates.filter(|templates| templates.is_dir()) else {
        let what = "report, figures and tables were not rendered again: there are no templates here (paper/ of the repository)";
        return verification.notes.push(what.to_owned());
    };
    let Computed { measurements, verdicts, again } = computed;
    let pages =
        match render::pages(directory, measurements, (verdicts, again.as_ref()), templates, &RenderOptions { stale: renderer.stale }) {
            Ok(pages) => pages,
            Err(error) => return verification.find("report.html", format!("cannot be rendered again: {error}")),
        };
    let here = render::version(templates);
    let same_version = renderer.version.as_ref() == Some(&here);
    let mut others = Vec::new();
    for (file, text) in &pages {
        // What another version wrote under other names is not missing.
        if !same_version && std::fs::read_to_string(directory.join(file)).is_ok_and(|written| written != *text) || !present.contains(file) {
            others.push(file.as_str());
        } else {
            recompute::compare(directory, file, text, false, verification);
        }
    }
    let names: BTreeSet<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    let rendered = |name: &&String| FOLDERS.iter().any(|folder| name.starts_with(folder));
    let unknown: Vec<&str> = present.iter().filter(rendered).map(String::as_str).filter(|name| !names.contains(name)).collect();
    if same_version {
        others.iter().for_each(|file| verification.find(*file, "is missing; this version renders it"));
        unknown.iter().for_each(|file| verification.find(*file, "is nothing that this version renders"));
    } else if !others.is_empty() || !unknown.is_empty() {
        let by = renderer.version.as_ref().map_or("an earlier version".to_owned(), |version| format!("version {version}"));
        verification.notes.push(format!(
            "rendered by {by} (commit {}), this is version {here}: {} of {} files of the report are not the same and were not compared; `report` renders all again",
            renderer.commit,
            others.len() + unknown.len(),
            pages.len() + unknown.len(),
        ));
    }
}
