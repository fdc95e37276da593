#!/usr/bin/env python3
"""Helpers of inbound.py, run inside a box.

knock.py listen PORT                 counts UDP packets to a port by source address, IPv4 and IPv6; each line asks for what came
                                     since the last
knock.py tap DEVICE PORT             the same of what a packet socket for IPv4 sees at a device, as a DHCP client does
knock.py send DEVICE MAC RATE KINDS  sends frames with forged sources, RATE of each kind a second, until a line asks how many
knock.py once DEVICE MAC KINDS       sends 20 of each kind
KINDS is JSON: [[source, destination], ..]; of `once` [{"src", "dst", "sport", "port", "size": of what is in the UDP packet, "tags": in
hexadecimal digits}, ..]; what is larger than 1,400 bytes is sent in fragments, which only IPv4 can
"""
import json
import select
import socket
import struct
import sys
import time
from ipaddress import ip_address

PORT = 7000


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def packet(src, dst, port=PORT, sport=7001, size=8):
    """A UDP packet, with its Ethernet type."""
    src, dst = ip_address(src).packed, ip_address(dst).packed
    body = (b'forged12' * size)[:size]
    udp = struct.pack('!HHHH', sport, port, 8 + len(body), 0) + body
    pseudo = src + dst + struct.pack('!II', len(udp), 17)
    udp = udp[:6] + struct.pack('!H', checksum(pseudo + udp) or 0xffff) + udp[8:]
    if len(src) == 4:
        head = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(udp), 7, 0, 64, 17, 0) + src + dst
        head = head[:10] + struct.pack('!H', checksum(head)) + head[12:]
        return 0x0800, head + udp
    return 0x86dd, struct.pack('!IHBB', 6 << 28, len(udp), 17, 64) + src + dst + udp


def fragments(data):
    """An IPv4 packet in pieces."""
    head, body = data[:20], data[20:]
    for at in range(0, len(body), 1400):
        part = body[at:at + 1400]
        more = 0x2000 if at + 1400 < len(body) else 0
        head = head[:2] + struct.pack('!HHH', 20 + len(part), 9, more | at // 8) + head[8:10] + bytes(2) + head[12:]
        yield head[:10] + struct.pack('!H', checksum(head)) + head[12:] + part


def once(device, mac, kinds):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((device, 0))
    to = bytes.fromhex(mac.replace(':', ''))
    for kind in json.loads(kinds):
        tags = bytes.fromhex(kind.pop('tags', ''))
        number, data = packet(**kind)
        for _ in range(20):
            for part in fragments(data) if len(data) > 1400 else [data]:
                s.send(to + s.getsockname()[4] + tags + struct.pack('!H', number) + part)


def tap(device, port):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    s.bind((device, 0x0800))
    ready()
    came = {}
    while True:
        for ready_one in select.select([s, sys.stdin], [], [])[0]:
            if ready_one is sys.stdin:
                if not sys.stdin.readline():
                    return
                answer(came)
                came = {}
                continue
            data = s.recv(2000)
            if data[9:10] == b'\x11' and data[22:24] == struct.pack('!H', port):
                source = str(ip_address(data[12:16]))
                came[source] = came.get(source, 0) + 1


def ready():
    print('ready', flush=True)


def answer(what):
    print(json.dumps(what), flush=True)


def listen(port):
    sockets = []
    for family, any_address in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')):
        s = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((any_address, port))
        sockets.append(s)
    ready()
    came = {}
    while True:
        for s in select.select([*sockets, sys.stdin], [], [])[0]:
            if s is sys.stdin:
                if not sys.stdin.readline():
                    return
                answer(came)
                came = {}
            else:
                source = s.recvfrom(2000)[1][0]
                came[source] = came.get(source, 0) + 1


def send(device, mac, rate, kinds):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((device, 0))
    to = bytes.fromhex(mac.replace(':', ''))
    frames = []
    for src, dst in json.loads(kinds):
        kind, data = packet(src, dst)
        frames.append(to + s.getsockname()[4] + struct.pack('!H', kind) + data)
    ready()
    sent, began = 0, time.monotonic()
    while True:
        if select.select([sys.stdin], [], [], 0.005)[0]:
            if not sys.stdin.readline():
                return
            answer({'sent': sent * len(frames)})
            sent, began = 0, time.monotonic()
        while sent < (time.monotonic() - began) * float(rate):
            for frame in frames:
                s.send(frame)
            sent += 1


if __name__ == '__main__':
    what, args = sys.argv[1], sys.argv[2:]
    if what == 'listen':
        listen(int(args[0]))
    elif what == 'tap':
        tap(args[0], int(args[1]))
    else:
        {'send': send, 'once': once}[what](*args)
