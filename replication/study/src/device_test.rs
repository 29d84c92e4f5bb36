//! A directory of `device-test`: the trainer's checks, one a row, and the table that is made of them.

use std::collections::BTreeMap;
use std::path::Path;

use contract::measurements::{Check, TestedDevice};
use contract::schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::files;

/// The record of such a directory.
pub const SUMMARY: &str = "summary.json";
/// Every check.
pub const CHECKS: &str = "checks.csv";
/// Schema of [`SUMMARY`].
pub const SCHEMA: &str = "mxfp4-device-test-summary/1";

/// Checks that belong together in the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// `operand`, `kernel`, `step` or `determinism`; `ranks` where several were compared with one.
    pub group: String,
    /// Kernel, operand or recipe.
    pub name: String,
    pub checks: usize,
    pub failed: usize,
    /// The largest difference over its bound; null where the bound is zero: there, every bit is compared.
    pub worst: Option<f64>,
    /// Elements that differ where every bit is compared.
    pub differ: f64,
}

/// summary.json. Without `deny_unknown_fields`: it cannot stand beside a flattened part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: String,
    pub date: String,
    #[serde(flatten)]
    pub device: TestedDevice,
    /// That were compared with one; absent where a GPU was compared with the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<usize>,
    pub commit: String,
    pub dirty: bool,
    pub trainer_code: String,
    pub toolchain: String,
    pub processor: String,
    pub checks: usize,
    pub failed: usize,
    /// Why the trainer ended before its last line; null: it did not.
    pub cut_short: Option<String>,
    /// Of [`Row`]s, in which JSON has null for a difference that is no number.
    pub rows: Vec<Value>,
}

/// The record of such a directory, or what is wrong with it.
fn summary(directory: &Path) -> Result<Summary, String> {
    let text = files::read_text(&directory.join(SUMMARY)).map_err(|error| error.to_string())?;
    let summary: Summary = serde_json::from_str(&text).map_err(|error| format!("does not follow {SCHEMA}: {error}"))?;
    schema::require(&summary.schema, SCHEMA).map_err(|error| error.to_string())?;
    Ok(summary)
}

/// What was compared in such a directory.
pub fn what(directory: &Path) -> &'static str {
    if summary(directory).is_ok_and(|summary| summary.ranks.is_some()) { "several ranks against one" } else { "a GPU against the CPU" }
}

/// Checks that did not pass.
pub fn failed(checks: &[Check]) -> usize {
    checks.iter().filter(|check| !check.passed).count()
}

/// The table as [`Summary`] has it.
pub fn table(checks: &[Check]) -> Vec<Value> {
    rows(checks).iter().map(|row| serde_json::to_value(row).unwrap_or_default()).collect()
}

/// The table: groups in their order, names in theirs.
pub fn rows(checks: &[Check]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for check in checks {
        let place = *places.entry((&check.group, &check.name)).or_insert(rows.len());
        if place == rows.len() {
            let (group, name) = (check.group.to_string(), check.name.clone());
            rows.push(Row { group, name, checks: 0, failed: 0, worst: None, differ: 0.0 });
        }
        let row = &mut rows[place];
        row.checks += 1;
        row.failed += usize::from(!check.passed);
        let difference = check.difference.unwrap_or(f64::INFINITY);
        if check.bound == 0.0 {
            row.differ += difference;
        } else {
            row.worst = Some(row.worst.unwrap_or(0.0).max(difference / check.bound));
        }
    }
    let order = |row: &Row| ["operand", "kernel", "step", "determinism", "ranks"].iter().position(|group| *group == row.group);
    rows.sort_by_key(order);
    rows
}

/// The text of [`CHECKS`].
pub fn csv(checks: &[Check]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for check in checks {
        // Into memory, with as many fields each time: cannot fail.
        let _ = writer.serialize(check);
    }
    writer.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// What is wrong with a directory, as (file, fault); empty when nothing is.
pub fn check(directory: &Path) -> Vec<(String, String)> {
    let read = || -> Result<Vec<(String, String)>, (&'static str, String)> {
        let summary = summary(directory).map_err(|what| (SUMMARY, what))?;
        let text = files::read_text(&directory.join(CHECKS)).map_err(|error| (CHECKS, error.to_string()))?;
        let checks: Vec<Check> = csv::Reader::from_reader(text.as_bytes())
            .into_deserialize()
            .collect::<Result<_, _>>()
            .map_err(|error| (CHECKS, format!("is not a table of checks: {error}")))?;
        let mut faults = Vec::new();
        let mut find = |file: &str, what: String| faults.push((file.to_owned(), what));
        if let Some(check) = checks.iter().find(|check| check.passed && check.difference.is_none_or(|difference| difference > check.bound))
        {
            find(
                CHECKS,
                format!("{} {}, {}: says that it passed, its difference is above its bound", check.group, check.name, check.detail),
            );
        }
        if (summary.checks, summary.failed) != (checks.len(), failed(&checks)) {
            let (counted, wrong) = (checks.len(), failed(&checks));
            find(SUMMARY, format!("counts {} checks, {} failed; {CHECKS} has {counted}, {wrong} failed", summary.checks, summary.failed));
        }
        if summary.rows != table(&checks) {
            find(SUMMARY, format!("its table is not that of {CHECKS}"));
        }
        Ok(faults)
    };
    read().unwrap_or_else(|(file, what)| vec![(file.to_owned(), what)])
}
