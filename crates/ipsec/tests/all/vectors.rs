//! The engine opens the packets of RFCs and drafts, byte for byte, from the SPI to the ICV, and
//! delivers what they say is inside.
//!
//! * draft-mcgrew-gcm-test-01 section 4: 14 packets of AES-GCM and one of AES-GMAC, opened in
//!   transport mode, since their next header is ICMP;
//! * RFC 7634 appendix A: ChaCha20-Poly1305, in tunnel mode;
//! * RFC 3602 section 4, cases 5 to 8: AES-CBC without integrity, which no SA of ours may be. An
//!   ICV of HMAC-SHA2-256-128, made by Python's hmac, is added. Cases 7 and 8 are in tunnel mode.
//!
//! A number copied wrong is noticed: those of AEADs carry their own ICV, and the cases of RFC 3602
//! the padding and checksums that come out. None of these packets can be asked of our sending side,
//! whose IV is the sequence number (AEADs) or cannot be foretold (CBC): that the same bytes come
//! out when the IV is given is checked in `ironswan_crypto::batch`.

use std::net::SocketAddr;

use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Config, Datagram, DropReason, Engine, RxBatch, Worker};
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::ip::v4;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Command, Direction, Mode, ReqId, SaAdd, SaRef, Spi};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::common::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn suite(encr: EncrId, key_bits: u16, integ: Option<IntegId>, esn: bool) -> EspSuite {
    EspSuite { encr, key_bits, integ, ke: None, esn }
}

/// Gives a packet to an engine whose only SA is the packet's, and which has seen all numbers before
/// it. What is delivered, or why nothing is.
fn open(
    suite: EspSuite,
    keys: (&[u8], &[u8]),
    mode: Mode,
    seq: u64,
    packet: &[u8],
) -> Result<Vec<u8>, DropReason> {
    // No SA has a reserved SPI.
    let spi = Spi(u32::from_be_bytes(*packet.first_chunk().unwrap()).max(256));
    let any = |v6| TrafficSelector::addresses(AddrRange::any(v6));
    let sa = SaAdd {
        spi,
        suite,
        mode,
        encr_key: Secret::new(keys.0.to_vec()),
        integ_key: Secret::new(keys.1.to_vec()),
        local_ts: vec![any(false), any(true)],
        remote_ts: vec![any(false), any(true)],
        ..Options { udp_encap: false, ..Options::default() }.sa(Direction::In, SPI, REQID, 42)
    };
    let (local, remote): (SocketAddr, SocketAddr) = (sa.local, sa.remote);
    let engine = Engine::new(Box::new(Seeded::new(1)), Config::default());
    engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    let name = SaRef { direction: Direction::In, spi, reqid: ReqId(REQID), remote: remote.ip() };
    engine.advance_sequence(name, seq - 1).unwrap();
    let mut worker = Worker::new(engine.clone());
    worker.begin(SECOND);
    let len = packet.len() as u32;
    let datagram =
        Datagram { offset: 0, len, segment_size: 0, local, remote, carrier: carrier(false), tos: 0 };
    let (mut buf, mut rx) = (packet.to_vec(), RxBatch::new());
    worker.inbound(&mut buf, &[datagram], &mut rx);
    let counters = engine.counters();
    assert!(counters.balance());
    match counters.drops().find(|(_, n)| *n != 0) {
        Some((reason, _)) => Err(reason),
        None => Ok(rx.gather(&buf, &rx.writes[0])),
    }
}

/// What was delivered in transport mode: protocol and payload.
fn upper(packet: &[u8]) -> (u8, &[u8]) {
    assert!(v4::checksum_ok(&packet[..20]));
    assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
    (packet[9], &packet[20..])
}

/// A text without its padding, and its next header.
fn inside(text: &[u8]) -> (u8, &[u8]) {
    let [rest @ .., pad, next_header] = text else { panic!("no trailer") };
    (*next_header, &rest[..rest.len() - usize::from(*pad)])
}

#[test]
fn aes_gcm_of_draft_mcgrew_gcm_test() {
    for (case, (keymat, seq, packet, text)) in (1..).zip(GCM) {
        let (keymat, packet, text) = (hex(keymat), hex(packet), hex(text));
        let suite = suite(EncrId::AES_GCM_16, keymat.len() as u16 * 8 - 32, None, seq.len() == 16);
        let seq = u64::from_str_radix(seq, 16).unwrap();
        let mut wrong = packet.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let opened = open(suite, (&keymat, &[]), Mode::Transport, seq, &packet);
        if packet[..4] == [0; 4] {
            // Case 4 has an SPI that "MUST NOT be sent on the wire" (RFC 4303 section 2.1).
            assert_eq!(opened, Err(DropReason::InReservedSpi));
            continue;
        }
        assert_eq!(upper(&opened.unwrap()), inside(&text), "case {case}");
        let opened = open(suite, (&keymat, &[]), Mode::Transport, seq, &wrong);
        assert_eq!(opened, Err(DropReason::InStateProtoError), "case {case}");
    }
}

#[test]
fn aes_gmac_of_draft_mcgrew_gcm_test() {
    let keymat = hex("4c80cdefbb5d10da906ac73c3613a634 22433c64");
    let text = hex("45000030da3a00008001df3bc0a80005c0a800010800c6cd02000700
         6162636465666768696a6b6c6d6e6f7071727374 01020201");
    let packet =
        [hex("00004321 00000007 0000000000000000"), text.clone(), hex("f2a9a836e155106aa8dcd618e4099aaa")]
            .concat();
    let suite = suite(EncrId::NULL_AES_GMAC, 128, None, false);
    let opened = open(suite, (&keymat, &[]), Mode::Transport, 7, &packet).unwrap();
    assert_eq!(upper(&opened), inside(&text));
}

#[test]
fn chacha20_poly1305_of_rfc_7634() {
    let keymat: Vec<u8> = (0x80..0xa4).collect();
    let packet = hex("0102030400000005 1011121314151617
         24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f7
         2aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e0
         76aaa8266b7fb0f7b11b369907e1ad43");
    let mut ping = hex("45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec1000073627");
    ping.extend(0x08..0x38);
    let suite = suite(EncrId::CHACHA20_POLY1305, 256, None, false);
    assert_eq!(open(suite, (&keymat, &[]), Mode::Tunnel, 5, &packet), Ok(ping));
}

#[test]
fn aes_cbc_of_rfc_3602() {
    let integ_key: Vec<u8> = (0x40..0x60).collect();
    let suite = suite(EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_256_128), false);
    for (case, (key, seq, packet, icv, want)) in (5..).zip(CBC) {
        let (key, packet, want) = (hex(key), [hex(packet), hex(icv)].concat(), hex(want));
        let mode = if case < 7 { Mode::Transport } else { Mode::Tunnel };
        let opened = open(suite, (&key, &integ_key), mode, seq, &packet).unwrap();
        match mode {
            Mode::Transport => assert_eq!(upper(&opened), (1, &want[..]), "case {case}"),
            Mode::Tunnel => assert_eq!(opened, want, "case {case}"),
        }
    }
}

/// Key and salt, sequence number (of 64 bits with extended numbers), packet, text with padding and
/// trailer.
#[rustfmt::skip]
const GCM: [(&str, &str, &str, &str); 14] = [
    (
        "4c80cdefbb5d10da906ac73c3613a6342e443b68",
        "8765432100000000",
        "00004321000000004956ed7e3b244cfefecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34
         cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732459018148f6cbe72
         2fd04796562dfdb4",
        "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f7564700373
         69700963796265726369747902646b000021000101020201",
    ),
    (
        "feffe9928665731c6d6a8f9467308308cafebabe",
        "0000000a",
        "0000a5f80000000afacedbaddecaf888deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c
         3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd183b70d3aa8bc6ee4c309e9d85a41ad4a",
        "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d0010000010000000000000373697009637962
         65726369747902646b00000100010001",
    ),
    (
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab11223344",
        "00000002",
        "4a2cbfe3000000020102030405060708ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763
         748a637985771d347f0545659f14e99def842d8eb335f4eecfdbf831824b4c4915956c96",
        "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b401010402
         01020201",
    ),
    (
        "0000000000000000000000000000000000000000",
        "00000001",
        "000000000000000100000000000000004688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284
         456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3f821d496eeb096e98ad2b69e4799c71d",
        "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f7071727374
         75767761626364656667686901020201",
    ),
    (
        "3de09874b388e6491988d0c3607eae1f57690e43",
        "1010101010101010",
        "42f67e3f101010104e280000a2fca1a3fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c357917
         65acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320ae0d731cc978ecafaeae88f00e80d6e48",
        "4500003c99c300008001cb7c40679318010101010800085c020043006162636465666768696a6b6c6d6e6f7071727374
         75767761626364656667686901020201",
    ),
    (
        "3de09874b388e6491988d0c3607eae1f57690e43",
        "1010101010101010",
        "42f67e3f101010104e280000a2fca1a3fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed369f071f
         35e034be95f112e4e7d05d35",
        "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
    ),
    (
        "feffe9928665731c6d6a8f9467308308feffe9928665731ccafebabe",
        "0000000a",
        "0000a5f80000000afacedbaddecaf888a5b1f8066029aea40e598b8122de02420938b3ab33f828e687b8858b5bfbdbd0
         315b27452144cc7795457b9652037f5318027b5b4cd7a636",
        "45000028a4ad4000400678800a01038f0a010612802306b8cb712602dd6bb03e501016d075680001",
    ),
    (
        "abbccddef00112233445566778899aabdecaf888",
        "0000000000000001",
        "0000010000000001cafedebaceface7418a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f
         9190feebaf2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c226f2127b27db35724e7845d68651f57e6
         5f354f75ff17015769623436",
        "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d500004e20001e8c18d75b81dc91baa047
         6b91b924b280389d92c963bac046ec959b6266c04722b14923010101",
    ),
    (
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab73616c74",
        "156f3126dd0db99b",
        "17405e67dd0db99b616e640169766563f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57f
         f4d3a31ce673119e451626c2415771e3b7eebca614c89b35",
        "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
    ),
    (
        "3de09874b388e6491988d0c3607eae1f57690e43",
        "1010101010101010",
        "42f67e3f101010104e280000a2fca1a3fba2cad12fc1f9f00d3cebf305410db83d7784b607323d220f24b0a97d541828
         00cadb0f68d99ef0e0c0c89ae9bea8884e52d65bc1afd0740f742444747b5b39ab533163aad4550ee5160975cdb608c5
         769189609763b8e18caa81e2",
        "45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b000001e0001e8c18d65759d52284a035
         2c71475c8880391c764d6e5ee0496b325ae270c03899493915010101",
    ),
    (
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab73616c74",
        "156f3126dd0db99b",
        "17405e67dd0db99b616e640169766563d4b7ed86a1777f2ea13d6973d324c69e7b43f826fb56831226508bebd2dceb18
         d0a6df10e5487df074113e14c641024e3e6773d91a62ee429b043a10e3efe6b012a49363412364f8c0cac587f249e56b
         11e24f30e44ccc76",
        "636973636f0172756c657301746865016e6574776501646566696e6501746865746563686e6f6c6f6769657301746861
         7477696c6c01646566696e65746f6d6f72726f7701020201",
    ),
    (
        "7d773d00c144c525ac619d18c84a3f47d9664267",
        "ffffffff",
        "335467aeffffffff43457e9182443bc6437f866bcb3f699fe9b0822bac961c4504bef270",
        "01020201",
    ),
    (
        "abbccddef00112233445566778899aabdecaf888",
        "0000000000000001",
        "0000010000000001cafedebaceface7429c9fc69a197d038ccdd14e2ddfcaa0543332164412503524303ed3c6c5f2838
         43af8c3e",
        "746f016265016f72016e6f7401746f0162650001",
    ),
    (
        "6c6567616c697a656d6172696a75616e61616e64646f69746265666f726569617475726e",
        "ffffffffffffffff",
        "796b6963ffffffff333021696765746df97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a86
         4cd3d78ca4ae68a32b42458fb57dbe821dcc63b9d0937ba2945f669368661a329fb4c053",
        "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f7071727374
         01020201",
    ),
];

/// Key, sequence number, packet, the ICV that was added, and what is inside.
#[rustfmt::skip]
const CBC: [(&str, u64, &str, &str, &str); 4] = [
    (
        "90d382b410eeba7ad938c46cec1a82bf",
        1,
        "00004321 00000001 e96e8c08ab465763fd098d45dd3ff893
         f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856a4699e523a55db080b59ec3a8e4b7e52
         775b07d1db34ed9c538ab50c551b874aa269add047ad2d5913ac19b7cfbad4a6",
        "4f8f1beacdf00af940b596bbf710c886",
        "08000ebda70a00008e9c083db95b070008090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627
         28292a2b2c2d2e2f3031323334353637",
    ),
    (
        "90d382b410eeba7ad938c46cec1a82bf",
        8,
        "00004321 00000008 69d08df7d203329db093fc4924e5bd80
         f51995881ec4e0c4488987ce742e8109689bb379d2d750c0d915dca346a89f75",
        "6e443dde95f902550b77791699fa0038",
        "0800b5e8a80a0500a69c083d0b660e00777777777777777777777777",
    ),
    (
        "0123456789abcdef0123456789abcdef",
        2,
        "00008765 00000002 f4e765244f6407adf13dc1380f673f37
         773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8e4ecaec78ac53aad7a0f022b859243c6
         47752e94a859352b8a4d4d2decd136e5c177f132ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100b842f1c22f0d",
        "88ff51013645f38cb5c780db93d52621",
        "45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a2040008090a0b0c0d0e0f10111213
         1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637",
    ),
    (
        "0123456789abcdef0123456789abcdef",
        5,
        "00008765 00000005 85d47224b5f3dd5d2101d4ea8dffab22
         15b92683819596a8047232cc00f7048fe45318e11f8a0f62ede3c3fc61203bb50f980a08c9843fd3a1b06d5c07ff9639
         b7eb7dfb3512e5de435e7207ed971ef3d2726d9b5ef6affc6d17a0decbb13892",
        "ec88f9fbb018ad38fa3ad55e11ac9b60",
        "45000044090c00004001f990c0a87b03c0a87bc80800d63caa0a0200c69c083da3de0300ffffffffffffffffffffffff
         ffffffffffffffffffffffffffffffffffffffff",
    ),
];
