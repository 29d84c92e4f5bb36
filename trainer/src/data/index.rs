//! Megatron's `.idx`: where each sequence and each document of a `.bin` lies.
//!
//! Little-endian and unpadded: magic (9 bytes), version u64, element code u8, sequences u64, document bounds u64, then the
//! lengths (i32, in tokens), byte offsets (i64) and document bounds (i64), and for multimodal data one mode byte a sequence.
//! The fields start at byte 34, which is aligned for nothing: they are copied out, never cast.
//! Source: `megatron/core/datasets/indexed_dataset.py` of NVIDIA/Megatron-LM, version 1 of the format.

/// First nine bytes.
pub const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
/// Bytes before the lengths.
pub const HEADER_BYTES: u64 = 34;

/// Width and sign of one token in the `.bin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenType {
    /// Code 1.
    U8,
    /// Code 2.
    I8,
    /// Code 3.
    I16,
    /// Code 4: what Megatron writes for vocabularies of 65,500 and more.
    I32,
    /// Code 5.
    I64,
    /// Code 8: what Megatron writes for vocabularies below 65,500.
    U16,
}

impl TokenType {
    /// What Megatron chooses for a vocabulary of this many entries.
    pub fn for_vocabulary(entries: usize) -> Self {
        if entries < 65_500 { Self::U16 } else { Self::I32 }
    }

    /// The code in the header.
    pub fn code(self) -> u8 {
        match self {
            Self::U8 => 1,
            Self::I8 => 2,
            Self::I16 => 3,
            Self::I32 => 4,
            Self::I64 => 5,
            Self::U16 => 8,
        }
    }

    /// Bytes a token takes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// The value of one token from its [`Self::bytes`] bytes; the slice is that long.
    pub(crate) fn value(self, bytes: &[u8]) -> i64 {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let raw = i64::from_le_bytes(wide);
        match self {
            Self::U8 | Self::U16 | Self::I64 => raw,
            Self::I8 => i64::from(raw as i8),
            Self::I16 => i64::from(raw as i16),
            Self::I32 => i64::from(raw as i32),
        }
    }

    fn from_code(code: u8) -> Result<Self, String> {
        Ok(match code {
            1 => Self::U8,
            2 => Self::I8,
            3 => Self::I16,
            4 => Self::I32,
            5 => Self::I64,
            8 => Self::U16,
            // Older readers swapped the meaning of 6 and 7 between floating-point types and an unsigned one.
            6 | 7 => {
                return Err(format!("element code {code} means floating-point numbers (and other things to older readers), not tokens"));
            }
            other => return Err(format!("element code {other} is unknown")),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Type of the tokens.
    pub token_type: TokenType,
    pub sequences: u64,
    /// Entries of the document bounds: documents + 1.
    pub bounds: u64,
    /// Whether one mode byte a sequence follows.
    pub modes: bool,
}

/// Totals of a checked index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// Type of the tokens.
    pub token_type: TokenType,
    /// Sequences; Megatron writes one a document for plain text.
    pub sequences: u64,
    pub documents: u64,
    /// Tokens of all sequences.
    pub tokens: u64,
}

impl Header {
    /// Reads the header, and checks the length of the file against it.
    pub fn parse(start: &[u8], file_bytes: u64) -> Result<Self, String> {
        let Some(start) = start.first_chunk::<{ HEADER_BYTES as usize }>() else {
            return Err(format!("{file_bytes} bytes are fewer than the {HEADER_BYTES} of a header"));
        };
        if !start.starts_with(MAGIC) {
            return Err("does not begin with MMIDIDX, so it is no Megatron index".into());
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| start[at + byte]));
        if number(9) != 1 {
            return Err(format!("format version {} instead of 1", number(9)));
        }
        let token_type = TokenType::from_code(start[17])?;
        let (sequences, bounds) = (number(18), number(26));
        if bounds == 0 {
            return Err("has no document bounds, not even the leading 0".into());
        }
        let without_modes = sequences
            .checked_mul(12)
            .and_then(|bytes| bytes.checked_add(bounds.checked_mul(8)?))
            .and_then(|bytes| bytes.checked_add(HEADER_BYTES));
        let Some(without_modes) = without_modes else {
            return Err(format!("claims {sequences} sequences and {bounds} document bounds, more than a file can hold"));
        };
        let modes = match file_bytes {
            bytes if bytes == without_modes => false,
            bytes if Some(bytes) == without_modes.checked_add(sequences) => true,
            bytes => {
                return Err(format!("is {bytes} bytes long, but {sequences} sequences and {bounds} document bounds make {without_modes}"));
            }
        };
        Ok(Self { token_type, sequences, bounds, modes })
    }
}

/// Checks a whole index held by `read` (`read(offset, out)` fills `out` from that byte on) against a `.bin` of
/// `bin_bytes` bytes. Only a fixed amount of memory is used, whatever the file claims.
pub fn check<E>(
    file_bytes: u64,
    bin_bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Result<Index, String>, E> {
    let mut start = vec![0; file_bytes.min(HEADER_BYTES) as usize];
    read(0, &mut start)?;
    let header = match Header::parse(&start, file_bytes) {
        Ok(header) => header,
        Err(problem) => return Ok(Err(problem)),
    };
    let Header { token_type, sequences, bounds, modes } = header;
    let mut walk = Walk { token_type, sequences, bin_bytes, tokens: 0, end: 0, previous_bound: 0 };
    let (offsets_at, bounds_at) = (HEADER_BYTES + 4 * sequences, HEADER_BYTES + 12 * sequences);
    let mut buffer = vec![0; 12 * ENTRIES as usize];
    let mut first = 0;
    while first < sequences {
        let entries = ENTRIES.min(sequences - first) as usize;
        let (lengths, offsets) = buffer[..12 * entries].split_at_mut(4 * entries);
        read(HEADER_BYTES + 4 * first, lengths)?;
        read(offsets_at + 8 * first, offsets)?;
        for (entry, (length, offset)) in lengths.as_chunks::<4>().0.iter().zip(offsets.as_chunks::<8>().0).enumerate() {
            if let Err(problem) = walk.sequence(first + entry as u64, i32::from_le_bytes(*length), i64::from_le_bytes(*offset)) {
                return Ok(Err(problem));
            }
        }
        first += entries as u64;
    }
    let mut first = 0;
    while first < bounds {
        let entries = ENTRIES.min(bounds - first) as usize;
        read(bounds_at + 8 * first, &mut buffer[..8 * entries])?;
        for (entry, bound) in buffer[..8 * entries].as_chunks::<8>().0.iter().enumerate() {
            if let Err(problem) = walk.bound(first + entry as u64, bounds, i64::from_le_bytes(*bound)) {
                return Ok(Err(problem));
            }
        }
        first += entries as u64;
    }
    if modes {
        let mut first = 0;
        while first < sequences {
            let entries = (12 * ENTRIES).min(sequences - first) as usize;
            read(bounds_at + 8 * bounds + first, &mut buffer[..entries])?;
            if buffer[..entries].iter().any(|&mode| mode != 0) {
                return Ok(Err("has sequences of another mode than text; multimodal data is not supported".into()));
            }
            first += entries as u64;
        }
    }
    Ok(walk.finish(bounds))
}

/// Entries looked at in one go.
const ENTRIES: u64 = 1 << 14;

/// What has been seen of an index so far.
struct Walk {
    token_type: TokenType,
    sequences: u64,
    bin_bytes: u64,
    tokens: u64,
    end: u64,
    previous_bound: u64,
}

impl Walk {
    /// Sequences follow each other without gaps: Megatron writes nothing else, and only then is the `.bin` one stream.
    fn sequence(&mut self, number: u64, length: i32, offset: i64) -> Result<(), String> {
        let Ok(length) = u64::try_from(length) else {
            return Err(format!("sequence {number} has length {length}"));
        };
        if u64::try_from(offset) != Ok(self.end) {
            return Err(format!(
                "sequence {number} is said to start at byte {offset} of the .bin, but the one before ends at {}",
                self.end
            ));
        }
        self.tokens += length;
        self.end += length * self.token_type.bytes() as u64;
        if self.end > self.bin_bytes {
            return Err(format!(
                "sequence {number} ends at byte {} of a .bin that has {}: one of the two files is truncated or belongs to another pair",
                self.end, self.bin_bytes
            ));
        }
        Ok(())
    }

    fn bound(&mut self, number: u64, bounds: u64, bound: i64) -> Result<(), String> {
        let refuse = |expected: String| Err(format!("document bound {number} is {bound}, expected {expected}"));
        match u64::try_from(bound) {
            Ok(value) if number == 0 && value != 0 => refuse("0".into()),
            Ok(value) if number + 1 == bounds && value != self.sequences => refuse(format!("the number of sequences, {}", self.sequences)),
            Ok(value) if value >= self.previous_bound && value <= self.sequences => {
                self.previous_bound = value;
                Ok(())
            }
            _ => refuse(format!("a number between {} and {}", self.previous_bound, self.sequences)),
        }
    }

    fn finish(self, bounds: u64) -> Result<Index, String> {
        if self.end != self.bin_bytes {
            return Err(format!("accounts for {} bytes of a .bin that has {}: the two files are not a pair", self.end, self.bin_bytes));
        }
        Ok(Index { token_type: self.token_type, sequences: self.sequences, documents: bounds - 1, tokens: self.tokens })
    }
}
