#!/usr/bin/env python3
"""Shunts: what `mode = pass` lets through goes in clear, whether the tunnel around it is up or down, and nothing else
does; what `mode = drop` names goes nowhere and is counted; list pols and swanctl show them.
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


def hole_and_drop(lab, full):
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


main({f.__name__: f for f in (hole_and_drop,)}, 'shunts')
