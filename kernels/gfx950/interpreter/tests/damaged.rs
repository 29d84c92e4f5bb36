//! Damaged code objects: whatever bytes come, the answer is an error or a result, never a panic; and most single changed bits show.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use crate::common::{Arguments, Random, compile};
use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;
use gfx950_interpreter::traced;
use gfx950_interpreter::{Launch, Order, launch};

#[test]
fn a_cut_or_changed_file_is_refused_or_read_but_never_a_panic() {
    let Some(good) = compile("gemm.hip", &[]) else { return };
    for length in (0..good.len()).step_by(97) {
        let _ = CodeObject::parse(&good[..length]);
    }
    let mut random = Random(1);
    for _ in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..4 {
            // Headers and tables are where damage is worst.
            let limit = if random.below(2) == 0 { 4096 } else { bytes.len() as u32 };
            let at = random.below(limit) as usize;
            bytes[at] = random.next() as u8;
        }
        let _ = CodeObject::parse(&bytes);
    }
    let said = CodeObject::parse(b"#!/bin/sh").unwrap_err().to_string();
    assert_eq!(said, "not a gfx950 code object: it is no little-endian ELF64 file");
    let mut other = good.clone();
    other[48] = 0x4C; // gfx942
    assert!(CodeObject::parse(&other).unwrap_err().to_string().contains("--offload-arch=gfx950"));
    let said = CodeObject::parse(&good).unwrap().kernel("gemm").unwrap_err().to_string();
    assert!(said.contains("no kernel gemm") && said.contains("mxfp4_gemm_64x64"), "{said}");
}

/// Launches the smallest GEMM on small integers; D's bytes, or what went wrong.
fn product(object: &CodeObject) -> Result<Vec<u8>, String> {
    launched(object, |memory, request, d| {
        launch(memory, request).map_err(|error| error.to_string())?;
        memory.bytes(d).map(<[u8]>::to_vec)
    })
}

/// Does `work` with that launch and D.
fn launched<R>(object: &CodeObject, work: impl FnOnce(&mut Memory, &Launch<'_>, Address) -> Result<R, String>) -> Result<R, String> {
    let (m, n, k) = (80u32, 64u32, 320u32);
    let mut random = Random(2);
    let mut memory = Memory::new();
    let mut arguments = Arguments::default();
    for rows in [m, n] {
        let codes: Vec<u8> = (0..rows * k / 2).map(|_| random.next() as u8).collect();
        let scales: Vec<u8> = (0..rows * k / 32).map(|_| (125 + random.below(4)) as u8).collect();
        arguments = arguments.address(Some(memory.input("codes", &codes))).address(Some(memory.input("scales", &scales)));
    }
    let d = memory.output("D", (2 * m * n) as usize);
    let arguments = arguments.address(Some(d)).address(None).u32(m).u32(n).u32(k).u32(0).u32(2).f32(1.0);
    let kernel = object.kernel("mxfp4_gemm_64x64").map_err(|error| error.to_string())?;
    let request = Launch { kernel, grid: [2, 1, 1], threads: 256, dynamic_lds: 0, arguments: &arguments.0, order: Order::Serial };
    work(&mut memory, &request, d)
}

/// Single bits of the machine code that the launch reaches, changed one at a time. A change that does not show lies in a bit that means nothing
/// there, or makes the code longer in doing the same.
#[test]
fn most_single_changed_bits_of_a_kernel_show() {
    let Some(good) = compile("gemm.hip", &[]) else { return };
    let object = CodeObject::parse(&good).unwrap();
    let kernel = object.kernel("mxfp4_gemm_64x64").unwrap();
    let expected = product(&object).unwrap();
    let executed =
        |group: u32| launched(&object, |memory, request, _| traced(memory, request, [group, 0, 0]).map_err(|error| error.to_string()));
    let reached: BTreeSet<u32> = (0..2).flat_map(|group| executed(group).unwrap().waves.concat()).collect();
    let (reached, start) = (Vec::from_iter(reached), kernel.instructions[0].address);
    let mut random = Random(3);
    let (turns, mut refused, mut faulted, mut wrong) = (250, 0, 0, 0);
    for _ in 0..turns {
        let mut changed = good.clone();
        let instruction = &kernel.instructions[reached[random.below(reached.len() as u32) as usize] as usize];
        let at = (instruction.address - start) as usize + random.below(u32::from(instruction.size)) as usize;
        let bit = random.below(8);
        changed[kernel.file_offset + at] ^= 1 << bit;
        match CodeObject::parse(&changed) {
            Err(_) => refused += 1,
            Ok(object) => match product(&object) {
                Err(_) => faulted += 1,
                Ok(d) => wrong += u32::from(d != expected),
            },
        }
    }
    println!("of {turns} changed bits {refused} are refused, {faulted} fault, {wrong} give another product");
    assert!(2 * (refused + faulted + wrong) > turns, "{refused} + {faulted} + {wrong} of {turns}");
}
