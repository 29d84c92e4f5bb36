//! quantise.hip on the model, and streams counted by hand.

use gfx950_clock::machine::{LAUNCH, MEMORY_BYTES, MEMORY_LATENCY, UNITS};
use gfx950_clock::quantise::{Matrix, Quantise, line};
use gfx950_clock::simulate_stream;
use gfx950_interpreter::trace::{Access, Trace};

use crate::tools::{assembled, compiled};

/// Four waves that each load 16 KiB, no two the same, and wait for it.
fn loading() -> Option<(Vec<gfx950_interpreter::decode::Instruction>, Trace)> {
    let instructions = assembled(&("buffer_load_dwordx4 v[4:7], v0, s[4:7], 0 offen\n".repeat(16) + "s_waitcnt vmcnt(0)\n"));
    if instructions.is_empty() {
        return None;
    }
    let mut trace = Trace { waves: vec![(0..17).collect(); 4], ..Trace::default() };
    for (wave, at) in (0..4).flat_map(|wave| (0..16).map(move |at| (wave, at))) {
        let lanes = std::array::from_fn(|lane| Some((wave * 16 + at) as u64 * 1024 + 16 * lane as u64));
        trace.accesses.insert((wave, at), vec![Access { bytes: 16, lanes }]);
    }
    Some((instructions, trace))
}

/// 64 KiB a workgroup: one at a time pays latency and launch each time, four at once have memory busy nearly all the time.
#[test]
fn a_stream_is_as_fast_as_its_share_of_memory_and_no_faster() {
    let Some((instructions, trace)) = loading() else { return };
    let bytes = 64 * 1024 * UNITS / MEMORY_BYTES;
    let clocks = |workgroups, together| simulate_stream(&instructions, &trace, workgroups, together).unwrap().clocks;
    let alone = clocks(8, 1);
    let apart = 8 * (bytes + MEMORY_LATENCY) + 7 * LAUNCH;
    assert!(alone.abs_diff(apart) * 20 < apart, "{alone} for {apart}");
    let together = clocks(32, 4);
    assert!((32 * bytes..33 * bytes + MEMORY_LATENCY).contains(&together), "{together} for {}", 32 * bytes);
}

/// Three quarters of what memory moves, at least, for what a layer of Llama 3.1-8B quantises, with the tile that the host chooses: the lower one
/// where a unit has fewer than eight of the others.
#[test]
fn rows_and_columns_from_one_read_take_three_quarters_of_memory() {
    let Some(object) = compiled("quantise.hip") else { return };
    let models = ["mxfp4_quantise", "mxfp4_quantise_64x128"].map(|name| (name, Quantise::new(object.kernel(name).unwrap()).unwrap()));
    let sizes = ["4096x4096", "6144x4096", "4096x14336", "16384x4096", "16384x6144", "28672x4096", "16384x14336", "16384x28672"];
    for text in sizes {
        let matrix: Matrix = text.parse().unwrap();
        let (name, model) = &models[usize::from(matrix.rows * matrix.k / (128 * 128) < 8 * 256)];
        let quantised = model.matrix(matrix).unwrap();
        let line = line(name, matrix, &quantised);
        println!("{line}");
        assert!(quantised.share_of_memory >= 0.75 && quantised.share_of_memory <= 1.0, "{line}");
        assert!(line.contains("clocks modelled") && line.contains(text), "{line}");
    }
}

#[test]
fn what_is_no_matrix_is_refused() {
    assert!("256".parse::<Matrix>().is_err() && "0x1".parse::<Matrix>().is_err() && "1x2x3".parse::<Matrix>().is_err());
    let Some(object) = compiled("quantise.hip") else { return };
    let said = Quantise::new(object.kernel("mxfp4_quantise_square").unwrap()).unwrap_err().to_string();
    assert!(said.contains("mxfp4_quantise_square has no modelled clocks of matrices"), "{said}");
}
