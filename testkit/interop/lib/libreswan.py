"""Libreswan in a guest with a Linux kernel (guest.py): its ipsec.conf from one end of the line, and the same questions as a Gateway's."""
import os

import peers
from gateway import ADDRESS, NET, OTHER, SECRET
from guest import Guest
from lab import call, until

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


class Libreswan(Guest):
    """pluto, with one connection `net`."""

    def __init__(self, lab, text, major=4, **kw):
        self.major, self.kind = major, f'Libreswan {major}'
        super().__init__(lab, root=peers.root(FOLDERS[major]), **kw)
        # The route that pluto's updown script would set: that needs a shell.
        self.do('ip route add 10.1.0.0/24 via 192.0.2.1 src 10.2.0.1')
        nss = lab.path('guest/nss')
        os.mkdir(nss, 0o700)
        call(peers.ROOTED, self.root, 'certutil', '-N', '-d', f'sql:{nss}', '--empty-password')
        lab.write('guest/ipsec.conf', text)
        lab.write('guest/ipsec.secrets', f'@g2.example @g1.example : PSK "{SECRET}"\n')
        self.start(f'{PROGRAMS}/pluto --nofork --stderrlog --config /run/share/ipsec.conf --secretsfile /run/share/ipsec.secrets '
                   '--nssdir /run/share/nss --rundir /run/pluto --no-dnssec')
        until('pluto listens', lambda: 'loading secrets from' in self.log(), 60)
        self.load(text)

    def version(self):
        return peers.version(FOLDERS[self.major], 'libreswan')

    def load(self, text):
        """Replaces the connection."""
        self.lab.write('guest/ipsec.conf', text)
        return self.peer(f'{PROGRAMS}/addconn', '--config', '/run/share/ipsec.conf', '--ctlsocket', CONTROL, 'net')

    def whack(self, *args, **kw):
        return self.peer(f'{PROGRAMS}/whack', '--ctlsocket', CONTROL, *args, **kw)

    def initiate(self):
        return self.whack('--initiate', '--name', 'net')

    def rekey(self, what):
        child = '--rekey-ipsec' if self.major == 4 else '--rekey-child'
        return self.whack({'ike': '--rekey-ike', 'child': child}[what], '--name', 'net')

    def terminate(self):
        return self.whack('--terminate', '--name', 'net')
