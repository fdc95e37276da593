//! Clients of the socket that only reads.

use ironswan_wire::vici::{Packet, Section};

use super::EVENTS;
use super::tests::{Raw, local, serve};
use super::{MAX_CLIENTS, MAX_READERS, reads};
use crate::driver::tests::pair;

/// Every command that this server knows, but those that only read.
const WRITES: &[&str] = &[
    "reload-settings",
    "load-conn",
    "unload-conn",
    "load-shared",
    "unload-shared",
    "get-shared",
    "clear-creds",
    "flush-certs",
    "load-key",
    "unload-key",
    "get-keys",
    "load-cert",
    "load-authority",
    "unload-authority",
    "load-token",
    "load-pool",
    "unload-pool",
    "initiate",
    "terminate",
    "rekey",
    "install",
    "uninstall",
    "redirect",
    "reset-counters",
];

#[tokio::test]
async fn a_client_that_only_reads_sees_everything_and_changes_nothing() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::reader(&s).await;
        assert_eq!(c.request("version", Section::new()).await.get_str("daemon"), Some("ironswan"));
        let conns = c.request("get-conns", Section::new()).await;
        assert_eq!(conns.get_list("conns").unwrap(), [b"net".to_vec()]);
        for event in EVENTS {
            c.register(event).await;
        }
        let before = s.a.view(|e, _| (e.connections(), e.shared_names()));
        // The messages are those that would do something.
        let message = || {
            Section::new()
                .with("name", "net")
                .with("ike", "net")
                .with("child", "net")
                .with("id", "k")
                .with("type", "IKE")
                .with("data", "secret")
        };
        for command in WRITES.iter().chain(&["no-such-command"]) {
            let answer = c.request(command, message()).await;
            assert_eq!(answer.get_str("success"), Some("no"), "{command}");
            assert_eq!(answer.get_str("errmsg"), Some(reads::REFUSED), "{command}");
        }
        assert_eq!(s.a.view(|e, _| (e.connections(), e.shared_names())), before);
        assert_eq!(s.a.view(|e, _| e.protocol().ike_sa_count()), 0);
        // Root's socket does them all.
        let mut root = Raw::connect(&s).await;
        let answer = root.request("get-shared", Section::new()).await;
        assert!(answer.get_list("keys").is_some());
    })
    .await;
}

#[tokio::test]
async fn no_command_that_is_known_is_in_neither_list() {
    local(async {
        let s = serve(pair());
        let mut root = Raw::connect(&s).await;
        for command in WRITES.iter().filter(|c| !matches!(**c, "clear-creds" | "reload-settings")) {
            root.send(
                &Packet::CmdRequest { name: (*command).into(), message: Section::new() }.emit().unwrap(),
            )
            .await;
            assert!(matches!(root.packet().await, Some(Packet::CmdResponse(_))), "{command} is not known");
            assert!(!reads::allowed(command, &Section::new()), "{command}");
        }
        assert!(reads::allowed("ironswan-log", &Section::new()));
        assert!(!reads::allowed("ironswan-log", &Section::new().with("level", "debug")));
    })
    .await;
}

#[tokio::test]
async fn readers_do_not_keep_others_away() {
    local(async {
        let s = serve(pair());
        let mut readers = Vec::new();
        for _ in 0..MAX_READERS {
            readers.push(Raw::reader(&s).await);
            if readers.len() % 50 == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        }
        for reader in &mut readers {
            reader.register("alert").await;
        }
        let mut one_more = Raw::reader(&s).await;
        assert_eq!(one_more.packet().await, None);
        // One that listens to nothing has to give way.
        for idle in [3, 7] {
            readers[idle].unregister("alert").await;
        }
        let mut one_more = Raw::reader(&s).await;
        one_more.request("version", Section::new()).await;
        assert_eq!(readers[3].packet().await, None);
        readers[7].request("version", Section::new()).await;
        let mut root = Raw::connect(&s).await;
        root.request("version", Section::new()).await;
        const { assert!(MAX_READERS < MAX_CLIENTS) };
    })
    .await;
}
