//! The run engine against a trainer that is a short shell script: reuse, resume, failure, interruption, alien files.
//!
//! The script keeps the trainer's side of docs/files.md (checkpoint, done.json last, failed.json) and misbehaves on request. What
//! the real trainer computes is not tested here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use campaign::data::PreparedData;
use campaign::run::{Means, Outcome, Pool, RunError, RunOptions, Slice, carry_out, carry_out_slices, why};
use campaign::toolchain::Trainer;
use study::files::sha256;
use study::ingredients::Ingredients;
use study::manifest::profile::{Shard, Shards};
use study::plan::PlannedRun;
use tempfile::TempDir;

const STEPS: u64 = 6;

/// Called as `run RUN.yaml --data DIR ...`. `mode` beside DIR says how to behave; `starts` counts calls and from where each went on.
const SCRIPT: &str = r#"#!/bin/sh
here=$(dirname "$4"); folder=$(dirname "$2"); mode=$(cat "$here/mode"); arm=$(sed -n 's/^  arm: //p' "$2")
from=$(cat "$folder/checkpoint/step" 2>/dev/null || echo 0)
echo "$arm $from" >> "$here/starts"; echo begins >> "$here/order"; echo "$arm $6" >> "$here/places"
[ -n "$(cat "$here/device" 2>/dev/null)" ] && printf '{"schema":"mxfp4-timing/1","kind":"session","device":"%s","threads":1,"instruction_set":"none","cpu":"none","resumed_from_step":0}' "$(cat "$here/device")" > "$folder/timing.jsonl"
rm -f "$folder/failed.json"
case "$mode" in
  "kill $6") kill -9 $$ ;;
  "refuse $6") echo "error: CUDA_ERROR_DEVICE_UNAVAILABLE" >&2; exit 4 ;;
  "fail $arm") i=0; while [ $i -lt 60 ]; do echo "complaint $i." >&2; i=$((i+1)); done; exit 3 ;;
  silent) exit 4 ;;
  lie) exit 0 ;;
  noise) printf 'not \377\376 text\n' >&2; head -c 400000 /dev/zero | tr '\0' z >&2; echo >&2 ;;
  deaf) trap '' INT TERM; exec sleep 60 ;;
  spoil) echo changed >> "$4/train.bin" ;;
esac
step=$from
while [ "$step" -lt 6 ]; do
  step=$((step+1))
  [ "$mode" = "die $step" ] && kill -9 $$
  [ "$mode" = "die once" ] && [ "$from $step" = "0 3" ] && kill -9 $$
  [ "$mode" = slow ] && sleep 0.2
  mkdir -p "$folder/checkpoint"; echo $step > "$folder/checkpoint/step.tmp"; mv "$folder/checkpoint/step.tmp" "$folder/checkpoint/step"
  echo "step $step/6 loss 1.0 tokens/s 1" >&2
done
hash=$(sha256sum "$2" | cut -d' ' -f1)
i=0; : > "$folder/metrics.jsonl"; while [ $i -lt 6 ]; do i=$((i+1)); echo "{\"step\":$i,\"run\":\"$hash\"}" >> "$folder/metrics.jsonl"; done
metrics=$(sha256sum "$folder/metrics.jsonl" | cut -d' ' -f1)
echo "{\"schema\":\"mxfp4-done/1\",\"status\":\"completed\",\"steps\":6,\"tokens\":6,\"final_train_loss\":null,\"final_validation_loss\":null,\"metrics_sha256\":\"$metrics\",\"model_sha256\":null,\"run_sha256\":\"$hash\"}" > "$folder/done.tmp"
mv "$folder/done.tmp" "$folder/done.json"
echo ends >> "$here/order"
"#;

/// Written once, before any test starts a process: a script that a child of another test still holds open cannot be executed.
static TRAINER: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("trainer");
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    (folder, script)
});

struct World {
    folder: TempDir,
    trainer: Trainer,
    data: PreparedData,
    runs: Vec<PlannedRun>,
    options: RunOptions,
    pool: Option<Pool>,
    /// What a user was told.
    said: Mutex<Vec<String>>,
}

impl World {
    /// Arms a and b with one seed each, and a well-behaved trainer.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let shard = |part: &str| {
            let hash = |extension: &str| {
                let bytes = format!("{part} {extension}");
                std::fs::write(data.join(format!("{part}.{extension}")), &bytes).unwrap();
                sha256(bytes.as_bytes())
            };
            Shard { tokens: 100, sha256_bin: hash("bin"), sha256_idx: hash("idx") }
        };
        let shards = Shards { train: shard("train"), validation: shard("validation"), end_of_document: 0 };
        let options = RunOptions { parallel: 1, threads: 1, instruction_set: "auto".into(), fresh: false };
        let world = Self {
            data: PreparedData { folder: data, shards },
            runs: vec![planned("a", "x"), planned("b", "x")],
            options,
            pool: None,
            said: Mutex::default(),
            folder,
            trainer: Trainer { program: TRAINER.1.clone() },
        };
        world.mode("well");
        world
    }

    fn mode(&self, mode: &str) {
        std::fs::write(self.folder.path().join("mode"), mode).unwrap();
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("runs")
    }

    fn run_folder(&self, run: usize) -> PathBuf {
        self.cache().join(self.runs[run].key())
    }

    /// The world's own places, or the processor.
    fn pool(&self) -> Pool {
        self.pool.clone().unwrap_or_else(|| Pool::cpu(&self.options))
    }

    fn try_go(&self, stop: &AtomicBool) -> Result<Vec<Outcome>, RunError> {
        let (cache, pool) = (self.cache(), self.pool());
        let means = Means { cache: &cache, trainer: &self.trainer, options: &self.options, pool: &pool };
        carry_out(&self.runs, &self.data, &means, stop, &|line| self.said.lock().unwrap().push(line.to_owned()))
    }

    fn go(&self) -> Vec<Outcome> {
        self.try_go(&AtomicBool::new(false)).unwrap()
    }

    /// `arm step` for every call of the trainer so far: which run, from which step it went on.
    fn starts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("starts")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Everything a finished run vouches for, run by run.
    fn results(&self) -> Vec<[Vec<u8>; 3]> {
        let read = |run, name: &str| std::fs::read(self.run_folder(run).join(name)).unwrap();
        (0..self.runs.len()).map(|run| ["run.yaml", "metrics.jsonl", "done.json"].map(|name| read(run, name))).collect()
    }
}

fn planned(arm: &str, code: &str) -> PlannedRun {
    let run_yaml = format!("schema: mxfp4-run/1\nrun:\n  profile: test\n  arm: {arm}\n  seed: 1\nbudget:\n  steps: {STEPS}\n");
    let ingredients =
        Ingredients { run: sha256(run_yaml.as_bytes()), trainer_code: code.into(), toolchain: "t".into(), device: "cpu".into() };
    PlannedRun { arm: arm.try_into().unwrap(), seed: 1, run_yaml, ingredients }
}

fn failure(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed(why) => &why.said,
        other => panic!("expected a failure, got {other:?}"),
    }
}

#[test]
fn a_finished_run_is_reused() {
    let world = World::new();
    assert_eq!(world.go(), [Outcome::Finished, Outcome::Finished]);
    assert_eq!(world.go(), [Outcome::Reused, Outcome::Reused]);
    assert_eq!(world.starts(), ["a 0", "b 0"]);
}

/// What is read by one slice and changed meanwhile spoils that slice alone.
#[test]
fn slices_are_made_in_their_order_and_keep_their_data_apart() {
    let (world, other) = (World::new(), World::new());
    let more = [planned("c", "x"), planned("d", "x"), planned("e", "x")];
    let (cache, pool) = (world.cache(), Pool { quiet: true, ..Pool::cpu(&world.options) });
    let means = Means { cache: &cache, trainer: &world.trainer, options: &world.options, pool: &pool };
    let slice = |runs, data| Slice { label: Some("p".to_owned()), runs, data };
    let make = |slices: &[Slice<'_>]| carry_out_slices(slices, &means, &AtomicBool::new(false), &|_| ());
    let made = make(&[slice(&more[..1], &world.data), slice(&world.runs, &other.data)]).unwrap();
    assert_eq!(made, [vec![Outcome::Finished], vec![Outcome::Finished, Outcome::Finished]]);
    assert_eq!((world.starts(), other.starts()), (vec!["c 0".to_owned()], vec!["a 0".to_owned(), "b 0".to_owned()]));
    let ended = |run: &PlannedRun| cache.join(run.key()).join("done.json").metadata().unwrap().modified().unwrap();
    assert!(ended(&more[0]) < ended(&world.runs[0]) && ended(&world.runs[0]) < ended(&world.runs[1]));
    // What is finished does not stand in the way of what is left.
    other.mode("spoil");
    let refused = make(&[slice(&more[..2], &world.data), slice(&more[2..], &other.data)]).unwrap_err();
    assert!(matches!(refused, RunError::Data(_)), "{refused}");
    let is_finished = |run: &PlannedRun| cache.join(run.key()).join("done.json").exists();
    assert_eq!((is_finished(&more[1]), is_finished(&more[2])), (true, false), "d read what nobody changed, e did not");
}

#[test]
fn fresh_forgets_finished_runs_and_checkpoints() {
    let mut world = World::new();
    world.go();
    world.options.fresh = true;
    assert_eq!(world.go(), [Outcome::Finished, Outcome::Finished]);
    assert_eq!(world.starts(), ["a 0", "b 0", "a 0", "b 0"]);
}

#[test]
fn runs_at_once_give_the_same_files() {
    let (mut one, mut many) = (World::new(), World::new());
    for world in [&mut one, &mut many] {
        world.runs = ["a", "b", "c", "d", "e"].map(|arm| planned(arm, "x")).to_vec();
    }
    many.options.parallel = 3;
    assert_eq!(one.go(), many.go());
    assert_eq!(one.results(), many.results());
}

#[test]
fn a_failed_run_is_recorded_and_the_others_go_on() {
    let world = World::new();
    world.mode("fail a");
    let outcomes = world.go();
    let why = failure(&outcomes[0]);
    assert!(
        why.contains("complaint 59.") && why.contains("complaint 20.") && !why.contains("complaint 19."),
        "not the last 40 lines: {why}"
    );
    assert!(why.contains('3'), "the exit code is missing: {why}");
    assert_eq!(outcomes[1], Outcome::Finished);
    let recorded: serde_json::Value = serde_json::from_slice(&std::fs::read(world.run_folder(0).join("failed.json")).unwrap()).unwrap();
    assert_eq!(recorded["schema"], "mxfp4-failed/1");
    // The next attempt runs only what failed.
    world.mode("well");
    assert_eq!(world.go(), [Outcome::Finished, Outcome::Reused]);
    assert_eq!(world.starts(), ["a 0", "b 0", "a 0"]);
}

#[test]
fn success_without_done_json_is_a_failure() {
    let world = World::new();
    world.mode("lie");
    failure(&world.go()[0]);
    world.mode("silent");
    assert!(failure(&world.go()[0]).contains("said nothing"));
}

/// The trainer's code 4, and no other, says that the machine could not do it.
#[test]
fn a_trainer_that_the_machine_failed_says_so_by_its_exit_code() {
    for (mode, machine) in [("silent", true), ("fail a", false), ("lie", false), ("die 2", false)] {
        let world = World::new();
        world.mode(mode);
        assert!(matches!(&world.go()[0], Outcome::Failed(failure) if failure.machine == machine), "{mode}");
    }
}

#[test]
fn a_killed_run_goes_on_and_ends_with_the_same_files() {
    let undisturbed = World::new();
    undisturbed.go();
    for step in 1..=STEPS {
        let world = World::new();
        world.mode(&format!("die {step}"));
        failure(&world.go()[0]);
        world.mode("well");
        assert_eq!(world.go(), [Outcome::Finished, Outcome::Finished]);
        assert_eq!(world.starts()[2], format!("a {}", step - 1), "must go on from the last checkpoint");
        assert_eq!(world.results(), undisturbed.results());
    }
}

#[test]
fn files_that_do_not_belong_there_are_not_results() {
    type Spoil = fn(&Path);
    let spoil: [(&str, Spoil); 12] = [
        ("half a done.json", |folder| std::fs::write(folder.join("done.json"), "{\"schema\":\"mxfp4-do").unwrap()),
        ("another schema", |folder| replace(&folder.join("done.json"), "mxfp4-done/1", "mxfp4-done/2")),
        ("another run's done.json", |folder| replace(&folder.join("done.json"), "\"run_sha256\":\"", "\"run_sha256\":\"0")),
        ("metrics changed after", |folder| replace(&folder.join("metrics.jsonl"), "\"step\":1,", "\"step\":7,")),
        ("metrics gone", |folder| std::fs::remove_file(folder.join("metrics.jsonl")).unwrap()),
        ("another run.yaml", |folder| replace(&folder.join("run.yaml"), "steps: 6", "steps: 5")),
        ("a final loss", |folder| replace(&folder.join("done.json"), "\"final_validation_loss\":null", "\"final_validation_loss\":1.0")),
        ("another end", |folder| replace(&folder.join("done.json"), "completed", "diverged")),
        ("other ingredients", |folder| replace(&folder.join("ingredients.json"), "\"x\"", "\"y\"")),
        ("no done.json", |folder| std::fs::remove_file(folder.join("done.json")).unwrap()),
        ("another metric with its hash", |folder| {
            replace(&folder.join("metrics.jsonl"), "\"step\":1,", "\"step\":7,");
            let hash = |text: &str| text.split("\"metrics_sha256\":\"").nth(1).unwrap()[..64].to_owned();
            let old = hash(&std::fs::read_to_string(folder.join("done.json")).unwrap());
            replace(&folder.join("done.json"), &old, &study::files::sha256_file(&folder.join("metrics.jsonl")).unwrap());
        }),
        ("a time", |folder| replace(&folder.join("timing.jsonl"), "cpu", "gpu")),
    ];
    for (what, spoil) in spoil {
        let world = World::new();
        std::fs::write(world.folder.path().join("device"), "cpu").unwrap();
        world.go();
        let whole = world.results();
        spoil(&world.run_folder(0));
        assert!(why(&world.runs[0], &world.cache()).unwrap().contains("moved aside and run again"), "{what}");
        assert_eq!(world.go(), [Outcome::Finished, Outcome::Reused], "{what}");
        assert_eq!(world.results(), whole, "{what}");
        // It was said, and what was there still is.
        let aside = world.cache().join(format!("{}.unusable-1", world.runs[0].key()));
        let said = world.said.lock().unwrap();
        assert!(said.len() == 1 && said[0].contains("cannot be believed") && said[0].contains("unusable-1"), "{what}: {said:?}");
        assert!(aside.join("run.yaml").is_file(), "{what}");
    }
}

fn replace(path: &Path, old: &str, new: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(old), "{} has no `{old}`", path.display());
    std::fs::write(path, text.replacen(old, new, 1)).unwrap();
}

#[test]
fn stopping_keeps_what_is_done_and_the_next_call_goes_on() {
    let undisturbed = World::new();
    undisturbed.go();
    let world = World::new();
    world.mode("slow");
    let stop = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(|| {
            // As soon as the first run has a checkpoint to go on from.
            while !world.run_folder(0).join("checkpoint/step").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
        world.try_go(&stop).unwrap()
    });
    // Six steps take 1.2 s, and a trainer gets 3 s to end by itself: the first run may finish; the second must not have begun.
    assert_ne!(outcomes[1], Outcome::Finished);
    assert_eq!(world.starts(), ["a 0"]);
    assert!(!world.run_folder(1).join("failed.json").exists(), "being stopped is not a failure");
    world.mode("well");
    world.go();
    assert_eq!(world.results(), undisturbed.results());
}

#[test]
fn a_trainer_that_does_not_listen_is_ended() {
    let world = World::new();
    world.mode("deaf");
    let stop = AtomicBool::new(true);
    assert_eq!(world.try_go(&stop).unwrap(), [Outcome::Interrupted, Outcome::Interrupted]);
    assert!(world.starts().is_empty(), "nothing may start after the stop");
    let started = Instant::now();
    let stop = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(|| {
            while world.starts().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
        world.try_go(&stop).unwrap()
    });
    assert_eq!(outcomes, [Outcome::Interrupted, Outcome::Interrupted]);
    // It would go on for 60 s; the patience is 3 s.
    assert!(started.elapsed() < Duration::from_secs(30), "waited {:?} for a deaf trainer", started.elapsed());
}

#[test]
fn output_that_is_not_text_neither_blocks_nor_fails_a_run() {
    let world = World::new();
    world.mode("noise");
    assert_eq!(world.go(), [Outcome::Finished, Outcome::Finished]);
}

#[test]
fn data_that_changes_is_noticed_before_and_after() {
    let world = World::new();
    std::fs::write(world.data.folder.join("validation.idx"), "other").unwrap();
    let message = world.try_go(&AtomicBool::new(false)).unwrap_err().to_string();
    assert!(message.contains("validation.idx"), "{message}");
    assert!(world.starts().is_empty(), "no run may start on wrong data");

    let world = World::new();
    world.mode("spoil");
    let message = world.try_go(&AtomicBool::new(false)).unwrap_err().to_string();
    assert!(message.contains("train.bin"), "{message}");
}

#[test]
fn runs_on_data_that_changed_meanwhile_are_not_reused() {
    let world = World::new();
    world.mode("spoil");
    world.try_go(&AtomicBool::new(false)).unwrap_err();
    // The data is put right; what was computed meanwhile cannot be trusted.
    std::fs::write(world.data.folder.join("train.bin"), "train bin").unwrap();
    world.mode("well");
    assert_eq!(world.go(), [Outcome::Finished, Outcome::Finished]);
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let world = World::new();
    // A file where the folder should be: refused also for root, unlike a folder without write permission.
    std::fs::write(world.cache(), "in the way").unwrap();
    let message = world.try_go(&AtomicBool::new(false)).unwrap_err().to_string();
    assert!(message.contains("runs"), "{message}");
    assert_eq!(std::fs::read_to_string(world.cache()).unwrap(), "in the way");
}

#[test]
fn a_missing_trainer_is_a_failure_with_its_reason() {
    let mut world = World::new();
    world.trainer.program = world.folder.path().join("nothing");
    assert!(failure(&world.go()[0]).contains("could not be started"));
}

#[test]
fn why_names_the_ingredient_that_changed() {
    let mut world = World::new();
    let why = |world: &World| why(&world.runs[0], &world.cache()).unwrap();
    assert!(why(&world).contains("never been run"));
    world.mode("die 3");
    world.go();
    assert!(why(&world).contains("go on from its checkpoint"));
    world.mode("well");
    world.go();
    assert!(why(&world).contains("will be reused"));
    world.runs[0] = planned("a", "y");
    let text = why(&world);
    assert!(text.contains("what the trainer computes: x -> y") && !text.contains("compiler"), "{text}");
    world.runs[0] = planned("a", "x");
    world.runs[0].run_yaml = world.runs[0].run_yaml.replace("steps: 6", "steps: 7");
    world.runs[0].ingredients.run = sha256(world.runs[0].run_yaml.as_bytes());
    let text = why(&world);
    assert!(text.contains("steps: 6 -> steps: 7") && !text.contains("computes"), "{text}");
}

fn gpus(world: &mut World, numbers: &[usize]) {
    let places = numbers.iter().map(|number| format!("cuda:{number}")).collect();
    world.pool = Some(Pool { places, ..Pool::default() });
    world.runs = ["a", "b", "c", "d"].map(|arm| planned(arm, "x")).to_vec();
}

/// `arm device` for every call of the trainer so far.
fn places(world: &World) -> Vec<String> {
    let text = std::fs::read_to_string(world.folder.path().join("places")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn runs_are_spread_over_gpus_and_pinned() {
    let mut world = World::new();
    gpus(&mut world, &[0, 2]);
    world.mode("slow");
    assert_eq!(world.go(), vec![Outcome::Finished; 4]);
    let places = places(&world);
    assert_eq!(places.len(), 4);
    for device in ["cuda:0", "cuda:2"] {
        assert_eq!(places.iter().filter(|place| place.ends_with(device)).count(), 2, "{places:?}");
    }
}

/// With room for two, the next run of a GPU starts before the last one has ended; without it, after.
#[test]
fn the_next_run_starts_while_the_last_one_ends() {
    for ahead in [false, true] {
        let mut world = World::new();
        gpus(&mut world, &[0]);
        world.pool = Some(Pool { ahead, ..world.pool.unwrap() });
        world.runs.truncate(2);
        world.mode("slow");
        assert_eq!(world.go(), vec![Outcome::Finished; 2]);
        let log = std::fs::read_to_string(world.folder.path().join("order")).unwrap();
        let mut at_once = 0;
        let most = log.lines().map(|line| {
            at_once += if line.starts_with("begins") { 1 } else { -1 };
            at_once
        });
        assert_eq!(most.max(), Some(if ahead { 2 } else { 1 }), "{log}");
    }
}

#[test]
fn a_lost_gpu_costs_no_run() {
    for mode in ["kill cuda:1", "refuse cuda:1"] {
        let mut world = World::new();
        gpus(&mut world, &[0, 1]);
        world.mode(mode);
        assert_eq!(world.go(), vec![Outcome::Finished; 4], "{mode}");
        assert!(places(&world).iter().filter(|place| place.ends_with("cuda:1")).count() <= 2, "{mode}: {:?}", places(&world));
        assert!(
            (0..4).all(|run| !world.run_folder(run).join("failed.json").exists()),
            "{mode}: an overcome failure is not part of the record"
        );
    }
}

/// A run of several ranks goes on in its place, where there is no other; one process of a CPU is reported.
#[test]
fn a_run_that_lost_a_rank_goes_on_where_it_was() {
    for (ranks, starts) in [(2, vec!["a 0", "a 2"]), (1, vec!["a 0"])] {
        let mut world = World::new();
        world.pool = Some(Pool { ranks, ..Pool::cpu(&world.options) });
        world.runs.truncate(1);
        world.mode("die once");
        assert_eq!(world.go()[0].finished(), ranks == 2);
        assert_eq!(world.starts(), starts);
        assert_eq!(places(&world)[0], if ranks == 2 { "a 2" } else { "a cpu" }, "launch --ranks 2, or run --device cpu");
    }
}

#[test]
fn a_run_that_fails_by_itself_is_not_tried_elsewhere() {
    let mut world = World::new();
    gpus(&mut world, &[0, 1]);
    world.mode("fail b");
    let outcomes = world.go();
    failure(&outcomes[1]);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.finished()).count(), 3);
    assert_eq!(places(&world).len(), 4);
}

#[test]
fn a_trainer_that_ran_on_another_device_has_not_finished() {
    let mut world = World::new();
    gpus(&mut world, &[0]);
    std::fs::write(world.folder.path().join("device"), "cpu").unwrap();
    assert!(failure(&world.go()[0]).contains("told to use cuda:0, but timing.jsonl says that it ran on cpu"));
    std::fs::write(world.folder.path().join("device"), "cuda").unwrap();
    assert_eq!(world.go(), vec![Outcome::Finished; 4]);
}

#[test]
fn when_the_time_is_up_the_rest_waits_and_goes_on_later() {
    let mut world = World::new();
    gpus(&mut world, &[0]);
    world.mode("slow");
    let pool = world.pool();
    // Each run takes 1.2 s: the first begins in time and may end, the second begins or not, the last does not.
    world.pool = Some(Pool { minutes: Some(Duration::from_millis(600)), ..pool.clone() });
    let outcomes = world.go();
    assert_eq!((&outcomes[0], &outcomes[3]), (&Outcome::Finished, &Outcome::Waiting));
    world.pool = Some(Pool { stop_after: Some(Duration::from_millis(1000)), ..pool.clone() });
    let outcomes = world.go();
    assert_eq!((&outcomes[0], &outcomes[1], &outcomes[3]), (&Outcome::Reused, &Outcome::Interrupted, &Outcome::Waiting));
    assert!(world.run_folder(1).join("checkpoint/step").exists() && !world.run_folder(1).join("failed.json").exists());
    world.mode("well");
    world.pool = Some(pool);
    assert_eq!(world.go().iter().filter(|outcome| outcome.finished()).count(), 4);
}
