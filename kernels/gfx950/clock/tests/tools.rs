//! LLVM 22's assembler, compiler and llvm-mca, where they are.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gfx950_interpreter::decode::{Instruction, decode};
use gfx950_interpreter::object::CodeObject;

/// A program of LLVM 22: its variable in the environment, or on the path. None where it does not run, which CI does not allow.
fn tool(variable: &str, name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map_or_else(|| PathBuf::from(name), PathBuf::from);
    if Command::new(&path).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Some(path);
    }
    assert!(std::env::var_os("REQUIRE_CLANG_22").is_none(), "{} is required here and does not run", path.display());
    eprintln!("skipped: {} does not run; apt-get install clang-22 lld-22 llvm-22, or set {variable}", path.display());
    None
}

fn output_of(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Cycles that llvm-mca says of a loop that runs so often.
pub(crate) fn mca(text: &str, iterations: usize) -> Option<u64> {
    let mut command = Command::new(tool("LLVM_MCA_22", "llvm-mca-22")?);
    command.args(["-mtriple=amdgcn", "-mcpu=gfx950", &format!("-iterations={iterations}")]);
    let output = output_of(&mut command, text);
    let cycles = output.lines().find_map(|line| line.strip_prefix("Total Cycles:")).unwrap();
    Some(cycles.trim().parse().unwrap())
}

/// Assembly as the decoder reads it; empty where there is no assembler.
pub(crate) fn assembled(text: &str) -> Vec<Instruction> {
    let Some(mc) = tool("LLVM_MC_22", "llvm-mc-22") else { return Vec::new() };
    let output = output_of(Command::new(mc).args(["-triple=amdgcn", "-mcpu=gfx950", "-show-encoding"]), text);
    let bytes = |line: &str| -> Option<Vec<u8>> {
        let inside = line.split_once("encoding: [")?.1.split_once(']')?.0;
        Some(inside.split(',').map(|byte| u8::from_str_radix(byte.trim().trim_start_matches("0x"), 16).unwrap()).collect())
    };
    let mut address = 0;
    let mut instructions = Vec::new();
    for bytes in output.lines().filter_map(bytes) {
        let words: Vec<u32> = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        instructions.push(decode(address, &words).unwrap());
        address += bytes.len() as u64;
    }
    instructions
}

/// gemm.hip as [`compiled`].
pub(crate) fn gemm() -> Option<CodeObject> {
    compiled("gemm.hip")
}

/// A source with the manifest's flags; None where there is no compiler.
pub(crate) fn compiled(file: &str) -> Option<CodeObject> {
    let clang = tool("CLANG_22", "clang++-22")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = std::fs::read_to_string(folder.join("kernels.yaml")).unwrap();
    let flags = manifest.split_once("flags: [").unwrap().1.split_once(']').unwrap().0;
    let flags = flags.split(',').map(str::trim);
    let out = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(clang).args(flags).arg(folder.join(file)).arg("-o").arg(out.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(CodeObject::parse(&std::fs::read(out.path()).unwrap()).unwrap())
}
