//! The text of kernels/device, which CUDA and HIP share, and of kernels/gfx950, inside the binary.

macro_rules! files {
    ($list:ident, $folder:literal: $($name:literal),*) => {
        const $list: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../", $folder, $name)))),*];
    };
}

files!(HEADERS, "device/": "portable.h", "formats.h", "activations.h", "attention.h", "squares.h");
files!(SOURCES, "device/": "accumulate.cu", "bf16_sums.cu", "quantise.cu", "tensor_scale.cu", "norm.cu", "elementwise.cu", "attention.cu", "attention_fused.cu", "loss.cu", "optimizer.cu");
// What only several ranks run gives the bits of one rank or is wrong, so that it is no part of an identity.
files!(OF_RANKS, "device/": "shards.cu");
files!(GFX950_HEADERS, "": "gfx950/prelude.h", "gfx950/attention_32x32.h", "gfx950/gemm_operands.h");
files!(GFX950_SOURCES, "": "gfx950/quantise.hip", "gfx950/gemm.hip", "gfx950/attention.hip", "gfx950/attention_32x32.hip");

/// Name and text of what the shared sources include.
pub(super) fn headers() -> impl Iterator<Item = (&'static str, &'static str)> {
    HEADERS.iter().copied()
}

/// Name and text of what sources for gfx950 may include, the shared headers among them.
pub(super) fn gfx950_headers() -> impl Iterator<Item = (&'static str, &'static str)> {
    HEADERS.iter().chain(GFX950_HEADERS).copied()
}

/// Text of a source; empty for a name that is not there (which then does not compile).
pub(super) fn text(file: &str) -> &'static str {
    SOURCES.iter().chain(OF_RANKS).chain(GFX950_SOURCES).find(|source| source.0 == file).map_or("", |source| source.1)
}

/// Every file of an identity, by name.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    [HEADERS, SOURCES, GFX950_HEADERS, GFX950_SOURCES].into_iter().flatten().copied()
}

macro_rules! drivers {
    ($list:ident: $($name:literal),*) => {
        const $list: &[(&str, &str)] = &[$(($name, include_str!($name))),*];
    };
}

drivers!(SHARED: "products.rs", "library.rs", "runtime.rs", "calls.rs");
drivers!(CUDA: "cuda/mod.rs", "cuda/api.rs", "cuda/compile.rs");
drivers!(HIP: "hip/mod.rs", "hip/api.rs", "hip/compile.rs", "hip/blas.rs");

/// The Rust text of what calls a kind's compiler, driver and matrix library: what a [`super::record::Recorder`] stands in for.
pub(super) fn of_driver(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    SHARED.iter().chain(if kind == "hip" { HIP } else { CUDA }).copied()
}
