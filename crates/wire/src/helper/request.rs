//! Questions and orders of the daemon.

use std::net::IpAddr;

use super::fields::{address, ended, flag, named, put, put_address};
use super::{MAX_HOST, MAX_NAME, MAX_PATH, MessageError};
use crate::fetched::{MAX_SENT, MAX_URI};
use crate::read::{Reader, Writer};

/// Runs of `nft` that the helper starts. The arguments of each are the helper's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NftRun {
    /// Shows the version.
    Version,
    /// Carries out the script on standard input.
    Script,
    /// Lists the counters of the guard's table.
    Counters,
    /// Lists the names of all tables.
    Tables,
    /// Lists the rules of all tables.
    Ruleset,
    /// Lists the guard's table.
    Table,
    /// Lists the rules of all tables with their handles.
    Handles,
}

/// All runs, by their number on the wire.
pub(super) const NFT_RUNS: [NftRun; 7] = [
    NftRun::Version,
    NftRun::Script,
    NftRun::Counters,
    NftRun::Tables,
    NftRun::Ruleset,
    NftRun::Table,
    NftRun::Handles,
];

/// A setting of the TUN device, with the one value that it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceSetting {
    /// `rp_filter` becomes 0.
    ReversePath,
    /// `src_valid_mark` becomes 1.
    ValidMark,
}

/// A question or an order of the daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Opens a regular file for reading: `Reply::Done` with its descriptor.
    Open(Vec<u8>),
    /// Resolves a path: `Reply::Path`.
    Canonical(Vec<u8>),
    /// Says whether there is something under this name: `Reply::Flag`.
    Exists(Vec<u8>),
    /// Lists a folder: `Reply::Flag`, whether there is one, with the descriptor of a file that
    /// holds its paths, each followed by a 0.
    List(Vec<u8>),
    /// Looks for the program `nft`: `Reply::Path`, empty when there is none.
    FindNft,
    /// Runs the program that [`Request::FindNft`] has found, with three descriptors: standard
    /// input, output and error. Ends it after this many seconds. `Reply::Ended`.
    RunNft {
        /// The run.
        run: NftRun,
        /// Seconds that it may take.
        seconds: u8,
    },
    /// Opens the TUN device of this name, or makes it: `Reply::Done` with its descriptor.
    OpenTun(Vec<u8>),
    /// Changes a setting of the TUN device of this name: `Reply::Done`.
    SetDevice {
        /// Name of the device.
        name: Vec<u8>,
        /// The setting.
        setting: DeviceSetting,
    },
    /// Lets kernel threads poll an interface, or softirqs: `Reply::Done`.
    SetThreaded {
        /// Name of the interface.
        name: Vec<u8>,
        /// Its index.
        index: u32,
        /// Its address in the link layer, at most 32 bytes.
        address: Vec<u8>,
        /// True for kernel threads.
        on: bool,
    },
    /// Says whether the kernel takes programs with loops from the helper: `Reply::Flag`.
    MayLoop,
    /// Makes a counter for programs at the ingress: `Reply::Done` with the descriptor of its map.
    MakeCounter,
    /// Reads such a counter, whose descriptor comes with the request: `Reply::Count`.
    ReadCounter,
    /// Finds the counter of the guard's program with this number: `Reply::Done` with the
    /// descriptor of its map.
    CounterOf(u32),
    /// Loads the guard's program for a filter. With two descriptors: a file with the filter, and
    /// the map of its counter. `Reply::Done` with the descriptor of the program.
    LoadIngress,
    /// Counts the programs in front of tc at the interface with this index: `Reply::Count`.
    CountTcx(u32),
    /// Makes the maps of an XDP program with this many queues: `Reply::Done` with the descriptors
    /// of the map of addresses and the map of sockets.
    MakeXdpMaps(u32),
    /// Loads the XDP program over two maps, whose descriptors come with the request:
    /// `Reply::Done` with the descriptor of the program.
    LoadXdp {
        /// Address of the interface in the link layer.
        mac: [u8; 6],
        /// Longest frame that the sockets can take, in bytes.
        frame: u16,
        /// UDP port of encapsulated ESP.
        port: u16,
        /// ESP without UDP is taken too.
        raw_esp: bool,
    },
    /// Puts a socket into the map of sockets, at this queue. With two descriptors: the map, and the
    /// socket. `Reply::Done`.
    SetXdpSocket(u32),
    /// Adds an address to a map of addresses, whose descriptor comes with the request, or takes it
    /// away: `Reply::Done`.
    SetXdpAddress {
        /// The address.
        address: IpAddr,
        /// True to add it.
        ours: bool,
    },
    /// Attaches an XDP program, whose descriptor comes with the request, to an interface:
    /// `Reply::Done` with the descriptor that keeps it there.
    AttachXdp {
        /// Index of the interface.
        index: u32,
        /// Behind the driver, not in it.
        generic: bool,
    },
    /// Gives a thread of the daemon a nice value: `Reply::Done`.
    SetNice {
        /// Number of the thread.
        thread: u32,
        /// The value, -20 to 19.
        nice: i8,
    },
    /// Asks the resolver for the addresses of a host. The fetcher carries this out, and nothing
    /// else: `Reply::Addresses`.
    Resolve(Vec<u8>),
    /// Gets a document from a server of the web, or what the server answers to a request of OCSP.
    /// The fetcher carries this out: `Reply::Done` with the descriptor of a file that holds the
    /// body, or `Reply::NotFetched`.
    Fetch {
        /// URI, of `http`.
        uri: Vec<u8>,
        /// The configuration names the place, not a certificate: the place may be this machine.
        ours: bool,
        /// Time for everything, in milliseconds.
        milliseconds: u16,
        /// Request of OCSP to POST. Empty: GET.
        request: Vec<u8>,
    },
    /// Makes the socket file of a control socket, and listens: `Reply::Done` with the socket.
    Listen {
        /// Path of the file.
        path: Vec<u8>,
        /// Number of the group whose members may connect. `None`: root alone.
        group: Option<u32>,
    },
    /// Removes a file that [`Request::Listen`] has made: `Reply::Done`.
    Unlisten(Vec<u8>),
    /// Opens the file of the QCD secret for reading, and makes it first where there is none. The
    /// helper does so once: `Reply::Done` with its descriptor.
    QcdSecret(Vec<u8>),
    /// Binds a UDP socket, whose descriptor comes with the request, to a port of all addresses:
    /// `Reply::Done`.
    BindUdp {
        /// IPv6, or IPv4.
        ipv6: bool,
        /// The port.
        port: u16,
    },
}

impl Request {
    /// The number of descriptors that travel with the request, without the reply socket.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::RunNft { .. } => 3,
            Self::LoadIngress | Self::LoadXdp { .. } | Self::SetXdpSocket(_) => 2,
            Self::ReadCounter
            | Self::SetXdpAddress { .. }
            | Self::AttachXdp { .. }
            | Self::BindUdp { .. } => 1,
            _ => 0,
        }
    }

    /// The bytes of the request.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        match self {
            Self::Open(path) => {
                w.u8(1);
                put(&mut w, path);
            }
            Self::Canonical(path) => {
                w.u8(2);
                put(&mut w, path);
            }
            Self::Exists(path) => {
                w.u8(3);
                put(&mut w, path);
            }
            Self::List(path) => {
                w.u8(4);
                put(&mut w, path);
            }
            Self::FindNft => w.u8(6),
            Self::RunNft { run, seconds } => {
                w.u8(7);
                w.u8(NFT_RUNS.iter().position(|r| r == run).map_or(u8::MAX, |n| n as u8));
                w.u8(*seconds);
            }
            Self::OpenTun(name) => {
                w.u8(8);
                put(&mut w, name);
            }
            Self::SetDevice { name, setting } => {
                w.u8(9);
                put(&mut w, name);
                w.u8(match setting {
                    DeviceSetting::ReversePath => 0,
                    DeviceSetting::ValidMark => 1,
                });
            }
            Self::SetThreaded { name, index, address, on } => {
                w.u8(10);
                put(&mut w, name);
                w.u32(*index);
                put(&mut w, address);
                w.u8(u8::from(*on));
            }
            Self::MayLoop => w.u8(11),
            Self::MakeCounter => w.u8(12),
            Self::ReadCounter => w.u8(13),
            Self::CounterOf(program) => {
                w.u8(14);
                w.u32(*program);
            }
            Self::LoadIngress => w.u8(15),
            Self::CountTcx(index) => {
                w.u8(16);
                w.u32(*index);
            }
            Self::MakeXdpMaps(queues) => {
                w.u8(17);
                w.u32(*queues);
            }
            Self::LoadXdp { mac, frame, port, raw_esp } => {
                w.u8(18);
                w.bytes(mac);
                w.u16(*frame);
                w.u16(*port);
                w.u8(u8::from(*raw_esp));
            }
            Self::SetXdpSocket(queue) => {
                w.u8(19);
                w.u32(*queue);
            }
            Self::SetXdpAddress { address, ours } => {
                w.u8(20);
                put_address(&mut w, *address);
                w.u8(u8::from(*ours));
            }
            Self::AttachXdp { index, generic } => {
                w.u8(21);
                w.u32(*index);
                w.u8(u8::from(*generic));
            }
            Self::Listen { path, group } => {
                w.u8(22);
                put(&mut w, path);
                w.u8(u8::from(group.is_some()));
                w.u32(group.unwrap_or(0));
            }
            Self::Unlisten(path) => {
                w.u8(23);
                put(&mut w, path);
            }
            Self::Resolve(name) => {
                w.u8(26);
                put(&mut w, name);
            }
            Self::Fetch { uri, ours, milliseconds, request } => {
                w.u8(27);
                put(&mut w, uri);
                w.u8(u8::from(*ours));
                w.u16(*milliseconds);
                put(&mut w, request);
            }
            Self::QcdSecret(path) => {
                w.u8(28);
                put(&mut w, path);
            }
            Self::SetNice { thread, nice } => {
                w.u8(25);
                w.u32(*thread);
                w.u8(nice.cast_unsigned());
            }
            Self::BindUdp { ipv6, port } => {
                w.u8(24);
                w.u8(u8::from(*ipv6));
                w.u16(*port);
            }
        }
        out
    }

    /// Reads a request.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut r = Reader::new(bytes);
        let request = match r.u8("kind of request")? {
            1 => Self::Open(named(&mut r, MAX_PATH, "path")?),
            2 => Self::Canonical(named(&mut r, MAX_PATH, "path")?),
            3 => Self::Exists(named(&mut r, MAX_PATH, "path")?),
            4 => Self::List(named(&mut r, MAX_PATH, "path")?),
            6 => Self::FindNft,
            7 => {
                let number = usize::from(r.u8("run of nft")?);
                let run = *NFT_RUNS.get(number).ok_or(MessageError::Value("run of nft"))?;
                Self::RunNft { run, seconds: r.u8("seconds")? }
            }
            8 => Self::OpenTun(named(&mut r, MAX_NAME, "name")?),
            9 => {
                let name = named(&mut r, MAX_NAME, "name")?;
                let setting = match flag(&mut r, "setting")? {
                    false => DeviceSetting::ReversePath,
                    true => DeviceSetting::ValidMark,
                };
                Self::SetDevice { name, setting }
            }
            10 => {
                let name = named(&mut r, MAX_NAME, "name")?;
                let index = r.u32("index")?;
                let len = usize::from(r.u16("address")?);
                if len > 32 {
                    return Err(MessageError::Value("address"));
                }
                let address = r.bytes(len, "address")?.to_vec();
                Self::SetThreaded { name, index, address, on: flag(&mut r, "flag")? }
            }
            11 => Self::MayLoop,
            12 => Self::MakeCounter,
            13 => Self::ReadCounter,
            14 => Self::CounterOf(r.u32("program")?),
            15 => Self::LoadIngress,
            16 => Self::CountTcx(r.u32("index")?),
            17 => Self::MakeXdpMaps(r.u32("queues")?),
            18 => Self::LoadXdp {
                mac: r.array("address")?,
                frame: r.u16("frame")?,
                port: r.u16("port")?,
                raw_esp: flag(&mut r, "flag")?,
            },
            19 => Self::SetXdpSocket(r.u32("queue")?),
            20 => Self::SetXdpAddress { address: address(&mut r)?, ours: flag(&mut r, "flag")? },
            21 => Self::AttachXdp { index: r.u32("index")?, generic: flag(&mut r, "flag")? },
            22 => {
                let path = named(&mut r, MAX_PATH, "path")?;
                let shared = flag(&mut r, "flag")?;
                let group = r.u32("group")?;
                if !shared && group != 0 {
                    return Err(MessageError::Value("group"));
                }
                Self::Listen { path, group: shared.then_some(group) }
            }
            23 => Self::Unlisten(named(&mut r, MAX_PATH, "path")?),
            24 => Self::BindUdp { ipv6: flag(&mut r, "flag")?, port: r.u16("port")? },
            25 => Self::SetNice {
                thread: r.u32("thread")?,
                nice: match r.u8("nice value")?.cast_signed() {
                    nice @ -20..=19 => nice,
                    _ => return Err(MessageError::Value("nice value")),
                },
            },
            26 => Self::Resolve(named(&mut r, MAX_HOST, "name")?),
            27 => Self::Fetch {
                uri: named(&mut r, MAX_URI, "URI")?,
                ours: flag(&mut r, "flag")?,
                milliseconds: r.u16("time")?,
                request: {
                    let len = usize::from(r.u16("request of OCSP")?);
                    if len > MAX_SENT {
                        return Err(MessageError::Value("request of OCSP"));
                    }
                    r.bytes(len, "request of OCSP")?.to_vec()
                },
            },
            28 => Self::QcdSecret(named(&mut r, MAX_PATH, "path")?),
            _ => return Err(MessageError::Value("kind of request")),
        };
        ended(&r)?;
        Ok(request)
    }
}
