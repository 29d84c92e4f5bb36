//! How a command ends: what it prints, its exit code, and with `--json` the one object that stands in place of the text.

use serde_json::{Map, Value, json};
use study::exit::ExitCode;

use crate::arguments::Manner;
use crate::print;

/// A command that came to its end.
pub(crate) struct Outcome {
    pub(crate) code: u8,
    /// For people.
    pub(crate) text: String,
    /// For programs: what goes into the object beside `schema`, `command` and `exit_code`.
    pub(crate) facts: Map<String, Value>,
}

impl Outcome {
    /// Of a command that did what it was asked for.
    pub(crate) fn done(text: impl Into<String>) -> Self {
        Self { code: 0, text: text.into(), facts: Map::new() }
    }

    /// Of a check: exit code 1 where something differs.
    pub(crate) fn check(holds: bool, text: impl Into<String>) -> Self {
        let code = if holds { 0 } else { study::exit::FAILED };
        Self { code, ..Self::done(text) }.with("holds", holds)
    }

    pub(crate) fn coded(self, code: u8) -> Self {
        Self { code, ..self }
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(key.to_owned(), value.into());
        self
    }
}

/// Why a command ended early: what to say, and how the process ends.
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl<E: ExitCode> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { text: error.to_string(), code: error.exit_code() }
    }
}

/// What goes to standard output: the text, or with `--json` one object, however the command ended.
pub(crate) fn tell(command: &str, manner: Manner, result: &Result<Outcome, Failure>) {
    match result {
        _ if manner.json => print::out(&(object(command, result) + "\n")),
        Ok(outcome) => print::out(&outcome.text),
        Err(_) => (),
    }
}

fn object(command: &str, result: &Result<Outcome, Failure>) -> String {
    let code = match result {
        Ok(outcome) => outcome.code,
        Err(failure) => failure.code,
    };
    let mut object = Map::new();
    object.insert("schema".to_owned(), json!("mxfp4-outcome/1"));
    object.insert("command".to_owned(), json!(command));
    object.insert("exit_code".to_owned(), json!(code));
    match result {
        Ok(outcome) => object.extend(outcome.facts.clone()),
        Err(failure) => {
            object.insert("error".to_owned(), json!(print::plain(&failure.text)));
        }
    }
    Value::Object(object).to_string()
}
