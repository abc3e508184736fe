#include "common.h"
#include "packet.h"

MAP(BPF_MAP_TYPE_ARRAY, u32, u64, 4) classes SEC(".maps");

inlined u32 class_of(u8 service, u32 length)
{
	if (service >= 184)
		return 3;
	if (service >= 72)
		return 2;
	if (length > 1000)
		return 0;
	return 1;
}

SEC("tc")
int mark(struct __sk_buff *ctx)
{
	u8 *packet, *end;
	u64 *entry;
	u32 class;

	IN_ONE_PIECE(ctx);
	packet = DATA(ctx);
	end = DATA_END(ctx);
	class = class_of(byte_at(packet, end, 15), ctx->len);
	ctx->mark = class + 256;
	ctx->priority = class;
	entry = bpf_map_lookup_elem(&classes, &class);
	if (entry)
		__sync_fetch_and_add(entry, 1);
	return 0;
}
