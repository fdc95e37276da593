/* Lets user-mode-linux 6.1 run on processors with AMX.
 *
 * UML restores a process's floating-point state with PTRACE_SETREGSET(NT_X86_XSTATE) and as many bytes as an AVX-512
 * state has (2,696). The host refuses anything but the whole area, which AMX makes 11,008 bytes: EFAULT, and the guest
 * dies with "ptrace set fp regs failed, errno = 14". So: read the whole area, lay UML's bytes over its beginning, and
 * write it back. The guest's processes never ask for AMX, so what lies behind is constant.
 *
 * Loaded with LD_PRELOAD by the script `uml`. The UML kernel is one thread, hence the static buffer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NT_X86_XSTATE 0x202

long ptrace(enum __ptrace_request request, ...)
{
	static long (*libc_ptrace)(enum __ptrace_request, ...);
	static char whole[1 << 16] __attribute__((aligned(64)));
	va_list arguments;
	va_start(arguments, request);
	long pid = va_arg(arguments, long), addr = va_arg(arguments, long);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (request == PTRACE_SETREGSET && addr == NT_X86_XSTATE) {
		struct iovec *given = data, area = { whole, sizeof whole };
		if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, addr, &area) == 0 && area.iov_len > given->iov_len) {
			memcpy(whole, given->iov_base, given->iov_len);
			return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, addr, &area);
		}
	}
	if (!libc_ptrace)
		*(void **)&libc_ptrace = dlsym(RTLD_NEXT, "ptrace");
	return libc_ptrace(request, pid, addr, data);
}
