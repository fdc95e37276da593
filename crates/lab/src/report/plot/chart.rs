//! The field of a plot: lines over a numeric axis, or horizontal bars in groups.

use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::cartesian::Cartesian2d;
use plotters::element::{EmptyElement, ErrorBar, PathElement, Polygon, Rectangle};
use plotters::series::LineSeries;
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, FontStyle, TRANSPARENT};

use super::axis::Axis;
use super::data::{Data, Point, Series};
use super::style::{
    Area, DIM, Drawn, EDGE, GRID, INK, LINE, LONGEST, PAPER, TEXT, WIDTH, colour, cut, shape, style, text,
    wide,
};
use crate::record::{Plot, Which};
use crate::report::number::number;

/// Height of the field of lines, without the labels of its axis.
const FIELD: i32 = 320;
/// Height of the labels of a horizontal axis.
const LABELS: i32 = 26;
/// Letters of the longest name of a bar.
const NAME: usize = 42;
/// Share of a row that its bar fills.
const THICK: f64 = 0.76;
/// Bars that begin at another value than 0 mislead. So their axis is logarithmic only from this
/// ratio of the largest value to the smallest on.
const SPAN: f64 = 50.0;
/// Pixels between the caps of an error bar.
const CAP: u32 = 6;

/// A chart ready to be drawn.
type Context<'a, 'b> = ChartContext<'a, plotters::backend::SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// The figures of a plot, in the form in which they are drawn.
pub(super) enum Chart<'a> {
    /// A line for each series over numbers.
    Lines { data: &'a Data, numbers: &'a [f64], log_x: bool, log_y: bool },
    /// A row for each bar and each heading, from top to bottom.
    Bars { data: &'a Data, rows: Vec<Row<'a>>, log: bool },
}

/// A row of a chart with bars.
pub(super) enum Row<'a> {
    /// Name of the bars below it.
    Heading(&'a str),
    /// A bar with its name.
    Bar(&'a str, &'a Series, &'a Point),
}

impl<'a> Chart<'a> {
    /// The chart of a plot; `None` of nothing.
    pub(super) fn of(plot: &Plot, data: &'a Data) -> Option<Self> {
        data.extent()?;
        let log_y = plot.log_y && data.is_positive();
        if let Some(numbers) = &data.numbers {
            return Some(Self::Lines { data, numbers, log_x: plot.log_x, log_y });
        }
        let mut rows = Vec::new();
        let several = data.series.len() > 1;
        for (nth, place) in data.places.iter().enumerate() {
            let own = data.series.iter().filter_map(|s| Some((s, s.points.iter().find(|p| p.place == nth)?)));
            if several {
                rows.push(Row::Heading(place));
            }
            rows.extend(own.map(|(s, p)| Row::Bar(if several { &s.label } else { place }, s, p)));
        }
        let log = log_y && data.least_positive().zip(data.extent()).is_some_and(|(l, (_, h))| h > SPAN * l);
        Some(Self::Bars { data, rows, log })
    }

    /// Pixels from the top of the field to the end of the labels below it.
    pub(super) fn height(&self) -> i32 {
        LABELS
            + match self {
                Self::Lines { .. } => FIELD,
                Self::Bars { rows, .. } => rows.len() as i32 * LINE + EDGE,
            }
    }

    /// Draws the chart on `paper`, `top` pixels below its edge.
    pub(super) fn draw(&self, paper: &Area<'_>, top: i32, which: Which) -> Drawn<()> {
        let area = paper.clone().shrink((0, top), (WIDTH as u32, self.height() as u32));
        // Value of the baseline: plain is 1 times plain, and adds 0 to itself.
        let level = match which {
            Which::Median => None,
            Which::Ratio => Some(1.0),
            Which::Added => Some(0.0),
        };
        match self {
            Self::Lines { data, numbers, log_x, log_y } => {
                lines(&area, data, (numbers, *log_x), *log_y, level)
            }
            Self::Bars { data, rows, log } => bars(paper, &area, rows, values(data, *log), level),
        }
    }
}

/// The axis of the measured values.
fn values(data: &Data, log: bool) -> Axis {
    let (low, high) = data.extent().unwrap_or((0.0, 1.0));
    match data.least_positive().filter(|_| log) {
        Some(least) => Axis::values(least, high, true),
        None => Axis::values(low, high, false),
    }
}

/// A chart on `area` with `left` pixels for the names of its rows or marks.
fn context<'a, 'b>(
    area: &'a Area<'b>,
    left: i32,
    right: i32,
    along: Axis,
    up: Axis,
) -> Drawn<Context<'a, 'b>> {
    ChartBuilder::on(area)
        .margin_top(EDGE / 2)
        .margin_right(right)
        .set_label_area_size(LabelAreaPosition::Left, left)
        .set_label_area_size(LabelAreaPosition::Bottom, LABELS)
        .build_cartesian_2d(along, up)
}

fn lines(
    area: &Area<'_>,
    data: &Data,
    (numbers, log_x): (&[f64], bool),
    log_y: bool,
    level: Option<f64>,
) -> Drawn<()> {
    let up = values(data, log_y);
    let (left, right) = (up.widest() + 2 * EDGE, 2 * EDGE);
    let along = Axis::numbers(numbers, log_x, WIDTH - left - right);
    let level = level.filter(|l| up.holds(*l));
    let mut chart = context(area, left, right, along, up)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(DIM)
        .label_style(text(DIM, HPos::Center))
        .draw()?;
    if let Some(level) = level {
        let ends = chart.x_range();
        chart.draw_series([PathElement::new([(ends.start, level), (ends.end, level)], DIM)])?;
    }
    for series in &data.series {
        let (colour, shape) = (colour(series.style), shape(series.style));
        let at = |p: &Point| (numbers.get(p.place).copied().unwrap_or_default(), p.y);
        chart.draw_series(LineSeries::new(series.points.iter().map(at), colour.stroke_width(2)))?;
        let spread = |p: &Point| Some((at(p), p.range?));
        let bar =
            |((x, y), (low, high))| ErrorBar::new_vertical(x, low, y, high, colour.stroke_width(1), CAP);
        chart.draw_series(series.points.iter().filter_map(spread).map(bar))?;
        let mark = |p| EmptyElement::at(at(p)) + Polygon::new(shape, colour.filled());
        chart.draw_series(series.points.iter().map(mark))?;
    }
    Ok(())
}

fn bars(paper: &Area<'_>, area: &Area<'_>, rows: &[Row<'_>], along: Axis, level: Option<f64>) -> Drawn<()> {
    let names = rows.iter().filter_map(|row| match row {
        Row::Heading(_) => None,
        Row::Bar(name, ..) => Some(wide(&cut(name, NAME))),
    });
    let left = names.max().unwrap_or(0) + 3 * EDGE;
    let foot = along.foot();
    let level = level.filter(|l| *l != foot && along.holds(*l));
    let mut chart = context(area, left, 8 * EDGE, along, Axis::rows(rows.len()))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(DIM)
        .label_style(text(DIM, HPos::Center))
        .draw()?;
    for (nth, row) in rows.iter().enumerate() {
        let middle = nth as f64 + 0.5;
        let (_, y) = chart.backend_coord(&(foot, middle));
        match row {
            Row::Heading(name) => {
                // The axis and the lines across the field stop beside the heading.
                let covered = [(EDGE, y - LINE / 2), (EDGE + wide(name) * 11 / 10, y + LINE / 2)];
                paper.draw(&Rectangle::new(covered, PAPER.filled()))?;
                let style = style(TEXT, INK, HPos::Left, FontStyle::Bold);
                paper.draw_text(&cut(name, LONGEST), &style, (EDGE, y))?;
            }
            Row::Bar(name, series, point) => {
                let half = THICK / 2.0;
                let ends = [(foot, middle - half), (point.y, middle + half)];
                chart.draw_series([Rectangle::new(ends, colour(series.style).filled())])?;
                let mut end = point.y;
                if let Some((low, high)) = point.range {
                    end = high;
                    chart.draw_series([ErrorBar::new_horizontal(middle, low, point.y, high, INK, CAP)])?;
                }
                let (x, _) = chart.backend_coord(&(end.max(foot), middle));
                paper.draw_text(&cut(name, NAME), &text(INK, HPos::Right), (left - EDGE, y))?;
                paper.draw_text(&number(point.y), &text(INK, HPos::Left), (x + EDGE, y))?;
            }
        }
    }
    if let Some(level) = level {
        chart.draw_series([PathElement::new([(level, 0.0), (level, rows.len() as f64)], DIM)])?;
    }
    Ok(())
}
