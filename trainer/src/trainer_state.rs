//! Everything a training step changes: parameters, moments and the linears' histories, with the step that changes them.
//!
//! This is the run without its files: `session` adds those, `measure` only times it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use contract::metrics::Quantisation;
use contract::run_file::RunFile;
use contract::schedule;
use kernels::packed_rows::PackedRows;

use crate::batches::{Batch, DataOrder, samples_in};
use crate::choices::Evaluation;
use crate::data::TokenStream;
use crate::device::{Device, Linears, Update};
use crate::error::TrainerError;
use crate::gradients::{Exchange, Round};
use crate::model::{GradientSink, Model, Whole};
use crate::optimizer::Moments;
use crate::parameters::Layout;
use crate::ranks::{self, Alone, Ranks};
use crate::shards::{ShardRanges, Shards};
use crate::streams::micro_step;

#[derive(Debug)]
pub struct Training<D: Device> {
    device: D,
    run: RunFile,
    ranks: Arc<dyn Ranks<D>>,
    shards: Shards,
    /// Buffers and the linears' state.
    pub model: Model<D>,
    /// F32 masters, and whatever the device keeps beside them.
    pub parameters: D::Parameters,
    /// Of the last step, this rank's shard: with one rank, all.
    pub gradients: D::Numbers,
    /// Of this rank's shard.
    pub moments: Moments<D>,
    order: DataOrder,
    batch: Batch,
    tokens: D::Tokens,
    /// What a step of several micro-batches needs beside.
    micro: Option<MicroBatches<D>>,
    /// Sums of the losses of this rank's micro-batches.
    losses: Vec<f64>,
    /// What was measured in the step.
    records: Vec<Quantisation>,
    exchanged: Exchanged,
}

/// Seconds that a step took of this rank for exchanges with others, its waiting for them among them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Exchanged {
    /// What computing did not hide.
    pub gradients: f64,
    pub norm: f64,
    /// Those that the step before updated: what this one's forward pass waited for.
    pub parameters: f64,
}

/// Does `work` when the device has done everything before, and adds how long that took.
fn timed<D: Device, R>(device: &D, seconds: &mut f64, work: impl FnOnce() -> Result<R, TrainerError>) -> Result<R, TrainerError> {
    device.wait()?;
    let started = Instant::now();
    let result = work()?;
    *seconds += started.elapsed().as_secs_f64();
    Ok(result)
}

/// State of a step that is made of several micro-batches.
#[derive(Debug)]
struct MicroBatches<D: Device> {
    /// The one at hand.
    batch: Batch,
    gradients: MicroGradients<D>,
}

/// Where its gradients are before they are added to the step's.
#[derive(Debug)]
enum MicroGradients<D: Device> {
    /// One rank owns all.
    Own(D::Numbers),
    Exchanged(Box<Exchange<D>>),
}

/// What a step computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepResult {
    /// Mean loss over the step's tokens, nats.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
}

impl StepResult {
    /// Why the run cannot go on, if it cannot.
    pub fn divergence(&self) -> Option<&'static str> {
        if !self.loss.is_finite() {
            Some("training loss is not finite")
        } else if !self.gradient_norm.is_finite() {
            Some("gradient norm is not finite")
        } else {
            None
        }
    }
}

impl<D: Device> Training<D> {
    /// A fresh model on one rank. `train_tokens` is the length of the training stream.
    ///
    /// # Errors
    /// Not enough memory on the device, or a recipe that it cannot do.
    pub fn new(device: D, run: RunFile, train_tokens: usize) -> Result<Self, TrainerError> {
        Self::among(Arc::new(Alone), device, run, train_tokens)
    }

    /// As [`Training::new`], one of several ranks.
    pub fn among(ranks: Arc<dyn Ranks<D>>, device: D, run: RunFile, train_tokens: usize) -> Result<Self, TrainerError> {
        let initial = |layout: &Layout, run: &RunFile, shard: &ShardRanges| {
            layout.initialise_part(&run.model, run.run.seed, run.recipe.perturbation, shard)
        };
        Self::from_weights(ranks, device, run, train_tokens, initial)
    }

    /// As [`Training::among`], from these weights: `initial` gives those of this rank's shard.
    pub(crate) fn from_weights(
        ranks: Arc<dyn Ranks<D>>,
        device: D,
        run: RunFile,
        train_tokens: usize,
        initial: impl FnOnce(&Layout, &RunFile, &ShardRanges) -> Vec<f32> + Send,
    ) -> Result<Self, TrainerError> {
        ranks::check_size(&run, ranks.size())?;
        let at_once = run.micro_batch();
        let model = Model::new(device.clone(), &at_once)?;
        let shards = Shards::new(model.layout().total, ranks.size(), model.layout().buckets());
        let (total, shard) = (model.layout().total, shards.of(ranks.rank()));
        let own = shard.len();
        // What a GPU of one rank is told is part of the trainer's identity, and stays as it is.
        let zeros = || if ranks.transport().is_none() { device.numbers(vec![0.0; own]) } else { device.zeros(own) };
        let micro = || {
            let gradients = match ranks.transport() {
                None => MicroGradients::Own(device.numbers(vec![0.0; total])?),
                Some(_) => {
                    let rows = PackedRows { slots: at_once.tokens_per_step(), width: at_once.model.hidden_size };
                    let embedding = (&model.layout().embedding, rows);
                    MicroGradients::Exchanged(Box::new(Exchange::new(&device, &*ranks, &shards, embedding, run.recipe.rounds_sums())?))
                }
            };
            Ok::<_, TrainerError>(MicroBatches { batch: Batch::default(), gradients })
        };
        let mut training = Self {
            parameters: {
                let values = device.inside(|| initial(model.layout(), &run, shard));
                match ranks.size() {
                    1 => device.parameters(values)?,
                    _ => device.shard_parameters(model.layout(), values, shard)?,
                }
            },
            gradients: zeros()?,
            moments: Moments::new(zeros)?,
            order: DataOrder::new(run.run.seed, samples_in(train_tokens, run.model.sequence_length).max(1)),
            batch: Batch::default(),
            tokens: device.tokens(&at_once)?,
            micro: (run.batch.accumulation > 1).then(micro).transpose()?,
            losses: Vec::new(),
            records: Vec::new(),
            exchanged: Exchanged::default(),
            model,
            device,
            run,
            shards,
            ranks,
        };
        training.ranks.connect(&mut training.parameters)?;
        training.share_parameters()?;
        Ok(training)
    }

    pub fn device(&self) -> &D {
        &self.device
    }

    /// The run it was made for.
    pub fn run(&self) -> &RunFile {
        &self.run
    }

    /// Reads the tokens of `step` (from 1).
    pub fn load(&mut self, train: &TokenStream, step: u64) -> Result<(), TrainerError> {
        let sequences = self.run.batch.sequences as u64;
        let first = (step - 1) * sequences;
        let order = &mut self.order;
        let samples = (first..first + sequences).map(|position| order.sample(position));
        self.batch.fill(train, samples, self.run.model.sequence_length, self.run.model.vocab_size)
    }

    /// Trains on these tokens next instead of the data's: for tests, and for measurements without data.
    pub fn set_batch(&mut self, batch: Batch) {
        self.batch = batch;
    }

    /// Loss and gradients of the loaded batch: means over all its tokens, whatever the number of micro-batches and of ranks.
    ///
    /// Micro-batch k is rank k mod N's. In each round every rank computes one, and the owner of a shard adds their gradients in order (F32):
    /// the first one's, plus each later one's in turn, divided by their number at the end. Each draws its own random words and sign vectors
    /// ([`micro_step`]); none depends on another, since delayed scales are those of earlier steps. Operands are measured in the first.
    pub fn forward_backward(&mut self, step: u64) -> Result<StepResult, TrainerError> {
        let parts = self.run.batch.accumulation;
        self.losses.clear();
        self.exchanged = Exchanged::default();
        let mut last = None;
        for round in 0..parts / self.ranks.size() {
            let sum = self.micro_batch(step, round)?;
            if parts > 1 {
                // Its place on the device is the next micro-batch's, too.
                self.losses.push(self.device.sum(sum)?);
            } else {
                last = Some(sum);
            }
            self.sum_own(round == 0)?;
        }
        self.finish_exchange()?;
        self.finish_scales()?;
        if parts > 1 {
            self.device.divide(&mut self.gradients, parts as f32)?;
        }
        let gradient_norm = self.gradient_norm()?;
        if let Some(sum) = last {
            // Asked for last: a device that is waited for has nothing queued.
            self.losses.push(self.device.sum(sum)?);
        }
        Ok(StepResult { loss: self.loss()? / self.batch.inputs.len() as f64, gradient_norm })
    }

    /// This rank's micro-batch of a round: sum of its losses. Its gradients are the step's first, or wait for [`Self::sum_own`], or are on their
    /// way to their owners.
    fn micro_batch(&mut self, step: u64, round: usize) -> Result<D::Sum, TrainerError> {
        let (parts, size) = (self.run.batch.accumulation, self.ranks.size());
        let part = round * size + self.ranks.rank();
        let Self { device, model, ranks, shards, parameters, gradients, batch, tokens, micro, .. } = self;
        let step = micro_step(step, part, parts);
        let mut train = |batch: &Batch, goal: &mut dyn GradientSink<D>| {
            device.load(batch, tokens)?;
            device.inside(|| model.train(parameters, (batch, tokens), step, goal))
        };
        let sum = match micro {
            None => train(batch, &mut Whole(gradients))?,
            Some(MicroBatches { batch: own, gradients: more }) => {
                own.copy_part(batch, part, parts);
                match more {
                    // The first gradients are their sum so far.
                    MicroGradients::Own(_) if round == 0 => train(own, &mut Whole(gradients))?,
                    MicroGradients::Own(more) => train(own, &mut Whole(more))?,
                    MicroGradients::Exchanged(exchange) => {
                        train(own, &mut Round { device, ranks, shards, exchange, sum: gradients, is_first: round == 0 })?
                    }
                }
            }
        };
        model.linears.finish_micro_batch(part + size < parts)?;
        if part == 0 {
            self.records = model.linears.observed()?;
        }
        Ok(sum)
    }

    /// One rank owns all gradients: those of a round join their sum, which the first ones are.
    fn sum_own(&mut self, is_first: bool) -> Result<(), TrainerError> {
        let Self { device, run, shards, gradients, micro, .. } = self;
        let (Some(MicroBatches { gradients: MicroGradients::Own(more), .. }), count) = (micro, shards.total()) else { return Ok(()) };
        if !is_first {
            device.add((gradients, 0), (more, 0), count)?;
        }
        if run.recipe.rounds_sums() { device.round_to_bf16((gradients, 0), count) } else { Ok(()) }
    }

    /// The last bucket of the step's last round has no computing to hide behind.
    fn finish_exchange(&mut self) -> Result<(), TrainerError> {
        let Self { device, ranks, shards, gradients, micro, exchanged, .. } = self;
        if let Some(MicroBatches { gradients: MicroGradients::Exchanged(exchange), .. }) = micro {
            Round { device, ranks, shards, exchange, sum: gradients, is_first: false }.add()?;
            let waited = ranks.finish(device)?;
            (exchanged.gradients, exchanged.parameters) = (waited.gradients, waited.parameters);
        }
        Ok(())
    }

    /// The step's largest magnitudes, over all micro-batches of all ranks, join the histories of delayed scales.
    fn finish_scales(&mut self) -> Result<(), TrainerError> {
        let Self { ranks, run, model, .. } = self;
        if ranks.size() > 1 && run.recipe.delayed_scaling.is_some() {
            let own: Vec<u8> = model.linears.magnitudes()?.into_iter().flat_map(f32::to_le_bytes).collect();
            for bytes in ranks.gather(&own)? {
                let largest: Vec<f32> = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
                model.linears.raise_magnitudes(&largest)?;
            }
        }
        model.linears.finish_step()
    }

    /// Norm of the step's gradients.
    fn gradient_norm(&mut self) -> Result<f64, TrainerError> {
        let Self { device, ranks, shards, gradients, micro, exchanged, .. } = self;
        if ranks.size() == 1 {
            return device.inside(|| device.gradient_norm(gradients));
        }
        timed(device, &mut exchanged.norm, || {
            if let Some(MicroBatches { gradients: MicroGradients::Exchanged(exchange), .. }) = micro
                && let Some(norm) = ranks.norm(device, shards, gradients, &exchange.pieces)?
            {
                return Ok(norm);
            }
            ranks::gradient_norm((device, &**ranks), shards, gradients)
        })
    }

    /// Sum of the losses of all micro-batches, added in their order.
    fn loss(&self) -> Result<f64, TrainerError> {
        let Self { ranks, losses, run, .. } = self;
        if ranks.size() == 1 {
            return Ok(losses.iter().fold(0.0, |sum, loss| sum + loss));
        }
        Ok(ranks::in_order(&**ranks, losses, run.batch.accumulation)?.iter().fold(0.0, |sum, loss| sum + loss))
    }

    /// The optimizer's part of `step`: every rank updates its shard, portion by portion, and hands out each to all while it updates the next.
    pub fn update(&mut self, step: u64, gradient_norm: f64) -> Result<(), TrainerError> {
        let learning_rate = self.learning_rate(step);
        let Self { device, run, ranks, shards, model, parameters, gradients, moments, .. } = self;
        let update = Update { section: &run.optimizer, step, learning_rate, norm: gradient_norm };
        let shard = shards.of(ranks.rank());
        let mut update = |portion: &Range<usize>, parameters: &mut D::Parameters| {
            let moments = (&mut moments.first, &mut moments.second);
            device.inside(|| device.update(model.layout(), update, (portion, shard), gradients, parameters, moments))
        };
        if ranks.transport().is_none() {
            return update(&(0..shards.total()), parameters);
        }
        for round in 0..shards.rounds() {
            update(&shards.portion(ranks.rank(), round), parameters)?;
            ranks.share(device, parameters, shards, round)?;
        }
        Ok(())
    }

    /// What the last step took of each rank for exchanges; nothing with one rank alone. All ranks ask together.
    pub fn exchanged(&self) -> Result<Vec<Exchanged>, TrainerError> {
        if self.ranks.transport().is_none() {
            return Ok(Vec::new());
        }
        let Exchanged { gradients, norm, parameters } = self.exchanged;
        let all = ranks::gather_numbers(&*self.ranks, &[gradients, norm, parameters])?;
        let of = |spent: Vec<f64>| match *spent {
            [gradients, norm, parameters] => Ok(Exchanged { gradients, norm, parameters }),
            _ => Err(TrainerError::Machine("a rank has not said what a step took of it: a defect of the trainer".into())),
        };
        all.into_iter().map(of).collect()
    }

    /// Of `step`.
    pub fn learning_rate(&self, step: u64) -> f64 {
        schedule::learning_rate(&self.run.optimizer, &self.run.schedule, step)
    }

    /// Measures the operands of the first, the middle and the last block during the next step, in its first micro-batch: on rank 0.
    pub fn observe(&mut self, step: u64) {
        if self.ranks.rank() != 0 {
            return;
        }
        let layers = self.run.model.num_hidden_layers;
        let mut observed = vec![0, layers / 2, layers - 1];
        observed.dedup();
        self.model.linears.observe(step, observed);
    }

    /// What was measured in the last step.
    pub fn observed(&mut self) -> Vec<Quantisation> {
        std::mem::take(&mut self.records)
    }

    /// All parameters, on rank 0; none elsewhere.
    pub fn collect_parameters(&self) -> Result<Option<Cow<'_, [f32]>>, TrainerError> {
        let Self { device, ranks, shards, parameters, .. } = self;
        if ranks.transport().is_none() {
            return device.parameter_values(parameters).map(Some);
        }
        let shard = device.shard_in_f32(parameters, shards.of(ranks.rank()))?;
        Ok(ranks.collect(device, &shard, shards)?.map(|all| Cow::Owned(all.into_owned())))
    }

    /// Parameters, first and second moments, all of them, on rank 0; none elsewhere.
    pub fn collect(&self) -> Result<Option<[Cow<'_, [f32]>; 3]>, TrainerError> {
        let parameters = self.collect_parameters()?;
        let collect = |numbers| self.ranks.collect(&self.device, numbers, &self.shards);
        let (first, second) = (collect(&self.moments.first)?, collect(&self.moments.second)?);
        Ok(parameters.zip(first).zip(second).map(|((parameters, first), second)| [parameters, first, second]))
    }

    /// Which of the parameters are this rank's.
    pub fn shard(&self) -> &ShardRanges {
        self.shards.of(self.ranks.rank())
    }

    /// Parameters, first and second moments of this rank's shard.
    pub fn own(&self) -> Result<[Cow<'_, [f32]>; 3], TrainerError> {
        let (Self { device, moments, .. }, shard) = (self, self.shard());
        let mut parameters = vec![0.0; shard.len()];
        for (local, range) in shard.placed() {
            device.read_parameters(&self.parameters, range.start, &mut parameters[local])?;
        }
        Ok([Cow::Owned(parameters), device.values(&moments.first)?, device.values(&moments.second)?])
    }

    /// This rank's shard of the parameters and moments that rank 0 gives; the others give none.
    pub fn scatter(&self, [parameters, first, second]: [Vec<f32>; 3]) -> Result<[Vec<f32>; 3], TrainerError> {
        let scatter = |all: Vec<f32>| self.ranks.scatter(&all, &self.shards);
        Ok([scatter(parameters)?, scatter(first)?, scatter(second)?])
    }

    /// Goes on from parameters and moments of this rank's shard; all ranks do.
    pub fn restore(&mut self, [parameters, first, second]: [Vec<f32>; 3]) -> Result<(), TrainerError> {
        if self.ranks.transport().is_none() {
            self.parameters = self.device.parameters(parameters)?;
        } else {
            for (local, range) in self.shards.of(self.ranks.rank()).placed() {
                self.device.write_parameters(&mut self.parameters, range.start, &parameters[local])?;
            }
            self.share_parameters()?;
        }
        self.moments.first = self.device.numbers(first)?;
        self.moments.second = self.device.numbers(second)?;
        Ok(())
    }

    /// Every rank hands out its shard of the parameters, and has all when this returns: no step waits for them.
    fn share_parameters(&mut self) -> Result<(), TrainerError> {
        let Self { device, ranks, shards, model, parameters, .. } = self;
        (0..shards.rounds()).try_for_each(|round| ranks.share(device, parameters, shards, round))?;
        device.arrive(parameters, &(0..model.layout().total))?;
        ranks.finish(device).map(drop)
    }

    /// Mean loss over `evaluation.sequences` samples of the validation stream after `step` steps, nats per token: its first ones, or
    /// (`evaluation.spread`) ones at equal distances.
    pub fn evaluate(&mut self, validation: &TokenStream, step: u64) -> Result<f64, TrainerError> {
        let Self { device, run, ranks, model, parameters, tokens, .. } = self;
        evaluate((device, &**ranks), run, model, parameters, tokens, validation, step)
    }
}

/// Mean loss of `parameters` over the run's evaluation samples, in the model's forward pass; see [`Training::evaluate`]. Chunk k is computed
/// by rank k mod N, and sums are added in the order of the chunks.
pub(crate) fn evaluate<D: Device>(
    (device, ranks): (&D, &dyn Ranks<D>),
    run: &RunFile,
    model: &mut Model<D>,
    parameters: &D::Parameters,
    tokens: &mut D::Tokens,
    validation: &TokenStream,
    step: u64,
) -> Result<f64, TrainerError> {
    let (sequences, at_once) = (run.evaluation.sequences, run.batch.sequences / run.batch.accumulation);
    let (length, vocabulary) = (run.model.sequence_length, run.model.vocab_size);
    let available = samples_in(validation.len(), length);
    let place = |sample: usize| if run.evaluation.spread { sample * available / sequences } else { sample };
    let weights = model.evaluation_weights(parameters, step)?;
    let (mut own, mut batch) = (Vec::new(), Batch::default());
    let chunks = (0..sequences).step_by(at_once).enumerate();
    for (chunk, first) in chunks.skip(ranks.rank()).step_by(ranks.size()) {
        let samples = (first..(first + at_once).min(sequences)).map(place);
        batch.fill(validation, samples, length, vocabulary)?;
        device.load_forward(&batch, tokens)?;
        let losses = device.inside(|| model.evaluate(parameters, &weights, (&batch, tokens), Evaluation { step, chunk }))?;
        own.push(device.set_aside(losses, own.len())?);
    }
    let own = own.into_iter().map(|losses| device.sum(losses)).collect::<Result<Vec<_>, _>>()?;
    let sums = ranks::in_order(ranks, &own, sequences.div_ceil(at_once))?;
    Ok(sums.iter().fold(0.0, |sum, loss| sum + loss) / (sequences * length) as f64)
}
