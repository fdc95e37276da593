//! X.509 certificates: the ones that are loaded, the choice of ours, and what a connection asks of
//! the peer's.
//!
//! ```text
//! local.certs,  folder x509  ─▶ ours: the certificate to sign by, and those above it
//! remote.certs, cacerts, ca_id, cert_policy, revocation ─▶ Trust ┐
//! folders x509ca and x509crl ─▶ Certificates ────────────────────┼─▶ judge ─▶ the peer's key
//! CERT payloads of the peer ─────────────────────────────────────┘
//! ```
//! [`Certificates::judge`] finds the chain; whether a certificate of it was revoked is asked after
//! that, when the peer has proved that the key is its own (`standing`).
//!
//! Only a CA that has issued its own certificate ends a chain, as with charon. Other CAs are links.
//! Not here: chains and lists themselves (`ironswan_pki`), and who computes
//! [`Certificates::judge`].

use std::collections::BTreeMap;

use ironswan_crypto::hash::sha1;
use ironswan_crypto::sign::Legacy;
use ironswan_pki::fetch::Places;
use ironswan_pki::revocation;
use ironswan_pki::rules::{Limits, Policies};
use ironswan_pki::{
    Certificate, Chain, ChainFault, Crl, Name, Oid, Rule, Rules, Time, identity, validate_alone,
    validate_each,
};
use ironswan_wire::id::{IdPattern, Identity};

use crate::diagnosis::{Authentication, Configuration, KeyLack, ProofLack, Untrusted};
use crate::keys::{Fingerprint, PrivateKey, PrivateKeys};
use crate::limits::{CHAIN_LENGTH, CHAIN_SIGNATURES};
use crate::standing::{Chained, Link};

/// Other names of a certificate that a message shows.
const NAMES_SHOWN: usize = 8;

/// Certificates that one end of a connection names, and what the peer's chain must have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trust {
    /// Certificates of this end. Of ours, one whose private key is loaded is used; none: a loaded
    /// one that speaks for our identity. The peer has to have one of its own; none: any
    /// certificate with a chain.
    pub certificates: Vec<Certificate>,
    /// CAs of which the peer's chain must have one; none: the loaded ones.
    pub authorities: Vec<Certificate>,
    /// Name of a CA that the peer's chain must have.
    pub ca_id: IdPattern,
    /// Certificate policies, each of which must be valid along the peer's chain.
    pub policies: Vec<Oid>,
    /// What an unknown revocation status means.
    pub revocation: revocation::Policy,
}

/// Names a loaded certificate: SHA-1 of its SubjectPublicKeyInfo, and of the whole.
type Place = (Fingerprint, Fingerprint);

fn place(certificate: &Certificate) -> Place {
    (sha1(certificate.key_info()), sha1(certificate.der()))
}

/// The loaded certificates and revocation lists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Certificates {
    /// CAs at the end of a chain.
    roots: BTreeMap<Place, Certificate>,
    /// CAs between.
    links: BTreeMap<Place, Certificate>,
    /// All others.
    ends: BTreeMap<Place, Certificate>,
    lists: Vec<Crl>,
    /// Places of the configuration for the status of certificates, by the CA that issued them.
    places: Vec<(Place, Places)>,
}

impl Certificates {
    /// Adds a certificate. `trusted`: chains may end with it, if it is that of a CA which has
    /// issued its own certificate.
    pub fn insert(&mut self, certificate: Certificate, trusted: bool) {
        let to = match (certificate.is_self_issued(), trusted, certificate.is_ca()) {
            (true, true, _) => &mut self.roots,
            (false, _, true) => &mut self.links,
            _ => &mut self.ends,
        };
        to.insert(place(&certificate), certificate);
    }

    /// Removes a certificate; false when it is not here.
    pub fn remove(&mut self, certificate: &Certificate) -> bool {
        let place = place(certificate);
        [&mut self.roots, &mut self.links, &mut self.ends].into_iter().any(|of| of.remove(&place).is_some())
    }

    /// Adds a revocation list. Of several by one issuer the newest counts.
    pub fn insert_list(&mut self, list: Crl) {
        if !self.lists.contains(&list) {
            self.lists.push(list);
        }
    }

    /// Removes a revocation list.
    pub fn remove_list(&mut self, list: &Crl) {
        self.lists.retain(|old| old != list);
    }

    /// Adds places that say the status of the certificates which a CA has issued.
    pub fn insert_places(&mut self, ca: &Certificate, places: Places) {
        if places != Places::default() {
            self.places.push((place(ca), places));
        }
    }

    /// Removes such places.
    pub fn remove_places(&mut self, ca: &Certificate, places: &Places) {
        let at = self.places.iter().position(|(of, old)| *of == place(ca) && old == places);
        at.map(|at| self.places.remove(at));
    }

    /// Places of the configuration for the certificates that a CA has issued. The key of the CA
    /// counts, so that they hold for a renewed certificate of it too.
    pub(crate) fn places_of(&self, ca: &Certificate) -> Places {
        let (info, mut all) = (sha1(ca.key_info()), Places::default());
        for (_, places) in self.places.iter().filter(|((of, _), _)| *of == info) {
            all.lists.extend(places.lists.iter().cloned());
            all.responders.extend(places.responders.iter().cloned());
        }
        all
    }

    /// All certificates, each with true for that of a CA which is trusted or a link: roots first.
    pub fn all(&self) -> impl Iterator<Item = (&Certificate, bool)> {
        let authorities = self.roots.values().chain(self.links.values()).map(|c| (c, true));
        authorities.chain(self.ends.values().map(|c| (c, false)))
    }

    /// The revocation lists.
    pub fn lists(&self) -> &[Crl] {
        &self.lists
    }

    /// SHA-1 of the SubjectPublicKeyInfo of each CA that peers may have certificates of, with those
    /// of `trust`: the contents of CERTREQ (RFC 7296 section 3.7).
    pub fn asked_for(&self, trust: Option<&Trust>) -> Vec<Fingerprint> {
        let named = trust.map_or(&[][..], |trust| &trust.authorities);
        if !named.is_empty() {
            return named.iter().map(|c| sha1(c.key_info())).collect();
        }
        self.roots.keys().chain(self.links.keys()).map(|(info, _)| *info).collect()
    }

    /// Our certificate with those above it, and its private key. `asked`: keys of CAs that the peer
    /// asks for; a certificate below one of them goes first.
    ///
    /// # Errors
    /// There is no certificate, or no key of one: the part that is missing.
    pub fn ours(
        &self,
        trust: &Trust,
        local: &Identity,
        keys: &PrivateKeys,
        asked: &[Fingerprint],
    ) -> Result<(Vec<Certificate>, PrivateKey), Configuration> {
        let mut first = None;
        let named = trust.certificates.iter().filter_map(|own| Some((own, keys.of(own)?)));
        let by_key = keys.iter().filter(|_| trust.certificates.is_empty()).flat_map(|key| {
            let info = key.public().info();
            let same = self.ends.range((info, [0; 20])..=(info, [0xff; 20])).map(|(_, own)| own);
            same.filter(|own| identity::speaks_for(own, local)).map(move |own| (own, key))
        });
        for (own, key) in named.chain(by_key) {
            let (chain, root) = self.above(own);
            let mut infos = chain.iter().skip(1).map(|c| sha1(c.key_info())).chain(root);
            let fits = asked.is_empty() || infos.any(|info| asked.contains(&info));
            let found = (chain, key.clone());
            if fits {
                return Ok(found);
            }
            first.get_or_insert(found);
        }
        first.ok_or_else(|| self.lack(trust, local, keys))
    }

    /// The reason why we have no certificate with its key for this identity.
    fn lack(&self, trust: &Trust, local: &Identity, keys: &PrivateKeys) -> Configuration {
        let subject = |own: &Certificate| own.subject().to_string();
        let why = if !trust.certificates.is_empty() {
            KeyLack::Named
        } else if let Some(own) = self.ends.values().find(|own| identity::speaks_for(own, local)) {
            KeyLack::OfCertificate { subject: subject(own) }
        } else if let Some(own) = self.ends.values().find(|own| keys.of(own).is_some()) {
            KeyLack::OtherNames { subject: subject(own), names: names_shown(own) }
        } else {
            return Configuration::NoPublicKey { of: ProofLack::Ours };
        };
        Configuration::NoPrivateKey { local: local.to_string(), why }
    }

    /// True when a certificate of ours, with its key, has an address among its names. Without an
    /// identity in the configuration our address is our identity.
    pub fn has_own_address(&self, keys: &PrivateKeys) -> bool {
        let mut ours = self.ends.values().filter(|own| keys.of(own).is_some());
        ours.any(|own| own.alt_names().any(|name| name.ip().is_some()))
    }

    /// Judges whether a chain that ends at a CA which has issued its own certificate is possible.
    ///
    /// # Errors
    /// There is no such CA above those that the connection names, or above any.
    pub fn has_root(&self, trust: &Trust) -> Result<(), ProofLack> {
        let named: Vec<&Certificate> = trust.authorities.iter().collect();
        let start =
            if named.is_empty() { self.all().filter(|(_, ca)| *ca).map(|(c, _)| c).collect() } else { named };
        let mut lack = ProofLack::Peers;
        for ca in start {
            let mut top = ca;
            for _ in 0..CHAIN_LENGTH {
                let above = |by: &&Certificate| by.subject() == top.issuer();
                if top.is_self_issued() || self.roots.values().any(|root| above(&root)) {
                    return Ok(());
                }
                let mut links = trust.authorities.iter().chain(self.links.values());
                let Some(link) = links.find(above) else { break };
                top = link;
            }
            lack = ProofLack::Root { subject: top.subject().to_string(), issuer: top.issuer().to_string() };
        }
        Err(lack)
    }

    /// CAs of which the peer's chain has one: those that the connection names, or all roots.
    pub fn authorities<'a>(&'a self, trust: &'a Trust) -> Vec<&'a Certificate> {
        match &trust.authorities[..] {
            [] => self.roots.values().collect(),
            named => named.iter().collect(),
        }
    }

    /// True when a list or a place of the configuration says the status of certificates that this
    /// CA has issued.
    pub fn knows_status_of(&self, issuer: &Name<'_>) -> bool {
        let issued = |by: &Certificate| by.subject() == *issuer;
        let cas = self.roots.values().chain(self.links.values()).filter(|ca| issued(ca));
        self.lists.iter().any(|list| list.issuer() == *issuer)
            || cas.into_iter().any(|ca| self.places_of(ca) != Places::default())
    }

    /// A certificate of ours and the links above it, and the key of the root above them.
    fn above(&self, own: &Certificate) -> (Vec<Certificate>, Option<Fingerprint>) {
        let mut chain = vec![own.clone()];
        let issued = |by: &Certificate, of: &Certificate| by.subject().der() == of.issuer().der();
        while let Some(top) = chain.last().filter(|_| chain.len() < CHAIN_LENGTH) {
            if let Some((info, _)) = self.roots.iter().find(|(_, root)| issued(root, top)).map(|(at, _)| at) {
                return (chain, Some(*info));
            }
            let link = self.links.values().find(|link| issued(link, top) && !chain.contains(link));
            let Some(link) = link else { break };
            chain.push(link.clone());
        }
        (chain, None)
    }

    /// Judges the certificates that a peer sent, its own one first, in DER. `peer` is the identity
    /// that it claims, and `legacy` names weak algorithms that the configuration asks for. Verifies
    /// signatures, so it belongs on a thread that computes.
    ///
    /// # Errors
    /// The rule that the certificates break.
    pub fn judge(
        &self,
        trust: &Trust,
        sent: &[Vec<u8>],
        peer: &Identity,
        legacy: Legacy,
        now: Time,
    ) -> Result<Chained, Authentication> {
        let unusable = |rule| Untrusted::entry(peer, ChainFault { at: None, rule }, Vec::new());
        let (own, mut others) = claimed(trust, sent, peer)?;
        let key = own.key(legacy).map_err(|fault| unusable(Rule::Key(fault)))?;
        let named = trust.authorities.iter().filter(|c| c.is_self_issued());
        let only_roots = !trust.authorities.is_empty() && named.clone().count() == trust.authorities.len();
        let loaded = self.roots.values().filter(|_| !only_roots);
        let roots: Vec<Certificate> = named.chain(loaded).cloned().collect();
        let from_peer = others.len();
        others.extend(trust.authorities.iter().filter(|c| !c.is_self_issued()).cloned());
        others.extend(self.links.values().cloned());
        let limits = Limits {
            certificates: others.len(),
            bytes: usize::MAX,
            depth: CHAIN_LENGTH,
            signatures: CHAIN_SIGNATURES,
            ..Limits::default()
        };
        let rules = Rules { legacy, limits, ..Rules::default() };
        let refused = |fault| Untrusted::entry(peer, fault, walked(&own, &others, &roots));
        if !trust.certificates.is_empty() && !trust.asks_for_chain() {
            // Whoever names a certificate trusts it without a chain.
            validate_alone(&own, now, &rules).map_err(refused)?;
            return Ok(Chained::alone(key, &own));
        }
        let required = |policy: &Oid| Policies {
            acceptable: vec![policy.clone()],
            required: true,
            ..Policies::default()
        };
        let mut policies: Vec<Policies> = trust.policies.iter().map(required).collect();
        if policies.is_empty() {
            policies.push(Policies::default());
        }
        let chain = validate_each(&own, &others, &roots, now, &rules, &policies).map_err(refused)?;
        if !trust.allows(&chain) {
            return Err(Authentication::OtherAuthority { peer: peer.clone(), chain: subjects(&chain) });
        }
        let walked = walked(&own, &others, &roots);
        // Who may have signed a list is sought among a few of one name: ours first.
        others.rotate_left(from_peer);
        Ok(Chained::with_chain(key, Link { chain, others, roots, rules, walked }))
    }
}

/// The chain for the log: subjects from the peer's own on.
pub(crate) fn subjects(chain: &Chain) -> String {
    let subjects: Vec<String> = chain.certificates().iter().map(|c| format!("\"{}\"", c.subject())).collect();
    subjects.join(" < ")
}

impl Trust {
    /// True when a certificate needs a chain although the connection names it.
    pub fn asks_for_chain(&self) -> bool {
        !self.authorities.is_empty() || self.ca_id != IdPattern::Any || !self.policies.is_empty()
    }

    /// True when a chain has the CAs that the connection asks for.
    fn allows(&self, chain: &Chain) -> bool {
        let above = &chain.certificates()[1..];
        let named = self.authorities.is_empty() || above.iter().any(|ca| self.authorities.contains(ca));
        named && (self.ca_id == IdPattern::Any || above.iter().any(|ca| identity::fits(ca, &self.ca_id)))
    }
}

/// Other names of a certificate, as a message shows them.
pub fn names_shown(certificate: &Certificate) -> Vec<String> {
    certificate.alt_names().take(NAMES_SHOWN).map(|name| name.to_string()).collect()
}

/// The certificate by which a peer claims its identity, and the others that it sent.
fn claimed(
    trust: &Trust,
    sent: &[Vec<u8>],
    peer: &Identity,
) -> Result<(Certificate, Vec<Certificate>), Authentication> {
    let unreadable = |fault| {
        let fault = ChainFault { at: None, rule: Rule::Unreadable(fault) };
        Untrusted::entry(peer, fault, Vec::new())
    };
    let (own, others) = match sent.split_first() {
        // Certificates above the peer's own that nobody can read are no use and no harm.
        Some((own, rest)) => (
            Certificate::from_der(own).map_err(unreadable)?,
            rest.iter().filter_map(|der| Certificate::from_der(der).ok()).collect(),
        ),
        None => {
            let known = trust.certificates.iter().find(|own| identity::speaks_for(own, peer));
            let none = || Authentication::NoCertificate { peer: peer.clone() };
            (known.cloned().ok_or_else(none)?, Vec::new())
        }
    };
    let subject = || own.subject().to_string();
    if peer.has_wildcard() || !identity::speaks_for(&own, peer) {
        let names = names_shown(&own);
        return Err(Authentication::CertificateOfOther { peer: peer.clone(), subject: subject(), names });
    }
    if !trust.certificates.is_empty() && !trust.certificates.contains(&own) {
        return Err(Authentication::CertificateNotNamed { peer: peer.clone(), subject: subject() });
    }
    Ok((own, others))
}

/// The way from the peer's certificate up by names, as far as it leads: a line for each.
fn walked(own: &Certificate, others: &[Certificate], roots: &[Certificate]) -> Vec<String> {
    let mut way = vec![own];
    while let Some(top) = way.last().copied().filter(|_| way.len() < CHAIN_LENGTH) {
        let mut above = roots.iter().chain(others).filter(|c| c.subject() == top.issuer());
        match above.find(|c| !way.contains(c)) {
            Some(next) => way.push(next),
            None => break,
        }
    }
    let line = |(position, c): (usize, &&Certificate)| {
        let trusted = if roots.contains(c) { ", a CA of the configuration" } else { "" };
        format!("certificate {position}: \"{}\" issued by \"{}\"{trusted}", c.subject(), c.issuer())
    };
    way.iter().enumerate().map(line).collect()
}
