//! Do locks hold on the file system that the nodes share? A task that Slurm starts again while its first process still lives on a lost node
//! is kept from the run's folder by the trainer's lock alone.

use std::path::Path;

/// Why locks taken on one node would not hold on another, if the mount says so.
pub(super) fn locks_fail(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    fault(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &folder)
}

/// From Linux's table of mounts: `ID PARENT DEVICE ROOT MOUNTED-AT OPTIONS ... - KIND SOURCE OPTIONS`.
fn fault(mounts: &str, folder: &Path) -> Option<String> {
    let mounted = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(4);
        let at = place.next()?.replace("\\040", " ");
        let options = place.next()?.to_owned();
        let mut kind = kind.split(' ');
        let (kind, _, more) = (kind.next()?.to_owned(), kind.next()?, kind.next().unwrap_or_default());
        folder.starts_with(&at).then(|| (at, kind, format!("{options},{more}")))
    };
    // Of mounts one over the other the last counts.
    let (at, kind, options) = mounts.lines().filter_map(mounted).enumerate().max_by_key(|(number, (at, ..))| (at.len(), *number))?.1;
    let has = |wanted: &str| options.split(',').any(|option| option == wanted);
    let (option, remedy) = match kind.as_str() {
        "nfs" | "nfs4" => (["nolock", "local_lock=all", "local_lock=flock"].into_iter().find(|option| has(option))?, "without it"),
        "lustre" if has("flock") => return None,
        "lustre" => (["localflock", "noflock"].into_iter().find(|option| has(option)).unwrap_or("no `flock`"), "with `flock`"),
        _ => return None,
    };
    Some(format!(
        "{} lies on {at}, which is mounted as {kind} ({option}): locks taken on one node do not hold on another, so that two tasks could write one run; mount it {remedy}, or make cache/ a link to a file system where they hold",
        folder.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:50 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2,local_lock=none,addr=10.0.0.1
41 21 0:51 / /old rw shared:3 - nfs server:/old rw,vers=3,nolock,addr=10.0.0.1
42 21 0:52 / /half rw - nfs server:/half rw,vers=3,local_lock=flock
43 21 0:53 / /scratch rw,relatime,flock - lustre mgs:/scratch rw,flock
44 21 0:54 / /fast rw - lustre mgs:/fast rw,localflock
45 21 0:55 / /plain\\040one rw - lustre mgs:/plain rw
46 40 0:56 / /home/local rw - xfs /dev/sdb rw
";

    #[test]
    fn mounts_whose_locks_stay_on_a_node_are_named() {
        let fault = |folder: &str| fault(MOUNTS, Path::new(folder));
        for good in ["/srv/a", "/home/me", "/scratch/me", "/home/local/x", "/older"] {
            assert_eq!(fault(good), None, "{good}");
        }
        for (bad, said) in [
            ("/old/me", "mounted as nfs (nolock)"),
            ("/half/me", "(local_lock=flock)"),
            ("/fast/me", "lustre (localflock)"),
            ("/plain one/me", "lustre (no `flock`)"),
        ] {
            assert!(fault(bad).is_some_and(|line| line.contains(said) && line.contains("make cache/ a link")), "{bad}");
        }
        let both = format!("{MOUNTS}47 21 0:57 / /old rw - ext4 /dev/sdc rw\n");
        assert_eq!(super::fault(&both, Path::new("/old/me")), None, "mounted over");
    }
}
