//! Known answers for every algorithm, run when the daemon starts: a few milliseconds.
//!
//! The answers were computed by other implementations (Python's hmac and pow, OpenSSL's ciphers and
//! curves). Keys and texts are counting bytes, so that they need no table. Every algorithm is also
//! asked to refuse a wrong ICV.

use ironswan_wire::iana::{EncrId, IntegId, KeId, PrfId};
use ironswan_wire::proposal::EspSuite;

use crate::batch::{self, EspKey, Job};
use crate::engines::Engines;
use crate::icv::{self, IcvJob, IcvKey};
use crate::message::{self, MessageKey};
use crate::rng::{Rng, Seeded};
use crate::{kex, prf};

/// Runs all of them. The error names what failed: the daemon must not start then.
pub fn run() -> Result<(), String> {
    for answer in &PRFS {
        check_prf(answer).map_err(|what| format!("{}: {what}", answer.0))?;
    }
    for answer in &KEXS {
        check_kex(answer).map_err(|what| format!("{}: {what}", answer.0))?;
    }
    for answer in &MESSAGES {
        check_message(answer).map_err(|what| format!("{}_{}: {what}", answer.0, answer.1))?;
    }
    packets(&Engines::portable(), |_| true)?;
    check_icv(&ICV).map_err(|what| format!("AH {}: {what}", ICV.0))?;
    if Seeded::new(0).u64() != 0x76b8_e0ad_a0f1_3d90 {
        return Err("ChaCha20 keystream: wrong output".into());
    }
    Ok(())
}

/// The answers of whole ESP packets by these engines, for the suites that `wanted` picks.
pub(crate) fn packets(engines: &Engines, wanted: impl Fn(&EspSuite) -> bool) -> Result<(), String> {
    for answer in PACKETS.iter().filter(|answer| wanted(&suite_of(answer))) {
        check_packet(answer, engines).map_err(|what| format!("ESP {}_{}: {what}", answer.0, answer.1))?;
    }
    Ok(())
}

fn suite_of((encr, bits, integ, _): &PacketAnswer) -> EspSuite {
    EspSuite { encr: *encr, key_bits: *bits, integ: *integ, ke: None, esn: true }
}

/// PRF, prf(00 01 .., "IronSwan").
type PrfAnswer = (PrfId, &'static str);
/// Method, HMAC-SHA2-256("", public | agree(private, public)) of the pair made from the seed 00 01
/// .. 1f.
type KexAnswer = (KeId, &'static str);
/// Algorithms, and `ciphertext | ICV` of the text 40 41 .. 5f with the aad 00 .. 1b and the IV a0
/// a1 .., the encryption key (and salt) 00 01 .. and the integrity key 80 81 ...
type MessageAnswer = (EncrId, u16, Option<IntegId>, &'static str);
/// The same for a whole packet with SPI 01020304 and the extended sequence number 0x500000007.
/// (AES-CBC is in [`MESSAGES`]. The key behind 3DES's IV is the beginning of the generator's bytes
/// for the seed 0.)
type PacketAnswer = (EncrId, u16, Option<IntegId>, &'static str);

static PRFS: [PrfAnswer; 6] = [
    (PrfId::HMAC_SHA2_256, "5f22601b2ae5363051abda85c91a91a788a2386b473c1424ad7c5b0a76d1dd37"),
    (
        PrfId::HMAC_SHA2_384,
        "0a73f8a373cc392fd951e95fa01caf914235ff4dcf4cd221131fd32569a1cf777c5183fcde6721a79e87430a\
         d4d06ea5",
    ),
    (
        PrfId::HMAC_SHA2_512,
        "654898a061b206a2466ac5ff66f547dad41c5e99dd97b6755cad1a9a6c57dc9baf68493c3c9c8bdcc0c88987\
         ee29a541bfba17b01f7ce56ba2ce383228b70f58",
    ),
    (PrfId::HMAC_SHA1, "241a772819ac1d917963d411e9957994265c8aab"),
    (PrfId::AES128_XCBC, "08d281ebfef886f6fe9e6511f8a82b3b"),
    (PrfId::AES128_CMAC, "413cd582e8fb37cca290f6828dae5d7b"),
];

static KEXS: [KexAnswer; 5] = [
    (KeId::CURVE_25519, "a6318a694268598e21a4b4a2734b4fd98e7d949bf25510ec53fd5d2f1d1e93bf"),
    (KeId::ECP_256, "5901ff7fd1690ccd4fb40ebf8fba9853a286e27f1a58991bfb9c652a6bc0a8c0"),
    (KeId::ECP_384, "80cf421e75acb5bff7e9e086e76acd1365b7c63dbea36b6b48c3c2810001303f"),
    (KeId::MODP_2048, "ca63639d7fffd3beb554c26b806c774ebf1c75775efae029f58ef4395ed99cec"),
    (KeId::MODP_3072, "4d80c2c298607be83ec6d93fe51b64bbdf90be78a7b950eb621b199697a69b4a"),
];

static MESSAGES: [MessageAnswer; 13] = [
    (
        EncrId::AES_GCM_16,
        128,
        None,
        "92b8851c8a4e9b10c554b90f021f05d78e38211c4b5e9d4ebb403cf56fb37b050441e2ddd59d57b28f455fa9\
         c3196553",
    ),
    (
        EncrId::AES_GCM_16,
        192,
        None,
        "86de019a8e33d0930921bb6bf4801e7fefa9be28f76477954f3929774b3a16cd43717a413f4288ac6b5d44c6\
         f8bbc0d9",
    ),
    (
        EncrId::AES_GCM_16,
        256,
        None,
        "03b2ab76e7f754457a6137cab8d02b36f5a6c09c8702290ce70bdd6202549e6128b1a05114b11ba5cb1b4a90\
         5727a304",
    ),
    (
        EncrId::CHACHA20_POLY1305,
        256,
        None,
        "c8a3dec008d13c4449c92351a50d65232b6e9826e86d4351ff16d1dd8d7215f64b23abc0c250e076934018f5\
         5345fd67",
    ),
    (
        EncrId::AES_CBC,
        128,
        Some(IntegId::HMAC_SHA2_256_128),
        "de8e8d962b69074b2a38943bad35bc52a42c8437314440fde66ba2283786396dc8584c3632f040c8c9fa14eb\
         0b41fcec",
    ),
    (
        EncrId::AES_CBC,
        192,
        Some(IntegId::HMAC_SHA2_384_192),
        "adb1f1b8fb29b09bf16ebaf8af8cb5c25933b4c4d2d0930fc3a06d47e8f1f7d342dc34404c45df20b343ad2d\
         055113e4e294a80cf77ea64d",
    ),
    (
        EncrId::AES_CBC,
        256,
        Some(IntegId::HMAC_SHA2_512_256),
        "f97d2631b54672f9e1e9e52f5c516485746add56f17ef4bca393666f5dbb06c67af73a6f42935fc5770c55a8\
         baea4a2e1ee74768fd5c695c8699bb0319b8cbfa",
    ),
    (
        EncrId::AES_CBC,
        128,
        Some(IntegId::HMAC_SHA1_96),
        "de8e8d962b69074b2a38943bad35bc52a42c8437314440fde66ba2283786396d8f02757d967fedab648f0089",
    ),
    (
        EncrId::DES3,
        0,
        Some(IntegId::HMAC_SHA1_96),
        "86aac5edf2ea2761b18e2523d88a35a9c7a99d3a4a8c1e43d9167b92f9592653807ab625d56ac8749b956fb0",
    ),
    (
        EncrId::DES3,
        0,
        Some(IntegId::HMAC_MD5_96),
        "86aac5edf2ea2761b18e2523d88a35a9c7a99d3a4a8c1e43d9167b92f9592653217831c435fe1a29efb595fd",
    ),
    (
        EncrId::AES_CTR,
        128,
        Some(IntegId::AES_XCBC_96),
        "8b9c976e1d0822c344e4893c1ec4e86982a8950c9a5e8b00d544a91f120f15c706953f8071d7e48a9dbd2494",
    ),
    (
        EncrId::AES_CTR,
        256,
        Some(IntegId::HMAC_SHA2_256_128),
        "935526ba3b6a4fc96d3db800c7b00aba13a2bb66f7e744556a7127daa8c03b261e3d055a596988bd602c17e1\
         80470860",
    ),
    (
        EncrId::AES_CBC,
        128,
        Some(IntegId::AES_CMAC_96),
        "de8e8d962b69074b2a38943bad35bc52a42c8437314440fde66ba2283786396d237b102eacd9f7ae7757cd48",
    ),
];

static PACKETS: [PacketAnswer; 19] = [
    (
        EncrId::AES_GCM_16,
        128,
        None,
        "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6a\
         c9f59588f890006cc6acd6a69d011a3d15b144ca",
    ),
    (
        EncrId::AES_GCM_16,
        256,
        None,
        "0102030400000007000000050000000701044e88a7878610a95e155dd2349865db527c304b787f51c57e85b4\
         2996a1d786316b558c9044ff3f1e87c49491f141",
    ),
    (
        EncrId::CHACHA20_POLY1305,
        256,
        None,
        "0102030400000007000000050000000789e1b119b3c77fb3ec1b1b2ace65ef8e9066ad57de153a62d91471ea\
         48f1d430d5f3fa7fa1f7de556aafd460b8ddac1e",
    ),
    (
        EncrId::NULL,
        0,
        Some(IntegId::HMAC_SHA1_96),
        "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f5719d761\
         98715805bcdc3b70",
    ),
    (
        EncrId::NULL,
        0,
        Some(IntegId::HMAC_SHA2_256_128),
        "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5faf1bc034\
         e02475d442d9d8988c32a6b1",
    ),
    (
        EncrId::NULL,
        0,
        Some(IntegId::HMAC_SHA2_384_192),
        "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f11540248\
         78dfe023817b06e8f6c301ea19987c01bf587a15",
    ),
    (
        EncrId::NULL,
        0,
        Some(IntegId::HMAC_SHA2_512_256),
        "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f8a84ff03\
         581151830198f0b23b50dc7f1f798125ea51ff7919fa9bd377b27241",
    ),
    (
        EncrId::AES_GCM_8,
        128,
        None,
        "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6a\
         c9f59588f890006cc6acd6a6",
    ),
    (
        EncrId::AES_GCM_12,
        128,
        None,
        "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6a\
         c9f59588f890006cc6acd6a69d011a3d",
    ),
    (
        EncrId::AES_CCM_8,
        128,
        None,
        "01020304000000070000000500000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf3\
         39ef5e079cbe41199a9b7557",
    ),
    (
        EncrId::AES_CCM_12,
        192,
        None,
        "01020304000000070000000500000007cf4c3fd71bf77a3f6ae4ce21f90279720a2ddb19b86776f6f77315c9\
         f611a25c3334883627ddd023706589a3",
    ),
    (
        EncrId::AES_CCM_16,
        256,
        None,
        "01020304000000070000000500000007f4706eb573e0a8320fd55de4d1cfc80989959dd3ce57d8d5bd41e8c7\
         16d6131553dd1ab597526411d9e03cb695d8a3db",
    ),
    (
        EncrId::NULL_AES_GMAC,
        128,
        None,
        "01020304000000070000000500000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b\
         5c5d5e5f8f3ddb8bd4fc9c60427b198251bdd52f",
    ),
    (
        EncrId::AES_CCM_8_IIV,
        128,
        None,
        "0102030400000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf339ef5e079cbe4119\
         9a9b7557",
    ),
    (
        EncrId::AES_GCM_16_IIV,
        128,
        None,
        "0102030400000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6ac9f59588f890006c\
         c6acd6a69d011a3d15b144ca",
    ),
    (
        EncrId::CHACHA20_POLY1305_IIV,
        256,
        None,
        "010203040000000789e1b119b3c77fb3ec1b1b2ace65ef8e9066ad57de153a62d91471ea48f1d430d5f3fa7f\
         a1f7de556aafd460b8ddac1e",
    ),
    (
        EncrId::AES_CTR,
        128,
        Some(IntegId::AES_CMAC_96),
        "0102030400000007000000050000000741ef38552b8c0eb52b531bd68a3b062b002f4f884b673972db5a6da0\
         4120094ddcda4dbb82775e769b241470",
    ),
    (
        EncrId::DES3,
        0,
        Some(IntegId::HMAC_MD5_96),
        "0102030400000007fae7ce1ca6997fd89fd48a6d877a7d34f4a712e9abc4a64f0c58a0294c630084f8c75ffd\
         30e825eb85f6e69e3ce96d51763e8e71",
    ),
    (
        EncrId::NULL,
        0,
        Some(IntegId::AES_XCBC_96),
        "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5fe2133537\
         8324c7b7776cddea",
    ),
];

/// Algorithm, and IV and ICV of an AH packet with that SPI and number: an IP header 10 11 .. 23,
/// and the text as payload.
type IcvAnswer = (IntegId, &'static str);

static ICV: IcvAnswer = (IntegId::AES_128_GMAC, "0000000500000007d7f608e3a310b5996e766fdc55365a5a");

const TEXT_LEN: usize = 32;

fn check_prf((id, answer): &PrfAnswer) -> Result<(), &'static str> {
    let prf = prf::get(*id).ok_or("missing")?;
    let got = prf.mac(&count(0, prf.output_len()), &[b"Iron", b"Swan"]);
    equal(got.expose(), answer)
}

fn check_kex((ke, answer): &KexAnswer) -> Result<(), &'static str> {
    let seed = count(0, kex::SEED_LEN);
    let (private, public) = kex::generate(*ke, &seed).map_err(|_| "key generation failed")?;
    let shared = kex::agree(*ke, &private, &public).map_err(|_| "agreement failed")?;
    let prf = prf::get(PrfId::HMAC_SHA2_256).ok_or("HMAC-SHA2-256 missing")?;
    equal(prf.mac(&[], &[&public, shared.expose()]).expose(), answer)
}

fn check_message((encr, bits, integ, answer): &MessageAnswer) -> Result<(), &'static str> {
    let encr_key = count(0, message::encr_key_len(*encr, *bits).ok_or("missing")?);
    let integ_key = count(0x80, integ.and_then(message::integ_key_len).unwrap_or(0));
    let key = MessageKey::new(*encr, *bits, *integ, &encr_key, &integ_key).ok_or("keys refused")?;
    let (aad, iv) = (count(0, 28), count(0xa0, key.iv_len()));
    let mut message = count(0x40, TEXT_LEN);
    message.resize(TEXT_LEN + key.icv_len(), 0);
    let (text, icv) = message.split_at_mut(TEXT_LEN);
    key.seal(&aad, &iv, text, icv);
    equal(&message, answer)?;
    let (text, icv) = message.split_at_mut(TEXT_LEN);
    key.open(&aad, &iv, text, icv).map_err(|_| "did not open what it sealed")?;
    if text != count(0x40, TEXT_LEN) {
        return Err("opened to another text");
    }
    key.seal(&aad, &iv, text, icv);
    icv[0] ^= 1;
    if key.open(&aad, &iv, text, icv).is_ok() { Err("opened a wrong ICV") } else { Ok(()) }
}

fn check_packet(answer: &PacketAnswer, engines: &Engines) -> Result<(), &'static str> {
    let suite = suite_of(answer);
    let answer = answer.3;
    let (encr_len, integ_len) = batch::keymat_lens(&suite).ok_or("missing")?;
    let (encr_key, integ_key) = (count(0, encr_len), count(0x80, integ_len));
    let key = EspKey::with_engines(&suite, &encr_key, &integ_key, &mut Seeded::new(0), engines)
        .ok_or("keys refused")?;
    let mut packet = vec![1, 2, 3, 4, 0, 0, 0, 7];
    packet.resize(8 + key.iv_len(), 0);
    packet.extend(count(0x40, TEXT_LEN));
    packet.resize(packet.len() + key.icv_len(), 0);
    let mut jobs = [Job { start: 0, len: packet.len() as u32, seq: 0x5_0000_0007, key: 0, ok: false }];
    batch::seal(&mut packet, &mut jobs, &[&key]);
    equal(&packet, answer)?;
    let mut forged = packet.clone();
    *forged.last_mut().ok_or("no packet")? ^= 1;
    batch::open(&mut packet, &mut jobs, &[&key]);
    let text = &packet[8 + key.iv_len()..packet.len() - key.icv_len()];
    if !jobs[0].ok || text != count(0x40, TEXT_LEN) {
        return Err("did not open what it sealed");
    }
    batch::open(&mut forged, &mut jobs, &[&key]);
    if jobs[0].ok { Err("opened a wrong ICV") } else { Ok(()) }
}

fn check_icv((integ, answer): &IcvAnswer) -> Result<(), &'static str> {
    let key_bytes = count(0x80, icv::key_len(*integ).ok_or("missing")?);
    let key = IcvKey::new(*integ, &key_bytes, true).ok_or("key refused")?;
    let head = count(0x10, 20);
    let mut packet = vec![4, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 7];
    packet.resize(12 + key.field_len(), 0xee);
    packet.extend(count(0x40, TEXT_LEN));
    let mut jobs = [IcvJob {
        head: 0,
        head_len: head.len() as u32,
        start: 0,
        len: packet.len() as u32,
        field: 12,
        seq: 0x5_0000_0007,
        ..IcvJob::default()
    }];
    icv::sign(&head, &mut packet, &mut jobs, &[&key]);
    equal(&packet[12..12 + key.field_len()], answer)?;
    icv::verify(&head, &packet, &mut jobs, &[&key]);
    if !jobs[0].ok {
        return Err("did not verify what it signed");
    }
    packet[20] ^= 1;
    icv::verify(&head, &packet, &mut jobs, &[&key]);
    if jobs[0].ok { Err("verified a wrong ICV") } else { Ok(()) }
}

/// `from, from + 1, ...`
fn count(from: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| from.wrapping_add(i as u8)).collect()
}

/// Compares with a hexadecimal string.
fn equal(got: &[u8], hex: &str) -> Result<(), &'static str> {
    let shown: String = got.iter().map(|b| format!("{b:02x}")).collect();
    if shown == hex { Ok(()) } else { Err("wrong output") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_algorithm_gives_its_known_answer() {
        super::run().unwrap();
    }

    #[test]
    fn a_wrong_answer_is_noticed_and_named() {
        let mut answer = super::MESSAGES[0];
        answer.3 = super::MESSAGES[1].3;
        assert_eq!(super::check_message(&answer), Err("wrong output"));
        let mut answer = super::KEXS[0];
        answer.1 = super::KEXS[1].1;
        assert_eq!(super::check_kex(&answer), Err("wrong output"));
    }
}
