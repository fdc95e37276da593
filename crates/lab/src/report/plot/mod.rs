//! Plots of a record as SVG: lines with marks over a numeric axis, horizontal bars over words,
//! error bars from the smallest to the largest of the repeats. Colours are told apart by people who
//! see few of them; besides, every line has marks of its own shape, and every bar has its name.
//! Pure.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `data` | points and series of a plot |
//! | `axis` | axes |
//! | `chart` | the field of lines or bars |
//! | `style` | colours, marks, sizes and text |

mod axis;
mod chart;
mod data;
mod style;

use plotters::backend::SVGBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Polygon, Rectangle};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, FontStyle};

use self::chart::Chart;
use self::data::{Data, Series};
use self::style::{
    Area, DIM, Drawn, EDGE, INK, LETTER, LINE, LONGEST, PAPER, TEXT, TITLE, WIDTH, colour, cut, shape, style,
    text, wide,
};
use super::page::escape;
use super::text::wrap;
use crate::error::LabError;
use crate::record::{Plot, Record, Which};

/// A plot that was drawn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drawing {
    name: String,
    svg: String,
}

impl Drawing {
    /// Name of the file that holds it.
    pub(super) fn file_name(&self) -> String {
        format!("{}.svg", self.name)
    }

    /// As an element of a page.
    pub(super) fn inline(&self) -> String {
        self.svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
    }

    /// As a file.
    pub(super) fn file(&self) -> String {
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", self.svg)
    }
}

/// Draws a plot of the record.
///
/// # Errors
/// Whatever the library refuses to draw.
pub(super) fn draw(record: &Record, plot: &Plot) -> Result<Drawing, LabError> {
    let mut svg = String::new();
    painted(&mut svg, record, plot)
        .map_err(|e| LabError::Measurement(format!("the plot {} cannot be drawn: {e}", plot.name)))?;
    let named = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(&plot.title));
    Ok(Drawing { name: plot.name.clone(), svg: svg.replacen("<svg ", &named, 1) })
}

/// Draws title, legend, title of the vertical axis, field, and title of the horizontal axis, one
/// below the other.
fn painted(svg: &mut String, record: &Record, plot: &Plot) -> Drawn<()> {
    let data = Data::of(record, plot);
    let title = lines(&plot.title, TITLE * 1.1);
    let chart = Chart::of(plot, &data);
    let measure = lines(&measure_title(record, plot), TEXT);
    let (beside, below) = match &chart {
        None => (vec!["There is no figure to show.".into()], Vec::new()),
        Some(Chart::Lines { .. }) => (measure, lines(&plot.x_label, TEXT)),
        Some(Chart::Bars { .. }) => (lines(&plot.x_label, TEXT), measure),
    };
    let legend = match &chart {
        Some(Chart::Lines { .. }) => legend(&data.series),
        Some(Chart::Bars { .. }) | None => Vec::new(),
    };
    let rows = |n: usize| n as i32 * LINE;
    let over = 2 * EDGE + rows(title.len()) + rows(legend.last().map_or(0, |(row, ..)| row + 1));
    let field = over + rows(beside.len()) + EDGE / 2;
    let foot = field + chart.as_ref().map_or(0, Chart::height);
    let height = foot + rows(below.len()) + EDGE;
    let paper = SVGBackend::with_string(svg, (WIDTH as u32, height as u32)).into_drawing_area();
    paper.fill(&PAPER)?;
    for (nth, line) in title.iter().enumerate() {
        let style = style(TITLE, INK, HPos::Left, FontStyle::Bold);
        paper.draw_text(line, &style, (EDGE, EDGE + LINE / 2 + rows(nth)))?;
    }
    for (row, x, series) in &legend {
        entry(&paper, (*x, EDGE + rows(title.len() + row) + LINE / 2 + EDGE / 2), series)?;
    }
    for (nth, line) in beside.iter().enumerate() {
        paper.draw_text(line, &text(DIM, HPos::Left), (EDGE, over + LINE / 2 + rows(nth)))?;
    }
    if let Some(chart) = &chart {
        chart.draw(&paper, field, plot.which)?;
    }
    for (nth, line) in below.iter().enumerate() {
        paper.draw_text(line, &text(DIM, HPos::Center), (WIDTH / 2, foot + LINE / 2 + rows(nth)))?;
    }
    paper.present()
}

/// Breaks a text of that size into lines as wide as the plot.
fn lines(text: &str, size: f64) -> Vec<String> {
    let letters = f64::from(WIDTH - 2 * EDGE) / (size * LETTER);
    wrap(text, letters as usize, "", "").lines().map(str::to_owned).collect()
}

/// Title of the axis of measured values, with the unit.
fn measure_title(record: &Record, plot: &Plot) -> String {
    let (what, unit) =
        record.measure(&plot.y).map_or((plot.y.as_str(), ""), |m| (m.what.as_str(), m.unit.as_str()));
    let unit = plot.which.unit(unit, record);
    let repeated =
        record.figures_with(&plot.only).any(|f| f.measures.get(&plot.y).is_some_and(|q| q.summary.n > 1));
    let spread = if plot.which == Which::Median && repeated {
        "; median, and from the smallest to the largest"
    } else {
        ""
    };
    if unit.is_empty() { format!("{what}{spread}") } else { format!("{what} ({unit}){spread}") }
}

/// Row, first pixel and series of each entry of the legend; nothing for one series without a name.
fn legend(series: &[Series]) -> Vec<(usize, i32, &Series)> {
    let (mut row, mut x) = (0, EDGE);
    let named = series.iter().filter(|s| !s.label.is_empty());
    let place = |own| {
        let Series { label, .. }: &Series = own;
        let room = 32 + wide(&cut(label, LONGEST)) + 16;
        if x > EDGE && x + room > WIDTH {
            (row, x) = (row + 1, EDGE);
        }
        let at = (row, x, own);
        x += room;
        at
    };
    named.map(place).collect()
}

/// One entry of the legend, from the left end of its line.
fn entry(paper: &Area<'_>, (x, y): (i32, i32), series: &Series) -> Drawn<()> {
    let colour = colour(series.style);
    paper.draw(&Rectangle::new([(x, y - 1), (x + 24, y + 1)], colour.filled()))?;
    let shape: Vec<(i32, i32)> = shape(series.style).iter().map(|(dx, dy)| (x + 12 + dx, y + dy)).collect();
    paper.draw(&Polygon::new(shape, colour.filled()))?;
    paper.draw_text(&cut(&series.label, LONGEST), &text(INK, HPos::Left), (x + 32, y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Baseline, Factors, Sample, factors, figures};
    use crate::report::sample;

    /// A record of one measure, from what was chosen and found.
    fn record(found: &[(&[(&str, &str)], f64)]) -> Record {
        let mut record = sample::record();
        record.samples = found
            .iter()
            .map(|(of, value)| Sample {
                factors: of.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
                repeat: 0,
                began: 0.0,
                measures: [("gbps".to_string(), *value)].into(),
                absent: [].into(),
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

    fn svg(found: &[(&[(&str, &str)], f64)], plot: &Plot) -> String {
        draw(&record(found), plot).expect("drawn").file()
    }

    /// Texts of a picture, in their order.
    fn texts(svg: &str) -> Vec<&str> {
        svg.split("<text ")
            .skip(1)
            .filter_map(|t| Some(t.split_once(">\n")?.1.split_once("\n<")?.0))
            .collect()
    }

    #[test]
    fn numbers_make_lines_in_their_order_and_words_make_bars() {
        let found: &[(&[(&str, &str)], f64)] = &[
            (&[("dut", "a"), ("size", "1500")], 3.0),
            (&[("dut", "a"), ("size", "64")], 1.0),
            (&[("dut", "b"), ("size", "imix")], 2.0),
        ];
        let lines = svg(&found[..2], &plot("size", Which::Median, &["dut"]));
        // The lines of the axes are thinner.
        let way = lines.split_once("stroke-width=\"2\" points=\"").expect("a line").1;
        let way = way.split('"').next().expect("points").split_whitespace();
        let across: Vec<i32> =
            way.map(|p| p.split(',').next().and_then(|x| x.parse().ok()).expect("x")).collect();
        assert!(across.len() == 2 && across[0] < across[1], "{across:?}");
        // A mark at each point, and one in the legend.
        assert_eq!(lines.matches("<polygon").count(), 3, "{lines}");
        assert!(texts(&lines).contains(&"a") && texts(&lines).contains(&"1,500"), "{lines}");
        let bars = svg(found, &plot("size", Which::Median, &["dut"]));
        assert!(!bars.contains("<polygon"), "{bars}");
        // Two bars of a, one of b, three headings, and the paper. Bars have names and values.
        assert_eq!(bars.matches("<rect").count(), 7, "{bars}");
        for text in ["1500", "64", "imix", "a", "b", "3.00", "1.00", "2.00"] {
            assert!(texts(&bars).contains(&text), "{text}: {bars}");
        }
    }

    #[test]
    fn what_differs_by_a_factor_that_was_not_named_is_a_series_of_its_own() {
        let found: &[(&[(&str, &str)], f64)] = &[
            (&[("dut", "a"), ("mode", "wire"), ("size", "64")], 1.0),
            (&[("dut", "a"), ("mode", "offload"), ("size", "64")], 2.0),
        ];
        let text = svg(found, &plot("size", Which::Median, &["dut"]));
        assert!(["a, wire", "a, offload"].iter().all(|s| texts(&text).contains(s)), "{text}");
    }

    #[test]
    fn a_system_has_one_colour_in_all_plots() {
        let found: &[(&[(&str, &str)], f64)] =
            &[(&[("dut", "plain"), ("size", "64")], 4.0), (&[("dut", "b"), ("size", "64")], 1.0)];
        // In the plot of ratios, b is alone.
        for which in [Which::Median, Which::Ratio] {
            let text = svg(found, &plot("size", which, &["dut"]));
            assert!(text.contains("fill=\"#C84E00\""), "{text}");
        }
    }

    #[test]
    fn nothing_zero_and_less_than_nothing_are_drawn_on_a_scale_that_can_show_them() {
        let empty = svg(&[(&[("dut", "a")], 1.0)], &plot("size", Which::Median, &[]));
        assert!(empty.contains("There is no figure to show."), "{empty}");
        for values in [[0.0, 0.0], [-3.0, 5.0], [0.0, 7.0]] {
            let found: &[(&[(&str, &str)], f64)] =
                &[(&[("dut", "a"), ("size", "0")], values[0]), (&[("dut", "a"), ("size", "64")], values[1])];
            let text = svg(found, &plot("size", Which::Median, &[]));
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            assert!(texts(&text).iter().any(|t| ["0", "0.0"].contains(t)), "{text}");
        }
        let added = Plot { only: factors([("dut", "b")]), ..plot("dut", Which::Added, &[]) };
        let found: &[(&[(&str, &str)], f64)] = &[(&[("dut", "plain")], 4.0), (&[("dut", "b")], 1.0)];
        let text = svg(found, &added);
        assert!(texts(&text).contains(&"-3.00") && text.contains("Gb/s more than plain"), "{text}");
    }

    #[test]
    fn no_text_leaves_its_plot() {
        let long = "a system whose name is far longer than anybody would want to read in a plot";
        let names: Vec<String> = (0..12).map(|n| format!("{long} {n}")).collect();
        let owned: Vec<Vec<(&str, &str)>> =
            names.iter().map(|n| vec![("dut", n.as_str()), ("x", "word")]).collect();
        let found: Vec<(&[(&str, &str)], f64)> = owned.iter().map(|of| (of.as_slice(), 1.0)).collect();
        for (x, series) in [("dut", vec![]), ("x", vec!["dut"])] {
            let drawn = svg(&found, &plot(x, Which::Median, &series));
            let height: i32 = number_of(&drawn, "height");
            for text in drawn.split("<text ").skip(1) {
                let shown = text.split_once(">\n").expect("text").1.split('\n').next().expect("text");
                let (at, wide) = (number_of(text, "x"), wide(shown));
                let (from, to) = match text {
                    t if t.contains("\"middle\"") => (at - wide / 2, at + wide / 2),
                    t if t.contains("\"end\"") => (at - wide, at),
                    _ => (at, at + wide),
                };
                assert!(from >= 0 && to <= WIDTH, "{shown}: {from} to {to}");
                assert!(number_of(text, "y") < height, "{shown}");
            }
        }
    }

    /// The first attribute of this name.
    fn number_of(element: &str, name: &str) -> i32 {
        let value = element.split_once(&format!("{name}=\"")).expect(name).1;
        value.split('"').next().and_then(|v| v.parse().ok()).expect("a number")
    }
}
