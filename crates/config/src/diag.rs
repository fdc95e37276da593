//! Findings about a configuration: one line each, with the place, the key and the remedy.

use std::fmt;

use ironswan_keying::Diagnosis;
use ironswan_wire::printable::printable;
use serde::Serialize;

use super::tree::Origin;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The value works, and is probably not what is meant, or not wise.
    Warning,
    /// The key has no effect here.
    Note,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// How bad.
    pub severity: Severity,
    /// Place in a file. `None`: the finding has no place (the folder itself).
    pub origin: Option<Origin>,
    /// The key with its sections: `connections.net.mobike`; empty when it is about no key.
    pub key: String,
    /// The fault, its data, and the remedy.
    pub diagnosis: Diagnosis,
}

impl fmt::Display for Diagnostic {
    /// `file:line: key: sentence; remedy`, with the severity in front of the message unless it is
    /// an error. Files and keys may have any name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{}: ", printable(&origin.to_string()))?;
        }
        match self.severity {
            Severity::Error => {}
            Severity::Warning => f.write_str("warning: ")?,
            Severity::Note => f.write_str("note: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", printable(&self.key))?;
        }
        write!(f, "{}", self.diagnosis)
    }
}

/// No more findings than this are kept: a broken 10 MB file must not become a 1 GB report.
const KEPT: usize = 1_000;
/// Every severity, the worst first.
const SEVERITIES: [Severity; 3] = [Severity::Error, Severity::Warning, Severity::Note];

/// A list of findings. All are counted. Of more than are kept, those that are worse take the places
/// of others.
#[derive(Clone, Default, Debug)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// By severity: all, and those in `list`.
    counts: [usize; 3],
    kept: [usize; 3],
}

impl Diagnostics {
    /// Adds one.
    pub fn push(
        &mut self,
        severity: Severity,
        origin: Option<&Origin>,
        key: &str,
        diagnosis: impl Into<Diagnosis>,
    ) {
        self.counts[severity as usize] += 1;
        if self.has_place(severity) {
            self.list.push(Diagnostic {
                severity,
                origin: origin.cloned(),
                key: key.to_owned(),
                diagnosis: diagnosis.into(),
            });
        }
    }

    /// Takes a place for one of this severity, from the last of the least severe ones when there is
    /// none. False when all that are kept are as bad.
    fn has_place(&mut self, severity: Severity) -> bool {
        if self.list.len() >= KEPT {
            let least = SEVERITIES.into_iter().rev().find(|s| self.kept[*s as usize] > 0);
            let Some(least) = least.filter(|least| *least > severity) else { return false };
            let Some(last) = self.list.iter().rposition(|d| d.severity == least) else { return false };
            self.list.remove(last);
            self.kept[least as usize] -= 1;
        }
        self.kept[severity as usize] += 1;
        true
    }

    /// Adds an error.
    pub fn error(&mut self, origin: &Origin, key: &str, diagnosis: impl Into<Diagnosis>) {
        self.push(Severity::Error, Some(origin), key, diagnosis);
    }

    /// Adds a warning.
    pub fn warn(&mut self, origin: &Origin, key: &str, diagnosis: impl Into<Diagnosis>) {
        self.push(Severity::Warning, Some(origin), key, diagnosis);
    }

    /// Adds a note.
    pub fn note(&mut self, origin: &Origin, key: &str, diagnosis: impl Into<Diagnosis>) {
        self.push(Severity::Note, Some(origin), key, diagnosis);
    }

    /// Adds all of another list.
    pub fn extend(&mut self, other: Diagnostics) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        for d in other.list {
            if self.has_place(d.severity) {
                self.list.push(d);
            }
        }
    }

    /// Number of one severity, including those that were not kept.
    pub fn count(&self, severity: Severity) -> usize {
        self.counts[severity as usize]
    }

    /// Number of errors, including those that were not kept.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// Findings that were counted and not kept.
    pub fn lost(&self) -> usize {
        self.counts.iter().sum::<usize>() - self.list.len()
    }

    /// True when no error more is kept, so that its words are lost work.
    pub fn is_full(&self) -> bool {
        self.kept[Severity::Error as usize] >= KEPT
    }

    /// The findings, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The errors as one line each.
    pub fn error_lines(&self) -> Vec<String> {
        self.list.iter().filter(|d| d.severity == Severity::Error).map(ToString::to_string).collect()
    }
}

/// The known word nearest to what was written, when one is near enough to have been meant.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_ascii_lowercase();
    if written.len() > 64 {
        return None;
    }
    let limit = (written.chars().count() / 3).clamp(1, 4);
    known
        .into_iter()
        .map(|k| (strsim::osa_distance(&written, &k.to_ascii_lowercase()), k))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use ironswan_keying::diagnosis::Configuration;

    use super::*;

    #[test]
    fn a_key_and_a_file_of_any_name_are_shown_by_their_numbers() {
        let mut diags = Diagnostics::default();
        let origin = Origin::source("/etc/\u{1b}[2J.conf");
        diags.error(&origin, "connections.a.\u{202e}b\r", Configuration::ReadingFailed { why: None });
        let line = diags.error_lines().remove(0);
        assert!(line.starts_with(r"/etc/\u{1b}[2J.conf: connections.a.\u{202e}b\u{d}: "), "{line}");
    }

    #[test]
    fn the_nearest_word_is_named_only_when_it_is_near() {
        let known = ["remote_addrs", "local_addrs", "proposals", "version"];
        assert_eq!(nearest("remote_adrs", known), Some("remote_addrs"));
        assert_eq!(nearest("porposals", known), Some("proposals"));
        assert_eq!(nearest("mobike", known), None);
        // Two letters in the wrong order are one mistake.
        assert_eq!(nearest("mobkie", ["mobike"]), Some("mobike"));
        assert_eq!(nearest("iv", ["vi"]), Some("vi"));
    }

    #[test]
    fn a_finding_reads_file_line_key_message() {
        let mut d = Diagnostics::default();
        let unknown = Configuration::UnknownKey { near: None };
        d.error(&Origin { file: "swanctl.conf".into(), line: 7 }, "connections.a.mobike", unknown);
        assert_eq!(d.error_lines(), ["swanctl.conf:7: connections.a.mobike: unknown key; remove it"]);
        for _ in 0..2_000 {
            d.warn(&Origin::source("vici"), "", Configuration::CommentInValue);
        }
        assert_eq!((d.errors(), d.iter().count(), d.lost()), (1, 1_000, 1_001));
    }

    #[test]
    fn all_are_counted_and_the_worst_are_kept() {
        let at = |line| Origin { file: "f".into(), line };
        let (mut d, mut more) = (Diagnostics::default(), Diagnostics::default());
        (0..1_500).for_each(|n| d.note(&at(n), "", Configuration::IpsecConf));
        (0..700).for_each(|n| d.warn(&at(n), "", Configuration::CommentInValue));
        (0..700).for_each(|n| more.error(&at(n), "", Configuration::KeyOutside));
        (0..10).for_each(|n| more.warn(&at(n), "", Configuration::NoLiveness));
        d.extend(more);
        let kept = |s| d.iter().filter(|x| x.severity == s).count();
        assert_eq!(SEVERITIES.map(|s| d.count(s)), [700, 710, 1_500]);
        assert_eq!(SEVERITIES.map(kept), [700, 300, 0]);
        assert_eq!((d.lost(), d.is_full()), (1_910, false));
        // Of each kind the first, in the order in which they were found.
        assert!(
            d.iter().take(300).enumerate().all(|(i, x)| x.diagnosis == Configuration::CommentInValue.into()
                && x.origin == Some(at(i as u32)))
        );
        (0..400).for_each(|n| d.error(&at(n), "", Configuration::KeyOutside));
        assert!(d.is_full() && d.error_lines().len() == 1_000 && d.errors() == 1_100);
    }
}
