//! What a code object needs of its ELF64 file: the memory image, symbols, the metadata note.

use object::LittleEndian;
use object::elf::{EM_AMDGPU, FileHeader64, NoteType, PT_LOAD, ProgramHeader64, SHT_SYMTAB, STT_OBJECT};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};

use super::ObjectError;

/// e_flags: the low byte names the processor.
const GFX950: u32 = 0x4F;
/// `NT_AMDGPU_METADATA`.
const METADATA: NoteType = NoteType(32);

const ENDIAN: LittleEndian = LittleEndian;

#[derive(Debug, Clone)]
pub(super) struct Elf<'a> {
    bytes: &'a [u8],
    header: &'a FileHeader64<LittleEndian>,
    segments: &'a [ProgramHeader64<LittleEndian>],
}

#[derive(Debug, Clone)]
pub(super) struct Symbol<'a> {
    pub(super) name: &'a str,
    pub(super) address: u64,
    pub(super) size: u64,
    /// Data, not code.
    pub(super) is_data: bool,
}

fn fault<T>(what: impl Into<String>) -> Result<T, ObjectError> {
    Err(ObjectError::Format(what.into()))
}

impl From<object::Error> for ObjectError {
    fn from(error: object::Error) -> Self {
        Self::Format(error.to_string())
    }
}

impl<'a> Elf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ObjectError> {
        let header = FileHeader64::<LittleEndian>::parse(bytes).ok().filter(|header| header.endian().is_ok());
        let Some(header) = header else { return fault("it is no little-endian ELF64 file") };
        let (machine, flags) = (header.e_machine(ENDIAN), header.e_flags(ENDIAN).0);
        if machine != EM_AMDGPU || flags & 0xFF != GFX950 {
            return fault(format!("machine {}, processor flags {flags:#x}: compile with --offload-arch=gfx950", machine.0));
        }
        Ok(Self { bytes, header, segments: header.program_headers(ENDIAN, bytes)? })
    }

    /// The load segment that has the byte at `address` in the file.
    fn segment(&self, address: u64) -> Result<&'a ProgramHeader64<LittleEndian>, ObjectError> {
        let inside = |segment: &&ProgramHeader64<LittleEndian>| {
            let (start, size) = (segment.p_vaddr(ENDIAN), segment.p_filesz(ENDIAN));
            segment.p_type(ENDIAN) == PT_LOAD && address.checked_sub(start).is_some_and(|offset| offset < size)
        };
        let found = self.segments.iter().find(inside);
        found.ok_or_else(|| ObjectError::Format(format!("address {address:#x} is not in a load segment")))
    }

    /// Where the byte at `address` lies in the file.
    pub(super) fn file_offset(&self, address: u64) -> Result<usize, ObjectError> {
        let segment = self.segment(address)?;
        let offset = segment.p_offset(ENDIAN).checked_add(address - segment.p_vaddr(ENDIAN));
        let offset = offset.and_then(|offset| usize::try_from(offset).ok()).filter(|&offset| offset < self.bytes.len());
        offset.ok_or_else(|| ObjectError::Format(format!("address {address:#x} lies beyond its end")))
    }

    /// `size` bytes of the memory image from `address` on.
    pub(super) fn image(&self, address: u64, size: u64) -> Result<&'a [u8], ObjectError> {
        match self.segment(address)?.data_range(ENDIAN, self.bytes, address, size) {
            Ok(Some(bytes)) => Ok(bytes),
            _ => fault(format!("{size} bytes at address {address:#x} lie beyond its end, or that of their segment")),
        }
    }

    /// All symbols of the static symbol table.
    pub(super) fn symbols(&self) -> Result<Vec<Symbol<'a>>, ObjectError> {
        let table = self.header.sections(ENDIAN, self.bytes)?.symbols(ENDIAN, self.bytes, SHT_SYMTAB)?;
        let symbol = |symbol: &'a object::elf::Sym64<LittleEndian>| {
            let name = std::str::from_utf8(symbol.name(ENDIAN, table.strings())?);
            let name = name.map_err(|_| ObjectError::Format("a symbol's name is no UTF-8".to_owned()))?;
            let is_data = symbol.st_type() == STT_OBJECT;
            Ok(Symbol { name, address: symbol.st_value(ENDIAN), size: symbol.st_size(ENDIAN), is_data })
        };
        table.iter().map(symbol).collect()
    }

    /// What the AMDGPU metadata note holds.
    pub(super) fn metadata(&self) -> Result<&'a [u8], ObjectError> {
        for segment in self.segments {
            let Some(mut notes) = segment.notes(ENDIAN, self.bytes)? else { continue };
            while let Some(note) = notes.next()? {
                if note.n_type(ENDIAN) == METADATA {
                    return Ok(note.desc());
                }
            }
        }
        fault("it has no AMDGPU metadata note")
    }
}
