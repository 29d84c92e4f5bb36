//! Everything that makes text safe and sound in LaTeX: escaping, the macros file, booktabs fragments.
//!
//! A number reaches the paper only through `macros.tex`: `\Result{id}` expands to it, and an unknown id stops the compilation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::grid::{Cell, Grid};

/// `text` with every character that TeX would act on, or could not print, made harmless.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\textbackslash{}"),
            '{' | '}' | '$' | '&' | '#' | '_' | '%' => {
                escaped.push('\\');
                escaped.push(character);
            }
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '<' => escaped.push_str("\\ensuremath{<}"),
            '>' => escaped.push_str("\\ensuremath{>}"),
            '|' => escaped.push_str("\\ensuremath{|}"),
            '"' => escaped.push_str("\\textquotedbl{}"),
            '`' => escaped.push_str("\\textasciigrave{}"),
            '\'' => escaped.push_str("\\textquotesingle{}"),
            // Brackets would end an optional argument.
            '[' => escaped.push_str("{[}"),
            ']' => escaped.push_str("{]}"),
            '\u{a0}' => escaped.push('~'),
            '−' => escaped.push_str("\\ensuremath{-}"),
            '×' => escaped.push_str("\\ensuremath{\\times}"),
            '÷' => escaped.push_str("\\ensuremath{\\div}"),
            '≥' => escaped.push_str("\\ensuremath{\\geq}"),
            '±' => escaped.push_str("\\ensuremath{\\pm}"),
            '∞' => escaped.push_str("\\ensuremath{\\infty}"),
            'µ' => escaped.push_str("\\ensuremath{\\mu}"),
            '→' => escaped.push_str("\\ensuremath{\\rightarrow}"),
            '·' => escaped.push_str("\\ensuremath{\\cdot}"),
            '–' => escaped.push_str("--"),
            '—' => escaped.push_str("---"),
            '…' => escaped.push_str("\\dots{}"),
            '‘' | '’' => escaped.push_str("\\textquotesingle{}"),
            '\n' | '\t' | '\r' => escaped.push(' '),
            c if c.is_ascii_graphic() || c == ' ' => escaped.push(c),
            c if ('\u{c0}'..='\u{ff}').contains(&c) => escaped.push(c),
            c => {
                let _ = write!(escaped, "{{[}}U+{:04X}{{]}}", c as u32);
            }
        }
    }
    escaped
}

/// Spaces inside intervals, such as those of `[1.5, 2.5]`, as no-break spaces: a line never ends within one.
fn tied(text: &str) -> String {
    const LONGEST: usize = 30;
    let (mut tied, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find('[') {
        let (before, from) = rest.split_at(start);
        tied.push_str(before);
        let length = from.find(']').map_or(1, |end| end + 1);
        let (inside, after) = from.split_at(length);
        let numbers = inside.chars().count() <= LONGEST && inside[1..].chars().all(|c| c.is_ascii_digit() || "+−-.,∞ ]\u{a0}".contains(c));
        if numbers {
            tied.push_str(&inside.replace(' ', "\u{a0}"))
        } else {
            tied.push_str(inside)
        }
        rest = after;
    }
    tied + rest
}

/// As [`escape`], with places to break lines inside paths, hashes and other words longer than a column.
pub(super) fn breakable(text: &str) -> String {
    let words: Vec<String> =
        tied(text).split(' ').map(|word| if word.starts_with('[') { escape(word) } else { breakable_word(word) }).collect();
    words.join(" ")
}

fn breakable_word(word: &str) -> String {
    // A number stays whole.
    if word.chars().all(|c| c.is_ascii_digit() || "+−.,;×%\u{a0}".contains(c)) {
        return escape(word);
    }
    let mut pieces: Vec<String> = Vec::new();
    let mut piece = String::new();
    for character in word.chars() {
        piece.push(character);
        if "/-_,.=:;".contains(character) || piece.chars().count() >= 14 {
            pieces.push(escape(&piece));
            piece.clear();
        }
    }
    if !piece.is_empty() {
        pieces.push(escape(&piece));
    }
    pieces.join("\\allowbreak{}")
}

/// The numbers of the report by id, for `macros.tex`.
#[derive(Debug, Clone, Default)]
pub(super) struct Macros {
    entries: BTreeMap<String, String>,
}

impl Macros {
    /// Gives `text` the name `id` and returns the call that stands for it.
    pub(super) fn define(&mut self, id: &str, text: &str) -> String {
        let id = clean_id(id);
        self.entries.insert(id.clone(), escape(&tied(text)));
        format!("\\Result{{{id}}}")
    }

    /// The text of `macros.tex`.
    pub(super) fn file(&self) -> String {
        let mut text = String::from(concat!(
            "% Every number of the report by id. Written by the harness; edits are lost.\n",
            "\\makeatletter\n",
            "\\DeclareRobustCommand{\\Result}[1]{\\@ifundefined{result@#1}%\n",
            "  {\\PackageError{report}{No result named `#1'}{Render the report again, or correct the id.}}%\n",
            "  {\\csname result@#1\\endcsname}}\n",
            "\\def\\SetResult#1#2{\\expandafter\\def\\csname result@#1\\endcsname{#2}}\n",
        ));
        for (id, value) in &self.entries {
            let _ = writeln!(text, "\\SetResult{{{id}}}{{{value}}}");
        }
        text.push_str("\\makeatother\n");
        text
    }
}

/// Letters, digits, dots and hyphens stay; anything else becomes its code point, so that no id can hold TeX.
fn clean_id(id: &str) -> String {
    let mut clean = String::new();
    for character in id.chars() {
        if character.is_ascii_alphanumeric() || character == '.' || character == '-' {
            clean.push(character);
        } else {
            let _ = write!(clean, "u{:x}", character as u32);
        }
    }
    clean
}

/// A booktabs longtable of `grid`. Cells go through `macros` when their column holds numbers, and are escaped in place otherwise.
pub(super) fn booktabs(grid: &Grid, macros: &mut Macros) -> String {
    let columns: Vec<String> = grid
        .columns
        .iter()
        .map(|column| {
            let side = if column.numeric { "\\raggedleft" } else { "\\raggedright" };
            format!(">{{{side}\\arraybackslash\\hspace{{0pt}}}}p{{\\dimexpr{:.3}\\linewidth-2\\tabcolsep\\relax}}", column.width)
        })
        .collect();
    let titles: Vec<String> = grid.columns.iter().map(|column| escape(&column.title)).collect();
    let head = titles.join(" & ");
    let mut text = format!("% {} - written by the harness; edits are lost.\n", clean_id(&grid.id));
    let _ = writeln!(text, "\\begin{{longtable}}{{@{{}}{}@{{}}}}", columns.join(""));
    let _ = writeln!(text, "\\caption{{{}}}\\label{{tab:{}}}\\\\", escape(&grid.caption), clean_id(&grid.id));
    let _ = writeln!(
        text,
        "\\toprule\n{head} \\\\\n\\midrule\n\\endfirsthead\n\\toprule\n{head} \\\\\n\\midrule\n\\endhead\n\\bottomrule\n\\endfoot"
    );
    for (index, row) in grid.rows.iter().enumerate() {
        if row.cells.is_empty() {
            let space = if index > 0 { "\\addlinespace\n" } else { "" };
            let _ = writeln!(
                text,
                "{space}\\multicolumn{{{}}}{{@{{}}p{{0.98\\linewidth}}@{{}}}}{{\\emph{{{}}}}} \\\\*",
                grid.columns.len(),
                escape(&row.heading)
            );
        } else {
            let cells: Vec<String> = row
                .cells
                .iter()
                .zip(&grid.columns)
                .enumerate()
                .map(|(at, (cell, column))| {
                    let id = format!("{}.{}.{}", grid.id, row.key, at + 1);
                    if column.numeric { numeric(cell, &id, macros) } else { wordy(cell) }
                })
                .collect();
            let _ = writeln!(text, "{} \\\\", cells.join(" & "));
        }
    }
    text.push_str("\\end{longtable}\n");
    text
}

fn numeric(cell: &Cell, id: &str, macros: &mut Macros) -> String {
    let main = if cell.text.is_empty() { String::new() } else { macros.define(id, &cell.text) };
    let small = std::iter::once(&cell.detail).chain(&cell.lines).filter(|line| !line.is_empty());
    let small = small.enumerate().map(|(at, line)| {
        let suffix = if at == 0 { "detail".to_owned() } else { format!("line{at}") };
        format!(" {{\\footnotesize {}}}", macros.define(&format!("{id}.{suffix}"), line))
    });
    main + &small.collect::<String>()
}

fn wordy(cell: &Cell) -> String {
    let small: Vec<&str> = std::iter::once(&cell.detail).chain(&cell.lines).filter(|line| !line.is_empty()).map(String::as_str).collect();
    let main = if cell.class == "claim" { format!("\\textbf{{{}}}", breakable(&cell.text)) } else { breakable(&cell.text) };
    if small.is_empty() { main } else { format!("{main} {{\\footnotesize {}}}", breakable(&small.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::grid::{numbers, words};
    use proptest::prelude::*;

    #[test]
    fn every_metacharacter_is_harmless() {
        assert_eq!(escape(r"\input{/etc/passwd}"), r"\textbackslash{}input\{/etc/passwd\}");
        assert_eq!(escape("50% of $x_1 & #2 ~ ^"), r"50\% of \$x\_1 \& \#2 \textasciitilde{} \textasciicircum{}");
        assert_eq!(escape("−3\u{a0}% × [a]"), r"\ensuremath{-}3~\% \ensuremath{\times} {[}a{]}");
        assert_eq!(escape("é漢"), "é{[}U+6F22{]}");
    }

    #[test]
    fn no_line_ends_within_an_interval() {
        assert_eq!(tied("+1.0 [−6.6, +12.1] % of [a, b] and [1, 2"), "+1.0 [−6.6,\u{a0}+12.1] % of [a, b] and [1, 2");
        assert_eq!(breakable("x [1.25, 2.25] y"), "x {[}1.25,~2.25{]} y");
    }

    #[test]
    fn ids_cannot_hold_tex() {
        let mut macros = Macros::default();
        assert_eq!(macros.define("a}b\\c", "1"), "\\Result{au7dbu5cc}");
        assert!(macros.file().contains("\\SetResult{au7dbu5cc}{1}"));
    }

    #[test]
    fn numbers_go_through_macros() {
        let mut grid = Grid::new("t", "50 %", vec![words("Name", 0.5), numbers("Value", 0.5)]);
        grid.row("r", vec!["a_b".into(), Cell::new("1.5").detail("[1, 2]")]);
        let mut macros = Macros::default();
        let text = booktabs(&grid, &mut macros);
        assert!(text.contains(r"a\_\allowbreak{}b & \Result{t.r.2} {\footnotesize \Result{t.r.2.detail}} \\"), "{text}");
        assert!(!text.contains("1.5"));
        assert!(macros.file().contains("{{[}1,~2{]}}"), "{}", macros.file());
    }

    proptest! {
        /// No input leaves an unescaped active character, and braces balance.
        #[test]
        fn nothing_active_survives(text in "\\PC{0,60}") {
            let escaped = escape(&text);
            let mut depth = 0i32;
            let mut previous = ' ';
            for character in escaped.chars() {
                match character {
                    '{' if previous != '\\' => depth += 1,
                    '}' if previous != '\\' => depth -= 1,
                    '$' | '&' | '#' | '_' | '%' => prop_assert_eq!(previous, '\\'),
                    '^' => prop_assert!(false),
                    _ => {}
                }
                prop_assert!(depth >= 0);
                // A backslash that is itself escaped never occurs: backslash becomes a word.
                previous = character;
            }
            prop_assert_eq!(depth, 0);
        }
    }
}
