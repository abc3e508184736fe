#include "common.h"
#include "ids.h"

struct name {
	char bytes[16];
};

u64 last, where, missing = 9, started;
MAP(BPF_MAP_TYPE_HASH, struct name, u64, 64) names SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, u32, u64, 64) by_pid SEC(".maps");

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	struct name name = {};
	u32 pid;

	last = ctx->sample_period;
	where = ctx->regs.rip + ctx->addr;
	bpf_get_current_comm(&name, sizeof(name));
	bump(&names, &name, 1);
	pid = own_pid();
	bump(&by_pid, &pid, ctx->sample_period + ctx->regs.rip);
	started = bpf_ktime_get_ns() + bpf_get_current_cgroup_id();
	if (bpf_get_smp_processor_id() > 3 || (u32)bpf_get_current_uid_gid() == 1000 ||
	    own_tid() != pid)
		return 1;
	return 0;
}
