#!/usr/bin/env python3
"""An attacker on the path who can read and send, but not stop anything: replays, garbage and forged ICVs from elsewhere.

usage: spy.py DEVICE VICTIM        DEVICE: where packets to VICTIM (an IPv4 address) leave; it must be a router's
Commands on standard input, one a line; each is answered by one line of JSON:
    WHAT SOURCE PORT [COUNT]       sends from SOURCE:PORT to the victim's port 4500, WHAT being
        replay      the newest ESP packet, as it was
        garbage     the right SPI, a sequence number far ahead, and noise
        forged      the newest ESP packet with a sequence number ahead and its ICV as it was
        flipped     the newest ESP packet with the last bit of its ICV turned
        ike         the newest IKE message, as it was
        ikeflipped  the newest IKE message with its last bit turned
"""
import json
import os
import select
import socket
import struct
import sys


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def datagram(source, port, target, payload):
    udp = struct.pack('!HHHH', port, 4500, 8 + len(payload), 0) + payload
    pseudo = source + target + struct.pack('!BBH', 0, 17, len(udp))
    udp = udp[:6] + struct.pack('!H', checksum(pseudo + udp) or 0xffff) + udp[8:]
    return struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, source, target) + udp


def make(what, esp, ike):
    if what in ('ike', 'ikeflipped'):
        message = bytes(4) + ike
        return message if what == 'ike' else message[:-1] + bytes([message[-1] ^ 1])
    spi, sequence = struct.unpack('!II', esp[:8])
    ahead = struct.pack('!II', spi, sequence + 20)
    return {'replay': esp, 'garbage': ahead + os.urandom(len(esp) - 8), 'forged': ahead + esp[8:],
            'flipped': esp[:-1] + bytes([esp[-1] ^ 1])}[what]


def main():
    device, victim = sys.argv[1], socket.inet_aton(sys.argv[2])
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    tap.bind((device, 3))
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    esp = ike = None
    where = {}
    print('ready', flush=True)
    while True:
        for source in select.select([tap, sys.stdin], [], [])[0]:
            if source is tap:
                packet, (_, _, kind, *_) = tap.recvfrom(65536)
                if kind != socket.PACKET_OUTGOING or packet[9] != 17 or packet[16:20] != victim:
                    continue
                udp = packet[(packet[0] & 15) * 4:]
                source_port, port, length = struct.unpack('!HHH', udp[:6])
                payload = udp[8:length]
                if port != 4500 or len(payload) < 9:
                    continue
                if payload[:4] == bytes(4):
                    ike = payload[4:]
                else:
                    esp = payload
                where['seen'] = f'{socket.inet_ntoa(packet[12:16])}:{source_port}'
                continue
            words = sys.stdin.readline().split()
            if not words:
                return
            what, address, port, count = words[0], words[1], int(words[2]), int(words[3]) if len(words) > 3 else 1
            if (ike if what.startswith('ike') else esp) is None:
                print(json.dumps({'error': f'nothing seen to make {what} from'}), flush=True)
                continue
            for _ in range(count):
                out.sendto(datagram(socket.inet_aton(address), port, victim, make(what, esp, ike)),
                           (socket.inet_ntoa(victim), 0))
            print(json.dumps({'sent': count, 'from': where['seen']}), flush=True)


main()
