//! Everything in a configuration file: syntax, inheritance, the meaning of every key, and the
//! linter.

use std::collections::BTreeSet;

use ironswan_config::check::check;
use ironswan_config::diag::Diagnostics;
use ironswan_config::{Config, daemon, parse_text};

use super::signature;

/// Keys and values that mean something.
pub const DICTIONARY: &[&[u8]] = &[
    b"connections { a { local { auth = psk }\n remote { auth = psk }\n",
    b"children { n { local_ts = 10.0.0.0/8\n remote_ts = 10.0.0.1-10.0.0.7[tcp/80] } }\n",
    b"secrets { ike-1 { secret = \"x\"\n id = a.example } }\n",
    b" : base, other.sub {",
    b"include x*.conf\n",
    b"proposals = aes128gcm16-prfsha256-x25519,default\n",
    b"esp_proposals = aes256-sha256-modp2048-esn\n",
    b"local_addrs = 192.0.2.1, fd00::/64, %any\n",
    b"remote_addrs = 10.0.0.1-10.0.0.9\n",
    b"rekey_time = 4h\n",
    b"rekey_bytes = 1G\n",
    b"start_action = trap\n",
    b"mobike = no\n",
    b"mode = pass\n",
    b"id = @#c0ffee\n",
    b"secret = 0s",
    b"secret = 0x",
    b"dynamic[udp/opaque]",
    b"[icmp/8]",
    b"\\\n",
    b"#",
    b"\"",
    b"{",
    b"}",
    b"=",
];

/// Reads the bytes as one file that includes no other, understands it as `swanctl.conf` and as
/// `ironswan.conf`, and checks it. Names are not looked up. The result tells inputs apart by what
/// was found in them.
pub fn run(data: &[u8]) -> u64 {
    let mut diags = Diagnostics::default();
    let root = parse_text("fuzz", data, &mut diags);
    let config = Config::from_tree(&root, &mut diags);
    check(&config, &mut diags);
    let children = config.connections.iter().map(|c| c.children.len()).sum::<usize>();
    let shape = [config.connections.len().min(4), children.min(4), config.secrets.len().min(4)];
    let _ = daemon(&root, &mut diags);
    let mut sentences = BTreeSet::new();
    for d in diags.iter() {
        let line = d.to_string();
        assert!(!line.contains(['\0', '\n']), "a finding that is not one line: {line:?}");
        // The sentence without the words and numbers that it quotes.
        let sentence = d.diagnosis.to_string();
        let own = sentence.split('`').step_by(2).flat_map(str::chars);
        sentences.insert(own.filter(|c| !c.is_numeric()).take(40).collect::<String>());
    }
    signature((shape, sentences))
}
