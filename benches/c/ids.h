/*
 * Ids of the running task in the PID namespace of the program that loads the object, which are what the scripts'
 * `pid()` and `tid()` are; 0 for a task outside of it. That program sets the two numbers unless it is in the initial
 * namespace. Include common.h first.
 */
#include <bpf/bpf_core_read.h>

#ifndef KERNEL_TYPES
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[];
};

struct task_struct {
	struct task_struct *group_leader;
	struct pid *thread_pid;
};
#pragma clang attribute pop
#endif

const volatile u64 own_namespace, own_level;

called u32 id_inside(int of_process)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct upid *entry;
	struct pid *pid;

	if (of_process)
		task = BPF_CORE_READ(task, group_leader);
	pid = BPF_CORE_READ(task, thread_pid);
	if (BPF_CORE_READ(pid, level) < own_level)
		return 0;
	entry = &pid->numbers[own_level];
	if (BPF_CORE_READ(entry, ns, ns.inum) != own_namespace)
		return 0;
	return BPF_CORE_READ(entry, nr);
}

inlined u32 own_pid(void)
{
	return own_namespace ? id_inside(1) : bpf_get_current_pid_tgid() >> 32;
}

inlined u32 own_tid(void)
{
	return own_namespace ? id_inside(0) : bpf_get_current_pid_tgid();
}
