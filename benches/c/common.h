/* What the programs of this folder share; with KERNEL_TYPES, the kernel's own types. */
#ifdef KERNEL_TYPES
#include "vmlinux.h"
#else
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/bpf_perf_event.h>
#endif
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 i8;
typedef __s16 i16;
typedef __s32 i32;
typedef __s64 i64;

char LICENSE[] SEC("license") = "GPL";

#define MAP(kind, key_type, value_type, entries) \
	struct { \
		__uint(type, kind); \
		__type(key, key_type); \
		__type(value, value_type); \
		__uint(max_entries, entries); \
	}

#ifndef KERNEL_TYPES
struct num_iter {
	u64 opaque;
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct num_iter *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct num_iter *it) __ksym;
extern void bpf_iter_num_destroy(struct num_iter *it) __ksym;
#endif

#define MAX_ITERATIONS (1 << 23)
#define inlined static __attribute__((always_inline)) inline
#define called static __attribute__((noinline))

/* m[k] += v, as several CPUs may do at once, or an update that the kernel refused. */
inlined void bump_or_count(void *map, const void *key, u64 by, u64 *refused)
{
	u64 *entry = bpf_map_lookup_elem(map, key);

	if (entry) {
		__sync_fetch_and_add(entry, by);
		return;
	}
	if (bpf_map_update_elem(map, key, &by, BPF_NOEXIST) == 0)
		return;
	entry = bpf_map_lookup_elem(map, key);
	if (entry)
		__sync_fetch_and_add(entry, by);
	else if (refused)
		__sync_fetch_and_add(refused, 1);
}

/* m[k] = v, or an update that the kernel refused. */
inlined void set_or_count(void *map, const void *key, const void *value, u64 *refused)
{
	if (bpf_map_update_elem(map, key, value, BPF_ANY) < 0)
		__sync_fetch_and_add(refused, 1);
}

/* The number of a stack; there is none of user space for a task of the kernel. */
inlined i64 stack_or_count(void *ctx, void *map, u64 flags, u64 *refused)
{
	i64 id = bpf_get_stackid(ctx, map, flags);

	if (id < 0 && id != -14)
		__sync_fetch_and_add(refused, 1);
	return id;
}

/* The same without a count. */
inlined void bump(void *map, const void *key, u64 by)
{
	bump_or_count(map, key, by, 0);
}

/* Whether two texts are equal, 8 bytes at a time. */
inlined int same_text(const void *a, const void *b, u32 bytes)
{
	const u64 *x = a, *y = b;
	u32 i;

	for (i = 0; i < bytes / 8; i++)
		if (x[i] != y[i])
			return 0;
	return 1;
}
