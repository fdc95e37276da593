#!/usr/bin/env python3
"""What a tunnel does with the packets it carries, as seen on the wire: DSCP, ECN, DF, padding, dummies, MSS, large datagrams, limits.

usage: testkit/interop/run [--full] carry[.TEST]
    a 10.1.0.2 -- g1 198.51.100.1 -- u1 r g2 -- 192.0.2.2 g2 -- b 10.2.0.2      IPv6: fd00:N::2, 2001:db8:198:100::1, 2001:db8:192:2::2
Frames are taken from r's links, with raw ESP wherever nothing else is said.
"""
import base64
import glob
import json
import os
import random
import re
import struct
import subprocess
import sys
import time

from gateway import Charon, IronSwan, program
from lab import REPO, Failed, check, main, need, until
from traffic import Numbered, check_no_loss
from wan import conf, connection, counters, inner, internet, net, pings, site, uplink

OUTER = {False: {'g1': '198.51.100.1', 'g2': '192.0.2.2'},
         True: {'g1': '2001:db8:198:100::1', 'g2': '2001:db8:192:2::2'}}
PEER = {'g1': 'g2', 'g2': 'g1'}

# Frames of a device from this side's point of view; a line on standard input asks for what came since the last one.
TAP = '''
import base64, json, select, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
s.bind((sys.argv[1], 3))
s.setblocking(False)
print('ready', flush=True)
frames = []
def drain():
    while True:
        try:
            frame, address = s.recvfrom(2000)
        except BlockingIOError:
            return
        frames.append([address[2] == 4, base64.b64encode(frame[14:]).decode()])
while True:
    for source in select.select([s, sys.stdin], [], [])[0]:
        drain()
        if source is sys.stdin:
            if not sys.stdin.readline():
                sys.exit()
            print(json.dumps(frames), flush=True)
            frames = []
'''


class Packet:
    """An IP packet as it was on a link, and its transport's bytes."""

    def __init__(self, data):
        self.data, self.v6 = data, data[0] >> 4 == 6
        if self.v6:
            self.tos, self.protocol, self.at = (struct.unpack_from('!H', data)[0] >> 4) & 255, data[6], 40
            self.length, self.df, self.more, self.offset, self.id = 40 + struct.unpack_from('!H', data, 4)[0], True, False, 0, 0
        else:
            self.tos, self.protocol, self.at = data[1], data[9], 4 * (data[0] & 15)
            self.length, self.id, fragment = struct.unpack_from('!HHH', data, 2)
            self.df, self.more, self.offset = bool(fragment & 0x4000), bool(fragment & 0x2000), 8 * (fragment & 0x1fff)

    def __repr__(self):
        return f'protocol {self.protocol}, {self.length} bytes, DF {self.df}, MF {self.more}, offset {self.offset}, TOS {self.tos:#x}'


class Tap:
    def __init__(self, lab, box, device):
        self.process = lab.spawn(box, sys.executable, '-c', TAP, device, name='tap', stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        if self.process.popen.stdout.readline() != 'ready\n':
            raise Failed(f'the tap on {device} did not start: {self.process.log()}')

    def take(self, outgoing=False, protocol=None):
        """IP packets since the last call that came from the device's other end, or left by it."""
        self.process.popen.stdin.write('\n')
        self.process.popen.stdin.flush()
        frames = json.loads(self.process.popen.stdout.readline())
        packets = [Packet(p) for way, data in frames if way == outgoing and (p := base64.b64decode(data)) and p[0] >> 4 in (4, 6)]
        return [p for p in packets if protocol is None or p.protocol == protocol]


ESP = 50


def world(lab, peer=IronSwan):
    need('ip', 'nft', 'swanctl', 'ping')
    internet(lab)
    site(lab, 'g1')
    uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100')
    return IronSwan(lab, 'g1').start(), peer(lab, 'g2').start()


def text(me, child='', v6_outer=False, v6_inner=False, **more):
    outer = OUTER[v6_outer]
    return conf(connection('net', me, PEER[me], outer[me], outer[PEER[me]], v6_inner=v6_inner, child=child, **more))


def up(gateways, child='', **more):
    """Both ends with these keys of the child, the tunnel up."""
    if gateways[0].sas():
        gateways[0].swanctl('--terminate', '--ike', 'net')
        until('both ends are clean', lambda: not any(g.sas() for g in gateways))
    for g in gateways:
        g.load(text(g.box, child, **more))
    gateways[0].initiate()


def echo(lab, *args, frm='a', to=inner('g2'), lost=0, count=1):
    done = lab.run(frm, 'ping', '-n', '-q', '-c', count, '-i', '0.01', '-W', '2', *args, to, fail=False)
    got = int((re.search(r'(\d+) received', done.stdout) or [0, 0])[1])
    if count - got > lost:
        raise Failed(f'ping {args} to {to}: {got} of {count} came back')


def names(gateway, *path):
    found = counters(gateway)
    for name in path:
        found = found[name]
    return int(found)


def dscp_and_ecn_follow_the_keys(lab, full):
    """DSCP and ECN: copied, set, copied in, and not."""
    gateways = world(lab)
    wire, far = Tap(lab, 'r', 'u1'), Tap(lab, 'b', 'eth0')
    lab.run('r', 'nft', 'add table ip marks; add chain ip marks f { type filter hook forward priority 0; }')

    def seen(tos, v6):
        to = inner('g2', v6)
        wire.take(), far.take()
        echo(lab, '-Q', tos, to=to)
        out = [p.tos for p in wire.take(protocol=ESP)]
        arrived = [p.tos for p in far.take(protocol=58 if v6 else 1) if p.data[p.at] in (8, 128)]
        return out[0], arrived[0]
    # Keys, TOS inside; outside: copied, of the gateway; on arrival when the network makes it CS5 and CE.
    ef_ect, cs5_ce, af31 = 0xba, 0xa3, 0x68
    for v6 in (False, True) if full else (False,):
        for keys, outer, arrived in (
                ('', ef_ect, 0xbb), ('copy_dscp = no', 0x02, 0xbb), ('dscp = af31', af31 | 2, 0xbb),
                ('copy_dscp = in', 0x02, cs5_ce), ('copy_dscp = yes', ef_ect, cs5_ce),
                ('copy_ecn = no', 0xb8, ef_ect), ('copy_ecn = no\n dscp = 26\n copy_dscp = no', af31, ef_ect)):
            up(gateways, keys, v6_inner=v6)
            what = f"{'IPv6' if v6 else 'IPv4'} inside, {' '.join(keys.split()) or 'nothing said'}"
            got = seen(ef_ect, v6)
            # DSCP that is copied in is what the other end's keys made of it outside.
            came = outer | 2 if 'in' in keys or 'yes' in keys else ef_ect
            check(got == (outer, came), f'{what}: EF and ECT(0) inside: outside {got[0]:#04x}, arrived as {got[1]:#04x}')
            lab.run('r', 'nft', 'add rule ip marks f ip protocol esp ip dscp set cs5; add rule ip marks f ip protocol esp ip ecn set ce')
            got = seen(ef_ect, v6)
            lab.run('r', 'nft', 'flush chain ip marks f')
            check(got == (outer, arrived), f'{what}: outside made CS5 and CE: arrived as {got[1]:#04x}')
    # RFC 6040 section 4.2: a mark that the inner packet cannot take is a loss that its sender notices.
    up(gateways)
    lab.run('r', 'nft', 'add rule ip marks f ip protocol esp ip ecn set ce')
    far.take(), wire.take()
    echo(lab, '-Q', '0', lost=1)
    sent, arrived = wire.take(protocol=ESP), far.take(protocol=1)
    check(len(sent) == 1 and not arrived, 'CE outside of a packet that knows no ECN: dropped')
    echo(lab, '-Q', '2')
    check(far.take(protocol=1), 'and of one that does: taken')


def df_is_outside_and_packets_fit(lab, full):
    """DF is outside, and packets fit; with `copy_df = no` what does not fit is sealed whole and cut outside."""
    gateways = world(lab)
    wire = Tap(lab, 'r', 'u1')
    up(gateways)
    echo(lab, '-s', '1000')
    seen = wire.take(protocol=ESP)
    check(seen and all(p.df for p in seen), f'as it is by itself: {seen}')
    check(not pings(lab, size=1472, count=1, wait=1), '1,500 bytes with DF do not pass')
    # What a was told is forgotten.
    lab.ip('a', 'route', 'flush', 'cache')
    up(gateways, 'copy_df = no')
    for size in (500, 1472):
        wire.take()
        check(pings(lab, size=size, count=5), f'copy_df = no: {size + 28} bytes with DF pass, and come back')
        seen = wire.take(protocol=ESP)
        first, later = [p for p in seen if p.more], [p for p in seen if p.offset]
        pieces = len({p.id for p in first})
        check(len(first) == len(later) == (5 if size > 1400 else 0) and pieces == len(first),
              f'{len(first)} outer packets in two fragments')
        check(not any(p.df for p in first + later), 'no fragment forbids to be cut again')
    echo(lab, '-s', '4000', count=3)
    check(True, '4,028 bytes without DF pass, too')
    for box, device in (('r', 'g2'), ('g2', 'wan')):
        lab.ip(box, 'link', 'set', device, 'mtu', 1300)
    pings(lab, size=1472, count=2, wait=0.3)
    check(pings(lab, size=1472, count=3), 'and 1,500 bytes with DF where the path has become 1,300 wide')


def padding_and_dummies_hide_lengths(lab, full):
    """Lengths on the wire: `tfc_padding = 500` and `mtu`; dummies look like data."""
    gateways = world(lab)
    wire = Tap(lab, 'r', 'u1')

    def lengths(*sizes):
        wire.take()
        for size in sizes:
            echo(lab, '-s', size)
        return [p.length for p in wire.take(protocol=ESP)]
    up(gateways)
    check(len(set(lengths(0, 100, 300))) == 3, 'without padding, lengths differ')
    up(gateways, 'tfc_padding = 500')
    got = lengths(0, 1, 56, 300, 472)
    # 20 of IP, 8 of ESP, 8 of IV, 500 and 2 of trailer padded to 4, 16 of ICV.
    check(set(got) == {556}, f'tfc_padding = 500: inner packets up to 500 bytes: {got}')
    got = lengths(480, 1200)
    check(min(got) > 556 and len(set(got)) == 2, f'longer ones: {got}')
    for family in (False, True):
        up(gateways, 'tfc_padding = mtu', v6_inner=family)
        to = inner('g2', family)
        # A large one first: the path is asked for when the first packet leaves.
        until('the path is known', lambda: (echo(lab, to=to), max(p.length for p in wire.take(protocol=ESP)))[1] > 1480, 3)
        wire.take()
        for size in (0, 56, 500, 1300):
            echo(lab, '-s', size, to=to)
        got = [p.length for p in wire.take(protocol=ESP)]
        check(len(got) == 4 and len(set(got)) == 1 and 1496 <= got[0] <= 1500,
              f"tfc_padding = mtu, {'IPv6' if family else 'IPv4'} inside: {got}")
    up(gateways, 'tfc_padding = mtu\n tfc_dummies = 20ms')
    until('the path is known', lambda: (echo(lab), max(p.length for p in wire.take(protocol=ESP)))[1] > 1480, 3)
    before, began = names(gateways[1], 'packets', 'in-dummies'), time.monotonic()
    wire.take()
    time.sleep(1)
    got, seconds = [p.length for p in wire.take(protocol=ESP)], time.monotonic() - began
    check(30 <= len(got) <= 60 * seconds and set(got) == {1500},
          f'tfc_dummies = 20ms: {len(got)} within {seconds:.2f} s, of {set(got)} bytes')
    until('the peer discards them', lambda: names(gateways[1], 'packets', 'in-dummies') >= before + 30, 3)


CONNECT = '''
import socket, sys
f = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s = socket.socket(f)
if sys.argv[2] == 'listen':
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((sys.argv[1], 7009)); s.listen(); print('ready', flush=True)
    s.accept()[0].recv(9)
else:
    s.settimeout(3); s.connect((sys.argv[1], 7009)); s.send(b'hello')
'''


def mss_of(packets):
    """The MSS options of SYNs, (is it the answer, MSS)."""
    found = []
    for p in packets:
        tcp = p.data[p.at:]
        if p.protocol != 6 or not tcp[13] & 2:
            continue
        options, at = tcp[20:4 * (tcp[12] >> 4)], 0
        while at < len(options) and options[at]:
            if options[at] == 2:
                found.append((bool(tcp[13] & 16), struct.unpack_from('!H', options, at + 2)[0]))
            at += 1 if options[at] == 1 else options[at + 1]
    return found


def syns_ask_for_what_fits(lab, full):
    """SYNs both ways ask for no more than the tunnel takes, on a wide path and a narrow one."""
    gateways = world(lab)
    taps = {box: Tap(lab, box, 'eth0') for box in ('a', 'b')}
    for path in (1500, 1400):
        for box, device in (('r', 'g2'), ('g2', 'wan')):
            lab.ip(box, 'link', 'set', device, 'mtu', path)
        if path < 1500:
            # Both ends learn of it before, as any large packet tells them.
            pings(lab, size=1400, count=1, wait=0.3)
            time.sleep(0.3)
        for v6 in (False, True):
            up(gateways, v6_inner=v6)
            # What is left of the path: ESP header, IV, trailer, ICV, whole words.
            most = (path - 20 - 8 - 8 - 16) // 4 * 4 - 2 - (60 if v6 else 40)
            if path < 1500:
                pings(lab, v6=v6, size=1380, count=2, wait=0.3)
                pings(lab, 'g2', 'g1', v6=v6, size=1380, count=2, wait=0.3)
            for client, server in (('a', 'b'), ('b', 'a')):
                [t.take() for t in taps.values()]
                to = inner('g2' if server == 'b' else 'g1', v6)
                listener = lab.spawn(server, sys.executable, '-c', CONNECT, to, 'listen', name='listener')
                until('it listens', lambda: 'ready' in listener.log())
                lab.run(client, sys.executable, '-c', CONNECT, to, 'connect')
                listener.popen.wait(5)
                syn, answer = (mss_of(taps[box].take()) for box in (server, client))
                check(syn == [(False, most)] and answer == [(True, most)],
                      f"path of {path} bytes, {'IPv6' if v6 else 'IPv4'}, {client} to {server}: SYN says {syn}, "
                      f'the answer {answer}, right is {most}')


def first_packets_to_a_trap_arrive(lab, full):
    """The first five packets to a trap: none is lost, with IronSwan and with strongSwan at the other end."""
    us, them = world(lab)
    for peer in (IronSwan, Charon):
        if peer is Charon:
            them.stop()
            lab.run('g2', program(), 'guard', '--remove')
            them = Charon(lab, 'g2').start()
        for v6 in (False, True):
            child = text('g1', 'start_action = trap', v6_inner=v6, encap=True)
            them.load(text('g2', v6_inner=v6, encap=True))
            us.load(child)
            echo(lab, to=inner('g2', v6), count=5)
            check(us.child_spis(), f"{them.kind}, {'IPv6' if v6 else 'IPv4'}: 5 of the first 5 came back")
            us.swanctl('--terminate', '--ike', 'net')
            until('both ends are clean', lambda: not us.sas() and not them.sas())


RECEIVE = '''
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 7011)); s.settimeout(5)
print('ready', flush=True)
data, to = s.recvfrom(65536); s.sendto(data, to); print(len(data), data == bytes(i % 251 for i in range(len(data))), flush=True)
'''
SEND = '''
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.setsockopt(0, 10, 0)
data = bytes(i % 251 for i in range(int(sys.argv[2])))
s.sendto(data, (sys.argv[1], 7011)); print(s.recv(65536) == data)
'''


def large_datagrams_in_transport_mode(lab, full):
    """A large UDP datagram in transport mode: put together, sealed once, and cut outside."""
    gateways = world(lab)
    wire = Tap(lab, 'r', 'u1')
    for keys, protocol in (('', 50), ('ah_proposals = sha256', 51)):
        up(gateways, f'mode = transport\n {keys}', local_ts='dynamic', remote_ts='dynamic', **({'esp': ''} if keys else {}))
        for size in (1400, 8000, 40000):
            listener = lab.spawn('g2', sys.executable, '-c', RECEIVE, OUTER[False]['g2'], name='receiver')
            until('it listens', lambda: 'ready' in listener.log())
            before = names(gateways[0], 'packets', 'out-sent')
            wire.take()
            done = lab.run('g1', sys.executable, '-c', SEND, OUTER[False]['g2'], size, fail=False)
            seen = wire.take(protocol=protocol)
            check('True' in done.stdout and f'{size} True' in listener.log(),
                  f'protocol {protocol}: a datagram of {size} bytes arrives whole, and its echo, too {done.stdout[-200:]}')
            check(len({p.id for p in seen}) == 1 and (len(seen) > 1) == (size > 1400) and sum(p.more for p in seen) == len(seen) - 1,
                  f'in one packet of protocol {protocol}, in {len(seen)} pieces outside')
            until('one is counted', lambda: names(gateways[0], 'packets', 'out-sent') == before + 1, 3)


def policies_no_sends_nothing(lab, full):
    """`policies = no`: nothing is sent by it, and what comes by it is taken."""
    gateways = world(lab)
    us, them = gateways
    us.load(text('g1', 'policies = no'))
    them.load(text('g2'))
    us.initiate()
    wire, near = Tap(lab, 'r', 'u1'), Tap(lab, 'a', 'eth0')
    lab.run('b', 'ping', '-n', '-q', '-c', '3', '-i', '0.1', '-W', '0.5', inner('g1'), fail=False)
    arrived = [p for p in near.take(protocol=1) if p.data[p.at] == 8]
    check(len(arrived) == 3, f'{len(arrived)} of 3 echo requests of the peer arrive')
    lab.run('a', 'ping', '-n', '-q', '-c', '3', '-i', '0.1', '-W', '0.5', inner('g2'), fail=False)
    check(not wire.take(protocol=ESP), 'nothing leaves by the SA')


def limits_rekey_without_loss(lab, full):
    """Packet, byte and time limits: rekeyed again and again, and nothing is lost."""
    gateways = world(lab)
    keys = {'g1': 'rekey_packets = 300\n life_packets = 2000', 'g2': 'rekey_bytes = 60000\n life_bytes = 900000'}
    for g in gateways:
        g.load(text(g.box, keys[g.box]))
    gateways[0].initiate()
    spis = set(gateways[0].child_spis())
    flow = Numbered(lab, rate=500)
    end = time.monotonic() + (10 if full else 2.5)
    while time.monotonic() < end:
        spis |= gateways[0].child_spis()
        time.sleep(0.05)
    check_no_loss(flow.end())
    check(len(spis) >= 4, f'packets and bytes: {len(spis) - 1} rekeyings seen in that time')
    up(gateways, 'rekey_time = 1s\n life_time = 5s\n rand_time = 0s')
    spis = set(gateways[0].child_spis())
    flow = Numbered(lab, rate=500)
    end = time.monotonic() + (10 if full else 2.5)
    while time.monotonic() < end:
        spis |= gateways[0].child_spis()
        time.sleep(0.05)
    check_no_loss(flow.end())
    check(len(spis) >= 3, f'time: {len(spis) - 1} rekeyings seen in that time')


FORGE = '''
import json, socket, sys
spec = json.load(sys.stdin)
v6 = spec['v6']
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_RAW, 58 if v6 else 1)
sent = 0
for packet in spec['packets']:
    for _ in range(spec['times']):
        try:
            s.sendto(bytes.fromhex(packet), (spec['to'], 0)); sent += 1
        except OSError:
            pass
print(sent)
'''


def checksum(data):
    data += b'\0' * (len(data) % 2)
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def too_big(quote, mtu, v6):
    """ICMP "fragmentation needed" or "packet too big"; the kernel fills in ICMPv6's checksum."""
    if v6:
        return struct.pack('!BBHI', 2, 0, 0, mtu) + quote
    head = struct.pack('!BBHHH', 3, 4, 0, 0, mtu & 0xffff) + quote
    return head[:2] + struct.pack('!H', checksum(head)) + head[4:]


def smallest(lab, v6):
    """MTU of g1's route to the tunnel."""
    out = lab.run('g1', 'ip', *(['-6'] if v6 else []), 'route', 'show', 'table', '220', net('g2', v6))
    return int(re.search(r'dev ipsec0 .*?mtu (?:lock )?(\d+)', out)[1])


def forged_too_big_is_not_believed(lab, full):
    """Forged "too big" from outside and inside: only an SPI of the SA makes the MTU fall, never below 576 and 1280, and traffic
    goes on."""
    gateways = world(lab)
    wire = Tap(lab, 'r', 'u1')
    for outer6 in (False, True):
        for v6 in (False, True) if full else (outer6,):
            up(gateways, v6_outer=outer6, v6_inner=v6)
            what = f"{'IPv6' if v6 else 'IPv4'} in {'IPv6' if outer6 else 'IPv4'}"
            wire.take()
            echo(lab, '-s', '1000', to=inner('g2', v6))
            quote = wire.take(protocol=ESP)[0].data[:200]
            at = 40 if outer6 else 20
            foreign = quote[:at] + struct.pack('!I', 0xdeadbeef) + quote[at + 4:]
            wide = smallest(lab, v6)
            flow = Numbered(lab, inner('g1', v6), inner('g2', v6), rate=200)
            least, sent = wide, 0
            for name, quotes, mtus in (
                    ('larger than now', (quote,), (1500, 9000, 65535)),
                    ('cut short', (quote[:at + 3], quote[:at], quote[:at - 1], quote[:3], b''), (0, 68, 576, 1279, 1280)),
                    ('of another SPI', (foreign, foreign[:at + 8]), (0, 68, 576, 1279, 1280)),
                    ('of this SPI', (quote, quote[:at + 4]), (1280, 1279, 576, 68, 0))):
                for box, to in (('r', OUTER[outer6]['g1']), ('a', OUTER[outer6]['g1']), ('a', 'fd00:1::1' if outer6 else '10.1.0.1')):
                    spec = {'v6': outer6, 'to': to, 'times': 12 if not full else 200,
                            'packets': [too_big(q, m, outer6).hex() for q in quotes for m in mtus]}
                    sent += int(lab.run(box, sys.executable, '-c', FORGE, input=json.dumps(spec)))
                    # What is too large now makes the gateway look.
                    lab.run('a', 'ping', '-n', '-q', '-c', '2', '-i', '0.05', '-W', '0.2', '-s', '1350', inner('g2', v6), fail=False)
                    least = min(least, smallest(lab, v6))
                if name != 'of this SPI':
                    check(least == smallest(lab, v6) == wide, f'{what}: errors with a quote {name}: the MTU is still {wide}')
            check(least < wide, f'{what}: errors that quote our packets are believed')
            floor = 1280 if v6 else 576 if not outer6 else 1280 - 100
            check(sent > 1000 and least >= floor,
                  f'{what}: {sent} forged errors; the MTU was {wide} and fell to {least}, not below {floor}')
            report = flow.end()
            check_no_loss(report)
            check(pings(lab, v6=v6, size=floor - (48 if v6 else 28)), f'{what}: packets of {floor} bytes pass')
            for box in ('g1', 'a', 'b'):
                for family in ('-4', '-6'):
                    lab.ip(box, family, 'route', 'flush', 'cache')
            if full and not v6:
                # The next tunnel is on the same path, which is narrow for ten minutes: the same error again, for a second.
                expires = f"net.{'ipv6' if outer6 else 'ipv4'}.route.mtu_expires"
                lab.run('g1', 'sysctl', '-qw', f'{expires}=1')
                spec = {'v6': outer6, 'to': OUTER[outer6]['g1'], 'times': 1, 'packets': [too_big(quote, 0, outer6).hex()]}
                lab.run('r', sys.executable, '-c', FORGE, input=json.dumps(spec))
                until('the path is wide again', lambda: smallest(lab, v6) == wide, 20)
                lab.run('g1', 'sysctl', '-qw', f'{expires}=600')


STREAM = '''
import os, socket, sys, time
if sys.argv[1] == 'listen':
    s = socket.create_server(('10.2.0.2', 7012)); print('ready', flush=True)
    c, _ = s.accept(); n, began = 0, None
    while (d := c.recv(1 << 18)):
        began, n = began or time.monotonic(), n + len(d)
    print('bytes', n, time.monotonic() - began, flush=True)
else:
    data = open(sys.argv[2], 'rb').read()
    c = socket.create_connection(('10.2.0.2', 7012)); end = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        c.sendall(data)
'''


def speed(lab, path, seconds):
    """Mbit/s of a TCP stream of the file, again and again, from a to b."""
    listener = lab.spawn('b', sys.executable, '-c', STREAM, 'listen', name='stream')
    until('it listens', lambda: 'ready' in listener.log())
    lab.run('a', sys.executable, '-c', STREAM, 'send', path, seconds)
    got = until('the stream ended', lambda: re.search(r'bytes (\d+) ([\d.]+)', listener.log()))
    return int(got[1]) * 8 / float(got[2]) / 1e6


def joined(lab, name, paths):
    return lab.write(name, ''.join(open(p).read() for p in paths))


def log(size):
    """Lines as a web server writes them."""
    r, lines = random.Random(1), []
    while size > 0:
        lines.append(f'10.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(256)} - - [12/Mar/2026:{r.randrange(24):02}:'
                     f'{r.randrange(60):02}:{r.randrange(60):02} +0000] "GET /{r.choice(("index", "news", "about", "item"))}/'
                     f'{r.randrange(99999)}.html HTTP/1.1" {r.choice((200, 200, 304, 404))} {r.randrange(99999)} "-" '
                     f'"Mozilla/5.0 (X11; Linux x86_64; rv:{r.randrange(99, 140)}.0) Gecko/20100101"\n')
        size -= len(lines[-1])
    return ''.join(lines)


# Throughput with IPComp against without.
LEAST = {'log': 2, 'programs': 1.7, 'prose': 1.5, 'noise': 0.9}


def ipcomp_relieves_a_slow_line(lab, full):
    """A line of 10 Mbit/s: text is carried twice as fast with IPComp, and what cannot be compressed hardly slower. Packets
    are compressed one by one, so prose (the manual) gets less of it than programs and logs."""
    gateways = world(lab)
    lab.run('r', 'tc', 'qdisc', 'add', 'dev', 'g2', 'root', 'tbf', 'rate', '10mbit', 'burst', '6kb', 'latency', '60ms')
    manual = sorted(glob.glob(os.path.join(REPO, 'docs', 'manual', '*.md')))
    source = sorted(glob.glob(os.path.join(REPO, 'crates', '*', 'src', '*.rs')))
    files = {'log': lab.write('log', log(400_000)), 'programs': joined(lab, 'programs', source),
             'prose': joined(lab, 'prose', manual), 'noise': lab.path('noise')}
    with open(files['noise'], 'wb') as f:
        f.write(os.urandom(200_000))
    if not full:
        del files['programs'], files['prose']
    got = {}
    for keys in ('', 'ipcomp = yes'):
        up(gateways, keys)
        for what, path in files.items():
            got[what, bool(keys)] = speed(lab, path, 10 if full else 1.5)
    for what, least in LEAST.items():
        if what not in files:
            continue
        without, compressed = got[what, False], got[what, True]
        check(7 < without < 10 and compressed / without >= least,
              f'{what}: {without:.1f} Mbit/s without, {compressed:.1f} with IPComp: {compressed / without:.2f} times (at least {least})')


main({f.__name__: f for f in (
    dscp_and_ecn_follow_the_keys, df_is_outside_and_packets_fit, padding_and_dummies_hide_lengths, syns_ask_for_what_fits,
    first_packets_to_a_trap_arrive, large_datagrams_in_transport_mode, policies_no_sends_nothing, limits_rekey_without_loss,
    forged_too_big_is_not_believed, ipcomp_relieves_a_slow_line)}, 'carry')
