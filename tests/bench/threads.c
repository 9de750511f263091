/* 64-byte RDMA writes a second of several threads in one process.
 *
 * usage: threads shared|lanes|own THREADS
 *                                        each thread has an endpoint and EVDs of its own, on one pair of IAs, on one with several lanes,
 *                                        or on a pair for each thread: the difference is the cost of what the threads of one IA share
 *        threads idle|split OUTSTANDING  a thread writes, and another one of the same IA calls dat_evd_dequeue in a loop: for an EVD
 *                                        that stays empty, or for the completions of the writes
 * dat.conf has the IAs c0, s0, c1, s1, ..., and cl, sl with lanes.
 */
#include <dat2/udat.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "../c/need.h"

#define SIZE 64
#define MOST 8
#define DEPTH 64
#define EACH 16

struct side {
    DAT_EVD_HANDLE dto, conn;
    DAT_EP_HANDLE ep;
    DAT_LMR_CONTEXT key;
    DAT_RMR_CONTEXT remote_key;
    unsigned char memory[SIZE];
};

struct pair {
    struct side client, server;
    pthread_t thread;
    uint64_t done;
};

static volatile int phase;
/* Writes that are posted and not completed at most, and writes that one completion stands for. */
static unsigned outstanding = DEPTH, each = EACH;
/* Completed writes, counted by the thread that polls for them; for "split" only. */
static volatile uint64_t polled;
static int split;
static DAT_IA_HANDLE ias[2][MOST];
static DAT_PZ_HANDLE pzs[2][MOST];

static void make(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, struct side *s)
{
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_HANDLE lmr;
    DAT_EP_ATTR attr;
    DAT_VLEN size;
    DAT_VADDR at;

    CHECK(dat_evd_create(ia, 2 * DEPTH, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &s->dto));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &s->conn));
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_mtu_size = attr.max_rdma_size = SIZE;
    attr.qos = DAT_QOS_BEST_EFFORT;
    attr.max_recv_dtos = 1;
    attr.max_request_dtos = DEPTH;
    attr.max_recv_iov = attr.max_request_iov = 1;
    CHECK(dat_ep_create(ia, pz, s->dto, s->dto, s->conn, &attr, &s->ep));
    region.for_va = s->memory;
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &s->key,
                         &s->remote_key, &size, &at));
}

static DAT_EVENT connection(struct side *s, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(s->conn, 10000000, 1, &event, &more));
    NEED(event.event_number == number);
    return event;
}

static void join(int n, struct pair *p)
{
    DAT_CONN_QUAL qual = 0;
    DAT_PSP_HANDLE psp;
    DAT_IA_ATTR attr;
    DAT_EVENT event;

    make(ias[0][n], pzs[0][n], &p->client);
    make(ias[1][n], pzs[1][n], &p->server);
    CHECK(dat_psp_create_any(ias[1][n], &qual, p->server.conn, DAT_PSP_CONSUMER_FLAG, &psp));
    CHECK(dat_ia_query(ias[1][n], NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    CHECK(dat_ep_connect(p->client.ep, attr.ia_address_ptr, qual, 10000000, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = connection(&p->server, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, p->server.ep, 0, NULL));
    connection(&p->client, DAT_CONNECTION_EVENT_ESTABLISHED);
    connection(&p->server, DAT_CONNECTION_EVENT_ESTABLISHED);
}

/* Returns the number of writes whose completions were there. */
static uint64_t take(struct pair *p)
{
    uint64_t done = 0;
    DAT_EVENT event;

    while (dat_evd_dequeue(p->client.dto, &event) == DAT_SUCCESS) {
        NEED(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
        done += each;
    }
    return done;
}

static void *work(void *argument)
{
    struct pair *p = argument;
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    uint64_t posted = 0, done = 0, begin = 0;
    DAT_LMR_TRIPLET from;
    DAT_RMR_TRIPLET to;
    DAT_EVENT event;
    int now, was = 0;

    memset(&from, 0, sizeof from);
    memset(&to, 0, sizeof to);
    from.virtual_address = (DAT_VADDR)(uintptr_t)p->client.memory;
    from.segment_length = to.segment_length = SIZE;
    from.lmr_context = p->client.key;
    to.virtual_address = (DAT_VADDR)(uintptr_t)p->server.memory;
    to.rmr_context = p->server.remote_key;
    while ((now = phase) < 2) {
        if (now != was) {
            was = now;
            begin = done;
        }
        while (posted - done < outstanding) {
            posted++;
            CHECK(dat_ep_post_rdma_write(p->client.ep, 1, &from, cookie, &to,
                                         posted % each ? DAT_COMPLETION_SUPPRESS_FLAG : DAT_COMPLETION_DEFAULT_FLAG));
        }
        if (split) {
            done = polled;
        } else {
            done += take(p);
            dat_evd_dequeue(p->server.dto, &event);
        }
    }
    p->done = done - begin;
    return NULL;
}

/* Polls for the completions of `argument`'s writes, or an EVD that stays empty. */
static void *poll_only(void *argument)
{
    struct pair *p = argument;
    DAT_EVENT event;

    while (phase < 2) {
        polled += take(p);
        if (split)
            dat_evd_dequeue(p->server.dto, &event);
    }
    return NULL;
}

static double cpu(const struct rusage *u)
{
    return u->ru_utime.tv_sec + u->ru_stime.tv_sec + (u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    struct timespec time = {.tv_nsec = 300000000};
    struct rusage before, after;
    struct pair *pairs;
    int threads, own, lanes, polls, i, side;
    pthread_t poller;
    double total = 0;
    char name[8];

    NEED(argc == 3);
    own = strcmp(argv[1], "own") == 0;
    lanes = strcmp(argv[1], "lanes") == 0;
    split = strcmp(argv[1], "split") == 0;
    polls = split || strcmp(argv[1], "idle") == 0;
    threads = polls ? 1 : atoi(argv[2]);
    NEED(own || lanes || polls || strcmp(argv[1], "shared") == 0);
    NEED(threads > 0 && threads <= MOST);
    if (polls) {
        outstanding = atoi(argv[2]);
        NEED(outstanding > 0 && outstanding <= DEPTH);
        each = outstanding < EACH ? 1 : EACH;
    }
    NEED(pairs = calloc(threads + polls, sizeof *pairs));
    for (i = 0; i < threads + polls; i++)
        for (side = 0; side < 2; side++) {
            DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
            if (!own && i > 0) {
                ias[side][i] = ias[side][0];
                pzs[side][i] = pzs[side][0];
                continue;
            }
            snprintf(name, sizeof name, "%c%c", "cs"[side], lanes ? 'l' : '0' + i);
            CHECK(dat_ia_open(name, 8, &async_evd, &ias[side][i]));
            CHECK(dat_pz_create(ias[side][i], &pzs[side][i]));
        }
    for (i = 0; i < threads + polls; i++)
        join(i, &pairs[i]);
    for (i = 0; i < threads; i++)
        NEED(pthread_create(&pairs[i].thread, NULL, work, &pairs[i]) == 0);
    if (polls)
        NEED(pthread_create(&poller, NULL, poll_only, &pairs[split ? 0 : 1]) == 0);
    nanosleep(&time, NULL);
    getrusage(RUSAGE_SELF, &before);
    phase = 1;
    time.tv_nsec = 0;
    time.tv_sec = 1;
    nanosleep(&time, NULL);
    phase = 2;
    getrusage(RUSAGE_SELF, &after);
    for (i = 0; i < threads; i++) {
        pthread_join(pairs[i].thread, NULL);
        total += pairs[i].done;
    }
    if (polls) {
        pthread_join(poller, NULL);
        printf("%s, %u outstanding: ", argv[1], outstanding);
    } else {
        printf("%s, %d threads: ", argv[1], threads);
    }
    printf("%.2f million/s; %.2f us of processor, %.4f sleeps a write\n", total / 1e6,
           (cpu(&after) - cpu(&before)) / total * 1e6, (after.ru_nvcsw - before.ru_nvcsw) / total);
    return 0;
}
