//! What the machine in front of us is: processor, cores, memory, kernel, container. Read only, asked of the system each time.
//!
//! Nothing here names a host, a user or a folder: its answers are published. Where a system does not say, the answer is `None`
//! and never a guess. What a campaign needs of a machine is `doctor`'s business.

use std::fs;
use std::path::{Path, PathBuf};

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

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What the machine says it has. In a virtual machine this can be far more than may be used.
    pub total: Option<u64>,
    /// The smallest limit of the control groups this process is in.
    pub limit: Option<u64>,
}

impl Memory {
    /// What may be used: the smaller of both.
    pub fn usable(&self) -> Option<u64> {
        self.total.into_iter().chain(self.limit).min()
    }
}

/// Memory of the machine and of this process's control group.
pub fn memory() -> Memory {
    let proc = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_from_meminfo(&text));
    let total = proc.or_else(|| ask("sysctl", &["-n", "hw.memsize"])?.parse().ok());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Memory { total, limit: group_limit(&groups, Path::new("/sys/fs/cgroup")) }
}

fn total_from_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest memory limit on the way from this process's groups to the root, of either version of control groups. `groups` is
/// /proc/self/cgroup. A limit of 2^60 bytes or more is the system's way to write "none".
fn group_limit(groups: &str, mount: &Path) -> Option<u64> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (top, name) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            one if one.split(',').any(|word| word == "memory") => (mount.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        // In a container the group may be named as outside it, while the mount shows only what is inside: look at both.
        let relative = Path::new(group.trim_start_matches('/'));
        files.extend(relative.ancestors().map(|part| top.join(part).join(name)));
    }
    let limits = files.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    limits.filter(|limit| *limit < 1 << 60).min()
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

/// A short name for result folders, from processor and cores and never from the host's name: `xeon-2c`.
pub fn slug(model: &str, cores: usize) -> String {
    let before = model.split('@').next().unwrap_or_default().to_lowercase();
    let plain = ["(r)", "(tm)", "(c)"].iter().fold(before, |text, mark| text.replace(mark, " "));
    let noise = ["intel", "amd", "cpu", "processor", "with", "radeon", "graphics", "gen"];
    let said = |word: &&str| !noise.contains(word) && !word.ends_with("-core");
    let mut words: Vec<String> = plain.split_whitespace().filter(said).map(tidy).filter(|word| !word.is_empty()).take(3).collect();
    if words.is_empty() {
        words.push(std::env::consts::ARCH.replace('_', "-"));
    }
    words.push(format!("{cores}c"));
    words.join("-")
}

/// Lower-case letters, digits and single dashes of a name, at most 32 of them.
pub fn tidy(name: &str) -> String {
    let text: String = name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let parts: Vec<&str> = text.split('-').filter(|part| !part.is_empty()).collect();
    parts.join("-").chars().take(32).collect::<String>().trim_end_matches('-').to_owned()
}

/// First words that a small program prints; none when it is missing, fails or prints nothing.
pub(crate) fn ask(program: &str, arguments: &[&str]) -> Option<String> {
    let output = duct::cmd(program, arguments).stdin_null().stderr_null().stdout_capture().unchecked().run().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_come_from_the_processor() {
        for (model, cores, expected) in [
            ("Intel(R) Xeon(R) Processor", 2, "xeon-2c"),
            ("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.90GHz", 8, "xeon-platinum-8488c-8c"),
            ("AMD EPYC 9R14 96-Core Processor", 4, "epyc-9r14-4c"),
            ("13th Gen Intel(R) Core(TM) i7-1365U", 12, "13th-core-i7-1365u-12c"),
            ("Apple M2 Pro", 10, "apple-m2-pro-10c"),
            ("../../etc", 1, "etc-1c"),
        ] {
            assert_eq!(slug(model, cores), expected);
        }
        assert_eq!(slug("", 1), format!("{}-1c", std::env::consts::ARCH.replace('_', "-")));
    }

    #[test]
    fn both_kinds_of_processor_listing_are_read() {
        assert_eq!(model_from_cpuinfo("processor\t: 0\nmodel\t\t: 143\nmodel name\t: Some Chip\n").as_deref(), Some("Some Chip"));
        assert_eq!(model_from_cpuinfo("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n").as_deref(), Some("Arm implementer 0x41 part 0xd40"));
        assert_eq!(model_from_cpuinfo("flags: x\n"), None);
    }

    #[test]
    fn the_smallest_limit_on_the_way_counts() {
        let mount = tempfile::tempdir().unwrap();
        let save = |path: &str, text: &str| {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        save("memory/job/memory.limit_in_bytes", "1073741824\n");
        save("memory/job/task/memory.limit_in_bytes", "9223372036854771712\n");
        let groups = "9:name=systemd:/\n4:cpu,memory:/job/task\n0::/\n";
        assert_eq!(group_limit(groups, mount.path()), Some(1 << 30));
        save("memory.max", "536870912\n");
        assert_eq!(group_limit(groups, mount.path()), Some(1 << 29));
        save("memory.max", "max\n");
        assert_eq!(group_limit("0::/\n", mount.path()), None);
        assert_eq!(total_from_meminfo("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(total_from_meminfo("MemTotal: many kB"), None);
    }
}
