//! Commands that change and name what is loaded: connections and shared keys.

use ironswan_keying::diagnosis::NotDone;
use ironswan_keying::{Certificates, ChildKind, Connection, Ppk, SharedKey};
use ironswan_wire::id::IdPattern;
use ironswan_wire::printable::hides;
use ironswan_wire::secret::Secret;
use ironswan_wire::vici::{Section, Value};

use super::{Control, failure, success, text};
use ironswan_config::certfiles::Named;
use ironswan_config::connection;
use ironswan_config::diag::Diagnostics;
use ironswan_config::psk;
use ironswan_config::request;
use ironswan_config::tree::Origin;

/// Beginning of the names under which keys without an id are stored. No id, and no section of a
/// file, begins so.
const UNNAMED: &str = "%unnamed-";

impl Control {
    /// `load-conn`. The reader is the one for files, so its findings are the same.
    pub(super) async fn load_conn(&self, message: Section) -> Section {
        if message.is_empty() {
            return failure("no connection in the message");
        }
        if self.driver.view(|e, _| e.is_stopping()) {
            return failure(NotDone::Stopping.to_string());
        }
        let (mut conns, mut named) = (Vec::new(), Named::default());
        for (name, value) in message.iter() {
            let Value::Section(section) = value else {
                return failure(format!("{}: is a section, not a key", name.escape_debug()));
            };
            if name.is_empty() || name.chars().any(|c| hides(c) || c.is_whitespace()) {
                return failure(format!("`{}` is not a connection's name", name.escape_debug()));
            }
            let origin = Origin::source(&format!("connection {name}"));
            match request::tree(section, &origin, &mut named) {
                Ok(tree) => conns.push((name.to_owned(), tree)),
                Err(e) => return failure(format!("connection {name}: {e}")),
            }
        }
        let mut diags = Diagnostics::default();
        let read: Vec<Connection> =
            conns.iter().filter_map(|(name, tree)| connection(name, tree, "", &named, &mut diags)).collect();
        if diags.errors() > 0 {
            return failure(diags.error_lines().join("; "));
        }
        // The connection answers peers all the same; whoever initiates it gets the same warning.
        for conn in &read {
            if let Some(why) = self.driver.view(|e, _| e.protocol().options().ports.foreign(conn)) {
                let origin = Origin::source(&format!("connection {}", conn.name));
                diags.warn(&origin, "local_port", why);
            }
        }
        // An answer has no place for warnings and notes.
        crate::start::reload::report(&diags);
        for conn in read {
            self.put_conn(conn);
        }
        self.driver.guarded_soon().await;
        success()
    }

    /// Loads a connection. Does nothing when an equal one is loaded already, so that its tunnels
    /// are not begun anew.
    fn put_conn(&self, conn: Connection) {
        let same = self.driver.view(|e, _| e.connection(&conn.name).is_some_and(|c| *c == conn));
        if !same {
            let shunts = conn.children.iter().filter(|c| c.kind != ChildKind::Protect).count();
            tracing::info!(
                conn = conn.name.as_str(),
                "added vici connection: {} ({} children, {shunts} shunts)",
                conn.name,
                conn.children.len()
            );
            self.driver.load_connection(conn);
        }
    }

    /// `unload-conn`.
    pub(super) async fn unload_conn(&self, message: &Section) -> Section {
        let Some(name) = text(message, "name") else { return failure("missing connection name to unload") };
        if self.driver.unload_connection(name) {
            self.resets.by_connection.borrow_mut().remove(name);
            self.driver.guarded_soon().await;
            success()
        } else {
            failure(format!("connection '{}' not found for unloading", name.escape_debug()))
        }
    }

    /// `get-conns`.
    pub(super) fn get_conns(&self) -> Section {
        let names: Vec<String> =
            self.driver.view(|e, _| e.connections().iter().map(|c| c.name.clone()).collect());
        Section::new().with("conns", names)
    }

    /// `load-shared`: a pre-shared key (type `ike`) or a post-quantum one (`ppk`). The key comes as
    /// raw bytes.
    pub(super) fn load_shared(&self, mut message: Section) -> Section {
        let kind = text(&message, "type").map(str::to_ascii_lowercase);
        let is_ppk = match kind.as_deref() {
            Some(kind @ ("ike" | "ppk")) => kind == "ppk",
            Some(kind @ ("eap" | "xauth" | "ntlm")) => {
                return failure(format!("{kind} secrets are not built yet"));
            }
            Some(kind) => return failure(format!("invalid shared key type: {}", kind.escape_debug())),
            None => return failure("missing shared key type"),
        };
        let secret = match message.take("data") {
            Some(Value::Text(bytes)) if !bytes.is_empty() => Secret::new(bytes),
            _ => return failure("missing shared key data"),
        };
        if psk::is_documented(&secret) {
            tracing::warn!(
                "a shared key loaded by VICI is an example in IronSwan's documents, and everybody knows it"
            );
        }
        let mut owners = Vec::new();
        for item in message.get_list("owners").unwrap_or_default() {
            let id = std::str::from_utf8(item).ok().and_then(IdPattern::parse);
            match id {
                Some(IdPattern::Any) => {}
                Some(id) => owners.push(id),
                None => return failure(format!("`{}` is not an identity", item.escape_ascii())),
            }
        }
        let name = match text(&message, "id") {
            Some(id) if id.starts_with(UNNAMED) => {
                return failure(format!("a shared key's id must not begin with {UNNAMED}"));
            }
            Some(id) => id.to_owned(),
            None => self.unnamed(is_ppk, &owners),
        };
        if !is_ppk {
            self.driver.act(|e, _| e.load_shared(SharedKey { name, secret, owners }));
            return success();
        }
        let mut ids = Vec::new();
        for owner in owners {
            let IdPattern::Exact(id) = owner else {
                return failure(format!("`{owner}` is not the identity of one PPK"));
            };
            ids.push(id);
        }
        self.driver.act(|e, _| e.load_ppk(Ppk { name, secret, ids }));
        success()
    }

    /// `unload-shared`.
    pub(super) fn unload_shared(&self, message: &Section) -> Section {
        let Some(id) = text(message, "id") else { return failure("missing shared key id") };
        if !id.starts_with(UNNAMED) && self.driver.act(|e, _| e.unload_shared(id)) {
            success()
        } else {
            failure(format!("shared key '{}' not found", id.escape_debug()))
        }
    }

    /// `get-shared`.
    pub(super) fn get_shared(&self) -> Section {
        let mut names = self.driver.view(|e, _| e.shared_names());
        names.retain(|name| !name.starts_with(UNNAMED));
        Section::new().with("keys", names)
    }

    /// Returns the name under which a key without an id is stored. No other key can have this name.
    /// Keys of one kind for the same owners share it, so a second key replaces the first: a client
    /// that loads its keys again leaves no old ones behind and does not fill the memory.
    fn unnamed(&self, is_ppk: bool, owners: &[IdPattern]) -> String {
        let mut whose: Vec<IdPattern> = owners.iter().map(IdPattern::folded).collect();
        whose.sort_unstable();
        let mut unnamed = self.unnamed.borrow_mut();
        let next = unnamed.len() + 1;
        unnamed.entry((is_ppk, whose)).or_insert_with(|| format!("{UNNAMED}{next}")).clone()
    }

    /// `clear-creds`.
    pub(super) fn clear_creds(&self) -> Section {
        self.driver.act(|e, _| {
            for name in e.shared_names() {
                e.unload_shared(&name);
            }
            for id in e.private_ids() {
                e.unload_private(&id);
            }
            e.change_certificates(|all| *all = Certificates::default());
            e.statuses().flush(true, true);
        });
        self.unnamed.borrow_mut().clear();
        self.authorities.borrow_mut().clear();
        success()
    }
}
