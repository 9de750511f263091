/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program of uDAPL 2.0, both ends in one file. The server lends its memory, the client writes a text into it by RDMA and
 * says so in a message, the server answers, the client disconnects. Every call is checked, and the end is orderly.
 *
 *   make
 *   ./exchange softrxe-lo server                     prints its address and qualifier
 *   ./exchange softrxe-lo client 127.0.0.1 52817     in another terminal, with what the server printed
 */
#define _DEFAULT_SOURCE /* htobe64 */
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <dat2/udat.h>

enum {
    WINDOW = 4096,       /* bytes of the server's memory that the client may write */
    MESSAGE = 64,        /* bytes of a message */
    QUEUE = 8,           /* events that an EVD has room for */
    SECONDS = 10,        /* limit for an answer of the peer */
};

/* Cookies come back in the completion, and say which post it belongs to. */
enum { RECEIVE = 1, SEND, WRITE };

/* What the peer needs in order to write: the numbers of a DAT_RMR_TRIPLET, in network byte order. Here they have the layout of
 * `Remote` in the Rust API, and fit into the private data of the accept. */
struct lent {
    uint64_t address;
    uint32_t length, rmr_context;
};

/* The program's memory, in one registered region: first the window, then a message to receive, then one to send. */
static struct memory {
    char window[WINDOW], incoming[MESSAGE], outgoing[MESSAGE];
} memory;

static DAT_IA_HANDLE ia;
static DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL; /* the open then makes one, which the close of the IA frees */
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE dto_evd, connection_evd, request_evd;
static DAT_EP_HANDLE ep;
static DAT_LMR_HANDLE lmr;
static DAT_LMR_CONTEXT lmr_context; /* for our own posts */
static DAT_RMR_CONTEXT rmr_context; /* for the peer's RDMA */

struct name {
    int number;
    const char *name;
};
#define NAME(number) {number, #number}

/* The events that this program may meet. */
static const struct name EVENTS[] = {
    NAME(DAT_DTO_COMPLETION_EVENT),
    NAME(DAT_CONNECTION_REQUEST_EVENT),
    NAME(DAT_CONNECTION_EVENT_ESTABLISHED),
    NAME(DAT_CONNECTION_EVENT_PEER_REJECTED),
    NAME(DAT_CONNECTION_EVENT_NON_PEER_REJECTED),
    NAME(DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR),
    NAME(DAT_CONNECTION_EVENT_DISCONNECTED),
    NAME(DAT_CONNECTION_EVENT_BROKEN),
    NAME(DAT_CONNECTION_EVENT_TIMED_OUT),
    NAME(DAT_CONNECTION_EVENT_UNREACHABLE),
    {0, NULL},
};

static const struct name STATUSES[] = {
    NAME(DAT_DTO_ERR_FLUSHED),
    NAME(DAT_DTO_ERR_LOCAL_LENGTH),
    NAME(DAT_DTO_ERR_LOCAL_EP),
    NAME(DAT_DTO_ERR_LOCAL_PROTECTION),
    NAME(DAT_DTO_ERR_BAD_RESPONSE),
    NAME(DAT_DTO_ERR_REMOTE_ACCESS),
    NAME(DAT_DTO_ERR_REMOTE_RESPONDER),
    NAME(DAT_DTO_ERR_TRANSPORT),
    NAME(DAT_DTO_ERR_RECEIVER_NOT_READY),
    NAME(DAT_DTO_ERR_PARTIAL_PACKET),
    {0, NULL},
};

static const char *name_of(const struct name *known, int number)
{
    static char other[16];
    for (; known->name; known++)
        if (known->number == number)
            return known->name;
    snprintf(other, sizeof other, "%#x", (unsigned)number);
    return other;
}

/* Ends the program after a call that failed. The library then ends the connection, and the peer gets an event. */
static void must(const char *call, DAT_RETURN code)
{
    const char *type = "?", *subtype = "?";
    if (code == DAT_SUCCESS)
        return;
    dat_strerror(code, &type, &subtype);
    fprintf(stderr, "exchange: %s: %s%s%s; DAT_LOG=warn may say more\n", call, type, *subtype ? ", " : "", subtype);
    exit(1);
}

static void fail(const char *what, const char *which)
{
    fprintf(stderr, "exchange: %s: %s\n", what, which);
    exit(1);
}

/* Waits for the next event of an EVD. A signal ends a wait too: then it waits again. */
static DAT_EVENT next(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN code;
    do
        code = dat_evd_wait(evd, timeout, 1, &event, &more);
    while (DAT_GET_TYPE(code) == DAT_INTERRUPTED_CALL);
    must("dat_evd_wait", code);
    return event;
}

/* Waits for the next event of an EVD, which must have this number. */
static DAT_EVENT wait_for(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event = next(evd, timeout);
    if (event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED)
        fail("nothing listens there", name_of(EVENTS, event.event_number));
    if (event.event_number != number) {
        fprintf(stderr, "exchange: waits for %s, ", name_of(EVENTS, number));
        fail("but there came", name_of(EVENTS, event.event_number));
    }
    return event;
}

/* Waits for the end of the connection. It is orderly if both ends live, else broken or disconnected, as one of them notices. */
static void wait_for_the_end(void)
{
    DAT_EVENT event = next(connection_evd, SECONDS * 1000000);
    if (event.event_number == DAT_CONNECTION_EVENT_BROKEN)
        printf("the connection broke\n");
    else if (event.event_number != DAT_CONNECTION_EVENT_DISCONNECTED)
        fail("another event than the end", name_of(EVENTS, event.event_number));
}

/* Waits for the completion with this cookie. Receives and requests share the EVD, so the other one may come first. */
static void complete(uint64_t cookie)
{
    static unsigned early;
    while (!(early & 1u << cookie)) {
        DAT_EVENT event = wait_for(dto_evd, SECONDS * 1000000, DAT_DTO_COMPLETION_EVENT);
        DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
        /* The call that posted succeeded; what became of the transfer is said here. */
        if (dto->status == DAT_DTO_ERR_FLUSHED)
            fail("the connection ended", name_of(EVENTS, next(connection_evd, SECONDS * 1000000).event_number));
        if (dto->status != DAT_DTO_SUCCESS)
            fail("a transfer failed", name_of(STATUSES, dto->status));
        early |= 1u << dto->user_cookie.as_64;
    }
    early &= ~(1u << cookie);
}

static DAT_LMR_TRIPLET local(char *start, size_t length)
{
    DAT_LMR_TRIPLET segment = {
        .virtual_address = (uintptr_t)start, .segment_length = length, .lmr_context = lmr_context};
    return segment;
}

static void receive(void)
{
    DAT_LMR_TRIPLET segment = local(memory.incoming, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = RECEIVE};
    must("dat_ep_post_recv", dat_ep_post_recv(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* The memory belongs to the transfer until it completes: it must not be changed or freed before. */
static void say(const char *text)
{
    DAT_LMR_TRIPLET segment = local(memory.outgoing, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = SEND};
    snprintf(memory.outgoing, MESSAGE, "%s", text);
    must("dat_ep_post_send", dat_ep_post_send(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void create(const char *name)
{
    DAT_REGION_DESCRIPTION region = {.for_va = &memory};
    must("dat_ia_open", dat_ia_open((char *)name, QUEUE, &async_evd, &ia));
    must("dat_pz_create", dat_pz_create(ia, &pz));
    must("dat_lmr_create",
         dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz,
                        DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
                        DAT_VA_TYPE_VA, &lmr, &lmr_context, &rmr_context, NULL, NULL));
    must("dat_evd_create", dat_evd_create(ia, QUEUE, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &dto_evd));
    must("dat_evd_create", dat_evd_create(ia, QUEUE, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connection_evd));
    must("dat_evd_create", dat_evd_create(ia, QUEUE, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &request_evd));
    must("dat_ep_create", dat_ep_create(ia, pz, dto_evd, dto_evd, connection_evd, NULL, &ep));
    /* Before the connection exists, so that no message of the peer comes without a receive. */
    receive();
}

/* Frees what create made: each object before those that it uses. docs/c-programs.md has the order of all kinds. */
static void destroy(void)
{
    must("dat_ep_free", dat_ep_free(ep));
    must("dat_lmr_free", dat_lmr_free(lmr));
    must("dat_pz_free", dat_pz_free(pz));
    must("dat_evd_free", dat_evd_free(dto_evd));
    must("dat_evd_free", dat_evd_free(connection_evd));
    must("dat_evd_free", dat_evd_free(request_evd));
    /* Graceful: it would say DAT_INVALID_STATE if an object were left. */
    must("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static void serve(void)
{
    struct lent lent = {htobe64((uintptr_t)memory.window), htonl(WINDOW), htonl(rmr_context)};
    char host[NI_MAXHOST] = "?";
    DAT_CONN_QUAL qualifier = 0;
    DAT_PSP_HANDLE psp;
    DAT_CR_HANDLE request;
    DAT_IA_ATTR attributes;
    DAT_EVENT event;

    must("dat_psp_create_any", dat_psp_create_any(ia, &qualifier, request_evd, DAT_PSP_CONSUMER_FLAG, &psp));
    must("dat_ia_query", dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attributes, DAT_PROVIDER_FIELD_NONE, NULL));
    getnameinfo(attributes.ia_address_ptr, sizeof(struct sockaddr_in6), host, sizeof host, NULL, 0, NI_NUMERICHOST);
    printf("listens %s %llu\n", host, (unsigned long long)qualifier);
    fflush(stdout);

    event = wait_for(request_evd, DAT_TIMEOUT_INFINITE, DAT_CONNECTION_REQUEST_EVENT);
    request = event.event_data.cr_arrival_event_data.cr_handle;
    /* The accept consumes the request: its handle is dead afterwards. */
    must("dat_cr_accept", dat_cr_accept(request, ep, sizeof lent, &lent));
    wait_for(connection_evd, SECONDS * 1000000, DAT_CONNECTION_EVENT_ESTABLISHED);
    /* This server has one client. Those that call now are refused. */
    must("dat_psp_free", dat_psp_free(psp));

    /* The client wrote before it sent, and both arrive in order: with the message the window has its text. */
    complete(RECEIVE);
    memory.incoming[MESSAGE - 1] = memory.window[WINDOW - 1] = 0;
    printf("the client wrote \"%s\" and said \"%s\"\n", memory.window, memory.incoming);
    say("thank you");
    complete(SEND);
    wait_for_the_end();
}

/* Reads a connection qualifier, a number from 1 on. */
static DAT_CONN_QUAL qualifier_of(const char *word)
{
    char *end;
    DAT_CONN_QUAL number;
    errno = 0;
    number = strtoull(word, &end, 0);
    if (!isdigit((unsigned char)*word) || *end || errno || number == 0)
        fail("not a connection qualifier", word);
    return number;
}

static void call(const char *host, DAT_CONN_QUAL qualifier)
{
    static const char TEXT[] = "written by RDMA";
    DAT_RMR_TRIPLET remote = {0};
    DAT_LMR_TRIPLET segment = local(memory.window, sizeof TEXT);
    DAT_DTO_COOKIE cookie = {.as_64 = WRITE};
    struct addrinfo *address;
    struct lent lent;
    DAT_EVENT event;
    int wrong = getaddrinfo(host, NULL, NULL, &address);

    if (wrong)
        fail(host, gai_strerror(wrong));
    must("dat_ep_connect", dat_ep_connect(ep, address->ai_addr, qualifier, SECONDS * 1000000, 0, NULL,
                                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    freeaddrinfo(address);
    event = wait_for(connection_evd, SECONDS * 1000000, DAT_CONNECTION_EVENT_ESTABLISHED);
    /* Transports may pad private data: it is at least as long as what the peer passed. */
    if (event.event_data.connect_event_data.private_data_size < (DAT_COUNT)sizeof lent)
        fail("the server sent too little private data", "another program?");
    memcpy(&lent, event.event_data.connect_event_data.private_data, sizeof lent);
    remote.rmr_context = ntohl(lent.rmr_context);
    remote.virtual_address = be64toh(lent.address);
    remote.segment_length = ntohl(lent.length);

    memcpy(memory.window, TEXT, sizeof TEXT);
    must("dat_ep_post_rdma_write",
         dat_ep_post_rdma_write(ep, 1, &segment, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    say("look");
    complete(WRITE);
    complete(SEND);
    complete(RECEIVE);
    memory.incoming[MESSAGE - 1] = 0;
    printf("the server answered \"%s\"\n", memory.incoming);

    must("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
    wait_for_the_end();
}

int main(int count, char **words)
{
    const int server = count == 3 && !strcmp(words[2], "server");
    const int client = count == 5 && !strcmp(words[2], "client");
    DAT_CONN_QUAL qualifier;
    if (!server && !client) {
        fprintf(stderr, "usage: exchange IA server\n       exchange IA client ADDRESS QUALIFIER\n");
        return 2;
    }
    qualifier = client ? qualifier_of(words[4]) : 0;
    create(words[1]);
    if (server)
        serve();
    else
        call(words[3], qualifier);
    destroy();
    return 0;
}
