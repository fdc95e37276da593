"""Key pairs for both ends of the line, in the folders from which both kinds of gateway read them."""
import itertools
import os
import re
import shutil

from lab import REPO, call, need

FOLDERS = ('etc', 'swanctl')


def commands():
    """The commands by which the manual has a gateway `g1` make its key pair."""
    with open(os.path.join(REPO, 'docs', 'manual', 'configuration.md')) as f:
        return re.search(r'```\n(mkdir [^`]*private/g1.pem\n)```', f.read())[1]


# Options of `openssl genpkey` for each kind of key.
KINDS = {
    'ed25519': '-algorithm ed25519',
    'rsa': '-algorithm rsa -pkeyopt rsa_keygen_bits:2048',
    'p256': '-algorithm ec -pkeyopt ec_paramgen_curve:P-256',
    'p384': '-algorithm ec -pkeyopt ec_paramgen_curve:P-384',
    'p521': '-algorithm ec -pkeyopt ec_paramgen_curve:P-521',
}


def make(lab, kind='ed25519'):
    """A key pair for each box, made as the manual says, and the public key of the other box. That of g2 becomes DER."""
    need('openssl', 'bash')
    for box in ('g1', 'g2'):
        first = os.path.dirname(lab.write(f'{box}-{FOLDERS[0]}/swanctl.conf', ''))
        call('bash', '-ec', commands().replace('g1', box).replace('-algorithm ed25519', KINDS[kind]), cwd=first)
        for folder in FOLDERS[1:]:
            shutil.copytree(first, lab.path(f'{box}-{folder}'), dirs_exist_ok=True)
    for box in ('g1', 'g2'):
        for folder in FOLDERS:
            for whose in ('g1', 'g2'):
                public = lab.path(f'{box}-{folder}/pubkey/{name(whose)}')
                call('openssl', 'pkey', '-in', lab.path(f'{whose}-{FOLDERS[0]}/private/{whose}.pem'), '-pubout',
                     '-outform', public[-3:], '-out', public)


def remove_private(lab, box):
    """The private key of a box has no file any more."""
    for folder in FOLDERS:
        os.remove(lab.path(f'{box}-{folder}/private/{box}.pem'))


def exchange(lab, box):
    """Another key pair takes the place of the one of a box; the other box has both public keys. Returns the new one's name."""
    fresh = lab.path('fresh.pem')
    call('openssl', 'genpkey', '-algorithm', 'ed25519', '-out', fresh)
    remove_private(lab, box)
    for folder, whose in itertools.product(FOLDERS, ('g1', 'g2')):
        call('openssl', 'pkey', '-in', fresh, '-pubout', '-out', lab.path(f'{whose}-{folder}/pubkey/fresh.pem'))
    for folder in FOLDERS:
        shutil.copy(fresh, lab.path(f'{box}-{folder}/private/{box}.pem'))
    return 'fresh.pem'


def name(box):
    return {'g1': 'g1.pem', 'g2': 'g2.der'}[box]


def local(box):
    """`local` of a box that signs."""
    return f'auth = pubkey\n      pubkeys = {name(box)}'


def remote(box):
    """`remote` of somebody to whom this box signs."""
    return f'auth = ike:ed25519\n      pubkeys = {name(box)}'


def conf(box):
    """Both directions by signatures, for `tunnel()`."""
    return {'local_auth': local(box), 'remote_auth': remote({'g1': 'g2', 'g2': 'g1'}[box])}


def ruled(box, rule):
    """The same by this rule of `auth` both ways."""
    return {'local_auth': f'auth = {rule}\n      pubkeys = {name(box)}',
            'remote_auth': f'auth = {rule}\n      pubkeys = {name({"g1": "g2", "g2": "g1"}[box])}'}
