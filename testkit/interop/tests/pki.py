#!/usr/bin/env python3
"""Keys, certificates, requests, revocation lists and PKCS#12 of `ironswan pki`, read by strongSwan's `pki` and by openssl, and theirs
read by ours.

usage: testkit/interop/run pki[.TEST]
"""
import json
import os
import pty
import re
import select
import subprocess
import time

from gateway import program
from lab import Failed, check, main, need

# Names of a key in the three programs: ours (and strongSwan's), and openssl's.
KEYS = {
    'rsa': ('--type rsa --size 2048', 'RSA -pkeyopt rsa_keygen_bits:2048'),
    'p256': ('--type ecdsa --size 256', 'EC -pkeyopt ec_paramgen_curve:P-256'),
    'p384': ('--type ecdsa --size 384', 'EC -pkeyopt ec_paramgen_curve:P-384'),
    'p521': ('--type ecdsa --size 521', 'EC -pkeyopt ec_paramgen_curve:P-521'),
    'ed25519': ('--type ed25519', 'ED25519'),
}
PASSPHRASE = 'correct horse battery staple'


class Shell:
    """A folder in which commands are typed: `ironswan pki` as it is, `pki` and `openssl` as Debian has them."""

    def __init__(self, lab, name):
        self.folder = lab.path(name)
        os.mkdir(self.folder)
        self.write('pass', PASSPHRASE + '\n')

    def write(self, name, text):
        with open(os.path.join(self.folder, name), 'w') as f:
            f.write(text)

    def do(self, line, status=0):
        """Runs a line as a shell does; what it says on both outputs. It has to end with this status."""
        line = re.sub(r'^ironswan ', f'{program()} ', line)
        done = subprocess.run(['bash', '-c', line], cwd=self.folder, capture_output=True, text=True, timeout=120)
        # strongSwan's program names each plugin that is not installed.
        errors = ''.join(l for l in done.stderr.splitlines(True) if not l.startswith('plugin '))
        if done.returncode != status:
            raise Failed(f'{line}\nended with {done.returncode}, not {status}:\n{done.stdout}{errors}')
        return done.stdout + errors

    def ours(self, line, status=0):
        return self.do(f'ironswan pki {line}', status)

    def made(self, folder, kind):
        """A root CA, one below it, the certificate of a gateway, and lists of both CAs, by ours. All have a key of this kind."""
        for name in ('root', 'sub', 'gw'):
            self.ours(f'gen {KEYS[kind][0]} --out {name}.key')
        self.ours('self --ca --pathlen 1 --in root.key --dn "C=CH, O=Example, CN=Root" --out root.crt')
        self.ours('issue --cacert root.crt --cakey root.key --in sub.key --ca --pathlen 0 --dn "C=CH, O=Example, CN=Sub" '
                  '--nc-permitted example --out sub.crt')
        self.ours('req --in gw.key --dn "C=CH, O=Example, CN=gw.example" --san gw.example --san 192.0.2.1 --flag serverAuth '
                  '--flag ikeIntermediate --out gw.req')
        self.ours('issue --cacert sub.crt --cakey sub.key --in gw.req --crl http://crl.example/sub.crl --ocsp http://ocsp.example/ '
                  '--out gw.crt')
        self.ours('signcrl --cacert root.crt --cakey root.key --out root.crl')
        self.ours('signcrl --cacert sub.crt --cakey sub.key --serial 1234 --reason superseded --out sub.crl')
        self.ours('pkcs12 --in gw.key --cert gw.crt --cacert sub.crt --cacert root.crt --export-passphrase-file pass --out gw.p12')
        self.ours('gen --type rsa --passphrase-file pass --out locked.key')


def missing(said, *parts):
    return [part for part in parts if part not in said]


def others_read_ours(lab, full):
    """strongSwan's pki and openssl print and verify everything that ours makes, with each kind of key."""
    need('pki', 'openssl')
    for kind in KEYS:
        shell = Shell(lab, kind)
        shell.made(lab, kind)
        do = shell.do
        said = do('pki --print --in gw.crt')
        lost = missing(said, 'CN=gw.example', 'gw.example, 192.0.2.1', 'serverAuth', 'ikeIntermediate', 'http://crl.example/sub.crl',
                       'http://ocsp.example/')
        check(not lost, f'{kind}: strongSwan shows what the certificate says {lost or ""}')
        said = do('pki --print --in sub.crt')
        lost = missing(said, 'CA', 'pathlen:   0', 'permitted nameConstraints:\n           example')
        check(not lost, f'{kind}: strongSwan shows the CA and its constraints {lost or ""}')
        said = do('pki --verify --in gw.crt --cacert sub.crt --cacert root.crt --crl sub.crl --crl root.crl')
        check('certificate trusted' in said, f'{kind}: strongSwan trusts the chain')
        said = do('pki --print --type crl --in sub.crl')
        check('12:34' in said and 'superseded' in said, f'{kind}: strongSwan shows the list')
        priv = do('pki --print --type priv --in gw.key')
        check('subjkey:' in priv, f'{kind}: strongSwan reads the private key')
        id_of = do('pki --keyid --type priv --id spk --format hex --in gw.key').strip()
        check(id_of.replace(':', '') == shell.ours('keyid --id spk --in gw.key').strip(), f'{kind}: both name the key alike')

        do('openssl verify -x509_strict -crl_check_all -CRLfile sub.crl -CRLfile root.crl -CAfile root.crt -untrusted sub.crt gw.crt')
        check(True, f'{kind}: openssl verifies chain and lists, strictly')
        said = do('openssl x509 -in gw.crt -noout -text')
        lost = missing(said, 'DNS:gw.example, IP Address:192.0.2.1', 'Digital Signature', 'TLS Web Server Authentication', '1.3.6.1.5.5.8.2.2',
                       'URI:http://crl.example/sub.crl', 'OCSP - URI:http://ocsp.example/')
        check(not lost, f'{kind}: openssl shows what the certificate says {lost or ""}')
        # strongSwan 5.9.8 refuses a CA whose constraint is a network.
        shell.ours('issue --cacert root.crt --cakey root.key --in sub.key --ca --dn CN=Net --nc-permitted 192.0.2.0/24 --out net.crt')
        shell.ours('issue --cacert net.crt --cakey sub.key --in gw.key --san 192.0.2.1 --out netgw.crt')
        do('openssl verify -x509_strict -CAfile root.crt -untrusted net.crt netgw.crt')
        check('IP:192.0.2.0/255.255.255.0' in do('openssl x509 -in net.crt -noout -text'), f'{kind}: openssl obeys a constraint to a network')
        said = do('openssl req -in gw.req -verify -noout -text')
        check(not missing(said, 'verify OK', 'DNS:gw.example'), f'{kind}: openssl verifies the request')
        said = do('openssl crl -in sub.crl -CAfile sub.crt -noout -text')
        check(not missing(said, 'verify OK', 'Superseded'), f'{kind}: openssl verifies the list')
        said = do('openssl pkcs12 -in gw.p12 -passin file:pass -nodes')
        check(said.count('BEGIN CERTIFICATE') == 3 and 'PRIVATE KEY' in said, f'{kind}: openssl opens the PKCS#12')
        said = do('openssl pkey -in locked.key -passin file:pass -noout -text')
        check('Private-Key: (3072 bit' in said, f'{kind}: openssl opens the key under its passphrase')
        do('openssl pkey -in gw.key -pubout -out a.pub && openssl pkey -pubin -in a.pub -outform der -out a.der')
        check(do('sha256sum <a.der') == shell.do('ironswan pki pub --in gw.key --outform der | sha256sum'), f'{kind}: one public key')


def ours_reads_others(lab, full):
    """What openssl and strongSwan make is shown by ours without being told what it is, and judged as they judge it."""
    need('pki', 'openssl')
    for kind, (swan, openssl) in KEYS.items():
        shell = Shell(lab, f'there-{kind}')
        do, ours = shell.do, shell.ours
        # By strongSwan.
        for name in ('ca', 'gw'):
            do(f'pki --gen {swan} --outform pem >{name}.key')
        do('pki --self --ca --in ca.key --type priv --dn "C=CH, O=strongSwan, CN=CA" --outform pem >ca.crt')
        do('pki --issue --in gw.key --type priv --cacert ca.crt --cakey ca.key --dn "C=CH, CN=gw" --san gw.example --san 192.0.2.1 '
           '--flag serverAuth --crl http://crl.example/ --outform pem >gw.crt')
        do('pki --issue --in gw.key --type priv --cacert ca.crt --cakey ca.key --dn "C=CH, CN=gone" --serial abcd --outform pem >gone.crt')
        do('pki --signcrl --cacert ca.crt --cakey ca.key --reason key-compromise --cert gone.crt --outform pem >ca.crl')
        do('pki --req --in gw.key --type priv --dn "C=CH, CN=gw" --san gw.example --outform pem >gw.req')
        said = ours('print ca.key ca.crt gw.crt ca.crl gw.req')
        lost = missing(said, 'private key, not encrypted', 'certificate of a root CA', 'C=CH, O=strongSwan, CN=CA', 'ip 192.0.2.1', 'serverAuth',
                       'http://crl.example/', 'the key was compromised', 'certificate request', 'by the key of the request')
        check(not lost, f"{kind}: strongSwan's files in our words {lost or ''}")
        said = ours('verify --in gw.crt --cacert ca.crt --crl ca.crl --identity gw.example')
        check('valid' in said and 'no certificate of the chain is revoked' in said, f"{kind}: strongSwan's chain is valid")
        said = ours('verify --in gone.crt --cacert ca.crt --crl ca.crl', 1)
        check('was revoked' in said, f"{kind}: strongSwan's list revokes")
        # Its CA goes on by ours.
        ours('signcrl --cacert ca.crt --cakey ca.key --lastcrl ca.crl --cert gw.crt --out next.crl')
        check(ours('print next.crl').count('revoked 20') == 2, f"{kind}: strongSwan's list goes on with ours")
        ours('issue --cacert ca.crt --cakey ca.key --in gw.req --out again.crt')
        check('certificate trusted' in do('pki --verify --in again.crt --cacert ca.crt'), f"{kind}: ours issues for strongSwan's CA")

        # By openssl.
        for name in ('o', 'ogw'):
            do(f'openssl genpkey -algorithm {openssl} -out {name}.key')
        do('openssl req -x509 -new -key o.key -subj "/DC=example/DC=com/OU=a/OU=b/CN=CA" -days 30 -out o.crt '
           '-addext keyUsage=critical,keyCertSign,cRLSign')
        do('openssl req -new -key ogw.key -subj "/CN=gw" -addext subjectAltName=DNS:gw.example,IP:2001:db8::1,email:a@example -out o.req')
        do('openssl x509 -req -in o.req -CA o.crt -CAkey o.key -days 10 -copy_extensions copy -out ogw.crt 2>&1')
        do('openssl pkcs12 -export -in ogw.crt -inkey ogw.key -certfile o.crt -passout file:pass -out o.p12')
        do('openssl pkcs8 -topk8 -in ogw.key -passout file:pass -out locked.key && openssl pkey -in ogw.key -pubout -out o.pub')
        said = ours('print o.crt o.req ogw.crt o.p12 locked.key o.pub --passphrase-file pass')
        lost = missing(said, 'DC=example, DC=com, OU=a, OU=b, CN=CA', 'expires in 10 days', 'dns gw.example', 'ip 2001:db8::1', 'email a@example',
                       'private key in PKCS#12', 'private key, encrypted (PKCS#8)', 'public key')
        check(not lost, f"{kind}: openssl's files in our words {lost or ''}")
        said = ours('verify --in ogw.crt --cacert o.crt --identity 2001:db8::1')
        check('valid' in said, f"{kind}: openssl's chain is valid")
        ours('issue --cacert o.crt --cakey o.key --in o.req --out again2.crt')
        do('openssl verify -x509_strict -CAfile o.crt again2.crt')
        check(True, f"{kind}: ours issues for openssl's CA, whose name has types that come twice")


# What strongSwan's pages tell people to type.
LINES = """
pki --gen --type rsa --size 2048 --outform pem >ca.key
pki --self --ca --lifetime 365 --in ca.key --type rsa --dn "C=CH, O=Example, CN=CA" --pathlen 1 --outform pem >ca.crt
pki --gen --type ecdsa --size 384 --outform der >gw.key
pki --pub --in gw.key --type priv --outform pem >gw.pub
pki --pub --in gw.key --type ecdsa | pki --issue --lifetime 30 --cacert ca.crt --cakey ca.key --dn "CN=gw" --san gw.example --san @gw.example \
  --flag serverAuth --flag ikeIntermediate --crl http://crl.example/ca.crl --digest sha384 --outform pem >gw.crt
pki --req --in gw.key --type priv --dn "CN=gw" --san gw.example --outform pem >gw.req
pki --issue --in gw.req --type pkcs10 --cacert ca.crt --cakey ca.key --serial 0f0e --not-after NEXT --outform der >gw2.crt
pki --signcrl --cacert ca.crt --cakey ca.key --lifetime 30 --reason superseded --serial 0f0e >ca.crl
pki --signcrl --cacert ca.crt --cakey ca.key --lastcrl ca.crl --reason key-compromise --cert gw.crt --outform pem >next.crl
pki --keyid --in gw.key --type priv --id spk
pki --print --in gw.crt
pki --print --type crl --in next.crl
pki --verify --in gw2.crt --cacert ca.crt
"""


def spelling(lab, full):
    """What people type for strongSwan's pki works with ours in its place, and says the same about the same files."""
    need('pki')
    lines = LINES.replace('\\\n', '').strip().splitlines()
    for tool in ('pki', f'{program()} pki'):
        shell = Shell(lab, 'spelling-' + os.path.basename(tool.split()[0]))
        # The two write dates in their own way.
        year = time.gmtime().tm_year + 1
        date = f'{year}-03-01' if 'ironswan' in tool else f'"01.03.{str(year)[2:]} 00:00:00"'
        for line in lines:
            shell.do(line.replace('pki --', f'{tool} --').replace('NEXT', date))
        text = shell.do('openssl x509 -in gw.crt -noout -text -certopt no_pubkey,no_sigdump,no_serial,no_validity')
        lost = missing(text, 'CN = gw', 'DNS:gw.example, DNS:gw.example', 'Server Authentication, 1.3.6.1.5.5.8.2.2', 'http://crl.example/ca.crl',
                       'sha384WithRSAEncryption')
        check(not lost, f'{len(lines)} lines with {os.path.basename(tool)} {lost or ""}')
        until = shell.do('openssl x509 -inform der -in gw2.crt -noout -enddate -serial')
        check(f'Mar  1 00:00:00 {year} GMT' in until and 'serial=0F0E' in until, f'{os.path.basename(tool)}: end and serial number')
        text = shell.do('openssl crl -in next.crl -noout -text')
        check(not missing(text, 'Superseded', 'Key Compromise'), f'{os.path.basename(tool)}: the second list has both entries')


def typed(shell, line, answers):
    """Runs a line on a terminal of its own and types an answer at each question; what the terminal shows, and the status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(shell.folder)
        os.execvp('bash', ['bash', '-c', re.sub(r'^ironswan ', f'{program()} ', line)])
    shown, until = '', time.monotonic() + 30
    waiting = list(answers)
    while time.monotonic() < until:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            more = os.read(terminal, 4096).decode()
        except OSError:
            break
        if not more:
            break
        shown += more
        if shown.endswith(': ') and waiting:
            os.write(terminal, waiting.pop(0).encode() + b'\n')
    os.close(terminal)
    return shown, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def passphrases(lab, full):
    """Passphrases are asked for on the terminal, twice when they are new, and never shown."""
    shell = Shell(lab, 'terminal')
    shown, status = typed(shell, 'ironswan pki gen --encrypt --out k', ['secret-1', 'secret-1'])
    check(status == 0 and 'secret-1' not in shown and 'encrypted' in shown, f'a new passphrase is asked for twice: {shown!r}')
    shown, status = typed(shell, 'ironswan pki gen --encrypt --out k2', ['secret-1', 'secret-2'])
    check(status == 2 and 'differ' in shown and not os.path.exists(os.path.join(shell.folder, 'k2')), 'two that differ make no key')
    shown, status = typed(shell, 'ironswan pki self --ca --in k --dn CN=x --out c </dev/null', ['secret-1'])
    check(status == 0 and 'secret-1' not in shown, f'a key is opened by what is typed: {shown!r}')
    shown, status = typed(shell, 'ironswan pki print k', ['wrong'])
    check(status == 2 and 'the passphrase is wrong' in shown, 'a wrong one is refused')
    said = shell.do('setsid ironswan pki print k </dev/null'.replace('ironswan', program()), 2)
    check('no terminal' in said and '--passphrase-file' in said, 'without a terminal the message names the option')
    said = shell.do('ironswan pki gen >open.key; chmod 600 open.key')
    check('others may read' in said, 'a key that a shell writes into an open file is warned about')


def documents(lab, full):
    """--json: one document, with its schema, for one file and for several."""
    shell = Shell(lab, 'json')
    shell.made(lab, 'p256')
    said = json.loads(shell.ours('print gw.crt sub.crl --json'))
    kinds = [item['kind'] for item in said['items']]
    check(said['schema'] == 'ironswan.pki.print/1' and kinds == ['certificate', 'revocation list'], f'print: {kinds}')
    said = json.loads(shell.ours('verify --in gw.crt --cert sub.crt --cacert root.crt --json'))
    check(said['valid'] and len(said['chain']) == 3, 'verify: the chain has three certificates')


main({f.__name__: f for f in (others_read_ours, ours_reads_others, spelling, passphrases, documents)}, 'pki')
