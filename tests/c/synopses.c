/* The functions of the manual pages dat_lmr_create, dat_lmr_free, dat_rmr_free and dat_ep_disconnect, declared as their SYNOPSIS has
 * them and called, with no header but the one that these pages name. C99 and later, C++11 and later.
 *
 * usage: synopses IA-NAME      exits with 0, or with the number of the line that is not true
 */
#ifdef UDAPL_1_2
#include <dat/udat.h>
#define ONLY_2_0(parameter)
#else
#include <dat2/udat.h>
#define ONLY_2_0(parameter) parameter,
#endif

#ifdef __cplusplus
extern "C" {
#endif
DAT_RETURN
dat_lmr_create(
    IN DAT_IA_HANDLE ia_handle,
    IN DAT_MEM_TYPE mem_type,
    IN DAT_REGION_DESCRIPTION region_description,
    IN DAT_VLEN length,
    IN DAT_PZ_HANDLE pz_handle,
    IN DAT_MEM_PRIV_FLAGS mem_privileges,
    ONLY_2_0(IN DAT_VA_TYPE va_type)
    OUT DAT_LMR_HANDLE *lmr_handle,
    OUT DAT_LMR_CONTEXT *lmr_context,
    OUT DAT_RMR_CONTEXT *rmr_context,
    OUT DAT_VLEN *registered_size,
    OUT DAT_VADDR *registered_address);
DAT_RETURN dat_lmr_free(IN DAT_LMR_HANDLE lmr_handle);
DAT_RETURN dat_rmr_free(IN DAT_RMR_HANDLE rmr_handle);
DAT_RETURN dat_ep_disconnect(IN DAT_EP_HANDLE ep_handle, IN DAT_CLOSE_FLAGS disconnect_flags);
#ifdef __cplusplus
}
#endif

/* The line's number says what failed: an exit status has 8 bits. */
#define NEED(condition)            \
    do {                           \
        if (!(condition))          \
            return __LINE__ % 256; \
    } while (0)
#define GIVES(call, code) NEED(DAT_GET_TYPE(call) == (DAT_RETURN)(code))

static char memory[4096];

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL, evd;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE ep;
    DAT_LMR_HANDLE lmr;
    DAT_RMR_HANDLE rmr;
    DAT_LMR_CONTEXT lmr_context;
    DAT_RMR_CONTEXT rmr_context = 1;
    DAT_VLEN size;
    DAT_VADDR at;
    DAT_REGION_DESCRIPTION region;

    NEED(argc == 2);
    NEED(dat_ia_open(argv[1], 8, &async_evd, &ia) == DAT_SUCCESS);
    NEED(dat_pz_create(ia, &pz) == DAT_SUCCESS);
    NEED(dat_evd_create(ia, 8, DAT_HANDLE_NULL, (DAT_EVD_FLAGS)(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG), &evd) == DAT_SUCCESS);
    NEED(dat_ep_create(ia, pz, evd, evd, evd, NULL, &ep) == DAT_SUCCESS);

    region.for_va = memory;
    NEED(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz,
                        (DAT_MEM_PRIV_FLAGS)(DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG),
                        ONLY_2_0(DAT_VA_TYPE_VA) &lmr, &lmr_context, &rmr_context, &size, &at) == DAT_SUCCESS);
    /* No remote privilege was requested. */
    NEED(rmr_context == 0);
    NEED(size == sizeof memory);
    NEED(dat_lmr_free(lmr) == DAT_SUCCESS);
    GIVES(dat_lmr_free(lmr), DAT_INVALID_HANDLE);

    NEED(dat_rmr_create(pz, &rmr) == DAT_SUCCESS);
    NEED(dat_rmr_free(rmr) == DAT_SUCCESS);
    GIVES(dat_rmr_free(rmr), DAT_INVALID_HANDLE);

    GIVES(dat_ep_disconnect(ep, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_STATE);
    GIVES(dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE);
    GIVES(dat_ep_disconnect(pz, DAT_CLOSE_DEFAULT), DAT_INVALID_HANDLE);

    NEED(dat_ep_free(ep) == DAT_SUCCESS);
    NEED(dat_evd_free(evd) == DAT_SUCCESS);
    NEED(dat_pz_free(pz) == DAT_SUCCESS);
    NEED(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG) == DAT_SUCCESS);
    return 0;
}
