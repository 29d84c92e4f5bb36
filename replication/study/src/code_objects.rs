//! code_objects.json: the MI355X kernels of a replication. What a compiler made of them, whether these are the bytes that the repository
//! pins for that compiler, and what came of executing them on a model of the ISA. Not one of them ran on an MI355X.

use std::collections::BTreeMap;

use contract::json;
use contract::measurements::{Check, TestedDevice};
use serde::{Deserialize, Serialize};

/// Its name below `measurements/`.
pub const FILE: &str = "code_objects.json";

/// What may be said of kernels that were only compiled and interpreted.
pub const WORDING: &str =
    "compiles for gfx950; functionally verified on a CPU model of the ISA; not run on an MI355X; no performance claim";

/// What the compiler made of one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Built {
    /// Vector registers, accumulation registers among them.
    pub vgprs: u64,
    pub agprs: u64,
    pub sgprs: u64,
    /// Bytes of LDS.
    pub lds: u64,
    /// Registers spilled, vector and scalar.
    pub spills: u64,
    /// Bytes of scratch for each work item.
    pub scratch: u64,
    pub instructions: u64,
    /// How often each one occurs that the manifest counts.
    pub counted: BTreeMap<String, u64>,
}

/// What a clock model says of one matrix product, or of one matrix to quantise, by one kernel. No measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modelled {
    pub kernel: String,
    /// `MxNxK` or `ROWSxK`.
    pub shape: String,
    pub modelled_clocks: u64,
    /// What the manifest allows.
    pub at_most: u64,
    /// In words: share of the peak or of memory, what bounds it, and what else there is to say.
    pub line: String,
}

/// One source's code object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// Name of the source, relative to the manifest's folder.
    pub source: String,
    /// What was defined for it.
    pub defines: Vec<String>,
    pub source_sha256: String,
    /// File name of the code object.
    pub object: String,
    pub object_sha256: String,
    /// The hash that kernels/ARCH/pinned.yaml has for this compiler; None: it has none.
    pub pinned_sha256: Option<String>,
    pub kernels: BTreeMap<String, Built>,
}

impl Object {
    /// None: nothing is pinned for this compiler.
    pub fn is_as_pinned(&self) -> Option<bool> {
        self.pinned_sha256.as_ref().map(|pinned| *pinned == self.object_sha256)
    }
}

/// What was built and what is wrong with it: kernels.json of `kernels-build`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    pub arch: String,
    /// The compiler's first line about itself.
    pub compiler: String,
    /// Where it was found.
    pub compiler_path: String,
    pub flags: Vec<String>,
    /// In the manifest's order.
    pub objects: Vec<Object>,
    /// Products whose clocks the manifest limits. Absent in documents of versions without a clock model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modelled: Vec<Modelled>,
    /// Every rule that is broken, as a sentence; empty if all hold.
    pub problems: Vec<String>,
}

impl json::Document for Build {
    const SCHEMA: &'static str = "kernels-build/2";
}

/// The trainer's checks on an interpreter of gfx950 code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execution {
    pub device: TestedDevice,
    pub checks: Vec<Check>,
    /// SHA-256 of the code objects that the trainer compiled and loaded, sorted.
    pub loaded_sha256: Vec<String>,
    /// Why the checks ended before the last; None: they did not.
    pub cut_short: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeObjects {
    pub build: Option<Build>,
    /// Why they were not built, with what it needs.
    pub not_built: Option<String>,
    pub execution: Option<Execution>,
    /// Why they were not executed, with what it needs.
    pub not_executed: Option<String>,
}

impl json::Document for CodeObjects {
    const SCHEMA: &'static str = "mxfp4-code-objects/1";
}
