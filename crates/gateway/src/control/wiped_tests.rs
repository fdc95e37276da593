//! A key that a client has sent is nowhere in the daemon's memory once the key is unloaded: not in
//! the bytes read from the socket, the frame, or the message.

use ironswan_wire::vici::Packet;
use zeroize::{Zeroize, Zeroizing};

use super::tests::{Raw, local, serve};
use super::*;
use crate::driver::tests::pair;
use ironswan_testkit::remains::{KEY_LEN, Masked, alone};

#[test]
fn nothing_of_a_key_is_left_of_the_message_that_brought_it() {
    let name = "control::wiped_tests::nothing_of_a_key_is_left_of_the_message_that_brought_it";
    if alone(name) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        let request = |name: &str, message: Section| {
            Packet::CmdRequest { name: name.into(), message }.emit().expect("a frame")
        };
        // Keys that are loaded, one that is refused, and one in a message of another command.
        for (command, kind, loads) in
            [("load-shared", "ike", true), ("load-shared", "eap", false), ("get-shared", "ike", false)]
        {
            let message = Section::new()
                .with("type", kind)
                .with("data", vec![0xaa; KEY_LEN])
                .with("id", "k1")
                .with("owners", ["a", "b"]);
            let mut frame = Zeroizing::new(request(command, message));
            let at = frame.windows(KEY_LEN).position(|w| w == [0xaa; KEY_LEN]).expect("the key");
            let key = Masked::new(&mut frame[at..at + KEY_LEN]);
            // In two pieces, of which the first ends within the key.
            c.send(&frame[..at + 9]).await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            c.send(&frame[at + 9..]).await;
            let Some(Packet::CmdResponse(answer)) = c.packet().await else { panic!("no answer") };
            frame.zeroize();
            assert_eq!(answer.get_str("success") == Some("yes"), loads);
            let alive = key.count();
            assert_eq!(alive > 0, loads, "{command} {kind}: {alive} parts");
            if loads {
                c.send(&request("unload-shared", Section::new().with("id", "k1"))).await;
                assert!(matches!(c.packet().await, Some(Packet::CmdResponse(_))));
            }
            let left = key.count();
            println!("{command} {kind}: {alive} parts of the key while it is loaded, {left} after it");
            assert_eq!(left, 0);
        }
    }));
}

#[test]
fn nothing_of_a_private_key_is_left_of_the_message_that_brought_it() {
    let name = "control::wiped_tests::nothing_of_a_private_key_is_left_of_the_message_that_brought_it";
    if alone(name) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        let request = |name: &str, message: Section| {
            Packet::CmdRequest { name: name.into(), message }.emit().expect("a frame")
        };
        // A private key in DER (RFC 8410 section 7), whole, and with a byte behind it.
        for (behind, loads) in [(0, true), (1, false)] {
            let mut der = vec![0xaa; 16 + KEY_LEN + behind];
            der[..16].copy_from_slice(b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20");
            let message = Section::new().with("type", "any").with("data", der);
            let mut frame = Zeroizing::new(request("load-key", message));
            let at = frame.windows(KEY_LEN).position(|w| w == [0xaa; KEY_LEN]).expect("the key");
            let key = Masked::new(&mut frame[at..at + KEY_LEN]);
            c.send(&frame).await;
            let Some(Packet::CmdResponse(answer)) = c.packet().await else { panic!("no answer") };
            frame.zeroize();
            assert_eq!(answer.get_str("success") == Some("yes"), loads, "{answer:?}");
            let alive = key.count();
            assert_eq!(alive > 0, loads, "{alive} parts");
            if loads {
                let id = answer.get_str("id").expect("the id");
                c.send(&request("unload-key", Section::new().with("id", id))).await;
                assert!(matches!(c.packet().await, Some(Packet::CmdResponse(_))));
            }
            let left = key.count();
            println!("{alive} parts of the key while it is loaded, {left} after it");
            assert_eq!(left, 0);
        }
    }));
}
