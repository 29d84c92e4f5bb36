//! Measurements and verdicts as files for readers: CSV, SVG, PGFPlots, booktabs, HTML and LaTeX.
//!
//! `crate::number` turns numbers into text once; `claim_tables`, `run_tables` and `figures` decide what is shown; `page` collects it;
//! the templates in `paper/` place it. Nothing here measures or judges.

mod answer;
mod charts;
mod claim_tables;
mod code_objects;
mod costs;
mod dots;
mod figure;
mod figures;
mod grid;
mod kernel_tables;
mod latex;
mod live;
mod page;
mod pgf;
mod public_logs;
mod readings;
mod run_tables;
mod second;
mod stretches;
mod svg;
mod synthesis;
mod tried;

pub use kernel_tables::kernels_page;
pub use live::{Live, LiveRun, live};
pub use synthesis::{SynthesisPages, synthesis};
pub use tried::tried;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};
use serde::Serialize;
use thiserror::Error;

use crate::exit::{self, ExitCode};
use crate::files::{self, FileError};
use crate::judge::{self, VERDICTS_AGAIN, Verdicts};
use crate::measure::{self, MeasureError, Measurements, measure};
use crate::public_logs as logs;
use crate::table::{Flag, Number, Table, TableError};

use grid::Grid;
use latex::Macros;
use page::Page;

const HTML: &str = "report.html";
const TEX: &str = "report.tex";
/// Folders that hold nothing but what is rendered.
pub(crate) const FOLDERS: [&str; 2] = ["figures/", "tables/"];
/// Of the files in them.
const ENDINGS: [&str; 3] = [".svg", ".tex", ".csv"];

/// The largest report that may be written: one that opens at once, also on a phone.
pub const LARGEST_HTML: usize = 5_000_000;

/// What the caller knows that the directory does not.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// The code has changed since. Laid over every measured verdict.
    pub stale: bool,
}

/// What a report says first of a campaign that is still at work.
#[derive(Debug, Clone, Serialize)]
pub struct Unfinished {
    /// Runs that it is made of, and those that there will be.
    pub finished: usize,
    pub all: usize,
    /// When it was made, for people.
    pub at: String,
    /// Seconds after which a browser loads it again.
    pub reload: u64,
}

/// What a stale report says of itself.
pub const STALE: &str = "what the trainer computes has changed since these runs";

/// What renders here: this crate's sources and the templates. Programs with the same one write the same bytes.
pub fn version(templates: &Path) -> String {
    let hash = |name: String| files::sha256_file(&templates.join(name)).unwrap_or_default();
    let hashes: String = files::list(templates).unwrap_or_default().into_iter().map(hash).collect();
    format!("{}-{}", env!("STUDY_SOURCES"), &files::sha256(hashes.as_bytes())[..16])
}

#[derive(Debug, Clone)]
pub struct RenderSummary {
    pub html: PathBuf,
    pub tex: PathBuf,
    /// Everything that LaTeX reads, `report.tex` among it, relative to the directory.
    pub latex: Vec<String>,
    /// The verdicts, as written to `verdicts.json`.
    pub verdicts: Verdicts,
    /// Things the reader should know, one line each.
    pub warnings: Vec<String>,
}

/// Why a report could not be rendered.
#[derive(Debug, Error)]
pub enum RenderError {
    /// The directory could not be measured, or a file not written.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("cannot read the template {}: {source}", path.display())]
    Template {
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A template names something that does not exist, or is not well formed.
    #[error("template {name}: {source}")]
    Render {
        name: &'static str,
        /// What the template engine said, with the line.
        source: Box<minijinja::Error>,
    },
    /// A number could not be written as JSON.
    #[error("cannot write verdicts as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The page would be larger than its budget.
    #[error("{name} would have {bytes} bytes, more than the budget of {budget}; {}", if *name == HTML { "log fewer evaluations or fewer seeds" } else { "name fewer directories" })]
    TooLarge { name: &'static str, bytes: usize, budget: usize },
}

impl ExitCode for RenderError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Measure(error) => error.exit_code(),
            Self::File(error) | Self::Table(TableError::File(error)) => error.exit_code(),
            Self::Template { .. } => exit::DATA,
            Self::Table(TableError::Csv { .. }) | Self::Render { .. } | Self::Json(_) | Self::TooLarge { .. } => exit::FAILED,
        }
    }
}

/// Measures and judges the result directory at `directory`, and writes data/, verdicts.json, figures/, tables/, macros.tex,
/// report.html and report.tex into it. Runs and raw measurements are only read.
///
/// # Errors
/// When the directory does not follow its schema, a template is wrong, or a file cannot be written.
pub fn render(directory: &Path, templates: &Path, options: &RenderOptions) -> Result<RenderSummary, RenderError> {
    let measurements = measure(directory)?;
    let (verdicts, again) = (judge::judge(&measurements), judge::judge_again(&measurements));
    for table in tables(&measurements, [Some(&verdicts), again.as_ref()]) {
        table.write(&directory.join("data"))?;
    }
    if let Some(again) = &again {
        files::write(&directory.join(VERDICTS_AGAIN), again.json()?.as_bytes())?;
    }
    files::write(&directory.join("verdicts.json"), verdicts.json()?.as_bytes())?;
    let (mut latex, mut all) = (Vec::new(), pages(directory, &measurements, (&verdicts, again.as_ref()), templates, options)?);
    remove_earlier(directory, &all.iter().map(|(name, _)| name.as_str()).collect())?;
    for (name, text) in &mut all {
        files::write(&directory.join(&*name), text.as_bytes())?;
        if ![".svg", ".html"].iter().any(|ending| name.ends_with(ending)) {
            latex.push(std::mem::take(name));
        }
    }
    Ok(RenderSummary { html: directory.join(HTML), tex: directory.join(TEX), latex, warnings: warnings(&measurements), verdicts })
}

/// Removes what an earlier version of the renderer wrote under names that are none of `names`: its kinds of files, in its folders.
fn remove_earlier(directory: &Path, names: &BTreeSet<&str>) -> Result<(), FileError> {
    for folder in FOLDERS.into_iter().filter(|folder| directory.join(folder).is_dir()) {
        for name in files::list(&directory.join(folder))?.into_iter().map(|name| format!("{folder}{name}")) {
            if ENDINGS.iter().any(|ending| name.ends_with(ending)) && !names.contains(name.as_str()) {
                files::remove(&directory.join(name))?;
            }
        }
    }
    Ok(())
}

/// Everything that [`render`] writes besides verdicts and `data/`: names in the directory and texts.
pub(crate) fn pages(
    directory: &Path,
    measurements: &Measurements,
    verdicts: (&Verdicts, Option<&Verdicts>),
    templates: &Path,
    options: &RenderOptions,
) -> Result<Vec<(String, String)>, RenderError> {
    let figures = figures::all(measurements);
    let mut all = Vec::new();
    for figure in &figures {
        all.push((format!("figures/{}.svg", figure.id), figure.standalone.clone()));
        all.push((format!("figures/{}.tex", figure.id), figure.pgf.clone()));
        all.push((format!("figures/{}", figure.data.name), figure.data.csv()?.to_owned()));
    }
    let page = page::page(directory, measurements, verdicts, &figures, options.stale.then_some(STALE));
    all.push((HTML.to_owned(), render_html(&page, templates)?));
    all.extend(latex_files(&page, templates)?);
    Ok(all)
}

/// The report of a campaign that is still at work: report.html of the directory at `directory`, which says how far the campaign is and asks a
/// browser to load it again. Nothing is written.
///
/// # Errors
/// As of [`render`].
pub fn unfinished(directory: &Path, templates: &Path, unfinished: Unfinished) -> Result<String, RenderError> {
    let measurements = measure(directory)?;
    let page = page::page(directory, &measurements, (&judge::judge(&measurements), None), &figures::all(&measurements), None);
    render_html(&Page { unfinished: Some(unfinished), ..page }, templates)
}

/// Every table of `data/`.
pub(crate) fn tables(measurements: &Measurements, [verdicts, again]: [Option<&Verdicts>; 2]) -> Vec<Table> {
    let mut all = measure::tables::all(measurements);
    all.extend(logs::tables(measurements));
    all.extend(verdicts.map(claims_table));
    all.extend(second::tables(measurements, verdicts.into_iter().chain(again)));
    all.extend(measure::readings::table(measurements));
    all
}

/// The tables that the second version of the rules adds.
pub fn tables_of_second(measurements: &Measurements, verdicts: &Verdicts) -> Vec<Table> {
    second::tables(measurements, std::iter::once(verdicts))
}

/// One claim in `data/claims.csv`; numbers in the claim's own unit, not as percentages.
#[derive(Default, Serialize)]
struct ClaimRow<'a> {
    paper: &'a str,
    claim: &'a str,
    verdict: &'a str,
    reason: Option<&'a str>,
    evidence: Option<&'static str>,
    number: Option<Number>,
    low: Option<Number>,
    high: Option<Number>,
    lower_bound: Flag,
    n: usize,
    reported_low: Option<Number>,
    reported_high: Option<Number>,
    tolerance: Option<Number>,
}

fn claims_table(verdicts: &Verdicts) -> Table {
    let claims = verdicts.papers.iter().flat_map(|paper| paper.claims.iter().map(move |claim| (paper, claim)));
    let rows = claims.map(|(paper, claim)| ClaimRow {
        paper: &paper.paper,
        claim: &claim.id,
        verdict: &claim.verdict,
        reason: claim.reason.as_deref(),
        evidence: claim.evidence.map(|evidence| evidence.word()),
        number: claim.number.map(Number),
        low: claim.interval.map(|[low, _]| Number(low)),
        high: claim.interval.map(|[_, high]| Number(high)),
        lower_bound: Flag(claim.lower_bound),
        n: claim.n,
        reported_low: claim.reported.map(|[low, _]| Number(low)),
        reported_high: claim.reported.map(|[_, high]| Number(high)),
        tolerance: claim.tolerance.map(Number),
    });
    Table::of("claims.csv", rows)
}

/// What a reader of the terminal should hear about the data.
fn warnings(measurements: &Measurements) -> Vec<String> {
    let unfinished = measurements.runs.iter().filter(|run| !run.finished()).count();
    let mut warnings = Vec::new();
    if unfinished > 0 {
        warnings.push(format!("{unfinished} of {} runs failed or are unfinished; their claims say so", measurements.runs.len()));
    }
    warnings
}

fn template(templates: &Path, name: &str) -> Result<String, RenderError> {
    let path = templates.join(name);
    files::read_text(&path).map_err(|error| RenderError::Template { path, source: error.source })
}

fn render_html(page: &Page, templates: &Path) -> Result<String, RenderError> {
    let text = html("report.html.j2", templates, context! { page => Value::from(Serde(page)) })?;
    if text.len() > LARGEST_HTML {
        return Err(RenderError::TooLarge { name: HTML, bytes: text.len(), budget: LARGEST_HTML });
    }
    Ok(text)
}

/// A page from its template, with the style and the table that all pages share.
fn html(name: &'static str, templates: &Path, context: Value) -> Result<String, RenderError> {
    let shared = ["style.css", "table.html.j2"].map(|name| template(templates, name).map(|source| (name, source)));
    let source = template(templates, name)?;
    let failed = |source: minijinja::Error| RenderError::Render { name, source: Box::new(source) };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_formatter(|output, _state, value| {
        let text = value.to_string();
        output.write_str(&if value.is_safe() { text } else { svg::escape(&text) }).map_err(minijinja::Error::from)
    });
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(failed)?;
    environment.set_syntax(syntax);
    for shared in shared {
        let (name, source) = shared?;
        environment.add_template_owned(name, source).map_err(failed)?;
    }
    environment.add_template(name, &source).map_err(failed)?;
    environment.get_template(name).and_then(|template| template.render(context)).map_err(failed)
}

/// tables/*.tex, macros.tex, references.bib and report.tex.
fn latex_files(page: &Page, templates: &Path) -> Result<Vec<(String, String)>, RenderError> {
    let (mut macros, mut all) = (Macros::default(), Vec::new());
    for grid in grids(page) {
        all.push((format!("tables/{}.tex", grid.id), latex::booktabs(grid, &mut macros)));
    }
    let facts: std::collections::BTreeMap<String, Value> = page
        .facts
        .iter()
        .map(|(key, text)| (key.clone(), Value::from_safe_string(macros.define(&format!("fact.{}", key.replace('_', "-")), text))))
        .collect();
    let counts: Vec<Value> = page
        .counts
        .iter()
        .map(|count| context! { name => &count.name, text => Value::from_safe_string(macros.define(&format!("count.{}", count.name), &count.text)) })
        .collect();
    let context = context! { page => Value::from(Serde(page)), facts => facts, counts => counts };
    let text = latex_document("report.tex.j2", templates, context)?;
    all.extend(
        [("macros.tex", macros.file()), ("references.bib", references(&page.papers)), (TEX, text)]
            .map(|(name, text)| (name.to_owned(), text)),
    );
    Ok(all)
}

/// The papers as BibTeX has them. Names are told apart by semicolons in manifests.
fn references(papers: &[page::PaperPage]) -> String {
    let entry = |paper: &page::PaperPage| {
        let authors = latex::escape(&paper.authors).replace("; ", " and ");
        let (title, named) = (latex::escape(&paper.title), latex::escape(&paper.named));
        format!(
            "@misc{{{},\n  author = {{{authors}}},\n  title = {{{{{title}}}}},\n  year = {{{}}},\n  note = {{{named}}},\n}}\n",
            paper.key, paper.year
        )
    };
    papers.iter().map(entry).collect::<Vec<_>>().join("\n")
}

/// A LaTeX document from its template.
fn latex_document(name: &'static str, templates: &Path, context: Value) -> Result<String, RenderError> {
    let source = template(templates, name)?;
    let failed = |source: minijinja::Error| RenderError::Render { name, source: Box::new(source) };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|output, _state, value| {
        let text = value.to_string();
        let safe = value.is_safe() || value.is_number();
        output.write_str(&if safe { text } else { latex::escape(&text) }).map_err(minijinja::Error::from)
    });
    let syntax = SyntaxConfig::builder()
        .block_delimiters("\\BLOCK{", "}")
        .variable_delimiters("\\VAR{", "}")
        .comment_delimiters("\\#{", "}")
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(failed)?;
    environment.set_syntax(syntax);
    environment.add_template(name, &source).map_err(failed)?;
    environment.get_template(name).and_then(|template| template.render(context)).map_err(failed)
}

/// Every table of the report, each once.
fn grids(page: &Page) -> Vec<&Grid> {
    let mut grids: Vec<&Grid> = Vec::new();
    for paper in &page.papers {
        grids.extend([&paper.claims, &paper.why, &paper.checks]);
        grids.extend(paper.matrix.as_ref());
        grids.extend(paper.second.iter().flat_map(second::Section::grids));
        grids.extend(&paper.sources);
    }
    grids.extend(page.again.iter().flat_map(second::Section::grids));
    grids.extend(page.readings.as_ref().map(|readings| &readings.parts));
    grids.extend([&page.arms, &page.runs, &page.not_run, &page.environment, &page.campaign, &page.data]);
    grids.extend([&page.steps, &page.kernels, &page.step_profile].into_iter().flatten());
    grids.extend(page.bench.iter().flat_map(kernel_tables::Section::grids));
    grids.extend(page.code_objects.iter().flat_map(code_objects::Section::grids));
    for logs in &page.public_logs {
        grids.extend([&logs.claims, &logs.groups, &logs.decomposition, &logs.baselines]);
    }
    grids
}
