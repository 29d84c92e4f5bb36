//! `cargo xtask device-test`: every recipe of the repository on a small model, a GPU against the CPU, as a table and as a result directory.
//!
//! The trainer compares and bounds; this file gives it run files, groups its lines and writes them down. Without a GPU there is no table
//! but a `not-run` that names what is missing. With `--gpus` or `--ranks` several ranks are compared with one ([`ranks`]).

pub mod ranks;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use campaign::devices;
use campaign::environment::{self, git_state};
use campaign::error::CampaignError;
use campaign::machine;
use campaign::toolchain::{self, ToolError, Trainer, build_trainer, captured, last_lines};
use contract::device::{DeviceId, DeviceKind};
use contract::json;
use contract::measurements::{Check, DeviceTestLine, Summary, TestedDevice};
use duct::Expression;
use study::device_test::{self as table, Row};
use study::files;
use study::folder;
use study::manifest::profile::Detect;
use study::manifest::{ManifestError, Manifests};
use study::plan::{self, Build};
use study::provenance;

/// The profile whose model and batch the steps are compared on.
const PROFILE: &str = "device-test";

/// What `device-test` was asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// `cuda`, `cuda:N`, `hip`, `hip:N`; `cpu` for ranks that are processes.
    pub device: String,
    /// So many against one, instead of a GPU against the CPU.
    pub ranks: Option<usize>,
    pub seed: u64,
    /// Where the result directory goes; None: none is written.
    pub out: Option<PathBuf>,
    /// A trainer that was built elsewhere.
    pub trainer: Option<PathBuf>,
}

#[derive(Debug)]
pub enum Outcome {
    /// There is no such device here: what is missing.
    NotRun(String),
    /// The table, and the result directory if one was asked for.
    Tested(Box<Tested>, Option<PathBuf>),
}

#[derive(Debug, Clone)]
pub struct Tested {
    pub header: TestedDevice,
    /// That were compared with one.
    pub ranks: Option<usize>,
    /// In order.
    pub checks: Vec<Check>,
    /// Why the trainer ended before its last line; None: it did not.
    pub cut_short: Option<String>,
}

/// Compares, and writes a result directory if one is asked for.
///
/// # Errors
/// A wrong manifest, a trainer that cannot be built, or files that cannot be written.
pub fn run(root: &Path, request: &Request, say: &dyn Fn(&str)) -> Result<Outcome, CampaignError> {
    let manifests = Manifests::load(root)?;
    if let Some(missing) = nothing_here(root, &manifests, request) {
        return Ok(Outcome::NotRun(missing));
    }
    let (trainer, build) = trainer(root, request, say)?;
    let tested = match request.ranks {
        Some(ranks) => ranks::compare(&manifests, ranks, request, &trainer, say)?,
        None => {
            let folder = root.join("cache").join("device-test");
            let files = run_files(&manifests, &folder, manifests.recipes.keys().map(String::as_str))?;
            say(&format!("comparing {} with the CPU: kernels, then two steps of {} recipes", request.device, files.len()));
            call(trainer.command(arguments(&request.device, request.seed, files)))?
        }
    };
    let tested = match tested {
        Ok(tested) => tested,
        Err(missing) => return Ok(Outcome::NotRun(missing)),
    };
    let directory = request.out.as_ref().map(|out| write(root, out, &tested, &build)).transpose()?;
    Ok(Outcome::Tested(Box::new(tested), directory))
}

/// What is missing, if that can be told without building a trainer.
fn nothing_here(root: &Path, manifests: &Manifests, request: &Request) -> Option<String> {
    let kind = request.device.parse::<DeviceId>().ok().filter(|device| *device != DeviceId::Cpu)?.kind().word();
    let at_hand = toolchain::at_hand(root, request.trainer.as_deref());
    if let Some(devices) = at_hand.and_then(|trainer| devices::ask(&trainer).ok()) {
        return devices.that_open(kind).next().is_none().then(|| devices.lines_of(kind).join("; "));
    }
    let hardware = manifests.hardware.values().find(|hardware| hardware.device.word() == kind)?;
    let Detect { file, .. } = &hardware.detect;
    let file = file.as_ref().filter(|file| !Path::new(file).exists())?;
    let needs = match hardware.device {
        DeviceKind::Hip => "an AMD GPU of gfx950, ROCm 7 with hipBLASLt, and a clang for AMD GPUs is needed",
        _ => "an NVIDIA GPU, its driver, NVRTC and cuBLASLt is needed",
    };
    Some(format!("there is no {file}; a machine with {needs}"))
}

fn trainer(root: &Path, request: &Request, say: &dyn Fn(&str)) -> Result<(Trainer, Build), ToolError> {
    if let Some(program) = toolchain::prebuilt(root, request.trainer.as_deref()) {
        let trainer = Trainer { program };
        let build = toolchain::prebuilt_identity(&trainer)?;
        return Ok((trainer, build));
    }
    build_trainer(root, say)
}

/// A run file for each of `recipes`, below `folder`.
pub(crate) fn run_files<'a>(
    manifests: &Manifests,
    folder: &Path,
    recipes: impl Iterator<Item = &'a str>,
) -> Result<Vec<PathBuf>, CampaignError> {
    let profile = manifests.profile(PROFILE)?;
    let model = &manifests.models[&profile.model];
    files::remove_folder(folder)?;
    let write = |recipe: &str| -> Result<PathBuf, CampaignError> {
        let path = folder.join(recipe).join("run.yaml");
        let text = plan::step_run_file(manifests, profile, model, profile.batch.sequences, recipe)?;
        files::write(&path, text.as_bytes())?;
        Ok(path)
    };
    recipes.map(write).collect()
}

/// The trainer's, for its device-test.
pub(crate) fn arguments(device: &str, seed: u64, run_files: Vec<PathBuf>) -> Vec<OsString> {
    let options = ["device-test", "--device", device, "--seed", &seed.to_string()].map(OsString::from);
    options.into_iter().chain(run_files.into_iter().map(OsString::from)).collect()
}

/// Calls the trainer's device-test and reads its lines; Err: there is no such device.
pub(crate) fn call(command: Expression) -> Result<Result<Tested, String>, CampaignError> {
    let output = captured(&command.stdout_capture().stderr_capture());
    let output = output.map_err(|source| ToolError::Start { program: "the trainer".to_owned(), source })?;
    let said = String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("error: ").to_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.trim().is_empty() {
        let missing = if said.is_empty() { format!("the trainer ended with {}", output.status) } else { last_lines(&said, 5) };
        // Wrong usage is no missing device.
        return match output.status.code() {
            Some(2) => Err(ManifestError::new(&Manifests::path("profiles", PROFILE), missing).into()),
            _ => Ok(Err(missing)),
        };
    }
    let ended = format!("{}: {}", output.status, if said.is_empty() { "it said nothing" } else { &said });
    let tested = parse(&text, &ended).map_err(|what| ToolError::Failed {
        what: "reading the trainer's checks".to_owned(),
        status: "lines that do not follow their schema".to_owned(),
        code: None,
        output: what,
    })?;
    Ok(Ok(tested))
}

/// Lines of the trainer; `ended` is what to say when the last one is missing.
///
/// # Errors
/// The first line that does not follow its schema, or counts that do not agree.
pub fn parse(text: &str, ended: &str) -> Result<Tested, String> {
    let (mut header, mut checks, mut summary) = (None, Vec::new(), None);
    for line in json::read::<DeviceTestLine>("its output", text) {
        match line.map_err(|error| error.to_string())?.1 {
            DeviceTestLine::Device(first) => header = Some(first),
            DeviceTestLine::Check(check) => checks.push(check),
            DeviceTestLine::Summary(Summary { checks, failed }) => summary = Some((checks, failed)),
        }
    }
    let header = header.ok_or("there is no line about the device")?;
    let counted = (checks.len() as u64, table::failed(&checks) as u64);
    if let Some(said) = summary.filter(|said| *said != counted) {
        return Err(format!("the last line counts {said:?} checks and failures, the lines {counted:?}"));
    }
    Ok(Tested { header, ranks: None, checks, cut_short: summary.is_none().then(|| ended.to_owned()) })
}

impl Tested {
    /// Whether every check was made and passed.
    pub fn holds(&self) -> bool {
        self.cut_short.is_none() && !self.checks.is_empty() && self.failed() == 0
    }

    /// Checks that did not pass.
    pub fn failed(&self) -> usize {
        table::failed(&self.checks)
    }
}

/// `0.31 of the bound`, `every bit equal` or `12 elements differ`.
fn result(row: &Row) -> String {
    let bits = if row.differ == 0.0 { "every bit equal".to_owned() } else { format!("{} elements differ", row.differ) };
    match row.worst {
        Some(worst) if row.differ == 0.0 => format!("{worst:.3} of the bound"),
        Some(worst) => format!("{worst:.3} of the bound, {bits}"),
        None => bits,
    }
}

impl fmt::Display for Tested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TestedDevice { name, architecture, interpreted, libraries, seed, .. } = &self.header;
        let parts: Vec<String> =
            std::iter::once(architecture.clone()).chain((!libraries.is_empty()).then(|| libraries.join(", "))).collect();
        let parts = parts.join("; ");
        match self.ranks {
            None => writeln!(f, "{name} ({parts}) against the CPU, seed {seed}")?,
            Some(ranks) => writeln!(f, "{name} ({parts}): {ranks} ranks against one, seed {seed}")?,
        }
        if *interpreted {
            writeln!(f, "interpreted: the processor executed the machine code; this was not run on a device")?;
        }
        let titles = [
            ("operand", "operands, bit for bit"),
            ("kernel", "kernels"),
            ("step", "two steps, by recipe"),
            ("determinism", "run against run"),
            ("ranks", "several ranks against one, by recipe"),
        ];
        let rows = table::rows(&self.checks);
        let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        for (group, title) in titles {
            let rows: Vec<&Row> = rows.iter().filter(|row| row.group == group).collect();
            if rows.is_empty() {
                continue;
            }
            let (checks, failed) = rows.iter().fold((0, 0), |sum, row| (sum.0 + row.checks, sum.1 + row.failed));
            writeln!(f, "{title}: {checks} checks, {failed} failed")?;
            for row in rows {
                let word = if row.failed == 0 { "passed".to_owned() } else { format!("{} FAILED", row.failed) };
                writeln!(f, "  {:width$}  {:>5}  {word:10}  {}", row.name, row.checks, result(row))?;
            }
        }
        for check in self.checks.iter().filter(|check| !check.passed).take(20) {
            let difference = check.difference.map_or("not a number".to_owned(), |difference| format!("{difference:e}"));
            writeln!(f, "FAILED {} {}, {}: {difference}, bound {:e}", check.group, check.name, check.detail, check.bound)?;
        }
        if let Some(ended) = &self.cut_short {
            writeln!(f, "CUT SHORT: the trainer ended before its last line: {ended}")?;
        }
        writeln!(f, "{} checks, {} failed", self.checks.len(), self.failed())
    }
}

/// `device-test-<date>-<gpu>/` with checks.csv, summary.json and SHA256SUMS; an earlier one of the day and GPU is replaced.
fn write(root: &Path, out: &Path, tested: &Tested, build: &Build) -> Result<PathBuf, CampaignError> {
    let date = environment::today();
    let together = tested.ranks.map_or(String::new(), |ranks| format!("-x{ranks}"));
    let name = format!("device-test-{date}-{}{together}", study::machine::tidy(&tested.header.name));
    let target = out.join(&name);
    let git = git_state(root);
    let summary = table::Summary {
        schema: table::SCHEMA.to_owned(),
        date,
        device: tested.header.clone(),
        ranks: tested.ranks,
        commit: git.commit,
        dirty: git.dirty,
        trainer_code: build.sources.clone(),
        toolchain: build.toolchain.clone(),
        processor: machine::cpu_model(),
        checks: tested.checks.len(),
        failed: tested.failed(),
        cut_short: tested.cut_short.clone(),
        rows: table::table(&tested.checks),
    };
    // Strings and finite numbers: cannot fail.
    let text = serde_json::to_string_pretty(&summary).unwrap_or_default() + "\n";
    folder::make(&target, |aside| -> Result<(), CampaignError> {
        files::write(&aside.join(table::SUMMARY), text.as_bytes())?;
        files::write(&aside.join(table::CHECKS), table::csv(&tested.checks).as_bytes())?;
        Ok(provenance::write_list(aside)?)
    })?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use contract::schema::DEVICE_TEST as LINES;

    use super::*;

    fn lines(extra: &str) -> String {
        let check = |group: &str, name: &str, difference: &str, bound: f64, passed: bool| {
            format!(
                "{{\"schema\":\"{LINES}\",\"kind\":\"check\",\"group\":\"{group}\",\"name\":\"{name}\",\"detail\":\"d, e\",\"elements\":8,\"difference\":{difference},\"bound\":{bound},\"passed\":{passed}}}\n"
            )
        };
        let header = format!(
            "{{\"schema\":\"{LINES}\",\"kind\":\"device\",\"device\":\"cuda\",\"name\":\"NVIDIA H200\",\"architecture\":\"sm_90a\",\"libraries\":[\"NVRTC 12.8\"],\"seed\":1}}\n"
        );
        header
            + &check("operand", "e2m1 1x32", "0", 0.0, true)
            + &check("step", "fp8", "0.01", 0.1, true)
            + &check("step", "fp8", "0.08", 0.1, true)
            + &check("kernel", "swiglu", "null", 0.1, false)
            + &check("determinism", "fp8", "3", 0.0, false)
            + extra
    }

    #[test]
    fn checks_are_grouped_with_their_worst() {
        let summary = format!("{{\"schema\":\"{LINES}\",\"kind\":\"summary\",\"checks\":5,\"failed\":2}}\n");
        let tested = parse(&lines(&summary), "").unwrap();
        assert!(!tested.holds() && tested.cut_short.is_none());
        let rows = table::rows(&tested.checks);
        let names: Vec<&str> = rows.iter().map(|row| row.group.as_str()).collect();
        assert_eq!(names, ["operand", "kernel", "step", "determinism"]);
        assert_eq!((rows[2].checks, rows[2].failed, result(&rows[2]).as_str()), (2, 0, "0.800 of the bound"));
        assert_eq!(result(&rows[0]), "every bit equal");
        assert_eq!(result(&rows[3]), "3 elements differ");
        let text = tested.to_string();
        assert!(text.contains("FAILED kernel swiglu, d, e: not a number, bound 1e-1") && text.contains("5 checks, 2 failed"), "{text}");
        assert_eq!(table::csv(&tested.checks).lines().nth(1), Some("operand,e2m1 1x32,\"d, e\",8,0.0,0.0,true"));
    }

    #[test]
    fn a_trainer_that_died_or_miscounts_has_not_passed() {
        let whole = lines("").lines().take(4).map(|line| format!("{line}\n")).collect::<String>();
        let cut = parse(&whole, "signal: 9").unwrap();
        assert!(!cut.holds() && cut.failed() == 0 && cut.to_string().contains("CUT SHORT") && cut.to_string().contains("signal: 9"));
        let wrong = format!("{{\"schema\":\"{LINES}\",\"kind\":\"summary\",\"checks\":5,\"failed\":1}}\n");
        assert!(parse(&lines(&wrong), "").unwrap_err().contains("(5, 1)"));
        assert!(parse("{\"schema\":\"other\"}", "").unwrap_err().contains("schema `other`"));
        assert!(parse("", "").unwrap_err().contains("no line about the device"));
    }
}
