#!/usr/bin/env python3
"""Writes down every IKE datagram that comes into a box by a device: when, to whom, which.

usage: ikecount.py DEVICE
Says `ready`; at each line `cut` on standard input prints one JSON list of [seconds, destination, initiator's SPI, exchange,
message id, response, digest of its bytes] about all that came since the last one; ends with its input.
"""
import hashlib
import json
import select
import socket
import struct
import sys


def ike(packet):
    """The IKE message in an IPv4 packet, if it holds one."""
    at = 4 * (packet[0] & 15)
    if packet[9] != 17 or len(packet) < at + 36:
        return None
    _, to = struct.unpack_from('!HH', packet, at)
    at += 8
    if to == 4500:
        if packet[at:at + 4] != bytes(4):
            return None
        at += 4
    elif to != 500:
        return None
    return packet[at:] if len(packet) >= at + 28 else None


def main():
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    tap.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
    tap.setsockopt(socket.SOL_SOCKET, 35, 1)
    tap.bind((sys.argv[1], 0x0800))
    tap.setblocking(False)
    seen = []
    print('ready', flush=True)

    def drain():
        while True:
            try:
                packet, ancillary, _, (_, _, kind, *_) = tap.recvmsg(4096, 64)
            except BlockingIOError:
                return
            if kind == socket.PACKET_OUTGOING or len(packet) < 20:
                continue
            message = ike(packet)
            if message is None:
                continue
            seconds, nanos = struct.unpack('qq', ancillary[0][2][:16])
            spi, exchange, flags, mid = message[:8].hex(), message[18], message[19], struct.unpack_from('!I', message, 20)[0]
            seen.append([seconds + nanos / 1e9, socket.inet_ntoa(packet[16:20]), spi, exchange, mid, bool(flags & 0x20),
                         hashlib.sha1(message).hexdigest()[:12]])

    while True:
        for source in select.select([tap, sys.stdin], [], [])[0]:
            drain()
            if source is sys.stdin:
                if not sys.stdin.readline():
                    return
                print(json.dumps(seen), flush=True)
                seen = []


if __name__ == '__main__':
    main()
