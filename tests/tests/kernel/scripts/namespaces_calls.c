#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    int times = atoi(words[1]);
    while (access(words[2], F_OK) != 0) usleep(1000);
    for (int i = 0; i < times; i++) syscall(SYS_getppid);
    if (unshare(CLONE_NEWPID) != 0) return 1;
    int child = fork();
    if (child == 0) {
        for (int i = 0; i < times; i++) syscall(SYS_getppid);
        _exit(getpid() != 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    /* Its name is asked for. */
    while (access(words[2], F_OK) == 0) usleep(1000);
    return status != 0;
}
