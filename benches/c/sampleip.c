#include "common.h"
#include "ids.h"

MAP(BPF_MAP_TYPE_HASH, u64, u64, 65536) hits SEC(".maps");
u64 first, last;
u32 only;
u64 sampled, __lost_hits;

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	u32 pid = own_pid();
	u64 ip;

	if (pid == 0 || (only && pid != only))
		return 0;
	__sync_fetch_and_add(&sampled, 1);
	ip = ctx->regs.rip;
	if (ip >= first && ip <= last)
		bump_or_count(&hits, &ip, 1, &__lost_hits);
	return 0;
}
