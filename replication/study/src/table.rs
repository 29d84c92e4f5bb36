//! A table as a CSV file. A row is a struct whose fields name the columns, so that a column's name stands beside its value.

use std::path::Path;

use serde::{Serialize, Serializer};

use crate::files::{self, FileError};

/// Why a table was not written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    File(#[from] FileError),
    /// A row that cannot be CSV.
    #[error("cannot write {name} as CSV: {what}")]
    Csv { name: &'static str, what: String },
}

/// A CSV file before it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// File name without directory.
    pub name: &'static str,
    /// The file's content, or why there is none: said when it is asked for.
    text: Result<String, String>,
}

impl Table {
    /// One line a row below the names of `R`'s fields, which stand there without any row, too.
    pub fn of<R: Serialize + Default>(name: &'static str, rows: impl IntoIterator<Item = R>) -> Self {
        let mut rows = rows.into_iter().peekable();
        let text = match rows.peek() {
            Some(_) => write(|writer| rows.try_for_each(|row| writer.serialize(row))),
            None => columns::<R>().and_then(|columns| write(|writer| writer.write_record(columns))),
        };
        Self { name, text: text.map_err(|error| error.to_string()) }
    }

    /// Where the number of columns depends on the data.
    pub fn of_cells(name: &'static str, columns: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        let text = write(|writer| {
            writer.write_record(columns)?;
            rows.into_iter().try_for_each(|row| writer.write_record(row))
        });
        Self { name, text: text.map_err(|error| error.to_string()) }
    }

    pub fn csv(&self) -> Result<&str, TableError> {
        self.text.as_deref().map_err(|what| TableError::Csv { name: self.name, what: what.clone() })
    }

    /// Writes the CSV file into `directory`, aside and then renamed.
    pub fn write(&self, directory: &Path) -> Result<(), TableError> {
        Ok(files::write(&directory.join(self.name), self.csv()?.as_bytes())?)
    }
}

/// The names of `R`'s fields, in order.
pub fn columns<R: Serialize + Default>() -> Result<Vec<String>, csv::Error> {
    let text = write(|writer| writer.serialize(R::default()))?;
    Ok(csv::Reader::from_reader(text.as_bytes()).headers()?.iter().map(str::to_owned).collect())
}

fn write(rows: impl FnOnce(&mut csv::Writer<Vec<u8>>) -> Result<(), csv::Error>) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows(&mut writer)?;
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(std::io::Error::other(error.to_string())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A number as the shortest decimal that reads back to the same value, a whole one without a point: `1` and not `1.0`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// As [`Number`], with nine significant digits: for tables of thousands of means and bounds, of which nobody knows more than three.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rounded(pub f64);

impl Serialize for Rounded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&significant(self.0, 9))
    }
}

/// The nearest decimal of so many significant digits, of which there is at least one.
pub fn significant(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value)
}

/// A truth value as 0 or 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flag(pub bool);

impl Serialize for Flag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(u8::from(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_significant_ones_and_the_shortest() {
        for (value, expected) in [
            (0.123_456_789_012, "0.123456789"),
            (-7.424_968_238_799_92, "-7.42496824"),
            (983_040.0, "983040"),
            (1e-12 / 3.0, "0.000000000000333333333"),
            (0.0, "0"),
        ] {
            assert_eq!(significant(value, 9).to_string(), expected);
        }
        assert_eq!(significant(1234.5678, 0), 1000.0);
        assert!(significant(f64::NAN, 9).is_nan() && significant(f64::INFINITY, 9).is_infinite());
    }

    #[derive(Default, Serialize)]
    struct Row {
        text: &'static str,
        number: Option<Number>,
        flag: Flag,
    }

    #[test]
    fn floats_read_back_and_hostile_cells_stay_cells() {
        let value = 0.1 + 0.2;
        let row = |number| Row { text: "a,\"b\"\nc", number, flag: Flag(true) };
        let table = Table::of("t.csv", [row(Some(Number(value))), row(None), row(Some(Number(1e-7)))]);
        let mut reader = csv::Reader::from_reader(table.csv().unwrap().as_bytes());
        let read: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(read[0].iter().collect::<Vec<_>>(), ["a,\"b\"\nc", "0.30000000000000004", "1"]);
        assert_eq!(read[0][1].parse::<f64>().unwrap().to_bits(), value.to_bits());
        assert_eq!((&read[1][1], &read[2][1]), ("", "0.0000001"));
    }

    #[test]
    fn a_table_without_rows_still_names_its_columns() {
        assert_eq!(Table::of::<Row>("t.csv", []).csv().unwrap(), "text,number,flag\n");
        assert_eq!(columns::<Row>().unwrap(), ["text", "number", "flag"]);
        let uneven = Table::of_cells("t.csv", &["a".into(), "b".into()], [vec!["1".into()]]);
        assert!(uneven.csv().unwrap_err().to_string().starts_with("cannot write t.csv as CSV: "));
    }
}
