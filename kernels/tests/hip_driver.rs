//! The HIP driver's host code against the stand-in (kernels/gfx950/stand-in): loading, argument packing, launch geometry, copies,
//! products, and what it says when something is missing or goes wrong. The kernels' machine code runs in the gfx950 interpreter.
//!
//! The loader reads LD_LIBRARY_PATH once, so each test starts this executable again with the path set; what runs there is marked
//! `ignored`. Tests that compile need clang 22; without it they say so and do nothing, unless REQUIRE_CLANG_22 is set, as in CI.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::c_void;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::format::bf16;
use kernels::gpu::driver::Grid;
use kernels::gpu::{Bf16, Elementwise, Gpu, GpuError, Kind};
use kernels::quantise::{Prepared, Randomness, Source, prepare_reference};

/// Runs one of the ignored tests below with these libraries, and says what it printed.
fn inside(test: &str, libraries: &Path, settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("hip_driver::{test}"), "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("LD_LIBRARY_PATH", libraries).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("ROCM_PATH");
    let output = command.envs(settings.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}");
    text
}

fn on_the_stand_in(test: &str, settings: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    gfx950_stand_in::install(folder.path()).unwrap();
    inside(test, folder.path(), settings)
}

/// What opening the device says, between marks.
#[test]
#[ignore = "runs in a process that `inside` starts"]
fn opening() {
    match Gpu::hip(0) {
        Ok(gpu) => println!("<<{:?}>>", gpu.description()),
        Err(error) => println!("<<{error}>>"),
    }
}

fn marked(text: &str) -> String {
    text.split_once("<<").and_then(|(_, rest)| rest.split_once(">>")).expect(text).0.to_owned()
}

#[test]
fn the_device_says_that_it_is_none() {
    if gfx950_stand_in::has_clang() {
        let text = marked(&on_the_stand_in("opening", &[]));
        assert!(text.contains("kind: \"hip\", ordinal: 0, name: \"gfx950 interpreter\", architecture: \"gfx950\""), "{text}");
        assert!(text.contains("has_fp8: true, has_mxfp4: true, interpreted: true"), "{text}");
        assert!(
            text.contains("(\"gfx950 interpreter in place of HIP\", \"0.1.0\"), (\"clang\", ") && text.contains("clang version 22"),
            "{text}"
        );
        assert!(text.contains("(\"hipBLASLt\", \"0.1.0\")"), "{text}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let has_rocm = Path::new("/opt/rocm").exists();
    if !has_rocm && Kind::Hip.count().is_err() {
        let text = marked(&inside("opening", empty.path(), &[]));
        assert!(text.starts_with("libamdhip64.so.7 was not found (libamdhip64.so.7: cannot open shared object file"), "{text}");
        assert!(text.ends_with("it comes with ROCm 7 (apt-get install hip-runtime-amd, from AMD's repository). If it is installed, name its folder in LD_LIBRARY_PATH"), "{text}");
    }
    if !has_rocm {
        let text = marked(&on_the_stand_in("opening", &[("PATH", "/nonexistent"), ("ROCM_PATH", "/nowhere/rocm")]));
        assert_eq!(
            text,
            "no compiler for AMD GPUs was found (tried, in this order: /nowhere/rocm/llvm/bin/clang++, /opt/rocm/llvm/bin/clang++, \
             amdclang++, clang++-22); it comes with ROCm 7, or Debian's clang: apt-get install --no-install-recommends clang-22 lld-22"
        );
    }
    let text = marked(&on_the_stand_in("opening", &[("GFX950_STAND_IN_DEVICES", "0")]));
    assert_eq!(
        text,
        "there is no device hip:0: this machine has 0 AMD GPUs, numbered from 0; the amdgpu kernel driver must be loaded, and the user \
         in the groups render and video (`rocminfo` shows both)"
    );
    let text = marked(&on_the_stand_in("opening", &[("GFX950_STAND_IN_CAPABILITY", "9.4")]));
    assert_eq!(
        text,
        "hip:0 gfx950 interpreter has architecture 9.4 (gfx94x); the kernels are for gfx950 (9.5), which MI350X and MI355X have"
    );
}

#[test]
fn a_library_that_is_too_old_is_named_with_the_function_it_lacks() {
    if gfx950_stand_in::has_clang() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libamdhip64.so.7");
        std::fs::write(folder.path().join("old.c"), "int hipInit(unsigned flags) { return 0; }").unwrap();
        let arguments = ["-x", "c", "-shared", "-fPIC", "-nostdlib", "-fuse-ld=lld", "-o"];
        let status = Command::new("clang++-22").args(arguments).arg(&library).arg(folder.path().join("old.c")).status().unwrap();
        assert!(status.success());
        assert_eq!(
            marked(&inside("opening", folder.path(), &[])),
            "libamdhip64.so.7 has no function hipRuntimeGetVersion: it is too old; install ROCm 7 (apt-get install hip-runtime-amd, from AMD's repository)"
        );
    }
}

/// Values that BF16 has.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bf16::round((state >> 8) as f32 / (1 << 22) as f32 - 2.0)
    };
    (0..count).map(|_| next()).collect()
}

fn to_bf16(values: &[f32]) -> Vec<Bf16> {
    values.iter().map(|&value| Bf16(bf16::encode(value))).collect()
}

fn from_bf16(values: &[Bf16]) -> Vec<f32> {
    values.iter().map(|value| bf16::decode(value.0)).collect()
}

#[test]
fn copies_and_kernels() {
    if gfx950_stand_in::has_clang() {
        for order in ["serial", "reversed", "round-robin"] {
            on_the_stand_in("copies_and_kernels_inside", &[("GFX950_STAND_IN_ORDER", order)]);
        }
    }
}

#[test]
#[ignore = "runs in a process that `inside` starts"]
fn copies_and_kernels_inside() {
    let gpu = Gpu::hip(0).unwrap();
    let (free, total) = gpu.driver().memory().unwrap();
    assert_eq!((free, total), (2048 << 20, 2048 << 20));
    // Copies: to the device and back, inside a buffer, on the device; memory that is given back is free again.
    let mut first = gpu.upload(&numbers(1000, 1)).unwrap();
    assert_eq!(gpu.driver().memory().unwrap().0, total - 4000);
    first.write(10, &[5.0, 6.0]).unwrap();
    let second = gpu.zeros::<f32>(1000).unwrap();
    first.copy_to(&second, 500).unwrap();
    let (found, mut expected) = (second.to_vec().unwrap(), numbers(1000, 1));
    expected[10..12].copy_from_slice(&[5.0, 6.0]);
    expected[500..].fill(0.0);
    assert_eq!(found, expected);
    drop((first, second));
    assert_eq!(gpu.driver().memory().unwrap().0, total);

    // Arguments of four and eight bytes, several workgroups, rows of a table: what arrives is what was meant.
    let elementwise = Elementwise::new(&gpu).unwrap();
    let (vocabulary, width, tokens) = (40, 72, [3u32, 39, 0, 3, 17, 22, 39, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1, 2, 3, 4, 5, 6, 7, 30, 31]);
    let values = numbers(vocabulary * width, 2);
    let table = gpu.upload(&values).unwrap();
    let mut out = gpu.buffer::<Bf16>(tokens.len() * width).unwrap();
    let before = gpu.driver().record().unwrap();
    elementwise.embedding((&table, 0), &gpu.upload(&tokens).unwrap(), &mut out, tokens.len(), width).unwrap();
    let after = gpu.driver().record().unwrap();
    assert!(gpu.driver().elapsed(before, after).unwrap() > 0.0);
    let expected: Vec<f32> = tokens.iter().flat_map(|&token| values[token as usize * width..][..width].to_vec()).collect();
    assert_eq!(from_bf16(&out.to_vec().unwrap()), expected);
}

#[test]
fn structs_as_arguments_and_grids_of_two_axes() {
    if gfx950_stand_in::has_clang() {
        on_the_stand_in("structs_as_arguments_and_grids_of_two_axes_inside", &[]);
    }
}

/// One side of `mxfp4_quantise`, as kernels/gfx950/README.md has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    codes: u64,
    scales: u64,
    rotation: u32,
    signs: [u32; 4],
    rule: u32,
    rounding: u32,
    k0: u32,
    k1: u32,
    layout: u32,
    square: u32,
    unused: u32,
}

#[test]
#[ignore = "runs in a process that `inside` starts"]
fn structs_as_arguments_and_grids_of_two_axes_inside() {
    let gpu = Gpu::hip(0).unwrap();
    let driver = gpu.driver();
    let (rows, k) = (160usize, 288usize);
    let values = numbers(rows * k, 3);
    let source = driver.allocate(2 * rows * k).unwrap();
    let bytes: Vec<u8> = to_bf16(&values).iter().flat_map(|value| value.0.to_le_bytes()).collect();
    driver.upload(&bytes, source).unwrap();
    let nothing =
        Side { codes: 0, scales: 0, rotation: 0, signs: [0; 4], rule: 0, rounding: 0, k0: 0, k1: 0, layout: 0, square: 0, unused: 0 };
    let side = || {
        let [codes, scales] = [rows * k / 2, rows * k / 32].map(|bytes| driver.allocate(bytes).unwrap());
        Side { codes, scales, rotation: 16, rule: 1, ..nothing }
    };
    let (mut source_argument, mut sizes, mut sides) = (source, [rows as u32, k as u32], [side(), side()]);
    let function = driver.function("gfx950/quantise.hip", &[], "mxfp4_quantise").unwrap();
    let mut arguments: [*mut c_void; 5] = [
        (&raw mut source_argument).cast(),
        (&raw mut sizes[0]).cast(),
        (&raw mut sizes[1]).cast(),
        (&raw mut sides[0]).cast(),
        (&raw mut sides[1]).cast(),
    ];
    let grid = Grid { groups: [k.div_ceil(128) as u32, rows.div_ceil(128) as u32, 1], threads: 256, shared: 0 };
    // SAFETY: the arguments are those of the kernel.
    unsafe { driver.launch(function, grid, &mut arguments).unwrap() };
    let rotation = Some(Rotation { size: 16, signs: Signs::None });
    let spec = OperandSpec { format: Format::E2m1, block: Block::Row32, scale: ScaleRule::Even, rounding: Rounding::NearestEven, rotation };
    for (transposed, side) in [false, true].into_iter().zip(sides) {
        let (rows, k) = if transposed { (k, rows) } else { (rows, k) };
        let source = Source { values: &values, rows, k, transposed };
        let expected = prepare_reference(source, &spec, Randomness { rounding: None, signs: None }, None).unwrap().0;
        let Prepared::Mxfp4(expected) = expected else { panic!("E2M1 gives codes") };
        let (mut codes, mut scales) = (vec![0; rows * k / 2], vec![0; rows * k / 32]);
        driver.download(side.codes, &mut codes).unwrap();
        driver.download(side.scales, &mut scales).unwrap();
        assert!(codes == expected.codes && scales == expected.scales, "transposed: {transposed}");
    }
}

#[test]
fn faults_come_back_with_the_kernel_that_made_them() {
    if gfx950_stand_in::has_clang() {
        on_the_stand_in("faults_come_back_with_the_kernel_that_made_them_inside", &[]);
    }
}

#[test]
#[ignore = "runs in a process that `inside` starts"]
fn faults_come_back_with_the_kernel_that_made_them_inside() {
    let gpu = Gpu::hip(0).unwrap();
    // Bytes beyond a buffer.
    let buffer = gpu.driver().allocate(64).unwrap();
    let error = gpu.driver().download(buffer, &mut [0; 65]).unwrap_err().to_string();
    assert!(error.starts_with("hipMemcpyDtoHAsync failed: a copy of 65 bytes at 0x"), "{error}");
    assert!(
        error.contains("is outside every allocation (nearest below: allocation 1 of 64 bytes, 0 bytes from its start) (HIP error 1)"),
        "{error}"
    );
    // A kernel whose table is too small: token 9 of 4.
    let elementwise = Elementwise::new(&gpu).unwrap();
    let table = gpu.upload(&numbers(4 * 8, 4)).unwrap();
    let mut out = gpu.buffer::<Bf16>(8).unwrap();
    let error = elementwise.embedding((&table, 0), &gpu.upload(&[9u32]).unwrap(), &mut out, 1, 8).unwrap_err().to_string();
    assert!(
        error.starts_with("a launch of 1 x 1 x 1 workgroups of ")
            && error.contains("kernel embedding, workgroup [0, 0, 0], wave 0, lane 0"),
        "{error}"
    );
    assert!(error.contains("is outside every allocation") && error.ends_with("(HIP error 719)"), "{error}");
    // What was never written decides nothing.
    let unwritten = gpu.buffer::<f32>(4 * 8).unwrap();
    let error = elementwise.embedding((&unwritten, 0), &gpu.upload(&[1u32]).unwrap(), &mut out, 1, 8).unwrap_err().to_string();
    assert!(error.contains("depends on a value that was never written"), "{error}");
    // Not a kernel, not a constant, not a file.
    let driver = gpu.driver();
    let error = driver.function("elementwise.cu", &[], "nothing").unwrap_err().to_string();
    assert!(
        error.starts_with("nothing of elementwise.cu failed: the module has no kernel nothing; it has: ")
            && error.ends_with("(HIP error 500)"),
        "{error}"
    );
    assert!(driver.constant("elementwise.cu", &[], "nothing").unwrap_err().to_string().contains("no constant nothing"));
    let error = driver.function("norm.cu", &["-DWIDTH=oops".to_owned()], "rms_norm").unwrap_err();
    assert!(matches!(&error, GpuError::Compile { log, .. } if log.contains("clang++-22 (") && log.contains("oops")), "{error}");
}

#[test]
fn too_little_memory_is_said_in_numbers() {
    if gfx950_stand_in::has_clang() {
        on_the_stand_in("too_little_memory_is_said_in_numbers_inside", &[("GFX950_STAND_IN_MEMORY_MIB", "16")]);
    }
}

#[test]
#[ignore = "runs in a process that `inside` starts"]
fn too_little_memory_is_said_in_numbers_inside() {
    let gpu = Gpu::hip(0).unwrap();
    let kept = gpu.zeros::<u8>(4 << 20).unwrap();
    let error = gpu.buffer::<f32>(4 << 20).unwrap_err();
    assert_eq!(error, GpuError::Memory { wanted_mib: 16, free_mib: 12, total_mib: 16 });
    // A product needs 64 MiB for itself.
    let side = gpu.upload(&to_bf16(&numbers(64, 5))).unwrap();
    let out = gpu.buffer::<f32>(64).unwrap();
    let error = gpu.multiply(side.matrix(0, 8, 8, false).unwrap(), side.matrix(0, 8, 8, false).unwrap(), 1.0, None, &out, 0).unwrap_err();
    assert!(matches!(error, GpuError::Memory { wanted_mib: 64, .. }), "{error}");
    drop(kept);
}

#[test]
fn error_209_says_what_was_compiled_and_what_there_is() {
    if gfx950_stand_in::has_clang() {
        // A ROCm whose clang compiles for something else: $ROCM_PATH comes first.
        let rocm = tempfile::tempdir().unwrap();
        let program = rocm.path().join("llvm/bin/clang++");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        let script = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'clang version 22 for another GPU'; exit; fi\n\
                      for a; do shift; [ \"$a\" = --offload-arch=gfx950 ] && a=--offload-arch=gfx942; set -- \"$@\" \"$a\"; done\n\
                      exec clang++-22 \"$@\"\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = marked(&on_the_stand_in("error_209_inside", &[("ROCM_PATH", rocm.path().to_str().unwrap())]));
        assert_eq!(
            text,
            "loading elementwise.cu failed: HIP error 209: the code object is not for this GPU. It was compiled for gfx950 by clang version 22 \
             for another GPU; the runtime takes gfx950 interpreter for gfx950. Remove what is cached below $XDG_CACHE_HOME or ~/.cache in \
             mxfp4-replication/kernels, and see that ROCm is 7.0 or later, the first that knows gfx950"
        );
    }
}

#[test]
#[ignore = "runs in a process that `inside` starts"]
fn error_209_inside() {
    println!("<<{}>>", Elementwise::new(&Gpu::hip(0).unwrap()).unwrap_err());
}

#[test]
fn products() {
    if gfx950_stand_in::has_clang() {
        on_the_stand_in("products_inside", &[]);
        // Without hipBLASLt everything but a product goes.
        let folder = tempfile::tempdir().unwrap();
        gfx950_stand_in::install(folder.path()).unwrap();
        let alone = tempfile::tempdir().unwrap();
        symlink(std::fs::read_link(folder.path().join("libamdhip64.so.7")).unwrap(), alone.path().join("libamdhip64.so.7")).unwrap();
        if !Path::new("/opt/rocm").exists() {
            inside("without_products_inside", alone.path(), &[]);
        }
    }
}

#[test]
#[ignore = "runs in a process that `inside` starts"]
fn without_products_inside() {
    let gpu = Gpu::hip(0).unwrap();
    assert!(!format!("{:?}", gpu.description()).contains("hipBLASLt"));
    let side = gpu.upload(&to_bf16(&numbers(64, 5))).unwrap();
    let matrix = side.matrix(0, 8, 8, false).unwrap();
    let error = gpu.multiply(matrix, matrix, 1.0, None, &gpu.buffer::<f32>(64).unwrap(), 0).unwrap_err().to_string();
    assert!(error.starts_with("libhipblaslt.so.1 was not found") && error.contains("apt-get install hipblaslt"), "{error}");
}

#[test]
#[ignore = "runs in a process that `inside` starts"]
fn products_inside() {
    let gpu = Gpu::hip(0).unwrap();
    let (m, n, k) = (24, 40, 48);
    let (left, right, added) = (numbers(m * k, 6), numbers(n * k, 7), numbers(m * n, 8));
    let turned = |values: &[f32], rows: usize, columns: usize| -> Vec<f32> {
        (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
    };
    let expected = |alpha: f64| -> Vec<f64> {
        let dot = |i: usize, j: usize| (0..k).map(|l| f64::from(left[i * k + l]) * f64::from(right[j * k + l])).sum::<f64>();
        (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| alpha * dot(i, j) + f64::from(added[i * n + j])).collect()
    };
    // Sums of k products below 4: k roundings of partial sums below 4 k, half a unit in the last place each.
    let bound = (k * 4 * k) as f64 * 2f64.powi(-24);
    let close = |found: &[f32], expected: &[f64], bound: f64| {
        assert!(
            found.iter().zip(expected).all(|(found, expected)| (f64::from(*found) - expected).abs() <= bound),
            "{found:?} {expected:?}"
        );
    };
    for (left_turned, right_turned) in [(false, false), (true, false), (false, true), (true, true)] {
        let side = |values: &[f32], rows: usize, is_turned: bool| {
            let values = if is_turned { turned(values, rows, k) } else { values.to_vec() };
            gpu.upload(&to_bf16(&values)).unwrap()
        };
        let (out, kept) = (gpu.upload(&added).unwrap(), gpu.upload(&added).unwrap());
        let sides = (side(&left, m, left_turned), side(&right, n, right_turned));
        let (a, b) = (sides.0.matrix(0, m, k, left_turned).unwrap(), sides.1.matrix(0, n, k, right_turned).unwrap());
        gpu.multiply_into(a, b, 0.5, &out, 0).unwrap();
        close(&out.to_vec().unwrap(), &expected(0.5), bound);
        gpu.multiply(a, b, 1.0, Some(&kept), &out, 0).unwrap();
        close(&out.to_vec().unwrap(), &expected(1.0), bound);
    }
}
