#include "common.h"

struct row {
	u32 a;
	u64 b;
};

struct table {
	u16 cells[6];
};

u32 sum;
u64 weighted;
u32 last;
u64 rows_sum;
u32 in_map, found = 99, big;
u32 values[5] = { 3, 7, 21, 35, 9 };
u32 many[100];
MAP(BPF_MAP_TYPE_HASH, u32, struct table, 4) tables SEC(".maps");

inlined struct table *table_of(u32 key)
{
	return bpf_map_lookup_elem(&tables, &key);
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	struct table made = { { 1, 2, 3, 4, 5, 3 } }, *t;
	struct row rows[3] = {};
	struct num_iter it;
	u32 one = 1, i;
	int *item;

#pragma clang loop unroll(disable)
	for (i = 0; i < 5; i++) {
		u32 v = values[i];

		__sync_fetch_and_add(&sum, v);
		__sync_fetch_and_add(&weighted, (u64)(i * v));
		last = v;
	}
	__sync_fetch_and_add(&weighted, 224);
#pragma clang loop unroll(disable)
	for (i = 0; i < 3; i++) {
		rows[i].a = i;
		rows[i].b = 20 + i;
	}
#pragma clang loop unroll(disable)
	for (i = 0; i < 3; i++)
		__sync_fetch_and_add(&rows_sum, rows[i].a + rows[i].b);
	bpf_map_update_elem(&tables, &one, &made, BPF_ANY);
	t = table_of(1);
	if (t)
#pragma clang loop unroll(disable)
		for (i = 0; i < 6; i++)
			__sync_fetch_and_add(&in_map, t->cells[i]);
	t = table_of(2);
	if (t)
#pragma clang loop unroll(disable)
		for (i = 0; i < 6; i++)
			__sync_fetch_and_add(&in_map, t->cells[i]);
#pragma clang loop unroll(disable)
	for (i = 0; i < 5; i++) {
		if (values[i] == 35) {
			found = i;
			break;
		}
	}
	bpf_iter_num_new(&it, 0, 100);
	while ((item = bpf_iter_num_next(&it))) {
		i = *item;
		if (i < 100)
			many[i] = i;
	}
	bpf_iter_num_destroy(&it);
	bpf_iter_num_new(&it, 0, 100);
	while ((item = bpf_iter_num_next(&it))) {
		i = *item;
		__sync_fetch_and_add(&big, i < 100 ? many[i] : 0);
	}
	bpf_iter_num_destroy(&it);
	return 0;
}
