#!/usr/bin/env python3
"""A name server of one file: answers A and AAAA from lines `NAME ADDR`, read anew for every question.

usage: names.py ADDR FILE
What is not in the file does not exist (NXDOMAIN); a name without an address of the type asked for has an empty answer.
"""
import socket
import struct
import sys


def question(packet):
    """The name and type asked for, and where the question ends."""
    at, labels = 12, []
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode('ascii', 'replace').lower())
        at += 1 + packet[at]
    return '.'.join(labels), struct.unpack('!H', packet[at + 1:at + 3])[0], at + 5


def answer(packet, path):
    name, kind, end = question(packet)
    with open(path) as f:
        known = [line.split() for line in f if line.strip()]
    addresses = [a for n, a in known if n == name]
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    records = b''
    count = 0
    for a in addresses:
        if family == (socket.AF_INET6 if ':' in a else socket.AF_INET):
            data = socket.inet_pton(family, a)
            # A pointer to the question's name, class IN, one second to live.
            records += struct.pack('!HHHIH', 0xc00c, kind, 1, 1, len(data)) + data
            count += 1
    flags = 0x8580 | (0 if addresses else 3)
    return packet[:2] + struct.pack('!HHHHH', flags, 1, count, 0, 0) + packet[12:end] + records


def main():
    address, path = sys.argv[1:]
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, 53))
    print('ready', flush=True)
    while True:
        packet, peer = sock.recvfrom(4096)
        try:
            sock.sendto(answer(packet, path), peer)
        except (IndexError, struct.error):
            pass


main()
