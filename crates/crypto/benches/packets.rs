//! Nanoseconds per packet of `batch::seal` and `batch::open`, for every suite at 64 and 1,400 bytes
//! of text, and of `icv::sign` and `icv::verify`.
//!
//! ```text
//! cargo bench -p ironswan-crypto                 all suites, 5 repeats, medians
//! cargo bench -p ironswan-crypto -- gcm 9        names that contain "gcm", 9 repeats
//! ```
//!
//! The variants take turns within a repeat, so that a change of the machine's clock meets all of
//! them. `aws-lc-rs` is the same AEAD through `LessSafeKey`, with the same nonce and additional
//! data, for comparison. Packets lie side by side in a buffer that fits the second-level cache;
//! refilling it before `open` is not timed. The last lines use 10,000 SAs at random. Not here:
//! anything but crypto (the whole packet path is in the laboratory).

use std::hint::black_box;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::icv::{self, IcvJob, IcvKey};
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

/// Packets per call.
const BATCH: usize = 64;
/// Time per variant and repeat.
const SLICE: Duration = Duration::from_millis(40);

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// One thing to measure: a call works on a whole batch and returns the time that counts.
struct Variant {
    name: String,
    len: usize,
    call: Box<dyn FnMut() -> Duration>,
    samples: Vec<f64>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let filter = args.iter().find(|a| a.parse::<usize>().is_err()).cloned().unwrap_or_default();
    let repeats = args.iter().find_map(|a| a.parse().ok()).unwrap_or(5);

    let mut variants = Vec::new();
    for len in [64, 1400] {
        for (name, suite) in suites() {
            variants.extend(through_batch(&name, suite, len, 1));
        }
        for (name, integ) in AH {
            variants.extend(through_icv(name, integ, len));
        }
        variants.extend(through_aws_lc_rs(len));
        for (name, suite) in suites().into_iter().take(1) {
            variants.extend(through_batch(&format!("{name}, 10,000 SAs"), suite, len, 10_000));
        }
    }
    variants.retain(|v| v.name.contains(&filter));
    for _ in 0..repeats {
        variants.iter_mut().for_each(sample);
    }
    println!(
        "{:<44} {:>6} {:>10} {:>10} {:>8}",
        "ns per packet, median (min) of repeats", "bytes", "", "", "Gb/s"
    );
    for v in &mut variants {
        v.samples.sort_by(f64::total_cmp);
        let median = v.samples[v.samples.len() / 2];
        let gbps = v.len as f64 * 8.0 / median;
        println!(
            "{:<44} {:>6} {median:>10.1} {:>10} {gbps:>8.2}",
            v.name,
            v.len,
            format!("({:.1})", v.samples[0])
        );
    }
}

/// Runs a variant for its slice and notes nanoseconds per packet.
fn sample(v: &mut Variant) {
    (v.call)();
    let (mut spent, mut calls) = (Duration::ZERO, 0u32);
    while spent < SLICE {
        spent += (v.call)();
        calls += 1;
    }
    v.samples.push(spent.as_nanos() as f64 / f64::from(calls) / BATCH as f64);
}

fn suites() -> Vec<(String, EspSuite)> {
    let suite = |encr, key_bits, integ| EspSuite { encr, key_bits, integ, ke: None, esn: false };
    let mut out = vec![
        ("aes128gcm16".into(), suite(EncrId::AES_GCM_16, 128, None)),
        ("aes256gcm16".into(), suite(EncrId::AES_GCM_16, 256, None)),
        ("chacha20poly1305".into(), suite(EncrId::CHACHA20_POLY1305, 256, None)),
    ];
    for (name, encr) in [
        ("aes128gcm8", EncrId::AES_GCM_8),
        ("aes128gcm16iiv", EncrId::AES_GCM_16_IIV),
        ("aes128gmac", EncrId::NULL_AES_GMAC),
        ("aes128ccm16", EncrId::AES_CCM_16),
        ("aes128ccm8", EncrId::AES_CCM_8),
    ] {
        out.push((name.into(), suite(encr, 128, None)));
    }
    out.push(("aes128gmac esn".into(), EspSuite { esn: true, ..suite(EncrId::NULL_AES_GMAC, 128, None) }));
    out.push(("aes256ccm16".into(), suite(EncrId::AES_CCM_16, 256, None)));
    for (mac, id) in [
        ("md5", IntegId::HMAC_MD5_96),
        ("aesxcbc", IntegId::AES_XCBC_96),
        ("aescmac", IntegId::AES_CMAC_96),
        ("sha1", IntegId::HMAC_SHA1_96),
        ("sha256", IntegId::HMAC_SHA2_256_128),
        ("sha384", IntegId::HMAC_SHA2_384_192),
        ("sha512", IntegId::HMAC_SHA2_512_256),
    ] {
        out.push((format!("aes128-{mac}"), suite(EncrId::AES_CBC, 128, Some(id))));
        out.push((format!("null-{mac}"), suite(EncrId::NULL, 0, Some(id))));
    }
    out.push(("aes256-sha256".into(), suite(EncrId::AES_CBC, 256, Some(IntegId::HMAC_SHA2_256_128))));
    out.push(("aes128ctr-sha256".into(), suite(EncrId::AES_CTR, 128, Some(IntegId::HMAC_SHA2_256_128))));
    out.push(("aes256ctr-sha256".into(), suite(EncrId::AES_CTR, 256, Some(IntegId::HMAC_SHA2_256_128))));
    out.push(("3des-sha1".into(), suite(EncrId::DES3, 0, Some(IntegId::HMAC_SHA1_96))));
    out
}

/// `seal` and `open` of this crate, each packet under one of `sas` keys at random.
fn through_batch(name: &str, suite: EspSuite, len: usize, sas: usize) -> [Variant; 2] {
    let mut rng = Seeded::new(1);
    let (encr_len, integ_len) = batch::keymat_lens(&suite).expect("a supported suite");
    let encr_key: Vec<u8> = (0..encr_len).map(|i| i as u8).collect();
    let integ_key = vec![2; integ_len];
    let keys: &'static [Box<EspKey>] = Vec::leak(
        (0..sas)
            .map(|_| EspKey::new(&suite, &encr_key, &integ_key, &mut rng).expect("a valid suite"))
            .collect(),
    );
    let keys: &'static [&'static EspKey] = Vec::leak(keys.iter().map(|key| &**key).collect());
    let text = len.next_multiple_of(keys[0].block_len());
    let packet = 8 + keys[0].iv_len() + text + keys[0].icv_len();
    let mut seq = 0;
    let mut rounds: Vec<Vec<Job>> = (0..if sas > 1 { 256 } else { 1 })
        .map(|_| {
            (0..BATCH)
                .map(|i| Job {
                    start: (i * packet) as u32,
                    len: packet as u32,
                    seq: i as u64,
                    key: (rng.u32() as usize % sas) as u16,
                    ok: false,
                })
                .collect()
        })
        .collect();
    let mut buf = vec![0; BATCH * packet];
    let mut ready: Vec<Vec<u8>> = Vec::new();
    for jobs in &mut rounds {
        buf.fill(3);
        number(&mut buf, jobs);
        batch::seal(&mut buf, jobs, keys);
        ready.push(buf.clone());
    }
    let mut jobs_open = rounds.clone();
    let (mut buf_open, mut turn, mut turn_open) = (buf.clone(), 0, 0);
    let seal = move || {
        turn = (turn + 1) % rounds.len();
        let jobs = &mut rounds[turn];
        for job in jobs.iter_mut() {
            seq += 1;
            job.seq = seq;
        }
        number(&mut buf, jobs);
        let start = now();
        batch::seal(black_box(&mut buf), jobs, keys);
        let spent = start.elapsed();
        assert!(jobs.iter().all(|j| j.ok));
        spent
    };
    let open = move || {
        turn_open = (turn_open + 1) % jobs_open.len();
        let jobs = &mut jobs_open[turn_open];
        buf_open.copy_from_slice(&ready[turn_open]);
        let start = now();
        batch::open(black_box(&mut buf_open), jobs, keys);
        let spent = start.elapsed();
        assert!(jobs.iter().all(|j| j.ok));
        spent
    };
    [variant(name, "seal", text, seal), variant(name, "open", text, open)]
}

/// Writes the sequence numbers, which implicit IVs are made of.
fn number(buf: &mut [u8], jobs: &[Job]) {
    for job in jobs {
        let at = job.start as usize + 4;
        buf[at..at + 4].copy_from_slice(&(job.seq as u32).to_be_bytes());
    }
}

/// AH's algorithms that ESP's lines do not show.
const AH: [(&str, IntegId); 3] = [
    ("ah sha256", IntegId::HMAC_SHA2_256_128),
    ("ah aescmac", IntegId::AES_CMAC_96),
    ("ah aes128gmac", IntegId::AES_128_GMAC),
];

/// `icv::sign` and `icv::verify`: 20 bytes of zeroed IP header apart, AH and payload in place, with
/// ESN.
fn through_icv(name: &str, integ: IntegId, len: usize) -> [Variant; 2] {
    let key = vec![2; icv::key_len(integ).expect("a supported algorithm")];
    let key: &'static IcvKey = Box::leak(IcvKey::new(integ, &key, true).expect("a valid key"));
    let (head, packet) = (vec![1; 20], 12 + key.field_len() + len);
    let mut buf = vec![3; BATCH * packet];
    let mut jobs: Vec<IcvJob> = (0..BATCH)
        .map(|i| IcvJob {
            head_len: head.len() as u32,
            start: (i * packet) as u32,
            len: packet as u32,
            field: (i * packet + 12) as u32,
            seq: i as u64,
            ..IcvJob::default()
        })
        .collect();
    icv::sign(&head, &mut buf, &mut jobs, &[key]);
    let (ready, heads, mut jobs_verify) = (buf.clone(), head.clone(), jobs.clone());
    let sign = move || {
        jobs.iter_mut().for_each(|job| job.seq += BATCH as u64);
        let start = now();
        icv::sign(&head, black_box(&mut buf), &mut jobs, &[key]);
        let spent = start.elapsed();
        assert!(jobs.iter().all(|j| j.ok));
        spent
    };
    let verify = move || {
        let start = now();
        icv::verify(&heads, black_box(&ready), &mut jobs_verify, &[key]);
        let spent = start.elapsed();
        assert!(jobs_verify.iter().all(|j| j.ok));
        spent
    };
    [variant(name, "sign", len, sign), variant(name, "verify", len, verify)]
}

/// The same AEADs through aws-lc-rs.
fn through_aws_lc_rs(len: usize) -> Vec<Variant> {
    let mut out = Vec::new();
    for (name, algorithm, key_len) in [
        ("aws-lc-rs aes128gcm16", &AES_128_GCM, 16),
        ("aws-lc-rs aes256gcm16", &AES_256_GCM, 32),
        ("aws-lc-rs chacha20poly1305", &CHACHA20_POLY1305, 32),
    ] {
        let key: &'static LessSafeKey = Box::leak(Box::new(LessSafeKey::new(
            UnboundKey::new(algorithm, &vec![1; key_len]).expect("a valid key length"),
        )));
        let packet = 16 + len + 16;
        let nonce = |seq: u64| {
            let mut n = [1; 12];
            n[4..].copy_from_slice(&seq.to_be_bytes());
            Nonce::assume_unique_for_key(n)
        };
        let mut seq = 0;
        let mut sealed = vec![3; BATCH * packet];
        for (i, p) in sealed.chunks_mut(packet).enumerate() {
            seal_one(key, nonce(i as u64), p, len);
        }
        let (mut buf, mut buf_open) = (sealed.clone(), sealed.clone());
        let seal = move || {
            let start = now();
            for p in black_box(&mut buf).chunks_mut(packet) {
                seq += 1;
                seal_one(key, nonce(seq), p, len);
            }
            start.elapsed()
        };
        let open = move || {
            buf_open.copy_from_slice(&sealed);
            let start = now();
            for (i, p) in black_box(&mut buf_open).chunks_mut(packet).enumerate() {
                let (head, text) = p.split_at_mut(16);
                key.open_in_place(nonce(i as u64), Aad::from(&head[..8]), text).expect("authentic");
            }
            start.elapsed()
        };
        out.extend([variant(name, "seal", len, seal), variant(name, "open", len, open)]);
    }
    out
}

fn seal_one(key: &LessSafeKey, nonce: Nonce, packet: &mut [u8], len: usize) {
    let (head, rest) = packet.split_at_mut(16);
    let (text, icv) = rest.split_at_mut(len);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&head[..8]), text).expect("sealed");
    icv.copy_from_slice(tag.as_ref());
}

fn variant(name: &str, what: &str, len: usize, call: impl FnMut() -> Duration + 'static) -> Variant {
    Variant { name: format!("{name} {what}"), len, call: Box::new(call), samples: Vec::new() }
}
