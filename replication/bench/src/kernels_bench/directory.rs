//! A directory of `kernels-bench`: written whole, found again, rendered again, and its measurements taken into a campaign's. Nothing here
//! measures.

use std::path::{Path, PathBuf};

use campaign::environment;
use study::environment::{Environment, GitState};
use study::files::{self, Context as _};
use study::folder;
use study::kernels::{DOCUMENT, Document};
use study::manifest::ManifestError;
use study::packed;
use study::provenance::{self, Renderer};
use study::record::Campaign;
use study::render;
use study::results;

use super::{BenchError, Outcome};

/// Writes a new result directory below `out`.
pub(super) fn write(root: &Path, out: &Path, document: &Document, environment: &Environment) -> Result<PathBuf, BenchError> {
    let base = format!("kernels-{}-{}", document.date, document.machine);
    let names = std::iter::once(base.clone()).chain((2..).map(|number| format!("{base}-{number}")));
    let target = names.map(|name| out.join(name)).find(|path| !path.exists()).unwrap_or_else(|| out.join(&base));
    put(root, &target, document, |aside| Ok(provenance::write_environment(environment, aside)?))?;
    Ok(target)
}

/// Computes the ratios and verdicts of a directory again and renders them; measurements are only read.
pub fn report(root: &Path, directory: &Path) -> Result<Outcome, BenchError> {
    let directory = directory.canonicalize().at(directory, "open")?;
    results::admit(&directory)?;
    let mut document = Document::read(&directory.join(DOCUMENT))?;
    document.compare_again();
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
    results::admit(directory)?;
    results::admit(kernels)?;
    let campaign = Campaign::read(directory)?;
    let from = kernels.join(DOCUMENT);
    let document = Document::read(&from)?;
    if document.machine != campaign.machine {
        let what = format!("was measured on {}, the campaign on {}", document.machine, campaign.machine);
        return Err(ManifestError::new(&from, what).into());
    }
    let target = directory.join("measurements").join(DOCUMENT);
    if packed::is_there(&target) {
        return Err(ManifestError::new(&target, "is already there; measurements in a result directory are never replaced").into());
    }
    Ok(files::copy(&from, &target)?)
}

/// Puts a result directory together aside and moves it to `target`. `rest` adds what does not follow from the document: env.json at least.
fn put(root: &Path, target: &Path, document: &Document, rest: impl FnOnce(&Path) -> Result<(), BenchError>) -> Result<(), BenchError> {
    folder::make(target, |aside| {
        document.write(aside)?;
        rest(aside)?;
        let page = render::kernels_page(document, &root.join("paper"))?;
        files::write(&aside.join("kernels.html"), page.as_bytes())?;
        let GitState { commit, dirty, .. } = environment::git_state(root);
        Renderer { commit, dirty, version: Some(render::version(&root.join("paper"))), stale: false }.write(aside)?;
        Ok(provenance::write_list(aside)?)
    })
}
