//! How ranks write to one another: every message says what it is, its number on that connection, and its length.

use std::io::{self, Read, Write};

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The sender is there. Has no number.
    Heartbeat = 1,
    Piece = 2,
    Parameters = 3,
    Shard = 4,
    Record = 5,
    /// The sender ends with this error.
    Abort = 6,
    /// The sender ends in good order.
    Leave = 7,
}

impl Kind {
    const ALL: [Self; 7] = [Self::Heartbeat, Self::Piece, Self::Parameters, Self::Shard, Self::Record, Self::Abort, Self::Leave];
}

/// Bytes of a header: kind, sequence number, length.
const HEADER: usize = 17;

/// The longest message that is read. Arrays go in parts of [`PART`] elements; the longest record holds the histories of delayed scales.
const LONGEST: u64 = 1 << 28;

/// Elements of one message of an array.
pub(super) const PART: usize = 1 << 20;

/// A message as it came.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) sequence: u64,
    pub(super) payload: Vec<u8>,
}

pub(super) fn write(to: &mut impl Write, kind: Kind, sequence: u64, payload: &[u8]) -> io::Result<()> {
    let mut header = [kind as u8; HEADER];
    header[1..9].copy_from_slice(&sequence.to_le_bytes());
    header[9..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    to.write_all(&header)?;
    to.write_all(payload)
}

/// The next message. `heard` is called whenever something came.
pub(super) fn read(from: &mut impl Read, heard: impl Fn()) -> io::Result<Frame> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header)?;
    heard();
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| header[at + index]));
    let (sequence, length) = (number(1), number(9));
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let kind =
        Kind::ALL.into_iter().find(|kind| *kind as u8 == header[0]).ok_or_else(|| invalid(format!("a message of kind {}", header[0])))?;
    if length > LONGEST {
        return Err(invalid(format!("a message of {length} bytes")));
    }
    let mut payload = Vec::new();
    // Grows as bytes come: a length alone takes no memory.
    let mut rest = from.take(length);
    while rest.limit() > 0 {
        let part = rest.limit().min(PART as u64);
        if rest.by_ref().take(part).read_to_end(&mut payload)? as u64 != part {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        heard();
    }
    Ok(Frame { kind, sequence, payload })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for kind in Kind::ALL {
            for payload in [vec![], vec![7; 3], vec![1; 3 * PART + 5]] {
                let mut bytes = Vec::new();
                write(&mut bytes, kind, 1 << 40, &payload).unwrap();
                assert_eq!(bytes.len(), HEADER + payload.len());
                let frame = read(&mut bytes.as_slice(), || ()).unwrap();
                assert_eq!(frame, Frame { kind, sequence: 1 << 40, payload });
            }
        }
    }

    #[test]
    fn what_is_no_message_is_refused_without_taking_its_length_for_true() {
        let mut whole = Vec::new();
        write(&mut whole, Kind::Piece, 3, &[1, 2, 3, 4]).unwrap();
        for cut in 0..whole.len() {
            assert_eq!(read(&mut &whole[..cut], || ()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{cut}");
        }
        let mut unknown = whole.clone();
        unknown[0] = 99;
        assert!(read(&mut unknown.as_slice(), || ()).unwrap_err().to_string().contains("kind 99"));
        let mut long = whole.clone();
        long[9..17].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read(&mut long.as_slice(), || ()).unwrap_err().to_string().contains("18446744073709551615 bytes"));
        long[9..17].copy_from_slice(&LONGEST.to_le_bytes());
        assert_eq!(read(&mut long.as_slice(), || ()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
