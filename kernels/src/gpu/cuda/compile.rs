//! Compiling kernels with NVRTC at first use; `cache` keeps them.

use std::ffi::{CString, c_char, c_int};

use super::api::Nvrtc;
use crate::gpu::GpuError;
use crate::gpu::cache::{self, Cache};
use crate::gpu::library::Shared;
use crate::gpu::sources;

#[derive(Debug)]
pub(super) struct Compiler {
    api: Nvrtc,
    pub(super) version: String,
    architecture: String,
    cache: Cache,
    _libraries: Vec<Shared>,
}

impl Compiler {
    pub(super) fn new(library: Shared, builtins: Option<Shared>, architecture: &str) -> Result<Self, GpuError> {
        let api = Nvrtc::load(&library)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both numbers are written by the call.
        unsafe { (api.version)(&raw mut major, &raw mut minor) };
        let libraries = std::iter::once(library).chain(builtins).collect();
        Ok(Self { api, version: format!("{major}.{minor}"), architecture: architecture.into(), cache: Cache::new(), _libraries: libraries })
    }

    /// Machine code of a file of kernels/device with these definitions.
    pub(super) fn cubin(&self, file: &'static str, defines: &[String]) -> Result<Vec<u8>, GpuError> {
        let options = self.options(defines);
        let texts = sources::headers().map(|(_, text)| text).chain(std::iter::once(sources::text(file)));
        let parts = [self.version.as_str(), file].into_iter().chain(options.iter().map(String::as_str)).chain(texts);
        self.cache.find_or(&format!("{}.cubin", cache::key(parts)), || self.compile(file, &options))
    }

    fn options(&self, defines: &[String]) -> Vec<String> {
        let fixed = [format!("--gpu-architecture={}", self.architecture), "--std=c++17".into(), "--fmad=false".into()];
        fixed.into_iter().chain(defines.iter().cloned()).collect()
    }

    fn compile(&self, file: &'static str, options: &[String]) -> Result<Vec<u8>, GpuError> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| GpuError::Call { call: "NVRTC".into(), reason: "a source holds a zero byte".into() })
        };
        let (source, name) = (text(sources::text(file))?, text(file)?);
        let headers = sources::headers().map(|(name, source)| Ok((text(name)?, text(source)?))).collect::<Result<Vec<_>, GpuError>>()?;
        let names: Vec<*const c_char> = headers.iter().map(|header| header.0.as_ptr()).collect();
        let texts: Vec<*const c_char> = headers.iter().map(|header| header.1.as_ptr()).collect();
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = std::ptr::null_mut();
        // SAFETY: all strings outlive the calls; sizes are asked before buffers are filled; the program is destroyed once.
        unsafe {
            let status =
                (self.api.create)(&raw mut program, source.as_ptr(), name.as_ptr(), headers.len() as c_int, texts.as_ptr(), names.as_ptr());
            self.check(status, "create")?;
            let status = (self.api.compile)(program, pointers.len() as c_int, pointers.as_ptr());
            let result = if status == 0 { self.cubin_of(program) } else { Err(self.log_of(program, file)) };
            (self.api.destroy)(&raw mut program);
            result
        }
    }

    /// # Safety
    /// `program` was compiled.
    unsafe fn cubin_of(&self, program: super::api::Program) -> Result<Vec<u8>, GpuError> {
        let mut size = 0;
        // SAFETY: the buffer has the size that the library asked for.
        unsafe {
            self.check((self.api.cubin_size)(program, &raw mut size), "size of the machine code")?;
            let mut cubin = vec![0u8; size];
            self.check((self.api.cubin)(program, cubin.as_mut_ptr().cast()), "machine code")?;
            Ok(cubin)
        }
    }

    /// # Safety
    /// `program` was created.
    unsafe fn log_of(&self, program: super::api::Program, file: &str) -> GpuError {
        let mut size = 0;
        // SAFETY: the buffer has the size that the library asked for.
        let log = unsafe {
            (self.api.log_size)(program, &raw mut size);
            let mut log = vec![0u8; size];
            (self.api.log)(program, log.as_mut_ptr().cast());
            String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()
        };
        GpuError::Compile { file: file.into(), architecture: self.architecture.clone(), log }
    }

    fn check(&self, status: c_int, call: &str) -> Result<(), GpuError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a constant string.
        let reason = unsafe { std::ffi::CStr::from_ptr((self.api.error_text)(status)) };
        Err(GpuError::Call { call: format!("NVRTC: {call}"), reason: reason.to_string_lossy().into_owned() })
    }
}
