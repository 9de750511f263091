/* Every array and structure that a program hands in or has filled, at addresses that are no multiple of its alignment: two endpoints of
 * one IA, from open to close, as packed buffers have them. One source for both versions of the API: -DUDAPL_1_2 takes the 1.2 headers.
 *
 * usage: odd_addresses IA-NAME
 */
#ifdef UDAPL_1_2
#include <dat/udat.h>
#include <dat/dat_registry.h>
#define LMR_CREATE(ia, region, length, pz, lmr, lkey, rkey, size, at) \
    dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, length, pz, DAT_MEM_PRIV_ALL_FLAG, lmr, lkey, rkey, size, at)
#define BIND(rmr, lmr, triplet, ep, cookie, context) \
    ((void)(lmr), dat_rmr_bind(rmr, triplet, DAT_MEM_PRIV_ALL_FLAG, ep, cookie, DAT_COMPLETION_DEFAULT_FLAG, context))
#define REMOTE_ADDRESS target_address
#else
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>
#define LMR_CREATE(ia, region, length, pz, lmr, lkey, rkey, size, at)                                        \
    dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, length, pz,                                             \
                   (DAT_MEM_PRIV_FLAGS)((int)DAT_MEM_PRIV_ALL_FLAG | (int)DAT_IB_MEM_PRIV_REMOTE_ATOMIC), \
                   DAT_VA_TYPE_VA, lmr, lkey, rkey, size, at)
#define BIND(rmr, lmr, triplet, ep, cookie, context)                                                                  \
    dat_rmr_bind(rmr, lmr, triplet, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, ep, cookie, DAT_COMPLETION_DEFAULT_FLAG, context)
#define REMOTE_ADDRESS virtual_address
#endif
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "need.h"

#define SIZE 4096
#define PATIENCE 20000000

static size_t offset;
static char places[1 << 20];
static size_t used;

/* Returns a copy at an odd address, or a pattern there. Memory is reused when no call can refer to it any more. */
static void *odd(const void *from, size_t size)
{
    size_t rounded = (size + offset + 63) / 64 * 64;
    char *at;
    if (used + rounded > sizeof places)
        used = 0;
    at = places + used + offset;
    used += rounded;
    if (from)
        memcpy(at, from, size);
    else
        memset(at, 0x5a, size);
    NEED((uintptr_t)at % 8 == offset % 8);
    return at;
}

/* Macros that pass an argument at an odd address, and copy back what the call wrote. */
#define AT(x) ((__typeof__(&(x)))odd(&(x), sizeof(x)))
#define PLACE(x) ((__typeof__(&(x)))odd(NULL, sizeof(x)))
#define FILLS(x, call)                               \
    do {                                             \
        __typeof__(&(x)) out = PLACE(x);             \
        CHECK(call);                                 \
        memcpy(&(x), (void *)out, sizeof(x));        \
    } while (0)

struct side {
    DAT_EP_HANDLE ep;
    DAT_EVD_HANDLE dto, conn;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT key;
    DAT_RMR_CONTEXT remote_key;
    unsigned char *memory;
};

static const DAT_COMPLETION_FLAGS NONE = DAT_COMPLETION_DEFAULT_FLAG;

static DAT_DTO_COOKIE named(DAT_UINT64 number)
{
    DAT_DTO_COOKIE cookie;
    cookie.as_64 = number;
    return cookie;
}

static void make(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, struct side *s, int fill)
{
    DAT_REGION_DESCRIPTION region;
    DAT_VLEN size = 0, *size_out = PLACE(size);
    DAT_VADDR at = 0, *at_out = PLACE(at);
    DAT_LMR_CONTEXT *key = PLACE(s->key);
    DAT_RMR_CONTEXT *remote_key = PLACE(s->remote_key);
    DAT_EP_ATTR attr;
    DAT_EP_PARAM param;
    DAT_EVD_PARAM evd;
    DAT_LMR_PARAM lmr;
    memset(&attr, 0, sizeof attr);
    memset(&param, 0, sizeof param);
    s->memory = (unsigned char *)malloc(SIZE);
    memset(s->memory, fill, SIZE);
    memset(&region, 0, sizeof region);
    region.for_va = s->memory;
    FILLS(s->dto, dat_evd_create(ia, 40, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, out));
    FILLS(s->conn, dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, out));
    FILLS(evd, dat_evd_query(s->dto, DAT_EVD_FIELD_ALL, out));
    NEED(evd.evd_qlen >= 40);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_message_size = attr.max_rdma_size = SIZE;
    attr.recv_completion_flags = attr.request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
    attr.max_recv_dtos = attr.max_request_dtos = 12;
    attr.max_recv_iov = attr.max_request_iov = 4;
    attr.max_rdma_read_in = attr.max_rdma_read_out = 2;
    attr.max_rdma_read_iov = attr.max_rdma_write_iov = 4;
    FILLS(s->ep, dat_ep_create(ia, pz, s->dto, s->dto, s->conn, AT(attr), out));
    FILLS(param, dat_ep_query(s->ep, DAT_EP_FIELD_ALL, out));
    NEED(param.ep_attr.max_recv_dtos == 12 && param.pz_handle == pz);
    param.ep_attr.max_request_dtos = 14;
    CHECK(dat_ep_modify(s->ep, DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS, AT(param)));
    FILLS(param, dat_ep_query(s->ep, DAT_EP_FIELD_ALL, out));
    NEED(param.ep_attr.max_request_dtos == 14);
    FILLS(s->lmr, LMR_CREATE(ia, region, SIZE, pz, out, key, remote_key, size_out, at_out));
    memcpy(&s->key, key, sizeof s->key);
    memcpy(&s->remote_key, remote_key, sizeof s->remote_key);
    memcpy(&size, size_out, sizeof size);
    memcpy(&at, at_out, sizeof at);
    NEED(size == SIZE && at == (DAT_VADDR)(uintptr_t)s->memory && s->remote_key != 0);
    FILLS(lmr, dat_lmr_query(s->lmr, DAT_LMR_FIELD_ALL, out));
    NEED(lmr.lmr_context == s->key);
}

static DAT_EVENT next(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more = 77, *more_out = PLACE(more);
    memset(&event, 0, sizeof event);
    FILLS(event, dat_evd_wait(evd, PATIENCE, 1, out, more_out));
    memcpy(&more, more_out, sizeof more);
    NEED(event.event_number == number && event.evd_handle == evd && more >= 0 && more < 77);
    return event;
}

/* Polls for the event: polling has its own code path. */
static void polled(struct side *s, DAT_UINT64 cookie, unsigned length)
{
    DAT_EVENT event, *out = PLACE(event);
    DAT_DTO_COMPLETION_EVENT_DATA *d = &event.event_data.dto_completion_event_data;
    while (dat_evd_dequeue(s->dto, out) != DAT_SUCCESS)
        usleep(50);
    memcpy(&event, (void *)out, sizeof event);
    NEED(event.event_number == DAT_DTO_COMPLETION_EVENT && event.evd_handle == s->dto);
    NEED(d->status == DAT_DTO_SUCCESS && d->ep_handle == s->ep);
    NEED(d->user_cookie.as_64 == cookie && d->transfered_length == length);
}

static void done(struct side *s, DAT_UINT64 cookie, unsigned length)
{
    DAT_EVENT event = next(s->dto, DAT_DTO_COMPLETION_EVENT);
    DAT_DTO_COMPLETION_EVENT_DATA *d = &event.event_data.dto_completion_event_data;
    NEED(d->status == DAT_DTO_SUCCESS && d->ep_handle == s->ep);
    NEED(d->user_cookie.as_64 == cookie && d->transfered_length == length);
}

/* Returns `count` adjacent segments of `each` bytes. */
static DAT_LMR_TRIPLET *pieces(struct side *s, unsigned from, unsigned each, int count)
{
    DAT_LMR_TRIPLET all[4];
    int i;
    memset(all, 0, sizeof all);
    for (i = 0; i < count; i++) {
        all[i].virtual_address = (DAT_VADDR)(uintptr_t)(s->memory + from + i * each);
        all[i].segment_length = each;
        all[i].lmr_context = s->key;
    }
    return (DAT_LMR_TRIPLET *)odd(all, count * sizeof *all);
}

static DAT_RMR_TRIPLET *remote(struct side *s, unsigned from, unsigned length)
{
    DAT_RMR_TRIPLET t;
    memset(&t, 0, sizeof t);
    t.REMOTE_ADDRESS = (DAT_VADDR)(uintptr_t)(s->memory + from);
    t.segment_length = length;
    t.rmr_context = s->remote_key;
    return AT(t);
}

static void transfers(struct side *a, struct side *b)
{
    int n;
    for (n = 1; n <= 4; n++) {
        unsigned length = 64 * n;
        memset(a->memory, 10 + n, SIZE);
        memset(b->memory, 20 + n, SIZE);
        CHECK(dat_ep_post_recv(b->ep, n, pieces(b, 1, 64, n), named(1), NONE));
        CHECK(dat_ep_post_send(a->ep, n, pieces(a, 3, 64, n), named(2), NONE));
        done(a, 2, length);
        polled(b, 1, length);
        NEED(b->memory[0] == 20 + n && b->memory[1] == 10 + n && b->memory[length] == 10 + n && b->memory[length + 1] == 20 + n);
        CHECK(dat_ep_post_rdma_write(a->ep, n, pieces(a, 5, 64, n), named(3), remote(b, 1000, length), NONE));
        polled(a, 3, length);
        NEED(b->memory[999] == 20 + n && b->memory[1000] == 10 + n && b->memory[999 + length] == 10 + n);
        memset(b->memory, 30 + n, SIZE);
        CHECK(dat_ep_post_rdma_read(a->ep, n, pieces(a, 100, 64, n), named(4), remote(b, 7, length), NONE));
        done(a, 4, length);
        NEED(a->memory[99] == 10 + n && a->memory[100] == 30 + n && a->memory[99 + length] == 30 + n);
        /* Posts with flags take another code path. */
        CHECK(dat_ep_post_rdma_write(a->ep, n, pieces(a, 100, 64, n), named(5), remote(b, 2000, length),
                                     DAT_COMPLETION_SUPPRESS_FLAG));
        CHECK(dat_ep_post_rdma_write(a->ep, n, pieces(a, 100, 64, n), named(6), remote(b, 2000, length),
                                     DAT_COMPLETION_BARRIER_FENCE_FLAG));
        done(a, 6, length);
    }
}

static void window(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, struct side *a, struct side *b)
{
    DAT_RMR_HANDLE rmr = DAT_HANDLE_NULL;
    DAT_RMR_PARAM param;
    DAT_RMR_CONTEXT context = 0, mine = b->remote_key;
    CHECK(dat_lmr_sync_rdma_read(ia, pieces(a, 0, 64, 3), 3));
    CHECK(dat_lmr_sync_rdma_write(ia, pieces(a, 0, 64, 3), 3));
    FILLS(rmr, dat_rmr_create(pz, out));
    FILLS(context, BIND(rmr, b->lmr, pieces(b, 64, 64, 1), b->ep, named(7), out));
    next(b->dto, DAT_RMR_BIND_COMPLETION_EVENT);
    FILLS(param, dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, out));
    NEED(param.rmr_context == context && context != 0);
    b->remote_key = context;
    CHECK(dat_ep_post_rdma_write(a->ep, 1, pieces(a, 0, 64, 1), named(8), remote(b, 64, 64), NONE));
    done(a, 8, 64);
    b->remote_key = mine;
    CHECK(dat_rmr_free(rmr));
}

#ifndef UDAPL_1_2
static void extended(struct side *s, DAT_UINT64 cookie, DAT_IB_EXT_TYPE type)
{
    DAT_EVENT event = next(s->dto, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
    DAT_DTO_COMPLETION_EVENT_DATA *d = &event.event_data.dto_completion_event_data;
    DAT_IB_EXTENSION_EVENT_DATA *x = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
    NEED(d->status == DAT_DTO_SUCCESS && d->user_cookie.as_64 == cookie);
    NEED(x->type == type && x->status == DAT_OP_SUCCESS);
    NEED(type != DAT_IB_RDMA_WRITE_IMMED_DATA || x->val.immed.data == 0xcafe);
}

static void only_in_2_0(char *name, DAT_IA_HANDLE ia, struct side *a, struct side *b)
{
    DAT_IA_HANDLE query = NULL, *query_out = PLACE(query);
    DAT_IA_ATTR attr, *attr_out = PLACE(attr);
    DAT_PROVIDER_ATTR provider, *provider_out = PLACE(provider);
    DAT_UINT64 counted[DCNT_EP_ALL_COUNTERS];
    DAT_COMM comm = {AF_INET, SOCK_STREAM, IPPROTO_TCP};
    struct sockaddr_in at;
    DAT_CSP_HANDLE csp = DAT_HANDLE_NULL;
    DAT_CSP_PARAM param;
    DAT_CNO_HANDLE cno = DAT_HANDLE_NULL, *cno_out = PLACE(cno);
    DAT_CNO_PARAM cno_param;
    DAT_FD fd = -1;

    memset(&at, 0, sizeof at);
    memset(&attr, 0, sizeof attr);
    memset(counted, 0, sizeof counted);
    CHECK(dat_ep_post_recv(b->ep, 2, pieces(b, 0, 64, 2), named(10), NONE));
    CHECK(dat_ib_post_rdma_write_immed(a->ep, 2, pieces(a, 0, 8, 2), named(11), remote(b, 512, 16), 0xcafe, NONE));
    extended(a, 11, DAT_IB_RDMA_WRITE_IMMED);
    extended(b, 10, DAT_IB_RDMA_WRITE_IMMED_DATA);
    /* The words themselves are aligned: atomics of peers require that. */
    CHECK(dat_ib_post_fetch_and_add(a->ep, 3, pieces(a, 64, 8, 1), named(12), remote(b, 512, 8), NONE));
    extended(a, 12, DAT_IB_FETCH_AND_ADD);
    CHECK(dat_ib_post_cmp_and_swap(a->ep, 1, 2, pieces(a, 64, 8, 1), named(13), remote(b, 512, 8), NONE));
    extended(a, 13, DAT_IB_CMP_AND_SWAP);
    CHECK(dat_ep_post_recv(b->ep, 1, pieces(b, 0, 64, 1), named(14), NONE));
    CHECK(dat_ep_post_send_with_invalidate(a->ep, 2, pieces(a, 0, 16, 2), named(15), NONE, DAT_FALSE, 0));
    done(a, 15, 32);
    done(b, 14, 32);
    NEED(DAT_GET_TYPE(dat_ep_post_rdma_read_to_rmr(a->ep, remote(b, 0, 8), named(1), remote(b, 0, 8), NONE)) ==
         DAT_MODEL_NOT_SUPPORTED);

    FILLS(counted, dat_ib_query_counters(a->ep, DCNT_EP_ALL_COUNTERS, out, 0));
    NEED(counted[DCNT_EP_POST_SEND] != 0);
    CHECK(dat_ib_open_query(name, query_out, DAT_IA_FIELD_ALL, attr_out, DAT_PROVIDER_FIELD_ALL, provider_out));
    memcpy(&query, query_out, sizeof query);
    memcpy(&attr, attr_out, sizeof attr);
    memcpy(&provider, provider_out, sizeof provider);
    NEED(attr.extension_supported == DAT_EXTENSION_IB && !strcmp(provider.provider_name, name));
    CHECK(dat_ib_close_query(query));

    memcpy(&at, attr.ia_address_ptr, sizeof at);
    at.sin_port = htons(7100 + (int)offset);
    FILLS(csp, dat_csp_create(ia, AT(comm), (DAT_IA_ADDRESS_PTR)(void *)AT(at), a->conn, out));
    FILLS(param, dat_csp_query(csp, DAT_CSP_FIELD_ALL, out));
    NEED(((struct sockaddr_in *)(void *)param.address_ptr)->sin_port == at.sin_port);
    CHECK(dat_csp_free(csp));
    FILLS(fd, dat_cno_fd_create(ia, out, cno_out));
    memcpy(&cno, cno_out, sizeof cno);
    FILLS(cno_param, dat_cno_query(cno, DAT_CNO_FIELD_ALL, out));
    NEED(fd >= 0 && cno_param.proxy.fd == fd);
    CHECK(dat_cno_free(cno));
}
#endif

/* Calls without transfers: software events, notification, shared receive queues, contexts, the registry. */
static void others(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, struct side *a)
{
    DAT_OS_WAIT_PROXY_AGENT no_agent = {0, 0};
    DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
    DAT_EVD_HANDLE evd = DAT_HANDLE_NULL, woken = DAT_HANDLE_NULL;
    DAT_SRQ_HANDLE srq = DAT_HANDLE_NULL;
    DAT_SRQ_ATTR srq_attr = {4, 2, DAT_SRQ_LW_DEFAULT};
    DAT_SRQ_PARAM srq_param;
    DAT_PZ_PARAM pz_param;
    DAT_EVENT event;
    DAT_CONTEXT context;
    DAT_HANDLE_TYPE type = (DAT_HANDLE_TYPE)99;
    DAT_EP_STATE state = (DAT_EP_STATE)99;
    DAT_BOOLEAN recv = (DAT_BOOLEAN)9, request = (DAT_BOOLEAN)9, *recv_out = PLACE(recv), *request_out = PLACE(request);
    DAT_COUNT posted = -1, span = -1, *span_out = PLACE(span), number = -1, *number_out = PLACE(number);
    DAT_PROVIDER_INFO info[16], *list[16];
    const char *major = NULL, *minor = NULL, **minor_out = PLACE(minor);
    int i;

    FILLS(cno, dat_cno_create(ia, no_agent, out));
    FILLS(evd, dat_evd_create(ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, out));
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = &event;
    CHECK(dat_evd_post_se(evd, AT(event)));
    FILLS(woken, dat_cno_wait(cno, PATIENCE, out));
    NEED(woken == evd);
    memset(&event, 0, sizeof event);
    FILLS(event, dat_evd_dequeue(evd, out));
    NEED(event.event_data.software_event_data.pointer == &event);
    CHECK(dat_evd_free(evd));
    CHECK(dat_cno_free(cno));

    FILLS(srq, dat_srq_create(ia, pz, AT(srq_attr), out));
    CHECK(dat_srq_post_recv(srq, 2, pieces(a, 0, 64, 2), named(1)));
    FILLS(srq_param, dat_srq_query(srq, DAT_SRQ_FIELD_ALL, out));
    NEED(srq_param.max_recv_dtos >= 4 && srq_param.outstanding_dto_count == 1);
    CHECK(dat_srq_free(srq));

    FILLS(pz_param, dat_pz_query(pz, DAT_PZ_FIELD_ALL, out));
    NEED(pz_param.ia_handle != DAT_HANDLE_NULL);
    context.as_64 = 0x1122334455667788;
    CHECK(dat_set_consumer_context(pz, context));
    context.as_64 = 0;
    FILLS(context, dat_get_consumer_context(pz, out));
    NEED(context.as_64 == 0x1122334455667788);
    FILLS(type, dat_get_handle_type(a->ep, out));
    NEED(type == DAT_HANDLE_TYPE_EP);
    FILLS(state, dat_ep_get_status(a->ep, out, recv_out, request_out));
    memcpy(&recv, recv_out, sizeof recv);
    memcpy(&request, request_out, sizeof request);
    NEED(state == DAT_EP_STATE_UNCONNECTED && recv <= 1 && request <= 1);
    FILLS(posted, dat_ep_recv_query(a->ep, out, span_out));
    NEED(posted == 0);

    for (i = 0; i < 16; i++)
        list[i] = PLACE(info[i]);
    CHECK(dat_registry_list_providers(16, number_out, (DAT_PROVIDER_INFO **)odd(list, sizeof list)));
    memcpy(&number, number_out, sizeof number);
    NEED(number > 1 && number <= 16);
    memcpy(&info[0], (void *)list[0], sizeof info[0]);
    NEED(info[0].dapl_version_major == DAT_VERSION_MAJOR);
    FILLS(major, dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG1, out, minor_out));
    memcpy(&minor, (void *)minor_out, sizeof minor);
    NEED(!strcmp(major, "DAT_INVALID_PARAMETER") && !strcmp(minor, "DAT_INVALID_ARG1"));
}

static void flow(char *name)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, *async_out = AT(async_evd);
    DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
    DAT_PZ_HANDLE pz = DAT_HANDLE_NULL;
    DAT_PSP_HANDLE psp = DAT_HANDLE_NULL;
    DAT_PSP_PARAM psp_param;
    DAT_RSP_HANDLE rsp = DAT_HANDLE_NULL;
    DAT_RSP_PARAM rsp_param;
    DAT_CONN_QUAL qual = 0, *qual_out = PLACE(qual);
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider, *provider_out = PLACE(provider);
    DAT_CR_PARAM request;
    DAT_EVENT event;
    struct sockaddr_in address;
    struct side a, b;
    char hello[6] = "hello";

    FILLS(ia, dat_ia_open(name, 8, async_out, out));
    memcpy(&async_evd, async_out, sizeof async_evd);
    FILLS(attr, dat_ia_query(ia, async_out, DAT_IA_FIELD_ALL, out, DAT_PROVIDER_FIELD_ALL, provider_out));
    NEED(!memcmp(&async_evd, async_out, sizeof async_evd));
    memcpy(&provider, provider_out, sizeof provider);
    NEED(provider.dapl_version_major == DAT_VERSION_MAJOR && attr.max_eps > 0);
    memcpy(&address, attr.ia_address_ptr, sizeof address);
    FILLS(pz, dat_pz_create(ia, out));
    make(ia, pz, &a, 1);
    make(ia, pz, &b, 2);
    others(ia, pz, &a);
    FILLS(rsp, dat_rsp_create(ia, 7200 + offset, b.ep, b.conn, out));
    FILLS(rsp_param, dat_rsp_query(rsp, DAT_RSP_FIELD_ALL, out));
    NEED(rsp_param.ep_handle == b.ep);
    CHECK(dat_rsp_free(rsp));
    CHECK(dat_ep_free(b.ep));
    FILLS(b.ep, dat_ep_create(ia, pz, b.dto, b.dto, b.conn, NULL, out));
    FILLS(psp, dat_psp_create_any(ia, qual_out, b.conn, DAT_PSP_CONSUMER_FLAG, out));
    memcpy(&qual, qual_out, sizeof qual);
    FILLS(psp_param, dat_psp_query(psp, DAT_PSP_FIELD_ALL, out));
    NEED(psp_param.conn_qual == qual);

    CHECK(dat_ep_connect(a.ep, (DAT_IA_ADDRESS_PTR)(void *)AT(address), qual, PATIENCE, sizeof hello, AT(hello),
                         DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(b.conn, DAT_CONNECTION_REQUEST_EVENT);
    FILLS(request, dat_cr_query(event.event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, out));
    NEED(request.private_data_size >= (DAT_COUNT)sizeof hello && !memcmp(request.private_data, hello, sizeof hello));
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b.ep, sizeof hello, AT(hello)));
    event = next(a.conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    NEED(!memcmp(event.event_data.connect_event_data.private_data, hello, sizeof hello));
    next(b.conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    transfers(&a, &b);
    window(ia, pz, &a, &b);
#ifndef UDAPL_1_2
    only_in_2_0(name, ia, &a, &b);
#endif
    CHECK(dat_ep_disconnect(a.ep, DAT_CLOSE_ABRUPT_FLAG));
    next(a.conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    next(b.conn, DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    free(a.memory);
    free(b.memory);
}

int main(int argc, char **argv)
{
    static const size_t offsets[] = {4, 1, 2, 7};
    size_t i;
    NEED(argc == 2);
    alarm(100);
    for (i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        offset = offsets[i];
        flow(argv[1]);
    }
    printf("odd_addresses: PASS uDAPL %d.%d\n", DAT_VERSION_MAJOR, DAT_VERSION_MINOR);
    return 0;
}
