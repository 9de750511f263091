/* Eager messages by unreliable datagrams of the IB extension: one endpoint for all peers, an address handle for
 * each. Lost datagrams are not repeated by the provider, so each message is acknowledged, one at a time, and sent
 * again after a timeout. */
#ifndef UDAPL_1_2
#include "job.h"
#include <stdarg.h>

enum { RECEIVES = 48, ROUTE = 40 /* the global route header before the message */ };

static struct memory {
    unsigned char receives[RECEIVES][ROUTE + 4096];
    unsigned char staging[RANKS][4096];
    struct header acknowledges[SLOTS];
} *memory;
static struct region region;
static DAT_EP_HANDLE ep;
static DAT_IB_ADDR_HANDLE to[RANKS];
static int known[RANKS];
static uint64_t acknowledged[RANKS], number;
static struct header late[RANKS * SLOTS];
static unsigned answers;

/* Calls the provider's slot with the list of arguments, like dat_extension_op. */
static DAT_RETURN extended(DAT_HANDLE handle, DAT_EXTENDED_OP op, ...)
{
    va_list arguments;
    va_start(arguments, op);
    DAT_RETURN code = TABLE(handle)->handle_extendedop_func(handle, op, arguments);
    va_end(arguments);
    return code;
}

static void receive(unsigned number)
{
    DAT_LMR_TRIPLET local = segment(&region, memory->receives[number], ROUTE + adapter.mtu);
    DAT_DTO_COOKIE cookie = {.as_64 = number};
    CHECK(CALL(ep, ep_post_recv, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Connects to every other rank, which only resolves its address handle. */
static void begin(void)
{
    memory = calloc(1, sizeof *memory);
    NEED(memory);
    region_make(&region, memory, sizeof *memory, DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    ep = endpoint_make();
    for (unsigned i = 0; i < RECEIVES; i++)
        receive(i);
    for (int i = 0; i < RANKS; i++)
        peers[i].ep = i == rank ? DAT_HANDLE_NULL : ep;
}

static void find_all(void)
{
    static int asked;
    uint32_t mine = rank;
    for (int i = 0; i < RANKS && !asked; i++)
        if (i != rank)
            CHECK(CALL(ep, ep_connect, (DAT_IA_ADDRESS_PTR)&board->cards[i].address, board->cards[i].qual, DAT_TIMEOUT_INFINITE,
                       sizeof mine, &mine, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    asked = 1;
}

void datagrams_event(const DAT_EVENT *event)
{
    const DAT_CONNECTION_EVENT_DATA *data = &event->event_data.connect_event_data;
    const DAT_IB_EXTENSION_EVENT_DATA *more = (const DAT_IB_EXTENSION_EVENT_DATA *)event->event_extension_data;
    uint32_t who = rank;
    if ((int)event->event_number == DAT_IB_UD_CONNECTION_REQUEST_EVENT) {
        CHECK(CALL(event->event_data.cr_arrival_event_data.cr_handle, cr_accept, ep, sizeof who, &who));
        return;
    }
    NEED((int)event->event_number == DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED && data->ep_handle == ep);
    if (more->type == DAT_IB_UD_PASSIVE_REMOTE_AH) {
        /* Each rank uses the address handles that it resolved. */
        DAT_IB_ADDR_HANDLE handle = more->remote_ah;
        CHECK(extended(ep, DAT_IB_UD_AH_FREE_OP, &handle));
        return;
    }
    NEED(more->type == DAT_IB_UD_REMOTE_AH && data->private_data_size >= (DAT_COUNT)sizeof who);
    memcpy(&who, data->private_data, sizeof who);
    NEED(who < RANKS && !known[who]);
    to[who] = more->remote_ah;
    known[who] = 1;
}

static void send_to(int peer, const void *at, size_t length)
{
    DAT_LMR_TRIPLET local = segment(&region, at, length);
    DAT_DTO_COOKIE cookie = {.as_64 = 0x10000};
    CHECK(extended(ep, DAT_IB_UD_SEND_OP, (DAT_COUNT)1, &local, &to[peer], cookie, (DAT_COMPLETION_FLAGS)DAT_COMPLETION_DEFAULT_FLAG));
}

static void put(struct peer *peer, const struct header *header, const void *data)
{
    int who = peer - peers;
    unsigned char *staging = memory->staging[who];
    struct header signed_ = *header;
    /* A datagram's completion does not name its sender. */
    signed_.consumed = rank;
    find_all();
    UNTIL(known[who]);
    NEED(sizeof signed_ + header->length <= adapter.mtu);
    memcpy(staging, &signed_, sizeof signed_);
    memcpy(staging + sizeof signed_, data, header->length);
    while (acknowledged[who] <= header->sequence) {
        double again = now() + 0.2;
        send_to(who, staging, sizeof signed_ + header->length);
        UNTIL(acknowledged[who] > header->sequence || now() > again);
    }
}

static void arrived(const struct header *header, const void *data)
{
    struct peer *peer = &peers[header->consumed];
    NEED(header->consumed < RANKS && (int)header->consumed != rank);
    if (header->kind == ACKNOWLEDGE) {
        acknowledged[header->consumed] = header->sequence + 1;
        return;
    }
    struct header answer = {.kind = ACKNOWLEDGE, .sequence = header->sequence, .consumed = rank};
    NEED(answers < RANKS * SLOTS);
    late[answers++] = answer;
    late[answers - 1].length = header->consumed;
    if (header->sequence == peer->taken) {
        struct header plain = *header;
        plain.consumed = 0;
        deliver(peer, &plain, data);
    } else {
        NEED(header->sequence < peer->taken);
    }
}

static void completed(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *data = &event->event_data.dto_completion_event_data;
    const DAT_IB_EXTENSION_EVENT_DATA *more = (const DAT_IB_EXTENSION_EVENT_DATA *)event->event_extension_data;
    NEED((int)event->event_number == DAT_IB_DTO_EVENT && data->status == DAT_DTO_SUCCESS);
    if (more->type == DAT_IB_UD_SEND)
        return;
    NEED(more->type == DAT_IB_UD_RECV && data->user_cookie.as_64 < RECEIVES);
    const unsigned char *packet = memory->receives[data->user_cookie.as_64] + ROUTE;
    struct header header;
    memcpy(&header, packet, sizeof header);
    NEED(header.kind == ACKNOWLEDGE || data->transfered_length == ROUTE + sizeof header + header.length);
    arrived(&header, packet + sizeof header);
    receive(data->user_cookie.as_64);
}

/* Acknowledges arrived messages, once the sender's address is known. */
static unsigned look(struct peer *peer)
{
    unsigned done = 0;
    (void)peer;
    for (unsigned i = 0; i < answers;) {
        uint32_t who = late[i].length;
        find_all();
        if (!known[who]) {
            i++;
            continue;
        }
        struct header *answer = &memory->acknowledges[number++ % SLOTS];
        *answer = late[i];
        answer->length = 0;
        late[i] = late[--answers];
        send_to(who, answer, sizeof *answer);
        done++;
    }
    return done;
}

static void connected(struct peer *peer)
{
    (void)peer;
}

static void end(void)
{
    for (int i = 0; i < RANKS; i++)
        if (known[i])
            CHECK(extended(ep, DAT_IB_UD_AH_FREE_OP, &to[i]));
    CHECK(CALL(ep, ep_free));
    CHECK(CALL(region.lmr, lmr_free));
    free(memory);
}

const struct carrier datagrams = {begin, connected, put, completed, look, NULL, end};
#endif
