//! What the machine in front of us is: processor, cores, memory, kernel, container. Read only, asked of the system each time.
//!
//! Nothing here names a host, a user or a folder: its answers are published. Where a system does not say, the answer is `None`
//! and never a guess. What a campaign needs of a machine is `doctor`'s business.

use std::fs;
use std::path::Path;

use contract::memory::host::HostMemory;

use crate::toolchain::captured;

/// The processor's name as it gives it itself; its architecture when it gives none.
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model_from_cpuinfo(&text)
        .or_else(|| ask("sysctl", &["-n", "machdep.cpu.brand_string"]))
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// x86 writes `model name`; Arm writes numbers of implementer and part only.
fn model_from_cpuinfo(text: &str) -> Option<String> {
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let arm = || Some(format!("Arm implementer {} part {}", value("CPU implementer")?, value("CPU part")?));
    value("model name").or_else(arm)
}

/// Hardware threads this process may use at once, affinity and cgroup quota counted.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Memory of the machine and of this process's control group.
pub fn memory() -> HostMemory {
    let memory = HostMemory::new(|path| fs::read_to_string(path).ok());
    HostMemory { total: memory.total.or_else(|| ask("sysctl", &["-n", "hw.memsize"])?.parse().ok()), ..memory }
}

/// Release of the running kernel: its version numbers, without the builder's own suffix.
pub fn kernel() -> Option<String> {
    let proc = fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned());
    proc.or_else(|| ask("uname", &["-r"])).map(|release| release.split('-').next().unwrap_or_default().to_owned())
}

/// Whether this process is in a container, as far as its usual signs tell.
pub fn container() -> bool {
    let marked = ["/.dockerenv", "/run/.containerenv"].iter().any(|path| Path::new(path).exists());
    let groups = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    marked
        || std::env::var_os("container").is_some()
        || ["docker", "kubepods", "containerd", "lxc", "libpod"].iter().any(|word| groups.contains(word))
}

/// Instruction sets beyond the architecture's base that the kernels know of, by their usual names.
pub fn instruction_sets() -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let known = [
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("fma", std::arch::is_x86_feature_detected!("fma")),
            ("avxvnni", std::arch::is_x86_feature_detected!("avxvnni")),
            ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
            ("avx512bw", std::arch::is_x86_feature_detected!("avx512bw")),
            ("avx512vl", std::arch::is_x86_feature_detected!("avx512vl")),
            ("avx512vnni", std::arch::is_x86_feature_detected!("avx512vnni")),
            ("avx512bf16", std::arch::is_x86_feature_detected!("avx512bf16")),
        ];
        found.extend(known.iter().filter(|(_, here)| *here).map(|(name, _)| *name));
    }
    #[cfg(target_arch = "aarch64")]
    {
        if std::arch::is_aarch64_feature_detected!("neon") {
            found.push("neon");
        }
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            found.push("dotprod");
        }
    }
    found
}

/// First words that a small program prints; none when it is missing, fails or prints nothing.
pub(crate) fn ask(program: &str, arguments: &[&str]) -> Option<String> {
    let output = captured(&duct::cmd(program, arguments).stdin_null().stderr_null().stdout_capture().unchecked()).ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_processor_listing_are_read() {
        assert_eq!(model_from_cpuinfo("processor\t: 0\nmodel\t\t: 143\nmodel name\t: Some Chip\n").as_deref(), Some("Some Chip"));
        assert_eq!(model_from_cpuinfo("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n").as_deref(), Some("Arm implementer 0x41 part 0xd40"));
        assert_eq!(model_from_cpuinfo("flags: x\n"), None);
    }
}
