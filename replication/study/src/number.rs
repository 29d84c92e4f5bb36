//! The only place where a number becomes text. Templates place these strings and never compute or round.
//!
//! Conventions: U+2212 for minus, a no-break space between number and unit, thousands separated by commas, an interval as
//! `[low, high]`. `render/latex.rs` turns the same characters into TeX.

use crate::statistics::Interval;

/// No-break space, between a number and its unit.
pub const SPACE: char = '\u{a0}';

/// `value` with `decimals` digits after the point, a true minus sign, and no "-0".
pub fn fixed(value: f64, decimals: usize) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "∞".to_owned() } else { "−∞".to_owned() };
    }
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
        Some(rest) => format!("−{rest}"),
        None => text,
    }
}

/// What a noun ends with after `count`.
pub fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `3`, `3 or 4`, `2 to 4`.
pub fn between([least, most]: [usize; 2]) -> String {
    match most.saturating_sub(least) {
        0 => most.to_string(),
        1 => format!("{least} or {most}"),
        _ => format!("{least} to {most}"),
    }
}

/// `a, b and c`.
pub fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// As [`fixed`], with a plus sign before positive values.
pub fn signed(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    let zero = text.chars().all(|c| c == '0' || c == '.');
    if zero || text.starts_with('−') { text } else { format!("+{text}") }
}

/// How the number of a claim is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A share as a signed percentage: 0.084 is `+8.4 %`.
    SignedPercent,
    /// A share as a percentage: 0.091 is `9.1 %`.
    Percent,
    /// A factor: `1.08×`.
    Factor,
    /// A ratio without a unit: `1.084`.
    Ratio,
    /// A difference of losses: `+0.112 nat`.
    Nats,
    /// Runs that did not reach the target, of all.
    Runs,
    /// A relative error: `1.2e−15`.
    Error,
}

impl Unit {
    /// A measured number in this unit.
    pub fn number(self, value: f64) -> String {
        match self {
            Self::SignedPercent => format!("{}{SPACE}%", signed(100.0 * value, 1)),
            Self::Percent => format!("{}{SPACE}%", fixed(100.0 * value, 1)),
            Self::Factor => format!("{}×", fixed(value, 3)),
            Self::Ratio => fixed(value, 3),
            Self::Nats => format!("{}{SPACE}nat", signed(value, 3)),
            Self::Runs => fixed(value, 0),
            Self::Error => scientific(value),
        }
    }

    /// An interval in this unit, with the unit written once.
    pub fn interval(self, interval: &Interval) -> String {
        let (low, high, unit) = match self {
            Self::SignedPercent => (signed(100.0 * interval.low, 1), signed(100.0 * interval.high, 1), "\u{a0}%"),
            Self::Percent => (fixed(100.0 * interval.low, 1), fixed(100.0 * interval.high, 1), "\u{a0}%"),
            Self::Factor => (fixed(interval.low, 3), fixed(interval.high, 3), "×"),
            Self::Nats => (signed(interval.low, 3), signed(interval.high, 3), "\u{a0}nat"),
            Self::Error => (scientific(interval.low), scientific(interval.high), ""),
            Self::Ratio | Self::Runs => (fixed(interval.low, 3), fixed(interval.high, 3), ""),
        };
        format!("[{low}, {high}]{unit}")
    }

    /// The range that a paper reports, with as many decimals as it gives: `+8–9 %`, `1.08×`.
    pub fn reported(self, low: f64, high: f64) -> String {
        let scale = if matches!(self, Self::SignedPercent | Self::Percent) { 100.0 } else { 1.0 };
        let decimals = if scale > 1.0 { 0 } else { 2 };
        let text = if (low - high).abs() < f64::EPSILON {
            fixed(scale * low, decimals)
        } else {
            format!("{}–{}", fixed(scale * low, decimals), fixed(scale * high, decimals))
        };
        let sign = if matches!(self, Self::SignedPercent | Self::Nats) && low > 0.0 { "+" } else { "" };
        format!("{sign}{text}{}", self.suffix())
    }

    /// How far from the reported range still counts, to follow it: ` ± 2 points`, ` ± 0.05`. Shares differ by percentage points.
    pub fn tolerance(self, tolerance: f64) -> String {
        match self {
            Self::SignedPercent | Self::Percent => format!(" ±{SPACE}{} points", fixed(100.0 * tolerance, 0)),
            _ => format!(" ±{SPACE}{}", fixed(tolerance, 2)),
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::SignedPercent | Self::Percent => "\u{a0}%",
            Self::Factor => "×",
            Self::Nats => "\u{a0}nat",
            Self::Ratio | Self::Runs | Self::Error => "",
        }
    }
}

/// Two significant digits and a power of ten: `1.2e−15`.
pub fn scientific(value: f64) -> String {
    format!("{value:.1e}").replace('-', "−")
}

/// A whole number with commas: `212,992`.
pub fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && text != "0" { format!("−{text}") } else { text }
}

/// Seconds with the unit that keeps three digits: `51.2 ms`.
pub fn seconds(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 120.0 => (v / 60.0, "min"),
        v if v >= 1.0 => (v, "s"),
        v if v >= 1e-3 => (v * 1e3, "ms"),
        v => (v * 1e6, "µs"),
    };
    format!("{}{SPACE}{unit}", three_digits(scaled))
}

/// Operations a second with a metric prefix: `1.04 Top/s`.
pub fn operations(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e12 => (v / 1e12, "Top/s"),
        v if v >= 1e9 => (v / 1e9, "Gop/s"),
        v => (v / 1e6, "Mop/s"),
    };
    format!("{}{SPACE}{unit}", three_digits(scaled))
}

fn three_digits(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    fixed(value, decimals)
}

/// The first twelve characters of a hash: enough to tell two apart in a table.
pub fn short_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_and_most() {
        assert_eq!([[3, 3], [3, 4], [2, 4]].map(between), ["3", "3 or 4", "2 to 4"]);
    }

    #[test]
    fn numbers_and_units() {
        assert_eq!(Unit::SignedPercent.number(0.0844), "+8.4\u{a0}%");
        assert_eq!(Unit::SignedPercent.number(-0.0006), "−0.1\u{a0}%");
        assert_eq!(Unit::SignedPercent.number(-0.0004), "0.0\u{a0}%");
        assert_eq!(Unit::Nats.number(-0.0123), "−0.012\u{a0}nat");
        assert_eq!(Unit::SignedPercent.interval(&Interval::new(-0.011, 0.099)), "[−1.1, +9.9]\u{a0}%");
        assert_eq!(Unit::Factor.interval(&Interval::new(1.05, f64::INFINITY)), "[1.050, ∞]×");
        assert_eq!(Unit::Error.number(1.23e-15), "1.2e−15");
    }

    #[test]
    fn what_a_paper_reports() {
        assert_eq!(Unit::SignedPercent.reported(0.08, 0.09), "+8–9\u{a0}%");
        assert_eq!(Unit::Factor.reported(1.2, 1.2), "1.20×");
        assert_eq!(Unit::Nats.reported(0.11, 0.11), "+0.11\u{a0}nat");
        assert_eq!(Unit::Percent.reported(0.82, 0.82), "82\u{a0}%");
        assert_eq!(Unit::Ratio.reported(1.08, 1.09), "1.08–1.09");
        assert_eq!(Unit::SignedPercent.tolerance(0.02), " ±\u{a0}2 points");
        assert_eq!(Unit::Factor.tolerance(0.05), " ±\u{a0}0.05");
    }

    #[test]
    fn sizes() {
        assert_eq!([thousands(0.0), thousands(999.4), thousands(1_234_567.0), thousands(-1000.0)], ["0", "999", "1,234,567", "−1,000"]);
        assert_eq!(
            [seconds(0.0512), seconds(3.0e-6), seconds(2.0), seconds(7200.0)],
            ["51.2\u{a0}ms", "3.00\u{a0}µs", "2.00\u{a0}s", "120\u{a0}min"]
        );
        assert_eq!(operations(1.041e12), "1.04\u{a0}Top/s");
    }
}
