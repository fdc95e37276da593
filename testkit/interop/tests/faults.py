#!/usr/bin/env python3
"""Faults while a tunnel works: a network that swallows, a peer that dies or forgets, a daemon that is killed, and bad clients.

usage: testkit/interop/run [--full] [--seed=N] faults[.TEST]
After every fault the same judgement, in one place (`Judge`). Random moments come from the seed; a failure names both.
"""
import datetime
import os
import random
import re
import signal
import socket
import struct
import sys
import threading
import time

from backends import BACKENDS, check_used
from gateway import Charon, IronSwan, dropped_inbound
from lab import check, halves, main, say, take_seed, until
from vici import CMD_REQUEST, EVENT_REGISTER, Vici, emit
from wan import (Flow, Rest, Watch, check_flow, conf, connection, counters, internet, kernel, pair_at_rest, pings, site,
                 status_of, uplink)

SEED = take_seed(6)
# A dead peer is given up after 4 times 0.5 s; what a killed one had begun to set up is forgotten after 5 s. charon the same.
TIMERS = ('retransmit_timeout = 0.5\nretransmit_base = 1.0\nretransmit_tries = 3\nretry_initial = 1s\nretry_max = 4s\n'
          'half_open_timeout = 5s\n')
CHARON_TIMERS = ('retransmit_timeout = 0.5\n  retransmit_base = 1.0\n  retransmit_tries = 3\n  retry_initiate_interval = 1\n'
                 '  half_open_timeout = 5\n')
PATIENCE = 2.0
DPD = 2

# What looks as if it came from b in clear: it must not get to a, whatever else is broken.
INTRUDER = 9999
INTRUSION = f"""
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
udp = struct.pack('!HHHH', {INTRUDER}, {INTRUDER}, 16, 0) + b'intruder'
ip = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes((10, 2, 0, 2)), bytes((10, 1, 0, 2)))
for _ in range(int(sys.argv[1])):
    s.sendto(ip + udp, ('10.1.0.2', 0))
"""


def texts(dpd=DPD, rekey='1h', encap=False):
    """Our configuration and the peer's; either brings the tunnel up, and again when the other is lost."""
    alive = f'dpd_delay = {dpd}s\n    keyingtries = 0\n    rekey_time = {rekey}'
    child = f'start_action = start\n        dpd_action = restart\n        rekey_time = {rekey}'
    ours = conf(connection('net', 'g1', 'g2', '198.51.100.1', '192.0.2.2', conn=alive, child=child, encap=encap))
    alive = f'dpd_delay = {dpd}s\n    rekey_time = {rekey}\n    unique = replace'
    theirs = conf(connection('net', 'g2', 'g1', '192.0.2.2', '198.51.100.1', conn=alive, child=f'rekey_time = {rekey}',
                             encap=encap))
    return ours, theirs


class World:
    """a - g1 - r - g2 - b, the tunnel up; faults happen in r. `backend`: how ours move packets."""

    def __init__(self, lab, peer=IronSwan, dpd=DPD, rekey='1h', up=True, backend=None, encap=False):
        self.lab, self.peer, self.backend = lab, peer, backend
        self.settings = TIMERS + BACKENDS.get(backend, '')
        internet(lab)
        site(lab, 'g1')
        uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100')
        self.watch = Watch(lab, 'r', 'u1', 'g2')
        self.ours, self.theirs = texts(dpd, rekey, encap)
        self.start_them()
        self.us = IronSwan(lab, 'g1').start(self.ours, settings=self.settings)
        self.intruder()
        if up:
            self.rest_pair()
            self.judge = Judge(self)

    def start_them(self):
        if self.peer is Charon:
            self.them = Charon(self.lab, 'g2').start(self.theirs, options=CHARON_TIMERS)
        else:
            self.them = IronSwan(self.lab, 'g2').start(self.theirs, settings=self.settings)

    def intruder(self):
        """Makes r able to send a's network what looks as if it came from b's, and a to count what gets in."""
        self.lab.ip('r', 'route', 'add', '10.1.0.0/24', 'via', '198.51.100.1')
        path = self.lab.write('intruder.nft', 'table ip intruder {\n  chain in {\n    type filter hook prerouting priority '
                              f'-500;\n    udp dport {INTRUDER} counter\n  }}\n}}\n')
        self.lab.run('a', 'nft', '-f', path)

    def intrude(self, count=20):
        self.lab.run('r', sys.executable, '-c', INTRUSION, count)

    def got_in(self):
        """Packets of the intruder that a has seen, and that g1's guard has dropped."""
        seen = re.search(r'counter packets (\d+)', self.lab.run('a', 'nft', 'list', 'table', 'ip', 'intruder'))
        return int(seen[1]), dropped_inbound(self.lab, 'g1')

    def rest_pair(self, timeout=15):
        return pair_at_rest(self.us, self.them, timeout=timeout)

    def hole(self, ways=('u1', 'g2')):
        """What comes into r by these devices vanishes."""
        rules = ''.join(f'    iifname "{dev}" drop\n' for dev in ways)
        path = self.lab.write('hole.nft', f'table inet hole {{\n  chain f {{\n    type filter hook forward priority 0;\n'
                              f'{rules}  }}\n}}\n')
        self.lab.run('r', 'nft', '-f', path)

    def mend(self):
        self.lab.run('r', 'nft', 'delete', 'table', 'inet', 'hole')


class Judge:
    """Judgements (a) to (g): the same after every fault."""

    # And, with attempts every few seconds, so many a second.
    LINES, RATE = 400, 3

    def __init__(self, world):
        self.world, self.rest = world, Rest(world.lab, world.us, world.them)
        self.fds = {g.box: fds(g) for g in self.ours()}
        self.began = time.monotonic()
        self.lines = {g.box: len(g.log().splitlines()) for g in self.ours()}

    def ours(self):
        return [g for g in (self.world.us, self.world.them) if isinstance(g, IronSwan)]

    def check(self, timeout=15):
        w = self.world
        w.rest_pair(timeout)                                                    # (d)
        check(pings(w.lab, count=3), 'packets cross the tunnel')                # (c), within the bound of `timeout`
        w.watch.check('u1', *(['g2'] if w.peer is IronSwan else []))            # (a)
        before = w.got_in()[1]                                                  # (b)
        w.intrude()
        seen, dropped = w.got_in()
        check(seen == 0 and dropped >= before + 20, f'of {dropped} clear packets that looked like those of the tunnel '
              f'{seen} got in')
        for g in self.ours():
            drops = counters(g)['drops']
            say(f"       {g.box}: dropped { {k: v for k, v in drops.items() if v} }")
        self.rest.check()                                                       # (d), (e), (f)
        for g in self.ours():
            now = fds(g)
            check(now <= self.fds[g.box] + 2, f'{g.box}: {now} open files, {self.fds[g.box]} before')      # (e)
            lines = len(g.log().splitlines()) - self.lines[g.box]
            most = self.LINES + self.RATE * (time.monotonic() - self.began)
            check(lines <= most, f'{g.box}: {lines} lines of log since')                                   # (g)
            check('panicked' not in g.log(), f'{g.box}: no panic')
            if w.backend:
                check_used(g, w.backend)

    def restarted(self):
        """One of ours is a new process: what it holds now is compared from here on."""
        self.__init__(self.world)


def fds(gateway):
    return len(os.listdir(f'/proc/{gateway.process.pid}/fd'))


def moment(draw, most):
    wait = draw.random() * most
    time.sleep(wait)
    return wait


# F5: blackholes

def given_up(log, began):
    """Seconds from then to the first line of our log that gives the peer up, by the line's own time; None if there is none."""
    for line in log.splitlines():
        if 'giving up after' in line:
            when = datetime.datetime.fromisoformat(line.split()[0]).timestamp()
            if when >= began:
                return when - began
    return None


def blackhole(world, ways, seconds, what, during=None, load=True):
    """The network swallows packets for a while; then the tunnel must work again by itself."""
    flow = Flow(world.lab, rate=200) if load else None
    time.sleep(0.5)
    if during:
        during()
    at, began = time.monotonic(), time.time()
    world.hole(ways)
    while time.monotonic() < at + seconds:
        world.intrude(2)
        time.sleep(0.5)
    verdict = given_up(world.us.log(), began)
    world.mend()
    mended = time.monotonic()
    # Liveness is asked for after DPD seconds of silence, then the retransmissions; a new attempt waits at most retry_max.
    bound = DPD + PATIENCE + 4 + 6
    until(f'{what}: an echo', lambda: pings(world.lab, count=1, wait=0.3), bound, 0.1)
    took = time.monotonic() - mended
    check(took <= bound, f'{what}, {seconds} s: heals {took:.1f} s after its end'
          + (f'; given up {verdict:.1f} s after its beginning' if verdict else '; not given up'))
    if verdict:
        # Of a limit that is judged by a clock, five times as much is allowed.
        check(DPD - 1 <= verdict <= 5 * (DPD * 2 + PATIENCE + 1.5),
              f'the verdict comes at the configured time: dpd_delay {DPD} s and {PATIENCE} s of retransmissions')
    if flow:
        check_flow(flow.end(), what, seconds + bound, lost=int((seconds + bound) * 200))
    world.judge.check()


def blackholes_heal(lab, full):
    """Both ways and one way each, idle and under load, short and longer than liveness waits."""
    world = World(lab)
    cases = [(5, ('u1', 'g2'), 'both ways', True), (7, ('u1',), 'only from us', True), (5, ('g2',), 'only to us', False)]
    if full:
        cases += [(1, ('u1', 'g2'), 'a short one', True), (7, ('u1', 'g2'), 'both ways, idle', False),
                  (7, ('g2',), 'only to us', True), (7, ('u1',), 'only from us, idle', False)]
    for seconds, ways, what, load in cases:
        blackhole(world, ways, seconds, what, load=load)
    if full:
        for seconds in (60, 600):
            blackhole(world, ('u1', 'g2'), seconds, 'both ways', load=seconds == 60)


def blackholes_heal_charon(lab, full):
    """The same with strongSwan as the peer."""
    world = World(lab, peer=Charon)
    for ways, what in ((('u1', 'g2'), 'both ways'), (('u1',), 'only from us'), (('g2',), 'only to us'))[:None if full else 1]:
        blackhole(world, ways, 7, what)
    if full:
        blackhole(world, ('u1', 'g2'), 60, 'both ways')


def blackholes_while_rekeying_heal(lab, full):
    """The network fails while something is rekeyed, at a random moment of it."""
    draw = random.Random(SEED)
    world = World(lab)
    for n in range(12 if full else 3):
        what = draw.choice(('child', 'ike'))
        who = draw.choice((world.us, world.them))

        def rekey():
            with who.vici() as v:
                v.request('rekey', {what: 'net'})
            moments.append(moment(draw, 0.004))
        moments = []
        blackhole(world, draw.choice((('u1', 'g2'), ('u1',), ('g2',))), draw.choice((1, 5)),
                  f'{what} rekeyed by {who.box}', rekey)
        say(f'       (seed {SEED}, {moments[0] * 1e3:.2f} ms after the command)')


# F6: deaths

def keys_of(world):
    return {g.box: g.ike_spis() | g.child_spis() for g in (world.us, world.them)}


def peer_killed(world, waits):
    """The peer is killed and started again so many seconds later."""
    lab, peer = world.lab, world.peer
    for wait in waits:
        old = keys_of(world)
        world.them.process.stop(signal.SIGKILL)
        time.sleep(wait)
        world.start_them()
        began = time.monotonic()
        bound = 10
        until('the tunnel is back', lambda: pings(lab, count=1, wait=0.3), bound + (DPD + PATIENCE if wait < 1 else 0), 0.1)
        took = time.monotonic() - began
        check(True, f'{world.them.kind} killed, started again after {wait:.1f} s: packets cross {took:.1f} s later')
        new = keys_of(world)
        check(not new['g1'] & old['g1'], 'with new SAs')
        world.judge.world = world
        if peer is IronSwan:
            world.judge.restarted()
        world.judge.check(25)


def killed_peer_comes_back(lab, full, peer=IronSwan):
    """The peer is killed and started again, at once and after liveness has given it up."""
    peer_killed(World(lab, peer=peer), (0.2, DPD * 2 + PATIENCE + 2))


def killed_peer_comes_back_charon(lab, full):
    """The same with strongSwan."""
    killed_peer_comes_back(lab, full, Charon)


def peer_that_forgets_is_found_out(lab, full, peer=IronSwan):
    """The peer loses its SAs and does not tell: our liveness finds out."""
    world = World(lab, peer=peer)
    world.hole(('g2',))
    # Its DELETE does not come through.
    world.them.swanctl('--terminate', '--ike', 'net', '--force', fail=False)
    until('the peer has forgotten', lambda: not world.them.sas(), 10)
    world.mend()
    began = time.monotonic()
    until('the tunnel is back', lambda: pings(lab, count=1, wait=0.3), DPD * 2 + PATIENCE + 10, 0.1)
    check(True, f'{world.them.kind} forgets its SAs: packets cross {time.monotonic() - began:.1f} s later')
    world.judge.check(25)


def peer_that_forgets_is_found_out_charon(lab, full):
    """The same with strongSwan."""
    peer_that_forgets_is_found_out(lab, full, Charon)


def we_are_killed(world, times, draw):
    """At random moments (setup, rekeying, reload, traffic), and started again."""
    lab, peer = world.lab, world.peer
    used = set().union(*keys_of(world).values())
    first = kernel(lab, 'g1')
    for n in range(times):
        what = draw.choice(('traffic', 'child', 'ike', 'reload', 'setup'))
        flow = Flow(lab, rate=200)
        if what in ('child', 'ike'):
            with world.us.vici() as v:
                v.request('rekey', {what: 'net'})
        elif what == 'reload':
            lab.write('g1-etc/swanctl.conf', world.ours.replace('rekey_time = 1h', f'rekey_time = {100 + n}m'))
            world.us.process.send(signal.SIGHUP)
        elif what == 'setup':
            world.us.swanctl('--terminate', '--ike', 'net', '--force', fail=False)
            with world.us.vici() as v:
                v.send(Vici._named(CMD_REQUEST, 'initiate') + emit({'child': 'net', 'timeout': -1}))
        at = moment(draw, 0.02)
        world.us.process.stop(signal.SIGKILL)
        world.intrude()
        time.sleep(draw.random())
        lab.write('g1-etc/swanctl.conf', world.ours)
        world.us.start(world.ours, settings=world.settings)
        began = time.monotonic()
        until('the tunnel is back', lambda: pings(lab, count=1, wait=0.3), 10, 0.1)
        took = time.monotonic() - began
        check(True, f'killed {at * 1e3:.1f} ms into {what} (seed {SEED}): packets cross {took:.1f} s after the start')
        world.rest_pair()
        new = set().union(*keys_of(world).values())
        check(not new & used, 'no SPI, so no key, is used twice')
        used |= new
        time.sleep(0.5)
        reports = flow.end()
        seen = '; '.join(f"{way} {r['received']} of {r['sent']} received, {r['duplicates']} twice, {r['corrupt']} corrupt"
                         for way, r in reports.items())
        check(all(r['received'] > 50 and not r['duplicates'] and not r['corrupt'] for r in reports.values()), seen)
        until('the kernel holds what it held', lambda: kernel(lab, 'g1') == first, 5)
        check(True, 'rules, routes, nft and devices are those of the first start')
        check(world.got_in()[0] == 0, 'nothing got in while there was no daemon')
        world.watch.check('u1', *(['g2'] if peer is IronSwan else []))
    world.judge.restarted()
    world.judge.check(25)
    # A killed daemon leaves the guard; its successor adopts it, and the end of all takes it away.
    world.us.stop()
    check(not pings(lab, count=1, wait=0.3), 'without a daemon no packet crosses')
    world.watch.check('u1')


def killed_daemon_comes_back(lab, full, peer=IronSwan):
    """We are killed at random moments."""
    we_are_killed(World(lab, peer=peer), 30 if full else 6 if peer is IronSwan else 3, random.Random(SEED + 1))


def killed_daemon_comes_back_charon(lab, full):
    """The same with strongSwan as the peer."""
    killed_daemon_comes_back(lab, full, Charon)


# The telling ones of both, over other back ends

def other_backend(lab, full, name):
    world = World(lab, backend=name, encap=name != 'xdp')
    for seconds in (5, 7) if full else (5,):
        blackhole(world, ('u1', 'g2'), seconds, f'{name}: both ways')
    peer_killed(world, (0.2, DPD * 2 + PATIENCE + 2) if full else (0.2,))
    we_are_killed(world, 10 if full else 2, random.Random(SEED + 2))


def faults_heal_with_xdp(lab, full):
    """A blackhole, the peer killed and we ourselves, with ESP through AF_XDP."""
    other_backend(lab, full, 'xdp')


def faults_heal_without_offloads(lab, full):
    """The same without offloads."""
    other_backend(lab, full, 'single')


# F16: VICI clients

def bad_vici_clients_disturb_nobody(lab, full):
    """Clients that stall, flood, die half-way, come by the hundred, and never read: nobody else notices."""
    world = World(lab)
    us = world.us
    flow = Flow(lab, rate=500)
    rss = status_of(us.process, 'VmRSS')[0]

    def raw():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(us.socket)
        return s

    def frame(body):
        return struct.pack('!I', len(body)) + body

    def serves(what):
        began = time.monotonic()
        us.sas()
        with us.vici(5) as v:
            v.request('version')
        check(True, f'{what}: others are served, in {(time.monotonic() - began) * 1e3:.0f} ms')

    version = frame(Vici._named(CMD_REQUEST, 'version'))
    stalled = [raw() for _ in range(20)]
    for n, s in enumerate(stalled):
        s.send(version[:n % len(version)])
    serves('20 clients stall in the middle of a message')

    half = [raw() for _ in range(100)]
    for s in half:
        s.send(frame(Vici._named(CMD_REQUEST, 'initiate') + emit({'child': 'net', 'timeout': '0'}))[:-2])
        s.close()
    serves('100 clients die in the middle of a command')
    for _ in range(50):
        s = raw()
        s.send(frame(Vici._named(CMD_REQUEST, 'list-sas')) * 3)
        s.close()
    serves('50 clients die before their answer')

    many = [raw() for _ in range(100)]
    for s in many:
        s.send(version)
    check(all(s.recv(4) for s in many), '100 clients at once are all answered')

    deaf = [raw() for _ in range(20)]
    for s in deaf:
        s.send(frame(Vici._named(EVENT_REGISTER, 'log')) + frame(Vici._named(EVENT_REGISTER, 'list-sa')))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    stop = threading.Event()
    sent = [0]

    def flood():
        s = raw()
        s.setblocking(False)
        block = version * 200
        while not stop.is_set():
            try:
                sent[0] += s.send(block)
            except BlockingIOError:
                time.sleep(0.001)
            except OSError:
                s = raw()
                s.setblocking(False)
    threads = [threading.Thread(target=flood) for _ in range(3)]
    for t in threads:
        t.start()
    end = time.monotonic() + (30 if full else 4)
    most = 0
    while time.monotonic() < end:
        # Events for those who do not read.
        with us.vici(10) as v:
            v.request('rekey', {'child': 'net'})
        serves('flooded')
        most = max(most, status_of(us.process, 'VmRSS')[0])
        time.sleep(0.3)
    stop.set()
    for t in threads:
        t.join()
    check(most < rss + 64 * 1024, f'{sent[0] / 1e6:.1f} MB of requests that nobody reads the answers of, 20 deaf clients: '
          f'{rss} KiB resident before, {most} at most')
    junk = raw()
    junk.send(os.urandom(100_000)[:1] and b'\xff' * 100_000)
    serves('after garbage')
    for s in stalled + many + deaf + [junk]:
        s.close()
    reports = flow.end()
    for way, r in reports.items():
        check(r['lost'] == 0 and not r['duplicates'] and not r['corrupt'],
              f"{way}: {r['sent']} sent, {r['lost']} lost, longest gap {r['longest_gap_ms']} ms")
    until('their files are closed', lambda: fds(us) <= world.judge.fds['g1'] + 2, 10)
    until('what waited for them is given back', lambda: status_of(us.process, 'VmRSS')[0] <= rss + 2048, 5)
    world.judge.check()


TESTS = {f.__name__: f for f in (
    blackholes_heal, blackholes_heal_charon, blackholes_while_rekeying_heal, killed_peer_comes_back, killed_peer_comes_back_charon,
    peer_that_forgets_is_found_out, peer_that_forgets_is_found_out_charon, killed_daemon_comes_back, killed_daemon_comes_back_charon,
    bad_vici_clients_disturb_nobody, faults_heal_with_xdp, faults_heal_without_offloads)}


halves(TESTS, __file__)
main(TESTS, 'faults')
