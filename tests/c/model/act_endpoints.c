/* Endpoints: create, modify, disconnect, reset, free. */
#include <string.h>

#include "actions.h"
#include "events.h"
#include "expect.h"
#include "posts.h"
#include "random.h"
#include "report.h"

/* Endpoints of a node: all their events fit into one EVD. */
#define MOST_EPS 9

/* Fills the attributes of a new endpoint in. */
static void choose_attributes(void)
{
    DAT_EP_ATTR *attr = &shared->ep_attr;
    memset(attr, 0, sizeof *attr);
    attr->max_message_size = 65536;
    attr->max_rdma_size = 1 << 20;
    attr->max_recv_dtos = 4 + (int)below(30);
    attr->max_request_dtos = 4 + (int)below(30);
    attr->max_recv_iov = 1 + (int)below(4);
    attr->max_request_iov = 1 + (int)below(4);
    attr->max_rdma_read_in = 1 + (int)below(8);
    attr->max_rdma_read_out = 1 + (int)below(8);
    if (chance(15))
        attr->request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
}

/* Reads the limits of a new endpoint: they may be higher than those it was asked for. */
static void read_limits(struct object *ep)
{
    const DAT_EP_ATTR *attr = &shared->ep.ep_attr;
    expect_success();
    succeeded(CALL(ep->node, ep_query, ep->handle, DAT_EP_FIELD_ALL, at(&shared->ep)));
    ep->of.ep.most_receives = attr->max_recv_dtos;
    ep->of.ep.most_requests = attr->max_request_dtos;
    ep->of.ep.receive_iov = attr->max_recv_iov;
    ep->of.ep.request_iov = attr->max_request_iov;
    ep->of.ep.unsignaled = (attr->request_completion_flags & DAT_COMPLETION_UNSIGNALLED_FLAG) != 0;
}

/* Returns an EVD of the node with the flag; rarely one without it, or for DTOs one of another IA, which must be refused. */
static struct object *evd_for(int node, int flag)
{
    struct object *evd = NULL;
    int other = node == 2 ? 0 : 2;
    if (chance(3))
        evd = chance(50) || flag != DAT_EVD_DTO_FLAG ? any_object(EVD, node) : any_evd(other, flag);
    if (!evd)
        evd = any_evd(node, flag);
    if (evd && (!(evd->of.evd.flags & flag) || evd->node != node)) {
        if (process_of(evd->node) != process_of(node))
            return NULL;
        must_fail(DAT_INVALID_HANDLE);
    }
    return evd;
}

void create_ep(int node)
{
    struct object *ia, *pz, *srq = NULL, *ep, *receive, *request, *connect;
    uint64_t handle = handle_for(IA, node, &ia), zone = handle_for(PZ, node, &pz), attr = 0, queue = 0, made = at(&shared->out[0]);
    uint32_t code;
    if (!zone || count_objects(EP, node) >= MOST_EPS)
        return; /* an endpoint without a PZ is allowed, and could do nothing */
    receive = evd_for(node, DAT_EVD_DTO_FLAG);
    request = chance(40) ? receive : evd_for(node, DAT_EVD_DTO_FLAG);
    connect = receive && chance(30) && (receive->of.evd.flags & DAT_EVD_CONNECTION_FLAG) ? receive
                                                                                        : evd_for(node, DAT_EVD_CONNECTION_FLAG);
    if (!receive || !request || !connect)
        return;
    if (chance(50)) {
        choose_attributes();
        attr = at(&shared->ep_attr);
    }
    if (chance(25) && any_object(SRQ, node)) {
        queue = handle_for(SRQ, node, &srq);
        if (srq && pz && srq->pz != pz)
            must_fail(DAT_INVALID_PARAMETER);
        code = CALL(node, ep_create_with_srq, handle, zone, receive->handle, request->handle, connect->handle, queue, attr, made);
    } else {
        code = CALL(node, ep_create, handle, zone, receive->handle, request->handle, connect->handle, attr, made);
    }
    if (!succeeded(code))
        return;
    ep = add_object(EP, node, shared->out[0]);
    ep->pz = pz;
    ep->of.ep.state = DAT_EP_STATE_UNCONNECTED;
    ep->of.ep.receive_evd = receive;
    ep->of.ep.request_evd = request;
    ep->of.ep.connect_evd = connect;
    ep->of.ep.srq = srq;
    read_limits(ep);
}

static bool is_changeable(DAT_EP_STATE state)
{
    return state == DAT_EP_STATE_UNCONNECTED || state == DAT_EP_STATE_RESERVED ||
           state == DAT_EP_STATE_PASSIVE_CONNECTION_PENDING || state == DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING;
}

void modify_ep(int node)
{
    struct object *ep = any_object(EP, node), *pz = any_object(PZ, node), *evd, **changed = NULL;
    DAT_EP_STATE state;
    uint64_t field;
    uint32_t code;
    if (!ep || !pz)
        return;
    state = state_of(ep);
    memset(&shared->ep, 0, sizeof shared->ep);
    if (!is_changeable(state))
        must_fail(DAT_INVALID_STATE);
    /* Those of receives cannot change while some are outstanding; and a request may come meanwhile. */
    if (ep->of.ep.outstanding[RECEIVES] || state == DAT_EP_STATE_RESERVED)
        may_fail(DAT_INVALID_STATE);
    switch (below(4)) {
    case 0:
        evd = NULL;
        field = DAT_EP_FIELD_PZ_HANDLE;
        shared->ep.pz_handle = (DAT_PZ_HANDLE)pz->handle;
        if (ep->of.ep.srq && pz != ep->of.ep.srq->pz)
            must_fail(DAT_INVALID_PARAMETER);
        if ((state == DAT_EP_STATE_RESERVED || state == DAT_EP_STATE_PASSIVE_CONNECTION_PENDING)) {
            if (pz != ep->pz)
                must_fail(DAT_INVALID_STATE);
            may_fail(DAT_INVALID_STATE);
        }
        changed = &ep->pz;
        break;
    case 1:
        evd = evd_for(node, DAT_EVD_DTO_FLAG);
        field = DAT_EP_FIELD_RECV_EVD_HANDLE;
        shared->ep.recv_evd_handle = (DAT_EVD_HANDLE)handle_of(evd);
        changed = &ep->of.ep.receive_evd;
        break;
    case 2:
        evd = evd_for(node, DAT_EVD_DTO_FLAG);
        field = DAT_EP_FIELD_REQUEST_EVD_HANDLE;
        shared->ep.request_evd_handle = (DAT_EVD_HANDLE)handle_of(evd);
        changed = &ep->of.ep.request_evd;
        break;
    default:
        evd = evd_for(node, DAT_EVD_CONNECTION_FLAG);
        field = DAT_EP_FIELD_CONNECT_EVD_HANDLE;
        shared->ep.connect_evd_handle = (DAT_EVD_HANDLE)handle_of(evd);
        changed = &ep->of.ep.connect_evd;
        if (ep->of.ep.awaited != NOTHING)
            return;
    }
    if (field != DAT_EP_FIELD_PZ_HANDLE && !evd)
        return;
    code = CALL(node, ep_modify, ep->handle, field, at(&shared->ep));
    if (!succeeded(code))
        return;
    if (changed == &ep->of.ep.receive_evd && *changed != evd && ep->of.ep.outstanding[RECEIVES])
        fail("dat_ep_modify changed the EVD of receives that are outstanding");
    *changed = evd ? evd : pz;
}

static bool has_connection(DAT_EP_STATE state)
{
    return !is_changeable(state);
}

void disconnect_ep(int node)
{
    struct object *ep;
    uint64_t handle = handle_for(EP, node, &ep);
    bool abrupt = chance(50);
    DAT_EP_STATE before = ep ? state_of(ep) : DAT_EP_STATE_UNCONNECTED;
    if (ep && chance(60))
        return;
    if (ep && !has_connection(before)) {
        must_fail(DAT_INVALID_STATE);
    } else if (ep) {
        ep->of.ep.disconnect_called = true;
        doom(ep);
    }
    if (!succeeded(CALL(node, ep_disconnect, handle, word(abrupt ? DAT_CLOSE_ABRUPT_FLAG : DAT_CLOSE_GRACEFUL_FLAG))))
        return;
    /* A graceful one of a connection goes on in Disconnect Pending. */
    if (!abrupt && before != DAT_EP_STATE_DISCONNECTED)
        ep->of.ep.state = DAT_EP_STATE_DISCONNECT_PENDING;
    if (state_of(ep) != DAT_EP_STATE_DISCONNECTED && (abrupt || ep->of.ep.state != DAT_EP_STATE_DISCONNECT_PENDING))
        fail("endpoint %#llx, which was in state %d, is in state %d after the disconnect", (unsigned long long)handle, before,
             ep->of.ep.state);
}

/* Whether the library may end the endpoint's attempt or connection before the next call. */
static bool may_end(const struct object *ep)
{
    switch (ep->of.ep.state) {
    case DAT_EP_STATE_ACTIVE_CONNECTION_PENDING:
    case DAT_EP_STATE_COMPLETION_PENDING:
    case DAT_EP_STATE_DISCONNECT_PENDING:
        return true;
    case DAT_EP_STATE_CONNECTED:
        return ep->of.ep.connection->doomed;
    default:
        return false;
    }
}

void reset_ep(int node)
{
    struct object *ep;
    uint64_t handle = handle_for(EP, node, &ep);
    int tries;
    DAT_EP_STATE before = DAT_EP_STATE_UNCONNECTED;
    for (tries = 0; tries < 12 && ep && state_of(ep) != DAT_EP_STATE_DISCONNECTED && !chance(10); tries++)
        ep = any_object(EP, node);
    if (ep) {
        handle = ep->handle;
        before = state_of(ep);
        if (before == DAT_EP_STATE_DISCONNECTED && ep->of.ep.awaited != NOTHING) {
            /* The events of the next connection are not those of this one. */
            while (take_event(ep->of.ep.connect_evd))
                ;
            expect_success();
            if (ep->of.ep.awaited != NOTHING)
                return;
        }
        if (before == DAT_EP_STATE_DISCONNECTED && ep->of.ep.srq) {
            /* Nor are the messages. */
            while (take_event(ep->of.ep.receive_evd))
                ;
            expect_success();
        }
        if (before != DAT_EP_STATE_DISCONNECTED && before != DAT_EP_STATE_UNCONNECTED) {
            if (may_end(ep))
                return; /* the reset may succeed, with events that are still to come */
            must_fail(DAT_INVALID_STATE);
        }
    }
    if (!succeeded(CALL(node, ep_reset, handle)))
        return;
    if (before == DAT_EP_STATE_DISCONNECTED) {
        drop_posts(ep);
        ep->of.ep.connection = NULL;
        ep->of.ep.disconnect_called = ep->of.ep.was_connected = false;
        ep->of.ep.state = DAT_EP_STATE_UNCONNECTED;
    }
    state_of(ep);
}

/* Whether a RSP names the endpoint, though it may have had its request. */
static bool is_reserved(const struct object *ep)
{
    int i;
    for (i = 0; i < object_count; i++)
        if (objects[i].alive && objects[i].kind == RSP && objects[i].of.service_point.ep == ep)
            return true;
    return false;
}

void free_ep(int node)
{
    struct object *ep;
    uint64_t handle = handle_for(EP, node, &ep);
    DAT_EP_STATE state = ep ? state_of(ep) : DAT_EP_STATE_UNCONNECTED;
    if (ep && chance(70))
        return;
    if (ep && is_changeable(state) && state != DAT_EP_STATE_UNCONNECTED)
        must_fail(DAT_INVALID_STATE);
    else if (ep && is_reserved(ep))
        may_fail(DAT_INVALID_STATE);
    if (ep)
        doom(ep);
    if (!succeeded(CALL(node, ep_free, handle)))
        return;
    drop_posts(ep);
    ep->alive = false;
}
