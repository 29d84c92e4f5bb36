//! One table, described once and rendered twice: as HTML by the template, as a booktabs fragment with macros by `latex.rs`.

use contract::id::Id;
use serde::Serialize;

/// A cell: text, an optional second line, and how it should look.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Cell {
    pub text: String,
    /// Second line, smaller.
    pub detail: String,
    /// Further lines, as small as the second.
    pub lines: Vec<String>,
    /// Style class; verdict words have one each.
    pub class: String,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// With a second line.
    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(super) fn class(mut self, class: impl Into<String>) -> Self {
        self.class = class.into();
        self
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// A column: its heading, whether it holds numbers, and its share of the line on paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Column {
    pub title: String,
    /// Numbers are aligned right and do not wrap.
    pub numeric: bool,
    /// Width on paper, as a share of the text width.
    pub width: f64,
}

/// A column of words.
pub(super) fn words(title: &str, width: f64) -> Column {
    Column { title: title.to_owned(), numeric: false, width }
}

/// A column of numbers.
pub(super) fn numbers(title: &str, width: f64) -> Column {
    Column { title: title.to_owned(), numeric: true, width }
}

/// A row: cells, or a heading across the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    /// Heading across the table; empty for a row of cells.
    pub heading: String,
    /// Cells; empty for a heading.
    pub cells: Vec<Cell>,
    /// A name for the row, stable between renderings: macro ids and anchors are made of it.
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Grid {
    /// Name, unique in the report: file name of the fragment and prefix of its macros.
    pub id: Id,
    pub caption: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows.
    pub rows: Vec<Row>,
    /// On a narrow screen rows become blocks instead of scrolling sideways.
    pub stacks: bool,
}

impl Grid {
    /// A table without rows.
    pub(super) fn new(id: &str, caption: &str, columns: Vec<Column>) -> Self {
        Self { id: Id::near(id), caption: caption.to_owned(), columns, rows: Vec::new(), stacks: false }
    }

    /// Rows become blocks on a narrow screen.
    pub(super) fn stacking(mut self) -> Self {
        self.stacks = true;
        self
    }

    /// Adds a heading across the table.
    pub(super) fn heading(&mut self, text: &str) {
        self.rows.push(Row { heading: text.to_owned(), cells: Vec::new(), key: String::new() });
    }

    /// Adds a row.
    pub(super) fn row(&mut self, key: &str, cells: Vec<Cell>) {
        self.rows.push(Row { heading: String::new(), cells, key: key.to_owned() });
    }
}

/// A name and a text.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Fact {
    pub name: String,
    pub text: String,
}
