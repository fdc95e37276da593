"""What happens to the gateway on the line while the load goes on: each a function of (line, watch, seconds to hold).

Every one ends with the tunnel carrying every kind again. Whatever leaves in clear meanwhile fails the phase; the few
exceptions are named where they are granted.
"""
import signal
import time

from gateway import program
from lab import check, until
from leakline import G1, SITES

OTHER = {'other': {'version': 2, 'local_addrs': G1[4], 'remote_addrs': '198.51.100.9',
                   'local': {'auth': 'psk', 'id': 'g1.example'}, 'remote': {'auth': 'psk', 'id': 'other.example'},
                   'children': {'other': {'local_ts': SITES['local_ts'], 'remote_ts': '10.9.0.0/24,fd00:9::/64'}}}}
# While routes or rules are gone, sockets of the gateway itself that are not bound take its outer address, of which no
# policy speaks. Until routes and rules are restored, within a second, they may leave; none with an inner address.
UNBOUND = 'unbound'


def kill(gateway):
    gateway.process.send(signal.SIGKILL)
    gateway.process.popen.wait()


def killed(line, watch, hold):
    watch.phase('kill -9', lambda: kill(line.g1), hold, must=stopped)
    watch.phase('started after kill -9', line.start_g1, 0)
    watch.flows(but=watch.allowed)


def terminated(line, watch, hold):
    def stop():
        check(line.g1.stop() == 0, 'SIGTERM: exit status 0')
    watch.phase('SIGTERM', stop, hold, must=stopped)
    watch.phase('started after SIGTERM', line.start_g1, 0)
    watch.flows(but=watch.allowed)


def device_deleted(line, watch, hold):
    watch.phase('ip link del ipsec0', lambda: line.ip('link', 'del', 'ipsec0'), hold)
    watch.flows(but=watch.allowed)


def stopped(report):
    """The load went on, and was stopped."""
    return report.sent + report.refused > 0 and report.refused + (report.dropped or 0) > 0


def table_220(line):
    return [line.ip(*family, 'route', 'show', 'table', '220', fail=False).stdout for family in ((), ('-6',))]


def routes_flushed(line, watch, hold):
    for family in ((), ('-6',)):
        name = ' '.join(['ip', *family, 'route flush table 220'])
        watch.phase(name, lambda: line.ip(*family, 'route', 'flush', 'table', '220', fail=False), hold, grace=UNBOUND)
    until('both tables 220 have their routes again',
          lambda: all('ipsec0' in t and 'unreachable' in t for t in table_220(line)), 5)
    watch.flows(but=watch.allowed)


def rules_deleted(line, watch, hold):
    before = rules(line)
    watch.phase('ip rule and ip -6 rule deleted', lambda: delete_rules(line), hold, grace=UNBOUND)
    until(f'the rules {before} are there again', lambda: rules(line) == before, 5)
    watch.flows(but=watch.allowed)


def rules(line):
    """The numbers of our rules, IPv4 and IPv6."""
    return [sorted(rule.split(':')[0] for rule in line.ip(*family, 'rule', 'show').splitlines()
                   if rule.split(':')[0] in ('219', '220')) for family in ((), ('-6',))]


def delete_rules(line):
    for family, numbers in zip(((), ('-6',)), rules(line)):
        for number in numbers:
            line.ip(*family, 'rule', 'del', 'pref', number)


def unbound(watch):
    return {k['name'] for k in watch.load if k['name'].startswith(UNBOUND)}


def hijacked(line, watch, hold):
    """Somebody else's rule or route leads protected destinations elsewhere: nothing restores that, nft stops it."""
    def each(*commands):
        for command in commands:
            line.ip(*command.split())
    # The gateway's own unbound sockets now take its outer address, of which the policy says nothing.
    watch.outer = unbound(watch)
    rules = ('rule {} pref 100 lookup main', '-6 rule {} pref 100 lookup main')
    routes = ('route {} 10.2.0.0/25 via 192.0.2.254 table 220', '-6 route {} fd00:2::/65 via 2001:db8:1::254 table 220')
    watch.phase('a foreign rule before ours', lambda: each(*(r.format('add') for r in rules)), hold, must=stopped)
    each(*(r.format('del') for r in rules))
    watch.flows()
    watch.phase('foreign routes in table 220', lambda: each(*(r.format('add') for r in routes)), hold, must=stopped)
    each(*(r.format('del') for r in routes))
    watch.phase('foreign routes gone again', hold=0.1)
    watch.no_excuse()
    watch.flows()


def links_changed(line, watch, hold):
    """Links and addresses go and come; with an address the kernel takes away the routes that name it."""
    for change in (('down',), ('mtu', '600')):
        watch.phase(f"ip link set ipsec0 {' '.join(change)}", lambda: line.ip('link', 'set', 'ipsec0', *change), hold,
                    grace=UNBOUND)
        watch.flows()
    # A control packet that is on its way out is lost with the link.
    watch.excused = 2
    watch.phase('wan down', lambda: line.ip('link', 'set', 'wan', 'down'), hold / 2)
    watch.phase('wan up', lambda: line.up_again('g1'), hold / 2)
    watch.flows()
    # What comes out of the tunnel goes where this machine's routes lead; with the LAN's gone that is the default route.
    # The manual says to keep it from there.
    line.batch('g1', *(f'route add unreachable {net} metric 4000000' for net in SITES['local_ts'].split(',')))
    watch.outer = unbound(watch)
    for change in ('del', 'add'):
        watch.phase(f'inside addresses: {change}', lambda: line.batch(
            'g1', f'addr {change} 10.1.0.1/24 dev lan', f'addr {change} fd00:1::1/64 dev lan nodad'), hold)
    watch.no_excuse()
    watch.flows()


def restarted(line, watch, hold):
    """Killed at any moment of its start."""
    kill(line.g1)
    for delay in (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2):
        def start_and_kill():
            line.start_g1(wait=False)
            time.sleep(delay)
            kill(line.g1)
        watch.phase(f'killed {delay * 1000:.0f} ms after its start', start_and_kill, 0.1)

    def broken():
        line.write_g1('connections {\n  net {\n')
        argv = (program(), 'run', '--config', line.g1.config, '--vici', f'unix://{line.g1.socket}')
        check(line.lab.run('g1', *argv, fail=False).returncode == 2, 'with a broken file it does not start')
    watch.phase('start with a broken file', broken, hold / 2, must=stopped)
    watch.phase('started', line.start_g1, 0)
    watch.flows()


def frozen(line, watch, hold):
    """The daemon does nothing while somebody removes one half of what stands."""
    for name, what in (('nft flush ruleset', lambda: line.nft('flush ruleset')),
                       ('rules deleted', lambda: delete_rules(line))):
        line.g1.process.send(signal.SIGSTOP)
        watch.outer = unbound(watch)
        watch.phase(f'SIGSTOP, {name}', what, hold)
        line.g1.process.send(signal.SIGCONT)
        watch.phase('SIGCONT', hold=hold / 2)
        watch.no_excuse()
        watch.flows()


def nft_flushed(line, watch, hold):
    for command in ('flush ruleset', 'delete table inet ironswan', 'flush table inet ironswan'):
        watch.phase(f'nft {command}', lambda: line.nft(command), hold, grace='')
        until('the table is there again', lambda: 'counter name' in line.table(), 5)
    watch.flows(but=watch.allowed)


def reloaded(line, watch, hold):
    def hangup(text):
        line.write_g1(text)
        line.g1.process.send(signal.SIGHUP)
    spis = line.g1.child_spis()
    for text in ('connections {\n  net {\n', line.text('g1').replace('proposals', 'propsals_ = x\n}}')):
        watch.phase('reload of a broken file', lambda: hangup(text), hold / 2)
    check(line.g1.child_spis() == spis, 'its SAs go on')
    watch.phase('reload with another connection', lambda: hangup(line.text('g1', more=OTHER)), hold / 2)
    check(line.g1.child_spis() == spis, 'its SAs go on')
    changed = {n: {**c, 'rekey_time': '3h'} for n, c in line.children.items()}
    watch.phase('reload with this connection changed', lambda: hangup(line.text('g1', changed)), hold)
    watch.phase('reload of what was before', lambda: hangup(line.text('g1')), hold)
    watch.flows(but=watch.allowed)


def reinitiated(line, watch, hold):
    def terminate(who, what):
        for name in ['net'] if what == 'ike' else line.tunnels():
            who.swanctl('--terminate', f'--{what}', name)
    for who, what in ((line.g1, 'ike'), (line.g1, 'child'), (line.g2, 'ike')):
        watch.phase(f'swanctl --terminate --{what} in {who.box}', lambda: terminate(who, what), hold, must=stopped)
        watch.phase('swanctl --initiate', line.initiate, hold / 2)
        watch.flows(but=watch.allowed)


def rekeyed(line, watch, hold):
    for what in ('child', 'ike', 'child'):
        watch.phase(f'{what} rekeyed', lambda: line.rekey(what), hold / 3)
    watch.flows(but=watch.allowed)


def peer_down(line, watch, hold):
    watch.phase('peer killed', lambda: kill(line.g2), hold)
    # A control packet that is on its way out is lost with the link.
    watch.excused = 2
    watch.phase('peer off the net', lambda: line.batch('g2', 'link set wan down'), hold)
    watch.phase('terminated meanwhile',
                lambda: line.g1.swanctl('--terminate', '--ike', 'net', '--force', fail=False), hold)

    def back():
        line.up_again('g2')
        line.start_g2()
        line.initiate()
    watch.phase('peer back', back, hold / 2)
    watch.flows(but=watch.allowed)


DISTURBANCES = {'kill9': killed, 'sigterm': terminated, 'device_deleted': device_deleted, 'routes_flushed': routes_flushed,
                'rules_deleted': rules_deleted, 'nft_flushed': nft_flushed, 'routes_hijacked': hijacked, 'links_changed': links_changed,
                'reload': reloaded, 'restarts': restarted, 'daemon_stopped': frozen, 'rekey': rekeyed,
                'reinitiate': reinitiated, 'peer_down': peer_down}
