"""Libreswan in a guest with a Linux kernel (guest.py): its ipsec.conf from one end of the line, and the same questions as a Gateway's."""
import os
import shutil

import issued
import peers
from gateway import ADDRESS, NET, OTHER, SECRET
from guest import Guest
from lab import Failed, call, until

PROGRAMS = '/usr/libexec/ipsec'
CONTROL = '/run/pluto/pluto.ctl'
# Versions that the tests know: the folder of each.
FOLDERS = {4: 'libreswan-4', 5: 'libreswan-5'}


def conf(box, ike='aes_gcm128-sha2_256-dh31', esp='aes_gcm128', auth='authby=secret', more=''):
    """ipsec.conf of one end of the line: the connection `net`. `auth` and `more` are further settings, one a line."""
    peer = OTHER[box]
    lines = [f'left={ADDRESS[box]}', f'leftid=@{box}.example', f'leftsubnet={NET[box]}', f'right={ADDRESS[peer]}',
             f'rightid=@{peer}.example', f'rightsubnet={NET[peer]}', f'ike={ike}', f'phase2alg={esp}',
             f"pfs={'yes' if '-dh' in esp else 'no'}", 'leftupdown=%disabled', 'mobike=no', *auth.split('\n'), *more.split('\n')]
    return 'config setup\n\nconn net\n' + ''.join(f'  {line.strip()}\n' for line in lines if line.strip())


# Notify message types of draft-ietf-ipsecme-ikev2-qr-alt-04 in Libreswan 5.2, from the range for private use, and their numbers of
# RFC 9867: PPK_IDENTITY_KEY and USE_PPK_INT.
DRAFT_04 = {50208: 16446, 50209: 16445}
# Offset of the program's tables in its file: code lies before them.
TABLES = 0x16a000


def with_numbers_of_rfc_9867(root, lab):
    """Copies pluto 5.2 to the guest's folder with the numbers of the RFC. Returns the path in the guest."""
    with open(root + PROGRAMS + '/pluto', 'rb') as f:
        program = f.read()
    code, tables = program[:TABLES], program[TABLES:]
    for draft, final in DRAFT_04.items():
        old, new = draft.to_bytes(4, 'little'), final.to_bytes(4, 'little')
        if code.count(old) < 3 or new in code:
            raise Failed(f'this pluto does not have the numbers of draft 04: {code.count(old)} times {draft}')
        code = code.replace(old, new)
    # The range of numbers that have names. Their names are in the other order now, which shows in the log alone.
    ranges = [b''.join(number.to_bytes(8, 'little') for number in sorted(numbers)) for numbers in (DRAFT_04.keys(), DRAFT_04.values())]
    if tables.count(ranges[0]) != 1:
        raise Failed('this pluto does not have the names of draft 04')
    tables = tables.replace(*ranges)
    path = lab.path('guest/pluto')
    with open(path, 'wb') as f:
        f.write(code + tables)
    os.chmod(path, 0o755)
    return '/run/share/pluto'


class Libreswan(Guest):
    """pluto, with one connection `net`. `secrets`: more lines of ipsec.secrets. `final`: a copy of the program with the numbers of RFC 9867
    (`with_numbers_of_rfc_9867`)."""

    def __init__(self, lab, text, major=4, secrets='', final=False, **kw):
        self.major, self.kind, self.taken = major, f'Libreswan {major}', None
        super().__init__(lab, root=peers.root(FOLDERS[major]), **kw)
        # The route that pluto's updown script would set: that needs a shell.
        self.do('ip route add 10.1.0.0/24 via 192.0.2.1 src 10.2.0.1')
        nss = lab.path('guest/nss')
        os.mkdir(nss, 0o700)
        call(peers.ROOTED, self.root, 'certutil', '-N', '-d', f'sql:{nss}', '--empty-password')
        lab.write('guest/ipsec.conf', text)
        lab.write('guest/ipsec.secrets', f'@g2.example @g1.example : PSK "{SECRET}"\n{secrets}')
        self.pluto = with_numbers_of_rfc_9867(self.root, lab) if final else f'{PROGRAMS}/pluto'
        self.run()
        self.load(text)

    def run(self):
        """Starts pluto."""
        self.start(f'{self.pluto} --nofork --stderrlog --config /run/share/ipsec.conf --secretsfile /run/share/ipsec.secrets '
                   '--nssdir /run/share/nss --rundir /run/pluto --no-dnssec')
        until('pluto listens', lambda: 'loading secrets from' in self.log(), 60)

    def end(self):
        """Ends pluto, if it has not ended by itself, and takes its SAs out of the kernel."""
        self.whack('--shutdown', fail=False)
        self.do('while pgrep -x pluto; do sleep 0.1; done; ip xfrm state flush; ip xfrm policy flush; rm -f /run/share/peer.log')

    def version(self):
        return peers.version(FOLDERS[self.major], 'libreswan')

    def load(self, text):
        """Replaces the connection."""
        self.lab.write('guest/ipsec.conf', text)
        return self.peer(f'{PROGRAMS}/addconn', '--config', '/run/share/ipsec.conf', '--ctlsocket', CONTROL, 'net')

    def take(self, chain):
        """Reads the private key and the certificates of g2 into the database, and starts pluto anew: it keeps each key that it has seen
        of a peer, and refuses a signature by another one."""
        if chain.name == self.taken:
            return
        self.taken, nss = chain.name, '/run/share/nss'
        self.end()
        shutil.copy(chain.path('g2.p12'), self.lab.path(f'guest/{chain.name}.p12'))
        self.peer('pk12util', '-i', f'/run/share/{chain.name}.p12', '-d', f'sql:{nss}', '-W', issued.PASSWORD, '-K', '')
        self.peer('certutil', '-M', '-n', f'root-{chain.name}', '-t', 'CT,,', '-d', f'sql:{nss}')
        self.run()

    def signs(self, chain):
        """The settings by which both ends authenticate with these keys, raw or in a chain."""
        authby = 'authby=' + ('rsa-sha2' if chain.kind.startswith('rsa') else 'ecdsa-sha2')
        if chain.raw:
            return f"{authby}\nleftpubkey={chain.public('g2')}\nrightpubkey={chain.public('g1')}"
        return f'{authby}\nleftcert=g2-{chain.name}\nsendca=all\nrightca=CN=root-{chain.name}'

    def whack(self, *args, **kw):
        return self.peer(f'{PROGRAMS}/whack', '--ctlsocket', CONTROL, *args, **kw)

    def initiate(self):
        return self.whack('--initiate', '--name', 'net')

    def rekey(self, what):
        child = '--rekey-ipsec' if self.major == 4 else '--rekey-child'
        return self.whack({'ike': '--rekey-ike', 'child': child}[what], '--name', 'net')

    def terminate(self):
        return self.whack('--terminate', '--name', 'net')
