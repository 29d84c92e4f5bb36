//! A repository without sources whose profile `smoke` has two runs, and a trainer that is a script: it copies prepared files. A campaign there is
//! a process of its own, as a user's is.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use campaign::data::token_folder;
use campaign::error::CampaignError;
use campaign::replicate::replicate;
use campaign::request::{CodeObjects, Request};
use campaign::run::RunOptions;
use campaign::slurm::{Pace, Slurm};
use campaign::toolchain::Trainer;
use contract::run_file::RunFile;
use study::exit::ExitCode as _;
use study::files::{self, sha256};
use study::manifest::Manifests;
use study::plan::{self, Build, Selection};
use study::provenance::DETERMINISTIC;
use tempfile::TempDir;

use crate::{sealed, synthetic};

const TRAINER: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$1" in
  version) echo '{"version":"0","build":{"trainer_code":"c0de","toolchain":"rustc stand-in"}}' ;;
  identity) printf '{"schema":"mxfp4-identity/1"'; for kind in cpu cuda hip; do printf ',"%s":{"identity":"c0de","parts":{}}' $kind; done; echo '}' ;;
  run) folder=$(dirname "$2"); arm=$(sed -n 's/^  arm: //p' "$2")
    [ -e "$here/wrong-$arm" ] && { echo "error: train.bin: cannot read" >&2; exit 3; }
    [ -e "$here/full-$arm" ] && ! cat "$here/trainer" > /dev/full && { echo "error: checkpoint: cannot write" >&2; exit 4; }
    for file in metrics.jsonl timing.jsonl run.mllog done.json; do cp "$here/prepared/$arm/$file" "$folder/$file.part"; mv "$folder/$file.part" "$folder/$file"; done ;;
  step-time) [ -e "$here/full-times" ] && exit 4; case "$*" in *--profile-step*) ;; *) cat "$here/prepared/step_time.jsonl"; exit ;; esac; cat "$here/prepared/step_time.jsonl" ;;
  kernel-time) cat "$here/prepared/kernel_time.jsonl" ;;
  rotation-identity) cat "$here/prepared/rotation_identity.jsonl" ;;
esac
"#;

const ARMS: [&str; 2] = ["fp8", "mxfp4-fdw-h16"];

/// This cluster is a folder: a task has said its last word when it leaves the queue.
const PACE: Pace = Pace { pauses: [Duration::from_millis(50), Duration::from_millis(500)], late: Duration::from_millis(200) };

/// A repository without sources whose profile `smoke` has two runs.
pub struct Site(pub TempDir);

impl Site {
    pub fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        let repository = synthetic::repository();
        for folder in ["manifests", "paper"] {
            for name in files::list(&repository.join(folder)).unwrap() {
                files::copy(&repository.join(folder).join(&name), &site.path(folder).join(&name)).unwrap();
            }
        }
        files::copy(&repository.join("Cargo.lock"), &site.path("Cargo.lock")).unwrap();
        let version = r#"{"schema":"mxfp4-version/1","commit":"0123456789abcdef0123456789abcdef01234567","dirty":false,"diff_sha256":null,"trainer_code":null}"#;
        files::write(&site.path("VERSION"), version.as_bytes()).unwrap();
        let profile = site.path("manifests/profiles/smoke.yaml");
        let text = files::read_text(&profile).unwrap();
        let kept = text.lines().filter(|line| {
            !line.trim_start().starts_with("- {group:")
                && !line.starts_with("arms:")
                && !line.starts_with("seeds:")
                && !line.starts_with("requires:")
        });
        let text: String = kept.map(|line| format!("{line}\n")).collect();
        let arms = format!("requires: {{cores: 1}}\nseeds: [1]\narms: [{{group: Both, recipes: [{}]}}]\n", ARMS.join(", "));
        files::write(&profile, (text + &arms).as_bytes()).unwrap();
        files::write(&site.path("trainer"), TRAINER.as_bytes()).unwrap();
        std::fs::set_permissions(site.path("trainer"), std::fs::Permissions::from_mode(0o755)).unwrap();
        // No LaTeX, no git, no compiler: nothing that takes time and is not ours.
        files::make_folder(&site.path("bin")).unwrap();
        site.tools(&["sh", "cat", "cp", "mv", "sed", "dirname"]);
        site.shards();
        site.prepare();
        site
    }

    /// Programs of this machine that a campaign there finds.
    pub fn tools(&self, names: &[&str]) {
        for tool in names {
            let path = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool)).into_iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(path, self.path("bin").join(tool)).unwrap();
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Token files of any content, pinned by their hashes.
    fn shards(&self) {
        let manifest = self.path("manifests/tokenizers/rust-crates-512.yaml");
        let mut text = files::read_text(&manifest).unwrap();
        let manifests = Manifests::load(self.0.path()).unwrap();
        let tokenizer = &manifests.tokenizers["rust-crates-512"];
        let folder = token_folder(self.0.path(), &manifests.datasets["rust-crates"], tokenizer);
        let pinned = tokenizer.shards.as_ref().unwrap();
        for (part, shard) in [("train", &pinned.train), ("validation", &pinned.validation)] {
            for (ending, pin) in [("bin", &shard.sha256_bin), ("idx", &shard.sha256_idx)] {
                let bytes = format!("{part} {ending}");
                files::write(&folder.join(format!("{part}.{ending}")), bytes.as_bytes()).unwrap();
                text = text.replace(pin, &sha256(bytes.as_bytes()));
            }
        }
        files::write(&manifest, text.as_bytes()).unwrap();
    }

    /// What the trainer copies and prints.
    fn prepare(&self) {
        let manifests = Manifests::load(self.0.path()).unwrap();
        let plan = plan::plan(&manifests, manifests.profile("smoke").unwrap(), &Selection::default(), &Build::only("c0de"), None).unwrap();
        for run in plan.runs {
            let folder = self.path("prepared").join(&run.arm);
            let file = RunFile::parse("run.yaml", &run.run_yaml).unwrap();
            files::write(&folder.join("run.yaml"), run.run_yaml.as_bytes()).unwrap();
            let (metrics, timing) = logs(&file);
            files::write(&folder.join("metrics.jsonl"), metrics.as_bytes()).unwrap();
            files::write(&folder.join("timing.jsonl"), timing.as_bytes()).unwrap();
            sealed::record(&folder);
        }
        let (mut steps, mut kernels) = (String::new(), String::new());
        for repeat in 1..=3 {
            for arm in ARMS {
                writeln!(steps, r#"{{"schema":"mxfp4-step-time/1","kind":"step_time","arm":"{arm}","repeat":{repeat},"seconds":0.05,"forward_backward_seconds":0.04}}"#).unwrap();
            }
            writeln!(kernels, r#"{{"schema":"mxfp4-kernel-time/1","kind":"kernel_time","variant":"fp8","linear":"qkv","pass":"fprop","m":1,"n":2,"k":3,"repeat":{repeat},"seconds":0.5}}"#).unwrap();
        }
        let rotation = r#"{"schema":"mxfp4-rotation-identity/1","kind":"rotation_identity","linear":"qkv","pass":"fprop","rotation":"h16","max_relative_error":1e-15,"bound":1e-14}"#;
        for (name, text) in [("step_time", steps), ("kernel_time", kernels), ("rotation_identity", format!("{rotation}\n"))] {
            files::write(&self.path("prepared").join(format!("{name}.jsonl")), text.as_bytes()).unwrap();
        }
    }

    /// One campaign in a process of its own; with `fault` (`nth kind`) one of its file operations fails.
    pub fn campaign(&self, fault: Option<&str>) -> Output {
        self.command(fault).output().unwrap()
    }

    /// The same, with nothing measured after the runs.
    pub fn untimed(&self) -> Output {
        self.command(None).env("UNTIMED", "1").output().unwrap()
    }

    /// One campaign with these variables, too.
    pub fn campaign_with(&self, variables: &[(&str, &str)]) -> Output {
        self.command(None).envs(variables.iter().copied()).output().unwrap()
    }

    fn command(&self, fault: Option<&str>) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "site::a_campaign", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("SITE", self.0.path()).env("PATH", self.path("bin")).env("FAULT", fault.unwrap_or_default());
        command
    }

    /// Forgets every campaign.
    pub fn clear(&self) {
        for folder in ["results", "cache/runs", "cache/measurements", "cache/campaigns"] {
            files::remove_folder(&self.path(folder)).unwrap();
        }
    }

    /// Finished runs of the cache, and when each was.
    pub fn finished(&self) -> Vec<(PathBuf, std::time::SystemTime)> {
        let Ok(entries) = std::fs::read_dir(self.path("cache/runs")) else { return Vec::new() };
        let done = entries.map(|entry| entry.unwrap().path().join("done.json")).filter(|path| path.is_file());
        done.map(|path| (path.clone(), path.metadata().unwrap().modified().unwrap())).collect()
    }

    /// The one result directory; what else lies beside it.
    pub fn results(&self) -> (PathBuf, Vec<String>) {
        let names = std::fs::read_dir(self.path("results")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let (whole, rest): (Vec<String>, Vec<String>) =
            names.filter(|name| name != ".lock").partition(|name| name.ends_with("-smoke-01234567"));
        assert_eq!(whole.len(), 1, "{whole:?}");
        (self.path("results").join(&whole[0]), rest)
    }

    pub fn deterministic(&self) -> String {
        files::read_text(&self.results().0.join(DETERMINISTIC)).unwrap()
    }
}

/// metrics.jsonl and timing.jsonl of a run whose loss falls by a twentieth a step.
fn logs(run: &RunFile) -> (String, String) {
    let (name, tokens) = (&run.run, run.tokens_per_step() as u64);
    let mut metrics = format!(
        r#"{{"schema":"mxfp4-metrics/1","kind":"header","profile":"{}","arm":"{}","seed":{},"parameters":1,"tokens_per_step":{tokens}}}"#,
        name.profile, name.arm, name.seed
    );
    metrics.push('\n');
    let mut timing = r#"{"schema":"mxfp4-timing/1","kind":"session","device":"cpu","threads":1,"instruction_set":"avx2","cpu":"none","resumed_from_step":0}"#.to_owned();
    timing.push('\n');
    for step in 0..=run.budget.steps {
        let (loss, seen) = (7.0 - 0.05 * step as f64, step * tokens);
        if step > 0 {
            writeln!(timing, r#"{{"kind":"step","step":{step},"seconds":0.01}}"#).unwrap();
        }
        if step > 0 && step % run.logging.train_every_steps == 0 {
            writeln!(metrics, r#"{{"kind":"train","step":{step},"tokens":{seen},"loss":{loss},"grad_norm":1.0,"learning_rate":0.0}}"#)
                .unwrap();
        }
        if step % run.evaluation.every_steps == 0 {
            writeln!(metrics, r#"{{"kind":"eval","step":{step},"tokens":{seen},"loss":{loss}}}"#).unwrap();
            writeln!(timing, r#"{{"kind":"eval","step":{step},"seconds":0.01}}"#).unwrap();
        }
    }
    (metrics, timing)
}

/// Not a test: what `Site::campaign` starts.
#[test]
#[ignore = "started by the others"]
fn a_campaign() {
    let Some(root) = std::env::var_os("SITE").map(PathBuf::from) else { return };
    let manifests = Manifests::load(&root).unwrap();
    let request = Request {
        profile: "smoke".to_owned(),
        selection: Selection::default(),
        run: RunOptions { parallel: 1, threads: 1, instruction_set: "auto".to_owned(), fresh: std::env::var_os("FRESH").is_some() },
        out: root.join("results"),
        machine: Some("somewhere".to_owned()),
        trainer: Some(root.join("trainer")),
        gpus: None,
        ranks: None,
        minutes: None,
        stop_after: None,
        keep_weights: false,
        finished: false,
        slurm: std::env::var("SLURM")
            .ok()
            .map(|options| Slurm { options: options.split_whitespace().map(str::to_owned).collect(), pace: PACE }),
        tensorboard: None,
        partial_every: std::env::var("PARTIAL").ok().map(|every| Duration::from_millis(every.parse().unwrap())),
        quiet: false,
        untimed: std::env::var_os("UNTIMED").is_some(),
        code_objects: std::env::var_os("KERNELS").map(|_| CodeObjects { known: known_kernels, make: make_kernels }),
    };
    #[cfg(feature = "faults")]
    crate::arm(&std::env::var("FAULT").unwrap());
    let ended = replicate(&manifests, &request, &AtomicBool::new(false), &|line| eprintln!("{line}"));
    #[cfg(feature = "faults")]
    println!("operations {}", study::files::faults::count());
    match ended {
        Ok(report) if report.failed.is_empty() => println!("{}", if report.nothing_to_do { "nothing to do" } else { "put together" }),
        Ok(report) => {
            eprintln!("failed: {:?}", report.failed);
            std::process::exit(i32::from(report.exit_code()))
        }
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(i32::from(error.exit_code()))
        }
    }
}

fn known_kernels(manifests: &Manifests, _: &str, _: &dyn Fn(&str)) -> Result<Option<PathBuf>, CampaignError> {
    Ok(Some(manifests.root.join("cache/kernels.json")).filter(|path| path.exists()))
}

fn make_kernels(manifests: &Manifests, _: &Trainer, _: &str, say: &dyn Fn(&str)) -> Result<PathBuf, CampaignError> {
    let finished = std::fs::read_dir(manifests.root.join("cache/runs")).map_or(0, Iterator::count);
    say(&format!("kernels after {finished} runs"));
    let path = manifests.root.join("cache/kernels.json");
    files::write(&path, synthetic::CODE_OBJECTS.as_bytes())?;
    Ok(path)
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
