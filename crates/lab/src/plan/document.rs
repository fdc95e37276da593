//! An answer as a JSON document. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use super::answer::{Carried, Need};
use super::ask::Ask;
use super::calm::{Agreement, Calm};
use super::mix::Mix;
use super::model::{Model, Path, System};
pub use super::schemas::ANSWER_SCHEMA;
use crate::machine::Fingerprint;
use crate::schema::{TIME, never_negative};

/// An answer as a JSON document.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["carries"] }, { "required": ["needs"] }]))]
pub struct Document {
    /// [`ANSWER_SCHEMA`].
    #[schemars(extend("const" = ANSWER_SCHEMA))]
    pub schema: String,
    /// The model that answers.
    pub model: Source,
    /// Differences between the machine of the model and this one.
    pub another_machine: Vec<String>,
    /// Doubts about the model.
    pub warnings: Vec<String>,
    /// Questions that lie outside of what was measured.
    pub extrapolation: Vec<String>,
    /// The question.
    pub asked: Asked,
    /// The answer for people, by line.
    pub lines: Vec<String>,
    /// Rates that the machine carries, where they were asked for.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carries: Option<Vec<Carried>>,
    /// Needs of links, where they were asked for.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Vec<Needed>>,
}

/// The model of an answer.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Source {
    /// When it was made, UTC, RFC 3339.
    #[schemars(regex(pattern = TIME))]
    pub made: String,
    /// Version of the program that made it.
    #[schemars(length(min = 1))]
    pub version: String,
    /// The system that it is of where that is not IronSwan.
    pub system: Option<System>,
    /// Its machine.
    pub machine: Fingerprint,
    /// State of the machine when it was made.
    pub calm: Option<Calm>,
    /// Its answers beside those of the calibration before it.
    pub agreement: Option<Agreement>,
}

impl From<&Model> for Source {
    fn from(model: &Model) -> Self {
        Self {
            made: model.made.clone(),
            version: model.program.version.clone(),
            system: model.system.clone(),
            machine: model.machine.clone(),
            calm: model.calm,
            agreement: model.agreement.clone(),
        }
    }
}

/// The question of an answer, but for suites, mixes and links.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Asked {
    /// How ESP is carried.
    pub path: Path,
    /// Tunnels.
    #[schemars(range(min = 1))]
    pub tunnels: u32,
    /// Seconds between two rekeyings of a tunnel.
    pub rekey_seconds: f64,
    /// All tunnels come up within so many seconds.
    pub setup_storm_seconds: Option<f64>,
    /// Share of the processors that a firewall and all else leave.
    pub share: f64,
    /// Safety factor.
    pub safety: f64,
    /// Processors; those of the calibrated machine when absent.
    pub cores: Option<f64>,
    /// Clock, GHz; that of the calibrated machine when absent.
    pub ghz: Option<f64>,
    /// Outer packets are IPv6.
    pub ipv6: bool,
    /// Packets that come at once.
    #[schemars(range(min = 1))]
    pub burst: u32,
    /// Flows; as many as the calibration sent when absent.
    pub flows: Option<u32>,
    /// Seconds between two NAT keepalives of a peer; absent without a NAT.
    pub keepalive_seconds: Option<f64>,
}

impl From<&Ask> for Asked {
    fn from(ask: &Ask) -> Self {
        Self {
            path: ask.path,
            tunnels: ask.tunnels,
            rekey_seconds: ask.rekey,
            setup_storm_seconds: ask.storm,
            share: ask.share,
            safety: ask.safety,
            cores: ask.cores,
            ghz: ask.ghz,
            ipv6: ask.ipv6,
            burst: ask.burst,
            flows: ask.flows,
            keepalive_seconds: ask.keepalive,
        }
    }
}

/// Needs of one link with a suite and a mix.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Needed {
    /// Name or rate of the link.
    #[schemars(length(min = 1))]
    pub link: String,
    /// The suite.
    #[schemars(length(min = 1))]
    pub suite: String,
    /// The packets.
    pub mix: Mix,
    /// The answer.
    pub need: Need,
}
