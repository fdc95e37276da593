#!/usr/bin/env python3
"""Quick crash detection (RFC 6290): a daemon that was killed proves to its peer that it has lost the IKE_SA; no token of a standing
IKE_SA is told; a secret that cannot be used; and a peer that does not know the extension.

usage: testkit/interop/run crash[.TEST]
Tokens are computed a second time here, from the file of the secret and the SPIs.
"""
import hashlib
import hmac
import itertools
import os
import re
import signal
import subprocess
import sys
import time

from gateway import ADDRESS, OTHER, Charon, IronSwan, tunnel
from lab import check, main, need, say, until
from traffic import ping

# A bound on the time from the restarted daemon's readiness to the first packet through the new tunnel, in seconds.
UP_AGAIN = 5
ALIVE = 'dpd_delay = 1s\n    keyingtries = 0'
INFORMATIONAL, CREATE_CHILD_SA = 37, 36
INVALID_IKE_SPI, QUICK_CRASH_DETECTION = 4, 16419

# Sends one datagram from a box, and prints what comes back within half a second, in hexadecimal.
ASK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.5)
s.sendto(bytes.fromhex(sys.argv[2]), (sys.argv[1], 500))
try:
    print(s.recv(2000).hex())
except TimeoutError:
    pass
"""


def token(gateway, maker_is_initiator, spi_i, spi_r):
    """RFC 6290 section 5.1: from QCD_SECRET and the SPIs alone."""
    with open(os.path.join(gateway.state, 'qcd-secret'), 'rb') as f:
        secret = f.read()
    return hmac.new(secret, bytes([maker_is_initiator]) + spi_i + spi_r, hashlib.sha256).digest()[:16]


def request(spi_i, spi_r, exchange=INFORMATIONAL, initiator=True, length=200):
    """What looks like a request of an IKE_SA with keys."""
    head = spi_i + spi_r + bytes([46, 0x20, exchange, 8 if initiator else 0]) + (2).to_bytes(4, 'big') + length.to_bytes(4, 'big')
    body = length - len(head)
    return head + bytes(2) + body.to_bytes(2, 'big') + bytes(body - 4)


def ask(lab, box, gateway, datagram):
    """The answer of a gateway to a datagram from this box, empty when there is none."""
    out = lab.run(box, sys.executable, '-c', ASK, ADDRESS[gateway.box], datagram.hex())
    return bytes.fromhex(out.strip())


def notifies(message):
    """Type and data of each notification of a message in clear, by tshark's reading and ours."""
    kind, at, found = message[16], 28, []
    while kind:
        check(kind == 41, f'a notification: payload {kind}')
        length = int.from_bytes(message[at + 2:at + 4], 'big')
        found.append((int.from_bytes(message[at + 6:at + 8], 'big'), message[at + 8:at + length], message[at + 4]))
        kind, at = message[at], at + length
    check(at == len(message), 'nothing follows')
    return found


def shown_by_tshark(lab, message):
    """What tshark reads in a message that is sent from port 500."""
    dump = lab.write('answer.hex', '000000 ' + ' '.join(f'{b:02x}' for b in message) + '\n')
    capture = lab.path('answer.pcap')
    subprocess.run(['text2pcap', '-q', '-u', '500,500', dump, capture], check=True, stderr=subprocess.DEVNULL)
    return subprocess.run(['tshark', '-r', capture, '-V'], check=True, capture_output=True, text=True).stdout


def killed(gateway):
    gateway.process.send(signal.SIGKILL)
    gateway.process.popen.wait(10)


def passes(lab):
    return lab.run('a', 'ping', '-c', '1', '-W', '0.2', '-n', '10.2.0.2', fail=False).returncode == 0


def crash(lab, rekeyed):
    """g2 is killed while a sends through the tunnel. When g2 is back, g1 learns by the token and sets the tunnel up again."""
    need('ip', 'nft', 'ping')
    lab.line()
    g1 = IronSwan(lab, 'g1').start(tunnel('g1', conn=ALIVE, child='dpd_action = restart'))
    g2 = IronSwan(lab, 'g2').start(tunnel('g2'))
    g1.initiate()
    ping(lab)
    if rekeyed:
        g1.rekey('ike')
        g2.rekey('ike')
        until('both have one IKE_SA', lambda: len(g1.sas()) == len(g2.sas()) == 1)
    before = g1.ike_spis()
    killed(g2)
    g2.start(tunnel('g2'))
    began = time.monotonic()
    until('a packet gets through', lambda: passes(lab), UP_AGAIN, 0.05)
    took = time.monotonic() - began
    say(f'the tunnel carries again {took:.2f} s after the killed daemon was back; limit {UP_AGAIN} s')
    check(took < UP_AGAIN, f'{took:.2f} s')
    check(not before & g1.ike_spis(), 'by another IKE_SA')
    check('the peer has restarted without this IKE_SA, as its QCD token from 192.0.2.2:' in g1.log(), 'the log of the survivor has the reason')
    check(g1.process.alive() and g2.process.alive(), 'both run')
    ping(lab)


def killed_daemon_proves_that_it_has_lost_the_ike_sa(lab, full):
    """The token of IKE_AUTH."""
    crash(lab, False)


def killed_daemon_proves_it_after_rekeyings(lab, full):
    """The tokens of successors, by CREATE_CHILD_SA and by INFORMATIONAL."""
    crash(lab, True)


def tokens_are_those_of_the_rfc_and_none_is_of_a_standing_ike_sa(lab, full):
    """Answers to forged requests, computed again here and read by tshark; none for the SPIs of a standing IKE_SA, from any address."""
    need('ip', 'nft', 'ping', 'tshark', 'text2pcap')
    lab.line()
    g1, g2 = (IronSwan(lab, box).start(tunnel(box)) for box in ('g1', 'g2'))
    mode = os.stat(os.path.join(g2.state, 'qcd-secret'))
    check((mode.st_mode & 0o777, mode.st_size) == (0o600, 32), f'the secret has mode {mode.st_mode & 0o777:o} and {mode.st_size} bytes')
    i, r = bytes(range(1, 9)), bytes(range(11, 19))
    for initiator in (True, False):
        answer = ask(lab, 'g1', g2, request(i, r, CREATE_CHILD_SA, initiator))
        check(answer[:16] == i + r and answer[18] == CREATE_CHILD_SA and answer[20:24] == (2).to_bytes(4, 'big'),
              'SPIs, exchange and message ID are those of the request')
        check(answer[19] == 0x20 | (0 if initiator else 8), f'flags {answer[19]:02x}')
        (first, data, _), (second, ours, protocol) = notifies(answer)
        check((first, data, second, protocol) == (INVALID_IKE_SPI, b'', QUICK_CRASH_DETECTION, 1), 'INVALID_IKE_SPI and a token')
        check(ours == token(g2, not initiator, i, r), 'the token is the one that is computed here')
    shown = shown_by_tshark(lab, answer)
    check('INVALID_IKE_SPI' in shown and re.search(r'QCD|QUICK_CRASH_DETECTION', shown) and 'Malformed' not in shown, 'tshark reads both')
    for length in (52, 57, 60, 61):
        answer = ask(lab, 'g1', g2, request(i, r, length=length))
        check(0 < len(answer) <= length, f'{len(answer)} bytes for a request of {length}')
    check(ask(lab, 'g1', g2, request(i, r, length=51)) == b'', 'none where there is no room')
    g1.initiate()
    ping(lab)
    for rekeyed in (False, True):
        if rekeyed:
            g1.rekey('ike')
        (live_i, live_r), = ((bytes.fromhex(a), bytes.fromhex(b)) for a, b in g2.ike_spis())
        asked = itertools.product((INFORMATIONAL, CREATE_CHILD_SA), (True, False), ('g1', 'g2'), ((live_i, live_r), (live_r, live_i)))
        answers = [ask(lab, box, g2, request(*pair, exchange, initiator)) for exchange, initiator, box, pair in asked]
        check(not any(answers), f'{len(answers)} forged requests of a standing IKE_SA get no answer')
        ping(lab)


def secret_that_cannot_be_used_is_said(lab, full):
    """Damaged, open to others, used by another gateway, in a folder that is not there: the log has it, and the daemon runs without tokens."""
    need('ip', 'nft', 'ping')
    lab.line()
    g2 = IronSwan(lab, 'g2').start(tunnel('g2'))
    used = os.path.join(g2.state, 'qcd-secret')
    i, r = bytes(range(1, 9)), bytes(range(11, 19))
    g1 = IronSwan(lab, 'g1')
    state = lab.path('own')
    os.makedirs(state)

    def secret(content, mode=0o600):
        path = os.path.join(state, 'secret')
        with open(path, 'wb') as f:
            f.write(content)
        os.chmod(path, mode)
        return path

    for make, words in ((lambda: used, 'another gateway uses the secret'),
                        (lambda: secret(b'short'), 'has 5 bytes, and needs 32'),
                        (lambda: secret(bytes(32)), 'has the same byte throughout'),
                        (lambda: secret(os.urandom(32), 0o644), 'others may read or write the secret'),
                        (lambda: '/proc/nowhere/secret', 'can be neither read nor made')):
        path = make()
        g1.start(tunnel('g1'), settings=f'qcd_secret = {path}\n')
        check(words in g1.log(), f'the log says that the secret {words}')
        check(ask(lab, 'g2', g1, request(i, r)) == b'', 'and nothing is answered')
        if path == used:
            g1.initiate()
            ping(lab)
        g1.stop()
    os.remove(os.path.join(state, 'secret'))
    g1.start(tunnel('g1'), settings=f'qcd_secret = {state}/secret\n')
    check(ask(lab, 'g2', g1, request(i, r)) != b'', 'a file that is not there is made')
    with open(os.path.join(state, 'secret'), 'rb') as f:
        made = f.read()
    g1.stop()
    g1.start(tunnel('g1'), settings=f'qcd_secret = {state}/secret\n')
    with open(os.path.join(state, 'secret'), 'rb') as f:
        check(f.read() == made, 'and the next start has the same')
    g1.stop()
    g1.start(tunnel('g1'), settings='quick_crash_detection = no\n')
    check(ask(lab, 'g2', g1, request(i, r)) == b'', 'quick_crash_detection = no: nothing is answered')
    check('QCD' not in g1.log(), 'and nothing is said')


def strongswan_ignores_tokens(lab, full):
    """strongSwan does not know RFC 6290: it passes over the notification in IKE_AUTH, CREATE_CHILD_SA and INFORMATIONAL, in both roles."""
    need('ip', 'swanctl', 'charon-systemd', 'ping')
    lab.line()
    for initiator in ('us', 'them'):
        us = IronSwan(lab, 'g1').start(tunnel('g1'))
        them = Charon(lab, 'g2').start(tunnel('g2'), log='default = 1, ike = 2, enc = 1, cfg = 2')
        (us if initiator == 'us' else them).initiate()
        ping(lab)
        for gateway in (us, them):
            gateway.rekey('ike')
            until('both have one IKE_SA', lambda: len(us.sas()) == len(them.sas()) == 1)
        check(us.ike_spis() == them.ike_spis(), 'both name the same IKE SPIs')
        ping(lab)
        parsed = re.findall(r'parsed (\w+ re\w+) \d+ \[[^]]*N\(CRASH_DET\)', them.log())
        role = 'request' if initiator == 'us' else 'response'
        check(parsed == [f'IKE_AUTH {role}', 'INFORMATIONAL request', 'CREATE_CHILD_SA response'], f"charon's log has the notification in {parsed}")
        us.stop()
        them.stop()


main({f.__name__: f for f in (killed_daemon_proves_that_it_has_lost_the_ike_sa, killed_daemon_proves_it_after_rekeyings,
                              tokens_are_those_of_the_rfc_and_none_is_of_a_standing_ike_sa, secret_that_cannot_be_used_is_said,
                              strongswan_ignores_tokens)}, 'crash')
