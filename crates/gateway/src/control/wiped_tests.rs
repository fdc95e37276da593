//! What a client has sent as a key is nowhere in the daemon's memory once the key is unloaded: neither what was read from the
//! socket, nor the frame, nor the message.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use ironswan_wire::vici::Packet;
use zeroize::{Zeroize, Zeroizing};

use super::tests::{Raw, local, serve};
use super::*;
use crate::driver::tests::pair;

/// In the environment of the process that is looked through.
const ROLE: &str = "IRONSWAN_LOOK_FOR_KEYS";
const KEY_LEN: usize = 32;
const WINDOW: usize = 8;

fn random(bytes: &mut [u8]) {
    File::open("/dev/urandom").expect("the system's random bytes").read_exact(bytes).expect("enough of them");
}

/// A key under a mask, so that what is looked for is not what is found.
struct Masked {
    mask: [u8; KEY_LEN],
    key: [u8; KEY_LEN],
}

impl Masked {
    /// Writes a new key over `place`.
    fn new(place: &mut [u8]) -> Self {
        let mut this = Self { mask: [0; KEY_LEN], key: [0; KEY_LEN] };
        random(place);
        random(&mut this.mask);
        for (masked, (byte, mask)) in this.key.iter_mut().zip(place.iter().zip(&this.mask)) {
            *masked = byte ^ mask;
        }
        this
    }

    /// How often a part of the key is in the writable memory of this process.
    fn count(&self) -> usize {
        let memory = File::open("/proc/self/mem").expect("our own memory");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own memory's list");
        let mut buf = Zeroizing::new(vec![0; 1 << 20]);
        let own = buf.as_ptr().addr()..buf.as_ptr().addr() + buf.len();
        let mut found = 0;
        for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[v")) {
            let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
            let [from, to] = [from, to].map(|hex| usize::from_str_radix(hex, 16).expect("an address"));
            for piece in [from..to.min(own.start).max(from), from.max(own.end).min(to)..to] {
                let mut at = piece.start;
                while at + WINDOW <= piece.end {
                    let len = buf.len().min(piece.end - at);
                    if memory.read_exact_at(&mut buf[..len], at as u64).is_ok() {
                        found += buf[..len].windows(WINDOW).filter(|window| self.has(window)).count();
                    }
                    at += if len == buf.len() { len - WINDOW } else { len };
                }
            }
        }
        found
    }

    fn has(&self, window: &[u8]) -> bool {
        let masked = |from: usize| {
            (0..WINDOW).fold(0, |differ, i| differ | (window[i] ^ self.mask[from + i] ^ self.key[from + i]))
        };
        [0, 8, 16, 24].into_iter().any(|from| masked(from) == 0)
    }
}

#[test]
fn nothing_of_a_key_is_left_of_the_message_that_brought_it() {
    let name = "control::wiped_tests::nothing_of_a_key_is_left_of_the_message_that_brought_it";
    if std::env::var_os(ROLE).is_none() {
        let this = std::env::current_exe().expect("the path of this test");
        let out =
            std::process::Command::new(this).args(["--exact", name, "--nocapture"]).env(ROLE, "1").output();
        let out = out.expect("this test again");
        let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        print!("{text}{errors}");
        assert!(out.status.success() && text.contains("1 passed"), "the process says why, above");
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
