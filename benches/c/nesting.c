#include "common.h"

struct text {
	char bytes[8];
};

struct row {
	u32 cells[10];
	struct text name;
	u64 total;
};

u32 primes, sorted, words;
u64 sums;
u32 letters;
MAP(BPF_MAP_TYPE_HASH, u32, struct row, 16) rows SEC(".maps");
u32 limit = 100;
u32 data[10] = { 9, 3, 7, 1, 8, 2, 6, 0, 5, 4 };
MAP(BPF_MAP_TYPE_HASH, struct text, u32, 8) known SEC(".maps");

inlined u32 most(u32 count)
{
	return count > MAX_ITERATIONS ? MAX_ITERATIONS : count;
}

inlined int is_prime(u32 n)
{
	struct num_iter it;
	int *item, result = 1;

	if (n < 2)
		return 0;
	bpf_iter_num_new(&it, 0, most(n > 2 ? n - 2 : 0));
	while ((item = bpf_iter_num_next(&it))) {
		if (n % (*item + 2) == 0) {
			result = 0;
			break;
		}
	}
	bpf_iter_num_destroy(&it);
	return result;
}

called u32 length(const struct text *s)
{
	struct num_iter it;
	u32 n = 0;

	bpf_iter_num_new(&it, 0, MAX_ITERATIONS);
	while (bpf_iter_num_next(&it)) {
		if (n >= 8 || s->bytes[n] == 0)
			break;
		n += 1;
	}
	bpf_iter_num_destroy(&it);
	return n;
}

inlined struct row *row_of(u32 key)
{
	return bpf_map_lookup_elem(&rows, &key);
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	struct text name = { "row" }, other = {};
	struct num_iter it, inner;
	struct row made = {}, *r;
	u32 a[10], one = 1, turn_count, i, j;
	int *item;

	bpf_iter_num_new(&it, 0, most(limit));
	while ((item = bpf_iter_num_next(&it)))
		if (is_prime(*item))
			__sync_fetch_and_add(&primes, 1);
	bpf_iter_num_destroy(&it);

	__builtin_memcpy(a, data, sizeof(a));
	bpf_iter_num_new(&it, 0, 10);
	while ((item = bpf_iter_num_next(&it))) {
		bpf_iter_num_new(&inner, 0, 9);
		while ((item = bpf_iter_num_next(&inner))) {
			j = *item;
			if (j < 9 && a[j] > a[j + 1]) {
				u32 t = a[j];

				a[j] = a[j + 1];
				a[j + 1] = t;
			}
		}
		bpf_iter_num_destroy(&inner);
	}
	bpf_iter_num_destroy(&it);
	sorted = 1;
	bpf_iter_num_new(&it, 0, 10);
	while ((item = bpf_iter_num_next(&it))) {
		i = *item;
		if (i < 10 && a[i] != i)
			sorted = 0;
	}
	bpf_iter_num_destroy(&it);

	__builtin_memcpy(made.cells, data, sizeof(data));
	made.name = name;
	bpf_map_update_elem(&rows, &one, &made, BPF_ANY);
	bpf_iter_num_new(&it, 0, 10);
	while ((item = bpf_iter_num_next(&it))) {
		u32 cell = 0;

		i = *item;
		r = row_of(1);
		if (r && i < 10)
			cell = r->cells[i];
		r = row_of(1);
		if (r)
			__sync_fetch_and_add(&r->total, cell);
	}
	bpf_iter_num_destroy(&it);
	r = row_of(1);
	sums = r ? r->total : 0;

	bpf_map_update_elem(&known, &name, &one, BPF_ANY);
	turn_count = 0;
	bpf_iter_num_new(&it, 0, MAX_ITERATIONS);
	while (bpf_iter_num_next(&it) && turn_count < 3) {
		r = row_of(1);
		if (r && *(u64 *)&r->name == *(u64 *)&name) {
			struct text key = r->name;
			u32 *entry = bpf_map_lookup_elem(&known, &key);

			if (entry && *entry)
				__sync_fetch_and_add(&words, 1);
		}
		turn_count += 1;
	}
	bpf_iter_num_destroy(&it);
	r = row_of(1);
	if (r)
		other = r->name;
	letters = length(&name) + length(&other);
	return 0;
}
