"""Packets of an SA made by hand (ESP with null-sha256, IPComp in it, AH with sha256), each wrong in one way.

The ICVs are Python's own HMAC: nothing here is IronSwan's or the kernel's. Used by xfrm.py, whose `Case` is the SA.
"""
import hmac
import socket
import struct
import zlib


def checksum(data):
    total = sum(struct.unpack(f'!{(len(data) + 1) // 2}H', data + bytes(len(data) % 2)))
    total = (total & 0xffff) + (total >> 16)
    return ~((total & 0xffff) + (total >> 16)) & 0xffff


def ipv4(src, dst, protocol, payload, ttl=64):
    """An IPv4 packet."""
    header = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(payload), 7, 0, ttl, protocol, 0, socket.inet_aton(src),
                         socket.inet_aton(dst))
    return header[:10] + struct.pack('!H', checksum(header)) + header[12:] + payload


def harmless(size=40):
    """An ICMP echo reply that nobody waits for, so that nothing answers it."""
    body = bytes(2) + struct.pack('!HH', 1, 1) + bytes(n % 16 for n in range(size))
    return b'\0\0' + struct.pack('!H', checksum(b'\0\0' + body)) + body[2:]


class Forge:
    """Makes packets of an SA (null-sha256, or AH with sha256) by hand, right or wrong, from `src` to `dst`."""

    def __init__(self, case, way):
        self.case = case
        self.src, self.dst = (case.ours, case.peer) if way == 'out' else (case.peer, case.ours)
        self.inner = (case.from_, case.to) if way == 'out' else (case.to, case.from_)
        self.spi = case.out_spi if way == 'out' else case.in_spi
        self.key = bytes.fromhex(case.keys(way)[1])

    def payload(self, inner=None):
        """What the SA carries, and its protocol."""
        if self.case.mode == 'transport':
            return harmless(), 1
        return ipv4(*(inner or self.inner), 1, harmless()), 4

    def esp(self, seq, spi=None, inner=None, body=None, next_header=None, pad=None, pad_len=None, damage=False, cut=None):
        payload, protocol = self.payload(inner)
        payload = payload if body is None else body
        pad = bytes(range(1, 1 + -(len(payload) + 2) % 4)) if pad is None else pad
        data = struct.pack('!II', spi or self.spi, seq) + payload + pad + bytes(
            [len(pad) if pad_len is None else pad_len, protocol if next_header is None else next_header])
        icv = hmac.digest(self.key, data, 'sha256')[:16]
        data += bytes([icv[0] ^ damage]) + icv[1:]
        return ipv4(self.src, self.dst, 50, data[:cut])

    def ah(self, seq, spi=None, inner=None, damage=False, length=None, ttl=64, cut=None):
        payload, protocol = self.payload(inner)
        header = struct.pack('!BBHII', protocol, 5 if length is None else length, 0, spi or self.spi, seq)
        outer = ipv4(self.src, self.dst, 51, header + bytes(16) + payload, ttl)
        # Mutable fields are zero: TOS, flags and offset, TTL, checksum.
        covered = outer[:1] + b'\0' + outer[2:6] + b'\0\0\0' + outer[9:10] + b'\0\0' + outer[12:]
        icv = hmac.digest(self.key, covered, 'sha256')[:16]
        data = header + bytes([icv[0] ^ damage]) + icv[1:] + payload
        return ipv4(self.src, self.dst, 51, data[:cut], ttl)


def bad_packets(case, way):
    """(what, packets of which the last one is meant, the kernel's counter, our DropReason); None: it is accepted."""
    f = Forge(case, way)
    proto = f.ah if case.ah else f.esp
    if case.ipcomp:
        packet, cpi = ipv4(*f.inner, 1, harmless(200)), case.out_cpi if way == 'out' else case.in_cpi
        squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
        squeezed = squeeze.compress(packet) + squeeze.flush()

        def comp(seq, data, cpi=cpi, next_header=4):
            return [f.esp(seq, body=struct.pack('!BBH', next_header, 0, cpi) + data, next_header=108)]
        yield 'a compressed one', comp(1, squeezed), None, None
        yield 'what is no DEFLATE', comp(2, b'\xff' * 60), 'XfrmInStateProtoError', 'InIpcompError'
        yield 'DEFLATE that ends early', comp(3, squeezed[:-8]), 'XfrmInStateProtoError', 'InIpcompError'
        yield 'another CPI', comp(4, squeezed, cpi=0x7777), 'XfrmInNoStates', 'InIpcompError'
        yield 'nothing compressed', comp(5, b''), 'XfrmInStateProtoError', 'InIpcompError'
        return
    other = Forge.esp if case.ah else Forge.ah
    yield 'a good one', [proto(100)], None, None
    yield 'the same again', [proto(100)], 'XfrmInStateSeqError', 'InStateSeqDuplicate'
    yield 'sequence number zero', [proto(0)], 'XfrmInStateSeqError', 'InStateSeqOld'
    yield 'left of the window', [proto(9000), proto(101)], 'XfrmInStateSeqError', 'InStateSeqOld'
    yield 'a forged ICV', [proto(9001, damage=True)], 'XfrmInStateProtoError', 'InStateProtoError'
    yield 'the number of the forged one, right', [proto(9001)], None, None
    yield 'another SPI', [proto(9002, spi=0x77777777)], 'XfrmInNoStates', 'InNoStates'
    yield 'a reserved SPI', [proto(9003, spi=0x42)], 'XfrmInNoStates', 'InReservedSpi'
    yield 'the other protocol', [other(f, 9004)], 'XfrmInNoStates', 'InStateProtocol'
    if case.mode == 'tunnel':
        yield ('from outside the selectors', [proto(9010, inner=('10.66.6.6', f.inner[1]))], 'XfrmInNoPols', 'InStateMismatch')
        yield ('to outside the selectors', [proto(9011, inner=(f.inner[0], case.peer if way == 'out' else case.ours))],
               'XfrmInNoPols', 'InStateMismatch')
    if case.ah:
        yield 'a TTL that routers have counted down', [f.ah(9020, ttl=3)], None, None
        yield 'an AH length that is not that of the SA', [f.ah(9021, length=4)], 'XfrmInStateProtoError', 'InHdrError'
        yield 'an AH longer than the packet', [f.ah(9022, length=60)], 'XfrmInStateProtoError', 'InHdrError'
        yield 'cut off inside AH', [f.ah(9023, cut=14)], 'XfrmInStateProtoError', 'InHdrError'
    else:
        yield 'cut off behind the sequence number', [f.esp(9020, cut=12)], 'XfrmInStateProtoError', 'InHdrError'
        yield 'cut off inside the ICV', [f.esp(9021, cut=-3)], 'XfrmInStateProtoError', 'InStateProtoError'
        yield 'a pad length longer than the packet', [f.esp(9022, pad_len=255)], 'XfrmInStateProtoError', 'InTrailerError'
        # Linux does not look at what it takes off as padding.
        yield 'padding that is not 1, 2, 3', [f.esp(9023, pad=b'\7\7\7\7\7\7')], None, 'InTrailerError'
        if case.mode == 'tunnel':
            yield ('IPComp that was not agreed on', [f.esp(9026, next_header=108, body=b'\4\0\x10\0' + bytes(40))],
                   'XfrmInStateModeError', 'InIpcompError')
            yield 'UDP in tunnel mode', [f.esp(9024, next_header=17)], 'XfrmInStateModeError', 'InStateModeError'
            # The kernel hands it on as IPv6, which drops it.
            yield 'IPv6 said, IPv4 there', [f.esp(9025, next_header=41)], None, 'InInnerVersion'
