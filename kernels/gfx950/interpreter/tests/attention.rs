//! Attention on gfx950's BF16 matrix operations, executed, against `kernels::cpu`: forward and backward, on lengths around the tiles of 64; heads of
//! 128 elements by attention_32x32.hip, others by attention.hip.
//!
//! Bounds are those of trainer/src/device_test, with u = 2^-8 the unit roundoff of BF16 (kernels::closeness): the forward pass rounds its
//! probabilities and its output: 2u; the backward pass rounds probabilities, their gradients and the output, and reads the rounded output
//! of the forward pass: 4u. Roundings that all go one way show in the shift along what is wanted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{
    Arguments, Errors, FEW_SEEDS, Planted, THOUSAND_SEEDS, bf16_bytes, bf16_of, compile, f32_of, normals, normals_of, run_of,
};
use gfx950_interpreter::decode::{Encoding, Instruction, Op};
use gfx950_interpreter::fault::LaunchError;
use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;
use gfx950_interpreter::{Order, Statistics};
use kernels::cpu::{AttentionShape, Cpu, InstructionSet};

fn object(head_dim: usize, extra: &[&str]) -> Option<CodeObject> {
    let define = format!("-DHEAD_DIM={head_dim}");
    let all: Vec<&str> = [define.as_str()].into_iter().chain(extra.iter().copied()).collect();
    let file = if head_dim == 128 { "attention_32x32.hip" } else { "attention.hip" };
    compile(file, &all).map(|bytes| CodeObject::parse(&bytes).unwrap())
}

/// Rows and threads of a workgroup, the same in all three kernels.
fn launch_of(object: &CodeObject) -> (usize, u32) {
    let constant = object.constants.iter().find(|constant| constant.name == "attention_launch").unwrap();
    let words: Vec<u32> = constant.bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert!(words.len() == 9 && words.chunks_exact(3).all(|kernel| kernel == [words[0], words[1], 0]), "{words:?}");
    (words[0] as usize, words[1])
}

/// What a step of attention reads and writes, in the interpreter's memory.
#[derive(Clone)]
struct Call {
    shape: AttentionShape,
    memory: Memory,
    qkv: Address,
    out: Address,
    logsumexp: Address,
    d_out: Address,
    delta: Address,
    d_qkv: Address,
}

impl Call {
    fn new(shape: AttentionShape, qkv: &[f32], d_out: &[f32]) -> Self {
        let mut memory = Memory::new();
        let statistics = 4 * shape.tokens() * shape.heads;
        Self {
            qkv: memory.input("qkv", &bf16_bytes(qkv)),
            d_out: memory.input("d_out", &bf16_bytes(d_out)),
            out: memory.output("out", 2 * d_out.len()),
            logsumexp: memory.output("logsumexp", statistics),
            delta: memory.output("delta", statistics),
            d_qkv: memory.output("d_qkv", 2 * qkv.len()),
            memory,
            shape,
        }
    }

    fn run(
        &mut self,
        object: &CodeObject,
        kernel: &str,
        heads: usize,
        arguments: &Arguments,
        order: Order,
    ) -> Result<Statistics, LaunchError> {
        let (rows, threads) = launch_of(object);
        let grid = [self.shape.sequence.div_ceil(rows) as u32, heads as u32, self.shape.batch as u32];
        run_of(object, kernel, &mut self.memory, grid, (threads, 0), arguments, order)
    }

    fn sizes(&self, arguments: Arguments) -> Arguments {
        [self.shape.sequence, self.shape.heads, self.shape.kv_heads].iter().fold(arguments, |arguments, &size| arguments.u32(size as u32))
    }

    fn forward_arguments(&self) -> Arguments {
        self.sizes(Arguments::default().at(self.qkv).at(self.out).at(self.logsumexp))
    }

    fn forward(&mut self, object: &CodeObject, order: Order) -> Result<Statistics, LaunchError> {
        let arguments = self.forward_arguments();
        self.run(object, "attention_forward", self.shape.heads, &arguments, order)
    }

    fn backward_q(&mut self, object: &CodeObject, order: Order) -> Result<Statistics, LaunchError> {
        let arguments = Arguments::default().at(self.qkv).at(self.out).at(self.d_out).at(self.logsumexp).at(self.delta).at(self.d_qkv);
        let arguments = self.sizes(arguments);
        self.run(object, "attention_backward_q", self.shape.heads, &arguments, order)
    }

    fn backward_kv(&mut self, object: &CodeObject, order: Order) -> Result<Statistics, LaunchError> {
        let arguments = Arguments::default().at(self.qkv).at(self.d_out).at(self.logsumexp).at(self.delta).at(self.d_qkv);
        let arguments = self.sizes(arguments);
        self.run(object, "attention_backward_kv", self.shape.kv_heads, &arguments, order)
    }

    /// All three, in their order.
    fn all(&mut self, object: &CodeObject, order: Order) -> Result<[Statistics; 3], LaunchError> {
        Ok([self.forward(object, order)?, self.backward_q(object, order)?, self.backward_kv(object, order)?])
    }
}

/// What a call with random inputs left, in each order; an order that leaves other bits than the first fails.
fn errors(seed: u32, shape: AttentionShape, deviation: f32, orders: &[Order], planted: Planted) -> Option<Errors> {
    let object = object(shape.head_dim, planted.defines())?;
    let (fused, single) = (shape.tokens() * shape.qkv_width(), shape.tokens() * shape.out_width());
    let (qkv, d_out) = (normals_of(seed, 31, fused, deviation), normals_of(seed, 32, single, 1.0));
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    let (mut out, mut logsumexp, mut d_qkv) = (vec![0.0; single], vec![0.0; shape.tokens() * shape.heads], vec![0.0; fused]);
    cpu.attention(&qkv, shape, &mut out, &mut logsumexp).unwrap();
    cpu.attention_backward(&qkv, shape, &out, &logsumexp, &d_out, &mut d_qkv).unwrap();
    let (queries, keys) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let mut told = qkv;
    for row in told.chunks_mut(shape.qkv_width()) {
        match planted {
            // Keys for values.
            Planted::Swapped => row[queries..].rotate_left(keys),
            Planted::Dropped => row[queries + keys..].fill(0.0),
            Planted::Nothing | Planted::Truncation => {}
        }
    }
    let (mut errors, mut first): (Errors, Option<Vec<u8>>) = (Errors::default(), None);
    for &order in orders {
        let mut call = Call::new(shape, &told, &d_out);
        call.all(&object, order).unwrap();
        errors.rounded("out", (&bf16_of(&call.memory, call.out), &out), shape.head_dim, 2);
        errors.in_f32("logsumexp", &f32_of(&call.memory, call.logsumexp), &logsumexp);
        let found = bf16_of(&call.memory, call.d_qkv);
        for (name, columns) in [("d_q", 0..queries), ("d_k", queries..queries + keys), ("d_v", queries + keys..queries + 2 * keys)] {
            // With one key the softmax is constant: the true gradients of queries and keys are zero, and there is no relative error.
            if shape.sequence == 1 && name != "d_v" {
                continue;
            }
            let part =
                |all: &[f32]| -> Vec<f32> { all.chunks_exact(shape.qkv_width()).flat_map(|row| row[columns.clone()].to_vec()).collect() };
            errors.rounded(name, (&part(&found), &part(&d_qkv)), shape.head_dim, 4);
        }
        // The order of the waves changes no bit.
        let bytes = [call.memory.bytes(call.out).unwrap(), call.memory.bytes(call.d_qkv).unwrap()].concat();
        assert!(*first.get_or_insert_with(|| bytes.clone()) == bytes, "{order:?} gave other bits");
    }
    Some(errors)
}

fn compare(shape: AttentionShape, deviation: f32, orders: &[Order]) {
    if let Some(errors) = errors(0, shape, deviation, orders, Planted::Nothing) {
        errors.assert_none(&format!("{shape:?}"));
    }
}

/// Fresh seeds of a small shape with grouped heads.
fn bounds_hold(seeds: std::ops::Range<u32>, shape: AttentionShape) {
    for seed in seeds {
        let Some(errors) = errors(seed, shape, 1.0, &[Order::Serial], Planted::Nothing) else { return };
        errors.assert_none(&format!("seed {seed}"));
    }
}

fn each_planted_error_shows(shape: AttentionShape) {
    for (seed, planted) in Planted::ERRORS.into_iter().flat_map(|planted| FEW_SEEDS.map(move |seed| (seed, planted))) {
        let Some(errors) = errors(seed, shape, 1.0, &[Order::Serial], planted) else { return };
        errors.assert_some(&format!("{planted:?}, seed {seed}"));
    }
}

#[test]
fn bounds_hold_for_fresh_seeds_and_show_each_planted_error() {
    bounds_hold(FEW_SEEDS, shape(2, 33, 4, 2, 16));
    each_planted_error_shows(shape(2, 65, 4, 2, 32));
}

#[test]
fn bounds_of_heads_of_128_hold_for_fresh_seeds_and_show_each_planted_error() {
    bounds_hold(FEW_SEEDS, shape(1, 33, 2, 1, 128));
    each_planted_error_shows(shape(2, 65, 4, 2, 128));
}

#[test]
#[ignore = "minutes; run by hand after a change to bounds or kernels"]
fn a_thousand_seeds_keep_the_bounds() {
    bounds_hold(THOUSAND_SEEDS, shape(2, 33, 4, 2, 16));
}

#[test]
#[ignore = "minutes; run by hand after a change to bounds or kernels"]
fn a_thousand_seeds_keep_the_bounds_of_heads_of_128() {
    bounds_hold(THOUSAND_SEEDS, shape(1, 33, 2, 1, 128));
}

fn shape(batch: usize, sequence: usize, heads: usize, kv_heads: usize, head_dim: usize) -> AttentionShape {
    AttentionShape { batch, sequence, heads, kv_heads, head_dim }
}

#[test]
fn lengths_around_a_tile_in_every_order_of_waves() {
    compare(shape(2, 1, 2, 2, 64), 1.0, &[Order::Serial]);
    compare(shape(1, 63, 4, 2, 64), 1.0, &[Order::Serial]);
    compare(shape(2, 65, 2, 1, 32), 1.0, &Order::ALL);
}

#[test]
fn several_tiles_and_head_sizes_that_are_no_multiple_of_32() {
    compare(shape(1, 129, 2, 1, 16), 1.0, &[Order::RoundRobin]);
    compare(shape(2, 70, 2, 2, 48), 1.0, &[Order::Reversed]);
    compare(shape(1, 140, 2, 1, 128), 1.0, &[Order::Serial]);
}

/// The head sizes between 64 and 128: 80 and 112 leave half of the last step of 32 empty, 96 does not.
#[test]
fn head_sizes_between_64_and_128() {
    compare(shape(1, 70, 2, 1, 80), 1.0, &[Order::Serial, Order::RoundRobin]);
    compare(shape(1, 66, 2, 2, 96), 1.0, &[Order::Reversed]);
    compare(shape(2, 65, 1, 1, 112), 1.0, &[Order::Serial]);
}

/// Heads of 128: fewer keys than a tile, a sequence around a tile of 64 and around a block of 256, grouped heads and several sequences.
#[test]
fn heads_of_128_in_every_order_of_waves() {
    compare(shape(2, 1, 2, 2, 128), 1.0, &[Order::Serial]);
    compare(shape(1, 63, 4, 2, 128), 1.0, &[Order::Reversed]);
    compare(shape(2, 65, 2, 1, 128), 1.0, &Order::ALL);
    compare(shape(2, 300, 2, 1, 128), 1.0, &[Order::RoundRobin]);
}

/// Scores of up to a few hundred: the running maximum moves, and most probabilities vanish.
#[test]
fn large_scores_do_not_overflow() {
    compare(shape(1, 150, 1, 1, 64), 5.0, &[Order::Serial]);
    compare(shape(1, 150, 1, 1, 128), 5.0, &[Order::Serial]);
}

/// NaN reaches the rows that see it, and an earlier row stays finite (unless it shares a tile with the NaN's key).
#[test]
fn a_nan_reaches_what_depends_on_it() {
    for head_dim in HEAD_DIMS {
        let Some(object) = object(head_dim, &[]) else { return };
        let shape = shape(1, 130, 1, 1, head_dim);
        let mut qkv = normals(33, shape.tokens() * shape.qkv_width(), 1.0);
        qkv[70 * shape.qkv_width() + head_dim + 5] = f32::NAN; // key 70
        let mut call = Call::new(shape, &qkv, &normals(34, shape.tokens() * head_dim, 1.0));
        call.forward(&object, Order::Serial).unwrap();
        let out = bf16_of(&call.memory, call.out);
        let row = |row: usize| &out[head_dim * row..head_dim * (row + 1)];
        assert!((70..130).all(|at| row(at).iter().all(|x| x.is_nan())) && (0..64).all(|at| row(at).iter().all(|x| x.is_finite())));
    }
}

/// One for each source.
const HEAD_DIMS: [usize; 2] = [64, 128];

/// The first control: without its barriers, waves read tiles that others are still writing.
#[test]
fn missing_barriers_are_a_race() {
    for head_dim in HEAD_DIMS {
        let Some(object) = object(head_dim, &["-DBREAK_NO_BARRIER"]) else { return };
        let shape = shape(1, 70, 1, 1, head_dim);
        for order in Order::ALL {
            let mut call = Call::new(shape, &normals(35, 70 * 3 * head_dim, 1.0), &normals(36, 70 * head_dim, 1.0));
            let fault = call.forward(&object, order).unwrap_err().to_string();
            assert!(fault.contains("LDS") || fault.contains("never written"), "{fault}");
        }
    }
}

/// No two lanes that are served together want one bank, whichever they are; without the turns of the chunks they do.
#[test]
fn tiles_of_heads_of_128_have_no_bank_conflicts() {
    let conflicts = |extra: &[&str]| -> Option<Vec<[u64; 2]>> {
        let object = object(128, extra)?;
        let mut call = Call::new(shape(1, 70, 1, 1, 128), &normals(39, 70 * 384, 1.0), &normals(40, 70 * 128, 1.0));
        Some(call.all(&object, Order::Serial).unwrap().map(|statistics| statistics.bank_conflicts).to_vec())
    };
    let Some(found) = conflicts(&[]) else { return };
    assert_eq!(found, [[0; 2]; 3]);
    let without = conflicts(&["-DBREAK_NO_SWIZZLE"]).unwrap();
    assert!(without.iter().all(|both| both[0] > 100 && both[1] > 100), "{without:?}");
}

/// The second: each wait of the machine code, taken out alone, is missed; but for one before a barrier, where nothing is under way any more: the last
/// product has waited for the wave's last read already.
#[test]
fn every_removed_wait_is_missed() {
    for head_dim in HEAD_DIMS {
        let Some(object) = object(head_dim, &[]) else { return };
        let shape = shape(1, 130, 1, 1, head_dim);
        let (qkv, d_out) = (normals(37, 130 * 3 * head_dim, 1.0), normals(38, 130 * head_dim, 1.0));
        let names: &[&str] =
            if head_dim == 128 { &["attention_forward", "attention_backward_q", "attention_backward_kv"] } else { &["attention_forward"] };
        for name in names {
            let whole = object.kernels.iter().position(|kernel| kernel.name == *name).unwrap();
            let mut before = Call::new(shape, &qkv, &d_out);
            before.all(&object, Order::Serial).unwrap();
            let instructions = &object.kernels[whole].instructions;
            let waits: Vec<usize> = (0..instructions.len()).filter(|&at| instructions[at].op == Op::s_waitcnt).collect();
            let mut unnoticed = Vec::new();
            for &at in &waits {
                let mut broken = object.clone();
                let taken_out = &mut broken.kernels[whole].instructions[at];
                (taken_out.op, taken_out.constant) = (Op::s_nop, 0);
                let mut call = before.clone();
                let result = match *name {
                    "attention_forward" => call.forward(&broken, Order::RoundRobin),
                    "attention_backward_q" => call.backward_q(&broken, Order::RoundRobin),
                    _ => call.backward_kv(&broken, Order::RoundRobin),
                };
                if result.is_ok() {
                    let touches = |i: &&Instruction| i.op == Op::s_barrier || i.encoding == Encoding::Ds || i.access.lds;
                    unnoticed.push((at, instructions[at].to_string(), instructions[at..].iter().find(touches).map(|next| next.op)));
                }
            }
            println!("{name} of {head_dim}: {} waits, {} unnoticed: {unnoticed:?}", waits.len(), unnoticed.len());
            assert!(waits.len() > 5 && unnoticed.len() <= 1, "{unnoticed:?}");
            assert!(unnoticed.iter().all(|(.., next)| *next == Some(Op::s_barrier)), "{unnoticed:?}");
        }
    }
}
