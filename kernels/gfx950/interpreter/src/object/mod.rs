//! A code object as the compiler writes it: an ELF64 file with a loadable image, kernel descriptors and metadata.
//!
//! Reads what launching needs and refuses what the interpreter cannot honour (relocations, scratch, flushed denormals). It is not a linker.

mod elf;
mod metadata;

use crate::decode::{self, DecodeError, Instruction};

use elf::{Elf, Symbol};
pub use metadata::{Argument, Resources};

/// Why a code object cannot be read or launched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Not an ELF file of the expected kind, or cut short.
    #[error("not a gfx950 code object: {0}")]
    Format(String),
    /// No kernel of that name.
    #[error("the code object has no kernel {name}; it has: {}", .known.join(", "))]
    Kernel { name: String, known: Vec<String> },
    /// The kernel asks for something that is not modelled.
    #[error("kernel {name}: {what}")]
    Unsupported { name: String, what: String },
    /// An instruction is not known.
    #[error("kernel {name}: {source}")]
    Decode { name: String, source: DecodeError },
}

/// What a kernel's descriptor says of its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Bytes of LDS that the compiler laid out.
    pub lds: u32,
    /// Bytes of arguments.
    pub arguments: u32,
    /// Address of the first instruction.
    pub entry: u64,
    /// Scalar registers that are set before the first instruction.
    pub user_sgprs: u32,
    /// Position of the argument pointer among them, if it is there.
    pub argument_pointer: Option<u32>,
    /// Position of the dispatch packet's address among them, if it is there.
    pub dispatch_pointer: Option<u32>,
    /// Which workgroup numbers follow: x, y, z.
    pub group_ids: [bool; 3],
    /// Vector registers with work-item numbers: 0 x, 1 x and y, 2 all three (packed into v0, 10 bits each).
    pub item_ids: u32,
}

#[derive(Debug, Clone)]
pub struct Kernel {
    pub name: String,
    pub descriptor: Descriptor,
    /// Its instructions, in order of address.
    pub instructions: Vec<Instruction>,
    /// Registers, LDS and spills as the compiler's metadata has them.
    pub resources: Resources,
    /// Where in the file the first instruction lies: for tests that change the machine code.
    pub file_offset: usize,
}

impl Kernel {
    /// How many vector registers its waves have, those for accumulation beginning at 256.
    pub(crate) fn vector_registers(&self) -> usize {
        const ACCUMULATION: usize = 256;
        const TOGETHER: usize = 8;
        let all = self.resources.vgprs as usize;
        // Where nothing is said of accumulation, what lies beyond the others is for that.
        match (self.resources.agprs as usize).max(all.saturating_sub(ACCUMULATION)) {
            0 => all.clamp(1, ACCUMULATION).next_multiple_of(TOGETHER),
            count => ACCUMULATION + count.min(ACCUMULATION).next_multiple_of(TOGETHER),
        }
    }
}

/// Data of a code object that a host can ask for by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    pub name: String,
    /// What it holds when the code object is loaded.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct CodeObject {
    /// Its kernels, in order of name.
    pub kernels: Vec<Kernel>,
    /// Its initialised data, which no kernel reads by its address here (that instruction is not known).
    pub constants: Vec<Constant>,
}

impl CodeObject {
    /// Reads and decodes all kernels.
    pub fn parse(bytes: &[u8]) -> Result<Self, ObjectError> {
        let elf = Elf::parse(bytes)?;
        let all_resources = metadata::resources(elf.metadata()?)?;
        let symbols = elf.symbols()?;
        let (mut kernels, mut constants) = (Vec::new(), Vec::new());
        for symbol in &symbols {
            let Some(name) = symbol.name.strip_suffix(".kd") else {
                // What has no bytes in the file is not initialised (the compiler's __hip_cuid_ is such).
                if let (true, Ok(bytes)) = (symbol.is_data && symbol.size > 0, elf.image(symbol.address, symbol.size)) {
                    constants.push(Constant { name: symbol.name.to_owned(), bytes: bytes.to_vec() });
                }
                continue;
            };
            let resources = all_resources
                .iter()
                .find(|resources| resources.name == name)
                .cloned()
                .ok_or_else(|| ObjectError::Format(format!("no metadata for kernel {name}")))?;
            let descriptor = descriptor(&elf, name, symbol.address, &resources)?;
            let code = symbols.iter().find(|symbol| symbol.name == name);
            let code = code.ok_or_else(|| ObjectError::Format(format!("no code for kernel {name}")))?;
            let (instructions, file_offset) = (instructions(&elf, code)?, elf.file_offset(code.address)?);
            kernels.push(Kernel { name: name.to_owned(), descriptor, instructions, resources, file_offset });
        }
        kernels.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { kernels, constants })
    }

    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Result<&Kernel, ObjectError> {
        self.kernels.iter().find(|kernel| kernel.name == name).ok_or_else(|| ObjectError::Kernel {
            name: name.to_owned(),
            known: self.kernels.iter().map(|kernel| kernel.name.clone()).collect(),
        })
    }
}

fn instructions(elf: &Elf<'_>, code: &Symbol<'_>) -> Result<Vec<Instruction>, ObjectError> {
    let bytes = elf.image(code.address, code.size)?;
    let words: Vec<u32> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let mut instructions = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let address = code.address.wrapping_add(4 * at as u64);
        let instruction =
            decode::decode(address, &words[at..]).map_err(|source| ObjectError::Decode { name: code.name.to_owned(), source })?;
        at += usize::from(instruction.size) / 4;
        instructions.push(instruction);
    }
    Ok(instructions)
}

/// The 64-byte kernel descriptor of code object version 5 (LLVM's AMDGPU usage guide, "Kernel Descriptor").
fn descriptor(elf: &Elf<'_>, name: &str, address: u64, resources: &Resources) -> Result<Descriptor, ObjectError> {
    let bytes = elf.image(address, 64)?;
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let refuse = |what: String| Err(ObjectError::Unsupported { name: name.to_owned(), what });
    if u32_at(4) != 0 || resources.private_segment_fixed_size != 0 {
        return refuse(format!("it uses {} bytes of scratch memory, which is not modelled", u32_at(4)));
    }
    let (rsrc1, rsrc2, properties) = (u32_at(48), u32_at(52), u32_at(56));
    // Float mode: round to nearest even everywhere, denormals kept everywhere (all four bits set).
    let float_mode = (rsrc1 >> 12) & 0xFF;
    if float_mode != 0xF0 {
        return refuse(format!("float mode {float_mode:#x} is not modelled: only nearest-even with denormals (0xf0) is"));
    }
    if properties >> 16 != 0 {
        return refuse("it wants arguments preloaded into registers, which is not modelled".to_owned());
    }
    // User registers in this order, each if its bit is set.
    const SIZES: [(u32, u32); 7] = [(0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1)];
    const DISPATCH_POINTER: u32 = 1;
    const ARGUMENT_POINTER: u32 = 3;
    let mut position = 0;
    let (mut argument_pointer, mut dispatch_pointer) = (None, None);
    for (bit, size) in SIZES {
        if properties >> bit & 1 == 1 {
            match bit {
                ARGUMENT_POINTER => argument_pointer = Some(position),
                DISPATCH_POINTER => dispatch_pointer = Some(position),
                _ => return refuse(format!("it wants user registers that are not modelled (property bit {bit})")),
            }
            position += size;
        }
    }
    let entry = i64::from(u32_at(16)) | (i64::from(u32_at(20)) << 32);
    Ok(Descriptor {
        lds: u32_at(0),
        arguments: u32_at(8),
        entry: address.wrapping_add_signed(entry),
        user_sgprs: (rsrc2 >> 1) & 31,
        argument_pointer,
        dispatch_pointer,
        group_ids: [rsrc2 >> 7 & 1 == 1, rsrc2 >> 8 & 1 == 1, rsrc2 >> 9 & 1 == 1],
        item_ids: (rsrc2 >> 11) & 3,
    })
}
