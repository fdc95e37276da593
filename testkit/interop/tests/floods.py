#!/usr/bin/env python3
"""Floods beside an established tunnel and honest peers that come and go: IKE_SA_INIT requests, 2,000 a second, and peers that
complete the key exchange and prove nothing, 100 a second. With --full also peers whose certificates name servers of revocation lists that
lie, and 100,000 peers with wrong secrets.

usage: testkit/interop/run [--full] floods[.TEST]      --full: each flood lasts 60 s instead of 8 or 3
Of the tunnel's numbered packets none is lost; an honest peer is up within a second, as median of ten; memory stays flat and the
log short.
"""
import json
import os
import sys
import threading
import time

import certs
from daemon import resident
from gateway import SECRET, Charon, IronSwan, program, tunnel
from lab import HERE, call, check, main, need, say, until
from traffic import Numbered, check_no_loss, ping
from vici import ViciError

RATE = 2000
UNPROVEN_RATE = 100
LIARS_RATE = 10
# The floods of unproven.py whose requests are answered.
ANSWERED = ('rsa', 'wrong', 'unsigned')
TRIES = 10
# Of a limit that is judged by a clock, five times as much is allowed: this machine has other things to do.
PATIENCE = 5

SECOND = """
connections {{
  extra {{
    version = 2
    local_addrs = {local}
    remote_addrs = {remote}
    proposals = aes128gcm16-prfsha256-x25519
    encap = yes
    local {{
      auth = psk
      id = {box}-extra.example
    }}
    remote {{
      auth = psk
      id = {peer}-extra.example
    }}
    children {{
      extra {{
        local_ts = {local_ts}
        remote_ts = {remote_ts}
        esp_proposals = aes128gcm16
      }}
    }}
  }}
}}
"""

# Whoever comes to the attacked addresses is looked at, and has to prove nothing but that it knows the key.
ANYBODY = """
connections {
  anybody {
    version = 2
    local_addrs = 198.51.100.1, 2001:db8:51::1
    remote_addrs = %any
    proposals = aes128gcm16-prfsha256-x25519
    local {
      auth = psk
      id = g1-anybody.example
    }
    remote {
      auth = PROOF
      id = %any
    }
    children {
      anybody {
        local_ts = 10.1.9.0/24
        remote_ts = 10.9.0.0/24
        esp_proposals = aes128gcm16
      }
    }
  }
}
"""


def second(box):
    """A second tunnel between the same gateways: the honest peer that comes and goes."""
    ends = {'g1': ('192.0.2.1', '10.1.8.0/24'), 'g2': ('192.0.2.2', '10.2.8.0/24')}
    peer = 'g2' if box == 'g1' else 'g1'
    return SECOND.format(box=box, peer=peer, local=ends[box][0], remote=ends[peer][0], local_ts=ends[box][1],
                         remote_ts=ends[peer][1])


def attacked(lab, honest, proof='psk'):
    """The line, with g1 to be attacked from box x by peers that are to prove themselves so, and g2 a gateway of this kind."""
    need('ip', 'swanctl', 'ping')
    lab.line()
    lab.box('x')
    lab.wire('x', 'eth0', ['198.51.100.2/24', '2001:db8:51::2/64'], 'g1', 'dmz', ['198.51.100.1/24', '2001:db8:51::1/64'])
    for version, prefix, via in (('-4', '10.200.0.0/16', '198.51.100.2'), ('-6', '2001:db8:66::/64', '2001:db8:51::2')):
        lab.ip('g1', version, 'route', 'add', prefix, 'via', via)
        lab.ip('x', version, 'route', 'add', 'local', prefix, 'dev', 'lo')
    # charon takes only networks that it is in itself.
    for box, address in (('g1', '10.1.8.1/24'), ('g2', '10.2.8.1/24')):
        lab.ip(box, 'addr', 'add', address, 'dev', 'lo')
    g1 = IronSwan(lab, 'g1').start(tunnel('g1') + second('g1') + ANYBODY.replace('PROOF', proof))
    g2 = honest(lab, 'g2').start(tunnel('g2') + second('g2'))
    g2.initiate()
    ping(lab)
    return g1, g2


def strangers(lab, mode, v6, seconds):
    target, prefix = ('2001:db8:51::1', '2001:db8:66::/64') if v6 else ('198.51.100.1', '10.200.0.0/16')
    return lab.spawn('x', sys.executable, os.path.join(HERE, 'strangers.py'), mode, target, prefix, RATE, seconds, name=mode)


def unproven(lab, mode, seconds, *more, rate=UNPROVEN_RATE):
    return lab.spawn('x', '/usr/bin/python3', os.path.join(HERE, 'unproven.py'), mode, '198.51.100.1', '10.200.0.0/16', rate,
                     seconds, *more, name=mode)


def most_held(g1):
    """KiB that half-open IKE_SAs hold: 8 KiB each, which a debug build measures, and fragments of a message (MESSAGE_BYTES)."""
    return int(counters(g1)['half-open']) * (8 + 10)


def comes_and_goes(g2):
    """How long the second tunnel took to come up, of its own account or swanctl's."""
    began = time.monotonic()
    g2.initiate(child='extra')
    took = time.monotonic() - began
    g2.swanctl('--terminate', '--ike', 'extra')
    return took


def flooded(lab, full, mode, honest, v6=False):
    """What one flood of IKE_SA_INIT requests does to everybody else, and what it was answered."""
    ends = attacked(lab, honest)
    seen = beside(lab, ends, lambda seconds: strangers(lab, mode, v6, seconds), 60 if full else 8)
    # The sender has other things to do on a busy machine, too.
    check(seen['sent'] >= 0.8 * RATE * (seen['seconds'] - 1), f"{seen['sent']} requests sent in {seen['seconds']} s, {seen['unsent']} not")
    return ends[0], seen


def beside(lab, ends, flood, seconds, may_hold=False):
    """Judges what a flood does to everybody else. Memory is flat, but for half-open IKE_SAs that it may leave. Returns what it has
    seen itself."""
    g1, g2 = ends
    alone = sorted(comes_and_goes(g2) for _ in range(3))[1]
    # What any number of requests needs is touched by the first of them.
    first = flood(1)
    until('the first requests have been sent', lambda: not first.alive(), 60)
    before, log = resident(g1.process), os.path.getsize(g1.process.log_path)
    load = Numbered(lab, rate=500)
    attack = flood(seconds)
    time.sleep(0.5)
    took = [comes_and_goes(g2) for _ in range(TRIES)]
    going = attack.alive()
    until('the flood is over', lambda: not attack.alive(), 130, 0.2)
    report = load.end()
    after, grown = resident(g1.process), os.path.getsize(g1.process.log_path) - log
    read = lambda process: json.loads(process.log().splitlines()[-1])
    seen = read(attack)
    seen['full before'] = read(first)['full']
    say(f'  seen {seen}')
    check_no_loss(report)
    median = sorted(took)[TRIES // 2]
    say(f'  seen an honest peer up after {median:.2f} s (median of {TRIES}; at most {max(took):.2f} s; {alone:.2f} s without the '
        f'flood)' + ('' if going else '; the flood ended before'))
    check(median <= 1 * PATIENCE, f'up within a second, five are allowed: {median:.2f} s')
    held = most_held(g1) if may_hold else 0
    check(after <= before * 1.05 + held, f'resident: {before} KiB before, {after} after; half-open IKE_SAs may hold {held}')
    check(grown < 1 << 20, f'the log grew by {grown} bytes')
    return seen


def unproven_peers(lab, full, proof, modes):
    """What peers that complete the key exchange and prove nothing do to everybody else, in one way after the other."""
    ends = attacked(lab, IronSwan, proof)
    root = None
    if proof == 'pubkey':
        chains = certs.Chains(lab, 'ecdsa')
        root = chains.root
        with ends[0].vici() as v, open(root, encoding='ascii') as f:
            v.request('load-cert', {'type': 'X509', 'flag': 'CA', 'data': f.read()})
    for mode in modes:
        say(f'  {mode}')
        # What is not answered leaves its IKE_SA half-open.
        silent = mode not in ANSWERED
        more = [root] if root else []
        seen = beside(lab, ends, lambda seconds, mode=mode: unproven(lab, mode, seconds, *more), 60 if full else 3, may_hold=silent)
        check(seen['keys'] >= 0.2 * seen['asked'] and seen['IKE_AUTH requests'] == seen['keys'],
              f"{seen['asked']} peers, {seen['keys']} with keys, {seen['IKE_AUTH requests']} IKE_AUTH requests")
        answered = f"{seen['IKE_AUTH responses']} responses"
        if silent:
            check(seen['IKE_AUTH responses'] == 0, answered)
        else:
            check(seen['IKE_AUTH responses'] >= 0.5 * seen['IKE_AUTH requests'], answered)
        held = int(counters(ends[0])['half-open'])
        check(held <= 1000, f'it holds {held} half-open IKE_SAs')
        check(len(ends[0].established()) == 1, 'none of them has an IKE_SA')


def counters(g1):
    return json.loads(call(program(), 'list', 'counters', '--json', '--vici', f'unix://{g1.socket}'))['ike']


def returned_cookies_hold_nobody_up(lab, full):
    """One IPv6 /64 whose every address brings its cookie back."""
    g1, seen = flooded(lab, full, 'cookies', IronSwan, v6=True)
    got = seen['full'] + seen['full before']
    # Each is held for 30 s, as they are less than half of the table.
    check(0 < got <= 250 * (4 if full else 1), f'{got} of the /64 got a response')
    held = int(counters(g1)['half-open'])
    check(held <= 255, f'it holds {held} half-open IKE_SAs, of 1,000 that there may be')


def requests_that_fit_nothing_hold_nobody_up(lab, full):
    """Requests that fit nothing, from everywhere, of up to 9 KB; the honest peer is strongSwan."""
    g1, seen = flooded(lab, full, 'refused', Charon)
    check(seen['cookies'] > 0.5 * seen['sent'], f"{seen['cookies']} cookies were asked for")
    compared = int(counters(g1)['no-proposal'])
    check(compared <= 0.1 * seen['sent'], f'{compared} were compared with what is configured')
    check(seen['bytes answered'] <= seen['bytes sent'], f"{seen['bytes answered']} bytes answered for {seen['bytes sent']}")


def repeated_request_is_answered_once_a_second(lab, full):
    """One request, repeated: a response a second."""
    g1, seen = flooded(lab, full, 'repeated', IronSwan)
    answers = seen['full'] + seen['cookies'] + seen['refusals']
    check(1 <= answers <= seen['seconds'] + 2, f"{answers} answers in {seen['seconds']} s to {seen['sent']} requests")
    check(seen['bytes answered'] <= 1.2 * seen['bytes sent'] / seen['sent'] * answers,
          f"{seen['bytes answered'] / answers:.0f} bytes each, to requests of {seen['bytes sent'] / seen['sent']:.0f}")


def peers_with_certificates_that_prove_nothing_hold_nobody_up(lab, full):
    """100 certificates in one message, RSA keys of 16,384 bits; with --full also 1 MB of certificates, ASN.1 that is 4,000 deep, and
    a certificate in the name of the root, which has not issued it."""
    unproven_peers(lab, full, 'pubkey', ('many', 'rsa', 'long', 'deep', 'unsigned') if full else ('many', 'rsa'))


def peers_with_wrong_secrets_hold_nobody_up(lab, full):
    """The first of two fragments without the second, the AUTH payload of another pre-shared key; with --full also a wrong integrity
    check value."""
    unproven_peers(lab, full, 'psk', ('halves', 'wrong', 'garbled') if full else ('halves', 'wrong'))


class Comers:
    """Peers of an IronSwan that come again and again until they are told to end: a thread for each connection."""

    def __init__(self, gateway, names, seconds=None, times=None):
        self.gateway, self.ends, self.left = gateway, seconds and time.monotonic() + seconds, times
        self.lock, self.sent = threading.Lock(), 0
        self.threads = [threading.Thread(target=self.come, args=(name,), daemon=True) for name in names]
        for thread in self.threads:
            thread.start()

    def goes_on(self):
        with self.lock:
            if self.left is not None:
                self.left -= 1
            return (self.ends is None or time.monotonic() < self.ends) and (self.left is None or self.left >= 0)

    def come(self, name):
        with self.gateway.vici() as v:
            while self.goes_on():
                try:
                    v.request('initiate', {'ike': name, 'child': name, 'timeout': '20000'})
                except ViciError:
                    with self.lock:
                        self.sent += 1
                else:
                    raise AssertionError(f'{name} was let in')

    def alive(self):
        return any(thread.is_alive() for thread in self.threads)

    def log(self):
        """As the log of a program that ends with one line of JSON."""
        return json.dumps({'sent': self.sent, 'full': 0})


def comer(name, auth):
    """A connection of box x to the attacked gateway."""
    return f"""
  {name} {{
    version = 2
    local_addrs = 198.51.100.2
    remote_addrs = 198.51.100.1
    proposals = aes128gcm16-prfsha256-x25519
    local {{
      auth = {auth}
      id = {name}.example
    }}
    remote {{
      auth = psk
      id = g1-anybody.example
    }}
    children {{
      {name} {{
        local_ts = 10.9.0.0/24
        remote_ts = 10.1.9.0/24
        esp_proposals = aes128gcm16
      }}
    }}
  }}"""


def servers_of_lists_that_lie_hold_nobody_up(lab, full):
    """Peers with valid signatures whose certificates name servers of lists that hang, send without end, drip, have
    huge headers, point elsewhere or send rubbish, files, and loopback, ten a second; each place is new."""
    ends = attacked(lab, IronSwan, 'pubkey\n      revocation = strict')
    chains = certs.Chains(lab, 'ecdsa')
    with ends[0].vici() as v, open(chains.root, encoding='ascii') as f:
        v.request('load-cert', {'type': 'X509', 'flag': 'CA', 'data': f.read()})
    os.makedirs(lab.path('web'), exist_ok=True)
    web = lab.spawn('x', sys.executable, os.path.join(HERE, 'web.py'), '8080', lab.path('web'), name='web')
    until('the server of the web runs', lambda: 'ready' in web.log())
    more = (chains.root, chains.path('root.key'), '198.51.100.2:8080')
    # The first ones last until every thread that asks has been started.
    seen = beside(lab, ends, lambda seconds: unproven(lab, 'lies', max(seconds, 12), *more, rate=LIARS_RATE), 60, may_hold=True)
    check(seen['IKE_AUTH requests'] == seen['keys'] >= 0.8 * seen['asked'], f"{seen['asked']} peers, {seen['keys']} with keys")
    # Of the last five seconds, some are still judged.
    check(seen['IKE_AUTH responses'] >= 0.8 * (seen['keys'] - 5 * LIARS_RATE), f"{seen['IKE_AUTH responses']} of them were answered")
    for path in ('hang', 'endless', 'drip', 'header', 'file', 'loopback', 'rubbish'):
        count = web.log().count(f'GET /{path}?')
        check(count > 0, f'/{path} was asked for {count} times')
    check('GET /list' not in web.log(), 'nothing else was asked for')
    check(len(ends[0].established()) == 1, 'none of them has an IKE_SA')


def hundred_thousand_wrong_secrets_write_little(lab, full):
    """100,000 peers (without --full 500) complete the key exchange and have another secret: less than 1 MB of log."""
    many, threads = 100_000 if full else 500, 24
    ends = attacked(lab, IronSwan)
    text = ''.join(comer(f'w{n}', 'psk') for n in range(threads))
    x = IronSwan(lab, 'x').start('connections {' + text + '\n}\nsecrets {\n  ike-x {\n    secret = "a wrong one"\n  }\n}\n',
                                 settings='log {\n  level = error\n}\n')
    before, failed = os.path.getsize(ends[0].process.log_path), counters(ends[0])['auth-failed']
    began = time.monotonic()
    comers = Comers(x, [f'w{n}' for n in range(threads)], times=many)
    until('all have come', lambda: not comers.alive(), 900, 1)
    took, grown = time.monotonic() - began, os.path.getsize(ends[0].process.log_path) - before
    count = int(counters(ends[0])['auth-failed']) - int(failed)
    say(f'  seen {count} wrong proofs in {took:.0f} s, {count / took:.0f} a second; the log grew by {grown} bytes')
    check(count >= many, f'{count} proofs were judged')
    check(grown < 1 << 20, f'the log grew by {grown} bytes')
    check(len(ends[0].established()) == 1, 'none of them has an IKE_SA')


if __name__ == '__main__':
    main({f.__name__: f for f in (
        returned_cookies_hold_nobody_up, requests_that_fit_nothing_hold_nobody_up, repeated_request_is_answered_once_a_second,
        peers_with_certificates_that_prove_nothing_hold_nobody_up, peers_with_wrong_secrets_hold_nobody_up,
        *((servers_of_lists_that_lie_hold_nobody_up, hundred_thousand_wrong_secrets_write_little) if '--full' in sys.argv else ()))}, 'floods')
