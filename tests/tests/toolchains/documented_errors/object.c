// The kernel half of tests/guests/errors: programs that do nothing, and a map for each kind of failure. Built with
// -DPINNED it has a map and a variable that outlive the plugin.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, number) int(*name)[number]
#define __type(name, ty) ty *name

struct bpf_spin_lock {
	u32 val;
};

struct locked {
	struct bpf_spin_lock lock;
	u32 other;
	u64 number;
};

#define MAP(name, kind, key_type, value_type, number) \
	struct {                                      \
		__uint(type, kind);                   \
		__uint(max_entries, number);          \
		__type(key, key_type);                \
		__type(value, value_type);            \
	} name SEC(".maps")

#define HASH 1
#define ARRAY 2
#define PERF_EVENT_ARRAY 4
#define PERCPU_HASH 5
#define PERCPU_ARRAY 6
#define QUEUE 22
#define RINGBUF 27
#define BLOOM_FILTER 30

// Two entries each, as the guest knows.
MAP(bare, HASH, u32, u64, 2);
MAP(small, HASH, u32, struct locked, 2);
MAP(sums, PERCPU_HASH, u32, u64, 2);
MAP(numbers, ARRAY, u32, struct locked, 2);
MAP(cells, PERCPU_ARRAY, u32, u64, 2);

struct large {
	char bytes[1 << 18];
};

struct wide {
	char bytes[32000];
};

MAP(large, ARRAY, u32, struct large, 1);
MAP(wide_cells, PERCPU_ARRAY, u32, struct wide, 1);

// The host reads a batch of it at a time.
struct {
	__uint(type, HASH);
	__uint(max_entries, 100000);
	__uint(map_flags, 1); // BPF_F_NO_PREALLOC
	__type(key, u32);
	__type(value, u64);
} crowd SEC(".maps");

struct {
	__uint(type, ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, 1 << 10); // BPF_F_MMAPABLE
	__type(key, u32);
	__type(value, u64);
} plain SEC(".maps");

MAP(events, PERF_EVENT_ARRAY, u32, u32, 1024);
MAP(one_event, PERF_EVENT_ARRAY, u32, u32, 1);
// More than the host lists one by one.
MAP(many_events, PERF_EVENT_ARRAY, u32, u32, (1 << 20) + 1);

struct {
	__uint(type, QUEUE);
	__uint(max_entries, 4);
	__type(value, u32);
} line SEC(".maps");

struct {
	__uint(type, BLOOM_FILTER);
	__uint(max_entries, 64);
	__type(value, u32);
} seen SEC(".maps");

struct {
	__uint(type, BLOOM_FILTER);
	__uint(max_entries, 4);
	__type(value, struct large);
} large_seen SEC(".maps");

struct {
	__uint(type, RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

struct {
	__uint(type, HASH);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__uint(value_size, 8);
} untyped SEC(".maps");

u64 counted = 1;
char text[100] = { 1 };
const volatile u32 fixed = 7;

#ifdef PINNED
struct {
	__uint(type, HASH);
	__uint(max_entries, 2);
	__uint(pinning, 1); // LIBBPF_PIN_BY_NAME
	__type(key, u32);
	__type(value, u64);
} kept SEC(".maps");

u64 kept_number SEC(".data.pinned") = 1;
#endif

SEC("perf_event") int tick(void *context)
{
	counted += fixed;
	return 0;
}

SEC("raw_tracepoint/sched_switch") int switched(void *context)
{
	return 0;
}

SEC("license") char _license[] = "GPL";
