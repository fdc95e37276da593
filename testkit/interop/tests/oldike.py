#!/usr/bin/env python3
"""IKE_SAs with the algorithms of old peers, against strongSwan in both roles: 3DES, AES-CTR, HMAC-SHA-1, AES-XCBC, AES-CMAC, small groups.

usage: testkit/interop/run [--full] oldike[.TEST]      --full: every suite, not three of them
strongSwan 5 of Debian has neither AES-CTR nor AES-CMAC nor AES-CCM, so suites with these go with strongSwan 6.
INTEROP_REFERENCE=1 puts strongSwan 5 in IronSwan's place: what fails then is the test's fault.
"""
from gateway import REFERENCE, Charon, Ours, tunnel
from lab import check, main, need, until
from peers import Charon6
from traffic import ping

# A suite, and what both ends call its cipher, key length, integrity algorithm, PRF and group.
FIVE = {
    '3des-sha1-modp1024': ('3DES_CBC', None, 'HMAC_SHA1_96', 'PRF_HMAC_SHA1', 'MODP_1024'),
    '3des-sha256-modp1536': ('3DES_CBC', None, 'HMAC_SHA2_256_128', 'PRF_HMAC_SHA2_256', 'MODP_1536'),
    '3des-aesxcbc-modp2048': ('3DES_CBC', None, 'AES_XCBC_96', 'PRF_AES128_XCBC', 'MODP_2048'),
    'aes128-sha1-modp1024s160': ('AES_CBC', '128', 'HMAC_SHA1_96', 'PRF_HMAC_SHA1', 'MODP_1024_160'),
    'aes192-sha1-prfsha256-modp2048s224': ('AES_CBC', '192', 'HMAC_SHA1_96', 'PRF_HMAC_SHA2_256', 'MODP_2048_224'),
    'aes256-aesxcbc-modp2048s256': ('AES_CBC', '256', 'AES_XCBC_96', 'PRF_AES128_XCBC', 'MODP_2048_256'),
    'aes128gcm16-prfsha1-x25519': ('AES_GCM_16', '128', None, 'PRF_HMAC_SHA1', 'CURVE_25519'),
}
SIX = {
    'aes128ctr-aesxcbc-modp1536': ('AES_CTR', '128', 'AES_XCBC_96', 'PRF_AES128_XCBC', 'MODP_1536'),
    'aes192ctr-sha1-modp1024': ('AES_CTR', '192', 'HMAC_SHA1_96', 'PRF_HMAC_SHA1', 'MODP_1024'),
    'aes256ctr-sha512-ecp256': ('AES_CTR', '256', 'HMAC_SHA2_512_256', 'PRF_HMAC_SHA2_512', 'ECP_256'),
    'aes128-aescmac-modp1024s160': ('AES_CBC', '128', 'AES_CMAC_96', 'PRF_AES128_CMAC', 'MODP_1024_160'),
    '3des-aescmac-modp2048': ('3DES_CBC', None, 'AES_CMAC_96', 'PRF_AES128_CMAC', 'MODP_2048'),
    'aes256ctr-aescmac-prfsha256-modp2048s224': ('AES_CTR', '256', 'AES_CMAC_96', 'PRF_HMAC_SHA2_256', 'MODP_2048_224'),
    'aes128ccm8-prfaesxcbc-modp2048': ('AES_CCM_8', '128', None, 'PRF_AES128_XCBC', 'MODP_2048'),
}
SHORT = ('3des-sha1-modp1024', 'aes128ctr-aesxcbc-modp1536', 'aes128-aescmac-modp1024s160')
KEYS = ('encr-alg', 'encr-keysize', 'integ-alg', 'prf-alg', 'dh-group')


def pair(lab, peer, ike):
    """The line, IronSwan in g1 and the peer in g2, both loaded."""
    need('ip', 'ping')
    lab.line()
    ends = []
    for kind, box in ((Ours, 'g1'), (peer, 'g2')):
        # The usual plugins of strongSwan 5 here are without AES-XCBC.
        plugins = {'load': f'{kind.plugins} xcbc'} if kind is Charon else {}
        ends.append(kind(lab, box).start(tunnel(box, ike=ike), **plugins))
    return ends


def algorithms(gateway):
    """Algorithms of the only IKE_SA that is up."""
    sa, = gateway.established()
    return tuple(sa.get(key) for key in KEYS)


def lives(us, them, lab, suite, wanted):
    """Each side initiates, then each side rekeys the IKE_SA and the CHILD_SA; both ends name the algorithms, and packets cross."""
    for initiator in (us, them):
        initiator.initiate()
        ping(lab, count=2)
        for gateway, what in ((us, 'ike'), (them, 'ike'), (us, 'child'), (them, 'child'), (us, 'ike')):
            gateway.rekey(what)
            until('both name the same IKE SPIs', lambda: us.ike_spis() == them.ike_spis())
            found = [algorithms(end) for end in (us, them)]
            check(found == [wanted] * 2, f'{suite}: {initiator.kind} initiated, {gateway.kind} rekeyed ({what}): {found[0]}')
            ping(lab, count=1)
        initiator.swanctl('--terminate', '--ike', 'net')
        until('both are empty', lambda: not us.sas() and not them.sas())


def suites(lab, peer, table):
    us, them = pair(lab, peer, next(iter(table)))
    for suite, wanted in table.items():
        for gateway in (us, them):
            gateway.load(tunnel(gateway.box, ike=suite))
        lives(us, them, lab, suite, wanted)
        if not REFERENCE:
            for word in (w for w in suite.split('-') if w in ('3des', 'sha1', 'aesxcbc', 'aescmac', 'modp1024', 'aes128ctr')):
                check(f'{word} is ' in us.log() and '(RFC 8247' in us.log(), f'the log warns of {word}')


def with_strongswan_5(lab, full):
    """Suites that Debian's strongSwan 5 has: 3DES, SHA-1, AES-XCBC, small groups."""
    suites(lab, Charon, FIVE if full else {k: v for k, v in FIVE.items() if k in SHORT})


def with_strongswan_6(lab, full):
    """Suites that need strongSwan 6: AES-CTR, AES-CMAC, AES-CCM."""
    suites(lab, Charon6, SIX if full else {k: v for k, v in SIX.items() if k in SHORT})


def keeps_the_prf(lab, full):
    """Both ends allow two PRFs, in another order: after every rekeying, of either side, the IKE_SA has the PRF that it began with, and works."""
    us, them = pair(lab, Charon, 'aes128-sha256-modp2048')
    for ours, theirs in (('aes128-sha256-prfsha256-prfsha1-modp2048', 'aes128-sha256-prfsha1-prfsha256-modp2048'),
                         ('aes128-sha256-modp2048,aes256-sha1-modp2048', 'aes256-sha1-modp2048,aes128-sha256-modp2048')):
        us.load(tunnel(us.box, ike=ours))
        them.load(tunnel(them.box, ike=theirs))
        for initiator in (us, them):
            initiator.initiate()
            ping(lab, count=1)
            prf = us.established()[0]['prf-alg']
            for gateway, what in ((us, 'ike'), (them, 'ike'), (them, 'ike'), (us, 'ike'), (us, 'child'), (them, 'child')):
                gateway.rekey(what)
                until('both name the same IKE SPIs', lambda: us.ike_spis() == them.ike_spis())
                found = [end.established()[0]['prf-alg'] for end in (us, them)]
                check(found == [prf] * 2, f'{initiator.kind} initiated, {gateway.kind} rekeyed ({what}): {prf}, now {found}')
                ping(lab, count=1)
            initiator.swanctl('--terminate', '--ike', 'net')
            until('both are empty', lambda: not us.sas() and not them.sas())


if __name__ == '__main__':
    main({f.__name__: f for f in (with_strongswan_5, *(() if REFERENCE else (with_strongswan_6, keeps_the_prf)))}, 'oldike')
