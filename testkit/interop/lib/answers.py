#!/usr/bin/env python3
"""Measures how long requests of the exchange INFORMATIONAL wait for their answers, as seen at a device of the box that asks.

usage: answers.py DEVICE
Says `ready`; at each line `cut` on standard input prints a JSON list of milliseconds, one for each request that was answered since the
last one; ends with its input.
"""
import json
import sys

from ikecount import EVERY, messages

INFORMATIONAL = 37


def main():
    asked, waited = {}, []
    for found in messages(sys.argv[1], EVERY):
        if found is None:
            print(json.dumps(waited), flush=True)
            waited.clear()
            continue
        at, leaves, _, message = found
        if message[18] != INFORMATIONAL:
            continue
        response, key = bool(message[19] & 0x20), (message[:16], message[20:24])
        if leaves and not response:
            asked.setdefault(key, at)
        elif not leaves and response and key in asked:
            waited.append((at - asked.pop(key)) * 1e3)


if __name__ == '__main__':
    main()
