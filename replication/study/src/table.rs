//! A table in memory, and as a CSV file.

use std::path::Path;

use crate::files::{self, FileError};

/// Why a table was not written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    File(#[from] FileError),
    /// A row that cannot be CSV.
    #[error("cannot write {name} as CSV: {source}")]
    Csv { name: &'static str, source: csv::Error },
}

/// A table in memory: names of columns, then rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// File name without directory.
    pub name: &'static str,
    /// Column names.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn csv(&self) -> Result<String, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&self.columns)?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        let bytes = writer.into_inner().map_err(|error| csv::Error::from(std::io::Error::other(error.to_string())))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes the CSV file into `directory`, aside and then renamed.
    pub fn write(&self, directory: &Path) -> Result<(), TableError> {
        let text = self.csv().map_err(|source| TableError::Csv { name: self.name, source })?;
        Ok(files::write(&directory.join(self.name), text.as_bytes())?)
    }
}

pub fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The shortest decimal that reads back to the same value; empty for none.
pub fn cell(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_back_and_hostile_cells_stay_cells() {
        let value = 0.1 + 0.2;
        let row = vec!["a,\"b\"\nc".to_owned(), cell(Some(value)), cell(None)];
        let table = Table { name: "t.csv", columns: columns(&["x", "y", "z"]), rows: vec![row.clone()] };
        let text = table.csv().unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let read: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(read[0].iter().collect::<Vec<_>>(), row);
        assert_eq!(read[0][1].parse::<f64>().unwrap().to_bits(), value.to_bits());
    }
}
