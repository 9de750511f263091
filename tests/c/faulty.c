/* Two endpoints of one IA: six messages one after the other, then an RDMA Read. Prints what comes of each, and fails at nothing after
 * the connection: a filter makes the faults.
 *
 * usage: faulty IA-NAME
 * message N: post CODE, request STATUS, receive STATUS, bytes right     CODE in hexadecimal; STATUS is a number or "none"
 * connection up
 */
#include <dat2/udat.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "need.h"

#define SIZE 64
#define MESSAGES 6
/* Microseconds until a completion counts as not delivered. */
#define PATIENCE 3000000

struct side {
    DAT_EP_HANDLE ep;
    DAT_EVD_HANDLE dto, conn;
};

static unsigned char memory[3][SIZE];
static DAT_LMR_CONTEXT key;
static DAT_RMR_CONTEXT remote_key;

static void make(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, struct side *s)
{
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &s->dto));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)(DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG), &s->conn));
    CHECK(dat_ep_create(ia, pz, s->dto, s->dto, s->conn, NULL, &s->ep));
}

static DAT_LMR_TRIPLET part(int which)
{
    DAT_LMR_TRIPLET iov;
    iov.virtual_address = (DAT_VADDR)(uintptr_t)memory[which];
    iov.segment_length = SIZE;
    iov.lmr_context = key;
    return iov;
}

/* Returns the status of the next completion, -1 if none comes. */
static int status_of(struct side *s)
{
    DAT_EVENT event;
    DAT_COUNT more;
    if (dat_evd_wait(s->dto, PATIENCE, 1, &event, &more) != DAT_SUCCESS)
        return -1;
    NEED(event.event_number == DAT_DTO_COMPLETION_EVENT);
    return (int)event.event_data.dto_completion_event_data.status;
}

static const char *word(int status)
{
    static char words[2][16];
    static int at;
    at = !at;
    snprintf(words[at], sizeof words[at], status < 0 ? "none" : "%d", status);
    return words[at];
}

static const char *bytes(int which)
{
    int i;
    for (i = 0; i < SIZE; i++)
        if (memory[which][i] != memory[0][i])
            return "wrong";
    return "right";
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_LMR_HANDLE lmr;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;
    DAT_REGION_DESCRIPTION region;
    DAT_IA_ATTR attr;
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_VLEN size;
    DAT_VADDR at;
    DAT_LMR_TRIPLET iov;
    DAT_RMR_TRIPLET from;
    DAT_DTO_COOKIE cookie;
    DAT_RETURN code;
    struct side a, b;
    struct timespec begin, end;
    int i, sent, received;

    NEED(argc == 2);
    setbuf(stdout, NULL);
    CHECK(dat_ia_open(argv[1], 8, &async, &ia));
    CHECK(dat_ia_query(ia, &async, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    CHECK(dat_pz_create(ia, &pz));
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("pz after %ld ms\n", (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
    memset(&region, 0, sizeof region);
    region.for_va = memory;
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &key,
                         &remote_key, &size, &at));
    make(ia, pz, &a);
    make(ia, pz, &b);
    CHECK(dat_psp_create_any(ia, &qual, b.conn, DAT_PSP_CONSUMER_FLAG, &psp));
    memset(&cookie, 0, sizeof cookie);
    CHECK(dat_ep_connect(a.ep, attr.ia_address_ptr, qual, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT,
                         DAT_CONNECT_DEFAULT_FLAG));
    CHECK(dat_evd_wait(b.conn, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    NEED(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b.ep, 0, NULL));
    CHECK(dat_evd_wait(b.conn, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    NEED(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED);
    CHECK(dat_evd_wait(a.conn, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    NEED(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED);

    for (i = 1; i <= MESSAGES; i++) {
        memset(memory[0], i, SIZE);
        memset(memory[1], 0, SIZE);
        iov = part(1);
        cookie.as_64 = (DAT_UINT64)i;
        CHECK(dat_ep_post_recv(b.ep, 1, &iov, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        iov = part(0);
        code = dat_ep_post_send(a.ep, 1, &iov, cookie, DAT_COMPLETION_DEFAULT_FLAG);
        sent = code == DAT_SUCCESS ? status_of(&a) : -1;
        received = code == DAT_SUCCESS ? status_of(&b) : -1;
        printf("message %d: post %#x, request %s, receive %s, bytes %s\n", i, (unsigned)code, word(sent), word(received), bytes(1));
        if (dat_evd_dequeue(a.conn, &event) == DAT_SUCCESS || dat_evd_dequeue(b.conn, &event) == DAT_SUCCESS) {
            printf("connection down\n");
            return 0;
        }
    }
    memset(memory[2], 0, SIZE);
    iov = part(2);
    from.virtual_address = (DAT_VADDR)(uintptr_t)memory[0];
    from.segment_length = SIZE;
    from.rmr_context = remote_key;
    CHECK(dat_ep_post_rdma_read(a.ep, 1, &iov, cookie, &from, DAT_COMPLETION_DEFAULT_FLAG));
    sent = status_of(&a);
    printf("read: request %s, bytes %s\n", word(sent), bytes(2));
    printf("connection up\n");
    return 0;
}
