#!/usr/bin/env python3
"""The processes of a gateway: the helper keeps privileges for the daemon, opens the configuration's files and no others; the fetcher
asks the resolver and has no privilege; each process ends with the others. The guard stands whatever ends.
"""
import array
import os
import pwd
import signal
import socket
import struct
import subprocess

from gateway import IronSwan, program, tunnel
from lab import check, main, need, until
from traffic import ping

FIND_NFT = b'\x06'


def children(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as f:
        return [int(p) for p in f.read().split()]


def command(pid):
    with open(f'/proc/{pid}/cmdline', 'rb') as f:
        return f.read().split(b'\0')


def process_of(gateway, name):
    """The one child of the daemon that is its helper, or its fetcher."""
    found = [p for p in children(gateway.process.pid) if command(p)[1] == name.encode()]
    check(len(found) == 1, f'the daemon {gateway.process.pid} has one {name}: {found}')
    return found[0]


def lives(pid):
    try:
        with open(f'/proc/{pid}/stat') as f:
            return f.read().rsplit(') ', 1)[1][0] not in 'ZX'
    except OSError:
        return False


def stands(lab):
    return 'table inet ironswan' in lab.run('g1', 'nft', 'list', 'tables')


def pair(lab):
    need('ip', 'nft', 'ping')
    lab.line()
    g1, g2 = (IronSwan(lab, box).start(tunnel(box)) for box in ('g1', 'g2'))
    g1.initiate()
    ping(lab)
    return g1, g2


def killed_helper_ends_the_daemon(lab, full):
    """SIGKILL for the helper: all end, the daemon with an error that names the helper, and the guard stands."""
    ends_with(lab, 'helper', 'fetcher')


def killed_fetcher_ends_the_daemon(lab, full):
    """SIGKILL for the fetcher: likewise."""
    ends_with(lab, 'fetcher', 'helper')


def ends_with(lab, killed, other):
    g1, _ = pair(lab)
    pid, other_pid = process_of(g1, killed), process_of(g1, other)
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, ending)
    ping(lab)
    check(lives(pid), f'signals that end or reload a daemon leave the {killed} alone')
    os.kill(pid, signal.SIGKILL)
    status = g1.process.popen.wait(10)
    check(status == 1, f'the daemon ends with status {status}')
    line = next((line for line in g1.log().splitlines() if 'ironswan run: error:' in line), '')
    check(f'the {killed} process {pid} has ended (signal: 9' in line, f'its last words: {line}')
    until(f'the {other} ends', lambda: not lives(other_pid), 5)
    check(stands(lab), 'the guard stands')
    check(lab.run('a', 'ping', '-c', '2', '-W', '1', '10.2.0.2', fail=False).returncode != 0, 'and nothing passes')
    g1.start(tunnel('g1'))
    g1.initiate()
    ping(lab)
    check(True, 'the next start takes it over, and the tunnel carries')


def killed_daemon_ends_the_others(lab, full):
    """SIGKILL for the daemon: helper and fetcher end, the guard stands, the next start takes over."""
    g1, _ = pair(lab)
    pids = [process_of(g1, name) for name in ('helper', 'fetcher')]
    g1.process.send(signal.SIGKILL)
    g1.process.popen.wait(10)
    until('both end', lambda: not any(map(lives, pids)), 5)
    check(stands(lab), 'the guard stands')
    g1.start(tunnel('g1'))
    g1.initiate()
    ping(lab)
    pids = [process_of(g1, name) for name in ('helper', 'fetcher')]
    g1.process.send(signal.SIGTERM)
    check(g1.process.popen.wait(10) == 0, 'SIGTERM ends the next daemon with status 0')
    until('both end', lambda: not any(map(lives, pids)), 5)


NET_ADMIN_AND_RAW = 1 << 12 | 1 << 13


def statuses(pid):
    """/proc/PID/task/*/status: of every thread, since user and capabilities are a thread's own."""
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/status') as f:
            yield dict(line.rstrip('\n').split(':\t', 1) for line in f if ':\t' in line)


def daemon_has_two_capabilities_and_its_user(lab, full):
    """Every thread of the daemon is its user's, with CAP_NET_ADMIN and CAP_NET_RAW, before and after a reload, with nothing to dump."""
    need('ip', 'nft', 'ping')
    lab.line()
    IronSwan(lab, 'g2').start(tunnel('g2'))
    g1 = IronSwan(lab, 'g1')
    for user in ('nobody', 'root'):
        g1.start(tunnel('g1'), settings=f'user = {user}\n')
        g1.initiate()
        ping(lab)
        g1.process.send(signal.SIGHUP)
        until('the configuration is read again', lambda: 'configuration reloaded' in g1.log(), 5)
        ids = pwd.getpwnam(user)
        pid, threads = g1.process.pid, 0
        for status in statuses(pid):
            threads += 1
            have = [int(status[key], 16) for key in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')]
            check(have == [0, NET_ADMIN_AND_RAW, NET_ADMIN_AND_RAW, NET_ADMIN_AND_RAW, 0], f"{user}, {status['Name']}: capabilities {have}")
            check(status['Uid'].split() == [str(ids.pw_uid)] * 4 and status['Gid'].split() == [str(ids.pw_gid)] * 4
                  and (user == 'root' or not status['Groups'].strip()), f"{status['Uid']} {status['Gid']} {status['Groups']}")
            check((status['NoNewPrivs'], status['Seccomp'], status['Seccomp_filters']) == ('1', '2', '2'), 'no new privileges, and the sandbox')
        check(threads > 3, f'{user}: {threads} threads')
        with open(f'/proc/{pid}/limits') as f:
            limits = next(line.split()[4:6] for line in f if line.startswith('Max core file size'))
        check(limits == ['0', '0'], f'no core is dumped: {limits}')
        look = subprocess.run(['setpriv', '--reuid', user, '--regid', str(ids.pw_gid), '--clear-groups', '--bounding-set', '-all',
                               '--inh-caps', '-all', 'cat', f'/proc/{pid}/environ'], capture_output=True, text=True)
        check(look.returncode != 0 and 'Permission denied' in look.stderr, 'another process of that user cannot look into it')
        check(os.stat(g1.socket).st_uid == 0, "the control socket is root's")
        g1.process.stop()
        check(not os.path.exists(g1.socket), 'and is removed at the end')
    g1.start(tunnel('g1'), settings='user = nobody\nsandbox = no\n')
    g1.initiate()
    ping(lab)
    check({(s['Seccomp'], s['NoNewPrivs'], int(s['CapBnd'], 16)) for s in statuses(g1.process.pid)} == {('0', '1', NET_ADMIN_AND_RAW)}
          and 'the daemon may make any system call: sandbox = no' in g1.log(), 'sandbox = no: any system call, with the same capabilities')
    g1.process.stop()
    g1.start(tunnel('g1'), settings='user = nobody-there\n', wait=False)
    check(g1.process.popen.wait(10) == 2 and 'useradd --system' in g1.log(), 'a user that is not there is refused, with the remedy')


def fetcher_has_no_privilege(lab, full):
    """Every thread of the fetcher is the daemon's user, or nobody where that is root, with no capability, no descriptor and the sandbox."""
    need('ip', 'nft')
    lab.line()
    g1 = IronSwan(lab, 'g1')
    for user, sandbox in (('nobody', 'yes'), ('root', 'yes'), ('nobody', 'no')):
        g1.start(tunnel('g1'), settings=f'user = {user}\nsandbox = {sandbox}\n')
        pid = process_of(g1, 'fetcher')
        nobody = str(pwd.getpwnam('nobody').pw_uid)
        until('it has given up its privileges', lambda: all(status['NoNewPrivs'] == '1' for status in statuses(pid)), 5)
        for status in statuses(pid):
            have = [int(status[key], 16) for key in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')]
            check(have == [0] * 5 and status['Uid'].split() == [nobody] * 4 and not status['Groups'].strip(),
                  f"{user}: user {status['Uid'].split()}, capabilities {have}")
            until('its sandbox is as written', lambda: {s['Seccomp'] for s in statuses(pid)} == {'2' if sandbox == 'yes' else '0'}, 5)
        open_files = {fd: os.readlink(f'/proc/{pid}/fd/{fd}').split(':')[0] for fd in os.listdir(f'/proc/{pid}/fd')}
        sockets = [fd for fd, name in open_files.items() if name == 'socket']
        check(len(open_files) <= 4 and len(sockets) <= 2, f'no file of the daemon is open in it: {open_files}')
        g1.process.stop()


class Helper:
    """A helper without a daemon, as somebody sees it who has taken the daemon over."""

    def __init__(self, lab, config):
        self.errors = lab.path('helper-errors')
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with open(self.errors, 'wb') as errors:
            self.process = subprocess.Popen([program(), 'helper', '--config', config], stdin=theirs, stderr=errors)
        theirs.close()

    def ask(self, request, fds=()):
        """The reply and its descriptors."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self.socket, [request], [theirs.fileno(), *fds])
        theirs.close()
        ours.settimeout(10)
        reply, got, _, _ = socket.recv_fds(ours, 8192, 4)
        ours.close()
        return reply, got

    def open(self, path):
        reply, fds = self.ask(b'\x01' + struct.pack('>H', len(path)) + path.encode())
        if reply[0] != 1:
            return None
        with os.fdopen(fds[0]) as f:
            return f.read()

    def log(self):
        with open(self.errors) as f:
            return f.read()


def helper_opens_no_other_files(lab, full):
    """A daemon that was taken over gets no file but those of the configuration; each refusal is logged, and their number is bounded."""
    config = os.path.dirname(lab.write('etc/swanctl.conf', f'include {lab.path("shared.conf")}\n'))
    outside = lab.write('outside/secret.conf', 'secret')
    os.symlink(outside, os.path.join(config, 'linked.conf'))
    helper = Helper(lab, config)
    shared = lab.write('shared.conf', 'shared')
    check(helper.open(shared) is None, 'no file has named the other one yet')
    check(helper.open(f'{config}/swanctl.conf') == f'include {shared}\n', 'a file of the folder is opened')
    check(helper.open(shared) == 'shared', 'and one that it names')
    check(helper.open(f'{config}/linked.conf') == 'secret', "a link in the folder is the administrator's own")
    for path in ('/etc/shadow', outside, f'{config}/../outside/secret.conf', '/proc/self/environ', '/dev/mem'):
        check(helper.open(path) is None, f'{path} is refused')
        check(f'ironswan helper: error: refused: {path}: ' in helper.log(), 'and that is logged')
    for name, request in (('nothing', b'\0'), ('an unknown number', b'\xc8'), ('a path that is cut', b'\x01\x00\x09/etc'),
                          ('bytes behind the request', FIND_NFT + b'x'), ('a run of nft that is in no list', b'\x07\xff\x05'),
                          ('a name of 300 bytes', b'\x08\x01\x2c' + b'x' * 300), ('8,192 bytes', b'\x01' * 8192)):
        reply, fds = helper.ask(request)
        check(reply[0] == 5 and not fds, f'{name}: an error')
    with open('/dev/null') as null:
        check(helper.ask(FIND_NFT, [null.fileno()])[0][0] == 5, 'a descriptor too many: an error')
    # No reply can be expected to these.
    helper.socket.send(b'\x01' * 60000)
    helper.socket.send(FIND_NFT)
    rights = array.array('i', [helper.socket.fileno()] * 60)
    helper.socket.sendmsg([FIND_NFT], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    reply, _ = helper.ask(FIND_NFT)
    check(reply[0] == 3 and reply.endswith(b'/nft'), 'it goes on answering')
    before = len(os.listdir(f'/proc/{helper.process.pid}/fd'))
    for _ in range(500):
        helper.open('/etc/shadow')
    lines = helper.log().splitlines()
    check(len(lines) <= 200 and 'more will not be logged' in helper.log(), f'500 more refusals: {len(lines)} lines in all')
    after = len(os.listdir(f'/proc/{helper.process.pid}/fd'))
    check(after <= before + 2, f'no descriptor is left behind: {before}, then {after}')
    helper.socket.close()
    check(helper.process.wait(5) == 0, 'it ends with its daemon')


main({f.__name__: f for f in (
    killed_helper_ends_the_daemon, killed_fetcher_ends_the_daemon, killed_daemon_ends_the_others,
    daemon_has_two_capabilities_and_its_user, fetcher_has_no_privilege, helper_opens_no_other_files)}, 'processes')
