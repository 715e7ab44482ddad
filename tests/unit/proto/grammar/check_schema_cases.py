#!/usr/bin/env python3
"""Judges schema_cases.json by the jsonschema package: "yes" and "unwritten" texts must be valid, "no"
texts must not be. Run by hand after a change of the table: check_schema_cases.py [FILE]."""
import json
import pathlib
import sys

import jsonschema


def verdict(schema, text):
    """None: the text is no JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    return validator.is_valid(value)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "schema_cases.json"
    wrong = pairs = 0
    for case in json.loads(pathlib.Path(path).read_text()):
        for wanted, texts in ((True, case["yes"] + case["unwritten"]), (False, case["no"])):
            for text in texts:
                pairs += 1
                if bool(verdict(case["schema"], text)) != wanted:
                    wrong += 1
                    print(json.dumps(case["schema"]), text, "wanted", wanted)
    print(pairs, "pairs,", wrong, "wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
