//! Engines of a run: those that work in the processor that asks, and a device beside it.

use std::thread;

use ironswan_crypto::engines::{EngineId, Engines};
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

use crate::error::{LabError, Remedy};

/// Stands for all ways to ask the device.
const CRYPTODEV: &str = "cryptodev";

/// Who does the work of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// An engine of ours: a call ends with the result.
    Processor(EngineId),
    /// DPDK's cryptodev: requests are put in a queue, and asked for later.
    Device(Ask),
}

/// How a thread learns that the device has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// There is one thread. It asks, and the software behind the queue works within that call.
    Inline,
    /// The device has a thread of its own. The other one asks all the time.
    Poll,
    /// The device has a thread of its own. The other one sleeps until it is woken.
    Wait,
}

impl Ask {
    const ALL: [Self; 3] = [Self::Inline, Self::Poll, Self::Wait];
}

impl Engine {
    /// As options and records write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Processor(id) => id.name(),
            Self::Device(Ask::Inline) => "cryptodev-inline",
            Self::Device(Ask::Poll) => "cryptodev-poll",
            Self::Device(Ask::Wait) => "cryptodev-wait",
        }
    }

    /// True when it does packets of this suite and size itself.
    pub(super) fn has(self, suite: &EspSuite, size: usize) -> bool {
        match self {
            // An engine that lacks a suite would have aws-lc do it.
            Self::Processor(id) => Engines::only(id).engine(suite, size) == id,
            Self::Device(_) => {
                let kind = (suite.encr, suite.integ);
                kind == (EncrId::AES_GCM_16, None)
                    || kind == (EncrId::AES_CBC, Some(IntegId::HMAC_SHA2_256_128))
            }
        }
    }
}

/// The engines of these names; those of the processor without any. The device has to be named: it
/// brings DPDK into the process.
pub(super) fn named(names: &[String]) -> Result<Vec<Engine>, LabError> {
    if names.is_empty() {
        return Ok(EngineId::available().map(Engine::Processor).collect());
    }
    let mut all = Vec::new();
    for name in names {
        let asks = Ask::ALL.map(Engine::Device);
        let device = asks.into_iter().filter(|e| name == CRYPTODEV || e.name() == name);
        let before = all.len();
        all.extend(device);
        if all.len() == before {
            let unknown = !EngineId::ALL.iter().any(|id| id.name() == name);
            let more = if unknown { ", cryptodev" } else { "" };
            let id = name.parse().map_err(|why| LabError::Usage(format!("{why}{more}")))?;
            all.push(Engine::Processor(id));
        }
    }
    super::once(&mut all);
    Ok(all)
}

/// Starts the device when one of these engines is it.
pub(super) fn start(engines: impl Iterator<Item = Engine>) -> Result<(), LabError> {
    let asks: Vec<Ask> = engines
        .filter_map(|engine| match engine {
            Engine::Device(ask) => Some(ask),
            Engine::Processor(_) => None,
        })
        .collect();
    if asks.is_empty() {
        return Ok(());
    }
    let unfit = |lack: String, remedy: String| LabError::Unfit(vec![Remedy::new(lack, remedy)]);
    ironswan_cryptodev::start(ironswan_cryptodev::DEVICE)
        .map_err(|fault| unfit(format!("the engine cryptodev: {}", fault.lack), fault.remedy))?;
    let processors = thread::available_parallelism().map_or(1, |n| n.get());
    if processors < 2 && asks.iter().any(|ask| *ask != Ask::Inline) {
        return Err(unfit(
            "cryptodev-poll and cryptodev-wait: the thread that stands for the device needs a second processor".into(),
            "name --engine cryptodev-inline, or let the laboratory have two processors".into(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    fn names(list: &[&str]) -> Result<Vec<&'static str>, LabError> {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        Ok(named(&list)?.into_iter().map(Engine::name).collect())
    }

    #[test]
    fn the_device_is_named_as_a_whole_or_by_how_it_is_asked() {
        let device = ["cryptodev-inline", "cryptodev-poll", "cryptodev-wait"];
        assert_eq!(names(&["cryptodev"]).expect("engines"), device);
        assert_eq!(names(&["cryptodev-wait", "aws-lc"]).expect("engines"), ["cryptodev-wait", "aws-lc"]);
        assert_eq!(names(&["cryptodev-poll", "cryptodev"]).expect("engines").len(), 3);
        let own = names(&[]).expect("engines");
        assert!(own[0] == "aws-lc" && !own.iter().any(|name| name.starts_with("cryptodev")), "{own:?}");
        let why = names(&["steam"]).expect_err("no engine").to_string();
        assert!(why.contains("no engine 'steam'") && why.ends_with(", cryptodev"), "{why}");
    }

    #[test]
    fn the_device_has_aes_gcm_and_aes_cbc_with_sha_256() {
        let device = Engine::Device(Ask::Poll);
        let has = |name: &&str| device.has(&suite::by_name(name).expect("a suite"), 64);
        let all: Vec<&str> = suite::ALL.into_iter().filter(has).collect();
        assert_eq!(all, ["aes128gcm16", "aes192gcm16", "aes256gcm16", "aes128-sha256", "aes256-sha256"]);
    }

    #[cfg(not(feature = "cryptodev"))]
    #[test]
    fn a_device_that_is_not_built_in_is_refused_with_the_way_to_build_it_in() {
        let why = start([Engine::Device(Ask::Inline)].into_iter()).expect_err("not built in");
        let text = why.to_string();
        assert_eq!(why.exit_code(), 2);
        assert!(text.contains("the engine cryptodev: not built in"), "{text}");
        assert!(text.contains("x86-64 alone") || text.contains("--features cryptodev"), "{text}");
    }
}
