//! Files and lines of the sections and keys of connections, in a few bytes each: of thousands of
//! connections most are never asked about.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ironswan_config::tree::Origin;

/// Where the keys of the connections that came from files were written.
#[derive(Default)]
pub(crate) struct Places {
    files: Vec<Arc<str>>,
    /// Number of the file and line, by a hash of the full name: nobody outside can predict the
    /// hash, and of a million names two have the same one with a probability of 3 in 10^8.
    lines: HashMap<u64, (u32, u32)>,
    hash: RandomState,
}

impl Places {
    /// Those of a configuration.
    pub(crate) fn of<'a>(places: impl Iterator<Item = (&'a str, &'a Origin)>) -> Self {
        let mut all = Self::default();
        let mut numbers: HashMap<Arc<str>, u32> = HashMap::new();
        for (name, origin) in places {
            let next = all.files.len() as u32;
            let file = *numbers.entry(origin.file.clone()).or_insert(next);
            if file == next {
                all.files.push(origin.file.clone());
            }
            all.lines.insert(all.hash.hash_one(name), (file, origin.line));
        }
        all.lines.shrink_to_fit();
        all
    }

    /// File and line of a connection, of a key of it (`remote_addrs`, `remote.id`), or of a key of
    /// its child (`children.local_ts`): `swanctl.conf:12`. A key that was not written has the place
    /// of its section. `None`: it did not come from a file, or the child is not known.
    pub(crate) fn line(&self, conn: &str, child: Option<&str>, key: Option<&str>) -> Option<String> {
        let name = match (key, child) {
            (None, None) => format!("connections.{conn}"),
            (None, Some(child)) => format!("connections.{conn}.children.{child}"),
            (Some(key), child) => match key.strip_prefix("children.") {
                Some(key) => format!("connections.{conn}.children.{}.{key}", child?),
                None => format!("connections.{conn}.{key}"),
            },
        };
        let mut name = name.as_str();
        loop {
            if let Some((file, line)) = self.lines.get(&self.hash.hash_one(name)) {
                let (file, line) = (self.files[*file as usize].clone(), *line);
                return Some(Origin { file, line }.to_string());
            }
            name = name.rsplit_once('.')?.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_line_and_one_that_was_not_written_that_of_its_section() {
        let at = |file: &str, line| Origin { file: file.into(), line };
        let written = [
            ("connections.net", at("swanctl.conf", 3)),
            ("connections.net.remote_addrs", at("swanctl.conf", 4)),
            ("connections.net.children.a.b", at("conf.d/x.conf", 9)),
            ("connections.net.children.a.b.local_ts", at("conf.d/x.conf", 10)),
        ];
        let places = Places::of(written.iter().map(|(name, at)| (*name, at)));
        let line = |child, key| places.line("net", child, key);
        assert_eq!(line(None, None).unwrap(), "swanctl.conf:3");
        assert_eq!(line(None, Some("remote_addrs")).unwrap(), "swanctl.conf:4");
        assert_eq!(line(None, Some("remote.id")).unwrap(), "swanctl.conf:3");
        assert_eq!(line(Some("a.b"), Some("children.local_ts")).unwrap(), "conf.d/x.conf:10");
        assert_eq!(line(Some("a.b"), Some("children.remote_ts")).unwrap(), "conf.d/x.conf:9");
        assert_eq!(line(Some("a.b"), None).unwrap(), "conf.d/x.conf:9");
        assert_eq!(line(None, Some("children.local_ts")), None);
        assert_eq!(places.line("other", None, None), None);
    }
}
