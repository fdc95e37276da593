//! Tests of the order and the pace in which the kernel is told, with a kernel that only remembers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use ironswan_keying::Connection;
use ironswan_wire::sadb::PolicyAdd;
use ironswan_wire::selector::{AddrRange, TrafficSelector};
use tokio::task::LocalSet;

use super::*;
use crate::driver::tests::{conf, up};
use crate::guard::Nft;
use crate::network::tests::{Fake, Table as KernelState};

/// A program that replaces the table: how often it ran, what it was told last, whether it fails.
#[derive(Default)]
struct Program {
    runs: AtomicUsize,
    at_once: AtomicUsize,
    last: Mutex<String>,
    broken: AtomicBool,
    slow: AtomicBool,
}

impl Program {
    fn replace(self: &Arc<Self>) -> Replace {
        let program = self.clone();
        Arc::new(move |text| {
            assert_eq!(program.at_once.fetch_add(1, Relaxed), 0, "one at a time");
            while program.slow.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            program.at_once.fetch_sub(1, Relaxed);
            program.runs.fetch_add(1, Relaxed);
            if program.broken.load(Relaxed) {
                return Err(Guard::NftRefused { request: "install the guard", why: "refused".to_owned() });
            }
            *program.last.lock().unwrap() = text.to_owned();
            Ok(())
        })
    }

    fn runs(&self) -> usize {
        self.runs.load(Relaxed)
    }

    fn has(&self, text: &str) -> bool {
        self.last.lock().unwrap().contains(text)
    }
}

/// A gateway with one connection `net` from 10.1.0.0/24 to 10.2.0.0/24, its kernel and its program;
/// the guard's passes run.
fn setup() -> (Driver, Rc<RefCell<KernelState>>, Arc<Program>) {
    let kept = Rc::new(RefCell::new(KernelState { path_mtu: 1500, ..KernelState::default() }));
    let (driver, out) = crate::driver::tests::with_kernel(Box::new(Fake(kept.clone())), &conf(1, 2));
    // Whatever it sends is lost.
    std::mem::forget(out);
    let program = Arc::new(Program::default());
    tokio::task::spawn_local(driver.run_guard_passes(program.replace()));
    (driver, kept, program)
}

fn has(kept: &Rc<RefCell<KernelState>>, route: &str) -> bool {
    kept.borrow().routes.iter().any(|r| r.to_string().starts_with(route))
}

/// The loaded connection under another name, to another net.
fn other(driver: &Driver, n: u32) -> Connection {
    let mut conn = (*driver.view(|e, _| e.connection("net")).expect("it is loaded")).clone();
    conn.name = format!("net{n}");
    let net = std::net::Ipv4Addr::from(0x0b00_0000 + (n << 9));
    let to = TrafficSelector::addresses(AddrRange::prefix(net.into(), 24).unwrap());
    conn.children[0].remote_ts = vec![ironswan_keying::TsSpec::Fixed(to)];
    conn
}

#[tokio::test]
async fn loading_closes_the_way_at_once_and_a_child_that_comes_up_changes_nothing_of_the_table() {
    LocalSet::new()
        .run_until(async {
            let (driver, kept, program) = setup();
            assert!(has(&kept, "unreachable 10.2.0.0/24"), "before anything was awaited");
            driver.guarded().await.unwrap();
            assert!(program.has("10.2.0.0/24"));
            assert_eq!((program.runs(), kept.borrow().rules.len()), (1, 2));
            // The engine gets just what was loaded.
            let p = PolicyAdd {
                name: "net".into(),
                action: ironswan_wire::sadb::Action::Protect(ironswan_wire::sadb::ReqId(1)),
                local: TrafficSelector::addresses(AddrRange::prefix([10, 1, 0, 0].into(), 24).unwrap()),
                remote: TrafficSelector::addresses(AddrRange::prefix([10, 2, 0, 0].into(), 24).unwrap()),
                priority: 0,
                entry: ironswan_wire::sadb::Entry::default(),
            };
            let narrower = PolicyAdd {
                remote: TrafficSelector::addresses(AddrRange::prefix([10, 9, 0, 0].into(), 24).unwrap()),
                ..p.clone()
            };
            let add = |p: &PolicyAdd, add| driver.change_guard(|g, _| g.engine(p, add));
            add(&p, true);
            driver.guarded().await.unwrap();
            assert_eq!(program.runs(), 1);
            // And something else, which is in the plan for as long as the engine has it.
            add(&narrower, true);
            driver.guarded().await.unwrap();
            assert!(program.has("10.9.0.0/24") && has(&kept, "unreachable 10.9.0.0/24"));
            add(&narrower, false);
            add(&p, false);
            driver.guarded().await.unwrap();
            assert!(!program.has("10.9.0.0/24") && program.has("10.2.0.0/24"));
            assert!(!has(&kept, "unreachable 10.9.0.0/24"));
            assert!(has(&kept, "unreachable 10.2.0.0/24"), "loaded, whatever its state");
        })
        .await;
}

#[tokio::test]
async fn unloading_takes_the_table_first_and_then_what_closes() {
    LocalSet::new()
        .run_until(async {
            let (driver, kept, program) = setup();
            driver.guarded().await.unwrap();
            program.broken.store(true, Relaxed);
            assert!(driver.unload_connection("net"));
            assert_eq!(driver.guarded().await.unwrap_err().entry().name(), "nft-refused");
            assert!(has(&kept, "unreachable 10.2.0.0/24"), "closed until the table is replaced");
            assert_eq!(kept.borrow().rules.len(), 2);
            program.broken.store(false, Relaxed);
            let mut waited = 0;
            while driver.guarded().await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                waited += 1;
                assert!(waited < 50, "it is tried again");
            }
            assert!(kept.borrow().routes.is_empty() && kept.borrow().rules.is_empty());
            assert!(!driver.unload_connection("net"));
        })
        .await;
}

#[tokio::test]
async fn a_table_that_cannot_be_replaced_is_said_to_whoever_asks_and_closes_all_the_same() {
    LocalSet::new()
        .run_until(async {
            let (driver, kept, program) = setup();
            driver.guarded().await.unwrap();
            program.broken.store(true, Relaxed);
            driver.load_connection(other(&driver, 1));
            assert_eq!(driver.guarded().await.unwrap_err().entry().name(), "nft-refused");
            assert!(has(&kept, "unreachable 11.0.2.0/24"));
            driver.guarded_soon().await;
        })
        .await;
}

#[tokio::test]
async fn a_table_that_is_touched_while_it_is_replaced_is_replaced_again() {
    LocalSet::new()
        .run_until(async {
            let (driver, _kept, program) = setup();
            driver.guarded().await.unwrap();
            program.slow.store(true, Relaxed);
            driver.load_connection(other(&driver, 1));
            while program.at_once.load(Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let runs = program.runs();
            driver.change_guard(|g, _| g.table_lost());
            program.slow.store(false, Relaxed);
            driver.guarded().await.unwrap();
            assert_eq!(program.runs(), runs + 2, "the one that ran, and one more");
            driver.guarded().await.unwrap();
            assert_eq!(program.runs(), runs + 2);
        })
        .await;
}

#[tokio::test]
async fn thousands_of_connections_loaded_one_by_one_replace_the_table_some_dozens_of_times() {
    LocalSet::new()
        .run_until(async {
            let (driver, kept, program) = setup();
            driver.guarded().await.unwrap();
            let began = clock::now();
            const N: u32 = 10_000;
            for n in 1..=N {
                driver.load_connection(other(&driver, n));
                driver.guarded_soon().await;
            }
            let loaded = clock::now() - began;
            driver.guarded().await.unwrap();
            let all = clock::now() - began;
            println!("{N} loaded in {loaded:?}, guarded after {all:?}, {} replacements", program.runs());
            // While a client waits for each, until its patience is used up: then as the cost
            // allows.
            assert!(program.runs() < 250, "{} replacements", program.runs());
            assert!(program.has("11.0.2.0/24") && program.has("11.78.32.0/24"));
            assert_eq!(kept.borrow().routes.len(), N as usize + 1);
            // Each was closed once, and nothing was done twice.
            assert_eq!(kept.borrow().changes, N as usize + 3);
        })
        .await;
}

#[tokio::test]
async fn a_gateway_that_does_not_enforce_makes_nobody_wait() {
    LocalSet::new()
        .run_until(async {
            let (a, _b) = crate::driver::tests::pair();
            assert_eq!(up(&a).await, Ok(()));
            a.guarded().await.unwrap();
            a.guarded_soon().await;
        })
        .await;
}

/// A program `nft` that writes down the tables that it is told, each in front of a line `#end`; and
/// that file.
fn writes_down() -> (ironswan_testkit::scratch::Scratch, Nft, std::path::PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let dir = ironswan_testkit::scratch::Scratch::new();
    let told = dir.path().join("told");
    let script = format!(
        "#!/bin/sh\ncase $1 in --version) echo 'nftables v1.0.6 (x)' ;; -f) (cat; echo '#end') >> {} ;; esac\n",
        told.display()
    );
    let path = dir.write("nft", &script);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let nft = Nft::find_in(Some(dir.path().as_os_str().to_owned())).unwrap();
    (dir, nft, told)
}

#[tokio::test]
async fn a_table_that_waits_for_a_thread_is_not_put_over_the_last_one() {
    LocalSet::new()
        .run_until(async {
            let kernel = Box::new(Fake(Rc::new(RefCell::new(KernelState::default()))));
            let (driver, _out) = crate::driver::tests::with_kernel(kernel, &conf(1, 2));
            let (_dir, nft, told) = writes_down();
            let tables = || {
                let text = std::fs::read_to_string(&told).unwrap();
                text.split("#end\n").filter(|t| !t.is_empty()).map(str::to_owned).collect::<Vec<_>>()
            };
            let table = Some(Table::new(nft));
            let former = crate::guard::start_and_end::Former::default();
            let guard = crate::guard::start_and_end::DaemonGuard {
                driver: driver.clone(),
                table,
                stood: false,
                former,
                port: 0,
            };
            let keeper = tokio::task::spawn_local(driver.run_guard_passes(guard.replace()));
            driver.guarded().await.unwrap();
            assert_eq!(tables().len(), 1);
            // The thread is busy with something else when a table is to be replaced, and the end
            // comes.
            let (free, busy) = std::sync::mpsc::channel::<()>();
            let held = driver.pools().nft.run(Turn::First, usize::MAX, move || busy.recv()).unwrap();
            driver.load_connection(other(&driver, 1));
            while !driver.guard_passes().replacing.get() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(driver.unload_connection("net1"));
            let last = driver.view(|e, _| from_config::configured(e.connections().iter().map(|c| &**c)));
            keeper.abort();
            let _ = keeper.await;
            guard.end(last);
            free.send(()).unwrap();
            let _ = held.await;
            // The pool runs jobs in order: replacements that waited were run before this job.
            let done = driver.pools().nft.run(Turn::First, usize::MAX, || ()).unwrap();
            done.await.unwrap();
            let tables = tables();
            assert_eq!(tables.len(), 2, "the first, and the last");
            assert!(tables[1].contains("10.2.0.0/24") && !tables[1].contains("11.0.2.0/24"), "{}", tables[1]);
            // Whether the one of before stood was not known.
            assert_eq!(tables[0], tables[1]);
        })
        .await;
}

#[tokio::test]
async fn a_table_that_is_lost_does_not_wait_for_what_the_ingress_took() {
    LocalSet::new()
        .run_until(async {
            let (driver, _kept, program) = setup();
            driver.guarded().await.unwrap();
            let slow = crate::guard::ingress::thread::tests::slow_once(Duration::from_secs(1));
            driver.change_guard(|g, _| g.set_keeper_thread(KeeperThread::with(slow).unwrap()));
            driver.load_connection(other(&driver, 1));
            driver.guarded().await.unwrap();
            let runs = program.runs();
            driver.change_guard(|g, _| g.table_lost());
            let began = clock::now();
            driver.guarded().await.unwrap();
            let took = clock::now().saturating_duration_since(began);
            assert_eq!(program.runs(), runs + 1);
            assert!(took < Duration::from_millis(1500), "{took:?}");
        })
        .await;
}
