//! Says when a CHILD_SA carries less than its child is configured for (RFC 7296 section 2.9).

use ironswan_keying::ChildConfig;
use ironswan_keying::diagnosis::{Pair, Selectors};
use ironswan_wire::sadb::Mode;

use crate::child::Agreed;
use crate::context::Context;
use crate::event::Level;
use crate::sa::IkeSa;
use crate::{narrow, transport};

/// Writes a line when the agreed selectors do not cover the configured ones. `by_us`: we have
/// asked, for all that is configured, so the peer has cut it. Else the peer has asked for less, as
/// road warriors do.
pub(super) fn explain(
    cx: &mut Context<'_>,
    sa: &IkeSa,
    config: &ChildConfig,
    asked: Pair,
    agreed: &Agreed,
    by_us: bool,
) {
    let (here, there) = (sa.local().ip(), sa.remote().ip());
    let (mut local, mut remote) =
        (narrow::resolve(&config.local_ts, here), narrow::resolve(&config.remote_ts, there));
    if agreed.mode == Mode::Transport {
        // The hosts at both ends, by whatever addresses they are known.
        (local, remote) = (transport::at(&local, here), transport::at(&remote, there));
    }
    if narrow::covers(&agreed.local_ts, &local) && narrow::covers(&agreed.remote_ts, &remote) {
        return;
    }
    let why = Selectors::Narrowed {
        child: config.name.clone(),
        configured: Box::new(Pair { local, remote }),
        asked: Box::new(asked),
        agreed: Box::new(Pair { local: agreed.local_ts.clone(), remote: agreed.remote_ts.clone() }),
        by_us,
    };
    cx.log_why(if by_us { Level::Warn } else { Level::Info }, sa, "", &why.into());
}
