#!/usr/bin/env python3
"""Puts packets on a link that must not come in clear: with inner addresses, from outside.

usage: trafficinject.py SPEC.json DEVICE MAC      MAC: the gateway's
SPEC: {"kinds": [{"id", "name", "form", "src", "dst", "port"}]}. At each line `N` on standard input sends N of each
kind, says how many frames that were, and ends with its input.

form: udp, icmp, syn; fragments (a UDP datagram in two), tiny (UDP whose first fragment ends before the ports are whole:
8 bytes in the first), second (only a later fragment), routed (IPv4 loose source route, IPv6 routing header of type 0),
options (IPv6 destination options before the UDP header), broadcast (to the broadcast MAC).
"""
import ipaddress
import json
import socket
import struct
import sys

from trafficmix import checksum
from sniff import MAGIC, TAG

VIA = {4: '10.1.0.1', 6: 'fd00:1::1'}
UDP, ICMP, TCP, FRAGMENT, ROUTING, OPTIONS, ICMP6 = 17, 1, 6, 44, 43, 60, 58


class Build:
    """The frames of one kind."""

    def __init__(self, kind):
        self.kind = kind
        self.src, self.dst = (ipaddress.ip_address(kind[k]) for k in ('src', 'dst'))
        self.v6 = self.dst.version == 6
        self.tag = TAG.pack(MAGIC, kind['id']) * 3
        self.number = 0

    def upper(self, proto, head, at, final=None):
        """A transport header with its checksum (at offset `at`) over the pseudo-header."""
        length = len(head) + len(self.tag)
        final = final or self.dst
        if self.v6:
            pseudo = self.src.packed + final.packed + struct.pack('!II', length, proto)
        else:
            pseudo = self.src.packed + final.packed + struct.pack('!BBH', 0, proto, length)
        if proto == ICMP:
            pseudo = b''
        whole = head + self.tag
        return whole[:at] + struct.pack('!H', checksum(pseudo + whole) or 0xffff) + whole[at + 2:]

    def udp(self, final=None):
        head = struct.pack('!HHHH', self.kind['port'], self.kind['port'], 8 + len(self.tag), 0)
        return self.upper(UDP, head, 6, final)

    def ip4(self, proto, body, fragment=0, options=b'', dst=None):
        words = 5 + len(options) // 4
        head = struct.pack('!BBHHHBBH', 0x40 | words, 0, 4 * words + len(body), self.number, fragment, 64, proto, 0)
        head += self.src.packed + (dst or self.dst).packed + options
        return head[:10] + struct.pack('!H', checksum(head)) + head[12:] + body

    def ip6(self, proto, body, dst=None):
        return struct.pack('!IHBB', 6 << 28, len(body), proto, 64) + self.src.packed + (dst or self.dst).packed + body

    def packets(self):
        self.number = (self.number + 1) & 0xffff
        form = self.kind['form']
        proto, body = UDP, None
        if form == 'icmp':
            proto = ICMP6 if self.v6 else ICMP
            head = struct.pack('!BBHHH', 128 if self.v6 else 8, 0, 0, self.kind['id'], self.number)
            body = self.upper(proto, head, 2)
        elif form == 'syn':
            proto = TCP
            port = self.kind['port']
            head = struct.pack('!HHIIBBHHH', port, port, self.number << 8, 0, 0x50, 2, 8192, 0, 0)
            body = self.upper(TCP, head, 16)
        body = body or self.udp()
        if form in ('fragments', 'tiny', 'second'):
            cut = 8 if form == 'tiny' else 24
            pieces = [(0, body[:cut], 1), (cut, body[cut:], 0)][1 if form == 'second' else 0:]
            if self.v6:
                return [self.ip6(FRAGMENT, struct.pack('!BBHI', UDP, 0, at | more, self.number) + piece)
                        for at, piece, more in pieces]
            return [self.ip4(UDP, piece, at // 8 | more << 13) for at, piece, more in pieces]
        if form == 'routed' and self.v6:
            # RFC 2460 section 4.4: type 0, one segment left, which RFC 5095 has forbidden since.
            via = ipaddress.ip_address(VIA[6])
            return [self.ip6(ROUTING, struct.pack('!BBBBI', UDP, 2, 0, 1, 0) + self.dst.packed + self.udp(), via)]
        if form == 'routed':
            # RFC 791 section 3.1: loose source and record route, one address, and an end of options.
            options = struct.pack('!BBB', 131, 7, 4) + self.dst.packed + b'\0'
            return [self.ip4(UDP, self.udp(), options=options, dst=ipaddress.ip_address(VIA[4]))]
        if form == 'options':
            return [self.ip6(OPTIONS, struct.pack('!BBBBI', UDP, 0, 1, 4, 0) + body)]
        return [self.ip6(proto, body) if self.v6 else self.ip4(proto, body)]


def main():
    with open(sys.argv[1]) as f:
        builds = [Build(k) for k in json.load(f)['kinds'] if 'form' in k]
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((sys.argv[2], 0))
    mac = bytes.fromhex(sys.argv[3].replace(':', ''))
    print('ready', flush=True)
    for line in sys.stdin:
        frames = 0
        for _ in range(int(line)):
            for build in builds:
                to = b'\xff' * 6 if build.kind['form'] == 'broadcast' else mac
                for packet in build.packets():
                    sock.send(to + bytes(6) + (b'\x86\xdd' if build.v6 else b'\x08\x00') + packet)
                    frames += 1
        print(frames, flush=True)


if __name__ == '__main__':
    main()
