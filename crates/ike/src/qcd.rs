//! Tokens of quick crash detection (RFC 6290), as both sides compute, write, read and compare them.
//!
//! ```text
//! maker:  TOKEN_SECRET_DATA = HMAC-SHA2-256(QCD_SECRET, role | SPIi | SPIr), its first 16 bytes
//! taker:  keeps it with the IKE_SA, and ends the IKE_SA when it comes in clear
//! ```
//! This is the method of section 5.1. The one of section 5.2 also takes the taker's address into
//! account, so the token of a peer that moves (MOBIKE, NAT) would be wrong after a crash unless a
//! new one had been sent in time. The method of 5.2 only helps gateways that share one secret, and
//! two processes never do: the helper locks the file.
//!
//! `role` is 1 for a maker that is the initiator of the IKE_SA and 0 for the responder. A request
//! with a forged initiator flag asks for another token than the one that the peer has.
//!
//! Not here: who sends and keeps tokens (`task/qcd`), and answers to requests of unknown IKE_SAs
//! (`endpoint/unknown`).

use ironswan_crypto::prf;
use ironswan_wire::iana::{NotifyType, PrfId, ProtocolId};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, notifies};
use ironswan_wire::secret::{Secret, ct_eq};

/// Bytes of QCD_SECRET: "32 random octets" (RFC 6290 section 5.1).
pub const SECRET_LEN: usize = 32;
/// Bytes of our tokens: "Tokens MUST be at least 16 octets long, and no more than 128 octets long"
/// (RFC 6290 section 5). With the shortest token, the answer is no longer than the shortest
/// request.
const TOKEN_LEN: usize = 16;
/// Lengths of tokens in bytes that a peer may send.
const TOKEN_LENS: std::ops::RangeInclusive<usize> = 16..=128;
/// Limits how many tokens of one message are compared: "the token taker MUST support at least four
/// QCD_TOKEN notifications in a single packet" (RFC 6290 section 4.5).
const TOKENS_COMPARED: usize = 4;

/// Makes our tokens.
pub(crate) struct TokenMaker(Secret);

impl TokenMaker {
    /// With this QCD_SECRET. `None` when it has not [`SECRET_LEN`] bytes.
    pub(crate) fn new(secret: Secret) -> Option<Self> {
        (secret.len() == SECRET_LEN).then_some(Self(secret))
    }

    /// The notification with our token for an IKE_SA with these SPIs. `initiator`: we are its
    /// initiator. "Protocol ID (1 octet) MUST be 1" (RFC 6290 section 4.1).
    pub(crate) fn notify(&self, initiator: bool, (spi_i, spi_r): (u64, u64)) -> Notify {
        let prf = prf::get(PrfId::HMAC_SHA2_256).expect("HMAC-SHA2-256 is built in");
        let parts: [&[u8]; 3] = [&[u8::from(initiator)], &spi_i.to_be_bytes(), &spi_r.to_be_bytes()];
        let mac = prf.mac(self.0.expose(), &parts);
        let token = &mac.expose()[..TOKEN_LEN];
        Notify { protocol: ProtocolId::IKE, ..Notify::new(NotifyType::QUICK_CRASH_DETECTION, token) }
    }
}

/// A peer's token for one IKE_SA.
#[derive(Debug)]
pub(crate) struct Token(Secret);

impl Token {
    /// The token among the payloads of an authenticated message. One of a length that is not
    /// allowed is passed over.
    pub(crate) fn find(payloads: &[Payload]) -> Option<Self> {
        tokens(payloads).find(|data| TOKEN_LENS.contains(&data.len())).map(|data| Self(data.into()))
    }

    /// Compares the token with those of a message, in time that depends on lengths only. "The token
    /// is considered verified if any of the QCD_TOKEN notifications matches" (RFC 6290 section
    /// 4.5).
    pub(crate) fn is_among(&self, payloads: &[Payload]) -> bool {
        tokens(payloads).take(TOKENS_COMPARED).fold(false, |found, data| found | ct_eq(self.0.expose(), data))
    }
}

/// Whether some payload is a token.
pub(crate) fn has_token(payloads: &[Payload]) -> bool {
    tokens(payloads).next().is_some()
}

fn tokens(payloads: &[Payload]) -> impl Iterator<Item = &[u8]> {
    notifies(payloads).filter(|n| n.kind == NotifyType::QUICK_CRASH_DETECTION).map(|n| n.data.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maker(byte: u8) -> TokenMaker {
        TokenMaker::new(Secret::new(vec![byte; SECRET_LEN])).unwrap()
    }

    fn token(data: &[u8]) -> Payload {
        Payload::Notify(Notify::new(NotifyType::QUICK_CRASH_DETECTION, data))
    }

    #[test]
    fn a_token_is_the_one_that_another_program_computes() {
        // hmac.new(bytes(range(32)), bytes([0]) + bytes.fromhex("0102030405060708" +
        // "1112131415161718"), hashlib.sha256).hexdigest()[:32], and the same with bytes([1]).
        let maker = TokenMaker::new(Secret::new((0..32).collect())).unwrap();
        let spis = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718);
        let hex = |initiator| {
            let notify = maker.notify(initiator, spis);
            assert_eq!((notify.protocol, notify.spi.len()), (ProtocolId::IKE, 0));
            notify.data.iter().map(|b| format!("{b:02x}")).collect::<String>()
        };
        assert_eq!(hex(false), "baf2fb685b632b4de729ff82495ab676");
        assert_eq!(hex(true), "5417dd3e56d0d058c3be750dd00b5b6a");
    }

    #[test]
    fn a_token_depends_on_the_secret_both_spis_their_order_and_the_role() {
        let all = [
            maker(1).notify(false, (1, 2)),
            maker(2).notify(false, (1, 2)),
            maker(1).notify(true, (1, 2)),
            maker(1).notify(false, (2, 1)),
            maker(1).notify(false, (1, 3)),
            maker(1).notify(false, (3, 2)),
        ];
        for (n, a) in all.iter().enumerate() {
            assert!(all.iter().skip(n + 1).all(|b| a.data != b.data), "{n}");
        }
        assert_eq!(all[0], maker(1).notify(false, (1, 2)), "the same after a restart");
    }

    #[test]
    fn a_secret_of_another_length_makes_no_tokens() {
        for len in [0, 31, 33] {
            assert!(TokenMaker::new(Secret::new(vec![1; len])).is_none(), "{len}");
        }
    }

    #[test]
    fn tokens_of_16_to_128_bytes_are_kept() {
        for (len, kept) in [(0, false), (15, false), (16, true), (128, true), (129, false)] {
            assert_eq!(Token::find(&[token(&vec![7; len])]).is_some(), kept, "{len}");
        }
        assert!(Token::find(&[Payload::Notify(Notify::new(NotifyType::COOKIE, vec![7; 16]))]).is_none());
    }

    #[test]
    fn any_of_four_tokens_is_enough_and_a_fifth_is_not_read() {
        let ours = Token::find(&[token(&[7; 16])]).unwrap();
        let at = |n: usize| {
            let mut all: Vec<_> = (0..6).map(|_| token(&[8; 16])).collect();
            all[n] = token(&[7; 16]);
            all
        };
        for n in 0..4 {
            assert!(ours.is_among(&at(n)), "{n}");
        }
        assert!(!ours.is_among(&at(4)));
        assert!(!ours.is_among(&[token(&[7; 15])]));
        assert!(!ours.is_among(&[]));
    }
}
