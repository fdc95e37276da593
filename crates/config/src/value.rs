//! Values as people write them: yes and no, numbers, times, sizes, addresses, secrets. Each reader
//! gives the value or the sentence that says what is wrong with it.

use std::net::IpAddr;
use std::time::Duration;

use base64::alphabet;
use base64::engine::{Engine as _, GeneralPurpose, GeneralPurposeConfig};
use ironswan_keying::AddrSpec;
use ironswan_keying::diagnosis::{Configuration, SecretFault, ValueFault};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::AddrRange;
use zeroize::Zeroizing;

/// Reason why a value cannot be used.
pub(super) type Wrong = Configuration;

/// Makes the finding about a value that cannot be used. `write` is the remedy; when it is empty,
/// the finding shows the usual remedy of this fault.
pub(super) fn wrong(written: &str, why: ValueFault, write: &'static str) -> Wrong {
    Configuration::BadValue { written: show(written), why, write }
}

/// Replaces the remedy of a finding about a bad value. Another finding stays as it is.
pub(super) fn advise(fault: Wrong, write: &'static str) -> Wrong {
    match fault {
        Configuration::BadValue { written, why, .. } => Configuration::BadValue { written, why, write },
        other => other,
    }
}

/// `yes`, `no` and their synonyms.
pub(super) fn boolean(text: &str) -> Result<bool, Wrong> {
    match text.trim().to_ascii_lowercase().as_str() {
        "yes" | "true" | "enabled" | "on" | "1" => Ok(true),
        "no" | "false" | "disabled" | "off" | "0" => Ok(false),
        _ => Err(wrong(text, ValueFault::NotYesNo, "")),
    }
}

/// Cuts a written text to the length of a message, and escapes its control characters.
pub(super) fn show(text: &str) -> String {
    let short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().count() > 60 { short + "..." } else { short }
}

/// A whole number, decimal or `0x` hexadecimal, up to `max`.
pub(super) fn number(text: &str, max: u64) -> Result<u64, Wrong> {
    let t = text.trim();
    let n = match t.strip_prefix("0x").or(t.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        None if t.bytes().all(|b| b.is_ascii_digit()) => t.parse().ok(),
        _ => None,
    };
    match n {
        Some(n) if n <= max => Ok(n),
        Some(_) => Err(wrong(t, ValueFault::Above(max.to_string()), "")),
        None => Err(wrong(t, ValueFault::NotNumber(max), "")),
    }
}

/// Units of times, in seconds.
const TIMES: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
/// Units of sizes, in bytes.
const SIZES: [(char, u64); 3] = [('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)];

/// A decimal number behind which one of `units` may stand.
fn scaled(text: &str, units: &[(char, u64)], kind: &'static str, write: &'static str) -> Result<u64, Wrong> {
    let t = text.trim();
    let wrong_kind = || wrong(t, ValueFault::Not(kind), write);
    let digits = t.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    let unit = t[digits.len()..].trim();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong_kind());
    }
    let factor = match (unit.chars().next(), unit.chars().count()) {
        (None, _) => 1,
        (Some(c), 1) => units
            .iter()
            .find(|(u, _)| *u == c.to_ascii_lowercase())
            .map(|(_, f)| *f)
            .ok_or_else(wrong_kind)?,
        _ => return Err(wrong_kind()),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| wrong(t, ValueFault::TooLarge, ""))
}

/// A time: seconds, or with `s`, `m`, `h`, `d`. At most 100 years, so that sums cannot overflow.
pub(super) fn time(text: &str) -> Result<Duration, Wrong> {
    let secs = scaled(text, &TIMES, "a time", "write a number, with s, m, h, d behind it if you like")?;
    if secs > 100 * 366 * 86_400 {
        return Err(wrong(text, ValueFault::Above("100 years".to_owned()), ""));
    }
    Ok(Duration::from_secs(secs))
}

/// A time to the millisecond, for the daemon's own timers: `4`, `0.5`, `250ms`, or as [`time`].
/// Fractions and milliseconds reach up to one day.
pub(super) fn fine_time(text: &str) -> Result<Duration, Wrong> {
    let t = text.trim();
    if let Some(ms) = t.strip_suffix("ms") {
        return Ok(Duration::from_millis(number(ms, 86_400_000)?));
    }
    if t.contains('.') {
        let secs = factor(t.strip_suffix('s').unwrap_or(t), 0.0, 86_400.0)?;
        return Ok(Duration::from_secs_f64(secs));
    }
    time(t)
}

/// A decimal number from `min` to `max`, both included.
pub(super) fn factor(text: &str, min: f64, max: f64) -> Result<f64, Wrong> {
    match text.trim().parse::<f64>() {
        Ok(f) if f.is_finite() && (min..=max).contains(&f) => Ok(f),
        _ => Err(wrong(text, ValueFault::NotBetween(min.to_string(), max.to_string()), "")),
    }
}

/// A number of bytes: plain, or with `k`, `m`, `g` (powers of 1024, as in swanctl.conf).
pub(super) fn bytes(text: &str) -> Result<u64, Wrong> {
    scaled(text, &SIZES, "a number of bytes", "write a number, with k, m, g behind it if you like")
}

/// A UDP port. 0 means "the usual one" in swanctl.conf.
pub(super) fn port(text: &str, usual: u16) -> Result<u16, Wrong> {
    let n = number(text, 65_535)? as u16;
    Ok(if n == 0 { usual } else { n })
}

/// Reads one address.
fn host(text: &str) -> Result<IpAddr, Wrong> {
    text.trim().parse().map_err(|_| wrong(text, ValueFault::Not("an address"), ""))
}

/// `a.b.c.d/n`, `a-b`, or one address.
pub(super) fn range(text: &str) -> Result<AddrRange, Wrong> {
    let t = text.trim();
    if let Some((addr, len)) = t.split_once('/') {
        let addr: IpAddr = host(addr)?;
        let len: u8 = len.trim().parse().map_err(|_| wrong(len, ValueFault::Not("a prefix length"), ""))?;
        return AddrRange::prefix(addr, len).ok_or_else(|| {
            let max = if addr.is_ipv4() { 32 } else { 128 };
            wrong(t, ValueFault::PrefixLength(max), "")
        });
    }
    if let Ok(addr) = t.parse() {
        return Ok(AddrRange::host(addr));
    }
    if let Some((from, to)) = t.split_once('-').or_else(|| t.split_once("..")) {
        let from: IpAddr = host(from)?;
        let to: IpAddr = host(to)?;
        return AddrRange::new(from, to).ok_or_else(|| wrong(t, ValueFault::RangeBackwards, ""));
    }
    Err(wrong(t, ValueFault::Not("an address, a subnet or a range"), ""))
}

/// Returns the subnet of `address/length` when the address has bits behind the prefix, so that the
/// user can be told which subnet is used. `None` when there are no such bits.
pub(super) fn host_bits(text: &str) -> Option<AddrRange> {
    let (addr, rest) = text.trim().split_once('/')?;
    let addr: IpAddr = addr.trim().parse().ok()?;
    let len = rest.split('[').next()?.trim().parse().ok()?;
    AddrRange::prefix(addr, len).filter(|range| range.start() != addr)
}

/// True for a text that may be a DNS name, with or without the dot of the root.
fn host_name(t: &str) -> bool {
    t.len() <= 253
        && t.bytes().any(|b| b.is_ascii_alphabetic())
        && t.strip_suffix('.').unwrap_or(t).split('.').all(|label| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        })
}

/// One item of `local_addrs` or `remote_addrs`.
pub(super) fn address(text: &str) -> Result<AddrSpec, Wrong> {
    let t = text.trim();
    if matches!(t, "%any" | "%any4" | "%any6" | "0.0.0.0" | "::" | "0.0.0.0/0" | "::/0") {
        return Ok(match t {
            "%any4" | "0.0.0.0/0" => AddrSpec::Range(AddrRange::any(false)),
            "%any6" | "::/0" => AddrSpec::Range(AddrRange::any(true)),
            _ => AddrSpec::Any,
        });
    }
    if t.starts_with('%') {
        let write = "write an address, a subnet, a range, a DNS name or %any";
        return Err(wrong(t, ValueFault::NotKnown, write));
    }
    if let Ok(addr) = t.parse() {
        return Ok(AddrSpec::Host(addr));
    }
    if !t.is_empty() && range(t).is_err() && host_name(t) {
        // The name is resolved when a connection needs the address, not here: an answer may take
        // long, and may be another one tomorrow.
        return Ok(AddrSpec::Name(t.trim_end_matches('.').to_ascii_lowercase()));
    }
    range(t).map(|r| if r.start() == r.end() { AddrSpec::Host(r.start()) } else { AddrSpec::Range(r) })
}

/// A secret as swanctl.conf has it: `0x` hexadecimal, `0s` base64, else the text itself. The digits
/// are decoded into a buffer that is large enough from the start, because a buffer that grows
/// leaves a copy in memory. When the digits are wrong, the buffer is wiped.
pub(super) fn secret(text: &str) -> Result<Secret, Wrong> {
    let bad = |why| Configuration::BadSecret { why };
    let mut bytes = if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        from_hex(hex).ok_or(bad(SecretFault::NotHexadecimal))?
    } else if let Some(b64) = text.strip_prefix("0s").or(text.strip_prefix("0S")) {
        from_base64(b64).ok_or(bad(SecretFault::NotBase64))?
    } else {
        Zeroizing::new(text.as_bytes().to_vec())
    };
    if bytes.is_empty() {
        return Err(bad(SecretFault::Empty));
    }
    Ok(Secret::new(std::mem::take(&mut *bytes)))
}

fn from_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    // Colons may stand between bytes only. Other readers take a colon elsewhere for a digit.
    for bytes in text.as_bytes().split(|b| *b == b':') {
        if bytes.is_empty() || !bytes.len().is_multiple_of(2) {
            return None;
        }
        for pair in bytes.chunks_exact(2) {
            let [high, low] = [pair[0], pair[1]].map(|b| (b as char).to_digit(16));
            out.push((high? << 4 | low?) as u8);
        }
    }
    Some(out)
}

/// Base64 that must have its padding. Other readers make other keys of text without padding, and
/// swanctl drops the digits behind the last group of four. Bits of the last digit that belong to no
/// byte may be set; they are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

fn from_base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let body = text.trim_end_matches('=');
    if body.is_empty() {
        return None;
    }
    // The buffer is exactly as long as the key: a buffer that grows would leave a copy behind.
    let mut out = Zeroizing::new(vec![0; body.len() * 3 / 4]);
    let len = BASE64.decode_slice(text, &mut out).ok()?;
    (len == out.len()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_take_their_units_and_nothing_else() {
        assert_eq!(time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(time(" 4h "), Ok(Duration::from_secs(14_400)));
        assert_eq!(time("2 d"), Ok(Duration::from_secs(172_800)));
        for bad in ["", "h", "-1", "4hh", "1.5h", "99999999999999999999", "4w", "200000000000", "1 2"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert_eq!(bytes("1G"), Ok(1 << 30));
        assert!(bytes("18446744073709551615k").is_err());
        assert_eq!(fine_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(fine_time("250ms"), Ok(Duration::from_millis(250)));
        assert!(fine_time("nan.").is_err() && factor("inf", 1.0, 2.0).is_err());
    }

    #[test]
    fn addresses_of_every_kind() {
        assert_eq!(address("%any"), Ok(AddrSpec::Any));
        assert_eq!(address("192.0.2.1"), Ok(AddrSpec::Host([192, 0, 2, 1].into())));
        assert!(matches!(address("192.0.2.0/24").unwrap(), AddrSpec::Range(_)));
        assert!(matches!(address("fd00::1-fd00::9").unwrap(), AddrSpec::Range(_)));
        for bad in [
            "192.0.2.256",
            "192.0.2.0/33",
            "10.0.0.9-10.0.0.1",
            "10.0.0.1-fd00::1",
            "%defaultroute",
            "a b",
            "1.2.3.4/x",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
        // No resolver is asked.
        for (text, name) in [
            ("no-such-host.invalid", "no-such-host.invalid"),
            ("Hub.Example.", "hub.example"),
            ("localhost", "localhost"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(address(text), Ok(AddrSpec::Name(name.to_owned())));
        }
        assert!(
            address("hub..example").is_err() && address(".").is_err() && address("hub_1.example").is_ok()
        );
    }

    #[test]
    fn secrets_in_three_spellings() {
        assert_eq!(secret("swordfish").unwrap().expose(), b"swordfish");
        assert_eq!(secret("0x73776f").unwrap().expose(), b"swo");
        assert_eq!(secret("0sc3dvcmQ=").unwrap().expose(), b"sword");
        assert_eq!(secret("0sc3dv").unwrap().expose(), b"swo");
        assert_eq!(secret("0sYWJ=").unwrap().expose(), b"ab");
        // At least 64 octets of ASCII, and no terminator behind them (RFC 7296 section 2.15).
        let long = "0123456789 abcdefghijklmnopqrstuvwxyz~".repeat(4);
        assert_eq!(secret(&long).unwrap().expose(), long.as_bytes());
        assert_eq!(secret("0x73:776F").unwrap().expose(), b"swo");
        for bad in [
            "",
            "0x",
            "0x1",
            "0x7:37",
            "0x:",
            "0x73::77",
            "0xzz",
            "0s",
            "0sA",
            "0sYWI",
            "0sYW=I",
            "0s====",
            "0s==",
            "0sab!d",
            "0sYQ=",
            "0sYQ===",
            "0sYWI=YWI=",
            "0sYQ==\n",
        ] {
            assert!(secret(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_secret_never_grows_while_it_is_read() {
        for n in [1, 9, 33, 48, 100] {
            let hex = from_hex(&"a7".repeat(n)).unwrap();
            assert_eq!((hex.len(), hex.capacity()), (n, n));
            let base64 = from_base64(&"c3dv".repeat(n)).unwrap();
            assert_eq!((base64.len(), base64.capacity()), (3 * n, 3 * n));
        }
        let colons = from_hex("a7:a7a7:a7").unwrap();
        assert!(colons.len() == 4 && colons.capacity() == 5, "{}", colons.capacity());
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(number("0x10", 16), Ok(16));
        assert!(number("17", 16).is_err() && number("+1", 16).is_err() && number("", 16).is_err());
        assert_eq!(port("0", 500), Ok(500));
        assert!(port("65536", 500).is_err());
    }
}
