#!/usr/bin/env python3
"""The manual's pages per job: their commands and files, as they stand there, typed on two machines of a line.

usage: testkit/interop/run jobs[.TEST]

A fence of a page says what its block is: `sh first`, `sh second` or `sh both` (commands), `text first PATH` (a file), `output` (pieces,
a line each, of what the commands before have printed on the first machine), `copy first PATH second PATH` (a file that the reader takes
from one machine to the other by the command in the block). A fence without words is for the reader alone.
"""
import os
import re

from gateway import Charon, tunnel
from lab import REPO, Failed, check, main, need, until
from terminal import Terminal, blocks

KEY, PLACEHOLDER = '0s[A-Za-z0-9+/]{43}=', 'the-key-that-pki-printed'
# Commands whose effect takes a moment are typed again until they print what the page shows, as a reader would.
SOON = 20


def pieces_missing(body, said):
    return [line for line in body.splitlines() if line not in said]


def read(page):
    with open(os.path.join(REPO, 'docs', 'manual', page)) as f:
        return f.read()


def follow(page, text, shells):
    """Does what a page, or a part of it, says, block by block."""
    key, typed, commands, done = PLACEHOLDER, None, 0, 0
    for words, body in blocks(text):
        match words:
            case ['sh', who]:
                for shell in shells.values() if who == 'both' else [shells[who]]:
                    said = shell.type(body)
                    found = re.search(KEY, said)
                    key = found[0] if found else key
                typed, commands = body, commands + len(body.splitlines())
            case ['text', who, path]:
                shells[who].write(path, body.replace(PLACEHOLDER, key))
            case ['copy', of, path, to, target]:
                shells[to].write(target, shells[of].type(f'cat {path}'))
            case ['output']:
                first = shells['first']
                if pieces_missing(body, first.said):
                    until(f'{page}: {typed.strip()} prints\n{body}', lambda: not pieces_missing(body, first.type(typed)), SOON, 0.5)
            case []:
                continue
            case _:
                raise Failed(f'{page}: a block begins with {words}, which this test does not know')
        done += 1
    check(commands > 2, f'{page}: {done} blocks, {commands} lines of commands, each as the page says')


def line_of_machines(lab, forward):
    need('ip', 'ping', 'bash', 'swanctl', 'charon-systemd')
    lab.line()
    for box in ('g1', 'g2'):
        lab.run(box, 'sysctl', '-qw', f'net.ipv4.ip_forward={int(forward)}')


def site_to_site(lab, full):
    """Two gateways and two networks that never heard of each other."""
    line_of_machines(lab, forward=False)
    follow('site-to-site', read('site-to-site.md'), {'first': Terminal(lab, 'g1'), 'second': Terminal(lab, 'g2')})
    lab.run('a', 'ping', '-c', '3', '-i', '0.2', '-W', '2', '10.2.0.2')
    check(True, 'a host of one network gets answers from a host of the other')


def host_to_host(lab, full):
    """Two hosts in transport mode: SSH goes in clear between them, everything else encrypted."""
    line_of_machines(lab, forward=False)
    first, second = Terminal(lab, 'g1'), Terminal(lab, 'g2')
    follow('host-to-host', read('host-to-host.md'), {'first': first, 'second': second})
    for port, clear in ((22, True), (5432, False)):
        sniffer = lab.spawn('g2', 'tcpdump', '-lni', 'wan', '--immediate-mode', f'tcp port {port}', name=f'tcpdump-{port}')
        until('tcpdump listens', lambda: 'listening on' in sniffer.log())
        server = lab.spawn('g2', 'python3', '-c', 'import socket; s = socket.create_server(("192.0.2.2", '
                           f'{port})); print("listens", flush=True); s.accept()[0].sendall(b"hello")', name=f'server-{port}')
        until('the server listens', lambda: 'listens' in server.log())
        said = lab.run('g1', 'python3', '-c', f'import socket; print(socket.create_connection(("192.0.2.2", {port}), 5).recv(9))')
        check('hello' in said, f'port {port}: the second host answers the first')
        if clear:
            until('port 22 is seen in clear', lambda: f'192.0.2.2.{port}' in sniffer.log(), 5)
        server.stop()
        sniffer.stop()
        check((f'192.0.2.2.{port}' in sniffer.log()) == clear, f'port {port}: {"in clear" if clear else "not seen on the wire"}')


def certificates(lab, full):
    """Two gateways find each other by certificates of a CA of theirs, and one that is revoked is refused. strongSwan takes the second
    one's files as they stand."""
    line_of_machines(lab, forward=True)
    first, second = Terminal(lab, 'g1'), Terminal(lab, 'g2')
    page = read('certificates.md')
    there, later = page.split('## Later')
    follow('certificates', there, {'first': first, 'second': second})
    said = second.type('cd /etc/ironswan; ironswan pki verify --in x509/second.crt --cacert x509ca/ca.crt --crl x509crl/ca.crl')
    check('x509/second.crt: valid' in said, 'the second gateway has its certificate')
    check(second.type('stat -c %a /etc/ironswan/private/second.key').strip() == '600', 'its key is for root alone')
    # strongSwan in the place of the second gateway.
    second.type('systemctl disable --now ironswan')
    for name in ('private/second.key', 'x509/second.crt', 'x509ca/ca.crt', 'x509crl/ca.crl'):
        lab.write(f'g2-swanctl/{name}', second.type(f'cat /etc/ironswan/{name}'), 0o600)
    peer = Charon(lab, 'g2').start(second.type('cat /etc/ironswan/swanctl.conf'), load=f'{Charon.plugins} x509 constraints revocation')
    peer.swanctl('--initiate', '--child', 'lan', '--timeout', '20')
    lab.run('a', 'ping', '-c', '3', '-i', '0.2', '-W', '2', '10.2.0.2')
    check("authentication of 'first.example' with" in peer.log(), 'strongSwan accepts our certificate, and we accept its')
    follow('certificates, later', later, {'first': first, 'second': second})
    done = peer.swanctl('--initiate', '--child', 'lan', '--timeout', '20', fail=False)
    check(done.returncode and 'was revoked' in first.type('cat /run/ironswan.log'), 'the new list keeps out whom it names')


OLD = """connections {
  office {
    local_addrs = 192.0.2.1
    remote_addrs = 192.0.2.2
    if_id_in = 7
    encap = yes
    local {
      auth = psk
      id = g1.example
    }
    remote {
      auth = psk
      id = g2.example
    }
    children {
      lan {
        local_ts = 10.1.0.0/24
        remote_ts = 10.2.0.0/24
        start_action = start
      }
    }
  }
}
secrets {
  ike-office {
    secret = "correct horse battery staple"
  }
}
"""


def from_strongswan(lab, full):
    """strongSwan on a gateway is replaced by IronSwan with its own files, and comes back. The peer is strongSwan all the time."""
    line_of_machines(lab, forward=True)
    peer = Charon(lab, 'g2').start(tunnel('g2', ike='default', esp='default'))
    gateway = Terminal(lab, 'g1')
    # strongSwan's unit, with ESP in user space, and Debian's own swanctl.conf, which includes conf.d/*.conf.
    conf = lab.write('old-strongswan.conf', """charon-systemd {
  load = random nonce aes gcm hmac sha1 sha2 kdf openssl gmp curve25519 kernel-libipsec kernel-netlink socket-default vici
  plugins {
    vici {
      socket = unix:///run/charon.vici
    }
  }
}
swanctl {
  load = random openssl
}
""")
    gateway.write('/etc/systemd/system/strongswan.service', f"""#socket=/run/charon.vici
[Service]
Type=notify
ExecStart=env STRONGSWAN_CONF={conf} charon-systemd
ExecStartPost=swanctl --load-all
""")
    gateway.write('/etc/swanctl/conf.d/office.conf', OLD)
    gateway.type('systemctl enable --now strongswan')
    until('strongSwan has the tunnel', lambda: 'INSTALLED' in gateway.type('swanctl --list-sas'), 20, 0.5)
    def reach(what):
        lab.run('a', 'ping', '-c', '3', '-i', '0.2', '-W', '2', '10.2.0.2')
        check(peer.process.alive(), f'hosts reach each other through {what}')

    reach('strongSwan')
    there, back = read('from-strongswan.md').split('## The way back')
    follow('from-strongswan', there, {'first': gateway})
    reach('IronSwan')
    check('ipsec0' in lab.ip('g1', 'route', 'show', 'table', '220'), "and IronSwan's device has the route")
    follow('from-strongswan, the way back', back, {'first': gateway})
    until('strongSwan has the tunnel again', lambda: 'INSTALLED' in gateway.type('swanctl --list-sas'), 20, 0.5)
    reach('strongSwan again')


main({f.__name__: f for f in (site_to_site, host_to_host, certificates, from_strongswan)}, 'jobs')
