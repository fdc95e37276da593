#!/usr/bin/env python3
"""IronSwan against the ESP of a real Linux kernel (strongSwan with kernel-netlink in user-mode-linux).

usage: testkit/interop/run [--full] uml[.TEST]
The guest is the gateway g2 and the host behind it in one: its inner address 10.2.0.1 is on its loopback. It keeps the
kernel's default replay window of 32 packets and counts what falls out of it in /proc/net/xfrm_stat.
INTEROP_REFERENCE=1 puts strongSwan's user-space ESP in IronSwan's place (encapsulated cases only).
"""
import os
import shlex
import sys
import time

from gateway import REFERENCE, tunnel
from guest import line_to_guest
from lab import check, main, say, until
from traffic import ping

# Seconds that a ping waits for its last answer: a guest on a busy machine may stop for seconds.
PATIENCE = 10

SINK = '''
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 27)  # SO_RCVBUFFORCE: a guest that is held up gets many at once
s.bind((sys.argv[1], 7001)); s.settimeout(3)
seen = set(); last = -1; late = 0
try:
    while True:
        n = struct.unpack('!Q', s.recv(65536)[:8])[0]
        late += n < last; last = max(n, last); seen.add(n)
except TimeoutError:
    print(len(seen), late)
'''

SOURCE = '''
import socket, struct, sys, time
to, count, size, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[5], 0))
start = time.monotonic()
for n in range(count):
    while (wait := start + n / rate - time.monotonic()) > 0:
        time.sleep(wait)
    s.sendto(struct.pack('!Q', n) + bytes(size - 8), (to, 7001))
'''


def packets_to_guest(lab, us, guest, count, size, rate):
    """Numbered packets a -> guest: how many its kernel delivered, how many of these its socket had no room for (the guest's
    Python may be slower than they come), and how many came late."""
    with open(os.path.join(guest.share, 'sink.py'), 'w') as f:
        f.write(SINK)
    source = lab.write('source.py', SOURCE)
    guest.do("sysctl -q -w net.ipv4.udp_mem='32768 32768 32768'")
    before = guest.no_room()
    guest.do('python3 /run/share/sink.py 10.2.0.1 >/run/share/sink.out 2>&1 & '
             'until ss -Hlun | grep -q :7001; do sleep 0.1; done')
    lab.run('a', sys.executable, source, '10.2.0.1', count, size, rate, '10.1.0.2', timeout=120)
    arrived, late = until('the sink has counted', lambda: open(os.path.join(guest.share, 'sink.out')).read().split(), 60)
    no_room = guest.no_room() - before
    if int(arrived) + no_room < count:
        say('       ' + lab.run('g1', 'ip', '-s', 'link', 'show', 'wan') + lab.run('g2', 'ip', '-s', 'link', 'show', 'tap0')
            + guest.do('ip -s link show eth0; grep ^Udp: /proc/net/snmp'))
    return int(arrived) + no_room, no_room, int(late)


def answered(lab, guest, out, text):
    """Checks that a ping lost nothing. If it did, all counters on the way are printed, for they say where."""
    whole = ' 0% packet loss' in out
    if not whole:
        say(out + ''.join(lab.run(box, 'ip', '-s', 'link') for box in ('a', 'g1', 'g2')) + guest.do('ip -s link')
            + str(guest.xfrm_errors()))
    check(whole, text)


def ping_guest(lab, guest, text, **kw):
    """Pings the guest from the host a."""
    answered(lab, guest, ping(lab, to='10.2.0.1', wait=PATIENCE, **kw), text)


def exchange(lab, us, guest, encap, full):
    """Traffic both ways, small and full-size, and the kernel's opinion of it."""
    states = guest.states()
    check(len(states) == 2 and all(e == encap for _, e, _ in states),
          f"the guest's kernel has two SAs, {'UDP-encapsulated' if encap else 'raw ESP'}: {states}")
    check(any(window == 32 for *_, window in states), 'its replay window is 32 packets')
    for size in (8, 56, 1200, 1352):
        ping_guest(lab, guest, f'a to guest and back, {size} bytes of ICMP payload', size=size, count=5)
    # 1,400 and more do not fit the path's 1,500 once sealed: IPv4 fragments inside, all the same.
    ping_guest(lab, guest, 'a to guest and back, 4,000 bytes, fragmented', size=4000, count=3)
    out = guest.do(f'ping -n -q -c 5 -i 0.2 -W {PATIENCE} -I 10.2.0.1 10.1.0.2')
    answered(lab, guest, out, 'guest to a and back, started there')
    count, rate = (20000, 2000) if full else (3000, 1000)
    arrived, no_room, late = packets_to_guest(lab, us, guest, count, 1200, rate)
    check(arrived >= count * 0.999 and no_room < count / 2 and late == 0, f'{count} numbered packets at {rate}/s: {arrived} arrived, '
          f'{no_room} of these without room in their socket, {late} late')
    # A burst as a TCP sender makes it: many more packets at once than the window is wide. If the engine sent an SA's
    # packets out of sequence order, the kernel would drop what falls behind its window.
    lab.spawn('a', sys.executable, '-c', TCP_SINK, name='tcp-sink')
    until('the TCP sink listens', lambda: '7002' in lab.run('a', 'ss', '-Hltn'))
    size = 20_000_000 if full else 4_000_000
    guest.do(f'head -c {size} /dev/zero | python3 -c {shlex.quote(TCP_SOURCE)} 10.1.0.2', timeout=120)
    guest.do("python3 -c " + shlex.quote(TCP_SINK) + " >/run/share/tcp.out 2>&1 & "
             "until ss -Hltn | grep -q :7002; do sleep 0.1; done")
    lab.run('a', 'sh', '-c', f'head -c {size} /dev/zero | {sys.executable} -c {shlex.quote(TCP_SOURCE)} 10.2.0.1',
            timeout=120)
    got = until('the guest has all', lambda: open(os.path.join(guest.share, 'tcp.out')).read().strip(), 20)
    check(int(got) == size, f'TCP both ways, {size} bytes each')
    errors = guest.xfrm_errors()
    check(errors.get('XfrmInStateSeqError', 0) == 0, 'XfrmInStateSeqError is 0')
    check(not {k: v for k, v in errors.items() if k.startswith('XfrmIn') and k != 'XfrmInNoPols'},
          f'no other error counter of the receiving side moved: {errors or "all zero"}')


TCP_SINK = '''
import socket
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(("", 7002)); l.listen()
c, _ = l.accept(); n = 0
while (d := c.recv(1 << 16)): n += len(d)
print(n)
'''

TCP_SOURCE = '''
import socket, sys
s = socket.create_connection((sys.argv[1], 7002), 10)
while (d := sys.stdin.buffer.read(1 << 16)): s.sendall(d)
s.shutdown(socket.SHUT_WR); s.recv(1)
'''


def esp_in_udp(lab, full):
    """ESP in UDP, initiated by IronSwan; then rekeyed from both ends, and initiated by the guest."""
    us, guest = line_to_guest(lab, encap=True)
    us.initiate()
    exchange(lab, us, guest, True, full)
    us.rekey('child')
    guest.swanctl('--rekey', '--child', 'net')
    time.sleep(1)
    ping_guest(lab, guest, 'after rekeying from both ends', count=5)
    us.swanctl('--terminate', '--ike', 'net')
    until('we are empty', lambda: not us.sas())
    until('the guest is empty', lambda: not guest.states())
    guest.swanctl('--initiate', '--child', 'net')
    ping_guest(lab, guest, 'initiated by the guest', count=5)


def raw_esp(lab, full):
    """ESP straight on IP."""
    us, guest = line_to_guest(lab, encap=False)
    us.initiate()
    exchange(lab, us, guest, False, full)


def every_algorithm(lab, full):
    """The kernel agrees with our ESP for every algorithm, with and without extended sequence numbers, IPv6 too."""
    us, guest = line_to_guest(lab, encap=False)
    for esp in ('aes256gcm16', 'aes128-sha256', 'aes256-sha512', 'chacha20poly1305', 'aes128gcm16-esn', 'aes128-sha256-esn'):
        for conf in ({}, {'v6_outer': True, 'v6_inner': True}):
            us.load(tunnel('g1', esp=esp, encap=False, **conf))
            guest.load(tunnel('g2', esp=esp, encap=False, **conf))
            us.initiate()
            to = 'fd00:2::1' if conf else '10.2.0.1'
            for size in (8, 1200):
                answered(lab, guest, ping(lab, to=to, size=size, wait=PATIENCE), f"{esp} {' '.join(conf)} {size} bytes")
            us.swanctl('--terminate', '--ike', 'net')
            until('the guest is empty', lambda: not guest.states())
    errors = guest.xfrm_errors()
    check(not {k: v for k, v in errors.items() if k.startswith('XfrmIn') and k != 'XfrmInNoPols'},
          f'no error counter of the receiving side moved: {errors or "all zero"}')


if __name__ == '__main__':
    TESTS = (esp_in_udp,) if REFERENCE else (esp_in_udp, raw_esp, every_algorithm)
    main({f.__name__: f for f in TESTS}, 'uml')
