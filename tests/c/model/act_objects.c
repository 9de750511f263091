/* PZs, EVDs, CNOs and software events. */
#include "actions.h"
#include "events.h"
#include "expect.h"
#include "random.h"
#include "report.h"

/* A pointer to a new handle. */
#define MADE at(&shared->out[0])

/* So many events fit as one EVD may ever have at the same time. */
#define AMPLE 160

/* Returns a timeout of a wait in microseconds. */
static uint64_t timeout(void)
{
    static const uint32_t timeouts[] = {0, 0, 1, 100, 1000, 3000};
    return timeouts[below(6)];
}

void create_pz(int node)
{
    struct object *ia;
    uint64_t handle = handle_for(IA, node, &ia);
    if (succeeded(CALL(node, pz_create, handle, MADE)))
        add_object(PZ, node, shared->out[0]);
}

void free_pz(int node)
{
    struct object *pz;
    uint64_t handle = handle_for(PZ, node, &pz);
    if (pz && is_used(pz))
        must_fail(DAT_INVALID_STATE);
    else if (pz && count_objects(PZ, node) < 2)
        return;
    if (succeeded(CALL(node, pz_free, handle)))
        pz->alive = false;
}

void create_evd(int node)
{
    static const int some[] = {
        DAT_EVD_SOFTWARE_FLAG,
        DAT_EVD_SOFTWARE_FLAG | DAT_EVD_DTO_FLAG,
        DAT_EVD_SOFTWARE_FLAG | DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG,
        DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG,
        DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG,
        DAT_EVD_CONNECTION_FLAG | DAT_EVD_SOFTWARE_FLAG,
        DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG,
        DAT_EVD_CR_FLAG,
        DAT_EVD_SOFTWARE_FLAG | DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG | DAT_EVD_RMR_BIND_FLAG,
    };
    struct object *ia, *cno = NULL, *evd;
    uint64_t handle, notified = 0;
    int flags = some[below(9)];
    int length = flags == DAT_EVD_SOFTWARE_FLAG ? 1 + (int)below(8) : AMPLE + (int)below(40);
    if (count_objects(EVD, node) > 20)
        return;
    handle = handle_for(IA, node, &ia);
    if (chance(40) && any_object(CNO, node))
        notified = handle_for(CNO, node, &cno);
    if (!notified)
        expect_success(); /* no CNO is a valid argument */
    if (chance(2)) {
        length = -(int)below(3);
        must_fail(DAT_INVALID_PARAMETER);
    }
    if (!succeeded(CALL(node, evd_create, handle, word(length), notified, word(flags), MADE)))
        return;
    evd = add_object(EVD, node, shared->out[0]);
    evd->of.evd.flags = flags;
    evd->of.evd.length = length;
    evd->of.evd.enabled = evd->of.evd.waitable = true;
    evd->cno = cno;
}

void free_evd(int node)
{
    struct object *evd;
    uint64_t handle = handle_for(EVD, node, &evd);
    if (evd && is_used(evd))
        must_fail(DAT_INVALID_STATE);
    else if (evd && count_objects(EVD, node) < 8)
        return;
    if (succeeded(CALL(node, evd_free, handle)))
        evd->alive = false;
}

void resize_evd(int node)
{
    struct object *evd;
    uint64_t handle = handle_for(EVD, node, &evd);
    int length = AMPLE + (int)below(100);
    if (evd && evd->of.evd.asynchronous)
        return;
    if (evd && evd->of.evd.flags == DAT_EVD_SOFTWARE_FLAG)
        length = (int)below(12);
    if (length == 0)
        must_fail(DAT_INVALID_PARAMETER);
    else if (evd && length < evd->of.evd.software_count)
        must_fail(DAT_INVALID_STATE);
    if (succeeded(CALL(node, evd_resize, handle, word(length))))
        evd->of.evd.length = length;
}

void replace_cno(int node)
{
    struct object *evd, *cno = NULL;
    uint64_t handle = handle_for(EVD, node, &evd), notified = 0;
    if (chance(70) && any_object(CNO, node)) {
        notified = handle_for(CNO, node, &cno);
        if (!notified)
            return;
    }
    if (!succeeded(CALL(node, evd_modify_cno, handle, notified)))
        return;
    evd->cno = cno;
    evd->of.evd.notified = false;
}

void switch_evd(int node)
{
    struct object *evd;
    uint64_t handle = handle_for(EVD, node, &evd);
    switch (below(4)) {
    case 0:
        if (succeeded(CALL(node, evd_enable, handle)))
            evd->of.evd.enabled = true;
        break;
    case 1:
        if (succeeded(CALL(node, evd_disable, handle)))
            evd->of.evd.enabled = evd->of.evd.notified = false;
        break;
    case 2:
        if (succeeded(CALL(node, evd_set_unwaitable, handle)))
            evd->of.evd.waitable = false;
        break;
    default:
        if (succeeded(CALL(node, evd_clear_unwaitable, handle)))
            evd->of.evd.waitable = true;
    }
}

void post_software_event(int node)
{
    static uint64_t last;
    struct object *evd;
    uint64_t handle = handle_for(EVD, node, &evd), pointer = (last += 16);
    struct evd *model = evd ? &evd->of.evd : NULL;
    shared->event.event_number = DAT_SOFTWARE_EVENT;
    shared->event.event_data.software_event_data.pointer = (void *)(uintptr_t)pointer;
    if (model && !(model->flags & DAT_EVD_SOFTWARE_FLAG))
        must_fail(DAT_INVALID_PARAMETER);
    else if (model && model->software_count == model->length)
        must_fail(DAT_QUEUE_FULL);
    else if (model && model->software_count == MAX_SOFTWARE)
        return;
    if (!succeeded(CALL(node, evd_post_se, handle, at(&shared->event))))
        return;
    model->software[model->software_count++] = pointer;
    model->notified |= evd->cno && model->enabled;
}

void dequeue(int node)
{
    struct object *evd;
    uint64_t handle = handle_for(EVD, node, &evd);
    if (evd)
        take_event(evd);
    else
        succeeded(CALL(node, evd_dequeue, handle, at(&shared->event)));
}

/* Returns whether an endpoint's completion flags forbid waits for several events. */
static bool notifies(const struct object *evd)
{
    int i;
    for (i = 0; i < object_count; i++)
        if (objects[i].alive && objects[i].kind == EP && objects[i].of.ep.request_evd == evd && objects[i].of.ep.unsignaled)
            return true;
    return false;
}

void wait_for_event(int node)
{
    struct object *evd;
    uint64_t handle = handle_for(EVD, node, &evd);
    int threshold = chance(70) ? 1 : (int)below(5), more;
    uint32_t code;
    if (evd && evd->of.evd.asynchronous)
        threshold = 1;
    if (threshold < 1 || (evd && threshold > evd->of.evd.length))
        must_fail(DAT_INVALID_PARAMETER);
    if (evd && (!evd->of.evd.waitable || (threshold > 1 && notifies(evd))))
        must_fail(DAT_INVALID_STATE);
    if (!evd || evd->of.evd.software_count < threshold)
        may_fail(DAT_TIMEOUT_EXPIRED);
    shared->out[0] = UINT32_MAX;
    code = CALL(node, evd_wait, handle, timeout(), word(threshold), at(&shared->event), at(&shared->out[0]));
    more = (int)(uint32_t)shared->out[0];
    if (!succeeded(code)) {
        if (DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED && evd && (more < evd->of.evd.software_count || more >= threshold))
            fail("the wait for %d events timed out; it reports %d, of which %d are software events", threshold, more,
                 evd->of.evd.software_count);
        return;
    }
    check_event(evd);
    if (more < evd->of.evd.software_count || more < threshold - 1)
        fail("the wait for %d events reports %d more, with %d software events", threshold, more, evd->of.evd.software_count);
    if (more > 0 && !take_event(evd))
        fail("the wait reports %d more events, but there is none", more);
}

void create_cno(int node)
{
    struct object *ia;
    uint64_t handle = handle_for(IA, node, &ia);
    if (count_objects(CNO, node) < 5 && succeeded(CALL(node, cno_create, handle, 0, 0, MADE)))
        add_object(CNO, node, shared->out[0]);
}

void free_cno(int node)
{
    struct object *cno;
    uint64_t handle = handle_for(CNO, node, &cno);
    if (cno && is_used(cno))
        must_fail(DAT_INVALID_STATE);
    if (succeeded(CALL(node, cno_free, handle)))
        cno->alive = false;
}

/* Counts the EVDs whose notification the CNO holds. */
static int notifications(const struct object *cno)
{
    int i, count = 0;
    for (i = 0; cno && i < object_count; i++)
        count += objects[i].alive && objects[i].kind == EVD && objects[i].cno == cno && objects[i].of.evd.notified;
    return count;
}

void wait_for_cno(int node)
{
    struct object *cno, *evd;
    uint64_t handle = handle_for(CNO, node, &cno);
    int waiting = notifications(cno);
    uint32_t code;
    shared->out[0] = 0;
    if (!waiting) {
        may_fail(DAT_QUEUE_EMPTY);
        may_fail(DAT_TIMEOUT_EXPIRED);
    }
#ifndef UDAPL_1_2
    if (chance(40))
        code = CALL(node, cno_trigger, handle, at(&shared->out[0]));
    else
#endif
        code = CALL(node, cno_wait, handle, timeout(), at(&shared->out[0]));
    if (!succeeded(code))
        return;
    /* An EVD that left the CNO meanwhile gives NULL. */
    if (!shared->out[0] && !waiting)
        return;
    evd = find_object(EVD, node, shared->out[0]);
    if (!evd || evd->cno != cno)
        fail("the wait for a CNO returned %#llx, which is no EVD of it; %d have events", (unsigned long long)shared->out[0],
             waiting);
    evd->of.evd.notified = false;
}

void set_context(int node)
{
    struct object *object = any_object((enum kind)below(SRQ + 1), node);
    uint64_t context = random_word();
    if (object && succeeded(CALL(node, set_consumer_context, object->handle, context)))
        object->context = context;
}
