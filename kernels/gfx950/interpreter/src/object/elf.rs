//! The little of ELF64 that a code object needs: load segments, symbols, notes.

use super::ObjectError;

const AMDGPU: u16 = 224;
/// e_flags: the low byte names the processor.
const GFX950: u32 = 0x4F;
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const SYMBOLS: u32 = 2;

#[derive(Debug, Clone)]
pub(super) struct Elf<'a> {
    bytes: &'a [u8],
    segments: Vec<Segment>,
    sections: Vec<Section>,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

#[derive(Debug, Clone, Copy)]
struct Section {
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) size: u64,
    /// Data, not code.
    pub(super) is_data: bool,
}

fn fault<T>(what: impl Into<String>) -> Result<T, ObjectError> {
    Err(ObjectError::Format(what.into()))
}

/// `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8], at: u64) -> Result<[u8; N], ObjectError> {
    let start = usize::try_from(at).unwrap_or(usize::MAX);
    let slice = start.checked_add(N).and_then(|end| bytes.get(start..end));
    slice.and_then(|slice| slice.try_into().ok()).ok_or_else(|| ObjectError::Format(format!("it ends before byte {at:#x}")))
}

fn u16_at(bytes: &[u8], at: u64) -> Result<u16, ObjectError> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: u64) -> Result<u32, ObjectError> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: u64) -> Result<u64, ObjectError> {
    array(bytes, at).map(u64::from_le_bytes)
}

impl<'a> Elf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ObjectError> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return fault("it is no little-endian ELF64 file");
        }
        let (machine, flags) = (u16_at(bytes, 18)?, u32_at(bytes, 48)?);
        if machine != AMDGPU || flags & 0xFF != GFX950 {
            return fault(format!("machine {machine}, processor flags {flags:#x}: compile with --offload-arch=gfx950"));
        }
        let (segment_table, section_table) = (u64_at(bytes, 32)?, u64_at(bytes, 40)?);
        let entry = |table: u64, size: u16, index: u16| table.saturating_add(u64::from(size) * u64::from(index));
        let (segment_size, segment_count) = (u16_at(bytes, 54)?, u16_at(bytes, 56)?);
        let (section_size, section_count) = (u16_at(bytes, 58)?, u16_at(bytes, 60)?);
        let mut segments = Vec::new();
        for index in 0..segment_count {
            let at = entry(segment_table, segment_size, index);
            segments.push(Segment {
                kind: u32_at(bytes, at)?,
                offset: u64_at(bytes, at + 8)?,
                address: u64_at(bytes, at + 16)?,
                size: u64_at(bytes, at + 32)?,
            });
        }
        let mut sections = Vec::new();
        for index in 0..section_count {
            let at = entry(section_table, section_size, index);
            sections.push(Section {
                kind: u32_at(bytes, at + 4)?,
                offset: u64_at(bytes, at + 24)?,
                size: u64_at(bytes, at + 32)?,
                link: u32_at(bytes, at + 40)?,
            });
        }
        Ok(Self { bytes, segments, sections })
    }

    fn slice(&self, offset: u64, size: u64) -> Result<&'a [u8], ObjectError> {
        let (start, size) = (usize::try_from(offset).unwrap_or(usize::MAX), usize::try_from(size).unwrap_or(usize::MAX));
        let slice = start.checked_add(size).and_then(|end| self.bytes.get(start..end));
        slice.ok_or_else(|| ObjectError::Format(format!("{size} bytes at {offset:#x} lie beyond its end")))
    }

    /// Where the byte at `address` lies in the file.
    pub(super) fn file_offset(&self, address: u64) -> Result<usize, ObjectError> {
        let inside = |segment: &&Segment| segment.kind == LOAD && address >= segment.address && address - segment.address < segment.size;
        match self.segments.iter().find(inside) {
            Some(segment) => Ok((segment.offset + (address - segment.address)) as usize),
            None => fault(format!("address {address:#x} is not in a load segment")),
        }
    }

    /// `size` bytes of the memory image from `address` on.
    pub(super) fn image(&self, address: u64, size: u64) -> Result<&'a [u8], ObjectError> {
        self.slice(self.file_offset(address)? as u64, size)
    }

    /// All named symbols of the static symbol table.
    pub(super) fn symbols(&self) -> Result<Vec<Symbol>, ObjectError> {
        const ENTRY: u64 = 24;
        let mut symbols = Vec::new();
        for section in self.sections.iter().filter(|section| section.kind == SYMBOLS) {
            let Some(names) = self.sections.get(section.link as usize) else { return fault("its symbols have no names") };
            let names = self.slice(names.offset, names.size)?;
            let table = self.slice(section.offset, section.size)?;
            for at in (0..section.size / ENTRY).map(|index| index * ENTRY) {
                let start = u32_at(table, at)? as usize;
                let text = names.get(start..).unwrap_or(&[]).split(|&byte| byte == 0).next().unwrap_or(&[]);
                let (address, size) = (u64_at(table, at + 8)?, u64_at(table, at + 16)?);
                // The low four bits of the type byte: 1 is an object.
                let is_data = table.get(at as usize + 4).is_some_and(|kind| kind & 15 == 1);
                symbols.push(Symbol { name: String::from_utf8_lossy(text).into_owned(), address, size, is_data });
            }
        }
        Ok(symbols)
    }

    /// The payload of the AMDGPU metadata note (type 32).
    pub(super) fn metadata(&self) -> Result<&'a [u8], ObjectError> {
        const METADATA: u32 = 32;
        for segment in self.segments.iter().filter(|segment| segment.kind == NOTE) {
            let bytes = self.slice(segment.offset, segment.size)?;
            let mut at = 0;
            while at + 12 <= bytes.len() as u64 {
                let (name, size, kind) = (u32_at(bytes, at)?, u32_at(bytes, at + 4)?, u32_at(bytes, at + 8)?);
                let start = at + 12 + u64::from(name).next_multiple_of(4);
                if kind == METADATA {
                    return self.slice(segment.offset + start, u64::from(size));
                }
                at = start + u64::from(size).next_multiple_of(4);
            }
        }
        fault("it has no AMDGPU metadata note")
    }
}
