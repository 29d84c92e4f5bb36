//! The model against LLVM's scheduling model of gfx950 (llvm-mca, `-mcpu=gfx950`), on straight-line loops within 10 %.
//!
//! llvm-mca counts in issue cycles, four clocks each. It knows nothing of LDS, memory and counters, so the loops have none. It gives
//! transcendental operations the whole rate, where the model takes a quarter: loops have them in chains, where both wait for the result. It
//! lets a vector operation read a matrix result at once, where the model waits for LLVM's own latency: loops leave that out.

use gfx950_clock::simulate;
use gfx950_interpreter::trace::Trace;

use crate::tools::{assembled, mca};

const ITERATIONS: usize = 100;

fn modelled(text: &str) -> u64 {
    let instructions = assembled(text);
    let one: Vec<u32> = (0..instructions.len() as u32).collect();
    let trace = Trace { waves: vec![one.repeat(ITERATIONS)], ..Trace::default() };
    simulate(&instructions, &[&trace]).unwrap().clocks
}

fn lines(count: usize, of: impl Fn(usize) -> String) -> String {
    (0..count).map(|at| of(at) + "\n").collect()
}

fn fp4(d: usize, a: usize, b: usize) -> String {
    format!(
        "v_mfma_scale_f32_16x16x128_f8f6f4 v[{}:{}], v[{a}:{}], v[{b}:{}], v[{}:{}], v250, v251 op_sel_hi:[0,0,0] cbsz:4 blgp:4",
        d,
        d + 3,
        a + 3,
        b + 3,
        d,
        d + 3
    )
}

fn loops() -> Vec<(&'static str, String)> {
    let add = |at: usize| format!("v_add_u32_e32 v{}, v{}, v{}", 100 + at, 120 + at, 140 + at);
    vec![
        ("vector operations", lines(16, add)),
        (
            "packed operations and conversions to FP4",
            lines(8, |at| {
                let (first, other) = (100 + 2 * at, 140 + 2 * at);
                format!(
                    "v_pk_add_f32 v[{first}:{}], v[{other}:{}], v[{other}:{}]\nv_cvt_scalef32_pk_fp4_f32 v{}, v1, v2, v3",
                    first + 1,
                    other + 1,
                    other + 1,
                    60 + at
                )
            }),
        ),
        ("a chain of vector operations", lines(8, |_| "v_fma_f32 v1, v1, v2, v3".to_owned())),
        ("a chain of transcendental operations", lines(8, |_| "v_exp_f32_e32 v1, v1".to_owned())),
        ("a chain of F64", lines(8, |_| "v_fma_f64 v[2:3], v[2:3], v[4:5], v[6:7]".to_owned())),
        ("matrix operations on FP4", lines(8, |at| fp4(4 * at, 200, 204))),
        ("a chain of them", lines(8, |_| fp4(0, 200, 204))),
        ("two chains of them", lines(8, |at| fp4(4 * (at % 2), 200, 204))),
        (
            "32 by 32 of them",
            lines(4, |at| {
                let (first, last) = (16 * at, 16 * at + 15);
                format!("v_mfma_f32_32x32x64_f8f6f4 v[{first}:{last}], v[200:203], v[204:207], v[{first}:{last}] cbsz:4 blgp:4")
            }),
        ),
        (
            "matrix operations on BF16",
            lines(8, |at| {
                let (first, last) = (4 * at, 4 * at + 3);
                format!("v_mfma_f32_16x16x32_bf16 v[{first}:{last}], v[200:203], v[204:207], v[{first}:{last}]")
            }),
        ),
        ("two vector operations behind each matrix operation", lines(8, |at| [fp4(4 * at, 200, 204), add(at), add(at + 8)].join("\n"))),
        ("six of them", lines(8, |at| fp4(4 * at, 200, 204) + "\n" + lines(6, |more| add((6 * at + more) % 16)).trim_end())),
        ("scalar operations between", lines(8, |at| fp4(4 * at, 200, 204) + "\ns_add_u32 s4, s4, s5\ns_lshl_b32 s6, s7, 2")),
    ]
}

#[test]
fn straight_line_loops_take_what_llvm_says_within_ten_per_cent() {
    let mut far = Vec::new();
    for (name, text) in loops() {
        let Some(cycles) = mca(&text, ITERATIONS) else { return };
        let (theirs, ours) = (4 * cycles, modelled(&text));
        println!("{name}: {ours} clocks, LLVM {theirs}");
        if ours.abs_diff(theirs) * 10 > theirs {
            far.push(format!("{name}: {ours} clocks, LLVM {theirs}"));
        }
    }
    assert!(far.is_empty(), "{}", far.join("\n"));
}
