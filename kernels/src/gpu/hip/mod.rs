//! HIP: libamdhip64 and hipBLASLt, found at run time, and kernels compiled by clang for gfx950 (MI350X, MI355X).
//!
//! What is here compiles for gfx950 and is functionally verified on a CPU model of the ISA (kernels/gfx950/stand-in takes the
//! libraries' place); it was not run on an MI355X. A device of another architecture is refused: there are no kernels for it.

mod api;
mod blas;
mod compile;

use std::ffi::{CStr, c_int};

use super::GpuError;
use super::calls::{Attributes, Calls, Module, Reason};
use super::driver::Description;
use super::library::Shared;
use super::products::BlockScales;
use super::runtime::{Runtime, Vendor};
use api::Own;

/// One AMD GPU.
#[derive(Debug)]
pub(super) struct Hip {
    own: Own,
    device: c_int,
    compiler: compile::Compiler,
}

const DRIVER_PACKAGE: &str = "ROCm 7 (apt-get install hip-runtime-amd, from AMD's repository)";

fn open_driver() -> Result<(Shared, Calls, Own), GpuError> {
    let library = Shared::open(&["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"], DRIVER_PACKAGE)?;
    let (calls, own) = (Calls::hip(&library, reason)?, Own::load(&library)?);
    Ok((library, calls, own))
}

fn reason(library: &Shared) -> Result<Reason, GpuError> {
    // SAFETY: the type is that of AMD's header.
    let ask: api::ErrorText = unsafe { library.function(api::ERROR_TEXT)? };
    Ok(Reason(Box::new(move |status| {
        // SAFETY: the runtime returns a string that stays where it is.
        let text = unsafe {
            let text = ask(status);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        format!("{text} (HIP error {status})")
    })))
}

/// Number of devices; none is no error here.
fn count_devices(calls: &Calls) -> Result<usize, GpuError> {
    let mut count = 0;
    // SAFETY: the first call that the runtime wants, then one that writes `count`.
    let status = unsafe {
        match (calls.init.function)(0) {
            0 => (calls.device_count.function)(&raw mut count),
            status => status,
        }
    };
    if status == api::NO_DEVICE {
        return Ok(0);
    }
    calls.check(status, "hipInit, hipGetDeviceCount")?;
    Ok(count as usize)
}

pub(super) fn count() -> Result<usize, GpuError> {
    let (_library, calls, _) = open_driver()?;
    count_devices(&calls)
}

/// Opens GPU number `ordinal`.
///
/// # Errors
/// A missing library, compiler or device, named with what to do about it, or a GPU that is no gfx950.
pub(super) fn open(ordinal: usize) -> Result<Runtime<Hip>, GpuError> {
    let (library, calls, own) = open_driver()?;
    let count = count_devices(&calls)?;
    if ordinal >= count {
        let advice = "; the amdgpu kernel driver must be loaded, and the user in the groups render and video (`rocminfo` shows both)";
        return Err(GpuError::NoDevice {
            wanted: format!("device hip:{ordinal}"),
            found: format!("{count} AMD GPUs, numbered from 0{}", if count == 0 { advice } else { "" }),
        });
    }
    let device = ordinal as c_int;
    // SAFETY: the device exists.
    calls.check(unsafe { (own.set_device)(device) }, "hipSetDevice")?;
    let stream = calls.stream()?;
    let mut description = describe(&calls, device, &library)?;
    let compiler = compile::Compiler::find()?;
    description.libraries.push(compiler.describe());
    let products = blas::open();
    if let Ok(products) = &products {
        description.libraries.push(("hipBLASLt".into(), products.version.clone()));
    }
    Ok(Runtime::new(calls, Hip { own, device, compiler }, stream, products, description, library))
}

/// Of `hipDeviceAttribute_t`.
const ATTRIBUTES: Attributes = Attributes { capability_major: 23, capability_minor: 61, units: 63 };

/// Name, size and architecture. On AMD GPUs the compute capability is the first two parts of the architecture: 9.5 is gfx950, the only
/// one of its family, so that no struct has to be read for it.
fn describe(calls: &Calls, device: c_int, library: &Shared) -> Result<Description, GpuError> {
    let properties = calls.properties(device, ATTRIBUTES)?;
    let (name, (major, minor), version) = (properties.name, properties.capability, properties.version);
    if (major, minor) != (9, 5) {
        return Err(GpuError::Unsupported(format!(
            "hip:{device} {name} has architecture {major}.{minor} (gfx{major}{minor}x); the kernels are for {} (9.5), which MI350X and MI355X have",
            compile::ARCHITECTURE
        )));
    }
    // SAFETY: only whether the symbol is there matters; it is not called.
    let interpreted = unsafe { library.function::<unsafe extern "C" fn()>(api::INTERPRETER_MARK) }.is_ok();
    let version = format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000);
    Ok(Description {
        kind: "hip",
        ordinal: device as usize,
        name,
        architecture: compile::ARCHITECTURE.to_owned(),
        memory: properties.memory,
        units: properties.units,
        libraries: vec![(if interpreted { "gfx950 interpreter in place of HIP" } else { "HIP" }.into(), version)],
        has_fp8: true,
        has_mxfp4: true,
        interpreted,
    })
}

impl Vendor for Hip {
    /// Unlike CUDA, HIP does not promise it.
    const COPIES_ASIDE: bool = false;

    const PACKED: Option<&'static BlockScales> = Some(&api::MXFP4);

    fn enter(&self, calls: &Calls) -> Result<(), GpuError> {
        // SAFETY: the device exists.
        calls.check(unsafe { (self.own.set_device)(self.device) }, "hipSetDevice")
    }

    fn machine_code(&self, file: &'static str, defines: &[String]) -> Result<Vec<u8>, GpuError> {
        self.compiler.code_object(file, defines)
    }

    /// Error 209 in words.
    fn refused(&self, status: c_int, Description { name, architecture, .. }: &Description) -> Option<String> {
        (status == api::NO_BINARY_FOR_GPU).then(|| {
            format!(
                "HIP error {status}: the code object is not for this GPU. It was compiled for {} by {}; the runtime takes {name} for \
                 {architecture}. Remove what is cached below $XDG_CACHE_HOME or ~/.cache in mxfp4-replication/kernels, and see that ROCm is \
                 7.0 or later, the first that knows {}",
                compile::ARCHITECTURE,
                self.compiler.version,
                compile::ARCHITECTURE,
            )
        })
    }

    fn unload(&self, module: Module) {
        // SAFETY: nothing uses the module any more.
        unsafe { (self.own.unload_module)(module) };
    }
}
