// Opens and prepares objects with libbpf, which is built with sanitizers: a fault ends the process.
//
// Standard input: records of four 32-bit numbers, little-endian (1 to prepare the object, bytes of a path, bytes of the
// object, 0), the path of a file with the types that CO-RE finds, and the object. Standard output: one byte for each
// record: 0 prepared, 1 opened, 2 not prepared, 3 not opened.
#include <bpf/libbpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int quiet(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level;
	// Formatting is a part of what reads the object.
	static char line[4096];
	vsnprintf(line, sizeof(line), format, arguments);
	return 0;
}

static char answer(int prepare, const char *path, const void *bytes, size_t size)
{
	// Maps that are pinned by name, of which libbpf would take those of others, are in a folder of this process.
	char root[64];
	snprintf(root, sizeof(root), "/sys/fs/bpf/ks-mutants-%d", getpid());
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "mutant", .btf_custom_path = path, .pin_root_path = root);
	struct bpf_object *object = bpf_object__open_mem(bytes, size, &options);
	char said = 1;
	if (!object)
		return 3;
	if (prepare) {
		said = bpf_object__prepare(object) ? 2 : 0;
		bpf_object__unpin_maps(object, NULL);
	}
	bpf_object__close(object);
	rmdir(root);
	return said;
}

int main(void)
{
	uint32_t head[4];
	libbpf_set_print(quiet);
	while (fread(head, sizeof(head), 1, stdin) == 1) {
		char *path = calloc(head[1] + 1, 1);
		// Exactly as large as the object, so that one byte behind it is a fault.
		char *bytes = malloc(head[2]);
		if (!path || !bytes || fread(path, 1, head[1], stdin) != head[1] || fread(bytes, 1, head[2], stdin) != head[2])
			return 2;
		putchar(answer(head[0] == 1, path, bytes, head[2]));
		fflush(stdout);
		free(path);
		free(bytes);
	}
	return 0;
}
