#include "common.h"

struct fault {
	u64 number;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} faults SEC(".maps");
u64 count, __lost_faults;

SEC("perf_event")
int on_fault(struct bpf_perf_event_data *ctx)
{
	struct fault *record;

	__sync_fetch_and_add(&count, 1);
	record = bpf_ringbuf_reserve(&faults, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&__lost_faults, 1);
		return 0;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->number = count;
	bpf_get_current_comm(record->comm, sizeof(record->comm));
	bpf_ringbuf_submit(record, 0);
	return 0;
}
