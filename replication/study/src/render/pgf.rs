//! The same charts for PGFPlots: a CSV file and a picture that reads it. No number is typed into a picture but axis limits.

use std::fmt::Write as _;

use serde::Serialize;

use super::charts::CurveChart;
use super::dots::{BEYOND, DotChart, Point, Reported, Row};
use super::latex::escape;
use super::svg::{SERIES, number};
use crate::table::{Number, Table, significant};

/// Okabe and Ito's colours, as in the page.
const COLOURS: [&str; SERIES] = ["1D2126", "0072B2", "C14F00", "00805C", "A8528A", "B07D00", "2D8FC4", "7A5C3E"];
const DASHES: [&str; SERIES] = ["solid", "dashed", "dotted", "dashdotted", "solid", "densely dashed", "loosely dashed", "densely dotted"];
const MARKS: [&str; 3] = ["*", "square*", "diamond*"];

/// What the CSV of a curve chart holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurveColumns {
    /// Name of the column of the horizontal axis.
    pub x: &'static str,
    /// Whether each run behind a mean has a column and a thin line.
    pub runs: bool,
}

/// One column of `x`, then one for each curve's mean and, where wanted, for each of its runs; `nan` where there is no point.
pub(super) fn curve_table(name: &'static str, chart: &CurveChart, columns: CurveColumns) -> Table {
    let mut series: Vec<(String, &[(f64, f64)])> = Vec::new();
    for (index, curve) in chart.curves.iter().enumerate() {
        series.push((format!("curve{}", index + 1), &curve.mean));
    }
    for (index, curve) in chart.curves.iter().enumerate().filter(|_| columns.runs) {
        series.extend(curve.seeds.iter().enumerate().map(|(run, points)| (run_column(index, run), points.as_slice())));
    }
    let mut tokens: Vec<f64> = series.iter().flat_map(|(_, points)| points.iter().map(|point| point.0)).collect();
    tokens.sort_by(f64::total_cmp);
    tokens.dedup();
    let rows = tokens.iter().map(|at| {
        let losses = series.iter().map(|(_, points)| {
            let loss = points.iter().find(|point| point.0 == *at).map(|point| point.1);
            loss.map_or("nan".to_owned(), drawn)
        });
        std::iter::once(drawn(*at)).chain(losses).collect()
    });
    let columns: Vec<String> = std::iter::once(columns.x.to_owned()).chain(series.iter().map(|(name, _)| name.clone())).collect();
    Table::of_cells(name, &columns, rows)
}

/// A coordinate of a point that is drawn.
fn drawn(value: f64) -> String {
    significant(value, 6).to_string()
}

fn run_column(curve: usize, run: usize) -> String {
    format!("curve{}run{}", curve + 1, run + 1)
}

/// The picture of a curve chart.
pub(super) fn curves(chart: &CurveChart, file: &str, columns: CurveColumns) -> String {
    let mut text = String::from("% Written by the harness; edits are lost.\n\\begin{tikzpicture}\n");
    let falls = if chart.x.0 > chart.x.1 { "x dir=reverse, " } else { "" };
    let x = (number(chart.x.0.min(chart.x.1)), number(chart.x.0.max(chart.x.1)));
    let y = (number(chart.y.0), number(chart.y.1));
    let _ = writeln!(
        text,
        "\\begin{{axis}}[width=\\linewidth, height=0.8\\linewidth, title={{{}}}, xlabel={{{}}}, ylabel={{{}}}, xmin={}, xmax={}, ymin={}, ymax={}, \
         {falls}restrict y to domain=-1000:1000, unbounded coords=jump, legend columns=2, legend style={{at={{(0.5,-0.28)}}, anchor=north, draw=none, font=\\scriptsize}}, legend cell align=left]",
        escape(&chart.title),
        escape(&chart.x_label),
        escape(&chart.y_label),
        x.0,
        x.1,
        y.0,
        y.1
    );
    let (bottom, top) = (number(chart.y.0), number(chart.y.1));
    if let Some(((from, to), _)) = &chart.band {
        let _ = writeln!(text, "\\fill[gray, opacity=0.18] (axis cs:{from},{bottom}) rectangle (axis cs:{to},{top});");
    }
    for mark in &chart.marked {
        let colour = colour(mark.curve);
        let _ = writeln!(
            text,
            "\\fill[color={{rgb,255:{colour}}}, opacity=0.28] (axis cs:{},{:.4}) rectangle (axis cs:{},{:.4});",
            mark.x.0, mark.y.0, mark.x.1, mark.y.1
        );
    }
    let x_name = columns.x;
    for (series, curve) in chart.curves.iter().enumerate().filter(|_| columns.runs) {
        for run in 0..curve.seeds.len() {
            let (colour, column) = (colour(series), run_column(series, run));
            let _ = writeln!(
                text,
                "\\addplot[line width=0.3pt, opacity=0.45, color={{rgb,255:{colour}}}, forget plot] table[col sep=comma, x={x_name}, y={column}] {{figures/{file}}};"
            );
        }
    }
    for (series, curve) in chart.curves.iter().enumerate() {
        let _ = writeln!(
            text,
            "\\addplot[line width=0.9pt, {}, color={{rgb,255:{}}}] table[col sep=comma, x={x_name}, y=curve{}] {{figures/{file}}};\n\\addlegendentry{{{}}}",
            DASHES[series % SERIES],
            colour(series),
            series + 1,
            escape(&curve.label)
        );
    }
    if let Some((value, _)) = &chart.goal {
        let _ = writeln!(text, "\\addplot[black, densely dashed, thin, forget plot] coordinates {{({},{value}) ({},{value})}};", x.0, x.1);
    }
    text.push_str("\\end{axis}\n\\end{tikzpicture}%\n");
    text
}

fn colour(series: usize) -> String {
    let hex = COLOURS[series % SERIES];
    let part = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap_or("00"), 16).unwrap_or(0);
    format!("red,{};green,{};blue,{}", part(0), part(2), part(4))
}

/// One point; `minus` and `plus` are the arms of the interval.
#[derive(Default, Serialize)]
struct DotRow {
    /// Counts from the top; series of one row stand a little apart.
    row: Number,
    label: String,
    series: usize,
    value: Number,
    minus: Number,
    plus: Number,
}

pub(super) fn dot_table(name: &'static str, chart: &DotChart) -> Table {
    let mut rows = Vec::new();
    for (index, row) in chart.rows.iter().enumerate() {
        let Row::Values { label, points, reported, .. } = row else { continue };
        // PGFPlots splits at every comma, quoted or not, and TeX acts on some characters even where a column is not used.
        let label = label.replace(|c: char| ",\"\\{}%#$&~^_".contains(c) || c.is_control(), " ");
        // What the paper reports is a series of its own, behind the others.
        let reported = match reported {
            Reported::Range(low, high) => {
                Some(Point { value: 0.5 * (low + high), interval: Some((*low, *high)), series: chart.series.len() })
            }
            Reported::Nothing | Reported::Beyond => None,
        };
        rows.extend(points.iter().chain(&reported).map(|point| {
            let (minus, plus) = point.interval.map_or((0.0, 0.0), |(low, high)| (point.value - low, high - point.value));
            let (value, minus, plus) = (Number(point.value), Number(minus), Number(plus));
            let shift = if point.series < chart.series.len() { chart.shift(point.series) / chart.row_height() } else { 0.0 };
            DotRow {
                row: Number(index as f64 + (100.0 * shift).round() / 100.0),
                label: label.clone(),
                series: point.series,
                value,
                minus,
                plus,
            }
        }));
    }
    Table::of(name, rows)
}

/// Whether a row has a range of the paper's: PGFPlots warns of a series without points.
fn is_reported(chart: &DotChart) -> bool {
    chart.rows.iter().any(|row| matches!(row, Row::Values { reported: Reported::Range(..), .. }))
}

/// Three, or as many as fit beside each other.
fn legend_columns(chart: &DotChart) -> usize {
    /// Characters of a line of the article in \scriptsize, marks and gaps taken off.
    const LINE: usize = 115;
    let drawn = chart.series.iter().enumerate().filter(|(series, _)| has_points(chart, *series)).map(|(_, name)| name);
    let names: Vec<usize> =
        is_reported(chart).then_some(&chart.reported).into_iter().chain(drawn).map(|name| name.chars().count()).collect();
    let width =
        |columns: usize| (0..columns).map(|column| names.iter().skip(column).step_by(columns).max().copied().unwrap_or(0)).sum::<usize>();
    (2..=3).rev().find(|columns| width(*columns) <= LINE).unwrap_or(1)
}

/// Leaves points out that lie beyond the axis, where there are any: TeX has no lengths for what is far beyond. Behind the choice of a series,
/// which is a filter, too, and would take its place.
fn within(chart: &DotChart) -> String {
    let (low, high) = chart.range();
    let is_beyond =
        |row: &Row| matches!(row, Row::Values { points, .. } if points.iter().any(|point| !(low..=high).contains(&point.value)));
    if chart.rows.iter().any(is_beyond) { format!(", restrict x to domain={low:.6}:{high:.6}") } else { String::new() }
}

/// The picture of a dot chart.
pub(super) fn dots(chart: &DotChart, file: &str) -> String {
    let labels: Vec<String> = chart
        .rows
        .iter()
        .map(|row| match row {
            Row::Group(name) => format!("{{\\textit{{{}}}}}", escape(name)),
            Row::Values { label, .. } => format!("{{{}}}", escape(label)),
        })
        .collect();
    let ticks: Vec<String> = (0..chart.rows.len()).map(|index| index.to_string()).collect();
    let (low, high) = chart.range();
    let short = |end: f64| format!("{end:.6}");
    let mut text = String::from("% Written by the harness; edits are lost.\n\\begin{tikzpicture}\n");
    let _ = writeln!(
        text,
        "\\begin{{axis}}[width=0.74\\linewidth, height={:.1}cm, title={{{}}}, xlabel={{{}}}, xmin={}, xmax={}, y dir=reverse, ymin=-0.8, ymax={}.8, ytick={{{}}}, yticklabels={{{}}}, \
         {}xmajorgrids, scaled ticks=false, xticklabel style={{/pgf/number format/fixed, /pgf/number format/precision=3}}, legend columns={}, legend style={{/tikz/every even column/.append style={{column sep=3mm}}, at={{(0.5,-0.02)}}, anchor=north, yshift=-9mm, draw=none, font=\\scriptsize}}]",
        2.6 + 0.021 * chart.row_height() * chart.rows.len() as f64,
        escape(&chart.title),
        escape(&chart.x_label),
        short(low),
        short(high),
        chart.rows.len().saturating_sub(1),
        ticks.join(","),
        labels.join(","),
        if chart.logarithmic { "xmode=log, " } else { "" },
        legend_columns(chart)
    );
    let within = within(chart);
    if is_reported(chart) {
        let (paper, series) = (colour(1), chart.series.len());
        let _ = writeln!(
            text,
            "\\addplot[only marks, mark=square*, mark size=2.6pt, opacity=0.3, color={{rgb,255:{paper}}}, error bars/.cd, x dir=both, x explicit, error mark=none, error bar style={{line width=5.2pt}}] \
             table[col sep=comma, x=value, y=row, x error minus=minus, x error plus=plus, discard if not={{series}}{{{series}}}{within}] {{figures/{file}}};\n\\addlegendentry{{{}}}",
            escape(&chart.reported)
        );
    }
    text.push_str(&beyond(chart));
    let used: Vec<usize> = (0..chart.series.len()).filter(|series| has_points(chart, *series)).collect();
    for series in used {
        let _ = writeln!(
            text,
            "\\addplot[only marks, mark={}, mark size=1.6pt, {}color={{rgb,255:{}}}, error bars/.cd, x dir=both, x explicit] \
             table[col sep=comma, x=value, y=row, x error minus=minus, x error plus=plus, discard if not={{series}}{{{series}}}{within}] {{figures/{file}}};",
            MARKS[series % 3],
            if chart.faint.contains(&series) { "opacity=0.45, " } else { "" },
            colour(series)
        );
        if chart.series.len() > 1 || is_reported(chart) {
            let _ = writeln!(text, "\\addlegendentry{{{}}}", escape(&chart.series[series]));
        }
    }
    if let Some(value) = chart.reference {
        let _ = writeln!(
            text,
            "\\addplot[black, densely dashed, thin, forget plot] coordinates {{({value},-0.8) ({value},{}.8)}};",
            chart.rows.len().saturating_sub(1)
        );
    }
    text.push_str("\\end{axis}\n\\end{tikzpicture}%\n");
    text
}

/// At the right end of a row: numbers beyond the axis, and that the paper's arm did not converge.
fn beyond(chart: &DotChart) -> String {
    let mut text = String::new();
    let (_, high) = chart.range();
    for (index, row) in chart.rows.iter().enumerate() {
        let Row::Values { points, reported, .. } = row else { continue };
        let far = points.iter().filter(|point| point.value > high);
        let far = far.map(|point| (colour(point.series), format!("{:.0}", point.value)));
        let paper = (*reported == Reported::Beyond).then(|| (colour(1), BEYOND.to_owned()));
        let words: Vec<String> =
            far.chain(paper).map(|(colour, word)| format!("\\textcolor[RGB]{{{colour}}}{{{}}}", escape(&word))).collect();
        if !words.is_empty() {
            let _ = writeln!(
                text,
                "\\node[anchor=east, font=\\scriptsize] at (axis cs:{high:.6},{index}) {{{} $\\rightarrow$}};",
                words.join(", ").replace("red,", "").replace("green,", "").replace("blue,", "").replace(';', ",")
            );
        }
    }
    text
}

fn has_points(chart: &DotChart, series: usize) -> bool {
    chart.rows.iter().any(|row| matches!(row, Row::Values { points, .. } if points.iter().any(|point| point.series == series)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With 5,782 on an axis that ends at 54, TeX ended with "Dimension too large".
    #[test]
    fn points_far_beyond_the_axis_are_left_to_their_words() {
        let drawn = |value: f64| {
            let points = vec![Point { value, interval: None, series: 0 }];
            let rows = vec![Row::values("a".into(), points, "not run")];
            dots(&DotChart { series: vec!["one".into()], limits: Some((-20.0, 54.0)), rows, ..DotChart::default() }, "answer.csv")
        };
        let far = drawn(5782.0);
        assert!(far.contains("discard if not={series}{0}, restrict x to domain="), "{far}");
        assert!(far.contains("5782"), "its number stands at the axis' end");
        assert!(!drawn(8.0).contains("restrict"));
    }
}
