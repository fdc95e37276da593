//! The fetcher: asks the resolver for names. Its answers come from the network, and libraries that
//! the system's configuration names read them; so it is nobody, with no capability.

use std::io;
use std::os::fd::AsFd;

use ironswan_io::helper::Channel;
use ironswan_io::helper::server::{Outcome, serve};
use ironswan_io::privileges::{self, Account};
use ironswan_io::{sandbox, signals};
use ironswan_wire::helper::{Reply, Request};

use super::serve::Refusals;
use crate::driver::names::resolve;

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
    let Request::Resolve(name) = request else { return Err(io::ErrorKind::PermissionDenied.into()) };
    let name = std::str::from_utf8(&name).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok((Reply::Addresses(resolve(name)?), Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_and_nothing_else_is_done() {
        let ask = |request| carry_out(request, Vec::new());
        let (reply, _) = ask(Request::Resolve(b"127.0.0.1".to_vec())).unwrap();
        assert_eq!(reply, Reply::Addresses(vec!["127.0.0.1".parse().unwrap()]));
        assert!(ask(Request::Resolve(b"no such name".to_vec())).is_err());
        assert!(ask(Request::Resolve(b"\xff".to_vec())).is_err());
        for request in [Request::FindNft, Request::Open(b"/etc/passwd".to_vec()), Request::MakeCounter] {
            assert_eq!(ask(request).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
