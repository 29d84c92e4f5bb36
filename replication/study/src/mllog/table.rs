//! Runs of logs as two small CSV files: `runs.csv`, one line a run, and `evaluations.csv`, one line an evaluation.
//!
//! The files hold facts about a log (who, which seed, which settings, what loss when) and where the log is, not the log. Columns
//! are fixed: another name, another order or a cell of another kind is an error with file, line and column.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contract::text::one_line;
use serde::Serialize;

use super::keys::SETTINGS;
use super::run::{LoggedEvaluation, LoggedRun, Status};
use crate::exit::{self, ExitCode};
use crate::files::{self, FileError};
use crate::table::{self, Number, Table};

/// Schema of `runs.csv` and of the `evaluations.csv` beside it.
pub const SCHEMA: &str = "mxfp4-logged-runs/1";
/// File name of the runs.
pub const RUNS: &str = "runs.csv";
/// File name of the evaluations.
pub const EVALUATIONS: &str = "evaluations.csv";

const BEFORE_SETTINGS: [&str; 10] =
    ["schema", "run", "basis", "seed", "status", "benchmark", "submitter", "division", "platform", "precision"];
const AFTER_SETTINGS: [&str; 5] = ["run_start_ms", "run_stop_ms", "samples_at_stop", "file", "sha256"];

/// One evaluation as a line of its file.
#[derive(Default, Serialize)]
struct EvaluationRow {
    run: u64,
    samples: u64,
    loss: Number,
    time_ms: i64,
    train_ms: Option<i64>,
    evaluation_ms: Option<i64>,
}

/// How a run came into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Our importer read the log.
    Log,
    /// Taken over from a table that someone else had extracted; only what that table held is there.
    Table,
}

impl Basis {
    fn word(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Table => "table",
        }
    }
}

/// A run with its place in the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub number: u64,
    pub basis: Basis,
    /// What it logged; `path` is where the log is in its source, `line` is 0.
    pub run: LoggedRun,
}

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is not what its schema says.
    #[error("{}{}: {}", .path.display(), if *.line > 0 { format!(":{line}") } else { String::new() }, one_line(.what))]
    Content {
        path: PathBuf,
        /// One-based line.
        line: u64,
        what: String,
    },
}

impl ExitCode for TableError {
    fn exit_code(&self) -> u8 {
        if let Self::File(error) = self { error.exit_code() } else { exit::DATA }
    }
}

/// `runs.csv` and `evaluations.csv`.
pub fn tables(records: &[Record]) -> [Table; 2] {
    let evaluations = records.iter().flat_map(|record| {
        record.run.evaluations.iter().map(|evaluation| EvaluationRow {
            run: record.number,
            samples: evaluation.samples,
            loss: Number(evaluation.loss),
            time_ms: evaluation.time_ms,
            train_ms: evaluation.train_ms,
            evaluation_ms: evaluation.evaluation_ms,
        })
    });
    [Table::of_cells(RUNS, &run_columns(), records.iter().map(run_cells)), Table::of(EVALUATIONS, evaluations)]
}

fn run_columns() -> Vec<String> {
    BEFORE_SETTINGS.iter().chain(SETTINGS).chain(&AFTER_SETTINGS).map(|name| (*name).to_owned()).collect()
}

fn run_cells(record: &Record) -> Vec<String> {
    let run = &record.run;
    let mut cells = vec![
        SCHEMA.to_owned(),
        record.number.to_string(),
        record.basis.word().to_owned(),
        run.seed.map(|seed| seed.to_string()).unwrap_or_default(),
        run.status.word().to_owned(),
        run.benchmark.clone(),
        run.submitter.clone(),
        run.division.clone(),
        run.platform.clone(),
        run.precision.clone().unwrap_or_default(),
    ];
    cells.extend(SETTINGS.iter().map(|key| run.settings.get(*key).cloned().unwrap_or_default()));
    cells.extend([
        run.run_start_ms.map(|time| time.to_string()).unwrap_or_default(),
        run.run_stop_ms.map(|time| time.to_string()).unwrap_or_default(),
        run.samples_at_stop.map(|samples| samples.to_string()).unwrap_or_default(),
        run.path.clone(),
        run.sha256.clone(),
    ]);
    cells
}

/// Writes both files into `folder`.
pub fn write(folder: &Path, records: &[Record]) -> Result<(), TableError> {
    tables(records).iter().rev().try_for_each(|table| table.write(folder)).map_err(|error| match error {
        table::TableError::File(error) => TableError::File(error),
        error => TableError::Content { path: folder.to_owned(), line: 0, what: error.to_string() },
    })
}

/// Reads both files of `folder`.
///
/// # Errors
/// A missing file, another column, a cell that is not what it should be, an evaluation of a run that is not there or out of order.
pub fn read(folder: &Path) -> Result<Vec<Record>, TableError> {
    let runs = Sheet::read(&folder.join(RUNS), &run_columns())?;
    let mut records: Vec<Record> = runs.rows.iter().map(|row| record(&runs, row)).collect::<Result<_, _>>()?;
    let path = folder.join(EVALUATIONS);
    let columns =
        table::columns::<EvaluationRow>().map_err(|error| TableError::Content { path: path.clone(), line: 1, what: error.to_string() })?;
    let sheet = Sheet::read(&path, &columns)?;
    let places: BTreeMap<u64, usize> = records.iter().enumerate().map(|(place, record)| (record.number, place)).collect();
    if places.len() < records.len() {
        return Err(TableError::Content { path: runs.path, line: 0, what: "a run stands there twice".into() });
    }
    for row in &sheet.rows {
        let number: u64 = sheet.need(row, "run")?;
        let Some(record) = places.get(&number).and_then(|place| records.get_mut(*place)) else {
            return Err(sheet.wrong(row, format!("run {number} is not in {RUNS}")));
        };
        let evaluation = evaluation(&sheet, row)?;
        if record.run.evaluations.last().is_some_and(|last| last.samples >= evaluation.samples) {
            return Err(sheet.wrong(row, format!("samples of run {number} do not rise")));
        }
        record.run.evaluations.push(evaluation);
    }
    Ok(records)
}

fn evaluation(sheet: &Sheet, row: &Row) -> Result<LoggedEvaluation, TableError> {
    let loss: f64 = sheet.need(row, "loss")?;
    if !loss.is_finite() {
        return Err(sheet.wrong(row, format!("column loss: {loss} is not a finite number")));
    }
    Ok(LoggedEvaluation {
        samples: sheet.need(row, "samples")?,
        loss,
        time_ms: sheet.need(row, "time_ms")?,
        train_ms: sheet.number(row, "train_ms")?,
        evaluation_ms: sheet.number(row, "evaluation_ms")?,
    })
}

fn record(sheet: &Sheet, row: &Row) -> Result<Record, TableError> {
    let cell = |name: &str| sheet.cell(row, name).to_owned();
    if cell("schema") != SCHEMA {
        return Err(sheet.wrong(row, format!("schema `{}` is not `{SCHEMA}`", cell("schema"))));
    }
    let basis = [Basis::Log, Basis::Table].into_iter().find(|basis| basis.word() == cell("basis"));
    let basis = basis.ok_or_else(|| sheet.wrong(row, format!("column basis: `{}` is neither log nor table", cell("basis"))))?;
    let status = Status::of(&cell("status"));
    let status =
        status.ok_or_else(|| sheet.wrong(row, format!("column status: `{}` is not success, aborted or unfinished", cell("status"))))?;
    let filled = SETTINGS.iter().map(|key| ((*key).to_owned(), cell(key))).filter(|(_, value)| !value.is_empty());
    let settings: BTreeMap<String, String> = filled.collect();
    Ok(Record {
        number: sheet.need(row, "run")?,
        basis,
        run: LoggedRun {
            path: cell("file"),
            line: 0,
            sha256: cell("sha256"),
            seed: sheet.number(row, "seed")?,
            status,
            benchmark: cell("benchmark"),
            submitter: cell("submitter"),
            division: cell("division"),
            platform: cell("platform"),
            precision: Some(cell("precision")).filter(|word| !word.is_empty()),
            settings,
            run_start_ms: sheet.number(row, "run_start_ms")?,
            run_stop_ms: sheet.number(row, "run_stop_ms")?,
            samples_at_stop: sheet.number(row, "samples_at_stop")?,
            evaluations: Vec::new(),
        },
    })
}

/// A CSV file in memory.
struct Sheet {
    path: PathBuf,
    columns: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    line: u64,
    cells: Vec<String>,
}

impl Sheet {
    fn read(path: &Path, expected: &[String]) -> Result<Self, TableError> {
        let content = |line: u64, what: String| TableError::Content { path: path.to_owned(), line, what };
        let text = files::read_text(path)?;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let columns: Vec<String> = reader.headers().map_err(|error| content(1, error.to_string()))?.iter().map(str::to_owned).collect();
        if columns != expected {
            let at =
                columns.iter().zip(expected).position(|(found, expected)| found != expected).unwrap_or(columns.len().min(expected.len()));
            let name = |list: &[String]| list.get(at).map_or("nothing".to_owned(), |name| format!("`{name}`"));
            return Err(content(1, format!("column {} is {}, expected {}", at + 1, name(&columns), name(expected))));
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| content(error.position().map_or(0, csv::Position::line), error.to_string()))?;
            rows.push(Row { line: record.position().map_or(0, csv::Position::line), cells: record.iter().map(str::to_owned).collect() });
        }
        Ok(Self { path: path.to_owned(), columns, rows })
    }

    fn wrong(&self, row: &Row, what: String) -> TableError {
        TableError::Content { path: self.path.clone(), line: row.line, what }
    }

    fn cell<'a>(&self, row: &'a Row, name: &str) -> &'a str {
        let at = self.columns.iter().position(|column| column == name);
        at.and_then(|at| row.cells.get(at)).map_or("", String::as_str)
    }

    /// A number, or none for an empty cell.
    fn number<T: std::str::FromStr>(&self, row: &Row, name: &str) -> Result<Option<T>, TableError> {
        let cell = self.cell(row, name);
        if cell.is_empty() {
            return Ok(None);
        }
        cell.parse().map(Some).map_err(|_| self.wrong(row, format!("column {name}: `{cell}` is not such a number")))
    }

    fn need<T: std::str::FromStr>(&self, row: &Row, name: &str) -> Result<T, TableError> {
        self.number(row, name)?.ok_or_else(|| self.wrong(row, format!("column {name} is empty")))
    }
}
