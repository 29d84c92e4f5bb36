//! A plan with everything that it was made from.

use std::path::{Path, PathBuf};

use study::files::{Context as _, FileError, sha256};
use study::manifest::public_logs;
use study::manifest::{Manifests, Profile};
use study::plan::{self, Plan, Selection};

use crate::error::CampaignError;
use crate::toolchain::{self, Trainer, build_trainer};

/// A plan with what it was made from.
pub struct Prepared<'m> {
    pub manifests: &'m Manifests,
    pub plan: Plan,
    pub build: plan::Build,
    /// The trainer, if it was built elsewhere.
    pub prebuilt: Option<Trainer>,
}

impl<'m> Prepared<'m> {
    /// Makes the plan; touches nothing. `trainer` is one that was built elsewhere.
    ///
    /// # Errors
    /// A wrong selection, or a trainer that does not say what it is.
    pub fn new(manifests: &'m Manifests, profile: &str, selection: &Selection, trainer: Option<&Path>) -> Result<Self, CampaignError> {
        let root = &manifests.root;
        let prebuilt = toolchain::prebuilt(root, trainer).map(|program| Trainer { program });
        let build = prebuilt.as_ref().map_or_else(|| toolchain::expected(root), toolchain::prebuilt_identity)?;
        Self::from_build(manifests, profile, selection, build, prebuilt)
    }

    /// The same for runs that are to be made: builds the trainer where there is none, because only that one says what it computes.
    pub(crate) fn with_trainer(
        manifests: &'m Manifests,
        profile: &str,
        selection: &Selection,
        trainer: Option<&Path>,
        say: &dyn Fn(&str),
    ) -> Result<(Self, Trainer), CampaignError> {
        let root = &manifests.root;
        // A wrong selection is refused before anything is built; which build it is does not matter to that.
        plan::plan(manifests, manifests.profile(profile)?, selection, &plan::Build::only("not built yet"), None)?;
        let prebuilt = toolchain::prebuilt(root, trainer).map(|program| Trainer { program });
        let (trainer, build) = match &prebuilt {
            Some(trainer) => (trainer.clone(), toolchain::prebuilt_identity(trainer)?),
            None => build_trainer(root, say)?,
        };
        Ok((Self::from_build(manifests, profile, selection, build, prebuilt)?, trainer))
    }

    fn from_build(
        manifests: &'m Manifests,
        profile: &str,
        selection: &Selection,
        build: plan::Build,
        prebuilt: Option<Trainer>,
    ) -> Result<Self, CampaignError> {
        let plan = plan::plan(manifests, manifests.profile(profile)?, selection, &build, None)?;
        Ok(Self { manifests, plan, build, prebuilt })
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.manifests.profiles[self.plan.profile.as_str()]
    }

    /// Hash of run keys, of the manifests that decide how runs are measured, and of `conditions`, how they were carried out.
    pub(crate) fn campaign_key(&self, conditions: &str) -> Result<String, FileError> {
        let mut text = conditions.to_owned();
        for run in &self.plan.runs {
            text.push_str(&format!("{} {}\n", run.name(), run.key()));
        }
        for (name, path) in self.manifest_files() {
            let bytes = self.manifests.bytes(&path).at(&path, "read")?;
            text.push_str(&format!("{} {name}\n", sha256(&bytes)));
        }
        Ok(sha256(text.as_bytes()))
    }

    /// The manifests a result directory carries: (name there, path in the repository, which `Manifests::bytes` takes).
    pub(crate) fn manifest_files(&self) -> Vec<(String, PathBuf)> {
        let profile = self.profile();
        let mut all = vec![
            ("profile.yaml".to_owned(), Manifests::path("profiles", &profile.id)),
            ("model.yaml".to_owned(), Manifests::path("models", &profile.model)),
            ("dataset.yaml".to_owned(), Manifests::path("datasets", &profile.dataset)),
            ("tokenizer.yaml".to_owned(), Manifests::path("tokenizers", &profile.tokenizer)),
            ("hardware.yaml".to_owned(), Manifests::path("hardware", &profile.hardware)),
        ];
        all.extend(profile.papers.iter().map(|id| (format!("papers/{id}.yaml"), Manifests::path("papers", id))));
        // All arms of the profile: a partial campaign still names what it left out.
        all.extend(plan::all_arms(profile).iter().map(|id| (format!("recipes/{id}.yaml"), Manifests::path("recipes", id))));
        all.extend(public_logs::files_of(&self.manifests.public_logs, &profile.papers).into_iter().map(|name| {
            let path = Path::new("manifests").join(&name);
            (name, path)
        }));
        all
    }
}
