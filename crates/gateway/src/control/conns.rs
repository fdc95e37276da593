//! `list-conns`: every connection as it was understood. The rows come from the table of keys of
//! `ironswan-config`.

use ironswan_config::{list_child, list_connection};
use ironswan_keying::Connection;
use ironswan_wire::vici::Section;

use super::client::Client;
use super::{Control, text};

impl Control {
    /// `list-conns`. With `ike` in the message, only the connection of that name is listed.
    pub(super) async fn list_conns(&self, client: &Client, message: &Section) -> Section {
        let only = text(message, "ike");
        let names: Vec<String> = self.driver.view(|e, _| {
            e.connections()
                .iter()
                .filter(|c| only.is_none_or(|n| c.name == n))
                .map(|c| c.name.clone())
                .collect()
        });
        for name in names {
            // Read each connection at its turn only: the client may read slowly, and somebody may
            // unload the connection meanwhile.
            let found =
                self.driver.view(|e, _| e.connection(&name).map(|c| (list_connection(&c), children(&c))));
            if let Some((head, children)) = found
                && !client.stream_parts("list-conn", &name, head, ("children", children)).await
            {
                break;
            }
        }
        Section::new()
    }
}

/// The children of a connection as `list-conns` shows them, each with its name.
fn children(c: &Connection) -> Vec<(String, Section)> {
    c.children.iter().map(|child| (child.name.clone(), list_child(child))).collect()
}
