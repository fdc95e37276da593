#!/usr/bin/env python3
"""One strongSwan 5.9.8 as the peer of two connections with the same identities, which stand beside each other, and as a peer at
the second of two addresses, or of an attempt that is given up.

usage: testkit/interop/run [--full] contact[.TEST]      --full: ten rekeyings of each kind from each side instead of five
INTEROP_REFERENCE=1 puts strongSwan at both ends: then a failure is one of the test, not of IronSwan.
"""
import re
import time

from gateway import REFERENCE, Charon, Ours, tunnel
from lab import check, main, need, until
from traffic import Numbered, check_no_loss, own_losses, ping

# Our network is in halves, one a connection: strongSwan's kernel-libipsec wants an address of its own in what it protects.
HALVES = ('10.1.0.0/25', '10.1.0.128/25')
SECOND = '10.1.0.130'


def spis(gateway):
    """The SPIs of its established IKE_SAs, and those of their installed children."""
    up = [sa for sa in gateway.sas() if sa['state'] == 'ESTABLISHED']
    children = {(c['spi-in'], c['spi-out']) for sa in up for c in sa['child-sas'].values() if c['state'] == 'INSTALLED'}
    return {(sa['initiator-spi'], sa['responder-spi']) for sa in up}, children


def rekey_all(gateway, what, names):
    """Rekeys both IKE_SAs, or both children, and waits until only the new ones are up on this side."""
    at = 0 if what == 'ike' else 1
    old = spis(gateway)[at]
    for name in names:
        gateway.swanctl('--rekey', f'--{what}', name)
    until(f'{gateway.kind}: both rekeyed, {what}', lambda: len(now := spis(gateway)[at]) == 2 and not now & old, 20)


def named(text, name, child):
    """The configuration of one end of the line under other names of connection and child."""
    text = re.sub(r'(?m)^  net \{', f'  {name} {{', text)
    return re.sub(r'(?m)^      net \{', f'      {child} {{', text)


def two_connections(lab, full, ids, together):
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    lab.ip('a', 'addr', 'add', f'{SECOND}/24', 'dev', 'eth0')
    start = 'start_action = start' if together else ''
    both = ''.join(named(tunnel('g1', remote_id=remote, child=start, local_ts=half), name, child)
                   for remote, half, name, child in zip(ids, HALVES, ('one', 'two'), ('c1', 'c2')))
    theirs = named(tunnel('g2', remote_ts=HALVES[0]), 'net', 'c1')
    first = re.search(r'(?ms)^      c1 \{.*?^      \}\n', theirs).group()
    theirs = theirs.replace(first, first + first.replace('c1', 'c2').replace(HALVES[0], HALVES[1]))
    them = Charon(lab, 'g2').start(theirs)
    us = Ours(lab, 'g1').start(both)
    if not together:
        us.initiate('c1')
        us.initiate('c2')
    until('both are up at both ends', lambda: all(tuple(map(len, spis(g))) == (2, 2) for g in (us, them)))
    for to in ('10.1.0.2', SECOND):
        ping(lab, 'b', to=to)
    before, load = own_losses(lab, 'g2'), [Numbered(lab, rate=800), Numbered(lab, a=SECOND, rate=800, port=7001)]
    for n in range(10 if full else 5):
        for gateway, ikes in ((us, ('one', 'two')), (them, ('net',))):
            rekey_all(gateway, 'child', ('c1', 'c2'))
            rekey_all(gateway, 'ike', ikes)
    check(True, f'both children and both IKE_SAs were rekeyed {n + 1} times from each side')
    for report in load:
        report = report.end()
        if own_losses(lab, 'g2') == before:
            check_no_loss(report)
    for gateway in (us, them):
        check(tuple(map(len, spis(gateway))) == (2, 2), f'{gateway.kind} has two IKE_SAs, each with its child')
        check('destroying duplicate' not in gateway.log(), f'{gateway.kind} has taken neither for a duplicate of the other')
    for to in ('10.1.0.2', SECOND):
        ping(lab, 'b', to=to)


def both_take_any_identity(lab, full):
    """Both connections take whoever is at the peer's address."""
    two_connections(lab, full, ('%any', '%any'), False)


def one_writes_the_identity_in_capitals(lab, full):
    """One takes anybody, the other writes the identity in capitals."""
    two_connections(lab, full, ('%any', 'G2.EXAMPLE'), False)


def both_begin_when_loaded(lab, full):
    """Both are started when they are loaded."""
    two_connections(lab, full, ('g2.example', 'G2.example'), True)


def second_address_is_asked_after_two_seconds(lab, full):
    """Nobody answers at the first address: the second is asked after two seconds, and is up at once."""
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    them = Charon(lab, 'g2').start(tunnel('g2'))
    conf = re.sub(r'remote_addrs = \S+', 'remote_addrs = 192.0.2.77, 192.0.2.2', tunnel('g1', conn='keyingtries = 1'))
    us = Ours(lab, 'g1').start(conf)
    began = time.monotonic()
    us.initiate()
    took = time.monotonic() - began
    check(2 <= took + 0.1 and took < 10, f'up after {took:.1f} s (2 s are waited at the first address)')
    ping(lab)
    for what in ('child', 'ike'):
        us.rekey(what)
    ping(lab)
    for gateway in (us, them):
        check(tuple(map(len, spis(gateway))) == (1, 1), f'{gateway.kind} has one IKE_SA with one child')
    check(all(sa['remote-host'] == '192.0.2.2' for sa in us.sas()), 'nothing is left of the attempt at the first address')


def ended_attempt_leaves_nothing(lab, full):
    """Its IKE_AUTH response does not come through: when we terminate the attempt, it has nothing left of it."""
    need('ip', 'nft', 'swanctl', 'charon-systemd')
    lab.line()
    them = Charon(lab, 'g2').start(tunnel('g2'))
    us = Ours(lab, 'g1').start(tunnel('g1'))
    # The exchange type stands 18 bytes into the message, behind 8 of UDP and the 4 of the marker.
    lab.run('g1', 'nft', 'add table ip hole; add chain ip hole in { type filter hook input priority 0; }; '
                         'add rule ip hole in udp sport 4500 @th,240,8 35 counter drop')
    us.swanctl('--initiate', '--child', 'net', '--timeout', 1, fail=False)
    states = lambda gateway: [sa['state'] for sa in gateway.sas()]
    until('it has established the IKE_SA', lambda: states(them) == ['ESTABLISHED'])
    check(states(us) == ['CONNECTING'], 'and we have not')
    us.swanctl('--terminate', '--ike', 'net')
    until('nothing is left of it at either end', lambda: states(them) == states(us) == [], 10)


TESTS = {f.__name__: f for f in (
    both_take_any_identity, one_writes_the_identity_in_capitals, both_begin_when_loaded, second_address_is_asked_after_two_seconds,
    *(() if REFERENCE else (ended_attempt_leaves_nothing,)))}
main(TESTS, 'contact')
