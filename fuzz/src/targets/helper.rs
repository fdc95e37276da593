//! Messages between the daemon and its helper, as either of them reads them.

use ironswan_wire::helper::{MAX_DESCRIPTORS, MAX_MESSAGE, MessageError, Reply, Request};

use super::signature;

/// Kinds, lengths and names that mean something.
pub const DICTIONARY: &[&[u8]] = &[
    &[1, 0, 1, b'/'],
    &[6],
    &[7, 1, 30],
    &[8, 0, 6, b'i', b'p', b's', b'e', b'c', b'0'],
    &[0, 15],
    &[0, 16],
    &[0x0f, 0xff],
    &[0x10, 0],
    &[4, 0, 0, 0, 1, 3, 1],
    &[5, 0, 0, 0, 13, 0, 0],
];

/// Runs the bytes as a request, then as a reply.
pub fn run(data: &[u8]) -> u64 {
    let request = match Request::decode(data) {
        Ok(request) => {
            let bytes = request.encode();
            assert!(bytes.len() <= MAX_MESSAGE, "what was read can be sent");
            assert_eq!(bytes, data, "there is one way to write a request");
            assert!(request.descriptors() < MAX_DESCRIPTORS);
            (0, data.first().copied(), "")
        }
        Err(e) => wrong(e),
    };
    let reply = match Reply::decode(data) {
        Ok(reply) => {
            assert_eq!(reply.encode(), data, "there is one way to write a reply");
            assert!(reply.descriptors() <= MAX_DESCRIPTORS);
            (0, data.first().copied(), "")
        }
        Err(e) => wrong(e),
    };
    signature((request, reply))
}

fn wrong(e: MessageError) -> (u8, Option<u8>, &'static str) {
    match e {
        MessageError::Short(e) => (1, None, e.what),
        MessageError::Value(what) => (2, None, what),
        MessageError::Trailing(_) => (3, None, ""),
    }
}
