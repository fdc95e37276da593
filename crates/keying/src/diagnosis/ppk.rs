//! Sentences about post-quantum preshared keys (PPK, RFC 8784 and RFC 9867).

use ironswan_wire::id::Identity;

use super::entry::{Words, say};
use super::shown::in_the_sentence;

/// Sign that a peer does not use a post-quantum preshared key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PpkLack {
    /// The IKE_SA_INIT messages have not both USE_PPK, nor both USE_PPK_INT.
    NotSupported,
    /// The peer's IKE_AUTH request names no PPK, though both IKE_SA_INIT messages have USE_PPK.
    NotNamed,
    /// The peer's IKE_AUTH response does not confirm our PPK: the peer does not have it.
    NotUsed,
    /// The peer's last IKE_INTERMEDIATE request names no PPK, though both IKE_SA_INIT messages have
    /// USE_PPK_INT.
    NotOffered,
    /// The peer's last IKE_INTERMEDIATE response names no PPK: the peer does not have ours, or has
    /// another secret for it.
    NotConfirmed,
    /// The peer answers our PPK with AUTHENTICATION_FAILED: it requires one, and does not have
    /// ours, or has another secret for it.
    Refused,
}

pub(super) fn lack(sign: PpkLack) -> Words {
    let give = "give the peer secrets { ppk-1 { .. } } with our ppk_id as id and the same secret";
    match sign {
        PpkLack::NotSupported => say(
            "ppk_required = yes, and the two sides have not both announced PPKs (USE_PPK or USE_PPK_INT)",
            "give both sides ppk_id and secrets { ppk-1 { .. } }, or set ppk_required = no",
        ),
        PpkLack::NotNamed => say(
            "the peer has announced PPKs (USE_PPK, RFC 8784), and names none in IKE_AUTH",
            "a defect of the peer, or somebody has changed its IKE_SA_INIT: look at its log",
        ),
        PpkLack::NotUsed => say("ppk_required = yes, and the peer does not have our PPK", give),
        PpkLack::NotOffered => say(
            "ppk_required = yes, and the peer names no PPK in IKE_INTERMEDIATE",
            "look whether the peer has unloaded its PPK, and at its log",
        ),
        PpkLack::NotConfirmed => {
            say("ppk_required = yes, and the peer does not have our PPK, or has another secret for it", give)
        }
        PpkLack::Refused => {
            say("the peer requires a PPK, and does not have ours, or has another secret for it", give)
        }
    }
}

/// A required PPK of another identifier.
pub(super) fn other(theirs: &Identity, ours: Option<&Identity>) -> Words {
    say(
        format!("ppk_required = yes, and the peer has another PPK: {}", both(theirs, ours)),
        "give both sides the same ppk_id, and secrets { ppk-1 { .. } } with that id and one secret",
    )
}

/// A required PPK with another secret.
pub(super) fn wrong(id: &Identity) -> Words {
    say(
        format!("ppk_required = yes, and the peer has another secret for PPK '{id}' than we have"),
        format!("give both sides one secret in secrets {{ ppk-1 {{ id = {id} .. }} }}"),
    )
}

/// A PPK that the peer requires.
pub(super) fn demanded(theirs: &Identity, ours: Option<&Identity>) -> Words {
    say(
        format!("the peer requires a PPK that is not here: {}", both(theirs, ours)),
        format!(
            "add secrets {{ ppk-1 {{ id = {theirs} .. }} }} with the peer's secret, or let it be optional there"
        ),
    )
}

/// The PPK beside another key: either may be the wrong one.
pub(super) fn beside(ppk: Option<&Identity>) -> String {
    ppk.map_or_else(String::new, |id| format!(", with PPK '{id}', whose secret may differ as well"))
}

/// The identifiers of the PPKs of both sides.
fn both(theirs: &Identity, ours: Option<&Identity>) -> String {
    let ours = ours.map_or_else(|| "ppk_id is not set".to_owned(), |ours| format!("ppk_id = {ours}"));
    format!("it names '{theirs}', here {ours}")
}

in_the_sentence!(PpkLack);
