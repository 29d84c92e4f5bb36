//! How JSON files and lines are written and read: the schema first, then the kind, then what they say; strictly.
//!
//! Types hold what a line says and nothing else; schema and kind are added when it is written, and checked and taken off when it is read.
//! So every type stands alone, and all of them are read by one function with one kind of error.

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::schema;
use crate::text::one_line;

/// Bytes in the longest line that is read. Real ones have a few hundred; a file without line ends must not fill the memory.
pub const LONGEST_LINE: usize = 1 << 20;

/// What is wrong with a line, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {}", one_line(.what))]
pub struct LineError {
    pub file: String,
    /// From 1.
    pub line: usize,
    pub what: String,
}

/// A file that holds one JSON object.
pub trait Document: Serialize + DeserializeOwned {
    const SCHEMA: &'static str;

    /// The object with its schema, on one line.
    fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Written { schema: Some(Self::SCHEMA), kind: None, body: self })
    }

    /// Its lines, as in a file.
    fn to_json_pretty(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(&Written { schema: Some(Self::SCHEMA), kind: None, body: self })
    }

    /// Reads [`Document::to_json`]; another schema is told before its keys are.
    fn from_json(file: &str, text: &str) -> Result<Self, LineError> {
        let wrong = |line, what| LineError { file: file.to_owned(), line, what };
        let mut object: Map<String, Value> = serde_json::from_str(text).map_err(|error| wrong(error.line(), error.to_string()))?;
        take_schema(&mut object, Self::SCHEMA, true).map_err(|what| wrong(1, what))?;
        serde_json::from_value(Value::Object(object)).map_err(|error| wrong(1, error.to_string()))
    }
}

/// Lines of one schema, of several kinds; made by [`lines!`](crate::lines).
pub trait Line: Sized {
    const SCHEMA: &'static str;
    const KINDS: &'static [&'static str];

    /// Whether lines of a kind name the schema; in most files the first one speaks for all.
    fn names_schema(kind: &str) -> bool;

    /// What a line of a known kind says.
    fn from_body(kind: &str, body: Value) -> Result<Self, serde_json::Error>;

    /// Reads one line.
    fn from_line(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST_LINE {
            return Err(format!("it has {} bytes, more than {LONGEST_LINE}", text.len()));
        }
        let mut object: Map<String, Value> = serde_json::from_str(text).map_err(|error| format!("is not a JSON object ({error})"))?;
        let kind = match object.shift_remove("kind") {
            Some(Value::String(kind)) => kind,
            _ => String::new(),
        };
        if !Self::KINDS.contains(&kind.as_str()) {
            // A later schema may have kinds of its own.
            take_schema(&mut object, Self::SCHEMA, false)?;
            return Err(format!("kind: unknown variant `{kind}`, expected one of {}", Self::KINDS.join(", ")));
        }
        if Self::names_schema(&kind) {
            take_schema(&mut object, Self::SCHEMA, true)?;
        }
        Self::from_body(&kind, Value::Object(object)).map_err(|error| format!("{kind}: {error}"))
    }
}

/// Every line that is not empty, with its number from 1.
pub fn read<'a, T: Line>(file: &'a str, text: &'a str) -> impl Iterator<Item = Result<(usize, T), LineError>> + 'a {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(move |(index, line)| match T::from_line(line) {
        Ok(read) => Ok((index + 1, read)),
        Err(what) => Err(LineError { file: file.to_owned(), line: index + 1, what }),
    })
}

fn take_schema(object: &mut Map<String, Value>, expected: &'static str, is_needed: bool) -> Result<(), String> {
    match object.shift_remove("schema") {
        Some(Value::String(found)) => schema::require(&found, expected).map_err(|error| error.to_string()),
        Some(other) => schema::require(&other.to_string(), expected).map_err(|error| error.to_string()),
        None if is_needed => Err(format!("schema is missing; expected `{expected}`")),
        None => Ok(()),
    }
}

/// What is written, in this order.
#[derive(Serialize)]
struct Written<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    body: &'a T,
}

/// One line, for [`lines!`](crate::lines).
pub fn write_line<T: Serialize, S: Serializer>(
    schema: Option<&'static str>,
    kind: &'static str,
    body: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Written { schema, kind: Some(kind), body }.serialize(serializer)
}

/// A number that may be null (JSON has no infinity and no NaN) but may not be absent.
pub(crate) fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    serde::Deserialize::deserialize(deserializer)
}

/// An enumeration of the lines of a schema: a variant, what it says, the word for its kind, and whether it names the schema.
#[macro_export]
macro_rules! lines {
    ($(#[$doc:meta])* $name:ident of $schema:expr; { $($(#[$variant_doc:meta])* $variant:ident($body:ty) = $kind:literal $(with $flag:ident)?),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant($body)),+
        }

        impl $crate::json::Line for $name {
            const SCHEMA: &'static str = $schema;
            const KINDS: &'static [&'static str] = &[$($kind),+];

            fn names_schema(kind: &str) -> bool {
                match kind {
                    $($kind => false $(|| stringify!($flag) == "schema")?,)+
                    _ => false,
                }
            }

            fn from_body(kind: &str, body: serde_json::Value) -> Result<Self, serde_json::Error> {
                match kind {
                    $($kind => serde_json::from_value(body).map(Self::$variant),)+
                    _ => Err(serde::de::Error::unknown_variant(kind, <Self as $crate::json::Line>::KINDS)),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(body) => {
                        let schema = <Self as $crate::json::Line>::names_schema($kind).then_some(<Self as $crate::json::Line>::SCHEMA);
                        $crate::json::write_line(schema, $kind, body, serializer)
                    })+
                }
            }
        }
    };
}
