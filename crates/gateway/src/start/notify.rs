//! Tells the service manager how it stands (sd_notify(3)): one datagram to the socket that
//! `NOTIFY_SOCKET` names. A service manager that does not read is not waited for.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends one state, such as `READY=1`. Without a service manager nothing happens; that it cannot be
/// reached is no reason to stop.
pub fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(e) = send(path.as_encoded_bytes(), state) {
        tracing::warn!("cannot tell the service manager {state}: {e}");
    }
}

fn send(path: &[u8], state: &str) -> std::io::Result<()> {
    let addr = match path.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(std::str::from_utf8(path).map_err(std::io::Error::other)?)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &addr).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_testkit::scratch::Scratch;

    #[test]
    fn the_state_arrives_by_path_and_by_abstract_name() {
        let dir = Scratch::new();
        let path = dir.path().join("n");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("ironswan-notify-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(path.as_os_str().as_encoded_bytes(), "READY=1").unwrap();
        send(format!("@{name}").as_bytes(), "STOPPING=1").unwrap();
        let mut buf = [0; 32];
        let n = by_path.recv(&mut buf).unwrap();
        assert_eq!(&buf[..n], b"READY=1");
        let n = by_name.recv(&mut buf).unwrap();
        assert_eq!(&buf[..n], b"STOPPING=1");
        assert!(send(b"/nonexistent/x", "READY=1").is_err());
        // Nobody reads any more, and the queue is full at some time.
        let full = (0..10_000).find_map(|_| send(path.as_os_str().as_encoded_bytes(), "READY=1").err());
        assert_eq!(full.map(|e| e.kind()), Some(std::io::ErrorKind::WouldBlock));
    }
}
