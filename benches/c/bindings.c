#include "common.h"

struct entry {
	u64 value;
	u32 list[4];
};

MAP(BPF_MAP_TYPE_HASH, u32, struct entry, 16) entries SEC(".maps");
u64 first = 9, after, kept, private, looped;
u32 three = 3;

inlined struct entry *find(u32 key)
{
	return bpf_map_lookup_elem(&entries, &key);
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	struct entry own = {}, other = {}, *e, *x;
	struct num_iter it;
	u32 key = 1;
	int *item;
	u64 limit;

	e = find(1);
	first = e ? e->value : 0;
	if (!e) {
		own = (struct entry){ .value = 20, .list = { 1, 2, 3 } };
		own.value += 1;
		bpf_map_update_elem(&entries, &key, &own, BPF_ANY);
	}
	e = find(1);
	after = e ? e->value : 0;
	find(1);
	own = (struct entry){ .value = 50 };
	private = own.value;
	e = find(1);
	kept = e ? e->value : 0;
	x = find(9);
	if (!x)
		x = &other;
	limit = three;
	bpf_iter_num_new(&it, 0, limit > MAX_ITERATIONS ? MAX_ITERATIONS : limit);
	while ((item = bpf_iter_num_next(&it))) {
		u32 i = *item;

		__sync_fetch_and_add(&x->value, i);
		x = find(1);
		if (x) {
			u32 seen = 0;

			if (i < 4)
				__sync_fetch_and_add(&x->list[i], 1);
			if (i < 4)
				seen = x->list[i];
			__sync_fetch_and_add(&looped, seen - 1);
		} else {
			other = (struct entry){};
			x = &other;
		}
	}
	bpf_iter_num_destroy(&it);
	return 0;
}
