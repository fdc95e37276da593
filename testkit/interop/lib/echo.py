#!/usr/bin/env python3
"""Traffic that shows its content arrived: an echo server, and a talker that compares what comes back byte by byte.

usage: echo.py serve [--shell ADDR]      UDP and TCP echo on port 7 of all addresses, and on port 8 without IP options. With
                                         --shell it runs, too, what a line of JSON on TCP port 9 of ADDR says (a shell
                                         command), and answers [status, output]; and its UDP port 4500 takes ESP for the
                                         kernel's SAs (UDP_ENCAP).
       echo.py talk                      reads jobs, one JSON object a line, and answers each with one (see `talk`).
"""
import itertools
import json
import random
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

PORT, WITHOUT_OPTIONS, SHELL = 7, 8, 9
IP_RETOPTS, IP_PKTINFO, IP_MTU_DISCOVER = 7, 8, 10
IPV6_RECVHOPOPTS, IPV6_HOPOPTS, IPV6_RECVDSTOPTS, IPV6_DSTOPTS = 53, 54, 58, 59
UDP_ENCAP, ESPINUDP, SO_RCVBUFFORCE = 100, 2, 33


def echo(s, v6):
    """One datagram back, from the address that it was sent to, with the options that it came with."""
    data, info, _, peer = s.recvmsg(1 << 16, 1024)
    reply = []
    for level, kind, value in info:
        if v6 and (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            reply.append((level, kind, value[:16] + bytes(4)))
        elif (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
            reply.append((level, kind, bytes(4) + value[8:12] + bytes(4)))
        elif (level, kind) in ((socket.IPPROTO_IP, IP_RETOPTS), (socket.IPPROTO_IPV6, IPV6_HOPOPTS),
                               (socket.IPPROTO_IPV6, IPV6_DSTOPTS)):
            reply.append((level, kind, value))
    try:
        s.sendmsg([data], reply, 0, peer)
    except OSError as why:
        print(f'echo of {len(data)} bytes to {peer}: {why}', flush=True)


def answer(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def shell(connection):
    with connection, connection.makefile('rw') as lines:
        for line in lines:
            done = subprocess.run(['sh'], input=json.loads(line), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors='replace')
            lines.write(json.dumps([done.returncode, done.stdout]) + '\n')
            lines.flush()


def accept(listener, serve):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def listen(address, port, serve, family=socket.AF_INET):
    s = socket.create_server((address, port), family=family, backlog=64)
    threading.Thread(target=accept, args=(s, serve), daemon=True).start()


def serve(shell_address):
    ready = selectors.DefaultSelector()
    for (family, any_address), port in itertools.product(((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')),
                                                         (PORT, WITHOUT_OPTIONS)):
        v6 = family == socket.AF_INET6
        s = socket.socket(family, socket.SOCK_DGRAM)
        if v6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            for option in (socket.IPV6_RECVPKTINFO, *((IPV6_RECVHOPOPTS, IPV6_RECVDSTOPTS) if port == PORT else ())):
                s.setsockopt(socket.IPPROTO_IPV6, option, 1)
        else:
            s.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            s.setsockopt(socket.IPPROTO_IP, IP_RETOPTS, port == PORT)
            s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, 0)
        s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 21)
        s.bind((any_address, port))
        ready.register(s, selectors.EVENT_READ, v6)
        if port == WITHOUT_OPTIONS:
            continue
        listen(any_address, PORT, answer, family)
        if shell_address:
            encap = socket.socket(family, socket.SOCK_DGRAM)
            if v6:
                encap.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            encap.bind((any_address, 4500))
            encap.setsockopt(socket.IPPROTO_UDP, UDP_ENCAP, ESPINUDP)
            ready.register(encap, selectors.EVENT_READ, None)
    if shell_address:
        listen(shell_address, SHELL, shell)
    print('ready', flush=True)
    while True:
        for key, _ in ready.select():
            if key.data is None:
                key.fileobj.recv(1 << 16)
            else:
                echo(key.fileobj, key.data)


class Talker:
    """One job, a dict:

    to, from          addresses
    sizes             of UDP datagrams, in bytes; `port` they go to, `window` how many are on their way at once
    plain             'random', or 'text', which compresses well
    tcp, tcp_df       bytes there and back over TCP; whether with path MTU discovery
    ip_options, hop_options, dst_options    of the datagrams, hexadecimal
    ping              {IPv4 options: how many}
    raw               packets with their IP header, sent before all else, hexadecimal
    wait              seconds for what is missing
    """

    def __init__(self, job):
        self.job, self.v6 = job, ':' in job.get('to', '')
        self.family = socket.AF_INET6 if self.v6 else socket.AF_INET
        self.random = random.Random(zlib.crc32(json.dumps(job, sort_keys=True).encode()))
        self.lost, self.corrupt, self.received, self.wait = [], [], 0, job.get('wait', 2)

    def data(self, n, size):
        """The content of datagram n: it begins with its number as far as there is room."""
        if self.job.get('plain', 'random') == 'text':
            body = (f'{n}: the same words again and again; ' * (size // 30 + 1)).encode()
        else:
            body = self.random.randbytes(size)
        return (struct.pack('!H', n) + body)[:size]

    def socket(self, kind, protocol=0):
        s = socket.socket(self.family, kind, protocol)
        if not self.v6:
            s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, kind == socket.SOCK_STREAM and self.job.get('tcp_df', True))
        s.bind((self.job['from'], 0))
        return s

    def udp(self):
        if not self.job.get('sizes'):
            return
        s = self.socket(socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 21)
        for key, level, option in (('ip_options', socket.IPPROTO_IP, socket.IP_OPTIONS),
                                   ('hop_options', socket.IPPROTO_IPV6, IPV6_HOPOPTS),
                                   ('dst_options', socket.IPPROTO_IPV6, IPV6_DSTOPTS)):
            if self.job.get(key):
                s.setsockopt(level, option, bytes.fromhex(self.job[key]))
        s.connect((self.job['to'], self.job.get('port', PORT)))
        waiting = {}
        todo = [self.data(n, size) for n, size in enumerate(self.job.get('sizes', []))]
        n, end = 0, time.monotonic() + self.wait
        while n < len(todo) or waiting:
            # Fewer large ones at once: an echo server that is held up must not lose what waits for it.
            while n < len(todo) and (not waiting or len(waiting) < self.job.get('window', 24)
                                     and sum(map(len, waiting)) + len(todo[n]) < 40_000):
                waiting[todo[n]] = waiting.get(todo[n], 0) + 1
                s.send(todo[n])
                n += 1
            s.settimeout(max(0.001, end - time.monotonic()))
            try:
                got = s.recv(1 << 16)
            except TimeoutError:
                break
            if got in waiting:
                waiting[got] -= 1
                if not waiting[got]:
                    del waiting[got]
                self.received += 1
                end = time.monotonic() + self.wait
            else:
                self.corrupt.append(len(got))
        self.lost += [len(d) for d, times in waiting.items() for _ in range(times)] + [len(d) for d in todo[n:]]

    def tcp(self):
        data = self.data(0, self.job['tcp'])
        s = self.socket(socket.SOCK_STREAM)
        s.settimeout(5 + self.wait)
        s.connect((self.job['to'], PORT))
        threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)), daemon=True).start()
        got = b''
        while more := s.recv(1 << 16):
            got += more
        if got != data:
            (self.lost if len(got) < len(data) else self.corrupt).append(len(data))

    def pings(self):
        """Echo requests with IPv4 options, which the other side's kernel sends back in its reply."""
        for options, count in self.job['ping'].items():
            s = self.socket(socket.SOCK_RAW, socket.IPPROTO_ICMP)
            s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes.fromhex(options))
            s.connect((self.job['to'], 0))
            s.settimeout(self.wait)
            for n in range(count):
                body = struct.pack('!HH', 0x5157, n) + self.data(n, 40 + n)
                total = sum(struct.unpack(f'!{(len(body) + 1) // 2}H', body + bytes(len(body) % 2))) + 0x800
                total = (total & 0xffff) + (total >> 16)
                total = (total & 0xffff) + (total >> 16)
                s.send(struct.pack('!BBH', 8, 0, ~total & 0xffff) + body)
                try:
                    while True:
                        packet = s.recv(1 << 16)
                        head = (packet[0] & 15) * 4
                        if packet[head] == 0 and packet[head + 4:] == body:
                            break
                except TimeoutError:
                    self.lost.append(f'ping {options}')
                    continue
                # Record route and timestamps come back, filled in; the kernel answers others without.
                if options[:2] in ('07', '44') and (head == 20 or packet[20] != int(options[:2], 16)):
                    self.corrupt.append(f'options {packet[20:head].hex()}')
                self.received += 1

    def raw(self):
        for packet in map(bytes.fromhex, self.job.get('raw', [])):
            v6 = packet[0] >> 4 == 6
            with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
                to = socket.inet_ntop(s.family, packet[24:40] if v6 else packet[16:20])
                s.sendto(packet, (to, 0))

    def run(self):
        began = time.monotonic()
        try:
            self.raw()
            self.udp()
            if self.job.get('tcp'):
                self.tcp()
            if self.job.get('ping'):
                self.pings()
            error = ''
        except OSError as why:
            error = str(why)
        return {'received': self.received, 'lost': self.lost, 'corrupt': self.corrupt, 'error': error,
                'seconds': round(time.monotonic() - began, 3)}


def main():
    if sys.argv[1:2] == ['serve']:
        serve(sys.argv[3] if sys.argv[2:3] == ['--shell'] else None)
    elif sys.argv[1:] == ['talk']:
        print('ready', flush=True)
        for line in sys.stdin:
            print(json.dumps(Talker(json.loads(line)).run()), flush=True)
    else:
        sys.exit(__doc__.strip())


if __name__ == '__main__':
    main()
