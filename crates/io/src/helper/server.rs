//! The helper's end: takes requests, and answers each on a thread of its own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ironswan_wire::helper::{Reply, Request};

use super::Channel;

/// Limits the requests that are under way at a time, of fetches and of all others by themselves: no
/// name waits for a server of the web. The daemon has less than ten threads that ask for anything
/// but fetches, and a few more may hang with a file system.
const MAX_UNDER_WAY: usize = 64;

/// The outcome of a request: a reply and the descriptors that belong to it.
pub type Outcome = io::Result<(Reply, Vec<OwnedFd>)>;

/// One of the requests that are under way.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers requests until the daemon has ended. `carry_out` gets a request and as many descriptors
/// as belong to it. `refused` hears of messages that are none: they are answered with an error.
///
/// # Errors
/// The socket fails.
pub fn serve(
    channel: &Channel,
    carry_out: impl Fn(Request, Vec<OwnedFd>) -> Outcome + Send + Sync + 'static,
    refused: impl Fn(&str),
) -> io::Result<()> {
    let carry_out = Arc::new(carry_out);
    let [fetches, others] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    loop {
        let message = match channel.receive() {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                refused("a message was longer than any may be");
                continue;
            }
            Err(e) => return Err(e),
        };
        let mut descriptors = message.descriptors.into_iter();
        let Some(reply) = descriptors.next().and_then(|fd| Channel::from_descriptor(fd).ok()) else {
            refused("a message came without a socket for its reply");
            continue;
        };
        let descriptors: Vec<OwnedFd> = descriptors.collect();
        let request = match Request::decode(&message.bytes) {
            Ok(request) if request.descriptors() == descriptors.len() => request,
            Ok(_) => {
                refused("a request came with other descriptors than belong to it");
                answer(&reply, Err(io::ErrorKind::InvalidInput.into()));
                continue;
            }
            Err(e) => {
                refused(&e.to_string());
                answer(&reply, Err(io::ErrorKind::InvalidInput.into()));
                continue;
            }
        };
        let under_way = if matches!(request, Request::Fetch { .. }) { &fetches } else { &others };
        if under_way.fetch_add(1, Ordering::AcqRel) >= MAX_UNDER_WAY {
            under_way.fetch_sub(1, Ordering::AcqRel);
            answer(&reply, Err(io::Error::from_raw_os_error(libc::EAGAIN)));
            continue;
        }
        let (place, carry_out) = (Place(under_way.clone()), carry_out.clone());
        let spawned = std::thread::Builder::new().name("helper".into()).spawn(move || {
            let _place = place;
            answer(&reply, carry_out(request, descriptors));
        });
        // The reply socket is closed with the closure: the daemon sees that.
        if let Err(e) = spawned {
            refused(&format!("no thread could be started: {e}"));
        }
    }
}

/// Sends the reply. The daemon may have ended, or may have given up waiting.
fn answer(channel: &Channel, outcome: Outcome) {
    let (reply, descriptors) = outcome.unwrap_or_else(|e| (failed(&e), Vec::new()));
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let _ = channel.send(&reply.encode(), &borrowed);
}

/// The reply for an error: the kernel's number, or its kind and the words.
fn failed(e: &io::Error) -> Reply {
    if let Some(errno) = e.raw_os_error() {
        return Reply::Failed { errno: errno.unsigned_abs(), reason: String::new() };
    }
    let errno = match e.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        _ => 0,
    };
    Reply::Failed { errno: errno.unsigned_abs(), reason: e.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::client;
    use std::sync::Mutex;

    /// A helper in a thread, and what it refused.
    fn helper(
        carry_out: impl Fn(Request, Vec<OwnedFd>) -> Outcome + Send + Sync + 'static,
    ) -> (Channel, Arc<Mutex<Vec<String>>>) {
        let (ours, theirs) = Channel::pair().unwrap();
        let refusals = Arc::<Mutex<Vec<String>>>::default();
        let said = refusals.clone();
        std::thread::spawn(move || serve(&theirs, carry_out, |why| said.lock().unwrap().push(why.into())));
        (ours, refusals)
    }

    /// Sends these bytes with a reply socket and this many other descriptors.
    fn ask(to: &Channel, bytes: &[u8], more: usize) -> Reply {
        let (ours, theirs) = Channel::pair().unwrap();
        let file = client::memory_file(b"").unwrap();
        let mut all = vec![theirs.as_fd()];
        all.extend(std::iter::repeat_n(file.as_fd(), more));
        to.send(bytes, &all).unwrap();
        drop(theirs);
        Reply::decode(&ours.receive().unwrap().unwrap().bytes).unwrap()
    }

    #[test]
    fn bytes_that_are_no_request_are_refused_and_the_next_request_is_answered() {
        let (to, refusals) = helper(|request, _| {
            assert_eq!(request, Request::FindNft);
            Ok((Reply::Done { descriptors: 0 }, Vec::new()))
        });
        let invalid = |reply| matches!(reply, Reply::Failed { errno, .. } if errno == libc::EINVAL as u32);
        assert!(invalid(ask(&to, &[99], 0)));
        assert!(invalid(ask(&to, &[6, 6], 0)));
        assert!(invalid(ask(&to, &[7, 1, 30], 2)), "a script without all of its three descriptors");
        assert!(invalid(ask(&to, &Request::FindNft.encode(), 1)), "a descriptor too many");
        // Without a socket for the reply nobody can be answered.
        to.send(&Request::FindNft.encode(), &[]).unwrap();
        let file = client::memory_file(b"").unwrap();
        to.send(&Request::FindNft.encode(), &[file.as_fd()]).unwrap();
        assert_eq!(ask(&to, &Request::FindNft.encode(), 0), Reply::Done { descriptors: 0 });
        assert_eq!(refusals.lock().unwrap().len(), 6, "{refusals:?}");
    }

    #[test]
    fn a_request_that_hangs_holds_up_no_other_and_their_number_is_limited() {
        let (to, _) = helper(|request, _| {
            if matches!(request, Request::List(_)) {
                std::thread::sleep(std::time::Duration::from_secs(3600));
            }
            Ok((Reply::Done { descriptors: 0 }, Vec::new()))
        });
        let mut waiting = Vec::new();
        for _ in 0..MAX_UNDER_WAY - 1 {
            let (ours, theirs) = Channel::pair().unwrap();
            to.send(&Request::List(b"/".to_vec()).encode(), &[theirs.as_fd()]).unwrap();
            waiting.push(ours);
        }
        assert_eq!(ask(&to, &Request::FindNft.encode(), 0), Reply::Done { descriptors: 0 });
        let (ours, theirs) = Channel::pair().unwrap();
        // The place of the one that was just answered becomes free soon after its reply.
        let refused = (0..100).any(|_| {
            to.send(&Request::List(b"/".to_vec()).encode(), &[theirs.as_fd()]).unwrap();
            let reply = ask(&to, &Request::FindNft.encode(), 0);
            matches!(reply, Reply::Failed { errno, .. } if errno == libc::EAGAIN as u32)
        });
        assert!(refused, "there is no limit");
        drop(ours);
    }

    #[test]
    fn an_error_comes_back_with_its_number_or_its_words() {
        let number = failed(&io::Error::from_raw_os_error(libc::EROFS));
        assert_eq!(number, Reply::Failed { errno: libc::EROFS as u32, reason: String::new() });
        let words = failed(&io::Error::new(io::ErrorKind::NotFound, "a link to what is not there"));
        let reason = "a link to what is not there".to_owned();
        assert_eq!(words, Reply::Failed { errno: libc::ENOENT as u32, reason });
        assert!(matches!(failed(&io::Error::other("no")), Reply::Failed { errno: 0, .. }));
    }
}
