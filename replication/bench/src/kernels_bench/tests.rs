//! From synthetic measurements, whose ratios are known, to tables, pages and directories; and what broken input becomes.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use study::environment::Environment;
use study::kernels::{
    Benchmark, Compared, DOCUMENT, Memory, Missing, Peer, ProfileRow, Samples, comparisons, is_result, newest, profile_rows,
};
use study::provenance::{self, Renderer};
use study::verify::verify;
use study::{files, render};

use super::samples::{parse, parse_peers};
use super::*;

pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Fifteen rounds around `seconds`: every third a little slower, one disturbed by a neighbour in all members of the round.
fn turns(group: &str, name: &str, threads: usize, operations: u64, seconds: f64) -> Samples {
    let samples = (0..15)
        .map(|round| {
            seconds
                * if round == 7 {
                    9.0
                } else if round % 3 == 0 {
                    1.02
                } else {
                    1.0
                }
        })
        .collect();
    let unit = if name.starts_with("step/") { "tokens" } else { "operations" };
    Samples { group: group.to_owned(), name: name.to_owned(), threads, operations, unit: unit.to_owned(), samples }
}

fn peer_of(name: &str, operations: u64, seconds: f64) -> Peer {
    let samples = vec![seconds; 7];
    Peer {
        peer: "pytorch 9.9".to_owned(),
        name: name.to_owned(),
        threads: 1,
        operations,
        unit: "operations".to_owned(),
        samples,
        note: String::new(),
        in_turns: false,
        peak_bytes: None,
    }
}

fn benchmark(name: &str, operations: u64, bytes: u64, seconds: f64, peak: Option<(&str, f64)>) -> Benchmark {
    let peak_share = peak.map(|(_, share)| share);
    let interval = [0.99 * seconds, 1.01 * seconds];
    Benchmark {
        name: name.to_owned(),
        threads: 1,
        operations,
        bytes,
        seconds,
        interval,
        peak: peak.map(|(name, _)| name.to_owned()),
        peak_share,
    }
}

/// MXFP4 at 600 Gop/s of a peak of 800 when packed, 500 with preparing; F32 at 150; a peer at 160; FP8 steps of 300 ms, MXFP4 of 200.
pub(super) fn synthetic() -> Document {
    let shape = "2048x1024x1024";
    let operations = 2 * 2048 * 1024 * 1024;
    let at = |name: &str, giga: f64| turns("gemm 1t", name, 1, operations, operations as f64 / giga / 1e9);
    let row = |arm: &str, kernel: &str, work: u64, seconds: f64, share: f64| ProfileRow {
        size: "A".to_owned(),
        arm: arm.to_owned(),
        kernel: kernel.to_owned(),
        calls: u64::from(work > 0) * 48,
        work,
        seconds,
        share,
    };
    let mut document = Document {
        schema: SCHEMA.to_owned(),
        date: "2026-05-09".to_owned(),
        machine: "synthetic".to_owned(),
        processor: "A <processor> & more".to_owned(),
        device: "cpu".to_owned(),
        instruction_set: "avx512".to_owned(),
        commit: "0123456789abcdef0123456789abcdef01234567".to_owned(),
        dirty: false,
        trainer_code: "c0de".to_owned(),
        depth: Depth::Default,
        only: None,
        threads: vec![1],
        rounds: 15,
        peers_asked: true,
        measuring_seconds: 123.0,
        benchmarks: vec![
            benchmark("peak/integer-dot", 80_000_000, 0, 1e-4, None),
            benchmark(&format!("gemm/mxfp4/{shape}"), operations, 12_000_000, 7.2e-3, Some(("peak/integer-dot", 0.745))),
            benchmark("quantise/mxfp4-nearest-even-none/4096x1024", 4_194_304, 22_000_000, 1e-3, Some(("peak/read-memory", 0.9))),
        ],
        samples: vec![
            at("peak/integer-dot", 800.0),
            at("peak/f32-fma", 180.0),
            at(&format!("gemm/mxfp4/{shape}"), 600.0),
            at(&format!("gemm/mxfp4+prepare/{shape}"), 500.0),
            at(&format!("gemm/mxfp4-h16+prepare/{shape}"), 486.0),
            at(&format!("gemm/mxfp4-h32+prepare/{shape}"), 450.0),
            at(&format!("gemm/f32/{shape}"), 150.0),
            at(&format!("gemm/fp8/{shape}"), 144.0),
            turns("step/A", "step/A/fp8", 1, 4096, 0.3),
            turns("step/A", "step/A/mxfp4-fdw-h16", 1, 4096, 0.24),
            turns("step/A", "step/A/mxfp4-fdw-h16", 2, 4096, 0.125),
        ],
        peers: vec![peer_of(&format!("gemm/f32/{shape}"), operations, operations as f64 / 160e9)],
        missing: vec![Missing {
            peer: "ggml".to_owned(),
            name: format!("gemm/mxfp4/{shape}"),
            reason: "it is not built".to_owned(),
            install: "python3 cpu_peers.py --prepare".to_owned(),
        }],
        peer_environment: None,
        profile: vec![
            row("mxfp4-fdw-h16", "attention-backward", 0, 0.12, 0.5),
            row("mxfp4-fdw-h16", "gemm-mxfp4", 24_000_000_000, 0.06, 0.25),
            row("mxfp4-fdw-h16", "everything else", 0, 0.06, 0.25),
        ],
        memory: vec![Memory { name: "step/A/mxfp4-fdw-h16".to_owned(), peak_bytes: 200 << 20 }],
        comparisons: Vec::new(),
        gpus: Vec::new(),
        ranks: Vec::new(),
        not_run: Vec::new(),
        clock_model: None,
    };
    document.comparisons = document.compare();
    document
}

fn compared<'a>(document: &'a Document, what: &str) -> &'a Compared {
    document.comparisons.iter().find(|compared| compared.what.starts_with(what)).unwrap()
}

pub(super) fn environment() -> Environment {
    environment::capture(&repository(), &RunOptions { parallel: 1, threads: 1, instruction_set: "auto".to_owned(), fresh: false })
}

/// The ratios are those that the numbers were made with, and a round disturbed for all moves none of them.
#[test]
fn ratios_come_back_as_they_were_made() {
    let document = synthetic();
    let close = |what: &str, expected: f64| {
        let found = compared(&document, what);
        assert!((found.ratio.unwrap() - expected).abs() < 1e-12 * expected, "{what}: {found:?}");
        found.clone()
    };
    let packed = close("MXFP4 product of prepared operands, of the integer", 0.75);
    assert_eq!((packed.verdict.as_str(), packed.n, packed.in_turns, packed.is_share), ("met", 15, true, true));
    // The best F32 is the peer's, so its ratio is the one that counts; it is not taken in turns.
    let best = close("MXFP4 with preparing both operands, over the best F32", 500.0 / 160.0);
    assert_eq!((best.verdict.as_str(), best.in_turns, best.n), ("missed", false, 7));
    assert!(best.over.contains("pytorch 9.9") && best.note.contains("80 %"), "{best:?}");
    close("H16 over H32, preparing", 486.0 / 450.0);
    let step = close("full MXFP4 with H16 over our FP8, size A", 1.25);
    assert_eq!(step.verdict, "missed");
    assert_eq!(
        step.note,
        "most of the step: attention-backward 50 %, gemm-mxfp4 25 %, everything else 25 %; what the recipe changes is 25 % of it, and the rest bounds any gain"
    );
    assert_eq!(close("two threads over one", 0.24 / 0.125).verdict, "met");
}

#[test]
fn a_bar_without_its_peer_is_open_and_says_what_it_needs() {
    let document = synthetic();
    let ggml = compared(&document, "MXFP4 with preparing both operands, over ggml");
    assert_eq!((ggml.ratio, ggml.verdict.as_str()), (None, "open"));
    assert_eq!(ggml.note, "ggml did not run: it is not built; python3 cpu_peers.py --prepare");
    let without = Document { peers: vec![], missing: vec![], peers_asked: false, ..document };
    let without = Document { comparisons: without.compare(), ..without };
    assert!(compared(&without, "MXFP4 with preparing both operands, over ggml").note.starts_with("needs --peers"));
    // Half of the comparison is there: 3.33 is above 3.2, but the peer may be the faster one.
    let half = compared(&without, "MXFP4 with preparing both operands, over the best F32");
    assert_eq!((half.verdict.as_str(), half.ratio.map(|ratio| (ratio * 100.0).round())), ("open", Some(333.0)));
}

#[test]
fn memory_is_compared_without_the_peers_libraries() {
    let mut document = synthetic();
    let what = "PyTorch F32 eager's memory";
    assert_eq!(compared(&document, what).note, "the peer script gave no step/A/f32-eager; ours is 200 MiB");
    let mut step = peer_of("step/A/f32-eager", 4096, 0.5);
    step.note = "peak resident memory of the process 812 MiB, 312 MiB before the model was made".to_owned();
    document.peers.push(step);
    document.comparisons = document.compare();
    let found = compared(&document, what);
    assert_eq!((found.ratio, found.verdict.as_str(), found.note.as_str()), (Some(2.5), "met", "200 MiB against 500 MiB"));
    assert_eq!(comparisons::memory_of_note("nothing of it"), None);
    // The words that are read are the words that the script writes.
    let script = fs::read_to_string(repository().join("kernels/peers/cpu_peers.py")).unwrap();
    assert!(script.contains("peak resident memory of the process {peak:.0f} MiB, {before:.0f} MiB before the model was made"));
}

#[test]
fn a_filter_that_matches_nothing_is_told_apart_from_the_peaks() {
    let document = synthetic();
    assert!(something("gemm/mxfp4/", &document).is_ok() && something("step/A", &document).is_ok());
    let error = something("gem/", &document).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("`gem/`") && error.to_string().contains("step/"), "{error}");
}

/// Bars are what CPU targets are written down as: changing one is a decision, not an accident.
#[test]
fn the_bars_are_these() {
    let bars: Vec<String> = comparisons::all().iter().filter_map(|c| Some(format!("{} {}", c.bar?, c.what))).collect();
    insta::assert_snapshot!(bars.join("\n"));
}

#[test]
fn every_peer_is_named_as_the_peer_script_names_it() {
    let script = fs::read_to_string(repository().join("kernels/peers/cpu_peers.py")).unwrap();
    for comparison in comparisons::all() {
        for other in comparison.over {
            let comparisons::Other::Peer(name) = other else { continue };
            // gemm/KIND/SHAPE, quantise/mxfp4-nearest-even/KIND/SHAPE, step/SIZE/KIND
            let parts: Vec<&str> = name.split('/').collect();
            let kind = if parts[0] == "gemm" { parts[1] } else { parts[2] };
            let kind = kind.trim_end_matches("-eager").trim_end_matches("-compiled");
            assert!(script.contains(&format!("\"{kind}")), "{name}: the peer script has no {kind}");
        }
    }
}

#[test]
fn the_terminal_table() {
    insta::assert_snapshot!(table(&synthetic()));
}

#[test]
fn the_page_is_one_file_without_scripts_and_escapes_what_it_shows() {
    let page = render::kernels_page(&synthetic(), &repository().join("paper")).unwrap();
    for absent in ["<script", "http://", "https://", "<link", "A <processor>", "{{", "{%"] {
        assert!(!page.contains(absent), "{absent}");
    }
    for present in [
        "A &lt;processor&gt; &amp; more",
        "verdict reproduced",
        "verdict differs",
        "verdict not-run",
        "3.12×",
        "1.08×",
        "python3 cpu_peers.py --prepare",
    ] {
        assert!(page.contains(present), "{present}");
    }
}

#[test]
fn a_written_directory_verifies_and_reads_back() {
    let (out, document, root) = (tempfile::tempdir().unwrap(), synthetic(), repository());
    let first = write(&root, out.path(), &document, &environment()).unwrap();
    let second = write(&root, out.path(), &document, &environment()).unwrap();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!((name(&first), name(&second)), ("kernels-2026-05-09-synthetic".into(), "kernels-2026-05-09-synthetic-2".into()));
    assert_eq!(Document::read(&first.join("kernels.json")).unwrap(), document);
    let files = files::list(&first).unwrap();
    assert_eq!(files, ["SHA256SUMS", "comparisons.csv", "env.json", "kernels.csv", "kernels.html", "kernels.json", "renderer.json"]);
    assert_eq!(newest(out.path(), "synthetic"), Some(second));
    assert_eq!(newest(out.path(), "another"), None);
    let rows = csv::Reader::from_path(first.join("kernels.csv")).unwrap().into_records().map(Result::unwrap).count();
    assert_eq!(rows, document.benchmarks.len() + document.samples.len() + document.peers.len());
    let verification = verify(&first, Some(&study::identity::Known::only("c0de")), None).unwrap();
    assert!(verification.holds(), "{verification}");
    assert!(verification.notes.iter().any(|note| note.contains("no claims here")));
    assert!(verify(&first, Some(&study::identity::Known::only("other")), None).unwrap().notes.iter().any(|note| note.contains("stale")));
}

/// Verdicts of an earlier version are computed again from the same measurements, and every file is as if written today.
#[test]
fn a_directory_is_rendered_again() {
    let (out, document, root) = (tempfile::tempdir().unwrap(), synthetic(), repository());
    let directory = write(&root, out.path(), &document, &environment()).unwrap();
    let all = || files::list(&directory).unwrap().into_iter().map(|name| (std::fs::read(directory.join(&name)).unwrap(), name));
    let before: Vec<_> = all().collect();
    let mut earlier = document.clone();
    earlier.comparisons[0].verdict = "unheard-of".to_owned();
    earlier.write(&directory).unwrap();
    assert!(!verify(&directory, None, None).unwrap().holds());
    assert_eq!(report(&root, &directory).unwrap().document, document);
    assert!(verify(&directory, None, None).unwrap().holds());
    assert!(all().eq(before));
    files::write(&directory.join("notes/mine.txt"), b"a reader's").unwrap();
    assert!(report(&root, &directory).unwrap_err().to_string().contains("notes/mine.txt"));
    assert_eq!(fs::read(directory.join("notes/mine.txt")).unwrap(), b"a reader's");
    assert!(is_result(&directory) && !is_result(out.path()) && report(&root, out.path()).is_err());
}

/// What this version rendered it makes again, byte for byte; of another version's it says which.
#[test]
fn a_page_is_held_against_the_version_that_rendered_it() {
    let (out, root) = (tempfile::tempdir().unwrap(), repository());
    let directory = write(&root, out.path(), &synthetic(), &environment()).unwrap();
    let said = || {
        provenance::write_list(&directory).unwrap();
        let verification = verify(&directory, None, Some(&root.join("paper"))).unwrap();
        (verification.holds(), verification.to_string())
    };
    assert!(said().0, "{}", said().1);
    let (page, renderer) = (directory.join("kernels.html"), directory.join(provenance::RENDERER_FILE));
    fs::write(&page, fs::read_to_string(&page).unwrap() + "<!-- better -->").unwrap();
    assert!(!said().0 && said().1.contains("kernels.html: is not what this version, which rendered it"), "{}", said().1);
    let mut earlier = Renderer::read(&directory).unwrap().unwrap();
    earlier.version = Some("earlier".to_owned());
    earlier.write(&directory).unwrap();
    assert!(said().0 && said().1.contains("version earlier (commit"), "{}", said().1);
    for broken in ["{", "{}", &fs::read_to_string(&renderer).unwrap().replace("renderer/1", "renderer/2")] {
        fs::write(&renderer, broken).unwrap();
        assert!(!said().0 && said().1.contains("renderer.json"), "{broken}: {}", said().1);
    }
    fs::remove_file(&renderer).unwrap();
    assert!(said().0 && said().1.contains("an earlier version rendered it, or somebody changed it"), "{}", said().1);
}

#[test]
fn a_damaged_directory_is_found_out() {
    let (out, root) = (tempfile::tempdir().unwrap(), repository());
    let directory = write(&root, out.path(), &synthetic(), &environment()).unwrap();
    let path = directory.join("kernels.json");
    let whole = fs::read_to_string(&path).unwrap();
    let finds = |text: &str, expected: &str| {
        fs::write(&path, text).unwrap();
        provenance::write_list(&directory).unwrap();
        let found = verify(&directory, None, None).unwrap().to_string();
        assert!(found.contains("NOT verified") && found.contains(expected), "{expected}: {found}");
    };
    finds(&whole[..whole.len() / 2], "cut off");
    finds(&whole.replace("mxfp4-kernels/1", "mxfp4-kernels/2"), "schema");
    finds(&whole.replace("\"verdict\": \"missed\"", "\"verdict\": \"met\""), "but its measurements give");
    fs::write(&path, whole.replace("avx512", "avx513")).unwrap();
    assert!(verify(&directory, None, None).unwrap().to_string().contains("kernels.json: its SHA-256"));
    // A half-written result is passed over, not shown.
    fs::write(&path, &whole[..40]).unwrap();
    assert_eq!(newest(out.path(), "synthetic"), None);
}

#[test]
fn broken_peer_lines_become_rows() {
    let good = r#"{"schema":"mxfp4-peer/1","kind":"timing","peer":"p","name":"gemm/f32/1x1x1","threads":1,"operations":2,"unit":"operations","samples":[0.5],"note":"","later":1}"#;
    let lines = [
        r#"{"schema":"mxfp4-peer/1","kind":"environment","torch":"9"}"#,
        good,
        r#"{"schema":"mxfp4-peer/1","kind":"missing","peer":"q","name":"n","reason":"r","install":""}"#,
        "Traceback (most recent call last):",
        r#"{"schema":"mxfp4-peer/2","kind":"timing"}"#,
        r#"{"schema":"mxfp4-peer/1","kind":"timing","peer":"p","name":"x"}"#,
        r#"{"schema":"mxfp4-peer/1","kind":"guess"}"#,
        &good.replace("[0.5]", "[]"),
        &good.replace("[0.5]", "[-1.0]"),
        &good[..60],
    ];
    let peers = parse_peers(&lines.join("\n"));
    assert_eq!((peers.timings.len(), peers.missing.len()), (1, 8));
    assert_eq!(peers.environment.unwrap()["torch"], "9");
    let reasons: Vec<&str> = peers.missing.iter().map(|missing| missing.reason.as_str()).collect();
    for (reason, expected) in
        reasons[1..].iter().zip(["is not JSON", "mxfp4-peer/2", "missing field", "guess", "no samples", "-1 is not a time", "is not JSON"])
    {
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
    assert_eq!(peers.missing[1].name, "line 4 of its output");
    assert_eq!(parse_peers(""), Peers::default());
}

#[test]
fn a_peer_script_that_cannot_start_is_a_row() {
    let peers = programs::peers(&repository(), Path::new("/nowhere/python3"), (1, Depth::Quick), ("", &[]), &|_| {});
    assert!(peers.timings.is_empty() && peers.missing[0].install.contains("--peers"), "{peers:?}");
    let elsewhere = tempfile::tempdir().unwrap();
    let peers = programs::peers(elsewhere.path(), Path::new("python3"), (1, Depth::Quick), ("", &[]), &|_| {});
    assert!(peers.missing[0].reason.contains("not in this tree"), "{peers:?}");
}

#[test]
fn our_own_lines_must_follow_their_schema() {
    let good = r#"{"schema":"mxfp4-kernels-samples/1","kind":"samples","group":"g","name":"n","threads":2,"operations":4,"unit":"operations","bytes":3,"samples":[1.0,2.0]}"#;
    let (samples, _) = parse(good).unwrap();
    assert_eq!((samples[0].group.as_str(), samples[0].samples.len()), ("g 2t", 2));
    for (line, expected) in [
        (&good[..70], "line 1: is not JSON"),
        (&good.replace("samples/1", "samples/9"), "schema"),
        (&good.replace("\"kind\":\"samples\"", "\"kind\":\"sample\""), "not one of"),
        (&good.replace("[1.0,2.0]", "[]"), "no samples"),
        (&good.replace("\"operations\":4", "\"operations\":0"), "no operations"),
        (&good.replace("\"bytes\"", "\"bites\""), "unknown field `bites`"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_step_profile_has_shares_of_the_median_step() {
    let line = |repeat: u64, kernel: &str, seconds: f64| {
        format!(
            r#"{{"schema":"mxfp4-step-time/1","kind":"step_kernel","arm":"a","repeat":{repeat},"kernel":"{kernel}","calls":2,"work":10,"seconds":{seconds}}}"#
        )
    };
    let step = |repeat: u64, seconds: f64| {
        format!(
            r#"{{"schema":"mxfp4-step-time/1","kind":"step_time","arm":"a","repeat":{repeat},"tokens":8,"seconds":{seconds},"forward_backward_seconds":0.1}}"#
        )
    };
    let mut text = String::new();
    for (repeat, seconds) in [(1, 1.0), (2, 2.0), (3, 9.0)] {
        text += &[step(repeat, seconds), line(repeat, "norm", seconds / 10.0), line(repeat, "gemm-mxfp4", seconds / 2.0)]
            .map(|line| line + "\n")
            .concat();
    }
    let rows = profile_rows("A", &steps::parse(&text).unwrap());
    let shares: Vec<(&str, f64)> = rows.iter().map(|row| (row.kernel.as_str(), (row.share * 100.0).round())).collect();
    assert_eq!(shares, [("gemm-mxfp4", 50.0), ("norm", 10.0), ("everything else", 40.0)]);
    assert_eq!(rows[0].giga_per_second(), Some(1e-8));
    assert!(steps::parse("{\"schema\"").unwrap_err().to_string().starts_with("trainer step-time: line 1"));
    assert!(profile_rows("A", &[]).is_empty());
}

/// Both sizes give run files that name the recipe and the right number of parameters.
#[test]
fn run_files_of_the_sizes_are_whole() {
    let manifests = Manifests::load(&repository()).unwrap();
    let profile = manifests.profile("cpu").unwrap();
    for (model, sequences, parameters) in [("size-a", 32, 984_192), ("size-b", 16, 7_212_288)] {
        let model = &manifests.models[model];
        assert_eq!(model.section().parameters(), parameters);
        let text = study::plan::step_run_file(&manifests, profile, model, sequences, "mxfp4-fdw-h16").unwrap();
        let run: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!((run["recipe"]["id"].as_str(), run["batch"]["sequences"].as_u64()), (Some("mxfp4-fdw-h16"), Some(sequences as u64)));
    }
    assert!(study::plan::step_run_file(&manifests, profile, &manifests.models["size-a"], 1, "nothing").is_err());
}

#[test]
fn other_devices_say_what_they_need() {
    for (name, needs) in [("cuda", "NVIDIA"), ("hip", "ROCm")] {
        let request = Request {
            device: name.to_owned(),
            together: None,
            depth: Depth::Quick,
            only: None,
            threads: vec![1],
            peers: None,
            peers_eager: false,
            trainer: None,
            out: PathBuf::from("nowhere"),
            machine: None,
        };
        let error = run(&repository(), &request, &AtomicBool::new(false), &|_| {}).unwrap_err();
        assert_eq!(error.exit_code(), 4);
        let text = error.to_string();
        assert!(text.contains("not-run") && text.contains(needs) && text.lines().count() == 1, "{text}");
    }
}

/// Into a campaign of the same machine, once.
#[test]
fn measurements_are_taken_into_a_campaign_made_without() {
    let (campaign, out, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), repository());
    let mut document = synthetic();
    let kernels = write(&root, out.path(), &document, &environment()).unwrap();
    let add = |kernels: &Path| add_to(campaign.path(), kernels).map_err(|error| error.to_string());
    assert!(add(&kernels).unwrap_err().contains("campaign.json: cannot read"));
    let record = serde_json::json!({
        "schema": "mxfp4-campaign/1", "profile": "p", "papers": [], "device": "cpu", "machine": "synthetic", "date": "2026-05-09", "commit": "0123",
        "dirty": false, "key": "k", "trainer_code": "c0de", "partial": false, "seeds": [1], "runs": [],
    });
    files::write(&campaign.path().join("campaign.json"), record.to_string().as_bytes()).unwrap();
    assert!(add(campaign.path()).unwrap_err().contains("kernels.json: cannot read"));
    document.machine = "another".to_owned();
    let elsewhere = write(&root, out.path(), &document, &environment()).unwrap();
    assert!(add(&elsewhere).unwrap_err().ends_with("kernels.json: was measured on another, the campaign on synthetic"));
    add(&kernels).unwrap();
    let copy = campaign.path().join("measurements").join(DOCUMENT);
    assert_eq!(fs::read(copy).unwrap(), fs::read(kernels.join(DOCUMENT)).unwrap());
    assert!(add(&kernels).unwrap_err().contains("is already there"));
    // As it lies in a large campaign.
    files::write(&campaign.path().join("runs/fp8/1/run.yaml"), b"schema: mxfp4-run/1\n").unwrap();
    assert!(study::packed::pack(campaign.path(), 0).unwrap() && !campaign.path().join("measurements").join(DOCUMENT).exists());
    assert!(add(&kernels).unwrap_err().contains("is already there"));
}

/// Stands in for Python: calls a script as it is called, but the script is the shell's.
#[cfg(unix)]
pub(super) const SHELL: &str = "#!/bin/sh\nexec /bin/sh \"$@\"\n";

/// Writes a program that stands in for another.
#[cfg(unix)]
pub(super) fn executable(path: PathBuf, text: &str) -> PathBuf {
    files::write(&path, text.as_bytes()).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// Ctrl-C on a CPU lost everything: kernels, steps and peers that had been measured for minutes.
#[test]
fn what_was_measured_until_an_interrupt_is_kept() {
    let interrupted = || Err(BenchError::Campaign(CampaignError::Interrupted));
    let (stop, goes_on) = (AtomicBool::new(true), AtomicBool::new(false));
    let mut document = synthetic();
    let lacks = document.missing.len();
    until_stopped(interrupted(), &mut document, &stop).unwrap();
    assert_eq!(document.missing[lacks..], [gpu::absent("what was left of the CPU's measurements", "interrupted")]);
    // A program that failed by itself is an error, and so is an interrupt before anything was measured.
    assert!(until_stopped(interrupted(), &mut document, &goes_on).is_err());
    let mut nothing = Document { benchmarks: Vec::new(), samples: Vec::new(), ..synthetic() };
    assert!(until_stopped(interrupted(), &mut nothing, &stop).is_err());
}
