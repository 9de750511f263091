/* The mistakes of docs/c-programs.md, made: prints a row for each, with what the call returned or the completion said. The rows that
 * free something in the wrong order leave it as it was, so that the close at the end is graceful.
 *
 * usage: usual_mistakes IA-NAME
 */
#include <dat2/udat.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "need.h"

#define SECOND 1000000

struct side {
    DAT_EP_HANDLE ep;
    DAT_EVD_HANDLE dto, conn;
};

static char memory[4096];
static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE requests;
static DAT_LMR_HANDLE lmr;
static DAT_LMR_CONTEXT key;
static DAT_RMR_CONTEXT remote_key;
static DAT_IA_ATTR attr;

/* Prints a row: the mistake, the called function, the code's names. */
static void row(const char *mistake, const char *call, DAT_RETURN code)
{
    const char *type = "?", *subtype = "?";
    const char *end = strchr(call, '(');
    NEED(code != DAT_SUCCESS);
    dat_strerror(code, &type, &subtype);
    printf("| %s | `%.*s` | `%s`", mistake, (int)(end - call), call, type);
    if (DAT_GET_SUBTYPE(code))
        printf(", `%s`", subtype);
    printf(" |\n");
}
#define WRONG(mistake, call) row(mistake, #call, call)

static DAT_EVENT next(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(evd, 20 * SECOND, 1, &event, &more));
    NEED(event.event_number == number);
    return event;
}

/* Takes the event that the connection has ended: broken here, or ended by the peer, which was sooner. */
static void gone(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(evd, 20 * SECOND, 1, &event, &more));
    NEED(event.event_number == DAT_CONNECTION_EVENT_BROKEN || event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED);
}

/* Prints a row for a completion that failed. */
static void failed(const char *mistake, DAT_EVD_HANDLE evd, DAT_DTO_COMPLETION_STATUS status, const char *name)
{
    DAT_EVENT event = next(evd, DAT_DTO_COMPLETION_EVENT);
    NEED(event.event_data.dto_completion_event_data.status == status);
    printf("| %s | completion | `%s` |\n", mistake, name);
}

static struct side make(DAT_SRQ_HANDLE srq)
{
    struct side s;
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &s.dto));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &s.conn));
    if (srq) {
        DAT_EP_ATTR shared;
        memset(&shared, 0, sizeof shared);
        shared.max_message_size = shared.max_rdma_size = sizeof memory;
        shared.max_request_dtos = 4;
        shared.max_request_iov = shared.max_recv_iov = 1;
        CHECK(dat_ep_create_with_srq(ia, pz, s.dto, s.dto, s.conn, srq, &shared, &s.ep));
    } else {
        CHECK(dat_ep_create(ia, pz, s.dto, s.dto, s.conn, NULL, &s.ep));
    }
    return s;
}

static void unmake(struct side *s)
{
    CHECK(dat_ep_free(s->ep));
    CHECK(dat_evd_free(s->dto));
    CHECK(dat_evd_free(s->conn));
}

static DAT_LMR_TRIPLET piece(unsigned length)
{
    DAT_LMR_TRIPLET t = {.virtual_address = (uintptr_t)memory, .segment_length = length, .lmr_context = key};
    return t;
}

static const DAT_DTO_COOKIE cookie = {.as_64 = 1};

static void receive(struct side *s, unsigned length)
{
    DAT_LMR_TRIPLET segment = piece(length);
    CHECK(dat_ep_post_recv(s->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Connects a to b. The request was answered afterwards, so that its handle is dead. */
static DAT_CR_HANDLE join(struct side *a, struct side *b, DAT_CONN_QUAL qual)
{
    DAT_EVENT event;
    CHECK(dat_ep_connect(a->ep, attr.ia_address_ptr, qual, 20 * SECOND, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(requests, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b->ep, 0, NULL));
    next(a->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    next(b->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    return event.event_data.cr_arrival_event_data.cr_handle;
}

/* What cannot be freed yet, of two connected endpoints. */
static void order(struct side *a)
{
    DAT_LMR_TRIPLET range = piece(64);
    DAT_RMR_COOKIE bind = {.as_64 = 2};
    DAT_RMR_CONTEXT window;
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE notifies;
    DAT_RMR_HANDLE rmr;
    DAT_SRQ_HANDLE srq;
    DAT_RSP_HANDLE rsp;
    DAT_SRQ_ATTR size = {.max_recv_dtos = 4, .max_recv_iov = 1};
    struct side shared, reserved;
    int i;

    WRONG("an IA before any other object of it", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    WRONG("a PZ before an LMR, RMR, EP or SRQ in it", dat_pz_free(pz));
    WRONG("an EVD before an EP or service point that feeds it", dat_evd_free(a->dto));
    CHECK(dat_rmr_create(pz, &rmr));
    CHECK(dat_rmr_bind(rmr, lmr, &range, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, a->ep, bind, DAT_COMPLETION_DEFAULT_FLAG, &window));
    next(a->dto, DAT_RMR_BIND_COMPLETION_EVENT);
    WRONG("an LMR before an RMR that is bound to it", dat_lmr_free(lmr));
    CHECK(dat_rmr_free(rmr));
    CHECK(dat_srq_create(ia, pz, &size, &srq));
    for (i = 0; i < 4; i++)
        CHECK(dat_srq_post_recv(srq, 1, &range, cookie));
    WRONG("more receives than the SRQ's `max_recv_dtos`", dat_srq_post_recv(srq, 1, &range, cookie));
    shared = make(srq);
    WRONG("an SRQ before an EP on it", dat_srq_free(srq));
    unmake(&shared);
    CHECK(dat_srq_free(srq));
    CHECK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    CHECK(dat_evd_create(ia, 4, cno, DAT_EVD_DTO_FLAG, &notifies));
    WRONG("a CNO before an EVD that uses it", dat_cno_free(cno));
    CHECK(dat_evd_free(notifies));
    CHECK(dat_cno_free(cno));
    reserved = make(NULL);
    for (i = 0; i < 16; i++)
        receive(&reserved, 64);
    WRONG("a 17th receive of an EP without a `DAT_EP_ATTR`",
          dat_ep_post_recv(reserved.ep, 1, &range, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    CHECK(dat_rsp_create(ia, 4711, reserved.ep, requests, &rsp));
    WRONG("an EP before the RSP that it is reserved for", dat_ep_free(reserved.ep));
    CHECK(dat_rsp_free(rsp));
    unmake(&reserved);
    WRONG("an object twice", dat_ep_free(reserved.ep));
}

int main(int argc, char **argv)
{
    DAT_REGION_DESCRIPTION region;
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_RMR_TRIPLET there;
    DAT_LMR_TRIPLET segment;
    DAT_IA_HANDLE closed;
    DAT_PSP_HANDLE psp;
    DAT_CR_HANDLE answered;
    DAT_CONN_QUAL qual = 0;
    DAT_EVENT event;
    struct side a, b;

    NEED(argc == 2);
    alarm(60);
    async_evd = (DAT_EVD_HANDLE)0x1234; /* what a variable without a value may have */
    WRONG("an `async_evd` without a value", dat_ia_open(argv[1], 8, &async_evd, &ia));
    async_evd = DAT_HANDLE_NULL;
    CHECK(dat_ia_open(argv[1], 8, &async_evd, &ia));
    CHECK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_NONE, NULL));
    CHECK(dat_pz_create(ia, &pz));
    memset(&region, 0, sizeof region);
    region.for_va = memory;
    CHECK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &key,
                         &remote_key, NULL, NULL));
    CHECK(dat_evd_create(ia, 20, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests));
    CHECK(dat_psp_create_any(ia, &qual, requests, DAT_PSP_CONSUMER_FLAG, &psp));
    a = make(NULL);
    b = make(NULL);
    segment = piece(64);

    WRONG("an EVD that was created without the flag of its use",
          dat_ep_create(ia, pz, requests, requests, requests, NULL, &a.ep));
    WRONG("a send before the connection is established",
          dat_ep_post_send(a.ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    WRONG("a timeout of 0",
          dat_ep_connect(a.ep, attr.ia_address_ptr, qual, 0, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    answered = join(&a, &b, qual);
    WRONG("a CR after its answer", dat_cr_reject(answered, 0, NULL));
    order(&a);

    receive(&b, 16);
    CHECK(dat_ep_post_send(a.ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    failed("a message that is longer than the receive, at the receiver", b.dto, DAT_DTO_ERR_LOCAL_LENGTH, "DAT_DTO_ERR_LOCAL_LENGTH");
    failed("a message that is longer than the receive, at the sender", a.dto, DAT_DTO_ERR_REMOTE_RESPONDER, "DAT_DTO_ERR_REMOTE_RESPONDER");
    gone(a.conn);
    gone(b.conn);
    WRONG("another connection of an EP without dat_ep_reset",
          dat_ep_connect(a.ep, attr.ia_address_ptr, qual, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    CHECK(dat_ep_reset(a.ep));
    CHECK(dat_ep_reset(b.ep));
    join(&a, &b, qual);
    memset(&there, 0, sizeof there);
    there.virtual_address = (uintptr_t)memory;
    there.segment_length = 64;
    there.rmr_context = remote_key ^ 0x100;
    CHECK(dat_ep_post_rdma_write(a.ep, 1, &segment, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    failed("RDMA with a key or a range that the peer has not lent", a.dto, DAT_DTO_ERR_REMOTE_ACCESS, "DAT_DTO_ERR_REMOTE_ACCESS");
    gone(a.conn);
    gone(b.conn);
    CHECK(dat_ep_reset(a.ep));
    CHECK(dat_ep_reset(b.ep));
    join(&a, &b, qual);
    segment.lmr_context ^= 0x100;
    CHECK(dat_ep_post_send(a.ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    failed("a post with a wrong key of the own memory", a.dto, DAT_DTO_ERR_LOCAL_PROTECTION, "DAT_DTO_ERR_LOCAL_PROTECTION");
    segment.lmr_context ^= 0x100;
    gone(a.conn);
    CHECK(dat_ep_post_send(a.ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    failed("a post after the connection has ended", a.dto, DAT_DTO_ERR_FLUSHED, "DAT_DTO_ERR_FLUSHED");

    /* Requests whose caller has given up: one is accepted, nobody answers the other. */
    gone(b.conn);
    CHECK(dat_ep_reset(a.ep));
    CHECK(dat_ep_reset(b.ep));
    CHECK(dat_ep_connect(a.ep, attr.ia_address_ptr, qual, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(requests, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_ep_disconnect(a.ep, DAT_CLOSE_ABRUPT_FLAG));
    gone(a.conn);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b.ep, 0, NULL));
    next(b.conn, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    printf("| an accept after the caller has died or given up | event | `DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR` |\n");
    CHECK(dat_ep_reset(a.ep));
    CHECK(dat_ep_reset(b.ep));
    CHECK(dat_ep_connect(a.ep, attr.ia_address_ptr, qual, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next(requests, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_ep_disconnect(a.ep, DAT_CLOSE_ABRUPT_FLAG));
    CHECK(dat_psp_free(psp));
    unmake(&a);
    unmake(&b);
    CHECK(dat_lmr_free(lmr));
    CHECK(dat_pz_free(pz));
    CHECK(dat_evd_free(requests));
    WRONG("an IA with a CR that is neither accepted nor rejected", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    CHECK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
    CHECK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    WRONG("an IA twice", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));

    /* The next IA has the number of the closed one. */
    closed = ia;
    async_evd = DAT_HANDLE_NULL;
    CHECK(dat_ia_open(argv[1], 8, &async_evd, &ia));
    NEED(ia == closed);
    CHECK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    return 0;
}
