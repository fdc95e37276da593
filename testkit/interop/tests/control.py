#!/usr/bin/env python3
"""Control of the running gateway: a socket that only reads, two daemons on one socket, `log`, `route` and `unroute`, lists of
certificates, and names that lie, in every output."""
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time

import certs
from gateway import Charon, IronSwan, program, tunnel
from lab import call, check, main, need, until
from traffic import ping
from vici import CMD_REQUEST, Vici, ViciError, emit

GROUP = 'daemon'
# A terminal would clear its screen, go to the start of the line, and write the rest from right to left.
EVIL = 'g2\x1b[2J\x1b[31m\r\u202eelpmaxe\u202c\x9b1m\x07'
# A second connection, whose peer does not exist, and a shunt.
BESIDE = """
  beside {
    local_addrs = 192.0.2.1
    remote_addrs = 192.0.2.77
    local { auth = psk
      id = g1.example }
    remote { auth = psk
      id = beside.example }
    children { beside { local_ts = 10.1.0.0/24
      remote_ts = 10.77.0.0/24 }
      hole { mode = pass
      local_ts = 10.1.0.0/24
      remote_ts = 10.78.0.0/24 } }
  }
}
secrets {"""
# Run as somebody else, who speaks VICI in the words of this file's helpers.
READER = """
import sys
sys.path.insert(0, '/')
from vici import Vici
with Vici(sys.argv[1], 5) as v:
    print(v.request('version')['daemon'])
"""


def beside(conf):
    return conf.replace('}\nsecrets {', BESIDE, 1)


def ask(gateway, *args, socket=None, timeout=60):
    """One of our commands: its exit status and what it printed."""
    done = gateway.lab.run(gateway.box, program(), *args, '--vici', f'unix://{socket or gateway.socket}', fail=False, timeout=timeout)
    return done.returncode, done.stdout


def refusal(vici, command, message=None):
    """The reason why a command is refused."""
    try:
        vici.request(command, message)
    except ViciError as why:
        return str(why)
    return None


def pair(lab, settings='', conn='', text=None):
    need('ip', 'swanctl', 'ping', 'setpriv')
    lab.line()
    us = IronSwan(lab, 'g1').start(text or beside(tunnel('g1', conn=conn)), settings)
    return us, IronSwan(lab, 'g2').start(tunnel('g2'))


def readonly(lab, box='g1'):
    """Path of the socket for reading, and the settings that make it."""
    path = lab.path(f'{box}-readonly.vici')
    return path, f'vici {{\n readonly = unix://{path}\n readonly_group = {GROUP}\n}}\n'


def connects(lab, path, *who):
    """True when a user with these groups may give a command at a socket."""
    source = READER.replace("'/'", repr(lab.path('reader')))
    done = subprocess.run(['setpriv', '--reuid', '65534', *who, '--', sys.executable, '-B', '-c', source, path],
                          capture_output=True, text=True, timeout=20)
    return done.stdout.strip() == 'ironswan', done.stderr


def a_group_reads_and_changes_nothing(lab, full):
    """A second socket for a group: all that only reads works there, nothing else does, and it goes with the daemon."""
    path, settings = readonly(lab)
    us, _ = pair(lab, settings)
    until('both sockets are there', lambda: os.path.exists(path))
    here = os.stat(path)
    gid = int(call('getent', 'group', GROUP).split(':')[2])
    check(stat.S_IMODE(here.st_mode) == 0o660 and here.st_gid == gid, f'the socket has mode 0660 and the group {GROUP}')
    check(stat.S_IMODE(os.stat(us.socket).st_mode) == 0o600, 'the other one has 0600')
    os.chmod(lab.dir, 0o711)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib', 'vici.py')) as f:
        lab.write('reader/vici.py', f.read(), 0o644)
    os.chmod(lab.path('reader'), 0o755)
    check(connects(lab, path, '--regid', GROUP, '--clear-groups')[0], 'a member of the group reads')
    done, why = connects(lab, path, '--regid', 'nogroup', '--clear-groups')
    check(not done and 'PermissionError' in why, 'another user does not get in')
    done, why = connects(lab, us.socket, '--regid', GROUP, '--clear-groups')
    check(not done and 'PermissionError' in why, 'nor does the group at the other socket')
    us.initiate()
    with Vici(path, 10) as v:
        check(len(v.sas()) == 1 and set(v.request('get-conns')['conns']) == {'net', 'beside'}, 'SAs and connections are listed')
        for command in ('load-conn', 'unload-conn', 'load-shared', 'unload-shared', 'get-shared', 'load-key', 'get-keys', 'load-cert',
                        'clear-creds', 'flush-certs', 'load-authority', 'initiate', 'terminate', 'rekey', 'install', 'uninstall',
                        'redirect', 'reload-settings', 'reset-counters', 'no-such-command'):
            why = refusal(v, command, {'child': 'net', 'ike': 'net', 'name': 'net'})
            check(why and 'read-only' in why, f'{command} is refused: {why}')
        raised = {'conn': 'net', 'level': 'debug', 'for': '5'}
        check('read-only' in (refusal(v, 'ironswan-log', raised) or ''), 'no level is raised there')
        check('read-only' not in (refusal(v, 'ironswan-log') or ''), 'the log is read there')
    for args in (('status',), ('list', 'sas'), ('list', 'counters'), ('list', 'certs'), ('explain', 'net')):
        status, out = ask(us, *args, socket=path)
        check(status == 0, f"ironswan {' '.join(args)} works at it: {out.splitlines()[0]}")
    status, out = ask(us, 'down', 'net', socket=path)
    check(status == 1 and 'read-only' in out, 'ironswan down does not')
    done = call('swanctl', '--list-sas', '--uri', f'unix://{path}', env={**os.environ, **us.swanctl_env()})
    check('ESTABLISHED' in done, 'swanctl --list-sas works at it')
    readers = [Vici(path, 5) for _ in range(120)]
    check(us.answers(), 'too many readers do not keep root away')
    [reader.close() for reader in readers]
    check(len(us.established()) == 1, 'the tunnel is as it was')
    us.stop()
    check(not os.path.exists(path) and not os.path.exists(us.socket), 'both sockets go with the daemon')


def greedy_readers_hold_nobody_up(lab, full):
    """Twenty readers ask for all of 2,000 tunnels as fast as they can, and listen to nothing: root is answered meanwhile."""
    path, settings = readonly(lab)
    lab.line()
    one = """
  c{n} {{ local_addrs = 192.0.2.1
    remote_addrs = 10.{a}.{b}.1
    local {{ auth = psk }}
    remote {{ auth = psk }}
    children {{ net {{ local_ts = 10.1.0.0/24
      remote_ts = 172.{c}.{b}.0/24 }} }} }}"""
    text = ''.join(one.format(n=n, a=100 + n // 250, b=n % 250, c=16 + n // 250) for n in range(2_000))
    us = IronSwan(lab, 'g1').start(f'connections {{{text}\n}}\nsecrets {{ ike-1 {{ secret = "correct horse battery staple" }} }}\n',
                                   'guard = no\n' + settings)
    body = Vici._named(CMD_REQUEST, 'ironswan-status')
    frames = 200 * (len(body).to_bytes(4, 'big') + body)

    def slowest(count=30):
        took = []
        with us.vici() as v:
            for _ in range(count):
                began = time.monotonic()
                v.request('version')
                took.append(time.monotonic() - began)
                time.sleep(0.05)
        return max(took)

    alone = slowest()
    greedy = []
    for _ in range(20):
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        s.setblocking(False)
        s.send(frames)
        greedy.append(s)
    time.sleep(0.5)
    beside = slowest()
    check(beside < 5, f'the slowest of 30 answers to root: {beside:.3f} s beside them, {alone:.3f} s without')
    for s in greedy:
        s.close()
    check(us.process.alive(), 'the daemon goes on')


def two_daemons_on_one_socket(lab, full):
    """A second daemon at the socket of a living one, at either of them, ends and says why; the first one does not notice."""
    path, settings = readonly(lab)
    us, _ = pair(lab, settings)
    us.initiate()
    spis, inodes = us.child_spis(), [os.stat(p).st_ino for p in (path, us.socket)]
    other = IronSwan(lab, 'b')
    other.socket = us.socket
    own = lab.path('own.vici')
    for what, socket, more in (('the same socket', us.socket, ''), ('the socket for reading', path, ''),
                               ('a socket for reading where the other listens', own, f'vici {{ readonly = unix://{us.socket}\n }}\n')):
        other.socket = socket
        other.start(tunnel('g2'), more or '# nothing\n', wait=False)
        status = other.process.popen.wait(20)
        said = other.log().strip().splitlines()[-1]
        check(status != 0 and (us.socket in said or path in said), f'{what}: ends with {status}: {said}')
        check([os.stat(p).st_ino for p in (path, us.socket)] == inodes, f'{what}: the first one has its socket files')
        check(us.answers() and us.child_spis() == spis, f'{what}: the first one answers')
        with Vici(path, 5) as v:
            check(v.request('version')['daemon'] == 'ironswan', f'{what}: also for those who read')
        check(not os.path.exists(own), f'{what}: no file is left')
    ping(lab)
    # Both in one configuration: refused before anything is made.
    other.socket = own
    other.start(tunnel('g2'), f'vici {{ readonly = unix://{own}\n }}\n', wait=False)
    check(other.process.popen.wait(20) != 0 and 'readonly' in other.log(), f'one socket for both: {other.log().strip().splitlines()[-1]}')
    # Of a daemon that was killed, the files are replaced.
    us.process.popen.send_signal(signal.SIGKILL)
    us.process.popen.wait(10)
    until('the daemon is gone', lambda: not call('ip', 'netns', 'pids', lab.ns('g1')).strip())
    check(os.path.exists(path), 'a killed daemon leaves its files')
    us.start(beside(tunnel('g1')), settings)
    with Vici(path, 5) as v:
        check(v.request('version')['daemon'] == 'ironswan', 'the next one replaces them')


def log_shows_follows_and_raises(lab, full):
    """`log`: the latest lines, of one connection, those that come, and a level raised for a time; a reader that stalls costs nothing."""
    us, _ = pair(lab)
    us.initiate()
    status, out = ask(us, 'log', '--conn', 'net')
    check(status == 0 and 'established between' in out and all(line.split()[2] == 'net' for line in out.splitlines()),
          f'log --conn net shows its {len(out.splitlines())} lines and no others')
    status, whole = ask(us, 'log')
    check('ready: IronSwan' in whole and len(whole) > len(out), 'log shows all, from the start on')
    status, out = ask(us, 'log', '--peer', '192.0.2.2')
    check('established between' in out, 'log --peer shows the lines about this peer')
    status, out = ask(us, 'log', '--peer', '192.0.2.99')
    check(status == 0 and not out, 'and none about another one')
    status, out = ask(us, 'log', '--conn', 'net', '--json')
    lines = [json.loads(line) for line in out.splitlines()]
    check(all(line['schema'] == 'ironswan.log/1' and line['conn'] == 'net' for line in lines), 'log --json: one object a line')
    # A client that asks for all that comes, and reads nothing.
    stalled = Vici(us.socket, 5)
    stalled.register('log-line')
    stalled.send(Vici._named(CMD_REQUEST, 'ironswan-log') + emit({'follow': 'yes'}))
    follower = lab.spawn('g1', program(), 'log', '-f', '--conn', 'net', '--vici', f'unix://{us.socket}', name='follow')
    raised = lab.spawn('g1', program(), 'log', '--conn', 'net', '--level', 'debug', '--for', '4s', '--vici', f'unix://{us.socket}', name='raised')
    began = time.monotonic()
    until('the followers are there', lambda: 'established between' in follower.log())
    mark = len(us.log())
    time.sleep(0.3)
    with us.vici() as v:
        refusal(v, 'initiate', {'child': 'beside', 'timeout': '-1'})
    ask(us, 'rekey', 'net')
    until('log -f shows the rekeying', lambda: 'rekeyed' in follower.log() or 'CHILD_SA net{2}' in follower.log(), 5)
    until('the raised lines are there', lambda: '[raised]' in raised.log(), 5)
    check(all(line.split()[2] == 'net' for line in raised.log().splitlines()), 'raised lines are of this connection alone')
    check(' debug ' in us.log()[mark:] and not re.search(r' debug (beside|-) ', us.log()[mark:]), "also in the daemon's own log, and of no other")
    check(raised.popen.wait(15) == 0 and time.monotonic() - began > 3.5, 'the level ends by itself')
    mark = len(us.log())
    for _ in range(20):
        ask(us, 'rekey', 'net')
    check(' debug ' not in us.log()[mark:], 'nothing is raised any more')
    check(us.answers() and ask(us, 'log', '--conn', 'net', timeout=5)[0] == 0, 'a reader that stalls holds nobody up')
    stalled.close()
    check(follower.alive(), 'the follower goes on')
    # Not SIGINT, which is ignored in all that a shell has started in the background.
    follower.popen.send_signal(signal.SIGTERM)
    follower.popen.wait(5)
    for args, word in ((('--level', 'debug', '--for', '5m'), '--conn'), (('--conn', 'net', '--level', 'loud', '--for', '5m'), 'debug'),
                       (('--conn', 'net', '--level', 'debug', '--for', '2d'), '2d')):
        status, out = ask(us, 'log', *args)
        check(status == 2 and word in out, f"log {' '.join(args)}: {out.splitlines()[0]}")


def traps_come_and_go_by_command(lab, full):
    """`route` and `unroute`, and swanctl's --install and --uninstall: traffic brings the tunnel up, SAs stay."""
    us, _ = pair(lab)
    status, out = ask(us, 'route', 'net')
    check(status == 0 and 'net/net is routed' in out and us.traps() == {'net'}, 'route net: the trap is there')
    lab.run('a', 'ping', '-c', '5', '-i', '0.3', '-W', '1', '10.2.0.2', fail=False)
    check(len(us.established()) == 1, 'traffic brings the tunnel up')
    spis = us.child_spis()
    status, out = ask(us, 'unroute', 'net')
    check(status == 0 and us.child_spis() == spis and not us.traps(), 'unroute net: the trap goes, the SAs stay')
    ping(lab)
    status, out = ask(us, 'unroute', 'net')
    check(status == 1 and 'not found' in out, f'once more: {out.strip()}')
    status, out = ask(us, 'route', 'nope')
    check(status == 2 and 'nope' in out, f'route nope: {out.splitlines()[0]}')
    status, out = ask(us, 'route', 'hole', '--json')
    check(status == 0 and json.loads(out)['children'] == ['beside/hole'], 'a shunt is routed by its name')
    check('hole' in us.swanctl('--list-pols', '--pass'), 'and listed')
    done = us.swanctl('--uninstall', '--child', 'hole')
    check('hole' not in us.swanctl('--list-pols', '--pass'), f'swanctl --uninstall: {done.strip()}')
    done = us.swanctl('--install', '--child', 'net')
    check(us.traps() == {'net'}, f'swanctl --install: {done.strip()}')
    done = us.swanctl('--install', '--child', 'nope', fail=False)
    check(done.returncode != 0 and 'not found' in done.stdout, f'of a child that is not there: {done.stdout.strip()}')
    us.swanctl('--uninstall', '--child', 'net')
    check(not us.traps(), 'swanctl --uninstall takes it back')


def certificates_and_pools_are_listed(lab, full):
    """`list certs` and swanctl's --list-certs show the same certificates; `list pools` says why there are none."""
    need('ip', 'swanctl', 'pki')
    lab.line()
    certs.Chains(lab, 'ecdsa')
    us = IronSwan(lab, 'g1').start(tunnel('g1', **certs.conf('g1')))
    status, out = ask(us, 'list', 'certs')
    rows = {line.split('CN=')[-1]: line.split()[0] for line in out.splitlines()[1:]}
    check(status == 0 and rows == {'root': 'authority', 'link': 'authority', 'g1.example': 'own'}, f'list certs: {rows}')
    check(all(len(line) <= 80 for line in out.splitlines()), 'in 80 columns')
    status, out = ask(us, 'list', 'certs', '--json')
    document = json.loads(out)
    check(document['schema'] == 'ironswan.certs/1' and len(document['certificates']) == len(rows), 'list certs --json')
    status, out = ask(us, 'list', 'certs', 'CN=root')
    check(status == 0 and len(out.splitlines()) == 2, 'list certs CN=root shows one')
    status, out = ask(us, 'list', 'certs', 'CN=nobody')
    check(status == 1, f'list certs CN=nobody: {out.strip().splitlines()[-1]}')
    shown = us.swanctl('--list-certs')
    check(all(f'CN={name}' in shown for name in rows), 'swanctl --list-certs shows them, too')
    status, out = ask(us, 'list', 'pools')
    check(status == 0 and 'not built' in out, f'list pools: {out.splitlines()[-1]}')
    check(json.loads(ask(us, 'list', 'pools', '--json')[1])['pools'] == [], 'list pools --json')


def lies(out):
    """Characters of an output that a terminal would obey, or that nobody sees."""
    return re.findall('[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]', out)


def names_that_lie_are_shown_by_their_numbers(lab, full):
    """Escape sequences in names that a client loads, and in the identity of a peer: no output obeys them."""
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    conf = tunnel('g1', remote_id='%any')
    us = IronSwan(lab, 'g1').start(beside(conf))
    with us.vici() as v:
        # As a key ID an identity may be any bytes.
        good = {'remote_addrs': ['192.0.2.88'], 'local': {'auth': 'psk', 'id': 'g1.example'},
                'remote': {'auth': 'psk', 'id': '@#' + EVIL.encode().hex()}, 'children': {'c': {'remote_ts': ['10.88.0.0/24']}}}
        for what, message in (('a connection', {EVIL: good}), ('a child', {'evil': {**good, 'children': {EVIL: {}}}}),
                              ('a key', {'evil': {**good, EVIL: 'x'}}), ('a value', {'evil': {**good, 'proposals': [EVIL]}}),
                              ('an identity', {'evil': {**good, 'remote': {'auth': 'psk', 'id': EVIL}}})):
            why = refusal(v, 'load-conn', message)
            check(why and not lies(why), f'{what} of this name is refused: {why}')
        v.request('load-conn', {'lying': good})
        why = refusal(v, 'load-shared', {'id': 'evil', 'type': 'ike', 'data': 'x', 'owners': [EVIL]})
        check(why and not lies(why), f'a secret with such an owner is refused: {why}')
        # A secret's name is anybody's text.
        v.request('load-shared', {'id': EVIL, 'type': 'ike', 'data': 'x', 'owners': ['evil.example']})
    # charon sends the identity's bytes as they are.
    them = Charon(lab, 'g2').start()
    them.load(tunnel('g2', my_id='g2.example'))
    with them.vici() as v:
        net = {'version': '2', 'encap': 'yes', 'mobike': 'no', 'local_addrs': ['192.0.2.2'], 'remote_addrs': ['192.0.2.1'],
               'proposals': [re.search(r'proposals = (.*)', conf)[1]], 'local': {'auth': 'psk', 'id': 'fqdn:#' + EVIL.encode().hex()},
               'remote': {'auth': 'psk', 'id': 'g1.example'},
               'children': {'net': {'local_ts': ['10.2.0.0/24'], 'remote_ts': ['10.1.0.0/24'],
                                    'esp_proposals': [re.search(r'esp_proposals = (.*)', conf)[1]]}}}
        v.request('load-conn', {'net': net})
    outputs = {'up net': ask(us, 'up', 'net')}
    sent = re.search(r"IKE_SA net\[\d+\] established between .*", outputs['up net'][1])
    check(len(us.established()) == 1 and sent and 'elpmaxe' in sent[0], f'a peer with such an identity is there: {sent and sent[0]}')
    ping(lab)
    for command in ('status', 'status net', 'explain net', 'explain lying', 'list sas', 'list conns', 'list pols', 'list counters', 'log',
                    'log --conn net', 'rekey net', 'down net', f'up {EVIL}', f'log --conn {EVIL}'):
        words = command.split(' ', 2) if 'log --conn' in command else command.split(' ', 1)
        outputs[command] = ask(us, *words)
        if command.split()[0] in ('status', 'explain', 'list', 'log'):
            outputs[command + ' --json'] = ask(us, *words, '--json')
    for command, (status, out) in outputs.items():
        check(not lies(out), f'{command.encode("unicode_escape").decode()}: nothing in it is obeyed (exit status {status})')
    for command in ('up net', 'status net', 'list sas --json', 'log'):
        check('elpmaxe' in outputs[command][1] and '1b' in outputs[command][1], f'{command} shows the identity, by its numbers')
    check(not lies(us.log()) and 'elpmaxe' in us.log(), "nor is anything in the daemon's log")


main({f.__name__: f for f in (
    a_group_reads_and_changes_nothing, greedy_readers_hold_nobody_up, two_daemons_on_one_socket, log_shows_follows_and_raises, traps_come_and_go_by_command,
    certificates_and_pools_are_listed, names_that_lie_are_shown_by_their_numbers)}, 'control')
