//! Symptoms: what people see before they know a reason, and the commands that find it.

/// A command of the manual, and what its answer tells.
pub(super) struct Step {
    pub(super) command: &'static str,
    pub(super) tells: &'static str,
}

/// Makes [`Symptom`] and its texts.
macro_rules! symptoms {
    ($($(#[doc = $doc:literal])+ $symptom:ident = $title:literal, $more:literal
       [$($command:literal $tells:literal;)+])+) => {
        /// What is seen, under which a diagnosis is looked for.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Symptom {
            $($(#[doc = $doc])+ $symptom,)+
        }

        impl Symptom {
            /// Every symptom, in the order of the manual.
            pub const ALL: &[Self] = &[$(Self::$symptom,)+];

            /// The title for people.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$symptom => $title,)+
                }
            }

            /// A sentence with links to pages that say more, in Markdown. May be empty.
            pub(super) fn more(self) -> &'static str {
                match self {
                    $(Self::$symptom => $more,)+
                }
            }

            /// Commands that narrow the reasons down, the first one first.
            pub(super) fn steps(self) -> &'static [Step] {
                match self {
                    $(Self::$symptom => &[$(Step { command: $command, tells: $tells },)+],)+
                }
            }
        }
    };
}

symptoms! {
    /// The daemon does not start.
    Start = "The daemon does not start",
    "The last line of the log (`journalctl -u ironswan`) has the reason. An [error of the \
     configuration](#a-configuration-is-refused-or-warned-about) keeps the daemon from starting as well. More: \
     [exit status 2](troubleshooting.md#the-daemon-does-not-start-exit-status-2)." [
        "ironswan check" "errors of the configuration with file, line and key. It needs no daemon";
        "ironswan doctor" "ports that another program has, drivers and rights that are missing, other gateways; each with what to do";
        "ironswan guard" "what a daemon that ran before has left: protected packets do not leave in clear meanwhile";
    ]
    /// A configuration is refused, or warned about.
    Configuration = "A configuration is refused, or warned about",
    "A reload that finds an error changes nothing ([reload](operations.md#reload)). All keys are in \
     [configuration](configuration.md)." [
        "ironswan check" "every finding with file, line, key, and what to do";
        "ironswan check --algorithms" "the algorithms that a proposal can name, and those that are advised against";
        "ironswan list conns" "what a daemon that runs has loaded";
    ]
    /// A tunnel does not come up, and no answer comes.
    Silent = "The tunnel does not come up: no answer",
    "More: [no IKE_SA](troubleshooting.md#no-ike_sa), [ICMP errors](troubleshooting.md#icmp-errors)." [
        "ironswan explain NAME" "which of these reasons it is, how often it was tried, and when the next try is";
        "ironswan log --conn NAME --level debug --for 10m" "each message that goes and comes, from now on";
        "ironswan capture NAME -w branch.pcapng --for 1m" "the messages of both ends, for Wireshark and tshark";
        "ironswan doctor" "filters of this machine that drop IKE or ESP, and names that are not resolved";
    ]
    /// A tunnel does not come up, since the two sides want different algorithms or messages.
    Disagree = "The tunnel does not come up: the two sides do not agree",
    "More: [no IKE_SA](troubleshooting.md#no-ike_sa), [algorithms](algorithms.md)." [
        "ironswan explain NAME" "the values of both sides beside each other; `!=` marks those that do not fit. The side that refuses knows both";
        "ironswan explain --peer ADDRESS" "what was told about the peer at this address, when no connection is known for it";
        "ironswan list conns NAME" "what is loaded here";
    ]
    /// A tunnel does not come up, since one side does not believe who the other is.
    Untrusted = "The tunnel does not come up: one side does not believe who the other is",
    "The side that refuses knows why: ask there first. More: [certificates](certificates.md), [no IKE_SA](troubleshooting.md#no-ike_sa)." [
        "ironswan explain NAME" "the identities, and the key or certificate that did not fit";
        "ironswan explain --peer ADDRESS" "what somebody at this address has claimed, whom no connection knows";
        "ironswan list certs" "the certificates and revocation lists that are loaded, with their dates";
    ]
    /// There is an IKE_SA, and no CHILD_SA.
    NoChild = "The IKE_SA comes up, and no CHILD_SA",
    "More: [an IKE_SA, but no CHILD_SA](troubleshooting.md#an-ike_sa-but-no-child_sa)." [
        "ironswan explain NAME" "selectors and proposals of both sides beside each other";
        "ironswan up NAME" "the negotiation; its last line says why the child does not come up";
        "ironswan list conns NAME" "what is loaded here";
    ]
    /// A tunnel is up, and no packet passes.
    NoTraffic = "The tunnel comes up and carries nothing",
    "More: [a CHILD_SA, but no traffic](troubleshooting.md#a-child_sa-but-no-traffic), \
     [why does this packet not pass?](troubleshooting.md#why-does-this-packet-not-pass)" [
        "ironswan status NAME" "bytes and packets of both directions: which one is it? Above them, what this machine itself keeps from passing";
        "ironswan explain --packet '10.1.0.9 > 10.2.5.1 tcp 443'" "the first obstacle of one packet on this machine, and what to do";
        "ironswan explain --packet '10.1.0.9 > 10.2.5.1 tcp 443' --live" "the rule of another program that drops it. It takes ten seconds: start the connection meanwhile";
        "ironswan prove NAME" "ports, both rekeyings, MTU, and a packet there and back";
    ]
    /// A tunnel carries some traffic, and not other traffic.
    SomeTraffic = "The tunnel carries some traffic, and other traffic not",
    "More: [overlapping children](configuration.md#overlapping-children), [drop reasons](troubleshooting.md#packets-are-dropped-the-reasons)." [
        "ironswan explain --packet '10.1.0.9 > 10.2.5.1 tcp 443'" "the policy that covers the packet, or the one that comes nearest, and what of it does not fit";
        "ironswan list sas NAME" "the selectors that were agreed on";
        "ironswan list pols NAME" "all policies in their order, and the routes and rules that serve them";
        "ironswan list counters" "how many packets were dropped, and why";
        "ironswan capture NAME --drops -w drops.pcapng --for 1m" "every packet that is dropped, with its reason as a comment";
    ]
    /// A tunnel carries small packets, and large ones are lost.
    SmallOnly = "The tunnel carries small packets only",
    "SSH logs in and then hangs, pages load in part. More: [path MTU](operations.md#path-mtu), \
     [MTU, MSS, fragments](troubleshooting.md#mtu-mss-fragments)." [
        "ironswan explain NAME" "`path`: how large packets pass towards the peer, and when that was measured";
        "ironswan explain --packet '10.1.0.9 > 10.2.5.1 tcp 443 len 1400 df'" "whether a packet of this length fits, and the longest that does";
        "ironswan prove NAME" "the same, measured anew";
    ]
    /// A tunnel that was up has ended, or does not come back.
    Ends = "The tunnel comes down by itself, or does not come back",
    "More: [the tunnel does not come back](troubleshooting.md#the-tunnel-does-not-come-back)." [
        "ironswan status --down" "the tunnels that should be up and are not, since when, and when the next try is";
        "ironswan explain NAME" "`why`, and `was`: how long it was up, and when it ended";
        "ironswan log --conn NAME" "the latest lines about it";
        "ironswan prove NAME" "whether both rekeyings succeed. A tunnel that ends after hours often fails there";
    ]
    /// A tunnel is up in another way than the configuration says.
    NotAsMeant = "The tunnel comes up in another way than configured",
    "" [
        "ironswan status NAME" "identities, algorithms, mode and selectors as agreed";
        "ironswan explain NAME" "`also`: what was told about it, such as the connection that was chosen and by what";
        "ironswan list conns NAME" "what is loaded here";
    ]
    /// Packets are held back, or the guard is incomplete.
    Clear = "Packets are held back, or may pass in clear",
    "More: [the guard](operations.md#the-guard)." [
        "ironswan guard" "what stands, with a daemon or without, and how many packets it has dropped";
        "ironswan list pols" "every policy, whether it is installed, and what serves it";
        "ironswan explain --packet '10.1.0.9 > 10.2.5.1 tcp 443'" "whether the guard drops this packet, or it goes on in clear";
    ]
    /// Packets pass slowly.
    Slow = "Packets pass slowly",
    "More: [slow](troubleshooting.md#slow)." [
        "ironswan status" "offloads: each that is missing costs time. Nothing is lost by it";
        "ironswan top --once" "rates, losses, and how busy each worker is";
        "ironswan list algs" "the engines, and what they measured at the start";
        "ironswan list counters" "dropped packets, and the time of a packet by stage";
        "ironswan doctor" "buffers, offloads, links and workers that could be better";
    ]
    /// A command is refused.
    Command = "A command is refused, or does nothing",
    "" [
        "ironswan list conns" "the names of connections and children";
        "ironswan status" "what is up, or is being tried already";
        "ironswan check" "a file with an error: a reload changes nothing then";
    ]
    /// The log tells of somebody who is no peer.
    Strangers = "The log tells of somebody whom no connection knows",
    "What was not authenticated may be anybody's, under any address. It changes nothing that runs." [
        "ironswan explain --peer ADDRESS" "what came from this address, how often, and which connection was meant";
        "ironswan log --peer ADDRESS" "the latest lines about it";
        "ironswan list counters" "what is counted and no longer written";
    ]
    /// The log complains about this machine.
    Machine = "The log complains about this machine",
    "" [
        "ironswan doctor" "what is wrong, and what to do. It changes nothing";
        "ironswan report" "one archive for a person who is asked for help, without secrets";
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Entry;

    #[test]
    fn every_symptom_has_reasons_and_begins_with_commands() {
        for symptom in Symptom::ALL {
            assert!(Entry::all().any(|entry| entry.symptoms().contains(symptom)), "{symptom:?}");
            assert!(!symptom.title().ends_with('.') && !symptom.steps().is_empty(), "{symptom:?}");
            for step in symptom.steps() {
                assert!(step.command.starts_with("ironswan "), "{symptom:?}: {}", step.command);
                assert!(
                    !step.tells.contains(['|', '\n']) && step.tells.len() <= 250,
                    "{symptom:?}: {}",
                    step.tells
                );
            }
        }
    }
}
