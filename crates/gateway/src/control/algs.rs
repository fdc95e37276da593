//! `get-algorithms`, and our own `ironswan-engines`: who does the work of which algorithm, and how
//! fast each engine was in the self-test at start.
//!
//! ```text
//! get-algorithms
//!     encryption { AES_CBC = aws-lc .. }  integrity { .. }  aead { .. }  hasher { }
//!     prf { .. }  xof { }  kdf { .. }  drbg { }  dh { .. }  rng { .. }  nonce-gen { .. }
//!
//! ironswan-engines
//!     engines { vaes = available .. }
//!     suites {
//!         aes128gcm16-64 {
//!             suite = aes128gcm16  size = 64  engine = vaes  falls-back = no
//!             aws-lc { seal-ns = 80  open-ns = 82 } ..
//!         } ..
//!     }
//! ```
//! The sections of `get-algorithms` are charon's. charon writes the name of a plugin behind each
//! algorithm, and we write the name of the engine.

use ironswan_crypto::engines::{EngineId, EngineSelection, Engines};
use ironswan_wire::iana::{EncrId, IntegId, KeId, PrfId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::vici::Section;

use super::Control;
use ironswan_config::algorithms::{Kind, algorithms};

/// Packet length in bytes for which `get-algorithms` names the engine. The engine of a suite may
/// differ with the length, and the answer has room for one name.
const USUAL: usize = 1400;

/// The engine of an ESP suite for packets of the usual length.
fn engine(engines: &Engines, encr: EncrId, key_bits: u16, integ: Option<IntegId>) -> EngineId {
    engines.engine(&EspSuite { encr, key_bits, integ, ke: None, esn: false }, USUAL)
}

/// Builds the answer to `get-algorithms`: charon's eleven sections, in its order. A section is
/// empty when we have nothing to list in it, as `drbg` is in charon's answer.
fn sections(engines: &Engines) -> Section {
    let mut lists: [Section; 5] = Default::default();
    for row in algorithms() {
        let (_, id, bits) = row.transform;
        let ours = EngineId::AwsLc;
        let (at, name, by) = match row.kind {
            Kind::Aead => (2, EncrId(id).to_string(), engine(engines, EncrId(id), bits, None)),
            // A proposal writes AES-GMAC like an integrity algorithm, and ESP negotiates it as an
            // encryption algorithm (transform type 1).
            Kind::Integrity if EncrId(id) == EncrId::NULL_AES_GMAC && row.transform.0 == 1 => {
                (2, EncrId(id).to_string(), engine(engines, EncrId(id), bits, None))
            }
            Kind::Cipher => {
                let sha256 = Some(IntegId::HMAC_SHA2_256_128);
                (0, EncrId(id).to_string(), engine(engines, EncrId(id), bits, sha256))
            }
            Kind::Integrity => {
                (1, IntegId(id).to_string(), engine(engines, EncrId::AES_CBC, 128, Some(IntegId(id))))
            }
            Kind::Prf => (3, PrfId(id).to_string(), ours),
            Kind::KeyExchange => (4, KeId(id).to_string(), ours),
        };
        // One row for each name: several key lengths share it.
        if lists[at].get_str(&name).is_none() {
            lists[at].put(name, by.name());
        }
    }
    let [encryption, integrity, aead, prf, dh] = lists;
    let ours = |name: &str| Section::new().with(name, EngineId::AwsLc.name());
    Section::new()
        .with("encryption", encryption)
        .with("integrity", integrity)
        .with("aead", aead)
        .with("hasher", Section::new())
        .with("prf", prf)
        .with("xof", Section::new())
        .with("kdf", ours("KDF_PRF_PLUS"))
        .with("drbg", Section::new())
        .with("dh", dh)
        .with("rng", ours("RNG_STRONG"))
        .with("nonce-gen", ours("NONCE_GEN"))
}

/// Builds the answer to `ironswan-engines` from the result of the self-test.
fn measured(selection: &EngineSelection) -> Section {
    let engines: Section = EngineId::ALL
        .into_iter()
        .map(|id| (id.name().to_owned(), id.missing().unwrap_or("available").to_owned()))
        .collect();
    let suites: Section = selection
        .table
        .iter()
        .map(|line| {
            let mut s = Section::new()
                .with("suite", line.suite.as_str())
                .with("size", line.size as u64)
                .with("engine", line.chosen.name())
                .with("falls-back", line.falls_back);
            for speed in &line.speeds {
                let times = Section::new()
                    .with("seal-ns", u64::from(speed.seal_ns))
                    .with("open-ns", u64::from(speed.open_ns));
                s.put(speed.engine.name(), times);
            }
            (format!("{}-{}", line.suite, line.size), s)
        })
        .collect();
    Section::new().with("engines", engines).with("suites", suites)
}

impl Control {
    /// `get-algorithms`. A data plane that does not use our engines is listed as if aws-lc did all
    /// its work.
    pub(super) fn get_algorithms(&self) -> Section {
        let chosen = self.driver.plane(|plane| plane.engines().map(|s| s.engines));
        sections(&chosen.unwrap_or_else(Engines::portable))
    }

    /// `ironswan-engines`.
    pub(super) fn ironswan_engines(&self) -> Section {
        let nothing =
            EngineSelection { engines: Engines::portable(), table: Vec::new(), warnings: Vec::new() };
        self.driver.plane(|plane| measured(plane.engines().unwrap_or(&nothing)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_names_the_engine_that_does_it() {
        let all = sections(&Engines::only(EngineId::Vaes));
        let names: Vec<&str> = all.sections().map(|(name, _)| name).collect();
        assert_eq!(
            names.join(" "),
            "encryption integrity aead hasher prf xof kdf drbg dh rng nonce-gen",
            "charon's order"
        );
        let gcm = if EngineId::Vaes.missing().is_none() { "vaes" } else { "aws-lc" };
        for (section, name, engine) in [
            ("encryption", "AES_CBC", "aws-lc"),
            ("encryption", "3DES_CBC", "aws-lc"),
            ("encryption", "NULL", "aws-lc"),
            ("integrity", "HMAC_SHA2_256_128", "aws-lc"),
            ("aead", "AES_GCM_16", gcm),
            ("aead", "NULL_AES_GMAC", gcm),
            ("aead", "CHACHA20_POLY1305", "aws-lc"),
            ("prf", "PRF_HMAC_SHA2_256", "aws-lc"),
            ("dh", "CURVE_25519", "aws-lc"),
        ] {
            assert_eq!(all.section(section).unwrap().get_str(name), Some(engine), "{section} {name}");
        }
    }

    #[test]
    fn what_was_measured_is_shown_with_every_engine() {
        let mut now = 0;
        let selection = Engines::select(
            &mut || {
                now += 32_000;
                now
            },
            None,
        );
        let all = measured(&selection);
        let engines = all.section("engines").unwrap();
        assert_eq!(engines.get_str("aws-lc"), Some("available"));
        assert!(engines.get_str("ipsec-mb").is_some());
        let gcm = all.section("suites").and_then(|s| s.section("aes128gcm16-1400")).unwrap();
        assert_eq!((gcm.get_str("suite"), gcm.get_str("size")), (Some("aes128gcm16"), Some("1400")));
        assert_eq!(gcm.section("aws-lc").unwrap().get_str("seal-ns"), Some("1000"));
        assert_eq!(gcm.get_str("falls-back"), Some("no"));
    }
}
