/*
 * What Rust calls of Intel's multi-buffer library. Its manager is a table of function pointers whose layout only the header
 * knows, so a compiler reads the header, and nothing of it is written down twice.
 *
 * Not here: memory. Every pointer is the caller's, for the time of the call.
 */
#include <intel-ipsec-mb.h>
#include <stddef.h>
#include <string.h>

#if IMB_VERSION_NUM < 0x10300 || IMB_VERSION_NUM >= 0x30000
#error "libipsec-mb 1.3 to 2.x is needed (Debian: libipsec-mb-dev)"
#endif

/* The same as `Call` in lanes.rs. */
struct isw_call {
        const void *encrypt_key;
        const void *decrypt_key;
        const void *mac[3];
        uint8_t *packet;
        uint8_t *tag;
        const uint8_t *iv;
        uint32_t text_at;
        uint32_t text_len;
        uint32_t hash_len;
        uint32_t key_len;
        uint32_t iv_len;
        uint32_t tag_len;
        uint32_t cipher;
        uint32_t hash;
        uint32_t done;
};

enum { ISW_NULL, ISW_CBC, ISW_CTR, ISW_DES3 };
enum { ISW_MD5, ISW_SHA1, ISW_SHA256, ISW_SHA384, ISW_SHA512, ISW_XCBC, ISW_CMAC };

/* Sizes that Rust's arrays must have. */
const uint32_t isw_gcm_key_len = sizeof(struct gcm_key_data);
const uint32_t isw_gcm_context_len = sizeof(struct gcm_context_data);
const uint32_t isw_call_len = sizeof(struct isw_call);

/* A manager for the best instructions of this processor, or (narrow) for SSE with the SHA extensions. NULL: no memory, the
 * processor lacks something, or the library's own self-test failed. */
IMB_MGR *isw_new(int narrow)
{
        IMB_MGR *m = alloc_mb_mgr(0);
        IMB_ARCH arch;

        if (m == NULL)
                return NULL;
        if ((m->features & IMB_CPUFLAGS_SSE) != IMB_CPUFLAGS_SSE) {
                free_mb_mgr(m);
                return NULL;
        }
        if (narrow)
                init_mb_mgr_sse(m);
        else
                init_mb_mgr_auto(m, &arch);
        if (imb_get_errno(m) != 0 ||
            ((m->features & IMB_FEATURE_SELF_TEST) && !(m->features & IMB_FEATURE_SELF_TEST_PASS))) {
                free_mb_mgr(m);
                return NULL;
        }
        return m;
}

void isw_free(IMB_MGR *m)
{
        free_mb_mgr(m);
}

int isw_has_avx512(const IMB_MGR *m)
{
        return (m->features & IMB_CPUFLAGS_AVX512) == IMB_CPUFLAGS_AVX512;
}

int isw_has_shani(const IMB_MGR *m)
{
        return (m->features & IMB_FEATURE_SHANI) != 0;
}

/* AES-GCM: prepares a key of 16, 24 or 32 bytes, and gives the functions that use it. */
int isw_gcm(IMB_MGR *m, const void *key, uint32_t key_len, struct gcm_key_data *data, aes_gcm_enc_dec_t *seal,
            aes_gcm_enc_dec_t *open)
{
        switch (key_len) {
        case 16:
                m->gcm128_pre(key, data);
                *seal = m->gcm128_enc;
                *open = m->gcm128_dec;
                return 1;
        case 24:
                m->gcm192_pre(key, data);
                *seal = m->gcm192_enc;
                *open = m->gcm192_dec;
                return 1;
        case 32:
                m->gcm256_pre(key, data);
                *seal = m->gcm256_enc;
                *open = m->gcm256_dec;
                return 1;
        default:
                return 0;
        }
}

/* Expands an AES key of 16, 24 or 32 bytes for both directions: 15 round keys each. */
int isw_aes(IMB_MGR *m, const void *key, uint32_t key_len, void *encrypt, void *decrypt)
{
        switch (key_len) {
        case 16:
                m->keyexp_128(key, encrypt, decrypt);
                return 1;
        case 24:
                m->keyexp_192(key, encrypt, decrypt);
                return 1;
        case 32:
                m->keyexp_256(key, encrypt, decrypt);
                return 1;
        default:
                return 0;
        }
}

/* One DES key of 8 bytes to its 16 subkeys. */
int isw_des(IMB_MGR *m, const void *key, uint64_t *schedule)
{
        return m->des_key_sched(schedule, key) == 0;
}

/* The state of a hash after one block (64 bytes, 128 for SHA-384 and SHA-512). */
int isw_block(IMB_MGR *m, uint32_t hash, const void *block, void *state)
{
        switch (hash) {
        case ISW_MD5:
                m->md5_one_block(block, state);
                return 1;
        case ISW_SHA1:
                m->sha1_one_block(block, state);
                return 1;
        case ISW_SHA256:
                m->sha256_one_block(block, state);
                return 1;
        case ISW_SHA384:
                m->sha384_one_block(block, state);
                return 1;
        case ISW_SHA512:
                m->sha512_one_block(block, state);
                return 1;
        default:
                return 0;
        }
}

/* XCBC: K1 expanded (11 round keys), K2, K3. CMAC: the key expanded, and its two subkeys. From 16 bytes. */
int isw_block_mac(IMB_MGR *m, uint32_t hash, const void *key, void *chain, void *first, void *second)
{
        uint8_t unused[16 * 15] __attribute__((aligned(16)));

        switch (hash) {
        case ISW_XCBC:
                m->xcbc_keyexp(key, chain, first, second);
                return 1;
        case ISW_CMAC:
                m->keyexp_128(key, chain, unused);
                m->cmac_subkey_gen_128(chain, first, second);
                memset(unused, 0, sizeof(unused));
                /* The compiler must not drop the line above. */
                __asm__ volatile("" : : "r"(unused) : "memory");
                return 1;
        default:
                return 0;
        }
}

static void fill(IMB_JOB *job, const struct isw_call *call, int encrypt)
{
        static const IMB_CIPHER_MODE ciphers[] = {
                [ISW_NULL] = IMB_CIPHER_NULL,
                [ISW_CBC] = IMB_CIPHER_CBC,
                [ISW_CTR] = IMB_CIPHER_CNTR,
                [ISW_DES3] = IMB_CIPHER_DES3,
        };
        static const IMB_HASH_ALG hashes[] = {
                [ISW_MD5] = IMB_AUTH_MD5,
                [ISW_SHA1] = IMB_AUTH_HMAC_SHA_1,
                [ISW_SHA256] = IMB_AUTH_HMAC_SHA_256,
                [ISW_SHA384] = IMB_AUTH_HMAC_SHA_384,
                [ISW_SHA512] = IMB_AUTH_HMAC_SHA_512,
                [ISW_XCBC] = IMB_AUTH_AES_XCBC,
                [ISW_CMAC] = IMB_AUTH_AES_CMAC,
        };

        job->enc_keys = call->encrypt_key;
        job->dec_keys = call->decrypt_key;
        job->key_len_in_bytes = call->key_len;
        job->src = call->packet;
        job->dst = call->packet + call->text_at;
        job->cipher_start_src_offset_in_bytes = call->text_at;
        job->msg_len_to_cipher_in_bytes = call->text_len;
        job->hash_start_src_offset_in_bytes = 0;
        job->msg_len_to_hash_in_bytes = call->hash_len;
        job->iv = call->iv;
        job->iv_len_in_bytes = call->iv_len;
        job->auth_tag_output = call->tag;
        job->auth_tag_output_len_in_bytes = call->tag_len;
        if (call->hash == ISW_XCBC) {
                job->u.XCBC._k1_expanded = call->mac[0];
                job->u.XCBC._k2 = call->mac[1];
                job->u.XCBC._k3 = call->mac[2];
        } else if (call->hash == ISW_CMAC) {
                job->u.CMAC._key_expanded = call->mac[0];
                job->u.CMAC._skey1 = call->mac[1];
                job->u.CMAC._skey2 = call->mac[2];
        } else {
                job->u.HMAC._hashed_auth_key_xor_ipad = call->mac[0];
                job->u.HMAC._hashed_auth_key_xor_opad = call->mac[1];
        }
        job->cipher_mode = ciphers[call->cipher];
        job->hash_alg = hashes[call->hash];
        job->cipher_direction = encrypt ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT;
        job->chain_order = encrypt ? IMB_ORDER_CIPHER_HASH : IMB_ORDER_HASH_CIPHER;
}

static void finish(IMB_JOB *job)
{
        ((struct isw_call *) job->user_data)->done = job->status == IMB_STATUS_COMPLETED;
}

/* Encrypts and signs (or computes the tags of, and decrypts) `count` packets, whose calls lie `stride` bytes apart. When it
 * returns nothing is left in the manager, and `done` says of each whether it was carried out. */
void isw_run(IMB_MGR *m, uint8_t *calls, size_t stride, uint32_t count, int encrypt)
{
        IMB_JOB *job;
        uint32_t i;

        for (i = 0; i < count; i++) {
                struct isw_call *call = (struct isw_call *) (calls + i * stride);

                job = IMB_GET_NEXT_JOB(m);
                fill(job, call, encrypt);
                job->user_data = call;
                for (job = IMB_SUBMIT_JOB_NOCHECK(m); job != NULL; job = IMB_GET_COMPLETED_JOB(m))
                        finish(job);
        }
        while ((job = IMB_FLUSH_JOB(m)) != NULL)
                finish(job);
}
