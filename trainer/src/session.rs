//! `trainer run`: one run from its run file to `done.json`, resumable at any instant.
//!
//! The order within a step is fixed: train, log, evaluate, checkpoint. What a kill loses is done again from the newest
//! checkpoint, with the same words and the same order of arithmetic, so the files come out the same.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::digest;
use contract::exchange::Spent;
use contract::json::Document;
use contract::metrics::{self, Diverged, Evaluation, MetricsLine, Train};
use contract::outcome::{Done, Failed, Status};
use contract::run_file::{LoadedRun, RunFile, ShardSection};

use crate::checkpoint::{LogMarks, Progress, State, Writer};
use crate::data::TokenStream;
use crate::device::Device;
use crate::error::TrainerError;
use crate::interrupt::Interrupt;
use crate::metrics::{Log, write_json};
use crate::mllog::Mllog;
use crate::model_export;
use crate::ranks::{self, Ranks};
use crate::readings::Reading;
use crate::resumption::{Logs, Start, resume};
use crate::tensorboard::Events;
use crate::timing::{Exchanges, Timing};
use crate::trainer_state::{Exchanged, Training};

/// Where a run reads and writes, and how it talks.
#[derive(Debug, Clone)]
pub struct Options {
    /// The run file; everything is written beside it.
    pub run_file: PathBuf,
    /// Holds the token files and, if it is there, `tokenizer.json`.
    pub data: PathBuf,
    /// One line a step to stderr.
    pub progress: bool,
    /// How long to wait for another trainer that is at work on the same run.
    pub patience: Duration,
    /// Neither the last step's checkpoint nor the weights are written; done.json has the weights' hash nevertheless.
    pub logs_only: bool,
    /// Folder for TensorBoard's event files; rank 0 writes them.
    pub tensorboard: Option<PathBuf>,
}

/// The two token streams of a run.
#[derive(Debug)]
pub struct Streams {
    pub train: TokenStream,
    pub validation: TokenStream,
}

impl Streams {
    /// Opens both and compares lengths and hashes with the run file's.
    pub fn open(run: &RunFile, data: &Path) -> Result<Self, TrainerError> {
        Ok(Self {
            train: open_stream(data, &run.data.train, "data.train")?,
            validation: open_stream(data, &run.data.validation, "data.validation")?,
        })
    }
}

fn open_stream(data: &Path, shard: &ShardSection, key: &str) -> Result<TokenStream, TrainerError> {
    let prefix = data.join(&shard.prefix);
    let wrong = |error: &dyn std::fmt::Display| TrainerError::BadFile(format!("{error} ({key} of the run file)"));
    let stream = TokenStream::open(&prefix).map_err(|error| wrong(&error))?;
    if stream.len() as u64 != shard.tokens {
        return Err(TrainerError::BadFile(format!(
            "{}.bin holds {} tokens, {key}.tokens says {}; prepare the data again",
            prefix.display(),
            stream.len(),
            shard.tokens
        )));
    }
    stream.verify(&shard.sha256_bin, &shard.sha256_idx).map_err(|error| wrong(&error))?;
    Ok(stream)
}

/// Runs to the end, or until interrupted: one rank, or one of several. Only rank 0 holds the lock; the others write their shards of checkpoints
/// and nothing else.
pub fn run<D: Device>(
    options: &Options,
    device: &impl Fn(&RunFile) -> Result<D, TrainerError>,
    interrupt: &Interrupt,
    ranks: &Arc<dyn Ranks<D>>,
) -> Result<(), TrainerError> {
    let result = if ranks.rank() == 0 {
        run_and_write(options, device, interrupt, ranks)
    } else {
        locked_run(options, None, device, interrupt, ranks)
    };
    match &result {
        Ok(()) | Err(TrainerError::Interrupted { .. }) => ranks.leave(),
        Err(error) => ranks.abort(error),
    }
    result
}

/// What rank 0 does.
fn run_and_write<D: Device>(
    options: &Options,
    device: &impl Fn(&RunFile) -> Result<D, TrainerError>,
    interrupt: &Interrupt,
    ranks: &Arc<dyn Ranks<D>>,
) -> Result<(), TrainerError> {
    let directory = directory_of(&options.run_file);
    // The lock goes away with the process, however it ends. Being refused is no failure of the run: someone else is at it.
    let lock = File::open(&options.run_file)
        .map_err(|source| TrainerError::BadInput(format!("{}: cannot read the run file: {source}", options.run_file.display())))?;
    wait_for_lock(&lock, options)?;
    let result = locked_run(options, Some(&directory), device, interrupt, ranks);
    if let Err(error) = &result
        && !matches!(error, TrainerError::Interrupted { .. })
        && options.run_file.exists()
    {
        // Where even this cannot be written, the exit code and stderr still say it.
        let _ = write_json(&directory.join("failed.json"), &Failed { error: error.to_string() });
    }
    result
}

fn directory_of(run_file: &Path) -> PathBuf {
    match run_file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A trainer that outlived a killed harness holds the lock until its run is over: wait a while for it, its work is not lost.
fn wait_for_lock(lock: &File, options: &Options) -> Result<(), TrainerError> {
    let deadline = Instant::now() + options.patience;
    while let Err(std::fs::TryLockError::WouldBlock) = lock.try_lock() {
        if Instant::now() > deadline {
            return Err(TrainerError::BadInput(format!(
                "{}: another trainer is running it; wait for that one or stop it",
                options.run_file.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// `directory` is rank 0's, for the files that it alone writes.
fn locked_run<D: Device>(
    options: &Options,
    directory: Option<&Path>,
    make_device: &impl Fn(&RunFile) -> Result<D, TrainerError>,
    interrupt: &Interrupt,
    ranks: &Arc<dyn Ranks<D>>,
) -> Result<(), TrainerError> {
    let loaded = RunFile::load(&options.run_file)?;
    let mut done = false;
    if let Some(directory) = directory {
        remove_if_there(&directory.join("failed.json"))?;
        done = is_done(directory, &loaded.sha256);
        if done && options.progress {
            eprintln!("{}: already done", options.run_file.display());
        }
        if !done {
            remove_if_there(&directory.join("done.json"))?;
        }
    }
    if ranks::any(&**ranks, done)? {
        return Ok(());
    }
    let device = make_device(&loaded.run.micro_batch())?;
    device.check_memory(&loaded.run.micro_batch())?;
    let streams = Streams::open(&loaded.run, &options.data)?;
    let tokenizer = model_export::find_tokenizer(&options.data, &loaded.run)?;
    let readings = Reading::all(&loaded.run, make_device)?;
    let mut session = Session::start(options, directory, loaded, (&device, ranks), readings, &streams)?;
    session.train(&streams, interrupt)?;
    session.finish(tokenizer.as_deref())?;
    // Rank 0 may fail in its last file: then all have failed.
    ranks.barrier()
}

fn remove_if_there(path: &Path) -> Result<(), TrainerError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(TrainerError::write(path, source)),
        _ => Ok(()),
    }
}

/// Whether done.json says that this very run is finished, and metrics.jsonl is what it vouches for.
fn is_done(directory: &Path, run_sha256: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(directory.join("done.json")) else { return false };
    let Ok(done) = Done::from_json("done.json", &text) else { return false };
    let metrics = std::fs::read(directory.join("metrics.jsonl")).map(|bytes| digest::sha256(&bytes));
    done.run_sha256 == run_sha256 && metrics.is_ok_and(|found| found == done.metrics_sha256)
}

struct Session<'a, D: Device> {
    options: &'a Options,
    run: RunFile,
    run_sha256: String,
    ranks: Arc<dyn Ranks<D>>,
    training: Training<D>,
    readings: Vec<Reading<D>>,
    progress: Progress,
    diverged: bool,
    checkpoints: Writer,
    /// Rank 0's.
    files: Option<Files<'a>>,
}

/// What the session writes.
struct Files<'a> {
    directory: &'a Path,
    metrics: Log,
    mllog: Mllog,
    timing: Timing,
    /// Of several ranks.
    exchanges: Option<Exchanges>,
    events: Option<Events>,
}

impl Files<'_> {
    fn metric(&mut self, line: &MetricsLine) -> Result<(), TrainerError> {
        self.metrics.json(line)?;
        self.events.as_mut().map_or(Ok(()), |events| events.record(line))
    }
}

impl<'a, D: Device> Session<'a, D> {
    /// Resumes from the checkpoint if there is a good one, else starts.
    fn start(
        options: &'a Options,
        directory: Option<&'a Path>,
        loaded: LoadedRun,
        (device, ranks): (&D, &Arc<dyn Ranks<D>>),
        readings: Vec<Reading<D>>,
        streams: &Streams,
    ) -> Result<Self, TrainerError> {
        let LoadedRun { run, sha256: run_sha256 } = loaded;
        let mut training = Training::among(ranks.clone(), device.clone(), run.clone(), streams.train.len())?;
        let place = directory_of(&options.run_file);
        let copies = device.has_room_for_copies(&run.micro_batch(), ranks.size());
        let checkpoints = Writer::among(&**ranks, &place, copies)?;
        let resumed = resume(&place, &run_sha256, (&**ranks, checkpoints.is_together()), &mut training)?;
        let goes_on = resumed.is_some();
        let (progress, logs) = resumed.map_or_else(Default::default, |Start { progress, logs }| (progress, logs));
        let files = match directory {
            Some(directory) => {
                let logs = logs.map_or_else(|| Logs::create(directory, &run, training.model.layout().total), Ok)?;
                let timing = Timing::start(&directory.join("timing.jsonl"), &device.machine(), ranks.size(), progress.step)?;
                let start = |transport| Exchanges::start(&directory.join("exchange.jsonl"), ranks.size(), transport, progress.step);
                let exchanges = ranks.transport().map(start).transpose()?;
                let start = |folder: &PathBuf| Events::start(folder, &run.run, progress.step);
                let events = options.tensorboard.as_ref().map(start).transpose()?;
                Some(Files { directory, metrics: logs.metrics, mllog: logs.mllog, timing, exchanges, events })
            }
            None => None,
        };
        let ranks = ranks.clone();
        let mut session = Self { options, run, run_sha256, ranks, training, readings, progress, diverged: false, checkpoints, files };
        if !goes_on {
            session.evaluate(streams)?;
        }
        Ok(session)
    }

    fn train(&mut self, streams: &Streams, interrupt: &Interrupt) -> Result<(), TrainerError> {
        let steps = self.run.budget.steps;
        while self.progress.step < steps && !self.diverged {
            let written = self.checkpoints.is_written()?;
            let said = self.ranks.gather(&[u8::from(interrupt.is_raised()), u8::from(written)])?;
            if said.iter().all(|said| said.get(1) == Some(&1)) {
                self.checkpoints.place(&*self.ranks)?;
            }
            if said.iter().any(|said| said.first() == Some(&1)) {
                self.checkpoint()?;
                self.checkpoints.finish(&*self.ranks)?;
                // Nobody ends before the checkpoint is there.
                self.ranks.barrier()?;
                return Err(TrainerError::Interrupted { step: self.progress.step });
            }
            let step = self.progress.step + 1;
            self.step(streams, step)?;
            if self.diverged {
                break;
            }
            if step.is_multiple_of(self.run.evaluation.every_steps) || step == steps {
                self.evaluate(streams)?;
            }
            let is_due = if step == steps { !self.options.logs_only } else { step.is_multiple_of(self.run.checkpoint.every_steps) };
            if !self.diverged && is_due {
                self.checkpoint()?;
            }
        }
        if let Some(told) = self.files.as_ref().and_then(|files| files.exchanges.as_ref()?.told()) {
            eprintln!("{told}");
        }
        Ok(())
    }

    fn step(&mut self, streams: &Streams, step: u64) -> Result<(), TrainerError> {
        let started = Instant::now();
        self.training.load(&streams.train, step)?;
        let observed = self.run.logging.quantisation_steps.contains(&step);
        if observed {
            self.training.observe(step);
        }
        let result = self.training.forward_backward(step)?;
        let records = self.training.observed();
        if let Some(reason) = result.divergence() {
            return self.diverge(step, reason);
        }
        self.training.update(step, result.gradient_norm)?;
        let seconds = started.elapsed().as_secs_f64();
        let exchanged = self.training.exchanged()?;
        self.progress.step = step;
        self.progress.train_loss = Some(result.loss);
        let tokens = self.tokens();
        let Some(files) = &mut self.files else { return Ok(()) };
        files.timing.step(step, seconds)?;
        if let Some(exchanges) = &mut files.exchanges {
            for (rank, Exchanged { gradients, norm, parameters }) in (0..).zip(exchanged) {
                exchanges.step(Spent { step, rank, seconds, gradients, norm, parameters })?;
            }
        }
        if step.is_multiple_of(self.run.logging.train_every_steps) || step == self.run.budget.steps {
            let learning_rate = self.training.learning_rate(step);
            let (loss, grad_norm) = (Some(result.loss), Some(result.gradient_norm));
            files.metric(&MetricsLine::Train(Train { step, tokens, loss, grad_norm, learning_rate }))?;
        }
        for record in records {
            files.metric(&MetricsLine::Quantisation(Box::new(record)))?;
        }
        if self.options.progress {
            let rate = self.run.tokens_per_step() as f64 / seconds;
            eprintln!("step {step}/{} loss {:.3} tokens/s {rate:.0}", self.run.budget.steps, result.loss);
        }
        Ok(())
    }

    fn evaluate(&mut self, streams: &Streams) -> Result<(), TrainerError> {
        let (started, step) = (Instant::now(), self.progress.step);
        let loss = self.training.evaluate(&streams.validation, step)?;
        if let Some(files) = &mut self.files {
            files.timing.evaluation(step, started.elapsed().as_secs_f64())?;
        }
        if !loss.is_finite() {
            return self.diverge(step, "evaluation loss is not finite");
        }
        let tokens = self.tokens();
        if let Some(files) = &mut self.files {
            files.metric(&MetricsLine::Evaluation(Evaluation { step, tokens, loss: Some(loss) }))?;
        }
        self.read(streams)?;
        self.progress.validation_loss = Some(loss);
        let samples = self.samples();
        if self.run.target_loss.is_some_and(|target| loss <= target) {
            self.progress.target_reached_at.get_or_insert(samples);
        }
        let Some(files) = &mut self.files else { return Ok(()) };
        files.mllog.evaluation(&self.run, samples, loss, step == self.run.budget.steps)
    }

    /// The same weights through the run's other forward passes, where one is due.
    fn read(&mut self, streams: &Streams) -> Result<(), TrainerError> {
        let (step, tokens) = (self.progress.step, self.tokens());
        let Some(section) = &self.run.evaluation.readings else { return Ok(()) };
        if !step.is_multiple_of(section.every_steps) && step != self.run.budget.steps {
            return Ok(());
        }
        for reading in &mut self.readings {
            let loss = reading.loss(&*self.ranks, &self.training.parameters, &streams.validation, step)?;
            let Some(files) = &mut self.files else { continue };
            files.metric(&MetricsLine::Reading(metrics::Reading {
                step,
                tokens,
                recipe: reading.recipe().to_owned(),
                loss: Some(loss),
            }))?;
        }
        Ok(())
    }

    /// A number is no longer finite: the run ends here, and says so.
    fn diverge(&mut self, step: u64, reason: &'static str) -> Result<(), TrainerError> {
        self.diverged = true;
        let Some(files) = &mut self.files else { return Ok(()) };
        files.metric(&MetricsLine::Diverged(Diverged { step, reason: reason.into() }))
    }

    /// Begins to write one.
    fn checkpoint(&mut self) -> Result<(), TrainerError> {
        let state = match &self.files {
            Some(Files { metrics, mllog, .. }) => {
                metrics.sync()?;
                mllog.sync()?;
                let marks = LogMarks { metrics_length: metrics.length(), metrics_sha256: metrics.sha256(), mllog_length: mllog.length() };
                Some(State::new(&self.run_sha256, &self.progress, marks))
            }
            None => None,
        };
        self.checkpoints.begin(&*self.ranks, &self.training, self.progress.step, state)
    }

    /// Final weights, then the end of the last checkpoint and of the logs, then done.json.
    fn finish(&mut self, tokenizer: Option<&Path>) -> Result<(), TrainerError> {
        // All ranks give theirs; rank 0 writes.
        let parameters = if self.diverged { None } else { self.training.collect_parameters()? };
        let model_sha256 = parameters.map(|parameters| self.export(&parameters, tokenizer)).transpose()?.flatten();
        self.checkpoints.finish(&*self.ranks)?;
        let (samples, tokens) = (self.samples(), self.tokens());
        let Some(Files { directory, metrics, mllog, .. }) = &mut self.files else { return Ok(()) };
        mllog.end(samples, self.progress.target_reached_at)?;
        metrics.sync()?;
        mllog.sync()?;
        let done = Done {
            status: if self.diverged { Status::Diverged } else { Status::Completed },
            steps: self.progress.step,
            tokens,
            final_train_loss: self.progress.train_loss,
            final_validation_loss: self.progress.validation_loss,
            metrics_sha256: metrics.sha256(),
            model_sha256,
            run_sha256: self.run_sha256.clone(),
        };
        write_json(&directory.join("done.json"), &done)
    }

    /// Rank 0 writes the model, if it is kept: the hash of its weights.
    fn export(&self, parameters: &[f32], tokenizer: Option<&Path>) -> Result<Option<String>, TrainerError> {
        let Some(Files { directory, .. }) = &self.files else { return Ok(None) };
        if self.options.logs_only {
            return model_export::hash(&self.run, self.training.model.layout(), parameters).map(Some);
        }
        model_export::write(&directory.join(model_export::FOLDER), &self.run, self.training.model.layout(), parameters, tokenizer).map(Some)
    }

    fn tokens(&self) -> u64 {
        self.progress.step * self.run.tokens_per_step() as u64
    }

    fn samples(&self) -> u64 {
        self.progress.step * self.run.batch.sequences as u64
    }
}
