/* The calls with a fast path, each in a loop of CALLS that callgrind counts by itself: the caller's script starts valgrind with
 * --collect-atstart=no, and each loop leaves one dump named after its case. Without valgrind it only runs the calls.
 * Two connected endpoints of one IA in one process; every call must succeed (or find nothing, where nothing is).
 *
 * usage: hotpath IA-NAME      prints "hotpath: PASS" when all was as expected
 *
 * With -DDAT_1_2 it is a program of uDAPL 1.2.
 */
#ifdef DAT_1_2
#include <dat/udat.h>
#else
#include <dat2/udat.h>
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include "../c/need.h"

#define CALLS 512
#define SIZE 4096
/* More than is ever outstanding: a full queue is not measured. */
#define DEPTH (CALLS + 64)

/* Makes `call` CALLS times, counted as `name`; returns the number of DAT_SUCCESS. Results are checked after the
 * loop, so that the loop adds no instructions. */
#define COUNTED(name, call)                                                   \
    do {                                                                      \
        int i_;                                                               \
        good = 0;                                                             \
        CALLGRIND_TOGGLE_COLLECT;                                             \
        for (i_ = 0; i_ < CALLS; i_++)                                        \
            good += (call) == DAT_SUCCESS;                                    \
        CALLGRIND_TOGGLE_COLLECT;                                             \
        CALLGRIND_DUMP_STATS_AT(name);                                        \
    } while (0)

struct side {
    DAT_EP_HANDLE ep;
    DAT_EVD_HANDLE dto, conn;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT key;
    DAT_RMR_CONTEXT remote_key;
    unsigned char *memory;
};

static int good;

static void make(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, struct side *s)
{
    DAT_REGION_DESCRIPTION region;
    DAT_EP_ATTR attr;
    DAT_VLEN size;
    DAT_VADDR at;

    NEED(s->memory = calloc(1, SIZE));
    memset(&region, 0, sizeof region);
    region.for_va = s->memory;
    CHECK(dat_evd_create(ia, 2 * DEPTH, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &s->dto));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &s->conn));
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_mtu_size = SIZE;
    attr.max_rdma_size = SIZE;
    attr.qos = DAT_QOS_BEST_EFFORT;
    attr.max_recv_dtos = attr.max_request_dtos = DEPTH;
    attr.max_recv_iov = attr.max_request_iov = 4;
    attr.max_rdma_read_in = attr.max_rdma_read_out = 4;
    attr.max_rdma_read_iov = attr.max_rdma_write_iov = 4;
    CHECK(dat_ep_create(ia, pz, s->dto, s->dto, s->conn, &attr, &s->ep));
#ifdef DAT_1_2
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, pz, DAT_MEM_PRIV_ALL_FLAG, &s->lmr, &s->key,
                         &s->remote_key, &size, &at));
#else
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &s->lmr,
                         &s->key, &s->remote_key, &size, &at));
#endif
}

static DAT_EVENT next(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(evd, 30000000, 1, &event, &more));
    NEED(event.event_number == number);
    return event;
}

static DAT_LMR_TRIPLET piece(struct side *s, unsigned length)
{
    DAT_LMR_TRIPLET t;
    memset(&t, 0, sizeof t);
    t.virtual_address = (DAT_VADDR)(uintptr_t)s->memory;
    t.segment_length = length;
    t.lmr_context = s->key;
    return t;
}

static void connect_to(DAT_IA_HANDLE ia, struct side *a, struct side *b)
{
    DAT_CONN_QUAL qual = 0;
    DAT_PSP_HANDLE psp;
    DAT_IA_ATTR attr;
    DAT_EVENT event;

    CHECK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    CHECK(dat_psp_create_any(ia, &qual, b->conn, DAT_PSP_CONSUMER_FLAG, &psp));
    CHECK(dat_ep_connect(a->ep, attr.ia_address_ptr, qual, 30000000, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(b->conn, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b->ep, 0, NULL));
    next(a->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    next(b->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    CHECK(dat_psp_free(psp));
}

/* Takes a completion and looks at it, as any program does. */
static inline DAT_RETURN taken(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event->event_data.dto_completion_event_data;
    if (dat_evd_dequeue(evd, event) != DAT_SUCCESS || event->event_number != DAT_DTO_COMPLETION_EVENT)
        return DAT_QUEUE_EMPTY;
    return dto->status == DAT_DTO_SUCCESS && dto->user_cookie.as_64 == 7 ? DAT_SUCCESS : DAT_INTERNAL_ERROR;
}

/* Waits until the posts of one loop are completed without polling the EVD, which would remove the events. If the
 * time is too short the run fails, since a dequeue then finds no event. */
static void settle(void) { usleep(1000000); }

static void drain(DAT_EVD_HANDLE evd, int count)
{
    int i;
    for (i = 0; i < count; i++)
        NEED(next(evd, DAT_DTO_COMPLETION_EVENT).event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET local, small, pieces[4];
    DAT_RMR_TRIPLET there;
    DAT_EVENT event;
    DAT_COUNT more;
    struct side a, b;
    int i;

    NEED(argc == 2);
    alarm(120);
    CHECK(dat_ia_open(argv[1], 8, &async_evd, &ia));
    CHECK(dat_pz_create(ia, &pz));
    make(ia, pz, &a);
    make(ia, pz, &b);
    connect_to(ia, &a, &b);
    cookie.as_64 = 7;
    small = piece(&a, 64);
    memset(&there, 0, sizeof there);
#ifdef DAT_1_2
    there.target_address = (DAT_VADDR)(uintptr_t)b.memory;
#else
    there.virtual_address = (DAT_VADDR)(uintptr_t)b.memory;
#endif
    there.rmr_context = b.remote_key;

    COUNTED("evd_dequeue, empty connection EVD", dat_evd_dequeue(a.conn, &event));
    NEED(good == 0);
    COUNTED("evd_dequeue, empty DTO EVD", dat_evd_dequeue(a.dto, &event));
    NEED(good == 0);

    local = piece(&b, 64);
    COUNTED("ep_post_recv, 64 B", dat_ep_post_recv(b.ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    NEED(good == CALLS);
    COUNTED("ep_post_send, 64 B", dat_ep_post_send(a.ep, 1, &small, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    NEED(good == CALLS);
    settle();
    COUNTED("evd_dequeue, request completion", taken(a.dto, &event));
    NEED(good == CALLS);
    COUNTED("evd_dequeue, receive completion", taken(b.dto, &event));
    NEED(good == CALLS && event.event_data.dto_completion_event_data.transfered_length == 64);

    there.segment_length = 64;
    COUNTED("ep_post_rdma_write, 64 B", dat_ep_post_rdma_write(a.ep, 1, &small, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    NEED(good == CALLS);
    settle();
    COUNTED("evd_wait, event ready", dat_evd_wait(a.dto, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    NEED(good == CALLS && event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);

    local = piece(&a, 2048);
    there.segment_length = 2048;
    COUNTED("ep_post_rdma_write, 2048 B", dat_ep_post_rdma_write(a.ep, 1, &local, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    NEED(good == CALLS);
    drain(a.dto, CALLS);

    for (i = 0; i < 4; i++)
        pieces[i] = piece(&a, 64);
    there.segment_length = 256;
    COUNTED("ep_post_rdma_write, 2 segments", dat_ep_post_rdma_write(a.ep, 2, pieces, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    NEED(good == CALLS);
    drain(a.dto, CALLS);
    COUNTED("ep_post_rdma_write, 4 segments", dat_ep_post_rdma_write(a.ep, 4, pieces, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    NEED(good == CALLS);
    drain(a.dto, CALLS);

    there.segment_length = 64;
    COUNTED("ep_post_rdma_read, 64 B", dat_ep_post_rdma_read(a.ep, 1, &small, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    NEED(good == CALLS);
    drain(a.dto, CALLS);

    /* These cause no events; the completion of the next request shows that they are done. */
    COUNTED("ep_post_rdma_write, suppressed", dat_ep_post_rdma_write(a.ep, 1, &small, cookie, &there, DAT_COMPLETION_SUPPRESS_FLAG));
    NEED(good == CALLS);
    CHECK(dat_ep_post_rdma_write(a.ep, 1, &small, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    drain(a.dto, 1);

    for (i = 0; i < CALLS; i++)
        CHECK(dat_ep_post_rdma_write(a.ep, 1, &small, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    settle();
    COUNTED("evd_wait, event ready after suppressed ones", dat_evd_wait(a.dto, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    NEED(good == CALLS && more == 0 && event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);

    CHECK(dat_ep_disconnect(a.ep, DAT_CLOSE_ABRUPT_FLAG));
    next(a.conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    next(b.conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("hotpath: PASS\n");
    return 0;
}
