//! An authority as clients load it and see it: a CA, and places for the status of its certificates.
//! Not here: the commands, which are in `certs`.

use ironswan_pki::fetch::{Place, Places};
use ironswan_pki::{Certificate, key_file};
use ironswan_wire::vici::{Section, Value};

/// An authority that a client has loaded.
pub(super) struct Authority {
    /// Its certificates, the first of which is that of the CA. There is one at least.
    pub(super) certificates: Vec<Certificate>,
    /// Places for the status of the certificates that the CA has issued.
    pub(super) places: Places,
}

impl Authority {
    pub(super) fn read(section: &Section) -> Result<Self, String> {
        let data = match section.get("cacert") {
            Some(Value::Text(bytes)) if !bytes.is_empty() => bytes,
            _ => return Err("CA certificate missing".to_owned()),
        };
        let certificates = key_file::certificates(data).map_err(|why| format!("cacert {why}"))?;
        if certificates.is_empty() {
            return Err("CA certificate missing".to_owned());
        }
        let places = |key: &str| {
            let uris = section.get_list(key).unwrap_or_default().iter();
            let place = |uri: &Vec<u8>| {
                Place::of_configuration(uri).map_err(|why| format!("{key}: `{}` {why}", uri.escape_ascii()))
            };
            uris.map(place).collect::<Result<Vec<_>, _>>()
        };
        let places = Places { lists: places("crl_uris")?, responders: places("ocsp_uris")? };
        Ok(Self { certificates, places })
    }

    /// The authority as clients see it.
    pub(super) fn listed(&self) -> Section {
        let uris = |places: &[Place]| places.iter().map(|p| p.uri().to_owned()).collect::<Vec<String>>();
        let subject = self.certificates[0].subject().to_string();
        let item = Section::new().with("cacert", subject).with("crl_uris", uris(&self.places.lists));
        item.with("ocsp_uris", uris(&self.places.responders))
    }
}
