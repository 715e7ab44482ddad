#!/usr/bin/env python3
"""`refrain text render` over every template and case of shared/cases/templates.

    check_templates.py REFRAIN SHARED

A case with `expected` must give exactly that text, one with `error` an error line. The last line is
`N passed, N failed`.
"""
import glob
import json
import os
import subprocess
import sys


def line_of(case):
    line = dict(case.get("template_kwargs") or {})
    for key in ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "now"):
        if case.get(key) is not None:
            line[key] = case[key]
    return line


def is_right(case, answer):
    if "expected" in case and case["expected"] is not None:
        return answer.get("text") == case["expected"]
    return "error" in answer and "text" not in answer


def main():
    refrain, shared = sys.argv[1:]
    passed = failed = 0
    for path in sorted(glob.glob(os.path.join(shared, "cases/templates/*.jinja"))):
        with open(path[:-len(".jinja")] + ".cases.json", encoding="utf-8") as file:
            cases = json.load(file)
        lines = "".join(json.dumps(line_of(case)) + "\n" for case in cases)
        done = subprocess.run([refrain, "text", "render", "--template", path], input=lines.encode(),
                              capture_output=True, check=True)
        answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
        wrong = [(c["name"], a) for c, a in zip(cases, answers, strict=True) if not is_right(c, a)]
        for name, answer in wrong[:3]:
            print(f"FAILED {os.path.basename(path)} {name}: {json.dumps(answer)[:300]}")
        passed += len(cases) - len(wrong)
        failed += len(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
