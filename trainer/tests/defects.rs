//! What each defect makes of the three products of a linear, against plain F64 code in this file: quantiser, transform and rounding are written
//! once more here, from docs/recipes.md. Only random words and signs are the trainer's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common;
use contract::defect::Defect;
use contract::memory;
use contract::run_file::RunFile;
use kernels::cpu::{Cpu, InstructionSet};
use kernels::hadamard;
use kernels::random::{Stream, StreamKey};
use trainer::batches::Batch;
use trainer::choices::Evaluation;
use trainer::device::{Device, Goal, Input, Linears, Mode};
use trainer::streams::{self, Operand, Pass, Place};
use trainer::trainer_state::Training;

const PLACE: Place = Place { layer: 1, linear: 1 };
const STEP: u64 = 3;
/// Tokens, out features and in features of `attention_output` in the tiny model.
const TOKENS: usize = 128;
const OUT: usize = 64;
const INPUTS: usize = 64;

/// A matrix with one row a contraction.
#[derive(Debug, Clone)]
struct Matrix {
    k: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn new(k: usize, values: &[f32]) -> Self {
        Self { k, values: values.iter().map(|&value| f64::from(value)).collect() }
    }

    fn turned(&self) -> Self {
        let rows = self.values.len() / self.k;
        let value = |index: usize| self.values[index % rows * self.k + index / rows];
        Self { k: rows, values: (0..self.values.len()).map(value).collect() }
    }

    /// self otherᵀ.
    fn times(&self, other: &Self) -> Vec<f64> {
        let rows = self.values.chunks(self.k);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        rows.flat_map(|a| other.values.chunks(other.k).map(move |b| dot(a, b))).collect()
    }

    /// A D H of blocks of 16: entry (i, j) of H is 1/4, negative if i and j share an odd number of bits.
    fn rotated(&self, signs: &[f32]) -> Self {
        let entry = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 0.25 } else { -0.25 };
        let of = |block: &[f64], j: usize| block.iter().zip(signs).enumerate().map(|(i, (x, s))| x * f64::from(*s) * entry(i, j)).sum();
        let values = self.values.chunks(16).flat_map(|block| (0..16).map(move |j| of(block, j))).collect();
        Self { k: self.k, values }
    }

    /// MXFP4 in blocks of 32, scale `floor`; `noise`, by index in steps of the grid: 1/2 is to nearest.
    fn quantised(&self, noise: impl Fn(u64) -> Option<f64>) -> Self {
        let values = self.values.chunks(32).enumerate().flat_map(|(block, values)| {
            let largest = values.iter().fold(0f64, |largest, value| largest.max(value.abs()));
            let scale = if largest == 0.0 { 1.0 } else { 2f64.powi(largest.log2().floor() as i32 - 2) };
            let noise = &noise;
            values.iter().enumerate().map(move |(index, value)| {
                let magnitude = value.abs() / scale;
                let step = if magnitude < 2.0 {
                    0.5
                } else if magnitude < 4.0 {
                    1.0
                } else {
                    2.0
                };
                let steps = magnitude / step;
                let rounded = match noise((32 * block + index) as u64) {
                    Some(noise) => (steps + noise).floor(),
                    None => steps.round_ties_even(),
                };
                (rounded * step).min(6.0).copysign(*value) * scale
            })
        });
        Self { k: self.k, values: values.collect() }
    }

    fn nearest(&self) -> Self {
        self.quantised(|_| None)
    }
}

/// What the trainer's CPU makes of Y = X Wᵀ, ∇X = ∇Y W and ∇W = ∇Yᵀ X in a recipe with this defect.
fn products(recipe: &str, defect: Option<Defect>, [x, w, d_y]: &[Vec<f32>; 3]) -> [Vec<f32>; 3] {
    let run = run(recipe, defect);
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    let mut linears = cpu.linears(&run).unwrap();
    let (weight, mut y, mut d_x, mut d_w) = (0..w.len(), vec![0.0; d_y.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
    let mode = Mode::Training { step: STEP };
    linears.forward(PLACE, &mode, &Input::Kept(x), (w, &weight), Goal::Over(&mut y), TOKENS).unwrap();
    linears.backward(PLACE, STEP, &Input::Kept(x), (w, &weight), d_y, Goal::Over(&mut d_x), (&mut d_w, &weight), TOKENS).unwrap();
    [y, d_x, d_w]
}

fn run(recipe: &str, defect: Option<Defect>) -> RunFile {
    let mut run = common::tiny(common::recipe(recipe));
    run.recipe.defect = defect;
    run.check().unwrap();
    run
}

/// X, W and ∇Y in BF16, a few elements of each row much larger than the others.
fn operands() -> [Vec<f32>; 3] {
    [(1, TOKENS * INPUTS), (2, OUT * INPUTS), (3, TOKENS * OUT)].map(|(seed, count)| {
        let stream = StreamKey { seed, ..StreamKey::default() }.stream();
        let outlier = |index: u64| if stream.word(index + (1 << 40)).is_multiple_of(37) { 24.0 } else { 1.0 };
        (0..count as u64).map(|index| kernels::format::bf16::round(stream.normal(index) * outlier(index))).collect()
    })
}

/// The two operands of each pass with one row a contraction: X and W, ∇Y and Wᵀ, ∇Yᵀ and Xᵀ.
fn pairs([x, w, d_y]: &[Vec<f32>; 3]) -> [(Pass, [(Operand, Matrix); 2]); 3] {
    let (x, w, d_y) = (Matrix::new(INPUTS, x), Matrix::new(INPUTS, w), Matrix::new(OUT, d_y));
    [
        (Pass::Fprop, [(Operand::Input, x.clone()), (Operand::Weight, w.clone())]),
        (Pass::Dgrad, [(Operand::OutputGradient, d_y.clone()), (Operand::Weight, w.turned())]),
        (Pass::Wgrad, [(Operand::OutputGradient, d_y.turned()), (Operand::Input, x.turned())]),
    ]
}

/// Holds each of the trainer's products against `prepare(pass, is_left, operand, source)` of both operands, multiplied.
fn holds(recipe: &str, defect: Option<Defect>, prepare: impl Fn(Pass, bool, Operand, &Matrix) -> Matrix) {
    let sources = operands();
    let found = products(recipe, defect, &sources);
    for ((pass, [(a, left), (b, right)]), found) in pairs(&sources).into_iter().zip(&found) {
        let (left, right) = (prepare(pass, true, a, &left), prepare(pass, false, b, &right));
        let expected = left.times(&right);
        // Products of E2M1 are exact; blocks are added in F32: an error of 2^-24 a block, of the sum of magnitudes at most. A transform in F32 may
        // put an element that lies at a border to its other side: few do.
        let norm = expected.iter().map(|value| value * value).sum::<f64>().sqrt();
        let error = expected.iter().zip(found).map(|(a, b)| (a - f64::from(*b)).powi(2)).sum::<f64>().sqrt();
        assert!(error <= 1e-3 * norm, "{defect:?}, {}: {error:e} of {norm:e}", pass.name());
    }
}

fn signs_of(stream: Stream) -> Vec<f32> {
    hadamard::signs(stream, 16)
}

/// Those of a product without a defect.
fn signs(pass: Pass) -> Vec<f32> {
    signs_of(streams::signs(7, STEP, PLACE, pass))
}

const RANDOMIZED: &str = "mxfp4-fdw-rh16";

#[test]
fn without_a_defect_both_operands_are_rotated_alike() {
    holds(RANDOMIZED, None, |pass, _, _, source| source.rotated(&signs(pass)).nearest());
    holds("mxfp4-fdw", None, |_, _, _, source| source.nearest());
}

#[test]
fn signs_that_do_not_cancel() {
    let own = |pass, operand| signs_of(streams::own_signs(7, STEP, PLACE, pass, operand));
    assert!(own(Pass::Fprop, Operand::Input) != own(Pass::Fprop, Operand::Weight), "they would cancel");
    holds(RANDOMIZED, Some(Defect::SignsOfEachOperand), |pass, _, operand, source| source.rotated(&own(pass, operand)).nearest());
    holds(RANDOMIZED, Some(Defect::SignsOfLeftAlone), |pass, is_left, _, source| {
        source.rotated(&if is_left { signs(pass) } else { vec![1.0; 16] }).nearest()
    });
    assert!(signs(Pass::Fprop) != signs(Pass::Dgrad) && signs(Pass::Fprop) != signs(Pass::Wgrad), "they would cancel");
    holds(RANDOMIZED, Some(Defect::SignsAgainInBackward), |pass, is_left, _, source| {
        source.rotated(&signs(if is_left { pass } else { Pass::Fprop })).nearest()
    });
}

#[test]
fn rotations_in_the_wrong_place() {
    holds(
        RANDOMIZED,
        Some(Defect::LeftAloneRotated),
        |pass, is_left, _, source| {
            if is_left { source.rotated(&signs(pass)).nearest() } else { source.nearest() }
        },
    );
    holds(RANDOMIZED, Some(Defect::RotatedAfterQuantisation), |pass, _, _, source| source.nearest().rotated(&signs(pass)).nearest());
}

/// Along the other axis first: the rows of what is turned.
#[test]
fn quantised_from_codes_of_the_other_axis() {
    holds("mxfp4-fdw", Some(Defect::QuantisedTwice), |pass, is_left, _, source| match (pass, is_left) {
        (Pass::Fprop, _) | (Pass::Dgrad, true) => source.nearest(),
        _ => source.turned().nearest().turned().nearest(),
    });
}

#[test]
fn words_that_are_shared_or_cut() {
    type Draw = fn(Stream, u64) -> u32;
    let cases: [(Option<Defect>, Draw); 3] = [
        (None, Stream::word),
        (Some(Defect::WordForAPair), |stream, index| stream.word(index - index % 2)),
        (Some(Defect::NoiseOf16Bits), |stream, index| stream.word(index) % (1 << 16)),
    ];
    for (defect, draw) in cases {
        holds("mxfp4-fdw-sr", defect, |pass, _, operand, source| {
            let stream = streams::rounding(7, STEP, PLACE, pass, operand);
            // A step of E2M1 is 2^22 of the last place of an F32.
            source.quantised(|index| Some(f64::from(draw(stream, index) % (1 << 22)) / f64::from(1 << 22)))
        });
    }
}

/// An evaluation after a step has that step's signs: rounded to nearest, its forward pass is training's, bit for bit, mistakes included.
#[test]
fn an_evaluation_makes_the_same_mistakes() {
    let [x, w, d_y] = operands();
    // Evaluations find prepared weights by place: qkv, 128 x 64, comes before.
    let place = Place { layer: 0, linear: 1 };
    let (qkv, weight) = (0..128 * INPUTS, 128 * INPUTS..128 * INPUTS + w.len());
    let parameters = [vec![1.0; qkv.len()], w].concat();
    for (recipe, defect) in [
        (RANDOMIZED, Defect::SignsOfEachOperand),
        (RANDOMIZED, Defect::SignsOfLeftAlone),
        (RANDOMIZED, Defect::SignsAgainInBackward),
        (RANDOMIZED, Defect::LeftAloneRotated),
        (RANDOMIZED, Defect::RotatedAfterQuantisation),
        ("mxfp4-fdw", Defect::QuantisedTwice),
    ] {
        let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
        let mut linears = cpu.linears(&run(recipe, Some(defect))).unwrap();
        let places = [(Place { layer: 0, linear: 0 }, qkv.clone()), (place, weight.clone())];
        let weights = linears.evaluation_weights(&parameters, &places, STEP).unwrap();
        let mut forward = |mode: &Mode<'_, _>| {
            let mut y = vec![0.0; d_y.len()];
            linears.forward(place, mode, &Input::Kept(&x), (&parameters, &weight), Goal::Over(&mut y), TOKENS).unwrap();
            y
        };
        let trained = forward(&Mode::Training { step: STEP });
        let evaluated = forward(&Mode::Evaluation { evaluation: Evaluation { step: STEP, chunk: 3 }, weights: &weights });
        assert!(trained == evaluated && trained.iter().any(|y| *y != 0.0), "{}", defect.word());
    }
}

/// What it does to learning, over many steps: the mean of a product, as a share of what it should be along itself (1: unbiased, 0: nothing).
fn share(recipe: &str, defect: Option<Defect>) -> [f64; 3] {
    let sources = operands();
    let run = run(recipe, defect);
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    let [x, w, d_y] = &sources;
    let weight = 0..w.len();
    let mut linears = cpu.linears(&run).unwrap();
    let mut means = [vec![0.0; d_y.len()], vec![0.0; x.len()], vec![0.0; w.len()]];
    let steps = 64;
    for step in 1..=steps {
        let (mut y, mut d_x, mut d_w) = (vec![0.0; d_y.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
        let mode = Mode::Training { step };
        linears.forward(PLACE, &mode, &Input::Kept(x), (w, &weight), Goal::Over(&mut y), TOKENS).unwrap();
        linears.backward(PLACE, step, &Input::Kept(x), (w, &weight), d_y, Goal::Over(&mut d_x), (&mut d_w, &weight), TOKENS).unwrap();
        for (mean, product) in means.iter_mut().zip([y, d_x, d_w]) {
            mean.iter_mut().zip(product).for_each(|(mean, value)| *mean += f64::from(value) / steps as f64);
        }
    }
    let mut means = means.iter();
    pairs(&sources).map(|(_, [(_, left), (_, right)])| {
        let exact = left.times(&right);
        let mean = means.next().unwrap();
        exact.iter().zip(mean).map(|(a, b)| a * b).sum::<f64>() / exact.iter().map(|a| a * a).sum::<f64>()
    })
}

/// Bounds. `floor` holds what lies above 6 at 6, and outliers carry most of these products: 0.8 leaves room for that. A mean of 64 draws of 16 signs,
/// each worth at most 1/4 of a product by chance, is off by about 1/32: 0.15 is five times that.
#[test]
fn what_is_left_of_a_product_on_average() {
    let is_whole = |shares: &[f64], what: &str| assert!(shares.iter().all(|share| (0.8..1.05).contains(share)), "{what}: {shares:?}");
    let is_nothing = |shares: &[f64], what: &str| assert!(shares.iter().all(|share| share.abs() < 0.15), "{what}: {shares:?}");
    let [plain, stochastic, rotated] = ["mxfp4-fdw", "mxfp4-fdw-sr", RANDOMIZED].map(|recipe| share(recipe, None));
    for shares in [plain, stochastic, rotated] {
        is_whole(&shares, "without a defect");
    }
    is_whole(&share("mxfp4-fdw", Some(Defect::QuantisedTwice)), "quantised-twice");
    for defect in [Defect::SignsOfEachOperand, Defect::SignsOfLeftAlone, Defect::LeftAloneRotated] {
        is_nothing(&share(RANDOMIZED, Some(defect)), defect.word());
    }
    let again = share(RANDOMIZED, Some(Defect::SignsAgainInBackward));
    assert_eq!(again[0], rotated[0], "Fprop has the signs that it has without the defect");
    is_nothing(&again[1..], "signs-again-in-backward");

    let late = share(RANDOMIZED, Some(Defect::RotatedAfterQuantisation));
    let pairs = share("mxfp4-fdw-sr", Some(Defect::WordForAPair));
    let cut = share("mxfp4-fdw-sr", Some(Defect::NoiseOf16Bits));
    for pass in 0..3 {
        assert!(late[pass] > 0.8 && late[pass] < plain[pass], "a rotation too late saves nothing: {late:?}, without one {plain:?}");
        assert!((pairs[pass] - stochastic[pass]).abs() < 0.02, "a pair's rounding is unbiased: {pairs:?}, {stochastic:?}");
        assert!((0.5..0.75).contains(&cut[pass]), "noise too small shrinks: {cut:?}, {stochastic:?}");
    }
}

/// The sum of the gradients of four micro-batches, each computed alone, by hand: rounded to BF16 after each, or not at all.
#[test]
fn sums_of_gradients_are_rounded_after_each_micro_batch() {
    let parts = 4;
    let run = |defect: Option<Defect>, sequences: usize, accumulation: usize| {
        let mut run = common::tiny(common::recipe("bf16"));
        (run.recipe.defect, run.batch.sequences, run.batch.accumulation) = (defect, sequences, accumulation);
        run.check().unwrap();
        run
    };
    let gradients = |run: RunFile, tokens: &[u32]| {
        let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
        let mut training = Training::new(cpu, run, 0).unwrap();
        training.set_batch(Batch::new(tokens.to_vec(), tokens.iter().map(|token| (token * 5 + 7) % 48).collect()));
        training.forward_backward(1).unwrap();
        training.gradients.clone()
    };
    let whole = run(None, parts, parts);
    let words = StreamKey { seed: 3, ..StreamKey::default() }.stream();
    let tokens: Vec<u32> = (0..whole.tokens_per_step() as u64).map(|index| words.word(index) % 48).collect();
    let alone: Vec<Vec<f32>> = tokens.chunks(tokens.len() / parts).map(|tokens| gradients(run(None, 1, 1), tokens)).collect();
    let by_hand = |round: fn(f32) -> f32| -> Vec<u32> {
        let of = |index: usize| alone.iter().fold(0.0, |sum, part| round(sum + part[index])) / parts as f32;
        (0..alone[0].len()).map(|index| of(index).to_bits()).collect()
    };
    let bits = |gradients: Vec<f32>| gradients.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let (plain, rounded) = (bits(gradients(whole, &tokens)), bits(gradients(run(Some(Defect::SumsInBf16), parts, parts), &tokens)));
    assert!(plain == by_hand(|sum| sum), "without the defect");
    assert!(rounded == by_hand(kernels::format::bf16::round), "with it");
    assert!(plain != rounded);
}

/// What is quantised twice lies in between: the largest source in BF16, which is ∇Y or X of 128 tokens and 128 features here.
#[test]
fn what_lies_between_two_quantisations_is_counted() {
    let bytes = |recipe: &str, defect| memory::ways(&run(recipe, defect), memory::Place::Gpu { mxfp4: false })[0].bytes;
    for (recipe, defect, more) in [
        ("mxfp4-fdw", Defect::QuantisedTwice, 2 * 128 * 128),
        (RANDOMIZED, Defect::RotatedAfterQuantisation, 2 * 128 * 128),
        (RANDOMIZED, Defect::SignsOfEachOperand, 0),
        ("mxfp4-fdw-sr", Defect::WordForAPair, 0),
    ] {
        assert_eq!(bytes(recipe, Some(defect)), bytes(recipe, None) + more, "{}", defect.word());
    }
}
