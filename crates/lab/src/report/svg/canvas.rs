//! Elements of an SVG document, and how wide text is. Pure.

use std::fmt::Write;

/// Escapes text for XML and HTML.
pub(in crate::report) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in XML at all.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// About how wide text of that size is, pixels; a sans-serif face, rather too much than too little.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.3,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '-' | '/' | '[' | ']' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.92,
        c if c.is_ascii_uppercase() => 0.7,
        c if c.is_ascii() => 0.6,
        _ => 1.0,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// Breaks text at spaces into lines no wider than that.
pub(super) fn lines(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(word, size) <= most + 0.01 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// Cut to a width.
pub(super) fn cut(text: &str, size: f64, most: f64) -> String {
    if width(text, size) <= most {
        return text.into();
    }
    let mut out = text.to_string();
    while width(&out, size) + width("...", size) > most && out.pop().is_some() {}
    out + "..."
}

/// Point of a text that stands at its coordinates.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Elements, in the order in which they are drawn.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    out: String,
}

/// The shapes of marks: as many as there are colours, so that each series differs by both.
pub(super) const SHAPES: usize = 8;

impl Canvas {
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.raw(&format!(
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            px(x1),
            px(y1),
            px(x2),
            px(y2)
        ));
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.raw(&format!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            px(x),
            px(y),
            escape(text)
        ));
    }

    /// Text that ends at a point and rises towards it.
    pub(super) fn slanted(&mut self, (x, y): (f64, f64), degrees: f64, text: &str) {
        self.raw(&format!(
            "<text class=\"k\" x=\"{0}\" y=\"{1}\" text-anchor=\"end\" transform=\"rotate(-{degrees} {0} {1})\">{2}</text>",
            px(x),
            px(y),
            escape(text)
        ));
    }

    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let steps: Vec<String> = points.iter().map(|(x, y)| format!("{} {}", px(*x), px(*y))).collect();
        self.raw(&format!("<path class=\"{class}\" d=\"M{}\"/>", steps.join(" L")));
    }

    /// A bar that says on being pointed at what it is.
    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64), says: &str) {
        self.raw(&format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>",
            px(x),
            px(y),
            px(w),
            px(h),
            escape(says)
        ));
    }

    /// A mark of the `nth` shape, `r` pixels in radius.
    pub(super) fn mark(&mut self, class: &str, nth: usize, (x, y): (f64, f64), r: f64, says: &str) {
        let polygon = |points: &[(f64, f64)]| {
            let all: Vec<String> =
                points.iter().map(|(dx, dy)| format!("{},{}", px(x + dx * r), px(y + dy * r))).collect();
            format!("<polygon class=\"{class}\" points=\"{}\"", all.join(" "))
        };
        let a = 0.38;
        let plus = [
            (-a, -1.1),
            (a, -1.1),
            (a, -a),
            (1.1, -a),
            (1.1, a),
            (a, a),
            (a, 1.1),
            (-a, 1.1),
            (-a, a),
            (-1.1, a),
            (-1.1, -a),
            (-a, -a),
        ];
        let turned = plus.map(|(dx, dy)| ((dx - dy) * 0.75, (dx + dy) * 0.75));
        let element = match nth % SHAPES {
            0 => format!("<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\"", px(x), px(y), px(r)),
            1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => polygon(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
            3 => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            4 => polygon(&[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
            5 => polygon(&turned),
            6 => polygon(&plus),
            _ => polygon(&[(-1.2, 0.0), (-0.6, -1.04), (0.6, -1.04), (1.2, 0.0), (0.6, 1.04), (-0.6, 1.04)]),
        };
        let tag = element.split(' ').next().unwrap_or_default().trim_start_matches('<').to_string();
        if says.is_empty() {
            self.raw(&format!("{element}/>"));
        } else {
            self.raw(&format!("{element}><title>{}</title></{tag}>", escape(says)));
        }
    }

    fn raw(&mut self, element: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.out, "{element}");
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// A coordinate with a tenth of a pixel.
fn px(v: f64) -> String {
    let text = format!("{v:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_become_markup() {
        assert_eq!(escape("a<b>&\"c\" 'd'\u{7}"), "a&lt;b&gt;&amp;&quot;c&quot; &#39;d&#39; ");
        let mut c = Canvas::default();
        c.text("k", (1.0, 2.25), Anchor::End, "</text><script>");
        c.mark("s0", 2, (0.0, 0.0), 4.0, "x < y");
        let out = c.finish();
        assert!(out.contains(">&lt;/text&gt;&lt;script&gt;</text>"), "{out}");
        assert!(out.contains("<title>x &lt; y</title></polygon>"), "{out}");
    }

    #[test]
    fn text_is_broken_and_cut_to_its_room() {
        assert_eq!(lines("one two three", 10.0, width("one two", 10.0)), ["one two", "three"]);
        let short = cut("a rather long name of a system", 10.0, 80.0);
        assert!(short.ends_with("...") && width(&short, 10.0) <= 80.0, "{short}");
        assert_eq!(cut("short", 10.0, 80.0), "short");
    }
}
