//! Cases of the area authentication that are about certificates.

use ironswan_keying::diagnosis::AuthenticationEntry as E;
use ironswan_keying::{Auth, Connection, Diagnosis, Trust};
use ironswan_pki::{Certificate, revocation};
use ironswan_testkit::certificates::{LINK, Make, ROOT, end, key, link, list, root};
use ironswan_testkit::{Forger, Verdict, World};
use ironswan_wire::iana::ExchangeType;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Cert, Id, X509_SIGNATURE};

use crate::story::{MS, a, b, failures};

/// Gateways of which node 1 has this certificate and node 0 asks this of it, with links at both
/// ends.
fn world(own: &Certificate, trust: Trust, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = World::pair(1, |c| {
        let certificates = vec![own.clone()];
        c[1].local_auth = Auth::certificate(Trust { certificates, ..Trust::default() });
        c[0].remote_auth = Auth::certificate(trust);
        tweak(c);
    });
    w.nodes[1].endpoint.load_private(key(2));
    for node in &mut w.nodes {
        node.endpoint.change_certificates(|all| {
            all.insert(link(), false);
            all.insert(root(), true);
            all.insert_list(list("CN=link", LINK, &[3]));
        });
    }
    w
}

fn tried(own: &Certificate, trust: Trust) -> Vec<Diagnosis> {
    let mut w = world(own, trust, |_| {});
    let _ = w.establish(0);
    failures(&w)
}

/// Node 1 sends eleven certificates with IKE_AUTH.
fn with_many() -> Vec<Diagnosis> {
    let mut w = World::pair(1, |c| c[1].remote_auth = Auth::certificate(Trust::default()));
    w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::IKE_AUTH {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    w.initiate(0);
    w.run(100 * MS);
    let mut f = Forger::newest(&w.nodes[0]);
    let id = Payload::IdI(Id::new(Identity::parse("g1.example").expect("an identity")));
    let cert = Payload::Cert(Cert { encoding: X509_SIGNATURE, data: b"no certificate".to_vec() });
    let payloads: Vec<Payload> = [id].into_iter().chain(std::iter::repeat_n(cert, 11)).collect();
    let bytes = f.message(true, ExchangeType::IKE_AUTH, false, 1, &payloads);
    w.inject(a(), b(), bytes);
    w.run(100 * MS);
    failures(&w)
}

/// Makes an entry about certificates happen, and returns every failure.
pub fn happens(entry: E) -> Vec<Diagnosis> {
    let good = end(2).make();
    let alone = |certificates: Vec<Certificate>| Trust { certificates, ..Trust::default() };
    match entry {
        E::TooManyCertificates => with_many(),
        E::NoCertificate => {
            let mut w = world(&good, Trust::default(), |c| c[0].send_certreq = false);
            let _ = w.establish(0);
            failures(&w)
        }
        E::CertificateOfOther => {
            tried(&Make::end("CN=g9.example", 2, "CN=link", LINK).make(), Trust::default())
        }
        E::CertificateNotNamed => tried(&good, alone(vec![end(3).make()])),
        E::UnknownIssuer => tried(
            &Make::end("CN=g2.example", 2, "CN=nobody", 9).names(&["g2.example"]).make(),
            Trust::default(),
        ),
        E::OtherAuthority => {
            let ca_id = IdPattern::parse("CN=another").expect("a name");
            tried(&good, Trust { ca_id, ..Trust::default() })
        }
        E::CertificateExpired => tried(&end(2).years(2020, 2021).make(), Trust::default()),
        E::CertificateNotYetValid => tried(&end(2).years(2030, 2040).make(), Trust::default()),
        E::CertificateRevoked => {
            let mut w = world(&good, Trust::default(), |_| {});
            w.nodes[0].endpoint.change_certificates(|all| {
                all.remove_list(&list("CN=link", LINK, &[3]));
                all.insert_list(list("CN=link", LINK, &[2, 3]));
            });
            let _ = w.establish(0);
            failures(&w)
        }
        E::NoStatus => {
            // There is a list of the link, and none of the root.
            tried(&good, Trust { revocation: revocation::Policy::Strict, ..Trust::default() })
        }
        // keyUsage allows signatures of certificates alone.
        E::CertificateNotAllowed => tried(&end(2).with(15, &[3, 2, 2, 4]).make(), Trust::default()),
        // Somebody else has signed it.
        E::CertificateUnusable => tried(
            &Make::end("CN=g2.example", 2, "CN=link", 9).names(&["g2.example"]).make(),
            Trust::default(),
        ),
        E::ChainLimit => {
            let name = |n: u8| if n == 0 { "CN=root".to_owned() } else { format!("CN=link {n}") };
            let own = Make::end("CN=g2.example", 2, &name(12), LINK + 12).names(&["g2.example"]).make();
            let mut w = world(&own, Trust::default(), |_| {});
            w.nodes[0].endpoint.change_certificates(|all| {
                for n in 1..13 {
                    let by = if n == 1 { ROOT } else { LINK + n - 1 };
                    all.insert(Make::ca(&name(n), LINK + n, &name(n - 1), by).make(), false);
                }
            });
            let _ = w.establish(0);
            failures(&w)
        }
        _ => Vec::new(),
    }
}
