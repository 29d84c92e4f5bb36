//! Bytes in bytes, and bytes as digits.

/// Position of the first `needle`.
pub(crate) fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    text.windows(needle.len()).position(|window| window == needle)
}

/// Position of the last `needle`, which is not empty.
pub(crate) fn find_last(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).rposition(|window| window == needle)
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
