//! Looks through the whole writable memory of a process of its own for what a key left behind: its
//! bytes as they were given, and everything that was derived of them (key schedules, powers of H,
//! HMAC states), on dead stacks and in freed memory.
//!
//! The secrets searched for are kept masked and compared as hashes, so that the search does not
//! find its own copies.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};

use ironswan_wire::iana::{EncrId, KeId, PrfId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::secret::Secret;
use zeroize::{Zeroize, Zeroizing};

use super::tests::{packet, suites};
use super::{EspKey, Job, keymat_lens, open, seal};
use crate::engines::{EngineId, Engines};
use crate::icv::{self, IcvJob, IcvKey};
use crate::message::{self, Expanded, MessageKey};
use crate::rng::System;
use crate::sign::{self, KeyKind, Legacy, PrivateKey};
use crate::testing::{Place, count};
use crate::{kex, prf};

/// In the environment of the process that is looked through.
const ROLE: &str = "IRONSWAN_LOOK_FOR_KEYS";
/// Bytes that are compared at a time.
const WINDOW: usize = 8;
/// Copies of less than this and two windows' distance are not found: the memory is looked at in
/// steps of so many bytes.
const STEP: usize = 4;

/// The secrets to search for, as masked windows.
struct Traces {
    mask: u64,
    /// Windows, each with the secret that it is of and its offset there.
    masked: HashMap<u64, (usize, usize)>,
    /// Whether there may be a window with such bits.
    filter: Vec<bool>,
}

impl Traces {
    fn new() -> Self {
        let mut mask = [0; WINDOW];
        random(&mut mask);
        Self { mask: u64::from_ne_bytes(mask), masked: HashMap::new(), filter: vec![false; 1 << 16] }
    }

    /// Bits of a window for the filter.
    fn bits(masked: u64) -> usize {
        (masked.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
    }

    /// Every window of `bytes` that `other`, the same of another key, has not got: no constants,
    /// and no pointers, whose first bytes are zeros.
    fn learn(&mut self, secret: usize, bytes: &[u8], other: &[u8]) {
        for (at, window) in bytes.windows(WINDOW).enumerate() {
            let zeros = window.iter().filter(|b| **b == 0).count();
            if zeros < 2 && other.get(at..at + WINDOW).is_none_or(|other| other != window) {
                let masked = u64::from_ne_bytes(window.try_into().unwrap()) ^ self.mask;
                self.masked.insert(masked, (secret, at));
                self.filter[Self::bits(masked)] = true;
            }
        }
    }

    /// Which windows are in the memory that begins at an address.
    fn find<'a>(&'a self, from: usize, bytes: &'a [u8]) -> impl Iterator<Item = Found> + 'a {
        bytes.windows(WINDOW).enumerate().step_by(STEP).filter_map(move |(at, window)| {
            let masked = u64::from_ne_bytes(window.try_into().unwrap()) ^ self.mask;
            let (secret, offset) =
                self.filter[Self::bits(masked)].then(|| self.masked.get(&masked)).flatten()?;
            Some(Found { at: from + at, secret: *secret, offset: *offset })
        })
    }
}

/// A window that was found.
#[derive(Clone, Copy)]
struct Found {
    /// Address of the finding.
    at: usize,
    /// Number of the secret, in the order in which the case has named them, and offset in it. The
    /// bytes themselves are not shown.
    secret: usize,
    offset: usize,
}

/// The memory of this process.
struct Memory {
    file: File,
    buf: Zeroizing<Vec<u8>>,
}

impl Memory {
    fn new() -> Self {
        let file = File::open("/proc/self/mem").expect("our own memory");
        Self { file, buf: Zeroizing::new(vec![0; 256 * 1024]) }
    }

    fn read(&self, (at, len): Place) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(vec![0; len]);
        self.file.read_exact_at(&mut bytes, at as u64).expect("memory that is there");
        bytes
    }

    /// Searches the whole memory for the traces, and returns each place with its findings.
    fn search(&mut self, traces: &Traces) -> Vec<(String, Vec<Found>)> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own memory's list");
        let own = self.buf.as_ptr().addr()..self.buf.as_ptr().addr() + self.buf.len();
        let mut out = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(access)) = (words.next(), words.next()) else { continue };
            let name = words.nth(3).unwrap_or("memory without a name").to_owned();
            let Some((from, to)) = range.split_once('-') else { continue };
            let [from, to] = [from, to].map(|hex| usize::from_str_radix(hex, 16).expect("an address"));
            if !access.starts_with("rw") || name.starts_with("[v") {
                continue;
            }
            let mut found = Vec::new();
            for piece in [from..to.min(own.start).max(from), from.max(own.end).min(to)..to] {
                let mut at = piece.start;
                while at + WINDOW <= piece.end {
                    let len = self.buf.len().min(piece.end - at);
                    if self.file.read_exact_at(&mut self.buf[..len], at as u64).is_ok() {
                        found.extend(traces.find(at, &self.buf[..len]));
                    }
                    // The windows across two pieces too.
                    at += if len == self.buf.len() { len - WINDOW } else { len };
                }
                self.buf.zeroize();
                self.buf.resize(256 * 1024, 0);
            }
            if !found.is_empty() {
                out.push((format!("{from:x}-{to:x} {name}"), found));
            }
        }
        out
    }
}

fn random(bytes: &mut [u8]) {
    File::open("/dev/urandom").expect("the system's random bytes").read_exact(bytes).expect("enough of them");
}

/// Runs `work` far below the frames of the caller, so that what the caller does next does not
/// happen to overwrite what
/// `work` left on the stack.
#[inline(never)]
fn far_below(work: &mut dyn FnMut()) {
    let mut between = [0u8; 16 * 1024];
    std::hint::black_box(&mut between);
    work();
    std::hint::black_box(&mut between);
}

/// One thing that has secrets, in the thread whose stack is looked at.
trait Case: Send {
    /// Makes the secrets and says where they are.
    fn make(&mut self) -> Vec<Place>;
    /// Works with them.
    fn work(&mut self);
    /// Drops them.
    fn end(&mut self);
}

/// The thread that makes, uses and drops keys, one step whenever it is told.
fn worker(cases: &Receiver<Box<dyn Case>>, go: &Receiver<()>, told: &Sender<Vec<Place>>) {
    while let Ok(mut case) = cases.recv() {
        let mut places = Vec::new();
        far_below(&mut || places = case.make());
        told.send(places).unwrap();
        go.recv().unwrap();
        far_below(&mut || case.work());
        far_below(&mut || case.end());
        told.send(Vec::new()).unwrap();
        go.recv().unwrap();
        drop(case);
    }
}

/// Makes and drops the case after another one of its kind, and looks for what is left of it.
struct Search {
    cases: Sender<Box<dyn Case>>,
    go: Sender<()>,
    told: Receiver<Vec<Place>>,
    memory: Memory,
}

impl Search {
    fn new() -> Self {
        let ((cases, their_cases), (go, their_go), (their_told, told)) = (channel(), channel(), channel());
        std::thread::spawn(move || worker(&their_cases, &their_go, &their_told));
        Self { cases, go, told, memory: Memory::new() }
    }

    fn made(&mut self, case: Box<dyn Case>) -> Vec<Zeroizing<Vec<u8>>> {
        self.cases.send(case).unwrap();
        self.told.recv().unwrap().into_iter().map(|place| self.memory.read(place)).collect()
    }

    fn dropped(&mut self) {
        self.go.send(()).unwrap();
        self.told.recv().unwrap();
    }

    /// Traces that are left of the second of two cases of a kind, and proof that the traces were
    /// there before.
    fn left(&mut self, used: bool, case: &dyn Fn() -> Box<dyn Case>) -> (usize, Vec<String>) {
        let other = self.made(case());
        self.dropped();
        self.go.send(()).unwrap();
        let mut traces = Traces::new();
        let mine = self.made(case());
        far_below(&mut || {
            for (i, bytes) in mine.iter().enumerate() {
                traces.learn(i, bytes, other.get(i).map_or(&[], |other| &other[..]));
            }
        });
        drop((mine, other));
        // Learning the secrets has left copies on this thread's own stack.
        crate::wipe::overwrite::<{ 64 * 1024 }>();
        // Secrets that nobody has used yet show that the search finds what is there.
        let alive = if used { usize::MAX } else { self.memory.search(&traces).len() };
        crate::wipe::overwrite::<{ 64 * 1024 }>();
        self.dropped();
        let left = self.memory.search(&traces).into_iter().map(|(memory, found)| {
            let mut text = format!("{} windows in {memory}:", found.len());
            for Found { at, secret, offset } in found.iter().take(4) {
                text += &format!(" secret {secret} from {offset} on at {at:x},");
            }
            text
        });
        let left = left.collect();
        self.go.send(()).unwrap();
        (alive, left)
    }
}

/// Keying material, its key, and a batch of packets.
struct OneKey {
    suite: EspSuite,
    engines: Engines,
    keymat: [Zeroizing<Vec<u8>>; 2],
    key: Option<Box<EspKey>>,
    packets: usize,
}

impl OneKey {
    fn new(suite: EspSuite, engines: Engines, packets: usize) -> Self {
        let (encr, integ) = keymat_lens(&suite).expect("a suite that there is");
        let keymat = [encr, integ].map(|len| Zeroizing::new(vec![0; len]));
        Self { suite, engines, keymat, key: None, packets }
    }
}

impl Case for OneKey {
    fn make(&mut self) -> Vec<Place> {
        self.keymat.iter_mut().for_each(|keymat| random(keymat));
        let [encr, integ] = &self.keymat;
        self.key = EspKey::with_engines(&self.suite, encr, integ, &mut System, &self.engines);
        let key = self.key.as_deref().expect("a key");
        let mut places = key.places();
        places.extend(self.keymat.iter().map(|keymat| (keymat.as_ptr().addr(), keymat.len())));
        places
    }

    fn work(&mut self) {
        let Some(key) = self.key.as_deref() else { return };
        let (mut buf, mut jobs) = (Vec::new(), Vec::new());
        for i in 0..self.packets {
            let len = (16 + 90 * i).next_multiple_of(key.block_len());
            let packet = packet(key, "00001001", i as u64, &count(1, len));
            jobs.push(Job {
                start: buf.len() as u32,
                len: packet.len() as u32,
                seq: i as u64,
                key: 0,
                ok: false,
            });
            buf.extend(packet);
        }
        seal(&mut buf, &mut jobs, &[key]);
        assert!(jobs.iter().all(|job| job.ok));
        open(&mut buf, &mut jobs, &[key]);
        assert!(jobs.iter().all(|job| job.ok));
    }

    fn end(&mut self) {
        self.key = None;
        self.keymat.iter_mut().for_each(|keymat| keymat.zeroize());
    }
}

/// Runs a test in a process of its own, whose memory is small and in which nothing else happens.
fn alone(name: &str, child: impl FnOnce()) {
    if std::env::var_os(ROLE).is_some() {
        return child();
    }
    let this = std::env::current_exe().expect("the path of this test");
    let out = Command::new(this).args(["--exact", name, "--nocapture"]).env(ROLE, "1").output();
    let out = out.expect("this test again");
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    print!("{text}{errors}");
    assert!(out.status.success() && text.contains("1 passed"), "the process says why, above");
}

/// Looks at cases, one after the other, and says of how many something is left. What is left once
/// and not again is none of a key's own traces, which are always the same, but the search's: it has
/// had the secret in its registers.
#[derive(Default)]
struct Tally {
    looked: usize,
    faults: usize,
}

impl Tally {
    fn look(&mut self, search: &mut Search, what: &str, used: bool, case: &dyn Fn() -> Box<dyn Case>) {
        self.looked += 1;
        for _ in 0..3 {
            let (alive, left) = search.left(used, case);
            assert!(alive > 0, "{what}: the search does not find a secret that is there");
            if left.is_empty() {
                return;
            }
            println!("{what}{}: {left:?}", if used { ", used" } else { "" });
        }
        self.faults += 1;
    }

    fn end(self) {
        println!("{} secrets, of {} something is left", self.looked, self.faults);
        assert_eq!(self.faults, 0);
    }
}

#[test]
fn nothing_of_a_packet_key_is_left_when_it_is_dropped() {
    alone("batch::wiped::nothing_of_a_packet_key_is_left_when_it_is_dropped", || {
        let (mut search, mut tally) = (Search::new(), Tally::default());
        for packets in [0, 17] {
            for id in EngineId::available() {
                let engines = Engines::only(id);
                let ours = |suite: &EspSuite| !suite.esn && engines.engine(suite, 700) == id;
                for suite in suites().into_iter().filter(ours) {
                    tally.look(&mut search, &format!("{id} {suite}"), packets > 0, &|| {
                        Box::new(OneKey::new(suite, engines, packets)) as Box<dyn Case>
                    });
                }
            }
        }
        tally.end();
    });
}

/// SK_e and SK_a, or a key of AH.
struct OtherKey {
    suite: EspSuite,
    keymat: [Zeroizing<Vec<u8>>; 2],
    /// With its keys expanded, as each message expands them.
    message: Option<(MessageKey, Expanded)>,
    icv: Option<Box<IcvKey>>,
}

impl Case for OtherKey {
    fn make(&mut self) -> Vec<Place> {
        self.keymat.iter_mut().for_each(|keymat| random(keymat));
        let ([encr, integ], suite) = (&self.keymat, &self.suite);
        let mut places = if suite.encr == EncrId::NULL {
            self.icv = IcvKey::new(suite.integ.expect("an algorithm"), integ, true);
            self.icv.as_ref().expect("a key").places()
        } else {
            let key = MessageKey::new(suite.encr, suite.key_bits, suite.integ, encr, integ).expect("a key");
            let expanded = key.expand();
            let places = [expanded.places(), key.places()].concat();
            self.message = Some((key, expanded));
            places
        };
        places.extend(self.keymat.iter().map(|keymat| (keymat.as_ptr().addr(), keymat.len())));
        places
    }

    fn work(&mut self) {
        if let Some((key, _)) = &self.message {
            let (mut text, iv) = (count(1, 320), vec![9; key.iv_len()]);
            let mut icv = vec![0; key.icv_len()];
            key.seal(b"aad", &iv, &mut text, &mut icv);
            assert_eq!(key.open(b"aad", &iv, &mut text, &icv), Ok(()));
        }
        if let Some(key) = &self.icv {
            let mut buf = count(1, 600);
            let mut jobs = [IcvJob { len: 600, field: 12, seq: 7, ..IcvJob::default() }];
            icv::sign(&[], &mut buf, &mut jobs, &[key]);
            icv::verify(&[], &buf, &mut jobs, &[key]);
            assert!(jobs[0].ok);
        }
    }

    fn end(&mut self) {
        (self.message, self.icv) = (None, None);
        self.keymat.iter_mut().for_each(|keymat| keymat.zeroize());
    }
}

/// A key exchange: seed, private key, shared secret, and what a PRF makes of it.
struct Exchange(KeId, Vec<Secret>);

impl Case for Exchange {
    fn make(&mut self) -> Vec<Place> {
        let [ours, theirs] = [(); 2].map(|()| Secret::filled(kex::SEED_LEN, random));
        let (private, public) = kex::generate(self.0, ours.expose()).expect("a method");
        let (response, shared) = kex::respond(self.0, theirs.expose(), &public).expect("a good public value");
        assert!(kex::agree(self.0, &private, &response).expect("a good response") == shared);
        let prf = prf::get(PrfId::HMAC_SHA2_512).expect("a PRF");
        let skeyseed = prf.mac(&[1; 64], &[shared.expose()]);
        let keys = prf::prf_plus(prf, skeyseed.expose(), &[b"seed"], 300);
        self.1 = vec![ours, theirs, private, shared, skeyseed, keys];
        self.1.iter().map(|secret| (secret.expose().as_ptr().addr(), secret.len())).collect()
    }

    fn work(&mut self) {}

    fn end(&mut self) {
        self.1 = Vec::new();
    }
}

/// A private key: its file, the numbers in the file (a big number of the library's is the same
/// bytes from the other end), and for Ed25519 what its seed expands to.
struct Signer {
    kind: KeyKind,
    key: Option<PrivateKey>,
    secrets: Vec<Secret>,
}

impl Case for Signer {
    fn make(&mut self) -> Vec<Place> {
        let file = PrivateKey::generate(self.kind).ok().and_then(|key| key.to_pkcs8()).expect("a new key");
        let key = PrivateKey::from_der(file.expose(), Legacy::default()).expect("the same key");
        let mut secrets = vec![Secret::filled(file.len(), |bytes| {
            bytes.iter_mut().zip(file.expose().iter().rev()).for_each(|(to, from)| *to = *from);
        })];
        if self.kind == KeyKind::Ed25519 {
            let seed = &file.expose()[file.len() - 32..];
            let expanded = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, seed);
            secrets.push(Secret::from(expanded.as_ref()));
        }
        // The public key inside of the file is no secret, and neither is the name of its algorithm.
        let public = key.public().spki().to_vec();
        secrets.push(file);
        (self.key, self.secrets) = (Some(key), secrets);
        let mut places = Vec::new();
        for secret in &self.secrets {
            let bytes = secret.expose();
            // No copy of a secret, not even here.
            let secret_part = |at: usize| {
                let part = &bytes[at..(at + 32).min(bytes.len())];
                let known = |w: &[u8]| part.windows(8).any(|p| p == w || p.iter().rev().eq(w));
                !public.windows(8).any(known)
            };
            let parts = (0..bytes.len()).step_by(32).filter(|at| secret_part(*at));
            places.extend(parts.map(|at| (bytes.as_ptr().addr() + at, 32.min(bytes.len() - at))));
        }
        places
    }

    fn work(&mut self) {
        let Some(key) = &self.key else { return };
        for hash in key.public().hashes() {
            for pss in [false, true] {
                let scheme = key.public().scheme(*hash, pss).expect("an algorithm of the key");
                let signature = key.sign(scheme, Legacy::default(), b"octets").expect("a signature");
                assert_eq!(key.public().verify(scheme, Legacy::default(), b"octets", &signature), Ok(()));
            }
        }
    }

    fn end(&mut self) {
        (self.key, self.secrets) = (None, Vec::new());
    }
}

#[test]
fn nothing_of_a_private_key_is_left_when_it_is_dropped() {
    alone("batch::wiped::nothing_of_a_private_key_is_left_when_it_is_dropped", || {
        let (mut search, mut tally) = (Search::new(), Tally::default());
        let kinds = sign::Curve::ALL.map(KeyKind::Ecdsa);
        for kind in kinds.into_iter().chain([KeyKind::Ed25519, KeyKind::Rsa(2048)]) {
            for used in [false, true] {
                tally.look(&mut search, &format!("{kind}"), used, &|| {
                    Box::new(Signer { kind, key: None, secrets: Vec::new() })
                });
            }
        }
        tally.end();
    });
}

/// A key of a PRF, too long and too short for AES, and what is made of it.
struct Derived(PrfId, Vec<Secret>);

impl Case for Derived {
    fn make(&mut self) -> Vec<Place> {
        let prf = prf::get(self.0).expect("a PRF");
        let keys = [10, 16, 40].map(|len| Secret::filled(len, random));
        let made = keys.each_ref().map(|key| prf.mac(key.expose(), &[b"nonce", &[9; 50]]));
        let longer = prf::prf_plus(prf, made[2].expose(), &[b"seed"], 300);
        self.1 = keys.into_iter().chain(made).chain([longer]).collect();
        self.1.iter().map(|secret| (secret.expose().as_ptr().addr(), secret.len())).collect()
    }

    fn work(&mut self) {}

    fn end(&mut self) {
        self.1 = Vec::new();
    }
}

#[test]
fn nothing_of_the_secrets_of_ike_and_ah_is_left_when_they_are_dropped() {
    alone("batch::wiped::nothing_of_the_secrets_of_ike_and_ah_is_left_when_they_are_dropped", || {
        let (mut search, mut tally) = (Search::new(), Tally::default());
        for suite in suites().into_iter().filter(|suite| !suite.esn) {
            let encr = message::encr_key_len(suite.encr, suite.key_bits);
            let integ = suite.integ.and_then(|id| match encr {
                Some(_) => message::integ_key_len(id),
                None => icv::key_len(id),
            });
            if encr.is_none() && suite.encr != EncrId::NULL {
                continue;
            }
            for used in [false, true] {
                tally.look(&mut search, &format!("{suite}"), used, &|| {
                    let keymat = [encr, integ].map(|len| Zeroizing::new(vec![0; len.unwrap_or(0)]));
                    Box::new(OtherKey { suite, keymat, message: None, icv: None })
                });
            }
        }
        for id in PrfId::ALL.iter().copied().filter(|id| prf::get(*id).is_some()) {
            tally.look(&mut search, &format!("{id}"), false, &|| Box::new(Derived(id, Vec::new())));
        }
        for ke in KeId::ALL.iter().copied().filter(|ke| kex::public_len(*ke).is_some()) {
            tally.look(&mut search, &format!("{ke}"), false, &|| Box::new(Exchange(ke, Vec::new())));
        }
        tally.end();
    });
}
