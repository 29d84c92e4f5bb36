//! Why a run would be run, or not.

use std::path::{Path, PathBuf};

use study::files::{self, FileError};
use study::ingredients::Ingredients;
use study::plan::PlannedRun;
use study::run_folder::{self, State};
use study::seal;

/// Why a run would be run, or not: the answer to `--why`.
pub fn why(run: &PlannedRun, cache: &Path) -> Result<String, FileError> {
    let folder = cache.join(run.key());
    match run_folder::state(&folder, &run.ingredients) {
        State::Finished => return Ok(format!("{} is finished and will be reused (key {})", run.name(), run.key())),
        State::Corrupt(why) => return Ok(format!("{} will be moved aside and run again: {why} (key {})", run.name(), run.key())),
        State::Unfinished => {}
    }
    if folder.join("checkpoint").is_dir() {
        return Ok(format!("{} was started and not finished; it will go on from its checkpoint (key {})", run.name(), run.key()));
    }
    let Some((earlier_key, earlier)) = newest_earlier(run, cache)? else {
        return Ok(format!("{} has never been run here (key {})", run.name(), run.key()));
    };
    let mut lines = vec![format!("{} will be run (key {}); since the last time (key {earlier_key}) this changed:", run.name(), run.key())];
    lines.extend(run.ingredients.differences(&earlier).into_iter().map(|line| format!("  {line}")));
    if earlier.run != run.ingredients.run {
        let old = files::read_text(&cache.join(&earlier_key).join("run.yaml"))?;
        lines.extend(changed_lines(&old, &run.run_yaml));
    }
    Ok(lines.join("\n"))
}

/// The newest other folder in the cache that holds the same profile, arm and seed.
fn newest_earlier(run: &PlannedRun, cache: &Path) -> Result<Option<(String, Ingredients)>, FileError> {
    let Ok(entries) = std::fs::read_dir(cache) else { return Ok(None) };
    let head = |text: &str| text.lines().skip_while(|line| *line != "run:").take(4).map(str::to_owned).collect::<Vec<_>>();
    let wanted = head(&run.run_yaml);
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path().join("run.yaml");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        if head(&text) == wanted && name != run.key() && !name.contains(seal::UNUSABLE) {
            found.push((path.metadata().and_then(|meta| meta.modified()).unwrap_or(std::time::UNIX_EPOCH), entry.path()));
        }
    }
    found.sort();
    let Some((_, folder)) = found.pop() else { return Ok(None) };
    let text = files::read_text(&folder.join("ingredients.json"))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(serde_json::from_str(&text).ok().map(|ingredients| (name, ingredients)))
}

/// Lines of the run file that differ, old and new, by position.
fn changed_lines(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let longest = old.len().max(new.len());
    (0..longest)
        .filter(|&line| old.get(line) != new.get(line))
        .map(|line| {
            format!(
                "    run.yaml:{}: {} -> {}",
                line + 1,
                old.get(line).map_or("(nothing)", |l| l.trim()),
                new.get(line).map_or("(nothing)", |l| l.trim())
            )
        })
        .take(20)
        .collect()
}
