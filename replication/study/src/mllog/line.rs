//! One line of a log: whatever stands before `:::MLLOG`, a JSON object, and perhaps more such objects after it.
//!
//! Streams of several processes are often mixed into one file, so a line may carry a prefix, end in another process's text, or hold
//! two entries. Python writes NaN and Infinity as bare words, which JSON does not have: they are read as null.

use serde::Deserialize;
use serde_json::{Map, Value};

/// What an MLPerf line begins with, after any prefix.
pub(crate) const TOKEN: &str = ":::MLLOG";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Kind {
    IntervalStart,
    IntervalEnd,
    PointInTime,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::IntervalStart => "INTERVAL_START",
            Self::IntervalEnd => "INTERVAL_END",
            Self::PointInTime => "POINT_IN_TIME",
        }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// One-based line in its file.
    pub line: u64,
    /// Milliseconds since 1970.
    pub time_ms: i64,
    pub kind: Kind,
    pub key: String,
    pub value: Value,
    pub metadata: Map<String, Value>,
}

impl Event {
    /// A whole number of the metadata, also where it was written as `12288.0`.
    pub(crate) fn whole(&self, key: &str) -> Option<u64> {
        whole(self.metadata.get(key)?)
    }

    /// The value as text, without quotes.
    pub(crate) fn text(&self) -> String {
        plain(&self.value)
    }
}

/// A value without quotes.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A whole number that JSON may hold as an integer or a float.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..9e15).contains(number)).map(|n| n as u64))
}

#[derive(Deserialize)]
struct Raw {
    time_ms: Value,
    event_type: Kind,
    key: String,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

/// Every entry of a line, or why one of them is none. A line without the token gives nothing.
pub(crate) fn parse(text: &str, line: u64) -> Vec<Result<Event, String>> {
    text.split(TOKEN).skip(1).map(|entry| entry_of(entry.trim(), line)).collect()
}

/// Every entry of a log, or the first line that holds none.
pub(crate) fn events(text: &str) -> Result<Vec<Event>, String> {
    let lines = text.lines().zip(1u64..);
    lines
        .flat_map(|(text, line)| parse(text, line).into_iter().map(move |entry| entry.map_err(|what| format!("line {line}: {what}"))))
        .collect()
}

fn entry_of(text: &str, line: u64) -> Result<Event, String> {
    let raw = match first_object(text) {
        Ok(raw) => raw,
        Err(error) if error.is_eof() => return Err("the line is cut off inside its JSON object".to_owned()),
        Err(error) => match first_object(&without_bare_numbers(text)) {
            Ok(raw) => raw,
            Err(_) => return Err(format!("what follows {TOKEN} is no entry: {}", first_words(&error.to_string()))),
        },
    };
    let time_ms = raw.time_ms.as_f64().or_else(|| raw.time_ms.as_str()?.parse().ok());
    let time_ms = time_ms.filter(|time| time.is_finite() && time.abs() < 9e15).ok_or("its time_ms is not a time")?;
    Ok(Event {
        line,
        time_ms: time_ms.round() as i64,
        kind: raw.event_type,
        key: raw.key,
        value: raw.value,
        metadata: raw.metadata.unwrap_or_default(),
    })
}

/// The first JSON value of `text`; what another process wrote after it on the same line is left alone.
fn first_object(text: &str) -> Result<Raw, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Raw>();
    values.next().unwrap_or_else(|| serde_json::from_str(text))
}

/// Python's NaN, Infinity and -Infinity after a colon become null.
fn without_bare_numbers(text: &str) -> String {
    ["-Infinity", "Infinity", "NaN"]
        .iter()
        .fold(text.to_owned(), |text, word| text.replace(&format!(": {word}"), ": null").replace(&format!(":{word}"), ":null"))
}

/// An error message without its place in the line, which means nothing after a prefix was cut off.
fn first_words(message: &str) -> String {
    message.split(" at line ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Event {
        let mut all = parse(text, 7);
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0).unwrap()
    }

    const ENTRY: &str = r#":::MLLOG {"namespace": "", "time_ms": 12.4, "event_type": "POINT_IN_TIME", "key": "seed", "value": 3, "metadata": {"samples_count": 64.0}}"#;

    #[test]
    fn prefixes_mixed_streams_and_two_entries() {
        let event = one(&format!("[1,0]<stdout>: {ENTRY} Epoch 0: 3%"));
        assert_eq!((event.time_ms, event.key.as_str(), event.whole("samples_count"), event.line), (12, "seed", Some(64), 7));
        assert_eq!(parse(&format!("{ENTRY}{ENTRY}"), 1).len(), 2);
        assert!(parse("no token here", 1).is_empty());
    }

    #[test]
    fn bare_words_are_null() {
        for word in ["NaN", "Infinity", "-Infinity"] {
            assert_eq!(one(&ENTRY.replace("\"value\": 3", &format!("\"value\": {word}"))).value, Value::Null);
        }
        assert_eq!(one(&ENTRY.replace("\"value\": 3", "\"value\": \"NaN\"")).text(), "NaN");
    }

    #[test]
    fn broken_entries_say_how() {
        let why = |text: &str| parse(text, 1).remove(0).unwrap_err();
        assert_eq!(why(&ENTRY[..60]), "the line is cut off inside its JSON object");
        assert_eq!(why(":::MLLOG"), "the line is cut off inside its JSON object");
        assert_eq!(why(":::MLLOG {\"key\": 1}"), "what follows :::MLLOG is no entry: invalid type: integer `1`, expected a string");
        assert_eq!(why(&ENTRY.replace("12.4", "\"noon\"")), "its time_ms is not a time");
        assert_eq!(
            why(&ENTRY.replace("POINT_IN_TIME", "POINT")),
            "what follows :::MLLOG is no entry: unknown variant `POINT`, expected one of `INTERVAL_START`, `INTERVAL_END`, `POINT_IN_TIME`"
        );
    }
}
