#!/usr/bin/env python3
"""The two ends agree on a child: narrowed selectors, several children of one IKE_SA, both IP versions, TFC padding; in both roles.

usage: testkit/interop/run [--full] agreed[.TEST]      --full: every pair of IP versions, and TFC padding with Libreswan
INTEROP_REFERENCE=1 puts strongSwan at both ends: then a failure is one of the test, not of IronSwan.
"""
import itertools
import re
import sys
import time

from gateway import IKE, REFERENCE, Charon, Ours, tunnel
from guest import line_before_guest
from lab import check, main, need, say, until
from libreswan import Libreswan
from libreswan import conf as libreswan_conf
from traffic import Numbered, check_no_loss, ping


def pair(lab, ours='g1', our_conf=None, their_conf=None, **conf):
    """The line, IronSwan in box `ours` and charon in the other."""
    need('ip', 'nft', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    us = Ours(lab, ours).start(tunnel(ours, **{**conf, **(our_conf or {})}))
    peer = 'g2' if ours == 'g1' else 'g1'
    return us, Charon(lab, peer).start(tunnel(peer, **{**conf, **(their_conf or {})}))


def empty(us, them):
    us.swanctl('--terminate', '--ike', 'net', fail=False)
    until('both are empty', lambda: not us.sas() and not them.sas())


# Case; selectors of ours (local, remote), of charon (local, remote); selectors that both agree on, from our side, or none.
NARROWING = (
    ('the peer is wider', ('10.1.0.0/24', '10.2.0.0/24'), ('10.2.0.0/16', '10.0.0.0/8'), ('10.1.0.0/24', '10.2.0.0/24')),
    ('the peer is narrower', ('10.1.0.0/16', '10.2.0.0/16'), ('10.2.0.0/28', '10.1.0.0/25'), ('10.1.0.0/25', '10.2.0.0/28')),
    ('each is wider on one side', ('10.0.0.0/8', '10.2.0.0/28'), ('10.2.0.0/16', '10.1.0.0/30'), ('10.1.0.0/30', '10.2.0.0/28')),
    ('ranges that overlap', ('10.1.0.0/24', '10.2.0.0-10.2.0.99'), ('10.2.0.1-10.2.0.200', '10.1.0.0/24'),
     ('10.1.0.0/24', '10.2.0.1..10.2.0.99')),
    ('one of several', ('10.1.0.0/24', '10.2.0.0/28,10.9.0.0/24'), ('10.2.0.0/24', '10.1.0.0/24'), ('10.1.0.0/24', '10.2.0.0/28')),
    ('several of one', ('10.1.0.0/24', '10.2.0.0/16'), ('10.2.0.0/28,10.2.0.64/28', '10.1.0.0/24'),
     ('10.1.0.0/24', '10.2.0.0/28 10.2.0.64/28')),
    ('several of several', ('10.1.0.0/28,10.1.0.64/26', '10.2.0.0/27,10.2.0.128/25'),
     ('10.2.0.0/28,10.2.0.192/26', '10.1.0.0/24,10.3.0.0/24'), ('10.1.0.0/28 10.1.0.64/26', '10.2.0.0/28 10.2.0.192/26')),
    ('a protocol of all', ('10.1.0.0/24[udp]', '10.2.0.0/24[udp]'), ('10.2.0.0/24', '10.1.0.0/24'), ('10.1.0.0/24[udp]', '10.2.0.0/24[udp]')),
    ('a port of a range', ('10.1.0.0/24[udp/47000-47100]', '10.2.0.0/24[udp/47000-47100]'), ('10.2.0.0/24[udp/47000]', '10.1.0.0/24[udp/47000]'),
     ('10.1.0.0/24[udp/47000]', '10.2.0.0/24[udp/47000]')),
    ('a port of a protocol', ('10.1.0.0/24[udp]', '10.2.0.0/24[udp/47000]'), ('10.2.0.0/24[udp]', '10.1.0.0/24[udp]'),
     ('10.1.0.0/24[udp]', '10.2.0.0/24[udp/47000]')),
    ('other networks', ('10.1.0.0/24', '10.77.0.0/24'), ('10.2.0.0/24', '10.1.0.0/24'), None),
    ('another network on our side alone', ('10.78.0.0/24', '10.2.0.0/24'), ('10.2.0.0/24', '10.1.0.0/24'), None),
    ('other protocols', ('10.1.0.0/24[tcp]', '10.2.0.0/24[tcp]'), ('10.2.0.0/24[udp]', '10.1.0.0/24[udp]'), None),
    ('other ports', ('10.1.0.0/24[udp/47000]', '10.2.0.0/24[udp/47000]'), ('10.2.0.0/24[udp/48000-48010]', '10.1.0.0/24[udp/48000-48010]'), None),
)


def selectors(gateway):
    """What list-sas shows of the child: local and remote, in the order of addresses."""
    child = gateway.children()['net']
    return tuple(' '.join(sorted(child[side])) for side in ('local-ts', 'remote-ts'))


def narrowed(lab, ours):
    us, them = pair(lab, ours)
    # charon's kernel-libipsec wants an address of its own in what it protects.
    for box, address in (('g1', '10.1.0.65'), ('g2', '10.2.0.65'), ('g2', '10.2.0.193')):
        lab.ip(box, 'addr', 'add', f'{address}/32', 'dev', 'lan')
    initiator = us if ours == 'g1' else them
    for what, mine, theirs, agreed in NARROWING:
        # The table is written for us in g1.
        sides = {us: mine, them: theirs} if ours == 'g1' else {us: theirs, them: mine}
        for gateway, (local, remote) in sides.items():
            gateway.load(tunnel(gateway.box, local_ts=local, remote_ts=remote))
        mark = len(us.log())
        done = initiator.swanctl('--initiate', '--child', 'net', '--timeout', '20', fail=False)
        if agreed is None:
            check(done.returncode != 0 and not us.children() and not them.children(), f'{what}: no child')
            check(len(us.established()) == len(them.established()) == 1, f'{what}: the IKE_SA stays')
            word = 'received TS_UNACCEPTABLE' if initiator is us else 'configured are'
            check(REFERENCE or word in us.log()[mark:], f'{what}: our log says so')
        else:
            at = selectors(us), selectors(them)[::-1]
            want = agreed if ours == 'g1' else agreed[::-1]
            check(at == (want, want), f'{what}: {at[0][0]} === {at[0][1]}' if at == (want, want) else f'{what}: {at}, and not {want}')
            if '47000' in agreed[0]:
                load = Numbered(lab, rate=200, port=47000)
                time.sleep(0.3)
                check_no_loss(load.end(), at_least=20)
            elif 'udp' not in agreed[0]:
                ping(lab, count=2)
        empty(us, them)


def narrowing_as_initiator(lab, full):
    """We propose; charon narrows, or refuses: both show the same selectors, and packets within them pass."""
    narrowed(lab, 'g1')


def narrowing_as_responder(lab, full):
    """charon proposes, and we narrow or refuse."""
    narrowed(lab, 'g2')


# As g1 has them, and as g2 has them.
CHILDREN = {'one': {'remote_ts': '10.2.0.0/28'}, 'proposal': {'remote_ts': '10.2.0.32/28', 'esp': 'aes256gcm16'},
            'two': {'remote_ts': '10.2.0.16/28'}, 'selectors': {'remote_ts': '10.77.0.0/28'}}
THEIRS = {'one': {'local_ts': '10.2.0.0/28'}, 'proposal': {'local_ts': '10.2.0.32/28'}, 'two': {'local_ts': '10.2.0.16/28'},
          'selectors': {'local_ts': '10.2.0.48/28'}}
REFUSED = {'proposal': 'NO_PROPOSAL_CHOSEN', 'selectors': 'TS_UNACCEPTABLE'}


def refused_beside_others(lab, ours):
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    for n in (16, 32, 48):
        lab.ip('g2', 'addr', 'add', f'10.2.0.{n + 1}/32', 'dev', 'lan')
        lab.ip('b', 'addr', 'add', f'10.2.0.{n + 2}/32', 'dev', 'eth0')
    kinds = {'g1': Ours, 'g2': Charon} if ours == 'g1' else {'g1': Charon, 'g2': Ours}
    responder = kinds['g2'](lab, 'g2').start(tunnel('g2', children=THEIRS))
    initiator = kinds['g1'](lab, 'g1').start(tunnel('g1', children=CHILDREN))
    us, them = (initiator, responder) if ours == 'g1' else (responder, initiator)

    def refuse():
        for name, notify in REFUSED.items():
            done = initiator.swanctl('--initiate', '--child', name, '--timeout', '20', fail=False)
            check(done.returncode != 0 and name not in us.children(), f'the child `{name}` is refused')
            check(f'received {notify} notify' in initiator.log(), f'by {notify}')
    initiator.initiate('one')
    load = [Numbered(lab)]
    refuse()
    initiator.initiate('two')
    load.append(Numbered(lab, b='10.2.0.18', port=7001))
    refuse()
    for gateway in (us, them):
        before = {c['spi-in'] for c in gateway.children().values()}
        for name in ('one', 'two'):
            gateway.swanctl('--rekey', '--child', name)
        until('both children are rekeyed', lambda gateway=gateway, before=before: set(now := gateway.children()) == {'one', 'two'}
              and not before & {c['spi-in'] for c in now.values()})
        ike = gateway.ike_spis()
        gateway.swanctl('--rekey', '--ike', 'net')
        until('the IKE_SA is rekeyed', lambda gateway=gateway, ike=ike: len(now := gateway.ike_spis()) == 1 and not now & ike)
        refuse()
    for report in load:
        check_no_loss(report.end())
    for gateway in (us, them):
        check(len(gateway.sas()) == 1 and set(gateway.children()) == {'one', 'two'}, f'{gateway.kind} has one IKE_SA with both children')
    them.swanctl('--terminate', '--child', 'one')
    until('the first is closed', lambda: set(us.children()) == set(them.children()) == {'two'})
    ping(lab, to='10.2.0.18')
    check(True, 'charon has closed the first: the second carries packets')


def refused_children_harm_no_other_as_initiator(lab, full):
    """Of four children of one IKE_SA two are refused, again and again: the others lose no packet, also while they are rekeyed."""
    refused_beside_others(lab, 'g1')


def refused_children_harm_no_other_as_responder(lab, full):
    """The same, when we refuse."""
    refused_beside_others(lab, 'g2')


def both_ip_versions(lab, full):
    """Either IP version outside and inside: numbered packets, while each side rekeys the child and the IKE_SA, in both roles."""
    us, them = pair(lab)
    ways = list(itertools.product((False, True), repeat=2))
    pairs = [(way, who) for way in ways for who in (us, them)] if full else [((True, False), us), ((False, True), them)]
    for (outer, inner), initiator in pairs:
        for gateway in (us, them):
            gateway.load(tunnel(gateway.box, v6_outer=outer, v6_inner=inner))
        initiator.initiate()
        what = f"IPv{6 if outer else 4} outside, IPv{6 if inner else 4} inside, {initiator.kind} initiates"
        check((':' in us.established()[0]['remote-host'], ':' in us.children()['net']['remote-ts'][0]) == (outer, inner), what)
        ends = {'a': 'fd00:1::2', 'b': 'fd00:2::2'} if inner else {}
        load = Numbered(lab, **ends)
        for gateway, kind in itertools.product((us, them), ('child', 'ike')):
            gateway.rekey(kind)
        # The old inbound SAs are kept for 5 s.
        time.sleep(6 if full else 0.3)
        check_no_loss(load.end())
        empty(us, them)


def lengths(lab, box, device='wan'):
    """Begins to count packets of ESP in UDP that come in by a device: longer than 900 bytes, and shorter."""
    lab.run(box, 'nft', f'add table netdev seen; add counter netdev seen long; add counter netdev seen short; '
            f'add chain netdev seen in {{ type filter hook ingress device "{device}" priority 0; }}; '
            'add rule netdev seen in udp dport 4500 @th,64,32 != 0 udp length > 900 counter name long; '
            'add rule netdev seen in udp dport 4500 @th,64,32 != 0 udp length 20-900 counter name short')

    def read():
        text = lab.run(box, 'nft', 'reset', 'counters', 'table', 'netdev', 'seen')
        return {name: int(n) for name, n in re.findall(r'counter (\w+) \{\s+packets (\d+)', text)}
    return read


def tfc_padding(lab, full):
    """Our packets are padded to 1,000 bytes, whoever initiates and rekeys; charon takes them, and its own come as they are."""
    us, them = pair(lab, our_conf={'child': 'tfc_padding = 1000'})
    seen = lengths(lab, 'g2')
    for initiator in (us, them):
        initiator.initiate()
        for gateway in (None, us, them):
            if gateway:
                gateway.rekey('child')
            seen()
            ping(lab)
            found = seen()
            check(REFERENCE or found == {'long': 3, 'short': 0},
                  f"{initiator.kind} initiates{f', {gateway.kind} rekeys' if gateway else ''}: 3 echo requests of 84 bytes leave as {found}")
        empty(us, them)
    check('TFC' not in us.log(), 'charon says nothing against padding')


def no_tfc_padding_for_libreswan(lab, full):
    """Libreswan says ESP_TFC_PADDING_NOT_SUPPORTED when it is told to: we do not pad, whoever initiates and rekeys. Else it takes padding."""
    need('ip', 'nft', 'swanctl', 'linux.uml', 'ping')
    line_before_guest(lab)
    seen = lengths(lab, 'g2', 'eth0')
    them = Libreswan(lab, libreswan_conf('g2', more='encapsulation=yes'))
    text = tunnel('g1', ike=IKE, child='tfc_padding = 1000')
    us = Ours(lab, 'g1').start(text)
    for refuses in (False, True):
        them.load(libreswan_conf('g2', more='encapsulation=yes' + '\nsend-no-esp-tfc=yes' * refuses))
        for initiator in (us, them):
            mark = len(us.log())
            initiator.initiate()
            until('the child is up', us.child_spis)
            for gateway in (None, us, them):
                if gateway:
                    before = us.child_spis()
                    gateway.swanctl('--rekey', '--child', 'net') if gateway is us else gateway.rekey('child')
                    until('rekeyed', lambda before=before: len(now := us.child_spis()) == 1 and not now & before, 20)
                seen()
                ping(lab, to='10.2.0.1')
                found = seen()
                check((found['long'], found['short']) == ((0, 3) if refuses else (3, 0)),
                      f"{initiator.kind} initiates{f', {gateway.kind} rekeys' if gateway else ''}: 3 echo requests of 84 bytes leave as {found}")
            said = 'received ESP_TFC_PADDING_NOT_SUPPORTED' in us.log()[mark:]
            check(said == refuses, 'our log says why' if refuses else 'no word against padding')
            us.terminate()
            until('we have nothing left', lambda: not us.sas())
            say('  ok   both are empty')


TESTS = (narrowing_as_initiator, narrowing_as_responder, refused_children_harm_no_other_as_initiator,
         refused_children_harm_no_other_as_responder, both_ip_versions, tfc_padding, no_tfc_padding_for_libreswan)
if not {'--full', '--list', 'no_tfc_padding_for_libreswan'} & set(sys.argv):
    TESTS = TESTS[:-1]
main({f.__name__: f for f in TESTS}, 'agreed')
