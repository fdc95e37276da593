//! Distinguished names as people write them, by strongSwan's rules.
//!
//! ```text
//! C=CH, O=example, CN=gw.example        /C=CH/O=example/CN=gw.example        CN=*
//! ```
//! A backslash takes its meaning from the character behind it. Types are abbreviations of RFC 4519
//! and of strongSwan, without regard to case, or numbers with dots. Not here: names in DER
//! (`name`).

use crate::der::{IA5_STRING, OID, PRINTABLE_STRING, SEQUENCE, SET, UTF8_STRING, emit};
use crate::name::{ABBREVIATIONS, EMAIL, MAX_NAME, Name};
use crate::oid::Oid;

/// domainComponent and UID: their values are IA5String and UTF8String (RFC 4519).
const DOMAIN_COMPONENT: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25];

/// The name in DER, as in an identity of type ID_DER_ASN1_DN. `None` when the text is no name: an
/// RDN without `=`, a type that is not known, an empty value, control characters, or more than
/// 8 KiB.
pub fn parse(text: &str) -> Option<Vec<u8>> {
    if text.contains(char::is_control) {
        return None;
    }
    let text = text.trim();
    let (separator, text) = match text.strip_prefix('/') {
        Some(rest) => ('/', rest),
        None => (',', text),
    };
    let mut rdns = Vec::new();
    for part in split(text, separator) {
        rdns.extend(rdn(&part)?);
    }
    let der = emit(SEQUENCE, &[&rdns]);
    (der.len() <= MAX_NAME && Name::from_der(&der).is_some()).then_some(der)
}

/// A character, and whether a backslash stands before it.
type Char = (char, bool);

/// Splits text at a separator that no backslash precedes.
fn split(text: &str, separator: char) -> Vec<Vec<Char>> {
    let mut parts = vec![Vec::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        if escaped.is_none() && c == separator {
            parts.push(Vec::new());
        } else if let Some(last) = parts.last_mut() {
            last.push((escaped.unwrap_or(c), escaped.is_some()));
        }
    }
    parts
}

/// One RDN in DER.
fn rdn(part: &[Char]) -> Option<Vec<u8>> {
    let at = part.iter().position(|&(c, escaped)| c == '=' && !escaped)?;
    let text = |chars: &[Char]| chars.iter().map(|(c, _)| c).collect::<String>();
    let kind = text(&part[..at]);
    let kind = kind_of(kind.trim())?;
    let is_space = |(c, escaped): &Char| c.is_whitespace() && !escaped;
    let value = &part[at + 1..];
    let start = value.iter().position(|c| !is_space(c))?;
    let end = value.iter().rposition(|c| !is_space(c))?;
    let value = text(&value[start..=end]);
    let value = emit(string_tag(&kind, &value), &[value.as_bytes()]);
    Some(emit(SET, &[&emit(SEQUENCE, &[&emit(OID, &[&kind]), &value])]))
}

fn kind_of(text: &str) -> Option<Vec<u8>> {
    let known = ABBREVIATIONS.iter().find(|(short, _)| short.eq_ignore_ascii_case(text));
    match known {
        Some((_, kind)) => Some(kind.to_vec()),
        None => Oid::parse(text).map(|oid| oid.value().to_vec()),
    }
}

/// Tag of a string: PrintableString where its characters suffice, as certificates have it most.
fn string_tag(kind: &[u8], value: &str) -> u8 {
    let printable = |b: u8| b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&b);
    if kind == EMAIL || kind == DOMAIN_COMPONENT {
        if value.is_ascii() { IA5_STRING } else { UTF8_STRING }
    } else if value.bytes().all(printable) {
        PRINTABLE_STRING
    } else {
        UTF8_STRING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        parse(text).map(|der| Name::from_der(&der).unwrap().to_string())
    }

    #[test]
    fn names_are_shown_as_they_were_written() {
        let text = "C=CH, O=strongSwan Project, OU=R&D, CN=moon.strongswan.org, E=moon@strongswan.org";
        assert_eq!(shown(text).as_deref(), Some(text));
        assert_eq!(shown("/c=CH/o=a, b/cn=x").as_deref(), Some("C=CH, O=a, b, CN=x"));
        assert_eq!(shown(r"O=a\, b , CN=\ x ").as_deref(), Some("O=a, b, CN= x"));
        assert_eq!(shown("2.5.4.3=x, 1.2.3.4=y").as_deref(), Some("CN=x, 1.2.3.4=y"));
        assert_eq!(shown("CN=a=b").as_deref(), Some("CN=a=b"));
        assert_eq!(shown("CN=*").as_deref(), Some("CN=*"));
        for bad in ["", "CN", "CN=", "CN= ", "x=y", "CN=a,", "CN=a\nb", ",CN=a", "=a", "/"] {
            assert_eq!(shown(bad), None, "{bad:?}");
        }
        assert_eq!(parse(&format!("CN={}", "x".repeat(9000))), None);
    }

    #[test]
    fn names_compare_without_regard_to_case_spaces_and_encoding() {
        let equal = |a: &str, b: &str| {
            let (a, b) = (parse(a).unwrap(), parse(b).unwrap());
            Name::from_der(&a) == Name::from_der(&b)
        };
        assert!(equal("C=CH, O=A  b, CN=x", "c=ch,o=a b,cn=X"));
        assert!(equal("CN=Jürg", "CN=JÜRG"));
        assert!(!equal("C=CH, O=ab", "C=CH, O=a b"));
        assert!(!equal("C=CH, O=a", "O=a, C=CH"));
        assert!(!equal("O=a", "OU=a"));
        assert!(!equal("O=a", "O=a, CN=b"));
    }

    #[test]
    fn a_star_stands_for_one_value_of_its_type() {
        let fits = |name: &str, pattern: &str| {
            let (name, pattern) = (parse(name).unwrap(), parse(pattern).unwrap());
            Name::from_der(&name).unwrap().fits(&Name::from_der(&pattern).unwrap())
        };
        assert!(fits("C=CH, O=a, CN=x", "C=CH, O=A, CN=*"));
        assert!(fits("C=CH, O=a, CN=x", "C=*, O=*, CN=*"));
        assert!(!fits("C=CH, O=a, CN=x", "C=CH, O=b, CN=*"));
        assert!(!fits("C=CH, O=a, CN=x", "C=CH, O=a"));
        assert!(!fits("C=CH, O=a, CN=x", "C=CH, O=a, OU=*"));
        assert!(!fits("C=CH, O=a", "C=CH, O=a, CN=*"));
        // A star in a certificate means nothing.
        assert!(!fits("CN=*", "CN=x"));
    }
}
