//! The two kinds of chart that the report uses: curves over tokens, and rows of points with intervals.
//!
//! Data in, SVG out; which data belong in which figure is `figures.rs`'s business.

use super::svg::{Anchor, Axis, Svg};

/// Size and margins of a curve chart in view-box units; two such charts stand side by side on a wide page and stack on a phone.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 330.0;

/// One curve: a mean, and the seeds behind it.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub label: String,
    /// Points of the mean, in order of x.
    pub mean: Vec<(f64, f64)>,
    pub seeds: Vec<Vec<(f64, f64)>>,
}

#[derive(Debug, Clone)]
pub(super) struct CurveChart {
    /// Title, for readers of all kinds.
    pub title: String,
    /// What the chart shows, in words.
    pub description: String,
    /// Label of the horizontal axis.
    pub x_label: String,
    /// Label of the vertical axis.
    pub y_label: String,
    /// Range shown; points outside are clipped away.
    pub x: (f64, f64),
    pub y: (f64, f64),
    /// A horizontal line with its label.
    pub goal: Option<(f64, String)>,
    pub curves: Vec<Curve>,
}

impl CurveChart {
    pub(super) fn draw(&self) -> Svg {
        let legend_rows = self.curves.len().div_ceil(2) as f64;
        let (left, right, top, bottom) = (46.0, WIDTH - 10.0, 26.0, HEIGHT - 38.0);
        let mut svg = Svg::new(WIDTH, HEIGHT + 18.0 * legend_rows, &self.title, &self.description);
        let x = Axis::linear(self.x, (left, right));
        let y = Axis::linear(self.y, (bottom, top));
        svg.text("head", Anchor::Start, (0.0, 13.0), &self.title);
        self.axes(&mut svg, &x, &y, (left, right, top, bottom));
        for (series, curve) in self.curves.iter().enumerate() {
            for seed in &curve.seeds {
                self.pieces(seed).iter().for_each(|piece| svg.curve(series, true, &placed(piece, &x, &y)));
            }
        }
        for (series, curve) in self.curves.iter().enumerate() {
            self.pieces(&curve.mean).iter().for_each(|piece| svg.curve(series, false, &placed(piece, &x, &y)));
        }
        if let Some((value, label)) = &self.goal {
            svg.line("goal", (left, y.at(*value)), (right, y.at(*value)));
            svg.text("tick", Anchor::Start, (left + 5.0, y.at(*value) - 5.0), label);
        }
        self.legend(&mut svg, HEIGHT + 6.0);
        svg
    }

    fn axes(&self, svg: &mut Svg, x: &Axis, y: &Axis, (left, right, top, bottom): (f64, f64, f64, f64)) {
        for (tick, label) in labelled(&y.ticks(5)) {
            svg.line("grid", (left, y.at(tick)), (right, y.at(tick)));
            svg.text("tick", Anchor::End, (left - 6.0, y.at(tick) + 4.0), &label);
        }
        for (tick, label) in labelled(&x.ticks(5)) {
            svg.line("grid", (x.at(tick), top), (x.at(tick), bottom));
            svg.text("tick", Anchor::Middle, (x.at(tick), bottom + 15.0), &label);
        }
        svg.line("axis", (left, bottom), (right, bottom));
        svg.text("tick", Anchor::Middle, ((left + right) / 2.0, bottom + 31.0), &self.x_label);
        svg.text("tick", Anchor::End, (right, 13.0), &self.y_label);
    }

    fn legend(&self, svg: &mut Svg, top: f64) {
        for (series, curve) in self.curves.iter().enumerate() {
            let (column, row) = ((series % 2) as f64, (series / 2) as f64);
            let (at_x, at_y) = (46.0 + column * 215.0, top + 18.0 * row);
            svg.curve(series, false, &[(at_x, at_y), (at_x + 26.0, at_y)]);
            svg.text("tick", Anchor::Start, (at_x + 32.0, at_y + 4.0), &curve.label);
        }
    }

    /// The parts of a curve inside the range, cut at the frame.
    fn pieces(&self, points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
        let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut current: Vec<(f64, f64)> = Vec::new();
        for pair in points.windows(2) {
            match clip(pair[0], pair[1], self.x, self.y) {
                Some((from, to)) => {
                    if current.last() != Some(&from) {
                        pieces.push(std::mem::take(&mut current));
                        current.push(from);
                    }
                    current.push(to);
                }
                None => pieces.push(std::mem::take(&mut current)),
            }
        }
        pieces.push(current);
        pieces.retain(|piece| piece.len() > 1);
        pieces
    }
}

/// Liang and Barsky's clipping of a segment to a rectangle; none when it lies outside.
fn clip(from: (f64, f64), to: (f64, f64), x: (f64, f64), y: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut enter, mut leave) = (0.0f64, 1.0f64);
    for (direction, distance) in [(-dx, from.0 - x.0), (dx, x.1 - from.0), (-dy, from.1 - y.0), (dy, y.1 - from.1)] {
        if direction == 0.0 {
            if distance < 0.0 {
                return None;
            }
        } else if direction < 0.0 {
            enter = enter.max(distance / direction);
        } else {
            leave = leave.min(distance / direction);
        }
    }
    let at = |share: f64| (from.0 + share * dx, from.1 + share * dy);
    let start = if enter == 0.0 { from } else { at(enter) };
    let end = if (leave - 1.0).abs() < f64::EPSILON { to } else { at(leave) };
    (enter <= leave).then_some((start, end))
}

fn placed(points: &[(f64, f64)], x: &Axis, y: &Axis) -> Vec<(f64, f64)> {
    points.iter().map(|point| (x.at(point.0), y.at(point.1))).collect()
}

/// Ticks with labels that have just as many decimals as the smallest step needs.
fn labelled(ticks: &[f64]) -> Vec<(f64, String)> {
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let decimals = if step.is_finite() && step > 0.0 { (-step.log10()).ceil().clamp(0.0, 6.0) as usize } else { 2 };
    ticks.iter().map(|tick| (*tick, crate::number::fixed(*tick, decimals))).collect()
}

/// One point of a row: a value, its interval where there is one, and the series (colour and shape).
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub value: f64,
    /// 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Index into the chart's series.
    pub series: usize,
}

/// A row of a dot chart, or a heading between rows.
#[derive(Debug, Clone)]
pub(super) enum Row {
    Group(String),
    /// A label and its points; `note` stands where there is no point.
    Values {
        /// Label at the left.
        label: String,
        points: Vec<Point>,
        /// Words in place of points.
        note: String,
    },
}

/// Rows of points over a common horizontal axis.
#[derive(Debug, Clone)]
pub(super) struct DotChart {
    pub title: String,
    /// What the chart shows, in words.
    pub description: String,
    /// Label of the horizontal axis.
    pub x_label: String,
    /// Whether the axis is logarithmic.
    pub logarithmic: bool,
    /// A vertical line at this value, such as zero or one.
    pub reference: Option<f64>,
    /// Names of the series; no legend when there is only one.
    pub series: Vec<String>,
    /// Whether the points of a row are joined, as for before and after.
    pub joined: bool,
    /// Rows from the top.
    pub rows: Vec<Row>,
}

impl DotChart {
    pub(super) fn draw(&self) -> Svg {
        let (width, row_height, top) = (430.0, 20.0, if self.series.len() > 1 { 52.0 } else { 30.0 });
        let bottom = top + row_height * self.rows.len() as f64 + 4.0;
        let (left, right) = (152.0, width - 12.0);
        let mut svg = Svg::new(width, bottom + 38.0, &self.title, &self.description);
        let range = self.range();
        let view = (left, right);
        let x = if self.logarithmic { Axis::logarithmic(range, view) } else { Axis::linear(range, view) };
        svg.text("head", Anchor::Start, (0.0, 13.0), &self.title);
        for (tick, label) in labelled(&x.ticks(5)) {
            svg.line("grid", (x.at(tick), top), (x.at(tick), bottom));
            svg.text("tick", Anchor::Middle, (x.at(tick), bottom + 15.0), &label);
        }
        if let Some(value) = self.reference {
            svg.line("goal", (x.at(value), top), (x.at(value), bottom));
        }
        svg.line("axis", (left, bottom), (right, bottom));
        svg.text("tick", Anchor::Middle, ((left + right) / 2.0, bottom + 32.0), &self.x_label);
        self.legend(&mut svg);
        for (index, row) in self.rows.iter().enumerate() {
            self.row(&mut svg, row, &x, top + row_height * (index as f64 + 0.5) + 2.0);
        }
        svg
    }

    fn row(&self, svg: &mut Svg, row: &Row, x: &Axis, y: f64) {
        match row {
            Row::Group(name) => svg.text("group", Anchor::Start, (0.0, y + 4.0), name),
            Row::Values { label, points, note } => {
                svg.text("label", Anchor::End, (144.0, y + 4.0), label);
                if points.is_empty() {
                    svg.text("tick note", Anchor::Start, (158.0, y + 4.0), note);
                }
                if let (true, Some(first), Some(last)) = (self.joined, points.first(), points.last()) {
                    svg.line("link", (x.at(first.value), y), (x.at(last.value), y));
                }
                for point in points {
                    let y = y + self.shift(point.series);
                    if let Some((low, high)) = point.interval {
                        svg.error_bar(point.series, x.at(low), x.at(high), y);
                    }
                    svg.mark(point.series, (x.at(point.value), y), 4.0);
                }
            }
        }
    }

    /// Moves series apart within a row where their intervals would hide each other.
    fn shift(&self, series: usize) -> f64 {
        let has_interval = |row: &Row| matches!(row, Row::Values { points, .. } if points.iter().any(|point| point.interval.is_some()));
        if self.series.len() < 2 || !self.rows.iter().any(has_interval) {
            return 0.0;
        }
        7.0 * (series as f64 - (self.series.len() - 1) as f64 / 2.0)
    }

    fn legend(&self, svg: &mut Svg) {
        if self.series.len() < 2 {
            return;
        }
        let mut at = 152.0;
        for (series, name) in self.series.iter().enumerate() {
            svg.mark(series, (at + 4.0, 34.0), 4.0);
            svg.text("tick", Anchor::Start, (at + 13.0, 38.0), name);
            at += 26.0 + 6.4 * name.chars().count() as f64;
        }
    }

    /// The range of all values, intervals and the reference, with a little room.
    pub(super) fn range(&self) -> (f64, f64) {
        let mut values: Vec<f64> = self.reference.into_iter().collect();
        for row in &self.rows {
            if let Row::Values { points, .. } = row {
                values.extend(points.iter().flat_map(|point| {
                    let (low, high) = point.interval.unwrap_or((point.value, point.value));
                    [point.value, low, high]
                }));
            }
        }
        values.retain(|value| value.is_finite());
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return if self.logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if self.logarithmic { (low / 1.1, high * 1.1) } else { (low - 0.04 * (high - low), high + 0.04 * (high - low)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_cuts_at_the_frame() {
        let frame = ((0.0, 10.0), (0.0, 10.0));
        assert_eq!(clip((-5.0, 5.0), (5.0, 5.0), frame.0, frame.1), Some(((0.0, 5.0), (5.0, 5.0))));
        assert_eq!(clip((2.0, 2.0), (3.0, 3.0), frame.0, frame.1), Some(((2.0, 2.0), (3.0, 3.0))));
        assert_eq!(clip((-5.0, 5.0), (-1.0, 5.0), frame.0, frame.1), None);
        assert_eq!(clip((11.0, 20.0), (20.0, 11.0), frame.0, frame.1), None);
    }

    #[test]
    fn tick_labels_have_equal_decimals() {
        let labels: Vec<String> = labelled(&[3.9, 3.95, 4.0]).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["3.90", "3.95", "4.00"]);
    }

    #[test]
    fn an_empty_chart_draws() {
        let chart = DotChart {
            title: "t".into(),
            description: "d".into(),
            x_label: "x".into(),
            logarithmic: true,
            reference: None,
            series: vec![],
            joined: false,
            rows: vec![Row::Values { label: "a".into(), points: vec![], note: "not run".into() }],
        };
        assert!(!chart.draw().inline().contains("NaN"));
    }
}
