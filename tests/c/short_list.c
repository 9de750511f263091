/* Gives a call less room than it says: shows that the runtime of AddressSanitizer sees what the library does. Wrong on purpose.
 *
 * usage: short_list        under scripts/sanitize.sh, with at least two entries in dat.conf
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <dat2/udat.h>

typedef DAT_RETURN (*list_fn)(DAT_COUNT, DAT_COUNT *, DAT_PROVIDER_INFO *(*)[]);

int main(void)
{
    void *library = dlopen("libdat2.so.2", RTLD_NOW);
    list_fn list = library ? (list_fn)dlsym(library, "dat_registry_list_providers") : NULL;
    if (!list) {
        fprintf(stderr, "no libdat2.so.2\n");
        return 1;
    }
    DAT_PROVIDER_INFO *info = calloc(1, sizeof *info);
    DAT_PROVIDER_INFO **room = malloc(sizeof *room);
    DAT_COUNT count = 0;
    room[0] = info;
    list(2, &count, (DAT_PROVIDER_INFO *(*)[])room);
    printf("short_list: the library was not stopped\n");
    return 0;
}
