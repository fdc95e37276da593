#!/usr/bin/env python3
"""What the daemon waits for hangs: whoever reads its log, its configuration files, the resolver. strongSwan is the honest peer that
must not notice.

usage: hanging.py [--full] [NAME ...]      --full: floods of 60 s instead of 5
"""
import fcntl
import os
import re
import resource
import signal
import time

from gateway import Charon, IronSwan, tunnel
from lab import Failed, check, main, need, say, until
from traffic import Numbered, check_no_loss, ping
from vici import Vici, ViciError

# A command must be answered, and a daemon must end, within so many seconds; the goodbye to peers alone may take 2.
SOON = 5


def pair(lab, **kw):
    """The line: IronSwan in g1, strongSwan in g2, the tunnel up."""
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    us = IronSwan(lab, 'g1').start(tunnel('g1'), **kw)
    them = Charon(lab, 'g2').start(tunnel('g2'))
    us.initiate()
    ping(lab)
    return us, them


def serves(us, them, what, rounds=2):
    """The peer rekeys, we do, and commands are answered at once."""
    for _ in range(rounds):
        for kind in ('child', 'ike'):
            them.rekey(kind)
    us.rekey('child')
    began = time.monotonic()
    listed = us.swanctl('--list-sas')
    took = time.monotonic() - began
    check('ESTABLISHED' in listed and took < SOON, f'{what}: both sides rekey, swanctl --list-sas took {took:.2f} s')


def ends(us, what):
    """SIGTERM ends it with status 0, in time."""
    began = time.monotonic()
    us.process.send(signal.SIGTERM)
    status = us.process.popen.wait(20)
    took = time.monotonic() - began
    check(status == 0 and took < SOON, f'{what}: SIGTERM ended it after {took:.2f} s with status {status}')


class StuckReader:
    """A pipe for standard error. Nobody reads it until `read()` is called, and it can be filled."""

    def __init__(self, lab):
        self.path = lab.path('standard-error')
        os.mkfifo(self.path, 0o600)
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self.fd, 1031, 4096)    # F_SETPIPE_SZ
        self.through = ('sh', '-c', 'err=$1; shift; exec "$@" 2>"$err"', 'sh', self.path)

    def fill(self):
        try:
            while True:
                os.write(self.fd, b'#\n')
        except BlockingIOError:
            return

    def read(self, seconds):
        """What comes within this time."""
        text, end = b'', time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                text += os.read(self.fd, 65536)
            except BlockingIOError:
                time.sleep(0.002)
        return text.decode()

    def close(self):
        os.close(self.fd)


def log(lab, full):
    """Nobody reads the log: a full pipe, later a closed one. Rekeyings and commands go on, what is lost is said, and it ends."""
    pipe = StuckReader(lab)
    # The daemon's end is blocking: it opened the pipe itself.
    us, them = pair(lab, through=pipe.through, settings='log {\n  level = debug\n}\n')
    load = Numbered(lab)
    pipe.fill()
    serves(us, them, 'a full pipe on standard error')
    # More than the queue holds.
    count, name = 500, 'x' * 4000
    with us.vici() as v:
        for _ in range(count):
            try:
                v.request('terminate', {'child': name})
            except ViciError:
                pass
    serves(us, them, 'and the queue is full', rounds=1)
    text = pipe.read(1)
    lost = [int(n) for n in re.findall(r'(\d+) lines were lost', text)]
    came = text.count(name)
    check(lost and came + sum(lost) >= count and came < count,
          f'when it is read again: {len(text)} bytes; {came} of {count} long lines came, and "{sum(lost)} lines were lost" is said')
    with us.vici() as v:
        v.request('reload-settings')
    check('configuration reloaded' in pipe.read(1), 'the log goes on')
    pipe.close()
    serves(us, them, 'the pipe is closed', rounds=1)
    check_no_loss(load.end())
    ends(us, 'the pipe is closed')


def log_at_the_end(lab, full):
    """A full pipe does not keep the daemon from ending, nor from refusing to start."""
    pipe = StuckReader(lab)
    us, _ = pair(lab, through=pipe.through)
    pipe.fill()
    ends(us, 'a full pipe')
    lab.write('g1-etc/swanctl.conf', 'connections {')
    us.start('connections {', through=pipe.through, wait=False)
    began = time.monotonic()
    status = us.process.popen.wait(20)
    took = time.monotonic() - began
    check(status == 2 and took < SOON, f'an error in the configuration and a full pipe: status {status} after {took:.2f} s')
    pipe.close()


def descriptors(lab, full):
    """No descriptors are left for VICI clients: few lines say so, the peer rekeys, and clients are served once there are some."""
    us, them = pair(lab)
    pid = us.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir(f'/proc/{pid}/fd'))) + 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, limits[1]))

    def worked():
        with open(f'/proc/{pid}/stat') as f:
            return sum(map(int, f.read().rsplit(') ', 1)[1].split()[11:13])) / os.sysconf('SC_CLK_TCK')

    clients = []
    for _ in range(20):
        clients.append(Vici(us.socket, 10))
    before, began = worked(), time.monotonic()
    time.sleep(5)
    busy = (worked() - before) / (time.monotonic() - began)
    lines = us.log().count('cannot accept a VICI client')
    check(0 < lines <= 4, f'{lines} lines in 5 s say that a VICI client cannot be accepted')
    check(busy < 0.25, f'the daemon used {busy:.1%} of a processor meanwhile')
    child = them.child_spis()
    them.swanctl('--rekey', '--child', 'net')
    until('the peer rekeys its child', lambda: len(now := them.child_spis()) == 1 and not now & child, 20)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    for client in clients:
        client.request('version')
        client.close()
    serves(us, them, 'there are descriptors again', rounds=1)
    ping(lab)
    ends(us, 'at the end')


TESTS = {f.__name__.replace('_', '-'): f for f in (log, log_at_the_end, descriptors)}
if __name__ == '__main__':
    main(TESTS, 'hanging')
