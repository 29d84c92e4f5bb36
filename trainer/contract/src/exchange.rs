//! `exchange.jsonl`: what of each step several ranks spent on each other. Like `timing.jsonl`, different at every run.

use serde::{Deserialize, Serialize};

use crate::schema;

crate::lines! {
    ExchangeLine of schema::EXCHANGE; {
        /// A trainer process begins, or goes on from a checkpoint.
        Session(Session) = "session" with schema,
        Step(Spent) = "step",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    pub ranks: u64,
    /// What moves the numbers: `host`, or a library and its version.
    pub transport: String,
    pub resumed_from_step: u64,
}

/// What the line begins with that a run of several ranks ends with: who waited.
pub const TOLD: &str = "exchanges took ";

/// Seconds of a rank, its waiting for other ranks among them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    pub step: u64,
    /// Earlier trainers wrote rank 0 alone, without its number.
    #[serde(default)]
    pub rank: u64,
    /// Of the whole step, of rank 0.
    pub seconds: f64,
    /// Every rank gets its shard of the gradients of every micro-batch.
    pub gradients: f64,
    /// Squares are summed from rank to rank.
    pub norm: f64,
    /// Every rank gets all of the parameters.
    pub parameters: f64,
}
