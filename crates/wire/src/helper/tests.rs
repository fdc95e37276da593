use super::request::NFT_RUNS;
use super::*;
use crate::fetched::{FetchFault, MAX_SENT, MAX_URI};

fn requests() -> Vec<Request> {
    let path = || b"/etc/ironswan/swanctl.conf".to_vec();
    let mut all = vec![
        Request::Open(path()),
        Request::Canonical(path()),
        Request::Exists(path()),
        Request::List(vec![b'x'; MAX_PATH]),
        Request::FindNft,
        Request::OpenTun(b"ipsec0".to_vec()),
        Request::SetDevice { name: vec![b'a'; MAX_NAME], setting: DeviceSetting::ReversePath },
        Request::SetDevice { name: b"ipsec0".to_vec(), setting: DeviceSetting::ValidMark },
        Request::SetThreaded { name: b"wan0".to_vec(), index: 7, address: vec![0; 6], on: true },
    ];
    let address = |text: &str| text.parse().unwrap();
    all.extend([
        Request::MayLoop,
        Request::MakeCounter,
        Request::ReadCounter,
        Request::CounterOf(7),
        Request::LoadIngress,
        Request::CountTcx(2),
        Request::MakeXdpMaps(64),
        Request::LoadXdp { mac: [2, 0, 0, 0, 0, 1], frame: 1792, port: 4500, raw_esp: true },
        Request::SetXdpSocket(3),
        Request::SetXdpAddress { address: address("192.0.2.1"), ours: true },
        Request::SetXdpAddress { address: address("2001:db8::1"), ours: false },
        Request::AttachXdp { index: 2, generic: true },
        Request::Listen { path: path(), group: None },
        Request::Listen { path: path(), group: Some(0) },
        Request::Listen { path: path(), group: Some(1000) },
        Request::Unlisten(path()),
        Request::QcdSecret(path()),
        Request::BindUdp { ipv6: true, port: 500 },
        Request::SetNice { thread: 4711, nice: -10 },
        Request::SetNice { thread: 1, nice: 19 },
        Request::Resolve(b"gateway.example".to_vec()),
        Request::Fetch {
            uri: vec![b'u'; MAX_URI],
            ours: false,
            milliseconds: 5000,
            request: vec![0; MAX_SENT],
        },
        Request::Fetch {
            uri: b"http://ca.example/a.crl".to_vec(),
            ours: true,
            milliseconds: 1,
            request: Vec::new(),
        },
    ]);
    all.extend(NFT_RUNS.map(|run| Request::RunNft { run, seconds: 30 }));
    all
}

fn replies() -> Vec<Reply> {
    let unknown = |started| ProgramEnd::Unknown { started, reason: "no memory".into() };
    let ends =
        [ProgramEnd::Success, ProgramEnd::Failure, ProgramEnd::TimedOut, unknown(true), unknown(false)];
    let mut all = vec![
        Reply::Done { descriptors: 0 },
        Reply::Done { descriptors: 1 },
        Reply::Flag { yes: true, descriptor: false },
        Reply::Flag { yes: false, descriptor: true },
        Reply::Path(Vec::new()),
        Reply::Path(b"/usr/sbin/nft".to_vec()),
        Reply::Failed { errno: 2, reason: String::new() },
        Reply::Failed { errno: 0, reason: "outside of the folders".into() },
        Reply::NotRegular,
        Reply::Done { descriptors: 2 },
        Reply::Addresses(Vec::new()),
        Reply::Addresses(vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]),
        Reply::Count { packets: 7, bytes: u64::MAX },
    ];
    let faults = [
        FetchFault::NoAddress("unknown".into()),
        FetchFault::NotAllowed,
        FetchFault::Unreachable("refused".into()),
        FetchFault::Silent { milliseconds: 5000 },
        FetchFault::Status(404),
        FetchFault::TooLong,
        FetchFault::NotHttp,
        FetchFault::Cut,
        FetchFault::NotAsked(String::new()),
    ];
    all.extend(faults.map(Reply::NotFetched));
    all.extend(ends.map(|end| Reply::Ended { pid: 4711, end }));
    all
}

#[test]
fn every_message_comes_back_as_it_was_sent() {
    for request in requests() {
        let bytes = request.encode();
        assert!(bytes.len() <= MAX_MESSAGE);
        assert_eq!(Request::decode(&bytes), Ok(request));
    }
    for reply in replies() {
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}

#[test]
fn no_part_of_a_message_and_nothing_longer_is_a_message() {
    let requests = requests().into_iter().map(|m| m.encode());
    for bytes in requests {
        for end in 0..bytes.len() {
            assert!(Request::decode(&bytes[..end]).is_err(), "{:?}", &bytes[..end]);
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Request::decode(&longer), Err(MessageError::Trailing(1)));
    }
    for bytes in replies().into_iter().map(|m| m.encode()) {
        for end in 0..bytes.len() {
            assert!(Reply::decode(&bytes[..end]).is_err(), "{:?}", &bytes[..end]);
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Reply::decode(&longer), Err(MessageError::Trailing(1)));
    }
}

#[test]
fn numbers_and_values_outside_of_the_lists_are_refused() {
    let requests = [
        &[0][..],
        &[200],
        // A run of nft that is not in the list.
        &[7, 7, 30],
        // An empty path, one with a 0, and a name that is too long.
        &[1, 0, 0],
        &[1, 0, 2, b'a', 0],
        &[&[8, 0, 16][..], &[b'x'; 16]].concat(),
        // A nice value that no thread can have.
        &[25, 0, 0, 0, 1, 20],
        // A flag that is neither 0 nor 1, and an address that is too long.
        &[10, 0, 1, b'x', 0, 0, 0, 1, 0, 0, 2],
        &[&[10, 0, 1, b'x', 0, 0, 0, 1, 0, 33][..], &[0; 34]].concat(),
        // A request of OCSP that is too long.
        &[&[27, 0, 1, b'u', 0, 0, 1, 4, 1][..], &[0; 1025]].concat(),
    ];
    for bytes in requests {
        assert!(matches!(Request::decode(bytes), Err(MessageError::Value(_))), "{bytes:?}");
    }
    let long = MAX_PATH as u16 + 1;
    let long = [&[1][..], &long.to_be_bytes(), &vec![b'x'; MAX_PATH + 1]].concat();
    assert_eq!(Request::decode(&long), Err(MessageError::Value("path")));
    for bytes in [
        &[0][..],
        &[99],
        &[1, 3],
        &[8, 65],
        &[8, 1, 5],
        &[4, 0, 0, 0, 1, 4],
        &[5, 0, 0, 0, 1, 0, 1, 0xff],
        // A fault that is not in the list, a number and words that belong to none.
        &[9, 9, 0, 0, 0, 0, 0, 0],
        &[9, 1, 0, 0, 0, 1, 0, 0],
        &[9, 1, 0, 0, 0, 0, 0, 1, b'x'],
    ] {
        assert!(matches!(Reply::decode(bytes), Err(MessageError::Value(_))), "{bytes:?}");
    }
}

#[test]
fn a_reason_is_cut_between_characters() {
    let reply = Reply::Failed { errno: 0, reason: "\u{e4}".repeat(MAX_REASON) };
    let Ok(Reply::Failed { reason, .. }) = Reply::decode(&reply.encode()) else { panic!("no reply") };
    assert_eq!(reason, "\u{e4}".repeat(MAX_REASON / 2));
}

#[test]
fn descriptors_are_counted() {
    assert_eq!(Request::RunNft { run: NftRun::Table, seconds: 1 }.descriptors(), 3);
    assert_eq!(Request::FindNft.descriptors(), 0);
    assert_eq!(Reply::Done { descriptors: 1 }.descriptors(), 1);
    assert_eq!(Reply::NotRegular.descriptors(), 0);
    assert!(requests().iter().all(|r| r.descriptors() < MAX_DESCRIPTORS));
}
