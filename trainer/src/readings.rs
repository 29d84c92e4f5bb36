//! The same weights through other forward passes: what reading them costs, apart from what training did to them.
//!
//! An arm is evaluated through its own quantised forward pass, so its loss holds both. A reading evaluates the same weights as another
//! recipe's forward pass would. It has a model of its own, for few sequences at once, and shares only the parameters. It draws the words of
//! an evaluation at that step and touches nothing that training goes on from.

use contract::recipe::{Block, Dgrad, Format, Fprop, OperandSpec, Passes, Rounding, ScaleRule, StochasticSeed, Wgrad};
use contract::run_file::{ForwardSection, RunFile};

use crate::data::TokenStream;
use crate::device::Device;
use crate::error::TrainerError;
use crate::model::Model;
use crate::ranks::Ranks;
use crate::trainer_state;

/// Sequences that are read at once: few, because every reading has buffers of its own.
const SEQUENCES: usize = 8;

/// An operand of a pass that is not done.
const UNUSED: OperandSpec =
    OperandSpec { format: Format::Bf16, block: Block::Tensor, scale: ScaleRule::None, rounding: Rounding::NearestEven, rotation: None };

/// One forward pass, ready to read any parameters of the run's model.
#[derive(Debug)]
pub struct Reading<D: Device> {
    recipe: String,
    run: RunFile,
    device: D,
    model: Model<D>,
    tokens: D::Tokens,
}

impl<D: Device> Reading<D> {
    /// Those that the run asks for, in its order.
    pub fn all(run: &RunFile, device: &impl Fn(&RunFile) -> Result<D, TrainerError>) -> Result<Vec<Self>, TrainerError> {
        let forwards = run.evaluation.readings.iter().flat_map(|readings| &readings.forwards);
        forwards.map(|forward| Self::new(run, forward, device)).collect()
    }

    fn new(run: &RunFile, forward: &ForwardSection, device: &impl Fn(&RunFile) -> Result<D, TrainerError>) -> Result<Self, TrainerError> {
        let run = read_only(run, forward);
        let device = device(&run)?;
        device.check_memory(&run)?;
        let model = Model::new(device.clone(), &run)?;
        Ok(Self { recipe: forward.recipe.to_string(), tokens: device.tokens(&run)?, run, device, model })
    }

    /// The recipe whose forward pass it is.
    pub fn recipe(&self) -> &str {
        &self.recipe
    }

    /// As [`trainer_state::Training::evaluate`], through this forward pass.
    pub fn loss(
        &mut self,
        ranks: &dyn Ranks<D>,
        parameters: &D::Parameters,
        validation: &TokenStream,
        step: u64,
    ) -> Result<f64, TrainerError> {
        let Self { run, device, model, tokens, .. } = self;
        trainer_state::evaluate((device, ranks), run, model, parameters, tokens, validation, step)
    }
}

/// The run with this forward pass, backward passes that nothing prepares, and a small batch.
fn read_only(run: &RunFile, forward: &ForwardSection) -> RunFile {
    let mut run = run.micro_batch();
    run.batch.sequences = run.batch.sequences.min(SEQUENCES);
    run.batch.accumulation = 1;
    run.recipe.id.clone_from(&forward.recipe);
    run.recipe.passes = Passes {
        fprop: Fprop { input: forward.input, weight: forward.weight },
        dgrad: Dgrad { output_gradient: UNUSED, weight: UNUSED },
        wgrad: Wgrad { output_gradient: UNUSED, input: UNUSED },
    };
    run.recipe.delayed_scaling = None;
    // Constant words are a control of training.
    run.recipe.stochastic_seed = StochasticSeed::PerStep;
    // So are defects: what is read is a recipe's forward pass without one.
    run.recipe.defect = None;
    run
}
