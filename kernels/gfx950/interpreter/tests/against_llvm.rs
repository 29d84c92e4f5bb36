//! The decoder against LLVM's disassembler: mnemonic, operands and modifiers of every instruction of every kernel, as text; and of every
//! operation that the decoder knows, in the forms of `operations.s`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::common;
use gfx950_interpreter::decode::{Op, decode};
use gfx950_interpreter::object::CodeObject;

/// One line of llvm-objdump: address, text, words.
struct Line {
    address: u64,
    text: String,
    words: Vec<u32>,
}

/// `\tmnemonic operands // ADDRESS: WORD WORD <symbol+offset>`
fn line(text: &str) -> Option<Line> {
    let (instruction, comment) = text.strip_prefix('\t')?.rsplit_once("//")?;
    let (address, words) = comment.trim().split_once(':')?;
    Some(Line {
        address: u64::from_str_radix(address, 16).ok()?,
        text: instruction.split_whitespace().collect::<Vec<_>>().join(" "),
        words: words.split_whitespace().map_while(|word| u32::from_str_radix(word, 16).ok()).collect(),
    })
}

fn disassembly(file: &Path) -> Option<Vec<Line>> {
    let output = Command::new(common::objdump()?).args(["-d", "--mcpu=gfx950"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).lines().filter_map(line).collect())
}

/// What is printed differently, of all lines.
fn differences(lines: &[Line]) -> Vec<String> {
    let mut found = Vec::new();
    for line in lines {
        match decode(line.address, &line.words) {
            Ok(instruction) => {
                let text = instruction.to_string();
                if text.trim() != line.text || usize::from(instruction.size) != 4 * line.words.len() {
                    found.push(format!("{:#x}: LLVM: {}; here: {text}", line.address, line.text));
                }
            }
            Err(error) => found.push(format!("LLVM: {}; here: {error}", line.text)),
        }
    }
    found
}

#[test]
fn every_instruction_of_every_kernel_reads_as_llvm_reads_it() {
    let sources = common::build().sources;
    let Some(objects) = common::compile_all(&sources) else { return };
    for (source, bytes) in sources.iter().zip(objects) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let Some(lines) = disassembly(file.path()) else { return };
        let found = differences(&lines);
        assert!(found.is_empty(), "{} of {} differ in {}:\n{}", found.len(), lines.len(), source.label(), found.join("\n"));
        // What the interpreter executes is all there is: no instruction of a kernel is left out.
        let object = CodeObject::parse(&bytes).unwrap();
        let ours: BTreeSet<u64> = object.kernels.iter().flat_map(|kernel| kernel.instructions.iter().map(|i| i.address)).collect();
        let theirs: BTreeSet<u64> = lines.iter().map(|line| line.address).collect();
        assert!(ours.is_subset(&theirs), "addresses differ");
        let operations: BTreeSet<Op> = object.kernels.iter().flat_map(|kernel| kernel.instructions.iter().map(|i| i.op)).collect();
        println!("{}: {} instructions, {} operations", source.label(), ours.len(), operations.len());
    }
}

#[test]
fn every_known_operation_reads_as_llvm_reads_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operations.s");
    let Some(clang) = common::clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("operations.o");
    let arguments = ["-x", "assembler", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950", "-c"];
    let output = Command::new(clang).args(arguments).arg(&source).arg("-o").arg(&object).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Some(lines) = disassembly(&object) else { return };
    let text = std::fs::read_to_string(&source).unwrap();
    assert_eq!(lines.len(), text.lines().filter(|line| !line.starts_with("//") && !line.trim().is_empty()).count(), "lines");
    let found = differences(&lines);
    assert!(found.is_empty(), "{} of {} differ:\n{}", found.len(), lines.len(), found.join("\n"));
    let seen: BTreeSet<Op> = lines.iter().filter_map(|line| decode(line.address, &line.words).ok()).map(|i| i.op).collect();
    println!("{} forms of {} operations", lines.len(), seen.len());
}

/// The comparison can fail: one bit of an opcode, and of an operand.
#[test]
fn a_changed_bit_reads_otherwise() {
    let good = decode(0, &[0x8000_0504]).unwrap().to_string();
    assert_eq!(good, "s_add_u32 s0, s4, s5");
    for bit in 0..32 {
        let other = decode(0, &[0x8000_0504 ^ 1 << bit, 0]);
        assert!(other.map_or(true, |other| other.to_string() != good), "bit {bit}");
    }
    let unknown = decode(0x40, &[0xD3FF_0000, 0]).unwrap_err().to_string();
    assert_eq!(
        unknown,
        "at 0x40: unknown VOP3P opcode 0x7f (words [d3ff0000, 00000000]): add it to decode/op.rs, and its meaning to execute"
    );
}
