//! From a synthetic result directory, whose numbers are known, to verdicts and reports. One file, because every test starts from that one
//! campaign.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Command;

use study::judge::{self, ClaimVerdict, Verdicts};
use study::render::{LARGEST_HTML, RenderError, RenderOptions, RenderSummary, render};

use crate::synthetic::{self, ARMS, Arm, repository, run_directory, save};

pub fn render_here(directory: &Path) -> RenderSummary {
    render(directory, &repository().join("paper"), &RenderOptions::default()).unwrap()
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

pub fn edit(path: &Path, change: impl Fn(&str) -> String) {
    let text = read(path);
    let changed = change(&text);
    assert_ne!(text, changed, "the edit of {} changed nothing", path.display());
    save(path, &changed);
}

fn claim<'a>(verdicts: &'a Verdicts, id: &str) -> &'a ClaimVerdict {
    verdicts.claims().find(|claim| claim.id == id).unwrap()
}

pub fn arms(ids: &[&str]) -> Vec<Arm> {
    ARMS.iter().filter(|arm| ids.contains(&arm.id)).copied().collect()
}

/// The curves are straight lines, so the interpolated ratio of every arm must be the ratio it was made with. Losses and tokens
/// are written to 17 digits; 1e-9 leaves room for the cancellation in the interpolation (7 over a difference of 0.1).
#[test]
fn ratios_come_back_as_they_were_made() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let verdicts = judge::recompute(directory.path()).unwrap();
    for (id, arm) in [("T1-F", "mxfp4-f"), ("T1-FD", "mxfp4-fd"), ("T1-FDW", "mxfp4-fdw"), ("T1-H16", "mxfp4-fdw-h16")] {
        let made = ARMS.iter().find(|candidate| candidate.id == arm).unwrap();
        let found = claim(&verdicts, id);
        assert!((found.number.unwrap() - (made.ratio - 1.0)).abs() < 1e-9, "{id}: {:?}", found.number);
        // Three seeds at ratio - spread, ratio, ratio + spread: sd is the spread, half width t(2) sd / sqrt(3) with t(2) = 4.302653.
        let half = 4.302_652_7 * made.spread / 3f64.sqrt();
        assert!((found.interval.unwrap()[1] - (made.ratio - 1.0 + half)).abs() < 1e-7, "{id}");
    }
    assert!((claim(&verdicts, "T1-KERN").number.unwrap() - 1.08).abs() < 1e-9);
}

#[test]
fn every_verdict_of_the_synthetic_campaign() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let summary = render_here(directory.path());
    let lines: Vec<String> = summary
        .verdicts
        .claims()
        .map(|claim| {
            let evidence = claim.evidence.map_or("-", |evidence| evidence.word());
            format!(
                "{:<13} {:<10} {:<11} {:<21} {:<12} {:<8} {}",
                claim.id, claim.paper, claim.ours, claim.interval_text, claim.verdict, evidence, claim.why
            )
            .replace('\u{a0}', "_")
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
    let checks = summary.verdicts.papers.iter().flat_map(|paper| &paper.checks);
    for check in checks {
        assert!(check.holds, "{check:?}");
    }
}

#[test]
fn a_page_without_scripts_or_strangers_within_its_budget() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let html = read(&render_here(directory.path()).html);
    assert!(html.len() < LARGEST_HTML / 5, "{} bytes", html.len());
    for forbidden in ["<script", "<link", "<img", "<iframe", "@import", "url(", "javascript:", " src=", " onload", "NaN", "undefined"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let without_links = html.replace("http://www.w3.org/2000/svg", "").replace("href=\"https://arxiv.org/abs/", "");
    assert!(!without_links.contains("http:") && !without_links.contains("https:"));
    for needed in [
        "<html lang=\"en\">",
        "name=\"viewport\"",
        "@media screen and (prefers-color-scheme: dark)",
        "@media print",
        "<caption>",
        "scope=\"col\"",
        "role=\"img\"",
        "aria-label",
    ] {
        assert!(html.contains(needed), "{needed}");
    }
    for claim in judge::recompute(directory.path()).unwrap().claims() {
        assert!(html.contains(&format!("--only {}<", claim.id)), "no way to rerun {}", claim.id);
    }
    let first_screen = html.split("<nav").next().unwrap();
    insta::assert_snapshot!(first_screen.split("</style>").nth(1).unwrap());
}

#[test]
fn rendering_twice_gives_equal_bytes() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let first = render_here(directory.path());
    let files = ["report.html", "report.tex", "macros.tex", "verdicts.json", "data/claims.csv", "figures/figure-1a.svg", "tables/arms.tex"];
    let before: Vec<String> = files.iter().map(|file| read(&directory.path().join(file))).collect();
    let second = render_here(directory.path());
    let after: Vec<String> = files.iter().map(|file| read(&directory.path().join(file))).collect();
    assert_eq!(before, after);
    assert_eq!(first.verdicts, second.verdicts);
    let written: Verdicts = serde_json::from_str(&before[3]).unwrap();
    assert_eq!(written, judge::recompute(directory.path()).unwrap(), "verify reads back what render wrote");
}

/// A figure that an earlier version of the renderer drew goes; a file that it never wrote stays.
#[test]
fn rendering_again_leaves_nothing_of_an_earlier_version() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    for (name, stays) in [("figures/figure-9z.svg", false), ("tables/old.tex", false), ("figures/notes.txt", true), ("old.tex", true)] {
        save(&directory.path().join(name), "earlier");
        render_here(directory.path());
        assert_eq!(directory.path().join(name).exists(), stays, "{name}");
    }
    assert!(directory.path().join("figures/answer.svg").exists());
}

/// Runs on the device itself have native evidence for MXFP4; one run that emulated it, or an interpreter in the device's place, and nothing does.
#[test]
fn what_ran_decides_what_the_evidence_is() {
    let evidence_of = |more: &str| {
        let directory = tempfile::tempdir().unwrap();
        synthetic::write_arms(directory.path(), &arms(&["fp8", "mxfp4-f"]), &[1, 2]);
        let hardware = repository().join("manifests/hardware/amd-mi355x.yaml");
        save(&directory.path().join("manifests/hardware.yaml"), &read(&hardware));
        for seed in [1, 2] {
            edit(&run_directory(directory.path(), "mxfp4-f", seed).join("timing.jsonl"), |text| {
                let gpu = format!("\"device\":\"hip\",\"gpu\":\"a GPU\",\"libraries\":[\"HIP 7.0\"],{more}\"threads\":1");
                text.replace("\"threads\":1", &gpu)
            });
        }
        let verdicts = judge::recompute(directory.path()).unwrap();
        let evidence = claim(&verdicts, "T1-F").evidence.unwrap();
        (evidence.word(), claim(&verdicts, "T2-STEP").why.clone(), read(&render_here(directory.path()).html))
    };
    let (native, _, page) = evidence_of("\"mxfp4\":\"native\",");
    assert_eq!(native, "native");
    assert!(page.contains("AMD Instinct MI355X") && !page.contains("interpreter in place of"));
    let (emulated, why, _) = evidence_of("\"mxfp4\":\"fprop native, wgrad emulated\",");
    assert_eq!(emulated, "emulated");
    assert!(why.contains("the speed of FP4 units, which this device (AMD Instinct MI355X) does not have"), "{why}");
    let (interpreted, why, page) = evidence_of("\"mxfp4\":\"native\",\"interpreted\":true,");
    assert_eq!(interpreted, "interpreted");
    let title = "instruction set interpreter in place of AMD Instinct MI355X: not run on that device";
    assert!(why.contains(title) && page.contains(title), "{why}");
}

/// Negative control: a report whose verdicts did not depend on the metrics would pass every other test.
#[test]
fn changing_one_run_changes_its_verdict_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let before = judge::recompute(directory.path()).unwrap();
    assert_eq!(claim(&before, "T1-F").verdict, "reproduced");
    edit(&run_directory(directory.path(), "mxfp4-f", 2).join("metrics.jsonl"), |text| {
        text.replace(
            "\"kind\":\"eval\",\"step\":240,\"tokens\":245760,\"loss\":4",
            "\"kind\":\"eval\",\"step\":240,\"tokens\":245760,\"loss\":3",
        )
    });
    let after = judge::recompute(directory.path()).unwrap();
    assert_eq!(claim(&after, "T1-F").verdict, "inconclusive");
    let changed: Vec<&str> =
        before.claims().zip(after.claims()).filter(|(before, after)| before != after).map(|(claim, _)| claim.id.as_str()).collect();
    assert_eq!(changed, ["T1-F"]);
}

#[test]
fn what_is_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8", "mxfp4-f", "mxfp4-fd", "mxfp4-fdw-h16"]), &[1]);
    save(&run_directory(directory.path(), "mxfp4-fd", 1).join("failed.json"), r#"{"schema":"mxfp4-failed/1","error":"no space left"}"#);
    std::fs::remove_file(run_directory(directory.path(), "mxfp4-fdw-h16", 1).join("done.json")).unwrap();
    let summary = render_here(directory.path());
    let verdict = |id: &str| {
        let claim = claim(&summary.verdicts, id);
        (claim.verdict.clone(), claim.reason.clone().unwrap_or_default())
    };
    assert_eq!(verdict("T1-F"), ("inconclusive".into(), String::new()), "one seed has no interval");
    assert_eq!(verdict("T1-FD"), ("failed".into(), "mxfp4-fd, seed 1: no space left".into()));
    assert_eq!(verdict("T1-H16"), ("not-run".into(), "no run of mxfp4-fdw-h16 is finished; resume the campaign".into()));
    assert_eq!(verdict("T1-FDW"), ("not-run".into(), "arm mxfp4-fdw has no run in this campaign".into()));
    assert_eq!(verdict("T2-STEP"), ("not-run".into(), "no native FP8 unit on this device".into()));
    assert_eq!(summary.warnings.len(), 1);
    let html = read(&summary.html);
    assert!(html.contains("no space left") && html.contains("resume the campaign"));
    // Claims without their arms share a line of the first table; the later ones say each what it needs.
    let (table, rest) = html.split_once("<table id=\"claims-2605.09825\">").unwrap().1.split_once("</table>").unwrap();
    let together = "Not run, as this campaign is without their arms: T1-FDW, T1-SR-F,";
    assert!(table.contains(together) && table.matches("T1-FDW").count() == 1 && rest.contains("--only T1-FDW"), "{table}");
    assert!(["T1-F<", "T1-FD<", "T1-H16<", "T1-KERN<", "T2-STEP<"].iter().all(|claim| table.contains(claim)), "{table}");
}

#[test]
fn a_baseline_that_misses_the_target_decides_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Arm { id: "fp8", ratio: 1.6, spread: 0.0 };
    let mut all = arms(&["mxfp4-f", "mxfp4-fdw-sr"]);
    all.push(slow);
    synthetic::write_arms(directory.path(), &all, &[1, 2, 3]);
    let verdicts = judge::recompute(directory.path()).unwrap();
    for id in ["T1-F", "T1-SR-FDW"] {
        let claim = claim(&verdicts, id);
        assert_eq!(claim.verdict, "inconclusive", "{id}");
        assert!(claim.why.starts_with("The baseline did not reach the target"), "{}", claim.why);
    }
}

#[test]
fn a_diverged_run_does_not_converge_and_has_no_gap() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8", "mxfp4-fdw-sr", "mxfp4-f"]), &[1, 2, 3]);
    for seed in [1, 2, 3] {
        let run = run_directory(directory.path(), "mxfp4-fdw-sr", seed);
        edit(&run.join("metrics.jsonl"), |text| {
            let cut = text.find("{\"kind\":\"eval\",\"step\":104").unwrap();
            format!("{}{}\n", &text[..cut], "{\"kind\":\"diverged\",\"step\":97,\"reason\":\"training loss is not finite\"}")
        });
        edit(&run.join("done.json"), |text| text.replace("completed", "diverged").replace("\"steps\":320", "\"steps\":97"));
    }
    let summary = render_here(directory.path());
    let claim = claim(&summary.verdicts, "T1-SR-FDW");
    assert_eq!((claim.verdict.as_str(), claim.ours.as_str()), ("reproduced", "not reached by 3 of 3"));
    assert_eq!(
        claim.why,
        "None of 3 seeds reached the target within the budget, 1.43 times the baseline's tokens, 3 of them by diverging, and none is still descending."
    );
    assert!(read(&directory.path().join("data/loss_gap.csv")).contains("mxfp4-fdw-sr,fp8,1,,\n"));
    assert!(read(&summary.html).contains("diverged at step 97"));
}

#[test]
fn native_hardware_judges_speed_and_prints_the_decomposition() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    edit(&directory.path().join("manifests/hardware.yaml"), |text| {
        text.replace("native_formats: [f32]", "native_formats: [f32, bf16, e4m3, e5m2, e2m1]")
    });
    let verdicts = judge::recompute(directory.path()).unwrap();
    let step = claim(&verdicts, "T2-STEP");
    assert_eq!((step.verdict.as_str(), step.evidence.map(|evidence| evidence.word())), ("reproduced", Some("native")));
    let saved = claim(&verdicts, "T2-E2E");
    // 1 - 1.084 / 1.2: step ratio 1.2, token ratio 1.084 by construction.
    assert!((saved.number.unwrap() - (1.0 - 1.084 / 1.2)).abs() < 1e-9, "{saved:?}");
    assert_eq!(saved.verdict, "reproduced");
    assert_eq!(saved.beside[0].text, "1.200 ÷ 1.084 = 1.107×");
    assert_eq!(saved.beside[0].evidence.word(), "modelled");
    assert_eq!(saved.beside[2].text, "agree within 5.0\u{a0}% (0.0\u{a0}% apart)");
    assert_eq!(claim(&verdicts, "H4").verdict, "reproduced");
}

#[test]
fn bad_lines_name_file_line_and_key() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8"]), &[1]);
    let metrics = run_directory(directory.path(), "fp8", 1).join("metrics.jsonl");
    let good = read(&metrics);
    for (from, to, expected) in [
        ("\"grad_norm\":1.5", "\"grad_norm\":1.5,\"novelty\":1", "unknown field `novelty`"),
        ("\"kind\":\"train\"", "\"kind\":\"trian\"", "unknown variant `trian`"),
        ("mxfp4-metrics/1", "mxfp4-metrics/9", "schema `mxfp4-metrics/9` is not `mxfp4-metrics/1`"),
        ("\"seed\":1,", "\"seed\":2,", "header says arm `fp8` seed 2"),
        ("\"loss\":7}", "\"loss\":\"low\"}", "invalid type"),
        (",\"loss\":7}", "}", "missing field `loss`"),
    ] {
        save(&metrics, &good.replacen(from, to, 1));
        let error = judge::recompute(directory.path()).unwrap_err().to_string();
        assert!(error.contains("metrics.jsonl, line ") && error.contains(expected), "{error}");
    }
    save(&metrics, &good[..good.len() - 40]);
    assert!(judge::recompute(directory.path()).is_err(), "a truncated file is not silently shorter");
}

#[test]
fn a_template_that_names_nothing_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8"]), &[1, 2]);
    let templates = directory.path().join("templates");
    for name in ["report.html.j2", "style.css", "table.html.j2", "report.tex.j2"] {
        save(&templates.join(name), &read(&repository().join("paper").join(name)));
    }
    edit(&templates.join("report.html.j2"), |text| text.replacen("{{ page.scale }}", "{{ page.scales }}", 1));
    let error = render(directory.path(), &templates, &RenderOptions::default()).unwrap_err();
    assert!(matches!(error, RenderError::Render { name: "report.html.j2", .. }), "{error}");
    std::fs::remove_file(templates.join("report.tex.j2")).unwrap();
    assert!(render(directory.path(), &templates, &RenderOptions::default()).is_err());
}

/// A bench without samples, but with one ratio: 0.9 of a bar of 1.
const KERNELS: &str = r#"{"schema":"mxfp4-kernels/1","date":"2026-05-09","machine":"synthetic","processor":"p","device":"cpu","instruction_set":"avx2",
"commit":"0123","dirty":false,"trainer_code":"other","depth":"quick","only":null,"threads":[1],"rounds":15,"peers_asked":false,"measuring_seconds":1.0,
"benchmarks":[],"samples":[],"peers":[],"missing":[],"peer_environment":null,"profile":[],"memory":[],
"comparisons":[{"section":"s","what":"a <fast> kernel_50 %","ours":"a","over":"b","threads":1,"ratio":0.9,"interval":[0.8,1.1],"n":15,"in_turns":true,"is_share":false,
"bar":1.0,"paper":null,"verdict":"missed","note":"bounded by _this_ & that"}]}"#;

#[test]
fn kernels_of_the_machine_are_shown_and_without_them_the_report_says_how_to_get_them() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    render_here(directory.path());
    let without = read(&directory.path().join("report.html"));
    assert!(without.contains("No step profile was measured") && without.contains("cargo xtask kernels-bench"));
    let measurements = directory.path().join("measurements");
    save(&measurements.join("kernels.json"), KERNELS);
    let mut lines = String::new();
    for arm in ["fp8", "mxfp4-fdw-h16", "bf16"] {
        let start = format!(r#"{{"schema":"mxfp4-step-time/1","arm":"{arm}","repeat":1,"#);
        lines += &format!("{start}\"kind\":\"step_time\",\"tokens\":8,\"seconds\":0.2,\"forward_backward_seconds\":0.1}}\n");
        lines += &format!("{start}\"kind\":\"step_kernel\",\"kernel\":\"gemm-f32\",\"calls\":3,\"work\":4000000000,\"seconds\":0.05}}\n");
    }
    save(&measurements.join("step_profile.jsonl"), &lines);
    render_here(directory.path());
    let page = read(&directory.path().join("report.html"));
    for shown in
        ["a &lt;fast&gt; kernel_50 %", "0.90×", "bounded by _this_ &amp; that", "their sources are not those", "25.0 %", "80 Gop/s"]
    {
        assert!(page.contains(shown), "{shown}");
    }
    // The two arms of the step-time claim, and no other.
    let profile = page.split("<table id=\"step-profile\">").nth(1).unwrap().split("</table>").next().unwrap();
    assert_eq!((profile.matches("rowgroup").count(), profile.matches("gemm-f32").count()), (2, 2), "{profile}");
    assert!(read(&directory.path().join("tables/kernel-bars.tex")).contains("kernel\\_"));
    for (broken, expected) in [
        (&KERNELS[..200], "EOF"),
        (&KERNELS.replace("kernels/1", "kernels/9"), "schema"),
        (&KERNELS.replace("\"rounds\"", "\"round\""), "unknown field"),
    ] {
        save(&measurements.join("kernels.json"), broken);
        let error = judge::recompute(directory.path()).unwrap_err().to_string();
        assert!(error.contains("kernels.json") && error.contains(expected), "{error}");
    }
}

/// Built and executed, the MI355X kernels have their section; without a compiler one row says what it needs. Neither is a claim on an MI355X.
#[test]
fn the_mi355x_kernels_are_shown_and_without_a_compiler_a_row_says_what_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let (document, page) = (directory.path().join("measurements/code_objects.json"), directory.path().join("report.html"));
    save(&document, synthetic::CODE_OBJECTS);
    render_here(directory.path());
    for shown in [
        "Built by clang &lt;22&gt; &amp; co as 1 code object, each twice in two folders; 1 of 1 have the hash",
        "2 of 2 checks pass",
        "not run on an MI355X; no performance claim",
        "6c721d89e5625e27",
        "36032",
        "6912",
        "kernel: attention",
    ] {
        assert!(read(&page).contains(shown), "{shown}");
    }
    assert!(read(&directory.path().join("report.tex")).contains("tables/code-objects.tex"));
    let failed = synthetic::CODE_OBJECTS.replace("\"bound\":0.01,\"passed\":true", "\"bound\":0.001,\"passed\":false");
    save(&document, &failed.replacen("6c721d89", "6c721d80", 1));
    render_here(directory.path());
    for shown in ["0 of 1 have the hash", "1 of 2 checks pass"] {
        assert!(read(&page).contains(shown), "{shown}");
    }
    let without = r#"{"schema":"mxfp4-code-objects/1","build":null,"not_built":"no clang <22>","execution":null,"not_executed":null}"#;
    save(&document, without);
    render_here(directory.path());
    let missing = read(&page).split("<table id=\"not-run\"").nth(1).unwrap().split("</table>").next().unwrap().to_owned();
    assert!(missing.contains("no clang &lt;22&gt;") && missing.contains("clang-22, lld-22"), "{missing}");
    save(&document, &without.replace("objects/1", "objects/9"));
    let error = judge::recompute(directory.path()).unwrap_err().to_string();
    assert!(error.contains("code_objects.json") && error.contains("schema"), "{error}");
}

/// Where only a GPU was measured its tables stand there, and no empty ones of the CPU. The article leaves them to the page.
#[test]
fn kernels_of_a_gpu_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let mut document: serde_json::Value = serde_json::from_str(KERNELS).unwrap();
    let comparisons = std::mem::replace(&mut document["comparisons"], serde_json::json!([]));
    document["instruction_set"] = "".into();
    document["gpus"] = serde_json::json!([{
        "device": "cuda:0", "name": "A GPU", "architecture": "sm_90a", "libraries": ["a library 1.2"], "mxfp4": "emulated", "fp8": true,
        "stated": null, "peers": [], "missing": [], "memory": [], "comparisons": comparisons,
        "samples": [{"group": "kernels s", "name": "block/bf16/s", "threads": 1, "operations": 6_000_000_000_000_u64, "unit": "operations",
            "samples": [0.5, 0.25, 0.5]}],
    }]);
    save(&directory.path().join("measurements/kernels.json"), &document.to_string());
    render_here(directory.path());
    let (page, article) = (read(&directory.path().join("report.html")), read(&directory.path().join("report.tex")));
    for shown in ["A GPU (cuda:0)", "a library 1.2", "a &lt;fast&gt; kernel_50 %", "bf16/s", "12.0 TFLOP/s"] {
        assert!(page.contains(shown), "{shown}");
    }
    for table in ["cuda0-bars", "cuda0-ratios", "cuda0-kernels"] {
        assert!(page.contains(&format!("<table id=\"{table}\"")), "{table}");
        assert!(directory.path().join(format!("tables/{table}.tex")).is_file());
    }
    assert!(
        !page.contains("id=\"kernel-bars\"")
            && !article.contains("kernel-bars")
            && !directory.path().join("tables/kernel-bars.tex").exists()
    );
}

#[test]
fn stale_results_are_shown_as_stale() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let options = RenderOptions { stale: true };
    let summary = render(directory.path(), &repository().join("paper"), &options).unwrap();
    let html = read(&summary.html);
    assert!(html.contains("what the trainer computes has changed since these runs"));
    assert!(html.contains("was reproduced"));
    assert!(html.contains("</b>stale</li>") && !html.contains("</b>reproduced</li>"), "the counts are stale too");
    assert!(!html.contains("class=\"verdict reproduced\""), "and so are the reasons");
    assert_eq!(summary.verdicts, judge::recompute(directory.path()).unwrap(), "staleness never enters verdicts.json");
}

/// Every number of the paper goes through macros.tex: the template and the tables hold ids, and each id is defined.
#[test]
fn macros_cover_every_id_that_the_paper_uses() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    render_here(directory.path());
    let macros = read(&directory.path().join("macros.tex"));
    let mut used = 0;
    let tables = std::fs::read_dir(directory.path().join("tables")).unwrap().map(|entry| entry.unwrap().path());
    for path in tables.chain([directory.path().join("report.tex")]) {
        let text = read(&path);
        for id in text.split("\\Result{").skip(1).map(|rest| rest.split('}').next().unwrap()) {
            assert!(macros.contains(&format!("\\SetResult{{{id}}}")), "{id} in {}", path.display());
            used += 1;
        }
    }
    assert!(used > 200, "{used}");
    let claims: Vec<&str> = macros.lines().filter(|line| line.contains("\\SetResult{claims-")).collect();
    insta::assert_snapshot!(claims.join("\n"));
}

/// Names that are TeX, HTML or CSV must come out as themselves everywhere, and the paper must compile without a warning.
#[test]
fn hostile_names_render_and_compile() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let hostile = r##"a_b%&#$^~{\input{/etc/hosts}}<script>alert('1')</script>\",[x]é"##;
    let label = format!("label: \"{}\"", hostile.replace("\\\"", "\"").replace('\\', "\\\\").replace('"', "\\\""));
    edit(&directory.path().join("manifests/recipes/mxfp4-fdw-h16.yaml"), |text| text.replace("label: \"F+D+W H16\"", &label));
    edit(&directory.path().join("campaign.json"), |text| text.replace("synthetic", "machine_1 100% <b>&\\\\end{document}"));
    // Judged again as well, so that the tables of the second version are there, too.
    for name in ["2502.20586.yaml", "2605.09825.yaml"] {
        save(&directory.path().join("manifests/papers-2").join(name), &read(&repository().join("manifests/papers").join(name)));
    }
    let summary = render_here(directory.path());
    let html = read(&summary.html);
    assert!(!html.contains("<script") && !html.contains("<b>&") && html.contains("&lt;script&gt;"));
    let tex = read(&summary.tex) + &read(&directory.path().join("tables/arms.tex"));
    let again = read(&directory.path().join("tables/lines-2605.09825-again.tex"));
    assert!(!tex.contains("\\input{/etc") && !again.contains("\\input{/etc") && html.contains("lines-2605.09825-again"));
    compile(directory.path());
}

#[test]
fn the_paper_compiles_without_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    render_here(directory.path());
    compile(directory.path());
}

/// Runs latexmk where it is installed and fails on any warning, over- and underfull boxes included.
pub fn compile(directory: &Path) {
    let output =
        Command::new("latexmk").args(["-pdf", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]).current_dir(directory).output();
    let Ok(output) = output else {
        eprintln!("skipped: latexmk is not installed");
        return;
    };
    let log = String::from_utf8_lossy(&std::fs::read(directory.join("report.log")).unwrap()).into_owned();
    assert!(output.status.success(), "{}", &log[log.len().saturating_sub(3000)..]);
    let complaints: Vec<&str> = log
        .lines()
        .filter(|line| ["Warning", "Overfull", "Underfull", "Missing character", "undefined"].iter().any(|word| line.contains(word)))
        .collect();
    // The index of packages loaded names one called "infwarerr"; nothing else may match.
    assert!(complaints.iter().all(|line| line.contains("infwarerr")), "{complaints:#?}");
}

#[test]
fn without_a_target_token_claims_are_not_run_and_gaps_are_judged() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8", "bf16", "bf16-mxfp4-dw", "mxfp4-fdw-sr"]), &[1, 2, 3]);
    edit(&directory.path().join("manifests/profile.yaml"), |text| text.replace("target_loss: 4.00", "target_loss: null"));
    let summary = render_here(directory.path());
    assert_eq!(claim(&summary.verdicts, "T1-SR-FDW").reason.as_deref(), Some("the profile has no target loss"));
    assert_eq!(claim(&summary.verdicts, "MX-BARE").verdict, "reproduced");
    assert!(!read(&summary.html).contains("Figure 2"));
}

/// A campaign stopped before its first run is a report too: every claim says what it lacks, and the paper compiles.
#[test]
fn an_empty_campaign_renders_and_compiles() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &[], &[]);
    std::fs::remove_dir_all(directory.path().join("measurements")).unwrap();
    let summary = render_here(directory.path());
    assert!(summary.verdicts.claims().all(|claim| claim.verdict == "not-run" && claim.reason.is_some()), "{:?}", summary.verdicts);
    assert!(read(&summary.html).contains("No step times were measured."));
    compile(directory.path());
}

#[test]
fn the_arms_table_names_each_gaps_baseline_and_how_many_arrived() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8", "bf16", "bf16-mxfp4-dw", "mxfp4-fdw-rh16", "mxfp4-fdw-sr"]), &[1, 2, 3]);
    let html = read(&render_here(directory.path()).html);
    let table = html.split("<table id=\"arms\"").nth(1).unwrap().split("</table>").next().unwrap();
    let row = |arm: &str| table.split("<tr>").find(|row| row.contains(arm)).unwrap().to_owned();
    assert!(table.contains("1 of 3 reached") && table.contains(">DNC<"), "{table}");
    assert_eq!(table.matches("to BF16").count(), 1, "only the second paper's arm has its gap to BF16: {}", row("F+D+W"));
}

#[test]
fn a_diverged_baseline_decides_no_gap() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8", "bf16", "bf16-mxfp4-dw"]), &[1, 2, 3]);
    edit(&run_directory(directory.path(), "bf16", 2).join("done.json"), |text| text.replace("completed", "diverged"));
    let verdicts = judge::recompute(directory.path()).unwrap();
    let gap = claim(&verdicts, "MX-BARE");
    assert_eq!((gap.verdict.as_str(), gap.number), ("inconclusive", None));
    assert_eq!(gap.why, "The baseline diverged (seed 2), so there is nothing sound to compare with.");
}
