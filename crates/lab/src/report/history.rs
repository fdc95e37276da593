//! The published figures that the experiments repeat, as published.

/// Figures of FreeS/WAN's page on performance for four boxes in a line (Metheringham, 2001):
/// P-III/733 gateways, ttcp.
pub mod line {
    /// Plain forwarding, KB/s, lowest and highest.
    pub const PLAIN_KB_S: (f64, f64) = (10_644.0, 11_320.0);
    /// Through a 3DES-MD5 tunnel, KB/s, lowest and highest.
    pub const TUNNEL_KB_S: (f64, f64) = (3_268.0, 3_402.0);
    /// Clock of the gateways, MHz.
    pub const MHZ: f64 = 733.0;
    /// Who, when, on what.
    pub const SOURCE: &str = "FreeS/WAN, Metheringham 2001: P-III/733, 3DES-MD5, ttcp, 100 Mbit/s Ethernet";
    /// Remark that belongs beside the ratio.
    pub const CAVEAT: &str = "Then plain forwarding was limited by the 100 Mbit/s wire and only the tunnel by the \
        processor; here both are limited by the processors, which hosts and gateways share. The two ratios are not \
        the same quantity.";

    /// The ratio of the middles.
    pub fn ratio() -> f64 {
        middle(TUNNEL_KB_S) / middle(PLAIN_KB_S)
    }

    /// The middle of a range.
    pub fn middle((low, high): (f64, f64)) -> f64 {
        (low + high) / 2.0
    }

    /// KB/s as Gb/s; ttcp's KB is 1024 bytes.
    pub fn gbps(kb_s: f64) -> f64 {
        kb_s * 1024.0 * 8.0 / 1e9
    }

    /// Cycles of one gateway per byte of the tunnel, if it spent all of them on it.
    pub fn cycles_per_byte() -> f64 {
        MHZ * 1e6 / (middle(TUNNEL_KB_S) * 1024.0)
    }
}

/// Figures of FreeS/WAN's page on performance for old machines.
pub mod lowend {
    /// Who, on what.
    pub const SOURCE: &str = "FreeS/WAN performance page: 3DES on old machines";
    /// What a 486/66 was reckoned to do with 3DES, Mbit/s: from the speed of its cipher alone.
    pub const I486_66: f64 = 1.6;
    /// FTP over a host-to-host tunnel between a Pentium 60 and a much faster machine, Mbit/s.
    pub const PENTIUM_60: f64 = 5.0;
    /// A T1 line, Mbit/s.
    pub const T1: f64 = 1.544;

    /// The published figures in a sentence.
    pub fn then() -> String {
        format!(
            "486/66: {I486_66} Mbit/s, a T1 line; Pentium 60: {PENTIUM_60} Mbit/s; a Pentium 133 was suggested"
        )
    }
}

/// Shares that readprofile showed for KLIPS, FreeS/WAN's code in the kernel.
pub mod profile {
    /// Who, on what.
    pub const SOURCE: &str = "FreeS/WAN, readprofile of a kernel with KLIPS";
    /// The published figure.
    pub const THEN: &str =
        "encrypt side: DES 56 to 60 %, MD5 11 %, kmalloc 10 % of the time; decrypt side: nothing visible";
    /// Remark that belongs beside the figure.
    pub const CAVEAT: &str = "Then a sampling profile of the whole kernel with a cipher in software; here the engine's own \
        clock over its own stages, with a cipher in hardware instructions. The kernel's work for each packet is only in the \
        stages receive and send.";
}

#[cfg(test)]
mod tests {
    use super::{line, lowend};

    #[test]
    fn the_published_figure_of_a_486_is_a_t1_line() {
        assert!(lowend::I486_66 > lowend::T1 && lowend::then().contains("486/66: 1.6 Mbit/s"));
        assert!(lowend::then().contains("Pentium 60: 5 Mbit/s"), "{}", lowend::then());
    }

    #[test]
    fn the_published_ratio_is_three_tenths() {
        assert!((line::ratio() - 0.30).abs() < 0.005);
        assert!((line::gbps(11_320.0) - 0.0927).abs() < 0.0001, "just below the wire's 0.1");
        assert!((line::cycles_per_byte() - 214.6).abs() < 0.1);
    }
}
