#!/usr/bin/env python3
"""An independent judge of our ESP: scapy seals what we open and opens what we seal.

JSON lines on standard input, one answer line each on standard output.

  {"op": "seal" | "open", "crypt": scapy's name, "key": hex (salt appended for AEADs), "auth": scapy's name or null,
   "auth_key": hex, "spi": n, "seq": n, "esn": null or the high half, "v6": bool (outer), "udp": bool, "data": hex}

"data" is the inner IP packet for seal, and the ESP packet (what is in the UDP payload, or behind the outer header) for
open. The answer is {"data": hex} or {"error": text}.

scapy 2.5 knows extended sequence numbers for AEADs only; with an HMAC the high half is authenticated here, by hmac and
hashlib, as RFC 4303 section 3.3.2.1 says.
"""

import hashlib
import hmac
import json
import sys

from scapy.config import conf

conf.verb = 0

from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.layers.ipsec import ESP, SecurityAssociation  # noqa: E402

HMACS = {
    "SHA2-256-128": (hashlib.sha256, 16),
    "SHA2-384-192": (hashlib.sha384, 24),
    "SHA2-512-256": (hashlib.sha512, 32),
}


def outer(q):
    if q["v6"]:
        return IPv6(src="2001:db8::1", dst="2001:db8::2")
    return IP(src="192.0.2.1", dst="192.0.2.2")


def association(q, by_hand):
    auth = None if by_hand else q["auth"]
    return SecurityAssociation(
        ESP,
        spi=q["spi"],
        crypt_algo=q["crypt"],
        crypt_key=bytes.fromhex(q["key"]),
        auth_algo=auth,
        auth_key=bytes.fromhex(q["auth_key"]) if auth else None,
        tunnel_header=outer(q),
        nat_t_header=UDP(sport=4500, dport=4500) if q["udp"] else None,
        esn_en=q["esn"] is not None and not by_hand,
        esn=q["esn"] or 0,
    )


def icv(q, packet):
    hash_, size = HMACS[q["auth"]]
    text = packet + q["esn"].to_bytes(4, "big")
    return hmac.new(bytes.fromhex(q["auth_key"]), text, hash_).digest()[:size]


def seal(q, by_hand):
    inner = bytes.fromhex(q["data"])
    cls = IPv6 if inner[0] >> 4 == 6 else IP
    sealed = association(q, by_hand).encrypt(cls(inner), seq_num=q["seq"])
    # What the kernel will give us: the bytes behind the outer headers.
    header = 40 if q["v6"] else 20
    esp = bytes(sealed)[header + (8 if q["udp"] else 0):]
    return esp + icv(q, esp) if by_hand else esp


def open_(q, by_hand):
    esp = bytes.fromhex(q["data"])
    if by_hand:
        size = HMACS[q["auth"]][1]
        esp, got = esp[:-size], esp[-size:]
        if not hmac.compare_digest(icv(q, esp), got):
            raise ValueError("ICV with the high half is wrong")
    packet = outer(q)
    if q["udp"]:
        packet /= UDP(sport=4500, dport=4500) / esp
    else:
        if q["v6"]:
            packet.nh = 50
        else:
            packet.proto = 50
        packet /= esp
    # From the wire's bytes, so that scapy's own dissection finds the ESP header.
    packet = packet.__class__(bytes(packet))
    if not packet.haslayer(ESP):
        raise ValueError("scapy sees no ESP: " + packet.summary())
    if packet[ESP].spi != q["spi"] or packet[ESP].seq != q["seq"]:
        raise ValueError("SPI %x number %d" % (packet[ESP].spi, packet[ESP].seq))
    return bytes(association(q, by_hand).decrypt(packet))


def main():
    for line in sys.stdin:
        q = json.loads(line)
        by_hand = q["auth"] is not None and q["esn"] is not None
        try:
            data = {"seal": seal, "open": open_}[q["op"]](q, by_hand)
            answer = {"data": data.hex()}
        except Exception as e:  # the answer is what went wrong, whatever it is
            answer = {"error": "%s: %s" % (type(e).__name__, e)}
        print(json.dumps(answer), flush=True)


main()
