//! Tests of the server over a real Unix socket: bad frames, slow clients, commands, Debian's
//! `swanctl`, and `rsvici`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ironswan_wire::vici::{FrameReader, Packet, Value};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::LocalSet;

use super::*;
use crate::driver::tests::{pair, up};
use ironswan_testkit::scratch::Scratch;

pub(super) struct Served {
    dir: Scratch,
    path: PathBuf,
    pub(super) control: Rc<Control>,
    pub(super) a: Driver,
    /// The peer.
    pub(super) b: Driver,
}

/// A server in front of one of two gateways.
fn served() -> Served {
    serve(pair())
}

/// A server in front of a gateway, whose peer is `b`.
pub(super) fn in_front_of(a: &Driver, b: &Driver) -> Served {
    serve((a.clone(), b.clone()))
}

/// A server in front of the first gateway.
pub(super) fn serve(pair: (Driver, Driver)) -> Served {
    serve_with(pair, Box::new(|| Box::pin(async { Ok(()) })))
}

/// The same with something to reload.
pub(super) fn serve_with((a, b): (Driver, Driver), reload: Reload) -> Served {
    let dir = Scratch::new();
    let path = dir.path().join("x.vici");
    let control = Control::new(a.clone(), reload);
    tokio::task::spawn_local(control.clone().serve(Listener::bind(&path).unwrap()));
    Served { dir, path, control, a, b }
}

pub(super) struct Raw {
    stream: UnixStream,
    frames: FrameReader,
}

impl Raw {
    pub(super) async fn connect(s: &Served) -> Self {
        Self { stream: UnixStream::connect(&s.path).await.unwrap(), frames: FrameReader::new() }
    }

    /// A client of a second socket, which only reads.
    pub(super) async fn reader(s: &Served) -> Self {
        let path = s.dir.path().join("ro.vici");
        if !path.exists() {
            let listener = Listener::bind_to_read(&path, None).unwrap();
            tokio::task::spawn_local(s.control.clone().serve(listener));
        }
        Self { stream: UnixStream::connect(&path).await.unwrap(), frames: FrameReader::new() }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        // The server may have closed already, which is what some tests want.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Says that nothing more will be sent.
    pub(super) async fn shut_down(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// The next packet; `None` when the server has closed.
    pub(super) async fn packet(&mut self) -> Option<Packet> {
        let mut buf = [0; 4096];
        loop {
            if let Some(frame) = self.frames.next_frame().unwrap() {
                return Some(Packet::parse(&frame).unwrap());
            }
            let read = tokio::time::timeout(Duration::from_secs(5), self.stream.read(&mut buf));
            match read.await.expect("an answer in time") {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.frames.feed(&buf[..n]),
            }
        }
    }

    pub(super) async fn request(&mut self, name: &str, message: Section) -> Section {
        self.send(&Packet::CmdRequest { name: name.into(), message }.emit().unwrap()).await;
        loop {
            match self.packet().await {
                Some(Packet::CmdResponse(s)) => return s,
                Some(Packet::Event { .. }) => {}
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    pub(super) async fn register(&mut self, event: &str) {
        self.send(&Packet::EventRegister(event.into()).emit().unwrap()).await;
        assert_eq!(self.packet().await, Some(Packet::EventConfirm));
    }

    pub(super) async fn unregister(&mut self, event: &str) {
        self.send(&Packet::EventUnregister(event.into()).emit().unwrap()).await;
        assert_eq!(self.packet().await, Some(Packet::EventConfirm));
    }
}

pub(super) async fn local<F: Future<Output = ()>>(f: F) {
    LocalSet::new().run_until(f).await;
}

fn frame(body: &[u8]) -> Vec<u8> {
    let mut f = (body.len() as u32).to_be_bytes().to_vec();
    f.extend_from_slice(body);
    f
}

#[tokio::test]
async fn a_broken_frame_is_explained_and_closes_its_client_and_no_other() {
    local(async {
        let s = served();
        let mut good = Raw::connect(&s).await;
        let deep: Vec<u8> =
            [0, 9].iter().chain(b"load-conn").copied().chain([1, 1, b'a'].repeat(10_000)).collect();
        let bad: [Vec<u8>; 8] = [
            frame(b""),
            0xffff_ffffu32.to_be_bytes().to_vec(),
            (600u32 << 10).to_be_bytes().to_vec(),
            frame(b"\xff\x01x"),
            frame(b"\x00\xffstats"),
            frame(b"\x00\x03\xff\xfe\xfd"),
            frame(b"\x01"),
            frame(&deep),
        ];
        for bytes in bad {
            let mut c = Raw::connect(&s).await;
            c.send(&bytes).await;
            let shown = &bytes[..bytes.len().min(12)];
            match c.packet().await {
                Some(Packet::CmdResponse(m)) => {
                    assert_eq!(m.get_str("success"), Some("no"), "{shown:?}");
                    assert!(
                        m.get_str("errmsg").is_some_and(|e| e.starts_with("not VICI: ")),
                        "{shown:?}: {m:?}"
                    );
                }
                other => panic!("{shown:?}: {other:?}"),
            }
            assert_eq!(c.packet().await, None, "{shown:?}");
            assert_eq!(good.request("version", Section::new()).await.get_str("daemon"), Some("ironswan"));
        }
        let mut c = Raw::connect(&s).await;
        c.send(&Packet::CmdRequest { name: "no-such".into(), message: Section::new() }.emit().unwrap()).await;
        assert_eq!(c.packet().await, Some(Packet::CmdUnknown));
        c.send(&Packet::EventRegister("no-such".into()).emit().unwrap()).await;
        assert_eq!(c.packet().await, Some(Packet::EventUnknown));
        c.send(&Packet::EventUnregister("log".into()).emit().unwrap()).await;
        assert_eq!(c.packet().await, Some(Packet::EventUnknown));
    })
    .await;
}

#[tokio::test]
async fn a_request_in_single_bytes_is_understood_also_with_the_end_behind_it() {
    local(async {
        let s = served();
        let mut c = Raw::connect(&s).await;
        for b in (Packet::CmdRequest { name: "version".into(), message: Section::new() }).emit().unwrap() {
            c.send(&[b]).await;
            tokio::task::yield_now().await;
        }
        c.shut_down().await;
        assert!(matches!(c.packet().await, Some(Packet::CmdResponse(_))));
        assert_eq!(c.packet().await, None);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut_off_and_the_thousand_and_first_is_turned_away() {
    local(async {
        let s = served();
        let mut lazy = Raw::connect(&s).await;
        lazy.register("log").await;
        let line = "x".repeat(60_000);
        let event = |text: &str| ironswan_ike::event::Event::Log {
            level: ironswan_ike::event::Level::Info,
            conn: None,
            ike: None,
            text: text.to_owned(),
            why: None,
            stranger: None,
        };
        for _ in 0..100 {
            s.a.announce(&event(&line));
            tokio::task::yield_now().await;
        }
        let mut n = 0;
        while lazy.packet().await.is_some() {
            n += 1;
        }
        assert!(n < 100, "{n} of 100 events were kept for a client that did not read");

        let mut idle = Vec::new();
        for _ in 0..MAX_CLIENTS {
            idle.push(Raw::connect(&s).await);
            if idle.len() % 50 == 0 {
                // The backlog of the socket is shorter than this.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        idle[0].request("version", Section::new()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut one_more = Raw::connect(&s).await;
        assert_eq!(one_more.packet().await, None);
        idle[MAX_CLIENTS - 1].request("version", Section::new()).await;
    })
    .await;
}

fn conn(extra: Section) -> Section {
    let mut net = Section::new()
        .with("version", "2")
        .with("local_addrs", ["192.0.2.1"])
        .with("remote_addrs", ["192.0.2.9"])
        .with("local", Section::new().with("auth", "psk").with("id", "a"))
        .with("remote", Section::new().with("auth", "psk"))
        .with("children", Section::new().with("kid", Section::new().with("local_ts", ["10.1.0.0/24"])));
    for (name, value) in extra.iter() {
        net.put(name, value.clone());
    }
    Section::new().with("other", net)
}

#[tokio::test]
async fn loading_and_unloading() {
    local(async {
        let s = served();
        let mut c = Raw::connect(&s).await;
        let ok = |r: &Section| r.get_str("success") == Some("yes");
        assert!(ok(&c.request("load-conn", conn(Section::new())).await));
        let names = c.request("get-conns", Section::new()).await;
        assert_eq!(names.get_list("conns").unwrap(), [b"net".to_vec(), b"other".to_vec()]);
        let r = c.request("load-conn", conn(Section::new().with("mediation", "yes"))).await;
        assert!(
            !ok(&r)
                && r.get_str("errmsg")
                    .unwrap()
                    .starts_with("connection other: mediation: yes: mediation is not built"),
            "{r:?}"
        );
        // One that cannot be initiated answers peers, as from a file.
        let r = c.request("load-conn", conn(Section::new().with("local_port", "600"))).await;
        assert!(ok(&r), "{r:?}");
        let child = Section::new().with("ike", "other").with("child", "kid").with("timeout", "-1");
        let r = c.request("initiate", child).await;
        assert!(r.get_str("errmsg").unwrap().contains("UDP port 600 is none of this gateway's"), "{r:?}");
        let r = c.request("load-conn", conn(Section::new().with("no_such_key", "1"))).await;
        assert!(r.get_str("errmsg").unwrap().contains("no_such_key"), "{r:?}");
        let r = c.request("load-conn", Section::new().with("a\nb", Section::new())).await;
        assert!(r.get_str("errmsg").unwrap().contains("`a\\nb` is not a connection's name"), "{r:?}");
        let r = c.request("load-conn", Section::new().with("x", vec![0xff_u8, 0xfe])).await;
        assert!(!ok(&r));
        assert!(ok(&c.request("unload-conn", Section::new().with("name", "other")).await));
        assert!(!ok(&c.request("unload-conn", Section::new().with("name", "other")).await));

        let key = |kind: &str| {
            Section::new()
                .with("id", "k1")
                .with("type", kind)
                .with("data", vec![0u8, 255])
                .with("owners", ["a", "%any"])
        };
        assert!(ok(&c.request("load-shared", key("IKE")).await));
        let r = c.request("load-shared", key("EAP")).await;
        assert_eq!(r.get_str("errmsg"), Some("eap secrets are not built yet"));
        let names = c.request("get-shared", Section::new()).await;
        assert!(names.get_list("keys").unwrap().contains(&b"k1".to_vec()));
        // A name stands for one key, of whichever kind.
        assert!(ok(&c.request("load-shared", key("ppk")).await));
        let names = c.request("get-shared", Section::new()).await;
        assert_eq!(names.get_list("keys").unwrap().iter().filter(|name| *name == b"k1").count(), 1);
        let pattern = key("PPK").with("owners", ["*.example"]);
        let r = c.request("load-shared", pattern).await;
        assert_eq!(r.get_str("errmsg"), Some("`*.example` is not the identity of one PPK"));
        assert!(ok(&c.request("unload-shared", Section::new().with("id", "k1")).await));
        assert!(!ok(&c.request("unload-shared", Section::new().with("id", "k1")).await));
    })
    .await;
}

#[tokio::test]
async fn a_shared_key_without_an_id_never_takes_the_name_of_another() {
    local(async {
        let s = served();
        let mut c = Raw::connect(&s).await;
        let ok = |r: &Section| r.get_str("success") == Some("yes");
        let key = |id: Option<&str>, owner: &str, data: &str| {
            let m = Section::new().with("type", "IKE").with("data", data).with("owners", [owner]);
            if let Some(id) = id { m.with("id", id) } else { m }
        };
        assert!(ok(&c.request("clear-creds", Section::new()).await));
        assert!(ok(&c.request("load-shared", key(Some("vici-1"), "a.example", "first")).await));
        assert!(ok(&c.request("load-shared", key(None, "b.example", "second")).await));
        assert!(ok(&c.request("load-shared", key(None, "c.example", "third")).await));
        let keys = || s.a.view(|e, _| e.shared_names());
        assert_eq!(keys(), ["%unnamed-1", "%unnamed-2", "vici-1"]);
        // Loaded again for the same owners it replaces itself; by name it can neither be replaced
        // nor unloaded.
        assert!(ok(&c.request("load-shared", key(None, "b.example", "fourth")).await));
        assert!(!ok(&c.request("load-shared", key(Some("%unnamed-1"), "x", "fifth")).await));
        assert!(!ok(&c.request("unload-shared", Section::new().with("id", "%unnamed-1")).await));
        assert_eq!(keys().len(), 3);
        let names = c.request("get-shared", Section::new()).await;
        assert_eq!(names.get_list("keys").unwrap(), [b"vici-1".to_vec()]);
        // After one is unloaded the next unnamed one is new all the same.
        assert!(ok(&c.request("unload-shared", Section::new().with("id", "vici-1")).await));
        assert!(ok(&c.request("load-shared", key(None, "d.example", "sixth")).await));
        assert_eq!(keys(), ["%unnamed-1", "%unnamed-2", "%unnamed-3"]);
        assert!(ok(&c.request("clear-creds", Section::new()).await));
        assert!(keys().is_empty());
        // Owners that a log line would not tell from each other are two; one name in capitals is
        // the same.
        let long = |end: &str| format!("@#{}{end}", "ab".repeat(64));
        assert!(ok(&c.request("load-shared", key(None, &long("01"), "seventh")).await));
        assert!(ok(&c.request("load-shared", key(None, &long("02"), "eighth")).await));
        assert_eq!(keys().len(), 2);
        for owner in ["e.example", "E.Example", "*.f.example", "*.F.example"] {
            assert!(ok(&c.request("load-shared", key(None, owner, owner)).await));
        }
        assert_eq!(keys().len(), 4);
    })
    .await;
}

#[tokio::test]
async fn initiate_streams_the_log_and_the_events_come_with_their_sections() {
    local(async {
        let s = served();
        let mut watcher = Raw::connect(&s).await;
        for event in ["ike-updown", "child-updown", "child-rekey", "ike-rekey"] {
            watcher.register(event).await;
        }
        let mut c = Raw::connect(&s).await;
        c.register("control-log").await;
        let message = Section::new().with("child", "net").with("timeout", "10000");
        c.send(&Packet::CmdRequest { name: "initiate".into(), message }.emit().unwrap()).await;
        let mut log = Vec::new();
        let answer = loop {
            match c.packet().await.unwrap() {
                Packet::Event { name, message } => {
                    assert_eq!(name, "control-log");
                    log.push(message.get_str("msg").unwrap().to_owned());
                }
                Packet::CmdResponse(r) => break r,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(answer.get_str("success"), Some("yes"), "{answer:?} {log:?}");
        assert!(log.iter().any(|l| l.starts_with("initiating IKE_SA net[")), "{log:?}");
        assert!(log.iter().any(|l| l.contains("established with SPIs")), "{log:?}");

        let mut event = async |want: &str| match watcher.packet().await.unwrap() {
            Packet::Event { name, message } => {
                assert_eq!(name, want);
                message
            }
            other => panic!("{other:?}"),
        };
        let up = event("ike-updown").await;
        assert_eq!(up.get_str("up"), Some("yes"));
        assert_eq!(up.section("net").unwrap().get_str("state"), Some("ESTABLISHED"));
        let up = event("child-updown").await;
        assert_eq!(up.section("net").unwrap().section("child-sas").unwrap().sections().count(), 1);
        let r = c.request("rekey", Section::new().with("child", "net").with("timeout", "5000")).await;
        assert_eq!(r.get_str("success"), Some("yes"), "{r:?}");
        let pair = event("child-rekey").await;
        let net = pair.section("net").unwrap().section("child-sas").unwrap().section("net").unwrap().clone();
        assert_ne!(
            net.section("old").unwrap().get_str("spi-in"),
            net.section("new").unwrap().get_str("spi-in")
        );
        let r = c.request("terminate", Section::new().with("ike", "net")).await;
        assert_eq!(
            (r.get_str("success"), r.get_str("matches"), r.get_str("terminated")),
            (Some("yes"), Some("1"), Some("1"))
        );
        let r = c.request("terminate", Section::new().with("ike", "net")).await;
        assert_eq!(r.get_str("errmsg"), Some("no matching SAs to terminate found"));
        let r = c.request("initiate", Section::new()).await;
        assert_eq!(r.get_str("errmsg"), Some("missing configuration name"));
        let r = c.request("terminate", Section::new().with("ike-id", "x")).await;
        assert_eq!(r.get_str("errmsg"), Some("ike-id is not a number"));
    })
    .await;
}

#[tokio::test]
async fn the_fields_of_a_listed_sa_stand_in_charon_s_order() {
    local(async {
        let s = served();
        up(&s.a).await.unwrap();
        let mut c = Raw::connect(&s).await;
        c.register("list-sa").await;
        c.send(&Packet::CmdRequest { name: "list-sas".into(), message: Section::new() }.emit().unwrap()).await;
        let Some(Packet::Event { message, .. }) = c.packet().await else { panic!("no list-sa") };
        let keys = |s: &Section| s.iter().map(|(n, _)| n.to_owned()).collect::<Vec<_>>();
        let net = message.section("net").unwrap();
        assert_eq!(
            keys(net).join(" "),
            "uniqueid version state local-host local-port local-id remote-host remote-port remote-id initiator \
             initiator-spi responder-spi encr-alg encr-keysize prf-alg dh-group established rekey-time child-sas"
        );
        let (name, child) = net.section("child-sas").unwrap().sections().next().unwrap();
        assert!(name.starts_with("net-"));
        assert_eq!(
            keys(child).join(" "),
            "name uniqueid reqid state mode protocol spi-in spi-out encr-alg encr-keysize bytes-in packets-in bytes-out \
             packets-out rekey-time life-time install-time local-ts remote-ts"
        );
        assert_eq!(child.get("local-ts"), Some(&Value::from(["10.1.0.0/24"])));
    })
    .await;
}

/// Debian's `swanctl` on a thread, while the server runs here.
pub(super) async fn swanctl(s: &Served, args: &[&str]) -> (bool, String) {
    let conf =
        s.dir.write("program.conf", "swanctl {\n load = pem pkcs1 pkcs8 x509 pubkey openssl random\n}\n");
    let mut command = Command::new("swanctl");
    command.args(args).arg("--uri").arg(format!("unix://{}", s.path.display())).env("STRONGSWAN_CONF", conf);
    let out = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let out = out.expect("swanctl of Debian's package strongswan-swanctl is installed");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text)
}

#[tokio::test]
async fn debian_s_swanctl_loads_lists_initiates_rekeys_and_terminates() {
    local(async {
        let s = served();
        let mut conf = crate::driver::tests::conf(1, 2);
        conf = conf.replace(" net { local_addrs", " net { mobike = no\n version = 2\n local_addrs");
        let file = s.dir.write("etc/swanctl.conf", &conf);
        let file = file.to_str().unwrap().to_owned();
        let (ok, out) = swanctl(&s, &["--load-all", "--file", &file]).await;
        assert!(
            ok && out.contains("loaded ike secret 'ike-1'")
                && out.contains("successfully loaded 1 connections, 0 unloaded"),
            "{out}"
        );
        let (ok, out) = swanctl(&s, &["--list-conns"]).await;
        for line in [
            "net: IKEv2, no reauthentication, rekeying every 14400s",
            "  local:  192.0.2.1",
            "  remote: 192.0.2.2",
            "  local pre-shared key authentication:",
            "    id: g1.example",
            "  net: TUNNEL, rekeying every 3600s",
        ] {
            assert!(ok && out.contains(line), "{line}: {out}");
        }
        let (ok, out) = swanctl(&s, &["--initiate", "--child", "net", "--timeout", "10"]).await;
        assert!(
            ok && out.contains("[IKE] initiating IKE_SA net[")
                && out.contains("initiate completed successfully"),
            "{out}"
        );
        let (ok, out) = swanctl(&s, &["--list-sas"]).await;
        assert!(
            ok && out.contains("ESTABLISHED, IKEv2")
                && out.contains("AES_GCM_16-128/PRF_HMAC_SHA2_256/CURVE_25519"),
            "{out}"
        );
        assert!(
            out.contains("INSTALLED, TUNNEL, ESP:AES_GCM_16-128") && out.contains("    local  10.1.0.0/24"),
            "{out}"
        );
        let (ok, out) = swanctl(&s, &["--rekey", "--ike", "net"]).await;
        assert!(ok && out.contains("rekey completed successfully"), "{out}");
        let (_, out) = swanctl(&s, &["--initiate", "--child", "nope"]).await;
        assert!(out.contains("initiate failed: CHILD_SA config 'nope' not found"), "{out}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (ok, out) = swanctl(&s, &["--terminate", "--ike", "net"]).await;
        assert!(ok && out.contains("terminate completed successfully"), "{out}");
        let (ok, out) = swanctl(&s, &["--stats"]).await;
        assert!(ok && out.contains("IKE_SAs: 0 total, 0 half-open"), "{out}");
        let (ok, out) = swanctl(&s, &["--list-algs"]).await;
        assert!(ok && out.contains("AES_GCM_16[aws-lc]") && out.contains("CURVE_25519[aws-lc]"), "{out}");
        let (_, out) = swanctl(&s, &["--version", "--daemon"]).await;
        assert!(out.contains("ironswan"), "{out}");
        s.dir.write(
            "etc/swanctl.conf",
            &conf.replace("esp_proposals = aes128gcm16", "esp_proposals = nonsense"),
        );
        let (ok, out) = swanctl(&s, &["--load-all", "--file", &file]).await;
        assert!(
            !ok && out.contains("loading connection 'net' failed")
                && out.contains("nonsense is not a known algorithm"),
            "{out}"
        );
    })
    .await;
}

#[tokio::test]
async fn the_rust_client_rsvici_is_served() {
    #[derive(Deserialize)]
    struct Version {
        daemon: String,
    }
    #[derive(Deserialize)]
    struct Conns {
        conns: Vec<String>,
    }
    local(async {
        let s = served();
        let mut client = rsvici::unix::connect(&s.path).await.unwrap();
        let version: Version = client.request("version", ()).await.unwrap();
        assert_eq!(version.daemon, "ironswan");
        let conns: Conns = client.request("get-conns", ()).await.unwrap();
        assert_eq!(conns.conns, ["net"]);
    })
    .await;
}
