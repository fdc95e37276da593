#!/usr/bin/env python3
"""Two gateways that receive ESP through AF_XDP (`data { xdp = wan }`): traffic, rekeying, floods and what else is on the
wire, and the interface deleted under them.

usage: testkit/interop/run xdp[.TEST]
"""
import json
import os
import re
import signal
import time

from backends import BACKENDS, check_stages, plane
from gateway import IronSwan, tunnel
from lab import REPO, Failed, check, main, until
from traffic import Ears, Iperf, Numbered, check_no_loss, ping

SETTINGS = BACKENDS['xdp']


def up(lab, encap=True, settings=SETTINGS, v6_outer=False):
    """The line with two gateways and the tunnel up; the gateways."""
    lab.line()
    gateways = [IronSwan(lab, box).start(tunnel(box, encap=encap, v6_outer=v6_outer), settings) for box in ('g1', 'g2')]
    for gateway in gateways:
        gateway.load(tunnel(gateway.box, encap=encap, v6_outer=v6_outer))
    gateways[0].initiate()
    return gateways


def attached(lab, box):
    return 'xdp' in lab.ip(box, 'link', 'show', 'dev', 'wan')


def check_through(gateway, at_least):
    counters, granted = plane(gateway)
    check(granted['xdp'] == ['wan'], f"{gateway.box} says that it receives through AF_XDP on {granted['xdp']}")
    dropped = {k: n for k, n in counters.items() if k.startswith('xdp-') and k != 'xdp-frames' and n}
    check(counters['xdp-frames'] >= at_least and not dropped,
          f"{gateway.box}: {counters['xdp-frames']} frames came through AF_XDP, dropped: {dropped or 'none'}")


def carry(lab, full, **kw):
    g1, g2 = up(lab, **kw)
    check(attached(lab, 'g1') and attached(lab, 'g2'), 'both interfaces have the program')
    traffic = Numbered(lab, rate=2000, size=1000)
    time.sleep(1)
    g1.rekey('ike')
    g2.rekey('child')
    g1.rekey('child')
    time.sleep(1)
    check_no_loss(traffic.end(), 2000)
    ping(lab, size=3000)
    for gateway in (g1, g2):
        check_through(gateway, 2000)
        check_stages(gateway)


def rekeys_in_udp(lab, full):
    """Numbered packets both ways while IKE_SA and CHILD_SA are rekeyed: IKE goes the kernel's way, ESP does not."""
    carry(lab, full)


def rekeys_raw(lab, full):
    """The same with ESP as IP protocol 50."""
    carry(lab, full, encap=False)


def rekeys_ipv6(lab, full):
    """The same over IPv6."""
    carry(lab, full, v6_outer=True)


def stream_is_merged(lab, full):
    """A TCP stream, whose packets are merged for the TUN device as they are when they come from a socket."""
    g1, g2 = up(lab)
    iperf = Iperf(lab, seconds=3)
    for end in (iperf.client, iperf.server):
        end.popen.wait(30)
    report = json.loads(iperf.client.log())['end']['sum_received']
    counters, _ = plane(g2)
    xdp = {k: n for k, n in counters.items() if k.startswith('xdp-')}
    check(xdp['xdp-frames'] * 1400 > report['bytes'], f"{report['bytes']} bytes came through AF_XDP: {xdp}")
    check(xdp['xdp-malformed'] == 0 and xdp['xdp-other'] == 0, 'nothing was dropped but for want of a free frame')
    ping(lab)


def deleted_interface_falls_back(lab, full):
    """The interface is deleted under both gateways and made again: they say so, and go on with their sockets."""
    g1, g2 = up(lab)
    ears = Ears(lab)
    ping(lab)
    check_through(g2, 3)
    lab.ip('g1', 'link', 'del', 'wan')
    ears.end('until it is deleted')
    for gateway in (g1, g2):
        until(f'{gateway.box} says that the interface is gone',
              lambda gateway=gateway: re.search(r'the interface wan is gone, and AF_XDP with it', gateway.log()))
        check('restart the daemon to have AF_XDP again' in gateway.log(), 'and what brings AF_XDP back')
    lab.wire('g1', 'wan', ['192.0.2.1/24', '2001:db8::1/64'], 'g2', 'wan', ['192.0.2.2/24', '2001:db8::2/64'])
    # (From the first packet on: leak.holds_when_the_xdp_interface_is_deleted.)
    ears = Ears(lab)
    until('the tunnel carries again', lambda: ping(lab, count=1, wait=1, fail=False).returncode == 0, 60)
    traffic = Numbered(lab, rate=1000)
    time.sleep(1)
    check_no_loss(traffic.end(), 900)
    ears.end('once it is there again')
    for gateway in (g1, g2):
        counters, granted = plane(gateway)
        check(granted['xdp'] == [], f'{gateway.box} says that no interface is received from through AF_XDP')
        check(counters['xdp-frames'] >= 3, f"{gateway.box} still knows of {counters['xdp-frames']} frames from before")
        check(gateway.process.alive(), f'{gateway.box} runs')
    check(not attached(lab, 'g2'), 'the new interface has no program')
    g2.process.stop()
    g2.start(tunnel('g2'), SETTINGS)
    g2.load(tunnel('g2'))
    check(attached(lab, 'g2'), 'a restart brings AF_XDP back')
    g1.swanctl('--terminate', '--ike', 'net', '--force', fail=False)
    g1.initiate()
    ping(lab)
    check_through(g2, 3)


def interface_made_anew_is_noticed(lab, full):
    """The interface is gone and back, with the same name and number, before the daemon has looked: it says so all the same."""
    g1, g2 = up(lab)
    ping(lab)
    check_through(g1, 3)
    lab.box('away')
    link = lab.run('g1', 'cat', '/sys/class/net/wan/ifindex')
    g1.process.send(signal.SIGSTOP)
    for box, to in (('g1', 'away'), ('away', 'g1')):
        lab.ip(box, 'link', 'set', 'wan', 'netns', lab.ns(to))
    for address in ('192.0.2.1/24', '2001:db8::1/64'):
        lab.ip('g1', 'addr', 'replace', address, 'dev', 'wan', *(['nodad'] if ':' in address else []))
    lab.ip('g1', 'link', 'set', 'wan', 'up')
    check(lab.run('g1', 'cat', '/sys/class/net/wan/ifindex') == link, 'it has the number that it had')
    ears = Ears(lab)
    g1.process.send(signal.SIGCONT)
    until('g1 says that it was gone', lambda: 'the interface wan is gone, and AF_XDP with it' in g1.log())
    until('the tunnel carries again', lambda: ping(lab, count=1, wait=1, fail=False).returncode == 0, 60)
    traffic = Numbered(lab, rate=1000)
    time.sleep(1)
    check_no_loss(traffic.end(), 900)
    ears.end('once it is there again')
    check(plane(g1)[1]['xdp'] == [] and not attached(lab, 'g1'), 'g1 receives through its sockets, and its program is away')
    check_through(g2, 900)


def missing_interface_or_driver_falls_back(lab, full):
    """An interface that is not there, and one whose driver has no XDP: warnings with the remedy, and the sockets."""
    lab.line()
    lab.ip('g1', 'link', 'add', 'soft', 'type', 'bridge')
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'), 'data {\n  xdp = wan9, soft\n}\n')
    g2 = IronSwan(lab, 'g2').start(tunnel('g2'), SETTINGS)
    g1.load(tunnel('g1'))
    g2.load(tunnel('g2'))
    g1.initiate()
    check('wan9 is left to the sockets: there is no interface wan9' in g1.log(), 'g1 says that wan9 is not there')
    check('soft is left to the sockets' in g1.log() and 'its driver has no XDP' in g1.log(), 'and that soft has no XDP')
    traffic = Numbered(lab, rate=1000)
    time.sleep(1)
    check_no_loss(traffic.end(), 900)
    check(plane(g1)[1]['xdp'] == [], 'nothing is received through AF_XDP by g1')
    check_through(g2, 900)


def missing_capability_falls_back(lab, full):
    """Without the capability for it, the daemon starts and uses its sockets."""
    lab.line()
    g1 = IronSwan(lab, 'g1')
    spawn = lab.spawn
    lab.spawn = lambda box, *args, **kw: spawn(box, 'setpriv', '--bounding-set=-bpf,-sys_admin', *args, **kw)
    g1.start(tunnel('g1'), SETTINGS)
    lab.spawn = spawn
    g2 = IronSwan(lab, 'g2').start(tunnel('g2'), SETTINGS)
    g1.load(tunnel('g1'))
    g2.load(tunnel('g2'))
    g1.initiate()
    check('wan is left to the sockets: BPF maps cannot be made' in g1.log() and 'CAP_BPF' in g1.log(),
          'g1 says which capability it lacks')
    ping(lab)
    check(plane(g1)[1]['xdp'] == [] and not attached(lab, 'g1'), 'it received through its sockets')


def unit(key):
    """The words that the systemd unit and its drop-in for AF_XDP have behind a key."""
    found = []
    for name in ('ironswan.service', 'ironswan.service.d/xdp.conf'):
        with open(os.path.join(REPO, 'packaging', 'systemd', name)) as f:
            found += [word for line in f if line.startswith(key + '=') for word in line.strip().partition('=')[2].split()]
    return found


def worker_nice(gateway):
    """The nice value of a gateway's first worker."""
    tasks = f'/proc/{gateway.process.pid}/task'
    for task in os.listdir(tasks):
        with open(f'{tasks}/{task}/stat') as f:
            name, _, rest = f.read().partition('(')[2].rpartition(')')
        if name == 'ipsec-data-0':
            return int(rest.split()[16])
    raise Failed('no worker runs')


def rights_of_the_systemd_unit_suffice(lab, full):
    """Root with exactly the capabilities of the systemd unit and its drop-in: ESP comes through AF_XDP, and the workers go
    before other programs. With little locked memory and no leave for that they do not, and the daemon says why."""
    check('AF_XDP' in unit('RestrictAddressFamilies') and 'bpf' in unit('SystemCallFilter'), 'the drop-in allows both calls')
    check(unit('LimitMEMLOCK') == ['infinity'], 'and locked memory')
    caps = ','.join(['-all'] + ['+' + cap.removeprefix('CAP_').lower() for cap in unit('CapabilityBoundingSet')])

    def rights(caps):
        return 'setpriv', '--bounding-set', caps, '--inh-caps', caps, '--no-new-privs'
    lab.line()
    spawn = lab.spawn
    gateways = []
    # The frames of a socket are 4 MiB: what this machine lets anybody lock has to be more.
    nice = int(unit('LimitNICE')[0])
    # Not everywhere may a limit be raised: a capability stands for LimitNICE.
    for box, before in (('g1', ('prlimit', '--memlock=65536', '--nice=0', *rights(caps))), ('g2', rights(caps + ',+sys_nice'))):
        lab.spawn = lambda box, *args, before=before, **kw: spawn(box, *before, *args, **kw)
        gateways.append(IronSwan(lab, box).start(tunnel(box), SETTINGS))
        lab.spawn = spawn
    g1, g2 = gateways
    with open(f'/proc/{g2.process.pid}/status') as f:
        kept = int(next(line.split()[1] for line in f if line.startswith('CapEff')), 16)
    check(kept == 1 << 12 | 1 << 13, f'effective capabilities {kept:x}: CAP_NET_ADMIN and CAP_NET_RAW')
    check(worker_nice(g2) == nice == -10, f'its worker has the nice value {nice}')
    if os.path.exists('/proc/self/autogroup'):
        with open(f'/proc/{g2.process.pid}/autogroup') as f:
            check(f.read().split()[-1] == str(nice), 'and so has its session')
    # The daemon's own nice value is that of whoever runs this test.
    inherited = os.getpriority(os.PRIO_PROCESS, g1.process.pid)
    check(worker_nice(g1) == inherited and 'data.nice = -10: the workers may not' in g1.log(),
          f'g1 may not, says so, and its worker keeps the nice value {inherited}')
    check(g1.log().count('data.nice') == 1, 'once')
    for gateway in gateways:
        gateway.load(tunnel(gateway.box))
    g1.initiate()
    traffic = Numbered(lab, rate=1000)
    time.sleep(1)
    check_no_loss(traffic.end(), 900)
    check_through(g2, 900)
    check('wan is left to the sockets' in g1.log() and 'memory is locked for it' in g1.log(), 'g1 says what it lacks')
    check(plane(g1)[1]['xdp'] == [] and not attached(lab, 'g1'), 'and received through its sockets')


def killed_daemon_leaves_no_program(lab, full):
    """A daemon that is killed leaves no program behind, and the kernel's path is as it was."""
    g1, g2 = up(lab)
    check(attached(lab, 'g2'), 'the program is there while the daemon runs')
    g2.process.stop(9)
    until('the kernel has taken the program away', lambda: not attached(lab, 'g2'))
    g2.start(tunnel('g2'), 'data {\n}\n')
    g2.load(tunnel('g2'))
    check(not attached(lab, 'g2'), 'and a daemon without the setting attaches none')
    g1.swanctl('--terminate', '--ike', 'net', '--force', fail=False)
    g1.initiate()
    ping(lab)
    check(plane(g2)[0]['xdp-frames'] == 0, 'its sockets received')


TESTS = {f.__name__: f for f in (
    rekeys_in_udp, rekeys_raw, rekeys_ipv6, stream_is_merged, deleted_interface_falls_back, interface_made_anew_is_noticed,
    missing_interface_or_driver_falls_back, missing_capability_falls_back, rights_of_the_systemd_unit_suffice,
    killed_daemon_leaves_no_program)}

if __name__ == '__main__':
    main(TESTS, 'xdp')
