//! What a reader of all evidence sees first: one picture of the paper's table, and sentences that are made of rows.

use super::super::dots::{DotChart, Point, Reported, Row as DotRow};
use super::super::figure::{Figure, dot_figure};
use super::super::{answer, svg};
use super::{PICTURE, Shown};
use crate::judge::capital;
use crate::manifest::Paper;
use crate::number::{self, Unit};
use crate::synthesis::{Depth, Number, Row, size};

/// So many series are shown before campaigns that end early are left to the table.
const SERIES: usize = 5;
impl Shown<'_> {
    /// A campaign's row on the cost of an arm, from the depth at which the campaign decides.
    fn cost(&self, source: usize, arm: &str) -> Option<(&Row, Number)> {
        let paper = self.main()?;
        let of = &self.synthesis.sources[source];
        let wanted = match (of.public, &of.shallow) {
            (true, _) => Depth::PapersTarget,
            (_, None) => Depth::Matched,
            _ => Depth::Late,
        };
        let mut rows = self.synthesis.rows.iter().filter(|row| row.source == source && row.depth == wanted && row.arm == arm);
        let row = rows.find(|row| row.paper == paper.id.as_str() && row.unit == Unit::SignedPercent)?;
        Some((row, *row.number.as_ref().ok()?))
    }

    /// The sources of the picture, from the largest model: those at the paper's depth first, then those that end early, public logs last.
    /// A campaign all of whose arms another one of the same model and text has with more seeds, or with as many and more runs, is left to the table.
    fn series(&self) -> Vec<usize> {
        let sources = &self.synthesis.sources;
        let arms: Vec<_> = self.main().map(answer::reported).unwrap_or_default();
        let mut series: Vec<usize> = (0..sources.len()).filter(|at| arms.iter().any(|(arm, _)| self.cost(*at, arm).is_some())).collect();
        series.sort_by_key(|at| (std::cmp::Reverse(sources[*at].parameters), *at));
        let (public, ours): (Vec<usize>, Vec<usize>) = series.into_iter().partition(|at| sources[*at].public);
        let (deep, early): (Vec<usize>, Vec<usize>) = ours.into_iter().partition(|at| sources[*at].shallow.is_none());
        let covers = |other: usize, at: usize| {
            let (more, fewer) = (&sources[other], &sources[at]);
            let same = more.parameters == fewer.parameters && more.data == fewer.data;
            let is_more = (more.seeds, more.runs[0]) > (fewer.seeds, fewer.runs[0]);
            same && is_more && arms.iter().all(|(arm, _)| self.cost(at, arm).is_none() || self.cost(other, arm).is_some())
        };
        let deep: Vec<usize> = deep.iter().copied().filter(|at| !deep.iter().any(|other| covers(*other, *at))).collect();
        let public = public.into_iter().take(svg::SERIES / 2).collect::<Vec<_>>();
        let deep: Vec<usize> = deep.into_iter().take(svg::SERIES - public.len()).collect();
        let room = SERIES.saturating_sub(deep.len() + public.len());
        deep.into_iter().chain(early.into_iter().take(room)).chain(public).collect()
    }

    pub(super) fn picture(&self) -> Option<Figure> {
        let paper = self.main()?;
        let (arms, series) = (answer::reported(paper), self.series());
        let point = |arm: &str, (index, source): (usize, &usize)| {
            let (_, number) = self.cost(*source, arm)?;
            let interval = number.interval.map(|ends| (100.0 * ends.low, 100.0 * ends.high));
            Some(Point { value: 100.0 * number.value, interval, series: index })
        };
        let row = |(arm, said): &(&str, Reported)| DotRow::Values {
            label: self.label(arm).to_owned(),
            points: series.iter().enumerate().filter_map(|at| point(arm, at)).collect(),
            note: "no number yet".to_owned(),
            reported: said.clone(),
        };
        let rows = arms.iter().map(row).collect();
        let shallow = |at: &usize| self.synthesis.sources[*at].shallow.is_some();
        let chart = DotChart {
            description: "One row for each arm of the paper's table: bands are what the paper reports, marks what each campaign and the public logs measured, with 95 % intervals; faint marks are from earlier in training than the paper's numbers.".to_owned(),
            faint: series.iter().enumerate().filter(|(_, at)| shallow(at)).map(|(index, _)| index).collect(),
            series: series.iter().map(|at| self.name(*at)).collect(),
            ..answer::chart(paper, self.label(&paper.baseline), rows)?
        };
        let faint = if chart.faint.is_empty() { "" } else { ". Faint: from earlier in training than the paper’s numbers" };
        let caption = format!(
            "Marks: what was measured, with 95 % intervals. Bands: what the paper reports; an arrow at the right: its run did not converge{faint}"
        );
        Some(dot_figure("synthesis", &caption, &chart, PICTURE))
    }

    /// A source in the picture's legend.
    fn name(&self, at: usize) -> String {
        let source = &self.synthesis.sources[at];
        let (size, seeds) = (source.parameters.map(size).unwrap_or_default(), source.seeds_text());
        match (source.public, &source.shallow) {
            (true, _) => source.label.clone(),
            (_, None) => format!("{size}, {seeds}, at the paper’s depth ({})", source.profile),
            _ => format!("{size}, {seeds}, earlier ({})", source.profile),
        }
    }

    /// Sentences, each true by itself and each made of rows.
    pub(super) fn answer(&self) -> Vec<String> {
        let Some(paper) = self.main() else { return Vec::new() };
        let baseline = self.label(&paper.baseline);
        let named = answer::main_arms(paper, &|arm| self.manifests.recipes.get(arm), "without a stabiliser");
        let series = self.series();
        let deep = || series.iter().filter(|at| !self.synthesis.sources[**at].public && self.synthesis.sources[**at].shallow.is_none());
        // A number of one seed has no interval; one that has comes first, however small its model.
        let is_sure = |at: &&usize| named.iter().all(|main| self.cost(**at, main.arm).is_some_and(|(_, number)| number.interval.is_some()));
        let deep = deep().find(is_sure).or_else(|| deep().next());
        let costs = |at: usize| -> Vec<String> {
            named.iter().filter_map(|main| Some(format!("{} {}", whole(&self.cost(at, main.arm)?.1), main.words))).collect()
        };
        let mut said = Vec::new();
        match deep.map(|at| (costs(*at), &self.synthesis.sources[*at])).filter(|(costs, _)| !costs.is_empty()) {
            Some((costs, source)) => said.push(format!(
                "MXFP4 in all linear layers takes more tokens than {baseline}: {} (models of {}, {}, at the paper’s depth of training).",
                costs.join(", "),
                source.parameters.map(size).unwrap_or_default(),
                source.seeds_text()
            )),
            None => said.push("No campaign has measured the two main arms at the paper’s depth of training yet.".to_owned()),
        }
        let papers: Vec<String> =
            named.iter().filter_map(|main| Some(format!("{} {}", answer::said_text(&main.said)?, main.words))).collect();
        let logged = series.iter().find(|at| self.synthesis.sources[**at].public);
        let logs = logged.and_then(|at| Some(format!("{}: {}", self.synthesis.sources[*at].label, costs(*at).first()?)));
        said.push(format!(
            "The paper says {}, at 8B.{}",
            papers.join(" and "),
            logs.map(|text| format!(" {}.", capital(&text))).unwrap_or_default()
        ));
        said.push(self.of_law(&named.iter().map(|main| (main.arm, main.words.as_str())).collect::<Vec<_>>()));
        said.push(self.counts(paper));
        said.push(self.of_size(named.iter().find(|main| main.plain).map(|main| main.arm)));
        said.retain(|text| !text.is_empty());
        said
    }

    /// The rows of campaigns that decide a claim with this word.
    fn rows_with<'a>(&'a self, paper: &'a str, claim: &'a str, word: &str) -> Vec<&'a Row> {
        let rows = self.synthesis.on(paper, claim);
        rows.filter(|row| !self.synthesis.sources[row.source].public && row.word() == word).collect()
    }

    /// How many claims stand where.
    fn counts(&self, paper: &Paper) -> String {
        let next = || self.synthesis.next.iter().filter(|next| next.paper == paper.id.as_str());
        let count = |state: &str| next().filter(|next| next.state == state).count();
        let id = paper.id.as_str();
        let found = |claim: &str, word: &str| !self.rows_with(id, claim, word).is_empty();
        // A claim of a size has a direction, too.
        let only_in_size =
            |claim: &str| self.rows_with(id, claim, "differs").iter().all(|row| row.direction.as_deref() == Some("reproduced"));
        let claims = |words: &str, is_meant: &dyn Fn(bool, bool, &str) -> bool| {
            let claims = next().map(|next| next.claim.as_str());
            let claims = claims.filter(|claim| is_meant(found(claim, "reproduced"), found(claim, "differs"), claim));
            let named: Vec<&str> = claims.collect();
            (!named.is_empty()).then(|| format!("{words}: {}", named.join(", ")))
        };
        let stand = [
            claims("reproduced", &|reproduced, differs, _| reproduced && !differs),
            claims("as reported in direction and not in size", &|reproduced, differs, claim| !reproduced && differs && only_in_size(claim)),
            claims("not as reported", &|reproduced, differs, claim| !reproduced && differs && !only_in_size(claim)),
            claims("reproduced in one campaign and not in another", &|reproduced, differs, _| reproduced && differs),
        ];
        format!(
            "Of the paper’s {} claims {} are decided by at least one campaign ({}), {} are open and {} were not run.",
            next().count(),
            count("decided"),
            stand.into_iter().flatten().collect::<Vec<_>>().join("; "),
            count("open"),
            count("not run")
        )
    }

    /// What the model's size does to the cost of the plain pipeline.
    fn of_size(&self, arm: Option<&str>) -> String {
        let of = |depth: Depth| self.synthesis.trends.iter().find(|trend| Some(trend.arm.as_str()) == arm && trend.depth == depth);
        let Some(trend) = of(Depth::Matched).or_else(|| of(Depth::Late)) else {
            return "Nothing is known of what the model’s size does to that: it takes two sizes at one depth of training.".to_owned();
        };
        let sizes: Vec<String> = trend.points.iter().map(|point| size(point.parameters)).collect();
        format!(
            "Ten times the parameters change the count of tokens without a stabiliser by {} ({}, {}).",
            trend.tenfold.text(trend.unit),
            sizes.join(", "),
            trend.depth.word()
        )
    }
}

/// Whole percents: `+22 % [20, 25]`.
fn whole(number: &Number) -> String {
    let percent = |value: f64| number::signed(100.0 * value, 0);
    let interval = number.interval.map(|ends| format!(" [{},{}{}]", percent(ends.low), number::SPACE, percent(ends.high)));
    format!("{}{}%{}", percent(number.value), number::SPACE, interval.unwrap_or_default())
}
