#!/usr/bin/env python3
"""Hundreds of dead peers beside one that lives: what they cost, what they send, and what happens when all come back.

usage: testkit/interop/run [--full] [--seed=N] dead[.TEST]
Half of the dead are behind a route that swallows, half behind one that answers ICMP unreachable.
"""
import collections
import json
import os
import random
import subprocess
import sys
import time

from gateway import IronSwan
from lab import HERE, check, halves, main, say, take_seed, until
from traffic import Numbered
from wan import Rest, Watch, balance, conf, connection, counters, internet, pair_at_rest, pings, site, status_of, uplink

SEED = take_seed(500)
COUNT = 500
SA_INIT = 34


def address(n):
    """Peer n: in 172.16/16, where everything vanishes, or in 172.17/16, which is unreachable."""
    return f'172.{16 + n % 2}.{n // 2 // 200}.{n // 2 % 200 + 1}'


def net(n):
    return f'10.{100 + n // 250}.{n % 250}.0/24'


def dead(n, action='start'):
    return f"""
  d{n} {{
    version = 2
    local_addrs = 198.51.100.1
    remote_addrs = {address(n)}
    keyingtries = 0
    dpd_delay = 5s
    local {{
      auth = psk
      id = g1.example
    }}
    remote {{
      auth = psk
      id = d{n}.example
    }}
    children {{
      k{n} {{
        local_ts = 10.1.0.0/24
        remote_ts = {net(n)}
        start_action = {action}
        dpd_action = restart
      }}
    }}
  }}"""


def returned(n):
    """The other side of it."""
    return f"""
  d{n} {{
    version = 2
    local_addrs = {address(n)}
    remote_addrs = 198.51.100.1
    dpd_delay = 30s
    local {{
      auth = psk
      id = d{n}.example
    }}
    remote {{
      auth = psk
      id = g1.example
    }}
    children {{
      k{n} {{
        local_ts = {net(n)}
        remote_ts = 10.1.0.0/24
      }}
    }}
  }}"""


def live():
    return connection('net', 'g1', 'g2', '198.51.100.1', '192.0.2.2', conn='dpd_delay = 30s', child='start_action = start')


def whole(*connections):
    return conf(*connections)


class World:
    def __init__(self, lab, settings=''):
        self.lab = lab
        internet(lab)
        site(lab, 'g1')
        uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100')
        lab.ip('r', 'route', 'add', 'blackhole', '172.16.0.0/16')
        lab.ip('r', 'route', 'add', 'unreachable', '172.17.0.0/16')
        lab.run('r', 'sysctl', '-qw', 'net.ipv4.icmp_ratelimit=0', 'net.ipv4.icmp_msgs_per_sec=100000',
                'net.ipv4.icmp_msgs_burst=10000')
        self.watch = Watch(lab, 'r', 'u1')
        self.count = lab.spawn('r', sys.executable, os.path.join(HERE, 'ikecount.py'), 'u1', name='ikecount',
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.count.popen.stdout.readline()
        self.them = IronSwan(lab, 'g2').start(whole(connection('net', 'g2', 'g1', '192.0.2.2', '198.51.100.1')))
        self.us = IronSwan(lab, 'g1').start(whole(live()), settings=settings)
        pair_at_rest(self.us, self.them)

    def cut(self):
        self.count.popen.stdin.write('cut\n')
        self.count.popen.stdin.flush()
        return [tuple(x) for x in json.loads(self.count.popen.stdout.readline())]

    def load(self, *connections):
        self.lab.write('g1-etc/swanctl.conf', whole(live(), *connections))
        with self.us.vici() as v:
            v.request('reload-settings')

    def cpu(self):
        """Seconds of CPU of the daemon, all threads; in nanoseconds from the scheduler, as a tick is far too long."""
        total, base = 0, f'/proc/{self.us.process.pid}/task'
        for task in os.listdir(base):
            with open(f'{base}/{task}/schedstat') as f:
                total += int(f.read().split()[0])
        return total / 1e9


def transmissions(seen):
    """{(peer, SPI): [(when, digest)]} of the IKE_SA_INIT requests."""
    found = collections.defaultdict(list)
    for when, to, spi, exchange, _, response, digest in seen:
        if exchange == SA_INIT and not response and to.startswith('172.'):
            found[to, spi].append((when, digest))
    return found


def judge_sending(seen, first, base=1.8):
    """One datagram a (re)transmission, in growing distances; and spread over time."""
    found = transmissions(seen)
    check(len({to for to, _ in found}) == COUNT, f'{COUNT} peers were tried')
    short, ratios = [], []
    for key, list_ in found.items():
        gaps = [b[0] - a[0] for a, b in zip(list_, list_[1:])]
        short += [g for g in gaps if g < first * 0.5]
        ratios += [b / a for a, b in zip(gaps, gaps[1:])]
        check_same = {digest for _, digest in list_}
        if len(check_same) > 1:
            check(False, f'the retransmissions to {key[0]} are the same bytes')
    sent = sum(map(len, found.values()))
    check(not short, f'{sent} datagrams, none follows its predecessor within {first * 0.5:.1f} s, and all retransmissions '
          f'are the same bytes')
    if ratios:
        ratios.sort()
        check(1.0 < ratios[0], f'each distance is longer than the one before: {ratios[0]:.2f} to {ratios[-1]:.2f} times, '
              f'{ratios[len(ratios) // 2]:.2f} in the middle')
    begin = min(list_[0][0] for list_ in found.values())
    bins = collections.Counter(int((when - begin) * 5) for list_ in found.values() for when, _ in list_)
    after = {b: n for b, n in bins.items() if b > 5}
    most = max(after.values(), default=0)
    say(f"       datagrams in each fifth of a second: {' '.join(str(bins.get(b, 0)) for b in range(max(bins) + 1))}")
    return most


def window(world, seconds):
    """CPU of a while, as a part of one core."""
    before, began = world.cpu(), time.monotonic()
    time.sleep(seconds)
    return (world.cpu() - before) / (time.monotonic() - began)


def dead_peers_cost_little(lab, full, action='start'):
    """CPU, memory, key pairs and datagrams of 500 peers that do not answer, and the delay of one that does."""
    world = World(lab)
    us = world.us
    rest = Rest(lab, us)
    alone = window(world, 3)
    world.cut()
    before, rss = counters(us)['ike'], status_of(us.process, 'VmRSS')[0]
    all_dead = [dead(n, action) for n in range(COUNT)]
    world.load(*all_dead)
    # By the default timers they are tried again after 4.0, 11.2 and 24.2 s: the window holds the last two.
    time.sleep(6)
    share = window(world, 120 if full else 20)
    check(share < 0.01, f'{COUNT} dead peers: {share * 100:.2f} % of a core ({alone * 100:.2f} % without them)')
    now = counters(us)['ike']
    tries = len(transmissions(seen := world.cut()))
    made = now['kex-generated'] - before['kex-generated']
    check(made <= COUNT, f'{made} key pairs made for {COUNT} peers and {tries} attempts')
    most = judge_sending(seen, 4.0)
    check(most < COUNT * 0.7, f'they do not go on in step: at most {most} retransmissions in a fifth of a second')
    with_them = status_of(us.process, 'VmRSS')[0]
    check(with_them < rss + 24 * 1024, f'{rss} KiB resident without them, {with_them} with them '
          f'({(with_them - rss) / COUNT:.1f} KiB each)')
    # With and without, in turn: what the machine does besides falls on both.
    delays = {True: [], False: []}
    for n in range(10 if full else 2):
        for there in (True, False):
            world.load(*(all_dead if there else []))
            time.sleep(1.5)
            flow = Numbered(lab, rate=500)
            time.sleep(3)
            delays[there].append(flow.end())
    shown = {}
    for there, reports in delays.items():
        rows = [r for report in reports for r in report.values()]
        lost = sum(r['lost'] for r in rows)
        medians, tails = sorted(r['delay_ms_median'] for r in rows), sorted(r['delay_ms_p99'] for r in rows)
        shown[there] = medians[len(medians) // 2], tails[len(tails) // 2]
        check(lost == 0, f"{'with' if there else 'without'} the dead: {sum(r['sent'] for r in rows)} packets, {lost} lost, delay "
              f"{shown[there][0]:.2f} ms in the median, {shown[there][1]:.2f} ms at 99 %")
    check(shown[True][0] < shown[False][0] * 2 + 0.1, 'the median delay is the same, as far as can be measured here')
    world.load()
    until('they are forgotten', lambda: len(us.sas()) == 1, 10)
    rest.MEMORY = 24 * 1024
    rest.check()
    world.watch.check('u1')
    lines = us.log().count('\n')
    loads = 11 if full else 3
    check(lines < COUNT * 20 * loads, f'{lines} lines of log')


def traps_try_only_peers_with_traffic(lab, full):
    """The same peers with start_action = trap: only those that traffic asks for are tried."""
    world = World(lab)
    us = world.us
    world.load(*[dead(n, 'trap') for n in range(COUNT)])
    world.cut()
    time.sleep(1)
    check(not transmissions(world.cut()), 'without traffic nobody is tried')
    asked = 100
    script = ('import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor _ in range(%d):\n'
              '    for n in range(%d):\n        try:\n            s.sendto(b"x", ("10.%%d.%%d.2" %% (100 + n // 250, n %% 250), 9))\n'
              '        except OSError:\n            pass\n    time.sleep(0.05)\n') % (100 if not full else 1000, asked)
    sender = lab.spawn('a', sys.executable, '-c', script, name='asker')
    check(pings(lab), 'and the live tunnel works')
    began = world.cpu(), time.monotonic()
    sender.popen.wait(200)
    share = (world.cpu() - began[0]) / (time.monotonic() - began[1])
    found = transmissions(world.cut())
    tried = {to for to, _ in found}
    check(len(tried) == asked, f'traffic to {asked} of them: {len(tried)} are tried')
    counts = collections.Counter(to for to, _ in found)
    check(max(counts.values()) == 1, f'one attempt each, however many packets ask for it: {100 * asked} did')
    say(f'       {share * 100:.1f} % of a core while {100 * asked} packets asked')
    world.watch.check('u1')
    balance(us)


def all_come_back_at_once(lab, full):
    """All 500 answer at once; then all vanish at once, and come back once more."""
    draw = random.Random(SEED)
    world = World(lab, settings='retransmit_timeout = 0.5\nretransmit_base = 1.4\nretransmit_tries = 4\nretry_initial = 1s\nretry_max = 4s\n')
    us, lab = world.us, world.lab
    all_dead = [dead(n) for n in range(COUNT)]
    world.load(*all_dead)
    flow = Numbered(lab, rate=200)
    time.sleep(4 + draw.random() * 4)
    # The peers: one gateway with all their addresses.
    lab.box('g9')
    lab.wire('g9', 'wan', ['203.0.113.9/24'], 'r', 'u9', ['203.0.113.254/24'])
    lab.ip('g9', 'route', 'add', 'default', 'via', '203.0.113.254')
    for n in range(COUNT):
        lab.ip('g9', 'addr', 'add', f'{address(n)}/32', 'dev', 'lo')
    many = IronSwan(lab, 'g9').start(whole(*[returned(n) for n in range(COUNT)]), settings='half_open_per_addr = 1000\n')

    def reachable(yes):
        for net, kind in (('172.16.0.0/16', 'blackhole'), ('172.17.0.0/16', 'unreachable')):
            lab.ip('r', 'route', 'replace', *((net, 'via', '203.0.113.9') if yes else (kind, net)))

    def up(gateway):
        return sum(1 for sa in gateway.sas() if sa['state'] == 'ESTABLISHED' and sa['name'].startswith('d')
                   and [c['state'] for c in sa.get('child-sas', {}).values()] == ['INSTALLED'])

    def all_up(bound):
        began, cpu = time.monotonic(), world.cpu()
        until(f'all {COUNT} up', lambda: up(us) == COUNT, bound, 0.2)
        took, cpu = time.monotonic() - began, world.cpu() - cpu
        until(f'the peer has {COUNT}', lambda: up(many) == COUNT and len(many.sas()) == COUNT, bound, 0.2)
        say(f'       the peer holds the same {time.monotonic() - began:.1f} s after the beginning')
        return took, cpu

    reachable(True)
    took, cpu = all_up(40)
    check(True, f'{COUNT} come back at once: all up {took:.1f} s later, with {cpu:.2f} s of CPU')
    quiet = window(world, 3)
    # A loop that spins would have all of one.
    check(quiet < 0.2, f'{COUNT} live ones that are asked for a sign of life every 5 s: {quiet * 100:.2f} % of a core')
    reachable(False)
    world.cut()
    began, cpu = time.monotonic(), world.cpu()
    until('liveness finds all out', lambda: up(us) == 0, 40, 0.2)
    found = [x for x in world.cut() if x[1].startswith('172.')]
    first = min(x[0] for x in found)
    bins = collections.Counter(int(x[0] - first) for x in found)
    check(True, f'all vanish at once: found out after {time.monotonic() - began:.1f} s, with {world.cpu() - cpu:.2f} s of CPU and '
          f'{len(found)} datagrams; in each second {[bins.get(s, 0) for s in range(max(bins) + 1)]}')
    reachable(True)
    took, cpu = all_up(40)
    check(True, f'and come back once more: all up {took:.1f} s later, with {cpu:.2f} s of CPU')
    ours = sorted(tuple(sorted((sa['initiator-spi'], sa['responder-spi']))) for sa in us.sas() if sa['name'].startswith('d'))
    check(len(ours) == COUNT and len({x for x in ours}) == COUNT, 'one IKE_SA and one CHILD_SA of each on our side')
    report = flow.end()
    for way, r in report.items():
        check(r['lost'] == 0, f"the live tunnel meanwhile, {way}: {r['sent']} sent, {r['lost']} lost, longest gap "
              f"{r['longest_gap_ms']} ms, delay {r['delay_ms_median']} ms in the median, {r['delay_ms_p99']} at 99 %")
    world.watch.check('u1')
    balance(us)
    say(f"       {status_of(us.process, 'VmRSS')[0]} KiB resident with {COUNT + 1} tunnels")


TESTS = {f.__name__: f for f in (traps_try_only_peers_with_traffic, dead_peers_cost_little, all_come_back_at_once)}

halves(TESTS, __file__)
main(TESTS, 'dead')
