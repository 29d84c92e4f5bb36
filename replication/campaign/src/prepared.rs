//! A plan with everything that it was made from.

use std::path::{Path, PathBuf};

use study::archive;
use study::files::{Context as _, FileError, sha256};
use study::identity::Known;
use study::manifest::{ManifestError, Manifests, Profile};
use study::plan::{self, Plan, Selection};
use study::record;

use crate::error::CampaignError;
use crate::toolchain::{self, Trainer, build_trainer};

/// A plan with what it was made from.
#[derive(Clone)]
pub struct Prepared<'m> {
    pub manifests: &'m Manifests,
    pub plan: Plan,
    pub build: plan::Build,
    /// The trainer, if it was built elsewhere.
    pub prebuilt: Option<Trainer>,
}

/// The trainer with which runs are made.
pub(crate) struct Built {
    pub(crate) trainer: Trainer,
    /// What it says it computes.
    build: plan::Build,
    /// It was built elsewhere.
    is_prebuilt: bool,
}

impl Built {
    /// The one that is `named` or packed here, else it is built.
    pub(crate) fn new(manifests: &Manifests, named: Option<&Path>, say: &dyn Fn(&str)) -> Result<Self, CampaignError> {
        let prebuilt = toolchain::prebuilt(&manifests.root, named).map(|program| Trainer { program });
        let is_prebuilt = prebuilt.is_some();
        let (trainer, build) = match prebuilt {
            Some(trainer) => {
                let build = toolchain::prebuilt_identity(&trainer)?;
                (trainer, build)
            }
            None => build_trainer(&manifests.root, say)?,
        };
        Ok(Self { trainer, build, is_prebuilt })
    }
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
        Self::refuse_wrong(manifests, profile, selection)?;
        let built = Built::new(manifests, trainer, say)?;
        Ok((Self::of(&built, manifests, profile, selection)?, built.trainer))
    }

    /// Refuses a wrong selection before anything is built; which build it is does not matter to that.
    pub(crate) fn refuse_wrong(manifests: &Manifests, profile: &str, selection: &Selection) -> Result<(), ManifestError> {
        plan::plan(manifests, manifests.profile(profile)?, selection, &plan::Build::only("not built yet"), None).map(drop)
    }

    /// Runs that this trainer is to make.
    pub(crate) fn of(built: &Built, manifests: &'m Manifests, profile: &str, selection: &Selection) -> Result<Self, CampaignError> {
        let prebuilt = built.is_prebuilt.then(|| built.trainer.clone());
        Self::from_build(manifests, profile, selection, built.build.clone(), prebuilt)
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

    /// Takes finished runs of earlier trainers that are known to compute the same. Where there is no such list they are made again.
    #[must_use]
    pub fn with_earlier_runs(mut self) -> Self {
        if let Ok(known) = Known::load(&self.manifests.root) {
            self.plan.carry_over(&plan::run_cache(&self.manifests.root), &known);
        }
        self
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.manifests.profiles[self.plan.profile.as_str()]
    }

    /// Hash of run keys, of the manifests that decide how runs are measured, and of `conditions`, how they were carried out.
    pub(crate) fn campaign_key(&self, conditions: &str) -> Result<String, FileError> {
        let hash = |(name, path): (String, PathBuf)| Ok((name, sha256(&self.manifests.bytes(&path).at(&path, "read")?)));
        let manifests: Vec<(String, String)> = self.manifest_files().into_iter().map(hash).collect::<Result<_, FileError>>()?;
        let runs: Vec<(&str, u64, String)> = self.plan.runs.iter().map(|run| (run.arm.as_str(), run.seed, run.key())).collect();
        let runs = runs.iter().map(|(arm, seed, key)| (*arm, *seed, key.as_str()));
        Ok(record::key(conditions, runs, manifests.iter().map(|(name, sha256)| (name.as_str(), sha256.as_str()))))
    }

    /// The manifests a result directory carries: (name there, path in the repository, which `Manifests::bytes` takes).
    pub(crate) fn manifest_files(&self) -> Vec<(String, PathBuf)> {
        archive::files(self.manifests, self.profile())
    }
}
