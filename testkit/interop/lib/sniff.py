#!/usr/bin/env python3
"""Watches links for packets that should have been encrypted, or should not have come through.

usage: sniff.py SPEC.json DEVICE ...        (of its own network namespace)
SPEC: {"nets": [inner prefixes], "outer": [the gateways' addresses], "kinds": [as trafficmix.py], "local": [addresses
of this box], "sockets": true}.
Says `ready`; answers each line `cut` on standard input with one JSON object about all that came since the last one,
having first read everything that the kernel holds; ends with its input. Instead of `cut`, a JSON object {"box 1": number of
control packets sent, ...} makes it wait for these packets first, for a second at most.

A frame is encrypted when it is ESP, or UDP of ports 500 and 4500, between the gateways, with no mark of the load in it.
AH hides nothing: what is inside it between the gateways is protected when it is of a kind with "ah", and clear else; so
is IPComp or an IP packet in another outside of ESP.
It is clear when it carries the load's magic, or an inner address, or one of the load's ports, and named `(inner)` when
both addresses are inner ones; ICMP errors are looked into. What is neither (ARP, neighbour discovery, IKE by another
address) is counted as other.

The proof that it misses nothing: the kernel's count of what its sockets dropped, and numbered control packets
(`CONTROL`) that the gateways put on the wire beneath their IP stack, of which every number must come.
With "sockets", packets that reach this box's own sockets are counted too, by raw sockets of every protocol: they see
what netfilter's input chain has let through.
"""
import collections
import ipaddress
import json
import selectors
import socket
import struct
import sys
import time

MAGIC, CONTROL = b'LEAKTEST', b'CONTROLS'
TAG = struct.Struct('!8sH')
CONTROL_PORT = 9
SNAP = 2048
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING, PACKET_MR_PROMISC = 263, 1, 6, 23, 1
OUTGOING = 4
ETH_IP, ETH_IP6, ETH_ALL = 0x0800, 0x86DD, 3
EXTENSIONS = (0, 43, 60)
AH = 51
# IP in IP, IPv6 in IP, IPComp: nothing between the gateways is any of these outside of ESP; nor AH where no policy asks for it.
BARE = (4, 41, 108, AH)


class Inner:
    """What a frame's IP headers say: source, destination, protocol, and where the next header begins."""

    __slots__ = ('src', 'dst', 'proto', 'at', 'first', 'v6')

    def __init__(self, frame, at, v6):
        self.v6 = v6
        if v6:
            self.src, self.dst = frame[at + 8:at + 24], frame[at + 24:at + 40]
            proto, at, first = frame[at + 6], at + 40, True
            while (proto in EXTENSIONS or proto == 44) and at + 8 <= len(frame):
                if proto == 44:
                    first = first and not struct.unpack_from('!H', frame, at + 2)[0] & 0xfff8
                    length = 8
                else:
                    length = 8 * (frame[at + 1] + 1)
                proto, at = frame[at], at + length
            self.proto, self.at, self.first = proto, at, first
        else:
            self.src, self.dst = frame[at + 12:at + 16], frame[at + 16:at + 20]
            self.proto = frame[at + 9]
            self.first = not struct.unpack_from('!H', frame, at + 6)[0] & 0x1fff
            self.at = at + 4 * (frame[at] & 15)

    def ports(self, frame):
        if self.first and self.proto in (6, 17) and len(frame) >= self.at + 4:
            return struct.unpack_from('!HH', frame, self.at)
        return ()


class Judge:
    """Sorts frames."""

    def __init__(self, spec):
        nets = [ipaddress.ip_network(n) for n in spec['nets']]
        self.nets = [(n.network_address.packed, n.prefixlen) for n in nets]
        self.outer = {ipaddress.ip_address(a).packed for a in spec['outer']}
        self.kinds = {k['id']: k['name'] for k in spec['kinds']}
        # Those whose policy asks for AH: inside it they are as they should be.
        self.ah = {k['id'] for k in spec['kinds'] if k.get('ah')}
        self.ports = {k['port']: k['name'] for k in spec['kinds'] if k.get('port')}
        self.known = {}

    def inner(self, address):
        """Is it in one of the protected networks? Remembered, as there are few."""
        if address not in self.known:
            number = int.from_bytes(address, 'big')
            self.known[address] = any(
                len(net) == len(address)
                and (number ^ int.from_bytes(net, 'big')) >> (8 * len(net) - length) == 0 for net, length in self.nets)
        return self.known[address]

    def judge(self, frame, at=14, kind=None):
        """('encrypted' | 'clear' | 'control' | 'other', what exactly)."""
        ethertype = struct.unpack_from('!H', frame, 12)[0] if kind is None else kind
        if ethertype not in (ETH_IP, ETH_IP6) or len(frame) < at + (40 if ethertype == ETH_IP6 else 20):
            return 'other', 'ethertype %04x' % ethertype
        packet = Inner(frame, at, ethertype == ETH_IP6)
        ports = packet.ports(frame)
        magic = frame.find(MAGIC, packet.at)
        if magic >= 0:
            # A frame that carries the load is clear whatever its addresses and protocol say.
            number = TAG.unpack_from(frame, magic)[1] if len(frame) >= magic + TAG.size else -1
            name = self.kinds.get(number, f'kind {number}')
            if self.ah and self.in_ah(packet, frame) and number in self.ah:
                return 'encrypted', None
            if self.ah and self.quoted(packet, frame)[0] == 'encrypted':
                return 'other', 'error about AH'
            return 'clear', f'error about {name}' if self.is_error(packet, frame) else self.whole(name, packet)
        if CONTROL in frame[packet.at:packet.at + 16 + len(CONTROL)]:
            return 'control', None
        if packet.src in self.outer and packet.dst in self.outer:
            if packet.proto == 50 or (packet.proto == 17 and ports and (500 in ports or 4500 in ports)):
                return 'encrypted', None
            if packet.proto == 17 and not packet.first:
                return 'other', 'fragment of an outer packet'
            if self.ah and self.in_ah(packet, frame):
                return 'encrypted', None
            if packet.proto in BARE:
                return 'clear', f'protocol {packet.proto} between the gateways'
        if packet.proto in (6, 17):
            for port in ports:
                if port in self.ports:
                    return 'clear', self.whole(self.ports[port], packet)
        what, name = self.quoted(packet, frame)
        if what == 'clear':
            return 'clear', f'error about {name}'
        if self.inner(packet.src) or self.inner(packet.dst):
            return 'clear', f'{show(packet.src)} > {show(packet.dst)} protocol {packet.proto}'
        return 'other', f'{show(packet.src)} > {show(packet.dst)} protocol {packet.proto}'

    def quoted(self, packet, frame):
        """What an ICMP error quotes, judged."""
        quoted = frame[packet.at + 8:] if self.is_error(packet, frame) else b''
        if len(quoted) < (40 if packet.v6 else 20):
            return None, None
        return self.judge(bytes(14) + quoted, 14, ETH_IP6 if packet.v6 else ETH_IP)

    def in_ah(self, packet, frame):
        """Is it AH between the gateways? Its header is looked at where there is one: in the first fragment."""
        if packet.proto != AH or packet.src not in self.outer or packet.dst not in self.outer:
            return False
        if not packet.first:
            return True
        if len(frame) < packet.at + 12:
            return False
        _, length, reserved, spi = struct.unpack_from('!BBHI', frame, packet.at)
        return length >= 3 and not reserved and spi > 255

    def whole(self, name, packet):
        """The name, and whether both addresses are inner ones."""
        return f'{name} (inner)' if self.inner(packet.src) and self.inner(packet.dst) else name

    @staticmethod
    def is_error(packet, frame):
        if not packet.first or len(frame) <= packet.at:
            return False
        kind = frame[packet.at]
        return (packet.proto == 58 and kind < 128) if packet.v6 else (packet.proto == 1 and kind in (3, 4, 5, 11, 12))


def show(address):
    return str(ipaddress.ip_address(address))


class Link:
    """One device, everything that comes and goes on it."""

    def __init__(self, device):
        self.device = device
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.sock.setblocking(False)
        index = socket.if_nametoindex(device)
        self.sock.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, struct.pack('iHH8s', index, PACKET_MR_PROMISC, 0, b''))
        self.sock.bind((device, ETH_ALL))
        self.dropped()

    def dropped(self):
        """Packets the kernel could not queue since the last call."""
        return struct.unpack('II', self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]


class Counts:
    def __init__(self):
        self.frames = self.other = 0
        self.encrypted, self.clear, self.others = (collections.Counter() for _ in range(3))
        # When the last of each clear kind was seen, by the kernel's clock (CLOCK_REALTIME, seconds), and the beginning of the first.
        self.local, self.last, self.examples = collections.Counter(), {}, {}


class Sniffer:
    def __init__(self, spec, devices):
        self.judge = Judge(spec)
        self.links = [Link(d) for d in devices]
        self.control = {}
        self.missing = 0
        self.counts = Counts()
        self.local = {ipaddress.ip_address(a).packed for a in spec.get('local', [])}
        self.raws = []
        if spec.get('sockets'):
            for family, protos in ((socket.AF_INET, (1, 6, 17)), (socket.AF_INET6, (58, 6, 17))):
                for proto in protos:
                    s = socket.socket(family, socket.SOCK_RAW, proto)
                    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
                    s.setblocking(False)
                    self.raws.append((s, family, proto))
        # The control packets are for this port: with nobody there, errors would go back.
        self.discard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.discard.bind(('', CONTROL_PORT))

    def read_link(self, link, limit):
        """Up to `limit` frames; how many there were."""
        for n in range(limit):
            try:
                frame, ancillary, _, address = link.sock.recvmsg(SNAP, 64)
            except BlockingIOError:
                return n
            except OSError:
                # The device went down; it tells once.
                continue
            outgoing = address[2] == OUTGOING
            self.counts.frames += 1
            what, name = self.judge.judge(frame)
            if what == 'encrypted':
                self.counts.encrypted[link.device] += not outgoing
            elif what == 'control':
                if not outgoing:
                    self.count_control(frame)
            elif what == 'clear':
                way = f"{'to' if outgoing else 'from'} {link.device}"
                self.counts.clear[f'{name} | {way}'] += 1
                seconds, nanos = struct.unpack('qq', ancillary[0][2][:16])
                self.counts.last[f'{name} | {way}'] = seconds + nanos / 1e9
                self.counts.examples.setdefault(f'{name} | {way}', frame[:96].hex())
            else:
                self.counts.others[name] += 1
        return limit

    def count_control(self, frame):
        at = frame.index(CONTROL) + len(CONTROL)
        box, number = struct.unpack_from('!HI', frame, at)
        box = f'box {box}'
        came, next_number = self.control.get(box, (0, 0))
        self.missing += max(0, number - next_number)
        self.control[box] = (came + 1, number + 1)

    def read_raw(self, raw, limit):
        sock, family, proto = raw
        for n in range(limit):
            try:
                packet, address = sock.recvfrom(SNAP)
            except BlockingIOError:
                return n
            except OSError:
                continue
            if MAGIC in packet:
                tag = TAG.unpack_from(packet, packet.index(MAGIC))[1]
                self.counts.local[self.judge.kinds.get(tag, f'kind {tag}')] += 1
        return limit

    def wait_for(self, numbers):
        """Reads until the control packets of each box have come up to these numbers, for a second at most: on a busy machine the
        last one may still be on its way when the question is asked."""
        end = time.monotonic() + 1
        while any(self.control.get(box, (0, 0))[1] < number for box, number in numbers.items()) and time.monotonic() < end:
            for link in self.links:
                self.read_link(link, 1000)
            time.sleep(0.002)

    def report(self):
        for link in self.links:
            while self.read_link(link, 1000):
                pass
        for raw in self.raws:
            while self.read_raw(raw, 1000):
                pass
        c, self.counts = self.counts, Counts()
        return {'frames': c.frames, 'encrypted': c.encrypted, 'clear': c.clear, 'last': c.last,
                'examples': c.examples, 'other': dict(c.others.most_common(12)), 'local': c.local,
                'control': {box: came for box, (came, _) in self.control.items()},
                'next': {box: number for box, (_, number) in self.control.items()},
                'control_missing': self.missing, 'dropped': sum(link.dropped() for link in self.links)}


def main():
    with open(sys.argv[1]) as f:
        sniffer = Sniffer(json.load(f), sys.argv[2:])
    poll = selectors.DefaultSelector()
    for link in sniffer.links:
        poll.register(link.sock, selectors.EVENT_READ, lambda link=link: sniffer.read_link(link, 200))
    for raw in sniffer.raws:
        poll.register(raw[0], selectors.EVENT_READ, lambda raw=raw: sniffer.read_raw(raw, 200))
    poll.register(sys.stdin, selectors.EVENT_READ)
    print('ready', flush=True)
    while True:
        for key, _ in poll.select():
            if key.data:
                key.data()
            elif not (line := sys.stdin.readline()):
                return
            else:
                sniffer.wait_for(json.loads(line) if line[0] == '{' else {})
                print(json.dumps(sniffer.report()), flush=True)


if __name__ == '__main__':
    main()
