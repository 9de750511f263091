#include "events.h"

#include <string.h>

#include "expect.h"
#include "posts.h"
#include "report.h"

/* An event of an endpoint that was freed meanwhile. */
static bool is_late(const struct object *evd, uint64_t handle)
{
    int i;
    for (i = object_count - 1; i >= 0; i--)
        if (!objects[i].alive && objects[i].kind == EP && objects[i].handle == handle &&
            process_of(objects[i].node) == process_of(evd->node))
            return objects[i].of.ep.awaited != NOTHING;
    return false;
}

static void check_established(struct object *ep)
{
    struct ep *model = &ep->of.ep;
    uint64_t id;
    if (model->awaited != OUTCOME)
        fail("an unexpected ESTABLISHED of endpoint %#llx", (unsigned long long)ep->handle);
    model->awaited = END;
    if (!model->connection->accepted)
        fail("ESTABLISHED of endpoint %#llx, whose request nobody accepted", (unsigned long long)ep->handle);
    if (model->connection->active != ep)
        return;
    memcpy(&id, shared->got + 8, 8);
    if (shared->got_size < 16 || memcmp(shared->got, "accepted", 8) || id != (uint64_t)model->connection->id)
        fail("ESTABLISHED of endpoint %#llx has wrong private data", (unsigned long long)ep->handle);
}

/* Checks the event of an attempt that failed. */
static void check_refusal(const struct object *ep, DAT_EVENT_NUMBER number)
{
    const struct ep *model = &ep->of.ep;
    const struct connection *connection = model->connection;
    bool active = connection->active == ep;
    bool possible = false;
    switch (number) {
    case DAT_CONNECTION_EVENT_DISCONNECTED:
        possible = model->disconnect_called || model->was_connected || connection->doomed;
        break;
    case DAT_CONNECTION_EVENT_PEER_REJECTED:
        possible = active && connection->rejected;
        break;
    case DAT_CONNECTION_EVENT_TIMED_OUT:
        possible = connection->limited;
        break;
    case DAT_CONNECTION_EVENT_NON_PEER_REJECTED:
        possible = active && (!connection->accepted || connection->doomed);
        break;
    case DAT_CONNECTION_EVENT_UNREACHABLE:
        possible = active;
        break;
    case DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR:
        possible = !active && connection->doomed;
        break;
    case DAT_CONNECTION_EVENT_BROKEN:
        possible = connection->doomed;
        break;
    default:
        break;
    }
    if (!possible)
        fail("the attempt of endpoint %#llx ended in event %#x", (unsigned long long)ep->handle, number);
}

/* What was posted while the endpoint was connected completes before the event of the end, where both share an EVD. */
static void check_flushed(const struct object *ep, const struct object *evd)
{
    const struct ep *model = &ep->of.ep;
    int direction;
    for (direction = REQUESTS; direction <= RECEIVES; direction++) {
        const struct post *post = model->oldest[direction];
        if ((direction == RECEIVES ? model->receive_evd : model->request_evd) != evd)
            continue;
        while (post && post->suppressed)
            post = post->next;
        if (post && post - posts < model->posts_before)
            fail("the connection of endpoint %#llx ended before the completion of %s %d", (unsigned long long)ep->handle,
                 post_names[post->kind], (int)(post - posts));
    }
}

static void check_connection(struct object *evd)
{
    DAT_EVENT_NUMBER number = shared->event.event_number;
    uint64_t handle = at(shared->event.event_data.connect_event_data.ep_handle);
    struct object *ep = find_object(EP, evd->node, handle);
    struct ep *model;
    if (!ep && is_late(evd, handle))
        return;
    if (!ep)
        fail("event %#x of endpoint %#llx, which does not exist", number, (unsigned long long)handle);
    model = &ep->of.ep;
    if (model->connect_evd != evd)
        fail("event %#x of endpoint %#llx in the wrong EVD", number, (unsigned long long)handle);
    if (number == DAT_CONNECTION_EVENT_ESTABLISHED) {
        check_established(ep);
        return;
    }
    if (model->awaited == NOTHING)
        fail("an unexpected event %#x of endpoint %#llx", number, (unsigned long long)handle);
    if (model->awaited == OUTCOME)
        check_refusal(ep, number);
    else if ((number != DAT_CONNECTION_EVENT_DISCONNECTED && number != DAT_CONNECTION_EVENT_BROKEN) ||
             !model->connection->doomed)
        fail("the connection of endpoint %#llx ended in event %#x without a cause", (unsigned long long)handle, number);
    model->awaited = NOTHING;
    check_flushed(ep, evd);
    if (state_of(ep) != DAT_EP_STATE_DISCONNECTED)
        fail("endpoint %#llx is in state %d after event %#x", (unsigned long long)handle, model->state, number);
    doom(ep);
}

/* Returns the endpoint that came with the request: of its RSP, or made for a PSP. */
static struct object *endpoint_of_request(const struct object *evd, struct object *point, uint64_t handle)
{
    struct object *ep;
    if (!handle)
        return NULL;
    ep = find_object(EP, evd->node, handle);
    if (point && point->kind == RSP) {
        if (ep != point->of.service_point.ep)
            fail("a request at a RSP has the endpoint %#llx", (unsigned long long)handle);
        if (state_of(ep) != DAT_EP_STATE_PASSIVE_CONNECTION_PENDING)
            fail("the endpoint of a request at a RSP is in state %d", ep->of.ep.state);
        point->of.service_point.spent = true;
    } else if (!ep) {
        ep = add_object(EP, evd->node, handle);
        ep->of.ep.state = DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING;
        ep->of.ep.most_receives = ep->of.ep.most_requests = 16;
        ep->of.ep.receive_iov = ep->of.ep.request_iov = 1;
        state_of(ep);
    }
    return ep;
}

static void check_request(struct object *evd)
{
    const DAT_CR_ARRIVAL_EVENT_DATA *event = &shared->event.event_data.cr_arrival_event_data;
    uint64_t handle = at(event->cr_handle), qualifier = event->conn_qual, id, ep;
    uint64_t point_handle = at(event->sp_handle.psp_handle);
    struct object *cr = add_object(CR, evd->node, handle);
    struct object *point = find_object(PSP, evd->node, point_handle);
    bool has_ep;
    if (!point)
        point = find_object(RSP, evd->node, point_handle);
    if (point && (point->evd != evd || point->of.service_point.qualifier != qualifier))
        fail("a request for qualifier %#llx came in the wrong EVD, or for the wrong service point",
             (unsigned long long)qualifier);
    expect_success();
    succeeded(CALL(evd->node, cr_query, handle, DAT_CR_FIELD_ALL, at(&shared->cr)));
    memcpy(&id, shared->got + 8, 8);
    if (shared->got_size < 16 || memcmp(shared->got, "connect!", 8))
        fail("a request has wrong private data");
    ep = at(shared->cr.local_ep_handle);
    has_ep = point && (point->kind == RSP || point->of.service_point.flags == DAT_PSP_PROVIDER_FLAG);
    if (point && has_ep != (ep != 0))
        fail("a request has the endpoint %#llx", (unsigned long long)ep);
    cr->of.cr.service_point = point;
    cr->of.cr.connection = find_connection(id);
    cr->of.cr.ep = endpoint_of_request(evd, point, ep);
    if (cr->of.cr.ep)
        cr->of.cr.ep->of.ep.cr = cr;
}

static void check_software(struct object *evd)
{
    struct evd *model = &evd->of.evd;
    uint64_t pointer = at(shared->event.event_data.software_event_data.pointer);
    if (!model->software_count || pointer != model->software[0])
        fail("software event %#llx; expected %#llx of %d", (unsigned long long)pointer,
             (unsigned long long)(model->software_count ? model->software[0] : 0), model->software_count);
    memmove(model->software, model->software + 1, --model->software_count * sizeof model->software[0]);
}

static void check_asynchronous(struct object *evd)
{
    const DAT_ASYNCH_ERROR_EVENT_DATA *event = &shared->event.event_data.asynch_error_event_data;
    struct object *srq;
    if (!evd->of.evd.asynchronous)
        fail("asynchronous event %#x in another EVD", shared->event.event_number);
    if (shared->event.event_number == DAT_ASYNC_ERROR_EP_BROKEN)
        return;
    /* The low watermark of an SRQ: the handle may be freed by now. */
    srq = find_object(SRQ, evd->node, at(event->dat_handle));
    if (shared->event.event_number != DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR || (srq && srq->of.srq.watermarks-- == 0))
        fail("asynchronous event %#x of handle %p", shared->event.event_number, (void *)event->dat_handle);
}

void check_event(struct object *evd)
{
    DAT_EVENT_NUMBER number = shared->event.event_number;
    if (at(shared->event.evd_handle) != evd->handle)
        fail("an event names the EVD %p", (void *)shared->event.evd_handle);
    note("    event %#x", number);
    if (number == DAT_SOFTWARE_EVENT)
        check_software(evd);
    else if (number == DAT_CONNECTION_REQUEST_EVENT)
        check_request(evd);
    else if (number >= DAT_CONNECTION_EVENT_ESTABLISHED && number <= DAT_CONNECTION_EVENT_UNREACHABLE)
        check_connection(evd);
    else if (number >= DAT_ASYNC_ERROR_EVD_OVERFLOW && number <= DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR)
        check_asynchronous(evd);
    else
        check_completion(evd);
}

bool take_event(struct object *evd)
{
    uint32_t code = CALL(evd->node, evd_dequeue, evd->handle, at(&shared->event));
    if (code == DAT_SUCCESS) {
        check_event(evd);
        return true;
    }
    if (DAT_GET_TYPE(code) != DAT_QUEUE_EMPTY)
        fail("dat_evd_dequeue returned %#x", code);
    unnote();
    if (evd->of.evd.software_count)
        fail("an EVD with %d software events is empty", evd->of.evd.software_count);
    return false;
}

void take_all_events(void)
{
    int i;
    for (i = 0; i < object_count; i++)
        if (objects[i].alive && objects[i].kind == EVD)
            while (take_event(&objects[i]))
                ;
}
