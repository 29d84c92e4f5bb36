//! Rows of points with intervals over a common axis, beside the range that a paper reports.

use super::charts::labelled;
use super::svg::{Anchor, Axis, Svg};

/// Sizes in view-box units: one such chart fills a phone, two stand side by side on a wide page.
const WIDTH: f64 = 430.0;
/// The axis begins here at least; longer labels need more, at so much for each character.
const LEFT: f64 = 152.0;
const CHARACTER: f64 = 7.4;
const RIGHT: f64 = WIDTH - 12.0;

/// One point of a row: a value, its interval where there is one, and the series (colour and shape).
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub value: f64,
    /// 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Index into the chart's series.
    pub series: usize,
}

/// What a paper reports for a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Reported {
    #[default]
    Nothing,
    Range(f64, f64),
    /// No number, because it did not converge.
    Beyond,
}

/// Stands at the right end of a row whose arm did not converge in the paper.
pub(super) const BEYOND: &str = "did not converge";

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
        reported: Reported,
    },
}

impl Row {
    pub(super) fn values(label: String, points: Vec<Point>, note: &str) -> Self {
        Self::Values { label, points, note: note.to_owned(), reported: Reported::Nothing }
    }
}

/// Rows of points over a common horizontal axis.
#[derive(Debug, Clone, Default)]
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
    /// Names of the series; no legend when there is only one and nothing reported.
    pub series: Vec<String>,
    /// What the legend calls the reported ranges; empty where there are none.
    pub reported: String,
    /// The axis ends here at the latest: a point beyond is an arrow with its number, an interval is cut.
    pub limits: Option<(f64, f64)>,
    /// Series that stand back, because they are not quite what the chart is about.
    pub faint: Vec<usize>,
    /// Whether the points of a row are joined, as for before and after.
    pub joined: bool,
    /// Rows from the top.
    pub rows: Vec<Row>,
}

impl DotChart {
    pub(super) fn draw(&self) -> Svg {
        let legend = self.legend();
        let lines = legend.last().map_or(0, |item| item.line + 1);
        let (row_height, top) = (self.row_height(), if lines > 0 { 36.0 + 17.0 * lines as f64 } else { 30.0 });
        let bottom = top + row_height * self.rows.len() as f64 + 4.0;
        let mut svg = Svg::new(WIDTH, bottom + 38.0, &self.title, &self.description);
        let range = self.range();
        let left = self.left();
        let view = (left, RIGHT);
        let x = if self.logarithmic { Axis::logarithmic(range, view) } else { Axis::linear(range, view) };
        let y = |index: usize| top + row_height * (index as f64 + 0.5) + 2.0;
        svg.text("head", Anchor::Start, (0.0, 13.0), &self.title);
        for (index, row) in self.rows.iter().enumerate() {
            self.band(&mut svg, row, &x, y(index));
        }
        for (tick, label) in labelled(&x.ticks(5)) {
            svg.line("grid", (x.at(tick), top), (x.at(tick), bottom));
            svg.text("tick", Anchor::Middle, (x.at(tick), bottom + 15.0), &label);
        }
        if let Some(value) = self.reference {
            svg.line("goal", (x.at(value), top), (x.at(value), bottom));
        }
        svg.line("axis", (left, bottom), (RIGHT, bottom));
        svg.text("tick", Anchor::Middle, ((left + RIGHT) / 2.0, bottom + 32.0), &self.x_label);
        legend.iter().for_each(|item| item.draw(&mut svg));
        for (index, row) in self.rows.iter().enumerate() {
            self.row(&mut svg, row, &x, y(index));
        }
        svg
    }

    /// Where the axis begins, behind the labels.
    fn left(&self) -> f64 {
        let characters = |row: &Row| match row {
            Row::Values { label, .. } => label.chars().count(),
            Row::Group(_) => 0,
        };
        let longest = self.rows.iter().map(characters).max().unwrap_or(0);
        (CHARACTER * longest as f64 + 8.0).max(LEFT)
    }

    /// In units of the view box.
    pub(super) fn row_height(&self) -> f64 {
        if self.apart() { (7.0 * self.series.len() as f64 + 6.0).max(20.0) } else { 20.0 }
    }

    fn band(&self, svg: &mut Svg, row: &Row, x: &Axis, y: f64) {
        let half = 0.5 * self.row_height() - 2.0;
        match row {
            Row::Values { reported: Reported::Range(low, high), .. } => {
                svg.rectangle("reported", (x.at(*low), y - half), (x.at(*high), y + half));
            }
            Row::Values { reported: Reported::Beyond, .. } => {
                svg.rectangle("reported", (RIGHT - 9.0, y - half), (RIGHT, y + half));
                svg.pointer("reported-end", (RIGHT + 11.0, y), 11.0);
            }
            _ => {}
        }
    }

    fn row(&self, svg: &mut Svg, row: &Row, x: &Axis, y: f64) {
        match row {
            Row::Group(name) => svg.text("group", Anchor::Start, (0.0, y + 4.0), name),
            Row::Values { label, points, note, .. } => {
                svg.text("label", Anchor::End, (self.left() - 8.0, y + 4.0), label);
                if points.is_empty() {
                    svg.text("tick note", Anchor::Start, (self.left() + 6.0, y + 4.0), note);
                }
                if let (true, Some(first), Some(last)) = (self.joined, points.first(), points.last()) {
                    svg.line("link", (x.at(first.value), y), (x.at(last.value), y));
                }
                // Numbers of points beyond the axis stand side by side: their lines are closer than a line of text is high.
                let (mut before, range) = (0, self.range());
                for point in points {
                    svg.group(self.faint.contains(&point.series), |svg| self.point(svg, point, x, (y + self.shift(point.series), before)));
                    before += usize::from(!(range.0..=range.1).contains(&point.value));
                }
            }
        }
    }

    /// `before`: points of its row beyond the axis that were drawn already.
    fn point(&self, svg: &mut Svg, point: &Point, x: &Axis, (y, before): (f64, usize)) {
        let (low, high) = self.range();
        // Of an interval that lies beyond the axis nothing is left.
        if let Some(ends) = point.interval.filter(|ends| ends.0 <= high && ends.1 >= low) {
            let cut = (ends.0.clamp(low, high), ends.1.clamp(low, high));
            svg.error_bar(point.series, (x.at(cut.0), x.at(cut.1)), (cut.0 == ends.0, cut.1 == ends.1), y);
        }
        if (low..=high).contains(&point.value) {
            return svg.mark(point.series, (x.at(point.value), y), 4.0);
        }
        let (end, anchor, step) = if point.value > high { (x.at(high), Anchor::End, -9.0) } else { (x.at(low), Anchor::Start, 9.0) };
        svg.pointer(&format!("mark c{}", point.series + 1), (end, y), -step);
        svg.text(
            "tick note",
            anchor,
            (end + (1.4 + 4.2 * before as f64) * step, y + 4.0),
            &labelled(&[point.value, point.value + 1.0])[0].1,
        );
    }

    /// Whether series stand apart within a row, because their intervals would hide each other.
    fn apart(&self) -> bool {
        let has_interval = |row: &Row| matches!(row, Row::Values { points, .. } if points.iter().any(|point| point.interval.is_some()));
        self.series.len() > 1 && self.rows.iter().any(has_interval)
    }

    /// How far below the middle of its row a series stands.
    pub(super) fn shift(&self, series: usize) -> f64 {
        if self.apart() { 7.0 * (series as f64 - (self.series.len() - 1) as f64 / 2.0) } else { 0.0 }
    }

    /// Marks and names, from the left, in as many lines as they need.
    fn legend(&self) -> Vec<LegendItem> {
        let names = Some(&self.reported).filter(|name| !name.is_empty()).map(|name| (None, name.clone()));
        let names = names.into_iter().chain(self.series.iter().enumerate().map(|(series, name)| (Some(series), name.clone())));
        let (mut items, mut at, mut line): (Vec<LegendItem>, f64, usize) = (Vec::new(), 0.0, 0);
        for (series, name) in names {
            let width = 24.0 + 6.1 * name.chars().count() as f64;
            if at > 0.0 && at + width > WIDTH {
                (at, line) = (0.0, line + 1);
            }
            items.push(LegendItem { series, name, at, line });
            at += width;
        }
        if items.len() > 1 { items } else { Vec::new() }
    }

    /// The range of all values, intervals, what is reported and the reference, with a little room, within the limits.
    pub(super) fn range(&self) -> (f64, f64) {
        let mut values: Vec<f64> = self.reference.into_iter().collect();
        for row in &self.rows {
            if let Row::Values { points, reported, .. } = row {
                values.extend(points.iter().flat_map(|point| {
                    let (low, high) = point.interval.unwrap_or((point.value, point.value));
                    [point.value, low, high]
                }));
                if let Reported::Range(low, high) = reported {
                    values.extend([*low, *high]);
                }
            }
        }
        values.retain(|value| value.is_finite());
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return if self.logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        let (low, high) = if self.logarithmic { (low / 1.1, high * 1.1) } else { (low - 0.04 * (high - low), high + 0.04 * (high - low)) };
        self.limits.map_or((low, high), |(first, last)| (low.max(first), high.min(last)))
    }
}

/// One entry of the legend; without a series, that of the reported ranges.
struct LegendItem {
    series: Option<usize>,
    name: String,
    at: f64,
    line: usize,
}

impl LegendItem {
    fn draw(&self, svg: &mut Svg) {
        let y = 34.0 + 17.0 * self.line as f64;
        match self.series {
            Some(series) => svg.mark(series, (self.at + 6.0, y), 4.0),
            None => svg.rectangle("reported", (self.at, y - 6.0), (self.at + 12.0, y + 6.0)),
        }
        svg.text("tick", Anchor::Start, (self.at + 16.0, y + 4.0), &self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<Point>) -> DotChart {
        DotChart {
            title: "t".into(),
            series: vec!["one".into(), "two".into()],
            rows: vec![Row::Values { label: "a".into(), points, note: "not run".into(), reported: Reported::Range(8.0, 9.0) }],
            ..DotChart::default()
        }
    }

    #[test]
    fn an_empty_chart_draws() {
        let empty = DotChart { logarithmic: true, rows: vec![Row::values("a".into(), vec![], "not run")], ..DotChart::default() };
        assert!(!empty.draw().inline().contains("NaN"));
    }

    #[test]
    fn what_is_reported_is_in_the_range() {
        let (low, high) = chart(vec![]).range();
        assert!(low < 8.0 && high > 9.0 && high < 9.1, "{low} {high}");
    }

    /// A label of 22 characters takes about 163 units: it begins inside the picture, and the axis behind it.
    #[test]
    fn long_labels_push_the_axis() {
        let with = |label: &str| DotChart { rows: vec![Row::values(label.into(), vec![], "not run")], ..DotChart::default() };
        assert!((with("F+D+W H16").left() - LEFT).abs() < 1e-9);
        assert!((with("F+D+W RH16 signs again").left() - 170.8).abs() < 1e-9);
    }

    #[test]
    fn numbers_beyond_the_axis_stand_side_by_side() {
        let far = |value, series| Point { value, interval: None, series };
        let limited = DotChart { limits: Some((-20.0, 100.0)), ..chart(vec![far(153.2, 0), far(188.0, 1)]) };
        let text = limited.draw().inline();
        let x = |number: &str| -> f64 {
            let tag = text[..text.find(&format!(">{number}<")).unwrap()].rsplit("<text").next().unwrap();
            tag.split("x=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert!(x("153") - x("188") > 30.0, "{text}");
    }

    #[test]
    fn a_point_beyond_the_limits_is_an_arrow_with_its_number() {
        let far = Point { value: 153.2, interval: Some((140.0, 170.0)), series: 1 };
        let limited = DotChart { limits: Some((-20.0, 100.0)), ..chart(vec![far]) };
        let text = limited.draw().inline();
        assert!(text.contains(">153<"), "{text}");
        let inside = |part: &str| part.split('"').next().and_then(|x| x.parse::<f64>().ok()).is_none_or(|x| x <= WIDTH);
        assert!(text.split("x2=\"").skip(1).all(inside), "{text}");
    }
}
