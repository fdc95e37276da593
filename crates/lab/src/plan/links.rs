//! Links by name, and the rule of thumb of FreeS/WAN.

use crate::error::LabError;

/// Links with their nominal rates, 10^6 bits per second each way.
pub const LINKS: [(&str, f64); 18] = [
    ("DSL", 50.0),
    ("cable", 250.0),
    ("T1", 1.544),
    ("E1", 2.048),
    ("Ethernet", 10.0),
    ("E3", 34.368),
    ("T3", 44.736),
    ("fast Ethernet", 100.0),
    ("OC3", 155.52),
    ("1G", 1_000.0),
    ("2.5G", 2_500.0),
    ("10G", 10_000.0),
    ("25G", 25_000.0),
    ("40G", 40_000.0),
    ("50G", 50_000.0),
    ("100G", 100_000.0),
    ("200G", 200_000.0),
    ("400G", 400_000.0),
];

/// FreeS/WAN's rule of thumb: MHz for each Mbit/s of 3DES, and without its safety factor.
pub const FREESWAN_MHZ: (f64, f64) = (25.0, 17.5);

/// Cycles for each byte, as published beside the rule: the IP stack, IPsec without cryptography,
/// with SHA-1, and what 3DES adds to that.
pub const FREESWAN_CYCLES: [u32; 4] = [5, 11, 24, 116];

/// A rate in bits per second: a number with k, M, G or T (`1G`, `155.52M`, `64k`), or a link's name
/// without regard to case.
pub fn rate(text: &str) -> Result<f64, LabError> {
    let wrong = || {
        LabError::Usage(format!(
            "`{text}` is not a link; write a rate such as 1G, 155.52M or 64k (bits per second), or one of T1, E1, T3, E3, OC3, \
             DSL, cable"
        ))
    };
    if let Some((_, mbps)) = LINKS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Ok(mbps * 1e6);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let factor = match text[digits.len()..].trim_end_matches("bit/s").trim_end_matches("bps") {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        "T" | "t" => 1e12,
        _ => return Err(wrong()),
    };
    let value: f64 = digits.parse().map_err(|_| wrong())?;
    let bits = value * factor;
    if !(1e3..=1e15).contains(&bits) {
        return Err(LabError::Usage(format!(
            "a link of `{text}` makes no sense here: from 1k to 1000T bits per second (did you leave the unit out?)"
        )));
    }
    Ok(bits)
}

/// A time in seconds: a number with s, m, h or d.
pub fn seconds(text: &str) -> Result<f64, LabError> {
    let wrong =
        || LabError::Usage(format!("`{text}` is not a time above 0; write for instance 30s, 10m, 1h or 1d"));
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let value: f64 = digits.parse().map_err(|_| wrong())?;
    let all = value * factor;
    if all > 0.0 && all.is_finite() { Ok(all) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units_or_names() {
        for (text, bits) in [
            ("1G", 1e9),
            ("155.52M", 155.52e6),
            ("64k", 64e3),
            ("t1", 1.544e6),
            ("OC3", 155.52e6),
            ("2.5Gbit/s", 2.5e9),
        ] {
            assert!((rate(text).expect(text) - bits).abs() < 1.0, "{text}");
        }
        for bad in ["", "G", "1X", "-1G", "0", "10", "1e30G", "nan"] {
            assert!(matches!(rate(bad), Err(LabError::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, s) in [("30", 30.0), ("30s", 30.0), ("10m", 600.0), ("1h", 3600.0), ("1d", 86_400.0)] {
            assert_eq!(seconds(text).ok(), Some(s), "{text}");
        }
        for bad in ["", "h", "0h", "-1s", "1w", "inf"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
