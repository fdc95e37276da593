#!/usr/bin/env python3
"""Several rounds of IKE_AUTH (RFC 4739) with strongSwan: certificates and then pre-shared keys, on both sides or on one, in both roles."""
import certs
from gateway import OTHER, SECRET, Charon, Ours, tunnel
from lab import check, main, need, until
from traffic import Numbered, check_no_loss, ping

PLUGINS = Charon.plugins + ' x509 constraints'


def conf(box, rounds, secret=SECRET):
    """swanctl.conf of a box; `rounds`: boxes that prove themselves by a pre-shared key as well."""
    def more(side, of):
        name = 'local' if side == box else 'remote'
        return f"""
    {name}-2 {{
      round = 2
      auth = psk
      id = office-{of}.example
    }}""" if of in rounds else ''

    text = tunnel(box, conn=more(box, box) + more(None, OTHER[box]), secret=secret, **certs.conf(box))
    # The sections of the first round come later in the text.
    return text.replace('    local {', '    local-1 {\n      round = 1').replace('    remote {', '    remote-1 {\n      round = 1')


def pair(lab, rounds, secret=SECRET):
    """The line, IronSwan in g1 and charon in g2, which has this secret."""
    need('ip', 'swanctl', 'charon-systemd', 'ping', 'pki')
    lab.line()
    certs.Chains(lab, 'ecdsa')
    us = Ours(lab, 'g1').start(conf('g1', rounds))
    return us, Charon(lab, 'g2').start(conf('g2', rounds, secret), load=PLUGINS)


def lives(lab, rounds, initiates):
    """A whole life: up, rekeyed by both sides with traffic, down."""
    us, them = pair(lab, rounds)
    initiator = (us, them)[initiates]
    initiator.initiate()
    ping(lab)
    said = us.log()
    for box in rounds:
        mine = f"authentication of 'office-{box}.example'" + (' (myself)' if box == 'g1' else ' with')
        check(mine in said, f'our log: {mine}')
    conns = us.swanctl('--list-conns')
    check(conns.count('pre-shared key authentication') == len(rounds), 'list-conns shows each round')
    load = Numbered(lab)
    for gateway in (us, them):
        for what in ('child', 'ike'):
            gateway.rekey(what)
    check_no_loss(load.end(), at_least=20)
    initiator.swanctl('--terminate', '--ike', 'net')
    until('both are gone', lambda: not us.sas() and not them.sas())


def as_initiator(lab, full):
    """We initiate; both sides have two rounds."""
    lives(lab, ('g1', 'g2'), 0)


def as_responder(lab, full):
    """charon initiates; both sides have two rounds."""
    lives(lab, ('g1', 'g2'), 1)


def of_one_side(lab, rounds):
    """Only one side has two rounds."""
    us, them = pair(lab, rounds)
    for initiator in (us, them):
        initiator.initiate()
        ping(lab)
        check(True, f'{rounds[0]} has two rounds, {initiator.kind} initiates')
        initiator.swanctl('--terminate', '--ike', 'net')
        until('both are gone', lambda: not us.sas() and not them.sas())


def of_ours_alone(lab, full):
    """Only we have two rounds, in both roles."""
    of_one_side(lab, ('g1',))


def of_theirs_alone(lab, full):
    """Only charon has two rounds, in both roles."""
    of_one_side(lab, ('g2',))


def wrong_second_secret(lab, full):
    """The certificate is right, and the secret of the second round is not."""
    us, them = pair(lab, ('g1', 'g2'), secret='another one')
    for initiator in (us, them):
        done = initiator.swanctl('--initiate', '--child', 'net', '--timeout', '20', fail=False)
        check(done.returncode != 0, f'{initiator.kind} initiates, and is refused')
        until('nothing is left', lambda: not us.sas() and not them.sas())
    check("authentication of 'office-g2.example' with pre-shared key failed" in us.log(), 'our log names the round')


if __name__ == '__main__':
    main({f.__name__: f for f in (as_initiator, as_responder, of_ours_alone, of_theirs_alone, wrong_second_secret)}, 'rounds')
