"""Counts the fragments of IKE messages (RFC 7383) that a box sends and receives, by nft in its namespace.

A message with the payload SKF alone has 53 as its next payload: the 17th byte behind the UDP header, or behind the four zero bytes that
precede IKE on port 4500 (RFC 3948 section 2.2).
"""
import re

RULES = """
table ip cut {
  chain in { type filter hook input priority 10; udp dport 500 @th,192,8 53 counter; udp dport 4500 @th,64,32 0 @th,224,8 53 counter; }
  chain out { type filter hook output priority 10; udp dport 500 @th,192,8 53 counter; udp dport 4500 @th,64,32 0 @th,224,8 53 counter; }
}
"""


class Fragments:
    """Counters of one box, from now on."""

    def __init__(self, lab, box):
        self.lab, self.box = lab, box
        lab.run(box, 'nft', '-f', lab.write('cut.nft', RULES))

    def seen(self):
        """(sent, received) fragments."""
        return [sum(map(int, re.findall(r'packets (\d+)', self.lab.run(self.box, 'nft', 'list', 'chain', 'ip', 'cut', way))))
                for way in ('out', 'in')]
