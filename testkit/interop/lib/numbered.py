#!/usr/bin/env python3
"""Sends numbered, stamped UDP packets at a fixed rate and records those that arrive from the other end.

usage: numbered.py LOCAL_ADDR REMOTE_ADDR [--rate N] [--size BYTES] [--port P] [--linger SECONDS]
Says `ready`, starts at the first line of standard input and runs until that ends: then it stops sending, goes on receiving
for 2 s (or as long as it is told to linger), and prints one JSON object.
Every packet is checked whole: a changed byte counts as corrupt.
"""
import argparse
import json
import select
import socket
import struct
import sys
import time

HEADER = struct.Struct('!QQ')


def filling(number, size):
    """The bytes after the header; they depend on the number, so that mixed-up packets are noticed."""
    pattern = bytes((number + i) & 0xff for i in range(256))
    return (pattern * (size // 256 + 1))[:size]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument('local')
    arguments.add_argument('remote')
    arguments.add_argument('--rate', type=float, default=1000)
    arguments.add_argument('--size', type=int, default=100, help='UDP payload')
    arguments.add_argument('--port', type=int, default=7000)
    arguments.add_argument('--linger', type=float, default=2)
    o = arguments.parse_args()

    sock = socket.socket(socket.AF_INET6 if ':' in o.local else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind((o.local, o.port))
    sock.setblocking(False)
    fillings = [filling(n, o.size - HEADER.size) for n in range(256)]

    sent = unsent = received = duplicates = reordered = corrupt = 0
    seen = set()
    highest, last_arrival, longest_gap = -1, None, 0.0
    delays = []
    print('ready', flush=True)
    sys.stdin.readline()
    started = time.monotonic()
    sending = True
    end = None
    while end is None or time.monotonic() < end:
        now = time.monotonic()
        if sending:
            due = int((now - started) * o.rate)
            while sent + unsent < due:
                number = sent + unsent
                try:
                    sock.sendto(HEADER.pack(number, time.monotonic_ns()) + fillings[number & 0xff], (o.remote, o.port))
                    sent += 1
                except OSError:
                    unsent += 1
            wait = max(0.0, started + (sent + unsent + 1) / o.rate - now)
        else:
            wait = 0.1
        for source in select.select([sock] + ([sys.stdin] if sending else []), [], [], wait)[0]:
            if source is sys.stdin:
                if not sys.stdin.readline():
                    sending, end = False, time.monotonic() + o.linger
                    # A silence that lasts until now is a gap too.
                    if last_arrival is not None:
                        longest_gap = max(longest_gap, time.monotonic() - last_arrival)
                continue
            for _ in range(64):
                try:
                    packet = sock.recv(65536)
                except BlockingIOError:
                    break
                except OSError:
                    continue
                arrival = time.monotonic()
                number, stamp = HEADER.unpack_from(packet)
                if packet[HEADER.size:] != fillings[number & 0xff]:
                    corrupt += 1
                    continue
                if number in seen:
                    duplicates += 1
                    continue
                seen.add(number)
                received += 1
                delays.append(time.monotonic_ns() - stamp)
                if number < highest:
                    reordered += 1
                highest = max(highest, number)
                if last_arrival is not None and arrival - last_arrival > longest_gap:
                    longest_gap = arrival - last_arrival
                last_arrival = arrival
    delays.sort()
    missing = sorted(set(range(highest + 1)) - seen)
    print(json.dumps({
        'sent': sent, 'unsent': unsent, 'received': received, 'duplicates': duplicates, 'reordered': reordered,
        'corrupt': corrupt, 'highest': highest, 'missing': missing[:20], 'longest_gap_ms': round(longest_gap * 1e3, 1),
        'delay_ms_median': round(delays[len(delays) // 2] / 1e6, 2) if delays else None,
        'delay_ms_p99': round(delays[len(delays) * 99 // 100] / 1e6, 2) if delays else None,
        'delay_ms_max': round(delays[-1] / 1e6, 2) if delays else None,
    }))


main()
