//! `datapackage.json`: every CSV table below data/, with its columns, their types and hashes.

use std::path::Path;

use serde_json::{Value, json};

use super::{DepositError, Entry, LICENCES, Whole};
use crate::files;

pub(super) const FILE: &str = "datapackage.json";

pub(super) struct Package {
    pub(super) document: Value,
    pub(super) tables: usize,
}

pub(super) fn describe(whole: &Whole, folder: &Path) -> Result<Package, DepositError> {
    let is_table = |entry: &&Entry| entry.name.starts_with("data/") && entry.name.ends_with(".csv");
    let resources = whole.entries.iter().filter(is_table).map(|entry| resource(entry, folder)).collect::<Result<Vec<_>, _>>()?;
    let licences: Vec<_> =
        LICENCES.iter().map(|licence| json!({"name": licence.id, "path": licence.url, "title": licence.title})).collect();
    let tables = resources.len();
    let document = json!({
        "profile": "tabular-data-package",
        "name": whole.name.to_lowercase(),
        "title": whole.title(),
        "licenses": licences,
        "resources": resources,
    });
    Ok(Package { document, tables })
}

fn resource(entry: &Entry, folder: &Path) -> Result<Value, DepositError> {
    let path = folder.join(&entry.path);
    let unreadable = |error: csv::Error| DepositError::Describe { path: path.clone(), what: error.to_string() };
    let text = files::read_text(&path)?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers().map_err(unreadable)?.clone();
    let mut types = vec![Type::Empty; names.len()];
    for row in reader.records() {
        for (column, cell) in row.map_err(unreadable)?.iter().enumerate() {
            types[column] = types[column].and(Type::of(cell));
        }
    }
    let field = |(name, kind): (&str, Type)| {
        let kind = if NAMES.contains(&name) { Type::Text } else { kind };
        match meaning(name) {
            Some(meaning) => json!({"name": name, "type": kind.word(), "description": meaning}),
            None => json!({"name": name, "type": kind.word()}),
        }
    };
    let fields: Vec<_> = names.iter().zip(types).map(field).collect();
    Ok(json!({
        "name": entry.name.trim_start_matches("data/").trim_end_matches(".csv"),
        "path": entry.path,
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": entry.bytes,
        "hash": format!("sha256:{}", entry.sha256),
        "schema": {"fields": fields, "missingValues": [""]},
    }))
}

/// What every cell of a column is, those that are empty apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Empty,
    Integer,
    Number,
    Text,
}

impl Type {
    fn of(cell: &str) -> Self {
        // `inf` and `NaN` are numbers for Rust alone.
        let is_number = cell.parse::<f64>().is_ok_and(f64::is_finite);
        match cell {
            "" => Self::Empty,
            _ if cell.parse::<i64>().is_ok() => Self::Integer,
            _ if is_number => Self::Number,
            _ => Self::Text,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Empty, kind) | (kind, Self::Empty) => kind,
            (Self::Integer, Self::Integer) => Self::Integer,
            (Self::Text, _) | (_, Self::Text) => Self::Text,
            _ => Self::Number,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Empty | Self::Text => "string",
        }
    }
}

/// Columns of names that may look like numbers, such as the arXiv id 2605.09825.
const NAMES: [&str; 2] = ["paper", "source"];

/// What a column holds, wherever it stands.
fn meaning(column: &str) -> Option<&'static str> {
    Some(match column {
        "arm" => "recipe of the run",
        "baseline" => "recipe that the arm is compared with",
        "seed" => "decides initialisation, data order and random words",
        "step" => "training steps done",
        "tokens" => "training tokens seen",
        "loss" => "validation loss, nats per token",
        "paper" => "arXiv id",
        "claim" => "id of a claim in manifests/papers",
        "verdict" => "word of docs/verdicts.md",
        "reason" => "why the verdict cannot be another; empty where it has none",
        "evidence" => "native, emulated, public-log or modelled; in tables of public logs the manifest's id",
        "low" | "high" => "95 % interval",
        "n" => "seeds or repeats",
        "seconds" => "wall time",
        _ => return None,
    })
}
