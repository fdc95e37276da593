//! Packets with a cipher and an integrity algorithm, many at once: the library works on those of a
//! batch side by side, whatever their SAs, lengths and algorithms.
//!
//! ```text
//! seal   IV is there | encrypt text | hash from the SPI on (, high half)  -> ICV field
//! open   ICV is kept | hash from the SPI on (, high half) -> our tag | decrypt text | compare
//! ```
//!
//! With ESN the high half of the sequence number is hashed behind the text (RFC 4303 section
//! 2.2.1), so for the time of the batch it stands where the ICV begins: when sealing the ICV
//! overwrites it, when opening the ICV is put back.

use ironswan_wire::secret::ct_eq;
use zeroize::Zeroize;

use super::{
    Manager, Managers, abilities, isw_aes, isw_block, isw_block_mac, isw_des, isw_run, with_managers,
};

/// Length of [`Call`].
pub(crate) const CALL_LEN: usize = size_of::<Call>();
/// No packet here is longer: the library counts bytes of a lane in 16 bits.
pub(crate) const MAX_LEN: usize = 0xf000;

/// Bytes that the buffer must have behind each packet, for keys whose [`LaneKey::reads_behind`]
/// says so.
pub(crate) const READ_BEHIND: usize = 16;

const HEADER_LEN: usize = 8;
const MAX_ICV: usize = 32;
const MAX_TAG: usize = 64;
const HIGH_LEN: usize = 4;

/// The cipher. The numbers are those of the C shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Cipher {
    Null = 0,
    AesCbc = 1,
    AesCtr = 2,
    TripleDesCbc = 3,
}

/// The MAC. The numbers are those of the C shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Mac {
    Md5 = 0,
    Sha1 = 1,
    Sha256 = 2,
    Sha384 = 3,
    Sha512 = 4,
    Xcbc = 5,
    Cmac = 6,
}

impl Mac {
    /// The hash's block, into which an HMAC key is padded.
    fn block_len(self) -> usize {
        match self {
            Self::Sha384 | Self::Sha512 => 128,
            _ => 64,
        }
    }

    fn icv_len(self) -> usize {
        match self {
            Self::Md5 | Self::Sha1 | Self::Xcbc | Self::Cmac => 12,
            Self::Sha256 => 16,
            Self::Sha384 => 24,
            Self::Sha512 => 32,
        }
    }
}

/// True when the library works on several packets at once with this cipher here: on 3DES it does
/// with AVX-512 only.
pub(crate) fn has(cipher: Cipher) -> bool {
    abilities().is_some_and(|found| cipher != Cipher::TripleDesCbc || found.avx512)
}

/// The shim's `struct isw_call`.
#[repr(C)]
struct Call {
    encrypt_key: *const u8,
    decrypt_key: *const u8,
    mac: [*const u8; 3],
    packet: *mut u8,
    tag: *mut u8,
    iv: *const u8,
    text_at: u32,
    text_len: u32,
    hash_len: u32,
    key_len: u32,
    iv_len: u32,
    tag_len: u32,
    cipher: u32,
    hash: u32,
    done: u32,
}

/// Round keys of AES in both directions, or the schedules of three DES keys.
#[repr(C, align(16))]
struct Schedule([u8; 2 * 15 * 16]);

/// XCBC and CMAC: a key schedule and two blocks. HMAC: the inner and the outer state, in the two
/// first.
#[repr(C, align(16))]
struct MacState([[u8; 15 * 16]; 3]);

const DES_SCHEDULE: usize = 128;

/// The keys of one SA as the library wants them, schedule and MAC one behind the other.
#[repr(C)]
pub(crate) struct LaneKey {
    schedule: Schedule,
    mac: MacState,
    cipher: Cipher,
    hash: Mac,
    key_len: usize,
    /// Use the manager for SSE.
    narrow: bool,
}

/// Pointers to the three DES schedules, which is how the library takes them. Made per batch, since
/// a key may move.
type DesKeys = [*const u8; 3];

impl LaneKey {
    /// Without keys so far. `None` when the library is not there, or it has the algorithms only one
    /// packet at a time, which is slower than any other engine: 3DES without AVX-512.
    pub(crate) fn blank(cipher: Cipher, hash: Mac, key_len: usize) -> Option<Self> {
        let found = abilities()?;
        has(cipher).then_some(Self {
            schedule: Schedule([0; 480]),
            mac: MacState([[0; 240]; 3]),
            cipher,
            hash,
            key_len,
            narrow: found.narrow && hash == Mac::Sha256,
        })
    }

    /// Expands keys in place. `None` when a length is wrong.
    pub(crate) fn set(&mut self, key: &[u8], mac_key: &[u8]) -> Option<()> {
        (key.len() == self.key_len).then_some(())?;
        with_managers(|managers| self.expand(managers, key, mac_key))?.then_some(())
    }

    fn expand(&mut self, managers: &mut Managers, key: &[u8], mac_key: &[u8]) -> bool {
        let mgr = managers.wide.0.as_ptr();
        let cipher = match self.cipher {
            Cipher::Null => key.is_empty(),
            Cipher::AesCbc | Cipher::AesCtr => {
                let (encrypt, decrypt) = self.schedule.0.split_at_mut(240);
                // SAFETY: reads `key` for its length, which the shim checks, and writes at most 15
                // round keys to each array, both aligned to 16.
                matches!(key.len(), 16 | 24 | 32)
                    && unsafe {
                        isw_aes(
                            mgr,
                            key.as_ptr(),
                            key.len() as u32,
                            encrypt.as_mut_ptr(),
                            decrypt.as_mut_ptr(),
                        )
                    } == 1
            }
            Cipher::TripleDesCbc => {
                key.len() == 24
                    && key.chunks(8).zip(self.schedule.0.chunks_mut(DES_SCHEDULE)).all(|(key, schedule)| {
                        // SAFETY: reads the 8 bytes of a key, writes 16 numbers of 8 bytes, aligned
                        // to 16.
                        unsafe { isw_des(mgr, key.as_ptr(), schedule.as_mut_ptr().cast()) == 1 }
                    })
            }
        };
        cipher && self.expand_mac(managers, mac_key)
    }

    fn expand_mac(&mut self, managers: &mut Managers, key: &[u8]) -> bool {
        let mgr = managers.wide.0.as_ptr();
        let [first, second, third] = &mut self.mac.0;
        match self.hash {
            Mac::Xcbc | Mac::Cmac => {
                // SAFETY: reads 16 bytes of key; writes 11 round keys and two blocks, each to an
                // array of 240 bytes aligned to 16.
                key.len() == 16
                    && unsafe {
                        isw_block_mac(
                            mgr,
                            self.hash as u32,
                            key.as_ptr(),
                            first.as_mut_ptr(),
                            second.as_mut_ptr(),
                            third.as_mut_ptr(),
                        )
                    } == 1
            }
            hash => {
                // A key of IPsec is never longer than the block (RFC 2104 section 2 would hash it).
                let mut block = [0; 128];
                let block = &mut block[..hash.block_len()];
                if key.len() > block.len() {
                    return false;
                }
                block[..key.len()].copy_from_slice(key);
                block.iter_mut().for_each(|b| *b ^= 0x36);
                // SAFETY: reads one block of this hash, writes a state of at most 64 bytes into
                // 240.
                let inner = unsafe { isw_block(mgr, hash as u32, block.as_ptr(), first.as_mut_ptr()) } == 1;
                block.iter_mut().for_each(|b| *b ^= 0x36 ^ 0x5c);
                // SAFETY: the same.
                let outer = unsafe { isw_block(mgr, hash as u32, block.as_ptr(), second.as_mut_ptr()) } == 1;
                block.zeroize();
                inner && outer
            }
        }
    }

    /// Addresses and lengths of the keys in memory.
    #[cfg(test)]
    pub(crate) fn place(&self) -> crate::testing::Place {
        let (from, _) = crate::testing::place(&self.schedule);
        (from, size_of::<Schedule>() + size_of::<MacState>())
    }

    /// True when the library may read a few bytes behind a packet. With AVX-512 and VAES it loads
    /// the last block of CMAC's text as 16 bytes, however many of them are text: up to 7 more than
    /// text and ICV have. Nothing becomes of them, but at the end of a buffer there may be no
    /// memory. Of XCBC its newer versions are assumed to do the same.
    pub(crate) fn reads_behind(&self) -> bool {
        matches!(self.hash, Mac::Cmac | Mac::Xcbc)
    }

    fn des_keys(&self) -> DesKeys {
        std::array::from_fn(|i| self.schedule.0[i * DES_SCHEDULE..].as_ptr())
    }

    fn iv_len(&self) -> usize {
        match self.cipher {
            Cipher::Null => 0,
            Cipher::AesCbc => 16,
            Cipher::AesCtr | Cipher::TripleDesCbc => 8,
        }
    }

    /// The text is a multiple of this.
    fn whole(&self) -> usize {
        match self.cipher {
            Cipher::AesCbc => 16,
            Cipher::TripleDesCbc => 8,
            _ => 1,
        }
    }
}

impl Drop for LaneKey {
    fn drop(&mut self) {
        self.schedule.0.zeroize();
        self.mac.0.as_flattened_mut().zeroize();
    }
}

/// One packet of a batch.
#[repr(C)]
struct Slot {
    call: Call,
    /// The job's place in the caller's list.
    index: usize,
    /// Offset of the ICV in the packet.
    icv_at: usize,
    /// The IV has 16 bytes in `iv`, else it is in the packet.
    counter: bool,
    high: bool,
    /// Opening: what the library computed.
    tag: [u8; MAX_TAG],
    /// Opening with ESN: the received ICV.
    icv: [u8; MAX_ICV],
    iv: [u8; 16],
    des: DesKeys,
}

impl Drop for Slot {
    /// The counter block has the salt of its SA in it, the tag is that of a packet that may have
    /// been forged.
    fn drop(&mut self) {
        self.iv.zeroize();
        self.tag.zeroize();
    }
}

/// Memory of a thread, kept from batch to batch, and empty between them: no SA's salt outlives the
/// batch.
#[derive(Default)]
pub(crate) struct Scratch {
    slots: [Vec<Slot>; 2],
}

/// A batch being collected. The buffer is lent to it for its life.
pub(crate) struct Batch<'a> {
    buf: &'a mut [u8],
    slots: &'a mut [Vec<Slot>; 2],
    seal: bool,
}

impl<'a> Batch<'a> {
    /// An empty batch over a buffer, of at most `most` packets: to seal, or to open.
    pub(crate) fn new(buf: &'a mut [u8], scratch: &'a mut Scratch, seal: bool, most: usize) -> Self {
        // Before anything is in there: what moves when it grows leaves a copy behind.
        for slots in &mut scratch.slots {
            slots.clear();
            slots.reserve(most);
        }
        Self { buf, slots: &mut scratch.slots, seal }
    }

    /// The buffer, for what the caller writes before it pushes a packet.
    pub(crate) fn buf(&mut self) -> &mut [u8] {
        self.buf
    }

    /// Adds the packet at `start`, whose IV is in place. Behind it the buffer has [`READ_BEHIND`]
    /// bytes more where [`LaneKey::reads_behind`]. `counter` is the first counter block of AES-CTR,
    /// `high` the high half of the sequence number with ESN. False, and nothing is added, when the
    /// layout is impossible or the packet longer than [`MAX_LEN`].
    #[must_use]
    pub(crate) fn push(
        &mut self,
        key: &'a LaneKey,
        (start, len): (usize, usize),
        counter: [u8; 16],
        high: Option<[u8; HIGH_LEN]>,
        index: usize,
    ) -> bool {
        let (iv_len, icv_len) = (key.iv_len(), key.hash.icv_len());
        let text_at = HEADER_LEN + iv_len;
        let Some(text_len) = len.checked_sub(text_at + icv_len) else { return false };
        let buf_len = self.buf.len();
        let Some(packet) = start.checked_add(len).and_then(|end| self.buf.get_mut(start..end)) else {
            return false;
        };
        let behind = buf_len - (start + len);
        if text_len < 2 || !text_len.is_multiple_of(key.whole()) || len > MAX_LEN {
            return false;
        }
        if key.reads_behind() && behind < READ_BEHIND {
            return false;
        }
        let icv_at = text_at + text_len;
        let mut slot = Slot {
            call: Call {
                encrypt_key: key.schedule.0.as_ptr(),
                decrypt_key: key.schedule.0[240..].as_ptr(),
                mac: std::array::from_fn(|i| key.mac.0[i].as_ptr()),
                // The pointers into the buffer and into this slot are made when nothing moves any
                // more.
                packet: std::ptr::null_mut(),
                tag: std::ptr::null_mut(),
                iv: std::ptr::null(),
                text_at: text_at as u32,
                text_len: if key.cipher == Cipher::Null { 0 } else { text_len as u32 },
                hash_len: icv_at as u32,
                key_len: key.key_len as u32,
                iv_len: if key.cipher == Cipher::AesCtr { 16 } else { iv_len as u32 },
                tag_len: icv_len as u32,
                cipher: key.cipher as u32,
                hash: key.hash as u32,
                done: 0,
            },
            index,
            icv_at: start + icv_at,
            counter: key.cipher == Cipher::AesCtr,
            high: high.is_some(),
            tag: [0; MAX_TAG],
            icv: [0; MAX_ICV],
            iv: [0; 16],
            des: key.des_keys(),
        };
        let field = &mut packet[icv_at..];
        if !self.seal {
            slot.icv[..icv_len].copy_from_slice(field);
            // Nothing but the library's own work makes this the ICV that came.
            slot.tag[..icv_len].iter_mut().zip(field.iter()).for_each(|(tag, icv)| *tag = !icv);
        }
        if let Some(high) = high {
            field[..HIGH_LEN].copy_from_slice(&high);
            slot.call.hash_len += HIGH_LEN as u32;
        }
        let slots = &mut self.slots[usize::from(key.narrow)];
        slots.push(slot);
        // Write the counter in place: moving it would leave copies on the stack.
        if let Some(slot) = slots.last_mut() {
            slot.iv = counter;
        }
        true
    }

    /// Does the work and tells of each packet whether it is sealed, or authentic. What is not
    /// authentic is wiped.
    pub(crate) fn run(self, mut tell: impl FnMut(usize, bool)) {
        let Self { buf, slots, seal } = self;
        let ran = with_managers(|managers| {
            let wide = &managers.wide;
            let narrow = managers.narrow.as_ref().unwrap_or(wide);
            for (manager, slots) in [wide, narrow].into_iter().zip(slots.iter_mut()) {
                submit(manager, buf, slots, seal);
            }
        });
        for slot in slots.iter().flatten() {
            let tag_len = slot.call.tag_len as usize;
            let mut ok = ran.is_some() && slot.call.done == 1;
            if !seal {
                if slot.high {
                    buf[slot.icv_at..slot.icv_at + tag_len].copy_from_slice(&slot.icv[..tag_len]);
                }
                ok &= ct_eq(&slot.tag[..tag_len], &slot.icv[..tag_len]);
                if !ok {
                    let text_len = slot.call.text_len as usize;
                    buf[slot.icv_at - text_len..slot.icv_at].fill(0);
                }
            }
            tell(slot.index, ok);
        }
        slots.iter_mut().for_each(Vec::clear);
    }
}

/// Hands the packets of one manager to the library.
fn submit(manager: &Manager, buf: &mut [u8], slots: &mut [Slot], seal: bool) {
    let base = buf.as_mut_ptr();
    for slot in slots.iter_mut() {
        let packet_at = slot.icv_at - (slot.call.text_at as usize + text_len(slot));
        // SAFETY: `push` saw that the whole packet, so its first byte, its IV and its ICV, lies in
        // the buffer, which has been lent since.
        let (packet, iv, icv) =
            unsafe { (base.add(packet_at), base.add(packet_at + HEADER_LEN), base.add(slot.icv_at)) };
        slot.call.packet = packet;
        slot.call.iv = if slot.counter { slot.iv.as_ptr() } else { iv };
        slot.call.tag = if seal { icv } else { slot.tag.as_mut_ptr() };
        if slot.call.cipher == Cipher::TripleDesCbc as u32 {
            slot.call.encrypt_key = slot.des.as_ptr().cast();
            slot.call.decrypt_key = slot.des.as_ptr().cast();
        }
    }
    // SAFETY: `slots` begin with a `Call` each (`repr(C)`) and lie `size_of::<Slot>()` apart. Every
    // pointer in them is good until the call returns: keys are borrowed for the life of the batch,
    // buffer and slots are borrowed exclusively. The library reads `hash_len` bytes from the SPI
    // on, which ends within the packet (the high half stands in the ICV field, at least 12 bytes),
    // and with some MACs the rest of a block of 16 behind them, which `push` saw to be in the
    // buffer; it writes `text_len` whole blocks of text in place, and a tag of `tag_len` bytes (at
    // most its full digest, 64) where `tag` points: in the packet's ICV field, which is as long, or
    // in `slot.tag`.
    unsafe {
        isw_run(
            manager.0.as_ptr(),
            slots.as_mut_ptr().cast(),
            size_of::<Slot>(),
            slots.len() as u32,
            seal.into(),
        );
    }
}

/// Bytes between IV and ICV.
fn text_len(slot: &Slot) -> usize {
    let high = if slot.high { HIGH_LEN } else { 0 };
    slot.call.hash_len as usize - high - slot.call.text_at as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_leaves_no_salt_in_the_memory_of_its_thread() {
        let salt = 0x77;
        let Some(key) = LaneKey::new(Cipher::AesCtr, &[1; 16], Mac::Sha256, &[2; 32]) else { return };
        let mut scratch = Scratch::default();
        for seal in [true, false] {
            let mut buf = vec![0; 4 * 100];
            let mut batch = Batch::new(&mut buf, &mut scratch, seal, 4);
            for i in 0..4 {
                assert!(batch.push(&key, (i * 100, 8 + 8 + 40 + 16), [salt; 16], None, i));
            }
            assert_eq!(batch.slots.iter().flatten().filter(|slot| slot.iv == [salt; 16]).count(), 4);
            let mut done = 0;
            batch.run(|_, ok| done += usize::from(ok == seal));
            assert_eq!(done, 4, "sealed, or not authentic");
            assert!(scratch.slots.iter().all(|slots| slots.is_empty()));
            let slots = &scratch.slots[usize::from(key.narrow)];
            for i in 0..4 {
                // SAFETY: the list has room for four, and four were in there: these bytes are
                // allocated and initialised.
                let iv = unsafe { (&raw const (*slots.as_ptr().add(i)).iv).read() };
                assert_eq!(iv, [0; 16]);
            }
        }
    }
}
