use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;

/// A server that reads one request and gives these parts as its answer, with a pause after each.
/// Ends the connection after them, or keeps it open.
fn server(parts: Vec<Vec<u8>>, pause: Duration, ends: bool) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut part = [0; 4096];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
                _ => return request,
            }
        }
        for part in parts {
            if stream.write_all(&part).is_err() {
                return request;
            }
            std::thread::sleep(pause);
        }
        if !ends {
            // Returns when the client closes.
            while stream.read(&mut part).is_ok_and(|n| n > 0) {}
        }
        request
    });
    (address, thread)
}

const TIME: Duration = Duration::from_millis(500);
const GET: Ask<'static> = Ask { authority: "ca.example:80", target: "/a?b", post: None };

fn answer(text: &[u8]) -> Result<Vec<u8>, FetchFault> {
    let (address, thread) = server(vec![text.to_vec()], Duration::ZERO, true);
    let answer = ask(&[address], &GET, TIME);
    thread.join().unwrap();
    answer
}

#[test]
fn a_body_comes_by_length_in_chunks_or_until_the_end() {
    for text in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more"[..],
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        assert_eq!(answer(text), Ok(b"hello".to_vec()), "{}", text.escape_ascii());
    }
    // Byte by byte.
    let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let parts = text.iter().map(|byte| vec![*byte]).collect();
    let (address, _) = server(parts, Duration::from_millis(1), true);
    assert_eq!(ask(&[address], &GET, TIME), Ok(b"hello".to_vec()));
}

#[test]
fn requests_say_what_is_wanted_and_of_whom() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (address, thread) = server(vec![text.to_vec()], Duration::ZERO, true);
    assert_eq!(ask(&[address], &GET, TIME), Ok(Vec::new()));
    let request = String::from_utf8(thread.join().unwrap()).unwrap();
    assert!(request.starts_with("GET /a?b HTTP/1.1\r\nHost: ca.example:80\r\n"), "{request}");
    let (address, thread) = server(vec![text.to_vec()], Duration::ZERO, true);
    let post = Ask { post: Some(("application/ocsp-request", b"body")), ..GET };
    // The first address takes no connection.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(ask(&[closed, address], &post, TIME), Ok(Vec::new()));
    let request = String::from_utf8(thread.join().unwrap()).unwrap();
    assert!(request.starts_with("POST /a?b HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("Content-Type: application/ocsp-request\r\nContent-Length: 4\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nbody") || request.ends_with("\r\n\r\n"), "{request}");
}

#[test]
fn an_answer_that_is_none_says_why() {
    let long = [&b"HTTP/1.1 200 OK\r\nX: "[..], &vec![b'x'; MAX_HEADER], b"\r\n\r\n"].concat();
    let fields = [&b"HTTP/1.1 200 OK\r\n"[..], &b"a: b\r\n".repeat(MAX_FIELDS + 1), b"\r\n"].concat();
    let early = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000);
    let body = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![0; MAX_BODY + 1]].concat();
    let chunk = [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &[b'1'; 300]].concat();
    let coded = |rest: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {rest}").into_bytes();
    for (text, why) in [
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n".to_vec(), FetchFault::Status(302)),
        (b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec(), FetchFault::Status(404)),
        (b"HTTP/1.1 101 Switching\r\n\r\n".to_vec(), FetchFault::Status(101)),
        (b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), FetchFault::Status(204)),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), FetchFault::NotHttp),
        (b"".to_vec(), FetchFault::Cut),
        (b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(), FetchFault::Cut),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello".to_vec(), FetchFault::Cut),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n".to_vec(), FetchFault::TooLong),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_vec(), FetchFault::NotHttp),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx".to_vec(),
            FetchFault::NotHttp,
        ),
        (coded("gzip, chunked\r\n\r\n0\r\n\r\n"), FetchFault::NotHttp),
        (coded("chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n"), FetchFault::NotHttp),
        (coded("chunked\r\n\r\nffffffffffffffff\r\n"), FetchFault::TooLong),
        (coded("chunked\r\n\r\n5\r\nhello\r\n"), FetchFault::Cut),
        (chunk, FetchFault::NotHttp),
        (long, FetchFault::TooLong),
        (fields, FetchFault::TooLong),
        (early, FetchFault::TooLong),
        (body, FetchFault::TooLong),
    ] {
        let begin = text[..text.len().min(80)].escape_ascii().to_string();
        assert_eq!(answer(&text), Err(why), "{begin}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(matches!(ask(&[closed], &GET, TIME), Err(FetchFault::Unreachable(_))));
    assert!(matches!(ask(&[], &GET, TIME), Err(FetchFault::NoAddress(_))));
}

#[test]
fn whatever_a_server_does_the_time_is_one_for_everything() {
    let header = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    let drip: Vec<Vec<u8>> = [header.clone()].into_iter().chain((0..1_000).map(|_| vec![0])).collect();
    let slow = Duration::from_millis(50);
    for (parts, pause, ends) in [
        // Takes the connection and says nothing; begins and says no more; sends a byte now and
        // then.
        (Vec::new(), slow, false),
        (vec![header], slow, false),
        (drip, slow, true),
        ((0..1_000).map(|_| b"H".to_vec()).collect(), slow, true),
    ] {
        let (address, _thread) = server(parts.clone(), pause, ends);
        let start = clock::now();
        let answer = ask(&[address], &GET, TIME);
        let took = clock::now().duration_since(start);
        let drips_no_http = parts.first().is_some_and(|part| part == b"H");
        if !drips_no_http {
            assert_eq!(answer, Err(FetchFault::Silent { milliseconds: 500 }));
            assert!(took >= TIME, "{took:?}");
        }
        assert!(answer.is_err() && took < TIME * 4, "{took:?}");
    }
}

#[test]
fn an_endless_answer_ends_at_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let mut sent = 0_u64;
        while stream.write_all(&[b'x'; 64 << 10]).is_ok() {
            sent += 64 << 10;
        }
        sent
    });
    assert_eq!(ask(&[address], &GET, Duration::from_secs(20)), Err(FetchFault::TooLong));
    let sent = thread.join().unwrap();
    assert!(sent < 16 << 20, "{sent} bytes were sent");
}
