//! What other committed campaigns cost at the paper's depth of training, from the repository's page of all evidence. A copy lies in each
//! directory, so that its report shows them in lighter marks and stays a function of its files. No verdict rests on it.

use std::collections::BTreeMap;

use contract::json;
use serde::{Deserialize, Serialize};

/// File name in a result directory.
pub const FILE: &str = "others.json";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// From the largest model down.
    pub campaigns: Vec<Other>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    pub paper: String,
    pub directory: String,
    pub profile: String,
    pub parameters: u64,
    /// Extra tokens at the paper's depth, as shares, by arm.
    pub costs: BTreeMap<String, Cost>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    pub number: f64,
    /// 95 %.
    pub interval: Option<[f64; 2]>,
}

impl json::Document for Others {
    const SCHEMA: &'static str = "mxfp4-others/1";
}
