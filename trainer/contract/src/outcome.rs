//! `done.json` and `failed.json`: how a run ended.

use serde::{Deserialize, Serialize};

use crate::json::Document;
use crate::schema;

/// Written last, after everything else is on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    pub status: Status,
    /// Steps done; of a run that diverged the last one before.
    pub steps: u64,
    pub tokens: u64,
    pub final_train_loss: Option<f64>,
    pub final_validation_loss: Option<f64>,
    pub metrics_sha256: String,
    /// None of a run that diverged.
    pub model_sha256: Option<String>,
    pub run_sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Completed,
    /// A loss or gradient norm is no longer finite.
    Diverged,
}

/// There when the run ended with an error; removed when it starts again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    pub error: String,
}

impl Document for Done {
    const SCHEMA: &'static str = schema::DONE;
}

impl Document for Failed {
    const SCHEMA: &'static str = schema::FAILED;
}
