#include "common.h"

u64 handled;

SEC("perf_event")
int on_fault(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&handled, 1);
	return 0;
}
