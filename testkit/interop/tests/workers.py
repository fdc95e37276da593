#!/usr/bin/env python3
"""Several workers on one tunnel: its packets leave in the order of their numbers, whoever sealed them.

usage: testkit/interop/run [--full] workers[.TEST]      --full: more, and longer
Judged from outside: by the packets on the wire, by a Linux kernel with a replay window of 32 packets, and by what TCP and
iperf3 say of their order. A worker beside the first must have worked, or the test has shown nothing.
"""
import json
import re
import struct
import sys

from backends import BACKENDS, worked
from gateway import IronSwan, tunnel
from guest import line_to_guest
from lab import check, main, need, say, until

SETTINGS = BACKENDS['workers']
# `TO COUNT MINE`: datagrams of 1,200 bytes, 40 to a send (UDP_SEGMENT), as fast as they go, so that work piles up.
BURSTS = '''
import socket, sys, time
to, count, mine = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((mine, 0))
s.setsockopt(17, 103, 1200)
for n in range(count // 40):
    s.sendto(bytes(48000), (to, 7001))
    if n % 100 == 99: time.sleep(0.05)
'''


def both_worked(gateway, before, box):
    spent = {name: (ns - before[name]) / 1e6 for name, ns in worked(gateway).items()}
    check(len(spent) == 2 and min(spent.values()) > 1,
          f"{box}: {', '.join(f'{name} ran {ms:.0f} ms' for name, ms in sorted(spent.items()))}")


def numbers(path):
    """SPI -> sequence numbers of the ESP-in-UDP packets of a capture, in its order."""
    seen = {}
    with open(path, 'rb') as f:
        f.read(24)
        while len(head := f.read(16)) == 16:
            frame = f.read(struct.unpack('=IIII', head)[2])
            at = 14 + 4 * (frame[14] & 15) + 8
            if len(frame) >= at + 8 and frame[at:at + 4] != bytes(4):
                spi, number = struct.unpack_from('!II', frame, at)
                seen.setdefault(spi, []).append(number)
    return seen


def tcp_counters(lab, box):
    """The counters of TcpExt."""
    lines = lab.run(box, 'cat', '/proc/net/netstat').split('\n')
    names, values = (line.split()[1:] for line in lines if line.startswith('TcpExt:'))
    return dict(zip(names, map(int, values)))


def packets_leave_in_order(lab, full):
    """One SA, both directions, two workers on each gateway."""
    need('tcpdump', 'iperf3', 'ethtool')
    lab.line()
    # A veth link without NAPI queues packets by the processor that sends them, and its NAPI handles only what comes from a link
    # that does not cut TCP: else the hosts' own kernels let packets overtake each other, in plain forwarding, too.
    for box, links in (('a', ['eth0']), ('g1', ['lan', 'wan']), ('g2', ['wan', 'lan']), ('b', ['eth0'])):
        for link in links:
            lab.run(box, 'ethtool', '-K', link, 'gro', 'on', 'tso', 'off')
    ends = {box: IronSwan(lab, box).start(tunnel(box), SETTINGS) for box in ('g1', 'g2')}
    ends['g1'].initiate()
    before = {box: worked(end) for box, end in ends.items()}
    captures = {}
    for box in ends:
        # A capture shows sends as the card gets them: one by one when it does not cut them itself.
        lab.run(box, 'ethtool', '-K', 'wan', 'tx-udp-segmentation', 'off')
        captures[box] = lab.spawn(box, 'tcpdump', '-Z', 'root', '-ni', 'wan', '-Q', 'out', '-s', '64', '-B', '32768', '-w',
                                  lab.path(f'{box}.pcap'), 'udp port 4500', name='tcpdump')
        until('tcpdump listens', lambda box=box: 'listening on' in captures[box].log())
    lab.spawn('b', 'iperf3', '-s', '-J', name='iperf3')
    until('iperf3 listens', lambda: ':5201' in lab.run('b', 'ss', '-Hltn'))
    seconds = 10 if full else 3
    for way, receiver in (([], 'b'), (['-R'], 'a')):
        tcp = {box: tcp_counters(lab, box) for box in 'ab'}
        # What is under way fits the buffers, so that nothing need be lost.
        done = json.loads(lab.run('a', 'iperf3', '-c', '10.2.0.2', '-t', seconds, '-P', 4, '-w', '256K', '-J', *way, timeout=60))
        grown = {box: {k: v - tcp[box][k] for k, v in tcp_counters(lab, box).items()} for box in 'ab'}
        again, queued = done['end']['sum_sent']['retransmits'], grown[receiver]['TCPOFOQueue']
        say(f"  TCP {'b to a' if way else 'a to b'}: {done['end']['sum_received']['bits_per_second'] / 1e9:.2f} Gb/s, "
            f"{again} retransmitted, {queued} came out of order")
        # Out of order at a receiver is what follows a gap; where nothing was lost, only a packet that was overtaken makes one.
        check(again or not queued, f'{receiver}: nothing was lost, so nothing may come out of order')
        for box in 'ab':
            reordered = {k: grown[box][k] for k in ('TCPSACKReorder', 'TCPTSReorder', 'TCPRenoReorder')}
            check(not any(reordered.values()), f'{box}: TCP saw no packet overtake another: {reordered}')
    for way in ([], ['-R']):
        done = json.loads(lab.run('a', 'iperf3', '-c', '10.2.0.2', '-u', '-b', '150M', '-l', 1200, '-t', seconds, '-J', *way,
                                  '--get-server-output', timeout=60))
        udp = (done if way else done['server_output_json'])['end']['streams'][0]['udp']
        check(udp['out_of_order'] == 0 and udp['packets'] > 10000,
              f"UDP {'b to a' if way else 'a to b'}: {udp['packets']} packets, {udp['lost_packets']} lost, "
              f"{udp['out_of_order']} out of order")
    for box, end in ends.items():
        both_worked(end, before[box], box)
        captures[box].stop()
        for spi, seen in numbers(lab.path(f'{box}.pcap')).items():
            late = sum(b <= a for a, b in zip(seen, seen[1:]))
            check(late == 0 and len(seen) > 1000,
                  f'{box}: SPI {spi:08x}: {len(seen)} packets captured of {seen[-1]}, {late} not above the one before')


def replay_window_of_32_drops_none(lab, full):
    """A Linux kernel with a replay window of 32 packets drops none for their order."""
    us, guest = line_to_guest(lab, settings=SETTINGS)
    us.initiate()
    windows = sorted(w for *_, w in guest.states())
    check(windows == [0, 32], f'the windows of the guest, out and in: {windows}')
    before, source = worked(us), lab.write('bursts.py', BURSTS)
    count = 2_000_000 if full else 400_000
    lab.run('a', sys.executable, source, '10.2.0.1', count, '10.1.0.2', timeout=120)
    both_worked(us, before, 'g1')
    errors = guest.xfrm_errors()
    passed = sum(map(int, re.findall(r'lifetime current:\s+\d+\(bytes\), (\d+)\(packets\)', guest.do('ip -s xfrm state'))))
    check(passed > 1000, f'the guest opened {passed} of {count} packets; it is slower than we, which is no matter here')
    check(not errors.get('XfrmInStateSeqError'), f'xfrm_stat of the guest: {errors or "all zero"}')


main({f.__name__: f for f in (packets_leave_in_order, replay_window_of_32_drops_none)}, 'workers')
