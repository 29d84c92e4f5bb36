//! Recipes: for each GEMM pass and each of its operands, format, block, scale rule, rounding and rotation.
//!
//! The words, and what they mean together, are the contract's: the trainer reads the same ones.

use std::collections::BTreeMap;

use contract::defect::{self, Defect};
use contract::id::Id;
use contract::recipe::{DelayedScaling, OperandSpec, Passes, ScaleRule, StochasticSeed, check_perturbation};
use serde::Deserialize;

use crate::suggest::unknown;

/// One file of manifests/recipes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// File name without `.yaml`; also the arm's name.
    pub id: Id,
    pub title: String,
    /// A few characters for tables and figures.
    pub label: String,
    /// Operands by a name of the file's own.
    pub operands: BTreeMap<String, OperandSpec>,
    /// Which operand each pass uses where.
    pub passes: Passes<String>,
    /// Whether stochastic rounding gets new random words at every step.
    pub stochastic_seed: StochasticSeed,
    /// How operands with scale `delayed` remember.
    #[serde(default)]
    pub delayed_scaling: Option<DelayedScaling>,
    /// Exclusive-or with the last bits of every initial weight (0 to 3): another run of the same arm and seed.
    #[serde(default)]
    pub perturbation: u32,
    /// A mistake that is made on purpose.
    #[serde(default)]
    pub defect: Option<Defect>,
}

/// The arm that `arm` runs once more: one whose recipe differs in nothing but the last bits of the initial weights. Itself otherwise.
pub fn repeated<'a>(recipes: &'a BTreeMap<String, Recipe>, arm: &'a str) -> &'a str {
    let Some(recipe) = recipes.get(arm).filter(|recipe| recipe.perturbation != 0) else { return arm };
    let original = recipes.values().find(|other| {
        let same = other.resolved().ok() == recipe.resolved().ok() && other.stochastic_seed == recipe.stochastic_seed;
        other.perturbation == 0 && same && other.delayed_scaling == recipe.delayed_scaling && other.defect == recipe.defect
    });
    original.map_or(arm, |original| original.id.as_str())
}

impl Recipe {
    /// Passes with every operand spelled out.
    pub fn resolved(&self) -> Result<Passes, String> {
        self.passes.try_map(|pass, operand, name| {
            let known: Vec<&str> = self.operands.keys().map(String::as_str).collect();
            self.operands.get(name).cloned().ok_or_else(|| format!("passes.{pass}.{operand}: {}", unknown("operand", name, &known)))
        })
    }

    /// Input and weight of the forward pass as a reading takes them. A reading has no history: `delayed` becomes `current`.
    pub fn forward(&self) -> Result<[OperandSpec; 2], String> {
        let fprop = self.resolved()?.fprop;
        let now = |operand: OperandSpec| {
            let scale = if operand.scale == ScaleRule::Delayed { ScaleRule::Current } else { operand.scale };
            OperandSpec { scale, ..operand }
        };
        Ok([fprop.input, fprop.weight].map(now))
    }

    /// What is wrong with the recipe by itself, whatever the model.
    pub fn check(&self) -> Result<(), String> {
        let passes = self.resolved()?;
        for (name, operand) in &self.operands {
            operand.validate(0).map_err(|why| format!("operands.{name}.{why}"))?;
            if !self.passes.all().iter().any(|(_, _, used)| *used == name) {
                return Err(format!("operands.{name}: no pass uses it; remove it"));
            }
        }
        passes.check(self.delayed_scaling)?;
        defect::check(self.defect, &passes)?;
        check_perturbation(self.perturbation)
    }
}
