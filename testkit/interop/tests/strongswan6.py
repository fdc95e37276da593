#!/usr/bin/env python3
"""IronSwan against strongSwan 6 (ESP in user space), in both roles.

usage: testkit/interop/run strongswan6[.TEST]
INTEROP_REFERENCE=1 puts strongSwan 5 in IronSwan's place: what fails then is the test's fault.
"""
import time

from gateway import Ours, tunnel
from lab import check, main, need
from peers import Charon6
from traffic import Numbered, check_no_loss, ping


def pair(lab, **conf):
    """The line, IronSwan in g1 and strongSwan 6 in g2, both loaded."""
    need('ip', 'ping')
    lab.line()
    us = Ours(lab, 'g1').start(tunnel('g1', **conf))
    them = Charon6(lab, 'g2').start(tunnel('g2', **conf))
    check(True, f'strongSwan {them.version()}')
    return us, them


def rekeys_both_ways(lab, full):
    """Each side initiates; each side rekeys the CHILD_SA and the IKE_SA under numbered packets, and nothing is lost."""
    us, them = pair(lab)
    for initiator in (us, them):
        initiator.initiate()
        ping(lab)
        load = Numbered(lab, rate=200)
        for gateway in (us, them):
            for what in ('child', 'ike', 'child'):
                gateway.rekey(what)
                # Packets cross each SA before the next one takes its place.
                time.sleep(0.3)
        check_no_loss(load.end())
        check(us.ike_spis() == them.ike_spis(), f'{initiator.kind} initiated: both name the same IKE SPIs')
        check(us.child_spis() == {(o, i) for i, o in them.child_spis()}, 'both name the same ESP SPIs')
        initiator.swanctl('--terminate', '--ike', 'net')
        check(not us.sas() and not them.sas(), f'{initiator.kind} deleted it: both ends are clean')


if __name__ == '__main__':
    main({f.__name__: f for f in (rekeys_both_ways,)}, 'strongswan6')
