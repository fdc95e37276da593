//! Tests of reloading, with a driver whose kernel agrees to everything.

use std::time::Duration;

use tokio::task::LocalSet;

use super::*;
use crate::driver::tests::{conf, gateway, pair, recorded_pair, up};
use ironswan_testkit::scratch::Scratch;
use ironswan_wire::sadb::Action;

fn loaded(dir: &Scratch, driver: &Driver) -> Loaded {
    let (config, _) = load(dir.path()).unwrap();
    let loaded = Loaded::new(dir.path().to_owned(), config.daemon.clone());
    loaded.take(driver, config);
    loaded
}

fn folder(text: &str) -> Scratch {
    let dir = Scratch::new();
    write(&dir, text);
    dir
}

fn write(dir: &Scratch, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.write("swanctl.conf", text);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn names(driver: &Driver) -> Vec<String> {
    driver.view(|e, _| e.connections().iter().map(|c| c.name.clone()).collect())
}

fn block(f: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, f);
}

/// The entry for a file that is empty while it is written.
pub(crate) fn half_written() -> Diagnosis {
    let (dir, mut found) = (folder(&conf(1, 2)), None);
    block(async {
        let (driver, _sent) = gateway("192.0.2.1", "");
        let loaded = loaded(&dir, &driver);
        write(&dir, "");
        let (config, _) = load(dir.path()).unwrap();
        found = loaded.half_written(&config);
    });
    found.expect("a connection would end").into()
}

#[test]
fn a_file_with_an_error_changes_nothing_and_an_empty_one_ends_nothing() {
    block(async {
        let (driver, _sent) = gateway("192.0.2.1", "");
        let dir = folder(&conf(1, 2));
        let loaded = loaded(&dir, &driver);
        for (bad, says) in [("connections {", "never closed"), ("", "is empty")] {
            write(&dir, bad);
            let why = loaded.reload(&driver).await.unwrap_err().to_string();
            assert!(
                why.starts_with("configuration not reloaded, what runs is unchanged") && why.contains(says),
                "{why}"
            );
            assert_eq!(names(&driver), ["net"]);
            assert_eq!(driver.view(|e, _| e.shared_names().len()), 1);
        }
        write(&dir, "# nothing any more\n");
        loaded.reload(&driver).await.unwrap();
        assert!(names(&driver).is_empty());
    });
}

/// A file that cannot be looked at, or is away for a moment, has not been removed.
#[test]
fn a_folder_or_file_that_cannot_be_seen_ends_nothing() {
    use std::os::unix::fs::symlink;
    block(async {
        let (driver, _sent) = gateway("192.0.2.1", "");
        let dir = folder(&conf(1, 2));
        let more = conf(1, 3).replace("net {", "other {");
        let (connections, _) = more.split_once("secrets").unwrap();
        dir.write("conf.d/b.conf", connections);
        let loaded = loaded(&dir, &driver);
        assert_eq!(names(&driver), ["net", "other"]);
        let path = |name: &str| dir.path().join(name);
        let refused = async |says: &str| {
            let why = loaded.reload(&driver).await.unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
            assert_eq!(names(&driver), ["net", "other"], "{says}");
        };
        std::fs::rename(path("conf.d"), path("aside")).unwrap();
        dir.write("conf.d", "a file");
        refused("conf.d: cannot be looked at: ").await;
        std::fs::remove_file(path("conf.d")).unwrap();
        for target in ["conf.d", "nowhere", "nowhere/deeper"] {
            symlink(target, path("conf.d")).unwrap();
            refused("conf.d: cannot be looked at: ").await;
            std::fs::remove_file(path("conf.d")).unwrap();
        }
        std::fs::rename(path("aside"), path("conf.d")).unwrap();
        std::fs::rename(path("swanctl.conf"), path("aside")).unwrap();
        refused("swanctl.conf is not there any more: perhaps it is being written").await;
        symlink("/nonexistent/swanctl.conf", path("swanctl.conf")).unwrap();
        refused("swanctl.conf: cannot be looked at: ").await;
        std::fs::remove_file(path("swanctl.conf")).unwrap();
        std::fs::rename(path("aside"), path("swanctl.conf")).unwrap();
        symlink("/nonexistent/ironswan.conf", path("ironswan.conf")).unwrap();
        refused("ironswan.conf: cannot be looked at: ").await;
        std::fs::remove_file(path("ironswan.conf")).unwrap();
        // Whoever takes a file out of a folder that can be seen means it.
        std::fs::remove_dir_all(path("conf.d")).unwrap();
        loaded.reload(&driver).await.unwrap();
        assert_eq!(names(&driver), ["net"]);
    });
}

#[test]
fn settings_do_not_return_to_the_defaults_while_their_file_is_written() {
    block(async {
        let (driver, _sent) = gateway("192.0.2.1", "");
        let dir = folder(&conf(1, 2));
        dir.write("ironswan.conf", "retransmit_tries = 1\n");
        let loaded = loaded(&dir, &driver);
        let tries = || loaded.settings.borrow().limits.retransmit_tries;
        assert_eq!(tries(), 1);
        dir.write("ironswan.conf", "");
        let why = loaded.reload(&driver).await.unwrap_err().to_string();
        assert!(
            why.contains("ironswan.conf is empty: perhaps it is being written; to return to the defaults"),
            "{why}"
        );
        std::fs::remove_file(dir.path().join("ironswan.conf")).unwrap();
        let why = loaded.reload(&driver).await.unwrap_err().to_string();
        assert!(why.contains("ironswan.conf is not there any more: perhaps"), "{why}");
        assert_eq!((tries(), names(&driver)), (1, vec!["net".to_owned()]));
        // A writer who is between truncating and writing is waited for.
        dir.write("ironswan.conf", "");
        let path = dir.path().join("ironswan.conf");
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            std::fs::write(path, "retransmit_tries = 2\n").unwrap();
        });
        let reloaded = loaded.reload(&driver).await;
        writer.join().unwrap();
        println!("while it is written: {reloaded:?}");
        assert!(reloaded.map_or(tries() == 1, |()| tries() == 2), "{}", tries());
        dir.write("ironswan.conf", "# the defaults\n");
        loaded.reload(&driver).await.unwrap();
        assert_eq!(tries(), Daemon::default().limits.retransmit_tries);
        // Nothing would change: nobody has to be asked.
        dir.write("ironswan.conf", "");
        loaded.reload(&driver).await.unwrap();
        std::fs::remove_file(dir.path().join("ironswan.conf")).unwrap();
        loaded.reload(&driver).await.unwrap();
    });
}

#[test]
fn what_vici_has_loaded_is_not_the_files_to_take_away() {
    block(async {
        let (driver, _sent) = gateway("192.0.2.1", &conf(1, 3).replace("net {", "other {"));
        let dir = folder(&conf(1, 2));
        let loaded = loaded(&dir, &driver);
        assert_eq!(names(&driver), ["net", "other"]);
        write(&dir, "# nothing any more\n");
        loaded.reload(&driver).await.unwrap();
        assert_eq!(names(&driver), ["other"]);
    });
}

#[test]
fn private_keys_come_and_go_with_their_files() {
    block(async {
        let (driver, _sent) = gateway("192.0.2.1", "");
        let dir = folder(&conf(1, 2));
        let key = |n: u8| {
            let head = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
            [&head[..], &[n; 32]].concat()
        };
        let write = |name: &str, bytes: &[u8]| std::fs::write(dir.write(name, ""), bytes).unwrap();
        let ids = || driver.view(|e, _| e.private_ids());
        let id = |n| ironswan_config::keyfiles::private_key(&key(n)).unwrap().public().id();
        write("private/a.der", &key(1));
        let loaded = loaded(&dir, &driver);
        assert_eq!(ids(), [id(1)]);
        // One that VICI has loaded stays, whatever the files do.
        driver.act(|e, _| e.load_private(ironswan_config::keyfiles::private_key(&key(9)).unwrap()));
        let has = |wanted: &[u8]| {
            let mut wanted: Vec<_> = wanted.iter().map(|n| id(*n)).collect();
            wanted.sort_unstable();
            assert_eq!(ids(), wanted);
        };
        write("pkcs8/b.der", &key(2));
        loaded.reload(&driver).await.unwrap();
        has(&[1, 2, 9]);
        // Another key in the same file, and the same key in another file.
        write("private/a.der", &key(2));
        write("pkcs8/b.der", &key(3));
        loaded.reload(&driver).await.unwrap();
        has(&[2, 3, 9]);
        // Half of a file changes nothing.
        write("private/a.der", &key(1)[..20]);
        let why = loaded.reload(&driver).await.unwrap_err().to_string();
        assert!(why.contains("private/a.der: the file holds no private key"), "{why}");
        has(&[2, 3, 9]);
        std::fs::remove_file(dir.path().join("private/a.der")).unwrap();
        loaded.reload(&driver).await.unwrap();
        has(&[3, 9]);
        std::fs::remove_dir_all(dir.path().join("pkcs8")).unwrap();
        loaded.reload(&driver).await.unwrap();
        has(&[9]);
    });
}

#[test]
fn who_is_taken_out_of_the_files_is_closed_whoever_had_begun() {
    block(async {
        let (ours, theirs) = pair();
        let dir = folder(&conf(1, 2));
        let loaded = loaded(&dir, &ours);
        // The peer begins: charon would leave its SAs alone.
        let (_, end) = theirs.command(|e, now| e.initiate(now, None, Some("net")).map(|t| (1, t))).unwrap();
        end.await.unwrap().unwrap();
        assert_eq!(ours.ike_sas().0.len(), 1);
        write(&dir, "# nothing any more\n");
        loaded.reload(&ours).await.unwrap();
        for _ in 0..500 {
            if ours.ike_sas().0.is_empty() && theirs.ike_sas().0.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("ours: {:?}, theirs: {:?}", ours.ike_sas().0, theirs.ike_sas().0);
    });
}

#[test]
fn limits_change_while_it_runs_and_the_rest_is_named() {
    block(async {
        let (driver, _sent) = gateway("192.0.2.1", &conf(1, 3).replace("net {", "other {"));
        let dir = folder(&conf(1, 2));
        let loaded = loaded(&dir, &driver);
        dir.write("ironswan.conf", "ike_sa_max = 1\nretransmit_tries = 1\n");
        loaded.reload(&driver).await.unwrap();
        assert_eq!(loaded.settings.borrow().limits.retransmit_tries, 1);
        let begin =
            |name| driver.command(|e, now| e.initiate(now, Some(name), None).map(|t| (1, t))).map(|_| ());
        begin("net").unwrap();
        assert!(begin("other").is_err_and(|e| e.to_string().contains("limit of 1 IKE_SAs")));
        let mut other = loaded.settings.borrow().clone();
        (other.device, other.port_natt) = ("ipsec7".to_owned(), 4501);
        assert_eq!(changed(&loaded.settings.borrow(), &other), ["device", "port_natt"]);
    });
}

#[test]
fn a_reload_that_hangs_is_named_and_others_are_refused_until_its_thread_ends() {
    block(async {
        let (driver, _sent) = gateway("192.0.2.1", "");
        let dir = folder(&conf(1, 2));
        let loaded = loaded(&dir, &driver);
        // A thread of an earlier reload that was given up: the file system answers when `answer` is
        // dropped.
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let task = Task::limited(clock::now, Duration::from_millis(50), move |fs| {
            let _ = fs.ask(Path::new("/net/silent.conf"), || {
                let _ = answered.recv();
                Ok(())
            });
            Err("too late".to_owned().into())
        });
        loaded.reading.replace(Some(task.unwrap()));
        for _ in 0..2 {
            let why = loaded.reload(&driver).await.unwrap_err().to_string();
            assert!(
                why.contains("not reloaded") && why.contains("/net/silent.conf: the file system"),
                "{why}"
            );
            assert_eq!(names(&driver), ["net"]);
        }
        drop(answer);
        write(&dir, "# nothing any more\n");
        while loaded.reload(&driver).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(names(&driver).is_empty());
    });
}

#[test]
fn nothing_is_loaded_and_initiated_while_the_daemon_says_goodbye() {
    block(async {
        let text = conf(1, 2).replace("local_ts", "start_action = start\n local_ts");
        assert_ne!(text, conf(1, 2));
        let (driver, _sent) = gateway("192.0.2.1", "");
        let dir = folder(&text);
        let loaded = loaded(&dir, &driver);
        assert_eq!(driver.view(|e, _| e.protocol().ike_sa_count()), 1, "it has begun");
        driver.act(|e, now| e.shutdown(now));
        let why = loaded.reload(&driver).await.unwrap_err().to_string();
        assert!(why.ends_with("the daemon is stopping"), "{why}");
        let (config, _) = load(dir.path()).unwrap();
        for conn in config.connections {
            driver.load_connection(conn);
        }
        let refused = driver.command(|e, now| e.initiate(now, Some("net"), None).map(|t| (1, t)));
        assert_eq!(refused.err().map(|e| e.to_string()).as_deref(), Some("the daemon is stopping"));
        driver.act(|e, now| e.handle_timeout(now + Duration::from_secs(60)));
        assert_eq!((names(&driver).len(), driver.view(|e, _| e.protocol().ike_sa_count())), (0, 0));
    });
}

#[test]
fn the_data_plane_is_told_the_difference_alone() {
    block(async {
        let child = |net: u8, keys: &str| {
            format!(
                "extra{net} {{ local_ts = 10.1.{net}.0/24\n remote_ts = 10.2.{net}.0/24\n \
                 esp_proposals = aes128gcm16\n {keys} }} "
            )
        };
        let text = |children: &str| {
            let both = conf(1, 2).replace("children {", &format!("children {{ {children}"));
            both.replace(
                "esp_proposals = aes128gcm16 }",
                "esp_proposals = aes128gcm16\n start_action = trap }",
            )
        };
        let [(driver, told), _] = recorded_pair("", &conf(2, 1));
        let dir = folder(&text(""));
        let loaded = loaded(&dir, &driver);
        assert_eq!(told.batches(), ["add policy 10.1.0.0/24 === 10.2.0.0/24"]);
        up(&driver).await.unwrap();
        let sas = told.sas();
        assert_eq!(sas.len(), 2);
        told.batches();
        told.calls();

        loaded.reload(&driver).await.unwrap();
        assert_eq!(told.batches(), [""; 0], "the files are as they were");
        write(&dir, &text(&child(7, "start_action = trap")));
        loaded.reload(&driver).await.unwrap();
        assert_eq!(told.batches().join(", "), "add policy 10.1.7.0/24 === 10.2.7.0/24");
        assert_eq!(told.sas(), sas, "the tunnel is not touched");
        write(&dir, &text(&child(7, "mode = drop\n start_action = trap")));
        loaded.reload(&driver).await.unwrap();
        let changed = told.batches().join(", ");
        assert!(changed.contains("delete policy 10.1.7.0/24") && changed.contains("add policy 10.1.7.0/24"));
        let action = |net: &str| {
            told.policies().into_iter().find(|p| p.name == net).map(|p| p.action).expect("it stands")
        };
        assert_eq!(action("net.extra7"), Action::Discard);
        assert_eq!(told.sas(), sas);

        // Settings of the data plane that can change while it runs.
        assert_eq!(told.calls().iter().filter(|c| c.starts_with("tune")).count(), 0);
        dir.write("ironswan.conf", "data {\n threaded_napi = lan\n}\n");
        loaded.reload(&driver).await.unwrap();
        assert!(told.calls().contains(&"tune threaded_napi Named([\"lan\"])".to_owned()));

        write(&dir, "# nothing any more\n");
        loaded.reload(&driver).await.unwrap();
        for _ in 0..500 {
            if told.sas().is_empty() && told.policies().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?} {:?}", told.sas(), told.policies());
    });
}
