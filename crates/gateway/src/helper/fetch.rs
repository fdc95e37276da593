//! The fetcher: asks the resolver for names, and servers of the web for revocation lists and
//! responses of OCSP. Its answers come from the network, and libraries that the system's
//! configuration names read them; so it is nobody, with no capability.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use ironswan_io::helper::Channel;
use ironswan_io::helper::client;
use ironswan_io::helper::server::{Outcome, serve};
use ironswan_io::http::{self, Ask};
use ironswan_io::privileges::{self, Account};
use ironswan_io::route::Netlink;
use ironswan_io::{clock, sandbox, signals};
use ironswan_keying::Fetched;
use ironswan_pki::fetch::Place;
use ironswan_wire::fetched::FetchFault;
use ironswan_wire::helper::{Reply, Request};

use super::serve::Refusals;
use crate::driver::names::resolve;

/// Threads that may hang in the resolver for hosts of the web.
const MAX_RESOLVING: usize = 32;

/// Carries out the requests that come by standard input, until the daemon has ended. The process
/// becomes this user, where it may, gives up every capability, and enters the sandbox if it is to.
///
/// # Errors
/// A sentence: standard input is not the socket of a daemon, or a privilege cannot be given up.
pub fn run(uid: u32, gid: u32, sandboxed: bool) -> Result<(), String> {
    let foreign = |_| "this command is started by `ironswan run` alone".to_owned();
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
    let channel = Channel::from_descriptor(input).map_err(foreign)?;
    let account = Some(Account { uid, gid }).filter(|account| privileges::may_become(*account));
    let given_up = signals::ignore_ends()
        .and_then(|()| privileges::dump_no_core())
        .and_then(|()| privileges::become_nobody(account));
    given_up.map_err(|e| format!("giving up privileges failed: {e}"))?;
    if sandboxed {
        // A kernel without seccomp is named by the daemon.
        let _ = sandbox::enter();
    }
    let said = Refusals::of("fetcher");
    serve(&channel, carry_out, |why| said.say(why)).map_err(|e| e.to_string())
}

fn carry_out(request: Request, _: Vec<std::os::fd::OwnedFd>) -> Outcome {
    match request {
        Request::Resolve(name) => {
            let name = std::str::from_utf8(&name).map_err(|_| io::ErrorKind::InvalidInput)?;
            Ok((Reply::Addresses(resolve(name)?), Vec::new()))
        }
        Request::Fetch { uri, ours, milliseconds, request } => {
            // The daemon may have been made to ask this, so the place is judged once more.
            let place = if ours { Place::of_configuration(&uri) } else { Place::of_certificate(&uri) };
            let place = place.map_err(|_| io::ErrorKind::PermissionDenied)?;
            match get(&place, &request, Duration::from_millis(milliseconds.into())) {
                Ok(body) => Ok((Reply::Done { descriptors: 1 }, vec![client::memory_file(&body)?])),
                Err(fault) => Ok((Reply::NotFetched(fault), Vec::new())),
            }
        }
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Asks a server with this request of OCSP, or for a document when that is empty, within a time.
pub(crate) fn get(place: &Place, request: &[u8], time: Duration) -> Fetched {
    let start = clock::now();
    let found = addresses(place.host(), time)?;
    // Asked for each time: interfaces get addresses while the process runs.
    let own = if place.is_ours() { Vec::new() } else { own_addresses()? };
    let addresses = askable(place, &found, &own);
    if addresses.is_empty() && !found.is_empty() {
        return Err(FetchFault::NotAllowed);
    }
    let post = (!request.is_empty()).then_some(("application/ocsp-request", request));
    let ask = Ask { authority: place.authority(), target: &place.target(), post };
    http::ask(&addresses, &ask, time.saturating_sub(clock::now().duration_since(start)))
}

/// Those of the addresses of a place that may be asked. A place that a certificate names must not
/// be on this machine, of which `own` are all addresses.
fn askable(place: &Place, found: &[IpAddr], own: &[IpAddr]) -> Vec<SocketAddr> {
    let may = |addr: &&IpAddr| place.allows(**addr) && !own.contains(&addr.to_canonical());
    found.iter().filter(may).map(|addr| (*addr, place.port()).into()).collect()
}

/// Addresses of all interfaces. Without them no place of a certificate is asked.
fn own_addresses() -> Result<Vec<IpAddr>, FetchFault> {
    let all = Netlink::open().and_then(|mut netlink| netlink.addresses());
    let all = all.map_err(|e| FetchFault::NotAsked(e.to_string()))?;
    Ok(all.into_iter().map(|address| address.ip).collect())
}

/// One thread in the resolver.
struct Resolving;

impl Drop for Resolving {
    fn drop(&mut self) {
        RESOLVING.fetch_sub(1, Ordering::AcqRel);
    }
}

static RESOLVING: AtomicUsize = AtomicUsize::new(0);

/// The addresses of a host. The resolver has no limit of its own for its time, so a thread of its
/// own asks it, and hangs for as long as the resolver does.
fn addresses(host: &str, time: Duration) -> Result<Vec<IpAddr>, FetchFault> {
    if let Ok(addr) = host.parse() {
        return Ok(vec![addr]);
    }
    if RESOLVING.fetch_add(1, Ordering::AcqRel) >= MAX_RESOLVING {
        RESOLVING.fetch_sub(1, Ordering::AcqRel);
        return Err(FetchFault::NotAsked(format!("{MAX_RESOLVING} names are looked up already")));
    }
    let (resolving, name, (tx, rx)) = (Resolving, host.to_owned(), mpsc::channel());
    let thread = std::thread::Builder::new().name("resolver".into()).spawn(move || {
        let _resolving = resolving;
        let _ = tx.send(resolve(&name));
    });
    thread.map_err(|e| FetchFault::NotAsked(e.to_string()))?;
    match rx.recv_timeout(time) {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(e)) => Err(FetchFault::NoAddress(e.to_string())),
        Err(_) => Err(FetchFault::NoAddress("the resolver is silent".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn ask(request: Request) -> Outcome {
        carry_out(request, Vec::new())
    }

    fn fetch(uri: &str, ours: bool) -> Outcome {
        ask(Request::Fetch { uri: uri.into(), ours, milliseconds: 2000, request: Vec::new() })
    }

    #[test]
    fn names_are_looked_up_and_nothing_else_of_the_helpers_is_done() {
        let (reply, _) = ask(Request::Resolve(b"127.0.0.1".to_vec())).unwrap();
        assert_eq!(reply, Reply::Addresses(vec!["127.0.0.1".parse().unwrap()]));
        assert!(ask(Request::Resolve(b"no such name".to_vec())).is_err());
        assert!(ask(Request::Resolve(b"\xff".to_vec())).is_err());
        for request in [Request::FindNft, Request::Open(b"/etc/passwd".to_vec()), Request::MakeCounter] {
            assert_eq!(ask(request).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn this_machine_is_asked_for_the_configuration_alone_and_files_are_never_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nlist").unwrap();
        });
        let uri = format!("http://127.0.0.1:{port}/a.crl");
        for (uri, ours) in
            [("file:///etc/passwd", true), ("file:///etc/passwd", false), (uri.as_str(), false)]
        {
            assert_eq!(fetch(uri, ours).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{uri}");
        }
        let (reply, mut body) = fetch(&uri, true).unwrap();
        assert_eq!(reply, Reply::Done { descriptors: 1 });
        assert_eq!(client::contents(body.pop().unwrap(), 100).unwrap(), b"list");
        server.join().unwrap();
    }

    #[test]
    fn no_address_of_an_interface_is_asked_for_a_certificate() {
        assert!(own_addresses().unwrap().contains(&[127, 0, 0, 1].into()));
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = [ip("10.0.0.1"), ip("2001:db8::1")];
        let found = [ip("10.0.0.1"), ip("::ffff:10.0.0.1"), ip("2001:db8::1"), ip("10.0.0.2")];
        let certificate = Place::of_certificate(b"http://ca.example:81/").unwrap();
        assert_eq!(askable(&certificate, &found, &own), ["10.0.0.2:81".parse().unwrap()]);
        let ours = Place::of_configuration(b"http://ca.example:81/").unwrap();
        assert_eq!(askable(&ours, &found, &[]).len(), found.len());
        // Those that this machine has, asked for whole.
        for own in own_addresses().unwrap() {
            let host = if own.is_ipv6() { format!("[{own}]") } else { own.to_string() };
            let Ok(place) = Place::of_certificate(format!("http://{host}/").as_bytes()) else { continue };
            assert_eq!(get(&place, &[], Duration::from_millis(500)), Err(FetchFault::NotAllowed), "{own}");
        }
    }

    #[test]
    fn a_name_that_leads_to_this_machine_is_not_asked_for_a_certificate() {
        // A name of this machine that does not say so: its resolver answers 127.0.1.1 or the like.
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_ascii_lowercase();
        let Ok(place) = Place::of_certificate(format!("http://{name}/").as_bytes()) else { return };
        let found = resolve(place.host()).unwrap_or_default();
        let local = !found.is_empty() && askable(&place, &found, &own_addresses().unwrap()).is_empty();
        let answer = get(&place, &[], Duration::from_millis(500));
        assert_eq!(matches!(answer, Err(FetchFault::NotAllowed)), local, "{found:?} {answer:?}");
    }
}
