#!/usr/bin/env python3
"""Measures how long requests of the exchange INFORMATIONAL wait for their answers, as seen at a device of the box that asks.

usage: answers.py DEVICE
Says `ready`; at each line `cut` on standard input prints a JSON list of milliseconds, one for each request that was answered since the
last one; ends with its input.
"""
import json
import select
import socket
import struct
import sys

from ikecount import ike

INFORMATIONAL = 37
SO_TIMESTAMPNS = 35


def main():
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUFFORCE if hasattr(socket, 'SO_RCVBUFFORCE') else 33, 32 << 20)
    tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    tap.bind((sys.argv[1], 0x0003))
    tap.setblocking(False)
    asked, waited = {}, []
    print('ready', flush=True)

    def drain():
        while True:
            try:
                packet, ancillary, _, (_, protocol, kind, *_) = tap.recvmsg(4096, 64)
            except BlockingIOError:
                return
            message = ike(packet) if protocol == 0x0800 and len(packet) >= 20 else None
            if message is None or message[18] != INFORMATIONAL:
                continue
            seconds, nanos = struct.unpack('qq', ancillary[0][2][:16])
            response, mid = bool(message[19] & 0x20), message[20:24]
            at, key = seconds + nanos / 1e9, (message[:16], mid)
            if kind == socket.PACKET_OUTGOING and not response:
                asked.setdefault(key, at)
            elif kind != socket.PACKET_OUTGOING and response and key in asked:
                waited.append((at - asked.pop(key)) * 1e3)

    while True:
        for source in select.select([tap, sys.stdin], [], [])[0]:
            drain()
            if source is sys.stdin:
                if not sys.stdin.readline():
                    return
                print(json.dumps(waited), flush=True)
                waited.clear()


if __name__ == '__main__':
    main()
