/* The wall clock of one process, moved by as many seconds as a file says: LD_PRELOAD this, CLOCK_SHIFT names the file.
   The monotonic clock stays as it is, as it does when a machine's time is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static const volatile long *shift;

__attribute__((constructor)) static void find(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY) : -1;
    void *seen = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    shift = seen == MAP_FAILED ? NULL : seen;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(which, now);
    if (status == 0 && which == CLOCK_REALTIME && shift) now->tv_sec += *shift;
    return status;
}
