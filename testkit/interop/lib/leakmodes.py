"""The leak test for every kind of SA: AH, transport mode, IPComp, raw and in UDP, and what changes one into another.

AH hides nothing and transport mode has the same addresses outside as inside, so what counts is not what a frame looks
like but that each kind of packet leaves in the protocol its policy asks for, or not at all: `sniff.py` tells.
"""
import re
import signal
import subprocess
import time

from gateway import program
from lab import Failed, check, need, until
from leakfaults import DISTURBANCES, delete_rules, kill, stopped
from leakline import A, B, EVERY, G1, G2, SITES, Line, Watch, config, kinds
from sniff import MAGIC, TAG

START = {'start_action': 'start'}
AH = {'ah_proposals': 'sha256'}
V4 = {'local_ts': '10.1.0.0/24', 'remote_ts': '10.2.0.0/24', **START}
V6 = {'local_ts': 'fd00:1::/64', 'remote_ts': 'fd00:2::/64', **START}


def pair(family, local='', remote=''):
    """Between the two gateways themselves, in transport mode."""
    length = {4: 32, 6: 128}[family]
    ends = (('local_ts', G1[family], local), ('remote_ts', G2[family], remote))
    return {'mode': 'transport', **{k: ','.join(f'{a}/{length}{w}' for w in what.split(' ')) for k, a, what in ends}, **START}


# What pings carry: the mark of the first kind.
MARK = TAG.pack(MAGIC, 1).hex()
# Raw: AH in tunnel mode, IPComp in ESP, and between the gateways ESP for some UDP ports and AH for ICMP and TCP.
RAW = {'ah': {**V4, **AH}, 'comp': {**V6, 'ipcomp': 'yes'}, 'udp': pair(4, '[udp]', '[udp/7000-7399]'),
       'rest': {**pair(4, '[icmp] [tcp]', '[icmp] [tcp]'), **AH}}
# In UDP over IPv6: all between the gateways in transport mode, and IPComp within.
UDP = {'host': {**pair(6), 'ipcomp': 'yes'}, 'comp': {**V4, 'ipcomp': 'yes'}}
LINES = {'raw': {'children': RAW}, 'udp': {'children': UDP, 'outer': 6, 'encap': True}}


def own(protos, family, first, name='own', size=32):
    """From the gateway to the gateway, from sockets that are bound and that are not."""
    found = kinds(protos, ('unbound', 'bound'), (family,), G2, first, size=size)
    for k in found:
        source = 'free' if k['src'] is None else 'bound'
        k.update(name=f"{name} {source} {k['proto']}{family}", src=k['src'] and G1[family])
    return found


def ah(found):
    return [{**k, 'ah': True} for k in found]


def load(line):
    """Every kind that a line's children carry, some of them in fragments."""
    large = {'protos': ('udp',), 'sources': ('a',), 'name': 'large', 'size': 3000}
    if line == 'raw':
        return (ah(kinds(families=(4,))) + ah(kinds(families=(4,), first=21, **large)) + kinds(families=(6,), first=31)
                + kinds(families=(6,), first=51, **large) + own(('udp',), 4, 61) + own(('udp',), 4, 71, 'own large', 3000)
                + ah(own(('icmp', 'syn', 'live'), 4, 81)))
    return kinds(families=(4,)) + own(EVERY, 6, 61) + own(('udp',), 6, 71, 'own large', 3000)


def plain(line):
    """UDP between the gateways that no policy names: in clear, as it is meant to be."""
    return [{**k, 'port': k['port'] + 400} for k in own(('udp',), 4, 91, 'plain')] if line == 'raw' else []


def protocols(line):
    """Protocol and mode of the children that are up."""
    return sorted((c['name'], c['protocol'], c['mode']) for sa in line.g1.sas() for c in sa['child-sas'].values()
                  if c['state'] == 'INSTALLED')


def up(lab, name, **options):
    need('ip', 'nft', 'swanctl')
    line = Line(lab, **LINES[name], **options)
    line.up('g1')
    line.start_g2()
    line.start_g1()
    return line


def modes(lab, full, gone, name, chosen):
    line = up(lab, name)
    watch = Watch(line, load(name) + plain(name), ('plain',))
    watch.flows('tunnel up')
    wanted = sorted((n, 'AH' if 'ah_proposals' in c else 'ESP', c.get('mode', 'tunnel').upper())
                    for n, c in line.children.items())
    check(protocols(line) == wanted, f'protocols and modes: {wanted}')
    # What changes links and rules of others is not about the kind of SA.
    every = [d for d in DISTURBANCES if d not in ('routes_hijacked', 'links_changed', 'daemon_stopped')]
    for disturbance in every if full else chosen:
        DISTURBANCES[disturbance](line, watch, 5 if full else 0.4)
    watch.end()
    gone(line)


def control(lab, full, name):
    line = up(lab, name, guard=False)
    load_ = load(name)
    watch = Watch(line, load_, guarded=False)
    watch.flows('tunnel up')
    # Without a guard sockets that were opened before the tunnel was up may stay in clear.
    check(watch.phase('tunnel up', hold=0.2).encrypted, 'the tunnel is up')

    def undo():
        kill(line.g1)
        delete_rules(line)
    report = watch.phase('kill -9 without a guard, rules deleted', undo)
    names = {k['name'] for k in load_}
    missing = sorted(names - report.clear_kinds())
    check(not missing, f'control: {len(names) - len(missing)} of {len(names)} kinds seen in clear, missing: {missing}')


# Boot and the first packets


def boot(lab, full, gone):
    """Nothing in clear between guard and daemon, and before anything is initiated."""
    line = Line(lab, children={n: {k: v for k, v in c.items() if k != 'start_action'} for n, c in RAW.items()})
    line.start_g2()
    line.write_g1(line.text('g1'))
    lab.run('g1', program(), 'guard', '--install', '--config', lab.path('g1-etc'))
    watch = Watch(line, load('raw') + plain('raw'), ('plain',))
    hold = 5 if full else 0.4
    watch.phase('boot, interfaces up', lambda: line.up('g1'), hold, must=stopped)
    watch.phase('started, nothing initiated', line.start_g1, hold, must=stopped)
    watch.phase('initiated', line.initiate, 0)
    watch.flows()
    watch.end()
    gone(line)


def first(lab, full, gone):
    """The first packets wait for their SA, of each kind, with a peer that answers at once and one that does not. (A child
    with `start_action = start` has no policy before it has its SA: until then senders are told "unreachable".)"""
    need('ip', 'nft', 'swanctl')
    line = Line(lab, children={n: {**c, 'start_action': 'trap'} for n, c in RAW.items()})
    line.up('g1')
    line.start_g2()
    pings = (('a', B[4]), ('a', B[6]), ('g1', G2[4]))
    watch = Watch(line, [{**k, 'box': 'nobody'} for k in load('raw')])

    def began(how, during=lambda: None):
        # The sniffer takes whatever has an inner address for clear, but what is inside AH and bears a mark.
        running = [(to, subprocess.Popen(lab.argv(box, ('ping', '-n', '-q', '-c', '5', '-i', '0.002', '-W', '5', '-p', MARK,
                                                        to)), text=True, stdout=subprocess.PIPE)) for box, to in pings]
        during()
        for to, process in running:
            out = process.communicate(timeout=20)[0]
            got = re.search(r'(\d+) packets transmitted, (\d+) received', out)
            if not got:
                raise Failed(f'ping: {out}')
            check(got[1] == got[2] == '5', f'{how}: {to}: {got[2]} of {got[1]} arrived, the first among them')
        watch.judge(how, watch.cut(), must=lambda r: r.encrypted)

    def thaw():
        time.sleep(0.3)
        check(not line.g1.child_spis(), 'the peer has not answered: no SA is there')
        line.g2.process.send(signal.SIGCONT)
    line.start_g1()
    check(not line.g1.child_spis(), 'no SA is there')
    began('trap')
    line.g1.swanctl('--terminate', '--ike', 'net')
    until('the SAs are gone', lambda: not line.g1.sas() and not line.g2.sas())
    line.g2.process.send(signal.SIGSTOP)
    began('trap, the peer slow', thaw)
    gone(line)


# What a reload makes of them


def reload_modes(lab, full, gone):
    """One kind of SA becomes another under traffic."""
    host = {k: v for k, v in pair(4).items() if k != 'mode'}
    net = {**SITES, **START}
    line = Line(lab, children={'net': net, 'host': host})
    need('ip', 'nft', 'swanctl')
    line.up('g1')
    line.start_g2()
    line.start_g1()
    watch = Watch(line, ah(kinds(sources=('a', 'bound')) + own(EVERY, 4, 61)
                           + kinds(('udp',), ('a',), first=31, name='large', size=3000)))
    watch.flows('tunnel up')
    tunnel, transport = {'net': net, 'host': host}, {'net': net, 'host': pair(4)}
    options = {'copy_df': 'no', 'copy_ecn': 'no', 'copy_dscp': 'no', 'tfc_padding': '400', 'replay_window': '128'}
    steps = (('tunnel becomes transport', transport, 'ESP', 'TRANSPORT'),
             ('ESP becomes AH', {n: {**c, **AH} for n, c in transport.items()}, 'AH', 'TRANSPORT'),
             ('transport becomes tunnel', {n: {**c, **AH} for n, c in tunnel.items()}, 'AH', 'TUNNEL'),
             ('AH becomes ESP with IPComp', {n: {**c, 'ipcomp': 'yes'} for n, c in tunnel.items()}, 'ESP', 'TUNNEL'),
             ('other options', {n: {**c, **options} for n, c in tunnel.items()}, 'ESP', 'TUNNEL'),
             ('and back', tunnel, 'ESP', 'TUNNEL'))
    for what, children, protocol, mode in steps:
        line.g2.load(config('g2', children))

        def change():
            line.write_g1(line.text('g1', children))
            line.g1.process.send(signal.SIGHUP)
        watch.phase(what, change, 5 if full else 0.4)
        wanted = sorted((n, protocol, mode if n == 'host' else 'TUNNEL') for n in children)
        until(f'{what}: {wanted}', lambda: protocols(line) == wanted)
        watch.flows(what)
    watch.end()
    gone(line)


# Forms of selectors

# One port of TCP, some types of ICMP, and a range of UDP ports with a hole in it.
FORMS = {
    'port': {'local_ts': '10.1.0.0/24[tcp],fd00:1::/64[tcp]',
             'remote_ts': '10.2.0.0/24[tcp/7201],fd00:2::/64[tcp/7202]', **START},
    'type': {'local_ts': '10.1.0.0/24[icmp/8],10.1.0.0/24[icmp/0],fd00:1::/64[ipv6-icmp/128],fd00:1::/64[ipv6-icmp/129]',
             'remote_ts': '10.2.0.0/24[icmp/8],10.2.0.0/24[icmp/0],fd00:2::/64[ipv6-icmp/128],fd00:2::/64[ipv6-icmp/129]',
             **START},
    'range': {'local_ts': '10.1.0.0/24[udp],fd00:1::/64[udp]',
              'remote_ts': '10.2.0.0/24[udp/7210-7299],fd00:2::/64[udp/7210-7299]', **AH, **START},
    'hole': {'local_ts': '10.1.0.0/24[udp],fd00:1::/64[udp]', 'remote_ts': '10.2.0.0/24[udp/7290],fd00:2::/64[udp/7290]',
             'mode': 'pass', 'start_action': 'trap'}}


def forms_load():
    """What FORMS protect, and what they leave in clear (`plain`, `hole`)."""
    at = 7201
    secret = [{**k, 'port': at + (k['src'] == A[6])} for k in kinds(('live',), ('a',), first=1, name='one port')]
    secret += kinds(('icmp',), ('a', 'bound'), first=11, name='type')
    secret += ah(kinds(('udp',), ('a', 'bound'), first=111, name='range'))
    secret += ah(kinds(('udp',), ('a', 'bound'), first=121, name='large', size=3000))
    clear = [{**k, 'port': 7290} for k in kinds(('udp',), ('a',), first=131, name='hole')]
    clear += kinds(('udp', 'syn', 'live'), ('a',), first=241, name='plain')
    # Private experimentation (RFC 4443), and of no meaning in IPv4: nobody answers.
    clear += [{**k, 'type': 200} for k in kinds(('icmp',), ('a',), first=261, name='plain type')]
    return secret, clear


def seen_without_a_guard(line, load):
    """Kills the daemon of a line without a guard, deletes its rules, and expects every kind of the load in clear. Gives the watch."""
    line.up('g1')
    line.start_g2()
    line.start_g1()
    watch = Watch(line, load, guarded=False)
    watch.flows('tunnel up')

    def undo():
        # Routes that lead nowhere may stand; they are no guard when the rules are gone.
        kill(line.g1)
        delete_rules(line)
    report = watch.phase('kill -9 without a guard, rules deleted', undo)
    names = {k['name'] for k in load}
    missing = sorted(names - report.clear_kinds())
    check(not missing, f'control: {len(names) - len(missing)} of {len(names)} kinds seen in clear, missing: {missing}')
    return watch


def forms(lab, full, finer):
    line = Line(lab, children=FORMS)
    line.up('g1')
    line.start_g2()
    line.start_g1()
    secret, clear = forms_load()
    finer(line, Watch(line, secret + clear, ('plain', 'hole')), full)


def forms_control(lab, full):
    secret, _ = forms_load()
    seen_without_a_guard(Line(lab, children=FORMS, guard=False), secret)
