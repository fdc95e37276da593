"""The leak test over every way to move packets, and while the fast one is refused or taken away."""
import signal

from backends import BACKENDS, bursts, check_used, plane
from lab import check, need, until
from leakfaults import DISTURBANCES
from leakline import A, B, BOXES, ROUTES

# What differs between them: killed, the configuration and the SAs changed, the table and the device gone.
TELLING = ('kill9', 'reload', 'nft_flushed', 'rekey', 'device_deleted')


def backend(lab, full, begun, gone, name):
    line, watch = begun(lab, settings=BACKENDS[name], encap=name != 'xdp')
    if name == 'workers':
        bursts(lab, 'a', B[4], A[4])
    watch.flows('tunnel up')
    for disturbance in DISTURBANCES if full else TELLING:
        DISTURBANCES[disturbance](line, watch, 5 if full else 0.7)
        check_used(line.g1, name)
    watch.end()
    gone(line)


def vanishes(lab, full, begun, gone):
    """The outer interface, through which ESP came by AF_XDP, is taken away and comes back."""
    line, watch = begun(lab, settings=BACKENDS['xdp'])
    hold = 5 if full else 0.7
    watch.flows('tunnel up')
    check_used(line.g1, 'xdp')
    # The router's end of the wire stays, and is listened to all the while.
    lab.box('away')
    watch.excused = 2
    watch.phase('wan is gone', lambda: line.ip('link', 'set', 'wan', 'netns', lab.ns('away')), hold)
    until('the log says so', lambda: 'the interface wan is gone, and AF_XDP with it' in line.g1.log())

    def back():
        lab.ip('away', 'link', 'set', 'wan', 'netns', lab.ns('g1'))
        addresses = [f"addr replace {a} dev wan{' nodad' if ':' in a else ''}" for a in BOXES['g1']['wan'].split()]
        line.batch('g1', *addresses, 'link set wan up', *(f'route replace {route}' for route in ROUTES['g1']))
    watch.phase('wan is back', back, hold)
    watch.flows(timeout=60)
    p, granted = plane(line.g1)
    check(granted['xdp'] == [], f"ESP comes through sockets: status says {granted['xdp']}, {p['xdp-frames']} frames from before")
    watch.end()
    gone(line)


def refused(lab, full, begun, gone):
    """Segmented sends get EIO, merged writes EINVAL, and the card loses its offloads, again and again."""
    need('strace', 'ethtool')
    line, watch = begun(lab, encap=True, settings='data {\n  workers = 1\n}\n')
    hold = 5 if full else 0.7
    bursts(lab, 'a', B[4], A[4])
    bursts(lab, 'b', A[4], B[4])
    watch.flows('tunnel up')
    for calls, fault, name in (('sendmmsg', 'EIO', 'send-unsegmented'), ('writev', 'EINVAL', 'tun-write-unmerged')):
        before = plane(line.g1)[0][name]
        trace = lab.spawn('g1', 'strace', '-f', '-p', line.g1.process.pid, '-e', f'trace={calls}', '-e',
                          f'inject={calls}:error={fault}:when=10+20', name='strace')
        until('strace is attached', lambda: 'attached' in trace.log(), 10)
        watch.phase(f'{fault} for every 20th {calls}', hold=2 * hold)
        until(f'{name} moves', lambda: plane(line.g1)[0][name] > before, 20)
        trace.stop(signal.SIGINT)
        watch.flows(f'after {fault}')
        check(True, f"{name}: {plane(line.g1)[0][name] - before}; status says {plane(line.g1)[1]['slower']}")
    features = ('tso', 'gso', 'gro', 'tx-udp-segmentation', 'tx')
    # Some need others, the last of all.
    for state, names in (('off', features), ('on', features[::-1])):
        watch.phase(f'offloads of wan {state}', lambda: [lab.run('g1', 'ethtool', '-K', 'wan', f, state) for f in names], hold)
        watch.flows()
    watch.end()
    gone(line)
