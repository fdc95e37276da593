//! The packets of a batch that an engine works on side by side, whatever their SAs and lengths.
//!
//! A few of them are not worth it and go packet by packet (`KeyParams::lanes`).

use super::{EspKey, Job, packet};

/// Seals the jobs that were left for it, `waiting` of them.
pub(super) fn seal(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey], waiting: usize) {
    run(buf, jobs, keys, waiting, true);
}

/// Opens them.
pub(super) fn open(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey], waiting: usize) {
    run(buf, jobs, keys, waiting, false);
}

/// The key of a job that is to be done here.
fn wanted<'a>(keys: &[&'a EspKey], job: &Job) -> Option<&'a EspKey> {
    let key = *keys.get(usize::from(job.key))?;
    (key.params.lanes > 0 && key.params.is_for_second(job.len)).then_some(key)
}

/// The jobs packet by packet, by the engine that each key has for that.
fn one_by_one(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey], seal: bool) {
    for job in jobs.iter_mut().filter(|job| !job.ok) {
        if let Some(key) = wanted(keys, job) {
            one(buf, job, key, seal);
        }
    }
}

fn one(buf: &mut [u8], job: &mut Job, key: &EspKey, seal: bool) {
    let done = packet(buf, job).and_then(|packet| match seal {
        true => key.seal(packet, job.seq),
        false => key.open(packet, job.seq),
    });
    job.ok = done.is_some();
}

/// Whether one packet is enough to open by this key: 3DES of our own decrypts the blocks of one
/// side by side.
#[cfg(target_arch = "x86_64")]
fn alone(key: &EspKey) -> bool {
    matches!(key.second.as_deref(), Some(super::SecondEngine::TripleDes(_)))
}

#[cfg(not(target_arch = "x86_64"))]
fn alone(_: &EspKey) -> bool {
    false
}

fn run(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey], waiting: usize, seal: bool) {
    let first = jobs.iter().find_map(|job| wanted(keys, job));
    let least = first.map_or(0, |key| if !seal && alone(key) { 1 } else { key.params.lanes });
    if waiting < usize::from(least) {
        return one_by_one(buf, jobs, keys, seal);
    }
    #[cfg(target_arch = "x86_64")]
    triple_des::run(buf, jobs, keys, seal);
    #[cfg(ipsec_mb)]
    with_ipsec_mb::run(buf, jobs, keys, seal);
}

#[cfg(ipsec_mb)]
pub(super) use with_ipsec_mb::blank;
#[cfg(all(ipsec_mb, test))]
pub(super) use with_ipsec_mb::goes_alone;

/// 3DES of our own: the texts of all packets are encrypted side by side, then each is signed.
/// Opening needs no other packet, since the blocks of one can be decrypted side by side.
#[cfg(target_arch = "x86_64")]
mod triple_des {
    use super::super::{Cipher, Engine, EspKey, Fields, HEADER_LEN, Job, SecondEngine, packet};
    use super::wanted;
    use crate::engine::avx2::{Text, TripleDesKey, encrypt};
    use crate::suite::IntegKey;

    /// The keys of a job that is to be done here.
    fn ours<'a>(
        keys: &[&'a EspKey],
        job: &Job,
    ) -> Option<(&'a EspKey, &'a TripleDesKey, &'a Cipher, &'a IntegKey)> {
        let key = wanted(keys, job)?;
        match (key.second.as_deref(), &key.engine) {
            (Some(SecondEngine::TripleDes(des)), Engine::Both { cipher, integ }) => {
                Some((key, des, cipher, integ))
            }
            _ => None,
        }
    }

    pub(super) fn run(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey], seal: bool) {
        if !seal {
            for job in jobs {
                if let Some((key, des, _, integ)) = ours(keys, job) {
                    job.ok = packet(buf, job).and_then(|p| open(key, des, integ, p, job.seq)).is_some();
                }
            }
            return;
        }
        for job in jobs.iter_mut() {
            let Some((key, _, cipher, _)) = ours(keys, job) else { continue };
            let Some(Fields { iv, .. }) = packet(buf, job).and_then(|p| key.split(p)) else { continue };
            cipher.write_iv(&job.seq.to_be_bytes(), iv);
            // For now this says that the layout is possible.
            job.ok = true;
        }
        let texts = jobs.iter().filter(|job| job.ok).filter_map(|job| {
            let (key, des, cipher, _) = ours(keys, job)?;
            let at = job.start as usize + HEADER_LEN + key.iv_len();
            let len = (job.start + job.len) as usize - at - key.icv_len();
            Some(Text { key: des, at, len, iv: cipher.triple_des_iv(job.seq)? })
        });
        encrypt(buf, texts);
        for job in jobs.iter_mut() {
            let Some((key, _, _, integ)) = ours(keys, job) else { continue };
            let Some(Fields { header, iv, text, icv }) = packet(buf, job).and_then(|p| key.split(p)) else {
                continue;
            };
            integ.sign(&[header, iv, text, key.high(&job.seq.to_be_bytes())], icv);
        }
    }

    fn open(key: &EspKey, des: &TripleDesKey, integ: &IntegKey, packet: &mut [u8], seq: u64) -> Option<()> {
        let Fields { header, iv, text, icv } = key.split(packet)?;
        integ.verify(&[header, iv, text, key.high(&seq.to_be_bytes())], icv).then_some(())?;
        des.decrypt((&*iv).try_into().ok()?, text);
        Some(())
    }
}

#[cfg(ipsec_mb)]
mod with_ipsec_mb {
    use std::cell::RefCell;

    use ironswan_wire::algorithm;
    use ironswan_wire::iana::{EncrId, IntegId};
    use ironswan_wire::proposal::EspSuite;

    use super::super::cipher::ctr_block;
    use super::super::{Cipher, EspKey, Fields, HEADER_LEN, Job, SecondEngine, packet};
    use super::{one, one_by_one, wanted};
    use crate::engine::ipsec_mb::lanes::{Batch, Cipher as LaneCipher, LaneKey, Mac, READ_BEHIND, Scratch};
    thread_local! {
        /// Grows to the longest batch of this thread.
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }

    /// For libipsec-mb, without keys so far. `None` when it does not have the suite, or not several
    /// packets at a time.
    pub(in crate::batch) fn blank(suite: &EspSuite) -> Option<LaneKey> {
        let cipher = match suite.encr {
            EncrId::NULL => LaneCipher::Null,
            EncrId::AES_CBC => LaneCipher::AesCbc,
            EncrId::AES_CTR => LaneCipher::AesCtr,
            EncrId::DES3 => LaneCipher::TripleDesCbc,
            _ => return None,
        };
        let mac = match suite.integ? {
            IntegId::HMAC_MD5_96 => Mac::Md5,
            IntegId::HMAC_SHA1_96 => Mac::Sha1,
            IntegId::HMAC_SHA2_256_128 => Mac::Sha256,
            IntegId::HMAC_SHA2_384_192 => Mac::Sha384,
            IntegId::HMAC_SHA2_512_256 => Mac::Sha512,
            IntegId::AES_XCBC_96 => Mac::Xcbc,
            IntegId::AES_CMAC_96 => Mac::Cmac,
            _ => return None,
        };
        let params = algorithm::encr(suite.encr)?;
        let keymat_len = algorithm::encr_keymat_len(suite.encr, suite.key_bits)?;
        LaneKey::blank(cipher, mac, keymat_len - params.salt_len)
    }

    /// True when a packet ends so close to the end of the buffer that libipsec-mb might read behind
    /// the buffer.
    pub(in crate::batch) fn goes_alone(buf_len: usize, job: &Job, key: &EspKey) -> bool {
        let behind = buf_len.saturating_sub(job.start as usize + job.len as usize);
        match key.second.as_deref() {
            Some(SecondEngine::Lanes(lanes)) => lanes.reads_behind() && behind < READ_BEHIND,
            _ => false,
        }
    }

    /// Hands the jobs that are libipsec-mb's to it.
    pub(super) fn run(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey], seal: bool) {
        let ours = |key: &EspKey| matches!(key.second.as_deref(), Some(SecondEngine::Lanes(_)));
        if !jobs.iter().any(|job| wanted(keys, job).is_some_and(ours)) {
            return;
        }
        if !crate::engine::ipsec_mb::ready() {
            // Nothing was touched yet.
            return one_by_one(buf, jobs, keys, seal);
        }
        let buf_len = buf.len();
        for job in jobs.iter_mut() {
            if let Some(key) = wanted(keys, job).filter(|key| goes_alone(buf_len, job, key)) {
                one(buf, job, key, seal);
            }
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut batch = Batch::new(buf, scratch, seal, jobs.len());
            for (index, job) in jobs.iter().enumerate() {
                let key = wanted(keys, job).filter(|key| ours(key) && !goes_alone(buf_len, job, key));
                if let Some(key) = key {
                    push(&mut batch, key, job, index, seal);
                }
            }
            batch.run(|index, ok| jobs[index].ok = ok);
        });
    }

    /// Adds a job. One whose layout is impossible is not touched and stays not done.
    fn push<'a>(batch: &mut Batch<'a>, key: &'a EspKey, job: &Job, index: usize, seal: bool) -> Option<()> {
        let (Some(SecondEngine::Lanes(lanes)), super::super::Engine::Both { cipher, .. }) =
            (key.second.as_deref(), &key.engine)
        else {
            return None;
        };
        let number = job.seq.to_be_bytes();
        let Fields { iv, .. } = key.split(packet(batch.buf(), job)?)?;
        if seal {
            cipher.write_iv(&number, iv);
        }
        let counter = match cipher {
            Cipher::AesCtr { nonce, .. } => ctr_block(nonce, (&*iv).try_into().ok()?),
            _ => [0; 16],
        };
        let high = key.high(&number).try_into().ok();
        let at = (job.start as usize, job.len as usize);
        debug_assert!(at.1 >= HEADER_LEN + key.iv_len() + key.icv_len());
        batch.push(lanes, at, counter, high, index).then_some(())
    }
}
