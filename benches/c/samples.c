#include "common.h"
#include "ids.h"

struct sample {
	u64 time;
	u32 pid, cpu;
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} samples SEC(".maps");
u64 lost;

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	u32 id = own_pid();
	struct sample *sample;

	if (id == 0)
		return 0;
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	__builtin_memset(sample, 0, sizeof(*sample));
	sample->time = bpf_ktime_get_ns();
	sample->pid = id;
	sample->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(sample->name, sizeof(sample->name));
	bpf_ringbuf_submit(sample, 0);
	return 0;
}
