#!/usr/bin/env python3
"""Sends IKE_SA_INIT requests as many strangers, at a fixed rate, and counts what is answered.

usage: strangers.py MODE TARGET PREFIX RATE SECONDS
MODE: cookies    a new request each time, from any address of PREFIX; a cookie that is asked for is brought back
      refused    proposals that nobody accepts, from any address of PREFIX; every twentieth request has 9 KB
      repeated   one and the same request, from the first address of PREFIX
PREFIX (IPv4 or IPv6) must be routed to this box, which takes all of its addresses for its own:
ip route add local PREFIX dev lo. Prints one JSON object.
"""
import ipaddress
import json
import os
import random
import select
import socket
import struct
import sys
import time

from flood import payload, sa_init, transform

IP_PKTINFO, IPV6_PKTINFO, IP_FREEBIND = 8, 50, 15


def proposals(*key_lengths):
    """One proposal with AES-GCM of a key length that does not exist, for each."""
    body = b''
    for number, bits in enumerate(key_lengths, 1):
        transforms = transform(False, 1, 20, bits) + transform(False, 2, 5) + transform(True, 4, 31)
        last = number == len(key_lengths)
        body += struct.pack('!BBHBBBB', 0 if last else 2, 0, 8 + len(transforms), number, 1, 0, 3) + transforms
    return body


def refused(spi, size):
    """A request that fits nothing; a vendor ID makes it as long as asked for."""
    count = 1 if size < 1000 else 60
    body = (payload(34, proposals(*range(1000, 1000 + count))) + payload(40, struct.pack('!HH', 31, 0) + bytes(range(32))) +
            payload(43 if size > 1000 else 0, os.urandom(16)))
    if size > 1000:
        body += payload(0, bytes(size - 28 - len(body) - 4))
    return spi + bytes(8) + struct.pack('!BBBBII', 33, 0x20, 34, 0x08, 0, 28 + len(body)) + body


def with_cookie(request, cookie):
    """The same with COOKIE in front."""
    notify = payload(request[16], struct.pack('!BBH', 0, 0, 16390) + cookie)
    return request[:16] + bytes([41]) + request[17:24] + struct.pack('!I', len(request) + len(notify)) + notify + request[28:]


class Strangers:
    def __init__(self, target, prefix):
        self.net = ipaddress.ip_network(prefix)
        self.v6 = self.net.version == 6
        self.socket = socket.socket(socket.AF_INET6 if self.v6 else socket.AF_INET, socket.SOCK_DGRAM)
        if self.v6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self.socket.setsockopt(socket.IPPROTO_IPV6, 49, 1)
        else:
            self.socket.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        self.socket.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        self.socket.bind(('::' if self.v6 else '0.0.0.0', 500))
        self.socket.setblocking(False)
        self.target = (target, 500)
        self.seen = {'sent': 0, 'bytes sent': 0, 'cookies': 0, 'full': 0, 'refusals': 0, 'bytes answered': 0, 'unsent': 0}

    def address(self):
        return (self.net.network_address + random.randrange(1, min(self.net.num_addresses, 1 << 62))).packed

    def send(self, source, request):
        """Sends from this address, which is one of the prefix."""
        if self.v6:
            info = [(socket.IPPROTO_IPV6, IPV6_PKTINFO, source + struct.pack('=I', 0))]
        else:
            info = [(socket.IPPROTO_IP, IP_PKTINFO, struct.pack('=I', 0) + source + bytes(4))]
        try:
            self.socket.sendmsg([request], info, 0, self.target)
            self.seen['sent'] += 1
            self.seen['bytes sent'] += len(request)
        except OSError:
            self.seen['unsent'] += 1

    def answers(self):
        """What has come: (our address, message)."""
        while True:
            try:
                message, ancillary, _, _ = self.socket.recvmsg(4096, 256)
            except (BlockingIOError, ConnectionError):
                return
            data = ancillary[0][2]
            self.seen['bytes answered'] += len(message)
            if message[16] == 41 and message[34:36] == struct.pack('!H', 16390):
                kind = 'cookies'
            else:
                kind = 'full' if message[16] == 33 else 'refusals'
            self.seen[kind] += 1
            yield (data[:16] if self.v6 else data[8:12]), message, kind


def main():
    mode, target, prefix, rate, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5])
    random.seed(1)
    strangers = Strangers(target, prefix)
    asked = {}
    public = os.urandom(32)
    one = sa_init(os.urandom(8), public, os.urandom(32))
    first = (strangers.net.network_address + 1).packed
    start = time.monotonic()
    count = 0
    while (now := time.monotonic()) < start + seconds:
        due = int((now - start) * rate)
        while count < due:
            count += 1
            if mode == 'repeated':
                strangers.send(first, one)
            elif mode == 'refused':
                strangers.send(strangers.address(), refused(os.urandom(8), 9000 if count % 20 == 0 else 132))
            else:
                request = sa_init(os.urandom(8), public, os.urandom(32))
                asked[request[:8]] = request
                strangers.send(strangers.address(), request)
        for source, message, kind in strangers.answers():
            request = asked.pop(message[:8], None)
            if request and kind == 'cookies':
                count += 1
                strangers.send(source, with_cookie(request, message[36:]))
        if len(asked) > 10000:
            asked.clear()
        select.select([strangers.socket], [], [], max(0, start + (count + 1) / rate - time.monotonic()))
    time.sleep(0.5)
    for _ in strangers.answers():
        pass
    print(json.dumps({**strangers.seen, 'seconds': round(time.monotonic() - start, 1)}))


if __name__ == '__main__':
    main()
