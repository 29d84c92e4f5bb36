//! The page of all evidence: a picture and a sentence first, then each claim in each campaign, and what follows from them together.

mod first;
mod law;

use std::path::Path;

use minijinja::context;
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::figure::Figure;
use super::grid::{Cell, Grid, numbers, words};
use super::latex::{self, Macros};
use super::{RenderError, html, latex_document, svg};
use crate::files;
use crate::manifest::{Claim, Manifests, Metric, Paper};
use crate::number::{self, Unit};
use crate::synthesis::{Depth, Part, Place, Row, Source, Synthesis, Trend, size, table};

/// The largest page that may be written.
const LARGEST: usize = 2_000_000;
/// The data that the picture on paper reads.
const PICTURE: &str = "synthesis.csv";

/// What a synthesis is written as, beside the PDF.
#[derive(Debug, Clone)]
pub struct SynthesisPages {
    pub html: String,
    pub csv: String,
    pub svg: String,
    /// Names and texts of what LaTeX reads; the document is `report.tex`.
    pub latex: Vec<(String, String)>,
    /// Hash of all of that: the PDF carries it, so that nobody has to compile it to know what it was made from.
    pub source: String,
    /// What the page says first.
    pub answer: Vec<String>,
}

/// A named place, where there is one to lead to.
#[derive(Debug, Clone, Serialize)]
struct Link {
    name: String,
    text: String,
    link: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
struct PaperPart {
    id: String,
    named: String,
    title: String,
    url: String,
    setting: String,
    claims: Grid,
    next: Grid,
}

#[derive(Debug, Clone, Serialize)]
struct Page {
    answer: Vec<String>,
    picture: Option<String>,
    caption: String,
    papers: Vec<PaperPart>,
    together: Option<Grid>,
    trends: Option<Grid>,
    no_trend: String,
    law: law::Part,
    disagreements: Vec<Link>,
    sources: Grid,
    links: Vec<Link>,
    others: Vec<Link>,
    left_out: Vec<Link>,
    notes: Vec<String>,
    figure_style: &'static str,
}

/// Everything that is written of a synthesis; deterministic, and without a path or a date of its own.
///
/// # Errors
/// When a template is wrong or the page would be too large.
pub fn synthesis(synthesis: &Synthesis, manifests: &Manifests, templates: &Path) -> Result<SynthesisPages, RenderError> {
    let shown = Shown { synthesis, manifests };
    let figure = shown.picture();
    let page = shown.page(figure.as_ref());
    let html = html("synthesis.html.j2", templates, context! { page => Value::from(Serde(&page)) })?;
    if html.len() > LARGEST {
        return Err(RenderError::TooLarge { name: "index.html", bytes: html.len(), budget: LARGEST });
    }
    let svg = figure.as_ref().map(|figure| figure.standalone.clone()).unwrap_or_default();
    let csv = table(synthesis).csv()?.to_owned();
    let mut latex = latex_files(&page, figure.as_ref(), &shown.law_figures(), templates)?;
    let source = files::sha256(latex.iter().map(|(name, text)| format!("{name}\n{text}\n")).collect::<String>().as_bytes());
    latex.push(("source.tex".to_owned(), format!("\\def\\sourcehash{{{source}}}\n")));
    Ok(SynthesisPages { html, csv, svg, latex, source, answer: page.answer })
}

fn latex_files(
    page: &Page,
    figure: Option<&Figure>,
    law_figures: &[Figure],
    templates: &Path,
) -> Result<Vec<(String, String)>, RenderError> {
    let (mut macros, mut all) = (Macros::default(), Vec::new());
    let grids = page
        .papers
        .iter()
        .flat_map(|paper| [&paper.claims, &paper.next])
        .chain(&page.together)
        .chain(&page.trends)
        .chain(&page.law.grids)
        .chain([&page.sources]);
    for grid in grids {
        all.push((format!("tables/{}.tex", grid.id), latex::booktabs(grid, &mut macros)));
    }
    if let Some(figure) = figure {
        all.push(("figures/picture.tex".to_owned(), figure.pgf.clone()));
        all.push((format!("figures/{PICTURE}"), figure.data.csv()?.to_owned()));
    }
    for figure in law_figures {
        all.push((format!("figures/{}.tex", figure.id), figure.pgf.clone()));
        all.push((format!("figures/{}.csv", figure.id), figure.data.csv()?.to_owned()));
    }
    let text = latex_document("synthesis.tex.j2", templates, context! { page => Value::from(Serde(page)) })?;
    all.extend([("macros.tex".to_owned(), macros.file()), (super::TEX.to_owned(), text)]);
    Ok(all)
}

struct Shown<'a> {
    synthesis: &'a Synthesis,
    manifests: &'a Manifests,
}

impl Shown<'_> {
    fn main(&self) -> Option<&Paper> {
        self.synthesis.papers.first()
    }

    fn label<'b>(&'b self, arm: &'b str) -> &'b str {
        self.manifests.recipes.get(arm).map_or(arm, |recipe| recipe.label.as_str())
    }

    fn page(&self, figure: Option<&Figure>) -> Page {
        let Synthesis { papers, sources, others, left_out, disagreements, notes, .. } = self.synthesis;
        let link = |name: &str, text: String, link: Option<&String>| Link { name: name.to_owned(), text, link: link.cloned() };
        let trends: Vec<&Trend> = self.synthesis.trends.iter().collect();
        Page {
            answer: self.answer(),
            picture: figure.map(|figure| figure.inline.clone()),
            caption: figure.map(|figure| figure.caption.clone()).unwrap_or_default(),
            papers: papers.iter().filter_map(|paper| self.paper(paper)).collect(),
            together: self.together(),
            trends: (!trends.is_empty()).then(|| self.trends(&trends)),
            no_trend: "No two campaigns differ in the model’s size and in nothing else, so nothing is said of size.".to_owned(),
            law: self.law(),
            disagreements: disagreements.iter().map(|found| link(&found.claim, found.text.clone(), None)).collect(),
            sources: self.sources(),
            links: sources
                .iter()
                .filter(|source| source.link.is_some())
                .map(|source| link(&source.label, source.name.clone(), source.link.as_ref()))
                .collect(),
            others: others.iter().map(|other| link(&other.name, other.what.to_owned(), other.link.as_ref())).collect(),
            left_out: left_out.iter().map(|left| link(&left.name, left.why.clone(), None)).collect(),
            notes: notes.clone(),
            figure_style: svg::STYLE,
        }
    }

    fn paper(&self, paper: &Paper) -> Option<PaperPart> {
        let asked = |at: &usize| self.synthesis.rows.iter().any(|row| row.paper == paper.id.as_str() && row.source == *at);
        let sources: Vec<usize> = (0..self.synthesis.sources.len()).filter(asked).collect();
        if sources.is_empty() {
            return None;
        }
        // Public logs last.
        let (public, ours): (Vec<usize>, Vec<usize>) = sources.into_iter().partition(|at| self.synthesis.sources[*at].public);
        let columns = vec![
            words("Campaign", 0.25),
            words("Verdict", 0.25),
            numbers("At the paper’s depth", 0.20),
            numbers("Last quarter", 0.15),
            numbers("Own target", 0.15),
        ];
        let caption = "Each claim in every campaign that says something about it, from the smallest model to the largest, then public logs";
        let mut grid = Grid::new(&format!("evidence-{}", paper.id), caption, columns).stacking();
        let mut next = Grid::new(
            &format!("next-{}", paper.id),
            "Where each claim stands",
            vec![words("Claim", 0.12), words("State", 0.12), words("What decided it, or would", 0.72)],
        )
        .stacking();
        for claim in &paper.claims {
            if matches!(claim.metric, Metric::SameAs { .. }) {
                continue;
            }
            let lines: Vec<Vec<Cell>> = ours.iter().chain(&public).filter_map(|at| self.line(paper, claim, *at)).collect();
            if !lines.is_empty() {
                grid.heading(&format!("{}. {} (the paper: {})", claim.id, claim.statement, reported(claim)));
            }
            for (number, cells) in lines.into_iter().enumerate() {
                grid.row(&format!("{}-{number}", claim.id), cells);
            }
            if let Some(found) = self.synthesis.next.iter().find(|next| next.paper == paper.id.as_str() && next.claim == claim.id.as_str())
            {
                next.row(
                    claim.id.as_str(),
                    vec![Cell::new(claim.id.as_str()).class("claim"), found.state.into(), found.text.as_str().into()],
                );
            }
        }
        Some(PaperPart {
            id: paper.id.to_string(),
            title: paper.title.clone(),
            url: paper.citation.url.clone(),
            named: paper.named(),
            setting: paper.setting.clone(),
            claims: grid,
            next,
        })
    }

    /// One claim in one campaign: the verdict, and the number at each depth; none where it was not run.
    fn line(&self, paper: &Paper, claim: &Claim, source: usize) -> Option<Vec<Cell>> {
        let rows: Vec<&Row> = self.synthesis.on(paper.id.as_str(), claim.id.as_str()).filter(|row| row.source == source).collect();
        let row = rows.iter().find(|row| row.verdict.is_some()).or(rows.first())?;
        let (word, reason) = row.verdict.clone().unwrap_or_default();
        if word == "not-run" {
            return None;
        }
        let mut verdict = Cell::new(&word).class(format!("verdict {word}"));
        let is_said = self.synthesis.sources[source].shallow.is_some();
        verdict.detail = if row.number.is_err() { row.text() } else { reason.filter(|_| !is_said).unwrap_or_default() };
        // A number without a depth is a ratio of times, say.
        let without_depth = rows.iter().filter(|row| row.depth == Depth::None && row.number.is_ok());
        verdict.lines = without_depth.map(|row| row.text()).collect();
        let at = |depths: &[Depth]| {
            let found = rows.iter().find(|row| depths.contains(&row.depth) && row.number.is_ok());
            let number = found.and_then(|row| Some((row.number.as_ref().ok()?, row.unit)));
            number.map_or(Cell::new("–").class("absent"), |(number, unit)| {
                Cell::new(unit.number(number.value)).detail(number.interval_text(unit))
            })
        };
        let depths = [&[Depth::Matched, Depth::PapersTarget][..], &[Depth::Late], &[Depth::OwnTarget]];
        Some([Cell::new(self.head(source)), verdict].into_iter().chain(depths.map(at)).collect())
    }

    /// A campaign at the head of its line.
    fn head(&self, at: usize) -> String {
        let source = &self.synthesis.sources[at];
        if source.shallow.is_some() { format!("{}, earlier", source.label) } else { source.label.clone() }
    }

    /// None where no two campaigns of one setting have other seeds.
    fn together(&self) -> Option<Grid> {
        let columns = vec![
            words("Arm", 0.14),
            words("Model, batch", 0.12),
            words("Each campaign", 0.40),
            numbers("All seeds together", 0.19),
            words("The paper", 0.15),
        ];
        let caption = "Extra tokens at the paper’s depth, all seeds of one model and batch together: an estimate, and no verdict";
        let mut grid = Grid::new("together", caption, columns).stacking();
        for (index, all) in self.synthesis.together.iter().enumerate() {
            let campaign = |part: &Part| {
                let (source, number) = (&self.synthesis.sources[part.source], part.number.text(Unit::SignedPercent));
                format!(
                    "{}: {number}, {} seeds, a run scatters {}",
                    source.profile,
                    part.number.n,
                    Unit::Percent.number(part.scatter.exp_m1())
                )
            };
            let mut campaigns = all.parts.iter().map(campaign);
            let mut each = Cell::new(campaigns.next().unwrap_or_default());
            each.lines = campaigns.collect();
            let batch = all.parts.first().and_then(|part| self.synthesis.sources[part.source].batch);
            let batch = batch.map(|tokens| format!("{} tokens a step", number::thousands(tokens as f64)));
            let apart = format!("{} seeds; the campaigns are {} standard errors apart", all.number.n, number::fixed(all.apart, 1));
            grid.row(
                &format!("{index}-{}", all.claim),
                vec![
                    Cell::new(self.label(&all.arm)).detail(&all.claim),
                    Cell::new(size(all.parameters)).detail(batch.unwrap_or_default()),
                    each,
                    Cell::new(all.number.text(Unit::SignedPercent)).detail(apart),
                    Cell::new(self.claim(&all.paper, &all.claim).map(reported).unwrap_or_default())
                        .detail(all.place.map(Place::words).unwrap_or_default()),
                ],
            );
        }
        (!self.synthesis.together.is_empty()).then_some(grid)
    }

    fn claim(&self, paper: &str, claim: &str) -> Option<&Claim> {
        let of = self.synthesis.papers.iter().find(|known| known.id.as_str() == paper)?;
        of.claims.iter().find(|known| known.id.as_str() == claim)
    }

    fn trends(&self, trends: &[&Trend]) -> Grid {
        let columns = vec![
            words("Arm", 0.16),
            words("Depth", 0.10),
            words("Measured", 0.36),
            numbers("Ten times the parameters", 0.20),
            words("The paper", 0.12),
        ];
        let mut grid =
            Grid::new("trends", "What the model’s size does: a straight line in the logarithm of parameters", columns).stacking();
        for (index, trend) in trends.iter().enumerate() {
            let claim = self.claim(&trend.paper, &trend.claim);
            let points: Vec<String> =
                trend.points.iter().map(|point| format!("{}: {}", size(point.parameters), point.number.text(trend.unit))).collect();
            let misfit = match trend.misfit {
                Some(misfit) => format!("{} standard errors off the line", number::fixed(misfit.sqrt(), 1)),
                None => "two sizes: nothing checks that the line is straight".to_owned(),
            };
            let mut measured = Cell::new(points.first().cloned().unwrap_or_default());
            measured.lines = points.into_iter().skip(1).collect();
            grid.row(
                &format!("{index}-{}", trend.claim),
                vec![
                    Cell::new(self.label(&trend.arm)).detail(&trend.claim),
                    trend.depth.word().into(),
                    measured,
                    Cell::new(trend.tenfold.text(trend.unit)).detail(misfit),
                    Cell::new(claim.filter(|_| trend.depth == Depth::Matched).map(reported).unwrap_or_default()),
                ],
            );
        }
        grid
    }

    fn sources(&self) -> Grid {
        let columns = vec![
            words("Source", 0.30),
            numbers("Parameters", 0.10),
            numbers("Tokens of a run", 0.10),
            numbers("Runs", 0.10),
            words("Hardware; text and tokenizer", 0.22),
            words("Depth", 0.16),
        ];
        let mut grid = Grid::new("sources", "Where the evidence comes from", columns).stacking();
        for (index, source) in self.synthesis.sources.iter().enumerate() {
            let count = |value: Option<u64>| value.map_or_else(|| "–".to_owned(), |value| number::thousands(value as f64));
            grid.row(
                &index.to_string(),
                vec![
                    Cell::new(&source.label).detail(&source.name),
                    Cell::new(count(source.parameters)),
                    Cell::new(count(source.tokens)),
                    Cell::new(runs(source)),
                    Cell::new(&source.hardware).detail(source.data.as_deref().unwrap_or_default()),
                    Cell::new(depth(source)),
                ],
            );
        }
        grid
    }
}

fn runs(source: &Source) -> String {
    let [ours, theirs] = source.runs;
    match (source.public, ours < theirs) {
        (true, _) => format!("{ours} against {theirs}"),
        (_, true) => format!("{ours} of {theirs}, {}", source.seeds_text()),
        _ => format!("{ours}, {}", source.seeds_text()),
    }
}

fn depth(source: &Source) -> String {
    match (source.public, &source.shallow) {
        (true, _) => "the paper’s target; nobody controlled what else differs".to_owned(),
        (_, None) => "the paper’s".to_owned(),
        (_, Some(why)) => why.clone(),
    }
}

/// What the paper says of a claim.
fn reported(claim: &Claim) -> String {
    match (&claim.metric, claim.reported) {
        (Metric::DoesNotConverge { .. }, _) => "DNC".to_owned(),
        (metric, Some([low, high])) => metric.unit().reported(low, high),
        _ => "holds".to_owned(),
    }
}
