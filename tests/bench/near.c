/* Messages, RDMA writes and reads between two processes of one host through the C function table: one figure a run.
 *
 * usage: near send|wait|write|asleep|futex              half round trips in us; see below
 *        near rate|waited|messages                      million RDMA writes, or messages, of 64 bytes a second
 *        near put|get SIZE OUTSTANDING                 GB/s
 * dat.conf has the IAs "near-client" and "near-server".
 *
 * "asleep" is the time from a post to the return of dat_evd_wait at the other end, whose threads have slept for 2 ms, in both
 * directions in turn. "waited" is "rate" between two processes that wait in dat_evd_wait: one for each completion, the other for what
 * does not come. "futex" is the same with a word of shared memory and futex(2), without DAT.
 */
#define _GNU_SOURCE
#include <dat2/udat.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../c/need.h"

#define MESSAGE 64
#define WINDOW (1 << 20)
#define RECEIVES 16
#define REQUESTS 256
/* The receives of a stream of messages: those in flight, and those that the receiver has not posted again. */
#define STREAM_RECEIVES 1024
/* One of so many small requests completes. */
#define SILENT 64
#define WARM 500
#define ROUNDS 10000
#define NAPS 300
#define NAP_US 2000
#define RECEIVE 1
#define PATIENCE 10000000

enum kind { SEND, WAIT, WRITE, RATE, WAITED, MESSAGES, ASLEEP, FUTEX, PUT, GET };
static const char *const names[] = {"send", "wait", "write", "rate", "waited", "messages", "asleep", "futex", "put", "get"};

/* What both processes share. */
struct shared {
    volatile int ready, word;
    volatile uint64_t sent;
    DAT_CONN_QUAL qual;
    DAT_SOCK_ADDR6 at;
    DAT_RMR_CONTEXT key[2];
    DAT_VADDR window[2];
};

static struct shared *shared;
static int own;
static DAT_EVD_HANDLE dto, conn;
static DAT_EP_HANDLE ep;
static DAT_LMR_CONTEXT message_key, window_key;
static unsigned char messages[2 * MESSAGE] __attribute__((aligned(64))), *window;
static double times[ROUNDS];

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int less(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(int count)
{
    qsort(times, count, sizeof *times, less);
    return times[count / 2];
}

/* A machine with one processor refuses, and the process stays unbound. */
static void pin(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    (void)!sched_setaffinity(0, sizeof set, &set);
}

static void await(int wanted)
{
    while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < wanted)
        usleep(1000);
}

static void expose(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, void *at, size_t length, DAT_LMR_CONTEXT *key)
{
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_HANDLE lmr;
    DAT_VLEN size;
    DAT_VADDR start;

    memset(&region, 0, sizeof region);
    region.for_va = at;
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, length, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, key,
                         &shared->key[own], &size, &start));
}

static DAT_LMR_TRIPLET segment(void *at, size_t length, DAT_LMR_CONTEXT key)
{
    DAT_LMR_TRIPLET s;
    memset(&s, 0, sizeof s);
    s.virtual_address = (DAT_VADDR)(uintptr_t)at;
    s.segment_length = length;
    s.lmr_context = key;
    return s;
}

static DAT_COMPLETION_FLAGS completion_of(uint64_t number)
{
    return number % SILENT == SILENT - 1 ? DAT_COMPLETION_DEFAULT_FLAG : DAT_COMPLETION_SUPPRESS_FLAG;
}

static void expect(void)
{
    DAT_LMR_TRIPLET s = segment(messages, MESSAGE, message_key);
    DAT_DTO_COOKIE cookie = {.as_64 = RECEIVE};
    CHECK(dat_ep_post_recv(ep, 1, &s, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void post_with(DAT_COMPLETION_FLAGS flags)
{
    DAT_LMR_TRIPLET s = segment(messages + MESSAGE, MESSAGE, message_key);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    CHECK(dat_ep_post_send(ep, 1, &s, cookie, flags));
}

/* One of SILENT sends completes, as in perftest; UCX has no event for a short send. */
static void post(void)
{
    static uint64_t posted;
    post_with(completion_of(posted++));
}

/* Posts an RDMA write or read between the windows, or a write of the outgoing message to the peer's window. */
static void transfer(int read, void *at, size_t length, DAT_LMR_CONTEXT key, uint64_t number, int silent)
{
    DAT_LMR_TRIPLET local = segment(at, length, key);
    DAT_DTO_COOKIE cookie = {.as_64 = 3};
    DAT_COMPLETION_FLAGS flags = silent ? completion_of(number) : DAT_COMPLETION_DEFAULT_FLAG;
    DAT_RMR_TRIPLET remote;

    memset(&remote, 0, sizeof remote);
    remote.virtual_address = shared->window[!own];
    remote.segment_length = length;
    remote.rmr_context = shared->key[!own];
    if (read)
        CHECK(dat_ep_post_rdma_read(ep, 1, &local, cookie, &remote, flags));
    else
        CHECK(dat_ep_post_rdma_write(ep, 1, &local, cookie, &remote, flags));
}

/* Takes a completion if there is one; returns its cookie, or 0. */
static uint64_t poll(void)
{
    DAT_EVENT event;
    if (dat_evd_dequeue(dto, &event) != DAT_SUCCESS)
        return 0;
    NEED(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
    return event.event_data.dto_completion_event_data.user_cookie.as_64;
}

/* Takes completions up to that of the peer's next message. */
static void receive(int waits)
{
    DAT_EVENT event;
    DAT_COUNT more;
    uint64_t cookie = 0;

    while (cookie != RECEIVE)
        if (waits) {
            CHECK(dat_evd_wait(dto, PATIENCE, 1, &event, &more));
            NEED(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
            cookie = event.event_data.dto_completion_event_data.user_cookie.as_64;
        } else
            cookie = poll();
}

static void connection(DAT_EVENT_NUMBER number, DAT_EVENT *event)
{
    DAT_COUNT more;
    CHECK(dat_evd_wait(conn, PATIENCE, 1, event, &more));
    NEED(event->event_number == number);
}

/* Connects both processes; each has `receives` receives posted. */
static void join(int receives)
{
    static const char *const ias[] = {"near-client", "near-server"};
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_IA_ATTR ia_attr;
    DAT_EP_ATTR attr;
    DAT_EVENT event;
    int i;

    CHECK(dat_ia_open((char *)ias[own], 8, &async_evd, &ia));
    CHECK(dat_pz_create(ia, &pz));
    CHECK(dat_evd_create(ia, REQUESTS + receives, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &dto));
    CHECK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &conn));
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_mtu_size = attr.max_rdma_size = WINDOW;
    attr.qos = DAT_QOS_BEST_EFFORT;
    attr.max_recv_dtos = receives;
    attr.max_request_dtos = REQUESTS;
    attr.max_recv_iov = attr.max_request_iov = 1;
    attr.max_rdma_read_in = attr.max_rdma_read_out = 8;
    attr.max_rdma_read_iov = attr.max_rdma_write_iov = 1;
    CHECK(dat_ep_create(ia, pz, dto, dto, conn, &attr, &ep));
    NEED(posix_memalign((void **)&window, 4096, WINDOW) == 0);
    memset(window, 0, WINDOW);
    expose(ia, pz, messages, sizeof messages, &message_key);
    expose(ia, pz, window, WINDOW, &window_key);
    shared->window[own] = (DAT_VADDR)(uintptr_t)window;
    /* One less: a receive is posted before the next message is awaited. */
    for (i = 0; i < receives - 1; i++)
        expect();
    if (own) {
        CHECK(dat_psp_create_any(ia, &shared->qual, conn, DAT_PSP_CONSUMER_FLAG, &psp));
        CHECK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &ia_attr, 0, NULL));
        memcpy(&shared->at, ia_attr.ia_address_ptr, sizeof(struct sockaddr_in));
        shared->ready = 1;
        connection(DAT_CONNECTION_REQUEST_EVENT, &event);
        CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
    } else {
        await(1);
        CHECK(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&shared->at, shared->qual, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
                             DAT_CONNECT_DEFAULT_FLAG));
    }
    connection(DAT_CONNECTION_EVENT_ESTABLISHED, &event);
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
    await(own ? 2 : 3);
}

static void raise_flag(int round)
{
    messages[2 * MESSAGE - 1] = round % 2 + 1;
    transfer(0, messages + MESSAGE, MESSAGE, message_key, round, 1);
}

static void await_flag(int round)
{
    volatile unsigned char *flag = window + MESSAGE - 1;
    while (*flag != round % 2 + 1)
        poll();
}

static void futex(int operation, int value)
{
    syscall(SYS_futex, &shared->word, operation, value, NULL, NULL, 0);
}

/* Notifies the other process of message `round`, which has the time. */
static void notify(enum kind kind, int round)
{
    usleep(NAP_US);
    shared->sent = now();
    if (kind == ASLEEP) {
        post();
        return;
    }
    __atomic_store_n(&shared->word, round + 1, __ATOMIC_RELEASE);
    futex(FUTEX_WAKE, INT_MAX);
}

/* Waits for message `round`; returns the microseconds that it took. */
static double nap(enum kind kind, int round)
{
    if (kind == ASLEEP) {
        receive(1);
        expect();
    } else
        while (__atomic_load_n(&shared->word, __ATOMIC_ACQUIRE) != round + 1)
            futex(FUTEX_WAIT, round);
    return (now() - shared->sent) / 1e3;
}

static void serve(enum kind kind)
{
    int round;

    if (kind == SEND || kind == WAIT)
        for (;;) {
            receive(kind == WAIT);
            post();
            expect();
        }
    for (round = 0; kind == WRITE; round++) {
        await_flag(round);
        raise_flag(round);
    }
    for (round = 0; kind == ASLEEP || kind == FUTEX; round += 2) {
        nap(kind, round);
        notify(kind, round + 1);
    }
    if (kind == WAITED)
        receive(1);
    for (;;)
        if (poll() == RECEIVE)
            expect();
}

static double latency(enum kind kind)
{
    uint64_t begin = 0;
    int round;

    for (round = -WARM; round < ROUNDS; round++) {
        begin = now();
        if (kind == WRITE) {
            raise_flag(round + WARM);
            await_flag(round + WARM);
        } else {
            post();
            /* The receive of the next answer is posted while this one is under way, as in UCX's program. */
            expect();
            receive(kind == WAIT);
        }
        if (round >= 0)
            times[round] = (now() - begin) / 1e3 / 2;
    }
    return median(ROUNDS);
}

static double naps(enum kind kind)
{
    int round;
    for (round = 0; round < NAPS; round++) {
        notify(kind, 2 * round);
        times[round] = nap(kind, 2 * round + 1);
    }
    return median(NAPS);
}

/* Returns the operations a second, after a warm-up of the same length. */
static double rate(enum kind kind, void *at, size_t size, DAT_LMR_CONTEXT key, uint64_t outstanding)
{
    uint64_t begin = now(), posted = 0, done = 0, base = 0, step = outstanding > SILENT ? SILENT : 1;
    int warm = 0;

    for (;;) {
        for (; posted - done < outstanding; posted++)
            if (kind == MESSAGES)
                post_with(completion_of(posted));
            else
                transfer(kind == GET, at, size, key, posted, step > 1);
        if (kind == WAITED) {
            DAT_EVENT event;
            DAT_COUNT more;
            CHECK(dat_evd_wait(dto, PATIENCE, 1, &event, &more));
            NEED(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
            done++;
        }
        while (kind != WAITED && poll())
            done += step;
        if (now() - begin < 300000000 || done == base)
            continue;
        if (warm)
            return (done - base) * 1e9 / (now() - begin);
        warm = 1;
        begin = now();
        base = done;
    }
}

static double measure(enum kind kind, size_t size, int outstanding)
{
    if (kind == ASLEEP || kind == FUTEX)
        return naps(kind);
    if (kind == RATE || kind == MESSAGES)
        return rate(kind, messages + MESSAGE, MESSAGE, message_key, REQUESTS) / 1e6;
    if (kind == WAITED)
        return rate(kind, messages + MESSAGE, MESSAGE, message_key, SILENT) / 1e6;
    if (kind == PUT || kind == GET)
        return rate(kind, window, size, window_key, outstanding) * size / 1e9;
    return latency(kind);
}

int main(int argc, char **argv)
{
    size_t size = argc == 4 ? atol(argv[2]) : MESSAGE;
    int outstanding = argc == 4 ? atoi(argv[3]) : 1;
    enum kind kind = SEND;
    pid_t peer;

    NEED(argc == 2 || argc == 4);
    while (strcmp(argv[1], names[kind])) {
        NEED(kind < GET);
        kind++;
    }
    NEED(size >= 1 && size <= WINDOW && outstanding >= 1 && outstanding <= REQUESTS);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared != MAP_FAILED);
    peer = fork();
    NEED(peer >= 0);
    own = peer == 0;
    pin(own);
    if (own)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (kind != FUTEX)
        join(kind == MESSAGES ? STREAM_RECEIVES : RECEIVES);
    if (own)
        serve(kind);
    printf("%.4f\n", measure(kind, size, outstanding));
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    return 0;
}
