//! Cases of the area this machine.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use ironswan_io::poller::{Poller, Waker};
use ironswan_io::route::Netlink;
use ironswan_io::tun::{Tun, TunConfig};
use ironswan_io::udp::{UdpConfig, UdpSocket};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::MachineEntry;
use ironswan_testkit::scratch::Scratch;

use super::super::{no_thread, of_kernel};
use super::{command, in_namespace, without_capabilities};
use crate::control::Listener;
use crate::guard::shared::SharedGuard;
use crate::guard::standing::LogLine;
use crate::network::tests::{Fake, Table};
use crate::start::qcd_secret::QcdSecret;

pub(super) fn happens(entry: MachineEntry) -> Diagnosis {
    match entry {
        MachineEntry::NoTun => in_namespace(|| {
            command("mount -t tmpfs none /dev/net");
            tun("ipsec0").unwrap_err()
        }),
        MachineEntry::NoPrivilege => in_namespace(|| {
            without_capabilities();
            udp(500, false).unwrap_err()
        }),
        MachineEntry::DeviceBusy => in_namespace(|| {
            command("ip link add ipsec0 type veth peer name other");
            tun("ipsec0").unwrap_err()
        }),
        MachineEntry::DeviceName => in_namespace(|| tun("a name/with a slash").unwrap_err()),
        MachineEntry::PortInUse => in_namespace(|| {
            let _first = udp(500, false).unwrap();
            udp(500, false).unwrap_err()
        }),
        // Only a kernel without the family gives this answer.
        MachineEntry::NoFamily => of_kernel(&ironswan_io::Error::NoFamily { ipv6: true }),
        MachineEntry::NoInterface => in_namespace(|| {
            let asked = Netlink::open().unwrap().link("nosuch0");
            of_kernel(&asked.unwrap_err())
        }),
        MachineEntry::KernelRefused => in_namespace(|| {
            without_capabilities();
            let changed = Netlink::open().unwrap().set_link(1, 1500, 1000, true);
            of_kernel(&changed.unwrap_err())
        }),
        MachineEntry::AnswerUnknown => {
            let kernel = Table { puzzles: true, path_mtu: 1500, ..Table::default() };
            let asked = guard_over(kernel).lookup("192.0.2.2".parse().unwrap(), None);
            of_kernel(&asked.unwrap_err())
        }
        MachineEntry::AnswerIncomplete => {
            let lines = vec!["of the rules, 1 is left out".to_owned()];
            let guard = guard_over(Table { left_out: lines, ..Table::default() });
            guard.restore().unwrap();
            failure(&guard)
        }
        MachineEntry::SystemCall => {
            let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
            poller.add(&waker, 0).unwrap();
            // The kernel refuses a descriptor that it waits for already.
            of_kernel(&poller.add(&waker, 1).unwrap_err())
        }
        MachineEntry::NoThread => {
            let thread = std::thread::Builder::new().stack_size(1 << 60).spawn(|| ());
            no_thread("reads files")(thread.unwrap_err())
        }
        MachineEntry::ViciSocket => {
            let dir = Scratch::new();
            Listener::bind(&dir.path().join("no/such/x.vici")).unwrap_err().into()
        }
        MachineEntry::QcdSecret => {
            let path = Path::new("/dev/null");
            QcdSecret::of(path, File::open(path).unwrap()).err().expect("a reason").into()
        }
    }
}

fn tun(name: &str) -> Result<Tun, Diagnosis> {
    let config = TunConfig { name: name.to_owned(), ..TunConfig::default() };
    Tun::create(&config).map_err(|e| of_kernel(&e))
}

fn udp(port: u16, ipv6: bool) -> Result<UdpSocket, Diagnosis> {
    UdpSocket::bind(UdpConfig::ike(ipv6, port, 0x220)).map_err(|e| of_kernel(&e))
}

/// The guard over a kernel that only remembers.
pub(crate) fn guard_over(kernel: Table) -> SharedGuard {
    let standing = crate::driver::tests::standing_guard();
    SharedGuard::new(standing, Box::new(Fake(Rc::new(RefCell::new(kernel)))))
}

/// The first failure that the guard has for the log.
pub(super) fn failure(guard: &SharedGuard) -> Diagnosis {
    let lines = guard.change(|guard, _| guard.take_log());
    let failure = lines.into_iter().find_map(|line| match line {
        LogLine::Failure(why) => Some(why),
        LogLine::Text(_) => None,
    });
    failure.expect("a failure was logged")
}
