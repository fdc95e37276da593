"""Traffic between the hosts a and b of the line: numbered UDP both ways, iperf3, ping; and ears on the outer link."""
import json
import os
import signal
import subprocess
import sys

from lab import HERE, Failed, check, until
from leakline import INNER, Helper


def begin_together(senders):
    """Lets programs that print `ready` and wait for a line begin at the same time."""
    for sender in senders:
        if sender.popen.stdout.readline() != 'ready\n':
            raise Failed(f'the packet sender did not start: {sender.log()}')
    for sender in senders:
        sender.popen.stdin.write('go\n')
        sender.popen.stdin.flush()


class Numbered:
    """Numbered packets both ways at once; `end()` says what each direction lost."""

    def __init__(self, lab, a='10.1.0.2', b='10.2.0.2', rate=1000, size=100, port=7000):
        self.ends = {}
        for box, local, remote in (('b', b, a), ('a', a, b)):
            self.ends[box] = lab.spawn(box, sys.executable, os.path.join(HERE, 'numbered.py'), local, remote, '--rate',
                                       rate, '--size', size, '--port', port, name='numbered', stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        begin_together(self.ends.values())

    def end(self):
        for end in self.ends.values():
            end.popen.stdin.close()
        report = {}
        for box, end in self.ends.items():
            report[box] = json.loads(end.popen.stdout.readline())
            end.popen.wait()
        a, b = report['a'], report['b']
        return {'a to b': {**b, 'sent': a['sent'], 'unsent': a['unsent'], 'lost': a['sent'] - b['received']},
                'b to a': {**a, 'sent': b['sent'], 'unsent': b['unsent'], 'lost': b['sent'] - a['received']}}


def check_no_loss(report, at_least=100):
    """Nothing that `Numbered` reports is lost, doubled or changed."""
    for way, r in report.items():
        text = (f"{way}: {r['sent']} sent, {r['received']} received, {r['lost']} lost, {r['duplicates']} twice, "
                f"{r['reordered']} reordered, {r['corrupt']} corrupt; longest gap {r['longest_gap_ms']} ms, "
                f"delay median {r['delay_ms_median']} ms, max {r['delay_ms_max']} ms")
        if r['missing']:
            text += f"; first missing {r['missing']}"
        check(r['sent'] >= at_least and not r['unsent'] and not r['lost'] and not r['duplicates']
              and not r['corrupt'], text)


class Iperf:
    """One iperf3 stream from a to b, for `seconds` or until it is stopped."""

    def __init__(self, lab, *args, seconds=600, to='10.2.0.2', port=5201):
        self.server = lab.spawn('b', 'iperf3', '-s', '-1', '-p', port, name='iperf3-server')
        until('iperf3 listens', lambda: str(port) in lab.run('b', 'ss', '-Hltn'))
        self.seconds = seconds
        self.client = lab.spawn('a', 'iperf3', '-J', '-c', to, '-p', port, '-t', seconds, *args, name='iperf3')

    def stop(self):
        self.client.stop(signal.SIGINT)
        self.server.stop()

    def report(self):
        """Waits for the end; iperf3's own sums."""
        self.client.popen.wait(self.seconds + 20)
        self.server.popen.wait(10)
        text = self.client.log()
        report = json.loads(text[text.index('{'):text.rindex('}') + 1])
        if 'error' in report:
            raise Failed(f"iperf3: {report['error']}")
        return report['end']['sum']


class Ears:
    """Hears every frame on the outer link of the line, at g2's end, but ESP that g2 takes by AF_XDP."""

    def __init__(self, lab):
        outer = [f'{net}{n}' for net in ('192.0.2.', '2001:db8::') for n in (1, 2)]
        spec = lab.write('ears.json', json.dumps({'kinds': [], 'nets': INNER, 'outer': outer}))
        self.helper = Helper(lab, 'g2', 'sniff.py', spec, 'wan').ready()

    def check(self, what):
        """None was in clear since the last time this was asked."""
        self.helper.ask()
        heard = self.helper.answer()
        if heard['dropped']:
            raise Failed(f"{what}: the ears are deaf: the kernel dropped {heard['dropped']} frames")
        check(not heard['clear'] and heard['frames'] > 0,
              f"{what}: {heard['frames']} frames on the outer link, in clear: {heard['clear'] or 'none'}")

    def end(self, what):
        self.check(what)
        self.helper.process.stop()


def own_losses(lab, box):
    """What a gateway's kernel dropped before or after the gateway: full socket buffers, full queue of ipsec0."""
    sockets = sum(int(line.split()[-1]) for version in ('udp', 'udp6')
                  for line in lab.run(box, 'cat', f'/proc/net/{version}').splitlines()[1:])
    queue = int(lab.run(box, 'cat', '/sys/class/net/ipsec0/statistics/tx_dropped'))
    return sockets + queue


def full_sockets(lab, box):
    """Datagrams over IPv4 that a host's kernel dropped because its programs did not fetch what they had, also of closed sockets."""
    names, values = (line.split() for line in lab.run(box, 'cat', '/proc/net/snmp').splitlines() if line.startswith('Udp:'))
    return int(dict(zip(names, values))['RcvbufErrors'])


def ping(lab, box='a', to='10.2.0.2', count=3, size=56, fragment=True, wait=2, fail=True):
    args = ['ping', '-n', '-q', '-c', count, '-i', '0.2', '-W', wait, '-s', size]
    if not fragment:
        args += ['-M', 'do']
    return lab.run(box, *args, to, fail=fail, timeout=count * (wait + 1) + 10)
