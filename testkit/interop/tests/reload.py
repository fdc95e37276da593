#!/usr/bin/env python3
"""Reload by difference: what has not changed loses nothing, what is wrong changes nothing.

usage: testkit/interop/run [--full] [--seed=N] reload[.TEST]
Two hundred connections between two gateways; numbered packets on some that no step may disturb.
"""
import os
import random
import re
import signal
import subprocess
import time

from gateway import SECRET, Charon, IronSwan
from lab import check, main, need, say, take_seed, until
from traffic import Numbered, check_no_loss
from wan import Rest, Watch, balance, internet, site, status_of, uplink

SEED = take_seed(15)
COUNT = 200
IKE = ('aes128gcm16-prfsha256-x25519', 'aes128gcm16-prfsha384-x25519')
ESP = ('aes128gcm16', 'aes256gcm16')
# Connections that carry numbered packets: no step disturbs them.
CARRIERS = (0, 1, 2, 3)


def nets(n, flip):
    """The two sides of a connection: each has its own host at the far end, or (for strongSwan in user space, which must
    have an address of its own in its selector) at the near one."""
    return (f'10.1.0.{10 + n}/32', '10.2.0.0/24') if flip else ('10.1.0.0/24', f'10.2.0.{10 + n}/32')


class Wish:
    """One connection as it is written down."""

    def __init__(self):
        self.ike = self.esp = 0
        self.dpd, self.rekey = 600, 3600

    def text(self, n, action='start', remote='192.0.2.2', flip=False):
        near, far = nets(n, flip)
        return f"""
  c{n} {{
    version = 2
    local_addrs = 198.51.100.1
    remote_addrs = {remote}
    proposals = {IKE[self.ike]}
    dpd_delay = {self.dpd}s
    local {{
      auth = psk
      id = g1-{n}.example
    }}
    remote {{
      auth = psk
      id = g2-{n}.example
    }}
    children {{
      k{n} {{
        local_ts = {near}
        remote_ts = {far}
        esp_proposals = {ESP[self.esp]}
        rekey_time = {self.rekey}s
        start_action = {action}
      }}
    }}
  }}"""


def secrets(secret=SECRET):
    return f'secrets {{\n  ike-1 {{\n    secret = "{secret}"\n  }}\n}}\n'


def whole(wishes, **kw):
    return 'connections {' + ''.join(w.text(n, **kw) for n, w in wishes.items()) + '\n}\n' + secrets()


def passive(count=COUNT, flip=False):
    """The peer's side of all of them."""
    return 'connections {' + ''.join(f"""
  c{n} {{
    version = 2
    local_addrs = 192.0.2.2
    remote_addrs = 198.51.100.1
    proposals = {', '.join(IKE)}
    local {{
      auth = psk
      id = g2-{n}.example
    }}
    remote {{
      auth = psk
      id = g1-{n}.example
    }}
    children {{
      k{n} {{
        local_ts = {nets(n, flip)[1]}
        remote_ts = {nets(n, flip)[0]}
        esp_proposals = {', '.join(ESP)}
      }}
    }}
  }}""" for n in range(count)) + '\n}\n' + secrets()


def state(gateway):
    """{connection: [(SPIs of the IKE_SA, [SPIs of its CHILD_SAs])]}; whatever is on its way makes it None."""
    found = {}
    for sa in gateway.sas():
        children = list(sa.get('child-sas', {}).values())
        if sa['state'] != 'ESTABLISHED' or any(c['state'] != 'INSTALLED' for c in children):
            return None
        spis = frozenset((c['spi-in'], c['spi-out']) for c in children)
        found.setdefault(sa['name'], []).append(((sa['initiator-spi'], sa['responder-spi']), spis))
    return found


def at_rest(us, them, names, what, timeout=30):
    """Waits until both sides have one IKE_SA and one CHILD_SA of each connection, the same ones; ours."""
    why = ''

    def settled():
        nonlocal why
        ours, theirs = state(us), state(them)
        if ours is None or theirs is None:
            why = 'something is on its way'
            return None
        for side, seen in (('we have', ours), ('the peer has', theirs)):
            if set(seen) != names:
                why = f'{side} more: {sorted(set(seen) - names)[:9]}, and less: {sorted(names - set(seen))[:9]}'
                return None
            wrong = {n: s for n, s in seen.items() if len(s) != 1 or len(s[0][1]) != 1}
            if wrong:
                why = f'{side} not one of each: {wrong}'
                return None
        wrong = [n for n in names if ours[n][0][0] != theirs[n][0][0]
                 or ours[n][0][1] != {s[::-1] for s in theirs[n][0][1]}]
        why = f'the two sides hold different SAs of {wrong}'
        return None if wrong else {n: s[0] for n, s in ours.items()}

    end = time.monotonic() + timeout
    while (found := settled()) is None:
        if time.monotonic() > end:
            check(False, f'{what}: at rest after {timeout} s: {why}')
        time.sleep(0.1)
    return found


def world(lab, wishes, peer=IronSwan, settings=''):
    need('ip', 'nft', 'swanctl')
    internet(lab)
    site(lab, 'g1')
    uplink(lab, 'g1', 'wan', 'r', 'u1', '198.51.100')
    for n in CARRIERS:
        for box, net in (('a', 1), ('b', 2)):
            lab.ip(box, 'addr', 'add', f'10.{net}.0.{10 + n}/24', 'dev', 'eth0')
    watch = Watch(lab, 'r', 'u1', 'g2')
    # All two hundred come from one address, at once.
    them = (peer(lab, 'g2').start(passive(flip=True), options='dos_protection = no\n') if peer is Charon
            else peer(lab, 'g2').start(passive(), settings='half_open_per_addr = 500\n'))
    us = IronSwan(lab, 'g1').start(whole(wishes), settings=settings)
    return us, them, watch


def names(wishes):
    return {f'c{n}' for n in wishes}


def write(lab, text):
    lab.write('g1-etc/swanctl.conf', text)


def hangup(us):
    """SIGHUP, and the last line that the log has about it."""
    pattern = re.compile(r'configuration (?:not )?reloaded.*')
    before = len(pattern.findall(us.log()))
    us.process.send(signal.SIGHUP)
    until('the reload is over', lambda: len(pattern.findall(us.log())) > before, 10, 0.01)
    return pattern.findall(us.log())[-1]


class Carriers:
    """Numbered packets on the connections that nobody touches."""

    def __init__(self, lab, carriers=CARRIERS, rate=100, flip=False):
        self.flows = [(n, Numbered(lab, *(f'10.1.0.{10 + n if flip else 2}', f'10.2.0.{2 if flip else 10 + n}'),
                                   rate=rate, port=7000 + n)) for n in carriers]

    def end(self, at_least=100):
        for _, flow in self.flows:
            for end in flow.ends.values():
                end.popen.stdin.close()
        for n, flow in self.flows:
            say(f'       c{n}:')
            check_no_loss(flow.end(), at_least)


def step(draw, wishes):
    """Changes some connections at random; what each of them has to go through."""
    touched = {}
    for _ in range(draw.randrange(1, 9)):
        n = draw.randrange(COUNT)
        if n in touched:
            continue
        kind = draw.choice(('local', 'child', 'ike', 'remove', 'add', 'nothing'))
        if n in CARRIERS:
            kind = 'local' if n >= 2 else 'nothing'
        if n not in wishes:
            wishes[n] = Wish()
            kind = 'add'
        elif kind == 'remove':
            del wishes[n]
        elif kind == 'local':
            wishes[n].dpd += 1
            wishes[n].rekey += 1
        elif kind == 'child':
            wishes[n].esp ^= 1
        elif kind == 'ike':
            wishes[n].ike ^= 1
        else:
            kind = 'nothing'
        touched[n] = kind
    return touched


def compare(before, now, touched, what):
    """What has been changed has gone through that and no more, and nothing else has been touched."""
    def same(n, part):
        return before[f'c{n}'][part] == now[f'c{n}'][part]

    wrong = []
    for n in range(COUNT):
        kind = touched.get(n, 'nothing')
        if f'c{n}' not in now or f'c{n}' not in before:
            continue
        ike, child = same(n, 0), same(n, 1)
        expected = {'child': (True, False), 'ike': (False, False)}.get(kind, (True, True))
        if (ike, child) != expected:
            wrong.append(f"c{n} ({kind}): IKE_SA {'kept' if ike else 'new'}, CHILD_SA {'kept' if child else 'new'}")
    kinds = sorted(touched.values())
    check(not wrong, f"{what}: {', '.join(f'{kinds.count(k)} {k}' for k in dict.fromkeys(kinds)) or 'nothing'}; "
          + (f'WRONG: {wrong}' if wrong else f'{len(now) - len(touched)} others untouched'))


BAD = (
    ('a brace that is not closed', lambda lab, text: write(lab, text.rsplit('}', 1)[0] + '\nconnections {\n')),
    ('an unknown key', lambda lab, text: write(lab, text.replace('version = 2', 'versoin = 2', 1))),
    ('a selector that is none', lambda lab, text: write(lab, text.replace('10.2.0.15/32', '10.2.0.15/33'))),
    ('an error in an included file', lambda lab, text: (
        lab.write('g1-etc/more.inc', 'connections { extra { remote_addrs = 192.0.2.2 children { x { mode = wrong } } } }\n'),
        write(lab, 'include more.inc\n' + text))),
    ('an empty proposal', lambda lab, text: write(lab, text.replace(f'proposals = {IKE[0]}', 'proposals = nonsense', 1))),
    ('a secret that others may read', lambda lab, text: (write(lab, text), os.chmod(lab.path('g1-etc/swanctl.conf'), 0o644))),
)


def sighup_loses_nothing(lab, full):
    """SIGHUP with changes in a seeded random order, and bad files in between."""
    draw = random.Random(SEED)
    wishes = {n: Wish() for n in range(COUNT)}
    us, them, watch = world(lab, wishes)
    now = at_rest(us, them, names(wishes), f'{COUNT} connections')
    rest = Rest(lab, us)
    carriers = Carriers(lab)
    rounds = 60 if full else 15
    bad = list(BAD) * (3 if full else 1)
    draw.shuffle(bad)
    at = dict(zip(sorted(draw.choices(range(rounds), k=len(bad))), bad)) if not full else {}
    queue = bad if full else bad[:]
    for n in range(rounds):
        before, touched = now, step(draw, wishes)
        text = whole(wishes)
        if queue and (n in at or draw.random() < 0.7):
            what, spoil = queue.pop()
            spoil(lab, text)
            line = hangup(us)
            check(line.startswith('configuration not reloaded, what runs is unchanged'), f'{what}: {line[:150]}')
            check(state(us) == {k: [v] for k, v in before.items()}, f'{what}: nothing has changed')
        write(lab, text)
        check(hangup(us) == 'configuration reloaded', f'step {n} is loaded')
        now = at_rest(us, them, names(wishes), f'step {n}')
        compare(before, now, touched, f'step {n}')
    # A key alone touches nothing that runs.
    write(lab, whole(wishes).replace(SECRET, 'quite another one'))
    check(hangup(us) == 'configuration reloaded', 'another key is loaded')
    time.sleep(0.5)
    check(state(us) == {k: [v] for k, v in now.items()}, 'a new key touches nothing that runs')
    write(lab, whole(wishes))
    hangup(us)
    carriers.end()
    wishes = {n: Wish() for n in range(COUNT)}
    write(lab, whole(wishes))
    hangup(us)
    at_rest(us, them, names(wishes), 'all loaded again')
    rest.check()
    watch.check('u1', 'g2')
    for gateway in (us, them):
        balance(gateway)
    write(lab, whole({}))
    hangup(us)
    until('removed from the files, all are gone on both sides', lambda: not us.sas() and not them.sas())
    check(True, 'removed from the files, all are gone on both sides')
    until('their routes are gone', lambda: '10.2.0.' not in lab.run(
        'g1', 'ip', 'route', 'show', 'table', '220', fail=False).stdout, 5)
    check(True, 'and so are their routes')


def swanctl_loses_nothing(lab, full):
    """Debian's swanctl --load-all, against strongSwan as the peer; two at once."""
    draw = random.Random(SEED + 1)
    wishes = {n: Wish() for n in range(COUNT)}
    us, them, watch = world(lab, {}, peer=Charon)
    us.load(whole(wishes, flip=True))
    now = at_rest(us, them, names(wishes), f'{COUNT} connections')
    carriers = Carriers(lab, rate=50, flip=True)
    for n in range(30 if full else 8):
        before, touched = now, step(draw, wishes)
        us.load(whole(wishes, flip=True))
        now = at_rest(us, them, names(wishes), f'step {n}')
        compare(before, now, touched, f'step {n}')
    before = now
    path = lab.path('g1-swanctl/swanctl.conf')
    uri = ['--file', path, '--uri', f'unix://{us.socket}']
    for n in range(5 if full else 2):
        touched = step(draw, wishes)
        lab.write('g1-swanctl/swanctl.conf', whole(wishes, flip=True))
        both = [subprocess.Popen(['swanctl', '--load-all', *uri], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, env={**os.environ, **us.swanctl_env()}) for _ in range(2)]
        out = [p.communicate(timeout=60)[0] for p in both]
        # One of the two finds what the other has unloaded already; charon says the same to it.
        check(all(f'loaded {len(wishes)} connections' in text for text in out), 'two at once, both loaded all')
        now = at_rest(us, them, names(wishes), 'two at once')
        compare(before, now, touched, 'two at once')
        before = now
    carriers.end(30)
    watch.check('u1')
    balance(us)


def sighups_faster_than_served(lab, full):
    """SIGHUPs faster than they can be served, while the file changes."""
    draw = random.Random(SEED + 2)
    wishes = {n: Wish() for n in range(COUNT)}
    us, them, watch = world(lab, wishes)
    before = at_rest(us, them, names(wishes), f'{COUNT} connections')
    rest = Rest(lab, us)
    carriers = Carriers(lab, (0, 1))
    sent, end = 0, time.monotonic() + (30 if full else 3)
    # The file changes in what concerns this end only; half written, it may be bad for a moment.
    while time.monotonic() < end:
        if sent % 50 == 0:
            wishes[draw.randrange(4, COUNT)].dpd += 1
            write(lab, whole(wishes))
        us.process.send(signal.SIGHUP)
        sent += 1
        time.sleep(draw.random() * 0.002)
    check(hangup(us) == 'configuration reloaded', f'{sent} SIGHUPs, and the last one is served')
    done = us.log().count('configuration reloaded')
    now = at_rest(us, them, names(wishes), 'afterwards')
    check(now == before, f'{done} reloads have touched no SA')
    carriers.end()
    rest.check()
    watch.check('u1')


def settings_that_need_a_restart_are_named(lab, full):
    """What of ironswan.conf is taken over, and what is named as needing a restart."""
    wishes = {0: Wish()}
    us, them, _ = world(lab, wishes, settings='log {\n  level = warn\n}\n')
    at_rest(us, them, names(wishes), 'one connection')

    def conf(text, word='configuration reloaded'):
        lab.write('g1-etc/ironswan.conf', text)
        with us.vici() as v:
            v.request('reload-settings')

    check('established' not in us.log(), 'at level = warn the log is quiet')
    conf('log {\n  level = debug\n}\nretransmit_timeout = 0.3\nretransmit_tries = 2\nretransmit_base = 1.0\n')
    us.swanctl('--rekey', '--ike', 'c0')
    until('the log tells steps', lambda: ' debug ' in us.log(), 5)
    check('restart' not in us.log(), 'the log level and limits are taken over as it runs')
    them.process.stop(signal.SIGKILL)
    began = time.monotonic()
    us.swanctl('--rekey', '--child', 'k0')
    until('the peer is given up', lambda: 'giving up after 2 retransmits' in us.log(), 10)
    check(True, f'the new retransmission times hold: given up after {time.monotonic() - began:.1f} s')
    conf('log {\n  level = debug\n}\ndevice = ipsec7\nport_natt = 4501\n')
    until('the log names them', lambda: 'ironswan.conf: device, port_natt changed; that needs a restart' in us.log(), 5)
    check(True, 'device and port_natt are named as needing a restart')


def time_and_memory_grow_with_the_number(lab, full):
    """Time and memory of a reload; both must grow with the number of connections, not with its square."""
    need('ip')
    lab.line()
    lab.ip('g1', 'addr', 'add', '198.51.100.1/24', 'dev', 'wan')
    found = {}
    for count in (500, 2000) + ((8000,) if full else ()):
        us = IronSwan(lab, 'g1')

        def text(dpd, upto=None):
            out = []
            for n in range(upto or count):
                wish = Wish()
                wish.dpd = dpd
                one = wish.text(n, 'trap', f'203.0.{n // 250}.{n % 250 + 1}')
                out.append(one.replace(f'10.2.0.{10 + n}/32', f'10.{100 + n // 250}.{n % 250}.0/24'))
            return 'connections {' + ''.join(out) + '\n}\n' + secrets()

        us.start(text(60))
        rss = status_of(us.process, 'VmRSS')[0]

        def cpu():
            with open(f'/proc/{us.process.pid}/stat') as f:
                fields = f.read().rsplit(')', 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

        took = {}
        for what, texts in (('no change', [text(60)] * 5), ('one changed', [text(60).replace('60s', f'{61 + i}s', 1) for i in range(5)]),
                            ('all changed', [text(100 + i) for i in range(5)]),
                            ('half removed and back', [text(200, count // 2), text(200)] * 3)):
            began, before = time.monotonic(), cpu()
            for one in texts:
                write(lab, one)
                with us.vici() as v:
                    v.request('reload-settings')
            took[what] = (cpu() - before) / len(texts)
            say(f"       {count} connections, {what}: {(time.monotonic() - began) / len(texts) * 1e3:.0f} ms and "
                f"{took[what] * 1e3:.0f} ms of CPU a reload")
        after = status_of(us.process, 'VmRSS')[0]
        for _ in range(10):
            with us.vici() as v:
                v.request('reload-settings')
        again = status_of(us.process, 'VmRSS')[0]
        check(again <= after * 1.1 + 2048, f'{count} connections: {rss} KiB resident at the start, {after} after reloads, '
              f'{again} after ten more')
        found[count] = took
        us.stop()
    (small, a), *_, (large, b) = found.items()
    factor = large / small
    for what in a:
        # A clock tick is 10 ms; five reloads share it.
        ratio = b[what] / max(a[what], 0.004)
        check(ratio < factor * factor * 0.75, f'{what}: {factor:.0f} times the connections take {ratio:.1f} times the CPU')


main({f.__name__: f for f in (
    sighup_loses_nothing, swanctl_loses_nothing, sighups_faster_than_served, settings_that_need_a_restart_are_named,
    time_and_memory_grow_with_the_number)}, 'reload')
