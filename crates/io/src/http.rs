//! One exchange with a server of the web (HTTP/1.1, RFC 9112): a GET, or a POST of a few bytes.
//!
//! ```text
//! connect ─▶ request, "Connection: close" ─▶ header ─▶ body: chunks, a length, or until the end
//! ```
//! The server is a stranger. One deadline covers everything from the first connection to the last
//! byte, so a server that sends a byte now and then gains nothing. Header and body have limits.
//! Nothing but status 200 is an answer: nobody is followed to another place. Not here: which hosts
//! may be asked, and names.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ironswan_wire::fetched::{FetchFault, MAX_BODY};

use crate::clock;

/// Longest header of an answer in bytes, those of preliminary answers (1xx) together with it.
const MAX_HEADER: usize = 16 << 10;
/// Most fields of a header.
const MAX_FIELDS: usize = 100;
/// Longest line that says the length of a chunk, in bytes.
const MAX_CHUNK_LINE: usize = 256;

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Value of `Host`.
    pub authority: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Media type and bytes to POST. `None`: GET.
    pub post: Option<(&'a str, &'a [u8])>,
}

/// Asks the server at the first of these addresses that takes a connection, and returns the body of
/// its answer.
///
/// # Errors
/// The reason why there is none.
pub fn ask(addresses: &[SocketAddr], ask: &Ask<'_>, time: Duration) -> Result<Vec<u8>, FetchFault> {
    let deadline = Deadline { at: clock::now() + time, time };
    let mut stream = connect(addresses, deadline)?;
    let (method, fields, body) = match ask.post {
        Some((kind, body)) => {
            ("POST", format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len()), body)
        }
        None => ("GET", String::new(), &[][..]),
    };
    let Ask { authority, target, .. } = ask;
    let header = format!(
        "{method} {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: ironswan\r\n{fields}Connection: close\r\n\r\n"
    );
    let lost = |e| deadline.fault(&e);
    stream.set_write_timeout(Some(deadline.left()?)).map_err(lost)?;
    stream.write_all(&[header.as_bytes(), body].concat()).map_err(lost)?;
    Answer { stream, buf: Vec::new(), deadline }.read()
}

/// Time at which the exchange has to be over.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    /// The whole time.
    time: Duration,
}

impl Deadline {
    /// Time that is left, which is not zero.
    fn left(self) -> Result<Duration, FetchFault> {
        let left = self.at.saturating_duration_since(clock::now());
        if left.is_zero() { Err(self.over()) } else { Ok(left) }
    }

    fn over(self) -> FetchFault {
        FetchFault::Silent { milliseconds: u32::try_from(self.time.as_millis()).unwrap_or(u32::MAX) }
    }

    /// The fault for an error of a connection that stands.
    fn fault(self, e: &io::Error) -> FetchFault {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.over(),
            _ => FetchFault::Cut,
        }
    }
}

fn connect(addresses: &[SocketAddr], deadline: Deadline) -> Result<TcpStream, FetchFault> {
    let mut why = FetchFault::NoAddress("none".to_owned());
    for (n, address) in addresses.iter().enumerate() {
        // Each address gets an equal part of the time that is left.
        let time = deadline.left()? / u32::try_from(addresses.len() - n).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, time.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                let words = format!("{} does not answer", address.ip());
                why = FetchFault::Unreachable(words);
            }
            Err(e) => why = FetchFault::Unreachable(e.to_string()),
        }
    }
    Err(why)
}

/// The answer of a server, as far as it has come.
struct Answer {
    stream: TcpStream,
    /// Bytes that have come and are not taken yet.
    buf: Vec<u8>,
    deadline: Deadline,
}

/// How the end of a body is known (RFC 9112 section 6.3).
enum Length {
    Chunks,
    Bytes(usize),
    UntilEnd,
}

impl Answer {
    /// Receives more bytes; false when the server has sent all.
    fn more(&mut self) -> Result<bool, FetchFault> {
        let lost = |e: io::Error| self.deadline.fault(&e);
        self.stream.set_read_timeout(Some(self.deadline.left()?)).map_err(lost)?;
        let mut part = [0; 16 << 10];
        match self.stream.read(&mut part) {
            Ok(0) => Ok(false),
            Ok(n) => {
                self.buf.extend_from_slice(&part[..n]);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(self.deadline.fault(&e)),
        }
    }

    /// Receives until so many bytes are there.
    fn fill(&mut self, bytes: usize) -> Result<(), FetchFault> {
        while self.buf.len() < bytes {
            if !self.more()? {
                return Err(FetchFault::Cut);
            }
        }
        Ok(())
    }

    fn read(mut self) -> Result<Vec<u8>, FetchFault> {
        match self.header()? {
            Length::Bytes(len) if len > MAX_BODY => Err(FetchFault::TooLong),
            Length::Bytes(len) => {
                self.fill(len)?;
                self.buf.truncate(len);
                Ok(self.buf)
            }
            Length::UntilEnd => {
                while self.more()? {
                    if self.buf.len() > MAX_BODY {
                        return Err(FetchFault::TooLong);
                    }
                }
                Ok(self.buf)
            }
            Length::Chunks => self.chunks(),
        }
    }

    /// Takes the header, and those of preliminary answers before it.
    fn header(&mut self) -> Result<Length, FetchFault> {
        let mut taken = 0;
        loop {
            let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
            let mut answer = httparse::Response::new(&mut fields);
            match answer.parse(&self.buf) {
                Ok(httparse::Status::Complete(len)) => {
                    if taken + len > MAX_HEADER {
                        return Err(FetchFault::TooLong);
                    }
                    let status = answer.code.unwrap_or_default();
                    if status == 200 {
                        let length = length(answer.headers)?;
                        self.buf.drain(..len);
                        return Ok(length);
                    }
                    if !(100..200).contains(&status) || status == 101 {
                        return Err(FetchFault::Status(status));
                    }
                    taken += len;
                    self.buf.drain(..len);
                }
                Ok(httparse::Status::Partial) => {
                    if taken + self.buf.len() > MAX_HEADER {
                        return Err(FetchFault::TooLong);
                    }
                    if !self.more()? {
                        return Err(FetchFault::Cut);
                    }
                }
                Err(httparse::Error::TooManyHeaders) => return Err(FetchFault::TooLong),
                Err(_) => return Err(FetchFault::NotHttp),
            }
        }
    }

    /// Takes a body in chunks (RFC 9112 section 7.1), without what may follow it.
    fn chunks(mut self) -> Result<Vec<u8>, FetchFault> {
        let mut body = Vec::new();
        loop {
            let (line, size) = match httparse::parse_chunk_size(&self.buf) {
                Ok(httparse::Status::Complete(parsed)) => parsed,
                Ok(httparse::Status::Partial) if self.buf.len() <= MAX_CHUNK_LINE => {
                    self.fill(self.buf.len() + 1)?;
                    continue;
                }
                _ => return Err(FetchFault::NotHttp),
            };
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if size == 0 {
                return Ok(body);
            }
            if size > MAX_BODY - body.len() {
                return Err(FetchFault::TooLong);
            }
            self.fill(line + size + 2)?;
            if self.buf[line + size..line + size + 2] != *b"\r\n" {
                return Err(FetchFault::NotHttp);
            }
            body.extend_from_slice(&self.buf[line..line + size]);
            self.buf.drain(..line + size + 2);
        }
    }
}

/// "If a message is received with both a Transfer-Encoding and a Content-Length header field, the
/// Transfer-Encoding overrides the Content-Length" (RFC 9112 section 6.3).
fn length(fields: &[httparse::Header<'_>]) -> Result<Length, FetchFault> {
    let named = |name: &str| {
        let of_name = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        of_name.map(|field| field.value.trim_ascii()).collect::<Vec<_>>()
    };
    match named("transfer-encoding")[..] {
        [] => {}
        [only] if only.eq_ignore_ascii_case(b"chunked") => return Ok(Length::Chunks),
        // A coding that we have not asked for.
        _ => return Err(FetchFault::NotHttp),
    }
    let lengths = named("content-length");
    let Some(first) = lengths.first() else { return Ok(Length::UntilEnd) };
    let digits = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    if !digits || lengths.iter().any(|other| other != first) {
        return Err(FetchFault::NotHttp);
    }
    let number = std::str::from_utf8(first).ok().and_then(|text| text.parse().ok());
    Ok(Length::Bytes(number.unwrap_or(usize::MAX)))
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
