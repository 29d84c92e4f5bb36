//! A whole campaign on two GPUs that are not there: a stand-in trainer says that it has them, forwards to the real trainer on the CPU, and
//! writes into the timings what a GPU would have written. No number of the stand-in means anything; the way of a campaign does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use campaign::data::token_folder;
use study::manifest::Manifests;
use tempfile::TempDir;

/// `device` gets the places that were asked for; `mode` beside the script says what goes wrong.
const STAND_IN: &str = r#"#!/bin/sh
here=$(dirname "$0"); real=$(cat "$here/real"); mode=$(cat "$here/mode")
if [ "$1" = devices ]; then
  if [ "$mode" = interpreter ]; then echo '{"schema":"mxfp4-devices/1","gpus":[{"device":"hip:0","name":"gfx950 interpreter","architecture":"gfx950","memory_bytes":1073741824,"fp8":true,"mxfp4":true,"interpreted":true,"libraries":["stand-in"],"problem":null}],"problem":null}'; exit 0; fi
  if [ "$mode" = none ]; then echo '{"schema":"mxfp4-devices/1","gpus":[],"problem":"libcuda.so.1 was not found (stand-in); it comes with the driver"}'; exit 0; fi
  gpu() { printf '{"device":"cuda:%s","name":"Stand-in GPU","architecture":"sm_90a","memory_bytes":1073741824,"fp8":true,"libraries":["CUDA driver 12.8","NVRTC 12.8","cuBLASLt 12.8.4"],"problem":null}' "$1"; }
  printf '{"schema":"mxfp4-devices/1","gpus":[%s,%s],"problem":null}\n' "$(gpu 0)" "$(gpu 1)"; exit 0
fi
if [ "$1" = version ]; then echo '{"version":"0","build":{"trainer_code":"feedfacefeedfacefeedfacefeedface","toolchain":"rustc stand-in"}}'; exit 0; fi
# Written so that a replacement of the one kind of GPU by the other leaves both here.
if [ "$1" = identity ]; then
  of() { printf '"%s":{"identity":"feedface%s","parts":{}}' "$1" "$1"; }
  printf '{"schema":"mxfp4-identity/1",%s,%s,%s}\n' "$(of cpu)" "$(of cu''da)" "$(of hip)"; exit 0
fi
if [ "$1" = device-test ]; then
  line() { printf '{"schema":"mxfp4-device-test/1","kind":%s}\n' "$1"; }
  line '"device","device":"cuda","name":"Stand-in GPU","architecture":"sm_90a","libraries":["NVRTC 12.8"],"seed":7'
  shift 5; checks=0
  for run in "$@"; do
    # Each run file must be one that the real trainer takes.
    "$real" step-time "$run" --repeats 1 --warmup 0 --device cpu > "$here/step" || { echo "error: $run" >&2; exit 4; }
    line "\"check\",\"group\":\"step\",\"name\":\"$(sed 's/.*"arm":"\([^"]*\)".*/\1/' "$here/step")\",\"detail\":\"loss\",\"elements\":1,\"difference\":0.5,\"bound\":1.0,\"passed\":true"
    checks=$((checks+1)); [ "$mode" = "die after" ] && kill -9 $$
  done
  line "\"summary\",\"checks\":$checks,\"failed\":0"; exit 0
fi
command=$1; file=$2; place=; n=$#
while [ $n -gt 0 ]; do
  argument=$1; shift; n=$((n-1))
  case "$argument" in --device) place=$1; shift; n=$((n-1)); set -- "$@" --device cpu ;; --gpus) set -- "$@" --ranks ;; *) set -- "$@" "$argument" ;; esac
done
[ "$command" != launch ] || place="$place:$CUDA_VISIBLE_DEVICES"
echo "$command $place" >> "$here/calls"
case "$place" in cuda|cuda:*|"") ;; *) echo "error: this stand-in is a GPU's, not for --device $place" >&2; exit 2 ;; esac
if { [ "$mode" = "lose $place" ] || [ "$mode" = "lose all" ]; } && [ "$command" = run ]; then echo "error: CUDA_ERROR_ECC_UNCORRECTABLE" >&2; exit 4; fi
if [ "$command" != run ] && [ "$command" != launch ]; then exec "$real" "$@"; fi
folder=$(dirname "$file")
# done.json is held back until the timings say what they should.
"$real" "$@" || exit $?
mv "$folder/done.json" "$folder/done.held"
sed -i 's/"device":"cpu"/"device":"cuda"/; s/"instruction_set":"[^"]*"/"instruction_set":"sm_90a"/; s/"cpu":\("[^"]*"\)/"cpu":\1,"gpu":"Stand-in GPU","libraries":["CUDA driver 12.8","NVRTC 12.8","cuBLASLt 12.8.4"]/' "$folder/timing.jsonl"
mv "$folder/done.held" "$folder/done.json"
"#;

/// The real trainer beside this program. Cargo is asked as `cargo test --workspace` asks it: any other choice of packages joins features
/// differently and compiles a second trainer, for a minute and a half.
fn trainer() -> &'static Path {
    static TRAINER: OnceLock<PathBuf> = OnceLock::new();
    TRAINER.get_or_init(|| {
        let path = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("trainer");
        let target = path.parent().unwrap().parent().unwrap();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // A test of the trainer's brings its program along.
        let arguments = ["test", "--quiet", "--workspace", "--no-run", "--test", "allocations", "--target-dir"];
        let built = Command::new(cargo).args(arguments).arg(target).current_dir(repository()).status().unwrap();
        assert!(built.success() && path.is_file());
        path
    })
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A copy without sources and without .git, as `pack` makes it, whose profile `smoke` wants an NVIDIA GPU and whose data is small.
pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        Self::of("nvidia-h200", STAND_IN)
    }

    /// With AMD's GPUs in the place of NVIDIA's.
    fn of_amd() -> Self {
        Self::of("amd-mi355x", &STAND_IN.replace("cuda", "hip").replace("sm_90a", "gfx950").replace("CUDA driver 12.8", "HIP 7.0.0"))
    }

    pub(crate) fn of(hardware: &str, stand_in: &str) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        // TeX takes longer than all else here; one campaign has it, and `with_latex` gives it that one.
        std::fs::create_dir(site.path("bin")).unwrap();
        site.program("bin/latexmk", "#!/bin/sh\nexit 127\n");
        for folder in ["manifests", "paper"] {
            copy(&repository().join(folder), &site.path(folder));
        }
        std::fs::copy(repository().join("Cargo.lock"), site.path("Cargo.lock")).unwrap();
        let profile = site.path("manifests/profiles/smoke.yaml");
        edit(&profile, "hardware: cpu", &format!("hardware: {hardware}"));
        edit(&profile, "seeds: [1, 2]", "seeds: [1]");
        edit(&profile, "budget: {steps: 24}", "budget: {steps: 8}");
        edit(&profile, "quantisation_steps: [1, 24]", "quantisation_steps: [1, 8]");
        edit(&profile, "requires: {cores: 1,", "requires: {gpus: 2,");
        site.program("trainer", stand_in);
        std::fs::write(site.path("real"), trainer().to_str().unwrap()).unwrap();
        site.mode("well");
        site.data();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        std::fs::write(self.path(name), script).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// With this machine's LaTeX, where it has one.
    fn with_latex(self) -> Self {
        std::fs::remove_file(self.path("bin/latexmk")).unwrap();
        self
    }

    pub(crate) fn mode(&self, mode: &str) {
        std::fs::write(self.path("mode"), mode).unwrap();
    }

    /// Shards of a made-up text, pinned in the tokenizer's manifest.
    fn data(&self) {
        let manifest = self.path("manifests/tokenizers/rust-crates-512.yaml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, text.split("shards:").next().unwrap()).unwrap();
        let manifests = Manifests::load(self.0.path()).unwrap();
        let tokenizer = &manifests.tokenizers["rust-crates-512"];
        let folder = token_folder(self.0.path(), &manifests.datasets["rust-crates"], tokenizer);
        std::fs::create_dir_all(&folder).unwrap();
        let mut pinned = String::from("shards:\n");
        for (part, documents) in [("train", 400u32), ("validation", 60)] {
            let mut lines = String::new();
            for document in 0..documents {
                let words: Vec<String> = (0..60u32).map(|word| format!("fn w{} ", (document * 7 + word * word) % 97)).collect();
                writeln!(lines, "{{\"text\":\"{}\"}}", words.concat()).unwrap();
            }
            let input = self.path(&format!("{part}.jsonl"));
            std::fs::write(&input, lines).unwrap();
            let output = Command::new(trainer())
                .args(["tokenize", "--tokenizer"])
                .arg(self.path(tokenizer.file.as_ref().unwrap()))
                .arg("--input")
                .arg(&input)
                .arg("--output")
                .arg(folder.join(part))
                .output()
                .unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            let field = |key: &str| {
                said.split(&format!("\"{key}\":")).nth(1).unwrap().split([',', '}']).next().unwrap().trim_matches('"').to_owned()
            };
            let (tokens, bin, idx) = (field("tokens"), field("sha256_bin"), field("sha256_idx"));
            writeln!(pinned, "  {part}: {{tokens: {tokens}, sha256_bin: \"{bin}\", sha256_idx: \"{idx}\"}}").unwrap();
        }
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, text + &pinned + "  end_of_document: 0\n").unwrap();
    }

    fn xtask(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([self.path("bin")].into_iter().chain(std::env::split_paths(&path))).unwrap();
        // No cargo: neither its variables nor a compiler.
        command
            .env("PATH", path)
            .args(arguments)
            .current_dir(self.0.path())
            .env("CARGO_MANIFEST_DIR", self.0.path().join("xtask"))
            .env("RUSTC", "no-rustc")
            .env("CARGO", "no-cargo");
        command
    }

    /// Runs with `arguments`, expects `code`, gives what was printed to either stream.
    pub(crate) fn says(&self, arguments: &[&str], code: i32) -> String {
        let output = self.xtask(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        text
    }

    /// `command place` of each call of the stand-in since the last look.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        let _ = std::fs::remove_file(self.path("calls"));
        text.lines().map(str::to_owned).collect()
    }

    /// The only result directory.
    pub(crate) fn result(&self) -> PathBuf {
        let entries = std::fs::read_dir(self.path("results")).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<PathBuf> = entries.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.')).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

pub(crate) fn edit(path: &Path, old: &str, new: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(old), "{} has no `{old}`", path.display());
    std::fs::write(path, text.replace(old, new)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(path, to).unwrap();
        }
    }
}

#[test]
fn a_campaign_on_two_gpus_from_slices_to_report() {
    let site = Site::new();
    let replicate = ["replicate", "--profile", "smoke"];

    // No time: nothing runs, and the exit code says that runs are left.
    let text = site.says(&[&replicate[..], &["--minutes", "0"]].concat(), 5);
    assert!(text.contains("0 of 11 runs are finished, 11 are left: the time was up"), "{text}");

    // A slice on the first GPU, whose loss is nobody's: one GPU has no other.
    let slice = [&replicate[..], &["--only-arms", "fp8,bf16", "--gpus", "0"]].concat();
    site.says(&slice, 0);
    assert_eq!(site.calls().iter().filter(|call| *call == "run cuda:0").count(), 2);
    std::fs::remove_dir_all(site.path("results")).unwrap();

    // Carried to another machine, where it counts as finished.
    let carried = site.path("carried");
    assert!(site.says(&["runs", "export", carried.to_str().unwrap()], 0).contains("2 finished runs"));
    let elsewhere = Site::new().with_latex();
    let taken = elsewhere.says(&["runs", "import", carried.to_str().unwrap()], 0);
    assert!(taken.contains("2 finished runs and 0 checkpoints copied"), "{taken}");
    let text = elsewhere.says(&replicate, 0);
    let calls = elsewhere.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("run cuda:")).count(), 9, "two of eleven were carried: {calls:?}");
    assert!(["run cuda:0", "run cuda:1", "step-time cuda:0"].iter().all(|call| calls.iter().any(|found| found == call)), "{calls:?}");
    assert!(calls.iter().any(|call| call == "kernel-time cuda:0"), "{calls:?}");
    assert!(text.contains("no commit is known"), "{text}");
    let kernels = text.lines().find(|line| line.starts_with("T1-KERN")).unwrap();
    assert!(kernels.contains("not-run(no native FP4 unit on this device)"), "{kernels}");

    // The record: directory, campaign, environment, evidence.
    let result = elsewhere.result();
    let name = result.file_name().unwrap().to_str().unwrap();
    assert!(name.contains("-stand-in-gpu-smoke-none"), "{name}");
    assert_eq!(result.join("report.pdf").is_file(), Command::new("latexmk").arg("--version").output().is_ok(), "{text}");
    let read = |file: &str| std::fs::read_to_string(result.join(file)).unwrap();
    // What emulation measured stands beside.
    assert!(read("verdicts.json").contains("throughput of mxfp4-h16 over mxfp4-h32 here"));
    let environment: serde_json::Value = serde_json::from_str(&read("env.json")).unwrap();
    assert_eq!(environment["accelerators"].as_array().unwrap().len(), 2);
    assert_eq!(environment["device_libraries"], serde_json::json!(["CUDA driver 12.8", "NVRTC 12.8", "cuBLASLt 12.8.4"]));
    assert_eq!(environment["flags"]["parallel_runs"], 2);
    assert_eq!(environment["prebuilt_trainer"]["toolchain"], "rustc stand-in");
    assert_eq!(environment["toolchain"]["rustc"], serde_json::Value::Null);
    let campaign: serde_json::Value = serde_json::from_str(&read("campaign.json")).unwrap();
    assert_eq!((campaign["device"].as_str(), campaign["partial"].as_bool()), (Some("cuda"), Some(false)));
    assert!(read("runs/fp8/1/ingredients.json").contains("\"device\":\"cuda\""));
    let report = read("report.html");
    for words in ["Stand-in GPU", "NVRTC 12.8", "emulated", "native", "equal from run to run on one kind of GPU", "rustc stand-in"] {
        assert!(report.contains(words), "the report lacks `{words}`");
    }
    let steps = read("data/step_time.csv");
    assert!(steps.contains("fp8") && steps.contains("mxfp4-fdw-h16"), "{steps}");
    assert!(result.join("measurements/kernel_time.jsonl").exists() && result.join("measurements/step_profile.jsonl").exists());

    // It verifies, rendering again changes nothing that was measured, and asking again does nothing.
    elsewhere.says(&["verify", result.to_str().unwrap()], 0);
    let again = elsewhere.says(&["report", result.to_str().unwrap()], 0);
    assert!(
        again.contains("stale: what the trainer computes has changed since these runs"),
        "the stand-in is no trainer of this tree: {again}"
    );
    assert!(elsewhere.says(&replicate, 0).contains("nothing to do"));

    // A result directory carries runs, too; a directory whose timings say another device is found out.
    let third = Site::new();
    assert!(third.says(&["runs", "import", result.to_str().unwrap()], 0).contains("11 finished runs"));
    edit(&result.join("runs/fp8/1/timing.jsonl"), "\"device\":\"cuda\"", "\"device\":\"cpu\"");
    assert!(elsewhere.says(&["verify", result.to_str().unwrap()], 1).contains("ran on cpu"));
    assert!(site.says(&["runs", "import", result.to_str().unwrap()], 1).contains("refused: "));
}

/// Runs of two profiles in one go, on both GPUs at once; reports come afterwards.
#[test]
fn slices_of_two_profiles_share_the_gpus() {
    let site = Site::new();
    let profile = std::fs::read_to_string(site.path("manifests/profiles/smoke.yaml")).unwrap();
    std::fs::write(site.path("manifests/profiles/second.yaml"), profile.replace("id: smoke", "id: second")).unwrap();
    let refused = site.says(&["runs", "train", "smoke:fp8", "second:fp9"], 2);
    assert!(refused.contains("slice second:fp9: unknown arm `fp9`"), "{refused}");
    let left = site.says(&["runs", "train", "smoke:fp8", "second", "--minutes", "0"], 5);
    for line in [
        "smoke:fp8: 0 made, 0 finished before, 0 failed, 1 left\n",
        "second: 0 made, 0 finished before, 0 failed, 11 left\nthe time was up; ",
    ] {
        assert!(left.contains(line), "{left}");
    }
    assert!(site.calls().is_empty() && !left.contains("--finished"), "{left}");

    let text = site.says(&["runs", "train", "smoke:fp8@1", "second:fp8,bf16,mxfp4-f", "second:bf16@1"], 0);
    assert!(text.contains("4 runs of 3 slices, 2 at once"), "a run that two slices name is made once: {text}");
    for line in ["smoke:fp8@1: 1 made, 0", "second:fp8,bf16,mxfp4-f: 3 made, 0", "second:bf16@1: 0 made, 0", "--profile second --finished"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    let calls = site.calls();
    assert_eq!(calls.len(), 4, "{calls:?}");
    assert!(["run cuda:0", "run cuda:1"].iter().all(|place| calls.iter().any(|call| call == place)), "{calls:?}");
    let again = site.says(&["runs", "train", "smoke:fp8", "second:bf16", "--json"], 0);
    assert!(again.contains(r#""slices":[{"slice":"smoke:fp8","made":0,"finished_before":1,"left":0,"failed":[]}"#), "{again}");
    assert!(site.says(&["replicate", "--profile", "second", "--finished"], 0).contains("3 of 11 runs are finished"));

    site.mode("lose all");
    let failed = site.says(&["runs", "train", "smoke:bf16", "smoke:mxfp4-f"], 4);
    assert!(failed.contains("FAILED smoke bf16/1") && failed.contains("CUDA_ERROR_ECC_UNCORRECTABLE"), "{failed}");
}

#[test]
fn what_is_finished_becomes_a_report_where_no_gpu_is() {
    let site = Site::new();
    site.says(&["replicate", "--profile", "smoke", "--only-arms", "fp8,bf16,mxfp4-f"], 0);
    let carried = site.path("carried");
    site.says(&["runs", "export", carried.to_str().unwrap()], 0);

    let elsewhere = Site::new();
    elsewhere.mode("none");
    let finished = ["replicate", "--profile", "smoke", "--finished"];
    assert!(elsewhere.says(&finished, 3).contains("none of the 11 runs of profile smoke that this would show is finished here"));
    elsewhere.says(&["runs", "import", carried.to_str().unwrap()], 0);
    let text = elsewhere.says(&finished, 0);
    assert!(text.contains("3 of 11 runs are finished; judging and rendering these"), "{text}");
    assert!(!text.contains("byte for byte"), "no other directory is there: {text}");
    assert!(elsewhere.calls().is_empty(), "nothing runs");
    let result = elsewhere.result();
    assert!(result.file_name().unwrap().to_str().unwrap().contains("-stand-in-gpu-smoke-none"), "{}", result.display());
    let read = |file: &str| std::fs::read_to_string(result.join(file)).unwrap();
    let campaign: serde_json::Value = serde_json::from_str(&read("campaign.json")).unwrap();
    assert_eq!((campaign["partial"].as_bool(), campaign["runs"].as_array().unwrap().len()), (Some(true), 3));
    assert!(read("report.html").contains("3 of the profile’s 11"));
    elsewhere.says(&["verify", result.to_str().unwrap()], 0);

    // Later runs make it whole, in a directory of its own.
    elsewhere.mode("well");
    elsewhere.says(&["replicate", "--profile", "smoke", "--only-arms", "fp8,bf16,mxfp4-f,mxfp4-fd", "--out", "more"], 0);
    assert_eq!(elsewhere.calls().iter().filter(|call| call.starts_with("run cuda:")).count(), 1);
    assert!(elsewhere.says(&["replicate", "--profile", "smoke", "--finished", "--fresh"], 2).contains("cannot be used with"));
}

#[test]
fn an_audit_makes_drawn_runs_again_on_the_same_kind_of_gpu() {
    let site = Site::new();
    site.says(&["replicate", "--profile", "smoke", "--only-arms", "fp8,bf16"], 0);
    let result = site.result();
    let directory = result.to_str().unwrap();
    let audit = ["audit", directory, "--runs", "1", "--draw-seed", "3"];
    site.calls();
    let text = site.says(&audit, 0);
    let line = "1 of 1 runs (drawn from 2 with --draw-seed 3) came out byte for byte when made again on stand-in-gpu";
    assert!(text.contains(line) && text.contains("same bytes"), "{text}");
    assert_eq!(site.calls().iter().filter(|call| call.starts_with("run cuda:")).count(), 1, "made again, not looked up");
    assert!(site.says(&["verify", directory], 0).contains(&format!("note: audited: {line}")));

    // What was said of these runs holds in a directory that has further ones, under its name.
    let statement = study::audit::statements(&result).remove(0);
    site.says(&["replicate", "--profile", "smoke", "--only-arms", "fp8,bf16,mxfp4-f", "--out", "grown"], 0);
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let grown = site.path("grown");
    std::fs::rename(grown.join(name(&result)), grown.join("larger")).unwrap();
    std::fs::copy(&statement, grown.join(name(&statement).replace(&name(&result), "larger"))).unwrap();
    let said = site.says(&["verify", "grown/larger"], 0);
    assert!(said.contains(line) && said.contains(&format!("; they were then a part of {} (", name(&result))), "{said}");

    // Another kind of GPU cannot say anything.
    edit(&site.path("trainer"), "\"name\":\"Stand-in GPU\"", "\"name\":\"Another GPU\"");
    let other = site.says(&audit, 4);
    assert!(other.contains("these runs were made on Stand-in GPU; here is Another GPU, and bytes hold for one kind of GPU"), "{other}");
    edit(&site.path("trainer"), "\"name\":\"Another GPU\"", "\"name\":\"Stand-in GPU\"");

    // A loss that was changed together with its hash is found, and what was said before no longer counts.
    let drawn = text.lines().find_map(|line| line.strip_suffix("same bytes")).unwrap().trim();
    let run = result.join("runs").join(drawn);
    let hash = || study::files::sha256_file(&run.join("metrics.jsonl")).unwrap();
    let before = hash();
    edit(&run.join("metrics.jsonl"), "\"kind\":\"eval\",\"step\":0,", "\"kind\":\"eval\",\"step\":0, ");
    assert!(site.says(&audit, 2).contains("its files do not agree with its done.json"));
    edit(&run.join("done.json"), &before, &hash());
    assert!(site.says(&["verify", directory], 1).contains(&format!("names other hashes of {drawn} than its done.json; it does not count")));
    assert!(site.says(&audit, 1).contains("OTHER BYTES: metrics\n0 of 1 runs"));
    assert!(site.says(&["verify", directory], 1).contains("note: audited: 0 of 1 runs"));
}

#[test]
fn a_recipe_of_ones_own_is_tried_beside_table_1_and_runs_are_reused() {
    let site = Site::new();
    let profile = site.path("manifests/profiles/smoke.yaml");
    edit(&profile, "[mxfp4-f, mxfp4-fd, mxfp4-fdw, mxfp4-fdw-sr, mxfp4-fdw-rh16, mxfp4-fdw-h32, mxfp4-fdw-h16]", "[mxfp4-fdw]");
    edit(&profile, "[fp8, mxfp4-fdw-h16]", "[fp8]");
    let recipe = |id: &str, scale: &str| {
        let text = std::fs::read_to_string(site.path("manifests/recipes/mxfp4-fdw-h16.yaml")).unwrap();
        let path = site.path(&format!("{id}.yaml"));
        std::fs::write(&path, text.replace("id: mxfp4-fdw-h16", &format!("id: {id}")).replace("scale: floor", scale)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let runs = || site.calls().iter().filter(|call| call.starts_with("run cuda:")).count();
    let mine = recipe("mine", "scale: ceil");
    let text = site.says(&["try", &mine, "--profile", "smoke"], 0);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" 1 of 1 ")).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!((rows.len(), rows[0], rows[1], runs()), (3, "mine", "fp8", 3), "it, the baseline and the row of Table 1, not BF16: {text}");
    assert!(text.contains("two seeds an arm and a baseline that reaches the target are needed"), "{text}");
    // Nothing is added to the manifests; what was run is in the directory, which stands by itself.
    assert!(!site.path("manifests/recipes/mine.yaml").exists() && !site.path("results").exists());
    let made = std::fs::read_dir(site.path("target/try")).unwrap().map(|entry| entry.unwrap().path());
    let directory = made.into_iter().find(|path| path.join("campaign.json").is_file()).unwrap();
    assert_eq!(std::fs::read(directory.join("manifests/recipes/mine.yaml")).unwrap(), std::fs::read(&mine).unwrap());
    assert!(std::fs::read_to_string(directory.join("report.html")).unwrap().contains("Tried"));
    site.says(&["verify", directory.to_str().unwrap()], 0);
    // The next idea costs its own run, and the campaign finds the others finished.
    site.says(&["try", &recipe("other", "scale: even"), "--profile", "smoke"], 0);
    assert_eq!(runs(), 1);
    assert_eq!(site.says(&["replicate", "--profile", "smoke", "--dry-run"], 0).matches("finished, will be reused").count(), 2);
}

#[test]
fn amd_gpus_are_used_as_nvidias_and_an_interpreter_is_not() {
    let site = Site::of_amd();
    let slice = ["replicate", "--profile", "smoke", "--only-arms", "fp8"];
    site.mode("interpreter");
    let refused =
        "hip:0 gfx950 interpreter (gfx950, 1.0 GiB; stand-in; no device: the processor interprets the machine code, for tests only)";
    for arguments in [&slice[..], &[&slice[..], &["--gpus", "0"]].concat()] {
        let text = site.says(arguments, 4);
        assert!(text.contains(refused), "{text}");
    }
    assert!(site.says(&["doctor"], 0).contains(&format!("trainer: {refused}")));
    assert!(site.calls().is_empty(), "nothing runs on an interpreter");

    site.mode("well");
    site.says(&slice, 0);
    assert!(site.calls().iter().any(|call| call == "run hip:0" || call == "run hip:1"));
    let result = site.result();
    let read = |file: &str| std::fs::read_to_string(result.join(file)).unwrap();
    let campaign: serde_json::Value = serde_json::from_str(&read("campaign.json")).unwrap();
    assert_eq!(campaign["device"], "hip");
    assert!(read("runs/fp8/1/ingredients.json").contains("\"device\":\"hip\""));
    assert!(read("report.html").contains("HIP 7.0.0"));
    site.says(&["verify", result.to_str().unwrap()], 0);
    // What an interpreter computed is no result, wherever it comes from.
    edit(&result.join("runs/fp8/1/timing.jsonl"), "\"device\":\"hip\"", "\"device\":\"hip\",\"interpreted\":true");
    assert!(site.says(&["verify", result.to_str().unwrap()], 1).contains("an interpreter executed the kernels"));
}

#[test]
fn a_lost_gpu_and_a_machine_without_any() {
    let site = Site::new();
    site.mode("lose cuda:1");
    let slice = ["replicate", "--profile", "smoke", "--only-arms", "fp8,bf16,mxfp4-f"];
    let text = site.says(&slice, 0);
    assert!(text.contains("a run was lost on cuda:1; it is tried once more on another device"), "{text}");

    site.mode("lose cuda:0");
    let text = site.says(&["replicate", "--profile", "smoke", "--only-arms", "mxfp4-fd,mxfp4-fdw", "--gpus", "0"], 4);
    assert!(text.contains("CUDA_ERROR_ECC_UNCORRECTABLE") && text.contains("FAILED mxfp4-fd/1"), "{text}");

    site.mode("lose all");
    let text = site.says(&["replicate", "--profile", "smoke"], 4);
    assert!(
        text.contains("no device was left") && text.contains("lost two runs in a row") && text.contains("3 of 11 runs are finished"),
        "{text}"
    );

    site.mode("none");
    for arguments in [&slice[..], &["replicate", "--profile", "smoke", "--gpus", "0"]] {
        assert!(site.says(arguments, 4).contains("libcuda.so.1 was not found (stand-in); it comes with the driver"));
    }
    assert!(site.says(&["device-test"], 4).contains("not-run: no GPU can be used: libcuda.so.1 was not found (stand-in)"));
    assert!(site.says(&["doctor"], 0).contains("trainer: no GPU can be used: libcuda.so.1"));
    site.mode("well");
    assert!(
        site.says(&["doctor"], 0).contains("trainer: cuda:1 Stand-in GPU (sm_90a, 1.0 GiB; CUDA driver 12.8, NVRTC 12.8, cuBLASLt 12.8.4)")
    );
    assert!(site.says(&["replicate", "--profile", "smoke", "--gpus", "5"], 4).contains("there is no cuda:5"));
    assert!(site.says(&["replicate", "--gpus", "0"], 4).contains("this profile is for cpu"));
    assert!(site.says(&["replicate", "--profile", "smoke", "--only-arms", "fp9"], 2).contains("did you mean `fp8`?"));
    // Without a packed trainer there is nothing to build one from.
    std::fs::remove_file(site.path("trainer")).unwrap();
    assert!(site.says(&["replicate"], 2).contains("--trainer PATH"));
    // The real trainer of this build does not say what it was built from.
    assert!(site.says(&["replicate", "--trainer", trainer().to_str().unwrap()], 2).contains("cargo xtask pack"));
}

/// A profile whose tokenizer comes from elsewhere has no hash to write down: the trainer must take its run files all the same.
#[test]
fn every_profile_gives_run_files_that_the_trainer_reads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifests = study::manifest::Manifests::load(root).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for profile in manifests.profiles.values() {
        let model = &manifests.models[&profile.model];
        let path = folder.path().join(format!("{}.yaml", profile.id));
        let text = study::plan::step_run_file(&manifests, profile, model, 1, &study::plan::all_arms(profile)[0]).unwrap();
        std::fs::write(&path, text).unwrap();
        // The file is read first; then there is no data, or not enough memory.
        let output = Command::new(trainer()).arg("run").arg(&path).arg("--data").arg(folder.path().join("absent")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && !said.contains(".yaml:"), "{}: {said}", profile.id);
    }
}

#[test]
fn every_recipe_is_tested_on_a_model_that_the_trainer_takes() {
    let site = Site::new();
    let out = site.path("out");
    let text = site.says(&["device-test", "--device", "cuda:1", "--seed", "7", "--out", out.to_str().unwrap()], 0);
    let recipes = Manifests::load(site.0.path()).unwrap().recipes;
    assert!(text.contains(&format!("two steps, by recipe: {} checks, 0 failed", recipes.len())), "{text}");
    for id in recipes.keys() {
        assert!(text.contains(&format!("  {id} ")), "{id}: {text}");
    }
    let entries: Vec<PathBuf> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    let name = entries[0].file_name().unwrap().to_str().unwrap();
    assert!(entries.len() == 1 && name.starts_with("device-test-20") && name.ends_with("-stand-in-gpu"), "{entries:?}");
    let checks = std::fs::read_to_string(entries[0].join("checks.csv")).unwrap();
    assert_eq!(checks.lines().count(), 1 + recipes.len());
    let summary: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(entries[0].join("summary.json")).unwrap()).unwrap();
    assert_eq!((summary["failed"].as_u64(), summary["trainer_code"].as_str()), (Some(0), Some("feedfacefeedfacefeedfacefeedface")));
    assert!(entries[0].join("SHA256SUMS").is_file());
    site.mode("die after");
    assert!(site.says(&["device-test"], 1).contains("CUT SHORT"));
}
