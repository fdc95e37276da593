//! scapy opens what we seal, and we open what scapy seals (`testkit/oracle/esp.py`).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_wire::sadb::Direction;
use serde_json::{Value, json};

use crate::common::*;

struct Oracle {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Oracle {
    /// Debian's scapy belongs to Debian's Python, which need not be the first in the path.
    fn start() -> Self {
        let python = ["/usr/bin/python3", "python3"]
            .into_iter()
            .find(|p| {
                let found = Command::new(p).args(["-c", "import scapy.layers.ipsec, cryptography"]).output();
                found.is_ok_and(|o| o.status.success())
            })
            .expect("no Python with scapy and cryptography: install the package python3-scapy");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testkit/oracle/esp.py");
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle starts");
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn ask(&mut self, question: &Value) -> Result<Vec<u8>, String> {
        writeln!(self.child.stdin.as_mut().unwrap(), "{question}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        match answer["data"].as_str() {
            Some(hex) => Ok(unhex(hex)),
            None => Err(answer["error"].to_string()),
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn question(op: &str, options: &Options, seq: u64, data: &[u8]) -> Value {
    let (crypt, auth) = match options.algorithm.name {
        "aes128gcm16" | "aes256gcm16" => ("AES-GCM", None),
        "chacha20poly1305" => ("CHACHA20-POLY1305", None),
        "aes128-sha256" => ("AES-CBC", Some("SHA2-256-128")),
        "aes192-sha384" => ("AES-CBC", Some("SHA2-384-192")),
        "aes256-sha512" => ("AES-CBC", Some("SHA2-512-256")),
        other => panic!("{other}"),
    };
    let sa = options.sa(Direction::Out, SPI, REQID, 42);
    json!({
        "op": op, "crypt": crypt, "key": hex(sa.encr_key.expose()), "auth": auth,
        "auth_key": hex(sa.integ_key.expose()), "spi": SPI, "seq": seq as u32,
        "esn": options.esn.then_some(seq >> 32), "v6": options.outer_v6, "udp": options.udp_encap, "data": hex(data),
    })
}

/// Inner packets of both families, every padding length, and full size.
fn inner_packets() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for len in (0..17).chain([536, 1_372]) {
        out.push(Spec::udp(len).build());
        out.push(Spec::tcp(len).over_v6().build());
    }
    out
}

#[test]
fn scapy_opens_what_we_seal_and_seals_what_we_open() {
    let mut oracle = Oracle::start();
    let mut judged = 0;
    for algorithm in ALGORITHMS {
        for (esn, outer_v6, udp_encap) in [
            (false, false, true),
            (false, false, false),
            (false, true, true),
            (false, true, false),
            (true, false, true),
            (true, true, false),
        ] {
            let options = Options { algorithm, esn, outer_v6, udp_encap, ..Options::default() };
            let mut pair = Pair::new(options.clone());
            // With extended numbers, begin beyond the first subspace.
            let base = if esn { 0x7_0000_0010 } else { 0 };
            pair.a.advance_sequence(pair.out_ref(), base).unwrap();
            pair.b.advance_sequence(pair.in_ref(), base).unwrap();
            for (i, packet) in inner_packets().into_iter().enumerate() {
                let what = format!("{} esn {esn} v6 {outer_v6} udp {udp_encap} packet {i}", algorithm.name);
                let seq = base + 1 + i as u64;
                let esp = pair.seal_one(&packet);
                assert_eq!(
                    oracle.ask(&question("open", &options, seq, &esp)).as_ref(),
                    Ok(&packet),
                    "{what}"
                );
                let esp = oracle.ask(&question("seal", &options, seq, &packet)).unwrap();
                assert_eq!(pair.open_each(&[esp]), [packet], "{what}: {:?}", pair.b.counters());
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 6 * 6 * 38);
}

#[test]
fn scapy_opens_each_segment_of_a_superpacket() {
    let mut oracle = Oracle::start();
    for spec in [Spec::tcp(20_000), Spec::udp(20_000).over_v6()] {
        let mut pair = Pair::new(Options::default());
        let esp = pair.seal(&[spec.superpacket(1_300)]);
        for (i, (esp, want)) in esp.iter().zip(spec.segments(1_300)).enumerate() {
            let got = oracle.ask(&question("open", &pair.options, i as u64 + 1, esp));
            assert_eq!(got, Ok(want));
        }
    }
}

#[test]
fn the_oracle_refuses_what_is_wrong() {
    let mut oracle = Oracle::start();
    let mut rng = Seeded::new(3);
    for algorithm in ALGORITHMS {
        for esn in [false, true] {
            let options = Options { algorithm, esn, ..Options::default() };
            let mut pair = Pair::new(options.clone());
            let mut esp = pair.seal_one(&Spec::udp(100).build());
            let at = 8 + rng.u32() as usize % (esp.len() - 8);
            esp[at] ^= 4;
            assert!(oracle.ask(&question("open", &options, 1, &esp)).is_err(), "{}", algorithm.name);
        }
    }
}
