//! Name constraints (RFC 5280 section 4.2.1.10): which names a CA allows below itself.

use crate::certificate::Certificate;
use crate::der::{Reader, explicit};
use crate::extensions::subtree;
use crate::fault::{Limit, Rule};
use crate::general_name::GeneralName;
use crate::name;
use crate::rules::Limits;

/// Constraints of the CAs above a certificate, and the work that remains for comparing names.
pub(crate) struct Constraints<'a> {
    /// Inside of each `nameConstraints`.
    sets: Vec<&'a [u8]>,
    /// Bytes that may still be compared.
    left: usize,
    /// Bytes that may be compared altogether.
    max: usize,
}

impl<'a> Constraints<'a> {
    /// Starts without constraints. At most `max` bytes of names are compared.
    pub(crate) fn new(max: usize) -> Self {
        Self { sets: Vec::new(), left: max, max }
    }

    /// Adds the constraints of a CA. A name has to satisfy those of every CA, which is the
    /// intersection of section 6.1.4 (g).
    pub(crate) fn add(&mut self, certificate: &'a Certificate) {
        self.sets.extend(certificate.part(certificate.extensions().name_constraints));
    }

    /// Checks all names of a certificate.
    pub(crate) fn check(&mut self, certificate: &Certificate) -> Result<(), Rule> {
        if self.sets.is_empty() {
            return Ok(());
        }
        let subject = certificate.subject();
        if !subject.is_empty() {
            self.check_name(&GeneralName::Directory(subject))?;
        }
        let mut has_email = false;
        for name in certificate.alt_names() {
            has_email |= matches!(name, GeneralName::Email(_));
            self.check_name(&name)?;
        }
        // "Legacy implementations exist where an electronic mail address is embedded in the subject
        // distinguished name": the constraint "MUST be applied to the attribute of type
        // emailAddress in the subject" when the other field has none.
        if !has_email {
            for attribute in subject.attributes().filter(|a| a.kind == name::EMAIL) {
                self.check_name(&GeneralName::Email(attribute.value))?;
            }
        }
        Ok(())
    }

    /// Checks one name against all constraints.
    fn check_name(&mut self, name: &GeneralName<'_>) -> Result<(), Rule> {
        for n in 0..self.sets.len() {
            let mut set = Reader::new(self.sets[n]);
            let permitted = set.optional(explicit(0)).ok().flatten().unwrap_or_default();
            let excluded = set.optional(explicit(1)).ok().flatten().unwrap_or_default();
            let mut asked = false;
            let mut fits = false;
            for base in subtrees(permitted).filter(|base| base.form() == name.form()) {
                self.spend(name, &base)?;
                asked = true;
                fits |= within(name, &base).unwrap_or(false);
            }
            if asked && !fits {
                return Err(Rule::NameNotPermitted { name: name.to_string() });
            }
            for base in subtrees(excluded).filter(|base| base.form() == name.form()) {
                self.spend(name, &base)?;
                // A name of which nobody can say whether it fits counts as excluded.
                if within(name, &base).unwrap_or(true) {
                    return Err(Rule::NameExcluded { name: name.to_string() });
                }
            }
        }
        Ok(())
    }

    /// Counts the work of one comparison.
    fn spend(&mut self, name: &GeneralName<'_>, base: &GeneralName<'_>) -> Result<(), Rule> {
        let cost = 64 + len(name) + len(base);
        self.left =
            self.left.checked_sub(cost).ok_or(Rule::Limit { of: Limit::Comparisons, max: self.max })?;
        Ok(())
    }
}

/// True when the constraints of a CA allow a name below it. A comparison that would take too much
/// work counts as allowed: the CA is judged with the chain.
pub(crate) fn allows(ca: &Certificate, name: &GeneralName<'_>) -> bool {
    let mut constraints = Constraints::new(Limits::default().comparisons);
    constraints.add(ca);
    !matches!(constraints.check_name(name), Err(Rule::NameNotPermitted { .. } | Rule::NameExcluded { .. }))
}

fn subtrees(list: &[u8]) -> impl Iterator<Item = GeneralName<'_>> {
    let mut reader = Reader::new(list);
    std::iter::from_fn(move || subtree(&mut reader).ok())
}

fn len(name: &GeneralName<'_>) -> usize {
    match name {
        GeneralName::Email(text)
        | GeneralName::Dns(text)
        | GeneralName::Uri(text)
        | GeneralName::Ip(text) => text.len(),
        GeneralName::Directory(name) => name.der().len(),
        GeneralName::Other(_) => 0,
    }
}

/// Whether a name lies within a subtree of the same form. `None` when nobody can say: the form is
/// not known, or the name has not the parts that are compared.
fn within(name: &GeneralName<'_>, base: &GeneralName<'_>) -> Option<bool> {
    match (name, base) {
        (GeneralName::Directory(name), GeneralName::Directory(base)) => Some(base.is_prefix_of(name)),
        (GeneralName::Dns(name), GeneralName::Dns(base)) => Some(is_below(name, base)),
        (GeneralName::Email(name), GeneralName::Email(base)) => {
            if base.is_empty() {
                return Some(true);
            }
            let (mailbox, host) = split_at_sign(name)?;
            Some(match split_at_sign(base) {
                Some((wanted, at)) => mailbox == wanted && host.eq_ignore_ascii_case(at),
                None => is_host(host, base),
            })
        }
        (GeneralName::Uri(name), GeneralName::Uri(base)) => {
            Some(base.is_empty() || is_host(host_of_uri(name)?, base))
        }
        (GeneralName::Ip(name), GeneralName::Ip(base)) => {
            let (network, mask) = base.split_at(base.len() / 2);
            if !matches!(name.len(), 4 | 16) || !matches!(base.len(), 8 | 32) {
                return None;
            }
            let same = name.iter().zip(network).zip(mask).all(|((n, b), m)| n & m == b & m);
            Some(name.len() == network.len() && same)
        }
        _ => None,
    }
}

/// "Any DNS name that can be constructed by simply adding zero or more labels to the left-hand side
/// of the name satisfies the name constraint." A dot in front asks for at least one label.
fn is_below(name: &[u8], base: &[u8]) -> bool {
    let Some(rest) = name.len().checked_sub(base.len()) else { return false };
    let (front, end) = name.split_at(rest);
    let at_label = front.is_empty() || front.ends_with(b".") || base.starts_with(b".") || base.is_empty();
    end.eq_ignore_ascii_case(base) && at_label
}

/// "When the constraint begins with a period, it MAY be expanded with one or more labels. [...]
/// When the constraint does not begin with a period, it specifies a host."
fn is_host(host: &[u8], base: &[u8]) -> bool {
    if base.starts_with(b".") { is_below(host, base) } else { host.eq_ignore_ascii_case(base) }
}

fn split_at_sign(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().rposition(|&b| b == b'@')?;
    Some((&text[..at], &text[at + 1..]))
}

/// The host of a URI. "If the URI [...] does not include an authority component that includes a
/// host name specified as a fully qualified domain name (e.g., if the URI [...] includes [...] an
/// IP address), then the application MUST reject the certificate": `None`.
fn host_of_uri(uri: &[u8]) -> Option<&[u8]> {
    let at = uri.windows(3).position(|w| w == b"://")?;
    let rest = &uri[at + 3..];
    let authority = rest.split(|b| matches!(b, b'/' | b'?' | b'#')).next()?;
    let host = split_at_sign(authority).map_or(authority, |(_, host)| host);
    let host = host.split(|&b| b == b':').next()?;
    let is_name = host.iter().any(u8::is_ascii_alphabetic);
    (is_name && !host.starts_with(b"[")).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dns_name_is_below_another_one_at_a_dot_only() {
        for (name, base, expected) in [
            ("example.com", "example.com", true),
            ("GW.example.com", "Example.com", true),
            ("badexample.com", "example.com", false),
            ("example.com", ".example.com", false),
            ("gw.example.com", ".example.com", true),
            ("com", "example.com", false),
            ("anything", "", true),
        ] {
            assert_eq!(is_below(name.as_bytes(), base.as_bytes()), expected, "{name} {base}");
        }
    }

    #[test]
    fn the_host_of_a_uri_is_found_or_nobody_can_say() {
        let host = |uri: &'static str| host_of_uri(uri.as_bytes()).map(|h| std::str::from_utf8(h).unwrap());
        assert_eq!(host("http://a.example/x"), Some("a.example"));
        assert_eq!(host("ldap://user:pw@a.example:389?x"), Some("a.example"));
        assert_eq!(host("http://a.example#@b.example"), Some("a.example"));
        for uri in ["mailto:a@b", "http://192.0.2.1/", "http://[2001:db8::1]/", "http://", "x"] {
            assert_eq!(host(uri), None, "{uri}");
        }
    }

    #[test]
    fn an_address_is_within_a_network_of_its_family() {
        let v4 = [192, 0, 2, 0, 255, 255, 255, 0];
        let fits = |name: &[u8], base: &[u8]| within(&GeneralName::Ip(name), &GeneralName::Ip(base));
        assert_eq!(fits(&[192, 0, 2, 9], &v4), Some(true));
        assert_eq!(fits(&[192, 0, 3, 9], &v4), Some(false));
        assert_eq!(fits(&[0; 16], &v4), Some(false));
        assert_eq!(fits(&[192, 0, 2, 9], &v4[..7]), None);
    }

    #[test]
    fn a_constraint_on_mail_names_a_mailbox_a_host_or_a_domain() {
        let fits = |name: &str, base: &str| {
            within(&GeneralName::Email(name.as_bytes()), &GeneralName::Email(base.as_bytes()))
        };
        assert_eq!(fits("joe@Example.com", "joe@example.com"), Some(true));
        assert_eq!(fits("Joe@example.com", "joe@example.com"), Some(false));
        assert_eq!(fits("joe@example.com", "example.com"), Some(true));
        assert_eq!(fits("joe@a.example.com", "example.com"), Some(false));
        assert_eq!(fits("joe@a.example.com", ".example.com"), Some(true));
        assert_eq!(fits("joe", "example.com"), None);
    }
}
