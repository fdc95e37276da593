//! An assembler of the few eBPF instructions that the programs here take (RFC 9669).

use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the low nibble, source in the high one.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// Registers: R0 result, R1 to R5 arguments (lost in calls), R6 to R9 kept, R10 frame pointer (RFC
/// 9669 section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Register {
    R0 = 0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}
use Register::{R0, R10};

// Operation codes (RFC 9669 sections 4 and 5). `_K`: with a number, `_X`: with a register; with 64
// bits unless it says 32.
const LDX: u8 = 0x61;
const STX_W: u8 = 0x63;
const ST_W: u8 = 0x62;
const ATOMIC_DW: u8 = 0xdb;
const LD_IMM64: u8 = 0x18;
const MOV_X: u8 = 0xbf;
const MOV_K: u8 = 0xb7;
pub(crate) const ADD_K: u8 = 0x07;
pub(crate) const ADD_X: u8 = 0x0f;
pub(crate) const SUB_X: u8 = 0x1f;
pub(crate) const MUL_K: u8 = 0x27;
pub(crate) const OR_X: u8 = 0x4f;
pub(crate) const AND_X: u8 = 0x5f;
pub(crate) const NEG: u8 = 0x87;
pub(crate) const AND_K: u8 = 0x57;
pub(crate) const LSH_K: u8 = 0x67;
pub(crate) const XOR_K: u8 = 0xa7;
pub(crate) const XOR_X: u8 = 0xaf;
pub(crate) const ARSH_K: u8 = 0xc7;
pub(crate) const AND32_K: u8 = 0x54;
const TO_BE: u8 = 0xdc;
pub(crate) const JA: u8 = 0x05;
pub(crate) const JNE32_K: u8 = 0x56;
pub(crate) const JEQ32_K: u8 = 0x16;
pub(crate) const JLT32_K: u8 = 0xa6;
pub(crate) const JEQ_K: u8 = 0x15;
pub(crate) const JNE_K: u8 = 0x55;
pub(crate) const JGT_K: u8 = 0x25;
pub(crate) const JGE_K: u8 = 0x35;
pub(crate) const JLT_K: u8 = 0xa5;
pub(crate) const JGT_X: u8 = 0x2d;
pub(crate) const JSGE_K: u8 = 0x75;
pub(crate) const JLE_X: u8 = 0xbd;
const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;
/// Source of an [`LD_IMM64`] whose immediate is the descriptor of a map,
const PSEUDO_MAP_FD: u8 = 1;
/// and of one that means an address in the only value of such a map.
const PSEUDO_MAP_VALUE: u8 = 2;

/// How much a load takes.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
}
use Size::{Byte, Half, Word};

// Helpers (linux/bpf.h).
pub(crate) const MAP_LOOKUP_ELEM: i32 = 1;
pub(crate) const SKB_PULL_DATA: i32 = 39;
pub(crate) const REDIRECT_MAP: i32 = 51;
pub(crate) const SKB_LOAD_BYTES_RELATIVE: i32 = 68;

/// A place to jump to that is not known yet: the jumps that wait for it.
#[derive(Default)]
pub(crate) struct Label(Vec<usize>);

/// The instructions so far.
#[derive(Default)]
pub(crate) struct Assembler(pub(crate) Vec<Instruction>);

impl Assembler {
    pub(crate) fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, immediate: i32) {
        self.0.push(Instruction { code, registers: to as u8 | from << 4, offset, immediate });
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(MOV_X, to, from as u8, 0, 0);
    }

    /// `to = value`
    pub(crate) fn set(&mut self, to: Register, value: i32) {
        self.push(MOV_K, to, 0, 0, value);
    }

    /// `to += value`
    pub(crate) fn add(&mut self, to: Register, value: i32) {
        self.alu(ADD_K, to, value);
    }

    /// `to` and a number, by the operation `code`.
    pub(crate) fn alu(&mut self, code: u8, to: Register, value: i32) {
        self.push(code, to, 0, 0, value);
    }

    /// `to` and `from`, by the operation `code`.
    pub(crate) fn alu_by(&mut self, code: u8, to: Register, from: Register) {
        self.push(code, to, from as u8, 0, 0);
    }

    /// `to = *(from + at)`, in the machine's byte order.
    pub(crate) fn load(&mut self, size: Size, to: Register, from: Register, at: i16) {
        self.push(LDX | size as u8, to, from as u8, at, 0);
    }

    /// `to = *(from + at)`, of a number in network byte order.
    pub(crate) fn load_be(&mut self, size: Size, to: Register, from: Register, at: i16) {
        self.load(size, to, from, at);
        match size {
            Word => self.push(TO_BE, to, 0, 0, 32),
            Half => self.push(TO_BE, to, 0, 0, 16),
            Byte => {}
        }
    }

    /// `*(R10 + at) = value`, four bytes.
    pub(crate) fn store(&mut self, at: i16, from: Register) {
        self.push(STX_W, R10, from as u8, at, 0);
    }

    /// `*(R10 + at) = bytes`
    pub(crate) fn store_bytes(&mut self, at: i16, bytes: [u8; 4]) {
        self.push(ST_W, R10, 0, at, i32::from_ne_bytes(bytes));
    }

    /// `*(to + at) += from`, eight bytes, atomically.
    pub(crate) fn atomic_add(&mut self, to: Register, at: i16, from: Register) {
        self.push(ATOMIC_DW, to, from as u8, at, 0);
    }

    pub(crate) fn map_descriptor(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.push(LD_IMM64, to, PSEUDO_MAP_FD, 0, map.as_raw_fd());
        self.push(0, R0, 0, 0, 0);
    }

    /// `to` is the address of byte `at` of the only value of the map with this descriptor.
    pub(crate) fn map_value_address(&mut self, to: Register, map: i32, at: usize) {
        self.push(LD_IMM64, to, PSEUDO_MAP_VALUE, 0, map);
        // No map here is as large as 2 GiB.
        self.push(0, R0, 0, 0, at as i32);
    }

    pub(crate) fn call(&mut self, helper: i32) {
        self.push(CALL, R0, 0, 0, helper);
    }

    /// Jumps to `label` if the comparison `code` of `a` with `value` holds.
    pub(crate) fn jump(&mut self, code: u8, a: Register, value: i32, label: &mut Label) {
        label.0.push(self.0.len());
        self.push(code, a, 0, 0, value);
    }

    /// The same with a register.
    pub(crate) fn jump_by(&mut self, code: u8, a: Register, b: Register, label: &mut Label) {
        label.0.push(self.0.len());
        self.push(code, a, b as u8, 0, 0);
    }

    /// Jumps back to the instruction `to` if the comparison of `a` with `value` holds.
    pub(crate) fn jump_back(&mut self, code: u8, a: Register, value: i32, to: usize) {
        let distance = (self.0.len() + 1 - to) as i16;
        self.push(code, a, 0, -distance, value);
    }

    /// Makes all jumps to `label` end at the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        for at in label.0 {
            // Programs here are far shorter than 32,767 instructions.
            self.0[at].offset = (self.0.len() - at - 1) as i16;
        }
    }
}
