// The kernel half of tests/guests/errors: programs that do little, and a map for each kind of failure. Built with
// -DPINNED it has a map and a variable that outlive the plugin, with -DPROGRAMS a program of each kind that is
// attached, and with -DREFUSED programs that a kernel refuses.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, number) int(*name)[number]
#define __type(name, ty) ty *name
#define __array(name, ty) typeof(ty) *name[]

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
#define ARRAY_OF_MAPS 12
#define HASH_OF_MAPS 13
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

/* Maps of maps, whose inner maps the host creates. */
struct inner {
	__uint(type, HASH);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, 2);
};

struct {
	__uint(type, HASH_OF_MAPS);
	__type(key, u32);
	__uint(max_entries, 4096);
	__array(values, struct inner);
} groups SEC(".maps");

struct {
	__uint(type, ARRAY_OF_MAPS);
	__type(key, u32);
	__uint(max_entries, 2);
	__array(values, struct inner);
} slots SEC(".maps");

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
	__uint(max_entries, 65536);
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

// Longer than what the tests let the host keep.
char record[16000];

static long (*const bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;

// A test run of it puts one record into the ring.
SEC("raw_tracepoint") int emit(void *context)
{
	return bpf_ringbuf_output(&records, record, sizeof(record), 0);
}

#ifdef PROGRAMS
// Without a target, or with the one that the test makes.
SEC("tracepoint") int any_event(void *context)
{
	return 1;
}

SEC("tracepoint/sched/sched_switch") int own_event(void *context)
{
	return 1;
}

SEC("tracepoint/sched/no_such_event") int lost_event(void *context)
{
	return 1;
}

SEC("raw_tracepoint/no_such_event") int lost_raw(void *context)
{
	return 0;
}

SEC("kprobe") int any_function(void *context)
{
	return 0;
}

SEC("kprobe/schedule") int own_function(void *context)
{
	return 0;
}

SEC("uprobe") int in_any_file(void *context)
{
	return 0;
}

SEC("uprobe//mnt/file:f") int in_own_file(void *context)
{
	return 0;
}

SEC("uprobe//mnt/file:f+1") int behind_start(void *context)
{
	return 0;
}

SEC("uprobe//mnt/file:f+1048577") int far_behind_start(void *context)
{
	return 0;
}

SEC("uprobe//mnt/file:f@absent.c") int of_other_source(void *context)
{
	return 0;
}

SEC("uretprobe") int any_return(void *context)
{
	return 0;
}

SEC("uretprobe//mnt/file:f") int own_return(void *context)
{
	return 0;
}

SEC("tp_btf/sched_switch") int typed(void *context)
{
	return 0;
}

SEC("xdp") int on_device(void *context)
{
	return 2; // XDP_PASS
}

static long (*const bpf_skb_change_tail)(void *packet, u32 len, u64 flags) = (void *)38;

SEC("tcx/ingress") int incoming(void *packet)
{
	return 0;
}

SEC("tc") int lengthens(void *packet)
{
	bpf_skb_change_tail(packet, 8192, 0);
	return 0;
}

SEC("cgroup_skb/egress") int in_group(void *packet)
{
	return 1;
}

SEC("socket") int filters(void *packet)
{
	return 0;
}

struct bpf_timer {
	u64 words[2];
} __attribute__((aligned(8)));

struct timed {
	struct bpf_timer timer;
};

MAP(__timer_periodic, ARRAY, u32, struct timed, 1);

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_timer_init)(struct bpf_timer *timer, void *map, u64 flags) = (void *)169;

SEC("socket") int periodic(void *packet)
{
	u32 key = 0;
	struct timed *value = bpf_map_lookup_elem(&__timer_periodic, &key);
	return value ? bpf_timer_init(&value->timer, &__timer_periodic, 1) : -1; // CLOCK_MONOTONIC
}

struct sock;

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
};

SEC("struct_ops") u32 ssthresh(u64 *arguments)
{
	return 2;
}

SEC("struct_ops") void cong_avoid(u64 *arguments)
{
}

SEC("struct_ops") u32 undo_cwnd(u64 *arguments)
{
	return 2;
}

#define CONGESTION_CONTROL(variable, text)                                 \
	SEC(".struct_ops.link") struct tcp_congestion_ops variable = {     \
		.ssthresh = (void *)ssthresh,                              \
		.cong_avoid = (void *)cong_avoid,                          \
		.undo_cwnd = (void *)undo_cwnd,                            \
		.name = text,                                              \
	}

CONGESTION_CONTROL(busy_ops, "kst_doc_busy");
CONGESTION_CONTROL(costly_ops, "kst_doc_costly");
CONGESTION_CONTROL(full_ops, "kst_doc_full");
CONGESTION_CONTROL(plain_ops, "kst_doc_plain");
// A member that the kernel wants is missing.
SEC(".struct_ops.link") struct tcp_congestion_ops broken_ops = {
	.ssthresh = (void *)ssthresh,
	.name = "kst_doc_broken",
};
#endif

#ifdef REFUSED
SEC("raw_tracepoint") int reads_anywhere(u64 *context)
{
	return *(volatile u32 *)context[0];
}

SEC("tp_btf/no_such_event") int nowhere(void *context)
{
	return 0;
}

#endif

SEC("license") char _license[] = "GPL";
