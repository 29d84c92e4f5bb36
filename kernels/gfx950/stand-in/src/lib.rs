//! A stand-in for libamdhip64, libhipblaslt and librccl, so that the HIP driver's host code can be run where there is no ROCm: test code, not a
//! device.
//!
//! It exports the C symbols that kernels/src/gpu/hip looks up. Device memory is the interpreter's, where every access is checked; modules
//! are gfx950 code objects, whose kernels the interpreter executes; matrix products are plain loops on the processor. Every call is
//! finished when it returns. What a caller does wrong (bytes outside an allocation, a kernel that faults, a matrix that was never
//! written) is an error whose text, from `hipGetErrorString`, says what happened.
//!
//! What it is not: a model of a GPU's speed, of asynchronous execution, or of how hipBLASLt orders its sums. Its device is called
//! `gfx950 interpreter`, and it exports `gfx950_interpreter`, by which the driver knows it: nothing that ran here may be reported as an
//! MI355X's.
//!
//! All libraries are one file: [`install`] links it under all names, and the loader opens one file once, whatever it is called.
//!
//! Settings, from the environment: `GFX950_STAND_IN_MEMORY_MIB` (2048), `GFX950_STAND_IN_DEVICES` (1),
//! `GFX950_STAND_IN_CAPABILITY` (9.5), `GFX950_STAND_IN_ORDER` (`serial`, `reversed` or `round-robin`: the order of waves),
//! `GFX950_STAND_IN_MXFP4` (`none`: products as before ROCm 7, `rows`: without swizzled scales, as before 7.2, `mistaken`: with
//! swizzled scales read as if they lay by rows), `GFX950_STAND_IN_RCCL` (22203: the version of RCCL as it codes it),
//! `GFX950_STAND_IN_TRACE` (a file to which a line is added for every kernel launched and every product).

mod blas;
mod hip;
mod rccl;
mod state;

use std::io;
use std::path::Path;
use std::process::Command;

/// File names of the libraries that this stands in for.
pub const NAMES: [&str; 3] = ["libamdhip64.so.7", "libhipblaslt.so.1", "librccl.so.1"];

/// Links the shared library, which cargo leaves beside the executable of a test that depends on this crate, into a folder under all
/// names. A process that is started with that folder in LD_LIBRARY_PATH finds them.
///
/// # Errors
/// When the shared library is not beside the running executable, or the folder cannot be written.
pub fn install(folder: &Path) -> io::Result<()> {
    let executable = std::env::current_exe()?;
    let library = executable.parent().unwrap_or(folder).join("libgfx950_stand_in.so");
    if !library.is_file() {
        let text = format!("{} is not there: tests that use it depend on gfx950-stand-in, so that cargo builds it", library.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    std::fs::create_dir_all(folder)?;
    for name in NAMES {
        std::os::unix::fs::symlink(&library, folder.join(name))?;
    }
    Ok(())
}

/// Whether kernels can be compiled here; without clang 22 a test says so and does nothing, unless REQUIRE_CLANG_22 is set, as in CI.
///
/// # Panics
/// Where it is required and does not run.
pub fn has_clang() -> bool {
    let works = Command::new("clang++-22").arg("--version").output().is_ok_and(|output| output.status.success());
    if !works {
        assert!(std::env::var_os("REQUIRE_CLANG_22").is_none(), "clang++-22 is required here and does not run");
        eprintln!("skipped: clang++-22 does not run; apt-get install --no-install-recommends clang-22 lld-22");
    }
    works
}
