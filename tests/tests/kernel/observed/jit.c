// Runs code that it has made, and leaves a perf map of some kind: jit KIND [WORD].
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char path[64];
static unsigned char *code;

// A line for the code, then so many others, each of which covers all addresses of nothing.
static long lines(const char *name, size_t length, long more) {
    FILE *file = fopen(path, "w");
    fprintf(file, "%lx 10000 ", (unsigned long)code);
    long place = ftell(file) + length - 1;
    fwrite(name, 1, length, file);
    fputc('\n', file);
    for (long i = 0; i < more; i++) fprintf(file, "%lx 1 f%ld\n", 0x1000 + (i * 7919) % more, i);
    fclose(file);
    return place;
}

// Waits until somebody opens the map.
static void opened(void) {
    char event[4096];
    int watch = inotify_init();
    inotify_add_watch(watch, path, IN_OPEN);
    if (read(watch, event, sizeof event) < 0) _exit(1);
}

int main(int count, char **words) {
    const char *kind = words[1], *word = count > 2 ? words[2] : "";
    int shared = !strcmp(kind, "shared");
    prctl(PR_SET_PDEATHSIG, 9);
    sprintf(path, "/tmp/perf-%d.map", getpid());
    unlink(path);
    code = mmap(0, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    // push rbp; mov rbp, rsp; dec rdi; jnz; pop rbp; ret
    static const unsigned char body[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3};
    memcpy(code, body, sizeof body);
    if (!strcmp(kind, "name") || shared) lines(word, strlen(word), 0);
    if (!strcmp(kind, "line")) { FILE *file = fopen(path, "w"); fprintf(file, "%s\n", word); fclose(file); }
    if (!strcmp(kind, "fifo")) mkfifo(path, 0644);
    if (!strcmp(kind, "device")) symlink("/dev/zero", path);
    if (!strcmp(kind, "link")) symlink(word, path);
    if (!strcmp(kind, "hardlink")) link(word, path);
    if (!strcmp(kind, "sparse")) { int file = open(path, O_CREAT | O_RDWR, 0644); ftruncate(file, 20L << 30); }
    if (!strcmp(kind, "socket")) {
        struct sockaddr_un name = {AF_UNIX, ""};
        strcpy(name.sun_path, path);
        bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&name, sizeof name);
    }
    if (!strcmp(kind, "truncated") || !strcmp(kind, "changed") || !strcmp(kind, "touched")) {
        long place = lines("JJJJJJJJ", 8, atol(word));
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, 9);
            int file = open(path, O_RDWR);
            char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            page[place] = 'J';
            while (!strcmp(kind, "touched")) { futimens(file, 0); usleep(2000); }
            opened();
            if (!strcmp(kind, "truncated")) ftruncate(file, 0);
            else for (;;) { page[place] = 0xf7; page[place] = 'J'; }
            pause();
        }
    }
    if (!strcmp(kind, "deep")) {
        size_t length = atol(word);
        char *name = malloc(length);
        memset(name, 'J', length);
        lines(name, length, 0);
        // A chain of 127 frames that return into the code.
        uint64_t *frames = (uint64_t *)(code + 0x8000);
        for (int i = 0; i < 130; i++) {
            frames[2 * i] = i < 129 ? (uint64_t)&frames[2 * i + 2] : 0;
            frames[2 * i + 1] = (uint64_t)code + 0x100 + i;
        }
        // mov rbp, frames; nop; jmp
        unsigned char *at = code;
        *at++ = 0x48; *at++ = 0xbd;
        memcpy(at, &frames, 8); at += 8;
        memset(at, 0x90, 64); at += 64;
        *at++ = 0xeb; *at++ = 0xbe;
    }
    puts("ready");
    fflush(stdout);
    void (*run)(long) = (void (*)(long))code;
    for (;;) run(10000000);
}
