#!/usr/bin/env python3
"""What the daemon waits for hangs: whoever reads its log, its configuration files, the resolver. strongSwan is the honest peer that
must not notice.

usage: testkit/interop/run [--full] hanging[.TEST]      --full: floods of 60 s instead of 5
"""
import ctypes
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time

from gateway import OTHER, Charon, IronSwan, program, tunnel
from lab import HERE, Failed, check, main, need, until
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

    def read(self, seconds, last=None):
        """The text that comes within this time, or until `last` has come."""
        text, end = b'', time.monotonic() + seconds
        while time.monotonic() < end and not (last and last in text):
            try:
                text += os.read(self.fd, 65536)
            except BlockingIOError:
                time.sleep(0.002)
        return text.decode()

    def close(self):
        os.close(self.fd)


def unread_log_holds_nobody_up(lab, full):
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
    text = pipe.read(20, b' lines were lost here')
    lost = [int(n) for n in re.findall(r'(\d+) lines were lost', text)]
    came = text.count(name)
    check(lost and came + sum(lost) >= count and came < count,
          f'when it is read again: {len(text)} bytes; {came} of {count} long lines came, and "{sum(lost)} lines were lost" is said')
    with us.vici() as v:
        v.request('reload-settings')
    check('configuration reloaded' in pipe.read(20, b'configuration reloaded'), 'the log goes on')
    pipe.close()
    serves(us, them, 'the pipe is closed', rounds=1)
    check_no_loss(load.end())
    ends(us, 'the pipe is closed')


def unread_log_does_not_keep_the_daemon_from_ending(lab, full):
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


def no_descriptors_for_clients_is_said(lab, full):
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


class SilentResolver:
    """A resolv.conf for a box whose name server takes every question and answers none, and what it was asked."""

    def __init__(self, lab, box):
        self.folder = f'/etc/netns/{lab.ns(box)}'
        os.makedirs(self.folder, exist_ok=True)
        with open(f'{self.folder}/resolv.conf', 'w') as f:
            # Longer than any test: a thread that asks hangs until the process ends.
            f.write('nameserver 127.0.0.1\noptions timeout:30 attempts:5\n')
        with open(f'{self.folder}/nsswitch.conf', 'w') as f:
            f.write('hosts: dns\n')
        self.server = lab.spawn(box, sys.executable, '-uc', """
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(('127.0.0.1', 53))
print('ready', flush=True)
while True:
    print(sock.recvfrom(4096)[0][12:40], flush=True)
""", name='silent-resolver')
        until('the name server is there', lambda: 'ready' in self.server.log())

    def questions(self):
        return self.server.log().count('\n') - 1

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            os.rmdir('/etc/netns')
        except OSError:
            pass


def silent(n):
    """A connection to a name that nobody resolves, to be started at once."""
    return f"""
  s{n} {{
    version = 2
    local_addrs = 192.0.2.1
    remote_addrs = s{n}.silent.test
    keyingtries = 0
    local {{
      auth = psk
      id = g1.example
    }}
    remote {{
      auth = psk
      id = s{n}.example
    }}
    children {{
      s{n} {{
        local_ts = 10.1.0.0/24
        remote_ts = 10.{100 + n}.0.0/24
        start_action = start
      }}
    }}
  }}"""


def other(box):
    """A second connection between the two, with identities and networks of its own."""
    far = {'g1': {'local_ts': '10.8.0.0/24'}, 'g2': {'remote_ts': '10.8.0.0/24'}}[box]
    ids = {'my_id': f'{box}-other.example', 'remote_id': f'{OTHER[box]}-other.example'}
    return tunnel(box, **ids, **far).split('connections {', 1)[1].split('\n}\nsecrets', 1)[0].replace('net {', 'other {')


def with_silent_names(lab, count=8):
    """The line with IronSwan in g1, whose configuration has names of a silent resolver besides strongSwan's literal address."""
    need('ip', 'swanctl', 'charon-systemd', 'nft', 'ping')
    lab.line()
    resolver = SilentResolver(lab, 'g1')

    def conf(box, more=''):
        return tunnel(box).replace('connections {', 'connections {' + other(box) + more, 1)

    them = Charon(lab, 'g2').start(conf('g2'))
    us = IronSwan(lab, 'g1').start(conf('g1', ''.join(map(silent, range(count)))))
    until('the resolver is asked', lambda: resolver.questions() >= 2)
    return resolver, us, them


def up_and_down(us, until_then=None, times=3):
    """Seconds that `initiate` of the other connection took, each time from nothing: so many times, or until then."""
    took = []
    while len(took) < times or until_then and time.monotonic() < until_then:
        began = time.monotonic()
        with us.vici(60) as v:
            v.request('initiate', {'child': 'other', 'ike': 'other', 'timeout': '30000'})
            took.append(time.monotonic() - began)
            v.request('terminate', {'ike': 'other', 'timeout': '10000'})
        time.sleep(0.2)
    return took


def memory(us):
    """Bytes of memory that the daemon has."""
    with open(f'/proc/{us.process.pid}/statm') as f:
        return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def repaired(lab):
    """Seconds until the guard's table is back after somebody flushed all of nftables."""
    lab.run('g1', 'nft', 'flush', 'ruleset')
    began = time.monotonic()
    until('the guard is back', lambda: lab.run('g1', 'nft', 'list', 'table', 'inet', 'ironswan', fail=False).returncode == 0,
          30, 0.01)
    return time.monotonic() - began


def silent_resolver_holds_nobody_up(lab, full):
    """Eight peers have names and the resolver is silent: a tunnel to a literal address is up at once, the guard is repaired, what
    fails says why, and the end does not wait for the resolver."""
    names, us, them = with_silent_names(lab)
    try:
        took = up_and_down(us)
        check(max(took) < SOON, f'up beside eight silent names: {", ".join(f"{t:.2f}" for t in took)} s')
        took = repaired(lab)
        check(took < SOON, f'the guard stood again {took:.2f} s after nft flush ruleset')
        us.initiate()
        serves(us, them, 'eight names hang', rounds=1)
        until('it is said that the resolver does not answer',
              lambda: us.log().count('no answer from the resolver within 10 s') >= 8, 30)
        check(True, 'each name: no answer from the resolver within 10 s')
        ends(us, 'threads hang in the resolver')
    finally:
        names.close()


def strangers_beside_names_nobody_resolves(lab, full):
    """Strangers' IKE_SA_INITs beside names that nobody resolves: no packet of a tunnel is lost, no name is asked for because of them,
    another tunnel comes up, the log stays small."""
    names, us, them = with_silent_names(lab)
    try:
        us.initiate()
        ping(lab)
        # The first look-ups have ended without an answer.
        until('the names cannot be resolved', lambda: us.log().count('no answer from the resolver') >= 8, 30)
        seconds, rate = 60 if full else 5, 2000
        load = Numbered(lab)
        before, rss, log_size = names.questions(), memory(us), len(us.log())
        flood = lab.spawn('g2', sys.executable, os.path.join(HERE, 'flood.py'), '192.0.2.1', '10.200', rate * seconds, rate,
                          name='flood')
        took = up_and_down(us, time.monotonic() + seconds - 1)
        flood.popen.wait(seconds + 60)
        sent = json.loads(flood.log())
        rate_was = sent['sent'] / sent['seconds']
        check(rate_was > rate / 4, f"strangers sent {sent['sent']} IKE_SA_INITs in {sent['seconds']} s ({rate_was:.0f}/s)")
        check_no_loss(load.end())
        asked = names.questions() - before
        # Each of 8 names is asked for again after 5, 10, 20 s, and for its attempts; each question is one of A and one of AAAA.
        limit = 2 * 8 * (2 + seconds // 5)
        check(asked <= limit, f'the resolver was asked {asked} times meanwhile (by schedule at most {limit})')
        check(statistics.median(took) < SOON,
              f'the other tunnel was up {len(took)} times meanwhile, median {statistics.median(took):.2f} s, max {max(took):.2f} s')
        grown = memory(us) - rss
        check(grown < 32 << 20, f'memory grew by {grown / 1e6:.1f} MB')
        log_size = len(us.log()) - log_size
        check(log_size < 1_000_000, f'the log grew by {log_size} bytes')
        serves(us, them, 'after the flood', rounds=1)
        ends(us, 'after the flood')
    finally:
        names.close()


class SilentFiles:
    """A FUSE file system whose server never answers, not even the kernel's first word: whoever asks it anything sleeps in the kernel
    until he is killed, or until `close()`. To be mounted before the programs that shall see it are started."""

    def __init__(self, lab, name):
        self.path = lab.path(name)
        os.mkdir(self.path)
        try:
            self.fd = os.open('/dev/fuse', os.O_RDWR)
        except OSError as why:
            raise Failed(f'needs /dev/fuse: {why}; modprobe fuse') from None
        libc = ctypes.CDLL(None, use_errno=True)
        options = f'fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other'
        if libc.mount(b'silent', self.path.encode(), b'fuse', 0, options.encode()):
            raise Failed(f'cannot mount a FUSE file system: {os.strerror(ctypes.get_errno())}')

    def close(self):
        """Ends it: whoever asks it anything is answered with an error."""
        if self.fd is not None:
            os.close(self.fd)
            subprocess.run(['umount', '-l', self.path], check=False)
            self.fd = None


def including(box, path):
    return f'include {path}\n' + tunnel(box)


def with_key(box, path):
    """A configuration whose peer has its public key in such a file."""
    return tunnel(box, remote_auth=f'pubkeys = {path}')


def ends_with(status, argv, what):
    """A program that must end by itself; what it said, and after how long."""
    began = time.monotonic()
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    took = time.monotonic() - began
    check(done.returncode == status and took < 5 * SOON,
          f'{what}: exit status {done.returncode} after {took:.2f} s: {done.stdout.strip().splitlines()[0]}')
    return done.stdout


def refused(lab, paths, why, statuses, naming=including):
    """`check` and a start, with these exit statuses, refuse a configuration that names such a path, and name it."""
    for command, status, path in zip(('check', 'run'), statuses, paths):
        folder = os.path.dirname(lab.write(f'{command}-etc/swanctl.conf', naming('g1', path)))
        argv = {'check': [program(), 'check', folder],
                'run': lab.argv('g1', [program(), 'run', '--config', folder, '--vici', f'unix://{folder}/vici'])}
        said = ends_with(status, argv[command], f'{command} of it')
        check(path in said and why in said, f'it names {os.path.basename(path)} and says "{why}"')


def pipes_and_devices_as_files_are_refused(lab, full):
    """A named pipe, a device and a folder among the included files and files of keys: an error at once, and nothing changes."""
    us, them = pair(lab)
    for naming, name in ((including, 'g1-etc/conf.d/pipe.conf'), (with_key, 'g1-etc/pubkey/pipe.pem')):
        pipe = lab.path(name)
        os.makedirs(os.path.dirname(pipe))
        os.mkfifo(pipe, 0o600)
        os.chmod(pipe, 0o600)
        for path in (pipe, '/dev/zero', us.config):
            lab.write('g1-etc/swanctl.conf', naming('g1', path))
            mark = len(us.log())
            us.process.send(signal.SIGHUP)
            until('the reload is refused', lambda: 'not reloaded' in us.log()[mark:], SOON)
            check(f'cannot read {path}: not a regular file' in us.log()[mark:], f'{path}: not a regular file')
        refused(lab, (pipe, pipe), 'not a regular file', (1, 2), naming)
        os.remove(pipe)
    lab.write('g1-etc/swanctl.conf', tunnel('g1'))
    with us.vici() as v:
        v.request('reload-settings')
    serves(us, them, 'without it', rounds=1)


def files_that_hang_hold_nobody_up(lab, full):
    """A file system that never answers: both sides rekey and commands are answered while a reload hangs; it is given up and named,
    others are refused, and neither a start nor an end waits for it."""
    # All are mounted before the daemon starts: mounts made later need not be visible in its namespace.
    silent_ones = [SilentFiles(lab, f'silent-{n}') for n in range(6)]
    first, second, *others = silent_ones
    try:
        us, them = pair(lab)
        load = Numbered(lab)
        path = f'{first.path}/secret.conf'
        lab.write('g1-etc/swanctl.conf', including('g1', path))
        began = time.monotonic()
        us.process.send(signal.SIGHUP)
        serves(us, them, 'a reload hangs', rounds=1)
        hung = f'{path}: the file system has not answered'
        until('the reload is given up', lambda: hung in us.log(), 5 * SOON)
        check(True, f'the reload was given up {time.monotonic() - began:.1f} s after it began, and {os.path.basename(path)} is named')
        began = time.monotonic()
        try:
            with us.vici() as v:
                v.request('reload-settings')
            answer = 'success'
        except ViciError as why:
            answer = str(why)
        took = time.monotonic() - began
        check(path in answer and 'not reloaded' in answer and took < SOON, f'another reload after {took:.2f} s: {answer}')
        # What may pass by itself is worth another start: systemd tries again after 1, and not after 2.
        for naming in (including, with_key):
            paths = [f'{others.pop().path}/{name}' for name in ('secret.conf', 'key.pem')]
            refused(lab, paths, 'the file system has not answered', (2, 1), naming)
        serves(us, them, 'the thread still hangs', rounds=1)
        first.close()
        lab.write('g1-etc/swanctl.conf', tunnel('g1'))

        def reloads():
            try:
                with us.vici() as v:
                    return v.request('reload-settings')
            except ViciError:
                return None

        until('a reload works again once the file system is gone', reloads, 5)
        lab.write('g1-etc/swanctl.conf', including('g1', f'{second.path}/*.conf'))
        us.process.send(signal.SIGHUP)
        time.sleep(1)
        check_no_loss(load.end())
        ends(us, 'a reload hangs')
    finally:
        for files in silent_ones:
            files.close()


TESTS = {f.__name__: f for f in (
    unread_log_holds_nobody_up, unread_log_does_not_keep_the_daemon_from_ending, no_descriptors_for_clients_is_said,
    silent_resolver_holds_nobody_up, strangers_beside_names_nobody_resolves, pipes_and_devices_as_files_are_refused,
    files_that_hang_hold_nobody_up)}
if __name__ == '__main__':
    main(TESTS, 'hanging')
