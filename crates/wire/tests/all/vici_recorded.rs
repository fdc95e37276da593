//! What swanctl and charon say to each other, read and written again byte for byte.

use std::fs;
use std::path::PathBuf;

use ironswan_wire::vici::{FrameReader, Packet, Section, Value};

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/vici")
}

fn packet(name: &str) -> Packet {
    let bytes = fs::read(dir().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    Packet::parse(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn names(section: &Section) -> Vec<&str> {
    section.iter().map(|(name, _)| name).collect()
}

#[test]
fn every_recorded_packet_is_read_and_written_back_unchanged() {
    let mut reader = FrameReader::new();
    let mut seen = 0;
    for entry in fs::read_dir(dir()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let packet = Packet::parse(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let frame = packet.emit().unwrap();
        assert_eq!(frame[4..], bytes, "{}", path.display());
        reader.feed(&frame);
        assert_eq!(reader.next_frame().unwrap().as_deref(), Some(&bytes));
        seen += 1;
    }
    assert_eq!(seen, 50);
}

#[test]
fn loading_a_connection_says_what_the_file_said() {
    let Packet::CmdRequest { name, message } = packet("0013-client.bin") else { panic!() };
    assert_eq!(name, "load-conn");
    let conn = message.section("net").unwrap();
    assert_eq!((conn.get_str("version"), conn.get_str("encap")), (Some("2"), Some("yes")));
    assert_eq!(conn.get_list("local_addrs").unwrap(), [b"192.0.2.1"]);
    assert_eq!(conn.section("local").unwrap().get_str("id"), Some("g1.example"));
    let child = conn.section("children").unwrap().section("net").unwrap();
    assert_eq!(child.get_list("esp_proposals").unwrap(), [b"aes128gcm16"]);

    let Packet::CmdRequest { name, mut message } = packet("0004-client.bin") else { panic!() };
    assert_eq!(name, "load-shared");
    assert!(!format!("{message:?}").contains("swordfish"));
    assert_eq!(message.take("data"), Some(Value::Text(b"swordfish".to_vec())));
}

#[test]
fn an_sa_is_listed_with_its_fields_in_their_order() {
    let Packet::Event { name, message } = packet("0051-daemon.bin") else { panic!() };
    assert_eq!(name, "list-sa");
    let sa = message.section("net").unwrap();
    assert_eq!(names(sa)[..6], ["uniqueid", "version", "state", "local-host", "local-port", "local-id"]);
    let child = sa.section("child-sas").unwrap().section("net-1").unwrap();
    assert_eq!(child.get_str("state"), Some("INSTALLED"));
    assert_eq!(names(child).last(), Some(&"remote-ts"));
    assert_eq!(packet("0052-daemon.bin"), Packet::CmdResponse(Section::new()));
}

#[test]
fn events_are_registered_and_refusals_say_why() {
    assert_eq!(packet("0024-client.bin"), Packet::EventRegister("control-log".into()));
    assert_eq!(packet("0025-daemon.bin"), Packet::EventConfirm);
    let Packet::CmdResponse(refused) = packet("0073-daemon.bin") else { panic!() };
    assert_eq!(refused.get_str("success"), Some("no"));
    assert!(refused.get_str("errmsg").unwrap().contains("nosuch"));
}
