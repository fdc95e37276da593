"""Key material as each side wrote it down: charon's log at level 4, and IronSwan's key log.

Both become the same two lists, in the order in which the SAs were made:
  ike    dicts with d, ai, ar, ei, er, pi, pr (lower-case hex; ai and ar missing for AEAD)
  child  dicts with the set of both directions' (encryption key with salt, integrity key)
"""
import csv
import os
import re

NAMES = {'Sk_d secret': 'd', 'Sk_ai secret': 'ai', 'Sk_ar secret': 'ar', 'Sk_ei secret': 'ei', 'Sk_er secret': 'er',
         'Sk_pi secret': 'pi', 'Sk_pr secret': 'pr'}
CHILD = {'encryption initiator key': ('i', 'encr'), 'encryption responder key': ('r', 'encr'),
         'integrity initiator key': ('i', 'integ'), 'integrity responder key': ('r', 'integ')}


def chunks(log):
    """(label, hex) of every dump in charon's log, in order. Lines of different threads may be mixed."""
    open_dumps, out = {}, []
    for line in log.splitlines():
        found = re.match(r'(\d+\[\w+\]) ?(.*)', line)
        if not found:
            continue
        thread, text = found[1], found[2].strip()
        start = re.match(r'(.*) => (\d+) bytes @', text)
        if start:
            dump = open_dumps[thread] = [start[1], int(start[2]), '']
            out.append(dump)
            continue
        row = re.match(r'\d+: ((?:[0-9A-F]{2} ?){1,16})', text)
        dump = open_dumps.get(thread)
        if row and dump:
            want = dump[1] * 2 - len(dump[2])
            dump[2] += row[1].replace(' ', '').lower()[:min(want, 32)]
    return [(label, data) for label, size, data in out if len(data) == size * 2]


def of_charon(log):
    ike, child = [], []
    for label, data in chunks(log):
        if label == 'Sk_d secret':
            ike.append({})
        if label in NAMES:
            ike[-1][NAMES[label]] = data
        if label in CHILD:
            direction, what = CHILD[label]
            if not child or (direction, what) in child[-1]:
                child.append({})
            child[-1][direction, what] = data
    pairs = [frozenset((c.get((d, 'encr'), ''), c.get((d, 'integ'), '')) for d in 'ir') for c in child]
    return ike, pairs


def of_ironswan(directory):
    """The same from the tables ike_sk and esp_sa. A CHILD_SA is two lines of esp_sa, one after the other."""
    ike, directions = [], []
    with open(os.path.join(directory, 'ike_sk')) as f:
        for line in f:
            values = line.strip().split(',')[2:]
            ike.append({name: value for name, value in zip(('d', 'ai', 'ar', 'ei', 'er', 'pi', 'pr'), values) if value})
    with open(os.path.join(directory, 'esp_sa')) as f:
        for row in csv.reader(line.removeprefix('# ') for line in f):
            directions.append((row[5].removeprefix('0x'), row[7].removeprefix('0x')))
    return ike, [frozenset(pair) for pair in zip(directions[::2], directions[1::2])]
