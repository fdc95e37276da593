//! The keys of IKE_SAs and the octets of AUTH, derived a second time by another program from the
//! text of the RFCs (`testkit/oracle/ike.py`).

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use ironswan_crypto::prf;
use ironswan_ike::event::KeyLog;
use ironswan_keying::Limits;
use ironswan_testkit::{Forger, Packet, Seen, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, PrfId};
use ironswan_wire::ike::{Message, Payload, Within, parse_chain};
use serde_json::{Value, json};

/// The oracle's answer to one question.
fn ask(question: &Value) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/oracle/ike.py");
    let mut child = Command::new("python3")
        .args(["-B", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    writeln!(child.stdin.take().unwrap(), "{question}").unwrap();
    serde_json::from_slice(&child.wait_with_output().unwrap().stdout).expect("an answer")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Keys of each step of node 0, with its SPIs.
fn logged(w: &World) -> Vec<(u64, u64, Vec<String>)> {
    let of = |k: &KeyLog| match k {
        KeyLog::Ike { spi_i, spi_r, keys, .. } => {
            Some((*spi_i, *spi_r, keys.iter().map(|k| hex(k.expose())).collect()))
        }
        KeyLog::Child { .. } => None,
    };
    w.nodes[0].keys.iter().filter_map(of).collect()
}

fn lens(keys: &[String]) -> Vec<usize> {
    keys.iter().map(|k| k.len() / 2).collect()
}

fn sent(w: &World, exchange: ExchangeType, response: bool) -> Vec<&(Seen, Packet)> {
    w.net.log.iter().filter(|(s, _)| s.exchange == exchange && s.response == response).collect()
}

fn nonce(payloads: &[Payload]) -> Vec<u8> {
    payloads.iter().find_map(|p| if let Payload::Nonce(n) = p { Some(n.0.clone()) } else { None }).unwrap()
}

const ADD: &[(u8, KeId)] = &[(1, KeId::ML_KEM_768), (2, KeId::ECP_256), (5, KeId::ML_KEM_1024)];

/// A world with three additional key exchanges; a set-up by node 0 has been done.
fn world(prf: PrfId, fragment_size: usize) -> World {
    let limits = Limits { fragment_size, ..Limits::default() };
    let mut w = World::pair_at(7, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
        for c in c {
            let mut proposal = config::ike_proposal_with(&[KeId::CURVE_25519], ADD);
            proposal.transforms[1] = ironswan_wire::proposal::Transform::Prf(prf);
            c.proposals = vec![proposal];
        }
    });
    w.establish(0).unwrap();
    w
}

/// Nonces and messages of IKE_SA_INIT.
fn init(w: &World) -> [(Vec<u8>, Vec<u8>); 2] {
    [false, true].map(|response| {
        let bytes = sent(w, ExchangeType::IKE_SA_INIT, response)[0].1.payload.clone();
        (nonce(&Message::parse(&bytes).unwrap().payloads), bytes)
    })
}

#[test]
fn keys_of_each_step_and_of_a_rekeying_are_those_of_the_oracle() {
    for (prf, bits) in [(PrfId::HMAC_SHA2_256, 256), (PrfId::HMAC_SHA2_384, 384), (PrfId::HMAC_SHA2_512, 512)]
    {
        let mut w = world(prf, 1_280);
        let rows = logged(&w);
        assert_eq!(rows.len(), 1 + ADD.len());
        let secrets =
            |w: &World| -> Vec<String> { w.nodes[0].secrets.iter().map(|s| hex(s.expose())).collect() };
        let [(ni, _), (nr, _)] = init(&w);
        let (spi_i, spi_r, first) = &rows[0];
        let answer = ask(&json!({
            "op": "keys", "bits": bits, "lens": lens(first), "ni": hex(&ni), "nr": hex(&nr),
            "spi_i": hex(&spi_i.to_be_bytes()), "spi_r": hex(&spi_r.to_be_bytes()), "shared": secrets(&w),
        }));
        let ours: Vec<_> = rows.iter().map(|(_, _, keys)| keys.clone()).collect();
        assert_eq!(answer["keys"], json!(ours));

        let (f, before) = (Forger::newest(&w.nodes[0]), secrets(&w).len());
        w.rekey_ike(0);
        w.run(Duration::from_secs(60));
        w.assert_one();
        let opened = |response| {
            let p = sent(&w, ExchangeType::CREATE_CHILD_SA, response).last().unwrap().1.payload.clone();
            nonce(&f.open(&p).unwrap().1)
        };
        let (spi_i, spi_r, keys) = logged(&w).pop().unwrap();
        let answer = ask(&json!({
            "op": "rekey", "bits": bits, "lens": lens(&keys), "ni": hex(&opened(false)), "nr": hex(&opened(true)),
            "spi_i": hex(&spi_i.to_be_bytes()), "spi_r": hex(&spi_r.to_be_bytes()),
            "sk_d": rows.last().unwrap().2[0], "shared": secrets(&w)[before..],
        }));
        assert_eq!(answer["keys"], json!([keys]));
    }
}

#[test]
fn keys_of_a_child_with_additional_key_exchanges_are_those_of_the_oracle() {
    let mut w = World::pair(8, |c| {
        for c in c {
            c.children[0].proposals = vec![config::esp_proposal_with(&[KeId::CURVE_25519], ADD)];
        }
    });
    w.establish(0).unwrap();
    for initiator in 0..2 {
        let (f, before) = (Forger::newest(&w.nodes[0]), w.nodes[0].secrets.len());
        w.rekey_child(initiator);
        w.run(Duration::from_secs(60));
        w.assert_one();
        let opened = |response| {
            let p = sent(&w, ExchangeType::CREATE_CHILD_SA, response).last().unwrap().1.payload.clone();
            nonce(&f.open(&p).unwrap().1)
        };
        let shared: Vec<String> = w.nodes[0].secrets[before..].iter().map(|s| hex(s.expose())).collect();
        assert_eq!(shared.len(), 1 + ADD.len());
        // AES-GCM-128 with 4 bytes of salt in each direction, the initiator's first.
        let answer = ask(&json!({
            "op": "keymat", "bits": 256, "length": 40, "ni": hex(&opened(false)), "nr": hex(&opened(true)),
            "sk_d": logged(&w)[0].2[0], "shared": shared,
        }));
        let key = |from: usize| {
            let spi = w.child(from).spi_out;
            let of = |k: &KeyLog| match k {
                KeyLog::Child { spi: s, encr_key, .. } if *s == spi => Some(hex(encr_key.expose())),
                _ => None,
            };
            w.nodes[0].keys.iter().find_map(of).unwrap()
        };
        assert_eq!(answer["keymat"], json!(key(initiator) + &key(1 - initiator)));
    }
}

#[test]
fn auth_covers_what_the_oracle_says_whole_and_in_fragments() {
    for fragment_size in [10_000, 1_280, 300] {
        let w = world(PrfId::HMAC_SHA2_256, fragment_size);
        let logs: Vec<&KeyLog> = w.nodes[0].keys.iter().filter(|k| matches!(k, KeyLog::Ike { .. })).collect();
        let keys = |step: usize| match logs[step] {
            KeyLog::Ike { keys, .. } => keys,
            KeyLog::Child { .. } => unreachable!(),
        };
        let mut messages = Vec::new();
        for (step, log) in logs.iter().enumerate().take(ADD.len()) {
            let f = Forger::with(log).unwrap();
            for response in [false, true] {
                let mid = u32::try_from(step).unwrap() + 1;
                let parts: Vec<_> = sent(&w, ExchangeType::IKE_INTERMEDIATE, response)
                    .into_iter()
                    .filter(|(s, _)| s.mid == mid)
                    .map(|(_, p)| (p.payload.clone(), f.plain(&p.payload).expect("of this step")))
                    .collect();
                assert!(fragment_size != 300 || step == 1 || parts.len() > 1);
                let inner: Vec<u8> = parts.iter().flat_map(|(_, (_, _, plain))| plain.clone()).collect();
                messages.push(json!({
                    "header": hex(&parts[0].0[..28]), "first": parts[0].1.1.0, "inner": hex(&inner),
                    "sk_p": hex(keys(step)[if response { 6 } else { 5 }].expose()),
                }));
            }
        }
        let mid = 1 + ADD.len();
        let answer = ask(&json!({"op": "int_auth", "bits": 256, "messages": messages, "mid": mid}));
        let int_auth = unhex(answer["int_auth"].as_str().unwrap());
        assert_eq!(int_auth.len(), 32 + 32 + 4);

        let mac = |key: &[u8], data: &[u8]| {
            prf::get(PrfId::HMAC_SHA2_256).unwrap().mac(key, &[data]).expose().to_vec()
        };
        let f = Forger::newest(&w.nodes[0]);
        let [(ni, request), (nr, response)] = init(&w);
        for (is_response, message, nonce, sk_p) in [(false, request, nr, 5), (true, response, ni, 6)] {
            let parts: Vec<_> = sent(&w, ExchangeType::IKE_AUTH, is_response)
                .into_iter()
                .map(|(_, p)| f.plain(&p.payload).unwrap())
                .collect();
            let inner: Vec<u8> = parts.iter().flat_map(|(_, _, plain)| plain.clone()).collect();
            let payloads = parse_chain(parts[0].1, &inner, Within::Sk).unwrap();
            let id = payloads.iter().find_map(|p| match p {
                Payload::IdI(id) if !is_response => Some(id.body()),
                Payload::IdR(id) if is_response => Some(id.body()),
                _ => None,
            });
            let auth = payloads
                .iter()
                .find_map(|p| if let Payload::Auth(a) = p { Some(a.data.clone()) } else { None });
            let maced = mac(keys(ADD.len())[sk_p].expose(), &id.unwrap());
            let octets = [message, nonce, maced, int_auth.clone()].concat();
            let key = mac(b"a secret of both", b"Key Pad for IKEv2");
            assert_eq!(auth, Some(mac(&key, &octets)), "response: {is_response}, {fragment_size} bytes");
        }
    }
}

/// An initiator with a payload in clear and bits in the header of the encrypted payload: all of it
/// is in IntAuth_i1A, and the fragment with number 1 has it for the whole message (RFC 9242 section
/// 3.3.2).
#[test]
fn auth_covers_payloads_in_clear_and_reserved_bits_as_the_oracle_does() {
    let vendor = Payload::VendorId(ironswan_wire::ike::payload::VendorId(b"in clear".to_vec()));
    let generic = [&[46u8, 0, 0, 12][..], b"in clear"].concat();
    for (bits, in_clear, cut) in
        [(0, false, false), (0x80, false, false), (0x7f, false, true), (0, true, false), (0x81, true, true)]
    {
        let limits = Limits { fragment_size: 10_000, ..Limits::default() };
        let mut w = World::pair_at(9, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
            for c in c {
                c.proposals = vec![config::ike_proposal_with(&[KeId::CURVE_25519], &ADD[..1])];
            }
        });
        w.net.rules.push(Box::new(|s| match s.exchange {
            ExchangeType::IKE_SA_INIT => ironswan_testkit::Verdict::Pass,
            _ if s.node == 0 => ironswan_testkit::Verdict::Drop,
            _ => ironswan_testkit::Verdict::Pass,
        }));
        w.initiate(0);
        w.run(Duration::from_millis(300));
        let (here, there) = ("192.0.2.1:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap());
        let step = |w: &World, n: usize| {
            w.nodes[0].keys.iter().filter(|k| matches!(k, KeyLog::Ike { .. })).nth(n).unwrap().clone()
        };
        let key = |log: &KeyLog, n: usize| match log {
            KeyLog::Ike { keys, .. } => keys[n].expose().to_vec(),
            KeyLog::Child { .. } => unreachable!(),
        };
        let first_keys = step(&w, 0);
        let mut f = Forger::with(&first_keys).unwrap();
        let own = sent(&w, ExchangeType::IKE_INTERMEDIATE, false)[0].1.payload.clone();
        let (header, first, plain) = f.plain(&own).unwrap();
        let clear: &[Payload] = if in_clear { std::slice::from_ref(&vendor) } else { &[] };
        for part in f.odd(header.exchange, header.message_id, (clear, bits), (first, &plain), cut) {
            w.inject(here, there, part);
        }
        w.run(Duration::from_millis(300));
        let response = sent(&w, ExchangeType::IKE_INTERMEDIATE, true)[0].1.payload.clone();
        let (_, first_r, plain_r) = f.plain(&response).unwrap();
        let mut request = json!({
            "header": hex(&own[..28]), "first": first.0, "inner": hex(&plain), "bits": bits,
            "sk_p": hex(&key(&first_keys, 5)),
        });
        if in_clear {
            request["clear"] = json!([43, hex(&generic)]);
        }
        let answer = ask(&json!({"op": "int_auth", "bits": 256, "mid": 2, "messages": [request, {
            "header": hex(&response[..28]), "first": first_r.0, "inner": hex(&plain_r),
            "sk_p": hex(&key(&first_keys, 6)),
        }]}));
        // Node 0 has made AUTH for what it has sent itself.
        let keys = step(&w, 1);
        let mut f = Forger::with(&keys).unwrap();
        let own = sent(&w, ExchangeType::IKE_AUTH, false)[0].1.payload.clone();
        let (_, mut payloads) = f.open(&own).unwrap();
        let mac = |key: &[u8], data: &[u8]| {
            prf::get(PrfId::HMAC_SHA2_256).unwrap().mac(key, &[data]).expose().to_vec()
        };
        let id = payloads.iter().find_map(|p| if let Payload::IdI(id) = p { Some(id.body()) } else { None });
        let [(_, message), (nr, _)] = init(&w);
        let int_auth = unhex(answer["int_auth"].as_str().unwrap());
        let octets = [message, nr, mac(&key(&keys, 5), &id.unwrap()), int_auth].concat();
        for p in &mut payloads {
            if let Payload::Auth(auth) = p {
                auth.data = mac(&mac(b"a secret of both", b"Key Pad for IKEv2"), &octets);
            }
        }
        let bytes = f.message(true, ExchangeType::IKE_AUTH, false, 2, &payloads);
        w.inject(here, there, bytes);
        w.run(Duration::from_millis(300));
        assert_eq!(w.up(1).len(), 1, "{bits:#x}, a payload in clear: {in_clear}, in fragments: {cut}");
    }
}

/// SK_d and what hangs on it with a post-quantum preshared key (RFC 8784): the oracle's `ppk` makes
/// it of the keys before, a rekeying takes it and mixes nothing in again, and KEYMAT of the first
/// child comes from it.
#[test]
fn keys_with_a_ppk_and_of_what_follows_are_those_of_the_oracle() {
    for (prf, bits) in [(PrfId::HMAC_SHA2_256, 256), (PrfId::HMAC_SHA2_384, 384), (PrfId::HMAC_SHA2_512, 512)]
    {
        let mut w = World::pair(7, |c| {
            for c in c {
                let mut proposal = config::ike_proposal_with(&[KeId::CURVE_25519], &[(1, KeId::ML_KEM_768)]);
                proposal.transforms[1] = ironswan_wire::proposal::Transform::Prf(prf);
                c.proposals = vec![proposal];
                c.ppk_id = ironswan_wire::id::Identity::parse("ppk.example");
                c.ppk_intermediate = false;
            }
        });
        w.nodes.iter_mut().for_each(|node| node.endpoint.load_ppk(config::ppk("ppk.example", 0x5a)));
        w.establish(0).unwrap();
        let rows = logged(&w);
        // After each key exchange, then with the PPK.
        assert_eq!(rows.len(), 3);
        let (_, _, before) = &rows[1];
        let (spi_i, spi_r, with) = &rows[2];
        let answer = ask(&json!({"op": "ppk", "bits": bits, "ppk": "5a".repeat(32), "keys": before}));
        assert_eq!(answer["keys"], json!([with]));
        assert_eq!(before[1..5], with[1..5], "SK_a and SK_e are as before");

        // KEYMAT = prf+(SK_d, Ni | Nr): the first 20 bytes are the initiator's key and salt.
        let [(ni, _), (nr, _)] = init(&w);
        let sk_d = unhex(&with[0]);
        let p = prf::get(prf).unwrap();
        let keymat = prf::prf_plus(p, &sk_d, &[&ni, &nr], 40);
        let child = w.nodes[0].keys.iter().find_map(|k| match k {
            KeyLog::Child { encr_key, src, .. } if src.ip() == config::ip("192.0.2.1") => {
                Some(encr_key.clone())
            }
            _ => None,
        });
        assert_eq!(child.unwrap().expose(), &keymat.expose()[..20]);

        let secrets =
            |w: &World| -> Vec<String> { w.nodes[0].secrets.iter().map(|s| hex(s.expose())).collect() };
        let (f, done) = (Forger::newest(&w.nodes[0]), secrets(&w).len());
        w.rekey_ike(0);
        w.run(Duration::from_secs(60));
        w.assert_one();
        let opened = |response| {
            let p = sent(&w, ExchangeType::CREATE_CHILD_SA, response).last().unwrap().1.payload.clone();
            nonce(&f.open(&p).unwrap().1)
        };
        let after = logged(&w);
        assert_eq!(after.len(), 4, "a rekeying mixes no PPK in");
        let (new_i, new_r, keys) = after.last().unwrap();
        assert_ne!((new_i, new_r), (spi_i, spi_r));
        let answer = ask(&json!({
            "op": "rekey", "bits": bits, "lens": lens(keys), "ni": hex(&opened(false)), "nr": hex(&opened(true)),
            "spi_i": hex(&new_i.to_be_bytes()), "spi_r": hex(&new_r.to_be_bytes()),
            "sk_d": with[0], "shared": secrets(&w)[done..],
        }));
        assert_eq!(answer["keys"], json!([keys]));
    }
}

/// All keys of an IKE_SA with a PPK in IKE_INTERMEDIATE (RFC 9867), and the PPK Confirmation of the
/// request.
#[test]
fn keys_with_a_ppk_in_ike_intermediate_and_its_confirmation_are_those_of_the_oracle() {
    let none: &[(u8, KeId)] = &[];
    for (prf, bits, add) in [
        (PrfId::HMAC_SHA2_256, 256, none),
        (PrfId::HMAC_SHA2_384, 384, &[(1, KeId::ML_KEM_768)]),
        (PrfId::HMAC_SHA2_512, 512, ADD),
    ] {
        // The last request is one packet.
        let limits = Limits { fragment_size: 10_000, ..Limits::default() };
        let mut w = World::pair_at(7, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
            for c in c {
                let mut proposal = config::ike_proposal_with(&[KeId::CURVE_25519], add);
                proposal.transforms[1] = ironswan_wire::proposal::Transform::Prf(prf);
                c.proposals = vec![proposal];
                c.ppk_id = ironswan_wire::id::Identity::parse("ppk.example");
            }
        });
        w.nodes.iter_mut().for_each(|node| node.endpoint.load_ppk(config::ppk("ppk.example", 0x5a)));
        w.establish(0).unwrap();
        let rows = logged(&w);
        assert_eq!(rows.len(), 1 + add.len().max(1));
        let [(ni, _), (nr, _)] = init(&w);
        let (spi_i, spi_r, first) = &rows[0];
        let secrets: Vec<String> = w.nodes[0].secrets.iter().map(|s| hex(s.expose())).collect();
        let answer = ask(&json!({
            "op": "ppk_int", "bits": bits, "lens": lens(first), "ni": hex(&ni), "nr": hex(&nr),
            "spi_i": hex(&spi_i.to_be_bytes()), "spi_r": hex(&spi_r.to_be_bytes()), "shared": secrets,
            "ppk": "5a".repeat(32),
        }));
        let ours: Vec<_> = rows.iter().map(|(_, _, keys)| keys.clone()).collect();
        assert_eq!(answer["keys"], json!(ours));

        // The request is under the keys before the PPK, which are those of the row before.
        let logs: Vec<&KeyLog> = w.nodes[0].keys.iter().filter(|k| matches!(k, KeyLog::Ike { .. })).collect();
        let f = Forger::with(logs[logs.len() - 2]).unwrap();
        let request = &sent(&w, ExchangeType::IKE_INTERMEDIATE, false).last().unwrap().1.payload;
        let (_, payloads) = f.open(request).expect("the last request");
        let offers: Vec<_> = payloads
            .iter()
            .filter_map(|p| match p {
                Payload::Notify(n) if n.kind == ironswan_wire::iana::NotifyType::PPK_IDENTITY_KEY => {
                    Some(hex(&n.data))
                }
                _ => None,
            })
            .collect();
        let name = hex(b"\x02ppk.example");
        assert_eq!(offers, [format!("{name}{}", answer["confirmation"].as_str().unwrap())]);
    }
}
