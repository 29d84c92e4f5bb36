//! What the key of a run is made of.

use serde::{Deserialize, Serialize};

use crate::files::sha256;

/// What decides whether a finished run may be reused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ingredients {
    /// SHA-256 of run.yaml: model, data and tokenizer hashes, recipe, optimizer, budget, seed.
    pub run: String,
    /// What the trainer computes on the device ([`crate::identity`]).
    pub trainer_code: String,
    /// `rustc -vV`, first line and LLVM version.
    pub toolchain: String,
    pub device: String,
}

impl Ingredients {
    pub fn json(&self) -> String {
        // Four strings: cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same run by another trainer.
    pub fn by(&self, trainer_code: &str) -> Self {
        Self { trainer_code: trainer_code.to_owned(), ..self.clone() }
    }

    /// First 16 hexadecimal digits of the SHA-256 of [`Ingredients::json`].
    pub fn key(&self) -> String {
        sha256(self.json().as_bytes())[..16].to_owned()
    }

    /// One line for each ingredient that differs from an `earlier` run's.
    pub fn differences(&self, earlier: &Self) -> Vec<String> {
        let pairs = [
            ("run file", &earlier.run, &self.run),
            ("what the trainer computes", &earlier.trainer_code, &self.trainer_code),
            ("compiler", &earlier.toolchain, &self.toolchain),
            ("device", &earlier.device, &self.device),
        ];
        pairs.into_iter().filter(|(_, old, new)| old != new).map(|(name, old, new)| format!("{name}: {old} -> {new}")).collect()
    }
}
