#!/usr/bin/env python3
"""IronSwan against strongSwan 6 (ESP in user space), in both roles.

usage: testkit/interop/run strongswan6[.TEST]
INTEROP_REFERENCE=1 puts strongSwan 5 in IronSwan's place: what fails then is the test's fault.
"""
import itertools
import time

from gateway import Ours, tunnel
from lab import check, main, need, until
from peers import Charon6
from traffic import Numbered, check_no_loss, ping


def pair(lab, **conf):
    """The line, IronSwan in g1 and strongSwan 6 in g2, both loaded."""
    need('ip', 'ping')
    lab.line()
    us = Ours(lab, 'g1').start(tunnel('g1', **conf))
    them = Charon6(lab, 'g2').start(tunnel('g2', **conf))
    check(True, f'strongSwan {them.version()}')
    return us, them


def rekeys_both_ways(lab, full):
    """Each side initiates; each side rekeys the CHILD_SA and the IKE_SA under numbered packets, and nothing is lost."""
    us, them = pair(lab)
    for initiator in (us, them):
        initiator.initiate()
        ping(lab)
        load = Numbered(lab, rate=200)
        for gateway in (us, them):
            for what in ('child', 'ike', 'child'):
                gateway.rekey(what)
                # Packets cross each SA before the next one takes its place.
                time.sleep(0.3)
        check_no_loss(load.end())
        check(us.ike_spis() == them.ike_spis(), f'{initiator.kind} initiated: both name the same IKE SPIs')
        check(us.child_spis() == {(o, i) for i, o in them.child_spis()}, 'both name the same ESP SPIs')
        initiator.swanctl('--terminate', '--ike', 'net')
        check(not us.sas() and not them.sas(), f'{initiator.kind} deleted it: both ends are clean')


def methods(sa):
    """The key exchange methods of an IKE_SA or CHILD_SA, as strongSwan 6 names them in VICI."""
    return [sa[key] for key in ('dh-group', *(f'ake{n}' for n in range(1, 8))) if key in sa]


def lives(lab, us, them, wanted):
    """Each side initiates, then each side rekeys the IKE_SA and the CHILD_SA; the IKE_SA has these methods all the time, at both ends."""
    for initiator in (us, them):
        initiator.initiate()
        ping(lab)
        for gateway, what in itertools.product((us, them), ('ike', 'child')):
            gateway.rekey(what)
            ping(lab)
            for end in (us, them):
                check(methods(end.established()[0]) == wanted,
                      f'{initiator.kind} initiated, {gateway.kind} rekeyed ({what}): {end.kind} has {"/".join(wanted)}')
        initiator.swanctl('--terminate', '--ike', 'net')
        until('both are empty', lambda: not us.sas() and not them.sas())


def ml_kem(lab, full):
    """ML-KEM-768 behind X25519 (RFC 9370), at set-up and in the rekeyings of both sides."""
    us, them = pair(lab, ike='aes256gcm16-prfsha384-x25519-ke1_mlkem768')
    lives(lab, us, them, ['CURVE_25519', 'ML_KEM_768'])


def seven_exchanges(lab, full):
    """All that RFC 9370 has room for, with each kind of method."""
    more = ('mlkem512', 'ecp384', 'mlkem768', 'modp3072', 'mlkem1024', 'ecp521', 'ecp256')
    us, them = pair(lab, ike='aes256-sha512-x25519-' + '-'.join(f'ke{n}_{m}' for n, m in enumerate(more, 1)))
    lives(lab, us, them, ['CURVE_25519', 'ML_KEM_512', 'ECP_384', 'ML_KEM_768', 'MODP_3072', 'ML_KEM_1024', 'ECP_521', 'ECP_256'])


def optional(lab, full):
    """An exchange that one side does without and the other calls optional, in both roles; and a method that the second number leaves."""
    us, them = pair(lab)
    plain, one_none = 'aes256-sha256-x25519', 'aes256-sha256-x25519-ke1_mlkem768-ke1_none'
    for ours, theirs, wanted in ((one_none, plain, ['CURVE_25519']), (plain, one_none, ['CURVE_25519']),
                                 (one_none, one_none, ['CURVE_25519', 'ML_KEM_768']),
                                 (one_none + '-ke2_mlkem512', one_none + '-ke2_mlkem512', ['CURVE_25519', 'ML_KEM_768', 'ML_KEM_512'])):
        us.load(tunnel('g1', ike=ours))
        them.load(tunnel('g2', ike=theirs))
        lives(lab, us, them, wanted)
    us.load(tunnel('g1', ike=plain + '-ke1_mlkem768-ke1_mlkem512-ke2_mlkem512-ke2_mlkem768'))
    them.load(tunnel('g2', ike=plain + '-ke1_mlkem512-ke1_mlkem768-ke2_mlkem768'))
    them.initiate()
    check(methods(us.established()[0]) == ['CURVE_25519', 'ML_KEM_512', 'ML_KEM_768'], f'we find different methods: {methods(us.established()[0])}')
    ping(lab)
    them.swanctl('--terminate', '--ike', 'net')
    until('both are empty', lambda: not us.sas() and not them.sas())


def of_children(lab, full):
    """Additional key exchanges of CHILD_SAs: created and rekeyed by each side, with traffic; ML-KEM alone; and optional ones."""
    us, them = pair(lab, esp='aes128gcm16-x25519-ke1_mlkem768-ke3_ecp384')
    for esp, wanted in (('aes128gcm16-x25519-ke1_mlkem768-ke3_ecp384', ['CURVE_25519', 'ML_KEM_768', 'ECP_384']),
                        ('aes256gcm16-mlkem1024-ke1_modp2048', ['ML_KEM_1024', 'MODP_2048']),
                        ('aes256gcm16-mlkem512', ['ML_KEM_512']),
                        ('aes128gcm16-ecp256-ke1_mlkem768-ke1_none', ['ECP_256', 'ML_KEM_768'])):
        for gateway in (us, them):
            gateway.load(tunnel(gateway.box, esp=esp))
        us.initiate()
        for first, second in ((us, them), (them, us)):
            for gateway in (first, second):
                gateway.rekey('child')
                ping(lab)
                children(us, them, wanted, f'{gateway.kind} rekeyed')
            first.swanctl('--terminate', '--child', 'net')
            until('both have no child', lambda: not us.child_spis() and not them.child_spis())
            first.initiate()
            ping(lab)
            children(us, them, wanted, f'{first.kind} created it')
        us.swanctl('--terminate', '--ike', 'net')
        until('both are empty', lambda: not us.sas() and not them.sas())
    optional = 'aes128gcm16-ecp256-ke1_mlkem768-ke1_none'
    for ours, theirs in ((optional, 'aes128gcm16-ecp256'), ('aes128gcm16-ecp256', optional)):
        us.load(tunnel('g1', esp=ours))
        them.load(tunnel('g2', esp=theirs))
        us.initiate()
        for gateway in (us, them):
            gateway.rekey('child')
            ping(lab)
            children(us, them, ['ECP_256'], f'{ours} and {theirs}, {gateway.kind} rekeyed')
        us.swanctl('--terminate', '--ike', 'net')
        until('both are empty', lambda: not us.sas() and not them.sas())


def children(us, them, wanted, what):
    """The CHILD_SA has these methods at both ends."""
    for end in (us, them):
        found = [methods(c) for sa in end.sas() for c in sa['child-sas'].values() if c['state'] == 'INSTALLED']
        check(found == [wanted], f'{what}: {end.kind} has {"/".join(wanted)}')


def our_default_takes_ml_kem(lab, full):
    """Our `default` against a peer that names ML-KEM, and one that does not."""
    need('ip', 'ping')
    lab.line()
    us = Ours(lab, 'g1').start(tunnel('g1', ike='default'))
    them = Charon6(lab, 'g2').start(tunnel('g2', ike='aes256-sha256-ecp256-ke1_mlkem768'))
    lives(lab, us, them, ['ECP_256', 'ML_KEM_768'])
    them.load(tunnel('g2', ike='default'))
    for initiator in (us, them):
        initiator.initiate()
        check(methods(us.established()[0]) == methods(them.established()[0]),
              f'default at both ends, {initiator.kind} initiated: {"/".join(methods(us.established()[0]))}')
        initiator.swanctl('--terminate', '--ike', 'net')
        until('both are empty', lambda: not us.sas() and not them.sas())


if __name__ == '__main__':
    main({f.__name__: f for f in (rekeys_both_ways, ml_kem, seven_exchanges, optional, of_children, our_default_takes_ml_kem)}, 'strongswan6')
