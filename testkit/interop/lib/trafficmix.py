#!/usr/bin/env python3
"""A steady mix of what may have to be protected: UDP, ICMP echo, TCP SYNs and live connections, IPv4 and IPv6.

usage: trafficmix.py load SPEC.json BOX      sends those of the kinds that are of this box
       trafficmix.py echo SPEC.json          answers all kinds on this machine
SPEC: {"rate": packets per second of all kinds together, "kinds": [{"id", "name", "box", "proto": udp|icmp|syn|live,
"src": address or null for an unbound socket, "dst", "at": where it is answered if not at dst, "port", "size": of
the payload, "ttl", "type": of ICMP, if not an echo}], "control": {BOX: {"device", "mac"}}}.
Says `ready`, starts at once; answers each line on standard input with one JSON object {kind: [sent, refused, answered]}
of what happened since the last one, at the line `fresh` after it has given up all connections; ends with its input.
Refused: the kernel said no (unreachable, not permitted, no room). Every payload begins with the magic and the kind's
number, by which the sniffer knows it.

Control packets, a hundred per second and numbered, go onto the wire beneath the IP stack: the sniffer must see each.
"""
import collections
import ipaddress
import json
import os
import selectors
import socket
import struct
import sys
import time

from sniff import CONTROL, CONTROL_PORT, MAGIC, TAG

IP_BIND_ADDRESS_NO_PORT, IP_MTU_DISCOVER, IP_PMTUDISC_DONT = 24, 10, 0
CONTROL_RATE = 100


def checksum(data):
    if len(data) % 2:
        data += b'\0'
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def payload(kind):
    start = TAG.pack(MAGIC, kind['id'])
    # The mark again and again, so that each fragment of a large one has it.
    return (start * (kind.get('size', 32) // len(start) + 1))[:max(len(start), kind.get('size', 32))]


def family(kind):
    return socket.AF_INET6 if ':' in kind['dst'] else socket.AF_INET


class Sender:
    """One kind of packet."""

    def __init__(self, kind, poll):
        self.kind, self.poll, self.family = kind, poll, family(kind)
        self.payload = payload(kind)
        self.sent = self.refused = self.answered = self.number = 0
        self.to = (kind['dst'], kind.get('port', 0))

    def bound(self, sock_type, proto=0):
        s = socket.socket(self.family, sock_type, proto)
        s.setblocking(False)
        if self.kind.get('ttl'):
            v4 = self.family == socket.AF_INET
            s.setsockopt(*((socket.IPPROTO_IP, socket.IP_TTL) if v4 else
                           (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS)), self.kind['ttl'])
        if self.kind['src']:
            if sock_type == socket.SOCK_STREAM:
                s.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            s.bind((self.kind['src'], 0))
        return s

    def send(self):
        try:
            self.one()
            self.sent += 1
        except OSError:
            self.refused += 1

    def fresh(self):
        """Forgets connections, and with them the addresses they have."""

    def cut(self):
        result = [self.sent, self.refused, self.answered]
        self.sent = self.refused = self.answered = 0
        return result


class Datagrams(Sender):
    """UDP and ICMP echo, from one socket."""

    def __init__(self, kind, poll):
        super().__init__(kind, poll)
        self.icmp = kind['proto'] == 'icmp'
        if not self.icmp:
            self.sock = self.bound(socket.SOCK_DGRAM)
        elif self.family == socket.AF_INET:
            self.sock = self.bound(socket.SOCK_RAW, socket.IPPROTO_ICMP)
        else:
            self.sock = self.bound(socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        # Not what the load is about, and large when there are fragments: the path's MTU need not be known.
        if self.family == socket.AF_INET:
            self.sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        poll.register(self.sock, selectors.EVENT_READ, self.answers)

    def one(self):
        data = self.payload
        if self.icmp:
            self.number = (self.number + 1) & 0xffff
            v4 = self.family == socket.AF_INET
            head = struct.pack('!BBHHH', self.kind.get('type', 8 if v4 else 128), 0, 0, self.kind['id'], self.number)
            if v4:
                head = head[:2] + struct.pack('!H', checksum(head + data)) + head[4:]
            data = head + data
        self.sock.sendto(data, (self.to[0], 0) if self.icmp else self.to)

    def answers(self):
        reply = 0 if self.family == socket.AF_INET else 129
        for _ in range(64):
            try:
                data = self.sock.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                continue
            if self.icmp:
                at = 4 * (data[0] & 15) if self.family == socket.AF_INET else 0
                mine = data[at] == reply and data[at + 8:at + 8 + TAG.size] == self.payload[:TAG.size]
            else:
                mine = data[:TAG.size] == self.payload[:TAG.size]
            self.answered += mine


class Syns(Sender):
    """A new connection each time; reset once it stands, or when many newer ones wait."""

    def __init__(self, kind, poll):
        super().__init__(kind, poll)
        self.open = collections.deque()

    def one(self):
        while self.open and (len(self.open) >= 24 or self.open[0].fileno() < 0):
            self.forget(self.open.popleft())
        s = self.bound(socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        try:
            s.connect(self.to)
        except BlockingIOError:
            self.open.append(s)
            self.poll.register(s, selectors.EVENT_WRITE, lambda: self.done(s))
        except OSError:
            s.close()
            raise

    def fresh(self):
        while self.open:
            self.forget(self.open.popleft())

    def done(self, s):
        # Given up by an event that came before this one.
        if s.fileno() < 0:
            return
        self.answered += s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        self.forget(s)

    def forget(self, s):
        if s.fileno() >= 0:
            self.poll.unregister(s)
            s.close()


class Live(Sender):
    """One connection that stays, small segments; made anew when it broke."""

    sock, up = None, False

    def one(self):
        if self.sock is None:
            self.sock = self.bound(socket.SOCK_STREAM)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 5000)
            # Nothing of it goes on after it was closed.
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            self.up = False
            try:
                self.sock.connect(self.to)
            except BlockingIOError:
                self.poll.register(self.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self.ready)
            except OSError:
                self.lose()
                raise
        elif self.up:
            try:
                self.sock.send(self.payload)
            except BlockingIOError:
                raise
            except OSError:
                self.lose()
                raise
        else:
            raise BlockingIOError('still connecting')

    def fresh(self):
        if self.sock:
            self.lose()

    def lose(self):
        try:
            self.poll.unregister(self.sock)
        except (KeyError, ValueError):
            pass
        self.sock.close()
        self.sock = None

    def ready(self):
        # Given up by an event that came before this one.
        if self.sock is None:
            return
        try:
            if not self.up:
                error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, 'connection failed')
                self.up = True
                self.poll.modify(self.sock, selectors.EVENT_READ, self.ready)
                return
            data = self.sock.recv(65536)
            if not data:
                raise OSError('closed')
            self.answered += data.count(self.payload[:TAG.size])
        except BlockingIOError:
            pass
        except OSError:
            self.lose()


class Control:
    """Numbered packets on a wire, past routing and netfilter."""

    def __init__(self, box, device, mac):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.device, self.mac = device, bytes.fromhex(mac.replace(':', ''))
        self.box, self.number = int(''.join(c for c in box if c.isdigit()) or 0), 0

    def send(self):
        data = CONTROL + struct.pack('!HI', self.box, self.number)
        udp = struct.pack('!HHHH', CONTROL_PORT, CONTROL_PORT, 8 + len(data), 0) + data
        ends = ipaddress.ip_address('192.0.2.250').packed, ipaddress.ip_address('255.255.255.255').packed
        ip = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(udp), 0, 0, 1, 17, 0) + ends[0] + ends[1]
        ip = ip[:10] + struct.pack('!H', checksum(ip)) + ip[12:]
        try:
            self.sock.sendto(self.mac + bytes(6) + b'\x08\x00' + ip + udp, (self.device, 0x0800))
            self.number += 1
        except OSError:
            # The device is down: this number was not sent.
            pass


def load(spec, box):
    poll = selectors.DefaultSelector()
    poll.register(sys.stdin, selectors.EVENT_READ)
    classes = {'udp': Datagrams, 'icmp': Datagrams, 'syn': Syns, 'live': Live}
    mine = [k for k in spec['kinds'] if k['box'] == box]
    # A source address may come later, with its interface.
    waiting, senders = list(mine), []
    control = Control(box, **spec['control'][box]) if box in spec.get('control', {}) else None
    rate = spec['rate'] * len(mine) / len(spec['kinds']) if spec['kinds'] else 0
    print('ready', flush=True)
    began = last_try = time.monotonic()
    done = controls = 0
    while True:
        now = time.monotonic()
        if waiting and (now - last_try > 0.02 or not senders):
            last_try, waiting = now, [k for k in waiting if not make(classes[k['proto']], k, poll, senders)]
        due = int((now - began) * rate)
        while done < due:
            if senders:
                senders[done % len(senders)].send()
            done += 1
        while control and controls < (now - began) * CONTROL_RATE:
            control.send()
            controls += 1
        pause = min((done + 1) / rate if rate else 1, (controls + 1) / CONTROL_RATE if control else 1) + began - now
        for key, _ in poll.select(max(0.0005, pause)):
            if key.data:
                key.data()
                continue
            line = sys.stdin.readline()
            if not line:
                return
            if line == 'fresh\n':
                for sender in senders:
                    sender.fresh()
            report = {s.kind['name']: s.cut() for s in senders}
            report.update({k['name']: [0, 0, 0] for k in waiting})
            print(json.dumps({'kinds': report, 'control': control.number if control else 0}), flush=True)


def make(cls, kind, poll, senders):
    try:
        senders.append(cls(kind, poll))
        return True
    except OSError:
        return False


def echo(spec):
    """UDP and TCP of every kind's port; ICMP is answered by the kernel."""
    poll = selectors.DefaultSelector()
    poll.register(sys.stdin, selectors.EVENT_READ)

    def datagrams(s):
        for _ in range(64):
            try:
                data, address = s.recvfrom(65536)
                s.sendto(data, address)
            except BlockingIOError:
                return
            except OSError:
                continue

    def accept(s):
        try:
            connection, _ = s.accept()
        except OSError:
            return
        connection.setblocking(False)
        poll.register(connection, selectors.EVENT_READ, lambda: stream(connection))

    def stream(connection):
        try:
            data = connection.recv(65536)
            if data:
                connection.send(data)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        poll.unregister(connection)
        connection.close()

    for kind in spec['kinds']:
        if kind['proto'] == 'icmp':
            continue
        s = socket.socket(family(kind), socket.SOCK_DGRAM if kind['proto'] == 'udp' else socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setblocking(False)
        try:
            # Behind a NAT the address is another than the sender's.
            s.bind((kind.get('at', kind['dst']), kind['port']))
        except OSError:
            # This kind goes to another box.
            s.close()
            continue
        if kind['proto'] == 'udp':
            poll.register(s, selectors.EVENT_READ, lambda s=s: datagrams(s))
        else:
            s.listen(64)
            poll.register(s, selectors.EVENT_READ, lambda s=s: accept(s))
    print('ready', flush=True)
    while True:
        for key, _ in poll.select():
            if key.data:
                key.data()
            elif not sys.stdin.readline():
                return


def main():
    # The load comes before other programs, whatever the nice value of whoever runs the test.
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    with open(sys.argv[2]) as f:
        spec = json.load(f)
    echo(spec) if sys.argv[1] == 'echo' else load(spec, sys.argv[3])


if __name__ == '__main__':
    main()
