#!/usr/bin/env python3
"""X.509 certificates between IronSwan and strongSwan 5.9.8: chains of three whose link travels in CERT, both roles, and
everything for which a peer is refused."""
import os
import re

import certs
from gateway import Charon, Ours, tunnel
from lab import check, main, need, until
from traffic import ping

PLUGINS = Charon.plugins + ' x509 constraints revocation'


def pair(lab, kind, ours=None, theirs=None):
    """The line with IronSwan in g1 and charon in g2, with chains of this kind, both loaded."""
    need('ip', 'swanctl', 'charon-systemd', 'ping', 'pki')
    lab.line()
    chains = certs.Chains(lab, kind)
    us = Ours(lab, 'g1').start(ours or tunnel('g1', **certs.conf('g1')))
    them = Charon(lab, 'g2').start(theirs or tunnel('g2', **certs.conf('g2')), load=PLUGINS)
    return chains, us, them


def reload(us, text):
    """Another configuration for our daemon, with all files of its folders."""
    with open(os.path.join(us.config, 'swanctl.conf'), 'w') as f:
        f.write(text)
    with us.vici() as v:
        v.request('reload-settings')


def down(us, them, initiator):
    initiator.swanctl('--terminate', '--ike', 'net')
    until('both are gone', lambda: not us.sas() and not them.sas())


def refused(initiator, us, them, *patterns):
    """The initiator's --initiate fails, and our log gets a line for each pattern; nothing is left, also of `them`."""
    mark = len(us.log())
    done = initiator.swanctl('--initiate', '--child', 'net', '--timeout', '20', fail=False)
    check(done.returncode != 0, f'{initiator.kind} initiates: {done.stdout.strip().splitlines()[-1]}')
    for pattern in patterns:
        line = until(f'our log says {pattern}', lambda: re.search(f'.*{pattern}.*', us.log()[mark:]), 5)
        check(True, line[0].strip())
    until('nothing is left', lambda: not us.sas() and not (them and them.sas()))


def chain_of(lab, kind, algorithm):
    chains, us, them = pair(lab, kind)
    for initiator in (us, them):
        before = {gateway: len(gateway.log()) for gateway in (us, them)}
        initiator.initiate()
        ping(lab)
        for gateway, peer in ((us, them), (them, us)):
            line = rf"authentication of '{peer.box}\.example' with {algorithm} successful"
            check(re.search(line, gateway.log()[before[gateway]:]), f'{initiator.kind} initiates: {gateway.kind} verified {algorithm}')
        check('"CN=g2.example" < "CN=link" < "CN=root"' in us.log()[before[us]:], 'we found the chain through the link that was sent')
        down(us, them, initiator)
    # The identity is the subject when there is no `id`.
    named = {'my_id': 'CN=g1.example', 'remote_id': 'CN=*'}
    reload(us, re.sub(r'\n +id = CN=g1.example', '', tunnel('g1', **certs.conf('g1'), **named)))
    them.load(tunnel('g2', **certs.conf('g2'), my_id='CN=g2.example', remote_id='CN=g1.example'))
    for initiator in (us, them):
        initiator.initiate()
        ping(lab)
        sas = us.established()[0], them.established()[0]
        check((sas[0]['local-id'], sas[0]['remote-id']) == ('CN=g1.example', 'CN=g2.example') and
              (sas[1]['local-id'], sas[1]['remote-id']) == ('CN=g2.example', 'CN=g1.example'), f'{initiator.kind} initiates: distinguished names')
        down(us, them, initiator)


def rsa(lab, full):
    """Chains of three with RSA."""
    chain_of(lab, 'rsa', 'RSA_EMSA_PKCS1_SHA2_256')


def ecdsa(lab, full):
    """Chains of three with ECDSA P-384."""
    chain_of(lab, 'ecdsa', 'ECDSA_WITH_SHA384_DER')


def ed25519(lab, full):
    """Chains of three with Ed25519."""
    chain_of(lab, 'ed25519', 'ED25519')


def refusals(lab, full):
    """Expired, not yet valid, another identity, another CA, no certificate, revoked, no key: each is refused, and the log says why."""
    chains, us, them = pair(lab, 'ecdsa')
    conf = certs.conf('g2')

    def peer(what, patterns, remote='', **how):
        """The peer gets a certificate, and both roles refuse it."""
        chains.end('g2', **how)
        them.load(tunnel('g2', **conf))
        reload(us, tunnel('g1', **{**certs.conf('g1'), 'remote_auth': certs.remote(remote)}))
        check(True, f'{what}:')
        refused(us, us, them, *patterns)
        refused(them, us, them)

    dates = ('--dateform', '%Y', '--not-before', '2020', '--not-after', '2021')
    peer('expired', ['has expired: it was valid until 2021'], dates=dates)
    peer('not yet valid', ['is not valid before 2040'], dates=('--dateform', '%Y', '--not-before', '2040', '--not-after', '2041'))
    peer('another name', ["the peer says it is 'g2.example', and its certificate is for .CN=g9.example"], dn='CN=g9.example', names=('g9.example',))
    peer('another CA of the chain', ['the chain of .g2.example. has no CA that'], remote='ca_id = CN=other')
    peer('a policy that it has not', ['has no certificate policy that is required'], remote='cert_policy = 1.2.3.4')
    peer('no known status', ['has no known revocation status'], remote='revocation = strict')
    chains.revoke('g2', 'g1')
    peer_of = certs.remote('revocation = ifuri')
    reload(us, tunnel('g1', **{**certs.conf('g1'), 'remote_auth': peer_of}))
    check(True, 'revoked:')
    chains.revoke('g2', 'g1')
    reload(us, tunnel('g1', **certs.conf('g1')))
    refused(us, us, them, 'was revoked at')
    chains.remove('g1', 'x509crl/link.crl')
    # The peer sends none, and then one that we have.
    them.load(tunnel('g2', **conf, conn='send_cert = never'))
    reload(us, tunnel('g1', **certs.conf('g1')))
    refused(us, us, them, 'sent no certificate')
    chains.everywhere('g1', 'x509/g2.pem', chains.path('g2.pem'))
    reload(us, tunnel('g1', **{**certs.conf('g1'), 'remote_auth': 'auth = pubkey\n      certs = g2.pem'}))
    us.initiate()
    ping(lab)
    down(us, them, us)
    # Our private key is gone.
    chains.remove('g1', 'private/g1.pem')
    reload(us, tunnel('g1', **certs.conf('g1')))
    them.load(tunnel('g2', **conf))
    refused(us, us, None, "no private key found for 'g1.example'")


def other_root(lab, full):
    """The peer's root is another one with the same name, then one with another name."""
    chains, us, them = pair(lab, 'ed25519')
    for name, root, said in (('a', 'CN=root', 'a signature that is not by its issuer'), ('b', 'CN=elsewhere', 'was issued by .*CN=elsewhere')):
        chains.key(f'root-{name}')
        chains.issue(f'root-{name}', dn=root)
        chains.end('g2', by=f'root-{name}')
        them.load(tunnel('g2', **certs.conf('g2')))
        refused(us, us, them, said)


def swanctl_loads_and_lists(lab, full):
    """swanctl --load-all brings certificates, keys under passphrases, PKCS#12, lists and authorities; --list-certs shows them."""
    chains, us, them = pair(lab, 'rsa', ours='# empty\n')
    folder = lab.path('g1-swanctl')
    certs.encrypt(chains.path('g1.key'), os.path.join(folder, 'pkcs8-g1.pem'), 'secret')
    os.makedirs(os.path.join(folder, 'pkcs8'), exist_ok=True)
    os.rename(os.path.join(folder, 'pkcs8-g1.pem'), os.path.join(folder, 'pkcs8', 'g1.pem'))
    os.remove(os.path.join(folder, 'private', 'g1.pem'))
    text = tunnel('g1', **certs.conf('g1')).replace('secrets {', 'secrets {\n  pkcs8-1 {\n    file = g1.pem\n    secret = secret\n  }')
    text += 'authorities {\n  a {\n    cacert = root.pem\n    crl_uris = http://127.0.0.1:1/a.crl\n    ocsp_uris = http://ca.example/\n  }\n}\n'
    us.load(text)
    listed = us.swanctl('--list-certs')
    for part in ('"CN=g1.example"', '"CN=link"', '"CN=root"', 'has private key'):
        check(part in listed, f'--list-certs shows {part}')
    authorities = us.swanctl('--list-authorities')
    check('root' in authorities, '--list-authorities shows the root')
    check('http://127.0.0.1:1/a.crl' in authorities and 'http://ca.example/' in authorities, '--list-authorities shows places of lists and responders')
    check('CN=g1.example' in us.swanctl('--list-conns'), '--list-conns shows our certificate')
    for initiator in (us, them):
        initiator.initiate()
        ping(lab)
        down(us, them, initiator)
    # The same from the files of our daemon, with PKCS#12.
    us.swanctl('--load-creds', '--clear', '--file', lab.write('empty/swanctl.conf', '# empty\n'))
    os.makedirs(os.path.join(us.config, 'pkcs12'), mode=0o700, exist_ok=True)
    pack = os.path.join(us.config, 'pkcs12', 'g1.p12')
    certs.pack(chains.path('g1.key'), chains.path('g1.pem'), pack, 'secret')
    os.chmod(pack, 0o600)
    os.remove(os.path.join(us.config, 'private', 'g1.pem'))
    reload(us, tunnel('g1', **certs.conf('g1')).replace('secrets {', 'secrets {\n  pkcs12-1 {\n    file = g1.p12\n    secret = secret\n  }'))
    us.initiate()
    ping(lab)


def renewed_certificate(lab, full):
    """A renewed certificate of ours is used after a reload, and the IKE_SA stays."""
    chains, us, them = pair(lab, 'ed25519')
    us.initiate()
    ping(lab)
    spis = us.ike_spis()
    chains.end('g1', dates=('--lifetime', '77'))
    reload(us, tunnel('g1', **certs.conf('g1')))
    ping(lab)
    check(us.ike_spis() == spis, 'the IKE_SA stays')


TESTS = {f.__name__: f for f in (rsa, ecdsa, ed25519, refusals, other_root, swanctl_loads_and_lists, renewed_certificate)}
if __name__ == '__main__':
    main(TESTS, 'certificates')
