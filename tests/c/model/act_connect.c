/* Service points, requests and their answers. */
#include <string.h>

#include "actions.h"
#include "expect.h"
#include "posts.h"
#include "random.h"
#include "report.h"

/* Qualifiers of service points: few, so that they collide now and then. */
static uint64_t random_qualifier(int node)
{
    return 20000 + (uint64_t)node * 1000 + below(40);
}

/* What a RSP or PSP of the node listens on, or NULL. */
static struct object *any_point(int node)
{
    struct object *point = chance(70) ? any_object(PSP, node) : any_object(RSP, node);
    return point ? point : any_object(PSP, node);
}

static bool in_use(int node, uint64_t qualifier)
{
    int i;
    for (i = 0; i < object_count; i++)
        if (objects[i].alive && objects[i].node == node && (objects[i].kind == PSP || objects[i].kind == RSP) &&
            objects[i].of.service_point.qualifier == qualifier)
            return true;
    return false;
}

/* Adds the service point that the library has created. */
static void add_point(enum kind kind, int node, uint64_t qualifier, struct object *evd, int flags, struct object *ep)
{
    struct object *point = add_object(kind, node, shared->out[0]);
    point->evd = evd;
    point->of.service_point = (struct service_point){qualifier, flags, ep, false};
}

void create_psp(int node)
{
    struct object *ia, *evd = any_evd(node, DAT_EVD_CR_FLAG);
    uint64_t handle = handle_for(IA, node, &ia), qualifier = random_qualifier(node);
    int flags = chance(75) ? DAT_PSP_CONSUMER_FLAG : DAT_PSP_PROVIDER_FLAG;
    if (!evd || count_objects(PSP, node) > 4)
        return;
    if (chance(40)) {
        if (succeeded(CALL(node, psp_create_any, handle, at(&shared->out[1]), evd->handle, word(flags), at(&shared->out[0]))))
            add_point(PSP, node, shared->out[1], evd, flags, NULL);
        return;
    }
    if (in_use(node, qualifier))
        must_fail(DAT_CONN_QUAL_IN_USE);
    may_fail(DAT_CONN_QUAL_IN_USE); /* by another process of the host */
    if (succeeded(CALL(node, psp_create, handle, qualifier, evd->handle, word(flags), at(&shared->out[0]))))
        add_point(PSP, node, qualifier, evd, flags, NULL);
}

void free_psp(int node)
{
    struct object *psp;
    uint64_t handle = handle_for(PSP, node, &psp);
    if (psp && chance(70))
        return;
    if (succeeded(CALL(node, psp_free, handle)))
        psp->alive = false;
}

void create_rsp(int node)
{
    struct object *ia, *ep, *evd = any_evd(node, DAT_EVD_CR_FLAG);
    uint64_t handle = handle_for(IA, node, &ia), reserved = handle_for(EP, node, &ep), qualifier = random_qualifier(node);
    if (!evd || count_objects(RSP, node) > 3)
        return;
    if (in_use(node, qualifier))
        must_fail(DAT_CONN_QUAL_IN_USE);
    if (ep && state_of(ep) != DAT_EP_STATE_UNCONNECTED)
        must_fail(DAT_INVALID_STATE);
    may_fail(DAT_CONN_QUAL_IN_USE);
    if (!succeeded(CALL(node, rsp_create, handle, qualifier, reserved, evd->handle, at(&shared->out[0]))))
        return;
    add_point(RSP, node, qualifier, evd, 0, ep);
    ep->of.ep.state = DAT_EP_STATE_RESERVED;
    state_of(ep);
}

void free_rsp(int node)
{
    struct object *rsp, *ep;
    uint64_t handle = handle_for(RSP, node, &rsp);
    bool reserved;
    if (rsp && chance(50))
        return;
    ep = rsp ? rsp->of.service_point.ep : NULL;
    reserved = ep && ep->alive && !rsp->of.service_point.spent && state_of(ep) == DAT_EP_STATE_RESERVED;
    if (!succeeded(CALL(node, rsp_free, handle)))
        return;
    rsp->alive = false;
    if (!reserved)
        return;
    /* A request may have come just before: its event is still queued. */
    succeeded(CALL(node, ep_get_status, ep->handle, at(&shared->out[0]), 0, 0));
    ep->of.ep.state = (DAT_EP_STATE)(uint32_t)shared->out[0];
    if (ep->of.ep.state != DAT_EP_STATE_UNCONNECTED && ep->of.ep.state != DAT_EP_STATE_PASSIVE_CONNECTION_PENDING)
        fail("endpoint %#llx is in state %d after its RSP was freed", (unsigned long long)ep->handle, ep->of.ep.state);
}

/* Writes private data: a word, and the id of the connection. Returns their size. */
static uint64_t write_data(const char *what, uint64_t id)
{
    memcpy(shared->data, what, 8);
    memcpy(shared->data + 8, &id, 8);
    return 16 + below(20);
}

/* Returns a node to connect to: mostly another one. */
static int other_node(int node)
{
    return chance(8) ? node : (node + 1 + (int)below(NODES - 1)) % NODES;
}

/* Returns a random endpoint of the node, if possible in the state. */
static struct object *ep_in_state(int node, DAT_EP_STATE state)
{
    struct object *ep = any_object(EP, node);
    int tries;
    for (tries = 0; tries < 12 && ep && state_of(ep) != state && !chance(8); tries++)
        ep = any_object(EP, node);
    return ep;
}

/* Asks for a connection to the peer of another endpoint of the node; false if there is none. */
static bool duplicate(struct object *ep, uint64_t limit, uint64_t size, uint32_t *code)
{
    struct object *model = ep_in_state(ep->node, DAT_EP_STATE_CONNECTED);
    DAT_EP_STATE before;
    if (model == ep || model->of.ep.connection == NULL || model->of.ep.connection->active != model)
        return false;
    before = state_of(model);
    if (before != DAT_EP_STATE_CONNECTED)
        must_fail(DAT_INVALID_STATE);
    *code = CALL(ep->node, ep_dup_connect, ep->handle, model->handle, limit, size, at(shared->data), 0);
    if (*code != DAT_SUCCESS && state_of(model) != before)
        may_fail(DAT_INVALID_STATE);
    if (*code == DAT_SUCCESS && before != DAT_EP_STATE_CONNECTED && state_of(model) == DAT_EP_STATE_CONNECTED)
        may_succeed();
    ep->of.ep.qualifier = model->of.ep.qualifier;
    return true;
}

void connect_ep(int node)
{
    struct object *ep = ep_in_state(node, DAT_EP_STATE_UNCONNECTED);
    int other = other_node(node);
    const struct object *point = any_point(other);
    uint64_t qualifier = point && !chance(3) ? point->of.service_point.qualifier : 29999;
    uint64_t limit = chance(90) ? DAT_TIMEOUT_INFINITE : 1 + below(500000);
    struct connection *connection;
    struct ep *model;
    uint64_t size;
    uint32_t code;
    if (!ep || (ep->of.ep.awaited != NOTHING && ep->of.ep.state == DAT_EP_STATE_UNCONNECTED))
        return;
    model = &ep->of.ep;
    if (state_of(ep) != DAT_EP_STATE_UNCONNECTED)
        must_fail(DAT_INVALID_STATE);
    connection = add_connection(ep);
    connection->limited = limit != DAT_TIMEOUT_INFINITE;
    size = write_data("connect!", (uint64_t)connection->id);
    if (chance(15)) {
        if (!duplicate(ep, limit, size, &code))
            return;
    } else {
        code = CALL(node, ep_connect, ep->handle, at(&shared->address[other]), qualifier, limit, size, at(shared->data), 0, 0);
        if (code == DAT_SUCCESS)
            model->qualifier = qualifier;
    }
    if (!succeeded(code))
        return;
    model->connection = connection;
    model->state = DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
    model->awaited = OUTCOME;
    model->disconnect_called = model->was_connected = false;
    model->messages_received = 0;
    state_of(ep);
}

static bool is_complete(const struct object *ep)
{
    return ep->pz && ep->of.ep.receive_evd && ep->of.ep.request_evd && ep->of.ep.connect_evd;
}

/* Gives an endpoint that the provider has made what it lacks. */
static void complete_ep(struct object *ep)
{
    struct object *pz = any_object(PZ, ep->node), *dto = any_evd(ep->node, DAT_EVD_DTO_FLAG);
    struct object *connect = any_evd(ep->node, DAT_EVD_CONNECTION_FLAG);
    uint64_t fields = DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE |
                      DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    if (!pz || !dto || !connect)
        return;
    memset(&shared->ep, 0, sizeof shared->ep);
    shared->ep.pz_handle = (DAT_PZ_HANDLE)pz->handle;
    shared->ep.recv_evd_handle = shared->ep.request_evd_handle = (DAT_EVD_HANDLE)dto->handle;
    shared->ep.connect_evd_handle = (DAT_EVD_HANDLE)connect->handle;
    expect_success();
    if (ep->of.ep.outstanding[RECEIVES])
        may_fail(DAT_INVALID_STATE);
    if (!succeeded(CALL(ep->node, ep_modify, ep->handle, fields, at(&shared->ep))))
        return;
    ep->pz = pz;
    ep->of.ep.receive_evd = ep->of.ep.request_evd = dto;
    ep->of.ep.connect_evd = connect;
}

/* Notes that the endpoint has accepted the connection. */
static void accepted(struct object *ep, struct connection *connection)
{
    struct object *active = connection->active;
    bool given_up = !active->alive || active->of.ep.connection != connection;
    struct ep *model = &ep->of.ep;
    connection->accepted = true;
    connection->passive = ep;
    if (given_up || connection->limited || active->of.ep.state == DAT_EP_STATE_DISCONNECTED || has_risky_receives(ep) ||
        has_risky_receives(active))
        connection->doomed = true;
    if (given_up)
        connection->active = NULL; /* it may be this endpoint, after a reset */
    model->connection = connection;
    model->state = DAT_EP_STATE_COMPLETION_PENDING;
    model->awaited = OUTCOME;
    model->disconnect_called = model->was_connected = false;
    model->messages_received = 0;
    model->cr = NULL;
    state_of(ep);
}

static void accept_request(int node, struct object *cr, uint64_t handle)
{
    struct connection *connection = cr ? cr->of.cr.connection : NULL;
    struct object *ep = cr ? cr->of.cr.ep : NULL, *active = connection ? connection->active : NULL;
    bool own = ep != NULL;
    if (!cr) {
        succeeded(CALL(node, cr_accept, handle, 0, 0, 0));
        return;
    }
    if (own) {
        DAT_EP_STATE state = state_of(ep);
        if (state == DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING && !is_complete(ep))
            complete_ep(ep);
        if (!is_complete(ep))
            return; /* its posts would have no completions */
        expect_success();
    } else {
        DAT_EP_STATE state;
        ep = ep_in_state(node, DAT_EP_STATE_UNCONNECTED);
        if (!ep)
            return;
        state = state_of(ep);
        /* Such an endpoint belongs to another request. */
        if (state == DAT_EP_STATE_PASSIVE_CONNECTION_PENDING || state == DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING ||
            state == DAT_EP_STATE_RESERVED || (state == DAT_EP_STATE_UNCONNECTED && ep->of.ep.awaited != NOTHING))
            return;
        if (state != DAT_EP_STATE_UNCONNECTED)
            must_fail(DAT_INVALID_STATE);
    }
    if (active->alive && active->of.ep.connection == connection)
        state_of(active);
    if (!succeeded(CALL(node, cr_accept, handle, own ? 0 : ep->handle, write_data("accepted", (uint64_t)connection->id),
                        at(shared->data))))
        return;
    cr->alive = false;
    accepted(ep, connection);
}

/* The request is gone, by a rejection or to another service point; so is its endpoint, unless it is a RSP's. */
static void give_up(struct object *cr)
{
    struct object *ep = cr->of.cr.ep;
    cr->alive = false;
    if (!ep)
        return;
    ep->of.ep.cr = NULL;
    if (ep->of.ep.state == DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING) {
        drop_posts(ep);
        ep->alive = false;
        return;
    }
    ep->of.ep.state = DAT_EP_STATE_UNCONNECTED;
    state_of(ep);
}

static void hand_off(struct object *cr, uint64_t handle)
{
    struct object *psp = any_object(PSP, cr->node);
    if (psp && succeeded(CALL(cr->node, cr_handoff, handle, psp->of.service_point.qualifier)))
        give_up(cr);
}

void answer_request(int node)
{
    struct object *cr;
    uint64_t handle = handle_for(CR, node, &cr);
    uint32_t what = below(10);
    if (!cr && !handle)
        return;
    if (what < 7) {
        accept_request(node, cr, handle);
        return;
    }
    if (cr && what == 7) {
        hand_off(cr, handle);
        return;
    }
#ifdef UDAPL_1_2
    if (!succeeded(CALL(node, cr_reject, handle)))
        return;
#else
    if (!succeeded(CALL(node, cr_reject, handle, write_data("rejected", 0), at(shared->data))))
        return;
#endif
    cr->of.cr.connection->rejected = true;
    give_up(cr);
}
