//! Methods beside the usual ones: ECP-521, long and weak MODP groups.

use ironswan_wire::iana::KeId;
use ironswan_wire::secret::Secret;

use super::{number, pair, seed};
use crate::engine::aws_lc;
use crate::engine::aws_lc_sys::rsa::Digest;
use crate::kex::{KexError, agree, generate, public_len, respond, response_len, supported};
use crate::testing::{count, hex};

const MORE: [KeId; 9] = [
    KeId::ECP_521,
    KeId::MODP_4096,
    KeId::MODP_6144,
    KeId::MODP_8192,
    KeId::MODP_1024,
    KeId::MODP_1536,
    KeId::MODP_1024_160,
    KeId::MODP_2048_224,
    KeId::MODP_2048_256,
];

#[test]
fn all_may_be_negotiated() {
    for ke in MORE {
        assert!(supported(ke), "{ke}");
        assert_eq!(response_len(ke), public_len(ke), "{ke}");
    }
    for ke in super::ALL {
        assert!(supported(ke), "{ke}");
    }
}

#[test]
fn a_responder_may_respond_or_generate_and_agree() {
    for ke in MORE.into_iter().chain(super::ALL) {
        let (private, public) = pair(ke, 1);
        let (response, shared) = respond(ke, &seed(2), &public).expect("a response");
        let (theirs, same) = pair(ke, 2);
        assert_eq!((&response, response.len()), (&same, response_len(ke).expect("a length")), "{ke}");
        assert_eq!(agree(ke, &private, &response).as_ref(), Ok(&shared), "{ke}");
        assert_eq!(agree(ke, &theirs, &public).as_ref(), Ok(&shared), "{ke}");
        for got in [0, public.len() - 1, public.len() + 1] {
            let mut wrong = public.clone();
            wrong.resize(got, 0);
            let refused = Err(KexError::Length { expected: public.len(), got });
            assert_eq!(respond(ke, &seed(2), &wrong), refused, "{ke}");
            assert!(agree(ke, &private, &wrong).is_err(), "{ke}");
        }
        assert_eq!(respond(ke, &[1; 31], &public), Err(KexError::Internal));
        assert!(respond(ke, &seed(2), &vec![0; public.len()]).is_err(), "{ke}: zero");
        assert!(respond(ke, &seed(2), &vec![0xff; public.len()]).is_err() || ke == KeId::CURVE_25519, "{ke}");
    }
}

/// RFC 5903 section 8.3.
#[test]
fn ecp_521_gives_the_answer_of_the_rfc() {
    let private = Secret::new(hex(
        "0037ade9319a89f4dabdb3ef411aaccca5123c61acab57b5393dce47608172a095aa85a30fe1c2952c6771d937ba9777
         f5957b2639bab072462f68c27a57382d4a52",
    ));
    let peer = hex(
        "00d0b3975ac4b799f5bea16d5e13e9af971d5e9b984c9f39728b5e5739735a219b97c356436adc6e95bb0352f6be64a6
         c2912d4ef2d0433ced2b6171640012d9460f
         015c68226383956e3bd066e797b623c27ce0eac2f551a10c2c724d9852077b87220b6536c5c408a1d2aebb8e86d678ae
         49cb57091f4732296579ab44fcd17f0fc56a",
    );
    let shared = hex(
        "01144c7d79ae6956bc8edb8e7c787c4521cb086fa64407f97894e5e6b2d79b04d1427e73ca4baa240a34786859810c06
         b3c715a3a8cc3151f2bee417996d19f3ddea",
    );
    assert_eq!(agree(KeId::ECP_521, &private, &peer).expect("a shared secret").expose(), shared);
}

#[test]
fn ecp_521_makes_a_key_of_every_seed_and_refuses_points_off_the_curve() {
    for byte in 0..40 {
        let (private, public) = pair(KeId::ECP_521, byte);
        assert!(private.expose()[0] <= 1 && public.len() == 132);
    }
    let (private, public) = pair(KeId::ECP_521, 7);
    for at in 0..public.len() {
        let mut peer = public.clone();
        peer[at] ^= 1;
        assert_eq!(agree(KeId::ECP_521, &private, &peer), Err(KexError::PublicValue), "byte {at}");
    }
}

/// The pairs of the seeds 00 01 .. 1f and 80 81 .. 9f, and their shared secret, computed by
/// Python's pow() from the private keys that Python's hmac derives, primes by formula or of
/// OpenSSL. SHA2-256 of each value.
#[test]
fn modp_gives_the_answers_of_another_implementation() {
    let cases = [
        (
            KeId::MODP_1024,
            [
                "1f33a44d88df89d6bc9146680f1a3d54941f22fc3c8d4621bbe7e2532be765e3",
                "e0d29880b7177b7bd0febf0dc5f773d3052a6d4dbba3505c0ff9de8422989e59",
                "5b49f208d7dffdc3347be2daca36092d84f65a01a7442d10def552371520bc71",
            ],
        ),
        (
            KeId::MODP_1536,
            [
                "ee161d4d22552f802597b8feaf30e4a316db043cbb868ada4fba950cfac9162a",
                "59823f3072b0aa3e32ddc5534dfa73ec00140295f2dc298c6e6a39a49f6ad9af",
                "96e6c1b7ebe74e0379c193999195f81670206829036594a3c63425592000f6b3",
            ],
        ),
        (
            KeId::MODP_4096,
            [
                "ccbf404f8b7f0ee3c4359d0a57809d7e43f5badea9a68c13697790b9e9fcba75",
                "8dad95512a148f453968503e7776e21a8d8d4164f3f66408f63f50ebf10b8997",
                "bba5b732cdcde6b4597d6162c6072b8a50a430a7436bb56ca1ad031982c4c6ce",
            ],
        ),
        (
            KeId::MODP_6144,
            [
                "8a6ad85b058d5bda7ba01d01fc7740dee0e135284e90c9986c30264c25f3075d",
                "efd1c5ffcfc278d1d3b3130c04ea8a0cb5f250faf5534b05cbcd7e9418663e5d",
                "29c69c42732b80a660790cf877e3baf5e97d6946986a4c09922ff8fd7e108cb4",
            ],
        ),
        (
            KeId::MODP_8192,
            [
                "1554c5ea472aaf0a4b35772335b475bb0f3b05def90daa63ff22ba6830053f0a",
                "a4e7f8613a5017a1502eebb9d744bdcbfae263925aad6f64a983a972ecfbc959",
                "e57f5f2cdddc649f739a9516c2dcc510ae374dde5a3b3cdd23cf2814258dd956",
            ],
        ),
        (
            KeId::MODP_1024_160,
            [
                "0fbfb3dd468dfdd45c33591236c2f9b3a08a17c3e007dcc8ee88ac6014e84eee",
                "fc2f68a9e4ddf865fc8c396cad857ec8a410cc8cab9aa6b468cd9d7e19b0954b",
                "93c8473a159b8b2b5f621e3b20702dc7ef258a9ce95f10b8f2645c9a1ddcbfe0",
            ],
        ),
        (
            KeId::MODP_2048_224,
            [
                "234979f50666413b32aeecb3e85e541e2c3deccf3fa91dcda8d0648f5cab3fd4",
                "86e059ff16e8aafa9df61ef5508e09f644dae9e901fef33ff705d72b20d3941f",
                "cecb82c96044d91c3bfebc474f028254408ca2117cdf3ae22b087190a2d26b8c",
            ],
        ),
        (
            KeId::MODP_2048_256,
            [
                "8e07a7cc2af5d1dc491f46a689ea15596c530d70cc8f3a8477c4e6b4b83c986d",
                "ed1ee3ca1e51c412801c0df2d03d59348e6c220c591ea04fa36763244963ecac",
                "eaa3f6bbc738d80822389cf869b817b337a9d86cfb8d307746e6891b9bba49b6",
            ],
        ),
    ];
    for (ke, digests) in cases {
        let ((a, public_a), (b, public_b)) =
            (generate(ke, &count(0, 32)).expect("a pair"), generate(ke, &count(0x80, 32)).expect("a pair"));
        let shared = agree(ke, &a, &public_b).expect("a shared secret");
        assert_eq!(agree(ke, &b, &public_a).as_ref(), Ok(&shared), "{ke}");
        for (value, digest) in [&public_a[..], &public_b, shared.expose()].into_iter().zip(digests) {
            assert_eq!(value.len(), public_len(ke).expect("a length"));
            assert_eq!(aws_lc::hash(Digest::Sha256, value).as_ref(), hex(digest), "{ke}");
        }
    }
}

#[test]
fn modp_refuses_what_is_out_of_range_or_in_a_small_subgroup() {
    for ke in MORE.into_iter().filter(|ke| *ke != KeId::ECP_521) {
        let (private, public) = pair(ke, 5);
        let len = public.len();
        for bad in [number(ke, 0), number(ke, 1), vec![0xff; len]] {
            assert_eq!(agree(ke, &private, &bad), Err(KexError::PublicValue), "{ke}");
        }
        // 2 makes the whole group of a safe prime, and is no power of the generator of RFC 5114.
        let two = agree(ke, &private, &number(ke, 2));
        let small = [KeId::MODP_1024_160, KeId::MODP_2048_224, KeId::MODP_2048_256].contains(&ke);
        assert_eq!(two.is_err(), small, "{ke}");
    }
}
