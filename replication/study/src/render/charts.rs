//! Curves over tokens, loss or slope. Data in, SVG out; which data belong in which figure is `figures.rs`'s and `costs.rs`'s business.

use super::svg::{Anchor, Axis, SERIES, Svg};

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

/// What a paper reports for one curve, where along the axis it reports it.
#[derive(Debug, Clone)]
pub(super) struct Marked {
    /// Index of the curve.
    pub curve: usize,
    pub x: (f64, f64),
    pub y: (f64, f64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct CurveChart {
    /// Title, for readers of all kinds.
    pub title: String,
    /// What the chart shows, in words.
    pub description: String,
    /// Label of the horizontal axis.
    pub x_label: String,
    /// Label of the vertical axis.
    pub y_label: String,
    /// Range shown; points outside are clipped away. The horizontal one may fall.
    pub x: (f64, f64),
    pub y: (f64, f64),
    /// A horizontal line with its label.
    pub goal: Option<(f64, String)>,
    /// A stretch of the horizontal axis with its name.
    pub band: Option<((f64, f64), String)>,
    pub marked: Vec<Marked>,
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
        if let Some((ends, name)) = &self.band {
            let (from, to) = (x.at(ends.0).min(x.at(ends.1)).max(left), x.at(ends.0).max(x.at(ends.1)).min(right));
            svg.rectangle("band", (from, top), (to.max(from), bottom));
            svg.text("tick", Anchor::Middle, ((from + to) / 2.0, top + 11.0), name);
        }
        self.axes(&mut svg, &x, &y, (left, right, top, bottom));
        for mark in &self.marked {
            let (ends, class) = ([x.at(mark.x.0), x.at(mark.x.1)], format!("marked c{}", mark.curve % SERIES + 1));
            let (from, to) = (ends[0].min(ends[1]).max(left), ends[0].max(ends[1]).min(right));
            svg.rectangle(&class, (from, y.at(mark.y.1).max(top)), (to.max(from), y.at(mark.y.0).min(bottom).max(top)));
        }
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
            match clip(pair[0], pair[1], (self.x.0.min(self.x.1), self.x.0.max(self.x.1)), self.y) {
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
pub(super) fn labelled(ticks: &[f64]) -> Vec<(f64, String)> {
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let decimals = if step.is_finite() && step > 0.0 { (-step.log10()).ceil().clamp(0.0, 6.0) as usize } else { 2 };
    ticks.iter().map(|tick| (*tick, crate::number::fixed(*tick, decimals))).collect()
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
}
