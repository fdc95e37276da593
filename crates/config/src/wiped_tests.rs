//! The key of a file is nowhere in memory once the configuration is dropped: neither its digits,
//! nor a part of the key.

use zeroize::Zeroizing;

use super::diag::Diagnostics;
use super::load_dir;
use ironswan_testkit::clock::now;
use ironswan_testkit::remains::{KEY_LEN, Masked, alone, count};
use ironswan_testkit::scratch::Scratch;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[test]
fn nothing_of_a_key_is_left_of_the_file_that_had_it() {
    let name = "wiped_tests::nothing_of_a_key_is_left_of_the_file_that_had_it";
    if alone(name) {
        return;
    }
    for (spelling, right) in [("0x", true), ("0s", true), ("0x", false), ("0s", false), ("", true)] {
        // The text has the length of two keys, so that a buffer that grows with it is copied more
        // than once.
        let mut bytes = Zeroizing::new(vec![0; 2 * KEY_LEN]);
        let keys = [0, KEY_LEN].map(|at| Masked::new(&mut bytes[at..at + KEY_LEN]));
        let mut text = Zeroizing::new(Vec::with_capacity(512));
        text.extend_from_slice(b"secrets { ike-1 { secret = ");
        text.extend_from_slice(spelling.as_bytes());
        let from = text.len();
        if spelling == "0s" {
            for three in bytes.chunks(3) {
                let bits =
                    three.iter().fold(0, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - three.len()));
                let digit = |i: usize| BASE64[(bits >> (18 - 6 * i)) as usize & 63];
                let written = three.len() + 1;
                (0..4).for_each(|i| text.push(if i < written { digit(i) } else { b'=' }));
            }
        } else {
            for nibble in bytes.iter().flat_map(|b| [b >> 4, b & 15]) {
                text.push(b"0123456789abcdef"[usize::from(nibble)]);
            }
        }
        let digits = [0, KEY_LEN].map(|at| Masked::of(&text[from + at..from + at + KEY_LEN]));
        drop(bytes);
        text.extend_from_slice(if right { b"\n } }\n" } else { b"!!!!\n } }\n" });
        let dir = Scratch::new();
        let path = dir.write("swanctl.conf", "");
        std::fs::write(path, &*text).unwrap();
        drop(text);
        let mut diags = Diagnostics::default();
        let config = load_dir(now, dir.path(), &mut diags).unwrap();
        assert_eq!((diags.errors() == 0, config.secrets.len()), (right, usize::from(right)), "{diags:?}");
        let all = || count([&keys[0], &keys[1], &digits[0], &digits[1]]);
        let alive = all();
        // A text is its own digits.
        let loaded = if spelling.is_empty() { alive[2] + alive[3] } else { alive[0] + alive[1] };
        assert_eq!(loaded > 0, right, "{alive:?}");
        drop(config);
        let left = all();
        println!("`{spelling}`, right: {right}: {alive:?} parts while it is there, {left:?} after it");
        assert_eq!(left, [0; 4]);
    }
}

#[test]
fn nothing_of_a_private_key_is_left_of_the_file_that_had_it() {
    let name = "wiped_tests::nothing_of_a_private_key_is_left_of_the_file_that_had_it";
    if alone(name) {
        return;
    }
    // As DER, as PEM, and as PEM whose last digit is missing.
    for (pem, right) in [(false, true), (true, true), (true, false)] {
        let mut der = Zeroizing::new(vec![0; 16 + KEY_LEN]);
        der[..16].copy_from_slice(b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20");
        let key = Masked::new(&mut der[16..]);
        let mut text = Zeroizing::new(Vec::with_capacity(512));
        text.extend_from_slice(b"-----BEGIN PRIVATE KEY-----\n");
        let from = text.len() + 22;
        for three in der.chunks(3) {
            let bits = three.iter().fold(0, |bits, b| bits << 8 | u32::from(*b));
            (0..4).for_each(|i| text.push(BASE64[(bits >> (18 - 6 * i)) as usize & 63]));
        }
        let digits = Masked::of(&text[from..from + KEY_LEN]);
        if !right {
            text.pop();
        }
        text.extend_from_slice(b"\n-----END PRIVATE KEY-----\n");
        let dir = Scratch::new();
        dir.write("swanctl.conf", "# nothing\n");
        std::fs::write(dir.write("private/a", ""), if pem { &**text } else { &der[..] }).unwrap();
        drop((der, text));
        let mut diags = Diagnostics::default();
        let config = load_dir(now, dir.path(), &mut diags).unwrap();
        assert_eq!(
            (diags.errors() == 0, config.private_keys.len()),
            (right, usize::from(right)),
            "{diags:?}"
        );
        let alive = count([&key, &digits]);
        assert_eq!((alive[0] > 0, alive[1]), (right, 0), "{alive:?}");
        drop(config);
        let left = count([&key, &digits]);
        println!("PEM: {pem}, right: {right}: {alive:?} parts while it is there, {left:?} after it");
        assert_eq!(left, [0; 2]);
    }
}
