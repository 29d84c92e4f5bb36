//! Which tokens are in which step.
//!
//! Sample `i` of a stream is its tokens `i*T .. i*T + T + 1` (T inputs, and the same shifted by one as targets); documents
//! are not kept apart (PAPER.md section 2: neither positions nor attention are reset). Training visits all samples in an
//! order drawn anew for each epoch from the seed; evaluation takes the first ones in order.

use crate::data::TokenStream;
use crate::error::TrainerError;
use crate::streams;

/// Inputs and targets of a step, both `[sequences * T]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token ids that go in.
    pub inputs: Vec<u32>,
    /// The token that follows each.
    pub targets: Vec<u32>,
    sample: Vec<u32>,
}

impl Batch {
    /// Given inputs and what follows each.
    pub fn new(inputs: Vec<u32>, targets: Vec<u32>) -> Self {
        Self { inputs, targets, sample: Vec::new() }
    }

    /// Replaces the batch by samples `samples` of `stream`.
    ///
    /// # Errors
    /// [`TrainerError::BadFile`] for a token outside the vocabulary or a file that cannot be read.
    pub fn fill(
        &mut self,
        stream: &TokenStream,
        samples: impl Iterator<Item = usize>,
        length: usize,
        vocabulary: usize,
    ) -> Result<(), TrainerError> {
        self.inputs.clear();
        self.targets.clear();
        self.sample.resize(length + 1, 0);
        for index in samples {
            let start = index * length;
            stream.read(start, &mut self.sample).map_err(|error| TrainerError::BadFile(error.to_string()))?;
            if let Some(position) = self.sample.iter().position(|&token| token as usize >= vocabulary) {
                return Err(TrainerError::BadFile(format!(
                    "{}: token {} at position {} is outside model.vocab_size ({vocabulary}); tokenize the data again with this run's tokenizer",
                    stream.path().display(),
                    self.sample[position],
                    start + position
                )));
            }
            self.inputs.extend_from_slice(&self.sample[..length]);
            self.targets.extend_from_slice(&self.sample[1..]);
        }
        Ok(())
    }
}

impl Batch {
    /// Replaces the batch by part `part` of `parts` equal ones of another.
    pub fn copy_part(&mut self, whole: &Self, part: usize, parts: usize) {
        let size = whole.inputs.len() / parts;
        let range = part * size..(part + 1) * size;
        self.inputs.clear();
        self.targets.clear();
        self.inputs.extend_from_slice(&whole.inputs[range.clone()]);
        self.targets.extend_from_slice(&whole.targets[range]);
    }
}

/// Samples of `length` tokens (and one more to predict) in a stream of `tokens`.
pub fn samples_in(tokens: usize, length: usize) -> usize {
    tokens.saturating_sub(1) / length
}

/// The order of training samples.
#[derive(Debug, Clone)]
pub struct DataOrder {
    seed: u64,
    samples: usize,
    epoch: Option<(u64, Vec<u32>)>,
}

impl DataOrder {
    /// Order of `samples` samples (at least one).
    pub fn new(seed: u64, samples: usize) -> Self {
        Self { seed, samples, epoch: None }
    }

    /// The `position`-th sample of the whole run, counted from 0 over all epochs.
    pub fn sample(&mut self, position: u64) -> usize {
        let (epoch, within) = (position / self.samples as u64, (position % self.samples as u64) as usize);
        if let Some((held, order)) = &self.epoch
            && *held == epoch
        {
            return order[within] as usize;
        }
        let order = kernels::random::permutation(streams::data_order(self.seed, epoch), self.samples);
        let sample = order[within] as usize;
        self.epoch = Some((epoch, order));
        sample
    }
}
