//! Everything a training step changes: parameters, moments and the linears' histories, with the step that changes them.
//!
//! This is the run without its files: `session` adds those, `measure` only times it.

use crate::batches::{Batch, DataOrder, samples_in};
use crate::data::TokenStream;
use crate::device::{Device, Update};
use crate::error::TrainerError;
use crate::linear::{Evaluation, Linears};
use crate::metrics::QuantisationRecord;
use crate::model::Model;
use crate::optimizer::Moments;
use crate::run_file::RunFile;
use crate::schedule;

/// A model in training.
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
    /// The optimizer's.
    pub moments: Moments<D>,
    order: DataOrder,
    batch: Batch,
    tokens: D::Tokens,
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
        let model = Model::new(device.clone(), &run)?;
        let total = model.layout().total;
        Ok(Self {
            parameters: device.parameters(model.layout().initialise(&run.model, run.run.seed))?,
            gradients: device.numbers(vec![0.0; total])?,
            moments: Moments::new(&device, total)?,
            order: DataOrder::new(run.run.seed, samples_in(train_tokens, run.model.sequence_length).max(1)),
            batch: Batch::default(),
            tokens: device.tokens(&run)?,
            model,
            device,
            run,
        })
    }

    /// What it trains on.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The run it was made for.
    pub fn run(&self) -> &RunFile {
        &self.run
    }

    /// Reads the tokens of `step` (from 1).
    ///
    /// # Errors
    /// As [`Batch::fill`].
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

    /// Loss and gradients of the loaded batch.
    ///
    /// # Errors
    /// A kernel's.
    pub fn forward_backward(&mut self, step: u64) -> Result<StepResult, TrainerError> {
        let Self { device, model, parameters, gradients, batch, tokens, .. } = self;
        device.load(batch, tokens)?;
        device.inside(|| {
            let sum = model.train(parameters, (batch, tokens), step, gradients)?;
            let gradient_norm = device.gradient_norm(gradients)?;
            Ok(StepResult { loss: device.sum(sum)? / batch.inputs.len() as f64, gradient_norm })
        })
    }

    /// The optimizer's part of `step`.
    ///
    /// # Errors
    /// A kernel's.
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

    /// What was measured.
    pub fn observed(&mut self) -> Vec<QuantisationRecord> {
        self.model.linears.observed()
    }

    /// Mean loss over `evaluation.sequences` samples of the validation stream after `step` steps, nats per token: its first ones, or
    /// (`evaluation.spread`) ones at equal distances.
    ///
    /// # Errors
    /// As [`Batch::fill`], or a kernel's.
    pub fn evaluate(&mut self, validation: &TokenStream, step: u64) -> Result<f64, TrainerError> {
        let (sequences, at_once) = (self.run.evaluation.sequences, self.run.batch.sequences);
        let available = samples_in(validation.len(), self.run.model.sequence_length);
        let place = |sample: usize| if self.run.evaluation.spread { sample * available / sequences } else { sample };
        let (length, vocabulary) = (self.run.model.sequence_length, self.run.model.vocab_size);
        let weights = self.model.evaluation_weights(&self.parameters, step)?;
        let (mut sum, mut batch) = (0.0, Batch::default());
        for (chunk, first) in (0..sequences).step_by(at_once).enumerate() {
            let samples = (first..(first + at_once).min(sequences)).map(place);
            batch.fill(validation, samples, length, vocabulary)?;
            let Self { device, model, parameters, tokens, .. } = self;
            device.load(&batch, tokens)?;
            let losses = device.inside(|| model.evaluate(parameters, &weights, (&batch, tokens), Evaluation { step, chunk }))?;
            sum += device.sum(losses)?;
        }
        Ok(sum / (sequences * length) as f64)
    }
}
