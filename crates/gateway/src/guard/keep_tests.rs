//! Tests of the watcher with a data plane that records, in a network namespace of its own. Need
//! root.

use std::process::Command;

use ironswan_io::namespace;
use tokio::task::LocalSet;

use super::*;
use crate::dataplane::Notice;
use crate::dataplane::recording::Record;
use crate::driver::tests::recorded_pair;

fn ip(args: &str) {
    assert!(Command::new("ip").args(args.split(' ')).status().unwrap().success(), "ip {args}");
}

/// Waits until the data plane has been told all of these.
async fn told(record: &Record, want: &[&str]) {
    let mut calls = Vec::new();
    for _ in 0..500 {
        calls.extend(record.calls());
        if want.iter().all(|name| calls.iter().any(|call| call == name)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("within 5 seconds {want:?}: {calls:?}");
}

#[test]
fn the_data_plane_hears_of_links_of_the_settled_network_and_of_its_device() {
    let in_namespace = || {
        namespace::unshare().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let [(driver, record), _] = recorded_pair("", "");
            let watcher = Watcher::new(driver, None, [0; 2]).unwrap();
            let watching = tokio::task::spawn_local(watcher.run());
            told(&record, &["restore_routes"]).await;
            ip("link add tki type veth peer name tkj");
            told(&record, &["links_changed", "restore_device", "restore_routes", "network_changed"]).await;
            ip("addr add 192.0.2.77/24 dev tki");
            told(&record, &["links_changed", "network_changed"]).await;
            // Let whatever that begins come to its end.
            tokio::time::sleep(QUIET * 3).await;
            record.calls();
            tokio::time::sleep(QUIET * 2).await;
            assert_eq!(record.calls(), [""; 0], "without a change nothing is looked at");
            record.raise(Notice::DeviceGone);
            told(&record, &["restore_device"]).await;
            watching.abort();
        });
    };
    std::thread::spawn(in_namespace).join().unwrap();
}
