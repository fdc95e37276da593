#!/usr/bin/env python3
"""Floods of IKE_SA_INIT requests, 2,000 a second, beside an established tunnel and honest peers that come and go.

usage: testkit/interop/run [--full] floods[.TEST]      --full: each flood lasts 60 s instead of 8
Of the tunnel's numbered packets none is lost; an honest peer is up within a second, as median of ten; memory stays flat and the
log short.
"""
import json
import os
import sys
import time

from daemon import resident
from gateway import Charon, IronSwan, program, tunnel
from lab import HERE, call, check, main, need, say, until
from traffic import Numbered, check_no_loss, ping

RATE = 2000
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
      auth = psk
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


def attacked(lab, honest):
    """The line, with g1 to be attacked from box x, and g2 a gateway of this kind."""
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
    g1 = IronSwan(lab, 'g1').start(tunnel('g1') + second('g1') + ANYBODY)
    g2 = honest(lab, 'g2').start(tunnel('g2') + second('g2'))
    g2.initiate()
    ping(lab)
    return g1, g2


def strangers(lab, mode, v6, seconds):
    target, prefix = ('2001:db8:51::1', '2001:db8:66::/64') if v6 else ('198.51.100.1', '10.200.0.0/16')
    return lab.spawn('x', sys.executable, os.path.join(HERE, 'strangers.py'), mode, target, prefix, RATE, seconds, name=mode)


def comes_and_goes(g2):
    """How long the second tunnel took to come up, of its own account or swanctl's."""
    began = time.monotonic()
    g2.initiate(child='extra')
    took = time.monotonic() - began
    g2.swanctl('--terminate', '--ike', 'extra')
    return took


def flooded(lab, full, mode, honest, v6=False):
    """What one flood does to everybody else, and what it was answered."""
    g1, g2 = attacked(lab, honest)
    alone = sorted(comes_and_goes(g2) for _ in range(3))[1]
    # What any number of requests needs is touched by the first of them.
    first = strangers(lab, mode, v6, 1)
    until('the first requests have been sent', lambda: not first.alive())
    before, log = resident(g1.process), os.path.getsize(g1.process.log_path)
    load = Numbered(lab, rate=500)
    attack = strangers(lab, mode, v6, 60 if full else 8)
    time.sleep(0.5)
    took = [comes_and_goes(g2) for _ in range(TRIES)]
    going = attack.alive()
    until('the flood is over', lambda: not attack.alive(), 70, 0.2)
    report = load.end()
    after, grown = resident(g1.process), os.path.getsize(g1.process.log_path) - log
    seen = json.loads(attack.log())
    seen['full before'] = json.loads(first.log())['full']
    say(f'  seen {seen}')
    # The sender has other things to do on a busy machine, too.
    check(seen['sent'] >= 0.8 * RATE * (seen['seconds'] - 1), f"{seen['sent']} requests sent in {seen['seconds']} s, {seen['unsent']} not")
    check_no_loss(report)
    median = sorted(took)[TRIES // 2]
    say(f'  seen an honest peer up after {median:.2f} s (median of {TRIES}; at most {max(took):.2f} s; {alone:.2f} s without the '
        f'flood)' + ('' if going else '; the flood ended before'))
    check(median <= 1 * PATIENCE, f'up within a second, five are allowed: {median:.2f} s')
    check(after <= before * 1.05, f'resident: {before} KiB before, {after} after')
    check(grown < 1 << 20, f'the log grew by {grown} bytes')
    return g1, seen


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


if __name__ == '__main__':
    main({f.__name__: f for f in (
        returned_cookies_hold_nobody_up, requests_that_fit_nothing_hold_nobody_up, repeated_request_is_answered_once_a_second)}, 'floods')
