/* Connections between ranks: the rank with the first message connects, the other accepts, also when both connect
 * at once; and the queue of messages that arrived before they were received. */
#include "job.h"

#define MAGIC 0x4d504931

struct peer peers[RANKS];
const struct carrier *carrier;
unsigned collisions;
int ending;

void peers_begin(void)
{
    for (int i = 0; i < RANKS; i++)
        peers[i] = (struct peer){.ep = DAT_HANDLE_NULL, .asking = DAT_HANDLE_NULL, .last = &peers[i].first};
    carrier->begin();
}

static void hello(struct hello *mine)
{
    *mine = ring_hello();
    mine->magic = MAGIC;
    mine->rank = rank;
    mine->reserved = 0;
}

static void endpoint_of(struct peer *peer)
{
    if (peer->ep != DAT_HANDLE_NULL)
        return;
    peer->ep = endpoint_make();
    carrier->connected(peer);
}

void connect_to(struct peer *peer)
{
    const struct card *card = &board->cards[peer - peers];
    struct hello mine;
    NEED(peer->state == APART);
    hello(&mine);
    endpoint_of(peer);
    CHECK(CALL(peer->ep, ep_connect, (DAT_IA_ADDRESS_PTR)&card->address, card->qual, DAT_TIMEOUT_INFINITE, sizeof mine, &mine,
               DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    peer->state = CONNECTING;
}

static void accept_from(struct peer *peer, DAT_CR_HANDLE cr)
{
    struct hello mine;
    hello(&mine);
    endpoint_of(peer);
    CHECK(CALL(cr, cr_accept, peer->ep, sizeof mine, &mine));
    peer->state = CONNECTING;
    peer->asking = DAT_HANDLE_NULL;
}

/* If both connect, the request of the lower rank counts. */
static void asked(DAT_CR_HANDLE cr)
{
    DAT_CR_PARAM param;
    CHECK(CALL(cr, cr_query, DAT_CR_FIELD_ALL, &param));
    const struct hello *theirs = param.private_data;
    NEED(param.private_data_size >= (DAT_COUNT)sizeof *theirs && theirs->magic == MAGIC && theirs->rank < RANKS);
    struct peer *peer = &peers[theirs->rank];
    peer->theirs = *theirs;
    if (peer->state == APART) {
        accept_from(peer, cr);
    } else if (rank < (int)theirs->rank) {
        NEED(peer->state == CONNECTING || peer->state == CONNECTED);
        collisions++;
        CHECK(CR_REJECT(cr));
    } else {
        NEED(peer->state == CONNECTING && peer->asking == DAT_HANDLE_NULL);
        peer->asking = cr;
    }
}

static struct peer *peer_of(DAT_EP_HANDLE ep)
{
    for (int i = 0; i < RANKS; i++)
        if (peers[i].ep == ep)
            return &peers[i];
    fail(__FILE__, __LINE__, "an endpoint of ours", DAT_SUCCESS);
}

/* Our own request lost against the peer's, which waits or will come. */
static void turned_away(struct peer *peer)
{
    NEED(rank > peer - peers && peer->state == CONNECTING);
    CHECK(CALL(peer->ep, ep_reset));
    peer->state = APART;
    peer->turned_away = 1;
    carrier->connected(peer);
    if (peer->asking != DAT_HANDLE_NULL)
        accept_from(peer, peer->asking);
}

static void connection_event(const DAT_EVENT *event)
{
    const DAT_CONNECTION_EVENT_DATA *data = &event->event_data.connect_event_data;
    struct peer *peer;
    switch ((int)event->event_number) {
    case DAT_CONNECTION_REQUEST_EVENT: asked(event->event_data.cr_arrival_event_data.cr_handle); break;
    case DAT_CONNECTION_EVENT_ESTABLISHED:
        peer = peer_of(data->ep_handle);
        NEED(peer->state == CONNECTING);
        /* The active side finds the peer's ring in the answer. */
        if (data->private_data_size >= (DAT_COUNT)sizeof peer->theirs)
            memcpy(&peer->theirs, data->private_data, sizeof peer->theirs);
        NEED(peer->theirs.magic == MAGIC && peer->theirs.rank == peer - peers);
        peer->state = CONNECTED;
        break;
    case DAT_CONNECTION_EVENT_PEER_REJECTED: turned_away(peer_of(data->ep_handle)); break;
    case DAT_CONNECTION_EVENT_DISCONNECTED: peer_of(data->ep_handle)->state = GONE; break;
    default:
#ifndef UDAPL_1_2
        if (mode == UD) {
            datagrams_event(event);
            break;
        }
#endif
        fprintf(stderr, "event %#x\n", event->event_number);
        NEED(!"a connection event that may come");
    }
}

unsigned progress(void)
{
    DAT_EVENT event;
    DAT_RETURN code;
    unsigned done = 0;
    while ((code = CALL(adapter.conn, evd_dequeue, &event)) == DAT_SUCCESS) {
        connection_event(&event);
        done++;
    }
    NEED(DAT_GET_TYPE(code) == DAT_QUEUE_EMPTY);
    while ((code = CALL(adapter.dto, evd_dequeue, &event)) == DAT_SUCCESS) {
        carrier->completed(&event);
        done++;
    }
    NEED(DAT_GET_TYPE(code) == DAT_QUEUE_EMPTY);
    for (struct peer *peer = peers; peer < peers + RANKS; peer++) {
        if (peer->ep == DAT_HANDLE_NULL)
            continue;
        done += carrier->look(peer);
        if (carrier->credit && peer->state == CONNECTED && peer->taken - peer->told >= SLOTS / 2) {
            peer->told = peer->taken;
            carrier->credit(peer);
        }
    }
    NEED(done || !__atomic_load_n(&board->failed, __ATOMIC_SEQ_CST));
    return done;
}

void deliver(struct peer *peer, const struct header *header, const void *data)
{
    if (header->consumed > peer->consumed)
        peer->consumed = header->consumed;
    if (header->kind == CREDIT)
        return;
    NEED(header->sequence == peer->taken);
    peer->taken++;
    if (header->kind == FINISHED) {
        peer->finished++;
    } else {
        struct message *message = malloc(sizeof *message + header->length);
        *message = (struct message){.length = header->length, .kind = header->kind};
        memcpy(message->data, data, header->length);
        *peer->last = message;
        peer->last = &message->next;
    }
}

void post(struct peer *peer, enum kind kind, const void *data, size_t length)
{
    if (mode != UD && peer->state == APART && !peer->turned_away)
        connect_to(peer);
    if (mode != UD)
        UNTIL(peer->state == CONNECTED && peer->sent - peer->consumed < SLOTS);
    struct header header = {.length = length, .kind = kind, .sequence = peer->sent, .consumed = peer->taken};
    peer->told = peer->taken;
    carrier->put(peer, &header, data);
    peer->sent++;
}

DAT_COMPLETION_FLAGS completion_flags(struct peer *peer)
{
    return ++peer->posts % 32 ? DAT_COMPLETION_SUPPRESS_FLAG : DAT_COMPLETION_DEFAULT_FLAG;
}

/* The lower rank of each pair disconnects; both get the event. */
void peers_end(void)
{
    for (int i = rank + 1; i < RANKS; i++)
        if (peers[i].state == CONNECTED && mode != UD)
            CHECK(CALL(peers[i].ep, ep_disconnect, DAT_CLOSE_ABRUPT_FLAG));
    for (int i = 0; i < RANKS; i++)
        if (mode != UD)
            UNTIL(peers[i].state == APART || peers[i].state == GONE);
    rendezvous_end();
    carrier->end();
    for (int i = 0; i < RANKS; i++)
        NEED(!peers[i].first);
}
