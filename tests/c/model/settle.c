#include "settle.h"

#include <time.h>
#include <unistd.h>

#include "events.h"
#include "posts.h"
#include "report.h"
#include "rxe.h"

/* In seconds. An accepted attempt whose peer is gone ends after 28. */
#define LONGEST 60.0

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Returns whether all messages to endpoints of the SRQ find a receive. */
static bool suffices(const struct object *srq)
{
    int i, needed = 0;
    for (i = 0; i < post_count; i++) {
        const struct object *peer = posts[i].progress == OUTSTANDING && is_message(&posts[i]) ? peer_of(posts[i].ep) : NULL;
        needed += peer && peer->of.ep.srq == srq;
    }
    return srq->of.srq.posted >= needed;
}

/* Returns the first request of a connected endpoint that can complete now: the peer has receives for the messages before it. */
static const struct post *runnable(const struct object *ep, const struct object *peer)
{
    const struct object *srq = peer->of.ep.srq;
    int receives = srq ? (suffices(srq) ? MAX_POSTS : 0) : peer->of.ep.outstanding[RECEIVES];
    const struct post *post;
    for (post = ep->of.ep.oldest[REQUESTS]; post; post = post->next) {
        if (rxe_may_be_stuck(post))
            return NULL;
        if (is_message(post) && receives-- <= 0)
            return NULL;
        if (!post->suppressed)
            return post;
    }
    return NULL;
}

/* The post that is owed, or NULL. */
static const struct post *owed_post;

/* Returns what a disconnected endpoint owes. */
static const char *owed_at_end(const struct object *ep)
{
    const struct ep *model = &ep->of.ep;
    int direction;
    for (direction = REQUESTS; direction <= RECEIVES; direction++) {
        const struct post *post;
        for (post = model->oldest[direction]; post; post = post->next)
            if (!post->suppressed && (owed_post = post))
                return direction == RECEIVES ? "the flush of a receive" : "the flush of a request";
    }
    return model->awaited != NOTHING && model->connect_evd ? "the event of the end" : NULL;
}

/* Returns what the endpoint owes, or NULL. */
static const char *owed(const struct object *ep)
{
    const struct ep *model = &ep->of.ep;
    const struct connection *connection = model->connection;
    const struct object *peer = peer_of(ep);
    owed_post = NULL;
    switch (model->state) {
    case DAT_EP_STATE_DISCONNECTED:
        return owed_at_end(ep);
    case DAT_EP_STATE_COMPLETION_PENDING:
        return rxe_accepts_long(ep) ? NULL : "the end of the accept";
    case DAT_EP_STATE_ACTIVE_CONNECTION_PENDING:
        return connection->accepted || connection->rejected ? "the answer to the request" : NULL;
    case DAT_EP_STATE_DISCONNECT_PENDING:
        return peer ? NULL : "the end of the graceful disconnect";
    case DAT_EP_STATE_CONNECTED:
        if (!peer)
            return "the end: the peer was freed or reset";
        if (peer->of.ep.state == DAT_EP_STATE_DISCONNECTED)
            return "the end: the peer is disconnected";
        if (model->awaited == OUTCOME && model->connect_evd)
            return "the event ESTABLISHED";
        if (peer->of.ep.state == DAT_EP_STATE_CONNECTED && !connection->doomed && (owed_post = runnable(ep, peer)))
            return "the completion of a request";
        return NULL;
    default:
        return NULL;
    }
}

void settle(void)
{
    double begin = now();
    for (;;) {
        const char *what = NULL;
        int i;
        take_all_events();
        for (i = 0; i < object_count; i++)
            if (objects[i].alive && objects[i].kind == EP)
                state_of(&objects[i]);
        for (i = 0; i < object_count && !what; i++)
            if (objects[i].alive && objects[i].kind == EP && (what = owed(&objects[i])) && now() - begin > LONGEST)
                fail("endpoint %#llx of node %d, in state %d, still owes %s (%d)", (unsigned long long)objects[i].handle,
                     objects[i].node, objects[i].of.ep.state, what, owed_post ? (int)(owed_post - posts) : -1);
        if (!what)
            break;
        if (now() - begin > 0.05)
            usleep(1000);
    }
    take_all_events();
}
