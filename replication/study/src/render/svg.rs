//! A small, deterministic SVG writer: shapes, text, axes. Equal input gives equal bytes.
//!
//! Not a plotting library. Colours are CSS variables (`--c1` to `--c8`, `--ink`, `--faint`, `--paper`), so that a figure follows
//! the page into dark mode; a standalone file carries the same variables itself. The eight colours are those of Okabe and Ito,
//! which stay apart under the common kinds of colour blindness; lines differ by dashes as well.

use std::fmt::Write as _;

/// Number of distinct series colours and dash patterns.
pub(super) const SERIES: usize = 8;

/// The style that a figure needs: in the page once, and in every standalone file.
pub(super) const STYLE: &str = include_str!("figure.css");

const DASHES: [&str; SERIES] = ["none", "7 3", "2 3", "9 3 2 3", "none", "5 2 1 2", "12 4", "1 2"];

/// Where text hangs on its point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    /// Point is the left end.
    Start,
    Middle,
    /// Point is the right end.
    End,
}

/// One picture being drawn. Units are those of the view box.
#[derive(Debug, Clone)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    title: String,
    description: String,
    body: String,
}

impl Svg {
    /// An empty picture. `title` names it; `description` says in words what a reader who cannot see it needs to know.
    pub(super) fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        Self { width, height, title: escape(title), description: escape(description), body: String::new() }
    }

    /// A straight line with a style class.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (number(from.0), number(from.1), number(to.0), number(to.1));
        self.push(&format!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
    }

    /// A curve through `points` in the colour and dashes of `series`. `thin` is for single seeds behind a mean.
    pub(super) fn curve(&mut self, series: usize, thin: bool, points: &[(f64, f64)]) {
        let finite: Vec<(f64, f64)> = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        let path = path(&simplified(&finite));
        let (class, dash) = if thin { ("curve thin", "none") } else { ("curve", DASHES[series % SERIES]) };
        self.push(&format!("<path class=\"{class} c{}\" stroke-dasharray=\"{dash}\" d=\"{path}\"/>", series % SERIES + 1));
    }

    /// A filled mark in the colour of `series`; its shape changes with the series too.
    pub(super) fn mark(&mut self, series: usize, at: (f64, f64), radius: f64) {
        let class = format!("mark c{}", series % SERIES + 1);
        let ((x, y), r) = (at, radius);
        let shape = match series % 3 {
            0 => format!("<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", number(x), number(y), number(r)),
            1 => format!(
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                number(x - r),
                number(y - r),
                number(2.0 * r),
                number(2.0 * r)
            ),
            _ => {
                let (top, low, wide) = (number(y - 1.3 * r), number(y + 1.3 * r), 1.3 * r);
                format!(
                    "<path class=\"{class}\" d=\"M{} {top}L{} {}L{} {low}L{} {}Z\"/>",
                    number(x),
                    number(x + wide),
                    number(y),
                    number(x),
                    number(x - wide),
                    number(y)
                )
            }
        };
        self.push(&shape);
    }

    /// A horizontal error bar at height `y`; an end that is `closed` has a stroke across, one that was cut an arrow's head.
    pub(super) fn error_bar(&mut self, series: usize, (low, high): (f64, f64), closed: (bool, bool), y: f64) {
        let class = format!("bar c{}", series % SERIES + 1);
        self.line(&class, (low, y), (high, y));
        for (end, is_closed, inward) in [(low, closed.0, 4.0), (high, closed.1, -4.0)] {
            if is_closed {
                self.line(&class, (end, y - 3.0), (end, y + 3.0));
            } else {
                self.line(&class, (end, y), (end + inward, y - 3.0));
                self.line(&class, (end, y), (end + inward, y + 3.0));
            }
        }
    }

    pub(super) fn rectangle(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x, y, width, height) = (number(from.0), number(from.1), number(to.0 - from.0), number(to.1 - from.1));
        self.push(&format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"));
    }

    /// A triangle with its point at `tip`, `length` to the left of it (to the right when negative).
    pub(super) fn pointer(&mut self, class: &str, tip: (f64, f64), length: f64) {
        let (x, y, back, half) = (number(tip.0), number(tip.1), number(tip.0 - length), 0.55 * length.abs());
        self.push(&format!("<path class=\"{class}\" d=\"M{x} {y}L{back} {}L{back} {}Z\"/>", number(tip.1 - half), number(tip.1 + half)));
    }

    pub(super) fn text(&mut self, class: &str, anchor: Anchor, at: (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (number(at.0), number(at.1));
        self.push(&format!("<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(text)));
    }

    /// What `draw` draws, standing back if it is `faint`.
    pub(super) fn group(&mut self, faint: bool, draw: impl FnOnce(&mut Self)) {
        if !faint {
            return draw(self);
        }
        self.push("<g class=\"faint\">");
        draw(self);
        self.push("</g>");
    }

    fn push(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    /// For a page that carries [`STYLE`] once.
    pub(super) fn inline(&self) -> String {
        self.document("")
    }

    /// A file of its own.
    pub(super) fn standalone(&self) -> String {
        self.document(&format!("<style>\n{STYLE}</style>\n"))
    }

    fn document(&self, style: &str) -> String {
        let (width, height) = (number(self.width), number(self.height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}. {}\">\n<title>{}</title>\n{style}{}</svg>\n",
            self.title, self.description, self.title, self.body
        )
    }
}

/// How far a drawn curve may lie from its points: less than half of the thinnest stroke.
const TOLERANCE: f64 = 0.2;

/// The points that a curve needs to stay within [`TOLERANCE`] of all of them (Douglas and Peucker's way): most of hundreds of evaluations lie
/// on a line as far as an eye can see, and a page of many runs would be full of them.
fn simplified(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let Some(last) = points.len().checked_sub(1) else { return Vec::new() };
    let mut kept = vec![false; points.len()];
    (kept[0], kept[last]) = (true, true);
    let mut stretches = vec![(0, last)];
    while let Some((from, to)) = stretches.pop() {
        let distances = (from + 1..to).map(|index| (index, from_chord(points[index], points[from], points[to])));
        let Some((farthest, distance)) = distances.max_by(|one, other| one.1.total_cmp(&other.1)) else { continue };
        if distance > TOLERANCE * TOLERANCE {
            kept[farthest] = true;
            stretches.extend([(from, farthest), (farthest, to)]);
        }
    }
    points.iter().zip(kept).filter(|(_, kept)| *kept).map(|(point, _)| *point).collect()
}

/// A path through points, each by its step from the one before, in tenths of a unit: steps add up to where a point is, rounded once.
fn path(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    let mut before = (0.0, 0.0);
    for (index, point) in points.iter().enumerate() {
        let at = ((10.0 * point.0).round(), (10.0 * point.1).round());
        let step = (number((at.0 - before.0) / 10.0), number((at.1 - before.1) / 10.0));
        // The sign of a number parts it from the one before.
        let gap = if step.1.starts_with('-') { "" } else { " " };
        let _ = write!(path, "{}{}{gap}{}", if index == 0 { "M" } else { "l" }, step.0, step.1);
        before = at;
    }
    path
}

/// Square of a point's distance from the straight piece between two others.
fn from_chord(point: (f64, f64), from: (f64, f64), to: (f64, f64)) -> f64 {
    let (along, off) = ((to.0 - from.0, to.1 - from.1), (point.0 - from.0, point.1 - from.1));
    let length = along.0 * along.0 + along.1 * along.1;
    let share = if length > 0.0 { ((off.0 * along.0 + off.1 * along.1) / length).clamp(0.0, 1.0) } else { 0.0 };
    let beside = (off.0 - share * along.0, off.1 - share * along.1);
    beside.0 * beside.0 + beside.1 * beside.1
}

/// Two decimals at most, without trailing zeros: enough for a view box of hundreds of units, and short.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Text for an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// A mapping from data to the view box along one axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    data: (f64, f64),
    view: (f64, f64),
    logarithmic: bool,
}

impl Axis {
    /// Linear from `data`, which may fall, to `view`.
    pub(super) fn linear(data: (f64, f64), view: (f64, f64)) -> Self {
        let wide = if data.1 != data.0 { data } else { (data.0 - 0.5, data.0 + 0.5) };
        Self { data: wide, view, logarithmic: false }
    }

    /// Logarithmic from `data`, both positive, to `view`.
    pub(super) fn logarithmic(data: (f64, f64), view: (f64, f64)) -> Self {
        Self { logarithmic: true, ..Self::linear((data.0.max(f64::MIN_POSITIVE).log10(), data.1.max(f64::MIN_POSITIVE).log10()), view) }
    }

    /// Where `value` lies in the view box.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        self.view.0 + (value - self.data.0) / (self.data.1 - self.data.0) * (self.view.1 - self.view.0)
    }

    /// Round values inside the range, about `count` of them.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        if self.logarithmic { self.log_ticks() } else { linear_ticks((self.data.0.min(self.data.1), self.data.0.max(self.data.1)), count) }
    }

    /// 1, 2 and 5 times each power of ten in the range.
    fn log_ticks(&self) -> Vec<f64> {
        let (first, last) = (self.data.0.floor() as i32, self.data.1.ceil() as i32);
        let all = (first..=last).flat_map(|exponent| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(exponent)));
        all.filter(|tick| (self.data.0 - 1e-9..=self.data.1 + 1e-9).contains(&tick.log10())).collect()
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks((low, high): (f64, f64), count: usize) -> Vec<f64> {
    let rough = (high - low) / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|digit| digit * power).find(|step| *step >= rough * 0.999).unwrap_or(10.0 * power);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    // Dividing by the reciprocal keeps 3 * 0.1 from printing as 0.30000000000000004.
    (first..=last).map(|index| if step < 1.0 { index as f64 / (1.0 / step).round() } else { index as f64 * step }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(linear_ticks((0.0, 1.0), 5), vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(linear_ticks((-0.013, 0.031), 4), vec![0.0, 0.02]);
        assert_eq!(linear_ticks((3.9, 7.1), 4), vec![4.0, 5.0, 6.0, 7.0]);
        assert_eq!(Axis::logarithmic((0.04, 2.5), (0.0, 1.0)).ticks(0), vec![0.05, 0.1, 0.2, 0.5, 1.0, 2.0]);
    }

    #[test]
    fn a_flat_axis_does_not_divide_by_zero() {
        assert!(Axis::linear((2.0, 2.0), (0.0, 100.0)).at(2.0).is_finite());
    }

    #[test]
    fn hostile_text_stays_text() {
        let mut svg = Svg::new(10.0, 10.0, "<script>", "\"&'");
        svg.text("t", Anchor::Start, (0.0, 0.0), "</svg><script>alert(1)</script>");
        let document = svg.standalone();
        assert!(!document.contains("<script>"));
        assert!(document.contains("&lt;/svg&gt;"));
    }

    #[test]
    fn a_curve_keeps_its_ends_its_corners_and_its_distance() {
        let falling: Vec<(f64, f64)> = (0..500).map(|index| (f64::from(index), 300.0 / (1.0 + f64::from(index)))).collect();
        let corner = [(0.0, 0.0), (1.0, 0.1), (2.0, 0.0), (2.0, 9.0), (2.0, 5.0)];
        for (points, most) in [(&falling[..], 40), (&corner, 4), (&falling[..2], 2), (&falling[..1], 1), (&[], 0)] {
            let kept = simplified(points);
            assert!(kept.len() <= most && kept.first() == points.first() && kept.last() == points.last(), "{} points", kept.len());
            for point in points {
                let nearest = kept.windows(2).map(|ends| from_chord(*point, ends[0], ends[1])).fold(f64::INFINITY, f64::min);
                assert!(kept.len() == 1 || nearest <= TOLERANCE * TOLERANCE, "{point:?} lies {} away", nearest.sqrt());
            }
        }
        assert_eq!(simplified(&corner), [corner[0], corner[2], corner[3], corner[4]]);
    }

    #[test]
    fn a_point_that_is_no_number_is_left_out() {
        let mut svg = Svg::new(10.0, 10.0, "t", "d");
        svg.curve(0, true, &[(0.0, 0.0), (1.0, f64::NAN), (2.0, 5.0), (f64::INFINITY, 1.0), (3.0, 0.0)]);
        assert!(svg.body.contains("d=\"M0 0l2 5l1-5\""), "{}", svg.body);
    }

    #[test]
    fn a_path_ends_where_its_points_end() {
        let points: Vec<(f64, f64)> = (0..300).map(|index| (f64::from(index) / 3.0, 7.0 - f64::from(index) / 7.0)).collect();
        assert_eq!(path(&points[..4]), "M0 7l0.3-0.1l0.4-0.2l0.3-0.1");
        let steps = path(&points).replace(['M', 'l'], ",").replace('-', " -");
        let ends =
            steps.split(',').skip(1).map(|step| step.split_whitespace().map(|number| number.parse::<f64>().unwrap()).collect::<Vec<_>>());
        let end = ends.fold((0.0, 0.0), |at, step| (at.0 + step[0], at.1 + step[1]));
        assert!((end.0 - points[299].0).abs() < 0.051 && (end.1 - points[299].1).abs() < 0.051, "{end:?}");
    }

    #[test]
    fn an_end_that_is_cut_is_an_arrow() {
        let lines = |closed| {
            let mut svg = Svg::new(100.0, 20.0, "t", "d");
            svg.error_bar(0, (10.0, 90.0), closed, 10.0);
            svg.body.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!([(true, true), (true, false), (false, false)].map(|closed| lines(closed).len()), [3, 4, 5]);
        assert!(lines((true, false))[2].contains(r#"x1="90" y1="10" x2="86" y2="7""#), "{:?}", lines((true, false)));
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([number(1.0), number(1.005), number(-0.001), number(0.1)], ["1", "1", "0", "0.1"]);
    }
}
