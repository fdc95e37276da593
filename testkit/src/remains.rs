//! Looks for what is left of a key in the memory of this process.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use zeroize::Zeroizing;

/// In the environment of the process that is looked through.
const ROLE: &str = "IRONSWAN_LOOK_FOR_KEYS";
/// Length in bytes of the keys that are looked for.
pub const KEY_LEN: usize = 32;
const WINDOW: usize = 8;

fn random(bytes: &mut [u8]) {
    File::open("/dev/urandom").expect("the system's random bytes").read_exact(bytes).expect("enough of them");
}

/// A key under a mask, in pieces of a window, so that what is looked for is not what is found.
#[derive(Debug)]
pub struct Masked([(u64, u64); KEY_LEN / WINDOW]);

impl Masked {
    /// Writes a new key over `place`.
    pub fn new(place: &mut [u8]) -> Self {
        random(place);
        Self::of(place)
    }

    /// The key that stands at `place`.
    pub fn of(place: &[u8]) -> Self {
        let mut mask = [0; KEY_LEN];
        random(&mut mask);
        // Byte by byte, so that no piece of it is left on the stack.
        let mut masked = mask;
        masked.iter_mut().zip(place).for_each(|(masked, byte)| *masked ^= byte);
        let piece = |bytes: &[u8], i: usize| {
            let bytes = bytes[i * WINDOW..(i + 1) * WINDOW].try_into();
            u64::from_ne_bytes(bytes.expect("a window"))
        };
        Self(std::array::from_fn(|i| (piece(&mask, i), piece(&masked, i))))
    }

    /// How often a part of the key is in the writable memory of this process.
    pub fn count(&self) -> usize {
        count([self])[0]
    }
}

/// The same for many keys at once.
pub fn count<const N: usize>(keys: [&Masked; N]) -> [usize; N] {
    let memory = File::open("/proc/self/mem").expect("our own memory");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own memory's list");
    let mut buf = Zeroizing::new(vec![0; 1 << 20]);
    let own = buf.as_ptr().addr()..buf.as_ptr().addr() + buf.len();
    let mut found = [0; N];
    for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[v")) {
        let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let [from, to] = [from, to].map(|hex| usize::from_str_radix(hex, 16).expect("an address"));
        for piece in [from..to.min(own.start).max(from), from.max(own.end).min(to)..to] {
            let mut at = piece.start;
            while at + WINDOW <= piece.end {
                let len = buf.len().min(piece.end - at);
                if memory.read_exact_at(&mut buf[..len], at as u64).is_ok() {
                    look(&buf[..len], &keys, &mut found);
                }
                at += if len == buf.len() { len - WINDOW } else { len };
            }
        }
    }
    found
}

/// Counts the parts of each key in `memory`. Debug builds take their time for each call, so there
/// are few in the loop.
fn look(memory: &[u8], keys: &[&Masked], found: &mut [usize]) {
    let mut window = 0u64;
    let mut i = 0;
    while i < memory.len() {
        let byte = memory[i];
        i += 1;
        window = if cfg!(target_endian = "little") {
            window >> 8 | (byte as u64) << 56
        } else {
            window << 8 | byte as u64
        };
        if window == 0 || i < WINDOW {
            continue;
        }
        let mut k = 0;
        while k < keys.len() {
            let mut p = 0;
            while p < KEY_LEN / WINDOW {
                let (mask, piece) = keys[k].0[p];
                if window ^ mask == piece {
                    found[k] += 1;
                }
                p += 1;
            }
            k += 1;
        }
    }
}

/// False in a process that runs this test and nothing else. True when that process has passed it;
/// the other tests of this one would come between what it writes and looks for.
pub fn alone(name: &str) -> bool {
    if std::env::var_os(ROLE).is_some() {
        return false;
    }
    let this = std::env::current_exe().expect("the path of this test");
    let out = std::process::Command::new(this).args(["--exact", name, "--nocapture"]).env(ROLE, "1").output();
    let out = out.expect("this test again");
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    print!("{text}{errors}");
    assert!(out.status.success() && text.contains("1 passed"), "the process says why, above");
    true
}
