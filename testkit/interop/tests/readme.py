#!/usr/bin/env python3
"""The first tunnel of README.md: its commands and its file, as they stand there, on two gateways of a line.

usage: testkit/interop/run readme[.TEST]
"""
import os
import re

from lab import REPO, Failed, check, main, need, until
from terminal import Terminal, blocks

HEADING = '## A first tunnel'
PLACEHOLDER = 'the-key-that-pki-printed'


def example():
    """The blocks of README's example: shell commands in their order, and the configuration file."""
    with open(os.path.join(REPO, 'README.md')) as f:
        text = f.read()
    if HEADING not in text:
        raise Failed(f'README.md has no heading {HEADING}')
    part = text.split(HEADING, 1)[1].split('\n## ', 1)[0]
    shell, files = [], []
    for words, body in blocks(part):
        (shell if words == ['sh'] else files).append(body)
    check(len(files) == 1 and len(shell) == 4, f'the example has {len(shell)} blocks of commands and {len(files)} file')
    return shell, files[0]


def first_tunnel(lab, full):
    """Two hosts that never heard of each other talk, after the commands of README and nothing else."""
    need('ip', 'ping', 'bash')
    lab.line()
    for box in ('g1', 'g2'):
        lab.run(box, 'sysctl', '-qw', 'net.ipv4.ip_forward=0')
    (prepare, make_key, start, look), file = example()
    check(file.count(PLACEHOLDER) == 1, 'the file has one place for the key')
    g1, g2 = Terminal(lab, 'g1'), Terminal(lab, 'g2')
    for gateway in (g1, g2):
        gateway.type(prepare)
    key = g1.type(make_key).strip()
    check(re.fullmatch(r'0s[A-Za-z0-9+/]{43}=', key) is not None, f'a key of {len(key)} characters')

    # The file as it stands, with the example's key, is refused by `check`.
    config = '/etc/ironswan/swanctl.conf'
    write = f"umask 077; cat >{config} <<'END'\n{{}}\nEND"
    g1.type(write.replace('{}', file))
    said = g1.type('ironswan check || echo "status $?"')
    check("error" in said and 'status 1' in said and 'everybody knows it' in said, "`check` refuses the example's key")

    swap = {'192.0.2.1': '192.0.2.2', '10.1.0.0/24': '10.2.0.0/24'}
    swap |= {there: here for here, there in swap.items()}
    other = re.sub('|'.join(map(re.escape, swap)), lambda m: swap[m[0]], file)
    for gateway, text in ((g1, file), (g2, other)):
        gateway.type(write.replace('{}', text.replace(PLACEHOLDER, key)))
        said = gateway.type(start)
        check('0 errors, 0 warnings' in said, f'{gateway.box}: `check` finds nothing')
        # A person takes longer to type the next command than the gateway takes to start.
        gateway.type('for i in $(seq 200); do [ -S /run/ironswan.vici ] && break; sleep 0.1; done')
    until('both gateways have the tunnel', lambda: all(re.search('^office +up ', g.type(look), re.M) for g in (g1, g2)), 20, 0.3)
    check(True, 'the tunnel is up')
    lab.run('a', 'ping', '-c', '3', '-i', '0.2', '-W', '2', '10.2.0.2')
    check(True, 'a host of one network gets answers from a host of the other')
    said = g1.type(look)
    check('in the way' not in said and '1 tunnel: 1 up' in said, 'status has nothing to complain of')
    said = g1.type('ironswan status office')
    check('UDP encapsulation forced' in said and 'NAT' not in said, 'of the one tunnel it says that UDP encapsulation is forced')

    # What a newcomer forgets.
    g1.type('sysctl -qw net.ipv4.ip_forward=0')
    said = g1.type(look)
    head = said.split('TUNNEL')[0]
    check('in the way' in head and 'net.ipv4.ip_forward=1' in head, 'status says first that forwarding is off, and the remedy')
    lab.ip('g1', 'link', 'set', 'wan', 'down')
    said = g1.type(look)
    check('in the way: 192.0.2.1: the link wan is down' in said, 'status says that the link of an established tunnel is down')
    lab.ip('g1', 'link', 'set', 'wan', 'up')


main({f.__name__: f for f in (first_tunnel,)}, 'readme')
