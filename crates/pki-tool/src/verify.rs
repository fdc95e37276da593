//! `verify`: is a certificate accepted, by the gateway's own rules; if not, which rule fails at
//! which certificate, and what to do.

use std::fmt::Write as _;
use std::path::PathBuf;

use ironswan_pki::revocation::{self, Evidence, Policy};
use ironswan_pki::{Certificate, Chain, ChainFault, Crl, Purpose, Rules, identity, validate};
use ironswan_wire::id::Identity;
use serde_json::{Value, json};

use crate::args::Verify;
use crate::failure::Failure;
use crate::{dates, files, remedy, wanted, words};

/// Carries out `verify`.
pub(crate) fn verify(a: &Verify) -> Result<(), Failure> {
    let source = files::read(a.path.as_deref())?;
    let mut own = wanted::certificates(&source)?;
    let certificate = own.remove(0);
    own.extend(certificates(&a.cert)?);
    let mut anchors = certificates(&a.cacert)?;
    if anchors.is_empty() {
        if !certificate.is_ca() {
            return Err(Failure::usage(format!(
                "no CA is trusted: name the certificate of the CA that issued {} with --cacert ({})",
                source.name,
                certificate.issuer()
            )));
        }
        anchors.push(certificate.clone());
    }
    let lists = lists(&a.crl)?;
    let purpose = if certificate.is_ca() { Purpose::Any } else { Purpose::Ike };
    let rules = Rules { purpose, ..Rules::default() };
    let now = dates::now();
    let chain = validate(&certificate, &own, &anchors, now, &rules);
    let judged = chain.and_then(|chain| {
        let evidence = Evidence { lists: &lists, responses: &[], certificates: &own, anchors: &anchors };
        let policy = if lists.is_empty() { Policy::Relaxed } else { Policy::Strict };
        let standing = revocation::check(&chain, &evidence, policy, now, &rules)?;
        Ok((chain, standing.until.is_some()))
    });
    let (chain, revocation_known) = match judged {
        Ok(judged) => judged,
        Err(fault) => return refused(a, &source.name, &fault),
    };
    if let Some(text) = &a.identity
        && !fits(&certificate, text)?
    {
        return other_identity(a, &source.name, text);
    }
    if a.json {
        return print_json(&source.name, &chain, revocation_known);
    }
    files::say(&text(&source.name, &chain, revocation_known))
}

fn certificates(paths: &[PathBuf]) -> Result<Vec<Certificate>, Failure> {
    let mut list = Vec::new();
    for path in paths {
        let source = files::read(Some(path))?;
        list.extend(wanted::certificates(&source)?);
    }
    Ok(list)
}

fn lists(paths: &[PathBuf]) -> Result<Vec<Crl>, Failure> {
    paths.iter().map(|path| wanted::list(&files::read(Some(path))?)).collect()
}

/// Whether the certificate speaks for an identity.
fn fits(certificate: &Certificate, text: &str) -> Result<bool, Failure> {
    let id = Identity::parse(text).ok_or_else(|| {
        Failure::usage(format!("--identity {text:?} is no identity: write it as in remote.id"))
    })?;
    Ok(identity::speaks_for(certificate, &id))
}

fn refused(a: &Verify, name: &str, fault: &ChainFault) -> Result<(), Failure> {
    let at = fault.at.as_ref();
    let at = at.map(|at| json!({ "subject": at.subject, "serial": at.serial, "position": at.position }));
    no(a, name, &fault.to_string(), at.unwrap_or_default(), remedy::of(&fault.rule))
}

fn other_identity(a: &Verify, name: &str, identity: &str) -> Result<(), Failure> {
    let reason = format!("it does not speak for the identity {identity:?}");
    no(a, name, &reason, json!(null), "`ironswan pki print` shows its identities; issue it again with --san")
}

/// The answer is no: why, at which certificate of the chain, and what to do.
fn no(a: &Verify, name: &str, reason: &str, at: Value, remedy: &str) -> Result<(), Failure> {
    if !a.json {
        return Err(Failure::no(format!("{name} is refused: {reason}; {remedy}")));
    }
    let document = json!({
        "schema": "ironswan.pki.verify/1",
        "file": name,
        "valid": false,
        "reason": reason,
        "at": at,
        "remedy": remedy,
    });
    files::say(&format!("{document:#}\n"))?;
    Err(Failure { status: 1, lines: Vec::new() })
}

fn text(name: &str, chain: &Chain, revocation_known: bool) -> String {
    let mut out = format!("{name}: valid\n");
    let now = dates::now();
    let certificates = chain.certificates();
    // A CA that was verified by itself stands there as its own issuer, too.
    let own = usize::from(certificates.len() == 2 && certificates[0] == certificates[1]);
    for (position, certificate) in certificates[own..].iter().enumerate() {
        let until = certificate.not_after();
        let role = if position + own + 1 == certificates.len() { ", a trusted CA" } else { "" };
        let _ = writeln!(
            out,
            "  {position}  {}, until {until} ({}){role}",
            words::subject(&certificate.subject()),
            dates::distance(until.plus(1), now)
        );
    }
    out.push_str(if revocation_known {
        "  no certificate of the chain is revoked\n"
    } else {
        "  nobody asked whether a certificate is revoked: name revocation lists with --crl\n"
    });
    out
}

fn print_json(name: &str, chain: &Chain, revocation_known: bool) -> Result<(), Failure> {
    let chain: Vec<_> = chain
        .certificates()
        .iter()
        .map(|certificate| {
            json!({
                "subject": words::subject(&certificate.subject()),
                "serial": words::hex(certificate.serial()),
                "valid_until": certificate.not_after().to_string(),
            })
        })
        .collect();
    let document = json!({
        "schema": "ironswan.pki.verify/1",
        "file": name,
        "valid": true,
        "revocation_known": revocation_known,
        "chain": chain,
    });
    files::say(&format!("{document:#}\n"))
}
