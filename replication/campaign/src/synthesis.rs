//! The page of all evidence, written beside the result directories that it was made from, or held against what they give.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use study::files::{self, Context as _};
use study::law::Effort;
use study::manifest::Manifests;
use study::render::{self, SynthesisPages};
use study::synthesis::{Synthesis, TABLE, below};

use crate::error::CampaignError;
use crate::latex;

const HTML: &str = "index.html";
const SVG: &str = "index.svg";
const PDF: &str = "index.pdf";

/// What to read, and where it goes.
#[derive(Debug, Clone)]
pub struct Request {
    /// Every directory below `out` when there is none.
    pub directories: Vec<PathBuf>,
    /// Folder of the page; links lead from there to the directories.
    pub out: PathBuf,
    /// Write nothing: is what is there what the directories give?
    pub check: bool,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub synthesis: Synthesis,
    pub answer: Vec<String>,
    pub out: PathBuf,
    /// Files that differ from what the directories give; none where they were written.
    pub differing: Vec<String>,
    checked: bool,
    notes: Vec<String>,
}

impl Outcome {
    pub fn holds(&self) -> bool {
        self.differing.is_empty()
    }
}

/// Reads the directories, and writes index.html, .csv, .svg and .pdf, or compares them.
///
/// # Errors
/// When no directory is a campaign, one that was named is not there, or a file cannot be written.
pub fn synthesis(root: &Path, request: &Request) -> Result<Outcome, CampaignError> {
    let manifests = Manifests::load(root)?;
    let directories = if request.directories.is_empty() { below(&request.out)? } else { request.directories.clone() };
    for directory in &directories {
        directory.metadata().at(directory, "read")?;
    }
    let synthesis = Synthesis::of(&manifests, &directories, Effort::default())?;
    let pages = render::synthesis(&synthesis, &manifests, &root.join("paper"))?;
    let texts = [(HTML, &pages.html), (TABLE, &pages.csv), (SVG, &pages.svg)];
    let (mut differing, mut notes) = (Vec::new(), Vec::new());
    if request.check {
        differing.extend(texts.iter().filter(|(name, text)| !is(&request.out.join(name), text)).map(|(name, _)| (*name).to_owned()));
        differing.extend((!carries(&request.out.join(PDF), &pages.source)).then(|| PDF.to_owned()));
    } else {
        for (name, text) in texts {
            files::write(&request.out.join(name), text.as_bytes())?;
        }
        notes.extend(pdf(&request.out, &pages)?);
    }
    Ok(Outcome { synthesis, answer: pages.answer, out: request.out.clone(), differing, checked: request.check, notes })
}

fn is(path: &Path, text: &str) -> bool {
    files::read_text(path).is_ok_and(|found| found == text)
}

/// Whether a PDF says that it was made from the document with this hash: compiled elsewhere it has other bytes.
fn carries(path: &Path, source: &str) -> bool {
    let bytes = files::open(path).and_then(|file| files::read_at_most(file, files::LARGEST_DOCUMENT).at(path, "read"));
    bytes.is_ok_and(|bytes| bytes.windows(source.len()).any(|window| window == source.as_bytes()))
}

/// Compiles the PDF in a folder of its own. One that could not be made is not left there from before.
fn pdf(out: &Path, pages: &SynthesisPages) -> Result<Option<String>, CampaignError> {
    let temporary = std::env::temp_dir();
    let folder = tempfile::tempdir().at(&temporary, "make a folder for LaTeX in")?;
    for (name, text) in &pages.latex {
        files::write(&folder.path().join(name), text.as_bytes())?;
    }
    let names: Vec<String> = pages.latex.iter().map(|(name, _)| name.clone()).collect();
    let said = latex::pdf(folder.path(), &names)?;
    let made = folder.path().join("report.pdf");
    if said.is_none() {
        let bytes = files::read_at_most(files::open(&made)?, files::LARGEST_DOCUMENT).at(&made, "read")?;
        files::write(&out.join(PDF), &bytes)?;
    } else {
        files::remove(&out.join(PDF))?;
    }
    Ok(said.map(|text| text.replace("report.pdf", PDF).replace("report.tex is complete", "the page is complete")))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for source in &self.synthesis.sources {
            let depth = source.shallow.as_ref().map_or("at the paper's depth", |_| "earlier in training than the paper's numbers");
            let depth = if source.public { "at the paper's target" } else { depth };
            writeln!(text, "{}: {depth}", source.label)?;
        }
        for left in &self.synthesis.left_out {
            writeln!(text, "left out: {}: {}", left.name, left.why)?;
        }
        for line in self.synthesis.notes.iter().chain(&self.answer) {
            writeln!(text, "{line}")?;
        }
        for found in &self.synthesis.disagreements {
            writeln!(text, "disagreement: {}: {}", found.claim, found.text)?;
        }
        for note in &self.notes {
            writeln!(text, "{note}")?;
        }
        let out = self.out.display();
        match (self.checked, self.differing.as_slice()) {
            (false, _) => writeln!(text, "written: {out}/{HTML}, {TABLE}, {SVG}, {PDF}")?,
            (true, []) => writeln!(text, "{out}/{HTML}, {TABLE}, {SVG} and {PDF} are what the directories give")?,
            (true, names) => writeln!(text, "not what the directories give: {}; `cargo xtask synthesis` makes them", names.join(", "))?,
        }
        f.write_str(&text)
    }
}
