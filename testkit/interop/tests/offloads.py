#!/usr/bin/env python3
"""Offloads that a network card or a kernel lacks, refuses, or is not to use: packets go the slower way, none is lost or changed.

usage: testkit/interop/run [--full] offloads[.TEST]      --full: with raw ESP too
Every case carries numbered UDP in super-packets and a TCP transfer, both ways, between two gateways of ours.
"""
import errno
import json
import os
import signal
import sys
import time

from backends import check_stages
from bulk import PER_SEND, SENDS, carry, warnings
from gateway import IronSwan, program, tunnel
from lab import call, check, main, need, until
from traffic import Ears
from vici import Vici
from wan import counters


def pair(lab, settings='', encap=True):
    ends = {box: IronSwan(lab, box).start(tunnel(box, encap=encap), settings) for box in ('g1', 'g2')}
    ends['g1'].initiate()
    return ends


def plane(gateway):
    """`data_plane` and `stages` of `ironswan status --json`."""
    status = json.loads(call(program(), 'status', '--json', '--vici', f'unix://{gateway.socket}'))
    return status['data_plane'], status['stages']


CUT = 'does not cut UDP sends to'
# What a segmented send is answered: 0, or EIO where nobody can do its checksums (the kernel itself, from Linux 6.11 on).
PROBE = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(17, 103, 1000)
try:
    print(0 if s.sendto(bytes(3000), ('192.0.2.2', 9)) else 1)
except OSError as e:
    print(e.errno)
"""


def ethtool_off_while_up(lab, full):
    """Each offload of the outer devices off, alone and all of them, while the tunnel is up."""
    need('ethtool')
    lab.line()
    ears = Ears(lab)
    for encap in (True, False) if full else (True,):
        ends = pair(lab, encap=encap)
        carry(lab, 'all on')
        p = counters(ends['g1'])['plane']
        if encap:
            check(p['send-datagrams'] > 2 * p['send-messages'] and p['tun-writes'] * 2 < p['send-datagrams'],
                  f"with all of them, sends and writes carry many packets: {p['send-messages']} sends, "
                  f"{p['send-datagrams']} packets, {p['tun-writes']} writes")
        for gateway in ends.values():
            check_stages(gateway)
        features = ('tso', 'gso', 'gro', 'tx-udp-segmentation', 'tx')
        refuses = False
        for off in [[f] for f in features] + [list(features)]:
            # Some need others, the last of all.
            for state, names in (('off', off), ('on', off[::-1])):
                for box in ('g1', 'g2'):
                    for name in names:
                        lab.run(box, 'ethtool', '-K', 'wan', name, state)
                if state == 'on':
                    continue
                what = f"{' '.join(names)} off"
                error = int(lab.run('g1', sys.executable, '-c', PROBE))
                check(error in (0, errno.EIO), f"{what}: a segmented send is answered {errno.errorcode.get(error, 'success')}")
                refuses |= error != 0
                carry(lab, what)
                # What is refused is said once, and nothing else.
                for box, gateway in ends.items():
                    n, said = warnings(gateway, CUT), plane(gateway)[0]['slower']
                    pieces = counters(gateway)['plane']['send-unsegmented']
                    check(n == len(said) == (refuses and encap) and (n == 1 or pieces < 64),
                          f'{box}: {n} warnings for {pieces} sends that were cut here; status says {said}')
                ears.check(what)
        for gateway in ends.values():
            gateway.stop()


def switched_off_is_not_used(lab, full):
    """Each of them switched off in ironswan.conf, alone and all, is not used, and is not warned about."""
    lab.line()
    for text in ('gso = no', 'gro = no', 'tun_offload = no', 'gso = no\n gro = no\n tun_offload = no'):
        ends = pair(lab, f'data {{\n {text}\n}}\n')
        name = text.replace('\n', ',')
        carry(lab, name)
        p, (got, _) = counters(ends['g1'])['plane'], plane(ends['g1'])
        if 'gso' in text:
            check(got['udp-segments'] == 1 and p['send-messages'] == p['send-datagrams'],
                  f"{name}: {p['send-messages']} sends, {p['send-datagrams']} packets")
        if 'gro' in text:
            check(got['udp-gro'] is False, f"{name}: udp-gro is {got['udp-gro']}")
        if 'tun' in text:
            check(not got['tun-tso'] and not got['tun-uso'] and p['tun-reads'] >= SENDS * PER_SEND,
                  f"{name}: {p['tun-reads']} reads, {p['tun-writes']} writes")
        for box, gateway in ends.items():
            check_stages(gateway)
            check(not warnings(gateway, 'UDP sends|refuses merged|segmentation offload|merge received'),
                  f'{name}: {box} warns of nothing')
            gateway.stop()


def refused_by_the_kernel_in_mid_traffic(lab, full):
    """The kernel refuses a segmented send (EIO), and a merged write (EINVAL), while packets flow."""
    need('strace')
    lab.line()
    # Calls are counted for each thread: of one, the 30th is a send of many packets.
    ends = pair(lab, 'data {\n workers = 1\n}\n')
    g1 = ends['g1']
    faults = ['-e', 'inject=sendmmsg:error=EIO:when=30', '-e', 'inject=writev:error=EINVAL:when=40']
    trace = lab.spawn('g1', 'strace', '-f', '-p', g1.process.pid, '-e', 'trace=sendmmsg,writev', *faults, name='strace')
    until('strace is attached', lambda: 'attached' in trace.log(), 10)
    ears = Ears(lab)
    carry(lab, 'EIO for one send, EINVAL for one write')
    trace.stop(signal.SIGINT)
    until('the log says so', lambda: warnings(g1, CUT), 5)
    carry(lab, 'after that')
    ears.check('all of it')
    p, (got, _) = counters(g1)['plane'], plane(g1)
    check(p['send-unsegmented'] > SENDS // 2 and warnings(g1, CUT) == 1 and got['slower'] == ['segmentation to 192.0.2.2'],
          f"{p['send-unsegmented']} sends were cut here, with one warning; status says {got['slower']}")
    check(p['tun-write-unmerged'] >= 1 and p['tun-write-errors'] == 0,
          f"{p['tun-write-unmerged']} merged writes were refused and went packet by packet; {p['tun-write-errors']} were lost")
    check(not warnings(g1, 'refuses merged'), 'one refusal is not worth a warning')


# 47 datagrams to a send, whose ESP packets with null-sha1 have 1,424 bytes: 46 of them are just below what UDP can say.
LARGE = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(17, 103, 1372)
for _ in range(100):
    s.sendto(bytes(47 * 1372), ('10.2.0.2', 9))
    time.sleep(0.002)
"""


def largest_sends_are_not_cut_early(lab, full):
    """The largest sends are not so large that the kernel cuts them before the driver sees them, at either end."""
    lab.line()
    ends = {box: IronSwan(lab, box).start(tunnel(box, esp='null-sha1')) for box in ('g1', 'g2')}
    ends['g1'].initiate()
    frames = lambda box, name, way: int(lab.run(box, 'cat', f'/sys/class/net/{name}/statistics/{way}_packets'))
    before = frames('g1', 'wan', 'tx'), frames('b', 'eth0', 'rx')
    lab.run('a', sys.executable, '-c', LARGE)
    time.sleep(0.2)
    p = counters(ends['g1'])['plane']
    sent, written = frames('g1', 'wan', 'tx') - before[0], frames('b', 'eth0', 'rx') - before[1]
    check(p['send-datagrams'] >= 4700 and sent < 500, f"{p['send-datagrams']} ESP packets left g1 in {sent} frames")
    check(written < 500, f'b had them in {written}')
    for gateway in ends.values():
        gateway.stop()


def starts_without_large_buffers(lab, full):
    """Where SO_RCVBUFFORCE is refused (no capability outside of a user namespace), the daemon starts and says what it got."""
    need('unshare')
    lab.box('g1')
    etc = lab.write('etc/swanctl.conf', '# empty\n')
    # More than any kernel's own limit.
    lab.write('etc/ironswan.conf', 'guard = no\ndata {\n socket_buffer = 256m\n}\n')
    socket = lab.path('u.vici')
    daemon = lab.spawn('g1', 'unshare', '--user', '--map-root-user', '--net', '--mount', 'sh', '-c',
                       'mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@"', 'sh', program(), 'run', '--config',
                       etc.rpartition('/')[0], '--vici', f'unix://{socket}', name='ironswan')
    until('it is ready', lambda: ' ready: ' in daemon.log() or not daemon.alive(), 10)
    lines = [line for line in daemon.log().splitlines() if 'data.socket_buffer' in line]
    check(len(lines) == 1 and 'net.core.rmem_max' in lines[0], f'one warning: {lines}')
    # The namespace maps root alone, so neither the daemon nor a process of it becomes another user. What they start with
    # must do: a process that cannot give up its privileges ends, and all end with it.
    with Vici(socket) as client:
        check(client.request('version')['daemon'] == 'ironswan', 'it answers')
    time.sleep(0.5)
    check(daemon.alive(), 'it goes on')


def threaded_napi_is_put_back(lab, full):
    """Both links are polled by kernel threads, with all traffic through them; a reload and the end put back what stood there."""
    need('ethtool')
    lab.line()
    wanted = lambda names: f'data {{\n threaded_napi = {names}\n}}\n'
    state = lambda box, name: lab.run(box, 'cat', f'/sys/class/net/{name}/threaded').strip()
    for box in ('g1', 'g2'):
        for name in ('lan', 'wan'):
            lab.run(box, 'ethtool', '-K', name, 'gro', 'on')
    ends = pair(lab, wanted('lan, wan'))
    for box, gateway in ends.items():
        check([state(box, name) for name in ('lan', 'wan')] == ['1', '1'], f'{box}: kernel threads poll both links')
        said = plane(gateway)[0]['threaded-napi']
        check(said == ['lan', 'wan'], f'{box}: status says {said}')
    carry(lab, 'kernel threads')
    g1 = ends['g1']
    lab.write('g1-etc/ironswan.conf', wanted('wan'))
    g1.process.popen.send_signal(signal.SIGHUP)
    until('a reload puts lan back', lambda: state('g1', 'lan') == '0', 10)
    check(state('g1', 'wan') == '1', 'and wan stays')
    carry(lab, 'after the reload')
    for box, gateway in ends.items():
        gateway.stop()
        check([state(box, name) for name in ('lan', 'wan')] == ['0', '0'], f'{box}: the end puts both back')
    several = os.sched_getaffinity(0)
    # What is started inherits it.
    os.sched_setaffinity(0, {min(several)})
    try:
        ends = pair(lab, '# nothing\n')
        for box, gateway in ends.items():
            said = plane(gateway)[0]['threaded-napi']
            check(sorted(said) == ['lan', 'wan'] and [state(box, name) for name in said] == ['1', '1'],
                  f'{box}: with one processor kernel threads poll both links unasked: {said}')
            check(not warnings(gateway, 'threaded_napi: '), f'{box}: that other interfaces cannot be is no warning')
        carry(lab, 'kernel threads, one processor')
        lab.write('g1-etc/ironswan.conf', wanted('no'))
        ends['g1'].process.popen.send_signal(signal.SIGHUP)
        until('a reload with `no` puts both back', lambda: [state('g1', name) for name in ('lan', 'wan')] == ['0', '0'], 10)
        for gateway in ends.values():
            gateway.stop()
    finally:
        os.sched_setaffinity(0, several)


if __name__ == '__main__':
    main({f.__name__: f for f in (
        ethtool_off_while_up, switched_off_is_not_used, refused_by_the_kernel_in_mid_traffic, largest_sends_are_not_cut_early,
        starts_without_large_buffers, threaded_napi_is_put_back)}, 'offloads')
