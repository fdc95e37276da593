//! Certificates of two gateways with many tunnels, and the cost of their signatures alone.
//!
//! ```text
//!   CN=root ─┬─ CN=g1.example       the initiator has one, as a gateway for many peers
//!            ├─ CN=g2-0.example     the other gateway stands for the peers: one for each
//!            └─ CN=g2-1.example ..  tunnel, all of one key
//! ```

use std::fmt;
use std::hint::black_box;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use ironswan_crypto::sign::{Curve, Hash, KeyKind, Legacy, PrivateKey};

use crate::clock;
use crate::dut::ironswan::write_private;
use crate::error::{LabError, Remedy};
use crate::process::{self, Journal};

/// How the gateways of all tunnels authenticate each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunnelAuth {
    /// A pre-shared key for each tunnel.
    Psk,
    /// Certificates of ECDSA keys over P-256.
    Ecdsa,
    /// Certificates of RSA keys of 3,072 bits.
    Rsa,
}

impl TunnelAuth {
    /// The kind of the keys; `None` without certificates.
    fn kind(self) -> Option<KeyKind> {
        match self {
            Self::Psk => None,
            Self::Ecdsa => Some(KeyKind::Ecdsa(Curve::P256)),
            Self::Rsa => Some(KeyKind::Rsa(3072)),
        }
    }

    /// The same as `ironswan pki gen` takes it.
    fn words(self) -> [&'static str; 4] {
        match self {
            Self::Rsa => ["--type", "rsa", "--size", "3072"],
            Self::Ecdsa | Self::Psk => ["--type", "ecdsa", "--size", "256"],
        }
    }
}

impl fmt::Display for TunnelAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Psk => "psk",
            Self::Ecdsa => "ecdsa",
            Self::Rsa => "rsa",
        })
    }
}

impl FromStr for TunnelAuth {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let all = [Self::Psk, Self::Ecdsa, Self::Rsa];
        let found = all.into_iter().find(|auth| auth.to_string() == s);
        found.ok_or_else(|| format!("`{s}` is no authentication; write psk, ecdsa or rsa"))
    }
}

/// Files of both gateways, in PEM.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) auth: TunnelAuth,
    root: String,
    keys: [String; 2],
    hub: String,
    peers: Vec<String>,
}

/// Time that one command may take; a key of RSA takes longest.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Credentials {
    /// Makes the certificates with `ironswan pki`, by this program, in a folder for its files: one
    /// for each of the names of `peers`, and one for the other gateway.
    pub(super) fn make(
        journal: &Journal,
        program: &str,
        folder: &Path,
        auth: TunnelAuth,
        peers: impl Iterator<Item = String>,
    ) -> Result<Self, LabError> {
        if program.is_empty() {
            let lack = "`ironswan`, whose command `pki` makes the certificates, is not here";
            return Err(LabError::Unfit(vec![Remedy::new(lack, "name the program with --ironswan")]));
        }
        let pki = |words: &[&str]| {
            let argv: Vec<&str> = [program, "pki"].into_iter().chain(words.iter().copied()).collect();
            process::run(journal, &argv, TIMEOUT)
        };
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            write_private(&path, text)?;
            Ok::<_, LabError>(path.to_string_lossy().into_owned())
        };
        let gen_key = || pki(&[&["gen"][..], &auth.words()].concat());
        let root_key = file("root.key", &gen_key()?)?;
        let root = pki(&["self", "--ca", "--in", &root_key, "--dn", "CN=root"])?;
        let ca = file("root.pem", &root)?;
        let keys = [gen_key()?, gen_key()?];
        let paths = [file("g1.key", &keys[0])?, file("g2.key", &keys[1])?];
        let issue = |side: usize, name: &str| {
            let dn = format!("CN={name}");
            let by = ["issue", "--cacert", &ca, "--cakey", &root_key, "--in", &paths[side]];
            pki(&[&by[..], &["--dn", &dn, "--san", name]].concat())
        };
        let hub = issue(0, HUB)?;
        let peers = peers.map(|name| issue(1, &name)).collect::<Result<_, _>>()?;
        Ok(Self { auth, root, keys, hub, peers })
    }

    /// Writes what a gateway with so many tunnels needs into its folder, which must be there.
    pub(super) fn write(&self, side: usize, tunnels: u32, folder: &Path) -> Result<(), LabError> {
        let write = |within: &str, name: &str, text: &str| {
            let folder = folder.join(within);
            std::fs::DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(&folder)
                .map_err(LabError::io(format!("creating {}", folder.display())))?;
            write_private(&folder.join(name), text)
        };
        write("x509ca", "root.pem", &self.root)?;
        write("private", "own.pem", &self.keys[side])?;
        if side == 0 {
            return write("x509", &certificate_file(0, 0), &self.hub);
        }
        let peers = (0..tunnels).zip(&self.peers);
        peers.into_iter().try_for_each(|(tunnel, text)| write("x509", &certificate_file(1, tunnel), text))
    }
}

/// The initiator's identity in all tunnels with certificates.
pub(super) const HUB: &str = "g1.example";

/// Name of the file of a gateway's certificate for a tunnel.
pub(super) fn certificate_file(side: usize, tunnel: u32) -> String {
    if side == 0 { "g1.pem".into() } else { format!("g2-{tunnel}.pem") }
}

/// Processor time of a signature and of its verification alone, microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signatures {
    pub(super) sign_us: f64,
    pub(super) verify_us: f64,
}

/// Each operation is repeated this often.
const ROUNDS: u32 = 100;

impl Signatures {
    /// Signs and verifies in this thread with a fresh key. `None` without certificates.
    pub(super) fn measure(auth: TunnelAuth) -> Result<Option<Self>, LabError> {
        let Some(kind) = auth.kind() else { return Ok(None) };
        let trouble = |what: &str| LabError::Measurement(format!("{what} with a key of {auth} fails"));
        let key = PrivateKey::generate(kind).map_err(|_| trouble("generating"))?;
        let scheme = key.public().scheme(Hash::Sha256, false).ok_or_else(|| trouble("signing"))?;
        // As long as what AUTH covers: an IKE_SA_INIT message, a nonce, and a MAC.
        let message = [7; 400];
        let (began, mut signature) = (clock::of_this_thread(), Vec::new());
        for _ in 0..ROUNDS {
            let signed = key.sign(scheme, Legacy::default(), &message);
            signature = black_box(signed.map_err(|_| trouble("signing"))?);
        }
        let signed = clock::of_this_thread();
        for _ in 0..ROUNDS {
            let right = key.public().verify(scheme, Legacy::default(), &message, &signature);
            black_box(right.map_err(|_| trouble("verifying"))?);
        }
        let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(ROUNDS);
        Ok(Some(Self { sign_us: each(signed - began), verify_us: each(clock::of_this_thread() - signed) }))
    }

    /// Signatures of a tunnel, both ends: each signs once, and verifies the peer's signature and
    /// that of the root in the peer's certificate.
    pub(super) fn of_a_tunnel(self) -> f64 {
        2.0 * self.sign_us + 4.0 * self.verify_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_of_rsa_costs_more_than_its_verification() {
        let rsa = Signatures::measure(TunnelAuth::Rsa).expect("measured").expect("a key");
        assert!(rsa.sign_us > 3.0 * rsa.verify_us && rsa.verify_us > 1.0, "{rsa:?}");
        assert!((rsa.of_a_tunnel() - 2.0 * rsa.sign_us - 4.0 * rsa.verify_us).abs() < 1e-9);
        assert!(Signatures::measure(TunnelAuth::Psk).expect("measured").is_none());
    }

    #[test]
    fn authentications_are_named() {
        for auth in [TunnelAuth::Psk, TunnelAuth::Ecdsa, TunnelAuth::Rsa] {
            assert_eq!(auth.to_string().parse(), Ok(auth));
        }
        assert!("pubkey".parse::<TunnelAuth>().is_err());
    }
}
