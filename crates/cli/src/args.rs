//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use ironswan_gateway::start::run::{DEFAULT_CONFIG, DEFAULT_VICI};

/// IPsec gateway: IKEv2, ESP in user space, and a laboratory to measure it.
#[derive(Parser, Debug)]
#[command(name = "ironswan", version, max_term_width = 100, after_help = EXIT)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT: &str = "Exit status: 0 success, 1 the answer is no, 2 usage or configuration error.\n\
    Every command has --help with an example.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Runs the gateway in the foreground
    #[command(
        after_help = "Example:\n  ironswan run --config /etc/ironswan\n\nSIGHUP reloads what has changed; SIGTERM deletes \
        the SAs and cleans up."
    )]
    Run(Run),
    /// Keeps privileges for the daemon, which starts it
    #[command(
        hide = true,
        after_help = "Example:\n  ironswan run\n\nstarts it, and it ends with the daemon."
    )]
    Helper(Helper),
    /// Looks names up for the daemon, which starts it
    #[command(
        hide = true,
        after_help = "Example:\n  ironswan run\n\nstarts it, and it ends with the daemon."
    )]
    Fetcher(Fetcher),
    /// Brings a tunnel up and shows the negotiation
    #[command(
        after_help = "Example:\n  ironswan up net --timeout 10\n\nThe last line says why, when it does not come up."
    )]
    Up(Operate),
    /// Takes a tunnel down: the connection of that name, or else the child
    #[command(after_help = "Example:\n  ironswan down net")]
    Down(Operate),
    /// Rekeys the CHILD_SAs of that name or of that connection, or with --ike the IKE_SA
    #[command(after_help = "Examples:\n  ironswan rekey net\n  ironswan rekey net --ike")]
    Rekey(Rekey),
    /// Makes a child's traffic bring its tunnel up, as `start_action = trap` does; for a shunt,
    /// installs it
    #[command(
        after_help = "Example:\n  ironswan route net\n\nUntil `ironswan unroute net`, a change of the connection, or the end of the daemon."
    )]
    Route(Named),
    /// Removes the trap or the shunt of a child; SAs stay
    #[command(after_help = "Example:\n  ironswan unroute net")]
    Unroute(Named),
    /// The daemon's latest log lines, and those that come
    #[command(
        after_help = "Examples:\n  ironswan log --conn net\n  ironswan log -f --peer 192.0.2.2\n  ironswan log --conn net --level debug --for 10m\n\n\
        The daemon keeps 1 MiB of lines. With --level it writes more of that connection or peer, into its log as well, until the time \
        is over or this command ends."
    )]
    Log(Log),
    /// One line per tunnel, bad ones first; with a name, all about one connection
    #[command(
        after_help = "Examples:\n  ironswan status\n  ironswan status net --json\n  ironswan status --check\n\n--check says nothing and \
        ends with exit status 0 when all that is wanted is up; else it names what is not, and ends with 1."
    )]
    Status(Status),
    /// What the gateway carries now: rates, drops, work of the threads, what is down and why
    #[command(
        after_help = "Examples:\n  ironswan top\n  ironswan top --once\n\nOn a terminal, pages follow each other until q or Ctrl-C. \
        Keys: b sorts by rate, n by name, arrows scroll, p pauses. Elsewhere it prints one page, as with --once."
    )]
    Top(Top),
    /// Why a tunnel is as it is, what a peer has been seen to do, or why a packet does not pass
    #[command(
        after_help = "Examples:\n  ironswan explain branch7\n  ironswan explain --peer 198.51.100.2\n  ironswan explain --packet \
        '10.1.0.9 > 10.2.5.1 tcp 443'\n  ironswan explain --packet '[fd00::9]:50000 > [fd01::1]:443 tcp' --json\n  ironswan \
        explain --packet '10.1.0.9 > 10.2.5.1 icmp len 1400 df'\n  ironswan explain --packet '10.1.0.9 > 10.2.5.1 udp 53' \
        --live\n\nExit status 0 when all is well, or the packet would pass; 1 when not. --live follows the packets of the \
        flow, and names a rule of another nft table that drops them."
    )]
    Explain(Explain),
    /// Puts a tunnel to the test: up, ports, both rekeyings, MTU, traffic; then all as before
    #[command(
        after_help = "Examples:\n  ironswan prove branch7\n  ironswan prove branch7 --reach 10.2.0.10:22\n\nEach line is passed, or has \
        the reason. Traffic is a TCP connection to a host behind the peer: whether that accepts or refuses it does not matter."
    )]
    Prove(Prove),
    /// Tables: connections, SAs, policies, counters, algorithms, certificates, pools
    #[command(
        after_help = "Examples:\n  ironswan list sas\n  ironswan list counters --json\n  ironswan list certs"
    )]
    List(List),
    /// Writes packets into a file for Wireshark: inner and outer, each with what became of it
    #[command(
        after_help = "Examples:\n  ironswan capture net -w net.pcapng --for 1m\n  ironswan capture net -w - | tshark -r - -P -V\n  \
        ironswan capture --drops -w drops.pcapng --packets 1000\n\nThe file shows what the tunnel carries, in clear. What did not fit is \
        counted and said at the end. It never holds a packet of the gateway up."
    )]
    Capture(Capture),
    /// Checks a configuration without a daemon
    #[command(
        after_help = "Examples:\n  ironswan check\n  ironswan check /etc/ironswan conf.d/new.conf\n  ironswan check --algorithms\n\n\
        Each finding is one line: file:line: key: what is wrong; what to do. Exit status 1 when one is an error (with --strict \
        also a warning), 2 when nothing could be read. Algorithms that RFC 8221 and RFC 8247 say SHOULD NOT or MUST NOT of are warned about."
    )]
    Check(Check),
    /// Is this machine fit to be a gateway? Names what is in the way, and what to do about it
    #[command(
        after_help = "Examples:\n  ironswan doctor\n  ironswan doctor --config /etc/ironswan --json\n\nWorks with a daemon and without. \
        What only root may see is said to be not checked. Exit status 0 when nothing is a problem, 1 when something is."
    )]
    Doctor(Doctor),
    /// Gathers all that a helper needs to know in one archive, without secrets (root)
    #[command(
        after_help = "Examples:\n  ironswan report\n  ironswan report -o /tmp/report.tar.gz\n\nSecrets are hashes under a key that is gone \
        when the report is made: equal ones show as equal. Files of private keys are not in it. Look at it before you send it."
    )]
    Report(Report),
    /// Keys, certificates, requests and revocation lists: makes, shows and verifies them
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  ironswan pki psk\n  ironswan pki gen --out gw.key\n  ironswan pki print gw.crt\n\n`ironswan pki --help` \
        lists the commands. They are those of the program ironswan-pki, beside this one or on PATH."
    )]
    Pki(Passed),
    /// Shows, or removes, what keeps protected traffic from leaving or entering in clear, with a
    /// daemon or without (root)
    #[command(
        after_help = "Examples:\n  ironswan guard\n  ironswan guard --remove\n  ironswan guard --install --config \
        /etc/ironswan\n\n--install is what ironswan-guard.service does at boot, before the network is up."
    )]
    Guard(Guard),
    /// Two gateways in network namespaces on this machine, IKEv2, TCP through ESP, a table; under a
    /// minute (root)
    #[command(disable_help_flag = true, after_help = "Example:\n  ironswan demo")]
    Demo(Passed),
    /// Experiments of the laboratory (root)
    #[command(
        disable_help_flag = true,
        after_help = "Example:\n  ironswan lab line --quick\n\n`ironswan lab --help` lists the experiments. The laboratory is the \
        program ironswan-lab, beside this one or on PATH."
    )]
    Lab(Passed),
    /// Plans capacity: the needs of a link and the rates that this machine carries, from a model
    /// fitted to measurements on this machine
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  ironswan plan --calibrate\n  ironswan plan --link 1G --mix imix --tunnels 500\n\n\
        `ironswan plan --help` lists the options."
    )]
    Plan(Passed),
}

/// The socket on which a command finds the daemon.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Daemon {
    /// The daemon's VICI socket
    #[arg(long, value_name = "URI", default_value = DEFAULT_VICI)]
    pub(crate) vici: String,
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Run {
    /// Folder with swanctl.conf, conf.d/*.conf, ironswan.conf
    #[arg(long, value_name = "DIR", default_value = DEFAULT_CONFIG)]
    pub(crate) config: PathBuf,
    /// Address at which VICI listens; several are allowed [default: vici.listen of ironswan.conf,
    /// or unix:///run/ironswan.vici]
    #[arg(long, value_name = "URI")]
    pub(crate) vici: Vec<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Helper {
    /// Folder with the configuration
    #[arg(long, value_name = "DIR", default_value = DEFAULT_CONFIG)]
    pub(crate) config: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Fetcher {
    /// Number of the user that it becomes
    #[arg(long)]
    pub(crate) uid: u32,
    /// Number of the user's group
    #[arg(long)]
    pub(crate) gid: u32,
    /// It may make any system call
    #[arg(long)]
    pub(crate) any_call: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Operate {
    /// Connection or child, or CONNECTION/CHILD
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
    /// Seconds to wait; 0 waits for ever
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub(crate) timeout: u32,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Rekey {
    #[command(flatten)]
    pub(crate) operate: Operate,
    /// Rekey the IKE_SA of the connection
    #[arg(long)]
    pub(crate) ike: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Named {
    /// Child, or CONNECTION/CHILD, or a connection: all its children
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("about").args(["conn", "peer"]).multiple(true))]
pub(crate) struct Log {
    /// Goes on with the lines that come, until it is ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only lines about this connection
    #[arg(long, value_name = "NAME")]
    pub(crate) conn: Option<String>,
    /// Only lines about this peer
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<std::net::IpAddr>,
    /// Raises the level of the log for that connection or peer, and follows
    #[arg(long, value_name = "LEVEL", value_parser = ["error", "warn", "info", "debug"], requires = "time", requires = "about")]
    pub(crate) level: Option<String>,
    /// Time for which the level is raised, such as 90s, 10m, 1h; at most 24h
    #[arg(long = "for", id = "time", value_name = "TIME", value_parser = seconds, requires = "level")]
    pub(crate) time: Option<u64>,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// A time on the command line: a number of seconds, or with `s`, `m` or `h` behind it.
fn seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        _ => (text, 1),
    };
    let seconds = number.parse().ok().and_then(|n: u64| n.checked_mul(unit));
    match seconds {
        Some(seconds @ 1..=86_400) => Ok(seconds),
        Some(_) => Err("write at least 1s and at most 24h".to_owned()),
        None => Err("write a time such as 90s, 10m or 1h".to_owned()),
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Status {
    /// Only this connection
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
    /// Only tunnels that should be up and are not
    #[arg(long)]
    pub(crate) down: bool,
    /// Exit status 1 unless all that is wanted is up
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) daemon: Daemon,
    /// Prints one page of 24 lines, of the rates within one second, and ends
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds from one page to the next
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub(crate) interval: u16,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Explain {
    /// Connection or child, or CONNECTION/CHILD
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
    /// What is known of the peer at this address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "name")]
    pub(crate) peer: Option<std::net::IpAddr>,
    /// Why this packet does not pass: SRC[:PORT] > DST[:PORT] [PROTOCOL [PORT]] [in DEVICE]
    /// [len BYTES] [df]
    #[arg(long, value_name = "PACKET", conflicts_with_all = ["name", "peer"])]
    pub(crate) packet: Option<String>,
    /// Follows the packet's flow through nft for ten seconds
    #[arg(long, requires = "packet", conflicts_with_all = ["name", "peer"])]
    pub(crate) live: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Prove {
    /// Connection, or CONNECTION/CHILD
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
    /// Host behind the peer that answers, ADDRESS or ADDRESS:PORT; may be given several times
    /// [default: the first and last host of each network of the peer, port 443]
    #[arg(long, value_name = "HOST", value_parser = reach)]
    pub(crate) reach: Vec<Reach>,
    /// Seconds that each step may take
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub(crate) timeout: u32,
}

/// A host behind the peer, and a TCP port of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach(pub(crate) std::net::SocketAddr);

fn reach(text: &str) -> Result<Reach, String> {
    let alone = || Ok::<_, std::net::AddrParseError>((text.parse::<std::net::IpAddr>()?, 443).into());
    let addr = text.parse().or_else(|_| alone());
    addr.map(Reach).map_err(|_| "write an address, or an address and a port: 10.2.0.10:22".to_owned())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum What {
    /// Connections and children as loaded
    Conns,
    /// IKE_SAs and CHILD_SAs
    Sas,
    /// Policies: verdict, selectors, whether the engine has them, and the routes, rules and nft
    /// chains that serve them
    Pols,
    /// Everything that is counted, with the reasons for dropping packets
    Counters,
    /// Algorithms and the engines that do them: what the self-test at start measured, and what is
    /// used
    Algs,
    /// Certificates and revocation lists
    Certs,
    /// Pools of addresses for road warriors: not built, so there are none
    Pools,
}

#[derive(clap::Args, Debug)]
pub(crate) struct List {
    /// Table to show
    pub(crate) what: What,
    /// Only this connection
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Capture {
    /// Packets of this connection alone [default: of every connection, and of none]
    pub(crate) name: Option<String>,
    /// Only packets that are dropped, with the reason
    #[arg(long)]
    pub(crate) drops: bool,
    /// The file (pcapng, mode 600); - for standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Writes the KEYS of SAs that are made meanwhile beside it, into the folder FILE.keys, as the
    /// tables that tshark and Wireshark read
    #[arg(long)]
    pub(crate) keys: bool,
    /// Ends after this time, such as 90s, 5m, 2h; at most 24h
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    pub(crate) time: Option<u64>,
    /// Ends after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) packets: Option<u64>,
    /// Bytes of each packet that are kept
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) snaplen: Option<u32>,
    /// The daemon's VICI socket
    #[arg(long, value_name = "URI", default_value = DEFAULT_VICI)]
    pub(crate) vici: String,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Check {
    /// A folder as for `run`, or files in the syntax of swanctl.conf
    #[arg(default_value = DEFAULT_CONFIG)]
    pub(crate) paths: Vec<PathBuf>,
    /// Reads nothing: shows every algorithm that proposals can name, and what the RFCs ask of it
    #[arg(long)]
    pub(crate) algorithms: bool,
    /// Ends with exit status 1 when there is a warning, too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Doctor {
    /// Folder with the configuration
    #[arg(long, value_name = "DIR", default_value = DEFAULT_CONFIG)]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Report {
    /// File to write [default: ironswan-report-TIME.tar.gz in this folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Folder with the configuration
    #[arg(long, value_name = "DIR", default_value = DEFAULT_CONFIG)]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Guard {
    /// Removes the nft table, the rules, and the unreachable and throw routes
    #[arg(long, conflicts_with = "install")]
    pub(crate) remove: bool,
    /// Installs what the configuration protects, for as long as no daemon runs
    #[arg(long)]
    pub(crate) install: bool,
    /// Folder with the configuration
    #[arg(long, value_name = "DIR", default_value = DEFAULT_CONFIG)]
    pub(crate) config: PathBuf,
    /// Address at which a daemon may listen [default: vici.listen of ironswan.conf, or
    /// unix:///run/ironswan.vici]
    #[arg(long, value_name = "URI")]
    pub(crate) vici: Vec<String>,
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of a command that another program carries out.
#[derive(clap::Args, Debug)]
pub(crate) struct Passed {
    /// Arguments for that program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn times_are_seconds_minutes_or_hours_of_a_day_at_most() {
        assert_eq!(["90", "90s", "10m", "24h"].map(seconds), [Ok(90), Ok(90), Ok(600), Ok(86_400)]);
        for bad in ["", "s", "0", "0m", "-1s", "25h", "10d", "1.5m", "18446744073709551615h", "5\u{b5}"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        let parsed = |args: &[&str]| Args::try_parse_from([&["ironswan", "log"], args].concat()).is_ok();
        assert!(parsed(&["-f"]) && parsed(&["--peer", "192.0.2.1", "--level", "debug", "--for", "10m"]));
        assert!(
            !parsed(&["--conn", "a", "--level", "debug"]) && !parsed(&["--level", "debug", "--for", "1m"])
        );
        assert!(!parsed(&["--conn", "a", "--for", "1m"]) && !parsed(&["--peer", "gw.example"]));
    }

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        Args::command().debug_assert();
        let mut todo: Vec<clap::Command> = Args::command().get_subcommands().cloned().collect();
        let mut seen = 0;
        while let Some(c) = todo.pop() {
            let help = c.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", c.get_name());
            todo.extend(c.get_subcommands().cloned());
            seen += 1;
        }
        assert!(seen >= 12);
    }

    #[test]
    fn a_packet_is_explained_without_a_name_or_a_peer_and_only_a_packet_is_followed() {
        let read = |words: &[&str]| Args::try_parse_from([&["ironswan", "explain"], words].concat());
        assert!(read(&["--packet", "10.1.0.9 > 10.2.5.1", "--live"]).is_ok());
        for words in [
            &["net", "--packet", "10.1.0.9 > 10.2.5.1"][..],
            &["--peer", "192.0.2.2", "--packet", "10.1.0.9 > 10.2.5.1"],
            &["net", "--live"],
            &["--live"],
        ] {
            assert!(read(words).is_err_and(|e| e.exit_code() == 2), "{words:?}");
        }
    }
}
