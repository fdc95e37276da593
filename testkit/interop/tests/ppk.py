#!/usr/bin/env python3
"""Post-quantum preshared keys: in IKE_AUTH (RFC 8784) with strongSwan 5.9.8, and in IKE_INTERMEDIATE (RFC 9867, of which it has draft 04)
with Libreswan 5.2; in both roles, required and optional.

usage: testkit/interop/run ppk[.TEST]
"""
import re

import keys
import life
from gateway import OTHER, REFERENCE, Charon, IronSwan, Ours, tunnel
from guest import line_before_guest, with_guest
from lab import check, main, need, until
from libreswan import Libreswan, conf
from traffic import Numbered, check_no_loss, ping

KEY = '0x' + '5a' * 32
ANOTHER = '0x' + '5b' * 32


def ppk(box, name='office.ppk', secret=KEY, required=False, named=True, **conf):
    """swanctl.conf of one end with a PPK of this name, which its connection names unless `named` is false."""
    keys_of_conn = [f'ppk_id = {name}'] * named + ['ppk_required = yes'] * required
    text = tunnel(box, conn='\n    '.join(keys_of_conn), **conf)
    return text + f'secrets {{\n  ppk-1 {{\n    id = {name}\n    secret = {secret}\n  }}\n}}\n'


def pair(lab, ours, our_text, their_text, log=False):
    """The line, IronSwan in box `ours` and charon in the other."""
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    us = Ours(lab, ours).start(our_text, keys=log)
    return us, Charon(lab, OTHER[ours]).start(their_text, keys=log)


def has_ppk(gateway):
    return [sa.get('ppk') for sa in gateway.established()] == ['yes']


def carried(lab, ours):
    """Numbered packets both ways while each side rekeys the CHILD_SA and the IKE_SA, with a PPK that both require."""
    us, them = pair(lab, ours, ppk(ours, required=True), ppk(OTHER[ours], required=True), log=True)
    initiator = us if ours == 'g1' else them
    initiator.initiate()
    ping(lab)
    check(has_ppk(us) and has_ppk(them), 'both list the IKE_SA with a PPK')
    check('using PPK for PPK_ID' in us.log() and 'using PPK for PPK_ID' in them.log(), 'both say so in their logs')
    load = Numbered(lab)
    for gateway in (us, them):
        for what in ('child', 'ike'):
            gateway.rekey(what)
            check(has_ppk(us), f'{gateway.kind} rekeyed the {what}: our IKE_SA has a PPK')
    check_no_loss(load.end(), at_least=20)
    until('both have one IKE_SA', lambda: len(us.sas()) == len(them.sas()) == 1)
    check(us.ike_spis() == them.ike_spis(), 'both name the same IKE SPIs')
    check(us.child_spis() == {(o, i) for i, o in them.child_spis()}, 'both name the same ESP SPIs')
    return us, them


def required_as_initiator(lab, full):
    """We initiate with a PPK that both sides require; keys of every CHILD_SA are charon's."""
    us, them = carried(lab, 'g1')
    same_keys(us, them)


def required_as_responder(lab, full):
    """charon initiates with a PPK that both sides require; keys of every CHILD_SA are charon's."""
    us, them = carried(lab, 'g2')
    same_keys(us, them)


def same_keys(us, them):
    """Compares the keys that both have written down, of CHILD_SAs in any order."""
    ours = keys.of_charon(us.log())[1] if REFERENCE else keys.of_ironswan(us.keys)[1]
    theirs = keys.of_charon(them.log())[1]
    check(len(ours) >= 3 and set(ours) == set(theirs), f'{len(ours)} CHILD_SAs have the same keys on both sides')


# What each side has: (ours, theirs, the IKE_SA has a PPK or None when it must not come up), by the name of the case.
CASES = (
    ('both can go without', {}, {}, True),
    ('the initiator requires it', {'i': True}, {}, True),
    ('the responder requires it', {'r': True}, {}, True),
    ('the responder names none', {}, {'r named': False}, True),
    # A responder of charon's that names a PPK refuses another one even where it can go without, so it names none.
    ('the responder has another one', {}, {'r name': 'other.ppk', 'r named': False}, False),
    ('the responder has another one, required by the initiator', {'i': True}, {'r name': 'other.ppk', 'r named': False}, None),
    ('the responder has another one, required by it', {'r': True}, {'r name': 'other.ppk', 'r named': False}, None),
    ('another secret', {}, {'r secret': ANOTHER}, None),
    ('the responder has none', {}, {'r': None}, False),
    ('the responder has none, required by the initiator', {'i': True}, {'r': None}, None),
    ('the initiator has none', {}, {'i': None}, False),
    ('the initiator has none, required by the responder', {'r': True}, {'i': None}, None),
)


def text_of(box, role, required, changes):
    if changes.get(role, True) is None:
        return tunnel(box)
    change = {key.split()[1]: value for key, value in changes.items() if key.startswith(f'{role} ')}
    return ppk(box, required=bool(required.get(role)), **change)


def every_pair(lab, ours):
    us, them = pair(lab, ours, tunnel(ours), tunnel(OTHER[ours]))
    initiator, responder = (us, them) if ours == 'g1' else (them, us)
    for name, required, changes, result in CASES:
        initiator.load(text_of('g1', 'i', required, changes))
        responder.load(text_of('g2', 'r', required, changes))
        done = initiator.swanctl('--initiate', '--child', 'net', '--timeout', '20', fail=False)
        if result is None:
            check(done.returncode != 0, f'{name}: {done.stdout.strip().splitlines()[-1]}')
        else:
            check(done.returncode == 0, f'{name}: it comes up')
            ping(lab)
            shown = [gateway.established()[0].get('ppk') == 'yes' for gateway in (us, them)]
            check(shown == [result] * 2, f'{name}: both say {"with" if result else "without"} a PPK')
            initiator.terminate()
        # A responder keeps what its peer has given up for half a minute, half-open.
        until('no IKE_SA is left', lambda: not us.established() and not them.established())
    return us


def each_pair_as_initiator(lab, full):
    """PPKs that one side lacks, names otherwise or has another value of: we initiate."""
    us = every_pair(lab, 'g1')
    if not REFERENCE:
        for pattern in (r"the two sides have not both announced PPKs", r"going on without PPK 'office\.ppk'",
                        r"with PPK 'office\.ppk', whose secret may differ"):
            check(re.search(pattern, us.log()), f'our log says: {pattern}')


def each_pair_as_responder(lab, full):
    """The same when charon initiates: we refuse what has to be refused."""
    us = every_pair(lab, 'g2')
    if not REFERENCE:
        # The log has one line of a refused peer in ten seconds: the first refusal is this one.
        pattern = r"the peer requires a PPK that is not here: it names 'office\.ppk', here ppk_id is not set"
        check(re.search(pattern, us.log()), f'our log says: {pattern}')
        check('5a5a5a5a' not in us.log(), 'no key is in our log')


TEXT_KEY = 'x7Qm2cR9vLw4Zt8KpY3bNf6HsJ1dGa5E'
INTERMEDIATE = 'intermediate=yes\nppk=insist\nppk-ids=office.ppk'


def with_ppk(secret=TEXT_KEY, **conf):
    """swanctl.conf of our end of a line to Libreswan."""
    return ppk('g1', secret=f'"{secret}"', encap=False, ike='aes128gcm16-prfsha256-x25519', **conf)


def pluto(lab, more, final=True):
    """IronSwan in g1, and Libreswan 5.2 behind g2 with these settings and one PPK. `final`: it has the numbers of RFC 9867."""
    line_before_guest(lab)
    them = Libreswan(lab, conf('g2', more=more), major=5, secrets=f': PPKS "office.ppk" "{TEXT_KEY}"\n', final=final)
    return IronSwan(lab, 'g1').start(), them


def used(gateway, role):
    return f'PPK used in IKE_INTERMEDIATE as {role}' in gateway.log()


def with_pluto(lab, initiates):
    """A whole life of a tunnel whose PPK comes in IKE_INTERMEDIATE, with both rekeyings from both sides and traffic."""
    us, them = pluto(lab, INTERMEDIATE)
    us.load(with_ppk(required=True))

    def traffic(change):
        check(has_ppk(us), 'we list the IKE_SA with a PPK')
        return with_guest(lab, them, 'a', '10.1.0.2', '10.2.0.1', change, 20, 0.3, 0.5)

    report = life.live(us, them, us if initiates else them, traffic, lambda us, them: [(w, k) for w in (us, them) for k in ('child', 'ike')])
    for way, r in report.items():
        check(r['received'] > 20 and not r['corrupt'], f"{way}: {r['received']} of {r['sent']} packets")
    role = 'responder' if initiates else 'initiator'
    check(used(them, role), f'Libreswan used the PPK in IKE_INTERMEDIATE as {role}')
    check("using PPK for PPK_ID 'office.ppk'" in us.log(), 'our log names it')


def libreswan_as_initiator(lab, full):
    """We initiate with Libreswan 5.2: the PPK is in the keys of IKE_AUTH already."""
    with_pluto(lab, True)


def libreswan_as_responder(lab, full):
    """Libreswan 5.2 initiates."""
    with_pluto(lab, False)


def libreswan_without_a_common_ppk(lab, full):
    """A wrong secret in IKE_INTERMEDIATE, required by either side, in both roles."""
    us, them = pluto(lab, INTERMEDIATE)
    wrong = TEXT_KEY[::-1]
    us.load(with_ppk(wrong))
    done = us.swanctl('--initiate', '--child', 'net', '--timeout', '20', fail=False)
    check(done.returncode != 0, 'we initiate, Libreswan insists on another secret: refused')
    check('the peer requires a PPK, and does not have ours, or has another secret for it' in us.log(), 'our log says why')
    them.load(conf('g2', more=INTERMEDIATE.replace('insist', 'yes')))
    us.load(with_ppk(wrong, required=True))
    them.whack('--initiate', '--asynchronous', '--name', 'net')
    until('our log says that its secret is another one', lambda: "another secret for PPK 'office.ppk' than we have" in us.log(), 30)
    them.terminate()
    us.load(with_ppk(wrong))
    us.initiate()
    check([sa.get('ppk') for sa in us.established()] == [None], 'the tunnel comes up without a PPK where neither side requires one')
    check('does not have it or has another secret for it, and neither side requires it' in us.log(), 'our log says so')


def libreswan_with_the_numbers_of_draft_04(lab, full):
    """Libreswan 5.2 as it is: its IKE_SA_INIT has private numbers, which mean nothing to us, so both use the PPK in IKE_AUTH."""
    us, them = pluto(lab, INTERMEDIATE, final=False)
    us.load(with_ppk(required=True))
    them.initiate()
    check(has_ppk(us), 'Libreswan initiates: the PPK comes in IKE_AUTH')
    check('PPK AUTH calculated as initiator' in them.log() and not used(them, 'initiator'), 'Libreswan says so')
    them.terminate()
    until('it is down', lambda: not us.established())
    # As responder it adds IKE_INTERMEDIATE to AUTH when both have announced it, also when none has taken place (not RFC 9242 section 3.3.2).
    us.load(with_ppk(required=True).replace('ppk_required', 'ppk_intermediate = no\n    ppk_required'))
    us.initiate()
    check(has_ppk(us), 'we initiate, with ppk_intermediate = no: the PPK comes in IKE_AUTH')
    check('PPK AUTH calculated as responder' in them.log(), 'Libreswan says so')


main({f.__name__: f for f in (required_as_initiator, required_as_responder, each_pair_as_initiator, each_pair_as_responder,
                              libreswan_as_initiator, libreswan_as_responder, libreswan_without_a_common_ppk,
                              libreswan_with_the_numbers_of_draft_04)}, 'ppk')
