#!/usr/bin/env python3
"""Libreswan 4.10 as a peer that misbehaves: each of its impairments that concern IKEv2, and the answer that the RFCs ask of us.

usage: testkit/interop/run [--full] impair[.TEST]      without --full: one case
A case impairs the peer (`whack --impair`), lets one end initiate, and looks what came of it. Then the peer is healthy again: nothing is
left at either end, and a tunnel comes up and goes down. IronSwan is one process for all cases of a table.

Not here: impairments of IKEv1, XAUTH, TCP, DNS and CRLs, and `trigger`, `force-fips` and `log-rate-limit`, which no peer sees.
"""
import re
import subprocess
import sys
import time
from typing import NamedTuple

import libreswan
import life
from gateway import IronSwan, tunnel
from guest import line_before_guest
from issued import Chain, ruled
from lab import Failed, check, main, say, until
from libreswan import Libreswan
from vici import ViciError

US, PEER = 'IronSwan', 'the peer'
# What comes of an attempt: a tunnel, an IKE_SA without a CHILD_SA, a tunnel of which the peer knows nothing, or nothing.
UP, CHILDLESS, OURS, DOWN = 'up', 'childless', 'up at our end alone', 'down'
# Both ends give an unanswered request up after 3 s, and IronSwan forgets a half-open IKE_SA after 6 s.
SETTINGS = 'retransmit_timeout = 0.4\nretransmit_base = 1.5\nretransmit_tries = 3\nhalf_open_timeout = 6s\nretry_initial = 1s\n'
PATIENCE = 'retransmit-timeout=3s\nretransmit-interval=400'
# Seconds until an attempt has come to what it comes to, and until nothing is left of it.
OUTCOME_TIMEOUT, REST_TIMEOUT = 15, 30


class Case(NamedTuple):
    """`impair`: impairments of the peer before anything begins. `who` initiates. `outcome`, and a pattern of either log that says why.
    `late`: impairments of an established tunnel; `{ike}` and `{child}` are the peer's numbers of its SAs. `then`: rekeyings that follow,
    with `not` or `fatal` those that fail (`rekeying`). `esp`: another algorithm of the peer's. `chain`: both ends have certificates."""

    impair: str
    who: str
    outcome: str
    log: str = ''
    late: str = ''
    then: tuple = ()
    esp: str = ''
    chain: bool = False

    def __str__(self):
        parts = [self.impair or 'healthy', f'{self.who} initiates', self.late, *self.then, self.esp]
        return ', '.join(part for part in parts if part) + (', certificates' if self.chain else '')


def both(impair, outcome, *more, **kw):
    """The same comes of it whoever initiates."""
    return [Case(impair, who, outcome, *more, **kw) for who in (US, PEER)]


REKEYINGS = ('our child', 'our ike', 'their child', 'their ike')
EXCHANGES = ('IKE_SA_INIT', 'IKE_AUTH', 'CREATE_CHILD_SA', 'INFORMATIONAL')

# Payloads and headers that the RFC says to ignore: the tunnel comes up, and lives.
HARMLESS = [
    *both('minor-version-bump', UP, then=REKEYINGS),
    *both('send-bogus-isakmp-flag', UP, then=REKEYINGS),
    *both('send-bogus-payload-flag', UP, then=REKEYINGS),
    *both('send-nonzero-reserved', UP, then=REKEYINGS),
    *both('send-nonzero-reserved-id', UP),
    *both('childless-ikev2-supported', UP),
    *both('ignore-v2n-signature-hash-algorithms', UP),
    *both('omit-v2n-signature-hash-algorithms', UP),
    *both('send-key-size-check', UP),
    *both('send-no-idr', UP),
    *both('jacob-two-two', UP, then=REKEYINGS),
    *both('replay-duplicates', UP, then=REKEYINGS),
    # When the peer initiates, it answers cookies of before that it replays to itself, for ever.
    Case('replay-forward', US, UP),
    *both('replay-backward', UP),
    *both('replay-encrypted', UP),
    *both('suppress-retransmits', UP),
    *both('timeout-on-retransmit', UP),
    *both('delete-on-retransmit', UP),
    *both('ignore-soft-expire', UP),
    *both('ignore-hard-expire', UP),
    *both('send-no-delete', UP),
    *both('emitting', UP),
    *[c for x in EXCHANGES for c in both(f'add-unknown-v2-payload-to:{x}', UP, then=REKEYINGS)],
    *[c for x in EXCHANGES for c in both(f'add-unknown-v2-payload-to-sk:{x}', UP, then=REKEYINGS)],
    *[c for what in ('allow-none', 'drop-none') for part in ('integ', 'dh') for c in both(f'v2-proposal-{part}:{what}', UP)],
    # A cipher that has its own integrity needs no other.
    *both('v2-proposal-integ:omit', UP),
]
# Proposals and key exchanges that nobody may accept: an error for a request of the peer, and no SA from its response.
REFUSED, EMPTY = 'no acceptable|NO_PROPOSAL_CHOSEN|was never offered', 'emitting variable-size key-length attribute with no key'
PROPOSALS = [
    *both('v2-proposal-dh:omit', DOWN, REFUSED),
    # pluto's own checks of what it was given fail; it ends when it comes to IKE_AUTH.
    Case('proposal-parser', US, DOWN, 'peer not responding'),
    Case('proposal-parser', PEER, OURS),
    *[c for how in ('omit', 'duplicate', '0', '127', '65535') for c in both(f'ike-key-length-attribute:{how}', DOWN, REFUSED)],
    *[c for how in ('omit', 'duplicate', '0', '127', '65535') for c in both(f'child-key-length-attribute:{how}', CHILDLESS, REFUSED)],
    # pluto cannot write this, and says so.
    *both('child-key-length-attribute:empty', DOWN, EMPTY),
    *both('ike-key-length-attribute:empty', DOWN, EMPTY),
    # An unknown encryption algorithm, pseudorandom function and key exchange method; an unknown type of transform.
    # Beside one that is known, it is passed over in an offer; in an answer nobody has offered it.
    *[Case(f'ikev2-add-ike-transform:{t}', US, DOWN, REFUSED) for t in ('0x1ffff', '0x2ffff', '0x4ffff', '0xff0001')],
    *[Case(f'ikev2-add-ike-transform:{t}', PEER, UP) for t in ('0x1ffff', '0x2ffff', '0x4ffff')],
    Case('ikev2-add-ike-transform:0xff0001', PEER, DOWN, REFUSED),
    *[Case(f'ikev2-add-child-transform:{t}', US, CHILDLESS, REFUSED) for t in ('0x1ffff', '0x3ffff', '0x5ffff', '0xff0001')],
    Case('ikev2-add-child-transform:0x1ffff', PEER, UP),
    *[Case(f'ikev2-add-child-transform:{t}', PEER, CHILDLESS, REFUSED) for t in ('0x3ffff', '0xff0001')],
    *[c for how in ('omit', 'empty', '0', '31', '33') for c in both(f'ke-payload:{how}', DOWN)],
    # pluto does not do this to KE.
    *both('ke-payload:duplicate', UP),
    *both('allow-null-none', CHILDLESS, 'NO_PROPOSAL_CHOSEN', esp='null-none'),
]
# Messages that are not authentic, not of this exchange or not of this IKE_SA; peers that stop in the middle.
BROKEN = [
    Case('major-version-bump', US, DOWN),
    Case('major-version-bump', PEER, DOWN, 'INVALID_MAJOR_VERSION'),
    Case('corrupt-encrypted', US, DOWN),
    # The peer corrupts what it gets: it drops our IKE_AUTH response, and tries again.
    Case('corrupt-encrypted', PEER, OURS, 'encrypted payload seems to be corrupt'),
    Case('bad-ikev2-auth-xchg', US, DOWN),
    Case('bad-ikev2-auth-xchg', PEER, UP),
    *both('ike-initiator-spi:1', UP),
    *both('ike-responder-spi:1', UP),
    # Each corrupts the sender's own SPI: that of an IKE_SA_INIT request, or of its response.
    Case('ike-initiator-spi:0', US, UP),
    Case('ike-initiator-spi:0', PEER, DOWN),
    Case('ike-responder-spi:0', US, DOWN),
    Case('ike-responder-spi:0', PEER, UP),
    *both('send-no-ikev2-auth', DOWN),
    Case('sa-creation', US, CHILDLESS),
    Case('sa-creation', PEER, OURS),
    # IronSwan asks for a cookie, since its response is longer than the request.
    Case('send-bogus-dcookie', US, UP),
    Case('send-bogus-dcookie', PEER, DOWN, 'Mangling dcookie'),
    *both('drop-incoming:1', UP),
    *both('drop-incoming:2', UP),
    *both('drop-outgoing:1', UP),
    *both('drop-outgoing:2', UP),
    # In clear, such a payload of a response may be forged, and one beside SK belongs to no message of anybody: both are dropped.
    Case('add-unknown-v2-payload-to:IKE_SA_INIT unknown-v2-payload-critical', US, DOWN),
    Case('add-unknown-v2-payload-to:IKE_SA_INIT unknown-v2-payload-critical', PEER, DOWN, 'UNSUPPORTED_CRITICAL_PAYLOAD'),
    *both('add-unknown-v2-payload-to:IKE_AUTH unknown-v2-payload-critical', DOWN),
    Case('add-unknown-v2-payload-to-sk:IKE_AUTH unknown-v2-payload-critical', US, DOWN, 'critical payload of unknown type 255'),
    Case('add-unknown-v2-payload-to-sk:IKE_AUTH unknown-v2-payload-critical', PEER, DOWN, 'UNSUPPORTED_CRITICAL_PAYLOAD'),
]
# Authentication by another method than is configured, and IKE_AUTH without a child.
METHODS = ('RSA', 'DSS_DIGITAL_SIGNATURE', 'ECDSA_SHA2_256_P256', 'ECDSA_SHA2_384_P384', 'ECDSA_SHA2_512_P521',
           'GENERIC_SECURE_PASSWORD_AUTHENTICATION_METHOD', 'NULL', 'DIGSIG')
OTHER_CURVE = 'it signs by ECDSA of RFC 4754 with SHA2-512'
# Methods of a certificate with a key of P-256: the old one of its curve, and that of RFC 7427.
FITTING = ('ECDSA_SHA2_256_P256', 'DIGSIG')
AUTHENTICATION = [
    *both('force-v2-auth-method:SHARED', UP),
    # 0 forces nothing.
    *both('force-v2-auth-method:RESERVED', UP),
    *[c for m in METHODS for c in both(f'force-v2-auth-method:{m}', DOWN)],
    *[c for m in METHODS if m not in FITTING for c in both(f'force-v2-auth-method:{m}', DOWN, chain=True)],
    *[c for m in FITTING for c in both(f'force-v2-auth-method:{m}', UP, chain=True)],
    # An impaired pluto expects no child in a request either.
    Case('omit-v2-ike-auth-child', US, DOWN, 'received INVALID_SYNTAX'),
    Case('omit-v2-ike-auth-child', PEER, CHILDLESS),
    Case('ignore-v2-ike-auth-child', US, CHILDLESS),
    Case('ignore-v2-ike-auth-child', PEER, OURS),
    # Without our announcement, pluto names the old method of another curve than its key's. We announce nothing to who has not.
    *both('ignore-v2n-signature-hash-algorithms', DOWN, OTHER_CURVE, chain=True),
    Case('omit-v2n-signature-hash-algorithms', US, UP, chain=True),
    Case('omit-v2n-signature-hash-algorithms', PEER, DOWN, OTHER_CURVE, chain=True),
    *both('send-pkcs7-thingie', DOWN, chain=True),
    *both('send-nonzero-reserved-id', UP, chain=True),
    *both('send-no-idr', UP, chain=True),
]
# Impairments of an established tunnel, and of rekeyings.
LATER = [
    *both('', UP, late='initiate-v2-liveness:{ike}'),
    *both('', UP, late='send-keepalive:{ike}'),
    *both('', UP, late='event-v2-rekey:{ike}'),
    *both('', UP, late='event-v2-rekey:{child}'),
    *both('', UP, late='event-v2-liveness:{child}'),
    *both('', UP, late='event-v2-reauth:{ike}'),
    *both('', UP, late='event-sa-replace:{child}'),
    *both('', UP, late='rekey-initiate-supernet', then=('their child',)),
    *both('', UP, late='rekey-initiate-subnet', then=('not their child',)),
    *both('', UP, late='rekey-respond-supernet', then=('not our child',)),
    *both('', UP, late='rekey-respond-subnet', then=('not our child',)),
    *both('', UP, late='jacob-two-two replay-duplicates', then=REKEYINGS),
    *both('', UP, late='replay-forward', then=REKEYINGS),
    *both('', UP, late='replay-backward', then=REKEYINGS),
    *both('', UP, late='replay-encrypted', then=REKEYINGS),
    # A request that cannot be read ends the IKE_SA (RFC 7296 section 2.21.3). After a response of no use the tunnel stays until a new IKE_SA
    # takes over, which an impaired peer does not let happen.
    *[c for then in ('fatal their ike', 'not our ike') for c in both('', UP, late='ke-payload:omit', then=(then,))],
    *both('', UP, late='child-key-length-attribute:omit', then=('not their child', 'not our child')),
    *both('', UP, late='ike-key-length-attribute:omit', then=('not their ike', 'not our ike')),
    # pluto puts it into no CREATE_CHILD_SA.
    *both('', UP, late='add-unknown-v2-payload-to-sk:CREATE_CHILD_SA unknown-v2-payload-critical', then=REKEYINGS),
    *both('', UP, late='send-no-delete'),
]


class Both:
    """Both ends, and the marks in their logs from which a case looks."""

    def __init__(self, lab):
        line_before_guest(lab)
        self.lab = lab
        self.chain = Chain(lab, 'p256')
        self.chain.put('g1', 'g1-swanctl')
        self.peer = Libreswan(lab, self.conf(), 4)
        self.peer.take(self.chain)
        self.us = IronSwan(lab, 'g1').start(settings=SETTINGS)
        self.pid = self.us.process.pid

    def conf(self, chain=False, esp=''):
        auth = self.peer.signs(self.chain) if chain else 'authby=secret'
        return libreswan.conf('g2', esp=esp or 'aes_gcm128', auth=auth, more=PATIENCE)

    def load(self, chain, esp):
        self.us.load(tunnel('g1', encap=False, **(ruled('g1', 'pubkey', False) if chain else {})))
        self.peer.load(self.conf(chain, esp))

    def impair(self, names):
        for name in names.split():
            if name.startswith('event-'):
                self.leave_whack('--impair', name)
                time.sleep(2)
                continue
            said = self.peer.whack('--impair', name)
            if 'unrecognized' in said:
                raise Failed(f'whack --impair {name}: {said.strip()}')

    def leave_whack(self, *args):
        """Starts whack and does not wait for its end: pluto keeps it waiting for an SA that never comes."""
        self.peer.start(f"{libreswan.PROGRAMS}/whack --ctlsocket {libreswan.CONTROL} {' '.join(args)}", 'whack.log')

    def logs(self):
        return self.us.log()[self.marks[0]:] + self.peer.log()[self.marks[1]:]

    def mark(self):
        self.marks = len(self.us.log()), len(self.peer.log())

    def initiate(self, who):
        """One end begins, and does not wait for what comes of it."""
        if who == US:
            with self.us.vici() as v:
                v.request('initiate', {'child': 'net', 'timeout': '-1'})
        else:
            self.peer.whack('--initiate', '--asynchronous', '--name', 'net')

    def outcome(self):
        """What there is now at our end."""
        ours = self.us.esp_spis()
        if ours:
            return UP if ours == self.peer.esp_spis() else OURS
        return CHILDLESS if self.us.established() else DOWN

    def numbers(self):
        """The numbers of the last IKE_SA and CHILD_SA in the log of the peer."""
        text = self.logs()
        ike = re.findall(r'#(\d+): (?:initiator|responder) established IKE SA', text)
        child = re.findall(r'#(\d+): (?:initiator|responder) (?:established|rekeyed) Child SA', text)
        return {'ike': ike[-1] if ike else 0, 'child': child[-1] if child else 0}

    def rekeying(self, words):
        """`our child`, `their ike` and so on. With `not` in front one that fails and leaves the tunnel as it is, with `fatal` one that ends
        the IKE_SA at our end."""
        *how, side, what = words.split()
        who = self.us if side == 'our' else self.peer
        if not how:
            life.rekeyed(self.us, self.peer, who, what)
            return
        spis = self.us.ike_spis if what == 'ike' else self.us.child_spis
        before = spis()
        if who == self.us:
            self.us.swanctl('--rekey', f'--{what}', 'net', fail=False)
        else:
            self.leave_whack({'ike': '--rekey-ike', 'child': '--rekey-ipsec'}[what], '--name', 'net')
        if how == ['fatal']:
            until('the IKE_SA has ended', lambda: not self.us.sas(), OUTCOME_TIMEOUT)
        else:
            time.sleep(4)
            if spis() != before:
                raise Failed(f'{words}: it was rekeyed: {before} before, {spis()} now')
            life.agree(self.us, self.peer)

    def rest(self):
        """The peer is healthy again, and nothing is left at our end."""
        self.end_peer()
        self.us.swanctl('--terminate', '--ike', 'net', '--force', fail=False)
        until('nothing is left at our end', lambda: not self.us.sas() and not self.half_open(), REST_TIMEOUT)
        try:
            until('nothing is left in the kernel of the peer', lambda: not self.peer.esp_spis(), 5)
        except Failed as why:
            self.revive(why)

    def end_peer(self):
        """The peer is healthy again, and has ended its SAs."""
        try:
            self.peer.whack('--impair', 'none')
            # What fails is not to come back by itself.
            self.peer.whack('--impair', 'revival')
            self.peer.terminate()
        except Failed as why:
            self.revive(why)

    def revive(self, why):
        """Starts pluto anew: an impaired one may end, or lose count of its own SAs."""
        say(f'    pluto starts anew: {str(why).partition(chr(10))[0]}')
        self.peer.end()
        self.peer.run()
        self.mark()
        self.peer.whack('--impair', 'revival')
        self.peer.load(self.conf())

    def half_open(self):
        with self.us.vici() as v:
            return int(v.request('stats')['ikesas']['half-open'])

    def comes(self, case):
        """Waits for the outcome of a case. What does not come up has a reason in a log, and is not there at the end."""
        if case.outcome != DOWN:
            until(f'the tunnel is {case.outcome}', lambda: self.outcome() == case.outcome, OUTCOME_TIMEOUT)
        if case.outcome == UP:
            life.agree(self.us, self.peer)
        if case.log:
            line = until(f'a log says {case.log}', lambda: re.search(f'.*{case.log}.*', self.logs()), OUTCOME_TIMEOUT)
            say(f'    {line[0].strip()[:200]}')
        if case.outcome == DOWN:
            if not case.log:
                time.sleep(4)
            if self.outcome() != DOWN:
                raise Failed(f'it is {self.outcome()}')
            # The peer would try again for ever.
            self.end_peer()
            until('nothing is half open', lambda: not self.half_open() and not self.us.established(), OUTCOME_TIMEOUT)

    def run(self, case):
        self.mark()
        self.impair(case.impair)
        self.load(case.chain, case.esp)
        self.initiate(case.who)
        self.comes(case)
        if case.late:
            self.impair(case.late.format(**self.numbers()))
        for words in case.then:
            self.rekeying(words)
        self.rest()
        if case.chain or case.esp:
            self.load(False, '')
        self.initiate(case.who)
        until('a healthy peer gets in', lambda: self.outcome() == UP, OUTCOME_TIMEOUT)
        life.agree(self.us, self.peer)
        self.rest()
        if not self.us.process.alive() or self.us.process.pid != self.pid:
            raise Failed('IronSwan has ended')


def table(lab, full, cases):
    """All cases of a table, or the first one."""
    ends, failed = Both(lab), []
    ends.mark()
    ends.rest()
    for case in cases if full else cases[:1]:
        began = time.monotonic()
        try:
            ends.run(case)
            say(f'  ok   {case}: {case.outcome}, {time.monotonic() - began:.1f} s')
        except (Failed, ViciError, OSError, subprocess.TimeoutExpired) as why:
            failed.append(str(case))
            say(f'  FAIL {case}: {why}')
            say('\n'.join('      ' + line[:240] for line in ends.logs().splitlines()[-40:]))
            ends.rest()
    check(not failed, f'cases that failed: {failed or "none"}')


def harmless(lab, full):
    """What the RFC says to ignore, and what only concerns the peer itself."""
    table(lab, full, HARMLESS)


def proposals(lab, full):
    """Proposals and key exchanges that nobody may accept."""
    table(lab, full, PROPOSALS)


def broken(lab, full):
    """Messages of another version, of no IKE_SA or without integrity, and peers that stop in the middle."""
    table(lab, full, BROKEN)


def authentication(lab, full):
    """Other methods of authentication than the configured ones, and IKE_AUTH without a child."""
    table(lab, full, AUTHENTICATION)


def later(lab, full):
    """Impairments of an established tunnel."""
    table(lab, full, LATER)


if __name__ == '__main__':
    tests = (harmless, proposals, broken, authentication, later) if '--full' in sys.argv else (harmless,)
    main({f.__name__: f for f in tests}, 'impair')
