//! `cargo xtask watch` for programs and browsers: a line a look, and a page that is there whole or not at all.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A repository in which one run of `smoke` has made two of its steps.
struct World(TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        for folder in ["manifests", "paper"] {
            super::command_line::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder), &world.path("root").join(folder));
        }
        let run = world.path("root/cache/runs/0123");
        std::fs::create_dir_all(&run).unwrap();
        let write = |name: &str, text: &str| std::fs::write(run.join(name), text).unwrap();
        write("run.yaml", "run: {profile: smoke, arm: fp8, seed: 1}\nbudget: {steps: 8}\n");
        write("ingredients.json", "{}");
        write(
            "metrics.jsonl",
            "{\"kind\":\"eval\",\"step\":0,\"tokens\":0,\"loss\":6.5}\n{\"kind\":\"eval\",\"step\":2,\"tokens\":2,\"loss\":6.25}\n",
        );
        write(
            "timing.jsonl",
            "{\"schema\":\"mxfp4-timing/1\",\"kind\":\"session\",\"device\":\"cpu\",\"threads\":1,\"instruction_set\":\"x\",\"cpu\":\"y\",\"resumed_from_step\":0}\n{\"kind\":\"step\",\"step\":1,\"seconds\":0.5}\n{\"kind\":\"step\",\"step\":2,\"seconds\":0.5}\n",
        );
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn watch(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("watch").args(arguments).env("CARGO_MANIFEST_DIR", self.path("root/xtask"));
        command
    }
}

fn check(line: &str) {
    let said: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&said["schema"], &said["profile"]), (&"mxfp4-watch/1".into(), &"smoke".into()), "{line}");
    assert_eq!((&said["steps_done"], &said["steps"], &said["seconds_left"]), (&2.into(), &8.into(), &3.0.into()), "{line}");
    let run = &said["runs"][0];
    assert_eq!((&run["state"], &run["loss"], &run["loss_at_step"]), (&"at work".into(), &6.25.into(), &2.into()), "{line}");
}

#[test]
fn a_program_gets_a_line_a_look_until_it_stops_reading() {
    let world = World::new();
    let once = world.watch(&["--json", "--once"]).output().unwrap();
    let text = String::from_utf8(once.stdout).unwrap();
    assert!(once.status.success() && text.lines().count() == 1, "{text}");
    check(&text);
    let mut child = world.watch(&["--json", "--every", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        check(&lines.next().unwrap().unwrap());
    }
    drop(lines);
    assert!(child.wait().unwrap().success(), "nobody reads any more");
}

#[test]
fn a_page_is_written_at_each_look_and_asks_to_be_loaded_again() {
    let world = World::new();
    let page = world.path("pages/watch.html");
    let once = world.watch(&["--once", "--html", page.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(once.stdout).unwrap();
    assert!(once.status.success() && said == format!("written to {}\n", page.display()), "{said}");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("fp8/1") && text.contains("25.0 %") && text.contains("6.2500") && !text.contains("http-equiv"), "{text}");

    std::fs::remove_file(&page).unwrap();
    let mut child = world.watch(&["--html", page.to_str().unwrap(), "--every", "1"]).stdout(Stdio::null()).spawn().unwrap();
    let text_of = |wanted: &str| {
        let started = Instant::now();
        loop {
            let text = std::fs::read_to_string(&page).unwrap_or_default();
            // Written aside and renamed: whoever loads it sees all of it.
            assert!(text.is_empty() || text.trim_end().ends_with("</html>"), "{text}");
            if text.contains(wanted) {
                return text;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{wanted}: {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    assert!(text_of("25.0 %").contains("<meta http-equiv=\"refresh\" content=\"1\">"));
    let timing = world.path("root/cache/runs/0123/timing.jsonl");
    let more = std::fs::read_to_string(&timing).unwrap() + "{\"kind\":\"step\",\"step\":4,\"seconds\":0.5}\n";
    std::fs::write(&timing, more).unwrap();
    text_of("50.0 %");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        std::fs::read_dir(world.path("pages"))
            .unwrap()
            .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "html"))
            .count(),
        1
    );
}

#[test]
fn what_cannot_be_watched_is_an_error_and_no_line() {
    let world = World::new();
    for (arguments, part) in [
        (vec!["--json", "--once", "--profile", "nothing"], "no run of profile nothing"),
        (vec!["--once", "--html", "/dev/null/page.html"], "/dev/null"),
    ] {
        let output = world.watch(&arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(output.stdout.is_empty() && said.starts_with("error: ") && said.contains(part), "{said}");
    }
}
