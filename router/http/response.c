/* response.c - status line, headers, error objects.
 *
 * Why no printf on the common path: a short answer is mostly its head, and at tens of thousands of
 *   answers a second formatting was what the profile showed. Appending texts is cheap and plain. */
#include "router/http/response.h"

#include <string.h>
#include <time.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/json.h"

static const struct {
    int status;
    const char *text;
} statuses[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

const char *http_status_text(int status)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        if (statuses[i].status == status)
            return statuses[i].text;
    }
    return "Unknown";
}

const char *http_date_text(struct http_date *date)
{
    uint64_t now = clock_unix_s();
    time_t seconds = (time_t)now;
    struct tm tm;

    if (now == date->unix_s)
        return date->text;
    (void)gmtime_r(&seconds, &tm);
    /* strftime's names follow the locale; no part of Refrain calls setlocale(). */
    (void)strftime(date->text, sizeof(date->text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    date->unix_s = now;
    return date->text;
}

static void append_number(struct buffer *out, size_t number)
{
    char text[24];
    size_t at = sizeof(text);

    do {
        text[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    buffer_append(out, text + at, sizeof(text) - at);
}

void http_response_head(struct buffer *out, const struct http_response *response)
{
    int status = response->status;

    ASSERT(status >= 200 && status <= 599);
    buffer_append_text(out, "HTTP/1.1 ");
    append_number(out, (size_t)status);
    buffer_append_char(out, ' ');
    buffer_append_text(out, http_status_text(status));
    buffer_append_text(out, "\r\nDate: ");
    buffer_append_text(out, response->date);
    buffer_append_text(out, "\r\nServer: refrain\r\n");
    if (response->content_type != NULL) {
        buffer_append_text(out, "Content-Type: ");
        buffer_append_text(out, response->content_type);
        buffer_append_text(out, "\r\n");
    }
    if (response->framing == HTTP_FRAMING_CHUNKED) {
        buffer_append_text(out, "Transfer-Encoding: chunked\r\n");
    } else if (response->framing == HTTP_FRAMING_LENGTH && status != 204 && status != 304) {
        buffer_append_text(out, "Content-Length: ");
        append_number(out, response->bytes);
        buffer_append_text(out, "\r\n");
    }
    if (response->close)
        buffer_append_text(out, "Connection: close\r\n");
    else if (response->keep_alive)
        buffer_append_text(out, "Connection: keep-alive\r\n");
    buffer_append_text(out, response->extra);
    buffer_append_text(out, "\r\n");
}

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void append_string_or_null(struct buffer *out, const char *text)
{
    if (text == NULL)
        buffer_append_text(out, "null");
    else
        json_append_sentence(out, text);
}

void http_response_error(struct buffer *out, int status, const char *code, const char *param,
                         const char *message)
{
    buffer_append_text(out, "{\"error\":{\"message\":");
    json_append_sentence(out, message);
    buffer_append_text(out, ",\"type\":");
    json_append_sentence(out, error_type(status));
    buffer_append_text(out, ",\"param\":");
    append_string_or_null(out, param);
    buffer_append_text(out, ",\"code\":");
    append_string_or_null(out, code);
    buffer_append_text(out, "}}");
}
