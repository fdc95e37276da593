use std::net::IpAddr;
use std::sync::Arc;

use ironswan_io::ingress::{Family, Filter, Ingress, List, Row};
use ironswan_wire::selector::AddrRange;
use rustix::net::{AddressFamily, SocketType};

use super::*;

const STEER: u32 = 0x1000_0000;

/// Runs `f` on a thread with a fresh network namespace.
fn in_namespace(f: impl FnOnce() + Send) {
    std::thread::scope(|s| {
        s.spawn(|| {
            ironswan_io::namespace::unshare().expect("these tests need root: they make network namespaces");
            f();
        })
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn to(ip: &str, prefix_len: u8) -> Destination {
    Destination { ip: ip.parse::<IpAddr>().unwrap(), prefix_len }
}

fn plan(text: &str) -> Plan {
    Plan {
        nft: Some(format!(
            "table inet {NAME} {{ }}\ndelete table inet {NAME}\ntable inet {NAME} {{\ncounter out_clear {{ packets 0 bytes 0 \
             }}\ncounter in_clear {{ packets 0 bytes 0 }}\n{text}\n}}\n"
        )),
        rules: [false, true]
            .iter()
            .flat_map(|v6| [Rule::marked(*v6, STEER), Rule::fallback(*v6, 0x220, true)])
            .collect(),
        routes: vec![
            (to("10.2.0.0", 16), Way::Tunnel),
            (to("10.2.3.0", 24), Way::Throw),
            (to("fd02::", 64), Way::Tunnel),
            (to("fd02::", 80), Way::Throw),
        ],
        ..Plan::default()
    }
}

fn shown(snapshot: &Snapshot) -> (Vec<String>, Vec<String>) {
    let mut routes: Vec<String> = snapshot.routes.iter().map(ToString::to_string).collect();
    routes.sort();
    (snapshot.rules.iter().map(ToString::to_string).collect(), routes)
}

fn foreign(protocol: u8) -> Route {
    Route { protocol, metric: 9, ..standing_route(to("10.9.0.0", 16), Way::Tunnel) }
}

#[test]
fn a_plan_is_installed_replaced_and_removed_and_foreign_routes_stay() {
    in_namespace(|| {
        let (nft, mut n) = (Nft::find().unwrap(), Netlink::open().unwrap());
        n.set_route(&foreign(4)).unwrap();
        assert!(!nft.present().unwrap() && nft.counters().unwrap().is_none());
        install(Some(&nft), &mut n, &plan("chain c { accept; }"), "ipsec0").unwrap();
        install(Some(&nft), &mut n, &plan("chain c { accept; }"), "ipsec0").unwrap();
        let snapshot = Snapshot::read(Some(&nft), &mut n).unwrap();
        let (rules, routes) = shown(&snapshot);
        assert_eq!(
            rules,
            [
                "219: from all fwmark 0x10000000/0x10000000 lookup 220",
                "220: not from all fwmark 0x220/0x220 lookup 220 suppress_prefixlength 0",
                "219: from all fwmark 0x10000000/0x10000000 lookup 220",
                "220: not from all fwmark 0x220/0x220 lookup 220 suppress_prefixlength 0",
            ]
        );
        assert_eq!(
            routes,
            [
                "throw 10.2.3.0/24 table 220",
                "throw fd02::/80 metric 1024 table 220",
                "unreachable 10.2.0.0/16 metric 4278198272 table 220",
                "unreachable 10.9.0.0/16 metric 9 table 220",
                "unreachable fd02::/64 metric 4278198272 table 220",
            ]
        );
        assert!(snapshot.table.unwrap().contains("chain c"));

        let mut smaller = plan("chain d { accept; }");
        smaller.routes.truncate(1);
        smaller.rules.truncate(2);
        install(Some(&nft), &mut n, &smaller, "ipsec0").unwrap();
        let snapshot = Snapshot::read(Some(&nft), &mut n).unwrap();
        assert_eq!((snapshot.rules.len(), snapshot.routes.len()), (2, 2), "{:?}", shown(&snapshot));
        assert!(!snapshot.table.unwrap().contains("chain c"));

        assert_eq!(
            remove(Some(&nft), &mut n).unwrap(),
            Removed { table: true, rules: 2, routes: 1, programs: 0 }
        );
        assert_eq!(remove(Some(&nft), &mut n).unwrap(), Removed::default());
        let snapshot = Snapshot::read(Some(&nft), &mut n).unwrap();
        assert_eq!((snapshot.table, snapshot.rules.len()), (None, 0));
        assert_eq!(n.routes(TABLE).unwrap(), [foreign(4)], "not ours to remove");
    });
}

#[test]
fn the_counters_outlive_a_replacement_and_a_refusal_changes_nothing() {
    in_namespace(|| {
        let nft = Nft::find().unwrap();
        let counted = Counters {
            out_clear: Count { packets: 3, bytes: 252 },
            in_clear: Count { packets: 1, bytes: u64::from(u32::MAX) + 1 },
        };
        let first = plan("chain c { }").nft.unwrap();
        let first = first.replacen("packets 0 bytes 0", "packets 3 bytes 252", 1).replacen(
            "packets 0 bytes 0",
            "packets 1 bytes 4294967296",
            1,
        );
        let pid = nft.apply(&first).unwrap();
        assert_ne!(pid, 0);
        assert_eq!(nft.counters().unwrap(), Some(counted));
        nft.apply(&plan("chain d { }").nft.unwrap()).unwrap();
        assert_eq!(nft.counters().unwrap(), Some(counted), "kept");
        let text = nft.apply(&plan("chain e { frobnicate; }").nft.unwrap()).unwrap_err().to_string();
        assert!(text.contains("frobnicate"), "{text}");
        let listing = nft.listing().unwrap().unwrap();
        assert!(listing.contains("chain d") && nft.counters().unwrap() == Some(counted), "{listing}");
    });
}

#[test]
fn a_watch_tells_our_own_changes_from_others() {
    in_namespace(|| {
        let nft = Nft::find().unwrap();
        let mut watch = ironswan_io::nft::NftWatch::open(NAME).unwrap();
        let pid = nft.apply(&plan("chain c { accept; }").nft.unwrap()).unwrap();
        let touches = watch.take();
        assert!(!touches.is_empty() && touches.iter().all(|t| t.is_by(pid)), "{touches:?}");
        let flushed = std::process::Command::new(nft.program()).args(["flush", "ruleset"]).status().unwrap();
        assert!(flushed.success());
        let touches = watch.take();
        assert!(touches.len() == 1 && !touches[0].is_by(pid), "{touches:?}");
        assert!(touches[0].to_string().starts_with("`nft` (process "), "{}", touches[0]);
    });
}

#[test]
fn a_namespace_has_one_gateway_and_is_free_when_that_ends() {
    in_namespace(|| {
        assert_eq!(holder(), None);
        let claim = Claim::take().unwrap();
        assert_eq!(holder(), i32::try_from(std::process::id()).ok().map(Holder::Process));
        let text = Claim::take().unwrap_err().to_string();
        assert!(
            text.contains(&format!("process {}", std::process::id())) && text.contains("stop it"),
            "{text}"
        );
        in_namespace(|| drop(Claim::take().unwrap()));
        drop(claim);
        Claim::take().unwrap();
    });
}

#[test]
fn nobody_waits_for_a_holder_of_the_name_who_takes_no_connections() {
    let ourselves = || i32::try_from(std::process::id()).ok().map(Holder::Process);
    in_namespace(|| {
        let claim = Claim::take().unwrap();
        // Anybody may look, and go away again.
        let looks = (0..100_000).take_while(|_| holder() == ourselves()).count();
        println!("{looks} looks filled the queue");
        assert!(looks < 100_000);
        // A gateway whose queue is full still counts as the gateway.
        assert_eq!(holder(), Some(Holder::Full));
        let text = Claim::take().unwrap_err().to_string();
        assert!(text.contains("@ironswan-gateway") && text.contains("stop it"), "{text}");
        // The gateway takes them out, again and again while there are more.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let while_it_runs = tokio::time::Duration::from_millis(2_500);
        let _ = runtime.block_on(async { tokio::time::timeout(while_it_runs, claim.keep_free()).await });
        let more = (0..100_000).take_while(|_| holder() == ourselves()).count();
        println!("{more} looks found room again");
        assert!(more > 500);
        drop(claim);

        // Another user who was there first and lets one wait.
        let address = rustix::net::SocketAddrUnix::new_abstract_name(b"ironswan-gateway").unwrap();
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        std::os::unix::fs::fchown(&socket, Some(65_534), None).unwrap();
        let looks = (0..10).take_while(|_| holder().is_some()).count();
        assert!(looks < 10);
        Claim::take().unwrap();
    });
}

/// Lists for the program at the ingress that drop everything from this network.
fn filter(from: &str) -> Arc<Filter> {
    let rows = vec![Row { drop: true, ..Row::all(false) }];
    let list = List { ports: rows.clone(), fragments: rows.clone(), protocol: rows.clone(), addresses: rows };
    let from = AddrRange::prefix(from.parse().unwrap(), 16).unwrap();
    let family = Family { intervals: vec![(from, 0)], lists: vec![list] };
    Arc::new(Filter { families: [family, Family::default()], ports: [500, 4500], ..Filter::default() })
}

/// The digest of the program at each interface that has one.
fn digests(n: &mut Netlink) -> Vec<u64> {
    let mut ingress = Ingress::open().unwrap();
    let links = n.links().unwrap();
    links.iter().filter_map(|l| ingress.state(l.index).unwrap().digest).collect()
}

#[test]
fn what_nft_refuses_leaves_the_programs_and_keeps_none_of_them_from_being_removed() {
    in_namespace(|| {
        use std::os::unix::fs::PermissionsExt;
        let (nft, mut n) = (Nft::find().unwrap(), Netlink::open().unwrap());
        let veth = ["link", "add", "v0", "type", "veth", "peer", "name", "v1"];
        assert!(std::process::Command::new("ip").args(veth).status().unwrap().success());
        let mut keeper = ingress::Keeper::open("ipsec0").unwrap();
        assert!(keeper.found() == Some(0) && !ingress::stands(&n.links().unwrap()));
        let good = Plan { ingress: filter("10.2.0.0"), ..plan("chain c { accept; }") };
        assert_eq!(install(Some(&nft), &mut n, &good, "ipsec0").unwrap().problem, None);
        let before = digests(&mut n);
        assert_eq!(before.len(), 2);
        let bad = Plan { ingress: filter("10.3.0.0"), ..plan("chain e { frobnicate; }") };
        assert!(install(Some(&nft), &mut n, &bad, "ipsec0").is_err());
        assert_eq!(digests(&mut n), before, "what stood is unchanged");

        let dir = ironswan_testkit::scratch::Scratch::new();
        let script = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'nftables v1.0.6 (x)'; exit; fi\necho no >&2; exit 1\n";
        let path = dir.write("nft", script);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let broken = Nft::find_in(Some(dir.path().as_os_str().to_owned())).unwrap();
        let why = remove(Some(&broken), &mut n).unwrap_err().to_string();
        assert!(why.contains("nft refused to remove the guard"), "{why}");
        assert_eq!(digests(&mut n), [0; 0]);
        let snapshot = Snapshot::read(Some(&nft), &mut n).unwrap();
        assert!(snapshot.table.is_some() && snapshot.rules.is_empty() && snapshot.routes.is_empty());

        // A program alone is a guard that stands.
        nft.remove().unwrap();
        assert_eq!(keeper.keep(&filter("10.2.0.0")).problem, None);
        let mut another = ingress::Keeper::open("ipsec0").unwrap();
        assert!(another.found() == Some(2) && ingress::stands(&n.links().unwrap()));
        assert_eq!(remove(Some(&nft), &mut n).unwrap(), Removed { programs: 2, ..Removed::default() });
        assert!(another.found() == Some(0) && !ingress::stands(&n.links().unwrap()));
    });
}

#[test]
fn filters_that_see_packets_before_our_program_are_named_and_no_others() {
    in_namespace(|| {
        let run = |program: &str, args: &[&str]| {
            assert!(std::process::Command::new(program).args(args).status().unwrap().success(), "{args:?}");
        };
        run("ip", &["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
        let mut keeper = ingress::Keeper::open("ipsec0").unwrap();
        assert_eq!(keeper.keep(&filter("10.2.0.0")).problem, None);
        let mut n = Netlink::open().unwrap();
        let before = |n: &mut Netlink| ingress::Report::look(&n.links().unwrap()).before;
        let add = |device: &str, filter: &str| {
            let add = format!("filter add dev {device} ingress {filter} flowid 1:1");
            run("tc", &add.split(' ').collect::<Vec<_>>());
        };
        add("v0", "pref 3 protocol ip u32 match u32 0 0");
        assert_eq!(before(&mut n), []);
        add("v0", "pref 1 protocol ip u32 match u32 0 0");
        for device in ["v0", "v1"] {
            run(
                "tc",
                &[
                    &[
                        "filter", "add", "dev", device, "ingress", "pref", "2", "protocol", "all", "handle",
                        "9",
                    ][..],
                    &["bpf", "bytecode", "1,6 0 0 4294967295", "flowid", "1:1"],
                ]
                .concat(),
            );
        }
        let found = before(&mut n);
        let of =
            |device: &str| found.iter().find(|(name, _)| name == device).map(|(_, what)| what.join(", "));
        assert_eq!(of("v0").as_deref(), Some("tc filter u32 pref 1, tc filter bpf pref 2"));
        assert_eq!(of("v1").as_deref(), Some("tc filter bpf pref 2"));
    });
}

#[test]
fn without_the_guard_the_table_of_before_goes_also_where_nft_cannot_be_run() {
    in_namespace(|| {
        let (nft, mut n) = (Nft::find().unwrap(), Netlink::open().unwrap());
        assert!(!delete_table().unwrap(), "there is none yet");
        let first = plan(
            "chain c { type filter hook input priority 0; accept; }\nmap m { type ipv4_addr : verdict; }",
        );
        install(Some(&nft), &mut n, &first, "ipsec0").unwrap();
        assert!(nft.present().unwrap());
        assert!(delete_table().unwrap());
        assert!(!nft.present().unwrap() && !delete_table().unwrap());

        install(Some(&nft), &mut n, &first, "ipsec0").unwrap();
        assert!(remove(None, &mut n).unwrap().table, "the kernel deletes the table");
        assert_eq!(remove(None, &mut n).unwrap(), Removed::default());

        install(Some(&nft), &mut n, &first, "ipsec0").unwrap();
        install(None, &mut n, &Plan::default(), "ipsec0").unwrap();
        let snapshot = Snapshot::read(Some(&nft), &mut n).unwrap();
        assert_eq!(snapshot, Snapshot::default(), "neither table, rules nor routes");
    });
}
