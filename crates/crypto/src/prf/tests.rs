use ironswan_wire::iana::PrfId;

use super::{get, prf_plus};
use crate::testing::{count, hex};

#[test]
fn hmac_gives_the_answers_of_rfc_4231() {
    // Cases 1 to 4, 6 and 7 (5 is truncated): key, data, and the outputs of SHA-256, -384, -512.
    let cases: [(Vec<u8>, &[u8], [&str; 3]); 6] = [
        (
            vec![0x0b; 20],
            b"Hi There",
            [
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
                "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59c
                 faea9ea9076ede7f4af152e8b2fa9cb6",
                "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde
                 daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
            ],
        ),
        (
            b"Jefe".to_vec(),
            b"what do ya want for nothing?",
            [
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e
                 8e2240ca5e69e2c78b3239ecfab21649",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ],
        ),
        (
            vec![0xaa; 20],
            &[0xdd; 50],
            [
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
                "88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b
                 2a5ab39dc13814b94e3ab6e101a34f27",
                "fa73b0089d56a284efb0f0756c890be9b1b5dbdd8ee81a3655f83e33b2279d39
                 bf3e848279a722c806b485a47e67c807b946a337bee8942674278859e13292fb",
            ],
        ),
        (
            count(1, 25),
            &[0xcd; 50],
            [
                "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
                "3e8a69b7783c25851933ab6290af6ca77a9981480850009cc5577c6e1f573b4e
                 6801dd23c4a7d679ccf8a386c674cffb",
                "b0ba465637458c6990e5a8c5f61d4af7e576d97ff94b872de76f8050361ee3db
                 a91ca5c11aa25eb4d679275cc5788063a5f19741120c4f2de2adebeb10a298dd",
            ],
        ),
        (
            vec![0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            [
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
                "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6
                 0c2ef6ab4030fe8296248df163f44952",
                "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352
                 6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
            ],
        ),
        (
            vec![0xaa; 131],
            b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be \
              hashed before being used by the HMAC algorithm.",
            [
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
                "6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5
                 a678cc31e799176d3860e6110c46523e",
                "e37b6a775dc87dbaa4dfa9f96e5e3ffddebd71f8867289865df5a32d20cdc944
                 b6022cac3c4982b10d5eeb55c3e4de15134676fb6de0446065c97440fa8c6a58",
            ],
        ),
    ];
    for (key, data, answers) in cases {
        for (id, answer) in
            [PrfId::HMAC_SHA2_256, PrfId::HMAC_SHA2_384, PrfId::HMAC_SHA2_512].into_iter().zip(answers)
        {
            let prf = get(id).unwrap();
            assert_eq!(prf.id(), id);
            assert_eq!(prf.mac(key.as_slice(), &[data]).expose(), hex(answer), "{id}");
            let split = data.len() / 3;
            assert_eq!(
                prf.mac(&key, &[&data[..split], &[], &data[split..]]).expose(),
                hex(answer),
                "{id} in parts"
            );
        }
    }
}

/// Computed with Python's hmac module: key 00 01 .., seed "IronSwan" 00 01 .. 0f, 300 bytes; and
/// the last 8 of the longest output, 255 blocks.
#[test]
fn prf_plus_gives_the_answers_of_another_implementation() {
    for (id, answer, last) in [
        (
            PrfId::HMAC_SHA2_256,
            "1b863b3faf6578989143a164f3e61538f39b91e9e0a1b0323e946aeb4dfaec1120e6baeb1a57e1ce0eb681a192016b9d
             15dea7e75bc9f68cca1d77d4872b975a11ab8e3519ba9896a9d50e0e9f6910df513a248b27214af37004c72eb4f64f8d
             3c61e22191afba9b8d86c612cbff9f0ee8749c797e000b609e257d4108ed89508408e641fc4094894768526fd042b696
             71663aeba27a29638c295401176ffe91e1a18ed82ccc2048a7eee5660488e1fbf7cc3231a433e3854a07bbdf1e0e35e2
             a4045c6b0b20de06598556aac7bfc47ae1cb6d56caa69ba799522aee6c256259c9c0747adc2bca9688533907ed0dcdc8
             71cbb92f3309d832fde15f35127298648d415fea51f3e7da88bdf5a56ed642452fbfe72707435f075f08e43f8116c978
             b3e28414037eb3f2c2660923",
            "e1630448ab76ebff",
        ),
        (
            PrfId::HMAC_SHA2_384,
            "c495a9568cdeaa2315b1bf3547a58005f0341dc335a203e3bb3463db25cf52a5f7b1c6f3786402d5fc03ef5b630af889
             0342a398f60f06733a88a07583936597f3290a7730d0d2821c4d58e290639f96cd57914741703947f20c721da1fe5f1a
             a23fec15f6f4ea0546201f223a6785a014a52684e51bb02b89621c06cc537c74e4ef0637984448d7f0516c9d5d3945ef
             cc4ff6f15ba91734a84ba4f5e7d6c3a3a737e3b1c5fb2cfb9c1b4419303dd5ebdd6a1bdafeb872124184a75a0163e2c2
             eee689836edca0795c3614cb0c47392dce19d8ba2e3fa8c770523600f3e0582f6851a51f9e35c571caecd28ddec4ba0e
             45b26f366d6170aded192e752b0abddf7ac768453ad5542d4e487e14b373e61cd945a0afc4c733b87e672ee3fa5f5363
             0ee9ad141fe5fb7f40f207e5",
            "753dd95e79e5cebc",
        ),
        (
            PrfId::HMAC_SHA2_512,
            "285cb39c1dd0019bd50a21cc5c0a55bea4a74de5358b55e9bc86ade13d4deddc516b5e7bb50852b26d2e6d37f7b4566d
             9b68359ff0b93baca96444ebfb64c28b0207495762b03d788370609e87378a3c74c027eef7a17e3ee32ea51140d1325c
             855756b2b76cc22a4fe31b7a2595acc1755041e833f41e64ac59a9206da1baa5cb20223e4cfc056a40eb46e71808b4eb
             e59d14cba714f1a10fcbec48c64dc5ac6a031568d1e29c548c11907524e271be7dd9777b4c7b232bc00921a28414d63c
             a6915d8e4e87a1da518d3285cf08ff1b689f7f06c2ecf398ed1bb3e3a05c62b9357f5ca09314470ca099380afa83e040
             ba8c076434d5c4fe824dba767a31d299594a6b585acf9ed3f5b278292b156641baacce14dca345d1570510ebea768e98
             929c9b1276d098f623df21b9",
            "216d1ecde67ac1bf",
        ),
    ] {
        let prf = get(id).unwrap();
        let key = count(0, prf.output_len());
        let seed: [&[u8]; 3] = [b"Iron", b"Swan", &count(0, 16)];
        let whole = hex(answer);
        assert_eq!(whole.len(), 300);
        for len in [0, 1, prf.output_len() - 1, prf.output_len(), prf.output_len() + 1, 300] {
            assert_eq!(prf_plus(prf, &key, &seed, len).expose(), &whole[..len], "{id}, {len} bytes");
        }
        let longest = prf_plus(prf, &key, &seed, 255 * prf.output_len());
        assert_eq!(
            longest.expose().last_chunk(),
            Some(&hex(last)[..].try_into().unwrap()) as Option<&[u8; 8]>
        );
    }
}

#[test]
#[should_panic(expected = "not defined beyond 255")]
fn prf_plus_has_an_end() {
    let prf = get(PrfId::HMAC_SHA2_256).unwrap();
    prf_plus(prf, b"key", &[b"seed"], 255 * 32 + 1);
}

#[test]
fn the_preferred_key_length_is_the_output_length() {
    for (id, len) in [(PrfId::HMAC_SHA2_256, 32), (PrfId::HMAC_SHA2_384, 48), (PrfId::HMAC_SHA2_512, 64)] {
        assert_eq!(get(id).unwrap().output_len(), len);
    }
}

#[test]
fn a_prf_that_is_not_here_is_none() {
    for id in [PrfId::HMAC_MD5, PrfId(999)] {
        assert!(get(id).is_none(), "{id}");
    }
}

/// RFC 4434 section 3 and RFC 4615 section 4: keys of 10, 16 and 18 bytes, the message 00 01 .. 13.
#[test]
fn aes_prfs_give_the_answers_of_their_rfcs() {
    let keys = [count(0, 10), count(0, 16), [count(0, 16), vec![0xed, 0xcb]].concat()];
    for (id, answers) in [
        (
            PrfId::AES128_XCBC,
            [
                "0fa087af7d866e7653434e602fdde835",
                "47f51b4564966215b8985c63055ed308",
                "8cd3c93ae598a9803006ffb67c40e9e4",
            ],
        ),
        (
            PrfId::AES128_CMAC,
            [
                "290d9e112edb09ee141fcf64c0b72f3d",
                "980ae87b5f4c9c5214f5b6a8455e4c2d",
                "84a348a4a45d235babfffc0d2b4da09a",
            ],
        ),
    ] {
        let prf = get(id).expect("a PRF");
        assert_eq!((prf.id(), prf.output_len(), prf.skeyseed_nonce_len()), (id, 16, Some(8)));
        for (key, answer) in keys.iter().zip(answers) {
            let message = count(0, 20);
            assert_eq!(prf.mac(key, &[&message]).expose(), hex(answer), "{id}, key of {} bytes", key.len());
            assert_eq!(prf.mac(key, &[&message[..7], &[], &message[7..]]).expose(), hex(answer), "{id}");
        }
    }
}

#[test]
fn every_prf_has_its_length_and_a_prf_plus() {
    for id in PrfId::ALL {
        assert_eq!(get(*id).is_none(), *id == PrfId::HMAC_MD5, "{id}");
        if let Some(prf) = get(*id) {
            assert_eq!(prf.id(), *id);
            assert_eq!(prf.mac(b"key", &[b"seed"]).len(), prf.output_len());
            // prf+ takes the same PRF, whatever its length.
            let keys = prf_plus(prf, b"key", &[b"seed"], 100);
            assert_eq!(prf.mac(b"key", &[b"seed", &[1]]).expose(), &keys.expose()[..prf.output_len()]);
        }
    }
}

/// RFC 2202 section 3, cases 1 to 4, 6 and 7 (5 is about a truncated output).
#[test]
fn hmac_sha1_gives_the_answers_of_rfc_2202() {
    let prf = get(PrfId::HMAC_SHA1).expect("a PRF");
    assert_eq!((prf.output_len(), prf.skeyseed_nonce_len()), (20, None));
    let cases: [(Vec<u8>, &[u8], &str); 6] = [
        (vec![0x0b; 20], b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00"),
        (b"Jefe".to_vec(), b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (vec![0xaa; 20], &[0xdd; 50], "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (count(1, 25), &[0xcd; 50], "4c9007f4026250c6bc8414f9bf50c86c2d7235da"),
        (
            vec![0xaa; 80],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
        (
            vec![0xaa; 80],
            b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data",
            "e8e99d0f45237d786d6bbaa7965c7808bbff1a91",
        ),
    ];
    for (key, data, answer) in cases {
        assert_eq!(prf.mac(&key, &[&data[..3], &data[3..]]).expose(), hex(answer));
    }
}
