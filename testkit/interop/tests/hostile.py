#!/usr/bin/env python3
"""ESP that lies, for an SA that there is, over every back end: counted by its reason, none gets in, nothing is kept.

usage: testkit/interop/run [--full] [--seed=N] hostile[.TEST]      --full: ten times as many frames
The frames are put on the wire as they are, beneath the kernel: lengths, checksums, addresses and numbers may be anything
(lies.py).
"""
import re
import time

from backends import BACKENDS, bursts, check_used
from daemon import most_resident, resident
from gateway import IronSwan, tunnel
from lab import check, main, say, take_seed, until
from leakline import Helper
from traffic import Numbered, check_no_loss, ping
from wan import balance, counters

SEED = take_seed(11)
REASONS = ('InStateProtoError', 'InStateSeqDuplicate', 'InStateSeqOld', 'InNoStates', 'InReservedSpi', 'InHdrError')


def heard(lab):
    """IPv4 packets that have come to a, but those of `bursts`."""
    return int(re.search(r'counter packets (\d+)', lab.run('a', 'nft', 'list', 'table', 'ip', 'hear'))[1])


def hostile(lab, full, name=None, encap=True):
    lab.line()
    ends = [IronSwan(lab, box).start(tunnel(box, encap=encap), BACKENDS.get(name, '')) for box in ('g1', 'g2')]
    g1, _ = ends
    g1.initiate()
    ping(lab)
    path = lab.write('hear.nft', 'table ip hear {\n  chain in {\n    type filter hook prerouting priority -500;\n'
                     '    udp dport 7999 accept\n    iifname "eth0" counter\n  }\n}\n')
    lab.run('a', 'nft', '-f', path)
    mac = lab.run('g1', 'cat', '/sys/class/net/wan/address').strip()
    liar = Helper(lab, 'g2', 'lies.py', 'wan', mac, SEED).ready()
    traffic = Numbered(lab, rate=400, size=300)
    time.sleep(0.5)
    check_no_loss(traffic.end())
    liar.ask()
    recorded = liar.answer()
    check(recorded > 100, f'{recorded} genuine frames recorded')
    time.sleep(0.3)
    # Two workers share only what one does not get done.
    load = bursts(lab, 'b', '10.1.0.2', '10.2.0.2') if name == 'workers' else None
    before, came, lines, seen = counters(g1), heard(lab), len(g1.log().splitlines()), []
    check(came > 10, f'what is genuine is heard in a: {came} packets')
    for half in (1, 2):
        liar.ask(str(2000 if full else 200))
        sent = liar.answer()  # the same in either half
        time.sleep(0.5)
        seen.append(resident(g1.process))
        say(f'  half {half}: {sum(sent.values())} frames of {len(sent)} kinds')
    now = counters(g1)
    drops = {r: n - before['drops'].get(r, 0) for r, n in now['drops'].items() if n != before['drops'].get(r, 0)}
    # The gateway need not keep up: half of those whose headers are right.
    least = sum(sent[k] for k in ('forged', 'replayed', 'damaged', 'no such SPI'))
    check(all(drops.get(r, 0) > 10 for r in REASONS) and sum(drops.values()) >= least, f'{sum(drops.values())} counted, at least '
          f'{least}: {drops}')
    if name == 'xdp':
        frames, bad = (now['plane'][k] - before['plane'][k] for k in ('xdp-frames', 'xdp-malformed'))
        check(bad >= sent['IP too long'] // 2 and frames > bad,
              f'{frames} frames came through AF_XDP, {bad} of them malformed')
    elif name:
        check_used(g1, name)
    if load:
        load.stop()
    else:
        delivered = now['packets']['in-writes'] - before['packets']['in-writes']
        check(delivered == 0, f'{delivered} packets were delivered')
    check(heard(lab) == came, f'{heard(lab) - came} packets got in to a')
    balance(g1)
    # What genuine load touches of the workers' buffers for the first time is memory.py's subject.
    most = most_resident(g1) if load else seen[0] + max(seen[0] // 50, 1024)
    check(seen[1] <= most, f'resident: {seen[0]} KiB after the first half, {seen[1]} after the second; at most {most}')
    grown = len(g1.log().splitlines()) - lines
    check(grown < 200 and 'panicked' not in g1.log(), f'the log grew by {grown} lines')
    traffic = Numbered(lab, rate=400)
    g1.rekey('child')
    time.sleep(0.5)
    check_no_loss(traffic.end())
    until('the peer has one SA, too', lambda: len(ends[1].child_spis()) == 1)


def of(name, what, **options):
    def test(lab, full):
        hostile(lab, full, name, **options)
    test.__doc__ = what
    return test


TESTS = {'lying_esp_udp': of(None, 'ESP in UDP, with the defaults.'), 'lying_esp_raw': of(None, 'ESP as IP protocol 50.', encap=False),
         'lying_esp_xdp': of('xdp', 'ESP in UDP through AF_XDP.'),
         'lying_esp_xdp_raw': of('xdp', 'ESP as IP protocol 50 through AF_XDP.', encap=False),
         'lying_esp_without_offloads': of('single', 'Without offloads.'), 'lying_esp_two_workers': of('workers', 'With two workers.')}

if __name__ == '__main__':
    main(TESTS, 'hostile')
