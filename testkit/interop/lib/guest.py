"""A real Linux kernel with any peer on it, in user-mode-linux (`uml`), in a namespace of the test; and strongSwan in it."""
import json
import os
import re
import shlex
import subprocess
import sys
import time

from gateway import IronSwan, Ours, tunnel
from lab import HERE, Failed, call, need, until


# Environment of strongSwan's programs in the guest.
ENV = 'STRONGSWAN_CONF=/run/share/strongswan.conf'
# Seconds that a guest may take to boot: it takes two on an idle machine.
BOOT_TIMEOUT = 120
# Seconds for which both ends go on receiving after they have stopped sending: a guest on a busy machine may stop seconds late.
LINGER = 6
# Frames that the guest's TAP device keeps for it.
QUEUE = 20_000


class Guest:
    """A Linux with ESP, in user-mode-linux, in the namespace `box`, where `plug` has made its TAP. `inside` are its inner addresses,
    and `gateway` its default routes. `root` is the folder of the peer that it is to run (peers.py), when that is not installed here."""

    kind = 'Linux kernel'

    def __init__(self, lab, box='g2', addrs='192.0.2.2/24,2001:db8::2/64', inside=('10.2.0.1/24', 'fd00:2::1/64'), gateway=(), root=None):
        need('linux.uml', 'modprobe')
        self.lab, self.box, self.root, self.count = lab, box, root, 0
        self.share = lab.path('guest')
        os.makedirs(self.share, mode=0o700, exist_ok=True)
        self.process = lab.spawn(box, os.path.join(HERE, 'uml'), 'tap0', addrs, os.path.join(HERE, 'uml-agent'),
                                 *([root] if root else []), name='uml', env={'SHARE': self.share})
        self.do('; '.join([f"ip addr add {a} dev lo {'nodad' if ':' in a else ''}" for a in inside]
                          + [f'ip route add default via {g}' for g in gateway]), timeout=BOOT_TIMEOUT)
        # A kernel loads the ciphers of its first SA while IKE waits: on a slow machine for longer than a peer tries. So it has had one.
        self.do(f"ip xfrm state add src 127.0.0.1 dst 127.0.0.2 proto esp spi 0x999 mode tunnel aead 'rfc4106(gcm(aes))' 0x{'11' * 20} "
                '128; ip xfrm state deleteall', timeout=120)

    def start(self, command, log='peer.log'):
        """Starts a daemon in the guest, in the peer's own root when it has one. Its output goes to a file of the shared folder."""
        self.do(f"{self.rooted(command)} >/run/share/{log} 2>&1 &")

    def rooted(self, command):
        return f'chroot {shlex.quote(self.root)} {command}' if self.root else command

    def peer(self, *args, **kw):
        """Runs a program of the peer to its end; its output."""
        return self.do(self.rooted(shlex.join(map(str, args))), **kw)

    def do(self, command, timeout=60, fail=True):
        """Runs a shell command in the guest; its output."""
        self.count += 1
        path = os.path.join(self.share, str(self.count))
        with open(path + '.new', 'w') as f:
            f.write(command + '\n')
        os.rename(path + '.new', path + '.do')
        end = time.monotonic() + timeout
        while not os.path.exists(path + '.rc'):
            if not self.process.alive():
                raise Failed(f'the guest ended:\n{self.process.log()}')
            if time.monotonic() > end:
                raise Failed(f'not within {timeout} s in the guest: {command}')
            time.sleep(0.05)
        with open(path + '.out', errors='replace') as f:
            out = f.read()
        with open(path + '.rc') as f:
            status = int(f.read())
        if fail and status:
            raise Failed(f'in the guest: {command}: exit status {status}\n{out}\n{self.log()}')
        return out

    def log(self):
        """The log of the peer's daemon."""
        return self.share_text('peer.log')

    def xfrm_errors(self):
        """The counters of /proc/net/xfrm_stat that are not zero."""
        lines = self.do('cat /proc/net/xfrm_stat').split('\n')
        return {k: int(v) for k, v in (line.split() for line in lines if line.strip()) if int(v)}

    def esp_spis(self):
        """The SPIs of all SAs in the guest's kernel, of both directions."""
        return {spi.removeprefix('0x') for spi, *_ in self.states()}

    def no_room(self):
        """Datagrams that the guest's sockets had no room for."""
        names, values = (line.split()[1:] for line in self.do('grep ^Udp: /proc/net/snmp').splitlines())
        udp = dict(zip(names, map(int, values)))
        return udp['InErrors'] - udp['InCsumErrors']

    def flow(self, local, remote, rate, size=100):
        """Begins to send and count numbered packets (numbered.py) in the guest; `flow_stop` ends it, and `flow_end` gives its
        report."""
        numbered = os.path.join(HERE, 'numbered.py')
        self.do('rm -f /tmp/go /tmp/end /run/share/flow.out; mkfifo /tmp/go; '
                f'(python3 {numbered} {local} {remote} --rate {rate} --size {size} --linger {LINGER} </tmp/go >/run/share/flow.out 2>&1 &); '
                '(echo go; while [ ! -e /tmp/end ]; do sleep 0.1; done) >/tmp/go 2>/dev/null &')
        until('the guest sends', lambda: self.share_text('flow.out').startswith('ready'), 60)

    def serve_echo(self):
        """Starts an echo server in the guest, and waits until it listens."""
        self.do(f'(setsid python3 {HERE}/echo.py serve >/run/share/echo.out 2>&1 &); '
                'until grep -q ready /run/share/echo.out; do sleep 0.1; done')

    def flow_stop(self):
        """Ends the sending; packets that are on their way still count."""
        self.do('touch /tmp/end')

    def flow_end(self):
        text = until('the guest has counted', lambda: '}' in self.share_text('flow.out') and self.share_text('flow.out'), 60)
        return json.loads(text.splitlines()[-1])

    def share_text(self, name):
        try:
            with open(os.path.join(self.share, name), errors='replace') as f:
                return f.read()
        except FileNotFoundError:
            return ''

    def states(self):
        """(SPI, encapsulated, replay window) of each SA in the guest's kernel."""
        out = self.do('ip xfrm state')
        # With extended sequence numbers the window is in a block of its own, and written with an underscore.
        return [(m[1], 'encap type espinudp' in block, max(map(int, re.findall(r'replay[-_]window (\d+)', block))))
                for block in re.split(r'\n(?=src )', out) if (m := re.search(r'proto esp spi (0x\w+)', block))]


class StrongSwanGuest(Guest):
    """strongSwan with kernel-netlink in a guest. It cuts its IKE messages into packets of at most 576 bytes."""

    kind = 'strongSwan'

    def __init__(self, lab, text, *args, **kw):
        need('charon-systemd', 'swanctl')
        super().__init__(lab, *args, **kw)
        lab.write('guest/strongswan.conf', """
charon-systemd {
  fragment_size = 576
  load = random nonce aes gcm sha1 sha2 hmac kdf pem pkcs1 pkcs8 pubkey openssl curve25519 x509 constraints kernel-netlink socket-default vici updown
  plugins {
    vici {
      socket = unix:///run/charon.vici
    }
  }
  journal {
    default = -1
  }
  filelog {
    stderr {
      default = 1
      ike = 2
      knl = 2
      flush_line = yes
    }
  }
}
swanctl {
  load = pem pkcs1 pkcs8 x509 pubkey openssl random
}
""")
        self.start(f'{ENV} charon-systemd')
        self.do(f'for i in 1 2 3 4 5 6 7 8 9 10; do {ENV} swanctl --stats --uri unix:///run/charon.vici && break; sleep 1; done')
        self.load(text)

    def load(self, text):
        self.lab.write('guest/swanctl.conf', text)
        return self.swanctl('--load-all', '--file', '/run/share/swanctl.conf')

    def version(self):
        return call('dpkg-query', '-Wf', '${Version}', 'charon-systemd')

    def initiate(self):
        return self.swanctl('--initiate', '--child', 'net')

    def rekey(self, what):
        return self.swanctl('--rekey', f'--{what}', 'net')

    def terminate(self):
        return self.swanctl('--terminate', '--ike', 'net')

    def swanctl(self, *args, **kw):
        return self.do(f'{ENV} swanctl ' + ' '.join(shlex.quote(str(a)) for a in args) + ' --uri unix:///run/charon.vici', **kw)


def plug(lab, box, wire):
    """The guest hangs on a TAP device; a bridge carries its frames to the box's wire. The device's queue holds ten seconds of
    what the tests send: a guest is a process, and one that is held up for half a second would lose packets out of the usual 1,000."""
    lab.ip(box, 'tuntap', 'add', 'tap0', 'mode', 'tap')
    lab.ip(box, 'link', 'set', 'tap0', 'txqueuelen', QUEUE)
    lab.ip(box, 'link', 'add', 'br0', 'type', 'bridge')
    for dev in (wire, 'tap0'):
        lab.ip(box, 'link', 'set', dev, 'master', 'br0')
        lab.ip(box, 'link', 'set', dev, 'up')
    lab.ip(box, 'link', 'set', 'br0', 'up')


def line_before_guest(lab):
    """a -- g1 -- g2 (the namespace that holds the guest's TAP)."""
    lab.box('a', 'g1', 'g2')
    lab.forward('g1')
    lab.wire('a', 'eth0', ['10.1.0.2/24', 'fd00:1::2/64'], 'g1', 'lan', ['10.1.0.1/24', 'fd00:1::1/64'])
    lab.wire('g1', 'wan', ['192.0.2.1/24', '2001:db8::1/64'], 'g2', 'eth0', [])
    lab.ip('a', 'route', 'add', 'default', 'via', '10.1.0.1')
    lab.ip('a', '-6', 'route', 'add', 'default', 'via', 'fd00:1::1')
    plug(lab, 'g2', 'eth0')


def line_to_guest(lab, encap=True, settings='', **conf):
    """a -- g1 (IronSwan) -- g2 (strongSwan with a Linux kernel)."""
    line_before_guest(lab)
    guest = StrongSwanGuest(lab, tunnel('g2', encap=encap, **conf))
    text = tunnel('g1', encap=encap, **conf)
    us = IronSwan(lab, 'g1').start(text, settings) if settings else Ours(lab, 'g1').start(text)
    return us, guest


def with_guest(lab, guest, box, address, guest_address, change, rate, before=1, after=2):
    """Numbered packets both ways between a host and the guest while something changes; the report of both ways. They begin some seconds
    before the change, and end some seconds after it."""
    here = lab.spawn(box, sys.executable, f'{HERE}/numbered.py', address, guest_address, '--rate', rate, '--linger', LINGER,
                     name='numbered', stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    here.popen.stdout.readline()
    guest.flow(guest_address, address, rate)
    here.popen.stdin.write('go\n')
    here.popen.stdin.flush()
    try:
        time.sleep(before)
        change()
        time.sleep(after)
    finally:
        # Also after a failure: the next packets begin with nothing that runs.
        guest.flow_stop()
        here.popen.stdin.close()
    there = guest.flow_end()
    here = json.loads(here.popen.stdout.readline())
    return {f'guest to {box}': {**here, 'sent': there['sent'], 'lost': there['sent'] - here['received']},
            f'{box} to guest': {**there, 'sent': here['sent'], 'lost': here['sent'] - there['received']}}
