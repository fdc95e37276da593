//! The systems that can be measured, by name.

use super::options::{DutOptions, Encap, Hardware, Suite};
use super::system::Dut;
use super::{ironswan, libreswan, openvpn, plain, strongswan, wireguard, wireguard_go};
use crate::error::{LabError, Remedy};

/// strongSwan with its own ESP in user space, kernel-libipsec. Not the stack that everybody runs:
/// that is [`XFRM`].
pub const LIBIPSEC: &str = "strongswan-libipsec";
/// strongSwan with the kernel's ESP.
pub const XFRM: &str = "strongswan-kernel";

/// The names of all systems, with one line about each.
pub const NAMES: [(&str, &str); 9] = [
    ("plain", "forwarding without a tunnel, by the kernel"),
    ("ironswan", "two `ironswan run` gateways, IKEv2, ESP in user space"),
    ("wireguard-go", "the reference WireGuard in user space"),
    ("wireguard-go-tailscale", "Tailscale's fork of it"),
    (LIBIPSEC, "strongSwan's libipsec: its ESP in user space (UDP encapsulation only)"),
    (XFRM, "strongSwan with the ESP of the kernel (XFRM)"),
    ("libreswan", "Libreswan with the ESP of the kernel (XFRM)"),
    ("kernel-wireguard", "WireGuard in the kernel"),
    ("openvpn", "OpenVPN in user space, UDP, TLS between the two, AES-128-GCM"),
];

/// The system of that name, once for each encapsulation asked for where it has the choice.
pub fn by_name(name: &str, encaps: &[Encap], options: &DutOptions) -> Result<Vec<Box<dyn Dut>>, LabError> {
    let suites = || options.suites.iter().enumerate();
    Ok(match name {
        "plain" => vec![Box::new(plain::Plain)],
        "ironswan" => ironswans(encaps, options),
        "wireguard-go" => vec![Box::new(wireguard_go::WireGuardGo::new(options.wireguard_go()))],
        "wireguard-go-tailscale" => {
            vec![Box::new(wireguard_go::WireGuardGo::tailscale(options.wireguard_go_tailscale()))]
        }
        LIBIPSEC => suites()
            .map(|(i, suite)| {
                let name = suited(LIBIPSEC, i, suite);
                Box::new(strongswan::StrongSwan::new(name, suite.clone())) as Box<dyn Dut>
            })
            .collect(),
        XFRM => suites()
            .flat_map(|(i, suite)| encaps.iter().map(move |encap| (i, suite, *encap)))
            .map(|(i, suite, encap)| {
                let raw = encap == Encap::Raw;
                let name = suited(if raw { "strongswan-kernel-raw" } else { "strongswan-kernel" }, i, suite);
                Box::new(strongswan::StrongSwan::in_kernel(name, suite.clone(), encap)) as Box<dyn Dut>
            })
            .collect(),
        "libreswan" => suites()
            .flat_map(|(i, suite)| encaps.iter().map(move |encap| (i, suite, *encap)))
            .map(|(i, suite, encap)| {
                let name = suited(if encap == Encap::Raw { "libreswan-raw" } else { "libreswan" }, i, suite);
                Box::new(libreswan::Libreswan::new(name, suite.clone(), encap)) as Box<dyn Dut>
            })
            .collect(),
        "kernel-wireguard" => vec![Box::new(wireguard::WireGuard)],
        "openvpn" => vec![Box::new(openvpn::OpenVpn)],
        "strongswan" => {
            return Err(LabError::Usage(format!(
                "write {LIBIPSEC} for strongSwan's own ESP in user space, or {XFRM} for strongSwan with the kernel's, as it is \
                 usually run"
            )));
        }
        _ => {
            let known: Vec<&str> = NAMES.iter().map(|(n, _)| *n).collect();
            return Err(LabError::Usage(format!(
                "there is no system `{name}` to test; there are {} (and `all` for those installed)",
                known.join(", ")
            )));
        }
    })
}

/// Systems that can be measured here, and those that cannot.
pub struct There {
    /// Those that can.
    pub duts: Vec<Box<dyn Dut>>,
    /// What the others lack, each with the system's name.
    pub absent: Vec<(String, Remedy)>,
}

/// The systems of these names; of all where `all` is one of them.
pub fn there(names: &[String], encaps: &[Encap], options: &DutOptions) -> Result<There, LabError> {
    let names: Vec<&str> = if names.iter().any(|name| name == "all") {
        NAMES.iter().map(|(name, _)| *name).collect()
    } else {
        names.iter().map(String::as_str).collect()
    };
    let mut there = There { duts: Vec::new(), absent: Vec::new() };
    for name in names {
        for dut in by_name(name, encaps, options)? {
            match dut.lacks() {
                missing if missing.is_empty() => there.duts.push(dut),
                missing => there.absent.extend(missing.into_iter().map(|lack| (dut.name(), lack))),
            }
        }
    }
    Ok(there)
}

/// Every variant of ironswan that the options ask for.
fn ironswans(encaps: &[Encap], options: &DutOptions) -> Vec<Box<dyn Dut>> {
    let mut all: Vec<Box<dyn Dut>> = Vec::new();
    for (nth, suite) in options.suites.iter().enumerate() {
        for encap in encaps {
            let base = if *encap == Encap::Raw { "ironswan-raw" } else { "ironswan" };
            // The one with the defaults first.
            for data in std::iter::once(None).chain(options.data.iter().map(Some)) {
                for software in options.hardware.variants() {
                    let mut name = suited(base, nth, suite);
                    if let Some(data) = data {
                        name += &format!(" {data}");
                    }
                    if *software {
                        name += Hardware::OFF;
                    }
                    let (program, suite) = (options.gateway(), suite.clone());
                    let dut = ironswan::IronSwan::new(name, program, suite, *encap, data.cloned());
                    all.push(Box::new(dut.ipcomp(options.ipcomp).software(*software)));
                }
            }
        }
    }
    all
}

/// The name of a system with one of several suites: the first has none of its own.
fn suited(base: &str, index: usize, suite: &Suite) -> String {
    // Short names for tables: the record has the proposals in full.
    if index == 0 { base.into() } else { format!("{base}-{}", suite.esp.trim_end_matches("poly1305")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dut::DataSetting;

    #[test]
    fn several_suites_make_several_systems_with_names_of_their_own() {
        let suites = Suite::list("aes128gcm16,chacha20poly1305").expect("two suites");
        let options = DutOptions { suites, ..DutOptions::default() };
        let duts = by_name("ironswan", &[Encap::Udp, Encap::Raw], &options).expect("systems");
        let names: Vec<String> = duts.iter().map(|d| d.name()).collect();
        let wanted = ["ironswan", "ironswan-raw", "ironswan-chacha20", "ironswan-raw-chacha20"];
        assert_eq!(names, wanted);
        assert_eq!(options.esp(), "aes128gcm16, chacha20poly1305");
        assert_eq!(options.ike(), Suite::default().ike);
    }

    #[test]
    fn a_setting_of_the_data_plane_makes_a_system_beside_the_one_with_defaults() {
        let data = ["workers=2", "busy_poll=50us"].map(|s| s.parse().expect("a setting")).to_vec();
        let options = DutOptions { data, ..DutOptions::default() };
        let duts = by_name("ironswan", &[Encap::Udp], &options).expect("systems");
        let names: Vec<String> = duts.iter().map(|d| d.name()).collect();
        assert_eq!(names, ["ironswan", "ironswan workers=2", "ironswan busy_poll=50us"]);
        for bad in ["workers", "=2", "workers=", "a b=2", "workers=2\n}"] {
            assert!(bad.parse::<DataSetting>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_system_without_crypto_instructions_stands_behind_the_one_with_them() {
        let of = |hardware| {
            let suites = Suite::list("aes128gcm16,3des-sha1").expect("two suites");
            let options = DutOptions { suites, hardware, ..DutOptions::default() };
            let duts = by_name("ironswan", &[Encap::Udp], &options).expect("systems");
            duts.iter().map(|d| d.name()).collect::<Vec<String>>()
        };
        assert_eq!(of(Hardware::On), ["ironswan", "ironswan-3des-sha1"]);
        assert_eq!(of(Hardware::Off), ["ironswan software", "ironswan-3des-sha1 software"]);
        let both = ["ironswan", "ironswan software", "ironswan-3des-sha1", "ironswan-3des-sha1 software"];
        assert_eq!(of(Hardware::Both), both);
    }

    #[test]
    fn an_unknown_system_is_answered_with_the_known_ones() {
        let e = by_name("opensvan", &[Encap::Udp], &DutOptions::default()).err().expect("unknown");
        assert!(e.to_string().contains("ironswan"), "{e}");
        assert_eq!(e.exit_code(), 2);
    }

    #[test]
    fn every_listed_name_is_a_system_and_those_with_raw_esp_have_two_encapsulations() {
        for (name, _) in NAMES {
            let duts = by_name(name, &[Encap::Udp, Encap::Raw], &DutOptions::default()).expect(name);
            let raw = ["ironswan", "strongswan-kernel", "libreswan"].contains(&name);
            assert_eq!(duts.len(), if raw { 2 } else { 1 });
            assert_eq!(duts[0].name(), name);
        }
    }
}
