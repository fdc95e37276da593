//! Wildcards in the paths of `include`: `*`, `?`, `[a-z]`, `[!a]`, each within one component.

use std::path::Path;

/// True when there are wildcards in this text.
pub fn has_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// True when the components of this path match as many of the pattern's, from the first one on.
pub fn matches(pattern: &Path, path: &Path) -> bool {
    let mut parts = pattern.components();
    path.components().all(|name| {
        parts.next().is_some_and(|part| {
            let (part, name) = (part.as_os_str(), name.as_os_str());
            part == name || component(&part.to_string_lossy(), &name.to_string_lossy())
        })
    })
}

/// True when a name matches a component of a pattern. Wildcards do not match a leading dot.
pub(super) fn component(pattern: &str, name: &str) -> bool {
    (!name.starts_with('.') || pattern.starts_with('.')) && wild(pattern.as_bytes(), name.as_bytes())
}

/// One path component against a pattern of `*`, `?`, `[a-z]`, `[!a]`; linear in practice: only the
/// last `*` is retried.
fn wild(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(b'?') => Some(p + 1),
            Some(b'[') => match class(&pattern[p..], name[n]) {
                Some((true, used)) => Some(p + used),
                Some((false, _)) => None,
                None => (name[n] == b'[').then_some(p + 1),
            },
            Some(c) => (*c == name[n]).then_some(p + 1),
            None => None,
        };
        match (step, star) {
            (Some(next), _) => {
                p = next;
                n += 1;
            }
            (None, Some((after, from))) => {
                p = after;
                n = from + 1;
                star = Some((after, from + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// `[...]` at the start of `pattern`: whether it takes `c`, and its length. `None` when it is never
/// closed.
fn class(pattern: &[u8], c: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    let (mut i, mut hit) = (start, false);
    loop {
        let a = *pattern.get(i)?;
        if a == b']' && i > start {
            return Some((hit != negated, i + 1));
        }
        match (pattern.get(i + 1), pattern.get(i + 2)) {
            (Some(b'-'), Some(&b)) if b != b']' => {
                hit |= a <= c && c <= b;
                i += 3;
            }
            _ => {
                hit |= a == c;
                i += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_in_a_shell() {
        for (p, n, want) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf~", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?[0-9a]x", "z7x", true),
            ("?[!0-9]x", "z7x", false),
            ("[", "[", true),
            ("*", "", true),
            ("**********x", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(wild(p.as_bytes(), n.as_bytes()), want, "{p} {n}");
        }
    }

    #[test]
    fn a_path_matches_from_its_first_component_on() {
        let pattern = Path::new("/srv/*/peers-[0-9].conf");
        for (path, want) in [
            ("/srv", true),
            ("/srv/a", true),
            ("/srv/a/peers-1.conf", true),
            ("/srv/.a/peers-1.conf", false),
            ("/srv/a/peers-1.conf/b", false),
            ("/srv/a/b/peers-1.conf", false),
            ("/etc/a/peers-1.conf", false),
            ("srv/a", false),
        ] {
            assert_eq!(matches(pattern, Path::new(path)), want, "{path}");
        }
    }
}
