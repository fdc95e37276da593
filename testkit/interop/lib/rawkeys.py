"""Key pairs of Ed25519 for both ends of the line, in the folders from which both kinds of gateway read them."""
import os

from lab import call, need

FOLDERS = ('etc', 'swanctl')


def make(lab):
    """A key pair for each box, made by the commands of the manual. The public key of g2 is in DER."""
    need('openssl')
    made = {}
    for box in ('g1', 'g2'):
        made[box] = lab.path(f'{box}-private.pem')
        call('openssl', 'genpkey', '-algorithm', 'ed25519', '-out', made[box])
    for box in ('g1', 'g2'):
        for folder in FOLDERS:
            with open(made[box]) as f:
                lab.write(f'{box}-{folder}/private/{box}.pem', f.read())
            os.makedirs(lab.path(f'{box}-{folder}/pubkey'), exist_ok=True)
            for whose, form in (('g1', 'pem'), ('g2', 'der')):
                call('openssl', 'pkey', '-in', made[whose], '-pubout', '-outform', form,
                     '-out', lab.path(f'{box}-{folder}/pubkey/{whose}.{form}'))


def remove_private(lab, box):
    """The private key of a box has no file any more."""
    for folder in FOLDERS:
        os.remove(lab.path(f'{box}-{folder}/private/{box}.pem'))


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
