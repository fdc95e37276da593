//! What is in a configuration file: syntax, inheritance, the meaning of every key, and the linter.

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

/// Runs the bytes as one file.
pub fn run(data: &[u8]) -> u64 {
    ironswan_config::fuzz_swanctl_conf(data)
}
