#!/usr/bin/env python3
"""The grammar of swanctl.conf: what our reader makes of a file must be what Debian's swanctl sends of it to a daemon.

usage: testkit/interop/run [--full] [--seed=N] grammar[.TEST]

The daemon is a server of ours that records VICI messages. Our reader is the example conf_tree of a debug build. Files are
written by hand (the forms that were read differently once, and each kind of mistake) and generated from a seed: 300, or 2,000
with --full. Where swanctl refuses a file we must; where we refuse one that swanctl takes, it must be for one of STRICTER.
"""
import base64
import json
import os
import random
import re
import select
import socket
import struct
import subprocess
import threading

from lab import REPO, Failed, check, main, need, take_seed
from vici import CMD_REQUEST, CMD_RESPONSE, EVENT_CONFIRM, KEY_VALUE, LIST_END, LIST_ITEM, LIST_START, SECTION_END, SECTION_START, emit

SEED = take_seed(19)
# Refused by us and read by swanctl: each of these hides a mistake, and a tunnel would be another than the one that was written.
ACROSS = 'the braces of an included file do not match'
STRICTER = {
    'a key and a section of one name': ('is a section already', 'is a key already'),
    'inherits from what is not there': ('which is no section',),
    'inherits from itself': ('contains or inherits from this section', 'is a part of this section', 'makes too many entries', 'references in a row',
                             'more than 64 sections inside each other'),
    'a file that is not there': ('cannot read',),
    'an include that names nothing': ('include names no file',),
    'a file that includes itself': ('includes itself',),
    'a carriage return in a comment': ('a carriage return in the middle',),
    'control characters': ('a control character', 'a NUL byte', 'bytes that are not UTF-8'),
    'blanks that are not ASCII': ('a blank that is not ASCII',),
    'too many sections inside each other': ('sections inside each other',),
    'a section that begins in one file and ends in another': (ACROSS,),
    'a secret that is not hexadecimal or base64': ('0x is not followed by', '0s is not followed by'),
    'a secret that may go on behind a brace or on the next line': ('is not another section', 'among secrets'),
    'an empty secret': ('the secret is empty', 'has no secret'),
    'a key in secrets that nobody reads': ('unknown key', 'unknown section', 'is a key, not a section', 'stands in no section of its own'),
    'a kind of secret that is not built': ('secrets are not built yet',),
    'an identity that is none': ('identity', 'distinguished name', 'is not a pattern'),
}


def elements(raw):
    """A VICI message as a list of (name, value) in its order: a value is bytes, a list, or a Section."""
    at, root = 0, Section()
    stack, items = [root], None

    def take(count):
        nonlocal at
        at += count
        return raw[at - count:at]

    while at < len(raw):
        kind = take(1)[0]
        name = take(take(1)[0]).decode() if kind in (SECTION_START, KEY_VALUE, LIST_START) else None
        value = take(struct.unpack('!H', take(2))[0]) if kind in (KEY_VALUE, LIST_ITEM) else None
        if kind == SECTION_START:
            stack[-1].append((name, inner := Section()))
            stack.append(inner)
        elif kind == SECTION_END:
            stack.pop()
        elif kind == KEY_VALUE:
            stack[-1].append((name, value))
        elif kind == LIST_START:
            stack[-1].append((name, items := []))
        elif kind == LIST_ITEM:
            items.append(value.decode())
        elif kind != LIST_END:
            raise Failed(f'an element of type {kind} from swanctl')
    return root


class Section(list):
    pass


class Recorder:
    """A daemon that says yes to everything, has nothing, and remembers what it was asked."""

    def __init__(self, path):
        self.asked = []
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(1)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.server.accept()
            with client, client.makefile('rb') as stream:
                while len(head := stream.read(4)) == 4:
                    body = stream.read(struct.unpack('!I', head)[0])
                    answer = bytes([EVENT_CONFIRM])
                    if body[0] == CMD_REQUEST:
                        end = 2 + body[1]
                        name = body[2:end].decode()
                        self.asked.append((name, elements(body[end:])))
                        answer = bytes([CMD_RESPONSE]) + emit({'success': 'yes'} if not name.startswith('get-') else {})
                    client.sendall(struct.pack('!I', len(answer)) + answer)


class Readers:
    """Both readers of one folder, in which a test writes swanctl.conf and what it includes."""

    def __init__(self, lab):
        need('swanctl')
        self.folder = os.path.dirname(lab.write('grammar/strongswan.conf', ''))
        self.socket = os.path.join(self.folder, 'vici')
        self.recorder = Recorder(self.socket)
        target = os.environ.get('CARGO_TARGET_DIR', os.path.join(REPO, 'target'))
        program = os.path.join(target, 'debug', 'examples', 'conf_tree')
        if not os.path.exists(program):
            raise Failed(f'no program at {program}: run `cargo build -p ironswan-config --example conf_tree`')
        self.ours = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.stdin.close()
        self.ours.wait(10)

    def swanctl(self, conf):
        """What swanctl sends, connections and secrets, in order; when it refuses the file, what it says."""
        self.recorder.asked.clear()
        env = dict(os.environ, STRONGSWAN_CONF=os.path.join(self.folder, 'strongswan.conf'), SWANCTL_DIR=self.folder)
        done = subprocess.run(['swanctl', '--load-all', '--file', conf, '--uri', f'unix://{self.socket}'], env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        if b'get-conns' not in b' '.join(name.encode() for name, _ in self.recorder.asked):
            raise Failed(f'swanctl did not come to its connections: {done.stderr.decode(errors="replace")}')
        said = (done.stderr + done.stdout).decode(errors='replace').splitlines()
        if any('invalid config file' in line for line in said):
            return next((line for line in said if 'syntax error' in line), 'no reason')
        return ([message[0] for name, message in self.recorder.asked if name == 'load-conn'],
                [dict(message) for name, message in self.recorder.asked if name == 'load-shared'])

    def tree(self, conf):
        self.ours.stdin.write(conf.encode() + b'\n')
        self.ours.stdin.flush()
        if not select.select([self.ours.stdout], [], [], 20)[0]:
            raise Failed('our reader did not answer within 20 s')
        return json.loads(self.ours.stdout.readline())

    def compare(self, files):
        """Reads `files` (name -> text or bytes) with both. Why they differ, and as which of STRICTER we refuse; None for neither."""
        for name, text in files.items():
            with open(os.path.join(self.folder, name), 'wb') as f:
                f.write(text if isinstance(text, bytes) else text.encode())
        conf = os.path.join(self.folder, 'swanctl.conf')
        try:
            theirs, ours = self.swanctl(conf), self.tree(conf)
        finally:
            for name in files:
                os.unlink(os.path.join(self.folder, name))
        if ours['errors']:
            if isinstance(theirs, str):
                return None, 'both'
            return refusal(ours['errors'])
        if isinstance(theirs, str):
            return f'swanctl refuses it ({theirs}), we do not', None
        conns, secrets = theirs
        top = {name: value for name, value in ours['tree'] if isinstance(value, list)}
        mine = [(name, normal(value)) for name, value in top.get('connections', []) if isinstance(value, list)]
        sent = [(name, sent_normal(value, mine_of(mine, name))) for name, value in conns]
        if mine != sent:
            return difference(mine, sent, 'connections'), None
        return same_secrets(top.get('secrets', []), dict(ours['secrets']), ours['refused'], secrets)


def refusal(lines):
    """Whether these findings are all among STRICTER: why not, or the kind."""
    if any(re.search(r'/part\d:', line) for line in lines):
        lines = [ACROSS]
    lines = [line for line in lines if 'a carriage return in the middle' in line] or lines
    found = {kind for line in lines for kind, words in STRICTER.items() if any(w in line for w in words)}
    strange = [line for line in lines if not any(w in line for words in STRICTER.values() for w in words)]
    return (f'we refuse what swanctl reads: {strange}', None) if strange else (None, min(found))


def normal(section):
    """One of our sections as swanctl sends it: values, then sections."""
    values = [(name, value) for name, value in section if isinstance(value, dict)]
    return values, [(name, normal(value)) for name, value in section if isinstance(value, list)]


def difference(ours, theirs, path):
    """The first place where two lists of (name, value) differ."""
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return f'{path}: we have {[name for name, _ in ours]}, swanctl {[name for name, _ in theirs]}'
    for (name, own), (_, sent) in zip(ours, theirs):
        if own == sent:
            continue
        if isinstance(own, dict):
            return f'{path}.{name}: we have {own}, swanctl {sent}'
        return difference(own[0], sent[0], f'{path}.{name}') or difference(own[1], sent[1], f'{path}.{name}')
    return None


def mine_of(pairs, name):
    return next((value for n, value in pairs if n == name), ([], []))


def sent_normal(section, ours):
    """What swanctl sent in the shape of `normal`. Of a value one of text and list was sent; the other is taken from ours."""
    values = []
    for name, value in section:
        if isinstance(value, Section):
            continue
        own = mine_of(ours[0], name)
        own = own if isinstance(own, dict) else {'text': '', 'items': []}
        # Items are trimmed of more kinds of blanks by us; no item means anything with those.
        sent = {'items': [i for v in value if (i := v.strip())]} if isinstance(value, list) else {'text': value.decode()}
        values.append((name, {**own, **sent}))
    return values, [(n, sent_normal(v, mine_of(ours[1], n))) for n, v in section if isinstance(v, Section)]


def same_secrets(section, ours, refused, sent):
    """Compares keys: names in order, owners, and the bytes of those that we take."""
    tree = {name: value for name, value in section if isinstance(value, list)}
    kind = None
    if refused:
        why, kind = refusal(refused)
        if why:
            return why, None
    for message in sent:
        name = message['id'].decode()
        if name not in tree:
            return f'swanctl loads secret {name}, we have none', None
        owners = [value['text'] for key, value in tree[name] if key.startswith('id') and isinstance(value, dict)]
        if owners != message['owners']:
            return f'secrets.{name}: owners {owners}, swanctl has {message["owners"]}', None
        if name in ours and ours[name] != message['data'].hex():
            return f'secrets.{name}: {ours[name]}, swanctl has {message["data"].hex()}', None
        if name not in ours and not any(f'secrets.{name}' in line for line in refused):
            return f'swanctl loads secret {name}, we silently do not', None
    extra = set(ours) - {m['id'].decode() for m in sent}
    return (f'we load secrets that swanctl does not: {extra}', None) if extra else (None, kind)


# ---- by hand ----

# What stands behind `k =` in a section.
VALUES = (
    'two  blanks', 'a\tb', '"two" "parts"', '"two""parts"', 'x"y"z', 'x "y" z', 'a{b', 'a { b', '{', 'a#b', 'a # b', '"a#b"', '""', '"" ""',
    '', '"a\\nb\\tc\\rd\\"e\\\\f\\xg"', '"a\\\nb"', '"a\\\n  b"', '"a\nb"', 'a\\', 'a\\nb', "'a b'", 'a=b', 'a = b', '= a', 'a:b', 'a,b , c',
    'a.b', '"a" # c', '"a"b', ' "  a  "  ', 'a "" b', '"a\r\nb"', '"a\rb"', '"a\r\r\nb"', '"a\\\r\nb"', '"a\\\rb"', 'é ü', 'a\rb', 'a;b',
    '"\\q\\#"', '"My "home" is my "castle"!"', 'include x', '"}"', '.,:', 'x\r\r', '"a', '"a\\"', 'a } b', 'x}', '{x}', 'a\\"b', '"a\\',
)
# A whole section's contents.
CONTENTS = (
    'a = 1 b = 2', 'a { b = 1\n} c = 2', 'a { b = 1 } c = 2', 'a { b = 1\n }; c = 2', 'a = 1;', 'a { b = 1 c { d = 2 } }', 'a\n{\nb = 1\n}',
    'a\n\n # x\n {\nb = 1\n}', 'a\n= 1', 'a =\n1', 'a = \n\n b = 2', 'a { } a { b = 1\n }', 'a = 1\na = 2', 'a = 1\nb = 2\na = 3', 'a = 1\na =',
    'a =\na = 1', 'a = 1\nb = 2\na =\na = 3', 'a { b = 1\n}\na { b = 2\n c = 3\n}', 'a = 1\na { b = 2\n}', 'a { b = 2\n}\na = 1', 'a.b = 1',
    'a.b { c = 1\n}', '.a = 1', 'a. = 1', 'a , b = 1', '"a" = 1', 'a b = 1', 'a b { c = 1\n}', 'a:b = 1', '{ a = 1\n}', '= 1', 'a', 'a\nb = 1',
    '}', 'a = 1 }', 'a =1#x\nb=2', 'a#x = 1', '#a = 1', 'a # x\n = 1', 'a { # x\n b = 1\n}', 'a{b=1\n}', 'a\r\n{\r\n b = 1\r\n}\r', ';',
    'a { b = "x" } c = 1', 'a = b\n{ c = d\n}', 'a : { b = 1\n}', 'a : , b { }', 'a : b,  { }', 'a : b . c { }', 'a : .b { }', 'a : b..c { }',
    'a : b', 'include = 1', 'include\t= 1', 'include\r= 1', 'include : 1', 'include{a=1\n}', 'include', 'include\nx', 'include \n= 1', 'includex = 1',
    'é = 1', "a-_@/%!$&()*+;<>?[]^`|~'\\ = 1", 'a\\ = 1', 'proposals = a , b,,c , \nlocal_addrs = "a b", c', 'proposals = ,', "proposals = 'a, b','c'd,'e\nlocal_ts = x'y,z', ''", 'a = 1 # x\rb = 2', 'include  =x', 'a { ' * 10 + '}' * 10,
    # Read by swanctl alone.
    'a\vb = 1', 'a = b\fc', 'a\u00a0= 1', 'a : nope { b = 1\n}', 'a : connections.c { b = 1\n}', 'include part9', 'a { ' * 40 + '}' * 40,
)
# Files.
FILES = (
    '', '\n', '#', 'connections', 'connections {', 'connections { c { k = x\n } }\n}\n', 'x = y\nfoo { }\nconnections { c { } }', 'connections { c = d\n }',
    't { x = 1 \n y { z = 2\n } }\nconnections { c : t { x = 3 \n y { w = 1\n } } d : t { y { z =\n } \n x = \n } }',
    't { x = 1\n }\nu { x = 9 \n q = 1\n }\nconnections { c : t, u { } d : u, t { } }',
    't { x = 1\n }\nu : t { q = 1\n }\nconnections { c : u { } }', 't { x = \n y=1\n }\nu { x = 9\n }\nconnections { c : t, u { y=\n } d : t { x=2\n} }',
    'connections { d : connections.c { }\n c { a = 1\n } }', 'x {p=1\n}\ny{q=1\n}\nconnections { a : x { r=1\n }\n a : y { s=1\n } }',
    't { k : u { a=1\n } }\nu { b=2\n }\nconnections { c : t { k { z=1\n } } d : t { } }', 'x { c { a=1\n } }\nconnections : x { d : connections.c { } }',
    'connections { c { s { a=1\n } s2 : connections.c.s { b=1\n } } }',
    't { id = x\n secret=b\n}\nsecrets { ike-1 : t { } ike-2 : t, secrets.ike-1 { id = y\n id2=z\n } }',
    'connections { c : connections.d { a = 1\n } d : connections.c { b = 1\n } }', '\ufeffconnections { }',
    b'connections { c { a = \xff\n } }', b'connections { c { a = 1\0\n } }',
)
# What stands behind `secret =`.
SECRETS = (
    'plain', '"two  blanks"', 'two  blanks', '0x616263', '0X6162', '"0x6162"', ' 0x6162 ', '0x61:62', '0sYWJj', '0SYWJj', '0sYWJjZA==', '0sYWI=',
    '"My "home" is my "castle"!"', '"Andi\'s  home"', '0b1', 'a{b', '" x "', 'a "" b',
    # Read by swanctl alone, as bytes that nobody meant.
    '0x6', '0x', '0xzz', '0x61 62', '0sYWJ', '0sYWJjZA', '0sYWJjZA=', '0sYW Jj', '0s!!!!', '0sYWJj====', '0sYW==Jj', '""', '',
)
# What stands behind `include`, with files of those names beside.
INCLUDES = (
    'part1', 'part1\nz=1', 'part2 z=3', 'part2\nz=3', 'a{b', 'a=b', '"sp ace"', '"sp\\ ace"', 'sp\\ ace', 'part?', 'part[12]', 'part1#z=1', '"part1"#z=1',
    '"part1" z = 1', '"part1"z=1', 'part1\r\nz=1', 'nope*', 'part6', '"part1', 'part1 "part2"', '# x', 'a\\}b', 'part3', 'part1 }\n d { x = 9',
    # Read by swanctl alone: a section goes on in another file, a file that is not there, one that includes itself.
    'part4\n}', 'part5', 'nope', 'part7', 'a#b',
)
PARTS = {'part1': 'q = 1\n', 'part2': 'w = 2', 'part3': 'x = "unterminated\n', 'part4': 'e { r = 1\n', 'part5': '} d { z=1\n', 'part6': 'include part1\n',
         'part7': 'include part7\n', 'a{b': 'x=1\n', 'a=b': 'x=5\n', 'sp ace': 'x=6\n', 'a}b': 'x=7\n'}


def each_form_reads_as_in_swanctl(lab, full):
    """Each form by itself, right and wrong."""
    wrap = 'connections {{\n c {{\n{}\n }}\n}}\n'.format
    cases = [{'swanctl.conf': wrap(f'  k = {value}\n  z = 1')} for value in VALUES]
    cases += [{'swanctl.conf': wrap(contents)} for contents in CONTENTS]
    cases += [{'swanctl.conf': text} for text in FILES]
    cases += [{'swanctl.conf': f'secrets {{\n ike-1 {{\n  secret = {value}\n  id-x = "x  y"\n  id = z\n }}\n}}\n'} for value in SECRETS]
    for pattern in INCLUDES:
        parts = {n: t for n, t in PARTS.items() if '?' not in pattern or n in ('part1', 'part2')}
        cases.append({'swanctl.conf': wrap(f'include {pattern}'), **parts})
    judge(lab, [(case, '') for case in cases], 60)


# ---- generated ----

KEYS = ('a', 'b', 'c1', 'proposals', 'local_ts', 'remote_addrs', 'id', 'include', 'k-e_y', 'x/y', 'é', '%any', '@', '*', '0', 'a\\b', "q'u", 'z;', 'includex')
SECTIONS = ('s', 'local', 'remote-2', 'children', 'net', 'ü', 'S')
LETTERS = 'abcXYZ019.,:;=+-*/\\{[]()<>%@!$&\'|~?é'
SPECIAL = '{}"#=:,.\\ \n\t\rax'


class Generator:
    """One file, and what it includes, from one random number generator."""

    def __init__(self, rng):
        self.rng, self.files = rng, {}

    def some(self, *choices):
        return self.rng.choice(choices)

    def blank(self):
        return self.rng.choice(('', '', ' ', ' ', '  ', '\t', ' \t ', '\r'))

    def line_end(self):
        return self.rng.choice(('\n', '\n', '\n\n', '\r\n', ' # comment } " {\n', '\n\t\n', '#\n', ' \n \n'))

    def space(self):
        return ''.join(self.rng.choice((self.blank, self.line_end))() for _ in range(self.rng.choice((0, 1, 1, 1, 2))))

    def word(self):
        return ''.join(self.rng.choice(LETTERS) for _ in range(self.rng.randint(1, 8)))

    def quoted(self):
        parts = ('x', 'y z', '  ', '#', '}', '{', '\\n', '\\t', '\\r', '\\"', '\\\\', '\\x', '\\#', '\n', '\\\n', '\\\r\n', '\r\n', '\r', 'é', '=', ',')
        return '"' + ''.join(self.rng.choice(parts) for _ in range(self.rng.randint(0, 5))) + '"'

    def value(self):
        out, word = self.blank(), False
        for _ in range(self.rng.choice((0, 1, 1, 1, 2, 2, 3, 4))):
            quoted = self.rng.random() < 0.3
            out += ' ' if word and not quoted and not out[-1:].isspace() else ''
            out += self.quoted() if quoted else self.word()
            out += self.blank()
            word = not quoted
        return out

    def assignment(self, key, value=None):
        return key + self.space() + '=' + (self.value() if value is None else value) + self.line_end()

    def opening(self, name, refs):
        out = name + self.space()
        if refs and self.rng.random() < 0.3:
            names = [self.rng.choice(refs) for _ in range(self.rng.choice((1, 1, 2, 3)))]
            out += ':' + self.space() + (self.space() + ',' + self.space()).join(names) + self.space()
        return out + '{' + self.space()

    def contents(self, depth, refs):
        out = ''
        for _ in range(self.rng.randint(0, 4 if depth else 6)):
            kind = self.rng.random()
            if kind < 0.65:
                out += self.space() + self.assignment(self.rng.choice(KEYS if self.rng.random() < 0.99 else SECTIONS))
            elif kind < 0.9 and depth < 4:
                out += self.space() + self.section(self.rng.choice(SECTIONS), depth + 1, refs)
            elif kind < 0.95 and len(self.files) < 3:
                out += self.space() + self.include(depth, refs)
            else:
                out += self.line_end()
        return out

    def section(self, name, depth, refs):
        out = self.opening(name, refs) + self.contents(depth, refs)
        # A value may end with its section instead of its line.
        out = out.rstrip('\r\n') if self.rng.random() < 0.2 and '#' not in out.rsplit('\n', 2)[-2:][0] else out
        return out + '}' + self.space()

    def include(self, depth, refs):
        name = f'part{len(self.files)}'
        self.files[name] = ''
        self.files[name] = self.contents(max(depth, 2), refs)
        quoted = self.rng.random() < 0.3
        return 'include' + self.some(' ', '\t', '  ') + (f'"{name}"' if quoted else name) + self.some(' ', '\n', '\r\n', ' # x\n')

    def secret(self):
        data = bytes(self.rng.randrange(256) for _ in range(self.rng.randint(1, 20)))
        return self.some(self.value(), self.value(), ' 0x' + data.hex(), ' 0X' + data.hex(':').upper(), f' "0x{data.hex()}"',
                         ' 0s' + base64.b64encode(data).decode())

    def case(self):
        names = [f'c{i}' for i in range(self.rng.randint(1, 3))]
        refs = ['t0', 't1', 't1.s', 'connections.c0', *(['nope'] if self.rng.random() < 0.03 else [])]
        parts = [self.opening('t0', []) + self.contents(2, []) + '}' + self.line_end(),
                 self.opening('t1', ['t0']) + 's {' + self.contents(2, ['t0']) + '\n}' + self.contents(2, ['t0']) + '\n}' + self.line_end()]
        conns = ''.join(self.space() + self.section(n, 1, refs if n != 'c0' else refs[:3]) for n in names)
        parts.append(self.opening('connections', []) + conns + '\n}' + self.line_end())
        if self.rng.random() < 0.3:
            parts.append(self.opening('connections', []) + self.section(self.rng.choice(names), 1, refs[:2]) + '\n}' + self.line_end())
        keys = ''
        for i in range(self.rng.randint(0, 3)):
            keys += self.opening(f'ike-{i}', []) + self.assignment('secret', self.secret())
            keys += ''.join(self.assignment(f'id{j}', self.some(' a.example', ' "b.example"', ' u@c', ' 192.0.2.1')) for j in range(self.rng.randint(0, 2)))
            keys += '}' + self.space()
        parts.append('secrets {' + keys + '\n}')
        self.rng.shuffle(parts)
        self.files['swanctl.conf'] = '\n'.join(parts)
        if self.rng.random() < 0.5:
            for _ in range(self.rng.randint(1, 2)):
                self.mutate(self.rng.choice(sorted(self.files)))
        return self.files

    def mutate(self, name):
        text = self.files[name]
        at = self.rng.randrange(len(text) + 1)
        kind = self.rng.randrange(4)
        insert = self.rng.choice(SPECIAL) if kind else ''
        self.files[name] = text[:at] + insert + text[at + (kind != 1):]


def generated_files_read_as_in_swanctl(lab, full):
    """Files from a seed: what is legal, and what is a character away from it."""
    cases = [(Generator(random.Random(f'{SEED}/{i}')).case(), f'file {i} of seed {SEED}') for i in range(2000 if full else 300)]
    judge(lab, cases, len(cases) // 5)


def judge(lab, cases, at_least):
    """Compares each case; both outcomes must be frequent, or the cases prove nothing."""
    counts, wrong = {}, []
    with Readers(lab) as readers:
        for files, name in cases:
            why, kind = readers.compare(files)
            if why:
                wrong.append(f'{name} {files!r}: {why}')
            else:
                counts[kind] = counts.get(kind, 0) + 1
    equal, both = counts.pop(None, 0), counts.pop('both', 0)
    for line in wrong[:5]:
        print(f'  {line[:3000]}')
    check(not wrong, f'{len(cases)} files: {equal} read as swanctl reads them, {both} refused by both, {sum(counts.values())} by us alone, '
          f'{len(wrong)} otherwise')
    for kind, count in sorted(counts.items()):
        check(True, f'by us alone: {kind}: {count}')
    check(equal >= at_least and both >= at_least // 4, f'at least {at_least} are read and {at_least // 4} refused by both')


main({f.__name__: f for f in (each_form_reads_as_in_swanctl, generated_files_read_as_in_swanctl)}, 'grammar')
