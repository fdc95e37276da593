//! Both generators over one link without a gateway, in turn: what each sends and what arrives.
//! Needs root.

use std::time::Duration;

use crate::common::{now, owner};
use ironswan_lab::load::capture::Pace;
use ironswan_lab::load::frame::{Family, Frames, Shape};
use ironswan_lab::load::{self, BATCH, Counted, Offer, Outlet, Receiver, SendBy, Sender, Sent};
use ironswan_lab::stats;
use ironswan_lab::topology::{DIRECT_DEVICE, Direct, Mode, address};

const PORT: u16 = 7007;
/// Trials of each generator and size.
const ROUNDS: u32 = 9;

/// As much as goes out in a third of a second.
fn flood(pair: &Direct, shape: Shape, by: SendBy) -> (Sent, Counted) {
    let brief = std::process::Command::new("ip")
        .args(["-n", pair.b().name(), "-br", "link", "show", "dev", DIRECT_DEVICE])
        .output()
        .expect("ip");
    let next_hop = load::parse_ethernet(&String::from_utf8_lossy(&brief.stdout)).expect("an address");
    let route = load::route(next_hop, address::B, PORT).expect("a route");
    let epoch = now();
    let receiver = Receiver::start(pair.b(), PORT, shape, epoch, None).expect("a receiver");
    let outlet = Outlet { interface: DIRECT_DEVICE, by, queue: 0 };
    let offer = Offer { rate: None, packets: u64::MAX, at_most: Duration::from_millis(333) };
    let frames = &mut Frames::new(shape, route, BATCH);
    let sender = &mut Sender::open(pair.a(), outlet, frames).expect("a sender");
    let sent = load::generate_paced(pair.a(), (sender, frames), (offer, Pace::Even), epoch, None);
    (sent.expect("sent"), receiver.finish())
}

#[test]
fn both_generators_flood_a_link_in_turn_and_no_packet_is_counted_that_was_not_sent() {
    let owner = owner();
    let pair = Direct::build(&owner, Mode::Wire, 1500).expect("a link");
    for payload in [18, 1472] {
        let mut all = [vec![], vec![]];
        for round in 0..ROUNDS {
            for (list, by) in all.iter_mut().zip([SendBy::Packet, SendBy::Xdp]) {
                let tag = payload as u32 * 100 + round * 2 + u32::from(by == SendBy::Xdp);
                let shape = Shape { payload, mix: None, flows: 64, family: Family::V4, tag };
                let (sent, counted) = flood(&pair, shape, by);
                let r = counted.received;
                assert_eq!(sent.intended, sent.sent + sent.unsent, "{by}: {sent:?}");
                assert!(r.unique <= sent.sent - sent.refused, "{by}: {sent:?} {counted:?}");
                assert_eq!((r.duplicates, r.corrupt), (0, 0), "{by}: {counted:?}");
                let each = |count: u64| count as f64 / sent.seconds / 1e3;
                list.push([
                    each(sent.sent),
                    each(r.unique),
                    sent.cpu_seconds * 1e9 / sent.sent.max(1) as f64,
                ]);
            }
        }
        let medians = all.map(|trials| {
            [0, 1, 2].map(|n| stats::median(&trials.iter().map(|t| t[n]).collect::<Vec<_>>()).unwrap_or(0.0))
        });
        for (by, [sent, arrived, ns]) in [SendBy::Packet, SendBy::Xdp].into_iter().zip(medians) {
            println!(
                "{} B by {by}: {sent:.0} kpps sent, {arrived:.0} arrived, {ns:.0} ns of the generator's thread a packet",
                payload + 46
            );
        }
        // Which is faster is the machine's affair; neither is worth nothing.
        assert!(medians[1][0] > medians[0][0] / 4.0 && medians[0][0] > 0.0, "{medians:?}");
    }
}
