//! What every command has in common: the shape of an error, `--quiet` and `--json`, colours, and what shells and `man` are given.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn xtask(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(arguments).env_remove("NO_COLOR");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Each mistake, provoked: its exit code and every word of its message. `EMPTY` and `FILE` are a folder and a file that mean nothing.
#[test]
fn every_error_says_what_failed_where_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, file) = (folder.path().join("empty"), folder.path().join("file"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(&file, "text").unwrap();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/2026-11-22-xeon-2c-cpu-694f997d");
    let place = |path: &Path| path.to_str().unwrap().to_owned();
    let mut table = String::new();
    for line in [
        "frobnicate",
        "replicate --profile smok",
        "replicate --seeds 0",
        "replicate --gpus 0",
        "replicate --why fp8/11",
        "replicate --profile smoke --trainer nowhere/trainer",
        "replicate --profile smoke --dry-run --trainer EMPTY",
        "doctor --trainer FILE",
        "try nowhere.yaml",
        "try EMPTY",
        "verify nowhere",
        "verify EMPTY",
        "verify FILE",
        "verify COMMITTED --signer nobody",
        "compare EMPTY nowhere",
        "report EMPTY",
        "report --add-kernels nowhere COMMITTED",
        "audit nowhere",
        "sign EMPTY --key nowhere",
        "sign COMMITTED --key nowhere",
        "synthesis nowhere --out EMPTY",
        "synthesis EMPTY --out EMPTY",
        "data fetch webdoc",
        "data fetch webdocs --from nowhere",
        "data fetch webdocs --from EMPTY --tokens nothing",
        "data fetch enwik8 --mirror file:///nowhere",
        "runs train smok",
        "runs train smoke@x",
        "runs train smoke:fp9@1",
        "runs train smoke --gpus 0",
        "runs train smoke h200-s",
        "runs import nowhere",
        "runs import EMPTY",
        "watch --once --profile nothing",
        "pack FILE/below",
        "man FILE/below",
        "completions tcsh",
        "export-mllog nowhere",
        "device-test --device tpu",
        "kernels-bench --device tpu",
        "kernels-build --arch gfx95",
    ] {
        let words: Vec<String> = line
            .split(' ')
            .map(|word| word.replace("EMPTY", &place(&empty)).replace("FILE", &place(&file)).replace("COMMITTED", &place(&committed)))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = xtask(&words).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.lines().any(|line| line.starts_with("error: ")), "{line}: {said}");
        assert_eq!(text(&output.stdout), "", "{line}: an error is no result");
        let error = said[said.find("error: ").unwrap()..].replace(&place(&empty), "EMPTY").replace(&place(&file), "FILE");
        table.push_str(&format!("{line}\n{}  {}\n", output.status.code().unwrap(), error.trim_end().replace('\n', "\n   ")));
    }
    let root = place(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
    let here = std::env::current_dir().unwrap().to_str().unwrap().to_owned();
    insta::assert_snapshot!(table.replace(&place(&committed), "COMMITTED").replace(&here, "HERE").replace(&root, "ROOT"));
}

/// In a folder that is no repository an installed program says so, and leaves nothing behind.
#[test]
fn outside_of_a_repository_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("xtask");
    std::fs::copy(env!("CARGO_BIN_EXE_xtask"), &program).unwrap();
    let call = |arguments: &[&str]| {
        let output = Command::new(&program).args(arguments).current_dir(folder.path()).env_remove("CARGO_MANIFEST_DIR").output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for arguments in [vec!["replicate"], vec!["runs", "import", "."], vec!["list"]] {
        let (code, said) = call(&arguments);
        assert!(code == Some(2) && said.contains("no repository of this project") && said.contains("go into a clone"), "{said}");
    }
    assert_eq!(call(&["version"]).0, Some(0));
    assert_eq!(call(&["--version"]).0, Some(0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn object(output: &Output) -> Value {
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().count(), 1, "one object and nothing else: {stdout}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn with_json_standard_output_is_one_object_however_a_command_ends() {
    let folder = tempfile::tempdir().unwrap();
    let directory = a_small_directory();
    let good = xtask(&["verify", "--json", directory.to_str().unwrap()]).output().unwrap();
    let said = object(&good);
    assert_eq!((&said["schema"], &said["command"]), (&"mxfp4-outcome/1".into(), &"verify".into()));
    assert_eq!((&said["exit_code"], &said["holds"]), (&0.into(), &true.into()), "{said}");

    let bad = xtask(&["verify", "--json", folder.path().to_str().unwrap()]).output().unwrap();
    let (said, stderr) = (object(&bad), text(&bad.stderr));
    assert_eq!(said["exit_code"], i64::from(bad.status.code().unwrap()));
    assert_eq!(said["error"].as_str().unwrap(), stderr.trim_end().strip_prefix("error: ").unwrap());
}

/// The smallest one that is committed: verifying it takes a moment.
fn a_small_directory() -> PathBuf {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
    let sealed = |path: &PathBuf| path.join("SHA256SUMS").is_file();
    let all = std::fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path()).filter(sealed);
    all.min_by_key(|path| std::fs::metadata(path.join("SHA256SUMS")).unwrap().len()).unwrap()
}

/// `--quiet` leaves the result and takes the progress away; what was progress is known from the same command without it.
#[test]
fn quiet_commands_say_only_their_result() {
    let fetch = |more: &[&str]| {
        let arguments: Vec<&str> = ["data", "fetch", "enwik8"].iter().chain(more).copied().collect();
        text(&xtask(&arguments).output().unwrap().stderr)
    };
    let (loud, quiet) = (fetch(&[]), fetch(&["--quiet"]));
    assert!(loud.contains("it comes from http") && !quiet.contains("it comes from http"), "{loud}");
    assert!(quiet.starts_with("error: ") && loud.ends_with(&quiet), "what went wrong is always said: {quiet}");
}

/// On a terminal the word `error:` is red, as clap's own; elsewhere, and with NO_COLOR, no byte of colour is printed.
#[test]
fn colours_are_for_terminals() {
    let escape = '\u{1b}';
    for arguments in [&["verify", "nowhere"][..], &["frobnicate"], &["--help"]] {
        let output = xtask(arguments).env("CLICOLOR", "1").env("TERM", "xterm-256color").output().unwrap();
        assert!(!text(&output.stderr).contains(escape) && !text(&output.stdout).contains(escape), "{arguments:?}");
    }
    let on_a_terminal = |arguments: &str, no_color: &str| {
        let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_xtask"));
        let mut script = Command::new("script");
        let output = script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color").env("NO_COLOR", no_color).output();
        text(&output.expect("script comes with Debian's bsdutils, which is essential").stdout)
    };
    for arguments in ["verify nowhere", "frobnicate"] {
        assert!(on_a_terminal(arguments, "").contains(escape), "{arguments}: red on a terminal");
        assert!(!on_a_terminal(arguments, "1").contains(escape), "{arguments}: NO_COLOR");
    }
}

/// The shell itself completes: a command by its beginning, and an option of that command.
#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("xtask.bash");
    std::fs::write(&script, xtask(&["completions", "bash"]).output().unwrap().stdout).unwrap();
    let complete = |words: &[&str]| {
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let line = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; _xtask xtask '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.join(" "),
            words.len() - 1
        );
        text(&Command::new("bash").args(["--norc", "-c", &line]).output().unwrap().stdout)
    };
    assert_eq!(complete(&["xtask", "repl"]).trim(), "replicate");
    assert_eq!(complete(&["xtask", "replicate", "--dry"]).trim(), "--dry-run");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(text(&xtask(&["completions", shell]).output().unwrap().stdout).contains("kernels-bench"), "{shell}");
    }
}

#[test]
fn man_has_a_page_for_every_command_and_what_help_says_of_options() {
    let folder = tempfile::tempdir().unwrap();
    assert!(xtask(&["man", folder.path().to_str().unwrap()]).status().unwrap().success());
    let page = |name: &str| std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap().replace("\\-", "-");
    let help = text(&xtask(&["--help"]).output().unwrap().stdout);
    let commands: Vec<&str> = help
        .split("\nCommands:\n")
        .nth(1)
        .unwrap()
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        assert!(page("xtask").contains(&format!("xtask-{command}(1)")), "{command}");
        assert!(page(&format!("xtask-{command}")).contains(&format!("xtask {command}")), "{command}");
    }
    assert!(page("xtask-data-fetch").contains("--mirror") && page("xtask").contains("Exit codes: 0 done"));
}
