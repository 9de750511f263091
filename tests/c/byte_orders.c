/* One end of a connection whose other end may be a process of the other byte order: private data, messages, RDMA of several packets in
 * both directions, atomics and immediate data. Numbers in messages are in network byte order; so is the immediate data, four bytes that
 * arrive as they were in the sender's memory. Atomics work on numbers in the byte order of the memory's owner.
 *
 * usage: byte_orders IA-NAME server QUALIFIER               prints "byte_orders: PASS" when every byte is right
 *        byte_orders IA-NAME client QUALIFIER ADDRESS
 */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <dat2/dat_ib_extensions.h>
#include <dat2/udat.h>
#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "need.h"

enum {
    LONG = 20000,
    WINDOW = 0,           /* the peer writes here */
    SOURCE = LONG,        /* the peer reads here */
    FETCHED = 2 * LONG,
    WORD = 3 * LONG,      /* the peer's atomics work here */
    OLD = WORD + 8,
    INCOMING = WORD + 64, /* two messages */
    SIZE = INCOMING + 2 * LONG,
    SECONDS = 30,
};
#define FIRST 0x0102030405060708u
#define LAST 0xa1a2a3a4a5a6a7a8u
#define IMMEDIATE 0xc0ffee01u

struct card {
    uint64_t address;
    uint32_t key, number;
};

static unsigned char *memory;
static DAT_EVD_HANDLE dto, conn, requests;
static DAT_EP_HANDLE ep;
static DAT_LMR_CONTEXT lkey;
static DAT_RMR_CONTEXT rkey;
static struct card peer;

static DAT_EVENT next(DAT_EVD_HANDLE evd, int number)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(evd, SECONDS * 1000000, 1, &event, &more));
    if ((int)event.event_number != number)
        fprintf(stderr, "event %#x\n", (unsigned)event.event_number);
    NEED((int)event.event_number == number);
    return event;
}

static DAT_DTO_COOKIE cookie(DAT_UINT64 number)
{
    DAT_DTO_COOKIE c;
    c.as_64 = number;
    return c;
}

static DAT_EVENT done(int number, DAT_UINT64 cookie, unsigned length)
{
    DAT_EVENT event = next(dto, number);
    DAT_DTO_COMPLETION_EVENT_DATA *d = &event.event_data.dto_completion_event_data;
    NEED(d->status == DAT_DTO_SUCCESS && d->ep_handle == ep);
    NEED(d->user_cookie.as_64 == cookie && d->transfered_length == length);
    return event;
}

static DAT_LMR_TRIPLET here(unsigned offset, unsigned length)
{
    DAT_LMR_TRIPLET t;
    memset(&t, 0, sizeof t);
    t.virtual_address = (DAT_VADDR)(uintptr_t)(memory + offset);
    t.segment_length = length;
    t.lmr_context = lkey;
    return t;
}

static DAT_RMR_TRIPLET there(unsigned offset, unsigned length)
{
    DAT_RMR_TRIPLET t;
    memset(&t, 0, sizeof t);
    t.virtual_address = be64toh(peer.address) + offset;
    t.segment_length = length;
    t.rmr_context = ntohl(peer.key);
    return t;
}

static unsigned char byte(unsigned seed, unsigned at) { return (unsigned char)(at * 7 + at / 256 + seed); }

static void fill(unsigned offset, unsigned seed)
{
    for (unsigned i = 0; i < LONG; i++)
        memory[offset + i] = byte(seed, i);
}

static void verify(unsigned offset, unsigned length, unsigned seed)
{
    for (unsigned i = 0; i < length; i++)
        NEED(memory[offset + i] == byte(seed, i));
}

static void receive(DAT_UINT64 number)
{
    DAT_LMR_TRIPLET local = here(INCOMING + LONG * (unsigned)(number - 1), LONG);
    CHECK(dat_ep_post_recv(ep, 1, &local, cookie(number), DAT_COMPLETION_DEFAULT_FLAG));
}

static uint64_t word(unsigned offset)
{
    uint64_t w;
    memcpy(&w, memory + offset, sizeof w);
    return w;
}

/* Writes, reads, changes the peer's number, and says so by immediate data. */
static void act(void)
{
    DAT_LMR_TRIPLET local = here(SOURCE, LONG);
    DAT_RMR_TRIPLET remote = there(WINDOW, LONG);
    unsigned theirs = 1 + ntohl(peer.number), ours = 3 - theirs;

    CHECK(dat_ep_post_rdma_write(ep, 1, &local, cookie(11), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    done(DAT_DTO_COMPLETION_EVENT, 11, LONG);
    local = here(FETCHED, LONG);
    remote = there(SOURCE, LONG);
    CHECK(dat_ep_post_rdma_read(ep, 1, &local, cookie(12), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    done(DAT_DTO_COMPLETION_EVENT, 12, LONG);
    verify(FETCHED, LONG, theirs);
    verify(SOURCE, LONG, ours);

    local = here(OLD, 8);
    remote = there(WORD, 8);
    CHECK(dat_ib_post_fetch_and_add(ep, 0x10, &local, cookie(13), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    done((int)DAT_IB_DTO_EVENT, 13, 8);
    NEED(word(OLD) == FIRST);
    CHECK(dat_ib_post_cmp_and_swap(ep, FIRST + 0x10, LAST, &local, cookie(14), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    done((int)DAT_IB_DTO_EVENT, 14, 8);
    NEED(word(OLD) == FIRST + 0x10);

    local = here(SOURCE, 100);
    remote = there(WINDOW, 100);
    CHECK(dat_ib_post_rdma_write_immed(ep, 1, &local, cookie(15), &remote, htonl(IMMEDIATE), DAT_COMPLETION_DEFAULT_FLAG));
    done((int)DAT_IB_DTO_EVENT, 15, 100);
}

/* Waits for the peer's immediate data, and checks what the peer did. */
static void suffer(void)
{
    DAT_EVENT event = done((int)DAT_IB_DTO_EVENT, 1, 100);
    DAT_IB_EXTENSION_EVENT_DATA *x = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
    NEED(x->type == DAT_IB_RDMA_WRITE_IMMED_DATA && x->status == DAT_OP_SUCCESS);
    NEED(ntohl(x->val.immed.data) == IMMEDIATE);
    verify(WINDOW, LONG, 1 + ntohl(peer.number));
    NEED(word(WORD) == LAST);
}

static void say(void)
{
    DAT_LMR_TRIPLET local = here(SOURCE, LONG);
    CHECK(dat_ep_post_send(ep, 1, &local, cookie(16), DAT_COMPLETION_DEFAULT_FLAG));
    done(DAT_DTO_COMPLETION_EVENT, 16, LONG);
}

static void hear(void)
{
    done(DAT_DTO_COMPLETION_EVENT, 2, LONG);
    verify(INCOMING + LONG, LONG, 1 + ntohl(peer.number));
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_LMR_HANDLE lmr;
    DAT_PSP_HANDLE psp;
    DAT_REGION_DESCRIPTION region;
    DAT_VLEN size;
    DAT_VADDR at;
    DAT_EVENT event;
    DAT_CR_PARAM request;
    DAT_CONN_QUAL qual;
    struct card own;
    struct sockaddr_in to;
    int client;

    NEED(argc >= 4);
    client = !strcmp(argv[2], "client");
    qual = strtoul(argv[3], NULL, 0);
    alarm(4 * SECONDS);
    memory = calloc(1, SIZE);
    NEED(memory);
    fill(SOURCE, 1 + (unsigned)client);
    *(uint64_t *)(void *)(memory + WORD) = FIRST;

    CHECK(dat_ia_open(argv[1], 8, &async, &ia));
    CHECK(dat_pz_create(ia, &pz));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &dto));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &conn));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests));
    CHECK(dat_ep_create(ia, pz, dto, dto, conn, NULL, &ep));
    memset(&region, 0, sizeof region);
    region.for_va = memory;
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, pz,
                         (DAT_MEM_PRIV_FLAGS)((int)DAT_MEM_PRIV_ALL_FLAG | (int)DAT_IB_MEM_PRIV_REMOTE_ATOMIC), DAT_VA_TYPE_VA, &lmr,
                         &lkey, &rkey, &size, &at));
    own.address = htobe64((uintptr_t)memory);
    own.key = htonl(rkey);
    own.number = htonl((uint32_t)client);
    receive(1);
    receive(2);

    if (client) {
        NEED(argc == 5);
        memset(&to, 0, sizeof to);
        to.sin_family = AF_INET;
        NEED(inet_pton(AF_INET, argv[4], &to.sin_addr) == 1);
        CHECK(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&to, qual, SECONDS * 1000000, sizeof own, &own, DAT_QOS_BEST_EFFORT,
                             DAT_CONNECT_DEFAULT_FLAG));
        event = next(conn, DAT_CONNECTION_EVENT_ESTABLISHED);
        NEED(event.event_data.connect_event_data.private_data_size >= (DAT_COUNT)sizeof peer);
        memcpy(&peer, event.event_data.connect_event_data.private_data, sizeof peer);
        NEED(ntohl(peer.number) == 0);
        act();
        suffer();
        say();
        hear();
        CHECK(dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
    } else {
        CHECK(dat_psp_create(ia, qual, requests, DAT_PSP_CONSUMER_FLAG, &psp));
        printf("listening\n");
        fflush(stdout);
        event = next(requests, DAT_CONNECTION_REQUEST_EVENT);
        CHECK(dat_cr_query(event.event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, &request));
        NEED(request.private_data_size >= (DAT_COUNT)sizeof peer);
        memcpy(&peer, request.private_data, sizeof peer);
        NEED(ntohl(peer.number) == 1);
        CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, sizeof own, &own));
        next(conn, DAT_CONNECTION_EVENT_ESTABLISHED);
        suffer();
        act();
        hear();
        say();
    }
    next(conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("byte_orders: PASS (%s, %s)\n", argv[2], htonl(1) == 1 ? "big endian" : "little endian");
    return 0;
}
