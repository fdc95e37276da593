//! Just enough of VICI to see whether a daemon is there: one `version` request. Everything else is
//! asked through the programs that people use (`ironswan`, `swanctl`).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const CMD_REQUEST: u8 = 0;
const CMD_RESPONSE: u8 = 1;

/// True when a daemon on `socket` answers a `version` request.
pub(crate) fn answers(socket: &Path) -> bool {
    version(socket).is_ok_and(|answered| answered)
}

fn version(socket: &Path) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    // Length of what follows in network order, packet type, length of the command's name, the name.
    let name = b"version";
    let mut packet = vec![0, 0, 0, 2 + name.len() as u8, CMD_REQUEST, name.len() as u8];
    packet.extend_from_slice(name);
    stream.write_all(&packet)?;
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    // To the end, or the daemon sees a reset connection and logs an error.
    let rest =
        u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]])).saturating_sub(1).min(65_536);
    std::io::copy(&mut stream.take(rest), &mut std::io::sink())?;
    Ok(head[4] == CMD_RESPONSE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn serve(answer: &'static [u8], name: &str) -> bool {
        let path = std::env::temp_dir().join(format!("ironlab-vici-{}-{name}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("bind");
        let server = std::thread::spawn(move || {
            let (mut s, _) = listener.accept().expect("a client");
            let mut request = [0; 13];
            s.read_exact(&mut request).expect("a request");
            s.write_all(answer).expect("answer");
            request
        });
        let answered = answers(&path);
        assert_eq!(&server.join().expect("server"), b"\0\0\0\x09\0\x07version");
        std::fs::remove_file(&path).expect("remove");
        answered
    }

    #[test]
    fn a_response_counts_and_anything_else_does_not() {
        assert!(serve(b"\0\0\0\x01\x01", "response"));
        assert!(!serve(b"\0\0\0\x01\x02", "unknown"));
        assert!(!serve(b"\0\0", "short"));
        assert!(!answers(Path::new("/nonexistent/socket")));
    }
}
