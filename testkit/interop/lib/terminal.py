"""Root shells on boxes of a line, for tests that type the commands of a page as they stand there."""
import os
import re
import subprocess

from gateway import program
from lab import REPO, Failed

# Each shell has folders of its own in front of these of this machine.
FOLDERS = ('etc', 'usr/sbin')
# systemd needs a machine of its own. In its place this script runs what the units run, in a box: no restarts, no confinement.
SYSTEMCTL = r'''#!/bin/bash
# usage: systemctl [enable|disable] [--now] UNIT ..., systemctl reload UNIT, systemctl daemon-reload
set -e
verb=$1; shift; [ "$1" = --now ] && shift
exec_of() { sed -n "s/^$2=//p" "/etc/systemd/system/$1.service"; }
for unit in "$@"; do
  file=/etc/systemd/system/$unit.service; pid=/run/$unit.pid
  [ -f "$file" ] || { echo "Unit $unit.service does not exist." >&2; exit 1; }
  case $verb in
  enable)
    if grep -q ^Type=oneshot "$file"; then $(exec_of "$unit" ExecStart); continue; fi
    setsid $(exec_of "$unit" ExecStart) >"/run/$unit.log" 2>&1 </dev/null & echo $! >"$pid"
    # A unit of Type=notify is started when its control socket answers.
    socket=$(exec_of "$unit" '#socket'); socket=${socket:-/run/ironswan.vici}
    for i in $(seq 300); do
      [ -S "$socket" ] && break
      kill -0 "$(cat "$pid")" || { cat "/run/$unit.log" >&2; exit 1; }; sleep 0.1
    done
    after=$(exec_of "$unit" ExecStartPost); [ -z "$after" ] || $after ;;
  disable)
    [ -f "$pid" ] || continue
    number=$(cat "$pid"); kill "$number"; while kill -0 "$number" 2>/dev/null; do sleep 0.1; done; rm "$pid" ;;
  reload) kill -HUP "$(cat "/run/$unit.pid")"; sleep 1 ;;
  esac
done
'''


class Terminal:
    """A root shell on a gateway. It has an /etc, /run and /usr/sbin of its own, in front of this machine's."""

    def __init__(self, lab, box):
        self.lab, self.box, self.said = lab, box, ''
        home = lab.path(f'{box}-home')
        os.makedirs(os.path.join(home, 'target/release'))
        for name in ('ironswan', 'ironswan-pki'):
            os.symlink(program(name), os.path.join(home, 'target/release', name))
        os.symlink(os.path.join(REPO, 'packaging'), os.path.join(home, 'packaging'))
        lab.write(f'{box}-home/bin/systemctl', SYSTEMCTL, 0o755)
        mounts = ['mount -t tmpfs tmpfs /run', f'cd {home}', f'export PATH={home}/bin:/usr/sbin:$PATH', 'mkdir layers',
                  'mount -t tmpfs tmpfs layers']
        for folder in FOLDERS:
            upper, work = (f'layers/{folder.replace("/", "-")}-{kind}' for kind in ('upper', 'work'))
            mounts += [f'mkdir {upper} {work}',
                       f'mount -t overlay overlay -o lowerdir=/{folder},upperdir={upper},workdir={work} /{folder}']
        self.shell = lab.spawn(box, 'sh', '-c', ' && '.join([*mounts, 'exec bash 2>&1']), name='shell',
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def type(self, text):
        """Runs commands as they stand, and returns what they print. Every one of them has to work."""
        self.shell.popen.stdin.write(f'( set -e\n{text}\n); status=$?; echo; echo "-- done: $status"\n')
        self.shell.popen.stdin.flush()
        out = []
        while True:
            line = self.shell.popen.stdout.readline()
            if not line:
                raise Failed(f'{self.box}: the commands ended the shell:\n{text}\n{"".join(out)}{self.shell.log()}')
            if line == '-- done: 0\n':
                self.said = ''.join(out)
                return self.said
            if line.startswith('-- done: '):
                raise Failed(f'{self.box}: a command failed:\n{text}\n{"".join(out)}')
            out.append(line)

    def write(self, path, text, mode='600'):
        """Writes a file as a person would: its text between two lines."""
        mark = 'END-OF-FILE'
        self.type(f"mkdir -p {os.path.dirname(path)}\ncat >{path} <<'{mark}'\n{text}{mark}\nchmod {mode} {path}")


def blocks(text):
    """The fenced blocks of a page, in their order: words behind the fence, and the text within."""
    return [(info.split(), body) for info, body in re.findall(r'^```([^\n]*)\n(.*?)^```$', text, re.S | re.M)]
