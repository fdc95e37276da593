#!/usr/bin/env python3
"""An independent judge of IKE's keys: RFC 7296 sections 2.13 to 2.18, RFC 8784 section 3, RFC 9242 section 3.3, RFC 9370 section 2.2 and
RFC 9867 section 3.1, from their text.

JSON lines on standard input, one answer line each on standard output. Every value of bytes is in hex. The PRF is HMAC-SHA2 with
"bits" 256, 384 or 512.

  {"op": "keys", "bits": n, "lens": [lengths of SK_d, ai, ar, ei, er, pi, pr], "ni", "nr", "spi_i", "spi_r",
   "shared": [secret of IKE_SA_INIT, of each IKE_INTERMEDIATE]}       the answer: {"keys": [[seven keys] after each exchange]}
  {"op": "rekey", ..., "sk_d": of the old IKE_SA, "shared": [secret of CREATE_CHILD_SA, of each IKE_FOLLOWUP_KE]}
                                                                      the answer: {"keys": [[seven keys]]}
  {"op": "keymat", "bits": n, "length": of KEYMAT, "ni", "nr", "sk_d", "shared": as for "rekey"}      the answer: {"keymat": hex}
  {"op": "int_auth", "bits": n, "messages": [{"header": 28 bytes as on the wire, "first": type of the first payload inside,
   "inner": payloads, "sk_p": key of the sender, "clear": [type, payloads in clear] if any, "bits": critical and RESERVED bits of
   the encrypted payload if not 0}], "mid": message ID of IKE_AUTH}                   the answer: {"int_auth": hex}
  {"op": "ppk", "bits": n, "ppk": key, "keys": [seven keys of the IKE_SA]}           the answer: {"keys": [[seven keys]]}
  {"op": "ppk_int", ..., as for "keys", "ppk": key}         the answer: the same, the last keys with the PPK, and {"confirmation": hex}
"""

import hashlib
import hmac
import json
import struct
import sys


def prf(bits, key, data):
    return hmac.new(key, data, getattr(hashlib, f'sha{bits}')).digest()


def prf_plus(bits, key, seed, length):
    """T1 | T2 | ... with T(n) = prf(K, T(n-1) | S | n), RFC 7296 section 2.13."""
    out, last, n = b'', b'', 0
    while len(out) < length:
        n += 1
        last = prf(bits, key, last + seed + bytes([n]))
        out += last
    return out[:length]


def expand(q, skeyseed):
    """The seven keys, cut from prf+ (SKEYSEED, Ni | Nr | SPIi | SPIr)."""
    stream = prf_plus(q['bits'], skeyseed, q['ni'] + q['nr'] + q['spi_i'] + q['spi_r'], sum(q['lens']))
    keys = []
    for length in q['lens']:
        keys.append(stream[:length])
        stream = stream[length:]
    return keys


def keys(q):
    """After IKE_SA_INIT, and after each IKE_INTERMEDIATE: SKEYSEED(n) = prf(SK_d(n-1), SK(n) | Ni | Nr)."""
    rows = [expand(q, prf(q['bits'], q['ni'] + q['nr'], q['shared'][0]))]
    for secret in q['shared'][1:]:
        rows.append(expand(q, prf(q['bits'], rows[-1][0], secret + q['ni'] + q['nr'])))
    return rows


def rekey(q):
    """SKEYSEED = prf(SK_d, SK(0) | Ni | Nr | SK(1) | ... | SK(n))."""
    first, *more = q['shared']
    return [expand(q, prf(q['bits'], q['sk_d'], first + q['ni'] + q['nr'] + b''.join(more)))]


def keymat(q):
    """KEYMAT = prf+ (SK_d, SK(0) | Ni | Nr | SK(1) | ... | SK(n))."""
    first, *more = q['shared']
    return prf_plus(q['bits'], q['sk_d'], first + q['ni'] + q['nr'] + b''.join(more), q['length'])


def ppk(q):
    """SK_d, SK_pi and SK_pr become prf+ (PPK, SK'), each as long as before."""
    rows = [bytes.fromhex(key) for key in q['keys']]
    for n in (0, 5, 6):
        rows[n] = prf_plus(q['bits'], bytes.fromhex(q['ppk']), rows[n], len(rows[n]))
    return [rows]


def ppk_int(q):
    """SKEYSEED = prf+ (PPK, SK_d) after the last key exchange; PPK Confirmation of 8 bytes."""
    key, rows = bytes.fromhex(q['ppk']), keys(q)
    with_ppk = expand(q, prf_plus(q['bits'], key, rows[-1][0], q['bits'] // 8))
    # A PPK beside an additional key exchange replaces that exchange's keys; without one it has an exchange of its own.
    rows = rows[:-1] + [with_ppk] if len(rows) > 1 else rows + [with_ppk]
    return rows, prf(q['bits'], key, q['ni'] + q['nr'] + q['spi_i'] + q['spi_r'])[:8]


def int_auth(q):
    """IntAuth_iN | IntAuth_rN | MID, of messages whose lengths count neither IV, padding nor ICV."""
    chains = {False: b'', True: b''}
    for m in q['messages']:
        header, inner = bytearray.fromhex(m['header']), bytes.fromhex(m['inner'])
        is_response = bool(header[19] & 0x20)
        kind, clear = m.get('clear', (46, ''))
        clear = bytes.fromhex(clear)
        header[16] = kind  # 46 is the Encrypted payload, also of a message that came in fragments.
        header[24:28] = struct.pack('!I', 28 + len(clear) + 4 + len(inner))
        generic = clear + struct.pack('!BBH', m['first'], m.get('bits', 0), 4 + len(inner))
        chains[is_response] = prf(q['bits'], bytes.fromhex(m['sk_p']), chains[is_response] + bytes(header) + generic + inner)
    return chains[False] + chains[True] + struct.pack('!I', q['mid'])


def answer(q):
    for name in ('ni', 'nr', 'spi_i', 'spi_r', 'sk_d'):
        if name in q:
            q[name] = bytes.fromhex(q[name])
    if q['op'] == 'int_auth':
        return {'int_auth': int_auth(q).hex()}
    q['shared'] = [bytes.fromhex(s) for s in q.get('shared', ())]
    if q['op'] == 'keymat':
        return {'keymat': keymat(q).hex()}
    if q['op'] == 'ppk_int':
        rows, confirmation = ppk_int(q)
        return {'keys': [[key.hex() for key in row] for row in rows], 'confirmation': confirmation.hex()}
    rows = {'keys': keys, 'rekey': rekey, 'ppk': ppk}[q['op']](q)
    return {'keys': [[key.hex() for key in row] for row in rows]}


if __name__ == '__main__':
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
