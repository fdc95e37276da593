"""System calls that the sandbox of a daemon has refused: the kernel's log names each by number."""
import os
import re


class Refusals:
    """The kernel's log from now on."""

    def __init__(self):
        self.fd = None
        try:
            self.fd = os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.fd, 0, os.SEEK_END)
        except OSError as why:
            print(f'/dev/kmsg cannot be read ({why}): nobody sees which system calls are refused')

    def of(self, program):
        """How often each number was refused to this program since the last look. A line that the kernel has overwritten is not seen."""
        found = {}
        while self.fd is not None:
            try:
                line = os.read(self.fd, 8192).decode(errors='replace')
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue
            match = re.search(r'type=1326 .* exe="([^"]*)" .* syscall=(\d+) ', line)
            if match and match[1] == os.path.realpath(program):
                found[int(match[2])] = found.get(int(match[2]), 0) + 1
        return found
