#!/usr/bin/env python3
"""What policy protects never leaves in clear, and nothing clear comes in for it, whatever fails.

usage: testkit/interop/run [--full] leak[.TEST]      --full: every disturbance over IPv6 outside too, each watched for 5 s

A thousand packets per second (UDP, ICMP, SYNs and live connections, IPv4 and IPv6; from a host behind the gateway, and
from the gateway itself, bound to its inside address and unbound) meet each disturbance, while sniffers on both outer
links judge every frame. The controls show that they would see a leak: without the guard each kind of packet is caught.
"""
import json
import os
import signal
import sys
import time

from gateway import program
from lab import Failed, call, check, halves, main, need, say, until
from leakfaults import DISTURBANCES, OTHER, delete_rules, kill, stopped, table_220, unbound
import leakbackends
import leakmodes
from leakline import (A, B, EVERY, G1, G2, HOLE, INNER, INSIDE, PUBLIC, SITES, Helper, Line, Watch, config, kind_of,
                      kinds)

STARTED = {'start_action': 'start'}
B3, FAR = {4: '10.3.0.2', 6: 'fd00:3::2'}, {4: '198.18.0.1', 6: '2001:db8:18::1'}
SECOND = {4: '10.1.0.66', 6: 'fd00:1::66'}


def mix():
    """The load of most tests: every kind, and datagrams in fragments."""
    return kinds() + kinds(('udp',), ('a', 'bound'), first=31, name='large', size=3000)


def begun(lab, load=None, allowed=(), more=None, **options):
    """The line with both gateways up, load and sniffers; the tunnel carries every kind."""
    need('ip', 'nft', 'swanctl')
    line = Line(lab, **options)
    line.up('g1')
    line.start_g2()
    line.start_g1(more=more)
    return line, Watch(line, load or mix(), allowed)


def disturbed(lab, full, names, load=None, **options):
    line, watch = begun(lab, load, **options)
    watch.flows('tunnel up')
    for name in names:
        DISTURBANCES[name](line, watch, 5 if full else 0.7)
    watch.end()
    gone(line)


def one(name):
    def test(lab, full):
        disturbed(lab, full, [name])
    test.__doc__ = f'{name} over IPv4 outside.'
    return test


def holds_with_ipv6_outside(lab, full):
    """IPv6 outside, encapsulated in UDP."""
    disturbed(lab, full, list(DISTURBANCES) if full else ['kill9', 'routes_flushed', 'nft_flushed'], outer=6, encap=True)


def holds_behind_masquerading(lab, full):
    """A gateway that masquerades what leaves by its outer link, and has an address of its own for the peer's host."""
    load = mix() + [{**k, 'at': B[4]} for k in kinds(EVERY, ('a',), (4,), to=PUBLIC, first=51, name='dnat')]
    # Not those that flush the NAT, too.
    names = [n for n in DISTURBANCES if n not in ('nft_flushed', 'daemon_stopped')] if full else ['kill9', 'rules_deleted']
    disturbed(lab, full, names, load, nat=True)


def gone(line):
    """What the guard leaves when it is told to go, is nothing."""
    if line.g1.process:
        line.g1.stop()
    line.lab.run('g1', program(), 'guard', '--remove')
    rules = ''.join(line.ip(*family, 'rule', 'show') for family in ((), ('-6',)))
    left = {'table': bool(line.table()), 'rule': '220' in rules or '219' in rules,
            'route': any('dev' in t or 'unreachable' in t or 'throw' in t for t in table_220(line)),
            'device': 'ipsec0' in line.ip('link', 'show')}
    check(not any(left.values()), f'guard --remove: no table, rule, route or device is left ({left})')


# Boot, start, and another connection


def holds_from_boot_on(lab, full):
    """The guard stands before the interfaces come up, and holds until the daemon has its SAs; also when another
    connection has an error."""
    need('ip', 'nft', 'swanctl')
    line = Line(lab)
    line.start_g2()
    install = (program(), 'guard', '--install', '--config', lab.path('g1-etc'))
    line.write_g1(line.text('g1', more=OTHER).replace('198.51.100.9', '198.51.100.999'))
    done = lab.run('g1', *install, fail=False)
    check(done.returncode == 2 and line.table(), f'with an error in one connection the other is guarded: {done.stdout}')
    watch = Watch(line, mix())
    hold = 5 if full else 0.7
    watch.phase('boot, interfaces down', hold=hold / 2)
    watch.phase('boot, interfaces up', lambda: line.up('g1'), hold, must=stopped)
    line.write_g1(line.text('g1'))
    lab.run('g1', *install)
    watch.phase('boot, daemon started', line.start_g1, 0)
    watch.flows('tunnel up')
    watch.end()
    gone(line)


def holds_while_the_table_is_replaced(lab, full):
    """The table is replaced again and again under a flood, with nothing else between that and the outer link: the kernel
    changes rules at once, but not what maps hold."""
    need('ip', 'nft')
    line = Line(lab)
    line.up('g1')
    line.write_g1(line.text('g1'))
    lab.run('g1', program(), 'guard', '--install', '--config', lab.path('g1-etc'))
    lab.write('table.nft', f'table inet ironswan\ndelete table inet ironswan\n{line.table()}')
    delete_rules(line)
    watch = Watch(line, kinds(('udp',), ('a', 'bound')), echo=(), rate=100_000)
    times = 1000 if full else 150

    def again():
        for _ in range(times):
            line.nft(f"include \"{lab.path('table.nft')}\"")
    watch.phase('the table stands', hold=0.5, must=stopped)
    watch.phase(f'replaced {times} times', again, 0, must=stopped)
    watch.end()
    gone(line)


def holds_when_only_loaded(lab, full):
    """Loaded and not initiated is protected already."""
    line, watch = begun(lab, children={'net': SITES})
    hold = 5 if full else 0.7
    watch.phase('started, nothing initiated', hold=hold, must=stopped)
    watch.phase('initiated', line.g1.initiate, hold / 2)
    watch.flows()
    watch.end()
    gone(line)


def holds_until_the_trap_is_up(lab, full):
    """The load itself brings the tunnel up; none of it gets out before."""
    line, watch = begun(lab, children={'net': {**SITES, 'start_action': 'trap'}})
    watch.flows('tunnel up')
    watch.phase('and closed', lambda: line.g1.swanctl('--terminate', '--ike', 'net'), 0)
    watch.flows('tunnel up again')
    watch.end()
    gone(line)


def unloading_opens_only_its_own(lab, full):
    """Another connection is unloaded: what it protected goes its normal way from then on, and nothing else does."""
    other = kinds(('udp', 'icmp', 'syn'), ('a', 'bound'), to={4: '10.9.0.9', 6: 'fd00:9::9'}, first=101, name='other')
    names = {k['name'] for k in other}
    line, watch = begun(lab, mix() + other, more=OTHER)
    watch.flows('tunnel up', but=names)
    hold = 5 if full else 0.7
    watch.phase('the other connection is loaded', hold=hold / 2, must=stopped)
    line.write_g1(line.text('g1'))
    spis = line.g1.child_spis()
    line.g1.process.send(signal.SIGHUP)
    # From here on its packets may be clear; an instant later they must be.
    watch.allowed = names
    until('the other connection is gone', lambda: 'other' not in line.g1.swanctl('--list-conns'), 3)
    watch.phase('unloading', hold=0.3)
    watch.phase('the other connection is unloaded', hold=hold, must=lambda r: names <= r.clear_kinds())
    check(line.g1.child_spis() == spis, 'the SAs of the first go on')
    watch.flows(but=names)
    watch.end()
    gone(line)


def either_half_holds_without_a_daemon(lab, full):
    """No daemon, and somebody removes half of what stands: either half holds."""
    line, watch = begun(lab)
    watch.flows('tunnel up')
    hold = 5 if full else 0.7
    watch.phase('kill -9', lambda: kill(line.g1), hold / 2, must=stopped)
    watch.phase('nft flush ruleset with no daemon: routes hold', lambda: line.nft('flush ruleset'), hold, must=stopped)
    watch.phase('started', line.start_g1, 0)
    watch.flows()
    watch.phase('kill -9', lambda: kill(line.g1), hold / 2, must=stopped)

    def undo():
        routes = [('route', 'flush', 'table', '220'), ('-6', 'route', 'flush', 'table', '220')]
        delete_rules(line)
        for command in routes:
            line.ip(*command, fail=False)
    watch.outer = unbound(watch)
    watch.phase('rules and routes removed with no daemon: nft holds', undo, hold, must=stopped)
    # What they have sent may still be on its way.
    watch.phase('started', line.start_g1, hold / 2)
    watch.no_excuse()
    watch.flows()
    watch.end()
    gone(line)


def icmp_errors_do_not_quote_in_clear(lab, full):
    """What the gateway itself says about packets out of the tunnel (they have lived too long) quotes them, and so must
    go back through the tunnel, or nowhere: with an address inside the policy, and with none."""
    old = [{**k, 'box': 'b', 'src': B[4 if ':' not in k['dst'] else 6], 'ttl': 2}
           for k in kinds(('udp', 'icmp'), ('a',), to=A, first=201, name='old')]
    host_only = {**SITES, 'local_ts': f'{A[4]}/32,{A[6]}/128'}
    line, watch = begun(lab, kinds(sources=('a',)) + old, children={'net': {**SITES, **STARTED}})
    hold = 5 if full else 0.7
    names = {k['name'] for k in old}
    watch.flows('tunnel up', but=names)
    watch.phase('inside address in the policy', hold=hold, must=lambda r: r.encrypted)
    line.write_g1(line.text('g1', {'net': {**host_only, **STARTED}}))
    line.g2.load(config('g2', {'net': host_only}))
    line.g1.process.send(signal.SIGHUP)
    watch.phase('policy changed', hold=hold)
    watch.flows('tunnel up', but=names)
    watch.phase('no address of the gateway in the policy', hold=hold, must=lambda r: r.encrypted)
    watch.end()
    gone(line)


# Policies finer than a prefix


def meant(watch, forwarded=False):
    """Every kind that is meant to be clear is seen in clear and is answered; `forwarded`: those that are forwarded."""
    def must(report):
        wanted = {k['name'] for k in watch.load if k['name'] in watch.allowed and (k['box'] == 'a' or not forwarded)}
        missing = wanted - report.clear_kinds()
        silent = {k['name'] for k in watch.load if k['name'] in wanted and not report.kinds[k['name']][2] and 'type' not in k}
        if missing or silent:
            say(f'       meant to be clear and not seen: {sorted(missing)}; not answered: {sorted(silent)}')
        return not missing and not silent
    return must


def finer(line, watch, full, inside=()):
    """The disturbances for a policy finer than a prefix; `inside`: kinds that are alive in the LAN all the time."""
    hold = 5 if full else 0.7

    def alive(report, forwarded=False):
        dead = [n for n in inside if not report.kinds[n][2]]
        if dead:
            say(f'       dead in the LAN: {dead}')
        return not dead and meant(watch, forwarded)(report)
    # A connection whose first SYN came before the routes tries again after a second: the phase wants it there.
    watch.flows('tunnel up', protocols=('udp', 'icmp', 'live'))
    watch.phase('tunnel up', hold=hold / 2, must=alive)

    # The gateway's own packets to a protected prefix, those that no policy covers too, meet the unreachable route
    # before any mark could tell them apart: with no daemon they stay inside.
    watch.phase('kill -9', lambda: kill(line.g1), hold, must=lambda r: alive(r, forwarded=True) and stopped(r))
    watch.phase('started after kill -9', line.start_g1, 0)
    watch.flows()
    watch.phase('nft flush ruleset', lambda: line.nft('flush ruleset'), hold, grace='')
    watch.flows()
    if full:
        for name in ('sigterm', 'routes_flushed', 'rules_deleted', 'device_deleted'):
            DISTURBANCES[name](line, watch, hold)
    watch.phase('and again', hold=hold / 2, must=alive)
    watch.end()
    gone(line)


def other_ports_stay_in_clear(lab, full):
    """Only UDP to some ports is protected: the rest leaves in clear as it is meant to, also while no daemon runs."""
    secret = kinds(('udp',), first=1, name='secret')
    large = kinds(('udp',), ('a', 'bound'), first=31, name='large', size=3000)
    plain = [{**k, 'port': k['port'] + 400} for k in kinds(sources=('a', 'bound'), first=61, name='plain')]
    children = {'net': {'local_ts': '10.1.0.0/24[udp],fd00:1::/64[udp]',
                        'remote_ts': '10.2.0.0/24[udp/7000-7199],fd00:2::/64[udp/7000-7199]', **STARTED}}
    line, watch = begun(lab, secret + large + plain, ('plain',), children=children)
    finer(line, watch, full)


def holds_for_everything_but_a_hole_and_the_lan(lab, full):
    """0.0.0.0/0 and ::/0 are protected but for a hole and the LAN, which stays alive."""
    children = {'net': {'local_ts': SITES['local_ts'], 'remote_ts': '0.0.0.0/0,::/0', **STARTED},
                'lan': {'local_ts': SITES['local_ts'], 'remote_ts': SITES['local_ts'], 'mode': 'pass',
                        'start_action': 'trap'},
                'hole': {'local_ts': SITES['local_ts'], 'remote_ts': f'{HOLE[4]}/32,{HOLE[6]}/128', 'mode': 'pass',
                         'start_action': 'trap'}}
    secret = kinds(sources=('a', 'bound')) + kinds(('udp', 'syn'), ('a', 'bound'), to=FAR, first=31, name='far')
    hole = kinds(sources=('a', 'bound'), to=HOLE, first=61, name='hole')
    lan = kinds(('udp', 'icmp'), ('a',), to=INSIDE, first=91, name='lan')
    line, watch = begun(lab, secret + hole + lan, ('hole',), children=children)
    finer(line, watch, full, [k['name'] for k in lan])


def host_to_host_lets_ike_and_esp_through(lab, full):
    """Between the outer addresses of the gateways: IKE and ESP are of the policy themselves, and get through."""
    children = {'net': {'local_ts': f'{G1[4]}/32,{G1[6]}/128', 'remote_ts': f'{G2[4]}/32,{G2[6]}/128', **STARTED}}
    load = kinds(sources=('unbound',), to=G2) + [{**k, 'src': G1[6 if ':' in k['dst'] else 4]}
                                                 for k in kinds(sources=('bound',), to=G2, first=31)]
    line, watch = begun(lab, load, children=children)
    finer(line, watch, full)


def closing_one_child_leaves_the_other(lab, full):
    """Two children with one peer; one is closed, the other goes on."""
    both = {'net': {**SITES, **STARTED},
            'third': {'local_ts': SITES['local_ts'], 'remote_ts': '10.3.0.0/24,fd00:3::/64', **STARTED}}
    third = kinds(first=41, to=B3, name='third')
    line, watch = begun(lab, mix() + third, children=both)
    watch.flows('both up')
    names = {k['name'] for k in third}
    watch.phase('one child closed', lambda: line.g1.swanctl('--terminate', '--child', 'third'), 0.2)
    watch.phase('one child is closed', hold=1,
                must=lambda r: stopped(r) and r.encrypted and not any(r.kinds[n][2] for n in names))
    watch.flows('the other goes on', but=names)
    line.g1.initiate('third')
    watch.flows('both up')
    finer(line, watch, full)


def wide_selectors_keep_the_lans(lab, full):
    """10.0.0.0/8 behind the peer, 10.1.0.0/16 here: the LANs here see each other and the gateway all the time."""
    around = {'net': {'local_ts': '10.1.0.0/16,fd00:1::/64', 'remote_ts': '10.0.0.0/8,fd00::/16', **STARTED}}
    c = {4: '10.1.5.2', 6: 'fd00:1:0:5::2'}
    near = kinds(('udp', 'icmp'), ('a',), to=INSIDE, first=61, name='lan')
    out = kinds(('udp', 'icmp', 'syn'), ('bound', 'unbound'), to=A, first=71, name='out')
    across = kinds(('udp', 'icmp'), ('a',), families=(4,), to=c, first=91, name='across')

    def second_lan(line):
        lab.box('c')
        lab.wire('c', 'eth0', ['10.1.5.2/24'], 'g1', 'lan2', ['10.1.5.1/24'])
        lab.ip('c', 'route', 'add', 'default', 'via', '10.1.5.1')
    lan = [k['name'] for k in near + out + across]
    need('ip', 'nft', 'swanctl')
    line = Line(lab, children=around)
    line.up('g1')
    second_lan(line)
    line.start_g2()
    line.start_g1()
    watch = Watch(line, mix() + near + out + across, echo=('b', 'g1', 'a', 'c'))
    finer(line, watch, full, lan)


def narrow_selectors_keep_the_neighbour(lab, full):
    """One host is protected; its neighbour and the gateway reach the same destination by the normal way, in clear."""
    children = {'net': {'local_ts': f'{A[4]}/32,{A[6]}/128', 'remote_ts': SITES['remote_ts'], **STARTED}}
    second = kinds(sources=('a', 'bound'), src=SECOND, first=61, name='second')
    line, watch = begun(lab, kinds(sources=('a',)) + second, ('second',), children=children)
    finer(line, watch, full)


# The way in


def injected(forms4, forms6, first, name, src=B, to=(('host', A), ('gateway', INSIDE))):
    result = []
    for family, forms in ((4, forms4), (6, forms6)):
        for form in forms:
            for whom, dst in to:
                number = first + len(result)
                result.append({'id': number, 'name': f'{name} {form}{family} to {whom}', 'form': form,
                               'src': src[family], 'dst': dst[family], 'port': 7100 + number, 'proto': 'inject',
                               'box': ''})
    return result


PLAIN = injected(('udp', 'icmp', 'syn'), ('udp', 'icmp', 'syn'), 1, 'plain')
FRAGMENTS = ('fragments', 'tiny', 'second', 'routed', 'broadcast')
ODD = injected(FRAGMENTS, (*FRAGMENTS, 'options'), 41, 'odd')


class Injection:
    """Injectors at the router, ears at the host and in the gateway's sockets."""

    def __init__(self, line, plain=PLAIN, odd=ODD):
        self.line = line
        self.mac = line.mac('g1', 'wan')
        lab = line.lab

        def spec(name, inject):
            return lab.write(f'{name}.json', json.dumps({
                'kinds': inject, 'nets': INNER, 'outer': [*G1.values(), *G2.values()], 'sockets': name == 'g1'}))
        self.injectors = [Helper(lab, 'r', 'trafficinject.py', spec(n, k), 'west', self.mac)
                          for n, k in (('plain', plain), ('odd', odd))]
        self.ears = [Helper(lab, 'a', 'sniff.py', spec('a', plain + odd), 'eth0'),
                     Helper(lab, 'g1', 'sniff.py', spec('g1', plain + odd))]
        for helper in (*self.injectors, *self.ears):
            helper.ready()

    def burst(self, count):
        """Kinds that came through and how often; frames of the plain ones; what the guard counted of them."""
        frames, counted = [], []
        for injector in self.injectors:
            before = self.line.counters()
            injector.ask(str(count))
            frames.append(injector.answer())
            time.sleep(0.1)
            after = self.line.counters()
            counted.append(None if before is None or after is None else after['in_clear'] - before['in_clear'])
        through = {}
        for ear in self.ears:
            ear.ask()
            heard = ear.answer()
            if heard['dropped']:
                raise Failed(f"the ear is deaf: {heard['dropped']} dropped by the kernel")
            for key, n in (*heard['clear'].items(), *heard['local'].items()):
                through[kind_of(key)] = through.get(kind_of(key), 0) + n
        return through, frames, counted

    def judge(self, name, count):
        through, frames, counted = self.burst(count)
        for key, n in through.items():
            say(f'       came in: {n} x {key}')
        check(not through, f'{name}: {sum(frames)} clear packets injected, {sum(through.values())} came in, '
              f'{counted} counted in_clear')
        check(None not in counted and counted[0] >= frames[0], f'{name}: all {frames[0]} plain ones are in the counter')


def clear_packets_do_not_come_in(lab, full, backend=None):
    """Clear packets that must come protected never get in: SAs up, none, daemon killed, ended, table flushed."""
    need('ip', 'nft', 'swanctl')
    line = Line(lab, settings=leakbackends.BACKENDS.get(backend, ''))
    line.up('g1')
    line.start_g2()
    line.start_g1()
    count = 100 if full else 10
    until('the SA is up', lambda: line.g1.child_spis())
    if backend:
        lab.run('a', 'ping', '-n', '-q', '-c', '3', '-i', '0.2', B[4])
        leakbackends.check_used(line.g1, backend)
    injection = Injection(line)
    injection.judge('SA up', count)
    line.g1.swanctl('--terminate', '--ike', 'net')
    injection.judge('no SA', count)
    kill(line.g1)
    injection.judge('killed', count)
    line.start_g1()
    until('the SA is up', lambda: line.g1.child_spis())
    line.nft('flush ruleset')
    until('the table is there again', lambda: line.counters() is not None, 5)
    injection.judge('after nft flush ruleset', count)
    check(line.g1.stop() == 0, 'SIGTERM: exit status 0')
    injection.judge('ended', count)
    gone(line)


def clear_packets_do_not_come_in_finer_policies(lab, full):
    """Policies finer than a prefix: ports, where the others get in as they are meant to and fragments do not; and the
    outer addresses of the gateways."""
    need('ip', 'nft', 'swanctl')
    secret = injected(('udp',), ('udp',), 1, 'secret') + injected(('fragments',), ('fragments',), 21, 'secret')
    forms = ('udp', 'icmp', 'syn')
    plain = [{**k, 'port': k['port'] + 400} for k in injected(forms, forms, 41, 'plain')]
    outer = injected(forms, forms, 81, 'outer', G2, (('gateway', G1),))
    sides = {'udp': {'local_ts': '10.1.0.0/24[udp],fd00:1::/64[udp]',
                     'remote_ts': '10.2.0.0/24[udp/7000-7199],fd00:2::/64[udp/7000-7199]'},
             'host': {'local_ts': f'{G1[4]}/32,{G1[6]}/128', 'remote_ts': f'{G2[4]}/32,{G2[6]}/128'}}
    line = Line(lab, children=sides)
    line.up('g1')
    line.start_g2()
    line.start_g1()
    count = 100 if full else 10
    injection = Injection(line, secret + outer, plain)
    for to in A.values():
        # The first packet to a neighbour may wait for a second.
        until('g1 knows its neighbour', lambda: lab.run('g1', 'ping', '-c1', '-W1', to, fail=False).returncode == 0)
    for state in ('daemon up', 'killed'):
        through, frames, counted = injection.burst(count)
        whole = {k['name'] for k in secret + outer}
        check(not whole & set(through), f'{state}: {frames[0]} clear packets of the policies injected, none came in, '
              f'{counted[0]} counted: {sorted(whole & set(through))}')
        missing = {k['name'] for k in plain if through.get(k['name'], 0) < count}
        check(not missing and counted[1] == 0,
              f'{state}: {frames[1]} that no policy covers all came in, missing {missing}')
        if state == 'daemon up':
            kill(line.g1)
    gone(line)


# The controls: the same without a guard, and all must be seen


def leaks(lab, **options):
    """Killed without a guard: each kind is caught by the sniffer, and each injected one gets in."""
    need('ip', 'nft', 'swanctl')
    line = Line(lab, **options)
    watch = leakmodes.seen_without_a_guard(line, kinds())
    watch.end()
    through, frames, _ = Injection(line).burst(10)
    names = {k['name'] for k in PLAIN}
    odd = {k['name'] for k in ODD} & set(through)
    check(all(through.get(n, 0) >= 10 for n in names),
          f'control: {len(names & set(through))} of {len(names)} plain kinds injected come in')
    check(len(odd) >= 12, f'control: {len(odd)} of {len(ODD)} odd ones come in: {sorted(odd)}')


def control_child_without_guard(lab, full):
    """guard = no of the child."""
    leaks(lab, guard=False)


def control_daemon_without_guard(lab, full):
    """guard = no in ironswan.conf."""
    leaks(lab, settings='guard = no\n')


TESTS = {f.__name__: f for f in (
    control_child_without_guard, control_daemon_without_guard, holds_from_boot_on, holds_while_the_table_is_replaced,
    holds_when_only_loaded, holds_until_the_trap_is_up, either_half_holds_without_a_daemon, icmp_errors_do_not_quote_in_clear)}
TESTS |= {f'holds_through_{name}': one(name) for name in DISTURBANCES}
TESTS |= {f.__name__: f for f in (
    unloading_opens_only_its_own, holds_with_ipv6_outside, holds_behind_masquerading, other_ports_stay_in_clear,
    holds_for_everything_but_a_hole_and_the_lan, host_to_host_lets_ike_and_esp_through, closing_one_child_leaves_the_other,
    wide_selectors_keep_the_lans, narrow_selectors_keep_the_neighbour, clear_packets_do_not_come_in,
    clear_packets_do_not_come_in_finer_policies)}

# Every kind of SA and of selector meets the disturbances that can differ for it, and is seen to leak without a guard.
SHORT = {'raw': ('kill9', 'device_deleted', 'nft_flushed', 'reload', 'rekey'), 'udp': ('kill9', 'sigterm', 'rules_deleted', 'reinitiate')}


def of_kind(test, doc, *more):
    def run(lab, full):
        test(lab, full, *more)
    run.__doc__ = doc
    return run


for kind, chosen in SHORT.items():
    TESTS[f'every_mode_holds_{kind}'] = of_kind(leakmodes.modes, f'{kind}: {leakmodes.LINES[kind]}', gone, kind, chosen)
    TESTS[f'control_every_mode_{kind}'] = of_kind(leakmodes.control, 'The same without a guard: each kind is caught.', kind)
TESTS |= {'every_mode_holds_from_boot_on': of_kind(leakmodes.boot, leakmodes.boot.__doc__, gone),
          'first_packets_of_every_mode_wait': of_kind(leakmodes.first, leakmodes.first.__doc__, gone),
          'every_mode_holds_through_reloads': of_kind(leakmodes.reload_modes, leakmodes.reload_modes.__doc__, gone),
          'ports_icmp_types_and_ranges_hold': of_kind(leakmodes.forms, 'One port, types of ICMP, a range with a hole.', finer),
          'control_ports_icmp_types_and_ranges': leakmodes.forms_control}
# The data planes that a gateway can have beside the default one, and a kernel that refuses or takes away the fast one.
TESTS |= {f'holds_with_{name}': of_kind(leakbackends.backend, f'The disturbances with other settings: {name}.', begun, gone, name)
          for name in leakbackends.BACKENDS}
TESTS |= {'holds_when_the_xdp_interface_is_deleted': of_kind(leakbackends.vanishes, leakbackends.vanishes.__doc__, begun, gone),
          'clear_packets_do_not_come_in_with_xdp': of_kind(clear_packets_do_not_come_in, 'Where ESP comes through AF_XDP.', 'xdp'),
          'holds_when_the_kernel_refuses_offloads': of_kind(leakbackends.refused, leakbackends.refused.__doc__, begun, gone)}


def left_behind():
    """What of these tests is still there, in this machine and outside their namespaces."""
    tag = f'it{os.getpid()}-'
    found = [ns for ns in call('ip', 'netns', 'list').split() if ns.startswith(tag)]
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline') as f:
                command = f.read().replace('\0', ' ')
        except OSError:
            continue
        if f'/{tag}' in command or f' {tag}' in command:
            found.append(f'process {pid}: {command[:80]}')
    found += [f'/var/tmp/{d}' for d in os.listdir('/var/tmp') if d.startswith(tag)]
    found += [f'device {w}' for w in ('ipsec0',) if w in call('ip', 'link', 'show')]
    found += [r for f in ((), ('-6',)) for r in call('ip', *f, 'rule', 'show').splitlines() if 'lookup 220' in r]
    found += [t for t in call('nft', 'list', 'tables').splitlines() if 'ironswan' in t]
    return found


if __name__ == '__main__':
    halves(TESTS, __file__)
    try:
        main(TESTS, 'leak')
    finally:
        if os.geteuid() == 0 and not os.environ.get('KEEP') and (left := left_behind()):
            say(f'leak: left behind: {left}')
            sys.exit(1)
