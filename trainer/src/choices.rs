//! What a run's recipe says of every operand of the four linear layers of a block: specification, random words, sign vector and history,
//! the same for every device. The linears are the only part of the model that follows the recipe; a device's `Linears` prepares operands and
//! multiplies them.

use contract::defect::{Defect, First};
use contract::memory::Rooms;
use contract::metrics::Quantisation;
use contract::recipe::{DelayedScaling, OperandSpec, Passes, Rounding, Signs, StochasticSeed};
use contract::run_file::RunFile;
use kernels::hadamard;
use kernels::random::{Draw, Stream};

use crate::streams::{self, Operand, Pass, Place};

/// The operands of the three passes, in the order of delayed-scaling histories.
pub const SLOTS: [(Pass, Operand); 6] = [
    (Pass::Fprop, Operand::Input),
    (Pass::Fprop, Operand::Weight),
    (Pass::Dgrad, Operand::OutputGradient),
    (Pass::Dgrad, Operand::Weight),
    (Pass::Wgrad, Operand::OutputGradient),
    (Pass::Wgrad, Operand::Input),
];

/// The linears of a block, as `Place::linear` counts them.
pub const QKV: usize = 0;
pub const ATTENTION_OUTPUT: usize = 1;
pub const GATE_UP: usize = 2;
/// Whose X is SwiGLU's result.
pub const DOWN: usize = 3;

/// Which evaluation, and which batch of it: its random words are not those of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    /// Steps done.
    pub step: u64,
    pub chunk: usize,
}

/// Signs of one rotation, without an allocation.
#[derive(Debug, Clone, Copy)]
pub struct SignVector {
    room: [f32; LARGEST_ROTATION],
    size: usize,
}

/// The largest of `hadamard::SIZES`.
const LARGEST_ROTATION: usize = 128;

impl SignVector {
    /// As many as the rotation's size.
    pub fn as_slice(&self) -> &[f32] {
        &self.room[..self.size]
    }
}

/// What a run's recipe says of every operand.
#[derive(Debug, Clone)]
pub struct Choices {
    /// With what a defect makes of them.
    passes: Passes,
    seed: u64,
    constant_words: bool,
    defect: Option<Defect>,
    /// History of delayed scales, if there are any.
    pub delayed: Option<DelayedScaling>,
    /// Name, out features, in features.
    pub shapes: [(&'static str, usize, usize); 4],
    pub layers: usize,
}

impl Choices {
    /// For a run file that passed its checks.
    pub fn new(run: &RunFile) -> Self {
        Self {
            passes: run.recipe.defect.map_or_else(|| run.recipe.passes.clone(), |defect| defect.passes(&run.recipe.passes)),
            defect: run.recipe.defect,
            seed: run.run.seed,
            constant_words: run.recipe.stochastic_seed == StochasticSeed::Constant,
            delayed: run.recipe.delayed_scaling,
            shapes: run.model.linears(),
            layers: run.model.num_hidden_layers,
        }
    }

    /// How an operand is prepared.
    pub fn spec(&self, pass: Pass, operand: Operand) -> OperandSpec {
        self.passes.spec(pass, operand)
    }

    /// What an operand is quantised as before it is prepared, where a defect quantises it twice.
    pub fn first(&self, pass: Pass, operand: Operand) -> Option<First> {
        self.defect?.first(&self.passes, pass, operand)
    }

    /// Which of its words an element is rounded by.
    pub fn draw(&self) -> Draw {
        match self.defect {
            Some(Defect::WordForAPair) => Draw::Pair,
            Some(Defect::NoiseOf16Bits) => Draw::Low16,
            _ => Draw::Own,
        }
    }

    /// What prepared operands take on a GPU.
    pub fn rooms(&self) -> Rooms<'_> {
        Rooms { passes: &self.passes, shapes: self.shapes, layers: self.layers }
    }

    /// Sign vector of an operand whose rotation has one; both operands of a product have the same, unless a defect says otherwise. Fixed signs
    /// do not depend on the step, nor on training or evaluation.
    pub fn signs(&self, place: Place, pass: Pass, operand: Operand, step: u64) -> Option<SignVector> {
        let rotation = self.spec(pass, operand).rotation?;
        let step = match rotation.signs {
            Signs::None => return None,
            Signs::Fixed => 0,
            Signs::PerStep => step,
        };
        let mut signs = SignVector { room: [0.0; LARGEST_ROTATION], size: rotation.size.min(LARGEST_ROTATION) };
        let of_product = |pass| streams::signs(self.seed, step, place, pass);
        // X in Fprop, ∇Y in both others.
        let is_left = operand == Operand::OutputGradient || (pass, operand) == (Pass::Fprop, Operand::Input);
        let stream = match self.defect {
            Some(Defect::SignsOfEachOperand) => streams::own_signs(self.seed, step, place, pass, operand),
            Some(Defect::SignsOfLeftAlone) if !is_left => {
                signs.room.fill(1.0);
                return Some(signs);
            }
            Some(Defect::SignsAgainInBackward) if !is_left => of_product(Pass::Fprop),
            _ => of_product(pass),
        };
        hadamard::fill_signs(stream, &mut signs.room[..signs.size]);
        Some(signs)
    }

    /// The random words of an operand of a training step, if it is rounded stochastically.
    pub fn training_words(&self, place: Place, pass: Pass, operand: Operand, step: u64) -> Option<Stream> {
        self.words(&self.spec(pass, operand), || streams::rounding(self.seed, step, place, pass, operand))
    }

    /// The random words of an operand of an evaluation's forward pass.
    pub fn evaluation_words(&self, place: Place, operand: Operand, evaluation: Evaluation) -> Option<Stream> {
        let own = || streams::evaluation_rounding(self.seed, evaluation.step, place, operand, evaluation.chunk);
        self.words(&self.spec(Pass::Fprop, operand), own)
    }

    /// `own`, unless the recipe gives all operands the same.
    fn words(&self, spec: &OperandSpec, own: impl FnOnce() -> Stream) -> Option<Stream> {
        let words = || if self.constant_words { streams::constant_rounding(self.seed) } else { own() };
        (spec.rounding != Rounding::NearestEven).then(|| Stream { draw: self.draw(), ..words() })
    }

    /// Number of an operand among all histories.
    pub fn slot(&self, place: Place, pass: Pass, operand: Operand) -> usize {
        let within = SLOTS.iter().position(|&slot| slot == (pass, operand)).unwrap_or_default();
        (place.layer * 4 + place.linear) * SLOTS.len() + within
    }

    /// All slots of the model.
    pub fn slots(&self) -> usize {
        self.layers * 4 * SLOTS.len()
    }

    /// Whether histories are as many, and as long at most, as this model's.
    pub fn fits(&self, histories: &[Vec<f32>]) -> bool {
        let longest = self.delayed.map_or(0, |delayed| delayed.history);
        histories.len() == self.slots() && histories.iter().all(|history| history.len() <= longest)
    }

    /// Records in the order fprop, dgrad, wgrad by layer and linear.
    pub fn sort(&self, records: &mut [Quantisation]) {
        let linear = |name: &str| self.shapes.iter().position(|shape| shape.0 == name);
        let pass = |name: &str| SLOTS.iter().position(|slot| slot.0.name() == name);
        records.sort_by_key(|record| (record.layer, linear(&record.linear), pass(&record.pass)));
    }
}

/// What is measured during one step.
#[derive(Debug)]
pub struct Observation {
    /// Which step.
    pub step: u64,
    pub layers: Vec<usize>,
    /// What was seen so far.
    pub records: Vec<Quantisation>,
}
