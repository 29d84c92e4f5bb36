//! Arithmetic on papers' own numbers: what each expression of a paper's checks gives.
//!
//! A manifest names an expression by its text, and this is the whole list: fourteen constant checks need no language. Archived
//! manifests name the same texts, so an entry is never changed or removed.

/// The value of an expression; none for a text that is not in the list.
#[allow(clippy::eq_op, reason = "one check says that two of a paper's numbers are the same")]
pub fn value(expression: &str) -> Option<f64> {
    Some(match expression {
        // 2605.09825
        "1-1.08/1.20" => 1.0 - 1.08 / 1.20,
        "1-1.09/1.20" => 1.0 - 1.09 / 1.20,
        "1.20/1.09" => 1.20 / 1.09,
        "1.20/1.08" => 1.20 / 1.08,
        "1.26/1.20" => 1.26 / 1.20,
        "1.27/1.20" => 1.27 / 1.20,
        "26-11" => 26.0 - 11.0,
        "27-10" => 27.0 - 10.0,
        "(26-11)/26" => (26.0 - 11.0) / 26.0,
        "(27-10)/27" => (27.0 - 10.0) / 27.0,
        "12288/178858.7" => 12_288.0 / 178_858.7,
        "0.085*178858.7" => 0.085 * 178_858.7,
        "0.085*178858.7/12288" => 0.085 * 178_858.7 / 12_288.0,
        "0.02*178858.7" => 0.02 * 178_858.7,
        "0.02*178858.7/12288" => 0.02 * 178_858.7 / 12_288.0,
        "1.0430/0.8722/1.041" => 1.0430 / 0.8722 / 1.041,
        "99.31/86.84" => 99.31 / 86.84,
        "1.2848/1.0874/1.055" => 1.2848 / 1.0874 / 1.055,
        "122.44/109.75" => 122.44 / 109.75,
        "exp(3.3)" => 3.3_f64.exp(),
        // 2502.20586
        "(3/4)*(4/3)" => (3.0 / 4.0) * (4.0 / 3.0),
        "(4/3)*(4/3)-16/9" => (4.0 / 3.0) * (4.0 / 3.0) - 16.0 / 9.0,
        "2.60-2.49" => 2.60 - 2.49,
        "2.51-2.49" => 2.51 - 2.49,
        "(0.11-0.02)/0.11" => (0.11 - 0.02) / 0.11,
        _ => return None,
    })
}

/// Whether `value`, rounded to as many decimals as `written` shows, reads as `written`; none when that is no plain decimal number.
pub fn rounds_to(value: f64, written: &str) -> Option<bool> {
    let stated: f64 = written.parse().ok()?;
    let plain = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    if !written.chars().all(plain) || !stated.is_finite() {
        return None;
    }
    let decimals = written.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    // The rule "rounds to" allows half a unit of the last digit. The slack covers expressions whose exact value is a tie, such as
    // 0.915 stored as 0.91500000000000004: there either neighbour counts as correctly rounded.
    let unit = 10f64.powi(-i32::try_from(decimals).unwrap_or(i32::MAX));
    Some((value - stated).abs() <= 0.5 * unit * (1.0 + 1e-9))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_the_digits_written() {
        assert!(rounds_to(0.09166, "0.0917").unwrap());
        assert!(!rounds_to(0.09166, "0.0916").unwrap());
        assert!(rounds_to(15_202.99, "15203").unwrap());
        assert!(rounds_to(0.1 + 0.2, "0.3").unwrap());
        assert!(!rounds_to(1.0, "1.01").unwrap());
        for bad in ["", "abc", "inf", "NaN", "1e3"] {
            assert!(rounds_to(1.0, bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_expression_is_its_text() {
        assert_eq!(value("26-11"), Some(15.0));
        assert_eq!(value("26 - 11"), None);
    }
}
