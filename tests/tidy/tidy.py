#!/usr/bin/env python3
"""House rules that no compiler checks; prints `file:line: rule` for each breach, exits 1 if any.

Rules: file <= 800 lines, function <= 70 lines, lines <= 100 columns, a top comment in every source
file, include direction (router -> proto; worker -> kernels, proto; kernels -> proto/base; deploy ->
proto and router/text), banned calls, no mutable globals, no #if inside functions, no leftover notes.
"""
import re
import subprocess
import sys

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
MAY_INCLUDE = {
    "proto/base": ("proto/base", "proto/cluster_conf.h"),
    "proto": ("proto",),
    "kernels": ("kernels", "proto/base"),
    "worker": ("worker", "kernels", "proto"),
    "router": ("router", "proto"),
    "deploy": ("deploy", "proto", "router/text"),
}
BANNED = {
    r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|tmpnam|mktemp)\s*\(": "use the bounded call",
    r"\b(malloc|calloc|realloc|free|strdup|strndup)\s*\(": "proto/base/mem.h",
    r"\b(atoi|atol|atof|rand|srand|random)\s*\(": "strtol/rng.h",
    r"\b(system|popen)\s*\(": "process.h",
    r"\bgetenv\s*\(": "nothing is read from the environment",
    r"\b(sleep|usleep|nanosleep)\s*\(": "wait on something with a deadline",
    r"\bexit\s*\(": "only main ends a process",
    r"\bprintf\s*\(": "log.h (programs' own output: fprintf(stdout, ...))",
}
# Where a banned call is the point of the file.
ALLOWED = {
    "proto/base/mem.c": ("malloc", "calloc", "realloc", "free", "strdup", "strndup"),
    "proto/base/process.c": ("getenv", "exit"),
    "worker/check.c": ("free",),  # getline's memory
    "proto/base/log.c": ("getenv",),
}
NOTES = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns],
                         check=True, capture_output=True, text=True)
    return [name for name in out.stdout.split("\n") if name]


def strip_comments(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: blank(m) if m.group(0)[0] == "/" else
                  m.group(0)[0] + re.sub(r"[^\n]", " ", m.group(0)[1:-1]) + m.group(0)[-1],
                  text, flags=re.S)


def layer_of(name):
    if name.startswith("proto/base/"):
        return "proto/base"
    return name.split("/", 1)[0]


def check_includes(name, text, report):
    allowed = MAY_INCLUDE.get(layer_of(name))
    if allowed is None:
        return
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1)
        if not any(target == a or target.startswith(a.rstrip("/") + "/") for a in allowed):
            report(name, number, f"{layer_of(name)} may not include {target}")


def check_functions(name, code, report):
    """A function is a line at column 0 that opens a body with '{' alone on the next line."""
    lines = code.split("\n")
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{" and number > 1 and re.search(r"\)\s*(__attribute__.*)?$", lines[number - 2]):
            start = number
        elif line.startswith("}") and start is not None:
            if number - start - 1 > FUNCTION_LINES_MAX:
                report(name, start, f"function of {number - start - 1} lines (max {FUNCTION_LINES_MAX})")
            start = None
        elif start is not None and re.match(r"\s*#\s*(if|ifdef|ifndef)\b", line):
            report(name, number, "#if inside a function")


def check_globals(name, code, report):
    for number, line in enumerate(code.split("\n"), 1):
        if re.match(r"(static\s+)?(?!const|typedef|extern|return|struct \w+;|enum|union|#|_Noreturn|_Static_assert)"
                    r"[a-z_][\w\s\*]*?\b\w+(\[[^\]]*\])*\s*(=[^=].*)?;\s*$", line):
            if "const" in line or "log_" in line or "(" in line.split("=")[0]:
                continue
            if name in ("proto/base/log.c",) or "signal" in line or "_Thread_local" in line:
                continue
            report(name, number, "mutable global")


def check_calls(name, code, report):
    allowed = ALLOWED.get(name, ())
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, instead in BANNED.items():
            for match in re.finditer(pattern, line):
                call = match.group(0).rstrip("( ")
                before = line[:match.start()]
                if call in allowed or re.search(r"[\w.>]$", before) and not re.search(r"\breturn $", before):
                    continue
                if call == "exit" and name.endswith("main.c"):
                    continue
                if re.search(r"\(\*\s*$", before):  # a function pointer member of that name
                    continue
                report(name, number, f"{call}() is banned: {instead}")


def main():
    breaches = []

    def report(name, number, rule):
        breaches.append(f"{name}:{number}: {rule}")

    for name in tracked("*.c", "*.h", "*.cu"):
        with open(name, encoding="utf-8") as file:
            text = file.read()
        lines = text.split("\n")
        product = not name.startswith("tests/")
        if len(lines) - 1 > FILE_LINES_MAX:
            report(name, 1, f"{len(lines) - 1} lines (max {FILE_LINES_MAX})")
        if not text.startswith("/*"):
            report(name, 1, "no top comment")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                report(name, number, f"{len(line)} columns (max {COLUMNS_MAX})")
            if NOTES.search(line):
                report(name, number, "leftover note")
        check_includes(name, text, report)
        code = strip_comments(text)
        check_functions(name, code, report)
        if product:
            check_calls(name, code, report)
            if name.endswith(".c"):
                check_globals(name, code, report)
    print("\n".join(breaches))
    print(f"{len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
