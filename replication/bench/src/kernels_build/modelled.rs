//! What the clock model says of the products that the manifest lists, and whether it is within their budgets.

use gfx950_clock::ClockError;
use gfx950_clock::product::{Gemm, line};
use gfx950_interpreter::object::CodeObject;
use study::code_objects::Modelled;

use super::manifest::Source;

/// Every product of one source that has a budget of clocks.
pub(super) fn products(source: &Source, object: &CodeObject) -> Result<Vec<Modelled>, ClockError> {
    let mut found = Vec::new();
    for kernel in &object.kernels {
        let Some(budget) = source.kernels.get(&kernel.name).filter(|budget| !budget.clocks.is_empty()) else { continue };
        let mut gemm = Gemm::new(kernel)?;
        for (text, &at_most) in &budget.clocks {
            let shape = text.parse()?;
            let product = gemm.product(shape)?;
            found.push(Modelled {
                kernel: kernel.name.clone(),
                shape: text.clone(),
                modelled_clocks: product.clocks,
                at_most,
                line: line(&kernel.name, shape, &product),
            });
        }
    }
    Ok(found)
}

/// Every product that takes more clocks than its budget.
pub(super) fn problems(products: &[Modelled]) -> Vec<String> {
    let slow = products.iter().filter(|product| product.modelled_clocks > product.at_most);
    slow.map(|Modelled { kernel, shape, modelled_clocks, at_most, .. }| {
        format!("{kernel} {shape}: {modelled_clocks} clocks modelled, at most {at_most} are allowed")
    })
    .collect()
}
