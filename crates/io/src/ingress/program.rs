//! The program: one packet that arrives, and whether it may go on.
//!
//! ```text
//! protocol of the frame ─▶ IP header ─▶ interval of the source ─▶ (no list: goes on)
//!                                           │
//!              protocol, ports, fragment ─▶ first row of the list that covers it ─▶ goes on
//!                                                                │
//!                                                          drop, except:
//!                                            to another station; DHCP's answers; to us:
//!                                            neighbours, ESP, AH, IKE, an error about them
//! ```
//!
//! The search has no branches: each step adds its length or nothing, as the sign of a difference
//! says; and a row has one. So the verifier sees one path whatever the size, and the processor
//! guesses little. The memory that is read never changes; another set of policies is another
//! program with other memory, and the kernel takes one for the other between two packets.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `passes` | clear packets that pass although a policy covers them |

mod passes;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;

use ironswan_wire::helper::Request;

use super::table::{
    DESTINATION, DROP, FamilyTables, HEAD, PROTOCOL, SHOWS, SHOWS_NONE, SHOWS_PORTS, SOURCE, SearchTable,
    place,
};
use super::{Filter, fit};
use crate::bpf::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use crate::bpf::assembler::Size::{Byte, Half, Word};
use crate::bpf::assembler::*;
use crate::bpf::{self, ProgramKind, SingleValueMap};
use crate::helper::client;

/// The verdict that leaves a packet to the next filter (`TC_ACT_UNSPEC`).
const NEXT_FILTER: i32 = -1;
/// The verdict that drops a packet (`TC_ACT_SHOT`).
pub(super) const DROPPED: u32 = 2;
/// The map with the counters: packets, bytes.
pub(super) const COUNTER: &str = "ironswan_clear";
pub(super) const COUNTER_SIZE: usize = 16;
/// Limits the rows of one list: the verifier walks through all of them.
pub(super) const MAX_ROWS: usize = 1024;
/// Rows up to which the program is unrolled, without a loop. Without CAP_PERFMON the verifier also
/// follows paths of speculative execution, and never finds the end of a loop.
const UNROLLED: usize = 128;

// struct __sk_buff
const SKB_LEN: i16 = 0;
const SKB_PKT_TYPE: i16 = 4;
const SKB_PROTOCOL: i16 = 16;
const SKB_VLAN_TCI: i16 = 24;
/// `PACKET_OTHERHOST`.
const OTHER_HOST: i32 = 3;
/// `BPF_HDR_START_NET`: where the kernel says that the IP header begins, whatever kind of interface
/// it is.
const FROM_NETWORK_HEADER: i32 = 1;
/// Bytes of a packet that we ask the kernel to make linear: all headers that the program reads, and
/// those that an ICMP error quotes.
const LINEAR_BYTES: i32 = 256;

// Offsets of the variables on the stack, below R10.
/// The IP header, 40 bytes.
const HEADER: i16 = -40;
/// The address that is searched for, in words of this machine, the first one first.
const KEY: i16 = -56;
const UPPER: i16 = -60;
const PORT_A: i16 = -64;
const PORT_B: i16 = -68;
const SHOWN: i16 = -72;
/// Bytes from behind the IP header, at most 8.
const SCRATCH: i16 = -80;
const UPPER_AT: i16 = -84;
/// 4 times the view's number: where a list's head has the view's first row.
const VIEW: i16 = -88;
/// True for a fragment that is not the first.
const LATER: i16 = -92;

const VIEW_PORTS: i32 = 0;
const VIEW_PROTOCOL: i32 = 4;
const VIEW_ADDRESSES: i32 = 8;
const VIEW_FRAGMENTS: i32 = 12;

/// A program that is not loaded yet: its memory, and what its code is made from.
pub(super) struct ProgramImage {
    bytes: Vec<u8>,
    places: [FamilyTables; 2],
    ports: [u16; 2],
}

impl ProgramImage {
    /// Makes the program of a filter.
    ///
    /// # Errors
    /// A sentence that says what of the filter is too much for a program.
    pub(super) fn new(filter: &Filter) -> Result<Self, String> {
        // Check first: the kernel would take many seconds to refuse a program that is too large.
        fit::check(filter, max_list_rows())?;
        let mut bytes: Vec<u8> = [VIEW_PORTS, VIEW_PROTOCOL, VIEW_ADDRESSES, VIEW_FRAGMENTS]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        let own: Vec<_> = filter.own.iter().copied().collect();
        let [v4, v6] = &filter.families;
        let places = [place(&mut bytes, v4, &own, false), place(&mut bytes, v6, &own, true)];
        Ok(Self { bytes, places, ports: filter.ports })
    }

    /// Hash of code and memory (FNV-1a). Equal programs have equal digests.
    pub(super) fn digest(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |b: u8| hash = (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        for i in self.assemble(0, 0) {
            let [a, b] = i.offset.to_ne_bytes();
            [i.code, i.registers, a, b].into_iter().chain(i.immediate.to_ne_bytes()).for_each(&mut add);
        }
        self.bytes.iter().copied().for_each(add);
        hash
    }

    /// Loads the program into the kernel.
    pub(super) fn load(&self, counter: &SingleValueMap) -> io::Result<OwnedFd> {
        let memory = SingleValueMap::new(self.bytes.len(), "ironswan_guard")?;
        memory.set(&self.bytes)?;
        let code = self.assemble(memory.as_fd().as_raw_fd(), counter.as_fd().as_raw_fd());
        bpf::load(ProgramKind::Classifier, &code, "ironswan_guard")
    }

    fn assemble(&self, memory: i32, counter: i32) -> Vec<Instruction> {
        let mut a = Assembler::default();
        let (mut pass, mut drop) = (Label::default(), Label::default());
        let (mut v4, mut v6, mut tagged) = (Label::default(), Label::default(), Label::default());
        let network = |n: u16| i32::from(n.to_be());
        a.copy(R6, R1);
        // A packet with a VLAN tag belongs to the interface of that VLAN. That interface has a
        // program of its own, or is another customer's, in a VRF or in another network namespace.
        // If nobody has the VLAN, nobody takes the packet in.
        a.load(Word, R1, R6, SKB_VLAN_TCI);
        a.alu(AND32_K, R1, 0xfff);
        a.jump(JNE32_K, R1, 0, &mut pass);
        a.load(Word, R1, R6, SKB_PROTOCOL);
        a.jump(JEQ32_K, R1, network(0x0800), &mut v4);
        a.jump(JEQ32_K, R1, network(0x86dd), &mut v6);
        a.jump(JEQ32_K, R1, network(0x8100), &mut tagged);
        a.jump(JEQ32_K, R1, network(0x88a8), &mut tagged);
        a.jump(JA, R0, 0, &mut pass);
        // A second tag is under the first. Only where both name no VLAN does the kernel take both
        // away without coming here again; nobody sends that for a good reason.
        a.bind(tagged);
        a.set(R8, 0);
        a.fetch(2, &mut pass);
        a.load_be(Half, R1, R10, SCRATCH);
        a.alu(AND32_K, R1, 0xfff);
        a.jump(JNE32_K, R1, 0, &mut pass);
        a.jump(JA, R0, 0, &mut drop);

        for (place, here) in self.places.iter().zip([v4, v6]) {
            a.bind(here);
            a.family(place, memory, &self.ports, &mut pass, &mut drop);
        }

        a.bind(drop);
        a.map_value_address(R1, counter, 0);
        a.set(R2, 1);
        a.atomic_add(R1, 0, R2);
        a.load(Word, R2, R6, SKB_LEN);
        a.atomic_add(R1, 8, R2);
        a.set(R0, DROPPED as i32);
        a.push(EXIT, R0, 0, 0, 0);
        a.bind(pass);
        a.set(R0, NEXT_FILTER);
        a.push(EXIT, R0, 0, 0, 0);
        a.0
    }
}

/// Limits the rows of a list with the privileges of this thread, without the closing row, which
/// covers every packet.
pub(super) fn max_list_rows() -> usize {
    if may_loop() { MAX_ROWS - 1 } else { UNROLLED - 1 }
}

/// True when the verifier accepts a loop: this thread has CAP_PERFMON, or CAP_SYS_ADMIN, which
/// contains it.
fn may_loop() -> bool {
    // The helper's privileges do not change.
    static HELPERS: OnceLock<bool> = OnceLock::new();
    match client::get() {
        Some(helper) => *HELPERS.get_or_init(|| helper.flag(&Request::MayLoop).unwrap_or(false)),
        None => this_thread_may_loop(),
    }
}

/// The same for this thread, whether there is a helper or not.
pub(super) fn this_thread_may_loop() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective =
        status.lines().find_map(|l| u64::from_str_radix(l.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.is_some_and(|caps| caps & (1 << 38 | 1 << 21) != 0)
}

impl Assembler {
    /// Copies `len` bytes from R8 behind the begin of the IP header to `to` on the stack. Leaves to
    /// `short` where the packet ends before. Makes the packet's begin one piece where it is not.
    fn fetch_to(&mut self, to: i16, len: i32, short: &mut Label) {
        let mut there = Label::default();
        for last in [false, true] {
            self.copy(R1, R6);
            self.copy(R2, R8);
            self.copy(R3, R10);
            self.add(R3, to.into());
            self.set(R4, len);
            self.set(R5, FROM_NETWORK_HEADER);
            self.call(SKB_LOAD_BYTES_RELATIVE);
            if last {
                self.jump(JNE_K, R0, 0, short);
                break;
            }
            self.jump(JEQ_K, R0, 0, &mut there);
            let mut enough = Label::default();
            self.load(Word, R2, R6, SKB_LEN);
            self.jump(JLT_K, R2, LINEAR_BYTES, &mut enough);
            self.set(R2, LINEAR_BYTES);
            self.bind(enough);
            self.copy(R1, R6);
            self.call(SKB_PULL_DATA);
        }
        self.bind(there);
    }

    /// The same to [`SCRATCH`].
    fn fetch(&mut self, len: i32, short: &mut Label) {
        self.fetch_to(SCRATCH, len, short);
    }

    /// `*(R10 + at) = value`, four bytes.
    fn store_number(&mut self, at: i16, value: i32) {
        self.store_bytes(at, value.to_ne_bytes());
    }

    /// `*(R10 + at) = value`, one of those that are multiples of 4 up to 12. From memory, so that
    /// the verifier does not know it: what it knows it walks through once for each value, with all
    /// rows behind it. Uses R1 and R2.
    fn store_unknown(&mut self, memory: i32, at: i16, value: i32) {
        self.map_value_address(R1, memory, value as usize);
        self.load(Word, R2, R1, 0);
        self.store(at, R2);
    }

    /// R9 = the value of the interval in which [`KEY`] is. Uses R1 to R3 and R7.
    fn search(&mut self, search: &SearchTable, memory: i32, ipv6: bool) {
        self.map_value_address(R7, memory, search.starts);
        self.set(R9, 0);
        let mut step = search.count / 2;
        while step > 0 {
            self.copy(R1, R9);
            self.add(R1, step as i32);
            self.alu(LSH_K, R1, if ipv6 { 4 } else { 2 });
            self.alu_by(ADD_X, R1, R7);
            self.difference(true, 0, ipv6);
            // All bits where the key is less, none where it is not.
            self.copy(R2, R3);
            self.alu(ARSH_K, R2, 63);
            self.alu(XOR_K, R2, -1);
            self.alu(AND_K, R2, step as i32);
            self.alu_by(ADD_X, R9, R2);
            step /= 2;
        }
        self.map_value_address(R7, memory, search.values);
        self.alu(LSH_K, R9, 2);
        self.alu_by(ADD_X, R9, R7);
        self.load(Word, R9, R9, 0);
    }

    /// R3 = [`KEY`] less the address at R1 + `at`, or that less the key; only the sign is worth
    /// something. Uses R2.
    fn difference(&mut self, key_first: bool, at: i16, ipv6: bool) {
        let words: i16 = if ipv6 { 4 } else { 1 };
        // From the last word to the first, with what the one before borrowed.
        for word in (0..words).rev() {
            let borrows = word != words - 1;
            if borrows {
                self.copy(R2, R3);
                self.alu(ARSH_K, R2, 63);
            }
            let (key, other) = ((R10, KEY + 4 * word), (R1, at + 4 * word));
            let (from, take) = if key_first { (key, other) } else { (other, key) };
            self.load(Word, R3, from.0, from.1);
            if borrows {
                self.alu_by(ADD_X, R3, R2);
            }
            self.load(Word, R2, take.0, take.1);
            self.alu_by(SUB_X, R3, R2);
        }
    }

    /// The address at `at` of the header becomes the key.
    fn key(&mut self, at: i16, ipv6: bool) {
        for word in 0..if ipv6 { 4 } else { 1 } {
            self.load_be(Word, R1, R10, HEADER + at + 4 * word);
            self.store(KEY + 4 * word, R1);
        }
    }

    /// Packets of one family.
    fn family(
        &mut self,
        place: &FamilyTables,
        memory: i32,
        ports: &[u16; 2],
        pass: &mut Label,
        drop: &mut Label,
    ) {
        let ipv6 = place.ipv6;
        self.set(R8, 0);
        // A packet that is too short for its header belongs to no policy.
        self.fetch_to(HEADER, if ipv6 { 40 } else { 20 }, pass);
        self.key(if ipv6 { 8 } else { 12 }, ipv6);
        self.search(&place.lists, memory, ipv6);
        self.jump(JEQ_K, R9, 0, pass);

        if ipv6 {
            self.upper6(memory)
        } else {
            self.upper4(memory)
        }
        self.shown(memory);
        self.key(if ipv6 { 24 } else { 16 }, ipv6);
        let mut closed = Label::default();
        self.rows(place, memory, pass, &mut closed);
        self.bind(closed);

        // Exceptions. What is for another station is not taken in by this one.
        self.load(Word, R1, R6, SKB_PKT_TYPE);
        self.jump(JEQ_K, R1, OTHER_HOST, pass);
        if !ipv6 {
            self.dhcp(pass);
        }
        self.search(&place.own, memory, ipv6);
        self.jump(JEQ_K, R9, 0, drop);
        if ipv6 {
            self.neighbour(pass);
        }
        self.outer(ipv6, ports, pass, drop);
    }

    /// Protocol, ports and view of an IPv4 packet.
    fn upper4(&mut self, memory: i32) {
        self.load(Byte, R1, R10, HEADER + 9);
        self.store(UPPER, R1);
        self.load(Byte, R8, R10, HEADER);
        self.alu(AND_K, R8, 0xf);
        self.alu(LSH_K, R8, 2);
        self.store(UPPER_AT, R8);
        self.load_be(Half, R1, R10, HEADER + 6);
        self.alu(AND32_K, R1, 0x1fff);
        self.store(LATER, R1);
        self.view_without_ports(memory);
    }

    /// The view of what shows its protocol and no ports, as [`LATER`] says. Uses R1 and R2.
    fn view_without_ports(&mut self, memory: i32) {
        let mut whole = Label::default();
        self.store_unknown(memory, VIEW, VIEW_PROTOCOL);
        self.load(Word, R1, R10, LATER);
        self.jump(JEQ_K, R1, 0, &mut whole);
        self.store_unknown(memory, VIEW, VIEW_FRAGMENTS);
        self.bind(whole);
    }

    /// Protocol, ports and view of an IPv6 packet. The engine does not look through AH and other
    /// extension headers than that of a fragment, and what it does not see it cannot ask for.
    fn upper6(&mut self, memory: i32) {
        let (mut done, mut whole, mut hidden) = (Label::default(), Label::default(), Label::default());
        self.store_unknown(memory, LATER, 0);
        self.set(R8, 40);
        self.store(UPPER_AT, R8);
        self.load(Byte, R1, R10, HEADER + 6);
        self.store(UPPER, R1);
        self.jump(JNE_K, R1, 44, &mut whole);
        self.fetch(8, &mut hidden);
        self.load(Byte, R1, R10, SCRATCH);
        self.store(UPPER, R1);
        self.set(R8, 48);
        self.store(UPPER_AT, R8);
        self.load_be(Half, R1, R10, SCRATCH + 2);
        self.alu(AND32_K, R1, 0xfff8);
        self.store(LATER, R1);
        self.bind(whole);
        self.store_unknown(memory, VIEW, VIEW_ADDRESSES);
        self.load(Word, R1, R10, UPPER);
        let mut behind = Label::default();
        for extension in [0, 43, 44, 51, 60] {
            self.jump(JEQ_K, R1, extension, &mut behind);
        }
        self.view_without_ports(memory);
        self.jump(JA, R0, 0, &mut done);
        self.bind(hidden);
        self.store_unknown(memory, VIEW, VIEW_ADDRESSES);
        self.bind(behind);
        self.bind(done);
    }

    /// Reads the part of the packet behind its header: ports, or type and code. R8 is the offset at
    /// which that begins.
    fn shown(&mut self, memory: i32) {
        let (mut end, mut short) = (Label::default(), Label::default());
        let (mut with_ports, mut with_types, mut mobility) =
            (Label::default(), Label::default(), Label::default());
        self.store_number(PORT_A, 0);
        self.store_number(PORT_B, 0);
        self.store_number(SCRATCH, 0);
        self.load(Word, R8, R10, UPPER_AT);
        self.load(Word, R1, R10, LATER);
        self.jump(JNE_K, R1, 0, &mut short);
        // Asked in such a way that the verifier goes on not to know the view: what it knows on one
        // path only may be no part of an address, without CAP_PERFMON.
        self.load(Word, R1, R10, VIEW);
        self.alu(XOR_K, R1, VIEW_ADDRESSES);
        self.jump(JEQ_K, R1, 0, &mut short);
        self.fetch(4, &mut short);
        self.store_unknown(memory, VIEW, VIEW_PORTS);
        self.bind(short);
        self.store_number(SHOWN, SHOWS_PORTS as i32);
        self.load(Word, R1, R10, UPPER);
        for protocol in super::WITH_PORTS {
            self.jump(JEQ_K, R1, protocol.into(), &mut with_ports);
        }
        for protocol in super::WITH_TYPES {
            self.jump(JEQ_K, R1, protocol.into(), &mut with_types);
        }
        self.jump(JEQ_K, R1, super::MOBILITY.into(), &mut mobility);
        self.store_number(SHOWN, SHOWS_NONE as i32);
        self.jump(JA, R0, 0, &mut end);
        self.bind(with_ports);
        self.load_be(Half, R1, R10, SCRATCH);
        self.store(PORT_A, R1);
        self.load_be(Half, R1, R10, SCRATCH + 2);
        self.store(PORT_B, R1);
        self.jump(JA, R0, 0, &mut end);
        let mut both = Label::default();
        self.bind(with_types);
        self.load_be(Half, R1, R10, SCRATCH);
        self.jump(JA, R0, 0, &mut both);
        self.bind(mobility);
        self.load(Byte, R1, R10, SCRATCH + 2);
        self.alu(LSH_K, R1, 8);
        self.bind(both);
        self.store(PORT_A, R1);
        self.store(PORT_B, R1);
        self.bind(end);
    }

    /// The rows of list R9, from the first of the packet's view on. Leaves to `pass` or to
    /// `closed`.
    fn rows(&mut self, place: &FamilyTables, memory: i32, pass: &mut Label, closed: &mut Label) {
        self.jump(JGE_K, R9, place.head_count as i32, closed);
        self.map_value_address(R7, memory, place.heads);
        self.alu(MUL_K, R9, HEAD);
        self.load(Word, R1, R10, VIEW);
        self.alu(AND_K, R1, 12);
        self.alu_by(ADD_X, R9, R1);
        self.alu_by(ADD_X, R9, R7);
        self.load(Word, R8, R9, 0);
        self.map_value_address(R7, memory, place.rows);
        let mut found = Label::default();
        if place.longest <= UNROLLED {
            for _ in 0..place.longest {
                self.row(place, &mut found);
            }
        } else {
            self.set(R9, 0);
            let begin = self.0.len();
            self.row(place, &mut found);
            self.add(R9, 1);
            self.jump_back(JLT_K, R9, place.longest as i32, begin);
        }
        // The last row of each list covers every packet: nobody comes here.
        self.jump(JA, R0, 0, closed);
        self.bind(found);
        self.jump(JEQ_K, R1, 0, pass);
    }

    /// Row R8: to `found` if it covers the packet, with what it says in R1; else R8 is the next
    /// one.
    fn row(&mut self, place: &FamilyTables, found: &mut Label) {
        // Of each thing that is asked the difference to what the packet has, which is negative
        // where it does not fit.
        self.alu(AND_K, R8, place.row_count as i32 - 1);
        self.copy(R1, R8);
        self.alu(MUL_K, R1, place.row());
        self.alu_by(ADD_X, R1, R7);
        self.difference(true, 0, place.ipv6);
        self.copy(R5, R3);
        self.difference(false, place.address() as i16, place.ipv6);
        self.alu_by(OR_X, R5, R3);
        self.add(R1, 2 * place.address());
        for (shown, wanted) in [(UPPER, PROTOCOL), (SHOWN, SHOWS)] {
            self.load(Word, R3, R10, shown);
            self.load(Word, R2, R1, wanted);
            self.alu_by(XOR_X, R3, R2);
            self.load(Word, R2, R1, wanted + 4);
            self.alu_by(AND_X, R3, R2);
            self.alu(NEG, R3, 0);
            self.alu_by(OR_X, R5, R3);
        }
        for (port, range) in [(PORT_A, SOURCE), (PORT_B, DESTINATION)] {
            self.load(Word, R3, R10, port);
            self.load(Half, R2, R1, range);
            self.copy(R4, R3);
            self.alu_by(SUB_X, R4, R2);
            self.alu_by(OR_X, R5, R4);
            self.load(Half, R2, R1, range + 2);
            self.alu_by(SUB_X, R2, R3);
            self.alu_by(OR_X, R5, R2);
        }
        self.load(Word, R1, R1, DROP);
        self.jump(JSGE_K, R5, 0, found);
        self.add(R8, 1);
    }
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
