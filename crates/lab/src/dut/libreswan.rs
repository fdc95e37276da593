//! Libreswan's pluto on the gateways, with the ESP of the kernel. Each pluto gets a configuration,
//! a certificate store and a control socket of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::strongswan::lacks_xfrm;
use super::{Dut, Encap, Pair, Running, Suite};
use crate::error::{LabError, LogTail, Remedy};
use crate::interrupt;
use crate::process::{self, Journal, Process};
use crate::topology::Sites;

/// Folders in which distributions put the programs.
const FOLDERS: [&str; 2] = ["/usr/libexec/ipsec", "/usr/lib/ipsec"];
/// Debian's package and strongSwan's conflict: only one of the two is installed at a time.
const INSTALL: &str = "apt-get install libreswan (on Debian this removes strongSwan's strongswan-libcharon and strongswan-starter, with \
                       which it conflicts: use another machine or container to have both)";
const COMMAND: Duration = Duration::from_secs(20);

/// One of its programs.
fn program(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|p| process::is_executable(p))
}

/// Libreswan as the system under test.
pub(super) struct Libreswan {
    name: String,
    suite: Suite,
    encap: Encap,
}

impl Libreswan {
    pub(super) fn new(name: String, suite: Suite, encap: Encap) -> Self {
        Self { name, suite, encap }
    }

    /// The connections of one gateway: both ends have the same.
    fn ipsec_conf(&self, sites: &Sites<'_>, site: usize) -> Result<String, String> {
        let (ike, esp) = (proposal(&self.suite.ike)?, proposal(&self.suite.esp)?);
        let encap = if self.encap == Encap::Udp { "yes" } else { "no" };
        let mut conf = String::from("config setup\n\tprotostack=xfrm\n\tuniqueids=no\n");
        for (name, tunnel, networks) in connections(sites) {
            let (left, right) = sites.tunnels[tunnel];
            if ![left, right].contains(&site) {
                continue;
            }
            conf.push_str(&format!(
                "\nconn {name}\n\tikev2=insist\n\ttype=tunnel\n\tauthby=secret\n\tike={ike}\n\tesp={esp}\n\t\
                 encapsulation={encap}\n\tauto=add\n"
            ));
            for (side, index, network) in [("left", left, &networks.0), ("right", right, &networks.1)] {
                let end = &sites.sites[index];
                conf.push_str(&format!(
                    "\t{side}={}\n\t{side}id=@{}.example\n\t{side}subnet={network}\n",
                    end.address, end.name
                ));
            }
        }
        Ok(conf)
    }
}

/// Every pair of networks of every tunnel is a connection: its name, the tunnel, the networks at
/// its two ends.
fn connections(sites: &Sites<'_>) -> Vec<(String, usize, (String, String))> {
    let mut all = Vec::new();
    for (tunnel, &(left, right)) in sites.tunnels.iter().enumerate() {
        let (here, there) = (&sites.sites[left].networks, &sites.sites[right].networks);
        let pairs = here.iter().flat_map(|h| there.iter().map(move |t| (h.clone(), t.clone())));
        all.extend(pairs.enumerate().map(|(nth, networks)| {
            let name = sites.tunnel_name(tunnel);
            (if nth == 0 { name } else { format!("{name}-pair{nth}") }, tunnel, networks)
        }));
    }
    all
}

/// A proposal of swanctl.conf as ipsec.conf writes it; an error names the word that has no
/// translation here.
fn proposal(swanctl: &str) -> Result<String, String> {
    let word = |word: &str| -> Option<String> {
        let sized = |prefix: &str, bits: &str, suffix: &str| {
            word.strip_prefix(prefix)?.strip_suffix(suffix).filter(|b| *b == bits).map(str::to_string)
        };
        for bits in ["128", "192", "256"] {
            for (prefix, suffix, name) in [
                ("aes", "gcm16", "aes_gcm"),
                ("aes", "gcm128", "aes_gcm"),
                ("aes", "ccm16", "aes_ccm"),
                ("aes", "ctr", "aes_ctr"),
                ("aes", "", "aes"),
            ] {
                if sized(prefix, bits, suffix).is_some() {
                    return Some(format!("{name}{bits}"));
                }
            }
        }
        let word = word.strip_prefix("prf").unwrap_or(word);
        Some(
            match word {
                "chacha20poly1305" => "chacha20_poly1305",
                "null" => "null",
                "3des" => "3des",
                "md5" => "md5",
                "sha1" => "sha1",
                "sha256" => "sha2_256",
                "sha384" => "sha2_384",
                "sha512" => "sha2_512",
                "curve25519" | "x25519" => "dh31",
                "ecp256" => "dh19",
                "ecp384" => "dh20",
                "ecp521" => "dh21",
                "modp2048" => "dh14",
                "modp3072" => "dh15",
                "modp4096" => "dh16",
                _ => return None,
            }
            .to_string(),
        )
    };
    let words: Result<Vec<String>, String> = swanctl
        .split('-')
        .map(|w| {
            word(w).ok_or_else(|| {
                format!("`{w}` of `{swanctl}` is not among the algorithms set up for Libreswan")
            })
        })
        .collect();
    Ok(words?.join("-"))
}

impl Dut for Libreswan {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = lacks_xfrm();
        if ["pluto", "addconn", "whack"].iter().any(|p| program(p).is_none()) {
            lacks.push(Remedy::new("Libreswan is not installed", INSTALL));
        }
        if process::find("certutil").is_none() {
            lacks.push(Remedy::new("`certutil` is not installed", "apt-get install libnss3-tools"));
        }
        let untranslated = [&self.suite.ike, &self.suite.esp].into_iter().filter_map(|p| proposal(p).err());
        lacks.extend(untranslated.map(|why| Remedy::new(why, "choose another --suite")));
        lacks
    }

    fn version(&self) -> Option<String> {
        let pluto = program("pluto")?;
        let done = process::run_regardless(&[&*pluto.to_string_lossy(), "--version"], Duration::from_secs(5));
        let done = done.ok()?;
        let text = format!("{}{}", done.stdout, done.stderr);
        text.lines().find(|l| l.contains("Libreswan")).map(|l| l.trim().to_string())
    }

    fn start(&self, sites: &Sites<'_>, dir: &Path) -> Result<Box<dyn Running>, LabError> {
        let (Some(pluto), Some(whack)) = (program("pluto"), program("whack")) else {
            return Err(LabError::Unfit(self.lacks()));
        };
        let mut pair = Pair::new(self.name());
        for (index, site) in sites.sites.iter().enumerate() {
            let conf = self.ipsec_conf(sites, index).map_err(LabError::Usage)?;
            let home = dir.join(site.name);
            std::fs::create_dir(&home).map_err(LabError::io(format!("creating {}", home.display())))?;
            write(&home.join("ipsec.conf"), &conf)?;
            write(&home.join("ipsec.secrets"), ": PSK \"a pre-shared key of the laboratory\"\n")?;
            let store = format!("sql:{}", home.display());
            process::run(sites.journal, &["certutil", "-N", "-d", &store, "--empty-password"], COMMAND)?;
            let at = |file: &str| home.join(file).to_string_lossy().into_owned();
            let (program, folder) = (pluto.to_string_lossy(), home.to_string_lossy());
            let argv = [&*program, "--nofork", "--stderrlog", "--use-xfrm", "--config", &at("ipsec.conf")];
            let own = [
                "--secretsfile",
                &at("ipsec.secrets"),
                "--rundir",
                &folder,
                "--nssdir",
                &folder,
                "--ipsecdir",
                &folder,
            ];
            let argv: Vec<&str> = argv.into_iter().chain(own).collect();
            let log = dir.join(format!("{}.log", site.name));
            pair.add(Process::start(sites.journal, site.name, &site.netns.exec(&argv), &log)?);
        }
        let homes = sites.sites.iter().map(|s| dir.join(s.name)).collect();
        let running = Plutos { pair, homes, whack, journal: sites.journal.clone() };
        running.up(sites)
    }
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(LabError::io(format!("writing {}", path.display())))
}

struct Plutos {
    pair: Pair,
    /// The folders of the gateways.
    homes: Vec<PathBuf>,
    whack: PathBuf,
    journal: Journal,
}

impl Plutos {
    /// Loads the connections and initiates them.
    fn up(mut self, sites: &Sites<'_>) -> Result<Box<dyn Running>, LabError> {
        for (index, site) in sites.sites.iter().enumerate() {
            let socket = self.socket(index);
            let there = interrupt::wait_until(Duration::from_secs(10), || {
                self.pair.alive()?;
                // pluto answers with an error until it has read its secrets.
                Ok(Path::new(&socket).exists() && self.whack(index, &["--briefstatus"]).is_ok())
            })?;
            if !there {
                return Err(self.pair.failed(format!("pluto of {} did not answer within 10 s", site.name)));
            }
            self.whack(index, &["--rereadsecrets"])?;
            self.whack(index, &["--listen"])?;
            let own = connections(sites);
            let own = own.iter().filter(|(_, tunnel, _)| {
                let (left, right) = sites.tunnels[*tunnel];
                [left, right].contains(&index)
            });
            for (name, ..) in own {
                let (addconn, conf) =
                    (program("addconn").unwrap_or_default(), self.homes[index].join("ipsec.conf"));
                let argv = [
                    &*addconn.to_string_lossy(),
                    "--config",
                    &conf.to_string_lossy(),
                    "--ctlsocket",
                    &socket,
                    name,
                ];
                process::run(&self.journal, &argv, COMMAND)?;
            }
        }
        for (name, tunnel, _) in connections(sites) {
            self.whack(sites.tunnels[tunnel].0, &["--name", &name, "--initiate"])?;
        }
        Ok(Box::new(self))
    }

    fn socket(&self, gateway: usize) -> String {
        self.homes[gateway].join("pluto.ctl").to_string_lossy().into_owned()
    }

    fn whack(&self, gateway: usize, arguments: &[&str]) -> Result<String, LabError> {
        let (whack, socket) = (self.whack.to_string_lossy(), self.socket(gateway));
        let argv: Vec<&str> = [&*whack, "--ctlsocket", &socket].iter().chain(arguments).copied().collect();
        let done = process::finish(&self.journal, &argv, "", COMMAND)?;
        if done.status.success() {
            Ok(done.stdout)
        } else {
            Err(self.pair.failed(format!("`whack {}`: {}", arguments.join(" "), done.complaint())))
        }
    }
}

impl Running for Plutos {
    fn tunnel_device(&self) -> Option<String> {
        None
    }

    fn describe(&mut self) -> Result<String, LabError> {
        Ok(self.whack(0, &["--trafficstatus"])?.trim_end().to_string())
    }

    fn alive(&mut self) -> Result<(), LabError> {
        self.pair.alive()
    }

    fn logs(&self) -> Vec<LogTail> {
        self.pair.logs()
    }

    fn stop(self: Box<Self>) -> Vec<String> {
        self.pair.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Netns, Site};

    fn conf(encap: Encap, networks: [&[&str]; 2]) -> String {
        let (journal, boxes) =
            (Journal::default(), ["no-such-box-1", "no-such-box-2"].map(|n| Netns::adopt(n.into())));
        let site = |nth: usize, address: &str| Site {
            name: ["g1", "g2"][nth],
            netns: &boxes[nth],
            address: address.into(),
            networks: networks[nth].iter().map(ToString::to_string).collect(),
        };
        let sites = vec![site(0, "192.0.2.1"), site(1, "192.0.2.2")];
        let sites = Sites { sites, tunnels: vec![(0, 1)], journal: &journal, played: None };
        let dut = Libreswan::new("libreswan".into(), Suite::default(), encap);
        let both = [0, 1].map(|site| dut.ipsec_conf(&sites, site).expect("a configuration"));
        assert_eq!(both[0], both[1], "the ends have the same");
        both[0].clone()
    }

    #[test]
    fn both_ends_have_the_same_connection_in_the_words_of_ipsec_conf() {
        let one = "config setup
	protostack=xfrm
	uniqueids=no

conn net
	ikev2=insist
	type=tunnel
	authby=secret
	ike=aes_gcm128-sha2_256-dh31
	esp=aes_gcm128
	encapsulation=yes
	auto=add
	left=192.0.2.1
	leftid=@g1.example
	leftsubnet=10.1.0.0/24
	right=192.0.2.2
	rightid=@g2.example
	rightsubnet=10.2.0.0/24
";
        assert_eq!(conf(Encap::Udp, [&["10.1.0.0/24"], &["10.2.0.0/24"]]), one);
        let several = conf(Encap::Raw, [&["10.1.0.0/24", "10.9.0.0/24"], &["10.2.0.0/24"]]);
        assert!(several.contains("encapsulation=no") && several.contains("\nconn net-pair1\n"), "{several}");
        assert_eq!(several.matches("\tleftsubnet=10.9.0.0/24\n").count(), 1, "{several}");
    }

    #[test]
    fn proposals_are_translated_word_by_word_or_refused() {
        for (swanctl, own) in [
            ("aes128gcm16-prfsha256-curve25519", "aes_gcm128-sha2_256-dh31"),
            ("aes256gcm16-prfsha384-ecp384", "aes_gcm256-sha2_384-dh20"),
            ("aes128-sha256", "aes128-sha2_256"),
            ("chacha20poly1305", "chacha20_poly1305"),
            ("null-sha1", "null-sha1"),
            ("3des-sha1", "3des-sha1"),
            ("aes256ctr-sha512", "aes_ctr256-sha2_512"),
        ] {
            assert_eq!(proposal(swanctl).as_deref(), Ok(own));
        }
        let e = proposal("aes128-camellia").expect_err("unknown");
        assert!(e.contains("`camellia`"), "{e}");
        let suite = Suite { esp: "rot13".into(), ..Suite::default() };
        let lacks = |suite| Libreswan::new("libreswan".into(), suite, Encap::Udp).lacks();
        let untranslated = |lacks: Vec<Remedy>| lacks.iter().filter(|r| r.lack.contains("`rot13`")).count();
        assert_eq!((untranslated(lacks(suite)), untranslated(lacks(Suite::default()))), (1, 0));
    }
}
