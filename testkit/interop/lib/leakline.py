"""The line on which leaks are looked for, with a router in the middle and sniffers on both of its links.

    a 10.1.0.2 -- lan g1 wan -- west r east -- wan g2 lan -- b 10.2.0.2
                     192.0.2.0/24    198.51.100.0/24

The router knows the inner networks: what leaks arrives, is answered, and can be counted. `Line` makes the boxes and
starts the gateways, `Watch` runs the load and the sniffers and judges every packet from its start to its end, phase by
phase and without gaps between them.
"""
import json
import os
import subprocess
import sys
import time

from gateway import SECRET, IronSwan, dropped_inbound
from lab import HERE, Failed, call, check, say, until

G1, G2 = {4: '192.0.2.1', 6: '2001:db8:1::1'}, {4: '198.51.100.2', 6: '2001:db8:2::2'}
HOLE = {4: '203.0.113.1', 6: '2001:db8:f::1'}
# What the NAT of `Line(nat=True)` makes host b of.
PUBLIC = {4: '203.0.113.77'}
A, B = {4: '10.1.0.2', 6: 'fd00:1::2'}, {4: '10.2.0.2', 6: 'fd00:2::2'}
INSIDE = {4: '10.1.0.1', 6: 'fd00:1::1'}
INNER = ['10.0.0.0/8', 'fd00::/8']
RATE = 1000
EVERY = ('udp', 'icmp', 'syn', 'live')
SHUNTS = ('pass', 'drop')
SITES = {'local_ts': '10.1.0.0/24,fd00:1::/64', 'remote_ts': '10.2.0.0/24,fd00:2::/64'}
BOXES = {
    'a': {'eth0': '10.1.0.2/24 10.1.0.66/24 fd00:1::2/64 fd00:1::66/64'},
    'g1': {'lan': '10.1.0.1/24 fd00:1::1/64', 'wan': '192.0.2.1/24 2001:db8:1::1/64'},
    'r': {'west': '192.0.2.254/24 2001:db8:1::254/64', 'east': '198.51.100.254/24 2001:db8:2::254/64',
          'lo': '203.0.113.1/32 2001:db8:f::1/128'},
    'g2': {'wan': '198.51.100.2/24 2001:db8:2::2/64', 'lan': '10.2.0.1/24 fd00:2::1/64'},
    'b': {'eth0': '10.2.0.2/24 10.3.0.2/24 198.18.0.1/32 fd00:2::2/64 fd00:3::2/64 2001:db8:18::1/128'},
}
ROUTES = {
    'a': ('default via 10.1.0.1', 'default via fd00:1::1'),
    'g1': ('default via 192.0.2.254', 'default via 2001:db8:1::254'),
    'r': ('10.1.0.0/16 via 192.0.2.1', 'fd00:1::/64 via 2001:db8:1::1', '10.2.0.0/15 via 198.51.100.2',
          'fd00:2::/63 via 2001:db8:2::2', '198.18.0.1 via 198.51.100.2', '2001:db8:18::1 via 2001:db8:2::2'),
    'g2': ('default via 198.51.100.254', 'default via 2001:db8:2::254', '10.3.0.0/24 dev lan', 'fd00:3::/64 dev lan',
           '198.18.0.1 via 10.2.0.2', '2001:db8:18::1 via fd00:2::2'),
    'b': ('default via 10.2.0.1', 'default via fd00:2::1'),
}


def kinds(protos=EVERY, sources=('a', 'bound', 'unbound'), families=(4, 6), to=B, first=1, name='', src=A, size=32):
    """Kinds of load packets: host a, g1 from its inside address, g1 from sockets that are not bound."""
    result = []
    for family in families:
        for source in sources:
            for proto in protos:
                number = first + len(result)
                result.append({
                    'id': number, 'name': f"{name}{' ' * bool(name)}{source} {proto}{family}", 'proto': proto,
                    'box': 'a' if source == 'a' else 'g1', 'dst': to[family], 'port': 7100 + number, 'size': size,
                    'src': {'a': src[family], 'bound': INSIDE[family], 'unbound': None}[source]})
    return result


def block(name, body, indent=''):
    """A section of swanctl.conf from nested dicts."""
    lines = [f'{indent}{name} {{']
    for key, value in body.items():
        lines += [block(key, value, indent + '  ')] if isinstance(value, dict) else [f'{indent}  {key} = {value}']
    return '\n'.join([*lines, indent + '}'])


def config(box, children, outer=4, encap=False, more=None):
    """swanctl.conf of a gateway: connection `net` to the other one; `more`: further connections."""
    mine, theirs = (G1, G2) if box == 'g1' else (G2, G1)
    other = 'g2' if box == 'g1' else 'g1'
    if box == 'g2':
        # The other way round, and nothing begins here.
        children = {n: {**c, 'local_ts': c['remote_ts'], 'remote_ts': c['local_ts'],
                        'start_action': 'trap' if c.get('mode') in SHUNTS else 'none'} for n, c in children.items()}
    conn = {
        'version': 2, 'local_addrs': mine[outer], 'remote_addrs': theirs[outer], 'encap': 'yes' if encap else 'no',
        'proposals': 'aes128gcm16-prfsha256-x25519', 'local': {'auth': 'psk', 'id': f'{box}.example'},
        'remote': {'auth': 'psk', 'id': f'{other}.example'},
        'children': {n: c if c.get('mode') in SHUNTS or 'ah_proposals' in c else {'esp_proposals': 'aes128gcm16', **c}
                     for n, c in children.items()}}
    return '\n'.join([block('connections', {'net': conn, **(more or {})}),
                      block('secrets', {'ike-1': {'secret': f'"{SECRET}"'}}), ''])


class Line:
    """Boxes, links and the two gateways."""

    def __init__(self, lab, children=None, outer=4, encap=False, settings='', nat=False, guard=True):
        self.lab, self.outer, self.encap, self.settings = lab, outer, encap, settings
        self.children = children or {'net': {**SITES, 'start_action': 'start'}}
        if not guard:
            self.children = {n: {**c, 'guard': 'no'} for n, c in self.children.items()}
        lab.box(*BOXES)
        lab.forward('g1', 'r', 'g2')
        for left, ldev, right, rdev in (('a', 'eth0', 'g1', 'lan'), ('g1', 'wan', 'r', 'west'),
                                        ('r', 'east', 'g2', 'wan'), ('g2', 'lan', 'b', 'eth0')):
            call('ip', 'link', 'add', ldev, 'netns', lab.ns(left), 'type', 'veth',
                 'peer', 'name', rdev, 'netns', lab.ns(right))
        for box in BOXES:
            # Errors are part of what is looked for; a limit on them would hide some.
            lab.run(box, 'sysctl', '-qw', 'net.ipv4.icmp_ratelimit=0', 'net.ipv6.icmp.ratelimit=0')
            if box != 'g1':
                self.up(box)
        if nat:
            # What every gateway of a small site has.
            self.nft('add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; '
                     'add rule ip nat post oifname "wan" masquerade; '
                     'add chain ip nat pre { type nat hook prerouting priority -100; }; '
                     f'add rule ip nat pre ip daddr {PUBLIC[4]} dnat to {B[4]}')
        self.g1, self.g2 = IronSwan(lab, 'g1'), IronSwan(lab, 'g2')

    def batch(self, box, *commands):
        """`ip` commands in a box."""
        call('ip', '-n', self.lab.ns(box), '-batch', '-', input='\n'.join(commands) + '\n')

    def up(self, box):
        """Addresses, links and routes of a box: the network coming up."""
        links = [f"addr add {addr} dev {dev}{' nodad' if ':' in addr else ''}"
                 for dev, addrs in BOXES[box].items() for addr in addrs.split()]
        links += [f'link set {dev} up' for dev in BOXES[box]]
        self.batch(box, *links, *(f'route add {r}' for r in ROUTES[box]))

    def up_again(self, box):
        """What a link that went down has lost."""
        devices = [d for d in BOXES[box] if d != 'lo']
        self.batch(box, *(f'link set {d} up' for d in devices))
        lost = [(a, d) for d in devices for a in BOXES[box][d].split() if ':' in a]
        self.batch(box, *(f'addr replace {a} dev {d} nodad' for a, d in lost),
                   *(f'route replace {r}' for r in ROUTES[box]))

    def ip(self, *args, fail=True):
        """`ip` in g1."""
        return call('ip', '-n', self.lab.ns('g1'), *args, fail=fail)

    def nft(self, commands, fail=True):
        return self.lab.run('g1', 'nft', commands, fail=fail)

    def text(self, box, children=None, more=None):
        return config(box, children or self.children, self.outer, self.encap, more)

    def start_g2(self):
        # This one always guards: what leaks is g1's.
        guarded = {n: {k: v for k, v in c.items() if k != 'guard'} for n, c in self.children.items()}
        self.g2.start(self.text('g2', guarded))

    def start_g1(self, more=None, wait=True):
        self.g1.start(self.text('g1', more=more), settings=self.settings, wait=wait)

    def initiate(self):
        """Every child that has SAs, from g1."""
        for name in self.tunnels():
            self.g1.initiate(name)

    def rekey(self, what):
        """The IKE_SA or every child, and waits until none of the old SAs is there."""
        spis = self.g1.ike_spis if what == 'ike' else self.g1.child_spis
        old = spis()
        for name in ['net'] if what == 'ike' else self.tunnels():
            self.g1.swanctl('--rekey', f'--{what}', name)
        until(f'{what} rekeyed (was {old})', lambda: len(now := spis()) == len(old) and not now & old, 20)

    def tunnels(self):
        return [n for n, c in self.children.items() if c.get('mode') not in SHUNTS]

    def write_g1(self, text):
        """What the next SIGHUP reads."""
        self.lab.write('g1-etc/swanctl.conf', text)

    def mac(self, box, device):
        return self.lab.run(box, 'cat', f'/sys/class/net/{device}/address').strip()

    def table(self):
        """The guard's table as nft shows it; empty when it is not there."""
        done = self.nft('list table inet ironswan', fail=False)
        return done.stdout if done.returncode == 0 else ''

    def counters(self):
        """The guard's own counters of g1, or None when its table is not there."""
        done = self.lab.run('g1', 'nft', '-j', 'list', 'table', 'inet', 'ironswan', fail=False)
        if done.returncode != 0:
            return None
        items = [i['counter'] for i in json.loads(done.stdout)['nftables'] if 'counter' in i]
        # What comes in clear is dropped where it arrives, before the table sees it.
        return {**{c['name']: c['packets'] for c in items}, 'in_clear': dropped_inbound(self.lab, 'g1')}


class Helper:
    """A program of ours that answers a line with a JSON object."""

    def __init__(self, lab, box, *args):
        self.process = lab.spawn(box, sys.executable, os.path.join(HERE, args[0]), *args[1:], name=args[0],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ready(self):
        if self.process.popen.stdout.readline() != 'ready\n':
            raise Failed(f'a helper did not start: {self.process.argv}: {self.process.log()}')
        return self

    def ask(self, line='cut'):
        self.process.popen.stdin.write(line + '\n')
        self.process.popen.stdin.flush()

    def answer(self):
        text = self.process.popen.stdout.readline()
        if not text:
            raise Failed(f'a helper ended: {self.process.argv}: {self.process.log()}')
        return json.loads(text)


def kind_of(key):
    """The load's name for what the sniffer has seen."""
    return key.split(' | ')[0].removeprefix('error about ').removesuffix(' (inner)')


class Report:
    """What happened between two cuts."""

    def __init__(self, loads, sniffed, counters, before):
        self.kinds = {name: counts for load in loads for name, counts in load['kinds'].items()}
        self.sent, self.refused, self.answered = (sum(c[i] for c in self.kinds.values()) for i in range(3))
        self.encrypted = sniffed['encrypted'].get('west', 0)
        self.clear, self.last, self.examples, self.other = (sniffed[k] for k in ('clear', 'last', 'examples', 'other'))
        self.counters = counters
        self.dropped = None if counters is None else counters.get('out_clear', 0) - (before or {}).get('out_clear', 0)
        if self.dropped is not None and self.dropped < 0:
            # The table was made anew in between.
            self.dropped = counters['out_clear']

    def leaks(self, allowed=(), outer=()):
        """Clear packets but those of the kinds that are meant to be clear, or to be when an address is an outer one."""
        return {k: n for k, n in self.clear.items()
                if kind_of(k) not in allowed and ('(inner)' in k or kind_of(k) not in outer)}

    def clear_kinds(self):
        """The kinds that came out of g1 in clear."""
        return {kind_of(k) for k in self.clear if k.endswith('| from west') and not k.startswith('error')}


class Watch:
    """The load and the judgement."""

    def __init__(self, line, load, allowed=(), nets=INNER, guarded=True, echo=('b', 'r', 'g1', 'g2'), rate=RATE):
        self.line, self.load, self.guarded = line, load, guarded
        # Kinds that may be clear, and those that may only with an outer address.
        self.allowed = {k['name'] for k in load if k['name'].startswith(tuple(allowed))} if allowed else set()
        self.outer = set()
        control = {'g1': {'device': 'wan', 'mac': line.mac('r', 'west')},
                   'g2': {'device': 'wan', 'mac': line.mac('r', 'east')}}
        spec = line.lab.write('load.json', json.dumps({
            'rate': rate, 'kinds': load, 'control': control, 'nets': nets,
            'outer': [*G1.values(), *G2.values()]}))
        self.sniffer = Helper(line.lab, 'r', 'sniff.py', spec, 'west', 'east')
        answering = [Helper(line.lab, box, 'trafficmix.py', 'echo', spec) for box in echo]
        for helper in (self.sniffer, *answering):
            helper.ready()
        more = ['b'] if any(k['box'] == 'b' for k in load) else []
        self.loads = [Helper(line.lab, box, 'trafficmix.py', 'load', spec, box) for box in ('a', 'g1', 'g2', *more)]
        for helper in self.loads:
            helper.ready()
        # Large datagrams cross in fragments, if they do; what counts is that they do not in clear.
        # Nor is an ICMP message answered that is no echo.
        self.quiet = {k['name'] for k in load if k['size'] > 1000 or 'type' in k}
        # Control packets that may be lost on the wire, with an interface that is taken away under them.
        self.excused = 0
        self.before = line.counters()
        self.total = {'sent': 0, 'refused': 0, 'encrypted': 0, 'clear': 0, 'frames': 0, 'control': 0, 'dropped': 0}

    def cut(self, how='cut'):
        """A report since the last cut. Nothing is left out between two of them."""
        for load in self.loads:
            load.ask(how)
        loads = [load.answer() for load in self.loads]
        time.sleep(0.03)
        self.sniffer.ask(json.dumps({f'box {box}': load['control'] for box, load in zip((1, 2), loads[1:3])}))
        sniffed = self.sniffer.answer()
        counters = self.line.counters()
        report = Report(loads, sniffed, counters, self.before)
        self.before = counters
        # The proof that this report is whole.
        for box, load in zip((1, 2), loads[1:3]):
            seen = sniffed['next'].get(f'box {box}', 0)
            if seen + self.excused < load['control'] or sniffed['control_missing'] > self.excused or sniffed['dropped']:
                raise Failed(f"the sniffer is blind: g{box} sent {load['control']} control packets, {seen} is the last "
                             f"seen, {sniffed['control_missing']} missing; the kernel dropped {sniffed['dropped']}")
        self.total['control'] = sum(sniffed['control'].values())
        self.total['frames'] += sniffed['frames']
        for key in ('sent', 'refused', 'encrypted'):
            self.total[key] += getattr(report, key)
        self.total['clear'] += sum(report.leaks(self.allowed, self.outer).values())
        self.total['dropped'] += report.dropped or 0
        return report

    def judge(self, name, report, began=None, grace='', must=None):
        """Says what a phase was, and fails on a leak. Until one second after `began` there may be some: all, or packets
        with an outer address of kinds with `grace` in their name."""
        leaks = report.leaks(self.allowed, self.outer)
        count = sum(leaks.values())
        guard = 'no guard' if report.dropped is None else f'{report.dropped} dropped by the guard'
        text = (f'{name}: {report.sent} sent, {report.refused} refused, {report.answered} answered, {report.encrypted} '
                f'encrypted frames, {guard}, {count} clear')
        if self.allowed or self.outer:
            text += f', {sum(report.clear.values()) - count} clear as meant'
        graced = {k: n for k, n in leaks.items() if began and (not grace or grace in k and '(inner)' not in k)}
        if graced:
            after = max(report.last[k] for k in graced) - began
            whose = f' of {grace} sockets, from the outer address' if grace else ''
            worst = max(graced, key=graced.get)
            text += f' ({sum(graced.values())}{whose}, the last {after * 1000:.1f} ms after, as {worst})'
            if after <= 1.0:
                leaks = {k: n for k, n in leaks.items() if k not in graced}
        if not self.guarded:
            check(must is None or bool(must(report)), text)
            return report
        if leaks:
            for key, n in sorted(leaks.items(), key=lambda i: -i[1])[:12]:
                say(f'       clear: {n} x {key}: {report.examples[key]}')
        check(not leaks and (must is None or bool(must(report))), text)
        return report

    def phase(self, name, action=None, hold=1.0, grace=None, must=None):
        """Does something and watches for a while; `grace` as `judge` takes it."""
        began = time.time()
        if action:
            action()
        time.sleep(hold)
        return self.judge(name, self.cut(), None if grace is None else began, grace or '', must)

    def no_excuse(self):
        """Connections that have got an outer address meanwhile end, and nothing is excused any more."""
        for how in ('fresh', 'cut'):
            self.judge('connections with an outer address closed', self.cut(how))
            time.sleep(0.1)
        self.outer = set()

    def flows(self, name='traffic flows', timeout=15, but=(), protocols=('udp', 'icmp')):
        """Waits until every kind of UDP and ICMP, or of `protocols`, is answered and packets leave encrypted; judges all of the
        while."""
        wanted = {k['name'] for k in self.load if k['proto'] in protocols} - set(but) - self.quiet
        end = time.monotonic() + timeout
        began = time.monotonic()
        while True:
            time.sleep(0.2)
            report = self.cut()
            self.check_quietly(name, report)
            silent = {k for k in wanted if not report.kinds[k][2]}
            if not silent and report.encrypted:
                check(True, f'{name} after {time.monotonic() - began:.1f} s ({report.encrypted} encrypted of late)')
                return report
            if time.monotonic() > end:
                raise Failed(f'{name}: not within {timeout} s: no answer to {sorted(silent)}; '
                             f'{report.encrypted} encrypted')

    def check_quietly(self, name, report):
        if self.guarded and report.leaks(self.allowed, self.outer):
            self.judge(name, report)

    def end(self):
        t = self.total
        check(t['frames'] > 0 and t['control'] > 0 and t['sent'] > 0,
              f"in all: {t['sent']} sent and {t['refused']} refused, {t['frames']} frames seen on both links and none "
              f"missed ({t['control']} control packets, 0 missing, 0 dropped by the kernel), "
              f"{t['encrypted']} encrypted, {t['clear']} clear")
