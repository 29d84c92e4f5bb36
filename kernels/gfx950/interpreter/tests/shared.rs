//! The kernels that CUDA and gfx950 share, compiled for gfx950 and executed, against `kernels::cpu`: norms, rotary positions, SwiGLU,
//! embedding, loss, optimizer, tensor scales. Launched as kernels/src/gpu launches them.
//!
//! Bounds are those of trainer/src/device_test (kernels::closeness): what is rounded to BF16 once is within half a unit in the last place
//! of the CPU's F32 result, plus F32's own errors. What is the same arithmetic in the same order is the same bits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{
    Arguments, Errors, FEW_SEEDS, Planted, THOUSAND_SEEDS, bf16_bytes, bf16_of, compile, f32_bytes, f32_of, f64_of, normals, normals_of,
    run_of, u32_bytes,
};
use gfx950_interpreter::Order;
use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;
use kernels::cpu::{AdamW, Cpu, InstructionSet, RopeTable};
use kernels::random::Stream;

fn object(file: &str, defines: &[&str]) -> Option<CodeObject> {
    compile(&format!("../device/{file}"), defines).map(|bytes| CodeObject::parse(&bytes).unwrap())
}

fn cpu() -> Cpu {
    Cpu::new(InstructionSet::detect(), 1).unwrap()
}

fn assert_same_bits(found: &[f32], wanted: &[f32], what: &str) {
    let differ = found.iter().zip(wanted).position(|(a, b)| a.to_bits() != b.to_bits());
    assert!(found.len() == wanted.len() && differ.is_none(), "{what} differs at {differ:?}");
}

/// RMSNorm of both kinds of rows: those that a wave has to itself and those of a whole workgroup.
fn norm(seed: u32, [rows, width]: [usize; 2], order: Order, planted: Planted) -> Option<Errors> {
    let define = format!("-DWIDTH={width}");
    let defines: Vec<&str> = [define.as_str()].into_iter().chain(planted.defines().iter().copied()).collect();
    let object = object("norm.cu", &defines)?;
    let draw = |tensor, deviation| normals_of(seed, tensor, rows * width, deviation);
    let (x, d_y, stream) = (draw(1, 2.0), draw(2, 1.0), draw(3, 1.0));
    let gain: Vec<f32> = normals_of(seed, 4, width, 0.1).iter().map(|x| 1.0 + x).collect();
    let (mut y, mut r, mut d_x, mut d_gain) = (vec![0.0; rows * width], vec![0.0; rows], stream.clone(), vec![0.0; width]);
    cpu().rms_norm(&x, &gain, 1e-5, &mut y, &mut r).unwrap();
    cpu().rms_norm_backward(&x, &gain, &r, &d_y, &mut d_x, true, &mut d_gain).unwrap();

    let mut memory = Memory::new();
    let (gpu_x, gpu_d_y, gpu_gain) =
        (memory.input("x", &bf16_bytes(&x)), memory.input("d_y", &bf16_bytes(&d_y)), memory.input("gain", &f32_bytes(&gain)));
    let (gpu_y, gpu_r) = (memory.output("y", 2 * rows * width), memory.output("inverse_rms", 4 * rows));
    let (gpu_d_x, gpu_d_gain) = (memory.updated("d_x", &bf16_bytes(&planted.term(&stream))), memory.output("d_gain", 4 * width));
    let groups = rows.div_ceil(if width <= 1024 { 8 } else { 1 });
    let partial = memory.output("partial", 4 * groups * width);
    let mut launch = |kernel, groups: usize, arguments: Arguments| {
        run_of(&object, kernel, &mut memory, [groups as u32, 1, 1], (256, 0), &arguments, order).unwrap();
    };
    let arguments = Arguments::default().at(gpu_x).at(gpu_gain).f32(1e-5).at(gpu_y).at(gpu_r).u32(rows as u32);
    launch("rms_norm", groups, arguments);
    let [first, second] = planted.order([gpu_x, gpu_d_y]);
    let arguments = Arguments::default().at(first).at(gpu_gain).at(gpu_r).at(second).at(gpu_d_x).at(gpu_d_x).at(partial).u32(rows as u32);
    launch("rms_norm_backward", groups, arguments);
    launch("sum_partial", width.div_ceil(32), Arguments::default().at(partial).u32(groups as u32).at(gpu_d_gain));

    let mut errors = Errors::default();
    errors.rounded_once("y", &bf16_of(&memory, gpu_y), &y);
    errors.in_f32("1/rms", &f32_of(&memory, gpu_r), &r);
    errors.rounded_once("d_x", &bf16_of(&memory, gpu_d_x), &d_x);
    errors.in_f32("d_gain", &f32_of(&memory, gpu_d_gain), &d_gain);
    Some(errors)
}

#[test]
fn rms_norm_is_the_cpus_forward_and_backward() {
    let orders = Order::ALL.map(|order| ([21, 100], order));
    let wide = [([9, 768], Order::Serial), ([3, 1032], Order::RoundRobin), ([3, 4096], Order::Reversed)];
    for (shape, order) in orders.into_iter().chain(wide) {
        let Some(errors) = norm(0, shape, order, Planted::Nothing) else { return };
        errors.assert_none(&format!("{shape:?}, {order:?}"));
    }
}

fn rope(seed: u32, backward: bool, planted: Planted) -> Option<Errors> {
    let object = object("elementwise.cu", planted.defines())?;
    let (sequence, heads, head_dim, tokens) = (6, 3, 48, 18);
    let width = 4 * head_dim;
    let table = RopeTable::new(head_dim, sequence, 10_000.0);
    let mut x = normals_of(seed, 5, tokens * width, 1.0);
    let mut memory = Memory::new();
    let place = memory.updated("x", &bf16_bytes(&x));
    let (cosine, sine) =
        (memory.input("cosine", &f32_bytes(table.cosine())), memory.input("sine", &f32_bytes(&planted.term(table.sine()))));
    let sizes = [tokens, width, heads, head_dim / 2, sequence];
    let arguments = sizes.into_iter().fold(Arguments::default().at(place), |arguments, size| arguments.u32(size as u32));
    let [first, second] = planted.order([cosine, sine]);
    let arguments = arguments.at(first).at(second).f32(if backward { -1.0 } else { 1.0 });
    let groups = (tokens * heads * head_dim / 16).div_ceil(256) as u32;
    run_of(&object, "rope", &mut memory, [groups, 1, 1], (256, 0), &arguments, Order::Serial).unwrap();
    cpu().rope(&mut x, width, heads, head_dim, sequence, &table, backward).unwrap();
    let found = bf16_of(&memory, place);
    // What is not turned stays as it is.
    assert!(found.chunks(width).zip(x.chunks(width)).all(|(found, x)| found[heads * head_dim..] == x[heads * head_dim..]));
    let mut errors = Errors::default();
    errors.rounded_once("rope", &found, &x);
    Some(errors)
}

#[test]
fn rotary_positions_turn_the_heads_they_are_told_to() {
    for backward in [false, true] {
        let Some(errors) = rope(0, backward, Planted::Nothing) else { return };
        errors.assert_none(if backward { "backward" } else { "forward" });
    }
}

fn swiglu(seed: u32, planted: Planted) -> Option<Errors> {
    let object = object("elementwise.cu", planted.defines())?;
    let (tokens, width) = (19, 88);
    let (mut gate_up, d_hidden) = (normals_of(seed, 6, 2 * tokens * width, 3.0), normals_of(seed, 7, tokens * width, 1.0));
    if seed == 0 {
        // Where the exponential over- and underflows.
        gate_up[..6].copy_from_slice(&[-100.0, 100.0, -300.0, 300.0, 0.0, -0.0]);
    }
    let (mut hidden, mut d_gate_up) = (vec![0.0; tokens * width], vec![0.0; 2 * tokens * width]);
    cpu().swiglu(&gate_up, width, &mut hidden).unwrap();
    cpu().swiglu_backward(&gate_up, &d_hidden, width, &mut d_gate_up).unwrap();
    let mut memory = Memory::new();
    // A row is the gate, then the other factor.
    let told: Vec<f32> = gate_up.chunks(2 * width).flat_map(|row| planted.order([&row[..width], &row[width..]]).concat()).collect();
    let (gpu_gate_up, gpu_d_hidden) =
        (memory.updated("gate_up", &bf16_bytes(&told)), memory.updated("d_hidden", &bf16_bytes(&planted.term(&d_hidden))));
    let (gpu_hidden, gpu_d) = (memory.output("hidden", 2 * tokens * width), memory.output("d_gate_up", 4 * tokens * width));
    let grid = [(tokens * width / 8).div_ceil(256) as u32, 1, 1];
    let arguments = Arguments::default().at(gpu_gate_up).at(gpu_hidden).u32(tokens as u32).u32(width as u32);
    run_of(&object, "swiglu", &mut memory, grid, (256, 0), &arguments, Order::Serial).unwrap();
    let backward = |memory: &mut Memory, d_gate_up, hidden: Option<Address>| {
        let arguments = Arguments::default().at(gpu_gate_up).at(gpu_d_hidden).at(d_gate_up).address(hidden);
        let arguments = arguments.u32(tokens as u32).u32(width as u32);
        run_of(&object, "swiglu_backward", memory, grid, (256, 0), &arguments, Order::Serial).unwrap();
    };
    backward(&mut memory, gpu_d, None);
    let mut errors = Errors::default();
    errors.rounded_once("hidden", &bf16_of(&memory, gpu_hidden), &hidden);
    errors.rounded_once("d_gate_up", &bf16_of(&memory, gpu_d), &d_gate_up);
    // In the place of what it reads, and with the forward's result: the same bits.
    backward(&mut memory, gpu_gate_up, Some(gpu_d_hidden));
    let bytes = |place| memory.bytes(place).unwrap().to_vec();
    assert!(bytes(gpu_gate_up) == bytes(gpu_d) && bytes(gpu_d_hidden) == bytes(gpu_hidden));
    Some(errors)
}

#[test]
fn swiglu_is_the_cpus_forward_and_backward() {
    let Some(errors) = swiglu(0, Planted::Nothing) else { return };
    errors.assert_none("swiglu");
}

/// Rows are rounded once, and up to sixteen gradients of an entry are added in their order: no bit differs. More are summed in sixteen
/// parts, whose sums are added in order.
#[test]
fn embedding_rows_and_their_gradients_are_the_cpus() {
    let Some(object) = object("elementwise.cu", &[]) else { return };
    let (tokens, width, vocabulary) = (90, 136, 12);
    let table: Vec<f32> = normals(8, vocabulary * width, 1.0).iter().map(|x| x * 1.003).collect();
    // Entry 7 is frequent, the last ones never occur.
    let ids: Vec<u32> = (0..tokens as u32).map(|index| if index % 2 == 0 { 7 } else { index / 2 % 9 }).collect();
    let gradient = normals(9, tokens * width, 1.0);
    let (mut rows, mut d_table) = (vec![0.0; tokens * width], vec![0.0; vocabulary * width]);
    cpu().embedding(&table, &ids, width, &mut rows).unwrap();
    cpu().embedding_backward(&gradient, &ids, width, &mut d_table).unwrap();
    let order: Vec<u32> = (0..vocabulary as u32).flat_map(|v| (0..tokens as u32).filter(move |&t| v == ids_of(t))).collect();
    fn ids_of(index: u32) -> u32 {
        if index.is_multiple_of(2) { 7 } else { index / 2 % 9 }
    }
    let starts: Vec<u32> = (0..=vocabulary as u32).map(|v| ids.iter().filter(|&&id| id < v).count() as u32).collect();
    let mut memory = Memory::new();
    let (gpu_table, gpu_ids) = (memory.input("table", &f32_bytes(&table)), memory.input("tokens", &u32_bytes(&ids)));
    let (gpu_order, gpu_starts) = (memory.input("order", &u32_bytes(&order)), memory.input("starts", &u32_bytes(&starts)));
    let gpu_gradient = memory.input("gradient", &bf16_bytes(&gradient));
    let (gpu_rows, gpu_d_table) = (memory.output("rows", 2 * tokens * width), memory.output("d_table", 4 * vocabulary * width));
    let arguments = Arguments::default().at(gpu_table).at(gpu_ids).at(gpu_rows).u32(tokens as u32).u32(width as u32);
    let grid = [(tokens * width / 8).div_ceil(256) as u32, 1, 1];
    run_of(&object, "embedding", &mut memory, grid, (256, 0), &arguments, Order::Serial).unwrap();
    let arguments = Arguments::default().at(gpu_gradient).at(gpu_order).at(gpu_starts).at(gpu_d_table).u32(width as u32);
    let grid = [vocabulary as u32, width.div_ceil(128) as u32, 1];
    for order in Order::ALL {
        run_of(&object, "embedding_backward", &mut memory, grid, (256, 0), &arguments, order).unwrap();
        let found = f32_of(&memory, gpu_d_table);
        let mut errors = Errors::default();
        errors.in_f32("d_table", &found, &d_table);
        errors.assert_none("embedding_backward");
        for entry in (0..vocabulary).filter(|&entry| starts[entry + 1] - starts[entry] <= 16) {
            let range = entry * width..(entry + 1) * width;
            assert_same_bits(&found[range.clone()], &d_table[range], &format!("the gradient of entry {entry}"));
        }
    }
    let rounded: Vec<f32> = rows.iter().map(|&x| kernels::format::bf16::round(x)).collect();
    assert_same_bits(&bf16_of(&memory, gpu_rows), &rounded, "embedding");
}

fn cross_entropy(seed: u32, [tokens, vocabulary]: [usize; 2], order: Order, planted: Planted) -> Option<Errors> {
    let object = object("loss.cu", planted.defines())?;
    let logits = normals_of(seed, 10, tokens * vocabulary, 4.0);
    let targets: Vec<u32> = (0..tokens).map(|token| ((token * 997 + 5) % vocabulary) as u32).collect();
    let (mut gradient, mut losses) = (logits.clone(), vec![0.0; tokens]);
    let sum = cpu().cross_entropy(&mut gradient, &targets, 0.25, &mut losses).unwrap();
    // The wrong token's logits, or logits of which the last is missing.
    let mut told = logits;
    match planted {
        Planted::Swapped => told.rotate_left(vocabulary),
        Planted::Dropped => told.chunks_mut(vocabulary).for_each(|row| row[vocabulary - 1] = f32::NEG_INFINITY),
        Planted::Nothing | Planted::Truncation => {}
    }
    let mut memory = Memory::new();
    let (gpu_logits, gpu_targets) = (memory.updated("logits", &bf16_bytes(&told)), memory.input("targets", &u32_bytes(&targets)));
    let (gpu_losses, total) = (memory.output("loss", 4 * tokens), memory.output("sum", 8));
    let mut errors = Errors::default();
    for gradient in [0, 1] {
        let arguments = Arguments::default().at(gpu_logits).at(gpu_targets).at(gpu_losses);
        let arguments = arguments.u32(vocabulary as u32).f32(0.25).u32(gradient);
        run_of(&object, "cross_entropy", &mut memory, [tokens as u32, 1, 1], (512, 0), &arguments, order).unwrap();
        errors.in_f32("losses", &f32_of(&memory, gpu_losses), &losses);
    }
    let arguments = Arguments::default().at(gpu_losses).u32(tokens as u32).at(total);
    run_of(&object, "sum_losses", &mut memory, [1, 1, 1], (512, 0), &arguments, order).unwrap();
    let exact: f64 = f32_of(&memory, gpu_losses).into_iter().map(f64::from).sum();
    assert!((f64_of(&memory, total)[0] - exact).abs() <= 1e-15 * exact);
    errors.in_f32("sum of losses", &[exact as f32], &[sum as f32]);
    errors.rounded_once("d_logits", &bf16_of(&memory, gpu_logits), &gradient);
    Some(errors)
}

#[test]
fn cross_entropy_and_its_gradient_are_the_cpus() {
    for (shape, order) in [([3, 1003], Order::Serial), ([2, 4104], Order::RoundRobin), ([5, 24], Order::Reversed)] {
        let Some(errors) = cross_entropy(0, shape, order, Planted::Nothing) else { return };
        errors.assert_none(&format!("{shape:?}, {order:?}"));
    }
}

/// Every kernel that rounds to BF16, small.
fn every_kernel(seed: u32, planted: Planted) -> Option<[(&'static str, Errors); 6]> {
    Some([
        ("rms_norm, narrow", norm(seed, [5, 100], Order::Serial, planted)?),
        ("rms_norm, wide", norm(seed, [2, 1032], Order::Serial, planted)?),
        ("rope", rope(seed, false, planted)?),
        ("rope backward", rope(seed, true, planted)?),
        ("swiglu", swiglu(seed, planted)?),
        ("cross_entropy", cross_entropy(seed, [5, 24], Order::Serial, planted)?),
    ])
}

fn bounds_hold(seeds: std::ops::Range<u32>) {
    for seed in seeds {
        for (name, errors) in every_kernel(seed, Planted::Nothing).into_iter().flatten() {
            errors.assert_none(&format!("{name}, seed {seed}"));
        }
    }
}

#[test]
fn bounds_hold_for_fresh_seeds_and_show_each_planted_error() {
    bounds_hold(FEW_SEEDS);
    for (seed, planted) in Planted::ERRORS.into_iter().flat_map(|planted| FEW_SEEDS.map(move |seed| (seed, planted))) {
        for (name, errors) in every_kernel(seed, planted).into_iter().flatten() {
            errors.assert_some(&format!("{planted:?} in {name}, seed {seed}"));
        }
    }
}

#[test]
#[ignore = "minutes; run by hand after a change to bounds or kernels"]
fn a_thousand_seeds_keep_the_bounds() {
    bounds_hold(THOUSAND_SEEDS);
}

/// A NaN among the logits makes the loss NaN, an infinite one does not hide it.
#[test]
fn a_broken_logit_shows_in_the_loss() {
    let Some(object) = object("loss.cu", &[]) else { return };
    for (at, value) in [(0, f32::NAN), (700, f32::NAN), (999, f32::INFINITY)] {
        let mut logits = normals(11, 1000, 1.0);
        logits[at] = value;
        let mut memory = Memory::new();
        let (place, targets) = (memory.updated("logits", &bf16_bytes(&logits)), memory.input("targets", &u32_bytes(&[3])));
        let loss = memory.output("loss", 4);
        let arguments = Arguments::default().at(place).at(targets).at(loss).u32(1000).f32(1.0).u32(0);
        run_of(&object, "cross_entropy", &mut memory, [1, 1, 1], (512, 0), &arguments, Order::Serial).unwrap();
        assert!(f32_of(&memory, loss)[0].is_nan());
    }
}

/// Moments and parameters of a model of three tensors.
struct Optimized {
    parameters: Vec<f32>,
    gradients: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
}

const TOTAL: usize = 3000;
const TENSORS: [(usize, usize, bool); 3] = [(0, 64, false), (64, 2900, true), (2964, 36, false)];

fn optimized() -> Optimized {
    let numbers = |tensor: u32, deviation: f32| -> Vec<f32> {
        let stream = Stream::new(tensor, 77);
        (0..TOTAL as u64).map(|index| stream.normal(index) * deviation).collect()
    };
    let mut first = numbers(3, 0.01);
    // Subnormal and zero moments.
    first[..3].copy_from_slice(&[f32::from_bits(5), 0.0, -f32::MIN_POSITIVE]);
    let mut second: Vec<f32> = numbers(4, 0.01).iter().map(|x| x * x).collect();
    second[..3].copy_from_slice(&[0.0, f32::from_bits(9), 1e-37]);
    Optimized { parameters: numbers(1, 0.02), gradients: numbers(2, 0.3), first, second }
}

/// One update with a given norm and loss: parameters, moments and copies as F32.
fn updated(object: &CodeObject, start: &Optimized, n: &AdamW, norm: f64, loss: f64) -> [Vec<f32>; 4] {
    let mut memory = Memory::new();
    let place = |memory: &mut Memory, name: &str, values: &[f32]| memory.updated(name, &f32_bytes(values));
    let (p, m, v) = (
        place(&mut memory, "parameter", &start.parameters),
        place(&mut memory, "first", &start.first),
        place(&mut memory, "second", &start.second),
    );
    let gradient = memory.input("gradient", &f32_bytes(&start.gradients));
    let copies = memory.updated("copies", &bf16_bytes(&vec![0.0; TOTAL]));
    // Two stretches of the long tensor, as the host cuts what is longer than 8192.
    let stretches = [(0, 64, 0), (64, 2000, 1), (2064, 900, 1), (2964, 36, 0)];
    let bytes: Vec<u8> = stretches.iter().flat_map(|&(start, count, decays)| u32_bytes(&[start, 0, count, decays])).collect();
    let (stretches, results) =
        (memory.input("stretches", &bytes), memory.input("results", &[norm.to_le_bytes(), loss.to_le_bytes()].concat()));
    let mut arguments = Arguments::default().at(p).at(gradient).at(m).at(v).at(copies).at(stretches);
    let rest = [n.beta1, n.beta2, n.epsilon, n.weight_decay, n.bias_correction1, n.bias_correction2];
    for number in [n.learning_rate].into_iter().chain(rest) {
        arguments = arguments.f32(number);
    }
    let arguments = arguments.f64(1.0).u64(results.0).u64(results.0 + 8);
    run_of(object, "adamw", &mut memory, [4, 1, 1], (256, 0), &arguments, Order::Serial).unwrap();
    [f32_of(&memory, p), f32_of(&memory, m), f32_of(&memory, v), bf16_of(&memory, copies)]
}

#[test]
fn adamw_is_the_cpus_bit_for_bit_and_does_nothing_to_a_diverged_run() {
    let Some(object) = object("optimizer.cu", &[]) else { return };
    for norm in [0.1f64, 3.0, 16.5, 1e-30] {
        let mut wanted = optimized();
        let n = AdamW {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-5,
            weight_decay: 0.1,
            bias_correction1: 0.19,
            bias_correction2: 0.0975,
            gradient_scale: (1.0 / (norm + 1e-6)).min(1.0) as f32,
        };
        let [p, m, v, copies] = updated(&object, &optimized(), &n, norm, 5.5);
        for (start, length, decays) in TENSORS {
            let range = start..start + length;
            let n = AdamW { weight_decay: if decays { n.weight_decay } else { 0.0 }, ..n };
            let Optimized { parameters, gradients, first, second } = &mut wanted;
            let moments = (&mut first[range.clone()], &mut second[range.clone()]);
            cpu().adamw(&mut parameters[range.clone()], &gradients[range], moments.0, moments.1, &n).unwrap();
        }
        assert_same_bits(&p, &wanted.parameters, "parameters");
        assert_same_bits(&m, &wanted.first, "first moment");
        assert_same_bits(&v, &wanted.second, "second moment");
        let rounded: Vec<f32> = wanted.parameters.iter().map(|&x| kernels::format::bf16::round(x)).collect();
        assert_same_bits(&copies, &rounded, "copies");
        for (norm, loss) in [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, f64::NAN), (1.0, f64::NEG_INFINITY)] {
            let start = optimized();
            let [p, m, v, copies] = updated(&object, &start, &n, norm, loss);
            assert!(p == start.parameters && m == start.first && v == start.second && copies.iter().all(|&x| x == 0.0));
        }
    }
}

#[test]
fn the_gradient_norm_and_the_copies_are_the_cpus() {
    let Some(object) = object("optimizer.cu", &[]) else { return };
    let gradients = optimized().gradients;
    let mut memory = Memory::new();
    let (gpu_gradients, copies) = (memory.input("gradients", &f32_bytes(&gradients)), memory.output("copies", 2 * TOTAL));
    let groups = 24u32;
    let (partial, norm) = (memory.output("partial", 8 * groups as usize), memory.output("norm", 8));
    let arguments = Arguments::default().at(gpu_gradients).u64(TOTAL as u64).at(partial);
    run_of(&object, "square_sums", &mut memory, [groups, 1, 1], (256, 0), &arguments, Order::RoundRobin).unwrap();
    let arguments = Arguments::default().at(partial).u32(groups).at(norm);
    run_of(&object, "norm_of", &mut memory, [1, 1, 1], (256, 0), &arguments, Order::Reversed).unwrap();
    let arguments = Arguments::default().at(gpu_gradients).at(copies).u64(TOTAL as u64);
    run_of(&object, "copy_bf16", &mut memory, [groups, 1, 1], (256, 0), &arguments, Order::Serial).unwrap();
    let wanted = cpu().squared_norm(&gradients).sqrt();
    let found = f64_of(&memory, norm)[0];
    assert!((found - wanted).abs() <= 1e-12 * wanted, "{found} {wanted}");
    let rounded: Vec<f32> = gradients.iter().map(|&x| kernels::format::bf16::round(x)).collect();
    assert_same_bits(&bf16_of(&memory, copies), &rounded, "copies");
}

/// Sums that go from shard to shard are those of one launch over everything, bit for bit: shards of any length, an empty one among them.
#[test]
fn the_norm_of_shards_is_that_of_the_whole() {
    let (Some(whole), Some(shards)) = (object("optimizer.cu", &[]), object("shards.cu", &[])) else { return };
    // Threads load sixteen elements at once, a grid of 512 apart, and go on one by one.
    let (total, groups) = (30_000usize, 2u32);
    let stream = Stream::new(5, 77);
    let gradients: Vec<f32> = (0..total).map(|index| stream.normal(index as u64)).collect();
    let mut memory = Memory::new();
    let all = memory.input("gradients", &f32_bytes(&gradients));
    let (wanted, found) = (memory.output("wanted", 8 * groups as usize), memory.output("found", 8 * groups as usize));
    let arguments = Arguments::default().at(all).u64(total as u64).at(wanted);
    run_of(&whole, "square_sums", &mut memory, [groups, 1, 1], (256, 0), &arguments, Order::Serial).unwrap();
    let sums = memory.updated("sums", &vec![0; 8 * 256 * groups as usize]);
    // The sums go on in two parts, each of one workgroup.
    for shard in [0..700, 700..701, 701..701, 701..2048, 2048..total] {
        let part = memory.input("a shard", &f32_bytes(&gradients[shard.clone()]));
        for before in [0u64, 256] {
            let arguments = Arguments::default().at(part).u64(shard.start as u64).u64(shard.len() as u64);
            let arguments = arguments.u64(sums.0 + 8 * before).u64(before).u64(256 * u64::from(groups));
            run_of(&shards, "add_squares", &mut memory, [1, 1, 1], (256, 0), &arguments, Order::RoundRobin).unwrap();
        }
    }
    let arguments = Arguments::default().at(sums).at(found);
    run_of(&shards, "group_sums", &mut memory, [groups, 1, 1], (256, 0), &arguments, Order::Reversed).unwrap();
    let bits = |place| f64_of(&memory, place).iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(found), bits(wanted));
}

/// What ranks computed is added from left to right, each sum rounded, whatever there was before or nothing.
#[test]
fn pieces_of_several_ranks_are_added_in_their_order() {
    let Some(object) = object("shards.cu", &[]) else { return };
    let (count, most) = (300usize, 8);
    let numbers = |seed| normals(seed, count, 1.0);
    for (pieces, begins) in [(1, true), (1, false), (2, true), (3, false), (most, true), (most, false)] {
        let before = numbers(99);
        let parts: Vec<Vec<f32>> = (0..pieces).map(|piece| numbers(piece as u32)).collect();
        let mut memory = Memory::new();
        let sum = memory.updated("sum", &f32_bytes(&before));
        let mut arguments = Arguments::default().at(sum);
        for part in 0..most {
            let place = parts.get(part).map(|part| memory.input("a piece", &f32_bytes(part)).0);
            arguments = arguments.u64(place.unwrap_or(0));
        }
        let arguments = arguments.u32(pieces as u32).u32(u32::from(begins)).u64(count as u64);
        run_of(&object, "add_pieces", &mut memory, [2, 1, 1], (256, 0), &arguments, Order::Reversed).unwrap();
        let add = |index: usize| {
            let of = parts.iter().map(|part| part[index]);
            if begins { of.reduce(|sum, part| sum + part).unwrap() } else { of.fold(before[index], |sum, part| sum + part) }
        };
        assert_same_bits(&f32_of(&memory, sum), &(0..count).map(add).collect::<Vec<_>>(), &format!("{pieces} pieces, {begins}"));
    }
}

#[test]
fn tensor_scales_and_their_histories_are_the_cpus_bit_for_bit() {
    let Some(object) = object("tensor_scale.cu", &[]) else { return };
    let format = kernels::quantise::mini_float(contract::recipe::Format::E4m3).unwrap();
    let wanted = |amax: f32| kernels::quantise::tensor_scale(amax, &format);
    let cases = [0.0, 1.0, 3.7, 448.0, 1e-38, f32::from_bits(3), f32::MAX, f32::INFINITY, f32::NAN];
    for amax in cases {
        let mut memory = Memory::new();
        let (place, scale, inverse) = (memory.input("amax", &f32_bytes(&[amax])), memory.output("scale", 4), memory.output("inverse", 4));
        let arguments = Arguments::default().at(place).f32(format.largest).at(scale).at(inverse);
        run_of(&object, "scale_now", &mut memory, [1, 1, 1], (32, 0), &arguments, Order::Serial).unwrap();
        let found = (f32_of(&memory, scale)[0], f32_of(&memory, inverse)[0]);
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(same(found.0, wanted(amax).0) && same(found.1, wanted(amax).1), "{amax}: {found:?}, {:?} wanted", wanted(amax));
    }
    // Three slots of length 2, the middle one not delayed; every newest value pushes the oldest out.
    let (slots, length) = (3, 2);
    let mut memory = Memory::new();
    let amax = memory.updated("amax", &f32_bytes(&[0.0; 3]));
    let history = memory.updated("history", &f32_bytes(&[0.0; 6]));
    let largest = memory.input("largest", &f32_bytes(&[format.largest, 0.0, format.largest]));
    let (scale, inverse) = (memory.updated("scale", &f32_bytes(&[9.0; 3])), memory.updated("inverse", &f32_bytes(&[9.0; 12])));
    let (mut kept, mut filled): ([Vec<f32>; 3], u32) = (Default::default(), 0);
    for (step, newest) in [[2.0, 5.0, 1.0], [8.0, 5.0, 0.5], [1.0, 5.0, 4.0], [3.0, 5.0, 0.25]].into_iter().enumerate() {
        let choose_largest = u32::from(step % 2 == 0);
        memory.write(amax, &f32_bytes(&newest)).unwrap();
        let arguments = Arguments::default().at(amax).at(history).u32(filled).u32(length).u32(choose_largest);
        let arguments = arguments.at(largest).at(scale).at(inverse).u32(slots);
        run_of(&object, "remember", &mut memory, [1, 1, 1], (128, 0), &arguments, Order::Serial).unwrap();
        filled = (filled + 1).min(length);
        for slot in [0, 2] {
            kept[slot].push(newest[slot]);
            let last = &kept[slot][kept[slot].len().saturating_sub(length as usize)..];
            let chosen = if choose_largest == 1 { last.iter().copied().fold(0.0, f32::max) } else { newest[slot] };
            assert_eq!(f32_of(&memory, scale)[slot], wanted(chosen).0, "step {step}, slot {slot}");
            assert_eq!(f32_of(&memory, inverse)[4 * slot], wanted(chosen).1);
            assert_eq!(f32_of(&memory, history)[2 * slot..][..last.len()], *last);
        }
        assert_eq!((f32_of(&memory, scale)[1], f32_of(&memory, amax)), (9.0, vec![0.0, 5.0, 0.0]));
    }
}

/// The controls: the same kernels with one defect each, which must be seen.
#[test]
fn a_missing_barrier_in_a_workgroups_sum_is_a_race() {
    let defects = ["-DBREAK_NO_BARRIER"];
    let Some(norm) = object("norm.cu", &["-DWIDTH=4096", defects[0]]) else { return };
    let mut memory = Memory::new();
    let (x, gain) = (memory.input("x", &bf16_bytes(&normals(1, 4096, 1.0))), memory.input("gain", &f32_bytes(&[1.0; 4096])));
    let (y, r) = (memory.output("y", 8192), memory.output("inverse_rms", 4));
    let arguments = Arguments::default().at(x).at(gain).f32(1e-5).at(y).at(r).u32(1);
    for order in Order::ALL {
        let fault = run_of(&norm, "rms_norm", &mut memory, [1, 1, 1], (256, 0), &arguments, order).unwrap_err().to_string();
        assert!(fault.contains("LDS") || fault.contains("never written"), "{fault}");
    }
}
