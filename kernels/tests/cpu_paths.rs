//! Norms, rotary embedding, SwiGLU, embedding, attention, loss, optimizer: the same bits on every instruction set and number of threads,
//! forward against an independent F64 implementation, backward against central differences of it.
//!
//! Tolerances: each kernel is a chain of a few dozen F32 roundings on values of order one and sums of at most a few hundred terms, so
//! its error is below about 200 * 2^-24 = 1.2e-5 of the largest result; tests allow 5e-5 of that. A central difference with step
//! h = 1e-4 in F64 has error h^2/6 * third derivative + 1e-16/h, below 1e-7 here.

#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use kernels::cpu::{AdamW, AttentionShape, Cpu, InstructionSet, Matrix, RopeTable};
use kernels::random::StreamKey;

const TOLERANCE: f64 = 5e-5;

fn cpus() -> Vec<Cpu> {
    let sets = InstructionSet::ALL.into_iter().filter(|set| set.is_supported());
    sets.flat_map(|set| [Cpu::new(set, 1).unwrap(), Cpu::new(set, 3).unwrap()]).collect()
}

fn normals(count: usize, tag: u64) -> Vec<f32> {
    let stream = StreamKey { seed: 3, step: tag, ..Default::default() }.stream();
    (0..count as u64).map(|i| stream.normal(i)).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

/// Runs `kernel` everywhere; all outputs must have the same bits; returns them.
fn everywhere(name: &str, kernel: impl Fn(&Cpu) -> Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let cpus = cpus();
    let first = kernel(&cpus[0]);
    for cpu in &cpus[1..] {
        for (output, (expected, found)) in first.iter().zip(kernel(cpu)).enumerate() {
            assert_eq!(expected.len(), found.len());
            for (i, (e, f)) in expected.iter().zip(&found).enumerate() {
                assert!(
                    e.to_bits() == f.to_bits() || (e.is_nan() && f.is_nan()),
                    "{name}, output {output}, element {i}: {f} on {cpu:?}, {e} on scalar"
                );
            }
        }
    }
    first
}

fn assert_close(name: &str, expected: &[f64], found: &[f32]) {
    assert_eq!(expected.len(), found.len(), "{name}");
    let size = expected.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
    for (i, (e, &f)) in expected.iter().zip(found).enumerate() {
        assert!((e - f64::from(f)).abs() <= TOLERANCE * size, "{name}, element {i}: {f} is not {e} (largest {size})");
    }
}

/// d(sum of weights * f(x)) / dx by central differences.
fn gradient(x: &[f64], weights: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let h = 1e-4;
    let mut moved = x.to_vec();
    let mut value = |i: usize, by: f64| {
        moved[i] = x[i] + by;
        let sum: f64 = f(&moved).iter().zip(weights).map(|(y, w)| y * w).sum();
        moved[i] = x[i];
        sum
    };
    (0..x.len()).map(|i| (value(i, h) - value(i, -h)) / (2.0 * h)).collect()
}

#[test]
fn rms_norm() {
    let plain = |x: &[f64], gain: &[f64]| -> Vec<f64> {
        let row = |x: &[f64]| {
            let r = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + 1e-5).sqrt();
            x.iter().zip(gain).map(|(v, g)| v * r * g).collect::<Vec<_>>()
        };
        x.chunks(gain.len()).flat_map(row).collect()
    };
    for (tokens, width) in [(0, 7), (1, 1), (3, 5), (2, 16), (5, 33), (67, 9), (130, 48)] {
        let (x, gain, d_y) = (normals(tokens * width, 1), normals(width, 2), normals(tokens * width, 3));
        let before = normals(tokens * width, 4);
        let outputs = everywhere("rms_norm", |cpu| {
            let (mut y, mut r) = (vec![0.0; x.len()], vec![0.0; tokens]);
            cpu.rms_norm(&x, &gain, 1e-5, &mut y, &mut r).unwrap();
            let (mut d_x, mut d_gain, mut added) = (vec![9.0; x.len()], vec![1.0; width], before.clone());
            cpu.rms_norm_backward(&x, &gain, &r, &d_y, &mut d_x, false, &mut d_gain).unwrap();
            cpu.rms_norm_backward(&x, &gain, &r, &d_y, &mut added, true, &mut vec![0.0; width]).unwrap();
            vec![y, d_x, d_gain, added]
        });
        let (x, gain, d_y) = (wide(&x), wide(&gain), wide(&d_y));
        assert_close("y", &plain(&x, &gain), &outputs[0]);
        let d_x = gradient(&x, &d_y, |x| plain(x, &gain));
        assert_close("d_x", &d_x, &outputs[1]);
        let d_gain: Vec<f64> = gradient(&gain, &d_y, |gain| plain(&x, gain)).iter().map(|g| g + 1.0).collect();
        assert_close("d_gain, added to 1", &d_gain, &outputs[2]);
        let added: Vec<f64> = d_x.iter().zip(&before).map(|(d, &b)| d + f64::from(b)).collect();
        assert_close("d_x, added", &added, &outputs[3]);
    }
}

#[test]
fn rope() {
    for (batch, sequence, heads, others, dim) in [(1, 1, 1, 0, 2), (2, 5, 3, 2, 32), (3, 7, 2, 1, 6), (1, 9, 1, 1, 64)] {
        let width = (heads + others) * dim;
        let x = normals(batch * sequence * width, 1);
        let table = RopeTable::new(dim, sequence + 2, 10_000.0);
        let outputs = everywhere("rope", |cpu| {
            let mut y = x.clone();
            cpu.rope(&mut y, width, heads, dim, sequence, &table, false).unwrap();
            let mut back = y.clone();
            cpu.rope(&mut back, width, heads, dim, sequence, &table, true).unwrap();
            vec![y, back]
        });
        let mut expected = wide(&x);
        for (t, row) in expected.chunks_mut(width).enumerate() {
            for head in row[..heads * dim].chunks_mut(dim) {
                for i in 0..dim / 2 {
                    let angle = (t % sequence) as f64 * 10_000f64.powf(-2.0 * i as f64 / dim as f64);
                    let (a, b) = (head[i], head[i + dim / 2]);
                    head[i] = a * angle.cos() - b * angle.sin();
                    head[i + dim / 2] = b * angle.cos() + a * angle.sin();
                }
            }
        }
        assert_close("rotated", &expected, &outputs[0]);
        // A rotation's transpose is its inverse, and backward must be the transpose.
        assert_close("rotated back", &wide(&x), &outputs[1]);
    }
}

#[test]
fn swiglu() {
    let plain = |x: &[f64], ffn: usize| -> Vec<f64> {
        x.chunks(2 * ffn).flat_map(|row| (0..ffn).map(|i| row[i] / (1.0 + (-row[i]).exp()) * row[ffn + i]).collect::<Vec<_>>()).collect()
    };
    for (tokens, ffn) in [(0, 3), (1, 1), (3, 17), (65, 40), (2, 33000)] {
        let (x, d_y) = (normals(tokens * 2 * ffn, 1), normals(tokens * ffn, 2));
        let outputs = everywhere("swiglu", |cpu| {
            let (mut y, mut d_x) = (vec![0.0; tokens * ffn], vec![0.0; x.len()]);
            cpu.swiglu(&x, ffn, &mut y).unwrap();
            cpu.swiglu_backward(&x, &d_y, ffn, &mut d_x).unwrap();
            vec![y, d_x]
        });
        let x = wide(&x);
        assert_close("y", &plain(&x, ffn), &outputs[0]);
        if x.len() < 3000 {
            assert_close("d_x", &gradient(&x, &wide(&d_y), |x| plain(x, ffn)), &outputs[1]);
        }
    }
    // The sigmoid's whole range, both sides of every cut in the exponential.
    let gates: Vec<f32> = (-2000..2000).map(|i| i as f32 * 0.0625).chain([f32::INFINITY, f32::MIN, f32::MAX, -0.0]).collect();
    let x: Vec<f32> = gates.iter().flat_map(|&g| [g, 1.0]).collect();
    let y = everywhere("sigmoid", |cpu| {
        let mut y = vec![0.0; gates.len()];
        cpu.swiglu(&x, 1, &mut y).unwrap();
        vec![y]
    });
    for (&g, &y) in gates.iter().zip(&y[0]) {
        let expected = f64::from(g) / (1.0 + (-f64::from(g)).exp());
        // Relative 4e-7 (a handful of roundings); below e^-88 the exponential is capped, absolute 1e-35 there.
        let bound = 4e-7 * expected.abs() + f64::from(g).abs().min(1e4) * 1e-38;
        assert!(f64::from(y) == expected || (f64::from(y) - expected).abs() <= bound || g == f32::MIN, "silu({g}) = {y}, not {expected}");
    }
}

#[test]
fn embedding() {
    let (vocabulary, width, tokens) = (11, 19, [3u32, 0, 10, 3, 3, 7]);
    let (table, d_y) = (normals(vocabulary * width, 1), normals(tokens.len() * width, 2));
    let outputs = everywhere("embedding", |cpu| {
        let (mut y, mut d_table) = (vec![0.0; d_y.len()], vec![1.0; table.len()]);
        cpu.embedding(&table, &tokens, width, &mut y).unwrap();
        cpu.embedding_backward(&d_y, &tokens, width, &mut d_table).unwrap();
        vec![y, d_table]
    });
    let mut d_table = vec![1.0f32; table.len()];
    for (t, &token) in tokens.iter().enumerate() {
        for i in 0..width {
            assert_eq!(outputs[0][t * width + i], table[token as usize * width + i]);
            d_table[token as usize * width + i] += d_y[t * width + i];
        }
    }
    assert_eq!(outputs[1], d_table);
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    assert!(cpu.embedding(&table, &[11], width, &mut vec![0.0; width]).is_err());
    assert!(cpu.embedding_backward(&d_y[..width], &[11], width, &mut d_table).is_err());
}

/// Attention of one sequence after another, in F64, straight from the formula.
fn plain_attention(qkv: &[f64], s: AttentionShape) -> Vec<f64> {
    let (width, dim) = (s.qkv_width(), s.head_dim);
    let mut out = vec![0.0; s.tokens() * s.out_width()];
    for batch in 0..s.batch {
        for head in 0..s.heads {
            let kv = head / (s.heads / s.kv_heads);
            for t in 0..s.sequence {
                let row = |t: usize, column: usize| &qkv[(batch * s.sequence + t) * width + column..][..dim];
                let q = row(t, head * dim);
                let weights: Vec<f64> = (0..=t)
                    .map(|u| (q.iter().zip(row(u, (s.heads + kv) * dim)).map(|(a, b)| a * b).sum::<f64>() / (dim as f64).sqrt()).exp())
                    .collect();
                let total: f64 = weights.iter().sum();
                for (u, w) in weights.iter().enumerate() {
                    for i in 0..dim {
                        out[(batch * s.sequence + t) * s.out_width() + head * dim + i] +=
                            w / total * row(u, (s.heads + s.kv_heads + kv) * dim)[i];
                    }
                }
            }
        }
    }
    out
}

/// Turned queries and keys, what attention makes of them, and the gradient of what was not turned yet: bits.
fn turned_apart(cpu: &Cpu, shape: AttentionShape, qkv: &[f32], d_out: &[f32]) -> [Vec<u32>; 3] {
    let AttentionShape { sequence, heads, kv_heads, head_dim, .. } = shape;
    let table = RopeTable::new(head_dim, sequence, 10_000.0);
    let turn = |x: &mut [f32], backward| cpu.rope(x, shape.qkv_width(), heads + kv_heads, head_dim, sequence, &table, backward).unwrap();
    let (mut qkv, mut out, mut lse, mut d_qkv) =
        (qkv.to_vec(), vec![0.0; d_out.len()], vec![0.0; shape.tokens() * heads], vec![3.0; qkv.len()]);
    turn(&mut qkv, false);
    cpu.attention(&qkv, shape, &mut out, &mut lse).unwrap();
    cpu.attention_backward(&qkv, shape, &out, &lse, d_out, &mut d_qkv).unwrap();
    turn(&mut d_qkv, true);
    [qkv, out, d_qkv].map(|x| x.iter().map(|x| x.to_bits()).collect())
}

/// The same by the kernels that do both.
fn turned_together(cpu: &Cpu, shape: AttentionShape, qkv: &[f32], d_out: &[f32]) -> [Vec<u32>; 3] {
    let table = RopeTable::new(shape.head_dim, shape.sequence, 10_000.0);
    let (mut qkv, mut out, mut lse, mut d_qkv) =
        (qkv.to_vec(), vec![0.0; d_out.len()], vec![0.0; shape.tokens() * shape.heads], vec![3.0; qkv.len()]);
    cpu.rope_attention(&mut qkv, shape, &table, &mut out, &mut lse).unwrap();
    cpu.rope_attention_backward(&qkv, shape, &table, &out, &lse, d_out, &mut d_qkv).unwrap();
    [qkv, out, d_qkv].map(|x| x.iter().map(|x| x.to_bits()).collect())
}

#[test]
fn attention() {
    for (batch, sequence, heads, kv_heads, head_dim) in
        [(0, 4, 2, 1, 8), (1, 1, 1, 1, 1), (2, 5, 4, 2, 6), (1, 35, 3, 1, 5), (3, 33, 2, 2, 4), (1, 70, 2, 1, 3), (2, 128, 4, 2, 32)]
    {
        let shape = AttentionShape { batch, sequence, heads, kv_heads, head_dim };
        let (qkv, d_out) = (normals(shape.tokens() * shape.qkv_width(), 1), normals(shape.tokens() * shape.out_width(), 2));
        let outputs = everywhere("attention", |cpu| {
            let (mut out, mut lse, mut d_qkv) = (vec![0.0; d_out.len()], vec![0.0; shape.tokens() * heads], vec![3.0; qkv.len()]);
            cpu.attention(&qkv, shape, &mut out, &mut lse).unwrap();
            cpu.attention_backward(&qkv, shape, &out, &lse, &d_out, &mut d_qkv).unwrap();
            // A single element has no angle.
            if head_dim > 1 {
                assert_eq!(turned_together(cpu, shape, &qkv, &d_out), turned_apart(cpu, shape, &qkv, &d_out), "{shape:?}");
            }
            vec![out, d_qkv, lse]
        });
        let qkv = wide(&qkv);
        assert_close("out", &plain_attention(&qkv, shape), &outputs[0]);
        if qkv.len() < 1500 {
            assert_close("d_qkv", &gradient(&qkv, &wide(&d_out), |x| plain_attention(x, shape)), &outputs[1]);
        }
    }
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    let uneven = AttentionShape { batch: 1, sequence: 1, heads: 3, kv_heads: 2, head_dim: 1 };
    assert!(cpu.attention(&[0.0; 7], uneven, &mut [0.0; 3], &mut [0.0; 3]).is_err());
    let (short, shape) = (RopeTable::new(2, 3, 10_000.0), AttentionShape { batch: 1, sequence: 4, heads: 1, kv_heads: 1, head_dim: 2 });
    let error = cpu.rope_attention(&mut [0.0; 24], shape, &short, &mut [0.0; 8], &mut [0.0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "rope_attention: the table has 3 positions, the sequence 4");
}

/// An infinite gradient of one position changes nothing of what comes after its group of eight.
#[test]
fn attention_masks_infinities() {
    let shape = AttentionShape { batch: 1, sequence: 40, heads: 2, kv_heads: 1, head_dim: 16 };
    let (qkv, finite) = (normals(shape.tokens() * shape.qkv_width(), 1), normals(shape.tokens() * shape.out_width(), 2));
    let mut infinite = finite.clone();
    infinite[13 * shape.out_width() + 3] = f32::INFINITY;
    let gradients = everywhere("attention_masks_infinities", |cpu| {
        let (mut out, mut lse) = (vec![0.0; finite.len()], vec![0.0; shape.tokens() * shape.heads]);
        cpu.attention(&qkv, shape, &mut out, &mut lse).unwrap();
        let of = |d_out: &[f32]| {
            let mut d_qkv = vec![0.0; qkv.len()];
            cpu.attention_backward(&qkv, shape, &out, &lse, d_out, &mut d_qkv).unwrap();
            d_qkv.into_iter().map(|x| if x.is_nan() { f32::NAN } else { x }).collect()
        };
        vec![of(&finite), of(&infinite)]
    });
    let (before, after) = (13 * shape.qkv_width(), 16 * shape.qkv_width());
    assert_eq!(gradients[0][after..], gradients[1][after..]);
    assert!(gradients[1][..before].iter().any(|x| !x.is_finite()), "no position that the infinite one sees has heard of it");
}

#[test]
fn cross_entropy() {
    let plain = |x: &[f64], targets: &[u32]| -> Vec<f64> {
        let v = x.len() / targets.len().max(1);
        let row = |(row, &t): (&[f64], &u32)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[t as usize];
        if v == 0 { Vec::new() } else { x.chunks(v).zip(targets).map(row).collect() }
    };
    for (tokens, vocabulary) in [(0, 5), (1, 1), (3, 17), (70, 13), (5, 160)] {
        let logits: Vec<f32> = normals(tokens * vocabulary, 1).iter().map(|x| x * 3.0).collect();
        let targets: Vec<u32> = (0..tokens).map(|t| ((t * 7) % vocabulary) as u32).collect();
        let scale = 1.0 / tokens.max(1) as f32;
        let outputs = everywhere("cross_entropy", |cpu| {
            let (mut d, mut loss, mut alone) = (logits.clone(), vec![0.0; tokens], vec![0.0; tokens]);
            let sum = cpu.cross_entropy(&mut d, &targets, scale, &mut loss).unwrap();
            let again = cpu.cross_entropy_loss(&logits, &targets, &mut alone).unwrap();
            assert_eq!((sum.to_bits(), &loss), (again.to_bits(), &alone), "forward alone gives the same");
            assert_eq!(sum, loss.iter().map(|&x| f64::from(x)).sum::<f64>());
            vec![loss, d]
        });
        let logits = wide(&logits);
        assert_close("loss", &plain(&logits, &targets), &outputs[0]);
        assert_close("gradient", &gradient(&logits, &vec![f64::from(scale); tokens], |x| plain(x, &targets)), &outputs[1]);
    }
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    assert!(cpu.cross_entropy(&mut [0.0; 4], &[4], 1.0, &mut [0.0]).is_err());
    assert!(cpu.cross_entropy(&mut [0.0; 5], &[0, 0], 1.0, &mut [0.0; 2]).is_err());
    // Logits so far apart that all but one probability vanish, and logits that diverged.
    let mut loss = [0.0];
    cpu.cross_entropy(&mut [1e4, -1e4, 0.0], &[0], 1.0, &mut loss).unwrap();
    assert_eq!(loss, [0.0]);
    assert!(cpu.cross_entropy(&mut [0.0, f32::NAN, 1.0], &[0], 1.0, &mut loss).unwrap().is_nan());
    assert!(cpu.cross_entropy(&mut [f32::NAN; 40], &[0], 1.0, &mut loss).unwrap().is_nan());
}

#[test]
fn optimizer_and_sums() {
    let n = AdamW {
        learning_rate: 1e-2,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        bias_correction1: 0.271,
        bias_correction2: 0.142_625,
        gradient_scale: 0.5,
    };
    for count in [0, 1, 15, 16, 17, 1000, 40_000] {
        let (p, g, m) = (normals(count, 1), normals(count, 2), normals(count, 3));
        let v: Vec<f32> = normals(count, 4).iter().map(|x| x * x).collect();
        let outputs = everywhere("adamw", |cpu| {
            let (mut p, mut m, mut v) = (p.clone(), m.clone(), v.clone());
            cpu.adamw(&mut p, &g, &mut m, &mut v, &n).unwrap();
            let (mut sum, mut scaled) = (g.clone(), g.clone());
            cpu.add(&mut sum, &p).unwrap();
            cpu.scale(&mut scaled, 0.3);
            let norm = cpu.squared_norm(&g).to_bits();
            vec![p, m, v, sum, scaled, vec![f32::from_bits((norm >> 33) as u32), f32::from_bits(norm as u32 >> 2)]]
        });
        for i in 0..count {
            let [p, g, m, v] = [p[i], g[i], m[i], v[i]].map(f64::from);
            let g = g * 0.5;
            // Sizes of the terms, because they may cancel: a handful of roundings and 1 - beta in F32 (relative 2.4e-7) each.
            let (m_size, v_size) = (m.abs() + g.abs(), v + g * g);
            let (m, v) = (0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g);
            let rate = 1e-2 / 0.271 / ((v / 0.142_625).sqrt() + 1e-8);
            let p_size = p.abs() + rate * m_size;
            let p = p - 1e-2 * 0.1 * p - rate * m;
            for (found, expected, size) in [(outputs[0][i], p, p_size), (outputs[1][i], m, m_size), (outputs[2][i], v, v_size)] {
                assert!((f64::from(found) - expected).abs() <= 1e-6 * size, "{found}, not {expected}");
            }
            assert_eq!(outputs[4][i], 0.3 * (g * 2.0) as f32);
        }
        let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
        let exact: f64 = g.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        assert!((cpu.squared_norm(&g) - exact).abs() <= 1e-12 * exact);
    }
}

#[test]
fn a_cpu_that_cannot_be() {
    assert!(Cpu::new(InstructionSet::Scalar, 0).is_err());
    assert_eq!(InstructionSet::parse("auto").unwrap(), InstructionSet::detect());
    assert_eq!(InstructionSet::parse("scalar").unwrap(), InstructionSet::Scalar);
    assert!(
        InstructionSet::parse("sse")
            .unwrap_err()
            .to_string()
            .contains("auto, scalar, avx2, avx-vnni, avx512, avx512-bf16, amx, neon or neon-dot")
    );
    for set in InstructionSet::ALL {
        assert_eq!(InstructionSet::parse(&set.to_string()).is_ok(), set.is_supported());
        assert_eq!(Cpu::new(set, 2).is_ok(), set.is_supported());
    }
}

/// In groups of tokens, yet the bits of one product and one loss over all of them: groups of several sizes, a last one that is not whole.
#[test]
fn head_is_its_parts() {
    for (tokens, width, vocabulary) in [(1, 16, 5), (130, 24, 40), (700, 33, 600), (300, 16, 2100)] {
        let (x, weight) = (normals(tokens * width, 1), normals(vocabulary * width, 2));
        let targets: Vec<u32> = (0..tokens).map(|t| (7 * t % vocabulary) as u32).collect();
        let scale = 1.0 / tokens as f32;
        let whole = everywhere("head", |cpu| {
            let (mut loss, mut alone) = (vec![7.0; tokens], vec![7.0; tokens]);
            let (mut d_x, mut d_weight) = (vec![7.0; x.len()], vec![7.0; weight.len()]);
            let sum = cpu.head(&x, &weight, &targets, scale, &mut loss, &mut d_x, &mut d_weight).unwrap();
            let again = cpu.head_loss(&x, &weight, &targets, &mut alone).unwrap();
            assert_eq!((sum.to_bits(), &loss), (again.to_bits(), &alone));
            vec![loss, d_x, d_weight, vec![sum as f32]]
        });
        let cpu = Cpu::new(InstructionSet::detect(), 2).unwrap();
        let (mut logits, mut loss) = (vec![0.0; tokens * vocabulary], vec![0.0; tokens]);
        let (mut d_x, mut d_weight) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
        let head = Matrix::new(&weight, vocabulary, width);
        cpu.gemm_f32(Matrix::new(&x, tokens, width), head, &mut logits, vocabulary, false).unwrap();
        let sum = cpu.cross_entropy(&mut logits, &targets, scale, &mut loss).unwrap();
        let turned = Matrix::transposed(&weight, width, vocabulary);
        cpu.gemm_f32(Matrix::new(&logits, tokens, vocabulary), turned, &mut d_x, width, false).unwrap();
        let (by_entry, x_turned) = (Matrix::transposed(&logits, vocabulary, tokens), Matrix::transposed(&x, width, tokens));
        cpu.gemm_f32(by_entry, x_turned, &mut d_weight, width, false).unwrap();
        assert_eq!(whole, vec![loss, d_x, d_weight, vec![sum as f32]], "{tokens} tokens, width {width}, vocabulary {vocabulary}");
    }
    let cpu = Cpu::new(InstructionSet::Scalar, 1).unwrap();
    let (x, weight) = ([1.0; 6], [1.0; 9]);
    let mut loss = [5.0; 2];
    assert!(cpu.head_loss(&x, &weight, &[0, 3], &mut loss).is_err(), "a target outside the vocabulary");
    assert!(cpu.head_loss(&x, &weight[..8], &[0, 1], &mut loss).is_err(), "half a row");
    assert!(cpu.head_loss(&x[..5], &weight, &[0, 1], &mut loss).is_err(), "half a token");
    assert_eq!(loss, [5.0; 2], "nothing was written");
    assert_eq!(cpu.head_loss(&[], &weight, &[], &mut []).unwrap(), 0.0, "an empty batch");
}

/// The exponential is compiled differently for each instruction set. The loss's gradient shows it for arguments up to 0 (its largest logit
/// is 0), SwiGLU for all of them.
#[test]
fn the_exponential_is_the_same_on_every_instruction_set() {
    // Every 1021st pattern of a negative number up to infinity, and all around the end of the range.
    let around = (-87.33f32).to_bits();
    let negative = (0x8000_0000..=0xFF80_0000u32).step_by(1021).chain(around - 5000..around + 5000);
    let mut logits: Vec<f32> = std::iter::once(0.0).chain(negative.map(f32::from_bits)).collect();
    logits.resize(logits.len().next_multiple_of(16), 0.0);
    // NaNs of both signs too.
    let gate_up: Vec<f32> =
        (0..=u32::MAX).step_by(2039 * 16).flat_map(|at| (at..at.saturating_add(16)).map(f32::from_bits).chain([1.0; 16])).collect();
    let of = |set| {
        let cpu = Cpu::new(set, 1).unwrap();
        let (mut gradient, mut y) = (logits.clone(), vec![0.0; gate_up.len() / 2]);
        cpu.cross_entropy(&mut gradient, &[0], 1.0, &mut [0.0]).unwrap();
        cpu.swiglu(&gate_up, 16, &mut y).unwrap();
        gradient.extend(y);
        gradient.into_iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect::<Vec<u32>>()
    };
    let plain = of(InstructionSet::Scalar);
    for set in InstructionSet::ALL.into_iter().filter(|set| set.is_supported()) {
        let found = of(set);
        let first = plain.iter().zip(&found).position(|(a, b)| a != b);
        assert_eq!(first, None, "{set} parts from the scalar code there");
    }
}
