//! Keys and signatures that somebody has made to do harm: each is refused, and refusing costs no
//! more than taking a good one.

use std::time::{Duration, Instant};

use super::*;
use crate::sign::der::{self, SEQUENCE, write, write_unsigned};
use crate::sign::public::{EC_OID, RSA_ALGORITHM, fixed_to_der};
use crate::testing::hex;

/// The modulus and the exponent of a key.
fn parts(key: &PublicKey) -> (Vec<u8>, Vec<u8>) {
    let content = der::only(SEQUENCE, key.key_bits()).expect("RSAPublicKey");
    let (modulus, rest) = der::unsigned(content).expect("a modulus");
    (modulus.to_vec(), der::unsigned(rest).expect("an exponent").0.to_vec())
}

/// A modulus of this many bits that is odd.
fn modulus(bits: usize) -> Vec<u8> {
    let mut number = vec![0xff; bits.div_ceil(8)];
    number[0] = 0xff >> (8 * number.len() - bits);
    number
}

#[test]
fn an_rsa_key_out_of_bounds_is_refused() {
    let (good, _) = parts(RSA.public());
    let e: &[u8] = &[1, 0, 1];
    for (bits, taken) in [
        (0, false),
        (512, false),
        (1024, false),
        (2047, false),
        (2048, true),
        (4096, true),
        (16_384, true),
        (16_385, false),
        (16_392, false),
    ] {
        let key = PublicKey::rsa(&modulus(bits.max(1)), e, STRICT);
        assert_eq!(key.is_ok(), taken, "{bits} bits");
        assert!(taken || matches!(key, Err(KeyFault::RsaSize(_))), "{bits} bits");
    }
    let short = Legacy { short_rsa: true, ..STRICT };
    assert!(PublicKey::rsa(&modulus(1024), e, short).is_ok());
    assert_eq!(PublicKey::rsa(&modulus(1023), e, short), Err(KeyFault::RsaSize(1023)));
    let mut even = good.clone();
    *even.last_mut().expect("a byte") &= 0xfe;
    assert_eq!(PublicKey::rsa(&even, e, STRICT), Err(KeyFault::RsaModulus));
    for exponent in [&[][..], &[0], &[1], &[2], &[1, 0, 0], &[2, 0, 0, 0, 1], &[0x80, 0, 0, 0, 1], &good] {
        assert_eq!(PublicKey::rsa(&good, exponent, STRICT), Err(KeyFault::RsaExponent), "{exponent:02x?}");
    }
    for exponent in [&[3][..], &[0, 0, 3], &[0x11], &[1, 0, 1], &[1, 0xff, 0xff, 0xff, 0xff]] {
        assert!(PublicKey::rsa(&good, exponent, STRICT).is_ok(), "{exponent:02x?}");
    }
    // Lengths that DER cannot have here are refused before anything is written.
    assert!(matches!(PublicKey::rsa(&vec![1; 1 << 20], e, STRICT), Err(KeyFault::RsaSize(_))));
    assert!(matches!(PublicKey::rsa(&good, &vec![1; 1 << 20], STRICT), Err(KeyFault::RsaSize(_))));
}

#[test]
fn a_point_that_is_not_on_the_curve_is_refused() {
    for curve in Curve::ALL {
        let key = PrivateKey::generate(KeyKind::Ecdsa(curve)).expect("a key");
        let good = key.public().key_bits().to_vec();
        let len = curve.scalar_len();
        for at in [1, len, len + 1, 2 * len] {
            let mut point = good.clone();
            point[at] ^= 1;
            assert_eq!(PublicKey::ecdsa(curve, &point), Err(KeyFault::Point), "{curve:?} {at}");
        }
        let compressed = [&[2 | good[2 * len] & 1], &good[1..=len]].concat();
        let hybrid = [&[6 | good[2 * len] & 1], &good[1..]].concat();
        let zero = [&[4][..], &vec![0; 2 * len]].concat();
        let above = [&[4][..], &vec![0xff; 2 * len]].concat();
        for point in
            [&[0][..], &[], &compressed, &hybrid, &zero, &above, &good[1..], &[&good[..], &[0]].concat()]
        {
            assert_eq!(PublicKey::ecdsa(curve, point), Err(KeyFault::Point), "{curve:?} {point:02x?}");
            let bits = write(der::BIT_STRING, &[&[0], point]);
            let spki = write(SEQUENCE, &[&write(SEQUENCE, &[EC_OID, curve.oid()]), &bits]);
            assert_eq!(PublicKey::from_spki(&spki, STRICT), Err(KeyFault::Point), "{curve:?}");
        }
        // A point of one curve under the name of another.
        for other in Curve::ALL.into_iter().filter(|other| *other != curve) {
            assert_eq!(PublicKey::ecdsa(other, &good), Err(KeyFault::Point));
        }
    }
}

/// Order of each curve (SEC 2).
const ORDERS: [&str; 3] = [
    "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
    "01fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa51868783bf2f966b7fcc0148f709
     a5d03bb5c9b8899c47aebb6fb71e91386409",
];

/// a + b, of the length of a.
fn add(a: &[u8], b: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut carry) = (a.to_vec(), 0);
    for (byte, add) in out.iter_mut().rev().zip(b.iter().rev()) {
        let sum = u16::from(*byte) + u16::from(*add) + carry;
        (*byte, carry) = (sum as u8, sum >> 8);
    }
    (carry == 0).then_some(out)
}

#[test]
fn an_ecdsa_signature_out_of_range_is_refused() {
    for (curve, order) in Curve::ALL.into_iter().zip(ORDERS) {
        let key = PrivateKey::generate(KeyKind::Ecdsa(curve)).expect("a key");
        let (len, order, zero) = (curve.scalar_len(), hex(order), vec![0; curve.scalar_len()]);
        let scheme = Scheme::EcdsaFixed(Hash::Sha256);
        let good = key.sign(scheme, STRICT, b"octets").expect("a signature");
        let (r, s) = good.split_at(len);
        let mut bad = vec![
            [r, &zero].concat(),
            [&zero, s].concat(),
            [&zero[..], &zero].concat(),
            [r, &order].concat(),
            [&order, s].concat(),
            [&order[..], &order].concat(),
            vec![0xff; 2 * len],
            [s, r].concat(),
        ];
        // The same number modulo the order.
        bad.extend(add(&order, s).map(|s| [r, &s].concat()));
        bad.extend(add(&order, r).map(|r| [&r, s].concat()));
        for fixed in &bad {
            assert_eq!(key.public().verify(scheme, STRICT, b"octets", fixed), Err(SignatureFault::Wrong));
            let der = fixed_to_der(fixed);
            let verdict = key.public().verify(Scheme::Ecdsa(Hash::Sha256), STRICT, b"octets", &der);
            assert_eq!(verdict, Err(SignatureFault::Wrong), "{curve:?}");
        }
        for wrong in [&[][..], &good[1..], &[&[0], &good[..]].concat(), &[&good[..], &[0]].concat(), r] {
            let verdict = key.public().verify(scheme, STRICT, b"octets", wrong);
            assert_eq!(verdict, Err(SignatureFault::Encoding), "{curve:?}");
        }
    }
}

#[test]
fn an_ecdsa_signature_has_one_encoding() {
    let key = PrivateKey::generate(KeyKind::Ecdsa(Curve::P256)).expect("a key");
    let scheme = Scheme::Ecdsa(Hash::Sha256);
    let good = loop {
        // One whose numbers need no leading zero, so that a needless one can be written.
        let good = key.sign(scheme, STRICT, b"octets").expect("a signature");
        if good.len() == 70 {
            break good;
        }
    };
    let verdict = |signature: &[u8]| key.public().verify(scheme, STRICT, b"octets", signature);
    assert_eq!(verdict(&good), Ok(()));
    let (r, s) = (&good[4..36], &good[38..]);
    let number = |bytes: &[u8]| write(der::INTEGER, &[bytes]);
    let bad = [
        // Needless zero, needless length bytes, something behind, another tag, indefinite length.
        write(SEQUENCE, &[&number(&[&[0], r].concat()), &number(s)]),
        [&[0x30, 0x81, 0x44][..], &good[2..]].concat(),
        [&[0x30, 0x45][..], &[2, 0x81, 0x20], r, &number(s)].concat(),
        [&good[..], &[0]].concat(),
        write(SEQUENCE, &[&good[2..], &[5, 0]]),
        [&[0x31][..], &good[1..]].concat(),
        [&[0x30, 0x80][..], &good[2..], &[0, 0]].concat(),
        // A negative number, no numbers, one number, numbers of 33 bytes.
        write(SEQUENCE, &[&number(&[&[0x80], &r[1..]].concat()), &number(s)]),
        write(SEQUENCE, &[]),
        write(SEQUENCE, &[&number(r)]),
        write(SEQUENCE, &[&number(&[&[1], r].concat()), &number(s)]),
        write(SEQUENCE, &[&write_unsigned(&vec![0xff; 60_000]), &number(s)]),
        Vec::new(),
    ];
    for signature in &bad {
        let head = &signature[..signature.len().min(16)];
        assert_eq!(verdict(signature), Err(SignatureFault::Encoding), "{head:02x?}");
    }
    for n in 0..good.len() {
        assert_eq!(verdict(&good[..n]), Err(SignatureFault::Encoding));
    }
}

#[test]
fn an_rsa_signature_out_of_range_is_refused() {
    let (modulus, _) = parts(RSA.public());
    for scheme in [Scheme::RsaPkcs1(Hash::Sha256), Scheme::RsaPss { hash: Hash::Sha256, salt_len: 32 }] {
        let good = RSA.sign(scheme, STRICT, b"octets").expect("a signature");
        let verdict = |signature: &[u8]| RSA.public().verify(scheme, STRICT, b"octets", signature);
        assert_eq!(verdict(&good), Ok(()));
        let (zero, one) = (vec![0; 256], [&[0; 255][..], &[1]].concat());
        // 0, 1, n - 1, n, and the same number modulo n if it fits.
        let mut below = modulus.clone();
        *below.last_mut().expect("a byte") -= 1;
        let mut bad = vec![zero, one, below, modulus.clone(), vec![0xff; 256]];
        bad.extend(add(&modulus, &good));
        for signature in &bad {
            assert_eq!(verdict(signature), Err(SignatureFault::Wrong), "{scheme:?}");
        }
        for wrong in [&[][..], &good[1..], &[&[0], &good[..]].concat(), &[&good[..], &[0]].concat()] {
            assert_eq!(verdict(wrong), Err(SignatureFault::Encoding), "{scheme:?}");
        }
    }
}

#[test]
fn bytes_that_are_no_key_are_refused_whole() {
    for key in one_of_each() {
        let (spki, private) = (key.public().spki(), key.to_pkcs8().expect("a file"));
        for n in 0..spki.len() {
            assert!(PublicKey::from_spki(&spki[..n], STRICT).is_err());
        }
        for n in (0..private.len()).step_by(7) {
            assert!(PrivateKey::from_der(&private.expose()[..n], STRICT).is_err());
        }
        assert!(PublicKey::from_spki(&[spki, &[0]].concat(), STRICT).is_err());
        assert!(PrivateKey::from_der(&[private.expose(), &[0]].concat(), STRICT).is_err());
        assert!(PublicKey::from_spki(private.expose(), STRICT).is_err());
        assert!(PrivateKey::from_der(spki, STRICT).is_err());
        // Every byte of the structure matters: whatever is taken is another key, written the same.
        for at in 0..spki.len() {
            let mut other = spki.to_vec();
            other[at] ^= 0x55;
            if let Ok(read) = PublicKey::from_spki(&other, STRICT) {
                assert_eq!(read.spki(), other);
                assert_ne!(&read, key.public());
            }
        }
    }
}

#[test]
fn a_private_key_whose_parts_do_not_belong_together_is_refused() {
    let file = RSA.to_pkcs8().expect("a file");
    let len = file.len();
    // A bit of qInv, of d, and of the modulus.
    for at in [len - 3, len / 2 - 100, 60] {
        let mut other = file.expose().to_vec();
        other[at] ^= 4;
        let refused = PrivateKey::from_der(&other, STRICT);
        assert_eq!(refused, Err(KeyFault::Mismatch), "byte {at}");
    }
    for curve in Curve::ALL {
        let file = PrivateKey::generate(KeyKind::Ecdsa(curve))
            .and_then(|key| key.to_pkcs8().ok_or(KeyFault::Malformed));
        let file = file.expect("a file");
        let mut other = file.expose().to_vec();
        *other.last_mut().expect("a byte") ^= 1;
        assert_eq!(PrivateKey::from_der(&other, STRICT), Err(KeyFault::Mismatch), "{curve:?}");
    }
}

/// Prints what hostile input costs, beside a good signature of the same key. Bounds are wide: the
/// machine may be busy, and code for tests is not optimised everywhere.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test that measures time")]
fn hostile_input_costs_no_more_than_a_verification() {
    fn time(mut work: impl FnMut()) -> Duration {
        (0..5)
            .map(|_| {
                let start = Instant::now();
                work();
                start.elapsed()
            })
            .min()
            .expect("five times")
    }
    let mut worst = Duration::ZERO;
    for bits in [2048, 4096, 8192, 16_384] {
        let exponent: &[u8] = &[1, 0xff, 0xff, 0xff, 0xff];
        let key = PublicKey::rsa(&modulus(bits), exponent, STRICT).expect("a key that could be one");
        let signature = [&[0][..], &vec![0x5a; bits / 8 - 1]].concat();
        let scheme = Scheme::RsaPkcs1(Hash::Sha256);
        let took = time(|| assert!(key.verify(scheme, STRICT, b"octets", &signature).is_err()));
        println!("RSA {bits}, exponent of 33 bits: {took:?} a forged signature");
        worst = worst.max(took);
    }
    assert!(worst < Duration::from_millis(200), "{worst:?}");
    let mut spki = Vec::new();
    for (what, modulus, exponent) in [
        ("a modulus of 60,000 bytes", vec![0xff; 60_000], vec![3]),
        ("a modulus of 16,385 bits", modulus(16_385), vec![3]),
        ("an exponent of 2,048 bits", modulus(2048), modulus(2048)),
        ("an even modulus", [&modulus(2048)[..255], &[0xfe]].concat(), vec![3]),
        ("the exponent 1", modulus(2048), vec![1]),
    ] {
        let key = write(SEQUENCE, &[&write_unsigned(&modulus), &write_unsigned(&exponent)]);
        spki = write(SEQUENCE, &[RSA_ALGORITHM, &write(der::BIT_STRING, &[&[0], &key])]);
        let took = time(|| assert!(PublicKey::from_spki(&spki, STRICT).is_err(), "{what}"));
        println!("{what}: {took:?} until it is refused");
        assert!(took < Duration::from_millis(1), "{what}: {took:?}");
    }
    assert!(!spki.is_empty());
    for curve in Curve::ALL {
        let key = PrivateKey::generate(KeyKind::Ecdsa(curve)).expect("a key");
        let mut point = key.public().key_bits().to_vec();
        point[5] ^= 1;
        let took = time(|| assert!(PublicKey::ecdsa(curve, &point).is_err()));
        let scheme = Scheme::EcdsaFixed(Hash::Sha512);
        let forged = vec![1; 2 * curve.scalar_len()];
        let verify = time(|| assert!(key.public().verify(scheme, STRICT, b"octets", &forged).is_err()));
        println!("{curve:?}: {took:?} a point off the curve, {verify:?} a forged signature");
        assert!(took.max(verify) < Duration::from_millis(200));
    }
}
