/*
 * What clang writes for most of what a BPF object may have. With the headers of libbpf 1.7 in bpf/:
 *
 *   clang-19 -O2 -g -target bpf -mcpu=v3 -fdebug-prefix-map=$PWD=. -c features.bpf.c -o features.o
 *   llvm-strip -g features.o
 */
typedef unsigned char u8;
typedef unsigned short __u16;
typedef unsigned int u32;
typedef unsigned int __u32;
typedef unsigned long long u64;
typedef unsigned long long __u64;
typedef long long __s64;
typedef int __s32;
typedef __u32 __be32, __wsum;
typedef __u16 __be16;
typedef _Bool bool;
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

enum {
	HASH = 1, ARRAY = 2, PROG_ARRAY = 3, PERF_EVENT_ARRAY = 4, LPM_TRIE = 11, ARRAY_OF_MAPS = 12, HASH_OF_MAPS = 13,
	STACK = 23, RINGBUF = 27, TASK_STORAGE = 29, BLOOM_FILTER = 30, NO_PREALLOC = 1,
};

/* Of the kernel's types only what is used. */
#define KERNEL __attribute__((preserve_access_index))
struct task_struct {
	int tgid;
	char comm[16];
	unsigned in_execve : 1;
	struct task_struct *parent;
} KERNEL;
struct task_struct___old { int state; } KERNEL;
struct bpf_ringbuf { int wait; };
struct rq { unsigned nr_running; } KERNEL;
enum bpf_func_id___x { BPF_FUNC_ringbuf_output___x = 0xdead };
enum wide { WIDE = 0x123456789aULL, NARROW = 1 };
struct __sk_buff { u32 len; };
struct local { int n; enum wide wide; struct local *next; union { u32 one; u64 two; }; };

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct inner {
	__uint(type, HASH);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, u64);
};
struct inner first SEC(".maps"), second SEC(".maps");
struct {
	__uint(type, ARRAY_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, u32);
	__array(values, struct inner);
} outer SEC(".maps") = { .values = { [0] = &first, [2] = &second } };
struct {
	__uint(type, HASH_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, u32);
	__array(values, struct {
		__uint(type, ARRAY);
		__uint(max_entries, 3);
		__uint(key_size, 4);
		__uint(value_size, 24);
	});
} outer_hash SEC(".maps");
int tail(void *ctx);
struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 3);
	__uint(key_size, 4);
	__array(values, int(void *));
} programs SEC(".maps") = { .values = { [1] = (void *)&tail } };
struct {
	__uint(type, BLOOM_FILTER);
	__uint(max_entries, 100);
	__type(value, u32);
	__uint(map_extra, 5);
} bloom SEC(".maps");
struct { __uint(type, RINGBUF); __uint(max_entries, 4096); __uint(pinning, 1); } ring SEC(".maps");
struct { __uint(type, PERF_EVENT_ARRAY); __uint(key_size, 4); __uint(value_size, 4); } events SEC(".maps");
struct kept { struct task_struct __kptr *task; };
struct {
	__uint(type, TASK_STORAGE);
	__uint(map_flags, NO_PREALLOC);
	__type(key, int);
	__type(value, struct kept);
} storage SEC(".maps");
struct {
	__uint(type, LPM_TRIE);
	__uint(map_flags, NO_PREALLOC);
	__uint(max_entries, 10);
	__uint(key_size, 8);
	__uint(value_size, 4);
} trie SEC(".maps");

extern int LINUX_KERNEL_VERSION __kconfig;
extern bool CONFIG_BPF_SYSCALL __kconfig;
extern enum libbpf_tristate CONFIG_IPV6 __kconfig __weak;
extern int CONFIG_HZ __kconfig;
extern unsigned char CONFIG_X86_64 __kconfig __weak;
extern char CONFIG_CC_VERSION_TEXT[60] __kconfig;
extern bool LINUX_HAS_BPF_COOKIE __kconfig;
extern const void bpf_prog_active __ksym __weak;
extern const struct rq runqueues __ksym;
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym;

int counter = 3;
static volatile int hidden_one = 4;
u64 zeros[100];
const volatile u32 constant = 7;
int custom SEC(".data.custom") = 5;
const volatile int more SEC(".rodata.more") = 9;
int other SEC(".bss.other");
__hidden int visible = 12;

static __noinline int own(int x) { return x * hidden_one + bpf_get_prandom_u32(); }
__noinline int global(int x) { return own(x) + counter; }
__hidden __noinline __weak int weak(int x) { return x + zeros[x & 63]; }
__noinline int of_context(void *ctx __arg_ctx) { return ctx ? counter : 0; }
static int each_number(u32 i, struct local *c) { c->n += i; return 0; }
static long each_entry(void *map, u32 *key, u64 *value, void *ctx) { return own(*key) == 3; }

SEC("tp_btf/sched_switch")
int BPF_PROG(watch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct local c = {};
	struct task_struct___old *old = (void *)prev;
	int pid = BPF_CORE_READ(prev, parent, tgid), state = 0;

	if (bpf_core_field_exists(old->state))
		state = BPF_CORE_READ(old, state);
	if (bpf_core_enum_value_exists(enum bpf_func_id___x, BPF_FUNC_ringbuf_output___x))
		state += bpf_core_enum_value(enum bpf_func_id___x, BPF_FUNC_ringbuf_output___x);
	state += bpf_core_type_exists(struct bpf_ringbuf) + bpf_core_type_size(struct task_struct);
	state += bpf_core_field_size(prev->comm) + BPF_CORE_READ_BITFIELD_PROBED(prev, in_execve);
	state += bpf_core_type_id_kernel(struct task_struct) + bpf_core_type_id_local(struct local);
	state += bpf_core_type_matches(struct bpf_ringbuf);
	bpf_loop(10, each_number, &c, 0);
	bpf_for_each_map_elem(&first, each_entry, &c, 0);
	bpf_printk("%d %d", pid, state);
	if (CONFIG_HZ > 100 && CONFIG_BPF_SYSCALL && LINUX_HAS_BPF_COOKIE)
		counter++;
	if (CONFIG_IPV6 == TRI_YES)
		counter += CONFIG_X86_64 + CONFIG_CC_VERSION_TEXT[3];
	if (bpf_ksym_exists(bpf_rcu_read_lock)) {
		bpf_rcu_read_lock();
		bpf_rcu_read_unlock();
	}
	struct rq *rq = bpf_per_cpu_ptr(&runqueues, 0);
	if (rq)
		state += rq->nr_running;
	return global(c.n) + weak(state) + LINUX_KERNEL_VERSION + constant + custom + more + other + visible +
	       (int)(u64)&bpf_prog_active + of_context(ctx) + c.wide;
}

SEC("xdp")
int tail(void *ctx) { return 2; }

SEC("?tc")
int not_loaded(struct __sk_buff *skb) { return own(skb->len); }

SEC("xdp")
int leads_on(void *ctx)
{
	u32 key = 3;

	bpf_map_push_elem(&bloom, &key, 0);
	bpf_tail_call(ctx, &programs, 1);
	void *map = bpf_map_lookup_elem(&outer, &key);
	return map && bpf_map_lookup_elem(map, &key) ? 1 : 2;
}

SEC("kprobe/do_unlinkat+0x4")
int at_function(void *ctx) { return 0; }
SEC("uprobe//bin/sh:main+16")
int at_binary(void *ctx) { return bpf_get_attach_cookie(ctx); }
SEC("usdt//bin/sh:libc:setjmp")
int at_probe(void *ctx) { return 0; }
SEC("lsm.s/file_open")
int at_hook(void *ctx) { return 0; }
SEC("iter/task")
int of_tasks(void *ctx) { return 0; }
