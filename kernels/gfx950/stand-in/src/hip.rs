//! The functions of libamdhip64 that the HIP driver looks up. Names, arguments and statuses are those of AMD's headers.

// C functions: their names and their contracts are AMD's.
#![allow(non_snake_case, unreachable_pub, clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::state::{
    Failure, INVALID_CONFIGURATION, INVALID_DEVICE, INVALID_IMAGE, INVALID_VALUE, NO_BINARY_FOR_GPU, NO_DEVICE, NOT_READY, failed,
    memory_size, setting, with,
};

/// What the device is called.
const NAME: &CStr = c"gfx950 interpreter";

/// That this is no ROCm: the driver looks for the symbol.
#[unsafe(no_mangle)]
pub extern "C" fn gfx950_interpreter() {}

fn devices() -> c_int {
    setting("GFX950_STAND_IN_DEVICES").and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Writes a result.
///
/// # Safety
/// `to` points to room for it, or is null.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return failed(INVALID_VALUE, "a null pointer");
    }
    // SAFETY: the caller vouches for the room.
    unsafe { to.write(value) };
    Ok(())
}

fn device(number: c_int) -> Result<(), Failure> {
    if (0..devices()).contains(&number) { Ok(()) } else { failed(INVALID_DEVICE, format!("there is no device {number}")) }
}

#[unsafe(no_mangle)]
pub extern "C" fn hipInit(_flags: c_uint) -> c_int {
    if devices() == 0 { NO_DEVICE } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipRuntimeGetVersion(version: *mut c_int) -> c_int {
    // 0.1.0: this project's, so that it cannot be taken for ROCm's.
    // SAFETY: the caller's pointer.
    with(|_| unsafe { put(version, 100_000) })
}

#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(status: c_int) -> *const c_char {
    let mut found = None;
    with(|state| {
        found = state.text(status);
        Ok(())
    });
    let default = match status {
        0 => c"no error",
        NO_DEVICE => c"no ROCm-capable device is detected",
        _ => c"an error of the gfx950 interpreter",
    };
    found.map_or(default, |text| text.as_c_str()).as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDeviceCount(count: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    with(|_| unsafe { put(count, devices()) })
}

#[unsafe(no_mangle)]
pub extern "C" fn hipSetDevice(number: c_int) -> c_int {
    with(|_| device(number))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetName(name: *mut c_char, length: c_int, number: c_int) -> c_int {
    with(|_| {
        device(number)?;
        let bytes = NAME.to_bytes_with_nul();
        if (length as usize) < bytes.len() || name.is_null() {
            return failed(INVALID_VALUE, format!("{length} bytes are too few for the name"));
        }
        // SAFETY: the caller has room for `length` bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), name, bytes.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, number: c_int) -> c_int {
    with(|_| {
        device(number)?;
        let capability = setting("GFX950_STAND_IN_CAPABILITY").unwrap_or_else(|| "9.5".to_owned());
        let part = |index: usize| capability.split('.').nth(index).and_then(|part| part.parse().ok()).unwrap_or(0);
        let found = match attribute {
            23 => part(0),
            61 => part(1),
            // One workgroup at a time.
            63 => 1,
            _ => return failed(INVALID_VALUE, format!("attribute {attribute} is not known here")),
        };
        // SAFETY: the caller's pointer.
        unsafe { put(value, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceTotalMem(bytes: *mut usize, number: c_int) -> c_int {
    with(|_| {
        device(number)?;
        // SAFETY: the caller's pointer.
        unsafe { put(bytes, memory_size()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    with(|state| {
        // SAFETY: the caller's pointers.
        unsafe {
            put(free, memory_size().saturating_sub(state.used()))?;
            put(total, memory_size())
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMalloc(address: *mut u64, bytes: usize) -> c_int {
    with(|state| {
        let found = state.allocate(bytes)?;
        // SAFETY: the caller's pointer.
        unsafe { put(address, found) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hipFree(address: u64) -> c_int {
    with(|state| state.free(address))
}

#[unsafe(no_mangle)]
pub extern "C" fn hipMemsetD8Async(address: u64, byte: u8, count: usize, _stream: *mut c_void) -> c_int {
    with(|state| state.write(address, &vec![byte; count]))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyHtoDAsync(to: u64, from: *const c_void, count: usize, _stream: *mut c_void) -> c_int {
    // SAFETY: the caller's bytes.
    with(|state| state.write(to, unsafe { bytes_at(from, count) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyDtoHAsync(to: *mut c_void, from: u64, count: usize, _stream: *mut c_void) -> c_int {
    with(|state| {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the caller has room for `count` bytes.
        state.read(from, unsafe { std::slice::from_raw_parts_mut(to.cast(), count) })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hipMemcpyDtoDAsync(to: u64, from: u64, count: usize, _stream: *mut c_void) -> c_int {
    with(|state| {
        let bytes = state.operand("a copy on the device", from, count)?;
        state.write(to, &bytes)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamCreateWithFlags(stream: *mut *mut c_void, _flags: c_uint) -> c_int {
    // There is one order of everything, so that one stream is like another; only null is the default one.
    // SAFETY: the caller's pointer.
    with(|_| unsafe { put(stream, std::ptr::dangling_mut()) })
}

#[unsafe(no_mangle)]
pub extern "C" fn hipStreamDestroy(_stream: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn hipStreamSynchronize(_stream: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn hipStreamQuery(_stream: *mut c_void) -> c_int {
    // What other ranks send is all that is not done when a call returns.
    let is_done = crate::rccl::is_done();
    with(|_| if is_done? { Ok(()) } else { failed(NOT_READY, "what other ranks send has not come") })
}

/// A kernel runs when it is launched, so what it waits for has to come first: whoever sends it is another process.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamWaitEvent(_stream: *mut c_void, _event: usize, _flags: c_uint) -> c_int {
    loop {
        match crate::rccl::is_done() {
            Ok(false) => std::thread::sleep(std::time::Duration::from_micros(100)),
            is_done => return with(|_| is_done.map(drop)),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGet(device_of: *mut c_int, number: c_int) -> c_int {
    with(|_| {
        device(number)?;
        // SAFETY: the caller's pointer.
        unsafe { put(device_of, number) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetPCIBusId(text: *mut c_char, length: c_int, number: c_int) -> c_int {
    with(|_| {
        device(number)?;
        let name = format!("0000:{number:02x}:00.0\0");
        if (length as usize) < name.len() || text.is_null() {
            return failed(INVALID_VALUE, format!("{length} bytes are too few for the place on a bus"));
        }
        // SAFETY: the caller has room for `length` bytes.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), text, name.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetUuid(uuid: *mut [u8; 16], number: c_int) -> c_int {
    with(|_| {
        device(number)?;
        // SAFETY: the caller's pointer.
        unsafe { put(uuid, (number as u128 + 1).to_be_bytes()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventCreateWithFlags(event: *mut usize, _flags: c_uint) -> c_int {
    // SAFETY: the caller's pointer.
    with(|state| unsafe { put(event, state.create_event()) })
}

#[unsafe(no_mangle)]
pub extern "C" fn hipEventRecord(event: usize, _stream: *mut c_void) -> c_int {
    with(|state| state.record(event))
}

#[unsafe(no_mangle)]
pub extern "C" fn hipEventSynchronize(_event: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) -> c_int {
    with(|state| {
        let seconds = state.elapsed(from, to)?;
        // SAFETY: the caller's pointer.
        unsafe { put(milliseconds, (seconds * 1e3) as f32) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hipEventDestroy(event: usize) -> c_int {
    with(|state| state.destroy_event(event))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadData(module: *mut usize, image: *const c_void) -> c_int {
    with(|state| {
        // SAFETY: the caller's image is a whole ELF file.
        let image = unsafe { whole_image(image) }?;
        let handle = state.load(image)?;
        // SAFETY: the caller's pointer.
        unsafe { put(module, handle) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hipModuleUnload(module: usize) -> c_int {
    with(|state| state.unload(module))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> c_int {
    with(|state| {
        // SAFETY: the caller's string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let handle = state.function(module, &name)?;
        // SAFETY: the caller's pointer.
        unsafe { put(function, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleGetGlobal(address: *mut u64, bytes: *mut usize, module: usize, name: *const c_char) -> c_int {
    with(|state| {
        // SAFETY: the caller's string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let (found, size) = state.constant(module, &name)?;
        // SAFETY: the caller's pointers.
        unsafe {
            put(address, found)?;
            put(bytes, size)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLaunchKernel(
    function: usize,
    groups_x: c_uint,
    groups_y: c_uint,
    groups_z: c_uint,
    threads_x: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared: c_uint,
    _stream: *mut c_void,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    with(|state| {
        if threads_y != 1 || threads_z != 1 || !extra.is_null() || arguments.is_null() {
            return failed(INVALID_CONFIGURATION, "one row of threads and an array of arguments are what is known here");
        }
        let value = |index: usize, size: usize| {
            // SAFETY: the caller's array has a pointer for every argument, to a value of the argument's size.
            Ok(unsafe { bytes_at(*arguments.add(index), size) }.to_vec())
        };
        state.launch(function, [groups_x, groups_y, groups_z], threads_x, shared, value)
    })
}

/// # Safety
/// `from` points to `count` bytes, or `count` is 0.
unsafe fn bytes_at<'a>(from: *const c_void, count: usize) -> &'a [u8] {
    // SAFETY: as the caller vouches.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from.cast(), count) } }
}

/// The bytes of an ELF file, whose size nobody says: it ends with the last of its segments, sections and tables.
///
/// # Safety
/// `image` points to a whole ELF file.
unsafe fn whole_image<'a>(image: *const c_void) -> Result<&'a [u8], Failure> {
    const HEADER: usize = 64;
    /// ELF's number for AMD GPUs, and the number of gfx950 in the low byte of its flags.
    const MACHINE: u64 = 224;
    const GFX950: u64 = 0x4F;
    let read = |at: usize, count: usize| -> u64 {
        // SAFETY: every read below lies inside the file, as its own headers say.
        let bytes = unsafe { bytes_at(image.byte_add(at), count) };
        bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    };
    // SAFETY: as above.
    if !unsafe { bytes_at(image, 6) }.starts_with(b"\x7fELF\x02\x01") {
        return failed(INVALID_IMAGE, "the image is no little-endian ELF64 file");
    }
    let (machine, flags) = (read(18, 2), read(48, 4));
    if machine != MACHINE || flags & 0xFF != GFX950 {
        return failed(NO_BINARY_FOR_GPU, format!("the image is for ELF machine {machine}, processor {:#x}", flags & 0xFF));
    }
    let mut end = HEADER;
    // Position of each table, size and number of its entries, and where an entry has offset and size of what it describes.
    for (table, size, count, offset_at, size_at) in
        [(read(32, 8), read(54, 2), read(56, 2), 8, 32), (read(40, 8), read(58, 2), read(60, 2), 24, 32)]
    {
        for index in 0..count {
            let at = (table + size * index) as usize;
            end = end.max(at + size as usize);
            // A section without bytes in the file (type 8) has a size all the same.
            if offset_at == 8 || read(at + 4, 4) != 8 {
                end = end.max((read(at + offset_at, 8) + read(at + size_at, 8)) as usize);
            }
        }
    }
    // SAFETY: as the caller vouches.
    Ok(unsafe { bytes_at(image, end) })
}
