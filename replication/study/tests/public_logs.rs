//! Public logs: the committed tables against numbers computed elsewhere, runs that miss the target, bad manifests, and a result
//! directory that shows them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

use std::path::Path;

use crate::sealed;
use study::files;
use study::judge::{self, Verdicts};
use study::manifest::Manifests;
use study::manifest::PublicLogs;
use study::manifest::public_logs::{FOLDER, files_of, load};
use study::measure::measure;
use study::measure::target::Estimator;
use study::mllog::table;
use study::provenance;
use study::public_logs::{self, Comparison, Row};
use study::statistics::Interval;
use study::verify::verify;

use crate::synthetic::repository;

fn committed() -> PublicLogs {
    load(&repository()).unwrap().remove(0)
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} is not {expected}");
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A small result directory with the committed evidence, rendered and sealed.
fn results_with_evidence() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    sealed::write(directory.path());
    public_logs::add(&repository(), directory.path()).unwrap();
    sealed::seal(directory.path());
    directory
}

fn comparisons(directory: &Path) -> Vec<Comparison> {
    let measurements = measure(directory).unwrap();
    public_logs::judge(&measurements.study, &measurements.public_logs)
}

fn row<'a>(comparison: &'a Comparison, claim: &str, estimator: Option<Estimator>) -> &'a Row {
    comparison.rows.iter().find(|row| row.claim == claim && row.estimator == estimator).unwrap()
}

/// Computed from the same evaluations with Python 3.11, statistics.mean and scipy 1.17.1 (first evaluation at or below 3.3; the line
/// to the one before; median of the blocks or of the intervals less an evaluation; scipy.stats.t.ppf for the intervals).
#[test]
fn groups_measure_what_python_computes() {
    let evidence = committed();
    for (id, grid, interpolated, minutes, step) in [
        ("amd-v5.1-mi355x-fp8", 179_404.8, 172_789.159_353_569_18, 99.966_58, 1.042_908_463_541_666_7),
        ("amd-v6.0-mi355x-mxfp4", 186_777.6, 181_284.093_665_550_17, 87.263_628_333_333_34, 0.872_631_770_833_333_3),
        ("amd-v5.1-mi350x-fp8", 179_404.8, 174_888.598_482_510_8, 123.204_856_666_666_67, 1.284_850_390_625),
        ("amd-v6.0-mi350x-mxfp4", 189_235.2, 184_725.697_790_984_53, 109.938_17, 1.087_033_984_375),
        ("supermicro-v5.1-mi355x-fp8", 180_633.6, 174_763.747_825_118_07, 104.080_818_333_333_34, 1.077_115_234_375),
        ("dell-v5.1-mi355x-fp8", 184_320.0, 177_319.550_767_108_6, 107.469_32, 1.090_176_822_916_666_6),
        ("giga-v5.1-mi355x-fp8", 180_633.6, 177_361.105_009_217_05, 106.216_371_666_666_66, 1.099_856_380_208_333_4),
        ("cisco-v5.1-mi350x-fp8", 179_404.8, 175_723.206_593_720_24, 127.457_06, 1.328_079_817_708_333_3),
    ] {
        let numbers = evidence.numbers(id).unwrap();
        assert_eq!((numbers.runs.len(), numbers.missed()), (10, 0), "{id}");
        near(mean(&numbers.samples(Estimator::Grid)), grid);
        near(mean(&numbers.samples(Estimator::Interpolated)), interpolated);
        near(mean(&numbers.minutes()), minutes);
        near(mean(&numbers.steps()), step);
    }
    let mixed = evidence.numbers("amd-v6.0-mi355x-mxfp4").unwrap();
    assert_eq!(mixed.estimated_steps(), 9);
    // The run whose blocks are known, by both ways: the estimate is good to a thousandth.
    let by_intervals = mean(&mixed.steps()[1..]);
    assert!((mixed.steps()[0] / by_intervals - 1.0).abs() < 4e-3, "{} {by_intervals}", mixed.steps()[0]);
}

/// The published scores of the entries are olympic means of minutes (MLPerf Training v5.1, v6.0).
#[test]
fn olympic_means_are_the_published_scores() {
    let evidence = committed();
    for (id, published) in [
        ("amd-v5.1-mi355x-fp8", 99.31),
        ("amd-v6.0-mi355x-mxfp4", 86.84),
        ("amd-v5.1-mi350x-fp8", 122.44),
        ("amd-v6.0-mi350x-mxfp4", 109.76),
        ("supermicro-v5.1-mi355x-fp8", 103.56),
        ("dell-v5.1-mi355x-fp8", 107.46),
        ("giga-v5.1-mi355x-fp8", 105.67),
        ("cisco-v5.1-mi350x-fp8", 127.62),
    ] {
        let score = study::statistics::olympic_mean(&evidence.numbers(id).unwrap().minutes()).unwrap();
        assert!((score - published).abs() < 0.006, "{id}: {score}");
    }
}

/// Ratios of means with Welch's interval on the logarithmic scale, from scipy as above.
#[test]
fn comparisons_have_the_intervals_that_scipy_gives() {
    let directory = results_with_evidence();
    let all = comparisons(directory.path());
    let oracle = [
        (
            "mi355x",
            "T2-TOK",
            Some(Estimator::Grid),
            [1.041_095_890_410_959, 1.002_845_309_119_933_6, 1.080_805_427_490_874],
            "inconclusive",
        ),
        (
            "mi355x",
            "T2-TOK",
            Some(Estimator::Interpolated),
            [1.049_163_583_778_993_2, 1.018_339_824_721_282_7, 1.080_920_336_027_565],
            "inconclusive",
        ),
        (
            "mi350x",
            "T2-TOK",
            Some(Estimator::Grid),
            [1.054_794_520_547_945_4, 1.014_277_431_966_195_1, 1.096_930_135_200_969_7],
            "inconclusive",
        ),
        (
            "mi350x",
            "T2-TOK",
            Some(Estimator::Interpolated),
            [1.056_247_802_280_018, 1.030_668_520_231_464_7, 1.082_461_914_690_880_7],
            "inconclusive",
        ),
        ("mi350x", "T2-STEP", None, [1.181_978_124_965_188, 1.179_321_482_069_292_3, 1.184_640_752_447_630_8], "consistent"),
        (
            "mi355x",
            "T2-E2E",
            None,
            [1.0 - 0.872_928_015_876_239_1, 1.0 - 0.906_037_449_416_104_4, 1.0 - 0.841_028_504_277_279_5],
            "inconclusive",
        ),
        (
            "mi350x",
            "T2-E2E",
            None,
            [1.0 - 0.892_320_099_827_233_5, 1.0 - 0.927_981_672_338_065_1, 1.0 - 0.858_028_972_220_492_7],
            "inconclusive",
        ),
    ];
    for (comparison, claim, estimator, [number, low, high], word) in oracle {
        let comparison = all.iter().find(|one| one.id == comparison).unwrap();
        let row = row(comparison, claim, estimator);
        near(row.number.unwrap(), number);
        near(row.interval.unwrap().low, low);
        near(row.interval.unwrap().high, high);
        assert_eq!((row.word, row.runs), (word, [10, 10]), "{claim}");
    }
    // A claim about the excess over one is the ratio less one.
    near(row(&all[0], "T1-H16", Some(Estimator::Grid)).number.unwrap(), 0.041_095_890_410_959);
}

/// 1.0430/0.8722/1.041 against 99.31/86.84, by hand from the published table: within a percent of each other.
#[test]
fn the_parts_explain_the_time() {
    let directory = results_with_evidence();
    let parts: Vec<_> = comparisons(directory.path()).iter().map(|one| one.decomposition.unwrap()).collect();
    near(parts[0].product(), parts[0].step / parts[0].samples);
    assert!((parts[0].product() - 1.148).abs() < 5e-4 && (parts[0].time - 1.1456).abs() < 5e-5, "{:?}", parts[0]);
    assert!((parts[1].product() - 1.1206).abs() < 5e-5 && (parts[1].time - 1.1207).abs() < 5e-5, "{:?}", parts[1]);
    assert!(parts.iter().all(public_logs::Decomposition::holds));
}

#[test]
fn the_baseline_moves_the_number() {
    let directory = results_with_evidence();
    let all = comparisons(directory.path());
    let baselines = &all[0].baselines;
    let of = |label: &str| baselines.iter().find(|other| other.label.contains(label)).unwrap();
    for (label, runs, expected) in [
        ("Giga", 10, [1.022_118_652_542_953_3, 0.990_945_776_051_295_4, 1.054_272_156_080_257_7]),
        ("four submitters", 40, [1.032_614_236_794_397, 1.014_168_587_703_319, 1.051_395_374_456_622]),
    ] {
        let ratio = of(label).interpolated.unwrap();
        let interval = ratio.interval.unwrap();
        [ratio.ratio, interval.low, interval.high].into_iter().zip(expected).for_each(|(found, expected)| near(found, expected));
        assert_eq!((of(label).runs, of(label).step.is_some()), (runs, true), "{label}");
    }
    assert!(of("reference").grid.unwrap().interval.is_some() && of("reference").interpolated.is_none());
    assert_eq!((of("AMD v5.1, pooled").runs, of("AMD v5.1, pooled").step), (20, None), "step times of another accelerator do not count");
    // Without the slowest baseline run (196,608): mean of the other nine 177,493.33; without a fastest (172,032): 180,224.
    let [grid, _] = all[0].without_one.unwrap();
    near(grid.high, 186_777.6 / ((1_794_048.0 - 196_608.0) / 9.0));
    near(grid.low, 186_777.6 / ((1_794_048.0 - 172_032.0) / 9.0));
}

/// The table of docs/public-logs.md is typed by hand: every number in it must be one that the tables give.
#[test]
fn the_page_on_public_logs_says_what_the_tables_say() {
    let page = std::fs::read_to_string(repository().join("docs/public-logs.md")).unwrap();
    let directory = results_with_evidence();
    let all = comparisons(directory.path());
    let text = |row: &Row, scale: f64, decimals: usize| {
        let [number, low, high] = [row.number.unwrap(), row.interval.unwrap().low, row.interval.unwrap().high]
            .map(|value| format!("{:.decimals$}", scale * value));
        if scale > 1.0 { format!("{number} % [{low}, {high}]") } else { format!("{number} [{low}, {high}]") }
    };
    for comparison in &all {
        for (claim, estimator, scale, decimals) in [
            ("T2-STEP", None, 1.0, 3),
            ("T2-TOK", Some(Estimator::Interpolated), 1.0, 3),
            ("T2-TOK", Some(Estimator::Grid), 1.0, 3),
            ("T2-E2E", None, 100.0, 1),
        ] {
            let row = row(comparison, claim, estimator);
            let expected = text(row, scale, decimals);
            let said = page.lines().find(|line| line.contains(&expected));
            assert!(said.is_some_and(|line| estimator == Some(Estimator::Grid) || line.contains(row.word)), "{claim}: {expected}");
        }
        let parts = comparison.decomposition.unwrap();
        assert!(page.contains(&format!("{:.3}", parts.product())) && page.contains(&format!("{:.3}", parts.time)));
    }
    let ratios = || all[0].baselines.iter().filter_map(|other| other.interpolated).map(|ratio| ratio.ratio);
    let (low, high) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
    assert!(page.contains(&format!("from {low:.3} to {high:.3}")), "{low} {high}");
    let all_of_round = all[0].baselines.iter().find(|other| other.runs == 40).and_then(|other| other.interpolated).unwrap();
    let Interval { low, high } = all_of_round.interval.unwrap();
    assert!(page.contains(&format!("{:.3} [{low:.3}, {high:.3}]", all_of_round.ratio)), "{all_of_round:?}");
}

#[test]
fn public_logs_decide_nothing_of_ours() {
    let plain = tempfile::tempdir().unwrap();
    sealed::write(plain.path());
    let (without, with) = (judge::recompute(plain.path()).unwrap(), results_with_evidence());
    let with = judge::recompute(with.path()).unwrap();
    let strip = |verdicts: Verdicts| {
        let mut verdicts = verdicts;
        let claims = verdicts.papers.iter_mut().flat_map(|paper| &mut paper.claims);
        claims.for_each(|claim| claim.beside.retain(|item| item.evidence != judge::Evidence::PublicLog));
        verdicts
    };
    assert_ne!(with, without);
    let beside = &with.claims().find(|claim| claim.id == "T2-STEP").unwrap().beside;
    let words: Vec<String> = beside.iter().map(|item| format!("{}: {} ({})", item.label, item.text, item.evidence.word())).collect();
    assert!(words.contains(&"MI355X: 1.195× [1.194, 1.197]× (public-log)".to_owned()), "{words:?}");
    assert_eq!(strip(with), without);
}

#[test]
fn a_result_directory_with_evidence_verifies_and_shows_it() {
    let directory = results_with_evidence();
    let verification = verify(directory.path(), None, None).unwrap();
    assert!(verification.holds(), "{verification}");
    let html = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
    for text in ["from public MLPerf Training logs", "public-log", "Welch", "any one of its runs left out", "Native runs on MI350X"] {
        assert!(html.contains(text), "{text}");
    }
    let figure = std::fs::read_to_string(directory.path().join("figures/public-logs-1.csv")).unwrap();
    assert_eq!(figure.lines().next().unwrap().split(',').count(), 1 + 2 + 20, "samples, two means, twenty runs");
    let again = public_logs::add(&repository(), directory.path()).unwrap_err().to_string();
    assert!(again.ends_with("manifests/evidence: is already there; evidence in a result directory is never replaced"), "{again}");
}

#[test]
fn a_changed_loss_is_found_even_with_new_hashes() {
    let directory = results_with_evidence();
    let path = directory.path().join("manifests/evidence/mlperf-llama31-8b/amd-v5.1-mi350x-fp8/evaluations.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = text.replacen("0,172032,3.2966725826263428", "0,172032,3.3966725826263428", 1);
    assert_ne!(text, changed);
    std::fs::write(&path, changed).unwrap();
    let found = verify(directory.path(), None, None).unwrap();
    assert!(found.findings.iter().any(|finding| finding.path.ends_with("evaluations.csv") && finding.what.contains("SHA-256")), "{found}");
    provenance::write_statement(&sealed::renderer(), directory.path()).unwrap();
    provenance::write_sums(directory.path()).unwrap();
    let found = verify(directory.path(), None, None).unwrap();
    let files: Vec<&str> = found.findings.iter().map(|finding| finding.path.as_str()).collect();
    assert!(files.contains(&"data/public_log_runs.csv") && files.contains(&"data/public_log_claims.csv"), "{found}");
    std::fs::write(&path, "run,samples\n").unwrap();
    let found = verify(directory.path(), None, None).unwrap().to_string();
    assert!(found.contains("evaluations.csv: line 1: column 3 is nothing, expected `loss`"), "{found}");
}

/// A copy of the repository's manifests with its evidence.
fn copy() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let from = repository().join("manifests");
    for name in files::list(&from).unwrap() {
        files::copy(&from.join(&name), &root.path().join("manifests").join(&name)).unwrap();
    }
    root
}

const MANIFEST: &str = "mlperf-llama31-8b.yaml";
const GROUP: &str = "mlperf-llama31-8b/amd-v6.0-mi355x-mxfp4/runs.csv";

#[test]
fn bad_evidence_is_named() {
    let cases = [
        (
            MANIFEST,
            "id: mlperf-llama31-8b",
            "id: mlperf",
            "mlperf-llama31-8b.yaml:1: id `mlperf` must be the file's name, `mlperf-llama31-8b`",
        ),
        (
            MANIFEST,
            "target_loss: 3.3",
            "target_los: 3.3",
            "mlperf-llama31-8b.yaml:6: unknown field `target_los`, expected one of `id`, `title`, `benchmark`, `target_loss`, `tokens_per_sample`, `groups`, `references`, `comparisons`, `confounders` (did you mean `target_loss`?)",
        ),
        (
            MANIFEST,
            "arm: amd-v6.0-mi355x-mxfp4",
            "arm: amd-v6.0-mi355-mxfp4",
            "mlperf-llama31-8b.yaml:1: comparison mi355x: unknown group `amd-v6.0-mi355-mxfp4` (did you mean `amd-v6.0-mi355x-mxfp4`?)",
        ),
        (
            MANIFEST,
            "reference: rcp-32",
            "reference: rpc-32",
            "mlperf-llama31-8b.yaml:1: comparison mi355x: unknown reference `rpc-32` (did you mean `rcp-32`?)",
        ),
        (
            MANIFEST,
            "claims: [T2-STEP,",
            "claims: [T1-KERN,",
            "mlperf-llama31-8b.yaml: comparison mi355x: claim T1-KERN is not about tokens to the target, step time or time to the target",
        ),
        (
            MANIFEST,
            "claims: [T2-STEP,",
            "claims: [T2-STOP,",
            "mlperf-llama31-8b.yaml: comparison mi355x: unknown claim `T2-STOP` (did you mean `T2-STEP`?)",
        ),
        (MANIFEST, "    runs: 10\n", "    runs: 9\n", "mlperf-llama31-8b/amd-v5.1-mi355x-fp8/runs.csv: holds 10 runs, the manifest says 9"),
        (
            MANIFEST,
            "precision: mxfp4",
            "precision: nvfp4",
            "mlperf-llama31-8b/amd-v6.0-mi355x-mxfp4/runs.csv: run 0 states the precision mxfp4, the manifest says nvfp4",
        ),
        (
            MANIFEST,
            "id: amd-v5.1-mi355x-fp8",
            "id: ../amd-v5.1-mi355x-fp8",
            "mlperf-llama31-8b.yaml:9: groups[0]: `../amd-v5.1-mi355x-fp8` is no plain name: at most 100 letters, digits, `.`, `_`, `+` and `-`, the first a letter or a digit",
        ),
        (
            GROUP,
            ",table,8402,",
            ",table,17609,",
            "mlperf-llama31-8b/amd-v6.0-mi355x-mxfp4/runs.csv: runs 0 and 1 have the same seed: they are not independent",
        ),
        (
            GROUP,
            "llama31_8b",
            "llama2_70b",
            "mlperf-llama31-8b/amd-v6.0-mi355x-mxfp4/runs.csv: run 0 is of the benchmark `llama2_70b`, not of llama31_8b",
        ),
        (GROUP, "schema,", "scheme,", "mlperf-llama31-8b/amd-v6.0-mi355x-mxfp4/runs.csv:1: column 1 is `scheme`, expected `schema`"),
    ];
    for (file, old, new, message) in cases {
        let root = copy();
        let path = root.path().join(FOLDER).join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{file} no longer contains `{old}`: the case tests nothing");
        std::fs::write(&path, text.replacen(old, new, 1)).unwrap();
        let error = Manifests::load(root.path()).unwrap_err().to_string();
        assert_eq!(error, format!("manifests/evidence/{message}"));
    }
    Manifests::load(copy().path()).unwrap();
}

/// Takes the last evaluation, at or below the target, from a run of the arm: it then misses the target.
#[test]
fn a_run_that_misses_the_target_is_in_no_mean_and_decides_nothing() {
    let directory = tempfile::tempdir().unwrap();
    sealed::write(directory.path());
    public_logs::add(&repository(), directory.path()).unwrap();
    let folder = directory.path().join("manifests/evidence/mlperf-llama31-8b/amd-v6.0-mi350x-mxfp4");
    let mut records = table::read(&folder).unwrap();
    records[0].run.evaluations.pop();
    table::write(&folder, &records).unwrap();
    let measurements = measure(directory.path()).unwrap();
    let numbers = measurements.public_logs[0].numbers("amd-v6.0-mi350x-mxfp4").unwrap();
    assert_eq!((numbers.missed(), numbers.samples(Estimator::Grid).len(), numbers.minutes().len()), (1, 9, 9));
    // The mean of the other nine: 1,892,352 less 184,320 over nine.
    near(mean(&numbers.samples(Estimator::Grid)), (1_892_352.0 - 184_320.0) / 9.0);
    let all = public_logs::judge(&measurements.study, &measurements.public_logs);
    let tokens = row(&all[1], "T2-TOK", Some(Estimator::Grid));
    assert_eq!((tokens.word, tokens.runs), ("inconclusive", [9, 10]));
    assert_eq!(tokens.why, "1 of 20 runs did not reach the target and are in no mean; what they cost is unknown.");
    assert_eq!(all[1].decomposition, None);
    // Its steps were still timed.
    assert_eq!(row(&all[1], "T2-STEP", None).runs, [10, 10]);
    sealed::seal(directory.path());
    let html = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(html.contains("9 of 10") && verify(directory.path(), None, None).unwrap().holds());
}

/// A run as another submitter might have it: batch 32, evaluations every 12,288 samples, a steady fall to the target.
fn logged(seed: u64, crossing: u64) -> String {
    let line = |time: u64, key: &str, value: &str, metadata: &str| {
        format!(
            ":::MLLOG {{\"namespace\": \"\", \"time_ms\": {time}, \"event_type\": \"POINT_IN_TIME\", \"key\": \"{key}\", \"value\": {value}, \"metadata\": {{{metadata}}}}}\n"
        )
    };
    let mut text = line(1, "submission_benchmark", "\"llama31_8b\"", "")
        + &line(1, "global_batch_size", "32", "")
        + &line(1, "seed", &seed.to_string(), "")
        + &line(2, "init_stop", "null", "")
        + &line(3, "run_start", "null", "");
    for index in 1..=crossing {
        let loss = 3.25 + 0.1 * (crossing - index) as f64;
        let samples = format!("\"samples_count\": {}", 12_288 * index);
        text += &line(3 + 400_000 * index, "eval_accuracy", &loss.to_string(), &samples);
    }
    text + &line(4 + 400_000 * crossing, "run_stop", "null", "\"status\": \"success\"")
}

/// What docs/public-logs.md says: import the logs into a folder, name the folder in the manifest.
#[test]
fn another_submitter_is_one_import_and_one_entry() {
    let root = copy();
    let logs = root.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    for (index, crossing) in [14u64, 15, 16].into_iter().enumerate() {
        std::fs::write(logs.join(format!("result_{index}.txt")), logged(100 + index as u64, crossing)).unwrap();
    }
    let import = study::mllog::import(&[logs], &study::mllog::Options::default());
    assert_eq!((import.problems(), import.runs.len()), (0, 3));
    let folder = root.path().join(FOLDER).join("mlperf-llama31-8b/somebody-v6.0-fp8");
    table::write(&folder, &import.records("Somebody/results/box/llama31_8b")).unwrap();
    let path = root.path().join(FOLDER).join(MANIFEST);
    let entry = "groups:\n  - {id: somebody-v6.0-fp8, label: \"FP8, somebody\", round: v6.0, submitter: Somebody, accelerator: \"8 x MI355X\", precision: fp8, runs: 3, \
        source: {repository: o/r, commit: abc, path: Somebody/results/box/llama31_8b}, read: \"Read here.\"}\n";
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replacen("groups:\n", entry, 1).replacen(
        "      - {reference: rcp-32}\n",
        "      - {label: \"FP8, somebody\", groups: [somebody-v6.0-fp8]}\n",
        1,
    );
    std::fs::write(&path, text).unwrap();
    let manifests = Manifests::load(root.path()).unwrap();
    let numbers = manifests.public_logs[0].numbers("somebody-v6.0-fp8").unwrap();
    // The loss falls from 3.35 to 3.25 in the last interval, so the target lies half way through it.
    assert_eq!(numbers.samples(Estimator::Grid), [14.0, 15.0, 16.0].map(|index| 12_288.0 * index));
    assert_eq!(
        numbers.samples(Estimator::Interpolated).iter().map(|samples| (samples / 12_288.0 * 1e6).round() / 1e6).collect::<Vec<_>>(),
        [13.5, 14.5, 15.5]
    );
    // No block marks and no length of an evaluation: no step time is made up.
    assert_eq!((numbers.steps().len(), numbers.minutes().len()), (0, 3));
    let PublicLogs { manifest, .. } = &manifests.public_logs[0];
    assert_eq!((manifest.groups.len(), manifest.comparisons[0].other_baselines.len()), (8 + 1, 6));
    assert_eq!(files_of(&manifests.public_logs, &["2605.09825".to_owned()]).len(), 1 + 2 * 9);
    assert!(files_of(&manifests.public_logs, &["2502.20586".to_owned()]).is_empty());
}

/// The same rows as our own runs would be judged by, at the edges of the rule: an interval inside, outside and across.
#[test]
fn words_follow_the_rule() {
    let directory = results_with_evidence();
    let path = directory.path().join("manifests/papers/2605.09825.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let step = "native_formats: [e2m1, e4m3]}\n  - {id: T2-TOK";
    assert!(text.contains(step) && text.contains("reported: [1.20, 1.20], tolerance: 0.05"));
    for (reported, word) in [
        ("[1.20, 1.20], tolerance: 0.05", "consistent"),
        ("[1.30, 1.30], tolerance: 0.05", "differs"),
        ("[1.20, 1.20], tolerance: 0.005", "inconclusive"),
    ] {
        std::fs::write(&path, text.replace("[1.20, 1.20], tolerance: 0.05", reported)).unwrap();
        let all = comparisons(directory.path());
        assert_eq!(row(&all[0], "T2-STEP", None).word, word, "{reported}");
    }
}
