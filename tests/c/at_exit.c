/* A program that uses DAT in main, in the destructor of a key when a thread ends, and in a handler of exit(3).
 *
 * usage: at_exit IA-NAME      prints two_endpoints' "PASS" four times
 */
#define main two_endpoints
#include "two_endpoints.c"
#undef main
#include <pthread.h>

static char **arguments;

static void once_more(void)
{
    NEED(two_endpoints(2, arguments) == 0);
}

static void destructor(void *value)
{
    (void)value;
    once_more();
}

static void *thread(void *key)
{
    /* The library has thread-local data by then. */
    NEED(!pthread_setspecific(*(pthread_key_t *)key, key));
    once_more();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_key_t key;
    pthread_t one;

    NEED(argc == 2);
    arguments = argv;
    NEED(!pthread_key_create(&key, destructor));
    NEED(!pthread_create(&one, NULL, thread, &key));
    NEED(!pthread_join(one, NULL));
    NEED(!atexit(once_more));
    return two_endpoints(argc, argv);
}
