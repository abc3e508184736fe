/* What the programs with histograms share: a row for 0 and for each power of two. */
#define SLOTS 65

inlined u32 log2(u32 value)
{
	u32 bits, more;

	bits = (value > 0xffff) << 4;
	value >>= bits;
	more = (value > 0xff) << 3;
	value >>= more;
	bits |= more;
	more = (value > 0xf) << 2;
	value >>= more;
	bits |= more;
	more = (value > 0x3) << 1;
	value >>= more;
	bits |= more;
	return bits | value >> 1;
}

inlined u32 log2_slot(u64 value)
{
	u32 high = value >> 32;

	if (!value)
		return 0;
	return high ? 33 + log2(high) : 1 + log2(value);
}
