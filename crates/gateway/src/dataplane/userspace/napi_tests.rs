//! Tests with a veth in a network namespace of the thread's own, whose `/sys` is mounted for it.
//! The tests need root.

use std::cell::RefCell;
use std::fs::{read_dir, read_to_string};
use std::process::Command;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use ironswan_config::Daemon;
use ironswan_io::namespace;

use super::super::UserSpace;
use super::*;
use crate::dataplane::DataPlane;
use crate::driver::tests::standing_guard;
use crate::guard::shared::SharedGuard;
use crate::network::tests::Fake;

fn run(line: &str) {
    let words: Vec<_> = line.split_whitespace().collect();
    let out = Command::new(words[0]).args(&words[1..]).output();
    let out = out.unwrap_or_else(|e| panic!("{line}: {e}; `make setup` installs what tests need"));
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Runs `f` in a namespace, with its own `/sys` or with what is there.
fn in_namespace(sys: bool, f: impl FnOnce() + Send) {
    std::thread::scope(|s| {
        s.spawn(|| {
            let root = "these tests need root: they make network namespaces";
            if sys {
                namespace::unshare_with_mounts().expect(root);
                run("mount --make-rprivate /");
                run("mount -t sysfs sysfs /sys");
            } else {
                namespace::unshare().expect(root);
            }
            f();
        })
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn veth(name: &str, gro: bool) {
    run(&format!("ip link add {name} type veth peer name {name}p"));
    run(&format!("ip link set {name}p up"));
    run(&format!("ip link set {name} up"));
    if gro {
        run(&format!("ethtool -K {name} gro on"));
    }
}

fn file(name: &str) -> String {
    read_to_string(format!("/sys/class/net/{name}/threaded")).unwrap().trim().to_owned()
}

/// A kernel thread polls the interface.
fn has_thread(name: &str) -> bool {
    let begins = format!("napi/{name}-");
    let is = |comm: String| comm.starts_with(&begins);
    read_dir("/proc").unwrap().flatten().any(|e| read_to_string(e.path().join("comm")).is_ok_and(is))
}

fn said(threaded: &Threaded, name: &str) -> String {
    threaded.said(name).as_ref().map(ToString::to_string).unwrap_or_default()
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn named(list: &[&str]) -> ThreadedNapi {
    ThreadedNapi::Named(names(list))
}

#[test]
fn an_interface_is_polled_by_threads_while_it_is_named_and_then_as_before() {
    in_namespace(true, || {
        veth("tna", true);
        veth("tnb", true);
        std::fs::write("/sys/class/net/tnb/threaded", "1").unwrap();
        let threaded = Threaded::default();
        threaded.look();
        assert_eq!(
            (file("tna"), threaded.names()),
            ("0".into(), vec![]),
            "nothing is touched unless asked for"
        );
        threaded.want(&named(&["tna", "tnb"]));
        assert_eq!((file("tna"), file("tnb")), ("1".into(), "1".into()));
        assert_eq!(threaded.names(), ["tna", "tnb"]);
        assert!(has_thread("tna"));
        threaded.want(&named(&["tnb"]));
        assert_eq!((file("tna"), threaded.names()), ("0".into(), names(&["tnb"])));
        assert!(!has_thread("tna"), "its thread has ended");
        threaded.want(&named(&["tna"]));
        threaded.release();
        // An interface whose file had 1 before us keeps it.
        assert_eq!((file("tna"), file("tnb")), ("0".into(), "1".into()));
        assert_eq!(threaded.names(), [""; 0]);
    });
}

/// Leaves the calling thread one processor.
fn one() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let all = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
    sched_setaffinity(None, &one).unwrap();
}

#[test]
fn with_one_processor_all_interfaces_that_can_be_are_polled_by_threads_unless_it_is_refused() {
    in_namespace(true, || {
        run("ip link set lo up");
        veth("tni", true);
        veth("tnj", false);
        let threaded = Threaded::default();
        if !one_processor() {
            threaded.want(&ThreadedNapi::Auto);
            assert_eq!((file("tni"), threaded.names()), ("0".into(), vec![]));
        }
        one();
        threaded.want(&ThreadedNapi::Auto);
        assert_eq!((file("tni"), file("tnj"), threaded.names()), ("1".into(), "0".into(), names(&["tni"])));
        run("ethtool -K tnj gro on");
        veth("tnk", true);
        threaded.look();
        assert_eq!((file("tnj"), file("tnk")), ("1".into(), "1".into()));
        run("ip link set tnk down");
        run("ip link set tnk name tnl");
        run("ip link set tnl up");
        threaded.look();
        assert_eq!((file("tnl"), threaded.names()), ("1".into(), names(&["tni", "tnj", "tnl"])));
        assert_eq!(
            threaded.0.borrow().said,
            BTreeMap::new(),
            "that an interface has no NAPI is nothing to be said"
        );
        threaded.want(&named(&["tnj"]));
        assert_eq!([file("tni"), file("tnj"), file("tnl")], ["0", "1", "0"]);
        threaded.want(&ThreadedNapi::Auto);
        threaded.release();
        assert_eq!([file("tni"), file("tnj"), file("tnl")], ["0", "0", "0"]);
    });
}

#[test]
fn what_is_in_the_way_is_said_once_with_its_remedy_and_tried_again() {
    in_namespace(true, || {
        veth("tnc", false);
        let threaded = Threaded::default();
        threaded.want(&named(&["tnc", "nosuch"]));
        assert_eq!(threaded.names(), [""; 0]);
        let why = said(&threaded, "tnc");
        assert!(why.contains("ethtool -K tnc gro on") && why.contains("softirqs poll it"), "{why}");
        assert!(said(&threaded, "nosuch").contains("there is no such interface"));
        run("ethtool -K tnc gro on");
        threaded.look();
        assert_eq!((file("tnc"), threaded.names()), ("1".into(), names(&["tnc"])));
        assert_eq!(said(&threaded, "tnc"), "");
        // An interface that is down has no NAPI, so it is put back when it is up again.
        run("ip link set tnc down");
        threaded.release();
        assert!(said(&threaded, "tnc").contains("ip link set tnc up"), "{}", said(&threaded, "tnc"));
        assert_eq!(said(&threaded, "nosuch"), "", "who names it again is told again");
        run("ip link set tnc up");
        assert_eq!(file("tnc"), "1");
        threaded.look();
        assert_eq!((file("tnc"), threaded.names()), ("0".into(), vec![]));
        run("mount -o remount,bind,ro /sys");
        threaded.want(&named(&["tnc"]));
        assert!(said(&threaded, "tnc").contains("a writable /sys"), "{}", said(&threaded, "tnc"));
    });
}

#[test]
fn an_interface_that_is_renamed_is_put_back_and_its_successor_is_polled() {
    in_namespace(true, || {
        veth("tnd", true);
        let threaded = Threaded::default();
        threaded.want(&named(&["tnd"]));
        run("ip link set tnd down");
        run("ip link set tnd name tnold");
        run("ip link set tnold up");
        run("ip link add tnd type veth peer name tndq");
        run("ip link set tnd up");
        run("ip link set tndq up");
        run("ethtool -K tnd gro on");
        threaded.look();
        assert_eq!((file("tnold"), file("tnd")), ("0".into(), "1".into()));
        run("ip link del tnd");
        threaded.look();
        assert_eq!(threaded.names(), [""; 0]);
    });
}

#[test]
fn an_interface_of_another_namespace_is_not_touched() {
    in_namespace(false, || {
        veth("tne", true);
        let threaded = Threaded::default();
        threaded.want(&named(&["tne"]));
        assert!(said(&threaded, "tne").contains("or is of another network namespace"));
        assert_eq!(threaded.names(), [""; 0]);
    });
    in_namespace(true, || {
        // The same name and index, and another interface.
        run("ip link add tnf index 77 address 02:00:00:00:00:01 type veth peer name tnfp");
        namespace::unshare().unwrap();
        run("ip link add tnf index 77 address 02:00:00:00:00:02 type veth peer name tnfp");
        let threaded = Threaded::default();
        threaded.want(&named(&["tnf"]));
        assert!(said(&threaded, "tnf").contains("or is of another network namespace"));
    });
}

#[test]
fn a_change_of_the_settings_and_an_interface_that_appears_are_followed() {
    in_namespace(true, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut daemon = Daemon::default();
            let guard = SharedGuard::new(standing_guard(), Box::new(Fake(Rc::default())));
            let plane = RefCell::new(UserSpace::start(&daemon, guard).unwrap());
            let mut tune = |names: &[&str]| {
                daemon.tuning.threaded_napi = named(names);
                plane.borrow_mut().tune(&daemon.tuning);
            };
            let said_of = |name: &str| said(plane.borrow().threaded(), name);
            let names = || plane.borrow().threaded().names();
            tune(&["tng", "tnh"]);
            assert!(said_of("tng").contains("no such interface"));
            veth("tng", true);
            veth("tnh", false);
            plane.borrow_mut().links_changed();
            soon(&plane, "tng is polled by threads", || file("tng") == "1" && has_thread("tng")).await;
            soon(&plane, "tnh cannot be", || said_of("tnh").contains("ethtool -K tnh gro on")).await;
            run("ethtool -K tnh gro on");
            plane.borrow_mut().links_changed();
            soon(&plane, "tnh is polled by threads, too", || file("tnh") == "1").await;
            run("ip link del tng");
            plane.borrow_mut().links_changed();
            soon(&plane, "tng is gone", || names() == ["tnh"]).await;
            veth("tng", true);
            plane.borrow_mut().links_changed();
            soon(&plane, "and back", || file("tng") == "1").await;

            tune(&["tnh"]);
            assert_eq!((file("tng"), file("tnh")), ("0".into(), "1".into()));
            plane.borrow_mut().stop();
            assert_eq!((file("tnh"), names()), ("0".into(), vec![]));
        });
    });
}

/// Waits, while the data plane is polled for notices, of which there are none here.
async fn soon(plane: &RefCell<UserSpace>, what: &str, is: impl Fn() -> bool) {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..500 {
        assert!(plane.borrow_mut().poll_notice(&mut cx).is_pending());
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("within 5 seconds: {what}");
}
