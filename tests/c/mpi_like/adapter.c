/* One IA for each rank, opened and closed as in an MPI. */
#include "job.h"
#include <sched.h>
#include <unistd.h>

struct adapter adapter;

/* Returns the provider's IA handle. In 2.0 the consumer's is a small integer, and a function maps it; in 1.2 both
 * are the same. */
static DAT_IA_HANDLE providers(void)
{
#ifdef UDAPL_1_2
    return adapter.consumers;
#else
    DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
    NEED((unsigned long)adapter.consumers < 4096);
    CHECK(dat.get_ia_handle(adapter.consumers, &ia));
    return ia;
#endif
}

static void attributes(DAT_IA_ATTR *attr, DAT_PROVIDER_ATTR *provider)
{
    CHECK(CALL(adapter.ia, ia_query, NULL, DAT_IA_FIELD_ALL, attr, DAT_PROVIDER_FIELD_ALL, provider));
    NEED(provider->dapl_version_major == MAJOR && provider->dapl_version_minor == MINOR);
}

/* Creates a service point at the process's number, or at the next free one. */
static void listen_at_some(struct card *card)
{
    DAT_RETURN code;
    card->qual = 20000 + getpid() % 10000;
    do
        code = CALL(adapter.ia, psp_create, ++card->qual, adapter.conn, DAT_PSP_CONSUMER_FLAG, &adapter.psp);
    while (DAT_GET_TYPE(code) == DAT_CONN_QUAL_IN_USE);
    CHECK(code);
}

void adapter_open(const char *name)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider;
    DAT_EVD_FLAGS completions = DAT_EVD_DTO_FLAG;
    adapter.cno = DAT_HANDLE_NULL;
    CHECK(dat.ia_openv((char *)name, 8, &async, &adapter.consumers, MAJOR, MINOR, DAT_FALSE));
    adapter.ia = providers();
    attributes(&attr, &provider);
#ifndef UDAPL_1_2
    for (int i = 0; i < provider.num_provider_specific_attr; i++)
        if (!strcmp(provider.provider_specific_attr[i].name, "DAT_IB_TRANSPORT_MTU"))
            adapter.mtu = atoi(provider.provider_specific_attr[i].value);
    NEED(adapter.mtu >= 256);
#endif
    if (mode == CNO) {
        CHECK(CALL(adapter.ia, cno_create, DAT_OS_WAIT_PROXY_AGENT_NULL, &adapter.cno));
        completions |= DAT_EVD_SOFTWARE_FLAG;
    }
    CHECK(CALL(adapter.ia, evd_create, 36, adapter.cno, DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG, &adapter.conn));
    CHECK(CALL(adapter.ia, evd_create, 2000, adapter.cno, completions, &adapter.dto));
    CHECK(CALL(adapter.ia, pz_create, &adapter.pz));
    memcpy(&board->cards[rank].address, attr.ia_address_ptr, sizeof(struct sockaddr_in));
    listen_at_some(&board->cards[rank]);
}

void adapter_close(void)
{
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider;
    CHECK(CALL(adapter.dto, evd_free));
    CHECK(CALL(adapter.psp, psp_free));
    CHECK(CALL(adapter.conn, evd_free));
    if (adapter.cno != DAT_HANDLE_NULL)
        CHECK(CALL(adapter.cno, cno_free));
    CHECK(CALL(adapter.pz, pz_free));
    NEED(providers() == adapter.ia);
    attributes(&attr, &provider);
    adapter.ia = DAT_HANDLE_NULL;
    CHECK(dat.ia_close(adapter.consumers, DAT_CLOSE_GRACEFUL_FLAG));
    NEED(DAT_GET_TYPE(dat.ia_close(adapter.consumers, DAT_CLOSE_GRACEFUL_FLAG)) == DAT_INVALID_HANDLE);
}

void region_make(struct region *region, void *memory, size_t size, DAT_MEM_PRIV_FLAGS privileges)
{
    DAT_REGION_DESCRIPTION description;
    DAT_VLEN length = 0;
    DAT_VADDR address = 0;
    description.for_va = memory;
    CHECK(CALL(adapter.ia, lmr_create, DAT_MEM_TYPE_VIRTUAL, description, size, adapter.pz, privileges,
               ONLY_2_0(DAT_VA_TYPE_VA) &region->lmr, &region->local, &region->remote, &length, &address));
    /* The query returns the same values. */
    NEED(length == size && address == (DAT_VADDR)(uintptr_t)memory);
}

DAT_EP_HANDLE endpoint_make(void)
{
    DAT_EP_ATTR attr;
    DAT_EP_HANDLE ep;
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_message_size = mode == RDMA ? 3 : SLOT;
    attr.max_rdma_size = 0x800000;
    attr.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
    attr.max_recv_dtos = mode == RDMA ? 8 : 32;
    attr.max_request_dtos = 96;
    attr.max_recv_iov = attr.max_request_iov = 1;
    attr.max_rdma_read_in = attr.max_rdma_read_out = 4;
    attr.srq_soft_hw = -1;
    attr.max_rdma_read_iov = attr.max_rdma_write_iov = 1;
#ifndef UDAPL_1_2
    if (mode == UD) {
        memset(&attr, 0, sizeof attr);
        attr.service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD;
        attr.max_message_size = adapter.mtu;
        attr.max_recv_dtos = attr.max_request_dtos = 64;
        attr.max_recv_iov = attr.max_request_iov = 1;
    }
#endif
    CHECK(CALL(adapter.ia, ep_create, adapter.pz, adapter.dto, adapter.dto, adapter.conn, &attr, &ep));
    return ep;
}

DAT_LMR_TRIPLET segment(const struct region *region, const void *at, size_t length)
{
    DAT_LMR_TRIPLET triplet = {.virtual_address = (DAT_VADDR)(uintptr_t)at, .segment_length = length, .lmr_context = region->local};
    return triplet;
}

void adapter_wait(void)
{
    DAT_EVD_HANDLE which = DAT_HANDLE_NULL;
    DAT_EVENT event;
    DAT_COUNT more = -1;
    DAT_RETURN code;
    static unsigned idle;
    switch (mode) {
    case CNO:
        /* The awaited event must wake the rank; a lost wake-up fails here. */
        CHECK(CALL(adapter.cno, cno_wait, PATIENCE / 2 * 1000000u, &which));
        NEED(which == adapter.conn || which == adapter.dto);
        break;
    case EVD:
        /* The EVD with few events is polled in between. */
        code = CALL(adapter.dto, evd_wait, 10000, 1, &event, &more);
        if (DAT_GET_TYPE(code) != DAT_TIMEOUT_EXPIRED) {
            CHECK(code);
            NEED(more >= 0);
            carrier->completed(&event);
        }
        break;
    default:
        /* In a guest the device's work needs the processors, too. */
        if (++idle % 4)
            sched_yield();
        else
            usleep(200);
    }
}
