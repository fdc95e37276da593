#!/usr/bin/env python3
"""The network under a running gateway changes: links, routes, addresses, names, IP versions. Numbered packets run both ways.

usage: testkit/interop/run [--full] [--seed=N] roam[.TEST]      --full: IronSwan as the peer as well, and long random walks
A failure names the seed of the random walk. Every bound below says what it is made of.
"""
import os
import random
import re
import shutil
import sys
import time

from gateway import Charon, IronSwan
from guest import StrongSwanGuest, plug, with_guest
from lab import HERE, check, main, take_seed, until
from wan import (Flow, Rest, Watch, check_flow, conf, connection, inner, installed, internet, nat, pair_at_rest, pings, site,
                 uplink, v6_of)

G2 = '192.0.2.2'
G2_V6 = f"{v6_of('192.0.2')}::2"
RATE = 200
# The initiator asks after 2 s of silence and gives up after three requests, a second apart.
CONN = 'dpd_delay = 2s\n    keyingtries = 0'
CHILD = 'start_action = start\n        dpd_action = restart'
SETTINGS = 'retransmit_timeout = 1s\nretransmit_base = 1\nretransmit_tries = 2\nretry_initial = 1s\nretry_max = 2s\n'
CHARON = 'retransmit_timeout = 1.0\n  retransmit_base = 1.0\n  retransmit_tries = 2\n'
# Until a peer is known to be dead: its silence, and the requests it does not answer.
DEAD = 2 + 3
# A new IKE_SA: three round trips, two key exchanges, two SAs installed, and the scheduling of a busy test machine.
ANEW = 2.0
# A guest's one slow CPU may pause on its own account.
GUEST = 1.5
# The change of a route or a mapping only.
AGAIN = 1.0
# strongSwan waits for the network to settle before it moves.
CHARON_MOVES = 3.0
SEED = take_seed(1061868093)


class Scene:
    """g1 with two uplinks to the internet, g2 there, packets and watchers. g1 initiates, and is IronSwan unless `mover` is given."""

    def __init__(self, lab, peer=Charon, local='%any', remote=G2, conn='', ready=True, mobike=False, mover=IronSwan):
        self.lab, self.mobike, self.mover = lab, mobike, mover
        internet(lab)
        site(lab, 'g1')
        uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100')
        uplink(lab, 'g1', 'wan2', 'r', 'u2', '198.51.101', default=False)
        self.host = 1
        self.watch = Watch(lab, 'r', 'u1', 'u2', 'g2')
        self.them = self.start(peer, 'g2', conf(connection('net', 'g2', 'g1', conn='dpd_delay = 5s')))
        if not ready:
            return
        self.begin(local, remote, conn)

    def begin(self, local='%any', remote=G2, conn=''):
        self.us = self.start(
            self.mover, 'g1', conf(connection('net', 'g1', 'g2', local, remote, conn=CONN + '\n    ' + conn, child=CHILD)))
        self.spis = pair_at_rest(self.us, self.them)
        until('traffic', lambda: pings(self.lab, count=1))
        self.rest = Rest(self.lab, self.us, self.them)

    def start(self, kind, box, text):
        if self.mobike:
            text = text.replace('mobike = no', 'mobike = yes')
        if kind is Charon:
            return Charon(self.lab, box).start(text, options=CHARON)
        return IronSwan(self.lab, box).start(text, settings=SETTINGS)

    def ip(self, *args):
        return self.lab.ip('g1', *args)

    def default(self, net4='198.51.100', families=(4, 6)):
        """The default routes lead over this uplink."""
        dev = {'198.51.100': 'wan', '198.51.101': 'wan2'}[net4]
        if 4 in families:
            self.ip('route', 'replace', 'default', 'via', f'{net4}.254', 'dev', dev)
        if 6 in families:
            self.ip('-6', 'route', 'replace', 'default', 'via', f'{v6_of(net4)}::fe', 'dev', dev)

    def disturb(self, what, bound, change, settle=0.7, same_sa=None, same_ike=False):
        """Packets flow, something changes, packets must flow again; then everything is at rest."""
        flow, ike = Flow(self.lab, rate=RATE), self.us.ike_spis()
        time.sleep(0.5)
        began = time.monotonic()
        change()
        # As long as it may take, but not longer than it does.
        done = time.monotonic() + bound
        while time.monotonic() < done and not pings(self.lab, count=1, wait=0.3):
            time.sleep(0.05)
        healed = time.monotonic() - began
        time.sleep(settle)
        check_flow(flow.end(), f'{what} ({healed:.1f} s)', bound, rate=RATE)
        spis = pair_at_rest(self.us, self.them)
        if same_sa is not None:
            check((spis == self.spis) == same_sa, f"{what}: {'the same SAs as before' if same_sa else 'new SAs'}")
        if same_ike:
            check(self.us.ike_spis() == ike, f'{what}: the same IKE_SA as before')
        self.spis = spis
        check(pings(self.lab, 'g1', 'g2') and pings(self.lab, 'g2', 'g1'), f'{what}: traffic both ways afterwards')

    def end(self, probes6=0):
        self.rest.check()
        devices = ['u1', 'u2'] if self.watch.one('u2')['sealed'] else ['u1']
        self.watch.check(*devices, *(['g2'] if isinstance(self.them, IronSwan) else []), probes6=probes6)

    # The changes

    def link_down(self, seconds=3):
        self.ip('link', 'set', 'wan', 'down')
        time.sleep(seconds)
        self.ip('link', 'set', 'wan', 'up')
        # The kernel forgets the routes of a link that goes down, and its IPv6 addresses; whoever manages the network
        # brings them back.
        self.ip('addr', 'replace', f"{v6_of('198.51.100')}::{self.host}/64", 'dev', 'wan', 'nodad')
        self.default()

    def other_address(self):
        """The address on wan is replaced: the old one goes, a new one comes a moment later."""
        old, self.host = self.host, self.host % 200 + 1
        self.ip('addr', 'del', f'198.51.100.{old}/24', 'dev', 'wan')
        self.ip('-6', 'addr', 'del', f"{v6_of('198.51.100')}::{old}/64", 'dev', 'wan')
        time.sleep(0.3)
        self.ip('addr', 'add', f'198.51.100.{self.host}/24', 'dev', 'wan')
        self.ip('-6', 'addr', 'add', f"{v6_of('198.51.100')}::{self.host}/64", 'dev', 'wan', 'nodad')
        self.default()

    def recreate(self, host=None, seconds=1):
        """The interface is deleted and made anew, with the same address or another."""
        self.ip('link', 'del', 'wan')
        time.sleep(seconds)
        self.host = host or self.host
        net4, net6 = '198.51.100', v6_of('198.51.100')
        self.lab.ip('g1', 'link', 'add', 'wan', 'type', 'veth', 'peer', 'name', 'u1', 'netns', self.lab.ns('r'))
        self.watch.attach('u1')
        self.lab.ip('r', 'addr', 'add', f'{net4}.254/24', 'dev', 'u1')
        self.lab.ip('r', '-6', 'addr', 'add', f'{net6}::fe/64', 'dev', 'u1', 'nodad')
        self.ip('addr', 'add', f'{net4}.{self.host}/24', 'dev', 'wan')
        self.ip('-6', 'addr', 'add', f'{net6}::{self.host}/64', 'dev', 'wan', 'nodad')
        self.lab.ip('r', 'link', 'set', 'u1', 'up')
        self.ip('link', 'set', 'wan', 'up')
        self.default()


def with_peers(test):
    """Runs a test with strongSwan as the peer, and with --full with IronSwan too."""
    def run(lab, full):
        test(lab, full, Charon)
    def run_ours(lab, full):
        test(lab, full, IronSwan)
    run.__doc__ = run_ours.__doc__ = test.__doc__
    run.__name__, run_ours.__name__ = test.__name__, test.__name__ + '_ours'
    return run, run_ours


@with_peers
def outer_link_goes_and_comes(lab, full, peer):
    """The outer interface goes down for 3 s; it is deleted and made anew with the same address: the SAs live on."""
    scene = Scene(lab, peer)
    scene.disturb('down 3 s', 3 + AGAIN, scene.link_down, same_sa=True)
    scene.disturb('made anew', 1 + AGAIN, scene.recreate, same_sa=True)
    scene.end()


@with_peers
def outer_address_changes(lab, full, peer):
    """Our outer address changes: on the same link, with the link, and with the route to another uplink while the old
    address stays. The initiator makes new SAs without being told, and the old ones are gone at both ends."""
    scene = Scene(lab, peer)
    for _ in range(3 if full else 1):
        scene.disturb('the address changes', 0.3 + ANEW, scene.other_address, same_sa=False)
    scene.disturb('the link is made anew with another address', 1 + ANEW, lambda: scene.recreate(77), same_sa=False)
    # Both ways work all the time: the new SAs are made before the old ones go.
    scene.disturb('the route moves to the other uplink', ANEW, lambda: scene.default('198.51.101'), same_sa=False)
    scene.disturb('and back', ANEW, lambda: scene.default('198.51.100'), same_sa=False)
    scene.end()


@with_peers
def mobike_keeps_every_sa(lab, full, peer):
    """The same changes with MOBIKE: the IKE_SA moves. Its CHILD_SA moves as well, unless the peer is strongSwan, whose ESP in user space
    cannot move and is rekeyed by it."""
    scene = Scene(lab, peer, mobike=True)
    same = dict(same_ike=True, same_sa=True if peer is IronSwan else None)
    for _ in range(3 if full else 1):
        scene.disturb('the address changes', 0.3 + ANEW, scene.other_address, **same)
    scene.disturb('the link is made anew with another address', 1 + ANEW, lambda: scene.recreate(77), **same)
    scene.disturb('the route moves to the other uplink', ANEW, lambda: scene.default('198.51.101'), **same)
    scene.disturb('and back', ANEW, lambda: scene.default('198.51.100'), **same)
    scene.end()


def mobike_follows_the_peer(lab, full):
    """strongSwan is the end that moves, by MOBIKE: we follow it with the same IKE_SA, and test the way back."""
    scene = Scene(lab, IronSwan, mobike=True, mover=Charon)
    scene.disturb('the address of strongSwan changes', 0.3 + CHARON_MOVES, scene.other_address, same_ike=True)
    scene.disturb('and once more', 0.3 + CHARON_MOVES, scene.other_address, same_ike=True)
    check(re.search(r'(the peer moves the IKE_SA from|remote endpoint changed from)', scene.them.log()), 'we have followed it')
    scene.rest.check()


@with_peers
def route_moves_to_another_uplink(lab, full, peer):
    """The default route moves to another interface and next hop, while our address stays: the same SAs."""
    scene = Scene(lab, peer, ready=False)
    # The address belongs to the machine, not to a link; the internet knows two ways to it.
    lab.ip('g1', 'addr', 'add', '203.0.113.9/32', 'dev', 'lo')
    lab.ip('r', 'route', 'replace', '203.0.113.9/32', 'via', '198.51.100.1')
    lab.ip('g1', 'route', 'replace', 'default', 'via', '198.51.100.254', 'src', '203.0.113.9')
    scene.begin(local='203.0.113.9')

    def over(net4):
        dev = {'198.51.100': 'wan', '198.51.101': 'wan2'}[net4]
        scene.ip('route', 'replace', 'default', 'via', f'{net4}.254', 'dev', dev)
        lab.ip('r', 'route', 'replace', '203.0.113.9/32', 'via', f'{net4}.1')

    scene.disturb('the default route moves', AGAIN, lambda: over('198.51.101'), same_sa=True)
    # The watcher may be behind.
    def sealed():
        packets = scene.watch.one('u2')['sealed']
        return packets if packets > 50 else None

    packets = until('more than 50 packets of ESP on the other uplink', sealed)
    check(packets > 50, f'ESP takes the new way ({packets} packets)')
    scene.disturb('and back', AGAIN, lambda: over('198.51.100'), same_sa=True)

    def down():
        scene.ip('link', 'set', 'wan', 'down')
        over('198.51.101')

    scene.disturb('the first uplink goes down, the other takes over', AGAIN, down, same_sa=True)
    scene.end()


class Names:
    """A name server in a box, and a resolv.conf for what is run there."""

    def __init__(self, lab, box):
        self.lab, self.file = lab, lab.path('names')
        self.folder = f'/etc/netns/{lab.ns(box)}'
        os.makedirs(self.folder, exist_ok=True)
        with open(f'{self.folder}/resolv.conf', 'w') as f:
            f.write('nameserver 127.0.0.1\noptions timeout:1 attempts:2\n')
        with open(f'{self.folder}/nsswitch.conf', 'w') as f:
            f.write('hosts: dns\n')
        self.say()
        server = lab.spawn(box, sys.executable, f'{HERE}/names.py', '127.0.0.1', self.file, name='names')
        until('the name server answers', lambda: 'ready' in server.log())

    def say(self, *addresses):
        """What gw.example.test stands for from now on."""
        with open(self.file + '.new', 'w') as f:
            f.writelines(f'gw.example.test {a}\n' for a in addresses)
        os.rename(self.file + '.new', self.file)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            os.rmdir('/etc/netns')
        except OSError:
            pass


@with_peers
def named_peer_moves(lab, full, peer):
    """The peer is known by name, and moves: the initiator finds out that it is dead, and asks for its name again."""
    scene = Scene(lab, peer, ready=False)
    resolver = Names(lab, 'g1')
    # The first address of a net takes the others along when it goes, without this.
    lab.run('g2', 'sysctl', '-qw', 'net.ipv4.conf.all.promote_secondaries=1')
    try:
        # At first nobody knows the name: the connection waits, and comes up when it can.
        scene.us = IronSwan(lab, 'g1').start(
            conf(connection('net', 'g1', 'g2', '%any', 'gw.example.test', conn=CONN, child=CHILD)), settings=SETTINGS)
        until('the name cannot be resolved, and that is said', lambda: "'gw.example.test'" in scene.us.log(), 10)
        check(not [sa for sa in scene.us.sas() if sa['state'] == 'ESTABLISHED'], 'nothing is up while the name is unknown')
        resolver.say(G2)
        began = time.monotonic()
        # A name that failed is asked for again with every attempt, and those are 1 to 2 s apart here.
        scene.spis = pair_at_rest(scene.us, scene.them)
        check(True, f'the name is known: up {time.monotonic() - began:.1f} s later')
        scene.rest = Rest(lab, scene.us, scene.them)

        def move(old, new):
            def change():
                lab.ip('g2', 'addr', 'add', f'{new}/24', 'dev', 'wan')
                lab.ip('g2', 'addr', 'del', f'{old}/24', 'dev', 'wan')
                lab.ip('g2', 'route', 'replace', 'default', 'via', '192.0.2.254')
                resolver.say(new)
            return change

        scene.disturb('the peer has moved, and its name with it', DEAD + 2 + ANEW, move(G2, '192.0.2.3'), same_sa=False)
        check(scene.us.established()[0]['remote-host'] == '192.0.2.3', 'we speak to the new address')
        scene.disturb('and back', DEAD + 2 + ANEW, move('192.0.2.3', G2), same_sa=False)
        scene.end()
    finally:
        resolver.close()


@with_peers
def ip_versions_come_and_go(lab, full, peer):
    """The configuration names the peer's IPv4 and IPv6 address; IPv4 goes away, and comes back while IPv6 goes."""
    scene = Scene(lab, peer, remote=f'{G2}, {G2_V6}')

    def only_v6():
        scene.ip('-4', 'route', 'del', 'default')
        scene.ip('addr', 'del', '198.51.100.1/24', 'dev', 'wan')

    def only_v4():
        scene.ip('addr', 'add', '198.51.100.1/24', 'dev', 'wan')
        scene.ip('-6', 'route', 'del', 'default')
        scene.ip('-6', 'addr', 'del', f"{v6_of('198.51.100')}::1/64", 'dev', 'wan')
        scene.default(families=(4,))

    scene.disturb('IPv4 goes away', ANEW, only_v6, same_sa=False)
    check(':' in scene.us.established()[0]['remote-host'], 'the tunnel runs over IPv6')
    scene.disturb('IPv6 goes away, IPv4 is back', ANEW, only_v4, same_sa=False)
    check(scene.us.established()[0]['remote-host'] == G2, 'the tunnel runs over IPv4')
    # A measurement of the path begins 1 s after the IKE_SA, and may be in flight when IPv4 goes away. The peer is owed the same bytes again,
    # before it can be told over IPv6 that the IKE_SA has ended: what filled a packet of IPv4 does not fit into one of IPv6, whose header is
    # 20 bytes longer. It is sent at most three times.
    scene.end(probes6=3)


@with_peers
def gateway_moves_behind_a_nat(lab, full, peer):
    """The gateway moves behind a NAT: new SAs, now in UDP, as the initiator has another address. And out again."""
    scene = Scene(lab, peer, ready=False)
    lab.box('n1')
    uplink(lab, 'g1', 'inside', 'n1', 'in0', '10.9.0', host=2, default=False)
    uplink(lab, 'n1', 'out', 'r', 'u3', '203.0.113')
    nat(lab, 'n1', 'out')
    scene.watch.attach('u3')
    scene.begin()

    def inside():
        scene.ip('route', 'replace', 'default', 'via', '10.9.0.254', 'dev', 'inside')
        scene.ip('link', 'set', 'wan', 'down')

    def outside():
        scene.ip('link', 'set', 'wan', 'up')
        scene.default(families=(4,))
        scene.ip('link', 'set', 'inside', 'down')

    check(scene.us.established()[0]['local-port'] == '500' or 'nat-local' not in scene.us.established()[0],
          'no NAT at first')
    scene.disturb('behind a NAT', ANEW, inside, same_sa=False)
    sa = scene.us.established()[0]
    child = next(iter(sa['child-sas'].values()))
    check(sa.get('nat-local') == 'yes' and child.get('encap') == 'yes', 'NAT in front of us, ESP in UDP')
    scene.disturb('in the open again', ANEW, outside, same_sa=False)
    scene.rest.check()
    scene.watch.check('u1', 'u3')


@with_peers
def random_changes_heal(lab, full, peer):
    """Random changes at random moments, one after another; everything must heal each time."""
    chance = random.Random(SEED)
    scene = Scene(lab, peer)
    for step in range(12 if full else 2):
        seconds = round(chance.uniform(0.2, 3), 1)
        host = chance.randrange(2, 200)
        what, bound, change = chance.choice([
            (f'down {seconds} s', seconds + AGAIN, lambda: scene.link_down(seconds)),
            ('another address', 0.3 + ANEW, scene.other_address),
            (f'made anew after {seconds} s', seconds + AGAIN, lambda: scene.recreate(seconds=seconds)),
            (f'made anew after {seconds} s as .{host}', seconds + ANEW, lambda: scene.recreate(host, seconds)),
            ('the other uplink and back', 2 * ANEW, lambda: (scene.default('198.51.101'), time.sleep(seconds / 10),
                                                            scene.default('198.51.100'))),
        ])
        scene.disturb(f'step {step + 1}: {what}', bound, change)
    scene.end()


class KernelScene(Scene):
    """The same with a Linux kernel's ESP in g2: the guest is gateway and host in one."""

    def __init__(self, lab):
        self.lab = lab
        lab.box('r', 'g2')
        lab.forward('r')
        lab.wire('g2', 'eth0', [], 'r', 'g2', ['192.0.2.254/24'])
        plug(lab, 'g2', 'eth0')
        site(lab, 'g1')
        uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100')
        uplink(lab, 'g1', 'wan2', 'r', 'u2', '198.51.101', default=False)
        self.host = 1
        self.watch = Watch(lab, 'r', 'u1', 'u2', 'g2')
        them = conf(connection('net', 'g2', 'g1', conn='dpd_delay = 5s'))
        self.guest = StrongSwanGuest(lab, them, 'g2', f'{G2}/24', ('10.2.0.1/24',), ('192.0.2.254',))
        ours = conf(connection('net', 'g1', 'g2', '%any', G2, conn=CONN, child=CHILD))
        self.us = IronSwan(lab, 'g1').start(ours, settings=SETTINGS)
        self.spis = until('the tunnel', self.pair)
        self.rest = Rest(lab, self.us)

    def pair(self):
        """Our one CHILD_SA, when the guest's kernel has the same two SAs and no other."""
        sas = self.us.sas()
        if len(sas) != 1 or len(installed(sas[0])) != 1:
            return None
        child = installed(sas[0])[0]
        spis = {int(child['spi-in'], 16), int(child['spi-out'], 16)}
        return spis if {int(spi, 16) for spi, *_ in self.guest.states()} == spis else None

    def disturb(self, what, bound, change):
        report = with_guest(self.lab, self.guest, 'a', inner('g1'), '10.2.0.1', change, RATE // 2)
        check_flow(report, what, bound + GUEST, rate=RATE // 2)
        spis = until('one IKE_SA and one CHILD_SA at both ends', self.pair)
        check(spis != self.spis, f"{what}: new SAs, and the guest's kernel has no other")
        self.spis = spis


def linux_kernel_as_peer(lab, full):
    """A Linux kernel as the peer: our outer address is replaced, and the route moves to another uplink and back."""
    scene = KernelScene(lab)
    for _ in range(3 if full else 1):
        scene.disturb('the address changes', 0.3 + ANEW, scene.other_address)
    scene.disturb('the route moves to the other uplink', ANEW, lambda: scene.default('198.51.101'))
    scene.disturb('and back', ANEW, lambda: scene.default('198.51.100'))
    # What was on its way for SAs that have just gone, or whose policy names our new address already, is counted there;
    # nothing else may go wrong.
    errors = {k: v for k, v in scene.guest.xfrm_errors().items()
              if k.startswith('XfrmIn') and k not in ('XfrmInNoPols', 'XfrmInNoStates', 'XfrmInTmplMismatch')}
    check(not errors, f"no error counter of the guest's receiving side moved: {errors or 'all zero'}")
    scene.rest.check()
    scene.watch.check('u1', 'u2')


PAIRS = (outer_link_goes_and_comes, outer_address_changes, mobike_keeps_every_sa, route_moves_to_another_uplink, named_peer_moves, ip_versions_come_and_go,
         gateway_moves_behind_a_nat, random_changes_heal)
TESTS = [*(test for pair in PAIRS for test in pair), mobike_follows_the_peer, linux_kernel_as_peer]
if not ({'--full', '--list'} & set(sys.argv) or any(t.__name__ in sys.argv for t in TESTS)):
    TESTS = [*(ours for ours, _ in PAIRS), mobike_follows_the_peer, linux_kernel_as_peer]
main({f.__name__: f for f in TESTS}, 'roam')
