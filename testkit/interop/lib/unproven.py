#!/usr/bin/env python3
"""Sends IKE_AUTH requests as peers that complete the key exchange and then prove nothing.

usage: unproven.py MODE TARGET PREFIX RATE SECONDS [ROOT [KEY WEB]]
MODE: many      100 certificates in one message
      long      certificates of 1 MB together, in fragments of 1,200 bytes (RFC 7383)
      rsa       a certificate with an RSA key of 16,384 bits, issued by another with such a key, which claims to come from ROOT
      deep      a certificate of ASN.1 sequences that lie in each other, 4,000 deep
      halves    the first of two fragments, and never the second
      garbled   a message whose integrity check value is wrong
      wrong     the AUTH payload of a wrong pre-shared key
      unsigned  a certificate that ROOT did not issue, with a signature by nobody
      lies      a certificate from ROOT, by whose KEY, with a valid signature; its list is at a server of WEB (HOST:PORT, web.py) that
                lies, in a file, or at loopback, and nobody has asked for it before
PREFIX (IPv4) must be routed to this box, which takes all of its addresses for its own. ROOT is a file with a certificate in PEM.
Prints one JSON object.
"""
import datetime
import hashlib
import hmac
import json
import os
import random
import select
import struct
import sys
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flood import payload, transform
from strangers import Strangers, with_cookie

SA, KE, IDI, CERT, AUTH, NONCE, NOTIFY, TSI, TSR, SK, SKF = 33, 34, 35, 37, 39, 40, 41, 44, 45, 46, 53
FRAGMENTATION_SUPPORTED, SIGNATURE_HASH_ALGORITHMS = 16430, 16431
PER_FRAGMENT = 1200
# SHA2-256, SHA2-384 and SHA2-512.
HASHES = struct.pack('!HHH', 2, 3, 4)


def prf(key, *parts):
    return hmac.digest(key, b''.join(parts), hashlib.sha256)


def prf_plus(key, seed, length):
    """RFC 7296 section 2.13."""
    out = last = b''
    for n in range(1, 256):
        last = prf(key, last, seed, bytes([n]))
        out += last
        if len(out) >= length:
            return out[:length]
    raise ValueError(length)


def chain(first, parts):
    """Payloads behind each other: (type, body). Returns the type of the first and the bytes."""
    types = [kind for kind, _ in parts] + [first]
    return types[0], b''.join(payload(types[n + 1], body) for n, (_, body) in enumerate(parts))


def proposal(protocol, spi, *transforms):
    body = b''.join(transform(n == len(transforms) - 1, *t) for n, t in enumerate(transforms))
    return struct.pack('!BBHBBBB', 0, 0, 8 + len(spi) + len(body), 1, protocol, len(spi), len(transforms)) + spi + body


def notify(kind, data=b''):
    return NOTIFY, struct.pack('!BBH', 0, 0, kind) + data


def selector(first, last):
    ends = bytes(map(int, first.split('.'))) + bytes(map(int, last.split('.')))
    return struct.pack('!BBBBBBHHH', 1, 0, 0, 0, 7, 0, 16, 0, 65535) + ends


def parse(first, data):
    """The payloads of a chain, by type; of several with one type the last."""
    found = {}
    while first and len(data) >= 4:
        following, _, length = struct.unpack('!BBH', data[:4])
        found[first] = data[4:length]
        first, data = following, data[length:]
    return found


def wrap(tag, content):
    """One element of DER."""
    n = len(content)
    size = bytes([n]) if n < 128 else bytes([0x80 + (n.bit_length() + 7) // 8]) + n.to_bytes((n.bit_length() + 7) // 8, 'big')
    return bytes([tag]) + size + content


def issue(subject, key, issuer, signer, ca=False):
    now = datetime.datetime(2026, 1, 1)
    builder = (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
               .serial_number(x509.random_serial_number()).not_valid_before(now)
               .not_valid_after(now + datetime.timedelta(days=36500)))
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if ca:
        usage = [False] * 9
        usage[5] = True
        builder = builder.add_extension(x509.KeyUsage(*usage), critical=True)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


LIES = ('http://WEB/hang', 'http://WEB/endless', 'http://WEB/drip', 'http://WEB/header', 'http://WEB/file', 'http://WEB/loopback',
        'http://WEB/rubbish', 'file:///etc/passwd', 'http://127.0.0.1/list', 'http://localhost/list')


class Liars:
    """Certificates of one key, each of which points to another place."""

    def __init__(self, root, root_key, web):
        with open(root, 'rb') as f:
            self.issuer = x509.load_pem_x509_certificate(f.read()).subject
        with open(root_key, 'rb') as f:
            self.signer = serialization.load_pem_private_key(f.read(), None)
        self.web, self.count, self.key = web, 0, ec.generate_private_key(ec.SECP256R1())

    def certificate(self):
        place = LIES[self.count % len(LIES)].replace('WEB', self.web)
        self.count += 1
        if place.startswith('http'):
            # Places that were asked in vain may be remembered.
            place += f'?{os.getpid()}-{self.count}'
        now = datetime.datetime(2026, 1, 1)
        points = [x509.DistributionPoint([x509.UniformResourceIdentifier(place)], None, None, None)]
        builder = (x509.CertificateBuilder().subject_name(name('peer.example')).issuer_name(self.issuer).public_key(self.key.public_key())
                   .serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=36500))
                   .add_extension(x509.SubjectAlternativeName([x509.DNSName('peer.example')]), critical=False)
                   .add_extension(x509.CRLDistributionPoints(points), critical=False))
        return builder.sign(self.signer, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def name(text):
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def certificates(mode, root):
    """What the CERT payloads hold. Certificates are made once, and sent by all."""
    if mode in ('halves', 'garbled', 'wrong', 'lies'):
        return []
    key = ec.generate_private_key(ec.SECP256R1())
    trusted = name('root')
    if root:
        with open(root, 'rb') as f:
            trusted = x509.load_pem_x509_certificate(f.read()).subject
    if mode == 'deep':
        inner = wrap(5, b'')
        for _ in range(4000):
            inner = wrap(0x30, inner)
        return [inner]
    if mode == 'rsa':
        # Nobody knows the factors of this number, nor has to.
        modulus = random.getrandbits(16384) | 1 << 16383 | 1
        large = rsa.RSAPublicNumbers(65537, modulus).public_key()
        return [issue(name('leaf'), large, name('large'), key), issue(name('large'), large, trusted, key, ca=True)]
    leaf = issue(name('leaf'), key.public_key(), name('link 0') if mode != 'unsigned' else trusted, key)
    if mode == 'unsigned':
        return [leaf]
    # Each says that the next one has issued it, and the last comes from the root.
    links = [issue(name(f'link {n}'), key.public_key(), name(f'link {n + 1}') if n < 98 else trusted, key, ca=True) for n in range(99)]
    if mode == 'many':
        return [leaf] + links
    return [leaf] + [links[n % 99] + os.urandom(20_000) for n in range(50)]


class Peer:
    """One IKE_SA, from the first request to the IKE_AUTH request."""

    def __init__(self, source):
        self.source, self.spi = source, os.urandom(8)
        self.private, self.nonce = X25519PrivateKey.generate(), os.urandom(32)
        public = self.private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        first, body = chain(0, [
            (SA, proposal(1, b'', (1, 20, 128), (2, 5), (4, 31))), (KE, struct.pack('!HH', 31, 0) + public), (NONCE, self.nonce),
            notify(FRAGMENTATION_SUPPORTED), notify(SIGNATURE_HASH_ALGORITHMS, HASHES)])
        self.request = self.spi + bytes(8) + struct.pack('!BBBBII', first, 0x20, 34, 0x08, 0, 28 + len(body)) + body
        self.peer_spi = self.encryption = None
        self.sequence = 0

    def keys(self, response):
        """RFC 7296 section 2.14, with a cipher that authenticates: there is no SK_a."""
        found = parse(response[16], response[28:])
        self.peer_spi = response[8:16]
        shared = self.private.exchange(X25519PublicKey.from_public_bytes(found[KE][4:]))
        seed = prf(self.nonce + found[NONCE], shared)
        made = prf_plus(seed, self.nonce + found[NONCE] + self.spi + self.peer_spi, 32 + 2 * 20 + 2 * 32)
        self.encryption, self.salt = AESGCM(made[32:48]), made[48:52]
        self.peer_nonce, self.proving = found[NONCE], made[72:104]

    def seal(self, kind, first, plain, before=b''):
        """One message with an SK or SKF payload; `before` is what stands between its header and the IV."""
        self.sequence += 1
        iv = struct.pack('!Q', self.sequence)
        size = 4 + len(before) + 8 + len(plain) + 1 + 16
        head = (self.spi + self.peer_spi + struct.pack('!BBBBII', kind, 0x20, 35, 0x08, 1, 28 + size) +
                struct.pack('!BBH', first, 0, size) + before)
        return head + iv + self.encryption.encrypt(self.salt + iv, plain + b'\0', head)

    def authenticate(self, mode, certs, key=None):
        """The messages of the IKE_AUTH request."""
        who = struct.pack('!BBH', 2, 0, 0) + b'peer.example'
        if mode in ('wrong', 'garbled', 'halves'):
            proof = struct.pack('!BBH', 2, 0, 0) + os.urandom(32)
        else:
            # ecdsa-with-SHA256, by its AlgorithmIdentifier (RFC 7427 section 3).
            algorithm = bytes.fromhex('300a06082a8648ce3d040302')
            signature = wrap(0x30, wrap(2, b'\1' * 32) + wrap(2, b'\1' * 32))
            if key:
                # RFC 7296 section 2.15.
                signature = key.sign(self.request + self.peer_nonce + prf(self.proving, who), ec.ECDSA(hashes.SHA256()))
            proof = struct.pack('!BBH', 14, 0, 0) + bytes([len(algorithm)]) + algorithm + signature
        first, plain = chain(0, [(IDI, who), *((CERT, b'\4' + c) for c in certs), (AUTH, proof),
                                 (SA, proposal(3, os.urandom(4), (1, 20, 128), (5, 0))),
                                 (TSI, selector('10.9.0.0', '10.9.0.255')), (TSR, selector('10.1.9.0', '10.1.9.255'))])
        if mode == 'garbled':
            message = self.seal(SK, first, plain)
            return [message[:-1] + bytes([message[-1] ^ 1])]
        if mode == 'halves':
            return [self.seal(SKF, first, plain[:100], struct.pack('!HH', 1, 2))]
        if len(plain) <= PER_FRAGMENT:
            return [self.seal(SK, first, plain)]
        pieces = [plain[at:at + PER_FRAGMENT] for at in range(0, len(plain), PER_FRAGMENT)]
        return [self.seal(SKF, first if n == 1 else 0, piece, struct.pack('!HH', n, len(pieces))) for n, piece in enumerate(pieces, 1)]


def main():
    mode, target, prefix, rate, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5])
    random.seed(1)
    certs = certificates(mode, sys.argv[6] if len(sys.argv) > 6 else None)
    liars = Liars(*sys.argv[6:9]) if mode == 'lies' else None
    strangers = Strangers(target, prefix)
    asked = {}
    seen = {'asked': 0, 'keys': 0, 'IKE_AUTH requests': 0, 'IKE_AUTH responses': 0}
    print('ready', file=sys.stderr, flush=True)
    start = time.monotonic()
    while (now := time.monotonic()) < start + seconds:
        while seen['asked'] < int((now - start) * rate):
            seen['asked'] += 1
            peer = Peer(strangers.address())
            asked[peer.spi] = peer
            strangers.send(peer.source, peer.request)
        for source, message, kind in strangers.answers():
            if message[18] == 35:
                seen['IKE_AUTH responses'] += 1
                continue
            peer = asked.get(message[:8])
            if not peer or source != peer.source:
                continue
            if kind == 'cookies':
                peer.request = with_cookie(peer.request, message[36:])
                strangers.send(source, peer.request)
            elif kind == 'full':
                del asked[message[:8]]
                peer.keys(message)
                seen['keys'] += 1
                for part in peer.authenticate(mode, [liars.certificate()] if liars else certs, liars and liars.key):
                    strangers.send(source, part)
                seen['IKE_AUTH requests'] += 1
        if len(asked) > 10000:
            asked.clear()
        select.select([strangers.socket], [], [], max(0, start + (seen['asked'] + 1) / rate - time.monotonic()))
    time.sleep(0.5)
    seen['IKE_AUTH responses'] += sum(message[18] == 35 for _, message, _ in strangers.answers())
    print(json.dumps({**strangers.seen, **seen, 'seconds': round(time.monotonic() - start, 1)}))


if __name__ == '__main__':
    main()
