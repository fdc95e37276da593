"""The two kinds of gateway the tests put into a box: strongSwan's charon with ESP in user space, and IronSwan.

Both read the same swanctl.conf text and answer the same VICI, so a test can swap one for the other.
"""
import json
import os

from lab import REPO, Failed, call, need, until
from vici import Vici, ViciError

ADDRESS = {'g1': '192.0.2.1', 'g2': '192.0.2.2'}
ADDRESS6 = {'g1': '2001:db8::1', 'g2': '2001:db8::2'}
NET = {'g1': '10.1.0.0/24', 'g2': '10.2.0.0/24'}
NET6 = {'g1': 'fd00:1::/64', 'g2': 'fd00:2::/64'}
OTHER = {'g1': 'g2', 'g2': 'g1'}
IKE = 'aes128gcm16-prfsha256-x25519'
ESP = 'aes128gcm16'
SECRET = 'correct horse battery staple'


def tunnel(box, ike=IKE, esp=ESP, encap=True, secret=SECRET, conn='', child='', v6_outer=False, v6_inner=False,
           remote_id=None, my_id=None, local_ts=None, remote_ts=None, local_auth='auth = psk', remote_auth='auth = psk',
           children=None):
    """swanctl.conf of one end of the line: connection `net` with the child `net`, or with `children`: name to the arguments of `section`."""
    peer, address = OTHER[box], ADDRESS6 if v6_outer else ADDRESS
    net = NET6 if v6_inner else NET
    default = {'local_ts': local_ts or net[box], 'remote_ts': remote_ts or net[peer], 'esp': esp, 'child': child}
    children = {'net': {}} if children is None else children
    sections = ''.join(section(name, **{**default, **keys}) for name, keys in children.items())
    return f"""
connections {{
  net {{
    version = 2
    mobike = no
    local_addrs = {address[box]}
    remote_addrs = {address[peer]}
    proposals = {ike}
    encap = {'yes' if encap else 'no'}
    {conn}
    local {{
      {local_auth}
      id = {my_id or box + '.example'}
    }}
    remote {{
      {remote_auth}
      id = {remote_id or peer + '.example'}
    }}
    children {{{sections}
    }}
  }}
}}
secrets {{
  ike-1 {{
    secret = "{secret}"
  }}
}}
"""


def section(name, local_ts, remote_ts, esp, child):
    """A child of a connection in swanctl.conf."""
    return f"""
      {name} {{
        local_ts = {local_ts}
        remote_ts = {remote_ts}
        esp_proposals = {esp}
        {child}
      }}"""


class Gateway:
    """What charon and IronSwan have in common: a VICI socket, and swanctl to drive it."""

    kind = None

    def __init__(self, lab, box):
        self.lab, self.box = lab, box
        self.socket = lab.path(f'{box}.vici')
        self.process = None

    def vici(self, timeout=30):
        return Vici(self.socket, timeout)

    def sas(self):
        with self.vici() as v:
            return v.sas()

    def swanctl(self, *args, fail=True, timeout=60):
        """swanctl against this gateway."""
        return call(*self.command('swanctl'), *args, '--uri', f'unix://{self.socket}', fail=fail, timeout=timeout,
                    env={**os.environ, **self.swanctl_env()})

    def command(self, program, *args):
        """How to run a program of strongSwan: as this machine has it."""
        return [program, *args]

    def swanctl_env(self):
        """Without this, swanctl lists the plugins that Debian's configuration names and does not have."""
        conf = self.lab.path('swanctl-program.conf')
        if not os.path.exists(conf):
            self.lab.write('swanctl-program.conf', 'swanctl {\n  load = pem pkcs1 pkcs8 x509 pubkey openssl random\n}\n')
        return {'STRONGSWAN_CONF': conf}

    def load(self, text):
        """swanctl --load-all of a configuration; its folder is private to this gateway."""
        path = self.lab.write(f'{self.box}-swanctl/swanctl.conf', text)
        return self.swanctl('--load-all', '--file', path)

    def log(self):
        return self.process.log()

    def initiate(self, child='net', timeout=40):
        return self.swanctl('--initiate', '--child', child, '--timeout', timeout, timeout=timeout + 10)

    def terminate(self, conn='net'):
        return self.swanctl('--terminate', '--ike', conn)

    def answers(self):
        try:
            with self.vici(2) as v:
                return v.request('version')
        except (OSError, ViciError):
            if self.process and not self.process.alive():
                raise Failed(f'{self.kind} in {self.box} ended with {self.process.popen.returncode}:\n{self.log()}') from None
            return None

    def stop(self):
        return self.process.stop()

    # The state of its SAs, as one value that changes when something is rekeyed

    def established(self, conn='net'):
        """The IKE_SAs that are up, oldest first."""
        return [sa for sa in self.sas() if sa['name'] == conn and sa['state'] == 'ESTABLISHED']

    def ike_spis(self):
        return {(sa['initiator-spi'], sa['responder-spi']) for sa in self.established()}

    def child_spis(self):
        """(in, out) SPIs of the installed CHILD_SAs."""
        return {(c['spi-in'], c['spi-out']) for sa in self.sas() for c in sa.get('child-sas', {}).values()
                if c['state'] == 'INSTALLED'}

    def children(self):
        """The installed CHILD_SAs by name."""
        return {c['name']: c for sa in self.sas() for c in sa.get('child-sas', {}).values() if c['state'] == 'INSTALLED'}

    def traps(self):
        """Names of the children whose traps stand."""
        with self.vici() as v:
            found = v.stream('list-policies', 'list-policy', {'trap': 'yes'})
        return {policy['child'] for item in found for policy in item.values()}

    def esp_spis(self):
        """The SPIs of the installed CHILD_SAs, of both directions."""
        return {spi for pair in self.child_spis() for spi in pair}

    def rekey(self, what, timeout=20):
        """Rekeys the child or the IKE_SA `net`, from this side, and waits until only the new one is up on this side."""
        spis = self.ike_spis if what == 'ike' else self.child_spis
        old = spis()
        self.swanctl('--rekey', f'--{what}', 'net')
        until(f'{self.kind} in {self.box}: {what} rekeyed (was {old})',
              lambda: len(now := spis()) == 1 and not now & old, timeout)


class Charon(Gateway):
    """strongSwan with kernel-libipsec. It can only do UDP-encapsulated ESP."""

    kind = 'strongSwan'
    plugins = ('random nonce aes gcm ctr sha1 sha2 hmac kdf chapoly pem pkcs1 pkcs8 pubkey openssl gmp curve25519 kernel-libipsec '
               'kernel-netlink socket-default vici updown')

    def start(self, text=None, log='default = 1, ike = 2, cfg = 2', keys=False, options='', load=None):
        need('swanctl', 'charon-systemd')
        levels = dict(part.strip().split(' = ') for part in log.split(','))
        if keys:
            levels |= {'ike': '4', 'chd': '4'}
        conf = self.lab.write(f'{self.box}-strongswan.conf', f"""
charon-systemd {{
  load = {load or self.plugins}
  plugins {{
    vici {{
      socket = unix://{self.socket}
    }}
  }}
  journal {{
    default = -1
  }}
  filelog {{
    stderr {{
      {'; '.join(f'{k} = {v}' for k, v in levels.items()).replace('; ', chr(10) + '      ')}
    }}
  }}
  {options}
}}
""")
        self.process = self.lab.spawn(self.box, *self.command('charon-systemd'), name='charon', private_run=True,
                                      env={'STRONGSWAN_CONF': conf})
        until(f'{self.kind} in {self.box} answers', self.answers)
        if text:
            self.load(text)
        return self


def program(name='ironswan'):
    """The ironswan binary under test: $IRONSWAN, else the release build. Other programs of ours stand beside it."""
    path = os.environ.get('IRONSWAN') or os.path.join(
        os.environ.get('CARGO_TARGET_DIR') or os.path.join(REPO, 'target'), 'release', 'ironswan')
    if name != 'ironswan':
        path = os.path.join(os.path.dirname(path), name)
    if not os.access(path, os.X_OK):
        raise Failed(f'no program at {path}: run `cargo build --release`, or build it beside $IRONSWAN')
    return path


def dropped_inbound(lab, box):
    """How many packets the guard of a box has dropped that came in clear, wherever it did, with a daemon or without."""
    # The command without a daemon counts what the nft table and the program at the ingress say.
    shown = json.loads(lab.run(box, program(), 'guard', '--json', '--vici', 'unix:///var/tmp/nobody.vici'))
    return shown['in_clear']['packets']


class IronSwan(Gateway):
    kind = 'IronSwan'

    def start(self, text=None, settings='', keys=False, env=None, wait=True, through=()):
        """`through`: a command that ends by running what follows it, such as one that gives standard error away."""
        self.config = os.path.dirname(self.lab.write(f'{self.box}-etc/swanctl.conf', text or '# empty\n'))
        if keys:
            self.keys = self.lab.path(f'{self.box}-keys')
            os.makedirs(self.keys, mode=0o700, exist_ok=True)
            settings += f'keylog = {self.keys}\n'
        if settings:
            self.lab.write(f'{self.box}-etc/ironswan.conf', settings)
        self.process = self.lab.spawn(self.box, *through, program(), 'run', '--config', self.config, '--vici',
                                      f'unix://{self.socket}', name='ironswan', private_run=True, env=env, state=self.make_state())
        if wait:
            until(f'IronSwan in {self.box} answers', self.answers)
        return self

    def make_state(self):
        """The folder that is /var/lib/ironswan for this gateway, as on a machine of its own."""
        self.state = self.lab.path(f'{self.box}-state')
        os.makedirs(self.state, mode=0o700, exist_ok=True)
        return self.state


# With INTEROP_REFERENCE=1 strongSwan stands in for IronSwan: what fails then is the test's own fault.
REFERENCE = bool(os.environ.get('INTEROP_REFERENCE'))
Ours = Charon if REFERENCE else IronSwan
