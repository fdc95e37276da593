//! `ironswan demo`: the main job of the program, shown on one machine in less than a minute. Four
//! boxes in a line, two gateways, IKEv2, a look at the tunnel, then experiment `line` with and
//! without it.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::campaign::Report;
use super::line::{LineOptions, Prepared, TrialPlan};
use crate::clock;
use crate::dut::{DutOptions, Encap};
use crate::error::LabError;
use crate::interrupt;
use crate::process;
use crate::record::{Figure, Which};
use crate::report::{self, wrap};
use crate::topology::{Congestion, Line, LineSpec, Mode, Netns, Node, Owner, address};

/// Options of the demonstration.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Algorithms and programs.
    pub dut_options: DutOptions,
    /// UDP encapsulation or raw ESP.
    pub encap: Encap,
    /// Length of a measuring window.
    pub duration: Duration,
    /// Trials with and without the tunnel, each.
    pub repeats: u32,
    /// Folder for the run; a new one under /var/tmp/ironswan when absent.
    pub out: Option<PathBuf>,
    /// The record as JSON on standard output, all else on standard error.
    pub json: bool,
    /// The command line, for the record.
    pub command_line: Vec<String>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            dut_options: DutOptions::default(),
            encap: Encap::Udp,
            duration: Duration::from_secs(3),
            repeats: 3,
            out: None,
            json: false,
            command_line: process::own_command_line(),
        }
    }
}

/// The demonstration as a command: prints, returns the exit status.
pub fn demo(options: DemoOptions) -> i32 {
    let mut screen = Screen { json: options.json };
    match show(options, &mut screen) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("ironswan demo: {e}");
            e.exit_code()
        }
    }
}

/// Prints text to standard output, unless standard output is for JSON.
struct Screen {
    json: bool,
}

impl Screen {
    fn say(&mut self, text: &str) {
        // A reader that closed the pipe has seen enough; the run goes on for its folder.
        let _ = if self.json {
            io::stderr().write_all(text.as_bytes())
        } else {
            let mut out = io::stdout();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        };
    }
}

const PICTURE: &str = "
   a            g1               tunnel                g2             b
   10.1.0.2 --- 192.0.2.1 ======================= 192.0.2.2 --- 10.2.0.2
";

fn show(options: DemoOptions, screen: &mut Screen) -> Result<(), LabError> {
    let width = report::terminal_width();
    let json = options.json;
    let prepared = Prepared::new(
        LineOptions {
            duts: vec!["plain".into(), "ironswan".into()],
            encaps: vec![options.encap],
            dut_options: options.dut_options,
            duration: options.duration,
            repeats: options.repeats,
            out: options.out,
            command_line: options.command_line,
            // The demo has to work on every machine, and nobody compares its figures.
            congestion: Congestion::default(),
            ..LineOptions::default()
        },
        "demo",
    )?;
    let owner = prepared.claim()?;
    screen.say("Four boxes in a line, in network namespaces of this machine:\n");
    screen.say(PICTURE);
    screen.say("\n");
    tunnel(&prepared, &owner, screen, width)?;

    let o = prepared.options();
    screen.say(&wrap(
        &format!(
            "Measuring TCP from a to b, in turns without and with the tunnel: {} trials, about {} s.",
            2 * o.repeats,
            (TrialPlan::guess(o.duration) * 2 * o.repeats).as_secs()
        ),
        width,
        "",
        "",
    ));
    screen.say("\n");
    let report = prepared.measure(&owner)?;
    drop(owner);
    screen.say(&report::demo_text(&report.record, width));
    screen.say(&format!("\nRun folder: {}\n", report.folder.display()));
    if json {
        let _ = io::stdout().write_all(report::pretty(&report.record)?.as_bytes());
    } else {
        screen.say("Every box and gateway has been removed.\n\n");
    }
    screen.say(&format!("{}\n", last_line(&report)?));
    Ok(())
}

/// Brings the tunnel up once, sends something through it, and shows what the gateways say of it.
fn tunnel(prepared: &Prepared, owner: &Owner, screen: &mut Screen, width: usize) -> Result<(), LabError> {
    let dut = prepared
        .duts()
        .iter()
        .find(|d| d.name().starts_with("ironswan"))
        .ok_or_else(|| LabError::Measurement("there is no gateway to show".into()))?;
    let o = prepared.options();
    let line = Line::build(owner, LineSpec { mode: Mode::Offload, inner_mtu: o.inner_mtu })?;
    let dir = owner.dir().join("demo");
    fs::create_dir(&dir).map_err(LabError::io(format!("creating {}", dir.display())))?;
    let start = clock::now();
    let mut running = dut.start(&line.sites(), &dir)?;
    let took = clock::now() - start;
    screen.say(&wrap(
        &format!(
            "g1 and g2 each run `ironswan run`; `ironswan up net` on g1 has brought the tunnel up with IKEv2. From \
             starting both to traffic: {:.2} s.",
            took.as_secs_f64()
        ),
        width,
        "",
        "",
    ));
    let echo = echo(&line)?;
    screen.say(&wrap(
        &format!(
            "a asked b through it: {} answers to {} packets, median {:.2} ms.",
            echo.answers, echo.sent, echo.median_ms
        ),
        width,
        "",
        "",
    ));
    if echo.answers == 0 {
        let why = LabError::Measurement("the tunnel is up but carries nothing".into());
        return Err(running.failed(&dut.name(), why));
    }
    screen.say("\nThe tunnel as g1 sees it (`ironswan status` and `ironswan status net`):\n\n");
    for text in running.describe()?.lines() {
        if text.trim().is_empty() {
            screen.say("\n");
            continue;
        }
        // A table stays as it is.
        if text.chars().count() + 2 <= width {
            screen.say(&format!("  {text}\n"));
            continue;
        }
        let indent = " ".repeat(2 + text.len() - text.trim_start().len());
        screen.say(&wrap(text, width, &indent, &format!("{indent}    ")));
    }
    screen.say("\n");
    let killed = running.stop();
    if !killed.is_empty() {
        screen.say(&format!("(had to be killed: {})\n", killed.join(", ")));
    }
    drop(line);
    let _ = fs::remove_dir_all(&dir);
    Ok(())
}

struct Echo {
    sent: u32,
    answers: u32,
    median_ms: f64,
}

/// Small UDP packets from a to b and back, one after the other.
fn echo(line: &Line) -> Result<Echo, LabError> {
    use std::net::UdpSocket;
    const SENT: u32 = 20;
    let socket = |netns: &Netns, at: &str| -> Result<UdpSocket, LabError> {
        netns.inside(|| UdpSocket::bind((at, 7)))?.map_err(LabError::io(format!("binding {at}:7")))
    };
    let (a, b) = (socket(line.node(Node::A), address::A)?, socket(line.node(Node::B), address::B)?);
    let fault = |what: &'static str| LabError::io(what);
    for s in [&a, &b] {
        s.set_read_timeout(Some(Duration::from_millis(250))).map_err(fault("setting a time limit"))?;
    }
    a.connect((address::B, 7)).map_err(fault("connecting a to b"))?;
    let mut times = Vec::new();
    for number in 0..SENT {
        interrupt::check()?;
        let (packet, mut buffer) = (number.to_be_bytes(), [0; 64]);
        let start = clock::now();
        a.send(&packet).map_err(fault("sending from a"))?;
        // Lost on the way is an answer that did not come, not an error.
        let Ok((n, from)) = b.recv_from(&mut buffer) else { continue };
        b.send_to(&buffer[..n], from).map_err(fault("answering from b"))?;
        if a.recv(&mut buffer).is_ok_and(|n| buffer[..n] == packet) {
            times.push((clock::now() - start).as_secs_f64() * 1e3);
        }
    }
    let answers = times.len() as u32;
    Ok(Echo { sent: SENT, answers, median_ms: crate::stats::median(&times).unwrap_or(0.0) })
}

/// The line that scripts read.
fn last_line(report: &Report) -> Result<String, LabError> {
    let lacking = || LabError::Measurement("the run lacks a figure for the summary".into());
    let figure = |plain: bool| {
        let is_plain = |f: &&Figure| f.factors.get("dut").is_some_and(|dut| (dut == "plain") == plain);
        report.record.figures.iter().find(is_plain).ok_or_else(lacking)
    };
    let (plain, tunnel) = (figure(true)?, figure(false)?);
    let number = |of: &Figure, measure: &str, which| of.number(measure, which).ok_or_else(lacking);
    // A window with few clock ticks has no cost.
    let added = match tunnel.absent(&report.record, "machine_ns_per_byte", Which::Added) {
        Some(why) => why.to_string(),
        None => format!("{:.2}", number(tunnel, "machine_ns_per_byte", Which::Added)?),
    };
    Ok(format!(
        "demo: tunnel {:.2} Gb/s, plain {:.2} Gb/s, ratio {:.2}, added {added} ns/byte",
        number(tunnel, "gbps", Which::Median)?,
        number(plain, "gbps", Which::Median)?,
        number(tunnel, "gbps", Which::Ratio)?
    ))
}
