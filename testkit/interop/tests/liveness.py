#!/usr/bin/env python3
"""How long established peers wait for their answers while others are set up with RSA, and who waits for a server of revocation lists
that is silent.

usage: testkit/interop/run [--full] liveness[.TEST]      --full: a minute of set-ups instead of six seconds
"""
import json
import os
import sys
import threading
import time

import certs
from gateway import SECRET, IronSwan
from lab import HERE, check, main, need, say, until
from revocation import Place
from vici import ViciError

PEERS = 100
# Set-ups a second, and connections of g2 that take turns in them.
RATE, LOADERS = 100, 10
# Milliseconds within which 99 % of the answers are to come. Of a limit that is judged by a clock, five times as much is allowed.
WITHIN, PATIENCE = 20, 5
# A connection waits at most so long for a list or a response, in seconds.
FETCH = 5


def connection(name, addresses, local, remote, selectors, keys='', child=''):
    """A connection of swanctl.conf: (ours, theirs) of addresses and selectors, lines of `local` and of `remote`."""
    return f"""
  {name} {{
    version = 2
    mobike = no
    local_addrs = {addresses[0]}
    remote_addrs = {addresses[1]}
    proposals = aes128gcm16-prfsha256-x25519
    encap = yes
    {keys}
    local {{
      {local}
    }}
    remote {{
      {remote}
    }}
    children {{
      {name} {{
        local_ts = {selectors[0]}
        remote_ts = {selectors[1]}
        esp_proposals = aes128gcm16
        {child}
      }}
    }}
  }}"""


SECRETS = f'secrets {{\n  ike-x {{\n    secret = "{SECRET}"\n  }}\n}}\n'
# Of g1, for peers with a pre-shared key in box x.
ANYBODY = connection('any', ('198.51.100.1', '%any'), 'auth = psk\n      id = g1.example', 'auth = psk\n      id = %any',
                     ('10.1.10.0/24', '10.10.0.0/16'))


def psk_peer(number, keys='', child=''):
    return connection(f'p{number}', ('198.51.100.2', '198.51.100.1'), f'auth = psk\n      id = p{number}.example',
                      'auth = psk\n      id = g1.example', (f'10.10.{number // 250}.{number % 250}/32', '10.1.10.0/24'), keys, child)


def box_x(lab):
    """A third box beside g1, for peers with pre-shared keys."""
    lab.box('x')
    lab.wire('x', 'eth0', ['198.51.100.2/24'], 'g1', 'dmz', ['198.51.100.1/24'])


class Loader(threading.Thread):
    """Sets one connection of g2 up and ends it again, so many times a second."""

    def __init__(self, g2, number, rate):
        super().__init__(daemon=True)
        self.g2, self.name_, self.pause = g2, f'r{number}', 1 / rate
        self.going, self.count, self.failed = True, 0, []

    def run(self):
        with self.g2.vici() as v:
            due = time.monotonic()
            while self.going:
                try:
                    v.request('initiate', {'child': self.name_, 'ike': self.name_, 'timeout': '20000'})
                    self.count += 1
                    v.request('terminate', {'ike': self.name_})
                except (OSError, ViciError) as why:
                    self.failed.append(str(why))
                due = max(due + self.pause, time.monotonic() - 1)
                time.sleep(max(0, due - time.monotonic()))


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def answers_beside_set_ups(lab, full):
    """100 set-ups a second with chains of RSA-3072, beside 100 peers that ask for a sign of life each second."""
    need('pki', 'openssl', 'ip')
    lab.line()
    box_x(lab)
    certs.Chains(lab, 'rsa3072')
    ours, theirs = ('192.0.2.1', '192.0.2.2'), ('192.0.2.2', '192.0.2.1')
    rsa = lambda box: (f'{certs.local(box)}\n      id = {box}.example',
                       f"{certs.remote()}\n      id = {'g2' if box == 'g1' else 'g1'}.example")
    g1 = IronSwan(lab, 'g1').start('connections {' + connection('rsa', ours, *rsa('g1'), ('10.1.9.0/24', '10.9.0.0/24'), 'unique = never')
                                   + ANYBODY + '\n}\n' + SECRETS)
    g2 = IronSwan(lab, 'g2').start('connections {' + ''.join(
        connection(f'r{n}', theirs, *rsa('g2'), (f'10.9.0.{n}/32', '10.1.9.0/24'), 'unique = never') for n in range(LOADERS)) + '\n}\n')
    x = IronSwan(lab, 'x').start('connections {' + ''.join(
        psk_peer(n, 'dpd_delay = 1s', 'start_action = start') for n in range(PEERS)) + '\n}\n' + SECRETS)
    until('all peers are up', lambda: len([sa for sa in x.sas() if sa['state'] == 'ESTABLISHED']) == PEERS, 60, 0.5)
    watch = lab.spawn('x', sys.executable, os.path.join(HERE, 'answers.py'), 'eth0', name='answers', stdin=-1)
    until('the watch is ready', lambda: 'ready' in watch.log())

    def cut():
        had = len(watch.log().splitlines())
        watch.popen.stdin.write('cut\n')
        watch.popen.stdin.flush()
        until('the watch answers', lambda: len(watch.log().splitlines()) > had)
        return json.loads(watch.log().splitlines()[-1])

    time.sleep(1)
    cut()
    time.sleep(3)
    alone = cut()
    loaders = [Loader(g2, n, RATE / LOADERS) for n in range(LOADERS)]
    for loader in loaders:
        loader.start()
    time.sleep(1)
    cut()
    count, began = sum(loader.count for loader in loaders), time.monotonic()
    time.sleep(60 if full else 6)
    beside, rate = cut(), (sum(loader.count for loader in loaders) - count) / (time.monotonic() - began)
    for loader in loaders:
        loader.going = False
    for loader in loaders:
        loader.join(30)
        check(not loader.failed, f'set-ups that failed: {loader.failed[:3]}' if loader.failed else f'{loader.count} set-ups of {loader.name_}')
    check(len(alone) >= PEERS and len(beside) >= 2 * PEERS, f'{len(alone)} answers alone, {len(beside)} beside')
    say(f'  seen {rate:.0f} set-ups a second; answers within {percentile(beside, 0.99):.1f} ms (99 %), {percentile(beside, 0.5):.2f} ms '
        f'(half); alone {percentile(alone, 0.99):.1f} ms and {percentile(alone, 0.5):.2f} ms')
    check(rate >= RATE / PATIENCE, f'the set-ups are a load: {rate:.0f} a second')
    check(percentile(beside, 0.99) <= WITHIN * PATIENCE, f'99 % within {WITHIN} ms, {PATIENCE} times as much is allowed')
    check(len([sa for sa in g1.sas() if sa['name'] == 'any' and sa['state'] == 'ESTABLISHED']) == PEERS, 'all peers are still there')


def a_silent_server_holds_up_its_own_connection_alone(lab, full):
    """A server of lists says nothing: the connection that needs the list waits for 5 s, and others come up as ever."""
    place = Place(lab)
    box_x(lab)
    x = IronSwan(lab, 'x').start('connections {' + psk_peer(0) + '\n}\n' + SECRETS)
    place.certify('--crl', 'http://192.0.2.2:8080/hang')
    place.policy('strict')
    with open(os.path.join(place.us.config, 'swanctl.conf'), 'a') as f:
        f.write('\nconnections {' + ANYBODY + '\n}\n')
    with place.us.vici() as v:
        v.request('reload-settings')

    def comes_and_goes():
        began = time.monotonic()
        x.initiate(child='p0')
        took = time.monotonic() - began
        x.swanctl('--terminate', '--ike', 'p0')
        return took

    alone = sorted(comes_and_goes() for _ in range(3))[1]
    seen = []

    def refused():
        began = time.monotonic()
        done = place.them.swanctl('--initiate', '--child', 'net', '--timeout', '30', fail=False)
        seen.append((done.returncode, time.monotonic() - began))

    waits = threading.Thread(target=refused)
    waits.start()
    time.sleep(0.3)
    took = []
    while waits.is_alive() and len(took) < 60:
        took.append(comes_and_goes())
    waits.join(40)
    (status, waited), most = seen[0], max(took)
    say(f'  seen {len(took)} set-ups beside it, at most {most:.2f} s ({alone:.2f} s alone); it waited {waited:.1f} s')
    check(status != 0 and waited <= FETCH * PATIENCE, f'without its list it is refused, after {waited:.1f} s')
    check(len(took) >= 3, 'others came up meanwhile')
    check(most <= 1 * PATIENCE, f'others are up within a second, five are allowed: {most:.2f} s')


if __name__ == '__main__':
    main({f.__name__: f for f in (answers_beside_set_ups, a_silent_server_holds_up_its_own_connection_alone)}, 'liveness')
