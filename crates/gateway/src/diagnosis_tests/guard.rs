//! Cases of the area guard.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;

use ironswan_io::ingress::{Family, Filter, List, Row};
use ironswan_io::route::{Netlink, Rule};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Guard, GuardEntry};
use ironswan_testkit::scratch::Scratch;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::machine::{failure, guard_over};
use super::{command, in_namespace, without_capabilities};
use crate::guard::ingress::{self, Keeper};
use crate::guard::plan::from_config::Configured;
use crate::guard::plan::{Policy, Verdict};
use crate::guard::start_and_end::{DaemonGuard, Former};
use crate::guard::table::Table as NftTable;
use crate::guard::{Claim, Nft, keep};
use crate::network::tests::{Fake, Table};

pub(super) fn happens(entry: GuardEntry) -> Diagnosis {
    match entry {
        GuardEntry::NftMissing => Nft::checked(None).unwrap_err().into(),
        GuardEntry::NftTooOld => fake("echo 'nftables v0.8.2 (Joe Btfsplk)'").unwrap_err().into(),
        GuardEntry::NftBroken => fake("exit 127").unwrap_err().into(),
        GuardEntry::NftRefused => {
            in_namespace(|| Nft::find().unwrap().apply("frobnicate").unwrap_err()).into()
        }
        GuardEntry::StepRefused => {
            let guard = guard_over(Table { refuse: Some("rule"), ..Table::default() });
            guard.change(|guard, kernel| guard.replan(kernel, loaded()));
            failure(&guard)
        }
        GuardEntry::IngressIncomplete => in_namespace(|| {
            command("ip link add wan type veth peer name other");
            let mut keeper = Keeper::open("ipsec0").unwrap();
            without_capabilities();
            keeper.keep(&Arc::new(closing(1))).problem.expect("this is not permitted")
        })
        .into(),
        GuardEntry::IngressStricter => in_namespace(|| {
            command("ip link add wan type veth peer name other");
            let kept = Keeper::open("ipsec0").unwrap().keep(&Arc::new(closing(5_000)));
            kept.stricter.expect("there is no room for so many rows")
        })
        .into(),
        GuardEntry::IngressStays => in_namespace(|| {
            command("ip link add wan type veth peer name other");
            let kept = Keeper::open("ipsec0").unwrap().keep(&Arc::new(closing(1)));
            assert_eq!(kept.problem, None);
            let links = Netlink::open().unwrap().links().unwrap();
            without_capabilities();
            ingress::remove(&links).unwrap_err()
        }),
        GuardEntry::Unseen => {
            let guard = guard_over(Table { silent: true, ..Table::default() });
            keep::unseen(&guard.restore().unwrap_err()).into()
        }
        GuardEntry::WayUnknown => {
            let guard = guard_over(Table { puzzles: true, path_mtu: 1500, ..Table::default() });
            guard.lookup("192.0.2.2".parse().unwrap(), None).unwrap_err();
            failure(&guard)
        }
        GuardEntry::Ended => in_namespace(|| {
            let table = NftTable::new(Nft::find().unwrap());
            table.end();
            table.replace("").unwrap_err()
        })
        .into(),
        GuardEntry::Disturbed => disturbed(),
        GuardEntry::FormerRemoved => former_removed(),
        GuardEntry::OtherGateway => in_namespace(|| {
            let _first = Claim::take().unwrap();
            Claim::take().unwrap_err()
        }),
        GuardEntry::NameHeld => in_namespace(|| {
            let name = SocketAddr::from_abstract_name("ironswan-gateway").unwrap();
            // The kernel notes who listens.
            let nobody = rustix::process::Uid::from_raw(65534);
            let root = rustix::process::Uid::ROOT;
            rustix::thread::set_thread_res_uid(root, nobody, root).unwrap();
            let _stranger = UnixListener::bind_addr(&name).unwrap();
            rustix::thread::set_thread_res_uid(root, root, root).unwrap();
            Claim::take().unwrap().doubt().cloned().expect("a stranger has the name")
        })
        .into(),
    }
}

/// A program `nft` that is this script.
fn fake(script: &str) -> Result<Nft, Guard> {
    let dir = Scratch::new();
    let path = dir.write("nft", &format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    Nft::find_in(Some(OsString::from(dir.path())))
}

/// Lists that drop what comes from 10.2.0.0/16, in so many rows.
fn closing(rows: u16) -> Filter {
    let remote = AddrRange::prefix([10, 2, 0, 0].into(), 16).unwrap();
    let row = |n: u16| Row {
        local: AddrRange::host([10, 1, (n >> 8) as u8, n as u8].into()),
        drop: true,
        protocol: Some((n % 100) as u8 + 1),
        ..Row::all(false)
    };
    let rows: Vec<Row> = (0..rows).map(row).collect();
    let list = List { ports: rows.clone(), protocol: rows.clone(), addresses: rows.clone(), fragments: rows };
    let family = Family { lists: vec![list], intervals: vec![(remote, 0)] };
    Filter { families: [family, Family::default()], ports: [500, 4500], ..Filter::default() }
}

/// A configuration that protects what goes from one host to another.
fn loaded() -> Configured {
    let host = |ip: [u8; 4]| TrafficSelector::addresses(AddrRange::host(ip.into()));
    let policy = Policy {
        name: "net.net".into(),
        verdict: Verdict::Protect,
        local: host([10, 1, 0, 1]),
        remote: host([10, 2, 0, 1]),
        priority: 0,
        open: 0,
        guard: true,
    };
    Configured { policies: vec![policy], ..Configured::default() }
}

/// Another program deletes a rule of ours; a look finds that and restores the rule.
fn disturbed() -> Diagnosis {
    let guard = guard_over(Table::default());
    guard.change(|guard, kernel| {
        guard.replan(kernel, loaded());
        let gone = kernel.rules().unwrap()[0];
        kernel.delete_rule(&gone).unwrap();
    });
    let (missing, _) = guard.restore().unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    keep::disturbed("", &missing).into()
}

/// A start with `guard = no` finds the rules of an earlier one.
fn former_removed() -> Diagnosis {
    let kernel = Table { rules: vec![Rule::marked(false, 0x1000_0000)], ..Table::default() };
    let kernel = Fake(std::rc::Rc::new(std::cell::RefCell::new(kernel)));
    let (driver, _sent) = crate::driver::tests::with_kernel(Box::new(kernel), "");
    let guard = DaemonGuard { driver, table: None, stood: true, former: Former::default(), port: 0 };
    let config = ironswan_config::Config::default();
    guard.adopt_and_apply(&config).unwrap().expect("a rule was there").into()
}
