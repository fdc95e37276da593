//! Every engine beside the others, and beside OpenSSL, which works packet by packet.
//!
//! ```text
//! cargo bench -p ironswan-crypto --bench engines [--features ipsec-mb] [-- ROUNDS]
//! ```
//!
//! First the table of the self-test at start (`Engines::select`): suites, sizes, nanoseconds per
//! packet sealed / opened. Then MB/s of text for packets of 1,456 bytes in batches of 64, the best
//! batch of some rounds, with the rates that `openssl speed` prints in the same rounds: the
//! stitched cipher and HMAC of TLS, which neither sets up nor ends an HMAC per packet, and cipher
//! and HMAC one after the other, which is what other suites get. Without the program `openssl`
//! these lines are missing.

use std::process::Command;
use std::time::{Duration, Instant};

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::engines::{EngineId, Engines};
use ironswan_crypto::rng::Seeded;
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

const TEXT: usize = 1456;
const BATCH: usize = 64;
const SLICE: Duration = Duration::from_millis(100);

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// What OpenSSL is asked for.
const YARDSTICKS: [&[&str]; 6] = [
    &["-evp", "des-ede3-cbc"],
    &["-evp", "aes-128-cbc"],
    &["-hmac", "sha1"],
    &["-hmac", "sha256"],
    &["-evp", "aes-128-cbc-hmac-sha1"],
    &["-evp", "aes-128-cbc-hmac-sha256"],
];

fn main() {
    let rounds = std::env::args().find_map(|a| a.parse().ok()).unwrap_or(5);
    table();
    let suites = [
        ("3des-sha1", EncrId::DES3, 0, IntegId::HMAC_SHA1_96, [0, 2], None),
        ("aes128-sha1", EncrId::AES_CBC, 128, IntegId::HMAC_SHA1_96, [1, 2], Some(4)),
        ("aes128-sha256", EncrId::AES_CBC, 128, IntegId::HMAC_SHA2_256_128, [1, 3], Some(5)),
    ];
    let mut openssl = [0.0f64; YARDSTICKS.len()];
    let mut best = vec![[0.0f64; 2]; suites.len() * EngineId::ALL.len()];
    for _ in 0..rounds {
        for (args, best) in YARDSTICKS.iter().zip(&mut openssl) {
            *best = best.max(speed(args).unwrap_or(0.0));
        }
        for (i, (_, encr, key_bits, integ, ..)) in suites.iter().enumerate() {
            let suite =
                EspSuite { encr: *encr, key_bits: *key_bits, integ: Some(*integ), ke: None, esn: false };
            for (j, id) in EngineId::ALL.into_iter().enumerate() {
                let engines = Engines::only(id);
                if id.missing().is_none() && engines.engine(&suite, TEXT) == id {
                    let rates = ours(&suite, &engines);
                    let best = &mut best[i * EngineId::ALL.len() + j];
                    *best = [best[0].max(rates[0]), best[1].max(rates[1])];
                }
            }
        }
    }
    println!("\nMB/s at {TEXT} bytes, best of {rounds} rounds");
    for (args, rate) in YARDSTICKS.iter().zip(openssl) {
        println!("{:<44} {rate:>9.1}", format!("openssl speed {}", args.join(" ")));
    }
    println!("{:<28} {:>9} {:>9}   sealing, times OpenSSL's: apart, stitched", "", "seal", "open");
    for (i, (name, .., parts, stitched)) in suites.iter().enumerate() {
        let apart = 1.0 / parts.iter().map(|p| 1.0 / openssl[*p]).sum::<f64>();
        for (j, id) in EngineId::ALL.into_iter().enumerate() {
            let [seal, open] = best[i * EngineId::ALL.len() + j];
            if seal > 0.0 {
                let stitched =
                    stitched.map_or_else(|| "-".to_owned(), |s: usize| format!("{:.2}", seal / openssl[s]));
                println!(
                    "{:<28} {seal:>9.1} {open:>9.1}   {:.2}  {stitched}",
                    format!("{name} {id}"),
                    seal / apart
                );
            }
        }
    }
}

/// What the daemon sees when it starts.
fn table() {
    let began = now();
    let selection = Engines::select(
        &mut || u64::try_from(now().duration_since(began).as_nanos()).unwrap_or(u64::MAX),
        None,
    );
    println!("self-test: {} ms", now().duration_since(began).as_millis());
    selection.warnings.iter().for_each(|line| println!("{line}"));
    for line in &selection.table {
        let speeds: Vec<String> =
            line.speeds.iter().map(|s| format!("{} {} / {}", s.engine, s.seal_ns, s.open_ns)).collect();
        println!("{:<18} {:>5}  {:<9} {}", line.suite, line.size, line.chosen.name(), speeds.join("   "));
    }
}

/// MB/s of text sealed and opened.
fn ours(suite: &EspSuite, engines: &Engines) -> [f64; 2] {
    let (encr_len, integ_len) = batch::keymat_lens(suite).expect("a supported suite");
    let encr_key: Vec<u8> = (0..encr_len).map(|i| i as u8).collect();
    let key = EspKey::with_engines(suite, &encr_key, &vec![2; integ_len], &mut Seeded::new(1), engines)
        .expect("a valid suite");
    let packet = 8 + key.iv_len() + TEXT + key.icv_len();
    let mut buf = vec![3; BATCH * packet];
    let mut jobs: Vec<Job> = (0..BATCH)
        .map(|i| Job { start: (i * packet) as u32, len: packet as u32, seq: i as u64, key: 0, ok: false })
        .collect();
    // The least, since `openssl speed` counts its own processor time only, and the machine may have
    // other work.
    let mut least = [Duration::MAX; 2];
    let start = now();
    while now().duration_since(start) < SLICE {
        for (work, least) in [batch::seal, batch::open].into_iter().zip(&mut least) {
            let began = now();
            work(&mut buf, &mut jobs, &[&key]);
            *least = (*least).min(now().duration_since(began));
            assert!(jobs.iter().all(|job| job.ok));
        }
    }
    least.map(|least| (BATCH * TEXT) as f64 / least.as_secs_f64() / 1e6)
}

/// What `openssl speed` says, in MB/s.
fn speed(args: &[&str]) -> Option<f64> {
    let out = Command::new("openssl")
        .args(["speed", "-mr", "-seconds", "1", "-bytes", &TEXT.to_string()])
        .args(args)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    // The last field of the line that begins with +F (ciphers) is bytes a second.
    let line = text.lines().find(|line| line.starts_with("+F"))?;
    line.rsplit(':').next()?.trim().parse::<f64>().ok().map(|rate| rate / 1e6)
}
