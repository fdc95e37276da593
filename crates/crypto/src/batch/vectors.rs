//! Whole packets from the RFCs, drafts and other implementations.

use ironswan_wire::iana::{EncrId, IntegId};

use super::across::{new_key, with_every_engine};
use super::tests::{key_from, open_one, packet, seal_one, suite, text};
use crate::rng::{Rng, Seeded};
use crate::testing::{count, hex};

/// Makes the key of CBC's IVs c0 c1 .. cf.
pub(super) struct Counting;

impl Rng for Counting {
    fn fill(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&count(0xc0, out.len()));
    }
}

/// draft-mcgrew-gcm-test-01 section 4, all AES-GCM cases: key and salt, sequence number, plain
/// text, packet.
#[test]
fn aes_gcm_gives_the_packets_of_draft_mcgrew_gcm_test() {
    with_every_engine(|| {
        for (keymat, seq, plain, sealed) in MCGREW {
            let keymat = hex(keymat);
            let esn = seq.len() == 16;
            let suite = suite(EncrId::AES_GCM_16, (keymat.len() as u16 - 4) * 8, None, esn);
            let key = new_key(&suite, &keymat, &[], &mut Seeded::new(0)).unwrap();
            let mut packet = hex(sealed);
            assert!(open_one(&key, &mut packet, u64::from_str_radix(seq, 16).unwrap()), "{seq}");
            assert_eq!(text(&key, &packet), hex(plain), "{seq}");
            if !esn {
                // Their IVs are not their sequence numbers, which stand in the header already.
                let iv = u64::from_be_bytes(packet[8..16].try_into().unwrap());
                assert!(seal_one(&key, &mut packet, iv));
                assert_eq!(packet, hex(sealed), "{seq}");
            }
        }
    });
}

#[test]
fn aes_gmac_gives_the_packet_of_draft_mcgrew_gcm_test() {
    with_every_engine(|| {
        let suite = suite(EncrId::NULL_AES_GMAC, 128, None, false);
        let keymat = hex("4c80cdefbb5d10da906ac73c3613a634 22433c64");
        let key = new_key(&suite, &keymat, &[], &mut Seeded::new(0)).unwrap();
        let plain = hex("45000030da3a00008001df3bc0a80005c0a800010800c6cd02000700
         6162636465666768696a6b6c6d6e6f7071727374 01020201");
        let mut packet = packet(&key, "00004321", 7, &plain);
        // The IV of this packet is zero.
        assert!(seal_one(&key, &mut packet, 0));
        let answer =
            [hex("00004321 00000007 0000000000000000"), plain, hex("f2a9a836e155106aa8dcd618e4099aaa")];
        assert_eq!(packet, answer.concat());
        assert!(open_one(&key, &mut packet, 7));
    });
}

/// The packet of SPI 01020304, sequence number 0x500000007 (7 for implicit IVs without ESN) and the
/// text 40 41 .. 5f under the keys 00 01 .. (with salt) and 80 81 .., without and with ESN,
/// computed with OpenSSL's ciphers and hmac through Python, XCBC from its definition.
#[test]
fn packets_of_all_suites_are_those_of_another_implementation() {
    with_every_engine(|| {
        for (encr, bits, integ, answers) in OTHERS {
            for (esn, answer) in [false, true].into_iter().zip(answers) {
                let suite = suite(encr, bits, integ, esn);
                let key = key_from(&suite, 0, 0x80, &mut Counting);
                let seq = if key.iv_len() == 0 && encr.is_aead() && !esn { 7 } else { 0x5_0000_0007 };
                let mut packet = packet(&key, "01020304", seq, &count(0x40, 32));
                assert!(seal_one(&key, &mut packet, seq));
                assert_eq!(packet, hex(answer), "{suite}");
                assert!(open_one(&key, &mut packet, seq));
                assert_eq!(text(&key, &packet), count(0x40, 32));
            }
        }
    });
}

#[rustfmt::skip]
const MCGREW: [(&str, &str, &str, &str); 14] = [
    (
        "4c80cdefbb5d10da906ac73c3613a634 2e443b68",
        "8765432100000000",
        "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f7564700373
         69700963796265726369747902646b000021000101020201",
        "00004321000000004956ed7e3b244cfefecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34
         cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732459018148f6cbe72
         2fd04796562dfdb4",
    ),
    (
        "feffe9928665731c6d6a8f9467308308 cafebabe",
        "0000000a",
        "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d0010000010000000000000373697009637962
         65726369747902646b00000100010001",
        "0000a5f80000000afacedbaddecaf888deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c
         3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd183b70d3aa8bc6ee4c309e9d85a41ad4a",
    ),
    (
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab 11223344",
        "00000002",
        "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b401010402
         01020201",
        "4a2cbfe3000000020102030405060708ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763
         748a637985771d347f0545659f14e99def842d8eb335f4eecfdbf831824b4c4915956c96",
    ),
    (
        "00000000000000000000000000000000 00000000",
        "00000001",
        "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f7071727374
         75767761626364656667686901020201",
        "000000000000000100000000000000004688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284
         456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3f821d496eeb096e98ad2b69e4799c71d",
    ),
    (
        "3de09874b388e6491988d0c3607eae1f 57690e43",
        "1010101010101010",
        "4500003c99c300008001cb7c40679318010101010800085c020043006162636465666768696a6b6c6d6e6f7071727374
         75767761626364656667686901020201",
        "42f67e3f101010104e280000a2fca1a3fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c357917
         65acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320ae0d731cc978ecafaeae88f00e80d6e48",
    ),
    (
        "3de09874b388e6491988d0c3607eae1f 57690e43",
        "1010101010101010",
        "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
        "42f67e3f101010104e280000a2fca1a3fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed369f071f
         35e034be95f112e4e7d05d35",
    ),
    (
        "feffe9928665731c6d6a8f9467308308feffe9928665731c cafebabe",
        "0000000a",
        "45000028a4ad4000400678800a01038f0a010612802306b8cb712602dd6bb03e501016d075680001",
        "0000a5f80000000afacedbaddecaf888a5b1f8066029aea40e598b8122de02420938b3ab33f828e687b8858b5bfbdbd0
         315b27452144cc7795457b9652037f5318027b5b4cd7a636",
    ),
    (
        "abbccddef00112233445566778899aab decaf888",
        "0000000000000001",
        "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d500004e20001e8c18d75b81dc91baa047
         6b91b924b280389d92c963bac046ec959b6266c04722b14923010101",
        "0000010000000001cafedebaceface7418a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f
         9190feebaf2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c226f2127b27db35724e7845d68651f57e6
         5f354f75ff17015769623436",
    ),
    (
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab 73616c74",
        "156f3126dd0db99b",
        "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
        "17405e67dd0db99b616e640169766563f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57f
         f4d3a31ce673119e451626c2415771e3b7eebca614c89b35",
    ),
    (
        "3de09874b388e6491988d0c3607eae1f 57690e43",
        "1010101010101010",
        "45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b000001e0001e8c18d65759d52284a035
         2c71475c8880391c764d6e5ee0496b325ae270c03899493915010101",
        "42f67e3f101010104e280000a2fca1a3fba2cad12fc1f9f00d3cebf305410db83d7784b607323d220f24b0a97d541828
         00cadb0f68d99ef0e0c0c89ae9bea8884e52d65bc1afd0740f742444747b5b39ab533163aad4550ee5160975cdb608c5
         769189609763b8e18caa81e2",
    ),
    (
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab 73616c74",
        "156f3126dd0db99b",
        "636973636f0172756c657301746865016e6574776501646566696e6501746865746563686e6f6c6f6769657301746861
         7477696c6c01646566696e65746f6d6f72726f7701020201",
        "17405e67dd0db99b616e640169766563d4b7ed86a1777f2ea13d6973d324c69e7b43f826fb56831226508bebd2dceb18
         d0a6df10e5487df074113e14c641024e3e6773d91a62ee429b043a10e3efe6b012a49363412364f8c0cac587f249e56b
         11e24f30e44ccc76",
    ),
    (
        "7d773d00c144c525ac619d18c84a3f47 d9664267",
        "ffffffff",
        "01020201",
        "335467aeffffffff43457e9182443bc6437f866bcb3f699fe9b0822bac961c4504bef270",
    ),
    (
        "abbccddef00112233445566778899aab decaf888",
        "0000000000000001",
        "746f016265016f72016e6f7401746f0162650001",
        "0000010000000001cafedebaceface7429c9fc69a197d038ccdd14e2ddfcaa0543332164412503524303ed3c6c5f2838
         43af8c3e",
    ),
    (
        "6c6567616c697a656d6172696a75616e61616e64646f69746265666f72656961 7475726e",
        "ffffffffffffffff",
        "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f7071727374
         01020201",
        "796b6963ffffffff333021696765746df97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a86
         4cd3d78ca4ae68a32b42458fb57dbe821dcc63b9d0937ba2945f669368661a329fb4c053",
    ),
];

#[rustfmt::skip]
const OTHERS: [(EncrId, u16, Option<IntegId>, [&str; 2]); 35] = [
    (
        EncrId::AES_GCM_8,
        128,
        None,
        [
            "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6a
             c9f59588a5cc222979eb9840",
            "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6a
             c9f59588f890006cc6acd6a6",
        ],
    ),
    (
        EncrId::AES_GCM_8,
        192,
        None,
        [
            "010203040000000700000005000000071a2f44a131b435efa345de70ec57c523eaf65508de996b39db9edded
             f4a81a52e3a5024b27321188",
            "010203040000000700000005000000071a2f44a131b435efa345de70ec57c523eaf65508de996b39db9edded
             f4a81a522bff84f380a2a616",
        ],
    ),
    (
        EncrId::AES_GCM_8,
        256,
        None,
        [
            "0102030400000007000000050000000701044e88a7878610a95e155dd2349865db527c304b787f51c57e85b4
             2996a1d7c1a7786489ddf17d",
            "0102030400000007000000050000000701044e88a7878610a95e155dd2349865db527c304b787f51c57e85b4
             2996a1d786316b558c9044ff",
        ],
    ),
    (
        EncrId::AES_GCM_12,
        128,
        None,
        [
            "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6a
             c9f59588a5cc222979eb98408b828048",
            "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6a
             c9f59588f890006cc6acd6a69d011a3d",
        ],
    ),
    (
        EncrId::AES_GCM_12,
        192,
        None,
        [
            "010203040000000700000005000000071a2f44a131b435efa345de70ec57c523eaf65508de996b39db9edded
             f4a81a52e3a5024b27321188b7fad9d9",
            "010203040000000700000005000000071a2f44a131b435efa345de70ec57c523eaf65508de996b39db9edded
             f4a81a522bff84f380a2a61679630824",
        ],
    ),
    (
        EncrId::AES_GCM_12,
        256,
        None,
        [
            "0102030400000007000000050000000701044e88a7878610a95e155dd2349865db527c304b787f51c57e85b4
             2996a1d7c1a7786489ddf17d9ee6a639",
            "0102030400000007000000050000000701044e88a7878610a95e155dd2349865db527c304b787f51c57e85b4
             2996a1d786316b558c9044ff3f1e87c4",
        ],
    ),
    (
        EncrId::AES_GCM_16,
        192,
        None,
        [
            "010203040000000700000005000000071a2f44a131b435efa345de70ec57c523eaf65508de996b39db9edded
             f4a81a52e3a5024b27321188b7fad9d9f42d5ad2",
            "010203040000000700000005000000071a2f44a131b435efa345de70ec57c523eaf65508de996b39db9edded
             f4a81a522bff84f380a2a616796308244b431b9a",
        ],
    ),
    (
        EncrId::AES_CCM_8,
        128,
        None,
        [
            "01020304000000070000000500000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf3
             39ef5e07fc738996954c86ee",
            "01020304000000070000000500000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf3
             39ef5e079cbe41199a9b7557",
        ],
    ),
    (
        EncrId::AES_CCM_8,
        192,
        None,
        [
            "01020304000000070000000500000007cf4c3fd71bf77a3f6ae4ce21f90279720a2ddb19b86776f6f77315c9
             f611a25c3b403ff44af65b88",
            "01020304000000070000000500000007cf4c3fd71bf77a3f6ae4ce21f90279720a2ddb19b86776f6f77315c9
             f611a25c42a03445b921d123",
        ],
    ),
    (
        EncrId::AES_CCM_8,
        256,
        None,
        [
            "01020304000000070000000500000007f4706eb573e0a8320fd55de4d1cfc80989959dd3ce57d8d5bd41e8c7
             16d61315c734c1bf7992e4ad",
            "01020304000000070000000500000007f4706eb573e0a8320fd55de4d1cfc80989959dd3ce57d8d5bd41e8c7
             16d61315e5472ce86efdaf63",
        ],
    ),
    (
        EncrId::AES_CCM_12,
        128,
        None,
        [
            "01020304000000070000000500000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf3
             39ef5e07e3db21178d6309b326b9b115",
            "01020304000000070000000500000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf3
             39ef5e07f01f09b39a2529131578238e",
        ],
    ),
    (
        EncrId::AES_CCM_12,
        192,
        None,
        [
            "01020304000000070000000500000007cf4c3fd71bf77a3f6ae4ce21f90279720a2ddb19b86776f6f77315c9
             f611a25cae93114cce60dc27f33282e2",
            "01020304000000070000000500000007cf4c3fd71bf77a3f6ae4ce21f90279720a2ddb19b86776f6f77315c9
             f611a25c3334883627ddd023706589a3",
        ],
    ),
    (
        EncrId::AES_CCM_12,
        256,
        None,
        [
            "01020304000000070000000500000007f4706eb573e0a8320fd55de4d1cfc80989959dd3ce57d8d5bd41e8c7
             16d61315a7438839a9919c5f684a3ef9",
            "01020304000000070000000500000007f4706eb573e0a8320fd55de4d1cfc80989959dd3ce57d8d5bd41e8c7
             16d613150179ce0be0d520ff96c126e9",
        ],
    ),
    (
        EncrId::AES_CCM_16,
        128,
        None,
        [
            "01020304000000070000000500000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf3
             39ef5e07a175bc557194f61ccb76d15781b74c3e",
            "01020304000000070000000500000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf3
             39ef5e073cffecad972a9e592e405c2baf46dad8",
        ],
    ),
    (
        EncrId::AES_CCM_16,
        192,
        None,
        [
            "01020304000000070000000500000007cf4c3fd71bf77a3f6ae4ce21f90279720a2ddb19b86776f6f77315c9
             f611a25cc4ca50d582e637625671fecc58602b63",
            "01020304000000070000000500000007cf4c3fd71bf77a3f6ae4ce21f90279720a2ddb19b86776f6f77315c9
             f611a25ccce8ef31e21f5c3f1d9a0ccd58e950a1",
        ],
    ),
    (
        EncrId::AES_CCM_16,
        256,
        None,
        [
            "01020304000000070000000500000007f4706eb573e0a8320fd55de4d1cfc80989959dd3ce57d8d5bd41e8c7
             16d61315ce8778d670e0f12f86c30c3b3a798e54",
            "01020304000000070000000500000007f4706eb573e0a8320fd55de4d1cfc80989959dd3ce57d8d5bd41e8c7
             16d6131553dd1ab597526411d9e03cb695d8a3db",
        ],
    ),
    (
        EncrId::NULL_AES_GMAC,
        128,
        None,
        [
            "01020304000000070000000500000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b
             5c5d5e5f25e399d995fa0711fd275708ff6fd685",
            "01020304000000070000000500000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b
             5c5d5e5f8f3ddb8bd4fc9c60427b198251bdd52f",
        ],
    ),
    (
        EncrId::NULL_AES_GMAC,
        192,
        None,
        [
            "01020304000000070000000500000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b
             5c5d5e5ffd04e4ee233f47ac4c9baab8edbcc2b2",
            "01020304000000070000000500000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b
             5c5d5e5f3eacb1f08e7c2c52200a2c4b2281f96b",
        ],
    ),
    (
        EncrId::NULL_AES_GMAC,
        256,
        None,
        [
            "01020304000000070000000500000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b
             5c5d5e5fba4fbc1c120d8a3cad51a7db11a29cc6",
            "01020304000000070000000500000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b
             5c5d5e5f0960d7660ee4e8d4c3ea36e2b6b7ff6c",
        ],
    ),
    (
        EncrId::AES_CCM_8_IIV,
        128,
        None,
        [
            "010203040000000789fe9465e2a7a93f63c353104127c188697d8bbfbb2482a2e88c20a1de0e7846906ecbe2
             439b465b",
            "0102030400000007956459b1d77298f32f121ff08b2f7338fe856264d640d94d2dd76cf339ef5e079cbe4119
             9a9b7557",
        ],
    ),
    (
        EncrId::AES_CCM_8_IIV,
        256,
        None,
        [
            "0102030400000007b2383e7f18fbc1a6df573de78e3b35259c3077361ed523faf29ac4186a180e059598b9c4
             bf3556e3",
            "0102030400000007f4706eb573e0a8320fd55de4d1cfc80989959dd3ce57d8d5bd41e8c716d61315e5472ce8
             6efdaf63",
        ],
    ),
    (
        EncrId::AES_GCM_16_IIV,
        128,
        None,
        [
            "0102030400000007400b93279f91b750f831bde254e9df9caff837c234675339787d4fee25507f0563edee64
             6013590db83a3032537031d1",
            "0102030400000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6ac9f59588f890006c
             c6acd6a69d011a3d15b144ca",
        ],
    ),
    (
        EncrId::AES_GCM_16_IIV,
        256,
        None,
        [
            "01020304000000073ce38fbc448444bb361f2852eea96e26a382fa48f15262036f27cc5b08c3cfdbdf44c4a6
             34000fa246ea28c468b67360",
            "010203040000000701044e88a7878610a95e155dd2349865db527c304b787f51c57e85b42996a1d786316b55
             8c9044ff3f1e87c49491f141",
        ],
    ),
    (
        EncrId::CHACHA20_POLY1305_IIV,
        256,
        None,
        [
            "0102030400000007510da0ea23b7e26b066206d78050ab68bedafb1319774b5b786b828c7a4902164a432a14
             8bda2d9ae0316ec226bb0470",
            "010203040000000789e1b119b3c77fb3ec1b1b2ace65ef8e9066ad57de153a62d91471ea48f1d430d5f3fa7f
             a1f7de556aafd460b8ddac1e",
        ],
    ),
    (
        EncrId::AES_CTR,
        128,
        Some(IntegId::HMAC_SHA2_256_128),
        [
            "0102030400000007000000050000000741ef38552b8c0eb52b531bd68a3b062b002f4f884b673972db5a6da0
             4120094d49e5d3ad0f105a25e0dac3b48cb80453",
            "0102030400000007000000050000000741ef38552b8c0eb52b531bd68a3b062b002f4f884b673972db5a6da0
             4120094db3c82f108d8789e0f7ee9190196e2563",
        ],
    ),
    (
        EncrId::AES_CTR,
        192,
        Some(IntegId::HMAC_SHA2_256_128),
        [
            "010203040000000700000005000000073ae73dfaf2ae8fc17831b0746d6417e10a3f54b121a425ffb355ce60
             fc47d5339d712368477ca466bf8e9ae457d792ba",
            "010203040000000700000005000000073ae73dfaf2ae8fc17831b0746d6417e10a3f54b121a425ffb355ce60
             fc47d5335c7e5a4f9435bb308af4be7d3eb26155",
        ],
    ),
    (
        EncrId::AES_CTR,
        256,
        Some(IntegId::HMAC_SHA2_256_128),
        [
            "01020304000000070000000500000007bd9988b244866e3fa715ab29993eb42c11145e98b7979600b94e054d
             c224887552ab9f26c4246b229827408696ecffaa",
            "01020304000000070000000500000007bd9988b244866e3fa715ab29993eb42c11145e98b7979600b94e054d
             c224887563fe3af67a57c7ed9b0d1cda47cae955",
        ],
    ),
    (
        EncrId::DES3,
        0,
        Some(IntegId::HMAC_SHA1_96),
        [
            "010203040000000711b0f43db20e54cf1303abc9be2a0d171e372d6cf80cfdb80689aafa6585eb1b576aba9c
             ab4364533cb5233a0621a8c7d984b73d",
            "010203040000000711b0f43db20e54cf1303abc9be2a0d171e372d6cf80cfdb80689aafa6585eb1b576aba9c
             ab4364535653b69da94af57375bcd498",
        ],
    ),
    (
        EncrId::DES3,
        192,
        Some(IntegId::HMAC_MD5_96),
        [
            "010203040000000711b0f43db20e54cf1303abc9be2a0d171e372d6cf80cfdb80689aafa6585eb1b576aba9c
             ab436453670bb6175bd4683367c5a0d8",
            "010203040000000711b0f43db20e54cf1303abc9be2a0d171e372d6cf80cfdb80689aafa6585eb1b576aba9c
             ab43645372eb90b2f8514997ddf76d89",
        ],
    ),
    (
        EncrId::NULL,
        0,
        Some(IntegId::HMAC_MD5_96),
        [
            "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f9fea8511
             6a6ef1c9436414b7",
            "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f355472d6
             24d6e62ca20a8b26",
        ],
    ),
    (
        EncrId::NULL,
        0,
        Some(IntegId::AES_XCBC_96),
        [
            "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f5df58495
             000928b2416cd705",
            "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5fe2133537
             8324c7b7776cddea",
        ],
    ),
    (
        EncrId::NULL,
        0,
        Some(IntegId::AES_CMAC_96),
        [
            "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f282277b6
             6d77331b18f2862a",
            "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5fd7cfa61e
             2ba9e5154f15fc47",
        ],
    ),
    (
        EncrId::AES_CBC,
        128,
        Some(IntegId::HMAC_MD5_96),
        [
            "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c4
             416c62e3f265670c126c22964b67ab4a182db5118fc283fb",
            "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c4
             416c62e3f265670c126c22964e5057e9b2478ada37765143",
        ],
    ),
    (
        EncrId::AES_CBC,
        192,
        Some(IntegId::AES_XCBC_96),
        [
            "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9678dc8edc691632727695d0e758f16f8e97087f15
             48b6686718f0784c550a01e0e9679c038045ef37c6b8a579",
            "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9678dc8edc691632727695d0e758f16f8e97087f15
             48b6686718f0784c550a01e0c9bc70b35b5e083a4d9c0c80",
        ],
    ),
    (
        EncrId::AES_CBC,
        256,
        Some(IntegId::AES_CMAC_96),
        [
            "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a96dd199ba78264eb80dd1f5da3b73864db721ddd1c
             730d638c656d05b3ee9a6c1a7b486e12c3b3bb0d0d796209",
            "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a96dd199ba78264eb80dd1f5da3b73864db721ddd1c
             730d638c656d05b3ee9a6c1aad9dc79206c43ae8ee5c95e7",
        ],
    ),
];
