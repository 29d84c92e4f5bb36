//! MLPerf logs, written by hand here: what the importer reads from them, and what it says of each kind of bad input.
//!
//! A sound log has evaluations of 64 samples in batches of 4 (16 steps a block of 8 s, an evaluation of 1 s) and reaches 3.3 at 256.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use study::mllog::table::{self, Basis};
use study::mllog::{Import, LoggedRun, Options, Status, import};
use tempfile::TempDir;

const START: i64 = 1_700_000_000_000;

fn line(time: i64, kind: &str, key: &str, value: &str, metadata: &str) -> String {
    let more = if metadata.is_empty() { String::new() } else { format!(", {metadata}") };
    format!(
        ":::MLLOG {{\"namespace\": \"\", \"time_ms\": {}, \"event_type\": \"{kind}\", \"key\": \"{key}\", \"value\": {value}, \"metadata\": {{\"file\": \"t.py\", \"lineno\": 1{more}}}}}\n",
        START + time
    )
}

fn point(time: i64, key: &str, value: &str) -> String {
    line(time, "POINT_IN_TIME", key, value, "")
}

fn start(time: i64, key: &str, samples: u64) -> String {
    line(time, "INTERVAL_START", key, "null", &format!("\"samples_count\": {samples}"))
}

fn end(time: i64, key: &str, samples: u64) -> String {
    line(time, "INTERVAL_END", key, "null", &format!("\"samples_count\": {samples}"))
}

fn header(seed: u64) -> String {
    let mut text = point(0, "cache_clear", "true");
    text += &line(0, "INTERVAL_START", "init_start", "null", "");
    for (key, value) in [
        ("submission_benchmark", "\"llama31_8b\""),
        ("submission_org", "\"Somebody\""),
        ("submission_division", "\"closed\""),
        ("submission_platform", "\"one box\""),
        ("global_batch_size", "4"),
        ("max_sequence_length", "8192"),
        ("opt_base_learning_rate", "0.0008"),
        ("opt_learning_rate_warmup_steps", "64"),
        ("lowest_numerical_precision_in_linear", "\"mxfp4\""),
    ] {
        text += &point(0, key, value);
    }
    text += &point(0, "seed", &seed.to_string());
    text += &line(500, "INTERVAL_END", "init_stop", "null", "");
    text + &line(1000, "INTERVAL_START", "run_start", "null", "")
}

/// A block of so many milliseconds, then an evaluation of a second.
fn block(from: i64, length: i64, begin: u64, samples: u64, loss: &str) -> String {
    let (end_of_block, end_of_all) = (from + length, from + length + 1000);
    start(from, "block_start", begin)
        + &end(end_of_block, "block_stop", samples)
        + &start(end_of_block, "eval_start", samples)
        + &line(end_of_all - 10, "POINT_IN_TIME", "eval_accuracy", loss, &format!("\"samples_count\": {samples}"))
        + &end(end_of_all, "eval_stop", samples)
}

/// Block and evaluation number `index`, counted from 1, ending `9 * index` seconds after run_start.
fn evaluation(index: u64, loss: &str) -> String {
    block(1000 + 9000 * (index as i64 - 1), 8000, 64 * (index - 1), 64 * index, loss)
}

fn run_stop(time: i64, samples: u64) -> String {
    line(time, "INTERVAL_END", "run_stop", "null", &format!("\"samples_count\": {samples}, \"status\": \"success\""))
}

fn stop(samples: u64, status: &str) -> String {
    let time = 1000 + 9000 * (samples as i64 / 64) + 10;
    run_stop(time, samples).replace("success", status) + &point(time, "train_samples", &samples.to_string())
}

fn losses(values: &[&str]) -> String {
    values.iter().enumerate().map(|(index, loss)| evaluation(index as u64 + 1, loss)).collect()
}

fn sound(seed: u64) -> String {
    header(seed) + &losses(&["5.0", "4.0", "3.5", "3.25"]) + &stop(256, "success")
}

fn read(text: impl AsRef<[u8]>) -> (Import, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.txt");
    std::fs::write(&path, text).unwrap();
    let import = import(&[path], &Options::default());
    let messages = messages(&import, folder.path());
    (import, messages)
}

/// The findings without the folder, which has another name each time.
fn messages(import: &Import, folder: &Path) -> Vec<String> {
    let prefix = format!("{}/", folder.display());
    import.findings.iter().map(|finding| finding.to_string().replace(&prefix, "")).collect()
}

fn findings(text: &str) -> Vec<String> {
    read(text).1
}

#[test]
fn a_sound_log_is_read_whole() {
    let (import, messages) = read(sound(7));
    assert_eq!(messages, Vec::<String>::new());
    let run: &LoggedRun = &import.runs[0];
    assert_eq!((run.seed, run.status, run.line), (Some(7), Status::Success, 1));
    assert_eq!((run.benchmark.as_str(), run.submitter.as_str(), run.platform.as_str()), ("llama31_8b", "Somebody", "one box"));
    assert_eq!((run.precision.as_deref(), run.setting("global_batch_size")), (Some("mxfp4"), Some(4.0)));
    assert_eq!((run.run_start_ms, run.run_stop_ms), (Some(START + 1000), Some(START + 37_010)));
    assert_eq!(run.samples_at_stop, Some(256));
    let seen: Vec<_> = run.evaluations.iter().map(|e| (e.samples, e.loss, e.time_ms, e.train_ms, e.evaluation_ms)).collect();
    assert_eq!(
        seen,
        [
            (64, 5.0, 8990, Some(8000), Some(1000)),
            (128, 4.0, 17_990, Some(8000), Some(1000)),
            (192, 3.5, 26_990, Some(8000), Some(1000)),
            (256, 3.25, 35_990, Some(8000), Some(1000)),
        ]
    );
    assert_eq!(run.reached(3.3).unwrap().samples, 256);
}

#[test]
fn prefixes_line_ends_and_other_text_change_nothing() {
    let (plain, _) = read(sound(7));
    let windows = sound(7).replace('\n', "\r\n");
    let prefixed: String = sound(7).lines().map(|line| format!("[1,0]<stdout>: {line} | step 3\nloss 4.2 after a while\n")).collect();
    let glued = sound(7).replace("}}\n", "}}");
    for text in [windows, prefixed, glued] {
        let (import, messages) = read(&text);
        assert_eq!(messages, Vec::<String>::new());
        assert_eq!(import.runs[0].evaluations, plain.runs[0].evaluations);
        assert_eq!(import.runs[0].settings, plain.runs[0].settings);
    }
}

#[test]
fn every_rank_may_repeat_the_header() {
    let ranks: String = (0..8).map(|rank| line(rank, "INTERVAL_START", "init_start", "null", "")).collect();
    let late = point(1200, "cache_clear", "true");
    let text = ranks + &header(7) + &late + &losses(&["3.2"]) + &stop(64, "success");
    let (import, messages) = read(&text);
    assert_eq!((import.runs.len(), messages), (1, vec![]));
}

#[test]
fn several_runs_in_one_file_are_several_runs() {
    let (import, messages) = read(sound(7) + &sound(8));
    assert_eq!(messages, Vec::<String>::new(), "each run has its own clock");
    let places: Vec<(Option<u64>, u64)> = import.runs.iter().map(|run| (run.seed, run.line)).collect();
    assert_eq!(places, [(Some(7), 1), (Some(8), 37)]);
}

#[test]
fn amds_slips_are_noted_and_read_through() {
    let shifted = sound(7).replace(
        "\"eval_accuracy\", \"value\": 5.0, \"metadata\": {\"file\": \"t.py\", \"lineno\": 1, \"samples_count\": 64}",
        "\"eval_accuracy\", \"value\": 5.0, \"metadata\": {\"file\": \"t.py\", \"lineno\": 1, \"samples_count\": 60}",
    );
    let text = shifted
        .replace("lowest_numerical_precision_in_linear", "lowest_numerical_precision_linear")
        .replace("\"INTERVAL_START\", \"key\": \"init_start\"", "\"POINT_IN_TIME\", \"key\": \"init_start\"")
        + &point(40_000, "overall_throughput", "35.61");
    let (import, messages) = read(&text);
    assert_eq!(
        messages,
        [
            "log.txt:2: note: init_start is logged as POINT_IN_TIME, the rules say INTERVAL_START",
            "log.txt:11: note: key `lowest_numerical_precision_linear` is not in the rules; they have `lowest_numerical_precision_in_linear`, and their checker passes an unknown key without a word, so this value went unchecked",
            "log.txt:18: note: eval_accuracy says 60 samples where its eval_start says 64; the latter is used (1 evaluation)",
            "log.txt:37: note: key `overall_throughput` is not in the rules",
        ]
    );
    assert_eq!(import.runs[0].precision.as_deref(), Some("mxfp4"));
    assert_eq!(import.runs[0].evaluations[0].samples, 64);
    assert_eq!(import.problems(), 0);
}

#[test]
fn a_truncated_log_says_where_it_ends() {
    let text = header(7) + &losses(&["5.0", "4.0"]);
    let cut = &text[..text.len() - 40];
    assert_eq!(
        findings(cut),
        [
            "log.txt:23: no run_stop: the log ends after 2 evaluations, at 128 samples and loss 4.0000",
            "log.txt:24: the line is cut off inside its JSON object",
        ]
    );
    assert_eq!(read(cut).0.runs[0].status, Status::Unfinished);
    assert_eq!(findings(&header(7)), ["log.txt:14: ends without an evaluation"]);
    assert_eq!(
        findings(&header(7).lines().take(12).map(|line| format!("{line}\n")).collect::<String>()),
        ["log.txt:1: entries of a run that never starts: no run_start follows"]
    );
}

#[test]
fn a_log_that_goes_on_with_another_run_lacks_its_stop() {
    let text = header(7) + &losses(&["5.0"]) + &sound(8);
    let (import, messages) = read(&text);
    assert_eq!(messages, ["log.txt:19: no run_stop: the log ends after 1 evaluation, at 64 samples and loss 5.0000"]);
    assert_eq!(import.runs.iter().map(|run| run.status).collect::<Vec<_>>(), [Status::Unfinished, Status::Success]);
}

#[test]
fn what_is_no_log_is_named_and_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    save("a.txt", sound(7).as_bytes());
    save("b.gz", &[0x1f, 0x8b, 8, 0, 0]);
    save("c.bin", &[1, 2, 0, 3]);
    save("d.txt", b"");
    save("e.txt", b"epoch 1 loss 3\n");
    save("f.txt", &vec![b'x'; 3 << 20]);
    save("g.zip", b"PK\x03\x04rest");
    save("h.txt", &[sound(9).as_bytes(), &[0xff, 0xfe, b'\n']].concat());
    let all = import(&[folder.path().to_owned(), folder.path().join("c.bin"), folder.path().join("absent")], &Options::default());
    assert_eq!(
        messages(&all, folder.path()),
        [
            "absent: cannot be read: No such file or directory (os error 2)",
            "b.gz: is compressed with gzip; unpack it first (gunzip)",
            "c.bin: is not text",
            "c.bin: note: is not text",
            "d.txt: note: is empty",
            "e.txt: note: holds no line with :::MLLOG",
            "f.txt: note: has a line of more than a megabyte: no log",
            "g.zip: is an archive; unpack it first",
        ]
    );
    assert_eq!(all.runs.iter().map(|run| run.seed).collect::<Vec<_>>(), [Some(7), Some(9)]);
    let text = all.to_string();
    assert!(text.ends_with("10 files read: 2 runs, 2 of them reached the target 3.3; 4 problems, 4 notes\n"), "{text}");
}

#[test]
fn logs_of_other_benchmarks_are_left_out() {
    let (import, messages) = read(sound(7).replace("\"llama31_8b\"", "\"llama2_70b_lora\"") + &sound(8));
    assert_eq!(messages, ["log.txt:1: a log of the benchmark `llama2_70b_lora`, not of llama31_8b; not imported"]);
    assert_eq!(import.runs.len(), 1);
    let (scaled, messages) = read(sound(7).replace("\"llama31_8b\"", "\"llama31_8b_scaled\""));
    assert_eq!((scaled.runs.len(), messages), (1, vec![]));
    let unnamed = sound(7).replace("submission_benchmark", "submission_entry");
    assert_eq!(findings(&unnamed), ["log.txt:1: note: names no benchmark (submission_benchmark)"]);
}

#[test]
fn a_run_that_misses_the_target_is_reported_as_such() {
    let text = header(7) + &losses(&["5.0", "4.0", "3.5"]) + &stop(192, "aborted");
    let (import, messages) = read(&text);
    assert_eq!(messages, ["log.txt:31: note: did not reach the target 3.3 in 192 samples (lowest 3.5000); it has no place in a mean"]);
    assert_eq!((import.runs[0].status, import.runs[0].reached(3.3)), (Status::Aborted, None));
    assert!(import.to_string().contains("3 evaluations, target 3.3 not reached, 0.45 min, mxfp4, aborted"), "{import}");
    let claimed = header(7) + &losses(&["5.0", "4.0"]) + &stop(128, "success");
    assert_eq!(findings(&claimed), ["log.txt:26: run_stop says success, but no evaluation is at or below the target 3.3 (lowest 4.0000)"]);
}

#[test]
fn jumps_of_the_clock_are_found_both_ways() {
    let back = sound(7).replace(&(START + 1000 + 8000).to_string(), &(START - 50_000).to_string());
    assert_eq!(
        findings(&back),
        ["log.txt:16: the clock goes back 51.0 s between line 15 and this one"],
        "the block before the jump has no length, and nothing else is wrong"
    );
    assert_eq!(read(&back).0.runs[0].evaluations[0].train_ms, None);
    let forward = header(7) + &losses(&["5.0", "4.0", "3.5"]) + &block(28_000, 100_000, 192, 256, "3.2") + &run_stop(129_010, 256);
    assert_eq!(
        findings(&forward),
        [
            "log.txt:1: the block before 256 samples took 100.0 s, at the median block's speed it is 8.0 s: a pause or a jump of the clock; times of this run are not to be trusted"
        ]
    );
}

/// NVIDIA's code writes into both marks of a block how many samples it has, not how many there were before.
#[test]
fn blocks_that_count_their_own_samples_have_a_length() {
    let own = |line: &str| match line.split_once("\"samples_count\": ") {
        Some((before, _)) if line.contains("\"block_") => format!("{before}\"samples_count\": 64}}}}\n"),
        _ => format!("{line}\n"),
    };
    let (import, messages) = read(sound(7).lines().map(own).collect::<String>());
    assert_eq!(messages, Vec::<String>::new());
    assert_eq!(import.runs[0].evaluations, read(sound(7)).0.runs[0].evaluations);
}

#[test]
fn a_block_with_an_evaluation_in_it_has_no_length_and_says_so() {
    // The first block ends after its evaluation instead of before.
    let late = evaluation(1, "5.0").replace(&end(9000, "block_stop", 64), "") + &end(10_000, "block_stop", 64);
    let (import, messages) = read(header(7) + &late + &evaluation(2, "4.0") + &evaluation(3, "3.2") + &stop(192, "success"));
    let note = "log.txt:15: note: an evaluation lies in the block that begins here: its length is no time of training (1 block)";
    assert_eq!(messages, [note]);
    let lengths: Vec<Option<i64>> = import.runs[0].evaluations.iter().map(|evaluation| evaluation.train_ms).collect();
    assert_eq!(lengths, [None, Some(8000), Some(8000)]);
}

/// LoRA of Llama 2 70B trains four times as long before its first evaluation as between others.
#[test]
fn blocks_of_other_lengths_are_no_jumps_of_the_clock() {
    let log = |last: i64| {
        let blocks = block(1000, 32_000, 0, 256, "5.0") + &block(34_000, 8000, 256, 320, "4.0") + &block(43_000, 8000, 320, 384, "3.5");
        header(7) + &blocks + &block(52_000, last, 384, 448, "3.2") + &run_stop(60_000 + last, 448)
    };
    assert_eq!(findings(&log(8000)), Vec::<String>::new());
    let jump = "log.txt:1: the block before 448 samples took 30.0 s, at the median block's speed it is 8.0 s: a pause or a jump of the clock; times of this run are not to be trusted";
    assert_eq!(findings(&log(30_000)), [jump], "shorter than the first block, and too long for what it holds");
}

#[test]
fn a_logs_own_target_is_held_against_the_one_asked_for() {
    let with = |target: &str| sound(7).replace("submission_org", "target_accuracy").replace("\"Somebody\"", target);
    assert_eq!(findings(&with("3.3")), Vec::<String>::new());
    assert_eq!(findings(&with("0.925")), ["log.txt:4: note: target_accuracy is 0.925, this run is held against 3.3 (--target)"]);
}

#[test]
fn impossible_orders_are_found() {
    let early = header(7).replace("init_stop", "init_start");
    assert_eq!(
        findings(&(early + &losses(&["3.2"]) + &stop(64, "success"))),
        ["log.txt:14: run_start before init_stop: initialisation would count as training"]
    );
    let lonely = header(7) + &end(2000, "block_stop", 64) + &end(2000, "eval_stop", 64) + &losses(&["3.2"]) + &stop(64, "success");
    assert_eq!(findings(&lonely), ["log.txt:15: block_stop without block_start", "log.txt:16: eval_stop without eval_start"]);
    let nested =
        header(7) + &start(1000, "block_start", 0) + &losses(&["3.2"]) + &start(9000, "eval_start", 64) + &start(9000, "eval_start", 64);
    assert_eq!(
        findings(&(nested + &stop(64, "success"))),
        [
            "log.txt:16: block_start inside the block that line 15 opened",
            "log.txt:22: eval_start inside the evaluation that line 21 opened"
        ]
    );
    let after = sound(7) + &line(40_000, "POINT_IN_TIME", "eval_accuracy", "3.1", "\"samples_count\": 320");
    assert_eq!(findings(&after), ["log.txt:37: eval_accuracy after run_stop (line 35); ignored"]);
    let before =
        point(0, "seed", "7") + &point(0, "submission_benchmark", "\"llama31_8b\"") + &start(1, "block_start", 0) + &stop(64, "success");
    assert_eq!(
        findings(&before),
        [
            "log.txt:3: block_start before run_start; ignored",
            "log.txt:4: run_stop without run_start",
            "log.txt:5: ends without an evaluation"
        ]
    );
    let mute = header(7) + &start(2000, "eval_start", 64) + &end(2000, "eval_stop", 64) + &losses(&["3.2"]) + &stop(64, "success");
    assert_eq!(findings(&mute), ["log.txt:16: the evaluation that line 15 opened logged no eval_accuracy"]);
}

#[test]
fn samples_must_rise_and_losses_be_numbers() {
    let at =
        |time: i64, loss: &str, samples: u64| line(time, "POINT_IN_TIME", "eval_accuracy", loss, &format!("\"samples_count\": {samples}"));
    let text = header(7)
        + &at(2000, "5.0", 128)
        + &at(2001, "5.0", 128)
        + &at(2002, "4.9", 128)
        + &at(3000, "4.0", 64)
        + &at(4000, "NaN", 192)
        + &at(5000, "\"3.4\"", 256)
        + &line(5500, "POINT_IN_TIME", "eval_accuracy", "3.4", "")
        + &at(6000, "3.2", 320)
        + &stop(320, "success");
    let (import, messages) = read(&text);
    assert_eq!(
        messages,
        [
            "log.txt:17: a second loss at 128 samples, 4.9 after 5; the first is kept",
            "log.txt:18: samples go back from 128 to 64; this evaluation is ignored",
            "log.txt:19: eval_accuracy at 192 samples is not a number (null); ignored",
            "log.txt:20: eval_accuracy at 256 samples is not a number (3.4); ignored",
            "log.txt:21: eval_accuracy without samples_count, and no eval_start says it; ignored",
        ]
    );
    assert_eq!(import.runs[0].evaluations.iter().map(|e| e.samples).collect::<Vec<_>>(), [128, 320]);
}

#[test]
fn settings_must_agree_and_seeds_be_there() {
    let text = header(7) + &point(1500, "global_batch_size", "8") + &losses(&["3.2"]) + &stop(64, "success");
    assert_eq!(findings(&text), ["log.txt:15: global_batch_size is 8, but 4 in line 7"]);
    let none = sound(7).lines().filter(|line| !line.contains("\"seed\"")).map(|line| format!("{line}\n")).collect::<String>();
    assert_eq!(findings(&none), ["log.txt:1: logs no seed"]);
    let odd = sound(7).replace("\"mxfp4\"", "\"mxfp6\"");
    assert_eq!(
        findings(&odd),
        [
            "log.txt:11: the precision `mxfp6` is none of the rules' words (fp64, fp32, tf32, fp16, fp8, nvfp4, mxfp4, bfloat16, Graphcore FLOAT 16.16, int8, uint8, int4, uint4)"
        ]
    );
    let half = sound(7).replace("\"key\": \"seed\", \"value\": 7", "\"key\": \"seed\", \"value\": 7.5");
    assert_eq!(findings(&half), ["log.txt:1: logs no seed", "log.txt:12: seed is 7.5, not a whole number"]);
}

#[test]
fn equal_seeds_and_equal_files_are_found() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("a.txt", sound(7)), ("b.txt", sound(7)), ("c.txt", sound(7).replace("3.25", "3.26"))] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let all = import(&[folder.path().to_owned()], &Options::default());
    assert_eq!(
        messages(&all, folder.path()),
        [
            "b.txt:1: is byte for byte the file a.txt; one of the two must go",
            "c.txt:1: seed 7 again, after a.txt:1: two runs with one seed are not independent",
        ]
    );
}

fn tables() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("result_0.txt");
    std::fs::write(&log, sound(7)).unwrap();
    let out = folder.path().join("group");
    table::write(&out, &import(&[log], &Options::default()).records("SOMEBODY/results/box/llama31_8b/")).unwrap();
    (folder, out)
}

#[test]
fn tables_read_back_as_they_were_written() {
    let (folder, out) = tables();
    let records = table::read(&out).unwrap();
    let log = import(&[folder.path().join("result_0.txt")], &Options::default());
    assert_eq!((records.len(), records[0].number, records[0].basis), (1, 0, Basis::Log));
    assert_eq!(records[0].run.path, "SOMEBODY/results/box/llama31_8b/result_0.txt");
    assert_eq!(records[0].run.evaluations, log.runs[0].evaluations);
    assert_eq!(records[0].run.sha256, log.runs[0].sha256);
    assert_eq!(records[0].run.setting("opt_base_learning_rate"), Some(0.0008));
    for again in table::tables(&records) {
        assert_eq!(again.csv().unwrap(), std::fs::read_to_string(out.join(again.name)).unwrap());
        assert!(!again.csv().unwrap().contains(&folder.path().display().to_string()), "no path of this machine is written");
    }
}

#[test]
fn bad_tables_are_named_with_file_line_and_column() {
    let cases = [
        (
            table::RUNS,
            "mxfp4-logged-runs/1",
            "mxfp4-logged-runs/2",
            "runs.csv:2: schema `mxfp4-logged-runs/2` is not `mxfp4-logged-runs/1`",
        ),
        (table::RUNS, "basis", "base", "runs.csv:1: column 3 is `base`, expected `basis`"),
        (table::RUNS, ",log,", ",guess,", "runs.csv:2: column basis: `guess` is neither log nor table"),
        (table::RUNS, ",success,", ",fine,", "runs.csv:2: column status: `fine` is not success, aborted or unfinished"),
        (table::RUNS, ",log,7,", ",log,seven,", "runs.csv:2: column seed: `seven` is not such a number"),
        (table::EVALUATIONS, "0,128,", "1,128,", "evaluations.csv:3: run 1 is not in runs.csv"),
        (table::EVALUATIONS, "0,128,", "0,64,", "evaluations.csv:3: samples of run 0 do not rise"),
        (table::EVALUATIONS, "0,128,4,", "0,128,inf,", "evaluations.csv:3: column loss: inf is not a finite number"),
        (table::EVALUATIONS, "0,128,4,", "0,128,,", "evaluations.csv:3: column loss is empty"),
        (table::EVALUATIONS, ",evaluation_ms", "", "evaluations.csv:1: column 6 is nothing, expected `evaluation_ms`"),
    ];
    for (file, old, new, message) in cases {
        let (_folder, out) = tables();
        let text = std::fs::read_to_string(out.join(file)).unwrap();
        assert!(text.contains(old), "{file} no longer contains `{old}`: the case tests nothing");
        std::fs::write(out.join(file), text.replacen(old, new, 1)).unwrap();
        let error = table::read(&out).unwrap_err().to_string();
        assert_eq!(error.replace(&format!("{}/", out.display()), ""), message);
    }
}

proptest! {
    /// Whatever stands in a file, reading it ends with runs and findings, never with a panic.
    #[test]
    fn no_bytes_stop_the_importer(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut text = b":::MLLOG ".to_vec();
        text.extend(&bytes);
        read(text);
    }

    /// Nor do lines of a sound log in any order, with any of them missing or cut.
    #[test]
    fn no_order_of_lines_stops_the_importer(order in proptest::collection::vec((0usize..35, 1usize..400), 0..60)) {
        let whole = sound(7);
        let lines: Vec<&str> = whole.lines().collect();
        let text: String = order.iter().map(|(index, length)| format!("{}\n", lines[*index].chars().take(*length).collect::<String>())).collect();
        let (import, _) = read(text);
        for run in &import.runs {
            prop_assert!(run.evaluations.windows(2).all(|pair| pair[0].samples < pair[1].samples));
        }
    }
}
