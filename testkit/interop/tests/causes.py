#!/usr/bin/env python3
"""Why a peer cannot be reached, told apart: filters that drop or say that they filter, closed ports, dead hosts, silence on one port,
packets that never come back. A router between the gateways does it with nft; the peer is IronSwan or strongSwan. A healthy neighbour
beside it has no trouble, and when the cause is taken away the tunnel comes up.

usage: testkit/interop/run [--full] causes[.TEST]      --full: every cause with both peers, every kind of ICMP error, and packets that never come
back, which takes two minutes
"""
import re
import time

from gateway import Charon, IronSwan
from lab import HERE, check, main, say, until
from wan import conf, connection, counters, inner, internet, pings, site, uplink

G1, G2, G3, ROUTER, BEYOND = '203.0.113.1', '192.0.2.2', '198.51.100.3', '203.0.113.254', '192.0.2.254'
QUICK = 'retransmit_timeout = 0.2\nretransmit_base = 1.2\nretransmit_tries = 4\nretry_initial = 1s\nretry_max = 1s\n'
# The kernel says that nobody answers ARP three seconds after the first packet: an attempt has to last longer.
ARP = 'retransmit_timeout = 1\nretransmit_base = 1.2\nretransmit_tries = 4\nretry_initial = 2s\nretry_max = 3s\n'


def boxes(lab):
    """g1 and its neighbour g3, and g2, each behind the router r."""
    internet(lab)
    for gateway, net in (('g1', '203.0.113'), ('g3', '198.51.100')):
        site(lab, gateway)
        uplink(lab, gateway, 'wan', 'r', gateway, net, host=int(gateway[1:]))


def rule(lab, box, text, chain='forward'):
    """One rule of nft in a box, alone."""
    lab.run(box, 'nft', f'add table inet cause; add chain inet cause c {{ type filter hook {chain} priority 0; }}; '
            f'flush chain inet cause c; add rule inet cause c {text}')


def clear(lab, *places):
    for box in places or ('r',):
        lab.run(box, 'nft', 'delete table inet cause', fail=False)


def troubles(gateway):
    """The tunnels that are down: name of the connection to what is told."""
    with gateway.vici() as v:
        events = v.stream('ironswan-troubles', 'list-trouble')
    return {name: told for event in events for name, told in event.items()}


def told(gateway, conn, name, timeout=20):
    """Waits until the connection is down for this reason; what is told."""
    def found():
        trouble = troubles(gateway).get(conn)
        return trouble if trouble and trouble.get('name') == name else None
    try:
        trouble = until(f'{conn} is down: {name}', found, timeout)
    finally:
        if not found():
            print(f'  told instead: {troubles(gateway)}', flush=True)
    why = trouble['why']
    details = ' / '.join(trouble.get('details', []))
    check(True, f'{name}: {why} [{details}]; {trouble.get("remedy", "")}')
    return why, details, trouble.get('remedy', '')


def start(lab, peer=IronSwan, conn='', child='start_action = start', encap=False):
    """g2 waits, g1 tries for ever, and has a healthy tunnel with g3 beside it."""
    boxes(lab)
    them = peer(lab, 'g2').start(conf(connection('net', 'g2', 'g1', local=G2, encap=encap)))
    third = IronSwan(lab, 'g3').start(conf(connection('well', 'g3', 'g1', local=G3)))
    tries = f'keyingtries = 0\n    {conn}'
    us = IronSwan(lab, 'g1')
    ours = conf(connection('net', 'g1', 'g2', local=G1, remote=G2, conn=tries, child=child, encap=encap),
                connection('well', 'g1', 'g3', local=G1, remote=G3, conn=tries, child='start_action = start', child_name='well'))
    return us, them, third, ours


def healthy(us):
    until('the neighbour is up', lambda: us.established('well'), 20)
    check('well' not in troubles(us), 'the healthy neighbour has no trouble')


def comes_up(lab, us):
    until('the tunnel is up', lambda: us.established('net'), 20)
    check('net' not in troubles(us) and pings(lab, 'g1', 'g2'), 'with the cause away it is up, and carries packets')


def peers(full):
    return (IronSwan, Charon) if full else (Charon,)


def filters_that_say_so(lab, full):
    """A router rejects UDP with each kind of ICMP error, for one port and for both."""
    us, them, third, ours = start(lab, Charon)
    cases = [('admin-prohibited', 'filtered', 'a filter at 203.0.113.254 refuses UDP 500'),
             ('host-unreachable', 'peer-unreachable', '203.0.113.254 knows no way to 192.0.2.2'),
             ('net-unreachable', 'peer-unreachable', '203.0.113.254 knows no way to 192.0.2.2'),
             ('port-unreachable', 'port-closed', 'UDP 500 is closed at 192.0.2.2, says 203.0.113.254')]
    rule(lab, 'r', f'ip daddr {G2} udp dport 500 reject with icmp type admin-prohibited')
    us.start(ours, settings=QUICK)
    for kind, name, sentence in cases if full else cases[::3]:
        rule(lab, 'r', f'ip daddr {G2} udp dport 500 reject with icmp type {kind}')
        # The reason of an attempt that was under this rule from its beginning.
        until(sentence, lambda: sentence in troubles(us).get('net', {}).get('why', ''), 20)
        why, details, _ = told(us, 'net', name)
        check('certain: the error quotes our SPI' in why and re.search(r'sent 5 times, ICMP type 3 code \d+ from 203.0.113.254, [1-5]', details),
              'it is certain, since the router quotes the whole header')
    healthy(us)
    clear(lab)
    comes_up(lab, us)


def over_ipv6(lab, full):
    """The same over IPv6: a router that rejects with ICMPv6, a closed port, and silence on UDP 4500. The neighbour is reached by IPv4."""
    boxes(lab)
    ours6, theirs6, router6 = '2001:db8:203:113::1', '2001:db8:192:2::2', '2001:db8:203:113::fe'
    them = Charon(lab, 'g2').start(conf(connection('net', 'g2', 'g1', local=theirs6, encap=True)))
    third = IronSwan(lab, 'g3').start(conf(connection('well', 'g3', 'g1', local=G3)))
    rule(lab, 'r', f'ip6 daddr {theirs6} udp dport 500 reject with icmpv6 type admin-prohibited')
    us = IronSwan(lab, 'g1').start(conf(
        connection('net', 'g1', 'g2', local=ours6, remote=theirs6, conn='keyingtries = 0', child='start_action = start', encap=True),
        connection('well', 'g1', 'g3', local=G1, remote=G3, child='start_action = start', child_name='well')), settings=QUICK)
    kinds = (('admin-prohibited', 'filtered', f'a filter at {router6} refuses UDP 500'),
             ('no-route', 'peer-unreachable', f'{router6} knows no way to {theirs6}'),
             ('addr-unreachable', 'peer-unreachable', f'{router6} knows no way to {theirs6}'),
             ('port-unreachable', 'port-closed', f'UDP 500 is closed at {theirs6}, says {router6}'))
    for kind, name, sentence in kinds if full else kinds[::3]:
        rule(lab, 'r', f'ip6 daddr {theirs6} udp dport 500 reject with icmpv6 type {kind}')
        until(sentence, lambda: sentence in troubles(us).get('net', {}).get('why', ''), 20)
        why, details, _ = told(us, 'net', name)
        check('certain: the error quotes our SPI' in why and f'from {router6}' in details, details)
    rule(lab, 'r', f'ip6 daddr {theirs6} udp dport 4500 drop')
    why, _, remedy = told(us, 'net', 'silence-on-natt')
    check(why == f'{theirs6} answers on UDP 500, silence on UDP 4500' and f'to and from {theirs6}' in remedy, f'{why}: {remedy}')
    healthy(us)
    clear(lab)
    comes_up(lab, us)
    them.stop()
    until('the peer has said that it ends', lambda: not us.established('net'), 20)
    us.swanctl('--initiate', '--child', 'net', '--timeout', '8', fail=False)
    why, _, _ = told(us, 'net', 'port-closed')
    check(f'UDP 500 is closed at {theirs6}, says {theirs6} (certain' in why, why)


def a_filter_on_4500(lab, full):
    """IKE_SA_INIT is answered on UDP 500, and UDP 4500 is rejected, or dropped without a word."""
    for peer in peers(full):
        us, them, third, ours = start(lab, peer, encap=True)
        rule(lab, 'r', f'ip daddr {G2} udp dport 4500 drop')
        us.start(ours, settings=QUICK)
        why, details, remedy = told(us, 'net', 'silence-on-natt')
        check(why == '192.0.2.2 answers on UDP 500, silence on UDP 4500', f'{peer.kind}: {why}')
        check(re.fullmatch(r'IKE_SA_INIT answered in \d+ ms; no answer to IKE_AUTH from 203.0.113.1:4500 to 192.0.2.2:4500, sent 5 times, '
                           'no ICMP', details), details)
        check(remedy == 'let UDP 4500 through to and from 192.0.2.2, then: ironswan prove net', remedy)
        healthy(us)
        rule(lab, 'r', f'ip daddr {G2} udp dport 4500 reject with icmp type admin-prohibited')
        until('the filter says so now', lambda: troubles(us).get('net', {}).get('name') == 'filtered', 20)
        clear(lab)
        comes_up(lab, us)
        lab.close()
        lab.__enter__()


def a_filter_on_500(lab, full):
    """A tunnel has stood on UDP 4500; then UDP 500 is dropped."""
    us, them, third, ours = start(lab, Charon, encap=True)
    us.start(ours, settings=QUICK)
    comes_up(lab, us)
    rule(lab, 'r', f'ip daddr {G2} udp dport 500 drop')
    us.terminate('net')
    us.swanctl('--initiate', '--child', 'net', '--timeout', '10', fail=False)
    why, _, remedy = told(us, 'net', 'silence-on-ike')
    check('although the peer was reached at 192.0.2.2:4500' in why and 'let UDP 500 through' in remedy, why)
    healthy(us)
    clear(lab)
    comes_up(lab, us)


def closed_dead_and_silent(lab, full):
    """No daemon at the peer: its kernel says so. No peer: the router says so, after ARP. A router that drops: silence."""
    us, them, third, ours = start(lab, Charon)
    them.stop()
    us.start(ours, settings=ARP if full else QUICK)
    why, _, _ = told(us, 'net', 'port-closed')
    check('UDP 500 is closed at 192.0.2.2, says 192.0.2.2 (certain' in why, why)
    lab.ip('g2', 'addr', 'del', f'{G2}/24', 'dev', 'wan')
    # The router would believe for half a minute that it is there.
    lab.ip('r', 'neigh', 'flush', 'dev', 'g2')
    if full:
        why, _, _ = told(us, 'net', 'peer-unreachable', 40)
        check('203.0.113.254 knows no way to 192.0.2.2' in why, why)
    rule(lab, 'r', f'ip daddr {G2} drop')
    why, _, _ = told(us, 'net', 'no-answer')
    check(why.endswith('sent 5 times, no ICMP'), why)
    healthy(us)
    clear(lab)
    lab.ip('g2', 'addr', 'add', f'{G2}/24', 'dev', 'wan')
    lab.ip('g2', 'route', 'replace', 'default', 'via', BEYOND)
    Charon(lab, 'g2').start(conf(connection('net', 'g2', 'g1', local=G2)))
    comes_up(lab, us)


def an_own_neighbour_that_is_dead(lab, full):
    """The peer is on our own link, and does not answer ARP: this machine itself says so."""
    lab.line()
    lab.ip('g2', 'link', 'set', 'wan', 'down')
    us = IronSwan(lab, 'g1').start(conf(connection('net', 'g1', 'g2', local='192.0.2.1', remote=G2, conn='keyingtries = 0',
                                                   child='start_action = start')), settings=ARP)
    lab.ip('g1', 'link', 'set', 'wan', 'up')
    told_any = until('a reason', lambda: troubles(us).get('net', {}).get('name'), 20)
    check(told_any in ('peer-unreachable', 'no-answer', 'no-route', 'message-not-sent'), f'the link is down: {told_any}')
    # The link is there, and nobody on it has the address.
    lab.ip('g2', 'link', 'set', 'wan', 'up')
    lab.ip('g2', 'addr', 'del', f'{G2}/24', 'dev', 'wan')
    until('ARP has failed', lambda: "does not answer on this machine's own link" in troubles(us).get('net', {}).get('why', ''), 40)
    told(us, 'net', 'peer-unreachable')
    lab.ip('g2', 'addr', 'add', f'{G2}/24', 'dev', 'wan')
    IronSwan(lab, 'g2').start(conf(connection('net', 'g2', 'g1', local=G2)))
    until('the tunnel is up', lambda: us.established('net'), 30)


def forged_errors_change_nothing(lab, full):
    """Somebody off the path sends errors of every type: to attempts, and to a tunnel that carries packets."""
    us, them, third, ours = start(lab, Charon)
    lab.box('x')
    lab.wire('x', 'eth0', ['198.18.0.6/24'], 'r', 'x', ['198.18.0.254/24'])
    lab.ip('x', 'route', 'add', 'default', 'via', '198.18.0.254')
    us.start(ours, settings=QUICK)
    comes_up(lab, us)
    before = us.established('net')[0]

    def forge(count, port=500, *quoted, source='198.18.0.6'):
        lab.run('x', 'python3', f'{HERE}/icmperror.py', source, G1, port, G2, port, count, *quoted)

    def heard():
        plane = counters(us)['plane']
        return int(plane['icmp-ike-passed']), int(plane['icmp-ike-refused'])
    wrong = '11' * 8 + '22' * 8
    forge(50)
    forge(50, 500, wrong)
    forge(50, 4500, '00' * 4 + wrong)
    forge(50, source=G2)
    passed, refused = heard()
    check(refused >= 1000, f'{passed} errors were heard, {refused} refused')
    sa = us.established('net')[0]
    check(sa['initiator-spi'] == before['initiator-spi'] and pings(lab, 'g1', 'g2'), 'the IKE_SA is the same, and carries packets')
    check('net' not in troubles(us) and 'ICMP' not in us.log(), 'the log has no word of them: nothing was under way')
    # An attempt: they are called likely, and it goes on. The log does not grow with their number.
    rule(lab, 'r', f'ip daddr {G2} udp dport {{ 500, 4500 }} drop')
    us.terminate('net')
    size = len(us.log())
    us.lab.spawn('g1', 'swanctl', '--initiate', '--child', 'net', '--uri', f'unix://{us.socket}', env=us.swanctl_env())
    until('an attempt', lambda: [sa for sa in us.sas() if sa['name'] == 'net' and sa['state'] == 'CONNECTING'])
    for _ in range(6):
        forge(40)
        forge(40, 500, wrong)
        time.sleep(0.2)
    why, details, _ = told_by_log(us, 'likely: the error quotes addresses and ports alone')
    check(len(us.log()) - size < 20_000, f'{len(us.log()) - size} bytes of log')
    clear(lab)
    comes_up(lab, us)


def told_by_log(us, text):
    until(text, lambda: text in us.log(), 20)
    line = next(line for line in us.log().splitlines() if text in line)
    check(True, line.strip())
    return line, '', ''


def packets_that_never_come_back(lab, full):
    """Raw ESP is dropped on its way back, while IKE lives: said after a minute, and over with the first packet."""
    if not full:
        say('  two minutes of waiting: with --full only. The stories of testkit/tests have it in a time of their own.')
        return
    us, them, third, ours = start(lab, IronSwan, conn='dpd_delay = 10s')
    rule(lab, 'r', f'ip saddr {G2} ip protocol esp drop')
    us.start(ours)
    until('the tunnel is up', lambda: us.established('net'), 20)
    ping = lab.spawn('a', 'ping', '-i', '0.5', inner('g2'))
    line = 'packets go out and none comes back while IKE lives'
    until(line, lambda: line in us.log(), 130)
    said = next(text for text in us.log().splitlines() if line in text)
    check('ESP, IP protocol 50' in said and 'let IP protocol 50 (ESP) through to and from 192.0.2.2' in said, said.strip())
    check(us.established('net') and us.log().count(line) == 1, 'the tunnel stands, and it is said once')
    clear(lab)
    until('it is over', lambda: 'packets come back on CHILD_SA net{' in us.log(), 130)
    ping.stop()
    healthy(us)


def narrowed_and_refused(lab, full):
    """strongSwan wants less traffic than we ask for, and refuses to rekey without its key exchange."""
    boxes(lab)
    them = Charon(lab, 'g2').start(conf(connection('net', 'g2', 'g1', local=G2, encap=True, local_ts='10.2.0.0/25',
                                                   esp='aes128gcm16-ecp384')))
    us = IronSwan(lab, 'g1').start(conf(connection('net', 'g1', 'g2', local=G1, remote=G2, encap=True, esp='aes128gcm16-x25519',
                                                   child='life_time = 1h')))
    us.initiate()
    said = told_by_log(us, 'carries 10.1.0.0/24 === 10.2.0.0/25 alone, configured is 10.1.0.0/24 === 10.2.0.0/24')[0]
    check('CHILD_SA net' in said, 'narrowed')
    us.swanctl('--rekey', '--child', 'net', fail=False)
    said = told_by_log(us, 'the peer refuses to rekey CHILD_SA net{')[0]
    check(re.search(r'NO_PROPOSAL_CHOSEN\); it ends in 3[56]\d\d s unless', said) and 'PFS' in said, 'refused, and when the SA ends')
    them.stop()


def a_guess_at_a_stranger(lab, full):
    """The peer is configured at its own address, and comes from that of a NAT."""
    boxes(lab)
    lab.run('r', 'nft', f'add table ip t; add chain ip t p {{ type nat hook postrouting priority 100; }}; '
            f'add rule ip t p ip saddr {G1} ip daddr {G2} udp sport 500 snat to {BEYOND}')
    us = IronSwan(lab, 'g2').start(conf(connection('branch', 'g2', 'g1', local=G2, remote=G1)))
    # charon with ESP in user space writes another hash on purpose, so that it seems to be behind a NAT.
    them = IronSwan(lab, 'g1').start(conf(connection('net', 'g1', 'g2', local=G1, remote=G2)))
    them.swanctl('--initiate', '--child', 'net', '--timeout', '1', fail=False)
    told_by_log(us, f'a guess, as the request says that it was sent from {G1}')
    check('it may be the peer of branch' in us.log() and f'add {BEYOND} to remote_addrs of branch' in us.log(), 'the guess names the connection')
    check(not us.sas(), 'and nothing follows from it')


TESTS = {t.__name__: t for t in (
    filters_that_say_so, over_ipv6, a_filter_on_4500, a_filter_on_500, closed_dead_and_silent, an_own_neighbour_that_is_dead,
    forged_errors_change_nothing, packets_that_never_come_back, narrowed_and_refused, a_guess_at_a_stranger)}

if __name__ == '__main__':
    main(TESTS, 'causes')
