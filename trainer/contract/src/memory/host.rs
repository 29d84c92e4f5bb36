//! Memory that a process may use, from the texts of Linux's own files. The caller reads them, so nothing is opened here.

use std::path::{Path, PathBuf};

/// Bytes; none where the system does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMemory {
    /// What the machine says it has. In a virtual machine this can be far more than may be used.
    pub total: Option<u64>,
    /// The smallest limit of the control groups this process is in.
    pub limit: Option<u64>,
}

impl HostMemory {
    /// `read` gives the text of a file that is there.
    pub fn new(read: impl Fn(&Path) -> Option<String>) -> Self {
        let total = read(Path::new("/proc/meminfo")).and_then(|text| total_from_meminfo(&text));
        let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        let limits = limit_files(&groups).into_iter().filter_map(|path| read(&path)?.trim().parse::<u64>().ok());
        // A limit of 2^60 bytes or more is the system's way to write "none".
        Self { total, limit: limits.filter(|limit| *limit < 1 << 60).min() }
    }

    /// What may be used: the smaller of both.
    pub fn usable(&self) -> Option<u64> {
        self.total.into_iter().chain(self.limit).min()
    }
}

fn total_from_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Where limits may stand on the way from this process's groups to the root, of either version of control groups. `groups` is
/// /proc/self/cgroup.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mount = Path::new("/sys/fs/cgroup");
    let mut files = Vec::new();
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
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(files: &[(&str, &str)]) -> HostMemory {
        HostMemory::new(|path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_smallest_limit_on_the_way_counts() {
        let meminfo = ("/proc/meminfo", "MemFree: 1 kB\nMemTotal:       4194304 kB\n");
        let groups = ("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job/task\n0::/\n");
        let job = ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
        let task = ("/sys/fs/cgroup/memory/job/task/memory.limit_in_bytes", "9223372036854771712\n");
        let first = memory(&[meminfo, groups, job, task]);
        assert_eq!((first.total, first.limit, first.usable()), (Some(4 << 30), Some(1 << 30), Some(1 << 30)));
        assert_eq!(memory(&[meminfo, groups, job, task, ("/sys/fs/cgroup/memory.max", "536870912\n")]).usable(), Some(1 << 29));
        let none = memory(&[meminfo, ("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "max\n")]);
        assert_eq!((none.limit, none.usable()), (None, Some(4 << 30)));
        assert_eq!(memory(&[("/proc/meminfo", "MemTotal: many kB")]).usable(), None);
    }
}
