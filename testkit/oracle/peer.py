#!/usr/bin/env python3
"""An independent judge of our ESP and AH: scapy seals what we open and opens what we seal.

JSON lines on standard input, one answer line each on standard output.

  {"op": "seal" | "open", "proto": "ESP" | "AH", "transport": bool, "v6": bool (outer), "udp": bool,
   "crypt": name or null, "key": hex (with salt), "icv": bytes of an AEAD's ICV, "auth": name or null, "auth_key": hex,
   "spi": n, "seq": n, "esn": null or the high half, "data": hex}
  {"op": "deflate" | "inflate", "level": n, "wbits": n, "data": hex}

seal: "data" is an IP packet; the answer is the ESP packet alone, or of AH the whole packet with its outer header.
open: "data" is the ESP packet alone, or a whole packet with its outer header (told by what it begins with); the answer is the
inner packet, of transport mode the whole packet. Every answer is {"data": hex} or {"error": text}.

What scapy 2.5 does itself: AES-CBC, AES-CTR, AES-GCM with an ICV of 16 bytes, AES-CCM, ChaCha20-Poly1305, 3DES, NULL; HMAC with MD5,
SHA-1 and SHA-2, AES-CMAC; AH with all of these; extended sequence numbers of AEADs and AH. What it does not is done here with the
library "cryptography" on packets that scapy made: shorter ICVs and implicit IVs, AES-GMAC, AES-XCBC, extended numbers beside an HMAC.
"""

import hmac
import json
import os
import struct
import sys
import warnings
import zlib

warnings.filterwarnings("ignore")

from scapy.config import conf  # noqa: E402

conf.verb = 0

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: E402
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305  # noqa: E402
from scapy.layers import ipsec  # noqa: E402
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.layers.ipsec import AH, ESP, SecurityAssociation  # noqa: E402


def aes(key, block):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


class Xcbc:
    """AES-XCBC-MAC (RFC 3566 section 4), with the interface of a MAC of "cryptography"."""

    def __init__(self, key):
        self.keys = [aes(key, bytes([n]) * 16) for n in (1, 2, 3)]
        self.text = b""

    def update(self, data):
        self.text += data

    def finalize(self):
        k1, k2, k3 = self.keys
        last = (len(self.text) - 1) // 16 * 16 if self.text else 0
        mac = bytes(16)
        for at in range(0, last, 16):
            mac = aes(k1, xor(mac, self.text[at:at + 16]))
        block = self.text[last:]
        whole = len(block) == 16
        if not whole:
            block = (block + b"\x80").ljust(16, b"\0")
        return aes(k1, xor(mac, xor(block, k2 if whole else k3)))


class XcbcAuth(ipsec.AuthAlgo):
    def new_mac(self, key):
        return Xcbc(key)


def gmac(key, iv, text):
    """The tag of a text that is not encrypted."""
    return AESGCM(key[:-4]).encrypt(key[-4:] + iv, b"", text)


class GmacAuth(ipsec.AuthAlgo):
    """AES-GMAC of AH: IV and tag are the field (RFC 4543 section 4)."""

    def sign(self, pkt, key, esn_en=False, esn=0):
        clone = ipsec.zero_mutable_fields(pkt.copy(), sending=True)
        iv = os.urandom(8)
        pkt[AH].icv = iv + gmac(key, iv, bytes(clone) + (struct.pack("!L", esn) if esn_en else b""))
        return pkt

    def verify(self, pkt, key, esn_en=False, esn=0):
        field = pkt[AH].icv
        pkt[AH].icv, pkt[AH].padding = field[:24], field[24:]
        clone = ipsec.zero_mutable_fields(pkt.copy(), sending=False)
        tag = gmac(key, field[:8], bytes(clone) + (struct.pack("!L", esn) if esn_en else b""))
        if tag != field[8:24]:
            raise ipsec.IPSecIntegrityError("GMAC")


ipsec.AUTH_ALGOS["AES-XCBC-96"] = XcbcAuth("AES-XCBC-96", mac=Xcbc, digestmod=None, icv_size=12)
ipsec.AUTH_ALGOS["AES-GMAC"] = GmacAuth("AES-GMAC", mac=Xcbc, digestmod=None, icv_size=24)


class Whole:
    """scapy does all of it."""

    def __init__(self, q):
        self.q = q
        self.crypt, self.auth, self.icv = q["crypt"], q["auth"], q["icv"]

    def wrap(self, esp):
        return esp

    def unwrap(self, esp):
        return esp


class Signed(Whole):
    """scapy encrypts; the ICV with the high half of the number behind the packet is added here (RFC 4303 section 3.3.2.1)."""

    def __init__(self, q):
        super().__init__(q)
        self.algo = ipsec.AUTH_ALGOS[self.auth]
        self.auth = None

    def tag(self, esp):
        mac = self.algo.new_mac(bytes.fromhex(self.q["auth_key"]))
        mac.update(esp + self.q["esn"].to_bytes(4, "big"))
        return mac.finalize()[:self.algo.icv_size]

    def wrap(self, esp):
        return esp + self.tag(esp)

    def unwrap(self, esp):
        size = self.algo.icv_size
        if not hmac.compare_digest(self.tag(esp[:-size]), esp[-size:]):
            raise ValueError("ICV with the high half is wrong")
        return esp[:-size]


class Sealed(Whole):
    """scapy makes NULL ESP, which is encrypted here."""

    SALTS = {"AES-CCM": 3}

    def __init__(self, q):
        super().__init__(q)
        name = self.crypt
        self.implicit = name.endswith("-IIV")
        self.gmac = name == "AES-GMAC"
        self.name = name.replace("-IIV", "")
        key = bytes.fromhex(q["key"])
        salt = self.SALTS.get(self.name, 4)
        self.key, self.salt = key[:-salt], key[-salt:]
        self.crypt = "NULL"

    def iv(self, esp):
        # RFC 8750 section 4; else any that does not come twice.
        return (self.q["esn"] or 0).to_bytes(4, "big") + esp[4:8] if self.implicit else os.urandom(8)

    def aad(self, esp):
        high = b"" if self.q["esn"] is None else self.q["esn"].to_bytes(4, "big")
        return esp[:4] + high + esp[4:8]

    def aead(self):
        if self.name == "AES-CCM":
            return AESCCM(self.key, tag_length=self.q["icv"])
        return {"AES-GCM": AESGCM, "AES-GMAC": AESGCM, "CHACHA20-POLY1305": ChaCha20Poly1305}[self.name](self.key)

    def wrap(self, esp):
        iv, text, size = self.iv(esp), esp[8:], self.q["icv"]
        if self.gmac:
            tag = gmac(self.key + self.salt, iv, self.aad(esp) + iv + text)
            return esp[:8] + iv + text + tag
        sealed = self.aead().encrypt(self.salt + iv, text, self.aad(esp))
        # A shorter ICV is the beginning of the longer one; CCM's is another.
        cut = sealed if self.name == "AES-CCM" else sealed[:len(text) + size]
        return esp[:8] + (b"" if self.implicit else iv) + cut

    def unwrap(self, esp):
        size = self.q["icv"]
        iv, rest = (self.iv(esp), esp[8:]) if self.implicit else (esp[8:16], esp[16:])
        text, tag = rest[:-size], rest[-size:]
        if self.gmac:
            if gmac(self.key + self.salt, iv, self.aad(esp) + iv + text) != tag:
                raise ValueError("GMAC")
        elif self.name == "AES-GCM":
            mode = modes.GCM(self.salt + iv, tag, min_tag_length=size)
            decryptor = Cipher(algorithms.AES(self.key), mode).decryptor()
            decryptor.authenticate_additional_data(self.aad(esp))
            text = decryptor.update(text) + decryptor.finalize()
        else:
            text = self.aead().decrypt(self.salt + iv, rest, self.aad(esp))
        return esp[:8] + text


def doer(q):
    crypt = q["crypt"] or ""
    if q["proto"] == "AH":
        return Whole(q)
    if crypt.endswith("-IIV") or crypt == "AES-GMAC" or (crypt == "AES-GCM" and q["icv"] != 16):
        return Sealed(q)
    return Signed(q) if q["auth"] and q["esn"] is not None else Whole(q)


def outer(q):
    if q["v6"]:
        return IPv6(src="2001:db8::1", dst="2001:db8::2")
    return IP(src="192.0.2.1", dst="192.0.2.2")


def association(q, how):
    esn = q["esn"] is not None and not isinstance(how, Signed)
    key = bytes.fromhex(q["key"]) if how.crypt not in (None, "NULL") else None
    return SecurityAssociation(
        {"ESP": ESP, "AH": AH}[q["proto"]],
        spi=q["spi"],
        crypt_algo=how.crypt,
        crypt_key=key,
        crypt_icv_size=how.icv if how.crypt == "AES-CCM" else None,
        auth_algo=how.auth,
        auth_key=bytes.fromhex(q["auth_key"]) if how.auth else None,
        tunnel_header=None if q["transport"] else outer(q),
        esn_en=esn,
        esn=q["esn"] or 0,
    )


def read(packet):
    return (IPv6 if packet[0] >> 4 == 6 else IP)(packet)


def seal(q):
    how = doer(q)
    sealed = association(q, how).encrypt(read(bytes.fromhex(q["data"])), seq_num=q["seq"])
    if q["proto"] == "AH":
        return bytes(sealed)
    return how.wrap(bytes(sealed[ESP]))


def open_(q):
    how = doer(q)
    data = bytes.fromhex(q["data"])
    if data[:4] == q["spi"].to_bytes(4, "big"):
        # The kernel's headers, around a packet that begins with ESP.
        # scapy knows UDP encapsulation in tunnel mode only.
        packet, udp = outer(q), q["udp"] and not q["transport"]
        if q["v6"]:
            packet.nh = 17 if udp else 50
        else:
            packet.proto = 17 if udp else 50
        if udp:
            packet /= UDP(sport=4500, dport=4500)
        packet = bytes(packet / how.unwrap(data))
    elif q["proto"] == "ESP":
        # A header of its own: its length becomes that of what scapy is to open.
        at = len(data) - len(bytes(read(data)[ESP]))
        esp = how.unwrap(data[at:])
        head = bytearray(data[:at])
        size = at + len(esp)
        if q["v6"]:
            head[4:6] = (size - 40).to_bytes(2, "big")
        else:
            head[2:4] = size.to_bytes(2, "big")
        packet = bytes(head) + esp
    else:
        packet = data
    packet = read(packet)
    layer = {"ESP": ESP, "AH": AH}[q["proto"]]
    if not packet.haslayer(layer):
        raise ValueError("scapy does not see it: " + packet.summary())
    if packet[layer].spi != q["spi"] or packet[layer].seq != q["seq"]:
        raise ValueError("SPI %x number %d" % (packet[layer].spi, packet[layer].seq))
    return bytes(association(q, how).decrypt(packet))


def deflate(q):
    packer = zlib.compressobj(q["level"], zlib.DEFLATED, -q["wbits"])
    return packer.compress(bytes.fromhex(q["data"])) + packer.flush()


def inflate(q):
    unpacker = zlib.decompressobj(-q["wbits"])
    text = unpacker.decompress(bytes.fromhex(q["data"]))
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("not a whole stream, or more than one")
    return text


def main():
    verbs = {"seal": seal, "open": open_, "deflate": deflate, "inflate": inflate}
    for line in sys.stdin:
        q = json.loads(line)
        try:
            answer = {"data": verbs[q["op"]](q).hex()}
        except Exception as e:  # the answer is what went wrong, whatever it is
            answer = {"error": "%s: %s" % (type(e).__name__, e)}
        print(json.dumps(answer), flush=True)


main()
