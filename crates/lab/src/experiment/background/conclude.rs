//! Figures and views of `lab background`: what was left beside each kind of traffic, and how far
//! the kernel's accounting is from that. Pure.

use super::NONE;
use crate::experiment::campaign::Conclusion;
use crate::record::{
    Columns, Derived, Factors, Figure, Historical, Plot, Record, Table, View, Which, factors,
};

/// The accounting disagrees with the soaker when they are so far apart.
const APART: f64 = 0.05;

pub(super) fn conclude(record: &Record) -> Conclusion {
    let (mut derived, mut apart) = (Vec::new(), Vec::new());
    for figure in &record.figures {
        let Some((load, traffic)) = figure.factors.get("load").zip(figure.factors.get("traffic")) else {
            continue;
        };
        let number = |name| figure.number(name, Which::Median);
        let (Some(soaker), Some(kernel)) = (number("soaker_left"), number("kernel_left")) else { continue };
        derived.push(Derived {
            name: "overstated".into(),
            factors: figure.factors.clone(),
            value: kernel - soaker,
            unit: "share".into(),
            how: "what the kernel's accounting says was left, less what the soaker got".into(),
        });
        if (kernel - soaker).abs() > APART {
            apart.push((format!("beside {traffic} at {load}"), kernel - soaker));
        }
    }
    let history = vec![
        Historical {
            source: "FreeS/WAN's page on performance: how to find the load of a gateway".into(),
            then: "top and the load average mislead: only a CPU soaker says what is left".into(),
            now: accounting(&apart),
            caveat: "Time that the host of a virtual machine takes away, a changing clock, shared caches and a sibling \
                     hyper-thread cost the soaker units of which accounting knows nothing."
                .into(),
        },
        Historical {
            source: "Miltchev, Ioannidis, Keromytis, USENIX FREENIX 2002: the sieve of Eratosthenes beside traffic".into(),
            then: "the sieve ran beside constant traffic of ftp, sftp, scp, https and IPsec: how much each slows down \
                   other work was compared at one rate"
                .into(),
            now: slower(record),
            caveat: "Then client and server were machines of their own, and the sieve ran on one of them. Here both ends \
                     share the processors, and the sieve runs on all of them."
                .into(),
        },
    ];
    Conclusion { derived, views: views(record), history }
}

/// How far the accounting is from the soaker, of cells in which they are apart.
fn accounting(apart: &[(String, f64)]) -> String {
    let Some((cell, by)) = apart.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())) else {
        return format!("the kernel's accounting agrees with the soaker to {:.0} points", APART * 100.0);
    };
    let way = if *by > 0.0 { "too much" } else { "too little" };
    let more = match apart.len() - 1 {
        0 => String::new(),
        n => format!("; they are more than {:.0} points apart in {n} more", APART * 100.0),
    };
    format!("{cell} the kernel reports {:.0} points {way}{more}", by.abs() * 100.0)
}

/// How many times as long the sieve took beside each kind of traffic, at the last load.
fn slower(record: &Record) -> String {
    let loads = record.values("load", &Factors::new());
    let Some(&load) = loads.last() else { return "nothing was measured".into() };
    let only = factors([("load", load)]);
    let one = |figure: &Figure| {
        let traffic = figure.factors.get("traffic").filter(|t| *t != NONE)?;
        Some(format!("{traffic} {:.2}", figure.number("sieve_s", Which::Ratio)?))
    };
    let all: Vec<String> = record.figures_with(&only).filter_map(one).collect();
    if all.is_empty() {
        return "the sieve was not measured beside traffic".into();
    }
    format!("at {load} the sieve took so many times as long as without traffic: {}", all.join(", "))
}

fn views(record: &Record) -> Vec<View> {
    let measures = [
        ("sieve_s", Which::Median),
        ("sieve_s", Which::Ratio),
        ("soaker_left", Which::Median),
        ("kernel_left", Which::Median),
        ("mbps", Which::Median),
        ("sieve_mbps", Which::Median),
        ("rate_mbps", Which::Median),
        ("highest_mbps", Which::Median),
    ];
    let mut views: Vec<View> = record
        .values("load", &Factors::new())
        .into_iter()
        .map(|load| {
            View::Table(Table {
                title: format!("Beside constant traffic, {load}"),
                only: factors([("load", load)]),
                rows: vec!["traffic".into()],
                columns: Columns::Measures(measures.map(|(m, w)| (m.to_string(), w)).to_vec()),
            })
        })
        .collect();
    views.push(View::Derived {
        title: "Accounting against the soaker".into(),
        names: vec!["overstated".into()],
    });
    views.push(View::Plot(Plot {
        name: "left".into(),
        title: "Share of the processors left, by the soaker".into(),
        only: Factors::new(),
        x: "load".into(),
        x_label: "load".into(),
        y: "soaker_left".into(),
        which: Which::Median,
        series: vec!["traffic".into()],
        log_x: false,
        log_y: false,
    }));
    views
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cell_in_which_accounting_is_farthest_off_is_named() {
        assert!(accounting(&[]).contains("agrees with the soaker to 5 points"));
        let cell = |name: &str, by| (format!("beside {name} at 10 %"), by);
        let one = accounting(&[cell("scp", 0.12)]);
        assert_eq!(one, "beside scp at 10 % the kernel reports 12 points too much");
        let two = accounting(&[cell("scp", 0.12), cell("ftp", -0.2)]);
        assert!(two.starts_with("beside ftp at 10 % the kernel reports 20 points too little; "), "{two}");
        assert!(two.ends_with("in 1 more"), "{two}");
    }
}
