#!/usr/bin/env python3
"""Others read what IronSwan seals: tshark with our key log decrypts IKE and ESP; scapy opens our ESP and seals its own.

usage: testkit/interop/run decrypt[.TEST]      INTEROP_REFERENCE=1 puts strongSwan in IronSwan's place, with tables made from its log
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import keys
from gateway import REFERENCE, Ours, tunnel
from lab import check, main, need, say, until
from traffic import ping

SUITES = (
    ('aes128gcm16-prfsha256-x25519', 'aes128gcm16'),
    ('aes256-sha384-ecp256', 'aes256-sha256'),
    ('chacha20poly1305-prfsha512-x25519', 'chacha20poly1305'),
)
# IKE_SAs of old peers, which tshark reads as well.
OLD = (
    ('3des-sha1-modp1024', 'aes128gcm16'),
    ('aes128ctr-aesxcbc-modp2048', 'aes128gcm16'),
)


def pair(lab, encap=True, ike=SUITES[0][0], esp=SUITES[0][1]):
    need('ip', 'swanctl', 'ping', 'tcpdump', 'tshark', 'ethtool')
    lab.line()
    for box in ('g1', 'g2'):
        # Pings that wait for a processor together leave in one segmented send, which a capture shows as one packet.
        lab.run(box, 'ethtool', '-K', 'wan', 'tx-udp-segmentation', 'off')
    return [Ours(lab, box).start(tunnel(box, ike, esp, encap=encap), keys=True) for box in ('g1', 'g2')]


def tables(lab, gateway):
    """A Wireshark configuration folder with the gateway's key log in it."""
    folder = lab.path('wireshark')
    if not REFERENCE:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(gateway.keys, folder)
    return folder


def reference_tables(lab, g1):
    """The same from charon's log, for its newest IKE_SA and CHILD_SA (AES-GCM-128 only)."""
    ike, child = (x[-1] for x in keys.of_charon(g1.log()))
    (spi_i, spi_r), = g1.ike_spis()
    (spi_in, spi_out), = g1.child_spis()
    key = dict(re.findall(r'encryption (initiator|responder) key => .*\n\S+\s+0: ((?:[0-9A-F]{2} ?)+)', g1.log()))
    again = {d: next(c for c in child if c[0].startswith(key[d].replace(' ', '').lower()))[0] for d in key}
    with open(lab.path('wireshark/ikev2_decryption_table'), 'a') as f:
        f.write(f'{spi_i},{spi_r},{ike["ei"]},{ike["er"]},"AES-GCM-128 with 16 octet ICV [RFC5282]",,,"NONE [RFC4306]"\n')
    with open(lab.path('wireshark/esp_sa'), 'a') as f:
        for src, dst, spi, k in (('192.0.2.1', '192.0.2.2', spi_out, again['initiator']),
                                 ('192.0.2.2', '192.0.2.1', spi_in, again['responder'])):
            f.write(f'"IPv4","{src}","{dst}","0x{spi}","AES-GCM with 16 octet ICV [RFC4106]","0x{k}","NULL",""\n')


class Capture:
    def __init__(self, lab, box='g1', device='wan', what='udp port 500 or udp port 4500 or esp'):
        self.file = lab.path(f'{len(lab.processes)}.pcap')
        self.process = lab.spawn(box, 'tcpdump', '-U', '--immediate-mode', '-Z', 'root', '-ni', device, '-w', self.file, what, name='tcpdump')
        until('tcpdump listens', lambda: 'listening on' in self.process.log())

    def end(self):
        time.sleep(0.5)
        self.process.stop()
        return self.file


def fields(folder, capture, *names, filter=''):
    """tshark's view of a capture: one tuple per packet that passes the filter."""
    options = [o for n in names for o in ('-e', n)]
    env = {**os.environ, 'WIRESHARK_CONFIG_DIR': folder}
    done = subprocess.run(['tshark', '-r', capture, '-2', '-o', 'esp.enable_encryption_decode:TRUE', '-o',
                           'esp.enable_authentication_check:TRUE', '-Y', filter or 'frame', '-T', 'fields',
                           '-E', 'separator=|', *options], capture_output=True, text=True, env=env, timeout=60)
    complaints = [l for l in done.stderr.splitlines() if l and 'user "root"' not in l]
    if done.returncode or complaints:
        check(False, f'tshark takes our tables: {complaints}')
    return [tuple(line.split('|')) for line in done.stdout.splitlines()]


def tshark_decrypts_everything(lab, full):
    """Every IKE message and every ESP packet of a tunnel's life is decrypted, and every ICV is right.

    tshark 4.0 does not know ChaCha20-Poly1305; that is scapy's.
    """
    for encap in (True,) if REFERENCE else (True, False):
        for ike, esp in SUITES[:1] if REFERENCE else SUITES[:2] + (OLD if encap else ()):
            say(f"  {ike} / {esp}, {'UDP-encapsulated' if encap else 'raw ESP'}:")
            if not lab.boxes:
                os.makedirs(lab.path('wireshark'))
                g1, g2 = pair(lab, encap, ike, esp)
            else:
                for g in (g1, g2):
                    g.load(tunnel(g.box, ike, esp, encap=encap))
            capture = Capture(lab)
            g1.initiate()
            pings = 0
            for step in (None, 'child', 'ike', 'child'):
                if step:
                    g1.rekey(step)
                if REFERENCE:
                    reference_tables(lab, g1)
                ping(lab, count=5)
                pings += 5
            g1.swanctl('--terminate', '--ike', 'net')
            file = capture.end()
            folder = tables(lab, g1)
            seen = fields(folder, file, 'icmp.type', 'ip.src', filter='icmp')
            # The outer IP header's source comes first, the inner one's second.
            inner = [(t, src.split(',')[-1]) for t, src in seen]
            check(inner.count(('8', '10.1.0.2')) == pings and inner.count(('0', '10.2.0.2')) == pings,
                  f'ESP: {pings} echo requests and replies inside')
            total = len(fields(folder, file, 'esp.spi', filter='esp'))
            check(total == 2 * pings, f'ESP: all {total} packets are pings')
            # tshark 4.0 cannot check the ICV of the AEADs, but then garbage inside would not be ICMP.
            check(not fields(folder, file, 'frame.number', filter='esp.icv_bad == 1'), 'ESP: no ICV is wrong')
            messages = fields(folder, file, 'isakmp.exchangetype', 'isakmp.messageid', 'isakmp.enc.decrypted',
                              'isakmp.typepayload', filter='isakmp')
            sealed = [m for m in messages if m[0] != '34']
            check(len(sealed) >= 12, f'IKE: {len(messages)} messages, {len(sealed)} of them sealed')
            check(all(m[2] for m in sealed), 'IKE: every sealed message is decrypted')
            auth = [m for m in sealed if m[0] == '35']
            check(all('39' in m[3].split(',') for m in auth) and len(auth) == 2, 'IKE: both IKE_AUTH messages show their AUTH payload')


SCAPY = r'''
import csv, json, socket, sys
from scapy.all import ESP, ICMP, IP, UDP, Raw, SecurityAssociation, conf, rdpcap, bind_layers
esp_sa, capture, encap = sys.argv[1], sys.argv[2], sys.argv[3] == "yes"

ALGORITHMS = {"AES-GCM": ("AES-GCM", None), "AES-CBC": ("AES-CBC", "SHA2-256-128"), "ChaCha20": ("CHACHA20-POLY1305", None)}
sas = {}
for row in csv.reader(line.removeprefix("# ") for line in open(esp_sa)):
    crypt, auth = next(v for k, v in ALGORITHMS.items() if row[4].lower().startswith(k.lower()))
    sas[int(row[3], 16)] = SecurityAssociation(
        ESP, spi=int(row[3], 16), crypt_algo=crypt, crypt_key=bytes.fromhex(row[5][2:]), auth_algo=auth,
        auth_key=bytes.fromhex(row[7][2:]) if auth else None, tunnel_header=IP(src=row[1], dst=row[2]))
opened, newest = [], {}
for packet in rdpcap(capture):
    ip = packet[IP]
    if ip.proto == 17:
        raw = bytes(ip[UDP].payload)
        if len(raw) < 8 or raw[:4] == bytes(4):
            continue
        esp = ESP(raw)
        packet = IP(src=ip.src, dst=ip.dst, proto=50) / esp
    else:
        esp, packet = ip[ESP], ip
        packet = IP(bytes(ip))
    inner = sas[esp.spi].decrypt(packet)
    opened.append([inner[IP].src, inner[IP].dst, inner[IP].proto, len(inner[IP])])
    newest[(ip.src, ip.dst)] = (esp.spi, esp.seq)
# Now the other way: seal packets as the peer would, on the peer's newest SA, and send them from its address.
spi, seq = newest[("192.0.2.2", "192.0.2.1")]
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
sent = 0
for n in range(1, 41):
    inner = IP(src="10.2.0.2", dst="10.1.0.2") / UDP(sport=7003, dport=7003) / Raw(b"sealed by scapy %d " % n + bytes(n * 30))
    sealed = sas[spi].encrypt(IP(bytes(inner)), seq_num=seq + n)
    raw = bytearray(bytes(sealed[ESP]))
    if n % 4 == 0:
        raw[-1] ^= 1        # an ICV that is wrong: must not arrive
    if encap:
        body = IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=4500, dport=4500, chksum=0) / Raw(bytes(raw))
    else:
        body = IP(src="192.0.2.2", dst="192.0.2.1", proto=50) / Raw(bytes(raw))
    out.sendto(bytes(body), ("192.0.2.1", 0))
    sent += 1
print(json.dumps({"opened": opened, "sent": sent}))
'''

RECEIVER = '''
import json, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("10.1.0.2", 7003)); s.settimeout(30)
got = []
print("ready", flush=True)
try:
    while len(got) < 40: got.append(s.recv(65536).rstrip(b"\\0").decode().strip()); s.settimeout(2)
except TimeoutError: pass
print(json.dumps(got))
'''


def scapy_opens_ours_and_seals_its_own(lab, full):
    """scapy opens every packet we sealed; what scapy seals is delivered, and what it seals wrongly is not."""
    for encap in (True, False):
        for ike, esp in SUITES:
            say(f"  {esp}, {'UDP-encapsulated' if encap else 'raw ESP'}:")
            if not lab.boxes:
                g1, g2 = pair(lab, encap, ike, esp)
            else:
                for g in (g1, g2):
                    g.load(tunnel(g.box, ike, esp, encap=encap))
            g1.initiate()
            capture = Capture(lab, what='udp port 4500 or esp')
            for size in (0, 1, 56, 1200):
                ping(lab, count=2, size=size)
            file = capture.end()
            receiver = lab.spawn('a', sys.executable, '-c', RECEIVER, name='receiver')
            until('the receiver waits', lambda: 'ready' in receiver.log())
            script = lab.write('seal.py', SCAPY)
            # Debian's scapy belongs to Debian's python.
            out = lab.run('g2', '/usr/bin/python3', script, os.path.join(g1.keys, 'esp_sa'), file, 'yes' if encap else 'no')
            seen = json.loads(out.splitlines()[-1])
            check(len(seen['opened']) == 16 and all(p[2] == 1 for p in seen['opened']),
                  f"scapy opened {len(seen['opened'])} packets, all ICMP, sizes {sorted({p[3] for p in seen['opened']})}")
            receiver.popen.wait(20)
            got = json.loads(receiver.log().splitlines()[-1])
            want = [f'sealed by scapy {n}' for n in range(1, 41) if n % 4]
            check(got == want, f'of {seen["sent"]} packets that scapy sealed, {len(got)} arrived: all but those with a wrong ICV')
            g1.swanctl('--terminate', '--ike', 'net')
            until('both ends are clean', lambda: not g1.sas() and not g2.sas())


main({f.__name__: f for f in (tshark_decrypts_everything, *(() if REFERENCE else (scapy_opens_ours_and_seals_its_own,)))}, 'decrypt')
