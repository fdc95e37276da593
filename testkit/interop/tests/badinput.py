#!/usr/bin/env python3
"""What a gateway does with a bad world: missing rights, taken ports, floods, garbage, and being killed.

usage: testkit/interop/run [--full] badinput[.TEST]      --full: the idle gateway is watched for 60 s instead of 10
"""
import json
import os
import random
import signal
import socket
import struct
import sys
import time

from backends import BACKENDS, check_used
from daemon import config, pair, real_pid, resident, run_args, start_fails
from gateway import Charon, IronSwan, program, tunnel
from lab import HERE, call, check, main, need, say, until
from traffic import ping
from vici import CMD_REQUEST, CMD_UNKNOWN, EVENT_REGISTER, ViciError


def switches(process):
    """Voluntary context switches of all threads."""
    total = 0
    pid = real_pid(process)
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/status') as f:
            total += next(int(line.split()[1]) for line in f if line.startswith('voluntary_ctxt_switches'))
    return total


def stats(gateway):
    with gateway.vici() as v:
        return v.request('stats')


def half_open(gateway):
    return int(stats(gateway)['ikesas']['half-open'])


def counter(gateway, name):
    """One of the daemon's IKE counters."""
    out = call(program(), 'list', 'counters', '--json', '--vici', f'unix://{gateway.socket}')
    return json.loads(out)['ike'][name]


def killed_daemon_comes_back(lab, full):
    """kill -9: the peer notices nothing until the next start, which cleans up and works."""
    g1, g2 = pair(lab, child='start_action = none')
    g1.initiate()
    ping(lab)
    for round in (1, 2):
        g1.process.send(signal.SIGKILL)
        g1.process.popen.wait()
        check(os.path.exists(g1.socket), f'kill {round}: the VICI socket is left behind')
        g1.start(tunnel('g1'))
        check(not g1.sas(), f'kill {round}: the next start begins with no SAs')
        g1.initiate()
        ping(lab)
        check(True, f'kill {round}: traffic flows again')
        until('the peer keeps one IKE_SA (INITIAL_CONTACT)', lambda: len(g2.sas()) == 1)
        check(True, f'kill {round}: INITIAL_CONTACT made the peer forget the old IKE_SA')
        routes = lab.run('g1', 'ip', 'route', 'show', 'table', '220').strip().splitlines()
        check(sum('10.2.0.0/24' in r and 'ipsec0' in r for r in routes) == 1, f'kill {round}: one route to ipsec0: {routes}')


def sigterm_deletes_sas_and_keeps_the_guard(lab, full):
    """SIGTERM: SAs are deleted at both ends, device and routes to it go, the guard stays, exit status 0."""
    g1, g2 = pair(lab)
    g1.initiate()
    ping(lab)
    began = time.monotonic()
    status = g1.process.stop()
    check(status == 0, f'exit status {status} after {time.monotonic() - began:.2f} s')
    until('the peer has been told', lambda: not g2.sas())
    check(True, 'the peer has no SA any more')
    check('ipsec0' not in lab.run('g1', 'ip', 'link'), 'ipsec0 is gone')
    routes = lab.run('g1', 'ip', 'route', 'show', 'table', '220')
    check('ipsec0' not in routes and 'unreachable 10.2.0.0/24' in routes, f'only the unreachable route is left: {routes.strip()}')
    check('lookup 220' in lab.run('g1', 'ip', 'rule') and 'chain guard_out' in lab.run('g1', 'nft', 'list', 'table', 'inet', 'ironswan'),
          'the rules and the nft table stand')
    check(lab.run('a', 'ping', '-c', '2', '-i', '0.2', '-W', '1', '10.2.0.2', fail=False).returncode != 0, 'nothing gets through')
    check(not os.path.exists(g1.socket), 'the VICI socket is gone')
    lab.run('g1', program(), 'guard', '--remove')
    check(not lab.run('g1', 'ip', 'route', 'show', 'table', '220', fail=False).stdout.strip(), 'guard --remove: no route is left')
    check('220' not in lab.run('g1', 'ip', 'rule'), 'guard --remove: no rule is left')
    check('ironswan' not in lab.run('g1', 'nft', 'list', 'tables'), 'guard --remove: no table is left')


def port_in_use_is_named(lab, full):
    lab.box('g1')
    folder = config(lab, tunnel('g1'))
    for port in (500, 4500):
        holder = lab.spawn('g1', sys.executable, '-c', f"import socket,time; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
                           f"s.bind(('0.0.0.0', {port})); print('bound', flush=True); time.sleep(100)", name=f'port{port}')
        until('the port is taken', lambda: 'bound' in holder.log())
        start_fails(lab, run_args(lab, folder), str(port), 'used by another process')
        holder.stop()


def other_ports_are_the_remedy(lab, full):
    """The remedy for ports in use: with port_ike and port_natt a gateway initiates, with encapsulation and without; a local_port that
    is neither of the two is an error where the connection initiates by itself, and a warning where it only answers."""
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    held = '; '.join(f"s{p} = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s{p}.bind(('0.0.0.0', {p}))" for p in (500, 4500))
    holder = lab.spawn('g1', sys.executable, '-c', f"import socket, time; {held}; print('bound', flush=True); time.sleep(100)", name='ports')
    until('the ports are taken', lambda: 'bound' in holder.log())
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'), 'port_ike = 1500\nport_natt = 14500\n')
    for peer, encap in ((Charon, True), (IronSwan, False), (IronSwan, True)):
        g2 = peer(lab, 'g2').start(tunnel('g2', encap=encap))
        g1.load(tunnel('g1', encap=encap))
        g1.initiate()
        ping(lab)
        port = g1.established()[0]['local-port']
        check(port == ('14500' if encap else '1500'), f'{g2.kind}, encap {encap}: up from port {port}, and traffic flows')
        g1.swanctl('--terminate', '--ike', 'net')
        g2.stop()
    said = 'UDP port 500 is none of'
    for action, warning in (('start', False), ('none', True)):
        wrong = config(lab, tunnel('g1', conn='local_port = 500', child=f'start_action = {action}'), f'wrong-{action}')
        lab.write(f'wrong-{action}/ironswan.conf', 'port_ike = 1500\nport_natt = 14500\n')
        done = lab.run('g1', program(), 'check', wrong, fail=False)
        line = next((l for l in done.stdout.splitlines() if said in l), done.stdout)
        check(said in line and (done.returncode == 0, ' warning: ' in line) == (warning, warning), f'check: {done.returncode}: {line}')
    g1.swanctl('--load-conns', '--file', os.path.join(wrong, 'swanctl.conf'))
    until('the log says so', lambda: said in g1.log())
    answer = g1.swanctl('--initiate', '--child', 'net', fail=False)
    check(said in answer.stdout, f'initiate: {answer.stdout.strip().splitlines()[-1]}')


def missing_privilege_is_named(lab, full):
    need('setpriv')
    lab.box('g1')
    os.chmod(lab.dir, 0o711)
    folder = config(lab, tunnel('g1'))
    binary = lab.path('ironswan')
    call('cp', program(), binary)
    os.chmod(binary, 0o755)
    for path in (folder, os.path.join(folder, 'swanctl.conf')):
        os.chown(path, 65534, 65534)
    done = lab.run('g1', 'setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups', binary,
                   'run', '--config', folder, '--vici', f'unix://{folder}/x.vici', fail=False, timeout=20)
    check(done.returncode == 2, f'as nobody: exit status {done.returncode}: {done.stdout.strip()}')
    check('root' in done.stdout or 'CAP_NET_ADMIN' in done.stdout, 'the message says what right is missing')


def missing_tun_device_is_named(lab, full):
    lab.box('g1')
    folder = config(lab, tunnel('g1'))
    start_fails(lab, run_args(lab, folder), '/dev/net/tun',
                before=['sh', '-c', 'mount -t tmpfs tmpfs /dev/net && exec "$@"', 'sh'])


def readable_secrets_are_refused(lab, full):
    lab.box('g1')
    for mode in (0o644, 0o640):
        folder = config(lab, tunnel('g1'), name=f'etc{mode:o}', mode=mode)
        start_fails(lab, run_args(lab, folder), os.path.join(folder, 'swanctl.conf'), 'chmod')


def errors_name_file_line_and_key(lab, full):
    """Errors name file, line and key; the nearest known key is offered."""
    lab.box('g1')
    cases = (
        ('unknown key', tunnel('g1', conn='remote_adrs = 192.0.2.9'), ('remote_adrs', 'remote_addrs', 'swanctl.conf:')),
        ('syntax', 'connections {\n  net {\n', ('swanctl.conf:',)),
        ('what is not built', tunnel('g1').replace('mobike = no', 'mediation = yes'), ('mediation', 'yes', 'swanctl.conf:')),
        ('IKEv1', tunnel('g1').replace('version = 2', 'version = 1'), ('version', 'swanctl.conf:')),
        ('a selector', tunnel('g1', local_ts='10.1.0.0/99'), ('local_ts', '10.1.0.0/99', 'swanctl.conf:')),
        ('a proposal', tunnel('g1', esp='aes999gcm16'), ('esp_proposals', 'aes999gcm16', 'swanctl.conf:')),
        ('a NUL byte', tunnel('g1').replace('net {', 'n\0et {', 1), ('swanctl.conf',)),
    )
    for number, (name, text, words) in enumerate(cases):
        say(f'  {name}:')
        start_fails(lab, run_args(lab, config(lab, text, name=f'etc{number}')), *words)
    start_fails(lab, run_args(lab, lab.path('does-not-exist')), 'does-not-exist')


def second_daemon_ends(lab, full):
    """The second one ends with a message; the first one goes on."""
    g1, g2 = pair(lab)
    g1.initiate()
    start_fails(lab, run_args(lab, config(lab, tunnel('g1'), 'other'), 'other.vici'), 'used by another process')
    start_fails(lab, run_args(lab, config(lab, tunnel('g1'), 'other'), os.path.basename(g1.socket)), 'vici')
    check(len(g1.established()) == 1, 'the first daemon still answers')
    ping(lab)
    check(True, 'and carries traffic')


def broken_file_changes_nothing(lab, full):
    """SIGHUP takes over what changed; a broken file changes nothing."""
    g1, g2 = pair(lab)
    g1.initiate()
    path = os.path.join(g1.config, 'swanctl.conf')
    with open(path, 'w') as f:
        f.write('connections { net {')
    g1.process.send(signal.SIGHUP)
    until('the error is said', lambda: 'swanctl.conf:' in g1.log())
    check('net: IKEv2' in g1.swanctl('--list-conns') and len(g1.established()) == 1, 'a broken file changes nothing')
    with open(path, 'w') as f:
        f.write(tunnel('g1') + tunnel('g1').split('secrets')[0].replace('  net {\n    version', '  extra {\n    version'))
    g1.process.send(signal.SIGHUP)
    until('the new connection is there', lambda: 'extra: IKEv2' in g1.swanctl('--list-conns'))
    check(len(g1.established()) == 1, 'the tunnel that did not change stays up')
    ping(lab)


def up_without_a_route_fails_at_once(lab, full):
    """A peer that cannot be reached: `up` fails at once with the reason, and does not wait for its timeout."""
    lab.box('g1')
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    began = time.monotonic()
    done = lab.run('g1', program(), 'up', 'net', '--vici', f'unix://{g1.socket}', '--timeout', '60', fail=False)
    check(done.returncode == 2 and time.monotonic() - began < 30, f'exit status {done.returncode} after {time.monotonic() - began:.1f} s: '
          f'{done.stdout.strip().splitlines()[-1]}')
    check('no route to 192.0.2.2' in done.stdout and 'add a route' in done.stdout,
          'the message names the peer and says what to do')


def spoofed_ike_sa_inits_cost_little(lab, full):
    """100,000 spoofed IKE_SA_INITs: memory stays, cookies go on, half-open SAs are few and gone in 30 s."""
    g1, g2 = pair(lab)
    lab.box('x')
    lab.wire('x', 'eth0', ['198.51.100.2/24'], 'g1', 'dmz', ['198.51.100.1/24'])
    lab.ip('g1', 'route', 'add', '10.200.0.0/16', 'via', '198.51.100.2')
    # The gateway answers to the address that was asked, so it must be one of the connection's.
    g1.load(tunnel('g1').replace('remote_addrs = 192.0.2.2', 'remote_addrs = %any'))
    g2.initiate()
    g1.load(tunnel('g1').replace('remote_addrs = 192.0.2.2', 'remote_addrs = %any')
            .replace('local_addrs = 192.0.2.1', 'local_addrs = 192.0.2.1, 198.51.100.1'))
    # The first requests touch what any number of them needs (buffers, the half-open SAs, the code that answers).
    idle, exchanges = resident(g1.process), counter(g1, 'kex-generated')
    first = lab.spawn('x', sys.executable, os.path.join(HERE, 'flood.py'), '198.51.100.1', '10.200', 2000, 20000)
    while first.alive():
        time.sleep(0.1)
    before, lines = resident(g1.process), len(g1.log().splitlines())
    check(before <= idle + 1536, f'resident: {idle} KiB idle, {before} after 2000 requests')
    attack = lab.spawn('x', sys.executable, os.path.join(HERE, 'flood.py'), '198.51.100.1', '10.200', 100000, 20000)
    most, most_memory = 0, before
    while attack.alive():
        most = max(most, half_open(g1))
        most_memory = max(most_memory, resident(g1.process))
        time.sleep(0.25)
    ended = time.monotonic()
    report = json.loads(attack.log())
    say(f'  seen {report}')
    # Freed memory of messages that waited is given back a second after.
    until(f'memory is that of before, {before} KiB, again', lambda: resident(g1.process) <= before * 1.05, 5, 0.2)
    after = resident(g1.process)
    check(report['sent'] >= 99000, f"{report['sent']} requests sent in {report['seconds']} s")
    check(report['cookie requests'] > 0, f"cookies were asked for: {report['cookie requests']} times")
    # The threshold is 30 half-open IKE_SAs; what was already on its way when it was reached may be answered too.
    exchanges = counter(g1, 'kex-generated') - exchanges
    answered = json.loads(first.log())['full responses'] + report['full responses']
    check(0 < answered <= 200 and exchanges <= 200, f'{answered} requests got an answer, with {exchanges} key exchanges')
    check(most <= 1000, f'at most {most} half-open IKE_SAs at once')
    check(after <= before * 1.05, f'resident: {before} KiB before, {after} after')
    # Meanwhile messages wait for the control thread, the more the busier the machine is: at most 16,384, with 8 MiB in all
    # (`MAX_WAITING`, `MAX_BYTES`). 100,000 of anything would be more.
    check(most_memory <= before + 12 * 1024, f'resident: {before} KiB before, {most_memory} at most')
    grown = len(g1.log().splitlines()) - lines
    check(grown < 1000, f'the log grew by {grown} lines')
    ping(lab)
    g2.rekey('ike')
    check(True, 'the tunnel that was up carries traffic and rekeys')
    g2.swanctl('--terminate', '--ike', 'net')
    g2.initiate()
    check(True, 'an honest peer gets in')
    until('no half-open IKE_SA is left', lambda: half_open(g1) == 0, 35, 0.5)
    check(True, f'no half-open IKE_SA {time.monotonic() - ended:.0f} s after the flood')


def garbage_is_counted(lab, full, backend=None):
    """Random datagrams on all ports, and ESP to no SA: counted, nothing kept, no flood of log lines."""
    g1, g2 = pair(lab, BACKENDS.get(backend, ''))
    g1.initiate()
    ping(lab)
    time.sleep(0.5)
    before, lines = resident(g1.process), len(g1.log().splitlines())
    script = lab.write('garbage.py', '''
import os, random, socket, struct
random.seed(7)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
esp = socket.socket(socket.AF_INET, socket.SOCK_RAW, 50)
for n in range(20000):
    size = random.choice((0, 1, 3, 4, 8, 27, 28, 29, 64, 200, 1400))
    data = os.urandom(size)
    kind = n % 6
    if kind == 0: udp.sendto(data, ("192.0.2.1", 500))
    if kind == 1: udp.sendto(data, ("192.0.2.1", 4500))
    if kind == 2: udp.sendto(bytes(4) + data, ("192.0.2.1", 4500))
    if kind == 3: esp.sendto(data, ("192.0.2.1", 0))
    # A header that is right, and a body that is not: every exchange type, lengths that lie.
    head = os.urandom(8) + random.choice((bytes(8), os.urandom(8))) + struct.pack("!BBBBII", random.randrange(64), 0x20,
           random.choice((34, 35, 36, 37)), random.choice((0, 8, 0x20, 0x28)), random.choice((0, 1, 2, 1 << 31)),
           random.choice((28 + size, 28, 0, 1 << 31)))
    if kind == 4: udp.sendto(head + data, ("192.0.2.1", 500))
    if kind == 5: udp.sendto(bytes(4) + head + data, ("192.0.2.1", 4500))
''')
    lab.run('g2', sys.executable, script)
    time.sleep(1)
    if backend:
        check_used(g1, backend)
    after = resident(g1.process)
    check(after <= before * 1.05 + 512, f'resident: {before} KiB before, {after} after 20,000 datagrams')
    grown = len(g1.log().splitlines()) - lines
    check(grown <= 200, f'the log grew by {grown} lines')
    check(half_open(g1) == 0, 'no half-open IKE_SA is kept')
    ping(lab)
    g1.rekey('child')
    g2.rekey('ike')
    check(True, 'the tunnel carries traffic and rekeys')


def garbage_is_counted_with_xdp(lab, full):
    """The same with ESP through AF_XDP."""
    garbage_is_counted(lab, full, 'xdp')


def garbage_is_counted_without_offloads(lab, full):
    """The same without offloads."""
    garbage_is_counted(lab, full, 'single')


def garbled_vici_is_refused(lab, full):
    """Any VICI frame: a clear error or a closed connection, and what runs is untouched."""
    g1, g2 = pair(lab)
    g1.initiate()

    def raw(*pieces, read=True):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(3)
        s.connect(g1.socket)
        try:
            for piece in pieces:
                s.sendall(piece)
            s.shutdown(socket.SHUT_WR)
            answer = b''
            while read and (more := s.recv(65536)):
                answer += more
            return answer
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            return b''
        finally:
            s.close()

    def frame(body):
        return struct.pack('!I', len(body)) + body

    def named(kind, name, message=b''):
        return frame(bytes([kind, len(name)]) + name + message)

    before = resident(g1.process)
    random.seed(3)
    nested = b''.join(b'\x01\x01a' for _ in range(10000))
    cases = {
        'an empty frame': frame(b''),
        'a length of 4 GiB': struct.pack('!I', 0xffffffff),
        'a length of 600 KB, and nothing': struct.pack('!I', 600 << 10),
        'an unknown packet type': frame(b'\xff\x01x'),
        'a name that is longer than the frame': frame(b'\x00\xffstats'),
        'a name that is not UTF-8': named(CMD_REQUEST, b'\xff\xfe\xfd'),
        'a request with garbage': named(CMD_REQUEST, b'load-conn', random.randbytes(500)),
        '10,000 nested sections': named(CMD_REQUEST, b'load-conn', nested),
        'a section that is not closed': named(CMD_REQUEST, b'load-conn', b'\x01\x03net'),
        'a list item outside a list': named(CMD_REQUEST, b'load-conn', b'\x05\x00\x01a'),
        'a response instead of a request': frame(b'\x01'),
        'an unknown event': named(EVENT_REGISTER, b'no-such-event'),
    }
    for name, data in cases.items():
        answer = raw(data)
        said = b'errmsg' in answer and b'not VICI: ' in answer or 'unknown event' in name
        with g1.vici(5) as v:
            served = v.request('version')['daemon'] == 'ironswan'
        text = answer.partition(b'not VICI: ')[2].decode(errors='replace') or f'answer type {answer[4]}'
        check(said and served, f'{name}: {text}; others are served')
    check(raw(named(CMD_REQUEST, b'no-such-command'))[4:5] == bytes([CMD_UNKNOWN]), 'an unknown command: CMD_UNKNOWN')
    pieces = [bytes([b]) for b in named(CMD_REQUEST, b'version')]
    check(b'ironswan' in raw(*pieces), 'a request in single bytes is understood')
    for _ in range(500):
        raw(os.urandom(random.randrange(1, 300)), read=False)
    check(True, '500 clients with random bytes')

    # Clients that connect and never read or never finish their frame.
    idle = []
    for n in range(200):
        s = socket.socket(socket.AF_UNIX)
        s.connect(g1.socket)
        s.sendall(named(EVENT_REGISTER, b'log') if n % 2 else struct.pack('!I', 100) + b'\x00')
        idle.append(s)
    g1.swanctl('--rekey', '--child', 'net')
    with g1.vici(5) as v:
        check(v.request('version')['daemon'] == 'ironswan', '200 clients that never read: others are served')
    for s in idle:
        s.close()
    for conn, reason in (({'net': {}}, ''), ({'net': {'no_such_key': '1'}}, 'no_such_key'),
                         ({'net': {'remote_addrs': ['%any'], 'children': 'text'}}, 'children'),
                         ({'a' * 255: {'version': '9' * 60000}}, 'version')):
        try:
            with g1.vici(5) as v:
                v.request('load-conn', conn)
            check(reason == '', f'load-conn {str(conn)[:60]} is accepted')
        except ViciError as why:
            check(reason in str(why), f'load-conn {str(conn)[:60]}: {str(why)[:120]}')
    time.sleep(0.5)
    after = resident(g1.process)
    check(after <= before * 1.1 + 1024, f'resident: {before} KiB before, {after} after')
    check(len(g1.established()) == 1, 'the tunnel stands')
    ping(lab)


def idle_costs_little(lab, full):
    """An idle gateway with one tunnel: under 32 MiB, and at most two voluntary context switches a second."""
    g1, g2 = pair(lab)
    g1.initiate()
    ping(lab)
    time.sleep(8)  # the delayed work of setting up is over
    seconds = 60 if full else 10
    first = {g: switches(g.process) for g in (g1, g2)}
    time.sleep(seconds)
    for gateway, role in ((g1, 'initiator'), (g2, 'responder')):
        rate = (switches(gateway.process) - first[gateway]) / seconds
        memory = resident(gateway.process) / 1024
        check(memory < 32, f'{role}: {memory:.1f} MiB resident')
        check(rate <= 2, f'{role}: {rate:.2f} voluntary context switches a second over {seconds} s')


if __name__ == '__main__':
    main({f.__name__: f for f in (
        killed_daemon_comes_back, sigterm_deletes_sas_and_keeps_the_guard, port_in_use_is_named, other_ports_are_the_remedy,
        missing_privilege_is_named, missing_tun_device_is_named, readable_secrets_are_refused, errors_name_file_line_and_key,
        second_daemon_ends, broken_file_changes_nothing, up_without_a_route_fails_at_once, spoofed_ike_sa_inits_cost_little,
        garbage_is_counted, garbage_is_counted_with_xdp, garbage_is_counted_without_offloads,
        garbled_vici_is_refused, idle_costs_little)}, 'badinput')
