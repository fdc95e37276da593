//! What has been told about each connection and each stranger, for whoever asks later: `explain`,
//! `status`, VICI.
//!
//! ```text
//! Event::Log { conn, why, stranger } ─┬─ nobody authenticated ─▶ strangers, by address   1 MiB
//!                                     └─ else ───────────────▶ connection, by name     4 KiB each
//! ```
//! A note has the words of a diagnosis, its values and those of both sides; equal ones are counted.
//! A connection has notes only while something is wrong: they go when all of its tunnels are up,
//! but for those that say how a tunnel that is up is (`Entry::is_condition`), which go with it.
//! What a stranger does is never written under a connection, however well it fits one, so that
//! nobody from outside can write over what has been seen of the real peer.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `note` | one note, and its size |
//! | `places` | files and lines of the keys of connections |

mod note;
mod places;

use std::cell::{Ref, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use ironswan_ike::event::Event;
use ironswan_io::clock;
use ironswan_keying::Level;
use ironswan_keying::diagnosis::{Entry, PathEntry};

use crate::driver::Driver;
pub(crate) use note::Note;
pub(crate) use places::Places;

/// Limits the bytes of what is kept about one connection.
const CONNECTION_BYTES: usize = 4 * 1024;
/// Limits the bytes of what is kept about all strangers together.
const STRANGER_BYTES: usize = 1024 * 1024;

/// What has been told.
#[derive(Default)]
pub(crate) struct Records {
    told: RefCell<Told>,
    places: RefCell<Places>,
}

#[derive(Default)]
struct Told {
    /// By the connection's name. No list is empty; the latest note is the last.
    conns: BTreeMap<String, Vec<Note>>,
    strangers: BTreeMap<(IpAddr, Entry), Note>,
    /// Bytes of all notes about strangers.
    stranger_bytes: usize,
}

impl Records {
    /// Hears of an event, before any other observer.
    pub(crate) fn hear(&self, driver: &Driver, event: &Event) {
        match event {
            Event::Log { level, conn, why: Some(why), stranger, .. } => {
                let now = clock::now();
                match (stranger, conn) {
                    (Some(from), conn) => {
                        self.told.borrow_mut().stranger(*from, Note::new(now, *level, why, conn.as_deref()));
                    }
                    // What is only of interest to somebody who looks for defects explains nothing.
                    (None, Some(conn)) if *level != Level::Debug => {
                        self.told.borrow_mut().connection(conn, Note::new(now, *level, why, None));
                    }
                    _ => {}
                }
            }
            Event::IkeUp(ike) | Event::ChildUp { ike, .. } => {
                // Nothing is wrong with any connection, as a rule.
                if self.told.borrow().conns.is_empty() {
                    return;
                }
                let up = driver.view(|e, now| {
                    let conn = e.protocol().ike_sa(now, *ike)?.conn;
                    (!e.is_down(&conn)).then_some(conn)
                });
                if let Some(conn) = up {
                    self.told.borrow_mut().keep(&conn, Entry::is_condition);
                }
            }
            Event::Over { conn, entry, .. } => self.told.borrow_mut().keep(conn, |other| other != *entry),
            // Told by `Path::Narrow` before, if ever.
            Event::PathMtu { ike, mtu: None, .. } if !self.told.borrow().conns.is_empty() => {
                let conn = driver.view(|e, now| e.protocol().ike_sa(now, *ike).map(|sa| sa.conn));
                if let Some(conn) = conn {
                    self.told.borrow_mut().keep(&conn, |entry| entry != Entry::Path(PathEntry::Narrow));
                }
            }
            Event::ChildDown { ike } | Event::IkeDown(ike) => {
                let conn = &ike.conn;
                let stands = || {
                    let children = || ike.children.iter().map(|child| child.name.as_str());
                    driver.view(|e, now| children().any(|child| e.up(now, conn, Some(child)).is_some()))
                };
                if self.told.borrow().conns.contains_key(conn) && !stands() {
                    self.told.borrow_mut().keep(conn, |entry| !entry.is_condition());
                }
            }
            _ => {}
        }
    }

    /// Takes over where the connections of the files are written.
    pub(crate) fn set_places(&self, places: Places) {
        self.places.replace(places);
    }

    /// Where the connections of the files are written.
    pub(crate) fn places(&self) -> Ref<'_, Places> {
        self.places.borrow()
    }

    /// The notes about a connection, the oldest first.
    pub(crate) fn of_connection(&self, conn: &str) -> Vec<Note> {
        self.told.borrow().conns.get(conn).cloned().unwrap_or_default()
    }

    /// The latest notes about strangers of which this is true, with their addresses, the latest
    /// last; and how many there are beside these.
    pub(crate) fn of_strangers(
        &self,
        most: usize,
        is: impl Fn(IpAddr, &Note) -> bool,
    ) -> (Vec<(IpAddr, Note)>, usize) {
        let told = self.told.borrow();
        let of = told.strangers.iter().filter(|((from, _), note)| is(*from, note));
        let mut all: Vec<(IpAddr, &Note)> = of.map(|((from, _), note)| (*from, note)).collect();
        all.sort_by_key(|(_, note)| note.last);
        let left_out = all.len().saturating_sub(most);
        (all.into_iter().skip(left_out).map(|(from, note)| (from, note.clone())).collect(), left_out)
    }

    /// The notes that were told last, the latest first: about connections (`Ok`) and strangers
    /// (`Err`).
    pub(crate) fn latest(&self, most: usize) -> Vec<(Result<String, IpAddr>, Note)> {
        let told = self.told.borrow();
        let conns = told.conns.iter().flat_map(|(conn, notes)| notes.iter().map(move |n| (Ok(conn), n)));
        let strangers = told.strangers.iter().map(|((from, _), note)| (Err(*from), note));
        let mut all: Vec<_> = conns.chain(strangers).collect();
        if all.len() > most {
            all.select_nth_unstable_by_key(most, |(_, note)| Reverse(note.last));
            all.truncate(most);
        }
        all.sort_by_key(|(_, note)| Reverse(note.last));
        all.into_iter().map(|(about, note)| (about.cloned(), note.clone())).collect()
    }

    /// Forgets connections that are not loaded any more.
    pub(crate) fn forget_unless(&self, loaded: impl Fn(&str) -> bool) {
        self.told.borrow_mut().conns.retain(|conn, _| loaded(conn));
    }
}

impl Told {
    fn connection(&mut self, conn: &str, note: Note) {
        let notes = self.conns.entry(conn.to_owned()).or_default();
        match notes.iter().position(|old| old.is_same(&note)) {
            Some(at) => {
                let old = notes.remove(at);
                notes.push(old.again(note));
            }
            None => notes.push(note),
        }
        let mut bytes: usize = notes.iter().map(Note::bytes).sum();
        while bytes > CONNECTION_BYTES && notes.len() > 1 {
            bytes -= notes.remove(0).bytes();
        }
    }

    fn stranger(&mut self, from: IpAddr, note: Note) {
        let key = (from, note.entry);
        let note = match self.strangers.remove(&key) {
            Some(old) => {
                self.stranger_bytes -= old.bytes();
                old.again(note)
            }
            None => note,
        };
        self.stranger_bytes += note.bytes();
        self.strangers.insert(key, note);
        if self.stranger_bytes > STRANGER_BYTES {
            self.drop_old_strangers();
        }
    }

    /// Drops the older half, so that this is rare.
    fn drop_old_strangers(&mut self) {
        let mut times: Vec<Instant> = self.strangers.values().map(|note| note.last).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        let mut left = self.strangers.len().div_ceil(2);
        self.strangers.retain(|_, note| {
            let keeps = note.last >= middle && left > 0;
            left -= usize::from(keeps);
            keeps
        });
        self.stranger_bytes = self.strangers.values().map(Note::bytes).sum();
    }

    /// Keeps the notes about a connection whose entries are such.
    fn keep(&mut self, conn: &str, such: impl Fn(Entry) -> bool) {
        if let Some(notes) = self.conns.get_mut(conn) {
            notes.retain(|note| such(note.entry));
            if notes.is_empty() {
                self.conns.remove(conn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ironswan_keying::Diagnosis;
    use ironswan_keying::diagnosis::{KeyExchange, NotDone, Path};

    use super::*;

    fn note(why: impl Into<Diagnosis>) -> Note {
        Note::new(clock::now(), Level::Error, &Arc::new(why.into()), None)
    }

    fn unknown(n: usize, name: usize) -> Note {
        note(NotDone::NoChild(format!("{n:0name$}")))
    }

    #[test]
    fn equal_ones_are_counted_and_the_latest_is_the_last() {
        let mut told = Told::default();
        let (a, b) = (Path::NoRoute { remote: [192, 0, 2, 1].into() }, KeyExchange::PeerRestarted);
        for _ in 0..3 {
            told.connection("c", note(a.clone()));
            told.connection("c", note(b.clone()));
        }
        told.connection("c", note(a.clone()));
        let seen: Vec<(&str, u32)> =
            told.conns["c"].iter().map(|note| (note.entry.name(), note.count)).collect();
        assert_eq!(seen, [("peer-restarted", 3), ("no-route", 4)]);
        told.keep("c", |entry| entry.name() == "no-route");
        assert_eq!(told.conns["c"].len(), 1);
        told.keep("c", |_| false);
        assert!(told.conns.is_empty());
    }

    #[test]
    fn a_connection_has_no_more_than_its_bytes_however_much_is_told() {
        let mut told = Told::default();
        for n in 0..200 {
            told.connection("c", unknown(n, 300));
            let bytes: usize = told.conns["c"].iter().map(Note::bytes).sum();
            assert!(bytes <= CONNECTION_BYTES, "{bytes} after {n}");
        }
        assert!(told.conns["c"].len() > 3);
        assert!(told.conns["c"].last().unwrap().sentence.contains("199"));
        // One note alone is cut to fit.
        told.connection("c", unknown(7, 60_000));
        let bytes: usize = told.conns["c"].iter().map(Note::bytes).sum();
        assert!(bytes <= CONNECTION_BYTES, "{bytes}");
    }

    #[test]
    fn of_very_many_strangers_the_latest_are_told_and_the_others_counted() {
        let records = Records::default();
        for n in 0..300u32 {
            let at = clock::now() + Duration::from_secs(n.into());
            let note = Note { last: at, ..note(NotDone::NoChild(n.to_string())) };
            records.told.borrow_mut().stranger(n.to_be_bytes().into(), note);
        }
        let (told, left_out) = records.of_strangers(16, |_, _| true);
        assert_eq!((told.len(), left_out), (16, 284));
        assert_eq!(told[15].0, IpAddr::from(299u32.to_be_bytes()));
        assert_eq!(records.of_strangers(16, |from, _| from == IpAddr::from([0, 0, 0, 9])).1, 0);
    }

    #[test]
    fn the_latest_of_all_come_first() {
        let records = Records::default();
        for n in 0..50u32 {
            let at = clock::now() + Duration::from_secs(n.into());
            let of = |name: String| Note { last: at, ..note(NotDone::NoChild(name)) };
            records.told.borrow_mut().connection(&format!("c{n}"), of(n.to_string()));
            records.told.borrow_mut().stranger(n.to_be_bytes().into(), of(n.to_string()));
        }
        let latest = records.latest(4);
        let about: Vec<String> = latest
            .iter()
            .map(|(about, _)| about.as_ref().map_or_else(ToString::to_string, Clone::clone))
            .collect();
        assert_eq!(about.len(), 4);
        assert!(about[..2].contains(&"c49".to_owned()) && about[..2].contains(&"0.0.0.49".to_owned()));
        assert!(about[2..].contains(&"c48".to_owned()), "{about:?}");
        assert_eq!(records.latest(1_000).len(), 100);
        assert!(Records::default().latest(4).is_empty());
    }

    #[test]
    fn strangers_together_have_no_more_than_their_bytes_and_the_latest_stay() {
        let mut told = Told::default();
        for n in 0..20_000u32 {
            told.stranger(n.to_be_bytes().into(), unknown(n as usize, 200));
            assert!(told.stranger_bytes <= STRANGER_BYTES + 4096);
        }
        let counted: usize = told.strangers.values().map(Note::bytes).sum();
        assert_eq!(counted, told.stranger_bytes);
        assert!(told.strangers.len() > 500 && told.strangers.len() < 20_000);
        let latest: IpAddr = 19_999u32.to_be_bytes().into();
        assert!(told.strangers.keys().any(|(from, _)| *from == latest));
        let first: IpAddr = 0u32.to_be_bytes().into();
        assert!(!told.strangers.keys().any(|(from, _)| *from == first));
        // The same of the same again takes no more room.
        let before = told.stranger_bytes;
        for _ in 0..10 {
            told.stranger(latest, unknown(19_999, 200));
        }
        assert_eq!(told.stranger_bytes, before);
    }
}
