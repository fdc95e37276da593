"""Bulk traffic that offloads change: UDP in super-packets, numbered, and a TCP stream, whose content is compared."""
import json
import re
import subprocess
import sys

from lab import Failed, check

SENDS, PER_SEND, SIZE, TCP_BYTES = 250, 8, 1200, 2 << 20
PORT = 7010
# `recv ADDR` or `send LOCAL REMOTE`. First the datagrams, so many to a send (UDP_SEGMENT), then the stream.
BULK = f'''
import hashlib, json, socket, sys, time
SENDS, PER_SEND, SIZE, TCP_BYTES, PORT = {SENDS}, {PER_SEND}, {SIZE}, {TCP_BYTES}, {PORT}
SOL_UDP, UDP_SEGMENT, SO_RCVBUFFORCE = 17, 103, 33
def datagram(n):
    return n.to_bytes(8, 'big') + bytes((n + i) & 0xff for i in range(256)) * 5
def stream():
    return b''.join(hashlib.sha256(i.to_bytes(4, 'big')).digest() for i in range(TCP_BYTES // 32))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if sys.argv[1] == 'recv':
    udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    udp.bind((sys.argv[2], PORT))
    udp.settimeout(0.2)
    tcp.bind((sys.argv[2], PORT))
    tcp.listen()
    print('ready', flush=True)
    peer, _ = tcp.accept()
    seen, twice, corrupt = set(), 0, 0
    while len(seen) < SENDS * PER_SEND:
        try:
            packet = udp.recv(4096)
        except TimeoutError:
            break
        n = int.from_bytes(packet[:8], 'big')
        if packet != datagram(n)[:SIZE]:
            corrupt += 1
        elif n in seen:
            twice += 1
        seen.add(n)
    got = hashlib.sha256()
    while data := peer.recv(1 << 20):
        got.update(data)
    same = got.digest() == hashlib.sha256(stream()).digest()
    print(json.dumps({{'lost': SENDS * PER_SEND - len(seen), 'twice': twice, 'corrupt': corrupt, 'stream': same}}))
else:
    udp.bind((sys.argv[2], 0))
    tcp.bind((sys.argv[2], 0))
    udp.setsockopt(SOL_UDP, UDP_SEGMENT, SIZE)
    packets = [datagram(n)[:SIZE] for n in range(SENDS * PER_SEND)]
    whole = stream()
    print('ready', flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    for i in range(SENDS):
        udp.sendto(b''.join(packets[i * PER_SEND:][:PER_SEND]), (sys.argv[3], PORT))
        time.sleep(max(0, begin + (i + 1) * 0.002 - time.monotonic()))
    tcp.connect((sys.argv[3], PORT))
    tcp.sendall(whole)
    tcp.shutdown(socket.SHUT_WR)
    tcp.recv(1)
'''
HOST = {'a': '10.1.0.2', 'b': '10.2.0.2'}


def carry(lab, what):
    """Both kinds of traffic both ways; nothing may be missing."""
    start = lambda box, *args: lab.spawn(box, sys.executable, '-c', BULK, *args, name=args[0], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE)
    receivers = {box: start(box, 'recv', HOST[box]) for box in 'ab'}
    senders = {'a to b': start('a', 'send', HOST['a'], HOST['b']), 'b to a': start('b', 'send', HOST['b'], HOST['a'])}
    for end in (*receivers.values(), *senders.values()):
        if end.popen.stdout.readline() != 'ready\n':
            raise Failed(f'{what}: an end did not start: {end.log()}')
    for end in senders.values():
        end.popen.stdin.write('go\n')
        end.popen.stdin.flush()
    for way, box in (('a to b', 'b'), ('b to a', 'a')):
        line = receivers[box].popen.communicate(timeout=30)[0]
        if not line:
            raise Failed(f'{what}: {way}: {receivers[box].log()}')
        r = json.loads(line)
        check(r == {'lost': 0, 'twice': 0, 'corrupt': 0, 'stream': True},
              f"{what}: {way}: {SENDS * PER_SEND} datagrams, {r['lost']} lost, {r['twice']} twice, {r['corrupt']} corrupt; "
              f"{TCP_BYTES >> 20} MiB of TCP {'the same' if r['stream'] else 'NOT THE SAME'}")


def warnings(gateway, text):
    return len(re.findall(text, gateway.log()))
