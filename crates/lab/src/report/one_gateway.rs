//! Answers of the experiments that look at one gateway by itself: by stage, by layer and by what is
//! inside its system calls (`profile`), by workers (`cores`). From the record alone. Pure.

use super::answer::{figure, median, ours, percent};
use super::number::number;
use crate::record::{Derived, Factors, Figure, Record, factors};

/// What is inside the system calls, or cycles per byte, where the run has them; else the longest
/// stage each way.
pub(super) fn profile(record: &Record) -> Option<String> {
    if !record.values("within", &Factors::new()).is_empty() {
        return inside(record);
    }
    layers(record).or_else(|| stages(record))
}

/// What the gateways' processes take for a large packet, and in which calls.
fn inside(record: &Record) -> Option<String> {
    let part = factors([("part", "gateways, all")]);
    let dut = ours(record, "dut", &part)?;
    let load = *record.values("load", &factors([("part", "gateways, all"), ("dut", dut)])).last()?;
    let all = |within: &str| {
        let of =
            [("part", "gateways, all"), ("work", "all"), ("dut", dut), ("load", load), ("within", within)];
        figure(record, of)
    };
    let share = |within: &str| Some(percent(median(all(within)?, "share")?));
    let only = factors([("part", "gateways"), ("dut", dut), ("load", load)]);
    let time = |f: &Figure, within: [&str; 2]| {
        let of = f.factors.get("within").filter(|of| within.contains(&of.as_str()));
        of.and_then(|_| median(f, "ns_per_packet"))
    };
    let area = |work: &&str| -> f64 {
        let of =
            record.figures_with(&only).filter(|f| f.factors.get("work").map(String::as_str) == Some(*work));
        of.filter_map(|f| time(f, ["receive", "send"])).sum()
    };
    let areas = record.values("work", &only);
    let most = areas.iter().max_by(|a, b| area(a).total_cmp(&area(b)))?;
    Some(format!(
        "A packet takes the processes of {dut} {} ns: {} of it in calls that receive, {} in calls that send, {} in their own code; \
         most of what is inside these calls is {most} ({} ns): {load}.",
        number(median(all("all")?, "ns_per_packet")?),
        share("receive")?,
        share("send")?,
        share("own code")?,
        number(area(most))
    ))
}

/// Cycles per byte beside the published ones.
fn layers(record: &Record) -> Option<String> {
    let of = |name: &str, layer: &str| {
        let own =
            |d: &&Derived| d.name == name && d.factors.get("layer").is_some_and(|l| l.starts_with(layer));
        record.derived.iter().find(own).map(|d| number(d.value))
    };
    Some(format!(
        "Encrypting costs a gateway {} cycles a byte with AES-128-GCM and {} with 3DES and SHA-1, where a Pentium II took {}; \
         plain forwarding costs {}, where it took {}.",
        of("now_encrypting", "AES-128-GCM")?,
        of("now_encrypting", "3DES")?,
        of("then", "3DES")?,
        of("now_encrypting", "IP stack")?,
        of("then", "IP stack")?
    ))
}

fn stages(record: &Record) -> Option<String> {
    let load = *record.values("load", &Factors::new()).last()?;
    let largest = |side: &str| {
        let only = factors([("load", load), ("side", side)]);
        let stages = record.figures_with(&only).filter_map(|f| {
            let stage = f.factors.get("stage").filter(|stage| *stage != "all")?;
            Some((median(f, "share")?, stage.as_str()))
        });
        stages.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let ((out, of_out), (back, of_back)) = (largest("g1 out")?, largest("g2 in")?);
    Some(format!(
        "Most of a packet's time goes to {of_out} on the way out ({}) and to {of_back} on the way in ({}): {load}.",
        percent(out),
        percent(back)
    ))
}

/// Rate of the gateway with the most workers, and with the fewest, for the largest frames of the
/// first direction.
pub(super) fn cores(record: &Record) -> Option<String> {
    let by_workers = factors([("varied", "workers")]);
    let number_of = |f: &Figure, name: &str| f.factors.get(name).and_then(|n| n.parse::<u32>().ok());
    let direction = *record.values("direction", &by_workers).first()?;
    let own = || {
        let figures = record
            .figures_with(&by_workers)
            .filter(|f| f.factors.get("direction").is_some_and(|d| d == direction));
        figures.filter(|f| median(f, "kpps").is_some())
    };
    let size = own().filter_map(|f| number_of(f, "size")).max()?;
    let of_size = || own().filter(|f| number_of(f, "size") == Some(size));
    let fewest = of_size().min_by_key(|f| number_of(f, "workers"))?;
    let most = of_size().max_by_key(|f| number_of(f, "workers"))?;
    let (few, many) = (median(fewest, "kpps")?, median(most, "kpps")?);
    let workers = |f: &Figure| match number_of(f, "workers") {
        Some(1) => "1 worker".to_string(),
        n => format!("{} workers", n.unwrap_or(0)),
    };
    let times = match workers(most) == workers(fewest) {
        true => String::new(),
        false => format!(", {} times what it does with {}", number(many / few), workers(fewest)),
    };
    let (many, most) = (number(many), workers(most));
    Some(format!(
        "One gateway carries {many} thousand frames of {size} B a second with {most}{times} ({direction})."
    ))
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::{record, says};
    use super::*;

    #[test]
    fn stages_are_answered_by_the_longest_each_way() {
        let of = |side, stage| [("load", "flood"), ("side", side), ("stage", stage)];
        says(
            &record(
                "profile",
                None,
                &[
                    (&of("g1 out", "all"), &[("share", 1.0)]),
                    (&of("g1 out", "send"), &[("share", 0.6)]),
                    (&of("g1 out", "crypto"), &[("share", 0.4)]),
                    (&of("g2 in", "receive"), &[("share", 0.7)]),
                ],
            ),
            "Most of a packet's time goes to send on the way out (60.0 %) and to receive on the way in (70.0 %): flood.",
        );
    }

    #[test]
    fn layers_are_answered_beside_the_published_figures() {
        let derived = [
            ("then", "IP stack: plain forwarding", 5.0),
            ("now_encrypting", "IP stack: plain forwarding", 1.5),
            ("then", "3DES with SHA-1", 140.0),
            ("now_encrypting", "3DES with SHA-1", 40.0),
            ("now_encrypting", "AES-128-GCM", 8.0),
        ];
        let derived = derived.map(|(name, layer, value)| Derived {
            name: name.into(),
            factors: factors([("layer", layer)]),
            value,
            unit: "cycles/byte".into(),
            how: String::new(),
        });
        says(
            &Record { derived: derived.into(), ..record("profile", None, &[]) },
            "Encrypting costs a gateway 8.00 cycles a byte with AES-128-GCM and 40.0 with 3DES and SHA-1, where a Pentium II took \
             140; plain forwarding costs 1.50, where it took 5.00.",
        );
    }

    #[test]
    fn workers_are_answered_by_the_most_and_the_fewest() {
        let of = |workers, size, direction| {
            [("varied", "workers"), ("workers", workers), ("size", size), ("direction", direction)]
        };
        let (one, four) = (of("1", "1400", "encrypting"), of("4", "1400", "encrypting"));
        let (small, decrypting) = (of("1", "256", "encrypting"), of("4", "1400", "decrypting"));
        let few: [(&[_], &[_]); 2] = [(&small, &[("kpps", 90.0)]), (&one, &[("kpps", 50.0)])];
        let all = [few[0], few[1], (&four, &[("kpps", 125.0)]), (&decrypting, &[("kpps", 250.0)])];
        says(
            &record("cores", None, &all),
            "One gateway carries 125 thousand frames of 1400 B a second with 4 workers, 2.50 times what it does with 1 worker \
             (encrypting).",
        );
        says(
            &record("cores", None, &few),
            "One gateway carries 50.0 thousand frames of 1400 B a second with 1 worker (encrypting).",
        );
    }
}
