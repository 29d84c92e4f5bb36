//! How well a form predicts what it was not fitted to: the last quarter of the budget, and each size in turn.

use super::curves::Size;
use super::{BaseFit, Errors, Recipe};
use scaling_law::{Base, Form, Law, Point, law, recipe};

/// Root of the mean square.
fn root(squares: &[f64]) -> f64 {
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

/// The baseline's law in every form.
pub(super) fn bases(sizes: &[Size]) -> Vec<BaseFit> {
    let points: Vec<Point> = sizes.iter().flat_map(|size| size.points(false)).collect();
    let early: Vec<Point> = sizes.iter().flat_map(|size| size.points(true)).collect();
    let miss = |law: &Law, points: &mut dyn Iterator<Item = Point>| -> Vec<f64> {
        points.map(|point| (law.loss(point.place) - point.value.exp()).powi(2)).collect()
    };
    let one = |base: &Base| {
        let whole = law(&points, *base, sizes.len())?.law;
        let before = law(&early, *base, sizes.len())?.law;
        let last: Vec<Point> = points.iter().filter(|point| !early.contains(point)).copied().collect();
        // Without one of three sizes two are left, and their law has alpha from elsewhere; without one of two nothing is known of size.
        let mut squares = Vec::new();
        for out in sizes.iter().filter(|_| sizes.len() > 2) {
            let others: Vec<Point> =
                sizes.iter().filter(|size| size.parameters != out.parameters).flat_map(|size| size.points(false)).collect();
            let found = law(&others, *base, sizes.len() - 1)?.law;
            squares.extend(miss(&found, &mut out.points(false)));
        }
        let errors = Errors {
            fitted: root(&miss(&whole, &mut points.iter().copied())),
            later: root(&miss(&before, &mut last.into_iter())),
            size: (!squares.is_empty()).then(|| root(&squares)),
        };
        Some(BaseFit { base: *base, law: whole, errors })
    };
    Base::ALL.iter().filter_map(one).collect()
}

/// A recipe's points on some sizes: what `law` says of the baseline plus the measured difference.
pub(super) fn points(sizes: &[&Size], law: &Law, arm: &str, early: bool) -> Vec<Point> {
    let of = |size: &&Size| -> Vec<Point> {
        let Some((curve, _)) = size.arms.get(arm) else { return Vec::new() };
        let all = size.places.iter().zip(curve).zip(&size.late).filter(|(_, late)| !(early && **late));
        all.map(|((place, value), _)| Point { place: *place, value: law.loss(*place).ln() + value }).collect()
    };
    sizes.iter().flat_map(of).collect()
}

/// Errors of one form of one recipe, the baseline's law being known.
pub(super) fn recipe_errors(sizes: &[&Size], law: &Law, arm: &str, form: Form) -> Errors {
    let all = points(sizes, law, arm, false);
    let early = points(sizes, law, arm, true);
    let miss = |numbers: &[f64], points: &[Point]| -> Vec<f64> {
        points.iter().map(|point| (form.value(law, point.place, numbers).0.exp() - point.value.exp()).powi(2)).collect()
    };
    let last: Vec<Point> = all.iter().filter(|point| !early.contains(point)).copied().collect();
    let mut squares = Vec::new();
    for out in sizes.iter().filter(|_| sizes.len() > 1) {
        let others: Vec<&Size> = sizes.iter().copied().filter(|size| size.parameters != out.parameters).collect();
        let numbers = recipe(&points(&others, law, arm, false), law, form);
        squares.extend(miss(&numbers, &points(&[out], law, arm, false)));
    }
    Errors {
        fitted: root(&miss(&recipe(&all, law, form), &all)),
        later: root(&miss(&recipe(&early, law, form), &last)),
        size: (!squares.is_empty()).then(|| root(&squares)),
    }
}

/// Each form over the recipes on more than one size, each recipe weighing the same.
pub(super) fn over_recipes(recipes: &[Recipe]) -> Vec<(Form, Errors)> {
    let of = |form: Form| {
        let errors: Vec<&Errors> =
            recipes.iter().filter(|recipe| recipe.parameters.len() > 1).filter_map(|recipe| Some(&recipe.form(form)?.errors)).collect();
        let over = |number: &dyn Fn(&Errors) -> f64| root(&errors.iter().map(|errors| number(errors).powi(2)).collect::<Vec<_>>());
        let size = over(&|errors| errors.size.unwrap_or(0.0));
        (
            form,
            Errors {
                fitted: over(&|errors| errors.fitted),
                later: over(&|errors| errors.later),
                size: (!errors.is_empty()).then_some(size),
            },
        )
    };
    Form::ALL.into_iter().map(of).collect()
}
