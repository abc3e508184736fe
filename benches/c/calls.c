#define KERNEL_TYPES
#include "common.h"

u64 reads, bytes, failed;

SEC("tracepoint/syscalls/sys_enter_read")
int entered(struct trace_event_raw_sys_enter *ctx)
{
	__sync_fetch_and_add(&reads, 1);
	if ((u32)ctx->args[0] < 100000)
		__sync_fetch_and_add(&bytes, ctx->args[2]);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_read")
int left(struct trace_event_raw_sys_exit *ctx)
{
	if (ctx->ret < 0)
		__sync_fetch_and_add(&failed, 1);
	return 0;
}
