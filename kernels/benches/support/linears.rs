//! The linears of one block, forward and backward, at the widths of sizes A and B.

use std::cell::RefCell;
use std::rc::Rc;

use contract::recipe::{Format, OperandSpec, Rounding, Signs};
use kernels::cpu::{Cpu, Panels, Side};
use kernels::quantise::Source;

use crate::support::{Preparation, Task, mxfp4, plain, values};

/// The formats of a linear layer: of forward operands, and of the output's gradient.
#[derive(Clone, Copy)]
pub(crate) struct Linear {
    pub(crate) name: &'static str,
    pub(crate) forward: OperandSpec,
    pub(crate) gradient: OperandSpec,
}

/// The linears that are timed.
pub(crate) fn all() -> Vec<Linear> {
    let nearest = Rounding::NearestEven;
    let same = |name, spec| Linear { name, forward: spec, gradient: spec };
    vec![
        same("f32", plain(Format::F32, nearest)),
        Linear { name: "fp8", forward: plain(Format::E4m3, nearest), gradient: plain(Format::E5m2, nearest) },
        same("mxfp4", mxfp4(nearest, 0, Signs::None)),
        same("mxfp4-h16", mxfp4(nearest, 16, Signs::None)),
        same("mxfp4-h32", mxfp4(nearest, 32, Signs::None)),
        same("mxfp4-stochastic", mxfp4(Rounding::Stochastic, 0, Signs::None)),
    ]
}

/// Memory that all linears of one width share, as they would in one program.
pub(crate) struct Memory {
    width: usize,
    x: Vec<f32>,
    w: Vec<f32>,
    dy: Vec<f32>,
    product: Vec<f32>,
    left: Panels,
    right: Panels,
}

/// Tokens of a step of sizes A and B.
pub(crate) const TOKENS: usize = 4096;

impl Memory {
    pub(crate) fn new(width: usize) -> Rc<RefCell<Self>> {
        let wide = 6 * width; // gate and up together: 2 x 3 widths
        let product = vec![0.0; (TOKENS * wide).max(wide * width)];
        let (left, right) = (Panels::default(), Panels::default());
        let memory =
            Self { width, x: values(TOKENS * wide, 4), w: values(wide * width, 5), dy: values(TOKENS * wide, 6), product, left, right };
        Rc::new(RefCell::new(memory))
    }

    /// Outputs and inputs of the four linears of a block of sizes A and B.
    fn shapes(&self) -> [(usize, usize); 4] {
        let width = self.width;
        [(3 * width, width), (width, width), (6 * width, width), (width, 3 * width)]
    }

    fn operations(&self) -> u64 {
        self.shapes().iter().map(|(outputs, inputs)| 3 * 2 * (TOKENS * outputs * inputs) as u64).sum()
    }
}

/// Forward and backward of the four linears of one block: twelve products, all preparation included.
#[allow(clippy::expect_used, reason = "a benchmark that cannot set itself up should stop")]
pub(crate) fn task(cpu: &Cpu, linear: Linear, memory: &Rc<RefCell<Memory>>) -> Task {
    let (cpu, shared) = (cpu.clone(), Rc::clone(memory));
    let role = |spec: OperandSpec, side, partner: OperandSpec| Preparation::new(spec, side, partner.format);
    let Linear { name, forward, gradient } = linear;
    let passes = [
        (role(forward, Side::Left, forward), role(forward, Side::Right, forward)),
        (role(gradient, Side::Left, forward), role(forward, Side::Right, gradient)),
        (role(gradient, Side::Left, forward), role(forward, Side::Right, gradient)),
    ];
    let run = move || {
        let memory = &mut *shared.borrow_mut();
        for (outputs, inputs) in memory.shapes() {
            let (x, w, dy) = (&memory.x[..TOKENS * inputs], &memory.w[..outputs * inputs], &memory.dy[..TOKENS * outputs]);
            let source = |values, rows, k, transposed| Source { values, rows, k, transposed };
            let operands = [
                (source(x, TOKENS, inputs, false), source(w, outputs, inputs, false)),
                (source(dy, TOKENS, outputs, false), source(w, inputs, outputs, true)),
                (source(dy, outputs, TOKENS, true), source(x, inputs, TOKENS, true)),
            ];
            for ((a, b), (left, right)) in operands.into_iter().zip(&passes) {
                left.run(&cpu, a, &mut memory.left);
                right.run(&cpu, b, &mut memory.right);
                let c = &mut memory.product[..a.rows * b.rows];
                cpu.gemm(&memory.left, &memory.right, c, false).expect("the shapes fit");
            }
        }
    };
    let (width, operations) = (memory.borrow().width, memory.borrow().operations());
    Task { name: format!("linear/{name}/{TOKENS}x{width}"), operations, bytes: 0, run: Box::new(run) }
}
