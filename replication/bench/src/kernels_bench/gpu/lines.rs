//! What `trainer kernel-time` prints on a GPU, as samples with names: one name a kind of kernel, a variant, a set of shapes and a product.
//!
//! Names: `gemm/VARIANT/SHAPES/LINEAR/PASS/MxNxK` (operands prepared beforehand), `gemm+prepare/...` (with preparing both),
//! `block/VARIANT/SHAPES` and `block+prepare/VARIANT/SHAPES` (a block's twelve products, summed within each round),
//! `quantise/VARIANT/ORIENTATION/SHAPES/LINEAR/RxC` and `.../all` (a block's four gradients), `copy/SHAPES`, `peak/VARIANT/SHAPES`.
//!
//! An interpreter's lines have no seconds, and give no samples: only their names are kept, which say what was called.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use study::kernels::{Missing, Samples};

use super::super::samples::wrong;

const SCHEMA: &str = "mxfp4-kernel-time/1";

/// The first line: which device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(in super::super) struct Header {
    /// As `--device` takes it.
    pub(in super::super) device: String,
    pub(in super::super) name: String,
    /// As the compiler calls it.
    pub(in super::super) architecture: String,
    pub(in super::super) libraries: Vec<String>,
    /// `native` or `emulated`.
    pub(in super::super) mxfp4: String,
    /// Whether FP8 is native.
    pub(in super::super) fp8: bool,
    /// No device: the processor interpreted the machine code.
    #[serde(default)]
    pub(in super::super) interpreted: bool,
}

/// What one call printed.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Parsed {
    pub(in super::super) header: Header,
    /// Sums first, then every measurement in the order of its first line; none of an interpreter.
    pub(in super::super) samples: Vec<Samples>,
    /// Products that the vendor's library does not have.
    pub(in super::super) missing: Vec<Missing>,
    /// Names of what an interpreter executed.
    pub(in super::super) executed: BTreeSet<String>,
}

/// Every other line; which fields it has depends on its kind.
#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    variant: String,
    #[serde(default)]
    linear: String,
    #[serde(default)]
    pass: String,
    #[serde(default)]
    orientation: String,
    #[serde(default)]
    m: u64,
    #[serde(default)]
    n: u64,
    #[serde(default)]
    k: u64,
    #[serde(default)]
    rows: u64,
    #[serde(default)]
    columns: u64,
    #[serde(default)]
    bytes: u64,
    /// None where no time is told, which `interpreted` or `reason` explains.
    seconds: Option<f64>,
    #[serde(default)]
    interpreted: bool,
    #[serde(default)]
    reason: String,
}

impl Line {
    /// Name, what one call does, and its unit; none for a kind that is not known.
    fn named(&self, shapes: &str) -> Option<(String, u64, &'static str)> {
        let Self { variant, linear, pass, orientation, m, n, k, rows, columns, bytes, .. } = self;
        let operations = 2 * m * n * k;
        Some(match self.kind.as_str() {
            "kernel_time" => (format!("gemm+prepare/{variant}/{shapes}/{linear}/{pass}/{m}x{n}x{k}"), operations, "operations"),
            "product_time" | "not_run" => (format!("gemm/{variant}/{shapes}/{linear}/{pass}/{m}x{n}x{k}"), operations, "operations"),
            "prepare_time" => (format!("quantise/{variant}/{orientation}/{shapes}/{linear}/{rows}x{columns}"), *bytes, "bytes"),
            "copy_time" => (format!("copy/{shapes}"), *bytes, "bytes"),
            "peak_time" => (format!("peak/{variant}/{shapes}"), operations, "operations"),
            _ => return None,
        })
    }

    /// The sum that it is part of.
    fn sum(&self, shapes: &str) -> Option<String> {
        let Self { variant, orientation, .. } = self;
        match self.kind.as_str() {
            "kernel_time" => Some(format!("block+prepare/{variant}/{shapes}")),
            "product_time" => Some(format!("block/{variant}/{shapes}")),
            "prepare_time" => Some(format!("quantise/{variant}/{orientation}/{shapes}/all")),
            _ => None,
        }
    }
}

/// Lines of one call, about the shapes called `shapes`.
///
/// # Errors
/// The number of the first line that does not follow the schema, and what is wrong with it.
pub(in super::super) fn parse(text: &str, shapes: &str) -> Result<Parsed, String> {
    let mut header: Option<Header> = None;
    let (mut missing, mut executed) = (Vec::new(), BTreeSet::new());
    let mut order: Vec<String> = Vec::new();
    let mut all: BTreeMap<String, Samples> = BTreeMap::new();
    let mut sums: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim().is_empty()) {
        let refuse = |what: String| format!("line {number}: {what}");
        let value: serde_json::Value = serde_json::from_str(line).map_err(|error| refuse(format!("is not JSON ({error})")))?;
        let word = |key: &str| value.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        if word("schema") != SCHEMA {
            return Err(refuse(format!("schema `{}` is not `{SCHEMA}`", word("schema"))));
        }
        if word("kind") == "device" {
            header = Some(serde_json::from_value(value).map_err(|error| refuse(error.to_string()))?);
            continue;
        }
        let line: Line = serde_json::from_value(value).map_err(|error| refuse(error.to_string()))?;
        let (name, operations, unit) = line.named(shapes).ok_or_else(|| refuse(format!("kind `{}` is not known", line.kind)))?;
        if line.kind == "not_run" {
            missing.push(Missing { peer: "hipBLASLt".to_owned(), name, reason: line.reason, install: String::new() });
            continue;
        }
        let is_device = header.as_ref().is_none_or(|header| !header.interpreted);
        let seconds = match (line.seconds, is_device && !line.interpreted) {
            (Some(seconds), true) => seconds,
            (None, false) => {
                executed.insert(name);
                continue;
            }
            (Some(_), false) => return Err(refuse("tells the time of an interpreter".to_owned())),
            (None, true) => return Err(refuse("has no seconds".to_owned())),
        };
        if let Some(what) = wrong(operations, &[seconds]) {
            return Err(refuse(what));
        }
        if let Some(sum) = line.sum(shapes) {
            let parts = sums.entry(sum).or_default();
            if !parts.contains(&name) {
                parts.push(name.clone());
            }
        }
        let samples = all.entry(name.clone()).or_insert_with(|| {
            order.push(name.clone());
            let group = format!("kernels {shapes}");
            Samples { group, name, threads: 1, operations, unit: unit.to_owned(), samples: Vec::new() }
        });
        samples.samples.push(seconds);
    }
    let header = header.ok_or_else(|| "no line says which device it was".to_owned())?;
    let mut samples: Vec<Samples> = sums.into_iter().filter_map(|(name, parts)| sum(&name, &parts, &all)).collect();
    samples.extend(order.iter().filter_map(|name| all.remove(name)));
    Ok(Parsed { header, samples, missing, executed })
}

/// Adds parts up within each round. A variant that some products cannot have is no whole block, but is summed over those that it has:
/// the count of operations says so.
fn sum(name: &str, parts: &[String], all: &BTreeMap<String, Samples>) -> Option<Samples> {
    let parts: Vec<&Samples> = parts.iter().filter_map(|part| all.get(part)).collect();
    let first = parts.first()?;
    let rounds = parts.iter().map(|part| part.samples.len()).min()?;
    let samples = (0..rounds).map(|round| parts.iter().map(|part| part.samples[round]).sum()).collect();
    let operations = parts.iter().map(|part| part.operations).sum();
    Some(Samples { group: first.group.clone(), name: name.to_owned(), threads: 1, operations, unit: first.unit.clone(), samples })
}
