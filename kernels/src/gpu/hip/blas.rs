//! Opening hipBLASLt; `products` does the rest.

use std::ffi::c_int;

use super::api::{self, BlasVersion};
use crate::gpu::GpuError;
use crate::gpu::library::Shared;
use crate::gpu::products::{Blas, Products};

const PACKAGE: &str = "ROCm 7 (apt-get install hipblaslt, from AMD's repository)";

/// The library, for the device that the calling thread works with.
pub(super) fn open() -> Result<Products, GpuError> {
    let library = Shared::open(&["libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"], PACKAGE)?;
    let table = Blas::hip(&library)?;
    // SAFETY: the type is that of AMD's header.
    let ask: BlasVersion = unsafe { library.function(api::BLAS_VERSION)? };
    Products::new(table, &api::BLAS, library, |handle| {
        let mut number: c_int = 0;
        // SAFETY: the handle was just created; `number` is written by the call.
        let status = unsafe { ask(handle, &raw mut number) };
        if status == 0 { version(number) } else { "of unknown version".to_owned() }
    })
}

/// 100301 is 1.3.1.
fn version(number: c_int) -> String {
    format!("{}.{}.{}", number / 100_000, number / 100 % 1000, number % 100)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_version_has_three_parts() {
        assert_eq!([100_301, 1_200, 101_500].map(super::version), ["1.3.1", "0.12.0", "1.15.0"]);
    }
}
