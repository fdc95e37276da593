//! The tables that are written, and whether Wireshark reads them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use ironswan_ike::event::IkeId;
use ironswan_wire::algorithm;
use ironswan_wire::iana::{KeId, PrfId};
use ironswan_wire::proposal::{Additional, EspSuite, IkeSuite};
use ironswan_wire::sadb::Spi;

use super::*;
use ironswan_testkit::scratch::Scratch;

fn child(protocol: ProtocolId, encr: EncrId, integ: Option<IntegId>) -> KeyLog {
    let shape = algorithm::encr(encr).unwrap();
    KeyLog::Child {
        ike: IkeId(1),
        protocol,
        spi: Spi(0xc0ffee01),
        src: "192.0.2.1:4500".parse().unwrap(),
        dst: "192.0.2.2:4500".parse().unwrap(),
        suite: EspSuite { encr, key_bits: shape.key_bits[0], integ, ke: None, esn: false },
        encr_key: Secret::new(vec![0xab; 4]),
        integ_key: integ.map_or(Secret::default(), |_| Secret::new(vec![0xcd; 2])),
    }
}

/// Names of algorithms that Wireshark 4.0 has in its menus; it refuses a table with any other name.
const KNOWN: &[&str] = &[
    "NULL",
    "TripleDES-CBC [RFC2451]",
    "AES-CBC [RFC3602]",
    "AES-CTR [RFC3686]",
    "AES-GCM with 8 octet ICV [RFC4106]",
    "AES-GCM with 12 octet ICV [RFC4106]",
    "AES-GCM with 16 octet ICV [RFC4106]",
    "HMAC-MD5-96 [RFC2403]",
    "HMAC-SHA-1-96 [RFC2404]",
    "HMAC-SHA-256-128 [RFC4868]",
    "HMAC-SHA-384-192 [RFC4868]",
    "HMAC-SHA-512-256 [RFC4868]",
    "ANY 96 bit authentication [no checking]",
    "ANY 128 bit authentication [no checking]",
];

fn open(dir: &Path) -> io::Result<KeyLogger> {
    Tables::open(dir).and_then(KeyLogger::start)
}

#[test]
fn every_suite_is_named_as_wireshark_names_it_or_is_a_comment() {
    for encr in EncrId::ALL {
        let integs = IntegId::ALL.iter().copied().map(Some).chain([None]);
        for integ in integs.filter(|i| encr.is_aead() == i.is_none()) {
            let entry = child(ProtocolId::ESP, *encr, integ);
            let written = line(&entry);
            assert_eq!(written.capacity(), room(&entry), "it has grown, and left a copy of its keys behind");
            let text = written.to_string();
            let fields: Vec<&str> = text.trim_end().split(',').map(|f| f.trim_matches('"')).collect();
            assert_eq!(fields.len(), 8, "{text}");
            let known = KNOWN.contains(&fields[4]) && KNOWN.contains(&fields[6]);
            assert!(known || text.starts_with("# "), "{text}");
        }
    }
    let ah = line(&child(ProtocolId::AH, EncrId::NULL, Some(IntegId::HMAC_SHA2_256_128)));
    assert!(
        ah.starts_with("# AH \"IPv4\",") && ah.contains("\"HMAC-SHA-256-128 [RFC4868]\",\"0xcdcd\""),
        "{}",
        *ah
    );
    for (encr, icv) in [(EncrId::AES_CTR, 4), (EncrId::CHACHA20_POLY1305, 16), (EncrId::AES_GCM_16_IIV, 16)] {
        let text = line(&child(ProtocolId::ESP, encr, None)).to_string();
        assert_eq!(text.starts_with("# "), icv == 16, "{text}");
    }
}

/// Some names are in tables of a library that is not always here; where it is, they must be.
#[test]
fn tshark_takes_the_table() {
    let dir = Scratch::new();
    let mut text = String::new();
    for encr in EncrId::ALL {
        let integ = (!encr.is_aead()).then_some(IntegId::HMAC_SHA2_256_128);
        text.push_str(&line(&child(ProtocolId::ESP, *encr, integ)));
    }
    for integ in IntegId::ALL {
        text.push_str(&line(&child(ProtocolId::ESP, EncrId::AES_CBC, Some(*integ))));
        text.push_str(&line(&child(ProtocolId::AH, EncrId::NULL, Some(*integ))));
    }
    // Empty, but a capture.
    let pcap =
        [[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0].as_slice(), &[0; 8], &[0, 0, 4, 0, 101, 0, 0, 0]].concat();
    std::fs::write(dir.path().join("empty.pcap"), pcap).unwrap();
    let run = |table: &str| {
        let home = dir.path().join(".config/wireshark");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("esp_sa"), table).unwrap();
        std::process::Command::new("tshark")
            .args(["-r", "empty.pcap"])
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .env_remove("XDG_CONFIG_HOME")
            .output()
            .map(|out| String::from_utf8_lossy(&out.stderr).contains("esp_sa"))
    };
    let Ok(complains) = run("\"IPv4\",\"a\",\"b\",\"0x1\",\"no such cipher\",\"0x00\",\"NULL\",\"\"\n")
    else {
        return;
    };
    assert!(complains, "a table that it refuses is said to be");
    assert!(!run(&text).unwrap(), "{text}");
}

#[test]
fn lines_are_what_wireshark_reads_and_the_files_are_private() {
    let secret = |b: u8, n: usize| Secret::new(vec![b; n]);
    let ike = KeyLog::Ike {
        ike: IkeId(1),
        spi_i: 1,
        spi_r: 0xabcd,
        suite: IkeSuite {
            encr: EncrId::AES_CBC,
            key_bits: 128,
            integ: Some(IntegId::HMAC_SHA2_256_128),
            prf: PrfId::HMAC_SHA2_256,
            ke: KeId::CURVE_25519,
            additional: Additional::NONE,
        },
        keys: Box::new([0, 1, 2, 3, 4, 5, 6].map(|b| secret(b, 2))),
    };
    if let KeyLog::Ike { spi_i, spi_r, keys, .. } = &ike {
        for text in [line(&ike), all_sk(&ike, *spi_i, *spi_r, keys)] {
            assert_eq!(text.capacity(), room(&ike), "it has grown");
        }
    }
    let esp = child(ProtocolId::ESP, EncrId::AES_GCM_16, None);
    let dir = Scratch::new();
    let keys = dir.path().join("keys");
    let mut log = open(&keys).unwrap();
    log.write(&ike).unwrap();
    log.write(&esp).unwrap();
    // Dropping the key log waits for the lines that have not been written yet.
    drop(log);
    let read = |n: &str| std::fs::read_to_string(keys.join(n)).unwrap();
    assert_eq!(
        read("ikev2_decryption_table"),
        "0000000000000001,000000000000abcd,0303,0404,\"AES-CBC-128 [RFC3602]\",0101,0202,\"HMAC_SHA2_256_128 [RFC4868]\"\n"
    );
    assert_eq!(
        read("esp_sa"),
        "\"IPv4\",\"192.0.2.1\",\"192.0.2.2\",\"0xc0ffee01\",\"AES-GCM with 16 octet ICV [RFC4106]\",\"0xabababab\",\"NULL\",\"\"\n"
    );
    assert_eq!(read("ike_sk"), "0000000000000001,000000000000abcd,0000,0101,0202,0303,0404,0505,0606\n");
    for f in ["ikev2_decryption_table", "esp_sa", "ike_sk"] {
        assert_eq!(std::fs::metadata(keys.join(f)).unwrap().mode() & 0o777, 0o600);
    }
}

/// The names are those of Wireshark's menus. An algorithm that Wireshark does not check has no keys
/// there: it refuses the whole table otherwise.
#[test]
fn ike_sas_of_old_peers_are_named_as_wireshark_names_them() {
    let any = "\"ANY 96-bits of Authentication [No Checking]\"";
    for (encr, key_bits, integ, want) in [
        (
            EncrId::DES3,
            0,
            IntegId::HMAC_SHA1_96,
            "0303,0404,\"3DES [RFC2451]\",0101,0202,\"HMAC_SHA1_96 [RFC2404]\"".to_owned(),
        ),
        (EncrId::AES_CTR, 192, IntegId::AES_XCBC_96, format!("0303,0404,\"AES-CTR-192 [RFC5930]\",,,{any}")),
        (EncrId::AES_CBC, 256, IntegId::AES_CMAC_96, format!("0303,0404,\"AES-CBC-256 [RFC3602]\",,,{any}")),
    ] {
        let ike = KeyLog::Ike {
            ike: IkeId(1),
            spi_i: 1,
            spi_r: 2,
            suite: IkeSuite {
                encr,
                key_bits,
                integ: Some(integ),
                prf: PrfId::HMAC_SHA1,
                ke: KeId::MODP_1024,
                additional: Additional::NONE,
            },
            keys: Box::new([0, 1, 2, 3, 4, 5, 6].map(|b| Secret::new(vec![b; 2]))),
        };
        assert_eq!(*line(&ike), format!("0000000000000001,0000000000000002,{want}\n"));
    }
}

#[test]
fn what_others_can_read_or_have_made_is_refused() {
    let dir = Scratch::new();
    let keys = dir.path().join("keys");
    drop(open(&keys).unwrap());
    // Files of the key log itself are used again.
    drop(open(&keys).unwrap());
    let refused = |says: &str| {
        let why = open(&keys).map(|_| ()).unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    };
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for name in ["ikev2_decryption_table", "ike_sk", "esp_sa"] {
        let file = keys.join(name);
        for bits in [0o644, 0o640, 0o602] {
            mode(&file, bits);
            refused(&format!("{name} is there already"));
        }
        mode(&file, 0o600);
        fs::hard_link(&file, dir.path().join("second")).unwrap();
        refused(&format!("{name} is there already"));
        fs::remove_file(dir.path().join("second")).unwrap();
        fs::rename(&file, dir.path().join("aside")).unwrap();
        // Whoever follows it appends to a file of the link's choice.
        std::os::unix::fs::symlink("../aside", &file).unwrap();
        refused(&format!("{name} is a link"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        refused(&format!("{name} cannot be opened"));
        fs::remove_dir(&file).unwrap();
        fs::rename(dir.path().join("aside"), &file).unwrap();
    }
    for bits in [0o777, 0o1777, 0o720, 0o702] {
        mode(&keys, bits);
        refused("others may write to it");
    }
    mode(&keys, 0o755);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(keys.join("ike_sk"), Some(65_534), None).unwrap();
        refused("ike_sk is there already, and belongs to another user");
        std::os::unix::fs::chown(&keys, Some(65_534), None).unwrap();
        refused("the folder belongs to another user");
        std::os::unix::fs::chown(&keys, Some(0), None).unwrap();
        std::os::unix::fs::chown(keys.join("ike_sk"), Some(0), None).unwrap();
    }
    drop(open(&keys).unwrap());
    let under = keys.join("ike_sk/keys");
    let why = open(&under).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("name a folder that can be made"), "{why}");
}
