//! Every family of kernels on its own, with values from all over the range: a change in one shows in its own part.

use std::ops::Range;

use contract::recipe::{Block, Format, OperandSpec, ROTATION_SIZES, Rounding, ScaleRule};
use contract::run_file::{ModelSection, OptimizerName, OptimizerSection, ScheduleName, ScheduleSection};
use contract::schedule;
use kernels::cpu::{AttentionShape, Cpu, Panels, Role, RopeTable, Side};
use kernels::format::{MiniFloat, bf16, e8m0};
use kernels::hadamard;
use kernels::quantise::{self, Prepared, Randomness, Source};
use kernels::random::{self, Stream, StreamKey};

use super::{Fingerprint, Parts};
use crate::batches::{Batch, DataOrder};
use crate::device::{Device, Update};
use crate::error::TrainerError;
use crate::parameters::Layout;
use crate::shards::ShardRanges;

fn stream(number: u32) -> Stream {
    StreamKey { seed: 20_260_925, step: 3, layer: number, linear: 1, pass: 92, operand: 2 }.stream()
}

/// Normal values, some of them zero, subnormal after scaling, or a thousand times as large as their neighbours.
fn values(number: u32, count: usize) -> Vec<f32> {
    let stream = stream(number);
    let spread = |index: usize| [1.0, 1.0, 1.0, 0.0, 1000.0, 1.0 / 65_536.0, 1.0, 0.25][index % 64 / 8];
    (0..count).map(|index| stream.normal(index as u64) * spread(index)).collect()
}

/// Tame ones, for kernels in which a large value would hide all others.
fn tame(number: u32, count: usize) -> Vec<f32> {
    let stream = stream(number);
    (0..count).map(|index| stream.normal(index as u64)).collect()
}

pub(super) fn all(cpu: &Cpu) -> Result<Parts, TrainerError> {
    let mut parts = Parts::new();
    let mut add = |name: &str, digest: String| parts.insert(format!("kernels {name}"), digest);
    add("random words", random_words());
    for format in [Format::E2m1, Format::E4m3, Format::E5m2] {
        if let Some(codec) = quantise::mini_float(format) {
            add(&format!("format {}", format.word()), codes(&codec));
            add(&format!("format {}, stochastic", format.word()), stochastic_codes(&codec));
            add(&format!("scales of {}", format.word()), scales(&codec));
        }
    }
    add("format bf16", bf16_codes());
    add("hadamard", rotations());
    for (name, format) in [("mxfp4", Format::E2m1), ("mxfp8", Format::E4m3)] {
        add(&format!("quantise {name}"), quantised(format)?);
    }
    for (name, format) in [("f32", Format::F32), ("mxfp4", Format::E2m1)] {
        add(&format!("product {name}"), cpu.inside(|| product(cpu, format))?);
    }
    add("swiglu", cpu.inside(|| swiglu(cpu))?);
    add("embedding", cpu.inside(|| embedding(cpu))?);
    add("norm", cpu.inside(|| norm(cpu))?);
    add("rope", cpu.inside(|| rope(cpu))?);
    add("attention", cpu.inside(|| attention(cpu))?);
    add("attention backward", cpu.inside(|| attention_backward(cpu))?);
    add("head and loss", cpu.inside(|| head(cpu))?);
    add("optimizer", cpu.inside(|| optimizer(cpu))?);
    add("schedule", learning_rates());
    add("order of data", order());
    add("initial weights", initial_weights());
    Ok(parts)
}

fn random_words() -> String {
    let mut digest = Fingerprint::default();
    for number in 0..8 {
        let stream = stream(number);
        digest.words((0..256).map(|index| u64::from(stream.word(index))));
        digest.words((0..64).map(|index| stream.uniform(index << 30).to_bits()));
        digest.words((0..64).map(|index| u64::from(stream.normal(index).to_bits())));
    }
    digest.words(random::permutation(stream(9), 1000).into_iter().map(u64::from)).finish()
}

/// Every BF16 value but NaNs.
fn every() -> impl Iterator<Item = f32> {
    (0..=u16::MAX).map(bf16::decode).filter(|value| !value.is_nan())
}

/// Every value to nearest, and every code back.
fn codes(format: &MiniFloat) -> String {
    let mut digest = Fingerprint::default();
    digest.words(every().map(|value| u64::from(format.encode(value))));
    digest.floats(&(0..=u8::MAX).map(|code| format.decode(code)).collect::<Vec<_>>()).finish()
}

fn stochastic_codes(format: &MiniFloat) -> String {
    let mut digest = Fingerprint::default();
    for word in [0, 1 << 31, 0x9E37_79B9, u32::MAX] {
        digest.words(every().map(|value| u64::from(format.encode_stochastic(value, word))));
    }
    digest.finish()
}

/// Every scale of E8M0 by every rule, and what each stands for.
fn scales(format: &MiniFloat) -> String {
    let mut digest = Fingerprint::default();
    for rule in [ScaleRule::Floor, ScaleRule::Even, ScaleRule::Ceil] {
        digest.words(every().map(|value| u64::from(e8m0::scale_byte(value.abs().to_bits(), rule, format))));
    }
    digest.floats(&(0..=u8::MAX).flat_map(|byte| [e8m0::decode(byte), e8m0::reciprocal(byte)]).collect::<Vec<_>>()).finish()
}

fn bf16_codes() -> String {
    let mut digest = Fingerprint::default();
    let values = values(1, 4096);
    digest.words(values.iter().map(|&value| u64::from(bf16::encode(value))));
    // Random numbers have no ties: each value, and half a step of BF16 beyond it.
    digest.words(every().map(|value| u64::from(bf16::encode(f32::from_bits(value.to_bits() | 0x8000)))));
    let words = stream(2);
    digest.words(values.iter().zip(0..).map(|(&value, index)| u64::from(bf16::encode_stochastic(value, words.word(index))))).finish()
}

fn rotations() -> String {
    let mut digest = Fingerprint::default();
    for size in ROTATION_SIZES {
        for signs in [None, Some(hadamard::signs(stream(3), size))] {
            let mut rows = values(4, 8 * size);
            hadamard::rotate_rows(&mut rows, size, signs.as_deref());
            digest.floats(&rows);
        }
    }
    digest.finish()
}

/// Blocks of every kind by the reference; the fast paths are trained through ([`super::runs`]).
fn quantised(format: Format) -> Result<String, TrainerError> {
    let mut digest = Fingerprint::default();
    let (source, rows, k) = (values(5, 64 * 96), 64, 96);
    for block in [Block::Row32, Block::Tile32] {
        for scale in [ScaleRule::Floor, ScaleRule::Even, ScaleRule::Ceil] {
            for &rounding in Rounding::ALL {
                for transposed in [false, true] {
                    let spec = OperandSpec { format, block, scale, rounding, rotation: None };
                    let source = Source { values: &source, rows, k, transposed };
                    let words = Randomness { rounding: Some(stream(6)), ..Randomness::default() };
                    let (prepared, stats) = quantise::prepare_reference(source, &spec, words, None).map_err(TrainerError::kernel)?;
                    let multiplier = match &prepared {
                        Prepared::Mxfp4(operand) => operand.multiplier,
                        Prepared::Float(operand) => operand.scale,
                    };
                    digest.floats(&[multiplier, stats.amax]).floats(&quantise::dequantise(&prepared));
                }
            }
        }
    }
    Ok(digest.finish())
}

/// Products with remainders in every tile; in MXFP4 also of blocks whose scales are beyond what the fast kernels take.
fn product(cpu: &Cpu, format: Format) -> Result<String, TrainerError> {
    let mut digest = Fingerprint::default();
    // Blocks far apart in size, and more of them than an F32 adds exactly: the order across blocks shows.
    let (m, n, k) = (67, 53, 544);
    let apart = |index: usize| f32::from_bits(((116 + (index % k) / 32 * 5 % 23) as u32) << 23);
    let scale = if format == Format::F32 { ScaleRule::None } else { ScaleRule::Floor };
    let block = if format == Format::F32 { Block::Tensor } else { Block::Row32 };
    let spec = OperandSpec { format, block, scale, rounding: Rounding::NearestEven, rotation: None };
    for largest in [1.0, f32::from_bits((127 + 110) << 23)] {
        let (mut left, mut right, mut c) = (Panels::default(), Panels::default(), tame(25, m * n));
        let sides = [
            (
                values(23, m * k).iter().enumerate().map(|(index, value)| value * apart(index)).collect::<Vec<f32>>(),
                m,
                Role { side: Side::Left, partner: format },
                &mut left,
            ),
            (tame(24, n * k).iter().map(|value| value * largest).collect(), n, Role { side: Side::Right, partner: format }, &mut right),
        ];
        for (values, rows, role, panels) in sides {
            let source = Source { values: &values, rows, k, transposed: false };
            cpu.prepare_into(source, &spec, role, Randomness::default(), None, panels).map_err(TrainerError::kernel)?;
        }
        for accumulate in [true, false] {
            cpu.gemm(&left, &right, &mut c, accumulate).map_err(TrainerError::kernel)?;
            digest.floats(&c);
        }
    }
    Ok(digest.finish())
}

fn swiglu(cpu: &Cpu) -> Result<String, TrainerError> {
    let (rows, width) = (13, 72);
    let (gate_up, d_y) = (tame(26, 2 * rows * width), tame(27, rows * width));
    let (mut y, mut d_gate_up) = (vec![0.0; d_y.len()], vec![0.0; gate_up.len()]);
    cpu.swiglu(&gate_up, width, &mut y).map_err(TrainerError::kernel)?;
    cpu.swiglu_backward(&gate_up, &d_y, width, &mut d_gate_up).map_err(TrainerError::kernel)?;
    Ok(Fingerprint::default().floats(&y).floats(&d_gate_up).finish())
}

fn batch() -> Batch {
    let (inputs, targets) = (stream(7), stream(8));
    Batch::new((0..50).map(|index| inputs.word(index) % 40).collect(), (0..50).map(|index| targets.word(index) % 40).collect())
}

fn embedding(cpu: &Cpu) -> Result<String, TrainerError> {
    let (table, batch, width) = (values(10, 40 * 48), batch(), 48);
    let (mut out, mut gradients) = (vec![0.0; 50 * width], vec![0.0; table.len()]);
    Device::embedding(cpu, (&table, &(0..table.len())), (&batch, &()), width, &mut out)?;
    let every = 0..gradients.len();
    Device::embedding_backward(cpu, &values(11, 50 * width), (&batch, &()), width, (&mut gradients, &every))?;
    Ok(Fingerprint::default().floats(&out).floats(&gradients).finish())
}

fn norm(cpu: &Cpu) -> Result<String, TrainerError> {
    let (rows, width) = (37, 136);
    let (x, gain, d_y) = (values(12, rows * width), tame(13, width), tame(14, rows * width));
    let (mut y, mut inverse, mut d_x, mut d_gain) = (vec![0.0; x.len()], vec![0.0; rows], tame(15, x.len()), vec![0.0; width]);
    let place: Range<usize> = 0..width;
    Device::rms_norm(cpu, &x, (&gain, &place), 1e-5, &mut y, &mut inverse, rows)?;
    Device::rms_norm_backward(cpu, &x, (&gain, &place), &inverse, &d_y, &mut d_x, true, (&mut d_gain, &place), rows)?;
    Ok(Fingerprint::default().floats(&y).floats(&inverse).floats(&d_x).floats(&d_gain).finish())
}

fn shapes() -> [AttentionShape; 2] {
    let shape = |sequence, heads, kv_heads, head_dim| AttentionShape { batch: 2, sequence, heads, kv_heads, head_dim };
    [shape(72, 4, 2, 32), shape(33, 3, 1, 80)]
}

fn rope(cpu: &Cpu) -> Result<String, TrainerError> {
    let mut digest = Fingerprint::default();
    for shape in shapes() {
        let table = RopeTable::new(shape.head_dim, shape.sequence, 500_000.0);
        let mut qkv = tame(16, shape.batch * shape.sequence * shape.qkv_width());
        for backward in [false, true] {
            Device::rope(cpu, &mut qkv, shape, &table, backward)?;
            digest.floats(&qkv);
        }
    }
    Ok(digest.finish())
}

fn attention(cpu: &Cpu) -> Result<String, TrainerError> {
    let mut digest = Fingerprint::default();
    for shape in shapes() {
        let tokens = shape.batch * shape.sequence;
        let qkv = tame(17, tokens * shape.qkv_width());
        let (mut out, mut logsumexp) = (vec![0.0; tokens * shape.out_width()], vec![0.0; tokens * shape.heads]);
        Device::attention(cpu, &qkv, shape, &mut out, &mut logsumexp)?;
        digest.floats(&out).floats(&logsumexp);
    }
    Ok(digest.finish())
}

/// From an output and logarithms of its own, so that a change in the forward pass does not show here.
fn attention_backward(cpu: &Cpu) -> Result<String, TrainerError> {
    let mut digest = Fingerprint::default();
    for shape in shapes() {
        let tokens = shape.batch * shape.sequence;
        let (qkv, d_out) = (tame(17, tokens * shape.qkv_width()), tame(18, tokens * shape.out_width()));
        let (out, logsumexp) = (tame(28, d_out.len()), tame(29, tokens * shape.heads).iter().map(|value| value + 4.0).collect::<Vec<_>>());
        let mut d_qkv = vec![0.0; qkv.len()];
        Device::attention_backward(cpu, &qkv, shape, &out, &logsumexp, &d_out, &mut d_qkv)?;
        digest.floats(&d_qkv);
    }
    Ok(digest.finish())
}

fn head(cpu: &Cpu) -> Result<String, TrainerError> {
    let (width, batch) = (48, batch());
    let (x, weight) = (tame(19, 50 * width), tame(20, 40 * width));
    let (mut losses, mut d_x, mut gradients) = (vec![0.0; 50], vec![0.0; x.len()], vec![0.0; weight.len()]);
    let place: Range<usize> = 0..weight.len();
    let read = Device::head(cpu, &x, (&weight, &place), (&batch, &()), width, &mut losses, None)?;
    let mut digest = Fingerprint::default();
    digest.words([read.to_bits()]).floats(&losses);
    let trained = Device::head(cpu, &x, (&weight, &place), (&batch, &()), width, &mut losses, Some((&mut d_x, (&mut gradients, &place))))?;
    Ok(digest.words([trained.to_bits()]).floats(&losses).floats(&d_x).floats(&gradients).finish())
}

fn model() -> ModelSection {
    ModelSection {
        vocab_size: 40,
        hidden_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 3,
        num_key_value_heads: 1,
        head_dim: 16,
        intermediate_size: 80,
        sequence_length: 32,
        rope_theta: 500_000.0,
        rms_norm_eps: 1e-5,
        initializer_range: 0.02,
        scale_residual_init: true,
    }
}

fn sections() -> (OptimizerSection, ScheduleSection) {
    let optimizer = OptimizerSection {
        name: OptimizerName::Adamw,
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-5,
        weight_decay: 0.1,
        clip_norm: 1.0,
    };
    let name = ScheduleName::CosineWithLinearWarmup;
    (optimizer, ScheduleSection { name, warmup_steps: 10, decay_steps: 100, end_learning_rate: 1e-4 })
}

fn optimizer(cpu: &Cpu) -> Result<String, TrainerError> {
    let layout = Layout::new(&model());
    let gradients = values(21, layout.total);
    let (mut parameters, mut first, mut second) = (tame(22, layout.total), vec![0.0; layout.total], vec![0.0; layout.total]);
    let norm = cpu.gradient_norm(&gradients)?;
    let (section, _) = sections();
    for step in 1..=3 {
        let update = Update { section: &section, step, learning_rate: 1e-3 / step as f64, norm };
        Device::update(
            cpu,
            &layout,
            update,
            (&(0..layout.total), &ShardRanges::one(0..layout.total)),
            &gradients,
            &mut parameters,
            (&mut first, &mut second),
        )?;
    }
    Ok(Fingerprint::default().words([norm.to_bits()]).floats(&parameters).floats(&first).floats(&second).finish())
}

fn learning_rates() -> String {
    let (optimizer, schedule) = sections();
    Fingerprint::default().words((1..130).map(|step| schedule::learning_rate(&optimizer, &schedule, step).to_bits())).finish()
}

/// Two epochs of 777 samples.
fn order() -> String {
    let mut order = DataOrder::new(11, 777);
    Fingerprint::default().words((0..1554).map(|position| order.sample(position) as u64)).finish()
}

fn initial_weights() -> String {
    let mut digest = Fingerprint::default();
    for (scaled, perturbation) in [(true, 0), (false, 0), (true, 3)] {
        let model = ModelSection { scale_residual_init: scaled, ..model() };
        digest.floats(&Layout::new(&model).initialise(&model, 12, perturbation));
    }
    digest.finish()
}
