"""Peers that this machine's packages cannot give: a folder each, made by scripts/peers/debian, whose programs run by chroot."""
import functools
import os

from gateway import Charon
from lab import HERE, REPO, Failed, call

ROOTED = os.path.join(HERE, 'rooted')


@functools.cache
def root(name):
    """The folder of a peer. It is fetched when it is not there: `scripts/setup test` has done so before."""
    return call(os.path.join(REPO, 'scripts', 'peers', 'debian'), name, timeout=900).splitlines()[-1]


def version(name, package):
    """The version of a package in a peer's folder, and the suite of Debian that it is from."""
    with open(os.path.join(root(name), 'versions')) as f:
        versions = dict(line.split() for line in f)
    with open(os.path.join(root(name), 'suite')) as f:
        suite = f.read().strip()
    if package not in versions:
        raise Failed(f'{root(name)} has no package {package}')
    return f'{versions[package]} of Debian {suite}'


class Charon6(Charon):
    """strongSwan 6 with kernel-libipsec, and its own swanctl."""

    kind = 'strongSwan 6'
    plugins = ('random drbg nonce aes gcm ccm ctr sha1 sha2 hmac cmac xcbc mgf1 kdf chapoly pem pkcs1 pkcs8 pkcs12 x509 revocation '
               'constraints pubkey openssl gmp curve25519 curl kernel-libipsec kernel-netlink socket-default vici updown')

    def command(self, program, *args):
        return [ROOTED, root('strongswan-6'), program, *args]

    def version(self):
        return version('strongswan-6', 'charon-systemd')
