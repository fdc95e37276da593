"""One life of a tunnel between IronSwan in g1 and a peer in g2: up, traffic, rekeyings of both kinds from both sides, down.

A peer has initiate(), rekey('child' or 'ike'), terminate() and esp_spis(); traffic goes between the host a and `peer.inner`.
"""
from lab import until

# Seconds that one step may take: more than five times what the slowest one takes, a rekeying by a lifetime of 7 s.
STEP_TIMEOUT = 60


def rekeyed(us, peer, who, what):
    """One side rekeys the CHILD_SA or the IKE_SA; both ends then have the new one, and it alone."""
    spis = us.ike_spis if what == 'ike' else us.child_spis
    old = spis()
    who.rekey(what)
    until(f'we see the {what} rekeyed by {who.kind} (was {old})', lambda: len(now := spis()) == 1 and not now & old, STEP_TIMEOUT)
    agree(us, peer)


def agree(us, peer):
    """Waits until both ends have one CHILD_SA, with the same SPIs."""
    until('both ends have the same CHILD_SA', lambda: len(ours := us.child_spis()) == 1 and set(*ours) == peer.esp_spis(), STEP_TIMEOUT)


def live(us, peer, initiator, traffic, rekeyings, left=()):
    """A whole life. `traffic(change)` carries packets both ways while `change()` runs; its report is returned. `left`: states of our
    IKE_SAs that may remain."""
    initiator.initiate()
    until('the IKE_SA is up', lambda: len(us.established()) == 1, STEP_TIMEOUT)
    agree(us, peer)

    def change():
        for who, what in rekeyings(us, peer):
            rekeyed(us, peer, who, what)

    report = traffic(change)
    initiator.terminate()
    until('both ends are clean', lambda: all(sa['state'] in left for sa in us.sas()) and not peer.esp_spis(), STEP_TIMEOUT)
    return report
