//! Keys that `list-conns` shows, in the order in which charon's clients print them, each with its
//! value as the connection has it. A row has the name of its key, or charon's other name for it.
//!
//! The reader of a key understands the value that its row shows. Three rows are exceptions, because
//! charon has words of its own for them: `version`, `unique` and `class`.

use ironswan_keying::{AddrSpec, Auth, ChildAction, ChildConfig, ChildKind, Connection, Fingerprint, Unique};
use ironswan_pki::Certificate;
use ironswan_wire::id::IdPattern;
use ironswan_wire::sadb::Mode;
use ironswan_wire::vici::{Section, Value};

use super::Key;
use super::child as k;
use super::conn::{self as c, local, remote};
use crate::ts;

/// A row of the answer: a key, and how its value is found in the connection or the child.
struct Row<T> {
    /// Name of the key in its section.
    key: &'static str,
    /// Name in the answer, when charon has another one than `key`.
    other: Option<&'static str>,
    /// The value. `None`: the row is left out.
    value: fn(&T) -> Option<Value>,
}

impl<T> Row<T> {
    /// Name in the answer.
    fn name(&self) -> &'static str {
        self.other.unwrap_or(self.key)
    }
}

/// A row that has the name of its key.
const fn row<T, V>(key: &Key<V>, value: fn(&T) -> Option<Value>) -> Row<T> {
    Row { key: key.name, other: None, value }
}

/// A row for which charon has another name than for its key.
const fn named<T, V>(name: &'static str, key: &Key<V>, value: fn(&T) -> Option<Value>) -> Row<T> {
    Row { key: key.name, other: Some(name), value }
}

/// A row for a key without a reader, whose value is always the same.
const fn fixed<T>(key: &'static str, value: fn(&T) -> Option<Value>) -> Row<T> {
    Row { key, other: None, value }
}

/// `connections.<conn>`.
const CONN_ROWS: &[Row<Connection>] = &[
    row(&c::LOCAL_ADDRS, |c| Some(addresses(&c.local_addrs))),
    row(&c::REMOTE_ADDRS, |c| Some(addresses(&c.remote_addrs))),
    row(&c::VERSION, |_| Some("IKEv2".into())),
    row(&c::REAUTH_TIME, |c| Some(c.reauth_time.as_secs().into())),
    row(&c::REKEY_TIME, |c| Some(c.rekey_time.as_secs().into())),
    row(&c::UNIQUE, |c| Some(unique(c.unique).into())),
    row(&c::DPD_DELAY, |c| (!c.dpd_delay.is_zero()).then(|| c.dpd_delay.as_secs().into())),
    row(&c::PPK_ID, |c| c.ppk_id.as_ref().map(|id| id.to_string().into())),
    row(&c::PPK_REQUIRED, |c| c.ppk_required.then(|| true.into())),
];

/// `connections.<conn>.local`, shown as `local-1`. charon names a raw public key among the
/// certificates, by its fingerprint.
const LOCAL_ROWS: &[Row<Connection>] = &[
    row(&local::ID, |c| c.local_id.as_ref().map(|id| id.to_string().into())),
    named("class", &local::AUTH, |c| Some(class(&c.local_auth).into())),
    fixed("groups", nothing),
    fixed("cert_policy", nothing),
    named("certs", &local::PUBKEYS, |c| Some(ends(&c.local_auth))),
    fixed("cacerts", nothing),
];

/// `connections.<conn>.remote`, shown as `remote-1`.
const REMOTE_ROWS: &[Row<Connection>] = &[
    row(&remote::ID, |c| (c.remote_id != IdPattern::Any).then(|| c.remote_id.to_string().into())),
    named("class", &remote::AUTH, |c| Some(class(&c.remote_auth).into())),
    fixed("groups", nothing),
    row(&remote::CERT_POLICY, |c| Some(policies(&c.remote_auth))),
    named("certs", &remote::PUBKEYS, |c| Some(ends(&c.remote_auth))),
    row(&remote::CACERTS, |c| Some(authorities(&c.remote_auth))),
];

/// `connections.<conn>.children.<child>`. charon does not have the last two rows.
const CHILD_ROWS: &[Row<ChildConfig>] = &[
    row(&k::MODE, |c| Some(mode(c).into())),
    row(&k::REKEY_TIME, |c| Some(c.rekey_time.as_secs().into())),
    row(&k::REKEY_BYTES, |c| Some(c.lifetime.soft_bytes.into())),
    row(&k::REKEY_PACKETS, |c| Some(c.lifetime.soft_packets.into())),
    row(&k::DPD_ACTION, |c| Some(action(c.dpd_action).into())),
    row(&k::CLOSE_ACTION, |c| Some(action(c.close_action).into())),
    row(&k::PRIORITY, |c| (c.priority != 0).then(|| c.priority.into())),
    named("local-ts", &k::LOCAL_TS, |c| Some(c.local_ts.iter().map(ts::text).collect::<Vec<_>>().into())),
    named("remote-ts", &k::REMOTE_TS, |c| Some(c.remote_ts.iter().map(ts::text).collect::<Vec<_>>().into())),
    named("protocols", &k::ESP_PROPOSALS, |c| protects(c).then(|| protocols(c).into())),
    row(&k::IPCOMP, |c| (protects(c) && c.ipcomp).then(|| true.into())),
];

/// A connection without its children, as `list-conns` shows it.
pub fn list_connection(conn: &Connection) -> Section {
    let rounds = conn.apart();
    let sides = |name: &str, rows: &[Row<Connection>], count: usize| {
        let all = (1..).zip(&rounds).take(count);
        all.map(|(n, round)| (format!("{name}-{n}"), section(rows, &**round))).collect::<Vec<_>>()
    };
    let local = sides("local", LOCAL_ROWS, 1 + conn.local_rounds.len());
    let remote = sides("remote", REMOTE_ROWS, 1 + conn.remote_rounds.len());
    let sides = local.into_iter().chain(remote);
    sides.fold(section(CONN_ROWS, conn), |all, (name, side)| all.with(&name, side))
}

/// A child, as `list-conns` shows it.
pub fn list_child(child: &ChildConfig) -> Section {
    section(CHILD_ROWS, child)
}

fn section<T>(rows: &[Row<T>], of: &T) -> Section {
    let shown = rows.iter().filter_map(|row| Some((row.name(), (row.value)(of)?)));
    shown.fold(Section::new(), |section, (name, value)| section.with(name, value))
}

fn addresses(list: &[AddrSpec]) -> Value {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().into()
}

/// The word that charon has for this policy.
fn unique(policy: Unique) -> &'static str {
    match policy {
        Unique::Never => "UNIQUE_NEVER",
        Unique::No => "UNIQUE_NO",
        Unique::Keep => "UNIQUE_KEEP",
        Unique::Replace => "UNIQUE_REPLACE",
    }
}

/// The words that charon has for this method of authentication.
fn class(auth: &Auth) -> &'static str {
    match auth {
        Auth::Psk => "pre-shared key",
        Auth::Pubkey { .. } | Auth::Certificate { .. } => "public key",
    }
}

/// SHA-1 of each public key, `15:56:5d:...`, or the subject of each certificate.
fn ends(auth: &Auth) -> Value {
    let text = |sha1: Fingerprint| sha1.map(|byte| format!("{byte:02x}")).join(":");
    match auth {
        Auth::Psk => Vec::<String>::new().into(),
        Auth::Pubkey { keys, .. } => keys.iter().map(|key| text(key.info())).collect::<Vec<_>>().into(),
        Auth::Certificate { trust, .. } => subjects(&trust.certificates),
    }
}

/// Subjects of certificates.
fn subjects(certificates: &[Certificate]) -> Value {
    certificates.iter().map(|c| c.subject().to_string()).collect::<Vec<_>>().into()
}

/// Subjects of the CAs that the peer's chain must have.
fn authorities(auth: &Auth) -> Value {
    subjects(auth.trust().map_or(&[], |trust| &trust.authorities))
}

/// Certificate policies that the peer's chain must have.
fn policies(auth: &Auth) -> Value {
    let policies = auth.trust().map_or(&[][..], |trust| &trust.policies);
    policies.iter().map(ToString::to_string).collect::<Vec<_>>().into()
}

/// An empty list, for a row that clients expect and that IronSwan has nothing for.
fn nothing<T>(_: &T) -> Option<Value> {
    Some(Vec::<String>::new().into())
}

fn mode(child: &ChildConfig) -> &'static str {
    match (child.kind, child.mode) {
        (ChildKind::Pass, _) => "PASS",
        (ChildKind::Drop, _) => "DROP",
        (ChildKind::Protect, Mode::Tunnel) => "TUNNEL",
        (ChildKind::Protect, Mode::Transport) => "TRANSPORT",
    }
}

fn action(action: ChildAction) -> &'static str {
    match action {
        ChildAction::None => "none",
        ChildAction::Start => "start",
        ChildAction::Trap => "trap",
        ChildAction::TrapAndStart => "trap|start",
    }
}

fn protects(child: &ChildConfig) -> bool {
    child.kind == ChildKind::Protect
}

fn protocols(child: &ChildConfig) -> Vec<String> {
    let mut all: Vec<String> = child.proposals.iter().map(|p| p.protocol.to_string()).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;
    use crate::meaning::tests::conn;

    /// Names of keys that the rows show, and the names that the table has.
    fn unknown<T>(rows: &[Row<T>], table: Table) -> Vec<&'static str> {
        let names: Vec<_> = table.names().collect();
        rows.iter().map(|row| row.key).filter(|key| !names.contains(key)).collect()
    }

    #[test]
    fn every_row_shows_a_key_of_the_table() {
        assert_eq!(unknown(CONN_ROWS, c::CONN_TABLE), [""; 0]);
        // Keys of the peer's certificates are shown for our side too, as charon does.
        assert_eq!(unknown(LOCAL_ROWS, local::LOCAL_TABLE), ["groups", "cert_policy", "cacerts"]);
        assert_eq!(unknown(REMOTE_ROWS, remote::REMOTE_TABLE), [""; 0]);
        assert_eq!(unknown(CHILD_ROWS, k::CHILD_TABLE), [""; 0]);
    }

    /// The rows of an answer as text of a configuration.
    fn written<T>(rows: &[Row<T>], section: &Section) -> String {
        let one = |row: &Row<T>| {
            let value = match section.get(row.name())? {
                Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
                Value::List(items) => {
                    items.iter().map(|i| String::from_utf8_lossy(i)).collect::<Vec<_>>().join(", ")
                }
                Value::Section(_) => return None,
            };
            Some(format!("{} = {value}\n", row.key))
        };
        let words = ["version", "unique", "protocols", "class", "groups", "cert_policy", "certs", "cacerts"];
        rows.iter().filter(|row| !words.contains(&row.name())).filter_map(one).collect()
    }

    #[test]
    fn what_is_shown_is_read_again_as_the_same() {
        const CHILDREN: &str = "children { net {
            local_ts = 10.1.0.0/16, dynamic[tcp/80], 10.9.0.1-10.9.0.7[udp/1024-2048]
            remote_ts = fd00::/64, 10.2.0.0/16[icmp/8]
            mode = transport
            rekey_time = 20m
            rekey_bytes = 1g
            rekey_packets = 1000000
            dpd_action = restart
            close_action = trap
            priority = 7
            ipcomp = yes } }";
        let text = format!(
            "local_addrs = 192.0.2.1, %any
             remote_addrs = 192.0.2.2, 198.51.100.0/24, 10.0.0.1-10.0.0.9, gw.example
             rekey_time = 2h
             dpd_delay = 30s
             ppk_id = ppk.example
             ppk_required = yes
             local {{ auth = psk\n id = g1.example }}
             remote {{ auth = psk\n id = *.example }}
             {CHILDREN}"
        );
        let (first, findings) = conn(&text);
        let first = first.unwrap_or_else(|| panic!("{findings:?}"));
        let (shown, child) = (list_connection(&first), list_child(&first.children[0]));
        let side = |name: &str| shown.section(name).unwrap().clone();
        let again = format!(
            "{}local {{ auth = psk\n {} }}\nremote {{ auth = psk\n {} }}\nchildren {{ net {{ {} }} }}",
            written(CONN_ROWS, &shown),
            written(LOCAL_ROWS, &side("local-1")),
            written(REMOTE_ROWS, &side("remote-1")),
            written(CHILD_ROWS, &child)
        );
        let (second, findings) = conn(&again);
        let second = second.unwrap_or_else(|| panic!("{again}\n{findings:?}"));
        assert!(list_connection(&second) == shown && list_child(&second.children[0]) == child, "{again}");
        assert_eq!((second.local_addrs, second.remote_addrs), (first.local_addrs, first.remote_addrs));
        assert_eq!(second.children[0].local_ts, first.children[0].local_ts);
        assert_eq!(second.children[0].remote_ts, first.children[0].remote_ts);
    }
}
