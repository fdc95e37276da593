"""A wider world than `Lab.line`: sites, an internet between them, NAT boxes, watchers on the outer links, and rest.

    internet(lab)                             # r, and the site b 10.2.0.2 -- g2 192.0.2.2 -- r
    site(lab, 'g1')                           # a 10.1.0.2 -- g1
    uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100')
    watch = Watch(lab, 'r', 'u1', 'g2')       # counts on both sides of r, in netdev hooks: before any defragmentation
    flow = Flow(lab); ...; flow.end()         # numbered packets both ways
    rest = Rest(lab, us, them); ...; rest.check()

Net 10.N.0.0/24 and fd00:N::/64 is behind gateway gN. Sites: g1 with a, g2 with b, g3 with c.
"""
import json
import os
import re
import subprocess
import sys
import time

from gateway import ESP, IKE, SECRET, IronSwan, program
from lab import HERE, Failed, call, check, need, until
from traffic import begin_together

HOST = {'g1': 'a', 'g2': 'b', 'g3': 'c'}


def number(gateway):
    return gateway[1:]


def inner(gateway, v6=False):
    """The address of the host behind a gateway."""
    return f'fd00:{number(gateway)}::2' if v6 else f'10.{number(gateway)}.0.2'


def net(gateway, v6=False):
    return f'fd00:{number(gateway)}::/64' if v6 else f'10.{number(gateway)}.0.0/24'


def site(lab, gateway, mtu=1500):
    """A gateway and a host behind it."""
    need('ip', 'nft', 'conntrack', 'swanctl', 'charon-systemd', 'ping')
    n, host = number(gateway), HOST[gateway]
    lab.box(host, gateway)
    lab.forward(gateway)
    lab.wire(host, 'eth0', [f'10.{n}.0.2/24', f'fd00:{n}::2/64'], gateway, 'lan', [f'10.{n}.0.1/24', f'fd00:{n}::1/64'])
    for box, dev in ((host, 'eth0'), (gateway, 'lan')):
        lab.ip(box, 'link', 'set', dev, 'mtu', mtu)
    lab.ip(host, 'route', 'add', 'default', 'via', f'10.{n}.0.1')
    lab.ip(host, '-6', 'route', 'add', 'default', 'via', f'fd00:{n}::1')


def v6_of(net4):
    """The IPv6 prefix that goes with an outer IPv4 net of ours, e.g. 192.0.2 -> 2001:db8:192:2."""
    a, _, c = net4.split('.')
    return f'2001:db8:{a}:{c}'


def uplink(lab, box, dev, router, router_dev, net4, host=1, default=True, mtu=1500, up=True):
    """Wires a box to a router: net4.host (and the IPv6 net that goes with it), the router is .254."""
    net6 = v6_of(net4)
    lab.wire(box, dev, [f'{net4}.{host}/24', f'{net6}::{host}/64'], router, router_dev, [f'{net4}.254/24', f'{net6}::fe/64'])
    for where, name in ((box, dev), (router, router_dev)):
        lab.ip(where, 'link', 'set', name, 'mtu', mtu)
    if default:
        lab.ip(box, 'route', 'replace', 'default', 'via', f'{net4}.254')
        lab.ip(box, '-6', 'route', 'replace', 'default', 'via', f'{net6}::fe')


def internet(lab, router='r', gateway='g2', mtu=1500):
    """The internet, and the fixed site at its far end."""
    lab.box(router)
    lab.forward(router)
    site(lab, gateway)
    uplink(lab, gateway, 'wan', router, gateway, '192.0.2', host=2, mtu=mtu)


def connection(name, me, peer, local='%any', remote='%any', ike=IKE, esp=ESP, encap=False, conn='', child='',
               v6_inner=False, local_ts=None, remote_ts=None, child_name='net'):
    """One connection of swanctl.conf, with one child."""
    return f"""
  {name} {{
    version = 2
    mobike = no
    local_addrs = {local}
    remote_addrs = {remote}
    proposals = {ike}
    encap = {'yes' if encap else 'no'}
    {conn}
    local {{
      auth = psk
      id = {me}.example
    }}
    remote {{
      auth = psk
      id = {peer}.example
    }}
    children {{
      {child_name} {{
        local_ts = {local_ts or net(me, v6_inner)}
        remote_ts = {remote_ts or net(peer, v6_inner)}
        esp_proposals = {esp}
        {child}
      }}
    }}
  }}"""


def conf(*connections):
    return f"""connections {{{''.join(connections)}
}}
secrets {{
  ike-1 {{
    secret = "{SECRET}"
  }}
}}
"""


# NAT

def nat(lab, box, outside, ports='20000-29999', timeout=30):
    """Makes a box a NAT: what leaves by `outside` gets its address and a random port of a range."""
    lab.forward(box)
    lab.run(box, 'sysctl', '-qw', *(f'net.netfilter.nf_conntrack_udp_timeout{s}={timeout}' for s in ('', '_stream')))
    # What comes from outside and finds no mapping ends here, without an answer and without leaving a trace in the NAT;
    # a packet for an inside address itself, too: it would make an entry by which the answers leave untranslated.
    lab.run(box, 'nft', 'add table ip mapping; add chain ip mapping in { type filter hook input priority 0; }; '
            f'add rule ip mapping in iifname {outside} meta l4proto udp drop; '
            'add chain ip mapping through { type filter hook forward priority 0; }; '
            f'add rule ip mapping through iifname {outside} ct state new drop')
    remap(lab, box, outside, ports)


def remap(lab, box, outside, ports):
    """Forgets every mapping; new ones come from another range of ports."""
    lab.write(f'{box}.nft', f"""table ip nat {{}}
delete table ip nat
table ip nat {{
  chain post {{
    type nat hook postrouting priority 100
    oifname "{outside}" meta l4proto udp masquerade to :{ports} random
    oifname "{outside}" masquerade
  }}
}}
""")
    lab.run(box, 'sh', '-c', f"nft -f {lab.path(box + '.nft')} && conntrack -F 2>/dev/null")


def mappings(lab, box, inside=None):
    """(inside address, inside port, outside port) of each UDP mapping towards port 4500 or 500."""
    out = lab.run(box, 'sh', '-c', 'conntrack -L -p udp 2>/dev/null')
    found = set()
    for line in out.splitlines():
        m = re.search(r'src=(\S+) dst=\S+ sport=(\d+) dport=(4500|500) .*?src=\S+ dst=\S+ sport=\d+ dport=(\d+)', line)
        if m and (inside is None or m[1] == inside):
            found.add((m[1], int(m[2]), int(m[4])))
    return found


# Watching the outer links

WATCHED = """
table netdev watch_{name} {{
  counter keepalives {{ }}
  counter sealed {{ }}
  counter sent_clear {{ }}
  counter sent_fragments4 {{ }}
  counter sent_fragments6 {{ }}
  counter received_clear {{ }}
  chain from {{
    type filter hook ingress device "{dev}" priority -500
    ip saddr {{ {nets4} }} ip daddr {{ {nets4} }} counter name sent_clear
    ip6 saddr {{ {nets6} }} ip6 daddr {{ {nets6} }} counter name sent_clear
    ip frag-off & 0x3fff != 0 counter name sent_fragments4
    exthdr frag exists counter name sent_fragments6
    udp dport 4500 udp length 9 @th,64,8 0xff counter name keepalives
    meta l4proto esp counter name sealed
    udp dport 4500 udp length > 16 @th,64,32 != 0 counter name sealed
    udp sport 4500 udp dport != 4500 udp length > 16 @th,64,32 != 0 counter name sealed
  }}
  chain to {{
    type filter hook egress device "{dev}" priority 500
    ip saddr {{ {nets4} }} ip daddr {{ {nets4} }} counter name received_clear
    ip6 saddr {{ {nets6} }} ip6 daddr {{ {nets6} }} counter name received_clear
  }}
}}
"""


class Watch:
    """Counts on a router's devices what the gateway at the other end of each wire sends.

    In the netdev hooks a packet is seen as it was on the wire. A gateway's own nft rules and ours never meet.
    """

    def __init__(self, lab, box, *devices):
        self.lab, self.box, self.devices = lab, box, []
        for dev in devices:
            self.attach(dev)

    def attach(self, dev):
        """Begins to watch a device; also again, when the device has been made anew (then before it is set up)."""
        nets = [number(g) for g in HOST]
        text = WATCHED.format(name=dev, dev=dev, nets4=', '.join(f'10.{n}.0.0/24' for n in nets),
                              nets6=', '.join(f'fd00:{n}::/64' for n in nets))
        lab, path = self.lab, self.lab.write(f'watch-{dev}.nft', text)
        before = self.one(dev) if dev in self.devices else {}
        lab.run(self.box, 'nft', 'delete', 'table', 'netdev', f'watch_{dev}', fail=False)
        lab.run(self.box, 'nft', '-f', path)
        self.carried = getattr(self, 'carried', {})
        self.carried[dev] = before
        if dev not in self.devices:
            self.devices.append(dev)

    def one(self, dev):
        done = self.lab.run(self.box, 'nft', '-j', 'list', 'counters', 'table', 'netdev', f'watch_{dev}')
        now = {c['counter']['name']: c['counter']['packets'] for c in json.loads(done)['nftables'] if 'counter' in c}
        carried = getattr(self, 'carried', {}).get(dev, {})
        return {k: v + carried.get(k, 0) for k, v in now.items()}

    def check(self, *ours, fragments=False, probes6=0):
        """No clear packet and no fragment came from our gateways, which are behind these devices.

        `probes6`: so many datagrams may have come in two fragments of IPv6.
        """
        for dev in ours:
            seen = self.one(dev)
            check(seen['sealed'] > 0, f"{dev}: {seen['sealed']} ESP packets seen, so the watcher watches")
            check(seen['sent_clear'] == 0, f"{dev}: {seen['sent_clear']} packets of protected traffic in clear")
            if not fragments:
                check(seen['sent_fragments4'] == 0 and seen['sent_fragments6'] in range(0, 2 * probes6 + 1, 2),
                      f"{dev}: {seen['sent_fragments4']} IPv4 and {seen['sent_fragments6']} IPv6 fragments on the outer link")


# Traffic

class Flow:
    """Numbered packets both ways between the hosts of two sites; `end()` gives a report for each way."""

    def __init__(self, lab, left='g1', right='g2', rate=200, size=100, v6=False, port=7000):
        self.rate, self.ends = rate, {}
        for gateway, other in ((right, left), (left, right)):
            box = HOST[gateway]
            self.ends[box] = lab.spawn(box, sys.executable, os.path.join(HERE, 'numbered.py'), inner(gateway, v6),
                                       inner(other, v6), '--rate', rate, '--size', size, '--port', port, '--linger', 0.5,
                                       name='numbered', stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        begin_together(self.ends.values())

    def end(self):
        for end in self.ends.values():
            end.popen.stdin.close()
        reports = {box: json.loads(end.popen.stdout.readline()) for box, end in self.ends.items()}
        for end in self.ends.values():
            end.popen.wait()
        (right, at_right), (left, at_left) = reports.items()
        return {f'{left} to {right}': {**at_right, 'sent': at_left['sent'], 'lost': at_left['sent'] - at_right['received']},
                f'{right} to {left}': {**at_left, 'sent': at_right['sent'], 'lost': at_right['sent'] - at_left['received']}}


class Stream:
    """One TCP stream from the host of one site to that of another, for as long as it is not ended."""

    def __init__(self, lab, frm='g1', to='g2', v6=False, port=7002):
        self.sink = self._end(lab, to, 'sink', inner(to, v6), port)
        self.source = self._end(lab, frm, 'source', inner(to, v6), port)
        self.way = f'{HOST[frm]} to {HOST[to]}'

    @staticmethod
    def _end(lab, gateway, role, address, port):
        end = lab.spawn(HOST[gateway], sys.executable, os.path.join(HERE, 'stream.py'), role, address, port,
                        name=f'stream-{role}', stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if end.popen.stdout.readline() != 'ready\n':
            raise Failed(f'the TCP {role} did not start: {end.log()}')
        return end

    def since(self):
        """What happened since the last time this was asked: what arrived, the longest pause, what was sent again."""
        found = {}
        for end in (self.source, self.sink):
            end.popen.stdin.write('?\n')
            end.popen.stdin.flush()
            line = end.popen.stdout.readline()
            if not line:
                raise Failed(f'{self.way}: the TCP stream broke off: {end.log()}')
            found.update(json.loads(line))
        return found

    def end(self):
        for end in (self.source, self.sink):
            end.popen.stdin.close()
            end.popen.wait()


def check_flow(report, what, bound, lost=None, rate=200):
    """Nothing doubled or changed, and no direction silent for longer than `bound` seconds: so many packets may be lost."""
    for way, r in report.items():
        most = lost if lost is not None else int(bound * rate) + 1
        gap = (r['longest_gap_ms'] or 0) / 1e3
        text = (f"{what}: {way}: {r['sent']} sent, {r['lost']} lost (at most {most}), silent for {gap:.2f} s at the "
                f"longest (at most {bound:.2f} s)")
        if r['duplicates'] or r['corrupt']:
            text += f"; {r['duplicates']} twice, {r['corrupt']} corrupt"
        check(r['received'] > 0 and r['lost'] <= most and gap <= bound and not r['duplicates'] and not r['corrupt'], text)


def pings(lab, frm='g1', to='g2', v6=False, size=56, count=2, wait=2, whole=True):
    """True when every echo comes back. `whole`: with DF, so that the packet is not cut on the way."""
    done = lab.run(HOST[frm], 'ping', '-n', '-q', '-c', count, '-i', '0.2', '-W', wait, '-s', size,
                   *(['-M', 'do'] if whole else []), inner(to, v6), fail=False, timeout=count * (wait + 1) + 10)
    return ' 0% packet loss' in done.stdout


def answered(lab, frm='g1', to='g2', count=3):
    """How many of `count` echoes come back."""
    done = lab.run(HOST[frm], 'ping', '-n', '-q', '-c', count, '-i', '0.2', '-W', '1', inner(to), fail=False)
    return int(re.search(r'(\d+) received', done.stdout)[1])


def flows_again(lab, frm='g1', to='g2', timeout=10, v6=False):
    """Waits until one echo comes back; how long that took, in seconds."""
    began = time.monotonic()
    until(f'an echo from {HOST[frm]} to {HOST[to]}',
          lambda: pings(lab, frm, to, v6, count=1, wait=0.3), timeout, interval=0.1)
    return time.monotonic() - began


# Rest

def installed(sa):
    return [c for c in sa.get('child-sas', {}).values() if c['state'] == 'INSTALLED']


def paired(us, them, conn, their_conn):
    """Each side has one IKE_SA and one CHILD_SA of the connection, and they are the same two; else why not."""
    views = []
    for gateway, name in ((us, conn), (them, their_conn)):
        sas = [sa for sa in gateway.sas() if sa['name'] == name]
        children = [c for sa in sas for c in sa.get('child-sas', {}).values()]
        if len(sas) != 1 or len(children) != 1 or sas[0]['state'] != 'ESTABLISHED' or children[0]['state'] != 'INSTALLED':
            return None, (f"{gateway.kind} in {gateway.box} has IKE_SAs {[sa['state'] for sa in sas]}, "
                          f"CHILD_SAs {[c['state'] for c in children]}")
        views.append(((sas[0]['initiator-spi'], sas[0]['responder-spi']), (children[0]['spi-in'], children[0]['spi-out'])))
    (ike, child), (their_ike, their_child) = views
    if ike != their_ike or child != their_child[::-1]:
        return None, f'the two sides hold different SAs: {views}'
    return views[0], ''


def pair_at_rest(us, them, conn='net', their_conn=None, timeout=15):
    """Waits until both sides hold exactly the same one IKE_SA and one CHILD_SA."""
    end = time.monotonic() + timeout
    while True:
        found, why = paired(us, them, conn, their_conn or conn)
        if found:
            check(True, f'one IKE_SA and one CHILD_SA on both sides of {us.box}-{them.box}, the same two')
            return found
        if time.monotonic() > end:
            check(False, f'one IKE_SA and one CHILD_SA on both sides of {us.box}-{them.box}: {why}')
        time.sleep(0.1)


def kernel(lab, box):
    """What IronSwan has told the kernel, as text that is equal when nothing was added or left behind."""
    parts = []
    for args in (('rule',), ('-6', 'rule'), ('route', 'show', 'table', '220'), ('-6', 'route', 'show', 'table', '220')):
        done = lab.run(box, 'ip', *args, fail=False)
        # The MTU is the path's, and that is another test's subject; IPv6 says how long a route is cached.
        parts += sorted(re.sub(r' (mtu lock|mtu|expires) \d\S*', '', line).strip() for line in done.stdout.splitlines()
                        if 'FIB table does not exist' not in line)
    parts += sorted(line.split()[1] for line in lab.run(box, 'ip', '-o', 'link').splitlines() if 'ipsec' in line)
    done = lab.run(box, 'nft', '-s', 'list', 'table', 'inet', 'ironswan', fail=False)
    parts += [line for line in done.stdout.splitlines() if done.returncode == 0 and 'packets' not in line]
    return parts


def status_of(process, *names):
    with open(f'/proc/{process.pid}/status') as f:
        found = dict(line.split(':', 1) for line in f)
    return [int(found[n].split()[0]) for n in names]


class Rest:
    """What a gateway of ours holds while nothing happens; afterwards it must hold the same again.

    Memory: 4 MiB more are tolerated, which is what glibc's arenas and the pages of a first rekeying, first error message
    or first re-establishment touch once (the daemon has 9 MiB); a leak shows over the rounds of the long runs, and in
    the file of soak tests. Threads: those that compute key exchanges end after 5 s without work.
    """

    MEMORY = 4096

    def __init__(self, lab, *gateways):
        self.lab = lab
        self.ours = [g for g in gateways if isinstance(g, IronSwan)]
        self.before = {g.box: (kernel(lab, g.box), *status_of(g.process, 'VmRSS', 'Threads')) for g in self.ours}

    def check(self):
        for g in self.ours:
            state, rss, threads = self.before[g.box]
            try:
                until('the kernel holds the same', lambda: kernel(self.lab, g.box) == state, 5)
            except Failed:
                now = kernel(self.lab, g.box)
                more, less = [x for x in now if x not in state], [x for x in state if x not in now]
                check(False, f'{g.box}: rules, routes, nft and devices are what they were: added {more}, gone {less}')
            check(True, f'{g.box}: rules, routes, nft and devices are what they were ({len(state)} lines)')
            until(f'{g.box}: threads back to {threads}', lambda: status_of(g.process, 'Threads')[0] <= threads, 12)
            now = status_of(g.process, 'VmRSS')[0]
            check(now <= rss + self.MEMORY, f'{g.box}: {now} KiB resident, {rss} before; at most {threads} threads')
            balance(g)


def counters(gateway):
    return json.loads(call(program(), 'list', 'counters', '--json', '--vici', f'unix://{gateway.socket}'))


def balance(gateway):
    """Invariant 4: packets in + made = sent + delivered + absorbed + held + dropped."""
    end = time.monotonic() + 2
    while True:
        c = counters(gateway)
        p = c['packets']
        lost = {way: sum(n for name, n in c['drops'].items() if name.startswith(way)) for way in ('In', 'Out')}
        out = (p['out-frames'] + p['out-made'] + p['out-dummies'],
               p['out-sent'] + p['out-absorbed'] + p['held'] + lost['Out'])
        into = p['in-packets'], p['in-writes'] + p['in-merged'] + p['in-dummies'] + p['in-held'] + lost['In']
        if out[0] == out[1] and into[0] == into[1] or time.monotonic() > end:
            break
        time.sleep(0.1)
    check(out[0] == out[1] and into[0] == into[1],
          f"{gateway.box}: the counters add up: out {out[0]} = {p['out-sent']} sent + {p['held']} held + {lost['Out']} dropped"
          f"{'' if out[0] == out[1] else ' (NOT)'}, in {into[0]} = {into[1] - lost['In']} delivered + {lost['In']} dropped"
          f"{'' if into[0] == into[1] else ' (NOT)'}")


def drops(gateway):
    """The drop reasons that are not zero."""
    return {k: v for k, v in counters(gateway)['drops'].items() if v}
