//! The products of gemm.hip on the model.

use gfx950_clock::product::{Gemm, Shape, line};

use crate::tools::gemm;

/// A product is its workgroups' turns: the estimate from two short runs is what a whole run of the longer k takes.
#[test]
fn steps_are_alike() {
    let Some(object) = gemm() else { return };
    let mut model = Gemm::new(object.kernel("mxfp4_gemm_128x128").unwrap()).unwrap();
    let shape = Shape { m: 128, n: 128, k: 16 * 256 };
    let extrapolated = model.product(shape).unwrap();
    let executed = model.whole(shape.k).unwrap();
    let apart = extrapolated.clocks.abs_diff(executed.clocks);
    assert!(apart * 50 <= executed.clocks, "{extrapolated:?}, executed {}", executed.clocks);
}

#[test]
fn what_is_printed_says_that_it_is_modelled() {
    let Some(object) = gemm() else { return };
    let kernel = object.kernel("mxfp4_gemm_64x64").unwrap();
    let mut model = Gemm::new(kernel).unwrap();
    let shape: Shape = "256x512x2048".parse().unwrap();
    let product = model.product(shape).unwrap();
    let text = line(&kernel.name, shape, &product);
    assert!(text.contains("clocks modelled") && text.contains("256x512x2048"), "{text}");
    assert!(product.share_of_peak > 0.0 && product.share_of_peak < 1.0, "{text}");
}

#[test]
fn what_is_no_product_is_refused() {
    assert!("256x512".parse::<Shape>().is_err() && "0x1x1".parse::<Shape>().is_err() && "1x2x3x4".parse::<Shape>().is_err());
    let Some(object) = gemm() else { return };
    let said = Gemm::new(object.kernel("mxfp4_gemm_sum").unwrap()).unwrap_err().to_string();
    assert!(said.contains("mxfp4_gemm_sum is no product of tiles"), "{said}");
}
