// Waits for a second by the wall clock, as idle threads of a server do, and says for how many milliseconds it really waited.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

int main(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    long long from = now_ms();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_mutex_lock(&mutex);
    while (!pthread_cond_timedwait(&condition, &mutex, &until)) {}
    printf("%lld\n", now_ms() - from);
}
