#!/usr/bin/env python3
"""The revocation status of strongSwan's certificate, by lists of a server of the web and by openssl's responder of OCSP: good, revoked,
unreachable, and servers that lie, in both roles and by every policy."""
import os
import re
import sys
import time

import certs
from gateway import Charon, Ours, tunnel
from lab import call, check, main, need, until
from traffic import ping

PLUGINS = Charon.plugins + ' x509 constraints revocation'
WEB = os.path.join(os.path.dirname(os.path.abspath(certs.__file__)), 'web.py')
LIST, OCSP = 'http://192.0.2.2:8080/link.crl', 'http://192.0.2.2:8081/'


class Place:
    """IronSwan in g1 and charon in g2; a server of the web, and a responder, in g2 too."""

    def __init__(self, lab):
        need('swanctl', 'charon-systemd', 'ping', 'pki', 'openssl')
        self.lab = lab
        lab.line()
        self.chains = certs.Chains(lab, 'ecdsa')
        os.makedirs(lab.path('web'), exist_ok=True)
        # The root says that the CA between is good, by a file.
        root = self.chains.path('root.crl')
        certs.pki('--signcrl', '--cacert', self.chains.root, '--cakey', self.chains.path('root.key'), into=root)
        self.chains.everywhere('g1', 'x509crl/root.crl', root)
        self.us = Ours(lab, 'g1').start(tunnel('g1', **certs.conf('g1')))
        self.them = Charon(lab, 'g2').start(tunnel('g2', **certs.conf('g2')), load=PLUGINS)
        self.web = lab.spawn('g2', sys.executable, WEB, '8080', lab.path('web'), name='web')
        until('the server of the web runs', lambda: 'ready' in self.web.log())
        self.responder = None

    def certify(self, *places):
        """Gives charon a certificate with these options of pki."""
        own = self.chains.path('g2.pem')
        certs.pki('--issue', '--cacert', self.chains.link, '--cakey', self.chains.path('link.key'), '--in', self.chains.path('g2.key'),
                  '--type', 'priv', '--dn', 'CN=g2.example', '--san', 'g2.example', '--outform', 'pem', *places, into=own)
        self.chains.everywhere('g2', 'x509/g2.pem', own)
        self.them.load(tunnel('g2', **certs.conf('g2')))

    def publish(self, revoked):
        """A list of the CA between, at the server of the web."""
        more = ('--cert', self.chains.path('g2.pem')) if revoked else ()
        certs.pki('--signcrl', '--cacert', self.chains.link, '--cakey', self.chains.path('link.key'), *more, into=self.lab.path('web/link.crl'))

    def policy(self, word):
        with open(os.path.join(self.us.config, 'swanctl.conf'), 'w') as f:
            f.write(tunnel('g1', **{**certs.conf('g1'), 'remote_auth': certs.remote(f'revocation = {word}')}))
        with self.us.vici() as v:
            v.request('reload-settings')
        self.us.swanctl('--flush-certs')

    def respond(self, revoked, signer='link', days='1'):
        """Starts openssl's responder."""
        serial = call('openssl', 'x509', '-in', self.chains.path('g2.pem'), '-noout', '-serial').strip().split('=')[1]
        state = f'R\t400101000000Z\t250101000000Z,keyCompromise\t{serial}' if revoked else f'V\t400101000000Z\t\t{serial}'
        self.quiet()
        index = self.lab.write('index.txt', f'{state}\tunknown\t/CN=g2.example\n')
        self.responder = self.lab.spawn(
            'g2', 'openssl', 'ocsp', '-index', index, '-port', '8081', '-CA', self.chains.link, '-rsigner', self.chains.path(f'{signer}.pem'),
            '-rkey', self.chains.path(f'{signer}.key'), '-ndays', days, name='ocsp')
        until('the responder runs', lambda: self.lab.run('g2', 'ss', '-Hltn', 'sport = :8081'))

    def quiet(self):
        if self.responder:
            self.responder.stop()
        self.responder = None

    def up(self, what):
        for initiator in (self.us, self.them):
            self.us.swanctl('--flush-certs')
            initiator.initiate()
            ping(self.lab)
            check(True, f'{what}: {initiator.kind} initiates, and the tunnel is up')
            initiator.swanctl('--terminate', '--ike', 'net')
            until('both are gone', lambda: not self.us.sas() and not self.them.sas())

    def refused(self, what, *patterns):
        for initiator in (self.us, self.them):
            self.us.swanctl('--flush-certs')
            mark, start = len(self.us.log()), time.monotonic()
            done = initiator.swanctl('--initiate', '--child', 'net', '--timeout', '20', fail=False)
            took = time.monotonic() - start
            check(done.returncode != 0 and took < 8, f'{what}: {initiator.kind} initiates, and is refused after {took:.1f} s')
            # Of peers that we refuse, the log has a limited number of lines.
            for pattern in patterns if initiator is self.us else ():
                line = until(f'our log says {pattern}', lambda: re.search(f'.*{pattern}.*', self.us.log()[mark:]), 5)
                check(True, line[0].strip())
            until('nothing is left', lambda: not self.us.sas() and not self.them.sas())


def lists(lab, full):
    """A list of the web: good, revoked, kept, and a server that is not there, by every policy."""
    p = Place(lab)
    p.certify('--crl', LIST)
    p.publish(False)
    for word in ('strict', 'ifuri', 'relaxed'):
        p.policy(word)
        p.up(f'{word}, good')
    # The list is kept: nobody asks again.
    p.us.initiate()
    count = p.web.log().count('GET /link.crl')
    check('X509_CRL' in p.us.swanctl('--list-certs', '--raw'), '--list-certs has the list')
    p.us.swanctl('--terminate', '--ike', 'net')
    p.us.initiate()
    check(p.web.log().count('GET /link.crl') == count, 'the list is not fetched again')
    p.us.swanctl('--terminate', '--ike', 'net')
    until('both are gone', lambda: not p.us.sas() and not p.them.sas())
    p.publish(True)
    for word in ('strict', 'ifuri', 'relaxed'):
        p.policy(word)
        p.refused(f'{word}, revoked', 'was revoked at')
    p.web.stop()
    for word in ('strict', 'ifuri'):
        p.policy(word)
        p.refused(f'{word}, no server', 'has no known revocation status', f'{LIST}: no connection')
    p.policy('relaxed')
    p.up('relaxed, no server')


def responder(lab, full):
    """OCSP: good and revoked by openssl's responder, of the CA or of somebody whom it has not allowed, and no responder."""
    p = Place(lab)
    p.certify('--ocsp', OCSP)
    p.policy('strict')
    p.respond(False)
    p.up('strict, good')
    p.respond(True)
    for word in ('strict', 'relaxed'):
        p.policy(word)
        p.refused(f'{word}, revoked', 'was revoked at .*the key was compromised')
    # The certificate of g1 may not answer.
    p.policy('ifuri')
    p.respond(False, signer='g1')
    p.refused('another signer', 'has no known revocation status', f'{OCSP}: ')
    p.quiet()
    p.refused('ifuri, no responder', f'{OCSP}: no connection')
    # The list is asked for when the responder does not answer.
    p.certify('--ocsp', OCSP, '--crl', LIST)
    p.publish(False)
    p.up('ifuri, no responder, and a list')


def servers_that_lie(lab, full):
    """A server that hangs, sends without end, drips, has a huge header, points to a file or to loopback, or sends rubbish."""
    p = Place(lab)
    p.policy('strict')
    for path, said in (('hang', 'no complete answer within'), ('endless', 'longer than'), ('drip', 'no complete answer within'),
                       ('header', 'longer than'), ('file', 'points elsewhere .status 302'), ('loopback', 'points elsewhere .status 301'),
                       ('rubbish', 'the answer '), ('missing', 'answers with status 404')):
        p.certify('--crl', f'http://192.0.2.2:8080/{path}')
        p.refused(path, f'http://192.0.2.2:8080/{path}: .*{said}')
    for uri in ('file:///etc/passwd', 'http://127.0.0.1:8080/link.crl', 'http://localhost:8080/link.crl'):
        p.certify('--crl', uri)
        p.refused(uri, f'{uri}: it ')
    p.certify('--crl', LIST)
    p.publish(False)
    p.up('a server that answers')


TESTS = {f.__name__: f for f in (lists, responder, servers_that_lie)}
if __name__ == '__main__':
    main(TESTS, 'revocation')
