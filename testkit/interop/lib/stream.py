#!/usr/bin/env python3
"""One TCP stream that goes on while the world changes, and can be asked how it is doing.

usage: stream.py sink ADDR PORT | stream.py source ADDR PORT
Says `ready` (source: when connected). Each line on standard input is answered by one JSON object about the time since the
line before; the stream ends when standard input does. Of a source: bytes given to the kernel, segments sent again, segment size and
path MTU as TCP sees them. Of a sink: bytes, and the longest pause between two arrivals, the one going on included.
"""
import json
import select
import socket
import struct
import sys
import time

TCP_INFO_SIZE = 104


def tcp_info(sock):
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
    words = struct.unpack('=24I', raw[8:TCP_INFO_SIZE])
    return {'mss': words[2], 'pmtu': words[13], 'retransmitted': words[23]}


def sink(address, port):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen()
    print('ready', flush=True)
    sock, _ = listener.accept()
    count, longest, last = 0, 0.0, time.monotonic()
    while True:
        for source in select.select([sock, sys.stdin], [], [])[0]:
            now = time.monotonic()
            if source is sock:
                data = sock.recv(1 << 20)
                if not data:
                    return
                count, longest, last = count + len(data), max(longest, now - last), now
            else:
                if not sys.stdin.readline():
                    return
                print(json.dumps({'bytes': count, 'longest_gap_ms': round(max(longest, now - last) * 1e3, 1)}), flush=True)
                count, longest = 0, 0.0


def source(address, port):
    sock = socket.create_connection((address, port), 20)
    sock.setblocking(False)
    print('ready', flush=True)
    data, count, before = bytes(1 << 17), 0, 0
    while True:
        readable, writable, _ = select.select([sys.stdin], [sock], [], 0.2)
        if writable:
            count += sock.send(data)
        if readable:
            if not sys.stdin.readline():
                return
            info = tcp_info(sock)
            before, info['retransmitted'] = info['retransmitted'], info['retransmitted'] - before
            print(json.dumps({'bytes': count, **info}), flush=True)
            count = 0


{'sink': sink, 'source': source}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
