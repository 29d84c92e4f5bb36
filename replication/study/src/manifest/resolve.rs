//! What a profile means for one of its runs: a run file, refused here if the trainer would refuse it.

use contract::run_file::{
    DataSection, EvaluationSection, ForwardSection, Gemm, MllogSection, ReadingsSection, RecipeSection, RunFile, RunIdentity, ShardSection,
    TokenizerSection,
};
use contract::schema;

use super::Manifests;
use super::profile::{Model, Profile, Shard, Shards};

/// Stands for the hash of what nobody here has: a tokenizer that comes already applied, the data of a step with random tokens.
const UNKNOWN_SHA256: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Shards of which nothing is known but that they are large enough.
pub fn unknown_shards(tokens: u64) -> Shards {
    let shard = || Shard { tokens, sha256_bin: UNKNOWN_SHA256.into(), sha256_idx: UNKNOWN_SHA256.into() };
    Shards { train: shard(), validation: shard(), end_of_document: 0 }
}

/// The run of an arm with a seed on `model`, everything else as in `profile`. Ids of the profile and of the arm's recipe are known.
///
/// # Errors
/// What the trainer would say of the file; the message begins with its key.
pub fn run_file(manifests: &Manifests, profile: &Profile, model: &Model, shards: &Shards, arm: &str, seed: u64) -> Result<RunFile, String> {
    let (recipe, tokenizer) = (&manifests.recipes[arm], &manifests.tokenizers[&profile.tokenizer]);
    let evaluation = &profile.evaluation;
    let run = RunFile {
        schema: schema::RUN.to_owned(),
        run: RunIdentity { profile: profile.id.clone(), arm: recipe.id.clone(), seed },
        model: model.section(),
        data: DataSection {
            train: section("train", &shards.train),
            validation: section("validation", &shards.validation),
            end_of_document: u32::try_from(shards.end_of_document)
                .map_err(|_| format!("data.end_of_document: {} is no token", shards.end_of_document))?,
        },
        tokenizer: TokenizerSection {
            id: tokenizer.id.clone(),
            sha256: tokenizer.sha256.clone().unwrap_or_else(|| UNKNOWN_SHA256.to_owned()),
        },
        optimizer: profile.optimizer.clone(),
        schedule: profile.schedule.clone(),
        batch: profile.batch.clone(),
        budget: profile.budget.clone(),
        evaluation: EvaluationSection {
            every_steps: evaluation.every_steps,
            sequences: evaluation.sequences,
            spread: evaluation.spread,
            readings: readings(manifests, profile, arm)?,
        },
        target_loss: profile.target_loss,
        logging: profile.logging.clone(),
        checkpoint: profile.checkpoint.clone(),
        recipe: RecipeSection {
            id: recipe.id.clone(),
            passes: recipe.resolved()?,
            stochastic_seed: recipe.stochastic_seed,
            delayed_scaling: recipe.delayed_scaling,
            perturbation: recipe.perturbation,
            defect: recipe.defect,
        },
        gemm: Gemm::Own,
        mllog: MllogSection {
            benchmark: profile.mllog.benchmark.clone(),
            organisation: "open replication".to_owned(),
            platform: manifests.hardware[&profile.hardware].device.word().to_owned(),
        },
    };
    match run.check() {
        Ok(()) => Ok(run),
        // The key is that of a run file; a reader of manifests needs the arm.
        Err(why) => Err(match why.strip_prefix("recipe.") {
            Some(why) => format!("recipe {arm} on model {}: {why}", model.id),
            None => why,
        }),
    }
}

fn section(prefix: &str, Shard { tokens, sha256_bin, sha256_idx }: &Shard) -> ShardSection {
    ShardSection { prefix: prefix.to_owned(), tokens: *tokens, sha256_bin: sha256_bin.clone(), sha256_idx: sha256_idx.clone() }
}

/// The forward passes through which an arm's weights are read, every operand spelled out.
fn readings(manifests: &Manifests, profile: &Profile, arm: &str) -> Result<Option<ReadingsSection>, String> {
    let Some(readings) = &profile.evaluation.readings else { return Ok(None) };
    let forward = |id: &String| {
        let recipe = &manifests.recipes[id];
        let [input, weight] = recipe.forward()?;
        Ok(ForwardSection { recipe: recipe.id.clone(), input, weight })
    };
    let ids = readings.all.iter().chain(readings.arms.get(arm).into_iter().flatten());
    let forwards = ids.map(forward).collect::<Result<_, String>>()?;
    Ok(Some(ReadingsSection { every_steps: readings.every_steps, forwards }))
}
