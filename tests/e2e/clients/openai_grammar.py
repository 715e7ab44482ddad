"""The openai package asks for answers of a form; jsonschema and re judge what comes.

usage: openai_grammar.py URL MODEL KEY      prints a line per check; exits 1 at the first that fails
"""
import json
import re
import sys
from typing import List, Literal, Optional

import jsonschema
import openai
import pydantic

QUESTION = [{"role": "user", "content": "Describe a person named Ada in a few facts."}]
TOKENS = 200

SCHEMAS = {
    "flat": {"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "score": {"type": "number", "minimum": -1, "maximum": 1}},
        "required": ["name", "age", "score"], "additionalProperties": False},
    "nested": {"$defs": {"place": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 20},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["city", "zip"]}},
        "type": "object", "properties": {
            "kind": {"enum": ["person", "robot"]},
            "home": {"$ref": "#/$defs/place"},
            "work": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 12},
                     "minItems": 1, "maxItems": 3},
            "born": {"type": "string", "format": "date"}},
        "required": ["kind", "home", "work", "tags", "born"]},
    "recursive": {"$defs": {"node": {"type": "object", "properties": {
        "v": {"type": "integer", "minimum": 1, "maximum": 9},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
        "required": ["v", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"},
    "formats": {"type": "object", "properties": {
        "id": {"type": "string", "format": "uuid"},
        "when": {"type": "string", "format": "date-time"},
        "ip": {"type": "string", "format": "ipv4"}}, "required": ["id", "when", "ip"]},
}


def check(name, condition, seen=""):
    print(("ok      " if condition else "FAILED  ") + name + (f"  ({str(seen)[:160]!r})" if seen != "" else ""),
          flush=True)
    if not condition:
        sys.exit(1)


def ask(client, model, stream=False, **more):
    """Text and finish reason."""
    more = {"max_tokens": TOKENS, "temperature": 0, **more}
    if not stream:
        choice = client.chat.completions.create(model=model, messages=QUESTION, **more).choices[0]
        return choice.message.content, choice.finish_reason
    text, finish = "", None
    for chunk in client.chat.completions.create(model=model, messages=QUESTION, stream=True, **more):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
    return text, finish


def check_schemas(client, model):
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for name, schema in SCHEMAS.items():
        validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
        wish = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
        for temperature in (0, 1.5):
            texts = [ask(client, model, stream, response_format=wish, temperature=temperature,
                         seed=2) for stream in (False, True)]
            check(f"{name} at {temperature}: streamed as whole", texts[0] == texts[1], texts)
            text, finish = texts[0]
            if finish == "length":  # a model may talk for ever inside a string
                print("        cut: " + name)
                continue
            errors = [error.message for error in validator.iter_errors(json.loads(text))]
            check(f"{name} at {temperature}: valid", finish == "stop" and not errors, errors or text)


def check_json_object(client, model):
    for seed in range(4):
        text, finish = ask(client, model, response_format={"type": "json_object"}, temperature=1.0,
                           seed=seed)
        if finish == "stop":
            check("json_object", isinstance(json.loads(text), dict), len(text))


def check_guided(client, model):
    for temperature in (0, 1.5):
        text, finish = ask(client, model, temperature=temperature, seed=5,
                           extra_body={"guided_choice": ["red", "green", "dark blue"]})
        check("guided_choice", text in ("red", "green", "dark blue") and finish == "stop", text)
        text, finish = ask(client, model, temperature=temperature, seed=5,
                           extra_body={"guided_regex": r"[A-Z][a-z]{2,8} is \d{1,3} years\."})
        check("guided_regex", re.fullmatch(r"[A-Z][a-z]{2,8} is \d{1,3} years\.", text)
              and finish == "stop", text)
        text, finish = ask(client, model, temperature=temperature, seed=5, extra_body={
            "guided_grammar": 'root ::= n (" + " n){1,4} " = " n\nn ::= [1-9] [0-9]{0,2}'})
        check("guided_grammar", re.fullmatch(r"[1-9]\d{0,2}( \+ [1-9]\d{0,2}){1,4} = [1-9]\d{0,2}",
                                             text) and finish == "stop", text)
        text, finish = ask(client, model, temperature=temperature, seed=5, extra_body={
            "structured_outputs": {"json": {"type": "array", "items": {"type": "boolean"},
                                            "minItems": 2, "maxItems": 2}}})
        check("structured_outputs", [type(v) for v in json.loads(text)] == [bool, bool], text)
        tag = {"begin": "<call=f>", "end": "</call>", "content": {
            "type": "json_schema", "json_schema": {"type": "integer", "minimum": 0}}}
        text, finish = ask(client, model, temperature=temperature, seed=5, extra_body={
            "response_format": {"type": "structural_tag", "format": {
                "type": "triggered_tags", "triggers": ["<call="], "tags": [tag],
                "at_least_one": True, "stop_after_first": True}}})
        check("structural_tag", re.fullmatch(r"<call=f>\d+</call>", text) and finish == "stop", text)


class Pet(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    kind: Literal["cat", "dog"]
    age: Optional[int]


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    pets: List[Pet] = pydantic.Field(max_length=2)


def check_parse(client, model):
    answer = client.chat.completions.parse(model=model, messages=QUESTION, max_tokens=TOKENS,
                                           temperature=0, response_format=Person)
    person = answer.choices[0].message.parsed
    check("parse into pydantic", isinstance(person, Person), person)


def check_errors(client, model):
    wishes = (
        ("guided_regex", {"guided_regex": "a(?=b)"}, "look-around"),
        ("guided_json", {"guided_json": {"not": {}}}, "'not' is not supported"),
        ("guided_choice", {"guided_choice": []}, "at least one"),
        ("guided_grammar", {"guided_grammar": "root ::= root"}, "grammar"),
        ("guided_choice", {"guided_choice": ["a"], "guided_regex": "a"}, "exclude"),
        ("response_format", {"response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "object", "patternProperties": {"a": {}}}}}},
         "'patternProperties'"),
    )
    for param, body, words in wishes:
        try:
            client.chat.completions.create(model=model, messages=QUESTION, extra_body=body)
            check("refused: " + param, False)
        except openai.BadRequestError as error:
            check("refused: " + param, error.param == param and words in str(error), error.message)


def main():
    url, model, key = sys.argv[1:4]
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
    check_schemas(client, model)
    check_json_object(client, model)
    check_guided(client, model)
    check_parse(client, model)
    check_errors(client, model)
    print("all passed")


if __name__ == "__main__":
    main()
