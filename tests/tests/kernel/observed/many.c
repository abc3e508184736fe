// Has as many executable mappings, or threads, as it is told, and then computes in `hot`.

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

volatile unsigned long x;
__attribute__((noinline)) void hot(void) { for (int i = 0; i < 1000000; i++) x++; }

static int waits(void *unused)
{
	for (;;)
		syscall(SYS_pause);
}

int main(int count, char **arguments)
{
	long many = atol(arguments[2]);
	if (strcmp(arguments[1], "mappings") == 0) {
		int file = open("/proc/self/exe", O_RDONLY);
		// The same page each time, so that the kernel joins none of them.
		for (long at = 0; at < many; at++)
			if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
				return 2;
	} else {
		// Stacks of one mapping, of a page each.
		char *stacks = mmap(0, many * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
		for (long at = 1; at <= many; at++)
			if (clone(waits, stacks + at * 4096 - 64, flags, 0) < 0)
				return 3;
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		hot();
}
