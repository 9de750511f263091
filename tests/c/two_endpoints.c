/* Two endpoints of one IA: connect with private data, send, RDMA write, RDMA read, disconnect, close gracefully.
 * In 2.0 also the IB extension: immediate data, atomics, a query without an open.
 * One source for both versions of the API: -DUDAPL_1_2 takes the 1.2 headers. Compiles as C and as C++.
 *
 * usage: two_endpoints IA-NAME      prints "two_endpoints: PASS" when every byte is right
 */
#ifdef UDAPL_1_2
#include <dat/udat.h>
#define LMR_CREATE(ia, region, length, pz, lmr, lkey, rkey, size, at) \
    dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, length, pz, DAT_MEM_PRIV_ALL_FLAG, lmr, lkey, rkey, size, at)
#define REMOTE_ADDRESS target_address
#else
#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>
#define LMR_CREATE(ia, region, length, pz, lmr, lkey, rkey, size, at) \
    dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, length, pz,                       \
                   (DAT_MEM_PRIV_FLAGS)((int)DAT_MEM_PRIV_ALL_FLAG | (int)DAT_IB_MEM_PRIV_REMOTE_ATOMIC), \
                   DAT_VA_TYPE_VA, lmr, lkey, rkey, size, at)
#define REMOTE_ADDRESS virtual_address
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "need.h"

#define SIZE 4096

/* No header declares it. */
#ifdef __cplusplus
extern "C"
#endif
DAT_RETURN dats_get_ia_handle(unsigned long ia, DAT_IA_HANDLE *handle);

struct side {
    DAT_EP_HANDLE ep;
    DAT_EVD_HANDLE dto, conn;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT key;
    DAT_RMR_CONTEXT remote_key;
    unsigned char *memory;
};

static void make(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, struct side *s, int fill)
{
    DAT_REGION_DESCRIPTION region;
    DAT_VLEN size;
    DAT_VADDR at;
    s->memory = (unsigned char *)malloc(SIZE);
    memset(s->memory, fill, SIZE);
    memset(&region, 0, sizeof region);
    region.for_va = s->memory;
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &s->dto));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)(DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG), &s->conn));
    CHECK(dat_ep_create(ia, pz, s->dto, s->dto, s->conn, NULL, &s->ep));
    CHECK(LMR_CREATE(ia, region, SIZE, pz, &s->lmr, &s->key, &s->remote_key, &size, &at));
    NEED(size == SIZE && at == (DAT_VADDR)(uintptr_t)s->memory && s->remote_key != 0);
}

static void unmake(struct side *s)
{
    CHECK(dat_ep_free(s->ep));
    CHECK(dat_lmr_free(s->lmr));
    CHECK(dat_evd_free(s->dto));
    CHECK(dat_evd_free(s->conn));
    free(s->memory);
}

static DAT_EVENT next(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(evd, 5000000, 1, &event, &more));
    NEED(event.event_number == number);
    NEED(event.evd_handle == evd);
    return event;
}

static void done(struct side *s, DAT_UINT64 cookie, unsigned length)
{
    DAT_EVENT event = next(s->dto, DAT_DTO_COMPLETION_EVENT);
    DAT_DTO_COMPLETION_EVENT_DATA *d = &event.event_data.dto_completion_event_data;
    NEED(d->status == DAT_DTO_SUCCESS);
    NEED(d->ep_handle == s->ep && d->user_cookie.as_64 == cookie && d->transfered_length == length);
}

static DAT_LMR_TRIPLET piece(struct side *s, unsigned offset, unsigned length)
{
    DAT_LMR_TRIPLET t;
    memset(&t, 0, sizeof t);
    t.virtual_address = (DAT_VADDR)(uintptr_t)(s->memory + offset);
    t.segment_length = length;
    t.lmr_context = s->key;
    return t;
}

static DAT_RMR_TRIPLET remote(struct side *s, unsigned offset, unsigned length)
{
    DAT_RMR_TRIPLET t;
    memset(&t, 0, sizeof t);
    t.REMOTE_ADDRESS = (DAT_VADDR)(uintptr_t)(s->memory + offset);
    t.segment_length = length;
    t.rmr_context = s->remote_key;
    return t;
}

#ifndef UDAPL_1_2
static void extended(struct side *s, DAT_UINT64 cookie, DAT_IB_EXT_TYPE type, DAT_UINT32 immediate)
{
    DAT_EVENT event = next(s->dto, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
    DAT_DTO_COMPLETION_EVENT_DATA *d = &event.event_data.dto_completion_event_data;
    DAT_IB_EXTENSION_EVENT_DATA *x = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
    NEED(d->ep_handle == s->ep && d->user_cookie.as_64 == cookie);
    NEED(d->status == DAT_DTO_SUCCESS);
    NEED(x->type == type && x->status == DAT_OP_SUCCESS);
    if (type == DAT_IB_RDMA_WRITE_IMMED_DATA)
        NEED(x->val.immed.data == immediate && d->transfered_length == 8);
}

/* Runs the extension's operations over a connection of a to b; they reach dat_extension_op as variable arguments. */
static void extensions(char *name, struct side *a, struct side *b)
{
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET local = piece(b, 3000, 8);
    DAT_RMR_TRIPLET there = remote(b, 512, 8);
    DAT_UINT64 word = 0x1122334455667788, old;
    DAT_IA_HANDLE query = NULL;
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider;

    cookie.as_64 = 10;
    CHECK(dat_ep_post_recv(b->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    memcpy(a->memory + 64, &word, 8);
    cookie.as_64 = 11;
    local = piece(a, 64, 8);
    CHECK(dat_ib_post_rdma_write_immed(a->ep, 1, &local, cookie, &there, 0xcafe, DAT_COMPLETION_DEFAULT_FLAG));
    extended(a, 11, DAT_IB_RDMA_WRITE_IMMED, 0);
    extended(b, 10, DAT_IB_RDMA_WRITE_IMMED_DATA, 0xcafe);
    NEED(!memcmp(b->memory + 512, &word, 8));

    cookie.as_64 = 12;
    CHECK(dat_ib_post_fetch_and_add(a->ep, 3, &local, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    extended(a, 12, DAT_IB_FETCH_AND_ADD, 0);
    memcpy(&old, a->memory + 64, 8);
    NEED(old == word);
    cookie.as_64 = 13;
    CHECK(dat_ib_post_cmp_and_swap(a->ep, word + 3, 42, &local, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    extended(a, 13, DAT_IB_CMP_AND_SWAP, 0);
    memcpy(&old, a->memory + 64, 8);
    NEED(old == word + 3);
    memcpy(&old, b->memory + 512, 8);
    NEED(old == 42);

    NEED(DAT_GET_TYPE(dat_extension_op(a->ep, 0x7777)) == DAT_NOT_IMPLEMENTED);
    CHECK(dat_ib_open_query(name, &query, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider));
    NEED(((struct sockaddr *)attr.ia_address_ptr)->sa_family == AF_INET);
    NEED(query != NULL && attr.extension_supported == DAT_EXTENSION_IB && !strcmp(provider.provider_name, name));
    CHECK(dat_ib_close_query(query));
}
#endif

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia, inner = NULL;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual = 0;
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider;
    DAT_CR_PARAM request;
    DAT_EVENT event;
    DAT_DTO_COOKIE cookie;
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET there;
    struct side a, b;
    char hello[6] = "hello";
    const char *major, *minor;

    NEED(argc == 2);
    alarm(60);
    NEED(DAT_GET_TYPE(dat_ia_open((char *)"no such name", 8, &async_evd, &ia)) == DAT_PROVIDER_NOT_FOUND);
    CHECK(dat_ia_open(argv[1], 8, &async_evd, &ia));
    NEED(async_evd != DAT_HANDLE_NULL);
    memset(&provider, 0, sizeof provider);
    CHECK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider));
    NEED(provider.dapl_version_major == DAT_VERSION_MAJOR);
    /* The provider's handle, as programs look it up that call its table themselves. */
    CHECK(dats_get_ia_handle((unsigned long)(uintptr_t)ia, &inner));
    NEED(inner != NULL && *(void **)inner != NULL && dat_ia_query(inner, NULL, DAT_IA_FIELD_NONE, NULL, 0, NULL) == DAT_SUCCESS);
    NEED(dats_get_ia_handle(12345, &inner) == (DAT_RETURN)(DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_IA));
    CHECK(dat_pz_create(ia, &pz));
    make(ia, pz, &a, 1);
    make(ia, pz, &b, 2);
    CHECK(dat_psp_create_any(ia, &qual, b.conn, DAT_PSP_CONSUMER_FLAG, &psp));

    CHECK(dat_ep_connect(a.ep, attr.ia_address_ptr, qual, 5000000, sizeof hello, hello, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(b.conn, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_query(event.event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, &request));
    NEED(request.private_data_size >= (DAT_COUNT)sizeof hello && !memcmp(request.private_data, hello, sizeof hello));
    ((char *)request.private_data)[0] = 'j';
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b.ep, sizeof hello, request.private_data));
    event = next(a.conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    NEED(!memcmp(event.event_data.connect_event_data.private_data, "jello", sizeof hello));
    next(b.conn, DAT_CONNECTION_EVENT_ESTABLISHED);

    cookie.as_64 = 1;
    local = piece(&b, 0, 1000);
    CHECK(dat_ep_post_recv(b.ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    cookie.as_64 = 2;
    local = piece(&a, 0, 700);
    CHECK(dat_ep_post_send(a.ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    done(&a, 2, 700);
    done(&b, 1, 700);
    NEED(b.memory[0] == 1 && b.memory[699] == 1 && b.memory[700] == 2);

    memset(a.memory, 3, SIZE);
    cookie.as_64 = 3;
    local = piece(&a, 0, 100);
    there = remote(&b, 2000, 100);
    CHECK(dat_ep_post_rdma_write(a.ep, 1, &local, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    done(&a, 3, 100);
    NEED(b.memory[1999] == 2 && b.memory[2000] == 3 && b.memory[2099] == 3 && b.memory[2100] == 2);
    cookie.as_64 = 4;
    local = piece(&a, 50, 10);
    there = remote(&b, 0, 10);
    CHECK(dat_ep_post_rdma_read(a.ep, 1, &local, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    done(&a, 4, 10);
    NEED(a.memory[49] == 3 && a.memory[50] == 1 && a.memory[59] == 1 && a.memory[60] == 3);

#ifndef UDAPL_1_2
    extensions(argv[1], &a, &b);
#endif

    /* NULL handles, and a handle after its free. */
    NEED(DAT_GET_TYPE(dat_ep_free(NULL)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_ep_free((DAT_EP_HANDLE)&cookie)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_ep_free(pz)) == DAT_INVALID_HANDLE);
    NEED(DAT_GET_TYPE(dat_pz_free(pz)) == DAT_INVALID_STATE);
    NEED(dat_evd_dequeue(a.dto, &event) == DAT_QUEUE_EMPTY);
    NEED(DAT_GET_TYPE(dat_evd_dequeue(a.conn, &event)) == DAT_QUEUE_EMPTY);
    CHECK(dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG1, &major, &minor));
    NEED(!strcmp(major, "DAT_INVALID_PARAMETER") && !strcmp(minor, "DAT_INVALID_ARG1"));

    NEED(DAT_GET_TYPE(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG)) == DAT_INVALID_STATE);
    CHECK(dat_ep_disconnect(a.ep, DAT_CLOSE_ABRUPT_FLAG));
    next(a.conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    next(b.conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(dat_psp_free(psp));
    unmake(&a);
    unmake(&b);
    CHECK(dat_pz_free(pz));
    CHECK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    NEED(DAT_GET_TYPE(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG)) == DAT_INVALID_HANDLE);
    printf("two_endpoints: PASS uDAPL %d.%d\n", DAT_VERSION_MAJOR, DAT_VERSION_MINOR);
    return 0;
}
