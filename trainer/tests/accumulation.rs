//! A step made of several micro-batches: the gradient of one large batch, words of its own for each, and bytes that survive being stopped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;
use contract::run_file::RunFile;
use kernels::cpu::{Cpu, InstructionSet};
use kernels::random::Stream;
use trainer::batches::Batch;
use trainer::choices::Choices;
use trainer::error::TrainerError;
use trainer::streams::{Operand, Pass, Place, micro_step};
use trainer::trainer_state::{StepResult, Training};

/// The tiny run with `sequences` in a step of `parts` micro-batches.
fn run(recipe: &str, sequences: usize, parts: usize) -> RunFile {
    let text = common::tiny_yaml(common::recipe(recipe), |run| {
        run["batch"]["sequences"] = sequences.into();
        run["batch"]["accumulation"] = parts.into();
        // Room for a batch in which no token stands twice.
        run["model"]["vocab_size"] = 160.into();
    });
    RunFile::parse("accumulated", &serde_yaml::to_string(&text).unwrap()).unwrap()
}

/// Loss and gradients of the first step on 128 inputs, each token once.
fn first_step(recipe: &str, parts: usize) -> (StepResult, Training<Cpu>) {
    let run = run(recipe, 4, parts);
    let tokens = run.tokens_per_step() as u32;
    let mut training = Training::new(Cpu::new(InstructionSet::detect(), 1).unwrap(), run, 0).unwrap();
    training.set_batch(Batch::new((0..tokens).collect(), (0..tokens).map(|i| (i * 7 + 3) % 160).collect()));
    (training.forward_backward(1).unwrap(), training)
}

/// In F32 a sequence's activations do not depend on its batch, and a mean over half the tokens is exactly twice the terms: so what is summed
/// over one token alone (the embedding's rows, each token standing once) comes out bit for bit the same, and what is summed over all T tokens
/// differs by the order of the sum only.
///
/// Bound for the latter, u = 2^-24: two orders of T terms differ by at most 2 T u sum|terms|, and a sum of T terms of random signs is about
/// sum|terms| / sqrt(T); so relative to a tensor's norm by 2 T sqrt(T) u. Forgetting to divide, or a micro-batch, is off by half at least.
#[test]
fn two_micro_batches_have_the_gradient_of_one_batch_of_twice_the_size() {
    for parts in [2, 4] {
        let ((whole, one), (part, accumulated)) = (first_step("f32", 1), first_step("f32", parts));
        let tokens = one.run().tokens_per_step() as f64;
        // Losses of tokens are the same; their sum is taken in F64, in parts or at once.
        assert!((whole.loss / part.loss - 1.0).abs() <= 2.0 * tokens * f64::EPSILON, "{} {}", whole.loss, part.loss);
        let bound = 2.0 * tokens * tokens.sqrt() * 2f64.powi(-24);
        assert!((whole.gradient_norm / part.gradient_norm - 1.0).abs() <= bound);
        let layout = one.model.layout();
        let (a, b) = (&one.gradients, &accumulated.gradients);
        assert_eq!(a[layout.embedding.clone()], b[layout.embedding.clone()], "one term a row: nothing to round differently");
        assert!(a[layout.embedding.clone()].iter().any(|x| *x != 0.0));
        let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
        let mut differing = 0;
        for tensor in &layout.tensors {
            let (a, b) = (&a[tensor.range.clone()], &b[tensor.range.clone()]);
            let size = norm(&mut a.iter().map(|x| f64::from(*x)));
            let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
            assert!(size > 0.0 && difference <= bound * size, "{}: {difference} of {size}", tensor.name);
            differing += usize::from(difference > 0.0);
        }
        assert!(differing > 0, "not one sum was taken in another order");
    }
}

/// MXFP4's weight gradient is contracted over a micro-batch, whose blocks of 32 tokens are those of the whole batch: to nearest, only the
/// order of sums across blocks and the factor that scales a micro-batch's mean (a power of two, which blocks' exponents take up) are left.
#[test]
fn quantised_to_nearest_the_gradient_is_that_of_one_batch_too() {
    let ((_, one), (_, accumulated)) = (first_step("mxfp4-fdw", 1), first_step("mxfp4-fdw", 2));
    let embedding = one.model.layout().embedding.clone();
    assert_eq!(one.gradients[embedding.clone()], accumulated.gradients[embedding]);
}

/// Stochastic rounding of each micro-batch draws its own words: two micro-batches of the very same tokens give different gradients, and with
/// nearest-even the same.
#[test]
fn micro_batches_share_no_random_words() {
    let place = Place { layer: 0, linear: 0 };
    for (recipe, differs) in [("mxfp4-fdw-sr", true), ("mxfp4-fdw-sr-constant", false)] {
        let choices = Choices::new(&run(recipe, 4, 4));
        let mut seen: Vec<Stream> = Vec::new();
        for step in 1..=3 {
            for part in 0..4 {
                let words = choices.training_words(place, Pass::Wgrad, Operand::OutputGradient, micro_step(step, part, 4)).unwrap();
                assert_eq!(seen.contains(&words), !differs && !seen.is_empty(), "{recipe}: step {step}, micro-batch {part}");
                seen.push(words);
            }
        }
    }
    // Through the whole run every number comes once, and with one micro-batch it is the step.
    let numbers: BTreeSet<u64> = (1..=50).flat_map(|step| (0..3).map(move |part| micro_step(step, part, 3))).collect();
    assert_eq!((numbers.len(), numbers.first(), numbers.last()), (150, Some(&1), Some(&150)));
    assert!((1..100).all(|step| micro_step(step, 0, 1) == step));
    // The same sequence in both halves of a batch: to nearest both halves' gradients are one micro-batch's.
    let twice = |recipe: &str| {
        let mut gradients = Vec::new();
        for (sequences, parts) in [(1, 1), (2, 2)] {
            let run = run(recipe, sequences, parts);
            let mut training = Training::new(Cpu::new(InstructionSet::detect(), 1).unwrap(), run, 0).unwrap();
            let token = |i: usize| (i % 32 * 5 % 160) as u32;
            training.set_batch(Batch::new((0..32 * sequences).map(token).collect(), (0..32 * sequences).map(|i| token(i + 1)).collect()));
            training.forward_backward(1).unwrap();
            gradients.push(training.gradients);
        }
        gradients[0] == gradients[1]
    };
    assert!(twice("mxfp4-fdw"), "the mean of two equal gradients is that gradient");
    assert!(!twice("mxfp4-fdw-sr"), "both micro-batches drew the same words");
    assert!(twice("mxfp4-fdw-sr-constant"), "this control's words are the same everywhere");
}

/// Trains a second step on these micro-batches; before it one on a batch whose magnitudes are the same, whatever the second has.
fn second_step(run: &RunFile, tokens: &[Vec<u32>]) -> Training<Cpu> {
    let mut training = Training::new(Cpu::new(InstructionSet::detect(), 1).unwrap(), run.clone(), 0).unwrap();
    let count = run.tokens_per_step() as u32;
    let inputs: Vec<u32> = (0..count).map(|i| i * 11 % 160).collect();
    training.set_batch(Batch::new(inputs.clone(), inputs.iter().map(|i| (i + 1) % 160).collect()));
    let result = training.forward_backward(1).unwrap();
    training.update(1, result.gradient_norm).unwrap();
    let inputs = tokens.concat();
    training.set_batch(Batch::new(inputs.clone(), inputs.iter().map(|i| (i * 3 + 1) % 160).collect()));
    training.forward_backward(2).unwrap();
    training
}

/// Within a step no micro-batch sees another's magnitudes: the gradient of a step is the mean of those that its micro-batches have in steps of
/// their own that follow the same first one, as a sum of F32 that is done here. Micro-batches whose largest values differ (the second reads
/// one token only, the first many) would move each other's scales.
#[test]
fn delayed_scales_of_a_step_follow_from_earlier_steps_alone() {
    for recipe in ["fp8", "f32"] {
        let mut run = run(recipe, 2, 2);
        // Scales follow the step before alone.
        run.recipe.delayed_scaling = run.recipe.delayed_scaling.map(|delayed| contract::recipe::DelayedScaling { history: 1, ..delayed });
        let (many, one): (Vec<u32>, Vec<u32>) = ((0..32).map(|i| i * 5 % 160).collect(), vec![7; 32]);
        let step = |tokens: [&Vec<u32>; 2]| second_step(&run, &tokens.map(Clone::clone)).gradients;
        // A step of twice the same micro-batch has that micro-batch's gradient: (g + g) / 2, exactly.
        let (of_many, of_one) = (step([&many, &many]), step([&one, &one]));
        assert_ne!(of_many, of_one);
        let mean: Vec<f32> = of_many.iter().zip(&of_one).map(|(a, b)| (a + b) / 2.0).collect();
        assert!(step([&many, &one]) == mean, "{recipe}: the first micro-batch moved the second one's scales");
        // Addition of two commutes: in the other order, too.
        assert!(step([&one, &many]) == mean, "{recipe}: the order of micro-batches shows");
    }
}

/// A history counts steps: after one it has one entry an operand, the largest over its micro-batches, whose own are those of steps of one
/// micro-batch each. (In the first step scales rest on each micro-batch's own magnitude, so these are the same operands.)
#[test]
fn delayed_scales_remember_the_largest_of_a_step() {
    use trainer::device::Linears;
    let histories = |parts: usize, batch: std::ops::Range<u32>| {
        let run = run("fp8", parts, parts);
        let mut training = Training::new(Cpu::new(InstructionSet::detect(), 1).unwrap(), run, 0).unwrap();
        training.set_batch(Batch::new(batch.clone().collect(), batch.map(|i| (i * 7 + 3) % 160).collect()));
        training.forward_backward(1).unwrap();
        let histories = training.model.linears.histories().unwrap();
        assert!(histories.iter().all(|history| history.len() == 1));
        histories.concat()
    };
    let alone: Vec<Vec<f32>> = (0..4).map(|part| histories(1, 32 * part..32 * (part + 1))).collect();
    let together = histories(4, 0..128);
    let largest: Vec<f32> = (0..together.len()).map(|slot| alone.iter().map(|one| one[slot]).fold(0.0, f32::max)).collect();
    assert_eq!(together, largest);
    // Activations' largest magnitudes do differ between micro-batches, and not always the last or the first has the largest.
    assert!(alone.iter().all(|one| *one != largest));
}

fn prepare(folder: &Path, recipe: &str) {
    common::write_data(&folder.join("data"));
    let run = common::tiny_yaml(common::recipe(recipe), |run| {
        run["budget"]["steps"] = 40.into();
        run["batch"]["accumulation"] = 2.into();
        run["evaluation"]["every_steps"] = 5.into();
        run["checkpoint"]["every_steps"] = 3.into();
    });
    common::write_run(&folder.join("run"), &run);
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("run").arg(folder.join("run/run.yaml")).arg("--data").arg(folder.join("data")).stderr(Stdio::null());
    command
}

/// Everything that must be equal.
fn outcome(folder: &Path) -> Vec<Vec<u8>> {
    let names = ["metrics.jsonl", "done.json", "checkpoint/state.json", "checkpoint/state.safetensors", "model/model.safetensors"];
    names.iter().map(|name| fs::read(folder.join("run").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))).collect()
}

/// Delayed scales are state, stochastic words are numbered through the run, and operands are measured once a step.
#[test]
fn killed_within_an_accumulated_run_it_ends_with_the_same_bytes() {
    for recipe in ["fp8", "mxfp4-fdw-sr"] {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), recipe);
        let started = std::time::Instant::now();
        assert!(command(folder.path()).status().unwrap().success());
        let (whole, wanted) = (started.elapsed(), outcome(folder.path()));
        let metrics = String::from_utf8(wanted[0].clone()).unwrap();
        let measured: Vec<&str> = metrics.lines().filter(|line| line.contains("\"quantisation\"")).collect();
        // Steps 2 and 12, two blocks, four linears, six operands, none twice.
        assert_eq!(measured.len(), 2 * 2 * 4 * 6);
        assert_eq!(measured.iter().collect::<BTreeSet<_>>().len(), measured.len());
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), recipe);
        for part in 1..=8 {
            let mut child = command(folder.path()).spawn().unwrap();
            std::thread::sleep(whole.mul_f64(f64::from(part * 37 % 100) / 100.0 * 0.6));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(command(folder.path()).status().unwrap().success());
        assert!(outcome(folder.path()) == wanted, "{recipe}: bytes differ");
    }
}

/// What is not a number of equal parts is refused by its key; one micro-batch is the run it always was.
#[test]
fn bad_values_are_refused_and_one_is_what_it_was() {
    let text = |sequences: i64, parts: serde_yaml::Value| {
        let value = common::tiny_yaml(common::recipe("mxfp4-fdw-h16"), |run| {
            run["batch"]["sequences"] = sequences.into();
            run["batch"]["accumulation"] = parts.clone();
        });
        RunFile::parse("run.yaml", &serde_yaml::to_string(&value).unwrap())
    };
    for (sequences, parts, expected) in [
        (4, 0.into(), "batch.accumulation: must be at least 1, is 0"),
        (4, 3.into(), "batch.accumulation: 3 micro-batches do not divide batch.sequences (4) into equal parts"),
        (4, 8.into(), "batch.accumulation: 8 micro-batches do not divide batch.sequences (4) into equal parts"),
        (4, (-2).into(), "batch.accumulation: invalid type"),
        (4, "two".into(), "batch.accumulation: invalid type"),
    ] {
        let error = text(sequences, parts).unwrap_err();
        assert_eq!(TrainerError::from(error.clone()).exit_code(), 2);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    let (stated, left_out) = (text(4, 1.into()).unwrap(), common::tiny(common::recipe("mxfp4-fdw-h16")));
    assert_eq!(stated.batch, left_out.batch);
    assert!(!serde_yaml::to_string(&stated).unwrap().contains("accumulation"));
    // Blocks and rotations have to fit a micro-batch, along whose tokens the weight gradient is contracted.
    let value = common::tiny_yaml(common::recipe("mxfp4-fdw-h32"), |run| {
        run["model"]["sequence_length"] = 16.into();
        run["batch"]["sequences"] = 4.into();
        run["batch"]["accumulation"] = 4.into();
    });
    let error = RunFile::parse("run.yaml", &serde_yaml::to_string(&value).unwrap()).unwrap_err().to_string();
    assert!(error.contains("recipe.passes.wgrad"), "{error}");
}
