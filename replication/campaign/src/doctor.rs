//! What this machine has and what each profile lacks on it. Looks only: nothing is built, fetched or written. A trainer that is there
//! already is asked for GPUs; without one, device files and libraries are looked for.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use contract::device::{DeviceKind, Devices, GpuFacts};
use contract::memory::host::HostMemory;
use contract::text::GIB;
use study::files;
use study::manifest::profile::Detect;
use study::manifest::{Hardware, Manifests, Profile};
use study::plan::run_cache;

use crate::data;
use crate::devices::Answers;
use crate::forecast::{self, Spread};
use crate::machine::{self, ask};
use crate::ranks;
use crate::request::Request;
use crate::system::free_bytes;
use crate::toolchain::{at_hand, cargo};

/// What `cargo xtask doctor` prints.
#[derive(Debug, Clone)]
pub struct Doctor {
    /// The machine, one line a fact.
    pub machine: Vec<String>,
    /// Devices found and not found.
    pub devices: Vec<String>,
    pub tools: Vec<String>,
    pub disk: Vec<String>,
    /// What earlier commands left behind.
    pub cache: Vec<String>,
    /// Every profile and what it lacks; empty: ready.
    pub profiles: Vec<ProfileState>,
}

/// One profile on this machine.
#[derive(Debug, Clone)]
pub struct ProfileState {
    pub id: String,
    pub title: String,
    /// How long it takes on the machine it was made for, in minutes.
    pub minutes: Option<f64>,
    /// What is missing, one line each; empty: ready.
    pub lacks: Vec<String>,
}

/// Looks at everything. `trainer` is one to ask for GPUs, instead of the one that was built or packed.
pub fn doctor(root: &Path, manifests: &Manifests, trainer: Option<&Path>) -> Doctor {
    let found = ask_devices(root, trainer, &Answers::default());
    let profiles = manifests.profiles.values().filter(|profile| !profile.hidden).map(|profile| ProfileState {
        id: profile.id.to_string(),
        title: profile.title.clone(),
        minutes: profile.requires.get("minutes").copied(),
        lacks: lacks_with(profile, manifests, root, (found.as_ref(), None)),
    });
    Doctor {
        machine: machine_lines(),
        devices: device_lines(manifests, found.as_ref()),
        tools: tool_lines(),
        disk: disk_lines(root),
        cache: cache_lines(root, manifests),
        profiles: profiles.collect(),
    }
}

impl fmt::Display for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sections =
            [("machine", &self.machine), ("devices", &self.devices), ("tools", &self.tools), ("disk", &self.disk), ("cache", &self.cache)];
        for (name, lines) in sections {
            writeln!(f, "{name}")?;
            for line in lines {
                writeln!(f, "  {}", line.replace('\n', "\n  "))?;
            }
        }
        writeln!(f, "profiles")?;
        for profile in &self.profiles {
            let minutes =
                profile.minutes.map(|minutes| format!(", about {minutes} min on the machine it was made for")).unwrap_or_default();
            let state = if profile.lacks.is_empty() { "ready" } else { "lacks" };
            writeln!(f, "  {} ({}{minutes}): {state}", profile.id, profile.title)?;
            for line in &profile.lacks {
                writeln!(f, "    - {line}")?;
            }
        }
        Ok(())
    }
}

/// What a trainer that is there already finds; None without one, or when it cannot say.
fn ask_devices(root: &Path, trainer: Option<&Path>, answers: &Answers) -> Option<Devices> {
    at_hand(root, trainer).and_then(|trainer| answers.of(&trainer).ok())
}

/// What `profile` needs and this machine or repository does not have, one line each with what to do; empty: ready to run. Crates of
/// the default dataset are not counted, because the first run fetches them by itself. `trainer` as for [`doctor`], `ranks` as of
/// [`ranks::of_run`].
fn lacks(
    profile: &Profile,
    manifests: &Manifests,
    root: &Path,
    (trainer, ranks): (Option<&Path>, Option<usize>),
    answers: &Answers,
) -> Vec<String> {
    let on_cpu = manifests.hardware.get(&profile.hardware).is_none_or(|hardware| hardware.device == DeviceKind::Cpu);
    let found = if on_cpu { None } else { ask_devices(root, trainer, answers) };
    lacks_with(profile, manifests, root, (found.as_ref(), ranks))
}

/// The same of what `request` asks for. Runs on other machines, which see this repository, need data, a tokenizer and room here.
pub fn lacks_for(request: &Request, profile: &Profile, manifests: &Manifests, answers: &Answers) -> Vec<String> {
    let root = manifests.root.as_path();
    match request.slurm {
        None => lacks(profile, manifests, root, (request.trainer.as_deref(), request.ranks), answers),
        Some(_) => lacks_files(profile, manifests, root),
    }
}

fn lacks_with(profile: &Profile, manifests: &Manifests, root: &Path, (found, ranks): (Option<&Devices>, Option<usize>)) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(hardware) = manifests.hardware.get(&profile.hardware) {
        let usable = found.filter(|_| hardware.device != DeviceKind::Cpu).map(|devices| largest_first(devices, hardware.device));
        match usable.filter(|gpus| !gpus.is_empty()) {
            Some(gpus) => all.extend(lacks_ranks(manifests, profile, hardware.device, &gpus, ranks)),
            None => all.extend(lacks_device(hardware, forecast::gpus(profile) as f64, Path::new("/"), found)),
        }
    }
    if manifests.hardware.get(&profile.hardware).is_some_and(|hardware| hardware.device == DeviceKind::Cpu) {
        match forecast::alone(manifests, profile, None) {
            Ok(needed) => all.extend(lacks_run_memory(&needed, machine::memory())),
            Err(error) => all.push(error.to_string()),
        }
    }
    let need = |key: &str| profile.requires.get(key).copied();
    all.extend(need("cores").and_then(|cores| lacks_cores(cores, machine::cores())));
    all.extend(need("memory_gib").and_then(|gib| lacks_memory(gib, machine::memory())));
    all.extend(lacks_files(profile, manifests, root));
    all
}

/// Data, tokenizer and room.
pub(crate) fn lacks_files(profile: &Profile, manifests: &Manifests, root: &Path) -> Vec<String> {
    let mut all: Vec<String> = data::lacks(manifests, profile, root).into_iter().collect();
    if let Some(tokenizer) = manifests.tokenizers.get(&profile.tokenizer) {
        let here = tokenizer.file.as_ref().is_some_and(|file| root.join(file).is_file());
        if !here {
            all.push(format!("tokenizer {}: {}", tokenizer.id, tokenizer.how_to_get));
        }
    }
    all.extend(profile.requires.get("disk_gib").and_then(|gib| lacks_disk(*gib, root)));
    all
}

/// The usable GPUs of this kind, those with most memory first.
fn largest_first(devices: &Devices, device: DeviceKind) -> Vec<&GpuFacts> {
    let mut all: Vec<&GpuFacts> = devices.usable(device.word()).collect();
    all.sort_by_key(|gpu| std::cmp::Reverse(gpu.memory_bytes));
    all
}

/// What a run lacks on the largest of these GPUs, as many as it has ranks. Fewer than the profile names take longer, and that is all.
fn lacks_ranks(manifests: &Manifests, profile: &Profile, device: DeviceKind, gpus: &[&GpuFacts], asked: Option<usize>) -> Option<String> {
    let ranks = match ranks::of_run(profile, device, gpus.len(), asked) {
        Ok(ranks) => ranks,
        Err(line) => return Some(line),
    };
    let smallest = gpus.get(ranks - 1)?;
    match forecast::spread(manifests, profile, ranks as u64, smallest.mxfp4) {
        Ok(needed) => lacks_gpu_memory(&needed, smallest),
        Err(error) => Some(error.to_string()),
    }
}

/// One line when a run does not fit GPUs of which this is the smallest.
fn lacks_gpu_memory(needed: &Spread, gpu: &GpuFacts) -> Option<String> {
    let there = gpu.memory_bytes?;
    let on = if needed.gpus == 1 { "one".to_owned() } else { format!("each of {}", needed.gpus) };
    needed.fits(there).is_none().then(|| {
        format!(
            "memory of a GPU: a run needs {:.1} GiB on {on} (modelled; --dry-run shows the sum), {} has {:.1}; smaller micro-batches (batch.accumulation) and more GPUs a run (--ranks-per-run) need less",
            needed.least as f64 / GIB,
            gpu.name.as_deref().unwrap_or(&gpu.device),
            there as f64 / GIB
        )
    })
}

/// What the trainer found, where it was asked; otherwise device file, driver library and count of devices.
fn lacks_device(hardware: &Hardware, count: f64, system: &Path, found: Option<&Devices>) -> Vec<String> {
    match (hardware.device, found) {
        (DeviceKind::Cpu, _) => Vec::new(),
        (_, Some(devices)) => {
            let usable = devices.usable(hardware.device.word()).count();
            if usable as f64 >= count {
                return Vec::new();
            }
            let mut all = vec![format!("{}: {count} needed, {usable} can be used", hardware.title)];
            all.extend(devices.lines_of(hardware.device.word()));
            all
        }
        (_, None) => lacks_driver(hardware, count, system),
    }
}

/// Device file, driver library and count of devices.
fn lacks_driver(hardware: &Hardware, count: f64, system: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let Detect { file, library } = &hardware.detect;
    if let Some(file) = file.as_ref().filter(|file| !system.join(file.trim_start_matches('/')).exists()) {
        all.push(format!("{}: there is no {file}; a machine with that device and its driver is needed", hardware.title));
    } else if let Some(library) = library.as_ref().filter(|library| find_library(system, library).is_none()) {
        all.push(format!(
            "{}: {library} is in none of the usual folders; install the driver's libraries or name their folder in LD_LIBRARY_PATH",
            hardware.title
        ));
    }
    let found = count_devices(hardware.device, system);
    if (found as f64) < count {
        all.push(format!("{}: {count} needed, {found} found", hardware.title));
    }
    all
}

fn lacks_cores(needed: f64, here: usize) -> Option<String> {
    ((here as f64) < needed).then(|| format!("cores: {needed} needed, {here} may be used here"))
}

fn lacks_memory(needed: f64, memory: HostMemory) -> Option<String> {
    let usable = memory.usable()? as f64 / GIB;
    (usable < needed).then(|| format!("memory: {needed} GiB needed, {usable:.1} GiB may be used here (control-group limit counted)"))
}

/// One line when a run on the CPU does not fit what may be used here.
fn lacks_run_memory(needed: &Spread, memory: HostMemory) -> Option<String> {
    let usable = memory.usable()?;
    needed.fits(usable).is_none().then(|| {
        format!(
            "memory: a run needs {:.1} GiB (modelled; --dry-run shows the sum), {:.1} GiB may be used here (control-group limit counted)",
            needed.least as f64 / GIB,
            usable as f64 / GIB
        )
    })
}

/// What is in the cache already need not find room again.
fn lacks_disk(needed: f64, root: &Path) -> Option<String> {
    let free = free_bytes(&root.join("cache"))? as f64 / GIB;
    if free >= needed {
        return None;
    }
    let used = size_of(&root.join("cache")) as f64 / GIB;
    (free + used < needed).then(|| format!("disk: {needed} GiB needed below cache/, {free:.1} GiB free there and {used:.1} GiB in it; make room, or make cache/ a link to a larger disk"))
}

/// Where drivers put their libraries, below the root of the file system.
const LIBRARY_FOLDERS: [&str; 13] = [
    "usr/lib",
    "usr/lib64",
    "lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/cuda/compat",
    "usr/local/cuda/lib64",
    "usr/local/cuda/targets/x86_64-linux/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
    "opt/rocm/lib",
    "opt/rocm/lib64",
];

/// The first file whose name is `library`, or `library` with a version behind it.
fn find_library(system: &Path, library: &str) -> Option<PathBuf> {
    let named: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH").map(|paths| std::env::split_paths(&paths).collect()).unwrap_or_default();
    let usual = LIBRARY_FOLDERS.iter().map(|folder| system.join(folder));
    named.into_iter().chain(usual).find_map(|folder| {
        let mut names: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
        names.sort();
        let version = |path: &PathBuf| {
            path.file_name()
                .and_then(|name| name.to_str()?.strip_prefix(library))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        names.into_iter().find(version)
    })
}

/// Accelerators of a kind: numbered NVIDIA device files, or nodes of the AMD kernel driver that have vector units.
fn count_devices(device: DeviceKind, system: &Path) -> usize {
    let entries = |folder: &str| fs::read_dir(system.join(folder)).into_iter().flatten().flatten();
    match device {
        DeviceKind::Cpu => 1,
        DeviceKind::Cuda => {
            let numbered = |name: &str| {
                name.strip_prefix("nvidia").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
            };
            entries("dev").filter(|entry| entry.file_name().to_str().is_some_and(numbered)).count()
        }
        DeviceKind::Hip => {
            let accelerates =
                |text: String| text.lines().filter_map(|line| line.strip_prefix("simd_count ")).any(|count| count.trim() != "0");
            let nodes = entries("sys/class/kfd/kfd/topology/nodes");
            nodes.filter(|node| fs::read_to_string(node.path().join("properties")).is_ok_and(accelerates)).count()
        }
    }
}

fn machine_lines() -> Vec<String> {
    let memory = machine::memory();
    let gib = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), |bytes| format!("{:.1} GiB", bytes as f64 / GIB));
    let limit = memory.limit.map(|_| format!(", limited to {}", gib(memory.limit))).unwrap_or_default();
    let sets = machine::instruction_sets();
    vec![
        format!("processor: {} ({})", machine::cpu_model(), std::env::consts::ARCH),
        format!("cores: {} may be used", machine::cores()),
        format!("instruction sets: {}", if sets.is_empty() { "none beyond the base".to_owned() } else { sets.join(", ") }),
        format!("memory: {}{limit}", gib(memory.total)),
        format!(
            "system: {} {}{}",
            std::env::consts::OS,
            machine::kernel().unwrap_or_default(),
            if machine::container() { ", in a container" } else { "" }
        ),
    ]
}

fn device_lines(manifests: &Manifests, found: Option<&Devices>) -> Vec<String> {
    let line = |hardware: &Hardware| {
        if hardware.device == DeviceKind::Cpu {
            return format!("{}: here", hardware.device.word());
        }
        let system = Path::new("/");
        let file =
            hardware.detect.file.as_deref().map(|file| format!("{file} {}", if Path::new(file).exists() { "found" } else { "not found" }));
        let library = hardware.detect.library.as_deref().map(|library| {
            format!("{library} {}", find_library(system, library).map_or("not found".to_owned(), |path| format!("at {}", path.display())))
        });
        let parts: Vec<String> = file.into_iter().chain(library).collect();
        format!("{} ({}): {} devices; {}", hardware.device.word(), hardware.title, count_devices(hardware.device, system), parts.join(", "))
    };
    let mut lines: Vec<String> = manifests.hardware.values().map(line).collect();
    match found {
        Some(devices) => lines.extend(devices.lines().into_iter().map(|line| format!("trainer: {line}"))),
        None => lines.push(format!(
            "trainer: not built yet, or too old to say (`cargo xtask replicate` builds it), so nobody opened a GPU; {}",
            gpu_files()
        )),
    }
    lines
}

/// What the trainer would load for a GPU, by the files in the usual folders, and what `nvidia-smi` says.
fn gpu_files() -> String {
    let libraries = [
        ("libcuda.so.1", "NVIDIA's driver"),
        ("libnvrtc.so", "the CUDA toolkit 12 or 13, or the Python package nvidia-cuda-nvrtc"),
        ("libcublasLt.so", "the CUDA toolkit 12 or 13, or the Python package nvidia-cublas"),
        ("libamdhip64.so", "ROCm 7: hip-runtime-amd"),
        ("libhipblaslt.so", "ROCm 7: hipblaslt"),
    ];
    let mut parts: Vec<String> = libraries
        .iter()
        .map(|(library, package)| match find_library(Path::new("/"), library) {
            Some(path) => format!("{library} at {}", path.display()),
            None => format!("{library} not found ({package})"),
        })
        .collect();
    if let Some(gpus) = ask("nvidia-smi", &["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]) {
        parts.extend(gpus.lines().map(|line| format!("nvidia-smi: {line}")));
    }
    parts.join("; ")
}

fn tool_lines() -> Vec<String> {
    let cargo = cargo().to_string_lossy().into_owned();
    let tools: [(&str, &str, &[&str], &str); 4] = [
        ("cargo", &cargo, &["-V"], "nothing can be built without it"),
        ("cc", "cc", &["--version"], "cargo needs a linker; install a C compiler"),
        ("git", "git", &["--version"], "results will not name a commit"),
        ("latexmk", "latexmk", &["--version"], "report.pdf will not be made; report.tex and report.html will"),
    ];
    let line = |(name, program, arguments, without): (&str, &str, &[&str], &str)| match ask(program, arguments) {
        Some(text) => format!("{name}: {}", text.lines().next().unwrap_or_default()),
        None => format!("{name}: not found; {without}"),
    };
    tools.into_iter().map(line).collect()
}

fn disk_lines(root: &Path) -> Vec<String> {
    let line = |name: &str| {
        let free = free_bytes(&root.join(name)).map_or("unknown".to_owned(), |bytes| format!("{:.1} GiB free", bytes as f64 / GIB));
        format!("{name}/: {free}")
    };
    ["cache", "results"].map(line).to_vec()
}

fn cache_lines(root: &Path, manifests: &Manifests) -> Vec<String> {
    let runs = run_cache(root);
    let finished = fs::read_dir(&runs).into_iter().flatten().flatten().filter(|entry| entry.path().join("done.json").is_file()).count();
    let mut lines = vec![format!("{finished} finished runs; {:.2} GiB in all", size_of(&root.join("cache")) as f64 / GIB)];
    match data::status(manifests, false) {
        Ok(all) => lines.extend(all.iter().map(|status| {
            let state = match (status.here.len(), status.missing.len()) {
                (0, _) => "not here",
                (_, 0) => "here",
                _ => "partly here",
            };
            format!("dataset {}: {state}", status.id)
        })),
        Err(error) => lines.push(error.to_string()),
    }
    lines
}

/// Bytes of all files below a folder; zero when it is not there.
fn size_of(folder: &Path) -> u64 {
    let names = files::look(folder).unwrap_or_default().files;
    names.iter().filter_map(|name| fs::metadata(folder.join(name)).ok()).map(|metadata| metadata.len()).sum()
}

#[cfg(test)]
mod tests;
