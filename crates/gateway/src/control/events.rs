//! Events: the log, and the ups, downs and moves of SAs, to those who have registered for them.
//! Not here: alerts, which are in `alerts`.

use ironswan_ike::event::{Event, IkeId, IkeSaInfo, Level};
use ironswan_wire::vici::Section;

use super::sas::{child, ike, ike_with_children, name};
use super::{Control, client::Client};
use crate::dataplane::captured::IkeCopy;
use crate::driver::{Driver, Observer};

impl Observer for Control {
    fn datagram(&self, copy: IkeCopy) {
        self.captures.datagram(&self.driver, copy);
    }

    fn event(&self, driver: &Driver, event: &Event) {
        self.captures.event(driver, event);
        match event {
            Event::Log { level, conn, ike, text, why, stranger: _ } => {
                self.log(*level, conn.as_deref(), *ike, text);
                if let Some(why) = why {
                    self.alert(conn.as_deref(), *ike, why);
                }
            }
            Event::IkeUp(id) => self.publish("ike-updown", || {
                let sa = find(driver, *id)?;
                Some(Section::new().with("up", true).with(name(&sa), ike(&sa)))
            }),
            Event::IkeDown(sa) => self.publish("ike-updown", || Some(Section::new().with(name(sa), ike(sa)))),
            Event::IkeRekeyed { old, new } => self.publish("ike-rekey", || {
                let new = find(driver, *new)?;
                Some(
                    Section::new()
                        .with(name(&new), Section::new().with("old", ike(old)).with("new", ike(&new))),
                )
            }),
            // As in charon, the new addresses come first, and the section has the old ones.
            Event::IkeMoved { old, local, remote } => self.publish("ike-update", || {
                let ends = Section::new()
                    .with("local-host", local.ip().to_string())
                    .with("local-port", local.port())
                    .with("remote-host", remote.ip().to_string())
                    .with("remote-port", remote.port());
                Some(ends.with(name(old), ike(old)))
            }),
            Event::ChildUp { ike, child } => self.publish("child-updown", || {
                let mut sa = find(driver, *ike)?;
                sa.children.retain(|c| c.id == *child);
                let now = driver.plane_now().as_secs();
                Some(Section::new().with("up", true).with(name(&sa), ike_with_children(&sa, now)))
            }),
            Event::ChildDown { ike } => self.publish("child-updown", || {
                let now = driver.plane_now().as_secs();
                Some(Section::new().with(name(ike), ike_with_children(ike, now)))
            }),
            Event::ChildRekeyed { ike: id, old, new } => self.publish("child-rekey", || {
                let sa = find(driver, *id)?;
                let now = driver.plane_now().as_secs();
                let new = sa.children.iter().find(|c| c.id == *new)?;
                let pair = Section::new().with("old", child(old, now)).with("new", child(new, now));
                let both = ike(&sa).with("child-sas", Section::new().with(old.name.as_str(), pair));
                Some(Section::new().with(name(&sa), both))
            }),
            Event::Sadb(_)
            | Event::Done { .. }
            | Event::Over { .. }
            | Event::PathMtu { .. }
            | Event::Unwanted(_)
            | Event::KeyLog(_) => {}
        }
    }
}

/// The IKE_SA as it is now, with its counters.
pub(super) fn find(driver: &Driver, id: IkeId) -> Option<IkeSaInfo> {
    let mut sa = driver.view(|e, now| e.protocol().ike_sa(now, id))?;
    driver.fill(std::slice::from_mut(&mut sa));
    Some(sa)
}

impl Control {
    /// Makes the message only when somebody wants it: a snapshot of an endpoint with many SAs costs
    /// something.
    pub(super) fn publish(&self, event: &str, make: impl FnOnce() -> Option<Section>) {
        let clients = self.clients.borrow();
        if !clients.values().any(|c| c.wants(event)) {
            return;
        }
        if let Some(message) = make() {
            clients.values().for_each(|c| c.event(event, &message));
        }
    }

    fn log(&self, level: Level, conn: Option<&str>, id: Option<IkeId>, text: &str) {
        let number = charon_level(level);
        let clients = self.clients.borrow();
        let message = |thread: bool| {
            let mut m = Section::new().with("group", group(text)).with("level", u32::from(number));
            if thread {
                m.put("thread", "1");
            }
            if let (Some(conn), Some(id)) = (conn, id) {
                m.put("ikesa-name", conn).put("ikesa-uniqueid", id.0);
            }
            m.with("msg", text)
        };
        if clients.values().any(|c| c.wants("log")) {
            let m = message(true);
            clients.values().for_each(|c| c.event("log", &m));
        }
        let watching = |c: &&std::rc::Rc<Client>| c.wants("control-log") && c.watches(number + 1, conn);
        if clients.values().any(|c| watching(&c)) {
            let m = message(false);
            clients.values().filter(watching).for_each(|c| c.event("control-log", &m));
        }
    }
}

/// charon's level 0 is for what happens to an SA, 1 for the steps to it.
fn charon_level(level: Level) -> u8 {
    match level {
        Level::Error | Level::Warn | Level::Info => 0,
        Level::Debug => 1,
    }
}

/// charon's subsystem, guessed from its own phrases.
fn group(text: &str) -> &'static str {
    let begins = |words: &[&str]| words.iter().any(|w| text.starts_with(w));
    if begins(&["generating ", "parsed ", "splitting IKE"]) {
        "ENC"
    } else if begins(&["sending packet", "received packet", "error writing"]) {
        "NET"
    } else if begins(&[
        "selected proposal",
        "received proposals",
        "configured proposals",
        "selected peer config",
        "looking for",
    ]) {
        "CFG"
    } else if begins(&["unable to install", "unable to add", "creating acquire", "received an ESP"]) {
        "KNL"
    } else {
        "IKE"
    }
}
