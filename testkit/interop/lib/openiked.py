"""OpenIKED in a guest with a Linux kernel (guest.py), whose SAs it sets by PF_KEY: its iked.conf from one end of the line."""
import shutil

import peers
from gateway import ADDRESS, NET, OTHER, SECRET
from guest import Guest
from lab import until


def conf(box, group='curve25519', auth=f'psk "{SECRET}"', active=False, lifetimes='', settings='set nomobike'):
    """iked.conf of one end of the line: the policy `net`. By PF_KEY of Linux it sets no SA of a combined-mode cipher or SHA-2."""
    peer = OTHER[box]
    return f"""{settings}
ikev2 "net" {'active' if active else 'passive'} esp \\
  from {NET[box]} to {NET[peer]} \\
  local {ADDRESS[box]} peer {ADDRESS[peer]} \\
  ikesa enc aes-128-gcm prf hmac-sha2-256 group {group} \\
  childsa enc aes-128 auth hmac-sha1 group {group} \\
  srcid {box}.example dstid {peer}.example \\
  {lifetimes} \\
  {auth}
"""


class OpenIked(Guest):
    """iked, with one policy `net`. It has no command that initiates or rekeys: it initiates when it starts with an active policy, and
    rekeys by the lifetimes of `conf`."""

    kind = 'OpenIKED'

    def __init__(self, lab, **kw):
        super().__init__(lab, root=peers.root('openiked-7'), **kw)
        # Its processes give up their privileges: to a user, and in an empty folder.
        self.do(f'cd {self.root}; for d in etc var; do mount -t tmpfs tmpfs $d; done; mkdir -p etc/iked run/empty var/run; '
                'cd etc/iked; mkdir private ca certs crls pubkeys pubkeys/fqdn; cd ..; '
                "echo 'root:x:0:0::/root:/bin/sh\n_iked:x:900:900::/run/empty:/usr/sbin/nologin' >passwd; "
                "echo 'root:x:0:\n_iked:x:900:' >group; PATH=/run/uml/bin:$PATH modprobe af_key; "
                'openssl ecparam -name prime256v1 -genkey -noout -out iked/private/local.key')
        self.do('ip route add 10.1.0.0/24 via 192.0.2.1 src 10.2.0.1')
        # The kernel loads these ciphers while packets come, and drops them.
        self.do(f"ip xfrm state add src 127.0.0.1 dst 127.0.0.2 proto esp spi 0x999 enc 'cbc(aes)' 0x{'11' * 16} "
                f"auth-trunc 'hmac(sha1)' 0x{'22' * 20} 96; ip xfrm state deleteall")

    def version(self):
        return peers.version('openiked-7', 'openiked')

    def load(self, text):
        """Ends iked, and starts it with this configuration; its SAs and policies of before are gone. With an active policy, `initiate`
        starts it."""
        self.do('pkill -x iked; while pgrep -x iked; do sleep 0.1; done; ip xfrm state flush; ip xfrm policy flush; '
                'rm -f /run/share/peer.log', fail=False)
        self.lab.write('guest/iked.conf', text)
        if '"net" passive' in text:
            self.initiate()

    def initiate(self):
        self.start('/usr/sbin/iked -d -vv -f /run/share/iked.conf')
        until('iked has read its configuration', lambda: 'stickyaddress' in self.log(), 60)

    def take(self, chain):
        """The keys and certificates of g2. g1 is known by its public key alone, if the chain is raw, else by a chain to the root."""
        files = {'private/local.key': 'g2.key', **({'pubkeys/fqdn/g1.example': 'g1.pub'} if chain.raw else
                                                   {'certs/g2.crt': 'g2.crt', 'ca/root.crt': 'root.crt', 'ca/link.crt': 'link.crt'})}
        copies = ['rm -f ca/* certs/* pubkeys/fqdn/*']
        for number, (name, source) in enumerate(files.items()):
            shutil.copy(chain.path(source), self.lab.path(f'guest/iked-{number}'))
            copies.append(f'cat /run/share/iked-{number} >{name}')
        self.do(f"cd {self.root}/etc/iked && {' && '.join(copies)}")

    def ikectl(self, *args, **kw):
        return self.peer('/usr/sbin/ikectl', *args, **kw)

    def rekey(self, what):
        """The SA's lifetime does it."""

    def terminate(self):
        return self.ikectl('reset', 'id', 'FQDN/g1.example')
