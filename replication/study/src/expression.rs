//! A small arithmetic evaluator for the checks of a paper manifest: numbers, `+ - * /`, parentheses and `exp`.
//!
//! Not a language: no names, no comparison, no state. A check writes `1-1.08/1.20` and the value `0.1000`; the check holds
//! when the expression, rounded to the digits written, is that value.

use thiserror::Error;

/// Why an expression could not be evaluated. Every message says at which character.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ExpressionError {
    /// Something that is not part of the language.
    #[error("unexpected `{found}` at character {at} of `{expression}`; allowed are numbers, + - * / ( ) and exp(…)")]
    Unexpected {
        found: String,
        /// One-based character position.
        at: usize,
        expression: String,
    },
    /// The text ended where a number or a closing parenthesis had to follow.
    #[error("`{expression}` ends where {wanted} must follow")]
    Ended { wanted: &'static str, expression: String },
    /// Parentheses nested deeper than any arithmetic check needs.
    #[error("`{expression}` nests parentheses more than {limit} deep")]
    TooDeep { limit: usize, expression: String },
    /// A division by zero or an overflow.
    #[error("`{expression}` has no finite value")]
    NotFinite { expression: String },
    /// The value that a manifest states is not a plain decimal number.
    #[error("`{value}` is not a decimal number such as 0.0917")]
    Value { value: String },
}

/// Deepest nesting of parentheses; keeps a hostile manifest from exhausting the stack.
const DEPTH_LIMIT: usize = 64;

/// Value of `expression`.
///
/// # Errors
/// When the text is not an expression, or its value is not finite.
pub fn evaluate(expression: &str) -> Result<f64, ExpressionError> {
    let mut parser = Parser { text: expression, characters: expression.chars().collect(), next: 0, depth: 0 };
    let value = parser.sum()?;
    parser.skip_space();
    if parser.next < parser.characters.len() {
        return Err(parser.unexpected());
    }
    if value.is_finite() { Ok(value) } else { Err(ExpressionError::NotFinite { expression: expression.to_owned() }) }
}

/// Whether `value`, rounded to as many decimals as `written` shows, reads as `written`.
pub fn rounds_to(value: f64, written: &str) -> Result<bool, ExpressionError> {
    let bad = || ExpressionError::Value { value: written.to_owned() };
    let stated: f64 = written.parse().map_err(|_| bad())?;
    let plain = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    if !written.chars().all(plain) || !stated.is_finite() {
        return Err(bad());
    }
    let decimals = written.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    // The rule "rounds to" allows half a unit of the last digit. The slack covers expressions whose exact value is a tie, such as
    // 0.915 stored as 0.91500000000000004: there either neighbour counts as correctly rounded.
    let unit = 10f64.powi(-i32::try_from(decimals).unwrap_or(i32::MAX));
    Ok((value - stated).abs() <= 0.5 * unit * (1.0 + 1e-9))
}

struct Parser<'text> {
    text: &'text str,
    characters: Vec<char>,
    next: usize,
    depth: usize,
}

impl Parser<'_> {
    fn sum(&mut self) -> Result<f64, ExpressionError> {
        let mut value = self.product()?;
        loop {
            if self.take('+') {
                value += self.product()?;
            } else if self.take('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, ExpressionError> {
        let mut value = self.factor()?;
        loop {
            if self.take('*') {
                value *= self.factor()?;
            } else if self.take('/') {
                value /= self.factor()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self) -> Result<f64, ExpressionError> {
        let mut negative = false;
        while self.take('-') {
            negative = !negative;
        }
        let value = if self.take('(') {
            self.closed()?
        } else if self.take_word("exp(") {
            self.closed()?.exp()
        } else {
            self.number()?
        };
        Ok(if negative { -value } else { value })
    }

    /// The inside of a parenthesis already opened, and its end.
    fn closed(&mut self) -> Result<f64, ExpressionError> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err(ExpressionError::TooDeep { limit: DEPTH_LIMIT, expression: self.text.to_owned() });
        }
        let value = self.sum()?;
        self.depth -= 1;
        if self.take(')') {
            return Ok(value);
        }
        Err(if self.next < self.characters.len() { self.unexpected() } else { self.ended("a closing parenthesis") })
    }

    fn number(&mut self) -> Result<f64, ExpressionError> {
        self.skip_space();
        let start = self.next;
        while self.characters.get(self.next).is_some_and(|c| c.is_ascii_digit() || *c == '.') {
            self.next += 1;
        }
        if start == self.next {
            return Err(if self.next < self.characters.len() { self.unexpected() } else { self.ended("a number") });
        }
        let digits: String = self.characters[start..self.next].iter().collect();
        digits.parse().map_err(|_| ExpressionError::Unexpected { found: digits, at: start + 1, expression: self.text.to_owned() })
    }

    fn skip_space(&mut self) {
        while self.characters.get(self.next).is_some_and(|c| c.is_whitespace()) {
            self.next += 1;
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        self.skip_space();
        let found = self.characters.get(self.next) == Some(&wanted);
        self.next += usize::from(found);
        found
    }

    fn take_word(&mut self, wanted: &str) -> bool {
        self.skip_space();
        let found = self.characters[self.next..].iter().copied().take(wanted.len()).eq(wanted.chars());
        self.next += if found { wanted.len() } else { 0 };
        found
    }

    fn unexpected(&self) -> ExpressionError {
        let found = self.characters.get(self.next).map(char::to_string).unwrap_or_default();
        ExpressionError::Unexpected { found, at: self.next + 1, expression: self.text.to_owned() }
    }

    fn ended(&self, wanted: &'static str) -> ExpressionError {
        ExpressionError::Ended { wanted, expression: self.text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn precedence_and_functions() {
        for (expression, value) in [
            ("1+2*3", 7.0),
            ("(1+2)*3", 9.0),
            ("8/4/2", 1.0),
            ("10-3-2", 5.0),
            ("-2*-3", 6.0),
            ("--2", 2.0),
            (" 1 - 1.08 / 1.20 ", 1.0 - 1.08 / 1.2),
            ("exp(0)", 1.0),
            ("exp(1+1)/exp(2)", 1.0),
        ] {
            assert_eq!(evaluate(expression).unwrap(), value, "{expression}");
        }
    }

    #[test]
    fn errors_say_where() {
        for (expression, message) in [
            ("1+", "`1+` ends where a number must follow"),
            ("(1", "`(1` ends where a closing parenthesis must follow"),
            ("2^3", "unexpected `^` at character 2 of `2^3`; allowed are numbers, + - * / ( ) and exp(…)"),
            ("sin(1)", "unexpected `s` at character 1 of `sin(1)`; allowed are numbers, + - * / ( ) and exp(…)"),
            ("1.2.3", "unexpected `1.2.3` at character 1 of `1.2.3`; allowed are numbers, + - * / ( ) and exp(…)"),
            ("1/0", "`1/0` has no finite value"),
            ("", "`` ends where a number must follow"),
        ] {
            assert_eq!(evaluate(expression).unwrap_err().to_string(), message);
        }
        let deep = "(".repeat(10_000);
        assert!(matches!(evaluate(&deep), Err(ExpressionError::TooDeep { .. })));
    }

    #[test]
    fn rounding_to_the_digits_written() {
        assert!(rounds_to(0.09166, "0.0917").unwrap());
        assert!(!rounds_to(0.09166, "0.0916").unwrap());
        assert!(rounds_to(15_202.99, "15203").unwrap());
        assert!(rounds_to(0.1 + 0.2, "0.3").unwrap());
        assert!(!rounds_to(1.0, "1.01").unwrap());
        for bad in ["", "abc", "inf", "NaN", "1e3"] {
            assert!(rounds_to(1.0, bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[0-9+*/() .xpe-]{0,40}") {
            let _ = evaluate(&text);
        }

        #[test]
        fn agrees_with_the_compiler(a in 0.1f64..100.0, b in 0.1f64..100.0, c in 0.1f64..100.0) {
            prop_assert_eq!(evaluate(&format!("({a}-{b})/{c}+{a}*{b}")).unwrap(), (a - b) / c + a * b);
        }
    }
}
