#!/usr/bin/env python3
"""Somebody on the outer wire forges the far network's addresses: nothing gets in, forwarded or for the gateway itself, IPv4 or
IPv6, whatever becomes of the daemon, nftables, rules and routes; and what may come in clear comes in all the while.

usage: testkit/interop/run [--full] inbound[.TEST]      --full: ten flushes instead of three, each watched for 5 s
"""
import json
import os
import signal
import sys
import time

from daemon import start_fails
from gateway import program
from lab import HERE, check, main, need, until
from leakline import A, B, INSIDE, SITES, Helper, Line
from leakfaults import delete_rules, kill

# Of a network that no policy names: ordinary traffic in clear. And of one that a `pass` policy lets through.
OTHERS = {4: '10.9.0.9', 6: 'fd00:9::9'}
HOLE = {4: '10.2.0.200', 6: 'fd00:2::c8'}
PASS = {'mode': 'pass', 'local_ts': SITES['local_ts'], 'remote_ts': '10.2.0.200/32,fd00:2::c8/128', 'start_action': 'trap'}
FORGED = {4: '10.2.0.99', 6: 'fd00:2::63'}
NAME = 'ironswan:'


class Wire:
    """The line with a forger beside the router, and listeners on host a and on the gateway."""

    def __init__(self, lab, full, rate=200, **options):
        need('ip', 'nft', 'tc', 'swanctl', 'ping')
        self.lab, self.hold = lab, 5 if full else 2
        self.line = Line(lab, {'net': {**SITES, 'start_action': 'start'}, 'hole': PASS}, **options)
        self.line.up('g1')
        self.line.start_g2()
        self.line.start_g1()
        self.g1 = self.line.g1
        until('the tunnel is up', lambda: self.reaches(B[4]), 15)
        self.ears = {'host a': Helper(lab, 'a', 'knock.py', 'listen', '7000').ready(),
                     'the gateway': Helper(lab, 'g1', 'knock.py', 'listen', '7000').ready()}
        kinds = [[who[n], to[n]] for who in (FORGED, OTHERS, HOLE) for to in (A, INSIDE) for n in (4, 6)]
        mac = self.line.mac('g1', 'wan')
        self.forger = Helper(lab, 'r', 'knock.py', 'send', 'west', mac, str(rate), json.dumps(kinds)).ready()
        self.count()

    def reaches(self, to):
        return self.lab.run('a', 'ping', '-c', '1', '-W', '1', to, fail=False).returncode == 0

    def count(self):
        """What came since the last time, by listener and source; and how much was sent."""
        self.forger.ask()
        sent = self.forger.answer()['sent']
        for ear in self.ears.values():
            ear.ask()
        return sent, {name: ear.answer() for name, ear in self.ears.items()}

    def quiet(self, what, action=None, hold=None):
        """Nothing forged came in meanwhile, and everything else did."""
        self.count()
        if action:
            action()
        time.sleep(hold or self.hold)
        sent, came = self.count()
        forged = sum(n for by in came.values() for who, n in by.items() if who in FORGED.values())
        check(forged == 0, f'{what}: of {sent // 3} forged packets {forged} came in')
        for name, by in came.items():
            least = min(by.get(who, 0) for who in (*OTHERS.values(), *HOLE.values()))
            check(least > sent / 12 / 2, f'{what}: what may come in clear came to {name} ({least} of each of {sent // 12})')

    def flushed(self):
        """Everything that somebody can flush in one go, except the daemon's own program."""
        self.line.nft('flush ruleset')
        delete_rules(self.line)
        for family in ((), ('-6',)):
            self.line.ip(*family, 'route', 'flush', 'table', '220', fail=False)

    def filters(self, device='wan'):
        return self.lab.run('g1', 'tc', 'filter', 'show', 'dev', device, 'ingress', fail=False).stdout

    def stands(self, device='wan'):
        return NAME in self.filters(device)

    def tunnel(self):
        for to in B.values():
            until(f'the tunnel carries traffic to {to}', lambda: self.reaches(to), 15)
        check(True, 'the tunnel carries IPv4 and IPv6')


def closed_after_kill9(lab, full):
    """kill -9, then nft, rules and routes flushed: until the next start, and after it."""
    w = Wire(lab, full)
    w.quiet('all well')
    w.quiet('kill -9', lambda: kill(w.g1))
    w.quiet('then nft flush ruleset', lambda: w.line.nft('flush ruleset'))
    w.quiet('then rules and routes', w.flushed)
    shown = json.loads(lab.run('g1', program(), 'guard', '--json', '--vici', 'unix:///var/tmp/nobody.vici'))
    check('wan' in shown['ingress'] and 'lan' in shown['ingress'] and not shown['table'], f"it is shown at {shown['ingress']}")
    check(shown['in_clear']['packets'] > 1000, f"and what it dropped: {shown['in_clear']['packets']}")
    w.quiet('the next start', w.line.start_g1)
    now = json.loads(lab.run('g1', program(), 'guard', '--json', '--vici', f'unix://{w.g1.socket}'))['in_clear']['packets']
    check(now > shown['in_clear']['packets'], f'the next start counts on from there: {now}')
    w.tunnel()


def closed_after_a_failed_start(lab, full):
    """kill -9 and all flushed, so that the program alone stands: a start that fails, and an installation of a configuration
    with an error in it, leave it."""
    w = Wire(lab, full)
    kill(w.g1)
    w.flushed()
    occupied = os.path.dirname(lab.write('occupied.vici/x', ''))
    w.quiet('a start whose VICI socket is a folder', lambda: start_fails(
        lab, ['run', '--config', w.g1.config, '--vici', f'unix://{occupied}'], 'occupied.vici'))
    check(w.stands('wan') and w.stands('lan'), 'the program stands')
    w.flushed()
    check(not w.line.table().strip() and w.stands('wan'), 'and alone again')
    more = ' other { remote_addrs = 192.0.2.9\n lokal_addrs = 192.0.2.1 }\n }\n'
    bad = os.path.dirname(lab.write('bad/swanctl.conf', 'connections { fewer { local { auth = psk }\n remote { auth = psk }\n '
                                    'remote_addrs = 192.0.2.9\n children { c { local_ts = 10.99.0.0/16\n remote_ts = '
                                    '10.98.0.0/16 } } }\n' + more, 0o600))
    before = {device: w.filters(device) for device in ('wan', 'lan')}
    done = lab.run('g1', program(), 'guard', '--install', '--config', bad, '--vici', 'unix:///var/tmp/nobody.vici', fail=False)
    check(done.returncode == 2 and 'lokal_addrs' in done.stdout, f'--install: {done.stdout.strip()}')
    check({device: w.filters(device) for device in before} == before, 'the program of before stands')
    w.quiet('which holds', hold=1)
    w.line.start_g1()
    w.tunnel()


def closed_while_the_daemon_is_stopped(lab, full):
    """The daemon is stopped, and all is flushed; it goes on."""
    w = Wire(lab, full)
    w.g1.process.send(signal.SIGSTOP)
    w.quiet('SIGSTOP and all flushed', w.flushed)
    w.g1.process.send(signal.SIGCONT)
    w.quiet('SIGCONT', hold=1)
    until('the table stands again', lambda: 'ironswan' in w.line.table(), 5)
    w.tunnel()


def closed_while_rules_are_flushed(lab, full):
    """The daemon is well, and somebody flushes again and again."""
    w = Wire(lab, full)

    def flushes():
        for _ in range(10 if full else 3):
            w.line.nft('flush ruleset')
            w.flushed()
            time.sleep(0.3)
    w.quiet('flushed again and again', flushes, 0.5)
    w.tunnel()


def closed_after_sigterm_and_open_after_remove(lab, full):
    """SIGTERM leaves it; an empty configuration and `guard --remove` take it away, and nothing else."""
    w = Wire(lab, full)
    lab.run('g1', 'tc', 'filter', 'add', 'dev', 'lan', 'ingress', 'pref', '77', 'protocol', 'ip', 'u32', 'match', 'u32', '0', '0',
            'flowid', '1:1')
    check(w.g1.stop() == 0, 'SIGTERM: exit status 0')
    w.quiet('SIGTERM and all flushed', w.flushed)
    out = lab.run('g1', program(), 'guard', '--remove', '--vici', 'unix:///var/tmp/nobody.vici')
    check(not w.stands('wan') and not w.stands('lan'), f'--remove takes it away: {out.strip()}')
    check('pref 77' in w.filters('lan'), "another's filter stays")
    qdiscs = lab.run('g1', 'tc', 'qdisc', 'show', 'dev', 'wan')
    check('clsact' not in qdiscs, f'and what held ours goes where nothing else needs it: {qdiscs.strip()}')
    sent, came = w.count()
    time.sleep(0.5)
    sent, came = w.count()
    all_in = [by.get(who, 0) for by in came.values() for who in FORGED.values()]
    check(min(all_in) > 0, f'the control: without it each kind of forged packet comes in: {all_in}')
    w.line.start_g1()
    w.quiet('started again', hold=1)
    w.line.write_g1('connections { }\n')
    w.g1.process.send(signal.SIGHUP)
    until('unloading takes it away', lambda: not w.stands('wan') and not w.stands('lan'), 5)
    check(True, 'unloading the last connection takes it away')


def removed_program_comes_back(lab, full):
    """Somebody takes it away: it is back within a second, and told; a new interface gets it at once; a hole opens it at once."""
    w = Wire(lab, full)
    for name, command in (
            ('the filter', ('filter', 'del', 'dev', 'wan', 'ingress', 'pref', '2')),
            ('all filters', ('filter', 'del', 'dev', 'wan', 'ingress')),
            ('clsact', ('qdisc', 'del', 'dev', 'wan', 'clsact')),
    ):
        lines = len(w.g1.log().splitlines())
        lab.run('g1', 'tc', *command)
        began = time.monotonic()
        until(f'{name} is restored', w.stands, 5, 0.01)
        took = time.monotonic() - began
        check(took < 5, f'{name}: restored after {took:.2f} s')
        until('it is told', lambda: any('the program at the ingress of wan' in x and 'restored' in x
                                        for x in w.g1.log().splitlines()[lines:]), 5)
    lines = len(w.g1.log().splitlines())
    lab.ip('g1', 'link', 'add', 'late0', 'type', 'veth', 'peer', 'name', 'late1')
    until('a new interface has it', lambda: w.stands('late0'), 5, 0.01)
    check(not w.stands('ipsec0') and not w.stands('lo'), 'ipsec0 and lo have none')
    lab.ip('g1', 'link', 'add', 'br9', 'type', 'bridge')
    lab.ip('g1', 'link', 'set', 'late0', 'master', 'br9')
    until('a bridge has it, and its port no longer', lambda: w.stands('br9') and not w.stands('late0'), 5)
    check(not any('restored' in x for x in w.g1.log().splitlines()[lines:]), 'which is no loss that is told')
    w.quiet('with all of that', hold=1)
    pols = json.loads(lab.run('g1', program(), 'list', 'pols', '--json', '--vici', f'unix://{w.g1.socket}'))
    check({'wan', 'lan', 'br9'} <= set(pols['ingress']), f"list pols names it: {pols['ingress']}")
    for address in ('add', 'del'):
        lab.ip('g1', 'addr', address, '192.0.2.77/24', 'dev', 'wan')
    w.tunnel()


def vlan_tags_are_no_way_around(lab, full):
    """Tags of no VLAN, once and twice, are no way around."""
    w = Wire(lab, full)
    w.line.nft('flush ruleset')
    script = (
        'import socket, struct, sys; sys.path.insert(0, sys.argv[1]); from knock import packet\n'
        's = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(("west", 0))\n'
        'to = bytes.fromhex(sys.argv[2].replace(":", ""))\n'
        'for src in sys.argv[3:5]:\n'
        '  for tags in (b"", b"\\x81\\0\\xe0\\0", b"\\x81\\0\\xe0\\0" * 2, b"\\x88\\xa8\\0\\0\\x81\\0\\0\\0"):\n'
        '    for n in range(20):\n'
        '      kind, data = packet(src, sys.argv[5], 7100)\n'
        '      s.send(to + s.getsockname()[4] + tags + struct.pack("!H", kind) + data)\n')
    ear = Helper(lab, 'g1', 'knock.py', 'listen', '7100').ready()
    w.g1.process.send(signal.SIGSTOP)
    w.line.nft('flush ruleset')
    lab.run('r', sys.executable, '-c', script, HERE, w.line.mac('g1', 'wan'), FORGED[4], OTHERS[4], INSIDE[4])
    time.sleep(0.3)
    ear.ask()
    came = ear.answer()
    w.g1.process.send(signal.SIGCONT)
    check(came.get(FORGED[4], 0) == 0, f'of 80 forged packets none came in: {came}')
    check(came.get(OTHERS[4], 0) >= 40, "others' came, without a tag and with one")


def alone(lab, children):
    """The line without its other gateway: `children` are loaded and nothing comes up. And what sends frames to g1's outer interface."""
    need('ip', 'nft', 'tc', 'swanctl')
    line = Line(lab, children)
    line.up('g1')
    line.start_g1()

    def forge(*kinds):
        lab.run('r', sys.executable, os.path.join(HERE, 'knock.py'), 'once', 'west', line.mac('g1', 'wan'), json.dumps(kinds))
        time.sleep(0.3)
    return line, forge


def came(ear, source=FORGED[4]):
    ear.ask()
    return ear.answer().get(source, 0)


def vlans_are_left_to_their_interfaces(lab, full):
    """What is tagged for a VLAN is left to the VLAN's interface, which may be another network namespace's or a VRF's: a packet socket
    behind the program sees it, as that interface would."""
    line, forge = alone(lab, {'net': {**SITES, 'start_action': 'trap'}})
    ear = Helper(lab, 'g1', 'knock.py', 'tap', 'wan', '7000').ready()
    for what, tags, want in (('for VLAN 20', '81000014', 20), ('for VLAN 4095 with a priority', '8100efff', 20),
                             ('of no VLAN', '8100e000', 0), ('without a tag', '', 0)):
        forge({'src': FORGED[4], 'dst': INSIDE[4], 'tags': tags})
        n = came(ear)
        check(n == want, f'of 20 packets {what} {n} pass the program')
    listener = Helper(lab, 'g1', 'knock.py', 'listen', '7000').ready()
    line.g1.process.send(signal.SIGSTOP)
    line.nft('flush ruleset')
    forge(*({'src': who, 'dst': INSIDE[4], 'tags': '81000014'} for who in (FORGED[4], OTHERS[4])))
    listener.ask()
    n = listener.answer()
    check(not n, f'and none comes in where nobody has that VLAN: {n}')
    line.g1.process.send(signal.SIGCONT)


def dhcp_answers_reach_the_client(lab, full):
    """Answers of a DHCP server reach a client that has no address yet, also where its network is protected."""
    line, forge = alone(lab, {'net': {**SITES, 'start_action': 'trap'}})
    client = Helper(lab, 'g1', 'knock.py', 'tap', 'wan', '68').ready()
    for to in ('10.1.0.77', INSIDE[4]):
        forge({'src': FORGED[4], 'dst': to, 'sport': 67, 'port': 68})
        n = came(client)
        check(n == 20, f'of 20 answers to {to} the client saw {n}')
    forge({'src': FORGED[4], 'dst': '10.1.0.77', 'sport': 7001, 'port': 68})
    n = came(client)
    check(n == 0, f"of 20 packets from another port it saw {n}")
    ear = Helper(lab, 'g1', 'knock.py', 'listen', '68').ready()
    forge({'src': FORGED[4], 'dst': INSIDE[4], 'sport': 67, 'port': 68})
    n = came(ear)
    check(n == 0, f'and of 20 answers to an address of ours nftables lets in {n}')


def fragments_of_a_passed_port_come_in(lab, full):
    """Fragments of what a `pass` of one port lets in come in, those of other ports do not. Where a child asks ports no later one does:
    it could be put together with a first one that came through the tunnel."""
    line, forge = alone(lab, {
        'net': {**SITES, 'start_action': 'trap'},
        'port': {'local_ts': '10.1.0.0/24[udp/7000]', 'remote_ts': '10.8.0.0/24[udp]', 'start_action': 'trap'},
        'hole': {'mode': 'pass', 'local_ts': '10.1.0.0/24[udp/7000]', 'remote_ts': '10.2.0.0/24[udp]', 'start_action': 'trap'}})
    ears = {port: Helper(lab, 'g1', 'knock.py', 'listen', port).ready() for port in ('7000', '7002')}
    behind = Helper(lab, 'a', 'knock.py', 'listen', '7000').ready()
    kinds = [{'src': FORGED[4], 'dst': INSIDE[4], 'port': int(port), 'size': 3000} for port in ears]
    forge(*kinds)
    n = {port: came(ear) for port, ear in ears.items()}
    check(n == {'7000': 20, '7002': 0}, f'of 20 packets of 3,000 bytes to each port came in: {n}')
    beside = Helper(lab, 'a', 'knock.py', 'listen', '7002').ready()
    other = {'src': '10.8.0.9', 'dst': A[4], 'port': 7002}
    forge(other)
    n = came(beside, other['src'])
    check(n == 20, f'of 20 whole packets to a port that the child does not have came in: {n}')
    forge({**other, 'size': 3000})
    n = came(beside, other['src'])
    check(n == 0, f'of 20 in fragments: {n}')
    line.g1.process.send(signal.SIGSTOP)
    line.nft('flush ruleset')
    forge(*kinds, {**kinds[0], 'dst': A[4]}, {**other, 'size': 3000})
    n = came(beside, other['src'])
    check(n == 0, f'of 20 in fragments without the table: {n}')
    n = {port: came(ear) for port, ear in ears.items()}
    check(n == {'7000': 20, '7002': 0}, f'without the table: {n}')
    n = came(behind)
    check(n == 20, f'and {n} to host a')
    line.g1.process.send(signal.SIGCONT)


def more_networks_than_room_stay_closed(lab, full):
    """More networks than the program has room for: it closes for them, and is as exact as ever for others."""
    many = [f'172.16.{n // 100}.{n % 100 * 2}/32' for n in range(1100)]
    line, forge = alone(lab, {
        'net': {**SITES, 'start_action': 'trap'},
        **{f'many{n}': {'local_ts': ','.join(['10.1.0.0/24', *many[n::5]]), 'remote_ts': '10.3.0.0/24', 'start_action': 'trap'}
           for n in range(5)},
        'hole': {'mode': 'pass', 'local_ts': '10.1.0.0/24[udp/7000]', 'remote_ts': '10.2.0.0/24[udp]', 'start_action': 'trap'}})
    check('has no room for all policies for what comes from 10.3.0.0-10.3.0.255' in line.g1.log(), 'the log says what is stricter')
    line.g1.process.send(signal.SIGSTOP)
    line.nft('flush ruleset')
    for port in (7000, 7002):
        ear = Helper(lab, 'g1', 'knock.py', 'listen', str(port)).ready()
        forge(*({'src': who, 'dst': INSIDE[4], 'port': port} for who in (FORGED[4], '10.3.0.9', OTHERS[4])))
        ear.ask()
        n = ear.answer()
        want = {OTHERS[4]: 20, **({FORGED[4]: 20} if port == 7000 else {})}
        check(n == want, f'to port {port} came in: {n}')
    line.g1.process.send(signal.SIGCONT)


main({f.__name__: f for f in (
    closed_after_kill9, closed_after_a_failed_start, closed_while_the_daemon_is_stopped, closed_while_rules_are_flushed,
    closed_after_sigterm_and_open_after_remove, removed_program_comes_back, vlan_tags_are_no_way_around,
    vlans_are_left_to_their_interfaces, dhcp_answers_reach_the_client, fragments_of_a_passed_port_come_in,
    more_networks_than_room_stay_closed)}, 'inbound')
