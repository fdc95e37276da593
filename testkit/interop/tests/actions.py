#!/usr/bin/env python3
"""`start_action`, `close_action` and `dpd_action`, each with each of its values, as strongSwan's manual describes them.

usage: testkit/interop/run [--full] actions[.TEST]      --full: also with children that charon has initiated
INTEROP_REFERENCE=1 puts strongSwan at both ends: then a failure is one of the test, not of IronSwan.

One IKE_SA has a child for each value, with an eighth of the far network each, so that all values stand the same event side by side:

    none    stays closed                        trap    stays closed until a packet asks for it
    start   comes up at once                    both    `trap|start`: comes up at once, and has its trap as well
"""
import time

from gateway import REFERENCE, Charon, Ours, tunnel
from lab import check, main, need, until
from traffic import ping

VALUES = {'none': 'none', 'trap': 'trap', 'start': 'start', 'both': 'trap|start'}
TRAPS, STARTS = {'trap', 'both'}, {'start', 'both'}
# Seconds in which whatever is to come up by itself has come up; then nothing more does.
SETTLED = 1.5


def part(number, host):
    """An address in the part of the far network that belongs to a child."""
    return f'10.2.0.{32 * (number + 1) + host}'


TARGET = {name: part(number, 2) for number, name in enumerate(VALUES)}
PART = {name: f'{part(number, 0)}/27' for number, name in enumerate(VALUES)}


def pair(lab, action=None, conn='', settings='', options='', words=VALUES):
    """The line, IronSwan in g1 with `action` at each child, charon in g2 with none."""
    need('ip', 'nft', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    for number in range(len(VALUES)):
        # charon's kernel-libipsec wants an address of its own in what it protects.
        lab.ip('g2', 'addr', 'add', f'{part(number, 1)}/32', 'dev', 'lan')
        lab.ip('b', 'addr', 'add', f'{part(number, 2)}/32', 'dev', 'eth0')
    them = Charon(lab, 'g2').start(tunnel('g2', children={name: {'local_ts': PART[name]} for name in VALUES}))
    children = {name: {'remote_ts': PART[name], 'child': f'{action} = {words[name]}' if action else ''} for name in VALUES}
    more = {'options': options} if REFERENCE else {'settings': settings}
    us = Ours(lab, 'g1').start(tunnel('g1', children=children, conn=conn), **more)
    return us, them


def all_up(us, initiator):
    for name in set(VALUES) - set(us.children()):
        initiator.initiate(name)
    check(set(us.children()) == set(VALUES), f'{initiator.kind} has initiated, all children are up')


def check_up(us, them, names, what, before=()):
    """Exactly these children are up at both ends, and stay so; none of them is one of before."""
    def settled():
        ours, theirs = us.children(), them.children()
        fresh = not {c['spi-in'] for c in ours.values()} & set(before)
        return set(ours) == set(theirs) == set(names) and fresh
    until(f'{what}: up are {sorted(names)}', settled, 15)
    time.sleep(SETTLED)
    check(settled(), f'{what}: up are {sorted(names)}, and no other')


def check_packets(lab, us, up, by_packet):
    """Packets pass where a child is up, bring up those with a trap, and nothing else."""
    for name in VALUES:
        if name in up:
            ping(lab, to=TARGET[name], count=2)
        elif name in by_packet and REFERENCE:
            # charon's ESP in user space reports no packet that meets a trap.
            us.initiate(name)
        else:
            ping(lab, to=TARGET[name], count=2, wait=1, fail=False)
            if name in by_packet:
                until(f'{name}: a packet brings it up', lambda name=name: name in us.children())
                ping(lab, to=TARGET[name])
    check(set(us.children()) == set(up) | set(by_packet), f'packets pass through {sorted(up)}, and bring up {sorted(set(by_packet) - set(up))}')


def spis(us):
    return {c['spi-in'] for c in us.children().values()}


def start_action(lab, full):
    """At load: nothing, a trap, the child, or both. A command that closes the child leaves its trap, and no start."""
    us, them = pair(lab, 'start_action')
    check_up(us, them, STARTS, 'loaded')
    check(us.traps() == TRAPS, f'traps stand for {sorted(TRAPS)}')
    check_packets(lab, us, STARTS, TRAPS)
    us.swanctl('--terminate', '--ike', 'net')
    check_up(us, them, (), 'terminated')
    check(us.traps() == TRAPS, 'the traps stand still')
    check_packets(lab, us, (), TRAPS)


def close_action(lab, full):
    """charon closes each child, and then the IKE_SA: each child does as its value says, whoever has initiated it."""
    us, them = pair(lab, 'close_action')
    for initiator in (us, them) if full else (us,):
        check(not us.traps(), 'no trap stands')
        all_up(us, initiator)
        before = spis(us)
        for name in VALUES:
            them.swanctl('--terminate', '--child', name)
        check_up(us, them, STARTS, 'charon has closed each child', before)
        check(us.traps() == TRAPS, f'traps stand for {sorted(TRAPS)}')
        check_packets(lab, us, STARTS, TRAPS)
        all_up(us, initiator)
        before = spis(us)
        them.terminate()
        check_up(us, them, STARTS, 'charon has deleted the IKE_SA', before)
        check_packets(lab, us, STARTS, TRAPS)
        # Our own command is none of the peer's.
        us.terminate()
        check_up(us, them, (), 'we have deleted the IKE_SA')
        if initiator is not them and full:
            us.load(tunnel('g1', children={}))
            us.load(tunnel('g1', children={name: {'remote_ts': PART[name], 'child': f'close_action = {VALUES[name]}'} for name in VALUES}))


def dpd_action(lab, full):
    """The peer falls silent, and comes back: each child does as its value says, in the words that strongSwan has for them."""
    times = 'retransmit_timeout = 0.5\nretransmit_tries = 2\nretransmit_base = 1.0\n'
    # charon takes one word here.
    both, traps = ('restart', {'trap'}) if REFERENCE else ('trap|restart', TRAPS)
    us, them = pair(lab, 'dpd_action', 'dpd_delay = 1s\n    keyingtries = 0', times + 'retry_initial = 0.5s\n', times,
                    {'none': 'clear', 'trap': 'trap', 'start': 'restart', 'both': both})
    all_up(us, us)
    before = spis(us)
    lab.run('g2', 'nft', 'add table inet cut; add chain inet cut in { type filter hook input priority 0; }; '
            'add rule inet cut in udp dport { 500, 4500 } drop')
    until('the peer is found dead', lambda: not us.children(), 15)
    check(True, 'the peer is silent: all children are gone')
    time.sleep(SETTLED)
    check(us.traps() == traps, f'traps stand for {sorted(traps)}')
    check(not us.established(), 'an attempt is under way')
    lab.run('g2', 'nft', 'delete table inet cut')
    check_up(us, them, STARTS, 'the peer is there again', before)
    # With charon at both ends not all of these packets pass: the policies of before stand in the way of its ESP in user space.
    if not REFERENCE:
        check_packets(lab, us, STARTS, traps)


main({f.__name__: f for f in (start_action, close_action, dpd_action)}, 'actions')
