//! `plan`: what a link needs, what this machine carries.

use std::path::PathBuf;
use std::time::Duration;

use crate::plan::ask::{Ask, Demand};
use crate::plan::links;
use crate::plan::mix::Mix;
use crate::plan::model::Path;
use crate::{CalibrateOptions, Draw, PlanOptions, PlanWhat, plan_command};

#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("what"))]
pub(crate) struct Plan {
    /// Measures this machine, in two to three minutes (root); the model stays in
    /// /var/lib/ironswan/plan.json
    #[arg(long, group = "what")]
    calibrate: bool,
    /// Predicts loads that calibration left out, measures them, and shows the errors (root)
    #[arg(long, group = "what")]
    verify: bool,
    /// Answers which rates this machine carries
    #[arg(long, group = "what")]
    this_machine: bool,
    /// Answers what a link needs that is full both ways: 1G, 155.52M, or a name such as OC3
    #[arg(long, group = "what", value_name = "RATE")]
    link: Option<String>,
    /// Answers what links from T1 to 400G need, beside the rule of thumb of FreeS/WAN
    #[arg(long, group = "what")]
    links: bool,
    /// Copies the model to a file, or by a word into the folder of machines
    #[arg(long, group = "what", value_name = "FILE|NAME")]
    export: Option<PathBuf>,
    /// Sites, each with a tunnel to this gateway and with --up and --down
    #[arg(long, default_value_t = 0, conflicts_with_all = ["what", "tunnels"])]
    sites: u64,
    /// Users, each with a tunnel to this gateway and with --up and --down
    #[arg(long, default_value_t = 0, conflicts_with_all = ["what", "tunnels"])]
    users: u64,
    /// Rate that each site and user sends to the gateway in the busiest hour
    #[arg(long, value_name = "RATE")]
    up: Option<String>,
    /// Rate that each site and user receives from the gateway in the busiest hour
    #[arg(long, value_name = "RATE")]
    down: Option<String>,
    /// Outer packets are IPv6
    #[arg(long)]
    ipv6: bool,
    /// Packets that come at once, 1 where they are evenly spaced
    #[arg(long, default_value_t = 1, value_name = "N")]
    burst: u32,
    /// Flows that the packets belong to [default: as many as the calibration sent, 64]
    #[arg(long, value_name = "N")]
    flows: Option<u32>,
    /// Time between two NAT keepalives of a peer behind a NAT: 20s
    #[arg(long, value_name = "TIME")]
    keepalive: Option<String>,
    /// Reasons of the answer, line by line
    #[arg(long)]
    why: bool,
    /// Suites of ESP [default: aes128gcm16; with --this-machine those of the model; with
    /// --calibrate the usual ones]
    #[arg(long, value_delimiter = ',')]
    suite: Vec<String>,
    /// Packets: imix, tcp, a frame size (FCS included), or sizes with weights, 64:7,594:4; several
    /// times for several mixes
    #[arg(long)]
    mix: Vec<String>,
    /// Encapsulation: yes (in UDP), no (raw ESP)
    #[arg(long, default_value = "yes")]
    encap: String,
    /// Tunnels
    #[arg(long, default_value_t = 1)]
    tunnels: u32,
    /// Time between two rekeyings of a tunnel: 30m, 1h
    #[arg(long, default_value = "1h", value_name = "TIME")]
    rekey: String,
    /// All tunnels come up within this time
    #[arg(long, value_name = "TIME")]
    setup_storm: Option<String>,
    /// Share of the processors that a firewall and all else leave
    #[arg(long, default_value_t = 0.5)]
    share: f64,
    /// Safety factor: the load is multiplied by it
    #[arg(long, default_value_t = 1.5, value_name = "FACTOR")]
    safety: f64,
    /// Processors [default: those of the model's machine]
    #[arg(long)]
    cores: Option<f64>,
    /// Clock of the processors, GHz [default: that of the model's machine]
    #[arg(long)]
    ghz: Option<f64>,
    /// Asks another machine's model: a file, a word for one of the folder of machines, or a class
    /// of these: with-vaes, with-aes-ni, without-aes
    #[arg(long, value_name = "FILE|NAME", conflicts_with = "model")]
    machine: Option<PathBuf>,
    /// The model's file
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The ironswan program to measure [default: the one that started this, beside it, or on PATH]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Repeats of each load when measuring
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    repeats: u32,
    /// With --verify, loads that are drawn now: suite, path, sizes, rate, flows
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "40",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    draw: Option<u32>,
    /// Seed of the draw, to measure the same loads again [default: from the clock, and printed]
    #[arg(long, value_name = "NUMBER", requires = "draw")]
    seed: Option<u64>,
    /// With --verify, the folder of a run of `lab rfc2544 --topology single` on this machine: its
    /// highest rates are predicted, too
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Folder for the run: model, answer, record, plots, page
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// With --calibrate, about a minute: one repeat, fewer tunnels, and a warning that says so
    #[arg(long)]
    quick: bool,
    /// With --calibrate, another system than IronSwan, such as strongswan-kernel or
    /// kernel-wireguard: its model is asked with --machine NAME
    #[arg(long, value_name = "NAME")]
    dut: Option<String>,
    /// With --calibrate, two calibrations and a pause between: answers that differ by more than
    /// 10 % are an error
    #[arg(long, value_name = "PAUSE", num_args = 0..=1, default_missing_value = "30m")]
    twice: Option<String>,
    /// With --calibrate, keeps the model of a machine that was disturbed meanwhile: its answers are
    /// all "cannot tell"
    #[arg(long)]
    anyway: bool,
    /// Measures for some seconds: shows that everything works, its figures mean nothing
    #[arg(long)]
    smoke: bool,
    /// With --calibrate or --verify, a CPU soaker beside the loads: a warning where it disagrees
    /// with the kernel's accounting
    #[arg(long)]
    soaker: bool,
    /// Prints one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// `plan`; the exit status.
pub(crate) fn plan(a: Plan) -> i32 {
    match options(a) {
        Ok(o) => plan_command(&o),
        Err(e) => {
            super::complain(format_args!("ironswan plan: error: {e}"));
            2
        }
    }
}

fn options(a: Plan) -> Result<PlanOptions, String> {
    let text = |e: crate::LabError| e.to_string();
    let what = match &a.link {
        Some(rate) => PlanWhat::Link(Demand::full(links::rate(rate).map_err(text)?)),
        None if a.export.is_some() => PlanWhat::Export,
        None if a.calibrate => PlanWhat::Calibrate,
        None if a.verify => PlanWhat::Verify,
        None if a.links => PlanWhat::Links,
        None if a.this_machine => PlanWhat::ThisMachine,
        None => PlanWhat::Link(of_peers(&a)?),
    };
    if a.sites + a.users == 0 && (a.up.is_some() || a.down.is_some()) {
        return Err(
            "--up and --down are the rates of each of --sites or --users: say how many there are".into()
        );
    }
    if a.machine.is_some() && (a.calibrate || a.verify) {
        return Err("--machine: another machine's model is asked with --link, --links, --sites or --users; measure this one \
                    without it"
            .into());
    }
    if a.against.is_some() && !a.verify {
        return Err("--against: it is for --verify, which predicts the rates of that run".into());
    }
    if (a.twice.is_some() || a.anyway || a.dut.is_some()) && !a.calibrate {
        return Err("--twice, --anyway and --dut: they are for --calibrate".into());
    }
    if a.dut.is_some() && a.soaker {
        return Err("--soaker: it checks the calibration of IronSwan; leave it or --dut out".into());
    }
    let twice = a.twice.as_deref().map(|pause| links::seconds(pause).map_err(|e| format!("--twice: {e}")));
    let twice = twice.transpose()?;
    if twice.is_some_and(|pause| !(1.0..=86_400.0).contains(&pause)) {
        return Err("--twice: the pause between two calibrations is 1s to 1d; 30m is usual".into());
    }
    if a.draw.is_some() && !a.verify {
        return Err("--draw: it is for --verify, which measures what it has drawn".into());
    }
    if a.quick && !a.calibrate {
        return Err("--quick: it is for --calibrate".into());
    }
    if a.soaker && !(a.calibrate || a.verify) {
        return Err("--soaker: nothing is measured without --calibrate or --verify".into());
    }
    if a.soaker && a.calibrate && a.model.is_none() {
        // No processor sleeps beside a soaker: wakings cost what they would not without it.
        return Err("--soaker: a calibration beside a soaker checks the method and is no model of this machine; name a file for it \
                    with --model"
            .into());
    }
    let path = match a.encap.as_str() {
        "yes" | "udp" => Path::Udp,
        "no" | "raw" => Path::Raw,
        other => return Err(format!("--encap: `{other}` is not an encapsulation; write yes or no")),
    };
    let machine = a.machine.as_deref().map(crate::plan::store::asked).transpose().map_err(text)?;
    let ask = Ask {
        tunnels: tunnels(&a)?,
        rekey: links::seconds(&a.rekey).map_err(text)?,
        storm: a.setup_storm.as_deref().map(links::seconds).transpose().map_err(text)?,
        share: a.share,
        safety: a.safety,
        cores: a.cores,
        ghz: a.ghz,
        ipv6: a.ipv6,
        burst: a.burst,
        flows: a.flows,
        keepalive: a.keepalive.as_deref().map(links::seconds).transpose().map_err(text)?,
        ..Ask::of("aes128gcm16", path, Mix::imix().shuffled())
    };
    ask.check().map_err(text)?;
    Ok(PlanOptions {
        what,
        ask,
        suites: a.suite,
        mixes: a.mix.iter().map(|m| Mix::parse(m)).collect::<Result<_, _>>().map_err(text)?,
        model: machine.or(a.model),
        why: a.why,
        export: a.export,
        against: a.against,
        drawn: a.draw.map(|count| Draw { count, seed: a.seed.unwrap_or_else(seed) }),
        out: a.out,
        twice: twice.map(Duration::from_secs_f64),
        calibrate: CalibrateOptions {
            program: a.program,
            dut: a.dut,
            repeats: a.repeats,
            quick: a.quick,
            smoke: a.smoke,
            soaker: a.soaker,
            anyway: a.anyway,
            ..CalibrateOptions::default()
        },
        json: a.json,
    })
}

/// A seed that nobody has chosen, and that is short enough to be typed.
fn seed() -> u64 {
    u64::from(crate::clock::since_epoch().subsec_nanos())
}

/// Tunnels that are asked about: as many as sites and users, or as said.
fn tunnels(a: &Plan) -> Result<u32, String> {
    match a.sites.checked_add(a.users) {
        Some(0) => Ok(a.tunnels),
        // The check of the question names the limit.
        Some(peers) => Ok(u32::try_from(peers).unwrap_or(u32::MAX)),
        None => Ok(u32::MAX),
    }
}

/// Load of all sites and users together: what they receive is sealed, what they send is opened.
fn of_peers(a: &Plan) -> Result<Demand, String> {
    if a.sites == 0 && a.users == 0 {
        return Err("ask for something: --link RATE, --links, --this-machine, or --sites N or --users N with --up RATE and --down \
                    RATE; or --calibrate, --verify or --export"
            .into());
    }
    let rate = |name: &str, value: &Option<String>| {
        let text = value
            .as_deref()
            .ok_or_else(|| format!("--{name}: give the rate of each site and user, such as 5M"))?;
        links::rate(text).map_err(|e| format!("--{name}: {e}"))
    };
    let peers = f64::from(tunnels(a)?);
    Ok(Demand { out: rate("down", &a.down)? * peers, into: rate("up", &a.up)? * peers })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::{Args, Command};
    use super::*;

    fn parsed(line: &str) -> Result<PlanOptions, String> {
        match Args::try_parse_from(line.split(' ')).map_err(|e| e.to_string())?.command {
            Command::Plan(a) => options(*a),
            _ => unreachable!("plan was asked for"),
        }
    }

    #[test]
    fn a_question_is_understood() {
        let o = parsed("ironswan-lab plan --link 1G --mix imix --suite aes128gcm16,3des-sha1 --tunnels 500 --rekey 30m --setup-storm 10s")
            .unwrap();
        assert_eq!(
            (o.what, o.ask.tunnels, o.ask.rekey, o.ask.storm),
            (PlanWhat::Link(Demand::full(1e9)), 500, 1800.0, Some(10.0))
        );
        assert_eq!((o.suites.len(), o.mixes.len()), (2, 1));
        let o = parsed("ironswan-lab plan --sites 20 --users 480 --up 1M --down 5M --keepalive 20s --ipv6")
            .unwrap();
        assert_eq!(o.what, PlanWhat::Link(Demand { out: 2.5e9, into: 5e8 }));
        assert_eq!((o.ask.tunnels, o.ask.keepalive, o.ask.ipv6, o.why), (500, Some(20.0), true, false));
        let o = parsed("ironswan-lab plan --link 1G --burst 16 --flows 4").unwrap();
        assert_eq!((o.ask.burst, o.ask.flows), (16, Some(4)));
        let o = parsed("ironswan-lab plan --link 1G --machine xeon --why").unwrap();
        assert!(o.why && o.model.is_some_and(|m| m.ends_with("machines/xeon.json")));
        assert_eq!(parsed("ironswan-lab plan --this-machine").unwrap().ask.share, 0.5);
        let drawn = |line| parsed(line).unwrap().drawn;
        assert_eq!(drawn("ironswan-lab plan --verify --draw --seed 9"), Some(Draw { count: 40, seed: 9 }));
        assert!(drawn("ironswan-lab plan --verify --draw 5").is_some_and(|d| d.count == 5));
        assert_eq!(drawn("ironswan-lab plan --verify"), None);
        let pause = |line| parsed(line).unwrap().twice.map(|pause| pause.as_secs());
        assert_eq!(pause("ironswan-lab plan --calibrate --twice"), Some(1_800));
        assert_eq!(pause("ironswan-lab plan --calibrate --twice 45m"), Some(2_700));
        assert_eq!(pause("ironswan-lab plan --calibrate"), None);
    }

    #[test]
    fn nonsense_is_answered_with_what_to_write() {
        for (line, part) in [
            ("ironswan-lab plan", "--link"),
            ("ironswan-lab plan --link fast", "155.52M"),
            ("ironswan-lab plan --link 1G --links", "cannot be used"),
            ("ironswan-lab plan --link 1G --mix 63", "frame size"),
            ("ironswan-lab plan --link 1G --share 2", "--share"),
            ("ironswan-lab plan --link 1G --rekey never", "1h"),
            ("ironswan-lab plan --link 1G --encap maybe", "maybe"),
            ("ironswan-lab plan --users 10", "--down: give the rate"),
            ("ironswan-lab plan --users 10 --up 1M --down fast", "--down: `fast`"),
            ("ironswan-lab plan --users 1000000000000 --up 1M --down 1M", "several gateways"),
            ("ironswan-lab plan --link 1G --tunnels 0", "1 to 1,000,000"),
            ("ironswan-lab plan --link 1G --up 1M", "say how many"),
            ("ironswan-lab plan --link 1G --burst 0", "--burst is the number"),
            ("ironswan-lab plan --link 1G --flows 0", "--flows is a number"),
            ("ironswan-lab plan --link 1G --flows=-1", "--flows"),
            ("ironswan-lab plan --link 1G --keepalive 20s --encap no", "NAT"),
            ("ironswan-lab plan --calibrate --machine xeon", "--link"),
            ("ironswan-lab plan --link 1G --quick", "--calibrate"),
            ("ironswan-lab plan --calibrate --against run", "--verify"),
            ("ironswan-lab plan --verify --twice", "for --calibrate"),
            ("ironswan-lab plan --link 1G --draw", "for --verify"),
            ("ironswan-lab plan --verify --seed 1", "--draw"),
            ("ironswan-lab plan --verify --draw 0", "0"),
            ("ironswan-lab plan --link 1G --dut strongswan-kernel", "for --calibrate"),
            ("ironswan-lab plan --calibrate --dut strongswan-libipsec --soaker", "leave it or --dut out"),
            ("ironswan-lab plan --link 1G --anyway", "for --calibrate"),
            ("ironswan-lab plan --calibrate --twice soon", "--twice: "),
            ("ironswan-lab plan --calibrate --twice 2d", "30m is usual"),
        ] {
            let e = parsed(line).unwrap_err();
            assert!(e.contains(part), "{line}: {e}");
        }
    }
}
