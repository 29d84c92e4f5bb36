//! What the clock model says of the products, matrices and attention that the manifest lists, and whether it is within their budgets.

use gfx950_clock::ClockError;
use gfx950_clock::attention::{self, Model};
use gfx950_clock::product::{self, Gemm};
use gfx950_clock::quantise::{self, Quantise};
use gfx950_interpreter::object::{CodeObject, Kernel};
use rayon::prelude::*;
use study::code_objects::Modelled;

use super::manifest::{Budget, Source};

/// Every product, matrix or shape of attention of one source that has a budget of clocks. Kernels share nothing: all cores play them.
pub(super) fn modelled(source: &Source, object: &CodeObject) -> Result<Vec<Modelled>, ClockError> {
    let of_kernel = |kernel: &Kernel| {
        let Some(budget) = source.kernels.get(&kernel.name).filter(|budget| !budget.clocks.is_empty()) else { return Ok(Vec::new()) };
        if kernel.name.starts_with("mxfp4_quantise") {
            let model = Quantise::new(kernel)?;
            each(kernel, budget, |text| {
                let matrix = text.parse()?;
                let quantised = model.matrix(matrix)?;
                Ok((quantised.clocks, quantise::line(&kernel.name, matrix, &quantised)))
            })
        } else if kernel.name.starts_with("attention") {
            let model = Model::new(object, kernel)?;
            each(kernel, budget, |text| {
                let shape = text.parse()?;
                let attention = model.attention(shape);
                Ok((attention.clocks, attention::line(&kernel.name, shape, &attention)))
            })
        } else {
            let mut gemm = Gemm::new(kernel)?;
            each(kernel, budget, |text| {
                let shape = text.parse()?;
                let product = gemm.product(shape)?;
                Ok((product.clocks, product::line(&kernel.name, shape, &product)))
            })
        }
    };
    let found = object.kernels.par_iter().map(of_kernel).collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// `play`: clocks of what that text names, and the line that says them.
fn each(
    kernel: &Kernel,
    budget: &Budget,
    mut play: impl FnMut(&str) -> Result<(u64, String), ClockError>,
) -> Result<Vec<Modelled>, ClockError> {
    let one = |(text, &at_most): (&String, &u64)| {
        let (modelled_clocks, line) = play(text)?;
        Ok(Modelled { kernel: kernel.name.clone(), shape: text.clone(), modelled_clocks, at_most, line })
    };
    budget.clocks.iter().map(one).collect()
}

/// Everything that takes more clocks than its budget.
pub(super) fn problems(modelled: &[Modelled]) -> Vec<String> {
    let slow = modelled.iter().filter(|one| one.modelled_clocks > one.at_most);
    slow.map(|Modelled { kernel, shape, modelled_clocks, at_most, .. }| {
        format!("{kernel} {shape}: {modelled_clocks} clocks modelled, at most {at_most} are allowed")
    })
    .collect()
}
