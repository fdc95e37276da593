#!/usr/bin/env python3
"""A kernel that has less: strace answers in its place, and the daemon says what it lacks and goes the slower way.

usage: testkit/interop/run lacking[.TEST]
Which call it is that asks for a thing is seen in a start of the daemon that goes well, and then refused in the next one. Both
kinds of traffic cross both ways afterwards (offloads.py), and the outer link is listened to.
"""
import os
import re
import signal

from backends import plane
from bulk import carry, warnings
from gateway import IronSwan, tunnel
from lab import Failed, check, main, need, say, until
from traffic import Ears, Iperf
from wan import counters

CALLS = 'ioctl,setsockopt,sendmmsg'


def start(lab, box, *faults):
    """Starts the daemon under strace until it is ready; the gateway, and its first thread's calls, in their order."""
    trace = lab.path(f'{box}.strace')
    gateway, spawn = IronSwan(lab, box), lab.spawn
    # With -D the daemon is our own child, and goes on when strace has ended.
    lab.spawn = lambda box, *args, **kw: spawn(box, 'strace', '-D', '-I2', '-f', '-qq', '-o', trace, '-e', f'trace={CALLS}',
                                               *(w for f in faults for w in ('-e', f'inject={f}')), *args, **kw)
    try:
        gateway.start(tunnel(box), wait=False)
    finally:
        lab.spawn = spawn
    until('it is ready', gateway.answers, 60)

    def tracer():
        with open(f'/proc/{gateway.process.pid}/status') as f:
            return int(re.search(r'TracerPid:\s+(\d+)', f.read())[1])
    os.kill(tracer(), signal.SIGTERM)
    until('strace has ended', lambda: not tracer())
    with open(trace) as f:
        lines = re.findall(r'^(\d+) +(\w+\(.*)', f.read(), re.M)
    return gateway, [call for pid, call in lines if int(pid) == gateway.process.pid]


def asked(calls, name, what):
    """Which of the calls `name` those are that have `what` in them: the first is 1."""
    found = [n for n, call in enumerate((c for c in calls if c.startswith(name + '(')), 1) if re.search(what, call)]
    if not found:
        raise Failed(f'no {name} with {what} was seen among {len(calls)} calls')
    return found


def when(numbers):
    """As strace wants it."""
    steps = {b - a for a, b in zip(numbers, numbers[1:])} or {1}
    check(len(steps) == 1, f'the calls {numbers} can be named')
    return f'when={numbers[0]}..{numbers[-1]}+{steps.pop()}'


def without(lab, name, what, error, more, words, lacks):
    """Refuses the calls that ask for a thing, and so many more; what is said then, and how much is lent."""
    need('strace')
    lab.line()
    whole, calls = start(lab, 'g1')
    had = plane(whole)[1]
    check(whole.stop() == 0, 'it ends')
    faults = []
    if all(had[k] == v for k, v in lacks.items()):
        say(f'  this kernel has none of {", ".join(lacks)}')
    else:
        check(not warnings_of(whole), f'this kernel has it, and nothing is warned of: { {k: had[k] for k in lacks} }')
        numbers = asked(calls, name, what)
        faults = [f'{name}:error={error}:{when(list(range(numbers[0], numbers[-1] + more + 1)) if more else numbers)}']
    g1, calls = start(lab, 'g1', *faults)
    refused = [c for c in calls if '(INJECTED)' in c]
    check(not faults or any(re.search(what, c) for c in refused), f'{len(refused)} calls were refused: {refused[:1]}')
    IronSwan(lab, 'g2').start(tunnel('g2'))
    said, granted = warnings_of(g1), plane(g1)[1]
    check(len(said) == 1 and words in said[0], f'one warning: {said}')
    check(all(granted[k] == v for k, v in lacks.items()), f'status says { {k: granted[k] for k in lacks} }')
    ears = Ears(lab)
    g1.initiate()
    carry(lab, f'without {", ".join(lacks)}')
    ears.end('without it')
    check(warnings_of(g1) == said, 'no other warning')
    check(g1.stop() == 0, 'it ends')


def warnings_of(gateway):
    return [line for line in gateway.log().splitlines() if ' warn ' in line]


def tun_without_uso(lab, full):
    """A TUN device that refuses USO (before Linux 6.2)."""
    without(lab, 'ioctl', r'TUNSETOFFLOAD, 0x[67]', 'EINVAL', 0, 'has no UDP segmentation offload', {'tun-uso': 'no'})


def tun_without_tso(lab, full):
    """One that refuses TSO, too."""
    without(lab, 'ioctl', r'TUNSETOFFLOAD, 0x[67]', 'EINVAL', 1, 'has no segmentation offload',
            {'tun-tso': 'no', 'tun-uso': 'no'})


def sockets_without_udp_gro(lab, full):
    """No UDP_GRO (before Linux 5.0)."""
    without(lab, 'setsockopt', r'UDP_GRO', 'ENOPROTOOPT', 0, 'does not merge received UDP', {'udp-gro': 'no'})


def sockets_without_udp_segment(lab, full):
    """No UDP_SEGMENT (before Linux 4.18)."""
    without(lab, 'sendmmsg', r'127\.0\.0\.1', 'EINVAL', 8, 'does not cut UDP sends', {'udp-segments': '1'})


def merged_writes_refused_in_mid_traffic(lab, full):
    """A TUN device that refuses merged writes again and again, while packets flow."""
    need('strace', 'iperf3')
    lab.line()
    g1, g2 = (IronSwan(lab, box).start(tunnel(box), 'data {\n  workers = 1\n}\n') for box in ('g1', 'g2'))
    g1.initiate()
    ears = Ears(lab)
    load = Iperf(lab, '-R', '-P', 4)
    said = 'the TUN device refuses merged TCP packets'
    for _ in range(10):
        before = counters(g1)['plane']['tun-writes']
        until('packets flow', lambda: counters(g1)['plane']['tun-writes'] > before + 100, 30)
        # What strace refuses are single packets, too: TCP sends them again.
        trace = lab.spawn('g1', 'strace', '-f', '-p', g1.process.pid, '-e', 'trace=writev', '-e',
                          'inject=writev:error=EINVAL:when=5..300', name='strace')
        until('strace is attached', lambda: 'attached' in trace.log(), 10)
        try:
            until('the log says so', lambda: warnings(g1, said), 3)
        except Failed:
            pass
        trace.stop(signal.SIGINT)
        if warnings(g1, said):
            break
    load.stop()
    ears.check('while they are refused')
    p, granted = counters(g1)['plane'], plane(g1)[1]
    check(warnings(g1, said) == 1 and granted['slower'] == ['merging of TCP'] and p['tun-write-unmerged'] >= 4,
          f"{p['tun-write-unmerged']} merged writes were refused, with one warning; status says {granted['slower']}")
    writes, errors = p['tun-writes'], p['tun-write-errors']
    carry(lab, 'TCP is not merged')
    ears.end('TCP is not merged')
    p = counters(g1)['plane']
    check(p['tun-write-errors'] == errors and p['tun-writes'] > writes + (2 << 20) // 1400,
          f"{p['tun-writes'] - writes} writes since, none refused")


if __name__ == '__main__':
    main({f.__name__: f for f in (
        tun_without_uso, tun_without_tso, sockets_without_udp_gro, sockets_without_udp_segment,
        merged_writes_refused_in_mid_traffic)}, 'lacking')
