//! What a manifest decides of the rule: patterns and entities. The steps themselves are this crate, so their text in the manifest is pinned here.

use std::collections::BTreeMap;
use std::fmt;

use regex::bytes::{Captures, Regex, RegexBuilder};
use sha2::{Digest, Sha256};

use crate::bytes::hex;

/// SHA-256 of the steps in words that this crate follows. Another text is another rule, and nothing here knows it.
const STEPS_SHA256: &str = "89db9e2801c6b454fc3e57e782c8da81b21337fcc75d3d8c84348ad216605418";

/// Why a manifest's rule cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// The steps in words are others than those that were programmed.
    #[error("extraction: rule: its SHA-256 is {found}, but this program follows {STEPS_SHA256}; take a copy with --from DIR instead")]
    OtherSteps { found: String },
    #[error("extraction: patterns: {name}: {problem}")]
    Pattern { name: String, problem: String },
}

macro_rules! patterns {
    ($($field:ident = $name:literal),+ $(,)?) => {
        /// The manifest's patterns, by their names there.
        pub(crate) struct Patterns { $(pub(crate) $field: Regex),+ }

        const NAMES: &[&str] = &[$($name),+];

        impl Patterns {
            fn compile(texts: &BTreeMap<String, String>) -> Result<Self, RuleError> {
                if let Some(name) = texts.keys().find(|name| !NAMES.contains(&name.as_str())) {
                    return Err(RuleError::Pattern { name: name.clone(), problem: "no step uses it".into() });
                }
                Ok(Self { $($field: pattern($name, texts.get($name).map(String::as_str))?),+ })
            }
        }
    };
}

patterns! {
    entity = "ENT", comment = "COMMENT", reference_definition = "REFDEF", liquid = "LIQUID", macro_argument = "MACRO_ARG", macro_call = "MACRO",
    html_tags = "TAGS", image = "IMAGE", link = "LINK", reference_link = "REFLINK", alert = "ALERT", escaped = "UNESC", quote = "QUOTE",
    fence = "FENCE", rst_link = "RSTLINK", role = "ROLE", tag = "TAG", tag_name = "TNAME", spaces = "SPACES", math = "MATH", title = "TITLE",
    question_and_answer = "QA", bullet = "BUL", paragraph = "PAR",
}

/// On bytes, without Unicode classes.
fn pattern(name: &str, text: Option<&str>) -> Result<Regex, RuleError> {
    let wrong = |problem: String| RuleError::Pattern { name: name.to_owned(), problem };
    let text = text.ok_or_else(|| wrong("is missing".into()))?;
    RegexBuilder::new(text).unicode(false).build().map_err(|error| wrong(error.to_string().replace('\n', " ")))
}

/// A rule that can be followed.
pub struct Rule {
    pub(crate) patterns: Patterns,
    /// MODE law: what is said of a paragraph and is none.
    pub(crate) annotations: Regex,
    /// MODE law: what lies between a number and what it numbers.
    pub(crate) after_number: Regex,
    /// MODE tei: a note, across lines.
    pub(crate) note: Regex,
    entities: BTreeMap<String, String>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").finish_non_exhaustive()
    }
}

impl Rule {
    /// From the three parts of a manifest's `extraction`.
    ///
    /// # Errors
    /// Steps that this crate does not follow, or a pattern that is missing, unknown or no pattern.
    pub fn new(steps: &str, patterns: &BTreeMap<String, String>, entities: &BTreeMap<String, String>) -> Result<Self, RuleError> {
        let found = hex(&Sha256::digest(steps.as_bytes()));
        if found != STEPS_SHA256 {
            return Err(RuleError::OtherSteps { found });
        }
        Ok(Self {
            patterns: Patterns::compile(patterns)?,
            annotations: pattern("annotations", Some("(?s)<annotations>.*?</annotations>"))?,
            after_number: pattern("after number", Some("</num>[ \t\n]*<"))?,
            note: pattern("note", Some("(?s)<note[ >].*?</note>"))?,
            entities: entities.clone(),
        })
    }

    /// ENTITIES: each reference by what it stands for, in one pass.
    pub(crate) fn entities(&self, text: &[u8]) -> Vec<u8> {
        let replaced = self.patterns.entity.replace_all(text, |found: &Captures<'_>| {
            let number = |group: usize, radix| found.get(group).map(|digits| code_point(digits.as_bytes(), radix));
            number(1, 10).or_else(|| number(2, 16)).unwrap_or_else(|| self.named(found.get(3).map_or(b"", |name| name.as_bytes())))
        });
        replaced.into_owned()
    }

    /// A name that the pattern lets through and the table lacks stays out of the text, as the pattern alone decides what is a reference.
    fn named(&self, name: &[u8]) -> Vec<u8> {
        std::str::from_utf8(name).ok().and_then(|name| self.entities.get(name)).map(|text| text.as_bytes().to_vec()).unwrap_or_default()
    }
}

/// UTF-8 of a code point, or a space where it is a control character, the no-break space, a surrogate or none.
fn code_point(digits: &[u8], radix: u32) -> Vec<u8> {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, radix).ok());
    let printable = number.filter(|number| *number >= 32 && !(0x7F..=0xA0).contains(number));
    printable.and_then(char::from_u32).unwrap_or(' ').to_string().into_bytes()
}
