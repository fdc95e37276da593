#!/usr/bin/env python3
"""Every kind of child by the keys of swanctl.conf: two IronSwans, real packets, and what `ironswan list sas` says of it.

usage: testkit/interop/run [--full] children[.TEST]      --full: every suite of ESP and AH, not a choice

Here the keys are what is tested: that what was written is what is negotiated, carried and shown. Against the kernel: xfrm.py,
against strongSwan: strongswan.py.
"""
import ctypes
import json
import subprocess

from gateway import ADDRESS, IronSwan, program, tunnel
from lab import Failed, check, main, need, until
from traffic import ping

HOSTS = {'local_ts': 'dynamic', 'remote_ts': 'dynamic'}
# Suite in swanctl.conf, and what is shown of it.
ESP = {'aes128gcm16-esn': 'AES_GCM_16-128', 'aes192-sha384': 'AES_CBC-192/HMAC_SHA2_384_192', 'null-sha1': 'NULL/HMAC_SHA1_96',
       'aes256gmac': 'NULL_AES_GMAC-256', '3des-md5': '3DES_CBC/HMAC_MD5_96'}
MORE_ESP = {'aes128gcm8': 'AES_GCM_8-128', 'aes256gcm12-esn': 'AES_GCM_12-256', 'aes192ccm8': 'AES_CCM_8-192',
            'aes256ccm16-esn': 'AES_CCM_16-256', 'aes128ctr-aesxcbc': 'AES_CTR-128/AES_XCBC_96',
            'aes256ctr-sha512-esn': 'AES_CTR-256/HMAC_SHA2_512_256', 'chacha20poly1305': 'CHACHA20_POLY1305',
            'aes256-aescmac': 'AES_CBC-256/AES_CMAC_96', 'aes128gmac-esn': 'NULL_AES_GMAC-128'}
AH = {'sha256': 'HMAC_SHA2_256_128', 'aes128gmac-esn': 'AES_128_GMAC'}
MORE_AH = {'sha384-esn': 'HMAC_SHA2_384_192', 'sha512': 'HMAC_SHA2_512_256', 'sha1': 'HMAC_SHA1_96', 'md5': 'HMAC_MD5_96',
           'aesxcbc': 'AES_XCBC_96', 'aescmac-esn': 'AES_CMAC_96', 'aes192gmac': 'AES_192_GMAC', 'aes256gmac': 'AES_256_GMAC'}


def world(lab):
    need('ip', 'ping')
    lab.line()
    return [IronSwan(lab, box).start() for box in ('g1', 'g2')]


def ironswan(gateway, *args):
    out = subprocess.run([program(), *args, '--vici', f'unix://{gateway.socket}'], capture_output=True, text=True, timeout=30)
    if out.returncode:
        raise Failed(f'ironswan {args}: {out.stdout}{out.stderr}')
    return out.stdout


def counters(gateway):
    return json.loads(ironswan(gateway, 'list', 'counters', '--json'))


def up(gateways, **conf):
    """Loads both ends with these keys, and initiates. Gives the child as JSON of the first."""
    us, them = gateways
    for g in gateways:
        g.load(tunnel(g.box, **conf))
    us.initiate()
    children = [c for sa in json.loads(ironswan(us, 'list', 'sas', '--json'))['sas']
                for c in sa['child-sas'].values() if c['state'] == 'INSTALLED']
    check(len(children) == 1, 'one child is installed')
    return children[0]


def down(gateways):
    us, them = gateways
    us.swanctl('--terminate', '--ike', 'net')
    until('nothing is left', lambda: not us.sas() and not them.sas())


def drops(gateways):
    """Drops of both, by reason; packets that were on their way when an SA ended do not count, nor what the kernel sends to
    ipsec0 by itself (router solicitations)."""
    out = {}
    for g in gateways:
        for reason, n in counters(g)['drops'].items():
            if n and reason not in ('InNoStates', 'OutNoStates', 'OutNoPolicy'):
                out[f'{g.box} {reason}'] = n
    return out


def one(lab, gateways, want, what, **conf):
    """Brings a child up, sends packets of many lengths through it, compares what is shown."""
    before = drops(gateways)
    child = up(gateways, **conf)
    suite = '/'.join(str(p) for p in (
        f"{child['encr-alg']}-{child['encr-keysize']}" if 'encr-keysize' in child else child.get('encr-alg'),
        child.get('integ-alg')) if p)
    shown = (child['mode'], child['protocol'], suite, 'cpi-in' in child)
    check(shown == want, f"{what}: {' '.join(str(s) for s in shown)}")
    host = conf.get('local_ts') == 'dynamic'
    box, to = ('g1', ADDRESS['g2']) if host else ('a', '10.2.0.2')
    for size in (0, 1, 56, 200, 1200):
        ping(lab, box=box, to=to, size=size, count=2)
    now = drops(gateways)
    check(now == before, f'{what}: nothing is dropped' if now == before else f'{what}: dropped {now}, before {before}')
    text = ironswan(gateways[0], 'list', 'sas')
    down(gateways)
    return text


def esp_in_each_mode(lab, full):
    """ESP in tunnel and transport mode, raw and in UDP."""
    gateways = world(lab)
    for suite, shown in {**ESP, **(MORE_ESP if full else {})}.items():
        for encap in (True, False):
            how = 'UDP' if encap else 'raw'
            text = one(lab, gateways, ('TUNNEL', 'ESP', shown, False), f'{suite} {how}', esp=suite, encap=encap)
            check(('tunnel ESP in UDP' if encap else 'tunnel ESP ') in text, 'list sas says so')
        one(lab, gateways, ('TRANSPORT', 'ESP', shown, False), f'{suite} transport', esp=suite, encap=False,
            child='mode = transport', **HOSTS)
    one(lab, gateways, ('TRANSPORT', 'ESP', 'AES_GCM_16-128', False), 'transport in UDP', encap=True, child='mode = transport',
        **HOSTS)


def ah_in_each_mode(lab, full):
    """AH in tunnel and transport mode."""
    gateways = world(lab)
    for suite, shown in {**AH, **(MORE_AH if full else {})}.items():
        # An empty key is one that was left out.
        conf = {'esp': '', 'encap': False}
        text = one(lab, gateways, ('TUNNEL', 'AH', shown, False), f'{suite} tunnel', child=f'ah_proposals = {suite}', **conf)
        check('tunnel AH' in text, 'list sas says so')
        text = one(lab, gateways, ('TRANSPORT', 'AH', shown, False), f'{suite} transport',
                   child=f'ah_proposals = {suite}\n        mode = transport', **conf, **HOSTS)
        check('transport AH' in text, 'list sas says so')


def options_by_their_keys(lab, full):
    """IPComp, padding, dummies, DSCP, DF and ECN, by their keys."""
    gateways = world(lab)
    text = one(lab, gateways, ('TUNNEL', 'ESP', 'AES_GCM_16-128', True), 'IPComp', child='ipcomp = yes')
    check('+ IPComp' in text, 'list sas says so')
    one(lab, gateways, ('TRANSPORT', 'ESP', 'AES_GCM_16-128', True), 'IPComp in transport mode', encap=False,
        child='ipcomp = yes\n        mode = transport', **HOSTS)
    one(lab, gateways, ('TUNNEL', 'AH', 'HMAC_SHA2_256_128', True), 'IPComp in AH', encap=False, esp='',
        child='ipcomp = yes\n        ah_proposals = sha256')
    for keys in ('tfc_padding = mtu', 'tfc_padding = 900', 'dscp = ef', 'copy_dscp = yes', 'copy_dscp = no', 'copy_df = no',
                 'copy_ecn = no', 'replay_window = 32', 'rekey_bytes = 1g\n        life_packets = 1000000'):
        one(lab, gateways, ('TUNNEL', 'ESP', 'AES_GCM_16-128', False), keys.split('\n')[0], child=keys)

    up(gateways, child='tfc_padding = mtu\n        tfc_dummies = 20ms')
    before = counters(gateways[1])['packets']['in-dummies']
    until('dummies arrive', lambda: counters(gateways[1])['packets']['in-dummies'] > before + 20)
    check(counters(gateways[0])['packets']['out-dummies'] > 20, 'dummies are counted on both sides')
    down(gateways)


def first_of_esp_and_ah_that_both_have(lab, full):
    """ESP and AH in one child: the first that both have."""
    us, them = world(lab)
    both = 'ah_proposals = sha256\n        mode = tunnel'
    for ours, theirs, want in ((('null-sha256', both), ('null-sha256', ''), 'ESP'), (('null-sha256', both), ('', both), 'AH'),
                               (('null-sha256', both), ('null-sha256', both), 'ESP')):
        us.load(tunnel('g1', esp=ours[0], child=ours[1], encap=False))
        them.load(tunnel('g2', esp=theirs[0], child=theirs[1], encap=False))
        us.initiate()
        got = [c['protocol'] for sa in us.sas() for c in sa['child-sas'].values() if c['state'] == 'INSTALLED']
        check(got == [want], f'{ours[0]} or AH against {theirs[0] or "AH"}: {got}')
        ping(lab)
        down((us, them))


def what_cannot_be_is_refused_at_load(lab, full):
    """What cannot be is refused at load, and what is loaded and up stays so."""
    gateways = world(lab)
    us, _ = gateways
    up(gateways, esp='', encap=False, child='ah_proposals = sha256')
    before = us.child_spis()
    for keys, say_so in (('mode = beet', 'BEET mode is not built'), ('dscp = 99', 'is not a DSCP'),
                         ('ah_proposals = aes128', 'encrypts, which AH does not'),
                         ('mode = transport\n        tfc_padding = mtu', 'is for tunnel mode')):
        path = us.lab.write(f'{us.box}-swanctl/swanctl.conf', tunnel('g1', encap=False, child=keys))
        out = us.swanctl('--load-all', '--file', path, fail=False)
        check(say_so in out.stdout, f'{keys.splitlines()[-1].strip()}: refused')
        check(us.child_spis() == before, 'the child is still up')
        ping(lab)
    path = us.lab.write(f'{us.box}-swanctl/swanctl.conf', tunnel('g1', encap=True, esp='', child='ah_proposals = sha256'))
    out = us.swanctl('--load-all', '--file', path, fail=False)
    check('AH cannot be carried in UDP' in out.stdout, 'AH in UDP: refused')
    ping(lab)


def words_mean_what_they_mean_to_strongswan(lab, full):
    """Each word of proposals means what strongSwan's own parser takes it for."""
    class Token(ctypes.Structure):
        _fields_ = [('name', ctypes.c_char_p), ('type', ctypes.c_int), ('id', ctypes.c_uint16), ('key_bits', ctypes.c_uint16)]

    parse = ctypes.CDLL('/usr/lib/ipsec/libstrongswan.so.0').proposal_get_token_static
    parse.restype, parse.argtypes = ctypes.POINTER(Token), [ctypes.c_char_p, ctypes.c_uint]
    out = subprocess.run([program(), 'check', '--algorithms', '--json'], capture_output=True, text=True, check=True).stdout
    # This strongSwan is older than these; the tests with strongSwan 6.1 use them. The numbers are those of IANA's registry.
    newer = {word: {'type': 4, 'id': number, 'key_bits': 0} for word, number in
             (('mlkem512', 35), ('mlkem768', 36), ('mlkem1024', 37))}
    n = 0
    for row in json.loads(out)['algorithms']:
        for word in row['words']:
            token = parse(word.encode(), len(word))
            theirs = {k: getattr(token[0], k) for k in ('type', 'id', 'key_bits')} if token else newer.get(word)
            if theirs != row['transform']:
                raise Failed(f"{word} is {row['transform']} here, {theirs or 'unknown'} there")
            n += 1
    check(n > 60, f'{n} words are understood alike')


main({f.__name__: f for f in (
    words_mean_what_they_mean_to_strongswan, esp_in_each_mode, ah_in_each_mode, options_by_their_keys,
    first_of_esp_and_ah_that_both_have, what_cannot_be_is_refused_at_load)}, 'children')
