#!/usr/bin/env python3
"""Shunts: what `mode = pass` lets through goes in clear, whether the tunnel around it is up or down, and nothing else
does; what `mode = drop` names goes nowhere and is counted; list pols and swanctl show them. A spoke whose SA with a hub has
0.0.0.0/0 speaks neither for another peer of the hub nor for a network that `mode = pass` names.
"""
import json
import subprocess
import sys

from gateway import IronSwan, program, tunnel
from lab import check, main, need, until

SERVER = """
import socket
s = socket.create_server(('10.2.0.2', {port}))
while True:
    c, _ = s.accept()
    c.send(b'hello')
    c.close()
"""
CLIENT = "import socket; print(socket.create_connection(('10.2.0.2', {port}), 2).recv(9).decode())"


def connects(lab, port):
    argv = ['ip', 'netns', 'exec', lab.ns('a'), sys.executable, '-c', CLIENT.format(port=port)]
    return subprocess.run(argv, capture_output=True, text=True).stdout.strip() == 'hello'


def counters(g1):
    with g1.vici() as v:
        return v.request('ironswan-counters')


def hole_in_a_tunnel_and_a_closed_net(lab, full):
    """A hole for one port inside a tunnel, and a net that nobody may reach."""
    need('ip', 'nft', 'swanctl')
    lab.line()

    def text(box, local, remote, drop=''):
        hole = f'hole {{ mode = pass\n local_ts = {local}\n remote_ts = {remote}\n start_action = trap }}'
        return tunnel(box).replace('children {', f'children {{ {hole}\n{drop}\n', 1)

    drop = 'no { mode = drop\n local_ts = 10.1.0.0/24\n remote_ts = 10.9.0.0/24\n start_action = trap }'
    g1 = IronSwan(lab, 'g1').start(text('g1', '10.1.0.0/24', '10.2.0.0/24[tcp/9999]', drop))
    IronSwan(lab, 'g2').start(text('g2', '10.2.0.0/24[tcp/9999]', '10.1.0.0/24'))
    # Without policies everything would find its way in clear.
    for box, net, via in (('g1', '10.2.0.0/24', '192.0.2.2'), ('g1', '10.9.0.0/24', '192.0.2.2'), ('g2', '10.1.0.0/24', '192.0.2.1')):
        lab.ip(box, 'route', 'add', net, 'via', via)
    for port in (9998, 9999):
        lab.spawn('b', sys.executable, '-c', SERVER.format(port=port))
    until('port 9999 answers through the hole, the tunnel down', lambda: connects(lab, 9999))
    check(not connects(lab, 9998), 'the tunnel is down: no other port answers')
    g1.initiate()
    before = counters(g1)['packets']['out-sent']
    check(connects(lab, 9999) and counters(g1)['packets']['out-sent'] == before, 'the tunnel is up: the hole is still in clear')
    check(connects(lab, 9998) and int(counters(g1)['packets']['out-sent']) > int(before), 'and the other port is in the tunnel')
    dropped = int(counters(g1)['drops']['OutPolBlock'])
    check(lab.run('a', 'ping', '-c', '4', '-i', '0.2', '-W', '1', '10.9.0.1', fail=False).returncode != 0, 'what is to be dropped is dropped')
    # The worker publishes a round's counters with the next one.
    until('it is counted', lambda: dropped + 3 <= int(counters(g1)['drops']['OutPolBlock']) <= dropped + 4, 3)
    pols = json.loads(lab.run('g1', program(), 'list', 'pols', '--json', '--vici', f'unix://{g1.socket}'))
    shown = {p['name']: (p['verdict'], p['state']) for p in pols['policies']}
    check(pols['schema'] == 'ironswan.pols/1' and shown == {
        'net.net': ('protect', 'installed'), 'net.hole': ('bypass', 'installed'), 'net.no': ('discard', 'installed')},
        f'list pols shows them: {shown}')
    listed = g1.swanctl('--list-pols')
    check('net/hole, PASS' in listed and 'net/no, DROP' in listed, 'and so does swanctl --list-pols')


SPOKES = """
connections {
  spoke {
    version = 2
    local_addrs = 192.0.2.2
    remote_addrs = 192.0.2.1
    proposals = aes128gcm16-prfsha256-x25519
    local { auth = psk
 id = g2.example }
    remote { auth = psk
 id = g1.example }
    children {
      wide { local_ts = 10.2.0.0/24
 remote_ts = 0.0.0.0/0 }
      clear { mode = pass
 local_ts = 10.2.0.0/24
 remote_ts = 10.4.0.0/24
 start_action = trap }
    }
  }
  second {
    version = 2
    local_addrs = 198.51.100.2
    remote_addrs = 198.51.100.3
    proposals = aes128gcm16-prfsha256-x25519
    local { auth = psk
 id = g2.example }
    remote { auth = psk
 id = g3.example }
    children {
      net { local_ts = 10.2.0.0/24
 remote_ts = 10.3.0.0/24 }
    }
  }
}
secrets { ike-1 { secret = "correct horse battery staple" } }
"""
# Answers what arrives, and says from where each came.
LISTENER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.2.0.2', 7000))
while True:
    data, source = s.recvfrom(64)
    print(source[0], data.decode(), flush=True)
    s.sendto(data, source)
"""
SENDER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0))
s.settimeout(0.4)
for _ in range(5):
    s.sendto(sys.argv[2].encode(), ('10.2.0.2', 7000))
    try:
        print(s.recv(64).decode())
    except OSError:
        pass
"""


def wide_spoke_speaks_only_for_itself(lab, full):
    """A spoke with 0.0.0.0/0 sends in the name of the hub's second peer and of a network in clear."""
    need('ip', 'nft', 'swanctl')
    lab.line()
    lab.box('g3', 'c', 'p')
    lab.forward('g3')
    lab.wire('g2', 'wan3', ['198.51.100.2/24'], 'g3', 'wan', ['198.51.100.3/24'])
    lab.wire('g3', 'lan', ['10.3.0.1/24'], 'c', 'eth0', ['10.3.0.2/24'])
    lab.wire('g2', 'clear', ['10.4.0.1/24'], 'p', 'eth0', ['10.4.0.2/24'])
    lab.ip('c', 'route', 'add', 'default', 'via', '10.3.0.1')
    lab.ip('p', 'route', 'add', 'default', 'via', '10.4.0.1')
    for source in ('10.3.0.2', '10.4.0.2', '10.9.0.2'):
        lab.ip('a', 'addr', 'add', f'{source}/32', 'dev', 'eth0')
        lab.ip('g1', 'route', 'add', f'{source}/32', 'dev', 'lan')
    g1 = IronSwan(lab, 'g1').start(tunnel('g1', local_ts='0.0.0.0/0', remote_ts='10.2.0.0/24'))
    hub = IronSwan(lab, 'g2').start(SPOKES)
    third = tunnel('g1', my_id='g3.example', local_ts='10.3.0.0/24', remote_ts='10.2.0.0/24')
    IronSwan(lab, 'g3').start(third.replace('192.0.2.1', '198.51.100.3').replace('192.0.2.2', '198.51.100.2')).initiate()
    g1.initiate()
    log = lab.spawn('b', sys.executable, '-c', LISTENER, name='listener')
    until('the listener listens', lambda: ':7000' in lab.run('b', 'ss', '-lun'))

    def answers(box, source, word):
        return lab.run(box, sys.executable, '-c', SENDER, source, word).split().count(word)

    def refused():
        return int(counters(hub)['drops'].get('InTmplMismatch', 0))

    def heard(word):
        return sum(line.endswith(f' {word}') for line in log.log().splitlines())

    check(answers('c', '10.3.0.2', 'second') == 5, 'the second peer is heard and answered')
    check(answers('p', '10.4.0.2', 'clear') == 5, 'so is the network in clear')
    for source in ('10.1.0.2', '10.9.0.2'):
        check(answers('a', source, 'own') == 5, f'so is the spoke, as {source}, which is nobody else\'s')
    check(refused() == 0, 'nothing was refused so far')
    for i, (source, whose) in enumerate((('10.3.0.2', 'second peer'), ('10.4.0.2', 'network in clear')), 1):
        answers('a', source, f'forged{i}')
        until('the hub has counted them', lambda i=i: refused() >= 5 * i, 3)
        check(heard(f'forged{i}') == 0, f'the spoke in the name of the {whose}: 5 packets, 0 delivered')
    check(refused() == 10, 'they are counted as InTmplMismatch')
    until('and told', lambda: 'InTmplMismatch' in hub.log(), 3)
    g1.rekey('child')
    check(answers('a', '10.1.0.2', 'later') == 5, 'the spoke goes on, through a rekeying too')
    check(answers('a', '10.3.0.2', 'forged3') == 0 and heard('forged3') == 0, 'and still speaks for itself only')


main({f.__name__: f for f in (hole_in_a_tunnel_and_a_closed_net, wide_spoke_speaks_only_for_itself)}, 'shunts')
