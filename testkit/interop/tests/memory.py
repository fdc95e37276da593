#!/usr/bin/env python3
"""What a gateway takes of memory: idle, flooded, at full speed, with many tunnels. It is bounded, and nothing grows. Keys of SAs that have
ended do not stay in it.

usage: testkit/interop/run [--full] [--seed=N] memory[.TEST]      --full: an hour of traffic after 25 s at full speed, and 1,000 tunnels or SAs
Each load is judged twice: as much again adds no more than 2 % or 1 MiB to what the process has resident, and the process stays
below the bound that docs/performance.md states. (What the engine takes for 10,000 SAs: crates/ipsec/tests/alloc/memory.rs.)
"""
import collections
import json
import re
import sys
import time

import keys
from daemon import IDLE, MIB, most_resident, pair, resident
from gateway import SECRET, IronSwan, program, tunnel
from lab import call, check, main, need, say, take_seed, until
from traffic import Iperf, ping

SEED = take_seed(21)
# A tunnel: its configuration, an IKE_SA, two SAs, a policy, the plan of routes and rules.
OF_A_TUNNEL = 32

FLOOD = '''
import os, random, socket, struct, sys, time
target, spi, count, seed = sys.argv[1], int(sys.argv[2], 16), int(sys.argv[3]), int(sys.argv[4])
random.seed(seed)
sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
to = socket.inet_aton(target)
noise = random.randbytes(1 << 16)
bodies = []
for n in range(4096):
    size = random.choice((0, 1, 3, 8, 12, 28, 64, 200, 1400))
    at = random.randrange(len(noise) - size)
    body = noise[at:at + size]
    kind = n % 8
    # ESP to the SA that there is, authentic it is not; to no SA; a reserved SPI; IKE that is none; keepalives; noise.
    if kind in (0, 1, 2): body = struct.pack("!II", spi, random.randrange(1 << 32)) + body
    if kind == 3: body = struct.pack("!II", random.randrange(256, 1 << 32), n) + body
    if kind == 4: body = struct.pack("!II", random.randrange(1, 256), n) + body
    if kind == 5: body = bytes(4) + body
    if kind == 6: body = b"\\xff"
    bodies.append(struct.pack("!HHHH", random.randrange(1024, 65536), 4500, 8 + len(body), 0) + body)
sent, began = 0, time.monotonic()
for n in range(count):
    udp = bodies[random.randrange(4096)]
    source = struct.pack("!I", 0x0ac80000 + random.randrange(65536))
    try:
        sent += sock.sendto(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, source, to) + udp, (target, 0)) > 0
    except OSError:
        pass
print(sent, round(time.monotonic() - began, 1))
'''

CLEAR = '''
import random, socket, sys, time
prefix, thirds, count, seed = sys.argv[1], *map(int, sys.argv[2:5])
random.seed(seed)
socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
sent, began = 0, time.monotonic()
for n in range(count):
    to = (f"{prefix}.{random.randrange(thirds)}.{random.randrange(1, 255)}", random.randrange(1, 65536))
    try:
        sent += socks[n % 64].sendto(bytes(random.choice((8, 64, 512))), to) > 0
    except OSError:
        pass
print(sent, round(time.monotonic() - began, 1))
'''


def drops(gateway):
    """Packets dropped, by reason."""
    return json.loads(call(program(), 'list', 'counters', '--json', '--vici', f'unix://{gateway.socket}'))['drops']


def children(pid):
    """Processes that a process has started."""
    with open(f'/proc/{pid}/task/{pid}/children') as f:
        return [int(p) for p in f.read().split()]


def check_growth(what, first, second, bound):
    """The second half of a load adds no more than 2 % or 1 MiB, and the bound holds. All in KiB."""
    check(second - first <= max(first // 50, MIB) and second <= bound,
          f'{what}: {first} KiB resident after the first half, {second} after the second; at most {bound}')


def tunnel_up(lab):
    """A tunnel, and what its two gateways have resident."""
    g1, g2 = pair(lab)
    g1.initiate()
    ping(lab)
    time.sleep(1)
    idle = resident(g1.process)
    check(idle <= IDLE, f'idle: {idle} KiB resident; at most {IDLE}')
    return g1, g2


def still_works(lab, g1):
    ping(lab)
    g1.rekey('child')
    ping(lab)
    check(True, 'the tunnel carries traffic and rekeys')


def halves(lab, gateway, box, script, *args, reasons, least):
    """Runs a sender twice; says what it did and what the engine dropped."""
    seen, before = [], drops(gateway)
    for half in (1, 2):
        done = lab.run(box, sys.executable, script, *args, SEED + half, timeout=600)
        time.sleep(1)
        seen.append(resident(gateway.process))
        say(f'  half {half}: {done.split()[0]} packets sent in {done.split()[1]} s')
    now = drops(gateway)
    counted = {r: now[r] - before.get(r, 0) for r in now if now[r] != before.get(r, 0)}
    check(all(counted.get(r, 0) >= least for r in reasons), f'the engine has seen them: {counted}')
    return seen


def junk_and_spoofed_esp_keep_nothing(lab, full):
    """Junk and spoofed ESP to port 4500, a third of it with the SPI of an SA: counted, and nothing kept."""
    g1, g2 = tunnel_up(lab)
    script = lab.write('flood.py', FLOOD)
    spi = next(iter(g1.child_spis()))[0]
    seen = halves(lab, g1, 'g2', script, '192.0.2.1', spi, 2_000_000 if full else 200_000,
                  reasons=('InNoStates', 'InStateProtoError'), least=5_000)
    check_growth('junk and forged ESP', *seen, most_resident(g1))
    still_works(lab, g1)


def clear_packets_keep_nothing(lab, full):
    """Packets in clear to ipsec0 that no policy covers, each a flow of its own."""
    g1, g2 = tunnel_up(lab)
    lab.ip('g1', 'route', 'add', '10.66.0.0/16', 'dev', 'ipsec0')
    script = lab.write('clear.py', CLEAR)
    seen = halves(lab, g1, 'a', script, '10.66', 256, 2_000_000 if full else 200_000, reasons=('OutNoPolicy',), least=20_000)
    check_growth('clear packets without policy', *seen, most_resident(g1))
    still_works(lab, g1)


def packets_that_wait_are_bounded(lab, full):
    """Packets for a tunnel that does not come up: some wait, the rest is dropped, and those that waited are given back."""
    g1, g2 = pair(lab, child='start_action = trap')
    idle = resident(g1.process)
    g2.process.stop()
    script = lab.write('clear.py', CLEAR)
    count = 1_000_000 if full else 100_000
    seen = halves(lab, g1, 'a', script, '10.2', 1, count, reasons=('OutNoStates',), least=5_000)
    check_growth('packets without an SA', *seen, most_resident(g1))
    check(seen[1] <= idle + 8 * MIB, f'what waits is little: {idle} KiB resident before')


def carry(lab, gateways, what, seconds, *pace):
    """TCP in both directions for so long: the second half keeps nothing, and the tunnel works afterwards."""
    stream = Iperf(lab, '--bidir', '-P', 4, *pace, seconds=seconds)
    seen = {g: [] for g in gateways}
    began = time.monotonic()
    # The first tenth is for buffers to be touched for the first time: as large as they are, no more.
    for part in (0.1, 0.55, 0.97):
        time.sleep(max(0, began + part * seconds - time.monotonic()))
        for gateway in seen:
            seen[gateway].append(resident(gateway.process))
    stream.client.popen.wait(60 + seconds // 10)
    stream.server.popen.wait(10)
    text = stream.client.log()
    report = json.loads(text[text.index('{'):text.rindex('}') + 1])['end']['sum_received']
    say(f"  {report['bytes'] / 1e9:.1f} GB one way in {report['seconds']:.0f} s")
    check(report['bytes'] > 1e8, 'that is enough to say something')
    for gateway, (early, half, end) in seen.items():
        check_growth(f'{gateway.box} {what}', half, end, most_resident(gateway))
        say(f'  {gateway.box}: {early} KiB after a tenth of the time')
    still_works(lab, gateways[0])


def traffic_keeps_nothing(lab, full):
    """Full speed in both directions for 25 seconds; with --full an hour more at a pace that leaves the machine time for other tests."""
    gateways = tunnel_up(lab)
    carry(lab, gateways, 'at full speed', 25)
    if full:
        carry(lab, gateways, 'in an hour', 3700, '-b', '25M')


def connections(count, box):
    """So many connections between the two, each with its own identities and nets."""
    ours, theirs = ('g1', 'g2') if box == 'g1' else ('g2', 'g1')
    hosts = {'g1': '10.1.0.0/24', 'g2': '10.100.{}.{}/32'}
    address = {'g1': '192.0.2.1', 'g2': '192.0.2.2'}
    text = ''.join(f"""
  c{n} {{
    version = 2
    local_addrs = {address[ours]}
    remote_addrs = {address[theirs]}
    proposals = aes128gcm16-prfsha256-x25519
    encap = yes
    local {{
      auth = psk
      id = {ours}-{n}.example
    }}
    remote {{
      auth = psk
      id = {theirs}-{n}.example
    }}
    children {{
      k{n} {{
        local_ts = {hosts[ours].format(n >> 8, n & 255)}
        remote_ts = {hosts[theirs].format(n >> 8, n & 255)}
        esp_proposals = aes128gcm16
      }}
    }}
  }}""" for n in range(count))
    return 'connections {' + text + f'\n}}\nsecrets {{\n  ike-1 {{\n    secret = "{SECRET}"\n  }}\n}}\n'


def tunnels_up_and_down_keep_nothing(lab, full):
    """Many tunnels through IKE, up and down again and again."""
    need('swanctl')
    count, times = (1_000, 5) if full else (200, 3)
    lab.line()
    g1, g2 = (IronSwan(lab, box).start(connections(count, box)) for box in ('g1', 'g2'))
    time.sleep(2)
    before = {g: resident(g.process) for g in (g1, g2)}
    most, after = {g1: [], g2: []}, {g1: [], g2: []}
    for _ in range(times):
        with g2.vici(60) as v:
            for n in range(count):
                v.request('initiate', {'child': f'k{n}', 'timeout': '-1'})
                # A responder takes so many half-open IKE_SAs of one address.
                if n % 100 == 99:
                    until(f'{n + 1} tunnels', lambda: len(g1.child_spis()) == n + 1 == len(g2.child_spis()), 60, 0.5)
        time.sleep(1)
        for g in most:
            most[g].append(resident(g.process))
        with g2.vici(60) as v:
            for n in range(count):
                v.request('terminate', {'ike': f'c{n}', 'timeout': '-1'})
        until('all are gone', lambda: not g1.sas() and not g2.sas(), 60 + count // 4, 0.5)
        time.sleep(1)
        for g in after:
            after[g].append(resident(g.process))
    for g in (g1, g2):
        each = (most[g][0] - before[g]) / count
        say(f'  {g.box}: {before[g]} KiB with {count} connections loaded, {most[g]} with all of them up, {after[g]} when they were gone')
        check(each <= OF_A_TUNNEL, f'{g.box}: {each:.1f} KiB a tunnel; at most {OF_A_TUNNEL}')
        bound = most_resident(g) + count * OF_A_TUNNEL
        check_growth(f'{g.box} with {count} tunnels', most[g][1], most[g][-1], bound)
        check_growth(f'{g.box} without them', after[g][1], after[g][-1], bound)


# Bytes of memory that are read at once; a piece of zeros needs no search.
PIECE = 1 << 16


def writable(pid):
    """Pieces of the writable memory of a process, each with the name of its mapping. Pieces of zeros are left out."""
    with open(f'/proc/{pid}/maps') as maps, open(f'/proc/{pid}/mem', 'rb', 0) as memory:
        for line in maps:
            span, rights, _, _, _, *name = line.split(maxsplit=5)
            if 'w' not in rights or 'r' not in rights:
                continue
            at, end = (int(x, 16) for x in span.split('-'))
            while at < end:
                # Pieces overlap by more than a key is long.
                size = min(end - at, PIECE)
                try:
                    memory.seek(at)
                    piece = memory.read(size)
                except OSError:
                    # Memory of a device, or memory that has gone meanwhile.
                    break
                if piece.count(0) < len(piece):
                    yield ''.join(name).strip() or 'anonymous', piece
                if at + size == end:
                    break
                at += size - 256


def heads_in(memory, heads):
    """The heads that stand in these bytes, wherever they begin. One pass for each alignment of their first 4 bytes, however many heads."""
    first = {int.from_bytes(head[:4], sys.byteorder) for head in heads}
    near = set()
    for shift in range(4):
        words = memoryview(memory)[shift:shift + (len(memory) - shift) // 4 * 4].cast('I')
        near |= first.intersection(words)
    return [head for head in heads if int.from_bytes(head[:4], sys.byteorder) in near and head in memory]


def found(gateway, secrets):
    """Secrets that stand in writable memory of the daemon, its helper or its fetcher: (program, mapping, which). Their first 12 bytes are
    enough."""
    out = collections.Counter()
    heads = {secret[:12]: name for name, secret in secrets}
    for pid in (gateway.process.pid, *children(gateway.process.pid)):
        with open(f'/proc/{pid}/cmdline', 'rb') as f:
            what = f.read().split(b'\0')[1].decode()
        for name, memory in writable(pid):
            out.update((what, name, heads[head]) for head in heads_in(memory, heads))
    return [f'{what}, {name}: {which}, {count} different' for (what, name, which), count in sorted(out.items())]


def logged_keys(gateway):
    """Every key that the gateway has written to its key log: (name, bytes)."""
    ike, child = keys.of_ironswan(gateway.keys)
    out = [(f'SK_{name}', bytes.fromhex(key)) for row in ike for name, key in row.items()]
    for pair_of_sas in child:
        for of_sa in pair_of_sas:
            out += [(f'key of a CHILD_SA, {kind}', bytes.fromhex(key)) for kind, key in zip(('encryption', 'integrity'), of_sa) if key]
    return out


PPK_SECRET = bytes.fromhex('8d21c0f35e77a94b16d2e8903c5fb7416a0e92d7f4138b6cc5e02f794a1d683b')
PSK_SECRET = bytes.fromhex('f19c3a7e20d85b64c7e1098f6d42b35a917ce406d8b12f5386a7e94c0b3dd275')


def with_secrets(box):
    """A tunnel with a PPK, and a pre-shared key that is seen nowhere else."""
    text = tunnel(box, conn='ppk_id = office.ppk', ike='aes256-sha256-x25519-ke1_mlkem768', esp='aes256-sha256-x25519', secret='SECRET')
    text = text.replace('"SECRET"', '0x' + PSK_SECRET.hex())
    return text + f'secrets {{\n  ppk-1 {{\n    id = office.ppk\n    secret = 0x{PPK_SECRET.hex()}\n  }}\n}}\n'


def private_key():
    """A private key of Ed25519 in PKCS#8, and its secret bytes."""
    secret = bytes((37 * n + 11) & 0xff for n in range(32))
    return bytes.fromhex('302e020100300506032b657004220420') + secret, secret


def keys_of_ended_sas_are_gone(lab, full):
    """Keys of IKE_SAs and CHILD_SAs that have ended, and unloaded secrets, stand nowhere in the writable memory of the three processes."""
    need('swanctl')
    rounds = 1_000 if full else 50
    lab.line()
    g1, g2 = (IronSwan(lab, box).start(keys=True) for box in ('g1', 'g2'))
    der, private = private_key()
    for g in (g1, g2):
        g.load(with_secrets(g.box))
        with g.vici() as v:
            v.request('load-key', {'type': 'any', 'data': der})
    with g1.vici(60) as v:
        for n in range(rounds):
            v.request('initiate', {'child': 'net', 'timeout': '20000'})
            spis = g1.child_spis if n % 2 else g1.ike_spis
            old = spis()
            v.request('rekey', {'child': 'net'} if n % 2 else {'ike': 'net'})
            until('it is rekeyed', lambda: len(now := spis()) == 1 and not now & old, 20, 0.02)
            if n == 0:
                for g in (g1, g2):
                    check(found(g, logged_keys(g)), f'{g.box}: keys of an SA that stands are found')
            if n % 10 == 0:
                ping(lab)
            v.request('terminate', {'ike': 'net', 'timeout': '20000'})
    until('all are gone', lambda: not g1.sas() and not g2.sas(), 60)
    for g in (g1, g2):
        ended = logged_keys(g)
        check(len(ended) >= rounds * 10, f'{g.box}: {len(ended)} keys of ended SAs are known')
        present = found(g, [('PSK', PSK_SECRET), ('PPK', PPK_SECRET), ('private key', private)])
        check({line.split(': ')[1].split(',')[0] for line in present} == {'PSK', 'PPK', 'private key'}, f'{g.box}: what is loaded is found: {present}')
        with g.vici() as v:
            for ident in v.request('get-keys')['keys']:
                v.request('unload-key', {'id': ident})
            v.request('unload-conn', {'name': 'net'})
            for ident in v.request('get-shared')['keys']:
                v.request('unload-shared', {'id': ident})
    # Whatever waits for a thread that is idle has had its turn.
    time.sleep(5)
    for g in (g1, g2):
        left = found(g, [*logged_keys(g), ('PSK', PSK_SECRET), ('PPK', PPK_SECRET), ('private key', private)])
        for line in left:
            say(f'  {g.box}: {line}')
        check(not left, f'{g.box}: no key of an ended SA and no unloaded secret is in memory')


if __name__ == '__main__':
    main({f.__name__: f for f in (
        junk_and_spoofed_esp_keep_nothing, clear_packets_keep_nothing, packets_that_wait_are_bounded, traffic_keeps_nothing,
        tunnels_up_and_down_keep_nothing, keys_of_ended_sas_are_gone)}, 'memory')
