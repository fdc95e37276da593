#!/usr/bin/env python3
"""IronSwan against the ESP of a real Linux kernel (strongSwan with kernel-netlink in user-mode-linux).

usage: uml.py [--full] [NAME ...]
The guest is the gateway g2 and the host behind it in one: its inner address 10.2.0.1 is on its loopback. It keeps the
kernel's default replay window of 32 packets and counts what falls out of it in /proc/net/xfrm_stat.
INTEROP_REFERENCE=1 puts strongSwan's user-space ESP in IronSwan's place (encapsulated cases only).
"""
import json
import os
import re
import shlex
import subprocess
import sys
import time

from gateway import REFERENCE, IronSwan, Ours, tunnel
from lab import HERE, Failed, check, main, need, say, until
from traffic import ping


class Guest:
    """strongSwan in user-mode-linux, in the namespace `box`, where `plug` has made its TAP. `inside` are its inner
    addresses, and `gateway` its default routes."""

    kind = 'Linux kernel'

    def __init__(self, lab, text, box='g2', addrs='192.0.2.2/24,2001:db8::2/64', inside=('10.2.0.1/24', 'fd00:2::1/64'),
                 gateway=()):
        need('linux.uml', 'charon-systemd', 'swanctl', 'modprobe')
        self.lab, self.box, self.count = lab, box, 0
        self.share = lab.path('guest')
        os.makedirs(self.share, mode=0o700)
        lab.write('guest/strongswan.conf', """
charon-systemd {
  load = random nonce aes gcm sha1 sha2 hmac kdf openssl curve25519 kernel-netlink socket-default vici updown
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
        lab.write('guest/swanctl.conf', text)
        self.process = lab.spawn(box, os.path.join(HERE, 'uml'), 'tap0', addrs, os.path.join(HERE, 'uml-charon'),
                                 name='uml', env={'SHARE': self.share})
        self.do('; '.join([f"ip addr add {a} dev lo {'nodad' if ':' in a else ''}" for a in inside]
                          + [f'ip route add default via {g}' for g in gateway]), timeout=60)
        # A kernel loads the ciphers of its first SA while IKE waits: on a slow machine for longer than a peer tries. So it has had one.
        self.do(f"ip xfrm state add src 127.0.0.1 dst 127.0.0.2 proto esp spi 0x999 mode tunnel aead 'rfc4106(gcm(aes))' 0x{'11' * 20} "
                '128; ip xfrm state deleteall', timeout=120)
        self.do('for i in 1 2 3 4 5 6 7 8 9 10; do swanctl --stats --uri unix:///run/charon.vici && break; sleep 1; done')
        self.load(text)

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

    def load(self, text):
        self.lab.write('guest/swanctl.conf', text)
        return self.swanctl('--load-all', '--file', '/run/share/swanctl.conf')

    def swanctl(self, *args, **kw):
        return self.do('swanctl ' + ' '.join(shlex.quote(str(a)) for a in args) + ' --uri unix:///run/charon.vici', **kw)

    def log(self):
        try:
            with open(os.path.join(self.share, 'charon.log'), errors='replace') as f:
                return f.read()
        except FileNotFoundError:
            return ''

    def xfrm_errors(self):
        """The counters of /proc/net/xfrm_stat that are not zero."""
        lines = self.do('cat /proc/net/xfrm_stat').split('\n')
        return {k: int(v) for k, v in (line.split() for line in lines if line.strip()) if int(v)}

    def flow(self, local, remote, rate, size=100):
        """Begins to send and count numbered packets (numbered.py) in the guest; `flow_end` gives its report."""
        numbered = os.path.join(HERE, 'numbered.py')
        self.do('rm -f /tmp/go /tmp/end /run/share/flow.out; mkfifo /tmp/go; '
                f'(python3 {numbered} {local} {remote} --rate {rate} --size {size} </tmp/go >/run/share/flow.out 2>&1 &); '
                '(echo go; while [ ! -e /tmp/end ]; do sleep 0.1; done) >/tmp/go 2>/dev/null &')
        until('the guest sends', lambda: self.share_text('flow.out').startswith('ready'))

    def flow_end(self):
        self.do('touch /tmp/end')
        text = until('the guest has counted', lambda: '}' in self.share_text('flow.out') and self.share_text('flow.out'), 20)
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


def plug(lab, box, wire):
    """The guest hangs on a TAP device; a bridge carries its frames to the box's wire."""
    lab.ip(box, 'tuntap', 'add', 'tap0', 'mode', 'tap')
    lab.ip(box, 'link', 'add', 'br0', 'type', 'bridge')
    for dev in (wire, 'tap0'):
        lab.ip(box, 'link', 'set', dev, 'master', 'br0')
        lab.ip(box, 'link', 'set', dev, 'up')
    lab.ip(box, 'link', 'set', 'br0', 'up')


def bench(lab, encap=True, settings='', **conf):
    """a -- g1 (IronSwan) -- g2 (the namespace that holds the guest's TAP)."""
    lab.box('a', 'g1', 'g2')
    lab.forward('g1')
    lab.wire('a', 'eth0', ['10.1.0.2/24', 'fd00:1::2/64'], 'g1', 'lan', ['10.1.0.1/24', 'fd00:1::1/64'])
    lab.wire('g1', 'wan', ['192.0.2.1/24', '2001:db8::1/64'], 'g2', 'eth0', [])
    lab.ip('a', 'route', 'add', 'default', 'via', '10.1.0.1')
    lab.ip('a', '-6', 'route', 'add', 'default', 'via', 'fd00:1::1')
    plug(lab, 'g2', 'eth0')
    guest = Guest(lab, tunnel('g2', encap=encap, **conf))
    text = tunnel('g1', encap=encap, **conf)
    us = IronSwan(lab, 'g1').start(text, settings) if settings else Ours(lab, 'g1').start(text)
    return us, guest


SINK = '''
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 21)  # SO_RCVBUFFORCE: a guest that is held up gets many at once
s.bind((sys.argv[1], 7001)); s.settimeout(3)
seen = set(); last = -1; late = 0
try:
    while True:
        n = struct.unpack('!Q', s.recv(65536)[:8])[0]
        late += n < last; last = max(n, last); seen.add(n)
except TimeoutError:
    print(len(seen), late)
'''

SOURCE = '''
import socket, struct, sys, time
to, count, size, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[5], 0))
start = time.monotonic()
for n in range(count):
    while (wait := start + n / rate - time.monotonic()) > 0:
        time.sleep(wait)
    s.sendto(struct.pack('!Q', n) + bytes(size - 8), (to, 7001))
'''


def packets_to_guest(lab, us, guest, count, size, rate):
    """Numbered packets a -> guest; how many arrived and how many came late."""
    with open(os.path.join(guest.share, 'sink.py'), 'w') as f:
        f.write(SINK)
    source = lab.write('source.py', SOURCE)
    guest.do('python3 /run/share/sink.py 10.2.0.1 >/run/share/sink.out 2>&1 & '
             'until ss -Hlun | grep -q :7001; do sleep 0.1; done')
    lab.run('a', sys.executable, source, '10.2.0.1', count, size, rate, '10.1.0.2', timeout=120)
    time.sleep(4)
    arrived, late = until('the sink has counted', lambda: open(os.path.join(guest.share, 'sink.out')).read().split())
    return int(arrived), int(late)


def with_guest(lab, guest, box, address, guest_address, change, rate):
    """Numbered packets both ways between a host and the guest while something changes; the report of both ways."""
    here = lab.spawn(box, sys.executable, f'{HERE}/numbered.py', address, guest_address, '--rate', rate,
                     name='numbered', stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    here.popen.stdout.readline()
    guest.flow(guest_address, address, rate)
    here.popen.stdin.write('go\n')
    here.popen.stdin.flush()
    time.sleep(1)
    change()
    time.sleep(2)
    here.popen.stdin.close()
    there = guest.flow_end()
    here = json.loads(here.popen.stdout.readline())
    return {f'guest to {box}': {**here, 'sent': there['sent'], 'lost': there['sent'] - here['received']},
            f'{box} to guest': {**there, 'sent': here['sent'], 'lost': here['sent'] - there['received']}}


def exchange(lab, us, guest, encap, full):
    """Traffic both ways, small and full-size, and the kernel's opinion of it."""
    states = guest.states()
    check(len(states) == 2 and all(e == encap for _, e, _ in states),
          f"the guest's kernel has two SAs, {'UDP-encapsulated' if encap else 'raw ESP'}: {states}")
    check(any(window == 32 for *_, window in states), 'its replay window is 32 packets')
    for size in (8, 56, 1200, 1352):
        out = ping(lab, to='10.2.0.1', size=size, count=5)
        check(' 0% packet loss' in out, f'a to guest and back, {size} bytes of ICMP payload')
    # 1,400 and more do not fit the path's 1,500 once sealed: IPv4 fragments inside, all the same.
    out = ping(lab, to='10.2.0.1', size=4000, count=3)
    check(' 0% packet loss' in out, 'a to guest and back, 4,000 bytes, fragmented')
    out = guest.do('ping -n -q -c 5 -i 0.2 -W 2 -I 10.2.0.1 10.1.0.2')
    check(' 0% packet loss' in out, 'guest to a and back, started there')
    count, rate = (20000, 2000) if full else (3000, 1000)
    arrived, late = packets_to_guest(lab, us, guest, count, 1200, rate)
    check(arrived >= count * 0.999 and late == 0, f'{count} numbered packets at {rate}/s: {arrived} arrived, {late} late')
    # A burst as a TCP sender makes it: many more packets at once than the window is wide. If the engine sent an SA's
    # packets out of sequence order, the kernel would drop what falls behind its window.
    lab.spawn('a', sys.executable, '-c', TCP_SINK, name='tcp-sink')
    until('the TCP sink listens', lambda: '7002' in lab.run('a', 'ss', '-Hltn'))
    size = 20_000_000 if full else 4_000_000
    guest.do(f'head -c {size} /dev/zero | python3 -c {shlex.quote(TCP_SOURCE)} 10.1.0.2', timeout=120)
    guest.do("python3 -c " + shlex.quote(TCP_SINK) + " >/run/share/tcp.out 2>&1 & "
             "until ss -Hltn | grep -q :7002; do sleep 0.1; done")
    lab.run('a', 'sh', '-c', f'head -c {size} /dev/zero | {sys.executable} -c {shlex.quote(TCP_SOURCE)} 10.2.0.1',
            timeout=120)
    got = until('the guest has all', lambda: open(os.path.join(guest.share, 'tcp.out')).read().strip(), 20)
    check(int(got) == size, f'TCP both ways, {size} bytes each')
    errors = guest.xfrm_errors()
    check(errors.get('XfrmInStateSeqError', 0) == 0, 'XfrmInStateSeqError is 0')
    check(not {k: v for k, v in errors.items() if k.startswith('XfrmIn') and k != 'XfrmInNoPols'},
          f'no other error counter of the receiving side moved: {errors or "all zero"}')


TCP_SINK = '''
import socket
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(("", 7002)); l.listen()
c, _ = l.accept(); n = 0
while (d := c.recv(1 << 16)): n += len(d)
print(n)
'''

TCP_SOURCE = '''
import socket, sys
s = socket.create_connection((sys.argv[1], 7002), 10)
while (d := sys.stdin.buffer.read(1 << 16)): s.sendall(d)
s.shutdown(socket.SHUT_WR); s.recv(1)
'''


def encapsulated(lab, full):
    """ESP in UDP, initiated by IronSwan; then rekeyed from both ends, and initiated by the guest."""
    us, guest = bench(lab, encap=True)
    us.initiate()
    exchange(lab, us, guest, True, full)
    us.rekey('child')
    guest.swanctl('--rekey', '--child', 'net')
    time.sleep(1)
    check(' 0% packet loss' in ping(lab, to='10.2.0.1', count=5), 'after rekeying from both ends')
    us.swanctl('--terminate', '--ike', 'net')
    until('we are empty', lambda: not us.sas())
    until('the guest is empty', lambda: not guest.states())
    guest.swanctl('--initiate', '--child', 'net')
    check(' 0% packet loss' in ping(lab, to='10.2.0.1', count=5), 'initiated by the guest')


def raw(lab, full):
    """ESP straight on IP."""
    us, guest = bench(lab, encap=False)
    us.initiate()
    exchange(lab, us, guest, False, full)


def suites(lab, full):
    """The kernel agrees with our ESP for every algorithm, with and without extended sequence numbers, IPv6 too."""
    us, guest = bench(lab, encap=False)
    for esp in ('aes256gcm16', 'aes128-sha256', 'aes256-sha512', 'chacha20poly1305', 'aes128gcm16-esn', 'aes128-sha256-esn'):
        for conf in ({}, {'v6_outer': True, 'v6_inner': True}):
            us.load(tunnel('g1', esp=esp, encap=False, **conf))
            guest.load(tunnel('g2', esp=esp, encap=False, **conf))
            us.initiate()
            to = 'fd00:2::1' if conf else '10.2.0.1'
            for size in (8, 1200):
                check(' 0% packet loss' in ping(lab, to=to, size=size), f"{esp} {' '.join(conf)} {size} bytes")
            us.swanctl('--terminate', '--ike', 'net')
            until('the guest is empty', lambda: not guest.states())
    errors = guest.xfrm_errors()
    check(not {k: v for k, v in errors.items() if k.startswith('XfrmIn') and k != 'XfrmInNoPols'},
          f'no error counter of the receiving side moved: {errors or "all zero"}')


if __name__ == '__main__':
    TESTS = (encapsulated,) if REFERENCE else (encapsulated, raw, suites)
    main({f.__name__: f for f in TESTS}, 'uml')
