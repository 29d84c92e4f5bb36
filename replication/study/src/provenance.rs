//! Hashes and provenance of a result directory: DETERMINISTIC.sha256, SHA256SUMS, env.json and an in-toto statement.
//!
//! Everything is written from what lies in the directory, so a report rendered again keeps the provenance of its runs. Checking
//! is `verify`'s business, signing the campaign crate's.

use std::collections::BTreeSet;
use std::path::Path;

use contract::schema::{self, OtherSchema};
use contract::text::one_line;
use contract::yaml;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::files::{self, FileError};
use crate::manifest::Dataset;
use crate::manifest::dataset::{LocalFiles, Megatron};
use crate::packed;
use crate::record::{Campaign, MEND};
use crate::seal::{self, Seal};

/// Hashes that must be equal on every CPU, or from run to run on one kind of GPU with the same libraries.
pub const DETERMINISTIC: &str = "DETERMINISTIC.sha256";
pub use crate::seal::SUMS;

/// A signature of [`SUMS`], and so of all that it lists; not listed itself.
pub const SIGNATURE: &str = "SHA256SUMS.sig";
pub const STATEMENT: &str = "provenance.json";
/// The files whose origin the statement tells.
pub const SUBJECTS: [&str; 3] = [DETERMINISTIC, "verdicts.json", "report.html"];

/// Why provenance could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ProvenanceError {
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of the directory is not what it should be.
    #[error("{file}: {}; {MEND}", one_line(.what))]
    Content {
        /// Relative to the directory.
        file: String,
        what: String,
    },
}

/// Writes `env.json`.
pub fn write_environment(environment: &Environment, directory: &Path) -> Result<(), ProvenanceError> {
    Ok(files::write(&directory.join("env.json"), pretty(&json!(environment)).as_bytes())?)
}

fn pretty(value: &Value) -> String {
    // A value in memory has only text keys: cannot fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Tables that hold neither a time nor a quantile: equal on every CPU.
pub(crate) const DETERMINISTIC_TABLES: [&str; 4] = ["validation.csv", "tokens_to_target.csv", "loss_gap.csv", "quantisation.csv"];

/// Whether a file of a result directory must be equal on every CPU. A failed or interrupted run ends anywhere, so of a run without
/// `done.json` only `run.yaml` counts: `all` is the directory's listing.
fn is_deterministic(name: &str, all: &BTreeSet<String>) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["runs", _, _, "run.yaml"] => true,
        ["runs", arm, seed, "metrics.jsonl" | "done.json"] => all.contains(&format!("runs/{arm}/{seed}/done.json")),
        ["data", table] => DETERMINISTIC_TABLES.contains(&table),
        _ => false,
    }
}

/// The text of DETERMINISTIC.sha256, computed from the files: `<64 hex>  <path>` lines, sorted as bytes by path.
pub fn deterministic(directory: &Path) -> Result<String, FileError> {
    let all: BTreeSet<String> = files::list(directory)?.into_iter().collect();
    // A packed log counts under its own name, with the hash of what it unpacks to.
    let unpacked = |name: &String| name.strip_suffix(packed::ENDING).unwrap_or(name).to_owned();
    let names: BTreeSet<String> = all.iter().map(unpacked).filter(|name| is_deterministic(name, &all)).collect();
    names.iter().map(|name| Ok(format!("{}  {name}\n", packed::sha256(&directory.join(name))?))).collect()
}

/// Writes DETERMINISTIC.sha256, then SHA256SUMS, which `sha256sum -c` reads. The last thing done to a directory.
///
/// # Errors
/// When a file cannot be read or written, or has a name that a line of text cannot hold.
pub fn write_sums(directory: &Path) -> Result<(), ProvenanceError> {
    files::write(&directory.join(DETERMINISTIC), deterministic(directory)?.as_bytes())?;
    write_list(directory)
}

/// The first file that is not as [`SUMS`] lists it, or that it does not list; none: the directory is what it was.
pub fn changed(directory: &Path) -> Option<String> {
    let Some(seal) = Seal::read(directory) else { return Some(format!("its {SUMS} cannot be read")) };
    let names = files::list(directory).unwrap_or_default().into_iter().filter(|name| ![SUMS, SIGNATURE].contains(&name.as_str()));
    seal.broken_among(directory, names)
}

/// Writes SHA256SUMS alone: for a directory that holds nothing but measurements. A signature of what it was before goes.
pub fn write_list(directory: &Path) -> Result<(), ProvenanceError> {
    files::remove(&directory.join(SIGNATURE))?;
    let names: Vec<String> = files::list(directory)?.into_iter().filter(|name| name != SUMS).collect();
    if let Some(name) = names.iter().find(|name| name.contains(['\n', '\r', '\\', '\u{fffd}'])) {
        return Err(ProvenanceError::Content { file: name.clone(), what: "the name cannot stand in a list of hashes".to_owned() });
    }
    let list = seal::lines(directory, names.iter().map(String::as_str))?;
    Ok(files::write(&directory.join(SUMS), list.as_bytes())?)
}

/// What rendered a report: a tree, which may be a later one than that of the runs, and what of it renders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renderer {
    pub commit: String,
    pub dirty: bool,
    /// `render::version`; none before there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether the results were stale for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// What rendered a directory without a statement.
pub const RENDERER_FILE: &str = "renderer.json";
const RENDERER_SCHEMA: &str = "mxfp4-renderer/1";

#[derive(Serialize, Deserialize)]
struct RendererFile {
    schema: String,
    #[serde(flatten)]
    renderer: Renderer,
}

impl Renderer {
    /// Writes renderer.json.
    pub fn write(&self, directory: &Path) -> Result<(), FileError> {
        let file = RendererFile { schema: RENDERER_SCHEMA.to_owned(), renderer: self.clone() };
        // Text keys alone: cannot fail.
        let text = serde_json::to_string_pretty(&file).unwrap_or_default() + "\n";
        files::write(&directory.join(RENDERER_FILE), text.as_bytes())
    }

    /// What renderer.json says; none where there is none.
    ///
    /// # Errors
    /// A file that does not follow its schema.
    pub fn read(directory: &Path) -> Result<Option<Self>, ProvenanceError> {
        if !directory.join(RENDERER_FILE).exists() {
            return Ok(None);
        }
        let file: RendererFile = read_json(directory, RENDERER_FILE)?;
        let content = |error: OtherSchema| ProvenanceError::Content { file: RENDERER_FILE.to_owned(), what: error.to_string() };
        schema::require(&file.schema, RENDERER_SCHEMA).map_err(content)?;
        Ok(Some(file.renderer))
    }
}

/// Where the statement has its [`Renderer`].
pub(crate) const RENDERER: &str = "/predicate/buildDefinition/internalParameters/rendered_from";
/// Where it has the version of this project.
pub(crate) const PROJECT: &str = "/predicate/runDetails/builder/version/replication";

/// Writes provenance.json: an in-toto Statement v1 with a SLSA provenance v1 predicate about [`SUBJECTS`].
pub fn write_statement(renderer: &Renderer, directory: &Path) -> Result<(), ProvenanceError> {
    files::write(&directory.join(DETERMINISTIC), deterministic(directory)?.as_bytes())?;
    let statement = statement(directory, renderer, env!("CARGO_PKG_VERSION"))?;
    Ok(files::write(&directory.join(STATEMENT), pretty(&statement).as_bytes())?)
}

/// The statement that follows from what lies in the directory.
pub(crate) fn statement(directory: &Path, renderer: &Renderer, project: &str) -> Result<Value, ProvenanceError> {
    let campaign: Campaign = read_json(directory, "campaign.json")?;
    let environment: Environment = read_json(directory, "env.json")?;
    let subject: Vec<Value> = SUBJECTS.iter().map(|name| resource(directory, name)).collect::<Result<_, _>>()?;
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:mxfp4-replication:campaign:1",
                "externalParameters": {
                    "profile": campaign.profile,
                    "papers": campaign.papers,
                    "seeds": campaign.seeds,
                    "device": campaign.device,
                    "partial": campaign.partial,
                },
                "internalParameters": {
                    "campaign_key": campaign.key,
                    "trainer_code_sha256": campaign.trainer_code,
                    "flags": environment.flags,
                    "rendered_from": renderer,
                },
                "resolvedDependencies": dependencies(directory, &campaign, &environment)?,
            },
            "runDetails": {
                "builder": { "id": "urn:mxfp4-replication:xtask", "version": { "replication": project, "rustc": first_line(environment.toolchain.rustc.as_deref()) } },
                "metadata": { "invocationId": campaign.key, "finishedOn": environment.captured },
                "byproducts": [resource(directory, "campaign.json")?, resource(directory, "env.json")?],
            },
        },
    });
    Ok(statement)
}

fn first_line(text: Option<&str>) -> &str {
    text.and_then(|text| text.lines().next()).unwrap_or("unknown")
}

/// A resource descriptor of a file of the directory.
fn resource(directory: &Path, name: &str) -> Result<Value, FileError> {
    Ok(json!({ "name": name, "digest": { "sha256": files::sha256_file(&directory.join(name))? } }))
}

/// The inputs that a run file names.
#[derive(Deserialize)]
struct RunInputs {
    data: RunData,
    tokenizer: RunTokenizer,
}

#[derive(Deserialize)]
struct RunData {
    train: RunShard,
    validation: RunShard,
}

#[derive(Deserialize)]
struct RunShard {
    sha256_bin: String,
    sha256_idx: String,
}

#[derive(Deserialize)]
struct RunTokenizer {
    id: String,
    sha256: String,
}

/// Everything the campaign was made from: commit, Cargo.lock, corpus, token shards, tokenizer, manifests.
fn dependencies(directory: &Path, campaign: &Campaign, environment: &Environment) -> Result<Vec<Value>, ProvenanceError> {
    let mut all = Vec::new();
    if campaign.commit != "none" {
        let mut annotations = json!({ "dirty": campaign.dirty });
        if let Some(diff) = &environment.source.diff_sha256 {
            annotations["diff_sha256"] = json!(diff);
        }
        all.push(json!({ "name": "source", "digest": { "gitCommit": campaign.commit }, "annotations": annotations }));
    }
    // A tokenizer or data set from elsewhere may have no hash; its manifest, which is listed, says so.
    let mut add = |name: String, hash: Option<&String>| {
        if let Some(hash) = hash.filter(|hash| hash.len() == 64) {
            all.push(json!({ "name": name, "digest": { "sha256": hash } }));
        }
    };
    add("Cargo.lock".to_owned(), environment.source.lock_sha256.as_ref());
    let dataset: Dataset = read_yaml(directory, "manifests/dataset.yaml")?;
    if let Some(corpus) = dataset.corpus() {
        add(format!("corpus {}: train", dataset.id()), corpus.train_sha256.as_ref());
        add(format!("corpus {}: validation", dataset.id()), corpus.validation_sha256.as_ref());
    }
    if let Dataset::LocalFiles(LocalFiles { files, .. }) | Dataset::Megatron(Megatron { files, .. }) = &dataset {
        files.iter().for_each(|file| add(format!("corpus {}: {}", dataset.id(), file.name), file.sha256.as_ref()));
    }
    // What the runs themselves were given: the same for all of them.
    if let Some(run) = campaign.runs.first() {
        let run: RunInputs = read_yaml(directory, &format!("runs/{}/{}/run.yaml", run.arm, run.seed))?;
        add(format!("tokenizer {}", run.tokenizer.id), Some(&run.tokenizer.sha256));
        for (part, shard) in [("train", &run.data.train), ("validation", &run.data.validation)] {
            add(format!("tokens {}: {part}.bin", run.tokenizer.id), Some(&shard.sha256_bin));
            add(format!("tokens {}: {part}.idx", run.tokenizer.id), Some(&shard.sha256_idx));
        }
    }
    for name in files::list(directory)?.iter().filter(|name| name.starts_with("manifests/")) {
        all.push(resource(directory, name)?);
    }
    Ok(all)
}

fn read_json<T: serde::de::DeserializeOwned>(directory: &Path, file: &str) -> Result<T, ProvenanceError> {
    let text = files::read_text(&directory.join(file))?;
    serde_json::from_str(&text).map_err(|error| ProvenanceError::Content { file: file.to_owned(), what: error.to_string() })
}

fn read_yaml<T: serde::de::DeserializeOwned>(directory: &Path, file: &str) -> Result<T, ProvenanceError> {
    let text = files::read_text(&directory.join(file))?;
    yaml::from_str(&text).map_err(|error| ProvenanceError::Content { file: file.to_owned(), what: error.to_string() })
}
