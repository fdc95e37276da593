#!/usr/bin/env python3
"""`ironswan capture`: inner and outer packets in one file that tshark reads, decrypts by the keys beside it, and shows with their comments;
and what clients that stall, are killed or have no disk leave behind. And how late replayed packets were.

usage: testkit/interop/run [--full] capture[.TEST]      --full: every suite with every peer, in UDP and raw
"""
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

from gateway import Charon, IronSwan, program, tunnel
from lab import call, check, main, need, say, until
from traffic import ping

SUITES = ('aes128gcm16', 'aes256-sha256')


def capture(lab, g, *args, file=None, stdout=None, name='capture'):
    """Begins a capture at a gateway, and waits until the daemon has said that it is on. The program, and its file."""
    begun = g.log().count('begins')
    file = file or lab.path(f'{len(lab.processes)}.pcapng')
    process = lab.spawn(g.box, program(), 'capture', *args, '-w', file, '--vici', f'unix://{g.socket}', name=name, stdout=stdout)
    until('the capture is on', lambda: g.log().count('begins') > begun or not process.alive())
    return process, file


def ends(g):
    """How many captures have ended at a gateway."""
    return g.log().count('a capture has ended')


def end(process, status=0):
    """Ends a capture as Ctrl-C does; what it said."""
    # `ip netns exec` becomes the program, so the signal is for it.
    process.popen.send_signal(signal.SIGINT)
    check(process.popen.wait(20) == status, f'the capture ends with status {status}')
    return process.log()


def tshark(file, *args, keys=None):
    """What tshark says of a file; that it says nothing of a defect."""
    env = {**os.environ, **({'WIRESHARK_CONFIG_DIR': keys} if keys else {})}
    done = subprocess.run(['tshark', '-r', file, '-o', f'esp.enable_encryption_decode:{"TRUE" if keys else "FALSE"}', *args],
                          capture_output=True, text=True, errors='replace', env=env, timeout=60)
    complaints = [l for l in done.stderr.splitlines() if l and 'user "root"' not in l]
    if done.returncode or complaints:
        check(False, f'tshark takes the file: {complaints}')
    return done.stdout


def fields(file, *names, filter='frame', keys=None, options=()):
    """One tuple per packet that passes the filter."""
    out = tshark(file, '-2', *options, '-Y', filter, '-T', 'fields', '-E', 'separator=|', *[o for n in names for o in ('-e', n)], keys=keys)
    return [tuple(line.split('|')) for line in out.splitlines()]


def dumps(file, filter, keys=None):
    """The bytes of each packet that passes the filter: a dictionary of tshark's data sources."""
    packets, source = [], None
    for line in tshark(file, '-2', '-x', '-Y', filter, keys=keys).splitlines():
        titled = re.fullmatch(r'(.*) \(\d+ bytes\):', line)
        hexed = re.match(r'[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)', line)
        if titled:
            source = titled[1]
            if source == 'Frame':
                packets.append({})
            packets[-1][source] = b''
        elif hexed:
            if source is None:
                packets.append({'Packet': b''})
                source = 'Packet'
            if hexed[0].startswith('0000') and packets and len(packets[-1]) == 1 and source == 'Packet' and packets[-1]['Packet']:
                packets.append({'Packet': b''})
            packets[-1][source] += bytes.fromhex(hexed[1][:48])
    return packets


def ipv4(data):
    """A packet, without what padding stands behind it."""
    return data[:struct.unpack('!H', data[2:4])[0]]


def one_tunnel(lab, g1, encap, esp):
    """A capture over a tunnel's whole life, and everything that tshark finds in it."""
    say(f"  {esp}, {'UDP-encapsulated' if encap else 'raw ESP'}:")
    process, file = capture(lab, g1, 'net', '--keys')
    g1.initiate()
    pings = 0
    for step in (None, 'child', 'ike'):
        if step:
            g1.rekey(step)
        for size in (8, 56, 1_000):
            ping(lab, count=2, size=size)
            pings += 2
    said = end(process)
    check('none was missed' in said and 'KEYS are in' in said, f'it says what there is: {said.splitlines()[-2:]}')
    keys = f'{file}.keys'
    modes = {os.stat(p).st_mode & 0o777 for p in (file, *(os.path.join(keys, f) for f in os.listdir(keys)))}
    check(modes == {0o600} and os.stat(keys).st_mode & 0o777 == 0o700, 'the file and its tables are for their owner alone')
    check(sorted(os.listdir(keys)) == ['esp_sa', 'ikev2_decryption_table'], 'both tables are there')

    inner = fields(file, 'frame.interface_name', 'frame.comment', 'icmp.type', filter='frame.interface_name == "inner"')
    check(len(inner) == 2 * pings and {t for _, _, t in inner} == {'0', '8'}, f'{len(inner)} inner packets, all echoes')
    wanted = r'connection net, child net, SPI [0-9a-f]{8}, packet \d+, (out|in), passed'
    check(all(re.fullmatch(wanted, c) for _, c, _ in inner), f'each with its comment: {inner[0][1]}')
    outer = fields(file, 'frame.comment', 'esp.spi', 'esp.sequence', filter='frame.interface_name == "outer" && esp')
    check(len(outer) == 2 * pings, f'{len(outer)} outer ones')
    told = [f'SPI {int(spi, 16):08x}, packet {seq},' in comment for comment, spi, seq in outer]
    check(all(told), 'SPI and sequence number of each comment are those of its packet')
    bad = 'ip.checksum.status == "Bad" || udp.checksum.status == "Bad"'
    options = ('-o', 'ip.check_checksum:TRUE', '-o', 'udp.check_checksum:TRUE')
    check(not fields(file, 'frame.number', filter=bad, options=options), 'no checksum of the headers is wrong')

    sealed = dumps(file, 'frame.interface_name == "outer" && esp', keys)
    opened = [next((v for k, v in p.items() if 'ecrypted' in k), b'') for p in sealed]
    clear = [ipv4(p.get('Frame') or p['Packet']) for p in dumps(file, 'frame.interface_name == "inner"')]
    # tshark shows the IV of some suites in front of what it has decrypted.
    starts = [next((ipv4(data[at:]) for at in (0, 8, 16) if data[at:at + 1] == b'\x45' and ipv4(data[at:]) in clear), None)
              for data in opened]
    check(sorted(filter(None, starts)) == sorted(clear), f'tshark decrypts all {len(sealed)}, and finds the inner packets, byte by byte')
    check(not fields(file, 'frame.number', filter='esp.icv_bad == 1', keys=keys, options=('-o', 'esp.enable_authentication_check:TRUE')),
          'no ICV is wrong')
    messages = fields(file, 'isakmp.exchangetype', 'isakmp.enc.decrypted', 'frame.comment', 'udp.dstport', filter='isakmp', keys=keys)
    check(all(decrypted for kind, decrypted, *_ in messages if kind != '34'), f'all {len(messages)} IKE messages are decrypted')
    ports = {port for *_, port in messages}
    check(ports >= ({'500', '4500'} if encap else {'500'}), f'on {" and ".join(sorted(ports))}')
    check(all(re.fullmatch(r'connection net, IKE_SA \d+, (out|in), passed', c) for _, _, c, _ in messages), 'each with its comment')
    return len(inner)


def tshark_decrypts_a_capture_and_shows_its_comments(lab, full):
    """With IronSwan and strongSwan as peers, AEAD and CBC with HMAC, in UDP and raw."""
    need('ip', 'ping', 'tshark', 'swanctl')
    lab.line()
    g1 = IronSwan(lab, 'g1').start(tunnel('g1'))
    for kind in (IronSwan, Charon):
        g2 = kind(lab, 'g2').start(tunnel('g2'))
        say(f' with {g2.kind}:')
        # Each peer with each suite, in UDP and raw.
        both = [(encap, esp) for n, esp in enumerate(SUITES) for encap in (True, False) if full or encap == (n % 2 == (kind is Charon))]
        for encap, esp in both:
            for g in (g1, g2):
                g.load(tunnel(g.box, esp=esp, encap=encap))
            one_tunnel(lab, g1, encap, esp)
            g1.terminate()
            until('both ends are clean', lambda: not g1.sas() and not g2.sas())
        g2.stop()
        os.path.exists(g2.socket) and os.unlink(g2.socket)
    check('WITH THE KEYS' in g1.log(), 'the log says that keys were told')


def pair(lab, **keys):
    need('ip', 'ping', 'tshark')
    lab.line()
    # Whoever counts packets wants no IKE messages in between.
    g1, g2 = [IronSwan(lab, box).start(tunnel(box, conn='path_probe = no', **keys)) for box in ('g1', 'g2')]
    g1.initiate()
    ping(lab, count=1)
    return g1, g2


def flood(lab, count=3_000):
    """So many large pings; how many came back."""
    out = lab.run('a', 'ping', '-q', '-f', '-c', count, '-s', 1_300, '10.2.0.2', timeout=120)
    return int(re.search(r'(\d+) received', out)[1])


def clients_that_stall_or_are_killed_cost_nobody_anything(lab, full):
    """Two captures at once: one reads nothing and loses packets, the other has them all; one that is killed leaves nothing on."""
    g1, _ = pair(lab)
    stalled, _ = capture(lab, g1, 'net', '--packets', 100_000, file='-', stdout=subprocess.PIPE)
    reading, file = capture(lab, g1, 'net', '--snaplen', 96)
    received = flood(lab)
    check(received == 3_000, f'{received} of 3000 echoes came back')
    said = end(reading)
    packets = fields(file, 'frame.len', 'frame.cap_len')
    check(len(packets) == 4 * received and 'none was missed' in said, f'the one that reads has all {len(packets)} packets')
    check(max(int(cap) for _, cap in packets) <= 96 and max(int(len_) for len_, _ in packets) > 1_300, 'of each 96 bytes')
    # Now the other one reads what is left for it.
    stalled.popen.send_signal(signal.SIGINT)
    piped = lab.path('piped.pcapng')
    with open(piped, 'wb') as f:
        f.write(stalled.popen.stdout.buffer.read())
    check(stalled.popen.wait(10) == 0, 'the one that stalled ends')
    missed = int(re.search(r'(\d+) packets were missed', stalled.log())[1])
    kept = len(fields(piped, 'frame.number'))
    check(missed and missed + kept == 4 * received, f'it has {kept} packets, and was told of the {missed} that it missed')
    with open(piped, 'rb') as f:
        check(b'packets were missed; ' not in f.read(), 'nothing is blamed on other captures when there are none')
    before = ends(g1)
    killed, _ = capture(lab, g1, 'net')
    ping(lab, count=1)
    killed.popen.kill()
    until('the daemon has ended it', lambda: ends(g1) == before + 1, timeout=5)
    check(flood(lab, 500) == 500 and g1.answers(), 'traffic and daemon go on')


def a_full_disk_hits_the_client_alone(lab, full):
    """It says how many packets were written, and the file ends with a whole one."""
    g1, _ = pair(lab)
    disk = lab.path('disk')
    os.mkdir(disk)
    call('mount', '-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', disk)
    try:
        process, file = capture(lab, g1, 'net', file=os.path.join(disk, 'a.pcapng'))
        check(flood(lab, 300) == 300, 'all echoes came back')
        check(process.popen.wait(10) == 1, 'the capture ends with status 1')
        said = process.log()
        check('No space left' in said, f'it says why: {said.splitlines()[0]}')
        told = int(re.search(r'(\d+) packets were written before', said)[1])
        kept = len(fields(file, 'frame.number'))
        check(told == kept > 50, f'{told} packets were written, and tshark reads {kept}')
        until('the daemon has ended it', lambda: ends(g1) == 1, timeout=5)
        check(flood(lab, 100) == 100 and g1.answers(), 'traffic and daemon go on')
    finally:
        subprocess.run(['umount', disk])


def send_raw(lab, box, packets, pause=0.0):
    """Sends packets with their IP headers from a box, with a pause behind each."""
    script = 'import socket,sys,time\ns=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_RAW)\n' \
             f'for line in sys.stdin:\n p=bytes.fromhex(line)\n s.sendto(p,(socket.inet_ntoa(p[16:20]),0))\n time.sleep({pause})\n'
    lab.run(box, sys.executable, '-c', script, input=''.join(p.hex() + '\n' for p in packets))


def esp_packets(pcap):
    """The IPv4 packets of a capture of tcpdump, an Ethernet."""
    with open(pcap, 'rb') as f:
        data, at = f.read(), 24
    packets = []
    while at + 16 <= len(data):
        size, = struct.unpack('<I', data[at + 8:at + 12])
        packets.append(ipv4(data[at + 16 + 14:at + 16 + size]))
        at += 16 + size
    return packets


def raw_esp(spi):
    head = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + 60, 1, 0, 64, 50, 0, socket.inet_aton('192.0.2.2'), socket.inet_aton('192.0.2.1'))
    return head + struct.pack('!II', spi, 1) + bytes(52)


def dropped_packets_are_captured_with_their_reasons(lab, full):
    """Of a connection, and of strangers, who have none."""
    g1, _ = pair(lab, encap=False)
    tcpdump = lab.spawn('g2', 'tcpdump', '-U', '--immediate-mode', '-Z', 'root', '-ni', 'wan', '-w', lab.path('wire.pcap'),
                        'esp and src 192.0.2.2', name='tcpdump')
    until('tcpdump listens', lambda: 'listening on' in tcpdump.log())
    ping(lab, count=2)
    tcpdump.stop()
    wire = esp_packets(lab.path('wire.pcap'))
    every, of_all = capture(lab, g1, '--drops')
    own, of_net = capture(lab, g1, 'net', '--drops')
    forged = wire[-1][:-1] + bytes([wire[-1][-1] ^ 1])
    # Not a number that was received: the ICV decides.
    forged = forged[:24] + struct.pack('!I', 5_000) + forged[28:]
    send_raw(lab, 'g2', [wire[-1], forged, raw_esp(0xdeadbeef)])
    ping(lab, count=2)
    time.sleep(0.5)
    end(own), end(every)
    net = [c for c, in fields(of_net, 'frame.comment')]
    check(len(net) == 2 and all(c.startswith('connection net, child net, SPI ') for c in net), 'two of the connection, and none that passed')
    check('dropped: InStateSeqDuplicate: ' in net[0] and 'dropped: InStateProtoError: ' in net[1], f'each with its reason: {net[0]}')
    # What the kernel sends of its own accord, and no policy covers, is there as well.
    every = [c for c, in fields(of_all, 'frame.comment')]
    strangers = [c for c in every if 'SPI deadbeef' in c]
    check(len(strangers) == 1 and strangers[0].startswith('no connection, ') and 'InNoStates' in strangers[0], f"a stranger's has none: {strangers}")
    check([c for c in every if c.startswith('connection ')] == net, 'without a name those of the connection are there too')
    check(all('dropped: ' in c for c in every), 'and none that passed')


def names_and_files_are_shown_without_escape_sequences(lab, full):
    """What a terminal would obey is not in any line; a name that is not there costs no file."""
    g1, _ = pair(lab)
    for name, file in (('a\x1b[2J', lab.path('b.pcapng')), ('net', lab.path('no\x1b]0;x\x07/c.pcapng'))):
        process = lab.spawn('g1', program(), 'capture', name, '-w', file, '--vici', f'unix://{g1.socket}')
        check(process.popen.wait(20) == 1 and not os.path.exists(file), f'refused: {process.log().strip()}')
        check(not re.search(r'[\x00-\x09\x0b-\x1f\x7f]', process.log()), 'nothing in it moves a cursor')
    out = lab.run('g1', program(), 'capture', 'net', '--keys', '-w', '-', '--vici', f'unix://{g1.socket}', fail=False)
    check(out.returncode == 2 and 'needs a file' in out.stdout, 'keys are not for a pipe')
    check(not re.search(r'[\x00-\x09\x0b-\x1f\x7f]', g1.log()), "nor in the daemon's log")
    # A reader that has seen enough ends it.
    argv = ' '.join(lab.argv('g1', [program(), 'capture', 'net', '-w', '-', '--vici', f'unix://{g1.socket}']))
    sniff = subprocess.Popen(f'{argv} | tshark -l -r - -c 2 -T fields -e frame.comment', shell=True, stdout=subprocess.PIPE, text=True)
    until('the capture is on', lambda: g1.log().count('begins') >= 1)
    ping(lab, count=1)
    # It ends though no packet follows that it could not write.
    until('all of the pipe has ended', lambda: sniff.poll() is not None, timeout=20)
    lines = sniff.stdout.read().splitlines()
    check(len(lines) == 2 and all(l.startswith('connection net') for l in lines), f'through a pipe: {lines[0]}')
    until('the daemon has ended it', lambda: ends(g1) == 1)


def delayed(lab, g1, name):
    """Ten packets to a gateway that got lost on the way; a hundred others have come since."""
    file = lab.path(f'{name}.pcap')
    tcpdump = lab.spawn('g2', 'tcpdump', '-U', '--immediate-mode', '-Z', 'root', '-ni', 'wan', '-w', file,
                        'udp port 4500 and src 192.0.2.2 and udp[8:4] != 0', name=name)
    until('tcpdump listens', lambda: 'listening on' in tcpdump.log())
    lab.run('g1', 'nft', 'add table ip late; add chain ip late in { type filter hook prerouting priority -300; }; '
            'add rule ip late in ip saddr 192.0.2.2 udp dport 4500 drop')
    lab.run('a', 'ping', '-q', '-c', 10, '-i', '0.05', '-W', '1', '10.2.0.2', fail=False)
    lab.run('g1', 'nft', 'delete table ip late')
    tcpdump.stop()
    late = esp_packets(file)
    check(len(late) == 10, f'{len(late)} packets were lost')
    check(lab.run('a', 'ping', '-q', '-c', 100, '-i', '0.01', '10.2.0.2').count(' 0% packet loss') == 1, 'a hundred others arrived')
    # tcpdump sees them before anybody has finished the UDP checksum. None is due (RFC 3948 section 2.1).
    return [p[:26] + bytes(2) + p[28:] for p in late]


def late_packets_name_the_window_that_would_have_kept_them(lab, full):
    """Authentic packets that arrive behind the window are counted by how far; forged ones are not."""
    need('tcpdump', 'nft')
    g1, _ = pair(lab, child='replay_window = 32\nstart_action = trap')
    late = delayed(lab, g1, 'narrow')
    listed = lambda *args: lab.run('g1', program(), 'list', 'counters', *args, '--vici', f'unix://{g1.socket}')
    counted = lambda name: int((re.search(rf'^ *{name} +(\d+)$', listed(), re.M) or [0, 0])[1])
    # Not all at once: of each batch the gateway opens eight that are late.
    send_raw(lab, 'g2', late, pause=0.02)
    send_raw(lab, 'g2', [p[:-1] + bytes([p[-1] ^ 1]) for p in late], pause=0.02)
    until('all of them are dropped', lambda: counted('InStateSeqOld') == 20)
    shown = listed()
    check('net/net: 10 packets of the peer came too late for its window of 32;' in shown, 'ten packets were late')
    check('replay_window = 128 would have kept 100 % of them' in shown, 'and the window that keeps them is named')
    check(re.search(r'up to 128 +10\b', shown) is not None, 'the histogram has them')
    check('came too late' not in listed('other'), 'of another connection nothing is told')
    check((counted('forged'), counted('late-unverified')) == (10, 0), 'forged ones are counted apart, and none was left unopened')
    # Doing what it says helps.
    narrow = g1.child_spis()
    g1.load(tunnel('g1', conn='path_probe = no', child='replay_window = 128\nstart_action = trap'))
    until('the child is up anew', lambda: ping(lab, count=1, fail=False) and (now := g1.child_spis()) and not now & narrow)
    arrived = counted('in-writes')
    send_raw(lab, 'g2', delayed(lab, g1, 'wide'), pause=0.02)
    until('a window of 128 keeps all ten', lambda: counted('in-writes') == arrived + 110)
    check(counted('InStateSeqOld') == 20, 'and drops none')
    check('the window of 128 that it has now keeps them' in listed(), 'the advice has been followed')


main({f.__name__: f for f in (tshark_decrypts_a_capture_and_shows_its_comments, clients_that_stall_or_are_killed_cost_nobody_anything,
                              a_full_disk_hits_the_client_alone, dropped_packets_are_captured_with_their_reasons,
                              names_and_files_are_shown_without_escape_sequences, late_packets_name_the_window_that_would_have_kept_them)},
     'capture')
