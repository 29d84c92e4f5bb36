//! Everything that is not quantisation, against `kernels::cpu` on the same BF16 inputs.
//!
//! Bounds, with u = 2^-8 the unit roundoff of BF16 (kernels::closeness): an element that is rounded to BF16 once is within half a unit in
//! its last place of the CPU's F32 result, plus F32's own errors; these checks count in units of that, so their bound is 1. Attention
//! rounds its probabilities and its output: 2u of the whole; its backward pass rounds probabilities, their gradients and the output, and
//! reads the rounded output of the forward pass: 4u. Roundings that all go one way are smaller than that, so attention's shift along what
//! is wanted has a bound of its own. The head rounds logits of a few units, so a probability is off by a few u: 4u for losses and
//! gradients. AdamW is F32 on both sides, in the same order: no bit differs.

use kernels::closeness::{F32_SLACK, UNIT, of_one_rounding, relative, shift};
use kernels::cpu::{AdamW, AttentionShape, Cpu, InstructionSet, RopeTable};
use kernels::gpu::{Accumulator, Attention, Bf16, Elementwise, Gpu, Head, Norm, Occurrences, Optimizer, UpdateNumbers};

use super::{Extent, Report, from_bf16, gpu_error, normals, poisoned, stream, to_bf16};
use crate::error::TrainerError;

pub(super) fn check(gpu: &Gpu, seed: u64, extent: Extent, report: &mut Report<'_>) -> Result<(), TrainerError> {
    let quick = extent == Extent::Quick;
    let cpu = Cpu::new(InstructionSet::detect(), std::thread::available_parallelism().map_or(1, usize::from))
        .map_err(|error| TrainerError::Machine(error.to_string()))?;
    for (rows, width) in [(5, 64), (300, 512), (129, 768), (70, 4096)].into_iter().take(if quick { 1 } else { 4 }) {
        norm(gpu, &cpu, seed, (rows, width), report)?;
    }
    elementwise(gpu, &cpu, seed, report)?;
    for shape in shapes().into_iter().filter(|shape| !quick || shape.batch * shape.sequence * shape.heads * shape.head_dim <= 4096) {
        attention(gpu, &cpu, seed, shape, report)?;
    }
    for (tokens, width, vocabulary) in [(40, 64, 96), (300, 128, 1000), (16, 64, 8192)].into_iter().take(if quick { 1 } else { 3 }) {
        head(gpu, &cpu, seed, (tokens, width, vocabulary), report)?;
    }
    optimizer(gpu, &cpu, seed, report)?;
    accumulation(gpu, seed, report)
}

/// Sums and means of micro-batches' gradients: each one operation, so the same bits; tiny, huge and odd numbers of elements among them.
fn accumulation(gpu: &Gpu, seed: u64, report: &mut Report<'_>) -> Result<(), TrainerError> {
    for (total, by) in [(1usize, 2.0f32), (257, 3.0), (20_001, 16.0)] {
        let numbers = |tensor: u32| -> Vec<f32> {
            let words = stream(seed, 105, tensor);
            (0..total as u64).map(|index| words.normal(index) * 10f32.powi((index % 61) as i32 - 30)).collect()
        };
        let (first, second) = (numbers(0), numbers(1));
        let kernels = Accumulator::new(gpu).map_err(gpu_error)?;
        let (mut sum, more) = (gpu.upload(&first).map_err(gpu_error)?, gpu.upload(&second).map_err(gpu_error)?);
        kernels.add(&mut sum, &more).map_err(gpu_error)?;
        kernels.divide(&mut sum, by).map_err(gpu_error)?;
        let found = sum.to_vec().map_err(gpu_error)?;
        let wanted = first.iter().zip(&second).map(|(a, b)| (a + b) / by);
        let differ = found.iter().zip(wanted).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as f64;
        report(super::compared("kernel", "accumulation", format!("{total}, / {by}"), total, differ, 0.0))?;
    }
    Ok(())
}

/// Lengths around the tiles of 64, grouped heads, and both head sizes of the profiles; heads of 128 have blocks of 256 rows on AMD.
fn shapes() -> Vec<AttentionShape> {
    let shape = |batch, sequence, heads, kv_heads, head_dim| AttentionShape { batch, sequence, heads, kv_heads, head_dim };
    vec![
        shape(2, 1, 2, 2, 64),
        shape(2, 63, 4, 2, 64),
        shape(1, 129, 2, 1, 16),
        shape(3, 192, 4, 4, 64),
        shape(1, 320, 4, 1, 128),
        shape(2, 70, 4, 2, 128),
        shape(2, 32, 4, 2, 16),
    ]
}

fn kernel<E: std::fmt::Display>(error: E) -> TrainerError {
    TrainerError::kernel(error)
}

fn norm(gpu: &Gpu, cpu: &Cpu, seed: u64, (rows, width): (usize, usize), report: &mut Report<'_>) -> Result<(), TrainerError> {
    let words = |tensor| stream(seed, 100, tensor + width as u32);
    let (x, d_y, mut d_x) =
        (normals(words(0), rows * width, 2.0), normals(words(1), rows * width, 1.0), normals(words(2), rows * width, 1.0));
    let gain: Vec<f32> = (0..width as u64).map(|index| 1.0 + 0.1 * words(3).normal(index)).collect();
    let (mut y, mut r, mut d_gain) = (vec![0.0; rows * width], vec![0.0; rows], vec![0.0; width]);
    let kernels = Norm::new(gpu, width).map_err(gpu_error)?;
    let (gpu_x, gpu_d_y, mut gpu_d_x) = (to_bf16(gpu, &x)?, to_bf16(gpu, &d_y)?, to_bf16(gpu, &d_x)?);
    let gpu_gain = gpu.upload(&gain).map_err(gpu_error)?;
    let (mut gpu_y, mut gpu_r) = (poisoned::<Bf16>(gpu, rows * width)?, poisoned::<f32>(gpu, rows)?);
    let mut gpu_d_gain = poisoned::<f32>(gpu, width)?;

    cpu.rms_norm(&x, &gain, 1e-5, &mut y, &mut r).map_err(kernel)?;
    cpu.rms_norm_backward(&x, &gain, &r, &d_y, &mut d_x, true, &mut d_gain).map_err(kernel)?;
    kernels.forward(&gpu_x, (&gpu_gain, 0), 1e-5, &mut gpu_y, &mut gpu_r, rows).map_err(gpu_error)?;
    kernels.backward(&gpu_x, (&gpu_gain, 0), &gpu_r, &gpu_d_y, &mut gpu_d_x, true, (&mut gpu_d_gain, 0), rows).map_err(gpu_error)?;
    let detail = format!("[{rows}, {width}]");
    rounded_once("rms_norm", &detail, &from_bf16(&gpu_y)?, &y, report)?;
    rounded_once("rms_norm backward, d_x", &detail, &from_bf16(&gpu_d_x)?, &d_x, report)?;
    for (name, found, wanted) in [("rms_norm, 1/rms", &gpu_r, &r), ("rms_norm backward, d_gain", &gpu_d_gain, &d_gain)] {
        let difference = relative(&found.to_vec().map_err(gpu_error)?, wanted);
        report(super::compared("kernel", name, detail.clone(), wanted.len(), difference, F32_SLACK))?;
    }
    Ok(())
}

/// A result whose elements were rounded to BF16 once.
fn rounded_once(name: &str, detail: &str, found: &[f32], wanted: &[f32], report: &mut Report<'_>) -> Result<(), TrainerError> {
    report(super::compared("kernel", name, detail, wanted.len(), of_one_rounding(found, wanted), 1.0))
}

fn elementwise(gpu: &Gpu, cpu: &Cpu, seed: u64, report: &mut Report<'_>) -> Result<(), TrainerError> {
    let kernels = Elementwise::new(gpu).map_err(gpu_error)?;
    let words = |tensor| stream(seed, 101, tensor);
    let (sequence, heads, head_dim, tokens) = (24, 3, 32, 48);
    let width = 4 * head_dim;
    let table = RopeTable::new(head_dim, sequence, 10_000.0);
    let (cosine, sine) = (gpu.upload(table.cosine()).map_err(gpu_error)?, gpu.upload(table.sine()).map_err(gpu_error)?);
    for backward in [false, true] {
        let mut x = normals(words(0), tokens * width, 1.0);
        let mut gpu_x = to_bf16(gpu, &x)?;
        cpu.rope(&mut x, width, heads, head_dim, sequence, &table, backward).map_err(kernel)?;
        kernels.rope(&mut gpu_x, tokens, (width, heads, head_dim, sequence), &cosine, &sine, backward).map_err(gpu_error)?;
        let name = if backward { "rope backward" } else { "rope" };
        rounded_once(name, &format!("[{tokens}, {width}]"), &from_bf16(&gpu_x)?, &x, report)?;
    }

    let (tokens, width) = (37, 88);
    let (gate_up, d_hidden) = (normals(words(1), 2 * tokens * width, 3.0), normals(words(2), tokens * width, 1.0));
    let (mut hidden, mut d_gate_up) = (vec![0.0; tokens * width], vec![0.0; 2 * tokens * width]);
    cpu.swiglu(&gate_up, width, &mut hidden).map_err(kernel)?;
    cpu.swiglu_backward(&gate_up, &d_hidden, width, &mut d_gate_up).map_err(kernel)?;
    let (gpu_gate_up, gpu_d_hidden) = (to_bf16(gpu, &gate_up)?, to_bf16(gpu, &d_hidden)?);
    let (mut gpu_hidden, mut gpu_d_gate_up) = (poisoned(gpu, tokens * width)?, poisoned(gpu, 2 * tokens * width)?);
    kernels.swiglu(&gpu_gate_up, &mut gpu_hidden, tokens, width).map_err(gpu_error)?;
    kernels.swiglu_backward(&gpu_gate_up, &gpu_d_hidden, &mut gpu_d_gate_up, None, tokens, width).map_err(gpu_error)?;
    let detail = format!("[{tokens}, {width}]");
    rounded_once("swiglu", &detail, &from_bf16(&gpu_hidden)?, &hidden, report)?;
    rounded_once("swiglu backward", &detail, &from_bf16(&gpu_d_gate_up)?, &d_gate_up, report)?;
    let mut over = gpu_gate_up.part(0, gpu_gate_up.length()).map_err(gpu_error)?;
    kernels.swiglu_backward(&gpu_gate_up, &gpu_d_hidden, &mut over, Some(&gpu_d_hidden), tokens, width).map_err(gpu_error)?;
    for (what, found, wanted) in [("gradient", &over, &gpu_d_gate_up), ("result", &gpu_d_hidden, &gpu_hidden)] {
        let (found, wanted) = (found.to_vec().map_err(gpu_error)?, wanted.to_vec().map_err(gpu_error)?);
        let differ = found.iter().zip(&wanted).filter(|(a, b)| a != b).count() as f64;
        report(super::compared("kernel", format!("swiglu backward in place, {what}"), detail.clone(), wanted.len(), differ, 0.0))?;
    }

    // More columns than a workgroup takes, and not a multiple of what it takes at a time.
    let (tokens, width, vocabulary) = (500, 648, 50);
    let table: Vec<f32> = (0..(vocabulary * width) as u64).map(|index| words(3).normal(index)).collect();
    // Entry 7 is frequent, the last ones never occur.
    let ids: Vec<u32> =
        (0..tokens as u64).map(|index| if index % 3 == 0 { 7 } else { words(4).word(index) % (vocabulary as u32 - 5) }).collect();
    let gradient = normals(words(5), tokens * width, 1.0);
    let (mut rows, mut d_table) = (vec![0.0; tokens * width], vec![0.0; vocabulary * width]);
    cpu.embedding(&table, &ids, width, &mut rows).map_err(kernel)?;
    cpu.embedding_backward(&gradient, &ids, width, &mut d_table).map_err(kernel)?;
    let (gpu_table, gpu_ids) = (gpu.upload(&table).map_err(gpu_error)?, gpu.upload(&ids).map_err(gpu_error)?);
    let (mut gpu_rows, mut gpu_d_table) = (poisoned(gpu, tokens * width)?, poisoned(gpu, vocabulary * width)?);
    let mut occurrences = Occurrences::new(gpu, tokens, vocabulary).map_err(gpu_error)?;
    occurrences.fill(&ids).map_err(gpu_error)?;
    kernels.embedding((&gpu_table, 0), &gpu_ids, &mut gpu_rows, tokens, width).map_err(gpu_error)?;
    kernels.embedding_backward(&to_bf16(gpu, &gradient)?, &occurrences, (&mut gpu_d_table, 0), width).map_err(gpu_error)?;
    let detail = format!("{tokens} of {vocabulary} x {width}");
    rounded_once("embedding", &detail, &from_bf16(&gpu_rows)?, &rows, report)?;
    let found = gpu_d_table.to_vec().map_err(gpu_error)?;
    report(super::compared("kernel", "embedding backward", detail, d_table.len(), relative(&found, &d_table), F32_SLACK))
}

fn attention(gpu: &Gpu, cpu: &Cpu, seed: u64, shape: AttentionShape, report: &mut Report<'_>) -> Result<(), TrainerError> {
    let words = |tensor| stream(seed, 102, tensor + 10 * shape.sequence as u32);
    let tokens = shape.batch * shape.sequence;
    let (fused, single) = (tokens * shape.qkv_width(), tokens * shape.out_width());
    let (qkv, d_out) = (normals(words(0), fused, 1.0), normals(words(1), single, 1.0));
    let (mut out, mut logsumexp, mut d_qkv) = (vec![0.0; single], vec![0.0; tokens * shape.heads], vec![0.0; fused]);
    cpu.attention(&qkv, shape, &mut out, &mut logsumexp).map_err(kernel)?;
    cpu.attention_backward(&qkv, shape, &out, &logsumexp, &d_out, &mut d_qkv).map_err(kernel)?;
    let kernels = Attention::new(gpu, shape.head_dim, shape.heads, tokens).map_err(gpu_error)?;
    let (gpu_qkv, gpu_d_out) = (to_bf16(gpu, &qkv)?, to_bf16(gpu, &d_out)?);
    let (mut gpu_out, mut gpu_d_qkv) = (poisoned(gpu, single)?, poisoned(gpu, fused)?);
    let mut gpu_logsumexp = poisoned(gpu, tokens * shape.heads)?;
    kernels.forward(&gpu_qkv, shape, &mut gpu_out, &mut gpu_logsumexp).map_err(gpu_error)?;
    let sums = gpu.buffer(kernels.sums(shape).max(1)).map_err(gpu_error)?;
    kernels.backward(&gpu_qkv, shape, &gpu_out, &gpu_logsumexp, &gpu_d_out, (&mut gpu_d_qkv, &sums)).map_err(gpu_error)?;
    let AttentionShape { batch, sequence, heads, kv_heads, head_dim } = shape;
    let detail = format!("{batch} x {sequence}, {heads}/{kv_heads} heads of {head_dim}");
    let mut compare = |name: &str, found: &[f32], wanted: &[f32], roundings: u32| {
        let bound = f64::from(roundings) * UNIT + F32_SLACK;
        report(super::compared("kernel", name, detail.clone(), wanted.len(), relative(found, wanted), bound))?;
        let shift = shift(found, wanted, head_dim, roundings);
        report(super::compared("kernel", format!("{name}, shift"), detail.clone(), wanted.len(), shift, 1.0))
    };
    compare("attention", &from_bf16(&gpu_out)?, &out, 2)?;
    let found = from_bf16(&gpu_d_qkv)?;
    let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
    for (name, columns) in [("d_q", 0..queries), ("d_k", queries..queries + keys), ("d_v", queries + keys..queries + 2 * keys)] {
        let part =
            |all: &[f32]| -> Vec<f32> { all.chunks_exact(shape.qkv_width()).flat_map(|row| row[columns.clone()].to_vec()).collect() };
        let (found, wanted) = (part(&found), part(&d_qkv));
        // With one key the softmax is constant: the true gradients of queries and keys are zero, and there is no relative error.
        if sequence == 1 && name != "d_v" {
            continue;
        }
        compare(&format!("attention backward, {name}"), &found, &wanted, 4)?;
    }
    Ok(())
}

fn head(
    gpu: &Gpu,
    cpu: &Cpu,
    seed: u64,
    (tokens, width, vocabulary): (usize, usize, usize),
    report: &mut Report<'_>,
) -> Result<(), TrainerError> {
    let words = |tensor| stream(seed, 103, tensor + 10 * tokens as u32);
    // Logits of about one unit.
    let (x, weight) = (normals(words(0), tokens * width, 1.0), normals(words(1), vocabulary * width, 1.0 / (width as f32).sqrt()));
    let targets: Vec<u32> = (0..tokens as u64).map(|index| words(2).word(index) % vocabulary as u32).collect();
    let (mut losses, mut d_x, mut d_weight) = (vec![0.0; tokens], vec![0.0; tokens * width], vec![0.0; vocabulary * width]);
    let scale = 1.0 / tokens as f32;
    let sum = cpu.head(&x, &weight, &targets, scale, &mut losses, &mut d_x, &mut d_weight).map_err(kernel)?;
    let kernels = Head::new(gpu, tokens, width, vocabulary).map_err(gpu_error)?;
    let (gpu_x, gpu_weight) = (to_bf16(gpu, &x)?, to_bf16(gpu, &weight)?);
    let gpu_targets = gpu.upload(&targets).map_err(gpu_error)?;
    let (mut gpu_losses, results) = (poisoned::<f32>(gpu, tokens)?, poisoned::<f64>(gpu, 1)?);
    let (mut gpu_d_x, mut gpu_d_weight) = (poisoned::<Bf16>(gpu, tokens * width)?, poisoned::<f32>(gpu, vocabulary * width)?);
    let logits = poisoned::<Bf16>(gpu, kernels.logits())?;
    let gradients = Some((&mut gpu_d_x, &mut gpu_d_weight, 0));
    kernels
        .run(gpu, &gpu_x, (&gpu_weight, 0), &gpu_targets, &mut gpu_losses, (&results, 0), tokens, &logits, gradients)
        .map_err(gpu_error)?;
    let detail = format!("{tokens} tokens of width {width}, {vocabulary} entries");
    let mut compare = |name: &str, found: &[f32], wanted: &[f32], bound| {
        report(super::compared("kernel", name, detail.clone(), wanted.len(), relative(found, wanted), bound))
    };
    compare("head, losses", &gpu_losses.to_vec().map_err(gpu_error)?, &losses, 4.0 * UNIT)?;
    compare("head, d_x", &from_bf16(&gpu_d_x)?, &d_x, 4.0 * UNIT)?;
    compare("head, d_weight", &gpu_d_weight.to_vec().map_err(gpu_error)?, &d_weight, 4.0 * UNIT)?;
    let total = results.to_vec().map_err(gpu_error)?[0];
    report(super::compared("kernel", "head, sum of losses", detail.clone(), 1, ((total - sum) / sum).abs(), 4.0 * UNIT))
}

fn optimizer(gpu: &Gpu, cpu: &Cpu, seed: u64, report: &mut Report<'_>) -> Result<(), TrainerError> {
    let words = |tensor| stream(seed, 104, tensor);
    let total = 20_000;
    // The second ends amid four elements and the third begins there.
    let ranges = [(0, 64, false), (64, 9_002, true), (9_066, 9_998, true), (19_064, 936, false)];
    let numbers = |words: kernels::random::Stream, deviation: f32| -> Vec<f32> {
        (0..total as u64).map(|index| words.normal(index) * deviation).collect()
    };
    let (mut parameters, gradients) = (numbers(words(0), 0.02), numbers(words(1), 0.3));
    let (mut first, mut second) = (numbers(words(2), 0.01), numbers(words(3), 0.01).iter().map(|x| x * x).collect::<Vec<_>>());
    let kernels = Optimizer::new(gpu, ranges.into_iter()).map_err(gpu_error)?;
    let upload = |values: &[f32]| gpu.upload(values).map_err(gpu_error);
    let (mut p, g, mut m, mut v) = (upload(&parameters)?, upload(&gradients)?, upload(&first)?, upload(&second)?);
    let (mut copies, mut results) = (poisoned::<Bf16>(gpu, total)?, poisoned::<f64>(gpu, 2)?);
    results.write(0, &[1.0]).map_err(gpu_error)?;
    kernels.norm(&g, &results, 1).map_err(gpu_error)?;
    let norm = libm::sqrt(cpu.squared_norm(&gradients));
    let found = results.to_vec().map_err(gpu_error)?[1];
    report(super::compared("kernel", "gradient norm", format!("{total}"), 1, ((found - norm) / norm).abs(), 1e-12))?;
    // The same norm on both sides, so that the clipping factor is the same F32.
    results.write(1, &[norm]).map_err(gpu_error)?;
    let (clip_norm, weight_decay) = (1.0, 0.1f32);
    let n = AdamW {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-5,
        weight_decay,
        bias_correction1: 0.19,
        bias_correction2: 0.0975,
        gradient_scale: (clip_norm / (norm + 1e-6)).min(1.0) as f32,
    };
    for (start, length, decays) in ranges {
        let range = start..start + length;
        let n = AdamW { weight_decay: if decays { weight_decay } else { 0.0 }, ..n };
        let moments = (&mut first[range.clone()], &mut second[range.clone()]);
        cpu.adamw(&mut parameters[range.clone()], &gradients[range], moments.0, moments.1, &n).map_err(kernel)?;
    }
    let told = UpdateNumbers {
        learning_rate: n.learning_rate,
        beta1: n.beta1,
        beta2: n.beta2,
        epsilon: n.epsilon,
        weight_decay,
        bias_correction1: n.bias_correction1,
        bias_correction2: n.bias_correction2,
    };
    kernels.update(&(0..p.length()), &mut p, &g, &mut m, &mut v, &mut copies, told, clip_norm, (&results, 1, 0)).map_err(gpu_error)?;
    let differ = |found: &[f32], wanted: &[f32]| found.iter().zip(wanted).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as f64;
    for (name, found, wanted) in [("parameters", &p, &parameters), ("first moment", &m, &first), ("second moment", &v, &second)] {
        let found = found.to_vec().map_err(gpu_error)?;
        report(super::compared("kernel", format!("adamw, {name}"), format!("{total}"), total, differ(&found, wanted), 0.0))?;
    }
    let rounded: Vec<f32> = parameters.iter().map(|&x| kernels::format::bf16::round(x)).collect();
    report(super::compared("kernel", "adamw, BF16 copies", format!("{total}"), total, differ(&from_bf16(&copies)?, &rounded), 0.0))
}
