"""A small VICI client (strongSwan's control protocol, version 1), independent of the one in the product.

A packet is a 32-bit big-endian length and a body; the body is a type byte, for named types an 8-bit length and a
name, and then a message: sections, key/value pairs and lists, as nested dict, str and list of str here.
"""
import socket
import struct

CMD_REQUEST, CMD_RESPONSE, CMD_UNKNOWN, EVENT_REGISTER, EVENT_UNREGISTER, EVENT_CONFIRM, EVENT_UNKNOWN, EVENT = range(8)
SECTION_START, SECTION_END, KEY_VALUE, LIST_START, LIST_ITEM, LIST_END = range(1, 7)


class ViciError(Exception):
    """The daemon answered `success = no`, does not know the command, or broke the protocol."""


def emit(message):
    out = bytearray()

    def name(text):
        raw = text.encode()
        return bytes([len(raw)]) + raw

    def value(text):
        raw = text if isinstance(text, bytes) else str(text).encode()
        return struct.pack('!H', len(raw)) + raw

    def section(items):
        for key, item in items.items():
            if isinstance(item, dict):
                out.append(SECTION_START)
                out.extend(name(key))
                section(item)
                out.append(SECTION_END)
            elif isinstance(item, (list, tuple)):
                out.append(LIST_START)
                out.extend(name(key))
                for one in item:
                    out.append(LIST_ITEM)
                    out.extend(value(one))
                out.append(LIST_END)
            else:
                out.append(KEY_VALUE)
                out.extend(name(key) + value(item))

    section(message)
    return bytes(out)


def parse(raw):
    at = 0

    def take(count):
        nonlocal at
        if at + count > len(raw):
            raise ViciError(f'message ends inside an element: {raw[:80]!r}')
        at += count
        return raw[at - count:at]

    def name():
        return take(take(1)[0]).decode()

    def value():
        return take(struct.unpack('!H', take(2))[0]).decode(errors='replace')

    root = {}
    open_sections, open_list = [root], None
    while at < len(raw):
        kind = take(1)[0]
        here = open_sections[-1]
        if open_list is not None and kind not in (LIST_ITEM, LIST_END):
            raise ViciError(f'element {kind} inside a list')
        if kind == SECTION_START:
            here[key := name()] = {}
            open_sections.append(here[key])
        elif kind == SECTION_END:
            open_sections.pop()
            if not open_sections:
                raise ViciError('section ended that was not open')
        elif kind == KEY_VALUE:
            key = name()
            here[key] = value()
        elif kind == LIST_START:
            open_list = here[name()] = []
        elif kind == LIST_ITEM:
            open_list.append(value())
        elif kind == LIST_END:
            open_list = None
        else:
            raise ViciError(f'element type {kind}')
    if len(open_sections) != 1 or open_list is not None:
        raise ViciError('message ends inside a section or a list')
    return root


class Vici:
    """One connection to a daemon."""

    def __init__(self, path, timeout=30):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(path)

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, body):
        self.sock.sendall(struct.pack('!I', len(body)) + body)

    def receive(self):
        return self._exactly(struct.unpack('!I', self._exactly(4))[0])

    def _exactly(self, count):
        data = b''
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise ViciError('the daemon closed the connection')
            data += piece
        return data

    @staticmethod
    def _named(kind, name):
        return bytes([kind, len(name)]) + name.encode()

    def register(self, event, kind=EVENT_REGISTER):
        self.send(self._named(kind, event))
        while (body := self.receive())[0] == EVENT:
            pass
        if body[0] != EVENT_CONFIRM:
            raise ViciError(f'event {event!r}: answer of type {body[0]}')

    def request(self, command, message=None, on_event=None):
        """Sends a command; the answer as a dict. Raises when it says `success = no`."""
        self.send(self._named(CMD_REQUEST, command) + emit(message or {}))
        while True:
            body = self.receive()
            if body[0] == EVENT:
                size = body[1]
                if on_event:
                    on_event(body[2:2 + size].decode(), parse(body[2 + size:]))
                continue
            if body[0] == CMD_UNKNOWN:
                raise ViciError(f'command {command!r} is unknown to the daemon')
            if body[0] != CMD_RESPONSE:
                raise ViciError(f'command {command!r}: answer of type {body[0]}')
            answer = parse(body[1:])
            if answer.get('success', 'yes') != 'yes':
                raise ViciError(f"{command}: {answer.get('errmsg', 'success = no, and no errmsg')}")
            return answer

    def stream(self, command, event, message=None):
        """A `list-*` command: what its events carried, as a list of dicts."""
        found = []
        self.register(event)
        self.request(command, message, lambda name, item: found.append(item) if name == event else None)
        self.register(event, EVENT_UNREGISTER)
        return found

    def sas(self):
        """IKE_SAs as a list of dicts; the connection's name is under `name`."""
        return [{'name': name, **sa} for item in self.stream('list-sas', 'list-sa') for name, sa in item.items()]
