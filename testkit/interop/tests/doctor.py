#!/usr/bin/env python3
"""`ironswan doctor` on machines with something in the way: it names the thing and a remedy, and the remedy helps. As root and as nobody."""
import json
import os
import re
import sys

from gateway import Charon, IronSwan, program, tunnel
from lab import call, check, main, need, until
from traffic import ping

# A line of text fits this.
COLUMNS = 80
# Takes both UDP ports of IKE for as long as it runs.
HOLDER = """
import socket, time
held = []
for port in (500, 4500):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('192.0.2.1', port))
    held.append(s)
print('bound', flush=True)
time.sleep(600)
"""
# A flowtable as `nft -n list ruleset` shows it.
FLOWTABLE = """table inet fast {
	flowtable f {
		hook ingress priority 0
		devices = { lan, wan }
	}

	chain c {
		type filter hook forward priority 0; policy accept;
		meta l4proto { 6, 17 } flow add @f
	}
}
"""
# An nft whose kernel has this flowtable beside what the real one lists. `$0` is the real program.
WITH_FLOWTABLE = """#!/bin/sh
"{nft}" "$@" || exit
case "$*" in *ruleset*) cat "{listing}" ;; esac
"""


class Doctor:
    """The command in a box, with a configuration of its own."""

    def __init__(self, lab, text, box='g1', settings=''):
        self.lab, self.box = lab, box
        self.folder = os.path.dirname(lab.write(f'{box}-doctor/swanctl.conf', text))
        lab.write(f'{box}-doctor/ironswan.conf', f'qcd_secret = {lab.path("qcd/secret")}\n{settings}')
        os.makedirs(lab.path('qcd'), exist_ok=True)
        self.socket = lab.path(f'{box}.vici')
        self.before, self.env, self.program = (), None, program()

    def run(self, *args):
        return self.lab.run(self.box, *self.before, self.program, 'doctor', '--config', self.folder, '--vici', f'unix://{self.socket}',
                            *args, fail=False, env=self.env)

    def look(self):
        """All checks. The exit status and the text say the same as the document."""
        done = self.run('--json')
        document = json.loads(done.stdout)
        found = document['checks']
        count = {verdict: sum(c['verdict'] == verdict for c in found) for verdict in ('problem', 'warning', 'unknown')}
        told = {'problem': document['problems'], 'warning': document['warnings'], 'unknown': document['unknown']}
        if document['schema'] != 'ironswan.doctor/1' or count != told or done.returncode != (1 if count['problem'] else 0):
            check(False, f'schema, numbers and exit status {done.returncode}: {done.stdout}')
        return found

    def of(self, name):
        return [c for c in self.look() if c['name'] == name]

    def expect(self, name, verdict, *words):
        """The check of this name comes out so, and its texts have these words; returns it."""
        all_ = self.of(name)
        fitting = [c for c in all_ if c['verdict'] == verdict and all(w in f"{c['what']} {c['remedy']}" for w in words)]
        check(fitting, f"{name} is {verdict}: {fitting[0]['what'] if fitting else all_}")
        page = self.run().stdout
        lines = page.splitlines()
        if any(len(line) > COLUMNS for line in lines) or '\x1b' in page or not re.search(rf'^{verdict} +{name} ', page, re.M):
            check(False, f'{COLUMNS} columns, no colour, and a line for it:\n{page}')
        return fitting[0]

    def obey(self, found, begin=''):
        """Runs the commands of a remedy that begin so."""
        commands = [c for c in re.findall(r'`([^`]*)`', found['remedy']) if c.startswith(begin)]
        check(commands, f"the remedy has a command: {found['remedy']}")
        for command in commands:
            self.lab.run(self.box, 'sh', '-c', command)

    def mended(self, name, begin='', was=None, verdict='problem', words=()):
        """Finds it, does what the text says, and finds it no more."""
        self.obey(was or self.expect(name, verdict, *words), begin)
        after = self.of(name)
        check(all(c['verdict'] == 'ok' for c in after), f"and its remedy helps: {after[0]['what']}")


def what_the_kernel_does(lab, full):
    """Forwarding, the check of the way back, MTU: each named, each mended by its own remedy, and at the end no problem."""
    lab.line()
    doctor = Doctor(lab, tunnel('g1', remote_ts='10.2.0.0/24[tcp/80]'))
    healthy = doctor.look()
    check(not any(c['verdict'] == 'problem' for c in healthy), f'a machine that is fit has no problem: {len(healthy)} checks')
    for name in ('daemon', 'clock', 'entropy', 'processor', 'engines', 'tun', 'udp-offload', 'mtu', 'forwarding', 'rp_filter', 'ports',
                 'other-daemons', 'kernel-ipsec', 'nft', 'flowtables', 'firewall'):
        check(sum(c['name'] == name for c in healthy) == 1, f'{name} is looked at')
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.ip_forward=0')
    doctor.mended('forwarding', words=('does not forward', 'net.net', '10.1.0.0/24'))
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.conf.wan.forwarding=0')
    doctor.mended('forwarding', verdict='warning', words=('wan passes no IPv4 on',))
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.conf.all.rp_filter=1')
    doctor.mended('rp_filter', words=('rp_filter is 1', 'net.net', 'wrong interface'))
    lab.ip('g1', 'link', 'set', 'wan', 'mtu', '1000')
    doctor.expect('mtu', 'warning', '1000 at wan', 'IPv6 needs 1280')
    lab.ip('g1', 'link', 'set', 'wan', 'mtu', '500')
    doctor.mended('mtu', words=('500 at wan', 'carry nothing'))
    check(not any(c['verdict'] == 'problem' for c in doctor.look()), 'at the end nothing is a problem')


def ports_of_others(lab, full):
    """Another process, then charon, has the ports: named with its number; charon is named as an IKE daemon, too."""
    lab.line()
    doctor = Doctor(lab, tunnel('g1'))
    other = lab.spawn('g1', sys.executable, '-c', HOLDER, name='holder')
    until('it has the ports', lambda: 'bound' in other.log())
    found = doctor.expect('ports', 'problem', 'UDP 500 at 192.0.2.1', f'(process {other.pid})', 'python3')
    doctor.expect('ports', 'problem', 'UDP 4500', f'(process {other.pid})')
    doctor.obey(found, 'kill')
    until('it has ended', lambda: not other.alive())
    doctor.expect('ports', 'ok', 'are free')
    charon = Charon(lab, 'g1').start()
    # The answers there come from charon's VICI, of which the command knows nothing.
    doctor.socket = lab.path('nobody.vici')
    for port in (500, 4500):
        doctor.expect('ports', 'problem', f'UDP {port} at', f'charon-systemd (process {charon.process.pid})', 'systemctl stop strongswan')
    doctor.expect('other-daemons', 'warning', 'another IKE daemon runs here', f'charon-systemd (process {charon.process.pid})')
    elsewhere = Doctor(lab, tunnel('g2'), box='g2')
    elsewhere.expect('other-daemons', 'ok', 'no other')
    elsewhere.expect('ports', 'ok', 'are free')
    nobody(lab, doctor)
    doctor.expect('ports', 'problem', 'UDP 500', 'only root may see its process')
    doctor.expect('other-daemons', 'unknown', f'charon-systemd (process {charon.process.pid})', 'only root')
    doctor.before = ()
    charon.stop()
    doctor.expect('ports', 'ok', 'are free')
    doctor.expect('other-daemons', 'ok', 'no other')


def rules_of_others(lab, full):
    """Chains that drop, a flowtable, policies in the kernel's IPsec: each named, and each mended by its own remedy."""
    lab.line()
    doctor = Doctor(lab, tunnel('g1'))
    lab.run('g1', 'nft', 'add table inet fw; add chain inet fw input { type filter hook input priority 0; policy drop; }; '
            'add rule inet fw input ct state established,related accept; add rule inet fw input tcp dport 22 accept')
    doctor.mended('firewall', verdict='warning', words=('likely', 'inet fw input', 'UDP 500, UDP 4500, ESP', 'that arrive'))
    lab.run('g1', 'nft', 'add chain inet fw out { type filter hook output priority 0; }; add rule inet fw out udp dport 4500 counter drop')
    doctor.mended('firewall', verdict='warning', words=('inet fw out', 'UDP 4500', 'that leave'))
    lab.run('g1', 'nft', 'add chain inet fw passed { type filter hook forward priority 0; policy drop; }; '
            'add rule inet fw passed iifname lan accept')
    found = doctor.expect('firewall', 'warning', 'inet fw passed', 'come out of a tunnel')
    doctor.mended('firewall', was=found)
    lab.ip('g1', 'xfrm', 'policy', 'add', 'src', '10.1.0.0/24', 'dst', '10.2.0.0/24', 'dir', 'out', 'tmpl', 'src', '192.0.2.1', 'dst',
           '192.0.2.2', 'proto', 'esp', 'mode', 'tunnel')
    doctor.mended('kernel-ipsec', verdict='warning', words=('policies (1)', '10.1.0.0/24 => 10.2.0.0/24', 'do not reach a tunnel'))
    made = lab.run('g1', 'nft', '-f', lab.write('flowtable', FLOWTABLE), fail=False)
    if made.returncode:
        # This kernel has no flowtables: another program says that there is one.
        nft = next(path for folder in os.environ['PATH'].split(':') + ['/usr/sbin', '/sbin'] if os.access(path := f'{folder}/nft', os.X_OK))
        lab.write('bin/nft', WITH_FLOWTABLE.format(nft=nft, listing=lab.path('flowtable')), 0o755)
        doctor.env = {**os.environ, 'PATH': f"{lab.path('bin')}:{os.environ['PATH']}"}
    found = doctor.expect('flowtables', 'problem', 'flow add @f', 'inet fast c', 'past the guard')
    condition = next(c for c in re.findall(r'`([^`]*)`', found['remedy']) if c.startswith('iifname'))
    exempt = FLOWTABLE.replace('meta l4proto', f'{condition} meta l4proto')
    if made.returncode:
        lab.write('flowtable', exempt)
    else:
        lab.run('g1', 'nft', 'delete table inet fast')
        lab.run('g1', 'nft', '-f', lab.write('flowtable', exempt))
    doctor.expect('flowtables', 'ok', 'leave the flows of ipsec0 alone')


def with_a_daemon(lab, full):
    """A daemon is asked: its ports and processes are its own, its peers and policies those that VICI has loaded."""
    lab.line()
    us, them = IronSwan(lab, 'g1').start(), IronSwan(lab, 'g2').start(tunnel('g2'))
    doctor = Doctor(lab, '# empty\n')
    doctor.expect('daemon', 'ok', 'runs as process')
    doctor.expect('ports', 'ok', "are the daemon's")
    doctor.expect('privileges', 'ok', 'system calls filtered')
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.ip_forward=0', 'net.ipv6.conf.all.forwarding=0')
    doctor.expect('forwarding', 'warning', "this machine's own packets")
    us.load(tunnel('g1'))
    doctor.mended('forwarding', words=('does not forward', 'net.net'))
    us.initiate()
    doctor.expect('nat', 'ok', 'no IKE_SA is behind a NAT here')
    check(not any(c['verdict'] == 'problem' for c in doctor.look()), 'nothing is a problem')
    ping(lab)
    them.stop()
    us.stop()
    doctor.expect('daemon', 'ok', 'none runs here')


def configurations(lab, full):
    """A configuration with an error, none at all, a name that no resolver knows, a clock that is behind the files."""
    lab.line()
    doctor = Doctor(lab, tunnel('g1').replace('192.0.2.2', 'no-such-name.invalid'))
    doctor.expect('resolver', 'problem', 'no-such-name.invalid', 'getent ahosts')
    doctor = Doctor(lab, tunnel('g1').replace('encap = yes', 'encap = perhaps'))
    doctor.expect('configuration', 'problem', 'error(s)', f'ironswan check {doctor.folder}')
    doctor = Doctor(lab, tunnel('g1'))
    doctor.expect('configuration', 'ok', '1 connection')
    later = call('date', '-d', '+2 days', '+%s').strip()
    os.utime(os.path.join(doctor.folder, 'swanctl.conf'), (int(later), int(later)))
    doctor.expect('clock', 'problem', 'behind the newest file', 'timedatectl set-ntp')
    doctor.folder = lab.path('nowhere')
    doctor.expect('configuration', 'warning', 'not read', '--config')
    # What cannot be made where it belongs.
    doctor.socket = '/proc/self/none/x.vici'
    doctor.expect('folders', 'problem', '/proc/self/none')


def nobody(lab, doctor):
    """The command as a user without rights: the same program, where everybody may run it."""
    need('setpriv')
    os.chmod(lab.dir, 0o711)
    doctor.program = lab.path('ironswan')
    call('cp', program(), doctor.program)
    os.chmod(doctor.program, 0o755)
    doctor.before = ('setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups')


def without_root(lab, full):
    """Nobody sees less, is told so for each check, and finds no problem where there is none."""
    lab.line()
    doctor = Doctor(lab, tunnel('g1'))
    nobody(lab, doctor)
    for name in ('tun', 'kernel-ipsec', 'nft', 'flowtables', 'firewall', 'privileges'):
        doctor.expect(name, 'unknown', 'not checked', 'root')
    check(not any(c['verdict'] == 'problem' for c in doctor.look()), 'what is not seen is no problem')
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.ip_forward=0', 'net.ipv6.conf.all.forwarding=0')
    doctor.expect('forwarding', 'warning', 'own packets')


TESTS = {f.__name__: f for f in (what_the_kernel_does, ports_of_others, rules_of_others, with_a_daemon, configurations, without_root)}
if __name__ == '__main__':
    main(TESTS, 'doctor')
