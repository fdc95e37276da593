//! Asks policy which connection a peer belongs to that has said who it is. The choice itself is
//! made in `keying`.

use std::net::IpAddr;
use std::sync::Arc;

use ironswan_keying::diagnosis::{Authentication, CANDIDATES, Candidate, Misfit};
use ironswan_keying::{Auth, Claim, Connection};
use ironswan_wire::iana::AuthMethod;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::IkeSuite;

use super::{Context, Effect};
use crate::sa::IkeSa;

impl Context<'_> {
    /// True when a peer says that it is us, and the configuration does not say that this is whom we
    /// expect.
    pub(crate) fn claims_to_be_us(&self, sa: &IkeSa, peer: &Identity) -> bool {
        self.policy().claims_to_be_us(&sa.conn().remote_id, sa.local_id(), peer)
    }

    /// The best connection for a peer that says it is `idi`, and perhaps that we are `idr`. `suite`
    /// has been agreed already, so the connection must allow it. Connections whose peers
    /// authenticate by `method`, and in more than one round if that is said (`follows`), come
    /// first.
    pub(crate) fn select_by_identity(
        &self,
        local: IpAddr,
        remote: IpAddr,
        suite: &IkeSuite,
        (method, follows): (Option<AuthMethod>, bool),
        idi: &Identity,
        idr: Option<&Identity>,
    ) -> Option<Arc<Connection>> {
        let claim = Claim { local, remote, peer: idi, asked: idr };
        let fits = |conn: &Connection| {
            let rounds = conn.remote_rounds.is_empty() != follows;
            rounds && method.is_some_and(|method| accepts(&conn.remote_auth, method))
        };
        // Without one that takes the peer's method, the one that would have been taken says what it
        // requires.
        self.policy()
            .for_identity(&claim, &|conn| allows(conn, suite) && fits(conn))
            .or_else(|| self.policy().for_identity(&claim, &|conn| allows(conn, suite)))
    }

    /// Why the IKE_SA's connection was chosen for the peer that makes this claim, where its
    /// addresses mean another one more precisely, or several fit.
    pub(crate) fn explain_choice(
        &self,
        sa: &IkeSa,
        (method, follows): (Option<AuthMethod>, bool),
        claim: &Claim<'_>,
    ) -> Option<Authentication> {
        let (chosen, suite) = (sa.conn(), sa.suite()?);
        let others = self.policy().beside(claim, chosen, CANDIDATES).into_iter();
        let candidates = others.filter_map(|(c, precise)| {
            let ours = c.local_identity(claim.local);
            let is_asked = |asked| IdPattern::Exact(ours.clone()).matches(asked);
            let by_method = method.is_none_or(|method| accepts(&c.remote_auth, method));
            let misfit = match () {
                () if !c.remote_id.matches(claim.peer) => Misfit::Peer,
                () if !claim.asked.is_none_or(is_asked) => Misfit::Ours,
                () if !allows(&c, &suite) => Misfit::Proposals,
                () if !by_method || c.remote_rounds.is_empty() == follows => Misfit::Method,
                () => Misfit::None,
            };
            let candidate =
                || Candidate { name: c.name.clone(), ours: ours.clone(), peer: c.remote_id.clone(), misfit };
            (precise || misfit == Misfit::None).then(candidate)
        });
        let candidates: Vec<Candidate> = candidates.collect();
        let (conn, peer) = (chosen.name.clone(), claim.peer.clone());
        (!candidates.is_empty()).then_some(Authentication::Chosen { conn, peer, candidates })
    }

    /// The best connection for a peer that is in a later round of IKE_AUTH (counted from 0) and
    /// says that it is `peer` there. It is like the present one in all rounds before, which the
    /// peer has passed, and has as many rounds of ours.
    pub(crate) fn select_by_round(
        &self,
        sa: &IkeSa,
        suite: &IkeSuite,
        round: (usize, &Identity),
        said: (Option<AuthMethod>, bool),
    ) -> Option<Arc<Connection>> {
        let now = sa.conn();
        let claim = Claim {
            local: sa.local().ip(),
            remote: sa.remote().ip(),
            peer: sa.remote_id()?,
            asked: Some(sa.local_id()),
        };
        let fits = |conn: &Connection| {
            let before = conn.remote_sides().take(round.0).eq(now.remote_sides().take(round.0));
            before
                && conn.local_sides().eq(now.local_sides())
                && self.fits_round(conn, round, said)
                && allows(conn, suite)
        };
        self.policy().for_identity(&claim, &fits)
    }

    /// True when a peer with this identity and method may be in this round, counted from 0, on a
    /// connection. `follows`: it says that another round comes.
    pub(crate) fn fits_round(
        &self,
        conn: &Connection,
        (round, peer): (usize, &Identity),
        (method, follows): (Option<AuthMethod>, bool),
    ) -> bool {
        let fits = |(auth, id): (&Auth, &IdPattern)| {
            id.matches(peer) && method.is_none_or(|method| accepts(auth, method))
        };
        conn.remote_sides().nth(round).is_some_and(fits) && follows == (round < conn.remote_rounds.len())
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
