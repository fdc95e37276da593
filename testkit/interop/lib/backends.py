"""Ways to move packets that are not the default ones, and the proof that a gateway went them: its own counters.

The tests of leaks and faults run over each. `settings` of a gateway are BACKENDS[name]; `check_used` is asked while its data
plane has carried traffic since its start.
"""
import json
import os
import sys
import time

from gateway import program
from lab import call, check

BACKENDS = {
    # ESP comes in through AF_XDP.
    'xdp': 'data {\n  xdp = wan\n}\n',
    # Every packet is a system call of its own, on both sides.
    'single': 'data {\n  gso = no\n  gro = no\n  tun_offload = no\n}\n',
    'workers': 'data {\n  workers = 2\n}\n',
}
STAGES = ('receive', 'parse', 'policy', 'sequence', 'encapsulation', 'crypto', 'send')
# `TO MINE`: datagrams of 1,200 bytes, 40 to a send (UDP_SEGMENT), in bursts, so that work piles up. Until it is stopped.
BURSTS = '''
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[2], 0))
s.setsockopt(17, 103, 1200)
while True:
    for _ in range(40):
        try:
            s.sendto(bytes(48000), (sys.argv[1], 7999))
        except OSError:
            pass
    time.sleep(0.25)
'''


def plane(gateway):
    """The counters of the data plane, and what it was granted."""
    with gateway.vici() as v:
        reply = v.request('ironswan-counters')
        stats = v.request('stats')
    return {k: int(n) for k, n in reply['plane'].items()}, stats['data-plane']


def worked(gateway):
    """Nanoseconds that each data thread of a gateway has run."""
    pid, times = gateway.process.pid, {}
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/comm') as name, open(f'/proc/{pid}/task/{task}/schedstat') as stat:
            if (name := name.read().strip()).startswith('ipsec-data-'):
                times[name] = int(stat.read().split()[0])
    return times


def used_xdp(gateway):
    p, granted = plane(gateway)
    dropped = {k: n for k, n in p.items() if k.startswith('xdp-') and k != 'xdp-frames' and n}
    return (granted['xdp'] == ['wan'] and p['xdp-frames'] > 0 and not dropped,
            f"{p['xdp-frames']} frames came through AF_XDP, dropped: {dropped or 'none'}")


def used_single(gateway):
    p, granted = plane(gateway)
    lent = {k: granted[k] for k in ('tun-tso', 'tun-uso', 'udp-gro', 'udp-segments') if granted[k] not in ('no', '1')}
    return (not lent and p['send-messages'] == p['send-datagrams'] > 0,
            f"{p['send-messages']} sends of {p['send-datagrams']} packets, {p['tun-writes']} writes, "
            f"granted: {lent or 'nothing'}")


def used_workers(gateway):
    spent = {name: ns / 1e6 for name, ns in worked(gateway).items()}
    return (len(spent) == 2 and min(spent.values()) > 1,
            ', '.join(f'{name} ran {ms:.1f} ms' for name, ms in sorted(spent.items())))


USED = {'xdp': used_xdp, 'single': used_single, 'workers': used_workers}


def check_used(gateway, name, timeout=30):
    """The back end carries what there is. (Until work piles up, a second worker has none.)"""
    end = time.monotonic() + timeout
    while True:
        done, text = USED[name](gateway)
        if done or time.monotonic() > end:
            break
        time.sleep(0.1)
    check(done, f'{gateway.box}: {name}: {text}')


def check_stages(gateway):
    """After traffic both ways: each stage of both directions has taken time, in `status` and in VICI's `stats`, and no more than
    there was."""
    said = json.loads(call(program(), 'status', '--json', '--vici', f'unix://{gateway.socket}'))['stages']
    with gateway.vici() as v:
        stats, moved = v.request('stats')['stages'], v.request('ironswan-counters')['packets']
    passed = {'outbound': int(moved['out-sent']), 'inbound': int(moved['in-packets'])}
    with open('/proc/uptime') as now, open(f'/proc/{gateway.process.pid}/stat') as stat:
        began = int(stat.read().rpartition(')')[2].split()[19]) / os.sysconf('SC_CLK_TCK')
        alive = (float(now.read().split()[0]) - began + 0.1) * len(worked(gateway))
    total = sum(int(way[s]) for way in stats.values() for s in STAGES) / 1e9
    check(sorted(said) == sorted(stats) == ['inbound', 'outbound'] and total < alive,
          f'{gateway.box}: {total * 1e3:.1f} ms measured in {alive:.1f} s of data threads')
    for way, there in passed.items():
        times = {s: int(stats[way][s]) for s in STAGES}
        packets, size = int(stats[way]['packets']), int(stats[way]['bytes']) // max(1, int(stats[way]['packets']))
        # VICI was asked a moment later.
        check(sorted(said[way]) == sorted([*STAGES, 'packets', 'bytes']) and all(0 < said[way][s] <= times[s] for s in STAGES)
              and 0 < packets <= there and 20 < size < 65536 and times['crypto'] > 10 * packets,
              f'{gateway.box}: {way}: {packets} of {there} packets of {size} bytes measured, in ns a packet: '
              + ', '.join(f'{s} {n / max(1, packets):.0f}' for s, n in times.items()))


def bursts(lab, box, to, mine):
    """A load for which one worker is not enough."""
    return lab.spawn(box, sys.executable, '-c', BURSTS, to, mine, name='bursts')
