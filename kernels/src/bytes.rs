//! F32 as little-endian bytes, which files and connections hold.

/// Four bytes for each number; what is left over on either side stays as it is.
pub fn write_f32(numbers: &[f32], bytes: &mut [u8]) {
    bytes.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(bytes, number)| *bytes = number.to_le_bytes());
}

/// A number for each four bytes; what is left over on either side stays as it is.
pub fn read_f32(bytes: &[u8], numbers: &mut [f32]) {
    numbers.iter_mut().zip(bytes.as_chunks().0).for_each(|(number, &bytes)| *number = f32::from_le_bytes(bytes));
}
