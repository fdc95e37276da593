#!/usr/bin/env python3
"""Why a tunnel is as it is: `explain`, `status` and `prove`, beside strongSwan and IronSwan. Doing what the text says mends it.

usage: testkit/interop/run [--full] explain[.TEST]      --full: all that may differ from Libreswan, and its end; 10,000 connections
"""
import json
import re
import time

import libreswan
from gateway import ADDRESS, NET, SECRET, Charon, IronSwan, program, tunnel
from guest import line_before_guest
from lab import check, main, until
from libreswan import Libreswan
from traffic import ping

# Libreswan has a key for another name of its own.
OTHER = f'@other.example @g1.example : PSK "{SECRET}"\n'
QUICK = 'retransmit_timeout = 0.5\nretransmit_base = 1.0\nretransmit_tries = 3\n'
# A line of `status` and `explain` fits this.
COLUMNS = 80
# A connection beside the one that fails: its peer does not exist, and nobody asks for it.
NEIGHBOUR = """
  neighbour {{
    local_addrs = 192.0.2.1
    remote_addrs = 192.0.2.77
    local {{ auth = psk
      id = g1.example }}
    remote {{ auth = psk
      id = n.example }}
    children {{ n {{ local_ts = 10.1.0.0/24
      remote_ts = 10.77.0.0/24
      start_action = {action} }} }}
  }}
}}
secrets {{"""


def run(gateway, *args):
    # In the gateway's box, since `prove` sends something.
    return gateway.lab.run(gateway.box, program(), *args, '--vici', f'unix://{gateway.socket}', fail=False)


def explained(gateway, *args):
    """The document of `explain`, and the exit status."""
    done = run(gateway, 'explain', *args, '--json')
    document = json.loads(done.stdout)
    check(document['schema'] == 'ironswan.explain/1', 'the document names its schema')
    return document, done.returncode


def notes(document, conn='net'):
    return list(document['connections'][conn]['notes'].values())


def trouble(document, conn='net'):
    return next(t['trouble'] for t in document['tunnels'] if t['name'] == conn and 'trouble' in t)


def text(gateway, *args):
    """What a person reads; no line is too long for a terminal."""
    out = run(gateway, *args).stdout
    check(all(len(line) <= COLUMNS for line in out.splitlines()), f'{" ".join(args)} keeps to {COLUMNS} columns:\n{out}')
    return out


def with_neighbour(conf, action='none'):
    return conf.replace('}\nsecrets {', NEIGHBOUR.format(action=action), 1)


def nobody_answers(lab, full):
    """A peer that is not there, and comes: the story, its places, the neighbour without a record, and all well at the end."""
    lab.line()
    conf = with_neighbour(tunnel('g1', conn='keyingtries = 0', child='start_action = start'))
    us = IronSwan(lab, 'g1').start(conf, 'retransmit_timeout = 0.5\nretransmit_base = 1.0\nretransmit_tries = 2\nretry_initial = 2s\nretry_max = 2s\n')
    until('the first attempt has failed', lambda: trouble_named(us, 'no-answer', 'port-closed', 'host-unreachable'), 30)
    document, status = explained(us, 'net')
    found = trouble(document)
    check(status == 1 and not document['well'], 'explain ends with 1')
    check(found['next'] in ('retry', 'trying') and 'why' in found and 'remedy' in found, f"reason, remedy and next try: {found['why']}")
    note = notes(document)[-1]
    check(any('remote_addrs ' in place and 'swanctl.conf:' in place for place in note['places']), f"file and line: {note['places']}")
    out = text(us, 'explain', 'net')
    for word in ('net: ', '  why   ', '  seen  ', '  at    ', '  do    ', '  next  '):
        check(word in out, f'explain has {word.strip()}')
    document, status = explained(us, 'neighbour')
    check(status == 0 and not notes(document, 'neighbour'), 'the neighbour has no record, and explain ends with 0')
    out = text(us, 'status')
    rows = [line for line in out.splitlines() if re.match(r'(net|neighbour) ', line)]
    check(rows[0].startswith('net ') and rows[1].startswith('neighbour '), 'status has one line per tunnel, the bad one first')
    check(run(us, 'status', '--check').returncode == 1, 'status --check ends with 1')
    only = text(us, 'status', '--down')
    check('net ' in only and 'neighbour' not in only, 'status --down has only what is down')
    # What the text says: the peer is to run.
    Charon(lab, 'g2').start(tunnel('g2'))
    until('the tunnel is up', lambda: us.child_spis(), 30)
    document, status = explained(us, 'net')
    check(status == 0 and document['well'] and not notes(document), 'once it is up, all is well, and the notes are gone')
    up = next(t for t in document['tunnels'] if t['name'] == 'net')
    check(up['state'] == 'up' and up['before']['name'] in ('no-answer', 'port-closed', 'host-unreachable'),
          f"what was before: {up['before']}")
    check(run(us, 'status', '--check').returncode == 0, 'status --check ends with 0')
    ping(lab)


def trouble_named(gateway, *names):
    document = json.loads(run(gateway, 'explain', 'net', '--json').stdout)
    found = [t.get('trouble', {}).get('name') for t in document['tunnels']]
    return any(name in names for name in found)


def both_sides(lab, full):
    """Proposals, selectors and identities that differ: values of both sides, on either end, with strongSwan as peer."""
    lab.line()
    us, them = IronSwan(lab, 'g1'), Charon(lab, 'g2')
    us.start(tunnel('g1'))
    them.start(tunnel('g2'))
    cases = (
        ('proposals', {'ike': 'aes256gcm16-prfsha384-x25519'}, 'no-proposal', 'ENCR'),
        ('child proposals', {'esp': 'aes256gcm16'}, 'no-proposal', 'ENCR'),
        ('selectors', {'remote_ts': '10.99.0.0/24', 'local_ts': '10.98.0.0/24'}, 'selectors-unacceptable', 'remote_ts'),
        ('identities', {'remote_id': 'nobody.example', 'my_id': 'other.example'}, None, 'remote.id'),
    )
    for what, change, name, differing in cases:
        them.load(tunnel('g2', **change))
        # They ask, and we refuse: we know both sides.
        them.swanctl('--initiate', '--child', 'net', '--timeout', '8', fail=False)
        document, _ = explained(us, 'net')
        known = notes(document) + list(document['strangers'].values())
        known = [note for note in known if name is None or note['name'] == name]
        check(known, f'{what}: explain knows why: {[note["why"] for note in known]}')
        sides = [side for note in known for side in note['sides'].values()]
        differ = [side for side in sides if side['differs'] and differing in side['what']]
        check(differ, f'{what}: {differ[0]["what"] if differ else sides}: ours {differ and differ[0]["ours"]}, theirs {differ and differ[0]["theirs"]}')
        us.swanctl('--terminate', '--ike', 'net', fail=False)
        # We ask, and they refuse: we know what we asked.
        up = us.swanctl('--initiate', '--child', 'net', '--timeout', '8', fail=False)
        check(up.returncode != 0, f'{what}: it does not come up')
        document, status = explained(us, 'net')
        check(status == 1 and trouble(document)['why'], f"{what}: as initiator: {trouble(document)['why']}")
        text(us, 'explain', 'net')
        us.swanctl('--terminate', '--ike', 'net', fail=False)
    # What the text says: the same on both sides.
    them.load(tunnel('g2'))
    us.initiate()
    document, status = explained(us, 'net')
    check(status == 0 and not notes(document), 'with the same on both sides all is well')
    out = text(us, 'explain', '--peer', ADDRESS['g2'])
    check('net' in out, 'explain --peer names the connection')


def beside_libreswan(lab, full):
    """Libreswan as peer: what differs is named on either end, a healthy neighbour has no record, and what the text says brings it up."""
    line_before_guest(lab)
    them = Libreswan(lab, libreswan.conf('g2'), 5 if full else 4, secrets=OTHER)
    ours = dict(encap=False, conn='dpd_delay = 1s', child='rekey_time = 50m\nlife_time = 1h')
    us = IronSwan(lab, 'g1').start(with_neighbour(tunnel('g1', **ours)), QUICK)
    subnet = f"leftsubnet={NET['g2']}"
    cases = (
        # What differs, their configuration, why we are refused when we ask, and why we refuse when they ask.
        ('proposals', libreswan.conf('g2', ike='aes_gcm256-sha2_512-dh20'), 'NO_PROPOSAL_CHOSEN', 'no-proposal', 'ENCR'),
        ('child proposals', libreswan.conf('g2', esp='aes_gcm256'), 'NO_PROPOSAL_CHOSEN', 'no-proposal', 'ENCR'),
        ('selectors', libreswan.conf('g2').replace(subnet, 'leftsubnet=10.99.0.0/24'), 'TS_UNACCEPTABLE', 'selectors-unacceptable', '_ts'),
        ('identities', libreswan.conf('g2').replace('leftid=@g2.', 'leftid=@other.'), "'other.example'", None, 'remote.id'),
    )
    for what, theirs, refusal, name, differing in cases if full else cases[::2]:
        them.load(theirs)
        them.whack('--initiate', '--name', 'net', '--asynchronous', fail=False)
        def refused():
            document = json.loads(run(us, 'explain', 'net', '--json').stdout)
            return [(note, side) for note in notes(document) + list(document['strangers'].values()) if name is None or note['name'] == name
                    for side in note['sides'].values() if side['differs'] and differing in side['what']]

        note, side = until(f'{what}: we have refused them', refused, 20)[0]
        check(side['ours'] != side['theirs'], f"{what}: {note['why']}: {side['what']}: ours {side['ours']}, theirs {side['theirs']}")
        them.whack('--delete', '--name', 'net', fail=False)
        them.load(theirs)
        us.swanctl('--terminate', '--ike', 'net', fail=False)
        up = us.swanctl('--initiate', '--child', 'net', '--timeout', '8', fail=False)
        document, status = explained(us, 'net')
        why = trouble(document)['why']
        check(up.returncode != 0 and status == 1 and refusal in why, f'{what}: as initiator: {why}')
        text(us, 'explain', 'net')
        us.swanctl('--terminate', '--ike', 'net', fail=False)
        document, status = explained(us, 'neighbour')
        check(status == 0 and not notes(document, 'neighbour'), 'the neighbour has no record')
    them.load(libreswan.conf('g2', esp='aes_gcm128;dh20').replace('pfs=no', 'pfs=yes'))
    us.load(with_neighbour(tunnel('g1', secret='another', **ours)))
    us.swanctl('--initiate', '--child', 'net', '--timeout', '8', fail=False)
    document, status = explained(us, 'net')
    check(status == 1 and 'AUTHENTICATION_FAILED' in trouble(document)['why'], f"secret: {trouble(document)['why']}: {trouble(document)['remedy']}")
    us.load(with_neighbour(tunnel('g1', **ours)))
    us.initiate()
    document, status = explained(us, 'net')
    check(status == 0 and not notes(document), 'with the same on both sides all is well')
    # Rekeying is refused, since only they want a key exchange; the SA that stands carries on until it ends.
    us.swanctl('--rekey', '--child', 'net', fail=False)
    until('a refused rekeying is known', lambda: any(n['name'] == 'rekeying-refused' for n in notes(explained(us, 'net')[0])), 20)
    note = next(n for n in notes(explained(us, 'net')[0]) if n['name'] == 'rekeying-refused')
    check('PFS' in note['remedy'], f"{note['why']}: {note['remedy']}")
    ping(lab, to='10.2.0.1')
    if not full:
        return
    # The program ends without a word: its kernel says that the port is closed, and nothing follows but that this is told.
    them.do('kill -9 $(pgrep -x pluto)')
    until('the tunnel has ended', lambda: not us.sas(), 40)
    document, status = explained(us, 'net')
    check('ICMP type 3 code 3 from 192.0.2.2' in json.dumps(notes(document)), f"dead: {notes(document)[-1]['name']}: {notes(document)[-1]['why']}")
    us.swanctl('--initiate', '--child', 'net', '--timeout', '8', fail=False)
    document, status = explained(us, 'net')
    check(status == 1 and trouble(document)['name'] == 'port-closed', f"closed: {trouble(document)['why']}: {trouble(document)['remedy']}")
    them.end()
    them.run()
    them.load(libreswan.conf('g2'))
    us.initiate()
    document, status = explained(us, 'net')
    check(status == 0 and not notes(document), 'when it runs again, all is well')
    ping(lab, to='10.2.0.1')


def proves(lab, full):
    """`prove` on a tunnel that nobody has asked for: all passed, and down again; then with a peer that refuses rekeyings."""
    lab.line()
    us, them = IronSwan(lab, 'g1').start(tunnel('g1')), Charon(lab, 'g2').start(tunnel('g2'))
    for peer in ('strongSwan', 'IronSwan'):
        done = run(us, 'prove', 'net', '--timeout', '20')
        out = done.stdout
        check(done.returncode == 0 and out.rstrip().endswith('net: all passed'), f'{peer}: all passed:\n{out}')
        for line in ('up', 'ports', 'rekey child', 'rekey ike', 'mtu', 'traffic'):
            check(re.search(f'^passed  {line} ', out, re.M), f'{peer}: {line}')
        check(all(len(line) <= COLUMNS for line in out.splitlines()), f'{peer}: {COLUMNS} columns')
        until('it is down as before', lambda: not us.sas())
        if peer == 'strongSwan':
            them.stop()
            them = IronSwan(lab, 'g2').start(tunnel('g2'))
    # A tunnel that was up stays up.
    us.initiate()
    done = run(us, 'prove', 'net', '--timeout', '20', '--json')
    document = json.loads(done.stdout)
    check(done.returncode == 0 and document['passed'] and all(line['passed'] for line in document['lines']), 'the document says that all passed')
    check(us.child_spis(), 'a tunnel that was up is up afterwards')
    us.terminate('net')
    until('it is down', lambda: not us.sas())
    # The gateway there still waits for ARP of a host that was tried, and would then say that it is not there.
    time.sleep(3.5)
    # Packets towards the peer are lost, but IKE is not.
    lab.run('g2', 'nft', 'add table ip t; add chain ip t c { type filter hook prerouting priority -400; }; '
            'add rule ip t c udp dport 4500 @th,64,32 != 0 drop')
    done = run(us, 'prove', 'net', '--timeout', '20')
    check(done.returncode == 1 and re.search('^FAILED  traffic ', done.stdout, re.M), f'without ESP: {done.stdout}')
    check(re.search('^passed  rekey child ', done.stdout, re.M), 'and the rekeyings pass')
    until('it is down as before', lambda: not us.sas())


def ten_thousand(lab, full):
    """With 10,000 connections `status`, `status --check` and `explain` answer within a second (five here)."""
    lab.line()
    count = 10_000 if full else 2_000
    one = """
  c{n} {{ local_addrs = 192.0.2.1
    remote_addrs = 10.{a}.{b}.1
    local {{ auth = psk }}
    remote {{ auth = psk }}
    children {{ net {{ local_ts = 10.1.0.0/24
      remote_ts = 172.{c}.{b}.0/24
      start_action = {action} }} }} }}"""
    lines = [one.format(n=n, a=100 + n // 250, b=n % 250, c=16 + n // 250, action='start' if n % 10 == 0 else 'none') for n in range(min(count, 3_900))]
    lines += [one.format(n=n, a=100 + n // 250, b=n % 250, c=n // 250 % 200, action='none').replace('172.', '11.')
              for n in range(len(lines), count)]
    conf = 'connections {' + ''.join(lines) + '\n}\nsecrets { ike-1 { secret = "correct horse battery staple" } }\n'
    us = IronSwan(lab, 'g1').start(conf, 'guard = no\n')
    for args, status in ((('status',), 0), (('status', '--check'), 1), (('explain', 'c10'), 1)):
        began = time.monotonic()
        done = run(us, *args)
        took = time.monotonic() - began
        check(done.returncode == status and took < 5, f'{" ".join(args)} with {count} connections: {took:.2f} s')


TESTS = {f.__name__: f for f in (nobody_answers, both_sides, beside_libreswan, proves, ten_thousand)}
if __name__ == '__main__':
    main(TESTS, 'explain')
