//! A device that does not start. DPDK is started once in a process, so this has one of its own.

#![cfg(feature = "dpdk")]

use ironswan_cryptodev::{DEVICE, Direction, Key, Packets, start};

#[test]
fn a_device_that_does_not_start_is_told_with_the_words_of_dpdk_and_a_remedy() {
    let open = || Packets::open(Key::Gcm { key: &[1; 16], salt: [2; 4] }, Direction::Seal, 1, 96);
    assert!(open().expect_err("not started").to_string().contains("has not been started"));
    let why = start("crypto_of_nobody0").expect_err("there is no such driver");
    assert!(why.lack.contains("the device crypto_of_nobody0 does not start"), "{why}");
    assert!(why.lack.contains("DPDK says: "), "{why}");
    assert!(why.remedy.contains("leave cryptodev out"), "{why}");
    // It is asked once.
    assert_eq!(start(DEVICE), Err(why.clone()));
    assert_eq!(open().expect_err("it does not run"), why);
    assert!(!std::path::Path::new("/var/run/dpdk").exists());
}
