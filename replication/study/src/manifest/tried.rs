//! A recipe of a user's own beside a profile's arms, without editing a manifest: its file and the profile's text with one group more take the
//! place of files below `manifests/`, so that a result directory carries what was run.

use std::path::{Path, PathBuf};

use contract::yaml;

use super::error::ManifestError;
use super::profile::{ArmGroup, Profile};
use super::recipe::Recipe;
use super::{Manifests, resolve};
use crate::files;

/// Name of the group that a recipe is tried in.
pub const GROUP: &str = "Tried";

impl Manifests {
    /// With the recipe of the file at `path` as an arm of `profile`; the arms to run: its baseline, the rows of Table 1, and it. A recipe that the
    /// profile has already is only looked up.
    ///
    /// # Errors
    /// What is wrong with the recipe, or with it on the profile's model, with its file, line and key.
    pub fn with_tried(mut self, path: &Path, profile: &str) -> Result<(Self, Vec<String>), ManifestError> {
        self.profile(profile)?;
        let unreadable = |error: std::io::Error| ManifestError::new(path, format!("cannot be read: {error}; name a recipe's file"));
        let text = files::read_text(&path.canonicalize().map_err(unreadable)?).map_err(|error| unreadable(error.source))?;
        let recipe: Recipe = yaml::from_str(&text).map_err(|error| ManifestError::from_yaml(path, &text, &error))?;
        let id = recipe.id.to_string();
        let wrong = |why: &str| ManifestError::in_text(path, &text, why);
        recipe.check().map_err(|why| wrong(&why))?;
        let (own, known) = (Self::path("recipes", &id), self.recipes.contains_key(&id));
        if known && self.bytes(&own).ok().as_deref() != Some(text.as_bytes()) {
            return Err(wrong(&format!("id: `{id}` is another recipe's, {}; give this one an id of its own", own.display())));
        }
        self.recipes.insert(id.clone(), recipe);
        self.own.insert(own, text.clone().into_bytes());
        self.add_arm(profile, &id)?;
        let (profile, none) = (&self.profiles[profile], resolve::unknown_shards(u64::MAX));
        let shards = self.tokenizers[&profile.tokenizer].shards.as_ref().unwrap_or(&none);
        resolve::run_file(&self, profile, &self.models[&profile.model], shards, &id, 1).map_err(|why| {
            let of_recipe = format!("recipe {id} on model {}: ", profile.model);
            wrong(why.strip_prefix(&of_recipe).unwrap_or(&why))
        })?;
        let arms = self.table_1(profile, &id);
        Ok((self, arms))
    }

    /// What a manifest holds: what takes its place, or the repository's file.
    pub fn bytes(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        self.own.get(path).map_or_else(|| std::fs::read(self.root.join(path)), |own| Ok(own.clone()))
    }

    /// The recipe as an arm of the profile, in a group of its own before the others, unless it is one already.
    fn add_arm(&mut self, profile: &str, id: &str) -> Result<(), ManifestError> {
        let path = Self::path("profiles", profile);
        let text = self.bytes(&path).map_err(|error| ManifestError::new(&path, format!("cannot be read: {error}")))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let Some(found) = self.profiles.get_mut(profile) else { return Ok(()) };
        if found.arms.iter().any(|group| group.recipes.iter().any(|arm| arm == id)) {
            return Ok(());
        }
        found.arms.insert(0, ArmGroup { group: GROUP.to_owned(), recipes: vec![id.to_owned()] });
        let with_arm = text.replacen("\narms:\n", &format!("\narms:\n  - {{group: \"{GROUP}\", recipes: [\"{id}\"]}}\n"), 1);
        // The text that results carry must say what was run.
        let same = |read: &Profile| read.arms.iter().map(|group| &group.recipes).eq(found.arms.iter().map(|group| &group.recipes));
        if !yaml::from_str::<Profile>(&with_arm).is_ok_and(|read| same(&read)) {
            return Err(ManifestError::in_text(
                &path,
                &text,
                "arms: write the groups as a list, one a line, so that another can stand before them",
            ));
        }
        self.own.insert(path, with_arm.into_bytes());
        Ok(())
    }

    /// The baseline, the arms of the claims of the first paper's Table 1, and `id`, as far as the profile has them.
    fn table_1(&self, profile: &Profile, id: &str) -> Vec<String> {
        let paper = profile.papers.first().and_then(|paper| self.papers.get(paper));
        let rows = paper.iter().flat_map(|paper| &paper.claims).filter(|claim| claim.source == "Table 1");
        let mut wanted: Vec<&str> = rows.flat_map(|claim| claim.metric.arms()).collect();
        wanted.extend(paper.map(|paper| paper.baseline.as_str()));
        let all = profile.arms.iter().flat_map(|group| &group.recipes);
        all.filter(|arm| *arm == id || wanted.contains(&arm.as_str())).cloned().collect()
    }
}

/// Files that take the place of the repository's manifests, by their path relative to its root.
pub type Own = std::collections::BTreeMap<PathBuf, Vec<u8>>;
