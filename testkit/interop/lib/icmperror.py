#!/usr/bin/env python3
"""Sends forged ICMP errors about UDP datagrams, run in the box of whoever forges them.

usage: icmperror.py FROM OURS OUR_PORT PEER PEER_PORT COUNT [QUOTED]
FROM is the address in whose name the errors come. Each pair of type and code that says that a datagram did not get through is sent COUNT
times, with the 8 bytes of the UDP header that RFC 792 asks for, or with the bytes of QUOTED (in hexadecimal) behind it.
"""
import socket
import sys

from forge import checksum, ipv4

KINDS = [(3, code) for code in range(16) if code != 4] + [(11, 0), (5, 1), (12, 0)]


def error(kind, code, quoted):
    body = bytes([kind, code]) + bytes(2) + bytes(4) + quoted
    return body[:2] + checksum(body).to_bytes(2, 'big') + body[4:]


def main():
    source, ours, our_port, peer, peer_port, count, *quoted = sys.argv[1:]
    payload = bytes.fromhex(quoted[0]) if quoted else b''
    udp = b''.join(n.to_bytes(2, 'big') for n in (int(our_port), int(peer_port), 8 + max(len(payload), 300), 0))
    about = ipv4(ours, peer, 17, udp + payload)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for _ in range(int(count)):
            for kind, code in KINDS:
                raw.sendto(ipv4(source, ours, 1, error(kind, code, about)), (ours, 0))


if __name__ == '__main__':
    main()
