//! Files and folders of logs: read each on its own, then compared with each other. One bad file never stops the others.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::line;
use super::reader::Reader;
use super::run::{LoggedRun, Options};
use super::table::{Basis, Record};
use super::{Finding, Level};
use crate::files::{self, LARGEST_LOG};
use crate::number;

/// Longer lines are not read: no entry comes near it, and a binary file may hold no line end at all.
const LONGEST_LINE: usize = 1 << 20;

#[derive(Debug, Clone, Default)]
pub struct Import {
    /// In order of path and place.
    pub runs: Vec<LoggedRun>,
    /// In order of path and line.
    pub findings: Vec<Finding>,
    /// Files read, whether or not they held a run.
    pub files: usize,
    /// The target that runs were held against.
    pub target: f64,
}

/// Reads every path; a folder stands for all files below it.
pub fn import(paths: &[PathBuf], options: &Options) -> Import {
    let mut import = Import { target: options.target, ..Import::default() };
    for path in paths {
        if path.is_dir() {
            folder(path, options, &mut import);
        } else {
            file(path, false, options, &mut import);
        }
    }
    compare(&mut import);
    import.findings.sort();
    import
}

impl Import {
    /// How many findings are problems.
    pub fn problems(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level == Level::Problem).count()
    }

    /// The runs as lines of a table, numbered in order. `source` is where the logs lie in their repository: it takes the place of
    /// the folder here, so that no path of this machine is written.
    pub fn records(&self, source: &str) -> Vec<Record> {
        let numbered = (0u64..).zip(&self.runs);
        numbered
            .map(|(number, run)| {
                let name = Path::new(&run.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
                let path = if source.is_empty() { name } else { format!("{}/{name}", source.trim_end_matches('/')) };
                Record { number, basis: Basis::Log, run: LoggedRun { path, line: 0, ..run.clone() } }
            })
            .collect()
    }

    fn find(&mut self, path: &Path, level: Level, what: impl Into<String>) {
        self.findings.push(Finding { path: path.display().to_string(), line: 0, level, what: what.into() });
    }
}

fn folder(path: &Path, options: &Options, import: &mut Import) {
    match files::look(path) {
        Ok(found) if found.files.is_empty() && found.strange.is_empty() => import.find(path, Level::Problem, "the folder holds no file"),
        Ok(found) => {
            found.files.iter().for_each(|name| file(&path.join(name), true, options, import));
            found.strange.iter().for_each(|(name, what)| import.find(&path.join(name), Level::Problem, *what));
        }
        Err(error) => import.find(path, Level::Problem, format!("cannot {}: {}", error.action, error.source)),
    }
}

/// One file. `found` in a folder rather than named: that it holds no entry is then only worth a note.
fn file(path: &Path, found: bool, options: &Options, import: &mut Import) {
    import.files += 1;
    match read(path, options) {
        Ok(Content::Log(runs, findings)) => {
            import.runs.extend(runs);
            import.findings.extend(findings);
        }
        Ok(Content::Other(what)) => import.find(path, if found { Level::Note } else { Level::Problem }, what),
        Ok(Content::Packed(what)) => import.find(path, Level::Problem, what),
        Err(error) => import.find(path, Level::Problem, format!("cannot be read: {error}")),
    }
}

enum Content {
    Log(Vec<LoggedRun>, Vec<Finding>),
    Other(&'static str),
    /// Perhaps a log, but packed.
    Packed(&'static str),
}

fn read(path: &Path, options: &Options) -> io::Result<Content> {
    let name = path.display().to_string();
    // What a folder holds was looked at; a name that someone typed may be a link's.
    let bytes = files::open(&path.canonicalize()?).map_err(|error| error.source).and_then(|file| files::read_at_most(file, LARGEST_LOG));
    let bytes = match bytes {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(Content::Other("is larger than any log")),
        bytes => bytes?,
    };
    if bytes.is_empty() {
        return Ok(Content::Other("is empty"));
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Content::Packed("is compressed with gzip; unpack it first (gunzip)"));
    }
    if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"BZh") {
        return Ok(Content::Packed("is an archive; unpack it first"));
    }
    if bytes.iter().take(8192).any(|byte| *byte == 0) {
        return Ok(Content::Other("is not text"));
    }
    let sha256 = files::sha256(&bytes);
    let mut reader = Reader::new(&name, &sha256, options);
    let mut entries = 0usize;
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.len() >= LONGEST_LINE {
            return Ok(Content::Other("has a line of more than a megabyte: no log"));
        }
        for entry in line::parse(&String::from_utf8_lossy(line), number) {
            entries += 1;
            reader.take(entry, number);
        }
    }
    if entries == 0 {
        return Ok(Content::Other("holds no line with :::MLLOG"));
    }
    let (runs, findings) = reader.finish();
    Ok(Content::Log(runs, findings))
}

/// Findings about runs that are alike when they should not be.
fn compare(import: &mut Import) {
    let mut hashes: BTreeMap<&str, &str> = BTreeMap::new();
    let mut seeds: BTreeMap<(u64, &str, &str), &LoggedRun> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut find = |run: &LoggedRun, what: String| {
        findings.push(Finding { path: run.path.clone(), line: run.line, level: Level::Problem, what });
    };
    for run in &import.runs {
        let first = *hashes.entry(&run.sha256).or_insert(&run.path);
        if first != run.path {
            find(run, format!("is byte for byte the file {first}; one of the two must go"));
            continue;
        }
        let Some(seed) = run.seed else { continue };
        match seeds.insert((seed, &run.submitter, &run.platform), run) {
            Some(other) => {
                find(run, format!("seed {seed} again, after {}:{}: two runs with one seed are not independent", other.path, other.line));
            }
            None => continue,
        }
    }
    import.findings.append(&mut findings);
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in &self.runs {
            let reached = match run.reached(self.target) {
                Some(evaluation) => format!("loss {} at {} samples", number::fixed(evaluation.loss, 4), evaluation.samples),
                None => format!("target {} not reached", self.target),
            };
            let minutes = match (run.run_start_ms, run.run_stop_ms) {
                (Some(start), Some(stop)) => format!("{} min", number::fixed((stop - start) as f64 / 60_000.0, 2)),
                _ => "no end".to_owned(),
            };
            let precision = run.precision.as_deref().unwrap_or("precision not stated");
            let status = run.status.word();
            writeln!(
                f,
                "{}:{}: {}, {} evaluations, {reached}, {minutes}, {precision}, {status}",
                run.path,
                run.line,
                run.seed.map_or("no seed".to_owned(), |seed| format!("seed {seed}")),
                run.evaluations.len()
            )?;
        }
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let reached = self.runs.iter().filter(|run| run.reached(self.target).is_some()).count();
        writeln!(
            f,
            "{} files read: {} runs, {reached} of them reached the target {}; {} problems, {} notes",
            self.files,
            self.runs.len(),
            self.target,
            self.problems(),
            self.findings.len() - self.problems()
        )
    }
}
