/* adapter.c - names of tensors -> layer, module, A or B; shapes against model and config.
 *
 * The tensors say what is adapted; the config must agree, because PEFT would leave out what it does
 * not name. The digest covers rank, factor and bytes of every pair in the order of layers, so two
 * folders with the same adapter are the same, whatever their config says besides. */
#include "worker/lora/adapter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/files/file_bytes.h"
#include "worker/lora/adapter_config.h"

#define CONFIG_BYTES_MAX (1u << 20)
#define PREFIX "base_model.model."
#define MODULE_MAX 96

static const char *const module_names[ADAPTER_MODULES] = {
    [ADAPTER_Q] = "self_attn.q_proj",       [ADAPTER_K] = "self_attn.k_proj",
    [ADAPTER_V] = "self_attn.v_proj",       [ADAPTER_OUTPUT] = "self_attn.o_proj",
    [ADAPTER_GATE] = "mlp.gate_proj",       [ADAPTER_UP] = "mlp.up_proj",
    [ADAPTER_DOWN] = "mlp.down_proj",       [ADAPTER_QKV] = "self_attn.qkv_proj",
    [ADAPTER_GATE_UP] = "mlp.gate_up_proj",
};

/* Parts of tensor names that tell a kind of adapter which is not served. */
static const struct {
    const char *part, *what;
} foreign[] = {
    {"lora_magnitude_vector", "DoRA"},
    {"lora_embedding_", "an adapter of embeddings"},
    {"embed_tokens", "an adapter of embeddings"},
    {"lm_head", "an adapter of the output head"},
    {"modules_to_save", "a whole module"},
    {".experts.", "an adapter of experts"},
    {"shared_expert", "an adapter of shared experts"},
    {".bias", "a bias"},
    {"kv_a_proj", "an adapter of latent attention"},
    {"kv_b_proj", "an adapter of latent attention"},
    {"q_a_proj", "an adapter of latent attention"},
    {"q_b_proj", "an adapter of latent attention"},
};

struct shown {
    char text[112];
};

/* A name from a file, safe to show. */
static struct shown shown(const char *name)
{
    struct shown s;
    size_t n = 0;
    for (; name[n] != '\0' && n < sizeof(s.text) - 1; n++)
        s.text[n] = (char)(name[n] > 0x20 && name[n] < 0x7f && name[n] != '\'' ? name[n] : '?');
    s.text[n] = '\0';
    return s;
}

bool adapter_name_is_good(const char *name)
{
    size_t bytes = strlen(name);
    for (size_t i = 0; i < bytes; i++) {
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\')
            return false;
    }
    return bytes > 0 && bytes <= ADAPTER_NAME_MAX;
}

const char *adapter_module_name(enum adapter_module module)
{
    ASSERT(module < ADAPTER_MODULES);
    return module_names[module];
}

/* --- what the model has ---------------------------------------------------------------------- */

static bool has_attention(const struct model_config *c, enum adapter_module module)
{
    if (module == ADAPTER_OUTPUT)
        return true;
    if (model_has(c, MODEL_LATENT))
        return false;
    return (module == ADAPTER_QKV) == model_has(c, MODEL_FUSED_QKV);
}

bool adapter_module_shape(const struct model_config *c, enum adapter_module module, uint32_t layer,
                          uint32_t *ret_inputs, uint32_t *ret_outputs)
{
    uint32_t q = c->q_heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    bool attention = module <= ADAPTER_OUTPUT || module == ADAPTER_QKV;
    bool plain_ffn = (c->layer_kinds[layer] & LAYER_EXPERTS) == 0;
    bool fused_ffn = model_has(c, MODEL_FUSED_GATE_UP);
    const struct {
        uint32_t inputs, outputs;
    } shapes[ADAPTER_MODULES] = {
        [ADAPTER_Q] = {c->hidden, q},
        [ADAPTER_K] = {c->hidden, kv},
        [ADAPTER_V] = {c->hidden, kv},
        [ADAPTER_OUTPUT] = {c->q_heads * c->value_dim, c->hidden},
        [ADAPTER_GATE] = {c->hidden, c->ffn},
        [ADAPTER_UP] = {c->hidden, c->ffn},
        [ADAPTER_DOWN] = {c->ffn, c->hidden},
        [ADAPTER_QKV] = {c->hidden, q + 2 * kv},
        [ADAPTER_GATE_UP] = {c->hidden, 2 * c->ffn},
    };
    if (attention
            ? !has_attention(c, module)
            : !plain_ffn || (module != ADAPTER_DOWN && (module == ADAPTER_GATE_UP) != fused_ffn))
        return false;
    *ret_inputs = shapes[module].inputs;
    *ret_outputs = shapes[module].outputs;
    return true;
}

/* --- names ----------------------------------------------------------------------------------- */

struct place {
    uint32_t layer;
    enum adapter_module module;
    bool is_b;
    char name[MODULE_MAX]; /* "model.layers.3.self_attn.q_proj" */
};

static int refuse_name(const char *name, struct errmsg *err)
{
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        if (strstr(name, foreign[i].part) != NULL)
            return errmsg_set(err, -ENOTSUP, "tensor '%s' is %s: not served", shown(name).text,
                              foreign[i].what);
    }
    return errmsg_set(err, -EINVAL,
                      "tensor '%s' is not lora_A.weight or lora_B.weight of a q, k, v, o, gate, up "
                      "or down projection",
                      shown(name).text);
}

/* "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight" */
static int find_place(const char *name, struct place *ret_place, struct errmsg *err)
{
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};
    const size_t end_bytes = strlen(ends[0]);
    size_t bytes = strlen(name);
    struct place place = {0};
    int used = 0;
    if (bytes < strlen(PREFIX) + end_bytes || strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return refuse_name(name, err);
    place.is_b = strcmp(name + bytes - end_bytes, ends[1]) == 0;
    if (!place.is_b && strcmp(name + bytes - end_bytes, ends[0]) != 0)
        return refuse_name(name, err);
    size_t module_bytes = bytes - strlen(PREFIX) - end_bytes;
    if (module_bytes >= sizeof(place.name))
        return refuse_name(name, err);
    memcpy(place.name, name + strlen(PREFIX), module_bytes);
    if (sscanf(place.name, "model.layers.%5u.%n", &place.layer, &used) != 1 || used == 0)
        return refuse_name(name, err);
    /* "+3", " 3" and "03" are other names of the same layer: there is one spelling. */
    char spelt[MODULE_MAX];
    for (unsigned m = 0; m < ADAPTER_MODULES; m++) {
        (void)snprintf(spelt, sizeof(spelt), "model.layers.%u.%s", place.layer, module_names[m]);
        if (strcmp(spelt, place.name) == 0) {
            place.module = (enum adapter_module)m;
            *ret_place = place;
            return 0;
        }
    }
    return refuse_name(name, err);
}

/* --- pairs ----------------------------------------------------------------------------------- */

struct wanted {
    uint64_t rows, columns;
};

static int check_tensor(const struct safetensor *tensor, struct wanted want, struct errmsg *err)
{
    if (tensor->info == NULL || dtype_is_quantised(tensor->dtype))
        return errmsg_set(err, -ENOTSUP, "tensor '%s' is of type %s; F32, F16 and BF16 are served",
                          shown(tensor->name).text, tensor->type_name);
    if (tensor->dims_count != 2)
        return errmsg_set(err, -EINVAL, "tensor '%s' has %u dimensions instead of 2",
                          shown(tensor->name).text, tensor->dims_count);
    if (tensor->dims[0] != want.rows || tensor->dims[1] != want.columns)
        return errmsg_set(err, -EINVAL, "tensor '%s' is %llu x %llu instead of %llu x %llu",
                          shown(tensor->name).text, (unsigned long long)tensor->dims[0],
                          (unsigned long long)tensor->dims[1], (unsigned long long)want.rows,
                          (unsigned long long)want.columns);
    return 0;
}

static int add_tensor(struct adapter *adapter, struct adapter_config *config,
                      const struct model_config *model, const struct safetensor *tensor,
                      struct errmsg *err)
{
    struct place place = {0};
    uint32_t inputs = 0, outputs = 0;
    int r = find_place(tensor->name, &place, err);
    if (r < 0)
        return r;
    if (place.layer >= model->layers)
        return errmsg_set(err, -EINVAL, "tensor '%s' is of layer %u; the model has %u",
                          shown(tensor->name).text, place.layer, model->layers);
    if (!adapter_module_shape(model, place.module, place.layer, &inputs, &outputs))
        return errmsg_set(err, -EINVAL, "tensor '%s': layer %u of this model has no %s to adapt",
                          shown(tensor->name).text, place.layer, module_names[place.module]);
    if (!adapter_config_targets(config, place.name))
        return errmsg_set(err, -EINVAL, "tensor '%s': target_modules does not name its module",
                          shown(tensor->name).text);
    struct adapter_pair *pair =
        &adapter->pairs[(size_t)place.layer * ADAPTER_MODULES + place.module];
    pair->rank = adapter_config_rank(config, place.name);
    pair->factor = adapter_config_factor(config, place.name);
    if (pair->rank > adapter->rank_max)
        adapter->rank_max = pair->rank;
    *(place.is_b ? &pair->b : &pair->a) = tensor;
    return check_tensor(tensor,
                        place.is_b ? (struct wanted){outputs, pair->rank}
                                   : (struct wanted){pair->rank, inputs},
                        err);
}

static void digest_tensor(XXH3_state_t *state, const struct safetensor *tensor)
{
    const uint32_t dtype = (uint32_t)tensor->dtype;
    (void)XXH3_128bits_update(state, &dtype, sizeof(dtype));
    (void)XXH3_128bits_update(state, tensor->data, tensor->bytes);
}

static int finish_pairs(struct adapter *adapter, struct errmsg *err)
{
    size_t count = (size_t)adapter->layers * ADAPTER_MODULES, found = 0;
    XXH3_state_t *state = XXH3_createState();
    ASSERT(state != NULL);
    (void)XXH3_128bits_reset(state);
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i++) {
        const struct adapter_pair *pair = &adapter->pairs[i];
        const struct safetensor *one = pair->a != NULL ? pair->a : pair->b;
        if (one == NULL)
            continue;
        found++;
        if (pair->a == NULL || pair->b == NULL) {
            r = errmsg_set(err, -EINVAL, "tensor '%s' has no partner", shown(one->name).text);
            continue;
        }
        (void)XXH3_128bits_update(state, &i, sizeof(i));
        (void)XXH3_128bits_update(state, &pair->rank, sizeof(pair->rank));
        (void)XXH3_128bits_update(state, &pair->factor, sizeof(pair->factor));
        digest_tensor(state, pair->a);
        digest_tensor(state, pair->b);
    }
    if (r == 0 && found == 0)
        r = errmsg_set(err, -EINVAL, "the file holds no tensors");
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    (void)XXH3_freeState(state);
    (void)snprintf(adapter->digest, sizeof(adapter->digest), "%016llx%016llx",
                   (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    return r;
}

int adapter_of(const json_t *json, struct safetensors *file, const struct model_config *model,
               struct adapter **ret_adapter, struct errmsg *err)
{
    struct adapter *adapter = mem_zalloc(sizeof(*adapter));
    struct adapter_config *config = NULL;
    adapter->file = file;
    adapter->layers = model->layers;
    adapter->pairs = mem_calloc((size_t)model->layers * ADAPTER_MODULES, sizeof(*adapter->pairs));
    int r = adapter_config_read(json, &config, err);
    if (r < 0)
        r = errmsg_prefix(err, r, "adapter_config.json");
    for (size_t i = 0; i < safetensors_count(file) && r == 0; i++)
        r = add_tensor(adapter, config, model, safetensors_at(file, i), err);
    if (r == 0)
        r = finish_pairs(adapter, err);
    adapter_config_free(config);
    if (r < 0) {
        adapter_close(adapter);
        return r;
    }
    *ret_adapter = adapter;
    return 0;
}

/* --- files ----------------------------------------------------------------------------------- */

static int read_config(const char *folder, json_t **ret_json, struct errmsg *err)
{
    char *path = mem_printf("%s/adapter_config.json", folder), *text = NULL;
    size_t bytes = 0;
    int r = file_bytes_read(path, CONFIG_BYTES_MAX, &text, &bytes, err);
    if (r == 0) {
        r = json_parse(text, bytes, CONFIG_BYTES_MAX, ret_json, err);
        if (r < 0)
            r = errmsg_prefix(err, -EINVAL, "adapter_config.json");
    }
    mem_free(text);
    mem_free(path);
    return r;
}

static int open_file(const char *folder, struct safetensors **ret_file, struct errmsg *err)
{
    struct stat st;
    char *path = mem_printf("%s/adapter_model.safetensors", folder);
    char *pickle = mem_printf("%s/adapter_model.bin", folder);
    int r;
    if (stat(path, &st) < 0 && errno == ENOENT && stat(pickle, &st) == 0)
        r = errmsg_set(err, -ENOTSUP,
                       "adapter_model.bin is a pickle, which can run code; save it as safetensors");
    else
        r = safetensors_open(path, ret_file, err);
    mem_free(path);
    mem_free(pickle);
    return r;
}

int adapter_open(const char *folder, const struct model_config *config,
                 struct adapter **ret_adapter, struct errmsg *err)
{
    json_t *json = NULL;
    struct safetensors *file = NULL;
    if (strlen(folder) > ADAPTER_PATH_MAX)
        return errmsg_set(err, -ENAMETOOLONG, "the path has more than %u bytes", ADAPTER_PATH_MAX);
    int r = read_config(folder, &json, err);
    if (r == 0)
        r = open_file(folder, &file, err);
    if (r == 0)
        r = adapter_of(json, file, config, ret_adapter, err);
    json_decref(json);
    return r;
}

void adapter_close(struct adapter *adapter)
{
    if (adapter == NULL)
        return;
    safetensors_close(adapter->file);
    mem_free(adapter->pairs);
    mem_free(adapter);
}
