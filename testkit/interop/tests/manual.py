#!/usr/bin/env python3
"""The manual's pages for operators: each command of ours that they show is typed on a gateway with a tunnel, as it stands there.

usage: testkit/interop/run manual[.TEST]

A command that a page shows and that this test does not know is a failure, and so is one that it knows and that no page shows. Whether
commands of all other pages are commands at all is tested by the program itself (`cargo test -p ironswan-cli manual`).
"""
import os
import re

from gateway import SECRET, IronSwan, tunnel
from lab import REPO, check, main, need, until
from terminal import Terminal

PAGES = ('operations.md', 'troubleshooting.md', 'symptoms.md', 'diagnoses.md')
CONFIG = f"""connections {{
  branch {{
    local_addrs = 192.0.2.1
    remote_addrs = 192.0.2.2
    encap = yes
    local {{
      auth = psk
      id = g1.example
    }}
    remote {{
      auth = psk
      id = g2.example
    }}
    children {{
      lan {{
        local_ts = 10.1.0.0/24
        remote_ts = 10.2.0.0/16
        start_action = start
      }}
    }}
  }}
}}
secrets {{
  ike-1 {{
    secret = "{SECRET}"
  }}
}}
"""
# Packets through the tunnel while a command runs, and a command that Ctrl-C ends.
PING = '(sleep 0.5; ping -c 3 -i 0.2 -I 10.1.0.1 10.2.0.1 >/dev/null) &'
ENDED = 'timeout --preserve-status -s INT 0.7 ironswan capture'
# What a reader puts in the place of these words. Times are shorter here.
FILL = {
    'ironswan capture NAME -w FILE': f'{ENDED} branch -w tunnel.pcapng', 'ironswan capture --drops': f'{ENDED} --drops',
    'ironswan capture branch -w -': f'{PING} {ENDED.replace("0.7", "1.5")} branch -w -',
    'NAME': 'branch', 'ADDRESS': '192.0.2.2', 'DIR': '/etc/ironswan', 'FILE': 'ca.crt', '--for 10m': '--for 1s', '--for 1m': '--for 1s',
}
PACKET = "ironswan explain --packet '10.1.0.9 > 10.2.5.1 tcp 443"

# Command, what it prints (a pattern), and its exit status where that is not 0. In this order; the tunnel is up.
TYPED = [
    ('ironswan check', '0 errors, 0 warnings'),
    ('ironswan check DIR', '0 errors, 0 warnings'),
    ('ironswan check /etc/ironswan', '0 errors, 0 warnings'),
    ('ironswan check --algorithms', '(?m)^aes256gcm16 '),
    ('ironswan status', '(?m)^TUNNEL +STATE +SINCE .*\n^branch +up '),
    ('ironswan status NAME', 'lan.*(?s:.*)10.1.0.0/24'),
    ('ironswan status --check', '^$'),
    ('ironswan status --down', '(?!branch)'),
    ('ironswan status --json', '"schema": ?"ironswan.status/'),
    ('ironswan explain NAME', '(?m)^branch: up for '),
    ('ironswan explain --peer ADDRESS', 'branch'),
    (f"{PACKET}'", '(?m)^10.1.0.9 > 10.2.5.1 tcp 443: passes'),
    (f"{PACKET} len 1400 df'", '(?m)^10.1.0.9 > 10.2.5.1 tcp 443 .*: passes'),
    (f"{PACKET}' --live", 'packet-not-seen', 1),
    ('ironswan prove NAME', '(?m)^branch: all passed$'),
    ('ironswan log --conn NAME', 'established between'),
    ('ironswan log --conn NAME --level debug --for 10m', ''),
    ('ironswan log --peer ADDRESS', 'established between'),
    ('ironswan top', 'branch'),
    ('ironswan top --once', 'branch'),
    ('ironswan list conns', '(?m)^branch'),
    ('ironswan list conns NAME', '(?m)^branch'),
    ('ironswan list sas', '10.2.0.0/16'),
    ('ironswan list sas NAME', '10.2.0.0/16'),
    ('ironswan list pols', 'installed'),
    ('ironswan list pols NAME', 'installed'),
    ('ironswan list counters', 'OutNoPolicy'),
    ('ironswan list counters --json', '"stages"'),
    ('ironswan list algs', '(?i)aes'),
    ('ironswan list certs', ''),
    ('ironswan doctor', '(?m)^ok +ports '),
    ('ironswan doctor --json', '"schema": ?"ironswan.doctor/1"'),
    ('ironswan report', r'ironswan-report-.*\.tar\.gz'),
    ('ironswan rekey NAME', ''),
    ('ironswan rekey branch --ike', ''),
    ('ironswan rekey branch/lan', ''),
    ('ironswan capture branch -w branch.pcapng --for 1m', 'packets'),
    ('ironswan capture branch --keys -w branch.pcapng --for 1m', 'packets'),
    ('ironswan capture NAME -w FILE', 'packets'),
    ('ironswan capture NAME -w branch.pcapng --for 1m', 'packets'),
    ('ironswan capture --drops -w drops.pcapng --packets 1000', 'packets'),
    ('ironswan capture NAME --drops -w drops.pcapng --for 1m', 'packets'),
    ('ironswan capture branch -w - | tshark -r - -T fields -e frame.comment', '(?m)^connection branch, child lan, SPI '),
    ('ironswan route NAME', ''),
    ('ironswan down NAME', ''),
    ('ironswan up NAME', 'lan'),
    ('ironswan guard', '(?m)^nft table +stands'),
    ('ironswan guard --install', 'it keeps the guard itself'),
    ('ironswan guard --remove', 'a gateway runs', 1),
    ('ironswan pki --psk', '0s[A-Za-z0-9+/]{43}='),
    ('ironswan pki print FILE', 'CN=Example CA'),
]
# Named in a sentence, without their arguments: they tell about themselves, and have the options.
NAMED = ['ironswan capture', 'ironswan explain', 'ironswan explain --packet', 'ironswan down', 'ironswan up', 'ironswan pki issue', 'ironswan pki signcrl']
# What others run: a command, and who.
ELSEWHERE = {
    'ironswan run': 'the daemon of this test', 'ironswan run --config /etc/ironswan': 'the daemon of this test',
    'ironswan helper': 'started by the daemon, in processes', 'ironswan fetcher': 'started by the daemon, in processes',
    'ironswan lab line': 'the laboratory: `ironswan-lab`, with tests of its own',
}


# Text before an answer that a page shows, the command, and the first words of its lines.
SHOWN = [
    ('`ironswan prove NAME` puts a tunnel', 'ironswan prove branch', r'^passed +([a-z ]+?)  '),
    ('answers, while the tunnel is down', f"{PACKET}'", r'^[ !?]? ?([a-z]+)  '),
]


def read(page):
    with open(os.path.join(REPO, 'docs', 'manual', page)) as f:
        return f.read()


def shown(page):
    """The commands of ours that a page shows, without what stands behind them as an explanation."""
    parts = re.split(r'^```.*$', read(page), flags=re.M)
    # A first line of `status`, and a line of the log, begin with the program's name as well.
    ours = re.compile(r'ironswan (?!0\.|helper: )')
    lines = [line for fence in parts[1::2] for line in fence.splitlines()]
    spans = [' '.join(span.split()) for text in parts[::2] for span in re.findall(r'`([^`]+)`', text)]
    return {re.split('  | #', command)[0].strip() for command in (*lines, *spans) if ours.match(command)}


def operators_commands(lab, full):
    """Every command of the pages for operators, typed as it stands."""
    need('ip', 'nft', 'bash', 'ping', 'tshark')
    found = {command: page for page in PAGES for command in shown(page)}
    known = {typed[0] for typed in TYPED} | set(NAMED) | set(ELSEWHERE)
    check(not set(found) - known, f'a way to run each: {sorted(set(found) - known)}')
    check(not known - set(found), f'nothing that no page shows: {sorted(known - set(found))}')
    lab.line()
    peer = IronSwan(lab, 'g2').start(tunnel('g2', local_ts='10.2.0.0/16', ike='default', esp='default'))
    shell = Terminal(lab, 'g1')
    shell.type('install -m 755 target/release/ironswan target/release/ironswan-pki /usr/sbin/')
    shell.write('/etc/ironswan/swanctl.conf', CONFIG)
    shell.type('ironswan pki gen --out ca.key; ironswan pki self --ca --in ca.key --dn "CN=Example CA" --out ca.crt')
    shell.type('ironswan run --config /etc/ironswan >/run/ironswan.log 2>&1 &')
    until('the tunnel is up', lambda: 'branch  up' in shell.type('ironswan status 2>&1 || true'), 20, 0.3)
    faults = []
    for command, pattern, *status in TYPED:
        words = re.sub('|'.join(rf'(?<![\w-]){re.escape(word)}(?![\w-])' for word in FILL), lambda m: FILL[m[0]], command)
        said = shell.type(f'{words} 2>&1 || echo "-- status $?"')
        *said, ended = re.split(r'-- status (\d+)\n', said)[:2] if '-- status ' in said else (said, '0')
        want = status[0] if status else 0
        if int(ended) != want or not re.search(pattern, said[0]):
            faults.append(f'{found[command]}: {words}: exit status {ended} (not {want}?), or no {pattern!r} in\n{said[0]}')
    check(not faults, f'{len(TYPED)} commands do what the pages say' + ''.join(f'\n{fault}' for fault in faults))
    for command in NAMED:
        *name, option = command.split() if '--' in command else (*command.split(), '')
        check(option in shell.type(f'{" ".join(name)} --help'), f'{command} is there')
    # The answers that the pages show have the lines that these commands print.
    for heading, command, labels in SHOWN:
        page = read('troubleshooting.md') + read('operations.md')
        words = re.findall(labels, page.split(heading, 1)[1].split('```')[1], re.M)
        check(len(words) > 3, f'the answer of `{command}` in the page has {", ".join(words)}')
        if command.startswith(PACKET):
            peer.stop()
            until('the tunnel is down', lambda: 'up ' not in shell.type('ironswan status branch || true').split('lan')[-1], 20, 0.3)
        said = re.findall(labels, shell.type(f'{command} 2>&1 || true'), re.M)
        check(said == words, f'and so has the command: {", ".join(said)}')


main({f.__name__: f for f in (operators_commands,)}, 'manual')
