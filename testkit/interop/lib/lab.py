"""What every interop test stands on: namespaces with names of their own, processes, checks, and an end that cleans up.

    with Lab('strongswan') as lab:
        lab.line()                      # a 10.1.0.2 -- g1 -- 192.0.2.0/24 -- g2 -- b 10.2.0.2
        lab.run('a', 'ping', ...)       # waits, raises when it fails
        server = lab.spawn('b', ...)    # goes on; killed at the end

Everything made here carries this process's id in its name, so that two tests (or a test and a demo) do not meet, and
what a killed test left behind is recognised and removed by the next one.
"""
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from vici import ViciError

# The folder of the helper programs, which tests start in a box.
HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


class Failed(Exception):
    """A check did not hold, or the test could not be carried out."""


def say(text):
    print(text, flush=True)


def need(*programs):
    """Fails (never skips) when the machine lacks what the test needs."""
    if os.geteuid() != 0:
        raise Failed('needs root: it makes network namespaces and TUN devices')
    if not os.path.exists('/dev/net/tun'):
        raise Failed('needs /dev/net/tun')
    absent = [p for p in programs if not shutil.which(p, path=os.environ['PATH'] + ':/usr/sbin:/sbin')]
    if absent:
        raise Failed(f"not installed: {' '.join(absent)}; run scripts/setup test")


def check(condition, text):
    """Says what was seen, and stops the test when it is not what must be."""
    say(f"  {'ok  ' if condition else 'FAIL'} {text}")
    if not condition:
        raise Failed(text)


def until(what, condition, timeout=10, interval=0.05):
    """Waits for `condition()` to be true and returns its value."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f'not within {timeout} s: {what}')
        time.sleep(interval)


class Process:
    """A program in a box, its output in a file."""

    def __init__(self, popen, log_path, argv):
        self.popen, self.log_path, self.argv = popen, log_path, argv

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        with open(self.log_path, errors='replace') as f:
            return f.read()

    def alive(self):
        return self.popen.poll() is None

    def send(self, number):
        if self.alive():
            self.popen.send_signal(number)

    def stop(self, number=signal.SIGTERM, timeout=10):
        """Asks it to end, then makes it; its exit status."""
        self.send(number)
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait()


class Lab:
    def __init__(self, name):
        self.name = name
        self.tag = f'it{os.getpid()}'
        self.boxes, self.processes, self.count = [], [], 0

    def __enter__(self):
        remove_leftovers()
        self.dir = tempfile.mkdtemp(prefix=f'{self.tag}-{self.name}-', dir='/var/tmp')
        os.chmod(self.dir, 0o700)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(1))
        atexit.register(self.close)
        return self

    def __exit__(self, kind, *_):
        if kind is not None and os.environ.get('KEEP'):
            say(f'KEEP is set: logs stay in {self.dir}')
        self.close(keep_files=kind is not None and bool(os.environ.get('KEEP')))

    def close(self, keep_files=False):
        for process in reversed(self.processes):
            if process.alive():
                process.popen.terminate()
        end = time.monotonic() + 3
        while any(p.alive() for p in self.processes) and time.monotonic() < end:
            time.sleep(0.02)
        for box in self.boxes:
            remove_namespace(self.ns(box))
        for process in self.processes:
            if process.alive():
                process.popen.kill()
            process.popen.wait()
        self.processes, self.boxes = [], []
        if not keep_files:
            shutil.rmtree(self.dir, ignore_errors=True)
        atexit.unregister(self.close)

    def ns(self, box):
        return f'{self.tag}-{box}'

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text, mode=0o600):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    # Boxes and wires

    def box(self, *names):
        for name in names:
            call('ip', 'netns', 'add', self.ns(name))
            self.boxes.append(name)
            self.ip(name, 'link', 'set', 'lo', 'up')
            self.run(name, 'sysctl', '-qw', 'net.ipv6.conf.all.accept_dad=0', 'net.ipv6.conf.default.accept_dad=0',
                     'net.ipv4.conf.all.rp_filter=0', 'net.ipv4.conf.default.rp_filter=0')

    def forward(self, *names):
        for name in names:
            self.run(name, 'sysctl', '-qw', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1')

    def wire(self, left, left_dev, left_addrs, right, right_dev, right_addrs):
        call('ip', 'link', 'add', left_dev, 'netns', self.ns(left), 'type', 'veth',
             'peer', 'name', right_dev, 'netns', self.ns(right))
        for box, dev, addrs in ((left, left_dev, left_addrs), (right, right_dev, right_addrs)):
            for addr in addrs:
                self.ip(box, 'addr', 'add', addr, 'dev', dev, *(['nodad'] if ':' in addr else []))
            self.ip(box, 'link', 'set', dev, 'up')

    def line(self):
        """Four boxes in a line, both IP versions inside and outside."""
        self.box('a', 'g1', 'g2', 'b')
        self.forward('g1', 'g2')
        self.wire('a', 'eth0', ['10.1.0.2/24', 'fd00:1::2/64'], 'g1', 'lan', ['10.1.0.1/24', 'fd00:1::1/64'])
        self.wire('g1', 'wan', ['192.0.2.1/24', '2001:db8::1/64'], 'g2', 'wan', ['192.0.2.2/24', '2001:db8::2/64'])
        self.wire('g2', 'lan', ['10.2.0.1/24', 'fd00:2::1/64'], 'b', 'eth0', ['10.2.0.2/24', 'fd00:2::2/64'])
        for box, net in (('a', '1'), ('b', '2')):
            self.ip(box, 'route', 'add', 'default', 'via', f'10.{net}.0.1')
            self.ip(box, '-6', 'route', 'add', 'default', 'via', f'fd00:{net}::1')

    # Programs

    def ip(self, box, *args):
        return call('ip', '-n', self.ns(box), *args)

    def argv(self, box, args, private_run=False, state=None):
        """`state`: a folder that is /var/lib/ironswan for the program, in a /var/lib with nothing else."""
        inner = list(map(str, args))
        if private_run:
            # `ip netns exec` has a mount namespace of its own: nothing outside sees this /run.
            inner = ['sh', '-c', 'mount -t tmpfs tmpfs /run && exec "$@"', 'sh', *inner]
        if state:
            own = 'mount -t tmpfs tmpfs /var/lib && mkdir /var/lib/ironswan && mount --bind "$0" /var/lib/ironswan && exec "$@"'
            inner = ['sh', '-c', own, state, *inner]
        return ['ip', 'netns', 'exec', self.ns(box), *inner]

    def run(self, box, *args, timeout=60, fail=True, **kw):
        """Runs a program in a box to its end; its output."""
        return call(*self.argv(box, args), timeout=timeout, fail=fail, **kw)

    def spawn(self, box, *args, name=None, private_run=False, stdin=None, env=None, stdout=None, user=None, state=None):
        self.count += 1
        log = self.path(f'{self.count:02}-{box}-{name or os.path.basename(str(args[0]))}.log')
        with open(log, 'w') as out:
            popen = subprocess.Popen(self.argv(box, args, private_run, state), stdout=stdout or out, stderr=out if stdout
                                     else subprocess.STDOUT, stdin=stdin or subprocess.DEVNULL, text=True,
                                     env={**os.environ, **(env or {})}, user=user, start_new_session=True)
        process = Process(popen, log, args)
        self.processes.append(process)
        return process

    def show_logs(self, lines=25):
        """The end of every program's log, for the reader of a failure."""
        for process in self.processes:
            tail = process.log().splitlines()[-lines:]
            state = 'running' if process.alive() else f'ended with {process.popen.returncode}'
            if tail:
                say(f"--- {os.path.basename(process.log_path)} ({state}), last lines:")
                say('\n'.join(tail))


def call(*args, timeout=60, fail=True, **kw):
    args = list(map(str, args))
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                          timeout=timeout, **kw)
    if fail and done.returncode != 0:
        raise Failed(f"{' '.join(args)}: exit status {done.returncode}\n{done.stdout.strip()}")
    return done.stdout if fail else done


def remove_namespace(ns):
    """Ends what runs in a namespace and removes it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = subprocess.run(['ip', 'netns', 'pids', ns], capture_output=True, text=True).stdout.split()
        if not pids:
            break
        for pid in pids:
            try:
                os.kill(int(pid), number)
            except ProcessLookupError:
                pass
        time.sleep(0.3)
    subprocess.run(['ip', 'netns', 'del', ns], capture_output=True)


def remove_leftovers():
    """Namespaces and folders of tests whose process is gone."""
    names = subprocess.run(['ip', 'netns', 'list'], capture_output=True, text=True).stdout.split()
    for ns in names:
        owner = re.fullmatch(r'it(\d+)-\w+', ns)
        if owner and not os.path.exists(f'/proc/{owner[1]}'):
            remove_namespace(ns)
    for entry in os.listdir('/var/tmp'):
        owner = re.match(r'it(\d+)-', entry)
        if owner and not os.path.exists(f'/proc/{owner[1]}') and not os.environ.get('KEEP'):
            shutil.rmtree(os.path.join('/var/tmp', entry), ignore_errors=True)


def take_seed(default):
    """`--seed=N` of the command line; what is random in a test comes from it, so that a failure can be repeated."""
    given = [a.partition('=')[2] for a in sys.argv[1:] if a.startswith('--seed=')]
    global SEED
    SEED = int(given[-1]) if given else default
    return SEED


SEED = None


def halves(tests, file):
    """For tests that wait more than they work: when all of a file are to run, two halves do side by side, each in labs of its own."""
    if any(not a.startswith('-') for a in sys.argv[1:]) or {'--list', '--help'} & set(sys.argv):
        return
    names = list(tests)
    runs = [subprocess.Popen([sys.executable, file, *sys.argv[1:], *half], stdout=subprocess.PIPE, text=True)
            for half in (names[::2], names[1::2])]
    say(''.join([run.communicate()[0] for run in runs]).rstrip())
    sys.exit(max(run.returncode for run in runs))


def main(tests, lab_name):
    """The main program of a test file: runs its tests in order, all or those named, and ends with 1 if one failed."""
    names = [a for a in sys.argv[1:] if not a.startswith('-')]
    full = '--full' in sys.argv
    unknown = [n for n in names if n not in tests]
    if unknown or '--help' in sys.argv or any(
            a.startswith('-') and a not in ('--full', '--list') and not a.startswith('--seed=') for a in sys.argv[1:]):
        say(f'usage: testkit/interop/run [--full] [--seed=N] {lab_name}[.TEST]\ntests: ' + ' '.join(tests))
        sys.exit(2 if unknown else 0)
    if '--list' in sys.argv:
        say('\n'.join(f'{lab_name}.{name}' for name in tests))
        return
    # A caller's nice value or idle class would be inherited by the gateways, and shows as loss and delay on a busy machine.
    if os.geteuid() == 0:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    failed, repeat = [], '' if SEED is None else f' (seed {SEED}: repeat with --seed={SEED})'
    for name in names or tests:
        started = time.monotonic()
        say(f'{lab_name} {name}')
        try:
            with Lab(lab_name) as lab:
                try:
                    tests[name](lab, full)
                except BaseException:
                    lab.show_logs()
                    raise
        except (Failed, ViciError, OSError, subprocess.TimeoutExpired) as why:
            failed.append(name)
            say(f'{lab_name} {name}: FAILED: {why}{repeat}')
        else:
            say(f'{lab_name} {name}: passed in {time.monotonic() - started:.1f} s')
    if failed:
        say(f"{lab_name}: {len(failed)} failed: {' '.join(failed)}")
        sys.exit(1)
