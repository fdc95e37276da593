//! A recorded trace: the SAs of the ESP packets in a capture (pcap), in their order, for the key
//! cache. The file is read once from end to end; what is kept does not grow with it, whatever is in
//! it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

use super::cache::Lru;
use crate::error::LabError;
use crate::interrupt;

/// More than this of a packet is not looked at: link, IP and UDP headers and the SPI are in it.
const HEAD: usize = 256;
/// A packet that says it is longer is none: no capture has such.
const LONGEST: u32 = 1 << 20;
/// Limits how many SAs of a trace are told apart; a gateway with more is not simulated.
const COUNTED: usize = 1 << 20;
/// Packets between two looks for Ctrl-C.
const STRETCH: u64 = 1 << 16;
/// Port of ESP in UDP.
const NAT_T: u16 = 4500;
/// Lower SPIs are reserved.
const LEAST_SPI: u32 = 256;
/// Extension headers of IPv6 that are passed over.
const EXTENSIONS: usize = 8;

/// An SA as its gateway knows it: the address that it is sent to, and the SPI.
type Sa = ([u8; 16], u32);

/// Contents of a trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Recorded {
    /// All packets.
    pub packets: u64,
    /// Number of ESP packets. The other fields are about these.
    pub esp: u64,
    /// Different SAs, counted up to a million.
    pub sas: usize,
    /// The file ends within a packet.
    pub cut: bool,
    /// Entries of a cache, and the share of packets whose key was in it.
    pub hit_rates: Vec<(usize, f64)>,
}

/// Reads a file through caches of these sizes.
pub(super) fn read(file: &Path, caches: &[usize]) -> Result<Recorded, LabError> {
    let name = file.display();
    let open =
        File::open(file).map_err(|e| LabError::Usage(format!("--trace: {name} cannot be opened: {e}")))?;
    let found = through(BufReader::new(open), caches).map_err(|e| match e {
        Wrong::Input(why) => LabError::Usage(format!("--trace: {name} {why}")),
        Wrong::Stopped(e) => e,
    })?;
    if found.esp == 0 {
        return Err(LabError::Usage(format!(
            "--trace: none of the {} packets of {name} is ESP, as IP protocol 50 or in UDP at port {NAT_T}",
            found.packets
        )));
    }
    Ok(found)
}

#[derive(Debug)]
enum Wrong {
    /// The fault of the file.
    Input(String),
    /// Ctrl-C.
    Stopped(LabError),
}

/// How the numbers of a file are written, and what its packets begin with.
struct Format {
    big: bool,
    link: u32,
}

impl Format {
    /// From the 24 bytes at the beginning.
    fn of(head: &[u8; 24]) -> Result<Self, String> {
        let magic: [u8; 4] = [head[0], head[1], head[2], head[3]];
        let big = match magic {
            // Microseconds, nanoseconds.
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                return Err("is pcapng; make a pcap of it with `tcpdump -r FILE -w NEW` or `editcap -F pcap FILE NEW`".into());
            }
            _ => return Err("is not a pcap file".into()),
        };
        let mut format = Self { big, link: 0 };
        // The upper bits say whether frames end with their FCS.
        format.link = format.u32(&head[20..]) & 0x0fff_ffff;
        match format.link {
            1 | 12 | 14 | 101 | 113 | 228 | 229 | 276 => Ok(format),
            other => Err(format!(
                "has packets of link type {other}; Ethernet, Linux cooked captures and raw IP are read"
            )),
        }
    }

    fn u32(&self, bytes: &[u8]) -> u32 {
        let four = [0, 1, 2, 3].map(|n| bytes.get(n).copied().unwrap_or(0));
        if self.big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    }

    /// The IP packet of a record.
    fn ip<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let (mut kind, mut rest) = match self.link {
            1 => (be16(record, 12)?, record.get(14..)?),
            113 => (be16(record, 14)?, record.get(16..)?),
            276 => (be16(record, 0)?, record.get(20..)?),
            _ => return Some(record),
        };
        // Tags of VLANs, one in another.
        for _ in 0..2 {
            if kind == 0x8100 || kind == 0x88a8 {
                (kind, rest) = (be16(rest, 2)?, rest.get(4..)?);
            }
        }
        (kind == 0x0800 || kind == 0x86dd).then_some(rest)
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn through(mut input: impl Read, caches: &[usize]) -> Result<Recorded, Wrong> {
    let mut head = [0; 24];
    if !whole(&mut input, &mut head)? {
        return Err(Wrong::Input("is not a pcap file: it is too short".into()));
    }
    let format = Format::of(&head).map_err(Wrong::Input)?;
    let mut lrus: Vec<(Lru<Sa>, u64)> = caches.iter().map(|entries| (Lru::new(*entries), 0)).collect();
    let mut seen: HashSet<Sa> = HashSet::new();
    let mut found = Recorded::default();
    let mut record = [0; HEAD];
    loop {
        let mut about = [0; 16];
        let first = input.read(&mut about[..1]).map_err(unread)?;
        if first == 0 {
            break;
        }
        if !whole(&mut input, &mut about[1..])? {
            found.cut = true;
            break;
        }
        let long = format.u32(&about[8..]);
        if long > LONGEST {
            return Err(Wrong::Input(format!(
                "is damaged: packet {} says that it has {long} bytes",
                found.packets + 1
            )));
        }
        let kept = (long as usize).min(HEAD);
        let rest = u64::from(long) - kept as u64;
        if !whole(&mut input, &mut record[..kept])?
            || io::copy(&mut input.by_ref().take(rest), &mut io::sink()).map_err(unread)? < rest
        {
            found.cut = true;
            break;
        }
        found.packets += 1;
        if found.packets.is_multiple_of(STRETCH) {
            interrupt::check().map_err(Wrong::Stopped)?;
        }
        let Some(sa) = format.ip(&record[..kept]).and_then(sa) else { continue };
        found.esp += 1;
        if seen.len() < COUNTED {
            seen.insert(sa);
        }
        for (lru, hits) in &mut lrus {
            *hits += u64::from(lru.hit(sa));
        }
    }
    found.sas = seen.len();
    found.hit_rates =
        caches.iter().zip(&lrus).map(|(n, (_, hits))| (*n, *hits as f64 / found.esp.max(1) as f64)).collect();
    Ok(found)
}

/// Fills a buffer; false when the input ends before it is full.
fn whole(input: &mut impl Read, buffer: &mut [u8]) -> Result<bool, Wrong> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(unread(e)),
    }
}

fn unread(e: io::Error) -> Wrong {
    Wrong::Input(format!("cannot be read: {e}"))
}

/// The SA of an ESP packet, from its IP header on.
fn sa(ip: &[u8]) -> Option<Sa> {
    let (protocol, to, payload) = match ip.first()? >> 4 {
        4 => {
            let length = usize::from(ip[0] & 15) * 4;
            // The pieces of a packet after the first have no SPI.
            if length < 20 || be16(ip, 6)? & 0x1fff != 0 {
                return None;
            }
            let mut to = [0; 16];
            to[12..].copy_from_slice(ip.get(16..20)?);
            (*ip.get(9)?, to, ip.get(length..)?)
        }
        6 => {
            let to: [u8; 16] = ip.get(24..40)?.try_into().ok()?;
            let (mut next, mut rest) = (*ip.get(6)?, ip.get(40..)?);
            for _ in 0..EXTENSIONS {
                let length = match next {
                    // Hop-by-hop, routing, destination options.
                    0 | 43 | 60 => 8 + usize::from(*rest.get(1)?) * 8,
                    44 if be16(rest, 2)? & 0xfff8 == 0 => 8,
                    44 => return None,
                    _ => break,
                };
                (next, rest) = (rest[0], rest.get(length..)?);
            }
            (next, to, rest)
        }
        _ => return None,
    };
    let esp = match protocol {
        50 => payload,
        17 if be16(payload, 0)? == NAT_T || be16(payload, 2)? == NAT_T => payload.get(8..)?,
        _ => return None,
    };
    // IKE has zeros where ESP has its SPI, a keepalive has one byte.
    let spi = u32::from_be_bytes(esp.get(..4)?.try_into().ok()?);
    (spi >= LEAST_SPI && esp.len() >= 8).then_some((to, spi))
}

#[cfg(test)]
mod tests {
    use super::super::cache::{hit_rate, zipf};
    use super::*;

    fn ipv4(protocol: u8, to: u8, payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, to];
        ip.extend_from_slice(payload);
        ip
    }

    fn esp(spi: u32) -> Vec<u8> {
        [&spi.to_be_bytes()[..], &[0, 0, 0, 1], &[7; 40]].concat()
    }

    fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
        [&[0x30, 0x39][..], &port.to_be_bytes(), &[0; 4], payload].concat()
    }

    fn ethernet(kind: &[u8], ip: &[u8]) -> Vec<u8> {
        [&[2; 12][..], kind, ip].concat()
    }

    fn pcap(big: bool, link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
        let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut file =
            [word(0xa1b2_c3d4), word(0x0002_0004), [0; 4], [0; 4], word(65_535), word(link)].concat();
        for packet in packets {
            let length = word(packet.len() as u32);
            file.extend([word(1), word(2), length, length].concat());
            file.extend_from_slice(packet);
        }
        file
    }

    fn found(file: &[u8], caches: &[usize]) -> Recorded {
        through(file, caches).expect("a trace")
    }

    #[test]
    fn esp_is_found_in_every_wrapping_and_nothing_else_is_taken_for_it() {
        let (plain, wrapped) = (ipv4(50, 2, &esp(0x1000)), ipv4(17, 2, &udp(4500, &esp(0x1000))));
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 60, 64];
        v6.extend([[1; 16], [9; 16]].concat());
        // Destination options, then ESP.
        v6.extend([50, 0, 1, 4, 0, 0, 0, 0]);
        v6.extend(esp(0x1000));
        let mut fragment = plain.clone();
        fragment[7] = 8;
        let packets = [
            ethernet(&[8, 0], &plain),
            ethernet(&[8, 0], &wrapped),
            ethernet(&[0x81, 0, 0, 5, 8, 0], &plain),
            ethernet(&[0x86, 0xdd], &v6),
            ethernet(&[8, 0], &ipv4(50, 3, &esp(0x1000))),
            // None of these: IKE, a keepalive, another port, a reserved SPI, a later piece, ARP,
            // TCP, too short.
            ethernet(&[8, 0], &ipv4(17, 2, &udp(4500, &[0; 40]))),
            ethernet(&[8, 0], &ipv4(17, 2, &udp(4500, &[0xff]))),
            ethernet(&[8, 0], &ipv4(17, 2, &udp(500, &esp(0x1000)))),
            ethernet(&[8, 0], &ipv4(50, 2, &esp(255))),
            ethernet(&[8, 0], &fragment),
            ethernet(&[8, 6], &plain),
            ethernet(&[8, 0], &ipv4(6, 2, &esp(0x1000))),
            ethernet(&[8, 0], &ipv4(50, 2, &[0, 0, 16])),
            vec![1, 2, 3],
            vec![],
        ];
        for big in [false, true] {
            let of = found(&pcap(big, 1, &packets), &[1, 8]);
            // To 10.0.0.2 in three wrappings, to an IPv6 address, to 10.0.0.3: one SPI, three SAs.
            assert_eq!((of.packets, of.esp, of.sas, of.cut), (15, 5, 3, false));
            assert_eq!(of.hit_rates, [(1, 0.4), (8, 0.4)]);
        }
        let cooked = [&[0; 14][..], &[8, 0], &plain].concat();
        let cooked2 = [&[8, 0][..], &[0; 18], &wrapped].concat();
        for (link, packet) in [(101, plain.clone()), (228, plain), (113, cooked), (276, cooked2)] {
            assert_eq!(found(&pcap(false, link, &[packet]), &[1]).esp, 1, "{link}");
        }
    }

    #[test]
    fn hit_rates_are_those_of_the_same_order_kept_in_memory() {
        let order = zipf(300, 5_000, 4, 5);
        // The longest of frames: most of it is passed over.
        let long = [0; 3_000];
        let packet = |key: &u32| ipv4(50, 2, &[esp(key + 256).as_slice(), &long].concat());
        let packets: Vec<Vec<u8>> = order.iter().map(packet).collect();
        let of = found(&pcap(false, 101, &packets), &[1, 16, 256, 1_024]);
        let sas: HashSet<&u32> = order.iter().collect();
        assert_eq!((of.esp, of.sas), (5_000, sas.len()));
        for (entries, rate) in of.hit_rates {
            assert_eq!(rate, hit_rate(&order, entries), "{entries}");
        }
    }

    #[test]
    fn a_file_that_was_cut_short_counts_as_far_as_it_goes_and_a_damaged_or_foreign_one_is_refused() {
        let file = pcap(false, 101, &[ipv4(50, 2, &esp(300)), ipv4(50, 2, &esp(301))]);
        for cut in 25..file.len() {
            let of = found(&file[..cut], &[4]);
            let whole = u64::from(cut >= 24 + (file.len() - 24) / 2);
            assert_eq!((of.packets, of.cut), (whole, cut != 24 + (file.len() - 24) / 2), "{cut}");
        }
        let refused = |file: &[u8]| match through(file, &[4]) {
            Err(Wrong::Input(why)) => why,
            other => panic!("{other:?}"),
        };
        let mut huge = file.clone();
        huge[32..36].copy_from_slice(&[0xff; 4]);
        for (file, part) in [
            (&file[..23], "too short"),
            (&[0; 4_096][..], "is not a pcap file"),
            (&[&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 40]].concat(), "is pcapng"),
            (&pcap(false, 105, &[]), "link type 105"),
            (&huge, "packet 1 says that it has 4294967295 bytes"),
        ] {
            let why = refused(file);
            assert!(why.contains(part), "{part:?} is not in {why:?}");
        }
        let e = read(Path::new("/nonexistent/trace.pcap"), &[4]).expect_err("no file");
        assert!(e.exit_code() == 2 && e.to_string().contains("/nonexistent/trace.pcap"), "{e}");
    }

    #[test]
    fn whatever_is_in_a_packet_nothing_breaks() {
        let good = [
            ethernet(&[8, 0], &ipv4(17, 2, &udp(4500, &esp(300)))),
            ethernet(
                &[0x86, 0xdd],
                &[&[0x60, 0, 0, 0, 0, 0, 0, 64][..], &[1; 32], &[60, 255, 0, 0], &[0; 80]].concat(),
            ),
        ];
        let mut random = super::super::cache::Random::new(3);
        for link in [1, 101, 113, 276] {
            let mut packets = Vec::new();
            for n in 0..20_000 {
                let mut packet = good[n % 2].clone();
                packet.truncate(random.below(packet.len() as u32 + 1) as usize);
                for _ in 0..random.below(4) {
                    let at = random.below(packet.len().max(1) as u32) as usize;
                    packet.iter_mut().skip(at).take(1).for_each(|b| *b = random.next() as u8);
                }
                packets.push(packet);
            }
            let of = found(&pcap(n_even(link), link, &packets), &[1, 64]);
            assert!(of.packets == 20_000 && of.esp <= of.packets && of.sas <= of.esp as usize, "{of:?}");
        }
    }

    fn n_even(n: u32) -> bool {
        n.is_multiple_of(2)
    }
}
