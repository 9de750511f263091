#include "events.h"
#include "posts.h"
#include "report.h"
#include "rxe.h"

/* What an event of a completion says, of either version and kind. */
struct completion {
    uint64_t handle, cookie, length;
    int status;
    bool of_bind;
};

static struct completion completion_of(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event->event_data.dto_completion_event_data;
    const DAT_RMR_BIND_COMPLETION_EVENT_DATA *bind = &event->event_data.rmr_completion_event_data;
    if (event->event_number == DAT_RMR_BIND_COMPLETION_EVENT)
        return (struct completion){at(bind->rmr_handle), bind->user_cookie.as_64, 0, bind->status, true};
    return (struct completion){at(dto->ep_handle), dto->user_cookie.as_64, dto->transfered_length, dto->status, false};
}

static int number_of(const struct post *post)
{
    return (int)(post - posts);
}

/* Returns the endpoint that the completion names; NULL for a receive of an SRQ that no endpoint took, or one that is freed by now. */
static struct object *endpoint_of(struct object *evd, const struct post *post, const struct completion *seen)
{
    struct object *ep;
    if (post->kind == BIND) {
        if (post->rmr->alive && seen->handle != post->rmr->handle)
            fail("bind %d completes for the RMR %#llx", number_of(post), (unsigned long long)seen->handle);
        return post->ep;
    }
    if (post->srq && seen->handle == post->srq->handle)
        return NULL;
    ep = find_object(EP, evd->node, seen->handle);
    if (!ep && post->srq)
        return NULL;
    if (!ep)
        fail("%s %d completes for the endpoint %#llx, which is freed", post_names[post->kind], number_of(post),
             (unsigned long long)seen->handle);
    if (post->srq ? ep->of.ep.srq != post->srq : ep != post->ep)
        fail("%s %d completes for another endpoint", post_names[post->kind], number_of(post));
    return ep;
}

/* Takes the post out of its queue: only suppressed ones may be before it. */
static void remove_in_order(struct post *post)
{
    enum direction direction = direction_of(post);
    struct ep *ep = &post->ep->of.ep;
    struct post *before;
    for (before = ep->oldest[direction]; before != post; before = before->next) {
        if (!before)
            fail("%s %d is not outstanding", post_names[post->kind], number_of(post));
        if (!before->suppressed)
            fail("%s %d completes before %s %d", post_names[post->kind], number_of(post), post_names[before->kind],
                 number_of(before));
        before->progress = DONE;
        ep->outstanding[direction]--;
    }
    ep->oldest[direction] = post->next;
    if (!post->next)
        ep->newest[direction] = NULL;
    ep->outstanding[direction]--;
}

/* A refused request, behind a READ or atomic whose answer was void, makes that one fail too (docs/regressions.md). */
static bool refused_later(const struct post *post)
{
    for (post = post->next; post; post = post->next)
        if (post->outcome != SUCCEEDS)
            return true;
    return false;
}

/* Returns whether a post that would succeed may fail with the status, once its connection is doomed. */
static bool is_possible(const struct post *post, int status)
{
    switch (status) {
    case DAT_DTO_ERR_TRANSPORT:
        return true;
    case DAT_DTO_ERR_REMOTE_RESPONDER:
        return is_message(post) || refused_later(post);
    case DAT_DTO_ERR_LOCAL_LENGTH:
        return post->kind == RECEIVE;
    case DAT_DTO_ERR_REMOTE_ACCESS:
        /* rdma_rxe completes a receive so, when it refuses a request of the peer. */
        return post->kind == RECEIVE || ((post->kind == READ || post->kind == FETCH_ADD) && refused_later(post));
    default:
        return rxe_has_status(post, status);
    }
}

static void check_failure(struct post *post, struct object *ep, int status)
{
    bool doomed;
    /* An attempt to connect that has failed flushes receives too. */
    if (ep)
        state_of(ep);
    doomed = !ep || !ep->of.ep.connection || ep->of.ep.connection->doomed || (post->kind == RECEIVE && rxe_flushes_early(ep));
    if (post->outcome == SUCCEEDS && !doomed)
        fail("%s %d failed with status %d without a cause", post_names[post->kind], number_of(post), status);
    if (status != DAT_DTO_ERR_FLUSHED && post->outcome != ANY && !(post->outcome == REFUSED && status == post->status) &&
        !is_possible(post, status))
        fail("%s %d failed with status %d; expected %d", post_names[post->kind], number_of(post), status, post->status);
    if (post->kind == BIND)
        post->rmr->of.rmr.unknown = true;
    if (ep)
        doom(ep);
}

static uint64_t total(const struct range *ranges, int count)
{
    uint64_t sum = 0;
    while (count--)
        sum += ranges[count].length;
    return sum;
}

/* Returns the message that the next receive of the endpoint must take. */
static struct post *next_message(const struct object *ep)
{
    const struct connection *connection = ep->of.ep.connection;
    const struct object *peer = connection->active == ep ? connection->passive : connection->active;
    int i, before = ep->of.ep.messages_received;
    for (i = 0; i < post_count; i++)
        if (is_message(&posts[i]) && posts[i].connection == connection && posts[i].ep == peer && before-- == 0)
            return &posts[i];
    return NULL;
}

static void check_immediate(const struct post *message)
{
#ifdef UDAPL_1_2
    fail("a message of kind %d with 1.2", message->kind);
#else
    const DAT_IB_EXTENSION_EVENT_DATA *data = (const void *)shared->event.event_extension_data;
    if (shared->event.event_number != (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT || data->type != DAT_IB_RDMA_WRITE_IMMED_DATA ||
        data->val.immed.data != message->immediate)
        fail("a receive of immediate data %#x: event %#x, type %d, data %#x", message->immediate, shared->event.event_number,
             data->type, data->val.immed.data);
#endif
}

static void check_receive(struct post *post, struct object *ep, uint64_t length)
{
    struct post *message;
    if (!ep->of.ep.connection && post->srq)
        return; /* of the connection before the reset */
    if (!ep->of.ep.connection)
        fail("receive %d succeeded without a connection", number_of(post));
    message = next_message(ep);
    ep->of.ep.messages_received++;
    if (!message)
        fail("receive %d completes without a message", number_of(post));
    if (message->outcome == REFUSED)
        fail("receive %d took %s %d, which must fail", number_of(post), post_names[message->kind], number_of(message));
    if (message->outcome == ANY)
        return;
    if (message->kind == WRITE_IMMEDIATE)
        check_immediate(message);
    if (length != message->length)
        fail("receive %d of %llu bytes; %s %d has %llu", number_of(post), (unsigned long long)length,
             post_names[message->kind], number_of(message), (unsigned long long)message->length);
    if (message->kind != SEND)
        return;
    if (length > total(post->local, post->segments))
        fail("receive %d took more bytes than it has room for", number_of(post));
    if (post->outcome == SUCCEEDS)
        compare_bytes(post, post, message->ep->node, message->local, message->segments, ep->node, post->local,
                      post->segments, length);
}

static void check_success(struct post *post, struct object *ep, uint64_t length)
{
    if (post->outcome == REFUSED)
        fail("%s %d succeeded; expected status %d", post_names[post->kind], number_of(post), post->status);
    if (post->suppressed)
        fail("%s %d succeeded with a completion, though that is suppressed", post_names[post->kind], number_of(post));
    if (post->kind == RECEIVE && ep)
        check_receive(post, ep, length);
    if (post->outcome != SUCCEEDS)
        return;
    if (post->kind == WRITE || post->kind == WRITE_IMMEDIATE)
        compare_bytes(post, post, ep->node, post->local, post->segments, post->remote_node, &post->remote, 1, post->length);
    if (post->kind == READ) {
        if (length != post->length)
            fail("read %d has %llu bytes, not %llu", number_of(post), (unsigned long long)length,
                 (unsigned long long)post->length);
        compare_bytes(post, post, post->remote_node, &post->remote, 1, ep->node, post->local, post->segments, length);
    }
}

void check_completion(struct object *evd)
{
    struct completion seen = completion_of(&shared->event);
    struct post *post = post_of(seen.cookie);
    struct object *ep;
    note("    completion of %s %d: status %d, length %llu", post_names[post->kind], number_of(post), seen.status,
         (unsigned long long)seen.length);
    if (post->progress == DROPPED) {
        /* It was queued when its endpoint was reset or freed. */
        post->progress = DONE;
        return;
    }
    if (post->progress != OUTSTANDING)
        fail("%s %d completes once more", post_names[post->kind], number_of(post));
    if (seen.of_bind != (post->kind == BIND))
        fail("%s %d completes as event %#x", post_names[post->kind], number_of(post), shared->event.event_number);
    ep = endpoint_of(evd, post, &seen);
    if (ep && (post->kind == RECEIVE ? ep->of.ep.receive_evd : ep->of.ep.request_evd) != evd)
        fail("%s %d completes in the wrong EVD", post_names[post->kind], number_of(post));
    post->progress = DONE;
    if (post->srq)
        post->srq->of.srq.posted--;
    if (seen.status != DAT_DTO_SUCCESS)
        check_failure(post, ep, seen.status);
    else
        check_success(post, ep, seen.length);
    if (!post->srq)
        remove_in_order(post);
}
