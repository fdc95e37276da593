/*
 * What Rust calls of DPDK's cryptodev. Most of DPDK's calls for packets are inline functions, and the layout of its structures is
 * only in its headers, so a compiler reads them, and nothing of them is written down twice.
 *
 * A set is a number of packets of one length with one key and one direction. Its packets lie in memory of DPDK, as a gateway with
 * such a device would have them. At most one set is open: the queue pair of the device is its own.
 *
 * Not here: who may call what, and when (lib.rs and mod.rs); the lengths that Rust has checked.
 */
#define _GNU_SOURCE
/* The pool of sessions. */
#define ALLOW_EXPERIMENTAL_API
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cryptodev.h>
#include <rte_eal.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or later is needed (Debian: libdpdk-dev)"
#endif

/* Operations that the device takes and gives back in one call. */
#define BURST 32
/* Room in the device's queue: more than Rust lets be under way. */
#define QUEUE 4096
/* ESP: SPI and sequence number in front, an ICV of 16 bytes at the end. */
#define HEADER 8
#define ICV 16
#define GCM_IV 8
#define CBC_IV 16

/* The same as `Setup` in mod.rs. */
struct isw_setup {
        const uint8_t *key;
        const uint8_t *mac;
        const uint8_t *salt;
        uint32_t key_len;
        uint32_t mac_len;
        uint32_t open;
        uint32_t slots;
        uint32_t packet_len;
};

/* Beside each operation. The device reads the IV from here. */
struct extra {
        uint8_t iv[16];
        uint32_t slot;
        uint32_t busy;
};

struct isw_set {
        struct rte_mempool *packets;
        struct rte_mempool *operations;
        struct rte_mempool *sessions;
        void *session;
        struct rte_crypto_op **ops;
        uint32_t slots;
        uint32_t packet_len;
        uint32_t aead;
        uint8_t salt[4];
};

#define EXTRA_AT (sizeof(struct rte_crypto_op) + sizeof(struct rte_crypto_sym_op))

const uint32_t isw_setup_len = sizeof(struct isw_setup);

static uint8_t device;
/* Words of DPDK: they belong into a message, not on the terminal. What does not fit is left out. */
static char said[4096];

static struct extra *extra_of(struct rte_crypto_op *op)
{
        return rte_crypto_op_ctod_offset(op, struct extra *, EXTRA_AT);
}

const char *isw_said(void)
{
        return said;
}

/* Removes the folder that DPDK makes for files of this process, of which there are none, and the one around it if it is empty. */
static void remove_folder(void)
{
        char path[4096], *end;

        if (snprintf(path, sizeof(path), "%s", rte_eal_get_runtime_dir()) >= (int) sizeof(path) || rmdir(path) != 0)
                return;
        end = strrchr(path, '/');
        if (end != NULL) {
                *end = 0;
                (void) rmdir(path);
        }
}

/* Starts DPDK in this process, without files, huge pages and devices of the machine, and makes a device of software. `vdev` is as
 * --vdev wants it, `name` its name. Once in a process. Returns the step that failed, or NULL. */
const char *isw_start(const char *vdev, const char *name)
{
        char cpu[16], prefix[32];
        char *argv[] = { "ironswan-lab", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "--iova-mode=va", "-m", "192", "-l",
                         cpu, "--file-prefix", prefix, "--vdev", (char *) vdev, NULL };
        struct rte_cryptodev_config config = { .nb_queue_pairs = 1 };
        struct rte_cryptodev_qp_conf queue = { .nb_descriptors = QUEUE };
        cpu_set_t allowed;
        FILE *words = fmemopen(said, sizeof(said) - 1, "w");
        int first = 0, id;

        if (words != NULL) {
                setvbuf(words, NULL, _IONBF, 0);
                rte_openlog_stream(words);
        }
        if (pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed) != 0)
                return "asking for the processors of this thread";
        while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &allowed))
                first++;
        snprintf(cpu, sizeof(cpu), "%d", first);
        snprintf(prefix, sizeof(prefix), "ironswan-lab-%d", (int) getpid());
        id = rte_eal_init(RTE_DIM(argv) - 1, argv);
        /* It binds its caller to one processor. */
        pthread_setaffinity_np(pthread_self(), sizeof(allowed), &allowed);
        remove_folder();
        if (id < 0)
                return "starting DPDK";
        id = rte_cryptodev_get_dev_id(name);
        if (id < 0)
                return "finding the device";
        device = id;
        config.socket_id = rte_cryptodev_socket_id(device);
        if (rte_cryptodev_configure(device, &config) < 0)
                return "configuring the device";
        if (rte_cryptodev_queue_pair_setup(device, 0, &queue, config.socket_id) < 0)
                return "making the device's queue";
        if (rte_cryptodev_start(device) < 0)
                return "starting the device";
        return NULL;
}

static void *session_of(const struct isw_setup *setup, struct rte_mempool *pool)
{
        struct rte_crypto_sym_xform aead = {
                .type = RTE_CRYPTO_SYM_XFORM_AEAD,
                .aead = { .op = setup->open ? RTE_CRYPTO_AEAD_OP_DECRYPT : RTE_CRYPTO_AEAD_OP_ENCRYPT,
                          .algo = RTE_CRYPTO_AEAD_AES_GCM,
                          .key = { .data = setup->key, .length = setup->key_len },
                          .iv = { .offset = EXTRA_AT, .length = 12 },
                          .digest_length = ICV,
                          .aad_length = HEADER },
        };
        struct rte_crypto_sym_xform cipher = {
                .type = RTE_CRYPTO_SYM_XFORM_CIPHER,
                .cipher = { .op = setup->open ? RTE_CRYPTO_CIPHER_OP_DECRYPT : RTE_CRYPTO_CIPHER_OP_ENCRYPT,
                            .algo = RTE_CRYPTO_CIPHER_AES_CBC,
                            .key = { .data = setup->key, .length = setup->key_len },
                            .iv = { .offset = EXTRA_AT, .length = CBC_IV } },
        };
        struct rte_crypto_sym_xform mac = {
                .type = RTE_CRYPTO_SYM_XFORM_AUTH,
                .auth = { .op = setup->open ? RTE_CRYPTO_AUTH_OP_VERIFY : RTE_CRYPTO_AUTH_OP_GENERATE,
                          .algo = RTE_CRYPTO_AUTH_SHA256_HMAC,
                          .key = { .data = setup->mac, .length = setup->mac_len },
                          .digest_length = ICV },
        };

        if (setup->mac_len == 0)
                return rte_cryptodev_sym_session_create(device, &aead, pool);
        /* ESP encrypts, then authenticates; and the other way round. */
        if (setup->open) {
                mac.next = &cipher;
                return rte_cryptodev_sym_session_create(device, &mac, pool);
        }
        cipher.next = &mac;
        return rte_cryptodev_sym_session_create(device, &cipher, pool);
}

uint32_t isw_poll(struct isw_set *set, uint32_t *answers, uint32_t room)
{
        struct rte_crypto_op *ops[BURST];
        uint16_t n = rte_cryptodev_dequeue_burst(device, 0, ops, RTE_MIN(room, (uint32_t) BURST)), i;

        (void) set;
        for (i = 0; i < n; i++) {
                struct extra *extra = extra_of(ops[i]);

                answers[i] = extra->slot << 1 | (ops[i]->status == RTE_CRYPTO_OP_STATUS_SUCCESS);
                __atomic_store_n(&extra->busy, 0, __ATOMIC_RELEASE);
        }
        return n;
}

/* True when the packet of a slot is with the device. */
int isw_busy(struct isw_set *set, uint32_t slot)
{
        return __atomic_load_n(&extra_of(set->ops[slot])->busy, __ATOMIC_ACQUIRE) != 0;
}

/* True when no packet of the set is with the device. */
static int all_back(struct isw_set *set)
{
        uint32_t i;

        for (i = 0; i < set->slots; i++)
                if (set->ops[i] != NULL && isw_busy(set, i))
                        return 0;
        return 1;
}

/* Waits for what is under way. Returns 0, and frees nothing, when the device keeps a packet. */
int isw_close(struct isw_set *set)
{
        uint32_t answers[BURST], i, tries = 1000000;

        if (set->ops != NULL) {
                while (!all_back(set)) {
                        if (tries-- == 0)
                                return 0;
                        isw_poll(set, answers, BURST);
                }
                for (i = 0; i < set->slots && set->ops[i] != NULL; i++) {
                        rte_pktmbuf_free(set->ops[i]->sym->m_src);
                        rte_crypto_op_free(set->ops[i]);
                }
                free(set->ops);
        }
        if (set->session != NULL)
                rte_cryptodev_sym_session_free(device, set->session);
        rte_mempool_free(set->sessions);
        rte_mempool_free(set->operations);
        rte_mempool_free(set->packets);
        free(set);
        return 1;
}

/* Makes a packet and an operation for every slot. NULL: no memory, or the device does not take the key. */
struct isw_set *isw_open(const struct isw_setup *setup)
{
        uint32_t room = RTE_ALIGN_CEIL(setup->packet_len, RTE_CACHE_LINE_SIZE), i;
        struct isw_set *set = calloc(1, sizeof(*set));

        if (set == NULL)
                return NULL;
        set->slots = setup->slots;
        set->packet_len = setup->packet_len;
        set->aead = setup->mac_len == 0;
        memcpy(set->salt, setup->salt, sizeof(set->salt));
        set->packets = rte_pktmbuf_pool_create("isw-packets", setup->slots, 0, 0, RTE_PKTMBUF_HEADROOM + room, SOCKET_ID_ANY);
        set->operations = rte_crypto_op_pool_create("isw-ops", RTE_CRYPTO_OP_TYPE_SYMMETRIC, setup->slots, 0,
                                                    sizeof(struct extra), SOCKET_ID_ANY);
        set->sessions = rte_cryptodev_sym_session_pool_create("isw-sessions", 1,
                                                              rte_cryptodev_sym_get_private_session_size(device), 0, 0,
                                                              SOCKET_ID_ANY);
        set->ops = calloc(setup->slots, sizeof(*set->ops));
        if (set->packets == NULL || set->operations == NULL || set->sessions == NULL || set->ops == NULL)
                goto failed;
        set->session = session_of(setup, set->sessions);
        if (set->session == NULL)
                goto failed;
        for (i = 0; i < setup->slots; i++) {
                struct rte_crypto_op *op = rte_crypto_op_alloc(set->operations, RTE_CRYPTO_OP_TYPE_SYMMETRIC);

                if (op == NULL)
                        goto failed;
                set->ops[i] = op;
                memset(extra_of(op), 0, sizeof(struct extra));
                extra_of(op)->slot = i;
                op->sym->m_src = rte_pktmbuf_alloc(set->packets);
                if (op->sym->m_src == NULL || rte_pktmbuf_append(op->sym->m_src, setup->packet_len) == NULL)
                        goto failed;
        }
        return set;
failed:
        isw_close(set);
        return NULL;
}

/* The bytes of a packet, from SPI to ICV. */
uint8_t *isw_packet(struct isw_set *set, uint32_t slot)
{
        return rte_pktmbuf_mtod(set->ops[slot]->sym->m_src, uint8_t *);
}

/* Says in the operation of a slot what there is to do: for each packet anew, as a gateway would. With AES-GCM the sequence number is
 * written into the packet, and is its IV. */
static struct rte_crypto_op *filled(struct isw_set *set, uint32_t slot, uint64_t seq)
{
        struct rte_crypto_op *op = set->ops[slot];
        struct rte_crypto_sym_op *sym = op->sym;
        struct extra *extra = extra_of(op);
        uint8_t *packet = rte_pktmbuf_mtod(sym->m_src, uint8_t *);
        uint32_t iv = set->aead ? GCM_IV : CBC_IV, text = set->packet_len - HEADER - iv - ICV;
        rte_be32_t low = rte_cpu_to_be_32((uint32_t) seq);
        rte_be64_t all = rte_cpu_to_be_64(seq);

        op->status = RTE_CRYPTO_OP_STATUS_NOT_PROCESSED;
        rte_crypto_op_attach_sym_session(op, set->session);
        sym->m_dst = NULL;
        memcpy(packet + 4, &low, sizeof(low));
        if (set->aead) {
                memcpy(packet + HEADER, &all, sizeof(all));
                memcpy(extra->iv, set->salt, sizeof(set->salt));
                memcpy(extra->iv + sizeof(set->salt), &all, sizeof(all));
                sym->aead.data.offset = HEADER + iv;
                sym->aead.data.length = text;
                sym->aead.digest.data = packet + set->packet_len - ICV;
                sym->aead.aad.data = packet;
        } else {
                memcpy(extra->iv, packet + HEADER, CBC_IV);
                sym->cipher.data.offset = HEADER + iv;
                sym->cipher.data.length = text;
                sym->auth.data.offset = 0;
                sym->auth.data.length = set->packet_len - ICV;
                sym->auth.digest.data = packet + set->packet_len - ICV;
        }
        return op;
}

/* Hands over the packets of `count` slots from `first` on, with sequence numbers from `seq` on. Stops at one that is with the device
 * already, and when the queue is full. Returns the number that was taken. */
uint32_t isw_submit(struct isw_set *set, uint32_t first, uint32_t count, uint64_t seq)
{
        struct rte_crypto_op *ops[BURST];
        uint32_t taken = 0;

        while (taken < count) {
                uint32_t some = RTE_MIN(count - taken, (uint32_t) BURST), ready = 0, sent, i;

                for (; ready < some; ready++) {
                        uint32_t slot = first + taken + ready;

                        if (isw_busy(set, slot))
                                break;
                        __atomic_store_n(&extra_of(set->ops[slot])->busy, 1, __ATOMIC_RELAXED);
                        ops[ready] = filled(set, slot, seq + taken + ready);
                }
                sent = ready == 0 ? 0 : rte_cryptodev_enqueue_burst(device, 0, ops, ready);
                for (i = sent; i < ready; i++)
                        __atomic_store_n(&extra_of(ops[i])->busy, 0, __ATOMIC_RELEASE);
                taken += sent;
                if (sent < some)
                        break;
        }
        return taken;
}
