//! A record as one page of HTML that needs nothing else: question, answer and the first plot,
//! doubts, tables, plots, the historical figure, where and with what it was measured, and how to do
//! it again. From the record alone. Pure.

use std::fmt::Write;

use super::answer::answer;
use super::doubts_text::by_kind;
use super::grid::{Cell, Grid, titled};
use super::number::number;
use super::plot::Drawing;
use crate::process::quoted;
use crate::record::{Historical, Record, View, WarningRecord, factors_text};

/// Added to the meaning of a ratio where some are withheld.
const WITHHELD: &str = "; withheld where the tester, and not the system, set the limit of that one";

const STYLE: &str = include_str!("page.css");
/// The page of a record, with its plots in their order.
pub(super) fn page(record: &Record, plots: &[Drawing]) -> String {
    let mut p = Page::default();
    let title = format!("{} {}", record.number, record.experiment);
    p.add(&format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{} - IronSwan laboratory</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n",
        escape(&title)
    ));
    p.add(&format!("<header>\n<p class=\"dim\">IronSwan laboratory, experiment {}</p>\n", escape(&title)));
    p.add(&format!("<h1>{}</h1>\n", escape(&record.question)));
    p.add(&format!(
        "<p class=\"dim\">{}; measured {}, in {}.</p>\n</header>\n",
        escape(&record.machine.one_line()),
        escape(&record.started),
        duration(record.seconds)
    ));
    if let Some(answer) = answer(record) {
        p.add(&format!("<p class=\"answer\">{}</p>\n", escape(&answer)));
    }
    if let Some(plot) = plots.first() {
        p.figure(plot);
    }
    p.warnings(record);
    p.add("<main>\n");
    p.views(record, plots);
    p.history(&record.history);
    p.measures(record);
    p.facts(record);
    p.repeat(record);
    p.figures(record);
    p.add("</main>\n");
    p.add(&format!(
        "<footer><p>Made from <a href=\"run.json\">run.json</a> (schema {}) alone. What was counted or printed \
         on the way is in <code>raw/</code>.</p></footer>\n</body>\n</html>\n",
        escape(&record.schema)
    ));
    p.out
}

/// Escapes text for XML and HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A length of time for people.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[derive(Default)]
struct Page {
    out: String,
}

impl Page {
    fn add(&mut self, html: &str) {
        self.out.push_str(html);
    }

    fn warnings(&mut self, record: &Record) {
        if record.warnings.is_empty() {
            return;
        }
        self.add("<section class=\"warnings\">\n<h2>Read these figures with care</h2>\n<ul>\n");
        let item = |w: &&WarningRecord| format!("<li><b>{}</b>: {}</li>\n", escape(&w.kind), escape(&w.text));
        for (shown, rest) in by_kind(&record.warnings) {
            shown.iter().for_each(|w| self.add(&item(w)));
            if !rest.is_empty() {
                let summary = format!("{} more of the kind {}", rest.len(), escape(&rest[0].kind));
                let items: String = rest.iter().map(item).collect();
                self.add(&format!(
                    "<li><details><summary>{summary}</summary>\n<ul>\n{items}</ul>\n</details></li>\n"
                ));
            }
        }
        self.add("</ul>\n</section>\n");
    }

    fn views(&mut self, record: &Record, plots: &[Drawing]) {
        if record.views.is_empty() {
            return;
        }
        self.add("<h2>Results</h2>\n");
        if record.figures.iter().flat_map(|f| f.measures.values()).any(|q| q.summary.n > 1) {
            self.add(
                "<p class=\"dim\">Medians; below each, the smallest and the largest of the repeats.</p>\n",
            );
        }
        // The first one is at the top.
        let (mut plots, mut first) = (plots.iter(), true);
        for view in &record.views {
            match view {
                View::Table(table) => self.table(&titled(record, table), &Grid::of(record, table)),
                View::Derived { title, names } => {
                    self.table(title, &Grid::derived(record, names));
                    let own = record.derived.iter().filter(|d| names.contains(&d.name));
                    let mut how: Vec<String> = Vec::new();
                    for d in own {
                        let text = format!("{}: {}", d.name.replace('_', " "), d.how);
                        if !how.contains(&text) {
                            how.push(text);
                        }
                    }
                    self.add(&format!("<p class=\"dim\">{}.</p>\n", escape(&how.join("; "))));
                }
                View::Plot(_) => {
                    if let Some(plot) = plots.next().filter(|_| !std::mem::take(&mut first)) {
                        self.figure(plot);
                    }
                }
            }
        }
    }

    fn figure(&mut self, plot: &Drawing) {
        self.add(&format!("<figure>\n{}", plot.inline()));
        self.add(&format!(
            "<figcaption><a href=\"{0}\">{0}</a></figcaption>\n</figure>\n",
            escape(&plot.file_name())
        ));
    }

    /// A table; on a narrow screen each row becomes a card, whose cells say their column.
    fn table(&mut self, title: &str, grid: &Grid) {
        self.add(&format!("<h3>{}</h3>\n<div class=\"wide\"><table class=\"cards\">\n<tr>", escape(title)));
        let class = |nth: usize| if nth < grid.names { " class=\"name\"" } else { "" };
        for (nth, heading) in grid.heading.iter().enumerate() {
            self.add(&format!("<th{}>{}</th>", class(nth), escape(heading)));
        }
        self.add("</tr>\n");
        for row in &grid.rows {
            self.add("<tr>");
            for (nth, Cell { text, spread }) in row.iter().enumerate() {
                let spread = spread
                    .as_ref()
                    .map_or_else(String::new, |s| format!("<span class=\"spread\">{}</span>", escape(s)));
                let column = grid.heading.get(nth).map_or("", String::as_str);
                self.add(&format!(
                    "<td{} data-column=\"{}\">{}{spread}</td>",
                    class(nth),
                    escape(column),
                    escape(text)
                ));
            }
            self.add("</tr>\n");
        }
        self.add("</table></div>\n");
    }

    fn history(&mut self, history: &[Historical]) {
        if history.is_empty() {
            return;
        }
        self.add("<h2>Then and now</h2>\n");
        for h in history {
            self.add(&format!("<h3>{}</h3>\n<div class=\"then\">", escape(&h.source)));
            for (name, text) in [("then", &h.then), ("now", &h.now), ("but", &h.caveat)] {
                if !text.is_empty() {
                    self.add(&format!("<b>{name}</b><div>{}</div>", escape(text)));
                }
            }
            self.add("</div>\n");
        }
    }

    fn measures(&mut self, record: &Record) {
        self.add("<h2>What the columns mean</h2>\n<div class=\"wide\"><table class=\"facts\">\n");
        for m in &record.measures {
            let better = match m.better {
                crate::record::Better::More => "; more is better",
                crate::record::Better::Less => "; less is better",
                crate::record::Better::Neither => "",
            };
            let unit = if m.unit == "1" { "a number".into() } else { escape(&m.unit) };
            self.add(&format!(
                "<tr><td>{}</td><td>{} ({unit}{better})</td></tr>\n",
                escape(&m.heading),
                escape(&m.what)
            ));
        }
        if let Some(b) = &record.baseline {
            self.add(&format!(
                "<tr><td>ratio, +</td><td>over, and more than, the figure that differs only in that {} is {}{}</td></tr>\n",
                escape(&b.factor),
                escape(&b.value),
                if record.figures.iter().any(|f| f.withheld.is_some()) { WITHHELD } else { "" }
            ));
        }
        self.add("</table></div>\n");
    }

    fn facts(&mut self, record: &Record) {
        let m = &record.machine;
        let absent = || "not known".to_string();
        let mut rows = vec![
            ("processor", format!("{} x {}", m.cpus, m.cpu_model)),
            ("clock", m.mhz.map_or_else(absent, |v| format!("{v:.0} MHz"))),
            ("instruction sets", m.cpu_flags.join(" ")),
            ("virtual machine", if m.virtual_machine { "yes" } else { "no" }.into()),
            ("memory", m.memory_kib.map_or_else(absent, |k| format!("{:.1} GiB", k as f64 / 1048576.0))),
            ("kernel", m.kernel.clone()),
            ("distribution", m.os.clone().unwrap_or_else(absent)),
            ("clock source", m.clocksource.clone().unwrap_or_else(absent)),
            ("frequency governor", m.governor.clone().unwrap_or_else(|| "none".into())),
            ("load when it began", m.load_average.map_or_else(absent, |l| format!("{l:.2}"))),
        ];
        rows.retain(|(_, v)| !v.is_empty());
        self.pairs("Machine", rows.into_iter().map(|(k, v)| (k.to_string(), v)));
        self.pairs("Settings", record.settings.clone());
        let p = &record.program;
        let own = [("measured by".to_string(), format!("{} {} ({} build)", p.name, p.version, p.build))];
        self.pairs("Versions", own.into_iter().chain(record.versions.clone()));
    }

    fn pairs(&mut self, title: &str, rows: impl IntoIterator<Item = (String, String)>) {
        let rows: Vec<String> = rows
            .into_iter()
            .map(|(k, v)| format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(&k), escape(&v)))
            .collect();
        if !rows.is_empty() {
            self.add(&format!(
                "<h2>{title}</h2>\n<div class=\"wide\"><table class=\"facts\">\n{}</table></div>\n",
                rows.concat()
            ));
        }
    }

    fn repeat(&mut self, record: &Record) {
        self.add("<h2>How to repeat it</h2>\n<p>On a quiet machine, with the same program and the versions above:</p>\n");
        self.add(&format!("<pre>{}</pre>\n", escape(&quoted(&record.command_line))));
        self.add(
            "<p><code>ironswan lab report FOLDER</code> shows this run again without measuring; <code>ironswan lab compare-runs \
             A B</code> lays two runs beside each other; <code>testkit/laboratory/recompute.py FOLDER</code> computes every \
             figure again from the samples, independently.</p>\n",
        );
        if !record.commands.is_empty() {
            self.add(&format!(
                "<details><summary>Commands that were run, {}</summary>\n<pre>{}</pre>\n</details>\n",
                record.commands.len(),
                escape(&record.commands.join("\n"))
            ));
        }
    }

    /// Every figure, with all that is known of its spread.
    fn figures(&mut self, record: &Record) {
        self.add(&format!(
            "<h2>Every figure</h2>\n<details><summary>{} figures of {} samples: median, median absolute deviation, \
             interquartile range, extremes</summary>\n<div class=\"wide\"><table>\n<tr><th class=\"name\">of</th>\
             <th class=\"name\">measure</th><th>n</th><th>median</th><th>mad</th><th>iqr</th><th>smallest</th>\
             <th>largest</th><th>ratio</th><th>added</th></tr>\n",
            record.figures.iter().map(|f| f.measures.len()).sum::<usize>(),
            record.samples.len()
        ));
        for figure in &record.figures {
            let of = factors_text(figure);
            for (name, q) in &figure.measures {
                let unit = record.measure(name).map_or("", |m| m.unit.as_str());
                let withheld =
                    figure.withheld.as_deref().map_or_else(|| "-".into(), |_| "withheld".to_string());
                let optional = |v: Option<f64>| v.map_or_else(|| withheld.clone(), number);
                let s = &q.summary;
                let mut row = format!(
                    "<tr><td class=\"name\">{}</td><td class=\"name\">{} ({})</td><td>{}</td>",
                    escape(&of),
                    escape(name),
                    escape(unit),
                    s.n
                );
                for v in [s.median, s.mad, s.iqr, s.min, s.max] {
                    // Writing to a string does not fail.
                    let _ = write!(row, "<td>{}</td>", number(v));
                }
                let _ = writeln!(row, "<td>{}</td><td>{}</td></tr>", optional(q.ratio), optional(q.added));
                self.add(&row);
            }
            for (name, why) in &figure.absent {
                let unit = record.measure(name).map_or("", |m| m.unit.as_str());
                let [of, name, unit] = [&of, name, unit].map(escape);
                self.add(&format!(
                    "<tr><td class=\"name\">{of}</td><td class=\"name\">{name} ({unit})</td><td>0</td><td>{why}</td>{}</tr>\n",
                    "<td>-</td>".repeat(6)
                ));
            }
        }
        self.add("</table></div>\n</details>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_become_markup() {
        assert_eq!(escape("a<b>&\"c\" 'd'\u{7}"), "a&lt;b&gt;&amp;&quot;c&quot; &#39;d&#39; ");
    }
}
