//! Asks policy which connection a peer belongs to that has said who it is. The choice itself is
//! made in `keying`.

use std::net::IpAddr;
use std::sync::Arc;

use ironswan_keying::{Auth, Claim, Connection};
use ironswan_wire::iana::AuthMethod;
use ironswan_wire::id::Identity;
use ironswan_wire::proposal::IkeSuite;

use super::{Context, Effect};
use crate::sa::IkeSa;

impl Context<'_> {
    /// True when a peer says that it is us, and the configuration does not say that this is whom we
    /// expect.
    pub(crate) fn claims_to_be_us(&self, sa: &IkeSa, peer: &Identity) -> bool {
        self.policy().claims_to_be_us(sa.conn(), sa.local_id(), peer)
    }

    /// The best connection for a peer that says it is `idi`, and perhaps that we are `idr`. `suite`
    /// has been agreed already, so the connection must allow it. Connections whose peers
    /// authenticate by `method` come first.
    pub(crate) fn select_by_identity(
        &self,
        local: IpAddr,
        remote: IpAddr,
        suite: &IkeSuite,
        method: Option<AuthMethod>,
        idi: &Identity,
        idr: Option<&Identity>,
    ) -> Option<Arc<Connection>> {
        let claim = Claim { local, remote, peer: idi, asked: idr };
        let fits = |conn: &Connection| method.is_some_and(|method| accepts(&conn.remote_auth, method));
        // Without one that takes the peer's method, the one that would have been taken says what it
        // requires.
        self.policy()
            .for_identity(&claim, &|conn| allows(conn, suite) && fits(conn))
            .or_else(|| self.policy().for_identity(&claim, &|conn| allows(conn, suite)))
    }

    /// The peer has said who it is, and belongs to another connection than its address suggested.
    pub(crate) fn move_to_conn(&mut self, sa: &mut IkeSa, conn: Arc<Connection>) {
        self.effect(Effect::LeftConnection(sa.conn().name.clone()));
        sa.move_to_conn(conn);
    }
}

/// True when AUTH of this method can be what the configuration asks for.
fn accepts(auth: &Auth, method: AuthMethod) -> bool {
    match auth {
        Auth::Psk => method == AuthMethod::PSK,
        Auth::Pubkey { .. } | Auth::Certificate { .. } => matches!(
            method,
            AuthMethod::SIGNATURE
                | AuthMethod::RSA
                | AuthMethod::ECDSA_256
                | AuthMethod::ECDSA_384
                | AuthMethod::ECDSA_521
        ),
    }
}

/// True when one of the connection's proposals allows this suite.
fn allows(conn: &Connection, suite: &IkeSuite) -> bool {
    use ironswan_wire::proposal::Transform as T;
    conn.proposals.iter().any(|p| {
        let bits = suite.encr.has_key_length().then_some(suite.key_bits);
        p.transforms.contains(&T::Encr(suite.encr, bits))
            && p.transforms.contains(&T::Prf(suite.prf))
            && p.transforms.contains(&T::Ke(suite.ke))
            && suite.integ.is_none_or(|i| p.transforms.contains(&T::Integ(i)))
    })
}
