"""Chains of three for both ends of the line, made by strongSwan's pki, in the folders from which both kinds of gateway read them.

    CN=root  ->  CN=link  ->  CN=g1.example, CN=g2.example

The root lies in the folder x509ca of both, the link in the folder x509 of the end that has a certificate below it: the other end
has to get it in a CERT payload.
"""
import os
import shutil
import subprocess

from lab import call, need

FOLDERS = ('etc', 'swanctl')
KINDS = {'rsa': ('rsa', '2048'), 'rsa3072': ('rsa', '3072'), 'ecdsa': ('ecdsa', '384'), 'ed25519': ('ed25519', None)}


def pki(*args, into=None):
    """Runs pki. Returns its output, or writes it to a file."""
    done = subprocess.run(['pki', *args], capture_output=True, check=False, timeout=60)
    if done.returncode:
        raise AssertionError(f"pki {' '.join(args)}: {done.stderr.decode()}")
    if into:
        os.makedirs(os.path.dirname(into), exist_ok=True)
        with open(into, 'wb') as f:
            f.write(done.stdout)
        os.chmod(into, 0o600)
    return done.stdout


class Chains:
    """Keys and certificates of one kind, for both boxes."""

    def __init__(self, lab, kind):
        need('pki', 'openssl')
        self.lab, self.kind = lab, kind
        for name in ('root', 'link', 'g1', 'g2'):
            self.key(name)
        self.root = self.issue('root')
        self.link = self.issue('link', by='root', ca=True)
        for box in ('g1', 'g2'):
            self.end(box)

    def path(self, name):
        return self.lab.path(f'certs-{self.kind}/{name}')

    def key(self, name):
        kind, size = KINDS[self.kind]
        pki('--gen', '--type', kind, *(('--size', size) if size else ()), '--outform', 'pem', into=self.path(f'{name}.key'))

    def issue(self, name, by=None, ca=False, dn=None, names=(), dates=()):
        """The certificate of a name: of a root when nobody issues it. Returns its file."""
        out = self.path(f'{name}.pem')
        key = ('--in', self.path(f'{name}.key'), '--type', 'priv', '--dn', dn or f'CN={name}', '--outform', 'pem', *dates)
        if by is None:
            pki('--self', '--ca', *key, into=out)
        else:
            pki('--issue', '--cacert', self.path(f'{by}.pem'), '--cakey', self.path(f'{by}.key'), *(('--ca',) if ca else ()), *key,
                *(part for n in names for part in ('--san', n)), into=out)
        return out

    def end(self, box, by='link', **how):
        """The certificate of a box, put into its folders with its key, the link and the root."""
        own = self.issue(box, **{'by': by, 'dn': f'CN={box}.example', 'names': (f'{box}.example',), **how})
        for folder in FOLDERS:
            for name, source in ((f'x509/{box}.pem', own), (f'private/{box}.pem', self.path(f'{box}.key')),
                                 ('x509/link.pem', self.link), ('x509ca/root.pem', self.root)):
                self.put(box, folder, name, source)

    def put(self, box, folder, name, source):
        path = self.lab.path(f'{box}-{folder}/{name}')
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        shutil.copy(source, path)
        os.chmod(path, 0o600)

    def everywhere(self, box, name, source):
        for folder in FOLDERS:
            self.put(box, folder, name, source)

    def remove(self, box, name):
        for folder in FOLDERS:
            os.remove(self.lab.path(f'{box}-{folder}/{name}'))

    def revoke(self, box, into):
        """A list of the link that names the certificate of a box, put into the folders of `into`."""
        out = self.path('link.crl')
        pki('--signcrl', '--cacert', self.link, '--cakey', self.path('link.key'), '--cert', self.path(f'{box}.pem'), into=out)
        self.everywhere(into, 'x509crl/link.crl', out)


def local(box):
    """`local` of a box with a certificate."""
    return f'auth = pubkey\n      certs = {box}.pem'


def remote(more=''):
    """`remote` of somebody whose chain leads to the root."""
    return f'auth = pubkey\n      cacerts = root.pem\n      {more}'


def conf(box):
    """Both directions by certificates, for `tunnel()`."""
    return {'local_auth': local(box), 'remote_auth': remote()}


def encrypt(source, into, passphrase):
    """A private key under a passphrase, as PKCS#8."""
    call('openssl', 'pkcs8', '-topk8', '-in', source, '-out', into, '-passout', f'pass:{passphrase}')


def pack(key, certificate, into, passphrase):
    """A private key and its certificate as PKCS#12."""
    call('openssl', 'pkcs12', '-export', '-inkey', key, '-in', certificate, '-out', into, '-passout', f'pass:{passphrase}')
