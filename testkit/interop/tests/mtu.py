#!/usr/bin/env python3
"""Path MTU: the routes' MTU is exact, a sender is told it, TCP survives a path that becomes narrower, nothing is cut outside.

usage: testkit/interop/run [--full] mtu[.TEST]      --full: every suite with every pair of outer and inner family, longer transfers,
and more of the paths that are narrow and say nothing
An inner packet of exactly the route's MTU must fill the path's MTU to what padding leaves, so one byte more is too much.
"""
import json
import re
import struct
import sys
import time

import libreswan
from gateway import Charon, IronSwan, program, tunnel
from guest import StrongSwanGuest, line_before_guest, plug
from lab import Failed, call, check, main, until
from libreswan import Libreswan
from wan import (HOST, Rest, Stream, Watch, conf, connection, inner, internet, net, pair_at_rest, pings, site,
                 uplink, v6_of)

SUITES = ('aes128gcm16', 'aes256gcm16', 'chacha20poly1305', 'aes128-sha256', 'aes256-sha384', 'aes256-sha512')
# Bytes of IV, block that inner packet and trailer are padded to, ICV.
SHAPE = {'aes128gcm16': (8, 4, 16), 'aes256gcm16': (8, 4, 16), 'chacha20poly1305': (8, 4, 16),
         'aes128-sha256': (16, 16, 16), 'aes256-sha384': (16, 16, 24), 'aes256-sha512': (16, 16, 32)}
# A TCP stream stands still until the sender learns the new size: two round trips, or its retransmission timer, which
# begins at 200 ms and doubles. A test machine with two busy cores needs the rest.
STALL = 3.0
OUTER = {'g1': ('198.51.100.1', f"{v6_of('198.51.100')}::1"), 'g2': ('192.0.2.2', f"{v6_of('192.0.2')}::2")}


def exact(path, esp, encap, v6_outer):
    """The largest inner packet that leaves as one outer packet of at most `path` bytes: built up, byte by byte."""
    iv, block, icv = SHAPE[esp]

    def sealed(size):
        padding = -(size + 2) % block
        return (40 if v6_outer else 20) + (8 if encap else 0) + 8 + iv + size + padding + 2 + icv

    return max(size for size in range(path) if sealed(size) <= path)


def world(lab, mtu=1500):
    internet(lab, mtu=mtu)
    site(lab, 'g1')
    uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100', mtu=mtu)
    return Watch(lab, 'r', 'u1', 'g2')


def end_conf(me, esp='aes128gcm16', encap=True, v6_outer=False, v6_inner=False, child=''):
    peer = {'g1': 'g2', 'g2': 'g1'}[me]
    return conf(connection('net', me, peer, OUTER[me][v6_outer], OUTER[peer][v6_outer], esp=esp, encap=encap,
                           v6_inner=v6_inner, child=child))


def route_mtu(lab, box, to):
    """The MTU of the route to ipsec0 for a prefix; None while there is no such route."""
    out = lab.run(box, 'ip', *(['-6'] if ':' in to else []), 'route', 'show', 'table', '220', to)
    m = re.search(r'dev ipsec0 .*?mtu (?:lock )?(\d+)', out)
    return int(m[1]) if m else None


def settled(lab, box, to, want, what, timeout=5):
    """Waits for the route's MTU to become `want`; how long that took."""
    began = time.monotonic()
    try:
        until('the route has its MTU', lambda: route_mtu(lab, box, to) == want, timeout, 0.02)
    except Failed:
        pass
    took = time.monotonic() - began
    check(route_mtu(lab, box, to) == want,
          f'{what}: the route of {box} to {to} has MTU {route_mtu(lab, box, to)}, exact is {want} (after {took:.2f} s)')
    return took


PROBE = '''
import socket, sys, time
to, size = sys.argv[1], int(sys.argv[2])
v6 = ':' in to
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
# DF, and sizes are not checked against what is known of the path already: every packet goes out as it is.
level, option, mtu = (41, 23, 24) if v6 else (0, 10, 14)
s.setsockopt(level, option, 2)
s.connect((to, 7003))
for _ in range(20):
    try:
        s.send(bytes(size - (48 if v6 else 28)))
    except OSError as e:
        if e.errno != 90:
            raise
        break
    time.sleep(0.05)
print(s.getsockopt(level, mtu))
'''


def told(lab, frm, to, size, v6):
    """What a host's kernel believes the path MTU to be after UDP packets with DF of `size` bytes (IP header included)."""
    return int(lab.run(HOST[frm], sys.executable, '-c', PROBE, inner(to, v6), size).strip())


def forget(lab, *gateways):
    """Hosts forget what they learnt about paths."""
    for gateway in gateways:
        for family in ('-4', '-6'):
            lab.ip(HOST[gateway], family, 'route', 'flush', 'cache')


def exactly(lab, frm, to, size, v6, what):
    """A packet of exactly `size` passes, and of one byte more the sender is told `size`, by echoes and for UDP."""
    header = 48 if v6 else 28
    forget(lab, frm, to)
    check(pings(lab, frm, to, v6, size=size - header), f'{what}: {HOST[frm]} to {HOST[to]}: {size} bytes pass, and come back')
    done = lab.run(HOST[frm], 'ping', '-n', '-c', '1', '-W', '1', '-M', 'do', '-s', size + 1 - header, inner(to, v6),
                   fail=False)
    said = re.findall(r'mtu ?= ?(\d+)', done.stdout)
    check(done.returncode != 0 and said == [str(size)],
          f"{what}: {size + 1} bytes do not, and the sender is told {said[0] if said else done.stdout!r}")
    forget(lab, frm)
    got = told(lab, frm, to, size + 1, v6)
    check(got == size, f'{what}: UDP of {size + 1} bytes: the socket is told {got}')
    forget(lab, frm)


def routes_have_the_exact_mtu(lab, full):
    """IronSwan at both ends, every suite, encapsulated and raw, IPv4 and IPv6 outside and inside, path MTU 1,500."""
    watch = world(lab)
    us, them = (IronSwan(lab, g).start() for g in ('g1', 'g2'))
    families = [(o, i) for o in (False, True) for i in (False, True)]
    cases = [(esp, encap, o, i) for esp in SUITES for encap in (True, False) for o, i in families
             if full or esp == 'aes128gcm16' or (esp in ('aes128-sha256', 'aes256-sha384') and o == i and o != encap)]
    for esp, encap, v6_outer, v6_inner in cases:
        for gateway in (us, them):
            gateway.load(end_conf(gateway.box, esp, encap, v6_outer, v6_inner))
        us.initiate()
        want = exact(1500, esp, encap, v6_outer)
        what = f"{esp} {'in UDP' if encap else 'raw'}, {'IPv6' if v6_inner else 'IPv4'} in {'IPv6' if v6_outer else 'IPv4'}"
        for gateway, peer in ((us, 'g2'), (them, 'g1')):
            settled(lab, gateway.box, net(peer, v6_inner), want, what)
        exactly(lab, 'g1', 'g2', want, v6_inner, what)
        us.swanctl('--terminate', '--ike', 'net')
        until('both ends are clean', lambda: not us.sas() and not them.sas())
    watch.check('u1', 'g2')


LISTEN = '''
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 7003))
print('ready', flush=True)
while True:
    print(len(s.recv(65536)), flush=True)
'''


def exact_with_strongswan(lab, full):
    """strongSwan's user-space ESP takes packets of exactly the route's MTU; its own are 1,400 long at the most, always."""
    watch = world(lab)
    us = IronSwan(lab, 'g1').start(end_conf('g1'))
    them = Charon(lab, 'g2').start(end_conf('g2'))
    us.initiate()
    want = exact(1500, 'aes128gcm16', True, False)
    settled(lab, 'g1', net('g2'), want, 'strongSwan')
    listener = lab.spawn('b', sys.executable, '-c', LISTEN, inner('g2'), name='listener')
    until('the listener listens', lambda: 'ready' in listener.log())
    check(told(lab, 'g1', 'g2', want, False) == 1500, f'a to b: of UDP packets of {want} bytes with DF nobody complains')
    until('they arrive', lambda: listener.log().split()[1:])
    got = {int(n) + 28 for n in listener.log().split()[1:]}
    check(got == {want}, f'b has received packets of {got} bytes')
    forget(lab, 'g1')
    check(told(lab, 'g1', 'g2', want + 1, False) == want, f'of one byte more, a is told {want}')
    check(pings(lab, 'g2', 'g1', size=1400 - 28), 'b to a: 1400 bytes pass, and come back')
    pair_at_rest(us, them)
    watch.check('u1')


def exact_with_a_linux_kernel(lab, full):
    """The kernel of a guest takes and sends packets of exactly the route's MTU, in UDP and raw."""
    internet_without_g2(lab)
    watch = Watch(lab, 'r', 'u1', 'g2')
    guest = StrongSwanGuest(lab, end_conf('g2'), 'g2', f"{OUTER['g2'][0]}/24,{OUTER['g2'][1]}/64", gateway=('192.0.2.254',))
    guest.do(f"ip -6 route add default via {v6_of('192.0.2')}::fe")
    us = IronSwan(lab, 'g1').start(end_conf('g1'))
    cases = [('aes128gcm16', True, False, False), ('aes128gcm16', False, False, False), ('aes128-sha256', False, True, True),
             ('aes256-sha512', False, False, True)]
    if full:
        cases = [(esp, encap, o, i) for esp in SUITES if esp != 'aes256-sha384' for encap, o, i in
                 ((True, False, False), (False, False, False), (False, True, True), (False, False, True))]
    for esp, encap, v6_outer, v6_inner in cases:
        guest.load(end_conf('g2', esp, encap, v6_outer, v6_inner))
        us.load(end_conf('g1', esp, encap, v6_outer, v6_inner))
        us.initiate()
        want = exact(1500, esp, encap, v6_outer)
        what = f"{esp} {'in UDP' if encap else 'raw'}, {'IPv6' if v6_inner else 'IPv4'} in {'IPv6' if v6_outer else 'IPv4'}"
        settled(lab, 'g1', net('g2', v6_inner), want, what)
        forget(lab, 'g1')
        size, to, back = want - (48 if v6_inner else 28), *(('fd00:2::1', 'fd00:1::2') if v6_inner else ('10.2.0.1', '10.1.0.2'))
        for text in (lab.run('a', 'ping', '-n', '-q', '-c', '3', '-i', '0.2', '-M', 'do', '-s', size, to, fail=False).stdout,
                     guest.do(f'ping -n -q -c 3 -i 0.2 -M do -s {size} -I {to} {back}', fail=False)):
            check(' 0% packet loss' in text, f'{what}: {want} bytes pass, there and back')
        us.swanctl('--terminate', '--ike', 'net')
        until('the guest is empty', lambda: not guest.states())
    errors = {k: v for k, v in guest.xfrm_errors().items() if k.startswith('XfrmIn') and k != 'XfrmInNoPols'}
    check(not errors, f"no error counter of the guest's receiving side moved: {errors or 'all zero'}")
    watch.check('u1', 'g2')


def internet_without_g2(lab):
    """The same world, with a bridge to the guest in g2's place."""
    lab.box('r', 'g2')
    lab.forward('r')
    lab.wire('g2', 'eth0', [], 'r', 'g2', ['192.0.2.254/24', f"{v6_of('192.0.2')}::fe/64"])
    plug(lab, 'g2', 'eth0')
    site(lab, 'g1')
    uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100')


def both(lab, encap=True, v6_outer=False, v6_inner=False, mtu=1500, esp='aes128gcm16', peer=IronSwan):
    """World and tunnel up."""
    watch = world(lab, mtu)
    us = IronSwan(lab, 'g1').start(end_conf('g1', esp, encap, v6_outer, v6_inner))
    them = peer(lab, 'g2').start(end_conf('g2', esp, encap, v6_outer, v6_inner))
    us.initiate()
    check(pings(lab, v6=v6_inner), 'the tunnel carries traffic')
    return watch, us, them


def flowing(stream, what, seconds=1.0, stall=STALL, narrower=False):
    """Lets the stream go on for a while; it must not stand still for longer than `stall`, and must move at the end."""
    time.sleep(max(seconds, stall if narrower else 0))
    change = stream.since()
    time.sleep(0.5)
    after = stream.since()
    check(change['longest_gap_ms'] <= stall * 1e3 and after['bytes'] > 100_000 and after['longest_gap_ms'] < 500,
          f"{what}: {stream.way}: silent for {change['longest_gap_ms']:.0f} ms at the longest (at most {stall * 1e3:.0f}), "
          f"{change['retransmitted']} segments sent again; then {after['bytes'] * 8 / 0.5e6:.0f} Mbit/s, "
          f"segments of {after['mss']} bytes, {after['retransmitted']} sent again")
    return change, after


def path_narrows(lab, encap, v6_outer, v6_inner, full):
    """The router's far link becomes 1,400 bytes wide in mid-transfer, and later 1,500 again; the sender's gateway learns
    by ICMP, and forgets when the kernel's memory of the path expires (10 minutes; here 4 s)."""
    watch, us, them = both(lab, encap, v6_outer, v6_inner)
    esp = 'aes128gcm16'
    wide, narrow = (exact(path, esp, encap, v6_outer) for path in (1500, 1400))
    stream = Stream(lab, v6=v6_inner)
    flowing(stream, 'at 1,500')
    # Taken only now, when the load has touched every buffer.
    rest = Rest(lab, us, them)
    settled(lab, 'g1', net('g2', v6_inner), wide, 'before')
    family = 'ipv6' if v6_outer else 'ipv4'
    lab.run('g1', 'sysctl', '-qw', f'net.{family}.route.mtu_expires=600')
    lab.ip('r', 'link', 'set', 'g2', 'mtu', '1400')
    _, after = flowing(stream, 'the far link is 1,400 now', narrower=True)
    settled(lab, 'g1', net('g2', v6_inner), narrow, 'narrowed')
    check(after['pmtu'] == narrow, f"TCP's path MTU is {after['pmtu']}")
    stream.end()
    exactly(lab, 'g1', 'g2', narrow, v6_inner, 'narrowed')
    watch.check('u1', 'g2')
    return watch, us, them, rest, wide


def path_narrows_udp(lab, full):
    """ESP in UDP over IPv4."""
    *_, rest, _ = path_narrows(lab, True, False, False, full)
    rest.check()


def path_narrows_raw(lab, full):
    """Raw ESP over IPv4: the ICMP error is about no socket's packet."""
    *_, rest, _ = path_narrows(lab, False, False, False, full)
    rest.check()


def path_narrows_ipv6(lab, full):
    """IPv6 in UDP over IPv6, then raw."""
    *_, rest, _ = path_narrows(lab, True, True, True, full)
    rest.check()


def learnt_mtu_is_forgotten(lab, full):
    """What was learnt about a path is forgotten after the kernel's time, and the routes follow."""
    watch, us, them = both(lab)
    wide, narrow = (exact(path, 'aes128gcm16', True, False) for path in (1500, 1400))
    expires = 30 if full else 5
    lab.run('g1', 'sysctl', '-qw', f'net.ipv4.route.mtu_expires={expires}')
    lab.ip('r', 'link', 'set', 'g2', 'mtu', '1400')
    pings(lab, size=1400)
    settled(lab, 'g1', net('g2'), narrow, 'narrowed')
    lab.ip('r', 'link', 'set', 'g2', 'mtu', '1500')
    settled(lab, 'g1', net('g2'), wide, f'{expires} s later', timeout=expires + WIDER)
    exactly(lab, 'g1', 'g2', wide, False, 'wide again')
    watch.check('u1', 'g2')


# Seconds after the time of a path MTU is over until our routes know.
WIDER = 12


FORGE = '''
import ipaddress, socket, struct, sys
to, peer, mtu, upper = sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])
protocol = int(sys.argv[5])
ends = b''.join(ipaddress.ip_address(a).packed for a in (to, peer))
if ':' in to:
    # The kernel fills in the checksum.
    s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    message = struct.pack('!BBHI', 2, 0, 0, mtu) + struct.pack('!IHBB', 6 << 28, 1460, protocol, 60) + ends + upper
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    quoted = struct.pack('!BBHHHBBH', 0x45, 0, 1500, 1, 0x4000, 60, protocol, 0) + ends + upper
    rest = struct.pack('!HH', 0, mtu) + quoted
    words = struct.pack('!BBH', 3, 4, 0) + rest + bytes(len(rest) % 2)
    total = sum(struct.unpack(f'!{len(words) // 2}H', words))
    total = (total & 0xffff) + (total >> 16)
    message = struct.pack('!BBH', 3, 4, 0xffff - ((total & 0xffff) + (total >> 16))) + rest
s.sendto(message, (to, 0))
'''


def forge(lab, v6_outer, mtu, upper, protocol):
    """The router tells g1 that a packet to g2, in which `upper` follows the IP header, was larger than `mtu`."""
    lab.run('r', sys.executable, '-c', FORGE, OUTER['g1'][v6_outer], OUTER['g2'][v6_outer], mtu, upper.hex(), protocol)


def forged_errors_are_not_believed(lab, full):
    """Errors that quote no SPI of an SA to that peer do nothing, whatever the kernel believes; those that do are believed."""
    watch, us, them = both(lab)
    for family in ('ipv4', 'ipv6'):
        lab.run('g1', 'sysctl', '-qw', f'net.{family}.route.mtu_expires=600')
    # What is believed of an address with UDP is known without.
    known = {False: 1500, True: 1500}
    for encap, v6_outer, path in ((True, False, 1400), (True, True, 1400), (False, False, 1380), (False, True, 1380)):
        us.swanctl('--terminate', '--ike', 'net')
        until('both ends are clean', lambda: not us.sas() and not them.sas())
        for gateway in (us, them):
            gateway.load(end_conf(gateway.box, encap=encap, v6_outer=v6_outer))
        us.initiate()
        what = f"{'IPv6' if v6_outer else 'IPv4'}, {'in UDP' if encap else 'raw'}"
        wide, narrow = (exact(mtu, 'aes128gcm16', encap, v6_outer) for mtu in (known[v6_outer], path))
        settled(lab, 'g1', net('g2'), wide, what)
        (_, spi), = us.child_spis()
        spi = int(spi, 16)

        def packet(spi, udp=encap, ports=(4500, 4500)):
            """What follows the IP header, and its protocol."""
            return (struct.pack('!HHHH', *ports, 1480, 0) if udp else b'') + struct.pack('!II', spi, 1), 17 if udp else 50

        # Other SPIs, the right one in the other kind of packet, and a quote that ends before it.
        wrong = [packet(spi ^ 1), packet(~spi & 0xffffffff), packet(spi, not encap)]
        if encap:
            wrong += [packet(spi, ports=(4500, 4501)), (packet(spi)[0][:8], 17)]
        before = icmp(us)
        for upper, protocol in wrong:
            forge(lab, v6_outer, path, upper, protocol)
        seen = lab.run('g1', 'ip', 'route', 'get', OUTER['g2'][v6_outer], 'mark', '0x220')
        check(f'mtu {path}' in seen, f'{what}: {len(wrong)} errors with wrong SPIs are forged, and the kernel believes them')
        # The largest packets would find out.
        exactly(lab, 'g1', 'g2', wide, False, f'{what}, forged')
        check(route_mtu(lab, 'g1', net('g2')) == wide, f"{what}: the route has MTU {route_mtu(lab, 'g1', net('g2'))}")
        check(icmp(us) == (before[0], before[1] + len(wrong)), f'{what}: all of them are refused, and counted')
        forge(lab, v6_outer, path, *packet(spi))
        settled(lab, 'g1', net('g2'), narrow, f'{what}: with the right SPI', timeout=2)
        check(icmp(us)[0] == before[0] + 1, f'{what}: that one is believed, and counted')
        exactly(lab, 'g1', 'g2', narrow, False, f'{what}, believed')
        known[v6_outer] = path
    # A route's own MTU is no router's word: it counts, and no forged error hides it.
    own = exact(1350, 'aes128gcm16', False, True)
    lab.ip('g1', '-6', 'route', 'add', f'{OUTER["g2"][True]}/128', 'via', f"{v6_of('198.51.100')}::fe", 'mtu', '1350')
    settled(lab, 'g1', net('g2'), own, "the route's own MTU is 1,350", timeout=2)
    for mtu in (1300, 1400):
        forge(lab, True, mtu, *packet(spi ^ 1))
        exactly(lab, 'g1', 'g2', own, False, f"the route's own MTU is 1,350, and {mtu} is forged")
        check(route_mtu(lab, 'g1', net('g2')) == own, "the route to the tunnel is as it was")
    pair_at_rest(us, them)
    watch.check('u1', 'g2')


def icmp(gateway):
    """ICMP errors that a gateway has believed, and refused."""
    plane = json.loads(call(program(), 'list', 'counters', '--json', '--vici', f'unix://{gateway.socket}'))['plane']
    return int(plane['icmp-believed']), int(plane['icmp-refused'])


def own_link_narrows_and_widens(lab, full):
    """The gateway's own link becomes narrower in mid-transfer, and wider again: the route follows at once, both times."""
    watch, us, them = both(lab)
    wide, narrow = (exact(path, 'aes128gcm16', True, False) for path in (1500, 1400))
    stream, back = Stream(lab), Stream(lab, 'g2', 'g1', port=7004)
    for s in (stream, back):
        flowing(s, 'at 1,500')
    rest = Rest(lab, us, them)
    for mtu, want in ((1400, narrow), (1500, wide)) * (3 if full else 1):
        # The router's end first when it widens, last when it narrows: a link whose ends differ swallows what is too big.
        for box, dev in (('g1', 'wan'), ('r', 'u1'))[::1 if mtu == 1400 else -1]:
            lab.ip(box, 'link', 'set', dev, 'mtu', mtu)
        settled(lab, 'g1', net('g2'), want, f'the own link is {mtu} now', timeout=1)
        for s in (stream, back):
            flowing(s, f'the own link is {mtu} now', narrower=mtu == 1400)
    for s in (stream, back):
        s.end()
    exactly(lab, 'g1', 'g2', wide, False, 'at the end')
    rest.check()
    watch.check('u1', 'g2')


def narrow_outer_links_from_the_start(lab, full):
    """Narrow outer links: exact, TCP flows, and nothing is cut outside but what nobody makes smaller: IPv6 packets of 1,280
    bytes and IPv4 packets of 576 must pass, and do not fit an outer packet that is no longer than they are."""
    watch, us, them = both(lab, mtu=1500)
    esp = 'aes128gcm16'
    cases = [(700, True, False, False), (1280, False, True, False), (1280, True, False, False),
             # From here on, fragments are what must be.
             (1280, True, True, True), (576, True, False, False)]
    if full:
        cases = [(mtu, encap, v6_outer, v6_inner) for mtu, v6_outer, v6_inner in (
            (700, False, False), (1280, True, False), (1280, False, False), (1280, True, True), (1280, False, True),
            (576, False, False)) for encap in (True, False)]
    for mtu, encap, v6_outer, v6_inner in cases:
        # Before the link becomes too narrow for what the tunnel runs over.
        us.swanctl('--terminate', '--ike', 'net')
        until('both ends are clean', lambda: not us.sas() and not them.sas())
        for box, dev in (('g1', 'wan'), ('r', 'u1'), ('r', 'g2'), ('g2', 'wan')):
            lab.ip(box, 'link', 'set', dev, 'mtu', mtu)
            if mtu >= 1280:
                readdress6(lab, box, dev)
        for gateway in (us, them):
            gateway.load(end_conf(gateway.box, esp, encap, v6_outer, v6_inner))
        us.initiate()
        least = 1280 if v6_inner else 576
        fits = exact(mtu, esp, encap, v6_outer)
        want = max(fits, least)
        what = (f"outer MTU {mtu}, {'in UDP' if encap else 'raw'}, {'IPv6' if v6_inner else 'IPv4'} in "
                f"{'IPv6' if v6_outer else 'IPv4'}")
        for box, peer in (('g1', 'g2'), ('g2', 'g1')):
            settled(lab, box, net(peer, v6_inner), want, what)
        before = watch.one('u1')
        exactly(lab, 'g1', 'g2', want, v6_inner, what)
        stream = Stream(lab, v6=v6_inner)
        flowing(stream, what)
        stream.end()
        if fits >= least:
            watch.check('u1', 'g2')
        else:
            after = watch.one('u1')
            cut = sum(after[k] - before[k] for k in ('sent_fragments4', 'sent_fragments6'))
            check(cut > 0, f'{what}: {cut} fragments outside, where {least} bytes do not fit')
    pair_at_rest(us, them)
    watch.check('u1', 'g2', fragments=True)


def narrow_link_behind_the_router(lab, full):
    """A link behind the router is too narrow for what nobody makes smaller: once the router has told, that leaves in fragments."""
    watch, us, them = both(lab, True, True, True)
    for mtu, encap, v6 in ((1280, True, True), (1280, False, True), (560, True, False), (560, False, False)):
        us.swanctl('--terminate', '--ike', 'net')
        until('both ends are clean', lambda: not us.sas() and not them.sas())
        for box, dev in (('r', 'g2'), ('g2', 'wan')):
            lab.ip(box, 'link', 'set', dev, 'mtu', mtu)
        for gateway in (us, them):
            gateway.load(end_conf(gateway.box, encap=encap, v6_outer=v6, v6_inner=v6))
        us.initiate()
        least = 1280 if v6 else 576
        what = f"{mtu} behind the router, {'in UDP' if encap else 'raw'}, {'IPv6 in IPv6' if v6 else 'IPv4 in IPv4'}"
        check(exact(mtu, 'aes128gcm16', encap, v6) < least, f'{what}: {least} bytes do not fit')
        # The router drops this, and tells.
        pings(lab, v6=v6, size=1200)
        settled(lab, 'g1', net('g2', v6), least, what)
        before = icmp(us)[0], watch.one('u1')
        check(before[0] > 0, f'{what}: the router is believed')
        exactly(lab, 'g1', 'g2', least, v6, what)
        after = watch.one('u1')
        cut = sum(after[k] - before[1][k] for k in ('sent_fragments4', 'sent_fragments6'))
        check(cut > 0, f'{what}: {cut} fragments outside')
    pair_at_rest(us, them)
    watch.check('u1', 'g2', fragments=True)


def readdress6(lab, box, dev):
    """A link narrower than 1,280 loses its IPv6 addresses (and the routes over it); this brings them back."""
    nets = {('g1', 'wan'): ('198.51.100', '1'), ('r', 'u1'): ('198.51.100', 'fe'), ('r', 'g2'): ('192.0.2', 'fe'),
            ('g2', 'wan'): ('192.0.2', '2')}
    net4, host = nets[(box, dev)]
    lab.ip(box, 'addr', 'replace', f'{v6_of(net4)}::{host}/64', 'dev', dev, 'nodad')
    if box != 'r':
        lab.ip(box, '-6', 'route', 'replace', 'default', 'via', f'{v6_of(net4)}::fe')


def filtered(lab):
    """The router says nothing of packets that are too large for its links."""
    lab.run('r', 'nft', 'add table inet mute; add chain inet mute out { type filter hook output priority 0; }; '
            'add rule inet mute out icmp type destination-unreachable drop; '
            'add rule inet mute out icmpv6 type packet-too-big drop')


# Seconds that a measurement takes on a path that is narrow, at the longest.
MEASURED = 25


def narrow_and_silent(lab, peer, cases, measures='yes'):
    """World and tunnel, over a far link of 1,300 bytes of which nobody tells, for each of `cases`: what is set up, and a TCP stream."""
    watch = world(lab)
    filtered(lab)
    us = IronSwan(lab, 'g1').start(end_conf('g1'))
    them = peer(lab, 'g2').start(end_conf('g2'))
    for esp, ike, encap, v6_outer in cases:
        what = f"{them.kind}, {esp} {'in UDP' if encap else 'raw'}, {'IPv6' if v6_outer else 'IPv4'}, IKE with {ike}"
        lab.ip('r', 'link', 'set', 'g2', 'mtu', '1300')
        for gateway in (us, them):
            text = end_conf(gateway.box, esp, encap, v6_outer).replace('proposals = aes128gcm16-prfsha256-x25519', f'proposals = {ike}')
            probe = f'path_probe = {measures}' if isinstance(gateway, IronSwan) else ''
            gateway.load(text.replace('version = 2', f'version = 2\n    {probe}'))
        us.initiate()
        yield what, watch, us, them, (esp, encap, v6_outer)
        us.swanctl('--terminate', '--ike', 'net')
        until('both ends are clean', lambda: not us.sas() and not them.sas())


def measured(lab, peer, cases):
    """A link that is narrow and silent carries TCP after one measurement; rekeyings pass meanwhile; a link that is wide again is found."""
    for what, watch, us, them, (esp, encap, v6_outer) in narrow_and_silent(lab, peer, cases):
        wide = exact(1500, esp, encap, v6_outer)
        settled(lab, 'g1', net('g2'), wide, f'{what}: at first')
        ike = us.ike_spis()
        time.sleep(1.3)
        # A probe is in flight, most likely: what comes now waits for it.
        began = time.monotonic()
        us.rekey('child')
        check(time.monotonic() - began < 4, f'{what}: a rekeying in the middle took {time.monotonic() - began:.1f} s')
        until('the path has been measured', lambda: route_mtu(lab, 'g1', net('g2')) != wide, MEASURED, 0.1)
        found = re.findall(r'the path from \S+ to (\S+) is narrower than believed: (\d+) bytes pass, (\d+) do not, and no ICMP error',
                           us.log())
        check(found and found[-1][0] == OUTER['g2'][v6_outer], f'{what}: the log says so: {found[-1:]}')
        size = int(found[-1][1])
        check(1280 < size <= 1300 and int(found[-1][2]) == 1500, f'{what}: {size} bytes pass')
        # With a cipher in CBC mode the largest message is a little smaller.
        settled(lab, 'g1', net('g2'), exact(size, esp, encap, v6_outer), what)
        check(us.ike_spis() == ike, f'{what}: the IKE_SA is the one of before')
        stream = Stream(lab)
        flowing(stream, f'{what}: after the measurement', stall=1)
        stream.end()
        us.rekey('ike')
        us.rekey('child')
        check(route_mtu(lab, 'g1', net('g2')) == exact(size, esp, encap, v6_outer), f'{what}: the successors know the path')
        pair_at_rest(us, them)
        us.swanctl('--terminate', '--ike', 'net')
        until('both ends are clean', lambda: not us.sas() and not them.sas())
        lab.ip('r', 'link', 'set', 'g2', 'mtu', '1500')
        us.initiate()
        time.sleep(4)
        settled(lab, 'g1', net('g2'), wide, f'{what}: the link is wide again')
        check(len(re.findall('narrower than believed', us.log())) == len(found), f'{what}: and nobody calls it narrow')
    check(not re.search('takes no messages that measure', us.log()), 'the peer has refused nothing')


GCM, CBC = 'aes128gcm16-prfsha256-x25519', 'aes128-sha256-x25519'


def silent_narrow_path_is_measured(lab, full):
    """IronSwan at both ends: in UDP and raw, over IPv4 and IPv6, IKE with an AEAD and in CBC mode."""
    cases = [('aes128gcm16', GCM, False, True), ('aes128gcm16', GCM, True, False), ('aes128-sha256', CBC, True, False)]
    measured(lab, IronSwan, cases if full else cases[:1])


def silent_narrow_path_to_strongswan_is_measured(lab, full):
    """strongSwan as peer, which knows nothing of this: it answers, in whatever form the message comes."""
    cases = [('aes128-sha256', CBC, True, False), ('aes128gcm16', GCM, True, False)]
    measured(lab, Charon, cases if full else cases[:1])


def silent_narrow_path_to_libreswan_is_measured(lab, full):
    """Libreswan as peer, behind a link that swallows all packets of more than 1,300 bytes, with DF and without: it answers fragments of IKE,
    and where it takes none an empty request."""
    line_before_guest(lab)
    lab.run('g2', 'nft', 'add table netdev hole; add chain netdev hole in { type filter hook ingress device eth0 priority 0; }; '
            'add rule netdev hole in ip length > 1300 counter drop')
    them = Libreswan(lab, libreswan.conf('g2'), 5 if full else 4)
    us = IronSwan(lab, 'g1').start(tunnel('g1', encap=False))
    for fragments in ('yes', 'no') if full else ('yes',):
        what = f'{them.kind}, fragmentation={fragments}'
        them.load(libreswan.conf('g2', more=f'fragmentation={fragments}'))
        us.initiate()
        ike = us.ike_spis()
        wide = exact(1500, 'aes128gcm16', False, False)
        settled(lab, 'g1', '10.2.0.0/24', wide, f'{what}: at first')

        def passes():
            # Without DF: this gateway cuts them, as the route says.
            done = lab.run('a', 'ping', '-n', '-q', '-c', '2', '-i', '0.2', '-W', '1', '-M', 'dont', '-s', '1400', '10.2.0.1', fail=False)
            return ' 0% packet loss' in done.stdout

        check(not passes(), f'{what}: packets of 1,400 bytes are lost')
        settled(lab, 'g1', '10.2.0.0/24', exact(1300, 'aes128gcm16', False, False), what, timeout=3 * MEASURED)
        check(passes(), f'{what}: they pass, cut to what fits')
        check(us.ike_spis() == ike, f'{what}: the IKE_SA is the one of before')
        us.rekey('child')
        us.rekey('ike')
        them.rekey('child')
        us.terminate()
        until('we have no SA', lambda: not us.sas())
    swallowed = lab.run('g2', 'nft', 'list', 'chain', 'netdev', 'hole', 'in')
    check(re.search(r'packets [1-9]', swallowed), 'the link has swallowed packets')
    check(not re.search('takes no messages that measure', us.log()), 'the peer has refused nothing')


def unmeasured_silent_path_stays_a_hole(lab, full):
    """With `path_probe = no` nothing is measured, and a host whose packets are too large waits in vain: the tests above see a difference."""
    for what, watch, us, them, (esp, encap, v6_outer) in narrow_and_silent(lab, IronSwan, [('aes128gcm16', GCM, True, False)], 'no'):
        # A measurement would be over by then.
        time.sleep(12 if full else 5)
        settled(lab, 'g1', net('g2'), exact(1500, esp, encap, v6_outer), f'{what}, unmeasured')
        check(pings(lab) and not pings(lab, size=1350), f'{what}, unmeasured: small packets pass, large ones are lost')
        check('narrower than believed' not in us.log(), 'and nobody says so')


TESTS = (
    routes_have_the_exact_mtu, exact_with_strongswan, exact_with_a_linux_kernel, path_narrows_udp, path_narrows_raw, path_narrows_ipv6,
    learnt_mtu_is_forgotten, forged_errors_are_not_believed, own_link_narrows_and_widens, narrow_outer_links_from_the_start,
    narrow_link_behind_the_router, silent_narrow_path_is_measured, silent_narrow_path_to_strongswan_is_measured,
    silent_narrow_path_to_libreswan_is_measured, unmeasured_silent_path_stays_a_hole)
main({f.__name__: f for f in TESTS}, 'mtu')
