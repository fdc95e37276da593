//! Colours, marks, sizes and text of plots, and how wide text is. Pure.

use std::io;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, IntoFont, RGBColor, TextStyle};

/// Width of a plot in pixels.
pub(super) const WIDTH: i32 = 760;
/// Free pixels at the edges.
pub(super) const EDGE: i32 = 10;
/// Pixels from one line of text to the next.
pub(super) const LINE: i32 = 18;
/// Sizes of text in pixels.
pub(super) const TITLE: f64 = 16.0;
pub(super) const TEXT: f64 = 13.0;
/// Mean width of a letter, as a share of the size of the text. Rather too much than too little.
pub(super) const LETTER: f64 = 0.56;
/// Names of series are cut to this many letters.
pub(super) const LONGEST: usize = 90;
const FONT: &str = "DejaVu Sans, Verdana, sans-serif";
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// Colours of text, of axes and their labels, and of lines across the field.
pub(super) const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
pub(super) const DIM: RGBColor = RGBColor(0x57, 0x60, 0x6a);
pub(super) const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe4);
/// Colours of series.
pub(super) const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x67, 0xa3),
    RGBColor(0xc8, 0x4e, 0x00),
    RGBColor(0x00, 0x85, 0x60),
    RGBColor(0xa3, 0x40, 0x7f),
    RGBColor(0xa0, 0x6a, 0x00),
    RGBColor(0x2a, 0x8f, 0xd0),
    RGBColor(0x5f, 0x63, 0x68),
    RGBColor(0x6b, 0x3d, 0x1f),
];
/// Shapes of marks, in pixels from their middle: round, square, triangle, diamond, triangle on its
/// tip.
const SHAPES: [&[(i32, i32)]; 5] = [
    &[(-2, -5), (2, -5), (5, -2), (5, 2), (2, 5), (-2, 5), (-5, 2), (-5, -2)],
    &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
    &[(0, -6), (6, 5), (-6, 5)],
    &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    &[(0, 6), (6, -5), (-6, -5)],
];

/// The paper, or a part of it.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn<T> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// Colour of the series of this number.
pub(super) fn colour(nth: usize) -> RGBColor {
    COLOURS[nth % COLOURS.len()]
}

/// The shape of its marks: another one when the colours begin again.
pub(super) fn shape(nth: usize) -> &'static [(i32, i32)] {
    SHAPES[(nth + nth / COLOURS.len()) % SHAPES.len()]
}

/// Pixels of a text of usual size, about.
pub(super) fn wide(text: &str) -> i32 {
    (text.chars().count() as f64 * TEXT * LETTER).ceil() as i32
}

/// A name with at most so many letters.
pub(super) fn cut(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters.saturating_sub(3)).chain("...".chars()).collect()
}

/// Text of usual size.
pub(super) fn text(colour: RGBColor, anchor: HPos) -> TextStyle<'static> {
    style(TEXT, colour, anchor, FontStyle::Normal)
}

/// Text whose middle line is at its coordinate.
pub(super) fn style(size: f64, colour: RGBColor, anchor: HPos, face: FontStyle) -> TextStyle<'static> {
    // The backend divides sizes by this.
    let font = (FONT, size * 1.24).into_font().style(face);
    font.color(&colour).pos(Pos::new(anchor, VPos::Center))
}
