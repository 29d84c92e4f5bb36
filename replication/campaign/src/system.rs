//! What only the operating system can do: tell a process to end, say how much room is left.

use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

/// Those that name one process: zero would be a whole group.
#[cfg(unix)]
fn ids(processes: &[u32]) -> impl Iterator<Item = rustix::process::Pid> {
    processes.iter().filter_map(|process| rustix::process::Pid::from_raw(i32::try_from(*process).ok()?))
}

/// SIGTERM: Ctrl-C reaches trainers by itself, a deadline or a kill of the harness alone does not.
#[cfg(unix)]
pub fn tell_to_end(processes: &[u32]) {
    signal(processes, rustix::process::Signal::TERM);
}

#[cfg(unix)]
fn signal(processes: &[u32], signal: rustix::process::Signal) {
    for process in ids(processes) {
        // One that has just ended needs no telling.
        let _ = rustix::process::kill_process(process, signal);
    }
}

/// There is no such signal: after the same patience they are killed.
#[cfg(not(unix))]
pub fn tell_to_end(_: &[u32]) {}

/// A signal to the group of a program that is not ours reaches what it started, too.
pub(crate) fn in_a_group_of_its_own(command: &mut std::process::Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

/// Kills the groups that these processes lead.
#[cfg(unix)]
pub(crate) fn kill_groups(leaders: &[u32]) {
    use rustix::process::{Signal, kill_process_group};
    for leader in ids(leaders) {
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

#[cfg(not(unix))]
pub(crate) fn kill_groups(_: &[u32]) {}

/// Kills these processes alone.
#[cfg(unix)]
pub fn kill(processes: &[u32]) {
    signal(processes, rustix::process::Signal::KILL);
}

#[cfg(not(unix))]
pub fn kill(_: &[u32]) {}

/// Whether the system gives `count` threads at once; they end with this call.
pub(crate) fn threads_to_be_had(count: usize) -> io::Result<()> {
    let (all_started, end) = channel::<()>();
    let end = Mutex::new(end);
    std::thread::scope(|scope| {
        // Moved in here, it is dropped before the scope waits for the threads.
        let _all_started = all_started;
        // The first waits for the channel's end, the others for the first.
        let wait = || {
            let _ = end.lock().unwrap_or_else(PoisonError::into_inner).recv();
        };
        (0..count).try_for_each(|_| Builder::new().spawn_scoped(scope, wait).map(drop))
    })
    .map_err(|error| io::Error::new(error.kind(), format!("the system gives no thread ({error})")))
}

/// Bytes free for us where `path` is or will be; none when the system does not say.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|path| path.exists())?;
    #[cfg(unix)]
    return rustix::fs::statvfs(existing).ok().and_then(|room| room.f_bavail.checked_mul(room.f_frsize));
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_room_is_known_for_a_folder_that_is_not_there_yet() {
        assert!(free_bytes(&std::env::temp_dir().join("not").join("there")).is_some_and(|bytes| bytes > 0));
    }

    #[test]
    #[cfg(unix)]
    fn a_process_is_told_and_nobody_else() {
        use std::os::unix::process::ExitStatusExt as _;
        let mut told = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // Zero would be this process's whole group, and this process among it.
        tell_to_end(&[0, u32::MAX, told.id()]);
        assert_eq!(told.wait().unwrap().signal(), Some(15));
    }
}
