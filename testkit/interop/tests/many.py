#!/usr/bin/env python3
"""Many tunnels up: how soon a gateway answers the commands of an operator, and that packets, and other clients, do not wait for its answers.

usage: testkit/interop/run [--full] many      --full: 10,000 tunnels in place of 300
"""
import ipaddress
import json
import threading
import time

from gateway import ESP, IKE, IronSwan, program, tunnel
from lab import check, main, say, until
from traffic import Numbered, check_no_loss

# An answer of this time, in seconds, is what the manual promises for 10,000 tunnels on a quiet machine. A busy one may take so many times longer.
PROMISED, BUSY = 1, 5
# Packets wait, in milliseconds, for a processor that others use; for a worker that waits for the control thread they would wait as long as an answer takes.
PACKETS_WAIT = 250
# Outer and inner networks of the tunnels behind g1 and g2.
OUTER = {'g1': '10.64.0.0', 'g2': '10.96.0.0'}
INNER = {'g1': '10.128.0.0', 'g2': '10.192.0.0'}
# Tunnels that are brought up together.
AT_ONCE = 100
# Time between the two readings of `top --once`.
READINGS = 1


def plus(base, offset):
    return ipaddress.IPv4Address(base) + offset


def connections(count, box):
    """So many connections, each with addresses, identities and networks of its own."""
    ours, theirs = ('g1', 'g2') if box == 'g1' else ('g2', 'g1')
    return ''.join(f"""
  t{n} {{
    version = 2
    local_addrs = {plus(OUTER[ours], n + 1)}
    remote_addrs = {plus(OUTER[theirs], n + 1)}
    proposals = {IKE}
    encap = yes
    local {{
      auth = psk
      id = {ours}-{n}.example
    }}
    remote {{
      auth = psk
      id = {theirs}-{n}.example
    }}
    children {{
      t{n} {{
        local_ts = {plus(INNER[ours], 4 * n)}/30
        remote_ts = {plus(INNER[theirs], 4 * n)}/30
        esp_proposals = {ESP}
      }}
    }}
  }}""" for n in range(count))


def up(lab, count):
    """A tunnel with traffic, and so many beside it."""
    lab.line()
    gateways = {}
    for box, other in (('g2', 'g1'), ('g1', 'g2')):
        addresses = ''.join(f'address add {plus(OUTER[box], n + 1)}/32 dev lo\n' for n in range(count))
        lab.ip(box, '-batch', lab.write(f'{box}-addresses', addresses))
        lab.ip(box, 'route', 'add', f'{OUTER[other]}/11', 'via', '192.0.2.1' if other == 'g1' else '192.0.2.2')
        text = tunnel(box)
        at = text.index('connections {') + len('connections {')
        gateways[box] = IronSwan(lab, box).start(text[:at] + connections(count, box) + text[at:], wait=False)
    for g in gateways.values():
        until(f'{g.box} answers', g.answers, 60 + count // 50)
    g1 = gateways['g1']

    begun = time.monotonic()
    with g1.vici(300) as v:
        for n in range(count):
            v.request('initiate', {'child': f't{n}', 'timeout': '-1'})
            # A slow machine has no time for thousands of half-open IKE_SAs at once.
            if n % AT_ONCE == AT_ONCE - 1 or n == count - 1:
                until(f'{n + 1} tunnels are up', lambda: not v.stream('ironswan-troubles', 'list-trouble'), 120)
    g1.initiate()
    say(f'  {count} tunnels are up after {time.monotonic() - begun:.0f} s')
    return g1


class Neighbour:
    """Another client of the gateway: how long it waits for a short answer while somebody asks for a long one."""

    def __init__(self, gateway):
        self.gateway, self.longest, self.stopped = gateway, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def ask(self):
        with self.gateway.vici(120) as v:
            while not self.stopped.wait(0.01):
                begun = time.monotonic()
                v.request('version')
                self.longest = max(self.longest, time.monotonic() - begun)

    def end(self):
        self.stopped.set()
        self.thread.join()
        return self.longest


def commands(lab, g1, count):
    """Each command twice: its name, how the second ended, the seconds of the slower answer, and those for which another client waited."""
    for args in (['status'], ['status', '--check'], ['explain', f't{count - 1}'], ['explain', '--peer', str(plus(OUTER['g2'], count))], ['top', '--once'],
                 ['list', 'sas'], ['list', 'counters']):
        slower, neighbour = 0, Neighbour(g1)
        for _ in range(2):
            begun = time.monotonic()
            done = lab.run('g1', program(), *args, '--vici', f'unix://{g1.socket}', fail=False, timeout=300)
            slower = max(slower, time.monotonic() - begun)
        yield ' '.join(args), done, slower, neighbour.end()


def answers_come_soon_and_hold_nothing_up(lab, full):
    count = 10_000 if full else 300
    g1 = up(lab, count)
    if full:
        # For the reader alone: how long packets wait on this machine when nobody asks anything.
        quiet = Numbered(lab)
        time.sleep(3)
        check_no_loss(quiet.end(), 1000)
    traffic = Numbered(lab)
    said = {}
    for name, done, seconds, neighbour in commands(lab, g1, count):
        said[name], waits = done.stdout, READINGS if name.startswith('top') else 0
        check(done.returncode == 0 and seconds - waits <= BUSY * PROMISED and neighbour <= BUSY * PROMISED,
              f"ironswan {name}: {seconds - waits:.2f} s{f' and {waits} s between its readings' if waits else ''}, at most {BUSY * PROMISED}; "
              f'another client waited {neighbour * 1000:.0f} ms at most')
    report = traffic.end()
    first = said['top --once'].splitlines()[0]
    check(said['status'].count(' up ') >= count and said[f'explain t{count - 1}'].startswith(f't{count - 1}: up') and f'{count + 1} up' in first,
          f'all tunnels are told of: {first}')
    check_no_loss(report, 1000)
    for way, r in report.items():
        check(r['longest_gap_ms'] <= PACKETS_WAIT, f"{way}: the longest gap is {r['longest_gap_ms']} ms, at most {PACKETS_WAIT}")


if __name__ == '__main__':
    main({f.__name__: f for f in (answers_come_soon_and_hold_nothing_up,)}, 'many')
