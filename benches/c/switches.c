#define KERNEL_TYPES
#include "common.h"
#include <bpf/bpf_tracing.h>

u64 switches, named;

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (prev->pid == next->pid)
		return 0;
	__sync_fetch_and_add(&switches, 1);
	if (prev->comm[0] && prev->group_leader->pid == prev->tgid)
		__sync_fetch_and_add(&named, 1);
	return 0;
}
