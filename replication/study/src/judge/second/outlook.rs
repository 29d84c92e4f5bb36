//! What a profile can decide, before it runs: the chance of each verdict if its papers are right and if nothing has an effect, from the
//! scatter of a campaign that was run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use super::asked::{self, Asked};
use super::power::{DECIDES, Design};
use super::question::Scale;
use super::sheets::Sheets;
use crate::judge::verdict::Chances;
use crate::layout::{Component, Runs, Scatter};
use crate::manifest::recipe::repeated;
use crate::manifest::{Claim, Manifests, Paper, Profile};
use crate::measure::{Measurements, measure};
use crate::number::{Unit, fixed};
use crate::record::Campaign;

/// One line of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    pub claim: String,
    pub what: &'static str,
    pub statement: String,
    /// If every number is the middle of what the paper reports; none where it gives an arm no number.
    pub right: Option<Chances>,
    /// If no arm differs from another.
    pub nothing: Chances,
    /// Why no number of seeds would decide it.
    pub never: Option<&'static str>,
}

/// What a profile can decide.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outlook {
    /// Simulated campaigns behind each chance.
    pub campaigns: usize,
    /// Where the scatter is from, one line a baseline.
    pub sources: Vec<String>,
    pub lines: Vec<Expected>,
    /// Claims with arms that the profile does not train, and these.
    pub missing: BTreeMap<String, BTreeSet<String>>,
    /// Claims that rest on something else than tokens and losses.
    pub others: Vec<String>,
    /// Why there is no outlook.
    pub notes: Vec<String>,
}

/// From manifests and the result directories below `results`, by so many simulated campaigns.
pub fn outlook(manifests: &Manifests, profile: &Profile, results: &Path, campaigns: usize) -> Outlook {
    let mut outlook = Outlook { campaigns, ..Outlook::default() };
    let papers = profile.papers.iter().filter_map(|id| manifests.papers.get(id)).filter(|paper| paper.judging == 2);
    let papers: Vec<&Paper> = papers.collect();
    let Some(source) = source(manifests, profile, &papers, results) else {
        outlook.notes.push("no campaign was run whose scatter would say what this one can decide".to_owned());
        return outlook;
    };
    for paper in papers {
        let trained = |claim: &&Claim| !asked::questions(paper, claim, &str::to_owned).is_empty();
        outlook.others.extend(paper.claims.iter().filter(|claim| !trained(claim)).map(|claim| claim.id.to_string()));
        let label = |arm: &str| manifests.recipes.get(arm).map_or(arm, |recipe| recipe.label.as_str()).to_owned();
        let asked: Vec<Asked> = paper.claims.iter().flat_map(|claim| asked::questions(paper, claim, &label)).collect();
        let mut baselines: Vec<&str> = asked.iter().map(|asked| asked.baseline.as_str()).collect();
        baselines.sort_unstable();
        baselines.dedup();
        for baseline in baselines {
            match Sheets::of(&source.measurements, baseline) {
                Ok(sheets) => outlook.baseline(manifests, profile, paper, &asked, &sheets, &source),
                Err(why) => outlook.notes.push(format!("{}, {baseline}: {why}", source.directory)),
            }
        }
    }
    let order =
        |line: &Expected| profile.papers.iter().flat_map(|id| &manifests.papers[id].claims).position(|claim| claim.id == line.claim);
    outlook.lines.sort_by_key(order);
    outlook
}

impl Outlook {
    fn baseline(&mut self, manifests: &Manifests, profile: &Profile, paper: &Paper, asked: &[Asked], sheets: &Sheets, source: &Source) {
        for (scale, sheet) in [(Scale::Tokens, sheets.decisive()), (Scale::Nats, &sheets.late)] {
            let of = asked.iter().filter(|asked| asked.baseline == sheets.baseline && asked.question.scale == scale);
            let of: Vec<&Asked> = of.collect();
            let Some(measured) = sheet.design(scale).filter(|_| !of.is_empty()) else { continue };
            let Some(design) = planned(manifests, profile, &measured.scatter) else {
                self.notes.push(format!("{}: one seed, or one arm, says nothing about how runs scatter", profile.id));
                continue;
            };
            let (sd, half) = match scale {
                Scale::Tokens => (Unit::Percent.number(design.scatter.run.sd().exp_m1()), [0.01_f64, 0.02].map(f64::ln_1p)),
                Scale::Nats => (format!("{} nat", fixed(design.scatter.run.sd(), 4)), [0.01, 0.02]),
            };
            let [one, two] = half.map(|half| fixed(design.seeds_for(half, &sheets.baseline), 0));
            let unit = if scale == Scale::Tokens { "point" } else { "hundredth of a nat" };
            let than = if scale == Scale::Tokens { "points" } else { "hundredths" };
            self.sources.push(format!(
                "against {}: one run scatters {sd} ({}, {}); 95 % intervals of ±1 {unit} take {one} seeds, of ±2 {than} {two}",
                sheets.baseline,
                source.directory,
                sheet.stretch.word(),
            ));
            let has = |asked: &&Asked| asked.question.arms().all(|arm| design.arms.contains_key(arm));
            let (asked, missing): (Vec<&Asked>, Vec<&Asked>) = of.into_iter().partition(has);
            for asked in missing {
                let arms = asked.question.arms().filter(|arm| !design.arms.contains_key(*arm)).map(str::to_owned);
                self.missing.entry(asked.claim.clone()).or_default().extend(arms);
            }
            let questions: Vec<_> = asked.iter().map(|asked| &asked.question).collect();
            let truth = asked::truth(paper, scale);
            let right = design.chances(&questions, &truth, self.campaigns);
            let nothing = design.chances(&questions, &BTreeMap::new(), self.campaigns);
            // The budget of another profile's campaign says nothing about this one's.
            let short = sheets.too_short().filter(|_| source.has_budget_of(profile)).map(|(why, _)| why);
            let expected = |((asked, right), nothing): ((&&Asked, Chances), Chances)| Expected {
                claim: asked.claim.clone(),
                what: asked.question.what,
                statement: asked.question.statement.clone(),
                right: asked.is_foretold(&truth).then_some(right),
                nothing,
                never: short.filter(|_| scale == Scale::Tokens && asked.question.what == "size"),
            };
            self.lines.extend(asked.iter().zip(right).zip(nothing).map(expected));
        }
    }
}

/// The campaign as the profile plans it, with a measured scatter; none where that could not be estimated from it.
fn planned(manifests: &Manifests, profile: &Profile, scatter: &Scatter) -> Option<Design> {
    let mut runs: BTreeMap<String, f64> = BTreeMap::new();
    for arm in profile.arms.iter().flat_map(|group| &group.recipes) {
        *runs.entry(repeated(&manifests.recipes, arm).to_owned()).or_default() += 1.0;
    }
    let (seeds, again) = (profile.seeds.len(), runs.values().map(|runs| *runs as usize - 1).sum::<usize>());
    let freedom = runs.len().saturating_sub(1) * seeds.saturating_sub(1);
    let own = scatter.own.filter(|_| again > 0).map(|own| Component { freedom: seeds * again, ..own });
    let scatter = Scatter { run: Component { freedom, ..scatter.run }, own };
    let of = |(arm, runs): (String, f64)| (arm, Runs { seeds: profile.seeds.iter().copied().collect(), reciprocal: runs.recip() });
    (freedom > 0).then(|| Design { arms: runs.into_iter().map(of).collect(), scatter })
}

/// The campaign that the scatter is taken from.
struct Source {
    /// Its directory's name.
    directory: String,
    measurements: Measurements,
}

impl Source {
    fn has_budget_of(&self, profile: &Profile) -> bool {
        let own = &self.measurements.study.profile;
        own.id == profile.id && own.budget == profile.budget
    }
}

/// The campaign to take the scatter from: of the same profile, else the same model, else the same hardware; of those the last whose runs can
/// be set beside a paper's baseline.
fn source(manifests: &Manifests, profile: &Profile, papers: &[&Paper], results: &Path) -> Option<Source> {
    let mut found: Vec<(usize, String, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(results).ok()?.flatten() {
        let Ok(campaign) = Campaign::read(&entry.path()) else { continue };
        let Some(other) = manifests.profiles.get(campaign.profile.as_str()) else { continue };
        let alike = [other.id == profile.id, other.model == profile.model, other.hardware == profile.hardware];
        found.extend(alike.iter().position(|same| *same).map(|rank| (alike.len() - rank, campaign.date, entry.path())));
    }
    found.sort();
    // One that cannot be measured says nothing, nor one of a few steps; the next may.
    let scatters = |measurements: &Measurements, paper: &&Paper| {
        Sheets::of(measurements, &paper.baseline).is_ok_and(|sheets| sheets.decisive().design(Scale::Tokens).is_some())
    };
    found.into_iter().rev().find_map(|(_, _, path)| {
        let measurements = measure(&path).ok().filter(|measurements| papers.iter().any(|paper| scatters(measurements, paper)))?;
        let directory = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Some(Source { directory, measurements })
    })
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  what it can decide, from {} simulated campaigns", self.campaigns)?;
        for source in &self.sources {
            writeln!(f, "    {source}")?;
        }
        let width = |of: fn(&Expected) -> &str| self.lines.iter().map(|line| of(line).chars().count()).max().unwrap_or(0);
        let (claims, whats) = (width(|line| &line.claim), width(|line| line.what));
        if !self.lines.is_empty() {
            let head = "reproduced / differs / inconclusive";
            writeln!(f, "    {:claims$}  {:whats$}  {head}: if the paper is right; if nothing has an effect", "claim", "line")?;
        }
        let chances = |chances: &Chances| {
            let percent = |share: f64| fixed(100.0 * share, 0);
            format!("{:>3} / {:>3} / {:>3} %", percent(chances.reproduced), percent(chances.differs), percent(chances.inconclusive))
        };
        for line in &self.lines {
            let cannot = match (line.never, line.right) {
                (Some(why), _) => format!("  cannot be decided: {why}"),
                (None, Some(right)) if right.reproduced < DECIDES => "  cannot be decided".to_owned(),
                (None, None) => "  the paper gives an arm no number".to_owned(),
                _ => String::new(),
            };
            let (right, nothing) = (line.right.as_ref().map_or_else(|| format!("{:>17}", "–"), chances), chances(&line.nothing));
            writeln!(f, "    {:claims$}  {:whats$}  {right};  {nothing}{cannot}", line.claim, line.what)?;
        }
        if !self.missing.is_empty() {
            let claim = |(claim, arms): (&String, &BTreeSet<String>)| {
                format!("{claim} ({})", arms.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
            };
            writeln!(f, "    not every arm is in the profile: {}", self.missing.iter().map(claim).collect::<Vec<_>>().join("; "))?;
        }
        if !self.others.is_empty() {
            writeln!(f, "    not judged by tokens or losses: {}", self.others.join(", "))?;
        }
        for note in &self.notes {
            writeln!(f, "    {note}")?;
        }
        Ok(())
    }
}
