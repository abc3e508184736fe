/* What the programs on packets share: a read beyond the end gives 0. */
#include <bpf/bpf_endian.h>

#define IPV4 0x0800
#define UDP 17

inlined u8 byte_at(const u8 *packet, const u8 *end, u32 at)
{
	return packet + at + 1 <= end ? packet[at] : 0;
}

inlined u16 half_at(const u8 *packet, const u8 *end, u32 at)
{
	return packet + at + 2 <= end ? *(const u16 *)(packet + at) : 0;
}

inlined u32 word_at(const u8 *packet, const u8 *end, u32 at)
{
	return packet + at + 4 <= end ? *(const u32 *)(packet + at) : 0;
}

/* Brings a packet of tc into one piece: what lies elsewhere would read as 0. */
#define IN_ONE_PIECE(ctx) \
	do { \
		if ((u64)(DATA_END(ctx) - DATA(ctx)) < (ctx)->len) \
			bpf_skb_pull_data(ctx, (ctx)->len); \
	} while (0)

#define DATA(ctx) ((u8 *)(long)(ctx)->data)
#define DATA_END(ctx) ((u8 *)(long)(ctx)->data_end)
