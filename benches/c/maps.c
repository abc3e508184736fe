#include "common.h"

struct stat {
	u64 hits;
	u32 bytes;
	u8 kind;
};

struct name {
	char bytes[16];
};

MAP(BPF_MAP_TYPE_HASH, u32, u64, 16) counts SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, u64, struct stat, 16) stats SEC(".maps");
MAP(BPF_MAP_TYPE_ARRAY, u32, u32, 4) slots SEC(".maps");
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, u32, u64, 4) each SEC(".maps");
MAP(BPF_MAP_TYPE_PERCPU_HASH, u32, u64, 4) own SEC(".maps");
MAP(BPF_MAP_TYPE_LRU_HASH, u16, i32, 8) recent SEC(".maps");
MAP(BPF_MAP_TYPE_HASH, struct name, u32, 8) names SEC(".maps");
u64 absent = 1, found;
u32 there;
u64 copy, field, missing_field = 9;
u32 wide = 9;
u64 hundred = 100, elems;

inlined u64 *count_of(u32 key)
{
	return bpf_map_lookup_elem(&counts, &key);
}

inlined struct stat *stat_of(u64 key)
{
	return bpf_map_lookup_elem(&stats, &key);
}

inlined u32 *slot(u64 index)
{
	u32 key = index;

	return index >> 32 ? 0 : bpf_map_lookup_elem(&slots, &key);
}

inlined void add_own(u32 key, u64 by)
{
	u64 *entry = bpf_map_lookup_elem(&own, &key);

	if (entry) {
		*entry += by;
		return;
	}
	if (bpf_map_update_elem(&own, &key, &by, BPF_NOEXIST) == 0)
		return;
	entry = bpf_map_lookup_elem(&own, &key);
	if (entry)
		*entry += by;
}

inlined void add_name(struct name *key, u32 by)
{
	u32 *entry = bpf_map_lookup_elem(&names, key);

	if (entry) {
		__sync_fetch_and_add(entry, by);
		return;
	}
	if (bpf_map_update_elem(&names, key, &by, BPF_NOEXIST) == 0)
		return;
	entry = bpf_map_lookup_elem(&names, key);
	if (entry)
		__sync_fetch_and_add(entry, by);
}

inlined void set_recent(u16 key, i32 bits)
{
	i32 *entry = bpf_map_lookup_elem(&recent, &key);

	if (entry) {
		*entry |= bits;
		return;
	}
	if (bpf_map_update_elem(&recent, &key, &bits, BPF_NOEXIST) == 0)
		return;
	entry = bpf_map_lookup_elem(&recent, &key);
	if (entry)
		*entry |= bits;
}

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	struct stat made = {}, *s;
	struct name who = { "swapper" }, other = { "other" };
	u64 big = 4294967298ull, key = 7, *v;
	u32 one = 1, three = 3, *at;
	u16 third = 3;
	i32 minus = -4;

	v = count_of(1);
	absent = v ? *v : 0;
	bump(&counts, &one, 2);
	bump(&counts, &one, 3);
	v = count_of(1);
	found = v ? *v : 0;
	if (v && !count_of(2))
		there = 1;
	made.hits = 10;
	made.bytes = 1;
	made.kind = 2;
	bpf_map_update_elem(&stats, &key, &made, BPF_ANY);
	s = stat_of(7);
	if (s)
		__sync_fetch_and_add(&s->hits, 5);
	s = stat_of(8);
	if (s)
		__sync_fetch_and_add(&s->hits, 5);
	s = stat_of(7);
	if (s) {
		__sync_fetch_and_add(&s->hits, 15);
		s->kind = 3;
	}
	s = stat_of(7);
	field = s ? s->hits : 0;
	s = stat_of(8);
	missing_field = s ? s->hits : 0;
	at = slot(2);
	if (at)
		*at = 8;
	at = slot(2);
	if (at)
		__sync_fetch_and_add(at, 1);
	at = slot(hundred);
	if (at)
		*at = 3;
	at = slot(big);
	wide = at ? *at : 0;
	at = slot(2);
	elems = at ? *at : 0;
	v = bpf_map_lookup_elem(&each, &one);
	if (v)
		*v += 4;
	v = bpf_map_lookup_elem(&each, &one);
	if (v)
		*v *= 3;
	add_own(5, -1ull);
	add_own(5, 2);
	bpf_map_update_elem(&recent, &third, &minus, BPF_ANY);
	set_recent(3, 1);
	v = count_of(1);
	if (v)
		copy = *v + 2;
	bpf_map_update_elem(&names, &who, &three, BPF_ANY);
	add_name(&other, 2);
	return 0;
}
