#!/usr/bin/env python3
"""Frames with ESP that lie, for an SA that there is: made of frames that were seen to leave.

usage: lies.py DEVICE TO SEED       TO: the MAC address of the gateway they are for
Says `ready`, records the ESP frames that leave by the device until a line comes, says how many it has, and at each further line
`N` sends N rounds of every kind and says how many frames of each kind those were.
"""
import json
import random
import select
import socket
import struct
import sys
import time

from forge import checksum

ETHERNET, IPV4, UDP = 14, 20, 8
OUTGOING = 4
PORT = 4500
MARTIANS = ('0.0.0.0', '127.0.0.1', '224.0.0.1', '255.255.255.255', '240.0.0.1')


def put(data, at, form, *values):
    """The same with something else in it."""
    new = struct.pack(form, *values)
    return data[:at] + new + data[at + len(new):]


def summed(frame):
    """With a right IPv4 checksum."""
    frame = put(frame, ETHERNET + 10, '!H', 0)
    return put(frame, ETHERNET + 10, '!H', checksum(frame[ETHERNET:ETHERNET + IPV4]))


class Liar:
    def __init__(self, frames, to):
        self.frames, self.to = frames, to
        self.in_udp = frames[0][ETHERNET + 9] == 17
        self.at = ETHERNET + IPV4 + UDP * self.in_udp
        self.spi = frames[0][self.at:self.at + 4]
        # What is to come is not to be guessed: the numbers after these are the genuine ones.
        self.last = struct.unpack_from('!I', frames[-1], self.at + 4)[0]

    def whole(self, esp, frame=None):
        """A frame whose headers say the truth about this ESP packet."""
        frame = (frame or self.frames[0])[:self.at] + esp
        frame = put(frame, ETHERNET + 2, '!H', len(frame) - ETHERNET)
        if self.in_udp:
            frame = put(frame, ETHERNET + IPV4 + 4, '!HH', len(esp) + UDP, 0)
        return summed(frame)

    def kinds(self):
        """One of each, every time another."""
        true = random.choice(self.frames)
        size, room = len(true), len(true) - self.at
        number = random.choice((0, 1, self.last + 1, self.last + 2000, 0x7fffffff, 0xffffffff))
        forged = self.spi + struct.pack('!I', number) + random.randbytes(random.choice((1, 8, 15, 16, 24, 25, 40, 400, 1300)))
        bit = random.randrange(self.at + 4, size)
        yield 'forged', self.whole(forged)
        yield 'replayed', true
        yield 'replayed', true + random.randbytes(random.randrange(1, 200))
        yield 'damaged', put(self.whole(put(true[self.at:], 4, '!I', self.last + random.randrange(1, 100))), size - 1, '!B',
                             true[-1] ^ 1)
        yield 'damaged', put(true, bit, '!B', true[bit] ^ 1 << random.randrange(8))
        yield 'cut', self.whole(true[self.at:self.at + random.randrange(8, room)])
        yield 'no such SPI', self.whole(struct.pack('!I', random.randrange(256, 1 << 32)) + true[self.at + 4:])
        yield 'reserved SPI', self.whole(struct.pack('!I', random.randrange(1, 256)) + true[self.at + 4:])
        # From here on only headers lie; `xdp` sees what the kernel would have dropped.
        yield 'IP too long', summed(put(true, ETHERNET + 2, '!H', random.randrange(size - ETHERNET + 1, 65536)))
        yield 'IP too short', summed(put(true, ETHERNET + 2, '!H', random.randrange(0, size - ETHERNET)))
        yield 'IP checksum', put(true, ETHERNET + 10, '!H', struct.unpack_from('!H', true, ETHERNET + 10)[0] ^ 0x0100)
        yield 'IP header', summed(put(true, ETHERNET, '!B', random.choice((0x40, 0x44, 0x46, 0x4f, 0x65, 0x05, 0xf5))))
        yield 'fragment', summed(put(true, ETHERNET + 6, '!H', random.choice((0x2000, 0x2001, 0x0001, 0x1fff, 0x8000))))
        yield 'martian', summed(put(true, ETHERNET + 12, '4s', socket.inet_aton(random.choice(MARTIANS))))
        yield 'our own', summed(put(true, ETHERNET + 12, '4s', true[ETHERNET + 16:ETHERNET + 20]))
        yield 'for another', summed(put(true, ETHERNET + 16, '4s', random.randbytes(4)))
        yield 'other MAC', random.choice((b'\xff' * 6, b'\x02\0\0\0\0\1')) + true[6:]
        yield 'VLAN', true[:12] + struct.pack('!HH', 0x8100, random.randrange(4096)) + true[12:]
        yield 'IPv6', put(true, 12, '!H', 0x86dd)
        yield 'a piece', true[:random.randrange(ETHERNET, self.at + 8)]
        yield 'noise', true[:self.at + 4] + random.randbytes(random.randrange(0, 100))
        if self.in_udp:
            udp = ETHERNET + IPV4
            yield 'UDP too long', put(true, udp + 4, '!HH', random.randrange(UDP + room + 1, 65536), 0)
            yield 'UDP too short', put(true, udp + 4, '!HH', random.randrange(0, UDP + room), 0)
            yield 'port 0', put(true, udp, '!H', 0)
            yield 'other port', put(put(true, udp, '!H', random.randrange(1, 65536)), udp + 6, '!H', 0)


def record(sock):
    """The ESP frames that leave until there is a line."""
    frames = []
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        while select.select([sock], [], [], 0)[0]:
            frame, address = sock.recvfrom(65536)
            if address[2] != OUTGOING or frame[12:14] != b'\x08\0':
                continue
            udp = frame[ETHERNET + 9] == 17 and struct.unpack_from('!H', frame, ETHERNET + IPV4 + 2)[0] == PORT
            at = ETHERNET + IPV4 + UDP * udp
            # Neither IKE nor several packets in one frame.
            if (udp and frame[at:at + 4] != bytes(4) or frame[ETHERNET + 9] == 50) and at + 24 < len(frame) <= 1514:
                frames.append(frame)
    sys.stdin.readline()
    return frames


def main():
    device, to, seed = sys.argv[1], bytes.fromhex(sys.argv[2].replace(':', '')), int(sys.argv[3])
    random.seed(seed)
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((device, 3))
    print('ready', flush=True)
    frames = record(sock)
    print(len(frames), flush=True)
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    out.bind((device, 0))
    liar = Liar(frames, to)
    for line in sys.stdin:
        counts = {}
        for n in range(int(line)):
            for kind, frame in liar.kinds():
                if kind != 'other MAC':
                    frame = to + frame[6:]
                out.send(frame[:1514])
                counts[kind] = counts.get(kind, 0) + 1
            if n % 4 == 3:
                time.sleep(0.002)
        print(json.dumps(counts), flush=True)


if __name__ == '__main__':
    main()
