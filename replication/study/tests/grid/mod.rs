//! Sizes and counts at which arithmetic of a machine's words turns over, and the points of a grid over them: every pair of dimensions with
//! every pair of values, and points drawn in all dimensions at once.

use study::manifest::profile::{Model, Profile};

/// A number of a run file: where it stands there, and in which manifest.
pub struct Dimension {
    pub section: &'static str,
    pub key: &'static str,
    pub set: fn(&mut Model, &mut Profile, u64),
    values: &'static [u64],
}

const MOST: u64 = u64::MAX;

macro_rules! dimension {
    (model.$key:ident, $values:expr) => {
        Dimension { section: "model", key: stringify!($key), set: |model, _, value| model.$key = value, values: $values }
    };
    ($section:ident.$key:ident as $kind:ty, $values:expr) => {
        Dimension {
            section: stringify!($section),
            key: stringify!($key),
            set: |_, profile, value| profile.$section.$key = value as $kind,
            values: $values,
        }
    };
}

pub const DIMENSIONS: [Dimension; 17] = [
    dimension!(model.vocab_size, &[0, 1, 511, 512, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, 1 << 32, MOST]),
    dimension!(model.hidden_size, &[0, 1, 32, 64, 96, 1 << 20, 1 << 24, (1 << 24) + 32, 1 << 31, MOST]),
    dimension!(model.num_hidden_layers, &[0, 1, 3, 1 << 12, (1 << 12) + 1, 1 << 31, MOST]),
    dimension!(model.num_attention_heads, &[0, 1, 2, 3, 8, 1 << 24, 1 << 32, MOST]),
    dimension!(model.num_key_value_heads, &[0, 1, 2, 3, 1 << 24, 1 << 32, MOST]),
    dimension!(model.head_dim, &[0, 1, 2, 16, 31, 32, 1 << 24, 1 << 33, MOST - 1]),
    dimension!(model.intermediate_size, &[0, 1, 32, 128, 1 << 24, 1 << 31, 1 << 63, MOST]),
    dimension!(model.sequence_length, &[0, 1, 2, 63, 64, 1 << 14, 1 << 24, 1 << 31, MOST]),
    dimension!(batch.sequences as usize, &[0, 1, 2, 4, 8, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, MOST]),
    dimension!(batch.accumulation as usize, &[0, 1, 2, 3, 4, 1 << 31, MOST]),
    dimension!(budget.steps as u64, &[0, 1, 24, 1 << 31, 1 << 45, (1 << 45) + 1, 1 << 53, MOST]),
    dimension!(schedule.warmup_steps as u64, &[0, 1, 1 << 31, 1 << 53, MOST]),
    dimension!(schedule.decay_steps as u64, &[0, 1, 1 << 31, 1 << 53, MOST]),
    dimension!(evaluation.every_steps as u64, &[0, 1, 3, 4, 1 << 31, 1 << 53, MOST]),
    dimension!(evaluation.sequences as usize, &[0, 1, 8, 1 << 31, 1 << 40, MOST]),
    dimension!(logging.train_every_steps as u64, &[0, 1, 1 << 53, MOST]),
    dimension!(checkpoint.every_steps as u64, &[0, 1, 1 << 53, MOST]),
];

/// What a point changes: dimensions and their values.
pub type Point = Vec<(usize, u64)>;

/// Every pair of two dimensions' values, then `drawn` points in all dimensions, half of whose numbers stay as they are.
pub fn points(drawn: usize) -> Vec<Point> {
    let mut all = Vec::new();
    for (first, one) in DIMENSIONS.iter().enumerate() {
        for (second, other) in DIMENSIONS.iter().enumerate().skip(first + 1) {
            let pairs = one.values.iter().flat_map(|&left| other.values.iter().map(move |&right| vec![(first, left), (second, right)]));
            all.extend(pairs);
        }
    }
    // Knuth's 64-bit linear congruence; its upper bits.
    let mut state = 1_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for _ in 0..drawn {
        let mut point = Vec::new();
        for (dimension, Dimension { values, .. }) in DIMENSIONS.iter().enumerate() {
            let value = values[below(values.len())];
            if below(2) == 0 {
                point.push((dimension, value));
            }
        }
        all.push(point);
    }
    all
}

/// A point's text.
pub fn text(point: &Point) -> String {
    point.iter().map(|&(dimension, value)| format!("{}.{} {value}; ", DIMENSIONS[dimension].section, DIMENSIONS[dimension].key)).collect()
}
