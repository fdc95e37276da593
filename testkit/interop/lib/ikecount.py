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

# Protocols of packets (linux/if_ether.h).
EVERY, IPV4 = 0x0003, 0x0800
# Of linux/socket.h; this Python has no names for them.
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35


def ike(packet):
    """The IKE message in an IPv4 packet, if it holds one."""
    if len(packet) < 20:
        return None
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


def messages(device, protocol):
    """Yields (seconds, whether it leaves, packet, message) for each IKE message at a device, and None at each line of standard input,
    until that ends. `protocol` says which packets are looked at; those that leave are seen with `EVERY` alone."""
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(protocol))
    tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
    tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    tap.bind((device, protocol))
    tap.setblocking(False)
    print('ready', flush=True)

    def waiting():
        while True:
            try:
                packet, ancillary, _, (_, of, kind, *_) = tap.recvmsg(4096, 64)
            except BlockingIOError:
                return
            message = ike(packet) if of == IPV4 else None
            if message is not None:
                seconds, nanos = struct.unpack('qq', ancillary[0][2][:16])
                yield seconds + nanos / 1e9, kind == socket.PACKET_OUTGOING, packet, message

    while True:
        for source in select.select([tap, sys.stdin], [], [])[0]:
            yield from waiting()
            if source is sys.stdin:
                if not sys.stdin.readline():
                    return
                yield None


def main():
    seen = []
    for found in messages(sys.argv[1], IPV4):
        if found is None:
            print(json.dumps(seen), flush=True)
            seen.clear()
            continue
        at, _, packet, message = found
        spi, exchange, flags, mid = message[:8].hex(), message[18], message[19], struct.unpack_from('!I', message, 20)[0]
        seen.append([at, socket.inet_ntoa(packet[16:20]), spi, exchange, mid, bool(flags & 0x20),
                     hashlib.sha1(message).hexdigest()[:12]])


if __name__ == '__main__':
    main()
