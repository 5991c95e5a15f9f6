// A wall clock that a test can step while a server runs: preloaded, it adds the milliseconds in the file that
// LOCKLINE_STEPPED_CLOCK names. The monotonic clock is left alone. Programs that ask the kernel without the C library (Go)
// are out of reach.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *step_ms;

__attribute__((constructor)) static void find_step(void) {
    const char *file = getenv("LOCKLINE_STEPPED_CLOCK");
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(0, sizeof *step_ms, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) step_ms = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && step_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *step_ms * 1000000;
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

// Whoever waits until a moment of the wall clock reads it here, and waits by the kernel's, which was not stepped. Untranslated, a
// moment of a clock that was set back has always passed: the waits of MariaDB's idle threads ended at once, again and again, and
// such a server answered late, or nobody, because it burnt all processors. (A real step would also move the waits under way.)
static struct timespec in_kernel_time(const struct timespec *moment) {
    int64_t ns = (int64_t)moment->tv_sec * 1000000000 + moment->tv_nsec - (step_ms ? *step_ms * 1000000 : 0);
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

// The C library keeps an older function of this name, for programs of another century, which dlsym may find first.
static void *next(const char *name) {
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    return found ? found : dlsym(RTLD_NEXT, name);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict moment) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait) wait = next("pthread_cond_timedwait");
    // This bit says that the condition was made for the monotonic clock, which nobody steps.
    if (condition->__data.__wrefs & 2) return wait(condition, mutex, moment);
    struct timespec translated = in_kernel_time(moment);
    return wait(condition, mutex, &translated);
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict moment) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    if (!wait) wait = next("pthread_cond_clockwait");
    if (clock != CLOCK_REALTIME) return wait(condition, mutex, clock, moment);
    struct timespec translated = in_kernel_time(moment);
    return wait(condition, mutex, clock, &translated);
}
