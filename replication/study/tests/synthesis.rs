//! The synthesis of several campaigns: on curves whose costs are known, on directories that nobody should trust, and on the committed ones.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "tests; shared helpers are used by several")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::synthetic::{self, STEPS, TOKENS_PER_STEP, repository, run_directory, save};
use study::draws::Draws;
use study::judge::verdict::Verdicts;
use study::law::Effort;
use study::manifest::Manifests;
use study::render::{self, SynthesisPages};
use study::statistics::t_quantile_at;
use study::synthesis::{Depth, Row, Synthesis, SynthesisError, below, table};

/// No test here reads an interval of the law: tests/law.rs does.
const FEW: Effort = Effort { draws: 10 };
const ARMS: &[(&str, f64)] = &[("fp8", 1.0), ("mxfp4-f", 1.08), ("mxfp4-fd", 1.10), ("mxfp4-fdw", 1.26), ("mxfp4-fdw-h16", 1.085)];

/// The learning rate of profile `cpu`.
const RATE: &str = "learning_rate: 2.0e-3";

/// A campaign to be written.
struct Made<'a> {
    name: &'a str,
    arms: &'a [(&'a str, f64)],
    seeds: &'a [u64],
    parameters: u64,
    tokens_per_step: u64,
    /// As its line of the profile has it.
    learning_rate: &'a str,
    /// Scatter of a run, nats; none at all is a tie.
    noise: f64,
}

impl<'a> Made<'a> {
    fn new(name: &'a str) -> Self {
        Self {
            name,
            arms: ARMS,
            seeds: &[11, 12, 13],
            parameters: 1_000_000,
            tokens_per_step: TOKENS_PER_STEP,
            learning_rate: RATE,
            noise: 0.002,
        }
    }

    /// Curves whose slope in the logarithm of tokens is between 0.40 and 0.30 from 39 % to 69 % of the budget; a cost of r moves one by r.
    fn write(&self, below: &Path) -> PathBuf {
        let directory = below.join(self.name);
        synthetic::write_arms(&directory, &[], &[]);
        let profile = directory.join("manifests/profile.yaml");
        let text = fs::read_to_string(&profile).unwrap();
        assert!(text.contains(RATE));
        save(&profile, &text.replace(RATE, self.learning_rate));
        let mut draws = Draws::default();
        // Campaigns of different size have different noise.
        for _ in 0..self.parameters / 1_000_000 {
            draws.normal();
        }
        let mut runs = Vec::new();
        for (arm, cost) in self.arms {
            for seed in self.seeds {
                let level = self.noise * draws.normal();
                let loss = |step: u64| 3.0 + 0.5 * (STEPS as f64 * cost / step as f64).sqrt() + level;
                let evaluations: Vec<(u64, f64)> = (1..=STEPS / 8).map(|at| (8 * at, loss(8 * at))).collect();
                self.run(&directory, arm, *seed, &evaluations);
                runs.push(((*arm).to_owned(), *seed));
            }
        }
        self.record(&directory, &runs);
        directory
    }

    fn run(&self, directory: &Path, arm: &str, seed: u64, evaluations: &[(u64, f64)]) {
        let run = run_directory(directory, arm, seed);
        let mut metrics = format!(
            "{{\"schema\":\"mxfp4-metrics/1\",\"kind\":\"header\",\"profile\":\"cpu\",\"arm\":\"{arm}\",\"seed\":{seed},\"parameters\":{},\"tokens_per_step\":{}}}\n",
            self.parameters, self.tokens_per_step
        );
        for (step, loss) in evaluations {
            metrics += &format!("{{\"kind\":\"eval\",\"step\":{step},\"tokens\":{},\"loss\":{loss}}}\n", step * self.tokens_per_step);
        }
        save(&run.join("metrics.jsonl"), &metrics);
        let hash = "0".repeat(64);
        let done = format!(
            "{{\"schema\":\"mxfp4-done/1\",\"status\":\"completed\",\"steps\":{STEPS},\"tokens\":{},\"final_train_loss\":3.1,\"final_validation_loss\":3.2,\"metrics_sha256\":\"{hash}\",\"model_sha256\":\"{hash}\",\"run_sha256\":\"{hash}\"}}\n",
            STEPS * self.tokens_per_step
        );
        save(&run.join("done.json"), &done);
    }

    fn record(&self, directory: &Path, runs: &[(String, u64)]) {
        // As of another build each: keys do not say that two runs are the same.
        let build = self.name;
        let one =
            |(arm, seed): &(String, u64)| format!(r#"{{"arm":"{arm}","seed":{seed},"key":"{arm}{seed}by{build}","status":"finished"}}"#);
        let list: Vec<String> = runs.iter().map(one).collect();
        let text = format!(
            r#"{{"schema":"mxfp4-campaign/1","profile":"cpu","papers":["2605.09825"],"device":"cpu","machine":"synthetic","date":"2026-05-09","commit":"none","dirty":false,"key":"{}","trainer_code":"none","partial":true,"seeds":[11],"runs":[{}]}}"#,
            study::files::sha256(list.join("").as_bytes()),
            list.join(",")
        );
        save(&directory.join("campaign.json"), &text);
    }
}

fn manifests() -> Manifests {
    Manifests::load(&repository()).unwrap()
}

fn of(directories: &[PathBuf]) -> Synthesis {
    Synthesis::of(&manifests(), directories, FEW).unwrap()
}

fn pages(synthesis: &Synthesis) -> SynthesisPages {
    render::synthesis(synthesis, &manifests(), &repository().join("paper")).unwrap()
}

fn row<'a>(synthesis: &'a Synthesis, claim: &'a str, source: &str, depth: Depth) -> &'a Row {
    let mut rows = synthesis.on("2605.09825", claim);
    rows.find(|row| synthesis.sources[row.source].name == source && row.depth == depth).unwrap()
}

fn why_left_out<'a>(synthesis: &'a Synthesis, name: &str) -> &'a str {
    synthesis.left_out.iter().find(|left| left.name == name).map(|left| left.why.as_str()).unwrap()
}

/// A slice may bring one arm of a seed before its baseline: no number rests on that seed.
#[test]
fn a_campaign_has_the_seeds_of_its_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let made = Made { seeds: &[11, 12], ..Made::new("sliced") };
    let directory = made.write(folder.path());
    let evaluations: Vec<(u64, f64)> = (1..=STEPS / 8).map(|at| (8 * at, 6.0 - 0.01 * at as f64)).collect();
    made.run(&directory, "mxfp4-f", 13, &evaluations);
    let whole = ARMS.iter().flat_map(|(arm, _)| [11, 12].map(|seed| ((*arm).to_owned(), seed)));
    made.record(&directory, &whole.chain([("mxfp4-f".to_owned(), 13)]).collect::<Vec<_>>());
    let synthesis = of(&[directory]);
    let source = synthesis.sources.iter().find(|source| source.name == "sliced").unwrap();
    assert_eq!((source.seeds, source.runs[0]), ([2, 2], 2 * ARMS.len() + 1));
}

/// Costs that grow by a known factor with size come out with that factor, and the line is that of the normal equations.
#[test]
fn a_trend_is_the_weighted_line_through_sizes_of_one_depth() {
    let folder = tempfile::tempdir().unwrap();
    let at = |cost: f64| vec![("fp8", 1.0), ("mxfp4-f", 1.08), ("mxfp4-fdw", cost), ("mxfp4-fdw-h16", 1.085)];
    let mut directories = Vec::new();
    for (size, seeds) in [(1_000_000_u64, &[11, 12, 13][..]), (4_000_000, &[11, 12]), (25_000_000, &[11, 12, 13, 14])] {
        // Two thirds more of it for ten times the parameters.
        let arms = at(1.1 * (size as f64 / 1e6).powf(0.05));
        let name = format!("of-{size}");
        directories.push(Made { arms: &arms, seeds, parameters: size, ..Made::new(&name) }.write(folder.path()));
    }
    let synthesis = of(&directories);
    let trend = synthesis.trends.iter().find(|trend| trend.claim == "T1-FDW" && trend.depth == Depth::Matched).unwrap();
    assert_eq!(trend.points.iter().map(|point| point.parameters).collect::<Vec<_>>(), [1_000_000, 4_000_000, 25_000_000]);
    let truth = 10f64.powf(0.05) - 1.0;
    let interval = trend.tenfold.interval.unwrap();
    assert!(interval.low < truth && truth < interval.high, "{:?}", trend.tenfold);
    assert!((trend.tenfold.value - truth).abs() < 0.02, "{:?}", trend.tenfold);

    // The normal equations, [sum w, sum wx; sum wx, sum wxx], inverted by hand.
    let points: Vec<[f64; 4]> = directories
        .iter()
        .map(|directory| {
            let name = directory.file_name().unwrap().to_str().unwrap();
            let found = row(&synthesis, "T1-FDW", name, Depth::Matched);
            let measured = found.measured.unwrap();
            let parameters = synthesis.sources[found.source].parameters.unwrap() as f64;
            [parameters.log10(), measured.number, measured.error.powi(-2), measured.freedom]
        })
        .collect();
    let sum = |of: &dyn Fn(&[f64; 4]) -> f64| points.iter().map(of).sum::<f64>();
    let (w, wx, wxx) = (sum(&|p| p[2]), sum(&|p| p[2] * p[0]), sum(&|p| p[2] * p[0] * p[0]));
    let (wy, wxy) = (sum(&|p| p[2] * p[1]), sum(&|p| p[2] * p[0] * p[1]));
    let determinant = w * wxx - wx * wx;
    let (intercept, slope) = ((wxx * wy - wx * wxy) / determinant, (w * wxy - wx * wy) / determinant);
    let misfit = sum(&|p| p[2] * (p[1] - intercept - slope * p[0]).powi(2)) / (points.len() - 2) as f64;
    let t = t_quantile_at(points.iter().map(|p| p[3]).fold(f64::INFINITY, f64::min), 0.95).unwrap() * misfit.max(1.0).sqrt();
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(trend.tenfold.value, slope.exp_m1());
    near(interval.low, (slope - t * (w / determinant).sqrt()).exp_m1());
    near(trend.misfit.unwrap(), misfit);

    // A cost that is there and smaller than the paper's is no direction that differs.
    let html = pages(&synthesis).html;
    let counts = "(reproduced: T1-F, T1-H16, C-ID; as reported in direction and not in size: T1-FDW)";
    assert!(html.contains(counts), "{html}");

    // What is said of the paper's size is the law's, and modelled.
    let csv = table(&synthesis).csv().unwrap().to_owned();
    let lines: Vec<&str> = csv.lines().filter(|line| line.contains("8030261248") && line.contains("T1-FDW")).collect();
    assert!(lines.iter().all(|line| line.contains(",modelled,") && line.contains("law through")), "{lines:?}");
}

#[test]
fn one_size_alone_has_no_trend_and_ends_of_different_budgets_are_never_put_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let small = Made::new("small").write(folder.path());
    let large = Made { parameters: 8_000_000, ..Made::new("large") }.write(folder.path());
    assert_eq!(of(std::slice::from_ref(&small)).trends, []);
    assert!(pages(&of(std::slice::from_ref(&small))).html.contains("nothing is said of size"));
    // One more step of budget: the last quarters lie elsewhere, the matched depths do not.
    let profile = large.join("manifests/profile.yaml");
    let text = fs::read_to_string(&profile).unwrap().replace(&format!("budget: {{steps: {STEPS}}}"), "budget: {steps: 319}");
    save(&profile, &text);
    let synthesis = of(&[small.clone(), large.clone()]);
    assert!(
        synthesis.trends.iter().any(|trend| trend.depth == Depth::Matched)
            && synthesis.trends.iter().all(|trend| trend.depth == Depth::Matched)
    );
    // Of two campaigns of one size the one with more runs is on the line.
    let slice = Made { seeds: &[11, 12], ..Made::new("slice") }.write(folder.path());
    let synthesis = of(&[slice, small.clone(), large.clone()]);
    assert!(!synthesis.trends.is_empty());
    for trend in &synthesis.trends {
        assert_eq!(trend.points.iter().map(|point| synthesis.sources[point.source].name.as_str()).collect::<Vec<_>>(), ["small", "large"]);
    }
    // Losses on another text are no losses of these, and another learning rate is another setting.
    for (from, to) in [("dataset: rust-crates", "dataset: webdocs"), ("learning_rate: 2.0e-3", "learning_rate: 1.0e-3")] {
        assert!(text.contains(from));
        save(&profile, &text.replace(from, to));
        assert_eq!(of(&[small.clone(), large.clone()]).trends, []);
    }
}

/// Losses that mean nothing are no evidence, and the page says what it left out.
#[test]
fn a_demonstration_is_no_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let (sound, tiny) = (Made::new("sound").write(folder.path()), Made::new("tiny").write(folder.path()));
    let profile = tiny.join("manifests/profile.yaml");
    save(&profile, &format!("demonstration: true\n{}", fs::read_to_string(&profile).unwrap()));
    let synthesis = of(&[sound, tiny]);
    assert_eq!(synthesis.sources.iter().filter(|source| !source.public).count(), 1);
    assert_eq!(synthesis.left_out[0].why, "the losses of this profile mean nothing");
}

/// Where a number would mean nothing there is none, and the reason stands in its place.
#[test]
fn too_little_gives_a_reason_and_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let made = |name| Made::new(name);
    let sound = made("sound").write(folder.path());
    let one_seed = Made { seeds: &[11], parameters: 2_000_000, ..made("one-seed") }.write(folder.path());
    let tie = Made { noise: 0.0, parameters: 3_000_000, ..made("tie") }.write(folder.path());
    let without = Made { arms: &ARMS[1..], parameters: 4_000_000, ..made("no-baseline") }.write(folder.path());
    let unfinished = Made { parameters: 5_000_000, ..made("unfinished") }.write(folder.path());
    for seed in [11, 12, 13] {
        fs::remove_file(run_directory(&unfinished, "mxfp4-fdw", seed).join("done.json")).unwrap();
    }
    let nothing = Made { arms: &[], ..made("nothing") }.write(folder.path());
    let synthesis = of(&[sound, one_seed, tie, without, unfinished, nothing]);
    let why = |source: &str| {
        let at = synthesis.sources.iter().position(|found| found.name == source).unwrap();
        let rows: Vec<&Row> = synthesis.on("2605.09825", "T1-FDW").filter(|row| row.source == at).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.number.is_err() && row.gap.is_none()), "{source}: {rows:?}");
        rows[0].text()
    };
    // One seed has numbers, which decide nothing.
    let alone = row(&synthesis, "T1-FDW", "one-seed", Depth::Matched);
    assert!(alone.number.as_ref().is_ok_and(|number| number.interval.is_none() && number.n == 1), "{alone:?}");
    assert_eq!(alone.verdict.as_ref().map(|(word, _)| word.as_str()), Some("inconclusive"));
    assert!(why("tie").contains("do not scatter at all"), "{}", why("tie"));
    assert!(why("no-baseline").contains("fp8"), "{}", why("no-baseline"));
    assert!(why("unfinished").contains("no run of mxfp4-fdw is finished"), "{}", why("unfinished"));
    assert_eq!(why_left_out(&synthesis, "nothing"), "no run of it is finished");
    assert!(row(&synthesis, "T1-FDW", "sound", Depth::Matched).number.is_ok());
    // No trend from what has no error of its own, no picture mark without a number, and a page all the same.
    assert!(synthesis.trends.iter().filter(|trend| trend.claim == "T1-FDW").count() == 0);
    let page = pages(&synthesis).html;
    assert!(page.contains("One seed or repeat is too few for an interval") && !page.contains("NaN") && !page.contains("inf %"));
}

#[test]
fn what_is_there_twice_or_in_part_counts_once_and_shared_runs_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let whole = Made::new("b-whole").write(folder.path());
    let again = Made::new("a-again").write(folder.path());
    let part = Made { arms: &ARMS[..3], ..Made::new("c-part") }.write(folder.path());
    let synthesis = of(&[whole, again, part]);
    assert_eq!(
        synthesis.sources.iter().filter(|source| !source.public).map(|source| source.name.as_str()).collect::<Vec<_>>(),
        ["a-again"]
    );
    assert_eq!(why_left_out(&synthesis, "b-whole"), "it is the same campaign as a-again and counts once");
    assert_eq!(why_left_out(&synthesis, "c-part"), "it is a part of a-again and counts once");
    // Some runs of its own, some of the other's. Noise would be other noise there.
    let [one, other] =
        [("one", &[11, 12, 13]), ("overlap", &[12, 13, 14])].map(|(name, seeds)| Made { seeds, noise: 0.0, ..Made::new(name) });
    let synthesis = of(&[one.write(folder.path()), other.write(folder.path())]);
    assert_eq!(synthesis.notes, ["one and overlap have 10 runs in common: they are not independent."]);
    assert!(pages(&synthesis).html.contains("10 runs in common"));
}

#[test]
fn other_directories_are_named_and_those_that_cannot_be_used_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let sound = Made::new("sound").write(folder.path());
    let newer = Made { parameters: 2_000_000, ..Made::new("newer") }.write(folder.path());
    let record = newer.join("campaign.json");
    save(&record, &fs::read_to_string(&record).unwrap().replace("mxfp4-campaign/1", "mxfp4-campaign/9"));
    let torn = Made { parameters: 3_000_000, ..Made::new("torn") }.write(folder.path());
    save(&run_directory(&torn, "fp8", 11).join("metrics.jsonl"), "{\"kind\":");
    let mixed = Made { parameters: 4_000_000, ..Made::new("mixed") }.write(folder.path());
    Made { parameters: 5_000_000, ..Made::new("mixed") }.run(&mixed, "fp8", 11, &[(8, 3.0)]);
    let linked = Made { parameters: 6_000_000, ..Made::new("linked") }.write(folder.path());
    std::os::unix::fs::symlink("/etc/passwd", linked.join("env.yaml")).unwrap();
    let own = Made { parameters: 7_000_000, ..Made::new("own-recipe") }.write(folder.path());
    let recipe = own.join("manifests/recipes/mxfp4-fdw.yaml");
    save(&recipe, &fs::read_to_string(&recipe).unwrap().replace("scale: floor", "scale: ceil"));
    fs::create_dir_all(folder.path().join(".being-made")).unwrap();
    fs::create_dir_all(folder.path().join("empty")).unwrap();
    save(&folder.path().join("device/summary.json"), "{}");
    let of_ranks = repository().join("results/device-test-2026-11-26-amd-epyc-x8/summary.json");
    save(&folder.path().join("ranks/summary.json"), &fs::read_to_string(of_ranks).unwrap());
    save(&folder.path().join("a-file"), "");

    let directories = below(folder.path()).unwrap();
    assert!(directories.contains(&sound) && !directories.iter().any(|path| path.ends_with(".being-made") || path.ends_with("a-file")));
    let synthesis = of(&directories);
    assert!(why_left_out(&synthesis, "newer").contains("mxfp4-campaign/9"), "{}", why_left_out(&synthesis, "newer"));
    assert!(why_left_out(&synthesis, "torn").contains("runs/fp8/11/metrics.jsonl, line 1"), "{}", why_left_out(&synthesis, "torn"));
    assert_eq!(why_left_out(&synthesis, "mixed"), "its runs are of models or batches of different size");
    assert!(why_left_out(&synthesis, "linked").contains("it is a link"));
    assert!(why_left_out(&synthesis, "empty").contains("no campaign.json"));
    let others: Vec<_> = synthesis.others.iter().map(|other| (other.name.as_str(), other.what)).collect();
    assert_eq!(others, [("device", "a GPU against the CPU"), ("ranks", "several ranks against one")]);
    let foreign: Vec<&Row> =
        synthesis.on("2605.09825", "T1-FDW").filter(|row| synthesis.sources[row.source].name == "own-recipe").collect();
    assert_eq!(foreign.len(), 1);
    assert_eq!(foreign[0].text(), "its recipe mxfp4-fdw is not the one that has this name here");
    // No message says where the directories lie.
    let pages = pages(&synthesis);
    let place = folder.path().to_str().unwrap();
    assert!(!pages.html.contains(place) && !pages.csv.contains(place) && pages.latex.iter().all(|(_, text)| !text.contains(place)));
    match Synthesis::of(&manifests(), &[folder.path().join("empty")], FEW) {
        Err(SynthesisError::Nothing { why }) => assert!(why.contains("empty: it has no campaign.json")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_strangers_names_stay_text() {
    let folder = tempfile::tempdir().unwrap();
    let name = "<script>alert(1)<";
    let directory = Made::new(name).write(folder.path());
    let hardware = directory.join("manifests/hardware.yaml");
    let text = fs::read_to_string(&hardware).unwrap();
    let title = text.lines().find(|line| line.starts_with("title:")).unwrap();
    save(&hardware, &text.replace(title, "title: \"</td><script>x</script>\\\\input{/etc/passwd}$\\\\write18{id}\""));
    save(&directory.join("report.html"), "");
    let synthesis = of(&[directory]);
    let pages = pages(&synthesis);
    assert!(!pages.html.contains("<script") && !pages.svg.contains("<script"));
    assert!(pages.html.contains("&lt;script&gt;alert(1)&lt;"));
    assert!(synthesis.sources[0].link.is_none(), "a name that is no plain one is no address");
    for (file, text) in &pages.latex {
        assert!(!text.contains("\\input{/etc") && !text.contains("\\write18"), "{file}: {text}");
    }
}

#[test]
fn the_same_directories_elsewhere_and_in_another_order_give_the_same_bytes() {
    let made = || {
        let folder = tempfile::tempdir().unwrap();
        let directories: Vec<PathBuf> = [1_000_000, 9_000_000]
            .map(|parameters| Made { parameters, ..Made::new(if parameters > 1_000_000 { "large" } else { "small" }) }.write(folder.path()))
            .to_vec();
        (folder, directories)
    };
    let ((_one, first), (_two, mut second)) = (made(), made());
    second.reverse();
    let (one, two) = (pages(&of(&first)), pages(&of(&second)));
    assert_eq!((one.html, one.csv, one.svg, one.source), (two.html, two.csv, two.svg, two.source));
}

/// Marks of one kind are of all campaigns of a setting; a size with another batch has its own, if that is nearer to the paper's.
#[test]
fn the_picture_shows_settings() {
    let folder = tempfile::tempdir().unwrap();
    let large = Made::new("large").write(folder.path());
    let arms = &ARMS[..2];
    let control = Made { arms, seeds: &[14], ..Made::new("control") }.write(folder.path());
    let found = pages(&of(&[large.clone(), control]));
    assert!(found.svg.contains("1.0M, 3 seeds, 1,024 tokens a step, rate 2e−3") && found.svg.matches("seed").count() == 1, "{}", found.svg);
    assert!(found.html.contains("control"));
    // Other seeds of an arm count with those that are there.
    let control = Made { arms, seeds: &[21, 22, 23], ..Made::new("a-control") }.write(folder.path());
    let found = pages(&of(&[control, large.clone()])).svg;
    assert!(found.contains("1.0M, 3 to 6 seeds, ") && found.matches("seed").count() == 1, "{found}");
    // What no other campaign has is shown, and so is another size.
    let own = [ARMS[0], ("mxfp4-fdw-h32", 1.09)];
    let alone = Made { arms: &own, seeds: &[14], ..Made::new("alone") }.write(folder.path());
    assert!(pages(&of(&[large.clone(), alone])).svg.contains("1.0M, 1 to 3 seeds, "));
    let small = Made { arms, seeds: &[14], parameters: 500_000, ..Made::new("small") }.write(folder.path());
    assert!(pages(&of(&[large.clone(), small])).svg.contains("0.5M, 1 seed, "));
    // The paper's batch is 262,144 tokens.
    let batch = |name, tokens_per_step, seeds| Made { arms, seeds, tokens_per_step, ..Made::new(name) }.write(folder.path());
    let [smaller, larger, near] =
        [("smaller", 512), ("larger", 2_048), ("near", 4_096)].map(|(name, tokens)| batch(name, tokens, &[14][..]));
    let found = pages(&of(&[large.clone(), smaller, larger, near.clone()])).svg;
    assert!(found.contains("1.0M, 1 seed, 4,096 tokens a step") && found.matches(" tokens a step").count() == 2, "{found}");
    // Of two that are as far from it the one with more seeds is shown.
    let [half, twice] =
        [("half", 131_072, &[14][..]), ("twice", 524_288, &[14, 15])].map(|(name, tokens, seeds)| batch(name, tokens, seeds));
    let found = pages(&of(&[large.clone(), half, twice])).svg;
    assert!(found.contains("2 seeds, 524,288 tokens") && found.matches(" tokens a step").count() == 2, "{found}");
    // Of two with one batch that with the first's learning rate is shown, though the other has more seeds.
    let fast = Made { seeds: &[14, 15], learning_rate: "learning_rate: 4.0e-3", arms, tokens_per_step: 4_096, ..Made::new("a-fast") };
    let fast = fast.write(folder.path());
    let found = pages(&of(&[large.clone(), fast.clone(), near.clone()])).svg;
    assert!(found.contains("1.0M, 1 seed, 4,096 tokens a step, rate 2e−3") && found.matches(" tokens a step").count() == 2, "{found}");
    let found = pages(&of(&[large.clone(), fast])).svg;
    assert!(found.contains("1.0M, 2 seeds, 4,096 tokens a step, rate 4e−3"), "{found}");
    // Another size comes before another batch: public logs leave room for six.
    let sizes = [2, 3, 4, 5, 6].map(|millions| {
        let name = format!("of-{millions}");
        Made { arms, seeds: &[14], parameters: millions * 1_000_000, ..Made::new(&name) }.write(folder.path())
    });
    let found = pages(&of(&[&[large, near][..], &sizes].concat())).svg;
    assert!(!found.contains("4,096") && found.matches(" tokens a step").count() == 6, "{found}");
}

/// What is committed: for campaigns of the second version of the rules the table of all evidence says what their own verdicts say. That table
/// and page are what this tree makes of the campaigns: `cargo xtask synthesis --check` makes them again in CI.
#[test]
fn committed_campaigns_say_here_what_their_reports_say() {
    let results = repository().join("results");
    let table = csv::Reader::from_path(results.join("index.csv")).unwrap().into_deserialize().collect::<Result<Vec<Line>, _>>().unwrap();
    let judged = table.iter().filter(|row| row.own_rules == "2" && row.depth == "matched depth" && !row.claim.starts_with("MX-"));
    let mut compared = 0;
    for row in judged {
        let text = fs::read_to_string(results.join(&row.source).join("verdicts.json")).unwrap();
        let verdicts: Verdicts = serde_json::from_str(&text).unwrap();
        let claim = verdicts.claims().find(|claim| claim.id == row.claim).unwrap();
        let Some(line) = claim.lines.iter().rfind(|line| line.what == "size" && line.stretch == "matched depth") else { continue };
        let Some(number) = line.number else { continue };
        // The table has six digits.
        assert!((row.number.unwrap() / number - 1.0).abs() < 1e-5, "{} {}: {:?} and {number}", row.source, row.claim, row.number);
        assert_eq!(row.verdict, claim.verdict, "{} {}", row.source, row.claim);
        compared += 1;
    }
    assert!(compared >= 5, "{compared}");
    assert!(table.iter().any(|row| row.evidence == "public-log"));
    let page = fs::read_to_string(results.join("index.html")).unwrap();
    assert!(page.len() < 2_000_000 && !page.contains("NaN") && !page.contains("http-equiv"));
    // Nobody knows whether what public logs do not say is another one there.
    assert!(page.contains("who ran it. Not on record of all of them: optimizer or schedule, the batch, the budget."));
}

/// What these tests read of a line of `index.csv`.
#[derive(serde::Deserialize)]
struct Line {
    claim: String,
    source: String,
    depth: String,
    evidence: String,
    number: Option<f64>,
    verdict: String,
    own_rules: String,
}

/// Two campaigns at one depth that exclude each other are said, with what else differs between them; and neither is hidden.
#[test]
fn campaigns_that_exclude_each_other_are_a_disagreement() {
    let folder = tempfile::tempdir().unwrap();
    let cheap = Made::new("cheap").write(folder.path());
    let arms: Vec<(&str, f64)> = ARMS.iter().map(|(arm, cost)| (*arm, if *arm == "mxfp4-f" { 1.30 } else { *cost })).collect();
    let dear = Made { arms: &arms, parameters: 2_000_000, ..Made::new("dear") }.write(folder.path());
    let synthesis = of(&[cheap, dear]);
    let found: Vec<_> = synthesis.disagreements.iter().filter(|found| !found.text.contains("public logs")).collect();
    assert_eq!(found.iter().map(|found| found.claim.as_str()).collect::<Vec<_>>(), ["T1-F"], "{found:?}");
    assert!(found[0].text.contains("1.0M, cpu: +8.5") && found[0].text.contains("2.0M, cpu: +29.9"), "{}", found[0].text);
    assert!(found[0].text.ends_with("Between them differ the model's size."), "{}", found[0].text);
    let html = pages(&synthesis).html;
    assert!(html.contains("2.0M, cpu: +29.9"));
    // A line for each campaign below the claim, its numbers by depth; none where nothing was run.
    let table = html.split_once("<table id=\"evidence-2605.09825\">").unwrap().1.split_once("</table>").unwrap().0;
    let (claim, rest) = table.split_once("T1-F. Fprop in MXFP4 costs 8-9 % more tokens (the paper: ").unwrap();
    let lines: Vec<&str> = rest.split_once("class=\"group\"").unwrap().0.split("<tr>").skip(1).collect();
    assert!(claim.matches("<tr>").count() == 1 && lines.len() == 2, "{lines:?}");
    for (line, [campaign, number]) in lines.iter().zip([["1.0M, cpu", "+8.5"], ["2.0M, cpu", "+29.9"]]) {
        let depth = line.split_once("data-label=\"At the paper’s depth\">").unwrap().1;
        assert!(line.contains(campaign) && depth.starts_with(&format!("<span class=\"t\">{number}")), "{line}");
    }
    assert!(!table.contains("T1-SR-F."));
    let next = synthesis.next.iter().find(|next| next.claim == "T1-H16").unwrap();
    assert!(["decided", "open"].contains(&next.state) && !next.text.is_empty());
    assert_eq!(synthesis.next.iter().find(|next| next.claim == "T1-SR-F").unwrap().state, "not run");
}
