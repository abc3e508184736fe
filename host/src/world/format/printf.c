/* The C library's printf as an oracle: reads cases and writes each result, followed by a zero byte.
 *
 * A case is a line: letter and width in bits, value (decimal, unsigned), format, tab, text. Only `s` uses the text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long long as_signed(unsigned long long value, int bits)
{
	switch (bits) {
	case 8:
		return (signed char)value;
	case 16:
		return (short)value;
	case 32:
		return (int)value;
	default:
		return (long long)value;
	}
}

static unsigned long long as_unsigned(unsigned long long value, int bits)
{
	return bits == 64 ? value : value & ((1ULL << bits) - 1);
}

int main(void)
{
	char line[8192];

	while (fgets(line, sizeof(line), stdin)) {
		char *format, *text, letter = line[0], *at = line + 1;
		int bits = strtol(at, &at, 10);
		unsigned long long value = strtoull(at, &at, 10);

		format = at + 1;
		text = strchr(format, '\t');
		*text++ = 0;
		text[strcspn(text, "\n")] = 0;
		switch (letter) {
		case 'd':
		case 'i':
			printf(format, as_signed(value, bits));
			break;
		case 'c':
			printf(format, (int)as_unsigned(value, 8));
			break;
		case 's':
			printf(format, text);
			break;
		case 'p':
			printf(format, (void *)value);
			break;
		default:
			printf(format, as_unsigned(value, bits));
		}
		putchar(0);
	}
	return 0;
}
