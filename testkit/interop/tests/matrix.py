#!/usr/bin/env python3
"""IronSwan against each peer: authentication x key exchange x role, each with rekeyings of both kinds from both sides and traffic.

usage: testkit/interop/run [--full] matrix[.TEST]      --full: every row, not the first one of each peer
Each row prints one line that begins with `row`; scripts/matrix makes docs/peers.md of these lines.
"""
import itertools
import json
import subprocess
import time

import libreswan
import life
import openiked
from gateway import IronSwan, program, tunnel
from guest import StrongSwanGuest, line_before_guest, with_guest
from lab import Failed, call, check, main, say
from libreswan import Libreswan
from openiked import OpenIked
from peers import Charon6
from traffic import Numbered
from vici import ViciError

GROUPS = ('x25519', 'ecp256', 'ecp384', 'ecp521', 'modp2048', 'modp3072', 'modp4096')
# Key exchange methods as Libreswan spells them.
LIBRESWAN = {'x25519': 'dh31', 'ecp256': 'dh19', 'ecp384': 'dh20', 'ecp521': 'dh21', 'modp2048': 'dh14', 'modp3072': 'dh15',
             'modp4096': 'dh16'}
# Those that OpenIKED spells otherwise.
OPENIKED = {'x25519': 'curve25519'}
# Several key exchanges (RFC 9370): hybrids with ML-KEM, and with classical methods alone.
SEVERAL = ('x25519-ke1_mlkem768', 'ecp384-ke1_mlkem1024', 'ecp256-ke1_mlkem512-ke2_x25519', 'x25519-ke1_ecp384-ke2_modp3072')
# Packets a second each way.
RATE = 100


def suites(group, esp='aes128gcm16'):
    """Proposals for us and strongSwan: with key exchange when a CHILD_SA is rekeyed, too."""
    return {'ike': f'aes128gcm16-prfsha256-{group}', 'esp': f'{esp}-{group}'}


def early(us):
    """Packets that came to us on an SA that we did not have (yet)."""
    text = call(program(), 'list', 'counters', '--json', '--vici', f'unix://{us.socket}')
    return json.loads(text)['drops'].get('InNoStates', 0)


class Peer:
    """A kind of peer in a guest: how it starts, how it is given one row, and how packets cross."""

    groups = GROUPS
    encap = False
    esp = 'aes128gcm16'
    # Whether the peer's kernel has each new SA before we may use it, and each old one until we do not.
    gapless = True

    def __init__(self, lab):
        self.lab = lab
        self.lay(lab)
        self.end = self.start(lab)
        self.us = IronSwan(lab, 'g1').start()

    def lay(self, lab):
        line_before_guest(lab)

    def set_up(self, auth, group, initiates):
        """Loads both ends; `initiates`: the peer will."""
        self.us.load(tunnel('g1', encap=self.encap, **suites(group, self.esp)))
        self.load(auth, group, initiates)

    def traffic(self, change):
        return with_guest(self.lab, self.end, 'a', '10.1.0.2', '10.2.0.1', change, RATE, 0.3, 0.5)


class StrongSwan5(Peer):
    def start(self, lab):
        return StrongSwanGuest(lab, '')

    def name(self):
        return f'strongSwan {self.end.version()}, Linux kernel'

    def load(self, auth, group, initiates):
        self.end.load(tunnel('g2', encap=False, **suites(group)))


class StrongSwan6(Peer):
    groups = GROUPS + SEVERAL
    encap = True

    def lay(self, lab):
        lab.line()

    def start(self, lab):
        return Charon6(lab, 'g2').start()

    def name(self):
        return f'strongSwan {self.end.version()}, user space'

    def load(self, auth, group, initiates):
        self.end.load(tunnel('g2', encap=True, **suites(group)))

    def traffic(self, change):
        numbered = Numbered(self.lab, rate=RATE)
        time.sleep(0.3)
        change()
        time.sleep(0.5)
        return numbered.end()


class LibreswanPeer(Peer):
    def start(self, lab):
        return Libreswan(lab, libreswan.conf('g2'), self.major)

    def name(self):
        return f'Libreswan {self.end.version()}, Linux kernel'

    def load(self, auth, group, initiates):
        dh = LIBRESWAN[group]
        self.end.load(libreswan.conf('g2', f'aes_gcm128-sha2_256-{dh}', f'aes_gcm128-null-{dh}'))


class Libreswan4(LibreswanPeer):
    major = 4


class Libreswan5(LibreswanPeer):
    major = 5


class OpenIkedPeer(Peer):
    esp = 'aes128-sha1'
    # iked sets a new SA after its response, and deletes the old SA right behind its own request.
    gapless = False

    def start(self, lab):
        return OpenIked(lab)

    def name(self):
        return f'OpenIKED {self.end.version()}, Linux kernel'

    def load(self, auth, group, initiates):
        self.end.load(openiked.conf('g2', OPENIKED.get(group, group), active=initiates, lifetimes='ikelifetime 7 lifetime 4'))


def rekeyings(us, peer):
    """Both kinds from both sides."""
    return [(who, what) for who in (us, peer) for what in ('child', 'ike')]


def unknown(peer):
    """Packets that came to the peer's kernel on an SA that it did not have, or not yet with its keys."""
    counters = {} if peer.gapless else peer.end.xfrm_errors()
    return sum(counters.get(name, 0) for name in ('XfrmInNoStates', 'XfrmInStateInvalid', 'XfrmAcquireError'))


def lives(peer, ours):
    """One row: a whole life, and traffic through it. Returns the result in words."""
    before = early(peer.us), unknown(peer)
    report = life.live(peer.us, peer.end, peer.us if ours == 'initiator' else peer.end, peer.traffic, rekeyings)
    # A responder may send on its new SA right behind its response, before we have computed the keys (RFC 7296 section 2.8).
    ahead, gone = early(peer.us) - before[0], unknown(peer) - before[1]
    notes = []
    for way, r in report.items():
        allowed, why = (ahead, 'came before we had their keys') if way.endswith('to a') else (gone, 'came when the peer had no SA for them')
        if not r['received'] or r['lost'] > allowed or r['duplicates'] or r['corrupt']:
            raise Failed(f"{way}: {r['sent']} sent, {r['received']} received, {r['duplicates']} twice, {r['corrupt']} corrupt; {allowed} {why}")
        if r['lost']:
            notes.append(f"; {r['lost']} of {r['sent']} packets {why}")
    return 'passed' + ''.join(notes)


def rows(lab, full, kind, auths=('psk',)):
    """All rows of one peer, or one."""
    peer = kind(lab)
    name, failed = peer.name(), 0
    for auth, group in itertools.product(auths, kind.groups) if full else ((auths[0], kind.groups[0]),):
        for ours in ('initiator', 'responder') if full else ('responder',):
            began = time.monotonic()
            try:
                peer.set_up(auth, group, ours == 'responder')
                result = lives(peer, ours)
            except (Failed, ViciError, OSError, subprocess.TimeoutExpired) as why:
                result, failed = f'FAILED: {str(why).splitlines()[0]}', failed + 1
                for end in (peer.end, peer.us):
                    try:
                        end.terminate()
                    except Failed:
                        pass
            say(f'  row  {name} | {auth} | {group} | {ours} | {result} | {time.monotonic() - began:.1f} s')
    check(not failed, f'{name}: {failed} rows failed')


def strongswan5(lab, full):
    """strongSwan of this machine on a Linux kernel."""
    rows(lab, full, StrongSwan5)


def strongswan6(lab, full):
    """strongSwan 6, ESP in user space."""
    rows(lab, full, StrongSwan6)


def libreswan4(lab, full):
    """Libreswan 4.10 on a Linux kernel."""
    rows(lab, full, Libreswan4)


def libreswan5(lab, full):
    """Libreswan 5.2 on a Linux kernel."""
    rows(lab, full, Libreswan5)


def openiked7(lab, full):
    """OpenIKED 7.2 on a Linux kernel."""
    rows(lab, full, OpenIkedPeer)


if __name__ == '__main__':
    main({f.__name__: f for f in (strongswan5, strongswan6, libreswan4, libreswan5, openiked7)}, 'matrix')
