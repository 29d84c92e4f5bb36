//! Fuzz target; see ../targets.rs.
#![no_main]

#[allow(dead_code)] // each target uses one
#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = targets::lines(data);
});
