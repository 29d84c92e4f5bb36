//! Records that contradict each other, in a finished campaign whose report, statement and hashes were all made again afterwards: `verify` names
//! each. Whoever cheats has to change every file that says the same, and those that only say it through a hash.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

use std::fs;
use std::path::Path;

use crate::{sealed, synthetic};
use study::files;
use study::packed;
use study::provenance::{self, STATEMENT};
use study::render;
use study::verify::{Verification, verify};

fn checked(directory: &Path) -> Verification {
    verify(directory, None, Some(&synthetic::repository().join("paper"))).unwrap()
}

fn edit(directory: &Path, file: &str, change: impl FnOnce(String) -> String) {
    let path = directory.join(file);
    let before = fs::read_to_string(&path).unwrap();
    let after = change(before.clone());
    assert_ne!(before, after, "{file} was not changed");
    fs::write(path, after).unwrap();
}

fn replace(directory: &Path, file: &str, old: &str, new: &str) {
    edit(directory, file, |text| text.replacen(old, new, 1));
}

/// A value of a JSON file.
fn set(directory: &Path, file: &str, pointer: &str, value: impl Into<serde_json::Value>) {
    edit(directory, file, |text| {
        let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
        *document.pointer_mut(pointer).unwrap() = value.into();
        document.to_string()
    });
}

/// The hash of a run's metrics in its done.json, as after a change.
fn hash_metrics(directory: &Path, run: &str) {
    let metrics = files::sha256_file(&directory.join(run).join("metrics.jsonl")).unwrap();
    set(directory, &format!("{run}/done.json"), "/metrics_sha256", metrics);
}

/// Without a line that has all of these in it.
fn without_line(directory: &Path, file: &str, with: &[&str]) {
    edit(directory, file, |text| {
        let mut found = false;
        let mut keep = |line: &&str| {
            found || !with.iter().all(|part| line.contains(part)) || {
                found = true;
                false
            }
        };
        text.lines().filter(|line| keep(line)).map(|line| format!("{line}\n")).collect()
    });
}

/// What was done, where `verify` must see it, and doing it.
type Case = (&'static str, &'static str, fn(&Path));

/// Everything that was made of runs and manifests is made again after these.
const OF_RECORDS: &[Case] = &[
    ("a seed is left out of a campaign that says it is whole", "campaign.json", |directory| {
        set(directory, "campaign.json", "/partial", false);
    }),
    ("a campaign says that hipBLASLt multiplied, and its runs do not", "runs/mxfp4-fdw/1/run.yaml", |directory| {
        edit(directory, "campaign.json", |text| {
            let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
            document["gemm"] = "hipblaslt".into();
            document.to_string()
        });
    }),
    ("a seed is left out, its folder and all", "campaign.json", |directory| {
        fs::remove_dir_all(directory.join("runs/mxfp4-fdw/2")).unwrap();
        edit(directory, "campaign.json", |text| {
            let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
            document["runs"].as_array_mut().unwrap().retain(|run| run["arm"] != "mxfp4-fdw" || run["seed"] != 2);
            document.to_string()
        });
    }),
    ("a run of an arm that the profile does not have", "campaign.json", |directory| {
        replace(directory, "manifests/profile.yaml", "recipes: [fp8, bf16]", "recipes: [fp8]");
    }),
    ("a learning rate in the manifests", "runs/fp8/1/run.yaml", |directory| {
        replace(directory, "manifests/profile.yaml", "learning_rate: 2.0e-3", "learning_rate: 3.0e-3");
    }),
    ("a recipe in the manifests", "runs/mxfp4-fdw/1/run.yaml", |directory| {
        replace(directory, "manifests/recipes/mxfp4-fdw.yaml", "nearest-even", "stochastic");
    }),
    ("a claim's tolerance or anything else of a paper", "campaign.json", |directory| {
        edit(directory, "manifests/papers/2605.09825.yaml", |text| text + "# looser\n");
    }),
    ("a target that is easier to reach", "runs/bf16/2/run.yaml", |directory| {
        replace(directory, "manifests/profile.yaml", "target_loss: 4.00", "target_loss: 5.00");
    }),
    ("the final validation loss", "runs/fp8/1/done.json", |directory| {
        set(directory, "runs/fp8/1/done.json", "/final_validation_loss", 1.0)
    }),
    ("the final training loss", "runs/fp8/1/done.json", |directory| set(directory, "runs/fp8/1/done.json", "/final_train_loss", 1.0)),
    ("how the run ended", "runs/fp8/1/metrics.jsonl", |directory| set(directory, "runs/fp8/1/done.json", "/status", "diverged")),
    ("how far the run went", "runs/fp8/1/done.json", |directory| set(directory, "runs/fp8/1/done.json", "/tokens", 5)),
    ("that there are no weights", "runs/fp8/1/done.json", |directory| {
        set(directory, "runs/fp8/1/done.json", "/model_sha256", serde_json::Value::Null);
    }),
    ("a loss in the metrics", "runs/fp8/1/run.mllog", |directory| {
        edit(directory, "runs/fp8/1/metrics.jsonl", |text| text.replacen("\"loss\":6", "\"loss\":5", 2));
        hash_metrics(directory, "runs/fp8/1");
    }),
    ("an evaluation left out", "runs/fp8/1/metrics.jsonl", |directory| {
        without_line(directory, "runs/fp8/1/metrics.jsonl", &["\"eval\"", "\"step\":16,"]);
        hash_metrics(directory, "runs/fp8/1");
    }),
    ("a learning rate that was not asked for", "runs/fp8/1/metrics.jsonl", |directory| {
        edit(directory, "runs/fp8/1/metrics.jsonl", |text| text.replacen("\"learning_rate\":0.0008", "\"learning_rate\":0.0009", 1));
        hash_metrics(directory, "runs/fp8/1");
    }),
    ("operands of another format", "runs/mxfp4-fdw/1/metrics.jsonl", |directory| {
        edit(directory, "runs/mxfp4-fdw/1/metrics.jsonl", |text| text.replacen("e2m1", "e4m3", 1));
        hash_metrics(directory, "runs/mxfp4-fdw/1");
    }),
    ("a loss in the MLPerf log", "runs/fp8/1/run.mllog", |directory| {
        replace(directory, "runs/fp8/1/run.mllog", "\"key\":\"eval_accuracy\",\"value\":7.0", "\"key\":\"eval_accuracy\",\"value\":6.0");
    }),
    ("the batch in the MLPerf log", "runs/fp8/1/run.mllog", |directory| {
        replace(directory, "runs/fp8/1/run.mllog", "\"global_batch_size\",\"value\":8", "\"global_batch_size\",\"value\":16");
    }),
    ("when the MLPerf log's run reached its target", "runs/fp8/1/run.mllog", |directory| {
        replace(directory, "runs/fp8/1/run.mllog", "\"train_samples\",\"value\":", "\"train_samples\",\"value\":1");
    }),
    ("steps left out of the timings", "runs/fp8/1/timing.jsonl", |directory| {
        without_line(directory, "runs/fp8/1/timing.jsonl", &["\"step\":7,"]);
    }),
    ("the end of the timings", "runs/fp8/1/timing.jsonl", |directory| {
        without_line(directory, "runs/fp8/1/timing.jsonl", &["\"step\":320,"])
    }),
    ("a time below zero", "runs/fp8/1/timing.jsonl", |directory| {
        replace(directory, "runs/fp8/1/timing.jsonl", "\"seconds\":0", "\"seconds\":-0")
    }),
    ("a slow repeat left out", "measurements/step_time.jsonl", |directory| {
        without_line(directory, "measurements/step_time.jsonl", &["\"fp8\"", "\"repeat\":9,"]);
    }),
    ("a slow repeat of a kernel left out", "measurements/kernel_time.jsonl", |directory| {
        without_line(directory, "measurements/kernel_time.jsonl", &["\"fp8\"", "\"repeat\":9,"]);
    }),
    ("a check that failed", "measurements/code_objects.json", |directory| {
        replace(directory, "measurements/code_objects.json", "\"difference\":0.002", "\"difference\":0.2")
    }),
    ("a device that is none", "measurements/code_objects.json", |directory| {
        set(directory, "measurements/code_objects.json", "/execution/device/interpreted", false)
    }),
    ("MI355X kernels of another compiler", "campaign.json", |directory| {
        set(directory, "measurements/code_objects.json", "/build/compiler", "another")
    }),
    ("the processor", "campaign.json", |directory| set(directory, "env.json", "/cpu/model", "Another processor")),
    ("the number of cores", "campaign.json", |directory| set(directory, "env.json", "/cpu/logical_cores", 64)),
    ("threads of a run", "campaign.json", |directory| set(directory, "env.json", "/flags/threads_per_run", 8)),
    ("a GPU that was not there", "env.json", |directory| {
        set(directory, "env.json", "/device_libraries", serde_json::json!(["CUDA driver 13.0"]))
    }),
    ("the compiler", "runs/fp8/1/ingredients.json", |directory| set(directory, "env.json", "/toolchain/rustc", "rustc 1.90.0\nhost: none")),
    ("the day", "env.json", |directory| set(directory, "campaign.json", "/date", "2020-01-01")),
    ("the moment of the record", "env.json", |directory| set(directory, "env.json", "/captured", "2020-01-01T00:00:00Z")),
    ("the machine's name", "env.json", |directory| set(directory, "campaign.json", "/machine", "a-better-one")),
    ("the commit", "env.json", |directory| set(directory, "campaign.json", "/commit", "f".repeat(40))),
    ("that the tree was clean", "env.json", |directory| set(directory, "env.json", "/source/dirty", true)),
];

/// After these, hashes alone are made again.
const OF_PAGES: &[Case] = &[
    ("the page", "report.html", |directory| edit(directory, "report.html", |text| text.replace("reproduced", "confirmed"))),
    ("the article", "report.tex", |directory| edit(directory, "report.tex", |text| text + "%")),
    ("a number of the article", "macros.tex", |directory| edit(directory, "macros.tex", |text| text.replacen('7', "8", 1))),
    ("a figure", "figures/figure-1a.svg", |directory| replace(directory, "figures/figure-1a.svg", "<svg", "<svg id=\"x\"")),
    ("a figure's data", "figures/figure-1a.csv", |directory| edit(directory, "figures/figure-1a.csv", |text| text.replacen('7', "8", 1))),
    ("a figure that is none of ours", "figures/another.svg", |directory| {
        fs::write(directory.join("figures/another.svg"), "<svg/>").unwrap()
    }),
    ("a table", "tables/arms.tex", |directory| edit(directory, "tables/arms.tex", |text| text + "%")),
    ("a table that is gone", "tables/arms.tex", |directory| fs::remove_file(directory.join("tables/arms.tex")).unwrap()),
    ("when it was finished", STATEMENT, |directory| {
        replace(directory, STATEMENT, "\"finishedOn\": \"2026", "\"finishedOn\": \"2025");
    }),
    ("what it was made from", STATEMENT, |directory| {
        edit(directory, STATEMENT, |text| text.replace("\"gitCommit\": \"0123", "\"gitCommit\": \"f123"));
    }),
    ("who built it", STATEMENT, |directory| {
        edit(directory, STATEMENT, |text| text.replace("\"rustc\": \"rustc 1.95.0", "\"rustc\": \"rustc 1.90.0"))
    }),
];

#[test]
fn records_that_contradict_each_other_are_named() {
    let whole = tempfile::tempdir().unwrap();
    sealed::write(whole.path());
    assert!(checked(whole.path()).holds(), "{}", checked(whole.path()));
    for (number, (what, file, plant)) in OF_RECORDS.iter().chain(OF_PAGES).enumerate() {
        let copy = tempfile::tempdir().unwrap();
        for name in files::list(whole.path()).unwrap() {
            files::copy(&whole.path().join(&name), &copy.path().join(&name)).unwrap();
        }
        plant(copy.path());
        if number < OF_RECORDS.len() {
            sealed::seal(copy.path());
        } else {
            provenance::write_sums(copy.path()).unwrap();
        }
        let verification = checked(copy.path());
        let named = verification.findings.iter().any(|finding| finding.path == *file && !finding.what.contains("SHA-256"));
        assert!(named, "{what} is not seen in {file}: {verification}");
    }
}

/// All losses of all runs made lower, and everything made again that follows: what is left is that done.json and the MLPerf logs know better.
#[test]
fn losses_that_were_all_scaled_are_found_packed_or_not() {
    let directory = tempfile::tempdir().unwrap();
    sealed::write(directory.path());
    for arm in sealed::FEW {
        for seed in [1, 2] {
            let run = format!("runs/{arm}/{seed}");
            edit(directory.path(), &format!("{run}/metrics.jsonl"), |text| {
                let scaled = |line: &str| {
                    let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
                    if let Some(loss) = line["loss"].as_f64() {
                        line["loss"] = (0.97 * loss).into();
                    }
                    format!("{line}\n")
                };
                text.lines().map(scaled).collect()
            });
            hash_metrics(directory.path(), &run);
        }
    }
    for pack in [false, true] {
        assert!(!pack || packed::pack(directory.path(), 0).unwrap());
        sealed::seal(directory.path());
        let verification = checked(directory.path());
        let of = |file: &str| verification.findings.iter().filter(|finding| finding.path.ends_with(file)).count();
        assert_eq!((of("/done.json"), of("/run.mllog"), verification.findings.len()), (8, 8, 16), "{verification}");
    }
}

/// A report of another version is not called wrong, and it is said that nobody compared it.
#[test]
fn a_report_of_another_version_is_not_compared_and_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    sealed::write(directory.path());
    edit(directory.path(), "report.html", |text| text + "<!-- as it was written then -->");
    let earlier = provenance::Renderer { version: Some("earlier".to_owned()), ..sealed::renderer() };
    for renderer in [earlier, provenance::Renderer { version: None, ..sealed::renderer() }] {
        provenance::write_statement(&renderer, directory.path()).unwrap();
        provenance::write_sums(directory.path()).unwrap();
        let verification = checked(directory.path());
        assert!(verification.holds(), "{verification}");
        let here = render::version(&synthetic::repository().join("paper"));
        let said = verification.notes.iter().find(|note| note.contains("not compared")).unwrap();
        assert!(said.contains(&here) && said.contains(": 1 of ") && said.contains("rendered by "), "{said}");
        assert!(!verification.recomputed.contains("report.html") && verification.recomputed.contains("report.tex"));
        assert!(verification.only_hashed.contains(&"report.html".to_owned()));
    }
}

/// A clock that goes back during a run, or between the runs and their record, is a pity and contradicts nothing.
#[test]
fn a_clock_that_jumps_makes_nothing_wrong() {
    let directory = tempfile::tempdir().unwrap();
    sealed::write(directory.path());
    edit(directory.path(), "runs/fp8/1/run.mllog", |text| {
        let jumping = text
            .lines()
            .enumerate()
            .map(|(line, text)| text.replace("\"time_ms\":1", &format!("\"time_ms\":{}", [9e12, 0.0, 5.0][line % 3])));
        jumping.map(|line| line + "\n").collect()
    });
    set(directory.path(), "env.json", "/captured", "1970-01-01T00:00:00Z");
    set(directory.path(), "campaign.json", "/date", "1970-01-01");
    sealed::seal(directory.path());
    assert!(checked(directory.path()).holds(), "{}", checked(directory.path()));
}

/// The same kind of check for a directory of `device-test`: its table is that of its checks.
#[test]
fn a_device_test_that_contradicts_itself_is_named() {
    let committed = synthetic::repository().join("results/device-test-2026-11-22-nvidia-h200");
    let directory = tempfile::tempdir().unwrap();
    let cases: [(&str, &str, &str, &str); 4] = [
        ("checks.csv", ",0.0,0.0,true", ",3.0,0.0,true", "above its bound"),
        ("checks.csv", ",0.0,0.0,true", ",3.0,0.0,false", "counts 1958 checks, 0 failed"),
        ("summary.json", "\"differ\": 0.0", "\"differ\": 1.0", "its table is not that of checks.csv"),
        ("summary.json", "\"checks\": 1958", "\"checks\": 2000", "counts 2000 checks"),
    ];
    for (file, old, new, expected) in cases {
        for name in files::list(&committed).unwrap() {
            files::copy(&committed.join(&name), &directory.path().join(&name)).unwrap();
        }
        assert!(checked(directory.path()).holds());
        replace(directory.path(), file, old, new);
        provenance::write_list(directory.path()).unwrap();
        let verification = checked(directory.path());
        assert!(!verification.holds() && verification.to_string().contains(expected), "{file} {new}: {verification}");
    }
}
