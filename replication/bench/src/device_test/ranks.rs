//! `--gpus N` and `--ranks N`: what several ranks of this machine train is what one trains alone, byte for byte: whatever moves the numbers, with
//! another number of ranks in between, and after one of them was killed.
//!
//! Every run is a call of the trainer, on a small model and on the text of the manifests. A run that fails is a check that fails, with what the
//! trainer said; the others go on.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use campaign::data::tokens_of;
use campaign::error::CampaignError;
use campaign::system;
use campaign::toolchain::{ToolError, Trainer};
use contract::device::{DeviceId, DeviceKind, Devices, GpuFacts};
use contract::measurements::{Check, TestedDevice};
use contract::run_file::{BatchSection, BudgetSection, CheckpointSection};
use duct::Handle;
use study::files;
use study::manifest::Manifests;
use study::manifest::profile::{Profile, Shards};
use study::plan;

use super::{PROFILE, Request, Tested};

/// Random words that belong to a micro-batch, delayed scales, and signs. All is tried with the first.
const RECIPES: [&str; 3] = ["mxfp4-fdw-sr", "fp8", "mxfp4-fdw-rh16"];

/// Micro-batches of a step: the most ranks that can be tried.
pub const MOST: usize = 16;

/// Enough to be interrupted twice.
const STEPS: u64 = 64;

/// Steps of each part of a run that is interrupted.
const PART: usize = 10;

/// What has to be the same; done.json has the hashes of the others and the losses.
const FILES: [&str; 3] = ["metrics.jsonl", "model/model.safetensors", "done.json"];

/// Seconds within which all ranks have ended after one was killed: the silence timeout, 5 in the midst of a step, 10 until the launcher uses force
/// (docs/ranks.md), and some.
const ENDED: f64 = 30.0;

/// After which a run that does not end is given up.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// What moves the numbers.
#[derive(Debug, Clone, Copy)]
struct Way {
    exchange: Option<&'static str>,
    /// `NCCL_ALGO`.
    algorithm: Option<&'static str>,
}

/// As the trainer chooses.
const CHOSEN: Way = Way { exchange: None, algorithm: None };

impl Way {
    fn all(kind: DeviceKind) -> &'static [Self] {
        const HOST: Way = Way { exchange: Some("host"), algorithm: None };
        const RING: Way = Way { exchange: Some("nccl"), algorithm: Some("Ring") };
        const TREE: Way = Way { exchange: Some("nccl"), algorithm: Some("Tree") };
        match kind {
            DeviceKind::Cpu => &[CHOSEN],
            DeviceKind::Cuda | DeviceKind::Hip => &[CHOSEN, RING, TREE, HOST],
        }
    }

    fn name(self) -> String {
        let exchange = self.exchange.map_or(String::new(), |exchange| format!("-{exchange}"));
        exchange + &self.algorithm.map_or(String::new(), |algorithm| format!("-{algorithm}").to_lowercase())
    }
}

/// Where the ranks compute: the GPUs of a kind, or the processor; else what is missing.
fn place(trainer: &Trainer, count: usize, kind: DeviceKind, seed: u64) -> Result<Result<TestedDevice, String>, CampaignError> {
    if kind == DeviceKind::Cpu {
        let name = campaign::machine::cpu_model();
        let architecture = std::env::consts::ARCH.to_owned();
        return Ok(Ok(TestedDevice { device: kind, name, architecture, interpreted: false, libraries: Vec::new(), seed }));
    }
    let devices = campaign::devices::ask(trainer)?;
    Ok(of_gpus(&devices, kind, count).map(|first| TestedDevice {
        device: kind,
        name: first.name.clone().unwrap_or_default(),
        architecture: first.architecture.clone().unwrap_or_default(),
        interpreted: first.interpreted,
        libraries: first.libraries.clone(),
        seed,
    }))
}

/// The first of so many GPUs of a kind; else what is missing.
fn of_gpus(devices: &Devices, kind: DeviceKind, count: usize) -> Result<&GpuFacts, String> {
    let here: Vec<&GpuFacts> = devices.that_open(kind.word()).collect();
    match here.first() {
        Some(first) if here.len() >= count => Ok(first),
        Some(_) => Err(format!("{count} GPUs of one machine are needed, {} can be used here", here.len())),
        None => Err(devices.lines_of(kind.word()).join("; ")),
    }
}

/// With what the runs are made.
struct Means<'a> {
    manifests: &'a Manifests,
    trainer: &'a Trainer,
    /// Of this test alone; emptied first.
    folder: PathBuf,
    kind: DeviceKind,
    count: usize,
    seed: u64,
}

/// All checks of a number of ranks; Err: what is missing here.
///
/// # Errors
/// Data or run files that cannot be made.
pub(super) fn compare(
    manifests: &Manifests,
    count: usize,
    request: &Request,
    trainer: &Trainer,
    say: &dyn Fn(&str),
) -> Result<Result<Tested, String>, CampaignError> {
    let kind = request.device.parse::<DeviceId>().map_or(DeviceKind::Cuda, DeviceId::kind);
    let header = match place(trainer, count, kind, request.seed)? {
        Ok(header) => header,
        Err(missing) => return Ok(Err(missing)),
    };
    let folder = manifests.root.join("cache").join("device-test-ranks");
    let checks = Means { manifests, trainer, folder, kind, count, seed: request.seed }.compare(say)?;
    Ok(Ok(Tested { header, ranks: Some(count), checks, cut_short: None }))
}

impl Means<'_> {
    fn compare(&self, say: &dyn Fn(&str)) -> Result<Vec<Check>, CampaignError> {
        files::remove_folder(&self.folder)?;
        let shards = self.tokens()?;
        let mut checks = Vec::new();
        for (number, recipe) in RECIPES.iter().enumerate() {
            let text = self.run_file(recipe, &shards)?;
            let mut case = Case { means: self, recipe, text: &text, one: None, checks: &mut checks };
            say(&format!("{recipe}: one rank"));
            case.alone()?;
            let mut count = self.count;
            while count > 1 {
                let is_whole = number == 0 && count == self.count;
                for way in if is_whole { Way::all(self.kind) } else { &[CHOSEN] } {
                    say(&format!("{recipe}: {count} ranks{}", way.name().replace('-', " ")));
                    case.whole(count, *way)?;
                }
                count /= 2;
            }
            say(&format!("{recipe}: interrupted twice, and on with another number of ranks"));
            case.interrupted(&[self.count, self.count / 2, self.count])?;
            if number == 0 {
                say(&format!("{recipe}: one of {} ranks is killed", self.count));
                case.killed()?;
            }
        }
        Ok(checks)
    }

    /// Tokens of the manifests' own text: some is there wherever this program is.
    fn tokens(&self) -> Result<Shards, CampaignError> {
        let Manifests { root, tokenizers, .. } = self.manifests;
        let documents = ["train.txt", "validation.txt"].map(|name| self.folder.join(name));
        for (path, kinds) in documents.iter().zip([&["recipes", "profiles"][..], &["papers"]]) {
            files::write(path, self.text(kinds)?.as_bytes())?;
        }
        let tokenizer = &tokenizers[&self.manifests.profile(PROFILE)?.tokenizer];
        Ok(tokens_of(root, tokenizer, self.trainer, &documents, &self.data())?)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Documents of some folders of the manifests, in the order of their names.
    fn text(&self, kinds: &[&str]) -> Result<String, CampaignError> {
        let mut all = String::new();
        for kind in kinds {
            let folder = self.manifests.root.join("manifests").join(kind);
            for name in files::list(&folder)? {
                all += &files::read_text(&folder.join(name))?;
                all.push('\0');
            }
        }
        Ok(all)
    }

    fn run_file(&self, recipe: &str, shards: &Shards) -> Result<String, CampaignError> {
        let mut profile: Profile = self.manifests.profile(PROFILE)?.clone();
        profile.batch = BatchSection { sequences: MOST, accumulation: MOST };
        profile.budget = BudgetSection { steps: STEPS };
        profile.checkpoint = CheckpointSection { every_steps: STEPS / 4 };
        (profile.evaluation.every_steps, profile.evaluation.sequences) = (STEPS / 2, 8);
        profile.logging.quantisation_steps = vec![1, STEPS];
        Ok(plan::run_file_of(self.manifests, &profile, shards, recipe, self.seed)?)
    }
}

/// One recipe's runs.
struct Case<'a> {
    means: &'a Means<'a>,
    recipe: &'a str,
    /// run.yaml.
    text: &'a str,
    /// [`FILES`] of one rank; none where its run failed.
    one: Option<Vec<Vec<u8>>>,
    checks: &'a mut Vec<Check>,
}

impl Case<'_> {
    fn alone(&mut self) -> Result<(), CampaignError> {
        let folder = self.folder("one")?;
        let ended = self.start(&folder, 1, CHOSEN)?.wait();
        self.one = outcome(&folder);
        if self.one.is_none() {
            self.failed(format!("1 rank: {}", ended.reason(&folder)));
        }
        Ok(())
    }

    fn whole(&mut self, count: usize, way: Way) -> Result<(), CampaignError> {
        let folder = self.folder(&format!("{count}{}", way.name()))?;
        let ended = self.start(&folder, count, way)?.wait();
        let algorithm = way.algorithm.map_or(String::new(), |algorithm| format!(", NCCL_ALGO={algorithm}"));
        self.same(&folder, &ended, &format!("{count} ranks{algorithm}"));
        Ok(())
    }

    /// Each number of ranks goes on where the one before was interrupted.
    fn interrupted(&mut self, counts: &[usize]) -> Result<(), CampaignError> {
        let folder = self.folder("interrupted")?;
        let mut ended = Ended::default();
        for (index, count) in counts.iter().enumerate() {
            let run = self.start(&folder, *count, CHOSEN)?;
            if index + 1 < counts.len() {
                run.until(&folder, PART * (index + 1));
                system::tell_to_end(&run.handle.pids());
            }
            ended = run.wait();
        }
        let words: Vec<String> = counts.iter().map(usize::to_string).collect();
        let what = format!("{} ranks one after the other", words.join(", "));
        if sessions(&folder) == counts.len() {
            self.same(&folder, &ended, &what);
        } else {
            self.failed(format!("{what}: they did not go on from each other's checkpoint"));
        }
        Ok(())
    }

    fn killed(&mut self) -> Result<(), CampaignError> {
        let (count, folder) = (self.means.count, self.folder("killed")?);
        let run = self.start(&folder, count, CHOSEN)?;
        run.until(&folder, STEPS as usize / 2);
        let rank = run.handle.pids().first().and_then(|launcher| children(*launcher).pop());
        let killed = Instant::now();
        system::kill(&Vec::from_iter(rank));
        let ended = run.wait();
        if cfg!(target_os = "linux") {
            // A run that had ended by then shows nothing.
            let seconds = (rank.is_some() && ended.code != Some(0)).then(|| killed.elapsed().as_secs_f64());
            self.check(format!("{count} ranks, one killed: seconds until all have ended"), count as u64, seconds, ENDED);
        }
        let ended = self.start(&folder, count, CHOSEN)?.wait();
        self.same(&folder, &ended, &format!("{count} ranks, after one was killed"));
        Ok(())
    }

    fn folder(&self, name: &str) -> Result<PathBuf, CampaignError> {
        let folder = self.means.folder.join(self.recipe).join(name);
        files::write(&folder.join("run.yaml"), self.text.as_bytes())?;
        Ok(folder)
    }

    fn start(&self, folder: &Path, count: usize, way: Way) -> Result<Run, CampaignError> {
        let Means { trainer, kind, .. } = self.means;
        let command = if count == 1 { "run" } else { "launch" };
        let mut words: Vec<OsString> = vec![command.into(), folder.join("run.yaml").into(), "--data".into(), self.means.data().into()];
        if count > 1 {
            let option = if *kind == DeviceKind::Cpu { "--ranks" } else { "--gpus" };
            words.extend([option.into(), count.to_string().into()]);
        }
        words.extend(["--device".into(), kind.word().into()]);
        words.extend(way.exchange.filter(|_| count > 1).iter().flat_map(|exchange| ["--exchange".into(), (*exchange).into()]));
        let command = trainer.command(words).stdout_null().stderr_path(folder.join("said.txt"));
        let command = way.algorithm.iter().fold(command, |command, algorithm| command.env("NCCL_ALGO", algorithm));
        let handle = command.start().map_err(|source| ToolError::Start { program: "the trainer".to_owned(), source })?;
        Ok(Run { handle, started: Instant::now() })
    }

    /// Whether a folder's files are those of one rank.
    fn same(&mut self, folder: &Path, ended: &Ended, what: &str) {
        let Some(one) = &self.one else { return };
        let Some(found) = outcome(folder) else {
            return self.failed(format!("{what}: {}", ended.reason(folder)));
        };
        let differ = one.iter().zip(&found).filter(|(one, found)| one != found).count();
        let bytes = one.iter().map(Vec::len).sum::<usize>();
        let way = transport(folder).map_or(String::new(), |transport| format!(", by {transport}"));
        self.check(format!("{what}{way}: files of one rank that differ"), bytes as u64, Some(differ as f64), 0.0);
    }

    fn failed(&mut self, detail: String) {
        self.check(detail, 0, None, 0.0);
    }

    fn check(&mut self, detail: String, elements: u64, difference: Option<f64>, bound: f64) {
        let passed = difference.is_some_and(|difference| difference <= bound);
        let name = self.recipe.to_owned();
        self.checks.push(Check { group: "ranks".into(), name, detail, elements, difference, bound, passed });
    }
}

/// A call of the trainer that has been started.
struct Run {
    handle: Handle,
    started: Instant,
}

/// How it ended.
#[derive(Debug, Default)]
struct Ended {
    /// None: it was given up, or a signal ended it.
    code: Option<i32>,
}

impl Run {
    /// Until so many steps have been made, or it has ended.
    fn until(&self, folder: &Path, steps: usize) {
        while self.is_at_work() && steps_of(folder) < steps {
            std::thread::sleep(LOOK);
        }
    }

    fn is_at_work(&self) -> bool {
        self.started.elapsed() < PATIENCE && matches!(self.handle.try_wait(), Ok(None))
    }

    fn wait(self) -> Ended {
        while self.is_at_work() {
            std::thread::sleep(LOOK);
        }
        if matches!(self.handle.try_wait(), Ok(None)) {
            // Linux interrupts its ranks.
            system::kill(&self.handle.pids());
        }
        Ended { code: self.handle.wait().ok().and_then(|output| output.status.code()) }
    }
}

impl Ended {
    /// The trainer's own words, if it has any.
    fn reason(&self, folder: &Path) -> String {
        let said = std::fs::read_to_string(folder.join("said.txt")).unwrap_or_default();
        let error = said.lines().find_map(|line| line.strip_prefix("error: "));
        match (error, self.code) {
            (Some(error), _) => error.to_owned(),
            (None, Some(code)) => format!("the trainer ended with {code}"),
            (None, None) => format!("the trainer did not end within {} s, or was killed", PATIENCE.as_secs()),
        }
    }
}

/// [`FILES`] of a run; none where one is not there.
fn outcome(folder: &Path) -> Option<Vec<Vec<u8>>> {
    FILES.iter().map(|name| std::fs::read(folder.join(name)).ok()).collect()
}

/// Lines of a log that are not broken; its end may be being written.
fn lines(folder: &Path, name: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn steps_of(folder: &Path) -> usize {
    lines(folder, "timing.jsonl").iter().filter(|line| line["kind"] == "step").count()
}

/// How often its run began or went on.
fn sessions(folder: &Path) -> usize {
    lines(folder, "timing.jsonl").iter().filter(|line| line["kind"] == "session").count()
}

/// What moved the numbers, as the trainer says.
fn transport(folder: &Path) -> Option<String> {
    lines(folder, "exchange.jsonl").iter().rev().find_map(|line| line["transport"].as_str().map(str::to_owned))
}

/// Processes that one has started, as Linux tells; none elsewhere.
fn children(process: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}
