#!/usr/bin/env python3
"""NAT: mappings that live through idleness, that move in mid-traffic, that an attacker cannot move; two behind one; double.

usage: testkit/interop/run [--full] nat[.TEST]      --full: RFC-like times (mappings of 30 s, 75 s idle), more rounds, and all pairs
A mapping that moves may cost what is on its way until the next authenticated packet from inside: `MOVE` below.
"""
import itertools
import json
import subprocess
import sys
import time

from gateway import Charon, IronSwan
from guest import StrongSwanGuest, plug, with_guest
from lab import HERE, Failed, check, main, need, say
from wan import (Flow, Rest, Watch, answered, check_flow, conf, connection, drops, flows_again, inner, installed, internet,
                 mappings, nat, pair_at_rest, pings, remap, site, uplink)

# The NAT's and the gateways' outer addresses.
NAT = '203.0.113.1'
G2 = '192.0.2.2'
ELSEWHERE = '198.51.100.66'
RATE = 200
# Seconds until the mapping is followed. Packets flow from inside every 5 ms; the first of them tells. The rest is what a
# test machine with two busy cores needs to run the seven processes in between.
MOVE = 0.5
# A guest's one slow CPU may pause on its own account; what is lost is bounded all the same.
GUEST = 1.5
KEEPALIVE = 20


def behind_nat(lab, *gateways, double=False, timeout=30):
    """The sites `gateways` behind the NAT n1 (and that behind n2), g2 on the internet, watchers and all."""
    internet(lab)
    lab.box('n1')
    for i, gateway in enumerate(gateways):
        site(lab, gateway)
        uplink(lab, gateway, 'wan', 'n1', f'in{i}', f'10.9.{i}', host=2)
    outer = ['n1', 'out', '203.0.113']
    if double:
        lab.box('n2')
        uplink(lab, 'n1', 'out', 'n2', 'in0', '100.64.0')
        uplink(lab, 'n2', 'out', 'r', 'u1', '203.0.113')
    else:
        uplink(lab, *outer[:2], 'r', 'u1', outer[2])
    for box in ('n1', 'n2')[:1 + double]:
        nat(lab, box, 'out', timeout=timeout)
    return Watch(lab, 'r', 'u1', 'g2')


def initiator_conf(me, child='', conn='', remote=G2):
    return conf(connection('net', me, 'g2', remote=remote, child=child, conn=conn))


def responder_conf(*peers, child='', conn=''):
    return conf(*(connection(f'net{p}', 'g2', p, local=G2, child=child, conn=conn, child_name=f'net{p}') for p in peers))


def start(lab, kinds, gateways=('g1',), double=False, timeout=30, settings='', conn=''):
    """Everything up: `kinds` are the programs of the initiators, then of the responder."""
    watch = behind_nat(lab, *gateways, double=double, timeout=timeout)
    *first, last = kinds
    responder = last(lab, 'g2').start(responder_conf(*gateways), **({'settings': settings} if last is IronSwan else {}))
    initiators = []
    for kind, gateway in zip(first, gateways):
        us = kind(lab, gateway).start(initiator_conf(gateway, conn=conn),
                                      **({'settings': settings} if kind is IronSwan else {}))
        us.initiate()
        initiators.append(us)
    for us in initiators:
        check(pings(lab, us.box, 'g2') and pings(lab, 'g2', us.box), f'{us.kind} behind NAT, {responder.kind} outside: '
              'traffic both ways')
        pair_at_rest(us, responder, their_conn=f'net{us.box}')
    return watch, initiators, responder


def peer_port(responder, conn):
    """Where the responder believes its peer to be."""
    sas = [sa for sa in responder.sas() if sa['name'] == conn]
    return (sas[0]['remote-host'], int(sas[0]['remote-port'])) if sas else None


def outside_port(lab, box, inside):
    """The NAT's port for the encapsulated flow of one inside address; there must be one."""
    found = {outside for address, port, outside in mappings(lab, box, inside) if port == 4500}
    return found.pop() if len(found) == 1 else None


def keepalives_keep_the_mapping(lab, full):
    """Idle for longer than the NAT remembers: keepalives keep the mapping, and a packet from outside gets in.

    IronSwan's keepalives come every 20 s. Short: mappings of 25 s, 45 s idle. Full: 30 s and 75 s.
    """
    if BACKGROUND:
        say('  (it has run beside the others)')
        out, _ = BACKGROUND.communicate(timeout=200)
        say(out.rstrip())
        return check(BACKGROUND.returncode == 0, 'the keepalives')
    timeout, idle = (30, 75) if full else (25, 45)
    watch, (us, other), them = start(lab, (IronSwan, Charon, IronSwan), ('g1', 'g3'), timeout=timeout)
    rest = Rest(lab, us, them)
    # So that the counts below begin with an idle link.
    time.sleep(1)
    before = watch.one('u1')
    ports = {g: outside_port(lab, 'n1', f'10.9.{i}.2') for i, g in enumerate(('g1', 'g3'))}
    check(None not in ports.values(), f'mappings: {ports}')
    time.sleep(idle)
    seen = {k: v - before[k] for k, v in watch.one('u1').items()}
    least = 2 * (idle // KEEPALIVE)
    check(least <= seen['keepalives'] <= least + 2, f"{seen['keepalives']} keepalives of two initiators in {idle} s idle")
    check(seen['sealed'] == 0, 'no ESP in that time')
    now = {g: outside_port(lab, 'n1', f'10.9.{i}.2') for i, g in enumerate(('g1', 'g3'))}
    check(ports == now, f'the mappings are the same after {idle} s, with a NAT that forgets after {timeout} s')
    for gateway in ('g1', 'g3'):
        check(pings(lab, 'g2', gateway), f'a packet from outside gets in to {gateway}')
    for gateway in (us, other):
        pair_at_rest(gateway, them, their_conn=f'net{gateway.box}')
    rest.check()
    watch.check('u1', 'g2')


def keepalives_give_way_to_traffic(lab, full):
    """`keep_alive = 2s`, a NAT that forgets after 5 s, and charon outside: keepalives at this pace while nothing is sent, none while
    packets are, and the mapping stays (RFC 3948 section 4)."""
    if BACKGROUND:
        say('  (it has run beside the others)')
        return check(BACKGROUND.wait(200) == 0, 'the keepalives')
    watch, (us,), them = start(lab, (IronSwan, Charon), timeout=5, settings='keep_alive = 2s\n')

    def keepalives(seconds):
        before = watch.one('u1')['keepalives']
        time.sleep(seconds)
        return watch.one('u1')['keepalives'] - before
    port = outside_port(lab, 'n1', '10.9.0.2')
    check(port is not None, f'the mapping has port {port}')
    for what in ('after the set-up', 'after traffic'):
        # The first one is due 2 s after the last packet.
        time.sleep(0.5)
        seen = keepalives(8.5)
        check(4 <= seen <= 5, f'{what}: {seen} keepalives in 8.5 s idle')
        flow = Flow(lab, 'g1', 'g2', rate=20)
        time.sleep(0.5)
        seen = keepalives(5)
        check(seen == 0, f'{seen} keepalives in 5 s with packets')
        check_flow(flow.end(), what, MOVE, lost=0, rate=20)
    for gateway in (us, them):
        gateway.swanctl('--rekey', '--child', 'net' if gateway is us else 'netg1')
        seen = keepalives(1)
        check(seen == 0, f'{gateway.kind} rekeys: {seen} keepalives in the second after it')
    check(outside_port(lab, 'n1', '10.9.0.2') == port, 'the mapping is the same')
    check(keepalives(7) >= 3 and outside_port(lab, 'n1', '10.9.0.2') == port, 'and so it is after 7 s more without a packet')
    check(pings(lab, 'g2', 'g1'), 'a packet from outside gets in')
    pair_at_rest(us, them, their_conn='netg1')


def moves(lab, watch, us, them, rounds, ranges, nats=('n1',)):
    """The NAT forgets everything in mid-traffic, again and again; each time the mapping is followed."""
    conn = f'net{us.box}'
    for number in range(rounds):
        before = peer_port(them, conn)
        flow = Flow(lab, us.box, 'g2', rate=RATE)
        time.sleep(0.7)
        for box in nats:
            remap(lab, box, 'out', next(ranges))
        time.sleep(1.3)
        report = flow.end()
        check_flow(report, f'move {number + 1}', MOVE, rate=RATE)
        # From inside nothing is ever lost: the NAT makes a new mapping for it at once.
        inside = report[f"{'a' if us.box == 'g1' else 'c'} to b"]
        check(inside['lost'] == 0, f'move {number + 1}: nothing lost from inside')
        after = peer_port(them, conn)
        check(after != before and after == (NAT, outside_port(lab, nats[-1], '10.9.0.2' if len(nats) == 1 else '100.64.0.1')),
              f'move {number + 1}: {them.kind} follows from {before} to {after}')
    pair_at_rest(us, them, their_conn=conn)


def port_ranges():
    return itertools.cycle(f'{n}000-{n}999' for n in range(30, 60))


def mapping_moves_under_traffic(lab, full):
    """IronSwan at both ends: the mapping moves under traffic both ways, and idle."""
    watch, (us,), them = start(lab, (IronSwan, IronSwan))
    rest = Rest(lab, us, them)
    ranges = port_ranges()
    moves(lab, watch, us, them, 10 if full else 2, ranges)
    # Idle, then a packet from inside. Its answer may be faster than the news of the new mapping; the next is not.
    remap(lab, 'n1', 'out', next(ranges))
    back = answered(lab, count=4)
    check(back >= 3, f'moved while idle: {back} of 4 echoes from inside are answered, at most the first is not')
    rekeyed(us, them, ranges, lab)
    rest.check()
    watch.check('u1', 'g2')


def rekeyed(us, them, ranges, lab):
    """A mapping that moved is where a rekeying goes too, from either side."""
    conn = f'net{us.box}'
    remap(lab, 'n1', 'out', next(ranges))
    answered(lab, us.box, 'g2', count=1)
    check(pings(lab, us.box, 'g2'), 'moved again')
    for what in ('child', 'ike'):
        them.swanctl('--rekey', f'--{what}', conn)
        time.sleep(0.5)
        check(pings(lab, us.box, 'g2') and pings(lab, 'g2', us.box), f'{what} rekeyed by {them.kind} over the new mapping')
    us.swanctl('--rekey', '--ike', 'net')
    time.sleep(0.5)
    check(pings(lab, us.box, 'g2') and pings(lab, 'g2', us.box), f'ike rekeyed by {us.kind} over the new mapping')
    pair_at_rest(us, them, their_conn=conn)


def mapping_of_strongswan_moves(lab, full):
    """strongSwan's initiator behind NAT, IronSwan outside: the mapping moves under traffic."""
    watch, (them,), us = start(lab, (Charon, IronSwan))
    rest = Rest(lab, us)
    moves(lab, watch, them, us, 10 if full else 2, port_ranges())
    rest.check()
    watch.check('u1', 'g2')


def mapping_moves_before_strongswan(lab, full):
    """IronSwan behind NAT, strongSwan outside. strongSwan's user-space ESP does not look where ESP comes from; its IKE
    does. So the mapping moves with our next IKE message: liveness, when nothing comes in any more (`dpd_delay`)."""
    watch, (us,), them = start(lab, (IronSwan, Charon), conn='dpd_delay = 2s')
    rest = Rest(lab, us)
    ranges = port_ranges()
    for number in range(3 if full else 1):
        flow = Flow(lab, rate=RATE)
        time.sleep(1)
        remap(lab, 'n1', 'out', next(ranges))
        time.sleep(6)
        check_flow(flow.end(), f'move {number + 1}', 2 * 2 + MOVE, rate=RATE)
    check(pings(lab, 'g2', 'g1') and pings(lab, 'g1', 'g2'), 'traffic both ways afterwards')
    pair_at_rest(us, them, their_conn='netg1')
    rest.check()
    watch.check('u1')


def nat_that_appears_is_followed(lab, full):
    """A router on the path begins to translate, which nobody tells the gateways: ESP in UDP goes on, from the new source."""
    internet(lab)
    site(lab, 'g1')
    lab.box('n1')
    uplink(lab, 'g1', 'wan', 'n1', 'in0', '198.51.100')
    uplink(lab, 'n1', 'out', 'r', 'u1', '203.0.113')
    lab.forward('n1')
    lab.ip('r', 'route', 'add', '198.51.100.0/24', 'via', NAT)
    watch = Watch(lab, 'r', 'u1', 'g2')
    them = IronSwan(lab, 'g2').start(responder_conf('g1'))
    us = IronSwan(lab, 'g1').start(conf(connection('net', 'g1', 'g2', remote=G2, encap=True)))
    us.initiate()
    check(pings(lab) and pings(lab, 'g2', 'g1'), 'no NAT yet: traffic both ways')
    check(peer_port(them, 'netg1') == ('198.51.100.1', 4500), 'the initiator is seen where it is')
    rest = Rest(lab, us, them)
    flow = Flow(lab, rate=RATE)
    time.sleep(0.7)
    nat(lab, 'n1', 'out')
    time.sleep(1.3)
    check_flow(flow.end(), 'translated from now on', MOVE, rate=RATE)
    now = peer_port(them, 'netg1')
    check(now == (NAT, outside_port(lab, 'n1', '198.51.100.1')), f'followed to {now}')
    rekeyed(us, them, port_ranges(), lab)
    rest.check()
    watch.check('u1', 'g2')


def mapping_moves_before_a_linux_kernel(lab, full):
    """IronSwan behind NAT, a Linux kernel's ESP outside: it tells its key daemon of the new mapping, and follows."""
    lab.box('r', 'g2', 'n1')
    lab.forward('r')
    lab.wire('g2', 'eth0', [], 'r', 'g2', ['192.0.2.254/24'])
    plug(lab, 'g2', 'eth0')
    site(lab, 'g1')
    uplink(lab, 'g1', 'wan', 'n1', 'in0', '10.9.0', host=2)
    uplink(lab, 'n1', 'out', 'r', 'u1', '203.0.113')
    nat(lab, 'n1', 'out')
    watch = Watch(lab, 'r', 'u1', 'g2')
    guest = StrongSwanGuest(lab, responder_conf('g1'), 'g2', f'{G2}/24', ('10.2.0.1/24',), ('192.0.2.254',))
    us = IronSwan(lab, 'g1').start(initiator_conf('g1'))
    us.initiate()
    rest = Rest(lab, us)
    ranges = port_ranges()
    for number in range(5 if full else 1):
        report = with_guest(lab, guest, 'a', inner('g1'), '10.2.0.1', lambda: remap(lab, 'n1', 'out', next(ranges)), RATE // 2)
        check_flow(report, f'move {number + 1}', GUEST, lost=int(MOVE * RATE // 2), rate=RATE // 2)
    rest.check()
    watch.check('u1')


def mapping_of_a_linux_kernel_moves(lab, full):
    """A Linux kernel's ESP behind NAT (the guest is gateway and host in one), IronSwan outside: the mapping moves."""
    internet(lab)
    lab.box('n1', 'g1')
    uplink(lab, 'n1', 'out', 'r', 'u1', '203.0.113')
    lab.wire('g1', 'eth0', [], 'n1', 'in0', ['10.9.0.254/24'])
    nat(lab, 'n1', 'out')
    watch = Watch(lab, 'r', 'u1', 'g2')
    plug(lab, 'g1', 'eth0')
    us = IronSwan(lab, 'g2').start(responder_conf('g1'))
    guest = StrongSwanGuest(lab, initiator_conf('g1'), 'g1', '10.9.0.2/24', ('10.1.0.1/24',), ('10.9.0.254',))
    guest.swanctl('--initiate', '--child', 'net')
    rest = Rest(lab, us)
    ranges = port_ranges()
    for number in range(5 if full else 1):
        before = peer_port(us, 'netg1')
        report = with_guest(lab, guest, 'b', inner('g2'), '10.1.0.1', lambda: remap(lab, 'n1', 'out', next(ranges)), RATE // 2)
        check_flow(report, f'move {number + 1}', GUEST, lost=int(MOVE * RATE // 2), rate=RATE // 2)
        after = peer_port(us, 'netg1')
        check(after != before and after == (NAT, outside_port(lab, 'n1', '10.9.0.2')), f'we follow from {before} to {after}')
    sas = us.sas()
    check(len(sas) == 1 and len(installed(sas[0])) == 1, 'we have one IKE_SA and one CHILD_SA')
    child = installed(sas[0])[0]
    check({int(spi, 16) for spi, *_ in guest.states()} == {int(child['spi-in'], 16), int(child['spi-out'], 16)},
          "the guest's kernel has the same two SAs and no other")
    errors = {k: v for k, v in guest.xfrm_errors().items() if k.startswith('XfrmIn') and k != 'XfrmInNoPols'}
    check(not errors, f"no error counter of the guest's receiving side moved: {errors or 'all zero'}")
    rest.check()
    watch.check('u1', 'g2')


class Attacker:
    def __init__(self, lab):
        # A burst of small packets crosses the router as one frame to be cut later; on a wire they are separate.
        lab.run('r', 'ethtool', '-K', 'g2', 'tx-udp-segmentation', 'off')
        self.process = lab.spawn('r', sys.executable, f'{HERE}/spy.py', 'g2', G2, name='spy', stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        if self.process.popen.stdout.readline() != 'ready\n':
            raise Failed(f'the attacker did not start: {self.process.log()}')

    def send(self, what, source, port, count=1):
        self.process.popen.stdin.write(f'{what} {source} {port} {count}\n')
        self.process.popen.stdin.flush()
        line = self.process.popen.stdout.readline()
        if not line:
            raise Failed(f'the attacker ended: {self.process.log()}')
        answer = json.loads(line)
        if 'error' in answer:
            raise Failed(f"the attacker: {answer['error']}")
        return answer


def attacker_moves_nothing(lab, full):
    """Who reads every packet and sends copies and forgeries from elsewhere moves nothing, and stops nothing."""
    need('ethtool')
    watch, (us,), them = start(lab, (IronSwan, IronSwan))
    rest = Rest(lab, us, them)
    attacker = Attacker(lab)
    lab.run('r', 'nft', 'add table ip caught; add counter ip caught taken; add chain ip caught to '
            '{ type filter hook prerouting priority -400; }; '
            f'add rule ip caught to iifname g2 ip daddr {{ {ELSEWHERE}, {NAT} }} udp dport 6666 counter name taken')
    them.swanctl('--rekey', '--child', 'netg1')
    time.sleep(0.5)
    at = peer_port(them, 'netg1')
    flow = Flow(lab, rate=RATE)
    time.sleep(0.5)
    before = drops(them)
    rounds = 100 if full else 20
    # Another address, and the NAT's own address with another port: both would be a new mapping.
    for source in (ELSEWHERE, NAT):
        for what in ('replay', 'garbage', 'forged', 'flipped', 'ike', 'ikeflipped'):
            for _ in range(rounds):
                attacker.send(what, source, 6666)
                time.sleep(0.005)
            check(peer_port(them, 'netg1') == at, f'{rounds} times {what} from {source}:6666: nothing moved')
    time.sleep(0.2)
    # A mapping that has moved comes back with the next packet from inside, so the log is asked as well.
    check('remote endpoint changed' not in them.log(), 'and not for a moment, says the log')
    report = flow.end()
    check_flow(report, 'under attack', MOVE, lost=0, rate=RATE)
    counted = {k: n - before.get(k, 0) for k, n in drops(them).items() if n - before.get(k, 0)}
    # Forgeries fail the ICV; a copy is a duplicate, or by then too old.
    check(counted.get('InStateProtoError', 0) >= 4 * rounds and
          sum(counted.get(k, 0) for k in ('InStateSeqDuplicate', 'InStateSeqOld')) >= 2 * rounds,
          f'each is dropped and counted under its reason: {counted}')
    taken = json.loads(lab.run('r', 'nft', '-j', 'list', 'counters', 'table', 'ip', 'caught'))
    taken = [c['counter']['packets'] for c in taken['nftables'] if 'counter' in c][0]
    # A retransmitted IKE request may be answered where it came from; ESP never goes there. The attacker sees its own datagrams, too: every
    # other flipped one is the request again.
    check(taken <= 3 * rounds, f'{taken} packets went to the attacker')
    pair_at_rest(us, them, their_conn='netg1')
    rest.check()
    watch.check('u1', 'g2')


def two_initiators_behind_one_nat(lab, full):
    """Two initiators behind one NAT: both carry traffic; mappings move; one is killed and starts again."""
    watch, (us, other), them = start(lab, (IronSwan, IronSwan, IronSwan), ('g1', 'g3'))
    rest = Rest(lab, us, them)
    ranges = port_ranges()
    flows = [Flow(lab, g, 'g2', rate=RATE // 2, port=7000 + i) for i, g in enumerate(('g1', 'g3'))]
    time.sleep(1)
    remap(lab, 'n1', 'out', next(ranges))
    time.sleep(2)
    for flow, name in zip(flows, ('first', 'second')):
        check_flow(flow.end(), f'both moved at once: the {name}', MOVE, rate=RATE // 2)
    # Only the second one's mapping goes.
    flows = [Flow(lab, g, 'g2', rate=RATE // 2, port=7000 + i) for i, g in enumerate(('g1', 'g3'))]
    time.sleep(0.5)
    lab.run('n1', 'sh', '-c', 'conntrack -D -p udp --orig-src 10.9.1.2 2>/dev/null')
    time.sleep(1.5)
    check_flow(flows[0].end(), 'the first, while the second moves', MOVE, lost=0, rate=RATE // 2)
    check_flow(flows[1].end(), 'the second moves', MOVE, rate=RATE // 2)
    for g in (us, other):
        pair_at_rest(g, them, their_conn=f'net{g.box}')
    # One is killed and starts again; the other does not notice.
    flow = Flow(lab, 'g1', 'g2', rate=RATE // 2)
    other.process.send(9)
    other.process.popen.wait()
    time.sleep(0.5)
    other.start(initiator_conf('g3', child='start_action = start'))
    took = flows_again(lab, 'g3', 'g2', timeout=10)
    check(took < 10, f'the second was killed and started again: traffic after {took:.1f} s')
    check_flow(flow.end(), 'the first meanwhile', MOVE, lost=0, rate=RATE // 2)
    for g in (us, other):
        pair_at_rest(g, them, their_conn=f'net{g.box}')
    rest.check()
    watch.check('u1', 'g2')


def two_nats_in_a_row(lab, full):
    """Two NATs in a row; the inner one moves, the outer one moves, both move."""
    watch, (us,), them = start(lab, (IronSwan, IronSwan), double=True)
    rest = Rest(lab, us, them)
    ranges = port_ranges()
    for which in (('n1',), ('n2',), ('n1', 'n2')):
        flow = Flow(lab, rate=RATE)
        time.sleep(0.7)
        for box in which:
            remap(lab, box, 'out', next(ranges))
        time.sleep(1)
        check_flow(flow.end(), f"{' and '.join(which)} forgot", MOVE, rate=RATE)
    pair_at_rest(us, them, their_conn='netg1')
    rest.check()
    watch.check('u1', 'g2')


# All of keepalive is waiting: in a run of everything it waits beside the others.
BACKGROUND = None
if all(a == '--full' or a.startswith('--seed=') for a in sys.argv[1:]):
    BACKGROUND = subprocess.Popen([sys.executable, __file__, 'keepalives_keep_the_mapping', 'keepalives_give_way_to_traffic', *sys.argv[1:]],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
TESTS = (
    mapping_moves_under_traffic, attacker_moves_nothing, two_initiators_behind_one_nat, two_nats_in_a_row, mapping_of_strongswan_moves,
    mapping_moves_before_strongswan, nat_that_appears_is_followed, mapping_of_a_linux_kernel_moves, keepalives_keep_the_mapping,
    keepalives_give_way_to_traffic)
if {'--full', '--list', 'mapping_moves_before_a_linux_kernel'} & set(sys.argv):
    TESTS = (*TESTS[:-2], mapping_moves_before_a_linux_kernel, *TESTS[-2:])
main({f.__name__: f for f in TESTS}, 'nat')
