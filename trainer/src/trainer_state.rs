//! Everything a training step changes: parameters, moments and the linears' histories, with the step that changes them.
//!
//! This is the run without its files: `session` adds those, `measure` only times it.

use contract::metrics::Quantisation;
use contract::run_file::RunFile;
use contract::schedule;

use crate::batches::{Batch, DataOrder, samples_in};
use crate::choices::Evaluation;
use crate::data::TokenStream;
use crate::device::Linears;
use crate::device::{Device, Update};
use crate::error::TrainerError;
use crate::model::Model;
use crate::optimizer::Moments;
use crate::streams::micro_step;

#[derive(Debug)]
pub struct Training<D: Device> {
    device: D,
    run: RunFile,
    /// Buffers and the linears' state.
    pub model: Model<D>,
    /// F32 masters, and whatever the device keeps beside them.
    pub parameters: D::Parameters,
    /// Of the last step.
    pub gradients: D::Numbers,
    pub moments: Moments<D>,
    order: DataOrder,
    batch: Batch,
    tokens: D::Tokens,
    /// What a step of several micro-batches needs beside.
    micro: Option<MicroBatches<D>>,
}

/// State of a step that is made of several micro-batches.
#[derive(Debug)]
struct MicroBatches<D: Device> {
    /// The one at hand.
    batch: Batch,
    /// Its gradients, before they are added to the step's.
    gradients: D::Numbers,
    /// What was measured in the step's first one.
    records: Vec<Quantisation>,
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
    /// A fresh model. `train_tokens` is the length of the training stream.
    ///
    /// # Errors
    /// Not enough memory on the device, or a recipe that it cannot do.
    pub fn new(device: D, run: RunFile, train_tokens: usize) -> Result<Self, TrainerError> {
        let at_once = run.micro_batch();
        let model = Model::new(device.clone(), &at_once)?;
        let total = model.layout().total;
        let micro = || {
            Ok::<_, TrainerError>(MicroBatches {
                batch: Batch::default(),
                gradients: device.numbers(vec![0.0; total])?,
                records: Vec::new(),
            })
        };
        Ok(Self {
            parameters: device
                .parameters(device.inside(|| model.layout().initialise(&run.model, run.run.seed, run.recipe.perturbation)))?,
            gradients: device.numbers(vec![0.0; total])?,
            moments: Moments::new(&device, total)?,
            order: DataOrder::new(run.run.seed, samples_in(train_tokens, run.model.sequence_length).max(1)),
            batch: Batch::default(),
            tokens: device.tokens(&at_once)?,
            micro: (run.batch.accumulation > 1).then(micro).transpose()?,
            model,
            device,
            run,
        })
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

    /// Loss and gradients of the loaded batch: means over all its tokens, whatever the number of micro-batches.
    pub fn forward_backward(&mut self, step: u64) -> Result<StepResult, TrainerError> {
        if self.micro.is_some() {
            return self.accumulate(step);
        }
        let Self { device, model, parameters, gradients, batch, tokens, .. } = self;
        device.load(batch, tokens)?;
        device.inside(|| {
            let sum = model.train(parameters, (batch, tokens), step, gradients)?;
            let gradient_norm = device.gradient_norm(gradients)?;
            Ok(StepResult { loss: device.sum(sum)? / batch.inputs.len() as f64, gradient_norm })
        })
    }

    /// Micro-batches one after the other: the first one's gradients, plus each later one's in turn (F32), divided by their number. Each
    /// draws its own random words and sign vectors ([`micro_step`]) and moves delayed scales on, as a step of its own would; operands are
    /// measured in the first.
    fn accumulate(&mut self, step: u64) -> Result<StepResult, TrainerError> {
        let parts = self.run.batch.accumulation;
        let mut loss = 0.0;
        for part in 0..parts {
            let Self { device, model, parameters, gradients, batch, tokens, micro, .. } = self;
            let Some(micro) = micro else { break };
            micro.batch.copy_part(batch, part, parts);
            device.load(&micro.batch, tokens)?;
            let goal = if part == 0 { &mut *gradients } else { &mut micro.gradients };
            let words = micro_step(step, part, parts);
            loss += device.inside(|| {
                let sum = model.train(parameters, (&micro.batch, tokens), words, goal)?;
                // Its place on the device is the next micro-batch's, too.
                device.sum(sum)
            })?;
            if part == 0 {
                micro.records = model.linears.observed();
            } else {
                device.add(gradients, &micro.gradients)?;
            }
        }
        let Self { device, gradients, batch, .. } = self;
        device.divide(gradients, parts as f32)?;
        let gradient_norm = device.inside(|| device.gradient_norm(gradients))?;
        Ok(StepResult { loss: loss / batch.inputs.len() as f64, gradient_norm })
    }

    /// The optimizer's part of `step`.
    pub fn update(&mut self, step: u64, gradient_norm: f64) -> Result<(), TrainerError> {
        let learning_rate = self.learning_rate(step);
        let Self { device, run, model, parameters, gradients, moments, .. } = self;
        let update = Update { section: &run.optimizer, step, learning_rate, norm: gradient_norm };
        device.inside(|| device.update(model.layout(), update, gradients, parameters, (&mut moments.first, &mut moments.second)))
    }

    /// Of `step`.
    pub fn learning_rate(&self, step: u64) -> f64 {
        schedule::learning_rate(&self.run.optimizer, &self.run.schedule, step)
    }

    /// Measures the operands of the first, the middle and the last block during the next step.
    pub fn observe(&mut self, step: u64) {
        let layers = self.run.model.num_hidden_layers;
        let mut observed = vec![0, layers / 2, layers - 1];
        observed.dedup();
        self.model.linears.observe(step, observed);
    }

    pub fn observed(&mut self) -> Vec<Quantisation> {
        match &mut self.micro {
            Some(micro) => std::mem::take(&mut micro.records),
            None => self.model.linears.observed(),
        }
    }

    /// Mean loss over `evaluation.sequences` samples of the validation stream after `step` steps, nats per token: its first ones, or
    /// (`evaluation.spread`) ones at equal distances.
    pub fn evaluate(&mut self, validation: &TokenStream, step: u64) -> Result<f64, TrainerError> {
        let Self { device, run, model, parameters, tokens, .. } = self;
        evaluate(device, run, model, parameters, tokens, validation, step)
    }
}

/// Mean loss of `parameters` over the run's evaluation samples, in the model's forward pass; see [`Training::evaluate`].
pub(crate) fn evaluate<D: Device>(
    device: &D,
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
    let (mut sum, mut batch) = (0.0, Batch::default());
    for (chunk, first) in (0..sequences).step_by(at_once).enumerate() {
        let samples = (first..(first + at_once).min(sequences)).map(place);
        batch.fill(validation, samples, length, vocabulary)?;
        device.load(&batch, tokens)?;
        let losses = device.inside(|| model.evaluate(parameters, &weights, (&batch, tokens), Evaluation { step, chunk }))?;
        sum += device.sum(losses)?;
    }
    Ok(sum / (sequences * length) as f64)
}
