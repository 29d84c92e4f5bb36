//! What commands print. Numbers arrive as text; nothing is computed here.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use campaign::devices::Answers;
use campaign::error::CampaignError;
use campaign::prepared::Prepared;
use campaign::request::{Report, Request};
use campaign::slices::{Made, Trained};
use campaign::{doctor, forecast};
use contract::text::one_line;
use study::judge::{ClaimVerdict, outlook};
use study::manifest::{Manifests, Profile};
use study::plan;
use study::run_folder::{self, State};

/// To standard output; a reader that stopped reading (`| head`) is no error.
pub(crate) fn out(text: &str) {
    let _ = std::io::stdout().lock().write_all(plain(text).as_bytes());
}

/// At once, for a reader that waits; whether there is one.
pub(crate) fn line(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(plain(text).as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// In place of what the terminal shows; whether it is there.
pub(crate) fn picture(text: &str) -> bool {
    // Home, the text with the rest of each line wiped, then what is below it: nothing flickers.
    let text = plain(text).replace('\n', "\x1b[K\n");
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\x1b[H{text}\x1b[J").as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// One error, always of this shape: what failed, where, what to do next. Red as clap's own, on a terminal and without NO_COLOR.
pub(crate) fn error(text: &str) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let word = if colour { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
    eprintln!("{word} {}", plain(text));
}

/// Lines without any other control character: whatever of a stranger's file comes this far must not reach the terminal as a command.
pub(crate) fn plain(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(one_line).collect();
    lines.join("\n")
}

/// Appends a line to a `String`, which cannot fail.
macro_rules! line {
    ($text:expr, $($format:tt)*) => {
        let _ = writeln!($text, $($format)*);
    };
}

/// How the runs of each slice ended, and what makes reports of them.
pub(crate) fn trained(trained: &Trained) -> String {
    let mut text = String::new();
    for Made { slice, now, earlier, left, failed } in &trained.slices {
        let left = if *left == 0 { String::new() } else { format!(", {left} left") };
        line!(text, "{slice}: {now} made, {earlier} finished before, {} failed{left}", failed.len());
        for (run, failure) in failed {
            line!(text, "FAILED {} {run}: {}", slice.profile, failure.said);
        }
    }
    if trained.slices.iter().any(|made| made.left > 0) {
        let why = if trained.time_up { "the time was up" } else { "no device was left" };
        line!(text, "{why}; every checkpoint is kept, and the same command goes on");
    }
    for profile in trained.profiles() {
        line!(text, "report: cargo xtask replicate --profile {profile} --finished");
    }
    text
}

/// The table of claims, what failed, and where the report is.
pub(crate) fn report(report: &Report) -> String {
    let mut text = String::new();
    let claims: Vec<_> = report.verdicts.claims().collect();
    let width = |cells: Vec<usize>| cells.into_iter().max().unwrap_or(0);
    let ours = |claim: &ClaimVerdict| {
        if claim.interval_text.is_empty() { claim.ours.clone() } else { format!("{} {}", claim.ours, claim.interval_text) }
    };
    let id_width = width(claims.iter().map(|claim| claim.id.chars().count()).collect());
    let paper_width = width(claims.iter().map(|claim| claim.paper.chars().count()).collect()).max(5);
    let ours_width = width(claims.iter().map(|claim| ours(claim).chars().count()).collect()).max(4);
    line!(text, "{:id_width$}  {:paper_width$}  {:ours_width$}  verdict (evidence)", "claim", "paper", "ours");
    for claim in &claims {
        let evidence = claim.evidence.map_or(String::new(), |evidence| format!(" ({})", evidence.word()));
        let reason = claim.reason.as_deref().map_or(String::new(), |reason| format!("({})", reason.lines().next().unwrap_or_default()));
        line!(
            text,
            "{:id_width$}  {:paper_width$}  {:ours_width$}  {}{reason}{evidence}",
            claim.id,
            claim.paper,
            ours(claim),
            claim.verdict
        );
    }
    if report.nothing_to_do {
        line!(text, "nothing to do: this campaign is finished and its inputs are unchanged (--fresh does it again)");
    }
    text + &end(report)
}

/// What the reader should know besides the numbers, what failed, and where the report is.
pub(crate) fn end(report: &Report) -> String {
    let mut text = String::new();
    for note in &report.notes {
        line!(text, "note: {note}");
    }
    for (run, failure) in &report.failed {
        line!(text, "FAILED {run}: {}", failure.said);
    }
    line!(text, "report: {}", report.directory.join("report.html").display());
    text
}

/// What a profile would run and what it lacks.
pub(crate) fn dry_run(
    root: &Path,
    manifests: &Manifests,
    profile: &Profile,
    request: &Request,
    prepared: Result<Prepared<'_>, CampaignError>,
) -> String {
    let mut text = String::new();
    line!(text, "profile {}: {}", profile.id, profile.title);
    line!(text, "  {}", profile.purpose);
    let known = forecast::Known::of(manifests, profile);
    let selected = prepared.as_ref().map_or_else(|_| profile.clone(), |prepared| prepared.plan.selected(profile));
    match forecast::forecast(manifests, &selected, request.ranks, &known) {
        Ok(forecast) => {
            let _ = write!(text, "{forecast}");
        }
        Err(error) => {
            line!(text, "  no forecast: {error}");
        }
    }
    let _ = write!(text, "{}", outlook(manifests, &selected, &root.join("results"), 10_000));
    match prepared {
        Ok(prepared) => {
            line!(text, "  {} runs: {} arms x seeds {:?}", prepared.plan.runs.len(), prepared.plan.arms.len(), prepared.plan.seeds);
            let cache = plan::run_cache(root);
            for run in &prepared.plan.runs {
                let state = match run_folder::state(&cache.join(run.key()), &run.ingredients) {
                    State::Finished => "finished, will be reused".to_owned(),
                    State::Unfinished => "to run".to_owned(),
                    State::Corrupt(why) => format!("to run again: {why}"),
                };
                line!(text, "    {} {} {state}", run.key(), run.name());
            }
        }
        Err(error) => {
            let arms: usize = profile.arms.iter().map(|group| group.recipes.len()).sum();
            line!(text, "  {} runs: {arms} arms x seeds {:?}", arms * profile.seeds.len(), profile.seeds);
            for group in &profile.arms {
                line!(text, "    {}: {}", group.group, group.recipes.join(", "));
            }
            line!(text, "  keys are not known yet: {error}");
        }
    }
    let lacks = doctor::lacks_for(request, profile, manifests, &Answers::default());
    if lacks.is_empty() {
        line!(text, "  {} what it needs", if request.slurm.is_some() { "this copy of the repository has" } else { "this machine has" });
    }
    for line in lacks {
        line!(text, "  lacks: {line}");
    }
    text
}

pub(crate) fn list(manifests: &Manifests) -> String {
    let mut text = String::new();
    line!(text, "profiles");
    for profile in manifests.profiles.values().filter(|profile| !profile.hidden) {
        line!(text, "  {:12} {} ({})", profile.id, profile.title, manifests.hardware[&profile.hardware].title);
    }
    line!(text, "recipes");
    for recipe in manifests.recipes.values() {
        line!(text, "  {:24} {}", recipe.id, recipe.title);
    }
    for paper in manifests.papers.values() {
        line!(text, "claims of {} ({})", paper.id, paper.title);
        for claim in &paper.claims {
            line!(text, "  {:14} {:12} {}", claim.id, claim.source, claim.statement);
        }
    }
    for logs in &manifests.public_logs {
        line!(text, "evidence {} ({})", logs.manifest.id, logs.manifest.title);
        for group in &logs.manifest.groups {
            line!(text, "  {:26} {} runs, {} {}", group.id, group.runs, group.submitter, group.round);
        }
    }
    text
}
