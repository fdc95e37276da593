use std::os::unix::fs::symlink;

use ironswan_testkit::scratch::Scratch;
use ironswan_wire::helper::{NftRun, ProgramEnd};

use super::*;

fn server(config: &Path) -> Server {
    Server::new(config)
}

fn ask(server: &Server, request: Request) -> Outcome {
    server.carry_out(request, Vec::new())
}

fn text(outcome: Outcome) -> Vec<u8> {
    let (reply, mut descriptors) = outcome.unwrap();
    assert_eq!(reply.descriptors(), descriptors.len());
    client::contents(descriptors.pop().unwrap(), 1 << 20).unwrap()
}

#[test]
fn files_of_the_folder_and_those_that_they_name_are_opened_and_no_others() {
    let (dir, other) = (Scratch::new(), Scratch::new());
    let path = |dir: &Scratch, name: &str| client::bytes(&dir.path().join(name));
    let include = format!("include {}/shared.conf", other.path().display());
    dir.write("swanctl.conf", &include);
    other.write("shared.conf", "b");
    other.write("secret.conf", "c");
    other.write("renewed.pem", "d");
    symlink(other.path().join("renewed.pem"), dir.path().join("cert.pem")).unwrap();
    let server = server(dir.path());
    let open = |bytes: Vec<u8>| ask(&server, Request::Open(bytes));
    let refused = |outcome: Outcome| outcome.unwrap_err().kind() == io::ErrorKind::PermissionDenied;
    assert!(refused(open(path(&other, "shared.conf"))), "no file names it yet");
    for (file, content) in [
        (path(&dir, "swanctl.conf"), include.as_bytes()),
        (path(&other, "shared.conf"), b"b"),
        (path(&dir, "cert.pem"), b"d"),
    ] {
        assert_eq!(text(open(file)), content);
    }
    assert!(refused(open(path(&other, "secret.conf"))));
    assert!(refused(open(path(&dir, "../secret.conf"))));
    assert!(refused(ask(&server, Request::Exists(b"/etc/shadow".to_vec()))));
    assert!(refused(ask(&server, Request::List(b"/etc".to_vec()))));
    assert!(refused(ask(&server, Request::Canonical(b"/etc/shadow".to_vec()))));
}

#[test]
fn files_are_told_from_folders_and_from_nothing() {
    let dir = Scratch::new();
    dir.write("swanctl.conf", "a");
    let server = server(dir.path());
    let path = |name: &str| client::bytes(&dir.path().join(name));
    assert_eq!(ask(&server, Request::Open(path("."))).unwrap().0, Reply::NotRegular);
    let missing = ask(&server, Request::Open(path("nothing"))).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let there = |name: &str| ask(&server, Request::Exists(path(name))).unwrap().0;
    assert_eq!(there("swanctl.conf"), Reply::Flag { yes: true, descriptor: false });
    assert_eq!(there("nothing"), Reply::Flag { yes: false, descriptor: false });
    let listed = text(ask(&server, Request::List(client::bytes(dir.path()))));
    assert_eq!(listed, [&path("swanctl.conf")[..], &[0]].concat());
    let none = ask(&server, Request::List(path("conf.d"))).unwrap();
    assert_eq!((none.0, none.1.len()), (Reply::Flag { yes: false, descriptor: false }, 0));
}

#[test]
fn no_program_runs_but_the_one_that_the_helper_has_found() {
    let dir = Scratch::new();
    let server = server(dir.path());
    let file = || client::memory_file(b"").unwrap();
    let request = Request::RunNft { run: NftRun::Version, seconds: 5 };
    // The thread of a request that runs a program keeps one capability.
    let run = |streams| {
        std::thread::scope(|s| s.spawn(|| server.carry_out(request.clone(), streams)).join().unwrap())
    };
    assert!(run(vec![file(), file(), file()]).is_err(), "nothing was looked for");
    let script = client::memory_file(b"include \"/etc/shadow\"").unwrap();
    assert!(own_script(script).is_err(), "nft would read another file");
    let Reply::Path(found) = ask(&server, Request::FindNft).unwrap().0 else { panic!("no path") };
    assert!(found.ends_with(b"/nft"), "{found:?}");
    let output = file();
    let (reply, _) = run(vec![file(), output.try_clone().unwrap(), file()]).unwrap();
    assert!(matches!(reply, Reply::Ended { pid: 1.., end: ProgramEnd::Success }), "{reply:?}");
    assert!(client::contents(output, 1 << 20).unwrap().starts_with(b"nftables v"));
}

#[test]
fn names_that_no_interface_has_are_refused() {
    let dir = Scratch::new();
    let server = server(dir.path());
    for name in [&b"../x"[..], b"a/b", b"\xff"] {
        assert!(ask(&server, Request::OpenTun(name.to_vec())).is_err(), "{name:?}");
        let setting = ironswan_wire::helper::DeviceSetting::ReversePath;
        assert!(ask(&server, Request::SetDevice { name: name.to_vec(), setting }).is_err(), "{name:?}");
        let (name, address) = (name.to_vec(), Vec::new());
        let threaded = Request::SetThreaded { name, index: 1, address, on: true };
        assert!(ask(&server, threaded).is_err());
    }
}

#[test]
fn the_lines_about_refusals_are_limited() {
    let refusals = Refusals::of("helper");
    refusals.count.store(MAX_LINES - 1, Ordering::Relaxed);
    refusals.say("this is the last line of a test, as it should be");
    refusals.say("nobody reads this");
    assert_eq!(refusals.count.load(Ordering::Relaxed), MAX_LINES + 1);
    refusals.count.store(u32::MAX, Ordering::Relaxed);
    refusals.say("nobody reads this either");
}

#[test]
fn no_thread_but_the_daemons_gets_another_nice_value() {
    let dir = Scratch::new();
    let server = server(dir.path());
    // The daemon is the parent of a helper, and this process's parent has no thread of these.
    for thread in [0, 1, std::process::id(), u32::MAX] {
        assert!(ask(&server, Request::SetNice { thread, nice: 19 }).is_err(), "{thread}");
    }
}
