#!/usr/bin/env python3
"""Helpers of inbound.py, run inside a box.

knock.py listen PORT                 counts UDP packets to a port by source address, IPv4 and IPv6; each line asks for what came
                                     since the last
knock.py send DEVICE MAC RATE KINDS  sends frames with forged sources, RATE of each kind a second, until a line asks how many
KINDS is JSON: [[source, destination], ..]
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


def packet(src, dst, port=PORT):
    """A UDP packet, with its Ethernet type."""
    src, dst = ip_address(src).packed, ip_address(dst).packed
    body = b'forged12'
    udp = struct.pack('!HHHH', 7001, port, 8 + len(body), 0) + body
    pseudo = src + dst + struct.pack('!II', len(udp), 17)
    udp = udp[:6] + struct.pack('!H', checksum(pseudo + udp) or 0xffff) + udp[8:]
    if len(src) == 4:
        head = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(udp), 7, 0, 64, 17, 0) + src + dst
        head = head[:10] + struct.pack('!H', checksum(head)) + head[12:]
        return 0x0800, head + udp
    return 0x86dd, struct.pack('!IHBB', 6 << 28, len(udp), 17, 64) + src + dst + udp


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
    listen(int(sys.argv[2])) if sys.argv[1] == 'listen' else send(*sys.argv[2:])
