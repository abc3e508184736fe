#include "common.h"

u64 turns;
u32 half, collatz, nested, early, evens, down;
u64 counted;
u32 million = 1000000, fifty = 50;
u64 seven = 27;
u64 hist[32];
MAP(BPF_MAP_TYPE_HASH, u32, u64, 512) seen SEC(".maps");

inlined u32 most(u32 count)
{
	return count > MAX_ITERATIONS ? MAX_ITERATIONS : count;
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	struct num_iter it, inner_it;
	u32 state[8] = {}, count, steps, i;
	int *item, *inner_item, result = 9;
	u64 n = seven;

	/* Starts at a 0 that is hidden from the verifier, which would otherwise verify every iteration. */
	count = bpf_iter_num_new(&it, 0, most(million));
	while ((item = bpf_iter_num_next(&it))) {
		i = *item;
		__sync_fetch_and_add(&turns, 1);
		count += 1;
		if (count == 500000)
			half = 1;
		__sync_fetch_and_add(&hist[i % 32], 1);
	}
	bpf_iter_num_destroy(&it);

	steps = bpf_iter_num_new(&it, 0, MAX_ITERATIONS);
	while ((item = bpf_iter_num_next(&it)) && n != 1) {
		if (n % 2 == 0)
			n = n / 2;
		else
			n = 3 * n + 1;
		steps += 1;
	}
	bpf_iter_num_destroy(&it);
	collatz = steps;

	bpf_iter_num_new(&it, 0, most(fifty));
	while ((item = bpf_iter_num_next(&it))) {
		u32 inner = bpf_iter_num_new(&inner_it, 0, most(fifty));

		while ((inner_item = bpf_iter_num_next(&inner_it))) {
			inner += 1;
			if (inner > 1000)
				break;
		}
		bpf_iter_num_destroy(&inner_it);
		__sync_fetch_and_add(&nested, inner);
	}
	bpf_iter_num_destroy(&it);

	bpf_iter_num_new(&it, 0, most(million));
	while ((item = bpf_iter_num_next(&it))) {
		if (*item == 17) {
			early = *item;
			break;
		}
	}
	bpf_iter_num_destroy(&it);

	bpf_iter_num_new(&it, 0, 100);
	while ((item = bpf_iter_num_next(&it))) {
		if ((u32)*item % 2 == 1)
			continue;
		__sync_fetch_and_add(&evens, 1);
	}
	bpf_iter_num_destroy(&it);

	bpf_iter_num_new(&it, 0, fifty < 10 ? 10 - fifty : 0);
	while ((item = bpf_iter_num_next(&it)))
		__sync_fetch_and_add(&down, 1);
	bpf_iter_num_destroy(&it);

	bpf_iter_num_new(&it, 0, 300);
	while ((item = bpf_iter_num_next(&it))) {
		u64 *entry;
		u32 key;

		i = *item;
		key = i;
		bump(&seen, &key, 1);
		state[i % 8] += 1;
		state[0] += 1;
		if (state[0] > 100000)
			goto out;
		entry = bpf_map_lookup_elem(&seen, &key);
		if (entry && *entry == 1)
			__sync_fetch_and_add(&counted, 1);
	}
	result = 0;
out:
	bpf_iter_num_destroy(&it);
	return result;
}
