//! What the measuring side needs to know from the manifests that a result directory carries.
//!
//! Not the manifest reader: `manifest/` reads the archived copies as strictly as the originals.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contract::id::Id;
use contract::recipe::{Format, OperandSpec, Rounding};

use super::load::{MeasureError, Run};
use super::target::Estimator;
use crate::files::Context as _;
use crate::manifest::profile::{Hardware, Profile};
use crate::manifest::recipe::repeated;
use crate::manifest::{self, Paper, Recipe};

/// Papers by which a directory is judged again, by the second version of the rules.
pub const PAPERS_AGAIN: &str = "manifests/papers-2";

/// Formats of the operands of `pass` in a recipe.
pub fn formats(recipe: &Recipe, pass: &str) -> Vec<Format> {
    let kinds = recipe.passes.all().into_iter().filter(|(name, _, _)| *name == pass).map(|(_, _, kind)| kind);
    kinds.filter_map(|kind| recipe.operands.get(kind)).map(|operand| operand.format).collect()
}

/// Whether `pass` has both operands in E2M1.
pub fn is_mxfp4(recipe: &Recipe, pass: &str) -> bool {
    let formats = formats(recipe, pass);
    !formats.is_empty() && formats.iter().all(|format| *format == Format::E2m1)
}

/// The E2M1 operand kinds of a recipe.
pub fn mxfp4_operands(recipe: &Recipe) -> impl Iterator<Item = &OperandSpec> {
    recipe.operands.values().filter(|operand| operand.format == Format::E2m1)
}

/// Whether all three products have their operands in E2M1.
pub fn is_full(recipe: &Recipe) -> bool {
    ["fprop", "dgrad", "wgrad"].iter().all(|pass| is_mxfp4(recipe, pass))
}

/// Whether every E2M1 operand is rounded to nearest and not rotated: no stabiliser.
pub fn is_plain(recipe: &Recipe) -> bool {
    mxfp4_operands(recipe).all(|operand| operand.rounding == Rounding::NearestEven && operand.rotation.is_none())
}

/// The manifests of one campaign.
#[derive(Debug, Clone)]
pub struct Study {
    pub profile: Profile,
    /// Its papers, in the profile's order, as far as the directory has them.
    pub papers: Vec<Paper>,
    /// The same papers as the second version of the rules reads them, in a directory that was judged by the first: shown beside.
    pub again: Vec<Paper>,
    pub recipes: BTreeMap<String, Recipe>,
    pub hardware: Hardware,
    /// Which estimate of tokens to target verdicts use.
    pub estimator: Estimator,
    /// A program executed the device's instructions: nothing here was measured on the hardware.
    pub interpreted: bool,
}

impl Study {
    /// What the runs say of the hardware beyond its manifest: units that they did not use are none, and an interpreter is no device.
    pub fn executed(&mut self, runs: &[Run]) {
        let mut sessions = runs.iter().flat_map(|run| &run.sessions);
        if sessions.clone().any(|session| session.mxfp4.as_ref().is_some_and(|ways| ways.contains("emulated"))) {
            self.hardware.native_formats.retain(|format| *format != Format::E2m1);
        }
        self.interpreted = sessions.any(|session| session.interpreted);
        if self.interpreted {
            self.hardware.native_formats.clear();
            self.hardware.id = Id::near(&format!("{}-interpreted", self.hardware.id));
            self.hardware.title = format!("instruction set interpreter in place of {}: not run on that device", self.hardware.title);
        }
    }

    /// Reads `directory/manifests`.
    pub fn load(directory: &Path) -> Result<Self, MeasureError> {
        let profile: Profile = manifest::read(directory, Path::new("manifests/profile.yaml"))?;
        let estimator = profile.estimator;
        let papers = |folder: &str| -> Result<Vec<Paper>, MeasureError> {
            let read = |path: PathBuf| Ok(manifest::read::<Paper>(directory, &path)?);
            let mut papers = yaml_files(directory, folder)?.into_iter().map(read).collect::<Result<Vec<_>, MeasureError>>()?;
            papers.sort_by_key(|paper| profile.papers.iter().position(|id| *id == paper.id).unwrap_or(usize::MAX));
            Ok(papers)
        };
        let again = if directory.join(PAPERS_AGAIN).exists() { papers(PAPERS_AGAIN)? } else { Vec::new() };
        let papers = papers("manifests/papers")?;
        let mut recipes = BTreeMap::new();
        for path in yaml_files(directory, "manifests/recipes")? {
            let recipe: Recipe = manifest::read(directory, &path)?;
            recipes.insert(recipe.id.to_string(), recipe);
        }
        let hardware = manifest::read(directory, Path::new("manifests/hardware.yaml"))?;
        Ok(Self { hardware, papers, again, profile, recipes, estimator, interpreted: false })
    }

    /// What to call an arm in tables and figures.
    pub fn label<'a>(&'a self, arm: &'a str) -> &'a str {
        self.recipes.get(arm).map_or(arm, |recipe| recipe.label.as_str())
    }

    /// The arm that `arm` runs once more, or itself.
    pub fn repeated<'a>(&'a self, arm: &'a str) -> &'a str {
        repeated(&self.recipes, arm)
    }

    /// Arms of the profile in the order of its groups.
    pub fn arms(&self) -> Vec<&str> {
        self.profile.arms.iter().flat_map(|group| group.recipes.iter().map(String::as_str)).collect()
    }

    /// Formats among those of `arms` that this hardware has no unit for, sorted.
    pub fn emulated_formats(&self, arms: &[&str]) -> Vec<Format> {
        let used = arms.iter().filter_map(|arm| self.recipes.get(*arm));
        let used = used.flat_map(|recipe| ["fprop", "dgrad", "wgrad"].into_iter().flat_map(|pass| formats(recipe, pass)));
        let mut missing: Vec<Format> = used.filter(|format| !self.native(*format)).collect();
        missing.sort();
        missing.dedup();
        missing
    }

    /// Whether this hardware has an arithmetic unit for `format`.
    pub fn native(&self, format: Format) -> bool {
        self.hardware.native_formats.contains(&format)
    }
}

/// Every `.yaml` file of `root/folder`, by name, relative to `root`.
fn yaml_files(root: &Path, folder: &str) -> Result<Vec<PathBuf>, MeasureError> {
    let directory = root.join(folder);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&directory).at(&directory, "list")? {
        let name = entry.at(&directory, "list")?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "yaml") {
            paths.push(Path::new(folder).join(name));
        }
    }
    paths.sort();
    Ok(paths)
}
