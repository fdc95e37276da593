#!/usr/bin/env python3
"""Every suite of ESP and AH, negotiated with strongSwan whose packets a real Linux kernel carries, and rekeyed with PFS.

usage: testkit/interop/run [--full] suites[.TEST]      --full: every suite in every shape
charon runs in the guest of `uml`. Its children take any suite; ours, one a suite, propose exactly theirs. Each is made by a
CREATE_CHILD_SA (the first by IKE_AUTH), carries small and full-size packets whose content is compared (echo.py), is rekeyed with
a Diffie-Hellman exchange of its own, carries them again, and is deleted. What negotiation, KEYMAT and PFS make of a suite shows
in nothing but whether packets pass, so the kernel's error counters must not move either.
"""
import json
import os
import subprocess
import sys
import time

from gateway import SECRET, IronSwan, program
from guest import Guest, StrongSwanGuest, plug
from lab import HERE, Failed, call, check, main, say, until
from vici import ViciError

ESP = ('aes128gcm16', 'aes192gcm16', 'aes256gcm16', 'aes128gcm12', 'aes256gcm12', 'aes128gcm8', 'aes256gcm8', 'aes128ccm16',
       'aes192ccm12', 'aes256ccm8', 'chacha20poly1305', 'aes128-sha256', 'aes192-sha384', 'aes256-sha512', 'aes128-sha1',
       'aes128-md5', 'aes128-sha384', 'aes128-aesxcbc', 'aes128-aescmac', '3des-sha1', '3des-md5', 'aes128ctr-sha256',
       'aes256ctr-sha512', 'aes128gmac', 'aes256gmac', 'null-sha1', 'null-sha256', 'null-aesxcbc')
AH = ('sha1', 'sha256', 'sha384', 'sha512', 'md5', 'aesxcbc', 'aescmac')
PFS = 'x25519'
OUR, PEER = ('192.0.2.1', '2001:db8::1'), ('192.0.2.2', '2001:db8::2')
INNER, BEHIND = ('10.1.0.1', 'fd00:1::1'), ('10.2.0.1', 'fd00:2::1')


def words(suite, esn, ke=PFS):
    return '-'.join([suite, ke, *(['esn'] if esn else [])])


class Child:
    """One child of ours."""

    def __init__(self, suite, ah=False, mode='tunnel', outer=4, inner=4, encap=False, esn=False, ipcomp=False, tfc=None):
        self.suite, self.ah, self.mode, self.outer, self.encap = suite, ah, mode, outer, encap
        self.inner = inner if mode == 'tunnel' else outer
        self.esn, self.ipcomp, self.tfc = esn, ipcomp, tfc
        self.from_, self.to = (ends[self.inner == 6] for ends in ((INNER, BEHIND) if mode == 'tunnel' else (OUR, PEER)))
        self.conn = f"v{outer}{'u' if encap else 'r'}"

    @property
    def name(self):
        parts = ['ah' if self.ah else 'esp', self.suite, self.mode, f'{self.inner}in{self.outer}' if self.mode == 'tunnel' else
                 f'v{self.outer}', *(w for w, on in (('udp', self.encap), ('esn', self.esn), ('ipcomp', self.ipcomp),
                                                     (f'tfc{self.tfc}', self.tfc)) if on)]
        return '-'.join(parts)

    def text(self):
        selector = '' if self.mode == 'transport' else f'local_ts = {self.from_}\n        remote_ts = {self.to}'
        return f"""
      {self.name} {{
        mode = {self.mode}
        {selector}
        {'ah' if self.ah else 'esp'}_proposals = {words(self.suite, self.esn)}
        ipcomp = {'yes' if self.ipcomp else 'no'}
        {f'tfc_padding = {self.tfc}' if self.tfc else ''}
      }}"""


def connection(name, outer, encap, local, remote, me, peer, children, extra=''):
    return f"""
  {name} {{
    version = 2
    mobike = no
    local_addrs = {local}
    remote_addrs = {remote}
    proposals = aes128gcm16-prfsha256-x25519
    encap = {'yes' if encap else 'no'}
    {extra}
    local {{
      auth = psk
      id = {me}
    }}
    remote {{
      auth = psk
      id = {peer}
    }}
    children {{
      {children}
    }}
  }}"""


def whole(connections):
    return f'connections {{{connections}\n}}\nsecrets {{\n  ike-1 {{\n    secret = "{SECRET}"\n  }}\n}}\n'


CONNS = tuple((f"v{outer}{'u' if encap else 'r'}", outer, encap) for outer in (4, 6) for encap in (False, True))


def ours_text(children):
    return whole(''.join(connection(
        name, outer, encap, OUR[outer == 6], PEER[outer == 6], f'g1.{name}', f'g2.{name}',
        ''.join(c.text() for c in children if c.conn == name)) for name, outer, encap in CONNS
        if any(c.conn == name for c in children)))


def guest_text():
    """Any suite, in tunnel mode for both inner families and in transport mode."""
    esp = ','.join(words(s, esn) for esn in (False, True) for s in ESP)
    ah = ','.join(words(s, esn) for esn in (False, True) for s in AH)

    def child(name, mode, selectors, proposals):
        return f'\n      {name} {{\n        mode = {mode}\n        {selectors}\n        {proposals}\n        ipcomp = yes\n      }}'

    def children(encap):
        # AH has no encapsulation in UDP.
        proposals = f'esp_proposals = {esp}' + ('' if encap else f'\n        ah_proposals = {ah}')
        return ''.join((
            child('four', 'tunnel', f'local_ts = {BEHIND[0]}\n        remote_ts = {INNER[0]}', proposals),
            child('six', 'tunnel', f'local_ts = {BEHIND[1]}\n        remote_ts = {INNER[1]}', proposals),
            child('host', 'transport', '', proposals)))
    return whole(''.join(connection(name, outer, encap, PEER[outer == 6], OUR[outer == 6], f'g2.{name}', f'g1.{name}',
                                    children(encap)) for name, outer, encap in CONNS))


class Pair:
    """IronSwan in the box g1, charon in the guest beside it with an echo server, and a talker in g1."""

    def __init__(self, lab):
        self.lab = lab
        lab.box('g1', 'g2')
        lab.wire('g1', 'wan', [f'{OUR[0]}/24', f'{OUR[1]}/64'], 'g2', 'eth0', [])
        for address in (f'{INNER[0]}/32', f'{INNER[1]}/128'):
            lab.ip('g1', 'addr', 'add', address, 'dev', 'lo')
        # Routes to the other side's network, which the guard and the engine's own routes stand before.
        lab.ip('g1', 'route', 'add', 'default', 'via', PEER[0])
        lab.ip('g1', '-6', 'route', 'add', 'default', 'via', PEER[1])
        plug(lab, 'g2', 'eth0')
        self.guest = StrongSwanGuest(lab, guest_text(), gateway=(OUR[0], OUR[1]))
        self.guest.serve_echo()
        self.us = IronSwan(lab, 'g1')
        self.talker = lab.spawn('g1', sys.executable, os.path.join(HERE, 'echo.py'), 'talk', name='talk',
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.talker.popen.stdout.readline()

    def talk(self, child, **more):
        """Small and full-size datagrams, fragments, and TCP; what was wrong."""
        job = {'to': child.to, 'from': child.from_,
               'sizes': [8, 9, 10, 11, 12, 13, 33, 64, 100, 500, 1200, 1300, 1301, 1400, 1472, 3000],
               'tcp': 40_000, 'plain': 'text' if child.ipcomp else 'random', **more}
        self.talker.popen.stdin.write(json.dumps(job) + '\n')
        self.talker.popen.stdin.flush()
        answer = self.talker.popen.stdout.readline()
        if not answer:
            raise Failed(f'the talker ended: {self.talker.log()}')
        result = json.loads(answer)
        # The last acknowledgement of TCP is on its way still, and the SA may be deleted next.
        time.sleep(0.03)
        return [f'{k}: {result[k]}' for k in ('error', 'lost', 'corrupt') if result[k]]

    def child(self, name):
        """What our list-sas says of the child."""
        for sa in self.us.sas():
            for c in sa.get('child-sas', {}).values():
                if c['name'] == name and c['state'] == 'INSTALLED':
                    return c
        return None

    def rekeyed(self, child, old, rekey):
        rekey()
        return until('the child is rekeyed', lambda: (now := self.child(child.name)) and now['spi-in'] != old['spi-in'] and now,
                     5, 0.02)

    def story(self, child, by_guest):
        """A life of a child, rekeyed by us and perhaps by the guest, too; what went wrong in it."""
        with self.us.vici() as v:
            v.request('initiate', {'child': child.name, 'timeout': '10000'})
            first = until('the child is up', lambda: self.child(child.name), 5, 0.02)
            if first['mode'].lower() != child.mode:
                return [f"mode {first['mode']}"], first
            wrong = self.talk(child)
            second = self.rekeyed(child, first, lambda: v.request('rekey', {'child': child.name}))
            wrong += [f'after our rekeying {w}' for w in self.talk(child)]
            if by_guest:
                # It proposes all that it has, and its group for each: the answer must be the suite that it was.
                name = 'host' if child.mode == 'transport' else 'six' if child.inner == 6 else 'four'
                third = self.rekeyed(child, second, lambda: self.guest.swanctl('--rekey', '--child', name))
                wrong += [f"after the guest's rekeying {w}" for w in self.talk(child)]
                wrong += [f'{k} is {third.get(k)} after the guest\'s rekeying, was {second.get(k)}' for k in
                          ('protocol', 'mode', 'encr-alg', 'encr-keysize', 'integ-alg') if third.get(k) != second.get(k)]
            v.request('terminate', {'child': child.name, 'timeout': '10000'})
        if child.esn and second.get('esn', '1') not in ('1', 'yes'):
            wrong.append('no ESN')
        if child.ipcomp and not second.get('cpi-in'):
            wrong.append('no IPComp')
        return wrong, second

    def stories(self, children, settings=''):
        self.us.start(ours_text(children), settings)
        failed, before, began = [], self.guest.xfrm_errors(), time.monotonic()
        for n, child in enumerate(children):
            started = time.monotonic()
            try:
                wrong, sa = self.story(child, by_guest=n % 5 == 0)
            except (Failed, ViciError) as why:
                wrong, sa = [str(why).splitlines()[0]], {}
                with self.us.vici() as v:
                    try:
                        v.request('terminate', {'ike': child.conn, 'timeout': '5000'})
                    except ViciError:
                        pass
            if wrong:
                wrong.append(f'the kernel counts {self.guest.xfrm_errors()}')
            names = ' '.join(sa[k] for k in ('protocol', 'encr-alg', 'encr-keysize', 'integ-alg', 'dh-group') if sa.get(k))
            say(f"  {child.name:44} {'FAIL' if wrong else 'ok':4} {time.monotonic() - started:5.2f} s  {names}"
                + (f"  {'; '.join(wrong)}" if wrong else ''))
            failed += [child.name] if wrong else []
            if len(failed) == 8:
                say('  eight have failed: that is enough')
                break
        after = self.guest.xfrm_errors()
        moved = {k: after[k] - before.get(k, 0) for k in after if after[k] != before.get(k, 0)}
        check(not failed, f"{len(children) - len(failed)} of {len(children)} children in {time.monotonic() - began:.0f} s"
              + (f"; failed: {', '.join(failed)}" if failed else ''))
        # A packet that the daemon's own kernel sends between two SAs finds no policy of the guest's: that is not an error of ours.
        moved.pop('XfrmInNoPols', None)
        check(not moved, f"counters of the kernel: {moved or 'none moved'}")


SHAPES = ({'mode': 'tunnel', 'outer': 4, 'inner': 4}, {'mode': 'transport', 'outer': 6, 'encap': False},
          {'mode': 'tunnel', 'outer': 6, 'inner': 4, 'encap': True}, {'mode': 'transport', 'outer': 4},
          {'mode': 'tunnel', 'outer': 4, 'inner': 6, 'encap': True}, {'mode': 'tunnel', 'outer': 6, 'inner': 6},
          {'mode': 'transport', 'outer': 4, 'encap': True}, {'mode': 'tunnel', 'outer': 4, 'inner': 4, 'encap': True})


def every_esp_suite(lab, full):
    """Every ESP suite in tunnel and in transport mode, with ESN and without."""
    children = []
    for i, suite in enumerate(ESP):
        shapes = SHAPES if full else (SHAPES[i % 2 * 3 % 8], SHAPES[1 + (i // 2) % 7])
        for j, shape in enumerate(dict.fromkeys(map(lambda s: tuple(s.items()), shapes))):
            children.append(Child(suite, **dict(shape), esn=bool((i + j) % 2)))
    Pair(lab).stories(children)


def every_ah_suite(lab, full):
    """Every AH suite in tunnel and in transport mode, with ESN and without; and IPComp and TFC padding."""
    shapes = [s for s in SHAPES if not s.get('encap')]
    children = []
    for i, suite in enumerate(AH):
        for j, shape in enumerate(shapes if full else (shapes[i % 4], shapes[(i + 1) % 4])):
            children.append(Child(suite, ah=True, **shape, esn=bool((i + j) % 2)))
    # charon gives the ESP SA beneath IPComp a selector of the outer family: its kernel then finds no SA for inner packets of
    # the other one. xfrm.py, which says `af-unspec`, has these cases.
    same = [s for s in SHAPES if s['mode'] == 'transport' or s['inner'] == s['outer']]
    children += [Child('aes128gcm16', **shape, ipcomp=True) for shape in same]
    children += [Child('sha256', ah=True, **shape, ipcomp=True) for shape in shapes[:2]]
    children += [Child('aes256gcm16', **shape, tfc=tfc) for shape, tfc in ((SHAPES[0], 900), (SHAPES[2], 'mtu'))]
    Pair(lab).stories(children)


def algs(gateway):
    """`ironswan list algs --json`."""
    return json.loads(call(program(), 'list', 'algs', '--json', '--vici', f'unix://{gateway.socket}'))


def every_engine(lab, full):
    """Every engine that is there, forced: it does the suites that it has, the guest understands them, and `list algs` says so."""
    pair = Pair(lab)
    pair.us.start(ours_text([Child('aes128gcm16')]))
    there, measured = algs(pair.us)['engines'], algs(pair.us)['suites'].values()
    pair.us.stop()
    check({'aws-lc', 'vaes', 'avx2', 'ipsec-mb'} == set(there) and there['aws-lc'] == 'available', f'engines: {there}')
    for engine, state in there.items():
        settings = f'data {{\n  engine = {engine}\n}}\n'
        if state != 'available':
            pair.us.start(ours_text([Child('aes128gcm16')]), settings)
            table, word = algs(pair.us)['suites'].values(), f"engine '{engine}' cannot be used: {state}"
            check(word in pair.us.log() and {line['engine'] for line in table} == {'aws-lc'}, f'{word}: the log says so, and '
                  'aws-lc does its work')
            pair.us.stop()
            continue
        # Those that it was timed for: 3DES with another ICV goes the way of 3des-sha1.
        mine = [s for s in ESP if any(line['suite'] == s and engine in line for line in measured)]
        chosen = mine if full else list(dict.fromkeys((mine[0], mine[len(mine) // 2], mine[-1])))
        children = [Child(s, **SHAPES[i % 2], esn=bool(i % 2)) for i, s in enumerate(chosen)]
        pair.stories(children, settings)
        for line in algs(pair.us)['suites'].values():
            if line['suite'] in chosen and (line['engine'], line['falls-back']) != (engine, 'no'):
                raise Failed(f"{engine} is forced, and list algs says {line}")
        with pair.us.vici() as v:
            used = v.request('stats')['data-plane']['engines']
        check(engine in used and set(used) <= {engine, 'aws-lc'}, f'{engine} did {", ".join(chosen)}; engines in use: {used}')
        check(pair.us.stop() == 0, 'it ends')
    folder = os.path.dirname(lab.write('wrong/swanctl.conf', '# empty\n'))
    lab.write('wrong/ironswan.conf', 'data {\n  engine = abacus\n}\n')
    done = lab.run('g1', program(), 'run', '--config', folder, '--vici', f'unix://{folder}/x.vici', fail=False)
    check(done.returncode == 2 and 'data.engine' in done.stdout and 'abacus' in done.stdout and all(e in done.stdout for e in there),
          f'an engine that nobody knows: exit status {done.returncode}: {done.stdout.strip()}')


NAT_SUITES = ('aes128gcm16', 'aes128-sha256', 'null-sha1')


def nat_text(local, remote, me, peer, one_child):
    """Transport mode: a child a suite, or one of any suite (charon takes the first whose selectors fit)."""
    children = {'any': NAT_SUITES} if one_child else {suite: (suite,) for suite in NAT_SUITES}
    text = ''.join(f"""
      {name} {{
        mode = transport
        esp_proposals = {','.join(words(suite, False) for suite in suites)}
      }}""" for name, suites in children.items())
    return whole(connection('nat', 4, False, local, remote, me, peer, text))


def nat_box(lab, inside, outside):
    """The box n translates what leaves to `outside`."""
    lab.box('g1', 'n', 'g2')
    lab.forward('n')
    ends = {'g1': (['10.5.0.2/24'] if inside == 'g1' else ['192.0.2.1/24']), 'g2': []}
    for box in ('g1', 'g2'):
        lab.wire(box, 'wan' if box == 'g1' else 'eth0', ends[box], 'n', box, ['10.5.0.1/24' if box == inside else f'{outside}/24'])
    lab.run('n', 'nft', 'add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; '
            f'add rule ip nat post oifname {"g2" if inside == "g1" else "g1"} masquerade')
    plug(lab, 'g2', 'eth0')


def talk_of(lab, box, job):
    """A talker of one job in a box, or in the guest."""
    line = json.dumps(job)
    argv = [sys.executable, os.path.join(HERE, 'echo.py'), 'talk']
    if isinstance(box, Guest):
        out = box.do(f"echo '{line}' | python3 {HERE}/echo.py talk")
    else:
        out = lab.run(box, *argv, input=line + '\n')
    return json.loads(out.splitlines()[-1])


def nat_case(lab, us, guest, initiate, talker, to, from_):
    """Each suite: up, UDP and TCP both ways, rekeyed, again, deleted."""
    for suite in NAT_SUITES:
        initiate(suite)
        child = until('the child is up', lambda: next((c for sa in us.sas() for c in sa['child-sas'].values()
                                                       if c['state'] == 'INSTALLED'), None), 10)
        check(child['mode'] == 'TRANSPORT' and child.get('encap') == 'yes', f"{suite}: {child['mode']}, in UDP")
        for when in ('', ', after a rekeying'):
            # ESP in UDP of less than 40 bytes is a matter of IPv6 only.
            result = talk_of(lab, talker, {'to': to, 'from': from_, 'sizes': [*range(0, 40), 500, 1200, 1372, 4000], 'tcp': 60_000})
            check(not result['lost'] and not result['corrupt'] and not result['error'],
                  f"{suite}: {result['received']} datagrams and TCP there and back{when}"
                  + (f': {result}' if result['lost'] or result['error'] else ''))
            if not when:
                old = us.child_spis()
                us.swanctl('--rekey', '--child', suite)
                until('the child is rekeyed', lambda: len(now := us.child_spis()) == 1 and now != old, 10)
        us.swanctl('--terminate', '--ike', 'nat')
        until('both ends are clean', lambda: not us.sas() and not guest.states(), 10)
    errors = guest.xfrm_errors()
    check(not errors, f"counters of the kernel: {errors or 'all zero'}")


def checksums_behind_our_nat(lab, full):
    """Transport mode, IronSwan behind a NAT: the checksums that the kernel's packets bring are for the NAT's address."""
    nat_box(lab, 'g1', '192.0.2.1')
    lab.ip('g1', 'route', 'add', 'default', 'via', '10.5.0.1')
    guest = StrongSwanGuest(lab, nat_text('192.0.2.2', '%any', 'g2.nat', 'g1.nat', True), addrs='192.0.2.2/24')
    guest.serve_echo()
    us = IronSwan(lab, 'g1').start(nat_text('10.5.0.2', '192.0.2.2', 'g1.nat', 'g2.nat', False))
    nat_case(lab, us, guest, us.initiate, 'g1', '192.0.2.2', '10.5.0.2')


def checksums_behind_the_nat_of_a_kernel(lab, full):
    """Transport mode, the kernel behind a NAT: its packets' checksums are for the address it has there."""
    nat_box(lab, 'g2', '192.0.2.254')
    guest = StrongSwanGuest(lab, nat_text('10.5.0.2', '192.0.2.1', 'g2.nat', 'g1.nat', False), addrs='10.5.0.2/24', gateway=('10.5.0.1',))
    us = IronSwan(lab, 'g1').start(nat_text('192.0.2.1', '%any', 'g1.nat', 'g2.nat', False))
    echo = lab.spawn('g1', sys.executable, os.path.join(HERE, 'echo.py'), 'serve', name='echo')
    until('the echo server listens', lambda: 'ready' in echo.log(), 20)
    nat_case(lab, us, guest, lambda suite: guest.swanctl('--initiate', '--child', suite), guest, '192.0.2.1', '10.5.0.2')


if __name__ == '__main__':
    main({f.__name__: f for f in (
        every_esp_suite, every_ah_suite, every_engine, checksums_behind_our_nat, checksums_behind_the_nat_of_a_kernel)}, 'suites')
