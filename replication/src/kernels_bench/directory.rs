//! A directory of `kernels-bench`: written whole, found again, rendered again, and its measurements taken into a campaign's. Nothing here
//! measures.

use std::path::{Path, PathBuf};

use super::document::{DOCUMENT, Document};
use super::{BenchError, Outcome};
use crate::campaign;
use crate::environment::Environment;
use crate::files::{self, Context as _};
use crate::manifest::ManifestError;
use crate::provenance;
use crate::render;

/// Writes a new result directory below `out`.
pub(super) fn write(root: &Path, out: &Path, document: &Document, environment: &Environment) -> Result<PathBuf, BenchError> {
    let base = format!("kernels-{}-{}", document.date, document.machine);
    let names = std::iter::once(base.clone()).chain((2..).map(|number| format!("{base}-{number}")));
    let target = names.map(|name| out.join(name)).find(|path| !path.exists()).unwrap_or_else(|| out.join(&base));
    put(root, &target, document, |aside| Ok(provenance::write_environment(environment, aside)?))?;
    Ok(target)
}

/// Whether `directory` is one of `kernels-bench`; a campaign's may hold such a document among its measurements, not at its root.
pub fn is_result(directory: &Path) -> bool {
    directory.join(DOCUMENT).exists() && !directory.join("campaign.json").exists()
}

/// Computes the ratios and verdicts of a directory again and renders them; measurements are only read, and whatever else lies there stays.
pub fn report(root: &Path, directory: &Path) -> Result<Outcome, BenchError> {
    let directory = directory.canonicalize().at(directory, "open")?;
    let mut document = Document::read(&directory.join(DOCUMENT))?;
    document.comparisons = document.compare();
    let computed: Vec<_> = document.compare_gpus().collect();
    for (gpu, computed) in document.gpus.iter_mut().zip(computed) {
        gpu.comparisons = computed;
    }
    put(root, &directory, &document, |aside| {
        let mut others = files::list(&directory)?.into_iter().filter(|name| !aside.join(name).exists());
        Ok(others.try_for_each(|name| files::copy(&directory.join(&name), &aside.join(&name)))?)
    })?;
    Ok(Outcome { directory, document })
}

/// Copies the measurements of `kernels`, made on a campaign's machine, into the campaign's result directory, which was made without any; what
/// is there stays. The next `report` shows them.
///
/// # Errors
/// When either directory is not what it should be, the machines differ, or the result directory has such measurements already.
pub fn add_to(directory: &Path, kernels: &Path) -> Result<(), BenchError> {
    let campaign = campaign::record(directory)?;
    let from = kernels.join(DOCUMENT);
    let document = Document::read(&from)?;
    if document.machine != campaign.machine {
        let what = format!("was measured on {}, the campaign on {}", document.machine, campaign.machine);
        return Err(ManifestError::new(&from, what).into());
    }
    let target = directory.join("measurements").join(DOCUMENT);
    if target.exists() {
        return Err(ManifestError::new(&target, "is already there; measurements in a result directory are never replaced").into());
    }
    Ok(files::copy(&from, &target)?)
}

/// Puts a result directory together aside and moves it to `target`. `rest` adds what does not follow from the document: env.json at least.
fn put(root: &Path, target: &Path, document: &Document, rest: impl FnOnce(&Path) -> Result<(), BenchError>) -> Result<(), BenchError> {
    let aside = target.with_file_name(format!(".{}.partial", target.file_name().unwrap_or_default().to_string_lossy()));
    files::remove_folder(&aside)?;
    files::make_folder(&aside)?;
    document.write(&aside)?;
    rest(&aside)?;
    let page = render::kernels_page(document, &root.join("paper"))?;
    files::write(&aside.join("kernels.html"), page.as_bytes())?;
    provenance::write_list(&aside)?;
    Ok(campaign::replace(target, &aside)?)
}

/// The newest whole result of `machine` below `results`, as a directory; none when there is none. What cannot be read is passed over.
pub fn newest(results: &Path, machine: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(results).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let of_kernels = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kernels-")));
    let read = of_kernels.filter_map(|path| Some((Document::read(&path.join(DOCUMENT)).ok()?, path)));
    let ours = read.filter(|(document, _)| document.machine == machine && document.only.is_none());
    // Of one day, the later has the longer name: -2, -3, ..., -10.
    let age = |document: &Document, path: &Path| (document.date.clone(), path.as_os_str().len(), path.to_owned());
    ours.max_by_key(|(document, path)| age(document, path)).map(|(_, path)| path)
}
