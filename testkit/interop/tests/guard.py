#!/usr/bin/env python3
"""The guard in a bad world: nft missing, old or broken, other programs' routes and rules, settings that are in the way,
rules that someone removes, and no daemon at all.

usage: testkit/interop/run [--full] guard[.TEST]
"""
import json
import os
import re
import signal
import sys
import time

from daemon import config, run_args, start_fails
from gateway import IronSwan, program, tunnel
from lab import HERE, check, main, need, until
from traffic import ping

TABLE = ('nft', 'list', 'table', 'inet', 'ironswan')
# The file is not a program then; `ip netns exec` has a mount namespace of its own.
HIDDEN = ('sh', '-c', 'for f in /usr/sbin/nft /sbin/nft /usr/local/sbin/nft; do [ ! -e $f ] || mount --bind /dev/null $f; done; '
          'exec "$@"', 'sh')
# Where nobody's daemon listens.
NOBODY = ('--vici', 'unix:///var/tmp/ironswan-nobody.vici')


def gateway(lab, **kw):
    """g1 of the line alone: its tunnel is loaded and never comes up."""
    need('ip', 'nft', 'ping')
    lab.line()
    return IronSwan(lab, 'g1').start(tunnel('g1'), **kw)


def daemon(lab, box, before=(), settings='', env=None):
    """The gateway of a box, run by another program or with another environment."""
    g = IronSwan(lab, box)
    g.config = os.path.dirname(lab.write(f'{box}-etc/swanctl.conf', tunnel(box)))
    if settings:
        lab.write(f'{box}-etc/ironswan.conf', settings)
    g.process = lab.spawn(box, *before, program(), 'run', '--config', g.config, '--vici', f'unix://{g.socket}',
                          name='ironswan', private_run=True, env=env, state=g.make_state())
    until(f'IronSwan in {box} answers', g.answers)
    return g


def guard(lab, *args, box='g1', before=(), fail=True, env=None):
    """`ironswan guard` in a box; its output."""
    environment = {**os.environ, **env} if env else None
    return lab.run(box, *before, program(), 'guard', *args, fail=fail, **({'env': environment} if env else {}))


def shown(lab, *args):
    return json.loads(guard(lab, '--json', *args))


def stands(lab, box='g1'):
    return lab.run(box, *TABLE, fail=False).returncode == 0


def rules(lab, box='g1'):
    """Our rules, both families."""
    out = []
    for family in ('-4', '-6'):
        out += [line for line in lab.run(box, 'ip', family, 'rule').splitlines() if re.match('(219|220):', line)]
    return out


def routes(lab, box='g1'):
    """Routes of table 220; before its first one the kernel has no such table."""
    done = lab.run(box, 'ip', 'route', 'show', 'table', '220', fail=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def clear_ping(lab, to='10.2.0.2', box='a'):
    """Whether a ping gets through; nothing is there to encrypt it."""
    return lab.run(box, 'ping', '-c', '2', '-i', '0.2', '-W', '1', to, fail=False).returncode == 0


def fake_nft(lab, script, name='fake'):
    """PATH with a program `nft` in front."""
    path = lab.write(f'{name}/nft', '#!/bin/sh\n' + script + '\n', 0o755)
    return {'PATH': os.path.dirname(path) + ':' + os.environ['PATH']}


RIGHT = '''if [ "$1" = --version ]; then echo "nftables v1.0.6 (Lester Gooch #5)"; exit; fi
if [ "$1" = list ]; then echo "Error: No such file or directory" >&2; exit 1; fi
'''
BROKEN = RIGHT + 'cat > /dev/null; echo "/dev/stdin:1:1-5: Error: Could not process rule: Cannot allocate memory" >&2; exit 1'


def install_fails(lab, folder, *words, before=(), env=None):
    done = guard(lab, '--install', '--config', folder, *NOBODY, before=before, fail=False, env=env)
    check(done.returncode == 2, f'--install: exit status {done.returncode}: {done.stdout.strip()}')
    missing = [w for w in words if w not in done.stdout]
    check(not missing, f'it names {", ".join(words)}' + (f'; missing {missing}' if missing else ''))


def missing_nft_is_named(lab, full):
    """Not installed: said at start with the package and the way to run without; which then works."""
    lab.line()
    folder = config(lab, tunnel('g1'))
    words = ('nft', 'package nftables', 'guard = no', 'ironswan.conf')
    install_fails(lab, folder, *words, before=HIDDEN)
    start_fails(lab, run_args(lab, folder), *words, before=HIDDEN)
    check(not routes(lab) and not rules(lab), f'nothing is left of the start that failed: {routes(lab)} {rules(lab)}')
    without = config(lab, tunnel('g1'), 'without')
    lab.write('without/ironswan.conf', 'guard = no\n')
    guard(lab, '--install', '--config', without, *NOBODY, before=HIDDEN)
    check(all('suppress' not in r and '0x220' in r for r in rules(lab)) and len(rules(lab)) >= 1,
          f'guard = no installs the rule alone: {rules(lab)}')
    check(any('unreachable 10.2.0.0/24' in r for r in routes(lab)), f'and the unreachable route: {routes(lab)}')
    check(not clear_ping(lab), 'nothing leaves in clear for the network that is to be protected')
    report = json.loads(guard(lab, '--json', *NOBODY, before=HIDDEN))
    check('package nftables' in report['nft_error'] and report['rules'], 'what stands is shown without nft too')
    guard(lab, '--remove', *NOBODY, before=HIDDEN)
    check(not routes(lab) and not rules(lab), 'and removed')
    g1, g2 = (daemon(lab, box, HIDDEN, 'guard = no\n') for box in ('g1', 'g2'))
    g1.initiate()
    ping(lab)
    check(not stands(lab), 'a tunnel carries traffic with guard = no, and there is no nft table')
    g2.process.stop()
    check(not clear_ping(lab), 'while it is loaded, nothing leaves in clear when it is down')


def old_nft_is_refused(lab, full):
    lab.line()
    folder = config(lab, tunnel('g1'))
    env = fake_nft(lab, 'echo "nftables v0.8.2 (Joe Btfsplk)"')
    words = ('0.8.2', '0.9.3', lab.path('fake/nft'), 'guard = no')
    install_fails(lab, folder, *words, env=env)
    start_fails(lab, run_args(lab, folder), *words, env={**os.environ, **env})


def failing_nft_keeps_the_daemon_from_starting(lab, full):
    """nft that fails: its words are passed on, nothing is left half done, and the daemon does not start open."""
    lab.line()
    folder = config(lab, tunnel('g1'))
    env = fake_nft(lab, BROKEN)
    install_fails(lab, folder, 'Cannot allocate memory', 'nft refused', env=env)
    start_fails(lab, run_args(lab, folder), 'Cannot allocate memory', 'nft refused', env={**os.environ, **env})
    env = fake_nft(lab, 'exit 127', 'dead')
    install_fails(lab, folder, 'version', 'package nftables', env=env)


def nft_that_breaks_later_opens_nothing(lab, full):
    """nft fails while the daemon runs: said, nothing opens, and what was removed comes back when it works again."""
    lab.line()
    for box, net, gw in (('g1', '10.2.0.0/24', '192.0.2.2'), ('g2', '10.1.0.0/24', '192.0.2.1')):
        lab.ip(box, 'route', 'add', net, 'via', gw)
    mark = lab.path('broken')
    real = next(p for p in ('/usr/sbin/nft', '/sbin/nft', '/usr/local/sbin/nft') if os.path.exists(p))
    env = fake_nft(lab, f'[ ! -e {mark} ] || {{ echo "Error: Could not process rule: Cannot allocate memory" >&2; exit 1; }}\n'
                        f'exec {real} "$@"')
    g1 = daemon(lab, 'g1', env=env)
    check(stands(lab), 'it stands')
    lab.write('broken', '')
    lab.run('g1', 'nft', 'flush', 'ruleset')
    until('the failure is said', lambda: 'Cannot allocate memory' in g1.log())
    check(True, next(x for x in g1.log().splitlines() if 'Cannot allocate' in x))
    check(not clear_ping(lab), 'nothing goes in clear meanwhile')
    lines = len(g1.log().splitlines())
    time.sleep(3)
    check(len(g1.log().splitlines()) - lines < 10, 'the log is not flooded')
    os.remove(mark)
    until('the table is back', lambda: stands(lab), 5)
    check(True, 'it is back when nft works again')


def nft_that_hangs_is_given_up(lab, full):
    """--full only: an nft that never ends is given up after half a minute."""
    if not full:
        return
    lab.line()
    env = fake_nft(lab, RIGHT + 'exec sleep 1000')
    install_fails(lab, config(lab, tunnel('g1')), 'did not end within 30 s', env=env)


def boot_unit_guards_without_a_daemon(lab, full):
    """The boot unit's way: nothing in clear before any daemon runs, counted; shown and removed without one."""
    lab.line()
    folder = config(lab, tunnel('g1'))
    for box, net, gw in (('g1', '10.2.0.0/24', '192.0.2.2'), ('g2', '10.1.0.0/24', '192.0.2.1')):
        lab.ip(box, 'route', 'add', net, 'via', gw)
    check(clear_ping(lab), 'without a guard it goes in clear')
    guard(lab, '--install', '--config', folder, *NOBODY)
    check(not clear_ping(lab), 'with the guard it does not')
    report = shown(lab, *NOBODY)
    check(report['schema'] == 'ironswan.guard/1' and report['table'] and report['daemon'] is None, 'it is shown, and that no daemon runs')
    line = [p for p in report['policies'] if p['destination'] == '10.2.0.0/24']
    check(len(line) == 1 and line[0]['verdict'] == 'guarded' and '10.1.0.0/24' in line[0]['match'], f'with its policies: {line}')
    text = guard(lab, *NOBODY)
    check('10.2.0.0/24' in text and 'guarded' in text and 'none runs' in text, 'for people, too')
    # Only the table is between the packet and the wire now.
    lab.ip('g1', 'route', 'flush', 'table', '220')
    before = shown(lab, *NOBODY)['out_clear']['packets']
    check(not clear_ping(lab), 'nor with the routes gone')
    dropped = shown(lab, *NOBODY)['out_clear']['packets']
    check(dropped > before, f'the drops are counted: {dropped}')
    lab.run('b', 'ping', '-c', '2', '-i', '0.2', '-W', '1', '10.1.0.2', fail=False)
    check(shown(lab, *NOBODY)['in_clear']['packets'] > 0, 'what comes in clear is dropped and counted')
    guard(lab, '--install', '--config', folder, *NOBODY)
    again = shown(lab, *NOBODY)
    check(again['out_clear']['packets'] >= dropped, 'installed again: the counters go on')
    check(sum('10.2.0.0/24' in r for r in again['routes']) == 1 and len(again['rules']) == len(set(again['rules'])), 'nothing is there twice')
    lab.run('g1', 'nft', 'flush', 'ruleset')
    guard(lab, '--install', '--config', folder, *NOBODY)
    check(stands(lab), 'after a restart of nftables (flush ruleset) --install brings it back')
    lab.ip('g1', 'route', 'add', '10.77.0.0/16', 'via', '192.0.2.2', 'table', '220', 'proto', 'static')
    # Without the program, the kernel deletes the table.
    out = guard(lab, '--remove', *NOBODY, before=HIDDEN)
    check(not stands(lab) and not rules(lab), f'--remove: {out.strip()}')
    check([r.split()[0] for r in routes(lab)] == ['10.77.0.0/16'], 'another program\'s route in table 220 stays')
    check(clear_ping(lab), 'and it goes in clear again')


def bad_configuration_changes_nothing(lab, full):
    """A configuration with an error installs nothing and removes nothing."""
    lab.line()
    folder = config(lab, tunnel('g1'))
    guard(lab, '--install', '--config', folder, *NOBODY)
    bad = config(lab, tunnel('g1').replace('local_ts', 'lokal_ts'), 'bad')
    install_fails(lab, bad, 'lokal_ts', 'swanctl.conf:')
    check(stands(lab) and rules(lab), 'what stood before stands')
    install_fails(lab, lab.path('not-here'), 'not-here')
    done = guard(lab, '--install', '--remove', fail=False)
    check(done.returncode == 2, 'both at once are refused')


def daemon_adopts_what_stands(lab, full):
    """A daemon adopts what stands, keeps it on SIGTERM and kill -9; --remove is refused while it runs."""
    lab.line()
    text = tunnel('g1')
    lab.ip('g2', 'route', 'add', '10.1.0.0/24', 'via', '192.0.2.1')
    guard(lab, '--install', '--config', config(lab, text), *NOBODY)
    g1 = IronSwan(lab, 'g1').start(text)
    vici = ('--vici', f'unix://{g1.socket}')
    check(shown(lab, *vici)['daemon'] == f'unix://{g1.socket}', 'it is shown that a daemon answers')
    done = guard(lab, '--remove', *vici, fail=False)
    check(done.returncode == 1 and 'would put it back' in done.stdout and g1.socket in done.stdout, f'--remove is refused: {done.stdout.strip()}')
    check(stands(lab), 'and changes nothing')
    out = guard(lab, '--install', '--config', g1.config, *vici)
    check('nothing to do' in out, f'--install leaves it to the daemon: {out.strip()}')
    done = guard(lab, '--remove', *NOBODY, fail=False)
    check(done.returncode == 1 and f'process {g1.process.pid}' in done.stdout, f'wherever it listens: {done.stdout.strip()}')
    for number in (signal.SIGTERM, signal.SIGKILL):
        lab.ip('g1', 'route', 'flush', 'table', '220')
        lab.run('b', 'ping', '-c', '2', '-i', '0.2', '-W', '1', '10.1.0.2', fail=False)
        counted = shown(lab, *vici)['in_clear']['packets']
        g1.process.stop(number)
        check(stands(lab) and rules(lab), f'after signal {number} table and rules stand')
        check(any('unreachable 10.2.0.0/24' in r for r in routes(lab)), f'and the unreachable route: {routes(lab)}')
        check(not clear_ping(lab), 'nothing goes in clear')
        g1.start(text)
        now = shown(lab, *vici)['in_clear']['packets']
        check(now >= counted > 0, f'the next start goes on counting from there: {counted} dropped before, {now} after')
    g1.process.stop()
    guard(lab, '--remove', *vici)
    check(not stands(lab) and not rules(lab) and not routes(lab), '--remove takes all away')


def guard_no_removes_what_a_crash_left(lab, full):
    """guard = no after a crash, where nft cannot be run any more: the start takes away what the killed daemon left, says so in one
    line, and clear packets pass. So does --install."""
    lab.line()
    for box, net, gw in (('g1', '10.2.0.0/24', '192.0.2.2'), ('g2', '10.1.0.0/24', '192.0.2.1')):
        lab.ip(box, 'route', 'add', net, 'via', gw)
    open_child = config(lab, tunnel('g1', child='guard = no'), 'open')
    lab.write('open/ironswan.conf', 'guard = no\n')
    vici = f'unix://{lab.path("open.vici")}'

    def crash():
        """A daemon with the guard standing is killed."""
        g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
        g1.process.stop(signal.SIGKILL)
        check(stands(lab) and rules(lab) and not clear_ping(lab), 'the guard of the killed daemon stands')

    def is_gone(by):
        check(not stands(lab), f'{by}: the nft table is gone')
        check(not rules(lab) and not routes(lab), f'{by}: rules and routes are gone: {rules(lab)} {routes(lab)}')
        check(not shown(lab, *NOBODY)['ingress'], f'{by}: the programs at the ingress are gone')
        check(clear_ping(lab), f'{by}: a clear packet passes')

    crash()
    process = lab.spawn('g1', *HIDDEN, program(), 'run', '--config', open_child, '--vici', vici, name='open', private_run=True)
    until('the daemon without a guard is ready', lambda: 'ready: IronSwan' in process.log())
    is_gone('a start with guard = no')
    lines = [x for x in process.log().splitlines() if 'guard = no' in x and 'removed' in x]
    check(len(lines) == 1 and 'nft table' in lines[0] and 'rule' in lines[0] and 'route' in lines[0] and 'ingress' in lines[0],
          f'one line says so: {lines}')
    process.stop()

    crash()
    guard(lab, '--install', '--config', open_child, *NOBODY, before=HIDDEN)
    is_gone('--install with guard = no')


def changed_guard_holds_for_tunnels_that_are_up(lab, full):
    """A `guard` that is changed holds for the tunnel that is up, whose selectors only the negotiation told; another connection's
    child of the same name keeps its own."""
    lab.line()
    lab.ip('g2', 'route', 'add', '10.1.0.0/24', 'via', '192.0.2.1')

    def text(guarded):
        # Which of two addresses the peer has, only the negotiation tells.
        own = tunnel('g1', child=f'guard = {guarded}', remote_ts='dynamic').replace('192.0.2.2', '192.0.2.2, 192.0.2.99')
        twin = tunnel('g1', child='guard = no', remote_ts='10.99.0.0/24', remote_id='g9.example').split('secrets')[0]
        return own + twin.replace(' net {', ' other {', 1).replace('192.0.2.2', '192.0.2.98')
    g1 = IronSwan(lab, 'g1').start(text('yes'))
    g2 = IronSwan(lab, 'g2').start(tunnel('g2', child='guard = no', local_ts='dynamic'))
    g1.initiate()
    vici = ('--vici', f'unix://{g1.socket}')

    def policies():
        pols = json.loads(lab.run('g1', program(), 'list', 'pols', '--json', *vici))['policies']
        return {p['name']: p['guard'] for p in pols if p['state'] == 'installed'}

    def dropped():
        """Of what comes in clear from the peer's address."""
        before = shown(lab, *vici)['in_clear']['packets']
        lab.run('g2', 'ping', '-c', '3', '-i', '0.1', '-W', '1', '10.1.0.2', fail=False)
        return shown(lab, *vici)['in_clear']['packets'] - before
    # What the peer sends in clear; g1 does not notice for a while that its daemon is gone.
    g2.process.stop(signal.SIGKILL)
    guard(lab, '--remove', *NOBODY, box='g2')
    for guarded in ('yes', 'no', 'yes'):
        lab.write('g1-etc/swanctl.conf', text(guarded), 0o600)
        g1.process.send(signal.SIGHUP)
        until(f'guard = {guarded} holds', lambda: policies() == {'net.net': guarded == 'yes'}, 5)
        n = dropped()
        check(n == (3 if guarded == 'yes' else 0), f'guard = {guarded}: of 3 packets in clear {n} are dropped')


def warned(g1, *words):
    """One line of the log that warns and has all the words."""
    def line():
        return next((x for x in g1.log().splitlines() if 'warn' in x.lower() and all(w in x for w in words)), None)
    text = until(f'a warning with {", ".join(words)}; the log is:\n{g1.log()}', line)
    check(True, text.strip()[:220])


def foreign_routes_are_named_and_stay(lab, full):
    """Another program's routes in table 220 are named and never deleted."""
    lab.line()
    lab.ip('g1', 'route', 'add', '10.77.0.0/16', 'via', '192.0.2.2', 'table', '220', 'proto', 'static')
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    warned(g1, '10.77.0.0/16', 'table 220', 'static', 'ip route del')
    g1.process.stop()
    check(any(r.startswith('10.77.0.0/16') for r in routes(lab)), 'the route is still there after a start and an end')


def foreign_rules_are_named(lab, full):
    """Other programs' rules before ours, at our priorities, or with our marks, also in nft."""
    lab.line()
    lab.ip('g1', 'rule', 'add', 'from', 'all', 'lookup', '99', 'prio', '100')
    lab.ip('g1', 'rule', 'add', 'from', '10.55.0.0/16', 'lookup', '98', 'prio', '219')
    lab.ip('g1', 'rule', 'add', 'fwmark', '0x220', 'lookup', '97', 'prio', '5000')
    lab.run('g1', 'nft', 'add table ip mesh; add chain ip mesh pre { type filter hook prerouting priority 0; }; '
            'add rule ip mesh pre meta mark set meta mark or 0x10000000')
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    warned(g1, '100: from all lookup 99', 'asked before', 'priority above 220')
    warned(g1, 'the table ip mesh', '0x10000000', 'steer_mark in ironswan.conf')
    warned(g1, 'lookup 98', 'another priority')
    warned(g1, 'fwmark 0x220', 'lookup 97', 'ironswan.conf')
    g1.process.stop()
    left = lab.run('g1', 'ip', 'rule')
    check(all(f'lookup {t}' in left for t in (97, 98, 99)), 'none of them is touched')


def settings_in_the_way_are_named(lab, full):
    """A strict rp_filter where it would drop, and forwarding that is off, are named with the remedy."""
    lab.line()
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.conf.all.rp_filter=1', 'net.ipv4.ip_forward=0')
    g1 = IronSwan(lab, 'g1').start(tunnel('g1', remote_ts='10.2.0.0/24, 192.0.2.0/24'))
    warned(g1, 'net.ipv4.conf.all.rp_filter is 1', '192.0.2.2', 'rp_filter=2')
    warned(g1, '10.1.0.0/24', 'net.ipv4.ip_forward=1')
    device = lab.run('g1', 'sysctl', '-n', 'net.ipv4.conf.ipsec0.rp_filter', 'net.ipv4.conf.ipsec0.src_valid_mark').split()
    check(device == ['0', '1'], f'ipsec0 has rp_filter and src_valid_mark {device}')
    rest = lab.run('g1', 'sysctl', '-n', 'net.ipv4.conf.all.rp_filter', 'net.ipv4.conf.all.src_valid_mark',
                   'net.ipv4.ip_forward', 'net.ipv4.conf.wan.rp_filter').split()
    check(rest == ['1', '0', '0', '0'], f'nothing else is changed: {rest}')


def flushed_and_edited_rules_come_back(lab, full):
    """What someone flushes or edits is back within a second, and the log says once what it was and who."""
    need('iperf3')
    lab.line()
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    IronSwan(lab, 'g2').start(tunnel('g2'))
    g1.initiate()
    ping(lab)
    whole, ours = lab.run('g1', 'nft', '-s', *TABLE[1:]), rules(lab)
    ways = sorted(routes(lab))
    as_before = lambda: (lab.run('g1', 'nft', '-s', *TABLE[1:], fail=False).stdout == whole and rules(lab) == ours
                         and sorted(routes(lab)) == ways)
    chain = re.search(r'chain (o4_\w+) \{', whole)[1]
    for name, command in (
            ('the ruleset', ('nft', 'flush', 'ruleset')),
            ('the table', ('nft', 'delete', 'table', 'inet', 'ironswan')),
            ('a chain', ('nft', 'flush', 'chain', 'inet', 'ironswan', chain)),
            ('a rule that lets all out', ('nft', 'insert', 'rule', 'inet', 'ironswan', 'guard_out', 'accept')),
            ('the rule at 219', ('ip', 'rule', 'del', 'prio', '219')),
            ('the rule at 220', ('ip', 'rule', 'del', 'prio', '220')),
            ('all rules', ('ip', 'rule', 'flush')),
            ('table 220', ('ip', 'route', 'flush', 'table', '220')),
    ):
        lines = len(g1.log().splitlines())
        lab.run('g1', *command)
        if name == 'all rules':
            # Those of the kernel are not ours to bring back.
            lab.run('g1', 'sh', '-c', 'ip rule add lookup main prio 32766; ip rule add lookup default prio 32767')
        began = time.monotonic()
        until(f'{name} is restored', as_before, 5, 0.01)
        took = time.monotonic() - began
        # A busy machine may take longer to run `ip` and `nft` here than the daemon to restore.
        check(took < 2, f'{name}: restored after {took:.2f} s')
        time.sleep(0.3)
        said = [x for x in g1.log().splitlines()[lines:] if 'warn' in x.lower()]
        # `flush` removes one after the other, and the first may be back before the second goes.
        most = 2 if name in ('all rules', 'table 220') else 1
        check(1 <= len(said) <= most, f'said once: {said}')
        if command[0] == 'nft':
            check('`nft`' in said[0], 'with who did it')
    ping(lab)
    check(True, 'the tunnel carries traffic')
    lines = len(g1.log().splitlines())
    for _ in range(100):
        lab.run('g1', 'nft', 'flush', 'ruleset')
    until('the ruleset is restored', as_before, 5)
    check(len(g1.log().splitlines()) - lines <= 120, f'100 flushes make {len(g1.log().splitlines()) - lines} lines')


def second_daemon_leaves_the_guard_alone(lab, full):
    """A second daemon that cannot start, and its end, leave the first one's guard alone."""
    lab.line()
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    whole, ours = lab.run('g1', 'nft', '-s', *TABLE[1:]), rules(lab)
    other = tunnel('g1').replace('10.2.0.0/24', '10.66.0.0/24')
    start_fails(lab, run_args(lab, config(lab, other, 'other'), 'other.vici'), 'used by another process')
    start_fails(lab, run_args(lab, config(lab, other, 'other'), os.path.basename(g1.socket)), 'vici')
    apart = lab.write('apart/ironswan.conf', 'device = ipsec9\nport_ike = 1500\nport_natt = 14500\n')
    config(lab, other, 'apart')
    start_fails(lab, run_args(lab, os.path.dirname(apart), 'apart.vici'), f'process {g1.process.pid}', 'table 220', 'stop it')
    time.sleep(0.5)
    check(lab.run('g1', 'nft', '-s', *TABLE[1:]) == whole and rules(lab) == ours, 'table and rules are the first one\'s')
    check(not any('10.66' in r for r in routes(lab)), f'and the routes: {routes(lab)}')


def rights_of_the_systemd_units_suffice(lab, full):
    """Root with no more than what the systemd units leave: guard and tunnel work."""
    need('setpriv')
    lab.line()
    caps = '-all,+net_admin,+net_raw,+net_bind_service,+bpf,+setuid,+setgid'
    alone = '-all,+net_admin,+bpf'
    guard(lab, '--install', '--config', config(lab, tunnel('g1')), *NOBODY, before=(
        'setpriv', '--bounding-set', alone, '--inh-caps', alone, '--no-new-privs'))
    check(stands(lab), 'ironswan-guard.service needs CAP_NET_ADMIN alone')
    check('wan' in shown(lab, *NOBODY)['ingress'], 'and CAP_BPF for the program at the ingress')
    before = ('setpriv', '--bounding-set', caps, '--inh-caps', caps, '--no-new-privs')
    g1, g2 = (daemon(lab, box, before) for box in ('g1', 'g2'))
    with open(f'/proc/{g1.process.pid}/status') as f:
        kept = next(line.split()[1] for line in f if line.startswith('CapEff'))
    check(int(kept, 16) == 1 << 12 | 1 << 13, f'effective capabilities {kept}: CAP_NET_ADMIN and CAP_NET_RAW')
    g1.initiate()
    ping(lab)
    check(stands(lab), 'the guard stands and traffic flows')
    lab.run('g1', 'nft', 'flush', 'ruleset')
    until('the guard is back', lambda: stands(lab), 3)
    check(True, 'and is restored')
    check('ingress' not in g1.log(), 'the program at the ingress is loaded with CAP_BPF')
    forge = (sys.executable, os.path.join(HERE, 'knock.py'), 'once', 'wan', lab.run('g1', 'cat', '/sys/class/net/wan/address').strip(),
             json.dumps([{'src': '10.2.0.99', 'dst': '10.1.0.1'}]))

    def counted():
        lab.run('g2', *forge)
        pols = json.loads(lab.run('g1', program(), 'list', 'pols', '--json', '--vici', f'unix://{g1.socket}'))
        return pols['guard']['in_clear']
    n = counted()
    check(n >= 20, f'what it drops is counted: {n}')
    g1.process.stop()
    g1 = daemon(lab, 'g1', before)
    n = counted()
    check(n >= 20, f'and by the next daemon, which may not read the counter of the one before: {n}')
    g1.process.stop()
    poor = '-all,+net_admin,+net_raw,+net_bind_service'
    g1 = daemon(lab, 'g1', ('setpriv', '--bounding-set', poor, '--inh-caps', poor, '--no-new-privs'))
    warned(g1, 'held back by nftables alone', 'CAP_BPF')
    now = shown(lab, '--vici', f'unix://{g1.socket}')
    check(not now['ingress'] and now['table'], f"and so it is: the program of the daemon before has gone: {now['ingress']}")


main({f.__name__: f for f in (
    missing_nft_is_named, old_nft_is_refused, failing_nft_keeps_the_daemon_from_starting, nft_that_breaks_later_opens_nothing,
    nft_that_hangs_is_given_up, boot_unit_guards_without_a_daemon, bad_configuration_changes_nothing, daemon_adopts_what_stands,
    guard_no_removes_what_a_crash_left, changed_guard_holds_for_tunnels_that_are_up, foreign_routes_are_named_and_stay,
    foreign_rules_are_named, settings_in_the_way_are_named, flushed_and_edited_rules_come_back, second_daemon_leaves_the_guard_alone,
    rights_of_the_systemd_units_suffice)}, 'guard')
