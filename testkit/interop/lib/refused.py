"""System calls that the sandbox of a daemon has refused: the kernel's log names each by number."""
import os
import re
import threading

# Pause in seconds of the kernel between a few lines of its audit and the next ones. nft writes such lines, too, and with a pause the
# kernel would leave out refusals among them.
PAUSE = '/proc/sys/kernel/printk_ratelimit'


class Refusals:
    """The kernel's log while this context lasts."""

    def __init__(self, program):
        """program: the path of the program whose refused calls count."""
        self.program = os.path.realpath(program)
        self.found, self.lost = {}, 0
        self.fd = self.before = None

    def __enter__(self):
        try:
            self.fd = os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.fd, 0, os.SEEK_END)
            with open(PAUSE) as f:
                before = f.read()
            # Without a pause another run is there already, which puts it back.
            if int(before) != 0:
                with open(PAUSE, 'w') as f:
                    f.write('0')
                self.before = before
        except OSError as why:
            print(f'refused system calls may not be seen: {why}')
        self.ends = threading.Event()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.reader.join()
        if self.fd is not None:
            os.close(self.fd)
        if self.before is not None:
            with open(PAUSE, 'w') as f:
                f.write(self.before)

    def _read(self):
        """Reads the log as it grows, and once more at the end."""
        while self.fd is not None:
            last = self.ends.wait(0.2)
            while self._line():
                pass
            if last:
                return

    def _line(self):
        """Counts one line; False when there is no further one."""
        try:
            line = os.read(self.fd, 8192).decode(errors='replace')
        except BlockingIOError:
            return False
        except BrokenPipeError:
            # The kernel has overwritten lines that nobody has read.
            self.lost += 1
            return True
        match = re.search(r'type=1326 .* exe="([^"]*)" .* syscall=(\d+) ', line)
        if match and match[1] == self.program:
            self.found[int(match[2])] = self.found.get(int(match[2]), 0) + 1
        return True

    def __str__(self):
        """How often each number was refused."""
        numbers = ', '.join(f'{number}: {count} times' for number, count in sorted(self.found.items())) or 'none'
        return numbers + ('; lines of the kernel were lost' if self.lost else '')
