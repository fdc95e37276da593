//! Commands about private keys. Clients decrypt the files of keys that they send.

use ironswan_config::keyfiles;
use ironswan_keying::Fingerprint;
use ironswan_wire::vici::{Section, Value};
use zeroize::Zeroizing;

use super::{Control, failure, success, text};

impl Control {
    /// `load-key`. The key comes in PEM or DER. Its own bytes tell its type: the message must have
    /// a `type`, but the value is not used.
    pub(super) fn load_key(&self, mut message: Section) -> Section {
        if text(&message, "type").is_none() {
            return failure("missing private key type");
        }
        let data = match message.take("data") {
            Some(Value::Text(bytes)) if !bytes.is_empty() => Zeroizing::new(bytes),
            _ => return failure("missing private key data"),
        };
        match keyfiles::private_key(&data) {
            Ok(key) => {
                let id = hex(&key.public().id());
                self.driver.act(|e, _| e.load_private(key));
                success().with("id", id)
            }
            Err(why) => failure(format!("the message holds no usable key: {why}")),
        }
    }

    /// `unload-key`.
    pub(super) fn unload_key(&self, message: &Section) -> Section {
        let Some(id) = text(message, "id") else { return failure("missing private key id") };
        let named = self
            .driver
            .view(|e, _| e.private_ids().into_iter().find(|key| hex(key) == id.to_ascii_lowercase()));
        match named {
            Some(key) if self.driver.act(|e, _| e.unload_private(&key)) => success(),
            _ => failure(format!("private key '{}' not found", id.escape_debug())),
        }
    }

    /// `get-keys`.
    pub(super) fn get_keys(&self) -> Section {
        let ids: Vec<String> = self.driver.view(|e, _| e.private_ids().iter().map(hex).collect());
        Section::new().with("keys", ids)
    }
}

/// The name of a private key in VICI: its fingerprint in lower-case hexadecimal digits.
fn hex(id: &Fingerprint) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}
