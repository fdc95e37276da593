"""The daemon as a process: its memory and the bounds of it, and starts that must fail."""
import os

from gateway import IronSwan, program, tunnel
from lab import Failed, check, need

MIB = 1024
# The memory bounds are in KiB. An idle gateway has one tunnel and one data thread; all programs and libraries are included.
IDLE = 16 * MIB
# Each data thread adds at most this under load: receive slots 4.1 MiB, send batch and read buffer 0.4 MiB, flows of both
# directions 0.6 MiB, packets that wait for an SA 4 MiB, fragments 1 MiB. (From 256 policies on flows take up to 32 MiB; with
# IPComp what a batch inflates to takes up to 16 MiB.)
OF_A_THREAD = 11 * MIB
# IKE messages that wait add this once.
IKE_QUEUE = 8 * MIB


def pair(lab, settings='', **conf):
    need('ip', 'swanctl', 'ping', 'iperf3')
    lab.line()
    g1 = IronSwan(lab, 'g1').start(tunnel('g1', **conf), settings)
    g2 = IronSwan(lab, 'g2').start(tunnel('g2', **conf), settings)
    return g1, g2


def real_pid(process):
    """`ip netns exec` and the shell replace themselves by the program, so this is the daemon's own."""
    with open(f'/proc/{process.pid}/comm') as f:
        if f.read().strip() != 'ironswan':
            raise Failed(f'process {process.pid} is not the daemon')
    return process.pid


def resident(process):
    """Resident set in KiB."""
    with open(f'/proc/{real_pid(process)}/status') as f:
        return next(int(line.split()[1]) for line in f if line.startswith('VmRSS'))


def start_fails(lab, gateway_args, *words, box='g1', before=(), **kw):
    """`ironswan run` ends at once with status 2 and one message that has all the words."""
    argv = [*before, program(), *gateway_args]
    done = lab.run(box, *argv, fail=False, timeout=20, **kw)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if 'error' in line.lower()] or lines
    check(done.returncode == 2, f'exit status 2 (is {done.returncode}): {errors[-1] if errors else "(no message)"}')
    missing = [w for w in words if w.lower() not in done.stdout.lower()]
    check(not missing, f"the message has {', '.join(words)}" + (f'; missing: {missing}\n{done.stdout}' if missing else ''))
    check('panicked' not in done.stdout, 'no panic')
    check(len(lines) <= 8, f'it is short: {len(lines)} lines')


def config(lab, text, name='etc', mode=0o600, file='swanctl.conf'):
    return os.path.dirname(lab.write(f'{name}/{file}', text, mode))


def run_args(lab, folder, socket_name='x.vici'):
    return ['run', '--config', folder, '--vici', f'unix://{lab.path(socket_name)}']


def most_resident(gateway):
    """The bound of resident memory of a gateway with few tunnels under any load."""
    tasks = f'/proc/{gateway.process.pid}/task'
    names = []
    for task in os.listdir(tasks):
        with open(f'{tasks}/{task}/comm') as f:
            names.append(f.read())
    threads = sum(name.startswith('ipsec-data') for name in names)
    check(threads > 0, f'{threads} data threads')
    return IDLE + IKE_QUEUE + threads * OF_A_THREAD
