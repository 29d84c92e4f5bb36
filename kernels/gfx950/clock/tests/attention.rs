//! attention_32x32.hip on the model.

use gfx950_clock::attention::{Model, Shape, line};

use crate::tools::compiled;

/// The share of the peak that each kernel reaches with Llama 3.1-8B's heads and sequences of 8192; and that the backward pass, both kernels
/// together, reaches half of it with the five products that a gradient needs, not the seven that are made.
#[test]
fn half_of_the_peak_at_8192() {
    let Some(object) = compiled("attention_32x32.hip") else { return };
    let shape: Shape = "8192x32x8x2".parse().unwrap();
    let (mut clocks, mut ideal) = (0, 0.0);
    for kernel in &object.kernels {
        let attention = Model::new(&object, kernel).unwrap().attention(shape);
        let line = line(&kernel.name, shape, &attention);
        println!("{line}");
        assert!(line.contains("clocks modelled") && line.contains("8192x32x8x2"), "{line}");
        assert!(attention.share_of_peak >= 0.5 && attention.share_of_peak < 1.0 && attention.conflicts == [0.0; 2], "{line}");
        if kernel.name != "attention_forward" {
            clocks += attention.clocks;
            ideal = 5.0 / attention.products as f64 * attention.share_of_peak * attention.clocks as f64;
        }
    }
    let share = ideal / clocks as f64;
    println!("backward: {clocks} clocks modelled, {:.0} % of the BF16 peak for five products", 100.0 * share);
    assert!(share >= 0.5, "{share}");
}

/// Four sequences of 4096: no sequence begins with long blocks while units of the one before run out of work.
#[test]
fn shorter_sequences_reach_half_of_the_peak() {
    let Some(object) = compiled("attention_32x32.hip") else { return };
    let shape: Shape = "4096x32x8x4".parse().unwrap();
    for kernel in &object.kernels {
        let attention = Model::new(&object, kernel).unwrap().attention(shape);
        println!("{}", line(&kernel.name, shape, &attention));
        assert!(attention.share_of_peak >= 0.5, "{}: {attention:?}", kernel.name);
    }
}

/// What is taken from two workgroups holds for a third one.
#[test]
fn tiles_are_alike() {
    let Some(object) = compiled("attention_32x32.hip") else { return };
    for kernel in &object.kernels {
        let [executed, extrapolated] = Model::new(&object, kernel).unwrap().longest().unwrap();
        println!("{}: {executed} executed, {extrapolated} extrapolated", kernel.name);
        assert!((executed - extrapolated).abs() <= 0.02 * executed, "{}: {executed} executed, {extrapolated} extrapolated", kernel.name);
    }
}

/// Twice the sequences take twice as long, and half as long ones more than a quarter.
#[test]
fn clocks_grow_with_the_work() {
    let Some(object) = compiled("attention_32x32.hip") else { return };
    let model = Model::new(&object, object.kernel("attention_forward").unwrap()).unwrap();
    let clocks = |text: &str| model.attention(text.parse().unwrap()).clocks as f64;
    let (one, twice, half) = (clocks("8192x32x8x1"), clocks("8192x32x8x2"), clocks("4096x32x8x1"));
    assert!(twice > 1.9 * one && twice <= 2.0 * one && half > 0.25 * one && half < 0.35 * one, "{half}, {one}, {twice}");
}

#[test]
fn what_is_no_attention_is_refused() {
    assert!("8192x32".parse::<Shape>().is_err() && "8192x32x5x1".parse::<Shape>().is_err() && "0x1x1x1".parse::<Shape>().is_err());
    let Some(object) = compiled("gemm.hip") else { return };
    let said = Model::new(&object, object.kernel("mxfp4_gemm_sum").unwrap()).unwrap_err().to_string();
    assert!(said.contains("mxfp4_gemm_sum is no attention"), "{said}");
}
