//! One question about a chain, and the two who answer it: this crate, and `openssl verify`.
//!
//! Both get the same certificates, lists, policies and time. OpenSSL reads all of them from files
//! and is told to be strict, to trust a CA that has not issued its own certificate, and to ask for
//! 112 bits of security: this crate does all three.

use std::path::Path;
use std::process::Command;

use base64::engine::{Engine as _, general_purpose::STANDARD};
use ironswan_pki::revocation::{self, Evidence, Policy};
use ironswan_pki::rules::Policies;
use ironswan_pki::{Certificate, ChainFault, Crl, Purpose, Rule, Rules, Time, validate};

/// Certificates and lists in DER, and the rules by which the first certificate is judged.
#[derive(Clone)]
pub struct Question {
    /// The peer's own certificate.
    pub own: Vec<u8>,
    /// Certificates that it sent beside.
    pub sent: Vec<Vec<u8>>,
    /// CAs of the configuration.
    pub trusted: Vec<Vec<u8>>,
    /// Revocation lists. `None`: the status is not asked for.
    pub lists: Option<Vec<Vec<u8>>>,
    /// Seconds since 1970.
    pub now: i64,
    pub policies: Policies,
    pub usage: Usage,
}

/// Use of the key, as both judges know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// RFC 5280 alone.
    Any,
    /// Signatures of IKE. OpenSSL has no such purpose: S/MIME asks for the same bits of keyUsage.
    Signatures,
    /// IKE, for a certificate that a template for TLS servers has made.
    Server,
    /// IKE, for a certificate that a template for TLS clients has made.
    Client,
    /// Signatures of CRLs.
    Lists,
}

impl Usage {
    fn here(self) -> Purpose {
        match self {
            Self::Any => Purpose::Any,
            Self::Signatures | Self::Server | Self::Client => Purpose::Ike,
            Self::Lists => Purpose::Crl,
        }
    }

    fn of_openssl(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Signatures => "smimesign",
            Self::Server => "sslserver",
            Self::Client => "sslclient",
            Self::Lists => "crlsign",
        }
    }
}

/// The answer of this crate. As with certificates of a peer, one that nobody can read is left out,
/// unless it is the peer's own.
///
/// # Errors
/// The rule that is broken, and where.
pub fn here(question: &Question) -> Result<(), ChainFault> {
    let read = |list: &[Vec<u8>]| -> Vec<Certificate> {
        list.iter().filter_map(|der| Certificate::from_der(der).ok()).collect()
    };
    let own = Certificate::from_der(&question.own)
        .map_err(|fault| ChainFault { at: None, rule: Rule::Unreadable(fault) })?;
    let (sent, trusted, now) = (read(&question.sent), read(&question.trusted), Time(question.now));
    let policies = question.policies.clone();
    let rules = Rules { purpose: question.usage.here(), policies, ..Rules::default() };
    let chain = validate(&own, &sent, &trusted, now, &rules)?;
    let Some(lists) = &question.lists else { return Ok(()) };
    let lists: Vec<Crl> = lists.iter().filter_map(|der| Crl::from_der(der).ok()).collect();
    let evidence = Evidence { lists: &lists, responses: &[], certificates: &sent, anchors: &trusted };
    revocation::check(&chain, &evidence, Policy::Strict, now, &rules).map(drop)
}

/// The answer of OpenSSL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub accepted: bool,
    /// Numbers of the errors (`openssl/x509_vfy.h`). None, and not accepted: a file was not read.
    pub errors: Vec<u32>,
    /// All that the program printed.
    pub text: String,
}

/// Runs `openssl verify` on files in `folder`, which nobody else uses meanwhile.
pub fn openssl(question: &Question, folder: &Path) -> Answer {
    let write = |name: &str, label: &str, list: &[Vec<u8>]| {
        let path = folder.join(name);
        std::fs::write(&path, list.iter().map(|der| pem(label, der)).collect::<String>()).expect("a file");
        path
    };
    let mut run = Command::new("openssl");
    run.env("OPENSSL_CONF", "/dev/null");
    run.args(["verify", "-no-CApath", "-no-CAstore"]);
    run.args(["-policy_check", "-x509_strict", "-partial_chain", "-auth_level", "2"]);
    run.args(["-purpose", question.usage.of_openssl(), "-attime", &question.now.to_string()]);
    run.arg("-CAfile").arg(write("trusted.pem", "CERTIFICATE", &question.trusted));
    if !question.sent.is_empty() {
        run.arg("-untrusted").arg(write("sent.pem", "CERTIFICATE", &question.sent));
    }
    if let Some(lists) = &question.lists {
        run.args(["-crl_check_all", "-extended_crl", "-use_deltas"]);
        if !lists.is_empty() {
            run.arg("-CRLfile").arg(write("lists.pem", "X509 CRL", lists));
        }
    }
    let policies = &question.policies;
    for (set, flag) in [
        (policies.required, "-explicit_policy"),
        (policies.inhibit_mapping, "-inhibit_map"),
        (policies.inhibit_any, "-inhibit_any"),
    ] {
        run.args(set.then_some(flag));
    }
    // No policy here means any policy. OpenSSL wants it said: it would take no policy for
    // acceptable.
    let any = policies.acceptable.is_empty().then(|| "2.5.29.32.0".to_owned());
    for policy in policies.acceptable.iter().map(ToString::to_string).chain(any) {
        run.args(["-policy", &policy]);
    }
    run.arg(write("own.pem", "CERTIFICATE", std::slice::from_ref(&question.own)));
    let out = run.output().expect("openssl is installed");
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    let number = |line: &str| line.strip_prefix("error ")?.split(' ').next()?.parse().ok();
    Answer { accepted: out.status.success(), errors: text.lines().filter_map(number).collect(), text }
}

fn pem(label: &str, der: &[u8]) -> String {
    let digits = STANDARD.encode(der);
    let lines: Vec<&str> = digits.as_bytes().chunks(64).filter_map(|l| std::str::from_utf8(l).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
