use proptest::prelude::*;

use super::*;

fn load_conn() -> Section {
    let local = Section::new().with("auth", "psk").with("id", "g1.example");
    let child =
        Section::new().with("local_ts", ["10.1.0.0/24"]).with("esp_proposals", ["aes128gcm16", "default"]);
    let children = Section::new().with("net", child);
    Section::new().with(
        "home",
        Section::new()
            .with("version", 2u32)
            .with("mobike", false)
            .with("local-1", local)
            .with("proposals", ["default"])
            .with("children", children),
    )
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

#[test]
fn a_request_is_these_bytes() {
    let message =
        Section::new().with("a", "xy").with("l", ["p", ""]).with("s", Section::new().with("k", 7u32));
    let packet = Packet::CmdRequest { name: "stats".into(), message };
    let mut body = vec![0, 5];
    body.extend(b"stats");
    body.extend(b"\x03\x01a\x00\x02xy");
    body.extend(b"\x04\x01l\x05\x00\x01p\x05\x00\x00\x06");
    body.extend(b"\x01\x01s\x03\x01k\x00\x017\x02");
    assert_eq!(packet.emit().unwrap(), frame(&body));
    assert_eq!(Packet::parse(&body).unwrap(), packet);
}

#[test]
fn every_packet_type_comes_back() {
    let name = || "list-sa".to_owned();
    for (kind, packet) in [
        Packet::CmdRequest { name: name(), message: load_conn() },
        Packet::CmdResponse(load_conn()),
        Packet::CmdUnknown,
        Packet::EventRegister(name()),
        Packet::EventUnregister(name()),
        Packet::EventConfirm,
        Packet::EventUnknown,
        Packet::Event { name: name(), message: Section::new() },
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = packet.emit().unwrap();
        assert_eq!(usize::from(bytes[4]), kind);
        assert_eq!(Packet::parse(&bytes[4..]).unwrap(), packet);
    }
    assert_eq!(Packet::parse(&[8]), Err(Error::PacketType(8)));
    assert_eq!(Packet::parse(&[255]), Err(Error::PacketType(255)));
}

#[test]
fn values_are_found_by_name_and_kept_in_order() {
    let message = Section::parse(&load_conn().emit().unwrap()).unwrap();
    let conn = message.section("home").unwrap();
    assert_eq!(
        conn.iter().map(|(n, _)| n).collect::<Vec<_>>(),
        ["version", "mobike", "local-1", "proposals", "children"]
    );
    assert_eq!((conn.get_str("version"), conn.get_str("mobike")), (Some("2"), Some("no")));
    assert_eq!(conn.get_list("proposals").unwrap(), [b"default"]);
    assert_eq!(conn.sections().map(|(n, _)| n).collect::<Vec<_>>(), ["local-1", "children"]);
    let net = conn.section("children").unwrap().section("net").unwrap();
    assert_eq!(net.get_list("esp_proposals").unwrap().len(), 2);
    // Each getter is for its own kind.
    assert_eq!(
        (conn.get_str("proposals"), conn.get_list("version"), conn.section("version")),
        (None, None, None)
    );
    assert_eq!(conn.get("nothing"), None);
}

#[test]
fn of_a_name_given_twice_the_last_counts_and_both_are_kept() {
    let mut s = Section::new().with("k", "1").with("k", "2");
    assert_eq!((s.get_str("k"), s.len()), (Some("2"), 2));
    assert_eq!(s.take("k"), Some(Value::Text(b"2".to_vec())));
    assert_eq!(s.get_str("k"), Some("1"));
}

#[test]
fn debug_output_has_no_secret_and_no_control_bytes() {
    let s = Section::new()
        .with("type", "ike\n")
        .with("data", "swordfish")
        .with("sub", Section::new().with("pin", "77"));
    let text = format!("{s:?}");
    assert!(text.contains("\"data\": <9 bytes>") && text.contains("ike\\n"), "{text}");
    assert!(!text.contains("swordfish") && !text.contains("77") && !text.contains('\n'), "{text}");
}

#[test]
fn lengths_that_lie_are_refused() {
    let short = |r: Result<Packet, Error>| assert!(matches!(r, Err(Error::Short(_))), "{r:?}");
    short(Packet::parse(&[]));
    short(Packet::parse(&[0]));
    short(Packet::parse(b"\x00\x05stat"));
    short(Packet::parse(b"\x01\x03"));
    short(Packet::parse(b"\x01\x03\x02k"));
    short(Packet::parse(b"\x01\x03\x01k\x00"));
    short(Packet::parse(b"\x01\x03\x01k\x00\x03xy"));
    short(Packet::parse(b"\x01\x03\x01k\xff\xffxy"));
    short(Packet::parse(b"\x01\x04\x01l\x05\x00\x02x"));
    assert_eq!(Packet::parse(b"\x03\x01ax"), Err(Error::Trailing(1)));
    assert_eq!(Packet::parse(b"\x02\x00"), Err(Error::Trailing(1)));
    assert_eq!(Packet::parse(b"\x03\x01\xff"), Err(Error::Name));
}

#[test]
fn every_truncation_of_a_real_message_is_refused_or_ends_between_elements() {
    let whole = load_conn().emit().unwrap();
    // All elements are inside one section, so nothing shorter is complete.
    for n in 1..whole.len() {
        assert!(Section::parse(&whole[..n]).is_err(), "{n} bytes");
    }
}

#[test]
fn sections_and_lists_must_be_balanced() {
    let unbalanced =
        |bytes: &[u8]| assert!(matches!(Section::parse(bytes), Err(Error::Unbalanced(_))), "{bytes:?}");
    unbalanced(b"\x02");
    unbalanced(b"\x01\x01s");
    unbalanced(b"\x01\x01s\x02\x02");
    unbalanced(b"\x05\x00\x01x");
    unbalanced(b"\x06");
    unbalanced(b"\x04\x01l");
    unbalanced(b"\x04\x01l\x03\x01k\x00\x00\x06");
    unbalanced(b"\x04\x01l\x01\x01s\x02\x06");
    unbalanced(b"\x04\x01l\x04\x01m\x06\x06");
    unbalanced(b"\x01\x01s\x04\x01l\x02\x06");
    for kind in [0, 7, 255] {
        assert_eq!(Section::parse(&[kind]), Err(Error::ElementType(kind)));
    }
}

#[test]
fn nesting_has_an_end() {
    let nested = |n: usize| [b"\x01\x01s".repeat(n), b"\x02".repeat(n)].concat();
    assert!(Section::parse(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(Section::parse(&nested(MAX_DEPTH + 1)), Err(Error::TooDeep));
    assert_eq!(Section::parse(&nested(10_000)), Err(Error::TooDeep));
    let deep = (0..=MAX_DEPTH).fold(Section::new(), |inner, _| Section::new().with("s", inner));
    assert!(deep.emit().is_err());
}

#[test]
fn what_does_not_fit_is_not_emitted() {
    assert!(Section::new().with("x".repeat(256), "").emit().is_err());
    assert!(Section::new().with("k", vec![0; 65_536]).emit().is_err());
    let nine = (0..9).fold(Section::new(), |s, i| s.with(i.to_string(), vec![0; 65_535]));
    assert!(Packet::CmdResponse(nine).emit().is_err());
    let seven = (0..7).fold(Section::new(), |s, i| s.with(i.to_string(), vec![0; 65_535]));
    assert!(Packet::CmdResponse(seven).emit().is_ok());
}

#[test]
fn frames_come_out_whole_however_they_come_in() {
    let a = Packet::EventConfirm.emit().unwrap();
    let b = Packet::CmdResponse(load_conn()).emit().unwrap();
    let stream = [a.clone(), b.clone(), a.clone()].concat();
    for size in [1, 3, 7, stream.len()] {
        let mut reader = FrameReader::new();
        let mut frames = Vec::new();
        for piece in stream.chunks(size) {
            reader.feed(piece);
            while let Some(frame) = reader.next_frame().unwrap() {
                frames.push(frame);
            }
        }
        assert_eq!(frames.iter().map(|frame| &frame[..]).collect::<Vec<_>>(), [&a[4..], &b[4..], &a[4..]]);
        assert!(reader.is_between_frames());
    }
}

#[test]
fn a_frame_of_no_bytes_or_too_many_is_an_error_that_stays() {
    for length in [0, MAX_FRAME as u32 + 1, 1 << 31, u32::MAX] {
        let mut reader = FrameReader::new();
        reader.feed(&length.to_be_bytes()[..3]);
        assert_eq!(reader.next_frame(), Ok(None));
        reader.feed(&length.to_be_bytes()[3..]);
        assert_eq!(reader.next_frame(), Err(Error::FrameLength(length)));
        reader.feed(&[0; 100]);
        assert_eq!(reader.next_frame(), Err(Error::FrameLength(length)));
    }
    let mut reader = FrameReader::new();
    reader.feed(&frame(&vec![0; MAX_FRAME]));
    assert_eq!(reader.next_frame().unwrap().unwrap().len(), MAX_FRAME);
    reader.feed(&[0, 0, 0, 9, 1]);
    assert_eq!(reader.next_frame(), Ok(None));
    assert!(!reader.is_between_frames());
}

fn section() -> impl Strategy<Value = Section> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let leaf = prop_oneof![
        bytes().prop_map(Value::Text),
        prop::collection::vec(bytes(), 0..4).prop_map(Value::List),
    ];
    let value = leaf.prop_recursive(4, 40, 6, |inner| {
        prop::collection::vec(("[a-z_0-9-]{0,8}", inner), 0..6)
            .prop_map(|entries| Value::Section(entries.into_iter().collect()))
    });
    prop::collection::vec((".{0,6}", value), 0..6).prop_map(|entries| entries.into_iter().collect())
}

proptest! {
    #[test]
    fn a_message_parses_to_what_was_emitted(message in section()) {
        prop_assert_eq!(Section::parse(&message.emit().unwrap()).unwrap(), message);
    }

    #[test]
    fn what_parses_is_emitted_unchanged(data in prop::collection::vec(0..7u8, 0..60)) {
        if let Ok(message) = Section::parse(&data) {
            prop_assert_eq!(message.emit().unwrap(), data);
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(data in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Packet::parse(&data);
    }
}
