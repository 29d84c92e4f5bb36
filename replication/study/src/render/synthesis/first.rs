//! What a reader of all evidence sees first: one picture of the paper's table, and sentences that are made of rows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::super::dots::{DotChart, Point, Reported, Row as DotRow};
use super::super::figure::{Figure, dot_figure};
use super::super::{answer, svg};
use super::{PICTURE, Shown};
use crate::judge::capital;
use crate::manifest::Paper;
use crate::number::{self, Unit};
use crate::synthesis::{self, Depth, Number, Row, seeds_text, size};

/// So many series are shown before campaigns that end early are left to the table.
const SERIES: usize = 5;

/// What marks of one kind in the picture are from: places of campaigns of one setting, or of one comparison of public logs.
type Series = Vec<usize>;

impl Shown<'_> {
    /// A campaign's number on the cost of an arm, from the depth at which the campaign decides.
    fn number(&self, source: usize, arm: &str) -> Option<Number> {
        let paper = self.main()?;
        let of = &self.synthesis.sources[source];
        let wanted = match (of.public, &of.shallow) {
            (true, _) => Depth::PapersTarget,
            (_, None) => Depth::Matched,
            _ => Depth::Late,
        };
        let mut rows = self.synthesis.rows.iter().filter(|row| row.source == source && row.depth == wanted && row.arm == arm);
        let row = rows.find(|row| row.paper == paper.id.as_str() && row.unit == Unit::SignedPercent)?;
        row.number.as_ref().ok().copied()
    }

    /// The cost of an arm: of all seeds together, where campaigns have different ones, else that of the campaign with most. An arm's claims on
    /// tokens have one number.
    fn cost(&self, series: &Series, arm: &str) -> Option<Number> {
        let paper = self.main()?;
        let mut together = self.synthesis.together.iter().filter(|all| all.paper == paper.id.as_str() && all.arm == arm);
        if let Some(all) = together.find(|all| all.parts.iter().any(|part| series.contains(&part.source))) {
            return Some(all.number);
        }
        series.iter().filter_map(|source| self.number(*source, arm)).rev().max_by_key(|number| number.n)
    }

    /// The arms of the paper's table.
    fn arms(&self) -> Vec<&str> {
        self.main().map(answer::reported).unwrap_or_default().into_iter().map(|(arm, _)| arm).collect()
    }

    /// The fewest and the most seeds of these arms.
    fn seeds(&self, series: &Series, arms: &[&str]) -> [usize; 2] {
        let seeds = || arms.iter().filter_map(|arm| self.cost(series, arm)).map(|number| number.n);
        [seeds().min().unwrap_or_default(), seeds().max().unwrap_or_default()]
    }

    /// A series' size, seeds of these arms, and batch.
    fn model(&self, series: &Series, arms: &[&str]) -> String {
        let source = &self.synthesis.sources[series[0]];
        let size = source.parameters.map(size).unwrap_or_default();
        let batch = source.batch.map(|tokens| format!(", {} tokens a step", number::thousands(tokens as f64)));
        format!("{size}, {}{}", seeds_text(self.seeds(series, arms)), batch.unwrap_or_default())
    }

    fn is_early(&self, series: &Series) -> bool {
        series.iter().any(|at| self.synthesis.sources[*at].shallow.is_some())
    }

    /// The series of the picture, from the largest model: those at the paper's depth first, then those that end early, public logs last. Of
    /// each size the setting with the most seeds is shown and, where there is room, the one with the batch nearest to the paper's; others are
    /// left to the table.
    fn series(&self) -> Vec<Series> {
        let sources = &self.synthesis.sources;
        let arms = self.arms();
        let mut settings: BTreeMap<_, Series> = BTreeMap::new();
        for at in (0..sources.len()).filter(|at| arms.iter().any(|arm| self.number(*at, arm).is_some())) {
            let source = &sources[at];
            let key = (source.public.then_some(at), source.shallow.is_some(), source.setting());
            settings.entry(key).or_default().push(at);
        }
        let mut series: Vec<Series> = settings.into_values().collect();
        series.sort_by_key(|series| (Reverse(sources[series[0]].parameters), Reverse(self.seeds(series, &arms)[1]), series[0]));
        let (public, ours): (Vec<Series>, Vec<Series>) = series.into_iter().partition(|series| sources[series[0]].public);
        let (early, deep): (Vec<Series>, Vec<Series>) = ours.into_iter().partition(|series| self.is_early(series));
        let public: Vec<Series> = public.into_iter().take(svg::SERIES / 2).collect();
        let sizes: Vec<&[Series]> = deep.chunk_by(|one, other| sources[one[0]].parameters == sources[other[0]].parameters).collect();
        let most = svg::SERIES - public.len();
        // Another size says more than another batch.
        let mut room = most.saturating_sub(sizes.len());
        let mut shown = Vec::new();
        for size in sizes.into_iter().take(most) {
            shown.push(size[0].clone());
            if let Some(nearest) = self.nearest(size).filter(|_| room > 0) {
                shown.push(nearest.clone());
                room -= 1;
            }
        }
        let room = SERIES.saturating_sub(shown.len() + public.len());
        shown.into_iter().chain(early.into_iter().take(room)).chain(public).collect()
    }

    /// Of the settings of one size, that with the most seeds first, the one whose batch is nearest to the paper's, where that is not the first.
    /// Of several the one with the first's learning rate, so that the two differ in the batch alone.
    fn nearest<'b>(&self, size: &'b [Series]) -> Option<&'b Series> {
        let papers = synthesis::papers_batch(self.manifests);
        let source = |series: &Series| &self.synthesis.sources[series[0]];
        let far = |series: &Series| match source(series).batch.zip(papers) {
            Some((own, papers)) => (own as f64 / papers as f64).ln().abs(),
            None => f64::INFINITY,
        };
        let has_another_rate = |series: &Series| source(series).learning_rate != source(&size[0]).learning_rate;
        let order =
            |one: &Series, other: &Series| far(one).total_cmp(&far(other)).then(has_another_rate(one).cmp(&has_another_rate(other)));
        let nearest = size.iter().min_by(|one, other| order(one, other))?;
        (far(nearest) < far(&size[0])).then_some(nearest)
    }

    pub(super) fn picture(&self) -> Option<Figure> {
        let paper = self.main()?;
        let (arms, series) = (answer::reported(paper), self.series());
        let point = |arm: &str, (index, series): (usize, &Series)| {
            let number = self.cost(series, arm)?;
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
        let chart = DotChart {
            description: "One row for each arm of the paper's table: bands are what the paper reports, marks what campaigns and the public logs measured, with 95 % intervals; faint marks are from earlier in training than the paper's numbers.".to_owned(),
            faint: series.iter().enumerate().filter(|(_, series)| self.is_early(series)).map(|(index, _)| index).collect(),
            series: series.iter().map(|series| self.name(series)).collect(),
            ..answer::chart(paper, self.label(&paper.baseline), rows)?
        };
        let faint = if chart.faint.is_empty() { "" } else { ". Faint: from earlier in training than the paper’s numbers" };
        let batch = synthesis::papers_batch(self.manifests).map(|tokens| number::thousands(tokens as f64));
        let batch = batch.map(|batch| format!(" ({batch} tokens a step)")).unwrap_or_default();
        let caption = format!(
            "Marks: at the paper’s depth of training, with 95 % intervals, by all seeds of a setting that can be put together: of each size the setting with the most seeds and, of those that get so deep, the one whose batch is nearest to the paper’s{batch}, with the same learning rate where there are several. Bands: what the paper reports; an arrow at the right: its run did not converge{faint}"
        );
        Some(dot_figure("synthesis", &caption, &chart, PICTURE))
    }

    /// A series in the picture's legend.
    fn name(&self, series: &Series) -> String {
        let source = &self.synthesis.sources[series[0]];
        if source.public {
            return source.label.clone();
        }
        let mut name = self.model(series, &self.arms());
        if let Some(rate) = source.learning_rate {
            name.push_str(&format!(", rate {rate:e}").replace('-', "−"));
        }
        if self.is_early(series) {
            name.push_str(", earlier");
        }
        name
    }

    /// Sentences, each true by itself and each made of rows.
    pub(super) fn answer(&self) -> Vec<String> {
        let Some(paper) = self.main() else { return Vec::new() };
        let baseline = self.label(&paper.baseline);
        let named = answer::main_arms(paper, &|arm| self.manifests.recipes.get(arm), "without a stabiliser");
        let series = self.series();
        let is_public = |series: &Series| self.synthesis.sources[series[0]].public;
        let deep = || series.iter().filter(|series| !is_public(series) && !self.is_early(series));
        // A number of one seed has no interval; one that has comes first, however small its model.
        let is_sure =
            |series: &&Series| named.iter().all(|main| self.cost(series, main.arm).is_some_and(|number| number.interval.is_some()));
        let deep = deep().find(is_sure).or_else(|| deep().next());
        let costs = |series: &Series| -> Vec<String> {
            named.iter().filter_map(|main| Some(format!("{} {}", whole(&self.cost(series, main.arm)?), main.words))).collect()
        };
        let mut said = Vec::new();
        match deep.map(|series| (costs(series), series)).filter(|(costs, _)| !costs.is_empty()) {
            Some((costs, series)) => said.push(format!(
                "MXFP4 in all linear layers takes more tokens than {baseline}: {} (models of {}, at the paper’s depth of training).",
                costs.join(", "),
                self.model(series, &named.iter().map(|main| main.arm).collect::<Vec<_>>())
            )),
            None => said.push("No campaign has measured the two main arms at the paper’s depth of training yet.".to_owned()),
        }
        let papers: Vec<String> =
            named.iter().filter_map(|main| Some(format!("{} {}", answer::said_text(&main.said)?, main.words))).collect();
        let logged = series.iter().find(|series| is_public(series));
        let logs = logged.and_then(|series| Some(format!("{}: {}", self.name(series), costs(series).first()?)));
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
