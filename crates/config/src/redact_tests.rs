use ironswan_testkit::clock;
use ironswan_testkit::scratch::Scratch;

use super::super::scrub::KEY_LEN;
use super::*;

fn redacted(input: &str) -> (String, Scrubber) {
    let mut scrubber = Scrubber::new(&[3; KEY_LEN]);
    let out = text(input.as_bytes(), &mut scrubber);
    (String::from_utf8(out).unwrap(), scrubber)
}

#[test]
fn values_of_secrets_are_hashes_and_all_else_stays_line_by_line() {
    let input = "connections {\n  net { remote_addrs = 192.0.2.2 # hub\n  }\n}\nsecrets {\n  ike-1 { # swordfish was it\n    \
                 secret = 0sc3dvcmQ=\n    id-1 = peer\n  }\n  ike-2 {\n    secret = \"sword\" # x\n  }\n  private-a { file = a.pem\n secret = two words }\n}\n";
    let (out, s) = redacted(input);
    let label = s.label(b"sword");
    for line in ["  net { remote_addrs = 192.0.2.2 # hub", "    id-1 = peer", "  private-a { file = a.pem"] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert_eq!(out.matches(&label).count(), 2, "equal secrets show as equal: {out}");
    assert!(out.contains(&s.label(b"two words")), "{out}");
    for gone in ["sword", "c3dvcmQ", "two words"] {
        assert!(!out.contains(gone), "{gone}: {out}");
    }
    assert_eq!(out.lines().count(), input.lines().count());
}

#[test]
fn secrets_in_wrong_places_are_seen_by_the_names_of_their_keys() {
    let (out, _) = redacted(
        "connections { net { psk = swordfish\n my_secret = tuna\n password= \"a b\" } }\n#secret = marlin\n# hello\n",
    );
    for gone in ["swordfish", "tuna", "a b", "marlin"] {
        assert!(!out.contains(gone), "{gone}: {out}");
    }
    assert!(out.contains("# hello"), "{out}");
}

#[test]
fn values_of_keys_that_nobody_knows_are_hidden_and_looked_for_unless_they_are_common() {
    let (out, s) = redacted(
        "connections { net { remote_addrs = 192.0.2.2\n presharedkey = swordfish-and-tuna # it\n remote_adr = 192.0.2.77\n \
         unik = maybe\n mobike = no\n children { a { local_ts = 10.1.0.0/24\n } } } }\n",
    );
    for gone in ["swordfish", "# it", "192.0.2.77", "maybe"] {
        assert!(!out.contains(gone), "{gone}: {out}");
    }
    for stays in
        ["remote_addrs = 192.0.2.2\n", "presharedkey = [#", "mobike = no\n", "local_ts = 10.1.0.0/24"]
    {
        assert!(out.contains(stays), "{stays}: {out}");
    }
    assert!(!s.find(b"log: swordfish-and-tuna").is_empty());
    assert!(s.find(b"maybe 192.0.2.77").is_empty(), "what is common stays elsewhere");
    let mut s = Scrubber::new(&[3; KEY_LEN]);
    let theirs = b"charon { filelog { default = syslog-of-ours } }\n";
    assert_eq!(
        hide(theirs, sections(theirs, false, true).hidden, &mut s),
        theirs,
        "strongswan.conf has other keys"
    );
}

#[test]
fn what_is_not_understood_is_left_out_to_the_end() {
    for input in [
        "secrets { ike-1 { secret = sword\nfish more\n } }\nconnections { }\n",
        "secrets { ike-1 { secret = \"swordfish\n } }\n",
        "secrets { ike-1 { secret = ab}fish } }\n",
        "secrets { ike-1 { fish",
        "}\nsecrets { fish }",
        "secrets { ike-1 { secret = ab\n\"fish\"\n } }\n",
    ] {
        let (out, _) = redacted(input);
        assert!(!out.contains("fish") && out.contains("not understood"), "{input}: {out}");
        assert_eq!(out.matches('\n').count(), input.matches('\n').count(), "{out}");
    }
    let (out, s) = redacted("secrets { ike-1 { secret = sword#fish\n } }\n");
    assert!(!out.contains("fish") && !out.contains("sword"), "{out}");
    assert!(s.secrets() > 0);
}

#[test]
fn lines_of_ipsec_secrets_keep_names_and_types_only() {
    let input = "# old: tuna\n@a.example 2001:db8::1 : PSK \"sword fish\"\n192.0.2.1 %any : PSK 0sc3dvcmQ=\n: RSA gw.pem \"marlin\"\n\
                 : RSA {\n  PrivateExponent: 0x1234567890abcdef\n}\n";
    let mut s = Scrubber::new(&[3; KEY_LEN]);
    let out =
        String::from_utf8(hide(input.as_bytes(), ipsec_secrets(input.as_bytes()).hidden, &mut s)).unwrap();
    for gone in ["tuna", "sword", "c3dv", "marlin", "12345678"] {
        assert!(!out.contains(gone), "{gone}: {out}");
    }
    assert!(out.contains(&format!("@a.example 2001:db8::1 : PSK {}", s.label(b"sword fish"))), "{out}");
    assert!(out.contains(&format!("192.0.2.1 %any : PSK {}", s.label(b"sword"))), "{out}");
    assert_eq!(out.lines().count(), input.lines().count());
}

#[test]
fn every_file_that_is_included_is_copied_and_one_within_secrets_is_secret() {
    let dir = Scratch::new();
    dir.write("swanctl.conf", "include more.conf\nsecrets {\n include keys/*.txt\n}\n");
    dir.write("more.conf", "connections { }\n");
    dir.write("keys/a.txt", "ike-1 { secret = swordfish\n any = tuna }\n");
    dir.write("conf.d/b.conf", "secrets { ike-2 { secret = marlin } }\n");
    dir.write("conf.d/c.txt", "not read\n");
    let pipe = dir.path().join("ironswan.conf");
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RUSR).unwrap();
    let mut s = Scrubber::new(&[3; KEY_LEN]);
    let all = folder(&Files::new(clock::now), dir.path(), &mut s);
    let names: Vec<String> =
        all.iter().map(|c| c.path.strip_prefix(dir.path()).unwrap().display().to_string()).collect();
    assert_eq!(names, ["conf.d/b.conf", "ironswan.conf", "keys/a.txt", "more.conf", "swanctl.conf"]);
    let text = |n: usize| String::from_utf8(all[n].text.clone().unwrap()).unwrap();
    assert!(all[1].text.is_err(), "a pipe is not read: {:?}", all[1]);
    assert!(text(2).contains(&s.label(b"swordfish")) && text(2).contains(&s.label(b"tuna")), "{}", text(2));
    assert!(text(0).contains(&s.label(b"marlin")), "{}", text(0));
}
