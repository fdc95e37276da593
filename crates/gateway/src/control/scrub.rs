//! Our own `ironswan-scrub`: where in a text a loaded secret stands, for `ironswan report`, which
//! does not know what clients of VICI have loaded.
//!
//! ```text
//! request  key = 32 bytes  texts = [ .. ]
//! answer   found = [ "0 120 152 [#0123456789abcdef]" .. ]      text, first byte, end, hash
//! ```
//! The secrets stay here. The hash is made with the client's key, so that one report has one hash
//! for each secret, whoever knows it. A client could try guesses; whoever may use this socket may
//! also replace every secret.

use ironswan_config::scrub::{KEY_LEN, Scrubber};
use ironswan_wire::vici::{Section, Value};

use super::{Control, failure};

/// Limits how many places one answer names.
const MAX_FOUND: usize = 4_000;

impl Control {
    /// `ironswan-scrub`.
    pub(super) async fn scrub(&self, message: &Section) -> Section {
        let key: Option<&[u8; KEY_LEN]> = match message.get("key") {
            Some(Value::Text(bytes)) => bytes.as_slice().try_into().ok(),
            _ => None,
        };
        let Some(key) = key else { return failure(format!("`key` has {KEY_LEN} bytes")) };
        let mut scrubber = Scrubber::new(key);
        self.driver.view(|e, _| {
            e.for_each_secret(|private, secret| match private {
                true => scrubber.add_key(secret),
                false => scrubber.add(secret),
            });
        });
        let mut found = Vec::new();
        for (n, text) in message.get_list("texts").unwrap_or_default().iter().enumerate() {
            // A text is long, and there may be many secrets.
            tokio::task::yield_now().await;
            for f in scrubber.find(text) {
                if found.len() >= MAX_FOUND {
                    return failure("too many secrets in these texts");
                }
                found.push(format!("{n} {} {} {}", f.range.start, f.range.end, f.label));
            }
        }
        Section::new().with("found", found)
    }
}
