#!/usr/bin/env python3
"""Reauthentication with strongSwan 5.9.8, in both roles, with numbered packets: by reauth_time, and by AUTH_LIFETIME.

usage: testkit/interop/run reauth[.TEST]
"""
import time

from gateway import ADDRESS, OTHER, Charon, Ours, tunnel
from lab import check, main, need, until
from traffic import Numbered, check_no_loss, ping

OFTEN = 'reauth_time = 8s\n    over_time = 20s\n    rand_time = 1s'
NAMED = 'reauth_time = 16s\n    over_time = 60s\n    rand_time = 0s'

# The peer begins anew so long before the time that we name: its first retransmission, after 4 s, has to come in time, too. On a busy
# machine charon misses our answer to IKE_SA_INIT now and then, because it has not yet put the new IKE_SA into its table.
EARLIER = '8s'


def passive(box, text):
    """The same configuration without an address of the peer: this end cannot initiate."""
    return text.replace(f'remote_addrs = {ADDRESS[OTHER[box]]}', 'remote_addrs = %any')


def pair(lab, ours, our_text, peer_text):
    """The line, IronSwan in box `ours` and charon in the other, which makes the new IKE_SA before the old one goes."""
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    us = Ours(lab, ours).start(our_text)
    them = Charon(lab, OTHER[ours]).start(peer_text, options='make_before_break = yes')
    return us, them


def made_anew(lab, us, them, times):
    """Numbered packets both ways while the IKE_SA is made anew so often; none is lost."""
    ping(lab)
    load, seen = Numbered(lab), set()

    def often():
        if len(us.sas()) == 1:
            seen.add(str(us.ike_spis()))
        return len(seen) > times

    until(f'the IKE_SA is made anew {times} times', often, 90)
    # The old inbound SAs are kept for 5 s: their end must not lose anything either.
    until('both have one IKE_SA', lambda: len(us.sas()) == len(them.sas()) == 1, 5)
    check(us.ike_spis() == them.ike_spis(), 'both name the same IKE SPIs')
    check(us.child_spis() == {(o, i) for i, o in them.child_spis()}, 'both name the same ESP SPIs')
    time.sleep(6)
    check_no_loss(load.end(), at_least=1000)


def as_initiator(lab, full):
    """We make the IKE_SA anew every 8 s, and the peer takes it."""
    us, them = pair(lab, 'g1', tunnel('g1', conn=OFTEN), tunnel('g2'))
    us.initiate()
    made_anew(lab, us, them, 3)


def as_responder(lab, full):
    """The peer makes the IKE_SA anew every 8 s: we send on the old SAs until it has the new ones."""
    us, them = pair(lab, 'g2', tunnel('g2'), tunnel('g1', conn=OFTEN))
    them.initiate()
    made_anew(lab, us, them, 3)


def peer_keeps_to_our_time(lab, full):
    """We cannot reach the peer and name 16 s in IKE_AUTH; the peer begins anew in time."""
    us, them = pair(lab, 'g2', passive('g2', tunnel('g2', conn=NAMED)),
                    tunnel('g1', conn=f'over_time = {EARLIER}'))
    them.initiate()
    until('we name the time', lambda: 'sending AUTH_LIFETIME of 16s' in us.log(), 10)
    made_anew(lab, us, them, 2)


main({f.__name__: f for f in (as_initiator, as_responder, peer_keeps_to_our_time)}, 'reauth')
