//! Folders as trainers leave them at a moment, and the frame that they give.

use std::fs::{self, File};

use super::*;

const NOW: u64 = 1_800_000_000;

fn at(seconds_ago: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW - seconds_ago)
}

/// Writes files of a run and dates them; `steps` of `of` are done in half a second each, an evaluation of one second after every fourth.
fn run(cache: &Path, key: &str, (arm, seed): (&str, u64), (steps, of): (u64, u64), seconds_ago: u64) -> PathBuf {
    let folder = cache.join(key);
    fs::create_dir_all(&folder).unwrap();
    let identity = format!("run: {{profile: somewhere, arm: {arm}, seed: {seed}}}\nbudget: {{steps: {of}}}\n");
    fs::write(folder.join("run.yaml"), identity).unwrap();
    fs::write(folder.join("ingredients.json"), "{}").unwrap();
    if steps > 0 {
        let (mut timing, mut metrics) = (session("cpu", None), String::new());
        for step in 1..=steps {
            timing += &format!("{{\"kind\":\"step\",\"step\":{step},\"seconds\":0.5}}\n");
            if step % 4 == 0 {
                timing += &format!("{{\"kind\":\"eval\",\"step\":{step},\"seconds\":1.0}}\n");
                metrics += &format!("{{\"kind\":\"eval\",\"step\":{step},\"tokens\":{step},\"loss\":{}}}\n", 7.0 - step as f64 / 20.0);
            }
        }
        fs::write(folder.join("timing.jsonl"), timing).unwrap();
        // The trainer is in the middle of a line.
        fs::write(folder.join("metrics.jsonl"), metrics + "{\"kind\":\"eval\",\"st").unwrap();
    }
    for name in files::list(&folder).unwrap() {
        File::options().append(true).open(folder.join(name)).unwrap().set_modified(at(seconds_ago)).unwrap();
    }
    folder
}

fn session(device: &str, gpu: Option<&str>) -> String {
    let gpu = gpu.map_or(String::new(), |name| format!(",\"gpu\":\"{name}\""));
    format!(
        "{{\"schema\":\"mxfp4-timing/1\",\"kind\":\"session\",\"device\":\"{device}\",\"threads\":1,\"instruction_set\":\"x\",\"cpu\":\"y\"{gpu},\"resumed_from_step\":0}}\n"
    )
}

fn end(folder: &Path, status: &str, steps: u64) {
    let done = format!(
        "{{\"schema\":\"mxfp4-done/1\",\"status\":\"{status}\",\"steps\":{steps},\"tokens\":1,\"final_train_loss\":5.0,\"final_validation_loss\":5.0,\"metrics_sha256\":\"\",\"model_sha256\":null,\"run_sha256\":\"\"}}"
    );
    fs::write(folder.join("done.json"), done).unwrap();
}

#[test]
fn a_frame_of_every_kind_of_run() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path();
    for (key, seed) in [("a1", 1), ("a2", 2)] {
        end(&run(cache, key, ("fp8", seed), (40, 40), 900), "completed", 40);
    }
    end(&run(cache, "b1", ("mxfp4-fdw-sr", 1), (20, 40), 800), "diverged", 20);
    run(cache, "c1", ("mxfp4-fdw-h16", 1), (24, 40), 3);
    run(cache, "c2", ("mxfp4-fdw-h16", 2), (8, 40), 5);
    run(cache, "d1", ("mxfp4-f", 1), (0, 40), 60);
    run(cache, "d2", ("mxfp4-f", 2), (12, 40), 7000);
    let failed = run(cache, "e1", ("bf16", 1), (4, 40), 500);
    fs::write(failed.join("failed.json"), "{\"schema\":\"mxfp4-failed/1\",\"error\":\"disk full\\nmore\"}").unwrap();
    // Of an earlier trainer, set aside, and no run at all.
    run(cache, "old", ("fp8", 1), (4, 40), 90_000);
    run(cache, "a1.unusable-1", ("fp8", 1), (4, 40), 1);
    fs::create_dir(cache.join("empty")).unwrap();

    let mut watched = look(&[cache.to_owned()], None, at(0)).unwrap();
    watched.gpus = vec!["0 NVIDIA H200: 97 % busy, 34.1 of 139.8 GiB, 61 °C".to_owned()];
    // By hand: four steps and an evaluation take 3 s, so 0.75 s a step. Of those at work 16 and 32 steps are left, 40 of the one that waits and
    // 28 of the one that stopped: 116 x 0.75 / 2.
    assert_eq!(watched.seconds_left(), Some(43.5));
    insta::assert_snapshot!(watched.to_string());

    let now = time::OffsetDateTime::from_unix_timestamp(NOW as i64).unwrap();
    let line = watched.json(now);
    assert_eq!(line.lines().count(), 1);
    insta::assert_snapshot!("a_line_of_every_kind_of_run", line.replace("{\"arm\"", "\n{\"arm\"").replace("],\"gpus\"", "\n],\"gpus\""));
    let paper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../paper");
    let page = watched.page(Some("fp8"), Some(30), now, &paper).unwrap();
    for part in ["2027-01-15 08:00:00 UTC", "content=\"30\"", "disk full", "97 % busy", "mxfp4-fdw-h16/1", "44 s left"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

/// What is alone at work bounds the time that is left, and without anybody at work nothing is told.
#[test]
fn time_left_is_that_of_the_last_run() {
    let cache = tempfile::tempdir().unwrap();
    run(cache.path(), "a", ("fp8", 1), (4, 40), 1);
    run(cache.path(), "b", ("fp8", 2), (36, 40), 1);
    assert_eq!(look(&[cache.path().to_owned()], None, at(0)).unwrap().seconds_left(), Some(27.0));
    assert_eq!(look(&[cache.path().to_owned()], None, at(0) + Duration::from_secs(7200)).unwrap().seconds_left(), None);
}

#[test]
fn a_profile_is_the_one_that_was_asked_for_or_the_last_at_work() {
    let cache = tempfile::tempdir().unwrap();
    let said = look(&[cache.path().to_owned()], Some("smoke"), at(0)).unwrap_err().to_string();
    assert!(said.contains("no run of profile smoke") && said.contains("cargo xtask replicate"), "{said}");
    run(cache.path(), "a", ("fp8", 1), (4, 40), 50);
    let other = run(cache.path(), "b", ("fp8", 1), (0, 40), 9);
    fs::write(other.join("run.yaml"), "run: {profile: other, arm: fp8, seed: 1}\nbudget: {steps: 4}\n").unwrap();
    assert_eq!(look(&[cache.path().to_owned()], None, at(0)).unwrap().profile.as_str(), "other");
    assert_eq!(look(&[cache.path().to_owned()], Some("somewhere"), at(0)).unwrap().runs[0].step, 4);
}

/// A run of Slurm lies in its campaign's folder until it is taken into the cache; then it is the same run, once.
#[test]
fn runs_of_slurm_are_seen_and_counted_once() {
    let root = tempfile::tempdir().unwrap();
    let cluster = root.path().join("cache/slurm/somewhere-0123/runs");
    run(&cluster, "a", ("fp8", 1), (8, 40), 5);
    run(&cluster, "b", ("fp8", 2), (0, 40), 60);
    let at_work = look(&places(root.path()), None, at(0)).unwrap();
    assert_eq!(at_work.runs.iter().map(|run| run.doing.clone()).collect::<Vec<_>>(), [Doing::AtWork, Doing::Waiting]);
    end(&run(&root.path().join("cache/runs"), "a", ("fp8", 1), (40, 40), 2), "completed", 40);
    let taken = look(&places(root.path()), None, at(0)).unwrap();
    assert_eq!(taken.runs.iter().map(|run| run.doing.clone()).collect::<Vec<_>>(), [Doing::Finished, Doing::Waiting]);
}

/// A program in place of nvidia-smi, with what the real one prints for this query.
#[cfg(unix)]
#[test]
fn gpus_are_read_from_nvidia_smi() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("nvidia-smi");
    fs::write(&program, "#!/bin/sh\necho '0, NVIDIA H200, 97, 34918, 143771, 61'\necho '1, NVIDIA H200, [N/A], 4, 143771, 30'\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        gpus(program.into()),
        ["0 NVIDIA H200: 97 % busy, 34.1 of 140.4 GiB, 61 °C", "1 NVIDIA H200: [N/A] % busy, 0.0 of 140.4 GiB, 30 °C"]
    );
    assert!(gpus("no-such-program".into()).is_empty());
}
