//! Plots of a record as SVG: lines with marks over a numeric axis, groups of bars over words, error
//! bars from the smallest to the largest of the repeats. Colours are told apart by people who see
//! few of them, and every series has a mark of its own besides. Pure.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `data` | points and series of a plot |
//! | `axis` | axes |
//! | `canvas` | elements of an SVG document, and widths of text |

mod axis;
mod canvas;
mod data;

use axis::Axis;
use canvas::{Anchor, Canvas, SHAPES, cut, lines, width};
use data::{Data, Point};

pub(super) use canvas::escape;

use crate::record::{Plot, Record, Which};

/// The style of all plots: of a file of its own and of the page that holds many.
pub(super) const STYLE: &str = include_str!("plot.css");

/// Pixels of a plot that has no need of more.
const WIDTH: f64 = 760.0;
/// Height of the field that data are drawn in.
const FIELD: f64 = 300.0;
/// Sizes of text; the same as in the style.
const TITLE: f64 = 16.0;
/// How much wider bold text is.
const BOLD: f64 = 1.12;
const LABEL: f64 = 13.0;
const MARK: f64 = 12.0;
/// Room between a bar's foot and the names of its group, for the mark of its series.
const FOOT: f64 = 13.0;
const SLANT: f64 = 35.0;
/// The longest slanted name.
const LONGEST: f64 = 210.0;

/// A plot.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drawing {
    title: String,
    width: f64,
    height: f64,
    body: String,
}

impl Drawing {
    /// Width in pixels.
    pub(super) fn width(&self) -> usize {
        self.width as usize
    }

    /// As an element of a page that has [`STYLE`].
    pub(super) fn inline(&self) -> String {
        self.element("")
    }

    /// As a file.
    pub(super) fn file(&self) -> String {
        let xml = "xmlns=\"http://www.w3.org/2000/svg\" ";
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", self.element(xml))
    }

    fn element(&self, namespace: &str) -> String {
        let Self { title, width, height, body } = self;
        let style = if namespace.is_empty() { String::new() } else { format!("<style>\n{STYLE}</style>\n") };
        format!(
            "<svg {namespace}class=\"plot\" role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\">\n{style}<rect class=\"paper\" width=\"100%\" \
             height=\"100%\"/>\n{body}</svg>\n",
            escape(title)
        )
    }
}

/// Draws a plot of the record.
pub(super) fn draw(record: &Record, plot: &Plot) -> Drawing {
    let data = Data::of(record, plot);
    let mut canvas = Canvas::default();
    let bars = data.numbers.is_none();
    let count: usize = data.series.iter().map(|s| s.points.len()).sum();
    // Many bars need more room than a narrow plot has.
    let total = if bars { WIDTH.max(90.0 + 13.0 * count as f64).min(1500.0) } else { WIDTH };
    let mut y = 8.0;
    for line in lines(&plot.title, BOLD * TITLE, total - 20.0) {
        y += 19.0;
        canvas.text("t", (10.0, y), Anchor::Start, &line);
    }
    let drawing = |canvas: Canvas, height: f64| Drawing {
        title: plot.title.clone(),
        width: total,
        height,
        body: canvas.finish(),
    };
    let Some(extent) = data.extent() else {
        canvas.text("k", (10.0, y + 30.0), Anchor::Start, "There is no figure to show.");
        return drawing(canvas, y + 50.0);
    };
    y = legend(&mut canvas, &data, total, y + 10.0, bars);
    for line in lines(&y_label(record, plot), LABEL, total - 20.0) {
        y += 18.0;
        canvas.text("n", (10.0, y), Anchor::Start, &line);
    }
    let top = y + 14.0;
    let up = vertical(plot, &data, extent).laid(top + FIELD, top);
    let widest = up.ticks.iter().map(|t| width(&up.label(*t), MARK)).fold(0.0, f64::max);
    let mut frame = Frame { left: widest + 22.0, right: total - 18.0, bottom: top + FIELD, up };
    let below =
        if bars { frame.bars(&mut canvas, &data, plot) } else { frame.lines(&mut canvas, &data, plot) };
    drawing(canvas, below + 14.0)
}

/// The y axis.
fn vertical(plot: &Plot, data: &Data, (low, high): (f64, f64)) -> Axis {
    match data.least_positive().filter(|_| plot.log_y && data.is_positive()) {
        Some(least) => Axis::log(least, high),
        None => Axis::linear(low, high, true),
    }
}

/// Title of the y axis, with the unit.
fn y_label(record: &Record, plot: &Plot) -> String {
    let (what, unit) =
        record.measure(&plot.y).map_or((plot.y.as_str(), ""), |m| (m.what.as_str(), m.unit.as_str()));
    let unit = plot.which.unit(unit, record);
    let spread =
        if plot.which == Which::Median { "; median, and from the smallest to the largest" } else { "" };
    let repeated =
        record.figures_with(&plot.only).any(|f| f.measures.get(&plot.y).is_some_and(|q| q.summary.n > 1));
    let spread = if repeated { spread } else { "" };
    if unit.is_empty() { format!("{what}{spread}") } else { format!("{what} ({unit}){spread}") }
}

/// The names of the series above the field, where they cover nothing; returns where it ends.
fn legend(canvas: &mut Canvas, data: &Data, total: f64, top: f64, bars: bool) -> f64 {
    if data.series.iter().all(|s| s.label.is_empty()) {
        return top;
    }
    let (mut x, mut y) = (10.0, top + 14.0);
    for series in &data.series {
        let nth = series.style;
        let label = cut(&series.label, LABEL, total - 60.0);
        let room = 30.0 + width(&label, LABEL) + 16.0;
        if x > 10.0 && x + room > total {
            (x, y) = (10.0, y + 20.0);
        }
        if bars {
            canvas.bar(&class(nth, "f"), (x, y - 11.0), (10.0, 12.0), &series.label);
            canvas.mark(&class(nth, "f"), shape(nth), (x + 19.0, y - 4.5), 4.0, "");
        } else {
            canvas.line(&class(nth, "l"), (x, y - 4.5), (x + 24.0, y - 4.5));
            canvas.mark(&class(nth, "f"), shape(nth), (x + 12.0, y - 4.5), 4.5, "");
        }
        canvas.text("k", (x + 30.0, y), Anchor::Start, &label);
        x += room;
    }
    y + 8.0
}

/// The style classes of a series.
fn class(nth: usize, kind: &str) -> String {
    format!("s{} {kind}", nth % SHAPES)
}

/// The shape of its marks: another one when the colours begin again.
fn shape(nth: usize) -> usize {
    nth + nth / SHAPES
}

/// The field that data are drawn in.
struct Frame {
    left: f64,
    right: f64,
    bottom: f64,
    up: Axis,
}

impl Frame {
    /// Lines across at the marks of the y axis, with their values.
    fn grid(&self, canvas: &mut Canvas, plot: &Plot) {
        for tick in &self.up.ticks {
            let y = self.up.at(*tick);
            canvas.line("g", (self.left, y), (self.right, y));
            canvas.text("m", (self.left - 8.0, y + 4.0), Anchor::End, &self.up.label(*tick));
        }
        // Value of the baseline, drawn as a line: plain is 1 times plain, and adds 0 to itself.
        let level = match plot.which {
            Which::Median => None,
            Which::Ratio => Some(1.0),
            Which::Added => Some(0.0),
        };
        if let Some(level) = level.filter(|l| self.up.holds(*l)) {
            canvas.line("r", (self.left, self.up.at(level)), (self.right, self.up.at(level)));
        }
    }

    fn axis(&self, canvas: &mut Canvas) {
        let foot = self.foot();
        canvas.line("a", (self.left, foot), (self.right, foot));
    }

    /// The pixel of 0, or of the lowest value on an axis without it.
    fn foot(&self) -> f64 {
        if self.up.holds(0.0) { self.up.at(0.0) } else { self.bottom }
    }

    fn error(&self, canvas: &mut Canvas, x: f64, cap: f64, point: &Point) {
        if let Some((low, high)) = point.range {
            let (low, high) = (self.up.at(low), self.up.at(high));
            if low - high >= 1.0 {
                canvas.line("e", (x, low), (x, high));
                canvas.line("e", (x - cap, low), (x + cap, low));
                canvas.line("e", (x - cap, high), (x + cap, high));
            }
        }
    }

    /// Lines over a numeric axis; returns where the plot ends.
    fn lines(&mut self, canvas: &mut Canvas, data: &Data, plot: &Plot) -> f64 {
        let numbers = data.numbers.clone().unwrap_or_default();
        let (low, high) = (numbers.first().copied().unwrap_or(0.0), numbers.last().copied().unwrap_or(1.0));
        let log = plot.log_x && low > 0.0;
        // A little room at both ends, so that no mark lies on the edge.
        let along = match (log, high > low) {
            (true, true) => {
                let room = (high / low).powf(0.04);
                Axis::log(low / room, high * room).between(low / room, high * room)
            }
            (true, false) => Axis::log(low, high),
            (false, true) => {
                let room = (high - low) * 0.04;
                Axis::linear(low, high, false).between(low - room, high + room)
            }
            (false, false) => Axis::linear(low, high, true),
        }
        .laid(self.left, self.right);
        // The values measured are the best marks, where they do not touch.
        let own = along.clone().marked_at(&numbers);
        let along = if apart(&own) { own } else { along };
        self.grid(canvas, plot);
        let mut free = f64::NEG_INFINITY;
        for tick in &along.ticks {
            let (x, text) = (along.at(*tick), along.label(*tick));
            canvas.line("a", (x, self.bottom), (x, self.bottom + 5.0));
            let half = width(&text, MARK) / 2.0;
            if x - half > free {
                canvas.text("m", (x, self.bottom + 20.0), Anchor::Middle, &text);
                free = x + half + 6.0;
            }
        }
        canvas.line("a", (self.left, self.bottom), (self.right, self.bottom));
        for series in &data.series {
            let nth = series.style;
            let at = |p: &Point| (along.at(numbers.get(p.place).copied().unwrap_or(low)), self.up.at(p.y));
            let way: Vec<(f64, f64)> = series.points.iter().map(at).collect();
            if way.len() > 1 {
                canvas.path(&class(nth, "l"), &way);
            }
            series.points.iter().for_each(|p| self.error(canvas, at(p).0, 4.0, p));
            for point in &series.points {
                canvas.mark(&class(nth, "f"), shape(nth), at(point), 4.5, &point.says);
            }
        }
        let end = self.bottom + 42.0;
        canvas.text("n", ((self.left + self.right) / 2.0, end), Anchor::Middle, &plot.x_label);
        end
    }

    /// Groups of bars over words; returns where the plot ends.
    fn bars(&mut self, canvas: &mut Canvas, data: &Data, plot: &Plot) -> f64 {
        // Only the series that are there take room in a group.
        let groups: Vec<Vec<(usize, &Point)>> = (0..data.places.len())
            .map(|place| {
                let all = data.series.iter();
                all.filter_map(|s| Some((s.style, s.points.iter().find(|p| p.place == place)?))).collect()
            })
            .collect();
        let units: f64 = groups.iter().map(|g| g.len() as f64 + 1.0).sum();
        let narrowest = groups.iter().map(Vec::len).min().unwrap_or(0) as f64 + 1.0;
        let room = (self.right - self.left) / units * narrowest - 8.0;
        let names: Vec<Vec<String>> = data.places.iter().map(|p| lines(p, LABEL, room)).collect();
        let fits = |name: &Vec<String>| name.len() <= 4 && name.iter().all(|l| width(l, LABEL) <= room);
        let slanted = !names.iter().all(fits);
        let widest = data.places.iter().map(|p| width(p, LABEL)).fold(0.0, f64::max).min(LONGEST);
        if slanted {
            // The first name begins left of its group.
            self.left = self.left.max(widest * SLANT.to_radians().cos() - 10.0);
        }
        let unit = (self.right - self.left) / units;
        let thick = (unit * 0.86).min(60.0);
        self.grid(canvas, plot);
        let (several, foot) = (data.series.len() > 1, self.foot());
        let mut x = self.left + unit / 2.0;
        for ((place, name), group) in data.places.iter().zip(&names).zip(&groups) {
            let begin = x;
            for (nth, point) in group {
                let middle = x + unit / 2.0;
                let (from, to) = (foot.min(self.up.at(point.y)), foot.max(self.up.at(point.y)));
                let size = (thick, (to - from).max(0.5));
                canvas.bar(&class(*nth, "f"), (middle - thick / 2.0, from), size, &point.says);
                self.error(canvas, middle, (thick / 4.0).min(5.0), point);
                if several {
                    let r = (unit / 3.0).min(3.5);
                    canvas.mark(&class(*nth, "f"), shape(*nth), (middle, self.bottom + 8.0), r, "");
                }
                x += unit;
            }
            let middle = (begin + x) / 2.0;
            let y = self.bottom + if several { FOOT } else { 0.0 };
            if slanted {
                canvas.slanted((middle + 4.0, y + 16.0), SLANT, &cut(place, LABEL, LONGEST));
            } else {
                for (nth, line) in name.iter().enumerate() {
                    canvas.text("k", (middle, y + 18.0 + 15.0 * nth as f64), Anchor::Middle, line);
                }
            }
            x += unit;
        }
        self.axis(canvas);
        let tall = if slanted {
            widest * SLANT.to_radians().sin() + 8.0
        } else {
            15.0 * names.iter().map(Vec::len).max().unwrap_or(1) as f64 - 11.0
        };
        let end = self.bottom + if several { FOOT } else { 0.0 } + tall + 36.0;
        canvas.text("n", ((self.left + self.right) / 2.0, end), Anchor::Middle, &plot.x_label);
        end
    }
}

/// Most labels of the marks have room beside each other.
fn apart(axis: &Axis) -> bool {
    let mut free = f64::NEG_INFINITY;
    let fits = |tick: &&f64| {
        let (x, half) = (axis.at(**tick), width(&axis.label(**tick), MARK) / 2.0);
        let fits = x - half > free;
        if fits {
            free = x + half + 6.0;
        }
        fits
    };
    let shown = axis.ticks.iter().filter(fits).count();
    axis.ticks.len() < 16 && 3 * shown >= 2 * axis.ticks.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Baseline, Factors, Sample, factors, figures};
    use crate::report::sample;

    /// A record of one measure, from what was chosen and found.
    fn record(found: &[(&[(&str, &str)], f64)]) -> Record {
        let mut record = Record::from(&sample::run());
        record.samples = found
            .iter()
            .map(|(of, value)| Sample {
                factors: of.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
                repeat: 0,
                began: 0.0,
                measures: [("gbps".to_string(), *value)].into(),
                files: vec![],
            })
            .collect();
        record.baseline = Some(Baseline { factor: "dut".into(), value: "plain".into() });
        record.figures = figures(&record.samples, record.baseline.as_ref());
        record
    }

    fn plot(x: &str, which: Which, series: &[&str]) -> Plot {
        Plot {
            name: "p".into(),
            title: "Title".into(),
            only: Factors::new(),
            x: x.into(),
            x_label: "x".into(),
            y: "gbps".into(),
            which,
            series: series.iter().map(ToString::to_string).collect(),
            log_x: true,
            log_y: true,
        }
    }

    #[test]
    fn numbers_make_lines_in_their_order_and_words_make_bars() {
        let found: &[(&[(&str, &str)], f64)] = &[
            (&[("dut", "a"), ("size", "1500")], 3.0),
            (&[("dut", "a"), ("size", "64")], 1.0),
            (&[("dut", "b"), ("size", "imix")], 2.0),
        ];
        let lines = draw(&record(&found[..2]), &plot("size", Which::Median, &["dut"])).file();
        assert!(lines.contains("<path") && lines.matches("<circle").count() == 3, "{lines}");
        assert!(lines.find("size 64: 1.00 Gb/s") < lines.find("size 1500: 3.00 Gb/s"), "{lines}");
        let bars = draw(&record(found), &plot("size", Which::Median, &["dut"])).file();
        assert!(!bars.contains("<path") && bars.contains(">imix</text>"), "{bars}");
        // Two bars of a, one of b, and a swatch each.
        assert_eq!(bars.matches("<rect class=\"s").count(), 5, "{bars}");
    }

    #[test]
    fn what_differs_by_a_factor_that_was_not_named_is_a_series_of_its_own() {
        let found: &[(&[(&str, &str)], f64)] = &[
            (&[("dut", "a"), ("mode", "wire"), ("size", "64")], 1.0),
            (&[("dut", "a"), ("mode", "offload"), ("size", "64")], 2.0),
        ];
        let text = draw(&record(found), &plot("size", Which::Median, &["dut"])).file();
        assert!(text.contains(">a, wire</text>") && text.contains(">a, offload</text>"), "{text}");
    }

    #[test]
    fn a_system_has_one_colour_in_all_plots() {
        let found: &[(&[(&str, &str)], f64)] =
            &[(&[("dut", "plain"), ("size", "64")], 4.0), (&[("dut", "b"), ("size", "64")], 1.0)];
        let colour = |which| {
            let text = draw(&record(found), &plot("size", which, &["dut"])).file();
            let end = text.find("<title>b, size 64").expect("a mark");
            text[..end].rsplit("class=\"").next().expect("a class")[..2].to_string()
        };
        assert_eq!(colour(Which::Median), "s1");
        assert_eq!(colour(Which::Ratio), "s1");
    }

    #[test]
    fn nothing_zero_and_less_than_nothing_are_drawn_on_a_scale_that_can_show_them() {
        let empty = draw(&record(&[(&[("dut", "a")], 1.0)]), &plot("size", Which::Median, &[])).file();
        assert!(empty.contains("There is no figure to show."), "{empty}");
        for values in [[0.0, 0.0], [-3.0, 5.0], [0.0, 7.0]] {
            let found: &[(&[(&str, &str)], f64)] =
                &[(&[("dut", "a"), ("size", "0")], values[0]), (&[("dut", "a"), ("size", "64")], values[1])];
            let text = draw(&record(found), &plot("size", Which::Median, &[])).file();
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            assert!(text.contains(">0</text>") || text.contains(">0.0</text>"), "{text}");
        }
        let only = factors([("dut", "b")]);
        let added = Plot { only, ..plot("dut", Which::Added, &[]) };
        let found: &[(&[(&str, &str)], f64)] = &[(&[("dut", "plain")], 4.0), (&[("dut", "b")], 1.0)];
        let text = draw(&record(found), &added).file();
        assert!(text.contains("dut b: -3.00 Gb/s more than plain"), "{text}");
    }

    #[test]
    fn no_text_leaves_its_plot() {
        let long = "a system whose name is far longer than anybody would want to read in a plot";
        let names: Vec<String> = (0..12).map(|n| format!("{long} {n}")).collect();
        let owned: Vec<Vec<(&str, &str)>> =
            names.iter().map(|n| vec![("dut", n.as_str()), ("x", "word")]).collect();
        let found: Vec<(&[(&str, &str)], f64)> = owned.iter().map(|of| (of.as_slice(), 1.0)).collect();
        for (x, series) in [("dut", vec![]), ("x", vec!["dut"])] {
            let drawing = draw(&record(&found), &plot(x, Which::Median, &series));
            for text in drawing.body.split("<text ").skip(1) {
                let number = |key: &str| -> f64 {
                    let value = text.split_once(&format!(" {key}=\"")).expect(key).1;
                    value.split('"').next().and_then(|v| v.parse().ok()).expect("a number")
                };
                let shown = text.split_once('>').expect("text").1.split('<').next().expect("text");
                let (at, wide) = (number("x"), width(shown, MARK));
                let (from, to) = match text {
                    t if t.contains("rotate") => (at - wide * SLANT.to_radians().cos(), at),
                    t if t.contains("\"middle\"") => (at - wide / 2.0, at + wide / 2.0),
                    t if t.contains("\"end\"") => (at - wide, at),
                    _ => (at, at + wide),
                };
                assert!(
                    from > -2.0 && to < drawing.width + 2.0,
                    "{shown}: {from} to {to} of {}",
                    drawing.width
                );
                assert!(number("y") < drawing.height, "{shown}");
            }
        }
    }
}
