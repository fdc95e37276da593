//! Messages and payloads made by hand, and checks of why they are refused.

use ironswan_wire::iana::{NotifyType, PayloadType};
use ironswan_wire::ike::{Message, ParseError, Payload, Within, parse_chain};

pub const SA_INIT: &[u8] = include_bytes!("../data/gcm-01-sa-init-request.bin");
pub const AUTH: &[u8] = include_bytes!("../data/gcm-03-auth-request.bin");
pub const LENGTH: usize = 24;

pub fn message(next: u8, chain: &[u8]) -> Vec<u8> {
    let mut m = SA_INIT[..28].to_vec();
    m[16] = next;
    m.extend(chain);
    let len = m.len() as u32;
    m[LENGTH..28].copy_from_slice(&len.to_be_bytes());
    m
}

/// A generic payload header with this next type, and the body.
pub fn payload(next: u8, body: &[u8]) -> Vec<u8> {
    let mut p = vec![next, 0];
    p.extend((body.len() as u16 + 4).to_be_bytes());
    p.extend(body);
    p
}

pub fn one(kind: PayloadType, body: &[u8]) -> Result<Payload, ParseError> {
    parse_chain(kind, &payload(0, body), Within::Sk).map(|mut all| all.remove(0))
}

#[track_caller]
pub fn refused(kind: PayloadType, body: &[u8], why: &str) {
    let e = one(kind, body).unwrap_err();
    assert_eq!(e.notify(), NotifyType::INVALID_SYNTAX);
    assert!(matches!(e, ParseError::Syntax { payload, offset: 0, .. } if payload == kind), "{e:?}");
    assert!(e.to_string().contains(why), "{e}");
}

#[track_caller]
pub fn syntax(datagram: &[u8], why: &str) {
    let e = Message::parse(datagram).unwrap_err();
    assert_eq!((e.notify(), e.notify_data()), (NotifyType::INVALID_SYNTAX, Vec::new()));
    assert!(e.to_string().contains(why), "{e}");
}

pub fn sa_body() -> Vec<u8> {
    let mut b = vec![0, 0, 0, 32, 1, 3, 4, 2, 1, 2, 3, 4];
    b.extend([3, 0, 0, 12, 1, 0, 0, 20, 0x80, 14, 0, 128]);
    b.extend([0, 0, 0, 8, 5, 0, 0, 0]);
    b
}

pub const V4: [u8; 16] = [7, 0, 0, 16, 0, 0, 0xff, 0xff, 10, 1, 0, 0, 10, 1, 0, 255];

pub fn ts(selectors: &[[u8; 16]]) -> Vec<u8> {
    let mut b = vec![selectors.len() as u8, 0, 0, 0];
    b.extend(selectors.concat());
    b
}
