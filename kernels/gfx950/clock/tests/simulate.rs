//! The model's parts, each against clocks that were counted by hand from `machine`.

use gfx950_clock::{ClockError, Estimate, simulate};
use gfx950_interpreter::trace::{Access, Trace};

use crate::tools::assembled;

const CADENCE: u64 = 4;

/// Waves that execute the text once each; accesses of the instructions that have some.
fn run(text: &str, waves: usize, access: impl Fn(usize, usize) -> Option<Access>) -> Option<Estimate> {
    let instructions = assembled(text);
    if instructions.is_empty() {
        return None;
    }
    let mut trace = Trace { waves: vec![(0..instructions.len() as u32).collect(); waves], ..Trace::default() };
    for (wave, at) in (0..waves).flat_map(|wave| (0..instructions.len()).map(move |at| (wave, at))) {
        if let Some(access) = access(wave, at) {
            trace.accesses.insert((wave, at), vec![access]);
        }
    }
    Some(simulate(&instructions, &[&trace]).unwrap())
}

fn access(bytes: usize, of: impl Fn(u64) -> u64) -> Access {
    Access { bytes, lanes: std::array::from_fn(|lane| Some(of(lane as u64))) }
}

#[test]
fn two_waves_of_a_simd_share_its_vector_unit_and_four_simds_do_not() {
    let text = "v_add_u32 v1, v2, v3\n".repeat(100);
    let Some(one) = run(&text, 1, |_, _| None) else { return };
    assert_eq!(one.clocks, 100 * CADENCE);
    assert_eq!(run(&text, 4, |_, _| None).unwrap().clocks, one.clocks);
    assert!(run(&text, 8, |_, _| None).unwrap().clocks >= 2 * one.clocks);
}

/// Sixteen bytes a lane take 8 clocks of the port, as often as a bank is wanted.
#[test]
fn bank_conflicts_keep_the_port() {
    let text = "ds_read_b128 v[4:7], v0\n".repeat(14) + "s_waitcnt lgkmcnt(0)\n";
    let read = |stride: u64| run(&text, 4, move |_, at| (at < 14).then(|| access(16, |lane| stride * lane)));
    let Some(free) = read(16) else { return };
    let bound = 4 * 14 * 8;
    assert!((bound..bound + 200).contains(&free.clocks), "{free:?}");
    let eight_ways = read(128).unwrap();
    assert!(eight_ways.clocks >= 8 * bound && eight_ways.phases[0].busiest().1 == "LDS port", "{eight_ways:?}");
    assert_eq!(free.phases[0].usage.conflicts, [0, 0]);
    assert_eq!(eight_ways.phases[0].usage.conflicts[0], 7 * bound);
}

#[test]
fn a_counted_wait_goes_on_before_the_youngest_load() {
    let loads = "buffer_load_dwordx4 v[4:7], v0, s[4:7], 0 offen\n".repeat(16);
    let clocks = |wait: &str| {
        let estimate = run(&(loads.clone() + wait), 1, |_, at| (at < 16).then(|| access(16, |lane| 16 * lane)))?;
        Some(estimate.clocks)
    };
    let Some(all) = clocks("s_waitcnt vmcnt(0)\n") else { return };
    // 16 clocks of the address unit each.
    assert_eq!(all - clocks("s_waitcnt vmcnt(8)\n").unwrap(), 8 * 16);
    assert!(all > gfx950_clock::machine::MEMORY_LATENCY);
    assert!(clocks("s_nop 0\n").unwrap() < all - gfx950_clock::machine::MEMORY_LATENCY);
}

#[test]
fn a_barrier_waits_for_the_slowest_wave_and_a_wave_that_never_comes_is_an_error() {
    let instructions = assembled("v_exp_f32 v1, v1\ns_barrier\nv_add_u32 v1, v2, v3\n");
    if instructions.is_empty() {
        return;
    }
    let slow: Vec<u32> = [vec![0; 50], vec![1, 2]].concat();
    let trace = Trace { waves: vec![slow, vec![1, 2], vec![1, 2]], ..Trace::default() };
    let found = simulate(&instructions, &[&trace]).unwrap();
    assert!((50 * 16..50 * 16 + 40).contains(&found.clocks), "{found:?}");
    assert_eq!(found.phases[0].longest_wait().1, "the barrier");
    let beyond = Trace { waves: vec![vec![3]], ..Trace::default() };
    assert!(matches!(simulate(&instructions, &[&beyond]), Err(ClockError::Position { position: 3, count: 3 })));
}
