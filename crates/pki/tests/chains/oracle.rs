//! OpenSSL as a second opinion: it judges the cases of PKITS, a chain for each peculiarity that
//! comes to mind, and chains with two of them. `docs/rfc/chains.md` lists each disagreement with
//! its reason. A test fails when there is a new one, and when one of the list is gone.
//!
//! Two who refuse a chain for different reasons disagree as well: one of them may have missed what
//! the other one saw.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ironswan_pki::{ChainFault, Rule};

use crate::judges::{Answer, Question, here, openssl};
use crate::made::{Case, Chain};
use crate::{names, policies, single, suite, ways};

/// Chains with one peculiarity of a certificate, two of which one chain can have.
const OF_CERTIFICATES: [&[Case]; 13] = [
    single::TIME,
    single::AUTHORITY,
    single::USE,
    single::EXTENSIONS,
    single::STRUCTURE,
    single::SIGNATURES,
    names::CHAINING,
    names::DNS,
    names::MAIL_AND_URI,
    names::OTHER_FORMS,
    policies::REQUIRED,
    policies::CONSTRAINTS,
    policies::MAPPINGS,
];
/// Chains with several ways up.
const OF_WAYS: [&[Case]; 3] = [ways::WAYS, ways::CROSSED, ways::LOOPS];

/// Of the chains with two peculiarities, one in so many is judged.
const SAMPLE: usize = 40;
/// Stands between the names of two peculiarities.
const PAIR: &str = " + ";

/// What both said about one chain.
struct Compared {
    name: String,
    here: Result<(), ChainFault>,
    openssl: Answer,
}

impl Compared {
    /// True when both accept, or both refuse for the same reason.
    fn agree(&self) -> bool {
        match &self.here {
            Ok(()) => self.openssl.accepted,
            Err(fault) => !self.openssl.accepted && is_same(&fault.rule, &self.openssl.errors),
        }
    }

    /// True when one accepts and the other one refuses.
    fn oppose(&self) -> bool {
        self.here.is_ok() != self.openssl.accepted
    }

    /// The words of the table: who accepts.
    fn verdicts(&self) -> (&'static str, &'static str) {
        let word = |accepted| if accepted { "accepted" } else { "refused" };
        (word(self.here.is_ok()), word(self.openssl.accepted))
    }
}

/// Whether one of OpenSSL's errors (`openssl/x509_vfy.h`) names this rule.
fn is_same(rule: &Rule, errors: &[u32]) -> bool {
    let same: &[u32] = match rule {
        // A file that OpenSSL cannot read has no number. Some extensions it reads later, and finds
        // no issuer of a certificate in which one is malformed.
        Rule::Unreadable(_) if errors.is_empty() => return true,
        Rule::Unreadable(_) => &[13, 14, 20, 41, 42],
        Rule::Expired { .. } => &[10],
        Rule::NotYetValid { .. } => &[9],
        Rule::NotCa => &[24, 79],
        Rule::PathLength { .. } => &[25],
        Rule::KeyUsage { .. } => &[26, 32],
        Rule::Purpose { .. } => &[26],
        Rule::NameNotPermitted { .. } => &[47],
        Rule::NameExcluded { .. } => &[48],
        Rule::NoPolicy => &[43],
        Rule::MappedAnyPolicy => &[42],
        Rule::Key(_) => &[6, 66, 67],
        Rule::WeakDigest => &[68],
        Rule::UnknownAlgorithm { .. } | Rule::Signature => &[7],
        Rule::UnknownCritical { .. } => &[34, 40],
        Rule::UnknownIssuer { .. } => &[2, 18, 19, 20],
        Rule::Revoked { .. } => &[23],
        Rule::NoStatus(_) => &[3, 8, 12, 33, 35, 36, 44, 54],
        Rule::Limit { .. } => &[22],
    };
    errors.iter().any(|error| same.contains(error))
}

/// Asks both about each chain, on as many threads as there are processors.
fn compare(questions: &[(String, Question)]) -> Vec<Compared> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let folder = Folder::new();
                while let Some((place, (name, question))) = take(&next, questions) {
                    let compared = Compared {
                        name: name.clone(),
                        here: here(question),
                        openssl: openssl(question, &folder.0),
                    };
                    done.lock().expect("no other thread panicked").push((place, compared));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panicked");
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, compared)| compared).collect()
}

/// The next question that nobody has taken, and its place.
fn take<'a, T>(next: &AtomicUsize, all: &'a [T]) -> Option<(usize, &'a T)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    all.get(place).map(|question| (place, question))
}

/// A folder for the files of one thread, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ironswan-chains-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The files are for this test alone; one that stays does no harm.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The rows of the table: case, verdict here, verdict of OpenSSL.
fn listed() -> BTreeSet<(String, String, String)> {
    let mut rows = BTreeSet::new();
    for line in include_str!("../../../../docs/rfc/chains.md").lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [name, here @ ("accepted" | "refused"), openssl, why] = cells[..] {
            assert!(!why.is_empty(), "docs/rfc/chains.md: no reason: {line}");
            rows.insert((name.into(), here.into(), openssl.into()));
        }
    }
    rows
}

/// All cases of certificates, then those of ways.
fn cases() -> Vec<Case> {
    let cases: Vec<Case> = OF_CERTIFICATES.into_iter().chain(OF_WAYS).flatten().copied().collect();
    let names: BTreeMap<&str, ()> = cases.iter().map(|(name, _)| (*name, ())).collect();
    assert_eq!(names.len(), cases.len(), "two cases have the same name");
    cases
}

/// A chain with these peculiarities.
fn chain(cases: &[Case]) -> Question {
    let mut chain = Chain::default();
    cases.iter().for_each(|(_, change)| change(&mut chain));
    chain.question()
}

/// Compares the disagreements with the rows of the table, those of pairs or all others.
fn judge(questions: &[(String, Question)], pairs: bool, disagrees: fn(&Compared) -> bool) {
    let compared = compare(questions);
    let listed: BTreeSet<_> = listed().into_iter().filter(|row| row.0.contains(PAIR) == pairs).collect();
    let (mut found, mut faults) = (BTreeSet::new(), String::new());
    for one in compared.iter().filter(|one| disagrees(one)) {
        let (ours, theirs) = one.verdicts();
        let row = (one.name.clone(), ours.to_owned(), theirs.to_owned());
        if !listed.contains(&row) {
            let said = one.here.as_ref().map_or_else(ToString::to_string, |()| "accepted".into());
            let text = &one.openssl.text;
            faults +=
                &format!("not in the table: | {} | {ours} | {theirs} |\n  here: {said}\n{text}", one.name);
        }
        found.insert(row);
    }
    for row in listed.difference(&found) {
        faults += &format!("in the table, and gone: {row:?}\n");
    }
    println!("{} chains, {} disagreements", questions.len(), found.len());
    assert!(faults.is_empty(), "docs/rfc/chains.md:\n{faults}");
}

#[test]
fn openssl_says_the_same_of_each_chain_or_the_disagreement_is_listed() {
    let suite = suite::settings()
        .into_iter()
        .map(|setting| (format!("PKITS {} {}", setting.number, setting.setting), setting.question));
    let made = cases().into_iter().map(|case| (case.0.to_owned(), chain(&[case])));
    let questions: Vec<_> = suite.chain(made).collect();
    judge(&questions, false, |one| !one.agree());
}

/// A pair of which one peculiarity alone divides the two says nothing new, and is left out. Each of
/// the two may name another fault first.
#[test]
fn openssl_says_the_same_of_chains_with_two_peculiarities() {
    let listed = listed();
    let of_certificates = OF_CERTIFICATES.into_iter().flatten().copied();
    let undisputed: Vec<Case> =
        of_certificates.filter(|(name, _)| !listed.iter().any(|row| row.0 == *name)).collect();
    let mut pairs = Vec::new();
    for (n, first) in undisputed.iter().enumerate() {
        pairs.extend(undisputed[n + 1..].iter().map(|second| [*first, *second]));
    }
    let pairs = pairs.into_iter().step_by(SAMPLE);
    let questions: Vec<_> =
        pairs.map(|pair| (format!("{}{PAIR}{}", pair[0].0, pair[1].0), chain(&pair))).collect();
    judge(&questions, true, Compared::oppose);
}
