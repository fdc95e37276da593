"""Chains of three for both ends of the line, made by `ironswan pki`, and put where each kind of peer reads them.

    CN=root-KIND  ->  CN=link-KIND  ->  CN=g1-KIND with the DNS name g1.example, CN=g2-KIND with g2.example

NSS names a certificate by its subject, so each kind of key has subjects of its own. Only the root is known to both ends. Each end sends the link beside its own certificate, and gets that of the other end so.
"""
import os
import shutil

from gateway import OTHER, program
from lab import call

# Options of `ironswan pki gen` for each kind of key.
KINDS = {
    'rsa2048': ('rsa', '2048'),
    'rsa3072': ('rsa', '3072'),
    'p256': ('ecdsa', '256'),
    'p384': ('ecdsa', '384'),
    'p521': ('ecdsa', '521'),
    'ed25519': ('ed25519', None),
}
# Folders of swanctl that `put` fills.
FOLDERS = ('private', 'pubkey', 'x509', 'x509ca')
# Password of the PKCS#12 files.
PASSWORD = 'pass'


def pki(*args):
    return call(program(), 'pki', *args)


class Chain:
    """Keys and certificates of one kind, for both boxes. They are made once in a lab. Those of a raw key are others than those of a chain:
    strongSwan trusts a raw key once loaded, and then finds that no CA has certified it."""

    def __init__(self, lab, kind, raw=False):
        self.lab, self.kind, self.raw = lab, kind, raw
        self.name = f'{kind}-raw' if raw else kind
        self.folder = lab.path(f'issued-{self.name}')
        if not os.path.exists(self.folder):
            os.mkdir(self.folder, 0o700)
            self.make()

    def make(self):
        algorithm, size = KINDS[self.kind]
        for name in ('root', 'link', 'g1', 'g2'):
            pki('gen', '--type', algorithm, *(('--size', size) if size else ()), '--out', self.path(f'{name}.key'))
        pki('self', '--ca', '--in', self.path('root.key'), '--dn', f'CN=root-{self.name}', '--out', self.path('root.crt'))
        self.issue('link', 'root', '--ca', '--pathlen', '0', '--dn', f'CN=link-{self.name}')
        self.lab.write(f'issued-{self.name}/password', PASSWORD + '\n')
        for box in ('g1', 'g2'):
            pki('pub', '--in', self.path(f'{box}.key'), '--out', self.path(f'{box}.pub'))
            self.issue(box, 'link', '--dn', f'CN={box}-{self.name}', '--san', f'{box}.example')
            pki('pkcs12', '--in', self.path(f'{box}.key'), '--cert', self.path(f'{box}.crt'), '--cacert', self.path('link.crt'),
                '--cacert', self.path('root.crt'), '--export-passphrase-file', self.path('password'), '--out', self.path(f'{box}.p12'))

    def issue(self, name, by, *more):
        pki('issue', '--cacert', self.path(f'{by}.crt'), '--cakey', self.path(f'{by}.key'), '--in', self.path(f'{name}.key'), *more,
            '--out', self.path(f'{name}.crt'))

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, box, folder):
        """The files of a box, in the folders beside its swanctl.conf, and no others there."""
        for name in FOLDERS:
            shutil.rmtree(self.lab.path(f'{folder}/{name}'), ignore_errors=True)
        files = {f'private/{box}.pem': f'{box}.key'}
        if self.raw:
            files |= {f'pubkey/{whose}.pem': f'{whose}.pub' for whose in ('g1', 'g2')}
        else:
            files |= {f'x509/{box}.pem': f'{box}.crt', 'x509/link.pem': 'link.crt', 'x509ca/root.pem': 'root.crt'}
        for name, source in files.items():
            path = self.lab.path(f'{folder}/{name}')
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            shutil.copy(self.path(source), path)

    def public(self, box):
        """The public key of a box (SubjectPublicKeyInfo) in base64, on one line."""
        with open(self.path(f'{box}.pub')) as f:
            return ''.join(line.strip() for line in f if not line.startswith('-----'))


def ruled(box, rule, raw):
    """Both directions of a box by this rule of `auth`, for `tunnel()`: by certificates, or raw public keys."""
    own, others = (f'pubkeys = {box}.pem', f'pubkeys = {OTHER[box]}.pem') if raw else (f'certs = {box}.pem', 'cacerts = root.pem')
    return {'local_auth': f'auth = {rule}\n      {own}', 'remote_auth': f'auth = {rule}\n      {others}'}
