//! The text of kernels/device, inside the binary.

macro_rules! files {
    ($list:ident: $($name:literal),* $(,)?) => {
        const $list: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../device/", $name)))),*];
    };
}

files!(HEADERS: "portable.h", "formats.h");
files!(SOURCES: "accumulate.cu", "quantise.cu", "tensor_scale.cu", "norm.cu", "elementwise.cu", "attention.cu", "loss.cu", "optimizer.cu");

/// Name and text of what the sources include.
pub(super) fn headers() -> impl Iterator<Item = (&'static str, &'static str)> {
    HEADERS.iter().copied()
}

/// Text of a source; empty for a name that is not there (which then does not compile).
pub(super) fn text(file: &str) -> &'static str {
    SOURCES.iter().find(|source| source.0 == file).map_or("", |source| source.1)
}
