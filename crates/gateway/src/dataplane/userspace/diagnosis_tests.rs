//! Cases of the area data plane. Called by the test in `crate::diagnosis`, which makes every entry
//! happen.

use std::process::Command as Program;
use std::time::Duration;

use ironswan_config::tuning::{ThreadedNapi, Tuning};
use ironswan_crypto::engines::{EngineId, Engines};
use ironswan_crypto::rng::System;
use ironswan_io::poller::{Poller, Waker};
use ironswan_io::route::Netlink;
use ironswan_io::tun::{Offloads as TunOffloads, Tun, TunConfig};
use ironswan_ipsec::Engine;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{DataPlane, DataPlaneEntry, Sources};
use ironswan_wire::sadb::{Command, Direction, ReqId, SaRef, Spi};

use super::device::{self, Device};
use super::install::Installer;
use super::napi::Threaded;
use super::offloads::{Offloads, Slower};
use super::plane::engine_doubts;
use super::{scheduling, xdp};
use crate::dataplane::{Notice, Restored, refused};
use crate::diagnosis::cannot_wait;
use crate::diagnosis::tests::{in_namespace, without_capabilities};

pub(crate) fn happens(entry: DataPlaneEntry) -> Diagnosis {
    let found = match entry {
        DataPlaneEntry::CommandRefused => command_refused(),
        DataPlaneEntry::Ended => ended(),
        DataPlaneEntry::EngineUnused => engine_unused(),
        DataPlaneEntry::DeviceDisturbed => match look_at_changed_device(|| ()) {
            Restored::Done(disturbed) => disturbed,
            other => panic!("{other:?}"),
        },
        DataPlaneEntry::DeviceLost => match look_at_changed_device(without_capabilities) {
            Restored::Failed(lost) => lost,
            other => panic!("{other:?}"),
        },
        DataPlaneEntry::DeviceUnprepared => in_namespace(|| device::prepare("nosuch0").unwrap_err()),
        DataPlaneEntry::OffloadMissing => {
            shortfall(Offloads { segments: 1, buffers: [u32::MAX; 2], ..granted() })
        }
        DataPlaneEntry::SmallBuffers => shortfall(Offloads { buffers: [212_992; 2], ..granted() }),
        DataPlaneEntry::SendsNotCut => Slower::Segmentation("192.0.2.2".parse().unwrap()).diagnosis(),
        DataPlaneEntry::MergesRefused => Slower::Merging { udp: true }.diagnosis(),
        DataPlaneEntry::XdpUnused => {
            in_namespace(|| xdp::Xdp::open(&["nosuch0".into()], 4500, true).1.remove(0))
        }
        DataPlaneEntry::XdpLost => in_namespace(|| {
            veth("wan");
            let (xdp, unused) = xdp::Xdp::open(&["wan".into()], 4500, true);
            assert_eq!(unused, []);
            run("ip link del wan");
            xdp.lost().expect("the interface is gone")
        }),
        DataPlaneEntry::PollingUnchanged => in_namespace(|| {
            let threaded = Threaded::default();
            threaded.want(&ThreadedNapi::Named(vec!["nosuch0".into()]));
            threaded.said("nosuch0").expect("there is no such interface")
        }),
        DataPlaneEntry::WorkerUnbound => in_namespace(|| scheduling::bind(1023).unwrap_err()),
        DataPlaneEntry::WorkerPriority => in_namespace(|| {
            without_capabilities();
            scheduling::prefer(-10).unwrap_err()
        }),
        DataPlaneEntry::CannotWait => {
            let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
            poller.add(&waker, 0).unwrap();
            // The kernel refuses a descriptor that it waits for already.
            cannot_wait(Sources::NewDevice, &poller.add(&waker, 1).unwrap_err())
        }
    };
    found.into()
}

/// An SA is deleted that the engine does not have.
fn command_refused() -> DataPlane {
    let engine = Engine::new(Box::new(System), ironswan_ipsec::Config::default());
    let guard = crate::diagnosis::tests::guard_over(crate::network::tests::Table::default());
    let remote = "192.0.2.2".parse().unwrap();
    let sa = SaRef { direction: Direction::In, spi: Spi(0xc0de_0001), reqid: ReqId(1), remote };
    let command = Command::SaDelete(sa);
    let why = Installer::new(engine, guard, 1).apply(Duration::ZERO, &command).unwrap_err();
    refused(&command, why)
}

/// The driver serves a data plane until that ends.
fn ended() -> DataPlane {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (driver, _sent, record) = crate::driver::tests::recorded("192.0.2.1", "");
        record.raise(Notice::Ended);
        driver.serve_plane().await;
    });
    DataPlane::Ended
}

/// The configuration names an engine that this program or machine lacks.
fn engine_unused() -> DataPlane {
    let missing = EngineId::ALL.into_iter().find(|engine| engine.missing().is_some());
    let selection = Engines::select(&mut || 0, Some(missing.expect("an engine that is not here")));
    engine_doubts(&selection).remove(0)
}

/// Another program sets the device down; then `before` runs, and the data plane looks.
fn look_at_changed_device(before: impl FnOnce() + Send) -> Restored {
    in_namespace(|| {
        let config = TunConfig { name: "ipsec0".into(), ..TunConfig::default() };
        let tun = Tun::create(&config).unwrap();
        run("ip link set ipsec0 down");
        before();
        match device::look(&mut Netlink::open().unwrap(), &config, tun.index()) {
            Device::There(restored) => restored,
            Device::Gone => panic!("the device is there"),
        }
    })
}

/// All offloads.
fn granted() -> Offloads {
    Offloads {
        tun: TunOffloads { checksum: true, tso: true, uso: true },
        segments: 128,
        gro: true,
        ..Offloads::default()
    }
}

fn shortfall(got: Offloads) -> DataPlane {
    got.shortfalls(&Tuning::default()).remove(0)
}

fn veth(name: &str) {
    run(&format!("ip link add {name} type veth peer name other"));
    run(&format!("ip link set {name} up"));
}

fn run(line: &str) {
    let mut words = line.split(' ');
    let done = Program::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}
