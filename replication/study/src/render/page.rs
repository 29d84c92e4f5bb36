//! Everything that a report says, as text: what the HTML and LaTeX templates place. No template computes or rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::figure::Figure;
use super::grid::{Cell, Fact, Grid, numbers, words};
use super::kernel_tables::{self, Section};
use super::public_logs::{self, PublicLogsPage};
use super::{Unfinished, answer, claim_tables, code_objects, readings, run_tables, second};
use crate::files;
use crate::judge::{ClaimVerdict, PaperVerdicts, Verdicts};
use crate::manifest::{Estimator, Paper};
use crate::measure::Measurements;
use crate::measure::load::{Run, seeds_of_arms};
use crate::number;
use crate::plan;
use crate::record;
use crate::same_bytes::SameBytes;

#[derive(Debug, Clone, Serialize)]
pub(super) struct Page {
    pub profile: String,
    pub profile_title: String,
    pub purpose: String,
    pub hardware: String,
    pub machine: Vec<Fact>,
    pub stale: Option<String>,
    /// Of a campaign that is still at work.
    pub unfinished: Option<Unfinished>,
    /// What the page says first.
    pub answer: Vec<String>,
    pub counts: Vec<Fact>,
    /// The same of the directions of claims whose size is judged apart; empty where there are none.
    pub directions: String,
    pub scale: String,
    pub papers: Vec<PaperPage>,
    pub public_logs: Vec<PublicLogsPage>,
    pub arms: Grid,
    /// What single runs can tell apart.
    pub noise: Option<String>,
    /// What columns of the table of arms are.
    pub arms_note: Option<String>,
    /// Judged again by the second version of the rules, paper by paper.
    pub again: Vec<second::Section>,
    /// The parts of each gap.
    pub readings: Option<readings::Section>,
    pub steps: Option<Grid>,
    pub kernels: Option<Grid>,
    pub step_profile: Option<Grid>,
    pub bench: Option<Section>,
    pub bench_origin: String,
    pub code_objects: Option<code_objects::Section>,
    pub runs: Grid,
    pub not_run: Grid,
    pub figures: BTreeMap<String, FigurePage>,
    pub facts: BTreeMap<String, String>,
    pub environment: Grid,
    pub campaign: Grid,
    pub data: Grid,
    pub figure_style: &'static str,
}

/// A figure on the page.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FigurePage {
    pub id: String,
    pub caption: String,
    pub svg: String,
}

/// What the report says about one paper.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PaperPage {
    pub id: String,
    pub title: String,
    pub short: String,
    pub authors: String,
    pub year: String,
    pub url: String,
    /// What it is cited as in the article.
    pub key: String,
    pub named: String,
    pub setting: String,
    pub decision_rule: String,
    pub claims: Grid,
    pub second: Option<second::Section>,
    pub matrix: Option<Grid>,
    pub sources: Vec<Grid>,
    pub why: Grid,
    pub checks: Grid,
}

/// Builds the page from what was measured and judged; `directory` adds the environment and the campaign's own record.
pub(super) fn page(
    directory: &Path,
    measurements: &Measurements,
    (verdicts, again): (&Verdicts, Option<&Verdicts>),
    figures: &[Figure],
    stale: Option<&str>,
) -> Page {
    let study = &measurements.study;
    let campaign = json(&directory.join("campaign.json"));
    let papers = study.papers.iter().zip(&verdicts.papers);
    let (arms, arms_note) = run_tables::arms(measurements);
    Page {
        profile: study.profile.id.to_string(),
        profile_title: study.profile.title.clone(),
        purpose: study.profile.purpose.clone(),
        hardware: study.hardware.title.clone(),
        machine: machine(directory, measurements, &campaign),
        stale: stale.map(str::to_owned),
        unfinished: None,
        answer: answer::sentences(measurements),
        counts: counts(verdicts, stale.is_some()),
        directions: directions(verdicts, stale.is_some()),
        scale: verdicts.scale.clone(),
        papers: papers.map(|(paper, judged)| paper_page(measurements, paper, judged, stale.is_some())).collect(),
        public_logs: public_logs::pages(measurements, verdicts),
        arms,
        noise: run_tables::noise(measurements),
        arms_note,
        again: second::again(&study.again, again),
        readings: readings::section(measurements),
        steps: run_tables::step_times(measurements),
        kernels: run_tables::kernels(measurements),
        step_profile: kernel_tables::step_profile(measurements),
        bench: measurements.kernels_bench.as_ref().map(|document| kernel_tables::section(document, false)),
        bench_origin: kernel_tables::origin(measurements, &campaign),
        code_objects: measurements.code_objects.as_ref().map(code_objects::section),
        runs: run_tables::runs(measurements),
        not_run: claim_tables::not_run(measurements, &verdicts.papers),
        figures: figures.iter().map(|figure| (figure.id.replace('-', "_"), figure_page(figure))).collect(),
        facts: facts(directory, measurements),
        environment: listing("environment", "The machine and its software", &json(&directory.join("env.json"))),
        campaign: listing("campaign", "What was run", &campaign),
        data: data(directory),
        figure_style: super::svg::STYLE,
    }
}

fn figure_page(figure: &Figure) -> FigurePage {
    FigurePage { id: figure.id.to_owned(), caption: figure.caption.clone(), svg: figure.inline.clone() }
}

/// How many claims have each verdict.
fn counts(verdicts: &Verdicts, stale: bool) -> Vec<Fact> {
    let words: Vec<&str> = verdicts.claims().map(|claim| claim_tables::verdict_word(claim, stale)).collect();
    by_word(&words).map(|(word, count)| Fact { name: word.to_owned(), text: count.to_string() }).collect()
}

/// `Their directions, judged apart: 9 reproduced, 1 differs.` A claim counts as decided when its size is, and its direction may be long before.
fn directions(verdicts: &Verdicts, stale: bool) -> String {
    let has_size = |claim: &&ClaimVerdict| !stale && claim.lines.iter().any(|line| line.what == "size");
    let lines = verdicts.claims().filter(has_size).flat_map(|claim| &claim.lines).filter(|line| line.what == "direction");
    let words: Vec<&str> = lines.map(|line| line.verdict.as_str()).collect();
    let counts: Vec<String> = by_word(&words).map(|(word, count)| format!("{count} {word}")).collect();
    if counts.is_empty() { String::new() } else { format!("Their directions, judged apart: {}.", counts.join(", ")) }
}

/// How often each word is there, in a fixed order; words that are not left out.
fn by_word<'a>(words: &'a [&str]) -> impl Iterator<Item = (&'static str, usize)> + 'a {
    let order = ["reproduced", "differs", "inconclusive", "cannot-decide", "stale", "not-run", "failed"];
    let count = |word| words.iter().filter(|other| **other == word).count();
    order.into_iter().map(move |word| (word, count(word))).filter(|(_, count)| *count > 0)
}

/// On what machine, from the campaign's record and the runs' own timing files.
fn machine(directory: &Path, measurements: &Measurements, campaign: &Value) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: &str, text: String| {
        if !text.is_empty() {
            facts.push(Fact { name: name.to_owned(), text });
        }
    };
    let field = |key: &str| campaign.get(key).map(plain).unwrap_or_default();
    add("Machine", field("machine"));
    let session = measurements.runs.iter().find_map(|run| run.sessions.last());
    add("Processor", session.map(|session| session.cpu.clone()).unwrap_or_default());
    let sets = if session.is_some_and(|session| session.gpu.is_some()) { "Architecture" } else { "Instruction set" };
    add(sets, session.map(|session| session.instruction_set.clone()).unwrap_or_default());
    add("Device", measurements.study.hardware.title.clone());
    accelerators(measurements).into_iter().for_each(|(gpu, libraries)| {
        add("GPU", gpu);
        add("Libraries", libraries);
    });
    add("Together", together(measurements));
    add("Runs", partial(measurements, campaign).unwrap_or_default());
    for earlier in campaign.get("carried").and_then(Value::as_array).into_iter().flatten() {
        let shown_by = earlier.get("shown_by").map(plain).unwrap_or_default();
        add("Earlier trainer", format!("some runs were finished by one that computes the same: {shown_by}"));
    }
    add("Same bytes", SameBytes::read(directory).map(|same| same.line(directory)).unwrap_or_default());
    let commit: String = field("commit").chars().take(12).collect();
    let dirty = if field("dirty") == "true" { " with uncommitted changes" } else { "" };
    add("Commit", if commit.is_empty() { commit } else { format!("{commit}{dirty}") });
    facts
}

/// How many GPUs or processes were at work on a run, where some run had several.
fn together(measurements: &Measurements) -> String {
    let sessions = measurements.runs.iter().flat_map(|run| &run.sessions);
    let numbers: BTreeSet<u64> = sessions.clone().map(|session| session.ranks).collect();
    if numbers.iter().all(|ranks| *ranks < 2) {
        return String::new();
    }
    let what = if sessions.clone().any(|session| session.gpu.is_some()) { "GPUs" } else { "processes" };
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("{} {what} a run", numbers.join(" or "))
}

/// How many of the profile's runs are here, where a selection or an unfinished campaign left some out.
fn partial(measurements: &Measurements, campaign: &Value) -> Option<String> {
    let is_partial = campaign.get("partial").and_then(Value::as_bool).unwrap_or(false);
    let profile = &measurements.study.profile;
    let all = plan::all_arms(profile).len() * profile.seeds.len();
    is_partial.then(|| format!("{} of the profile’s {all}", measurements.runs.len()))
}

/// Each kind of GPU with its libraries, from the runs' own timing files; with the number of runs where there are several.
fn accelerators(measurements: &Measurements) -> Vec<(String, String)> {
    let mut found: BTreeMap<(String, String), BTreeSet<(&str, u64)>> = BTreeMap::new();
    for run in &measurements.runs {
        for session in &run.sessions {
            if let Some(gpu) = &session.gpu {
                found.entry((gpu.clone(), session.libraries.join(", "))).or_default().insert((&run.arm, run.seed));
            }
        }
    }
    let several = found.len() > 1;
    let named = |((gpu, libraries), runs): ((String, String), BTreeSet<_>)| {
        (if several { format!("{gpu} ({} runs)", runs.len()) } else { gpu }, libraries)
    };
    found.into_iter().map(named).collect()
}

fn paper_page(measurements: &Measurements, paper: &Paper, verdicts: &PaperVerdicts, stale: bool) -> PaperPage {
    let mut sources: Vec<&str> = Vec::new();
    let matrix = claim_tables::matrix(measurements, paper, verdicts);
    for claim in &paper.claims {
        let in_matrix = matrix.is_some() && claim.source == "Table 1";
        if !sources.contains(&claim.source.as_str()) && !in_matrix {
            sources.push(&claim.source);
        }
    }
    PaperPage {
        id: paper.id.to_string(),
        title: paper.title.clone(),
        short: paper.short.clone(),
        authors: paper.citation.authors.clone(),
        year: paper.citation.year.to_string(),
        url: paper.citation.url.clone(),
        named: paper.named(),
        key: paper.citation.key.chars().filter(char::is_ascii_alphanumeric).collect(),
        setting: paper.setting.clone(),
        decision_rule: paper.decision_rule.clone(),
        claims: claim_tables::claims(paper, verdicts, stale),
        second: second::section(paper, verdicts, ""),
        matrix,
        sources: sources.into_iter().map(|source| claim_tables::by_source(paper, verdicts, source, stale)).collect(),
        why: why(&measurements.study.profile.id, paper, verdicts, stale),
        checks: claim_tables::checks(verdicts),
    }
}

/// Why each verdict is what it is, and the command that measures the claim again.
fn why(profile: &str, paper: &Paper, verdicts: &PaperVerdicts, stale: bool) -> Grid {
    let columns = vec![
        words("Claim", 0.13),
        words("Verdict", 0.14),
        words("Why", 0.34),
        numbers("Seeds or repeats", 0.10),
        words("Measure it again", 0.29),
    ];
    let mut grid = Grid::new(&format!("why-{}", paper.id), "Why each verdict is what it is, and how to rerun it", columns).stacking();
    for claim in &verdicts.claims {
        let flag = if profile == "cpu" { String::new() } else { format!(" --profile {profile}") };
        let cells = vec![
            Cell::new(&claim.id),
            claim_tables::verdict_cell(claim, stale),
            Cell::new(&claim.why),
            Cell::new(if claim.n > 0 { claim.n.to_string() } else { "–".to_owned() }),
            Cell::new(format!("cargo xtask replicate{flag} --only {}", claim.id)).class("code"),
        ];
        grid.row(&claim.id, cells);
    }
    grid
}

/// The numbers and names of the method paragraph.
fn facts(directory: &Path, measurements: &Measurements) -> BTreeMap<String, String> {
    let profile = &measurements.study.profile;
    let manifests = directory.join("manifests");
    let (model, dataset, tokenizer) =
        (yaml(&manifests.join("model.yaml")), yaml(&manifests.join("dataset.yaml")), yaml(&manifests.join("tokenizer.yaml")));
    let text = |value: &serde_yaml::Value, key: &str| value.get(key).map(plain_yaml).unwrap_or_else(|| "unknown".to_owned());
    let first = measurements.runs.iter().find(|run| run.tokens_per_step > 0);
    let per_step = first.map_or(0, |run| run.tokens_per_step);
    let finished = measurements.runs.iter().filter(|run| run.finished()).count();
    let second = measurements.study.papers.first().filter(|paper| paper.judging == 2);
    let [rule, intervals] = if let Some(paper) = second {
        let number = if answer::reported(paper).is_empty() {
            "losses above the baseline’s over the last quarter of the budget"
        } else {
            "extra tokens at a depth that is matched to the paper’s"
        };
        [format!("the verdicts do not rest on them, but on {number}"), "those of the two-way layout of all arms and seeds".to_owned()]
    } else {
        let estimate = match measurements.study.estimator {
            Estimator::Grid => "the verdicts use the grid estimate",
            Estimator::Interpolated => "the verdicts use the interpolated estimate",
        };
        [estimate, "Student’s t over seeds"].map(str::to_owned)
    };
    let entries = [
        ("model", text(&model, "title")),
        ("parameters", first.map_or("unknown".to_owned(), |run| number::thousands(run.parameters as f64))),
        ("layers", text(&model, "num_hidden_layers")),
        ("width", text(&model, "hidden_size")),
        ("feed_forward", text(&model, "intermediate_size")),
        ("vocabulary", text(&model, "vocab_size")),
        ("sequence", text(&model, "sequence_length")),
        ("dataset", text(&dataset, "title")),
        ("tokenizer", text(&tokenizer, "id")),
        ("batch", profile.batch.sequences.to_string()),
        ("steps", number::thousands(profile.budget.steps as f64)),
        ("tokens_per_step", number::thousands(per_step as f64)),
        ("budget_tokens", number::thousands(per_step as f64 * profile.budget.steps as f64)),
        ("every_steps", profile.evaluation.every_steps.to_string()),
        ("evaluation_tokens", number::thousands(per_step as f64 * profile.evaluation.every_steps as f64)),
        ("evaluation_sequences", profile.evaluation.sequences.to_string()),
        ("target", profile.target_loss.map_or("none".to_owned(), |target| number::fixed(target, 2))),
        ("rule", rule),
        ("intervals", intervals),
        ("estimator", measurements.study.estimator.word().to_owned()),
        ("seeds", number::between(seeds_of_arms(&measurements.runs))),
        ("runs", finished.to_string()),
        ("arms", distinct(measurements, |run| run.arm.clone())),
        ("optimizer", inline(&profile.optimizer)),
        ("schedule", inline(&profile.schedule)),
        ("baseline", measurements.study.label(&measurements.baseline).to_owned()),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// How many different values `pick` takes over the campaign's runs.
fn distinct(measurements: &Measurements, pick: fn(&Run) -> String) -> String {
    let values: BTreeSet<String> = measurements.runs.iter().map(pick).collect();
    values.len().to_string()
}

/// Hashes of the training and validation tokens and of the tokenizer, from the first run file: every run names the same.
fn data(directory: &Path) -> Grid {
    let columns = vec![words("File", 0.34), words("SHA-256 or value", 0.66)];
    let mut grid = Grid::new("data", "Data of every run", columns).stacking();
    let Some(run) = record::first_run(directory) else { return grid };
    let run: serde_yaml::Value = contract::yaml::from_str(&run).unwrap_or_default();
    let mut rows = Vec::new();
    for key in ["data", "tokenizer"] {
        if let Some(value) = run.get(key).and_then(|value| serde_json::to_value(value).ok()) {
            flatten(key, &value, &mut rows);
        }
    }
    for (index, (name, value)) in rows.into_iter().enumerate() {
        grid.row(&format!("d{index}"), vec![Cell::new(name), Cell::new(value).class("code")]);
    }
    grid
}

/// A JSON file as a table of names and values; lists of objects (such as the run list) are counted, not listed.
fn listing(id: &str, caption: &str, value: &Value) -> Grid {
    let mut grid = Grid::new(id, caption, vec![words("Name", 0.34), words("Value", 0.66)]).stacking();
    let mut rows = Vec::new();
    flatten("", value, &mut rows);
    for (index, (name, value)) in rows.into_iter().enumerate() {
        grid.row(&format!("{}{index}", &id[..1]), vec![Cell::new(name), Cell::new(value).class("code")]);
    }
    grid
}

fn flatten(name: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('_', " ");
                flatten(&if name.is_empty() { key } else { format!("{name} {key}") }, value, rows);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => rows.push((name.to_owned(), format!("{} entries", items.len()))),
        Value::Array(items) => rows.push((name.to_owned(), items.iter().map(plain).collect::<Vec<_>>().join(", "))),
        Value::Null => {}
        other => rows.push((name.to_owned(), plain(other))),
    }
}

fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

fn plain_yaml(value: &serde_yaml::Value) -> String {
    serde_json::to_value(value).map(|value| plain(&value)).unwrap_or_default()
}

/// `adamw, learning rate 0.002, …`
fn inline(value: &impl Serialize) -> String {
    let Ok(Value::Object(map)) = serde_json::to_value(value) else { return String::new() };
    let parts: Vec<String> = map
        .iter()
        .map(|(key, value)| if key == "name" { plain(value) } else { format!("{} {}", key.replace('_', " "), plain(value)) })
        .collect();
    parts.join(", ")
}

/// A JSON file, or null when it is not there or not JSON: the report then simply lacks those rows.
fn json(path: &Path) -> Value {
    files::read_text(path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
}

fn yaml(path: &Path) -> serde_yaml::Value {
    files::read_text(path).ok().and_then(|text| contract::yaml::from_str(&text).ok()).unwrap_or(serde_yaml::Value::Null)
}
