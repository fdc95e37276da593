#!/usr/bin/env python3
"""Why does this packet not pass: each obstacle is provoked with traffic, and `ironswan explain --packet` names it.

usage: testkit/interop/run [--full] explainpacket[.TEST]      --full: rules in every hook
"""
import json
import os
import signal
import subprocess
import time

from gateway import Charon, IronSwan, dropped_inbound, program, tunnel
from lab import check, main, need, until
from traffic import ping

OUT, BACK = '10.1.0.2 > 10.2.0.2 icmp', '10.2.0.2 > 10.1.0.2 icmp'
# Turns the rest of a line red, and its direction of writing around.
HOSTILE = '\x1b[31m\u202e'


def command(lab, gateway, packet, *options):
    return lab.argv(gateway.box, (program(), 'explain', '--packet', packet, '--vici', f'unix://{gateway.socket}', *options))


def explain(lab, gateway, packet, *options):
    """The document about a packet, and its first obstacle."""
    done = subprocess.run(command(lab, gateway, packet, '--json', *options), capture_output=True, text=True, timeout=60)
    if done.returncode not in (0, 1):
        check(False, f'explain {packet!r}: exit status {done.returncode}: {done.stderr.strip()}')
    document = json.loads(done.stdout)
    check(document['schema'] == 'ironswan.explain-packet/1' and document['passes'] == (done.returncode == 0),
          f"{packet}: {'passes' if document['passes'] else document['obstacle']}, exit status {done.returncode}")
    return document


def text(lab, gateway, packet, *options):
    """The text about a packet, which fits a terminal and holds nothing that a terminal would obey."""
    shown = subprocess.run(command(lab, gateway, packet, *options), capture_output=True, text=True, timeout=60).stdout
    wide = [line for line in shown.splitlines() if len(line) > 80]
    check(not wide and shown.replace('\n', '').isprintable(), f'the text fits 80 columns: {len(shown.splitlines())} lines {wide}')
    return shown


def station(document, name, direction=None):
    directions = document['directions']
    found = directions[direction or next(iter(directions))]['stations']
    return next((s for s in found if s['station'] == name), None)


def obstacle(document):
    return next(d['obstacle'] for d in document['directions'].values() if d['obstacle'])


def passes(lab, box='a', to='10.2.0.2', *options):
    return lab.run(box, 'ping', '-n', '-q', '-c', '2', '-i', '0.2', '-W', '0.5', *options, to, fail=False).returncode == 0


def stops(lab, gateway, packet, name, *words, box='a', to='10.2.0.2', sends=(), options=()):
    """Traffic does not pass, and the packet's obstacle is the named one, with these words; its document."""
    check(not passes(lab, box, to, *sends), f'{name}: traffic does not pass')
    document = explain(lab, gateway, packet, *options)
    check(document['obstacle'] == name, f"the obstacle is {name}: {document['obstacle']}")
    said = json.dumps(obstacle(document))
    check(all(word in said for word in words), f"it says {', '.join(words)}: {obstacle(document)['why']}")
    check(obstacle(document)['remedy'], f"and what to do: {obstacle(document)['remedy']}")
    return document


def pair(lab, **keys):
    """Two gateways; the tunnel is not up yet."""
    need('ip', 'nft', 'ping', 'swanctl')
    lab.line()
    return [IronSwan(lab, box).start(tunnel(box, **keys)) for box in ('g1', 'g2')]


def tunnel_trouble(lab, gateway):
    """Why the tunnel is down, as `explain NAME` has it."""
    done = lab.run(gateway.box, program(), 'explain', 'net', '--json', '--vici', f'unix://{gateway.socket}', fail=False)
    return next(t['trouble'] for t in json.loads(done.stdout)['tunnels'] if 'trouble' in t)


def up(lab, **keys):
    g1, g2 = pair(lab, **keys)
    g1.initiate()
    return g1, g2


def traced(lab, box='g1'):
    """Whether the table that follows a flow stands."""
    return lab.run(box, 'nft', 'list', 'table', 'inet', 'ironswan_trace', fail=False).returncode == 0


def rule(lab, hook, what, box='g1'):
    """A table of another program with one rule."""
    script = f'table inet other {{}}\ndelete table inet other\ntable inet other {{ chain c {{ type filter hook {hook} priority 5; {what}; }}\n}}\n'
    lab.run(box, 'nft', '-f', '-', input=script)


def healthy_flow_passes(lab, full):
    """Traffic passes, and so says the answer at both gateways, in both directions, for hosts, for the gateway itself, and live.
    Drop reasons that count up meanwhile are hints. A flow that does not come is said not to have been seen."""
    g1, g2 = up(lab)
    ping(lab)
    for gateway, out, back in ((g1, OUT, BACK), (g2, BACK, OUT)):
        document = explain(lab, gateway, out)
        check(document['passes'] and list(document['directions']) == ['outbound'], f'{gateway.box}: {out} leaves')
        check(station(document, 'sa')['packets'] > 0, f"the SA counts {station(document, 'sa')['packets']} packets")
        document = explain(lab, gateway, back)
        check(document['passes'] and list(document['directions']) == ['inbound'], f'{gateway.box}: {back} arrives')
    check(explain(lab, g1, '10.1.0.1 > 10.2.0.2 tcp 22')['passes'], 'a packet of the gateway itself passes')
    check(explain(lab, g1, '10.2.0.2 > 10.1.0.1 tcp 22')['passes'], 'and one for the gateway itself')
    check('route    table 220: dev ipsec0' in text(lab, g1, OUT), 'the text names the device')
    # The engine has no policy for the second of these.
    lab.ip('g1', 'route', 'add', '203.0.113.7/32', 'dev', 'ipsec0')
    noise = [lab.spawn('a', 'ping', '-n', '-i', '0.3', to, name='ping') for to in ('10.2.0.2', '203.0.113.7')]
    # At the other gateway a flow of which no packet comes.
    nothing = subprocess.Popen(command(lab, g2, '10.2.0.2 > 10.1.0.2 tcp 443', '--json', '--live'), stdout=subprocess.PIPE, text=True)
    document = explain(lab, g1, OUT, '--live')
    for ping_process in noise:
        ping_process.stop()
    silent = json.loads(nothing.communicate(timeout=60)[0])
    check(nothing.returncode == 1 and silent['obstacle'] == 'packet-not-seen', f"nothing came: {obstacle(silent)['why']}")
    check(any('OutNoPolicy' in hint for hint in document['hints']), f"the reason that counted up is a hint: {document['hints']}")
    rules = [s for s in document['directions']['outbound']['stations'] if s['station'] == 'rules']
    check(document['passes'] and rules[0]['packets'] > 5 and rules[1]['answers'] > 5,
          f"live: {rules[0]['text']}; {rules[1]['text']}")
    check('ipsec0' in rules[0]['text'] and rules[0]['last-seen'] == 'as it left', 'the packets left by the device')
    check(not traced(lab), 'the table that follows a flow has gone')


def strongswan_as_peer(lab, full):
    """The same with strongSwan, which narrows what we propose: a packet outside of what was agreed is not covered by the SA."""
    need('ip', 'nft', 'ping', 'swanctl')
    lab.line()
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    Charon(lab, 'g2').start(tunnel('g2', local_ts='10.2.0.0/25'))
    g1.initiate()
    ping(lab)
    for packet in (OUT, BACK):
        check(explain(lab, g1, packet)['passes'], f'{packet} passes')
    lab.ip('b', 'addr', 'add', '10.2.0.200/24', 'dev', 'eth0')
    stops(lab, g1, '10.1.0.2 > 10.2.0.200 icmp', 'packet-outside-sa', 'net.net', '10.2.0.0/25', to='10.2.0.200')
    document = explain(lab, g1, '10.2.0.200 > 10.1.0.2 icmp')
    check(document['obstacle'] == 'packet-outside-sa', 'in the other direction, too')


def ipv6_flow_passes(lab, full):
    g1, _ = up(lab, v6_outer=True, v6_inner=True)
    ping(lab, to='fd00:2::2')
    for packet in ('fd00:1::2 > fd00:2::2 icmp', 'fd00:2::2 > fd00:1::2 icmp', '[fd00:1::2]:50000 > [fd00:2::2]:443 tcp'):
        check(explain(lab, g1, packet)['passes'], f'{packet} passes')
    document = explain(lab, g1, 'fd00:1::2 > fd00:2::2 udp 53 len 1500')
    check(document['obstacle'] == 'packet-too-big', 'every IPv6 packet has DF')
    lab.run('g1', 'sysctl', '-qw', 'net.ipv6.conf.all.forwarding=0')
    stops(lab, g1, 'fd00:1::2 > fd00:2::2 icmp', 'packet-not-forwarded', 'net.ipv6.conf.all.forwarding', to='fd00:2::2')


def policies_that_do_not_fit(lab, full):
    """No policy, the nearest one by port, one that drops; and a packet that leaves in clear by right."""
    web = {'local_ts': '10.1.0.0/24[tcp]', 'remote_ts': '10.3.0.0/24[tcp/80]'}
    no = {'local_ts': '10.1.0.0/24', 'remote_ts': '10.4.0.0/24', 'child': 'mode = drop\n start_action = trap', 'esp': 'default'}
    free = {'local_ts': '10.1.0.0/24', 'remote_ts': '10.5.0.0/24', 'child': 'mode = pass\n start_action = trap', 'esp': 'default'}
    g1, _ = up(lab, children={'net': {}})
    g1.load(tunnel('g1', children={'net': {}, 'web': web, 'no': no, 'free': free}))
    lab.ip('g1', 'route', 'add', '10.5.0.0/24', 'via', '192.0.2.2')
    lab.ip('g2', 'addr', 'add', '10.5.0.1/32', 'dev', 'lo')
    lab.ip('g2', 'route', 'add', '10.1.0.2/32', 'via', '192.0.2.1')
    document = stops(lab, g1, '10.1.0.2 > 203.0.113.5 icmp', 'packet-without-policy', '203.0.113.5', to='203.0.113.5')
    check('net.no ' not in json.dumps(document), 'a child that drops is not named as the nearest')
    document = stops(lab, g1, '10.1.0.2 > 10.3.0.2 tcp 443', 'packet-without-policy', 'net.web', 'port is 443', 'has 80', to='10.3.0.2')
    check(station(document, 'policy')['state'] == 'stops', 'at the station policy')
    stops(lab, g1, '10.1.0.2 > 10.4.0.2 icmp', 'packet-discarded', 'net.no', to='10.4.0.2')
    document = explain(lab, g1, '10.1.0.2 > 10.5.0.1 icmp')
    check(document['passes'] and 'in clear' in station(document, 'route')['text'], 'a child that passes lets it leave in clear')


def machine_in_the_way(lab, full):
    """Forwarding off, links down, the check of the way back, rules and routes of other programs."""
    g1, _ = up(lab)
    ping(lab)
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.ip_forward=0')
    stops(lab, g1, OUT, 'packet-not-forwarded', 'net.ipv4.ip_forward')
    check(explain(lab, g1, BACK)['obstacle'] == 'packet-not-forwarded', 'in the other direction, too')
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.ip_forward=1')
    lab.ip('a', 'link', 'set', 'eth0', 'down')
    document = stops(lab, g1, OUT, 'packet-link-down', 'lan', 'carrier')
    check(station(document, 'link')['state'] == 'stops', 'at the station link')
    check(explain(lab, g1, BACK)['obstacle'] == 'packet-link-down', 'in the other direction, too')
    lab.ip('a', 'link', 'set', 'eth0', 'up')
    lab.ip('a', 'route', 'add', 'default', 'via', '10.1.0.1')
    until('traffic passes again', lambda: passes(lab), 20)
    lab.ip('g1', 'link', 'set', 'lan', 'down')
    stops(lab, g1, OUT, 'packet-link-down', 'lan', 'is down')
    check(explain(lab, g1, BACK)['obstacle'] == 'packet-link-down', 'in the other direction, too')
    lab.ip('g1', 'link', 'set', 'lan', 'up')
    until('traffic passes again', lambda: passes(lab), 20)
    lab.ip('g1', 'rule', 'add', 'priority', '100', 'to', '10.2.0.0/24', 'unreachable')
    stops(lab, g1, OUT, 'packet-no-route', '10.2.0.2', '100: from all')
    lab.ip('g1', 'rule', 'del', 'priority', '100')
    lab.ip('g1', 'route', 'add', 'default', 'via', '192.0.2.2', 'table', '77')
    lab.ip('g1', 'rule', 'add', 'priority', '100', 'to', '10.2.0.0/24', 'lookup', '77')
    document = stops(lab, g1, OUT, 'packet-routed-elsewhere', 'table 77', 'wan', 'the guard drops it', 'lookup 77')
    check(station(document, 'route')['table'] == 77, 'the table is a number')
    lab.ip('g1', 'rule', 'del', 'priority', '100')
    # A host whose source is reached elsewhere.
    lab.ip('a', 'addr', 'add', '10.1.0.99/32', 'dev', 'lo')
    lab.ip('g1', 'route', 'add', '10.1.0.99/32', 'via', '192.0.2.2')
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.conf.all.rp_filter=1')
    stops(lab, g1, '10.1.0.99 > 10.2.0.2 icmp in lan', 'packet-reverse-path', 'lan', 'wan', sends=('-I', '10.1.0.99'))
    lab.run('g1', 'sysctl', '-qw', 'net.ipv4.conf.all.rp_filter=0')
    check(explain(lab, g1, OUT)['passes'] and passes(lab), 'everything is in order again')


def tunnel_and_path(lab, full):
    """The tunnel down and why, the way to the peer cut, and what does not fit the path."""
    g1, g2 = pair(lab)
    for packet in (OUT, BACK):
        document = explain(lab, g1, packet)
        check(document['obstacle'] == 'packet-without-sa' and 'net.net' in obstacle(document)['why'], f'{packet}: no SA yet')
    check(not passes(lab), 'and nothing passes')
    g1.initiate()
    ping(lab)
    largest = station(explain(lab, g1, OUT), 'size')['largest']
    check(passes(lab, 'a', '10.2.0.2', '-M', 'do', '-s', str(largest - 28)), f'{largest} bytes pass')
    check(explain(lab, g1, f'{OUT} len {largest} df')['passes'], 'and so says the answer')
    stops(lab, g1, f'{OUT} len {largest + 1} df', 'packet-too-big', str(largest), sends=('-M', 'do', '-s', str(largest - 27)))
    document = explain(lab, g1, f'{OUT} len {largest + 1}')
    check(document['passes'] and passes(lab, 'a', '10.2.0.2', '-M', 'dont', '-s', str(largest - 27)), 'without DF it is fragmented')
    lab.ip('g1', 'route', 'add', 'unreachable', '192.0.2.2/32')
    document = stops(lab, g1, OUT, 'packet-no-way-to-peer', '192.0.2.2')
    check(station(document, 'outer')['state'] == 'stops', 'at the station outer')
    lab.ip('g1', 'route', 'del', 'unreachable', '192.0.2.2/32')
    until('traffic passes again', lambda: passes(lab), 30)
    lab.ip('g1', 'addr', 'del', '192.0.2.1/24', 'dev', 'wan')
    stops(lab, g1, OUT, 'packet-address-gone', '192.0.2.1')
    check(explain(lab, g1, BACK)['obstacle'] == 'packet-address-gone', 'in the other direction, too')
    lab.ip('g1', 'addr', 'add', '192.0.2.1/24', 'dev', 'wan')
    until('traffic passes again', lambda: passes(lab), 30)
    lab.ip('g1', 'link', 'set', 'wan', 'down')
    stops(lab, g1, OUT, 'packet-link-down', 'wan')
    check(explain(lab, g1, BACK)['obstacle'] == 'packet-link-down', 'in the other direction, too')
    lab.ip('g1', 'link', 'set', 'wan', 'up')
    until('traffic passes again', lambda: passes(lab), 30)
    # The peer has another secret.
    g2.load(tunnel('g2', secret='another one'))
    g1.terminate()
    lab.run('g1', program(), 'up', 'net', '--timeout', '5', '--vici', f'unix://{g1.socket}', fail=False)
    document = stops(lab, g1, OUT, 'packet-without-sa', 'net.net')
    told = tunnel_trouble(lab, g1)
    check(obstacle(document)['why'] == f"net.net has no SA: {told['why']}", f"the reason is that of explain NAME: {told['why']}")
    check(told['remedy'] in obstacle(document)['remedy'], f"and so is what to do: {told['remedy']}")
    shown = text(lab, g1, OUT)
    check('\n! sa ' in shown and '(packet-without-sa)' in shown and '\ndo ' in shown, f'the text marks the station:\n{shown}')


def guard_in_the_way(lab, full):
    """A packet of the peer's side that comes in clear."""
    need('ip', 'nft', 'ping')
    lab.line()
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    lab.ip('g2', 'route', 'add', '10.1.0.0/24', 'via', '192.0.2.1')
    before = dropped_inbound(lab, 'g1')
    stops(lab, g1, '10.2.0.2 > 10.1.0.2 icmp in wan', 'packet-in-clear', 'net.net', box='b', to='10.1.0.2')
    check(dropped_inbound(lab, 'g1') > before, 'the guard counts it')


def foreign_rules_are_named(lab, full):
    """A rule of another table that drops the flow, in each hook, with a comment that a terminal would obey; and a policy of a chain."""
    shown = []
    g1, _ = up(lab)
    ping(lab)

    def live(packet, box, to, source, *words):
        noise = lab.spawn(box, 'ping', '-n', '-i', '0.3', *source, to, name='ping')
        document = stops(lab, g1, packet, 'packet-dropped-by-rule', 'inet other', *words, box=box, to=to,
                         sends=source, options=('--live',))
        if not shown:
            shown.append(text(lab, g1, packet, '--live'))
            check('(packet-dropped-by-rule)' in shown[0], 'the text says so')
        noise.stop()
        check(not traced(lab), 'the table that follows a flow has gone')
        return obstacle(document)['why']

    comment = f'comment "{HOSTILE}evil"'
    check(explain(lab, g1, OUT)['passes'], 'without --live nobody looks at the rules')
    rule(lab, 'forward', f'ip daddr 10.2.0.2 icmp type echo-request drop {comment}')
    why = live(OUT, 'a', '10.2.0.2', (), 'chain c', 'icmp type', 'drop')
    check('\\u{1b}[31m' in why and HOSTILE[0] not in why and HOSTILE[-1] not in why, f'escapes are shown: {why}')
    rule(lab, 'input', 'ip saddr 10.2.0.2 counter drop')
    live('10.2.0.2 > 10.1.0.1 icmp', 'b', '10.1.0.1', (), 'counter')
    if full:
        rule(lab, 'forward', 'ip saddr 10.2.0.2 icmp type echo-reply drop')
        live(OUT, 'a', '10.2.0.2', (), 'drop')
        rule(lab, 'output', 'ip daddr 10.2.0.2 reject')
        live('10.1.0.1 > 10.2.0.2 icmp', 'g1', '10.2.0.2', ('-I', '10.1.0.1'), 'reject')
    rule(lab, 'forward', 'policy drop')
    live(OUT, 'a', '10.2.0.2', (), 'policy')
    lab.run('g1', 'nft', 'delete', 'table', 'inet', 'other')
    check(passes(lab), 'without the rules traffic passes')


def nothing_is_left_behind(lab, full):
    """The client goes, the daemon is killed, the daemon ends: the table of a flow does not stay."""
    g1, _ = up(lab)

    def follow():
        client = lab.spawn('g1', *command(lab, g1, OUT, '--live')[4:], name='explain')
        until('the flow is followed', lambda: traced(lab))
        return client

    client = follow()
    second = explain(lab, g1, BACK)
    check(second['passes'], 'others are answered meanwhile')
    client.stop(signal.SIGKILL)
    until('the client has gone, and so has the table', lambda: not traced(lab), 5)
    follow()
    g1.process.stop(signal.SIGKILL)
    check(traced(lab), 'a daemon that is killed leaves the table')
    g1.start(tunnel('g1'))
    check(not traced(lab), 'and the next start removes it')
    follow()
    g1.stop()
    check(not traced(lab), 'a daemon that ends removes it')


def questions_that_lie(lab, full):
    """What cannot be read is answered with what is expected; nothing that a terminal would obey comes back."""
    need('ip', 'nft')
    lab.line()
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    for packet in ('', 'x', '10.1.0.2 > ', f'{HOSTILE} > 10.2.0.2', f'10.1.0.2 > 10.2.0.2 {HOSTILE}', '10.1.0.2 > fd00::1',
                   '10.1.0.2 > 10.2.0.2 tcp 99999', '10.1.0.2 > 10.2.0.2 icmp in ../../x', '10.1.0.2 > 10.2.0.2 ' + 'tcp ' * 5000,
                   '10.1.0.2 > 10.2.0.2 tcp 443 }; include "/etc/shadow"'):
        done = subprocess.run(command(lab, g1, packet), capture_output=True, text=True, timeout=60)
        check(done.returncode == 2 and 'expected: SRC[:PORT] > DST[:PORT]' in done.stderr and not done.stdout
              and done.stderr.strip().isprintable(), f'{packet[:40]!r}: exit status {done.returncode}: {done.stderr.strip()[:100]}')
    for words in (('net', '--packet', OUT), ('--peer', '192.0.2.2', '--packet', OUT), ('--live',), ('net', '--live')):
        done = lab.run('g1', program(), 'explain', *words, '--vici', f'unix://{g1.socket}', fail=False)
        check(done.returncode == 2, f"{' '.join(words)}: exit status {done.returncode}")
    # The kernel lets an interface have such a name.
    lab.ip('g1', 'link', 'add', HOSTILE, 'type', 'veth', 'peer', 'name', 'other')
    shown = text(lab, g1, f'10.1.0.2 > 10.2.0.2 icmp in {HOSTILE}')
    check('\\u{1b}[31m' in shown, f'the name of an interface is escaped: {shown.splitlines()[2]}')
    document = explain(lab, g1, '10.1.0.2 > 10.2.0.2 icmp in nosuch0')
    check('nosuch0' in station(document, 'link')['text'], 'an interface that is not there is said')


def ten_thousand_tunnels(lab, full):
    """With 10,000 tunnels loaded the answer comes within a second (five are allowed here), also with a rule that drops."""
    need('ip', 'nft', 'ping')
    lab.line()
    one = tunnel('g1')
    head, tail = one.split('connections {')[0], one[one.index('secrets {'):]
    body = one[one.index('connections {') + len('connections {'):one.index('secrets {')].rstrip().removesuffix('}')
    many = ''.join(body.replace('net {', f'n{n} {{', 1).replace('10.2.0.0/24', f'10.{100 + n // 256}.{n % 256}.0/24')
                   .replace('g2.example', f'p{n}.example').replace('remote_addrs = 192.0.2.2', f'remote_addrs = 198.18.{n // 256}.{n % 256}')
                   for n in range(1, 10_000))
    g1 = IronSwan(lab, 'g1').start(f'{head}connections {{{body}{many}}}\n{tail}', wait=False)
    until('10,000 tunnels are loaded', lambda: g1.process.alive() and g1.answers(), 300)
    until('and guarded', lambda: '10.139.15.0/24' in lab.run('g1', 'ip', 'route', 'show', 'table', '220'), 300)
    for packet, name in ((OUT, 'packet-without-sa'), ('10.1.0.2 > 10.130.7.9 tcp 443', 'packet-without-sa'),
                         ('10.1.0.2 > 10.250.7.9 tcp 443', 'packet-without-policy')):
        began = time.monotonic()
        document = explain(lab, g1, packet)
        took = time.monotonic() - began
        check(document['obstacle'] == name and took < 5, f'{packet}: {took:.2f} s')


if __name__ == '__main__':
    main({f.__name__: f for f in (healthy_flow_passes, strongswan_as_peer, ipv6_flow_passes, policies_that_do_not_fit, machine_in_the_way,
                                  tunnel_and_path, guard_in_the_way, foreign_rules_are_named, nothing_is_left_behind,
                                  questions_that_lie, ten_thousand_tunnels)}, 'explainpacket')
