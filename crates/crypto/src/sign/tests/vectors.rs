//! The examples of RFC 4754 section 8: keys, and signatures of "abc" as r | s.

use crate::sign::{Curve, Hash, Legacy, PrivateKey, PublicKey, Scheme};
use crate::testing::hex;

/// Curve, hash, private key, public key x | y, r | s.
const CASES: [(Curve, Hash, &str, &str, &str); 3] = [
    (
        Curve::P256,
        Hash::Sha256,
        "dc51d3866a15bacde33d96f992fca99da7e6ef0934e7097559c27f1614c88a7f",
        "2442a5cc0ecd015fa3ca31dc8e2bbc70bf42d60cbca20085e0822cb04235e970
         6fc98bd7e50211a4a27102fa3549df79ebcb4bf246b80945cddfe7d509bbfd7d",
        "cb28e0999b9c7715fd0a80d8e47a77079716cbbf917dd72e97566ea1c066957c
         86fa3bb4e26cad5bf90b7f81899256ce7594bb1ea0c89212748bff3b3d5b0315",
    ),
    (
        Curve::P384,
        Hash::Sha384,
        "0beb646634ba87735d77ae4809a0ebea865535de4c1e1dcb692e84708e81a5af62e528c38b2a81b35309668d73524d9f",
        "96281bf8dd5e0525ca049c048d345d3082968d10fedf5c5aca0c64e6465a97ea5ce10c9dfec21797415710721f437922
         447688ba94708eb6e2e4d59f6ab6d7edff9301d249fe49c33096655f5d502fad3d383b91c5e7edaa2b714cc99d5743ca",
        "fb017b914e29149432d8bac29a514640b46f53ddab2c69948084e2930f1c8f7e08e07c9c63f2d21a07dcb56a6af56eb3
         b263a1305e057f984d38726a1b46874109f417bca112674c528262a40a629af1cbb9f516ce0fa7d2ff630863a00e8b9f",
    ),
    (
        Curve::P521,
        Hash::Sha512,
        "0065fda3409451dcab0a0ead45495112a3d813c17bfd34bdf8c1209d7df5849120597779060a7ff9d704adf78b570ffa
         d6f062e95c7e0c5d5481c5b153b48b375fa1",
        "0151518f1af0f563517edd5485190df95a4bf57b5cba4cf2a9a3f6474725a35f7afe0a6ddeb8bedbcd6a197e592d4018
         8901cecd650699c9b5e456aea5add19052a8
         006f3b142ea1bfff7e2837ad44c9e4ff6d2d34c73184bbad90026dd5e6e85317d9df45cad7803c6c20035b2f3ff63aff
         4e1ba64d1c077577da3f4286c58f0aeae643",
        "0154fd3836af92d0dca57dd5341d3053988534fde8318fc6aaaab68e2e6f4339b19f2f281a7e0b22c269d93cf8794a92
         78880ed7dbb8d9362caeacee544320552251
         017705a7030290d1ceb605a9a1bb03ff9cdd521e87a696ec926c8c10c8362df4975367101f67d1cf9bccbf2f3d239534
         fa509e70aac851ae01aac68d62f866472660",
    ),
];

#[test]
fn signatures_of_the_old_methods_are_those_of_rfc_4754() {
    for (curve, hash, scalar, point, signature) in CASES {
        let point = [vec![4], hex(point)].concat();
        let public = PublicKey::ecdsa(curve, &point).expect("a point of the curve");
        let (legacy, scheme) = (Legacy::default(), Scheme::EcdsaFixed(hash));
        assert_eq!(public.old_method().map(|(_, scheme)| scheme), Some(scheme));
        assert_eq!(public.verify(scheme, legacy, b"abc", &hex(signature)), Ok(()), "{curve:?}");
        assert!(public.verify(scheme, legacy, b"abd", &hex(signature)).is_err());
        // The same numbers in DER are the signature of RFC 7427.
        let der = crate::sign::public::fixed_to_der(&hex(signature));
        assert_eq!(public.verify(Scheme::Ecdsa(hash), legacy, b"abc", &der), Ok(()));
        // ECPrivateKey of the scalar, with the name of the curve.
        let scalar = hex(scalar);
        let body =
            [&[2, 1, 1, 4, scalar.len() as u8][..], &scalar, &[0xa0, curve.oid().len() as u8], curve.oid()]
                .concat();
        let private = PrivateKey::from_der(&[&[0x30, body.len() as u8][..], &body].concat(), legacy);
        let private = private.expect("a private key");
        assert_eq!(private.public(), &public, "{curve:?}");
        let signed = private.sign(scheme, legacy, b"abc").expect("a signature");
        assert_eq!(
            (signed.len(), public.verify(scheme, legacy, b"abc", &signed)),
            (2 * scalar.len(), Ok(()))
        );
    }
}
