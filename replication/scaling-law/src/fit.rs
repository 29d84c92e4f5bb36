//! Least squares with Huber's loss, by Levenberg and Marquardt's method with weights renewed at each step; and the two fits made of it.

use crate::forms::{A, ALPHA, B, BETA, Base, E, Form, GAMMA, Law, Place};

/// Beyond this distance in ln-loss a point pulls no harder (Hoffmann et al. 2022 use the same).
const HUBER: f64 = 1e-3;
/// The exponent of size where two sizes cannot tell it: that of the fit by Besiroglu et al. (arXiv 2404.10102) to Chinchilla's runs.
pub const ALPHA_OF_OTHERS: f64 = 0.348;
/// The same in the form without a floor: Kaplan et al. (arXiv 2001.08361) give alpha_N / alpha_D = 0.076 / 0.095.
const ALPHA_WITHOUT_FLOOR: f64 = 0.8;
/// Steps at most; a fit that is started near its end takes about five.
const STEPS: usize = 200;
/// A fit is done when a step changes no parameter by more.
const DONE: f64 = 1e-8;
/// Efficiencies and constants stay within these logarithms: beyond them data say nothing.
const REACH: f64 = 40.0;

/// A mean loss at one place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub place: Place,
    /// ln L.
    pub value: f64,
}

/// Sum of Huber's losses over points.
fn huber(residuals: impl Iterator<Item = f64>) -> f64 {
    residuals.map(|r| if r.abs() <= HUBER { r * r / 2.0 } else { HUBER * (r.abs() - HUBER / 2.0) }).sum()
}

/// A value at a place for some numbers, with its derivatives by them.
type Model<'a> = dyn Fn(Place, &[f64], &mut [f64]) -> f64 + 'a;

/// Minimises over `start`'s numbers; `model` gives a value and its derivatives at a point. Returns numbers and loss.
fn minimise(points: &[Point], start: &[f64], model: &Model) -> (Vec<f64>, f64) {
    let count = start.len();
    let mut numbers = start.to_vec();
    let mut slopes = vec![0.0; count];
    let cost = |numbers: &[f64], slopes: &mut [f64]| huber(points.iter().map(|point| point.value - model(point.place, numbers, slopes)));
    let mut best = cost(&numbers, &mut slopes);
    let mut damping = 1e-3;
    for _ in 0..STEPS {
        let (mut matrix, mut right) = (vec![vec![0.0; count]; count], vec![0.0; count]);
        for point in points {
            let residual = point.value - model(point.place, &numbers, &mut slopes);
            let weight = if residual.abs() <= HUBER { 1.0 } else { HUBER / residual.abs() };
            for i in 0..count {
                right[i] += weight * slopes[i] * residual;
                for j in 0..count {
                    matrix[i][j] += weight * slopes[i] * slopes[j];
                }
            }
        }
        let mut moved = f64::INFINITY;
        while damping < 1e12 {
            let mut damped = matrix.clone();
            for (i, row) in damped.iter_mut().enumerate() {
                row[i] += damping * row[i] + 1e-300;
            }
            let step = solve(damped, right.clone());
            let next: Vec<f64> = numbers.iter().zip(&step).map(|(number, by)| (number + by).clamp(-REACH, REACH)).collect();
            let found = cost(&next, &mut slopes);
            if found <= best {
                moved = next.iter().zip(&numbers).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                (numbers, best) = (next, found);
                damping = (damping / 5.0).max(1e-12);
                break;
            }
            damping *= 4.0;
        }
        if !(DONE..f64::INFINITY).contains(&moved) {
            break;
        }
    }
    (numbers, best)
}

/// Gauss's elimination with pivots; what is singular moves nothing.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    for column in 0..count {
        let pivot = (column..count).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs())).unwrap_or(column);
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        if matrix[column][column] == 0.0 {
            return vec![0.0; count];
        }
        for row in column + 1..count {
            let factor = matrix[row][column] / matrix[column][column];
            let (above, below) = matrix.split_at_mut(row);
            below[0][column..].iter_mut().zip(&above[column][column..]).for_each(|(entry, pivot)| *entry -= factor * pivot);
            right[row] -= factor * right[column];
        }
    }
    for row in (0..count).rev() {
        let known: f64 = (row + 1..count).map(|at| matrix[row][at] * right[at]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}

/// The baseline's law with the loss of its fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitted {
    pub law: Law,
    pub cost: f64,
}

/// Constants that stay as they are: gamma or E and beta by the form, alpha with fewer than three sizes.
fn held(base: Base, sizes: usize) -> Vec<usize> {
    let mut held = match base {
        Base::Additive => vec![GAMMA],
        Base::Joint => vec![],
        Base::NoFloor => vec![E, BETA],
    };
    held.extend((sizes < 3).then_some(ALPHA));
    held
}

/// Fits the baseline's law from one start.
pub fn law_from(points: &[Point], base: Base, sizes: usize, start: Law) -> Fitted {
    let held = held(base, sizes);
    let free: Vec<usize> = (0..6).filter(|at| !held.contains(at)).collect();
    let with = |numbers: &[f64]| {
        let mut law = start;
        free.iter().zip(numbers).for_each(|(at, number)| law.constants[*at] = *number);
        law
    };
    let model = |place: Place, numbers: &[f64], slopes: &mut [f64]| {
        let found = with(numbers).slopes(place);
        free.iter().zip(slopes).for_each(|(at, slope)| *slope = found.by[*at]);
        found.value
    };
    let first: Vec<f64> = free.iter().map(|at| start.constants[*at]).collect();
    let (numbers, cost) = minimise(points, &first, &model);
    Fitted { law: with(&numbers), cost }
}

/// The additive law with another exponent of size, which stays.
pub fn law_at(points: &[Point], alpha: f64, start: Law) -> Law {
    let mut law = start;
    law.constants[ALPHA] = alpha.ln();
    law_from(points, Base::Additive, 0, law).law
}

/// The best of several starts.
pub fn law(points: &[Point], base: Base, sizes: usize) -> Option<Fitted> {
    let mut best: Option<Fitted> = None;
    for floor in [1.0, 1.8, 2.6] {
        for beta in [0.25, 0.5, 0.9] {
            for gamma in [0.4, 1.0] {
                let mut law = Law { constants: [floor, 0.5, ALPHA_OF_OTHERS, 0.5, beta, 1.0].map(f64::ln) };
                match base {
                    Base::Additive => {}
                    Base::Joint => law.constants[GAMMA] = f64::ln(gamma),
                    Base::NoFloor => {
                        let power = beta * gamma;
                        let term = 3.5f64.powf(power.recip()) / 2.0;
                        law.constants = [1e-9, term, ALPHA_WITHOUT_FLOOR, term, 1.0, power].map(f64::ln);
                    }
                }
                let found = law_from(points, base, sizes, law);
                best = best.filter(|best| best.cost <= found.cost || !found.cost.is_finite()).or(Some(found));
            }
        }
    }
    best.filter(|best| best.cost.is_finite() && best.law.constants[A].is_finite() && best.law.constants[B].is_finite())
}

/// The numbers of a recipe under `form`: ln eff_N, ln eff_D, or a gap in nats. `points` are the law's value plus the measured difference.
pub fn recipe(points: &[Point], law: &Law, form: Form) -> Vec<f64> {
    recipe_from(points, law, form, &vec![0.0; form.count()])
}

/// The same from a start near the end.
pub fn recipe_from(points: &[Point], law: &Law, form: Form, start: &[f64]) -> Vec<f64> {
    let model = |place: Place, numbers: &[f64], slopes: &mut [f64]| {
        let (value, found) = form.value(law, place, numbers);
        slopes.iter_mut().zip(found).for_each(|(slope, by)| *slope = by);
        value
    };
    if start.is_empty() { Vec::new() } else { minimise(points, start, &model).0 }
}
