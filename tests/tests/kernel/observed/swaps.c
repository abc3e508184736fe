// Runs code of a file for two seconds, unmaps it, and puts a FIFO at its name: swaps FILE ends|stays OFFSET; or
// another file, in namespaces of its own: swaps FILE binds OFFSET OTHER.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **words) {
    prctl(PR_SET_PDEATHSIG, 9);
    if (words[2][0] == 'b' && unshare(CLONE_NEWUSER | CLONE_NEWNS)) return 1;
    int file = open(words[1], O_RDONLY);
    struct stat facts;
    fstat(file, &facts);
    char *mapped = mmap(0, facts.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    void (*run)(long) = (void (*)(long))(mapped + strtol(words[3], 0, 0));
    time_t began = time(0);
    while (time(0) - began < 2) run(10000000);
    munmap(mapped, facts.st_size);
    if (words[2][0] == 'b') {
        if (mount(words[4], words[1], 0, MS_BIND, 0)) return 2;
        sleep(30);
    }
    unlink(words[1]);
    mkfifo(words[1], 0666);
    if (words[2][0] == 's') sleep(30);
    return 0;
}
