/* Eager messages by RDMA writes into a ring in the receiver's memory. The receiver gets no event: it polls the
 * head of the next slot, and then the byte after the data, which is written last. */
#include "job.h"
#include <sys/mman.h>

#define TRAIL(sequence) ((unsigned char)((sequence) % 255 + 1))

/* Shared memory as in rdssm, where ranks of one host would use it directly. */
static struct memory {
    unsigned char slots[RANKS][SLOTS][SLOT]; /* written by each peer */
    uint64_t consumed[RANKS];                /* also: how many messages it has taken from us */
    unsigned char staging[RANKS][SLOTS][SLOT];
    uint64_t credits[RANKS][SLOTS];
} *memory;
static struct region region;

static void begin(void)
{
    memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(memory != MAP_FAILED);
    region_make(&region, memory, sizeof *memory, DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_WRITE_FLAG);
    NEED(region.remote != 0);
}

struct hello ring_hello(void)
{
    struct hello mine;
    memset(&mine, 0, sizeof mine);
    if (memory) {
        mine.ring = (uintptr_t)memory;
        mine.key = region.remote;
    }
    return mine;
}

static void connected(struct peer *peer)
{
    (void)peer;
}

/* `at` is the address in our memory, `there` the corresponding address in the peer's. */
static void write_there(struct peer *peer, const void *at, const void *there, size_t length)
{
    DAT_LMR_TRIPLET local = segment(&region, at, length);
    DAT_RMR_TRIPLET remote = {.REMOTE_ADDRESS = peer->theirs.ring + ((const char *)there - (const char *)memory),
                              .segment_length = length,
                              .rmr_context = peer->theirs.key};
    DAT_DTO_COOKIE cookie = {.as_64 = 0x10000 + length};
    CHECK(CALL(peer->ep, ep_post_rdma_write, 1, &local, cookie, &remote, completion_flags(peer)));
}

static void put(struct peer *peer, const struct header *header, const void *data)
{
    unsigned slot = header->sequence % SLOTS;
    unsigned char *staging = memory->staging[peer - peers][slot];
    NEED(sizeof *header + header->length < SLOT);
    memcpy(staging, header, sizeof *header);
    memcpy(staging + sizeof *header, data, header->length);
    staging[sizeof *header + header->length] = TRAIL(header->sequence);
    write_there(peer, staging, memory->slots[rank][slot], sizeof *header + header->length + 1);
}

static void completed(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *data = &event->event_data.dto_completion_event_data;
    NEED(event->event_number == DAT_DTO_COMPLETION_EVENT);
    if (ending && data->status == DAT_DTO_ERR_FLUSHED)
        return;
    NEED(data->status == DAT_DTO_SUCCESS);
    if (data->user_cookie.as_64 < 0x10000)
        rendezvous_completed(event);
    else
        NEED(data->transfered_length == data->user_cookie.as_64 - 0x10000);
}

static unsigned look(struct peer *peer)
{
    int from = peer - peers;
    unsigned char *slot = memory->slots[from][peer->taken % SLOTS];
    volatile struct header *there = (volatile struct header *)slot;
    struct header header;
    uint64_t consumed = *(volatile uint64_t *)&memory->consumed[from];
    if (consumed > peer->consumed)
        peer->consumed = consumed;
    /* The kind is written before the data, the trail after them. */
    if (there->kind == 0)
        return 0;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    memcpy(&header, slot, sizeof header);
    NEED(sizeof header + header.length < SLOT);
    if (*(volatile unsigned char *)(slot + sizeof header + header.length) != TRAIL(peer->taken))
        return 0;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    deliver(peer, &header, slot + sizeof header);
    /* Clears the places of the next head and the next trail, too. */
    memset(slot, 0, sizeof header + header.length + 1);
    return 1;
}

static void credit(struct peer *peer)
{
    uint64_t *credit = &memory->credits[peer - peers][peer->told / (SLOTS / 2) % SLOTS];
    *credit = peer->told;
    write_there(peer, credit, &memory->consumed[rank], sizeof *credit);
}

static void end(void)
{
    /* The region is freed first, as Intel MPI does; the endpoints are disconnected. */
    CHECK(CALL(region.lmr, lmr_free));
    for (int i = 0; i < RANKS; i++)
        if (peers[i].ep != DAT_HANDLE_NULL)
            CHECK(CALL(peers[i].ep, ep_free));
    NEED(!munmap(memory, sizeof *memory));
    memory = NULL;
}

const struct carrier ring = {begin, connected, put, completed, look, credit, end};
