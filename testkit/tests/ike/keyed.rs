//! Two gateways with raw public keys, for stories of what happens while signatures are computed.

use ironswan_keying::{Auth, Connection, PrivateKey};
use ironswan_testkit::World;
use ironswan_wire::secret::Secret;

/// The private key of this number.
pub(crate) fn key(n: u8) -> PrivateKey {
    PrivateKey::ed25519(Secret::new(vec![n; 32])).unwrap()
}

/// Authentication by the key of this number.
pub(crate) fn by(n: u8) -> Auth {
    Auth::pubkey(vec![key(n).public().clone()])
}

/// Two gateways that authenticate each other by signatures.
pub(crate) fn pair(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = World::pair(seed, |c| {
        (c[0].local_auth, c[0].remote_auth) = (by(1), by(2));
        (c[1].local_auth, c[1].remote_auth) = (by(2), by(1));
        tweak(c);
    });
    for (node, n) in w.nodes.iter_mut().zip([1, 2]) {
        node.endpoint.load_private(key(n));
    }
    w
}
