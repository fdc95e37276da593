#!/usr/bin/env python3
"""`ironswan top` beside real traffic: its rates agree with what is sent, its pages fit a terminal, and the terminal is as before afterwards."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

from gateway import IronSwan, program, tunnel
from lab import Failed, check, main, until
from traffic import Numbered

LINES, COLUMNS = 24, 80
# Packets a second each way, and bytes of each: the payload of UDP, which IP and UDP make longer.
RATE, SIZE, HEADERS = 400, 972, 28
# Packets a second with an SPI that is nobody's.
STRAY_RATE = 100
STRAY = f'''
import socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begun, n = time.monotonic(), 0
while True:
    n += 1
    s.sendto(struct.pack("!II", 0x12345678, n) + bytes(64), ("192.0.2.1", 4500))
    time.sleep(max(0, begun + n / {STRAY_RATE} - time.monotonic()))
'''
# A connection to a peer that does not exist.
DOWN = """
  branch7 {
    local_addrs = 192.0.2.1
    remote_addrs = 192.0.2.77
    local {
      auth = psk
      id = g1.example
    }
    remote {
      auth = psk
      id = g7.example
    }
    children {
      lan {
        local_ts = 10.1.0.0/24
        remote_ts = 10.7.0.0/24
        start_action = start
      }
    }
  }
"""
# xterm's other screen, the cursor, and lines that are cut: on, and as before.
ENTERED, LEFT = '\x1b[?1049h\x1b[?25l\x1b[?7l', '\x1b[?7h\x1b[?25h\x1b[?1049l'


class Terminal:
    """`top` on a terminal of its own: what it writes, and what the terminal is set to."""

    def __init__(self, *args, **env):
        self.own, side = pty.openpty()
        self.resize(LINES, COLUMNS)
        self.before, self.text, self.seen = termios.tcgetattr(side), '', 0
        self.popen = subprocess.Popen([program(), 'top', *args], stdin=side, stdout=side, stderr=side, env={**os.environ, 'TERM': 'xterm', **env},
                                      preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
        self.side = side

    def resize(self, lines, columns):
        fcntl.ioctl(self.own, termios.TIOCSWINSZ, struct.pack('HHHH', lines, columns, 0, 0))

    def read(self):
        """All it has written."""
        while select.select([self.own], [], [], 0.05)[0]:
            self.text += os.read(self.own, 65536).decode()
        return self.text

    def pages(self):
        """The pages that are drawn whole, each a list of lines without colours."""
        drawn = self.read().removesuffix(LEFT).split('\x1b[H')[1:]
        return [[re.sub(r'\x1b\[[0-9;]*[mK]', '', line) for line in page.split('\r\n')] for page in drawn]

    def page(self, *words, lines=LINES, timeout=12):
        """The first page with these words in it that was drawn after the one that was asked for before."""
        def there():
            self.ended('a page is drawn', False)
            pages = self.pages()
            at = next((n for n in range(self.seen, len(pages)) if len(pages[n]) == lines and all(w in '\n'.join(pages[n]) for w in words)), None)
            if at is None:
                return None
            self.seen = at + 1
            return pages[at]

        try:
            return until(f'a page with {words}', there, timeout)
        except Failed as why:
            raise Failed('\n'.join([str(why), *(self.pages() or [[]])[-1]])) from None

    def ended(self, what, wanted=True):
        if (self.popen.poll() is not None) != wanted:
            raise Failed(f'{what}: exit status {self.popen.poll()}:\n{self.read()}')

    def restored(self, what, status=0):
        """It has ended, and the terminal is as it was."""
        begun = time.monotonic()
        try:
            self.popen.wait(5)
        except subprocess.TimeoutExpired:
            self.popen.kill()
        took, text = time.monotonic() - begun, self.read()
        same = termios.tcgetattr(self.side) == self.before
        check(self.popen.returncode == status and same and text.count(ENTERED) == 1 and text.count(LEFT) == 1 and LEFT in text[-len(LEFT) - 200:],
              f'{what}: it ends with {self.popen.returncode} after {took:.1f} s, settings {"as before" if same else "CHANGED"}, screen of before')
        self.close()

    def close(self):
        for end in (self.own, self.side):
            os.close(end)


def line(lab):
    """A tunnel with numbered packets both ways, stray packets beside it, and a connection that stays down."""
    lab.line()
    text = tunnel('g1')
    at = text.index('connections {') + len('connections {')
    g1 = IronSwan(lab, 'g1').start(text[:at] + DOWN + text[at:])
    IronSwan(lab, 'g2').start(tunnel('g2'))
    g1.initiate()
    return g1


def about(value, wanted, part=0.15):
    return abs(value - wanted) <= part * wanted


def rates_and_losses(lab, full):
    """`--once` and `--json`: rates are those of the senders, losses have their reason, in a pipe and without a terminal."""
    g1 = line(lab)
    uri = f'unix://{g1.socket}'
    traffic = Numbered(lab, rate=RATE, size=SIZE)
    lab.spawn('g2', sys.executable, '-c', STRAY, name='stray')
    time.sleep(1)
    document = json.loads(lab.run('g1', program(), 'top', '--json', '--vici', uri))
    bits = 8 * RATE * (SIZE + HEADERS)
    for row in (document['sum'], next(t for t in document['tunnels'] if t['name'] == 'net/net')):
        check(all(about(row[f'packets_{way}'], RATE) and about(row[f'bits_{way}'], bits) for way in ('in', 'out')),
              f'{RATE} packets and {bits} bits are sent each second each way: {row}')
    drops = {d['reason']: d['rate'] for d in document['drops']}
    check(about(document['lost'], STRAY_RATE, 0.25) and about(drops.get('InNoStates', 0), STRAY_RATE, 0.25),
          f"{STRAY_RATE} stray packets a second are lost: {drops}")
    work = {t['name']: t['use'] for t in document['threads']}
    check('control' in work and any(use > 0 for name, use in work.items() if name.startswith('ipsec-data-')), f'threads work: {work}')
    check(document['schema'] == 'ironswan.top/1' and [d['name'] for d in document['down']] == ['branch7/lan'], f"down: {document['down']}")

    def told():
        return json.loads(lab.run('g1', program(), 'top', '--json', '--vici', uri))['latest']

    latest = until('the peer that does not exist is told', told)
    check(latest[0]['about'] == 'branch7' and '192.0.2.77' in latest[0]['why'] and latest[0]['ago'] < 10, f'the latest diagnosis: {latest[0]}')
    page = lab.run('g1', program(), 'top', '--once', '--vici', uri, env={k: v for k, v in os.environ.items() if k != 'TERM'})
    lines = page.splitlines()
    check(len(lines) <= LINES and max(map(len, lines)) <= COLUMNS and '\x1b' not in page and
          re.search(r'^net/net +3\.\dM +[34]\d\d +3\.\dM +[34]\d\d$', page, re.M) and re.search(r'^InNoStates +\d', page, re.M)
          and '\nDOWN\nbranch7/lan: ' in page, f'the page of --once:\n{page}')
    # Nobody sees a page change that goes to a pipe.
    check(lab.run('g1', program(), 'top', '--vici', uri).count('TUNNEL') == 1, 'without a terminal it is one page')
    report = traffic.end()
    check(all(r['lost'] == 0 for r in report.values()), f"nothing is lost: {[r['sent'] for r in report.values()]} sent")


def on_a_terminal(lab, full):
    """Pages on a terminal of 24 lines: keys, another size, a gateway that goes and comes again; and each way to end leaves the terminal whole."""
    g1 = line(lab)
    uri = f'unix://{g1.socket}'
    traffic = Numbered(lab, rate=RATE, size=SIZE)
    top = Terminal('--interval', '1', '--vici', uri)
    first = top.page('net/net', 'DOWN', 'branch7/lan: ', f'\n{"q ends"}', '3.2M')
    check(max(map(len, first)) <= COLUMNS and first[-1].startswith('q ends') and '\x1b[31m' in top.text, 'a page:\n' + '\n'.join(first).rstrip())
    os.write(top.own, b'p')
    top.page('(paused)')
    os.write(top.own, b' ')
    top.resize(30, 100)
    top.page('net/net', lines=30)
    top.resize(LINES, COLUMNS)
    # The gateway goes, and comes again with counters that begin anew.
    g1.stop()
    top.page('no answer for', 'no gateway answers at', 'start `ironswan run`', 'net/net')
    with open(f'{g1.config}/swanctl.conf') as f:
        g1.start(f.read())
    g1.initiate()
    back = top.page('net/net', '3.2M', ' seconds; ', timeout=20)
    check(back[0].startswith('ironswan '), 'a gateway that was started again is found:\n' + '\n'.join(back[:5]))
    os.write(top.own, b'q')
    top.restored('q')
    for what, end in (('Ctrl-C', lambda t: os.write(t.own, b'\x03')), ('Escape', lambda t: os.write(t.own, b'\x1b')),
                      ('SIGTERM', lambda t: t.popen.terminate()), ('SIGHUP', lambda t: t.popen.send_signal(signal.SIGHUP))):
        top = Terminal('--vici', uri, NO_COLOR='1')
        top.page('net/net', timeout=5)
        if re.search(r'\x1b\[[0-9;]+m', top.text):
            check(False, f'NO_COLOR: {top.text!r}')
        end(top)
        top.restored(what)
    # A terminal that is closed.
    top = Terminal('--vici', uri)
    top.page('net/net', timeout=5)
    top.close()
    until('it ends with its terminal', lambda: top.popen.poll() is not None, 5)
    # A gateway that hangs does not hold keys up.
    top = Terminal('--interval', '1', '--vici', uri)
    top.page('net/net', timeout=5)
    g1.process.send(signal.SIGSTOP)
    try:
        top.page('no answer for', 'it takes its time')
        os.write(top.own, b'\x03')
        top.restored('Ctrl-C while the gateway hangs')
    finally:
        g1.process.send(signal.SIGCONT)
    traffic.end()


if __name__ == '__main__':
    main({f.__name__: f for f in (rates_and_losses, on_a_terminal)}, 'top')
