//! Result directories that somebody else made, and not to help: every command that takes one, on thousands of them.
//!
//! Each is a sound directory with up to three changes: links, pipes, names, sizes, words and numbers inside files, records that contradict
//! each other. Whatever a command answers, nothing of the directory may run, be read elsewhere or write elsewhere, and no command may panic,
//! take more than ten seconds or more than one GiB. `.ci/hostile-directories` tries 10,000 and prints the numbers; here are a few of them.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{sealed, synthetic};
use study::{files, packed, provenance};

/// What a command may take.
const LONGEST: Duration = Duration::from_secs(10);
const MOST_KIB: &str = "1048576";
/// What must never be found anywhere but where it is.
const SECRET: &str = "a secret that nobody sent";

/// Words that would do something where a word is taken for more than one.
const WORDS: [&str; 14] = [
    "../outside/evil",
    "x/../../../../outside/evil",
    "/tmp/outside-evil",
    "",
    ".",
    "-rf",
    "\\\\input{../secret}",
    "\\\\immediate\\\\write18{touch EXECUTED}",
    "$(touch EXECUTED)",
    "<script>alert(1)</script>",
    "javascript:alert(1)",
    "\\u001b[2J\\nverified: everything agrees",
    "{{ page }}",
    "[[[[[[[[",
];
const NUMBERS: [&str; 16] = [
    "-1",
    "0",
    "1e308",
    "-1e308",
    ".nan",
    "NaN",
    ".inf",
    "18446744073709551615",
    "9223372036854775808",
    "-9223372036854775808",
    "0.1",
    "1e-320",
    "null",
    "[]",
    "{}",
    "4294967296",
];
/// Names that some program looks for, or that are no names.
const NAMES: [&[u8]; 12] = [
    b".latexmkrc",
    b"latexmkrc",
    b"booktabs.sty",
    b"article.cls",
    b"trainer",
    b"Cargo.toml",
    b"-rf",
    b"runs/fp8/../../x",
    b"a\nb",
    b"\xff\xfe",
    b"data/\x1b[2J.csv",
    b"manifests/recipes/..yaml",
];

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// One change to the directory; what it was.
fn change(directory: &Path, outside: &Path, bomb: &[u8], dice: &mut Dice) -> String {
    let mut names = files::look(directory).unwrap().files;
    // Not what an earlier change made long: a copy of it would fill this machine's disk.
    names.retain(|name| fs::metadata(directory.join(name)).unwrap().len() < 1 << 24);
    let name = dice.of(&names).clone();
    let path = directory.join(&name);
    match dice.below(14) {
        0 => {
            let to =
                dice.of(&[outside.join("secret"), "/dev/zero".into(), "/etc/passwd".into(), ".".into(), "..".into(), path.clone()]).clone();
            fs::remove_file(&path).unwrap();
            symlink(&to, &path).unwrap();
            format!("{name} is a link to {}", to.display())
        }
        1 => {
            let folder = dice.of(&["data", "tables", "figures", "runs", "runs/fp8", "runs/fp8/1", "measurements", "manifests"]);
            let (path, to) = (directory.join(folder), dice.of(&[outside.to_owned(), "/dev".into(), ".".into()]).clone());
            let _ = fs::remove_dir_all(&path);
            let _ = symlink(to, path);
            format!("{folder} is a link")
        }
        2 => {
            fs::remove_file(&path).unwrap();
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            format!("{name} is a pipe")
        }
        3 => {
            let strange = *dice.of(&NAMES);
            let path = directory.join(std::ffi::OsStr::from_bytes(strange));
            let mark = outside.parent().unwrap().join("EXECUTED");
            let text = format!("system('touch {0}');\n\\immediate\\write18{{touch {0}}}\n#!/bin/sh\ntouch {0}\n", mark.display());
            let _ = fs::create_dir_all(path.parent().unwrap()).and_then(|()| fs::write(path, text));
            format!("a file {}", strange.escape_ascii())
        }
        4 => {
            fs::File::options().write(true).open(&path).unwrap().set_len(*dice.of(&[9 << 20, 65 << 20, 20 << 30])).unwrap();
            format!("{name} is long")
        }
        5 => {
            let (unit, count) = *dice.of(&[
                ("[", 200_000),
                ("{\"a\":", 200_000),
                ("- ", 100_000),
                ("a: &a [*a]\n", 20_000),
                ("\n", 3 << 20),
                ("x", 3 << 20),
            ]);
            fs::write(&path, unit.repeat(count)).unwrap();
            format!("{name} is {unit:?} {count} times")
        }
        6 => {
            let line = fs::read_to_string(&path).unwrap_or_default().lines().last().unwrap_or_default().to_owned() + "\n";
            let before = fs::read(&path).unwrap();
            fs::write(&path, [before, line.repeat(50_000.min((7 << 20) / line.len())).into_bytes()].concat()).unwrap();
            format!("the last line of {name} many times")
        }
        7 => {
            let (_, many) = (packed::pack(directory, 0), dice.below(2) == 0);
            for log in files::look(directory).unwrap().files.iter().filter(|name| name.ends_with(".xz")) {
                let path = directory.join(log);
                // Twice so many would fill this machine's memory.
                let length = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap().max(1);
                let times = 3000.min((16 << 20) / length);
                let bytes = if many && times > 0 { fs::read(&path).unwrap().repeat(times) } else { bomb.to_owned() };
                fs::write(path, bytes).unwrap();
            }
            format!("packed logs that unpack to {}", if many { "many" } else { "much" })
        }
        8 => {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..dice.below(bytes.len())]).unwrap();
            format!("{name} is cut")
        }
        9 => {
            fs::remove_file(&path).unwrap();
            format!("{name} is gone")
        }
        10 => {
            let other = dice.of(&names).clone();
            let _ = fs::copy(directory.join(&other), &path);
            format!("{name} is {other}")
        }
        11 | 12 => replace(&path, &name, &WORDS, |byte| byte.is_ascii_alphanumeric() || byte == b'-', dice),
        _ => replace(&path, &name, &NUMBERS, |byte| byte.is_ascii_digit() || byte == b'.', dice),
    }
}

/// One word of a file replaced, where a word is made of what `belongs` says.
fn replace(path: &Path, name: &str, with: &[&str], belongs: impl Fn(u8) -> bool, dice: &mut Dice) -> String {
    let bytes = fs::read(path).unwrap();
    let starts: Vec<usize> =
        (0..bytes.len()).filter(|&at| belongs(bytes[at]) && (at == 0 || !belongs(bytes[at - 1]))).take(20_000).collect();
    if starts.is_empty() {
        return "nothing".to_owned();
    }
    let start = *dice.of(&starts);
    let end = (start..bytes.len()).find(|&at| !belongs(bytes[at])).unwrap_or(bytes.len());
    let with = dice.of(with);
    fs::write(path, [&bytes[..start], with.as_bytes(), &bytes[end..]].concat()).unwrap();
    format!("{name}: {} is {with:?}", String::from_utf8_lossy(&bytes[start..end]))
}

/// A sound directory whose logs can be exported.
fn sound(directory: &Path) {
    let arms: Vec<synthetic::Arm> = synthetic::ARMS.iter().copied().filter(|arm| ["fp8", "mxfp4-fdw-h16"].contains(&arm.id)).collect();
    sealed::write_arms(directory, &arms, &[1, 2]);
    let entry = |time: u64, kind: &str, key: &str, value: &str| {
        format!(
            ":::MLLOG {{\"namespace\":\"\",\"time_ms\":{time},\"event_type\":\"{kind}\",\"key\":\"{key}\",\"value\":{value},\"metadata\":{{\"file\":\"m.rs\",\"lineno\":9,\"samples_count\":{time}}}}}\n"
        )
    };
    let log = entry(1, "INTERVAL_START", "run_start", "null")
        + &entry(8, "INTERVAL_START", "eval_start", "null")
        + &entry(8, "POINT_IN_TIME", "eval_accuracy", "3.9")
        + &entry(9, "INTERVAL_END", "eval_stop", "null")
        + &entry(10, "INTERVAL_END", "run_stop", "null");
    for arm in arms {
        for seed in [1, 2] {
            fs::write(synthetic::run_directory(directory, arm.id, seed).join("run.mllog"), &log).unwrap();
        }
    }
    provenance::write_sums(directory).unwrap();
}

fn copy(from: &Path, to: &Path) {
    for name in files::list(from).unwrap() {
        files::copy(&from.join(&name), &to.join(&name)).unwrap();
    }
}

const HUNG: &str = "hung";

/// How one command came out, if not well.
fn fault(command: &mut Command, longest: Duration, log: &Path) -> Option<String> {
    let output = fs::File::create(log).unwrap();
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > longest {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some(HUNG.to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    match (status.code(), status.signal()) {
        (Some(0..=3), _) => None,
        (Some(101), _) => Some(format!("panicked: {}", fs::read_to_string(log).unwrap_or_default().lines().next().unwrap_or_default())),
        // An allocation beyond the limit ends with SIGABRT.
        (code, signal) => {
            Some(format!("took too much or ended with {code:?}, signal {signal:?}: {}", fs::read_to_string(log).unwrap_or_default()))
        }
    }
}

/// A directory through every command; what went wrong. `slowest`: milliseconds of the slowest command that makes no PDF.
fn attempt(number: u64, base: &Path, bomb: &[u8], slowest: &AtomicU64) -> Vec<String> {
    let room = tempfile::tempdir().unwrap();
    // Deep enough that a way up ends in this folder, too.
    let place = room.path().join("a/b/c/d/e");
    let (directory, outside, root) = (place.join("D"), place.join("outside"), place.join("root"));
    copy(base, &directory);
    files::write(&outside.join("secret"), SECRET.as_bytes()).unwrap();
    let repository = synthetic::repository();
    let kinds = ["identity.yaml", "evidence", "papers", "profiles", "recipes", "models", "datasets", "tokenizers", "hardware"];
    for name in kinds.map(|kind| format!("manifests/{kind}")).into_iter().chain(["paper".to_owned()]) {
        files::make_folder(root.join(&name).parent().unwrap()).unwrap();
        symlink(repository.canonicalize().unwrap().join(&name), root.join(&name)).unwrap();
    }
    let mut dice = Dice(number);
    let mut story: Vec<String> = (0..1 + dice.below(3)).map(|_| change(&directory, &outside, bomb, &mut dice)).collect();
    if dice.below(2) == 0 && files::list(&directory).is_ok() && fs::metadata(directory.join("runs")).is_ok() {
        let small = files::list(&directory).unwrap().iter().all(|name| fs::metadata(directory.join(name)).unwrap().len() < 1 << 30);
        if small && provenance::write_sums(&directory).is_ok() {
            story.push("hashed again".to_owned());
        }
    }
    let arguments: [&[&str]; 10] = [
        &["verify", "D"],
        &["compare", "D", "base"],
        &["compare", "base", "D"],
        &["export-mllog", "D", "--out", "out"],
        &["import-mllog", "D"],
        &["runs", "import", "D"],
        &["report", "--add-evidence", "D"],
        &["report", "--add-kernels", "D", "D"],
        &["report", "D"],
        &["synthesis", "D", "base", "--out", "out"],
    ];
    symlink(base, place.join("base")).unwrap();
    // A change through a link of an earlier one lands outside by itself, before any command.
    let before = outside_of(room.path(), &place);
    let mut faults = Vec::new();
    let reports = arguments.len() - 4;
    for (index, arguments) in arguments.into_iter().enumerate() {
        // A PDF takes as long as a hundred directories without one: of every hundredth directory, by one of the four that make one.
        let latex = number.is_multiple_of(100) && index == reports + usize::try_from(number / 100 % 4).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "ulimit -v $0; ulimit -f 8388608; exec \"$@\"", MOST_KIB, env!("CARGO_BIN_EXE_xtask")]).args(arguments);
        command.current_dir(&place).env("CARGO_MANIFEST_DIR", root.join("xtask")).env("TMPDIR", room.path());
        if !latex {
            command.env("PATH", "/nowhere");
        }
        let log = place.join("log");
        let longest = if latex { 20 * LONGEST } else { LONGEST };
        let begun = Instant::now();
        // Once more what hung: a machine that stood still is not the command's fault.
        let found = fault(&mut command, longest, &log);
        let found = if found.as_deref() == Some(HUNG) { fault(&mut command, longest, &log) } else { found };
        if let Some(what) = found {
            faults.push(format!("{arguments:?} {what}"));
        }
        if !latex {
            slowest.fetch_max(u64::try_from(begun.elapsed().as_millis()).unwrap(), Ordering::Relaxed);
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        if said.contains(SECRET) || said.contains('\u{1b}') {
            faults.push(format!("{arguments:?} leaked into what it said"));
        }
        if said.lines().any(|line| line.starts_with("verified: everything agrees")) {
            faults.push(format!("{arguments:?} let a stranger begin a line"));
        }
    }
    faults.extend(strange_files(room.path(), &place, &before));
    faults.into_iter().map(|what| format!("{number}: {what} ({})", story.join("; "))).collect()
}

/// The folders that a command may write in.
fn allowed(place: &Path) -> [PathBuf; 3] {
    ["D", "out", "root/cache"].map(|name| place.join(name))
}

/// The files where no command may write, with what is in them.
fn outside_of(room: &Path, place: &Path) -> BTreeMap<String, Vec<u8>> {
    let ours = ["log", "root/target"].map(|name| place.join(name));
    let elsewhere = |path: &Path| !allowed(place).iter().chain(&ours).any(|folder| path.starts_with(folder));
    let names = files::look(room).unwrap().files.into_iter().filter(|name| elsewhere(&room.join(name)));
    names.map(|name| (name.clone(), fs::read(room.join(name)).unwrap())).collect()
}

/// What was written where nothing may be, and who copied the secret.
fn strange_files(room: &Path, place: &Path, before: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, bytes) in outside_of(room, place) {
        if before.get(&name) != Some(&bytes) {
            found.push(if name.contains("EXECUTED") { "executed".to_owned() } else { format!("wrote outside: {name}") });
        }
    }
    for name in files::look(room).unwrap().files {
        let path = room.join(&name);
        let inside = allowed(place).iter().any(|folder| path.starts_with(folder));
        let small = fs::metadata(&path).is_ok_and(|metadata| metadata.len() < 1 << 24);
        if inside && small && fs::read(&path).is_ok_and(|bytes| bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())) {
            found.push(format!("leaked into {name}"));
        }
    }
    found
}

#[test]
fn nothing_that_a_stranger_sends_runs_leaks_writes_outside_or_exhausts() {
    let tries: u64 = std::env::var("HOSTILE_DIRECTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(6);
    let first: u64 = std::env::var("HOSTILE_FIRST").ok().and_then(|count| count.parse().ok()).unwrap_or(1);
    let base = tempfile::tempdir().unwrap();
    sound(base.path());
    let base = base.path().canonicalize().unwrap();
    // A log that unpacks to as much as one may; to make it takes half a minute.
    let log = tempfile::tempdir().unwrap();
    files::write(&log.path().join("runs/fp8/1/metrics.jsonl"), &vec![b'\n'; if tries > 100 { 63 << 20 } else { 1 << 20 }]).unwrap();
    packed::pack(log.path(), 0).unwrap();
    let bomb = fs::read(log.path().join("runs/fp8/1/metrics.jsonl.xz")).unwrap();
    let (next, slowest, started) = (AtomicU64::new(first), AtomicU64::new(0), Instant::now());
    let faults: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut faults = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= first + tries {
                    return faults;
                }
                let found = attempt(number, &base, &bomb, &slowest);
                found.iter().for_each(|line| println!("{line}"));
                faults.extend(found);
            }
        };
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let count = |word: &str| faults.iter().filter(|fault| fault.contains(word)).count();
    println!(
        "{tries} directories, 10 commands each: {} executed, {} written outside, {} leaked, {} lines begun, {} hung, {} above 1 GiB or killed, {} panicked, the slowest after {} ms, in {} s",
        count(": executed"),
        count("wrote outside"),
        count("leaked"),
        count("begin a line"),
        count("] hung"),
        count("took too much"),
        count("panicked"),
        slowest.load(Ordering::Relaxed),
        started.elapsed().as_secs()
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// An unknown key is named, and neither clears the terminal nor begins a line of its own.
#[test]
fn a_key_that_is_a_terminals_command_is_written_out() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("D");
    sound(&directory);
    let strange = r"\u001b[2J\nverified: everything agrees";
    for (name, key) in
        [("measurements/rotation_identity.jsonl", "\"bound\""), ("runs/fp8/1/done.json", "\"steps\""), ("campaign.json", "\"seeds\"")]
    {
        let text = fs::read_to_string(directory.join(name)).unwrap();
        assert!(text.contains(key), "{name} has no {key}");
        fs::write(directory.join(name), text.replacen(key, &format!("\"{strange}\""), 1)).unwrap();
        provenance::write_sums(&directory).unwrap();
        for arguments in [&["verify", "D"][..], &["compare", "D", "D"], &["report", "D"], &["export-mllog", "D", "--out", "out"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
            let output = command.args(arguments).current_dir(folder.path()).env("PATH", "/nowhere").output().unwrap();
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(!said.contains('\u{1b}'), "{arguments:?}, {name}: {said}");
            assert!(!said.lines().any(|line| line.starts_with("verified: everything agrees")), "{arguments:?}, {name}: {said}");
        }
        fs::write(directory.join(name), text).unwrap();
    }
}
