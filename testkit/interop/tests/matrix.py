#!/usr/bin/env python3
"""IronSwan against each peer: authentication x key exchange x role, each with rekeyings of both kinds from both sides and traffic.

usage: testkit/interop/run [--full] matrix[.TEST]      --full: every row, not one of each peer, and strongswan5
ROWS=REGEX in the environment leaves only the rows whose authentication it matches. Each row prints one line that begins with `row`; scripts/matrix makes docs/peers.md of these lines.
"""
import os
import re
import subprocess
import sys
import time
from typing import NamedTuple

import libreswan
import life
import openiked
from cut import Fragments
from gateway import IronSwan, tunnel
from guest import Guest, StrongSwanGuest, line_before_guest, with_guest
from issued import Chain, ruled
from lab import Failed, check, main, say
from libreswan import Libreswan
from openiked import OpenIked
from peers import Charon6
from traffic import Numbered
from vici import ViciError

GROUPS = ('x25519', 'ecp256', 'ecp384', 'ecp521', 'modp2048', 'modp3072', 'modp4096')
# Key exchange methods as Libreswan spells them.
LIBRESWAN = {'x25519': 'dh31', 'ecp256': 'dh19', 'ecp384': 'dh20', 'ecp521': 'dh21', 'modp2048': 'dh14', 'modp3072': 'dh15',
             'modp4096': 'dh16'}
# Key exchange methods that OpenIKED spells otherwise.
OPENIKED = {'x25519': 'curve25519'}
# Several key exchanges (RFC 9370): hybrids with ML-KEM, and with classical methods alone.
SEVERAL = ('x25519-ke1_mlkem768', 'ecp384-ke1_mlkem1024', 'ecp256-ke1_mlkem512-ke2_x25519', 'x25519-ke1_ecp384-ke2_modp3072')


class Auth(NamedTuple):
    """How both ends authenticate: with a key of this kind (issued.py), by this rule of `auth`, known as a raw public key or by a chain."""

    kind: str
    raw: bool
    rule: str = 'pubkey'


PSS = 'ike:rsa/pss-sha256-sha384-sha512'
# Names of the rows. A chain has three certificates: the peer has the root, and gets the other two in CERT payloads.
AUTHS = {
    'psk': None,
    'X.509 Ed25519': Auth('ed25519', False),
    'X.509 RSA-2048': Auth('rsa2048', False),
    'X.509 RSA-3072': Auth('rsa3072', False),
    'X.509 RSA-2048, PSS': Auth('rsa2048', False, PSS),
    'X.509 RSA-3072, PSS': Auth('rsa3072', False, PSS),
    'X.509 ECDSA P-256': Auth('p256', False),
    'X.509 ECDSA P-384': Auth('p384', False),
    'raw Ed25519': Auth('ed25519', True),
    'raw RSA-2048': Auth('rsa2048', True),
    'raw RSA-2048, PSS': Auth('rsa2048', True, PSS),
    'raw ECDSA P-256': Auth('p256', True),
    'raw ECDSA P-384': Auth('p384', True),
    'raw ECDSA P-521': Auth('p521', True),
}
# The row of the short run beside PSK: every peer can do it.
SHORT = 'X.509 ECDSA P-256'
# Longest IP packet that IronSwan, and strongSwan, cut an IKE message into: every message with a chain is cut.
FRAGMENT_SIZE = 576
# Packets a second each way.
RATE = 100


class Peer:
    """A kind of peer in a guest: how it starts, how it is given one row, and how packets cross."""

    groups = GROUPS
    auths = ('psk',)
    encap = False
    esp = 'aes128gcm16'
    # Whether the peer's kernel has each new SA before we may use it, and each old one until we do not.
    gapless = True
    # Our role in the one row of a short run.
    short_role = 'initiator'
    # States of our IKE_SAs that the peer may leave behind.
    left = ()

    def __init__(self, lab):
        self.lab = lab
        self.lay(lab)
        self.end = self.start(lab)
        self.us = IronSwan(lab, 'g1').start(settings=f'fragment_size = {FRAGMENT_SIZE}\n')
        self.fragments = Fragments(lab, 'g1')

    def lay(self, lab):
        line_before_guest(lab)

    def set_up(self, auth, group, initiates):
        """Loads both ends; `initiates`: the peer will."""
        how = AUTHS[auth]
        chain = Chain(self.lab, how.kind, how.raw) if how else None
        if chain:
            chain.put('g1', 'g1-swanctl')
        self.us.load(self.swanctl_conf('g1', how, group))
        self.load(how, chain, group, initiates)

    def swanctl_conf(self, box, how, group):
        """Of one end. A CHILD_SA is rekeyed with the same key exchange as the IKE_SA."""
        return tunnel(box, ike=f'aes128gcm16-prfsha256-{group}', esp=f'{self.esp}-{group}', encap=self.encap,
                      **(ruled(box, how.rule, how.raw) if how else {}))

    def traffic(self, change):
        return with_guest(self.lab, self.end, 'a', '10.1.0.2', '10.2.0.1', change, RATE, 0.3, 0.5)


class StrongSwan5(Peer):
    auths = tuple(AUTHS)

    def start(self, lab):
        return StrongSwanGuest(lab, '')

    def name(self):
        return f'strongSwan {self.end.version()}, Linux kernel'

    def load(self, how, chain, group, initiates):
        if chain:
            chain.put('g2', 'guest')
        self.end.load(self.swanctl_conf('g2', how, group))


class StrongSwan6(Peer):
    groups = GROUPS + SEVERAL
    auths = tuple(AUTHS)
    encap = True

    def lay(self, lab):
        lab.line()

    def start(self, lab):
        return Charon6(lab, 'g2').start(options=f'fragment_size = {FRAGMENT_SIZE}')

    def name(self):
        return f'strongSwan {self.end.version()}, user space'

    def load(self, how, chain, group, initiates):
        if chain:
            chain.put('g2', 'g2-swanctl')
        self.end.load(self.swanctl_conf('g2', how, group))

    def traffic(self, change):
        numbered = Numbered(self.lab, rate=RATE)
        try:
            time.sleep(0.3)
            change()
            time.sleep(0.5)
        finally:
            report = numbered.end()
        return report


class LibreswanPeer(Peer):
    # Libreswan has no Ed25519, and of RSA with SHA-2 only PSS.
    auths = ('psk', 'X.509 RSA-2048, PSS', 'X.509 RSA-3072, PSS', 'X.509 ECDSA P-256', 'X.509 ECDSA P-384', 'raw RSA-2048, PSS',
             'raw ECDSA P-256', 'raw ECDSA P-384', 'raw ECDSA P-521')

    def start(self, lab):
        return Libreswan(lab, libreswan.conf('g2'), self.major)

    def name(self):
        return f'Libreswan {self.end.version()}, Linux kernel'

    def load(self, how, chain, group, initiates):
        dh = LIBRESWAN[group]
        auth = 'authby=secret'
        if how:
            self.end.take(chain)
            auth = self.end.signs(chain)
        self.end.load(libreswan.conf('g2', f'aes_gcm128-sha2_256-{dh}', f'aes_gcm128-null-{dh}', auth=auth))


class Libreswan4(LibreswanPeer):
    major = 4
    short_role = 'responder'


class Libreswan5(LibreswanPeer):
    major = 5


class OpenIkedPeer(Peer):
    # OpenIKED has no Ed25519, and of RSA only PKCS#1 v1.5.
    auths = ('psk', 'X.509 RSA-2048', 'X.509 RSA-3072', 'X.509 ECDSA P-256', 'X.509 ECDSA P-384', 'raw RSA-2048', 'raw ECDSA P-256',
             'raw ECDSA P-384', 'raw ECDSA P-521')
    esp = 'aes128-sha1'
    # iked sets a new SA after its response, and deletes the old SA right behind its own request.
    gapless = False
    # iked answers no DELETE of an IKE_SA that we have rekeyed when it had tried to rekey it, too, and was told TEMPORARY_FAILURE.
    left = ('REKEYED',)

    def start(self, lab):
        return OpenIked(lab)

    def name(self):
        return f'OpenIKED {self.end.version()}, Linux kernel'

    def load(self, how, chain, group, initiates):
        if how:
            self.end.take(chain)
        self.end.load(openiked.conf('g2', OPENIKED.get(group, group), active=initiates, lifetimes='ikelifetime 7 lifetime 4',
                                    settings='set nomobike\nset fragmentation', **({'auth': ''} if how else {})))


def rekeyings(us, peer):
    """Both kinds from both sides."""
    return [(who, what) for who in (us, peer) for what in ('child', 'ike')]


def unanswered(us):
    """Our rekeyed IKE_SAs whose DELETE waits for its answer."""
    return {sa['initiator-spi'] for sa in us.sas() if sa['state'] == 'REKEYED'}


# Counters of /proc/net/xfrm_stat: packets that came to a kernel on an SA that it did not have, or not yet with its keys, and packets
# that it was to send when it had no SA for them.
GONE_IN = ('XfrmInNoStates', 'XfrmInStateInvalid', 'XfrmAcquireError')
GONE_OUT = ('XfrmOutNoStates', 'XfrmOutStateInvalid', 'XfrmOutBundleGenError', 'XfrmOutError')


def gone(peer):
    """Packets, inbound and outbound, for which the peer's kernel had no SA."""
    counters = {} if peer.gapless else peer.end.xfrm_errors()
    return [sum(counters.get(name, 0) for name in names) for names in (GONE_IN, GONE_OUT)]


def lives(peer, auth, ours):
    """One row: a whole life, and traffic through it. Returns the result in the words of docs/peers.md (scripts/matrix)."""
    before, deaf, cut = gone(peer), unanswered(peer.us), peer.fragments.seen()
    report = life.live(peer.us, peer.end, peer.us if ours == 'initiator' else peer.end, peer.traffic, rekeyings, peer.left)
    gone_in, gone_out = (now - then for then, now in zip(before, gone(peer)))
    notes = []
    for way, r in report.items():
        # Packets that a peer sends on its new SA before we have computed the keys (RFC 7296 section 2.8) wait here, and arrive.
        allowed = gone_out if way.endswith('to a') else gone_in
        if not r['received'] or r['lost'] > allowed or r['duplicates'] or r['corrupt']:
            raise Failed(f"{way}: {r['sent']} sent, {r['received']} received, {r['duplicates']} twice, {r['corrupt']} corrupt; {allowed} gone; "
                         f"first missing: {(r['missing'] or ['the last ones'])[0]}; {peer.end.xfrm_errors() if isinstance(peer.end, Guest) else ''}")
        if r['lost']:
            notes.append(f"; {r['lost']} of {r['sent']} gone")
    sent, received = (now - then for then, now in zip(cut, peer.fragments.seen()))
    say(f'  {sent} fragments of IKE messages sent, {received} received')
    if AUTHS[auth] and not AUTHS[auth].raw and not (sent and received):
        raise Failed(f'{sent} fragments of IKE messages sent, {received} received')
    if unanswered(peer.us) - deaf:
        notes.append('; a DELETE unanswered')
    return 'passed' + ''.join(notes)


def end_all(peer):
    """Ends what a failed row may have left up, so that the next one begins with nothing."""
    for end in (peer.end, peer.us):
        try:
            end.terminate()
        except (Failed, ViciError, OSError, subprocess.TimeoutExpired):
            # There was nothing to end.
            pass


def rows(lab, full, kind):
    """All rows of one peer: each key exchange with a PSK, each authentication with the first key exchange; or one row."""
    peer = kind(lab)
    name, failed = peer.name(), 0
    plan = [(SHORT, kind.groups[0], kind.short_role)]
    if full:
        every = [('psk', group) for group in kind.groups] + [(auth, kind.groups[0]) for auth in kind.auths[1:]]
        plan = [(*row, ours) for row in every for ours in ('initiator', 'responder') if re.search(os.environ.get('ROWS', ''), row[0])]
    for auth, group, ours in plan:
        began = time.monotonic()
        try:
            peer.set_up(auth, group, ours == 'responder')
            result = lives(peer, auth, ours)
        except (Failed, ViciError, OSError, subprocess.TimeoutExpired) as why:
            say(f'  {why}')
            result, failed = 'FAILED: ' + str(why).partition('\n')[0], failed + 1
            end_all(peer)
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
    # Without --full, the tests of uml.py say enough about strongSwan 5.
    tests = (strongswan6, libreswan4, libreswan5, openiked7, *((strongswan5,) if '--full' in sys.argv else ()))
    main({f.__name__: f for f in tests}, 'matrix')
