#!/usr/bin/env python3
"""The examples of docs/examples: each is checked, and comes up between IronSwan and strongSwan, with traffic.

usage: testkit/interop/run [--full] examples[.TEST]      --full: every example is brought up, not three
"""
import os
import re
import subprocess
import sys

import certs
import rawkeys
from gateway import ADDRESS, Charon, Ours, program
from guest import StrongSwanGuest, line_before_guest
from lab import REPO, Failed, check, main, need, until
from peers import Charon6
from traffic import ping

EXAMPLES = os.path.join(REPO, 'docs', 'examples')
PLUGINS = Charon.plugins + ' x509 constraints revocation'
V4, V6 = '10.2.0.2', 'fd00:2::2'


def chains(kind):
    return lambda lab: certs.Chains(lab, kind)


def raw(kind):
    """Key pairs of one kind; both public keys lie in PEM at both ends."""
    def make(lab):
        rawkeys.make(lab, kind)
        for box in ('g1', 'g2'):
            for folder in rawkeys.FOLDERS:
                out = lab.path(f'{box}-{folder}/pubkey/g2.pem')
                subprocess.run(['openssl', 'pkey', '-in', lab.path(f'g2-{rawkeys.FOLDERS[0]}/private/g2.pem'), '-pubout', '-out', out],
                               check=True)
    return make


# Each example: how the keys in its files are made, who is g2, the children that are initiated, the addresses that then answer.
CASES = {
    'net2net-psk': {},
    'net2net-cert-rsa': {'keys': chains('rsa')},
    'net2net-cert-ecdsa': {'keys': chains('ecdsa')},
    'net2net-cert-ed25519': {'keys': chains('ed25519')},
    'net2net-pubkey-rsa': {'keys': raw('rsa')},
    'net2net-pubkey-ecdsa': {'keys': raw('p256')},
    'net2net-pubkey-ed25519': {'keys': raw('ed25519')},
    'hybrid-psk-cert': {'keys': chains('ecdsa')},
    'host2host-transport': {'peer': 'guest', 'children': ('host',), 'answers': ()},
    'route-based': {},
    'several-children': {'children': ('v4', 'v6', 'dns'), 'answers': (V4, V6)},
    'ml-kem': {'peer': Charon6},
    'ppk': {},
    'mobike': {},
    # The first packet brings it up.
    'trap': {'children': ()},
}
SHORT = ('net2net-cert-ecdsa', 'several-children', 'ml-kem')


def text(name, box, encap=False):
    """swanctl.conf of one side. strongSwan with ESP in user space takes ESP in UDP alone."""
    with open(os.path.join(EXAMPLES, name, box, 'swanctl.conf')) as f:
        found = f.read()
    return found.replace('    version = 2\n', '    version = 2\n    encap = yes\n') if encap else found


def names(lab, full):
    """Every example has both sides, a line in README.md, and a case here."""
    folders = sorted(f for f in os.listdir(EXAMPLES) if os.path.isdir(os.path.join(EXAMPLES, f)))
    with open(os.path.join(EXAMPLES, 'README.md')) as f:
        listed = sorted(re.findall(r'^\| \[([\w-]+)\]', f.read(), re.M))
    check(folders == listed == sorted(CASES), f'{len(folders)} examples: {" ".join(folders)}')


def checked(lab, full):
    """`ironswan check` finds no error in either side of any example."""
    need('openssl', 'pki')
    for name, case in CASES.items():
        for folder in ('etc', 'swanctl'):
            for box in ('g1', 'g2'):
                lab.write(f'{box}-{folder}/swanctl.conf', '')
        case.get('keys', lambda lab: None)(lab)
        for box in ('g1', 'g2'):
            path = lab.write(f'{box}-etc/swanctl.conf', text(name, box))
            done = subprocess.run([program(), 'check', os.path.dirname(path)], capture_output=True, text=True, check=False, timeout=30)
            if done.returncode or ' 0 errors' not in done.stdout:
                raise Failed(f'{name} {box}: {done.stdout}{done.stderr}')
            check('1 connections' in done.stdout, f'{name} {box}: {done.stdout.strip().splitlines()[-1]}')


def up(lab, name):
    """Brings an example up, IronSwan in g1, and sends packets through it, both ways round."""
    need('ip', 'ping', 'swanctl', 'charon-systemd')
    case = CASES[name]
    peer, children, answers = case.get('peer', Charon), case.get('children', ('net',)), case.get('answers', (V4,))
    if peer == 'guest':
        line_before_guest(lab)
        them = StrongSwanGuest(lab, text(name, 'g2'))
        us = Ours(lab, 'g1').start(text(name, 'g1'))
    else:
        lab.line()
        case.get('keys', lambda lab: None)(lab)
        us = Ours(lab, 'g1').start(text(name, 'g1', encap=True))
        them = peer(lab, 'g2').start(text(name, 'g2', encap=True), **({} if peer is Charon6 else {'load': PLUGINS}))
    us.load(text(name, 'g1', encap=peer != 'guest'))
    for child in children:
        us.initiate(child)
    for address in answers:
        ping(lab, to=address)
    if not answers:
        ping(lab, box='g1', to=ADDRESS['g2'])
    sas = us.sas()
    installed = [c['name'] for sa in sas for c in sa['child-sas'].values() if c['state'] == 'INSTALLED']
    check(len(sas) == 1 and sorted(installed) == sorted(children or ('net',)), f'{name}: one IKE_SA with {" ".join(installed)}')
    with us.vici() as v:
        v.request('terminate', {'ike': sas[0]['name']})
    until(f'{name}: nothing is left', lambda: not us.sas() and not them.esp_spis())


def bring_up(name):
    def test(lab, full):
        up(lab, name)
    test.__doc__ = f'docs/examples/{name} comes up and carries packets.'
    return test


# Every example, when it is named or with --full; else a few, since each takes seconds.
WANTED = CASES if len(sys.argv) > 1 else SHORT
TESTS = {'names': names, 'checked': checked, **{name.replace('-', '_'): bring_up(name) for name in WANTED}}
if __name__ == '__main__':
    main(TESTS, 'examples')
